//! Draws valid and invalid values from the schemas of the OpenAPI document.
//!
//! A draw changes one value of a complete valid body, which satisfies rules that a schema can't express.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The OpenAPI document.
pub(crate) struct Document(Value);

/// The pattern of a filter by label.
const LABEL: &str = "^[a-z][a-z0-9_.-]{0,29}(=[^\\x00-\\x1f\\x7f-\\x9f]{1,60})?$";

/// The pattern of a template's name.
const TEMPLATE: &str = "^[a-z0-9][a-z0-9_-]{0,49}$";

/// The pattern of texts that pages show.
const SHOWN: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$";

/// A JSON pointer into a body, and the value to put there.
pub(crate) type Draw = (String, Value);

impl Document {
    pub(crate) fn read() -> Self {
        let mut document = serde_json::from_str(&purser_local::openapi().unwrap()).unwrap();
        constants_as_enums(&mut document);
        Self(document)
    }

    /// The schema of a route's body.
    pub(crate) fn body<'a>(&'a self, operation: &'a Value) -> &'a Value {
        self.resolved(&operation["requestBody"]["content"]["application/json"]["schema"])
    }

    /// Returns valid and invalid texts for a query parameter.
    pub(crate) fn parameter(&self, schema: &Value) -> (Vec<String>, Vec<String>) {
        let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let right = self.right(schema, "", &Value::Null).into_iter().map(|(_, value)| value);
        let right = right.filter(|value| !value.is_null()).map(text).collect();
        let choices = self.choices(schema);
        let is_free = |choice: &&Value| {
            choice
                .as_object()
                .is_some_and(|keywords| !keywords.contains_key("pattern"))
        };
        // Without further restrictions, every text is valid.
        if choices
            .iter()
            .any(|choice| types(choice) == ["string"] && is_free(choice) && choice["format"].is_null())
            && choices.iter().all(|choice| choice["enum"].is_null())
        {
            return (right, Vec::new());
        }
        let bounds = choices.iter().flat_map(|choice| {
            [
                choice["minimum"].as_i64().map(|least| least - 1),
                choice["maximum"].as_i64().map(|most| most + 1),
            ]
        });
        let bounds = bounds.flatten().map(|number| number.to_string());
        let wrong = bounds.chain(["", "\u{0}", "1.5", "-1", "1e1", "null", "[]"].map(str::to_owned));
        // `null` is a valid label key, and `1e1` a valid template name.
        let has = |pattern: &str| choices.iter().any(|choice| choice["pattern"] == pattern);
        let (is_label, is_name) = (has(LABEL), has(TEMPLATE));
        let is_wrong = |text: &String| match text.as_str() {
            "null" => !is_label && !is_name,
            "1e1" => !is_name,
            _ => true,
        };
        (right, wrong.filter(is_wrong).collect())
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => self.0.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        }
    }

    /// Returns the alternatives of a schema with their references resolved.
    fn choices<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let schema = self.resolved(schema);
        match schema["oneOf"].as_array() {
            Some(choices) => choices.iter().flat_map(|choice| self.choices(choice)).collect(),
            None => vec![schema],
        }
    }

    /// Returns the alternative of the schema that describes this object, by the object's tag.
    fn object<'a>(&'a self, schema: &'a Value, own: &Map<String, Value>) -> Option<&'a Value> {
        let is_tagged = |choice: &Value| {
            let mut properties = choice["properties"].as_object().into_iter().flatten();
            properties.all(|(name, property)| {
                let tag = property["enum"].as_array().filter(|names| names.len() == 1);
                tag.is_none_or(|tag| Some(&tag[0]) == own.get(name))
            })
        };
        let choices = self.choices(schema).into_iter();
        choices
            .filter(|choice| types(choice).contains(&"object"))
            .find(|choice| is_tagged(choice))
    }

    /// Returns all valid values at or below this pointer.
    pub(crate) fn right(&self, schema: &Value, at: &str, own: &Value) -> Vec<Draw> {
        let mut draws = vec![];
        for choice in self.choices(schema) {
            for kind in types(choice) {
                draws.extend(
                    values(choice, kind, own)
                        .into_iter()
                        .map(|value| (at.to_owned(), value)),
                );
            }
        }
        if let Some(members) = own.as_object() {
            let Some(object) = self.object(schema, members) else {
                return draws;
            };
            let Some(properties) = object["properties"].as_object() else {
                return draws;
            };
            let required = object["required"].as_array().cloned().unwrap_or_default();
            let is_optional = |name: &str| !required.contains(&json!(name));
            let (mut least, mut nulls, mut filled) = (members.clone(), members.clone(), members.clone());
            least.retain(|name, _| !is_optional(name));
            for (name, property) in properties {
                let choices = self.choices(property);
                if is_optional(name) && choices.iter().any(|choice| types(choice).contains(&"null")) {
                    nulls.insert(name.clone(), Value::Null);
                }
                let sample = members.get(name).cloned().filter(|own| !own.is_null());
                let sample = sample.or_else(|| {
                    let draws = self.right(property, "", &Value::Null).into_iter();
                    draws.map(|(_, value)| value).find(|value| !value.is_null())
                });
                if let Some(sample) = sample {
                    filled.insert(name.clone(), sample);
                }
                let own = members.get(name).unwrap_or(&Value::Null);
                draws.extend(self.right(property, &format!("{at}/{name}"), own));
            }
            draws.extend([least, nulls, filled].map(|object| (at.to_owned(), Value::Object(object))));
        } else if let (Some(entries), Some(items)) = (own.as_array(), schema_of_items(self, schema)) {
            for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.is_object()) {
                draws.extend(self.right(items, &format!("{at}/{index}"), entry));
            }
        }
        draws
    }

    /// Returns the pointers of texts in which any character except control characters is valid.
    pub(crate) fn free_texts(&self, schema: &Value, at: &str, own: &Value) -> BTreeSet<String> {
        let choices = self.choices(schema);
        let is_free = |choice: &Value| {
            let pattern = choice["pattern"].as_str();
            let is_text = types(choice) == ["string"] || types(choice) == ["string", "null"];
            is_text
                && choice["enum"].is_null()
                && choice["format"].is_null()
                && pattern.is_none_or(|one| one.contains("\\x9f") && one != LABEL)
        };
        let mut places = BTreeSet::new();
        if choices.iter().any(|choice| is_free(choice)) {
            places.insert(at.to_owned());
        }
        if let Some(members) = own.as_object() {
            let Some(object) = self.object(schema, members) else {
                return places;
            };
            for (name, property) in object["properties"].as_object().into_iter().flatten() {
                let own = members.get(name).unwrap_or(&Value::Null);
                places.extend(self.free_texts(property, &format!("{at}/{name}"), own));
            }
            let known = |name: &str| object["properties"].get(name).is_some();
            for (name, own) in members.iter().filter(|(name, _)| !known(name)) {
                places.extend(self.free_texts(&object["additionalProperties"], &format!("{at}/{name}"), own));
            }
        } else if let (Some(entries), Some(items)) = (own.as_array(), schema_of_items(self, schema)) {
            for (index, entry) in entries.iter().enumerate() {
                places.extend(self.free_texts(items, &format!("{at}/{index}"), entry));
            }
        }
        places
    }

    /// Returns invalid values at or below this pointer, each of which violates one keyword.
    pub(crate) fn wrong(&self, schema: &Value, at: &str, own: &Value) -> Vec<Draw> {
        let choices = self.choices(schema);
        let allowed: Vec<&str> = choices.iter().flat_map(|choice| types(choice)).collect();
        let mut draws = Vec::new();
        let mut add = |value: Value| draws.push((at.to_owned(), value));
        for (kinds, value) in [
            (&["string"][..], json!("\u{0}")),
            (&["integer", "number"], json!(7)),
            (&["number"], json!(7.5)),
            (&["boolean"], json!(true)),
            (&["array"], json!([])),
            (&["object"], json!({"a": 1})),
        ] {
            if !allowed.iter().any(|allowed| kinds.contains(allowed)) && !allowed.is_empty() {
                add(value);
            }
        }
        for choice in &choices {
            for (bound, step) in [("minimum", -1_i64), ("maximum", 1)] {
                if let Some(bound) = choice[bound].as_i64() {
                    add(json!(bound + step));
                }
            }
            if let Some(longest) = choice["maxLength"].as_u64() {
                add(json!("x".repeat(usize::try_from(longest).unwrap() + 1)));
            }
            if choice["pattern"].is_string() || !choice["enum"].is_null() {
                add(json!("\u{0}"));
            }
            // Texts without this pattern are not shown to users.
            if choice["pattern"] == SHOWN {
                for unreadable in [
                    "\u{200b}",
                    "\u{2060}\u{feff}",
                    "\u{3164}",
                    "x\u{202e}y",
                    "x\u{2066}y",
                    "x\u{200f}",
                ] {
                    add(json!(unreadable));
                }
            }
            if choice["minLength"].as_u64() == Some(1) {
                add(json!(""));
            }
            if let Some(entries) = own
                .as_array()
                .filter(|own| !own.is_empty() && types(choice).contains(&"array"))
            {
                if choice["minItems"].as_u64() == Some(1) {
                    add(json!([]));
                }
                if choice["uniqueItems"] == true {
                    add(json!([entries[0], entries[0]]));
                }
                if let Some(most) = choice["maxItems"].as_u64() {
                    add(json!(vec![entries[0].clone(); usize::try_from(most).unwrap() + 1]));
                }
            }
        }
        if let Some(members) = own.as_object() {
            let Some(object) = self.object(schema, members) else {
                return draws;
            };
            if object["additionalProperties"] == false {
                draws.push((format!("{at}/a~1b~0c"), Value::Null));
            }
            for (name, property) in object["properties"].as_object().into_iter().flatten() {
                let own = members.get(name).unwrap_or(&Value::Null);
                draws.extend(self.wrong(property, &format!("{at}/{name}"), own));
            }
        } else if let (Some(entries), Some(items)) = (own.as_array(), schema_of_items(self, schema)) {
            for (index, entry) in entries.iter().enumerate() {
                draws.extend(self.wrong(items, &format!("{at}/{index}"), entry));
            }
        }
        draws
    }
}

