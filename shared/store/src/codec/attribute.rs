//! Encodes each domain type as a DynamoDB attribute. A written value reads back equal, and any other attribute reads as
//! `None`.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{
    Address, AgentId, AgentStatus, Amount, ApprovalId, AskingKind, AuditId, AuditKind, B256, CallDigest, CallResult,
    Category, Ciphertext, ClientName, DecisionResult, DeliveryId, DeliveryState, DomainPattern, Duration, EditReason,
    Endpoint, EventId, EventKind, FailureStage, Fingerprint, GrantOrigin, InputVersions, KeyId, KmsKeyId, LabelKey,
    LabelValue, Labels, LimitAction, MailAddress, Metadata, Network, NoncePrefix, NoticeEnd, NoticeUrlId, Obstacle,
    OperationSlug, OperationUuid, OperatorName, OperatorReason, Permission, PkceChallenge, PublicKey, PurchaseScope,
    RedirectUri, RuleId, SchedulePeriod, SecretDigest, ServiceId, ServiceSlug, SessionId, SettlementId, SlugDigest,
    SourceNetwork, TemplateKey, TemplateName, Timestamp, TransactionId, TrustStatus, TxHash, Url, UserId,
    VerificationKey, WalletAttestation, WebhookContentType, WebhookId, WebhookSecretId, WebhookUrl, X402Version,
    ZoneName,
};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use uuid::Uuid;

/// A DynamoDB item, or a map inside one.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// A value that is stored as one DynamoDB attribute.
pub(crate) trait Attribute: Sized {
    fn write(&self) -> AttributeValue;
    /// Decodes the value. Returns `None` if the attribute is not a valid encoding of this type.
    fn read(value: &AttributeValue) -> Option<Self>;
}

pub(crate) fn encode_text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn read_text(value: &AttributeValue) -> Option<&str> {
    value.as_s().ok().map(String::as_str)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Attribute for $number {
            fn write(&self) -> AttributeValue {
                AttributeValue::N(self.to_string())
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                value.as_n().ok()?.parse().ok()
            }
        }
    )*};
}
numbers!(u8 u32 u64 i64);

/// Implements [`Attribute`] for types that are stored as one number.
macro_rules! written_as_number {
    ($($name:ty, $number:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> $number = $write;
                write(self).write()
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let read: fn($number) -> Option<Self> = $read;
                read(Attribute::read(value)?)
            }
        }
    )*};
}
written_as_number! {
    Amount, u64, |amount| amount.units(), Self::from_units;
    Timestamp, i64, |at| at.micros(), Self::from_micros;
    // Window durations are stored in whole seconds.
    Duration, u64, |length| length.secs(), |secs| u32::try_from(secs).ok().map(Self::from_secs_u32);
    X402Version, u64, |version| version.number().into(), Self::from_number;
}

/// Implements [`Attribute`] for types that are stored as one text.
macro_rules! written_as_text {
    ($($name:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> String = $write;
                AttributeValue::S(write(self))
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let read: fn(&str) -> Option<Self> = $read;
                read(read_text(value)?)
            }
        }
    )*};
}
written_as_text! {
    String, Clone::clone, |text| Some(text.to_owned());
    AgentId, ToString::to_string, Self::parse;
    KmsKeyId, ToString::to_string, Self::parse;
    ServiceId, ToString::to_string, Self::parse;
    WebhookId, ToString::to_string, Self::parse;
    WebhookSecretId, ToString::to_string, Self::parse;
    DeliveryId, ToString::to_string, Self::parse;
    NoticeUrlId, ToString::to_string, Self::parse;
    NoticeEnd, |end| end.name().to_owned(), Self::from_name;
    MailAddress, |address| address.as_str().to_owned(), Self::parse;
    EditReason, |reason| reason.as_str().to_owned(), Self::from_stored;
    AuditId, ToString::to_string, Self::parse;
    OperationUuid, ToString::to_string, Self::parse;
    SettlementId, ToString::to_string, Self::parse;
    TransactionId, ToString::to_string, Self::parse;
    ApprovalId, ToString::to_string, Self::parse;
    InputVersions, ToString::to_string, Self::parse;
    ServiceSlug, ToString::to_string, Self::parse;
    OperationSlug, ToString::to_string, Self::parse;
    DomainPattern, ToString::to_string, |text| Self::parse(text).ok();
    TxHash, ToString::to_string, Self::parse;
    KeyId, ToString::to_string, |text| u64::from_str_radix(text, 16).ok().map(Self);
    Address, |address| format!("{address:#x}"), |text| text.strip_prefix("0x")?.parse().ok();
    Network, |network| network.name().to_owned(), Self::from_name;
    Category, |category| category.name().to_owned(), Self::from_name;
    AskingKind, |kind| kind.name().to_owned(), Self::from_name;
    LimitAction, |action| action.name().to_owned(), Self::from_name;
    SchedulePeriod, ToString::to_string, Self::parse;
    ZoneName, ToString::to_string, Self::parse;
    TrustStatus, |status| status.name().to_owned(), Self::from_name;
    Permission, |permission| permission.name().to_owned(), Self::from_name;
    SourceNetwork, ToString::to_string, |text| Self::parse(text).ok();
    DecisionResult, |result| result.name().to_owned(), Self::from_name;
    EventId, ToString::to_string, Self::parse;
    EventKind, |kind| kind.name().to_owned(), Self::from_name;
    DeliveryState, |state| state.name().to_owned(), Self::from_name;
    CallResult, ToString::to_string, Self::parse;
    FailureStage, |stage| stage.name().to_owned(), Self::from_name;
    WebhookUrl, ToString::to_string, Self::parse;
    WebhookContentType, |content_type| content_type.name().to_owned(), Self::from_name;
    AuditKind, |kind| kind.name().to_owned(), Self::from_name;
    SessionId, ToString::to_string, Self::parse;
    ClientName, ToString::to_string, Self::from_stored;
    GrantOrigin, ToString::to_string, Self::from_stored;
    RedirectUri, ToString::to_string, |text| Self::parse(text).ok();
    Obstacle, ToString::to_string, Self::from_word;
    OperatorName, ToString::to_string, Self::from_stored;
    Url, ToString::to_string, |text| Self::parse(text).ok();
    Endpoint, ToString::to_string, Self::parse;
    Metadata, Self::to_json, Self::from_json;
    AgentStatus, |status| status.name().to_owned(), Self::from_name;
    OperatorReason, |reason| reason.as_str().to_owned(), Self::from_stored;
    UserId, ToString::to_string, Self::parse;
    TemplateName, ToString::to_string, Self::parse;
    TemplateKey, ToString::to_string, Self::parse;
    // A DynamoDB map does not support every number and nesting depth of JSON from providers.
    Value, ToString::to_string, |text| serde_json::from_str(text).ok();
    Map<String, Value>, |members| Value::Object(members.clone()).to_string(), |text| serde_json::from_str(text).ok();
}

