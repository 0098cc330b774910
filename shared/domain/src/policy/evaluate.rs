//! Decides whether an agent may make a payment now.
//!
//! [`evaluate`] is a pure function that makes the checks in the order of `docs/errors.md` §4. The first failed check
//! determines the decision, and all results are returned. An approval waives only the limits that the user saw.
//!
//! An allowed payment allocates no memory (`tests/bench/tests/allocations.rs`). Only this module creates a [`Grant`],
//! which the store needs for a reservation.

use super::{
    check::{Finding, FirstFailure},
    limits, rules,
};
use crate::{
    Address, Agent, AgentId, Amount, ApprovalId, Block, CallDescription, CallDigest, CallInputs, Charge, Check,
    CheckName, CheckOutcome, EnabledService, EvaluationInputs, Freeze, InputVersions, NextPricing, Operation,
    OperationSlug, Payable, PurchaseScope, Reason, RecentUpdate, RetryAt, RuleId, Service, ServiceId, SpendPolicy,
    Target, Timestamp, UnlistedCall, VendorAllowlist, Window, WindowMeasure,
};

/// The decision about a payment, as the result of an evaluation.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a boxed grant would be the one allocation of an allow"
)]
pub enum Decision<'a> {
    /// The payment may be reserved and signed.
    Allow(Grant<'a>),
    /// The payment is denied, or needs a user's approval first.
    Refuse(Denial),
    /// The request lacks `metadata.target_url`, which this policy needs.
    NeedsTarget,
}

/// The permission to reserve exactly this payment. Only [`evaluate`] creates a grant.
#[derive(Clone, Debug)]
pub struct Grant<'a> {
    facts: EvaluationInputs<'a>,
    operation: &'a Operation,
    enabled: &'a EnabledService,
    checks: Checks,
}

impl<'a> Grant<'a> {
    /// Returns the time of the authorization, which the settlement records.
    pub const fn authorized_at(&self) -> Timestamp {
        self.facts.at
    }
    /// Returns the id of the agent that may make the payment.
    pub const fn agent_id(&self) -> AgentId {
        self.facts.agent.id
    }
    /// Returns the id of the paid service.
    pub const fn service_id(&self) -> ServiceId {
        self.facts.service.id
    }
    /// Returns the parts of the payment that rules compare with later payments.
    pub fn purchase_scope(&self) -> PurchaseScope {
        let call = CallDigest::from_intent(self.facts.intent, &self.operation.slug);
        PurchaseScope::new(self.facts.service, call)
    }
    /// Returns the slug of the operation that the payment buys.
    pub const fn operation_slug(&self) -> &'a OperationSlug {
        &self.operation.slug
    }
    /// Returns the amount to reserve and to sign: the price in the payment requirements.
    pub const fn amount(&self) -> Amount {
        self.facts.intent.offer.amount()
    }
    /// Returns the call as the agent described it.
    pub fn call_description(&self) -> CallDescription {
        CallDescription::new(
            self.facts.intent,
            self.facts.operation,
            self.facts.network,
            self.facts.at,
        )
    }
    /// Returns the version of the agent's record (status, keys, rules) that allowed the payment.
    pub const fn agent_version(&self) -> u64 {
        self.facts.agent.version
    }
    /// Returns the version of the policy that allowed the payment.
    pub const fn policy_version(&self) -> u64 {
        self.enabled.version
    }
    /// Returns the versions of the decision's inputs, except the policy version.
    pub const fn input_versions(&self) -> InputVersions {
        self.facts.input_versions()
    }
    /// Returns what the reservation adds to each window, the day window first. Each addition fits into the window's
    /// cap.
    pub fn charges(&self) -> impl Iterator<Item = Charge<'a>> {
        window_charges(self.facts, self.enabled).flatten()
    }
    /// Returns the id of the approval that the payment uses; `None` if the request has no approval.
    pub fn approval_id(&self) -> Option<ApprovalId> {
        self.facts.approval.map(|approval| approval.id)
    }
    /// Returns the update of the recent payments; `None` if no rule needs it. The reservation stores only
    /// [`RecentUpdate::keep_only_call`].
    pub fn recent_payments_update(&self) -> Option<RecentUpdate> {
        limits::recent_payments_update(&self.facts, self.operation)
    }
    /// Returns the ids of the windows that count the payment in this unit, in the order of [`Grant::charges`].
    pub fn counting_window_ids(&self, measure: WindowMeasure) -> impl Iterator<Item = RuleId> + use<'a> {
        limits::counting_window_ids(self.facts, measure)
    }
    /// Returns all checks in the order of evaluation.
    pub fn checks(&self) -> &[Check] {
        self.checks.as_slice()
    }
}

