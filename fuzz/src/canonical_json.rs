//! Fuzzes request fingerprints: two JSON documents that differ only in notation or in null fields have the same
//! fingerprint.
//!
//! The input is one JSON document, or two documents on separate lines. Integers beyond 2^53 are compared by value,
//! although RFC 8785 treats numbers as IEEE doubles.

use purser_domain::{Fingerprint, parse_json};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Checks that documents with equal content, and only these, have the same fingerprint.
pub fn canonical_json(bytes: &[u8]) {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let Some(one) = lines.next().and_then(|line| parse_json(line).ok()) else {
        return;
    };
    let print = fingerprint(&one);

    let again = parse_json(one.to_string().as_bytes()).expect("what was written can be read");
    assert_eq!(fingerprint(&again), print, "{one}");

    if !has_large_integer(&one) {
        let mut respelled = String::new();
        respell(&one, &mut respelled);
        let respelled = parse_json(respelled.as_bytes()).unwrap_or_else(|problem| panic!("{respelled}: {problem:?}"));
        assert_eq!(fingerprint(&respelled), print, "{one} {respelled}");
    }
    a_repeated_key_is_refused(&one);
    attempts_are_left_out(&one);

    if let Some(other) = lines.next().and_then(|line| parse_json(line).ok()) {
        let same_print = fingerprint(&other) == print;
        let are_equal = equal(&asked(&one), &asked(&other));
        if same_print {
            assert!(are_equal, "{one} and {other} have one fingerprint");
        } else if !has_large_integer(&one) && !has_large_integer(&other) {
            assert!(!are_equal, "{one} and {other} have two fingerprints");
        }
    }
}

fn fingerprint(value: &Value) -> Fingerprint {
    Fingerprint::for_request(value, &[])
}

/// Returns the document without the null fields that fingerprints ignore.
fn asked(value: &Value) -> Value {
    let Value::Object(members) = value else {
        return value.clone();
    };
    let said = |members: &Map<String, Value>| -> Map<String, Value> {
        let said = members.iter().filter(|(_, value)| !value.is_null());
        said.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let mut document = said(members);
    for (name, value) in &mut document {
        if let (true, Value::Object(members)) = (matches!(name.as_str(), "original_request" | "metadata"), &*value) {
            *value = Value::Object(said(members));
        }
    }
    Value::Object(document)
}

/// Compares the values of two documents, and not their text.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let both = |number: &serde_json::Number| (number.as_i64(), number.as_u64());
            match (both(one), both(other)) {
                // Integers are compared as integers, so that integers beyond 2^53 are distinguished.
                ((Some(one), _), (Some(other), _)) => one == other,
                ((_, Some(one)), (_, Some(other))) => one == other,
                _ => one.as_f64() == other.as_f64(),
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => one == other,
    }
}

fn has_large_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            size.is_some_and(|size| size >= 1 << 53)
        }
        Value::Array(items) => items.iter().any(has_large_integer),
        Value::Object(members) => members.values().any(has_large_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Writes the document in another notation: reversed fields, escaped characters, scientific numbers, extra white space.
fn respell(value: &Value, into: &mut String) {
    into.push_str(" \t");
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(double) => write!(into, "{double:e}").unwrap(),
            None => into.push_str(&number.to_string()),
        },
        Value::String(text) => respell_text(text, into),
        Value::Array(items) => {
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                respell(item, into);
            }
            into.push(']');
        }
        Value::Object(members) => {
            into.push('{');
            for (index, (name, member)) in members.iter().rev().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                respell_text(name, into);
                into.push_str(" :");
                respell(member, into);
            }
            into.push('}');
        }
        Value::Null | Value::Bool(_) => into.push_str(&value.to_string()),
    }
    into.push_str("\r ");
}

fn respell_text(text: &str, into: &mut String) {
    into.push('"');
    for unit in text.encode_utf16() {
        write!(into, "\\u{unit:04X}").unwrap();
    }
    into.push('"');
}

/// Asserts that the parser rejects a repeated field, also if the second name is spelled with escapes.
fn a_repeated_key_is_refused(value: &Value) {
    let Value::Object(members) = value else { return };
    let Some((name, member)) = members.iter().next() else {
        return;
    };
    for spell_again in [
        |name: &str, text: &mut String| respell_text(name, text),
        |name: &str, text: &mut String| text.push_str(&Value::from(name).to_string()),
    ] {
        let written = value.to_string();
        let mut repeated = written.strip_suffix('}').unwrap().to_owned() + ",";
        spell_again(name, &mut repeated);
        write!(repeated, ":{member}}}").unwrap();
        assert!(parse_json(repeated.as_bytes()).is_err(), "{repeated}");
        // A repeated field is also rejected in a nested object.
        assert!(
            parse_json(format!("[{{\"a\":{repeated}}}]").as_bytes()).is_err(),
            "{repeated}"
        );
    }
}

/// Asserts that the fingerprint ignores `idempotency_key` at the top level, but not in nested objects.
fn attempts_are_left_out(value: &Value) {
    const KEY: &str = "idempotency_key";
    let Value::Object(members) = value else { return };
    let with = |text: &str| {
        let mut members: Map<String, Value> = members.clone();
        members.insert(KEY.to_owned(), Value::from(text));
        Value::Object(members)
    };
    let of = |value: &Value| Fingerprint::for_request(value, &[KEY]);
    assert_eq!(of(&with("a")), of(&with("b")));
    let inside = |text: &str| Value::Object(Map::from_iter([("x".to_owned(), with(text))]));
    assert_ne!(of(&inside("a")), of(&inside("b")));
}
