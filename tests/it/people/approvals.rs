//! Tests approvals for the deciding user. `errors.rs` tests their effect on payments.

use super::{Household, KIM, NOTHING, carrying, members};
use purser_domain::{Duration, Timestamp};
use purser_tests::{World, authorizing, body_of, dollars, paths, together};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Creates an agent that needs an approval above five dollars and may spend twenty a day.
async fn asking(world: World) -> Household {
    let home = Household::in_world(world).await;
    home.set_policy(json!({"require_approval_above_units": dollars(5), "max_per_day_units": dollars(20)}))
        .await;
    home
}

impl Household {
    /// Requests an approval for `price` dollars. Returns the request and the approval's id.
    async fn ask(&self, price: u64) -> (Value, Value) {
        let body = body_of(self.world.offer(dollars(price)));
        let asked = self
            .world
            .authorize(&self.agent, &body)
            .await
            .refused(402, "approval_required");
        (body, asked["approval_id"].clone())
    }

    async fn approval(&self, id: &Value) -> Value {
        self.read(&below(id)).await
    }

    async fn queue(&self, query: &str) -> Value {
        self.world
            .person_gets(&self.kim, &format!("/approvals?{query}"))
            .await
            .ok()
    }
}

fn below(approval: &Value) -> String {
    format!("/approvals/{}", approval.as_str().unwrap())
}

fn approve(approval: &Value) -> String {
    format!("{}/approve", below(approval))
}