/// A denial or escalation that is not recorded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The reason of the first failed check.
    pub reason: Reason,
    /// All checks in the order of evaluation.
    pub checks: Vec<Check>,
    /// The version of the evaluated policy; `None` if the service was never enabled or no check was made.
    pub policy_version: Option<u64>,
    /// The versions of the decision's inputs except the policy; `None` if no check was made.
    pub inputs: Option<InputVersions>,
    /// The time of the evaluation.
    pub at: Timestamp,
}

impl Denial {
    /// Returns whether the decision escalates the payment to a user.
    pub const fn requires_approval(&self) -> bool {
        matches!(self.reason, Reason::ApprovalRequired { .. })
    }
}

/// The decision about a call without a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnpaidDecision {
    /// The agent is allowed to make the call.
    Allow,
    /// The agent is not allowed to make the call.
    Refuse {
        /// The reason of the first failed check.
        reason: Reason,
        /// All checks in the order of evaluation.
        checks: Vec<Check>,
    },
    /// The request lacks `metadata.target_url`, which this policy needs.
    NeedsTarget,
}

/// The denial of a call without a payment. It is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpaidDenial {
    /// Why the call is denied.
    pub reason: Reason,
    /// All checks in the order of evaluation.
    pub checks: Vec<Check>,
    /// The duration of the decision, in milliseconds.
    pub latency_ms: u64,
}

impl UnpaidDenial {
    /// Creates the denial of a frozen agent's call. `agent_active` is the only check.
    pub fn for_freeze(freeze: Freeze, latency_ms: u64) -> Self {
        Self {
            reason: Reason::PolicyBlocked(Block::AgentFrozen(freeze)),
            checks: vec![Check::without_numbers(CheckName::AgentActive, CheckOutcome::Failed)],
            latency_ms,
        }
    }
}

/// A denial or escalation, as it is recorded and as the caller receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The decision's transaction id.
    pub transaction: crate::TransactionId,
    /// Why the payment is denied or requires approval.
    pub reason: Reason,
    /// All checks in the order of evaluation. Empty if no check was made.
    pub checks: Vec<Check>,
    /// The `decision_hash` in the signed statement; `None` if the row of an earlier escalation is missing.
    pub hash: Option<crate::DocumentHash>,
    /// The duration of the decision, in milliseconds.
    pub latency_ms: u64,
}

/// The checks of a decision, in the order of [`CheckName::ALL`]. An array needs no allocation.
#[derive(Clone, Copy, Debug)]
struct Checks {
    checks: [Check; CheckName::ALL.len()],
    /// The number of checks that were made. Later elements of the array are unused.
    count: usize,
}

