//! Replay: evaluates a recorded decision again from the stored inputs.
//!
//! The agent, the policy and the service are read in the recorded versions. Amounts come from the recorded
//! checks. A check records only one rule: an exceeded rule, or else the rule with the least remaining amount.
//! So the replay treats the other rules as unused, which can't change the result.
//!
//! An operators' freeze, the delay for a new payee and an approval have no version and are derived from the checks. A
//! replay therefore does not prove that they existed. `retry_at` is not replayed.

use super::{limits, rules};
use crate::{
    ALLOWED_REASON, Agent, Amount, ApprovalId, AskingLimit, Block, CallDescription, CallDigest, Check, CheckName,
    CheckOutcome, CountingRule, Decision, DecisionRecord, DecisionResult, Duration, EnabledService, EvaluationInputs,
    Eviction, Fingerprint, Freeze, GivenApproval, InputVersions, Intent, KeyId, LimitAction, LoggedDenial, Network,
    Offer, Operation, OperationDigest, OperationSlug, PaidPrices, PayeePrefix, PriceAboveUsual, Purpose, Reason,
    RecentPayments, Rule, RuleId, RuleKind, Service, Settlement, SettlementTerms, Target, Timestamp, UsualPrice,
    Window, WindowPeriod, WindowScope, evaluate,
};
use std::borrow::Cow;

/// The recorded decision about a purchase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDecision {
    /// The result: an allow, a block or an escalation.
    pub result: DecisionResult,
    /// [`ALLOWED_REASON`], or the reason for the denial or escalation.
    pub reason: String,
    /// All checks in the order of evaluation.
    pub checks: Vec<Check>,
    /// The operation that the call matches, or the operation in the request if there is no match.
    pub operation: Option<OperationSlug>,
    /// The requested amount, in micro-USDC.
    pub amount: Amount,
    /// The address that the payment pays, or would have paid.
    pub pay_to: crate::Address,
    /// The agent key that sent the request.
    pub key: KeyId,
    /// The network of the deployment.
    pub network: Network,
    /// The call as the agent described it.
    pub call: CallDescription,
    /// The recorded time of the decision. The replay evaluates the limits at this time.
    pub at: Timestamp,
    /// The version of the policy; `None` if the service was never enabled or no check was made.
    pub policy_version: Option<u64>,
    /// The versions of the decision's inputs, except the policy version; `None` if the checks were not made.
    pub inputs: Option<InputVersions>,
}

impl RecordedDecision {
    /// Returns the decision that allowed this purchase; `None` for a withdrawal. `call` is from the idempotency record.
    pub fn from_settlement(settlement: &Settlement, call: CallDescription) -> Option<Self> {
        Self::from_terms(&settlement.terms, call)
    }

    /// Like [`Self::from_settlement`], for a settlement that is not stored yet.
    pub fn from_terms(terms: &SettlementTerms, call: CallDescription) -> Option<Self> {
        let Purpose::Purchase(purchase) = &terms.purpose else {
            return None;
        };
        Some(Self {
            result: DecisionResult::Allow,
            reason: ALLOWED_REASON.to_owned(),
            checks: purchase.checks.clone(),
            operation: Some(purchase.operation.clone()),
            amount: terms.amount,
            pay_to: terms.pay_to,
            key: purchase.key,
            network: terms.network,
            call,
            at: terms.authorized_at,
            policy_version: Some(purchase.policy_version),
            inputs: Some(purchase.inputs),
        })
    }

    /// Creates the decision of a block or an escalation that is not stored yet.
    pub fn from_record(record: &DecisionRecord, network: Network) -> Self {
        Self {
            result: record.reason.result(),
            reason: record.reason.reason_text(),
            checks: record.checks.clone(),
            operation: record.operation.clone(),
            amount: record.amount,
            pay_to: record.pay_to,
            key: record.key,
            network,
            call: record.call.clone(),
            at: record.at,
            policy_version: record.policy_version,
            inputs: record.inputs,
        }
    }

