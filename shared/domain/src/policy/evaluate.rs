//! The decision: may this agent make this payment now?
//!
//! [`evaluate`] is a pure function of the [`Facts`]. It runs every check in the order of `docs/errors.md` §4: identity,
//! scope, price, times and budgets, approval, funds, so that cheap checks and permanent refusals come first. It keeps the result
//! of each check, so that a refused agent sees every failed check in one answer. The first failed check determines the
//! answer. An approval waives only the approval check: caps, scopes and freezes still apply.
//!
//! An allowed payment allocates no memory: the checks are an array, and a grant borrows its facts. Only a refusal
//! copies its content (`tests/bench/tests/allocations.rs` counts the allocations).
//!
//! Only this module can make a [`Grant`]. Elsewhere: authentication, idempotency and the state of an approval, which
//! are checked before (`functions/payments`), and the reservation, which is conditional on the versions of the facts
//! (`shared/store`).

use super::limits;
use crate::{
    Address, Agent, AgentId, Amount, ApprovalId, CallDescription, Category, Charge, Counted, DecisionResult,
    DomainPattern, Duration, ENGINE_VERSION, EnabledService, Eviction, Freeze, InputVersions, Intent, LimitAction,
    Network, NextPricing, Operation, OperationSlug, Payable, ProviderRequest, RecentPayments, RecentUpdate, RetryAt,
    Rule, RuleId, RuleKind, Service, ServiceId, ServiceSlug, SpendPolicy, Target, Timestamp, Unpayable, Vendor, Window,
    catalog::service::named,
};

/// The facts of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The agent.
    pub agent: &'a Agent,
    /// The request.
    pub intent: &'a Intent,
    /// The service to pay.
    pub service: &'a Service,
    /// The called operation; `None` if the service lists no such call.
    pub operation: Option<&'a Operation>,
    /// The time from which the operation's payee and price may be paid, if it is in the future.
    pub payee_from: Option<Timestamp>,
    /// The network of the deployment.
    pub network: Network,
    /// The agent's policy for the service; `None` if it was never enabled.
    pub enabled: Option<&'a EnabledService>,
    /// The day's window of the agent and service.
    pub day: &'a Window,
    /// The window of each of the agent's rules that count payments.
    pub budgets: &'a [(RuleId, Window)],
    /// The agent's recent payments to the service, as far as its rules need them.
    pub recent: &'a RecentPayments,
    /// The operators' freeze that applies to the agent: [`crate::Freezes::of`].
    pub frozen_by_operators: Option<Freeze>,
    /// The approval that the request names, if it is approved and for this request.
    pub approval: Option<ApprovalId>,
    /// The wallet's balance; `None` if unknown.
    pub balance: Option<Amount>,
    /// The time that the decision records: see [`recorded_time`].
    pub at: Timestamp,
    /// The selection of the expired entries that a grant evicts.
    pub eviction: Eviction,
}

/// The facts of a call that do not depend on its payment.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// The agent.
    pub agent: &'a Agent,
    /// The call to the provider.
    pub request: &'a ProviderRequest,
    /// The page that a scrape or crawl fetches.
    pub target: Option<&'a Target>,
    /// The operation that the request names.
    pub named: Option<&'a OperationSlug>,
    /// The called service.
    pub service: &'a Service,
    /// The called operation; `None` if the service lists no such call.
    pub operation: Option<&'a Operation>,
    /// The agent's policy for the service; `None` if it was never enabled.
    pub enabled: Option<&'a EnabledService>,
    /// The operators' freeze that applies to the agent.
    pub frozen_by_operators: Option<Freeze>,
    /// The time of the decision.
    pub at: Timestamp,
}

impl Facts<'_> {
    /// The versions of the inputs, besides the policy's.
    pub const fn input_versions(&self) -> InputVersions {
        InputVersions {
            engine: ENGINE_VERSION,
            agent: self.agent.version,
            service: self.service.version,
        }
    }
}

impl<'a> From<&Facts<'a>> for CallFacts<'a> {
    fn from(facts: &Facts<'a>) -> Self {
        Self {
            agent: facts.agent,
            request: &facts.intent.request,
            target: facts.intent.target.as_ref(),
            named: facts.intent.operation.as_ref(),
            service: facts.service,
            operation: facts.operation,
            enabled: facts.enabled,
            frozen_by_operators: facts.frozen_by_operators,
            at: facts.at,
        }
    }
}