impl Checks {
    fn from_results(checks: &[Option<Check>; CheckName::ALL.len()]) -> Self {
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

    fn as_slice(&self) -> &[Check] {
        self.checks.get(..self.count).unwrap_or_default()
    }
}

/// Decides whether an agent may make a payment. Makes the checks in the order of `docs/errors.md` §4.
pub fn evaluate<'a>(inputs: &EvaluationInputs<'a>) -> Decision<'a> {
    let mut failure = FirstFailure::default();
    let amount = inputs.intent.offer.amount();
    let call = CallInputs::from(inputs);
    let policy = find_policy(&call).map(|enabled| &enabled.policy);

    let [service_enabled, agent_active, operation, domain] = evaluate_price_independent_checks(&mut failure, &call);

    let ceiling = Some((inputs.intent.max_payment, Amount::ZERO));
    let max_payment = failure.record_amount_limit_check(CheckName::MaxPayment, amount, ceiling, |max_payment, _| {
        Reason::AmountExceedsMax { amount, max_payment }.into()
    });
    let caps = policy.map(|policy| policy.caps(&inputs.agent.owner, inputs.at));
    let cap = caps.map(|caps| (caps.per_call, Amount::ZERO));
    let per_call = failure.record_amount_limit_check(CheckName::PerCall, amount, cap, |max_per_call, _| {
        Reason::PerCallLimit { amount, max_per_call }.into()
    });

    let category = rules::check_category(&mut failure, &call);
    let vendor = check_vendors(&mut failure, inputs);
    let schedule = rules::check_schedules(&mut failure, inputs);
    let budget = rules::check_budgets(&mut failure, inputs).unwrap_or(Check::passed(CheckName::Budget));
    let count = rules::check_count_limits(&mut failure, inputs);
    let interval = rules::check_intervals(&mut failure, inputs);

    let day = caps.map(|caps| (caps.per_day, inputs.day.counted_amount_at(inputs.at)));
    let day = failure.record_amount_limit_check(CheckName::Day, amount, day, |max_per_day, spend_today| {
        let retry_at = inputs.day.first_fitting_time(amount, max_per_day, inputs.at);
        daily_limit_reason(inputs, spend_today, max_per_day, retry_at).into()
    });
    let duplicate = rules::check_duplicate(&mut failure, inputs);
    let price = rules::check_price(&mut failure, inputs);
    let payee = rules::check_payee(&mut failure, inputs);
    let approval = check_approval(&mut failure, inputs, policy);
    failure.escalate_if_approval_required(inputs, policy, limits::limits_requiring_approval(inputs));
    let balance = inputs.balance.map(|balance| (balance, Amount::ZERO));
    let balance = failure.record_amount_limit_check(CheckName::Balance, amount, balance, |balance, _| {
        let (required, wallet) = (amount, inputs.agent.wallet.address);
        Reason::InsufficientBalance {
            balance,
            required,
            wallet,
        }
        .into()
    });

    let checks = Checks::from_results(&[
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
    decision_from_checks(failure, &checks, inputs)
}

/// Decides whether an agent may make a call without a payment. Makes the checks of [`evaluate`] that need no amount and
/// no payee.
pub fn evaluate_unpaid(call: &CallInputs<'_>) -> UnpaidDecision {
    let mut failure = FirstFailure::default();
    let [service_enabled, agent_active, operation, domain] = evaluate_price_independent_checks(&mut failure, call);
    let category = rules::check_category(&mut failure, call);
    // Without a payee in the catalog, a vendor allowlist can allow only the service, not a wallet.
    let payment = call
        .operation
        .and_then(|operation| operation.pricing_at(call.at).payment);
    let is_listed = is_in_all_vendor_allowlists(call.agent, call.service, payment.map(|payment| payment.pay_to));
    let vendor = failure.record_check(CheckName::Vendor, is_listed, || {
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

fn find_policy<'a>(call: &CallInputs<'a>) -> Option<&'a EnabledService> {
    call.enabled.filter(|enabled| enabled.enabled)
}

/// Makes checks 1 to 4 of `docs/errors.md` §4, which do not depend on the price.
fn evaluate_price_independent_checks(failure: &mut FirstFailure, call: &CallInputs<'_>) -> [Check; 4] {
    let enabled = find_policy(call);
    let policy = enabled.map(|enabled| &enabled.policy);
    let service_enabled = failure.record_check(CheckName::ServiceEnabled, enabled.is_some(), || {
        service_not_enabled_reason(call.service).into()
    });
    let freeze = Freeze::effective_freeze(call.agent, call.frozen_by_operators);
    let frozen = || Block::AgentFrozen(freeze.unwrap_or(Freeze::Own)).into();
    let agent_active = failure.record_check(CheckName::AgentActive, freeze.is_none(), frozen);
    let operation = check_operation(failure, call, policy);
    let domain = check_domain(failure, call, policy);
    [service_enabled, agent_active, operation, domain]
}

fn decision_from_checks<'a>(failure: FirstFailure, checks: &Checks, inputs: &EvaluationInputs<'a>) -> Decision<'a> {
    let refuse = |reason| {
        Decision::Refuse(Denial {
            reason,
            checks: checks.as_slice().to_vec(),
            policy_version: inputs.enabled.map(|enabled| enabled.version),
            inputs: Some(inputs.input_versions()),
            at: inputs.at,
        })
    };
    match failure.first {
        Some(Finding::TargetMissing) => return Decision::NeedsTarget,
        Some(Finding::Reason(reason)) => return refuse(reason),
        None => {}
    }
    // A missing input can't occur after all checks passed. If it did, the payment would be denied.
    let Some(enabled) = inputs.enabled else {
        return refuse(service_not_enabled_reason(inputs.service));
    };
    let Some(operation) = inputs.operation else {
        return refuse(operation_not_enabled_reason(&inputs.into(), &enabled.policy));
    };
    if !window_charges(*inputs, enabled).all(|charge| charge.is_some_and(|charge| charge.is_within_cap())) {
        let (live, caps) = (
            inputs.day.counted_amount_at(inputs.at),
            enabled.policy.caps(&inputs.agent.owner, inputs.at),
        );
        return refuse(daily_limit_reason(
            inputs,
            live,
            caps.per_day,
            RetryAt::NotBefore(inputs.at),
        ));
    }
    Decision::Allow(Grant {
        facts: *inputs,
        operation,
        enabled,
        checks: *checks,
    })
}

