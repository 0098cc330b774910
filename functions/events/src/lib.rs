//! Two functions that read the tables' streams. `events` publishes the changes on the bus and keeps the log of signed
//! statements; `history` keeps the decision history.
//!
//! Event source mappings invoke both with batches of stream records. A schedule invokes `events` every minute for events
//! without a write (approvals that expire, and delayed changes of the catalog that take effect), for statements, and for
//! backtests.
//!
//! | file | content |
//! |---|---|
//! | `backtests.rs` | tests other limits over recorded decisions |
//! | `alarms.rs` | the changes that raise an alarm |
//! | `payees.rs` | the payees in the catalog, and the times from which they can be paid |
//! | `batch.rs` | publishes a batch of a stream |
//! | `history.rs` | the function `history` |
//! | `brakes.rs` | freezes agents by their anomaly brakes |
//! | `bus.rs` | `PutEvents`, with its partial failures |
//! | `statements.rs` | notes what has to be stated, and appends statements to the log |
//! | `record.rs` | the payload of a statement, from the rows that it is about |
//! | `logged.rs` | a statement as it was signed |
//! | `check.rs` | compares the statements of a day ago with their rows |
//! | `signer.rs` | the key that signs statements |
//! | `sweep.rs` | events without a write |
//! | `settings.rs` | the configuration |
//!
//! Invariants: a record is published at least once, under one id, counted in the journal's sums once, and stated once.
//! Every step may be repeated. Unreadable rows are reported and skipped.
//!
//! Elsewhere: the meaning of a change (`shared/store/src/stream`), the form of events (`shared/domain/src/event`),
//! the journal (`shared/store/src/usage`), and the log (`shared/log`).

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

/// The function, ready to be called. Clones share everything.
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
    /// `None` if the deployment keeps no log.
    statements: Option<Statements>,
    /// Whether the payees of the whole catalog are known to have been attested.
    has_attested: OnceCell<()>,
}

impl Events {
    /// The function with this configuration (`settings.rs`).
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        let Boot {
            mut env, aws, clock, ..
        } = boot;
        let settings = Settings::from_env(&mut env);
        let settings = env.finish(settings)?;
        let db = purser_store::client(&aws);
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

    /// Handles an event of Lambda. A batch of a stream is published, and the answer names the first record to repeat. A
    /// direct invocation attests the whole catalog, or makes what could not be stated pending again (`docs/runbook.md`).
    /// Any other event is from the schedule, which publishes events without a write and appends statements to the log.
    pub async fn call(&self, event: &Value, time_left: Duration) -> Result<Value> {
        if let Some(records) = event.get("Records").and_then(Value::as_array) {
            let failed = self.0.tell_batch(records).await?;
            self.0.sign_ahead(records).await;
            let failures = failed.map(|sequence| json!({"itemIdentifier": sequence}));
            Ok(json!({"batchItemFailures": failures.into_iter().collect::<Vec<_>>()}))
        } else if let Some(how) = event.get("attest_catalog") {
            let how = match how.as_str() {
                Some("by_rule") => WholeCatalog::ByRule,
                Some("at_once") => WholeCatalog::AtOnce,
                _ => return Err(Error::internal("attesting the catalog", UnknownMode)),
            };
            Ok(json!({"services": self.0.attest_catalog(how).await?}))
        } else if event.get("state_again").is_some() {
            Ok(json!({"changes": self.0.state_again().await?}))
        } else {
            // A failure of one does not stop the other.
            let began = Instant::now();
            let swept = self.sweep(time_left).await;
            let stated = self.0.state_facts(time_left.saturating_sub(began.elapsed())).await;
            let tested = self.run_backtests(time_left.saturating_sub(began.elapsed())).await;
            swept.and(stated).and(tested)?;
            Ok(Value::Null)
        }
    }

    /// Signs what was noted, and appends it to the log, within this time.
    pub async fn state(&self, time_left: Duration) -> Result<()> {
        self.0.state_facts(time_left).await
    }

    /// Continues backtests, within this time.
    pub async fn run_backtests(&self, time_left: Duration) -> Result<()> {
        self.0.run_backtests(time_left).await
    }

    /// Publishes the events without a write, within this time.
    pub async fn sweep(&self, time_left: Duration) -> Result<()> {
        self.0.sweep(time_left).await
    }
}

/// The error for an unknown value of `attest_catalog`.
#[derive(Debug, thiserror::Error)]
#[error("`attest_catalog` must be `by_rule` or `at_once`")]
struct UnknownMode;
