//! The request body of a catalog service, parsed strictly. A rejection lists all validation errors.

use purser_api::{
    BodyPath, Field, HttpMethod, Member, Nullable, Price, Schemas, ShownText, Text, ValidationErrors, WEB,
    body::with_description, field,
};
use purser_domain::{
    Address, Amount, Availability, CatalogPayment, Category, Endpoint, Error, Network, NextPricing, Operation,
    OperationSlug, OperationUuid, Result, Service, ServiceId, ServiceSlug, TrustStatus, Url, ValidationError,
    parse_address, parse_web_url,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The maximum number of operations. A DynamoDB item has at most 400 KB. The fixed-length fields of 200 operations take
/// up to 66 KB (330 bytes each, including names), and their delayed changes up to 60 KB. With 192 KiB for all other
/// text, a sixth of the item remains free.
const MAX_OPERATIONS: usize = 200;
const MAX_TEXT_BYTES: usize = 192 * 1024;

const MAX_URL_BYTES: usize = 2_048;

/// The only supported payment scheme (`docs/x402.md` §4).
const SCHEME: &str = "exact";

purser_api::body! {
    /// A complete catalog service. Unknown fields are rejected.
    pub(crate) struct Entry as "InternalServiceBody" {
        /// The service's slug: lower-case letters, digits, `-` and `_`. Unique in the catalog.
        slug: Str<ServiceSlug> = {"example": "lab-weather"},
        name: ShownText<128>,
        description: ShownText<2_048>,
        website: WebAddress,
        logo_url: Option<WebAddress>,
        /// The category: `search`, `scrape`, `ai`, `data`, `infrastructure`, `security`, `finance` or `creative`.
        category: Str<Category>,
        /// The origin of the service's data, such as `curated` or `discovery`.
        source: Text<32>,
        /// The trust status: `listed`, `discovered`, `probe_passed`, `platform_verified` or `disabled`. If absent, the
        /// stored value is kept, or `listed` for a new service.
        trust_status: Option<TrustStatus> = {"example": "listed"},
        /// Whether agents may use the service. If absent, the stored value is kept, or false for a new service.
        curated: Option<bool>,
        operations: Operations,
    }
}

purser_api::body! {
    /// An operation of a service. Probes set the operation's availability. A different payee, a higher price or a new
    /// operation takes effect only after a delay if agents can use the service now or could use the service earlier.
    /// Until then, responses contain the delayed payee and price in `next`.
    pub(crate) struct OperationEntry as "InternalOperationBody" {
        /// The operation's id, unique in the service. Probe results are stored under this id.
        id: Str<OperationUuid>,
        /// The slug that agents send, `<domain>.<action>`. Unique in the service.
        operation_id: Str<OperationSlug> = {"example": "weather.current"},
        label: ShownText<128>,
        method: Str<HttpMethod>,
        /// The provider's URL. Whole path segments can be parameters: `https://api.example/v1/companies/{id}`.
        endpoint: Template,
        /// The operation's category. The values are the same as for a service.
        category: Str<Category>,
        execution: Text<32> = {"example": "sync"},
        price_model: Text<32> = {"example": "fixed"},
        estimated_price_units: Amount,
        /// The maximum price of a call, in micro-USDC. Payments above this price are blocked. If absent, the maximum
        /// for a `fixed` price is `payment.amount_units`, and operations with another price model cannot be paid.
        max_price_units: Option<Amount>,
        /// The parameter descriptor as the provider publishes it: by parameter, or as a JSON schema. `"target": true`
        /// in a parameter's descriptor marks the parameter that contains the URL of the page to fetch. If this
        /// parameter is in the query or path, its host must be the host of `metadata.target_url`. The MCP tool
        /// `call_service` sends a parameter in the path, or at the location in `in` (`query`, `header` or `body`). It
        /// encodes a body as `bodyType` specifies: `json`, `form-data`, `form-urlencoded` or `text`.
        params: Option<Params>,
        /// Whether the agent chooses the page that the operation fetches. If true, the agent's `allowed_domains` apply
        /// to that page. If absent, the stored value is kept. If null, the value is true for operations and services in
        /// the category `scrape`, and for slugs with a word that begins with `scrape`, `scraping` or `crawl`.
        fetches_target: Nullable<bool>,
        /// The payment for calls. Null if calls cannot be paid. If absent, the stored payment is kept. A delayed change
        /// (`next`) is also kept, if `price_model` and `max_price_units` equal the values in `next`.
        payment: Nullable<PaymentEntry>,
    }
}

purser_api::body! {
    /// The payment for each call of an operation: the amount, the token, the network and the payee.
    pub(crate) struct PaymentEntry as "InternalPaymentBody" {
        scheme: Scheme,
        /// The network: `base` or `base-sepolia`.
        network: NetworkName,
        token: Token,
        amount_units: Price,
        /// The address of the provider's wallet. Payments to other payees are blocked. A mixed-case address must have a
        /// valid EIP-55 checksum.
        pay_to: Payee,
    }
}

impl Entry {
    pub(crate) fn parse_within_size_limit(body: &Value) -> Result<Self> {
        let entry = Self::parse(body)?;
        let text_bytes = entry.total_text_bytes();
        let mut errors = ValidationErrors::default();
        if text_bytes > MAX_TEXT_BYTES {
            let message = format!("must hold at most {MAX_TEXT_BYTES} bytes of text in all; these are {text_bytes}");
            errors.add_at(BodyPath::Body, message);
        }
        errors.finish(Some(entry))
    }

    /// Rejects plain HTTP endpoints, except on a test network, because calls carry payments. The error lists
    /// all rejected endpoints.
    pub(crate) fn check_endpoints(&self, network: Network) -> Result<()> {
        let operations = self.operations.0.iter().enumerate();
        let plain = operations.filter(|(_, operation)| !operation.endpoint.0.may_be_paid_on(network));
        let errors: Vec<ValidationError> = plain
            .map(|(index, _)| {
                let message = "must be https: its calls carry payments in the clear";
                ValidationError::at_path(format!("/operations/{index}/endpoint"), message)
            })
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid(errors))
        }
    }

    /// Builds the service that replaces the stored service. `Edit::apply` delays new prices and payees.
    pub(crate) fn into_service(self, id: ServiceId, stored: Option<&Service>) -> Service {
        let operations = self.operations.0.into_iter();
        Service {
            id,
            version: stored.map_or(0, |stored| stored.version),
            slug: self.slug.0,
            name: self.name.0,
            description: self.description.0,
            website: self.website.0,
            logo_url: self.logo_url.map(|url| url.0),
            category: self.category.0,
            source: self.source.0,
            trust_status: self
                .trust_status
                .or(stored.map(|stored| stored.trust_status))
                .unwrap_or(TrustStatus::Listed),
            curated: self.curated.or(stored.map(|stored| stored.curated)).unwrap_or(false),
            history: stored.map(|stored| stored.history).unwrap_or_default(),
            operations: operations.map(|operation| operation.into_operation(stored)).collect(),
        }
    }

    /// Returns the stored size of all variable-length fields, in bytes.
    fn total_text_bytes(&self) -> usize {
        let of_service = [
            self.name.0.len(),
            self.description.0.len(),
            self.website.0.as_str().len(),
            self.logo_url.as_ref().map_or(0, |url| url.0.as_str().len()),
            self.source.0.len(),
        ];
        let of_operations = self.operations.0.iter().flat_map(|operation| {
            [
                operation.operation_id.0.as_str().len(),
                operation.label.0.len(),
                operation.endpoint.0.as_str().len(),
                operation.execution.0.len(),
                operation.price_model.0.len(),
                // An absent `params` is stored as `{}`.
                operation.params.as_ref().map_or(2, |params| params.0.to_string().len()),
            ]
        });
        of_service.into_iter().chain(of_operations).sum()
    }
}

