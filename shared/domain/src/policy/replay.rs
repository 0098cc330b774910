//! Replay: a recorded decision is evaluated again from what is stored.
//!
//! The agent's record with its rules, the policy and the catalog entry are read in the versions of the decision. The
//! amounts are those that its checks recorded: the used part of each limit, the balance, and the request's own limit. Of
//! several budgets, count limits or intervals a check records the one with the least left; the others had at least as
//! much left, so they are replayed as unused. What was remembered of recent payments is derived in the same way: a
//! repeated call has the recorded age, a payee is known unless its check failed, and of several rules about an
//! operation's median price, the one with the recorded limit is replayed with the median that results in it.
//!
//! Three facts have no version, and are derived from the checks: an operators' freeze, where the agent's status failed
//! although its own record is active; the catalog's delay of a new payee, where the vendor failed and everything else
//! about it passes; and the use of an approval, where a check was waived. So a replay shows that the engine judges
//! these facts as before. It doesn't show that there was such a freeze, delay or approval: freezes are in the audit log,
//! and an approval names its settlement.
//!
//! `retry_at` is not replayed, since the entries of the windows are not recorded.

use super::limits;
use crate::{
    ALLOWED_REASON, Agent, Amount, ApprovalId, Block, CallDescription, CallDigest, Check, CheckName, CheckOutcome,
    CountingRule, Decision, DecisionResult, Duration, EnabledService, Eviction, Facts, Fingerprint, Freeze,
    InputVersions, Intent, LimitAction, LoggedRefusal, Network, Offer, OperationDigest, OperationSlug, PaidPrices,
    PayeePrefix, Purpose, Reason, RecentPayments, Rule, RuleId, RuleKind, Service, Settlement, Target, Timestamp,
    UsualPrice, Window, WindowScope, evaluate,
};

/// A purchase's decision, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDecision {
    /// The result: an allow, a block or an escalation.
    pub result: DecisionResult,
    /// [`ALLOWED_REASON`], or the reason of the refusal.
    pub reason: String,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The operation that the call matched, or else the one that the request named.
    pub operation: Option<OperationSlug>,
    /// The amount.
    pub amount: Amount,
    /// The payee.
    pub pay_to: crate::Address,
    /// The network of the deployment.
    pub network: Network,
    /// The call, as the agent described it.
    pub call: CallDescription,
    /// The recorded time.
    pub at: Timestamp,
    /// The version of the policy; `None` if the service was never enabled.
    pub policy_version: Option<u64>,
    /// The versions of the other inputs; `None` if the checks were not made, or the row is of an earlier release.
    pub inputs: Option<InputVersions>,
}

impl RecordedDecision {
    /// The decision that allowed this purchase; `None` for a payout. `call` is from its idempotency record.
    pub fn of_settlement(settlement: &Settlement, call: CallDescription) -> Option<Self> {
        let terms = &settlement.terms;
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
            network: terms.network,
            call,
            at: terms.authorized_at,
            policy_version: Some(purchase.policy_version),
            inputs: purchase.inputs,
        })
    }

    /// A block or an escalation, on the deployment's network.
    pub fn of_refusal(refusal: LoggedRefusal, network: Network) -> Self {
        Self {
            result: refusal.result,
            reason: refusal.reason,
            checks: refusal.checks,
            operation: refusal.operation,
            amount: refusal.amount,
            pay_to: refusal.pay_to,
            network,
            call: refusal.call,
            at: refusal.at,
            policy_version: refusal.policy_version,
            inputs: refusal.inputs,
        }
    }

    fn check(&self, name: CheckName) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// Whether the reason names this rule.
    fn names(&self, rule: RuleId) -> bool {
        self.reason.ends_with(&rule.to_string())
    }

    fn has_failed(&self, name: CheckName) -> bool {
        self.check(name)
            .is_some_and(|check| check.outcome == CheckOutcome::Failed)
    }
}

/// What a decision was based on, in the versions that it names.
#[derive(Clone, Copy, Debug)]
pub struct ReplayInputs<'a> {
    /// The agent's record of [`InputVersions::agent`].
    pub agent: &'a Agent,
    /// The catalog entry of [`InputVersions::service`].
    pub service: &'a Service,
    /// The policy of [`RecordedDecision::policy_version`].
    pub enabled: Option<&'a EnabledService>,
}

/// A difference between a recorded decision and its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayDifference {
    /// What differs: `result`, `reason` or the name of a check.
    pub what: &'static str,
    /// The recorded value; of a check its outcome and its numbers.
    pub recorded: String,
    /// The value of the replay.
    pub replayed: String,
}

