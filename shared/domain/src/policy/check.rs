//! The checks of a decision, their results, and the reasons of refusals.

use crate::{
    Address, Amount, ApprovalId, CallFacts, Category, DecisionResult, DomainPattern, Duration, Facts, Freeze,
    LimitAction, Operation, OperationSlug, ProviderRequest, RetryAt, RuleId, RuleKind, ServiceSlug, SpendPolicy,
    Timestamp, Unpayable, catalog::service::named,
};

/// The reason that a payment is refused, with the context that `docs/spec.md` §7 specifies for each slug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 403 `service_not_enabled`.
    ServiceNotEnabled {
        /// The service.
        service: ServiceSlug,
    },
    /// 403 `operation_not_enabled_for_agent`.
    OperationNotEnabled {
        /// The called operation or, if the service lists no such operation, the one that the request names.
        operation: Option<OperationSlug>,
        /// The operations in scope; `None` for all operations of the catalog.
        enabled: Option<Vec<OperationSlug>>,
        /// The call, if the service lists no operation for it.
        unlisted: Option<Box<UnlistedCall>>,
    },
    /// 403 `domain_not_allowed`.
    DomainNotAllowed {
        /// The target's host, as compared: the one that the request declares, or a different one in the call's own
        /// parameter.
        hostname: String,
        /// The allowlist.
        allowed: Vec<DomainPattern>,
    },
    /// 402 `amount_exceeds_max`.
    AmountExceedsMax {
        /// The provider's price.
        amount: Amount,
        /// The request's own limit.
        max_payment: Amount,
    },
    /// 402 `amount_exceeds_per_call_limit`.
    PerCallLimit {
        /// The provider's price.
        amount: Amount,
        /// The cap.
        max_per_call: Amount,
    },
    /// 403 `policy_blocked`.
    PolicyBlocked(Block),
    /// 402 `daily_spend_limit_exceeded`.
    DailyLimit {
        /// The amount that counts against the cap now.
        spend_today: Amount,
        /// The provider's price.
        amount: Amount,
        /// The cap.
        max_per_day: Amount,
        /// The time at which the same call fits.
        retry_at: RetryAt,
    },
    /// 402 `approval_required`.
    ApprovalRequired {
        /// The approval to wait for; `None` until it is created.
        approval: Option<ApprovalId>,
        /// The provider's price.
        amount: Amount,
        /// The policy's threshold.
        threshold: Amount,
        /// The rule that requires the approval, if the threshold does not.
        rule: Option<AskingRule>,
    },
    /// 402 `insufficient_usdc_balance`.
    InsufficientBalance {
        /// The wallet's balance.
        balance: Amount,
        /// The required amount.
        required: Amount,
        /// The wallet.
        wallet: Address,
    },
}

/// A call that its service does not list, and the listed operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedCall {
    /// The service.
    pub service: ServiceSlug,
    /// The method and the URL of the call, without its query.
    pub called: String,
    /// The method and the endpoint of some operations, starting with those at the call's path.
    pub listed: Vec<String>,
}

impl UnlistedCall {
    /// The maximum number of operations in an answer.
    const MOST: usize = 3;

    pub(super) fn of(facts: &CallFacts<'_>) -> Self {
        let ProviderRequest { method, url, .. } = facts.request;
        let operations = &facts.service.operations;
        let is_at_path = |operation: &&Operation| operation.endpoint.is_called_at(url);
        let here = operations.iter().filter(is_at_path);
        let elsewhere = operations.iter().filter(|operation| !is_at_path(operation));
        let mut called = url.clone();
        called.set_query(None);
        called.set_fragment(None);
        Self {
            service: facts.service.slug.clone(),
            called: format!("{method} {called}"),
            listed: here
                .chain(elsewhere)
                .take(Self::MOST)
                .map(|operation| format!("{} {}", operation.method, operation.endpoint))
                .collect(),
        }
    }
}

/// A rule that requires an approval for a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskingRule {
    /// The rule.
    pub id: RuleId,
    /// The amount above which it requires an approval; zero if it does not depend on the amount.
    pub above: Amount,
    /// The kind of the rule.
    pub kind: AskingKind,
}

