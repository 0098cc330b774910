//! The JSON of a spend policy, for agents and users.

use crate::RaiseView;
use purser_domain::{SpendPolicy, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// An agent's spend policy for one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SpendPolicy)]
pub struct PolicyView {
    /// The cap per call, in micro-units.
    pub max_per_call_units: u64,
    /// The cap on the amount authorized in the last 24 hours, in micro-units.
    pub max_per_day_units: u64,
    /// Calls above this amount, in micro-units, need an approval.
    pub require_approval_above_units: u64,
    /// The slugs of the operations that the agent may call; null for every operation of the service.
    #[schema(required)]
    pub enabled_operations: Option<Vec<String>>,
    /// The hosts that scrape and crawl operations may fetch.
    pub allowed_domains: Vec<String>,
    /// The higher caps that apply now; absent without a temporary limit increase.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub raised_caps: Option<RaiseView>,
}

impl PolicyView {
    /// Creates the view of an agent's policy at this time. `owner` is the agent's owner.
    pub fn from_policy(policy: &SpendPolicy, owner: &str, at: Timestamp) -> Self {
        let increase = policy.raise.as_ref().filter(|increase| increase.applies_at(owner, at));
        let operations = policy.enabled_operations.as_ref();
        Self {
            max_per_call_units: policy.max_per_call.units(),
            max_per_day_units: policy.max_per_day.units(),
            require_approval_above_units: policy.require_approval_above.units(),
            enabled_operations: operations.map(|slugs| slugs.iter().map(ToString::to_string).collect()),
            allowed_domains: policy.allowed_domains.iter().map(ToString::to_string).collect(),
            raised_caps: increase.map(|increase| RaiseView::from(increase.temporary_caps())),
        }
    }
}