impl OperationEntry {
    fn into_operation(self, stored: Option<&Service>) -> Operation {
        let mut operation = Operation {
            id: self.id.0,
            slug: self.operation_id.0,
            availability: Availability::Unverified,
            label: self.label.0,
            method: self.method.0.0,
            endpoint: self.endpoint.0,
            category: self.category.0,
            execution: self.execution.0,
            price_model: self.price_model.0,
            estimated_price: self.estimated_price_units,
            max_price: self.max_price_units,
            params: self.params.map_or_else(|| json!({}), |params| params.0),
            fetches_target: None,
            next: None,
            payment: None,
        };
        let mut stored = stored.into_iter().flat_map(|stored| &stored.operations);
        let before = stored
            .find(|before| before.id == operation.id && before.probe_fingerprint() == operation.probe_fingerprint());
        operation.fetches_target = match self.fetches_target {
            Nullable::Value(fetches) => Some(fetches),
            Nullable::Null => None,
            // The stored setting stays, because a removal could disable the agents' `allowed_domains`.
            Nullable::Absent => before.and_then(|before| before.fetches_target),
        };
        match self.payment {
            Nullable::Value(payment) => operation.payment = Some(payment.into()),
            Nullable::Null => {}
            // An update without `payment` must not undo a payment from a probe result or a delayed change.
            Nullable::Absent => {
                operation.payment = before.and_then(|before| before.payment.clone());
                let next = before.and_then(|before| before.next.clone());
                let is_written = |next: &NextPricing| {
                    (&next.price_model, next.max_price) == (&operation.price_model, operation.max_price)
                };
                operation.next = next.filter(is_written);
            }
        }
        operation
    }
}

