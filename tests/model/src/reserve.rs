//! Models calls of `authorize` that run concurrently with updates, freezes, approval decisions and evictions.
//!
//! A call has the steps of `functions/payments/src/authorize.rs`. Reads are torn, clocks are skewed, responses are
//! lost, calls crash, and a write may be applied after its call gave up.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::{
        Agent, Answer, Approval, ApprovalRuling, Charge, DEFAULT, Entry, KeyId, Ledger, Limit, Record, Request,
        Reservation, Role, Ruling, Scope, SettlementId, State as Paid, Tick, Window, Write,
    },
    world::{Flight, World},
};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// A call of `authorize` in the model.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The idempotency key of the call.
    pub key: KeyId,
    /// The fingerprint of the call's request.
    pub request: Request,
    /// The amount of the request.
    pub amount: i8,
    /// The number of the approval in the request.
    pub approval: Option<u8>,
    /// The number of ticks by which the clock of the call's process is ahead.
    pub skew: Tick,
}

/// An operation of a user, an operator or `reconcile`.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// The owner updates the policy: its maximum sum, and whether each payment needs an approval.
    Policy(i8, bool),
    /// The owner begins (`true`) or ends a freeze of the agent.
    Freeze(bool),
    /// The owner sets the maximum sum of the agent's budget.
    Budget(i8),
    /// Operators begin (`true`) or end a freeze of the agent.
    Operators(bool),
    /// The owner decides the first approval of a request.
    Rule(Request, ApprovalRuling),
    /// `reconcile` evicts the expired payments of a window.
    Evict(Scope),
}

/// A bounded model of payments.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// The name of the model.
    pub name: &'static str,
    /// The agent's policy; `None` for a default policy that is not stored.
    pub policy: Option<Limit>,
    /// The maximum sum of the agent's budget; `None` if there is no budget.
    pub budget: Option<i8>,
    /// The time and the amount of each earlier payment.
    pub paid: Vec<(Tick, i8)>,
    /// The calls of the model.
    pub calls: Vec<Call>,
    /// The operations that run concurrently with the calls.
    pub acts: Vec<Act>,
    /// The number of ticks after which time stops.
    pub ticks: Tick,
    /// The lifetime of an approval.
    pub ttl: Tick,
    /// The maximum number of lost responses and crashed processes.
    pub faults: u8,
    /// The maximum number of decisions of a call, which then responds with 503.
    pub attempts: u8,
    /// Whether other writes may be applied between the reads of a decision.
    pub torn: bool,
    /// Whether an update of the agent and of its window is one step, as replays against the real store require.
    pub whole: bool,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

/// The rows that a call has read for its decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Inputs {
    /// The agent, and the record of the idempotency key.
    first: Option<(Agent, Option<Record>)>,
    /// The policy, the request's approval, and whether operators have frozen the agent.
    second: Option<(Option<Limit>, Option<Approval>, bool)>,
    day: Option<Option<Window>>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The payment was authorized, with this settlement.
    Paid(SettlementId),
    /// The payment was denied.
    Refused,
    /// The payment needs an approval.
    Waits,
    /// The rows of the decision changed too often.
    Failed,
    /// The call's process crashed.
    Killed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Reading(Inputs),
    /// The call stores the default policy, and then this reservation.
    Default(Reservation),
    Reserving(SettlementId),
    Asking,
    Done(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Calling {
    step: Step,
    attempt: u8,
    resent: bool,
    /// Whether the owner's freeze and the operators' freeze had completed before the call began.
    after_freeze: (bool, bool),
    /// Whether a payment with the same key and request was stored before the call began.
    is_repetition: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Acting {
    Idle,
    /// The operation has sent its write.
    Writing,
    /// This version of the agent's record is stored, and the services with a policy are read next.
    Stored(u8),
    /// The operation has sent this version of the agent's record to the window.
    Fencing(u8),
    Done,
}

/// A state of the reservation model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have.
    pub world: World,
    calls: Vec<Calling>,
    acts: Vec<Acting>,
    faults: u8,
    /// The keys and settlements of the signed payments.
    signed: BTreeSet<(KeyId, SettlementId)>,
    /// Whether the owner's freeze and the operators' freeze are active.
    frozen: (bool, bool),
}

impl State {
    /// Returns the results of the calls; `None` for a call that has not ended.
    pub fn outcomes(&self) -> impl Iterator<Item = Option<Outcome>> {
        self.calls.iter().map(|call| match call.step {
            Step::Done(outcome) => Some(outcome),
            _ => None,
        })
    }
}

/// A step of the reservation model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A call begins.
    Begin(u8),
    /// A call reads an input of its decision. After the last input, it decides.
    Read(u8, u8),
    /// An operation begins or continues.
    Act(u8),
    /// The ledger applies the sent write with this index.
    Land(usize),
    /// The response to a call's write is lost, and the call sends the same write again.
    Lose(u8),
    /// A call's process crashes.
    Kill(u8),
    /// An operation's process crashes.
    KillAct(u8),
}

