//! A catalog entry in the format that operators write, and the differences between two entries.

use crate::exit::Failure;
use purser_client::ApiError;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use url::Url;
use uuid::Uuid;

/// The fields of a service entry, and whether they are required.
const SERVICE: [(&str, bool); 10] = [
    ("slug", true),
    ("name", true),
    ("description", true),
    ("website", true),
    ("logo_url", false),
    ("category", true),
    ("source", true),
    ("trust_status", false),
    ("curated", false),
    ("operations", true),
];
const OPERATION: [(&str, bool); 13] = [
    ("id", true),
    ("operation_id", true),
    ("label", true),
    ("method", true),
    ("endpoint", true),
    ("category", true),
    ("execution", true),
    ("price_model", true),
    ("estimated_price_units", true),
    ("max_price_units", false),
    ("params", false),
    ("fetches_target", false),
    ("payment", false),
];
/// The fields that stay unchanged if an entry omits them.
const KEPT: [&str; 4] = ["trust_status", "curated", "fetches_target", "payment"];

/// A difference between two entries in one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// The field's name, after the operation's slug for a field of an operation.
    pub(crate) at: String,
    pub(crate) from: Value,
    pub(crate) to: Value,
}

impl Change {
    pub(crate) fn as_json(&self) -> Value {
        json!({"at": self.at, "from": self.from, "to": self.to})
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.at, self.from, self.to)
    }
}

/// Returns the entry that reproduces a service. A payment is omitted if it would cancel a scheduled change.
pub(crate) fn service_entry(service: &Value) -> Value {
    let of = |object: &Value, fields: &[(&str, bool)]| -> Map<String, Value> {
        let fields = fields.iter();
        fields
            .filter_map(|(name, _)| Some(((*name).to_owned(), object.get(*name)?.clone())))
            .collect()
    };
    let mut entry = of(service, &SERVICE);
    let operations = service.get("operations").and_then(Value::as_array);
    let operations = operations.into_iter().flatten().map(|operation| {
        let mut entry = of(operation, &OPERATION);
        // `false` is omitted, because Purser derives the same value from the category and the slug. `true` is kept,
        // because the agents' `allowed_domains` limit only operations with `true`.
        if entry.get("fetches_target") == Some(&Value::Bool(false)) {
            entry.remove("fetches_target");
        }
        if let Some(next) = operation.get("next").filter(|next| !next.is_null()) {
            entry.remove("payment");
            for name in ["price_model", "max_price_units"] {
                entry.insert(name.to_owned(), next.get(name).cloned().unwrap_or_default());
            }
        }
        Value::Object(entry)
    });
    entry.insert("operations".to_owned(), operations.collect());
    entry.into()
}

/// Returns the version of a service, which an update must contain.
pub(crate) fn service_version(service: &Value) -> Result<u64, Failure> {
    let version = service.get("version").and_then(Value::as_u64);
    version.ok_or_else(|| ApiError::Unreadable("a service without a version").into())
}

/// Returns the changes that writing an entry would make. `service` is `None` if the service is new.
pub(crate) fn differences(service: Option<&Value>, entry: &Value) -> Vec<Change> {
    let nothing = Value::Null;
    let service = service.unwrap_or(&nothing);
    let mut changes = list_changes("", service, entry, &SERVICE);
    let by_id = |service: &'_ Value| -> BTreeMap<String, Value> {
        let id_of = |operation: &Value| normalize("id", operation.get("id")).to_string();
        let all = service
            .get("operations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        all.map(|operation| (id_of(operation), operation.clone())).collect()
    };
    let (mut before, after) = (by_id(service), by_id(entry));
    for (id, operation) in after {
        let slug = operation_slug(&operation);
        match before.remove(&id) {
            Some(stored) => changes.extend(list_changes(
                &slug,
                &current_or_next(stored, &operation),
                &operation,
                &OPERATION,
            )),
            None => changes.push(Change {
                at: slug,
                from: Value::Null,
                to: operation,
            }),
        }
    }
    for operation in before.into_values() {
        changes.push(Change {
            at: operation_slug(&operation),
            from: operation,
            to: Value::Null,
        });
    }
    changes
}

