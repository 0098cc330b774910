//! A backtest: what proposed limits would have decided about an agent's recorded decisions.
//!
//! A decision records the used part of only the nearest limit of each kind. The backtest therefore also computes
//! windows and recent payments from the recorded payments, and needs the payments [before the tested
//! range](Backtest::count_payment_before_test).
//!
//! Assumptions:
//! - A new rule has always been active, but only with the payees and prices of counted payments.
//! - A released payment leaves the windows at `validBefore`, because the time of the release is not recorded.
//! - A payment that only the proposed limits allow settles.
//! - Each recorded denial is one payment that the agent wanted, even if the agent repeated the request.
//! - An escalation by both limits has the recorded outcome. An escalation by only the proposed limits has both
//!   outcomes: [`BacktestResult::if_declined`] and [`BacktestResult::if_approved`].
//!
//! Invariant: a backtest of the recorded limits and a preview of the current limits find no difference.

use crate::{
    Agent, AgentId, AgentStatus, Amount, ApprovalId, CallDigest, Category, CheckName, CountingRule, DecisionResult,
    DuplicateGuard, Duration, EnabledService, KeyId, LimitAction, MAX_BUDGET_WINDOW, NewPayee, Operation,
    OperationDigest, OperationSlug, PayeePrefix, RecentPayments, RecordedDecision, RememberedPayments, ReplayInputs,
    Rule, RuleId, RuleKind, Service, ServiceId, ServiceSlug, Settlement, SettlementState, Timestamp, TransactionId,
    WindowMeasure, WindowPeriod, pairs,
    policy::replay::{
        EvaluationResult, Limits, RecordedInputs, ReplayedRecentPayments, Tightest, check_name_for_rule,
        recorded_tightest_rule, rules_of_check,
    },
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter;

/// The limits to test. A field that is `None` or absent keeps the recorded limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProposedLimits {
    /// The rules that replace all rules of the agent.
    pub rules: Option<Vec<Rule>>,
    /// Whether the agent is active or frozen; `None` keeps the recorded status. An archived agent is frozen.
    pub status: Option<AgentStatus>,
    /// The proposed policies, by service.
    pub policies: BTreeMap<ServiceId, EnabledService>,
}

impl ProposedLimits {
    /// Returns how much earlier than the tested range the backtest must read payments: at least one day. `current`
    /// contains the agent's current rules.
    pub fn required_lookback(&self, current: &[Rule]) -> Duration {
        let rules = self.rules.as_deref().unwrap_or(current).iter();
        let lengths = rules.map(|rule| match &rule.kind {
            RuleKind::DuplicateGuard(guard) => guard.within,
            _ if rule.kind.needs_recent_payments() => MAX_BUDGET_WINDOW,
            // Decisions record the used part of recorded rules' windows, so no earlier payments are needed.
            _ if self.rules.is_none() => Duration::DAY,
            _ => rule
                .kind
                .counted_limit()
                .map_or(Duration::DAY, |(.., period)| period.max_duration()),
        });
        lengths.fold(Duration::DAY, Duration::max)
    }

    /// Returns whether the agent's provider call may affect a decision about this operation: because a policy
    /// limits the pages that the operation fetches, or because a new duplicate guard compares calls.
    pub fn may_depend_on_call_details(&self, inputs: &ReplayInputs<'_>, operation: &OperationSlug) -> bool {
        let service = inputs.service;
        let fetches = |operation: &Operation| operation.fetches_target(service.category);
        let policies = [inputs.enabled, self.policies.get(&service.id)];
        let limits = |enabled: &EnabledService| !enabled.policy.allows_any_domain();
        let judges_target =
            service.find_operation(operation).is_some_and(fetches) && policies.into_iter().flatten().any(limits);
        judges_target || self.adds_duplicate_guard(inputs.agent, service)
    }

    /// Returns whether the proposed rules contain a duplicate guard for this service that the agent did not have.
    pub fn adds_duplicate_guard(&self, agent: &Agent, service: &Service) -> bool {
        let is_new = |rule: &Rule| {
            let mut known = agent.rules.iter();
            !known.any(|known| known.id == rule.id && known.kind == rule.kind)
        };
        let mut rules = self.rules.iter().flatten();
        rules.any(|rule| rule.kind.is_kind::<DuplicateGuard>() && rule.kind.applies_to(service) && is_new(rule))
    }

    /// Returns whether a proposed budget, count limit or interval is limited to some services or categories.
    pub fn has_service_specific_counting_rule(&self) -> bool {
        let mut rules = self.rules.iter().flatten();
        rules.any(|rule| rule.kind.counted_limit().is_some() && is_service_specific(&rule.kind))
    }

