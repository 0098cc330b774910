//! Every signed payment ends as confirmed or expired, by evidence of the chain alone: over the real stack, with an
//! Anvil chain that is stopped, moved to the second, and reorganized.

mod node;

use alloy::primitives::{Address, B256, Bytes};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use node::{Manner, Node};
use purser_domain::{Duration as Length, Rule, RuleId, RuleKind, SpendPolicy, Timestamp};
use purser_local::{DEMO_OWNER, NETWORK, Options, Outcome, Run};
use purser_tests::{TestAgent, World, batch_of, body_of, dollars, transfer_of, units};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

sol! {
    function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature);
}

/// The timeout of a run in the cloud.
const TIME: Duration = Duration::from_secs(55);

async fn run(world: &World) -> Run {
    world.stack.reconcile.run(TIME).await.unwrap()
}

/// The outcomes of a run.
async fn outcomes(world: &World) -> Vec<Outcome> {
    run(world).await.outcomes().to_vec()
}

fn policy(max_per_day: u64) -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(max_per_day),
        require_approval_above: units(dollars(100)),
        ..SpendPolicy::column_defaults()
    }
}

fn budget(limit: u64) -> Rule {
    Rule {
        id: RuleId::from_uuid(uuid::Uuid::new_v4()),
        version: 1,
        kind: RuleKind::BudgetLimit {
            limit: units(limit),
            window: Length::from_secs_u32(3_600),
        },
    }
}

/// A stack with these variables, with a still clock and no interval mining.
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

/// Mines a block with that time, and moves the stack's clock there.
async fn mine_at(world: &World, seconds: u64) {
    world.stack.chain.mine_at(seconds).await.unwrap();
    world.set_clock(Timestamp::from_secs(seconds).unwrap());
}

/// Authorizes a payment of so many units; the answer.
async fn authorize(world: &World, agent: &TestAgent, units: u64) -> Value {
    world.authorize(agent, &body_of(world.offer(units))).await.ok()
}

fn settlement(authorized: &Value) -> &str {
    authorized["settlement_id"].as_str().unwrap()
}

fn authorization(authorized: &Value) -> &Value {
    &authorized["payment"]["payload"]["payload"]["authorization"]
}

/// `validBefore` of a payment, in seconds.
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

/// The body of `complete`.
fn proof(hash: &str) -> Value {
    json!({"payment_response_header": "e30=", "tx_hash": hash})
}

/// An operator's reconcile request.
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
async fn a_payment_that_nobody_reports_becomes_a_receipt_by_itself() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(100)), vec![]).await;
    let paid = authorize(&world, &agent, 5_000).await;
    assert_eq!(outcomes(&world).await, [Outcome::NotYet]);
    // By a stranger's transaction: whoever submits it, it pays.
    let hash = world.settle(&paid).await;
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed]);
    let receipt = receipt(&world, &agent, &paid).await;
    assert_eq!(
        (&receipt["receipt_status"], &receipt["tx_hash"]),
        (&json!("confirmed"), &json!(hash))
    );
    // What the agent sends later changes nothing.
    let told = world.complete(&agent, settlement(&paid), &proof(&hash)).await.ok();
    assert_eq!(told["settled_at"], receipt["settled_at"]);
    // Once it is deep enough, it is not checked any more.
    assert_eq!(outcomes(&world).await, [Outcome::WatchedOut]);
    let last = run(&world).await;
    assert!(last.outcomes().is_empty() && last.is_complete, "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_spend_is_given_back_by_the_first_final_block_past_its_time_and_not_before() {
    let world = world([]).await;
    let agent = world.agent(policy(10_000), vec![budget(10_000)]).await;
    let held = authorize(&world, &agent, 10_000).await;
    let more = body_of(world.offer(1));

    mine_at(&world, valid_before(&held) - 1).await;
    let early = run(&world).await;
    assert_eq!(early.outcomes(), [Outcome::NotYet]);
    assert_eq!(early.lag.secs(), 0);
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
    // The same room once more, and not more.
    authorize(&world, &agent, 10_000).await;
    world.authorize(&agent, &more).await.refused(403, "policy_blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_used_in_the_last_possible_block_is_never_freed_whatever_was_said_of_it() {
    let world = world([("FINALITY_CONFIRMATIONS", "2"), ("FINALITY_PATIENCE_SECONDS", "0")]).await;
    let agent = world.agent(policy(10_000), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    world.stack.chain.next_block_at(valid_before(&paid) - 1).await.unwrap();
    let hash = world.settle(&paid).await;
    // The final block is the one before: there it is unused.
    assert_eq!(outcomes(&world).await, [Outcome::NotYet]);
    // The provider denies it, and by the agent's clock it has long expired.
    let denied = json!({"payment_response_header": {"payment-response": {"success": false, "transaction": ""}}});
    let answer = world.complete(&agent, settlement(&paid), &denied).await;
    answer.refused(422, "settlement_transaction_hash_required");
    world.pass(86_000);
    assert_eq!(outcomes(&world).await, [Outcome::NotYet]);
    let footprint = world.footprint().await;
    assert_eq!((footprint.entries, footprint.total), (1, 10_000));

    world.stack.chain.mine_at(valid_before(&paid) + 100).await.unwrap();
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed]);
    assert_eq!(receipt(&world, &agent, &paid).await["tx_hash"], json!(hash));
    assert_eq!(world.footprint().await.total, 10_000);
}

