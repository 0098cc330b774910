//! Tests approvals from the escalation to the executed call, with lost responses and at the exact times.

use purser_domain::{Duration, SpendPolicy, Timestamp};
use purser_local::DEMO_STRANGER;
use purser_store::ApprovalDecision;
use purser_tests::{TestAgent, World, as_repeated, body_of, dollars, fresh_key, units};
use serde_json::{Value, json};
use std::time::{self, Instant};

fn asking() -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(dollars(1_000)),
        require_approval_above: units(dollars(5)),
        ..SpendPolicy::spec_defaults()
    }
}

async fn poll(world: &World, agent: &TestAgent, id: &str) -> Value {
    world.get(agent, &format!("/approvals/{id}")).await.ok()
}

fn carrying(body: &Value, approval: &str) -> Value {
    let mut body = body.clone();
    body["approval_id"] = approval.into();
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_calls_are_paid_exactly_once() {
    let world = World::start().await;
    let agent = world.agent(asking(), vec![]).await;
    let body = body_of(world.offer(dollars(6)));
    let asked = world.authorize(&agent, &body).await.refused(402, "approval_required");
    let id = asked["approval_id"].as_str().unwrap();

    let pending = poll(&world, &agent, id).await;
    assert_eq!(
        (&pending["status"], &pending["resolved_at"], &pending["settlement_id"]),
        (&json!("pending"), &Value::Null, &Value::Null)
    );
    assert_eq!(
        (&pending["amount_units"], &pending["transaction_id"]),
        (&json!(dollars(6)), &asked["transaction_id"])
    );
    // The same idempotency key returns the same decision. Another key makes a new decision with the same approval.
    let again = world.authorize(&agent, &body).await.refused(402, "approval_required");
    assert_eq!(
        (&again["approval_id"], &again["transaction_id"]),
        (&asked["approval_id"], &asked["transaction_id"])
    );
    let mut joined = body.clone();
    joined["idempotency_key"] = fresh_key().into();
    let first = world.authorize(&agent, &joined).await.refused(402, "approval_required");
    let second = world.authorize(&agent, &joined).await.refused(402, "approval_required");
    assert_eq!(
        (&first["approval_id"], &first["transaction_id"]),
        (&asked["approval_id"], &second["transaction_id"])
    );
    assert_ne!(first["transaction_id"], asked["transaction_id"]);
    world
        .authorize(&agent, &carrying(&body, id))
        .await
        .refused(402, "approval_required");

    let mut preflight = carrying(&body, id);
    preflight["replay_key"] = fresh_key().into();
    let foreseen = async || {
        let told = world.post(&agent, "/x402/check", &preflight).await.ok();
        (told["result"].clone(), told["reason"].clone())
    };
    assert_eq!(foreseen().await, (json!("escalate"), json!("approval_required")));
    world.resolve(id, ApprovalDecision::Approve).await;
    assert_eq!(foreseen().await, (json!("allow"), json!("x402_authorized")));
    assert_eq!(poll(&world, &agent, id).await["status"], "approved");
    world.authorize(&agent, &body).await.refused(402, "approval_required");
    let authorized = world.authorize(&agent, &carrying(&body, id)).await.ok();
    let executed = poll(&world, &agent, id).await;
    assert_eq!(
        (&executed["status"], &executed["settlement_id"]),
        (&json!("executed"), &authorized["settlement_id"])
    );

    world
        .post(&agent, "/x402/check", &preflight)
        .await
        .refused(409, "idempotent_replay");
    let replay = world
        .authorize(&agent, &preflight)
        .await
        .refused(409, "idempotent_replay");
    assert_eq!(
        (&replay["approval_id"], &replay["settlement_id"]),
        (&json!(id), &authorized["settlement_id"])
    );
    // The response was lost, so the agent repeats the request without the approval's id.
    let again = world.authorize(&agent, &body).await.ok();
    assert_eq!(as_repeated(&again), as_repeated(&authorized));
    assert_eq!(world.footprint().await.settlements, 1);

    // The approval is used up, so the same call needs a new one.
    let mut next = body.clone();
    next["idempotency_key"] = fresh_key().into();
    let next = world.authorize(&agent, &next).await.refused(402, "approval_required");
    assert_ne!(next["approval_id"], asked["approval_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_with_an_approval_predicts_the_authorization() {
    let world = World::still().await;
    let agent = world.agent(asking(), vec![]).await;
    let other = world.agent(asking(), vec![]).await;
    let both = |amount: u64| {
        let mut body = body_of(world.offer(amount));
        body["replay_key"] = fresh_key().into();
        body
    };
    let (body, dearer) = (both(dollars(6)), both(dollars(7)));
    let ask = async |body: &Value| {
        let asked = world.authorize(&agent, body).await.refused(402, "approval_required");
        asked["approval_id"].as_str().unwrap().to_owned()
    };
    let (approved, rejected) = (ask(&body).await, ask(&dearer).await);
    world.resolve(&approved, ApprovalDecision::Approve).await;
    world.resolve(&rejected, ApprovalDecision::Reject).await;
    let check = async |agent: &TestAgent, body: &Value, approval: &str| {
        let mut body = carrying(body, approval);
        body["replay_key"] = fresh_key().into();
        world.post(agent, "/x402/check", &body).await
    };
    for (body, approval, reason) in [
        (&dearer, &rejected, "approval_rejected"),
        (&dearer, &approved, "approval_request_mismatch"),
    ] {
        let foreseen = check(&agent, body, approval).await.ok();
        let decided = world.authorize(&agent, &carrying(body, approval)).await;
        let decided = decided.refused(403, "policy_blocked")["decision"].clone();
        for name in ["result", "reason", "rule_triggered", "checks"] {
            assert_eq!(foreseen["decision"][name], decided[name], "{reason}");
        }
        assert_eq!(
            (&foreseen["result"], &foreseen["reason"]),
            (&json!("block"), &json!(reason))
        );
    }
    check(&other, &body, &approved).await.refused(404, "not_found");
    check(&agent, &body, &fresh_key()).await.refused(404, "not_found");
    let mut unknown = carrying(&body, &approved);
    unknown["approvalId"] = json!(approved);
    let refused = world.post(&agent, "/x402/check", &unknown).await;
    assert_eq!(
        refused.refused(400, "invalid_request")["details"][0]["path"],
        "/approvalId"
    );
    world.set_clock(world.now().after(Duration::DAY));
    let late = check(&agent, &body, &approved).await.ok();
    assert_eq!(late["reason"], "approval_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_of_confirmed_payments_sign_nothing() {
    let world = World::still().await;
    let agent = world.agent(asking(), vec![]).await;
    let body = body_of(world.offer(dollars(1)));
    let first = world.authorize(&agent, &body).await.ok();
    let proof = json!({"payment_response_header": "e30=", "tx_hash": world.settle(&first).await});
    let settlement = first["settlement_id"].as_str().unwrap();
    world.complete(&agent, settlement, &proof).await.ok();

    let mut expected = first.clone();
    expected["payment"] = Value::Null;
    expected["receipt_status"] = json!("confirmed");
    let again = world.authorize(&agent, &body).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.ok(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_request_stays_open_for_a_day() {
    let world = World::still().await;
    let agent = world.agent(asking(), vec![]).await;
    let start = world.now();
    let body = body_of(world.offer(dollars(6)));
    let asked = world.authorize(&agent, &body).await.refused(402, "approval_required");
    let id = asked["approval_id"].as_str().unwrap();
    world.resolve(id, ApprovalDecision::Approve).await;

    let end = start.after(Duration::DAY);
    world.set_clock(Timestamp::from_micros(end.micros() - 1).unwrap());
    assert_eq!(poll(&world, &agent, id).await["status"], "approved");
    world.set_clock(end);
    assert_eq!(poll(&world, &agent, id).await["status"], "expired");
    let refused = world
        .authorize(&agent, &carrying(&body, id))
        .await
        .refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "approval_expired");
    assert_eq!(world.footprint().await.settlements, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_of_expired_payments_sign_nothing() {
    let world = World::still().await;
    let agent = world.agent(asking(), vec![]).await;
    let body = body_of(world.offer(dollars(1)));
    let first = world.authorize(&agent, &body).await.ok();
    // The payment expires at a whole second, after the provider's timeout of 300 seconds.
    let deadline = Timestamp::from_secs(world.now().secs())
        .unwrap()
        .after(Duration::from_secs_u32(300));
    assert_eq!(first["expires_at"], deadline.to_string());
    world.set_clock(Timestamp::from_micros(deadline.micros() - 1).unwrap());
    let again = world.authorize(&agent, &body).await.ok();
    assert_eq!(as_repeated(&again), as_repeated(&first));

    world.set_clock(deadline);
    let late = world.authorize(&agent, &body).await;
    assert_eq!(late.headers["idempotent-replayed"], "true");
    let late = late.ok();
    assert_eq!(
        (&late["payment"], &late["receipt_status"]),
        (&Value::Null, &json!("authorized"))
    );
    assert_eq!(late["settlement_id"], first["settlement_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_pending_approvals_block_an_agent() {
    let world = World::still().await;
    let agent = world.agent(asking(), vec![]).await;
    let other = world.agent(asking(), vec![]).await;
    let question = |n: u64| body_of(world.offer(dollars(6) + n));
    let mut ids = Vec::new();
    for n in 0..20 {
        let asked = world.authorize(&agent, &question(n)).await;
        ids.push(asked.refused(402, "approval_required")["approval_id"].clone());
    }

    let before = world.footprint().await;
    let decisions = world.decisions(&agent).await;
    let checked = world.check(&agent, &question(20)).await.ok();
    assert_eq!(
        (&checked["result"], &checked["reason"], &checked["would_authorize"]),
        (&json!("block"), &json!("too_many_open_approvals"), &json!(false))
    );
    assert_eq!(checked["approval_required"], false);
    let one_more = question(20);
    let refused = world.authorize(&agent, &one_more).await.refused(403, "policy_blocked");
    let decision = &refused["decision"];
    assert_eq!(
        (&decision["result"], &decision["reason"], &decision["rule_triggered"]),
        (
            &json!("block"),
            &json!("too_many_open_approvals"),
            &json!("approval_required")
        )
    );
    assert_eq!(decision["checks"].as_array().unwrap().len(), 12);
    assert_eq!(world.footprint().await, before, "nothing is staged, and no key bound");
    assert_eq!(
        world.decisions(&agent).await,
        decisions + 1,
        "that it was tried is on record"
    );

    // A pending approval is returned again for any idempotency key.
    for n in [0, 19] {
        let checked = world.check(&agent, &question(n)).await.ok();
        assert_eq!(checked["result"], "escalate");
        let asked = world.authorize(&agent, &question(n)).await;
        let asked = asked.refused(402, "approval_required");
        assert_eq!(asked["approval_id"], ids[usize::try_from(n).unwrap()]);
    }
    let checked = world.check(&other, &question(20)).await.ok();
    assert_eq!(
        (&checked["result"], &checked["approval_required"]),
        (&json!("escalate"), &json!(true))
    );
    world
        .authorize(&other, &question(20))
        .await
        .refused(402, "approval_required");
    world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();

    // Each approval decision permits one new approval request, even with the idempotency key of a rejected approval.
    for (id, verdict, body) in [
        (&ids[0], ApprovalDecision::Approve, one_more),
        (&ids[1], ApprovalDecision::Reject, question(21)),
    ] {
        world.resolve(id.as_str().unwrap(), verdict).await;
        let checked = world.check(&agent, &question(22)).await.ok();
        assert_eq!(checked["result"], "escalate");
        world.authorize(&agent, &body).await.refused(402, "approval_required");
        world
            .authorize(&agent, &question(23))
            .await
            .refused(403, "policy_blocked");
    }
    // After an approval expires, a new approval request is possible.
    world.pass(86_400);
    let checked = world.check(&agent, &question(24)).await.ok();
    assert_eq!(checked["result"], "escalate");
    world
        .authorize(&agent, &question(24))
        .await
        .refused(402, "approval_required");
}

async fn asked(world: &World, agent: &TestAgent) -> String {
    let asked = world.authorize(agent, &body_of(world.offer(dollars(6)))).await;
    let asked = asked.refused(402, "approval_required");
    asked["approval_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_polls_return_on_a_decision_or_timeout() {
    let world = World::still().await;
    let agent = world.agent(asking(), vec![]).await;
    let waiting = |id: &str, seconds: u32| {
        let path = format!("/approvals/{id}?wait_seconds={seconds}");
        let (world, agent) = (&world, &agent);
        async move {
            let begun = Instant::now();
            let answer = world.get(agent, &path).await.ok();
            (answer["status"].as_str().unwrap().to_owned(), begun.elapsed())
        }
    };
    let later = async || tokio::time::sleep(time::Duration::from_millis(1_500)).await;

    // No user decides, so the poll ends after its maximum duration.
    let id = asked(&world, &agent).await;
    let (status, took) = waiting(&id, 2).await;
    assert_eq!(status, "pending");
    assert!(
        took >= time::Duration::from_secs(2) && took < time::Duration::from_secs(15),
        "{took:?}"
    );
    let (status, took) = waiting(&id, 0).await;
    assert!(status == "pending" && took < time::Duration::from_secs(15), "{took:?}");

    // A user decides during the poll. The next poll returns immediately.
    let decide = async {
        later().await;
        world.resolve(&id, ApprovalDecision::Approve).await;
    };
    let ((status, took), ()) = tokio::join!(waiting(&id, 20), decide);
    assert!(
        status == "approved" && took < time::Duration::from_secs(15),
        "{status} {took:?}"
    );
    let (status, took) = waiting(&id, 20).await;
    assert!(status == "approved" && took < time::Duration::from_secs(15), "{took:?}");

    // The approval expires during the poll.
    let agent = world.agent(asking(), vec![]).await;
    let id = asked(&world, &agent).await;
    let path = format!("/approvals/{id}?wait_seconds=20");
    let begun = Instant::now();
    let expire = async {
        later().await;
        world.set_clock(world.now().after(Duration::DAY));
    };
    let (answer, ()) = tokio::join!(world.get(&agent, &path), expire);
    assert_eq!(answer.ok()["status"], "expired");
    assert!(begun.elapsed() < time::Duration::from_secs(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_approval_polls_are_rejected_without_waiting() {
    let world = World::start().await;
    let (agent, other) = (world.agent(asking(), vec![]).await, world.agent(asking(), vec![]).await);
    let id = asked(&world, &agent).await;
    let begun = Instant::now();
    for unknown in [id.as_str(), &fresh_key(), "x"] {
        let path = format!("/approvals/{unknown}?wait_seconds=20");
        world.get(&other, &path).await.refused(404, "not_found");
    }
    for wrong in ["21", "-1", "1.5", "ten", ""] {
        let path = format!("/approvals/{id}?wait_seconds={wrong}");
        let told = world.get(&agent, &path).await.refused(400, "invalid_request");
        assert_eq!(told["details"][0]["path"], "/wait_seconds", "{wrong}");
    }
    assert!(begun.elapsed() < time::Duration::from_secs(15));
}

/// The number of waiting polls is limited, because each occupies an instance of the function.
#[tokio::test(flavor = "multi_thread")]
async fn excess_approval_polls_return_immediately() {
    let world = World::still().await;
    let stranger = world.person(&DEMO_STRANGER);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(world.agent(asking(), vec![]).await);
    }
    for name in ["first", "second"] {
        let agent = world.agent_of(&stranger, name).await;
        world.put_policy(&agent, "lab-search", true, asking()).await;
        waiting.push(agent);
    }
    let mut approvals = Vec::new();
    for agent in &waiting {
        approvals.push(asked(&world, agent).await);
    }
    // Makes concurrent polls, each by an agent for `wait_seconds`. Returns the fastest and the slowest duration.
    let took = async |calls: &[(usize, u32)]| {
        let calls = calls.iter().map(|(n, seconds)| {
            let path = format!("/approvals/{}?wait_seconds={seconds}", approvals[*n]);
            let (world, agent) = (&world, &waiting[*n]);
            async move {
                let begun = Instant::now();
                assert_eq!(world.get(agent, &path).await.ok()["status"], "pending");
                begun.elapsed()
            }
        });
        let times = futures_util::future::join_all(calls).await;
        (
            times.iter().min().copied().unwrap(),
            times.iter().max().copied().unwrap(),
        )
    };
    let (a_second, soon) = (time::Duration::from_secs(1), time::Duration::from_secs(15));
    assert!(took(&[(0, 1); 4]).await.0 >= a_second);
    // The agent has used its waiting polls of this minute, so further polls return immediately.
    assert!(took(&[(0, 20); 30]).await.1 < soon);
    assert!(took(&[(1, 1); 4]).await.0 >= a_second);
    // The agent's owner has used the eight waiting polls of this minute.
    assert!(took(&[(2, 20); 4]).await.1 < soon);
    assert!(took(&[(3, 1), (3, 1), (3, 1), (3, 1), (4, 1), (4, 1), (4, 1)]).await.0 >= a_second);
    // All agents together have used the fifteen waiting polls of this minute.
    assert!(took(&[(4, 20)]).await.1 < soon);
    // In the next minute, polls can wait again.
    world.pass(60);
    assert!(took(&[(2, 1)]).await.0 >= a_second);
}
