//! An entry of the catalog as an operator writes it: read strictly, every problem named at once.
//!
//! Agents pay by what is written here, so nothing is guessed: a field that is not known is refused by name, amounts are
//! integers, the payee is an address that money may be sent to, and every address is one that all readers understand
//! alike.

use purser_domain::{
    Amount, Availability, CatalogPayment, Category, Endpoint, Error, Fields, Network, Operation, OperationSlug,
    OperationUuid, Problem, Result, Service, ServiceId, ServiceSlug, TrustStatus, Url, parse_address, parse_web_url,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// An item of DynamoDB holds 400 KB. Of these, 200 operations take up to 66 KB for what has a fixed length: each 330
/// bytes, names included. 192 KiB for everything else leave a third free.
const MAX_OPERATIONS: usize = 200;
const MAX_TEXT_BYTES: usize = 192 * 1024;

const MAX_NAME_BYTES: usize = 128;
const MAX_DESCRIPTION_BYTES: usize = 2_048;
const MAX_WORD_BYTES: usize = 32;
const MAX_URL_BYTES: usize = 2_048;

/// The one scheme that is paid (`docs/x402.md` §4).
const SCHEME: &str = "exact";

/// What an operator writes of a service.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    slug: ServiceSlug,
    name: String,
    description: String,
    website: Url,
    logo_url: Option<Url>,
    category: Category,
    source: String,
    /// `None`: as it is; of a new service `listed`.
    trust_status: Option<TrustStatus>,
    /// `None`: as it is; of a new service `false`.
    curated: Option<bool>,
    operations: Vec<OperationEntry>,
}

/// What an operator writes of an operation.
#[derive(Clone, Debug)]
struct OperationEntry {
    id: OperationUuid,
    slug: OperationSlug,
    label: String,
    method: String,
    endpoint: Endpoint,
    category: Category,
    execution: String,
    price_model: String,
    estimated_price: Amount,
    max_price: Option<Amount>,
    params: Value,
    fetches_target: FetchesEntry,
    payment: PaymentEntry,
}

/// What an operator says of whether an operation fetches a target. As with a payment, an entry that is written again
/// must not take a protection away that it does not name.
#[derive(Clone, Copy, Debug)]
enum FetchesEntry {
    /// Nothing: what the catalog has is kept.
    Unsaid,
    /// This, or that category and slug say it.
    Said(Option<bool>),
}

/// What an operator says of an operation's payment.
#[derive(Clone, Debug)]
enum PaymentEntry {
    /// Nothing: what the catalog has is kept, such as what a probe filled in. An entry that is written again from where
    /// it was first written must not take a pin away.
    Unsaid,
    /// This, or that there is none.
    Said(Option<CatalogPayment>),
}

impl Entry {
    /// Reads a body; 400 with everything that is wrong with it.
    pub(crate) fn parse(body: &Value) -> Result<Self> {
        let mut reader = Reader::of(body, "").map_err(|problem| Error::invalid(vec![problem]))?;
        let entry = reader.entry();
        reader.fields.finish_body()?;
        // Unreachable: a member that is absent or wrong left a problem.
        let entry = entry.ok_or_else(|| Error::internal("reading an entry", "it is incomplete"))?;
        let text_bytes = entry.text_bytes();
        if text_bytes > MAX_TEXT_BYTES {
            let message = format!("must hold at most {MAX_TEXT_BYTES} bytes of text in all; these are {text_bytes}");
            return Err(Error::invalid(vec![Problem::at("", message)]));
        }
        Ok(entry)
    }

    /// The service that results, in place of the stored one.
    pub(crate) fn into_service(self, id: ServiceId, stored: Option<&Service>) -> Service {
        let operations = self.operations.into_iter();
        Service {
            id,
            version: stored.map_or(0, |stored| stored.version),
            slug: self.slug,
            name: self.name,
            description: self.description,
            website: self.website,
            logo_url: self.logo_url,
            category: self.category,
            source: self.source,
            trust_status: self
                .trust_status
                .or(stored.map(|stored| stored.trust_status))
                .unwrap_or(TrustStatus::Listed),
            curated: self.curated.or(stored.map(|stored| stored.curated)).unwrap_or(false),
            operations: operations.map(|operation| operation.into_operation(stored)).collect(),
        }
    }