    /// Returns whether a proposed rule compares a payment with recent payments. Without proposed rules,
    /// returns `true`, because the recorded rules may need recent payments.
    fn uses_recent_payments(&self) -> bool {
        let remember = |rules: &Vec<Rule>| rules.iter().any(|rule| rule.kind.needs_recent_payments());
        self.rules.as_ref().is_none_or(remember)
    }

    pub(super) fn apply_to_agent(&self, agent: &Agent) -> Agent {
        Agent {
            rules: self.rules.as_ref().unwrap_or(&agent.rules).clone(),
            status: self.status.unwrap_or(agent.status),
            ..agent.clone()
        }
    }
}

/// An authorized payment in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastPayment {
    /// The service that was paid.
    pub service: ServiceId,
    /// The agent key that sent the request.
    pub key: KeyId,
    /// The amount of the payment, in micro-USDC.
    pub amount: Amount,
    /// The time at which the payment was authorized.
    pub at: Timestamp,
    /// The `valid_before` of a released payment; `None` if the payment was not released.
    pub released_at: Option<Timestamp>,
    /// The time at which the payment was confirmed; `None` if it was not confirmed.
    pub paid_at: Option<Timestamp>,
    /// The prefix of the address that was paid.
    pub payee: PayeePrefix,
    /// The digest of the operation that was called.
    pub operation: OperationDigest,
    /// The digest of the call; `None` if the call is unknown.
    pub call: Option<CallDigest>,
}

impl PastPayment {
    /// Creates the payment of a settlement; `None` for a withdrawal, which no window counts.
    pub fn from_settlement(settlement: &Settlement) -> Option<Self> {
        let terms = &settlement.terms;
        let is_released = settlement.state == SettlementState::Expired;
        let purchase = terms.purchase()?;
        Some(Self {
            service: purchase.service,
            key: purchase.key,
            amount: terms.amount,
            at: terms.authorized_at,
            released_at: is_released.then_some(terms.valid_before),
            paid_at: settlement.settled_at(),
            payee: PayeePrefix::from_address(terms.pay_to),
            operation: OperationDigest::from_slug(&purchase.operation),
            call: Some(purchase.scope.call),
        })
    }

    /// Returns the time from which a window of this period no longer counts the payment.
    fn window_expiry_time(&self, period: WindowPeriod) -> Timestamp {
        let end = period.end(self.at).unwrap_or(Timestamp::MAX);
        self.released_at.map_or(end, |released| released.min(end))
    }
}

/// A recorded decision for a backtest.
#[derive(Clone, Copy, Debug)]
pub struct BacktestDecision<'a> {
    /// The decision as it was recorded.
    pub decision: &'a RecordedDecision,
    /// The recorded inputs of the decision.
    pub inputs: ReplayInputs<'a>,
    /// The transaction id of the decision.
    pub transaction: TransactionId,
    /// The approval that the decision requested or used.
    pub approval: Option<ApprovalId>,
    /// The `valid_before` of a released payment; `None` if the payment was not released.
    pub released_at: Option<Timestamp>,
    /// The time at which an allowed payment was confirmed; `None` if it was not confirmed.
    pub paid_at: Option<Timestamp>,
    /// Whether `decision` has the provider call as the agent described it. If `false`, the call was not read,
    /// and `decision` has a call without the agent's data.
    pub has_call: bool,
}

impl BacktestDecision<'_> {
    fn past_payment(&self, inputs: &RecordedInputs<'_>) -> PastPayment {
        let decision = self.decision;
        let operation = decision.operation.as_ref();
        PastPayment {
            service: self.inputs.service.id,
            key: decision.key,
            amount: decision.amount,
            at: decision.at,
            released_at: self.released_at,
            paid_at: self.paid_at,
            payee: PayeePrefix::from_address(decision.pay_to),
            // A decision without an operation never allows a payment.
            operation: operation.map_or(OperationDigest([0; 8]), OperationDigest::from_slug),
            call: inputs.call_digest().filter(|_| self.has_call),
        }
    }
}

/// How the decisions under the proposed limits differ from the recorded decisions, or in a preview from the decisions
/// under the current limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differences {
    /// The number of decisions, by recorded and proposed result.
    #[serde(with = "pairs")]
    pub counts: BTreeMap<(DecisionResult, DecisionResult), u64>,
    /// The changed decisions, grouped by the recorded result, the result under the proposed limits, and the reason.
    #[serde(with = "pairs")]
    pub flips: BTreeMap<ChangedDecisionKind, ChangedDecisions>,
    /// The number of decisions that have the same result under the proposed limits, but another reason.
    pub other_reasons: u64,
    /// The sum of the recorded payments that would not be made under the proposed limits, in micro-USDC.
    pub saved: u64,
    /// The sum of the payments that would be made only under the proposed limits, in micro-USDC.
    pub added: u64,
}

