//! Makes concurrent calls over a database with transaction conflicts: no limit is exceeded, and no call gets a 5xx.

use alloy::primitives::Address;
use purser_domain::{ApprovalId, SpendPolicy};
use purser_local::NETWORK;
use purser_store::{ApprovalDecision, ResolveResult};
use purser_tests::{
    Answer, World, as_repeated, authorizing, batch_of, body_of, dollars, fresh_key, together, transfer_of, units,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The number of racing callers.
const RACERS: usize = 64;

/// Counts the responses by status and slug.
fn tally(answers: &[Answer]) -> BTreeMap<(u16, &str), usize> {
    let mut tally = BTreeMap::new();
    for answer in answers {
        *tally.entry((answer.status, answer.slug())).or_default() += 1;
    }
    tally
}

fn with_key(body: &Value, key: &str) -> Value {
    let mut body = body.clone();
    body["idempotency_key"] = key.into();
    body
}

fn roomy() -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(dollars(1_000)),
        require_approval_above: units(dollars(50)),
        ..SpendPolicy::spec_defaults()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_idempotency_key_creates_one_settlement() {
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let body = body_of(world.offer(dollars(1)));
    let answers = together((0..RACERS).map(|_| authorizing(&world, &agent, body.clone())).collect()).await;

    let bodies: BTreeSet<String> = answers
        .iter()
        .map(|answer| as_repeated(&answer.clone().ok()).to_string())
        .collect();
    assert_eq!(bodies.len(), 1, "the same answer for all");
    let fresh = answers
        .iter()
        .filter(|answer| !answer.headers.contains_key("idempotent-replayed"))
        .count();
    assert_eq!(fresh, 1, "one did it, the rest were told");
    let after = world.footprint().await;
    assert_eq!(
        (after.settlements, after.entries, after.keys, after.total),
        (1, 1, 1, dollars(1))
    );
    assert!(world.proxy.as_ref().unwrap().conflicts() > 0, "transactions did meet");
}

#[tokio::test(flavor = "multi_thread")]
async fn different_bodies_with_one_idempotency_key_conflict() {
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let key = fresh_key();
    let bodies = [1, 2].map(|price| with_key(&body_of(world.offer(dollars(price))), &key));
    let answers = together(
        (0..RACERS)
            .map(|n| authorizing(&world, &agent, bodies[n % 2].clone()))
            .collect(),
    )
    .await;

    let reused = (409, "idempotency_key_reused_for_different_request");
    assert_eq!(
        tally(&answers),
        BTreeMap::from([((200, ""), RACERS / 2), (reused, RACERS / 2)])
    );
    let settlements: BTreeSet<String> = answers
        .iter()
        .map(|answer| answer.body["settlement_id"].to_string())
        .collect();
    assert_eq!(settlements.len(), 1, "winners and losers name the same settlement");
    assert_eq!(world.footprint().await.settlements, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_for_forty_payments_allows_exactly_forty() {
    let world = World::conflicted().await;
    let policy = SpendPolicy {
        max_per_day: units(dollars(40)),
        ..roomy()
    };
    let agent = world.agent(policy, vec![]).await;
    let offer = world.offer(dollars(1));
    let answers = together(
        (0..RACERS)
            .map(|_| authorizing(&world, &agent, body_of(offer.clone())))
            .collect(),
    )
    .await;

    let over = (402, "daily_spend_limit_exceeded");
    assert_eq!(tally(&answers), BTreeMap::from([((200, ""), 40), (over, RACERS - 40)]));
    for answer in answers.iter().filter(|answer| answer.status == 402) {
        assert_eq!(
            answer.body["spend_today"],
            dollars(40),
            "a denial is only given when it is true"
        );
    }
    let after = world.footprint().await;
    assert_eq!((after.settlements, after.entries, after.total), (40, 40, dollars(40)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_approval_is_executed_once() {
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let body = body_of(world.offer(dollars(60)));
    let asked = world.authorize(&agent, &body).await.refused(402, "approval_required");
    let approval = ApprovalId::parse(asked["approval_id"].as_str().unwrap()).unwrap();
    let resolved = world
        .stack
        .ledger
        .resolve_approval(
            approval,
            ApprovalDecision::Approve,
            &world.ruling(),
            &purser_testkit::sample::audit(),
        )
        .await
        .unwrap();
    assert!(matches!(resolved, ResolveResult::Done(_)));

    // Each retry has a new idempotency key and shares the approval.
    let mut retry = body;
    retry["approval_id"] = approval.to_string().into();
    let answers = together(
        (0..RACERS)
            .map(|_| authorizing(&world, &agent, with_key(&retry, &fresh_key())))
            .collect(),
    )
    .await;

    assert_eq!(
        tally(&answers),
        BTreeMap::from([((200, ""), 1), ((409, "idempotent_replay"), RACERS - 1)])
    );
    let after = world.footprint().await;
    assert_eq!((after.settlements, after.total), (1, dollars(60)));
    assert_eq!(after.approvals, BTreeMap::from([("executed".to_owned(), 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_requests_create_one_approval() {
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let offer = world.offer(dollars(60));
    let answers = together(
        (0..RACERS)
            .map(|_| authorizing(&world, &agent, body_of(offer.clone())))
            .collect(),
    )
    .await;
    let approvals: BTreeSet<String> = answers
        .iter()
        .map(|answer| answer.body["approval_id"].to_string())
        .collect();
    assert_eq!(tally(&answers), BTreeMap::from([((402, "approval_required"), RACERS)]));
    assert_eq!(approvals.len(), 1);
    let after = world.footprint().await;
    assert_eq!(
        (after.settlements, after.entries, after.total),
        (0, 0, 0),
        "a question reserves nothing"
    );
    assert_eq!(after.approvals, BTreeMap::from([("pending".to_owned(), 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_transaction_confirms_only_one_settlement() {
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let offer = world.offer(1_000);
    let authorized = together(
        (0..RACERS)
            .map(|_| authorizing(&world, &agent, body_of(offer.clone())))
            .collect(),
    )
    .await;
    let authorized: Vec<Value> = authorized.into_iter().map(Answer::ok).collect();

    let calls = authorized.iter().map(transfer_of).collect();
    let batch: Address = world.stack.providers.batch_address.parse().unwrap();
    let hash = world
        .stack
        .chain
        .send(batch, batch_of(NETWORK.token().address, calls))
        .await
        .unwrap();

    let completing = |settlement: &Value| {
        let path = format!(
            "{}/x402/settlements/{}/complete",
            world.stack.base_url,
            settlement["settlement_id"].as_str().unwrap()
        );
        let proof = json!({"payment_response_header": {"payment-response": {"success": true, "transaction": hash}}, "tx_hash": hash});
        World::send(world.http.post(path).bearer_auth(&agent.key).json(&proof))
    };
    let answers = together(authorized.iter().map(completing).collect()).await;
    let used = (409, "settlement_transaction_already_used");
    assert_eq!(tally(&answers), BTreeMap::from([((200, ""), 1), (used, RACERS - 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_completions_return_the_same_receipt() {
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let authorized = world.authorize(&agent, &body_of(world.offer(1_000))).await.ok();
    let hash = world.settle(&authorized).await;
    let path = format!(
        "{}/x402/settlements/{}/complete",
        world.stack.base_url,
        authorized["settlement_id"].as_str().unwrap()
    );
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    let completing = || World::send(world.http.post(&path).bearer_auth(&agent.key).json(&proof));
    let answers = together((0..RACERS).map(|_| completing()).collect()).await;
    let rows: BTreeSet<String> = answers.into_iter().map(|answer| answer.ok().to_string()).collect();
    assert_eq!(rows.len(), 1, "the same row for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_never_exceed_the_approval_limit() {
    const MAY_WAIT: usize = 20;
    let world = World::conflicted().await;
    let agent = world.agent(roomy(), vec![]).await;
    let bodies: Vec<Value> = (0..40).map(|n| body_of(world.offer(dollars(60) + n))).collect();
    let asking = || {
        together(
            bodies
                .iter()
                .map(|body| authorizing(&world, &agent, body.clone()))
                .collect(),
        )
    };
    let (asked, refused) = ((402, "approval_required"), (403, "policy_blocked"));
    let answers = asking().await;
    assert_eq!(
        tally(&answers),
        BTreeMap::from([(asked, MAY_WAIT), (refused, 40 - MAY_WAIT)])
    );
    for answer in answers.iter().filter(|answer| answer.status == 403) {
        assert_eq!(answer.body["decision"]["reason"], "too_many_open_approvals");
    }
    let after = world.footprint().await;
    assert_eq!(after.approvals, BTreeMap::from([("pending".to_owned(), MAY_WAIT)]));
    assert_eq!(
        (after.settlements, after.keys),
        (0, MAY_WAIT),
        "a refusal binds no key, and nothing is reserved"
    );

    let again = asking().await;
    let ids = |answers: &[Answer]| -> BTreeSet<String> {
        let waiting = answers.iter().filter(|answer| answer.status == 402);
        waiting.map(|answer| answer.body["approval_id"].to_string()).collect()
    };
    assert_eq!((tally(&again), ids(&again)), (tally(&answers), ids(&answers)));
    for id in ids(&answers).iter().take(7) {
        world.resolve(id.trim_matches('"'), ApprovalDecision::Reject).await;
    }
    let answers = asking().await;
    let rejected = answers
        .iter()
        .filter(|answer| answer.body["decision"]["reason"] == "approval_rejected");
    assert_eq!(rejected.count(), 7);
    assert_eq!(tally(&answers).get(&asked), Some(&MAY_WAIT));
}
