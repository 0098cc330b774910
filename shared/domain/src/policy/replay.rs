//! Replay: a recorded decision is evaluated again from what is stored.
//!
//! The agent's record with its rules, the policy and the catalog entry are read in the versions of the decision. The
//! amounts are those that its checks recorded: the used part of each limit, the balance, and the request's own limit. Of
//! several budgets a check records the one with the least left; the others had at least as much left, so they are
//! replayed as unused.
//!
//! Three facts have no version, and are derived from the checks: an operators' freeze, where the agent's status failed
//! although its own record is active; the catalog's delay of a new payee, where the vendor failed and everything else
//! about it passes; and the use of an approval, where that check was waived. So a replay shows that the engine judges
//! these facts as before. It doesn't show that there was such a freeze, delay or approval: freezes are in the audit log,
//! and an approval names its settlement.
//!
//! `retry_at` is not replayed, since the entries of the windows are not recorded.

use crate::{
    ALLOWED_REASON, Agent, Amount, ApprovalId, Block, CallDescription, Check, CheckName, CheckOutcome, Decision,
    DecisionResult, Duration, EnabledService, Eviction, Facts, Fingerprint, Freeze, InputVersions, Intent,
    LoggedRefusal, Network, Offer, OperationSlug, Purpose, Reason, RuleId, Service, Settlement, Target, Timestamp,
    Window, WindowScope, evaluate,
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
        let budgets = budgets_of(decision, agent);
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
            frozen_by_operators: freeze_of(decision, agent),
            approval: decision
                .check(CheckName::Approval)
                .filter(|check| check.outcome == CheckOutcome::Waived)
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

/// The windows of the agent's budgets. The recorded numbers are those of the budget with the recorded limit: of several
/// with this limit, of the one that the reason names, else of the first.
fn budgets_of(decision: &RecordedDecision, agent: &Agent) -> Vec<(RuleId, Window)> {
    let recorded = decision
        .check(CheckName::Budget)
        .and_then(|check| check.limit.zip(check.used));
    let is_named = |rule: RuleId| decision.reason.ends_with(&rule.to_string());
    let alike = || {
        agent
            .budgets()
            .filter(|budget| recorded.is_some_and(|(limit, _)| limit == budget.limit))
    };
    let tightest = alike()
        .find(|budget| is_named(budget.rule.id))
        .or_else(|| alike().next())
        .map(|budget| budget.rule.id);
    let windows = agent.budgets().map(|budget| {
        let used = recorded.filter(|_| tightest == Some(budget.rule.id));
        let used = used.map_or(Amount::ZERO, |(_, used)| used);
        (budget.rule.id, window(budget.scope(agent.id), budget.length, used))
    });
    windows.collect()
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