/// The time that a decision at `now` records: never earlier than the [`Window::earliest`] of any of its windows.
pub fn recorded_time<'a>(now: Timestamp, windows: impl IntoIterator<Item = &'a Window>) -> Timestamp {
    windows.into_iter().fold(now, |at, window| at.max(window.earliest(now)))
}

/// The result of the evaluation.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a boxed grant would be the one allocation of an allow"
)]
pub enum Decision<'a> {
    /// The payment may be reserved and signed.
    Allow(Grant<'a>),
    /// The payment may not be made, or a person must decide first.
    Refuse(Denial),
    /// The request lacks `metadata.target_url`, which this policy needs.
    NeedsTarget,
}

/// Permission to reserve exactly this payment. Only [`evaluate`] makes one.
#[derive(Clone, Debug)]
pub struct Grant<'a> {
    facts: Facts<'a>,
    operation: &'a Operation,
    enabled: &'a EnabledService,
    checks: Checks,
}

impl<'a> Grant<'a> {
    /// The recorded time: the settlement's `authorized_at`.
    pub const fn at(&self) -> Timestamp {
        self.facts.at
    }
    /// The agent's id.
    pub const fn agent(&self) -> AgentId {
        self.facts.agent.id
    }
    /// The service's id.
    pub const fn service(&self) -> ServiceId {
        self.facts.service.id
    }
    /// The operation's slug.
    pub const fn operation(&self) -> &'a OperationSlug {
        &self.operation.slug
    }
    /// The amount.
    pub const fn amount(&self) -> Amount {
        self.facts.intent.offer.amount()
    }
    /// The call, as its agent describes it.
    pub fn call(&self) -> CallDescription {
        CallDescription::of(
            self.facts.intent,
            self.facts.operation,
            self.facts.network,
            self.facts.at,
        )
    }
    /// The version of the agent's record (status, keys, rules) that allowed the payment.
    pub const fn agent_version(&self) -> u64 {
        self.facts.agent.version
    }
    /// The policy version that allowed the payment.
    pub const fn policy_version(&self) -> u64 {
        self.enabled.version
    }
    /// The versions of the other inputs.
    pub const fn inputs(&self) -> InputVersions {
        self.facts.input_versions()
    }
    /// The charge that the reservation adds to each window, the day's first. Every window was among the facts, and each
    /// amount fits.
    pub fn charges(&self) -> impl Iterator<Item = Charge<'a>> {
        charges(self.facts, self.enabled).flatten()
    }
    /// The approval that the reservation uses up.
    pub const fn approval(&self) -> Option<ApprovalId> {
        self.facts.approval
    }
    /// What the reservation remembers of the payment; `None` if no rule needs it.
    pub fn remembered(&self) -> Option<RecentUpdate> {
        limits::remembered(&self.facts, self.operation)
    }
    /// The rules that count the payment in this way, in the order of [`Grant::charges`].
    pub fn counted(&self, counted: Counted) -> impl Iterator<Item = RuleId> + use<'a> {
        limits::counted(self.facts, counted)
    }
    /// Every check, in order.
    pub fn checks(&self) -> &[Check] {
        self.checks.made()
    }
}

/// A refusal or escalation that is not recorded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The reason of the first failed check.
    pub reason: Reason,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The policy version that refused it; `None` if the service is not enabled.
    pub policy_version: Option<u64>,
    /// The versions of the other inputs; `None` if the checks were not made.
    pub inputs: Option<InputVersions>,
    /// The time of the evaluation.
    pub at: Timestamp,
}

impl Denial {
    /// Whether it escalates to a person.
    pub const fn escalates(&self) -> bool {
        matches!(self.reason, Reason::ApprovalRequired { .. })
    }

    /// Whether the answer depends on a window's content, so that it is only valid if the window is unchanged.
    pub const fn rests_on_windows(&self) -> bool {
        matches!(
            self.reason,
            Reason::DailyLimit { .. }
                | Reason::PolicyBlocked(
                    Block::Budget { .. }
                        | Block::Count { .. }
                        | Block::Interval { .. }
                        | Block::Duplicate { .. }
                        | Block::PriceAboveUsual { .. }
                )
        )
    }
}

/// The result of the evaluation of a call without a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnpaidDecision {
    /// The call may be made.
    Allow,
    /// The call may not be made.
    Refuse {
        /// The reason of the first failed check.
        reason: Reason,
        /// Every check, in order.
        checks: Vec<Check>,
    },
    /// The request lacks `metadata.target_url`, which this policy needs.
    NeedsTarget,
}

