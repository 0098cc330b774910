//! Tests that reconcile confirms or expires every payment by evidence from the chain alone.

mod node;
mod wallets;

use alloy::primitives::{Address, B256, Bytes};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use aws_sdk_dynamodb::types::AttributeValue;
use node::{Manner, Node};
use purser_domain::{BudgetLimit, Duration as Length, Rule, RuleId, RuleKind, SpendPolicy, Timestamp};
use purser_local::{DEMO_OWNER, NETWORK, Options, Outcome, Run};
use purser_tests::{TestAgent, World, batch_of, body_of, dollars, transfer_of, units};
use purser_verify::{Trust, verify_evidence};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

sol! {
    function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature);
}

/// The timeout of a run of reconcile.
const TIME: Duration = Duration::from_secs(55);

async fn run(world: &World) -> Run {
    world.stack.reconcile.reconcile_all(TIME).await.unwrap()
}

async fn outcomes(world: &World) -> Vec<Outcome> {
    run(world).await.outcomes().to_vec()
}

fn policy(max_per_day: u64) -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(max_per_day),
        require_approval_above: units(dollars(100)),
        ..SpendPolicy::spec_defaults()
    }
}

fn budget(limit: u64) -> Rule {
    Rule {
        id: RuleId::from_uuid(uuid::Uuid::new_v4()),
        version: 1,
        kind: RuleKind::BudgetLimit(BudgetLimit {
            limit: units(limit),
            window: Length::from_secs_u32(3_600).into(),
        }),
    }
}

/// Starts a stack with a stopped clock, and without interval mining.
async fn world<const N: usize>(variables: [(&str, &str); N]) -> World {
    let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let world = World::still_with(Options {
        environment: environment.into(),
        ..Options::default()
    })
    .await;
    world.stack.chain.stand_still().await.unwrap();
    world
}

/// Mines a block at this time, and sets the stack's clock to it.
async fn mine_at(world: &World, seconds: u64) {
    world.stack.chain.mine_at(seconds).await.unwrap();
    world.set_clock(Timestamp::from_secs(seconds).unwrap());
}

async fn authorize(world: &World, agent: &TestAgent, units: u64) -> Value {
    world.authorize(agent, &body_of(world.offer(units))).await.ok()
}

fn settlement(authorized: &Value) -> &str {
    authorized["settlement_id"].as_str().unwrap()
}

fn authorization(authorized: &Value) -> &Value {
    &authorized["payment"]["payload"]["payload"]["authorization"]
}

/// Returns a payment's `validBefore`, in seconds since 1970.
fn valid_before(authorized: &Value) -> u64 {
    authorization(authorized)["validBefore"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

async fn receipt(world: &World, agent: &TestAgent, authorized: &Value) -> Value {
    let path = format!("/x402/settlements/{}", settlement(authorized));
    world.get(agent, &path).await.ok()
}

async fn status(world: &World, agent: &TestAgent, authorized: &Value) -> String {
    let receipt = receipt(world, agent, authorized).await;
    receipt["receipt_status"].as_str().unwrap().to_owned()
}

/// Returns the body of a complete request.
fn proof(hash: &str) -> Value {
    json!({"payment_response_header": "e30=", "tx_hash": hash})
}

/// Requests the reconciliation as an operator.
async fn mark(world: &World, agent: &TestAgent, authorized: &Value) -> Value {
    let path = format!(
        "/internal/agents/{}/settlements/{}/reconcile",
        agent.id,
        settlement(authorized)
    );
    let answer = world.operator_edits(Method::POST, &path, &json!({})).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    answer.body
}

#[tokio::test(flavor = "multi_thread")]
async fn unreported_payments_are_confirmed_by_reconcile() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(100)), vec![]).await;
    let paid = authorize(&world, &agent, 5_000).await;
    // Any account can submit the payment.
    let hash = world.settle(&paid).await;
    // Before the payment's deadline, the agent may still complete it, so reconcile does not check the payment.
    mine_at(&world, valid_before(&paid) - 1).await;
    assert_eq!(outcomes(&world).await, []);
    mine_at(&world, valid_before(&paid)).await;
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed]);
    let receipt = receipt(&world, &agent, &paid).await;
    assert_eq!(
        (&receipt["receipt_status"], &receipt["tx_hash"]),
        (&json!("confirmed"), &json!(hash))
    );
    let told = world.complete(&agent, settlement(&paid), &proof(&hash)).await.ok();
    assert_eq!(told["settled_at"], receipt["settled_at"]);
    let last = run(&world).await;
    assert!(last.outcomes().is_empty() && last.is_complete, "{last:?}");
}

