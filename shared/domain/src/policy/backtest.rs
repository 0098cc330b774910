//! Backtest: what other limits would have decided about the recorded decisions of an agent.
//!
//! A [`Backtest`] folds decisions in the order of time. Each is evaluated by the one engine, as a replay does
//! ([`crate::replay`]), with the candidate's limits in place of the recorded ones. What a candidate does not name stays
//! as it was recorded at that time.
//!
//! A flip changes every later window, so each window is that of the candidate: the recorded use, and what the candidate
//! would have added and left out within the window's length. A day's use is recorded in every decision. Of several
//! budgets, a decision records the one with the least left, so the others had at least as much left. The use of a
//! budget that the decision did not have is the sum of the real payments, for which payments before the range are
//! [counted](Backtest::count) first.
//!
//! Assumptions:
//! - the numbers of payments, repeated calls, payees and median prices are those that were recorded, so a rule about them
//!   is only judged where the agent had the same rule ([`Candidate::untested_kinds`]);
//! - a released payment leaves its windows at its `validBefore`, since the time of its release is not recorded;
//! - a payment that only the candidate allows settles;
//! - each recorded refusal is one payment that the agent wanted, even if it was repeated;
//! - a recorded escalation that the candidate also escalates has its recorded outcome. Where the candidate asks and the
//!   record did not, both outcomes are followed: [`BacktestResult::if_declined`] and [`BacktestResult::if_approved`].
//!
//! Invariants: a candidate with the recorded limits has no difference, and the memory is bounded by the payments of
//! [`BUDGET_WINDOW_MAX`].

use crate::{
    Agent, AgentId, AgentStatus, Amount, ApprovalId, BUDGET_WINDOW_MAX, CountingRule, DecisionResult, Duration,
    EnabledService, Operation, OperationSlug, RecordedDecision, ReplayInputs, Rule, RuleId, ServiceId, Settlement,
    SettlementState, Timestamp, TransactionId,
    policy::replay::{Judged, Limits, RecordedFacts, TightestBudget, tightest_of},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The limits to test. What is `None` or absent stays as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// All rules of the agent.
    pub rules: Option<Vec<Rule>>,
    /// Whether the agent is frozen by its owner. An archived agent is frozen.
    pub status: Option<AgentStatus>,
    /// The policies of services.
    pub policies: BTreeMap<ServiceId, EnabledService>,
}

impl Candidate {
    /// The time before the range whose payments count in a window of the candidate.
    pub fn warm_up(&self) -> Duration {
        let rules = self.rules.iter().flatten();
        let lengths = rules.filter_map(|rule| rule.kind.counts().map(|(.., length)| length));
        lengths.fold(Duration::DAY, Duration::max)
    }

    /// The kinds of the candidate's rules that are not judged, unless the agent had the same rule at that time: decisions
    /// don't record what they depend on.
    pub fn untested_kinds(rules: &[Rule], present: &[Rule]) -> BTreeSet<&'static str> {
        let rules = rules.iter().filter(|rule| rule.kind.depends_on_earlier_payments());
        let changed = rules.filter(|rule| {
            !present
                .iter()
                .any(|known| known.id == rule.id && known.kind == rule.kind)
        });
        changed.map(|rule| rule.kind.name()).collect()
    }

    /// Whether a decision about this operation may depend on the page that the call fetches.
    pub fn judges_target(&self, inputs: &ReplayInputs<'_>, operation: &OperationSlug) -> bool {
        let service = inputs.service;
        let fetches = |operation: &Operation| operation.fetches_target(service.category);
        let policies = [inputs.enabled, self.policies.get(&service.id)];
        let limits = |enabled: &EnabledService| !enabled.policy.allows_any_domain();
        service.operation(operation).is_some_and(fetches) && policies.into_iter().flatten().any(limits)
    }

    fn agent(&self, recorded: &Agent) -> Agent {
        Agent {
            rules: self.rules.as_ref().unwrap_or(&recorded.rules).clone(),
            status: self.status.unwrap_or(recorded.status),
            ..recorded.clone()
        }
    }
}