fn reject(approval: &Value) -> String {
    format!("{}/reject", below(approval))
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_show_the_call_and_the_decision() {
    let home = asking(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let search = world.service("lab-search").await;
    world.authorize(agent, &body_of(world.offer(dollars(4)))).await.ok();
    home.set_policy(json!({"require_approval_above_units": 1})).await;
    let operation = &search.operations[0];
    let mut body = body_of(world.offer(100_000));
    body["operation_id"] = json!(operation.slug.as_str());
    let called = format!("{}?q=lisbon", operation.endpoint.as_str());
    body["original_request"] = json!({"method": operation.method, "url": called, "body_hash": "sha256:00"});
    body["metadata"] = json!({"target_url": "https://pages.example/a?b=c", "task": "<b>report</b>", "step": 3});
    let asked = world.authorize(agent, &body).await.refused(402, "approval_required");
    let id = &asked["approval_id"];
    let pending = home.approval(id).await;
    let expected = json!({
        "approval_id": id,
        "status": "pending",
        "agent_id": agent.id.to_string(),
        "agent_name": "errand runner",
        "agent_status": "active",
        "key_id": agent.key_id(),
        "transaction_id": asked["transaction_id"],
        "service_id": search.id.to_string(),
        "service_slug": "lab-search",
        "service_name": search.name,
        "operation_id": "web.search",
        "amount_units": 100_000,
        "pay_to": world.stack.providers.pay_to,
        "call": {
            "method": "GET",
            "url": called,
            "body_hash": "sha256:00",
            "target_url": "https://pages.example/a?b=c",
            "metadata": {"task": "<b>report</b>", "step": 3},
            "catalog_price_units": 5_000,
            "catalog_max_price_units": 100_000,
        },
        "asked_before": 0,
        "threshold_units": 1,
        "asking": [{"kind": "require_approval_above_units", "rule_id": null, "above_units": 1}],
        "max_per_day_units": dollars(20),
        "spend_today_units": dollars(4),
        "remaining_today_units": dollars(16),
        "created_at": world.now().to_string(),
        "expires_at": world.now().after(Duration::DAY).to_string(),
        "resolved_at": null,
        "note": null,
        "settlement_id": null,
    });
    assert_eq!(pending, expected);
    assert_eq!(
        home.queue("").await,
        json!({"approvals": [pending], "count": 1, "next_cursor": null})
    );

    world.pass(60);
    let note = json!({"note": "  Go ahead,\r\nbut only once. \u{1f44d} "});
    let approved = home.edit(Method::POST, &approve(id), note).await.ok();
    let mut expected = expected;
    expected["status"] = json!("approved");
    expected["resolved_at"] = json!(world.now().to_string());
    expected["note"] = json!("Go ahead,\nbut only once. \u{1f44d}");
    assert_eq!(approved, expected);
    assert_eq!(home.approval(id).await, expected);
    let polled = world
        .get(agent, &format!("/approvals/{}", id.as_str().unwrap()))
        .await
        .ok();
    for name in ["note", "call", "resolved_at", "status"] {
        assert_eq!(polled[name], expected[name], "{name}");
    }

    let paid = world.authorize(agent, &carrying(&body, id)).await.ok();
    expected["status"] = json!("executed");
    expected["settlement_id"] = paid["settlement_id"].clone();
    // No payment can follow, so the daily cap is not shown.
    for name in ["max_per_day_units", "spend_today_units", "remaining_today_units"] {
        expected[name] = Value::Null;
    }
    assert_eq!(home.approval(id).await, expected);

    let log = world.person_gets(&home.kim, "/decisions").await.ok();
    let rows = log["decisions"].as_array().unwrap();
    for (told, result) in [(&paid, "allow"), (&asked, "escalate")] {
        let decision = rows.iter().find(|row| row["transaction_id"] == told["transaction_id"]);
        let decision = decision.unwrap();
        let below = format!("/decisions/{}", decision["transaction_id"].as_str().unwrap());
        let read = home.read(&below).await;
        assert_eq!((&read["result"], &read["call"]), (&json!(result), &expected["call"]));
        for (name, value) in decision.as_object().unwrap() {
            assert_eq!(read[name], *value, "{name}");
        }
    }

    let mut again = body.clone();
    again["idempotency_key"] = json!(purser_tests::fresh_key());
    let asked = world.authorize(agent, &again).await.refused(402, "approval_required");
    assert_eq!(home.approval(&asked["approval_id"]).await["asked_before"], 1);
}

/// After the approval, the owner adds a rule that the approval does not waive.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_lists_and_waives_each_limit_that_required_approval() {
    let home = asking(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let add = async |rule: Value| home.edit(Method::POST, "/rules", rule).await.created()["rule_id"].clone();
    let payee = add(json!({"kind": "new_payee"})).await;
    let (body, first) = home.ask(6).await;
    let threshold = json!({"kind": "require_approval_above_units", "rule_id": null, "above_units": dollars(5)});
    let new_payee = json!({"kind": "new_payee", "rule_id": payee, "above_units": 0});
    assert_eq!(home.approval(&first).await["asking"], json!([threshold, new_payee]));
    let page = async |path: &str| {
        let page = world.http.get(format!("{}{path}", world.stack.base_url));
        let page = page.header("cookie", world.browser_session(&KIM).await).send().await;
        page.unwrap().text().await.unwrap()
    };
    let bulk = format!(
        "/dashboard/approvals/bulk?decision=approve&approval={}",
        first.as_str().unwrap()
    );
    for path in ["/dashboard/approvals", &bulk] {
        let page = page(path).await;
        let shown = page.contains("approval threshold") && page.contains("The first payment to this payee");
        assert!(shown, "{path}: {page}");
    }

    home.edit(Method::POST, &approve(&first), json!({})).await.ok();
    let price = json!({"kind": "price_above_usual", "percent": 0, "over": "catalog", "action": "ask"});
    let price = add(price).await;
    let again = world.authorize(agent, &carrying(&body, &first)).await;
    let again = again.refused(402, "approval_required");
    let second = &again["approval_id"];
    assert_eq!(home.approval(&first).await["status"], "expired");
    let pending = home.approval(second).await;
    let price = json!({"kind": "price_above_usual", "rule_id": price, "above_units": 5_000});
    assert_eq!(
        (&pending["status"], &pending["asked_before"]),
        (&json!("pending"), &json!(1))
    );
    assert_eq!(pending["asking"], json!([threshold, price, new_payee]));
    // The repeated request contains the old approval's id, no id, or the new approval's id.
    for body in [&carrying(&body, &first), &body, &carrying(&body, second)] {
        let repeated = world.authorize(agent, body).await.refused(402, "approval_required");
        for name in ["approval_id", "transaction_id"] {
            assert_eq!(repeated[name], again[name]);
        }
    }

    home.edit(Method::POST, &approve(second), json!({})).await.ok();
    let paid = world.authorize(agent, &carrying(&body, second)).await.ok();
    assert_eq!(world.stack.publish_changes().await, 0);
    for decision in [&again, &paid] {
        let replay = format!("/decisions/{}/replay", decision["transaction_id"].as_str().unwrap());
        let replay = world
            .person_edits(&home.kim, Method::POST, &replay, &json!({}))
            .await
            .ok();
        assert_eq!(replay["differences"], json!([]), "{replay}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_many_approvals_hides_no_other_approvals() {
    let home = asking(World::still().await).await;
    let (world, kim) = (&home.world, &home.kim);
    let quiet = world.agent_of(kim, "quiet one").await;
    let policy = json!({"require_approval_above_units": dollars(5)});
    let path = quiet.path("/services/lab-search");
    world.person_edits(kim, Method::PATCH, &path, &policy).await.ok();
    for n in 0..25 {
        let body = body_of(world.offer(dollars(6) + n));
        let answer = world.authorize(&home.agent, &body).await;
        assert_eq!(answer.status, if n < 20 { 402 } else { 403 }, "{}", answer.body);
    }
    let mut body = body_of(world.offer(dollars(6)));
    body["metadata"] = json!({"reason": "<i>urgent</i>"});
    let asked = world.authorize(&quiet, &body).await.refused(402, "approval_required");
    let id = asked["approval_id"].as_str().unwrap();

    assert_eq!(home.queue("status=pending").await["count"], 21);
    let narrowed = home.queue(&format!("status=pending&agent_id={}", quiet.id)).await;
    assert_eq!(
        (&narrowed["count"], &narrowed["approvals"][0]["approval_id"]),
        (&json!(1), &json!(id))
    );
    let cookie = world.browser_session(&KIM).await;
    let page = async |path: &str| {
        let url = format!("{}/dashboard{path}", world.stack.base_url);
        let request = world.http.get(url).header("cookie", &cookie);
        request.send().await.unwrap().text().await.unwrap()
    };
    let card = format!("data-approval=\"{id}\"");
    let only = format!("/approvals?agent_id={}", quiet.id);
    // The overview shows some pending approvals, and the number of all pending approvals.
    let overview = page("").await;
    assert!(
        overview.contains("data-waiting=\"21\"") && overview.contains("All pending approvals"),
        "{overview}"
    );
    for path in ["/approvals", "/approvals/waiting", &only] {
        let html = page(path).await;
        assert!(html.contains(&card) && html.contains("data-waiting=\"21\""), "{path}");
        assert!(html.contains("&lt;i&gt;urgent&lt;/i&gt;"), "{path}");
    }
    let html = page(&only).await;
    assert_eq!(html.matches("data-approval=").count(), 1);
    assert!(html.contains("value=\"quiet one\""), "{html}");
}

/// Two sessions of the same user decide concurrently.
#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_two_concurrent_approval_decisions_succeeds() {
    let home = asking(World::conflicted().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let other = world.person(&KIM);
    assert_ne!(other.token, home.kim.token);
    for price in 6..14 {
        let (_, id) = home.ask(price).await;
        let verdicts = [(&home.kim, approve(&id), "yes"), (&other, reject(&id), "no")];
        let calls = verdicts.into_iter().map(|(person, below, note)| {
            let request = world.persons_request(person, Method::POST, &agent.path(&below));
            World::send(request.json(&json!({"note": note})))
        });
        let answers = together(calls.collect()).await;
        let (first, second) = if answers[0].status == 200 {
            (&answers[0], &answers[1])
        } else {
            (&answers[1], &answers[0])
        };
        let won = first.clone().ok();
        let words = (won["status"].as_str().unwrap(), won["note"].as_str().unwrap());
        assert!([("approved", "yes"), ("rejected", "no")].contains(&words), "{won}");
        let told = second.clone().refused(409, "approval_not_pending");
        assert_eq!((&told["approval_id"], &told["status"]), (&id, &won["status"]));
        assert_eq!(home.approval(&id).await, won, "the first word stays");
    }
    let after = world.footprint().await;
    assert_eq!(after.approvals.values().sum::<usize>(), 8);
    assert_eq!(after.approvals.get("pending"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_can_be_decided_within_one_day() {
    let mut home = asking(World::still().await).await;
    let start = home.world.now();
    let (body, late) = home.ask(6).await;
    let (_, in_time) = home.ask(7).await;
    home.pass_a_day();
    let (world, agent) = (&home.world, &home.agent);
    let end = start.after(Duration::DAY);
    assert_eq!(world.now(), end);
    world.set_clock(Timestamp::from_micros(end.micros() - 1).unwrap());
    assert_eq!(home.queue("status=pending").await["count"], 2);
    home.edit(Method::POST, &approve(&in_time), json!({})).await.ok();

    world.set_clock(end);
    let before = world.rows().await;
    for verdict in [approve(&late), reject(&late), approve(&in_time)] {
        let told = home
            .edit(Method::POST, &verdict, json!({}))
            .await
            .refused(409, "approval_not_pending");
        assert_eq!(told["status"], "expired");
    }
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
    let void = home.approval(&late).await;
    assert_eq!(
        (&void["status"], &void["resolved_at"]),
        (&json!("expired"), &Value::Null)
    );
    assert_eq!(home.queue("status=pending").await["count"], 0);
    assert_eq!(home.queue("status=expired").await["count"], 2);
    let refused = world
        .authorize(agent, &carrying(&body, &late))
        .await
        .refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "approval_expired");
    assert_eq!(world.footprint().await.settlements, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_open_payment_requests_share_one_approval() {
    const RACERS: usize = 16;
    let home = asking(World::conflicted().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let second = home.edit(Method::POST, "/keys", json!({})).await.created();
    let second = agent.with_key(&second["key"]);
    let offer = world.offer(dollars(6));
    let bodies: Vec<Value> = (0..RACERS).map(|_| body_of(offer.clone())).collect();
    let asking = bodies.iter().enumerate().map(|(n, body)| {
        let caller = if n % 2 == 0 { agent } else { &second };
        authorizing(world, caller, body.clone())
    });
    let asked = together(asking.collect()).await.into_iter();
    let asked = asked.map(|answer| {
        answer.refused(402, "approval_required")["approval_id"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    let ids: BTreeSet<String> = asked.collect();
    assert_eq!(ids.len(), 1);
    let id = json!(ids.first().unwrap());
    let queue = home.queue("status=pending").await;
    assert_eq!(
        (&queue["count"], &queue["approvals"][0]["approval_id"]),
        (&json!(1), &id)
    );

    home.edit(Method::POST, &approve(&id), json!({})).await.ok();
    let retries = bodies
        .iter()
        .map(|body| authorizing(world, &second, carrying(body, &id)));
    let answers = together(retries.collect()).await;
    let paid = answers.iter().filter(|answer| answer.status == 200).count();
    let told = answers
        .iter()
        .filter(|answer| answer.slug() == "idempotent_replay")
        .count();
    assert_eq!((paid, told), (1, RACERS - 1));
    let after = world.footprint().await;
    assert_eq!((after.settlements, after.total), (1, dollars(6)));
    // The same call needs another approval after the first was used.
    let (_, next) = home.ask(6).await;
    assert_ne!(next, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approval_list_supports_filters_and_pages() {
    let mut home = asking(World::still().await).await;
    let (_, void) = home.ask(6).await;
    home.pass_a_day();
    let (world, kim) = (&home.world, &home.kim);
    let sibling = world.agent_of(kim, "sibling").await;
    world
        .person_edits(
            kim,
            Method::PATCH,
            &sibling.path("/services/lab-search"),
            &json!({"require_approval_above_units": 0}),
        )
        .await
        .ok();
    let (body, executed) = home.ask(6).await;
    home.edit(Method::POST, &approve(&executed), json!({})).await.ok();
    world.authorize(&home.agent, &carrying(&body, &executed)).await.ok();
    let (_, approved) = home.ask(7).await;
    home.edit(Method::POST, &approve(&approved), json!({})).await.ok();
    let (_, rejected) = home.ask(8).await;
    let request = world.persons_request(kim, Method::POST, &home.agent.path(&reject(&rejected)));
    World::send(request).await.ok();
    // Approvals have the same time, so a cursor that contains only the time would skip some.
    let mut siblings = Vec::new();
    for price in 1..10 {
        let body = body_of(world.offer(dollars(price)));
        let asked = world.authorize(&sibling, &body).await.refused(402, "approval_required");
        siblings.push(asked["approval_id"].clone());
        if price % 3 == 0 {
            world.pass(1);
        }
    }

    let ids =
        |approvals: &[Value]| -> Vec<Value> { approvals.iter().map(|told| told["approval_id"].clone()).collect() };
    let set = |ids: &[Value]| -> BTreeSet<String> { ids.iter().map(ToString::to_string).collect() };
    let own = [void.clone(), executed.clone(), approved.clone(), rejected.clone()];
    let all = [own.as_slice(), &siblings].concat();
    let (whole, pages) = world.pages_of(kim, "/approvals", "approvals", 100).await;
    assert_eq!((pages, whole.len(), set(&ids(&whole))), (1, all.len(), set(&all)));
    let times: Vec<&str> = whole.iter().map(|told| told["created_at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "newest first: {times:?}");
    for limit in [1, 2, 5, all.len()] {
        let (paged, pages) = world.pages_of(kim, "/approvals", "approvals", limit).await;
        assert_eq!(
            (ids(&paged), pages),
            (ids(&whole), all.len().div_ceil(limit)),
            "{limit} a page"
        );
    }

    let sibling_only = format!("agent_id={}", sibling.id);
    let own_only = format!("agent_id={}", home.agent.id);
    let rows = [
        ("status=pending", &siblings[..]),
        ("status=approved", &[approved]),
        ("status=rejected", &[rejected]),
        ("status=executed", &[executed]),
        ("status=expired", &[void]),
        (&sibling_only, &siblings[..]),
        (&own_only, &own),
        (&format!("{own_only}&status=pending"), &[]),
    ];
    for (query, expected) in rows {
        for limit in [2, 100] {
            let (found, _) = world
                .pages_of(kim, &format!("/approvals?{query}"), "approvals", limit)
                .await;
            assert_eq!(
                (set(&ids(&found)), found.len()),
                (set(expected), expected.len()),
                "{query}"
            );
        }
    }
    for (query, wrong) in [
        ("status=open", vec!["/status"]),
        (
            "agent_id=x&cursor=x&limit=0&status=Pending",
            vec!["/agent_id", "/cursor", "/limit", "/status"],
        ),
        ("limit=101", vec!["/limit"]),
        ("cursor=", vec!["/cursor"]),
    ] {
        assert_eq!(
            paths(world.person_gets(kim, &format!("/approvals?{query}")).await, query),
            wrong
        );
    }
    assert_eq!(
        members(&home.queue("limit=1").await),
        ["approvals", "count", "next_cursor"]
    );
}
