//! JSON schemas that cannot be derived from types, and their conversion to keywords that all hosts accept.

use serde_json::{Map, Value, json};

/// Implements `JsonSchema` for a type. The schema is inlined instead of referenced.
macro_rules! inline_schema {
    ($type:ty, $name:literal, $schema:expr $(, $($generic:tt)*)?) => {
        impl $(<$($generic)*>)? ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use inline_schema;

/// A non-negative integer. The schema omits Rust's integer formats, because JSON Schema does not define them.
pub(crate) struct Whole;

inline_schema!(
    Whole,
    "Whole",
    schemars::json_schema!({"type": "integer", "minimum": 0})
);

/// Converts a derived schema to keywords that all hosts accept: one string as `type`, and `anyOf` without other
/// keywords.
///
/// OpenAI's strict schemas make every property required, and send `null` for omitted properties. Gemini accepts no
/// lists of types, and no other keywords next to `anyOf`.
pub(crate) fn simplify_for_hosts(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut rewritten = schema.clone();
    for keyword in ["$schema", "title", "description"] {
        rewritten.remove(keyword);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten().map(|(name, property)| {
        let mut alternatives: Vec<Value> = alternatives(schema, name)
            .into_iter()
            .cloned()
            .map(Value::Object)
            .collect();
        if !is_required(schema, name) {
            alternatives.push(json!({"type": "null"}));
        }
        if let (Some(Value::Object(first)), Some(description)) = (alternatives.first_mut(), property.get("description"))
        {
            first.insert("description".to_owned(), description.clone());
            first.remove("default");
        }
        let property = match alternatives.as_slice() {
            [only] => only.clone(),
            _ => json!({"anyOf": alternatives}),
        };
        (name.clone(), property)
    });
    rewritten.insert("properties".to_owned(), Value::Object(properties.collect()));
    rewritten
}

/// Returns whether a property is required.
pub(crate) fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

/// Returns the `anyOf` alternatives of a property, or the property's schema, or an empty list.
pub(crate) fn alternatives<'a>(schema: &'a Map<String, Value>, name: &str) -> Vec<&'a Map<String, Value>> {
    let Some(property) = schema.get("properties").and_then(|properties| properties.get(name)) else {
        return Vec::new();
    };
    match property.get("anyOf").and_then(Value::as_array) {
        Some(alternatives) => alternatives.iter().filter_map(Value::as_object).collect(),
        None => property.as_object().into_iter().collect(),
    }
}

pub(crate) fn is_any_text(schema: &Map<String, Value>) -> bool {
    let is_text = schema.get("type").is_some_and(|kind| kind == "string");
    is_text && !schema.contains_key("pattern") && !schema.contains_key("enum")
}