fn schema_of_items<'a>(document: &'a Document, schema: &'a Value) -> Option<&'a Value> {
    let choices = document.choices(schema).into_iter();
    choices.filter_map(|choice| choice.get("items")).next()
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Returns the valid values of one type at this pointer.
fn values(schema: &Value, kind: &str, own: &Value) -> Vec<Value> {
    match kind {
        "null" => vec![Value::Null],
        "boolean" => vec![json!(true), json!(false)],
        "integer" => {
            let own = own.as_u64();
            let bounds = ["minimum", "maximum"].map(|bound| schema[bound].as_u64());
            let numbers = bounds.into_iter().chain([own]).flatten();
            // The same number as an integer (`5`) and as a float (`5.0`).
            let both = |number: u64| {
                let float: Value = serde_json::from_str(&format!("{number}.0")).unwrap();
                [json!(number), float]
            };
            numbers.flat_map(both).collect()
        }
        "string" => texts(schema).into_iter().map(Value::String).collect(),
        // The items of a list may have to be names of existing objects, so only an empty list is drawn.
        "array" if schema["minItems"].is_null() => vec![json!([])],
        "array" => Vec::new(),
        "object" if schema["properties"].is_null() => vec![json!({})],
        "object" => Vec::new(),
        other => panic!("a value of the type {other}"),
    }
}

/// Replaces each `const` by an `enum` with one value.
fn constants_as_enums(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        if let Some(value) = members.remove("const") {
            members.insert("enum".to_owned(), json!([value]));
        }
        members.values_mut().for_each(constants_as_enums);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(constants_as_enums);
    }
}

