//! Builds the request to an operation: the URL with the parameters filled in, the headers and the body.
//!
//! Invariant: the request goes to the endpoint's own scheme, host and port. No parameter sets a header that concerns
//! the connection, the body, the payment or credentials.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use purser_client::Operation;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use url::{Url, form_urlencoded};

/// All characters except the unreserved characters (RFC 3986 §2.3).
const ALL_BUT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The maximum length of a URL, in bytes.
const MAX_ADDRESS_BYTES: usize = 8 * 1024;
/// Headers that parameters cannot set, because they concern the connection, the body, the payment or credentials.
const OWN_HEADERS: [&str; 16] = [
    "accept-encoding",
    "authorization",
    "connection",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "origin",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
];
const OWN_PREFIXES: [&str; 7] = [
    "access-control-",
    "content-",
    "payment-",
    "proxy-",
    "sec-",
    "x-forwarded-",
    "x-payment",
];

/// The URL, the headers and the body of a request to an operation.
#[derive(Debug)]
pub(crate) struct FilledRequest {
    pub(crate) url: Url,
    /// The headers from parameters, and the content type of the body.
    pub(crate) headers: HeaderMap,
    /// The body. `None` if the method has no body.
    pub(crate) body: Option<Vec<u8>>,
}

/// Returns whether a parameter may set this header.
pub fn is_parameter_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    HeaderName::from_bytes(name.as_bytes()).is_ok()
        && !OWN_HEADERS.contains(&name.as_str())
        && !OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Fills the parameters into an operation's request. The error describes the invalid parameter.
pub(crate) fn fill_address(operation: &Operation, parameters: &Map<String, Value>) -> Result<FilledRequest, String> {
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
        .map(|segment| match parameter_name(segment) {
            Some(name) => path_value(&name, rest.remove(&name)),
            None => Ok(segment.to_owned()),
        });
    let path = segments.collect::<Result<Vec<_>, String>>()?.join("/");
    url.set_path(&path);
    let is_same_place = url.origin() == endpoint.origin() && url.path().strip_prefix('/') == Some(path.as_str());
    if !is_same_place {
        return Err(unusable());
    }
    let has_body = !matches!(operation.method.as_str(), "GET" | "HEAD" | "DELETE");
    let mut headers = HeaderMap::new();
    let mut fields = Map::new();
    for (name, value) in rest {
        match parameter_location(&operation.params, &name) {
            // Hosts with strict schemas send `null` for parameters that the model omitted.
            Some("query" | "header") if value.is_null() => {}
            Some("query") => append_query(&mut url, &name, &value)?,
            Some("header") => {
                let (name, value) = header(&name, &value)?;
                headers.insert(name, value);
            }
            _ if has_body => {
                fields.insert(name, value);
            }
            _ if value.is_null() => {}
            _ => append_query(&mut url, &name, &value)?,
        }
    }
    if url.as_str().len() > MAX_ADDRESS_BYTES {
        return Err("`parameters` make an address that is too long".to_owned());
    }
    let body_type = operation.params.get("bodyType").and_then(Value::as_str);
    let body = has_body.then(|| encode_body(body_type, fields)).transpose()?;
    let body = body.map(|(kind, body)| {
        headers.insert(CONTENT_TYPE, kind);
        body
    });
    Ok(FilledRequest { url, headers, body })
}

/// Returns a parameter's location, the field `in` of the description.
fn parameter_location<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    let by_name = [params.get("properties"), Some(params)];
    by_name
        .into_iter()
        .flatten()
        .find_map(|described| described.get(name)?.get("in")?.as_str())
}

fn header(name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), String> {
    let known = HeaderName::from_bytes(name.as_bytes())
        .ok()
        .filter(|_| is_parameter_header(name));
    let known = known.ok_or_else(|| format!("the catalog names the header `{name}`, which no parameter sets"))?;
    let text = scalar(value).and_then(|text| HeaderValue::from_str(&text).ok());
    let wrong = || format!("`{name}` goes into a header: it must be a number or a text of visible ASCII characters");
    Ok((known, text.ok_or_else(wrong)?))
}

