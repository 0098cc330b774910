//! JSON schemas that can't be derived from types, and the schemas of arguments as all hosts accept them.

use serde_json::{Map, Value, json};

/// Implements `JsonSchema` with an inlined schema instead of a reference.
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

/// A non-negative integer, without Rust's format names, which JSON Schema does not define.
pub(crate) struct Whole;

inline_schema!(
    Whole,
    "Whole",
    schemars::json_schema!({"type": "integer", "minimum": 0})
);

/// Rewrites the derived schema of a tool's arguments with keywords that all hosts accept: one `type` as a text, no
/// `format`, `default`, `title` or `$schema`, and `anyOf` for an optional argument that may be `null`. An `anyOf` must
/// be the only member, so the description is moved into its first alternative.
///
/// Hosts with strict schemas (OpenAI) make every property required, and send `null` for omitted ones. Gemini accepts
/// neither lists of types nor other members beside `anyOf`.
pub(crate) fn for_hosts(schema: &Map<String, Value>) -> Map<String, Value> {
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

/// Returns the alternatives of a property. A property without alternatives is its only one; an unknown property has
/// none.
pub(crate) fn alternatives<'a>(schema: &'a Map<String, Value>, name: &str) -> Vec<&'a Map<String, Value>> {
    let Some(property) = schema.get("properties").and_then(|properties| properties.get(name)) else {
        return Vec::new();
    };
    match property.get("anyOf").and_then(Value::as_array) {
        Some(alternatives) => alternatives.iter().filter_map(Value::as_object).collect(),
        None => property.as_object().into_iter().collect(),
    }
}

/// Returns whether a schema allows any text.
pub(crate) fn is_any_text(schema: &Map<String, Value>) -> bool {
    let is_text = schema.get("type").is_some_and(|kind| kind == "string");
    is_text && !schema.contains_key("pattern") && !schema.contains_key("enum")
}
