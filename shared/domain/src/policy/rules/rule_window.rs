//! The window of a budget or a count limit.

use super::{duration_error, is_selection_subset};
use crate::{
    Category, Duration, KeyId, RuleScope, ServiceSlug, ValidationError, WindowPeriod, catalog::service::named,
    evidence::document::fields,
};

/// The window of a budget or a count limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleWindow {
    /// The services whose payments count. `None` means all services.
    pub services: Option<Vec<ServiceSlug>>,
    /// The services' categories at the time of the payment; `None` for all categories.
    pub categories: Option<Vec<Category>>,
    /// The agent's keys whose payments count, also after a key is revoked or expires; `None` for all keys.
    pub keys: Option<Vec<KeyId>>,
    /// Whether the payments to each payee count alone, each up to the limit. An update can't change this.
    pub per_payee: bool,
    /// How long an authorized payment counts toward the limit.
    pub period: WindowPeriod,
    /// What the rule does with a payment beyond the limit. Approved payments also count, so the used part may exceed
    /// the limit.
    pub action: LimitAction,
}

fields! {
    RuleWindow {
        services: "services" optional,
        categories: "categories" optional,
        keys: "keys" optional,
        per_payee: "per_payee" unless(false),
        period: part,
        action: "action" unless(LimitAction::Block),
    }
}

/// Creates a rolling window that counts the payments to all services, and blocks payments beyond the limit.
impl From<Duration> for RuleWindow {
    fn from(duration: Duration) -> Self {
        Self {
            services: None,
            categories: None,
            keys: None,
            per_payee: false,
            period: WindowPeriod::Rolling(duration),
            action: LimitAction::Block,
        }
    }
}

impl RuleWindow {
    pub(super) fn scope(&self) -> RuleScope<'_> {
        RuleScope {
            services: self.services.as_deref(),
            categories: self.categories.as_deref(),
            keys: self.keys.as_deref(),
            per_payee: self.per_payee,
        }
    }

    /// Returns whether the window counts every payment that `before` counts, and the action is at least as strict.
    pub(super) fn is_as_strict_as(&self, before: &Self) -> bool {
        is_selection_subset(before.services.as_deref(), self.services.as_deref())
            && is_selection_subset(before.categories.as_deref(), self.categories.as_deref())
            && is_selection_subset(before.keys.as_deref(), self.keys.as_deref())
            && (before.per_payee || !self.per_payee)
            && (self.period == before.period || self.period.covers(before.period))
            && self.action.is_as_strict_as(before.action)
    }

    /// Returns an error if a rolling window is shorter than `min_duration`, or too long.
    pub(super) fn duration_error(&self, min_duration: Duration) -> Option<ValidationError> {
        duration_error("/window_seconds", self.period.duration()?, min_duration)
    }
}

named! {
    /// The action of a rule for a payment beyond the limit.
    LimitAction {
        /// The payment is denied.
        Block = "block",
        /// The payment needs an approval.
        Ask = "ask",
    }
}

impl LimitAction {
    pub(super) const fn is_as_strict_as(self, before: Self) -> bool {
        matches!((before, self), (Self::Ask, _) | (Self::Block, Self::Block))
    }
}

/// The maximum window of a rule: 31 days.
pub const MAX_BUDGET_WINDOW: Duration = Duration::from_secs_u32(31 * 86_400);
