//! The rows of the ledger, and one transition for each transaction that changes them.
//!
//! A [`Write`] is one transaction or one conditional write of `shared/store`: its conditions and its effect, on small
//! numbers instead of ids and amounts. [`Ledger::apply`] is the only way in which any model changes a ledger, so all
//! models and the replay against the real store (`tests/traces.rs`) use the same transitions.

use crate::flaw::Flaw;
use std::collections::{BTreeMap, BTreeSet};

/// A point in time. The unit is half a day where windows matter, and one block where the chain matters.
pub type Tick = i8;
/// A person.
pub type Person = u8;
/// An idempotency key.
pub type KeyId = u8;
/// The fingerprint of a request. It stands for the amount and the payee too.
pub type Request = u8;
/// A settlement: the process that made it, and its attempt.
pub type SettlementId = u8;
/// A transaction of the chain.
pub type Tx = u8;
/// A block, by its place in the tree of a model: its hash.
pub type Block = u8;
/// The number of a block.
pub type Height = u8;

/// A window of the one agent of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The day window of the one service.
    Day,
    /// The window of the agent's budget.
    Budget,
}

impl Scope {
    /// The number of ticks for which an entry counts.
    pub const fn length(self) -> Tick {
        match self {
            Self::Day => 2,
            Self::Budget => 1,
        }
    }
}

/// The agent's record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent {
    /// Its version.
    pub version: u8,
    /// Whether its owner has frozen it.
    pub frozen: bool,
    /// Its owner.
    pub owner: Person,
    /// Its budget rule.
    pub budget: Option<Limit>,
}

/// A policy or a budget rule: a cap in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit {
    /// Its version.
    pub version: u8,
    /// The largest sum within the length of its window.
    pub cap: i8,
    /// Whether each payment needs an approval.
    pub asks: bool,
}

/// One payment that counts in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The time from which it counts.
    pub at: Tick,
    /// Its settlement.
    pub settlement: SettlementId,
    /// Its amount.
    pub amount: i8,
}

/// The totals of a window, and its entries, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The sum of the entries.
    pub total: i8,
    /// The stamp of the policy or rule, `pver`.
    pub stamp: u8,
    /// The stamp of the agent's record, `aver`.
    pub agent: u8,
    /// The time of the newest evicted entry.
    pub horizon: Option<Tick>,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// What an idempotency key was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A payment.
    Allow {
        /// The request.
        request: Request,
        /// The payment.
        settlement: SettlementId,
    },
    /// A question to a person.
    Escalated {
        /// The request.
        request: Request,
        /// The number of the approval among those of the request.
        approval: u8,
    },
}

/// The stored state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// Nobody has decided.
    Pending,
    /// The owner has approved.
    Approved,
    /// The owner has rejected, or withdrawn an approval.
    Rejected,
    /// This settlement has used it.
    Executed(SettlementId),
}

/// An approval.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Approval {
    /// The request.
    pub request: Request,
    /// The person who decides.
    pub owner: Person,
    /// The time from which it can't be decided or used.
    pub ends: Tick,
    /// Its state.
    pub ruling: Ruling,
}

impl Approval {
    /// Whether it can still lead to a payment.
    pub const fn is_open(&self, at: Tick) -> bool {
        at < self.ends && matches!(self.ruling, Ruling::Pending | Ruling::Approved)
    }
}

/// The state of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Its spend is held.
    Authorized,
    /// A transfer has paid it.
    Confirmed {
        /// The transaction.
        tx: Tx,
        /// The number of its block. The hash is in the claim.
        block: Height,
    },
    /// It can never be paid, and its spend is released.
    Expired,
}

/// A settlement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settlement {
    /// The key that it is bound to.
    pub key: KeyId,
    /// The request that it was made for.
    pub request: Request,
    /// The number of the approval that it has used.
    pub approval: Option<u8>,
    /// Its amount.
    pub amount: i8,
    /// The time of its authorization.
    pub at: Tick,
    /// The time from which it counts.
    pub counted_at: Tick,
    /// The windows that it counts in.
    pub scopes: Vec<Scope>,
    /// The address of a payout; `None` for a purchase.
    pub payout_to: Option<u8>,
    /// Its state.
    pub state: State,
    /// Whether it is in the index of holds.
    pub held: bool,
    /// Whether a claim of it was removed.
    pub unclaimed: bool,
}

/// The record of an agent's payouts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Payouts {
    /// The address, the person who named it, and the time from which it can be used.
    pub address: Option<(u8, Person, Tick)>,
    /// The latest payout.
    pub latest: Option<SettlementId>,
    /// The number of writes.
    pub version: u8,
}