/// The process number of the first operation. Calls have lower numbers.
const ACTS: u8 = 8;
/// The settlement id of the first earlier payment.
const EARLIER: SettlementId = 100;

enum Decision {
    ReadAgain,
    Answer(Outcome),
    Replay(SettlementId),
    Grant { unwritten: bool, reservation: Reservation },
    Ask,
}

impl Reserve {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the eviction watermark of a window when the call read it.
    fn cleared(&self, window: &Window) -> Option<Tick> {
        if self.has(Flaw::EvictionLowersHorizon) {
            None
        } else {
            window.watermark
        }
    }

    /// Decides on a call's request after the last read.
    fn decide(&self, state: &State, call: usize, inputs: &Inputs) -> Decision {
        let (asked, calling) = (&self.calls[call], &state.calls[call]);
        let (Some((agent, record)), Some((policy, approval, frozen)), Some(day)) =
            (&inputs.first, &inputs.second, &inputs.day)
        else {
            return Decision::ReadAgain;
        };
        let (world, now) = (&state.world, state.world.now + asked.skew);
        // The policy and the window are stored together. Different versions mean that the reads were torn.
        if policy.map(|policy| policy.version) != day.as_ref().map(|day| day.stamp) {
            return Decision::ReadAgain;
        }
        // The second round of reads includes the budget's window.
        let budget = agent
            .budget
            .map(|rule| (rule, world.ledger.windows.get(&Scope::Budget).cloned()));
        if budget
            .as_ref()
            .is_some_and(|(rule, window)| window.as_ref().is_none_or(|w| w.stamp != rule.version))
        {
            return Decision::ReadAgain;
        }
        let frozen = agent.frozen || (*frozen && !self.has(Flaw::FreezeIsNotRead));
        if let Some(Ruling::Executed(_)) = approval.as_ref().map(|approval| approval.ruling) {
            let again = self.has(Flaw::ApprovalIsUsedTwice);
            if !again {
                return Decision::Answer(Outcome::Refused);
            }
        }
        match record {
            Some(Record::Allow { request, settlement }) if !self.has(Flaw::RepetitionDecidesAnew) => {
                return if *request != asked.request || frozen {
                    Decision::Answer(Outcome::Refused)
                } else {
                    Decision::Replay(*settlement)
                };
            }
            Some(Record::Escalated { request, .. }) if *request != asked.request => {
                return Decision::Answer(Outcome::Refused);
            }
            Some(Record::Escalated { .. }) if asked.approval.is_none() => return Decision::Answer(Outcome::Waits),
            _ => {}
        }
        if let Some(number) = asked.approval {
            let Some(approval) = approval else {
                return Decision::Answer(Outcome::Refused);
            };
            let _ = number;
            let usable = approval.ruling == Ruling::Approved
                || (self.has(Flaw::ApprovalIsUsedTwice) && matches!(approval.ruling, Ruling::Executed(_)));
            if !usable || (approval.ends <= now && !self.has(Flaw::ApprovalHasNoEnd)) {
                return Decision::Answer(Outcome::Refused);
            }
        }
        let judged = policy.unwrap_or(DEFAULT);
        let empty = Window {
            total: 0,
            stamp: judged.version,
            agent: 0,
            watermark: None,
            entries: Vec::new(),
        };
        let day = day.clone().unwrap_or(empty);
        let budget = budget.and_then(|(rule, window)| Some((rule, window?)));
        let windows = [
            Some((Scope::Day, judged, day)),
            budget.map(|(rule, window)| (Scope::Budget, rule, window)),
        ];
        let windows: Vec<(Scope, Limit, Window)> = windows.into_iter().flatten().collect();
        // The payment's time is not before the time up to which a window was cleared.
        let earliest = |(scope, _, window): &(Scope, Limit, Window)| window.watermark.map(|h| h + scope.length());
        let at = windows.iter().filter_map(earliest).fold(now, Tick::max);
        if frozen {
            return Decision::Answer(Outcome::Refused);
        }
        let mut charges = Vec::new();
        for (scope, limit, window) in &windows {
            let cut = at - scope.length();
            let expired: Vec<Entry> = window.entries.iter().filter(|entry| entry.at <= cut).copied().collect();
            // The first attempt evicts all expired payments, and later attempts only as many as necessary.
            let mut evict = Vec::new();
            for entry in expired {
                let left: i8 = window.total - evict.iter().map(|entry: &Entry| entry.amount).sum::<i8>();
                if calling.attempt == 0 || left + asked.amount > limit.cap {
                    evict.push(entry);
                }
            }
            let kept = window.total - evict.iter().map(|entry| entry.amount).sum::<i8>();
            if kept + asked.amount > limit.cap {
                return Decision::Answer(Outcome::Refused);
            }
            charges.push(Charge {
                scope: *scope,
                stamp: limit.version,
                cap: limit.cap,
                watermark: cut,
                evict,
                cleared: self.cleared(window),
            });
        }
        if judged.asks && asked.approval.is_none() {
            return Decision::Ask;
        }
        Decision::Grant {
            unwritten: policy.is_none(),
            reservation: Reservation {
                id: u8::try_from(call).unwrap_or(0) * 8 + calling.attempt,
                key: asked.key,
                request: asked.request,
                approval: asked.approval,
                amount: asked.amount,
                at,
                agent: agent.version,
                charges,
            },
        }
    }

