//! Rolling windows: the amounts authorized recently, and whether another amount fits.
//!
//! A window is a running total and one live entry per counted authorization (`docs/data-model.md`). Always true: the
//! total is the sum of the existing entries. An entry counts while it is younger than the window's length, and a later
//! authorization deletes it afterwards; until then the total includes it, and [`Window::live`] subtracts it. Times in
//! this module are recorded times, not clock readings: [`Window::earliest`] prevents a worker whose clock is behind
//! from using a window from which a worker with a faster clock has already deleted entries.

use crate::{AgentId, Amount, Duration, RuleId, ServiceId, SettlementId, Timestamp};

/// The number of entries that a refusal reads to compute when its amount fits: some 40 read units
/// (`docs/data-model.md`).
pub const LOOKED_AT: usize = 1_000;

/// The scope of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowScope {
    /// `max_per_day_units`: one agent and one service, 24 hours.
    Day {
        /// The agent.
        agent: AgentId,
        /// The service.
        service: ServiceId,
    },
    /// A rule that counts amounts or payments ([`crate::CountingRule`]): one agent, for the rule's length.
    Budget {
        /// The agent.
        agent: AgentId,
        /// The rule.
        rule: RuleId,
    },
}

impl WindowScope {
    /// The rule, if the window is a rule's.
    pub const fn budget(self) -> Option<RuleId> {
        match self {
            Self::Budget { rule, .. } => Some(rule),
            Self::Day { .. } => None,
        }
    }
}

/// One authorization in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The `authorized_at` of the settlement.
    pub at: Timestamp,
    /// Its amount.
    pub amount: Amount,
    /// The settlement.
    pub settlement: SettlementId,
}

/// A window, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The scope.
    pub scope: WindowScope,
    /// The time for which an entry counts.
    pub length: Duration,
    /// The sum of the existing entries.
    pub total: Amount,
    /// Changes with every write of entries: if version and stamp are the same, no write happened in between.
    pub version: u64,
    /// The version of the policy or rule at its last edit; zero if the window was never written.
    pub stamp: u64,
    /// The time of the newest evicted entry.
    pub horizon: Timestamp,
    /// The oldest entries, oldest first.
    pub oldest: Vec<Entry>,
    /// Whether `oldest` contains all entries.
    pub complete: bool,
}

/// The use of a window, as far as its entries were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spend {
    /// The amount, or an upper bound of it.
    pub amount: Amount,
    /// Whether the amount is exact. It is not if unread entries may have expired too.
    pub is_exact: bool,
}

impl Spend {
    /// No spending.
    pub const NONE: Self = Self {
        amount: Amount::ZERO,
        is_exact: true,
    };

    /// The sum of two; an upper bound if either is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            amount: self.amount.plus(other.amount).unwrap_or(Amount::MAX),
            is_exact: self.is_exact && other.is_exact,
        }
    }
}

/// The time at which an amount that does not fit now will fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAt {
    /// At this time, if nothing else is authorized until then.
    At(Timestamp),
    /// Never: the amount alone is above the cap.
    Never,
    /// At this time at the earliest: more entries would have to be read for the exact time.
    NotBefore(Timestamp),
}

/// An amount to add to a window, with the conditions of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    /// The window.
    pub scope: WindowScope,
    /// The time for which its entries count.
    pub length: Duration,
    /// The amount to add.
    pub amount: Amount,
    /// The cap that the new total must not exceed.
    pub cap: Amount,
    /// The window's total, as it was read.
    pub total: Amount,
    /// The policy or rule version that the decision used.
    pub stamp: u64,
    /// The write fails if an entry newer than this was evicted: the recorded time less the window's length.
    pub horizon: Timestamp,
    /// The expired entries that the same write evicts.
    pub evict: &'a [Entry],
    /// The sum of `evict`.
    pub evicted: Amount,
    /// The horizon of the window, as it was read. An eviction never lowers it: an entry can be older, if a worker whose
    /// clock was far behind added it while another evicted what it had read.
    pub cleared: Timestamp,
}

