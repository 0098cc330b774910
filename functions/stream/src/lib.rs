//! Two Lambda functions that read the table streams. `events` publishes changes on the event bus and appends signed
//! statements to the log. `history` writes the decision history.
//!
//! | file | content |
//! |---|---|
//! | `backtests.rs` | evaluates recorded decisions with other limits |
//! | `alarms.rs` | the changes that raise an alarm |
//! | `payees.rs` | the catalog's payees, and the times from which they can be paid |
//! | `batch.rs` | publishes a stream batch |
//! | `history.rs` | the function `history` |
//! | `brakes.rs` | freezes agents after unusual spending |
//! | `bus.rs` | `PutEvents`, with partial failures |
//! | `statements.rs` | stores changes that need a statement, and appends statements to the log |
//! | `record.rs` | builds a statement's payload from the rows that it is about |
//! | `logged.rs` | a signed statement in the log |
//! | `check.rs` | compares the statements of a day ago with their rows |
//! | `signer.rs` | the key that signs statements |
//! | `sweep.rs` | events that no write causes |
//! | `settings.rs` | the configuration |
//!
//! Invariants: each record is published at least once, always under the same id. Each record counts once in the
//! decision history's sums, and has at most one statement.

mod alarms;
mod backtests;
mod batch;
mod brakes;
mod bus;
mod check;
mod history;
mod logged;
mod payees;
mod record;
mod settings;
mod signer;
mod statements;
mod sweep;

pub use history::History;

use bus::Bus;
use payees::{Delays, WholeCatalog};
use purser_api::{Boot, BootError, Clock};
use purser_domain::{Error, EventSource, Network, Result};
use purser_store::{CatalogTable, Ledger, UsageTable};
use serde_json::{Value, json};
use settings::Settings;
use statements::Statements;
use std::{sync::Arc, time::Duration};
use tokio::{sync::OnceCell, time::Instant};

/// The Lambda function `events`, ready to run. Clones share all state.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    ledger: Ledger,
    catalog: CatalogTable,
    usage: UsageTable,
    bus: Bus,
    source: EventSource,
    clock: Clock,
    network: Network,
    delays: Delays,
    /// The statement log; `None` if the deployment has no log.
    statements: Option<Statements>,
    /// Is set as soon as all payees in the catalog are verified.
    has_attested: OnceCell<()>,
}

impl Events {
    /// Creates the function `events`, configured by the environment variables that `settings.rs` reads.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        let Boot {
            mut env, aws, clock, ..
        } = boot;
        let settings = Settings::from_env(&mut env);
        let settings = env.finish(settings)?;
        let db = purser_store::dynamodb_client(&aws);
        Ok(Self(Arc::new(Inner {
            ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
            catalog: CatalogTable::new(db.clone(), settings.catalog_table),
            usage: UsageTable::new(db, settings.usage_table),
            bus: Bus::new(&aws, settings.bus),
            source: settings.source,
            clock,
            network: settings.network,
            delays: settings.delays,
            statements: settings.log.map(|log| Statements::new(&aws, log)),
            has_attested: OnceCell::new(),
        })))
    }

    /// Handles a Lambda event. The fields select the work:
    ///
    /// - `Records`: publishes a stream batch. The response names the first record that Lambda must repeat.
    /// - `attest_catalog`: verifies all payees in the catalog (`docs/runbook.md`).
    /// - `state_again`: makes the changes that were set aside pending again (`docs/runbook.md`).
    /// - `job`: `archive` archives and checks the log. `check` takes part in the daily check of the log.
    /// - none of these fields: publishes due events, signs pending statements and continues backtests.
    pub async fn handle_event(&self, event: &Value, time_left: Duration) -> Result<Value> {
        if let Some(records) = event.get("Records").and_then(Value::as_array) {
            let failed = self.0.publish_batch(records).await?;
            self.0.sign_batch_before_append(records).await;
            let failures = failed.map(|sequence| json!({"itemIdentifier": sequence}));
            Ok(json!({"batchItemFailures": failures.into_iter().collect::<Vec<_>>()}))
        } else if let Some(how) = event.get("attest_catalog") {
            let how = match how.as_str() {
                Some("by_rule") => WholeCatalog::ByRule,
                Some("at_once") => WholeCatalog::AtOnce,
                _ => return Err(Error::internal("verifying the catalog's payees", UnknownMode)),
            };
            Ok(json!({"services": self.0.verify_payees_and_count_services(how).await?}))
        } else if event.get("state_again").is_some() {
            Ok(json!({"changes": self.0.requeue_quarantined_changes().await?}))
        } else if let Some(job) = event.get("job") {
            match job.as_str() {
                Some("archive") => self.0.archive_log(time_left).await?,
                Some("check") => self.0.run_daily_check_if_backlogged(time_left).await?,
                _ => return Err(Error::internal("running a job", UnknownJob)),
            }
            Ok(Value::Null)
        } else {
            let start = Instant::now();
            let swept = self.publish_due_events(time_left).await;
            let stated = self
                .0
                .sign_pending_changes(time_left.saturating_sub(start.elapsed()))
                .await;
            let tested = self.run_backtests(time_left.saturating_sub(start.elapsed())).await;
            swept.and(stated).and(tested)?;
            Ok(Value::Null)
        }
    }

    /// Signs the pending changes and appends their statements to the log, within `time_left`.
    pub async fn sign_pending_statements(&self, time_left: Duration) -> Result<()> {
        self.0.sign_pending_changes(time_left).await
    }

    /// Continues backtests, within `time_left`.
    pub async fn run_backtests(&self, time_left: Duration) -> Result<()> {
        self.0.run_backtests(time_left).await
    }

    /// Publishes the events that become due without a write, such as the expiry of an approval, within `time_left`.
    pub async fn publish_due_events(&self, time_left: Duration) -> Result<()> {
        self.0.publish_due_reminders(time_left).await
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`job` must be `archive` or `check`")]
struct UnknownJob;

#[derive(Debug, thiserror::Error)]
#[error("`attest_catalog` must be `by_rule` or `at_once`")]
struct UnknownMode;
