//! Models an ownership transfer that runs concurrently with other offers, updates of the agent, approval requests and
//! decisions.
//!
//! The steps are those of `accept_handover` and of `read_own_approval` in `functions/dashboard/src`.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::{Agent, Answer, ApprovalRuling, Ledger, Offer, Person, Request, Tick, Write},
    world::World,
};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// An operation that runs in the handover model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Operators offer the agent to a user. The offer expires at this time.
    Offer(Person, Tick),
    /// Operators withdraw the offer.
    TakeBack,
    /// A user accepts the offer.
    Accept(Person),
    /// A user freezes the agent.
    Freeze(Person),
    /// A user approves the first approval of this request.
    Approve(Person, Request),
    /// The agent requests an approval.
    Ask(Request),
}

/// A bounded model of an ownership transfer.
#[derive(Clone, Debug)]
pub struct Handover {
    /// The name of the model.
    pub name: &'static str,
    /// The operations.
    pub acts: Vec<Act>,
    /// Whether an approval is pending at the beginning.
    pub asked: bool,
    /// The number of ticks after which time stops.
    pub ticks: Tick,
    /// The maximum number of crashed processes.
    pub faults: u8,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    /// An acceptance has read the offer.
    Offered(Option<Offer>),
    /// A decision or an approval request has read the agent.
    Agent(Agent),
    /// An acceptance moves the agent's approvals: those still to be moved, and all that it found.
    Moving(Vec<(Request, u8)>, Vec<(Request, u8)>),
    Writing,
    Done,
}

/// A state of the handover model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have.
    pub world: World,
    acts: Vec<(Step, u8)>,
    /// For each operation, the owner when the operation began.
    began: Vec<Person>,
    faults: u8,
    /// The user who completed an acceptance, and the approvals that the acceptance found.
    moved: Option<(Person, BTreeSet<(Request, u8)>)>,
}

/// A step of the handover model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// An operation continues.
    Go(u8),
    /// The ledger applies the sent write with this index.
    Land(usize),
    /// A process crashes.
    Kill(u8),
}

impl Handover {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn go(&self, state: &mut State, index: usize) {
        let process = u8::try_from(index).unwrap_or(0);
        let (step, attempt) = state.acts[index].clone();
        let (ledger, now) = (&state.world.ledger, state.world.now);
        let agent = ledger.agent.clone();
        if step == Step::Idle && attempt == 0 {
            state.began[index] = agent.owner;
        }
        let (next, write) = match (step, self.acts[index]) {
            (Step::Idle, Act::Offer(to, ends)) => (Step::Writing, Some(Write::Offer { to, at: now, ends })),
            (Step::Idle, Act::TakeBack) => (Step::Writing, Some(Write::TakeBack)),
            (Step::Idle, Act::Accept(_)) => (Step::Offered(ledger.offer), None),
            (Step::Offered(_), Act::Accept(person)) if agent.owner == person => {
                // The ledger contains only this agent's approvals.
                let found: Vec<(Request, u8)> = ledger.approvals.keys().copied().collect();
                (Step::Moving(found.clone(), found), None)
            }
            (Step::Offered(offer), Act::Accept(person)) => {
                let open =
                    offer.filter(|offer| offer.to == person && (now < offer.ends || self.has(Flaw::OfferHasNoEnd)));
                match open {
                    Some(offer) => {
                        state.world.broken.unless(now < offer.ends, Law::Handover);
                        let write = Write::HandOver {
                            old: agent,
                            to: person,
                            at: offer.at,
                        };
                        (Step::Writing, Some(write))
                    }
                    None => (Step::Done, None),
                }
            }
            (Step::Moving(mut left, found), Act::Accept(person)) => {
                let next = if self.has(Flaw::AcceptSkipsApprovals) {
                    None
                } else {
                    left.pop()
                };
                match next {
                    Some(approval) => {
                        let old = ledger.approvals[&approval].owner;
                        let write = (old != person).then_some(Write::MoveApproval {
                            approval,
                            old,
                            new: person,
                        });
                        // The acceptance continues even if the move is rejected.
                        (Step::Moving(left, found), write)
                    }
                    None => {
                        state.moved = Some((person, found.into_iter().collect()));
                        (Step::Done, None)
                    }
                }
            }
            (Step::Idle, Act::Freeze(person)) => {
                if agent.owner == person {
                    let write = Write::EditAgent {
                        old: agent.version,
                        frozen: true,
                        budget: None,
                    };
                    (Step::Writing, Some(write))
                } else {
                    (Step::Done, None)
                }
            }
            (Step::Idle, Act::Approve(person, _)) => {
                if agent.owner == person || self.has(Flaw::AnybodyRules) {
                    (Step::Agent(agent), None)
                } else {
                    (Step::Done, None)
                }
            }
            (Step::Agent(known), Act::Approve(person, request)) => match ledger.approvals.get(&(request, 0)) {
                None => (Step::Done, None),
                Some(approval) if approval.owner != known.owner => {
                    let write = Write::MoveApproval {
                        approval: (request, 0),
                        old: approval.owner,
                        new: known.owner,
                    };
                    (Step::Agent(known), Some(write))
                }
                Some(_) => {
                    let write = Write::Rule {
                        approval: (request, 0),
                        by: person,
                        at: now,
                        ruling: ApprovalRuling::Approve,
                    };
                    (Step::Writing, Some(write))
                }
            },
            (Step::Idle, Act::Ask(_)) => (Step::Agent(agent), None),
            (Step::Agent(known), Act::Ask(request)) => {
                let write = Write::Escalate {
                    key: process,
                    request,
                    number: 0,
                    new: Some((known.owner, 10)),
                    rebinds: false,
                };
                (Step::Writing, Some(write))
            }
            (step, _) => (step, None),
        };
        state.acts[index] = (next, attempt);
        if let Some(write) = write {
            state.world.send(process, write);
        }
    }

