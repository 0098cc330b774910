//! The oldest payment of an agent that was confirmed after the release. Such a payment counts from the confirmation, so
//! a backfill must read settlements back to this payment.

use crate::{
    codec::attribute::Attribute as _, codec::key::Key, codec::ledger::Ledger, payments::settle::Role,
    transact::Transaction,
};
use purser_domain::{AgentId, Duration, MAX_BUDGET_WINDOW, Result, SettlementId, Timestamp};

/// The late payments of an agent that a window may still count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatePayments {
    /// The late payment that was authorized first.
    pub(crate) oldest: SettlementId,
    /// The latest `counted_at` of these payments. A window counts a payment from `counted_at`.
    pub(crate) counted_at: Timestamp,
}

impl Ledger {
    pub(crate) async fn read_late_payments(&self, agent: AgentId) -> Result<Option<LatePayments>> {
        let items = self.get_items(&[Key::late_payments(agent)]).await?;
        let Some(item) = items.first() else { return Ok(None) };
        let row = self.item_row(item);
        Ok(Some(LatePayments {
            oldest: row.get("sid")?,
            counted_at: row.get("ct")?,
        }))
    }

    /// Records in the transaction that a released payment is confirmed and counts from `counted_at`.
    pub(crate) async fn add_late_payment(
        &self,
        transaction: &mut Transaction<Role>,
        agent: AgentId,
        settlement: SettlementId,
        counted_at: Timestamp,
    ) -> Result<()> {
        let stored = self.read_late_payments(agent).await?;
        // A calendar month may be an hour longer than the longest rolling window. The backfill of a lifetime window
        // reads every settlement and does not need this row.
        let oldest_counted = counted_at.before(MAX_BUDGET_WINDOW).before(Duration::DAY);
        let current = stored.filter(|late| late.counted_at > oldest_counted);
        let update = self
            .update_item(&Key::late_payments(agent))
            .update_expression("SET sid = :oldest, ct = :counted")
            .expression_attribute_values(
                ":oldest",
                current.map_or(settlement, |late| late.oldest.min(settlement)).write(),
            )
            .expression_attribute_values(
                ":counted",
                current
                    .map_or(counted_at, |late| late.counted_at.max(counted_at))
                    .write(),
            );
        let update = match stored {
            Some(late) => update
                .condition_expression("sid = :sid AND ct = :ct")
                .expression_attribute_values(":sid", late.oldest.write())
                .expression_attribute_values(":ct", late.counted_at.write()),
            None => update.condition_expression("attribute_not_exists(pk)"),
        };
        transaction.add_update(Role::Window, update)
    }
}