/// Encodes the fields of a body. Returns the content type and the body.
fn encode_body(body_type: Option<&str>, mut fields: Map<String, Value>) -> Result<(HeaderValue, Vec<u8>), String> {
    match body_type {
        Some("text") => {
            let Some(Value::String(text)) = fields.remove("body").filter(|_| fields.is_empty()) else {
                return Err("the body of this operation is a text: `parameters` must have it as `body`".to_owned());
            };
            Ok((HeaderValue::from_static("text/plain; charset=utf-8"), text.into_bytes()))
        }
        Some("form-urlencoded") => {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(form_fields(&fields)?);
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            Ok((kind, form.finish().into_bytes()))
        }
        Some("form-data") => multipart(&form_fields(&fields)?),
        _ => {
            let json = Value::Object(fields).to_string();
            Ok((HeaderValue::from_static("application/json"), json.into_bytes()))
        }
    }
}

/// Returns the fields of a form. A list becomes one field for each value.
fn form_fields(fields: &Map<String, Value>) -> Result<Vec<(&str, String)>, String> {
    let mut all = Vec::new();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let values = scalars(value).ok_or_else(|| {
            format!("`{name}` goes into a form: it must be a text, a number, true or false, or a list of these")
        })?;
        all.extend(values.into_iter().map(|value| (name.as_str(), value)));
    }
    Ok(all)
}

/// Encodes a form as `multipart/form-data` (RFC 7578). A repeated call has the same boundary and body.
fn multipart(fields: &[(&str, String)]) -> Result<(HeaderValue, Vec<u8>), String> {
    let mut hasher = DefaultHasher::new();
    let boundary = loop {
        fields.hash(&mut hasher);
        let boundary = format!("purser-{:016x}", hasher.finish());
        if !fields.iter().any(|(_, value)| value.contains(&boundary)) {
            break boundary;
        }
    };
    let parts = fields.iter().map(|(name, value)| {
        // Escapes the name as browsers do (HTML Standard, "multipart/form-data encoding algorithm").
        let name = name.replace('\r', "%0D").replace('\n', "%0A").replace('"', "%22");
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    });
    let body = parts
        .chain([format!("--{boundary}--\r\n")])
        .collect::<Vec<_>>()
        .concat();
    let kind = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}"));
    Ok((kind.map_err(|error| error.to_string())?, body.into_bytes()))
}

/// Returns the names of the path parameters in an endpoint.
pub(crate) fn path_parameters(endpoint: &str) -> Vec<String> {
    let url = Url::parse(endpoint).ok();
    let segments = url.iter().flat_map(|url| url.path().split('/'));
    segments.filter_map(parameter_name).collect()
}

/// Returns the name in a path segment `{name}`, whose braces the URL parser has percent-encoded.
fn parameter_name(segment: &str) -> Option<String> {
    let name = segment.strip_prefix("%7B")?.strip_suffix("%7D")?;
    Some(name.to_owned())
}

/// Encodes a value as one path segment.
fn path_value(name: &str, value: Option<Value>) -> Result<String, String> {
    let value = value.ok_or_else(|| format!("`parameters` must have `{name}`, which is part of the address"))?;
    let text =
        scalar(&value).ok_or_else(|| format!("`{name}` is part of the address: it must be a text or a number"))?;
    // Some servers treat an encoded slash as a path separator.
    if text.is_empty() || text == "." || text == ".." || text.contains(['/', '\\']) {
        return Err(format!(
            "`{name}` is one segment of the address: not empty, no dots alone, no slashes"
        ));
    }
    Ok(utf8_percent_encode(&text, ALL_BUT_UNRESERVED).to_string())
}