named! {
    /// The kinds of rules that require an approval.
    AskingKind {
        /// [`RuleKind::ApprovalRequired`].
        ApprovalRequired = RuleKind::APPROVAL_REQUIRED,
        /// [`RuleKind::DuplicateGuard`].
        DuplicateGuard = RuleKind::DUPLICATE_GUARD,
        /// [`RuleKind::PriceAboveUsual`].
        PriceAboveUsual = RuleKind::PRICE_ABOVE_USUAL,
        /// [`RuleKind::NewPayee`].
        NewPayee = RuleKind::NEW_PAYEE,
    }
}

/// The reason for a `policy_blocked` answer: its `decision.reason` and `decision.rule_triggered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// The agent is frozen.
    AgentFrozen(Freeze),
    /// A category is blocked by a rule.
    Category(Category),
    /// An allowlist does not contain the vendor.
    Vendor(ServiceSlug),
    /// The catalog lists no price or payee for the operation.
    Unpayable(Unpayable),
    /// The offer pays a payee other than the operation's.
    PayeeNotInCatalog,
    /// The catalog has listed the operation's payee and price for too short a time.
    PayeeTooYoung {
        /// The time from which it may be paid.
        retry_at: Timestamp,
    },
    /// The offer pays the agent's own wallet.
    PayeeIsPayer,
    /// The offer is above the price that the catalog allows for the operation.
    PriceAboveCatalog {
        /// The operation's maximum or, without one, its fixed price.
        max: Amount,
    },
    /// A budget across all services is used up.
    Budget {
        /// The rule.
        rule: RuleId,
        /// The budget's limit.
        limit: Amount,
        /// The amount that counts against the limit now.
        used: Amount,
        /// The time at which the same call fits.
        retry_at: RetryAt,
    },
    /// The time is outside a rule's schedule.
    Schedule {
        /// The rule.
        rule: RuleId,
        /// The next time at which all schedules allow it.
        retry_at: RetryAt,
    },
    /// A rule's number of payments is used up.
    Count {
        /// The rule.
        rule: RuleId,
        /// The maximum number of payments.
        count: Amount,
        /// The number of payments that count now.
        used: Amount,
        /// The time at which the same call fits.
        retry_at: RetryAt,
    },
    /// The last payment was too short a time ago.
    Interval {
        /// The rule.
        rule: RuleId,
        /// The time between two payments.
        interval: Duration,
        /// The time at which the same call fits.
        retry_at: RetryAt,
    },
    /// The same call was paid a short time ago.
    Duplicate {
        /// The rule.
        rule: RuleId,
        /// The time within which the call is not repeated.
        within: Duration,
        /// The time from which it may be repeated.
        retry_at: Timestamp,
    },
    /// The price is too far above the usual one.
    PriceAboveUsual {
        /// The rule.
        rule: RuleId,
        /// The highest price that it allows.
        most: Amount,
    },
    /// A person rejected the approval.
    ApprovalRejected,
    /// The approval was not used in time.
    ApprovalExpired,
    /// The approval is for another request.
    ApprovalMismatch,
    /// The agent already has the maximum number of pending approvals.
    TooManyApprovals {
        /// The limit.
        limit: u32,
    },
}

impl Block {
    /// `decision.reason`.
    pub fn reason(&self) -> String {
        match self {
            Self::AgentFrozen(freeze) => freeze.reason().to_owned(),
            Self::Category(category) => format!("category_block:{}", category.name()),
            Self::Vendor(service) => format!("vendor_allowlist:{service}"),
            Self::Unpayable(unpayable) => format!("{}:{}", self.rule(), unpayable.name()),
            Self::PayeeNotInCatalog => "catalog_payee:pay_to_not_in_catalog".to_owned(),
            Self::PayeeTooYoung { .. } => "catalog_payee:pay_to_not_yet_accepted".to_owned(),
            Self::PayeeIsPayer => "catalog_payee:pay_to_is_own_wallet".to_owned(),
            Self::PriceAboveCatalog { .. } => "catalog_price:price_above_catalog_maximum".to_owned(),
            Self::Budget { rule, .. }
            | Self::Schedule { rule, .. }
            | Self::Count { rule, .. }
            | Self::Interval { rule, .. }
            | Self::Duplicate { rule, .. }
            | Self::PriceAboveUsual { rule, .. } => format!("{}:{rule}", self.rule()),
            Self::ApprovalRejected => "approval_rejected".to_owned(),
            Self::ApprovalExpired => "approval_expired".to_owned(),
            Self::ApprovalMismatch => "approval_request_mismatch".to_owned(),
            Self::TooManyApprovals { .. } => "too_many_open_approvals".to_owned(),
        }
    }

