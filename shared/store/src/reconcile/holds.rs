//! The sweep's data: the index `hold` of settlements that are held or watched, the cursor, and reconcile requests.
//!
//! The index is only used to find settlements: it may lag, so every row is read from the table, and every transition is
//! conditional. If the cursor and the requests are lost, the next sweep starts at the beginning and misses nothing.

use crate::{
    codec::attribute::{Attribute as _, text},
    codec::fault::failed,
    codec::item::{Draft, Item},
    codec::key::{self, Key, hold::INDEX, hold::IndexKey},
    codec::ledger::Ledger,
    codec::transact::{update_once_free, was_made},
    payments::settlement::CONFIRMED,
};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{AgentId, Result, Settlement, SettlementId, Timestamp};

/// A settlement in the index.
#[derive(Clone, Debug)]
pub struct Held {
    /// Whose.
    pub agent: AgentId,
    /// Which.
    pub settlement: SettlementId,
    /// Its key in the index.
    pub place: IndexKey,
    position: ScanCursor,
}

/// A position in the index: directly after one settlement.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanCursor(Item);

/// A request to reconcile this settlement now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileRequest {
    /// Whose.
    pub agent: AgentId,
    /// Which.
    pub settlement: SettlementId,
    /// When it was requested.
    pub asked_at: Timestamp,
}

impl Held {
    /// The position directly after it.
    pub const fn position(&self) -> &ScanCursor {
        &self.position
    }
}

/// The cursor's only attribute: a map, since top-level `hp` and `hs` would put the row into the index.
const AFTER: &str = "after";

impl Ledger {
    /// The settlements in the index from a position on, `limit` at most, and the next position; `None` at the end. An
    /// item that can't be read is an error of its own.
    pub async fn holds(&self, from: Option<&ScanCursor>, limit: u8) -> Result<(Vec<Result<Held>>, Option<ScanCursor>)> {
        let scan = self
            .db
            .scan()
            .table_name(&*self.table)
            .index_name(INDEX)
            .set_exclusive_start_key(from.map(|position| position.0.clone()))
            .limit(limit.into());
        let answer = scan.send().await.map_err(failed("looking through the holds"))?;
        let held = answer.items().iter().map(|item| self.read_held(item)).collect();
        Ok((held, answer.last_evaluated_key.map(ScanCursor)))
    }

    /// Settlements of any agents, strongly consistent, in any order; missing ones are left out.
    pub async fn settlements_of(&self, wanted: &[(AgentId, SettlementId)]) -> Result<Vec<Result<Settlement>>> {
        let keys: Vec<Key> = wanted.iter().map(|(agent, id)| Key::settlement(*agent, *id)).collect();
        let items = self.get_all(&keys).await?;
        let read = |item: &Item| {
            let agent = key::agent_of(item).ok_or_else(|| self.row(item).corrupt("pk"))?;
            self.read_settlement(agent, item)
        };
        Ok(items.iter().map(read).collect())
    }

    /// Removes a confirmed settlement from the index: 2 write units, one if it is not in it. One that is no longer
    /// confirmed with this transaction is not changed.
    pub async fn stop_watching(&self, settlement: &Settlement) -> Result<()> {
        let Some(tx_hash) = settlement.tx_hash() else {
            return Ok(());
        };
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Key::settlement(settlement.terms.agent, settlement.id()).attributes(),
            ))
            .update_expression("REMOVE hp, hs")
            .condition_expression("rs = :confirmed AND txh = :hash")
            .expression_attribute_values(":confirmed", text(CONFIRMED))
            .expression_attribute_values(":hash", tx_hash.write());
        update_once_free(&update, "ending a watch").await.map(|_| ())
    }

    /// Where the last sweep stopped; `None` if it reached the end.
    pub async fn scan_cursor(&self) -> Result<Option<ScanCursor>> {
        let item = self.get(&Key::scan_cursor()).await?;
        let after = item.as_ref().and_then(|item| item.get(AFTER)?.as_m().ok());
        Ok(after.cloned().map(ScanCursor))
    }

    /// Stores where a sweep stopped. Of two concurrent sweeps the last write wins, which is harmless.
    pub async fn save_scan_cursor(&self, position: Option<&ScanCursor>) -> Result<()> {
        let row = Draft::of(&Key::scan_cursor());
        let row = match position {
            Some(position) => row.with_value(AFTER, AttributeValue::M(position.0.clone())),
            None => row,
        };
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(failed("keeping a position"))?;
        Ok(())
    }

    /// Stores a reconcile request.
    pub async fn request_reconcile(&self, mark: &ReconcileRequest) -> Result<()> {
        let row = Draft::of(&Key::reconcile_request(mark.agent, mark.settlement)).with("t", &mark.asked_at);
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(failed("marking a settlement"))?;
        Ok(())
    }

    /// The stored reconcile requests, a hundred at most.
    pub async fn reconcile_requests(&self) -> Result<Vec<ReconcileRequest>> {
        const MOST: i32 = 100;
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", text(key::MARKED))
            .consistent_read(true)
            .limit(MOST);
        let answer = query.send().await.map_err(failed("reading the marks"))?;
        let marks = answer.items().iter().map(|item| {
            let row = self.row(item);
            let (agent, settlement) =
                key::parse_reconcile_request(key::sort_key(item)).ok_or_else(|| row.corrupt("sk"))?;
            Ok(ReconcileRequest {
                agent,
                settlement,
                asked_at: row.get("t")?,
            })
        });
        marks.collect()
    }

    /// Removes a reconcile request, unless it was made again since.
    pub async fn clear_reconcile_request(&self, mark: &ReconcileRequest) -> Result<()> {
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(Key::reconcile_request(mark.agent, mark.settlement).attributes()))
            .condition_expression("t = :asked")
            .expression_attribute_values(":asked", mark.asked_at.write());
        was_made(delete.send().await, "taking a mark away").map(|_| ())
    }

    fn read_held(&self, item: &Item) -> Result<Held> {
        let row = self.row(item);
        let id = key::sort_key(item)
            .strip_prefix(key::SETTLEMENTS)
            .and_then(SettlementId::parse);
        Ok(Held {
            agent: key::agent_of(item).ok_or_else(|| row.corrupt("pk"))?,
            settlement: id.ok_or_else(|| row.corrupt("sk"))?,
            place: IndexKey::parse(&row.get::<String>("hs")?).ok_or_else(|| row.corrupt("hs"))?,
            position: ScanCursor(item.clone()),
        })
    }
}
