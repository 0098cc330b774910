//! The Lambda function `probe`: checks every minute which payment the providers of due catalog operations require.
//!
//! Runs may overlap or be interrupted, because an operation without a recorded result stays due. Invariant: the probe
//! never changes the catalog's services.

mod call;

use call::{CALL_TIMEOUT, Caller};
use purser_api::{Boot, BootError, Clock, run_with_concurrency_limit};
use purser_domain::{
    CatalogPayment, Duration as Length, Operation, OperationUuid, ProbeRecord, ProbeResult, Quote, Result, Service,
    ServiceId, Timestamp, TrustStatus,
};
use purser_store::{CatalogTable, ProbeSummary};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The maximum number of operations per run. [`MAX_CONCURRENT_SERVICES`] times [`CALLS_PER_SERVICE`] calls run
/// concurrently, for at most ten seconds each. If the operations belong to many services, 100 calls take at most 40 s.
const MAX_OPERATIONS: usize = 100;
const MAX_CONCURRENT_SERVICES: usize = 8;
/// The maximum number of concurrent calls to one service's provider.
const CALLS_PER_SERVICE: usize = 4;
/// The maximum time to record a service's results: two attempts of a transaction, and a pause.
const RECORDING: Duration = Duration::from_secs(5);
/// The time that is reserved for writing the results of all services.
const STORING: Duration = Duration::from_secs(5);

/// The Lambda function `probe`, ready to run. Clones share all state.
#[derive(Clone)]
pub struct Probe(Arc<Inner>);

struct Inner {
    catalog: CatalogTable,
    caller: Caller,
    clock: Clock,
    interval: Length,
}

/// The result of a run of the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of services whose probe results were stored in the catalog table.
    pub services: usize,
    /// The number of operations whose probe results were stored in the catalog table.
    pub operations: usize,
    /// The number of services whose probe results could not be stored. These services are due again.
    pub dropped: usize,
}

struct Due {
    service: Service,
    record: ProbeRecord,
    operations: Vec<Operation>,
}

impl Probe {
    /// Creates the function `probe`, configured by environment variables.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        const DEFAULT_INTERVAL_SECONDS: u32 = 21_600;
        let Boot {
            mut env, aws, clock, ..
        } = boot;
        let table = env.require_text("CATALOG_TABLE");
        let network = env.require_network();
        let interval = env.parse_number("PROBE_INTERVAL_SECONDS", DEFAULT_INTERVAL_SECONDS, 60..=604_800);
        let allowed = env.take_allowed_hosts("PROBE_ALLOWED_HOSTS");
        let (table, network, interval, allowed) = env.finish((table, network, interval, allowed))?;
        Ok(Self(Arc::new(Inner {
            catalog: CatalogTable::new(purser_store::dynamodb_client(&aws), table),
            caller: Caller::new(network, allowed, CALL_TIMEOUT)?,
            clock,
            interval: Length::from_secs_u32(interval),
        })))
    }

    /// Probes the due operations until `budget` is used up.
    pub async fn run_probes(&self, budget: Duration) -> Result<Report> {
        // A call that starts after `last_call` might end too late to store the result within `budget`.
        let (now, left) = (
            Instant::now(),
            budget.saturating_sub(CALL_TIMEOUT.saturating_add(RECORDING).saturating_add(STORING)),
        );
        let last_call = now.checked_add(left).unwrap_or(now);
        let mut probed_services = self.0.catalog.read_probed_services().await?;
        let due = self.due_probes(&probed_services);
        let runs = due.into_iter().map(|due| {
            let probe = self.clone();
            async move { probe.probe_service(due, last_call).await }
        });
        let mut report = Report::default();
        for outcome in run_with_concurrency_limit(MAX_CONCURRENT_SERVICES, runs).await {
            match outcome {
                Ok(None) => {}
                Ok(Some(RecordedService {
                    service,
                    record,
                    operations,
                })) => {
                    report.services = report.services.saturating_add(1);
                    report.operations = report.operations.saturating_add(operations);
                    let known = probed_services.iter_mut().find(|(known, _)| known.id == service);
                    if let Some((_, known)) = known {
                        *known = record;
                    }
                }
                Err(RecordError) => report.dropped = report.dropped.saturating_add(1),
            }
        }
        self.publish_probe_summary(&probed_services).await;
        let Report {
            services,
            operations,
            dropped,
        } = report;
        if report != Report::default() {
            tracing::info!(services, operations, dropped, "probe.run");
        }
        Ok(report)
    }

    /// Writes the summary of all probe results if it changed.
    async fn publish_probe_summary(&self, probed_services: &[(Service, ProbeRecord)]) {
        let seen = ProbeSummary::summarize(probed_services.iter().map(|(service, record)| (service, record)));
        // An unreadable summary is replaced.
        if self
            .0
            .catalog
            .read_probe_summary()
            .await
            .is_ok_and(|written| written == seen)
        {
            return;
        }
        if let Err(error) = self.0.catalog.put_probe_summary(&seen).await {
            tracing::error!(cause = %error, "probe.not_shown");
        }
    }

    /// Returns the due probes, most urgent first. Requested probes come first, then the oldest probes.
    fn due_probes(&self, probed_services: &[(Service, ProbeRecord)]) -> Vec<Due> {
        let now = self.0.clock.now();
        let mut due = Vec::new();
        for (service, record) in probed_services {
            if service.trust_status == TrustStatus::Disabled {
                continue;
            }
            let operations = service.operations.iter();
            let operations: Vec<Operation> = operations
                .filter(|operation| record.is_due(operation, now, self.0.interval))
                .cloned()
                .collect();
            if !operations.is_empty() {
                due.push(Due {
                    service: service.clone(),
                    record: record.clone(),
                    operations,
                });
            }
        }
        due.sort_by_cached_key(Due::urgency_sort_key);
        let mut room = MAX_OPERATIONS;
        for due in &mut due {
            due.operations.truncate(room);
            room = room.saturating_sub(due.operations.len());
        }
        due.retain(|due| !due.operations.is_empty());
        due
    }

    /// Probes a service's due operations and records the results. Returns `None` if there was no time for a call.
    async fn probe_service(&self, due: Due, last_call: Instant) -> Result<Option<RecordedService>, RecordError> {
        let Due {
            service,
            record,
            operations,
        } = due;
        let at = self.0.clock.now();
        let calls = operations.into_iter().map(|operation| {
            let (probe, service) = (self.clone(), service.id);
            async move {
                let started = Instant::now();
                if started > last_call {
                    return None;
                }
                let seen = probe.0.caller.probe_operation(&operation).await;
                let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                log_probe(service, &operation, &seen, latency_ms);
                Some((operation.id, seen))
            }
        });
        let seen: Vec<(OperationUuid, ProbeResult)> = run_with_concurrency_limit(CALLS_PER_SERVICE, calls)
            .await
            .into_iter()
            .flatten()
            .collect();
        if seen.is_empty() {
            return Ok(None);
        }
        let operations = seen.len();
        let seen = record.with_results(&service, seen, at);
        match self.0.catalog.put_probe_record_if_unchanged(service.id, &seen).await {
            Ok(true) => {
                log_new_differences(&service, &record, &seen, at);
                Ok(Some(RecordedService {
                    service: service.id,
                    record: seen,
                    operations,
                }))
            }
            Ok(false) => {
                tracing::info!(service.id = %service.id, "probe.dropped");
                Err(RecordError)
            }
            Err(error) => {
                tracing::error!(service.id = %service.id, cause = %error, "probe.not_recorded");
                Err(RecordError)
            }
        }
    }
}

