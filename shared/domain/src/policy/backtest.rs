//! Backtest: what other limits would have decided about the recorded decisions of an agent.
//!
//! A [`Backtest`] folds decisions in the order of time. Each is evaluated by the one engine, as a replay does
//! ([`crate::replay`]), with the candidate's limits in place of the recorded ones. What a candidate does not name stays
//! as it was recorded at that time.
//!
//! A flip changes every later window, so each window is that of the candidate: the recorded use, and what the candidate
//! would have added and left out within the window's length. A day's use is recorded in every decision. Of several
//! budgets, count limits or intervals, a decision records the one with the least left, so the others had at least as much
//! left. The use of a window that the decision did not have is that of the real payments, for which payments before the
//! range are [counted](Backtest::count) first.
//!
//! What a rule remembers of recent payments ([`RecentPayments`]) is likewise rebuilt: from the real payments, and from
//! those of the candidate. Where a rule was in force and both are the same, the decision has what was remembered;
//! otherwise the candidate's holds.
//!
//! Assumptions:
//! - a rule that the agent did not have is judged as if it had always been in force, but it remembers no payee and no price
//!   from before the payments that are counted;
//! - a released payment leaves its windows at its `validBefore`, since the time of its release is not recorded;
//! - a payment that only the candidate allows settles;
//! - each recorded refusal is one payment that the agent wanted, even if it was repeated;
//! - a recorded escalation that the candidate also escalates has its recorded outcome. Where the candidate asks and the
//!   record did not, both outcomes are followed: [`BacktestResult::if_declined`] and [`BacktestResult::if_approved`].
//!
//! Invariants: a candidate with the recorded limits has no difference, and the memory is bounded by the payments of
//! [`BUDGET_WINDOW_MAX`] and by the bounds of [`RecentPayments`] for each service.

use crate::{
    Agent, AgentId, AgentStatus, Amount, ApprovalId, BUDGET_WINDOW_MAX, CallDescription, CallDigest, CallMark,
    CheckName, Counted, CountingRule, DecisionResult, Duration, EnabledService, Operation, OperationDigest,
    OperationSlug, PayeePrefix, Purchase, RecentPayments, RecordedDecision, ReplayInputs, Rule, RuleId, RuleKind,
    ServiceId, ServiceSlug, Settlement, SettlementState, Timestamp, TransactionId, UsualPrice,
    policy::replay::{Judged, JudgedRecent, Limits, RecordedFacts, Tightest, check_of, rules_of, tightest_of},
};
use std::collections::{BTreeMap, VecDeque};

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
    /// The time before the range whose payments count in a window of the candidate, or are remembered by its rules.
    /// `present` are the agent's rules.
    pub fn warm_up(&self, present: &[Rule]) -> Duration {
        let rules = self.rules.as_deref().unwrap_or(present).iter();
        let lengths = rules.map(|rule| match rule.kind {
            RuleKind::DuplicateGuard { within, .. } => within,
            _ if rule.kind.remembers() => BUDGET_WINDOW_MAX,
            // The use of a window that the agent has is recorded.
            _ if self.rules.is_none() => Duration::DAY,
            _ => rule.kind.counts().map_or(Duration::DAY, |(.., length)| length),
        });
        lengths.fold(Duration::DAY, Duration::max)
    }

    /// Whether a decision about this operation may depend on the agent's call: on the page that it fetches, or on its
    /// likeness to an earlier call, for which the recorded rules had no guard.
    pub fn judges_call(&self, inputs: &ReplayInputs<'_>, operation: &OperationSlug) -> bool {
        let service = inputs.service;
        let fetches = |operation: &Operation| operation.fetches_target(service.category);
        let policies = [inputs.enabled, self.policies.get(&service.id)];
        let limits = |enabled: &EnabledService| !enabled.policy.allows_any_domain();
        let judges_target =
            service.operation(operation).is_some_and(fetches) && policies.into_iter().flatten().any(limits);
        judges_target || self.compares_calls(inputs.agent, Some(&service.slug))
    }

    /// Whether a guard that the agent did not have applies to payments to this service, or to any.
    pub fn compares_calls(&self, recorded: &Agent, service: Option<&ServiceSlug>) -> bool {
        let is_new = |rule: &Rule| {
            let mut known = recorded.rules.iter();
            !known.any(|known| known.id == rule.id && known.kind == rule.kind)
        };
        let mut rules = self.rules.iter().flatten();
        rules.any(|rule| {
            matches!(rule.kind, RuleKind::DuplicateGuard { .. })
                && service.is_none_or(|service| rule.kind.applies_to(service))
                && is_new(rule)
        })
    }

    /// Whether a rule of the candidate counts the payments to some services only.
    pub fn names_services(&self) -> bool {
        let mut rules = self.rules.iter().flatten();
        rules.any(|rule| rule.kind.counts().is_some() && rule.kind.services().is_some())
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
    /// The payee.
    pub payee: PayeePrefix,
    /// The operation.
    pub operation: OperationDigest,
    /// The call; `None` if it is not known.
    pub call: Option<CallDigest>,
}

