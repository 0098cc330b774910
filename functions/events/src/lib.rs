//! Events: what happened goes from the tables' streams to the bus, and into the sums of usage.
//!
//! Lambda calls it with batches of stream records, by event source mappings that publish and others that count; and a
//! schedule calls it each minute for what happens without a write: approvals that expire, and delayed changes of the
//! catalog that take effect.
//!
//! | file | one line |
//! |---|---|
//! | `batch.rs` | a batch of a stream: remember, publish, and say what is to be repeated |
//! | `count.rs` | a batch of a shard: count |
//! | `bus.rs` | `PutEvents`, with its partial failures |
//! | `sweep.rs` | what has happened without a write |
//! | `settings.rs` | the configuration |
//!
//! Always true: a record is published at least once, under one id, and counted once. Every step may be repeated. A row
//! that can't be read is reported and skipped.
//!
//! Deliberately elsewhere: what a change means (`shared/store/src/stream`), the form of events
//! (`shared/domain/src/event`), and which records were counted (`shared/store/src/usage`).

mod batch;
mod bus;
mod count;
mod settings;
mod sweep;

use bus::Bus;
use purser_api::{Boot, BootError, Clock};
use purser_domain::{EventSource, Result};
use purser_store::{CatalogTable, Ledger, UsageTable};
use serde_json::{Value, json};
use settings::Settings;
use std::{sync::Arc, time::Duration};

/// The function, ready to be called. Clones share everything.
#[derive(Clone)]
pub struct Events(Arc<Shared>);

struct Shared {
    ledger: Ledger,
    catalog: CatalogTable,
    usage: UsageTable,
    bus: Bus,
    source: EventSource,
    clock: Clock,
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
        Ok(Self(Arc::new(Shared {
            ledger: Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table),
            catalog: CatalogTable::new(db.clone(), settings.catalog_table),
            usage: UsageTable::new(db, settings.usage_table),
            bus: Bus::new(&aws, settings.bus),
            source: settings.source,
            clock,
        })))
    }

    /// Takes what Lambda passes: a batch of a tumbling window is counted, any other batch of a stream is published, and
    /// anything else is from the schedule.
    pub async fn call(&self, event: &Value, time_left: Duration) -> Result<Value> {
        let records = event.get("Records").and_then(Value::as_array);
        if let Some(shard) = count::shard_of(event) {
            // A window may end without records.
            let records = records.map(Vec::as_slice).unwrap_or_default();
            self.0.count_batch(shard, records).await?;
            Ok(json!({"state": {}, "batchItemFailures": []}))
        } else if let Some(records) = records {
            let failed = self.0.tell_batch(records).await?;
            let failures = failed.map(|sequence| json!({"itemIdentifier": sequence}));
            Ok(json!({"batchItemFailures": failures.into_iter().collect::<Vec<_>>()}))
        } else {
            self.sweep(time_left).await?;
            Ok(Value::Null)
        }
    }

    /// Tells of what has expired, within this time.
    pub async fn sweep(&self, time_left: Duration) -> Result<()> {
        self.0.sweep(time_left).await
    }
}
