//! The versions of what decisions are based on: agents' records, policies and catalog entries, in the usage table.
//!
//! `events` stores each version that it finds in the streams, a second or so after the edit, so that a decision can be
//! evaluated again with the inputs that it names. A version never changes, so storing one again changes nothing. The
//! ledger and the catalog have the current versions, so a version that is not stored yet is read there.
//!
//! The digests of an agent's keys are left out; the keys' scopes remain.

use crate::{
    catalog::table::{CatalogTable, partition},
    codec::{
        attribute::Item,
        fault::failed,
        item::{Draft, Row},
        key::{self as keys, Key, catalog::SERVICES},
        ledger::Ledger,
    },
    people::agent::write_agent,
    stream::change::Change,
    usage::{key, table::UsageTable},
};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    Agent, AgentId, AgentKey, EnabledService, InputVersions, ReplayInputs, Result, SecretDigest, Service, ServiceId,
    Timestamp,
};

/// A version of an agent's record, a policy or a catalog entry.
#[derive(Clone, Debug)]
pub struct InputVersion {
    key: Key,
    at: Timestamp,
    body: Item,
}

/// The inputs of a decision, in the versions that it names.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredInputs {
    agent: Agent,
    service: Service,
    enabled: Option<EnabledService>,
}

impl StoredInputs {
    /// The inputs, for a replay.
    pub const fn as_inputs(&self) -> ReplayInputs<'_> {
        ReplayInputs {
            agent: &self.agent,
            service: &self.service,
            enabled: self.enabled.as_ref(),
        }
    }
}

impl Ledger {
    /// The version of an agent's record or a policy that a change wrote; `None` for other rows. An error means that the
    /// row can't be read.
    pub fn input_version(&self, change: &Change) -> Result<Option<InputVersion>> {
        let Some(image) = change.new.as_ref().filter(|_| *self.table == *change.table) else {
            return Ok(None);
        };
        let pk = keys::partition_key(image);
        let key = if pk.starts_with("A#") {
            let agent = self.read_agent(self.agent_in(image)?, image)?;
            let key = key::agent_version(agent.id, agent.version);
            return Ok(Some(InputVersion {
                key,
                at: change.at,
                body: write_agent(&without_digests(agent)),
            }));
        } else if pk.starts_with("P#") {
            let enabled = self.read_policy(image)?;
            key::policy_version(self.agent_in(image)?, enabled.service, enabled.version)
        } else {
            return Ok(None);
        };
        Ok(Some(InputVersion {
            key,
            at: change.at,
            body: image.clone(),
        }))
    }
}

impl CatalogTable {
    /// The version of a catalog entry that a change wrote; `None` for other rows. An error means that the row can't be
    /// read.
    pub fn input_version(&self, change: &Change) -> Result<Option<InputVersion>> {
        let is_service = |image: &&Item| self.has_table(&change.table) && partition(image).starts_with(SERVICES);
        let Some(image) = change.new.as_ref().filter(is_service) else {
            return Ok(None);
        };
        let service = self.read_service(image)?;
        Ok(Some(InputVersion {
            key: key::service_version(service.id, service.version),
            at: change.at,
            body: image.clone(),
        }))
    }
}

impl UsageTable {
    /// Stores a version.
    pub async fn keep_version(&self, version: InputVersion) -> Result<()> {
        let row = Draft::of(&version.key)
            .with("t", &version.at)
            .with_value("body", AttributeValue::M(version.body));
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(failed("storing a version"))?;
        Ok(())
    }

    /// The inputs of a decision about this agent and service; `None` if a version was replaced before versions were
    /// stored. Some three read units.
    pub async fn inputs(
        &self,
        ledger: &Ledger,
        catalog: &CatalogTable,
        (agent, service): (AgentId, ServiceId),
        policy_version: Option<u64>,
        versions: InputVersions,
    ) -> Result<Option<StoredInputs>> {
        let agent = self.agent_version(ledger, agent, versions.agent);
        let service = self.service_version(catalog, service, versions.service);
        let (Some(agent), Some(service)) = tokio::try_join!(agent, service)? else {
            return Ok(None);
        };
        let enabled = match policy_version {
            None => None,
            Some(version) => {
                let enabled = self.policy_version(ledger, &agent, service.id, version).await?;
                if enabled.is_none() {
                    return Ok(None);
                }
                enabled
            }
        };
        Ok(Some(StoredInputs {
            agent,
            service,
            enabled,
        }))
    }

    async fn agent_version(&self, ledger: &Ledger, id: AgentId, version: u64) -> Result<Option<Agent>> {
        if let Some(body) = self.version(&key::agent_version(id, version)).await? {
            return ledger.read_agent(id, &body).map(Some);
        }
        let current = ledger.agent(id).await?;
        Ok(current.filter(|agent| agent.version == version).map(without_digests))
    }

    async fn service_version(&self, catalog: &CatalogTable, id: ServiceId, version: u64) -> Result<Option<Service>> {
        if let Some(body) = self.version(&key::service_version(id, version)).await? {
            return catalog.read_service(&body).map(Some);
        }
        let current = catalog.service(id).await?;
        Ok(current.filter(|service| service.version == version))
    }

    /// The first version of a policy may be the default of the agent's starting set, which has no row before the first
    /// payment.
    async fn policy_version(
        &self,
        ledger: &Ledger,
        agent: &Agent,
        service: ServiceId,
        version: u64,
    ) -> Result<Option<EnabledService>> {
        if let Some(body) = self.version(&key::policy_version(agent.id, service, version)).await? {
            return ledger.read_policy(&body).map(Some);
        }
        let current = ledger.enabled_service(agent.id, service).await?;
        if let Some(current) = current.filter(|enabled| enabled.version == version) {
            return Ok(Some(current));
        }
        let default = ledger.default_of(agent, service).await?;
        Ok(default.filter(|enabled| enabled.version == version))
    }

    async fn version(&self, key: &Key) -> Result<Option<Item>> {
        let get = self
            .db
            .get_item()
            .table_name(&*self.table)
            .set_key(Some(key.attributes()));
        let Some(item) = get.send().await.map_err(failed("reading a version"))?.item else {
            return Ok(None);
        };
        let body = item.get("body").and_then(|body| body.as_m().ok()).cloned();
        body.map(Some)
            .ok_or_else(|| Row::new(&self.table, &item).corrupt("body"))
    }
}

/// The agent with zeros in place of the digests of its keys.
fn without_digests(agent: Agent) -> Agent {
    let keys = agent.keys.into_iter().map(|key| AgentKey {
        digest: SecretDigest::from_bytes([0; 32]),
        ..key
    });
    Agent {
        keys: keys.collect(),
        ..agent
    }
}