/// The properties by which changed decisions are grouped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangedDecisionKind {
    /// The recorded result; in a preview, the result under the current limits.
    pub recorded: DecisionResult,
    /// The result under the proposed limits.
    pub tested: DecisionResult,
    /// The reason for which the proposed limits block or escalate the payment. If the proposed limits allow the
    /// payment, the recorded reason.
    pub reason: String,
}

/// The changed decisions of one group ([`ChangedDecisionKind`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedDecisions {
    /// The number of decisions in the group.
    pub count: u64,
    /// The sum of the amounts of the group's payments, in micro-USDC.
    pub amount: u64,
    /// The newest decision of the group.
    pub example: ChangedDecisionExample,
}

/// A decision of a group, as an example in the result of a backtest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedDecisionExample {
    /// The agent whose payment the decision concerns.
    pub agent: AgentId,
    /// The transaction id of the decision.
    pub transaction: TransactionId,
    /// The time of the recorded decision.
    pub at: Timestamp,
    /// The service that the agent wanted to pay.
    pub service: ServiceId,
    /// The amount that the agent wanted to pay.
    pub amount: Amount,
}

impl Differences {
    /// The maximum number of groups of changed decisions. Further changes use the group [`Differences::OTHER_REASON`].
    pub const MAX_KINDS: usize = 200;
    /// The reason of the last group, which contains all changed decisions that do not fit into the other groups.
    pub const OTHER_REASON: &str = "other_reasons";

    /// Returns whether all results, reasons and payments are the same under the proposed limits.
    pub fn is_empty(&self) -> bool {
        self.flips.is_empty() && self.other_reasons == 0 && self.saved == 0 && self.added == 0
    }

    /// Returns the number of decisions with another result under the proposed limits.
    pub fn count_changed(&self) -> u64 {
        self.flips
            .values()
            .fold(0, |sum, changed_decisions| sum.saturating_add(changed_decisions.count))
    }

    fn add(&mut self, other: &Self) {
        for (results, count) in &other.counts {
            let sum = self.counts.entry(*results).or_default();
            *sum = sum.saturating_add(*count);
        }
        for (kind, changed_decisions) in &other.flips {
            self.add_changed_decisions(kind.clone(), changed_decisions.clone());
        }
        self.other_reasons = self.other_reasons.saturating_add(other.other_reasons);
        self.saved = self.saved.saturating_add(other.saved);
        self.added = self.added.saturating_add(other.added);
    }

    fn add_changed_decisions(&mut self, mut kind: ChangedDecisionKind, changed_decisions: ChangedDecisions) {
        if self.flips.len() >= Self::MAX_KINDS && !self.flips.contains_key(&kind) {
            Self::OTHER_REASON.clone_into(&mut kind.reason);
        }
        let Some(sum) = self.flips.get_mut(&kind) else {
            self.flips.insert(kind, changed_decisions);
            return;
        };
        sum.count = sum.count.saturating_add(changed_decisions.count);
        sum.amount = sum.amount.saturating_add(changed_decisions.amount);
        if changed_decisions.example.at >= sum.example.at {
            sum.example = changed_decisions.example;
        }
    }

