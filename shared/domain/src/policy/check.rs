//! The checks of a decision, their results, and the reasons for denials.

use crate::{
    Address, Amount, ApprovalId, ApprovalRequired, BudgetLimit, CallInputs, Category, CategoryBlock, CountLimit,
    DecisionResult, DomainPattern, DuplicateGuard, Duration, EvaluationInputs, Freeze, LimitAction, MinimumInterval,
    NewPayee, Operation, OperationSlug, PriceAboveUsual, ProviderRequest, RetryAt, RuleId, Schedule, ServiceSlug,
    SpendPolicy, Timestamp, Unpayable, VendorAllowlist, catalog::service::named,
};

/// Why a payment is denied or escalated, with the context fields of each slug (`docs/spec.md` §7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The service is not enabled for the agent: 403 `service_not_enabled`.
    ServiceNotEnabled {
        /// The slug of the service that is not enabled.
        service: ServiceSlug,
    },
    /// The operation is not enabled, or the service does not list the call: 403 `operation_not_enabled_for_agent`.
    OperationNotEnabled {
        /// The called operation, or the operation in the request if the call matches no operation.
        operation: Option<OperationSlug>,
        /// The enabled operations. `None` if all operations of the catalog are enabled.
        enabled: Option<Vec<OperationSlug>>,
        /// Details of the call, if the service lists no operation for the call.
        unlisted: Option<Box<UnlistedCall>>,
    },
    /// The page to fetch is on a host outside the policy's allowlist: 403 `domain_not_allowed`.
    DomainNotAllowed {
        /// The host that is not allowed: the declared target's host, or the host of the page in the call's parameters.
        hostname: String,
        /// The policy's allowed domains.
        allowed: Vec<DomainPattern>,
    },
    /// The price exceeds the maximum in the agent's request: 402 `amount_exceeds_max`.
    AmountExceedsMax {
        /// The price that the provider asks, in micro-USDC.
        amount: Amount,
        /// The maximum price in the agent's request, in micro-USDC.
        max_payment: Amount,
    },
    /// The price exceeds the policy's per-call cap: 402 `amount_exceeds_per_call_limit`.
    PerCallLimit {
        /// The price that the provider asks, in micro-USDC.
        amount: Amount,
        /// The maximum amount of a call, in micro-USDC.
        max_per_call: Amount,
    },
    /// A rule, a freeze or the catalog blocks the payment: 403 `policy_blocked`.
    PolicyBlocked(Block),
    /// The payment would exceed the policy's daily cap: 402 `daily_spend_limit_exceeded`.
    DailyLimit {
        /// The amount that counts against the daily cap now.
        spend_today: Amount,
        /// The price that the provider asks, in micro-USDC.
        amount: Amount,
        /// The policy's daily cap, in micro-USDC.
        max_per_day: Amount,
        /// The time from which the same call can be retried.
        retry_at: RetryAt,
    },
    /// A user must approve the payment first: 402 `approval_required`.
    ApprovalRequired {
        /// The approval request to wait for; `None` until the request is created.
        approval: Option<ApprovalId>,
        /// The price that the provider asks, in micro-USDC.
        amount: Amount,
        /// The policy's approval threshold, in micro-USDC.
        threshold: Amount,
        /// All limits that require the approval, in the order of [`AskingKind`].
        asking: Vec<AskingLimit>,
    },
    /// The wallet's balance is lower than the price: 402 `insufficient_usdc_balance`.
    InsufficientBalance {
        /// The balance of the agent's wallet, in micro-USDC.
        balance: Amount,
        /// The amount of the payment, which is greater than the balance.
        required: Amount,
        /// The address of the agent's wallet.
        wallet: Address,
    },
}

/// A call that matches no operation of the service, with some of the service's operations as a hint for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedCall {
    /// The slug of the called service.
    pub service: ServiceSlug,
    /// The method and URL of the call, without the query.
    pub called: String,
    /// The methods and endpoints of up to three operations. Operations at the call's path come first.
    pub listed: Vec<String>,
}

