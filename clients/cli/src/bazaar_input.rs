//! Converts the parameters of a Bazaar item (x402 version 1 or 2) to the `params` of an operation.

use purser_mcp::is_parameter_header;
use serde_json::{Map, Value, json};

/// The maximum length of `params` that the MCP tool `get_service` returns completely, in bytes.
const MAX_BYTES: usize = 3_600;
/// The lengths in bytes to which descriptions and examples are cut, tried in this order.
const TEXTS: [usize; 3] = [300, 80, 0];
/// The JSON Schema keywords that remain if texts are cut to length 0.
const ESSENTIAL: [&str; 3] = ["type", "enum", "in"];
/// The keywords with texts that may be cut.
const TEXT_KEYWORDS: [&str; 3] = ["description", "title", "example"];

/// The names of the fields with the path parameters. Version 1 of x402 specifies no names.
const PATH: [&str; 2] = ["pathParams", "path_params"];
const QUERY: [&str; 4] = ["queryParams", "query_params", "query", "params"];
const HEADERS: [&str; 3] = ["headers", "headerFields", "header_fields"];
const BODY: [&str; 6] = ["body", "bodyFields", "body_fields", "bodyParams", "data", "properties"];

/// An item's input description.
pub(crate) struct BazaarInput<'a> {
    /// The example (version 2) or the description (version 1) of the input.
    input: &'a Value,
    /// The JSON schemas of the fields of `input`.
    schemas: &'a Value,
}

/// A parameter's name and JSON schema, and whether it is required.
type Parameter = (String, Map<String, Value>, bool);

impl<'a> BazaarInput<'a> {
    /// Finds the input of an item. Returns `None` if the item has no input.
    pub(crate) fn find(item: &'a Value) -> Option<Self> {
        let bazaar = item.pointer("/extensions/bazaar");
        let v2 = bazaar.and_then(|bazaar| bazaar.pointer("/info/input"));
        let mut accepts = item.get("accepts").and_then(Value::as_array).into_iter().flatten();
        let v1 = || {
            accepts.find_map(|entry| {
                entry
                    .get("outputSchema")
                    .or_else(|| entry.get("output_schema"))?
                    .get("input")
            })
        };
        let schemas = bazaar.and_then(|bazaar| bazaar.pointer("/schema/properties/input/properties"));
        Some(Self {
            input: v2.or_else(v1).filter(|input| input.is_object())?,
            schemas: schemas.unwrap_or(&Value::Null),
        })
    }

    /// Returns whether the input is for an MCP tool.
    pub(crate) fn is_mcp(&self) -> bool {
        self.input.get("type").and_then(Value::as_str) == Some("mcp")
    }

    /// Returns the HTTP method in upper case.
    pub(crate) fn method(&self) -> Option<String> {
        self.input
            .get("method")
            .and_then(Value::as_str)
            .map(str::to_ascii_uppercase)
    }

    /// Returns the `params` of an operation. The error says why the operation can't be called.
    pub(crate) fn params(&self, path: &[String], has_body: bool, query: &[(String, String)]) -> Result<Value, String> {
        let mut all: Vec<Parameter> = Vec::new();
        let of_path = self.parameters(&PATH);
        for name in path {
            let described = of_path.iter().find(|(described, ..)| described == name);
            let schema = described.map_or_else(|| string_schema(None), |(_, schema, _)| schema.clone());
            all.push((name.clone(), add_location(schema, "path"), true));
        }
        let mut of_query = self.parameters(&QUERY);
        for (name, value) in query {
            if !of_query.iter().any(|(described, ..)| described == name) {
                of_query.push((name.clone(), string_schema(Some(value)), false));
            }
        }
        // Some items list the path parameters again as query parameters.
        let of_query = of_query.into_iter().filter(|(name, ..)| !path.contains(name));
        all.extend(of_query.map(|(name, schema, required)| (name, add_location(schema, "query"), required)));
        for (name, schema, required) in self.parameters(&HEADERS) {
            if is_parameter_header(&name) {
                all.push((name, add_location(schema, "header"), required));
            } else if required && is_credential(&name) {
                return Err(format!("it requires the header `{name}`, which calls don't have"));
            }
        }
        let body_type = has_body.then(|| self.body_type()).transpose()?;
        if let Some(body_type) = body_type {
            for (name, schema, required) in self.body(body_type)? {
                if !path.contains(&name) {
                    all.push((name, add_location(schema, "body"), required));
                }
            }
        }
        assemble_schema(all, body_type)
    }

