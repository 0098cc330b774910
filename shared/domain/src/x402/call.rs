//! The provider call of a payment, as the agent describes it to users and in the decision log.
//!
//! The method and URL determine the operation. Of the other data, only the host of the page to fetch is checked. An
//! approval is for exactly this description, because the fingerprint contains it.

use crate::{Amount, Intent, Network, Operation, Target, Timestamp, ValidationError};
use serde_json::{Map, Value};
use std::borrow::Cow;
use url::Url;

/// The provider call of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRequest {
    /// The HTTP method in upper case.
    pub method: String,
    /// The URL of the provider call.
    pub url: Url,
    /// The unverified hash of the call's body from the agent.
    pub body_hash: Option<String>,
}

impl ProviderRequest {
    /// Returns the pages in the parameters that the operation marks as targets ([`Operation::target_parameters`]). A
    /// page that can't be parsed is returned as text.
    pub(crate) fn targets_in_parameters(&self, operation: &Operation) -> impl Iterator<Item = Result<Target, String>> {
        // Some servers treat `url[]` and `url[0]` as `url`, or ignore the case.
        let is_target = |name: &str| {
            let name = name.split('[').next().unwrap_or_default();
            operation
                .target_parameters()
                .any(|target| target.eq_ignore_ascii_case(name))
        };
        let in_query = self.url.query_pairs();
        let in_query = in_query.filter_map(move |(name, value)| is_target(&name).then_some(value));
        let in_path = operation.target_parameters();
        let in_path = in_path.filter_map(|name| operation.endpoint.parameter_value(name, &self.url).map(Cow::Borrowed));
        let values = in_path.chain(in_query).filter(|value| !value.trim().is_empty());
        values.map(|value| {
            let shown = || value.trim().chars().take(MAX_SHOWN_CHARS).collect();
            Target::parse_parameter(&value).map_err(|_| shown())
        })
    }
}

/// The maximum number of displayed characters of an invalid address: the length of the longest host name.
const MAX_SHOWN_CHARS: usize = 253;

/// Additional data from the agent about a call, which no check uses. Does not contain [`Metadata::TARGET`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Map<String, Value>);

impl Metadata {
    /// The maximum number of fields.
    pub const MAX_FIELDS: usize = 16;
    /// The maximum length of a name, in bytes. Names are readable ASCII.
    pub const MAX_NAME_BYTES: usize = 64;
    /// The maximum size of all metadata as compact JSON, in bytes.
    pub const MAX_BYTES: usize = 2_048;
    /// The field of `metadata` with the page to fetch. It is parsed separately, because policies check it.
    pub const TARGET: &str = "target_url";

    /// Parses the fields of `metadata` except [`Metadata::TARGET`] and null fields. Validation errors have JSON
    /// Pointers that start with `path`.
    pub fn parse(fields: &Map<String, Value>, path: &str) -> Result<Self, Vec<ValidationError>> {
        let said = fields
            .iter()
            .filter(|(name, value)| *name != Self::TARGET && !value.is_null());
        let kept: Map<String, Value> = said.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut errors: Vec<ValidationError> = kept
            .iter()
            .filter_map(|(name, value)| {
                let pointer = name.replace('~', "~0").replace('/', "~1");
                Some(ValidationError::at_path(
                    format!("{path}/{pointer}"),
                    metadata_field_error(name, value)?,
                ))
            })
            .collect();
        if kept.len() > Self::MAX_FIELDS {
            let message = format!("must have at most {} members besides `target_url`", Self::MAX_FIELDS);
            errors.push(ValidationError::at_path(path, message));
        }
        let metadata = Self(kept);
        if metadata.to_json().len() > Self::MAX_BYTES {
            let message = format!("must be at most {} bytes of JSON", Self::MAX_BYTES);
            errors.push(ValidationError::at_path(path, message));
        }
        if errors.is_empty() { Ok(metadata) } else { Err(errors) }
    }