/// Returns the stored operation, with the scheduled pricing if the entry has that pricing.
fn current_or_next(mut stored: Value, entry: &Value) -> Value {
    const PRICING: [&str; 3] = ["price_model", "max_price_units", "payment"];
    let Some(next) = stored.get("next").filter(|next| !next.is_null()).cloned() else {
        return stored;
    };
    let is_so = PRICING.iter().all(|name| match entry.get(*name) {
        None if *name == "payment" => true,
        value => normalize(name, value) == normalize(name, next.get(*name)),
    });
    if let Value::Object(fields) = &mut stored {
        if is_so {
            for name in PRICING {
                fields.insert(name.to_owned(), next.get(name).cloned().unwrap_or_default());
            }
        } else if entry.get("payment").is_some() {
            // An entry with a payment cancels the scheduled change, even if the payment is unchanged.
            fields.insert("payment".to_owned(), next.get("payment").cloned().unwrap_or_default());
        }
    }
    stored
}

fn operation_slug(operation: &Value) -> String {
    operation
        .get("operation_id")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn list_changes(subject: &str, before: &Value, after: &Value, fields: &[(&str, bool)]) -> Vec<Change> {
    let names = fields
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "operations");
    names
        .filter_map(|name| {
            let (from, to) = (normalize(name, before.get(name)), normalize(name, after.get(name)));
            let stays =
                KEPT.contains(&name) && after.get(name).is_none_or(|value| name != "payment" && value.is_null());
            let at = if subject.is_empty() {
                name.to_owned()
            } else {
                format!("{subject} {name}")
            };
            (from != to && !stays).then_some(Change { at, from, to })
        })
        .collect()
}

/// Converts a field's value to the stored form.
fn normalize(name: &str, value: Option<&Value>) -> Value {
    let value = value.cloned().unwrap_or_default();
    match (name, &value) {
        ("params", Value::Null) => json!({}),
        ("website" | "logo_url" | "endpoint", Value::String(text)) => {
            Url::parse(text).map_or_else(|_| value.clone(), |url| json!(url.as_str()))
        }
        ("method", Value::String(text)) => json!(text.to_ascii_uppercase()),
        ("id", Value::String(text)) => json!(text.to_ascii_lowercase()),
        ("payment", Value::Object(payment)) => {
            let mut payment = payment.clone();
            if let Some(Value::String(payee)) = payment.get_mut("pay_to") {
                *payee = payee.to_ascii_lowercase();
            }
            payment.into()
        }
        _ => value,
    }
}

/// Returns the structural errors of an entry. Purser validates the values.
pub(crate) fn validation_errors(entry: &Value) -> Vec<String> {
    let Value::Object(fields) = entry else {
        return vec!["it must be an object".to_owned()];
    };
    let mut errors = missing_and_unknown("", fields, &SERVICE);
    match fields.get("operations") {
        Some(Value::Array(operations)) => {
            for (index, operation) in operations.iter().enumerate() {
                let at = format!("/operations/{index}");
                match operation {
                    Value::Object(fields) => errors.extend(missing_and_unknown(&at, fields, &OPERATION)),
                    _ => errors.push(format!("{at}: must be an object")),
                }
            }
        }
        Some(_) => errors.push("/operations: must be an array".to_owned()),
        None => {}
    }
    errors
}

fn missing_and_unknown(at: &str, fields: &Map<String, Value>, known_fields: &[(&str, bool)]) -> Vec<String> {
    let missing = known_fields
        .iter()
        .filter(|(name, required)| *required && !fields.contains_key(*name));
    let missing = missing.map(|(name, _)| format!("{at}/{name}: is missing"));
    let unknown = fields
        .keys()
        .filter(|name| !known_fields.iter().any(|(known, _)| known == name));
    missing
        .chain(unknown.map(|name| format!("{at}/{name}: is no member of an entry")))
        .collect()
}