    fn add_difference(&mut self, decision: &BacktestDecision<'_>, before: &Outcome, after: &Outcome) {
        let units = decision.decision.amount.units();
        match (before.paid, after.paid) {
            (Paid::Now, Paid::No) => self.saved = self.saved.saturating_add(units),
            (Paid::No, Paid::Now) => self.added = self.added.saturating_add(units),
            // The limits with `Earlier` allowed the payment at the agent's first request, when the difference
            // was counted. The other limits allow the payment now, so the difference is subtracted again.
            (Paid::Now, Paid::Earlier) => self.added = self.added.saturating_sub(units),
            (Paid::Earlier, Paid::Now) => self.saved = self.saved.saturating_sub(units),
            _ => {}
        }
        let results = (before.result, after.result);
        let count = self.counts.entry(results).or_default();
        *count = count.saturating_add(1);
        if before.result == after.result {
            let is_same = before.reason == after.reason;
            self.other_reasons = self.other_reasons.saturating_add(u64::from(!is_same));
            return;
        }
        let reason = match after.result {
            DecisionResult::Allow => &before.reason,
            _ => &after.reason,
        };
        let kind = ChangedDecisionKind {
            recorded: before.result,
            tested: after.result,
            reason: reason.clone(),
        };
        let changed_decisions = ChangedDecisions {
            count: 1,
            amount: units,
            example: ChangedDecisionExample {
                agent: decision.inputs.agent.id,
                transaction: decision.transaction,
                at: decision.decision.at,
                service: decision.inputs.service.id,
                amount: decision.decision.amount,
            },
        };
        self.add_changed_decisions(kind, changed_decisions);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paid {
    No,
    Now,
    /// The simulated limits allowed the agent's first request, so the payment was counted at that time.
    Earlier,
}

/// A decision's result, as recorded or under simulated limits.
#[derive(Clone, Debug)]
struct Outcome {
    result: DecisionResult,
    reason: String,
    paid: Paid,
}

impl Outcome {
    fn from_recorded(decision: &RecordedDecision) -> Self {
        Self {
            result: decision.result,
            reason: decision.reason.clone(),
            paid: match decision.result {
                DecisionResult::Allow => Paid::Now,
                _ => Paid::No,
            },
        }
    }
}

/// The result of a backtest: the number of tested decisions and the differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacktestResult {
    /// The number of tested decisions.
    pub decisions: u64,
    /// The number of decisions that could not be tested and are assumed to stay as recorded.
    pub untested: u64,
    /// The authorized sum of the tested payments, in micro-USDC.
    pub authorized: u64,
    /// The differences under the assumption that users decline all payments that only the proposed limits escalate.
    pub if_declined: Differences,
    /// The differences under the assumption that users immediately approve all payments that only the proposed limits
    /// escalate.
    pub if_approved: Differences,
}

impl BacktestResult {
    /// Adds another agent's result to this result.
    pub fn add(&mut self, other: &Self) {
        self.decisions = self.decisions.saturating_add(other.decisions);
        self.untested = self.untested.saturating_add(other.untested);
        self.authorized = self.authorized.saturating_add(other.authorized);
        self.if_declined.add(&other.if_declined);
        self.if_approved.add(&other.if_approved);
    }
}

/// A backtest of one agent's recorded decisions under proposed limits.
#[derive(Clone, Debug)]
pub struct Backtest {
    proposed: Simulation,
    /// The simulation of the current limits, with which a preview compares the proposed limits. `None` in a backtest,
    /// which compares the proposed limits with the recorded decisions.
    current: Option<Simulation>,
    /// The services of the tested decisions and of the counted payments.
    services: BTreeMap<ServiceId, (ServiceSlug, Category)>,
    /// The payments that the agent actually made, according to the recorded decisions.
    recorded_payments: Payments,
    /// The recent payments (calls, payees and prices) with which rules compare a payment, built from the recorded
    /// payments. Empty if no rule needs recent payments.
    remembered: RememberedPayments,
    remembers: bool,
    result: BacktestResult,
}

impl Backtest {
    /// Creates a backtest that compares proposed limits with the recorded decisions.
    pub fn new(candidate: ProposedLimits) -> Self {
        Self {
            remembers: candidate.uses_recent_payments(),
            proposed: Simulation::new(candidate),
            current: None,
            services: BTreeMap::new(),
            recorded_payments: Payments::default(),
            remembered: RememberedPayments::default(),
            result: BacktestResult::default(),
        }
    }

    /// Creates a preview, which evaluates the same decisions under the current and the proposed limits.
    pub fn for_update(current: ProposedLimits, proposed_limits: ProposedLimits) -> Self {
        Self {
            remembers: current.uses_recent_payments() || proposed_limits.uses_recent_payments(),
            current: Some(Simulation::new(current)),
            ..Self::new(proposed_limits)
        }
    }

    /// Returns the proposed limits and, in a preview, the current limits.
    pub fn compared_limits(&self) -> impl Iterator<Item = &ProposedLimits> {
        iter::once(&self.proposed)
            .chain(&self.current)
            .map(|item| &item.candidate)
    }

    /// Registers a service's slug and category, to which rules refer. Payments contain only the service id.
    pub fn register_service(&mut self, service: &Service) {
        let known = self.services.get(&service.id);
        if known.is_none_or(|(slug, category)| (slug, *category) != (&service.slug, service.category)) {
            let scope = (service.slug.clone(), service.category);
            self.services.insert(service.id, scope);
        }
    }