/// It may be pending, so the answer is "not yet"; until no later block can contain it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_the_node_does_not_know_is_given_up_when_the_chain_has_passed_and_not_before() {
    let world = world([("FINALITY_CONFIRMATIONS", "2")]).await;
    let agent = world.agent(policy(dollars(100)), vec![]).await;
    let (unpaid, paid) = (
        authorize(&world, &agent, 5_000).await,
        authorize(&world, &agent, 6_000).await,
    );
    let unknown = proof(&format!("0x{}", "ab".repeat(32)));
    let told = async |authorized: &Value, status: u16, reason: &str| {
        let began = std::time::Instant::now();
        let answer = world.complete(&agent, settlement(authorized), &unknown).await;
        // The wait for a block that is not final yet does not apply to an unknown hash.
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
        let body = answer.refused(status, "onchain_settlement_not_verified");
        assert_eq!(
            (&body["reason"], &body["retryable"]),
            (&json!(reason), &json!(status == 503)),
            "{body}"
        );
    };
    told(&unpaid, 503, "transaction_not_mined").await;
    // Our clock is past its time: that proves nothing.
    let ends = valid_before(&unpaid);
    world.set_clock(Timestamp::from_secs(ends + 3_600).unwrap());
    told(&unpaid, 503, "transaction_not_mined").await;
    // The last second in which the chain accepts it is final; then a block of the next one comes, and is final.
    world.stack.chain.mine_at(ends - 1).await.unwrap();
    world.stack.chain.mine_at(ends).await.unwrap();
    told(&unpaid, 503, "transaction_not_mined").await;
    world.stack.chain.mine(1).await.unwrap();
    told(&unpaid, 422, "transaction_unknown").await;

    // It had not been reconciled so far; after expiry no block needs to be read.
    assert_eq!(status(&world, &agent, &unpaid).await, "authorized");
    assert_eq!(outcomes(&world).await, [Outcome::Released, Outcome::Released]);
    told(&unpaid, 422, "transaction_unknown").await;
    told(&paid, 422, "transaction_unknown").await;
}

