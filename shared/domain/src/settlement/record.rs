//! A settlement: one reserved payment, and its receipt once it is seen on chain (`docs/spec.md` §2.4, §3.2). A payout
//! is a settlement too: it is signed, held, found on chain and ended like a purchase, but counts in no window.

use crate::{
    Address, AgentId, Amount, ApprovalId, B256, Check, CheckName, Counted, Fingerprint, InputVersions, KeyId, Network,
    OperationSlug, PersonId, RuleId, ServiceId, SettlementId, Timestamp, TransactionId, Transfer, TransferGone, TxHash,
    Unusable, WindowScope, X402Version, catalog::service::named,
};
use std::fmt;

/// The record of one settlement: its terms and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The terms, fixed at authorization.
    pub terms: Terms,
    /// Its state.
    pub state: SettlementState,
    /// The time at which it counts in the windows: the time of its authorization or, if it was proven only after its
    /// hold had been released, the time of its confirmation.
    pub counted_at: Timestamp,
    /// The proofs that were not its payment.
    pub failed_proofs: FailedProofs,
}

/// The transactions that an agent named as proof, but that were not the payment according to the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedProofs {
    /// The number of transactions; the same one repeatedly counts once.
    pub count: u32,
    /// The last transaction.
    pub last: Option<TxHash>,
}

impl FailedProofs {
    /// The maximum number that is looked up on the chain; reconcile finds the payment without a proof. An honest agent
    /// has one, or two if its provider replaced a transaction; each costs calls to the node.
    pub const MOST: u32 = 20;
    /// The reason with which further transactions are refused without a lookup.
    pub const TOO_MANY: &'static str = "too_many_failed_proofs";

    /// Whether this transaction may still be looked up.
    pub fn allow(&self, tx_hash: TxHash) -> bool {
        self.count < Self::MOST || self.last == Some(tx_hash)
    }
}

/// The authorized terms. The signed bytes are derived from these terms and the deployment's keys alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The settlement's id; the payment's EIP-3009 nonce is derived from it.
    pub id: SettlementId,
    /// The audit reference: the decision that allowed a purchase, or the payout's own.
    pub transaction: TransactionId,
    /// The paying agent.
    pub agent: AgentId,
    /// The agent's wallet.
    pub wallet: Address,
    /// The chain.
    pub network: Network,
    /// The amount of the network's token.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The recorded time of the authorization, at which it counts in the windows.
    pub authorized_at: Timestamp,
    /// EIP-3009 `validBefore`, in whole seconds: the chain accepts the payment only in blocks with an earlier time.
    pub valid_before: Timestamp,
    /// The hash of the request's idempotency key.
    pub idempotency_key: Fingerprint,
    /// The first bytes of its nonce.
    pub nonce_prefix: NoncePrefix,
    /// The number of the agent's ownership transfers before the authorization: it determines the owner
    /// ([`Agent::owner_then`](crate::Agent::owner_then)).
    pub transfers: u32,
    /// The purpose.
    pub purpose: Purpose,
}

/// The purpose of a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The agent buys an operation of the catalog. It counts in the windows.
    Purchase(Purchase),
    /// The owner withdraws money to the payout address. It counts in no window.
    Payout(Payout),
}

/// A purchase, with its decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The key that authorized it.
    pub key: KeyId,
    /// The paid service.
    pub service: ServiceId,
    /// The paid operation.
    pub operation: OperationSlug,
    /// The protocol version of the offer.
    pub x402_version: X402Version,
    /// The index of the chosen entry of the offer.
    pub offer_index: u32,
    /// The policy version that allowed it.
    pub policy_version: u64,
    /// The versions of the decision's other inputs; `None` in rows of earlier releases.
    pub inputs: Option<InputVersions>,
    /// The budgets that it counts against, besides the day's window.
    pub budgets: Vec<RuleId>,
    /// The other rules in whose windows it counts, as one payment.
    pub counts: Vec<RuleId>,
    /// The approval that it used.
    pub approval: Option<ApprovalId>,
    /// Every check of the decision, in order: an allowed payment has no other audit row.
    pub checks: Vec<Check>,
}

/// A payout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payout {
    /// The person who withdrew the money, and owned the agent at that time.
    pub by: PersonId,
}

impl Terms {
    /// The purchase; `None` for a payout.
    pub const fn purchase(&self) -> Option<&Purchase> {
        match &self.purpose {
            Purpose::Purchase(purchase) => Some(purchase),
            Purpose::Payout(_) => None,
        }
    }

