//! Models proofs, runs of `reconcile`, and the chain.
//!
//! The chain is a tree of blocks. Each endpoint sees the tree up to its own newest block, which never moves to a lower
//! block. A block that counts as final can therefore still be replaced, and the protocol must then repair the
//! confirmations.

use crate::{
    flaw::Flaw,
    law::{Broken, Law},
    ledger::{
        Answer, Block, Charge, Entry, Height, Ledger, Limit, Place, Reservation, Role, Scope, SettlementId,
        State as Paid, Tick, Tx, Write,
    },
    world::World,
};
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// A transaction, and the settlements that its transfers pay, in their order.
pub type Pays = (Tx, &'static [SettlementId]);

/// A bounded model of settlement.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The name of the model.
    pub name: &'static str,
    /// The number of settlements, all reserved at the beginning.
    pub settlements: u8,
    /// The transactions that may be mined.
    pub payments: Vec<Pays>,
    /// The number of blocks in each fork of the chain.
    pub depth: Height,
    /// The height of the first block whose time is past `validBefore`. Later blocks can't contain the payments.
    pub ends: Height,
    /// The agents' proofs: a settlement, and a transaction.
    pub proofs: Vec<(SettlementId, Tx)>,
    /// The number of runs of `reconcile`.
    pub runs: u8,
    /// Whether the second endpoint never shows a payment.
    pub liar: bool,
    /// Whether a new payment is reserved and old payments are evicted meanwhile.
    pub spends: bool,
    /// The number of ticks after which time stops.
    pub ticks: Tick,
    /// The maximum number of lost responses and crashed processes.
    pub faults: u8,
    /// Whether only the first fork contains payments.
    pub fork: bool,
    /// Whether claim and confirmation are one step, as replays against the real store require.
    pub whole: bool,
    /// The bug planted in the model; `None` for a correct model.
    pub flaw: Option<Flaw>,
}

/// The blocks of both forks. Both begin with block 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    depth: Height,
    /// The transactions of each fork by height, from height 1.
    forks: [Vec<Vec<Tx>>; 2],
}

impl Tree {
    /// Returns the height of a block.
    pub fn height(&self, block: Block) -> Height {
        if block == 0 { 0 } else { (block - 1) % self.depth + 1 }
    }

    /// Returns the ancestor of a block at this height. A block is its own ancestor.
    fn ancestor(&self, block: Block, height: Height) -> Option<Block> {
        let of = self.height(block);
        if height > of {
            None
        } else if height == 0 {
            Some(0)
        } else {
            Some(block - (of - height))
        }
    }

    /// Returns whether a block is `other`, or a descendant of `other`.
    fn has(&self, block: Block, other: Block) -> bool {
        self.ancestor(block, self.height(other)) == Some(other)
    }

    fn transactions(&self, block: Block) -> &[Tx] {
        if block == 0 {
            return &[];
        }
        let fork = usize::from((block - 1) / self.depth);
        &self.forks[fork][usize::from(self.height(block)) - 1]
    }

    /// Returns the ancestor of `head` that contains this transaction.
    fn block_of(&self, head: Block, wanted: Tx) -> Option<Block> {
        let up_to = (1..=self.height(head)).filter_map(|height| self.ancestor(head, height));
        let mut found = up_to.filter(|block| self.transactions(*block).contains(&wanted));
        found.next()
    }

    /// Returns all blocks except block 0.
    fn blocks(&self) -> std::ops::RangeInclusive<Block> {
        1..=self.depth * 2
    }
}

/// A settlement when a process read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KnownSettlement {
    id: SettlementId,
    state: Paid,
    counted_at: Tick,
    /// Whether a claim of the settlement was removed before the read.
    unclaimed: bool,
}

