//! A settlement: one reserved payment, and its receipt once it is seen on chain (`docs/spec.md` §2.4, §3.2). A payout is
//! one too: it is signed, held, found on chain and ended like a purchase, and counts in no window.

use crate::{
    Address, AgentId, Amount, ApprovalId, B256, Check, Fingerprint, KeyId, Network, OperationSlug, PersonId, RuleId,
    ServiceId, SettlementId, Timestamp, TransactionId, Transfer, TransferGone, TxHash, Unusable, WindowScope,
    X402Version, catalog::service::named,
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
    /// The proofs that did not show its payment.
    pub failed_proofs: FailedProofs,
}

/// How many transactions an agent named as proof that the chain did not show to be the payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedProofs {
    /// How many; the same one again and again counts once.
    pub count: u32,
    /// The last one.
    pub last: Option<TxHash>,
}

impl FailedProofs {
    /// How many are looked for on the chain; reconcile finds the payment without. An honest agent has one, or two where
    /// its provider replaced a transaction; each costs the node calls.
    pub const MOST: u32 = 20;
    /// Why another one is refused unseen.
    pub const TOO_MANY: &'static str = "too_many_failed_proofs";

    /// Whether this transaction is still looked for.
    pub fn allow(&self, tx_hash: TxHash) -> bool {
        self.count < Self::MOST || self.last == Some(tx_hash)
    }
}

/// The authorized terms. The signed bytes are derived from these terms and the deployment's keys alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The settlement's id; the payment's EIP-3009 nonce is derived from it.
    pub id: SettlementId,
    /// The audit reference: the decision that allowed a purchase; a payout's own.
    pub transaction: TransactionId,
    /// The agent that pays.
    pub agent: AgentId,
    /// The agent's wallet.
    pub wallet: Address,
    /// The chain.
    pub network: Network,
    /// How much, of the network's one token.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// When it was authorized: the recorded time, by which the windows count it.
    pub authorized_at: Timestamp,
    /// EIP-3009 `validBefore`, in whole seconds: the chain accepts the payment only in blocks before this time.
    pub valid_before: Timestamp,
    /// The hash of its idempotency key.
    pub idempotency_key: Fingerprint,
    /// The start of its nonce.
    pub nonce_prefix: NoncePrefix,
    /// The purpose.
    pub purpose: Purpose,
}

/// The purpose of a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The agent buys an operation of the catalog: it counts in the windows.
    Purchase(Purchase),
    /// The owner takes money back, to the address that they named: it counts nowhere.
    Payout(Payout),
}

/// A purchase and its judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The key that it was authorized with.
    pub key: KeyId,
    /// The service that is paid.
    pub service: ServiceId,
    /// The operation that is paid.
    pub operation: OperationSlug,
    /// The protocol version of the offer.
    pub x402_version: X402Version,
    /// Which entry of the offer was chosen.
    pub offer_index: u32,
    /// The policy version that allowed it.
    pub policy_version: u64,
    /// The budgets that it counts against, besides the day's window.
    pub budgets: Vec<RuleId>,
    /// The approval it used up.
    pub approval: Option<ApprovalId>,
    /// Every check of the decision, in order: an allow leaves no other row.
    pub checks: Vec<Check>,
}

/// Who took money back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payout {
    /// The person, who owned the agent then.
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

    /// The windows that it counts in.
    pub fn windows(&self) -> Vec<WindowScope> {
        let Some(purchase) = self.purchase() else {
            return Vec::new();
        };
        let (agent, service) = (self.agent, purchase.service);
        let budgets = purchase.budgets.iter();
        let budgets = budgets.map(|rule| WindowScope::Budget { agent, rule: *rule });
        std::iter::once(WindowScope::Day { agent, service })
            .chain(budgets)
            .collect()
    }
}

/// The first eight bytes of a payment's nonce, by which a nonce key that is not the one it was signed with is noticed.
/// They let nobody use up the nonce in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoncePrefix(pub [u8; 8]);

impl NoncePrefix {
    /// The start of this nonce.
    pub fn of(nonce: B256) -> Self {
        Self(nonce.first_chunk().copied().unwrap_or_default())
    }
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

    /// The settlement after its confirmation was reverted: authorized, as before.
    #[must_use]
    pub fn confirmation_reverted(self, _transfer_gone: &TransferGone) -> Self {
        Self {
            state: SettlementState::Authorized,
            ..self
        }
    }
}