/// An offer of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The person who may accept.
    pub to: Person,
    /// Its time, which distinguishes it from others.
    pub at: Tick,
    /// The time from which it can't be accepted.
    pub ends: Tick,
}

/// The key of a claim: a block's number, a transaction, and the transfer within it unless it is the whole one.
pub type Place = (Height, Tx, Option<u8>);

/// All rows of one agent that money depends on, the operators' freeze, and the claims of all agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// The agent.
    pub agent: Agent,
    /// Its policy; `None` while the default of its starting set has no row.
    pub policy: Option<Limit>,
    /// Its windows.
    pub windows: BTreeMap<Scope, Window>,
    /// Its keys.
    pub keys: BTreeMap<KeyId, Record>,
    /// Its payouts' keys.
    pub payout_keys: BTreeMap<KeyId, SettlementId>,
    /// Its settlements.
    pub settlements: BTreeMap<SettlementId, Settlement>,
    /// The approvals, by request and number.
    pub approvals: BTreeMap<(Request, u8), Approval>,
    /// Whether operators have frozen the agent.
    pub frozen: bool,
    /// The claims on transactions: each with its settlement and the hash of the block.
    pub claims: BTreeMap<Place, (SettlementId, Block)>,
    /// The payout record.
    pub payouts: Payouts,
    /// The offer of the agent.
    pub offer: Option<Offer>,
    /// The decisions that record a revert.
    pub reverts: BTreeSet<u8>,
}

/// The policy that applies without a row.
pub const DEFAULT: Limit = Limit {
    version: 1,
    cap: 100,
    asks: false,
};

/// The window that a decision charges, with the conditions of the write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// The window.
    pub scope: Scope,
    /// The version of the policy or rule.
    pub stamp: u8,
    /// Its cap.
    pub cap: i8,
    /// The recorded time less the length of the window.
    pub horizon: Tick,
    /// The expired entries that the write evicts.
    pub evict: Vec<Entry>,
    /// The horizon of the window, as it was read: an eviction never lowers it.
    pub cleared: Option<Tick>,
}

/// A payment to reserve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation {
    /// The settlement to make.
    pub id: SettlementId,
    /// Its key.
    pub key: KeyId,
    /// Its request.
    pub request: Request,
    /// The number of the approval to use.
    pub approval: Option<u8>,
    /// Its amount.
    pub amount: i8,
    /// The recorded time.
    pub at: Tick,
    /// The version of the agent's record that was judged.
    pub agent: u8,
    /// The windows.
    pub charges: Vec<Charge>,
}

