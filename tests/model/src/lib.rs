//! A model of the protocol, checked exhaustively within bounds by `stateright`.
//!
//! The simulation (`tests/sim`) runs the real functions through thousands of schedules. This model checks every
//! interleaving of a few processes, with torn reads, skewed clocks, lost responses, crashes at any step, and writes that
//! are applied at any later time. It is written in Rust rather than TLA+, so that the same transitions can be replayed
//! against the real store (`tests/traces.rs`), and so that no other tool than cargo is needed.
//!
//! **Transitions.** [`ledger::Write`] has a variant for each transaction or conditional write.
//! [`ledger::IMPLEMENTATIONS`] names the functions that implement them.
//!
//! **Models.** A model of all processes would be too big. Instead, seven models use the same transitions, with the bounds
//! in [`scenarios`]:
//!
//! | Model | Processes | Invariants |
//! |---|---|---|
//! | [`reserve`] | authorize; edits, freezes, approval decisions, evictions | 1 to 6, 12, 15, 16, 19 |
//! | [`settle`] | complete, reconcile, authorize; two endpoints over a tree of blocks | 1, 2, 4, 7 to 10, 15, 18 |
//! | [`payout`] | withdrawals, edits of the address; confirmations, releases and reverts, a transfer of ownership, a freeze | 5, 11, 15, 16 |
//! | [`handover`] | offers to transfer the agent, acceptances, edits, approval requests and decisions | 6, 17 |
//! | [`usage`] | batches of records: duplicated, repeated and interrupted | 13 |
//! | [`fairness`] | runs of reconcile over the holds of two tenants | 14 |
//! | [`freezes`] | operators' freezes of one target, by token and from browsers | 20 |
//!
//! [`law::Law`] has the texts of the invariants.
//!
//! **Why separate models are enough.** A model affects another one only through rows that both write.
//!
//! - Agents share only the claims and the operators' freeze, which decisions only read. [`settle`] has two settlements
//!   for the claims. So one agent is enough, with one window of each kind.
//! - [`reserve`] and [`settle`] share windows and settlements. `settle` changes a window by a release, or by an entry that
//!   is added late. So `settle` also has a reservation and an eviction, with all the conditions on the totals. The other
//!   conditions of a reservation (versions, key, approval) concern rows that no process of `settle` writes.
//! - [`payout`] shares settlements with `settle`, whose changes it applies at any time, and the owner with [`handover`].
//!   A withdrawal counts in no window.
//! - [`handover`] shares the version of the agent's record with the edits of `reserve`.
//! - [`freezes`] checks who may write the operators' freeze. The other models only read the freeze, or replace it.
//! - [`usage`] only reads what the other models write, and [`fairness`] checks the order of operations, not their effects.
//!
//! **What is left out.**
//!
//! - The `ver` of a window, which only confirms refusals.
//! - The limit on pending approvals, and budgets whose length changes (`shared/store/tests` has both).
//! - Signatures and nonces, except that the nonce belongs to the settlement.
//! - The second check of each confirmation. If an endpoint is stuck on a fork for `WATCH_CONFIRMATIONS` blocks, a payment
//!   may be confirmed in a block that was already checked for the last time. The guarantees don't cover this case.

pub mod fairness;
pub mod flaw;
pub mod freezes;
pub mod handover;
pub mod law;
pub mod ledger;
pub mod payout;
pub mod reserve;
pub mod scenarios;
pub mod settle;
pub mod usage;
pub mod world;

use law::Law;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};
use std::{fmt::Debug, hash::Hash};

/// A property for each invariant: no reachable state violates it. Each state contains the invariants that it, or a step
/// that leads to it, violates.
macro_rules! laws {
    ($($law:ident),+ $(,)?) => {
        /// The invariants that this model checks.
        pub const LAWS: &[$crate::law::Law] = &[$($crate::law::Law::$law),+];

        fn laws<M: stateright::Model<State = State>>() -> Vec<stateright::Property<M>> {
            vec![$(stateright::Property::always($crate::law::Law::$law.words(), |_, state: &State| {
                !state.world.broken.has($crate::law::Law::$law)
            })),+]
        }
    };
}
pub(crate) use laws;

/// The result of a check.
#[derive(Debug)]
pub struct CheckResult {
    /// The number of states.
    pub states: usize,
    /// The violated invariants, each with the steps that violate it, and the expected outcomes that no state has
    /// reached.
    pub problems: Vec<(&'static str, String)>,
}

/// Checks every state of a model. With an invariant, stops as soon as that is violated.
pub fn check<M>(model: M, until: Option<Law>) -> CheckResult
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Eq + Hash + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let builder = model.checker().threads(2);
    let builder = match until {
        Some(law) => builder.finish_when(HasDiscoveries::AnyOf([law.words()].into())),
        None => builder,
    };
    let checker = builder.spawn_bfs().join();
    let mut problems = Vec::new();
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        match (property.expectation, discoveries.get(property.name)) {
            (Expectation::Sometimes, None) if until.is_none() => {
                problems.push((property.name, "is never reached".to_owned()));
            }
            (Expectation::Always, Some(path)) => problems.push((property.name, steps(path.clone()))),
            _ => {}
        }
    }
    CheckResult {
        states: checker.unique_state_count(),
        problems,
    }
}

/// The steps of a path, and its last state.
fn steps<S: Clone + Debug + PartialEq, A: Debug + PartialEq>(path: Path<S, A>) -> String {
    let (states, actions): (Vec<S>, Vec<Option<A>>) = path.into_vec().into_iter().unzip();
    let actions: Vec<String> = actions.iter().flatten().map(|action| format!("{action:?}")).collect();
    format!("{}\n{:#?}", actions.join("\n"), states.last())
}
