//! Counts payments that were authorized before a rule was created or the rule's period or services changed. Until the
//! backfill is complete, every payment that the rule counts is denied.
//!
//! The order of the steps makes the window complete:
//!
//! 1. All windows of the agent's services reject decisions that were based on earlier versions of the agent's record.
//!    The rule's window therefore counts every later payment.
//! 2. The agent's settlements are read, strongly consistent, newest first, so every earlier payment is found.
//! 3. Each page of settlements is counted in one transaction with the position in the list (`bfc`). An interrupted
//!    backfill continues at this position.
//!
//! The period and the services are stored as `bf` ([`CountingRule::coverage_fingerprint`]), so an update of the limit
//! needs no backfill. The lists of recent payments are completed afterwards, and marked with `rbf`
//! ([`Agent::recent_payment_rules_fingerprint`]).
//!
//! A rule that counts each payee alone has a window for each payee. The first payment to a payee starts the window, and
//! the backfill counts the earlier payments to the payee. After a change of the rule, the fence rejects decisions under
//! the earlier version.

use crate::{
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fault::Fault,
    codec::item::Item,
    codec::key::{self, Key},
    codec::ledger::Ledger,
    payments::decision::LogRange,
    payments::late::LatePayments,
    payments::recent::{read_recent_payments, write_recent_payments},
    payments::window::{PagesLeft, add_to_sum, eviction_watermark_name, write_counted_payment},
    transact::{Transaction, TransactionOutcome},
};
use purser_domain::{
    Address, Agent, AgentId, Amount, Catalog, CountingRule, Duration, Entry, Error, Fingerprint, MAX_BUDGET_WINDOW,
    RememberedPayments, Result, Rule, RuleId, Settlement, SettlementId, SettlementState, Timestamp, Window,
    WindowPeriod, WindowScope,
};

/// The number of settlements per page. One transaction can count a page's payments and update the totals.
const PAGE: u32 = 90;
/// The maximum number of pages per call: 9,000 payments, which take about four of the call's 15 seconds.
const MAX_PAGES: u32 = 100;
/// The maximum number of payments that a backfill reads for the lists of recent payments.
const MAX_REMEMBERED: usize = 9_000;
const BACKFILLING: &str = "counting the payments made before a rule";

/// The progress of a window's backfill.
struct Progress {
    /// The rule's version in the window (attribute `pver`), which differs if the rule was changed meanwhile.
    stamp: u64,
    /// The version of the window's content; `None` if nothing was ever written to the window.
    version: Option<u64>,
    /// Whether the window counts all payments from before the rule's last change of period or services.
    is_complete: bool,
    /// The oldest settlement that was read; `None` at the start.
    position: Option<SettlementId>,
    /// Payments at or before this time do not count.
    cut: Timestamp,
    /// The attributes with the eviction watermarks of the rule's earlier periods.
    other_horizons: Vec<String>,
}

#[derive(Clone, Copy)]
struct EarlierPayments<'a> {
    rule: &'a CountingRule<'a>,
    /// The present catalog, because a rule that names a service also counts payments under the service's earlier slug.
    catalog: &'a Catalog,
    late: Option<LatePayments>,
    /// The payee whose payments the window counts; `None` for all payees.
    payee: Option<Address>,
    /// The time before which the agent made no payment that the window counts or contains.
    since: Timestamp,
}

/// Returns the creation of the rule's oldest key, because a run's budget must not read the agent's whole history.
/// Returns the epoch if a key is unknown or all keys count, and for a changed rule, whose window may have other payments.
fn earliest_payment_time(agent: &Agent, rule: &Rule) -> Timestamp {
    let keys = rule.kind.scope().keys.filter(|_| rule.version == 1).unwrap_or_default();
    let created = keys.iter().map(|id| agent.find_key(*id).map(|key| key.created_at));
    let earliest = created.min().flatten();
    // The clock of another instance may be behind.
    earliest.map_or(Timestamp::EPOCH, |created| {
        created.before(Duration::from_secs_u32(3_600))
    })
}

struct Page {
    entries: Vec<Entry>,
    /// The payments that the rule no longer counts. The rule's window may still contain them.
    others: Vec<Entry>,
    /// The position from which the next page continues; `None` if the rule counts no older payments.
    next: Option<SettlementId>,
}

