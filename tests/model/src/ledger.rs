//! The rows of the ledger, and its transitions.
//!
//! A [`Write`] is one transaction or conditional write of `shared/store`, with the same conditions and effects. All
//! models and the replay against the real store (`tests/traces.rs`) change a ledger only with [`Ledger::apply`].

use crate::flaw::Flaw;
use std::collections::{BTreeMap, BTreeSet};

/// A point in time, in half days for windows and in blocks for the chain.
pub type Tick = i8;
/// The number of a user.
pub type Person = u8;
/// The number of an idempotency key.
pub type KeyId = u8;
/// The fingerprint of a request. Equal fingerprints mean equal amounts and payees.
pub type Request = u8;
/// The id of a settlement, computed from its process and attempt.
pub type SettlementId = u8;
/// The number of a transaction on the chain.
pub type Tx = u8;
/// A block's position in the tree of blocks, which stands for the block's hash.
pub type Block = u8;
/// The number of a block.
pub type Height = u8;

/// A window of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The daily window of the service.
    Day,
    /// The window of the agent's budget.
    Budget,
}

impl Scope {
    /// Returns the number of ticks for which a payment counts in this window.
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
    /// The version of the record.
    pub version: u8,
    /// Whether the owner has frozen the agent.
    pub frozen: bool,
    /// The agent's owner.
    pub owner: Person,
    /// The agent's budget rule; `None` if the agent has none.
    pub budget: Option<Limit>,
}

/// A spending limit: a policy or a budget rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit {
    /// The version of the policy or rule.
    pub version: u8,
    /// The maximum sum of the payments that count in the window.
    pub cap: i8,
    /// Whether each payment needs an approval.
    pub asks: bool,
}

/// A payment that counts in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The time from which the payment counts.
    pub at: Tick,
    /// The settlement of the payment.
    pub settlement: SettlementId,
    /// The amount of the payment.
    pub amount: i8,
}

/// A window: its total and its counted payments, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The sum of the counted payments.
    pub total: i8,
    /// The version of the policy or rule (the store's attribute `pver`).
    pub stamp: u8,
    /// The version of the agent's record (the store's attribute `aver`).
    pub agent: u8,
    /// The time of the newest evicted payment.
    pub watermark: Option<Tick>,
    /// The counted payments, oldest first.
    pub entries: Vec<Entry>,
}

/// What an idempotency key was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A payment.
    Allow {
        /// The fingerprint of the request.
        request: Request,
        /// The settlement of the payment.
        settlement: SettlementId,
    },
    /// A request for an approval.
    Escalated {
        /// The fingerprint of the request.
        request: Request,
        /// The number of the approval among the approvals of this request.
        approval: u8,
    },
}

/// The stored state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// The approval is pending.
    Pending,
    /// The owner has approved the request.
    Approved,
    /// The owner rejected or withdrew the approval.
    Rejected,
    /// A payment used the approval. Contains the payment's settlement.
    Executed(SettlementId),
}

/// An approval.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Approval {
    /// The fingerprint of the request.
    pub request: Request,
    /// The user who decides the approval.
    pub owner: Person,
    /// The time at which the approval expires.
    pub ends: Tick,
    /// The state of the approval.
    pub ruling: Ruling,
}

impl Approval {
    /// Returns whether the approval can still be used for a payment.
    pub const fn is_open(&self, at: Tick) -> bool {
        at < self.ends && matches!(self.ruling, Ruling::Pending | Ruling::Approved)
    }
}

/// The state of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The amount is reserved, and the payment is not confirmed yet.
    Authorized,
    /// A transfer on the chain has made the payment.
    Confirmed {
        /// The transaction of the transfer.
        tx: Tx,
        /// The number of the block that contains the transaction.
        block: Height,
    },
    /// The payment can't be made any more, and its amount is released.
    Expired,
}

/// A settlement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settlement {
    /// The idempotency key of the settlement.
    pub key: KeyId,
    /// The request for which the settlement was created.
    pub request: Request,
    /// The number of the approval that the settlement has used.
    pub approval: Option<u8>,
    /// The amount of the payment.
    pub amount: i8,
    /// The time of the authorization.
    pub at: Tick,
    /// The time from which the payment counts.
    pub counted_at: Tick,
    /// The windows in which the payment counts.
    pub scopes: Vec<Scope>,
    /// The address to which a withdrawal goes; `None` for a purchase.
    pub payout_to: Option<u8>,
    /// The state of the settlement.
    pub state: State,
    /// Whether the index of authorized settlements contains this settlement.
    pub held: bool,
    /// Whether a claim of this settlement was removed.
    pub unclaimed: bool,
}

