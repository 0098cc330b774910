//! Windows: the totals, and one small item for each authorization that counts.
//!
//! Always true: `total` is the sum of the existing entries; every write that adds, evicts or releases one changes
//! `total` and `ver` in the same transaction. `hz` is the time of the newest entry that was evicted because it had
//! rolled out; no entry that old is ever added again. `pver` and `aver` bind every charge to the version of the policy
//! and of the agent's record. An entry must never expire by TTL: `total` would not be lowered.

use crate::{
    codec::attribute::Attribute as _,
    codec::fault::failed,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::transact::{Sent, Transaction, update_once_free},
    payments::idempotency::IdempotencyRecord,
};
use aws_sdk_dynamodb::types::builders::UpdateBuilder;
use purser_domain::{
    Amount, Charge, Duration, EnabledService, Entry, Error, Fingerprint, Result, SettlementId, Terms, Timestamp,
    Window, WindowScope,
};

/// How many of the oldest entries a decision reads. An authorization adds one and evicts up to this many, so expired
/// entries do not accumulate; with policy and totals, ten items of some 150 bytes fit into the 4 KB of one read unit.
const OLDEST: u16 = 8;
/// How many more are read in one query when those are not enough: `LOOKED_AT` of the domain.
const PAGE: u16 = 1_000;
/// How many expired entries one transaction evicts. Of its 100 actions the totals take one; the rest is headroom.
const DRAIN: u16 = 90;

/// The versions that a charge was judged by must still be current: the same policy or rule, and no narrowing edit of
/// the agent's record after the version that was read.
const STAMPS: &str = "pver = :stamp AND (attribute_not_exists(aver) OR aver <= :agent)";

/// What a stamp does to `hz`, the time that the window was cleared to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Horizon {
    /// Keep it.
    Keep,
    /// Reset it to zero.
    Reset,
}

/// How many of a window's expired entries were evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// All of them.
    All,
    /// As many as fit into one transaction; there may be more.
    More,
    /// None, because of a concurrent write to the same window.
    Superseded,
}

/// The first items of a window's partition.
#[derive(Debug)]
pub(crate) struct Head {
    /// The policy; only in a day window's partition.
    pub(crate) policy: Option<EnabledService>,
    /// The window and its oldest entries.
    pub(crate) window: Window,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Totals,
    Evicted,
}

impl Ledger {
    /// The head of a window's partition, in one Query, which is not a snapshot: see [`crate::DecisionInputs`].
    pub(crate) async fn head(&self, scope: WindowScope, length: Duration) -> Result<Head> {
        self.head_with(scope, length, OLDEST).await
    }

    async fn head_with(&self, scope: WindowScope, length: Duration, oldest: u16) -> Result<Head> {
        // Two more, for the policy and the totals, which come before the entries.
        let (items, complete) = self.partition(scope, None, oldest.saturating_add(2)).await?;
        let mut policy = None;
        let mut window = empty(scope, length, complete);
        for item in &items {
            let row = self.row(item);
            match key::sort_key(item) {
                key::POLICY => policy = Some(self.read_policy(item)?),
                key::WINDOW => {
                    window.total = row.get("total")?;
                    window.version = row.get("ver")?;
                    window.stamp = row.get("pver")?;
                    window.horizon = row.get("hz")?;
                }
                _ => window.oldest.push(self.read_entry(item)?),
            }
        }
        Ok(Head { policy, window })
    }

    /// Whether the window is unchanged since it was read, and the idempotency key has authorized nothing. If so, the
    /// read of the window was consistent, and its content was true between the two reads.
    ///
    /// The key is read again since it may have been read before the window: what takes the room may be this same
    /// payment, authorized by a concurrent duplicate of the call.
    pub async fn unchanged_since(&self, window: &Window, key: &Fingerprint) -> Result<bool> {
        let (WindowScope::Day { agent, .. } | WindowScope::Budget { agent, .. }) = window.scope;
        let (totals, key) = (Key::window(window.scope), Key::idempotency(agent, key));
        let (totals, record) = tokio::try_join!(self.get(&totals), self.get(&key))?;
        let version = match &totals {
            None => empty(window.scope, window.length, true).version,
            Some(item) => self.row(item).get("ver")?,
        };
        let record = record
            .map(|item| IdempotencyRecord::read(self.row(&item)))
            .transpose()?;
        Ok(version == window.version && !matches!(record, Some(IdempotencyRecord::Allowed { .. })))
    }

