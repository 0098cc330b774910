//! Calls of authorize beside edits, freezes, rulings and evictions.
//!
//! A call reads, decides, writes and answers as `functions/payments/src/authorize.rs` does: its reads are torn, its
//! clock is skewed, its answers are lost, it crashes at any step, and a write that it has given up is made later. Calls
//! with the same key are repetitions, concurrent or later.

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

/// A call of authorize.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its key.
    pub key: KeyId,
    /// Its request.
    pub request: Request,
    /// The amount of the request.
    pub amount: i8,
    /// The number of the approval that it carries.
    pub approval: Option<u8>,
    /// How far its clock is ahead.
    pub skew: Tick,
}

/// An act of a person, an operator or reconcile.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// The owner edits the policy: its cap, and whether it asks.
    Policy(i8, bool),
    /// The owner freezes the agent, or ends that.
    Freeze(bool),
    /// The owner sets the cap of the agent's budget.
    Budget(i8),
    /// Operators freeze the agent, or end that.
    Operators(bool),
    /// The owner rules on the first approval of a request.
    Rule(Request, ApprovalRuling),
    /// Reconcile evicts a window's expired entries.
    Evict(Scope),
}

/// A model: who acts, and how often things go wrong.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Its name.
    pub name: &'static str,
    /// The policy; `None` for the default of a starting set without a row.
    pub policy: Option<Limit>,
    /// The cap of the agent's budget.
    pub budget: Option<i8>,
    /// Payments made before, by time and amount.
    pub paid: Vec<(Tick, i8)>,
    /// The calls.
    pub calls: Vec<Call>,
    /// The acts.
    pub acts: Vec<Act>,
    /// The last time.
    pub ticks: Tick,
    /// The end of an approval that is asked for, after its request.
    pub ttl: Tick,
    /// How many answers are lost and processes killed.
    pub faults: u8,
    /// How often a call decides before it answers 503.
    pub attempts: u8,
    /// Whether the reads of a decision are torn.
    pub torn: bool,
    /// Whether an edit and its fence are made at once, as a trace replays them.
    pub whole: bool,
    /// The planted error.
    pub flaw: Option<Flaw>,
}

/// What a decision has read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Inputs {
    /// The agent and the key's record.
    first: Option<(Agent, Option<Record>)>,
    /// The policy, the approval that the call carries, and the operators' freeze.
    second: Option<(Option<Limit>, Option<Approval>, bool)>,
    /// The day window.
    day: Option<Option<Window>>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was answered with this settlement.
    Paid(SettlementId),
    /// It was refused.
    Refused,
    /// A person is asked.
    Waits,
    /// It failed: its inputs changed too often.
    Failed,
    /// Its process was killed.
    Killed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Reading(Inputs),
    /// The default policy is written; then the reservation is.
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
    /// Whether a freeze by the owner, and one by operators, was answered before the call began.
    after_freeze: (bool, bool),
    /// Whether its key had paid for its request before it began.
    is_repetition: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Acting {
    Idle,
    /// The write is on its way.
    Writing,
    /// The agent's record has this version; the services with a policy are read next.
    Stored(u8),
    /// The fence is on its way.
    Fencing(u8),
    Done,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The shared part.
    pub world: World,
    calls: Vec<Calling>,
    acts: Vec<Acting>,
    faults: u8,
    /// What was signed: keys and settlements.
    signed: BTreeSet<(KeyId, SettlementId)>,
    /// Whether a freeze by the owner, and one by operators, was answered and not ended since.
    frozen: (bool, bool),
}

impl State {
    /// The outcomes of the calls that have ended.
    pub fn outcomes(&self) -> impl Iterator<Item = Option<Outcome>> {
        self.calls.iter().map(|call| match call.step {
            Step::Done(outcome) => Some(outcome),
            _ => None,
        })
    }
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A call begins.
    Begin(u8),
    /// A call reads a part of what it decides on, and decides if that was the last.
    Read(u8, u8),
    /// An act goes on.
    Act(u8),
    /// A write is made.
    Land(usize),
    /// A call's answer is lost, and it sends the same write again.
    Lose(u8),
    /// A call's process is killed.
    Kill(u8),
    /// An act's process is killed.
    KillAct(u8),
}