/// The record of an agent's withdrawals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Payouts {
    /// The withdrawal address, the user who set it, and the time from which it can be used.
    pub address: Option<(u8, Person, Tick)>,
    /// The latest withdrawal.
    pub latest: Option<SettlementId>,
    /// The number of writes of the record.
    pub version: u8,
}

/// An offer to transfer the agent to another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    /// The user who may accept the offer.
    pub to: Person,
    /// The time at which the offer was made. No two offers have the same time.
    pub at: Tick,
    /// The time at which the offer expires.
    pub ends: Tick,
}

/// The key of a claim: a block number, a transaction, and a transfer's index. Without an index, the claim is for the
/// whole transaction.
pub type Place = (Height, Tx, Option<u8>);

/// The rows of one agent that affect payments, the operators' freeze, and the claims of all agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// The agent's record.
    pub agent: Agent,
    /// The policy for the service; `None` until the default policy is stored.
    pub policy: Option<Limit>,
    /// The windows of the agent.
    pub windows: BTreeMap<Scope, Window>,
    /// The idempotency keys of payments.
    pub keys: BTreeMap<KeyId, Record>,
    /// The idempotency keys of withdrawals.
    pub payout_keys: BTreeMap<KeyId, SettlementId>,
    /// The settlements by id.
    pub settlements: BTreeMap<SettlementId, Settlement>,
    /// The approvals by request and number.
    pub approvals: BTreeMap<(Request, u8), Approval>,
    /// Whether operators have frozen the agent.
    pub frozen: bool,
    /// The claims, each with its settlement and the hash of its block.
    pub claims: BTreeMap<Place, (SettlementId, Block)>,
    /// The record of the agent's withdrawals.
    pub payouts: Payouts,
    /// The offer to transfer the agent.
    pub offer: Option<Offer>,
    /// The decisions that record a revert of a confirmation.
    pub reverts: BTreeSet<u8>,
}

/// The policy that applies until a policy is stored.
pub const DEFAULT: Limit = Limit {
    version: 1,
    cap: 100,
    asks: false,
};

/// A reservation's change to a window, and its conditions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge {
    /// The window to change.
    pub scope: Scope,
    /// The version of the policy or rule that the decision used.
    pub stamp: u8,
    /// The maximum sum of the window.
    pub cap: i8,
    /// The time of the reservation minus the window's length.
    pub watermark: Tick,
    /// The expired payments that the write evicts.
    pub evict: Vec<Entry>,
    /// The window's eviction watermark when the decision read it.
    pub cleared: Option<Tick>,
}

/// A payment to reserve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation {
    /// The settlement to create.
    pub id: SettlementId,
    /// The idempotency key of the payment.
    pub key: KeyId,
    /// The fingerprint of the request.
    pub request: Request,
    /// The number of the approval to use.
    pub approval: Option<u8>,
    /// The amount of the payment.
    pub amount: i8,
    /// The time of the reservation.
    pub at: Tick,
    /// The version of the agent's record that the decision used.
    pub agent: u8,
    /// The changes of the windows.
    pub charges: Vec<Charge>,
}

