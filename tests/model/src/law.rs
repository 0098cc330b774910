//! The invariants, and the checks that concern only the ledger.

use crate::{
    ledger::{Entry, Ledger, Record, Reservation, Ruling, Scope, State, Tick, Write},
    world::Floor,
};
use std::collections::BTreeSet;

macro_rules! laws {
    ($($name:ident = $words:literal,)+) => {
        /// An invariant. The number in its text identifies the invariant in reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Law { $(#[doc = $words] $name,)+ }

        impl Law {
            /// Every invariant.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The text of the invariant, which is also the name of its `stateright` property.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

laws! {
    Totals = "1: a total is the sum of its entries, and what counts after the horizon and is not released has one",
    Cap = "2: what was reserved within the length of a window is within the cap that was judged",
    Stamps = "3: nothing is reserved on a version before an answered edit or freeze",
    Horizon = "4: the horizon is monotonic, and no entry is added at or below it",
    OneSettlement = "5: a key is one settlement and one nonce for good, and what is signed is reserved",
    Approval = "6: an approval is executed exactly when one settlement of its request used it in time, for good",
    Paid = "7: a confirmed payment is in a block that a view saw as final",
    Unpayable = "8: a released payment was unused at a final block past its end, and no extension pays it",
    OneProof = "9: one transfer proves one settlement",
    Revert = "10: a revert leaves the window, and the index has exactly the authorized settlements",
    Payout = "11: a payout goes to what its owner named, after the wait, one at a time but for reverts",
    LateCommit = "12: after a lost answer, the repetition returns the settlement that was stored",
    Usage = "13: the journal and its sums are the fold of the facts, each once",
    Liveness = "14: every hold of a tenant ends within a bound, whatever another tenant does",
    Moves = "15: a settlement makes only the documented moves, and its terms never change",
    Freeze = "16: no call that begins after the answer to a freeze gets a signature",
    Handover = "17: an agent changes hands by the open offer that was read, once, and its questions follow",
    Evictable = "19: what has expired can be evicted",
    Freezes = "20: only a token ends or changes its freeze, and a browser's ends by two operators who saw it",
    Claims = "18: a confirmed settlement has the claim of its block",
}

/// A set of violated invariants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken(u32);

impl Broken {
    /// Adds an invariant to the set unless its condition holds.
    pub fn unless(&mut self, holds: bool, law: Law) {
        if !holds {
            self.0 |= 1 << law as u32;
        }
    }

    /// Returns whether the set contains the invariant.
    pub const fn has(self, law: Law) -> bool {
        self.0 & (1 << law as u32) != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Returns the invariants that a ledger violates.
pub fn of_ledger(ledger: &Ledger) -> Broken {
    let mut broken = Broken::default();
    for (scope, window) in &ledger.windows {
        let sum: i8 = window.entries.iter().map(|entry| entry.amount).sum();
        broken.unless(window.total == sum, Law::Totals);
        for entry in &window.entries {
            let stands = ledger.settlements.get(&entry.settlement).is_some_and(|of| {
                of.state != State::Expired
                    && (of.counted_at, of.amount) == (entry.at, entry.amount)
                    && of.scopes.contains(scope)
            });
            broken.unless(stands, Law::Totals);
        }
    }
    for (id, of) in &ledger.settlements {
        for scope in &of.scopes {
            let Some(window) = ledger.windows.get(scope) else {
                continue;
            };
            let counts = of.state != State::Expired && window.watermark.is_none_or(|cleared| of.counted_at > cleared);
            let is_there = window.entries.iter().any(|entry| entry.settlement == *id);
            broken.unless(!counts || is_there, Law::Totals);
        }
        broken.unless(of.held == (of.state == State::Authorized), Law::Revert);
    }
    keys(ledger, &mut broken);
    approvals(ledger, &mut broken);
    broken
}

/// Checks that keys and settlements refer to each other.
fn keys(ledger: &Ledger, broken: &mut Broken) {
    let allows = ledger.keys.iter().filter_map(|(key, record)| match record {
        Record::Allow { request, settlement } => Some((*key, *settlement, *request)),
        Record::Escalated { .. } => None,
    });
    let payouts = ledger
        .payout_keys
        .iter()
        .map(|(key, settlement)| (*key, *settlement, 0));
    let by_key: BTreeSet<_> = allows.chain(payouts).collect();
    let by_settlement: BTreeSet<_> = ledger
        .settlements
        .iter()
        .map(|(id, of)| (of.key, *id, of.request))
        .collect();
    broken.unless(by_key == by_settlement, Law::OneSettlement);
}

/// Checks that executed approvals and their settlements refer to each other.
fn approvals(ledger: &Ledger, broken: &mut Broken) {
    let mut executed: Vec<_> = ledger
        .approvals
        .iter()
        .filter_map(|(id, approval)| match approval.ruling {
            Ruling::Executed(settlement) => Some((*id, settlement)),
            _ => None,
        })
        .collect();
    let mut carrying: Vec<_> = ledger
        .settlements
        .iter()
        .filter_map(|(id, of)| Some(((of.request, of.approval?), *id)))
        .collect();
    executed.sort_unstable();
    carrying.sort_unstable();
    broken.unless(executed == carrying, Law::Approval);
}

/// Returns the invariants that a write violates. `floor` has the versions that completed updates stored.
pub fn of_change(before: &Ledger, after: &Ledger, write: &Write, floor: Floor) -> Broken {
    let mut broken = Broken::default();
    for (scope, is) in &after.windows {
        let Some(was) = before.windows.get(scope) else { continue };
        broken.unless(is.watermark >= was.watermark, Law::Horizon);
        let added = is.entries.iter().filter(|entry| !was.entries.contains(entry));
        for entry in added {
            broken.unless(is.watermark.is_none_or(|cleared| entry.at > cleared), Law::Horizon);
        }
    }
    for (id, was) in &before.settlements {
        let Some(is) = after.settlements.get(id) else {
            broken.unless(false, Law::Moves);
            continue;
        };
        let terms = |of: &crate::ledger::Settlement| {
            (
                of.key,
                of.request,
                of.approval,
                of.amount,
                of.at,
                of.scopes.clone(),
                of.payout_to,
            )
        };
        broken.unless(terms(was) == terms(is), Law::Moves);
        let moves = match (was.state, is.state) {
            (from, to) if from == to => true,
            (State::Authorized, State::Confirmed { .. }) => {
                matches!(write, Write::Confirm { .. } | Write::ConfirmClaimed { .. })
            }
            (State::Authorized, State::Expired) => matches!(write, Write::Release { .. }),
            (State::Expired, State::Confirmed { .. }) => matches!(write, Write::ConfirmReleased { .. }),
            (State::Confirmed { .. }, State::Authorized) => matches!(write, Write::Revert { .. }),
            (State::Confirmed { tx: was, .. }, State::Confirmed { tx: is, .. }) => was == is,
            _ => false,
        };
        broken.unless(moves, Law::Moves);
    }
    for (key, was) in &before.keys {
        let same = after.keys.get(key) == Some(was);
        broken.unless(same || matches!(was, Record::Escalated { .. }), Law::OneSettlement);
    }
    for (id, was) in &before.approvals {
        let same = after.approvals.get(id).is_some_and(|is| is.ruling == was.ruling);
        broken.unless(
            same || !matches!(was.ruling, Ruling::Executed(_) | Ruling::Rejected),
            Law::Approval,
        );
    }
    match write {
        Write::Reserve(of) => reserved(before, after, of, floor, &mut broken),
        Write::Revert { .. } => broken.unless(before.windows == after.windows, Law::Revert),
        Write::Rule { approval, by, .. } => {
            let owner = before.approvals.get(approval).map(|approval| approval.owner);
            broken.unless(owner == Some(*by), Law::Approval);
        }
        _ => {}
    }
    broken
}

fn reserved(before: &Ledger, after: &Ledger, of: &Reservation, floor: Floor, broken: &mut Broken) {
    broken.unless(of.agent >= floor.agent, Law::Stamps);
    for charge in &of.charges {
        if charge.scope == Scope::Day {
            broken.unless(charge.stamp >= floor.policy, Law::Stamps);
        }
        broken.unless(most_within(after, charge.scope, of.at) <= charge.cap, Law::Cap);
    }
    if let Some(number) = of.approval {
        let in_time = before
            .approvals
            .get(&(of.request, number))
            .is_some_and(|approval| approval.ruling == Ruling::Approved && of.at < approval.ends);
        broken.unless(in_time, Law::Approval);
    }
}

/// Returns the largest sum of payments within a period that has the window's length and includes `at`. Evicted payments
/// count, but not payments that were confirmed after their release.
fn most_within(ledger: &Ledger, scope: Scope, at: Tick) -> i8 {
    let counted: Vec<Entry> = ledger
        .settlements
        .iter()
        .filter(|(_, of)| of.state != State::Expired && of.counted_at == of.at && of.scopes.contains(&scope))
        .map(|(id, of)| Entry {
            at: of.at,
            settlement: *id,
            amount: of.amount,
        })
        .collect();
    let length = scope.length();
    let until = at..at + length;
    let sums = until.map(|until| {
        let within = counted
            .iter()
            .filter(|entry| entry.at <= until && entry.at > until - length);
        within.map(|entry| entry.amount).sum()
    });
    sums.max().unwrap_or(0)
}