/// One transaction, or one conditional write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// The default policy and its window, on this version of the agent.
    Default {
        /// The version.
        agent: u8,
    },
    /// A reservation.
    Reserve(Reservation),
    /// The eviction of expired entries without a payment.
    Evict {
        /// The window.
        scope: Scope,
        /// The version under which they have expired.
        stamp: u8,
        /// The entries.
        evict: Vec<Entry>,
        /// The horizon of the window, as it was read.
        cleared: Option<Tick>,
    },
    /// A question to a person: the key's record, and a new approval with this end unless an open one is joined.
    Escalate {
        /// The key.
        key: KeyId,
        /// The request.
        request: Request,
        /// The number of the approval.
        number: u8,
        /// The owner, and the end of a new approval.
        new: Option<(Person, Tick)>,
        /// Whether the call carries an approval that waives too few limits. Then the key may wait for an earlier approval
        /// of the request.
        rebinds: bool,
    },
    /// A person's ruling on a pending approval, or the withdrawal of an approved one.
    Rule {
        /// The approval.
        approval: (Request, u8),
        /// The person.
        by: Person,
        /// The time on the clock of the function.
        at: Tick,
        /// The state to store.
        ruling: ApprovalRuling,
    },
    /// The next version of the agent's record. A budget that is new or changed stamps its window.
    EditAgent {
        /// The version to replace.
        old: u8,
        /// Whether it is frozen.
        frozen: bool,
        /// The cap of its budget.
        budget: Option<i8>,
    },
    /// The fence of the day window.
    Fence {
        /// The version of the agent that it lets pass.
        agent: u8,
    },
    /// The next version of the policy.
    EditPolicy {
        /// The version to replace.
        old: u8,
        /// The new cap.
        cap: i8,
        /// Whether each payment needs an approval.
        asks: bool,
    },
    /// An operators' freeze, or its end.
    Freeze(bool),
    /// A claim on a transaction, or on one transfer of it.
    Claim {
        /// The settlement.
        settlement: SettlementId,
        /// The place.
        place: Place,
        /// The hash of the block.
        block: Block,
    },
    /// The confirmation of a held settlement whose claim is written and never was removed.
    Confirm {
        /// The settlement.
        settlement: SettlementId,
        /// The place of its claim.
        place: Place,
    },
    /// The confirmation of a held settlement, together with its claim.
    ConfirmClaimed {
        /// The settlement.
        settlement: SettlementId,
        /// The place.
        place: Place,
        /// The hash of the block.
        block: Block,
    },
    /// The confirmation of a released settlement, which counts again, together with its claim.
    ConfirmReleased {
        /// The settlement.
        settlement: SettlementId,
        /// The place.
        place: Place,
        /// The hash of the block.
        block: Block,
        /// The time from which it counts.
        counted_at: Tick,
        /// The windows.
        scopes: Vec<Scope>,
    },
    /// The release of a held settlement.
    Release {
        /// The settlement.
        settlement: SettlementId,
        /// The time of its entries, as it was read.
        counted_at: Tick,
        /// The windows whose entry is to be deleted.
        scopes: Vec<Scope>,
    },
    /// The revert of a confirmation.
    Revert {
        /// The settlement.
        settlement: SettlementId,
        /// The transaction that is gone.
        tx: Tx,
        /// The decision that records it.
        decision: u8,
    },
    /// A confirmation whose transaction is in another block now, together with its claim there.
    Move {
        /// The settlement.
        settlement: SettlementId,
        /// The place.
        place: Place,
        /// The hash of the new block.
        block: Block,
    },
    /// The removal of a claim in a block that is gone, unless its settlement is confirmed by it. Marks the settlement.
    RemoveClaim {
        /// The place.
        place: Place,
        /// The hash of the block that is gone.
        block: Block,
    },
    /// The next version of the payout record.
    PutPayouts {
        /// The version to replace.
        old: u8,
        /// The address, its person and the time from which it can be used; `None` removes it.
        address: Option<(u8, Person, Tick)>,
        /// The latest payout, as it was read.
        latest: Option<SettlementId>,
    },
    /// A payout.
    PayOut {
        /// The settlement.
        id: SettlementId,
        /// Its key.
        key: KeyId,
        /// The version of the record that was judged.
        seen: u8,
        /// The latest payout in it.
        latest: Option<SettlementId>,
        /// The address.
        to: u8,
        /// The person who asks for it.
        by: Person,
        /// The time of the decision.
        at: Tick,
    },
    /// An offer of the agent, which replaces another.
    Offer {
        /// The person who may accept.
        to: Person,
        /// Its time.
        at: Tick,
        /// Its end.
        ends: Tick,
    },
    /// The withdrawal of an offer.
    TakeBack,
    /// The acceptance of an offer.
    HandOver {
        /// The agent that was read, which is written again with its new owner.
        old: Agent,
        /// The new owner, as the offer names them.
        to: Person,
        /// The time of the offer that was read.
        at: Tick,
    },
    /// The move of an approval to an owner.
    MoveApproval {
        /// The approval.
        approval: (Request, u8),
        /// Its owner, as it was read.
        old: Person,
        /// The owner of the agent, as it was read.
        new: Person,
    },
}

/// A person's ruling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalRuling {
    /// Approved.
    Approve,
    /// Rejected.
    Reject,
    /// No longer approved.
    Withdraw,
}

impl Write {
    /// The name of the transition, as in [`IMPLEMENTATIONS`].
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Default { .. } => "Default",
            Self::Reserve(_) => "Reserve",
            Self::Evict { .. } => "Evict",
            Self::Escalate { .. } => "Escalate",
            Self::Rule { .. } => "Rule",
            Self::EditAgent { .. } => "EditAgent",
            Self::Fence { .. } => "Fence",
            Self::EditPolicy { .. } => "EditPolicy",
            Self::Freeze(_) => "Freeze",
            Self::Claim { .. } => "Claim",
            Self::Confirm { .. } => "Confirm",
            Self::ConfirmClaimed { .. } => "ConfirmClaimed",
            Self::ConfirmReleased { .. } => "ConfirmReleased",
            Self::Release { .. } => "Release",
            Self::Revert { .. } => "Revert",
            Self::Move { .. } => "Move",
            Self::RemoveClaim { .. } => "RemoveClaim",
            Self::PutPayouts { .. } => "PutPayouts",
            Self::PayOut { .. } => "PayOut",
            Self::Offer { .. } => "Offer",
            Self::TakeBack => "TakeBack",
            Self::HandOver { .. } => "HandOver",
            Self::MoveApproval { .. } => "MoveApproval",
        }
    }
}

