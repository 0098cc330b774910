//! Basic values: amounts of money, identifiers, names, times, and strict JSON parsing.

/// Implements `Serialize`: in JSON, a value is the text that `Display` writes.
macro_rules! text_in_json {
    ($($name:ty),+) => {$(
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}
pub(crate) use text_in_json;

/// Implements `Deserialize`: in JSON, a value is a text that the named function accepts.
macro_rules! parsed_from_json {
    ($($name:ty: $parse:ident),+ $(,)?) => {$(
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                Self::$parse(&text).ok_or_else(|| ::serde::de::Error::custom("unexpected text"))
            }
        }
    )+};
}
pub(crate) use parsed_from_json;

pub(crate) mod address;
pub(crate) mod amount;
pub(crate) mod hidden;
pub(crate) mod id;
pub(crate) mod json;
pub(crate) mod line;
pub(crate) mod slug;
pub(crate) mod time;
pub(crate) mod visible;

text_in_json!(
    time::Timestamp,
    crate::EventId,
    crate::KmsKeyId,
    crate::LabelKey,
    crate::LabelValue,
    crate::SessionId,
    crate::SourceNetwork,
    crate::TxHash,
    crate::UserId
);
parsed_from_json!(
    time::Timestamp: parse,
    crate::KmsKeyId: parse,
    crate::LabelKey: parse,
    crate::LabelValue: from_stored,
    crate::SessionId: parse,
    crate::TxHash: parse,
    crate::UserId: parse,
);

/// Reads and writes a map as a list of pairs, because a key in JSON must be a text (`#[serde(with = "…")]`).
pub mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    /// Writes the pairs of a map.
    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    /// Reads a map from pairs.
    pub fn deserialize<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error> {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}