    fn decided(&self, state: &mut State, call: usize, inputs: &Inputs) {
        let by = u8::try_from(call).unwrap_or(0);
        state.calls[call].step = match self.decide(state, call, inputs) {
            Decision::ReadAgain => Step::Reading(Inputs::default()),
            Decision::Answer(outcome) => Step::Done(outcome),
            Decision::Replay(settlement) => {
                if state.world.ledger.settlements.get(&settlement).map(|of| of.state) == Some(Paid::Authorized) {
                    self.sign(state, call, settlement);
                }
                Step::Done(Outcome::Paid(settlement))
            }
            Decision::Grant { unwritten, reservation } => {
                if self.has(Flaw::SignsBeforeReserve) {
                    self.sign(state, call, reservation.id);
                }
                if unwritten {
                    let agent = reservation.agent;
                    state.world.send(by, Write::Default { agent });
                    Step::Default(reservation)
                } else {
                    let id = reservation.id;
                    state.world.send(by, Write::Reserve(reservation));
                    Step::Reserving(id)
                }
            }
            Decision::Ask => {
                let asked = &self.calls[call];
                let owner = inputs.first.as_ref().map_or(0, |(agent, _)| agent.owner);
                let new = Some((owner, state.world.now + asked.skew + self.ttl));
                let ask = Write::Escalate {
                    key: asked.key,
                    request: asked.request,
                    number: 0,
                    new,
                    rebinds: false,
                };
                state.world.send(by, ask);
                Step::Asking
            }
        };
    }

    /// Signs a payment with the settlement's nonce.
    fn sign(&self, state: &mut State, call: usize, settlement: SettlementId) {
        let key = self.calls[call].key;
        state.signed.insert((key, settlement));
        let (by_owner, by_operators) = state.calls[call].after_freeze;
        let stands = (by_owner && state.frozen.0) || (by_operators && state.frozen.1);
        state.world.broken.unless(!stands, Law::Freeze);
    }