/// The settlement that a process handles. A run also has a final block, and a claim to remove at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Task {
    read: KnownSettlement,
    at: Option<Block>,
    remove: Option<(Place, Block)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    /// A proof has read its settlement.
    Known(KnownSettlement),
    /// A proof has found the transaction in this block.
    Mined(KnownSettlement, Block),
    /// A run has a final block.
    Final(Block),
    /// A run of `reconcile` has read a settlement, and the claim in a removed block that led to the settlement.
    Looked(Block, KnownSettlement, Option<(Place, Block)>),
    /// The process has sent a confirmation by this transaction in this block, or a release from these windows.
    Writing(Task, Option<(Tx, Block)>, Vec<Scope>),
    Done,
}

/// A state of the settlement model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that all models have.
    pub world: World,
    tree: Tree,
    heads: [Block; 2],
    /// The blocks that an endpoint has shown as final.
    seen: BTreeSet<Block>,
    processes: Vec<Step>,
    resent: u32,
    faults: u8,
    /// Whether the new payment was reserved, and whether expired payments were evicted.
    spent: (bool, bool),
    decisions: u8,
    /// Whether a payment was confirmed after its release.
    late: bool,
}

impl State {
    /// Returns whether an endpoint's newest block may change from `head` to `next`.
    fn may_see(&self, head: Block, next: Block) -> bool {
        self.tree.height(next) >= self.tree.height(head)
    }
}

/// A step of the settlement model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A process reads a settlement. A run of `reconcile` may read any settlement, and an agent's proof only its own.
    Look(u8, SettlementId),
    /// A run reads this claim in a block that is no longer on the chain.
    Watch(u8, Place),
    /// A process calls an endpoint, whose newest block is then this block.
    Ask(u8, u8, Block),
    /// A run decides on the settlement that it has read.
    Decide(u8),
    /// The ledger applies the sent write with this index.
    Land(usize),
    /// A response is lost, and the process sends the same write again.
    Lose(u8),
    /// A process crashes.
    Kill(u8),
    /// A new payment is reserved, or expired payments are evicted.
    Spend,
    /// `reconcile` evicts expired payments.
    Evict,
}

/// The process number of the new payment and the eviction.
const OTHERS: u8 = 50;
/// The id of the new payment's settlement.
const NEW: SettlementId = 60;

impl Settle {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn is_proof(&self, process: u8) -> bool {
        usize::from(process) < self.proofs.len()
    }

    /// Returns the index of a settlement's transfer in a transaction.
    fn log(&self, tx: Tx, settlement: SettlementId) -> Option<u8> {
        let (_, pays) = self.payments.iter().find(|(of, _)| *of == tx)?;
        let log = pays.iter().position(|of| *of == settlement)?;
        u8::try_from(log).ok()
    }

    /// Returns the transaction that pays a settlement, and its block, which is `up_to` or an ancestor.
    fn paid(&self, tree: &Tree, settlement: SettlementId, up_to: Block) -> Option<(Tx, Block)> {
        let paying = self.payments.iter().filter(|(_, pays)| pays.contains(&settlement));
        let mut found = paying.filter_map(|(tx, _)| Some((*tx, tree.block_of(up_to, *tx)?)));
        found.next()
    }

    /// Returns the transaction that pays a settlement, and its block, as an endpoint shows both.
    fn shows(&self, tree: &Tree, endpoint: u8, settlement: SettlementId, up_to: Block) -> Option<(Tx, Block)> {
        if self.liar && endpoint == 1 {
            return None;
        }
        self.paid(tree, settlement, up_to)
    }

    /// Returns the settlement's state and time as read, the index of its transfer, and whether a run of `reconcile`
    /// read it.
    pub fn judged(&self, state: &State, process: u8, tx: Tx) -> Option<(Paid, Tick, u8, bool)> {
        let Some(Step::Writing(Task { read, .. }, ..)) = state.processes.get(usize::from(process)) else {
            return None;
        };
        let log = self.log(tx, read.id).unwrap_or(0);
        Some((read.state, read.counted_at, log, !self.is_proof(process)))
    }