    /// `decision.rule_triggered`.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::AgentFrozen(_) => "agent_frozen",
            Self::Category(_) => RuleKind::CATEGORY_BLOCK,
            Self::Vendor(_) => RuleKind::VENDOR_ALLOWLIST,
            Self::Unpayable(_) => "catalog_payment",
            Self::PayeeNotInCatalog | Self::PayeeTooYoung { .. } | Self::PayeeIsPayer => "catalog_payee",
            Self::PriceAboveCatalog { .. } => "catalog_price",
            Self::Budget { .. } => RuleKind::BUDGET_LIMIT,
            Self::Schedule { .. } => RuleKind::SCHEDULE,
            Self::Count { .. } => RuleKind::COUNT_LIMIT,
            Self::Interval { .. } => RuleKind::MINIMUM_INTERVAL,
            Self::Duplicate { .. } => RuleKind::DUPLICATE_GUARD,
            Self::PriceAboveUsual { .. } => RuleKind::PRICE_ABOVE_USUAL,
            Self::ApprovalRejected | Self::ApprovalExpired | Self::ApprovalMismatch | Self::TooManyApprovals { .. } => {
                RuleKind::APPROVAL_REQUIRED
            }
        }
    }
}

impl Reason {
    /// The `error` slug.
    pub const fn slug(&self) -> &'static str {
        match self {
            Self::ServiceNotEnabled { .. } => "service_not_enabled",
            Self::OperationNotEnabled { .. } => "operation_not_enabled_for_agent",
            Self::DomainNotAllowed { .. } => "domain_not_allowed",
            Self::AmountExceedsMax { .. } => "amount_exceeds_max",
            Self::PerCallLimit { .. } => "amount_exceeds_per_call_limit",
            Self::PolicyBlocked(_) => "policy_blocked",
            Self::DailyLimit { .. } => "daily_spend_limit_exceeded",
            Self::ApprovalRequired { .. } => "approval_required",
            Self::InsufficientBalance { .. } => "insufficient_usdc_balance",
        }
    }

    /// `decision.reason`, and the `reason` of a preflight: the reason of a [`Block`], else the slug.
    pub fn text(&self) -> String {
        match self {
            Self::PolicyBlocked(block) => block.reason(),
            other => other.slug().to_owned(),
        }
    }

    /// `decision.rule_triggered`: the check or rule that refused the payment.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::ServiceNotEnabled { .. } => "service_enabled",
            Self::OperationNotEnabled { .. } => "enabled_operations",
            Self::DomainNotAllowed { .. } => "allowed_domains",
            Self::AmountExceedsMax { .. } => "max_payment_units",
            Self::PerCallLimit { .. } => "max_per_call_units",
            Self::PolicyBlocked(block) => block.rule(),
            Self::DailyLimit { .. } => "max_per_day_units",
            Self::ApprovalRequired { rule: None, .. } => "require_approval_above_units",
            Self::ApprovalRequired { rule: Some(rule), .. } => rule.kind.name(),
            Self::InsufficientBalance { .. } => "usdc_balance",
        }
    }

    /// The time at which the same call fits; `None` for refusals that don't end with time.
    pub const fn retry_at(&self) -> Option<RetryAt> {
        match self {
            Self::DailyLimit { retry_at, .. }
            | Self::PolicyBlocked(
                Block::Budget { retry_at, .. }
                | Block::Schedule { retry_at, .. }
                | Block::Count { retry_at, .. }
                | Block::Interval { retry_at, .. },
            ) => Some(*retry_at),
            Self::PolicyBlocked(Block::PayeeTooYoung { retry_at } | Block::Duplicate { retry_at, .. }) => {
                Some(RetryAt::At(*retry_at))
            }
            Self::ServiceNotEnabled { .. }
            | Self::OperationNotEnabled { .. }
            | Self::DomainNotAllowed { .. }
            | Self::AmountExceedsMax { .. }
            | Self::PerCallLimit { .. }
            | Self::PolicyBlocked(_)
            | Self::ApprovalRequired { .. }
            | Self::InsufficientBalance { .. } => None,
        }
    }

    /// `decision.result`.
    pub const fn result(&self) -> DecisionResult {
        match self {
            Self::ApprovalRequired { .. } => DecisionResult::Escalate,
            Self::ServiceNotEnabled { .. }
            | Self::OperationNotEnabled { .. }
            | Self::DomainNotAllowed { .. }
            | Self::AmountExceedsMax { .. }
            | Self::PerCallLimit { .. }
            | Self::PolicyBlocked(_)
            | Self::DailyLimit { .. }
            | Self::InsufficientBalance { .. } => DecisionResult::Block,
        }
    }
}