    fn body_type(&self) -> Result<&'static str, String> {
        let named = self.input.get("bodyType").or_else(|| self.input.get("body_type"));
        let Some(named) = named.filter(|named| !named.is_null()) else {
            return Ok("json");
        };
        let named = named.as_str().unwrap_or_default().to_ascii_lowercase();
        let kinds = [
            ("urlencoded", "form-urlencoded"),
            ("form", "form-data"),
            ("multipart", "form-data"),
            ("json", "json"),
            ("text", "text"),
            ("plain", "text"),
        ];
        let known = kinds.iter().find(|(part, _)| named.contains(part));
        known
            .map(|(_, kind)| *kind)
            .ok_or_else(|| "its `bodyType` is unknown".to_owned())
    }

    fn body(&self, body_type: &str) -> Result<Vec<Parameter>, String> {
        if body_type == "text" {
            let example = BODY.iter().find_map(|name| self.input.get(name)?.as_str());
            return Ok(vec![("body".to_owned(), string_schema(example), true)]);
        }
        let described = BODY
            .iter()
            .find_map(|name| self.input.get(name))
            .filter(|body| !body.is_null());
        let schema_type = self.schemas.pointer("/body/type").and_then(Value::as_str);
        if schema_type.is_some_and(|kind| kind != "object") || described.is_some_and(|body| !body.is_object()) {
            return Err("its body is no object of fields".to_owned());
        }
        let mut fields = self.parameters(&BODY);
        let is_file = |schema: &Map<String, Value>| {
            let is = |name: &str, kinds: [&str; 2]| {
                schema
                    .get(name)
                    .and_then(Value::as_str)
                    .is_some_and(|kind| kinds.contains(&kind))
            };
            is("format", ["binary", "file"]) || is("type", ["file", "binary"])
        };
        if fields.iter().any(|(_, schema, required)| *required && is_file(schema)) {
            return Err("it requires a file, which parameters can't hold".to_owned());
        }
        fields.retain(|(_, schema, _)| !is_file(schema));
        Ok(fields)
    }

    /// Returns the parameters of one location, from the schema of the input or from the input itself.
    fn parameters(&self, names: &[&str]) -> Vec<Parameter> {
        let described = names
            .iter()
            .find_map(|name| self.input.get(name))
            .unwrap_or(&Value::Null);
        let schema = names
            .iter()
            .find_map(|name| self.schemas.get(name)?.get("properties").map(|_| *name));
        let schema = schema.and_then(|name| self.schemas.get(name));
        // In version 1, the field contains either the parameters or their JSON schema.
        let is_schema = |value: &Value| value.get("properties").is_some_and(Value::is_object);
        match schema.or_else(|| Some(described).filter(|described| is_schema(described))) {
            Some(schema) => properties(schema, described),
            None => described
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| parameter_from(name, value))
                .collect(),
        }
    }
}

/// Returns the properties of a JSON schema, with the values of an example.
fn properties(schema: &Value, example: &Value) -> Vec<Parameter> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.into_iter().flatten().any(|item| item == name);
    let all = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let all = all.map(|(name, property)| {
        let (name, mut schema, required) = parameter_from(name, property);
        let value = example.get(&name).filter(|value| is_example(value));
        if let Some(value) = value.filter(|_| !schema.contains_key("example")) {
            schema.insert("example".to_owned(), value.clone());
        }
        let required = required || is_required(&name);
        (name, schema, required)
    });
    all.collect()
}

