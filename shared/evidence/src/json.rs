//! Rejects JSON with repeated keys, because parsers differ in which of two equal keys they use.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Value};
use std::collections::BTreeSet;
use std::fmt;

/// Parses JSON. A repeated key in an object is an error.
pub fn parse_json(json: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice::<Unique>(json)?;
    serde_json::from_slice(json)
}

/// A JSON value in which no object has a repeated key.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, _)) = fields.next_entry::<String, Self>()? {
            if let Some(name) = names.replace(name) {
                return Err(A::Error::custom(format!("duplicate field `{}`", name.escape_debug())));
            }
        }
        Ok(self)
    }
}