struct RecordedService {
    service: ServiceId,
    record: ProbeRecord,
    operations: usize,
}

struct RecordError;

impl Due {
    fn urgency_sort_key(&self) -> (bool, Option<Timestamp>) {
        let operations = self.operations.iter();
        let asked_for = operations
            .clone()
            .any(|operation| self.record.is_probe_requested(operation));
        let times = operations.map(|operation| self.record.latest_probe(operation).map(|probe| probe.at));
        (!asked_for, times.min().flatten())
    }
}

/// Logs the result of a probe without any text of the provider.
fn log_probe(service: ServiceId, operation: &Operation, result: &ProbeResult, latency_ms: u64) {
    let payment = match result {
        Ok(Quote::Paid(payment)) => Some(payment),
        Ok(Quote::Free) | Err(_) => None,
    };
    tracing::info!(
        service.id = %service,
        operation.id = %operation.id,
        operation.slug = %operation.slug,
        host = operation.endpoint.host_str(),
        free = matches!(result, Ok(Quote::Free)),
        obstacle = result.as_ref().err().map(tracing::field::display),
        amount_units = payment.map(|payment| payment.amount.units()),
        pay_to = payment.map(|payment| tracing::field::display(payment.pay_to)),
        latency_ms,
        "probe.call"
    );
}

/// Logs each operation whose provider newly asks for a different payment than the catalog lists.
fn log_new_differences(service: &Service, before: &ProbeRecord, after: &ProbeRecord, at: Timestamp) {
    for operation in &service.operations {
        let Some(change) = after.changed_payment(operation, at).filter(|change| change.since == at) else {
            continue;
        };
        if before
            .changed_payment(operation, at)
            .is_some_and(|before| before.quote == change.quote)
        {
            continue;
        }
        let pinned = operation.pricing_at(at).payment;
        let payee = |payment: &CatalogPayment| payment.pay_to;
        let request = match &change.quote {
            Quote::Paid(payment) => Some(payment),
            Quote::Free => None,
        };
        tracing::warn!(
            service.id = %service.id,
            operation.id = %operation.id,
            operation.slug = %operation.slug,
            pinned.amount_units = pinned.map(|payment| payment.amount.units()),
            pinned.pay_to = pinned.map(payee).map(tracing::field::display),
            seen.amount_units = request.map(|payment| payment.amount.units()),
            seen.pay_to = request.map(payee).map(tracing::field::display),
            "probe.changed"
        );
    }
}