/// The function that implements each transition: its name here, its file, its name there.
/// `every_model_transition_names_its_store_function` looks for each in the source.
pub const IMPLEMENTATIONS: [(&str, &str, &str); 25] = [
    (
        "Default",
        "shared/store/src/people/starting_set.rs",
        "write_default_policy",
    ),
    (
        "Reserve",
        "shared/store/src/payments/reserve.rs",
        "reservation_transaction",
    ),
    ("Reserve", "shared/store/src/payments/window.rs", "add_charge"),
    ("Evict", "shared/store/src/payments/window.rs", "evict_entries"),
    (
        "Escalate",
        "shared/store/src/payments/escalate.rs",
        "escalation_transaction",
    ),
    ("Rule", "shared/store/src/people/approval.rs", "resolve_approval"),
    ("Rule", "shared/store/src/people/approval.rs", "withdraw_approval"),
    ("EditAgent", "shared/store/src/people/agent.rs", "replace_agent"),
    ("Fence", "shared/store/src/payments/window.rs", "fence_older_versions"),
    ("EditPolicy", "shared/store/src/people/policy.rs", "policy_transaction"),
    ("Freeze", "shared/store/src/people/freezes.rs", "change_freeze"),
    ("Claim", "shared/store/src/payments/settle.rs", "put_claim"),
    ("Confirm", "shared/store/src/payments/settle.rs", "confirm_held_spend"),
    (
        "ConfirmClaimed",
        "shared/store/src/payments/settle.rs",
        "confirm_with_claim",
    ),
    (
        "ConfirmReleased",
        "shared/store/src/payments/settle.rs",
        "confirm_with_claim",
    ),
    ("Release", "shared/store/src/payments/release.rs", "release_transaction"),
    (
        "Revert",
        "shared/store/src/payments/revert_confirmation.rs",
        "revert_confirmation",
    ),
    ("Move", "shared/store/src/payments/settle.rs", "move_confirmation"),
    ("RemoveClaim", "shared/store/src/payments/settle.rs", "remove_claim"),
    (
        "PutPayouts",
        "shared/store/src/payments/payout.rs",
        "put_withdrawal_record",
    ),
    ("PayOut", "shared/store/src/payments/payout.rs", "reserve_withdrawal"),
    ("Offer", "shared/store/src/people/handover.rs", "store_agent_offer"),
    ("TakeBack", "shared/store/src/people/handover.rs", "remove_offer"),
    ("HandOver", "shared/store/src/people/handover.rs", "transfer_agent"),
    ("MoveApproval", "shared/store/src/people/handover.rs", "move_approval"),
];

/// The answer to a write: made, or refused with the roles whose conditions failed. The refused writer may look at the
/// rows that refused it, as they were.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The write was made.
    Done,
    /// Nothing was written.
    Refused(BTreeSet<Role>),
}

/// The row whose condition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The agent's record.
    Agent,
    /// The approval.
    Approval,
    /// The idempotency key.
    Key,
    /// A window's totals, or an entry to evict.
    Basis,
    /// The policy.
    Policy,
    /// The settlement.
    Settlement,
    /// The entry in this window.
    Entry(Scope),
    /// The claim.
    Claim,
    /// The decision that records a revert.
    Decision,
    /// The payout record.
    Payouts,
    /// The latest payout.
    Latest,
    /// The offer.
    Offer,
}

impl Ledger {
    /// A ledger with one agent of person 0, whose service has this policy, and one payment of each given entry.
    pub fn new(policy: Option<Limit>) -> Self {
        let mut windows = BTreeMap::new();
        if let Some(policy) = policy {
            windows.insert(Scope::Day, window(policy.version, 1));
        }
        Self {
            agent: Agent {
                version: 1,
                frozen: false,
                owner: 0,
                budget: None,
            },
            policy,
            windows,
            keys: BTreeMap::new(),
            payout_keys: BTreeMap::new(),
            settlements: BTreeMap::new(),
            approvals: BTreeMap::new(),
            frozen: false,
            claims: BTreeMap::new(),
            payouts: Payouts::default(),
            offer: None,
            reverts: BTreeSet::new(),
        }
    }

    /// The number of the newest approval of a request.
    pub fn newest_approval(&self, request: Request) -> Option<u8> {
        self.approvals
            .range((request, 0)..=(request, u8::MAX))
            .next_back()
            .map(|((_, number), _)| *number)
    }

    /// Makes a write if all its conditions hold. `flaw` is the planted error, if any.
    pub fn apply(&mut self, write: &Write, flaw: Option<Flaw>) -> Answer {
        let failed = self.failed(write, flaw);
        if !failed.is_empty() {
            return Answer::Refused(failed);
        }
        self.write(write, flaw);
        Answer::Done
    }

