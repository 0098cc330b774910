//! Tests which service and operation a request matches. Only open services can match.

#![expect(clippy::unwrap_used, reason = "a test stops where its ground is missing")]

use purser_domain::{
    Address, Amount, Availability, Catalog, CatalogMatch, Category, Endpoint, ErrorKind, Fingerprint, Intent,
    ListingHistory, Metadata, Network, Offer, Operation, OperationSlug, OperationUuid, ProviderRequest, Service,
    ServiceId, ServiceSlug, TrustStatus, Url,
};
use serde_json::{Value, json};
use uuid::Uuid;

fn service(n: u128, slug: &str, page: &str, curated: bool, trust_status: TrustStatus) -> Service {
    Service {
        id: ServiceId::from_uuid(Uuid::from_u128(n)),
        version: 1,
        slug: ServiceSlug::parse(slug).unwrap(),
        name: String::new(),
        description: String::new(),
        website: Url::parse("https://lab.example/").unwrap(),
        logo_url: None,
        category: Category::Data,
        source: String::new(),
        trust_status,
        curated,
        history: ListingHistory::default(),
        operations: vec![Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(n)),
            slug: OperationSlug::parse("weather.current").unwrap(),
            availability: Availability::PaidX402,
            label: String::new(),
            method: "GET".to_owned(),
            endpoint: Endpoint::parse(&format!("https://lab.example/{page}")).unwrap(),
            category: Category::Data,
            execution: String::new(),
            price_model: String::new(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: json!({}),
            fetches_target: None,
            next: None,
            payment: None,
        }],
    }
}

/// Returns `<service>/<operation>`, `<service>/none` for an unmatched call, the error slug, or the JSON Pointer of a
/// contradiction.
fn about(catalog: &Catalog, service: &Value, operation: &Value, call: &str) -> String {
    let token = Network::BaseSepolia.token();
    let (method, url) = call.split_once(' ').unwrap();
    let requirement = json!({
        "scheme": "exact", "network": "base-sepolia", "maxAmountRequired": "1", "asset": token.address.to_string(),
        "payTo": Address::repeat_byte(1).to_string(), "maxTimeoutSeconds": 60,
    });
    let intent = Intent {
        offer: Offer::choose_cheapest(&requirement, Network::BaseSepolia).unwrap(),
        max_payment: Amount::ZERO,
        request: ProviderRequest {
            method: method.to_ascii_uppercase(),
            url: Url::parse(url).unwrap(),
            body_hash: None,
        },
        service: service.as_str().map(str::to_owned),
        operation: operation.as_str().map(|slug| OperationSlug::parse(slug).unwrap()),
        target: None,
        metadata: Metadata::default(),
        fingerprint: Fingerprint::for_text("once"),
    };
    match CatalogMatch::find_in_catalog(&intent, catalog) {
        Ok(CatalogMatch { service, operation }) => {
            let operation = operation.map_or("none", |operation| operation.slug.as_str());
            format!("{}/{operation}", service.slug)
        }
        Err(error) => match error.kind() {
            ErrorKind::InvalidRequest(problems) => problems.iter().map(|problem| problem.path.as_str()).collect(),
            other => other.slug(),
        },
    }
}

#[test]
fn uncurated_and_disabled_services_are_not_found() {
    const NOT_FOUND: &str = "service_not_found";
    let shared = |slug: &str, curated, trust_status| {
        let n = slug.bytes().next().map_or(0, u128::from);
        service(n, slug, "shared", curated, trust_status)
    };
    let catalog = Catalog::new(vec![
        // These services sort before the open service at the same address.
        shared("a-uncurated", false, TrustStatus::PlatformVerified),
        shared("b-disabled", true, TrustStatus::Disabled),
        shared("c-open", true, TrustStatus::Listed),
        service(4, "uncurated", "uncurated", false, TrustStatus::PlatformVerified),
        service(5, "disabled", "disabled", true, TrustStatus::Disabled),
        service(6, "discovered", "discovered", true, TrustStatus::Discovered),
    ]);
    let uuid = |n: u128| json!(Uuid::from_u128(n).to_string());
    let rows = [
        (json!("discovered"), "discovered", "discovered/weather.current"),
        (uuid(6), "discovered", "discovered/weather.current"),
        (Value::Null, "discovered", "discovered/weather.current"),
        (json!("uncurated"), "uncurated", NOT_FOUND),
        (uuid(4), "uncurated", NOT_FOUND),
        (json!("disabled"), "disabled", NOT_FOUND),
        (uuid(5), "disabled", NOT_FOUND),
        // The host belongs to an open service, but the call matches no operation.
        (Value::Null, "uncurated", "c-open/none"),
        (Value::Null, "disabled", "c-open/none"),
        // Closed services at the address of an open service do not hide the open service.
        (Value::Null, "shared", "c-open/weather.current"),
        (json!("c-open"), "shared", "c-open/weather.current"),
        (json!("a-uncurated"), "shared", NOT_FOUND),
        (json!("b-disabled"), "shared", NOT_FOUND),
        (json!("discovered"), "shared", "/service_id"),
        (json!("discovered"), "uncurated", "discovered/none"),
    ];
    for (service, page, expected) in rows {
        let call = format!("GET https://lab.example/{page}");
        assert_eq!(
            about(&catalog, &service, &Value::Null, &call),
            expected,
            "{service} {page}"
        );
    }
    let closed = Catalog::new(vec![service(5, "disabled", "disabled", true, TrustStatus::Disabled)]);
    let call = "GET https://lab.example/disabled";
    assert_eq!(
        about(&closed, &Value::Null, &Value::Null, call),
        NOT_FOUND,
        "no open service has this host"
    );
}

