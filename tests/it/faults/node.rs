//! Tests nodes that fail, lag, return false data, or reorganize. Authorize always responds, and complete confirms only
//! final payments.

use super::{authorizing, completing, confirmed, nonces_used, payments, policy};
use purser_domain::SpendPolicy;
use purser_local::{Front, NETWORK, Options};
use purser_testkit::{Fate, Moment, Proxy, ProxyConfig, Step};
use purser_tests::{Process, Request, TestAgent, World, as_repeated, body_of, dollars, transfer_of};
use serde_json::{Value, json};
use std::time::Duration;

/// A block with three confirmations is final.
const SETTINGS: [(&str, &str); 1] = [("FINALITY_CONFIRMATIONS", "3")];

/// Asserts the retryable error with this reason. Only the count of failed proofs may change.
async fn not_yet(world: &World, process: &Process, request: &Request, reason: &str, fault: &str) {
    let before = world.rows().await;
    let answer = process
        .send(request)
        .await
        .expect("an answer within the function's time");
    let status = if reason == "chain_unavailable" { 503 } else { 422 };
    assert_eq!(answer.status, status, "{fault}: {}", answer.body);
    let after = answer.headers["retry-after"].clone();
    let told = answer.refused(status, "onchain_settlement_not_verified");
    assert_eq!(
        (&told["reason"], &told["retryable"]),
        (&json!(reason), &json!(true)),
        "{fault}"
    );
    assert_eq!(told["retry_after"].to_string(), after, "{fault}");
    let changes = world.rows().await.changes_since(&before);
    assert!(changes.is_empty(), "{fault}: {changes:#?}");
}

