//! Tests payments to the unmodified official x402 server and facilitator, in versions 1 and 2.

use base64::Engine as _;
use purser_local::Options;
use purser_tests::{Answer, TestAgent, World, as_repeated, body_of, dollars, fresh_key};
use serde_json::{Value, json};

/// Calls a provider without paying, and returns its payment requirements.
async fn requirement(world: &World, url: &str) -> Value {
    let unpaid = world.http.get(url).send().await.unwrap();
    assert_eq!(unpaid.status(), 402);
    match unpaid.headers().get("payment-required") {
        Some(header) => {
            serde_json::from_slice(&base64::engine::general_purpose::STANDARD.decode(header).unwrap()).unwrap()
        }
        None => unpaid.json().await.unwrap(),
    }
}

fn body(requirement: Value, url: &str) -> Value {
    json!({
        "payment_requirement": requirement,
        "max_payment_units": dollars(1),
        "original_request": {"method": "GET", "url": url},
        "idempotency_key": fresh_key(),
    })
}

/// Makes a payment. Returns the settlement's id, and the name and value of the payment response header.
async fn pay(world: &World, agent: &TestAgent, url: &str) -> (String, String, String) {
    let authorized = world
        .authorize(agent, &body(requirement(world, url).await, url))
        .await
        .ok();
    let payment = &authorized["payment"];
    let paid = world.http.get(url).header(
        payment["header_name"].as_str().unwrap(),
        payment["header_value"].as_str().unwrap(),
    );
    let paid = paid.send().await.unwrap();
    assert_eq!(paid.status(), 200, "the provider took the payment");
    let header = ["payment-response", "x-payment-response"]
        .into_iter()
        .find(|name| paid.headers().contains_key(*name))
        .unwrap();
    let value = paid.headers()[header].to_str().unwrap().to_owned();
    (
        authorized["settlement_id"].as_str().unwrap().to_owned(),
        header.to_owned(),
        value,
    )
}