impl Charge<'_> {
    /// Whether the new total is within the cap.
    pub fn fits(&self) -> bool {
        let kept = self.total.above(self.evicted);
        kept.plus(self.amount).is_some_and(|total| total <= self.cap)
    }
}

/// The selection of the expired entries that a write evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// All expired entries that were read: the default, so that they don't accumulate.
    Eager,
    /// Only as many as necessary for the amount to fit: for a retry, since each deletion adds a possible conflict.
    Needed,
}

impl Window {
    /// The earliest time that may be recorded now: the clock's, or later if a worker whose clock is ahead has already
    /// evicted an entry.
    pub fn earliest(&self, now: Timestamp) -> Timestamp {
        now.max(self.horizon.after(self.length))
    }

    /// The read entries that no longer count at `at`: an entry counts while its age is less than the length.
    pub fn expired(&self, at: Timestamp) -> &[Entry] {
        let cut = at.before(self.length);
        let count = self.oldest.partition_point(|entry| entry.at <= cut);
        self.oldest.get(..count).unwrap_or_default()
    }

    /// The amount that counts at `at`: exact unless [`Window::hides_expired`].
    pub fn live(&self, at: Timestamp) -> Amount {
        self.total.above(sum(self.expired(at)))
    }

    /// Whether all read entries have expired and unread ones remain, so that [`Window::live`] may be too high.
    pub fn hides_expired(&self, at: Timestamp) -> bool {
        !self.complete && self.expired(at).len() == self.oldest.len()
    }

    /// The amount that counts at `at`, and whether it is exact.
    pub fn spend(&self, at: Timestamp) -> Spend {
        Spend {
            amount: self.live(at),
            is_exact: !self.hides_expired(at),
        }
    }

    /// Removes the read entries that no longer count at `at`, so that a long window can be summed while it is read. The
    /// result is only for display: the stored total still contains them, so nothing may be reserved on it.
    pub fn forget_expired(&mut self, at: Timestamp) {
        let expired = self.expired(at);
        let (count, amount) = (expired.len(), sum(expired));
        self.total = self.total.above(amount);
        self.oldest.drain(..count);
    }

    /// The amount that is left under `cap` at `at`.
    pub fn remaining(&self, cap: Amount, at: Timestamp) -> Amount {
        cap.above(self.live(at))
    }

    /// The time from which `amount` fits under `cap`, counting only existing authorizations.
    pub fn fits(&self, amount: Amount, cap: Amount, at: Timestamp) -> RetryAt {
        let Some(room) = cap.minus(amount) else {
            return RetryAt::Never;
        };
        let mut left = self.total;
        let mut from = at;
        if left <= room {
            return RetryAt::At(from);
        }
        for entry in &self.oldest {
            left = left.above(entry.amount);
            from = from.max(entry.at.after(self.length));
            if left <= room {
                return RetryAt::At(from);
            }
        }
        if self.complete {
            RetryAt::Never
        } else {
            RetryAt::NotBefore(from)
        }
    }

    /// Whether more entries should be read to compute when an amount fits. A refusal stops reading after about
    /// [`LOOKED_AT`] entries, even if more must expire before the amount fits.
    pub fn tells_more(&self, fits: RetryAt) -> bool {
        matches!(fits, RetryAt::NotBefore(_)) && !self.complete && self.oldest.len() < LOOKED_AT
    }

    /// The charge of `amount` at `at`, to be written if it [fits](Charge::fits).
    pub fn charge(&self, amount: Amount, cap: Amount, at: Timestamp, eviction: Eviction) -> Charge<'_> {
        let expired = self.expired(at);
        let evict = match eviction {
            Eviction::Eager => expired,
            Eviction::Needed => first_that_sum_to(expired, self.total.plus(amount).unwrap_or(Amount::MAX).above(cap)),
        };
        Charge {
            scope: self.scope,
            length: self.length,
            amount,
            cap,
            total: self.total,
            stamp: self.stamp,
            horizon: at.before(self.length),
            evict,
            evicted: sum(evict),
            cleared: self.horizon,
        }
    }
}