    fn land(&self, state: &mut State, index: usize) {
        let before = state.world.ledger.clone();
        let (flight, answer) = state.world.land(index, self.flaw);
        let process = usize::from(flight.by);
        let is_done = answer == Answer::Done;
        if is_done {
            let holds = match (&flight.write, self.acts[process]) {
                (Write::HandOver { to, at, .. }, _) => {
                    let stood = before.offer.is_some_and(|offer| offer.to == *to && offer.at == *at);
                    stood && state.world.ledger.offer.is_none()
                }
                // Updates must come from the current owner, and decisions from the owner since the decision began.
                (Write::EditAgent { .. }, Act::Freeze(person)) => person == before.agent.owner,
                (Write::Rule { by, .. }, Act::Approve(..)) => {
                    state.began[process] == *by
                        && !state.moved.as_ref().is_some_and(|(_, found)| {
                            found.contains(&(self.request(process), 0)) && before.agent.owner != *by
                        })
                }
                _ => true,
            };
            state.world.broken.unless(holds, Law::Handover);
            let grows =
                before.agent == state.world.ledger.agent || before.agent.version < state.world.ledger.agent.version;
            state.world.broken.unless(grows, Law::Handover);
        }
        if !flight.awaited {
            return;
        }
        let (step, attempt) = state.acts[process].clone();
        state.acts[process] = match (flight.write, step) {
            (Write::HandOver { .. }, _) if attempt < 2 => (Step::Idle, attempt + 1),
            (Write::MoveApproval { .. }, step) => {
                // If the move is rejected, the next step of the decision is rejected too.
                (step, attempt)
            }
            _ => (Step::Done, attempt),
        };
    }

    fn request(&self, process: usize) -> Request {
        match self.acts[process] {
            Act::Approve(_, request) | Act::Ask(request) => request,
            _ => 0,
        }
    }
}

impl Model for Handover {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut ledger = Ledger::new(None);
        if self.asked {
            let ask = Write::Escalate {
                key: 40,
                request: 1,
                number: 0,
                new: Some((0, 10)),
                rebinds: false,
            };
            ledger.apply(&ask, None);
        }
        vec![State {
            world: World::new(ledger),
            acts: vec![(Step::Idle, 0); self.acts.len()],
            began: vec![0; self.acts.len()],
            faults: self.faults,
            moved: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.world.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (index, (step, _)) in (0_u8..).zip(&state.acts) {
            let waits = state
                .world
                .flights
                .iter()
                .any(|flight| flight.by == index && flight.awaited);
            if *step != Step::Done && *step != Step::Writing && !waits {
                actions.push(Action::Go(index));
            }
            if state.faults > 0 && waits {
                actions.push(Action::Kill(index));
            }
        }
        actions.extend((0..state.world.flights.len()).map(Action::Land));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.world.now += 1,
            Action::Go(index) => self.go(&mut state, usize::from(index)),
            Action::Land(index) => self.land(&mut state, index),
            Action::Kill(index) => {
                state.faults -= 1;
                state.world.give_up(index);
                state.acts[usize::from(index)].0 = Step::Done;
            }
        }
        state.world.broken = state.world.broken.and(broken(&state));
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.extend([
            Property::sometimes("an acceptance is answered", |_, state: &State| state.moved.is_some()),
            Property::sometimes("every act ends", |_, state: &State| {
                state.acts.iter().all(|(step, _)| *step == Step::Done)
            }),
        ]);
        properties
    }
}

crate::laws!(Handover, Approval);

/// Checks that the new owner has all approvals that the completed acceptance found.
fn broken(state: &State) -> Broken {
    let mut broken = Broken::default();
    let ledger = &state.world.ledger;
    if let Some((person, found)) = &state.moved
        && ledger.agent.owner == *person
    {
        let theirs = found
            .iter()
            .all(|id| ledger.approvals.get(id).is_some_and(|of| of.owner == *person));
        broken.unless(theirs, Law::Handover);
    }
    broken
}