/// Returns valid texts for a schema; none if the text must name an existing object.
pub(crate) fn texts(schema: &Value) -> Vec<String> {
    const LETTERS: [&str; 3] = ["x", "\u{e9}", "\u{1f4a1}"];
    let own = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
    if let Some(names) = schema["enum"].as_array() {
        return names.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    }
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    match schema["format"].as_str() {
        Some("uuid") => return vec![Uuid::new_v4().to_string()],
        Some("uri" | "uri-template") => {
            let begin = "https://a.example/";
            let longest = usize::try_from(schema["maxLength"].as_u64().unwrap()).unwrap();
            let rest = "a".repeat(longest - begin.len());
            return vec![
                "https://a.example:8443/x%20y?q=%C3%A9&r[]=(*)".to_owned(),
                format!("{begin}{rest}"),
            ];
        }
        Some("date-time") => return own(&["2099-12-31T23:59:59Z", "2099-12-31T23:59:59.123456+14:00"]),
        Some("date") => return own(&["2026-11-21"]),
        Some("evm-address") => {
            return own(&[
                "0x90F79bf6EB2c4f870365E785982E1f101E93b906",
                "0x90f79bf6eb2c4f870365e785982e1f101e93b906",
            ]);
        }
        Some("cidr" | "host-pattern") => return Vec::new(),
        Some(other) => panic!("a text of the format {other}"),
        None => {}
    }
    if let Some(names) = pattern.strip_prefix("^(").and_then(|rest| rest.strip_suffix(")$"))
        && names
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-|\\.".contains(&byte))
    {
        return names.split('|').map(|name| name.replace('\\', "")).collect();
    }
    let place = "0".repeat(32);
    match pattern {
        // Texts of the full length with characters of one to four bytes, and the empty text if valid.
        "" | "^[^\\x00-\\x1f\\x7f-\\x9f]*$" | SHOWN | "^([^\\x00-\\x1f\\x7f-\\x9f]|\\r?\\n)*$" => {
            let longest = usize::try_from(schema["maxLength"].as_u64().unwrap_or(8)).unwrap();
            let shortest = schema["minLength"].as_u64().unwrap_or_default();
            let mut texts: Vec<String> = LETTERS.iter().map(|letter| letter.repeat(longest)).collect();
            texts.extend((shortest == 0).then(String::new));
            texts.extend((longest > 8).then(|| "\u{1f469}\u{200d}\u{1f4bb} \u{2764}\u{fe0f}".to_owned()));
            texts
        }
        "^exact$" => own(&["exact"]),
        "^[A-Za-z0-9+_-]+(/[A-Za-z0-9+_-]+)*$" => own(&["UTC", "Europe/Berlin"]),
        "^USDC$" => own(&["USDC"]),
        "^application/(cloudevents\\+)?json$" => own(&["application/json", "application/cloudevents+json"]),
        "^[A-Za-z]{1,16}$" => own(&["get", "PROPFIND", "ABCDEFGHIJKLMNOP"]),
        "^0x[0-9a-fA-F]{64}$" => vec![format!("0x{}", "aB".repeat(32))],
        "^[0-9a-f]{64}$" => vec!["0a".repeat(32)],
        "^[0-9a-f]{32}$" => vec![place],
        "^[1-9][0-9]{0,18}$" => own(&["1", "9999999999999999999"]),
        "^0[0-2][0-9a-f]{46}$" => vec!["0".repeat(48), format!("02{}", "f".repeat(46))],
        "^0x[0-9a-f]{40}$" => vec![format!("0x{}", "0a".repeat(20))],
        LABEL => own(&["team", "team=s\u{fc}d=\u{1f4a1}"]),
        TEMPLATE => own(&["research"]),
        "^[a-z][a-z0-9_.-]{0,29}$" => Vec::new(),
        "^[a-z0-9_-]{1,128}$" | "^[a-z0-9_-]+(\\.[a-z0-9_-]+)+$" => Vec::new(),
        other => panic!("a text of the pattern {other}"),
    }
}