/// The shortest prefix of the entries whose sum is at least `wanted`; all entries, if their sum is less.
fn first_that_sum_to(entries: &[Entry], wanted: Amount) -> &[Entry] {
    let mut held = Amount::ZERO;
    let count = entries.iter().take_while(|entry| {
        let more = held < wanted;
        held = held.plus(entry.amount).unwrap_or(Amount::MAX);
        more
    });
    entries.get(..count.count()).unwrap_or_default()
}

fn sum(entries: &[Entry]) -> Amount {
    entries
        .iter()
        .fold(Amount::ZERO, |sum, entry| sum.plus(entry.amount).unwrap_or(Amount::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const LENGTH: Duration = Duration::DAY;

    fn entry(at: i64, units: u64) -> Entry {
        Entry {
            at: Timestamp::from_micros(at).unwrap(),
            amount: Amount::from_units(units).unwrap(),
            settlement: SettlementId::from_uuid(Uuid::from_u128(u128::try_from(at).unwrap())),
        }
    }

    fn window(mut entries: Vec<Entry>, shown: usize) -> Window {
        entries.sort_by_key(|entry| entry.at);
        let total = sum(&entries);
        let complete = shown >= entries.len();
        entries.truncate(shown);
        let (agent, rule) = (AgentId::from_uuid(Uuid::nil()), RuleId::from_uuid(Uuid::nil()));
        Window {
            scope: WindowScope::Budget { agent, rule },
            length: LENGTH,
            total,
            version: 1,
            stamp: 1,
            horizon: Timestamp::EPOCH,
            oldest: entries,
            complete,
        }
    }

    fn amount(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    #[test]
    fn entries_expire_exactly_after_the_window_length() {
        let window = window(vec![entry(1_000, 60)], 8);
        let free = Timestamp::from_micros(1_000).unwrap().after(LENGTH);
        let before = Timestamp::from_micros(free.micros() - 1).unwrap();
        assert_eq!(window.live(before), amount(60));
        assert_eq!(window.live(free), Amount::ZERO);
        assert_eq!(window.fits(amount(50), amount(100), before), RetryAt::At(free));
        assert!(!window.charge(amount(50), amount(100), before, Eviction::Eager).fits());
        let charge = window.charge(amount(50), amount(100), free, Eviction::Eager);
        assert_eq!((charge.fits(), charge.evicted), (true, amount(60)));
    }

    #[test]
    fn an_amount_above_the_cap_never_fits() {
        assert_eq!(
            window(vec![], 8).fits(amount(101), amount(100), Timestamp::EPOCH),
            RetryAt::Never
        );
    }

    #[test]
    fn a_retry_evicts_no_more_than_it_needs() {
        let window = window(vec![entry(1, 10), entry(2, 10), entry(3, 10)], 8);
        let late = Timestamp::EPOCH.after(LENGTH).after(LENGTH);
        for (wanted, eviction, evicted) in [
            (10, Eviction::Needed, 1),
            (5, Eviction::Needed, 0),
            (5, Eviction::Eager, 3),
            (36, Eviction::Needed, 3),
        ] {
            let charge = window.charge(amount(wanted), amount(35), late, eviction);
            assert_eq!(charge.evict, &window.oldest[..evicted], "{wanted} {eviction:?}");
            assert_eq!(charge.fits(), wanted <= 35, "{wanted} {eviction:?}");
        }
    }

    proptest! {
        /// The window's arithmetic equals the plain definition: the sum of the entries that are younger than the
        /// length.
        #[test]
        fn live_is_the_sum_of_the_young(
            entries in prop::collection::vec((0..3 * LENGTH.micros(), 1_u64..1_000), 0..20),
            now in 0..4 * LENGTH.micros(),
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let at = Timestamp::from_micros(now).unwrap();
            let young = entries.iter().filter(|entry| now - entry.at.micros() < LENGTH.micros());
            let plain: u64 = young.map(|entry| entry.amount.units()).sum();
            prop_assert_eq!(window(entries, 100).live(at).units(), plain);
        }

        /// `fits` returns the first possible time: the amount fits then and not a microsecond earlier.
        #[test]
        fn the_first_fitting_instant_is_exact(
            entries in prop::collection::vec((0..LENGTH.micros(), 1_u64..100), 1..12),
            wanted in 1_u64..100,
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let window = window(entries, 100);
            let (cap, wanted) = (amount(100), amount(wanted));
            let now = Timestamp::from_micros(LENGTH.micros() - 1).unwrap();
            let RetryAt::At(first) = window.fits(wanted, cap, now) else { return Err(TestCaseError::fail("must fit")) };
            prop_assert!(window.charge(wanted, cap, first, Eviction::Needed).fits());
            if first > now {
                let earlier = Timestamp::from_micros(first.micros() - 1).unwrap();
                prop_assert!(!window.charge(wanted, cap, earlier, Eviction::Eager).fits());
            }
        }

        /// Removing expired entries, page by page, does not change what counts or fits.
        #[test]
        fn what_was_forgotten_counted_no_more(
            entries in prop::collection::vec((0..3 * LENGTH.micros(), 1_u64..100), 0..20),
            shown in 0_usize..20, now in 0..4 * LENGTH.micros(), wanted in 1_u64..100,
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let at = Timestamp::from_micros(now).unwrap();
            let read = window(entries, shown);
            let mut kept = read.clone();
            kept.forget_expired(at);
            prop_assert_eq!(kept.spend(at), read.spend(at));
            let cap = amount(100);
            prop_assert_eq!(kept.fits(amount(wanted), cap, at), read.fits(amount(wanted), cap, at));
        }

        /// With only the oldest entries read, an amount never fits earlier.
        #[test]
        fn a_partial_read_is_never_generous(
            entries in prop::collection::vec((0..3 * LENGTH.micros(), 1_u64..100), 0..20),
            shown in 0_usize..20, now in 0..4 * LENGTH.micros(),
        ) {
            let entries: Vec<Entry> = entries.into_iter().map(|(at, units)| entry(at, units)).collect();
            let at = Timestamp::from_micros(now).unwrap();
            prop_assert!(window(entries.clone(), shown).live(at) >= window(entries, 100).live(at));
        }
    }

    /// Where all entries that were read have expired, and there are more, the sum may be too high.
    #[test]
    fn unread_entries_make_a_sum_inexact() {
        let at = Timestamp::from_micros(2).unwrap().after(LENGTH);
        let entries = || vec![entry(1, 10), entry(2, 10), entry(3, 10)];
        for (shown, is_exact) in [(1, false), (2, false), (3, true)] {
            let window = window(entries(), shown);
            assert_eq!(window.hides_expired(at), !is_exact, "{shown}");
            assert_eq!(window.spend(at).is_exact, is_exact, "{shown}");
        }
        let early = Timestamp::from_micros(1).unwrap().after(LENGTH);
        assert!(window(entries(), 2).spend(early).is_exact);
    }

    /// More entries are read where they tell when an amount fits, up to a number of them.
    #[test]
    fn more_entries_are_read_to_tell_when_an_amount_fits() {
        let not_before = RetryAt::NotBefore(Timestamp::EPOCH);
        let many = |count: usize| (1..).take(count).map(|at| entry(at, 1)).collect::<Vec<_>>();
        for (shown, fits, tells) in [
            (1, not_before, true),
            (LOOKED_AT - 1, not_before, true),
            (LOOKED_AT, not_before, false),
            (LOOKED_AT + 1, not_before, false),
            (1, RetryAt::At(Timestamp::EPOCH), false),
        ] {
            assert_eq!(
                window(many(LOOKED_AT + 2), shown).tells_more(fits),
                tells,
                "{shown} {fits:?}"
            );
        }
        assert!(!window(many(1), 1).tells_more(not_before));
        assert_eq!(window(many(1), 1).scope.budget(), Some(RuleId::from_uuid(Uuid::nil())));
        let day = WindowScope::Day {
            agent: AgentId::from_uuid(Uuid::nil()),
            service: ServiceId::from_uuid(Uuid::nil()),
        };
        assert_eq!(day.budget(), None);
    }
}