/// Derives a fixed id from a text (RFC 9562 §5.8), so that a repeated command finds the existing object.
pub(crate) fn id_for(kind: &str, text: &str) -> Uuid {
    let digest = Sha256::digest(format!("purser-{kind}-v1\n{text}"));
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = from;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(price: u64) -> Value {
        let payment = |units: u64| json!({"scheme": "exact", "network": "base", "token": "USDC", "amount_units": units, "pay_to": "0xAb"});
        json!({
            "id": "6F0F5D4C-5d0c-4d57-9d7a-0c6b7d8f3a11", "operation_id": "a.b", "label": "A", "method": "get",
            "endpoint": "https://a.example/{id}", "category": "data", "execution": "sync", "price_model": "fixed",
            "estimated_price_units": 1, "payment": payment(price),
        })
    }

    fn service(operation: &Value) -> Value {
        json!({
            "slug": "a", "name": "A", "description": "A.", "website": "https://a.example", "category": "data",
            "source": "seed", "operations": [operation],
        })
    }

    fn seen(service: &Value) -> Value {
        let mut seen = service.clone();
        seen["website"] = json!("https://a.example/");
        seen["logo_url"] = Value::Null;
        seen["trust_status"] = json!("listed");
        seen["curated"] = json!(true);
        let operation = &mut seen["operations"][0];
        operation["method"] = json!("GET");
        operation["max_price_units"] = Value::Null;
        operation["params"] = json!({});
        operation["fetches_target"] = json!(false);
        operation["payment"]["pay_to"] = json!("0xaB");
        operation["next"] = Value::Null;
        seen
    }

    fn told(service: Option<&Value>, entry: &Value) -> Vec<String> {
        differences(service, entry).iter().map(Change::to_string).collect()
    }

    /// An exported entry does not differ from the stored service.
    #[test]
    fn catalog_differences_are_listed_by_field() {
        let entry = service(&operation(5));
        let stored = seen(&entry);
        assert_eq!(told(Some(&stored), &entry), [""; 0]);
        assert_eq!(told(Some(&stored), &service_entry(&stored)), [""; 0]);
        let mut other = entry.clone();
        other["name"] = json!("B");
        other["curated"] = json!(false);
        other["operations"][0]["label"] = json!("B");
        other["operations"][0]["payment"] = Value::Null;
        let payment = &stored["operations"][0]["payment"].to_string().replace("0xaB", "0xab");
        assert_eq!(
            told(Some(&stored), &other),
            [
                r#"name: "A" -> "B""#.to_owned(),
                "curated: true -> false".to_owned(),
                r#"a.b label: "A" -> "B""#.to_owned(),
                format!("a.b payment: {payment} -> null"),
            ]
        );
        other["operations"] = json!([]);
        let removed = told(Some(&stored), &other).pop().unwrap();
        assert!(
            removed.starts_with("a.b: {") && removed.ends_with("-> null"),
            "{removed}"
        );
        assert!(told(None, &entry).contains(&r#"slug: null -> "a""#.to_owned()));
    }

    /// An entry that would cancel the scheduled change differs from the stored service.
    #[test]
    fn a_pending_price_change_is_not_a_catalog_difference() {
        let entry = service(&operation(5));
        let mut stored = seen(&entry);
        let mut payment = stored["operations"][0]["payment"].clone();
        payment["amount_units"] = json!(9);
        stored["operations"][0]["next"] = json!({"price_model": "fixed", "max_price_units": null, "payment": payment});
        assert_eq!(
            told(Some(&stored), &service(&operation(9))),
            [""; 0],
            "it waits already"
        );
        let exported = service_entry(&stored);
        assert!(exported["operations"][0].get("payment").is_none());
        assert_eq!(told(Some(&stored), &exported), [""; 0]);
        assert_eq!(
            told(Some(&stored), &entry).len(),
            1,
            "what is payable now takes it back"
        );
    }

    #[test]
    fn all_validation_errors_of_a_service_are_reported() {
        let entry = json!({"slug": "a", "prise": 1, "operations": [{"id": "x"}, 5]});
        let told = validation_errors(&entry);
        assert!(told.contains(&"/name: is missing".to_owned()), "{told:?}");
        assert!(
            told.contains(&"/prise: is no member of an entry".to_owned()),
            "{told:?}"
        );
        assert!(told.contains(&"/operations/0/label: is missing".to_owned()), "{told:?}");
        assert!(
            told.contains(&"/operations/1: must be an object".to_owned()),
            "{told:?}"
        );
        assert_eq!(validation_errors(&service(&operation(1))), [""; 0]);
    }
}