    /// The roles whose conditions fail.
    fn failed(&self, write: &Write, flaw: Option<Flaw>) -> BTreeSet<Role> {
        let mut failed = BTreeSet::new();
        let mut require = |holds: bool, role: Role| {
            if !holds {
                failed.insert(role);
            }
        };
        let has = |planted: Flaw| flaw == Some(planted);
        let in_state = |id: &SettlementId, wanted: &dyn Fn(State) -> bool| {
            self.settlements
                .get(id)
                .is_some_and(|settlement| wanted(settlement.state))
        };
        let is_free = |settlement: &SettlementId, place: &Place| {
            has(Flaw::ClaimIsOverwritten) || self.claims.get(place).is_none_or(|(by, _)| by == settlement)
        };
        match write {
            Write::Default { agent } => {
                require(self.policy.is_none(), Role::Policy);
                require(
                    has(Flaw::DefaultIgnoresAgent) || self.agent.version == *agent,
                    Role::Agent,
                );
            }
            Write::Reserve(of) => {
                for charge in &of.charges {
                    require(self.takes(charge, of, flaw), Role::Basis);
                }
                require(!self.settlements.contains_key(&of.id), Role::Settlement);
                let is_free = match self.keys.get(&of.key) {
                    None => true,
                    Some(Record::Escalated { request, .. }) => of.approval.is_some() && *request == of.request,
                    Some(Record::Allow { .. }) => has(Flaw::KeyIsOverwritten),
                };
                require(is_free, Role::Key);
                if let Some(number) = of.approval {
                    let fits = self.approvals.get(&(of.request, number)).is_some_and(|approval| {
                        let is_approved = approval.ruling == Ruling::Approved
                            || (has(Flaw::ApprovalIsUsedTwice) && matches!(approval.ruling, Ruling::Executed(_)));
                        is_approved && (has(Flaw::ApprovalHasNoEnd) || approval.ends > of.at)
                    });
                    require(fits, Role::Approval);
                }
            }
            Write::Evict {
                scope,
                stamp,
                evict,
                cleared,
            } => {
                let newest = evict.last().map(|entry| entry.at).max(*cleared);
                let fits = self.windows.get(scope).is_some_and(|window| {
                    window.stamp == *stamp
                        && window.horizon <= newest
                        && evict.iter().all(|entry| window.entries.contains(entry))
                });
                require(fits, Role::Basis);
            }
            Write::Escalate {
                key,
                request,
                number,
                new,
                rebinds,
            } => {
                let is_earlier = |record: &Record| {
                    matches!(record, Record::Escalated { request: bound, approval }
                        if *rebinds && bound == request && approval < number)
                };
                require(self.keys.get(key).is_none_or(is_earlier), Role::Key);
                let exists = self.approvals.contains_key(&(*request, *number));
                require(new.is_none() || !exists, Role::Approval);
            }
            Write::Rule {
                approval,
                by,
                at,
                ruling,
            } => {
                let from = match ruling {
                    ApprovalRuling::Approve | ApprovalRuling::Reject => Ruling::Pending,
                    ApprovalRuling::Withdraw => Ruling::Approved,
                };
                let fits = self.approvals.get(approval).is_some_and(|approval| {
                    let state = approval.ruling == from
                        || (has(Flaw::RulingIgnoresState) && matches!(approval.ruling, Ruling::Executed(_)));
                    state && approval.ends > *at && (has(Flaw::AnybodyRules) || approval.owner == *by)
                });
                require(fits, Role::Approval);
            }
            Write::EditAgent { old, .. } => require(self.agent.version == *old, Role::Agent),
            Write::Fence { agent } => {
                let fits = self
                    .windows
                    .get(&Scope::Day)
                    .is_some_and(|window| window.agent < *agent);
                require(fits, Role::Basis);
            }
            Write::EditPolicy { old, .. } => {
                require(self.policy.is_some_and(|policy| policy.version == *old), Role::Policy);
            }
            Write::Freeze(_) | Write::Offer { .. } | Write::TakeBack => {}
            Write::Claim { settlement, place, .. } => require(is_free(settlement, place), Role::Claim),
            Write::Confirm { settlement, .. } => {
                let confirms =
                    |state| state == State::Authorized || (has(Flaw::ConfirmIgnoresState) && state == State::Expired);
                let was_removed = self.settlements.get(settlement).is_some_and(|of| of.unclaimed);
                require(in_state(settlement, &confirms) && !was_removed, Role::Settlement);
            }
            Write::ConfirmClaimed { settlement, place, .. } => {
                require(is_free(settlement, place), Role::Claim);
                require(
                    in_state(settlement, &|state| state == State::Authorized),
                    Role::Settlement,
                );
            }
            Write::ConfirmReleased {
                settlement,
                place,
                counted_at,
                scopes,
                ..
            } => {
                require(is_free(settlement, place), Role::Claim);
                require(in_state(settlement, &|state| state == State::Expired), Role::Settlement);
                for scope in scopes {
                    let cut = counted_at - scope.length();
                    let fits = self.windows.get(scope).is_some_and(|window| {
                        has(Flaw::LateEntryIgnoresHorizon) || window.horizon.is_none_or(|h| h <= cut)
                    });
                    require(fits, Role::Basis);
                }
            }
            Write::Release {
                settlement,
                counted_at,
                scopes,
            } => {
                let releases = |state| state == State::Authorized || has(Flaw::ReleaseIgnoresState);
                require(in_state(settlement, &releases), Role::Settlement);
                let same = self
                    .settlements
                    .get(settlement)
                    .is_some_and(|of| of.counted_at == *counted_at);
                require(same || has(Flaw::ReleaseIgnoresCountedAt), Role::Settlement);
                for scope in scopes {
                    let entries = self.windows.get(scope).map(|window| &window.entries);
                    let is_there = entries.is_some_and(|entries| {
                        entries
                            .iter()
                            .any(|entry| entry.settlement == *settlement && entry.at == *counted_at)
                    });
                    require(is_there, Role::Entry(*scope));
                }
            }
            Write::Revert { settlement, tx, .. }
            | Write::Move {
                settlement,
                place: (_, tx, _),
                ..
            } => {
                if let Write::Move { place, .. } = write {
                    require(is_free(settlement, place), Role::Claim);
                }
                let rests = |state| matches!(state, State::Confirmed { tx: of, .. } if of == *tx);
                require(in_state(settlement, &rests), Role::Settlement);
                if let Write::Revert { decision, .. } = write {
                    require(!self.reverts.contains(decision), Role::Decision);
                }
            }
            Write::RemoveClaim { place, block } => {
                let of = self.claims.get(place).filter(|(_, of)| of == block);
                require(of.is_some(), Role::Claim);
                let (block, tx, _) = *place;
                let rests = of.is_some_and(|(by, _)| in_state(by, &|state| state == State::Confirmed { tx, block }));
                require(!rests || has(Flaw::RemovalIgnoresConfirmation), Role::Settlement);
            }
            Write::PutPayouts { old, .. } => require(self.payouts.version == *old, Role::Payouts),
            Write::PayOut {
                id,
                key,
                seen,
                latest,
                to,
                by,
                at,
            } => {
                require(self.agent.owner == *by || has(Flaw::PayoutIgnoresHandover), Role::Agent);
                let record = &self.payouts;
                let waits = record.address.is_none_or(|(_, _, good)| good > *at);
                let same = record.version == *seen || has(Flaw::PayoutIgnoresVersion);
                let there = record.address.is_some_and(|(address, ..)| address == *to);
                require(same && there && (!waits || has(Flaw::PayoutIgnoresWait)), Role::Payouts);
                require(!self.settlements.contains_key(id), Role::Settlement);
                require(
                    !self.payout_keys.contains_key(key) || has(Flaw::KeyIsOverwritten),
                    Role::Key,
                );
                let is_open = latest.is_some_and(|latest| in_state(&latest, &|state| state == State::Authorized));
                require(!is_open || has(Flaw::PayoutIgnoresLatest), Role::Latest);
            }
            Write::HandOver { old, to, at } => {
                let same = self.agent.version == old.version;
                require(same || has(Flaw::HandoverIgnoresAgent), Role::Agent);
                let stands = self.offer.is_some_and(|offer| offer.to == *to && offer.at == *at);
                require(stands || has(Flaw::HandoverIgnoresOffer), Role::Offer);
            }
            Write::MoveApproval { approval, old, new } => {
                let fits = self
                    .approvals
                    .get(approval)
                    .is_some_and(|approval| approval.owner == *old);
                require(fits, Role::Approval);
                require(self.agent.owner == *new || has(Flaw::MoveIgnoresAgent), Role::Agent);
            }
        }
        failed
    }