    fn read(state: &State, id: SettlementId) -> Option<KnownSettlement> {
        let of = state.world.ledger.settlements.get(&id)?;
        Some(KnownSettlement {
            id,
            state: of.state,
            counted_at: of.counted_at,
            unclaimed: false,
        })
    }

    /// Sends a write. If `goes_on` is set, the previous write belongs to the same call of the store.
    fn send(&self, state: &mut State, process: u8, step: Step, write: Write, goes_on: bool) {
        state.processes[usize::from(process)] = step;
        state.resent &= !(1 << process);
        state.world.send(process, write);
        let mine = |flight: &crate::world::Flight| flight.by == process && flight.awaited;
        if let Some(index) = state
            .world
            .flights
            .iter()
            .position(mine)
            .filter(|_| self.whole && goes_on)
        {
            self.land(state, index);
        }
    }

    /// Claims a transaction for a settlement. If another settlement has the claim, claims only the settlement's
    /// transfer.
    fn claim(&self, state: &mut State, process: u8, task: Task, by: (Tx, Block), beside: bool, goes_on: bool) {
        let (tx, block) = by;
        let settlement = task.read.id;
        let log = if beside { self.log(tx, settlement) } else { None };
        let place = (state.tree.height(block), tx, log);
        let write = match task.read.state {
            Paid::Authorized if self.has(Flaw::ConfirmsWithoutClaim) => Write::Confirm { settlement, place },
            Paid::Authorized if task.read.unclaimed => Write::ConfirmClaimed {
                settlement,
                place,
                block,
            },
            Paid::Expired if !self.has(Flaw::ConfirmIgnoresState) => self.late(state, settlement, place, block),
            Paid::Authorized | Paid::Expired => Write::Claim {
                settlement,
                place,
                block,
            },
            // The chain has moved a confirmed settlement's transaction to another block.
            Paid::Confirmed { .. } => Write::Move {
                settlement,
                place,
                block,
            },
        };
        let step = Step::Writing(task, Some(by), Vec::new());
        self.send(state, process, step, write, goes_on);
    }

    /// Confirms a released settlement.
    fn late(&self, state: &State, settlement: SettlementId, place: Place, block: Block) -> Write {
        let ledger = &state.world.ledger;
        let of = &ledger.settlements[&settlement];
        let horizons = of.scopes.iter().filter_map(|scope| {
            let window = ledger.windows.get(scope)?;
            Some(window.watermark? + scope.length())
        });
        let counted_at = if self.has(Flaw::LateEntryIgnoresHorizon) {
            of.at
        } else {
            horizons.fold(state.world.now, Tick::max)
        };
        Write::ConfirmReleased {
            settlement,
            place,
            block,
            counted_at,
            scopes: of.scopes.clone(),
        }
    }

    /// Decides on a settlement, as `purser_domain::reconcile` does, and sends the write.
    fn decide(&self, state: &mut State, process: u8, task: Task) {
        let Task { read, at, remove } = task;
        let at = at.unwrap_or_default();
        let height = state.tree.height(at);
        let shown = self.shows(&state.tree, process % 2, read.id, at);
        // Both endpoints must show that the payment is not on the chain.
        let witnessed = self.has(Flaw::ReleaseAsksOneEndpoint)
            || (0..2).all(|witness| self.shows(&state.tree, witness, read.id, at) == shown);
        match (shown, read.state) {
            (Some(by), Paid::Authorized | Paid::Expired) => self.claim(state, process, task, by, false, false),
            (Some(by), Paid::Confirmed { tx, block }) if tx == by.0 => {
                if block == state.tree.height(by.1) && remove.is_none() {
                    state.processes[usize::from(process)] = Step::Done;
                } else {
                    self.claim(state, process, task, by, false, false);
                }
            }
            (Some(_), Paid::Confirmed { tx, .. }) if witnessed => self.revert(state, process, task, tx),
            (None, Paid::Confirmed { tx, block }) if witnessed && height >= block => {
                self.revert(state, process, task, tx);
            }
            (None, Paid::Authorized) if witnessed && (height >= self.ends || self.has(Flaw::ReleaseByClock)) => {
                let scopes = state.world.ledger.settlements[&read.id].scopes.clone();
                self.release(state, process, task, scopes, false);
            }
            _ => state.processes[usize::from(process)] = Step::Done,
        }
    }

