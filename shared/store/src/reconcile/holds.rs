//! Held settlements, requests to reconcile a settlement, and the last checked block. The index `hold` may lag, so each
//! settlement is read from the table, and every transition is conditional. A decided hold leaves the index, and an
//! undecided hold gets the time of the next attempt. Each run therefore starts at the beginning of the index, even if
//! the previous run was interrupted.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::{Attribute as _, encode_text},
    codec::backoff::Backoff,
    codec::fault::store_error,
    codec::item::{Draft, Item},
    codec::key::{self, Key, hold::INDEX},
    codec::ledger::Ledger,
    codec::table::{Query, put_item},
    payments::settlement::AUTHORIZED,
    transact::{Transaction, update_with_conflict_retry, was_applied},
};
use purser_domain::{AgentId, Result, Settlement, SettlementId, Timestamp};

/// A held settlement, as listed in the index `hold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSettlement {
    /// The agent that pays.
    pub agent: AgentId,
    /// The settlement whose amount is held.
    pub settlement: SettlementId,
    /// The time of the next attempt to reconcile the settlement, at first the payment's `validBefore`.
    pub due_at: Timestamp,
}

/// A cursor in a partition of the index `hold`.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexPosition(Item);

/// An operator's request that the next run of the function `reconcile` reconciles a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconcileRequest {
    /// The agent that pays.
    pub agent: AgentId,
    /// The settlement to reconcile.
    pub settlement: SettlementId,
    /// The time at which the operator made the request.
    pub requested_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Mark,
    Audit,
}

impl Ledger {
    /// Reads up to `limit` held settlements in a partition of the index `hold` that are due at this time, and the
    /// cursor of the next page. An unreadable item is returned as an error.
    pub async fn read_due_holds(
        &self,
        partition: u8,
        at: Timestamp,
        from: Option<IndexPosition>,
        limit: u16,
    ) -> Result<(Vec<Result<HeldSettlement>>, Option<IndexPosition>)> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .index_name(INDEX)
            .key_condition_expression("hp = :partition AND hs <= :at")
            .expression_attribute_values(":partition", encode_text(&format!("{partition:x}")))
            .expression_attribute_values(":at", encode_text(&key::hold::due_key(at)))
            .set_exclusive_start_key(from.map(|position| position.0))
            .limit(limit.into());
        let response = query.send().await.map_err(store_error("reading due holds"))?;
        let held = response
            .items()
            .iter()
            .map(|item| self.read_held_settlement(item))
            .collect();
        Ok((held, response.last_evaluated_key.map(IndexPosition)))
    }

    /// Postpones the next attempt to reconcile a held settlement until this time. Takes 3 write units.
    pub async fn postpone_hold(&self, settlement: &Settlement, until: Timestamp) -> Result<()> {
        let update = self
            .settlement_update_request(settlement.terms.agent, settlement.id())
            .update_expression("SET hs = :until")
            .condition_expression("rs = :authorized")
            .expression_attribute_values(":authorized", encode_text(AUTHORIZED))
            .expression_attribute_values(":until", encode_text(&key::hold::due_key(until)));
        update_with_conflict_retry(&update, "postponing a hold")
            .await
            .map(|_| ())
    }

    /// Reads settlements of several agents, strongly consistent, in any order. Missing settlements are skipped.
    pub async fn read_settlements_by_id(&self, ids: &[(AgentId, SettlementId)]) -> Result<Vec<Result<Settlement>>> {
        let keys: Vec<Key> = ids.iter().map(|(agent, id)| Key::settlement(*agent, *id)).collect();
        let items = self.get_items(&keys).await?;
        Ok(items.iter().map(|item| self.read_settlement_item(item)).collect())
    }

    /// Reads the last block whose confirmations were checked again; `None` before the first run.
    pub async fn read_last_checked_block_number(&self) -> Result<Option<u64>> {
        let item = self.get_item(&Key::checked_block()).await?;
        item.map(|item| self.item_row(&item).get("blk")).transpose()
    }

    /// Stores the last block whose confirmations were checked again. The last of concurrent writes wins.
    pub async fn save_checked_block(&self, number: u64) -> Result<()> {
        let row = Draft::new(&Key::checked_block()).with("blk", &number);
        put_item(&self.db, &self.table, row.into_item(), "storing the last checked block").await
    }

    /// Stores an operator's request to reconcile a settlement.
    pub async fn request_reconcile(&self, request: &ReconcileRequest, audit: &AuditEntry) -> Result<()> {
        let row =
            Draft::new(&Key::reconcile_request(request.agent, request.settlement)).with("t", &request.requested_at);
        let mut transaction = Transaction::new();
        transaction.add_put(Role::Mark, self.put_item(row.into_item()))?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // If the audit row exists already, an earlier attempt has committed, and the response to that attempt was lost.
        transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Reads up to a hundred stored requests to reconcile a settlement. An unreadable row is returned as an error.
    pub async fn read_reconcile_requests(&self) -> Result<Vec<Result<ReconcileRequest>>> {
        const MAX: u32 = 100;
        let response = Query::new(&self.db, &self.table, key::MARKED)
            .consistent()
            .limit(MAX)
            .send("reading reconcile requests")
            .await?;
        let marks = response.items().iter().map(|item| {
            let row = self.item_row(item);
            let (agent, settlement) =
                key::parse_reconcile_request(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
            Ok(ReconcileRequest {
                agent,
                settlement,
                requested_at: row.get("t")?,
            })
        });
        Ok(marks.collect())
    }

    /// Removes a request to reconcile a settlement, unless the request was stored again after it was read.
    pub async fn clear_reconcile_request(&self, request: &ReconcileRequest) -> Result<()> {
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(
                Key::reconcile_request(request.agent, request.settlement).attributes(),
            ))
            .condition_expression("t = :asked")
            .expression_attribute_values(":asked", request.requested_at.write());
        was_applied(delete.send().await, "removing a reconcile request").map(|_| ())
    }

    fn read_held_settlement(&self, item: &Item) -> Result<HeldSettlement> {
        let row = self.item_row(item);
        let id = SettlementId::parse(key::sort_key_text(item));
        Ok(HeldSettlement {
            agent: key::find_agent_id(item).ok_or_else(|| row.corrupt_error("pk"))?,
            settlement: id.ok_or_else(|| row.corrupt_error("sk"))?,
            due_at: key::hold::parse_due_time(&row.get::<String>("hs")?).ok_or_else(|| row.corrupt_error("hs"))?,
        })
    }
}