impl From<PaymentEntry> for CatalogPayment {
    fn from(entry: PaymentEntry) -> Self {
        let PaymentEntry {
            scheme: Scheme(()),
            network,
            token: Token(()),
            amount_units,
            pay_to,
        } = entry;
        Self {
            scheme: SCHEME.to_owned(),
            network: network.0,
            amount: amount_units.0,
            pay_to: pay_to.0,
        }
    }
}

/// A service's operations: at most [`MAX_OPERATIONS`], with unique ids and slugs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operations(Vec<OperationEntry>);

impl Member for Operations {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        let values = value.as_array().filter(|values| values.len() <= MAX_OPERATIONS);
        let Some(values) = values else {
            errors.add_at(path, format!("must be an array of at most {MAX_OPERATIONS} operations"));
            return None;
        };
        let (mut ids, mut slugs) = (BTreeSet::new(), BTreeSet::new());
        let mut operations = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let field_path = BodyPath::Entry(&path, index);
            let Some(operation) = OperationEntry::read(value, field_path, errors) else {
                continue;
            };
            if !ids.insert(operation.id.0) {
                errors.add_at(
                    BodyPath::Member(&field_path, "id"),
                    "must not be the id of two operations",
                );
            }
            if !slugs.insert(operation.operation_id.0.clone()) {
                let message = "must not be the slug of two operations";
                errors.add_at(BodyPath::Member(&field_path, "operation_id"), message);
            }
            operations.push(operation);
        }
        Some(Self(operations))
    }

    fn describe(schemas: &mut Schemas) -> Value {
        json!({"type": "array", "items": OperationEntry::describe(schemas), "maxItems": MAX_OPERATIONS})
    }
}

/// A JSON string that is parsed as `T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Str<T>(T);

impl<T: Field> Field for Str<T> {
    fn read(value: &Value) -> Result<Self, String> {
        require_string(value).and_then(|_| <T as Field>::read(value)).map(Self)
    }

    fn schema() -> Value {
        T::schema()
    }
}

fn require_string(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "must be a string".to_owned())
}

field! {
    /// A web address without user name and password, which could disguise the host.
    pub(crate) struct WebAddress(Url):
    |value| {
        parse_web_url(require_string(value)?)
            .filter(|url| url.username().is_empty() && url.password().is_none() && url.host().is_some())
            .filter(|url| url.as_str().len() <= MAX_URL_BYTES)
            .ok_or_else(|| {
                format!("must be an http or https URL of at most {MAX_URL_BYTES} bytes, without user name and backslashes")
            })
    },
    json!({"type": "string", "format": "uri", "pattern": WEB, "maxLength": MAX_URL_BYTES})
}