    /// Parses stored metadata; `None` if the text is not valid metadata.
    pub fn from_json(text: &str) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        Self::parse(&fields, "").ok()
    }

    /// Returns the metadata as compact JSON.
    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// Returns the fields, by name.
    pub const fn json_fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the field's validation error. A name similar to `target_url` is rejected, because a misspelled target would
/// not be checked.
fn metadata_field_error(name: &str, value: &Value) -> Option<&'static str> {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if strsim::osa_distance(&letters.to_ascii_lowercase(), "targeturl") <= 2 {
        return Some("is not a field of this request; the target's member is `target_url`");
    }
    let is_name =
        (1..=Metadata::MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_name {
        return Some("must have a name of 1 to 64 ASCII letters, digits and marks");
    }
    match value {
        Value::String(_) | Value::Number(_) => None,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Some("must be a string or a number"),
    }
}

/// The description of a call, which users see with the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDescription {
    /// The method, the URL and the body hash of the provider call.
    pub request: ProviderRequest,
    /// The page that a scrape or crawl operation fetches.
    pub target_url: Option<Url>,
    /// The agent's additional data.
    pub metadata: Metadata,
    /// The catalog's price at the time of the decision; `None` if the call matched no operation.
    pub catalog_price: Option<CatalogPrice>,
}

/// The price of an operation in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogPrice {
    /// The expected price of a call ([`Operation::expected_price`]).
    pub price: Amount,
    /// The maximum price of a call; `None` if the operation can't be paid.
    pub most: Option<Amount>,
}

impl CallDescription {
    /// Creates the description of a call to this operation, without data from an agent.
    pub fn without_agent_data(operation: &Operation) -> Self {
        Self {
            request: ProviderRequest {
                method: operation.method.clone(),
                url: operation.endpoint.example_url(),
                body_hash: None,
            },
            target_url: None,
            metadata: Metadata::default(),
            catalog_price: None,
        }
    }

