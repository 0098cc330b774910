//! Strict JSON parsing: repeated keys are errors, because two parsers could read different values. [`Fields`] collects
//! all validation errors of an object.
//!
//! A provider's document may contain lone surrogates (RFC 8259 §8.2) and numbers beyond the range of `f64`
//! (§6). [`parse_json_with_raw_field`] accepts both and keeps the text, so that the document can be returned
//! unchanged.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, map::Entry, value::RawValue};
use std::{borrow::Cow, fmt};

/// A validation error for `details[]`: the location (a JSON Pointer, RFC 6901) and the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
pub struct ValidationError {
    /// The JSON Pointer into the request body, or `/<name>` for a query parameter. Empty for the whole body.
    pub path: String,
    /// A lower-case fragment that describes the valid values.
    pub message: String,
}

impl ValidationError {
    /// Creates a validation error at `path`.
    pub fn at_path(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// Parses one JSON document. Rejects repeated keys, trailing text and invalid UTF-8.
pub fn parse_json(bytes: &[u8]) -> Result<Value, ValidationError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ValidationError::at_path("", "must be UTF-8"))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict
        .deserialize(&mut reader)
        .map_err(|error| ValidationError::at_path("", describe_json_error(&error)))?;
    reader
        .end()
        .map_err(|_| ValidationError::at_path("", "must be one JSON document"))?;
    Ok(value)
}

/// Parses a non-negative integer in any JSON notation: `5.0` is 5 (JSON Schema Core §6.3).
pub fn parse_whole_number(value: &Value) -> Option<u64> {
    // Rust formats a whole non-negative `f64` with digits only, so no float arithmetic is needed.
    value.as_u64().or_else(|| match value.as_f64()?.to_string().as_str() {
        "-0" => Some(0),
        digits => digits.parse().ok(),
    })
}

/// Parses a JSON object in which one field is a provider's document, and returns that field's unchanged text.
///
/// In the parsed document, U+FFFD replaces a lone surrogate, and `null` replaces a number beyond the range of
/// `f64`.
pub fn parse_json_with_raw_field<'a>(
    bytes: &'a [u8],
    field: &str,
) -> Result<(Value, Option<&'a RawValue>), ValidationError> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Ok((parse_json(bytes)?, None));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ValidationError::at_path("", "must be UTF-8"))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let around = Around { member: field };
    let read = reader
        .deserialize_map(around)
        .map_err(|error| ValidationError::at_path("", describe_json_error(&error)))?;
    reader
        .end()
        .map_err(|_| ValidationError::at_path("", "must be one JSON document"))?;
    Ok(read)
}

/// Parses a provider's document. See [`parse_json_with_raw_field`].
pub(crate) fn parse_provider_json(document: &RawValue) -> Result<Value, ValidationError> {
    match parse_json(document.get().as_bytes()) {
        Err(message) if !message.message.starts_with(REPEATED_KEY) => parse_json_lossy(document, MAX_DEPTH)
            .map_err(|error| ValidationError::at_path("", describe_json_error(&error))),
        read => read,
    }
}

/// The maximum nesting depth, as in `serde_json`.
const MAX_DEPTH: usize = 127;

/// Converts a document level by level, so that a value that can't be represented affects no other value.
fn parse_json_lossy(value: &RawValue, depth: usize) -> Result<Value, serde_json::Error> {
    let text = value.get();
    let below = || {
        let below = depth.checked_sub(1);
        below.ok_or_else(|| serde_json::Error::custom("is nested too deeply"))
    };
    match text.as_bytes().first() {
        Some(b'{') => {
            let UnreadMembers(fields) = serde_json::from_str(text)?;
            let mut object = Map::new();
            for (name, field) in fields {
                insert_unique_field(&mut object, name, parse_json_lossy(field, below()?)?)?;
            }
            Ok(Value::Object(object))
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let below = below()?;
            items.into_iter().map(|item| parse_json_lossy(item, below)).collect()
        }
        Some(b'"') => serde_json::from_str(text).map(|Lossy(text)| Value::String(text)),
        // Only a number beyond the range of `f64` can't be parsed here. The number becomes null.
        _ => Ok(serde_json::from_str(text).unwrap_or_default()),
    }
}

