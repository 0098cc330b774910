//! Default services: the services that are enabled for an agent since creation, without a row per service. The first
//! change or payment writes the policy and the window ([`Ledger::try_write_default_policy`]), so every reservation is
//! conditional on stored rows. A set of default services is stored once under the digest, and never changed or removed,
//! so instances can cache the set.

use crate::{
    codec::{
        attribute::Attribute,
        backoff::Backoff,
        fault::Fault,
        fields::fields,
        item::{Draft, Fields},
        key::Key,
        ledger::Ledger,
        table::put_request,
    },
    people::policy::Role,
    transact::{TransactionOutcome, was_applied},
};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{
    Agent, AgentId, DefaultServices, EnabledService, Error, Fingerprint, PolicyChange, Result, ServiceId, StartingCaps,
};
use std::sync::Arc;

impl Ledger {
    /// Stores a set of default services, and returns its digest. Must be called before an agent uses the set.
    pub async fn store_default_services(&self, set: &DefaultServices) -> Result<Fingerprint> {
        let digest = set.digest();
        if self.sets.find(&digest).is_none() {
            let services = AttributeValue::B(Blob::new(set.to_bytes()));
            let caps = set.starting_caps();
            let row = Draft::new(&Key::default_services(&digest))
                .with_value(SERVICES, services)
                .with_optional("limits", nonempty_policy_changes(set).as_ref());
            let row = match &caps {
                Some(caps) => row.with_fields(caps),
                None => row,
            };
            let put =
                put_request(&self.db, &self.table, row.into_item()).condition_expression("attribute_not_exists(pk)");
            was_applied(put.send().await, "storing default services")?;
            self.sets.insert(digest, &Arc::new(set.clone()));
        }
        Ok(digest)
    }

    /// Reads the services that are enabled for an agent since creation.
    pub async fn read_default_services(&self, agent: &Agent) -> Result<Arc<DefaultServices>> {
        const READING: &str = "reading default services";
        let Some(digest) = agent.starting_set else {
            return Ok(Arc::new(DefaultServices::new([])));
        };
        if let Some(known) = self.sets.find(&digest) {
            return Ok(known);
        }
        let item = self.get_item(&Key::default_services(&digest)).await?;
        let item = item.ok_or_else(|| Error::internal(READING, Fault::new("the default services do not exist")))?;
        let bytes = item.get(SERVICES).and_then(|value| value.as_b().ok());
        let row = self.item_row(&item);
        let caps = if item.contains_key("mpc") {
            Some(row.read()?)
        } else {
            None
        };
        let set = bytes.and_then(|bytes| DefaultServices::from_bytes(bytes.as_ref()));
        let changes: Vec<OfServices> = row.get_optional("limits")?.unwrap_or_default();
        let changes = changes.into_iter().map(|of| (of.change, of.services)).collect();
        let set = set.map(|set| set.with_caps(caps).with_changes(changes));
        let set = set.filter(|set| set.digest() == digest);
        let set = Arc::new(set.ok_or_else(|| row.corrupt_error(SERVICES))?);
        self.sets.insert(digest, &set);
        Ok(set)
    }

    /// Returns an agent's default policy; `None` if the service is not one of the agent's default services.
    pub(crate) async fn read_default_policy(
        &self,
        agent: &Agent,
        service: ServiceId,
    ) -> Result<Option<EnabledService>> {
        let set = self.read_default_services(agent).await?;
        Ok(set.default_policy(service))
    }

    /// Writes the agent's default policy for the service, and the policy's window. Writes nothing if the agent's record
    /// has changed since it was read, so no concurrent freeze is bypassed. Returns whether the stored policy is
    /// now the default policy. Takes 6 write units.
    pub async fn try_write_default_policy(&self, agent: &Agent, service: ServiceId) -> Result<bool> {
        let Some(record) = self.read_default_policy(agent, service).await? else {
            return Ok(false);
        };
        let update = self.policy_transaction(agent.id, &record, Some(agent.version), None)?;
        let mut backoff = Backoff::new();
        match update.send_until_outcome(&self.db, &mut backoff).await? {
            TransactionOutcome::Committed => Ok(true),
            TransactionOutcome::Refused(rejection) => {
                let existing = rejection
                    .existing_item(Role::Policy)
                    .map(|item| self.read_policy(item))
                    .transpose()?;
                Ok(existing.as_ref() == Some(&record))
            }
        }
    }

    /// Writes the default policy before a change, if no row exists. Returns `false` if no default policy applies.
    pub(crate) async fn try_write_default_policy_by_id(&self, agent: AgentId, service: ServiceId) -> Result<bool> {
        let Some(agent) = self.read_agent_by_id(agent).await? else {
            return Ok(false);
        };
        if self.read_default_policy(&agent, service).await?.is_none() {
            return Ok(false);
        }
        // If the agent is changed between the read and this write, no row is written, and the caller tries again.
        self.try_write_default_policy(&agent, service).await?;
        Ok(true)
    }
}

const SERVICES: &str = "svcs";

fields! {
    StartingCaps { max_per_call: "mpc", max_per_day: "mpd", require_approval_above: "raa" }
}

/// Limits from a policy template, and the default services to which the limits apply.
struct OfServices {
    change: PolicyChange,
    services: Vec<ServiceId>,
}

fn nonempty_policy_changes(set: &DefaultServices) -> Option<Vec<OfServices>> {
    let changes = set.policy_changes().iter().map(|(change, services)| OfServices {
        change: change.clone(),
        services: services.clone(),
    });
    Some(changes.collect()).filter(|changes: &Vec<OfServices>| !changes.is_empty())
}

impl Attribute for OfServices {
    fn write(&self) -> AttributeValue {
        let services = DefaultServices::new(self.services.iter().copied()).to_bytes();
        let services = AttributeValue::B(Blob::new(services));
        AttributeValue::M(
            Draft::new_map()
                .with_fields(&self.change)
                .with_value(SERVICES, services)
                .into_item(),
        )
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let map = value.as_m().ok()?;
        let services = DefaultServices::from_bytes(map.get(SERVICES)?.as_b().ok()?.as_ref())?;
        Some(Self {
            change: Fields::read_from(map).ok()?,
            services: services.service_ids().to_vec(),
        })
    }
}