/// A payment that was authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastPayment {
    /// The service.
    pub service: ServiceId,
    /// The amount.
    pub amount: Amount,
    /// The recorded time.
    pub at: Timestamp,
    /// The time of its release, if it was released.
    pub released_at: Option<Timestamp>,
}

impl PastPayment {
    /// The payment of a settlement; `None` for a payout, which counts in no window.
    pub fn of(settlement: &Settlement) -> Option<Self> {
        let terms = &settlement.terms;
        let is_released = settlement.state == SettlementState::Expired;
        Some(Self {
            service: terms.purchase()?.service,
            amount: terms.amount,
            at: terms.authorized_at,
            released_at: is_released.then_some(terms.valid_before),
        })
    }

    /// The time from which it no longer counts in a window of this length.
    fn leaves(&self, length: Duration) -> Timestamp {
        let end = self.at.after(length);
        self.released_at.map_or(end, |released| released.min(end))
    }
}

/// A recorded decision to test.
#[derive(Clone, Copy, Debug)]
pub struct BacktestDecision<'a> {
    /// The decision.
    pub decision: &'a RecordedDecision,
    /// What it was based on.
    pub inputs: ReplayInputs<'a>,
    /// Its id.
    pub transaction: TransactionId,
    /// The approval that it created or used.
    pub approval: Option<ApprovalId>,
    /// The time of the payment's release, if it was allowed and released.
    pub released_at: Option<Timestamp>,
}

impl BacktestDecision<'_> {
    /// The payment that the decision is about.
    const fn payment(&self) -> PastPayment {
        PastPayment {
            service: self.inputs.service.id,
            amount: self.decision.amount,
            at: self.decision.at,
            released_at: self.released_at,
        }
    }
}

/// The differences between the recorded decisions and those of a candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The number of decisions by recorded and tested result.
    pub counts: BTreeMap<(DecisionResult, DecisionResult), u64>,
    /// The decisions with another result, by the results and the reason.
    pub flips: BTreeMap<FlipKind, Flips>,
    /// The number of refusals with the recorded result and another reason.
    pub other_reasons: u64,
    /// The sum of the payments that the candidate does not make.
    pub saved: u64,
    /// The sum of the payments that only the candidate makes.
    pub added: u64,
}

/// A kind of flips.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlipKind {
    /// The recorded result.
    pub recorded: DecisionResult,
    /// The candidate's result.
    pub tested: DecisionResult,
    /// The reason of the candidate's refusal; of a payment that the candidate allows, the reason of the recorded one.
    pub reason: String,
}

/// The flips of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flips {
    /// The number of decisions.
    pub count: u64,
    /// The sum of their amounts.
    pub amount: u64,
    /// The newest of them.
    pub example: FlipExample,
}

/// A decision that flips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlipExample {
    /// The agent.
    pub agent: AgentId,
    /// The decision.
    pub transaction: TransactionId,
    /// Its time.
    pub at: Timestamp,
    /// Its service.
    pub service: ServiceId,
    /// Its amount.
    pub amount: Amount,
}

impl Differences {
    /// The maximum number of kinds of flips. Further ones have [`Differences::OTHER_REASON`].
    pub const MOST_KINDS: usize = 200;
    /// The reason of flips of further kinds.
    pub const OTHER_REASON: &str = "other_reasons";

    /// Whether the candidate decided everything as it was recorded.
    pub fn is_empty(&self) -> bool {
        self.flips.is_empty() && self.other_reasons == 0 && self.saved == 0 && self.added == 0
    }

    /// The number of decisions that flip.
    pub fn flipped(&self) -> u64 {
        self.flips
            .values()
            .fold(0, |sum, flips| sum.saturating_add(flips.count))
    }

    fn add(&mut self, other: &Self) {
        for (results, count) in &other.counts {
            let sum = self.counts.entry(*results).or_default();
            *sum = sum.saturating_add(*count);
        }
        for (kind, flips) in &other.flips {
            self.add_flips(kind.clone(), flips.clone());
        }
        self.other_reasons = self.other_reasons.saturating_add(other.other_reasons);
        self.saved = self.saved.saturating_add(other.saved);
        self.added = self.added.saturating_add(other.added);
    }