/// A text with U+FFFD in place of lone surrogates.
struct Lossy(String);

impl<'de> Deserialize<'de> for Lossy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Lossy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Lossy, E> {
                Ok(Lossy(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
        // For bytes, `serde_json` returns lone surrogates as WTF-8 instead of an error.
        deserializer.deserialize_bytes(Bytes)
    }
}

/// The unparsed fields of an object.
#[derive(Default)]
pub(crate) struct UnreadMembers<'de>(pub(crate) Vec<(String, &'de RawValue)>);

impl<'de> Deserialize<'de> for UnreadMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = UnreadMembers<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut found = Vec::new();
                while let Some((Lossy(name), field)) = fields.next_entry()? {
                    found.push((name, field));
                }
                Ok(UnreadMembers(found))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// An object whose field `member` is a provider's document.
struct Around<'m> {
    member: &'m str,
}

impl<'de> Visitor<'de> for Around<'_> {
    type Value = (Value, Option<&'de RawValue>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let (mut object, mut document) = (Map::new(), None);
        while let Some(key) = fields.next_key::<String>()? {
            let value = if key == self.member {
                let raw: &RawValue = fields.next_value()?;
                document = Some(raw);
                parse_provider_json(raw).map_err(|error| A::Error::custom(error.message))?
            } else {
                fields.next_value_seed(Strict)?
            };
            insert_unique_field(&mut object, key, value)?;
        }
        Ok((Value::Object(object), document))
    }
}

/// Adds a field, unless the key is repeated.
fn insert_unique_field<E: serde::de::Error>(
    object: &mut Map<String, Value>,
    key: String,
    value: Value,
) -> Result<(), E> {
    match object.entry(key) {
        Entry::Vacant(slot) => {
            slot.insert(value);
            Ok(())
        }
        Entry::Occupied(slot) => Err(E::custom(format!("{REPEATED_KEY} `{}`", slot.key()))),
    }
}

/// Returns the validation error's message: the repeated key, or only the position of the syntax error.
fn describe_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with(REPEATED_KEY) {
        text
    } else {
        format!(
            "must be JSON; the syntax error is at line {} column {}",
            error.line(),
            error.column()
        )
    }
}

const REPEATED_KEY: &str = "must not repeat the key";

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(Self)?;
            insert_unique_field(&mut object, key, value)?;
        }
        Ok(Value::Object(object))
    }
}

/// Reads the fields of a JSON object and collects the validation errors.
///
/// [`Fields::read_field`] returns `None` for a field that is absent, `null` or invalid. The values are valid
/// only if [`Fields::finish`] returns `Ok`.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: Cow<'a, str>,
    problems: Vec<ValidationError>,
}

impl<'a> Fields<'a> {
    /// Starts reading the fields of `value`. `path` is the JSON Pointer of `value`.
    pub fn new(value: &'a Value, path: impl Into<Cow<'a, str>>) -> Result<Self, ValidationError> {
        match value {
            Value::Object(object) => Ok(Self {
                object,
                path: path.into(),
                problems: Vec::new(),
            }),
            _ => Err(ValidationError::at_path(path.into(), "must be an object")),
        }
    }

    /// Returns the field with this name; `None` if the field is absent or `null`.
    pub fn non_null_field(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Returns the JSON Pointer of a field.
    pub fn field_path(&self, name: &str) -> String {
        format!("{}/{}", self.path, name.replace('~', "~0").replace('/', "~1"))
    }

    /// Records a validation error for a field.
    pub fn add_error(&mut self, name: &str, message: impl Into<String>) {
        let path = self.field_path(name);
        self.problems.push(ValidationError::at_path(path, message));
    }

    /// Adds validation errors that other code found.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = ValidationError>) {
        self.problems.extend(errors);
    }

