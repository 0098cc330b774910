//! The usage table: the decision history with its sums, the versions of the inputs of decisions, backtests, shadow
//! policies, verified payees, and events that are not published yet. A decision about a payment reads only the verified
//! payees.
//!
//! | file | content |
//! |---|---|
//! | `journal.rs` | the entries of the decision history, and their lists |
//! | `fold.rs` | adds changes of the ledger and decisions tables to the decision history and its sums |
//! | `day.rs` | the sums of a day |
//! | `brakes.rs` | the sums that automatic freezes check |
//! | `rebuild.rs` | computes days again from the ledger and decisions tables |
//! | `lag.rs` | how far the decision history is behind |
//! | `reminder.rs`, `reminders.rs` | reminders, and quarantined changes |
//! | `versions.rs` | the versions of agents, policies and services |
//! | `backtests.rs` | the backtests that run in the background, and their results |
//! | `backtest.rs` | reads the inputs of a backtest's decisions |
//! | `shadows.rs` | the shadow policies of agents, which have no effect on payments |
//! | `attested.rs` | the verified payees |
//! | `key.rs` | the keys |

pub(crate) mod attested;
pub(crate) mod backtest;
pub(crate) mod backtests;
mod brakes;
pub(crate) mod day;
pub(crate) mod fold;
pub(crate) mod journal;
pub(crate) mod key;
pub(crate) mod lag;
pub(crate) mod rebuild;
pub(crate) mod reminder;
pub(crate) mod reminders;
pub(crate) mod shadows;
pub(crate) mod table;
pub(crate) mod versions;