    /// Creates the decision of a logged block or escalation.
    pub fn from_denial(denial: LoggedDenial, network: Network) -> Self {
        Self {
            result: denial.result,
            reason: denial.reason,
            checks: denial.checks,
            operation: denial.operation,
            amount: denial.amount,
            pay_to: denial.pay_to,
            key: denial.key,
            network,
            call: denial.call,
            at: denial.at,
            policy_version: denial.policy_version,
            inputs: denial.inputs,
        }
    }

    /// Returns the amount that counted against the daily cap; `None` without a policy.
    pub(super) fn daily_usage(&self) -> Option<Amount> {
        self.find_check(CheckName::Day).and_then(|check| check.used)
    }

    fn find_check(&self, name: CheckName) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    fn names_rule(&self, rule: RuleId) -> bool {
        self.reason.ends_with(&rule.to_string())
    }

    fn has_failed(&self, name: CheckName) -> bool {
        self.find_check(name)
            .is_some_and(|check| check.outcome == CheckOutcome::Failed)
    }
}

/// The inputs of a decision, in the recorded versions.
#[derive(Clone, Copy, Debug)]
pub struct ReplayInputs<'a> {
    /// The agent's record, in version [`InputVersions::agent`].
    pub agent: &'a Agent,
    /// The catalog service, in version [`InputVersions::service`].
    pub service: &'a Service,
    /// The policy, in version [`RecordedDecision::policy_version`].
    pub enabled: Option<&'a EnabledService>,
}

/// A difference between a recorded decision and the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayDifference {
    /// The field that differs: `result`, `reason` or the name of a check.
    pub what: &'static str,
    /// The recorded value. For a check, the outcome, the limit, and the used and remaining parts of the limit.
    pub recorded: String,
    /// The value of the field in the replay, in the same format as `recorded`.
    pub replayed: String,
}

/// Replays a recorded decision and returns the differences. Without differences, the replay made the same decision.
pub fn replay_decision(decision: &RecordedDecision, inputs: &ReplayInputs<'_>) -> Vec<ReplayDifference> {
    let (_, replayed) = RecordedInputs::replay_with_recorded_limits(decision, inputs);
    replayed.differences_from(decision)
}

pub(super) struct Limits<'a> {
    pub(super) agent: &'a Agent,
    pub(super) enabled: Option<&'a EnabledService>,
    /// The used part of the daily cap.
    pub(super) day: Amount,
    /// The used part of the limit of each rule that counts payments, such as a budget.
    pub(super) windows: &'a [(RuleId, Amount)],
    /// The recent payments with which rules compare the payment; `None` uses the recent payments that the decision
    /// recorded.
    pub(super) recent: Option<&'a ReplayedRecentPayments>,
}

#[derive(Default)]
pub(super) struct ReplayedRecentPayments {
    /// The payments that rules compare with the tested payment.
    pub(super) payments: RecentPayments,
    /// Whether the prices come from the decision's price check, which records the median of only one rule.
    pub(super) has_recorded_prices: bool,
}

pub(super) struct RecordedInputs<'a> {
    decision: &'a RecordedDecision,
    service: &'a Service,
    /// The agent's rules at the time of the decision.
    recorded: &'a [Rule],
    /// The recent payments that can be derived from the decision's checks.
    recent: RecentPayments,
    intent: Intent,
    operation: Option<&'a Operation>,
    payee_from: Option<Timestamp>,
    frozen_by_operators: Option<Freeze>,
    is_approved: bool,
}