/// Returns a parameter that a JSON schema, the name of a type, or an example describes.
fn parameter_from(name: &str, value: &Value) -> Parameter {
    const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];
    let is_schema = |value: &Map<String, Value>| {
        let keywords = [
            "type",
            "enum",
            "const",
            "description",
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
        ];
        keywords.iter().any(|keyword| value.contains_key(*keyword))
    };
    let (schema, required) = match value {
        Value::Object(described) if is_schema(described) => {
            let mut schema = described.clone();
            let required = schema.get("required") == Some(&Value::Bool(true));
            if schema.get("required").is_some_and(Value::is_boolean) {
                schema.remove("required");
            }
            // `target` and `in` have a special meaning in Purser's catalog.
            schema.retain(|keyword, _| keyword != "target" && keyword != "in");
            (schema, required)
        }
        Value::String(kind) if TYPES.contains(&kind.as_str()) => {
            (Map::from_iter([("type".to_owned(), json!(kind))]), false)
        }
        value => {
            let kind = match value {
                Value::Null | Value::String(_) => "string",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            let mut schema = Map::from_iter([("type".to_owned(), json!(kind))]);
            if is_example(value) {
                schema.insert("example".to_owned(), value.clone());
            }
            (schema, false)
        }
    };
    (name.to_owned(), schema, required)
}

/// Returns whether a value is an example and not the placeholder of a route.
fn is_example(value: &Value) -> bool {
    let is_placeholder = |text: &str| text.is_empty() || text.contains("%7B") || text.starts_with([':', '{', '[']);
    !value.is_null() && !value.as_str().is_some_and(is_placeholder)
}

fn string_schema(example: Option<&str>) -> Map<String, Value> {
    let mut schema = Map::from_iter([("type".to_owned(), json!("string"))]);
    if let Some(example) = example {
        schema.insert("example".to_owned(), json!(example));
    }
    schema
}

fn add_location(mut schema: Map<String, Value>, location: &str) -> Map<String, Value> {
    schema.insert("in".to_owned(), json!(location));
    schema
}

/// Returns whether a header is a credential that the caller would need.
fn is_credential(name: &str) -> bool {
    ["authorization", "proxy-authorization", "cookie"].contains(&name.to_ascii_lowercase().as_str())
}

/// Combines the parameters to one JSON schema. Shortens texts if the schema is too long.
fn assemble_schema(parameters: Vec<Parameter>, body_type: Option<&str>) -> Result<Value, String> {
    if parameters.is_empty() && body_type.is_none_or(|kind| kind == "json") {
        return Ok(json!({}));
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, schema, is_required) in parameters {
        if is_required {
            required.push(json!(name));
        }
        if properties.insert(name, schema.into()).is_some() {
            return Err("two of its parameters have one name".to_owned());
        }
    }
    let mut params = json!({"type": "object", "properties": properties, "required": required});
    if let Some((body_type, fields)) = body_type.zip(params.as_object_mut()) {
        fields.insert("bodyType".to_owned(), json!(body_type));
    }
    for max in TEXTS {
        if params.to_string().len() <= MAX_BYTES {
            return Ok(params);
        }
        for schema in params
            .get_mut("properties")
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            shorten_descriptions(schema.1, max);
        }
    }
    let fits = params.to_string().len() <= MAX_BYTES;
    fits.then_some(params)
        .ok_or_else(|| "its parameters are too many".to_owned())
}

/// Cuts the texts in a schema to `max` bytes. With 0, only the essential keywords remain.
fn shorten_descriptions(schema: &mut Value, max: usize) {
    let Value::Object(fields) = schema else { return };
    if max == 0 {
        fields.retain(|keyword, _| ESSENTIAL.contains(&keyword.as_str()));
    }
    for (keyword, value) in fields {
        match value {
            Value::String(text) if TEXT_KEYWORDS.contains(&keyword.as_str()) => {
                *text = printable(text, max);
            }
            Value::Array(values) => values.iter_mut().for_each(|value| shorten_descriptions(value, max)),
            value => shorten_descriptions(value, max),
        }
    }
}