    /// Starts the next attempt, or fails after the last.
    fn again(&self, calling: &mut Calling) {
        calling.attempt += 1;
        calling.resent = false;
        calling.step = if calling.attempt < self.attempts {
            Step::Reading(Inputs::default())
        } else {
            Step::Done(Outcome::Failed)
        };
    }

    /// Continues a call after the result of its write.
    fn answered(&self, state: &mut State, call: usize, write: &Write, answer: &Answer) {
        let by = u8::try_from(call).unwrap_or(0);
        let is_done = *answer == Answer::Done;
        match state.calls[call].step.clone() {
            Step::Default(reservation) => {
                let stands = is_done || state.world.ledger.policy == Some(DEFAULT);
                if stands {
                    let id = reservation.id;
                    state.world.send(by, Write::Reserve(reservation));
                    state.calls[call].step = Step::Reserving(id);
                    state.calls[call].resent = false;
                } else {
                    self.again(&mut state.calls[call]);
                }
            }
            Step::Reserving(ours) => {
                let Write::Reserve(of) = write else { return };
                // An earlier attempt may have bound the idempotency key, although its response was lost.
                let bound = state.world.ledger.keys.get(&of.key);
                let is_ours = matches!(bound, Some(Record::Allow { settlement, .. }) if *settlement == ours);
                if is_done || is_ours {
                    self.sign(state, call, ours);
                    state.calls[call].step = Step::Done(Outcome::Paid(ours));
                } else {
                    self.again(&mut state.calls[call]);
                }
            }
            Step::Asking => {
                let (
                    Write::Escalate {
                        key,
                        request,
                        number,
                        new,
                        ..
                    },
                    Answer::Refused(roles),
                ) = (write, answer)
                else {
                    state.calls[call].step = Step::Done(Outcome::Waits);
                    return;
                };
                if roles.contains(&Role::Key) {
                    match state.world.ledger.keys.get(key) {
                        Some(Record::Escalated { .. }) => state.calls[call].step = Step::Done(Outcome::Waits),
                        _ => self.again(&mut state.calls[call]),
                    }
                    return;
                }
                let now = state.world.now + self.calls[call].skew;
                let newest = state.world.ledger.newest_approval(*request).unwrap_or(*number);
                let is_open = state
                    .world
                    .ledger
                    .approvals
                    .get(&(*request, newest))
                    .is_some_and(|a| a.is_open(now));
                let (number, new) = if is_open { (newest, None) } else { (newest + 1, *new) };
                let (key, request) = (*key, *request);
                state.world.send(
                    by,
                    Write::Escalate {
                        key,
                        request,
                        number,
                        new,
                        rebinds: false,
                    },
                );
            }
            Step::Idle | Step::Reading(_) | Step::Done(_) => {}
        }
    }