    /// Reads more of the window's oldest entries, for [`Window::tells_more`]. They may be newer than the rest: check
    /// [`Ledger::unchanged_since`] afterwards.
    pub async fn read_further(&self, window: &mut Window) -> Result<()> {
        let after = window.oldest.last().map(|last| key::of_entry(window.scope, last));
        let after = after.unwrap_or_else(|| Key::window(window.scope));
        let (items, complete) = self.partition(window.scope, Some(&after), PAGE).await?;
        for item in &items {
            window.oldest.push(self.read_entry(item)?);
        }
        window.complete = complete;
        Ok(())
    }

    /// Those of these windows whose total is not zero, each read until [`Window::live`] at `at` is exact. For display
    /// only: no decision depends on it, and the reads are not a snapshot.
    pub async fn windows_in_use(&self, scopes: &[(WindowScope, Duration)], at: Timestamp) -> Result<Vec<Window>> {
        /// How many windows are read concurrently.
        const AT_ONCE: usize = 100;
        let keys: Vec<Key> = scopes.iter().map(|(scope, _)| Key::window(*scope)).collect();
        let mut windows = Vec::new();
        for totals in self.get_all(&keys).await?.chunks(AT_ONCE) {
            let mut reads = tokio::task::JoinSet::new();
            for item in totals {
                let used = self.row(item).get::<Amount>("total")? != Amount::ZERO;
                let asked = keys.iter().zip(scopes).find(|(key, _)| key.is_of(item));
                if let Some((_, (scope, length))) = asked.filter(|_| used) {
                    let (scope, length) = (*scope, *length);
                    let ledger = self.clone();
                    reads.spawn(async move { ledger.live_window(scope, length, at).await });
                }
            }
            while let Some(read) = reads.join_next().await {
                windows.push(read.map_err(|error| Error::internal("reading a window", error))??);
            }
        }
        windows.sort_by_key(|window| window.scope);
        Ok(windows)
    }

    async fn live_window(&self, scope: WindowScope, length: Duration, at: Timestamp) -> Result<Window> {
        let mut window = self.head(scope, length).await?.window;
        while window.hides_expired(at) {
            self.read_further(&mut window).await?;
        }
        Ok(window)
    }

    /// Evicts entries that have rolled out at `at`, oldest first, as many as fit into one transaction. For a window
    /// with more expired entries than a decision reads.
    pub async fn clear_expired(&self, window: &Window, at: Timestamp) -> Result<Cleared> {
        let current = self.head_with(window.scope, window.length, DRAIN).await?.window;
        if !self.evict(window.scope, current.expired(at)).await? {
            return Ok(Cleared::Superseded);
        }
        Ok(if current.hides_expired(at) {
            Cleared::More
        } else {
            Cleared::All
        })
    }

    /// Evicts the first of these entries and writes nothing else; false if a concurrent write prevents it.
    pub(crate) async fn evict(&self, scope: WindowScope, expired: &[Entry]) -> Result<bool> {
        let expired = expired.get(..DRAIN.into()).unwrap_or(expired);
        let Some(newest) = expired.last() else {
            return Ok(true);
        };
        let mut transaction = Transaction::new();
        let delta = expired.iter().map(|entry| entry.amount).fold(0, add).saturating_neg();
        let update = self
            .update(&Key::window(scope))
            .update_expression("SET #total = #total + :delta, hz = :newest, ver = ver + :one")
            .condition_expression("hz <= :newest")
            .expression_attribute_names("#total", "total")
            .expression_attribute_values(":delta", delta.write())
            .expression_attribute_values(":newest", newest.at.write())
            .expression_attribute_values(":one", 1_u32.write());
        transaction.update(Role::Totals, update)?;
        for entry in expired {
            transaction.delete_existing(Role::Evicted, &self.table, key::of_entry(scope, entry).attributes())?;
        }
        match transaction.send(&self.db).await? {
            Sent::Committed => Ok(true),
            Sent::Refused(_) | Sent::Contended => Ok(false),
            Sent::Unknown(error) => Err(error),
        }
    }