impl<'a> RecordedInputs<'a> {
    /// Replays a decision under the recorded limits. Returns the recorded inputs and the result.
    pub(super) fn replay_with_recorded_limits(
        decision: &'a RecordedDecision,
        inputs: &ReplayInputs<'a>,
    ) -> (Self, EvaluationResult) {
        let ReplayInputs {
            agent,
            service,
            enabled,
        } = *inputs;
        let called = |operation: &&Operation| {
            let request = &decision.call.request;
            Some(&operation.slug) == decision.operation.as_ref()
                && operation.accepts_method(&request.method)
                && operation.endpoint.is_match_for_url(&request.url)
        };
        let mut waived = decision.checks.iter();
        let intent = recorded_intent(decision);
        let mut evaluation_inputs = Self {
            decision,
            service,
            recorded: &agent.rules,
            recent: rebuild_recent_payments(decision, agent, service, &intent),
            intent,
            operation: service.operations.iter().find(called),
            payee_from: None,
            frozen_by_operators: recorded_freeze(decision, agent),
            is_approved: waived.any(|check| check.outcome == CheckOutcome::Waived),
        };
        let limits = Limits {
            agent,
            enabled,
            day: decision.daily_usage().unwrap_or(Amount::ZERO),
            windows: &recorded_usage_by_rule(decision, agent, service),
            recent: None,
        };
        let result = evaluation_inputs.evaluate_under(&limits);
        // All other causes are in the inputs, so the delay for a new payee failed the vendor check.
        if decision.has_failed(CheckName::Vendor) && !result.has_failed(CheckName::Vendor) {
            evaluation_inputs.payee_from = Some(Timestamp::MAX);
            let result = evaluation_inputs.evaluate_under(&limits);
            return (evaluation_inputs, result);
        }
        (evaluation_inputs, result)
    }

    /// Creates the inputs of an example call that only the agent's limits can block: without a maximum price,
    /// an operators' freeze, a delay for a new payee and an approval.
    pub(super) fn for_possible_call(
        decision: &'a RecordedDecision,
        service: &'a Service,
        operation: &'a Operation,
    ) -> Self {
        Self {
            decision,
            service,
            recorded: &[],
            recent: RecentPayments::default(),
            intent: Intent {
                max_payment: Amount::MAX,
                ..recorded_intent(decision)
            },
            operation: Some(operation),
            payee_from: None,
            frozen_by_operators: None,
            is_approved: false,
        }
    }

    /// Returns whether the agent had this rule with the same parameters.
    pub(super) fn is_rule_recorded(&self, rule: &Rule) -> bool {
        let mut recorded = self.recorded.iter();
        recorded.any(|known| known.id == rule.id && known.kind == rule.kind)
    }

    /// Marks the payment as approved. The checks show an approval only if the approval waived a check.
    pub(super) const fn mark_payment_as_approved(&mut self) {
        self.is_approved = true;
    }

    pub(super) const fn recorded_recent_payments(&self) -> &RecentPayments {
        &self.recent
    }

    /// Returns the digest of the call; `None` if the call matches no operation.
    pub(super) fn call_digest(&self) -> Option<CallDigest> {
        let operation = self.operation?;
        Some(CallDigest::from_intent(&self.intent, &operation.slug))
    }

    /// Returns whether the rule can be evaluated. Without `recent_payments`, a rule that depends on earlier
    /// payments must be recorded, because the checks have data only for recorded rules.
    fn can_evaluate_from_records(&self, rule: &Rule, recent_payments: Option<&ReplayedRecentPayments>) -> bool {
        if rule.kind.uses_median_price() && recent_payments.is_none_or(|recent| recent.has_recorded_prices) {
            let recorded =
                find_rule_with_recorded_median(self.decision, self.recorded, self.service).map(|(id, ..)| id);
            return self.is_rule_recorded(rule) && recorded.is_none_or(|recorded| recorded == rule.id);
        }
        recent_payments.is_some() || !rule.kind.depends_on_earlier_payments() || self.is_rule_recorded(rule)
    }

