//! A settlement: one reserved payment, and its receipt after the payment was found on chain (`docs/spec.md` §2.4,
//! §3.2). A withdrawal is also a settlement. It is signed, held, found on chain and ended like a purchase, but no
//! window counts it.

use crate::{
    Address, AgentId, Amount, ApprovalId, B256, Check, CheckName, Fingerprint, InputVersions, KeyId, Network,
    OperationSlug, RuleId, ServiceId, SettlementId, Timestamp, TransactionId, Transfer, TxHash, UnusableAuthorization,
    UserId, VanishedTransfer, WindowMeasure, WindowScope, X402Version, catalog::service::named,
};
use std::fmt;

/// A settlement: the authorized payment and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The authorized payment, which never changes.
    pub terms: SettlementTerms,
    /// Whether the payment is authorized, confirmed or expired.
    pub state: SettlementState,
    /// The time at which the payment counts in the windows: the time of the authorization. If the payment was proven
    /// only after its hold was released, the time of the confirmation.
    pub counted_at: Timestamp,
    /// The transactions that the agent sent as proof, but that are not this payment according to the chain.
    pub failed_proofs: FailedProofs,
}

/// The transactions that an agent sent as proof and that are not the payment according to the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedProofs {
    /// The number of transactions. Consecutive proofs with the same transaction count once.
    pub count: u32,
    /// The last transaction that failed as a proof; `None` if no transaction failed.
    pub last: Option<TxHash>,
}

impl FailedProofs {
    /// The maximum number of proofs that are checked on chain, because each check makes calls to the node. An honest
    /// agent has one proof, or two if the provider replaced a transaction. Reconcile finds the payment without a proof.
    pub const MAX: u32 = 20;
    /// The error's reason if a settlement has [`FailedProofs::MAX`] failed proofs. Further transactions are then
    /// rejected without a check.
    pub const TOO_MANY: &'static str = "too_many_failed_proofs";

    /// Returns whether this transaction may be checked on chain. After [`FailedProofs::MAX`] failed proofs, only the
    /// last failed transaction may be checked again.
    pub fn allows_check(&self, tx_hash: TxHash) -> bool {
        self.count < Self::MAX || self.last == Some(tx_hash)
    }
}

/// The authorized payment. The signed bytes are derived only from these fields and the deployment's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettlementTerms {
    /// The settlement's id. The payment's EIP-3009 nonce is derived from this id.
    pub id: SettlementId,
    /// The transaction id of the decision that allowed the purchase, or of the withdrawal.
    pub transaction: TransactionId,
    /// The paying agent.
    pub agent: AgentId,
    /// The agent's wallet.
    pub wallet: Address,
    /// The chain.
    pub network: Network,
    /// The amount, in the units of the network's token.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The recorded time of the authorization.
    pub authorized_at: Timestamp,
    /// EIP-3009 `validBefore`, in whole seconds: the chain accepts the payment only in blocks with an earlier time.
    pub valid_before: Timestamp,
    /// The hash of the request's idempotency key.
    pub idempotency_key: Fingerprint,
    /// The first bytes of the payment's nonce.
    pub nonce_prefix: NoncePrefix,
    /// The number of the agent's ownership transfers before the authorization, which determines the owner
    /// ([`Agent::owner_at`](crate::Agent::owner_after_transfers)).
    pub transfers: u32,
    /// Whether the payment is a purchase or a withdrawal.
    pub purpose: Purpose,
}

/// Whether a settlement pays for a purchase or for a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The agent buys an operation of the catalog. The payment counts in the windows.
    Purchase(Purchase),
    /// The owner withdraws money to the withdrawal address. No window counts the payment.
    Payout(WithdrawalPurpose),
}

/// A purchase and the decision that allowed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The id of the agent key that sent the payment request.
    pub key: KeyId,
    /// The paid service.
    pub service: ServiceId,
    /// The paid operation.
    pub operation: OperationSlug,
    /// The provider's version of the x402 protocol.
    pub x402_version: X402Version,
    /// The index in `accepts` of the chosen payment requirements.
    pub offer_index: u32,
    /// The version of the policy that allowed the purchase.
    pub policy_version: u64,
    /// The versions of the decision's inputs, except the policy version; `None` in rows of earlier releases.
    pub inputs: Option<InputVersions>,
    /// The budgets that count the purchase, in addition to the day window.
    pub budgets: Vec<RuleId>,
    /// The count limits and minimum intervals whose windows count the purchase as one payment.
    pub counts: Vec<RuleId>,
    /// The approval that the purchase used.
    pub approval: Option<ApprovalId>,
    /// All checks of the decision in the order of evaluation. For an allowed payment, this is the only record of the
    /// checks.
    pub checks: Vec<Check>,
}

/// A withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalPurpose {
    /// The user who withdrew the money and owned the agent at that time.
    pub by: UserId,
}