impl UnlistedCall {
    const MAX: usize = 3;

    pub(super) fn from_inputs(inputs: &CallInputs<'_>) -> Self {
        let ProviderRequest { method, url, .. } = inputs.request;
        let operations = &inputs.service.operations;
        let is_at_path = |operation: &&Operation| operation.endpoint.is_match_for_url(url);
        let here = operations.iter().filter(is_at_path);
        let elsewhere = operations.iter().filter(|operation| !is_at_path(operation));
        let mut called = url.clone();
        called.set_query(None);
        called.set_fragment(None);
        Self {
            service: inputs.service.slug.clone(),
            called: format!("{method} {called}"),
            listed: here
                .chain(elsewhere)
                .take(Self::MAX)
                .map(|operation| format!("{} {}", operation.method, operation.endpoint))
                .collect(),
        }
    }
}

/// A limit that requires an approval for a payment. The limit is the policy's approval threshold or a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskingLimit {
    /// The rule; `None` for the policy's approval threshold.
    pub rule: Option<RuleId>,
    /// The amount above which the limit requires an approval. Zero if the limit does not depend on the amount.
    pub above: Amount,
    /// The kind of the limit, which determines the check that fails.
    pub kind: AskingKind,
}

impl AskingLimit {
    /// Returns whether the approval waives this limit. A waived limit's amount may have changed since the approval.
    pub(crate) fn is_among(&self, approved_limits: &[Self]) -> bool {
        approved_limits
            .iter()
            .any(|limit| (limit.rule, limit.kind) == (self.rule, self.kind))
    }
}

named! {
    /// The kinds of limits that require an approval.
    AskingKind {
        /// The policy's approval threshold.
        Threshold = "require_approval_above_units",
        /// The rule [`ApprovalRequired`].
        ApprovalRequired = ApprovalRequired::NAME,
        /// The rule [`DuplicateGuard`].
        DuplicateGuard = DuplicateGuard::NAME,
        /// The rule [`PriceAboveUsual`].
        PriceAboveUsual = PriceAboveUsual::NAME,
        /// The rule [`NewPayee`].
        NewPayee = NewPayee::NAME,
        /// The rule [`BudgetLimit`].
        BudgetLimit = BudgetLimit::NAME,
        /// The rule [`CountLimit`].
        CountLimit = CountLimit::NAME,
    }
}

/// Why a payment is blocked (`policy_blocked`). Determines `decision.reason` and `decision.rule_triggered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A freeze by the owner or an operator blocks the payment.
    AgentFrozen(Freeze),
    /// A rule blocks the category.
    Category(Category),
    /// A vendor allowlist contains neither the service nor the payee.
    Vendor(ServiceSlug),
    /// The catalog has no usable price or payee for the operation.
    Unpayable(Unpayable),
    /// The payee in the payment requirements is not the operation's payee in the catalog.
    PayeeNotInCatalog,
    /// The catalog has listed the operation's payee and price for less time than the delay for new payees.
    PayeeTooYoung {
        /// The time from which the payee may be paid.
        retry_at: Timestamp,
    },
    /// The payee is the agent's own wallet.
    PayeeIsPayer,
    /// The price is above the maximum price of the operation in the catalog.
    PriceAboveCatalog {
        /// The operation's maximum price, or the fixed price if there is no maximum.
        max: Amount,
    },
    /// The amount does not fit into a budget.
    Budget {
        /// The id of the rule that sets the budget.
        rule: RuleId,
        /// The amount that the budget allows per window, in micro-USDC.
        limit: Amount,
        /// The amount that counts against the limit now.
        used: Amount,
        /// The time from which the same call can be retried.
        retry_at: RetryAt,
    },
    /// The current time is outside a rule's schedule.
    Schedule {
        /// The id of the rule with the schedule.
        rule: RuleId,
        /// The next time at which all schedules allow the payment.
        retry_at: RetryAt,
    },
    /// A rule's maximum number of payments is reached.
    Count {
        /// The id of the rule that limits the number of payments.
        rule: RuleId,
        /// The maximum number of payments within the rule's window.
        count: Amount,
        /// The number of earlier payments that the rule's window counts at the time of the decision.
        used: Amount,
        /// The time from which the same call can be retried.
        retry_at: RetryAt,
    },
    /// The last payment is too recent for a rule's minimum interval.
    Interval {
        /// The id of the rule that sets the minimum interval.
        rule: RuleId,
        /// The minimum time between two payments.
        interval: Duration,
        /// The time from which the same call can be retried.
        retry_at: RetryAt,
    },
    /// The agent paid the same call less than `within` ago.
    Duplicate {
        /// The id of the rule that blocks duplicate calls.
        rule: RuleId,
        /// The duration after an authorization for which the same call may not be repeated.
        within: Duration,
        /// The time from which the same call may be paid again.
        retry_at: Timestamp,
    },
    /// The price is too far above the usual price.
    PriceAboveUsual {
        /// The id of the rule that compares the price with the usual price.
        rule: RuleId,
        /// The maximum price that the rule allows, in micro-USDC.
        most: Amount,
    },
    /// A user rejected the approval request.
    ApprovalRejected,
    /// The approval was not used in time.
    ApprovalExpired,
    /// The approval was given for a different request.
    ApprovalMismatch,
    /// The agent already has the maximum number of pending approval requests.
    TooManyApprovals {
        /// The maximum number of pending approval requests per agent.
        limit: u32,
    },
}