    /// Whether its decision made this check.
    pub fn was_checked(&self, name: CheckName) -> bool {
        let checks = self.purchase().map_or(&[][..], |purchase| &purchase.checks);
        checks.iter().any(|check| check.name == name)
    }

    /// The windows in which it counts, each with the amount that it adds.
    pub fn windows(&self) -> Vec<(WindowScope, Amount)> {
        let Some(purchase) = self.purchase() else {
            return Vec::new();
        };
        let (agent, service) = (self.agent, purchase.service);
        let budgets = purchase.budgets.iter().map(|rule| (rule, Counted::Amounts));
        let counts = purchase.counts.iter().map(|rule| (rule, Counted::Payments));
        let rules = budgets.chain(counts).map(|(rule, counted)| {
            let scope = WindowScope::Budget { agent, rule: *rule };
            (scope, counted.of(self.amount))
        });
        std::iter::once((WindowScope::Day { agent, service }, self.amount))
            .chain(rules)
            .collect()
    }
}

/// The first eight bytes of a payment's nonce. They reveal that the nonce key is not the one with which the payment was
/// signed, but are too few to use up the nonce in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoncePrefix(pub [u8; 8]);

impl NoncePrefix {
    /// The first bytes of this nonce.
    pub fn of(nonce: B256) -> Self {
        Self(nonce.first_chunk().copied().unwrap_or_default())
    }
}

/// `0x` and sixteen lower-case hexadecimal digits.
impl fmt::Display for NoncePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", u64::from_be_bytes(self.0))
    }
}

/// `receipt_status`, and the data of each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettlementState {
    /// Reserved and signed; the provider may already have the payment.
    Authorized,
    /// Seen on chain.
    Confirmed {
        /// The transaction.
        tx_hash: TxHash,
        /// The block of the transaction.
        block_number: u64,
        /// The time at which Purser recorded the payment.
        settled_at: Timestamp,
    },
    /// The chain shows that it can never be used; the hold was released.
    Expired,
}

named! {
    /// The `receipt_status` of a state.
    ReceiptStatus {
        /// Reserved and signed.
        Authorized = "authorized",
        /// Seen on chain.
        Confirmed = "confirmed",
        /// The hold was released.
        Expired = "expired",
    }
}

impl SettlementState {
    /// The transaction that confirmed it.
    pub const fn tx_hash(&self) -> Option<TxHash> {
        match self {
            Self::Confirmed { tx_hash, .. } => Some(*tx_hash),
            Self::Authorized | Self::Expired => None,
        }
    }

    /// The state without its data.
    pub const fn status(&self) -> ReceiptStatus {
        match self {
            Self::Authorized => ReceiptStatus::Authorized,
            Self::Confirmed { .. } => ReceiptStatus::Confirmed,
            Self::Expired => ReceiptStatus::Expired,
        }
    }

    /// The `receipt_status` of the state.
    pub const fn name(&self) -> &'static str {
        self.status().name()
    }
}

impl Settlement {
    /// The settlement's id.
    pub const fn id(&self) -> SettlementId {
        self.terms.id
    }

    /// The transaction that paid it; `None` until confirmed.
    pub const fn tx_hash(&self) -> Option<TxHash> {
        match self.state {
            SettlementState::Confirmed { tx_hash, .. } => Some(tx_hash),
            SettlementState::Authorized | SettlementState::Expired => None,
        }
    }

    /// The time at which Purser recorded the payment; `None` until confirmed.
    pub const fn settled_at(&self) -> Option<Timestamp> {
        match self.state {
            SettlementState::Confirmed { settled_at, .. } => Some(settled_at),
            SettlementState::Authorized | SettlementState::Expired => None,
        }
    }

    /// The settlement confirmed by this transfer. Only `match_transfer` makes a [`Transfer`].
    #[must_use]
    pub fn confirmed(self, transfer: &Transfer, settled_at: Timestamp) -> Self {
        Self {
            state: SettlementState::Confirmed {
                tx_hash: transfer.tx_hash(),
                block_number: transfer.block().number,
                settled_at,
            },
            ..self
        }
    }

    /// The settlement after its hold was released.
    #[must_use]
    pub fn expired(self, _unusable: &Unusable) -> Self {
        Self {
            state: SettlementState::Expired,
            ..self
        }
    }

    /// The settlement after its confirmation was reverted: it is authorized again.
    #[must_use]
    pub fn confirmation_reverted(self, _transfer_gone: &TransferGone) -> Self {
        Self {
            state: SettlementState::Authorized,
            ..self
        }
    }
}