    fn revert(&self, state: &mut State, process: u8, task: Task, tx: Tx) {
        let (settlement, decision) = (task.read.id, state.decisions);
        state.decisions += 1;
        let write = Write::Revert {
            settlement,
            tx,
            decision,
        };
        self.send(state, process, Step::Writing(task, None, Vec::new()), write, false);
    }

    fn release(&self, state: &mut State, process: u8, task: Task, scopes: Vec<Scope>, goes_on: bool) {
        // A payment may be released after `validBefore`, if the final chain has no transfer for it.
        let (tree, at) = (&state.tree, task.at.unwrap_or_default());
        let mut after = tree.blocks().filter(|block| tree.has(*block, at));
        let never = after.all(|block| self.paid(tree, task.read.id, block).is_none());
        let is_past = tree.height(at) >= self.ends;
        state.world.broken.unless(never && is_past, Law::Unpayable);
        let write = Write::Release {
            settlement: task.read.id,
            counted_at: task.read.counted_at,
            scopes: scopes.clone(),
        };
        self.send(state, process, Step::Writing(task, None, scopes), write, goes_on);
    }

    /// Applies a write, and continues its process.
    fn land(&self, state: &mut State, index: usize) {
        let (flight, answer) = state.world.land(index, self.flaw);
        let is_done = answer == Answer::Done;
        if is_done && matches!(flight.write, Write::ConfirmReleased { .. }) {
            state.late = true;
        }
        if !flight.awaited || flight.by >= OTHERS {
            return;
        }
        let process = flight.by;
        let Step::Writing(task, by, scopes) = state.processes[usize::from(process)].clone() else {
            return;
        };
        state.processes[usize::from(process)] = Step::Done;
        let refused = |role: Role| matches!(&answer, Answer::Refused(roles) if roles.contains(&role));
        let mut ends = false;
        match (flight.write, by) {
            (Write::Claim { settlement, place, .. }, Some(by)) if is_done => {
                let step = Step::Writing(task, Some(by), Vec::new());
                self.send(state, process, step, Write::Confirm { settlement, place }, true);
            }
            (
                Write::Claim { place, .. }
                | Write::ConfirmClaimed { place, .. }
                | Write::ConfirmReleased { place, .. }
                | Write::Move { place, .. },
                Some(by),
            ) if refused(Role::Claim) && place.2.is_none() && !self.is_proof(process) => {
                self.claim(state, process, task, by, true, true);
            }
            (
                Write::Confirm { place, .. }
                | Write::ConfirmClaimed { place, .. }
                | Write::ConfirmReleased { place, .. },
                Some(by),
            ) if !is_done && !refused(Role::Claim) => {
                // After a rejected confirmation, the process reads the settlement and decides again.
                let read = Self::read(state, task.read.id).filter(|read| !matches!(read.state, Paid::Confirmed { .. }));
                if let Some(read) = read {
                    let unclaimed = read.state == Paid::Authorized;
                    let read = KnownSettlement { unclaimed, ..read };
                    self.claim(state, process, Task { read, ..task }, by, place.2.is_some(), true);
                }
            }
            (Write::Revert { .. }, _) if is_done || refused(Role::Decision) => {
                // The settlement is authorized again.
                let state_now = Paid::Authorized;
                let read = KnownSettlement {
                    state: state_now,
                    ..task.read
                };
                self.decide(state, process, Task { read, ..task });
                ends = state.processes[usize::from(process)] == Step::Done;
            }
            (Write::Release { .. }, _) if is_done => ends = true,
            (Write::Release { .. }, _) if !refused(Role::Settlement) => {
                let kept = scopes
                    .into_iter()
                    .filter(|scope| !refused(Role::Entry(*scope)))
                    .collect();
                self.release(state, process, task, kept, true);
            }
            (Write::Move { .. }, _) => ends = true,
            _ => {}
        }
        // The claim is removed when no settlement depends on it.
        if let Some((place, block)) = task.remove.filter(|_| ends) {
            state.world.send(OTHERS, Write::RemoveClaim { place, block });
        }
    }
}

