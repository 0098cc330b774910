//! The usage table: the journal with its sums, the versions of what decisions are based on, the open work of publishing
//! events, and the attested payees. Only the function `events` and an operator's rebuild write it, except for backtests
//! and shadows, which `people` writes. Decisions read only the attested payees.
//!
//! | file | contents |
//! |---|---|
//! | `journal.rs` | the entries of the journal, and their lists |
//! | `fold.rs` | folds changes of the ledger and the decisions into the journal and its sums |
//! | `day.rs` | the sums of a day |
//! | `brakes.rs` | the sums that anomaly brakes judge |
//! | `rebuild.rs` | computes days again from the ledger and the decisions |
//! | `lag.rs` | how far the journal is behind |
//! | `reminder.rs`, `reminders.rs` | reminders, and quarantined changes |
//! | `versions.rs` | the versions of agents, policies and catalog entries |
//! | `backtests.rs` | the backtests that run in the background, and their results |
//! | `backtest.rs` | reads what the decisions of a backtest were based on |
//! | `shadows.rs` | the limits that judge an agent's decisions without effect |
//! | `attested.rs` | the attested payees |
//! | `key.rs` | the keys |

mod attested;
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
mod shadows;
pub(crate) mod table;
pub(crate) mod versions;