/// A transaction or a conditional write of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// Stores the default policy and its window, unless the agent's record has changed.
    Default {
        /// The version of the agent's record that was read.
        agent: u8,
    },
    /// Reserves a payment.
    Reserve(Reservation),
    /// Evicts expired payments from a window, outside of a reservation.
    Evict {
        /// The window to change.
        scope: Scope,
        /// The version of the policy or rule that determines which payments have expired.
        stamp: u8,
        /// The counted payments to evict.
        evict: Vec<Entry>,
        /// The window's eviction watermark when it was read.
        cleared: Option<Tick>,
    },
    /// Requests an approval, and binds the idempotency key to it.
    Escalate {
        /// The idempotency key of the request.
        key: KeyId,
        /// The fingerprint of the request.
        request: Request,
        /// The number of the approval.
        number: u8,
        /// For a new approval, the owner who decides and the time at which it expires.
        new: Option<(Person, Tick)>,
        /// Whether the key may already be bound to an earlier approval of the same request.
        rebinds: bool,
    },
    /// Decides a pending approval, or withdraws an approved one.
    Rule {
        /// The request and the number of the approval.
        approval: (Request, u8),
        /// The user who decides.
        by: Person,
        /// The time on the function's clock.
        at: Tick,
        /// The state to store.
        ruling: ApprovalRuling,
    },
    /// Stores the next version of the agent's record, and of a changed budget on its window.
    EditAgent {
        /// The version that the update replaces.
        old: u8,
        /// Whether the agent is frozen.
        frozen: bool,
        /// The maximum sum of the agent's budget.
        budget: Option<i8>,
    },
    /// Stores the agent's new version on the daily window, so that decisions on earlier versions are rejected.
    Fence {
        /// The version of the agent's record.
        agent: u8,
    },
    /// Stores the next version of the policy.
    EditPolicy {
        /// The version that the update replaces.
        old: u8,
        /// The new maximum sum.
        cap: i8,
        /// Whether each payment needs an approval.
        asks: bool,
    },
    /// Begins (`true`) or ends an operators' freeze.
    Freeze(bool),
    /// Claims a transaction, or one of the transaction's transfers.
    Claim {
        /// The settlement that claims the transaction.
        settlement: SettlementId,
        /// The block, the transaction and the transfer.
        place: Place,
        /// The hash of the block.
        block: Block,
    },
    /// Confirms an authorized settlement that has a claim, unless a claim of the settlement was removed.
    Confirm {
        /// The settlement to confirm.
        settlement: SettlementId,
        /// The key of the settlement's claim.
        place: Place,
    },
    /// Confirms an authorized settlement, and stores the settlement's claim.
    ConfirmClaimed {
        /// The settlement to confirm.
        settlement: SettlementId,
        /// The block, the transaction and the transfer.
        place: Place,
        /// The hash of the block.
        block: Block,
    },
    /// Confirms a released settlement, and stores the settlement's claim. The payment counts again.
    ConfirmReleased {
        /// The settlement to confirm.
        settlement: SettlementId,
        /// The block, the transaction and the transfer.
        place: Place,
        /// The hash of the block.
        block: Block,
        /// The time from which the payment counts.
        counted_at: Tick,
        /// The windows in which the payment counts.
        scopes: Vec<Scope>,
    },
    /// Releases the amount of an authorized settlement.
    Release {
        /// The settlement to release.
        settlement: SettlementId,
        /// The time from which the settlement counts, when it was read.
        counted_at: Tick,
        /// The windows from which the payment is deleted.
        scopes: Vec<Scope>,
    },
    /// Reverts a confirmation.
    Revert {
        /// The settlement to revert.
        settlement: SettlementId,
        /// The transaction that the chain no longer contains.
        tx: Tx,
        /// The decision that records the revert.
        decision: u8,
    },
    /// Stores the new block of a confirmed settlement's transaction, and a claim in this block.
    Move {
        /// The settlement of the transaction.
        settlement: SettlementId,
        /// The block, the transaction and the transfer.
        place: Place,
        /// The hash of the transaction's new block.
        block: Block,
    },
    /// Removes a claim in a block that is no longer on the chain, unless a confirmation needs the claim.
    RemoveClaim {
        /// The key of the claim.
        place: Place,
        /// The hash of the block that is no longer on the chain.
        block: Block,
    },
    /// Stores the next version of the record of withdrawals.
    PutPayouts {
        /// The version that the update replaces.
        old: u8,
        /// The address, the user who set it, and the time from which it can be used; `None` removes the address.
        address: Option<(u8, Person, Tick)>,
        /// The latest withdrawal when the record was read.
        latest: Option<SettlementId>,
    },
    /// Creates a withdrawal.
    PayOut {
        /// The settlement to create.
        id: SettlementId,
        /// The idempotency key of the withdrawal.
        key: KeyId,
        /// The version of the withdrawal record that the decision read.
        seen: u8,
        /// The latest withdrawal when the record was read.
        latest: Option<SettlementId>,
        /// The address that receives the payment.
        to: u8,
        /// The user who requests the withdrawal.
        by: Person,
        /// The time of the decision.
        at: Tick,
    },
    /// Stores an offer to transfer the agent, and replaces an earlier offer.
    Offer {
        /// The user who may accept the offer.
        to: Person,
        /// The time of the offer.
        at: Tick,
        /// The time at which the offer expires.
        ends: Tick,
    },
    /// Withdraws an offer.
    TakeBack,
    /// Transfers the agent to the user who accepts the offer.
    HandOver {
        /// The agent's record when it was read.
        old: Agent,
        /// The new owner.
        to: Person,
        /// The time of the offer when it was read.
        at: Tick,
    },
    /// Moves an approval to another owner.
    MoveApproval {
        /// The request and the number of the approval.
        approval: (Request, u8),
        /// The approval's owner when it was read.
        old: Person,
        /// The agent's owner when it was read.
        new: Person,
    },
}

/// A user's decision on an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalRuling {
    /// The approval is granted.
    Approve,
    /// The approval is rejected.
    Reject,
    /// The owner withdraws an approval that was granted before.
    Withdraw,
}

