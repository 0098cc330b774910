//! What an agent may spend on one service (`docs/spec.md` §2.6).

use crate::{Amount, DomainPattern, OperationSlug, ServiceId};

/// Caps and scopes for one agent and one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendPolicy {
    /// Cap per call.
    pub max_per_call: Amount,
    /// Cap on everything authorized less than 24 hours ago.
    pub max_per_day: Amount,
    /// Calls above this go to a person first.
    pub require_approval_above: Amount,
    /// `None`: every operation of the service.
    pub enabled_operations: Option<Vec<OperationSlug>>,
    /// Which hosts scrape and crawl operations may be pointed at.
    pub allowed_domains: Vec<DomainPattern>,
}

const fn units(units: u64) -> Amount {
    match Amount::from_units(units) {
        Some(amount) => amount,
        None => Amount::MAX,
    }
}

impl SpendPolicy {
    /// The column defaults of `docs/spec.md` §2.6, for a service enabled by hand.
    pub fn column_defaults() -> Self {
        Self {
            max_per_call: units(1_000_000),
            max_per_day: units(50_000_000),
            require_approval_above: units(10_000_000),
            enabled_operations: None,
            allowed_domains: vec![DomainPattern::any()],
        }
    }

    /// The permissive values of the curated catalog (`docs/spec.md` §2.6): in effect no limit, meant to be tightened.
    pub fn permissive() -> Self {
        let no_limit = units(10_000_000_000_000);
        Self {
            max_per_call: no_limit,
            max_per_day: no_limit,
            require_approval_above: no_limit,
            ..Self::column_defaults()
        }
    }

    /// Whether the operation is in scope. An operation that the catalog does not know is in no list.
    pub fn allows_operation(&self, operation: Option<&OperationSlug>) -> bool {
        match (&self.enabled_operations, operation) {
            (None, _) => true,
            (Some(enabled), Some(operation)) => enabled.contains(operation),
            (Some(_), None) => false,
        }
    }

    /// Whether every target is allowed, so that none needs to be named.
    pub fn allows_any_domain(&self) -> bool {
        self.allowed_domains.iter().any(DomainPattern::is_any)
    }
}

/// A service's record on an agent: the policy, and which edit of it this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledService {
    /// The service.
    pub service: ServiceId,
    /// Counts the edits. Every reservation is conditional on the version that it was judged by.
    pub version: u64,
    /// A disabled record keeps its policy for later, and refuses every call.
    pub enabled: bool,
    /// The caps and scopes.
    pub policy: SpendPolicy,
}