    fn agent_with_replayable_rules<'b>(
        &self,
        agent: &'b Agent,
        recent_payments: Option<&ReplayedRecentPayments>,
    ) -> Cow<'b, Agent> {
        if agent
            .rules
            .iter()
            .all(|rule| self.can_evaluate_from_records(rule, recent_payments))
        {
            return Cow::Borrowed(agent);
        }
        let mut agent = agent.clone();
        agent
            .rules
            .retain(|rule| self.can_evaluate_from_records(rule, recent_payments));
        Cow::Owned(agent)
    }

    /// Evaluates the recorded request at the recorded time and balance under `limits`.
    pub(super) fn evaluate_under(&self, limits: &Limits<'_>) -> EvaluationResult {
        let Limits {
            agent,
            enabled,
            day,
            windows,
            recent,
        } = *limits;
        let scope = WindowScope::Day {
            agent: agent.id,
            service: self.service.id,
        };
        let day = window_with_usage(scope, WindowPeriod::DAY, day);
        let agent = &*self.agent_with_replayable_rules(agent, recent);
        let used = |rule: &CountingRule<'_>| {
            let known = windows.iter().find(|(id, _)| *id == rule.rule.id);
            known.map(|(_, used)| *used)
        };
        let windows = agent.counting_rules().filter_map(|rule| {
            let used = used(&rule)?;
            let scope = rule.window_scope(agent.id, Some(self.decision.pay_to))?;
            Some((rule.rule.id, window_with_usage(scope, rule.period, used)))
        });
        let budgets: Vec<(RuleId, Window)> = windows.collect();
        let decision = self.decision;
        let inputs = EvaluationInputs {
            agent,
            intent: &self.intent,
            key: decision.key,
            service: self.service,
            operation: self.operation,
            payee_from: self.payee_from,
            network: decision.network,
            enabled,
            day: &day,
            budgets: &budgets,
            recent: recent.map_or(&self.recent, |recent| &recent.payments),
            frozen_by_operators: self.frozen_by_operators,
            approval: None,
            balance: decision.find_check(CheckName::Balance).and_then(|check| check.limit),
            at: decision.at,
            eviction: Eviction::Needed,
        };
        // If a check failed although an approval was used, the approval did not waive all limits of the
        // check.
        let is_approved = |limit: &AskingLimit| self.is_approved && !decision.has_failed(limit.kind.check_name());
        let asking_limits: Vec<AskingLimit> = limits::limits_requiring_approval(&inputs).filter(is_approved).collect();
        let approval = self.is_approved.then(|| GivenApproval {
            id: ApprovalId::derive(agent.id, &self.intent.fingerprint, 0),
            asking: &asking_limits,
        });
        match evaluate(&EvaluationInputs { approval, ..inputs }) {
            Decision::Allow(grant) => EvaluationResult {
                result: Some(DecisionResult::Allow),
                reason: ALLOWED_REASON.to_owned(),
                checks: grant.checks().to_vec(),
            },
            Decision::Refuse(denial) => {
                let reason = apply_recorded_approval_limit(decision, denial.reason);
                EvaluationResult {
                    result: Some(reason.result()),
                    reason: reason.reason_text(),
                    checks: denial.checks,
                }
            }
            Decision::NeedsTarget => EvaluationResult {
                result: None,
                reason: "the request names no target".to_owned(),
                checks: Vec::new(),
            },
        }
    }
}

pub(super) struct EvaluationResult {
    /// The result; `None` if the request lacks a required target. Such a request has no decision record.
    pub(super) result: Option<DecisionResult>,
    /// The reason for the result, as in the recorded decision.
    pub(super) reason: String,
    checks: Vec<Check>,
}

impl EvaluationResult {
    pub(super) fn is_as_recorded(&self, decision: &RecordedDecision) -> bool {
        self.result == Some(decision.result) && self.reason == decision.reason
    }

    /// Returns the first failed check, which determines the reason.
    pub(super) fn first_failed_check(&self) -> Option<CheckName> {
        let mut checks = self.checks.iter();
        let failed = checks.find(|check| check.outcome == CheckOutcome::Failed)?;
        Some(failed.name)
    }