    /// Adds earlier payments that are not recorded, but that the recorded checks of a decision imply: a payment to a
    /// known payee, or a payment for a repeated call.
    fn add_implied_earlier_payments(&mut self, inputs: &RecordedInputs<'_>, payment: &PastPayment) {
        let (recorded, real) = (
            inputs.recorded_recent_payments(),
            self.remembered.payments_to_service(payment.service),
        );
        let payee = recorded.has_paid(payment.payee) && !real.has_paid(payment.payee);
        let payee = payee.then_some((payment.payee, payment.at));
        let call = payment.call.filter(|call| real.last_call_time(*call).is_none());
        let call = call.and_then(|call| Some((call, recorded.last_call_time(call)?)));
        if payee.is_none() && call.is_none() {
            return;
        }
        for remembered in self.all_recent_payments_mut() {
            let recent = remembered.payments_to_service_mut(payment.service);
            recent.payees.extend(payee);
            recent.calls.extend(call);
        }
    }

    fn all_recent_payments_mut(&mut self) -> impl Iterator<Item = &mut RememberedPayments> {
        let simulations = iter::once(&mut self.proposed).chain(&mut self.current);
        let tracks = simulations.flat_map(|item| [&mut item.declined.remembered, &mut item.approved.remembered]);
        iter::once(&mut self.remembered).chain(tracks)
    }

    /// Counts a payment that was made before the tested range. The caller must add payments in chronological order.
    pub fn count_payment_before_test(&mut self, payment: PastPayment) {
        self.recorded_payments.add(payment);
        if self.remembers {
            for remembered in self.all_recent_payments_mut() {
                remembered.add(&payment);
            }
        }
    }

    /// Records a decision that can't be tested. `allowed_payment` is the decision's payment, if the decision allowed a payment.
    pub fn record_untested_decision(&mut self, allowed_payment: Option<PastPayment>) {
        self.result.untested = self.result.untested.saturating_add(1);
        if let Some(payment) = allowed_payment {
            self.count_payment_before_test(payment);
        }
    }

    /// Tests a decision. The caller must test decisions in chronological order.
    pub fn test_decision(&mut self, decision: &BacktestDecision<'_>) {
        let ReplayInputs { agent, service, .. } = decision.inputs;
        let (mut inputs, replayed) = RecordedInputs::replay_with_recorded_limits(decision.decision, &decision.inputs);
        let payment = decision.past_payment(&inputs);
        let allowed = (decision.decision.result == DecisionResult::Allow).then_some(payment);
        self.register_service(service);
        if !replayed.is_as_recorded(decision.decision) {
            return self.record_untested_decision(allowed);
        }
        self.result.decisions = self.result.decisions.saturating_add(1);
        if allowed.is_some() && decision.approval.is_some() {
            inputs.mark_payment_as_approved();
        }
        if self.remembers {
            for remembered in self.all_recent_payments_mut() {
                remembered.apply_changes_until(payment.at);
            }
            self.add_implied_earlier_payments(&inputs, &payment);
        }
        let recorded = SimulatedRecord {
            of: decision,
            facts: &inputs,
            payment,
            tightest: [CheckName::Budget, CheckName::Count, CheckName::Interval]
                .map(|name| (name, recorded_tightest_rule(decision.decision, agent, service, name))),
            services: &self.services,
            remembered: self.remembers.then_some(&self.remembered),
        };
        let [declined, approved] = match &mut self.current {
            Some(current) => current.simulate_decision(&recorded, &mut self.recorded_payments),
            None => [(); 2].map(|()| Outcome::from_recorded(decision.decision)),
        };
        let [if_declined, if_approved] = self.proposed.simulate_decision(&recorded, &mut self.recorded_payments);
        self.result
            .if_declined
            .add_difference(decision, &declined, &if_declined);
        self.result
            .if_approved
            .add_difference(decision, &approved, &if_approved);
        if let Some(payment) = allowed {
            self.result.authorized = self.result.authorized.saturating_add(payment.amount.units());
            self.recorded_payments.add(payment);
            if self.remembers {
                self.remembered.add(&payment);
            }
        }
    }

    /// Returns the differences between the decisions that were tested so far.
    pub fn result_so_far(&self) -> BacktestResult {
        self.result.clone()
    }
}

#[derive(Clone, Debug)]
struct Simulation {
    candidate: ProposedLimits,
    /// The previous decision's agent with the simulated limits, reused for the same version of the agent.
    agent: Option<Agent>,
    declined: SimulationTrack,
    approved: SimulationTrack,
}

impl Simulation {
    fn new(candidate: ProposedLimits) -> Self {
        Self {
            candidate,
            agent: None,
            declined: SimulationTrack::default(),
            approved: SimulationTrack {
                is_approved: true,
                ..SimulationTrack::default()
            },
        }
    }

