//! The values that a comparison of limits tries in the search for a changed decision.

use crate::{Amount, Duration, KeyId, Timestamp};
use std::collections::BTreeSet;

/// The values at which two versions of the limits may decide differently.
#[derive(Default)]
pub(super) struct Boundaries {
    /// Limits for a single payment, such as per-call caps.
    pub(super) amounts: BTreeSet<Amount>,
    /// Limits for the sum of all payments within a window: daily caps and budgets.
    pub(super) sums: BTreeSet<Amount>,
    /// Limits for the number of payments in a window.
    pub(super) counts: BTreeSet<Amount>,
    /// Durations of windows and duplicate guards.
    pub(super) durations: BTreeSet<Duration>,
    /// The percentages by which a price may exceed the usual price, from `price_above_usual` rules.
    pub(super) percents: BTreeSet<u32>,
    /// Whether a changed rule depends on earlier calls.
    pub(super) compares_calls: bool,
    /// Whether a changed rule depends on known payees.
    pub(super) compares_payees: bool,
    /// Whether a changed rule depends on earlier prices.
    pub(super) compares_prices: bool,
    /// The ids of the agent keys that changed rules contain.
    pub(super) keys: Vec<KeyId>,
    /// Times at which the schedules before and after the update differ, and the ends of changed exceptions.
    pub(super) times: Vec<Timestamp>,
}
