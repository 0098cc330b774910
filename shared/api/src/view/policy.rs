//! The JSON of a spend policy, for agents and users.

use crate::RaiseView;
use purser_domain::{LimitIncrease, SpendPolicy, Timestamp};

purser_macros::views! {
    /// An agent's spend policy for one service.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PolicyView as SpendPolicy {
        /// Creates the view of an agent's policy at this time. `owner` is the agent's owner.
        pub fn from_policy(policy: &SpendPolicy, owner: &str, at: Timestamp);
        let increases = policy.active_increases(owner, at).map(LimitIncrease::temporary_caps);
        let operations = policy.enabled_operations.as_ref();

        /// The cap per call, in micro-units.
        pub max_per_call_units: u64 = policy.max_per_call.units(),
        /// The cap on the amount authorized in the last 24 hours, in micro-units.
        pub max_per_day_units: u64 = policy.max_per_day.units(),
        /// Calls above this amount, in micro-units, need an approval.
        pub require_approval_above_units: u64 = policy.require_approval_above.units(),
        /// The slugs of the operations that the agent may call; null for every operation of the service.
        pub enabled_operations: Option<Vec<String>> =
            operations.map(|slugs| slugs.iter().map(ToString::to_string).collect()),
        /// The hosts that scrape and crawl operations may fetch.
        pub allowed_domains: Vec<String> = policy.allowed_domains.iter().map(ToString::to_string).collect(),
        /// The higher caps that apply now; absent without a temporary limit increase.
        #[omit_none]
        pub raised_caps: Option<RaiseView> = RaiseView::from_increases(increases),
    }
}