field! {
    /// A web address that may have path parameters.
    pub(crate) struct Template(Endpoint):
    |value| {
        <WebAddress as Field>::read(value)?;
        Endpoint::parse(require_string(value)?).ok_or_else(|| Endpoint::FORM.to_owned())
    },
    with_description(WebAddress::schema(), &[], json!({"format": "uri-template", "pattern": WEB.replace('~', "~{}")}))
}

field! {
    /// A JSON object that describes an operation's parameters. The field `target` of a parameter must be a boolean.
    pub(crate) struct Params(Value):
    |value| {
        let is_mistaken = |descriptor: &Value| {
            let target = descriptor.get("target");
            target.is_some_and(|target| target.is_string() || target.is_number())
        };
        let by_name = [Some(value), value.get("properties")];
        let mut described = by_name.into_iter().flatten().filter_map(Value::as_object).flat_map(|named| named.values());
        (value.is_object() && !described.any(is_mistaken))
            .then(|| value.clone())
            .ok_or_else(|| "must be an object, and a parameter's `target` true or false".to_owned())
    },
    json!({"type": "object"})
}

field! {
    /// The payment scheme, which must be [`SCHEME`].
    pub(crate) struct Scheme(()):
    |value| (require_string(value)? == SCHEME).then_some(()).ok_or_else(|| "must be `exact`".to_owned()),
    json!({"type": "string", "pattern": format!("^{SCHEME}$"), "example": SCHEME})
}

field! {
    /// The name of a supported network, such as `base-sepolia`.
    pub(crate) struct NetworkName(Network):
    |value| {
        let names = || format!("must be one of: {}", Network::ALL.map(Network::name).join(", "));
        Network::from_name(require_string(value)?).ok_or_else(names)
    },
    json!({
        "type": "string",
        "pattern": format!("^({})$", Network::ALL.map(Network::name).join("|")),
        "example": Network::BaseSepolia.name(),
    })
}

field! {
    /// The symbol of the only supported token, `USDC`.
    pub(crate) struct Token(()):
    |value| {
        let is_known = Network::ALL.map(Network::token_symbol).contains(&require_string(value)?);
        is_known.then_some(()).ok_or_else(|| "must be `USDC`".to_owned())
    },
    json!({"type": "string", "pattern": "^USDC$", "example": "USDC"})
}