impl Attribute for BTreeSet<ApprovalId> {
    fn write(&self) -> AttributeValue {
        AttributeValue::Ss(self.iter().map(ToString::to_string).collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_ss().ok()?.iter().map(|text| ApprovalId::parse(text)).collect()
    }
}

impl Attribute for BTreeSet<UserId> {
    fn write(&self) -> AttributeValue {
        AttributeValue::Ss(self.iter().map(ToString::to_string).collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_ss().ok()?.iter().map(|text| UserId::parse(text)).collect()
    }
}

/// Ids are stored as bytes, because every decision reads the set of frozen agents, which must stay small.
impl Attribute for BTreeSet<AgentId> {
    fn write(&self) -> AttributeValue {
        let bytes = self.iter().map(|id| Blob::new(id.uuid().into_bytes()));
        AttributeValue::Bs(bytes.collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        let ids = value.as_bs().ok()?.iter();
        let ids = ids.map(|bytes| Some(AgentId::from_uuid(Uuid::from_slice(bytes.as_ref()).ok()?)));
        ids.collect()
    }
}

/// Implements [`Attribute`] for types that are stored as a fixed number of bytes.
macro_rules! written_as_bytes {
    ($($name:ty, $write:expr, $read:expr;)*) => {$(
        impl Attribute for $name {
            fn write(&self) -> AttributeValue {
                let write: fn(&Self) -> Vec<u8> = $write;
                AttributeValue::B(Blob::new(write(self)))
            }
            fn read(value: &AttributeValue) -> Option<Self> {
                let bytes = value.as_b().ok()?.as_ref().try_into().ok()?;
                Some($read(bytes))
            }
        }
    )*};
}
written_as_bytes! {
    Fingerprint, |fingerprint| fingerprint.as_bytes().to_vec(), Self::from_bytes;
    SecretDigest, |digest| digest.as_bytes().to_vec(), Self::from_bytes;
    VerificationKey, |key| key.as_bytes().to_vec(), Self::from_bytes;
    PkceChallenge, |challenge| challenge.as_bytes().to_vec(), Self::from_bytes;
    NoncePrefix, |prefix| prefix.0.to_vec(), Self;
    B256, |hash| hash.to_vec(), Self::new;
    PublicKey, |key| key.as_bytes().to_vec(), Self::from_bytes;
    WalletAttestation, |attestation| attestation.as_bytes().to_vec(), Self::from_bytes;
    // Bytes take 16 instead of 36 bytes. A settlement contains up to twenty rule ids and must stay below 1 KB.
    RuleId, |id| id.uuid().as_bytes().to_vec(), |bytes| Self::from_uuid(Uuid::from_bytes(bytes));
}

/// Takes 17 bytes per scope: a digest, and the position of the category in [`Category::ALL`].
impl Attribute for PurchaseScope {
    fn write(&self) -> AttributeValue {
        let category = Category::ALL.iter().position(|category| *category == self.category);
        let category = category
            .and_then(|position| u8::try_from(position).ok())
            .unwrap_or(u8::MAX);
        AttributeValue::B(Blob::new([&self.slug.0[..], &self.call.0, &[category]].concat()))
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        let (slug, rest) = value.as_b().ok()?.as_ref().split_first_chunk()?;
        let (call, [category]) = rest.split_first_chunk()? else {
            return None;
        };
        Some(Self {
            slug: SlugDigest(*slug),
            category: *Category::ALL.get(usize::from(*category))?,
            call: CallDigest(*call),
        })
    }
}

impl Attribute for Labels {
    fn write(&self) -> AttributeValue {
        let labels = self
            .iter()
            .map(|(key, value)| (key.to_string(), encode_text(value.as_str())));
        AttributeValue::M(labels.collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        let labels = value.as_m().ok()?.iter();
        let labels =
            labels.map(|(key, value)| Some((LabelKey::parse(key)?, LabelValue::from_stored(read_text(value)?)?)));
        Self::from_pairs(labels.collect::<Option<Vec<_>>>()?)
    }
}

impl Attribute for bool {
    fn write(&self) -> AttributeValue {
        AttributeValue::Bool(*self)
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_bool().ok().copied()
    }
}

impl<T: Attribute> Attribute for Vec<T> {
    fn write(&self) -> AttributeValue {
        AttributeValue::L(self.iter().map(Attribute::write).collect())
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        value.as_l().ok()?.iter().map(Attribute::read).collect()
    }
}

impl Attribute for Ciphertext {
    fn write(&self) -> AttributeValue {
        AttributeValue::B(Blob::new(self.as_bytes()))
    }

