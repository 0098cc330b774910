//! Windows: their totals, and one small item per counted payment.
//!
//! Invariants:
//! - `total` is the sum of the existing counted payments. Every write that adds, evicts or releases a counted payment
//!   changes `total` and `ver` in the same transaction.
//! - A payment is evicted when it is older than the window. The eviction watermark is the time of the newest evicted
//!   payment, and no payment of this age is added later.
//! - `pver` and `aver` bind every charge to the versions of the policy and of the agent's record.
//! - Counted payments must not expire by TTL, because TTL would not reduce `total`.
//!
//! IAM permits the function `people` to write only `pver` and `aver`, so a write of a version must contain no other
//! attribute.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::item::{Draft, Item, read_optional_field},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::Query,
    payments::idempotency::IdempotencyRecord,
    payments::recent,
    transact::{TransactResult, Transaction},
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{
    Amount, Charge, Entry, Error, Fingerprint, RecentPayments, RecentUpdate, Result, SettlementId, SettlementTerms,
    Timestamp, Window, WindowPeriod, WindowScope,
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The number of oldest counted payments that a decision reads, and the maximum that an authorization evicts. They fit
/// into one read unit together with the policy and the totals.
const OLDEST_ENTRIES: u16 = 8;
/// The number of counted payments that each further query reads: `MAX_SEARCHED_ENTRIES` in `shared/domain`.
const PAGE: u16 = 1_000;
/// The maximum number of pages (20,000 counted payments) that one call reads. A larger window waits for the function
/// `reconcile` to evict payments ([`crate::EvictionRequest`]).
const MAX_PAGES: u32 = 20;
/// The maximum number of expired payments that one transaction evicts, because it has at most 100 actions.
const DRAIN: u16 = 90;

/// Requires the version of the policy or rule that was read, and no narrowing update of the agent since.
const VERSION_CHECK: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";
/// Requires no narrowing update of the agent's record since the version that was read.
pub(crate) const AGENT_VERSION_CHECK: &str = "(attribute_not_exists(aver) OR aver <= :agent)";
/// The start of the condition that no payment after a time was evicted. The caller appends the time and `)`.
const NOT_EVICTED_CHECK: &str = "(attribute_not_exists(#horizon) OR #horizon <=";
/// Requires that the window's total plus the added amount is at most the cap.
const TOTAL_CHECK: &str = "(attribute_not_exists(#total) OR #total <= :room)";

/// The result of evicting a window's expired payments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictResult {
    /// All expired payments were evicted.
    All,
    /// As many payments as fit into one transaction were evicted. There may be more.
    More,
    /// Nothing was evicted, because of a concurrent write to the same window.
    Superseded,
    /// Nothing was evicted, because the policy or rule was changed after the window was read.
    Outdated,
}

/// The number of pages that a call may still read. Clones share the number.
#[derive(Clone, Debug)]
pub(crate) struct PagesLeft(Arc<AtomicU32>);

impl PagesLeft {
    pub(crate) fn for_one_call() -> Self {
        Self::new(MAX_PAGES)
    }

    pub(crate) fn new(pages: u32) -> Self {
        Self(Arc::new(AtomicU32::new(pages)))
    }

    pub(crate) fn try_take_page(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Totals,
    Evicted,
}

impl Ledger {
    /// Reads a window's totals and oldest payments, which are not a snapshot; see [`crate::DecisionInputs`].
    pub(crate) async fn read_window_head(&self, scope: WindowScope, period: WindowPeriod) -> Result<Window> {
        self.read_window_with_payment_limit(scope, period, OLDEST_ENTRIES).await
    }

    /// Reads a day window like [`Ledger::read_window_head`], and the recent payments to the service.
    pub(crate) async fn read_day_window_head(&self, scope: WindowScope) -> Result<(Window, RecentPayments)> {
        let (window, totals) = self
            .read_window_and_totals_item(scope, WindowPeriod::DAY, OLDEST_ENTRIES)
            .await?;
        let payments = totals
            .map(|totals| recent::read_recent_payments(self.item_row(&totals), &totals))
            .transpose()?;
        Ok((window, payments.unwrap_or_default()))
    }

