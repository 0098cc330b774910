//! Identifiers. Each kind of object has its own type, so that ids can't be mixed up.

use crate::{Address, EventId, Fingerprint, Timestamp};
use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::{Builder, Uuid};

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that is known to identify an object of this kind.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Parses a UUID with hyphens, in lower or upper case. Returns `None` for any other text.
            pub fn parse(text: &str) -> Option<Self> {
                // `Uuid::parse_str` also accepts braces, URNs and bare hexadecimal digits.
                (text.len() == 36).then(|| Uuid::parse_str(text).ok()).flatten().map(Self)
            }

            /// Returns the untyped UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        /// Writes the hyphenated lower-case form.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        crate::value::text_in_json!($name);
        crate::value::parsed_from_json!($name: parse);
    )*};
}

uuid_ids! {
    /// The id of an agent. Keys, policies, idempotency keys and settlements belong to one agent.
    AgentId;
    /// The id of a service in the catalog.
    ServiceId;
    /// The id of an operation. Agents use the operation's slug instead.
    OperationUuid;
    /// The id of an agent's rule. An update of the rule keeps the id.
    RuleId;
    /// The id of a settlement: a UUIDv7 with the time `authorized_at`, so that settlements sort by time.
    SettlementId;
    /// The id of a decision (allow, block or escalate): a UUIDv7 with the time of the decision.
    TransactionId;
    /// The id of an approval request. See [`ApprovalId::derive`].
    ApprovalId;
    /// The id of an audit row: a UUIDv7 with the time of the action.
    AuditId;
    /// The id of a user's backtest: a UUIDv7 with the time of the request.
    BacktestId;
    /// The id of a user's webhook: a random UUID.
    WebhookId;
    /// The id of a webhook's secret. The id is not secret.
    WebhookSecretId;
    /// The id of the URL that receives a user's notifications. The id is not secret.
    NoticeUrlId;
    /// The id of a webhook delivery, or of a user's request for a delivery: a UUIDv7 with the time of the event or of
    /// the request.
    DeliveryId;
}

impl BacktestId {
    /// Creates the id of a backtest. `random` distinguishes ids of the same microsecond.
    pub fn new_at(at: Timestamp, random: [u8; 8]) -> Self {
        Self(uuid_v7(at, random))
    }
}

impl RuleId {
    /// Derives the id of the window for payments to `payee`, for a rule with `per_payee`.
    #[must_use]
    pub fn for_payee(self, payee: Address) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"purser/payee-window/v1\0");
        hash.update(self.uuid().as_bytes());
        hash.update(payee);
        let digest: [u8; 32] = hash.finalize().into();
        Self(Builder::from_random_bytes(digest.first_chunk().copied().unwrap_or_default()).into_uuid())
    }
}

impl AuditId {
    /// Creates the id of a row. `random` distinguishes ids of the same microsecond.
    pub fn new_at(at: Timestamp, random: [u8; 8]) -> Self {
        Self(uuid_v7(at, random))
    }

    /// Returns the lowest id with this time. Earlier rows have a lower id.
    pub fn first_at(at: Timestamp) -> Self {
        Self::new_at(at, [0; 8])
    }
}

impl SettlementId {
    /// Creates the id of a settlement that is authorized at `at`. `random` distinguishes ids of the same microsecond.
    pub fn new_at(at: Timestamp, random: [u8; 8]) -> Self {
        Self(uuid_v7(at, random))
    }

    /// Returns the time of the authorization, from the id.
    pub fn authorized_at(self) -> Timestamp {
        uuid_time(self.0)
    }
}

impl DeliveryId {
    /// Derives the id of an event's delivery to a webhook. `at` is the event's time. A repeated delivery has the same
    /// id.
    pub fn derive(webhook: WebhookId, event: EventId, at: Timestamp) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"purser/delivery/v1\0");
        hash.update(webhook.uuid().as_bytes());
        hash.update(event.to_string());
        let digest: [u8; 32] = hash.finalize().into();
        Self(uuid_v7(at, digest.first_chunk().copied().unwrap_or_default()))
    }

    /// Creates the id of a request. `random` distinguishes ids of the same microsecond.
    pub fn new_at(at: Timestamp, random: [u8; 8]) -> Self {
        Self(uuid_v7(at, random))
    }

    /// Returns the time of the request from the id.
    pub fn requested_at(self) -> Timestamp {
        uuid_time(self.0)
    }
}

impl TransactionId {
    /// Creates the id of a decision. `random` distinguishes ids of the same microsecond.
    pub fn new_at(at: Timestamp, random: [u8; 8]) -> Self {
        Self(uuid_v7(at, random))
    }

    /// Returns the time of the decision, from the id.
    pub fn decided_at(self) -> Timestamp {
        uuid_time(self.0)
    }
}

