//! Sets of the ids of an agent's pending approvals: one set for payments, and one for temporary limit increases. Their
//! sizes are limited. One transaction creates an approval and adds the approval to the set. A decided approval stays in
//! the set until the set is full.

use crate::{
    codec::attribute::Attribute as _, codec::backoff::Backoff, codec::item::Item, codec::key::Key,
    codec::ledger::Ledger, transact::Transaction,
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{AgentId, Approval, ApprovalId, ApprovalStatus, AskingLimit, Fingerprint, Result, Timestamp};
use std::collections::BTreeSet;

/// The attribute with the ids of approvals of payments.
const PAYMENTS: &str = "ids";
/// The attribute with the ids of requests for temporary limit increases.
const INCREASES: &str = "incs";

const fn pending_ids_attribute(approval: &Approval) -> &'static str {
    match approval.raise {
        Some(_) => INCREASES,
        None => PAYMENTS,
    }
}

impl Ledger {
    /// Reads the approvals with these ids, strongly consistent, in any order. Unknown ids are skipped.
    pub async fn read_approvals(&self, ids: impl IntoIterator<Item = ApprovalId>) -> Result<Vec<Approval>> {
        let ids: BTreeSet<ApprovalId> = ids.into_iter().collect();
        let keys: Vec<Key> = ids.into_iter().map(Key::approval).collect();
        let items = self.get_items(&keys).await?;
        items.iter().map(|item| self.read_listed_approval(item)).collect()
    }

    /// Returns whether a new escalation would exceed the maximum number of pending approvals. Returns `false` if an
    /// open approval of the same request waives `asking_limits`. Takes up to three reads.
    pub async fn would_exceed_approval_limit(
        &self,
        agent: AgentId,
        fingerprint: &Fingerprint,
        asking_limits: &[AskingLimit],
        max_waiting: u32,
        at: Timestamp,
    ) -> Result<bool> {
        let Some(item) = self.get_item(&Key::waiting_approvals(agent)).await? else {
            return Ok(false);
        };
        let ids = self.approval_id_set(&item, PAYMENTS)?;
        let is_full = |ids: &BTreeSet<ApprovalId>| u32::try_from(ids.len()).is_ok_and(|count| count >= max_waiting);
        if !is_full(&ids) || !is_full(&self.filter_pending_approvals(&ids, at).await?) {
            return Ok(false);
        }
        let newest = self.read_newest_approval(agent, fingerprint).await?;
        Ok(newest.is_none_or(|newest| !newest.status(at).is_open() || !newest.waives(asking_limits)))
    }

    /// Returns the ids of an agent's approvals that may be pending, of payments and of limit increases.
    pub(crate) fn pending_approval_ids(&self, item: &Item) -> Result<BTreeSet<ApprovalId>> {
        let mut ids = self.approval_id_set(item, PAYMENTS)?;
        ids.append(&mut self.approval_id_set(item, INCREASES)?);
        Ok(ids)
    }

    fn approval_id_set(&self, item: &Item, attribute: &'static str) -> Result<BTreeSet<ApprovalId>> {
        Ok(self.item_row(item).get_optional(attribute)?.unwrap_or_default())
    }

    /// Creates an update that adds a new approval to the set if the set has fewer than `max_waiting` ids.
    pub(crate) fn waiting_approval_update(&self, approval: &Approval, max_waiting: u32) -> UpdateBuilder {
        let set = pending_ids_attribute(approval);
        self.update_item(&Key::waiting_approvals(approval.agent))
            .update_expression(format!("ADD {set} :id"))
            .condition_expression(format!("attribute_not_exists({set}) OR size({set}) < :most"))
            .expression_attribute_values(":id", BTreeSet::from([approval.id]).write())
            .expression_attribute_values(":most", max_waiting.write())
    }

    /// Removes decided approvals from a full set. Returns `false` if all approvals are pending. Sends a transaction,
    /// because the IAM role permits updates of the set only in transactions.
    pub(crate) async fn try_remove_decided_approvals(
        &self,
        new: &Approval,
        full_set_item: &Item,
        backoff: &mut Backoff,
    ) -> Result<bool> {
        let set = pending_ids_attribute(new);
        let ids = self.approval_id_set(full_set_item, set)?;
        let waiting = self.filter_pending_approvals(&ids, new.created_at).await?;
        let gone: BTreeSet<ApprovalId> = ids.difference(&waiting).copied().collect();
        if gone.is_empty() {
            return Ok(false);
        }
        let update = self
            .update_item(&Key::waiting_approvals(new.agent))
            .update_expression(format!("DELETE {set} :gone"))
            .expression_attribute_values(":gone", gone.write());
        let mut transaction = Transaction::new();
        transaction.add_update((), update)?;
        // The transaction has no conditions, so no condition can fail.
        let _done = transaction.send_until_outcome(&self.db, backoff).await?;
        Ok(true)
    }

    async fn filter_pending_approvals(
        &self,
        ids: &BTreeSet<ApprovalId>,
        at: Timestamp,
    ) -> Result<BTreeSet<ApprovalId>> {
        let approvals = self.read_approvals(ids.iter().copied()).await?;
        let waiting = approvals
            .iter()
            .filter(|approval| approval.status(at) == ApprovalStatus::Pending);
        Ok(waiting.map(|approval| approval.id).collect())
    }
}