    /// Reads a rule's window like [`Ledger::read_window_head`], and whether the backfill is complete.
    pub(crate) async fn read_rule_window(
        &self,
        scope: WindowScope,
        period: WindowPeriod,
        coverage: &Fingerprint,
    ) -> Result<(Window, bool)> {
        let (window, totals) = self.read_window_and_totals_item(scope, period, OLDEST_ENTRIES).await?;
        let is_backfilled = totals.map(|totals| self.is_backfilled(&totals, period, coverage));
        Ok((window, is_backfilled.transpose()?.unwrap_or_default()))
    }

    async fn read_window_with_payment_limit(
        &self,
        scope: WindowScope,
        period: WindowPeriod,
        max_payments: u16,
    ) -> Result<Window> {
        let (window, _) = self.read_window_and_totals_item(scope, period, max_payments).await?;
        Ok(window)
    }

    async fn read_window_and_totals_item(
        &self,
        scope: WindowScope,
        period: WindowPeriod,
        max_payments: u16,
    ) -> Result<(Window, Option<Item>)> {
        // Reads one additional item for the totals, which sort before the counted payments.
        let (items, complete) = self
            .read_window_items(scope, None, max_payments.saturating_add(1))
            .await?;
        let mut window = empty_window(scope, period, complete);
        let mut totals = None;
        for item in items {
            if key::sort_key_text(&item) == key::WINDOW {
                self.fill_window_totals(&item, &mut window)?;
                totals = Some(item);
            } else {
                window.oldest.push(self.read_counted_payment(&item)?);
            }
        }
        Ok((window, totals))
    }

    fn fill_window_totals(&self, item: &Item, window: &mut Window) -> Result<()> {
        let row = self.item_row(item);
        window.stamp = row.get("pver")?;
        window.total = row.get_optional("total")?.unwrap_or(Amount::ZERO);
        window.version = row.get_optional("ver")?.unwrap_or_default();
        window.watermark = self.read_eviction_watermark(item, window.period)?;
        Ok(())
    }

    /// Reads the eviction watermark for this period from a window's totals; the epoch if nothing was evicted.
    pub(crate) fn read_eviction_watermark(&self, totals: &Item, period: WindowPeriod) -> Result<Timestamp> {
        let watermark = read_optional_field(totals, &eviction_watermark_name(period))
            .ok_or_else(|| self.item_row(totals).corrupt_error("hz"))?;
        Ok(watermark.unwrap_or(Timestamp::EPOCH))
    }

    /// Returns whether the window is unchanged and the idempotency key has authorized nothing. The read of the window
    /// was then a consistent snapshot.
    ///
    /// The key is read again, because a concurrent request with the same key may have authorized the payment.
    pub async fn is_window_unchanged_and_key_unused(
        &self,
        window: &Window,
        idempotency_key: &Fingerprint,
    ) -> Result<bool> {
        let (WindowScope::Day { agent, .. } | WindowScope::Budget { agent, .. }) = window.scope;
        let (totals, key) = (Key::window(window.scope), Key::idempotency(agent, idempotency_key));
        let (totals, record) = tokio::try_join!(self.get_item(&totals), self.get_item(&key))?;
        let record = record
            .map(|item| IdempotencyRecord::read_record(self.item_row(&item)))
            .transpose()?;
        let is_unchanged = match &totals {
            // The row of a window's totals is never removed, so if there is none now, `window` was read without one, too.
            None => window.version == 0,
            Some(totals) => {
                let mut now = empty_window(window.scope, window.period, true);
                self.fill_window_totals(totals, &mut now)?;
                (now.version, now.stamp) == (window.version, window.stamp)
            }
        };
        Ok(is_unchanged && !matches!(record, Some(IdempotencyRecord::Allowed { .. })))
    }

    /// Reads the next page of the window's payments for [`Window::needs_more_entries`]. The caller must check
    /// [`Ledger::is_window_unchanged_and_key_unused`] afterwards.
    pub async fn append_next_window_payments(&self, window: &mut Window) -> Result<()> {
        let after = window
            .oldest
            .last()
            .map(|last| key::counted_payment_key(window.scope, last));
        let after = after.unwrap_or_else(|| Key::window(window.scope));
        let (items, complete) = self.read_window_items(window.scope, Some(&after), PAGE).await?;
        for item in &items {
            window.oldest.push(self.read_counted_payment(item)?);
        }
        window.complete = complete;
        Ok(())
    }