    fn add_flips(&mut self, mut kind: FlipKind, flips: Flips) {
        if self.flips.len() >= Self::MOST_KINDS && !self.flips.contains_key(&kind) {
            Self::OTHER_REASON.clone_into(&mut kind.reason);
        }
        let Some(sum) = self.flips.get_mut(&kind) else {
            self.flips.insert(kind, flips);
            return;
        };
        sum.count = sum.count.saturating_add(flips.count);
        sum.amount = sum.amount.saturating_add(flips.amount);
        if flips.example.at >= sum.example.at {
            sum.example = flips.example;
        }
    }

    fn note(&mut self, of: &BacktestDecision<'_>, judged: &Judged) -> DecisionResult {
        let recorded = of.decision.result;
        // A request without the target that the policy needs is refused, but not recorded.
        let tested = judged.result.unwrap_or(DecisionResult::Block);
        let count = self.counts.entry((recorded, tested)).or_default();
        *count = count.saturating_add(1);
        if recorded == tested {
            let is_same = judged.reason == of.decision.reason;
            self.other_reasons = self.other_reasons.saturating_add(u64::from(!is_same));
            return tested;
        }
        let reason = match tested {
            DecisionResult::Allow => &of.decision.reason,
            _ => &judged.reason,
        };
        let kind = FlipKind {
            recorded,
            tested,
            reason: reason.clone(),
        };
        let flips = Flips {
            count: 1,
            amount: of.decision.amount.units(),
            example: FlipExample {
                agent: of.inputs.agent.id,
                transaction: of.transaction,
                at: of.decision.at,
                service: of.inputs.service.id,
                amount: of.decision.amount,
            },
        };
        self.add_flips(kind, flips);
        tested
    }
}

/// The result of a backtest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BacktestResult {
    /// The number of decisions that were tested.
    pub decisions: u64,
    /// The number of decisions that could not be tested, and stand as they were recorded: no policy was applied to them,
    /// such as a rejected approval, or what they were based on is not stored.
    pub untested: u64,
    /// The sum of the tested payments that were authorized.
    pub authorized: u64,
    /// The differences if no person approves what only the candidate asks for.
    pub if_declined: Differences,
    /// The differences if a person approves at once what only the candidate asks for.
    pub if_approved: Differences,
}

impl BacktestResult {
    /// Adds the result about another agent.
    pub fn add(&mut self, other: &Self) {
        self.decisions = self.decisions.saturating_add(other.decisions);
        self.untested = self.untested.saturating_add(other.untested);
        self.authorized = self.authorized.saturating_add(other.authorized);
        self.if_declined.add(&other.if_declined);
        self.if_approved.add(&other.if_approved);
    }
}

/// A backtest of one agent; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Backtest {
    candidate: Candidate,
    /// The payments that were authorized.
    real: Payments,
    declined: Track,
    approved: Track,
    decisions: u64,
    untested: u64,
    authorized: u64,
    /// The candidate's agent for the last recorded agent.
    agent: Option<Agent>,
}

impl Backtest {
    /// A backtest of this candidate.
    pub fn new(candidate: Candidate) -> Self {
        Self {
            candidate,
            real: Payments::default(),
            declined: Track::default(),
            approved: Track {
                is_approved: true,
                ..Track::default()
            },
            decisions: 0,
            untested: 0,
            authorized: 0,
            agent: None,
        }
    }

    /// The candidate.
    pub const fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Counts a payment from before the range.
    pub fn count(&mut self, payment: PastPayment) {
        self.real.add(payment);
    }

    /// Notes a decision that can't be tested. Its payment, if it was allowed, stands.
    pub fn skip(&mut self, allowed: Option<PastPayment>) {
        self.untested = self.untested.saturating_add(1);
        if let Some(payment) = allowed {
            self.real.add(payment);
        }
    }