    /// Whether a window takes a charge.
    fn takes(&self, charge: &Charge, of: &Reservation, flaw: Option<Flaw>) -> bool {
        let has = |planted: Flaw| flaw == Some(planted);
        let Some(window) = self.windows.get(&charge.scope) else {
            return false;
        };
        let evicted: i8 = charge.evict.iter().map(|entry| entry.amount).sum();
        let stamped = (has(Flaw::ReserveIgnoresPolicyStamp) || window.stamp == charge.stamp)
            && (has(Flaw::ReserveIgnoresAgentStamp) || window.agent <= of.agent);
        let newest = charge
            .evict
            .last()
            .map(|newest| newest.at.max(charge.cleared.unwrap_or(newest.at)));
        let horizon = newest.unwrap_or(charge.horizon);
        let not_cleared = has(Flaw::ReserveIgnoresHorizon) || window.horizon.is_none_or(|cleared| cleared <= horizon);
        let room = has(Flaw::ReserveIgnoresRoom) || window.total <= charge.cap - of.amount + evicted;
        let all_there = has(Flaw::EvictsWhatIsGone) || charge.evict.iter().all(|entry| window.entries.contains(entry));
        stamped && not_cleared && room && all_there
    }

    /// The effect of a write whose conditions hold.
    fn write(&mut self, write: &Write, flaw: Option<Flaw>) {
        let has = |planted: Flaw| flaw == Some(planted);
        match write.clone() {
            Write::Default { agent } => {
                self.policy = Some(DEFAULT);
                self.windows.insert(Scope::Day, window(DEFAULT.version, agent));
            }
            Write::Reserve(of) => {
                for charge in &of.charges {
                    self.evict(charge.scope, &charge.evict, charge.cleared);
                    self.count(charge.scope, of.at, of.id, of.amount);
                }
                let settlement = Settlement {
                    key: of.key,
                    request: of.request,
                    approval: of.approval,
                    amount: of.amount,
                    at: of.at,
                    counted_at: of.at,
                    scopes: of.charges.iter().map(|charge| charge.scope).collect(),
                    payout_to: None,
                    state: State::Authorized,
                    held: true,
                    unclaimed: false,
                };
                self.settlements.insert(of.id, settlement);
                let record = Record::Allow {
                    request: of.request,
                    settlement: of.id,
                };
                self.keys.insert(of.key, record);
                if let Some(number) = of.approval
                    && let Some(approval) = self.approvals.get_mut(&(of.request, number))
                {
                    approval.ruling = Ruling::Executed(of.id);
                }
            }
            Write::Evict {
                scope, evict, cleared, ..
            } => self.evict(scope, &evict, cleared),
            Write::Escalate {
                key,
                request,
                number,
                new,
                rebinds: _,
            } => {
                let record = Record::Escalated {
                    request,
                    approval: number,
                };
                self.keys.insert(key, record);
                if let Some((owner, ends)) = new {
                    let approval = Approval {
                        request,
                        owner,
                        ends,
                        ruling: Ruling::Pending,
                    };
                    self.approvals.insert((request, number), approval);
                }
            }
            Write::Rule { approval, ruling, .. } => {
                if let Some(approval) = self.approvals.get_mut(&approval) {
                    approval.ruling = match ruling {
                        ApprovalRuling::Approve => Ruling::Approved,
                        ApprovalRuling::Reject | ApprovalRuling::Withdraw => Ruling::Rejected,
                    };
                }
            }
            Write::EditAgent { frozen, budget, .. } => {
                self.agent.version += 1;
                self.agent.frozen = frozen;
                let before = self.agent.budget;
                self.agent.budget = match (before, budget) {
                    (_, None) => None,
                    (Some(before), Some(cap)) if before.cap == cap => Some(before),
                    (_, Some(cap)) => {
                        let changed = Limit {
                            version: self.agent.version,
                            cap,
                            asks: false,
                        };
                        let stamped = self.windows.entry(Scope::Budget);
                        stamped.or_insert_with(|| window(0, self.agent.version)).stamp = changed.version;
                        Some(changed)
                    }
                };
            }
            Write::Fence { agent } => {
                if let Some(window) = self.windows.get_mut(&Scope::Day) {
                    window.agent = agent;
                }
            }
            Write::EditPolicy { old, cap, asks } => {
                let version = old + 1;
                self.policy = Some(Limit { version, cap, asks });
                if let Some(window) = self.windows.get_mut(&Scope::Day)
                    && !has(Flaw::EditStampsNothing)
                {
                    window.stamp = version;
                }
            }
            Write::Freeze(frozen) => self.frozen = frozen,
            Write::Claim {
                settlement,
                place,
                block,
            } => {
                self.claims.insert(place, (settlement, block));
            }
            Write::Confirm {
                settlement,
                place: (block, tx, _),
            } => self.move_to(settlement, State::Confirmed { tx, block }),
            Write::ConfirmClaimed {
                settlement,
                place,
                block,
            }
            | Write::Move {
                settlement,
                place,
                block,
            } => self.claim_and_confirm(settlement, place, block),
            Write::ConfirmReleased {
                settlement,
                place,
                block,
                counted_at,
                scopes,
            } => {
                self.claim_and_confirm(settlement, place, block);
                if let Some(of) = self.settlements.get_mut(&settlement) {
                    of.counted_at = counted_at;
                    let amount = of.amount;
                    for scope in scopes {
                        self.count(scope, counted_at, settlement, amount);
                    }
                }
            }
            Write::Release {
                settlement,
                counted_at,
                scopes,
            } => {
                self.move_to(settlement, State::Expired);
                for scope in scopes {
                    let Some(window) = self.windows.get_mut(&scope) else {
                        continue;
                    };
                    let is_it = |entry: &Entry| entry.settlement == settlement && entry.at == counted_at;
                    let gone: i8 = window
                        .entries
                        .iter()
                        .filter(|entry| is_it(entry))
                        .map(|entry| entry.amount)
                        .sum();
                    window.entries.retain(|entry| !is_it(entry));
                    if !has(Flaw::ReleaseKeepsTotal) {
                        window.total -= gone;
                    }
                }
            }
            Write::Revert {
                settlement, decision, ..
            } => {
                self.move_to(settlement, State::Authorized);
                self.reverts.insert(decision);
                if has(Flaw::RevertLeavesIndex)
                    && let Some(of) = self.settlements.get_mut(&settlement)
                {
                    of.held = false;
                }
                if has(Flaw::RevertReleases)
                    && let Some(window) = self.windows.get_mut(&Scope::Day)
                {
                    let gone = window
                        .entries
                        .iter()
                        .find(|entry| entry.settlement == settlement)
                        .copied();
                    window.entries.retain(|entry| entry.settlement != settlement);
                    window.total -= gone.map_or(0, |entry| entry.amount);
                }
            }
            Write::RemoveClaim { place, .. } => {
                let removed = self.claims.remove(&place);
                if let Some((by, _)) = removed
                    && let Some(of) = self.settlements.get_mut(&by)
                    && !has(Flaw::RemovalLeavesNoMark)
                {
                    of.unclaimed = true;
                }
            }
            Write::PutPayouts { old, address, latest } => {
                self.payouts = Payouts {
                    address,
                    latest,
                    version: old + 1,
                };
            }
            Write::PayOut { id, key, to, at, .. } => {
                self.payouts.latest = Some(id);
                self.payouts.version += 1;
                self.payout_keys.insert(key, id);
                let settlement = Settlement {
                    key,
                    request: 0,
                    approval: None,
                    amount: 1,
                    at,
                    counted_at: at,
                    scopes: Vec::new(),
                    payout_to: Some(to),
                    state: State::Authorized,
                    held: true,
                    unclaimed: false,
                };
                self.settlements.insert(id, settlement);
            }
            Write::Offer { to, at, ends } => self.offer = Some(Offer { to, at, ends }),
            Write::TakeBack => self.offer = None,
            Write::HandOver { old, to, .. } => {
                let version = old.version + 1;
                self.agent = Agent {
                    owner: to,
                    version,
                    ..old
                };
                self.offer = None;
            }
            Write::MoveApproval { approval, new, .. } => {
                if let Some(approval) = self.approvals.get_mut(&approval) {
                    approval.owner = new;
                }
            }
        }
    }