    /// Returns two outcomes of the decision under the simulated limits. Both differ in the payments that only the
    /// simulated limits escalate: users decline these payments for the first outcome, and approve these payments for
    /// the second outcome.
    fn simulate_decision(&mut self, decision: &SimulatedRecord<'_>, recorded_payments: &mut Payments) -> [Outcome; 2] {
        let inputs = &decision.of.inputs;
        let agent = match self.agent.take() {
            Some(agent) if agent.version == inputs.agent.version => agent,
            _ => self.candidate.apply_to_agent(inputs.agent),
        };
        let policy = self.candidate.policies.get(&inputs.service.id);
        let input = ProposedDecision {
            recorded: decision,
            agent: &agent,
            enabled: policy.or(inputs.enabled),
        };
        let outcomes = [
            self.declined.evaluate_proposed_decision(&input, recorded_payments),
            self.approved.evaluate_proposed_decision(&input, recorded_payments),
        ];
        self.agent = Some(agent);
        outcomes
    }
}

struct ProposedDecision<'a> {
    recorded: &'a SimulatedRecord<'a>,
    agent: &'a Agent,
    enabled: Option<&'a EnabledService>,
}

struct SimulatedRecord<'a> {
    of: &'a BacktestDecision<'a>,
    facts: &'a RecordedInputs<'a>,
    payment: PastPayment,
    tightest: [(CheckName, Option<Tightest>); 3],
    services: &'a BTreeMap<ServiceId, (ServiceSlug, Category)>,
    /// The recent payments (calls, payees and prices), built from the recorded payments. `None` if no rule needs recent
    /// payments.
    remembered: Option<&'a RememberedPayments>,
}

impl SimulatedRecord<'_> {
    /// Returns how much of a rule's limit the agent's recorded payments used, before the simulation adds
    /// payments or leaves payments out.
    fn recorded_usage(&self, rule: &CountingRule<'_>, recorded_payments: &mut Payments) -> Amount {
        let (at, inputs) = (self.of.decision.at, &self.of.inputs);
        let name = check_name_for_rule(&rule.rule.kind);
        let is_same = |item: &CountingRule<'_>| {
            item.rule.id == rule.rule.id
                && item.period == rule.period
                && item.rule.kind.scope() == rule.rule.kind.scope()
        };
        let recorded = || rules_of_check(inputs.agent, inputs.service, self.of.decision.key, name);
        let own = recorded().enumerate().find(|(_, item)| is_same(item));
        let tightest = self.tightest.iter().find(|(of, _)| *of == name);
        let (Some((place, own)), Some(tightest)) = (own, tightest.and_then(|(_, tightest)| *tightest)) else {
            return self.window_sum(rule, recorded_payments, at);
        };
        if own.rule.id == tightest.rule {
            return tightest.used;
        }
        if own.action() == LimitAction::Ask {
            // A check prefers an exceeded rule that blocks to an exceeded rule that requires approval, so the
            // recorded amounts give no bound for `rule`.
            return self.window_sum(rule, recorded_payments, at);
        }
        // The check recorded the first rule with the least remaining amount. So `rule` had at least that
        // amount remaining, and more if `rule` comes before the recorded rule.
        let is_later = recorded()
            .position(|item| item.rule.id == tightest.rule)
            .is_some_and(|tightest| tightest < place);
        let left = tightest.limit.saturating_minus(tightest.used);
        let left = if is_later { left } else { left.plus(ONE).unwrap_or(left) };
        self.window_sum(rule, recorded_payments, at)
            .min(own.limit.saturating_minus(left))
    }

    fn window_sum(&self, rule: &CountingRule<'_>, payments: &mut Payments, at: Timestamp) -> Amount {
        let kind = &rule.rule.kind;
        let services: Vec<Option<ServiceId>> = if is_service_specific(kind) {
            let scopes = self.services.iter();
            let counted = scopes.filter(|(_, (slug, category))| kind.includes(slug, *category));
            counted.map(|(service, _)| Some(*service)).collect()
        } else {
            vec![None]
        };
        let keys = kind.scope().keys;
        let keys: Vec<Option<KeyId>> = keys.map_or_else(|| vec![None], |keys| keys.iter().copied().map(Some).collect());
        let spans = services
            .iter()
            .flat_map(|service| keys.iter().map(move |key| (*service, *key)));
        let payee = kind.scope().per_payee.then_some(self.payment.payee);
        let spans = spans.map(|(service, key)| WindowSpan {
            service,
            key,
            payee,
            period: rule.period,
            counted: rule.counted,
        });
        spans.fold(Amount::ZERO, |sum, span| {
            sum.plus(payments.window_sum(span, at)).unwrap_or(Amount::MAX)
        })
    }
}

