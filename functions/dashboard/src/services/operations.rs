//! Operations that list, enable, update and disable an agent's services.
//!
//! A record's version starts at 1. Version 0 means that no record exists.

use crate::agents::owned::OwnedAgent;
use crate::preview::operations::{PreviewDays, UpdatePreview};
use crate::several::run_concurrently;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Amount, ApprovalId, AuditChanges, AuditKind, Caps, Catalog, EnabledService, Error, ErrorKind, PolicyUpdate,
    Result, Service, ServiceId, Spend, SpendPolicy, WindowPeriod, WindowScope,
};
use purser_store::{AuditEntry, Backoff, UpdateResult};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnableService {
    /// The service's slug or UUID, as the caller sent it.
    pub(crate) service: String,
    /// The policy fields with other values than their defaults.
    pub(crate) policy: PolicyUpdate,
}

/// New values for some fields of an agent's record of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceUpdate {
    /// Whether the agent may pay the service at all.
    pub(crate) enabled: Option<bool>,
    pub(crate) policy: PolicyUpdate,
    /// The approval whose temporary limit increase the update removes from the policy.
    pub(crate) ended_raise: Option<ApprovalId>,
}

/// An agent's record of a service, and the spending that counts against the daily cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GovernedService {
    pub(crate) record: EnabledService,
    /// The caps that apply now, including a temporary limit increase.
    pub(crate) caps: Caps,
    /// The amount that was authorized in the last 24 hours and not released.
    pub(crate) spent_today: Spend,
}