    /// Begins or continues an operation.
    fn act(&self, state: &mut State, index: usize) {
        let by = ACTS + u8::try_from(index).unwrap_or(0);
        let agent = state.world.ledger.agent.clone();
        let now = state.world.now;
        let (write, next) = match (state.acts[index], self.acts[index]) {
            (Acting::Idle, Act::Policy(cap, asks)) => match state.world.ledger.policy {
                Some(policy) => (
                    Some(Write::EditPolicy {
                        old: policy.version,
                        cap,
                        asks,
                    }),
                    Acting::Writing,
                ),
                // The first update of a default policy stores the default policy before the update.
                None => (Some(Write::Default { agent: agent.version }), Acting::Writing),
            },
            (Acting::Idle, Act::Freeze(frozen)) => {
                if !frozen {
                    state.frozen.0 = false;
                }
                if agent.frozen == frozen {
                    (None, Acting::Stored(agent.version))
                } else {
                    let budget = agent.budget.map(|rule| rule.cap);
                    (
                        Some(Write::EditAgent {
                            old: agent.version,
                            frozen,
                            budget,
                        }),
                        Acting::Writing,
                    )
                }
            }
            (Acting::Idle, Act::Budget(cap)) => {
                if agent.budget.is_some_and(|rule| rule.cap == cap) {
                    (None, Acting::Stored(agent.version))
                } else {
                    let (old, frozen) = (agent.version, agent.frozen);
                    let budget = Some(cap);
                    (Some(Write::EditAgent { old, frozen, budget }), Acting::Writing)
                }
            }
            (Acting::Idle, Act::Operators(frozen)) => {
                if !frozen {
                    state.frozen.1 = false;
                }
                (Some(Write::Freeze(frozen)), Acting::Writing)
            }
            (Acting::Idle, Act::Rule(request, ruling)) => {
                let (by, at, approval) = (0, now, (request, 0));
                (
                    Some(Write::Rule {
                        approval,
                        by,
                        at,
                        ruling,
                    }),
                    Acting::Writing,
                )
            }
            (Acting::Idle, Act::Evict(scope)) => match state.world.ledger.windows.get(&scope) {
                Some(window) => {
                    let expired = window.entries.iter().filter(|entry| entry.at <= now - scope.length());
                    let evict: Vec<Entry> = expired.copied().collect();
                    let (stamp, cleared) = (window.stamp, self.cleared(window));
                    if evict.is_empty() {
                        (None, Acting::Done)
                    } else {
                        (
                            Some(Write::Evict {
                                scope,
                                stamp,
                                evict,
                                cleared,
                            }),
                            Acting::Writing,
                        )
                    }
                }
                None => (None, Acting::Done),
            },
            (Acting::Stored(version), _) => {
                let skips = self.has(Flaw::EditSkipsFence) || self.has(Flaw::RepeatedEditSkipsFence);
                if state.world.ledger.policy.is_some() && !skips {
                    (Some(Write::Fence { agent: version }), Acting::Fencing(version))
                } else {
                    self.edited(state, index, version);
                    (None, Acting::Done)
                }
            }
            (acting, _) => (None, acting),
        };
        state.acts[index] = next;
        if let Some(write) = write {
            state.world.send(by, write);
        }
    }

    /// Records that an update of the agent has completed.
    fn edited(&self, state: &mut State, index: usize, version: u8) {
        let narrows = !matches!(self.acts[index], Act::Freeze(false));
        if narrows {
            state.world.floor.agent = state.world.floor.agent.max(version);
        }
        if let Act::Freeze(true) = self.acts[index] {
            state.frozen.0 = state.world.ledger.agent.frozen;
        }
    }

    /// Continues an operation after the result of its write.
    fn act_answered(&self, state: &mut State, index: usize, write: &Write, answer: &Answer) {
        let is_done = *answer == Answer::Done;
        state.acts[index] = match (state.acts[index], write) {
            // The default policy is stored, and the update follows.
            (Acting::Writing, Write::Default { .. }) => Acting::Idle,
            (Acting::Writing, Write::EditPolicy { old, .. }) => {
                if is_done {
                    state.world.floor.policy = state.world.floor.policy.max(old + 1);
                }
                Acting::Done
            }
            (Acting::Writing, Write::EditAgent { old, .. }) if is_done => {
                if self.has(Flaw::EditSkipsFence) {
                    self.edited(state, index, old + 1);
                    Acting::Done
                } else {
                    Acting::Stored(old + 1)
                }
            }
            (Acting::Writing, Write::Freeze(frozen)) => {
                // A late write that ends an earlier freeze also ends this freeze.
                let ends = |flight: &Flight| flight.write == Write::Freeze(false);
                state.frozen.1 = *frozen && !state.world.flights.iter().any(ends);
                Acting::Done
            }
            (Acting::Fencing(version), _) => {
                self.edited(state, index, version);
                Acting::Done
            }
            _ => Acting::Done,
        };
        if self.whole && matches!(write, Write::EditAgent { .. }) && is_done {
            self.act(state, index);
            let by = ACTS + u8::try_from(index).unwrap_or(0);
            let fence = |flight: &Flight| flight.by == by && flight.awaited;
            if let Some(place) = state.world.flights.iter().position(fence) {
                let (flight, answer) = state.world.land(place, self.flaw);
                self.act_answered(state, index, &flight.write, &answer);
            }
        }
    }
}