fn append_query(url: &mut Url, name: &str, value: &Value) -> Result<(), String> {
    let wrong =
        || format!("`{name}` goes into the query: it must be a text, a number, true or false, or a list of these");
    for value in scalars(value).ok_or_else(wrong)? {
        url.query_pairs_mut().append_pair(name, &value);
    }
    Ok(())
}

fn scalars(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(values) => values.iter().map(scalar).collect(),
        value => scalar(value).map(|text| vec![text]),
    }
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
        let filled = fill_address(&operation(method, endpoint), parameters.as_object().unwrap())?;
        let body = filled.body.map(|body| String::from_utf8(body).unwrap());
        Ok((filled.url.to_string(), body.unwrap_or_default()))
    }

    #[test]
    fn path_parameters_are_filled_before_query_and_body() {
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
    fn parameters_are_sent_at_the_place_that_the_catalog_names() {
        let call = |body_type: &str, parameters: Value| {
            let mut operation = operation("POST", "https://a.example/r");
            operation.params = json!({
                "bodyType": body_type, "required": [],
                "properties": {"q": {"in": "query"}, "X-Region": {"in": "header"}, "Host": {"in": "header"}},
            });
            fill_address(&operation, parameters.as_object().unwrap())
        };
        let sent = |body_type: &str, parameters: Value| {
            let filled = call(body_type, parameters).unwrap();
            let kind = filled.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
            assert_eq!(
                filled
                    .headers
                    .get("x-region")
                    .map_or("", |value| value.to_str().unwrap()),
                "eu"
            );
            assert_eq!(filled.url.as_str(), "https://a.example/r?q=1");
            (kind, String::from_utf8(filled.body.unwrap()).unwrap())
        };
        let with = |field: &str, value: Value| {
            let mut parameters = json!({"q": 1, "X-Region": "eu"});
            parameters[field] = value;
            parameters
        };
        let row = |kind: &str, body: &str| (kind.to_owned(), body.to_owned());
        assert_eq!(
            sent("json", with("a", json!([1]))),
            row("application/json", r#"{"a":[1]}"#)
        );
        assert_eq!(
            sent("form-urlencoded", with("ä b", json!(["1&", true]))),
            row("application/x-www-form-urlencoded", "%C3%A4+b=1%26&%C3%A4+b=true")
        );
        assert_eq!(
            sent("text", with("body", json!("Grüße"))),
            row("text/plain; charset=utf-8", "Grüße")
        );
        let (kind, body) = sent("form-data", with("a\"\r\n", json!("1\r\n--purser")));
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        assert_eq!(
            body,
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"a%22%0D%0A\"\r\n\r\n1\r\n--purser\r\n--{boundary}--\r\n"
            )
        );
        assert_eq!(
            sent("form-data", with("a\"\r\n", json!("1\r\n--purser"))),
            (kind.clone(), body),
            "repeated"
        );
        for (body_type, parameters, said) in [
            ("json", json!({"Host": "evil.example"}), "`Host`"),
            ("json", json!({"X-Region": "a\r\nHost: b"}), "`X-Region`"),
            ("form-data", json!({"a": {"b": 1}}), "`a`"),
            ("text", json!({"text": "a"}), "`body`"),
            ("text", json!({"body": "a", "more": "b"}), "`body`"),
        ] {
            let error = call(body_type, parameters).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn parameters_cannot_set_request_headers_of_the_client() {
        for name in [
            "Host",
            "Content-Type",
            "Content-Length",
            "X-PAYMENT",
            "Payment-Signature",
            "Authorization",
            "a b",
            "",
        ] {
            assert!(!is_parameter_header(name), "{name}");
        }
        for name in ["Accept", "Accept-Language", "X-API-Version"] {
            assert!(is_parameter_header(name), "{name}");
        }
    }

    #[test]
    fn parameters_cannot_change_the_host_or_path_of_a_call() {
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