/// Returns what the payment adds to each window, the day window first. `None` if a rule's window is missing.
fn window_charges<'a>(
    inputs: EvaluationInputs<'a>,
    enabled: &'a EnabledService,
) -> impl Iterator<Item = Option<Charge<'a>>> {
    let amount = inputs.intent.offer.amount();
    let charge = move |window: &'a Window, counted: WindowMeasure, cap| {
        window.charge(counted.payment_units(amount), cap, inputs.at, inputs.eviction)
    };
    // The payment is reserved only if the policy still has the version that was evaluated here. The window may have an
    // older version of the policy.
    let day = Charge {
        stamp: enabled.version,
        coverage: if inputs.day.version == 0 {
            inputs.agent.recent_payment_rules_fingerprint()
        } else {
            None
        },
        ..charge(
            inputs.day,
            WindowMeasure::Amounts,
            enabled.policy.caps(&inputs.agent.owner, inputs.at).per_day,
        )
    };
    let rules = inputs.agent.counting_rules();
    let rules = rules.filter(move |rule| rule.applies_to(inputs.service, inputs.key));
    let rules = rules.map(move |rule| {
        Some(charge(
            rule.find_window(inputs.budgets)?,
            rule.counted,
            limits::window_cap(&rule, &inputs),
        ))
    });
    std::iter::once(Some(day)).chain(rules)
}

fn service_not_enabled_reason(service: &Service) -> Reason {
    let service = service.slug.clone();
    Reason::ServiceNotEnabled { service }
}

fn daily_limit_reason(
    inputs: &EvaluationInputs<'_>,
    spend_today: Amount,
    max_per_day: Amount,
    retry_at: RetryAt,
) -> Reason {
    Reason::DailyLimit {
        spend_today,
        amount: inputs.intent.offer.amount(),
        max_per_day,
        retry_at,
    }
}

fn operation_not_enabled_reason(inputs: &CallInputs<'_>, policy: &SpendPolicy) -> Reason {
    let called = inputs.operation.map(|operation| &operation.slug);
    Reason::OperationNotEnabled {
        operation: called.or(inputs.named).cloned(),
        enabled: policy.enabled_operations.clone(),
        unlisted: called.is_none().then(|| Box::new(UnlistedCall::from_inputs(inputs))),
    }
}

/// Makes check 3 of `docs/errors.md` §4: the call matches an operation that the policy enables.
fn check_operation(failure: &mut FirstFailure, inputs: &CallInputs<'_>, policy: Option<&SpendPolicy>) -> Check {
    let Some(policy) = policy else {
        return Check::unknown(CheckName::OperationEnabled);
    };
    let in_scope = |operation: &Operation| policy.allows_operation(&operation.slug);
    failure.record_check(
        CheckName::OperationEnabled,
        inputs.operation.is_some_and(in_scope),
        || operation_not_enabled_reason(inputs, policy).into(),
    )
}