fn confirmed(answer: Answer) -> Value {
    let row = answer.ok();
    assert_eq!(
        (&row["receipt_status"], &row["confirmed_via"]),
        (&json!("confirmed"), &json!("onchain"))
    );
    row
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_x402_v2_provider_is_paid_and_confirmed() {
    let world = World::start().await;
    let agent = world.demo();
    let url = format!("{}/weather", world.stack.providers.provider_url);
    let requirement = requirement(&world, &url).await;

    let check = world.check(&agent, &body(requirement.clone(), &url)).await.ok();
    assert_eq!(check["would_authorize"], true, "{check}");
    assert_eq!(world.footprint().await.settlements, 0, "a preflight reserves nothing");

    let (settlement, _, proof) = pay(&world, &agent, &url).await;
    let before = world.get(&agent, &format!("/x402/settlements/{settlement}")).await.ok();
    assert_eq!(
        (&before["receipt_status"], &before["tx_hash"], &before["settled_at"]),
        (&json!("authorized"), &Value::Null, &Value::Null)
    );

    let row = confirmed(
        world
            .complete(&agent, &settlement, &json!({"payment_response_header": proof}))
            .await,
    );
    let after = world.get(&agent, &format!("/x402/settlements/{settlement}")).await.ok();
    let names: Vec<&String> = after.as_object().unwrap().keys().collect();
    let expected = [
        "agent_id",
        "amount_units",
        "authorized_at",
        "id",
        "network",
        "operation_id",
        "pay_to",
        "receipt_status",
        "service_id",
        "settled_at",
        "token",
        "transaction_id",
        "tx_hash",
    ];
    assert_eq!(names, expected, "exactly the fields of the receipt");
    assert_eq!(after["tx_hash"], row["tx_hash"]);
    assert_eq!(
        (&after["amount_units"], &after["operation_id"], &after["token"]),
        (&json!(10_000), &json!("weather.current"), &json!("USDC"))
    );

    let list = world
        .get(&agent, &format!("/agents/{}/settlements", agent.id))
        .await
        .ok();
    assert_eq!(
        (&list["count"], &list["settlements"][0]["id"]),
        (&json!(1), &json!(settlement))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_proof_format_confirms_payments_in_both_x402_versions() {
    let world = World::start().await;
    let agent = world.demo();
    let providers = &world.stack.providers;
    for url in [
        format!("{}/weather", providers.provider_url),
        format!("{}/weather", providers.provider_v1_url),
    ] {
        let (settlement, _, proof) = pay(&world, &agent, &url).await;
        confirmed(
            world
                .complete(&agent, &settlement, &json!({"payment_response_header": proof}))
                .await,
        );
        confirmed(
            world
                .complete(&agent, &settlement, &json!({"payment_response_header": proof}))
                .await,
        );

        let (settlement, header, proof) = pay(&world, &agent, &url).await;
        let keyed = json!({header.to_ascii_uppercase(): proof});
        confirmed(
            world
                .complete(&agent, &settlement, &json!({"payment_response_header": keyed}))
                .await,
        );

        let (settlement, _, proof) = pay(&world, &agent, &url).await;
        let decoded: Value =
            serde_json::from_slice(&base64::engine::general_purpose::STANDARD.decode(&proof).unwrap()).unwrap();
        let explicit = json!({"payment_response_header": proof, "tx_hash": decoded["transaction"]});
        confirmed(world.complete(&agent, &settlement, &explicit).await);
    }
    assert_eq!(world.footprint().await.settlements, 6);
}

/// The provider requires a payment id of 16 to 128 characters.
#[tokio::test(flavor = "multi_thread")]
async fn a_required_payment_identifier_is_added_and_kept() {
    let world = World::start().await;
    let agent = world.demo();
    let url = format!("{}/report", world.stack.providers.provider_url);
    let unpaid = world.http.post(&url).send().await.unwrap();
    let offer = unpaid.headers()["payment-required"].as_bytes();
    let offer: Value = serde_json::from_slice(&base64::prelude::BASE64_STANDARD.decode(offer).unwrap()).unwrap();
    assert_eq!(offer["extensions"]["payment-identifier"]["info"]["required"], true);
    let mut asked = body(offer, &url);
    asked["original_request"]["method"] = "POST".into();
    let id = |answer: &Value| answer["payment"]["payload"]["extensions"]["payment-identifier"]["info"]["id"].clone();

    let authorized = world.authorize(&agent, &asked).await.ok();
    let again = world.authorize(&agent, &asked).await.ok();
    assert_eq!((id(&authorized).is_string(), id(&authorized)), (true, id(&again)));
    let payment = &authorized["payment"];
    let paid = world.http.post(&url).json(&json!({"topic": "tin"})).header(
        payment["header_name"].as_str().unwrap(),
        payment["header_value"].as_str().unwrap(),
    );
    let paid = paid.send().await.unwrap();
    assert_eq!(paid.status(), 200);
    let proof = paid.headers()["payment-response"].to_str().unwrap();
    let settlement = authorized["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": proof});
    confirmed(world.complete(&agent, settlement, &proof).await);

    // An existing id is kept, because the provider compares it.
    for own in ["order-2026-11-23-0001", "order-1"] {
        let mut asked = asked.clone();
        asked["idempotency_key"] = fresh_key().into();
        asked["payment_requirement"]["extensions"]["payment-identifier"]["info"]["id"] = own.into();
        assert_eq!(id(&world.authorize(&agent, &asked).await.ok()), json!(own));
    }
    assert_eq!(world.footprint().await.settlements, 3);
}

/// The payment follows the newest payment requirements, and the chain accepts its nonce once.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_authorize_calls_return_one_settlement() {
    let world = World::start().await;
    let agent = world.demo();
    let url = format!("{}/weather", world.stack.providers.provider_url);
    // The provider puts a new nonce into each 402 response.
    let mut request = body(requirement(&world, &url).await, &url);
    request["payment_requirement"]["extensions"] = json!({"sign-in-with-x": {"info": {"nonce": fresh_key()}}});
    request["payment_requirement"]["resource"]["description"] = json!("an hour ago");

    let first = world.authorize(&agent, &request).await;
    assert!(!first.headers.contains_key("idempotent-replayed"));
    let again = world.authorize(&agent, &request).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let told = as_repeated(&again.ok());
    assert_eq!(
        as_repeated(&first.clone().ok()),
        told,
        "the same settlement and the same payment"
    );
    request["payment_requirement"] = requirement(&world, &url).await;
    let newest = world.authorize(&agent, &request).await.ok();
    assert_eq!(newest["settlement_id"], first.body["settlement_id"]);

    let payment = &newest["payment"];
    let send = || {
        world
            .http
            .get(&url)
            .header(
                payment["header_name"].as_str().unwrap(),
                payment["header_value"].as_str().unwrap(),
            )
            .send()
    };
    assert_eq!(send().await.unwrap().status(), 200);
    assert_eq!(send().await.unwrap().status(), 402, "the chain takes one nonce once");
    assert_eq!(world.footprint().await.settlements, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_with_provider_ok_is_accepted_only_in_development() {
    let setting = ("ACCEPT_PROVIDER_OK".to_owned(), "true".to_owned());
    let development = Options {
        environment: [setting].into(),
        ..Options::default()
    };
    for (options, takes_it) in [(Options::default(), false), (development, true)] {
        let world = World::with(options).await;
        let agent = world.demo();
        let mut request = body_of(world.offer(10_000));
        request["service_id"] = "lab-weather".into();
        let authorized = world.authorize(&agent, &request).await.ok();
        let settlement = authorized["settlement_id"].as_str().unwrap();

        // The field `provider_ok` replaces the proof header, but never the transfer on the chain.
        let unmined = json!({"provider_ok": true, "tx_hash": format!("0x{}", "ab".repeat(32))});
        let expected = if takes_it {
            (422, "onchain_settlement_not_verified")
        } else {
            (422, "provider_proof_required")
        };
        world
            .complete(&agent, settlement, &unmined)
            .await
            .refused(expected.0, expected.1);

        let hash = world.settle(&authorized).await;
        let answer = world
            .complete(&agent, settlement, &json!({"provider_ok": true, "tx_hash": hash}))
            .await;
        if takes_it {
            confirmed(answer);
        } else {
            answer.refused(422, "provider_proof_required");
        }
        world
            .complete(&agent, settlement, &json!({"provider_ok": false, "tx_hash": hash}))
            .await
            .refused(422, "provider_proof_required");
    }
}