fn is_service_specific(rule: &RuleKind) -> bool {
    let scope = rule.scope();
    scope.services.is_some() || scope.categories.is_some()
}

const ONE: Amount = match Amount::from_units(1) {
    Some(one) => one,
    None => Amount::ZERO,
};

/// The simulated payments, for one assumption about the payments that only the simulated limits escalate: users approve
/// all of these payments, or users decline all of these payments.
#[derive(Clone, Debug, Default)]
struct SimulationTrack {
    is_approved: bool,
    /// The payments that would be made only under the simulated limits.
    added: Payments,
    /// The recorded payments that would not be made under the simulated limits.
    left_out: Payments,
    /// The recent payments under the simulated limits.
    remembered: RememberedPayments,
    /// The recorded approval requests that the simulated limits made unnecessary, each with the time at which
    /// the simulation counted the payment. The later payment with the approval must not count again.
    unasked: BTreeMap<ApprovalId, Timestamp>,
}

impl SimulationTrack {
    fn evaluate_proposed_decision(
        &mut self,
        proposed_decision: &ProposedDecision<'_>,
        recorded_payments: &mut Payments,
    ) -> Outcome {
        let ProposedDecision { recorded, agent, .. } = proposed_decision;
        let SimulatedRecord { of, payment, .. } = recorded;
        let (decision, service) = (of.decision, of.inputs.service);
        let day = decision.daily_usage();
        let day_span = WindowSpan::for_daily_cap(service.id);
        let day = day.unwrap_or_else(|| recorded_payments.window_sum(day_span, decision.at));
        let changed = |used: Amount, added: Amount, left_out: Amount| {
            used.plus(added).unwrap_or(Amount::MAX).saturating_minus(left_out)
        };
        let rules = agent.counting_rules();
        let windows = rules.filter(|rule| rule.applies_to(service, payment.key)).map(|rule| {
            let used = recorded.recorded_usage(&rule, recorded_payments);
            let added = recorded.window_sum(&rule, &mut self.added, decision.at);
            let left_out = recorded.window_sum(&rule, &mut self.left_out, decision.at);
            (rule.rule.id, changed(used, added, left_out))
        });
        let windows: Vec<(RuleId, Amount)> = windows.collect();
        let recent = recorded
            .remembered
            .map(|real| self.recent_payments(proposed_decision, real))
            .unwrap_or_default();
        let limits = Limits {
            agent,
            enabled: proposed_decision.enabled,
            day: changed(
                day,
                self.added.window_sum(day_span, decision.at),
                self.left_out.window_sum(day_span, decision.at),
            ),
            windows: &windows,
            recent: Some(&recent),
        };
        if decision.result == DecisionResult::Allow
            && of
                .approval
                .is_some_and(|approval| self.unasked.remove(&approval).is_some())
        {
            self.left_out.add(*payment);
            return Outcome {
                paid: Paid::Earlier,
                ..Outcome::from_recorded(decision)
            };
        }
        let EvaluationResult { result, reason, .. } = recorded.facts.evaluate_under(&limits);
        // No result means that the policy limits the fetched pages and the request names no page. The handler
        // of authorize rejects such a request, so no payment is made.
        let result = result.unwrap_or(DecisionResult::Block);
        let pays = match (decision.result, result) {
            (_, DecisionResult::Allow) => true,
            (DecisionResult::Escalate, DecisionResult::Escalate) => false,
            (_, DecisionResult::Escalate) => self.is_approved,
            _ => false,
        };
        let was_paid = decision.result == DecisionResult::Allow;
        let settled = PastPayment {
            released_at: None,
            paid_at: Some(payment.at),
            ..*payment
        };
        if pays && recorded.remembered.is_some() {
            self.remembered.add(if was_paid { payment } else { &settled });
        }
        match (was_paid, pays) {
            (true, true) | (false, false) => {}
            (true, false) => self.left_out.add(*payment),
            (false, true) => {
                self.added.add(settled);
                if let (DecisionResult::Escalate, Some(approval)) = (decision.result, of.approval) {
                    let cut = decision.at.before(MAX_BUDGET_WINDOW);
                    self.unasked.retain(|_, at| *at > cut);
                    self.unasked.insert(approval, decision.at);
                }
            }
        }
        Outcome {
            result,
            reason,
            paid: if pays { Paid::Now } else { Paid::No },
        }
    }