/// The refusal of a call without a payment, as answered to the caller. It is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpaidRefusal {
    /// The reason.
    pub reason: Reason,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The duration of the decision.
    pub latency_ms: u64,
}

/// A refusal or escalation, as recorded and as answered to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The ID of the decision in the audit log.
    pub transaction: crate::TransactionId,
    /// The reason.
    pub reason: Reason,
    /// Every check, in order; empty if none was made.
    pub checks: Vec<Check>,
    /// The duration of the decision.
    pub latency_ms: u64,
}

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

    fn of(facts: &CallFacts<'_>) -> Self {
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

/// The checks of one decision, in the order of [`CheckName::ALL`]. They need no allocation.
#[derive(Clone, Copy, Debug)]
struct Checks {
    checks: [Check; CheckName::ALL.len()],
    /// The number of checks that were made; the others are at the end, without meaning.
    count: usize,
}

impl Checks {
    /// The checks that were made.
    fn of(checks: &[Option<Check>; CheckName::ALL.len()]) -> Self {
        let mut made = Self {
            checks: [Check::unknown(CheckName::ServiceEnabled); CheckName::ALL.len()],
            count: 0,
        };
        for (place, check) in made.checks.iter_mut().zip(checks.iter().flatten()) {
            *place = *check;
            made.count = made.count.saturating_add(1);
        }
        made
    }

    fn made(&self) -> &[Check] {
        self.checks.get(..self.count).unwrap_or_default()
    }
}

/// Makes the decision; see the module's documentation.
pub fn evaluate<'a>(facts: &Facts<'a>) -> Decision<'a> {
    let mut failure = FirstFailure::default();
    let amount = facts.intent.offer.amount();
    let call = CallFacts::from(facts);
    let policy = enabled(&call).map(|enabled| &enabled.policy);

    let [service_enabled, agent_active, operation, domain] = first_checks(&mut failure, &call);

    let ceiling = Some((facts.intent.max_payment, Amount::ZERO));
    let max_payment = failure.compare(CheckName::MaxPayment, amount, ceiling, |max_payment, _| {
        Reason::AmountExceedsMax { amount, max_payment }.into()
    });
    let cap = policy.map(|policy| (policy.max_per_call, Amount::ZERO));
    let per_call = failure.compare(CheckName::PerCall, amount, cap, |max_per_call, _| {
        Reason::PerCallLimit { amount, max_per_call }.into()
    });

    let category = category(&mut failure, &call);
    let vendor = vendor(&mut failure, facts);
    let schedule = limits::schedule(&mut failure, facts);
    let budget = budget(&mut failure, facts);
    let count = limits::count(&mut failure, facts);
    let interval = limits::interval(&mut failure, facts);

    let day = policy.map(|policy| (policy.max_per_day, facts.day.live(facts.at)));
    let day = failure.compare(CheckName::Day, amount, day, |max_per_day, spend_today| {
        let retry_at = facts.day.fits(amount, max_per_day, facts.at);
        daily_limit(facts, spend_today, max_per_day, retry_at).into()
    });
    let duplicate = limits::duplicate(&mut failure, facts);
    let price = limits::price(&mut failure, facts);
    let payee = limits::payee(&mut failure, facts);
    let approval = approval(&mut failure, facts, policy);
    failure.escalate(facts, policy);
    let balance = facts.balance.map(|balance| (balance, Amount::ZERO));
    let balance = failure.compare(CheckName::Balance, amount, balance, |balance, _| {
        let (required, wallet) = (amount, facts.agent.wallet.address);
        Reason::InsufficientBalance {
            balance,
            required,
            wallet,
        }
        .into()
    });

    let checks = Checks::of(&[
        Some(service_enabled),
        Some(agent_active),
        Some(operation),
        Some(domain),
        Some(max_payment),
        Some(per_call),
        Some(category),
        Some(vendor),
        schedule,
        Some(budget),
        count,
        interval,
        Some(day),
        duplicate,
        price,
        payee,
        Some(approval),
        Some(balance),
    ]);
    decide(failure, &checks, facts)
}