impl GovernedService {
    pub(crate) fn remaining_today(&self) -> Amount {
        self.caps.per_day.saturating_minus(self.spent_today.amount)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enabling {
    pub(crate) service: GovernedService,
    /// False if the agent already had a record of the service, enabled or disabled.
    pub(crate) is_new: bool,
}

impl People {
    /// Lists the agent's services with their spending, including disabled services.
    pub(crate) async fn list_services(&self, owned: &OwnedAgent) -> Result<Vec<GovernedService>> {
        let records = self.ledger.list_enabled_services(owned.agent()).await?;
        self.read_governed_services(owned, records).await
    }

    pub(crate) async fn read_service(&self, owned: &OwnedAgent, id: ServiceId) -> Result<GovernedService> {
        let record = self.read_policy_record(owned, id).await?;
        self.read_governed_service(owned, record).await
    }

    /// Handlers call this first, so that an unknown service is 404 regardless of other errors.
    pub(crate) async fn require_agent_service(&self, owned: &OwnedAgent, id: ServiceId) -> Result<ServiceId> {
        Ok(self.read_policy_record(owned, id).await?.service)
    }

    /// Enables a service that agents may pay ([`Service::is_open`]). Omitted policy fields get their default values.
    pub(crate) async fn enable_agent_service(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        request: &EnableService,
    ) -> Result<Enabling> {
        let edition = self.current_catalog().await?;
        let service = find_open_service(&edition.catalog, request)?;
        let action = Act::new(AuditKind::ServiceEnabled)
            .on_agent(owned.agent().id)
            .about_service(service.id);
        let enabling = self.store_enabled_service(owned, if_match, &action, service.id, &request.policy);
        self.audit_rejection(owned.acting(), &action, enabling).await
    }

    pub(crate) async fn preview_enabling(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        request: &EnableService,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let edition = self.current_catalog().await?;
        let service = find_open_service(&edition.catalog, request)?.id;
        let current = self.ledger.find_enabled_service(owned.agent().id, service).await?;
        let version = current.map_or(0, |record| record.version);
        if_match.check_version(version)?;
        let record = EnabledService {
            service,
            version,
            enabled: true,
            policy: SpendPolicy::spec_defaults().apply(&request.policy),
        };
        self.preview_policy(owned, record, days).await
    }

    async fn store_enabled_service(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        action: &Act,
        service: ServiceId,
        update: &PolicyUpdate,
    ) -> Result<Enabling> {
        let policy = SpendPolicy::spec_defaults().apply(update);
        let mut backoff = Backoff::new();
        loop {
            let current = self.ledger.find_enabled_service(owned.agent().id, service).await?;
            let version = current.as_ref().map_or(0, |record| record.version);
            if_match.check_version(version)?;
            if let Some(record) = &current
                && record.enabled
                && record.policy == policy
            {
                return Ok(Enabling {
                    service: self.read_governed_service(owned, record.clone()).await?,
                    is_new: false,
                });
            }
            let record = EnabledService {
                service,
                version: version.saturating_add(1),
                enabled: true,
                policy: policy.clone(),
            };
            self.require_recent_sign_in_to_widen(owned, current.as_ref(), &record)?;
            let entry = self.policy_audit_entry(owned, action, current.as_ref(), &record)?;
            match self.ledger.put_policy(owned.agent().id, &record, &entry).await? {
                UpdateResult::Stored => {
                    return Ok(Enabling {
                        service: self.read_governed_service(owned, record).await?,
                        is_new: current.is_none(),
                    });
                }
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    /// If nothing changes, nothing is written.
    pub(crate) async fn update_service(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        id: ServiceId,
        update: &ServiceUpdate,
    ) -> Result<GovernedService> {
        let kind = match update.enabled {
            Some(true) => AuditKind::ServiceEnabled,
            Some(false) => AuditKind::ServiceDisabled,
            None => AuditKind::PolicyEdited,
        };
        let action = Act::new(kind).on_agent(owned.agent().id).about_service(id);
        let updated = self.store_service_update(owned, if_match, &action, id, update);
        self.audit_rejection(owned.acting(), &action, updated).await
    }

    pub(crate) async fn preview_service_update(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        id: ServiceId,
        update: &ServiceUpdate,
        days: PreviewDays,
    ) -> Result<UpdatePreview> {
        let edition = self.current_catalog().await?;
        let service = edition.catalog.find_by_id(id);
        check_policy_update(&update.policy, service)?;
        let current = self.read_policy_record(owned, id).await?;
        if_match.check_version(current.version)?;
        let updated = apply_service_update(&current, update, service)?;
        self.preview_policy(owned, updated, days).await
    }

    async fn store_service_update(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        action: &Act,
        id: ServiceId,
        update: &ServiceUpdate,
    ) -> Result<GovernedService> {
        let edition = self.current_catalog().await?;
        let service = edition.catalog.find_by_id(id);
        check_policy_update(&update.policy, service)?;
        let mut backoff = Backoff::new();
        loop {
            let current = self.read_policy_record(owned, id).await?;
            if_match.check_version(current.version)?;
            let record = apply_service_update(&current, update, service)?;
            if record.enabled == current.enabled && record.policy == current.policy {
                return self.read_governed_service(owned, current).await;
            }
            self.require_recent_sign_in_to_widen(owned, Some(&current), &record)?;
            let entry = self.policy_audit_entry(owned, action, Some(&current), &record)?;
            match self.ledger.put_policy(owned.agent().id, &record, &entry).await? {
                UpdateResult::Stored => return self.read_governed_service(owned, record).await,
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    /// Sets limits for all enabled services that have no limits yet, and returns these services.
    pub(crate) async fn limit_unlimited_services(
        self: &Arc<Self>,
        owned: &OwnedAgent,
        update: &PolicyUpdate,
    ) -> Result<Vec<ServiceId>> {
        check_policy_update(update, None)?;
        let records = self.ledger.list_enabled_services(owned.agent()).await?;
        let unlimited = records
            .into_iter()
            .filter(|record| record.enabled && record.policy.is_permissive());
        let updated = run_concurrently(unlimited, |record| {
            let (people, owned) = (Arc::clone(self), owned.clone());
            let change = ServiceUpdate {
                policy: update.clone(),
                ..ServiceUpdate::default()
            };
            async move {
                let if_match = Precondition::Version(record.version);
                match people.update_service(&owned, if_match, record.service, &change).await {
                    Ok(_) => Ok(Some(record.service)),
                    Err(error) if matches!(error.kind(), ErrorKind::VersionConflict { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        });
        Ok(updated.await?.into_iter().flatten().collect())
    }

    /// Requires a recent sign-in if the record `after` allows more than the record `before`.
    fn require_recent_sign_in_to_widen(
        &self,
        owned: &OwnedAgent,
        before: Option<&EnabledService>,
        after: &EnabledService,
    ) -> Result<()> {
        if after.widens(before) {
            self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
        }
        Ok(())
    }

    fn policy_audit_entry(
        &self,
        owned: &OwnedAgent,
        action: &Act,
        before: Option<&EnabledService>,
        after: &EnabledService,
    ) -> Result<AuditEntry> {
        let before = before.map(EnabledService::audit_log_fields);
        let changes = AuditChanges::between(before, Some(after.audit_log_fields()));
        self.audit_entry(owned.acting(), action, changes)
    }

    async fn read_policy_record(&self, owned: &OwnedAgent, id: ServiceId) -> Result<EnabledService> {
        let record = self.ledger.find_enabled_service(owned.agent().id, id).await?;
        record.ok_or_else(|| ErrorKind::NotFound.into())
    }

    async fn read_governed_service(&self, owned: &OwnedAgent, record: EnabledService) -> Result<GovernedService> {
        let item = self.read_governed_services(owned, vec![record]).await?.pop();
        item.ok_or_else(|| {
            Error::internal(
                "reading the spend on a service",
                "the result does not contain the service",
            )
        })
    }

    async fn read_governed_services(
        &self,
        owned: &OwnedAgent,
        records: Vec<EnabledService>,
    ) -> Result<Vec<GovernedService>> {
        let agent = owned.agent().id;
        let scope = |service| WindowScope::Day { agent, service };
        let scopes: Vec<_> = records
            .iter()
            .map(|record| (scope(record.service), WindowPeriod::DAY))
            .collect();
        let spends = self.read_spend_in_windows(&scopes).await?;
        let now = self.now();
        let governed_service = records.into_iter().map(|record| GovernedService {
            spent_today: spends.spend_in_window(scope(record.service)),
            caps: record.policy.caps(&owned.agent().owner, now),
            record,
        });
        Ok(governed_service.collect())
    }
}

/// Parses a slug or a UUID. A service that left the catalog is found only by UUID.
pub(crate) fn find_service_id(catalog: &Catalog, reference: &str) -> Result<ServiceId> {
    let id = catalog.find_by_reference(reference).map(|service| service.id);
    let id = id.or_else(|| ServiceId::parse(reference));
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

/// Returns `service_not_found` if agents may not pay the service ([`Service::is_open`]).
fn find_open_service<'a>(catalog: &'a Catalog, request: &EnableService) -> Result<&'a Service> {
    let service = catalog.find_by_reference(&request.service);
    let service = service
        .filter(|service| service.is_open())
        .ok_or(ErrorKind::ServiceNotFound)?;
    check_policy_update(&request.policy, Some(service))?;
    Ok(service)
}

/// Enabling a disabled service requires that agents may pay the service ([`Service::is_open`]).
fn apply_service_update(
    current: &EnabledService,
    update: &ServiceUpdate,
    service: Option<&Service>,
) -> Result<EnabledService> {
    let enabled = update.enabled.unwrap_or(current.enabled);
    if enabled && !current.enabled && !service.is_some_and(Service::is_open) {
        return Err(ErrorKind::ServiceNotFound.into());
    }
    let mut policy = current.policy.clone().apply(&update.policy);
    policy
        .raises
        .retain(|increase| Some(increase.approval) != update.ended_raise);
    Ok(EnabledService {
        service: current.service,
        version: current.version.saturating_add(1),
        enabled,
        policy,
    })
}

fn check_policy_update(policy: &PolicyUpdate, service: Option<&Service>) -> Result<()> {
    let errors = policy.validation_errors(service);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid(errors))
    }
}