    fn claim_and_confirm(&mut self, id: SettlementId, place: Place, hash: Block) {
        let (block, tx, _) = place;
        self.claims.insert(place, (id, hash));
        self.move_to(id, State::Confirmed { tx, block });
    }

    fn move_to(&mut self, id: SettlementId, state: State) {
        if let Some(settlement) = self.settlements.get_mut(&id) {
            settlement.state = state;
            settlement.held = state == State::Authorized;
        }
    }

    /// Adds an entry.
    fn count(&mut self, scope: Scope, at: Tick, settlement: SettlementId, amount: i8) {
        if let Some(window) = self.windows.get_mut(&scope) {
            window.total += amount;
            window.entries.push(Entry { at, settlement, amount });
            window.entries.sort_unstable();
        }
    }

    /// Deletes expired entries, and advances the horizon to the newest of them.
    fn evict(&mut self, scope: Scope, evict: &[Entry], cleared: Option<Tick>) {
        if let Some(window) = self.windows.get_mut(&scope)
            && let Some(newest) = evict.last()
        {
            window.total -= evict.iter().map(|entry| entry.amount).sum::<i8>();
            window.entries.retain(|entry| !evict.contains(entry));
            window.horizon = Some(newest.at).max(cleared);
        }
    }
}

/// A window without entries.
const fn window(stamp: u8, agent: u8) -> Window {
    Window {
        total: 0,
        stamp,
        agent,
        horizon: None,
        entries: Vec::new(),
    }
}
