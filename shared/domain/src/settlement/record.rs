//! A settlement: one reserved payment, and the receipt after the payment was found on chain (`docs/spec.md` §2.4,
//! §3.2). A withdrawal is also a settlement, but no window counts it.

use crate::{
    Address, AgentId, Amount, ApprovalId, B256, CallDigest, Category, Check, CheckName, Fingerprint, InputVersions,
    KeyId, Network, OperationSlug, RuleId, RuleKind, Service, ServiceId, ServiceSlug, SettlementId, Timestamp,
    TransactionId, Transfer, TxHash, UnusableAuthorization, UserId, VanishedTransfer, WindowMeasure, WindowScope,
    X402Version, catalog::service::named,
};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A settlement: the authorized payment and the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The authorized payment, which never changes.
    pub terms: SettlementTerms,
    /// Whether the payment is authorized, confirmed or expired.
    pub state: SettlementState,
    /// The time at which windows count the payment: the authorization, or the confirmation of a payment that was
    /// already released.
    pub counted_at: Timestamp,
    /// The transactions that the agent sent as proof and that are not the payment.
    pub failed_proofs: FailedProofs,
}

/// The transactions that an agent sent as proof and that are not the payment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedProofs {
    /// The number of transactions. Consecutive proofs with the same transaction count once.
    pub count: u32,
    /// The last failed transaction; `None` if no proof failed.
    pub last: Option<TxHash>,
}

impl FailedProofs {
    /// The maximum number of proofs that are checked, because each check calls the node. Honest agents need one or two,
    /// and `reconcile` finds a payment without proof.
    pub const MAX: u32 = 20;
    /// The reason in the error for a further transaction after [`FailedProofs::MAX`] failed proofs.
    pub const TOO_MANY: &'static str = "too_many_failed_proofs";

    /// Returns whether this transaction may be checked on chain. After [`FailedProofs::MAX`] failed proofs, only the
    /// last failed transaction may be checked again.
    pub fn may_check_transaction(&self, tx_hash: TxHash) -> bool {
        self.count < Self::MAX || self.last == Some(tx_hash)
    }
}

/// The authorized payment, from which the signed bytes are derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettlementTerms {
    /// The settlement's id. The payment's EIP-3009 nonce is derived from this id.
    pub id: SettlementId,
    /// The transaction id of the decision that allowed the purchase, or of the withdrawal.
    pub transaction: TransactionId,
    /// The agent that pays.
    pub agent: AgentId,
    /// The address of the agent's wallet, which pays.
    pub wallet: Address,
    /// The chain on which the payment is made.
    pub network: Network,
    /// The amount, in the units of the network's token.
    pub amount: Amount,
    /// The address that receives the payment.
    pub pay_to: Address,
    /// The recorded time of the authorization.
    pub authorized_at: Timestamp,
    /// EIP-3009 `validBefore` in whole seconds: the chain accepts the payment only in blocks with an earlier time.
    pub valid_before: Timestamp,
    /// The hash of the request's idempotency key.
    pub idempotency_key: Fingerprint,
    /// The first bytes of the payment's nonce.
    pub nonce_prefix: NoncePrefix,
    /// The number of the agent's ownership transfers before the authorization
    /// ([`crate::Agent::owner_after_transfers`]).
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
    /// The service that the agent pays.
    pub service: ServiceId,
    /// The operation that the agent calls.
    pub operation: OperationSlug,
    /// The purchase's service, category and call, for later evaluations.
    pub scope: PurchaseScope,
    /// The provider's version of the x402 protocol.
    pub x402_version: X402Version,
    /// The index in `accepts` of the chosen payment requirements.
    pub offer_index: u32,
    /// The version of the policy that allowed the purchase.
    pub policy_version: u64,
    /// The versions of the decision's inputs except the policy.
    pub inputs: InputVersions,
    /// The budgets whose windows count the purchase's amount.
    pub budgets: Vec<RuleId>,
    /// The count limits and minimum intervals whose windows count the purchase as one payment.
    pub counts: Vec<RuleId>,
    /// The approval that the purchase used.
    pub approval: Option<ApprovalId>,
    /// All checks in the order of evaluation. No other record of an allowed payment contains them.
    pub checks: Vec<Check>,
}