impl Block {
    /// Returns the `decision.reason` in the response.
    pub fn reason_text(&self) -> String {
        match self {
            Self::AgentFrozen(freeze) => freeze.reason_text().to_owned(),
            Self::Category(category) => format!("category_block:{}", category.name()),
            Self::Vendor(service) => format!("vendor_allowlist:{service}"),
            Self::Unpayable(unpayable) => format!("{}:{}", self.triggered_rule(), unpayable.name()),
            Self::PayeeNotInCatalog => "catalog_payee:pay_to_not_in_catalog".to_owned(),
            Self::PayeeTooYoung { .. } => "catalog_payee:pay_to_not_yet_accepted".to_owned(),
            Self::PayeeIsPayer => "catalog_payee:pay_to_is_own_wallet".to_owned(),
            Self::PriceAboveCatalog { .. } => "catalog_price:price_above_catalog_maximum".to_owned(),
            Self::Budget { rule, .. }
            | Self::Schedule { rule, .. }
            | Self::Count { rule, .. }
            | Self::Interval { rule, .. }
            | Self::Duplicate { rule, .. }
            | Self::PriceAboveUsual { rule, .. } => format!("{}:{rule}", self.triggered_rule()),
            Self::ApprovalRejected => "approval_rejected".to_owned(),
            Self::ApprovalExpired => "approval_expired".to_owned(),
            Self::ApprovalMismatch => "approval_request_mismatch".to_owned(),
            Self::TooManyApprovals { .. } => "too_many_open_approvals".to_owned(),
        }
    }

    /// Returns the `decision.rule_triggered` in the response.
    pub const fn triggered_rule(&self) -> &'static str {
        match self {
            Self::AgentFrozen(_) => "agent_frozen",
            Self::Category(_) => CategoryBlock::NAME,
            Self::Vendor(_) => VendorAllowlist::NAME,
            Self::Unpayable(_) => "catalog_payment",
            Self::PayeeNotInCatalog | Self::PayeeTooYoung { .. } | Self::PayeeIsPayer => "catalog_payee",
            Self::PriceAboveCatalog { .. } => "catalog_price",
            Self::Budget { .. } => BudgetLimit::NAME,
            Self::Schedule { .. } => Schedule::NAME,
            Self::Count { .. } => CountLimit::NAME,
            Self::Interval { .. } => MinimumInterval::NAME,
            Self::Duplicate { .. } => DuplicateGuard::NAME,
            Self::PriceAboveUsual { .. } => PriceAboveUsual::NAME,
            Self::ApprovalRejected | Self::ApprovalExpired | Self::ApprovalMismatch | Self::TooManyApprovals { .. } => {
                ApprovalRequired::NAME
            }
        }
    }
}