    /// The length of everything that has no fixed length, as it is stored.
    fn text_bytes(&self) -> usize {
        let of_service = [
            self.name.len(),
            self.description.len(),
            self.website.as_str().len(),
            self.logo_url.as_ref().map_or(0, |url| url.as_str().len()),
            self.source.len(),
        ];
        let of_operations = self.operations.iter().flat_map(|operation| {
            [
                operation.slug.as_str().len(),
                operation.label.len(),
                operation.endpoint.as_str().len(),
                operation.execution.len(),
                operation.price_model.len(),
                operation.params.to_string().len(),
            ]
        });
        of_service.into_iter().chain(of_operations).sum()
    }
}

impl OperationEntry {
    /// The operation that results. What was seen of it stays as long as it is called as before.
    fn into_operation(self, stored: Option<&Service>) -> Operation {
        let mut operation = Operation {
            id: self.id,
            slug: self.slug,
            availability: Availability::Unverified,
            label: self.label,
            method: self.method,
            endpoint: self.endpoint,
            category: self.category,
            execution: self.execution,
            price_model: self.price_model,
            estimated_price: self.estimated_price,
            max_price: self.max_price,
            params: self.params,
            fetches_target: None,
            payment: None,
        };
        let mut stored = stored.into_iter().flat_map(|stored| &stored.operations);
        let before = stored.find(|before| before.id == operation.id && before.target() == operation.target());
        if let Some(before) = before {
            operation.availability = before.availability;
        }
        operation.fetches_target = match self.fetches_target {
            FetchesEntry::Said(fetches) => fetches,
            FetchesEntry::Unsaid => before.and_then(|before| before.fetches_target),
        };
        operation.payment = match self.payment {
            PaymentEntry::Said(payment) => payment,
            PaymentEntry::Unsaid => before.and_then(|before| before.payment.clone()),
        };
        operation
    }
}

/// Reads the members of one object of the body.
struct Reader<'a> {
    fields: Fields<'a>,
    value: &'a Value,
}

impl<'a> Reader<'a> {
    fn of(value: &'a Value, path: &str) -> Result<Self, Problem> {
        let fields = Fields::of(value, path.to_owned())?;
        Ok(Self { fields, value })
    }

    fn entry(&mut self) -> Option<Entry> {
        self.fields.refuse_unknown(&[
            "slug",
            "name",
            "description",
            "website",
            "logo_url",
            "category",
            "source",
            "trust_status",
            "curated",
            "operations",
        ]);
        let slug = self.required("slug", |text| ServiceSlug::parse(text).ok_or(ServiceSlug::FORM));
        let name = self.text("name", MAX_NAME_BYTES);
        let description = self.text("description", MAX_DESCRIPTION_BYTES);
        let website = self.required("website", web_address);
        let logo_url = self.fields.read("logo_url", |value| of_text(value, web_address));
        let category = self.category();
        let source = self.text("source", MAX_WORD_BYTES);
        let trust_status = self.fields.read("trust_status", |value| {
            let named = value.as_str().and_then(TrustStatus::from_name);
            named.ok_or_else(TrustStatus::choices)
        });
        let curated = self
            .fields
            .read("curated", |value| value.as_bool().ok_or("must be true or false"));
        let operations = self.operations();
        Some(Entry {
            slug: slug?,
            name: name?,
            description: description?,
            website: website?,
            logo_url,
            category: category?,
            source: source?,
            trust_status,
            curated,
            operations: operations?,
        })
    }