    fn read(value: &AttributeValue) -> Option<Self> {
        Some(Self::from_bytes(value.as_b().ok()?.as_ref().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::item::Draft;
    use proptest::prelude::*;
    use purser_domain::Vendor;
    use std::fmt::Debug;

    fn labels() -> Labels {
        let pair = (LabelKey::parse("team").unwrap(), LabelValue::parse("s\u{fc}d").unwrap());
        Labels::from_pairs([pair]).unwrap()
    }

    fn returns<T: Attribute + PartialEq + Debug>(value: T) {
        assert_eq!(T::read(&value.write()), Some(value));
    }

    #[test]
    fn attributes_survive_encoding_and_decoding() {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        returns(AgentId::from_uuid(uuid));
        returns(RuleId::from_uuid(uuid));
        returns(KeyId(u64::MAX));
        returns(KeyId(1));
        returns(Duration::DAY);
        returns(Address::ZERO);
        returns(Address::repeat_byte(0xab));
        returns(X402Version::V2);
        returns(Obstacle::Status(503));
        returns(Obstacle::Timeout);
        returns(AgentStatus::Frozen);
        returns(labels());
        returns(vec![Permission::Read, Permission::Pay]);
        returns(vec![
            SourceNetwork::parse("203.0.113.0/24").unwrap(),
            SourceNetwork::parse("2001:db8::/32").unwrap(),
        ]);
        returns(Timestamp::MAX);
        returns(Amount::MAX);
        returns(vec![
            DomainPattern::any_domain(),
            DomainPattern::parse("*.b\u{fc}cher.example").unwrap(),
        ]);
        returns(Vec::<Category>::new());
        returns(serde_json::json!({"big": 18_446_744_073_709_551_615_u64, "deep": [[1.5, null]]}));
        returns(vec![
            Vendor::Wallet(Address::ZERO),
            Vendor::Service(ServiceSlug::parse("lab").unwrap()),
        ]);
    }

    #[test]
    fn malformed_database_attributes_are_not_decoded() {
        let number = |text: &str| AttributeValue::N(text.to_owned());
        assert_eq!(Amount::read(&number("9007199254740992")), None);
        assert_eq!(Amount::read(&number("-1")), None);
        assert_eq!(Amount::read(&encode_text("1")), None);
        assert_eq!(Address::read(&encode_text(&"0".repeat(40))), None);
        assert_eq!(Category::read(&encode_text("Search")), None);
        for (key, value) in [
            ("Team", encode_text("x")),
            ("team", encode_text("")),
            ("team", number("1")),
        ] {
            let labels = AttributeValue::M(Item::from([(key.to_owned(), value)]));
            assert_eq!(Labels::read(&labels), None, "{key}");
        }
        assert_eq!(Fingerprint::read(&AttributeValue::B(Blob::new([0; 31]))), None);
        assert_eq!(
            Vec::<Amount>::read(&AttributeValue::L(vec![number("1"), encode_text("1")])),
            None
        );
        let both = Draft::new_map()
            .with("wallet", &Address::ZERO)
            .with("service", &"x".to_owned());
        assert_eq!(Vendor::read(&AttributeValue::M(both.into_item())), None);
    }

    proptest! {
        #[test]
        fn amounts_times_and_fingerprints_survive_encoding_as_attributes(units in 0..=Amount::MAX.units(), micros in 0..=Timestamp::MAX.micros(), bytes: [u8; 32]) {
            returns(Amount::from_units(units).unwrap());
            returns(Timestamp::from_micros(micros).unwrap());
            returns(Fingerprint::from_bytes(bytes));
        }
    }
}
