//! Which catalog entry a request is about: only services that are open to agents are.

#![expect(clippy::unwrap_used, reason = "a test stops where its ground is missing")]

use purser_domain::{
    Address, Amount, Availability, Catalog, Category, CheckRequest, Endpoint, ErrorKind, Network, Operation,
    OperationSlug, OperationUuid, Purchase, Service, ServiceId, ServiceSlug, TrustStatus, Url,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// A service with one operation, at `https://lab.example/<page>`.
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
            payment: None,
        }],
    }
}

/// The slug of the service that a request is about, or the slug of its refusal.
fn check(service: Value, page: &str) -> String {
    let catalog = Catalog::new(vec![
        // Sorts before the open service at the same address.
        service_at_shared("a-uncurated", false, TrustStatus::PlatformVerified),
        service_at_shared("b-disabled", true, TrustStatus::Disabled),
        service_at_shared("c-open", true, TrustStatus::Listed),
        self::service(4, "uncurated", "uncurated", false, TrustStatus::PlatformVerified),
        self::service(5, "disabled", "disabled", true, TrustStatus::Disabled),
        self::service(6, "discovered", "discovered", true, TrustStatus::Discovered),
    ]);
    let token = Network::BaseSepolia.token();
    let mut body = json!({
        "payment_requirement": {
            "scheme": "exact", "network": "base-sepolia", "maxAmountRequired": "1", "asset": token.address.to_string(),
            "payTo": Address::repeat_byte(1).to_string(), "maxTimeoutSeconds": 60,
        },
        "max_payment_units": 1,
        "original_request": {"method": "GET", "url": format!("https://lab.example/{page}")},
        "replay_key": "once",
    });
    if let Some(body) = body.as_object_mut() {
        body.insert("service_id".to_owned(), service);
    }
    let request = CheckRequest::parse(&body, Network::BaseSepolia).unwrap();
    match Purchase::of(&request.intent, &catalog) {
        Ok(purchase) => purchase.service.slug.to_string(),
        Err(error) => match error.kind() {
            ErrorKind::InvalidRequest(problems) => problems.iter().map(|problem| problem.path.as_str()).collect(),
            other => other.slug(),
        },
    }
}

fn service_at_shared(slug: &str, curated: bool, trust_status: TrustStatus) -> Service {
    let n = slug.bytes().next().map_or(0, u128::from);
    service(n, slug, "shared", curated, trust_status)
}

#[test]
fn a_service_outside_the_curated_set_is_not_found_by_any_name() {
    const NOT_FOUND: &str = "service_not_found";
    let uuid = |n: u128| json!(Uuid::from_u128(n).to_string());
    let rows = [
        (json!("discovered"), "discovered", "discovered"),
        (uuid(6), "discovered", "discovered"),
        (Value::Null, "discovered", "discovered"),
        (json!("uncurated"), "uncurated", NOT_FOUND),
        (uuid(4), "uncurated", NOT_FOUND),
        (Value::Null, "uncurated", NOT_FOUND),
        (json!("disabled"), "disabled", NOT_FOUND),
        (uuid(5), "disabled", NOT_FOUND),
        (Value::Null, "disabled", NOT_FOUND),
        // Who shares an address with an open service takes nothing from it.
        (Value::Null, "shared", "c-open"),
        (json!("c-open"), "shared", "c-open"),
        (json!("a-uncurated"), "shared", NOT_FOUND),
        (json!("b-disabled"), "shared", NOT_FOUND),
        (json!("discovered"), "shared", "/service_id"),
        (json!("discovered"), "uncurated", "/service_id"),
    ];
    for (service, page, expected) in rows {
        assert_eq!(check(service.clone(), page), expected, "{service} {page}");
    }
}