    /// Returns the recent calls, payees and prices with which the simulated rules compare this decision's
    /// payment. Each value comes from the decision's record, or from the simulated payments if a rule that
    /// compares the value is not recorded or if the simulation changed the value.
    fn recent_payments(
        &self,
        decision: &ProposedDecision<'_>,
        recorded_payments: &RememberedPayments,
    ) -> ReplayedRecentPayments {
        let PastPayment {
            service,
            payee,
            operation,
            call,
            at,
            ..
        } = decision.recorded.payment;
        let (recorded, real, own) = (
            decision.recorded.facts.recorded_recent_payments(),
            recorded_payments.payments_to_service(service),
            self.remembered.payments_to_service(service),
        );
        let inputs = decision.recorded.of.inputs;
        let were_in_force = |is_of_kind: fn(&RuleKind) -> bool| {
            let mut rules = decision.agent.rules.iter();
            rules.all(|rule| {
                !is_of_kind(&rule.kind)
                    || !rule.kind.applies_to(inputs.service)
                    || decision.recorded.facts.is_rule_recorded(rule)
            })
        };
        let mut payments = RecentPayments::default();
        let last = |recent: &RecentPayments| call.and_then(|call| recent.last_call_time(call));
        if were_in_force(RuleKind::is_kind::<DuplicateGuard>) && last(real) == last(own) {
            payments.calls.clone_from(&recorded.calls);
        } else {
            payments.calls.extend(call.zip(last(own)));
        }
        let (was_paid, is_paid) = (real.has_paid(payee), own.has_paid(payee));
        if were_in_force(RuleKind::is_kind::<NewPayee>) && was_paid == is_paid {
            payments.payees.clone_from(&recorded.payees);
        } else {
            payments.payees.extend(is_paid.then_some((payee, at)));
        }
        let has_recorded_prices = were_in_force(RuleKind::uses_median_price)
            && real.operation_prices(operation) == own.operation_prices(operation);
        if has_recorded_prices {
            payments.prices.clone_from(&recorded.prices);
        } else {
            let prices = own.prices.iter().filter(|(known, _)| *known == operation);
            payments.prices.extend(prices.cloned());
        }
        ReplayedRecentPayments {
            payments,
            has_recorded_prices,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WindowSpan {
    service: Option<ServiceId>,
    key: Option<KeyId>,
    payee: Option<PayeePrefix>,
    period: WindowPeriod,
    counted: WindowMeasure,
}

impl WindowSpan {
    const fn for_daily_cap(service: ServiceId) -> Self {
        Self {
            service: Some(service),
            key: None,
            payee: None,
            period: WindowPeriod::DAY,
            counted: WindowMeasure::Amounts,
        }
    }

    fn includes(&self, payment: &PastPayment) -> bool {
        self.service.is_none_or(|service| service == payment.service)
            && self.key.is_none_or(|key| key == payment.key)
            && self.payee.is_none_or(|payee| payee == payment.payee)
    }
}

#[derive(Clone, Debug, Default)]
struct Payments {
    payments: Vec<PastPayment>,
    sums: BTreeMap<WindowSpan, RollingSum>,
}

impl Payments {
    fn add(&mut self, payment: PastPayment) {
        self.payments.push(payment);
        for (span, sum) in &mut self.sums {
            sum.remove_expired(payment.at);
            if span.includes(&payment) {
                sum.add(&payment, *span);
            }
        }
    }

    fn window_sum(&mut self, span: WindowSpan, at: Timestamp) -> Amount {
        let payments = &self.payments;
        let sum = self.sums.entry(span).or_insert_with(|| {
            let mut sum = RollingSum::default();
            for payment in payments.iter().filter(|payment| span.includes(payment)) {
                sum.add(payment, span);
            }
            sum
        });
        sum.remove_expired(at);
        sum.total()
    }
}

#[derive(Clone, Debug, Default)]
struct RollingSum {
    /// The amounts of the payments in the window, by the time at which the payment leaves the window. The sequence
    /// number distinguishes payments that leave the window at the same time.
    leaving: BTreeMap<(Timestamp, u64), Amount>,
    units: u128,
    next: u64,
}

impl RollingSum {
    fn add(&mut self, payment: &PastPayment, span: WindowSpan) {
        let counted = span.counted.payment_units(payment.amount);
        self.leaving
            .insert((payment.window_expiry_time(span.period), self.next), counted);
        self.next = self.next.saturating_add(1);
        self.units = self.units.saturating_add(counted.units().into());
    }

    fn remove_expired(&mut self, at: Timestamp) {
        while let Some(first) = self.leaving.first_entry() {
            if first.key().0 > at {
                break;
            }
            self.units = self.units.saturating_sub(first.remove().units().into());
        }
    }

    fn total(&self) -> Amount {
        let units = u64::try_from(self.units).ok();
        units.and_then(Amount::from_units).unwrap_or(Amount::MAX)
    }
}