impl Model for Reserve {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut ledger = Ledger::new(self.policy);
        if let Some(cap) = self.budget {
            let write = Write::EditAgent {
                old: 1,
                frozen: false,
                budget: Some(cap),
            };
            ledger.apply(&write, None);
            ledger.apply(&Write::Fence { agent: 2 }, None);
        }
        let stamp = self.policy.map_or(0, |policy| policy.version);
        for (number, (at, amount)) in self.paid.iter().enumerate() {
            let id = EARLIER + u8::try_from(number).unwrap_or(0);
            let charge = |scope, stamp| Charge {
                scope,
                stamp,
                cap: 100,
                watermark: -100,
                evict: Vec::new(),
                cleared: None,
            };
            let mut charges = vec![charge(Scope::Day, stamp)];
            charges.extend(ledger.agent.budget.map(|rule| charge(Scope::Budget, rule.version)));
            let paid = Reservation {
                id,
                key: id,
                request: id,
                approval: None,
                amount: *amount,
                at: *at,
                agent: ledger.agent.version,
                charges,
            };
            ledger.apply(&Write::Reserve(paid), None);
        }
        let calling = Calling {
            step: Step::Idle,
            attempt: 0,
            resent: false,
            after_freeze: (false, false),
            is_repetition: false,
        };
        vec![State {
            world: World::new(ledger),
            calls: vec![calling; self.calls.len()],
            acts: vec![Acting::Idle; self.acts.len()],
            faults: self.faults,
            signed: BTreeSet::new(),
            frozen: (false, false),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.world.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (index, call) in (0_u8..).zip(&state.calls) {
            match &call.step {
                Step::Idle => actions.push(Action::Begin(index)),
                Step::Reading(inputs) => {
                    if self.torn {
                        let unread = [inputs.first.is_none(), inputs.second.is_none(), inputs.day.is_none()];
                        let unread = (0..).zip(unread).filter(|(_, unread)| *unread);
                        actions.extend(unread.map(|(part, _)| Action::Read(index, part)));
                    } else {
                        actions.push(Action::Read(index, 3));
                    }
                }
                _ => {}
            }
            let is_waiting = matches!(call.step, Step::Default(_) | Step::Reserving(_) | Step::Asking);
            if is_waiting && state.faults > 0 {
                if !call.resent {
                    actions.push(Action::Lose(index));
                }
                actions.push(Action::Kill(index));
            }
        }
        for (index, act) in (0_u8..).zip(&state.acts) {
            if matches!(act, Acting::Idle | Acting::Stored(_)) {
                actions.push(Action::Act(index));
            }
            if state.faults > 0 && matches!(act, Acting::Writing | Acting::Stored(_) | Acting::Fencing(_)) {
                actions.push(Action::KillAct(index));
            }
        }
        actions.extend((0..state.world.flights.len()).map(Action::Land));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.world.now += 1,
            Action::Begin(index) => {
                let bound = state.world.ledger.keys.get(&self.calls[usize::from(index)].key);
                let calling = &mut state.calls[usize::from(index)];
                let asked = &self.calls[usize::from(index)];
                let bound = bound.filter(|_| asked.approval.is_none());
                calling.is_repetition =
                    matches!(bound, Some(Record::Allow { request, .. }) if *request == asked.request);
                calling.step = Step::Reading(Inputs::default());
                calling.after_freeze = state.frozen;
            }
            Action::Read(index, part) => {
                let call = usize::from(index);
                let Step::Reading(mut inputs) = state.calls[call].step.clone() else {
                    return None;
                };
                let (asked, ledger) = (&self.calls[call], &state.world.ledger);
                if part == 0 || part == 3 {
                    inputs.first = Some((ledger.agent.clone(), ledger.keys.get(&asked.key).copied()));
                }
                if part == 1 || part == 3 {
                    let approval = asked
                        .approval
                        .and_then(|number| ledger.approvals.get(&(asked.request, number)));
                    inputs.second = Some((ledger.policy, approval.cloned(), ledger.frozen));
                }
                if part == 2 || part == 3 {
                    inputs.day = Some(ledger.windows.get(&Scope::Day).cloned());
                }
                let is_complete = inputs.first.is_some() && inputs.second.is_some() && inputs.day.is_some();
                if is_complete {
                    self.decided(&mut state, call, &inputs);
                } else {
                    state.calls[call].step = Step::Reading(inputs);
                }
            }
            Action::Act(index) => self.act(&mut state, usize::from(index)),
            Action::Land(index) => {
                let (flight, answer) = state.world.land(index, self.flaw);
                if flight.awaited && flight.by >= ACTS {
                    self.act_answered(&mut state, usize::from(flight.by - ACTS), &flight.write, &answer);
                } else if flight.awaited {
                    self.answered(&mut state, usize::from(flight.by), &flight.write, &answer);
                }
            }
            Action::Lose(index) => {
                state.faults -= 1;
                state.calls[usize::from(index)].resent = true;
                let write = state.world.give_up(index)?;
                state.world.send(index, write);
            }
            Action::Kill(index) => {
                state.faults -= 1;
                state.world.give_up(index);
                state.calls[usize::from(index)].step = Step::Done(Outcome::Killed);
            }
            Action::KillAct(index) => {
                state.faults -= 1;
                state.world.give_up(ACTS + index);
                state.acts[usize::from(index)] = Acting::Done;
            }
        }
        state.world.broken = state.world.broken.and(self.broken(&state));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.extend([
            Property::sometimes("a call is paid", |_, state: &State| {
                state
                    .outcomes()
                    .any(|outcome| matches!(outcome, Some(Outcome::Paid(_))))
            }),
            Property::sometimes("every process ends", |_, state: &State| {
                state.outcomes().all(|outcome| outcome.is_some()) && state.acts.iter().all(|act| *act == Acting::Done)
            }),
        ]);
        properties
    }
}