    fn operations(&mut self) -> Option<Vec<OperationEntry>> {
        let form = || format!("must be an array of at most {MAX_OPERATIONS} operations");
        self.fields.require("operations");
        let values = self.fields.read("operations", |value| {
            let values = value.as_array().filter(|values| values.len() <= MAX_OPERATIONS);
            values.ok_or_else(form)
        })?;
        let path = self.fields.path_of("operations");
        let (mut ids, mut slugs) = (BTreeSet::new(), BTreeSet::new());
        let mut operations = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            let mut reader = match Self::of(value, &format!("{path}/{index}")) {
                Ok(reader) => reader,
                Err(problem) => {
                    self.fields.extend([problem]);
                    continue;
                }
            };
            let operation = reader.operation();
            if let Some(operation) = &operation {
                if !ids.insert(operation.id) {
                    reader.fields.wrong("id", "must not be the id of two operations");
                }
                if !slugs.insert(operation.slug.clone()) {
                    reader
                        .fields
                        .wrong("operation_id", "must not be the slug of two operations");
                }
            }
            operations.extend(operation);
            self.fields.adopt(reader.fields);
        }
        Some(operations)
    }

    fn operation(&mut self) -> Option<OperationEntry> {
        self.fields.refuse_unknown(&[
            "id",
            "operation_id",
            "label",
            "method",
            "endpoint",
            "category",
            "execution",
            "price_model",
            "estimated_price_units",
            "max_price_units",
            "params",
            "fetches_target",
            "payment",
        ]);
        let id = self.required("id", |text| OperationUuid::parse(text).ok_or("must be a UUID"));
        let slug = self.required("operation_id", |text| {
            OperationSlug::parse(text).ok_or(OperationSlug::FORM)
        });
        let label = self.text("label", MAX_NAME_BYTES);
        let method = self.required("method", |text| {
            let is_method = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_method
                .then(|| text.to_ascii_uppercase())
                .ok_or("must be an HTTP method")
        });
        let endpoint = self.required("endpoint", endpoint);
        let category = self.category();
        let execution = self.text("execution", MAX_WORD_BYTES);
        let price_model = self.text("price_model", MAX_WORD_BYTES);
        self.fields.require("estimated_price_units");
        let estimated_price = self.fields.read("estimated_price_units", |value| units(value, 0));
        let max_price = self.fields.read("max_price_units", |value| units(value, 0));
        let params = self.fields.read("params", |value| {
            value.is_object().then(|| value.clone()).ok_or("must be an object")
        });
        let fetches_target = self.fetches_target();
        let payment = self.payment();
        Some(OperationEntry {
            id: id?,
            slug: slug?,
            label: label?,
            method: method?,
            endpoint: endpoint?,
            category: category?,
            execution: execution?,
            price_model: price_model?,
            estimated_price: estimated_price?,
            max_price,
            params: params.unwrap_or_else(|| json!({})),
            fetches_target,
            payment: payment?,
        })
    }

    /// Absent and `null` are two things here: see [`FetchesEntry`].
    fn fetches_target(&mut self) -> FetchesEntry {
        if self.value.get("fetches_target").is_none() {
            return FetchesEntry::Unsaid;
        }
        let said = self
            .fields
            .read("fetches_target", |value| value.as_bool().ok_or("must be true or false"));
        FetchesEntry::Said(said)
    }

    /// Absent and `null` are two things here: see [`PaymentEntry`].
    fn payment(&mut self) -> Option<PaymentEntry> {
        let Some(value) = self.fields.get("payment") else {
            let said = self.value.get("payment").is_some();
            return Some(if said {
                PaymentEntry::Said(None)
            } else {
                PaymentEntry::Unsaid
            });
        };
        let payment = match Self::of(value, &self.fields.path_of("payment")) {
            Ok(mut reader) => {
                let payment = reader.catalog_payment();
                self.fields.adopt(reader.fields);
                payment
            }
            Err(problem) => {
                self.fields.extend([problem]);
                None
            }
        };
        payment.map(|payment| PaymentEntry::Said(Some(payment)))
    }

    fn catalog_payment(&mut self) -> Option<CatalogPayment> {
        self.fields
            .refuse_unknown(&["scheme", "network", "token", "amount_units", "pay_to"]);
        let scheme = self.required("scheme", |text| {
            (text == SCHEME).then(|| text.to_owned()).ok_or("must be `exact`")
        });
        let network = self.required("network", |text| {
            Network::from_name(text)
                .ok_or_else(|| format!("must be one of: {}", Network::ALL.map(Network::name).join(", ")))
        });
        self.required("token", |text| {
            let tokens = Network::ALL.map(Network::token_symbol);
            tokens.contains(&text).then_some(()).ok_or("must be `USDC`")
        });
        self.fields.require("amount_units");
        let amount = self.fields.read("amount_units", |value| units(value, 1));
        let pay_to = self.required("pay_to", |text| {
            let address = parse_address(text).map_err(|error| error.to_string())?;
            // Money sent to the token contract is lost.
            let is_token = Network::ALL.iter().any(|network| network.token().address == address);
            if is_token {
                Err("must not be the token's own address".to_owned())
            } else {
                Ok(address)
            }
        });
        Some(CatalogPayment {
            scheme: scheme?,
            network: network?,
            amount: amount?,
            pay_to: pay_to?,
        })
    }

    fn category(&mut self) -> Option<Category> {
        self.required("category", |text| {
            Category::from_name(text).ok_or_else(Category::choices)
        })
    }

    fn text(&mut self, name: &'static str, max: usize) -> Option<String> {
        self.fields.require(name);
        self.fields.text(name, max).map(str::to_owned)
    }

    fn required<T, E: fmt::Display>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Option<T> {
        self.fields.require(name);
        self.fields.read(name, |value| of_text(value, read))
    }
}