impl PastPayment {
    /// The payment of a settlement; `None` for a payout, which counts in no window.
    pub fn of(settlement: &Settlement) -> Option<Self> {
        let terms = &settlement.terms;
        let is_released = settlement.state == SettlementState::Expired;
        let purchase = terms.purchase()?;
        Some(Self {
            service: purchase.service,
            amount: terms.amount,
            at: terms.authorized_at,
            released_at: is_released.then_some(terms.valid_before),
            payee: PayeePrefix::of(terms.pay_to),
            operation: OperationDigest::of(&purchase.operation),
            call: None,
        })
    }

    /// The payment with the call that its settlement paid for.
    #[must_use]
    pub fn with_call(self, settlement: &Settlement, call: &CallDescription) -> Self {
        let purchase = settlement.terms.purchase();
        let digest = |purchase: &Purchase| CallDigest::of_call(call, &purchase.operation, self.amount);
        Self {
            call: purchase.map(digest),
            ..self
        }
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
    /// Whether the record has the agent's call, and not one that stands for it.
    pub has_call: bool,
}

impl BacktestDecision<'_> {
    /// The payment that the decision is about.
    fn payment(&self, facts: &RecordedFacts<'_>) -> PastPayment {
        let decision = self.decision;
        let operation = decision.operation.as_ref();
        PastPayment {
            service: self.inputs.service.id,
            amount: decision.amount,
            at: decision.at,
            released_at: self.released_at,
            payee: PayeePrefix::of(decision.pay_to),
            // Without an operation, nothing is paid.
            operation: operation.map_or(OperationDigest([0; 8]), OperationDigest::of),
            call: facts.call().filter(|_| self.has_call),
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
    /// The services of the tested decisions and the counted payments.
    services: BTreeMap<ServiceSlug, ServiceId>,
    /// The payments that were authorized.
    real: Payments,
    /// What is remembered of them, unless no rule of the candidate remembers payments.
    remembered: Remembered,
    remembers: bool,
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
        let mut rules = candidate.rules.iter().flatten();
        Self {
            remembers: candidate.rules.is_none() || rules.any(|rule| rule.kind.remembers()),
            candidate,
            services: BTreeMap::new(),
            real: Payments::default(),
            remembered: Remembered::default(),
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

    /// Names a service. Rules name services by their slugs, and payments from before the range do not.
    pub fn know(&mut self, service: ServiceId, slug: &ServiceSlug) {
        if self.services.get(slug) != Some(&service) {
            self.services.insert(slug.clone(), service);
        }
    }

    /// Remembers what the record shows of payments that were not counted.
    fn learn(&mut self, facts: &RecordedFacts<'_>, payment: &PastPayment) {
        let (recorded, real) = (facts.recent(), self.remembered.of(payment.service));
        let payee = recorded.has_paid(payment.payee) && !real.has_paid(payment.payee);
        let payee = payee.then_some((payment.payee, payment.at));
        let call = payment.call.filter(|call| real.last_call(*call).is_none());
        let call = call.and_then(|call| Some((call, recorded.last_call(call)?)));
        if payee.is_none() && call.is_none() {
            return;
        }
        for remembered in self.all_remembered() {
            let recent = remembered.0.entry(payment.service).or_default();
            recent.payees.extend(payee);
            recent.calls.extend(call);
        }
    }

    fn all_remembered(&mut self) -> [&mut Remembered; 3] {
        [
            &mut self.remembered,
            &mut self.declined.remembered,
            &mut self.approved.remembered,
        ]
    }

    /// Counts a payment from before the range. Payments must come in the order of time.
    pub fn count(&mut self, payment: PastPayment) {
        self.real.add(payment);
        if self.remembers {
            for remembered in self.all_remembered() {
                remembered.add(&payment);
            }
        }
    }

    /// Notes a decision that can't be tested. Its payment, if it was allowed, stands.
    pub fn skip(&mut self, allowed: Option<PastPayment>) {
        self.untested = self.untested.saturating_add(1);
        if let Some(payment) = allowed {
            self.count(payment);
        }
    }

    /// Tests a decision. Decisions must come in the order of time.
    pub fn test(&mut self, of: &BacktestDecision<'_>) {
        let ReplayInputs { agent, service, .. } = of.inputs;
        let (mut facts, replayed) = RecordedFacts::replayed(of.decision, &of.inputs);
        let payment = of.payment(&facts);
        let allowed = (of.decision.result == DecisionResult::Allow).then_some(payment);
        self.know(service.id, &service.slug);
        if !replayed.is_as_recorded(of.decision) {
            return self.skip(allowed);
        }
        self.decisions = self.decisions.saturating_add(1);
        if allowed.is_some() && of.approval.is_some() {
            facts.approve();
        }
        let tested = match self.agent.take() {
            Some(tested) if tested.version == agent.version => tested,
            _ => self.candidate.agent(agent),
        };
        if self.remembers {
            self.learn(&facts, &payment);
        }
        let policy = self.candidate.policies.get(&service.id);
        let given = Given {
            of,
            facts,
            payment,
            agent: &tested,
            enabled: policy.or(of.inputs.enabled),
            tightest: [CheckName::Budget, CheckName::Count, CheckName::Interval]
                .map(|name| (name, tightest_of(of.decision, agent, service, name))),
            services: &self.services,
            remembered: self.remembers.then_some(&self.remembered),
        };
        self.declined.test(&given, &mut self.real);
        self.approved.test(&given, &mut self.real);
        self.agent = Some(tested);
        if let Some(payment) = allowed {
            self.authorized = self.authorized.saturating_add(payment.amount.units());
            self.real.add(payment);
            if self.remembers {
                self.remembered.add(&payment);
            }
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
    payment: PastPayment,
    agent: &'a Agent,
    enabled: Option<&'a EnabledService>,
    tightest: [(CheckName, Option<Tightest>); 3],
    services: &'a BTreeMap<ServiceSlug, ServiceId>,
    /// What is remembered of the real payments, if a rule remembers payments.
    remembered: Option<&'a Remembered>,
}

impl Given<'_> {
    /// The used part of a window without the candidate's differences.
    fn used(&self, rule: &CountingRule<'_>, real: &mut Payments) -> Amount {
        let (at, inputs) = (self.of.decision.at, &self.of.inputs);
        let name = check_of(&rule.rule.kind);
        let is_same = |one: &CountingRule<'_>| {
            one.rule.id == rule.rule.id
                && one.length == rule.length
                && one.rule.kind.services() == rule.rule.kind.services()
        };
        let recorded = || rules_of(inputs.agent, inputs.service, name);
        let own = recorded().enumerate().find(|(_, one)| is_same(one));
        let tightest = self.tightest.iter().find(|(of, _)| *of == name);
        let (Some((place, own)), Some(tightest)) = (own, tightest.and_then(|(_, tightest)| *tightest)) else {
            return self.sum(rule, real, at);
        };
        if own.rule.id == tightest.rule {
            return tightest.used;
        }
        // It had at least as much left as the tightest. Before it in the list, it had more, else it would be the
        // recorded one.
        let is_later = recorded()
            .position(|one| one.rule.id == tightest.rule)
            .is_some_and(|tightest| tightest < place);
        let left = tightest.limit.above(tightest.used);
        let left = if is_later { left } else { left.plus(ONE).unwrap_or(left) };
        self.sum(rule, real, at).min(own.limit.above(left))
    }

    /// What counts of these payments in the window of a rule.
    fn sum(&self, rule: &CountingRule<'_>, payments: &mut Payments, at: Timestamp) -> Amount {
        let span = |service| Span {
            service,
            length: rule.length,
            counted: rule.counted,
        };
        let Some(slugs) = rule.rule.kind.services() else {
            return payments.sum(span(None), at);
        };
        let services = slugs.iter().filter_map(|slug| self.services.get(slug));
        services.fold(Amount::ZERO, |sum, service| {
            sum.plus(payments.sum(span(Some(*service)), at)).unwrap_or(Amount::MAX)
        })
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
    /// What is remembered of the payments that the candidate makes.
    remembered: Remembered,
    /// The approvals whose payment the candidate allowed without asking, with the time: the approved call is then not
    /// made.
    unasked: BTreeMap<ApprovalId, Timestamp>,
    differences: Differences,
}

impl Track {
    fn test(&mut self, given: &Given<'_>, real: &mut Payments) {
        let Given { of, agent, payment, .. } = given;
        let (decision, service) = (of.decision, of.inputs.service);
        let day = decision.used_of_day();
        let day_span = Span::of(service.id);
        let day = day.unwrap_or_else(|| real.sum(day_span, decision.at));
        let changed =
            |used: Amount, added: Amount, left_out: Amount| used.plus(added).unwrap_or(Amount::MAX).above(left_out);
        let rules = agent.counting_rules();
        let windows = rules.filter(|rule| rule.applies_to(&service.slug)).map(|rule| {
            let used = given.used(&rule, real);
            let added = given.sum(&rule, &mut self.added, decision.at);
            let left_out = given.sum(&rule, &mut self.left_out, decision.at);
            (rule.rule.id, changed(used, added, left_out))
        });
        let windows: Vec<(RuleId, Amount)> = windows.collect();
        let recent = given
            .remembered
            .map(|real| self.recent(given, real))
            .unwrap_or_default();
        let limits = Limits {
            agent,
            enabled: given.enabled,
            day: changed(
                day,
                self.added.sum(day_span, decision.at),
                self.left_out.sum(day_span, decision.at),
            ),
            windows: &windows,
            recent: Some(&recent),
        };
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
            self.left_out.add(*payment);
            return;
        }
        let tested = self.differences.note(of, &given.facts.judge(&limits));
        let pays = match (decision.result, tested) {
            (_, DecisionResult::Allow) => true,
            (DecisionResult::Escalate, DecisionResult::Escalate) => false,
            (_, DecisionResult::Escalate) => self.is_approved,
            _ => false,
        };
        if pays && given.remembered.is_some() {
            self.remembered.add(payment);
        }
        let units = payment.amount.units();
        match (decision.result == DecisionResult::Allow, pays) {
            (true, true) | (false, false) => {}
            (true, false) => {
                self.differences.saved = self.differences.saved.saturating_add(units);
                self.left_out.add(*payment);
            }
            (false, true) => {
                self.differences.added = self.differences.added.saturating_add(units);
                self.added.add(PastPayment {
                    released_at: None,
                    ..*payment
                });
                if let (DecisionResult::Escalate, Some(approval)) = (decision.result, of.approval) {
                    let cut = decision.at.before(BUDGET_WINDOW_MAX);
                    self.unasked.retain(|_, at| *at > cut);
                    self.unasked.insert(approval, decision.at);
                }
            }
        }
    }

    /// What the rules remember for this decision: what is recorded, where a rule was in force and no flip changed it.
    fn recent(&self, given: &Given<'_>, real: &Remembered) -> JudgedRecent {
        let PastPayment {
            service,
            payee,
            operation,
            call,
            at,
            ..
        } = given.payment;
        let (recorded, real, own) = (given.facts.recent(), real.of(service), self.remembered.of(service));
        let slug = &given.of.inputs.service.slug;
        let were_in_force = |is_of_kind: fn(&RuleKind) -> bool| {
            let mut rules = given.agent.rules.iter();
            rules.all(|rule| !is_of_kind(&rule.kind) || !rule.kind.applies_to(slug) || given.facts.is_recorded(rule))
        };
        let mut payments = RecentPayments::default();
        let last = |recent: &RecentPayments| call.and_then(|call| recent.last_call(call));
        if were_in_force(|kind| matches!(kind, RuleKind::DuplicateGuard { .. })) && last(real) == last(own) {
            payments.calls.clone_from(&recorded.calls);
        } else {
            payments.calls.extend(call.zip(last(own)));
        }
        let (was_paid, is_paid) = (real.has_paid(payee), own.has_paid(payee));
        if were_in_force(|kind| matches!(kind, RuleKind::NewPayee { .. })) && was_paid == is_paid {
            payments.payees.clone_from(&recorded.payees);
        } else {
            payments.payees.extend(is_paid.then_some((payee, at)));
        }
        let has_recorded_prices = were_in_force(|kind| {
            matches!(
                kind,
                RuleKind::PriceAboveUsual {
                    over: UsualPrice::Median(_),
                    ..
                }
            )
        }) && real.prices_of(operation) == own.prices_of(operation);
        if has_recorded_prices {
            payments.prices.clone_from(&recorded.prices);
        } else {
            let prices = own.prices.iter().filter(|(known, _)| *known == operation);
            payments.prices.extend(prices.cloned());
        }
        JudgedRecent {
            payments,
            has_recorded_prices,
        }
    }
}

/// What is remembered of payments, by service.
#[derive(Clone, Debug, Default)]
struct Remembered(BTreeMap<ServiceId, RecentPayments>);

impl Remembered {
    fn of(&self, service: ServiceId) -> &RecentPayments {
        self.0.get(&service).unwrap_or(RecentPayments::NONE)
    }

    fn add(&mut self, payment: &PastPayment) {
        let recent = self.0.entry(payment.service).or_default();
        let call = payment.call.map(|call| CallMark { call, not_after: None });
        let price = (payment.operation, payment.amount);
        let update = recent.update(payment.at, call, Some(payment.payee), Some(price));
        recent.remember(&update);
    }
}

/// The payments that count in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    service: Option<ServiceId>,
    length: Duration,
    counted: Counted,
}

impl Span {
    /// A day of a service.
    const fn of(service: ServiceId) -> Self {
        Self {
            service: Some(service),
            length: Duration::DAY,
            counted: Counted::Amounts,
        }
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
                sum.add(&payment, *span);
            }
        }
    }

    /// The sum that counts at this time.
    fn sum(&mut self, span: Span, at: Timestamp) -> Amount {
        let recent = &self.recent;
        let sum = self.sums.entry(span).or_insert_with(|| {
            let mut sum = RollingSum::default();
            for payment in recent.iter().filter(|payment| span.counts(payment)) {
                sum.add(payment, span);
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
    fn add(&mut self, payment: &PastPayment, span: Span) {
        let counted = span.counted.of(payment.amount);
        self.leaving.insert((payment.leaves(span.length), self.next), counted);
        self.next = self.next.saturating_add(1);
        self.units = self.units.saturating_add(counted.units().into());
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