/// Makes check 4 of `docs/errors.md` §4: the policy allows the host of the page to fetch.
fn check_domain(failure: &mut FirstFailure, inputs: &CallInputs<'_>, policy: Option<&SpendPolicy>) -> Check {
    let (Some(policy), Some(operation)) = (policy, inputs.operation) else {
        return Check::unknown(CheckName::Domain);
    };
    if !operation.fetches_target(inputs.service.category) || policy.allows_any_domain() {
        return Check::passed(CheckName::Domain);
    }
    let target = inputs.target;
    let allows = |target: &Target| policy.allowed_domains.iter().any(|pattern| pattern.matches(target));
    let refused = target.and_then(|target| {
        if !allows(target) {
            return Some(target.host().to_owned());
        }
        // The provider fetches the page that a request parameter names, so that page must have the host of `target`.
        inputs
            .request
            .targets_in_parameters(operation)
            .find_map(|named| match named {
                Ok(named) => (named.host() != target.host()).then(|| named.host().to_owned()),
                Err(unreadable) => Some(unreadable),
            })
    });
    failure.record_check(
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

/// Makes check 8 of `docs/errors.md` §4: the vendor is allowed, and the payee and price match the catalog.
fn check_vendors(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>) -> Check {
    let Some(operation) = inputs.operation else {
        return Check::unknown(CheckName::Vendor);
    };
    let wrong = vendor_mismatch(inputs, operation);
    failure.record_check(CheckName::Vendor, wrong.is_none(), || {
        wrong.unwrap_or(Block::PayeeNotInCatalog).into()
    })
}

fn is_in_all_vendor_allowlists(agent: &Agent, service: &Service, pay_to: Option<Address>) -> bool {
    let mut lists = agent.rules.iter().filter_map(|rule| rule.kind.as_kind());
    lists.all(|list: &VendorAllowlist| list.allows(&service.slug, pay_to))
}

fn vendor_mismatch(inputs: &EvaluationInputs<'_>, operation: &Operation) -> Option<Block> {
    let pay_to = inputs.intent.offer.pay_to();
    if !is_in_all_vendor_allowlists(inputs.agent, inputs.service, Some(pay_to)) {
        return Some(Block::Vendor(inputs.service.slug.clone()));
    }
    if pay_to == inputs.agent.wallet.address {
        return Some(Block::PayeeIsPayer);
    }
    let payable = match operation.payee_and_max_price(inputs.network, inputs.at) {
        Ok(payable) => payable,
        Err(unpayable) => return Some(Block::Unpayable(unpayable)),
    };
    let amount = inputs.intent.offer.amount();
    let allows = |payable: Payable| pay_to == payable.pay_to && amount <= payable.most;
    if allows(payable) {
        let from = inputs.payee_from.filter(|from| inputs.at < *from);
        return from.map(|retry_at| Block::PayeeTooYoung { retry_at });
    }
    // The provider may already require a payee or price that is delayed in the catalog.
    let next = operation.next.as_ref().and_then(NextPricing::effective_from);
    let next =
        next.filter(|from| inputs.at < *from && operation.payee_and_max_price(inputs.network, *from).is_ok_and(allows));
    Some(match next {
        Some(retry_at) => Block::PayeeTooYoung { retry_at },
        None if pay_to != payable.pay_to => Block::PayeeNotInCatalog,
        None => Block::PriceAboveCatalog { max: payable.most },
    })
}

/// Makes check 17 of `docs/errors.md` §4: no limit requires an approval.
fn check_approval(failure: &mut FirstFailure, inputs: &EvaluationInputs<'_>, policy: Option<&SpendPolicy>) -> Check {
    let Some(policy) = policy else {
        return Check::unknown(CheckName::Approval);
    };
    let first = limits::limits_requiring_approval(inputs).find(|limit| limit.kind.check_name() == CheckName::Approval);
    let check = match first {
        None => Check::passed(CheckName::Approval),
        Some(_) => {
            failure.record_approval_requirement(CheckName::Approval, inputs, limits::limits_requiring_approval(inputs))
        }
    };
    Check {
        limit: Some(first.map_or(policy.require_approval_above, |limit| limit.above)),
        ..check
    }
}