    /// Tests a decision. Decisions must come in the order of time.
    pub fn test(&mut self, of: &BacktestDecision<'_>) {
        let allowed = (of.decision.result == DecisionResult::Allow).then(|| of.payment());
        let (facts, replayed) = RecordedFacts::replayed(of.decision, &of.inputs);
        if !replayed.is_as_recorded(of.decision) {
            return self.skip(allowed);
        }
        self.decisions = self.decisions.saturating_add(1);
        let agent = match self.agent.take() {
            Some(agent) if agent.version == of.inputs.agent.version => agent,
            _ => self.candidate.agent(of.inputs.agent),
        };
        let policy = self.candidate.policies.get(&of.inputs.service.id);
        let given = Given {
            of,
            facts,
            agent: &agent,
            enabled: policy.or(of.inputs.enabled),
            tightest: tightest_of(of.decision, of.inputs.agent),
        };
        self.declined.test(&given, &mut self.real);
        self.approved.test(&given, &mut self.real);
        self.agent = Some(agent);
        if let Some(payment) = allowed {
            self.authorized = self.authorized.saturating_add(payment.amount.units());
            self.real.add(payment);
        }
    }

    /// The result so far.
    pub fn result(&self) -> BacktestResult {
        BacktestResult {
            decisions: self.decisions,
            untested: self.untested,
            authorized: self.authorized,
            if_declined: self.declined.differences.clone(),
            if_approved: self.approved.differences.clone(),
        }
    }
}

/// A decision with the candidate's limits.
struct Given<'a> {
    of: &'a BacktestDecision<'a>,
    facts: RecordedFacts<'a>,
    agent: &'a Agent,
    enabled: Option<&'a EnabledService>,
    tightest: Option<TightestBudget>,
}

impl Given<'_> {
    /// The used part of a budget without the candidate's differences.
    fn used(&self, budget: &CountingRule<'_>, real: &mut Payments) -> Amount {
        let at = self.of.decision.at;
        let recorded = self.of.inputs.agent.budgets().enumerate();
        let mut same = recorded.filter(|(_, one)| one.rule.id == budget.rule.id && one.length == budget.length);
        let sum = |real: &mut Payments| real.sum(Span::all(budget.length), at);
        let (Some((place, own)), Some(tightest)) = (same.next(), self.tightest) else {
            return sum(real);
        };
        if own.rule.id == tightest.rule {
            return tightest.used;
        }
        // It had at least as much left as the tightest. Before it in the list, it had more, else it would be the
        // recorded one.
        let mut budgets = self.of.inputs.agent.budgets();
        let is_later = budgets
            .position(|one| one.rule.id == tightest.rule)
            .is_some_and(|tightest| tightest < place);
        let left = tightest.limit.above(tightest.used);
        let left = if is_later { left } else { left.plus(ONE).unwrap_or(left) };
        sum(real).min(own.limit.above(left))
    }
}

const ONE: Amount = match Amount::from_units(1) {
    Some(one) => one,
    None => Amount::ZERO,
};

/// What the candidate does, if what it asks for is approved or not.
#[derive(Clone, Debug, Default)]
struct Track {
    is_approved: bool,
    /// The payments that only the candidate makes.
    added: Payments,
    /// The payments that the candidate does not make.
    left_out: Payments,
    /// The approvals whose payment the candidate allowed without asking, with the time: the approved call is then not
    /// made.
    unasked: BTreeMap<ApprovalId, Timestamp>,
    differences: Differences,
}