    /// Reads a field with `parse`, whose error becomes the message of a validation error.
    pub fn read_field<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&'a Value) -> Result<T, E>,
    ) -> Option<T> {
        match parse(self.non_null_field(name)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add_error(name, error.to_string());
                None
            }
        }
    }

    /// Returns all validation errors, sorted by path, or `Ok` if there are none.
    pub fn finish(mut self) -> Result<(), Vec<ValidationError>> {
        self.problems.sort();
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self.problems)
        }
    }

    /// Calls `parse` if there are no validation errors, and returns the value. If `parse` returns `None`, the
    /// validation error is that the object is incomplete.
    pub fn parse_if_valid<T>(self, parse: impl FnOnce() -> Option<T>) -> Result<T, Vec<ValidationError>> {
        let path = self.path.clone().into_owned();
        self.finish()?;
        parse().ok_or_else(|| vec![ValidationError::at_path(path, "is incomplete")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ambiguous_json_documents_are_rejected() {
        assert_eq!(
            parse_json(br#"{"a":[1,{"b":null}],"c":-2}"#).unwrap(),
            json!({"a": [1, {"b": null}], "c": -2})
        );
        let cases: [(&[u8], &str); 5] = [
            (br#"{"a":1,"a":2}"#, "must not repeat the key `a`"),
            (b"{\"a\":1} x", "must be one JSON document"),
            (b"{\"a\":", "must be JSON"),
            (b"", "must be JSON"),
            (b"\"\xff\"", "must be UTF-8"),
        ];
        for (bytes, message) in cases {
            let problem = parse_json(bytes).unwrap_err();
            assert!(problem.message.starts_with(message), "{problem:?}");
        }
    }

    #[test]
    fn only_provider_documents_are_parsed_leniently() {
        fn read(text: &str) -> Result<(Value, Option<&RawValue>), ValidationError> {
            parse_json_with_raw_field(text.as_bytes(), "offer")
        }
        let document = r#"{"a":"x\ud800y","\udc00":[1e999, 18446744073709551616,{"b":"\ud83d\ude00"}]}"#;
        let text = format!(r#"{{"offer": {document}, "n": 1}}"#);
        let (body, raw) = read(&text).unwrap();
        assert_eq!(raw.unwrap().get(), document);
        let replaced =
            json!({"a": "x\u{fffd}y", "\u{fffd}": [null, 18_446_744_073_709_551_616_f64, {"b": "\u{1f600}"}]});
        let a = body["offer"]["a"].as_str().unwrap().replace('\u{fffd}', "");
        assert_eq!((a.as_str(), &body["n"]), ("xy", &json!(1)));
        assert_eq!(
            body["offer"].as_object().unwrap().values().next_back(),
            replaced.as_object().unwrap().values().next_back()
        );
        assert_eq!(read(r#"{"offer": null}"#).unwrap().0, json!({"offer": null}));
        assert_eq!(read("[1]").unwrap().0, json!([1]));
        let refused = [
            (r#"{"n": "\ud800", "offer": {}}"#, "must be JSON"),
            (r#"{"n": 1e999}"#, "must be JSON"),
            (r#"{"offer": {}, "offer": {}}"#, "must not repeat the key `offer`"),
            (r#"{"offer": {"a": 1, "a": "\ud800"}}"#, "must not repeat the key `a`"),
            (r#"{"offer": {"a": "\ud8"}}"#, "must be JSON"),
            (r#"{"offer": {}} x"#, "must be one JSON document"),
            (r#"{"offer": {}"#, "must be JSON"),
        ];
        for (text, message) in refused {
            let problem = read(text).unwrap_err();
            assert!(problem.message.starts_with(message), "{text} {problem:?}");
        }
        let deep = format!(
            r#"{{"offer": {{"s": "\ud800", "d": {}1{}}}}}"#,
            "[".repeat(1_000),
            "]".repeat(1_000)
        );
        assert!(read(&deep).is_err());
    }

    #[test]
    fn deeply_nested_json_is_rejected() {
        let deep = "[".repeat(100_000);
        assert!(parse_json(deep.as_bytes()).is_err());
    }
}