/// The first process number of the acts.
const ACTS: u8 = 8;
/// The settlements made before.
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

    /// The horizon of a window that was read.
    fn cleared(&self, window: &Window) -> Option<Tick> {
        if self.has(Flaw::EvictionLowersHorizon) {
            None
        } else {
            window.horizon
        }
    }

    /// The last step of a call's reads.
    fn decide(&self, state: &State, call: usize, inputs: &Inputs) -> Decision {
        let (asked, calling) = (&self.calls[call], &state.calls[call]);
        let (Some((agent, record)), Some((policy, approval, frozen)), Some(day)) =
            (&inputs.first, &inputs.second, &inputs.day)
        else {
            return Decision::ReadAgain;
        };
        let (world, now) = (&state.world, state.world.now + asked.skew);
        // Policy and window are stored together, and must have been read in the same version.
        if policy.map(|policy| policy.version) != day.as_ref().map(|day| day.stamp) {
            return Decision::ReadAgain;
        }
        // The second trip.
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
            horizon: None,
            entries: Vec::new(),
        };
        let day = day.clone().unwrap_or(empty);
        let budget = budget.and_then(|(rule, window)| Some((rule, window?)));
        let windows = [
            Some((Scope::Day, judged, day)),
            budget.map(|(rule, window)| (Scope::Budget, rule, window)),
        ];
        let windows: Vec<(Scope, Limit, Window)> = windows.into_iter().flatten().collect();
        // The recorded time.
        let earliest = |(scope, _, window): &(Scope, Limit, Window)| window.horizon.map(|h| h + scope.length());
        let at = windows.iter().filter_map(earliest).fold(now, Tick::max);
        if frozen {
            return Decision::Answer(Outcome::Refused);
        }
        let mut charges = Vec::new();
        for (scope, limit, window) in &windows {
            let cut = at - scope.length();
            let expired: Vec<Entry> = window.entries.iter().filter(|entry| entry.at <= cut).copied().collect();
            // Eager at first, then as much as is needed.
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
                horizon: cut,
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

    /// Signs a payment. The nonce is the settlement's.
    fn sign(&self, state: &mut State, call: usize, settlement: SettlementId) {
        let key = self.calls[call].key;
        state.signed.insert((key, settlement));
        let (by_owner, by_operators) = state.calls[call].after_freeze;
        let stands = (by_owner && state.frozen.0) || (by_operators && state.frozen.1);
        state.world.broken.unless(!stands, Law::Freeze);
    }

    /// Decides again, or fails.
    fn again(&self, calling: &mut Calling) {
        calling.attempt += 1;
        calling.resent = false;
        calling.step = if calling.attempt < self.attempts {
            Step::Reading(Inputs::default())
        } else {
            Step::Done(Outcome::Failed)
        };
    }

    /// A call gets the answer to its write.
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
                // An attempt whose answer was lost has bound the key.
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

    /// An act begins, or goes on.
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
                // The edit of a default writes the default first.
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
            // The services with a policy are read.
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

    /// An edit of the agent is answered.
    fn edited(&self, state: &mut State, index: usize, version: u8) {
        let narrows = !matches!(self.acts[index], Act::Freeze(false));
        if narrows {
            state.world.floor.agent = state.world.floor.agent.max(version);
        }
        if let Act::Freeze(true) = self.acts[index] {
            state.frozen.0 = state.world.ledger.agent.frozen;
        }
    }

    /// An act gets the answer to its write.
    fn act_answered(&self, state: &mut State, index: usize, write: &Write, answer: &Answer) {
        let is_done = *answer == Answer::Done;
        state.acts[index] = match (state.acts[index], write) {
            // The edit goes on with the stored default.
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
                // An end that was sent before and is made later ends it.
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
                horizon: -100,
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
    /// The laws that a state breaks.
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