/// Decides whether an agent may make a call without a payment. It makes the checks of [`evaluate`] that need neither an
/// amount nor an offer's payee, in the same order.
pub fn evaluate_unpaid(call: &CallFacts<'_>) -> UnpaidDecision {
    let mut failure = FirstFailure::default();
    let [service_enabled, agent_active, operation, domain] = first_checks(&mut failure, call);
    let category = category(&mut failure, call);
    // An operation without a payment has no payee.
    let payment = call.operation.and_then(|operation| operation.pricing(call.at).payment);
    let is_listed = is_listed(call.agent, call.service, payment.map(|payment| payment.pay_to));
    let vendor = failure.note(CheckName::Vendor, is_listed, || {
        Block::Vendor(call.service.slug.clone()).into()
    });
    let checks = [service_enabled, agent_active, operation, domain, category, vendor];
    match failure.first {
        Some(Finding::TargetMissing) => UnpaidDecision::NeedsTarget,
        Some(Finding::Reason(reason)) => UnpaidDecision::Refuse {
            reason,
            checks: checks.to_vec(),
        },
        None => UnpaidDecision::Allow,
    }
}

/// The agent's policy for the service, if the service is enabled.
fn enabled<'a>(call: &CallFacts<'a>) -> Option<&'a EnabledService> {
    call.enabled.filter(|enabled| enabled.enabled)
}

/// Checks 1 to 4, which concern the call and not its price.
fn first_checks(failure: &mut FirstFailure, call: &CallFacts<'_>) -> [Check; 4] {
    let enabled = enabled(call);
    let policy = enabled.map(|enabled| &enabled.policy);
    let service_enabled = failure.note(CheckName::ServiceEnabled, enabled.is_some(), || {
        service_not_enabled(call.service).into()
    });
    let freeze = Freeze::of(call.agent, call.frozen_by_operators);
    let frozen = || Block::AgentFrozen(freeze.unwrap_or(Freeze::Own)).into();
    let agent_active = failure.note(CheckName::AgentActive, freeze.is_none(), frozen);
    let operation = operation(failure, call, policy);
    let domain = domain(failure, call, policy);
    [service_enabled, agent_active, operation, domain]
}

fn decide<'a>(failure: FirstFailure, checks: &Checks, facts: &Facts<'a>) -> Decision<'a> {
    let refuse = |reason| {
        Decision::Refuse(Denial {
            reason,
            checks: checks.made().to_vec(),
            policy_version: facts.enabled.map(|enabled| enabled.version),
            inputs: Some(facts.input_versions()),
            at: facts.at,
        })
    };
    match failure.first {
        Some(Finding::TargetMissing) => return Decision::NeedsTarget,
        Some(Finding::Reason(reason)) => return refuse(reason),
        None => {}
    }
    // Every check passed, so there are a policy and an operation, and every charge fits. If one were missing
    // nevertheless, the payment would be refused.
    let Some(enabled) = facts.enabled else {
        return refuse(service_not_enabled(facts.service));
    };
    let Some(operation) = facts.operation else {
        return refuse(operation_not_enabled(&facts.into(), &enabled.policy));
    };
    if !charges(*facts, enabled).all(|charge| charge.is_some_and(|charge| charge.fits())) {
        let (live, max_per_day) = (facts.day.live(facts.at), enabled.policy.max_per_day);
        return refuse(daily_limit(facts, live, max_per_day, RetryAt::NotBefore(facts.at)));
    }
    Decision::Allow(Grant {
        facts: *facts,
        operation,
        enabled,
        checks: *checks,
    })
}

/// The charge that a payment adds to each window, the day's first; `None` for a rule whose window is missing from the
/// facts.
fn charges<'a>(facts: Facts<'a>, enabled: &'a EnabledService) -> impl Iterator<Item = Option<Charge<'a>>> {
    let amount = facts.intent.offer.amount();
    let charge = move |window: &'a Window, counted: Counted, cap| {
        window.charge(counted.of(amount), cap, facts.at, facts.eviction)
    };
    // The day's write is conditional on the version of the policy that was read, not on the version stored with the
    // window.
    let day = Charge {
        stamp: enabled.version,
        ..charge(facts.day, Counted::Amounts, enabled.policy.max_per_day)
    };
    let rules = facts.agent.counting_rules();
    let rules = rules.filter(move |rule| rule.applies_to(&facts.service.slug));
    let rules = rules.map(move |rule| Some(charge(rule.window(facts.budgets)?, rule.counted, rule.limit)));
    std::iter::once(Some(day)).chain(rules)
}

fn service_not_enabled(service: &Service) -> Reason {
    let service = service.slug.clone();
    Reason::ServiceNotEnabled { service }
}

fn daily_limit(facts: &Facts<'_>, spend_today: Amount, max_per_day: Amount, retry_at: RetryAt) -> Reason {
    Reason::DailyLimit {
        spend_today,
        amount: facts.intent.offer.amount(),
        max_per_day,
        retry_at,
    }
}

