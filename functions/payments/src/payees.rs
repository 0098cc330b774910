//! Reads the time from which a call's payee and price may be paid. The Lambda function `events` stores this
//! time in a row for each service (`shared/domain/src/catalog/attested.rs`).
//!
//! Invariants: a payee is evaluated with a row that was read after the current catalog version was loaded. Every
//! rejection is based on a newly read row.

use crate::Payments;
use purser_domain::{Error, EvaluationInputs, Operation, PayeeAge, Result, ServiceId, Timestamp, VerifiedService};
use purser_store::{CatalogVersion, UsageTable};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// The maximum number of cached services. They take about ten megabytes, at 300 bytes per operation.
const MAX: usize = 2_000;
/// The delays in milliseconds before the row of an unverified payee is read again. After a catalog change,
/// the Lambda function `events` usually needs two seconds to write the row.
const PAUSES: [u64; 5] = [200, 400, 600, 800, 1_000];

/// A cache of verified payees for the current catalog version.
pub(crate) struct Payees {
    table: UsageTable,
    known: Mutex<KnownPayees>,
}

#[derive(Default)]
struct KnownPayees {
    /// The catalog version that the cached rows belong to.
    version: u64,
    services: HashMap<ServiceId, Arc<VerifiedService>>,
}

impl Payees {
    pub(crate) fn new(table: UsageTable) -> Self {
        Self {
            table,
            known: Mutex::default(),
        }
    }

    fn get_verified_service(&self, version: u64, service: ServiceId) -> Option<Arc<VerifiedService>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .services
            .get(&service)
            .filter(|_| known.version == version)
            .cloned()
    }

    fn store_verified_service(&self, version: u64, verified_service: Arc<VerifiedService>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.version != version || known.services.len() >= MAX {
            known.services.clear();
            known.version = version;
        }
        known.services.insert(verified_service.service, verified_service);
    }
}

impl Payments {
    /// Adds the time from which the operation's payee and price may be paid, if it is in the future.
    pub(crate) async fn add_payee_start_time<'a>(
        &self,
        catalog_version: &CatalogVersion,
        inputs: EvaluationInputs<'a>,
    ) -> Result<EvaluationInputs<'a>> {
        let Some(operation) = inputs.operation else {
            return Ok(inputs);
        };
        // A pending catalog change may replace the price and the payee before the evaluation.
        let payable = operation.payee_and_max_price(inputs.network, inputs.at);
        if !payable.is_ok_and(|payable| payable.pay_to == inputs.intent.offer.pay_to()) {
            // The evaluation rejects these payment requirements, so the service's row is not needed.
            return Ok(inputs);
        }
        let payee_from = self
            .read_payee_start_time(catalog_version, inputs.service.id, operation, inputs.at)
            .await?;
        Ok(EvaluationInputs { payee_from, ..inputs })
    }

    async fn read_payee_start_time(
        &self,
        catalog_version: &CatalogVersion,
        service: ServiceId,
        operation: &Operation,
        at: Timestamp,
    ) -> Result<Option<Timestamp>> {
        let payees = &self.payees;
        if let Some(known) = payees.get_verified_service(catalog_version.version, service)
            && known.payee_age(operation, at) == PayeeAge::Old
        {
            return Ok(None);
        }
        let mut pauses = PAUSES.into_iter();
        loop {
            let verified_service = payees.table.read_verified_service(service).await?;
            let age = verified_service
                .as_ref()
                .map_or(PayeeAge::Unattested, |start| start.payee_age(operation, at));
            match (age, verified_service) {
                (PayeeAge::Old, verified_service) => {
                    if let Some(verified_service) = verified_service {
                        payees.store_verified_service(catalog_version.version, Arc::new(verified_service));
                    }
                    return Ok(None);
                }
                (PayeeAge::Young(from), _) => return Ok(Some(from)),
                (PayeeAge::Unattested, _) => {
                    let Some(pause) = pauses.next() else {
                        let words = "the payee is not verified yet";
                        return Err(Error::temporarily_unavailable("finding a verified payee", words));
                    };
                    sleep(Duration::from_millis(pause)).await;
                }
            }
        }
    }
}