impl Write {
    /// Returns the name of the transition, as in [`IMPLEMENTATIONS`].
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

/// The store's function for each transition: the name in the model, the file, and the name in the file.
pub const IMPLEMENTATIONS: [(&str, &str, &str); 25] = [
    (
        "Default",
        "shared/store/src/people/starting_set.rs",
        "try_write_default_policy",
    ),
    (
        "Reserve",
        "shared/store/src/payments/reserve.rs",
        "reservation_transaction",
    ),
    ("Reserve", "shared/store/src/payments/window.rs", "add_charge"),
    ("Evict", "shared/store/src/payments/window.rs", "try_evict_entries"),
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
    ("Confirm", "shared/store/src/payments/settle.rs", "confirm_hold"),
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
    (
        "Move",
        "shared/store/src/payments/settle.rs",
        "update_confirmation_block",
    ),
    ("RemoveClaim", "shared/store/src/payments/settle.rs", "try_remove_claim"),
    (
        "PutPayouts",
        "shared/store/src/payments/payout.rs",
        "put_withdrawal_record",
    ),
    ("PayOut", "shared/store/src/payments/payout.rs", "reserve_withdrawal"),
    ("Offer", "shared/store/src/people/handover.rs", "store_ownership_offer"),
    (
        "TakeBack",
        "shared/store/src/people/handover.rs",
        "remove_ownership_offer",
    ),
    ("HandOver", "shared/store/src/people/handover.rs", "transfer_agent"),
    (
        "MoveApproval",
        "shared/store/src/people/handover.rs",
        "move_approval_to_owner",
    ),
];

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The write was applied.
    Done,
    /// Nothing was written, because the conditions of these rows failed.
    Refused(BTreeSet<Role>),
}

/// A row whose condition failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The agent's record.
    Agent,
    /// The approval of the request.
    Approval,
    /// The record of the idempotency key.
    Key,
    /// The totals of a window, or a counted payment that the write evicts.
    Basis,
    /// The policy of the service.
    Policy,
    /// The settlement.
    Settlement,
    /// The settlement's counted payment in this window.
    Entry(Scope),
    /// The claim of the transaction.
    Claim,
    /// The decision that records the revert.
    Decision,
    /// The withdrawal record.
    Payouts,
    /// The latest withdrawal.
    Latest,
    /// The offer to transfer the agent.
    Offer,
}

impl Ledger {
    /// Creates a ledger with one agent, which belongs to user 0 and has this policy.
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

    /// Returns the number of a request's newest approval.
    pub fn newest_approval(&self, request: Request) -> Option<u8> {
        self.approvals
            .range((request, 0)..=(request, u8::MAX))
            .next_back()
            .map(|((_, number), _)| *number)
    }

    /// Applies a write if all its conditions hold. `flaw` is the planted bug.
    pub fn apply(&mut self, write: &Write, flaw: Option<Flaw>) -> Answer {
        let failed = self.failed(write, flaw);
        if !failed.is_empty() {
            return Answer::Refused(failed);
        }
        self.write(write, flaw);
        Answer::Done
    }

    /// Returns the rows whose conditions fail.
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
                        && window.watermark <= newest
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
                        has(Flaw::LateEntryIgnoresHorizon) || window.watermark.is_none_or(|h| h <= cut)
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

    /// Returns whether a window fulfills the conditions of a reservation.
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
        let horizon = newest.unwrap_or(charge.watermark);
        let not_cleared = has(Flaw::ReserveIgnoresHorizon) || window.watermark.is_none_or(|cleared| cleared <= horizon);
        let room = has(Flaw::ReserveIgnoresRoom) || window.total <= charge.cap - of.amount + evicted;
        let all_there = has(Flaw::EvictsWhatIsGone) || charge.evict.iter().all(|entry| window.entries.contains(entry));
        stamped && not_cleared && room && all_there
    }

    /// Applies a write, whose conditions must hold.
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

    /// Adds a counted payment to a window and to the window's total.
    fn count(&mut self, scope: Scope, at: Tick, settlement: SettlementId, amount: i8) {
        if let Some(window) = self.windows.get_mut(&scope) {
            window.total += amount;
            window.entries.push(Entry { at, settlement, amount });
            window.entries.sort_unstable();
        }
    }

    /// Deletes expired payments from a window, and advances the eviction watermark to the newest of them.
    fn evict(&mut self, scope: Scope, evict: &[Entry], cleared: Option<Tick>) {
        if let Some(window) = self.windows.get_mut(&scope)
            && let Some(newest) = evict.last()
        {
            window.total -= evict.iter().map(|entry| entry.amount).sum::<i8>();
            window.entries.retain(|entry| !evict.contains(entry));
            window.watermark = Some(newest.at).max(cleared);
        }
    }
}

/// Returns a window without payments.
const fn window(stamp: u8, agent: u8) -> Window {
    Window {
        total: 0,
        stamp,
        agent,
        watermark: None,
        entries: Vec::new(),
    }
}