#[test]
fn operation_names_only_narrow_the_matching_operations() {
    const UNKNOWN: &str = "service_not_found";
    let of = |n: u128, slug: &str, operations: &[(&str, &str, &str)]| {
        let one = service(n, slug, "", true, TrustStatus::Listed);
        let operations = operations.iter().map(|(slug, method, endpoint)| Operation {
            slug: OperationSlug::parse(slug).unwrap(),
            method: (*method).to_owned(),
            endpoint: Endpoint::parse(endpoint).unwrap(),
            ..one.operations[0].clone()
        });
        Service {
            operations: operations.collect(),
            ..one.clone()
        }
    };
    let catalog = Catalog::new(vec![
        of(
            1,
            "company",
            &[
                ("company.list", "GET", "https://data.example/v1/companies"),
                ("company.count", "GET", "https://data.example/v1/companies/count"),
                ("company.look-up", "GET", "https://data.example/v1/companies/{id}"),
                ("company.add", "POST", "https://data.example/v1/companies"),
            ],
        ),
        of(2, "people", &[("people.list", "GET", "https://data.example/v1/people")]),
        // Two services list the same call.
        of(
            3,
            "twin-a",
            &[
                ("twin.buy", "GET", "https://twin.example/buy"),
                ("twin.rent", "GET", "https://twin.example/buy"),
            ],
        ),
        of(4, "twin-b", &[("twin.buy", "GET", "https://twin.example/buy")]),
    ]);
    let rows = [
        (
            "",
            "",
            "GET https://data.example/v1/companies?q=1#x",
            "company/company.list",
        ),
        ("", "", "post https://data.example/v1/companies/", "company/company.add"),
        (
            "company",
            "company.list",
            "GET https://data.example/v1/companies",
            "company/company.list",
        ),
        (
            "",
            "",
            "GET https://data.example/v1/companies/7",
            "company/company.look-up",
        ),
        (
            "",
            "",
            "GET https://data.example/v1/companies/count",
            "company/company.count",
        ),
        (
            "",
            "company.look-up",
            "GET https://data.example/v1/companies/count",
            "/operation_id",
        ),
        (
            "company",
            "company.add",
            "GET https://data.example/v1/companies",
            "/operation_id",
        ),
        (
            "",
            "company.add",
            "GET https://data.example/v1/companies",
            "/operation_id",
        ),
        (
            "company",
            "nobody.knows",
            "GET https://data.example/v1/companies",
            "/operation_id",
        ),
        ("people", "", "GET https://data.example/v1/companies", "/service_id"),
        (
            "people",
            "company.list",
            "GET https://data.example/v1/companies",
            "/service_id",
        ),
        // A different method, a longer path, or a different port.
        (
            "company",
            "company.list",
            "PUT https://data.example/v1/companies",
            "company/none",
        ),
        (
            "company",
            "",
            "GET https://data.example/v1/companies/7/filings",
            "company/none",
        ),
        (
            "company",
            "",
            "GET https://data.example:8443/v1/companies",
            "company/none",
        ),
        (
            "people",
            "people.list",
            "GET http://data.example/v1/people",
            "people/none",
        ),
        ("people", "", "GET https://evil.example/v1/people", "people/none"),
        // A service at the address comes first, then the service with the named operation, then the first service at
        // the host.
        ("", "", "DELETE https://data.example/v1/people", "people/none"),
        (
            "",
            "company.list",
            "DELETE https://data.example/v1/people",
            "people/none",
        ),
        ("", "people.list", "GET https://data.example/", "people/none"),
        ("", "", "GET https://data.example/", "company/none"),
        ("", "", "GET https://data.example.evil.example/v1/people", UNKNOWN),
        ("", "people.list", "GET https://evil.example/v1/people", UNKNOWN),
        ("nobody", "", "GET https://data.example/v1/people", UNKNOWN),
        ("", "", "GET https://twin.example/buy", "twin-a/twin.buy"),
        ("twin-b", "", "GET https://twin.example/buy", "twin-b/twin.buy"),
        ("", "twin.rent", "GET https://twin.example/buy", "twin-a/twin.rent"),
        ("twin-b", "twin.rent", "GET https://twin.example/buy", "/operation_id"),
    ];
    let name = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    for (service, operation, call, expected) in rows {
        assert_eq!(
            about(&catalog, &name(service), &name(operation), call),
            expected,
            "{service} {operation} {call}"
        );
    }
}
