//! A model of the protocol, checked exhaustively within bounds by `stateright`.
//!
//! The simulation (`tests/sim`) runs the real functions through thousands of schedules. This model checks every
//! interleaving of a few processes, with torn reads, skewed clocks, lost responses, crashes at any step, and writes that
//! are applied at any later time. The model is written in Rust instead of TLA+, so that `tests/traces.rs` can
//! replay the same transitions against the real store, and so that cargo is the only tool.
//!
//! **Transitions.** [`ledger::Write`] has a variant for each transaction or conditional write.
//! [`ledger::IMPLEMENTATIONS`] names the functions that implement them.
//!
//! **Models.** A model of all processes would be too big. Instead, seven models use the same transitions, with the bounds
//! in [`scenarios`]:
//!
//! | Model | Processes | Invariants |
//! |---|---|---|
//! | [`reserve`] | authorize; updates, freezes, approval decisions, evictions | 1 to 6, 12, 15, 16, 19 |
//! | [`settle`] | complete, reconcile, authorize; two endpoints over a tree of blocks | 1, 2, 4, 7 to 10, 15, 18 |
//! | [`payout`] | withdrawals, updates of the address; confirmations, releases and reverts, an ownership transfer, a freeze | 5, 11, 15, 16 |
//! | [`handover`] | offers to transfer the agent, acceptances, updates, approval requests and decisions | 6, 17 |
//! | [`usage`] | batches of records: duplicated, repeated and interrupted | 13 |
//! | [`fairness`] | runs of reconcile over the authorized settlements of two tenants | 14 |
//! | [`freezes`] | operators' freezes of one target, by token and from browsers | 20 |
//!
//! [`law::Law`] has the texts of the invariants.
//!
//! **Why separate models are enough.** A model affects another model only through rows that both models write.
//!
//! - Agents share only the claims and the operators' freeze, which decisions only read. To check the claims, [`settle`]
//!   has two settlements. Therefore one agent is enough, with one window of each kind.
//! - [`reserve`] and [`settle`] share windows and settlements. `settle` changes a window by a release, or by a
//!   payment that is confirmed after its release. Therefore `settle` also has a reservation and an eviction, with all
//!   conditions on the totals. The other conditions of a reservation (versions, key, approval) concern rows that no
//!   process of `settle` writes.
//! - [`payout`] shares settlements with `settle`, and applies the changes of `settle` at any time. [`payout`] shares the
//!   owner with [`handover`]. A withdrawal counts in no window.
//! - [`handover`] shares the version of the agent's record with the updates of `reserve`.
//! - [`freezes`] checks who may write the operators' freeze. The other models only read the freeze, or replace it.
//! - [`usage`] only reads what the other models write, and [`fairness`] checks the order of operations, not their effects.
//!
//! **What is left out.**
//!
//! - The attribute `ver` of a window, which is only used to confirm denials.
//! - The limit on pending approvals, and budgets whose duration changes (`shared/store/tests` has both).
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

/// Defines a `stateright` property for each invariant: no reachable state violates the invariant.
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

/// The result of an exhaustive check.
#[derive(Debug)]
pub struct CheckResult {
    /// The number of reachable states.
    pub states: usize,
    /// The violated invariants, each with the steps to the violation, and the expected outcomes that no state has.
    pub problems: Vec<(&'static str, String)>,
}

/// Checks every state of a model. Stops as soon as the invariant `until` is violated.
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

/// Formats the steps of a path, and the last state.
fn steps<S: Clone + Debug + PartialEq, A: Debug + PartialEq>(path: Path<S, A>) -> String {
    let (states, actions): (Vec<S>, Vec<Option<A>>) = path.into_vec().into_iter().unzip();
    let actions: Vec<String> = actions.iter().flatten().map(|action| format!("{action:?}")).collect();
    format!("{}\n{:#?}", actions.join("\n"), states.last())
}
