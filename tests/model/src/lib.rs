//! A model of the protocol, checked exhaustively within bounds by `stateright`.
//!
//! The simulation (`tests/sim`) runs the real functions through thousands of schedules; this model looks at every
//! interleaving of a few processes, with torn reads, skewed clocks, lost answers, crashes at any step, and writes that
//! are made at any later time. It is in Rust rather than TLA+, so that the same transitions are replayed against the
//! real store (`tests/traces.rs`), and nothing but cargo is needed.
//!
//! **Transitions.** [`ledger::Write`] has one variant for each transaction or conditional write, with its conditions and
//! its effect. [`ledger::IMPLEMENTATIONS`] names the function of each.
//!
//! **Models.** The product of all processes is too big, so there are seven models over the same transitions, and
//! [`scenarios`] has the bounds of each:
//!
//! | Model | Processes | Laws |
//! |---|---|---|
//! | [`reserve`] | authorize; edits, freezes, rulings, evictions | 1 to 6, 12, 15, 16, 19 |
//! | [`settle`] | complete, reconcile with its watch, authorize; two endpoints over a tree of blocks | 1, 2, 4, 7 to 10, 15, 18 |
//! | [`payout`] | payouts, edits of the address; ends and reverts on chain, a handover, a freeze | 5, 11, 15, 16 |
//! | [`handover`] | offers, acceptances, edits, questions, rulings | 6, 17 |
//! | [`usage`] | batches of records, doubled, repeated and cut off | 13 |
//! | [`fairness`] | runs of reconcile over the holds of two tenants | 14 |
//! | [`freezes`] | operators' freezes of one target, by token and from browsers | 20 |
//!
//! [`law::Law`] has their words.
//!
//! **Why the split loses nothing.** Two models matter to each other only by rows that both write.
//!
//! - Agents share no row but the operators' freeze, which decisions only read, and the claims, for which [`settle`] has
//!   two settlements. So one agent is enough, and one window of each kind.
//! - [`reserve`] and [`settle`] share windows and settlements. What `settle` does to a window is a release, and an entry
//!   that is added late; `settle` has a reservation and an eviction beside them, with every condition that a reservation
//!   makes on the totals. Its other conditions (stamps, key, approval) are on rows that no process of `settle` writes.
//! - [`payout`] shares settlements with `settle`, whose moves it makes at any time, and the owner with [`handover`]. A
//!   payout counts in no window.
//! - [`handover`] shares the agent's record with the edits of `reserve`, by its version alone.
//! - [`freezes`] is about who may write the operators' freeze, which the others only read or write whole.
//! - [`usage`] only reads what the others have written, and [`fairness`] is about order, not about state.
//!
//! **What is left out.** The windows' `ver`, which only confirms refusals; the limit of waiting questions and the budget
//! of a length that changes (`shared/store/tests`); signatures and nonces, beyond that a nonce is its settlement's; and
//! that each confirmation is looked at again. Whoever confirms by an endpoint that is stuck on a fork for
//! `WATCH_CONFIRMATIONS` blocks confirms in a block that was looked at before: there the guarantees end.

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

/// A property for each law: no reachable state breaks it. Every state has the laws that it, or a step to it, breaks.
macro_rules! laws {
    ($($law:ident),+ $(,)?) => {
        /// The laws that this model checks.
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
    /// The broken laws, each with the steps that break it, and what was never reached.
    pub problems: Vec<(&'static str, String)>,
}

/// Looks at every state of a model; with a law, until that is broken.
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