/// Evaluates a recorded decision again, and returns where the replay differs: an empty list means the same decision.
pub fn replay(decision: &RecordedDecision, inputs: &ReplayInputs<'_>) -> Vec<ReplayDifference> {
    let first = Replay::of(decision, inputs, false);
    // A check of the vendor that only the catalog's delay explains.
    if decision.has_failed(CheckName::Vendor) && !first.has_failed(CheckName::Vendor) {
        return Replay::of(decision, inputs, true).differences(decision);
    }
    first.differences(decision)
}

/// The result of an evaluation, as far as it is recorded.
struct Replay {
    result: Option<DecisionResult>,
    reason: String,
    checks: Vec<Check>,
}

impl Replay {
    fn of(decision: &RecordedDecision, inputs: &ReplayInputs<'_>, is_delayed: bool) -> Self {
        let ReplayInputs {
            agent,
            service,
            enabled,
        } = *inputs;
        let agent = &agent_of(decision, agent, service);
        let intent = intent_of(decision);
        let called = |operation: &&crate::Operation| {
            let request = &decision.call.request;
            Some(&operation.slug) == decision.operation.as_ref()
                && operation.takes(&request.method)
                && operation.endpoint.is_called_at(&request.url)
        };
        let used = |name| {
            decision
                .check(name)
                .and_then(|check| check.used)
                .unwrap_or(Amount::ZERO)
        };
        let day = WindowScope::Day {
            agent: agent.id,
            service: service.id,
        };
        let day = window(day, Duration::DAY, used(CheckName::Day));
        let budgets = budgets_of(decision, agent, service);
        let recent = recent_of(decision, agent, service, &intent);
        let evaluated = evaluate(&Facts {
            agent,
            intent: &intent,
            service,
            operation: service.operations.iter().find(called),
            payee_from: is_delayed.then_some(Timestamp::MAX),
            network: decision.network,
            enabled,
            day: &day,
            budgets: &budgets,
            recent: &recent,
            frozen_by_operators: freeze_of(decision, agent),
            approval: decision
                .checks
                .iter()
                .find(|check| check.outcome == CheckOutcome::Waived)
                .map(|_| ApprovalId::of(agent.id, &intent.fingerprint, 0)),
            balance: decision.check(CheckName::Balance).and_then(|check| check.limit),
            at: decision.at,
            eviction: Eviction::Needed,
        });
        match evaluated {
            Decision::Allow(grant) => Self {
                result: Some(DecisionResult::Allow),
                reason: ALLOWED_REASON.to_owned(),
                checks: grant.checks().to_vec(),
            },
            Decision::Refuse(denial) => {
                let reason = as_recorded(decision, denial.reason);
                Self {
                    result: Some(reason.result()),
                    reason: reason.text(),
                    checks: denial.checks,
                }
            }
            Decision::NeedsTarget => Self {
                result: None,
                reason: "the request names no target".to_owned(),
                checks: Vec::new(),
            },
        }
    }

    fn has_failed(&self, name: CheckName) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|check| check.name == name && check.outcome == CheckOutcome::Failed)
    }

    fn differences(&self, decision: &RecordedDecision) -> Vec<ReplayDifference> {
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
            compare(name.name(), shown(decision.check(*name)), shown(replayed));
        }
        differences
    }
}

/// An escalation is recorded as a block where too many approvals wait, which is judged after the evaluation.
fn as_recorded(decision: &RecordedDecision, reason: Reason) -> Reason {
    let too_many = Reason::PolicyBlocked(Block::TooManyApprovals { limit: 0 });
    if reason.result() == DecisionResult::Escalate && decision.reason == too_many.text() {
        too_many
    } else {
        reason
    }
}