/// The purpose of a settlement that pays a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithdrawalPurpose {
    /// The user who withdrew the money and owned the agent at that time.
    pub by: UserId,
}

/// The service, category and call of a purchase at the time of the decision. Later evaluations use these
/// values to find the rules that count the purchase, and calls that repeat the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurchaseScope {
    /// The digest of the service's slug at the time of the decision.
    pub slug: SlugDigest,
    /// The service's category at the time of the decision.
    pub category: Category,
    /// The digest of the provider call.
    pub call: CallDigest,
}

impl PurchaseScope {
    /// Returns the scope of a purchase from this service.
    pub fn new(service: &Service, call: CallDigest) -> Self {
        Self {
            slug: SlugDigest::from_slug(&service.slug),
            category: service.category,
            call,
        }
    }
}

/// The first 8 bytes of the SHA-256 of a service's slug, which fit into the settlement's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlugDigest(pub [u8; 8]);

impl SlugDigest {
    /// Computes the digest of this slug.
    pub fn from_slug(slug: &ServiceSlug) -> Self {
        Self(Sha256::digest(slug.as_str()).first_chunk().copied().unwrap_or_default())
    }
}

impl Purchase {
    /// Returns whether a rule counts the purchase, by key, category and slug. A slug matches if the service
    /// had the slug at the time of the decision, or has the slug in the current catalog (`service`).
    pub fn is_counted_by(&self, rule: &RuleKind, service: Option<&Service>) -> bool {
        let is_slug = |slug: &ServiceSlug| {
            self.scope.slug == SlugDigest::from_slug(slug) || service.is_some_and(|service| service.slug == *slug)
        };
        let scope = rule.scope();
        rule.applies_to_key(self.key)
            && scope.services.is_none_or(|slugs| slugs.iter().any(is_slug))
            && scope
                .categories
                .is_none_or(|categories| categories.contains(&self.scope.category))
    }
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
            (scope, counted.payment_units(self.amount))
        });
        std::iter::once((WindowScope::Day { agent, service }, self.amount))
            .chain(rules)
            .collect()
    }
}

/// The first eight bytes of a payment's nonce: enough to detect that the nonce key has changed since the
/// authorization, and too few to use the nonce in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoncePrefix(pub [u8; 8]);

impl NoncePrefix {
    /// Copies the first eight bytes of a payment's nonce.
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
    /// The payment is reserved, and the provider may have the signed transfer.
    Authorized,
    /// The payment was found on chain.
    Confirmed {
        /// The hash of the transaction that confirmed the payment.
        tx_hash: TxHash,
        /// The number of the block that contains the transaction.
        block_number: u64,
        /// The time at which Purser recorded the payment.
        settled_at: Timestamp,
    },
    /// The payment can never be made, and the reserved amount was released.
    Expired,
}

named! {
    /// A settlement's state in the field `receipt_status` of the API.
    ReceiptStatus {
        /// The payment is reserved and signed.
        Authorized = "authorized" => "Pending",
        /// The payment was found on chain.
        Confirmed = "confirmed" => "Confirmed",
        /// The payment can never be made, and the reserved amount was released.
        Expired = "expired" => "Released",
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

    /// Returns the state without the data.
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

    /// Returns the time at which Purser recorded the payment; `None` until the settlement is confirmed.
    pub const fn settled_at(&self) -> Option<Timestamp> {
        match self.state {
            SettlementState::Confirmed { settled_at, .. } => Some(settled_at),
            SettlementState::Authorized | SettlementState::Expired => None,
        }
    }

    /// Confirms the settlement with this transfer, the proof that it is paid.
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

    /// Marks the settlement as expired. The argument proves that it can't be paid.
    #[must_use]
    pub fn expire(self, _unusable: &UnusableAuthorization) -> Self {
        Self {
            state: SettlementState::Expired,
            ..self
        }
    }

    /// Makes the settlement authorized again. The argument proves that the transfer vanished.
    #[must_use]
    pub fn revert_confirmation(self, _vanished_transfer: &VanishedTransfer) -> Self {
        Self {
            state: SettlementState::Authorized,
            ..self
        }
    }
}