crate::laws!(
    Totals,
    Cap,
    Stamps,
    Horizon,
    OneSettlement,
    Approval,
    LateCommit,
    Freeze,
    Evictable,
    Moves
);

impl Reserve {
    /// Returns the invariants that a state violates.
    fn broken(&self, state: &State) -> Broken {
        let mut broken = Broken::default();
        let ledger = &state.world.ledger;
        for (scope, window) in &ledger.windows {
            let oldest = window
                .entries
                .first()
                .filter(|entry| entry.at <= state.world.now - scope.length());
            if let Some(oldest) = oldest {
                let evict = Write::Evict {
                    scope: *scope,
                    stamp: window.stamp,
                    evict: vec![*oldest],
                    cleared: self.cleared(window),
                };
                broken.unless(ledger.clone().apply(&evict, None) == Answer::Done, Law::Evictable);
            }
        }
        for (key, settlement) in &state.signed {
            let stored = ledger.settlements.get(settlement);
            broken.unless(stored.is_some_and(|of| of.key == *key), Law::OneSettlement);
            let others = state.signed.iter().filter(|(of, _)| of == key).count();
            broken.unless(others == 1, Law::OneSettlement);
        }
        for call in &state.calls {
            let is_frozen = ledger.agent.frozen || ledger.frozen;
            let is_lost = match call.step {
                Step::Done(Outcome::Failed) => call.is_repetition,
                Step::Done(Outcome::Refused) => call.is_repetition && !is_frozen,
                _ => false,
            };
            broken.unless(!is_lost, Law::LateCommit);
            if let Step::Done(Outcome::Paid(settlement)) = call.step {
                let bound = ledger
                    .settlements
                    .get(&settlement)
                    .and_then(|of| ledger.keys.get(&of.key));
                let is_it = matches!(bound, Some(Record::Allow { settlement: of, .. }) if *of == settlement);
                broken.unless(is_it, Law::LateCommit);
            }
        }
        broken
    }
}
