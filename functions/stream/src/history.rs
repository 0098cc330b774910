//! The Lambda function `history`: writes the owners' decision history from the table streams.
//!
//! It is separate from the Lambda function `events`, because Lambda allows a function only one event source mapping per
//! stream (API reference, `CreateEventSourceMapping`). For each batch, it stores the changes that need a statement,
//! aggregates the changes, and then evaluates automatic freezes. Every step can be repeated.

use crate::brakes::{AutomaticFreezes, hours_to_check};
use crate::{payees::report_unreadable_row, settings::HistorySettings, statements};
use purser_api::{Boot, BootError, Clock};
use purser_domain::{Error, Result};
use purser_log::{ObjectStore, PendingBatch};
use purser_store::{AuditLog, Change, Ledger, UsageTable};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

/// The Lambda function `history`, ready to run. Clones share all state.
#[derive(Clone)]
pub struct History(Arc<HistoryState>);

struct HistoryState {
    ledger: Ledger,
    usage: UsageTable,
    clock: Clock,
    automatic_freezes: AutomaticFreezes,
    /// The object store of the statement log; `None` if the deployment has no statement log.
    log: Option<ObjectStore>,
}

impl History {
    /// Creates the function `history`, configured by the environment variables that `settings.rs` reads.
    pub fn boot(boot: Boot) -> Result<Self, BootError> {
        let Boot {
            mut env, aws, clock, ..
        } = boot;
        let settings = HistorySettings::from_env(&mut env);
        let settings = env.finish(settings)?;
        let db = purser_store::dynamodb_client(&aws);
        let ledger = Ledger::new(db.clone(), settings.ledger_table, settings.decisions_table);
        let usage = UsageTable::new(db.clone(), settings.usage_table).with_history_retention(settings.kept);
        let automatic_freezes = AutomaticFreezes {
            ledger: ledger.clone(),
            usage: usage.clone(),
            audit: AuditLog::new(db, settings.audit_table),
            clock: clock.clone(),
        };
        Ok(Self(Arc::new(HistoryState {
            ledger,
            usage,
            clock,
            automatic_freezes,
            log: settings.log_bucket.map(|bucket| ObjectStore::open(&aws, &bucket)),
        })))
    }

    /// Handles a batch of a stream shard. After an error, Lambda must repeat the whole batch.
    ///
    /// The event source mapping has a tumbling window, because only then does an event name the shard (developer guide,
    /// "Implementing stateful `DynamoDB` stream processing in Lambda").
    pub async fn handle_event(&self, event: &Value) -> Result<Value> {
        let shard = event.get("shardId").and_then(Value::as_str);
        let shard = shard.ok_or_else(|| Error::internal("writing the decision history", NoShard))?;
        // Lambda ends a tumbling window with an event that may have no records.
        let records = event.get("Records").and_then(Value::as_array);
        let arn = event.get("eventSourceARN").and_then(Value::as_str);
        let table = arn.and_then(|arn| arn.split('/').nth(1)).unwrap_or_default();
        self.0
            .store_batch(table, shard, records.map(Vec::as_slice).unwrap_or_default())
            .await?;
        Ok(json!({"state": {}, "batchItemFailures": []}))
    }
}

impl HistoryState {
    /// Stores a batch. Skips unreadable rows, which the Lambda function `events` reports.
    async fn store_batch(&self, table: &str, shard: &str, records: &[Value]) -> Result<()> {
        let changes: Vec<Change> = records.iter().filter_map(|record| Change::parse(record).ok()).collect();
        if let Some(oldest) = changes.iter().map(|change| change.at).min() {
            self.usage.report_history_lag(oldest, self.clock.now()).await?;
        }
        let (records, mut changes, mut change_list) = (changes, Vec::new(), Vec::new());
        for record in &records {
            if let Ok(Some(decided)) = self.ledger.parse_decided_approval(record) {
                change_list.push(statements::pending_change_for_approval(&decided));
            } else if let Ok(Some(change)) = self.ledger.decision_history_change(record) {
                change_list.extend(statements::pending_change(&change));
                changes.push(change);
            }
        }
        let agents: BTreeSet<_> = changes.iter().map(|change| change.agent).collect();
        let owners = self.ledger.read_owners(&agents).await?;
        if let Some(objects) = &self.log {
            // A shard id is unique only within a stream (API reference, `Shard`), so the table's name is added.
            let shard = format!("{table}-{shard}");
            PendingBatch {
                shard,
                facts: change_list,
            }
            .write_batch(objects)
            .await?;
        }
        let hours = hours_to_check(&changes);
        let aggregated = self.usage.add_history_changes(changes, &owners).await?;
        aggregated.iter().for_each(report_unreadable_row);
        // A repeated batch is evaluated again, because the earlier call may have been killed before the evaluation.
        self.automatic_freezes.evaluate_hours(&hours, &owners).await
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the event has no `shardId`, because the event source mapping has no tumbling window")]
struct NoShard;