impl Track {
    fn test(&mut self, given: &Given<'_>, real: &mut Payments) {
        let Given { of, agent, .. } = given;
        let (decision, service) = (of.decision, of.inputs.service.id);
        let day = decision.used_of_day();
        let day_span = Span::of(service);
        let day = day.unwrap_or_else(|| real.sum(day_span, decision.at));
        let budgets = agent.budgets().map(|budget| {
            let used = given.used(&budget, real);
            (
                budget.rule.id,
                self.changed(used, Span::all(budget.length), decision.at),
            )
        });
        let budgets: Vec<(RuleId, Amount)> = budgets.collect();
        let limits = Limits {
            agent,
            enabled: given.enabled,
            day: self.changed(day, day_span, decision.at),
            budgets: &budgets,
        };
        let payment = of.payment();
        if decision.result == DecisionResult::Allow
            && of
                .approval
                .is_some_and(|approval| self.unasked.remove(&approval).is_some())
        {
            let is_same = (DecisionResult::Allow, DecisionResult::Allow);
            let count = self.differences.counts.entry(is_same).or_default();
            *count = count.saturating_add(1);
            // The candidate made this payment when the agent asked for it.
            self.differences.added = self.differences.added.saturating_sub(payment.amount.units());
            self.left_out.add(payment);
            return;
        }
        let tested = self.differences.note(of, &given.facts.judge(&limits));
        let pays = match (decision.result, tested) {
            (_, DecisionResult::Allow) => true,
            (DecisionResult::Escalate, DecisionResult::Escalate) => false,
            (_, DecisionResult::Escalate) => self.is_approved,
            _ => false,
        };
        let units = payment.amount.units();
        match (decision.result == DecisionResult::Allow, pays) {
            (true, true) | (false, false) => {}
            (true, false) => {
                self.differences.saved = self.differences.saved.saturating_add(units);
                self.left_out.add(payment);
            }
            (false, true) => {
                self.differences.added = self.differences.added.saturating_add(units);
                self.added.add(PastPayment {
                    released_at: None,
                    ..payment
                });
                if let (DecisionResult::Escalate, Some(approval)) = (decision.result, of.approval) {
                    let cut = decision.at.before(BUDGET_WINDOW_MAX);
                    self.unasked.retain(|_, at| *at > cut);
                    self.unasked.insert(approval, decision.at);
                }
            }
        }
    }

    /// The used part of a limit with the candidate's differences.
    fn changed(&mut self, used: Amount, span: Span, at: Timestamp) -> Amount {
        let added = self.added.sum(span, at);
        let left_out = self.left_out.sum(span, at);
        used.plus(added).unwrap_or(Amount::MAX).above(left_out)
    }
}

/// The payments that count in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    service: Option<ServiceId>,
    length: Duration,
}

impl Span {
    /// A day of a service.
    const fn of(service: ServiceId) -> Self {
        Self {
            service: Some(service),
            length: Duration::DAY,
        }
    }

    /// The payments to all services in this time.
    const fn all(length: Duration) -> Self {
        Self { service: None, length }
    }

    fn counts(&self, payment: &PastPayment) -> bool {
        self.service.is_none_or(|service| service == payment.service)
    }
}

/// The payments of the longest window, and their sums over the windows that were asked for.
#[derive(Clone, Debug, Default)]
struct Payments {
    recent: VecDeque<PastPayment>,
    sums: BTreeMap<Span, RollingSum>,
}

impl Payments {
    fn add(&mut self, payment: PastPayment) {
        let cut = payment.at.before(BUDGET_WINDOW_MAX);
        while self.recent.pop_front_if(|oldest| oldest.at <= cut).is_some() {}
        self.recent.push_back(payment);
        for (span, sum) in &mut self.sums {
            sum.expire(payment.at);
            if span.counts(&payment) {
                sum.add(&payment, span.length);
            }
        }
    }

    /// The sum that counts at this time.
    fn sum(&mut self, span: Span, at: Timestamp) -> Amount {
        let recent = &self.recent;
        let sum = self.sums.entry(span).or_insert_with(|| {
            let mut sum = RollingSum::default();
            for payment in recent.iter().filter(|payment| span.counts(payment)) {
                sum.add(payment, span.length);
            }
            sum
        });
        sum.expire(at);
        sum.total()
    }
}

/// The sum of the payments that did not leave their window yet.
#[derive(Clone, Debug, Default)]
struct RollingSum {
    /// The amounts by the time at which they leave, and a number.
    leaving: BTreeMap<(Timestamp, u64), Amount>,
    units: u128,
    next: u64,
}

impl RollingSum {
    fn add(&mut self, payment: &PastPayment, length: Duration) {
        self.leaving.insert((payment.leaves(length), self.next), payment.amount);
        self.next = self.next.saturating_add(1);
        self.units = self.units.saturating_add(payment.amount.units().into());
    }

    fn expire(&mut self, at: Timestamp) {
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