    /// Reads the windows in `scopes` whose total is not zero. For display only, because the reads are not a snapshot
    /// and the spend may be an upper bound.
    pub async fn read_nonzero_windows(
        &self,
        scopes: &[(WindowScope, WindowPeriod)],
        at: Timestamp,
    ) -> Result<Vec<Window>> {
        const MAX_CONCURRENT: usize = 100;
        let keys: Vec<Key> = scopes.iter().map(|(scope, _)| Key::window(*scope)).collect();
        let left = PagesLeft::for_one_call();
        let mut windows = Vec::new();
        for totals in self.get_items(&keys).await?.chunks(MAX_CONCURRENT) {
            let mut reads = tokio::task::JoinSet::new();
            for item in totals {
                let total: Option<Amount> = self.item_row(item).get_optional("total")?;
                let used = total.is_some_and(|total| total != Amount::ZERO);
                let request = keys.iter().zip(scopes).find(|(key, _)| key.is_key_of(item));
                if let Some((_, (scope, period))) = request.filter(|_| used) {
                    let (scope, period) = (*scope, *period);
                    let (ledger, left) = (self.clone(), left.clone());
                    reads.spawn(async move {
                        ledger
                            .read_window_without_expired_payments(scope, period, at, &left)
                            .await
                    });
                }
            }
            while let Some(read) = reads.join_next().await {
                windows.push(read.map_err(|error| Error::internal("reading a window", error))??);
            }
        }
        windows.sort_by_key(|window| window.scope);
        Ok(windows)
    }

    async fn read_window_without_expired_payments(
        &self,
        scope: WindowScope,
        period: WindowPeriod,
        at: Timestamp,
        pages_left: &PagesLeft,
    ) -> Result<Window> {
        let mut window = self.read_window_head(scope, period).await?;
        self.read_past_expired_payments(&mut window, at, pages_left).await?;
        Ok(window)
    }

    /// Drops expired payments page by page, so memory use does not grow with the window.
    pub(crate) async fn read_past_expired_payments(
        &self,
        window: &mut Window,
        at: Timestamp,
        pages_left: &PagesLeft,
    ) -> Result<()> {
        let last = window
            .oldest
            .last()
            .map(|last| key::counted_payment_key(window.scope, last));
        let mut after = last.unwrap_or_else(|| Key::window(window.scope));
        while window.may_overstate_spend(at) && pages_left.try_take_page() {
            window.forget_expired(at);
            let (items, complete) = self.read_window_items(window.scope, Some(&after), PAGE).await?;
            for item in &items {
                window.oldest.push(self.read_counted_payment(item)?);
            }
            if let Some(last) = window.oldest.last() {
                after = key::counted_payment_key(window.scope, last);
            }
            window.complete = complete;
        }
        Ok(())
    }

    /// Evicts the oldest payments that have expired at `at`, as many as fit into one transaction. Uses only the scope,
    /// duration and version of `window`, and reads everything else again.
    pub async fn evict_expired(&self, window: &Window, at: Timestamp) -> Result<EvictResult> {
        let current = self
            .read_window_with_payment_limit(window.scope, window.period, DRAIN)
            .await?;
        if current.stamp != window.stamp {
            return Ok(EvictResult::Outdated);
        }
        if !self
            .try_evict_entries(
                window.scope,
                window.period,
                window.stamp,
                current.expired_payments(at),
                current.watermark,
            )
            .await?
        {
            return Ok(EvictResult::Superseded);
        }
        Ok(if current.may_overstate_spend(at) {
            EvictResult::More
        } else {
            EvictResult::All
        })
    }