fn shown(check: Option<&Check>) -> String {
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

/// The part of the request that the evaluation uses.
fn intent_of(decision: &RecordedDecision) -> Intent {
    let max_payment = decision.check(CheckName::MaxPayment).and_then(|check| check.limit);
    let target = decision.call.target_url.as_ref();
    Intent {
        offer: Offer::recorded(decision.amount, decision.pay_to),
        max_payment: max_payment.unwrap_or(Amount::ZERO),
        request: decision.call.request.clone(),
        service: None,
        operation: decision.operation.clone(),
        target: target.and_then(|url| Target::parse(url.as_str()).ok()),
        metadata: decision.call.metadata.clone(),
        fingerprint: Fingerprint::from_bytes([0; 32]),
    }
}

fn freeze_of(decision: &RecordedDecision, agent: &Agent) -> Option<Freeze> {
    if !decision.has_failed(CheckName::AgentActive) {
        return None;
    }
    match Freeze::from_reason(&decision.reason) {
        Some(Freeze::Own) => None,
        Some(freeze) => Some(freeze),
        None => (!agent.is_frozen()).then_some(Freeze::Deployment),
    }
}

/// The windows of the agent's rules that count payments. The recorded numbers of a kind are those of the rule with the
/// recorded limit: of several with this limit, of the one that the reason names, else of the first.
fn budgets_of(decision: &RecordedDecision, agent: &Agent, service: &Service) -> Vec<(RuleId, Window)> {
    let check_of = |rule: &CountingRule<'_>| match rule.rule.kind {
        RuleKind::CountLimit { .. } => CheckName::Count,
        RuleKind::MinimumInterval { .. } => CheckName::Interval,
        _ => CheckName::Budget,
    };
    let recorded = |name| {
        let check = decision.check(name);
        check.and_then(|check| check.limit.zip(check.used))
    };
    let tightest = |name| {
        let alike = || {
            let rules = agent.counting_rules();
            rules.filter(move |rule| {
                check_of(rule) == name
                    && rule.applies_to(&service.slug)
                    && recorded(name).is_some_and(|(limit, _)| limit == rule.limit)
            })
        };
        let named = alike().find(|rule| decision.names(rule.rule.id));
        named.or_else(|| alike().next()).map(|rule| rule.rule.id)
    };
    let windows = agent.counting_rules().map(|rule| {
        let name = check_of(&rule);
        let used = recorded(name).filter(|_| tightest(name) == Some(rule.rule.id));
        let used = used.map_or(Amount::ZERO, |(_, used)| used);
        (rule.rule.id, window(rule.scope(agent.id), rule.length, used))
    });
    windows.collect()
}

/// The rule about an operation's median price that has the recorded limit, and the median that results in this limit. Of
/// several rules with the limit, the recorded one is the one that the reason names, else one that asks.
fn median_of(decision: &RecordedDecision, agent: &Agent, service: &Service) -> Option<(RuleId, u8, Amount)> {
    let most = decision.check(CheckName::Price)?.limit?;
    let operation = decision.operation.as_ref();
    let mut operations = service.operations.iter();
    let operation = operations.find(|listed| Some(&listed.slug) == operation)?;
    let with_limit = |rule: &Rule| match rule.kind {
        RuleKind::PriceAboveUsual {
            percent, over, action, ..
        } if rule.kind.applies_to(&service.slug) => {
            let median = match over {
                UsualPrice::Catalog => {
                    (limits::highest_price(operation.price(decision.at), percent) == most).then_some(None)?
                }
                UsualPrice::Median(prices) => Some((prices, limits::usual_price_of(most, percent)?)),
            };
            Some((rule.id, action, median))
        }
        _ => None,
    };
    let alike = || agent.rules.iter().filter_map(with_limit);
    let recorded = alike().find(|(rule, ..)| decision.names(*rule));
    let recorded = recorded.or_else(|| alike().find(|(_, action, _)| *action == LimitAction::Ask));
    let (rule, _, median) = recorded.or_else(|| alike().next())?;
    median.map(|(prices, median)| (rule, prices, median))
}

/// The agent's record without the rules about median prices whose median is not recorded.
fn agent_of(decision: &RecordedDecision, agent: &Agent, service: &Service) -> Agent {
    let recorded = median_of(decision, agent, service).map(|(rule, ..)| rule);
    let mut agent = agent.clone();
    agent.rules.retain(|rule| match rule.kind {
        RuleKind::PriceAboveUsual {
            over: UsualPrice::Median(_),
            ..
        } => recorded.is_none_or(|recorded| recorded == rule.id),
        _ => true,
    });
    agent
}

/// What was remembered of the agent's recent payments to the service, as far as it is recorded.
fn recent_of(decision: &RecordedDecision, agent: &Agent, service: &Service, intent: &Intent) -> RecentPayments {
    let mut recent = RecentPayments::default();
    if let Some(check) = decision.check(CheckName::Payee)
        && check.outcome == CheckOutcome::Passed
    {
        recent.payees.push((PayeePrefix::of(decision.pay_to), decision.at));
    }
    let Some(operation) = &decision.operation else {
        return recent;
    };
    let age = decision.check(CheckName::Duplicate).and_then(|check| check.used);
    let age = age.and_then(|age| u32::try_from(age.units()).ok());
    if let Some(age) = age.map(Duration::from_secs_u32) {
        recent
            .calls
            .push((CallDigest::of(intent, operation), decision.at.before(age)));
    }
    if let Some((_, prices, median)) = median_of(decision, agent, service) {
        let paid = PaidPrices {
            at: decision.at,
            prices: vec![median; prices.into()],
        };
        recent.prices.push((OperationDigest::of(operation), paid));
    }
    recent
}

fn window(scope: WindowScope, length: Duration, used: Amount) -> Window {
    Window {
        scope,
        length,
        total: used,
        version: 0,
        stamp: 0,
        horizon: Timestamp::EPOCH,
        oldest: Vec::new(),
        complete: true,
    }
}
