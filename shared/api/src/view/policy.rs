//! The JSON of a spend policy, the same for agents and people.

use purser_domain::SpendPolicy;
use serde::Serialize;
use utoipa::ToSchema;

/// Caps and scopes (`docs/spec.md` §2.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SpendPolicy)]
pub struct PolicyView {
    /// Cap per call, in micro-units.
    pub max_per_call_units: u64,
    /// The cap on the amount authorized in the last 24 hours.
    pub max_per_day_units: u64,
    /// A person must approve calls above this amount.
    pub require_approval_above_units: u64,
    /// Null: every operation of the service.
    #[schema(required)]
    pub enabled_operations: Option<Vec<String>>,
    /// The hosts that scrape and crawl operations may fetch.
    pub allowed_domains: Vec<String>,
}

impl From<&SpendPolicy> for PolicyView {
    fn from(policy: &SpendPolicy) -> Self {
        let operations = policy.enabled_operations.as_ref();
        Self {
            max_per_call_units: policy.max_per_call.units(),
            max_per_day_units: policy.max_per_day.units(),
            require_approval_above_units: policy.require_approval_above.units(),
            enabled_operations: operations.map(|slugs| slugs.iter().map(ToString::to_string).collect()),
            allowed_domains: policy.allowed_domains.iter().map(ToString::to_string).collect(),
        }
    }
}