    /// Evicts up to [`DRAIN`] of the payments in `expired`, on the condition that the policy or rule still has
    /// `version`. Returns `false` if a concurrent write prevents the eviction.
    pub(crate) async fn try_evict_entries(
        &self,
        scope: WindowScope,
        period: WindowPeriod,
        version: u64,
        expired: &[Entry],
        watermark: Timestamp,
    ) -> Result<bool> {
        let expired = expired.get(..DRAIN.into()).unwrap_or(expired);
        let Some(newest) = expired.last() else {
            return Ok(true);
        };
        let cleared = newest.at.max(watermark);
        let mut transaction = Transaction::new();
        let delta = expired
            .iter()
            .map(|entry| entry.amount)
            .fold(0, add_to_sum)
            .saturating_neg();
        let update = self
            .update_item(&Key::window(scope))
            .update_expression("SET #horizon = :cleared ADD #total :delta, ver :one")
            .condition_expression("(attribute_not_exists(#horizon) OR #horizon <= :cleared) AND pver = :stamp")
            .expression_attribute_names("#total", "total")
            .expression_attribute_names("#horizon", eviction_watermark_name(period))
            .expression_attribute_values(":delta", delta.write())
            .expression_attribute_values(":cleared", cleared.write())
            .expression_attribute_values(":stamp", version.write())
            .expression_attribute_values(":one", 1_u32.write());
        transaction.add_update(Role::Totals, update)?;
        for entry in expired {
            transaction.add_delete_of_existing(
                Role::Evicted,
                &self.table,
                key::counted_payment_key(scope, entry).attributes(),
            )?;
        }
        match transaction.send_once(&self.db).await? {
            TransactResult::Committed => Ok(true),
            TransactResult::Refused(_) | TransactResult::Contended => Ok(false),
            TransactResult::Unknown(error) => Err(error),
        }
    }

    /// Adds the writes for one window to the transaction that reserves a payment, with all conditions on the window.
    pub(crate) fn add_charge<R: Copy + PartialEq>(
        &self,
        transaction: &mut Transaction<R>,
        role: R,
        charge: &Charge<'_>,
        agent_version: u64,
        terms: &SettlementTerms,
        recent_payments_update: Option<&RecentUpdate>,
    ) -> Result<()> {
        let delta = add_to_sum(0, charge.amount).saturating_sub(add_to_sum(0, charge.evicted));
        // A condition can't do arithmetic, so `total + delta <= cap` becomes `total <= cap - delta`. A missing total
        // counts as zero, and the evaluation has already compared the amount with the cap.
        let room = add_to_sum(0, charge.cap).saturating_sub(delta);
        let update = self
            .update_item(&Key::window(charge.scope))
            .expression_attribute_names("#total", "total")
            .expression_attribute_names("#horizon", eviction_watermark_name(charge.period))
            .expression_attribute_values(":delta", delta.write())
            .expression_attribute_values(":stamp", charge.stamp.write())
            .expression_attribute_values(":room", room.write())
            .expression_attribute_values(":agent", agent_version.write())
            .expression_attribute_values(":one", 1_u32.write());
        // Only an eviction moves the watermark, so writes that evict nothing can commit in any order.
        let (mut sets, mut condition, mut update) = match charge.evict.last() {
            Some(newest) => (
                vec!["#horizon = :cleared"],
                format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :cleared) AND {TOTAL_CHECK}"),
                update.expression_attribute_values(":cleared", newest.at.max(charge.cleared).write()),
            ),
            None => (
                vec![],
                format!("{VERSION_CHECK} AND {NOT_EVICTED_CHECK} :horizon) AND {TOTAL_CHECK}"),
                update.expression_attribute_values(":horizon", charge.watermark.write()),
            ),
        };
        if let Some(coverage) = &charge.coverage {
            sets.push("rbf = :coverage");
            condition.push_str(" AND attribute_not_exists(ver)");
            update = update.expression_attribute_values(":coverage", coverage.write());
        }
        let update = match recent_payments_update {
            None => {
                let set = if sets.is_empty() { "" } else { "SET " };
                update
                    .update_expression(format!("{set}{} ADD #total :delta, ver :one", sets.join(", ")))
                    .condition_expression(condition)
            }
            Some(remembered) => recent::add_recent_payment_to_update(update, remembered, &sets, condition),
        };
        transaction.add_update(role, update)?;
        transaction.add_put(
            role,
            self.put_new_item(write_counted_payment(
                charge.scope,
                terms.authorized_at,
                terms.id,
                charge.amount,
            )),
        )?;
        for entry in charge.evict {
            transaction.add_delete_of_existing(
                role,
                &self.table,
                key::counted_payment_key(charge.scope, entry).attributes(),
            )?;
        }
        Ok(())
    }

