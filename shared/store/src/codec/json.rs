//! Converts items to plain JSON, for the catalog's compressed object. A written item reads back equal.

use crate::codec::attribute::Item;
use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// Converts an item to JSON with sorted fields. Returns `None` if an attribute has no JSON form.
pub(crate) fn item_to_json(item: &Item) -> Option<Value> {
    let fields: BTreeMap<_, _> = item.iter().collect();
    let fields = fields
        .into_iter()
        .map(|(name, value)| Some((name.clone(), to_json(value)?)));
    fields.collect::<Option<Map<_, _>>>().map(Value::Object)
}

pub(crate) fn item_from_json(value: Value) -> Option<Item> {
    match from_json(value)? {
        AttributeValue::M(item) => Some(item),
        _ => None,
    }
}

fn to_json(value: &AttributeValue) -> Option<Value> {
    match value {
        AttributeValue::S(text) => Some(Value::String(text.clone())),
        AttributeValue::N(digits) => {
            let number = digits.parse().map(|number: u64| number.into());
            let number: Number = number
                .or_else(|_| digits.parse().map(|number: i64| number.into()))
                .ok()?;
            // A number with another spelling, such as `007`, would be read back with a different text.
            (number.to_string() == *digits).then_some(Value::Number(number))
        }
        AttributeValue::Bool(value) => Some(Value::Bool(*value)),
        AttributeValue::L(values) => values.iter().map(to_json).collect::<Option<_>>().map(Value::Array),
        AttributeValue::M(item) => item_to_json(item),
        // The item of a service has no attribute of DynamoDB's types binary, set or null.
        _ => None,
    }
}

fn from_json(value: Value) -> Option<AttributeValue> {
    match value {
        Value::Null => None,
        Value::Bool(value) => Some(AttributeValue::Bool(value)),
        Value::Number(number) => Some(AttributeValue::N(number.to_string())),
        Value::String(text) => Some(AttributeValue::S(text)),
        Value::Array(values) => values
            .into_iter()
            .map(from_json)
            .collect::<Option<_>>()
            .map(AttributeValue::L),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| Some((name, from_json(value)?)));
            fields.collect::<Option<_>>().map(AttributeValue::M)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::primitives::Blob;
    use proptest::prelude::*;

    fn item(value: AttributeValue) -> Item {
        Item::from([("x".to_owned(), value)])
    }

    fn values() -> impl Strategy<Value = AttributeValue> {
        let leaf = prop_oneof![
            any::<String>().prop_map(AttributeValue::S),
            any::<u64>().prop_map(|n| AttributeValue::N(n.to_string())),
            any::<i64>().prop_map(|n| AttributeValue::N(n.to_string())),
            any::<bool>().prop_map(AttributeValue::Bool),
        ];
        leaf.prop_recursive(3, 24, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(AttributeValue::L),
                prop::collection::hash_map(any::<String>(), inner, 0..6).prop_map(AttributeValue::M),
            ]
        })
    }

    proptest! {
        #[test]
        fn dynamodb_items_survive_conversion_to_json_and_back(value in values()) {
            let item = item(value);
            let text = item_to_json(&item).unwrap().to_string();
            prop_assert_eq!(item_from_json(serde_json::from_str(&text).unwrap()), Some(item));
        }
    }

    #[test]
    fn dynamodb_items_that_json_cannot_represent_are_not_converted() {
        for value in [
            AttributeValue::N("1.5".to_owned()),
            AttributeValue::N("01".to_owned()),
            AttributeValue::N("18446744073709551616".to_owned()),
            AttributeValue::B(Blob::new([1])),
            AttributeValue::Ss(vec!["a".to_owned()]),
            AttributeValue::Null(true),
            AttributeValue::L(vec![AttributeValue::Null(true)]),
        ] {
            assert_eq!(item_to_json(&item(value.clone())), None, "{value:?}");
        }
        for value in [Value::Null, serde_json::json!([1]), serde_json::json!({"x": null})] {
            assert_eq!(item_from_json(value.clone()), None, "{value}");
        }
    }
}
