//! A settlement: one reserved payment, and its receipt once it is seen on chain (`docs/spec.md` §2.4, §3.2).

use crate::{
    Address, AgentId, Amount, ApprovalId, Check, Fingerprint, Network, OperationSlug, RuleId, ServiceId, SettlementId,
    Timestamp, TransactionId, Transfer, TransferGone, TxHash, Unusable, X402Version, catalog::service::named,
};

/// One row: what was authorized, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The terms, fixed at authorization.
    pub terms: Terms,
    /// Its state.
    pub state: SettlementState,
    /// The time by which the windows count it: that of its authorization or, if it was proven only after its hold had
    /// been released, that of its confirmation.
    pub counted_at: Timestamp,
}

/// What was authorized. Everything that is signed is derived from this and our keys alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The settlement's id; the payment's EIP-3009 nonce is derived from it.
    pub id: SettlementId,
    /// The decision that allowed it.
    pub transaction: TransactionId,
    /// Who pays.
    pub agent: AgentId,
    /// The agent's wallet.
    pub wallet: Address,
    /// The service that is paid.
    pub service: ServiceId,
    /// The operation that is paid.
    pub operation: OperationSlug,
    /// The chain.
    pub network: Network,
    /// How much, of the network's one token.
    pub amount: Amount,
    /// To whom.
    pub pay_to: Address,
    /// When it was authorized: the recorded time, by which the windows count it.
    pub authorized_at: Timestamp,
    /// EIP-3009 `validBefore`, in whole seconds: the chain accepts the payment only in blocks before this time.
    pub valid_before: Timestamp,
    /// The protocol version of the offer.
    pub x402_version: X402Version,
    /// Which entry of the offer was chosen.
    pub offer_index: u32,
    /// The policy version that allowed it.
    pub policy_version: u64,
    /// The budgets that it counts against, besides the day's window.
    pub budgets: Vec<RuleId>,
    /// The hash of its idempotency key.
    pub idempotency_key: Fingerprint,
    /// The approval it used up.
    pub approval: Option<ApprovalId>,
    /// Every check of the decision, in order: an allow leaves no other row.
    pub checks: Vec<Check>,
}

/// `receipt_status`, and the data of each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettlementState {
    /// Reserved and signed; the payment may be on its way.
    Authorized,
    /// Seen on chain.
    Confirmed {
        /// The transaction.
        tx_hash: TxHash,
        /// The block that it is in.
        block_number: u64,
        /// When we recorded it.
        settled_at: Timestamp,
    },
    /// Shown by the chain to be unusable for ever; the hold was released.
    Expired,
}

named! {
    /// The `receipt_status` of a state.
    ReceiptStatus {
        /// Reserved and signed.
        Authorized = "authorized",
        /// Seen on chain.
        Confirmed = "confirmed",
        /// Released.
        Expired = "expired",
    }
}

impl SettlementState {
    /// Which state it is.
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

    /// When we recorded that it was paid; `None` until confirmed.
    pub const fn settled_at(&self) -> Option<Timestamp> {
        match self.state {
            SettlementState::Confirmed { settled_at, .. } => Some(settled_at),
            SettlementState::Authorized | SettlementState::Expired => None,
        }
    }

    /// The settlement after its transfer was seen. Only `match_transfer` makes a [`Transfer`].
    #[must_use]
    pub fn confirmed(self, transfer: &Transfer, settled_at: Timestamp) -> Self {
        Self {
            state: SettlementState::Confirmed {
                tx_hash: transfer.tx_hash(),
                block_number: transfer.block_number(),
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

    /// The settlement after its confirmation was reverted: authorized, as before.
    #[must_use]
    pub fn confirmation_reverted(self, _transfer_gone: &TransferGone) -> Self {
        Self {
            state: SettlementState::Authorized,
            ..self
        }
    }
}