    /// Makes a window reject every decision that was based on an earlier version of the agent's record.
    pub(crate) async fn fence_older_versions(&self, scope: WindowScope, agent_version: u64) -> Result<()> {
        let update = self
            .update_item(&Key::window(scope))
            .update_expression("SET aver = :version")
            .condition_expression("attribute_exists(pk) AND (attribute_not_exists(aver) OR aver < :version)")
            .expression_attribute_values(":version", agent_version.write());
        // The condition fails if the window does not exist, or already rejects decisions that were based on earlier
        // versions. No write is needed then.
        let mut transaction = Transaction::new();
        transaction.add_update((), update)?;
        let mut backoff = Backoff::new();
        transaction.send_until_outcome(&self.db, &mut backoff).await.map(|_| ())
    }

    /// Adds an empty window for one payee, unless the window exists. A concurrent backfill, which may have read the
    /// settlement before this transaction, then reads the settlement again.
    pub(crate) fn empty_payee_window_update(&self, scope: WindowScope) -> UpdateBuilder {
        self.update_item(&Key::window(scope))
            .update_expression("SET pver = :none, ver = :one")
            .condition_expression("attribute_not_exists(pk)")
            .expression_attribute_values(":none", 0_u32.write())
            .expression_attribute_values(":one", 1_u32.write())
    }

    /// Writes a version of the policy or rule to the window. A new window also rejects decisions that are based on the
    /// agent's record before `agent_version`, because earlier changes could not reach it.
    pub(crate) fn window_version_update(&self, scope: WindowScope, version: u64, agent_version: u64) -> UpdateBuilder {
        self.update_item(&Key::window(scope))
            .update_expression("SET pver = :stamp, aver = if_not_exists(aver, :agent)")
            .expression_attribute_values(":stamp", version.write())
            .expression_attribute_values(":agent", agent_version.write())
    }

    /// Reads up to `limit` items after a key, and returns whether the last item of the partition is among them.
    async fn read_window_items(
        &self,
        scope: WindowScope,
        after: Option<&Key>,
        limit: u16,
    ) -> Result<(Vec<Item>, bool)> {
        let response = Query::new(&self.db, &self.table, key::window_partition(scope))
            .start_after(after.map(Key::attributes))
            .limit(limit.into())
            .consistent()
            .send("reading a window")
            .await?;
        // DynamoDB may report more items after the last item, which causes one unnecessary read.
        let complete = response.last_evaluated_key.is_none();
        Ok((response.items.unwrap_or_default(), complete))
    }

    fn read_counted_payment(&self, item: &Item) -> Result<Entry> {
        let row = self.item_row(item);
        let (at, settlement) =
            key::parse_counted_payment(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
        Ok(Entry {
            at,
            amount: row.get("amt")?,
            settlement,
        })
    }
}

pub(crate) fn write_counted_payment(
    scope: WindowScope,
    at: Timestamp,
    settlement: SettlementId,
    amount: Amount,
) -> Item {
    Draft::new(&Key::counted_payment(scope, at, settlement))
        .with("amt", &amount)
        .into_item()
}

/// Returns the name of the attribute with the eviction watermark for this period. Each period has a separate watermark,
/// because a payment is counted no earlier than `period.end(watermark)`, which could be in the future for another
/// period.
pub(crate) fn eviction_watermark_name(period: WindowPeriod) -> String {
    format!("hz{period}")
}

/// Returns a window that was never written. The version is zero, which no stored window has.
const fn empty_window(scope: WindowScope, period: WindowPeriod, is_complete: bool) -> Window {
    Window {
        scope,
        period,
        total: Amount::ZERO,
        version: 0,
        stamp: 0,
        watermark: Timestamp::EPOCH,
        oldest: Vec::new(),
        complete: is_complete,
    }
}

/// Adds the amount to the sum. The addition never saturates, because an amount is below 2^53 and a sum of a hundred
/// amounts is below 2^60.
pub(crate) fn add_to_sum(sum: i64, amount: Amount) -> i64 {
    sum.saturating_add_unsigned(amount.units())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_windows_read_for_a_call_share_one_page_limit() {
        let left = PagesLeft::for_one_call();
        let taken = (0..MAX_PAGES + 5).filter(|_| left.clone().try_take_page()).count();
        assert_eq!(u32::try_from(taken), Ok(MAX_PAGES));
        assert!(!left.try_take_page());
    }
}