named! {
    /// The checks, in the order in which they are made.
    CheckName {
        /// The agent has a policy for the service, and the service is enabled.
        ServiceEnabled = "service_enabled",
        /// The agent is not frozen.
        AgentActive = "agent_active",
        /// The operation is in scope.
        OperationEnabled = "enabled_operations",
        /// The target's host is allowed.
        Domain = "allowed_domains",
        /// The price is within the request's own limit.
        MaxPayment = "max_payment_units",
        /// The price is within the cap per call.
        PerCall = "max_per_call_units",
        /// The category is not blocked.
        Category = RuleKind::CATEGORY_BLOCK,
        /// The vendor is allowed, and the payee and the price match the catalog.
        Vendor = RuleKind::VENDOR_ALLOWLIST,
        /// The time is within every schedule. Like the checks of the other rules about how an agent pays, it is only
        /// made if the agent has such a rule.
        Schedule = RuleKind::SCHEDULE,
        /// The amount fits every budget.
        Budget = RuleKind::BUDGET_LIMIT,
        /// Another payment fits every count limit.
        Count = RuleKind::COUNT_LIMIT,
        /// The last payment is long enough ago.
        Interval = RuleKind::MINIMUM_INTERVAL,
        /// The amount fits the day's window.
        Day = "max_per_day_units",
        /// The same call was not paid a short time ago.
        Duplicate = RuleKind::DUPLICATE_GUARD,
        /// The price is not too far above the usual one.
        Price = RuleKind::PRICE_ABOVE_USUAL,
        /// The payee was paid before.
        Payee = RuleKind::NEW_PAYEE,
        /// No approval is needed.
        Approval = "approval",
        /// The wallet's balance is sufficient.
        Balance = "usdc_balance",
    }

    /// The result of a check.
    CheckOutcome {
        /// The check passed.
        Passed = "passed",
        /// The check failed.
        Failed = "failed",
        /// The check failed, and an approval waives it.
        Waived = "lifted",
        /// The check could not be made: there is no policy to check against, or the balance was not read.
        Unknown = "unknown",
    }
}

impl CheckName {
    /// Whether every evaluation makes this check, and not only one with a rule of its kind.
    pub const fn is_always_made(self) -> bool {
        match self {
            Self::Schedule | Self::Count | Self::Interval | Self::Duplicate | Self::Price | Self::Payee => false,
            Self::ServiceEnabled
            | Self::AgentActive
            | Self::OperationEnabled
            | Self::Domain
            | Self::MaxPayment
            | Self::PerCall
            | Self::Category
            | Self::Vendor
            | Self::Budget
            | Self::Day
            | Self::Approval
            | Self::Balance => true,
        }
    }
}