/// As on a chain that is slower than our clock: the hold's time is over by ours, but not at the final block.
#[tokio::test(flavor = "multi_thread")]
async fn our_own_clock_releases_nothing() {
    let world = world([("FINALITY_CONFIRMATIONS", "3")]).await;
    let agent = world.agent(policy(10_000), vec![]).await;
    let held = authorize(&world, &agent, 10_000).await;
    world.pass(80_000);
    assert_eq!(outcomes(&world).await, [Outcome::NotYet]);
    // The newest block is past its time, and the final one two before it is not.
    mine_at(&world, valid_before(&held) + 1).await;
    world.stack.chain.mine_at(valid_before(&held) + 2).await.unwrap();
    assert_eq!(outcomes(&world).await, [Outcome::NotYet]);
    world.stack.chain.mine_at(valid_before(&held) + 3).await.unwrap();
    assert_eq!(outcomes(&world).await, [Outcome::Released]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_that_its_wallet_cancels_is_given_back_at_once() {
    /// Returns ERC-1271's magic value to every call: so anybody can sign for the wallet.
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
    assert_eq!(outcomes(&world).await, [Outcome::Released]);
    assert_eq!(status(&world, &agent, &held).await, "expired");
    authorize(&world, &agent, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_cannot_know_or_lies_about_changes_nothing_and_everything_ends_when_it_is_back() {
    let world = world([]).await;
    let (node, reconcile) = Node::between(&world).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let unpaid = authorize(&world, &agent, 20_000).await;
    reconcile.run(TIME).await.unwrap();
    let hash = world.settle(&paid).await;
    mine_at(&world, valid_before(&unpaid)).await;
    let before = world.rows().await;

    let rows = [
        (Manner::Down, None),
        (Manner::Elsewhere, None),
        (Manner::Nonsense, Some([Outcome::Failed; 2])),
        (Manner::Behind(2), Some([Outcome::NotYet; 2])),
    ];
    for (manner, expected) in rows {
        node.set(manner);
        let run = reconcile.run(TIME).await;
        assert_eq!(
            run.ok().as_ref().map(Run::outcomes),
            expected.as_ref().map(|all| &all[..]),
            "{manner:?}"
        );
        let changes = world.rows().await.changes_since(&before);
        assert!(changes.is_empty(), "{manner:?}: {changes:#?}");
    }
    // A receipt that does not match the payment is not believed either, and the hold stays.
    node.set(Manner::Forging);
    let forged = reconcile.run(TIME).await.unwrap();
    assert_eq!(
        (forged.count(Outcome::Contradicted), forged.count(Outcome::Released)),
        (1, 1),
        "{forged:?}"
    );
    assert_eq!(status(&world, &agent, &paid).await, "authorized");
    assert_eq!(forged.lag.secs(), 0, "what waits for a person is no lag");

    node.set(Manner::Honest);
    assert_eq!(reconcile.run(TIME).await.unwrap().outcomes(), [Outcome::Confirmed]);
    assert_eq!(receipt(&world, &agent, &paid).await["tx_hash"], json!(hash));
    assert_eq!(status(&world, &agent, &unpaid).await, "expired");
    assert_eq!(world.footprint().await.total, 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_in_the_middle_ends_the_run_and_a_hold_that_fails_alone_does_not() {
    let world = world([]).await;
    let (node, reconcile) = Node::between(&world).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let held = authorize(&world, &agent, 10_000).await;
    let damaged = authorize(&world, &agent, 20_000).await;
    mine_at(&world, valid_before(&damaged)).await;
    let update = world
        .stack
        .db
        .update_item()
        .table_name("LedgerTable")
        .key(
            "pk",
            aws_sdk_dynamodb::types::AttributeValue::S(format!("A#{}", agent.id)),
        )
        .key(
            "sk",
            aws_sdk_dynamodb::types::AttributeValue::S(format!("S#{}", settlement(&damaged))),
        )
        .update_expression("REMOVE payto");
    update.send().await.unwrap();
    let run = reconcile.run(TIME).await.unwrap();
    assert_eq!(
        (run.count(Outcome::Released), run.count(Outcome::Failed)),
        (1, 1),
        "{run:?}"
    );
    assert_eq!(status(&world, &agent, &held).await, "expired");
    node.set(Manner::Down);
    assert!(reconcile.run(TIME).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_and_completions_at_once_end_each_payment_once() {
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
    let released = one.count(Outcome::Released) + other.count(Outcome::Released);
    assert_eq!(released, 6, "{one:?} {other:?}");
    for authorized in &unpaid {
        assert_eq!(status(&world, &agent, authorized).await, "expired");
    }
    let footprint = world.footprint().await;
    assert_eq!((footprint.entries, footprint.total), (12, 2 * 60_000), "{footprint:?}");
    run(&world).await;
    assert!(run(&world).await.outcomes().is_empty(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_that_vanishes_is_taken_back_and_told_and_then_made_anew_or_released() {
    let world = world([("WATCH_CONFIRMATIONS", "4")]).await;
    let (owner, agent) = (world.person(&DEMO_OWNER), world.demo());
    let [again, never] = [
        authorize(&world, &agent, 10_000).await,
        authorize(&world, &agent, 20_000).await,
    ];
    let chain = &world.stack.chain;
    let before = chain.snapshot().await.unwrap();
    for authorized in [&again, &never] {
        let hash = world.settle(authorized).await;
        let told = world.complete(&agent, settlement(authorized), &proof(&hash)).await.ok();
        assert_eq!(told["receipt_status"], "confirmed");
    }
    chain.revert(&before).await.unwrap();
    chain.mine(3).await.unwrap();
    // Not deep enough yet to end either watch.
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

    // The same transaction may pay again, in another block: its claim is free.
    let hash = world.settle(&again).await;
    let anew = run(&world).await;
    assert_eq!((anew.count(Outcome::Confirmed), anew.count(Outcome::NotYet)), (1, 1));
    assert_eq!(receipt(&world, &agent, &again).await["tx_hash"], json!(hash));
    mine_at(&world, valid_before(&never)).await;
    chain.mine(3).await.unwrap();
    let last = run(&world).await;
    assert_eq!((last.count(Outcome::Released), last.count(Outcome::WatchedOut)), (1, 1));
    assert_eq!(status(&world, &agent, &never).await, "expired");
    assert_eq!(world.footprint().await.total, 10_000);
}

/// A facilitator whose transaction was lost sends another.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_whose_payment_was_made_by_another_transaction_is_made_anew_in_the_same_run() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let chain = &world.stack.chain;
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

/// Released on a chain that was then replaced by one on which it was paid: found by a reconcile request, and by a
/// proof.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_turns_up_after_its_release_is_confirmed_and_counted() {
    for by_mark in [true, false] {
        let world = world([]).await;
        let agent = world.agent(policy(10_000), vec![budget(10_000)]).await;
        let chain = &world.stack.chain;
        let before = chain.snapshot().await.unwrap();
        let paid = authorize(&world, &agent, 10_000).await;
        mine_at(&world, valid_before(&paid)).await;
        assert_eq!(outcomes(&world).await, [Outcome::Released]);
        // The room is used meanwhile.
        authorize(&world, &agent, 9_000).await;

        chain.revert(&before).await.unwrap();
        let hash = world.settle(&paid).await;
        if by_mark {
            let marked = mark(&world, &agent, &paid).await;
            assert_eq!(marked["receipt_status"], "expired");
            let run = run(&world).await;
            assert_eq!(
                run.outcomes(),
                [Outcome::Confirmed, Outcome::NotYet],
                "what is marked comes first"
            );
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
        // Above the cap, so nothing fits, and the answer has the amount that counts.
        world
            .authorize(&agent, &body_of(world.offer(1)))
            .await
            .refused(403, "policy_blocked");
        world.edit(&agent, |agent| agent.rules.clear()).await;
        let full = world.authorize(&agent, &body_of(world.offer(1))).await;
        assert_eq!(full.refused(402, "daily_spend_limit_exceeded")["spend_today"], 19_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_holds_than_a_run_takes_end_over_several_runs_and_marked_ones_first() {
    let world = world([("RECONCILE_MOST_SETTLEMENTS", "2")]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let mut held = Vec::new();
    for units in 1..=7 {
        held.push(authorize(&world, &agent, units).await);
    }
    // None of them can be decided yet: each is checked in its turn all the same.
    let mut looks = 0;
    for _ in 0..4 {
        let run = run(&world).await;
        assert_eq!(run.outcomes(), [Outcome::NotYet; 2]);
        looks += 2;
    }
    assert!(looks > held.len());

    mine_at(&world, valid_before(&held[6])).await;
    for marked in [3, 5] {
        mark(&world, &agent, &held[marked]).await;
    }
    let first = run(&world).await;
    assert_eq!(first.outcomes(), [Outcome::Released; 2]);
    assert!(!first.is_complete);
    for (index, authorized) in held.iter().enumerate() {
        let expected = if [3, 5].contains(&index) {
            "expired"
        } else {
            "authorized"
        };
        assert_eq!(status(&world, &agent, authorized).await, expected, "{index}");
    }
    let mut complete = Vec::new();
    for left in [3, 1, 0] {
        let run = run(&world).await;
        complete.push(run.is_complete);
        assert_eq!(world.footprint().await.entries, left, "{run:?}");
    }
    assert_eq!(complete.last(), Some(&true));
    let idle = run(&world).await;
    assert!(idle.outcomes().is_empty() && idle.is_complete, "{idle:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_for_any_state_and_gone_when_it_is_done() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = authorize(&world, &agent, 10_000).await;
    let (_, never) = (world.settle(&paid).await, authorize(&world, &agent, 1).await);
    let marks = async || {
        let rows = world.scan("LedgerTable").await;
        rows.iter().filter(|row| row["pk"].as_s().unwrap() == "MARKS").count()
    };
    mark(&world, &agent, &paid).await;
    assert_eq!(outcomes(&world).await, [Outcome::Confirmed, Outcome::NotYet]);
    assert_eq!(marks().await, 0);
    run(&world).await;
    // Long confirmed, and out of the index: it is checked again, and stays confirmed.
    mark(&world, &agent, &paid).await;
    assert_eq!(outcomes(&world).await, [Outcome::WatchedOut, Outcome::NotYet]);
    mine_at(&world, valid_before(&never)).await;
    run(&world).await;
    mark(&world, &agent, &never).await;
    assert_eq!(outcomes(&world).await, [Outcome::Unchanged]);
    assert_eq!(marks().await, 0);

    // While the node is down a reconcile request stays.
    let (node, reconcile) = Node::between(&world).await;
    mark(&world, &agent, &paid).await;
    node.set(Manner::Nonsense);
    reconcile.run(TIME).await.unwrap();
    node.set(Manner::Down);
    assert!(reconcile.run(TIME).await.is_err());
    assert_eq!(
        marks().await,
        0,
        "what was seen before needs no contract to be seen again"
    );
    mark(&world, &agent, &never).await;
    assert!(reconcile.run(TIME).await.is_err());
    assert_eq!(marks().await, 1);
    node.set(Manner::Honest);
    reconcile.run(TIME).await.unwrap();
    assert_eq!(marks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_mark_and_only_what_there_is() {
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

/// One transaction confirms one settlement (`docs/decisions.md` §6): the others of a batch still count, and are
/// reported.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_payments_in_one_transaction_one_is_confirmed_and_the_others_stay() {
    let world = world([]).await;
    let agent = world.agent(policy(dollars(1)), vec![]).await;
    let paid = [
        authorize(&world, &agent, 10_000).await,
        authorize(&world, &agent, 20_000).await,
    ];
    let batch: Address = world.stack.providers.batch_address.parse().unwrap();
    let calls = batch_of(NETWORK.token().address, paid.iter().map(transfer_of).collect());
    world.stack.chain.send(batch, calls).await.unwrap();
    let first = run(&world).await;
    assert_eq!(
        (first.count(Outcome::Confirmed), first.count(Outcome::TransactionUsed)),
        (1, 1)
    );
    mine_at(&world, valid_before(&paid[1]) + 3_600).await;
    let later = run(&world).await;
    assert_eq!(later.count(Outcome::Released), 0);
    assert_eq!(later.lag.secs(), 0, "nobody waits for the chain");
    assert_eq!(world.footprint().await.total, 30_000);
}