    fn has_failed(&self, name: CheckName) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|check| check.name == name && check.outcome == CheckOutcome::Failed)
    }

    fn differences_from(&self, decision: &RecordedDecision) -> Vec<ReplayDifference> {
        let mut differences = Vec::new();
        let mut compare = |what, recorded: String, replayed: String| {
            if recorded != replayed {
                differences.push(ReplayDifference {
                    what,
                    recorded,
                    replayed,
                });
            }
        };
        let result = self.result.map_or("refused", DecisionResult::name);
        compare("result", decision.result.name().to_owned(), result.to_owned());
        compare("reason", decision.reason.clone(), self.reason.clone());
        for name in CheckName::ALL {
            let replayed = self.checks.iter().find(|check| check.name == *name);
            compare(
                name.name(),
                describe_check(decision.find_check(*name)),
                describe_check(replayed),
            );
        }
        differences
    }
}

/// Returns the reason as it would be recorded. Too many pending approval requests turn an escalation into a block after
/// the evaluation.
fn apply_recorded_approval_limit(decision: &RecordedDecision, reason: Reason) -> Reason {
    let too_many = Reason::PolicyBlocked(Block::TooManyApprovals { limit: 0 });
    if reason.result() == DecisionResult::Escalate && decision.reason == too_many.reason_text() {
        too_many
    } else {
        reason
    }
}

fn describe_check(check: Option<&Check>) -> String {
    let Some(check) = check else {
        return "not made".to_owned();
    };
    let numbers = [
        ("limit", check.limit),
        ("used", check.used),
        ("remaining", check.remaining),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
    numbers.fold(check.outcome.name().to_owned(), |text, (name, number)| {
        format!("{text}, {name} {number}")
    })
}

fn recorded_intent(decision: &RecordedDecision) -> Intent {
    let max_payment = decision.find_check(CheckName::MaxPayment).and_then(|check| check.limit);
    let target = decision.call.target_url.as_ref();
    Intent {
        offer: Offer::from_recorded_price_and_payee(decision.amount, decision.pay_to),
        max_payment: max_payment.unwrap_or(Amount::ZERO),
        request: decision.call.request.clone(),
        service: None,
        operation: decision.operation.clone(),
        target: target.and_then(|url| Target::parse(url.as_str()).ok()),
        metadata: decision.call.metadata.clone(),
        fingerprint: Fingerprint::from_bytes([0; 32]),
    }
}

fn recorded_freeze(decision: &RecordedDecision, agent: &Agent) -> Option<Freeze> {
    if !decision.has_failed(CheckName::AgentActive) {
        return None;
    }
    match Freeze::from_reason(&decision.reason) {
        Some(Freeze::Own) => None,
        Some(freeze) => Some(freeze),
        None => (!agent.is_frozen()).then_some(Freeze::Deployment),
    }
}

/// The only rule that a check records: an exceeded rule, or else the rule with the least remaining amount.
#[derive(Clone, Copy)]
pub(super) struct Tightest {
    pub(super) rule: RuleId,
    pub(super) limit: Amount,
    /// The part of the limit that earlier payments used.
    pub(super) used: Amount,
}

/// Returns the name of the recorded check that contains the limit and the use of a rule of this kind.
pub(super) const fn check_name_for_rule(rule: &RuleKind) -> CheckName {
    match rule {
        RuleKind::MinimumInterval(_) => CheckName::Interval,
        RuleKind::CountLimit(_) => CheckName::Count,
        _ => CheckName::Budget,
    }
}

/// Returns the agent's rules that this check evaluates for a payment to the service with the key.
pub(super) fn rules_of_check<'a>(
    agent: &'a Agent,
    service: &'a Service,
    key: KeyId,
    name: CheckName,
) -> impl Iterator<Item = CountingRule<'a>> {
    let rules = agent.counting_rules();
    rules.filter(move |rule| check_name_for_rule(&rule.rule.kind) == name && rule.applies_to(service, key))
}

/// Returns the rule whose limit and used amount a check recorded. Of several rules with the recorded limit, the rule in
/// the decision's reason comes first.
pub(super) fn recorded_tightest_rule(
    decision: &RecordedDecision,
    agent: &Agent,
    service: &Service,
    name: CheckName,
) -> Option<Tightest> {
    let check = decision.find_check(name)?;
    let (limit, used) = check.limit.zip(check.used)?;
    let alike = || rules_of_check(agent, service, decision.key, name).filter(|rule| rule.limit == limit);
    let named = alike().find(|rule| decision.names_rule(rule.rule.id));
    let is_asking =
        |rule: &CountingRule<'_>| check.outcome != CheckOutcome::Passed && rule.action() == LimitAction::Ask;
    let rule = named.or_else(|| alike().find(is_asking)).or_else(|| alike().next())?;
    let rule = rule.rule.id;
    Some(Tightest { rule, limit, used })
}

