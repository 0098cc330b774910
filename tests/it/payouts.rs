//! Tests withdrawals with the official facilitator, with one that fails, and with kills at each step.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use purser_api::CustodyKind;
use purser_local::{DEMO_OWNER, DEMO_STRANGER, NETWORK, Options};
use purser_testkit::{Fate, Moment};
use purser_tests::{
    Answer, Person, Process, Program, TestAgent, World, body_of, custody, dollars, fresh_key, together,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const DAY: u64 = 86_400;
/// A time, in seconds, after which a withdrawal has expired.
const USABLE: u64 = 310;
const TIME: Duration = Duration::from_secs(55);

const TO: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const OTHER: &str = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65";

async fn advance(world: &World, seconds: u64) {
    let body = json!({"advance_seconds": seconds});
    world.call(Method::POST, "/_local/clock", None, Some(&body)).await.ok();
}

/// Returns the token balance of an address.
async fn holds(world: &World, address: &str) -> u64 {
    let data = format!("0x70a08231{:0>64}", address.trim_start_matches("0x").to_lowercase());
    let call = json!([{"to": NETWORK.token().address, "data": data}, "latest"]);
    let units = world.stack.chain.call("eth_call", call).await.unwrap();
    u64::from_str_radix(
        units.as_str().unwrap().trim_start_matches("0x").trim_start_matches('0'),
        16,
    )
    .unwrap_or(0)
}

async fn name(world: &World, person: &Person, agent: &TestAgent, address: &str) -> Answer {
    let body = json!({"address": address});
    world
        .person_edits(person, Method::PUT, &agent.path("/payout-address"), &body)
        .await
}

async fn pay_out(world: &World, person: &Person, agent: &TestAgent, amount: Value, key: &str) -> Answer {
    let body = json!({"amount_units": amount, "idempotency_key": key});
    world
        .person_edits(person, Method::POST, &agent.path("/payouts"), &body)
        .await
}

fn refused_for(answer: Answer, reason: &str) -> Value {
    let body = answer.refused(409, "payout_refused");
    assert_eq!(body["reason"], reason, "{body}");
    body
}

async fn receipt(world: &World, person: &Person, agent: &TestAgent, id: &Value) -> Value {
    let path = agent.path(&format!("/settlements/{}", id.as_str().unwrap()));
    world.person_gets(person, &path).await.ok()
}

/// Returns the audit entries about the agent, newest first.
async fn told_of(world: &World, person: &Person, agent: &TestAgent, kind: &str) -> Vec<Value> {
    let path = format!("/audit-log?agent_id={}&kind={kind}", agent.id);
    let log = world.person_gets(person, &path).await.ok();
    log["entries"].as_array().unwrap().clone()
}

async fn person_id(world: &World, person: &Person) -> String {
    let listed = world.person_gets(person, "/sessions").await.ok();
    listed["person"].as_str().unwrap().to_owned()
}

async fn reconcile(world: &World) {
    world.stack.reconcile.reconcile_all(TIME).await.unwrap();
}

/// Advances the time until open withdrawals are due, and reconciles them.
async fn end(world: &World) {
    advance(world, USABLE).await;
    reconcile(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_are_exact_and_wait_for_the_address_delay() {
    let world = World::start().await;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    let funded = holds(&world, &agent.wallet).await;
    refused_for(
        pay_out(&world, &person, &agent, json!("balance"), "k").await,
        "no_payout_address",
    );
    let named = name(&world, &person, &agent, TO).await.ok();
    assert_eq!((&named["set_up"], &named["address"]), (&json!(true), &json!(TO)));
    assert_eq!(
        name(&world, &person, &agent, TO).await.ok()["good_from"],
        named["good_from"]
    );

    advance(&world, DAY - 60).await;
    let person = world.person(&DEMO_OWNER);
    let early = pay_out(&world, &person, &agent, json!("balance"), "k").await;
    assert_eq!(
        refused_for(early, "payout_address_waits")["retry_at"],
        named["good_from"]
    );
    advance(&world, 61).await;

    let key = fresh_key();
    let paid = pay_out(&world, &person, &agent, json!(1_234_567), &key).await.created();
    assert_eq!(
        (&paid["submission"], &paid["payout"]["kind"]),
        (&json!("accepted"), &json!("payout"))
    );
    assert_eq!(holds(&world, TO).await, 1_234_567);
    let id = paid["payout"]["id"].clone();
    let again = pay_out(&world, &person, &agent, json!(1_234_567), &key).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.ok()["payout"]["id"], id);
    let other = pay_out(&world, &person, &agent, json!(1), &key).await;
    let other = other.refused(409, "idempotency_key_reused_for_different_request");
    assert_eq!(other["settlement_id"], id);
    let second = refused_for(
        pay_out(&world, &person, &agent, json!(1), &fresh_key()).await,
        "payout_open",
    );
    assert_eq!(second["settlement_id"], id);
    assert_eq!(holds(&world, TO).await, 1_234_567);

    end(&world).await;
    let confirmed = receipt(&world, &person, &agent, &id).await;
    assert_eq!(
        (
            &confirmed["receipt_status"],
            &confirmed["pay_to"],
            &confirmed["service_id"]
        ),
        (&json!("confirmed"), &json!(TO), &Value::Null)
    );
    assert!(confirmed["tx_hash"].is_string());

    // A frozen agent's balance can be withdrawn.
    let much = pay_out(&world, &person, &agent, json!(funded), &fresh_key()).await;
    refused_for(much, "insufficient_balance");
    let frozen = json!({"status": "frozen"});
    world
        .person_edits(&person, Method::PATCH, &agent.path(""), &frozen)
        .await
        .ok();
    pay_out(&world, &person, &agent, json!("balance"), &fresh_key())
        .await
        .created();
    assert_eq!(
        (holds(&world, &agent.wallet).await, holds(&world, TO).await),
        (0, funded)
    );
    end(&world).await;
    let person = world.person(&DEMO_OWNER);
    let none = pay_out(&world, &person, &agent, json!("balance"), &fresh_key()).await;
    refused_for(none, "insufficient_balance");

    // Withdrawals do not count as spent, and API keys can't see them.
    let log = world.person_gets(&person, "/decisions?result=payout").await.ok();
    assert_eq!(
        (&log["count"], &log["decisions"][0]["receipt_status"]),
        (&json!(2), &json!("confirmed"))
    );
    let listed = world
        .person_gets(&person, &format!("/settlements?agent_id={}", agent.id))
        .await
        .ok();
    assert_eq!(listed["count"], 2);
    let seen = world.get(&agent, &agent.path("/settlements")).await.ok();
    assert_eq!(seen["count"], 0);
    let path = format!("/x402/settlements/{}", id.as_str().unwrap());
    world.get(&agent, &path).await.refused(404, "not_found");
    let proof = json!({"payment_response_header": {"success": true, "transaction": confirmed["tx_hash"]}});
    world
        .complete(&agent, id.as_str().unwrap(), &proof)
        .await
        .refused(404, "not_found");
    assert_eq!(world.footprint().await.total, 0);
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_addresses_require_a_recent_sign_in() {
    let world = World::start().await;
    let (person, stranger) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
    let agent = world.agent_of(&person, "saver").await;
    let first = name(&world, &person, &agent, TO).await.ok();
    for (address, words) in [
        (agent.wallet.as_str(), "own wallet"),
        (&NETWORK.token().address.to_checksum(None), "contract"),
        ("0x90f79bf6EB2c4f870365E785982E1f101E93b906", "checksum"),
        ("0x0000000000000000000000000000000000000000", "zero"),
    ] {
        let refused = name(&world, &person, &agent, address)
            .await
            .refused(400, "invalid_request");
        let told = refused["details"][0]["message"].as_str().unwrap();
        assert!(told.contains(words), "{told}");
    }
    for amount in [json!(0), json!(-1), json!("all"), json!(1.5)] {
        let wrong = pay_out(&world, &person, &agent, amount, "k").await;
        wrong.refused(400, "invalid_request");
    }
    // A request can't name the address.
    let elsewhere = json!({"amount_units": 1, "idempotency_key": "k", "address": OTHER});
    let path = agent.path("/payouts");
    let wrong = world.person_edits(&person, Method::POST, &path, &elsewhere).await;
    wrong.refused(400, "invalid_request");
    // For the caller, another user's agent does not exist.
    let path = agent.path("/payout-address");
    world.person_gets(&stranger, &path).await.refused(404, "not_found");
    name(&world, &stranger, &agent, OTHER).await.refused(404, "not_found");
    let gone = world.person_edits(&stranger, Method::DELETE, &path, &json!({})).await;
    gone.refused(404, "not_found");
    pay_out(&world, &stranger, &agent, json!("balance"), "k")
        .await
        .refused(404, "not_found");

    advance(&world, DAY - 3_600).await;
    // Without a recent sign-in, an owner can only read and remove the address.
    let old = world.person(&DEMO_OWNER);
    advance(&world, 900).await;
    name(&world, &old, &agent, OTHER)
        .await
        .refused(403, "recent_sign_in_required");
    pay_out(&world, &old, &agent, json!("balance"), "k")
        .await
        .refused(403, "recent_sign_in_required");
    let person = world.person(&DEMO_OWNER);
    let changed = name(&world, &person, &agent, OTHER).await.ok();
    assert!(changed["good_from"].as_str() > first["good_from"].as_str());
    advance(&world, 3_600).await;
    let person = world.person(&DEMO_OWNER);
    let early = pay_out(&world, &person, &agent, json!("balance"), "k").await;
    refused_for(early, "payout_address_waits");
    let removed = world.person_edits(&old, Method::DELETE, &path, &json!({})).await.ok();
    assert_eq!(removed["address"], Value::Null);
    let none = pay_out(&world, &person, &agent, json!("balance"), "k").await;
    refused_for(none, "no_payout_address");
    assert_eq!((holds(&world, TO).await, holds(&world, OTHER).await), (0, 0));
}

/// What the test facilitator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    PassOn,
    /// Reports success without submitting the transfer.
    Lies,
    Refuses,
    /// Submits the transfer, but responds after the caller's timeout.
    Slow,
    Garbage,
    /// Closes the connection without a response.
    Breaks,
}

struct Front {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// The URL of the official facilitator.
    upstream: OnceLock<String>,
    manner: Mutex<Manner>,
    asked: AtomicUsize,
    /// Called when a request arrives and when it was carried out. If it returns true, the request gets no response.
    hook: Mutex<Box<dyn FnMut(Moment) -> bool + Send>>,
}

impl Front {
    async fn start() -> Self {
        let shared = Arc::new(Shared {
            upstream: OnceLock::new(),
            manner: Mutex::new(Manner::PassOn),
            asked: AtomicUsize::new(0),
            hook: Mutex::new(Box::new(|_| false)),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/settle", post(settle))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, shared }
    }

    fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    fn asked(&self) -> usize {
        self.shared.asked.load(SeqCst)
    }
}

async fn settle(State(front): State<Arc<Shared>>, body: Bytes) -> impl IntoResponse {
    front.asked.fetch_add(1, SeqCst);
    let manner = *front.manner.lock().unwrap();
    if (front.hook.lock().unwrap())(Moment::Arrived) {
        pending::<()>().await;
    }
    let hash = format!("0x{}", "ab".repeat(32));
    match manner {
        Manner::Lies => Json(json!({"success": true, "transaction": hash, "network": "eip155:84532"})).into_response(),
        Manner::Refuses => {
            Json(json!({"success": false, "errorReason": "no_thanks", "transaction": ""})).into_response()
        }
        Manner::Garbage => "<html>".repeat(10_000).into_response(),
        Manner::Breaks => panic!("as it was told to"),
        Manner::PassOn | Manner::Slow => {
            let answer = reqwest::Client::new()
                .post(format!("{}/settle", front.upstream.get().unwrap()))
                .header("content-type", "application/json")
                .body(body)
                .send();
            let answer: Value = answer.await.unwrap().json().await.unwrap();
            if (front.hook.lock().unwrap())(Moment::CarriedOut) {
                pending::<()>().await;
            }
            if manner == Manner::Slow {
                pending::<()>().await;
            }
            Json(answer).into_response()
        }
    }
}

/// Starts a stack with a test facilitator. New withdrawal addresses can be used immediately.
async fn fronted() -> (World, Front) {
    let front = Front::start().await;
    let environment = [("FACILITATOR_URL", front.url.as_str()), ("PAYOUT_DELAY_SECONDS", "0")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let world = World::with(Options {
        environment: environment.into(),
        ..Options::default()
    })
    .await;
    front
        .shared
        .upstream
        .set(world.stack.providers.facilitator_url.clone())
        .unwrap();
    (world, front)
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_tolerate_facilitator_failures() {
    let (world, front) = fronted().await;
    let mut person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    name(&world, &person, &agent, TO).await.ok();
    let rows = [
        (Manner::Lies, "accepted", "expired"),
        (Manner::Refuses, "refused", "expired"),
        (Manner::Garbage, "unanswered", "expired"),
        (Manner::Breaks, "unanswered", "expired"),
        (Manner::Slow, "unanswered", "confirmed"),
        (Manner::PassOn, "accepted", "confirmed"),
    ];
    let mut paid = 0;
    for (manner, submission, status) in rows {
        front.behave(manner);
        let key = fresh_key();
        let answer = pay_out(&world, &person, &agent, json!(dollars(1)), &key)
            .await
            .created();
        assert_eq!(answer["submission"], submission, "{manner:?}");
        assert_eq!(answer["payout"]["receipt_status"], "authorized");
        paid += u64::from(status == "confirmed") * dollars(1);
        let deadline = Instant::now() + Duration::from_secs(60);
        while holds(&world, TO).await != paid {
            assert!(Instant::now() < deadline, "{manner:?}: not paid in time");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        end(&world).await;
        person = world.person(&DEMO_OWNER);
        let row = receipt(&world, &person, &agent, &answer["payout"]["id"]).await;
        assert_eq!(
            (&row["receipt_status"], holds(&world, TO).await),
            (&json!(status), paid),
            "{manner:?}"
        );
    }

    let key = fresh_key();
    front.behave(Manner::Refuses);
    let first = pay_out(&world, &person, &agent, json!(dollars(1)), &key)
        .await
        .created();
    front.behave(Manner::PassOn);
    let again = pay_out(&world, &person, &agent, json!(dollars(1)), &key).await.ok();
    assert_eq!(
        (&again["submission"], &again["payout"]["id"]),
        (&json!("accepted"), &first["payout"]["id"])
    );
    paid += dollars(1);
    end(&world).await;
    assert_eq!(holds(&world, TO).await, paid);

    // The address was changed before the repetition, so the withdrawal is not submitted again.
    let person = world.person(&DEMO_OWNER);
    let key = fresh_key();
    front.behave(Manner::Refuses);
    pay_out(&world, &person, &agent, json!(dollars(1)), &key)
        .await
        .created();
    front.behave(Manner::PassOn);
    name(&world, &person, &agent, OTHER).await.ok();
    let asked = front.asked();
    let again = pay_out(&world, &person, &agent, json!(dollars(1)), &key).await.ok();
    assert_eq!(
        (&again["submission"], &again["payout"]["pay_to"]),
        (&Value::Null, &json!(TO))
    );
    assert_eq!(front.asked(), asked);
    end(&world).await;
    let person = world.person(&DEMO_OWNER);
    pay_out(&world, &person, &agent, json!(dollars(1)), &fresh_key())
        .await
        .created();
    assert_eq!(
        (holds(&world, TO).await, holds(&world, OTHER).await),
        (paid, dollars(1))
    );
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_withdrawals_one_is_made() {
    let (world, _front) = fronted().await;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    name(&world, &person, &agent, TO).await.ok();
    let requests = (0..8).map(|number| {
        let key = if number < 4 { "same".to_owned() } else { fresh_key() };
        let body = json!({"amount_units": dollars(1), "idempotency_key": key});
        World::send(
            world
                .persons_request(&person, Method::POST, &agent.path("/payouts"))
                .json(&body),
        )
    });
    let answers = together(requests.collect()).await;
    let mut ids: Vec<String> = Vec::new();
    for answer in answers {
        match answer.status {
            200 | 201 => ids.push(answer.body["payout"]["id"].to_string()),
            _ => {
                refused_for(answer, "payout_open");
            }
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), holds(&world, TO).await), (1, dollars(1)));
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

/// The owner's freeze does not stop withdrawals, as the first test shows.
#[tokio::test(flavor = "multi_thread")]
async fn operator_freezes_stop_withdrawals_until_operators_end_them() {
    let (world, front) = fronted().await;
    let mut person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    name(&world, &person, &agent, TO).await.ok();
    let owner = person_id(&world, &person).await;
    for (target, reason) in [
        (format!("agents/{}", agent.id), "agent_frozen:by_operator"),
        (format!("owners/{owner}"), "agent_frozen:owner"),
        ("deployment".to_owned(), "agent_frozen:deployment"),
    ] {
        let path = format!("/internal/freezes/{target}");
        let freeze = async || {
            let why = json!({"reason": "reported stolen"});
            World::send(world.operators_request(Method::PUT, &path).json(&why))
                .await
                .ok();
        };
        let unfreeze = async || World::send(world.operators_request(Method::DELETE, &path)).await.ok();
        let (before, asked) = (holds(&world, TO).await, front.asked());
        freeze().await;
        let stopped = pay_out(&world, &person, &agent, json!("balance"), &fresh_key()).await;
        let told = refused_for(stopped, reason);
        assert!(told["message"].as_str().unwrap().contains("operator"), "{told}");
        assert_eq!((holds(&world, TO).await, front.asked()), (before, asked));
        unfreeze().await;

        front.behave(Manner::Refuses);
        let key = fresh_key();
        let first = pay_out(&world, &person, &agent, json!(dollars(1)), &key)
            .await
            .created();
        assert_eq!(first["submission"], "refused");
        front.behave(Manner::PassOn);
        freeze().await;
        let again = pay_out(&world, &person, &agent, json!(dollars(1)), &key).await.ok();
        assert_eq!(
            (&again["submission"], holds(&world, TO).await),
            (&Value::Null, before),
            "{reason}"
        );
        unfreeze().await;
        let again = pay_out(&world, &person, &agent, json!(dollars(1)), &key).await.ok();
        assert_eq!(again["submission"], "accepted");
        assert_eq!(holds(&world, TO).await, before + dollars(1));
        end(&world).await;
        person = world.person(&DEMO_OWNER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawals_never_reach_a_previous_owners_address() {
    let (world, front) = fronted().await;
    let (old, new) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
    let agent = world.agent_of(&old, "saver").await;
    name(&world, &old, &agent, TO).await.ok();
    front.behave(Manner::Refuses);
    pay_out(&world, &old, &agent, json!(dollars(1)), "k").await.created();
    front.behave(Manner::PassOn);

    let offer = json!({"to": person_id(&world, &new).await, "reason": "their predecessor has left"});
    let at = format!("/internal/agents/{}/handover", agent.id);
    World::send(world.operators_request(Method::PUT, &at).json(&offer))
        .await
        .ok();
    let accept = format!("/handovers/{}/accept", agent.id);
    World::send(world.persons_request(&new, Method::POST, &accept))
        .await
        .ok();

    let asked = front.asked();
    pay_out(&world, &old, &agent, json!(dollars(1)), "k")
        .await
        .refused(404, "not_found");
    let again = pay_out(&world, &new, &agent, json!(dollars(1)), "k").await.ok();
    assert_eq!(again["submission"], Value::Null);
    let path = agent.path("/payout-address");
    assert_eq!(world.person_gets(&new, &path).await.ok()["address"], Value::Null);
    let other = pay_out(&world, &new, &agent, json!("balance"), &fresh_key()).await;
    refused_for(other, "no_payout_address");
    assert_eq!((holds(&world, TO).await, front.asked()), (0, asked));

    end(&world).await;
    let new = world.person(&DEMO_STRANGER);
    name(&world, &new, &agent, OTHER).await.ok();
    pay_out(&world, &new, &agent, json!("balance"), &fresh_key())
        .await
        .created();
    assert_eq!((holds(&world, TO).await, holds(&world, &agent.wallet).await), (0, 0));
    assert!(holds(&world, OTHER).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_actions_and_rejections_are_audited() {
    let (world, _front) = fronted().await;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    let id = person_id(&world, &person).await;
    let one = async |kind: &str, count: usize| {
        let mut rows = told_of(&world, &person, &agent, kind).await;
        assert_eq!(rows.len(), count, "{rows:?}");
        let row = rows.remove(0);
        assert_eq!(row["person_id"], id, "{row}");
        assert!(row["address"].is_string() && row["request_id"].is_string(), "{row}");
        row
    };

    refused_for(
        pay_out(&world, &person, &agent, json!(1), "k").await,
        "no_payout_address",
    );
    let row = one("paid_out", 1).await;
    assert_eq!((&row["error"], &row["after"]), (&json!("payout_refused"), &json!({})));
    assert!(
        row["reason"].as_str().unwrap().contains("no payout address is set"),
        "{row}"
    );

    let request = world.persons_edit(&person, Method::PUT, &agent.path("/payout-address"), "*");
    let request = request.header("user-agent", "teller").json(&json!({"address": TO}));
    let named = World::send(request).await;
    let request_id = named.headers["x-request-id"].to_str().unwrap().to_owned();
    let good_from = named.ok()["good_from"].clone();
    let row = one("payout_address_named", 1).await;
    assert_eq!(
        (&row["before"], &row["after"]),
        (&json!({}), &json!({"payout_address": TO, "good_from": good_from}))
    );
    assert_eq!(
        (&row["request_id"], &row["user_agent"], &row["error"]),
        (&json!(request_id), &json!("teller"), &Value::Null)
    );
    name(&world, &person, &agent, TO).await.ok();
    one("payout_address_named", 1).await;
    name(&world, &person, &agent, OTHER).await.ok();
    let row = one("payout_address_named", 2).await;
    assert_eq!(
        (&row["before"]["payout_address"], &row["after"]["payout_address"]),
        (&json!(TO), &json!(OTHER))
    );

    for _ in 0..2 {
        let paid = pay_out(&world, &person, &agent, json!(5), "once").await;
        assert!([200, 201].contains(&paid.status), "{}", paid.body);
        let row = one("paid_out", 2).await;
        assert_eq!(row["object_id"], paid.body["payout"]["id"]);
        assert_eq!(
            (&row["before"], &row["after"]),
            (&json!({}), &json!({"amount_units": 5, "pay_to": OTHER}))
        );
    }

    let path = agent.path("/payout-address");
    for _ in 0..2 {
        world
            .person_edits(&person, Method::DELETE, &path, &json!({}))
            .await
            .ok();
        let row = one("payout_address_removed", 1).await;
        assert_eq!(
            (&row["before"]["payout_address"], &row["after"]),
            (&json!(OTHER), &json!({}))
        );
    }
    advance(&world, 900).await;
    name(&world, &person, &agent, TO)
        .await
        .refused(403, "recent_sign_in_required");
    assert_eq!(one("payout_address_named", 3).await["error"], "recent_sign_in_required");
}

#[derive(Clone, Copy, Debug)]
enum Stop {
    Call(&'static str, Moment),
    Sign(Moment),
    Facilitator(Moment),
    Reply,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_withdrawal_pays_once_after_the_function_was_killed() {
    let (world, front) = fronted().await;
    let person = world.person(&DEMO_OWNER);
    let program = Program {
        path: env!("CARGO_BIN_EXE_function").into(),
        function: "payments",
        time: Duration::from_secs(15),
        environment: Vec::new(),
    };
    let process = Process::for_program(&world, program).await;
    let reserves = "TransactWriteItems AuditTable+LedgerTable";
    let calls = ["BatchGetItem LedgerTable", "eth_call", reserves];
    let both = [Moment::Arrived, Moment::CarriedOut];
    let mut stops: Vec<Stop> = calls
        .iter()
        .flat_map(|call| both.map(|moment| Stop::Call(call, moment)))
        .collect();
    if custody() == CustodyKind::Kms {
        stops.extend(both.map(Stop::Sign));
    }
    stops.extend(both.map(Stop::Facilitator));
    stops.push(Stop::Reply);
    for (number, stop) in stops.into_iter().enumerate() {
        let agent = world.agent_of(&person, &format!("saver {number}")).await;
        name(&world, &person, &agent, TO).await.ok();
        let (before, asked) = (holds(&world, TO).await, dollars(1) + u64::try_from(number).unwrap());
        let owner = world
            .stack
            .ledger
            .read_agent_by_id(agent.id)
            .await
            .unwrap()
            .unwrap()
            .owner;
        let event = json!({
            "version": 1,
            "caller": {"request_id": "r", "trace_id": "t"},
            "request": {
                "method": "POST",
                "path": format!("/agents/{}/payouts", agent.id),
                "user": {"id": owner, "request_id": "r"},
                "body": {"amount_units": asked, "idempotency_key": "once"},
            },
        });
        let killer = process.killer();
        let kills = killer.kills();
        match stop {
            Stop::Call(at, when) => {
                let mut armed = true;
                process.kill_where(move |call, moment| {
                    let here = armed && (call, moment) == (at, when);
                    armed &= !here;
                    here
                });
            }
            Stop::Sign(when) => {
                let killer = Arc::clone(&killer);
                let mut armed = true;
                process.kms.follow(move |step| {
                    if !armed || (step.call, step.moment) != ("Sign", when) {
                        return Fate::PassOn;
                    }
                    armed = false;
                    killer.kill();
                    Fate::Silence
                });
            }
            Stop::Facilitator(when) => {
                let killer = Arc::clone(&killer);
                let mut armed = true;
                *front.shared.hook.lock().unwrap() = Box::new(move |moment| {
                    let here = armed && moment == when;
                    if here {
                        armed = false;
                        killer.kill();
                    }
                    here
                });
            }
            Stop::Reply => process.kill_before_the_reply(),
        }
        let told = process.invoke(event.clone()).await;
        assert!(
            told.is_none() && process.killer().kills() == kills + 1,
            "{stop:?}: {told:?}"
        );
        process.spare();
        *front.shared.hook.lock().unwrap() = Box::new(|_| false);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let answer = process.invoke(event.clone()).await.unwrap().unwrap();
            assert_eq!(answer["statusCode"], 200, "{stop:?}: {answer}");
            let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
            answers.push(body["settlement"].clone());
        }
        assert!(
            answers[0].is_string() && answers[0] == answers[1],
            "{stop:?}: {answers:?}"
        );
        assert_eq!(holds(&world, TO).await, before + asked, "{stop:?}: once");
        let listed = world
            .person_gets(&person, &format!("/settlements?agent_id={}", agent.id))
            .await
            .ok();
        assert_eq!(listed["count"], 1, "{stop:?}");
        assert_eq!(told_of(&world, &person, &agent, "paid_out").await.len(), 1, "{stop:?}");
    }
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}

/// The withdrawal takes the balance, so an earlier authorized payment fails on the chain and is released.
#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_can_take_the_balance_that_authorized_payments_need() {
    let (world, _front) = fronted().await;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    name(&world, &person, &agent, TO).await.ok();
    let authorized = world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
    pay_out(&world, &person, &agent, json!("balance"), &fresh_key())
        .await
        .created();
    assert_eq!(holds(&world, &agent.wallet).await, 0);
    advance(&world, 1_000).await;
    reconcile(&world).await;
    let path = format!("/x402/settlements/{}", authorized["settlement_id"].as_str().unwrap());
    let row = world.get(&agent, &path).await.ok();
    assert_eq!(row["receipt_status"], "expired");
    assert_eq!(world.footprint().await.total, 0);
    purser_testkit::invariants::assert_hold(&world.stack.db, "LedgerTable").await;
}
