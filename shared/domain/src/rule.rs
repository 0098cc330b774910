//! Rules that hold for an agent over all its services (`docs/spec.md` §2.7, §7 `policy_blocked`).

use crate::{Address, Amount, Category, Duration, RuleId, ServiceSlug};

/// One rule of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule's UUID.
    pub id: RuleId,
    /// Counts the edits of this rule; a budget's reservations are conditional on it.
    pub version: u64,
    /// What it says.
    pub kind: RuleKind,
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// Nothing is bought in these categories.
    CategoryBlock {
        /// The blocked categories.
        categories: Vec<Category>,
    },
    /// Only these vendors are paid. An empty list pays nobody.
    VendorAllowlist {
        /// The vendors.
        vendors: Vec<Vendor>,
    },
    /// At most `limit` within every window of `window`, over all services.
    BudgetLimit {
        /// The budget.
        limit: Amount,
        /// How long an authorization counts: [`BUDGET_WINDOW_MIN`] to [`BUDGET_WINDOW_MAX`].
        window: Duration,
    },
    /// A person decides first, where every given condition holds; without any, always.
    ApprovalRequired {
        /// Only for these services.
        services: Option<Vec<ServiceSlug>>,
        /// Only in these categories.
        categories: Option<Vec<Category>>,
        /// Only above this amount.
        above: Option<Amount>,
    },
}

/// The shortest window of a budget: one hour.
pub const BUDGET_WINDOW_MIN: Duration = Duration::from_secs_u32(3_600);

/// The longest window of a budget: 31 days.
pub const BUDGET_WINDOW_MAX: Duration = Duration::from_secs_u32(31 * 86_400);

/// Who may be paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// A service, whatever wallet it names.
    Service(ServiceSlug),
    /// A wallet, whatever service names it.
    Wallet(Address),
}
