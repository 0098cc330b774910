//! Operations that list, enable, update and disable an agent's services.
//!
//! A record's version starts at 1. Version 0 means that no record exists.

use crate::agents::owned::{OwnedAgent, require_id};
use crate::several::run_concurrently;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Amount, AuditChanges, Caps, Catalog, EnabledService, Error, ErrorKind, PolicyChange, PolicyUpdate, Result,
    ServiceId, ServiceUpdate, Spend, WindowPeriod, WindowScope,
};
use purser_store::{Backoff, UpdateResult};
use std::sync::Arc;

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

/// An agent's record of a service after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedService {
    pub(crate) record: EnabledService,
    /// False if the agent already had a record of the service, enabled or disabled.
    pub(crate) is_new: bool,
}

impl People {
    /// Lists the agent's services with their spending, including disabled services.
    pub(crate) async fn list_services(&self, owned: &OwnedAgent) -> Result<Vec<GovernedService>> {
        let records = self.ledger.list_enabled_services(owned.agent()).await?;
        self.read_governed_services(owned, records).await
    }

    /// `reference` is a slug or a UUID. A service that left the catalog is found only by UUID.
    pub(crate) async fn read_service(&self, owned: &OwnedAgent, reference: &str) -> Result<GovernedService> {
        let record = self.read_policy_record(owned, reference).await?;
        self.read_governed_service(owned, record).await
    }

    /// Returns the id of a service for which the agent has a record. Handlers call this first, so that an unknown
    /// service is 404 regardless of other errors.
    pub(crate) async fn find_agent_service(&self, owned: &OwnedAgent, reference: &str) -> Result<ServiceId> {
        Ok(self.read_policy_record(owned, reference).await?.service)
    }

    /// Saves an update of the agent's record of a service. If nothing changes, nothing is written. Wider limits require
    /// a recent sign-in.
    pub(crate) async fn save_service(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        service: ServiceId,
        update: &ServiceUpdate,
    ) -> Result<SavedService> {
        let action = update.act(service).on_agent(owned.agent().id);
        let saved = self.store_service_update(owned, if_match, &action, service, update);
        self.audit_rejection(owned.acting(), &action, saved).await
    }

    /// Saves a change that was computed from the record `current`. Without a record, enables the service.
    pub(crate) async fn save_service_of_record(
        &self,
        owned: &OwnedAgent,
        current: Option<&EnabledService>,
        service: ServiceId,
        change: PolicyChange,
    ) -> Result<SavedService> {
        if current.is_none() {
            // The caller audits the rejection, as the caller's own action.
            find_open_service(&self.current_catalog().await?.catalog, &service.to_string())?;
        }
        let update = ServiceUpdate::for_record(current, change);
        let if_match = Precondition::Version(current.map_or(0, |current| current.version));
        // Boxed, because the futures of updates are large.
        Box::pin(self.save_service(owned, if_match, service, &update)).await
    }

    async fn store_service_update(
        &self,
        owned: &OwnedAgent,
        if_match: Precondition,
        action: &Act,
        service: ServiceId,
        update: &ServiceUpdate,
    ) -> Result<SavedService> {
        let agent = owned.agent().id;
        let edition = self.current_catalog().await?;
        let listed = edition.catalog.find_by_id(service);
        let mut backoff = Backoff::new();
        loop {
            let current = self.ledger.find_enabled_service(agent, service).await?;
            if_match.check_version(update.replaced_version(current.as_ref())?)?;
            let record = update.apply(service, current.as_ref(), listed)?;
            if let Some(current) = &current
                && record.enabled == current.enabled
                && record.policy == current.policy
            {
                let (record, is_new) = (current.clone(), false);
                return Ok(SavedService { record, is_new });
            }
            if record.widens(current.as_ref()) {
                self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
            }
            let before = current.as_ref().map(EnabledService::audit_log_fields);
            let changes = AuditChanges::between(before, Some(record.audit_log_fields()));
            let entry = self.audit_entry(owned.acting(), action, changes)?;
            match self.ledger.put_policy(agent, &record, &entry).await? {
                UpdateResult::Stored => {
                    let is_new = current.is_none();
                    return Ok(SavedService { record, is_new });
                }
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
        let records = self.ledger.list_enabled_services(owned.agent()).await?;
        let unlimited = records
            .into_iter()
            .filter(|record| record.enabled && record.policy.is_permissive());
        let updated = run_concurrently(unlimited, |record| {
            let (people, owned) = (Arc::clone(self), owned.clone());
            let update = ServiceUpdate::Change(PolicyChange {
                enabled: None,
                policy: update.clone(),
            });
            async move {
                let if_match = Precondition::Version(record.version);
                match people.save_service(&owned, if_match, record.service, &update).await {
                    Ok(_) => Ok(Some(record.service)),
                    Err(error) if matches!(error.kind(), ErrorKind::VersionConflict { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        });
        Ok(updated.await?.into_iter().flatten().collect())
    }

    async fn read_policy_record(&self, owned: &OwnedAgent, reference: &str) -> Result<EnabledService> {
        let edition = self.current_catalog().await?;
        let listed = edition.catalog.find_by_reference(reference);
        let id = listed.map(|service| service.id).or_else(|| ServiceId::parse(reference));
        let record = self
            .ledger
            .find_enabled_service(owned.agent().id, require_id(id)?)
            .await?;
        require_id(record)
    }

    pub(crate) async fn read_governed_service(
        &self,
        owned: &OwnedAgent,
        record: EnabledService,
    ) -> Result<GovernedService> {
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

/// Returns `service_not_found` if agents may not pay the service (`Service::is_open`).
pub(crate) fn find_open_service(catalog: &Catalog, reference: &str) -> Result<ServiceId> {
    let service = catalog.find_by_reference(reference).filter(|service| service.is_open());
    Ok(service.ok_or(ErrorKind::ServiceNotFound)?.id)
}
