//! Verifies payees: of one service when the catalog changes, and of the whole catalog on request.
//!
//! The row with a service's verified payees is computed from the stored service, not from the stream record. So a
//! repeated or reordered record does not change when a payee may be paid. After a lost record, the next change of the
//! service or [`Inner::verify_payees_and_count_services`] corrects the row.

use crate::Inner;
use purser_domain::{Causes, Duration, Error, PayeeVerification, Result, Service, ServiceId, VerifiedService};
use purser_log::UnreadableObject;
use purser_store::{Backoff, Change, Corrupt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The delays before payees that are new in the catalog may be paid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) of_changes: Duration,
    pub(crate) of_accepted_changes: Duration,
}

/// How the payees of the whole catalog are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WholeCatalog {
    /// A payee that is not verified yet may be paid only after the usual delay.
    ByRule,
    /// Every payee in the catalog may be paid immediately.
    AtOnce,
}

/// The services with verified payees, read at most once per batch.
#[derive(Default)]
struct VerifiedServices(Option<BTreeMap<ServiceId, VerifiedService>>);

impl VerifiedServices {
    fn from_services(services: Vec<VerifiedService>) -> Self {
        Self(Some(
            services.into_iter().map(|service| (service.service, service)).collect(),
        ))
    }

    fn list_services(&self) -> Vec<VerifiedService> {
        self.0.iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn put(&mut self, service: VerifiedService) {
        if let Some(all) = &mut self.0 {
            all.insert(service.service, service);
        }
    }
}

impl Inner {
    /// Verifies the payees of the services in these stream records.
    pub(crate) async fn verify_changed_payees(&self, records: &[Value]) -> Result<()> {
        let changes = records.iter().filter_map(|record| Change::parse(record).ok());
        let changes = changes.filter(|change| self.catalog.has_table(&change.table));
        let services: BTreeSet<ServiceId> = changes.filter_map(|change| change.changed_service()).collect();
        if !services.is_empty() {
            self.verify_payees_on_first_run().await?;
        }
        let mut verified_service = VerifiedServices::default();
        for service in services {
            let present = match self.catalog.read_service_by_id(service).await {
                // The Lambda function `payments` can't read the service either. The verified payees stay unchanged.
                Err(error) if is_corruption_error(&error) => {
                    tracing::warn!(service.id = %service, cause = %error, "payees.service_unreadable");
                    continue;
                }
                present => present?,
            };
            match self
                .verify_service_payees(service, present.as_ref(), &mut verified_service)
                .await
            {
                // Without this row, the Lambda function `payments` pays no payee of the service.
                Err(error) if is_corruption_error(&error) => report_unreadable_row(&error),
                done => done?,
            }
        }
        Ok(())
    }

    /// Verifies all payees in the catalog with immediate effect in the first run of a deployment.
    pub(crate) async fn verify_payees_on_first_run(&self) -> Result<()> {
        let attest = async || {
            if self.usage.read_first_verification_time().await?.is_none() {
                self.verify_payees_and_count_services(WholeCatalog::AtOnce).await?;
            }
            Ok(())
        };
        self.has_attested.get_or_try_init(attest).await.copied()
    }

    pub(crate) async fn verify_payees_and_count_services(&self, payee_delay: WholeCatalog) -> Result<usize> {
        let services = self.catalog.read_services().await?;
        let stored = self.usage.read_all_verified_services().await?;
        let mut verified_service = VerifiedServices::from_services(stored.clone());
        for service in &services {
            match payee_delay {
                WholeCatalog::ByRule => {
                    self.verify_service_payees(service.id, Some(service), &mut verified_service)
                        .await?;
                }
                WholeCatalog::AtOnce => {
                    let before = stored.iter().find(|item| item.service == service.id);
                    self.verify_payees_immediately(service, before).await?;
                }
            }
        }
        for item in &stored {
            if !services.iter().any(|service| service.id == item.service) {
                self.verify_service_payees(item.service, None, &mut verified_service)
                    .await?;
            }
        }
        if payee_delay == WholeCatalog::AtOnce {
            self.usage.set_first_verification_time(self.clock.now()).await?;
        }
        tracing::info!(
            services = services.len(),
            at_once = payee_delay == WholeCatalog::AtOnce,
            "payees.attested"
        );
        Ok(services.len())
    }

    async fn verify_payees_immediately(&self, service: &Service, stored: Option<&VerifiedService>) -> Result<()> {
        let verified_service = VerifiedService::from_service_without_delay(service, stored, self.clock.now());
        // If the stored row is newer, the stored row stays unchanged.
        if service.was_ever_open() && verified_service.differs_from(stored) {
            self.usage.try_put_verified_service(&verified_service).await?;
        }
        Ok(())
    }

    /// Computes and writes a service's verified payees. `service` is `None` if the catalog does not have the service.
    async fn verify_service_payees(
        &self,
        id: ServiceId,
        service: Option<&Service>,
        verified_services: &mut VerifiedServices,
    ) -> Result<()> {
        let mut backoff = Backoff::new();
        loop {
            let before = self.usage.read_verified_service(id).await?;
            let opens = before.is_none() && service.is_some_and(Service::was_ever_open);
            if opens && verified_services.0.is_none() {
                *verified_services = VerifiedServices::from_services(self.usage.read_all_verified_services().await?);
            }
            let others = if opens {
                verified_services.list_services()
            } else {
                Vec::new()
            };
            let attesting = PayeeVerification {
                at: self.clock.now(),
                delay: self.delays.of_changes,
                accepted_delay: self.delays.of_accepted_changes,
                others: &others,
            };
            let verified_service = match (service, &before) {
                (Some(service), before) => attesting.verify_service(before.as_ref(), service),
                (None, Some(before)) => Some(attesting.verify_removed_service(before)),
                (None, None) => None,
            };
            let Some(verified_service) =
                verified_service.filter(|verified_service| verified_service.differs_from(before.as_ref()))
            else {
                return Ok(());
            };
            // The changes are logged before the write, because a repetition after the write would find no change.
            for (call, payee) in verified_service.payees_changed_since(before.as_ref()) {
                tracing::warn!(
                    change = "payee",
                    service.id = %id,
                    operation.id = %call.operation,
                    pay_to = %payee.pay_to,
                    max_units = payee.most.units(),
                    from = payee.from.map(tracing::field::display),
                    "change.seen"
                );
            }
            if self.usage.try_put_verified_service(&verified_service).await? {
                verified_services.put(verified_service);
                return Ok(());
            }
            backoff.wait_for_retry().await?;
        }
    }
}

/// Returns whether a stored item or a log object is unreadable, so that a retry cannot help.
pub(crate) fn is_corruption_error(error: &Error) -> bool {
    Corrupt::is_cause_of(error) || UnreadableObject::is_cause_of(error)
}

/// Raises the alarm `event-set-aside` for an unreadable row.
pub(crate) fn report_unreadable_row(error: &Error) {
    tracing::error!(problem = %Causes(error), "event.set_aside");
}