/// Only a final block past the deadline releases a payment.
#[tokio::test(flavor = "multi_thread")]
async fn unused_payments_are_released_after_finality() {
    let world = world([]).await;
    let agent = world.agent(policy(10_000), vec![budget(10_000)]).await;
    let held = authorize(&world, &agent, 10_000).await;
    let more = body_of(world.offer(1));

    mine_at(&world, valid_before(&held) - 1).await;
    let early = run(&world).await;
    assert_eq!(early.outcomes(), []);
    assert_eq!(early.lag.secs(), 0);
    mark(&world, &agent, &held).await;
    assert_eq!(outcomes(&world).await, [Outcome::NotYet]);
    world.authorize(&agent, &more).await.refused(403, "policy_blocked");
    assert_eq!(status(&world, &agent, &held).await, "authorized");

    mine_at(&world, valid_before(&held)).await;
    assert_eq!(outcomes(&world).await, [Outcome::Released]);
    assert_eq!(status(&world, &agent, &held).await, "expired");
    let footprint = world.footprint().await;
    assert_eq!(
        (footprint.entries, footprint.total),
        (0, 0),
        "the day's and the budget's"
    );
    authorize(&world, &agent, 10_000).await;
    world.authorize(&agent, &more).await.refused(403, "policy_blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_in_the_last_valid_block_are_confirmed() {
    let world = world([("FINALITY_CONFIRMATIONS", "2")]).await;
    let agent = world.agent(policy(10_000), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    world.stack.chain.next_block_at(valid_before(&paid) - 1).await.unwrap();
    let hash = world.settle(&paid).await;
    // At the final block, the payment is unused and not due.
    assert_eq!(outcomes(&world).await, []);
    // The provider denies the payment, and the agent's clock is past the deadline.
    let denied = json!({"payment_response_header": {"payment-response": {"success": false, "transaction": ""}}});
    let answer = world.complete(&agent, settlement(&paid), &denied).await;
    answer.refused(422, "settlement_transaction_hash_required");
    world.pass(86_000);
    assert_eq!(outcomes(&world).await, []);
    let footprint = world.footprint().await;
    assert_eq!((footprint.entries, footprint.total), (1, 10_000));

    world.stack.chain.mine_at(valid_before(&paid) + 100).await.unwrap();
    world.stack.chain.mine(1).await.unwrap();
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed]);
    assert_eq!(receipt(&world, &agent, &paid).await["tx_hash"], json!(hash));
    assert_eq!(world.footprint().await.total, 10_000);
}

/// The transaction may be pending, so the error is retryable until the payment is released.
#[tokio::test(flavor = "multi_thread")]
async fn completing_with_an_unknown_transaction_is_retryable_until_release() {
    let world = world([("FINALITY_CONFIRMATIONS", "2")]).await;
    let agent = world.agent(policy(dollars(100)), vec![]).await;
    let (unpaid, paid) = (
        authorize(&world, &agent, 5_000).await,
        authorize(&world, &agent, 6_000).await,
    );
    let unknown = proof(&format!("0x{}", "ab".repeat(32)));
    let told = async |authorized: &Value, reason: &str| {
        let retryable = reason == "transaction_not_mined";
        let answer = world.complete(&agent, settlement(authorized), &unknown).await;
        assert_eq!(answer.headers.contains_key("retry-after"), retryable);
        let body = answer.refused(422, "onchain_settlement_not_verified");
        assert_eq!(
            (&body["reason"], &body["retryable"]),
            (&json!(reason), &json!(retryable)),
            "{body}"
        );
    };
    told(&unpaid, "transaction_not_mined").await;
    // Time on the stack's clock alone does not release the payment.
    let ends = valid_before(&unpaid);
    world.set_clock(Timestamp::from_secs(ends + 3_600).unwrap());
    told(&unpaid, "transaction_not_mined").await;
    // First the block of the last valid second becomes final, and then a later block.
    world.stack.chain.mine_at(ends - 1).await.unwrap();
    world.stack.chain.mine_at(ends).await.unwrap();
    assert_eq!(outcomes(&world).await, []);
    told(&unpaid, "transaction_not_mined").await;
    world.stack.chain.mine(1).await.unwrap();
    assert_eq!(outcomes(&world).await, [Outcome::Released, Outcome::Released]);
    told(&unpaid, "transaction_unknown").await;
    told(&paid, "transaction_unknown").await;
}

/// The stack's clock is past the deadline, but the final block is not.
#[tokio::test(flavor = "multi_thread")]
async fn the_system_clock_alone_releases_no_payment() {
    let world = world([("FINALITY_CONFIRMATIONS", "3")]).await;
    let agent = world.agent(policy(10_000), vec![]).await;
    let held = authorize(&world, &agent, 10_000).await;
    world.pass(80_000);
    assert_eq!(outcomes(&world).await, []);
    // The newest block is past the deadline, but the final block is not.
    mine_at(&world, valid_before(&held) + 1).await;
    world.stack.chain.mine_at(valid_before(&held) + 2).await.unwrap();
    assert_eq!(outcomes(&world).await, []);
    world.stack.chain.mine_at(valid_before(&held) + 3).await.unwrap();
    assert_eq!(outcomes(&world).await, [Outcome::Released]);
}