/// Returns the used amount of each rule that counts payments: zero for rules that the checks did not record.
fn recorded_usage_by_rule(decision: &RecordedDecision, agent: &Agent, service: &Service) -> Vec<(RuleId, Amount)> {
    let used = |rule: CountingRule<'_>| {
        let tightest = recorded_tightest_rule(decision, agent, service, check_name_for_rule(&rule.rule.kind));
        let tightest = tightest.filter(|tightest| tightest.rule == rule.rule.id);
        (rule.rule.id, tightest.map_or(Amount::ZERO, |tightest| tightest.used))
    };
    agent.counting_rules().map(used).collect()
}

/// Finds the rule whose maximum price the price check recorded. Returns the rule's id, the number of prices
/// and a median that results in this maximum; `None` if the rule uses the catalog's price.
fn find_rule_with_recorded_median(
    decision: &RecordedDecision,
    rules: &[Rule],
    service: &Service,
) -> Option<(RuleId, u8, Amount)> {
    let max = decision.find_check(CheckName::Price)?.limit?;
    let operation = decision.operation.as_ref();
    let mut operations = service.operations.iter();
    let operation = operations.find(|listed| Some(&listed.slug) == operation)?;
    let with_limit = |rule: &Rule| {
        let &PriceAboveUsual {
            percent, over, action, ..
        } = rule.kind.as_kind().filter(|_| rule.kind.applies_to(service))?;
        let median = match over {
            UsualPrice::Catalog => {
                (rules::max_price_above_usual(operation.expected_price(decision.at), percent) == max).then_some(None)?
            }
            UsualPrice::Median(prices) => Some((prices, rules::lowest_usual_price_for_max_price(max, percent)?)),
        };
        Some((rule.id, action, median))
    };
    let alike = || rules.iter().filter_map(with_limit);
    let recorded = alike().find(|(rule, ..)| decision.names_rule(*rule));
    let recorded = recorded.or_else(|| alike().find(|(_, action, _)| *action == LimitAction::Ask));
    let (rule, _, median) = recorded.or_else(|| alike().next())?;
    median.map(|(prices, median)| (rule, prices, median))
}

fn rebuild_recent_payments(
    decision: &RecordedDecision,
    agent: &Agent,
    service: &Service,
    intent: &Intent,
) -> RecentPayments {
    let mut recent = RecentPayments::default();
    if let Some(check) = decision.find_check(CheckName::Payee)
        && check.outcome == CheckOutcome::Passed
    {
        recent
            .payees
            .push((PayeePrefix::from_address(decision.pay_to), decision.at));
    }
    let Some(operation) = &decision.operation else {
        return recent;
    };
    let age = decision.find_check(CheckName::Duplicate).and_then(|check| check.used);
    let age = age.and_then(|age| u32::try_from(age.units()).ok());
    if let Some(age) = age.map(Duration::from_secs_u32) {
        recent
            .calls
            .push((CallDigest::from_intent(intent, operation), decision.at.before(age)));
    }
    if let Some((_, prices, median)) = find_rule_with_recorded_median(decision, &agent.rules, service) {
        let paid = PaidPrices {
            at: decision.at,
            prices: vec![median; prices.into()],
        };
        recent.prices.push((OperationDigest::from_slug(operation), paid));
    }
    recent
}

fn window_with_usage(scope: WindowScope, period: WindowPeriod, used: Amount) -> Window {
    Window {
        scope,
        period,
        total: used,
        version: 0,
        stamp: 0,
        watermark: Timestamp::EPOCH,
        oldest: Vec::new(),
        complete: true,
    }
}