field! {
    /// An address that can receive money, so not the token contract's own address.
    pub(crate) struct Payee(Address):
    |value| {
        let address = parse_address(require_string(value)?).map_err(|error| error.to_string())?;
        let is_token = Network::ALL.iter().any(|network| network.token().address == address);
        (!is_token).then_some(address).ok_or_else(|| "must not be the token's own address".to_owned())
    },
    <Address as Field>::schema()
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{ErrorKind, OperatorName, Timestamp};

    const ID: &str = "1aacbf6a-f7b9-58b3-a10f-370da97945f6";
    const PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";

    fn operation() -> Value {
        json!({
            "id": ID,
            "operation_id": "weather.current",
            "label": "Current weather",
            "method": "get",
            "endpoint": "https://lab.example/weather?units=si",
            "category": "data",
            "execution": "sync",
            "price_model": "fixed",
            "estimated_price_units": 10_000,
            "max_price_units": 1_000_000,
            "params": {"city": {"type": "string"}},
            "payment": {
                "scheme": "exact", "network": "base-sepolia", "token": "USDC", "amount_units": 10_000, "pay_to": PAYEE,
            },
        })
    }

    fn body() -> Value {
        json!({
            "slug": "lab",
            "name": "Lab",
            "description": "A laboratory.",
            "website": "https://lab.example/",
            "logo_url": null,
            "category": "data",
            "source": "operator",
            "trust_status": "platform_verified",
            "curated": true,
            "operations": [operation()],
        })
    }

    #[test]
    fn plain_http_endpoints_require_a_test_network() {
        let mut plain = operation();
        plain["endpoint"] = json!("http://lab.example/weather");
        let mut body = body();
        body["operations"] = json!([operation(), plain]);
        body["operations"][1]["id"] = json!("2aacbf6a-f7b9-58b3-a10f-370da97945f6");
        body["operations"][1]["operation_id"] = json!("weather.next");
        let entry = Entry::parse_within_size_limit(&body).unwrap();
        assert!(entry.check_endpoints(Network::BaseSepolia).is_ok());
        let refused = entry.check_endpoints(Network::Base).unwrap_err();
        let ErrorKind::InvalidRequest(problems) = refused.kind() else {
            panic!("{refused:?}")
        };
        assert_eq!(problems[0].path, "/operations/1/endpoint");
    }

    /// Returns the body with `value` at this JSON pointer. `None` removes the field.
    fn with(pointer: &str, value: Option<Value>) -> Value {
        let mut body = body();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => parent.insert(name.to_owned(), value),
            None => parent.remove(name),
        };
        body
    }

    fn problems(body: &Value) -> Vec<ValidationError> {
        match Entry::parse_within_size_limit(body).map_err(|error| match error.kind() {
            ErrorKind::InvalidRequest(problems) | ErrorKind::FieldRequired { problems, .. } => problems.clone(),
            other => panic!("{other:?}"),
        }) {
            Ok(_) => Vec::new(),
            Err(problems) => problems,
        }
    }

    fn check(pointer: &str, value: Option<Value>, ok: bool) {
        let body = with(pointer, value);
        let problems = problems(&body);
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        let expected: &[&str] = if ok { &[] } else { &[pointer] };
        assert_eq!(
            paths,
            expected,
            "{pointer} {}",
            body.pointer(pointer).unwrap_or(&Value::Null)
        );
    }

    fn service(body: &Value, stored: Option<&Service>) -> Service {
        let id = ServiceId::parse(ID).unwrap();
        Entry::parse_within_size_limit(body).unwrap().into_service(id, stored)
    }

    #[test]
    fn a_written_service_is_stored_unchanged() {
        let service = service(&body(), None);
        assert_eq!(service.trust_status, TrustStatus::PlatformVerified);
        assert!(service.curated);
        let operation = &service.operations[0];
        assert_eq!(operation.method, "GET");
        assert_eq!(operation.endpoint.as_str(), "https://lab.example/weather?units=si");
        assert_eq!(operation.availability, Availability::Unverified);
        let payment = operation.payment.as_ref().unwrap();
        assert_eq!(
            (payment.amount.units(), payment.pay_to),
            (10_000, parse_address(PAYEE).unwrap())
        );
    }

    #[test]
    fn omitted_optional_service_fields_have_defaults() {
        let members = ["/trust_status", "/curated", "/logo_url"];
        let of_operation = [
            "/operations/0/params",
            "/operations/0/max_price_units",
            "/operations/0/fetches_target",
            "/operations/0/payment",
        ];
        for pointer in members.into_iter().chain(of_operation) {
            check(pointer, None, true);
            check(pointer, Some(Value::Null), true);
        }
        let mut least = body();
        for name in ["trust_status", "curated", "logo_url"] {
            least.as_object_mut().unwrap().remove(name);
        }
        least["operations"] = json!([]);
        let service = service(&least, None);
        assert_eq!((service.trust_status, service.curated), (TrustStatus::Listed, false));
    }

    #[test]
    fn each_service_field_is_parsed_strictly() {
        let long = |n: usize| json!("x".repeat(n));
        let op = |name: &str| format!("/operations/0/{name}");
        let pay = |name: &str| format!("/operations/0/payment/{name}");
        for name in [
            "slug",
            "name",
            "description",
            "website",
            "category",
            "source",
            "operations",
        ] {
            check(&format!("/{name}"), None, false);
            check(&format!("/{name}"), Some(Value::Null), false);
            check(&format!("/{name}"), Some(json!(7)), false);
        }
        for name in [
            "id",
            "operation_id",
            "label",
            "method",
            "endpoint",
            "category",
            "execution",
            "price_model",
            "estimated_price_units",
        ] {
            check(&op(name), None, false);
            check(&op(name), Some(json!([])), false);
        }
        for name in ["scheme", "network", "token", "amount_units", "pay_to"] {
            check(&pay(name), None, false);
            check(&pay(name), Some(json!({})), false);
        }
        let rows: Vec<(String, Value, bool)> = vec![
            ("/slug".into(), json!("Lab"), false),
            ("/slug".into(), json!("a.b"), false),
            ("/name".into(), long(128), true),
            ("/name".into(), long(129), false),
            ("/name".into(), json!("a\nb"), false),
            ("/description".into(), long(2_048), true),
            ("/description".into(), long(2_049), false),
            ("/website".into(), json!("ftp://lab.example/"), false),
            ("/website".into(), json!("https://user@lab.example/"), false),
            ("/website".into(), json!("https://:secret@lab.example/"), false),
            ("/website".into(), json!("https://lab.example\\@evil.test/"), false),
            ("/website".into(), json!(" https://lab.example/"), false),
            ("/logo_url".into(), json!("data:image/png;base64,AA=="), false),
            ("/logo_url".into(), json!("https://lab.example/logo.png"), true),
            ("/category".into(), json!("weather"), false),
            ("/trust_status".into(), json!("verified"), false),
            ("/trust_status".into(), json!("disabled"), true),
            ("/curated".into(), json!("true"), false),
            ("/availability".into(), json!("paid_x402"), false),
            ("/id".into(), json!(ID), false),
            ("/operations".into(), json!({}), false),
            (op("id"), json!("1"), false),
            (op("operation_id"), json!("weather"), false),
            (op("availability"), json!("paid_x402"), false),
            (op("method"), json!("GET /"), false),
            (op("method"), json!(""), false),
            (op("endpoint"), json!("//lab.example/"), false),
            (op("endpoint"), json!("https://u:p@lab.example/"), false),
            (op("endpoint"), json!("https://lab.example/v1/{id}"), true),
            (op("endpoint"), json!("https://lab.example/v1/x-{id}"), false),
            (op("fetches_target"), json!(true), true),
            (op("fetches_target"), json!("yes"), false),
            (
                op("endpoint"),
                json!(format!("https://lab.example/{}", "x".repeat(2_028))),
                true,
            ),
            (
                op("endpoint"),
                json!(format!("https://lab.example/{}", "x".repeat(2_029))),
                false,
            ),
            (op("estimated_price_units"), json!(0), true),
            (op("estimated_price_units"), json!(-1), false),
            (op("estimated_price_units"), json!(1.5), false),
            (op("estimated_price_units"), json!("10000"), false),
            (op("max_price_units"), json!(Amount::MAX.units()), true),
            (op("max_price_units"), json!(Amount::MAX.units() + 1), false),
            (op("params"), json!([]), false),
            (
                op("params"),
                json!({"url": {"target": true}, "target": {}, "n": 1}),
                true,
            ),
            (
                op("params"),
                json!({"properties": {"url": {"target": true}, "target": {}}}),
                true,
            ),
            (op("params"), json!({"url": {"target": "true"}}), false),
            (op("params"), json!({"properties": {"url": {"target": 1}}}), false),
            (op("payment"), json!("exact"), false),
            (pay("scheme"), json!("upto"), false),
            (pay("network"), json!("eip155:84532"), false),
            (pay("network"), json!("base"), true),
            (pay("token"), json!("EURC"), false),
            (pay("amount_units"), json!(0), false),
            (pay("asset"), json!(PAYEE), false),
            (
                pay("pay_to"),
                json!("0x3c44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
                false,
            ),
            (pay("pay_to"), json!(PAYEE.to_lowercase()), true),
            (
                pay("pay_to"),
                json!("0x0000000000000000000000000000000000000000"),
                false,
            ),
            (pay("pay_to"), json!(Network::Base.token().address.to_string()), false),
        ];
        for (pointer, value, ok) in rows {
            check(&pointer, Some(value), ok);
        }
    }

    #[test]
    fn all_validation_errors_of_a_service_are_returned_together() {
        let mut wrong = body();
        wrong["nmae"] = json!("Lab");
        wrong["slug"] = json!("!");
        let mut second = operation();
        second["payment"]["pay_to"] = json!("0x1");
        second["label"] = Value::Null;
        wrong["operations"] = json!([operation(), operation(), second, 7]);
        let problems = problems(&wrong);
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/nmae",
                "/operations/1/id",
                "/operations/1/operation_id",
                "/operations/2/label",
                "/operations/2/payment/pay_to",
                "/operations/3",
                "/slug",
            ]
        );
    }

    #[test]
    fn a_service_has_a_maximum_size() {
        let operations = |count: u32, params: usize| -> Value {
            let numbered = |n: u32| {
                let mut operation = operation();
                operation["id"] = json!(format!("00000000-0000-0000-0000-{n:012}"));
                operation["operation_id"] = json!(format!("weather.n{n}"));
                operation["params"] = json!({ "x": "y".repeat(params) });
                operation
            };
            with("/operations", Some((0..count).map(numbered).collect()))
        };
        assert_eq!(problems(&operations(200, 800)), []);
        assert_eq!(problems(&operations(201, 0))[0].path, "/operations");
        assert_eq!(problems(&operations(200, 1_000))[0].path, "");
    }

    /// A null payment or a new endpoint removes the stored payment.
    #[test]
    fn omitted_payment_fields_keep_the_stored_payment() {
        let pointer = "/operations/0/payment";
        let stored = service(&body(), None);
        let pinned = stored.operations[0].payment.clone();
        assert_eq!(
            service(&with(pointer, None), Some(&stored)).operations[0].payment,
            pinned
        );
        assert_eq!(service(&with(pointer, None), None).operations[0].payment, None);
        let unpinned = with(pointer, Some(Value::Null));
        assert_eq!(service(&unpinned, Some(&stored)).operations[0].payment, None);
        let mut moved = with(pointer, None);
        moved["operations"][0]["endpoint"] = json!("https://elsewhere.example/");
        assert_eq!(
            service(&moved, Some(&stored)).operations[0].payment,
            None,
            "another address is another payee's"
        );
    }

    /// A write with the current payment or maximum price drops the delayed change.
    #[test]
    fn an_operation_update_that_omits_payment_keeps_the_delayed_pricing() {
        let mut stored = service(&body(), None);
        let operation = &mut stored.operations[0];
        let max = operation.max_price.replace(Amount::ZERO);
        let payment = CatalogPayment {
            pay_to: Address::repeat_byte(9),
            ..operation.payment.clone().unwrap()
        };
        operation.next = Some(NextPricing {
            price_model: "fixed".to_owned(),
            max_price: max,
            payment,
            from: Timestamp::MAX,
            by: OperatorName::parse("ada").unwrap(),
        });
        let present = stored.operations[0].payment.clone();
        let silent = with("/operations/0/payment", None);
        let kept = service(&silent, Some(&stored)).operations.remove(0);
        assert_eq!((kept.next, kept.payment), (stored.operations[0].next.clone(), present));
        let mut as_shown = silent;
        as_shown["operations"][0]["max_price_units"] = json!(0);
        assert_eq!(service(&as_shown, Some(&stored)).operations[0].next, None);
        assert_eq!(service(&body(), Some(&stored)).operations[0].next, None);
    }

    #[test]
    fn an_update_that_omits_fetches_target_keeps_the_stored_value() {
        let pointer = "/operations/0/fetches_target";
        let said =
            |value, stored: Option<&Service>| service(&with(pointer, value), stored).operations[0].fetches_target;
        let stored = service(&with(pointer, Some(json!(true))), None);
        assert_eq!(said(None, None), None);
        assert_eq!(said(None, Some(&stored)), Some(true));
        assert_eq!(said(Some(json!(false)), Some(&stored)), Some(false));
        assert_eq!(said(Some(Value::Null), Some(&stored)), None);
    }

    #[test]
    fn an_update_that_omits_trust_status_or_curated_keeps_the_stored_value() {
        let stored = Service {
            trust_status: TrustStatus::Disabled,
            curated: true,
            ..service(&body(), None)
        };
        let mut silent = body();
        silent.as_object_mut().unwrap().remove("trust_status");
        silent.as_object_mut().unwrap().remove("curated");
        let kept = service(&silent, Some(&stored));
        assert_eq!((kept.trust_status, kept.curated), (TrustStatus::Disabled, true));
        let changed = service(&with("/curated", Some(json!(false))), Some(&stored));
        assert_eq!(
            (changed.trust_status, changed.curated),
            (TrustStatus::PlatformVerified, false)
        );
    }
}