impl SettlementTerms {
    /// Returns the purchase; `None` for a withdrawal.
    pub const fn purchase(&self) -> Option<&Purchase> {
        match &self.purpose {
            Purpose::Purchase(purchase) => Some(purchase),
            Purpose::Payout(_) => None,
        }
    }

    /// Returns whether the decision about the purchase made this check.
    pub fn was_checked(&self, name: CheckName) -> bool {
        let checks = self.purchase().map_or(&[][..], |purchase| &purchase.checks);
        checks.iter().any(|check| check.name == name)
    }

    /// Returns the windows that count the payment, each with the added amount.
    pub fn window_amounts(&self) -> Vec<(WindowScope, Amount)> {
        let Some(purchase) = self.purchase() else {
            return Vec::new();
        };
        let (agent, service) = (self.agent, purchase.service);
        let budgets = purchase.budgets.iter().map(|rule| (rule, WindowMeasure::Amounts));
        let counts = purchase.counts.iter().map(|rule| (rule, WindowMeasure::Payments));
        let rules = budgets.chain(counts).map(|(rule, counted)| {
            let scope = WindowScope::Budget { agent, rule: *rule };
            (scope, counted.to_units(self.amount))
        });
        std::iter::once((WindowScope::Day { agent, service }, self.amount))
            .chain(rules)
            .collect()
    }
}

/// The first eight bytes of a payment's nonce. They show whether the payment was signed with the current nonce key.
/// They are too few to let somebody use the nonce in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoncePrefix(pub [u8; 8]);

impl NoncePrefix {
    /// Returns the first bytes of this nonce.
    pub fn from_nonce(nonce: B256) -> Self {
        Self(nonce.first_chunk().copied().unwrap_or_default())
    }
}

/// Writes `0x` and sixteen lower-case hexadecimal digits.
impl fmt::Display for NoncePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", u64::from_be_bytes(self.0))
    }
}

/// The state of a settlement, with the data of each state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettlementState {
    /// The payment is reserved and signed. The provider may already have the payment.
    Authorized,
    /// The payment was seen on chain.
    Confirmed {
        /// The transaction.
        tx_hash: TxHash,
        /// The block of the transaction.
        block_number: u64,
        /// The time at which this service recorded the payment.
        settled_at: Timestamp,
    },
    /// The chain shows that the payment can never be made, and the hold was released.
    Expired,
}

named! {
    /// The state of a settlement in the field `receipt_status` of API responses.
    ReceiptStatus {
        /// The payment is reserved and signed.
        Authorized = "authorized",
        /// The payment was seen on chain.
        Confirmed = "confirmed",
        /// The hold was released.
        Expired = "expired",
    }
}

impl SettlementState {
    /// Returns the transaction that confirmed the payment.
    pub const fn tx_hash(&self) -> Option<TxHash> {
        match self {
            Self::Confirmed { tx_hash, .. } => Some(*tx_hash),
            Self::Authorized | Self::Expired => None,
        }
    }

    /// Returns the state without its data.
    pub const fn receipt_status(&self) -> ReceiptStatus {
        match self {
            Self::Authorized => ReceiptStatus::Authorized,
            Self::Confirmed { .. } => ReceiptStatus::Confirmed,
            Self::Expired => ReceiptStatus::Expired,
        }
    }

    /// Returns the `receipt_status` of the state.
    pub const fn state_name(&self) -> &'static str {
        self.receipt_status().name()
    }
}

impl Settlement {
    /// Returns the settlement's id.
    pub const fn id(&self) -> SettlementId {
        self.terms.id
    }

    /// Returns the transaction that paid the settlement; `None` until the settlement is confirmed.
    pub const fn tx_hash(&self) -> Option<TxHash> {
        match self.state {
            SettlementState::Confirmed { tx_hash, .. } => Some(tx_hash),
            SettlementState::Authorized | SettlementState::Expired => None,
        }
    }

    /// Returns the time at which this service recorded the payment; `None` until the settlement is confirmed.
    pub const fn settled_at(&self) -> Option<Timestamp> {
        match self.state {
            SettlementState::Confirmed { settled_at, .. } => Some(settled_at),
            SettlementState::Authorized | SettlementState::Expired => None,
        }
    }

    /// Confirms the settlement with this transfer. Only `find_authorized_transfer` creates a [`Transfer`].
    #[must_use]
    pub fn confirm(self, transfer: &Transfer, settled_at: Timestamp) -> Self {
        Self {
            state: SettlementState::Confirmed {
                tx_hash: transfer.tx_hash(),
                block_number: transfer.block().number,
                settled_at,
            },
            ..self
        }
    }

    /// Marks the settlement as expired after its hold was released.
    #[must_use]
    pub fn expire(self, _unusable: &UnusableAuthorization) -> Self {
        Self {
            state: SettlementState::Expired,
            ..self
        }
    }

    /// Makes the settlement authorized again after its confirmation was reverted.
    #[must_use]
    pub fn revert_confirmation(self, _transfer_gone: &VanishedTransfer) -> Self {
        Self {
            state: SettlementState::Authorized,
            ..self
        }
    }
}