impl Model for Settle {
    type State = State;
    type Action = Action;

    /// Returns one state for each order in which the payments may be mined.
    fn init_states(&self) -> Vec<State> {
        let mut ledger = Ledger::new(Some(Limit {
            version: 1,
            cap: 4,
            asks: false,
        }));
        for id in 0..self.settlements {
            let paid = reservation(id, 0, Vec::new(), None);
            ledger.apply(&Write::Reserve(paid), None);
        }
        let mut forks: Vec<Vec<Vec<Tx>>> = vec![vec![Vec::new(); usize::from(self.depth)]];
        for (tx, pays) in &self.payments {
            let mut more = Vec::new();
            for fork in &forks {
                let is_paid = |id: &SettlementId| fork.iter().flatten().any(|tx| self.log(*tx, *id).is_some());
                if pays.iter().any(is_paid) {
                    continue;
                }
                // A fork contains a payment at most once, and before `ends`.
                for height in 1..self.ends.min(self.depth + 1) {
                    let mut fork = fork.clone();
                    fork[usize::from(height) - 1].push(*tx);
                    more.push(fork);
                }
            }
            forks.extend(more);
        }
        let mut states = Vec::new();
        let without = usize::from(self.fork);
        for (first, one) in forks.iter().enumerate().skip(without) {
            // Without a fork, both branches have the same payments.
            let others = if self.fork { 1 } else { first + 1 };
            for other in &forks[..others] {
                let tree = Tree {
                    depth: self.depth,
                    forks: [one.clone(), other.clone()],
                };
                states.push(State {
                    world: World::new(ledger.clone()),
                    tree,
                    heads: [0, 0],
                    seen: BTreeSet::new(),
                    processes: vec![Step::Idle; self.proofs.len() + usize::from(self.runs)],
                    resent: 0,
                    faults: self.faults,
                    spent: (false, false),
                    decisions: 0,
                    late: false,
                });
            }
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.world.now < self.ticks {
            actions.push(Action::Tick);
        }
        // An endpoint's newest block matters only to a call, so it moves in the same step as the call.
        let asks: Vec<(u8, Block)> = (0..)
            .zip(state.heads)
            .flat_map(|(endpoint, head)| {
                let next = state.tree.blocks().filter(move |block| state.may_see(head, *block));
                next.map(move |block| (endpoint, block))
            })
            .collect();
        for (process, step) in (0_u8..).zip(&state.processes) {
            let is_proof = self.is_proof(process);
            match step {
                Step::Idle if is_proof => actions.push(Action::Look(process, self.proofs[usize::from(process)].0)),
                Step::Idle => {
                    let own = asks.iter().filter(|(endpoint, _)| *endpoint == process % 2);
                    actions.extend(own.map(|(endpoint, block)| Action::Ask(process, *endpoint, *block)));
                }
                Step::Known(_) | Step::Mined(..) => {
                    actions.extend(
                        asks.iter()
                            .map(|(endpoint, block)| Action::Ask(process, *endpoint, *block)),
                    );
                }
                Step::Final(block) => {
                    actions.extend((0..self.settlements).map(|id| Action::Look(process, id)));
                    let gone = state.world.ledger.claims.iter().filter(|((height, ..), (_, of))| {
                        let canonical = state.tree.ancestor(*block, *height);
                        canonical.is_some_and(|canonical| canonical != *of)
                    });
                    actions.extend(gone.map(|(place, _)| Action::Watch(process, *place)));
                }
                Step::Looked(..) => actions.push(Action::Decide(process)),
                Step::Writing(..) if state.faults > 0 => {
                    if state.resent & (1 << process) == 0 {
                        actions.push(Action::Lose(process));
                    }
                    actions.push(Action::Kill(process));
                }
                Step::Writing(..) | Step::Done => {}
            }
        }
        actions.extend((0..state.world.flights.len()).map(Action::Land));
        if self.spends && !state.spent.0 {
            actions.push(Action::Spend);
        }
        if self.spends && !state.spent.1 && state.world.now >= Scope::Day.length() {
            actions.push(Action::Evict);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.world.now += 1,
            Action::Look(process, id) => {
                let read = Self::read(&state, id)?;
                let step = match state.processes[usize::from(process)] {
                    Step::Final(block) => Step::Looked(block, read, None),
                    _ => Step::Known(read),
                };
                state.processes[usize::from(process)] = step;
            }
            Action::Watch(process, place) => {
                let Step::Final(block) = state.processes[usize::from(process)] else {
                    return None;
                };
                let (id, gone) = *state.world.ledger.claims.get(&place)?;
                let read = Self::read(&state, id)?;
                let rests = read.state
                    == Paid::Confirmed {
                        tx: place.1,
                        block: place.0,
                    };
                state.processes[usize::from(process)] = if rests {
                    Step::Looked(block, read, Some((place, gone)))
                } else {
                    // No settlement depends on the claim.
                    let remove = Write::RemoveClaim { place, block: gone };
                    state.world.send(OTHERS, remove);
                    Step::Done
                };
            }
            Action::Ask(process, endpoint, head) => {
                state.heads[usize::from(endpoint)] = head;
                let height = state.tree.height(head);
                let below = (0..height).filter_map(|height| state.tree.ancestor(head, height));
                let below: Vec<Block> = below.collect();
                state.seen.extend(below);
                let step = match state.processes[usize::from(process)].clone() {
                    Step::Idle => match height.checked_sub(1) {
                        Some(below) => Step::Final(state.tree.ancestor(head, below)?),
                        None => return None,
                    },
                    Step::Known(read) => {
                        let tx = self.proofs[usize::from(process)].1;
                        match state.tree.block_of(head, tx) {
                            Some(block) => Step::Mined(read, block),
                            None => Step::Done,
                        }
                    }
                    Step::Mined(read, block) => {
                        let tx = self.proofs[usize::from(process)].1;
                        let number = state.tree.height(block);
                        let is_deep = number < height || (self.has(Flaw::ConfirmsAtTheHead) && number <= height);
                        let stands = state.tree.ancestor(head, number) == Some(block) || self.has(Flaw::FinalByNumber);
                        let matches = self.log(tx, read.id).is_some() || self.has(Flaw::MatchesWithoutNonce);
                        if is_deep && stands && matches {
                            let task = Task {
                                read,
                                at: None,
                                remove: None,
                            };
                            self.claim(&mut state, process, task, (tx, block), false, false);
                            state.world.broken = state.world.broken.and(self.broken(&state));
                            return Some(state);
                        }
                        Step::Done
                    }
                    _ => return None,
                };
                state.processes[usize::from(process)] = step;
            }
            Action::Decide(process) => {
                let Step::Looked(block, read, remove) = state.processes[usize::from(process)] else {
                    return None;
                };
                let at = Some(block);
                self.decide(&mut state, process, Task { read, at, remove });
            }
            Action::Land(index) => self.land(&mut state, index),
            Action::Lose(process) => {
                state.faults -= 1;
                state.resent |= 1 << process;
                let write = state.world.give_up(process)?;
                state.world.send(process, write);
            }
            Action::Kill(process) => {
                state.faults -= 1;
                state.world.give_up(process);
                state.processes[usize::from(process)] = Step::Done;
            }
            Action::Spend => {
                state.spent.0 = true;
                let window = &state.world.ledger.windows[&Scope::Day];
                let now = window
                    .watermark
                    .map_or(state.world.now, |h| state.world.now.max(h + Scope::Day.length()));
                let expired = window
                    .entries
                    .iter()
                    .filter(|entry| entry.at <= now - Scope::Day.length());
                let evict: Vec<Entry> = expired.copied().collect();
                let cleared = window.watermark;
                let paid = reservation(NEW, now, evict, cleared);
                state.world.send(OTHERS, Write::Reserve(paid));
            }
            Action::Evict => {
                state.spent.1 = true;
                let window = &state.world.ledger.windows[&Scope::Day];
                let cut = state.world.now - Scope::Day.length();
                let evict: Vec<Entry> = window.entries.iter().filter(|entry| entry.at <= cut).copied().collect();
                if evict.is_empty() {
                    return None;
                }
                let write = Write::Evict {
                    scope: Scope::Day,
                    stamp: window.stamp,
                    cleared: window.watermark,
                    evict,
                };
                state.world.send(OTHERS, write);
            }
        }
        state.world.broken = state.world.broken.and(self.broken(&state));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.push(Property::sometimes("a payment is confirmed", |_, state: &State| {
            let mut all = state.world.ledger.settlements.values();
            all.any(|of| matches!(of.state, Paid::Confirmed { .. }))
        }));
        if self.depth > self.ends {
            properties.push(Property::sometimes("a payment is released", |_, state: &State| {
                state
                    .world
                    .ledger
                    .settlements
                    .values()
                    .any(|of| of.state == Paid::Expired)
            }));
        }
        if self.depth > self.ends && self.runs > 1 && !self.liar {
            properties.push(Property::sometimes(
                "a payment is confirmed after its release",
                |_, state: &State| state.late,
            ));
            properties.push(Property::sometimes("a confirmation is reverted", |_, state: &State| {
                !state.world.ledger.reverts.is_empty()
            }));
        }
        properties
    }
}

crate::laws!(Totals, Cap, Horizon, Paid, Unpayable, OneProof, Revert, Moves, Claims);

impl Settle {
    /// Returns the invariants that a state violates.
    fn broken(&self, state: &State) -> Broken {
        let mut broken = Broken::default();
        let (ledger, tree) = (&state.world.ledger, &state.tree);
        for (id, of) in &ledger.settlements {
            if *id >= self.settlements {
                continue;
            }
            match of.state {
                Paid::Confirmed { tx, block } => {
                    let has_it = |seen: &Block| tree.height(*seen) == block && tree.transactions(*seen).contains(&tx);
                    broken.unless(state.seen.iter().any(has_it), Law::Paid);
                    broken.unless(self.log(tx, *id).is_some(), Law::OneProof);
                    let claims = ledger.claims.range((block, tx, None)..=(block, tx, Some(u8::MAX)));
                    broken.unless(claims.into_iter().any(|(_, (by, _))| by == id), Law::Claims);
                }
                Paid::Expired => {
                    let shows = |seen: &Block| tree.height(*seen) >= self.ends && self.paid(tree, *id, *seen).is_none();
                    broken.unless(state.seen.iter().any(shows), Law::Unpayable);
                }
                Paid::Authorized => {}
            }
        }
        broken
    }
}

/// Returns the reservation of a payment of two units in the daily window.
fn reservation(id: SettlementId, at: Tick, evict: Vec<Entry>, cleared: Option<Tick>) -> Reservation {
    let charge = Charge {
        scope: Scope::Day,
        stamp: 1,
        cap: 4,
        watermark: at - Scope::Day.length(),
        evict,
        cleared,
    };
    Reservation {
        id,
        key: id,
        request: id,
        approval: None,
        amount: 2,
        at,
        agent: 1,
        charges: vec![charge],
    }
}
