//! Services on an agent: list with their spend, enable, edit, disable.
//!
//! A record's version counts its edits, starting at one; version zero means that there is no record.

use crate::ops::owned::Owned;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Amount, Catalog, Duration, EnabledService, Error, ErrorKind, PolicyEdit, Result, Service, ServiceId, SpendPolicy,
    WindowScope,
};
use purser_store::{Backoff, Edited};

/// A service to enable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnableService {
    /// The service as it was named: slug or UUID.
    pub(crate) service: String,
    /// What differs from the column defaults.
    pub(crate) policy: PolicyEdit,
}

/// New values for some fields of a service's record on an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceEdit {
    /// Whether payments are allowed at all.
    pub(crate) enabled: Option<bool>,
    /// Its caps and scopes.
    pub(crate) policy: PolicyEdit,
}

/// A service's record on an agent, and the spend that counts against its cap on the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GovernedService {
    /// The record.
    pub(crate) record: EnabledService,
    /// What was authorized less than 24 hours ago and not released.
    pub(crate) spent_today: Amount,
}

impl GovernedService {
    /// What may still be spent now.
    pub(crate) fn remaining_today(&self) -> Amount {
        self.record.policy.max_per_day.above(self.spent_today)
    }
}

/// The result of enabling a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enabling {
    /// The record.
    pub(crate) service: GovernedService,
    /// Whether there was none before.
    pub(crate) is_new: bool,
}

impl People {
    /// Every service's record on the agent, disabled ones included.
    pub(crate) async fn services(&self, owned: &Owned) -> Result<Vec<GovernedService>> {
        let records = self.ledger.enabled_services(owned.agent().id).await?;
        self.with_spend(owned, records).await
    }

    /// One service's record on the agent.
    pub(crate) async fn service(&self, owned: &Owned, id: ServiceId) -> Result<GovernedService> {
        let record = self.record(owned, id).await?;
        self.one_with_spend(owned, record).await
    }

    /// The id of a service that has a record on the agent. Checked first, so that an unknown one is 404 even if other
    /// things are wrong.
    pub(crate) async fn known_service(&self, owned: &Owned, id: ServiceId) -> Result<ServiceId> {
        Ok(self.record(owned, id).await?.service)
    }

    /// Enables the service with the column defaults except for the given fields, whatever its record contains; only
    /// services that are open. Without a change nothing is written.
    pub(crate) async fn enable_service(
        &self,
        owned: &Owned,
        meant: Precondition,
        enable: &EnableService,
    ) -> Result<Enabling> {
        let edition = self.catalog().await?;
        let service = edition.catalog.by_reference(&enable.service);
        let service = service
            .filter(|service| service.is_open())
            .ok_or(ErrorKind::ServiceNotFound)?;
        judge(&enable.policy, Some(service))?;
        let policy = SpendPolicy::column_defaults().edited(&enable.policy);
        let mut backoff = Backoff::new();
        loop {
            let present = self.ledger.enabled_service(owned.agent().id, service.id).await?;
            let version = present.as_ref().map_or(0, |record| record.version);
            meant.holds(version)?;
            if let Some(record) = &present
                && record.enabled
                && record.policy == policy
            {
                return Ok(Enabling {
                    service: self.one_with_spend(owned, record.clone()).await?,
                    is_new: false,
                });
            }
            let record = EnabledService {
                service: service.id,
                version: version.saturating_add(1),
                enabled: true,
                policy: policy.clone(),
            };
            match self.ledger.put_policy(owned.agent().id, &record).await? {
                Edited::Stored => {
                    return Ok(Enabling {
                        service: self.one_with_spend(owned, record).await?,
                        is_new: present.is_none(),
                    });
                }
                Edited::Conflict => backoff.wait().await?,
            }
        }
    }

    /// The record with some fields replaced. Without a change nothing is written.
    pub(crate) async fn edit_service(
        &self,
        owned: &Owned,
        meant: Precondition,
        id: ServiceId,
        edit: &ServiceEdit,
    ) -> Result<GovernedService> {
        let edition = self.catalog().await?;
        let service = edition.catalog.by_id(id);
        judge(&edit.policy, service)?;
        let mut backoff = Backoff::new();
        loop {
            let present = self.record(owned, id).await?;
            meant.holds(present.version)?;
            let enabled = edit.enabled.unwrap_or(present.enabled);
            if enabled && !present.enabled && !service.is_some_and(Service::is_open) {
                return Err(ErrorKind::ServiceNotFound.into());
            }
            let policy = present.policy.clone().edited(&edit.policy);
            if enabled == present.enabled && policy == present.policy {
                return self.one_with_spend(owned, present).await;
            }
            let record = EnabledService {
                service: id,
                version: present.version.saturating_add(1),
                enabled,
                policy,
            };
            match self.ledger.put_policy(owned.agent().id, &record).await? {
                Edited::Stored => return self.one_with_spend(owned, record).await,
                Edited::Conflict => backoff.wait().await?,
            }
        }
    }

    async fn record(&self, owned: &Owned, id: ServiceId) -> Result<EnabledService> {
        let record = self.ledger.enabled_service(owned.agent().id, id).await?;
        record.ok_or_else(|| ErrorKind::NotFound.into())
    }

    async fn one_with_spend(&self, owned: &Owned, record: EnabledService) -> Result<GovernedService> {
        let one = self.with_spend(owned, vec![record]).await?.pop();
        one.ok_or_else(|| Error::internal("reading what was spent", "one record became none"))
    }

    async fn with_spend(&self, owned: &Owned, records: Vec<EnabledService>) -> Result<Vec<GovernedService>> {
        let (agent, now) = (owned.agent().id, self.now());
        let scope = |service| WindowScope::Day { agent, service };
        let scopes: Vec<_> = records
            .iter()
            .map(|record| (scope(record.service), Duration::DAY))
            .collect();
        let windows = self.ledger.windows_in_use(&scopes, now).await?;
        let spent = |service| {
            let window = windows.iter().find(|window| window.scope == scope(service));
            window.map_or(Amount::ZERO, |window| window.live(now))
        };
        let governed = records.into_iter().map(|record| GovernedService {
            spent_today: spent(record.service),
            record,
        });
        Ok(governed.collect())
    }
}

/// The service that a path names by slug or UUID. A record outlives its service's catalog entry, and is then found only
/// by UUID.
pub(crate) fn named_service(catalog: &Catalog, reference: &str) -> Result<ServiceId> {
    let id = catalog.by_reference(reference).map(|service| service.id);
    let id = id.or_else(|| ServiceId::parse(reference));
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

fn judge(policy: &PolicyEdit, service: Option<&Service>) -> Result<()> {
    let problems = policy.problems(service);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid(problems))
    }
}