/// One check's result, with its numbers if it has any: micro-units, except of the checks that count payments
/// (`count_limit`, `minimum_interval`) or seconds (`duplicate_guard`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The check.
    pub name: CheckName,
    /// Its result.
    pub outcome: CheckOutcome,
    /// The limit.
    pub limit: Option<Amount>,
    /// The used part of the limit, not including this call.
    pub used: Option<Amount>,
    /// The remaining part of the limit before this call.
    pub remaining: Option<Amount>,
}

/// Why a check failed.
pub(super) enum Finding {
    /// The payment is refused, or a person is asked.
    Reason(Reason),
    /// The request lacks the target that the policy needs.
    TargetMissing,
}

impl From<Reason> for Finding {
    fn from(reason: Reason) -> Self {
        Self::Reason(reason)
    }
}

impl From<Block> for Finding {
    fn from(block: Block) -> Self {
        Self::Reason(Reason::PolicyBlocked(block))
    }
}

impl Check {
    pub(super) const fn without_numbers(name: CheckName, outcome: CheckOutcome) -> Self {
        Self {
            name,
            outcome,
            limit: None,
            used: None,
            remaining: None,
        }
    }

    pub(super) const fn passed(name: CheckName) -> Self {
        Self::without_numbers(name, CheckOutcome::Passed)
    }

    pub(super) const fn unknown(name: CheckName) -> Self {
        Self::without_numbers(name, CheckOutcome::Unknown)
    }
}

/// The first failure of the checks so far. Only its reason is built, since building one may copy.
#[derive(Default)]
pub(super) struct FirstFailure {
    pub(super) first: Option<Finding>,
    /// The first rule about how an agent pays that asks a person.
    asking: Option<AskingRule>,
}

impl FirstFailure {
    /// Records whether a check passed.
    pub(super) fn note(&mut self, name: CheckName, holds: bool, finding: impl FnOnce() -> Finding) -> Check {
        if holds {
            return Check::passed(name);
        }
        if self.first.is_none() {
            self.first = Some(finding());
        }
        Check::without_numbers(name, CheckOutcome::Failed)
    }

    /// Records a payment beyond a limit: as a refusal, or as a question to a person.
    pub(super) fn limit(
        &mut self,
        name: CheckName,
        action: LimitAction,
        facts: &Facts<'_>,
        asking: AskingRule,
        block: impl FnOnce() -> Block,
    ) -> Check {
        match action {
            LimitAction::Block => self.note(name, false, || block().into()),
            LimitAction::Ask => self.ask(name, facts, asking),
        }
    }

    /// Records a question to a person, which an approval answers.
    pub(super) fn ask(&mut self, name: CheckName, facts: &Facts<'_>, asking: AskingRule) -> Check {
        if facts.approval.is_some() {
            return Check::without_numbers(name, CheckOutcome::Waived);
        }
        self.asking.get_or_insert(asking);
        Check::without_numbers(name, CheckOutcome::Failed)
    }

    /// Asks the person, if a rule requires it and nothing has failed before.
    pub(super) fn escalate(&mut self, facts: &Facts<'_>, policy: Option<&SpendPolicy>) {
        if let (None, Some(rule)) = (&self.first, self.asking) {
            let reason = Reason::ApprovalRequired {
                approval: None,
                amount: facts.intent.offer.amount(),
                threshold: policy.map_or(Amount::MAX, |policy| policy.require_approval_above),
                rule: Some(rule),
            };
            self.first = Some(reason.into());
        }
    }

    /// Records whether `amount` fits into the rest of `(limit, used)`; unknown without a limit.
    pub(super) fn compare(
        &mut self,
        name: CheckName,
        amount: Amount,
        limit_and_used: Option<(Amount, Amount)>,
        finding: impl FnOnce(Amount, Amount) -> Finding,
    ) -> Check {
        let Some((limit, used)) = limit_and_used else {
            return Check::unknown(name);
        };
        let fits = used.plus(amount).is_some_and(|sum| sum <= limit);
        Check {
            limit: Some(limit),
            used: Some(used),
            remaining: Some(limit.above(used)),
            ..self.note(name, fits, || finding(limit, used))
        }
    }
}
