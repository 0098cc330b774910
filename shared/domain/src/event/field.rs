//! The fields of an event's data, and the formats of their values.

use crate::{Amount, Labels, Timestamp};
use serde_json::Value;
use uuid::Uuid;

/// A field that the data of an event can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name, as in the API.
    pub name: &'static str,
    /// The format of the field's value.
    pub form: Form,
    /// Whether every event of the kind has this field.
    pub required: bool,
}

/// The format of a field's value in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A UUID with hyphens, as a JSON string.
    Uuid,
    /// A whole number. Amounts are in micro-USDC.
    Number,
    /// An ISO 8601 time in UTC with six decimal places.
    Time,
    /// An address: `0x` and 40 hexadecimal digits.
    Address,
    /// A hash: `0x` and 64 hexadecimal digits.
    Hash,
    /// `true` or `false`.
    Flag,
    /// A text from this list.
    OneOf(&'static [&'static str]),
    /// An agent's labels: a JSON object of texts that is never empty.
    Labels,
    /// A text that Purser wrote: a slug, a name or a reason.
    Text,
}

impl Field {
    pub(crate) const fn required(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            required: true,
        }
    }

    pub(crate) const fn optional(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            required: false,
        }
    }
}

/// The maximum length of a [`Form::Text`], in characters.
pub(crate) const MAX_TEXT_CHARS: usize = 200;
const ADDRESS_DIGITS: usize = 40;
const HASH_DIGITS: usize = 64;

impl Form {
    /// Returns whether a value has this format.
    pub fn matches(self, value: &Value) -> bool {
        let text = value.as_str();
        match self {
            Self::Uuid => text.is_some_and(|text| text.len() == 36 && Uuid::try_parse(text).is_ok()),
            Self::Number => value.as_u64().is_some_and(|number| number <= Amount::MAX.units()),
            Self::Time => text.is_some_and(|text| Timestamp::parse(text).is_some_and(|time| time.to_string() == text)),
            Self::Address => text.is_some_and(|text| is_hex(text, ADDRESS_DIGITS)),
            Self::Hash => text.is_some_and(|text| is_hex(text, HASH_DIGITS)),
            Self::Flag => value.is_boolean(),
            Self::OneOf(texts) => text.is_some_and(|text| texts.contains(&text)),
            Self::Labels => Labels::from_stored(value).is_some_and(|labels| !labels.is_empty()),
            Self::Text => text.is_some_and(|text| text.chars().count() <= MAX_TEXT_CHARS),
        }
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|hex| hex.len() == digits && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
