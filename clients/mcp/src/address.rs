//! The request of an operation: its URL with the parameters filled in.
//!
//! Invariant: the request goes to the endpoint's own scheme, host and port. Its path has the endpoint's segments,
//! except for the values of path parameters.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use purser_client::Operation;
use serde_json::{Map, Value};
use url::Url;

/// All characters but the unreserved ones of RFC 3986 §2.3.
const ALL_BUT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The longest URL, in bytes.
const MAX_ADDRESS_BYTES: usize = 8 * 1024;

/// The URL and body of an operation's request.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) url: Url,
    /// The JSON body; `None` if the method has no body.
    pub(crate) body: Option<Vec<u8>>,
}

/// Fills in the path parameters. The other parameters go into the query (GET, HEAD, DELETE) or the JSON body. The error
/// describes what is wrong with the parameters.
pub(crate) fn filled(operation: &Operation, parameters: &Map<String, Value>) -> Result<Filled, String> {
    let unusable = || "the catalog's address of this operation can't be called".to_owned();
    let mut url = Url::parse(&operation.endpoint).map_err(|_| unusable())?;
    let endpoint = url.clone();
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(unusable());
    }
    let mut rest = parameters.clone();
    let segments = endpoint
        .path()
        .split('/')
        .skip(1)
        .map(|segment| match name_of(segment) {
            Some(name) => value_of(&name, rest.remove(&name)),
            None => Ok(segment.to_owned()),
        });
    let path = segments.collect::<Result<Vec<_>, String>>()?.join("/");
    url.set_path(&path);
    let is_same_place = url.origin() == endpoint.origin() && url.path().strip_prefix('/') == Some(path.as_str());
    if !is_same_place {
        return Err(unusable());
    }
    let has_body = !matches!(operation.method.as_str(), "GET" | "HEAD" | "DELETE");
    if !has_body {
        // Hosts with strict schemas send `null` for omitted parameters.
        for (name, value) in rest.iter().filter(|(_, value)| !value.is_null()) {
            append(&mut url, name, value)?;
        }
    }
    if url.as_str().len() > MAX_ADDRESS_BYTES {
        return Err("`parameters` make an address that is too long".to_owned());
    }
    Ok(Filled {
        url,
        body: has_body.then(|| Value::Object(rest).to_string().into_bytes()),
    })
}

/// Returns the names of the path parameters.
pub(crate) fn path_parameters(endpoint: &str) -> Vec<String> {
    let url = Url::parse(endpoint).ok();
    let segments = url.iter().flat_map(|url| url.path().split('/'));
    segments.filter_map(name_of).collect()
}

/// Returns the name in a segment `{name}`. The URL parser has percent-encoded its braces.
fn name_of(segment: &str) -> Option<String> {
    let name = segment.strip_prefix("%7B")?.strip_suffix("%7D")?;
    Some(name.to_owned())
}

/// Encodes a value as one segment of a path.
fn value_of(name: &str, value: Option<Value>) -> Result<String, String> {
    let value = value.ok_or_else(|| format!("`parameters` must have `{name}`, which is part of the address"))?;
    let text =
        scalar(&value).ok_or_else(|| format!("`{name}` is part of the address: it must be a text or a number"))?;
    // Some servers read an encoded slash as two segments.
    if text.is_empty() || text == "." || text == ".." || text.contains(['/', '\\']) {
        return Err(format!(
            "`{name}` is one segment of the address: not empty, no dots alone, no slashes"
        ));
    }
    Ok(utf8_percent_encode(&text, ALL_BUT_UNRESERVED).to_string())
}

fn append(url: &mut Url, name: &str, value: &Value) -> Result<(), String> {
    let wrong =
        || format!("`{name}` goes into the query: it must be a text, a number, true or false, or a list of these");
    let values = match value {
        Value::Array(values) => values.iter().map(scalar).collect::<Option<Vec<_>>>(),
        value => scalar(value).map(|text| vec![text]),
    };
    for value in values.ok_or_else(wrong)? {
        url.query_pairs_mut().append_pair(name, &value);
    }
    Ok(())
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn operation(method: &str, endpoint: &str) -> Operation {
        serde_json::from_value(json!({
            "id": "1aacbf6a-f7b9-58b3-a10f-370da97945f6", "operation_id": "a.b", "availability": "paid_x402",
            "label": "", "method": method, "endpoint": endpoint, "category": "data", "execution": "sync",
            "price_model": "fixed", "estimated_price_units": 1, "max_price_units": null, "params": {}, "payment": null
        }))
        .unwrap()
    }

    fn filled_with(method: &str, endpoint: &str, parameters: &Value) -> Result<(String, String), String> {
        let filled = filled(&operation(method, endpoint), parameters.as_object().unwrap())?;
        let body = filled.body.map(|body| String::from_utf8(body).unwrap());
        Ok((filled.url.to_string(), body.unwrap_or_default()))
    }

    /// The rest goes to the query of a GET request or to the body of a POST request.
    #[test]
    fn parameters_fill_the_path_before_query_or_body() {
        let rows = [
            (
                "GET",
                "https://a.example/v1/{id}/x?k=1",
                json!({"id": "ä b", "q": ["1", 2], "t": true}),
                "https://a.example/v1/%C3%A4%20b/x?k=1&q=1&q=2&t=true",
                "",
            ),
            (
                "POST",
                "https://a.example/{id}",
                json!({"id": 7, "o": {"x": null}}),
                "https://a.example/7",
                r#"{"o":{"x":null}}"#,
            ),
            ("POST", "https://a.example/r", json!({}), "https://a.example/r", "{}"),
            (
                "GET",
                "https://a.example/r",
                json!({"q": null}),
                "https://a.example/r",
                "",
            ),
            (
                "GET",
                "https://a.example/{id}",
                json!({"id": "%2e%2e"}),
                "https://a.example/%252e%252e",
                "",
            ),
            (
                "GET",
                "https://a.example/{id}",
                json!({"id": "@evil.example:1?#"}),
                "https://a.example/%40evil.example%3A1%3F%23",
                "",
            ),
        ];
        for (method, endpoint, parameters, url, body) in rows {
            let expected = Ok((url.to_owned(), body.to_owned()));
            assert_eq!(
                filled_with(method, endpoint, &parameters),
                expected,
                "{endpoint} {parameters}"
            );
        }
    }

    #[test]
    fn no_parameter_leads_elsewhere() {
        for value in [
            json!(".."),
            json!("."),
            json!(""),
            json!("a/b"),
            json!("a\\b"),
            json!(null),
            json!({}),
            json!([1]),
        ] {
            let said = filled_with("GET", "https://a.example/{id}/x", &json!({"id": value}));
            assert!(
                said.as_ref().is_err_and(|said| said.contains("`id`")),
                "{value}: {said:?}"
            );
        }
        assert!(
            filled_with("GET", "https://a.example/{id}", &json!({})).is_err(),
            "missing"
        );
        assert!(
            filled_with("GET", "https://a.example/x", &json!({"o": {"a": 1}})).is_err(),
            "an object in a query"
        );
        assert!(
            filled_with("GET", "https://a.example/x", &json!({"o": "x".repeat(9_000)})).is_err(),
            "too long"
        );
        for endpoint in ["ftp://a.example/x", "https://u:p@a.example/x", "no address"] {
            assert!(filled_with("GET", endpoint, &json!({})).is_err(), "{endpoint}");
        }
    }
}