fn operation_not_enabled(facts: &CallFacts<'_>, policy: &SpendPolicy) -> Reason {
    let called = facts.operation.map(|operation| &operation.slug);
    Reason::OperationNotEnabled {
        operation: called.or(facts.named).cloned(),
        enabled: policy.enabled_operations.clone(),
        unlisted: called.is_none().then(|| Box::new(UnlistedCall::of(facts))),
    }
}

/// Check 3: the service lists the call as an operation, and the operation is in scope.
fn operation(failure: &mut FirstFailure, facts: &CallFacts<'_>, policy: Option<&SpendPolicy>) -> Check {
    let Some(policy) = policy else {
        return Check::unknown(CheckName::OperationEnabled);
    };
    let in_scope = |operation: &Operation| policy.allows_operation(&operation.slug);
    failure.note(
        CheckName::OperationEnabled,
        facts.operation.is_some_and(in_scope),
        || operation_not_enabled(facts, policy).into(),
    )
}

/// Check 4: the page that a scrape or crawl fetches.
fn domain(failure: &mut FirstFailure, facts: &CallFacts<'_>, policy: Option<&SpendPolicy>) -> Check {
    let (Some(policy), Some(operation)) = (policy, facts.operation) else {
        return Check::unknown(CheckName::Domain);
    };
    if !operation.fetches_target(facts.service.category) || policy.allows_any_domain() {
        return Check::passed(CheckName::Domain);
    }
    let target = facts.target;
    let allows = |target: &Target| policy.allowed_domains.iter().any(|pattern| pattern.matches(target));
    let refused = target.and_then(|target| {
        if !allows(target) {
            return Some(target.host().to_owned());
        }
        // A provider fetches the page that the call names, regardless of the target that the agent declares.
        facts.request.targets(operation).find_map(|named| match named {
            Ok(named) => (named.host() != target.host()).then(|| named.host().to_owned()),
            Err(unreadable) => Some(unreadable),
        })
    });
    failure.note(
        CheckName::Domain,
        target.is_some() && refused.is_none(),
        || match refused {
            Some(hostname) => Finding::Reason(Reason::DomainNotAllowed {
                hostname,
                allowed: policy.allowed_domains.clone(),
            }),
            None => Finding::TargetMissing,
        },
    )
}

/// The categories that rules apply to: the operation's own, then its service's.
fn categories<'a>(facts: &CallFacts<'a>) -> impl Iterator<Item = Category> + use<'a> {
    let of_operation = facts.operation.map(|operation| operation.category);
    of_operation.into_iter().chain(std::iter::once(facts.service.category))
}

/// Check 7: the categories.
fn category(failure: &mut FirstFailure, facts: &CallFacts<'_>) -> Check {
    let blocked = facts.agent.rules.iter().find_map(|rule| blocked_category(rule, facts));
    failure.note(CheckName::Category, blocked.is_none(), || {
        Block::Category(blocked.unwrap_or(facts.service.category)).into()
    })
}

/// The first of the categories that the rule blocks.
fn blocked_category(rule: &Rule, facts: &CallFacts<'_>) -> Option<Category> {
    let RuleKind::CategoryBlock { categories: blocked } = &rule.kind else {
        return None;
    };
    categories(facts).find(|category| blocked.contains(category))
}

/// Check 8: every allowlist contains the vendor, and the offer pays the operation's own payee, at most its price.
fn vendor(failure: &mut FirstFailure, facts: &Facts<'_>) -> Check {
    let Some(operation) = facts.operation else {
        return Check::unknown(CheckName::Vendor);
    };
    let wrong = wrong_vendor(facts, operation);
    failure.note(CheckName::Vendor, wrong.is_none(), || {
        wrong.unwrap_or(Block::PayeeNotInCatalog).into()
    })
}

/// Whether every allowlist of the agent contains the service or the payee.
fn is_listed(agent: &Agent, service: &Service, pay_to: Option<Address>) -> bool {
    agent.rules.iter().all(|rule| match &rule.kind {
        RuleKind::VendorAllowlist { vendors } => vendors.iter().any(|vendor| match vendor {
            Vendor::Service(slug) => *slug == service.slug,
            Vendor::Wallet(wallet) => Some(*wallet) == pay_to,
        }),
        RuleKind::CategoryBlock { .. }
        | RuleKind::BudgetLimit { .. }
        | RuleKind::ApprovalRequired { .. }
        | RuleKind::CountLimit { .. }
        | RuleKind::MinimumInterval { .. }
        | RuleKind::DuplicateGuard { .. }
        | RuleKind::NewPayee { .. }
        | RuleKind::PriceAboveUsual { .. }
        | RuleKind::Schedule { .. } => true,
    })
}