/// Creates a UUIDv7 (RFC 9562 §5.7) with microseconds in `rand_a` (§6.2 method 3), so that the text order is the time
/// order.
fn uuid_v7(at: Timestamp, random: [u8; 8]) -> Uuid {
    let micros = at.micros().unsigned_abs();
    let [_, _, m0, m1, m2, m3, m4, m5] = (micros / 1_000).to_be_bytes();
    let [_, _, _, _, _, _, s0, s1] = (micros % 1_000).to_be_bytes();
    let [r0, r1, r2, r3, r4, r5, r6, r7] = random;
    let bytes = [m0, m1, m2, m3, m4, m5, s0, s1, r0, r1, r2, r3, r4, r5, r6, r7];
    // The version overwrites the upper four bits of `s0`, which are zero, because 999 has only ten bits.
    Builder::from_bytes(bytes)
        .with_version(uuid::Version::SortRand)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid()
}

/// Returns the time in a UUID that [`uuid_v7`] created.
fn uuid_time(id: Uuid) -> Timestamp {
    let [m0, m1, m2, m3, m4, m5, s0, s1, ..] = id.into_bytes();
    let millis = u64::from_be_bytes([0, 0, m0, m1, m2, m3, m4, m5]);
    // The upper four bits are the version.
    let micros = u64::from(u16::from_be_bytes([s0 & 0x0f, s1]));
    let since = millis.saturating_mul(1_000).saturating_add(micros);
    let since = i64::try_from(since).ok().and_then(Timestamp::from_micros);
    since.unwrap_or(Timestamp::MAX)
}

impl ApprovalId {
    /// Derives the id of the approval request number `sequence` for exactly this payment request.
    ///
    /// The approvals of identical payment requests have the same [`ApprovalId::request_prefix`], which is the store's
    /// partition key. At most one approval with the same prefix is open, so a repeated payment request creates no
    /// second approval request. The id is a UUIDv8 (RFC 9562 §5.8).
    pub fn derive(agent: AgentId, fingerprint: &Fingerprint, sequence: u32) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"purser/approval/v1\0");
        hash.update(agent.uuid().as_bytes());
        hash.update(fingerprint.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 16];
        for (to, from) in bytes
            .iter_mut()
            .zip(digest.iter().take(12).chain(&sequence.to_be_bytes()))
        {
            *to = *from;
        }
        Self(
            Builder::from_bytes(bytes)
                .with_version(uuid::Version::Custom)
                .with_variant(uuid::Variant::RFC4122)
                .into_uuid(),
        )
    }

    /// Returns the common part of the ids of all approval requests for the same payment request: 96 bits, in
    /// hexadecimal.
    pub fn request_prefix(self) -> String {
        self.0.simple().to_string().chars().take(24).collect()
    }

    /// Returns the id with this [`ApprovalId::request_prefix`] and sequence number; `None` if the text is not such a
    /// prefix.
    pub fn from_request_prefix(request_prefix: &str, sequence: u32) -> Option<Self> {
        let id = Uuid::try_parse(&format!("{request_prefix}{sequence:08x}"))
            .ok()
            .map(Self)?;
        (id.request_prefix() == request_prefix).then_some(id)
    }

    /// Returns whether `other` is a later approval for the same agent and payment request.
    pub fn is_before(self, other: Self) -> bool {
        self.request_prefix() == other.request_prefix() && self.sequence() < other.sequence()
    }

    /// Returns the approval's number, from 0, among the approvals for the same agent and payment request.
    pub fn sequence(self) -> u32 {
        let [.., a, b, c, d] = *self.0.as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_hyphenated_uuids_are_ids() {
        let text = "018f2f6e-0c00-7000-8000-000000000001";
        assert_eq!(SettlementId::parse(text).unwrap().to_string(), text);
        for other in [
            "",
            "018f2f6e0c0070008000000000000001",
            "{018f2f6e-0c00-7000-8000-000000000001}",
            "x",
            "018f2f6e-0c00-7000-8000-00000000000g",
        ] {
            assert_eq!(SettlementId::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn approval_ids_of_one_request_differ_only_in_the_sequence_number() {
        let agent = AgentId::from_uuid(Uuid::from_u128(7));
        let fingerprint = Fingerprint::for_text("a");
        let [first, second] = [0, 1].map(|sequence| ApprovalId::derive(agent, &fingerprint, sequence));
        assert_eq!(first.request_prefix(), second.request_prefix());
        assert_eq!((first.sequence(), second.sequence()), (0, 1));
        assert_eq!(
            ApprovalId::from_request_prefix(&second.request_prefix(), 1),
            Some(second)
        );
        assert_eq!(ApprovalId::from_request_prefix("x", 1), None);
        assert_ne!(
            first.request_prefix(),
            ApprovalId::derive(agent, &Fingerprint::for_text("b"), 0).request_prefix()
        );
    }

    proptest! {
        #[test]
        fn settlement_ids_sort_by_time(a in 0..Timestamp::MAX.micros(), b in 0..Timestamp::MAX.micros(), random: [u8; 8]) {
            let id = |micros| SettlementId::new_at(Timestamp::from_micros(micros).unwrap(), random).to_string();
            prop_assert_eq!(id(a).cmp(&id(b)), a.cmp(&b));
        }

        #[test]
        fn a_settlement_id_contains_its_authorization_time(micros in 0..Timestamp::MAX.micros(), random: [u8; 8]) {
            let at = Timestamp::from_micros(micros).unwrap();
            prop_assert_eq!(SettlementId::new_at(at, random).authorized_at(), at);
        }
    }
}