#[tokio::test(flavor = "multi_thread")]
async fn canceled_authorizations_are_released_when_due() {
    /// The code of a contract that returns ERC-1271's magic value to every call, so that any signature is valid.
    const SIGNS_ANYTHING: &str = "0x631626ba7e60e01b60005260206000f3";
    let world = world([]).await;
    let agent = world.agent(policy(10_000), vec![]).await;
    let held = authorize(&world, &agent, 10_000).await;
    let chain = &world.stack.chain;
    chain
        .call("anvil_setCode", json!([agent.wallet, SIGNS_ANYTHING]))
        .await
        .unwrap();
    let cancel = cancelAuthorizationCall {
        authorizer: agent.wallet.parse().unwrap(),
        nonce: authorization(&held)["nonce"].as_str().unwrap().parse::<B256>().unwrap(),
        signature: Bytes::from(vec![0; 65]),
    };
    chain.send(NETWORK.token().address, cancel.abi_encode()).await.unwrap();
    mine_at(&world, valid_before(&held)).await;
    assert_eq!(outcomes(&world).await, [Outcome::Released]);
    assert_eq!(status(&world, &agent, &held).await, "expired");
    authorize(&world, &agent, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_are_settled_correctly_despite_faulty_nodes() {
    let world = world([]).await;
    let (node, reconcile) = Node::between(&world).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let unpaid = authorize(&world, &agent, 20_000).await;
    reconcile.reconcile_all(TIME).await.unwrap();
    let hash = world.settle(&paid).await;
    mine_at(&world, valid_before(&unpaid)).await;
    let before = world.rows().await;

    let rows = [
        (Manner::Down, None),
        (Manner::Elsewhere, None),
        (Manner::Nonsense, Some(vec![Outcome::Failed; 2])),
        (Manner::Forgetful, Some(vec![Outcome::Failed; 2])),
        (Manner::Behind(2), Some(Vec::new())),
    ];
    for (manner, expected) in rows {
        node.set(manner);
        let run = reconcile.reconcile_all(TIME).await;
        assert_eq!(run.ok().map(|run| run.outcomes().to_vec()), expected, "{manner:?}");
        let mut changes = world.rows().await.changes_since(&before);
        // Only contract calls fail here, so the run may store its last checked block.
        changes.retain(|change| !change.starts_with("[\"RECONCILE\""));
        assert!(changes.is_empty(), "{manner:?}: {changes:#?}");
    }
    // The logs contradict the payment, so it stays authorized and is checked again after a minute.
    node.set(Manner::Forging);
    let forged = reconcile.reconcile_all(TIME).await.unwrap();
    assert_eq!(
        (
            forged.count_outcome(Outcome::Contradicted),
            forged.count_outcome(Outcome::Released)
        ),
        (1, 1),
        "{forged:?}"
    );
    assert_eq!(status(&world, &agent, &paid).await, "authorized");
    assert_eq!(forged.lag.secs(), 0, "what waits for a person is no lag");

    node.set(Manner::Honest);
    assert_eq!(reconcile.reconcile_all(TIME).await.unwrap().outcomes(), []);
    mine_at(&world, valid_before(&unpaid) + 60).await;
    assert_eq!(
        reconcile.reconcile_all(TIME).await.unwrap().outcomes(),
        [Outcome::Confirmed]
    );
    assert_eq!(receipt(&world, &agent, &paid).await["tx_hash"], json!(hash));
    assert_eq!(status(&world, &agent, &unpaid).await, "expired");
    assert_eq!(world.footprint().await.total, 10_000);
}

/// The node accepts ten calls a minute, which must suffice for any batch.
#[tokio::test(flavor = "multi_thread")]
async fn ten_node_calls_suffice_to_reconcile_a_batch() {
    const HOLDS: usize = 60;
    let world = world([("WATCH_CONFIRMATIONS", "1000")]).await;
    let (node, reconcile) = Node::between(&world).await;
    let agents = [
        world.agent(policy(dollars(1)), vec![]).await,
        world.agent(policy(dollars(1)), vec![]).await,
    ];
    let mut last = Value::Null;
    for n in 0..HOLDS {
        last = authorize(&world, &agents[n % 2], 1_000).await;
        if n % 3 == 0 {
            world.settle(&last).await;
        }
    }
    mine_at(&world, valid_before(&last)).await;
    // Three node calls are too few for any result.
    node.set(Manner::Scarce(3));
    let run = reconcile.reconcile_all(TIME).await;
    assert!(run.is_err() || run.unwrap().count_outcome(Outcome::Failed) == HOLDS);
    node.set(Manner::Scarce(10));
    let run = reconcile.reconcile_all(TIME).await.unwrap();
    let ended = (
        run.count_outcome(Outcome::Confirmed),
        run.count_outcome(Outcome::Released),
    );
    assert_eq!(ended, (HOLDS / 3, HOLDS / 3 * 2), "{run:?}");
}

/// The blocks of one agent's payments have more transfers than the node returns in a query.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_flooded_by_transfers_of_one_agent_delay_no_other_agent() {
    const FLOODED: usize = 60;
    let world = world([("WATCH_CONFIRMATIONS", "1000")]).await;
    let (node, reconcile) = Node::between(&world).await;
    let flooder = world.agent(policy(dollars(1)), vec![]).await;
    let other = world.agent(policy(dollars(1)), vec![]).await;
    let newest = async || {
        let head = world.stack.chain.call("eth_blockNumber", json!([])).await.unwrap();
        u64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let first = newest().await + 1;
    for _ in 0..FLOODED {
        let authorized = authorize(&world, &flooder, 1_000).await;
        world.settle(&authorized).await;
    }
    let last = newest().await;
    let paid = authorize(&world, &other, 1_000).await;
    world.settle(&paid).await;
    mine_at(&world, valid_before(&paid)).await;

    let flooded = |receipts| Manner::Flooded { first, last, receipts };
    node.set(flooded(true));
    let run = reconcile.reconcile_all(TIME).await.unwrap();
    let ended = (
        run.count_outcome(Outcome::Confirmed),
        run.count_outcome(Outcome::Failed),
    );
    assert_eq!(ended, (1, FLOODED), "{run:?}");
    assert_eq!(status(&world, &other, &paid).await, "confirmed");

    // The flooded agent's payments are confirmed by their receipts.
    node.set(flooded(false));
    mine_at(&world, valid_before(&paid) + 60).await;
    let run = reconcile.reconcile_all(TIME).await.unwrap();
    assert_eq!(run.count_outcome(Outcome::Confirmed), FLOODED, "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn disagreeing_nodes_settle_no_payment() {
    let world = world([]).await;
    let ([first, second], reconcile) = Node::endpoints(&world).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let unpaid = authorize(&world, &agent, 20_000).await;
    world.settle(&paid).await;
    mine_at(&world, valid_before(&unpaid)).await;
    let before = world.rows().await;

    // Each node alone would lead to a wrong result: a release of a made payment, or a payment that stays reserved.
    first.set(Manner::Claiming { used: false });
    second.set(Manner::Claiming { used: true });
    assert_eq!(
        reconcile.reconcile_all(TIME).await.unwrap().outcomes(),
        [Outcome::Failed; 2]
    );
    let mut changes = world.rows().await.changes_since(&before);
    changes.retain(|change| !change.starts_with("[\"RECONCILE\""));
    assert!(changes.is_empty(), "{changes:#?}");

    // If a node is down, only results that need both nodes wait.
    first.set(Manner::Honest);
    second.set(Manner::Down);
    let run = reconcile.reconcile_all(TIME).await.unwrap();
    assert_eq!(
        (
            run.count_outcome(Outcome::Confirmed),
            run.count_outcome(Outcome::Failed)
        ),
        (1, 1),
        "{run:?}"
    );
    second.set(Manner::Honest);
    mine_at(&world, valid_before(&unpaid) + 60).await;
    assert_eq!(
        reconcile.reconcile_all(TIME).await.unwrap().outcomes(),
        [Outcome::Released]
    );
    assert_eq!(world.footprint().await.total, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_holds_do_not_stop_a_reconcile_run() {
    let world = world([]).await;
    let (node, reconcile) = Node::between(&world).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let held = authorize(&world, &agent, 10_000).await;
    let damaged = authorize(&world, &agent, 20_000).await;
    mine_at(&world, valid_before(&damaged)).await;
    damage(&world, &agent, &damaged).await;
    let run = reconcile.reconcile_all(TIME).await.unwrap();
    assert_eq!(
        (run.count_outcome(Outcome::Released), run.count_outcome(Outcome::Failed)),
        (1, 1),
        "{run:?}"
    );
    assert_eq!(status(&world, &agent, &held).await, "expired");
    node.set(Manner::Down);
    assert!(reconcile.reconcile_all(TIME).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reconcile_runs_and_completions_settle_payments_once() {
    let world = World::conflicted().await;
    let agent = world.agent(policy(dollars(100)), vec![budget(dollars(100))]).await;
    let (mut unpaid, mut paid) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        unpaid.push(authorize(&world, &agent, 1_000).await);
        let authorized = authorize(&world, &agent, 10_000).await;
        let hash = world.settle(&authorized).await;
        paid.push((authorized, hash));
    }
    world.stack.chain.advance(400).await.unwrap();
    let completing = paid.iter().map(|(authorized, hash)| {
        let path = format!("/x402/settlements/{}/complete", settlement(authorized));
        let request = world.http.post(format!("{}{path}", world.stack.base_url));
        World::send(request.bearer_auth(&agent.key).json(&proof(hash)))
    });
    let completing = purser_tests::together(completing.collect());
    let (one, other, told) = tokio::join!(run(&world), run(&world), completing);
    for answer in told {
        assert_eq!(answer.ok()["receipt_status"], "confirmed");
    }
    let released = one.count_outcome(Outcome::Released) + other.count_outcome(Outcome::Released);
    assert_eq!(released, 6, "{one:?} {other:?}");
    for authorized in &unpaid {
        assert_eq!(status(&world, &agent, authorized).await, "expired");
    }
    let footprint = world.footprint().await;
    assert_eq!((footprint.entries, footprint.total), (12, 2 * 60_000), "{footprint:?}");
    assert!(run(&world).await.outcomes().is_empty(), "nothing is left");
}

/// The statement and the evidence file of a reversal show that the receipt is void.
#[tokio::test(flavor = "multi_thread")]
async fn a_reversal_has_a_statement_for_the_owner_and_the_agent() {
    let world = world([("WATCH_CONFIRMATIONS", "4")]).await;
    let (owner, agent, chain) = (world.person(&DEMO_OWNER), world.demo(), &world.stack.chain);
    let state = async || {
        assert_eq!(world.stack.publish_changes().await, 0);
        world.stack.events.sign_pending_statements(TIME).await.unwrap();
    };
    let paid = authorize(&world, &agent, 10_000).await;
    run(&world).await;
    let before = chain.snapshot().await.unwrap();
    let hash = world.settle(&paid).await;
    world.complete(&agent, settlement(&paid), &proof(&hash)).await.ok();
    state().await;
    chain.revert(&before).await.unwrap();
    chain.mine(5).await.unwrap();
    assert!(run(&world).await.outcomes().contains(&Outcome::ConfirmationReverted));
    state().await;

    let path = format!("/x402/settlements/{}/statement", settlement(&paid));
    let of_agent = world.call(Method::GET, &path, Some(&agent.key), None).await.ok();
    let path = |id: &Value| format!("/decisions/{}/statement", id.as_str().unwrap());
    let of_owner = world.person_gets(&owner, &path(&paid["transaction_id"])).await.ok();
    for member in ["receipt", "changes"] {
        assert_eq!(of_agent[member], of_owner[member]);
    }
    assert_eq!(of_agent["changes"].as_array().unwrap().len(), 1);
    let log = world.person_gets(&owner, "/decisions?result=take_back").await.ok();
    let reversal = path(&log["decisions"][0]["transaction_id"]);
    let reversal = world.person_gets(&owner, &reversal).await.ok();
    assert_eq!(reversal["statement"], of_agent["changes"][0]);

    let trust = world.call(Method::GET, "/log/trust", None, None).await.ok();
    let trust = Trust::parse(&trust.to_string()).unwrap();
    let mut file = json!({"decision": of_agent["decision"], "receipt": of_agent["receipt"], "changes": []});
    assert!(verify_evidence(&file.to_string(), &trust).unwrap().is_verified());
    file["changes"] = of_agent["changes"].clone();
    assert!(!verify_evidence(&file.to_string(), &trust).unwrap().is_verified());
}

#[tokio::test(flavor = "multi_thread")]
async fn vanished_confirmations_are_reverted_and_logged() {
    let world = world([("WATCH_CONFIRMATIONS", "4")]).await;
    let (owner, agent) = (world.person(&DEMO_OWNER), world.demo());
    let [again, never] = [
        authorize(&world, &agent, 10_000).await,
        authorize(&world, &agent, 20_000).await,
    ];
    let chain = &world.stack.chain;
    // Blocks are checked from the first run on.
    run(&world).await;
    let before = chain.snapshot().await.unwrap();
    for authorized in [&again, &never] {
        let hash = world.settle(authorized).await;
        let told = world.complete(&agent, settlement(authorized), &proof(&hash)).await.ok();
        assert_eq!(told["receipt_status"], "confirmed");
    }
    chain.revert(&before).await.unwrap();
    chain.mine(3).await.unwrap();
    // The block is not deep enough for its second check.
    assert_eq!(outcomes(&world).await, []);
    chain.mine(2).await.unwrap();
    let taken_back = run(&world).await;
    assert_eq!(
        taken_back.outcomes(),
        [
            Outcome::ConfirmationReverted,
            Outcome::NotYet,
            Outcome::ConfirmationReverted,
            Outcome::NotYet
        ]
    );
    for authorized in [&again, &never] {
        let receipt = receipt(&world, &agent, authorized).await;
        assert_eq!(
            (&receipt["receipt_status"], &receipt["tx_hash"], &receipt["settled_at"]),
            (&json!("authorized"), &Value::Null, &Value::Null)
        );
    }
    assert_eq!(world.footprint().await.total, 30_000, "it counts throughout");
    let log = world.person_gets(&owner, "/decisions?result=take_back").await.ok();
    let told: Vec<&str> = log["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|decision| {
            assert_eq!(
                (&decision["reason"], &decision["latency_ms"], &decision["error"]),
                (&json!("confirmation_vanished"), &Value::Null, &Value::Null)
            );
            decision["settlement_id"].as_str().unwrap()
        })
        .collect();
    assert_eq!(told.len(), 2);
    assert!(told.contains(&settlement(&again)) && told.contains(&settlement(&never)));
    let one = log["decisions"][0]["transaction_id"].as_str().unwrap();
    let path = format!("/agents/{}/decisions/{one}", agent.id);
    assert_eq!(world.person_gets(&owner, &path).await.ok()["result"], "take_back");

    // The payment is made again, in another block.
    let hash = world.settle(&again).await;
    mine_at(&world, valid_before(&never)).await;
    chain.mine(3).await.unwrap();
    let last = run(&world).await;
    assert_eq!(
        (
            last.count_outcome(Outcome::Confirmed),
            last.count_outcome(Outcome::Released)
        ),
        (1, 1)
    );
    assert_eq!(receipt(&world, &agent, &again).await["tx_hash"], json!(hash));
    assert_eq!(status(&world, &agent, &never).await, "expired");
    assert_eq!(world.footprint().await.total, 10_000);
}

/// The facilitator's first transaction was lost.
#[tokio::test(flavor = "multi_thread")]
async fn replacement_transactions_are_confirmed_in_the_same_run() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let chain = &world.stack.chain;
    run(&world).await;
    let before = chain.snapshot().await.unwrap();
    let first = world.settle(&paid).await;
    world.complete(&agent, settlement(&paid), &proof(&first)).await.ok();
    chain.revert(&before).await.unwrap();
    let batch: Address = world.stack.providers.batch_address.parse().unwrap();
    let calls = batch_of(NETWORK.token().address, vec![transfer_of(&paid)]);
    let second = chain.send(batch, calls).await.unwrap();
    assert_eq!(
        outcomes(&world).await,
        [Outcome::ConfirmationReverted, Outcome::Confirmed]
    );
    let receipt = receipt(&world, &agent, &paid).await;
    assert_eq!(
        (&receipt["receipt_status"], &receipt["tx_hash"]),
        (&json!("confirmed"), &json!(second))
    );
    assert_ne!(first, second);
}

/// A reorg makes a payment appear that was released. Reconcile and complete both confirm it.
#[tokio::test(flavor = "multi_thread")]
async fn payments_found_after_release_are_confirmed() {
    for by_mark in [true, false] {
        let world = world([]).await;
        let agent = world.agent(policy(10_000), vec![budget(10_000)]).await;
        let chain = &world.stack.chain;
        let before = chain.snapshot().await.unwrap();
        let paid = authorize(&world, &agent, 10_000).await;
        mine_at(&world, valid_before(&paid)).await;
        assert_eq!(outcomes(&world).await, [Outcome::Released]);
        authorize(&world, &agent, 9_000).await;

        chain.revert(&before).await.unwrap();
        let hash = world.settle(&paid).await;
        if by_mark {
            let marked = mark(&world, &agent, &paid).await;
            assert_eq!(marked["receipt_status"], "expired");
            let run = run(&world).await;
            assert_eq!(run.outcomes(), [Outcome::Confirmed]);
        } else {
            let told = world.complete(&agent, settlement(&paid), &proof(&hash)).await.ok();
            assert_eq!(
                (&told["receipt_status"], &told["confirmed_via"]),
                (&json!("confirmed"), &json!("onchain"))
            );
        }
        assert_eq!(receipt(&world, &agent, &paid).await["tx_hash"], json!(hash));
        let footprint = world.footprint().await;
        assert_eq!((footprint.entries, footprint.total), (4, 2 * 19_000), "{footprint:?}");
        // The payments exceed the cap, so no further payment fits.
        world
            .authorize(&agent, &body_of(world.offer(1)))
            .await
            .refused(403, "policy_blocked");
        world.edit(&agent, |agent| agent.rules.clear()).await;
        let full = world.authorize(&agent, &body_of(world.offer(1))).await;
        assert_eq!(full.refused(402, "daily_spend_limit_exceeded")["spend_today"], 19_000);
    }
}

/// Settlements that operators marked come first.
#[tokio::test(flavor = "multi_thread")]
async fn large_backlogs_are_reconciled_over_several_runs() {
    let world = world([("RECONCILE_MOST_SETTLEMENTS", "2")]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let mut held = Vec::new();
    for units in 1..=7 {
        held.push(authorize(&world, &agent, units).await);
    }
    assert_eq!(outcomes(&world).await, [], "none is due");

    mine_at(&world, valid_before(&held[6])).await;
    for marked in [3, 5] {
        mark(&world, &agent, &held[marked]).await;
    }
    let first = run(&world).await;
    assert_eq!(first.outcomes(), [Outcome::Released; 4], "the marked ones, and two");
    assert!(!first.is_complete);
    for marked in [3, 5] {
        assert_eq!(status(&world, &agent, &held[marked]).await, "expired");
    }
    let mut complete = Vec::new();
    for left in [1, 0] {
        let run = run(&world).await;
        complete.push(run.is_complete);
        assert_eq!(world.footprint().await.entries, left, "{run:?}");
    }
    assert_eq!(complete.last(), Some(&true));
    let idle = run(&world).await;
    assert!(idle.outcomes().is_empty() && idle.is_complete, "{idle:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_can_request_reconciliation_in_any_state() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let (_, never) = (world.settle(&paid).await, authorize(&world, &agent, 1).await);
    let marks = async || {
        let rows = world.scan("LedgerTable").await;
        rows.iter().filter(|row| row["pk"].as_s().unwrap() == "MARKS").count()
    };
    mark(&world, &agent, &paid).await;
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed], "long before it is due");
    assert_eq!(marks().await, 0);
    mark(&world, &agent, &paid).await;
    assert_eq!(outcomes(&world).await, [Outcome::Unchanged]);
    mine_at(&world, valid_before(&never)).await;
    run(&world).await;
    mark(&world, &agent, &never).await;
    assert_eq!(outcomes(&world).await, [Outcome::Unchanged]);
    assert_eq!(marks().await, 0);

    let (node, reconcile) = Node::between(&world).await;
    mark(&world, &agent, &paid).await;
    node.set(Manner::Nonsense);
    reconcile.reconcile_all(TIME).await.unwrap();
    node.set(Manner::Down);
    assert!(reconcile.reconcile_all(TIME).await.is_err());
    mark(&world, &agent, &never).await;
    assert!(reconcile.reconcile_all(TIME).await.is_err());
    assert_eq!(marks().await, 2);
    node.set(Manner::Honest);
    reconcile.reconcile_all(TIME).await.unwrap();
    assert_eq!(marks().await, 0);
}

async fn damage(world: &World, agent: &TestAgent, authorized: &Value) {
    let update = world.stack.db.update_item().table_name("LedgerTable");
    let update = update.key("pk", AttributeValue::S(format!("S#{}", agent.id)));
    let update = update.key("sk", AttributeValue::S(settlement(authorized).to_owned()));
    update.update_expression("REMOVE payto").send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_requests_stay_while_settlements_are_unreadable() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let [damaged, other] = [
        authorize(&world, &agent, 10_000).await,
        authorize(&world, &agent, 20_000).await,
    ];
    mark(&world, &agent, &damaged).await;
    mark(&world, &agent, &other).await;
    damage(&world, &agent, &damaged).await;
    for outcomes_of_run in [vec![Outcome::Failed, Outcome::NotYet], vec![Outcome::Failed]] {
        assert_eq!(outcomes(&world).await, outcomes_of_run);
        let rows = world.scan("LedgerTable").await;
        let marks: Vec<&str> = rows
            .iter()
            .filter(|row| row["pk"].as_s().unwrap() == "MARKS")
            .map(|row| row["sk"].as_s().unwrap().as_str())
            .collect();
        assert_eq!(marks, [format!("{}#{}", agent.id, settlement(&damaged))]);
    }
}

/// A reorg removed the block with the transaction, and the node returns no logs or forged logs.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_in_a_removed_block_is_kept_until_the_node_returns_true_logs() {
    for manner in [Manner::Logless, Manner::Forging] {
        let world = world([("WATCH_CONFIRMATIONS", "4")]).await;
        let (node, reconcile) = Node::between(&world).await;
        let agent = world.agent(policy(dollars(1)), vec![]).await;
        let paid = authorize(&world, &agent, 10_000).await;
        let chain = &world.stack.chain;
        reconcile.reconcile_all(TIME).await.unwrap();
        let before = chain.snapshot().await.unwrap();
        let first = world.settle(&paid).await;
        world.complete(&agent, settlement(&paid), &proof(&first)).await.ok();
        chain.revert(&before).await.unwrap();
        chain.mine(1).await.unwrap();
        let second = world.settle(&paid).await;
        chain.mine(6).await.unwrap();

        let claims = async || {
            let rows = world.scan("LedgerTable").await;
            rows.iter()
                .filter(|row| row["pk"].as_s().unwrap().starts_with("X#"))
                .count()
        };
        node.set(manner);
        let run = reconcile.reconcile_all(TIME).await;
        match manner {
            Manner::Logless => assert!(run.is_err(), "{run:?}"),
            _ => assert_eq!(run.unwrap().outcomes(), [Outcome::Contradicted]),
        }
        assert_eq!(claims().await, 1, "{manner:?}");
        assert_eq!(status(&world, &agent, &paid).await, "confirmed");

        node.set(Manner::Honest);
        mark(&world, &agent, &paid).await;
        reconcile.reconcile_all(TIME).await.unwrap();
        let receipt = receipt(&world, &agent, &paid).await;
        assert_eq!(
            (&receipt["receipt_status"], &receipt["tx_hash"]),
            (&json!("confirmed"), &json!(second)),
            "{manner:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_can_request_reconciliation_of_existing_settlements() {
    let world = World::start().await;
    let agent = world.demo();
    let paid = authorize(&world, &agent, 5_000).await;
    let path = |agent: &str, id: &str| format!("/internal/agents/{agent}/settlements/{id}/reconcile");
    let unknown = uuid::Uuid::new_v4().to_string();
    let (own, id) = (agent.id.to_string(), settlement(&paid));
    for (of, id) in [
        (&own, unknown.as_str()),
        (&unknown, id),
        (&own, "x"),
        (&"x".to_owned(), id),
    ] {
        let answer = world.operator_edits(Method::POST, &path(of, id), &json!({})).await;
        answer.refused(404, "not_found");
    }
    let refused = world.call(Method::POST, &path(&own, id), Some(&agent.key), None).await;
    refused.refused(401, "invalid_internal_token");
    let rows = world.scan("LedgerTable").await;
    assert!(
        rows.iter().all(|row| row["pk"].as_s().unwrap() != "MARKS"),
        "nothing was marked"
    );
    let marked = mark(&world, &agent, &paid).await;
    let expected = json!({
        "agent_id": own,
        "settlement_id": id,
        "receipt_status": "authorized",
        "reconcile_requested_at": marked["reconcile_requested_at"],
    });
    assert_eq!(marked, expected);
}

/// By proof, the transaction confirms only one of its payments (409 for the other).
#[tokio::test(flavor = "multi_thread")]
async fn batched_payments_are_confirmed_by_their_own_transfers() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let mut paid = Vec::new();
    for units in [10_000, 20_000, 30_000] {
        paid.push(authorize(&world, &agent, units).await);
    }
    let batch: Address = world.stack.providers.batch_address.parse().unwrap();
    let calls = batch_of(NETWORK.token().address, paid.iter().map(transfer_of).collect());
    let hash = world.stack.chain.send(batch, calls).await.unwrap();
    let complete = async |authorized: &Value| world.complete(&agent, settlement(authorized), &proof(&hash)).await;
    complete(&paid[0]).await.ok();
    complete(&paid[1])
        .await
        .refused(409, "settlement_transaction_already_used");
    mine_at(&world, valid_before(&paid[2])).await;
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed; 2]);
    for authorized in &paid {
        let receipt = receipt(&world, &agent, authorized).await;
        assert_eq!(
            (&receipt["receipt_status"], &receipt["tx_hash"]),
            (&json!("confirmed"), &json!(hash))
        );
        assert_eq!(complete(authorized).await.ok()["receipt_status"], "confirmed");
    }
    assert_eq!(world.footprint().await.total, 60_000);
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_reconcile_runs_settle_each_payment_once() {
    let world = world([]).await;
    let agents = [
        world.agent(policy(dollars(1)), vec![]).await,
        world.agent(policy(dollars(1)), vec![]).await,
    ];
    let mut held = Vec::new();
    for n in 0..40 {
        let agent = &agents[n % 2];
        let authorized = authorize(&world, agent, 1_000).await;
        if n % 4 < 2 {
            world.settle(&authorized).await;
        }
        held.push((n, authorized));
    }
    mine_at(&world, valid_before(&held[39].1)).await;
    let part = |index| {
        let reconcile = world.stack.reconcile.clone();
        let part = purser_local::Part::new(index, 4).unwrap();
        tokio::spawn(async move { reconcile.reconcile_part(part, TIME).await.unwrap() })
    };
    let mut counted = [0, 0];
    for run in [part(0), part(1), part(2), part(3)] {
        let run = run.await.unwrap();
        assert!(run.is_complete);
        counted[0] += run.count_outcome(Outcome::Confirmed);
        counted[1] += run.count_outcome(Outcome::Released);
        assert_eq!(
            run.outcomes().len(),
            run.count_outcome(Outcome::Confirmed) + run.count_outcome(Outcome::Released)
        );
    }
    assert_eq!(counted, [20, 20]);
    for (n, authorized) in &held {
        let expected = if n % 4 < 2 { "confirmed" } else { "expired" };
        assert_eq!(status(&world, &agents[n % 2], authorized).await, expected, "{n}");
    }
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}