    /// Adds a charge to a reservation: the totals with all their conditions, the entry, and the evictions.
    pub(crate) fn charge<R: Copy + PartialEq>(
        &self,
        transaction: &mut Transaction<R>,
        role: R,
        charge: &Charge<'_>,
        agent_version: u64,
        terms: &Terms,
    ) -> Result<()> {
        let delta = add(0, charge.amount).saturating_sub(add(0, charge.evicted));
        // A condition can't do arithmetic: `total + delta <= cap` is written as `total <= cap - delta`.
        let room = add(0, charge.cap).saturating_sub(delta);
        let update = self
            .update(&Key::window(charge.scope))
            .expression_attribute_names("#total", "total")
            .expression_attribute_values(":delta", delta.write())
            .expression_attribute_values(":stamp", charge.stamp.write())
            .expression_attribute_values(":room", room.write())
            .expression_attribute_values(":agent", agent_version.write())
            .expression_attribute_values(":one", 1_u32.write());
        // A write that evicts advances the horizon; one that doesn't leaves it unchanged, so that those commute.
        let update = match charge.evict.last() {
            Some(newest) => update
                .update_expression("SET #total = #total + :delta, hz = :newest, ver = ver + :one")
                .condition_expression(format!("{STAMPS} AND hz <= :newest AND #total <= :room"))
                .expression_attribute_values(":newest", newest.at.write()),
            None => update
                .update_expression("SET #total = #total + :delta, ver = ver + :one")
                .condition_expression(format!("{STAMPS} AND hz <= :horizon AND #total <= :room"))
                .expression_attribute_values(":horizon", charge.horizon.write()),
        };
        transaction.update(role, update)?;
        transaction.put(
            role,
            self.put_new(write_entry(charge.scope, terms.authorized_at, terms.id, charge.amount)),
        )?;
        for entry in charge.evict {
            transaction.delete_existing(role, &self.table, key::of_entry(charge.scope, entry).attributes())?;
        }
        Ok(())
    }

    /// Fences a window: it rejects every decision that was made on an earlier version of the agent's record.
    pub(crate) async fn fence_older_versions(&self, scope: WindowScope, agent_version: u64) -> Result<()> {
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(Key::window(scope).attributes()))
            .update_expression("SET aver = :version")
            .condition_expression("attribute_exists(pk) AND (attribute_not_exists(aver) OR aver < :version)")
            .expression_attribute_values(":version", agent_version.write());
        // If the condition fails, the window is fenced by this or a later version, or does not exist.
        update_once_free(&update, "shutting a window").await.map(|_| ())
    }

    /// The update that creates a window's totals, or stamps a new version of its policy or rule on them. A new window
    /// rejects decisions on versions of the agent's record before `agent_version`: an edit that completed earlier could
    /// not fence it.
    pub(crate) fn stamp(
        &self,
        scope: WindowScope,
        version: u64,
        agent_version: u64,
        horizon: Horizon,
    ) -> UpdateBuilder {
        let update = match horizon {
            Horizon::Keep => {
                "SET pver = :stamp, #total = if_not_exists(#total, :zero), hz = if_not_exists(hz, :zero), \
                 ver = if_not_exists(ver, :zero) + :one, aver = if_not_exists(aver, :agent)"
            }
            Horizon::Reset => {
                "SET pver = :stamp, #total = if_not_exists(#total, :zero), hz = :zero, \
                 ver = if_not_exists(ver, :zero) + :one, aver = if_not_exists(aver, :agent)"
            }
        };
        self.update(&Key::window(scope))
            .update_expression(update)
            .expression_attribute_names("#total", "total")
            .expression_attribute_values(":stamp", version.write())
            .expression_attribute_values(":agent", agent_version.write())
            .expression_attribute_values(":zero", 0_u32.write())
            .expression_attribute_values(":one", 1_u32.write())
    }

    /// Items of a window's partition in order, after a key, and whether they include the last.
    async fn partition(&self, scope: WindowScope, after: Option<&Key>, limit: u16) -> Result<(Vec<Item>, bool)> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", key::window_partition(scope).write())
            .set_exclusive_start_key(after.map(Key::attributes))
            .limit(limit.into())
            .scan_index_forward(true)
            .consistent_read(true);
        let answer = query.send().await.map_err(failed("reading a window"))?;
        // A page that ends exactly at the limit may be reported as incomplete; that only costs one more read.
        let complete = answer.last_evaluated_key.is_none();
        Ok((answer.items.unwrap_or_default(), complete))
    }

    fn read_entry(&self, item: &Item) -> Result<Entry> {
        let row = self.row(item);
        let (at, settlement) = key::parse_entry(key::sort_key(item)).ok_or_else(|| row.corrupt("sk"))?;
        Ok(Entry {
            at,
            amount: row.get("amt")?,
            settlement,
        })
    }
}

pub(crate) fn write_entry(scope: WindowScope, at: Timestamp, settlement: SettlementId, amount: Amount) -> Item {
    Draft::of(&Key::entry(scope, at, settlement))
        .with("amt", &amount)
        .into_item()
}

/// A window that was never written: version and stamp are zero, as in no stored window.
const fn empty(scope: WindowScope, length: Duration, complete: bool) -> Window {
    Window {
        scope,
        length,
        total: Amount::ZERO,
        version: 0,
        stamp: 0,
        horizon: Timestamp::EPOCH,
        oldest: Vec::new(),
        complete,
    }
}

/// A sum that may be negative. Amounts are below 2^53 and the sum of a hundred below 2^60, so nothing saturates.
pub(crate) fn add(sum: i64, amount: Amount) -> i64 {
    sum.saturating_add_unsigned(amount.units())
}