/// Returns a script that applies `fate` to every call, or to the calls of one method.
fn answering(method: Option<&'static str>, moment: Moment, fate: fn() -> Fate) -> impl FnMut(&Step<'_>) -> Fate {
    move |step| {
        let meant = method.is_none_or(|method| method == step.call);
        if meant && step.moment == moment {
            fate()
        } else {
            Fate::PassOn
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_faults_never_lose_a_payment() {
    const UNAVAILABLE: &str = "chain_unavailable";
    const NOT_FINAL: &str = "transaction_not_final";
    let world = World::start().await;
    let agent = world.agent(policy(dollars(1_000)), vec![]).await;
    let process = payments(&world, &SETTINGS).await;
    let asked = |fate: fn() -> Fate| (None, Moment::Arrived, fate);
    let told = |method, fate: fn() -> Fate| (Some(method), Moment::CarriedOut, fate);
    type Row = (&'static str, &'static str, (Option<&'static str>, Moment, fn() -> Fate));
    let rows: [Row; 18] = [
        ("it never answers", UNAVAILABLE, asked(|| Fate::Silence)),
        (
            "it is slow",
            UNAVAILABLE,
            asked(|| Fate::Wait(Duration::from_millis(2_500))),
        ),
        ("it hangs up", UNAVAILABLE, asked(|| Fate::HangUp)),
        (
            "its answers break off",
            UNAVAILABLE,
            (None, Moment::CarriedOut, || Fate::CutOff),
        ),
        (
            "it has enough of us",
            UNAVAILABLE,
            asked(|| Fate::Answer(429, "Too Many Requests".into())),
        ),
        ("it fails", UNAVAILABLE, asked(|| Fate::Answer(500, json!({})))),
        (
            "its gateway fails",
            UNAVAILABLE,
            asked(|| Fate::Answer(502, "<html>Bad Gateway</html>".into())),
        ),
        (
            "it is being repaired",
            UNAVAILABLE,
            asked(|| Fate::Answer(503, "".into())),
        ),
        (
            "it sends us elsewhere",
            UNAVAILABLE,
            asked(|| Fate::Answer(302, "".into())),
        ),
        (
            "it says no JSON",
            UNAVAILABLE,
            asked(|| Fate::Answer(200, "<html>Welcome</html>".into())),
        ),
        (
            "it answers another call",
            UNAVAILABLE,
            asked(|| Fate::Answer(200, json!({"jsonrpc": "2.0", "id": 2, "result": "0x1"}))),
        ),
        (
            "it refuses",
            UNAVAILABLE,
            asked(|| {
                let error = json!({"code": -32_005, "message": "limit exceeded"});
                Fate::Answer(200, json!({"jsonrpc": "2.0", "id": 1, "error": error}))
            }),
        ),
        (
            "its results are nonsense",
            UNAVAILABLE,
            (None, Moment::CarriedOut, || Fate::result(json!({"a": 1}))),
        ),
        (
            "it serves another chain",
            UNAVAILABLE,
            told("eth_chainId", || Fate::result(json!("0x2105"))),
        ),
        (
            "it does not know the transaction yet",
            "transaction_not_mined",
            told("eth_getTransactionByHash", || Fate::result(Value::Null)),
        ),
        (
            "its head is old",
            NOT_FINAL,
            told("eth_call", || Fate::result(json!(format!("0x{:064x}{:064x}", 1, 0)))),
        ),
        (
            "another of its machines holds the block that was replaced",
            "transaction_not_mined",
            told("eth_getTransactionByHash", || {
                Fate::Edit(Box::new(|reply| {
                    reply["result"]["blockHash"] = format!("0x{}", "5a".repeat(32)).into();
                }))
            }),
        ),
        (
            "another node has another block",
            UNAVAILABLE,
            told("eth_getLogs", || {
                Fate::Edit(Box::new(|reply| {
                    for log in reply["result"].as_array_mut().unwrap() {
                        log["blockHash"] = format!("0x{}", "5a".repeat(32)).into();
                    }
                }))
            }),
        ),
    ];
    let mut paid = 0;
    for (fault, reason, (method, moment, fate)) in rows {
        println!("{fault}");
        // A process checks the node's chain only once, so each fault needs a new process.
        process.stop().await;
        process.node.follow(answering(method, moment, fate));
        let body = body_of(world.offer(dollars(1)));
        let authorized = process
            .send(&authorizing(&agent, &body))
            .await
            .expect("an answer in time")
            .ok();
        let hash = world.settle(&authorized).await;
        world.stack.chain.mine(2).await.unwrap();
        let request = completing(&agent, &authorized, &hash);
        not_yet(&world, &process, &request, reason, fault).await;

        process.spare();
        confirmed(process.send(&request).await.unwrap(), &hash);
        paid += 1;
        assert_eq!(nonces_used(&world, &agent).await.len(), paid);
    }

    // No server listens at the node's address until later.
    process.stop().await;
    process.node.go_down();
    let body = body_of(world.offer(dollars(1)));
    let authorized = process
        .send(&authorizing(&agent, &body))
        .await
        .expect("an answer in time")
        .ok();
    let hash = world.settle(&authorized).await;
    world.stack.chain.mine(2).await.unwrap();
    let request = completing(&agent, &authorized, &hash);
    not_yet(&world, &process, &request, UNAVAILABLE, "it is down").await;
    process.node.come_up().await;
    confirmed(process.send(&request).await.unwrap(), &hash);
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_endpoint_replaces_an_unavailable_first() {
    let front: Front = Box::new(|chain| {
        Box::pin(async move {
            let down = Proxy::start(chain.clone(), ProxyConfig::default()).await;
            down.go_down();
            format!("{}\n{chain}\n", down.url)
        })
    });
    let one_block = [("FINALITY_CONFIRMATIONS".to_owned(), "1".to_owned())];
    let world = World::with(Options {
        node_front: Some(front),
        environment: one_block.into(),
        ..Options::default()
    })
    .await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let body = body_of(world.offer(5_000));
    let foreseen = world.check(&agent, &body).await.ok();
    assert_eq!(foreseen["checks"][11]["outcome"], "passed", "the balance is known");
    let authorized = world.authorize(&agent, &body).await.ok();
    let hash = world.settle(&authorized).await;
    let settlement = authorized["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": {"success": true, "transaction": hash}});
    confirmed(world.complete(&agent, settlement, &proof).await, &hash);
}

/// A reorg of depth 2 removes a payment, which is neither confirmed nor released, and is then made again with the same
/// signature.
async fn reorganized(world: &World, agent: &TestAgent, process: &Process, undo: impl AsyncFn()) {
    let chain = &world.stack.chain;
    let token = NETWORK.token().address;
    let body = body_of(world.offer(dollars(1)));
    let authorized = process.send(&authorizing(agent, &body)).await.unwrap().ok();
    let before = nonces_used(world, agent).await.len();
    let hash = chain.send(token, transfer_of(&authorized).to_vec()).await.unwrap();
    let request = completing(agent, &authorized, &hash);
    not_yet(world, process, &request, "transaction_not_final", "one block").await;
    chain.mine(1).await.unwrap();
    not_yet(world, process, &request, "transaction_not_final", "two blocks").await;
    assert_eq!(nonces_used(world, agent).await.len(), before + 1);

    undo().await;
    chain.mine(4).await.unwrap();
    assert_eq!(nonces_used(world, agent).await.len(), before, "the payment is gone");
    not_yet(
        world,
        process,
        &request,
        "transaction_not_mined",
        "it was reorganized away",
    )
    .await;
    let path = format!("/x402/settlements/{}", authorized["settlement_id"].as_str().unwrap());
    let receipt = process.send(&Request::get(&agent.key, &path)).await.unwrap().ok();
    assert_eq!(
        [&receipt["receipt_status"], &receipt["tx_hash"]],
        [&json!("authorized"), &Value::Null]
    );

    let again = process.send(&authorizing(agent, &body)).await.unwrap().ok();
    assert_eq!(as_repeated(&again), as_repeated(&authorized), "the same payment");
    let hash = chain.send(token, transfer_of(&again).to_vec()).await.unwrap();
    chain.mine(2).await.unwrap();
    confirmed(process.send(&completing(agent, &again, &hash)).await.unwrap(), &hash);
    assert_eq!(nonces_used(world, agent).await.len(), before + 1);
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reorganized_payments_are_not_confirmed() {
    let world = World::start().await;
    let agent = world.agent(policy(dollars(1_000)), vec![]).await;
    let process = payments(&world, &SETTINGS).await;
    let chain = &world.stack.chain;
    chain.stand_still().await.unwrap();
    let snapshot = chain.snapshot().await.unwrap();
    reorganized(&world, &agent, &process, async || {
        chain.revert(&snapshot).await.unwrap();
    })
    .await;
    reorganized(&world, &agent, &process, async || {
        chain.call("anvil_reorg", json!([2, []])).await.unwrap();
    })
    .await;
}