impl Ledger {
    /// Counts earlier payments in the windows of all rules whose backfill is incomplete. For a rule that counts each
    /// payee alone, completes only the window for `payee`. Returns a retryable error if the agent has more settlements
    /// than one call reads.
    pub async fn backfill_payments(
        &self,
        agent: &Agent,
        payee: Option<Address>,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<()> {
        self.fence_windows(agent).await?;
        let late = self.read_late_payments(agent.id).await?;
        let pages = PagesLeft::new(MAX_PAGES);
        for counting in agent.counting_rules() {
            let Some(scope) = counting.window_scope(agent.id, payee) else {
                continue;
            };
            let source = EarlierPayments {
                rule: &counting,
                catalog,
                late,
                payee: payee.filter(|_| counting.is_per_payee()),
                since: earliest_payment_time(agent, counting.rule),
            };
            if counting.is_per_payee() {
                self.start_payee_window(scope, counting.rule, agent.version).await?;
            }
            self.backfill_window((agent, scope), source, now, &pages).await?;
        }
        match agent.recent_payment_rules_fingerprint() {
            Some(coverage) => self.backfill_recent_payments(agent, &coverage, now).await,
            None => Ok(()),
        }
    }

    /// Creates the window for one payee, or writes the version of the changed rule to the window. The window's item also
    /// contains the rule's id, because the key contains a derived id.
    async fn start_payee_window(&self, scope: WindowScope, rule: &Rule, agent_version: u64) -> Result<()> {
        let update = self
            .window_version_update(scope, rule.version, agent_version)
            .update_expression("SET pver = :stamp, aver = if_not_exists(aver, :agent), rid = :rule")
            .condition_expression("attribute_not_exists(pk) OR pver < :stamp")
            .expression_attribute_values(":rule", rule.id.write());
        let mut transaction = Transaction::new();
        transaction.add_update((), update)?;
        // If the condition fails, the window has this version or a later version.
        let mut backoff = Backoff::new();
        transaction.send_until_outcome(&self.db, &mut backoff).await.map(|_| ())
    }

    /// Completes the list of recent payments of each service, except services whose totals change concurrently.
    async fn backfill_recent_payments(&self, agent: &Agent, coverage: &Fingerprint, now: Timestamp) -> Result<()> {
        let services = self.read_services_with_policy(agent.id).await?;
        let scope = |service| WindowScope::Day {
            agent: agent.id,
            service,
        };
        let keys: Vec<Key> = services.iter().map(|service| Key::window(scope(*service))).collect();
        let totals = self.get_items(&keys).await?;
        // Payments up to one minute after `now` are read, because the clock of another instance may be ahead.
        let until = now.after(Duration::from_secs_u32(60));
        let range = LogRange::new(now.before(MAX_BUDGET_WINDOW), until, true);
        let earlier = self.read_payments_between(agent.id, range, MAX_REMEMBERED, true);
        let mut remembered = RememberedPayments::default();
        for payment in earlier.await?.payments.iter().rev() {
            remembered.add(payment);
        }
        remembered.apply_changes_until(Timestamp::MAX);
        for (service, key) in services.iter().zip(&keys) {
            let Some(totals) = totals.iter().find(|totals| key.is_key_of(totals)) else {
                continue;
            };
            let row = self.item_row(totals);
            let mut recent = read_recent_payments(row, totals)?;
            let version: Option<u64> = row.get_optional("ver")?;
            let Some(version) = version.filter(|_| recent.coverage.as_ref() != Some(coverage)) else {
                continue;
            };
            recent.merge(remembered.payments_to_service(*service));
            let update = self
                .update_item(key)
                .update_expression("SET recent = :recent, rbf = :coverage ADD ver :one")
                .condition_expression("ver = :ver")
                .expression_attribute_values(":recent", write_recent_payments(&recent))
                .expression_attribute_values(":coverage", coverage.write())
                .expression_attribute_values(":ver", version.write())
                .expression_attribute_values(":one", 1_u32.write());
            let mut transaction = Transaction::new();
            transaction.add_update((), update)?;
            transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        }
        Ok(())
    }

    async fn backfill_window(
        &self,
        (agent, scope): (&Agent, WindowScope),
        source: EarlierPayments<'_>,
        now: Timestamp,
        pages: &PagesLeft,
    ) -> Result<()> {
        let rule = source.rule;
        let mut backoff = Backoff::new();
        while let Some(totals) = self.get_item(&Key::window(scope)).await? {
            let progress = self.read_backfill_progress(&totals, rule.period, &rule.coverage_fingerprint(), now)?;
            // If the rule was changed meanwhile, the caller reads the changed rule.
            if progress.is_complete || progress.stamp != rule.rule.version {
                return Ok(());
            }
            if !pages.try_take_page() {
                return Err(Error::temporarily_unavailable(
                    BACKFILLING,
                    Fault::new("the agent made more payments than one call counts; the next call continues"),
                ));
            }
            let (position, cut) = (progress.position, progress.cut);
            let mut page = self.read_backfill_page(agent.id, source, position, cut).await?;
            let stored = if progress.version.is_some() {
                let entries = page.entries.iter().chain(&page.others);
                let keys: Vec<Key> = entries.map(|entry| key::counted_payment_key(scope, entry)).collect();
                self.get_items(&keys).await?
            } else {
                Vec::new()
            };
            let is_stored = |entry: &Entry| {
                let key = key::counted_payment_key(scope, entry);
                stored.iter().any(|item| key.is_key_of(item))
            };
            page.entries.retain(|entry| !is_stored(entry));
            page.others.retain(is_stored);
            let is_last = page.next.is_none();
            let transaction = self.backfill_page_transaction(scope, rule, &progress, &page)?;
            match transaction.send_until_outcome(&self.db, &mut backoff).await? {
                TransactionOutcome::Committed if is_last => return Ok(()),
                TransactionOutcome::Committed => backoff = Backoff::new(),
                TransactionOutcome::Refused(_) => backoff.wait_for_retry().await?,
            }
        }
        Ok(())
    }

    /// Returns the windows whose backfill is incomplete, with the payments that a backfill at `now` would count. For
    /// display only, because the spend may be an upper bound.
    pub async fn estimate_unbackfilled_windows(
        &self,
        agent: &Agent,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<Vec<(RuleId, Window)>> {
        let pages = PagesLeft::new(MAX_PAGES);
        let mut late = None;
        let mut windows = Vec::new();
        for counting in agent.counting_rules() {
            let (Some(scope), period) = (counting.window_scope(agent.id, None), counting.period) else {
                continue;
            };
            let (mut window, is_backfilled) = self
                .read_rule_window(scope, period, &counting.coverage_fingerprint())
                .await?;
            if is_backfilled {
                continue;
            }
            if late.is_none() {
                late = Some(self.read_late_payments(agent.id).await?);
            }
            let source = EarlierPayments {
                rule: &counting,
                catalog,
                late: late.flatten(),
                payee: None,
                since: earliest_payment_time(agent, counting.rule),
            };
            (window.total, window.oldest, window.complete) = (Amount::ZERO, Vec::new(), true);
            let (mut position, cut) = (None, period.newest_expired_time(now));
            loop {
                if !pages.try_take_page() {
                    (window.total, window.oldest, window.complete) = (counting.limit, Vec::new(), false);
                    break;
                }
                let page = self.read_backfill_page(agent.id, source, position, cut).await?;
                for entry in page.entries {
                    window.total = window.total.plus(entry.amount).unwrap_or(Amount::MAX);
                    window.oldest.push(entry);
                }
                position = page.next;
                if position.is_none() {
                    break;
                }
            }
            window.oldest.reverse();
            windows.push((counting.rule.id, window));
        }
        Ok(windows)
    }

    /// Returns whether the window counts all payments from before the rule's last change of period or services.
    pub(crate) fn is_backfilled(&self, totals: &Item, period: WindowPeriod, coverage: &Fingerprint) -> Result<bool> {
        let progress = self.read_backfill_progress(totals, period, coverage, Timestamp::EPOCH)?;
        Ok(progress.is_complete)
    }

    fn read_backfill_progress(
        &self,
        totals: &Item,
        period: WindowPeriod,
        coverage: &Fingerprint,
        now: Timestamp,
    ) -> Result<Progress> {
        let row = self.item_row(totals);
        let own = eviction_watermark_name(period);
        let names = totals.keys().filter(|name| name.starts_with("hz") && **name != own);
        let other_watermarks: Vec<String> = names.cloned().collect();
        // If the window has another period's watermark, an eviction for that period may have removed a payment that
        // counts in the current period, so the backfill starts again.
        let is_same = row.get_optional("bf")?.as_ref() == Some(coverage) && other_watermarks.is_empty();
        let position = row.get_optional("bfc")?.filter(|_| is_same);
        let watermark = self.read_eviction_watermark(totals, period)?;
        Ok(Progress {
            stamp: row.get("pver")?,
            version: row.get_optional("ver")?,
            is_complete: is_same && position.is_none(),
            // The first page stores this time as the watermark. Later pages use the watermark, because the clocks of
            // instances differ.
            cut: match position {
                Some(_) => watermark,
                None => watermark.max(period.newest_expired_time(now)),
            },
            position,
            other_horizons: other_watermarks,
        })
    }

    /// Reads a page of settlements after `cutoff`, newest first.
    async fn read_backfill_page(
        &self,
        agent: AgentId,
        EarlierPayments {
            rule,
            catalog,
            late,
            payee,
            since,
        }: EarlierPayments<'_>,
        position: Option<SettlementId>,
        cutoff: Timestamp,
    ) -> Result<Page> {
        let settlements = self
            .read_settlements(agent, position.map(SettlementId::uuid), PAGE)
            .await?;
        let is_full = settlements.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
        let oldest = settlements.last().map(|settlement| settlement.terms.id);
        let late = late.filter(|late| late.counted_at > cutoff);
        let counts_older =
            |oldest: SettlementId| oldest.authorized_at() > cutoff || late.is_some_and(|late| oldest > late.oldest);
        let next = oldest.filter(|oldest| is_full && counts_older(*oldest) && oldest.authorized_at() > since);
        let counts = |settlement: &&Settlement| {
            let is_payee = payee.is_none_or(|payee| payee == settlement.terms.pay_to);
            let purchase = settlement.terms.purchase().filter(|_| is_payee);
            let applies = purchase
                .is_some_and(|purchase| purchase.is_counted_by(&rule.rule.kind, catalog.find_by_id(purchase.service)));
            applies && settlement.state != SettlementState::Expired && settlement.counted_at > cutoff
        };
        let entry = |settlement: &Settlement| Entry {
            at: settlement.counted_at,
            amount: rule.counted.payment_units(settlement.terms.amount),
            settlement: settlement.terms.id,
        };
        let (counted, others): (Vec<&Settlement>, Vec<&Settlement>) = settlements.iter().partition(counts);
        Ok(Page {
            entries: counted.into_iter().map(entry).collect(),
            others: others.into_iter().map(entry).collect(),
            next,
        })
    }

    fn backfill_page_transaction(
        &self,
        scope: WindowScope,
        rule: &CountingRule<'_>,
        progress: &Progress,
        page: &Page,
    ) -> Result<Transaction<()>> {
        let sum = |entries: &[Entry]| entries.iter().map(|entry| entry.amount).fold(0, add_to_sum);
        let delta = sum(&page.entries).saturating_sub(sum(&page.others));
        let mut update = self
            .update_item(&Key::window(scope))
            .expression_attribute_names("#total", "total")
            .expression_attribute_names("#horizon", eviction_watermark_name(rule.period))
            .expression_attribute_values(":delta", delta.write())
            .expression_attribute_values(":stamp", rule.rule.version.write())
            .expression_attribute_values(":coverage", rule.coverage_fingerprint().write())
            .expression_attribute_values(":cut", progress.cut.write())
            .expression_attribute_values(":one", 1_u32.write());
        // Every write of counted payments changes `ver`, so the condition fails if the window changed since the read.
        let unchanged = match progress.version {
            Some(version) => {
                update = update.expression_attribute_values(":ver", version.write());
                "ver = :ver"
            }
            None => "attribute_not_exists(ver)",
        };
        let mut set = "SET bf = :coverage, #horizon = :cut".to_owned();
        let mut removed: Vec<String> = Vec::new();
        match page.next {
            Some(next) => {
                set.push_str(", bfc = :next");
                update = update.expression_attribute_values(":next", next.write());
            }
            None => removed.push("bfc".to_owned()),
        }
        for (index, name) in progress.other_horizons.iter().enumerate() {
            removed.push(format!("#old{index}"));
            update = update.expression_attribute_names(format!("#old{index}"), name);
        }
        if !removed.is_empty() {
            set = format!("{set} REMOVE {}", removed.join(", "));
        }
        let update = update
            .update_expression(format!("{set} ADD #total :delta, ver :one"))
            .condition_expression(format!("pver = :stamp AND {unchanged}"));
        let mut transaction = Transaction::new();
        transaction.add_update((), update)?;
        for entry in &page.entries {
            let row = write_counted_payment(scope, entry.at, entry.settlement, entry.amount);
            transaction.add_put((), self.put_new_item(row))?;
        }
        for entry in &page.others {
            let key = key::counted_payment_key(scope, entry);
            transaction.add_delete_of_existing((), &self.table, key.attributes())?;
        }
        Ok(transaction)
    }
}
