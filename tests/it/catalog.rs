//! Tests the public routes, on which any caller can read the catalog.

use purser_domain::Availability;
use purser_local::DEMO_OWNER;
use purser_store::StoreServiceResult;
use purser_tests::{World, body_of};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

async fn list(world: &World, query: &str) -> Value {
    world
        .call(Method::GET, &format!("/services{query}"), None, None)
        .await
        .ok()
}

fn slugs(list: &Value) -> Vec<&str> {
    let services = list["services"].as_array().unwrap();
    assert_eq!(list["count"], services.len());
    services
        .iter()
        .map(|service| service["slug"].as_str().unwrap())
        .collect()
}

/// Disabled services are listed only by their status or slug.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_list_applies_filters_and_limits() {
    let world = World::start().await;
    let all = list(&world, "").await;
    let everything = slugs(&all);
    assert!(everything.len() >= 12 && everything.is_sorted());
    assert!(!everything.contains(&"sundown-feeds"), "disabled services are left out");
    assert_eq!(
        slugs(&list(&world, "?trust_status=disabled").await),
        ["sundown-feeds"],
        "unless they are asked for"
    );

    let names: BTreeSet<&str> = all["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["category"].as_str().unwrap())
        .collect();
    let categories = [
        "ai",
        "creative",
        "data",
        "finance",
        "infrastructure",
        "scrape",
        "search",
        "security",
    ];
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        categories,
        "something in every category"
    );
    for category in categories {
        let filtered = list(&world, &format!("?category={category}")).await;
        assert!(
            filtered["services"]
                .as_array()
                .unwrap()
                .iter()
                .all(|service| service["category"] == category)
        );
    }

    assert_eq!(slugs(&list(&world, "?slug=lab-weather").await), ["lab-weather"]);
    assert_eq!(
        slugs(&list(&world, "?slug=sundown-feeds").await),
        ["sundown-feeds"],
        "a service that is named is shown, as at its own address"
    );
    world
        .call(Method::GET, "/services/sundown-feeds", None, None)
        .await
        .ok();
    assert_eq!(
        slugs(&list(&world, "?slug=no-such").await),
        Vec::<&str>::new(),
        "the list's shape with no service"
    );
    assert_eq!(slugs(&list(&world, "?limit=3").await), everything[..3]);
    let unknown = world
        .call(Method::GET, "/services?limit=500&unknown=1", None, None)
        .await;
    unknown.refused(400, "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_have_exactly_the_documented_fields() {
    let world = World::still().await;
    world
        .stack
        .probe
        .run_probes(std::time::Duration::from_mins(1))
        .await
        .unwrap();
    world.set_clock(world.now().after(purser_domain::Duration::from_secs_u32(6)));
    let found = list(&world, "?slug=lab-weather").await;
    let item = &found["services"][0];
    let fields = [
        "category",
        "description",
        "free_operation_count",
        "id",
        "logo_url",
        "min_price_units",
        "name",
        "operation_count",
        "paid_operation_count",
        "slug",
        "source",
        "trust_status",
        "website",
    ];
    assert_eq!(item.as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    let counts = (
        &item["operation_count"],
        &item["paid_operation_count"],
        &item["free_operation_count"],
        &item["min_price_units"],
    );
    // The demo catalog has two operations of this service, and the tests add a third.
    assert_eq!(counts, (&json!(3), &json!(2), &json!(1), &json!(0)));

    let by_slug = world.call(Method::GET, "/services/lab-weather", None, None).await.ok();
    let id = by_slug["id"].as_str().unwrap();
    let by_id = world
        .call(Method::GET, &format!("/services/{id}"), None, None)
        .await
        .ok();
    assert_eq!(by_slug, by_id);
    let fields = [
        "category",
        "description",
        "id",
        "logo_url",
        "name",
        "operations",
        "slug",
        "trust_status",
        "website",
    ];
    assert_eq!(by_slug.as_object().unwrap().keys().collect::<Vec<_>>(), fields);

    let operation = &by_slug["operations"][0];
    let fields = [
        "availability",
        "category",
        "endpoint",
        "estimated_price_units",
        "execution",
        "id",
        "label",
        "max_price_units",
        "method",
        "operation_id",
        "params",
        "payment",
        "price_model",
    ];
    assert_eq!(operation.as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    let payment = json!({
        "scheme": "exact", "network": "base-sepolia", "token": "USDC", "amount_units": 10_000,
        "pay_to": world.stack.providers.pay_to,
    });
    assert_eq!(operation["payment"], payment);
    assert_eq!(
        by_slug["operations"][1]["payment"],
        Value::Null,
        "null for operations that are not paid"
    );
    world
        .call(Method::GET, "/services/no-such", None, None)
        .await
        .refused(404, "service_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn public_responses_are_identical_and_cacheable() {
    let world = World::start().await;
    for path in [
        "/services",
        "/services/lab-weather",
        "/openapi.json",
        "/llms.txt",
        "/SKILL.md",
    ] {
        let anonymous = world.call(Method::GET, path, None, None).await;
        let known = world.get(&world.demo(), path).await;
        assert_eq!(anonymous.body, known.body, "{path}");
        assert_eq!(anonymous.headers["etag"], known.headers["etag"]);
        assert!(
            anonymous.headers["cache-control"]
                .to_str()
                .unwrap()
                .starts_with("public, max-age=")
        );

        let again = world
            .http
            .get(format!("{}{path}", world.stack.base_url))
            .header("if-none-match", &anonymous.headers["etag"]);
        let again = World::send(again).await;
        assert_eq!((again.status, &again.body), (304, &Value::Null), "{path}");
        assert_eq!(again.headers["etag"], anonymous.headers["etag"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn catalog_changes_are_visible_within_seconds() {
    let world = World::still().await;
    let before = list(&world, "?slug=lab-search").await;
    let mut service = world.service("lab-search").await;
    service.name = "Renamed".to_owned();
    service.version += 1;
    assert_eq!(
        world
            .stack
            .catalog
            .put_service(&service, &purser_testkit::sample::audit())
            .await
            .unwrap(),
        StoreServiceResult::Stored
    );
    assert_eq!(
        list(&world, "?slug=lab-search").await,
        before,
        "the copy in memory is used for a moment"
    );
    world.set_clock(world.now().after(purser_domain::Duration::from_secs_u32(6)));
    assert_eq!(list(&world, "?slug=lab-search").await["services"][0]["name"], "Renamed");
}

/// The catalog object is not stored yet, so every function reads the table instead.
#[tokio::test(flavor = "multi_thread")]
async fn every_function_sees_catalog_changes_without_the_catalog_object() {
    let world = World::still().await;
    let (demo, owner) = (world.demo(), world.person(&DEMO_OWNER));
    let body = body_of(world.offer(1));
    world.check(&demo, &body).await.ok();
    let mut service = world.service("lab-search").await;
    service.name = "Renamed".to_owned();
    service.curated = false;
    service.version += 1;
    assert_eq!(
        world
            .stack
            .catalog
            .put_service(&service, &purser_testkit::sample::audit())
            .await
            .unwrap(),
        StoreServiceResult::Stored
    );
    world.pass(6);
    world.check(&demo, &body).await.refused(404, "service_not_found");
    let lists = [
        world.get(&demo, &format!("/mcp/agents/{}/services", demo.id)).await,
        world.person_gets(&owner, &demo.path("/services")).await,
    ];
    for list in lists {
        let list = list.ok();
        let services = list["services"].as_array().unwrap();
        let search = services.iter().find(|listed| listed["slug"] == "lab-search").unwrap();
        assert_eq!(search["name"], "Renamed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_results_match_the_catalog_for_real_providers() {
    let world = World::still().await;
    let report = world
        .stack
        .probe
        .run_probes(std::time::Duration::from_mins(1))
        .await
        .unwrap();
    assert_eq!(report.dropped, 0);
    let mut seen = BTreeSet::new();
    for (service, record) in world.stack.catalog.read_probed_services().await.unwrap() {
        for operation in &service.operations {
            assert_eq!(
                record.changed_payment(operation, world.now()),
                None,
                "{}",
                operation.slug
            );
            let expected = match (operation.endpoint.host_str(), &operation.payment) {
                (Some("127.0.0.1"), Some(_)) => Availability::PaidX402,
                (Some("127.0.0.1"), None) => Availability::FreeVerified,
                // These services have host names that do not resolve, or are not probed.
                _ => Availability::Unverified,
            };
            assert_eq!(record.availability(operation), expected, "{}", operation.slug);
            seen.insert((expected.name(), operation.method.clone()));
        }
    }
    for call in [("paid_x402", "GET"), ("paid_x402", "POST"), ("free_verified", "GET")] {
        assert!(seen.contains(&(call.0, call.1.to_owned())), "{call:?}");
    }
}

/// The limits apply to the operation in the request, so it must be the called operation.
#[tokio::test(flavor = "multi_thread")]
async fn naming_one_service_while_calling_another_is_rejected() {
    let world = World::start().await;
    let weather = format!("{}/weather", world.stack.providers.provider_url);
    let rows = [
        (json!({"service_id": "lab-search"}), "GET", Some("/service_id")),
        // No operation in the catalog has this method, so the service in the request does not matter.
        (json!({"service_id": "lab-search"}), "POST", None),
        (json!({"service_id": "lab-weather"}), "POST", None),
        (
            json!({"service_id": "lab-weather", "operation_id": "weather.stations"}),
            "GET",
            Some("/operation_id"),
        ),
        (
            json!({"service_id": "lab-weather", "operation_id": "weather.current"}),
            "GET",
            None,
        ),
        (json!({"service_id": "lab-weather"}), "GET", None),
        (json!({}), "GET", None),
    ];
    for (names, method, wrong) in rows {
        let mut body = body_of(world.offer(10_000));
        let fields = body.as_object_mut().unwrap();
        fields.remove("service_id");
        fields.extend(names.as_object().unwrap().clone());
        fields["original_request"] = json!({"method": method, "url": weather});
        let answer = world.authorize(&world.demo(), &body).await;
        match wrong {
            Some(path) => assert_eq!(
                answer.refused(400, "invalid_request")["details"][0]["path"],
                path,
                "{names}"
            ),
            None if method == "POST" => {
                let refused = answer.refused(403, "operation_not_enabled_for_agent");
                let message = refused["message"].as_str().unwrap();
                let named = names["service_id"].as_str().unwrap();
                let beginning = format!("no operation of `{named}` is `POST {weather}`; it lists `");
                assert!(message.starts_with(&beginning), "{message}");
            }
            None => assert_eq!(answer.ok()["authorized"], true, "{names}"),
        }
    }
}

/// The response lists the operations at the same URL, so that the agent can correct the method.
#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_an_unlisted_call_names_the_available_operations() {
    let world = World::start().await;
    let mut body = body_of(world.offer(10_000));
    let weather = format!("{}/weather", world.stack.providers.provider_url);
    body["service_id"] = json!("lab-weather");
    body["original_request"] = json!({"method": "POST", "url": format!("{weather}?city=Lisbon")});
    let refused = world.authorize(&world.demo(), &body).await;
    let refused = refused.refused(403, "operation_not_enabled_for_agent");
    let message = refused["message"].as_str().unwrap();
    let expected = format!("no operation of `lab-weather` is `POST {weather}`; it lists `GET {weather}`");
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(
        (&refused["operation_id"], &refused["enabled_operations"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn public_routes_respond_to_head_like_get() {
    let world = World::start().await;
    for path in [
        "/services",
        "/services/lab-weather",
        "/openapi.json",
        "/llms.txt",
        "/SKILL.md",
        "/dashboard",
    ] {
        let url = format!("{}{path}", world.stack.base_url);
        let [head, get] = [Method::HEAD, Method::GET].map(|method| world.http.request(method, &url).send());
        let (head, get) = (head.await.unwrap(), get.await.unwrap());
        assert_eq!(head.status(), get.status(), "{path}");
        for header in ["content-type", "cache-control", "etag"] {
            assert_eq!(
                head.headers().get(header),
                get.headers().get(header),
                "{path}: {header}"
            );
        }
        assert_eq!(head.text().await.unwrap(), "", "{path}");
    }
}
