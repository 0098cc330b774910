//! Reading JSON strictly: one meaning per document, and every problem reported together.
//!
//! `serde_json` keeps the last of two equal keys, so that two readers may see two documents in one text. Here a
//! repeated key is an error. Beyond that, [`Fields`] reads an object member by member and collects the problems in
//! the form of `details[]`.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, map::Entry};
use std::{borrow::Cow, fmt};

/// One entry of `details[]`: where (JSON Pointer, RFC 6901) and what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// JSON Pointer into the request body; empty for the body itself. For a query parameter, `/<name>`.
    pub path: String,
    /// A fragment in lower case that says what would be valid.
    pub message: String,
}

impl Problem {
    /// A problem at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// Parses one JSON document; refuses repeated keys, trailing text and anything that is not UTF-8.
pub fn parse_json(bytes: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::at("", "must be UTF-8"))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict
        .deserialize(&mut reader)
        .map_err(|error| Problem::at("", describe(&error)))?;
    reader.end().map_err(|_| Problem::at("", "must be one JSON document"))?;
    Ok(value)
}

/// serde's own text says "at line 1 column 2"; only that position and our repeated-key message are worth passing on.
fn describe(error: &serde_json::Error) -> String {
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

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(Self)?;
            match object.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(value);
                }
                Entry::Occupied(place) => {
                    return Err(A::Error::custom(format!("{REPEATED_KEY} `{}`", place.key())));
                }
            }
        }
        Ok(Value::Object(object))
    }
}

/// Reads the members of one JSON object and collects what is wrong with them.
///
/// Each reader returns `None` for a member that is absent or wrong; a wrong one adds a [`Problem`]. The caller uses the
/// values only if [`Fields::finish`] found no problem.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: Cow<'a, str>,
    problems: Vec<Problem>,
}

impl<'a> Fields<'a> {
    /// The members of `value` at `path`.
    pub fn of(value: &'a Value, path: impl Into<Cow<'a, str>>) -> Result<Self, Problem> {
        match value {
            Value::Object(object) => Ok(Self {
                object,
                path: path.into(),
                problems: Vec::new(),
            }),
            _ => Err(Problem::at(path.into(), "must be an object")),
        }
    }

    /// The member, unless it is absent or `null`.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The JSON Pointer of a member.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}/{}", self.path, name.replace('~', "~0").replace('/', "~1"))
    }

    /// Records a problem with a member.
    pub fn wrong(&mut self, name: &str, message: impl Into<String>) {
        let path = self.path_of(name);
        self.problems.push(Problem::at(path, message));
    }

    /// Records problems found elsewhere.
    pub fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.problems.extend(problems);
    }

    /// Reads a member with `read`, whose error is the message of the problem.
    pub fn read<T, E: fmt::Display>(&mut self, name: &str, read: impl FnOnce(&'a Value) -> Result<T, E>) -> Option<T> {
        match read(self.get(name)?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong(name, error.to_string());
                None
            }
        }
    }

    /// Every problem found, in the order of their paths; `Ok` when there is none.
    pub fn finish(mut self) -> Result<(), Vec<Problem>> {
        self.problems.sort();
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(self.problems)
        }
    }

    /// The end of an object: what was read of it, or every problem. `read` builds the value if there is no problem;
    /// `None` from it is a problem of the object itself.
    pub fn finish_with<T>(self, read: impl FnOnce() -> Option<T>) -> Result<T, Vec<Problem>> {
        let path = self.path.clone().into_owned();
        self.finish()?;
        read().ok_or_else(|| vec![Problem::at(path, "is incomplete")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_has_one_meaning() {
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
    fn deep_nesting_is_refused_rather_than_overflowing_the_stack() {
        let deep = "[".repeat(100_000);
        assert!(parse_json(deep.as_bytes()).is_err());
    }
}