/// Returns untrusted text, cut to `max` bytes, with control characters replaced by spaces.
pub(crate) fn printable(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if shown.len().saturating_add(c.len_utf8()) > max {
            break;
        }
        shown.push(c);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parameters of an item with one path parameter, without the field `type`.
    fn params_of(item: &Value) -> Value {
        let input = BazaarInput::find(item).unwrap();
        let has_body = input.method().unwrap() == "POST";
        let query = [("limit".to_owned(), "5".to_owned())];
        let mut params = input.params(&["id".to_owned()], has_body, &query).unwrap();
        assert_eq!(params["type"], "object");
        params.as_object_mut().unwrap().remove("type");
        params
    }

    /// In x402 version 2, the schema describes the parameters, and `info` contains the example.
    #[test]
    fn a_schema_and_its_example_become_parameters() {
        let item = json!({"extensions": {"bazaar": {
            "info": {"input": {
                "type": "http", "method": "POST", "bodyType": "form-data", "pathParams": {"id": "%7Bid%7D"},
                "queryParams": {"lang": "de"}, "body": {"text": "Hallo"}, "headers": {"X-Region": "eu", "X-PAYMENT": "..."},
            }},
            "schema": {"properties": {"input": {"properties": {
                "pathParams": {"type": "object", "properties": {"id": {"type": "integer", "description": "A user."}}},
                "queryParams": {"properties": {"lang": {"type": "string", "target": "x", "in": "x"}}},
                "body": {"type": "object", "required": ["text"], "properties": {
                    "text": {"type": "string"}, "image": {"type": "string", "format": "binary"},
                }},
            }}}},
        }}});
        assert_eq!(
            params_of(&item),
            json!({
                "bodyType": "form-data", "required": ["id", "text"],
                "properties": {
                    "id": {"type": "integer", "description": "A user.", "in": "path"},
                    "lang": {"type": "string", "example": "de", "in": "query"},
                    "limit": {"type": "string", "example": "5", "in": "query"},
                    "X-Region": {"type": "string", "example": "eu", "in": "header"},
                    "text": {"type": "string", "example": "Hallo", "in": "body"},
                },
            })
        );
    }

    /// Items of version 1 contain types, descriptions or a schema, in fields with various names.
    #[test]
    fn version_1_input_formats_become_parameters() {
        let v1 = |input: Value| json!({"accepts": [{}, {"outputSchema": {"input": input}}]});
        let rows = [
            (
                json!({"method": "get", "queryParams": {"q": "string", "id": "string"}}),
                json!({"q": {"type": "string", "in": "query"}}),
            ),
            (
                json!({"method": "GET", "query": {"q": {"type": "string", "required": true, "description": "D"}}}),
                json!({"q": {"type": "string", "description": "D", "in": "query"}}),
            ),
            (
                json!({"method": "POST", "bodyFields": {"n": 5, "deep": {"a": 1}}}),
                json!({"n": {"type": "number", "example": 5, "in": "body"},
                       "deep": {"type": "object", "example": {"a": 1}, "in": "body"}}),
            ),
            (
                json!({"method": "POST", "body_type": "multipart", "body": {"type": "object", "properties": {"a": {"type": "string"}}}}),
                json!({"a": {"type": "string", "in": "body"}}),
            ),
            (
                json!({"method": "POST", "bodyType": "text/plain", "body": "Hello"}),
                json!({"body": {"type": "string", "example": "Hello", "in": "body"}}),
            ),
        ];
        for (input, mut expected) in rows {
            let common = json!({"id": {"type": "string", "in": "path"}, "limit": {"type": "string", "example": "5", "in": "query"}});
            expected
                .as_object_mut()
                .unwrap()
                .extend(common.as_object().unwrap().clone());
            let params = params_of(&v1(input.clone()));
            assert_eq!(params["properties"], expected, "{input}");
        }
    }

    /// Names, types and enum values are never cut.
    #[test]
    fn long_parameter_descriptions_are_truncated() {
        let choices: Vec<String> = (0..20).map(|n| format!("choice-{n}")).collect();
        for (fields, most) in [(6, 300), (20, 80), (40, 0)] {
            let property = json!({"type": "string", "description": "ä".repeat(400), "enum": &choices[..2]});
            let body: Map<_, _> = (0..fields).map(|n| (format!("field{n}"), property.clone())).collect();
            let item = json!({"extensions": {"bazaar": {"info": {"input": {"method": "POST", "body": body}}}}});
            let params = params_of(&item);
            assert!(params.to_string().len() <= MAX_BYTES);
            let field = &params["properties"]["field5"];
            assert_eq!(
                (&field["type"], &field["enum"][1]),
                (&json!("string"), &json!("choice-1")),
                "{fields}"
            );
            assert_eq!(
                field["description"].as_str().unwrap_or_default().len(),
                most,
                "{fields}"
            );
        }
    }
}