impl Reason {
    /// Returns the `error` slug of the response.
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

    /// Returns the text of `decision.reason` in an authorize response, and of `reason` in a check response.
    pub fn reason_text(&self) -> String {
        match self {
            Self::PolicyBlocked(block) => block.reason_text(),
            other => other.slug().to_owned(),
        }
    }

    /// Returns the `decision.rule_triggered` in the response: the check or rule that denied the payment.
    pub fn triggered_rule(&self) -> &'static str {
        match self {
            Self::ServiceNotEnabled { .. } => "service_enabled",
            Self::OperationNotEnabled { .. } => "enabled_operations",
            Self::DomainNotAllowed { .. } => "allowed_domains",
            Self::AmountExceedsMax { .. } => "max_payment_units",
            Self::PerCallLimit { .. } => "max_per_call_units",
            Self::PolicyBlocked(block) => block.triggered_rule(),
            Self::DailyLimit { .. } => "max_per_day_units",
            Self::ApprovalRequired {
                asking: asking_limits, ..
            } => match asking_limits.first() {
                Some(limit) => limit.kind.name(),
                None => AskingKind::Threshold.name(),
            },
            Self::InsufficientBalance { .. } => "usdc_balance",
        }
    }

    /// Returns the time from which the same call can be retried; `None` for a denial that does not end with time.
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

    /// Returns the `decision.result` in the response.
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
    /// The checks, in the order of evaluation.
    CheckName {
        /// Passes if the agent has a policy for the service, and the service is enabled.
        ServiceEnabled = "service_enabled" => "service not enabled",
        /// Passes if the agent is not frozen.
        AgentActive = "agent_active" => "agent frozen",
        /// Passes if the operation is enabled.
        OperationEnabled = "enabled_operations" => "operation not enabled",
        /// Passes if the target's host is allowed.
        Domain = "allowed_domains" => "domain not allowed",
        /// Passes if the price is at most the maximum price in the request.
        MaxPayment = "max_payment_units" => "the agent’s own maximum",
        /// Passes if the price is within the per-call cap.
        PerCall = "max_per_call_units" => "limit per call",
        /// Passes if the category is not blocked.
        Category = CategoryBlock::NAME => "blocked category",
        /// Passes if the vendor is allowed, and the payee and price match the catalog.
        Vendor = VendorAllowlist::NAME => "vendor not allowed",
        /// Passes if the time is within every schedule.
        Schedule = Schedule::NAME => "schedule",
        /// Passes if the amount fits into every budget.
        Budget = BudgetLimit::NAME => "budget",
        /// Passes if one more payment fits into every count limit.
        Count = CountLimit::NAME => "number of payments",
        /// Passes if the last payment is long enough ago for every minimum interval.
        Interval = MinimumInterval::NAME => "time between payments",
        /// Passes if the amount fits into the daily cap.
        Day = "max_per_day_units" => "daily limit",
        /// Passes if the same call was not paid recently.
        Duplicate = DuplicateGuard::NAME => "repeated call",
        /// Passes if the price is not too far above the usual price.
        Price = PriceAboveUsual::NAME => "unusual price",
        /// Passes if the payee is not new: the agent has paid the payee before.
        Payee = NewPayee::NAME => "new payee",
        /// Passes if the payment needs no approval.
        Approval = "approval" => "approval",
        /// Passes if the wallet's balance is sufficient.
        Balance = "usdc_balance" => "wallet balance",
    }

    /// The outcome of one check in a decision.
    CheckOutcome {
        /// The payment meets the condition of the check.
        Passed = "passed",
        /// The payment does not meet the condition of the check.
        Failed = "failed",
        /// The check failed, but an approval waives the check.
        Waived = "lifted",
        /// The check could not be made, because the policy, the operation or the balance is missing.
        Unknown = "unknown",
    }
}