fn wrong_vendor(facts: &Facts<'_>, operation: &Operation) -> Option<Block> {
    let pay_to = facts.intent.offer.pay_to();
    if !is_listed(facts.agent, facts.service, Some(pay_to)) {
        return Some(Block::Vendor(facts.service.slug.clone()));
    }
    if pay_to == facts.agent.wallet.address {
        return Some(Block::PayeeIsPayer);
    }
    let payable = match operation.payable(facts.network, facts.at) {
        Ok(payable) => payable,
        Err(unpayable) => return Some(Block::Unpayable(unpayable)),
    };
    let amount = facts.intent.offer.amount();
    let allows = |payable: Payable| pay_to == payable.pay_to && amount <= payable.most;
    if allows(payable) {
        let from = facts.payee_from.filter(|from| facts.at < *from);
        return from.map(|retry_at| Block::PayeeTooYoung { retry_at });
    }
    // A provider may already ask for the next payee or price before it takes effect in the catalog.
    let next = operation.next.as_ref().and_then(NextPricing::known_from);
    let next = next.filter(|from| facts.at < *from && operation.payable(facts.network, *from).is_ok_and(allows));
    Some(match next {
        Some(retry_at) => Block::PayeeTooYoung { retry_at },
        None if pay_to != payable.pay_to => Block::PayeeNotInCatalog,
        None => Block::PriceAboveCatalog { max: payable.most },
    })
}

/// Check 9: the budgets. The check reports the numbers of the budget with the least left.
fn budget(failure: &mut FirstFailure, facts: &Facts<'_>) -> Check {
    let amount = facts.intent.offer.amount();
    let tightest = limits::tightest(facts, |kind| matches!(kind, RuleKind::BudgetLimit { .. }));
    let Some((budget, window)) = tightest else {
        return Check::passed(CheckName::Budget);
    };
    let used = window.live(facts.at);
    failure.compare(CheckName::Budget, amount, Some((budget.limit, used)), |limit, used| {
        Block::Budget {
            rule: budget.rule.id,
            limit,
            used,
            retry_at: window.fits(amount, limit, facts.at),
        }
        .into()
    })
}

/// Check 11: the threshold, then the rules that require an approval.
fn approval(failure: &mut FirstFailure, facts: &Facts<'_>, policy: Option<&SpendPolicy>) -> Check {
    let Some(policy) = policy else {
        return Check::unknown(CheckName::Approval);
    };
    let amount = facts.intent.offer.amount();
    let threshold = policy.require_approval_above;
    let asks = amount > threshold;
    let mut rules = facts.agent.rules.iter();
    let rule = if asks {
        None
    } else {
        rules.find_map(|rule| asking_rule(rule, facts))
    };
    let check = match (asks || rule.is_some(), facts.approval) {
        (false, _) => Check::passed(CheckName::Approval),
        (true, Some(_)) => Check::without_numbers(CheckName::Approval, CheckOutcome::Waived),
        (true, None) => failure.note(CheckName::Approval, false, || {
            Reason::ApprovalRequired {
                approval: None,
                amount,
                threshold,
                rule,
            }
            .into()
        }),
    };
    Check {
        limit: Some(rule.map_or(threshold, |rule| rule.above)),
        ..check
    }
}

/// The rule and its amount, if its kind is `approval_required` and it requires an approval for this payment.
fn asking_rule(rule: &Rule, facts: &Facts<'_>) -> Option<AskingRule> {
    let RuleKind::ApprovalRequired {
        services,
        categories: listed,
        above,
    } = &rule.kind
    else {
        return None;
    };
    let service = services
        .as_ref()
        .is_none_or(|services| services.contains(&facts.service.slug));
    let category = listed
        .as_ref()
        .is_none_or(|listed| categories(&facts.into()).any(|category| listed.contains(&category)));
    let above = above.unwrap_or(Amount::ZERO);
    (service && category && facts.intent.offer.amount() > above).then_some(AskingRule {
        id: rule.id,
        above,
        kind: AskingKind::ApprovalRequired,
    })
}

pub(super) enum Finding {
    Reason(Reason),
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
    const fn without_numbers(name: CheckName, outcome: CheckOutcome) -> Self {
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
    first: Option<Finding>,
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
    fn escalate(&mut self, facts: &Facts<'_>, policy: Option<&SpendPolicy>) {
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