    /// Creates the description of a payment request's call, with the operation's price at this time.
    pub fn new(intent: &Intent, operation: Option<&Operation>, network: Network, at: Timestamp) -> Self {
        Self {
            request: intent.request.clone(),
            target_url: intent.target.as_ref().map(|target| target.url().clone()),
            metadata: intent.metadata.clone(),
            catalog_price: operation.map(|operation| CatalogPrice {
                price: operation.expected_price(at),
                most: operation
                    .payee_and_max_price(network, at)
                    .ok()
                    .map(|payable| payable.most),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Availability, Category, Endpoint, OperationSlug, OperationUuid};
    use serde_json::json;

    fn read(metadata: &Value) -> Result<String, Vec<String>> {
        let members = metadata.as_object().unwrap();
        let problems =
            |problems: Vec<ValidationError>| -> Vec<String> { problems.into_iter().map(|one| one.path).collect() };
        let metadata = Metadata::parse(members, "/metadata").map_err(problems)?;
        assert_eq!(Metadata::from_json(&metadata.to_json()), Some(metadata.clone()));
        Ok(metadata.to_json())
    }

    #[test]
    fn call_metadata_keeps_only_texts_and_numbers() {
        let given = json!({"target_url": "https://a.example/", "task": "t\n1", "step": 2, "share": 0.5, "none": null});
        assert_eq!(read(&given), Ok(r#"{"share":0.5,"step":2,"task":"t\n1"}"#.to_owned()));
        assert_eq!(read(&json!({})), Ok("{}".to_owned()));
        let wrong = json!({"a/b": true, "c": [1], "d": {"e": 1}});
        assert_eq!(
            read(&wrong).unwrap_err(),
            ["/metadata/a~1b", "/metadata/c", "/metadata/d"]
        );
    }

    #[test]
    fn a_misspelled_target_parameter_is_reported() {
        for name in [
            "targetUrl",
            "target-url",
            "TARGET_URL",
            "taget_url",
            "target_uri",
            "target_urls",
            "targeturl",
        ] {
            assert!(read(&json!({ name: "https://a.example/" })).is_err(), "{name}");
        }
        for name in ["url", "target", "task", "customer_url"] {
            assert!(read(&json!({ name: "https://a.example/" })).is_ok(), "{name}");
        }
    }

    #[test]
    fn call_metadata_names_are_short_printable_ascii() {
        for name in ["", "a b", "\u{202e}key", "kl\u{fc}ger", "a\n", &"x".repeat(65)] {
            assert!(read(&json!({ name: 1 })).is_err(), "{name:?}");
        }
        assert!(read(&json!({ "x".repeat(64): 1, "a/b~c": 2, "__proto__": 3 })).is_ok());
    }

    #[test]
    fn target_urls_are_read_from_declared_parameters() {
        let named = |endpoint: &str, params: Value, url: &str| -> Vec<String> {
            let request = ProviderRequest {
                method: "GET".to_owned(),
                url: Url::parse(&format!("https://a.example{url}")).unwrap(),
                body_hash: None,
            };
            let operation = Operation {
                id: OperationUuid::from_uuid(uuid::Uuid::nil()),
                slug: OperationSlug::parse("a.b").unwrap(),
                availability: Availability::Unverified,
                label: String::new(),
                method: "GET".to_owned(),
                endpoint: Endpoint::parse(&format!("https://a.example{endpoint}")).unwrap(),
                category: Category::Scrape,
                execution: String::new(),
                price_model: String::new(),
                estimated_price: Amount::ZERO,
                max_price: None,
                params,
                fetches_target: None,
                payment: None,
                next: None,
            };
            let hosts = request.targets_in_parameters(&operation).map(|named| match named {
                Ok(target) => target.host().to_owned(),
                Err(unreadable) => format!("unreadable {unreadable}"),
            });
            hosts.collect()
        };
        let by_name = json!({"url": {"type": "string", "target": true}, "q": {"type": "string"}, "n": 1});
        let schema = json!({"type": "object", "properties": {"url": {"format": "uri", "target": true}, "target": {}}});
        let rows: [(&str, &[&str]); 9] = [
            ("/s", &[]),
            ("/s?q=https://c.example&target=https://c.example", &[]),
            ("/s?url=", &[]),
            ("/s?url=https://b.example/x", &["b.example"]),
            ("/s?url=www.b.example", &["www.b.example"]),
            (
                "/s?url=%2F%2Fb.example&URL=C.example:80&url%5B%5D=d.example",
                &["b.example", "c.example", "d.example"],
            ),
            ("/s?url[0]=+http://b.example", &["b.example"]),
            (
                "/s?url=https://b.example%5C@c.example",
                &["unreadable https://b.example\\@c.example"],
            ),
            ("/s?url=https:", &["unreadable https:"]),
        ];
        for (url, expected) in rows {
            for params in [&by_name, &schema] {
                assert_eq!(named("/s", params.clone(), url), expected, "{url}");
            }
            assert_eq!(named("/s", json!({"url": {"target": "true"}}), url), [""; 0], "{url}");
            assert_eq!(named("/s", Value::Null, url), [""; 0], "{url}");
        }
        assert_eq!(
            named("/s/{url}", by_name.clone(), "/s/www.b.example?q=1"),
            ["www.b.example"]
        );
        assert_eq!(named("/s/{q}", by_name, "/s/www.b.example"), [""; 0]);
    }

    #[test]
    fn call_metadata_is_limited_in_size() {
        let of = |count: usize| Value::Object((0..count).map(|n| (format!("m{n}"), json!(n))).collect());
        assert!(read(&of(16)).is_ok());
        assert_eq!(read(&of(17)).unwrap_err(), ["/metadata"]);
        // `{"m":"…"}` is eight bytes longer than the text.
        assert!(read(&json!({"m": "x".repeat(2_040)})).is_ok());
        assert_eq!(read(&json!({"m": "x".repeat(2_041)})).unwrap_err(), ["/metadata"]);
    }
}