fn of_text<'a, T, E: fmt::Display>(value: &'a Value, read: impl FnOnce(&'a str) -> Result<T, E>) -> Result<T, String> {
    let text = value.as_str().ok_or("must be a string")?;
    read(text).map_err(|error| error.to_string())
}

/// An address whose host every reader sees alike: userinfo makes one host look like another.
fn web_address(text: &str) -> Result<Url, String> {
    parse_web_url(text)
        .filter(|url| url.username().is_empty() && url.password().is_none() && url.host().is_some())
        .filter(|url| url.as_str().len() <= MAX_URL_BYTES)
        .ok_or_else(|| {
            format!("must be an http or https URL of at most {MAX_URL_BYTES} bytes, without user name and backslashes")
        })
}

/// An address that may have path parameters.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    web_address(text)?;
    Endpoint::parse(text).ok_or_else(|| Endpoint::FORM.to_owned())
}

fn units(value: &Value, least: u64) -> Result<Amount, String> {
    let amount = value.as_u64().filter(|units| *units >= least);
    amount
        .and_then(Amount::from_units)
        .ok_or_else(|| format!("must be a whole number of micro-units from {least} to {}", Amount::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::ErrorKind;

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

    /// The body with another value at a pointer; `None` takes the member away.
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

    fn problems(body: &Value) -> Vec<Problem> {
        match Entry::parse(body).map_err(|error| match error.kind() {
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
        Entry::parse(body).unwrap().into_service(id, stored)
    }

    #[test]
    fn what_is_written_is_what_is_stored() {
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
    fn what_may_be_left_out_has_a_value() {
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
    fn each_member_is_read_strictly() {
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
            (op("estimated_price_units"), json!(1e3), false),
            (op("estimated_price_units"), json!("10000"), false),
            (op("max_price_units"), json!(Amount::MAX.units()), true),
            (op("max_price_units"), json!(Amount::MAX.units() + 1), false),
            (op("params"), json!([]), false),
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
    fn every_problem_is_named_at_once() {
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
    fn an_entry_has_a_largest_size() {
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

    #[test]
    fn what_was_seen_stays_while_the_operation_is_called_as_before() {
        let mut stored = service(&body(), None);
        stored.version = 4;
        stored.operations[0].availability = Availability::PaidX402;
        let rows = [
            ("/operations/0/label", json!("Other"), Availability::PaidX402),
            ("/operations/0/method", json!("GET"), Availability::PaidX402),
            ("/operations/0/method", json!("POST"), Availability::Unverified),
            (
                "/operations/0/endpoint",
                json!("https://lab.example/v2"),
                Availability::Unverified,
            ),
            (
                "/operations/0/id",
                json!("2aacbf6a-f7b9-58b3-a10f-370da97945f6"),
                Availability::Unverified,
            ),
        ];
        for (pointer, value, expected) in rows {
            let service = service(&with(pointer, Some(value)), Some(&stored));
            assert_eq!(service.operations[0].availability, expected, "{pointer}");
            assert_eq!(service.version, 4);
        }
    }

    #[test]
    fn a_payment_is_kept_unless_the_operator_says_something_of_it() {
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

    #[test]
    fn that_an_operation_fetches_a_target_is_kept_unless_the_operator_says_otherwise() {
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
    fn an_operators_own_words_on_trust_stay_unless_they_are_changed() {
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
