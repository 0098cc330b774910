//! Tests providers that fail or return false data about a payment: a receipt is confirmed if and only if the transfer
//! is on the chain.

use super::{authorizations_used, confirmed, nonces_used, policy};
use alloy::primitives::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use purser_local::{DevChain, NETWORK, Outcome, Run};
use purser_tests::{TestAgent, World, body_of, dollars, transfer_of};
use serde_json::{Value, json};
use std::time::Duration;

/// The chain, and another account's payment of the same amount.
#[derive(Clone)]
struct Provider {
    chain: DevChain,
    foreign: String,
}

/// Returns the payment response of the official SDK (docs/x402.md §3.3).
fn response(success: bool, reason: Option<&str>, transaction: &str) -> String {
    let mut response = json!({"success": success, "transaction": transaction, "network": NETWORK.caip2()});
    if let Some(reason) = reason {
        response["errorReason"] = reason.into();
    }
    STANDARD.encode(response.to_string())
}

/// Responds to a payment as the path says.
async fn serve(State(provider): State<Provider>, Path(story): Path<String>, headers: HeaderMap) -> impl IntoResponse {
    let payment = STANDARD.decode(&headers["payment-signature"]).unwrap();
    let payment: Value = serde_json::from_slice(&payment).unwrap();
    let transfer = transfer_of(&json!({"payment": {"payload": payment}}));
    let settle = async || provider.submit(transfer.clone()).await;
    let made_up = format!("0x{}", "ab".repeat(32));
    let (status, said) = match story.as_str() {
        "fails-after-settling" => {
            settle().await;
            (500, None)
        }
        "pending" => {
            provider.chain.call("evm_setIntervalMining", json!([0])).await.unwrap();
            let hash = provider.send(transfer.clone()).await;
            (402, Some(response(false, Some("settlement_pending"), &hash)))
        }
        "says-yes-made-up" => (200, Some(response(true, None, &made_up))),
        "says-yes-foreign" => (200, Some(response(true, None, &provider.foreign))),
        "says-yes-reverted" => {
            // The token rejects this call like a repeated payment.
            let hash = provider.submit(Bytes::from_static(&[1, 2, 3, 4])).await;
            (200, Some(response(true, None, &hash)))
        }
        "says-no-with-the-hash" => {
            let hash = settle().await;
            (402, Some(response(false, Some("unexpected_settle_error"), &hash)))
        }
        "says-no" => {
            settle().await;
            (402, Some(response(false, Some("unexpected_settle_error"), "")))
        }
        other => panic!("no such story: {other}"),
    };
    let header = said.map(|said| ("payment-response", said));
    let headers: HeaderMap = header
        .into_iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect();
    (StatusCode::from_u16(status).unwrap(), headers, "")
}

impl Provider {
    async fn submit(&self, transfer: Bytes) -> String {
        self.chain
            .send(NETWORK.token().address, transfer.to_vec())
            .await
            .unwrap()
    }

    /// Sends a transaction without waiting for its block.
    async fn send(&self, transfer: Bytes) -> String {
        let accounts = self.chain.call("eth_accounts", json!([])).await.unwrap();
        let transaction = json!({
            "from": accounts[0], "to": NETWORK.token().address, "data": transfer, "gas": "0x1c9c380",
        });
        let hash = self
            .chain
            .call("eth_sendTransaction", json!([transaction]))
            .await
            .unwrap();
        hash.as_str().unwrap().to_owned()
    }
}