impl AskingKind {
    pub(super) const fn check_name(self) -> CheckName {
        match self {
            Self::Threshold | Self::ApprovalRequired => CheckName::Approval,
            Self::DuplicateGuard => CheckName::Duplicate,
            Self::PriceAboveUsual => CheckName::Price,
            Self::NewPayee => CheckName::Payee,
            Self::BudgetLimit => CheckName::Budget,
            Self::CountLimit => CheckName::Count,
        }
    }
}

/// The result of one check. Limits are in micro-USDC, payments or seconds, depending on [`Check::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the check.
    pub name: CheckName,
    /// The result of the check.
    pub outcome: CheckOutcome,
    /// The limit that was checked; `None` if the check has no limit.
    pub limit: Option<Amount>,
    /// The part of the limit that earlier payments used.
    pub used: Option<Amount>,
    /// The part of the limit that remained before this payment.
    pub remaining: Option<Amount>,
}

/// Why a check failed.
pub(super) enum Finding {
    /// The payment is denied or escalated for this reason.
    Reason(Reason),
    /// The policy limits the allowed domains, but the request has no target.
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

/// The first check that failed. The reason is built lazily, because building a reason may copy data.
#[derive(Default)]
pub(super) struct FirstFailure {
    pub(super) first: Option<Finding>,
    /// Whether a required approval is missing.
    asks: bool,
}

impl FirstFailure {
    pub(super) fn record_check(
        &mut self,
        name: CheckName,
        has_passed: bool,
        finding: impl FnOnce() -> Finding,
    ) -> Check {
        if has_passed {
            return Check::passed(name);
        }
        if self.first.is_none() {
            self.first = Some(finding());
        }
        Check::without_numbers(name, CheckOutcome::Failed)
    }

    /// Records an exceeded limit as a denial or as a required approval, depending on the rule's action.
    pub(super) fn record_exceeded_limit(
        &mut self,
        name: CheckName,
        action: LimitAction,
        inputs: &EvaluationInputs<'_>,
        asking_limits: impl Iterator<Item = AskingLimit>,
        block: impl FnOnce() -> Block,
    ) -> Check {
        match action {
            LimitAction::Block => self.record_check(name, false, || block().into()),
            LimitAction::Ask => self.record_approval_requirement(name, inputs, asking_limits),
        }
    }

    /// Records the limits that require an approval. The check is waived if an approval covers all of them.
    pub(super) fn record_approval_requirement(
        &mut self,
        name: CheckName,
        inputs: &EvaluationInputs<'_>,
        asking_limits: impl Iterator<Item = AskingLimit>,
    ) -> Check {
        let mut limits = asking_limits.filter(|limit| limit.kind.check_name() == name).peekable();
        let outcome = if limits.peek().is_some() && limits.all(|limit| inputs.is_waived_by_approval(&limit)) {
            CheckOutcome::Waived
        } else {
            self.asks = true;
            CheckOutcome::Failed
        };
        Check::without_numbers(name, outcome)
    }

    /// Escalates the payment if an approval is missing and no check blocks. The balance is checked
    /// afterwards.
    pub(super) fn escalate_if_approval_required(
        &mut self,
        inputs: &EvaluationInputs<'_>,
        policy: Option<&SpendPolicy>,
        asking_limits: impl Iterator<Item = AskingLimit>,
    ) {
        if self.first.is_none() && self.asks {
            let mut limits: Vec<AskingLimit> = asking_limits.collect();
            limits.sort_by_key(|limit| limit.kind);
            let reason = Reason::ApprovalRequired {
                approval: None,
                amount: inputs.intent.offer.amount(),
                threshold: policy.map_or(Amount::MAX, |policy| policy.require_approval_above),
                asking: limits,
            };
            self.first = Some(reason.into());
        }
    }

    pub(super) fn record_amount_limit_check(
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
            remaining: Some(limit.saturating_minus(used)),
            ..self.record_check(name, fits, || finding(limit, used))
        }
    }
}