/// Returns the hash of the agent's last payment.
async fn last_payment(world: &World, agent: &TestAgent) -> String {
    let logs = authorizations_used(world, agent).await;
    logs.last().unwrap()["transactionHash"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chain_decides_whether_a_payment_is_confirmed() {
    let price = dollars(1);
    let world = World::still().await;
    let agent = world.agent(policy(dollars(100)), vec![]).await;
    let other = world.agent(policy(dollars(100)), vec![]).await;
    let others = world.authorize(&other, &body_of(world.offer(price))).await.ok();
    let foreign = world.settle(&others).await;
    let chain = world.stack.chain.clone();
    let provider = Provider {
        chain: chain.clone(),
        foreign: foreign.clone(),
    };
    let routes = axum::Router::new().route("/{story}", get(serve)).with_state(provider);
    let url = purser_testkit::serve(routes).await;

    // The path, the provider's status, the error of `complete`, and whether the payment is made.
    let rows = [
        ("fails-after-settling", 500, (422, "provider_proof_required", ""), true),
        (
            "pending",
            402,
            (422, "onchain_settlement_not_verified", "transaction_not_mined"),
            true,
        ),
        (
            "says-yes-made-up",
            200,
            (422, "onchain_settlement_not_verified", "transaction_not_mined"),
            false,
        ),
        (
            "says-yes-foreign",
            200,
            (422, "onchain_settlement_not_verified", "authorization_not_used"),
            false,
        ),
        (
            "says-yes-reverted",
            200,
            (422, "onchain_settlement_not_verified", "transaction_reverted"),
            false,
        ),
        ("says-no-with-the-hash", 402, (200, "", ""), true),
        ("says-no", 402, (422, "settlement_transaction_hash_required", ""), true),
    ];
    let (mut paid, mut unpaid) = (Vec::new(), Vec::new());
    for (story, provider_status, (status, slug, reason), made) in rows {
        println!("{story}");
        let authorized = world.authorize(&agent, &body_of(world.offer(price))).await.ok();
        let payment = &authorized["payment"]["header_value"];
        let call = world.http.get(format!("{url}/{story}"));
        let answer = call
            .header("payment-signature", payment.as_str().unwrap())
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), provider_status);
        let said = answer
            .headers()
            .get("payment-response")
            .map(|said| said.to_str().unwrap().to_owned());
        let proof = said.map_or(json!({}), |said| json!({"payment_response_header": said}));
        let settlement = authorized["settlement_id"].as_str().unwrap().to_owned();

        let before = world.rows().await;
        let answer = world.complete(&agent, &settlement, &proof).await;
        if status == 200 {
            answer.ok();
        } else {
            let told = answer.refused(status, slug);
            assert_eq!(told["reason"].as_str().unwrap_or_default(), reason, "{story}");
            let changes = world.rows().await.changes_since(&before);
            assert!(changes.is_empty(), "{story}: {changes:#?}");
        }
        if story == "pending" {
            chain.stand_still().await.unwrap();
            chain.mine(1).await.unwrap();
            // The chain now contains the payment.
            world.complete(&agent, &settlement, &proof).await.ok();
        }
        if made {
            let hash = last_payment(&world, &agent).await;
            if story != "says-no" {
                // The agent may name a transaction that the provider did not name.
                let found = json!({"payment_response_header": "e30=", "tx_hash": hash});
                confirmed(world.complete(&agent, &settlement, &found).await, &hash);
            }
            paid.push((settlement, hash));
        } else {
            unpaid.push((settlement, proof));
        }
    }

    // The false proof of the other agent claimed nothing.
    let theirs = others["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": {"payment-response": response(true, None, &foreign)}});
    confirmed(world.complete(&other, theirs, &proof).await, &foreign);

    // The payments have expired by the stack's clock, which alone releases no payment.
    world.pass(3_600);
    let total = |payments: usize| price * u64::try_from(payments).unwrap();
    assert_eq!(world.footprint().await.total, total(rows.len() + 1));
    for (settlement, proof) in &unpaid {
        let answer = world.complete(&agent, settlement, proof).await;
        // The transaction now belongs to the other agent's settlement.
        assert!(matches!(answer.status, 409 | 422 | 503), "{}", answer.body);
    }
    // Reconcile confirms the payment that its provider denied. The payment that was never made stays reserved while it
    // is valid.
    let run = async || {
        world
            .stack
            .reconcile
            .reconcile_all(Duration::from_secs(55))
            .await
            .unwrap()
    };
    let counts = |run: &Run| [Outcome::Confirmed, Outcome::Released].map(|outcome| run.count_outcome(outcome));
    let seen = run().await;
    assert_eq!(counts(&seen), [0, 0], "{seen:?}");
    chain.advance(400).await.unwrap();
    let seen = run().await;
    assert_eq!(counts(&seen), [1, unpaid.len()], "{seen:?}");
    // No later block can contain the payment.
    let (settlement, proof) = &unpaid[0];
    let told = world.complete(&agent, settlement, proof).await;
    let told = told.refused(422, "onchain_settlement_not_verified");
    assert_eq!(
        (&told["reason"], &told["retryable"]),
        (&json!("transaction_unknown"), &json!(false))
    );

    let receipt = async |settlement: &str| world.get(&agent, &format!("/x402/settlements/{settlement}")).await.ok();
    for (settlement, hash) in &paid {
        let receipt = receipt(settlement).await;
        assert_eq!(
            [&receipt["receipt_status"], &receipt["tx_hash"]],
            [&json!("confirmed"), &json!(hash)]
        );
    }
    for (settlement, _) in &unpaid {
        let receipt = receipt(settlement).await;
        assert_eq!(
            [&receipt["receipt_status"], &receipt["tx_hash"]],
            [&json!("expired"), &Value::Null]
        );
    }
    assert_eq!(world.footprint().await.total, total(paid.len() + 1));
    assert_eq!(nonces_used(&world, &agent).await.len(), paid.len());
    assert_eq!(nonces_used(&world, &other).await.len(), 1);
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}
