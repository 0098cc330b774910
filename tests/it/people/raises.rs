//! Tests temporary limit increases: the agent's request, the owner's grant, and the end.

use super::{Household, KIM, LEE, deny_stamps};
use purser_domain::Timestamp;
use purser_testkit::ProxyConfig;
use purser_tests::{World, authorizing, body_of, dollars, fresh_key};
use reqwest::Method;
use serde_json::{Value, json};

/// Creates an agent that may pay 2 dollars per call and 3 per day.
async fn limited(world: World) -> Household {
    let home = Household::in_world(world).await;
    let caps = json!({"max_per_call_units": dollars(2), "max_per_day_units": dollars(3)});
    home.set_policy(caps.clone()).await;
    home.edit(Method::PATCH, "/services/lab-weather", caps).await.ok();
    home
}

impl Household {
    /// Requests a payment in dollars. Returns the slug of the rejection, or an empty text.
    async fn tried(&self, price: u64, service: &str) -> String {
        let mut body = body_of(self.world.offer(dollars(price)));
        body["service_id"] = json!(service);
        self.world.authorize(&self.agent, &body).await.slug().to_owned()
    }

    /// Returns the id of a denial by both caps.
    async fn refusal(&self) -> Value {
        let body = body_of(self.world.offer(dollars(5)));
        let refused = self.world.authorize(&self.agent, &body).await;
        refused.refused(402, "amount_exceeds_per_call_limit")["transaction_id"].clone()
    }

    fn in_an_hour(&self) -> Timestamp {
        self.world.now().after(purser_testkit::sample::secs(3_600))
    }

    /// Returns a request for 5 dollars per call and 10 per day, for an hour.
    fn request(&self, refusal: &Value) -> Value {
        json!({
            "transaction_id": refusal,
            "max_per_call_units": dollars(5),
            "max_per_day_units": dollars(10),
            "until": self.in_an_hour().to_string(),
            "reason": "the report has <b>40 pages</b>",
        })
    }

    async fn ask_for_raise(&self, body: &Value) -> Value {
        self.world.post(&self.agent, "/x402/raises", body).await.ok()
    }

    fn below(approval: &Value, act: &str) -> String {
        format!("/approvals/{}{act}", approval["approval_id"].as_str().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_limit_increase_is_granted_and_ends() {
    let mut home = limited(World::still().await).await;
    let refusal = home.refusal().await;
    let body = home.request(&refusal);
    let asked = home.ask_for_raise(&body).await;
    let caps = json!({
        "max_per_call_units": dollars(5),
        "max_per_day_units": dollars(10),
        "until": home.in_an_hour().to_string(),
        "max_per_call_until": home.in_an_hour().to_string(),
        "max_per_day_until": home.in_an_hour().to_string(),
    });
    assert_eq!((&asked["status"], &asked["raised_caps"]), (&json!("pending"), &caps));
    assert_eq!(
        home.ask_for_raise(&body).await,
        asked,
        "there is one request for a service"
    );

    let queue = home
        .world
        .person_gets(&home.kim, "/approvals?status=pending")
        .await
        .ok();
    assert_eq!(queue["count"], 1);
    let mut shown = caps.clone();
    shown["present_max_per_call_units"] = json!(dollars(2));
    shown["present_max_per_day_units"] = json!(dollars(3));
    shown["exposure_units"] = json!(dollars(10));
    shown["reason"] = json!("the report has <b>40 pages</b>");
    assert_eq!(queue["approvals"][0]["raised_caps"], shown);
    assert_eq!(home.tried(5, "lab-search").await, "amount_exceeds_per_call_limit");

    // Widening the limits needs a recent sign-in.
    home.world.pass(601);
    let approve = Household::below(&asked, "/approve");
    let old = home.edit(Method::POST, &approve, json!({})).await;
    old.refused(403, "recent_sign_in_required");
    home.kim = home.world.person(&KIM);
    let granted = home.edit(Method::POST, &approve, json!({})).await.ok();
    assert_eq!(
        (&granted["status"], &granted["expires_at"]),
        (&json!("approved"), &caps["until"])
    );
    home.edit(Method::POST, &approve, json!({}))
        .await
        .refused(409, "approval_not_pending");
    let version = home.read("/services/lab-search").await;
    assert_eq!(version["policy"]["raised_caps"], caps);
    assert_eq!(version["remaining_today_units"], dollars(10));

    assert_eq!(home.tried(5, "lab-weather").await, "amount_exceeds_per_call_limit");
    let paid = home
        .world
        .authorize(&home.agent, &body_of(home.world.offer(dollars(5))))
        .await
        .ok();
    let policy = home.agent.path("/services/lab-search/policy");
    let policy = home.world.get(&home.agent, &policy).await.ok();
    assert_eq!(policy["remaining_today_units"], dollars(5));
    assert_eq!(home.world.stack.publish_changes().await, 0);
    let replay = format!("/decisions/{}/replay", paid["transaction_id"].as_str().unwrap());
    let nothing = json!({});
    let replay = home
        .world
        .person_edits(&home.kim, Method::POST, &replay, &nothing)
        .await;
    let replay = replay.ok();
    assert_eq!(replay["differences"], json!([]), "{replay}");

    home.world.pass(3_600 - 601);
    assert_eq!(home.tried(5, "lab-search").await, "amount_exceeds_per_call_limit");
    assert_eq!(home.tried(1, "lab-search").await, "daily_spend_limit_exceeded");
    home.kim = home.world.person(&KIM);
    assert_eq!(home.read(&Household::below(&asked, "")).await["status"], "expired");
    assert!(
        home.read("/services/lab-search").await["policy"]
            .get("raised_caps")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_or_an_ownership_transfer_ends_a_limit_increase() {
    let mut home = limited(World::still().await).await;
    let asked = home.ask_for_raise(&home.request(&home.refusal().await)).await;
    let at = |act| Household::below(&asked, act);
    home.edit(Method::POST, &at("/approve"), json!({})).await.ok();
    let ended = home.edit(Method::POST, &at("/withdraw"), json!({})).await.ok();
    assert_eq!(ended["status"], "rejected");
    assert_eq!(home.tried(5, "lab-search").await, "amount_exceeds_per_call_limit");

    // An agent can't repeat a withdrawn or rejected request for a day.
    let again = home.ask_for_raise(&home.request(&home.refusal().await)).await;
    assert_eq!(
        (&again["approval_id"], &again["status"]),
        (&asked["approval_id"], &json!("rejected"))
    );
    home.pass_a_day();
    let refusal = home.refusal().await;
    let granted = home.ask_for_raise(&home.request(&refusal)).await;
    assert_ne!(granted["approval_id"], asked["approval_id"]);
    home.edit(Method::POST, &Household::below(&granted, "/approve"), json!({}))
        .await
        .ok();
    let waiting = home.ask_for_raise(&home.request(&refusal)).await;
    assert_eq!(waiting["status"], "pending");
    let world = &home.world;
    assert_eq!(home.tried(4, "lab-search").await, "");
    let lee = world.person(&LEE);
    home.hand_over_to(&lee).await;
    assert_eq!(home.tried(4, "lab-search").await, "amount_exceeds_per_call_limit");
    let queue = world.person_gets(&lee, "/approvals?status=pending").await.ok();
    assert_eq!(queue["count"], 0, "{queue}");
    let approve = home.agent.path(&Household::below(&waiting, "/approve"));
    let approved = world.person_edits(&lee, Method::POST, &approve, &json!({})).await;
    approved.refused(409, "approval_not_pending");
}

/// The agent first requests a higher cap per call, and then a higher cap per day that ends earlier.
#[tokio::test(flavor = "multi_thread")]
async fn each_cap_has_its_own_limit_increase_and_end() {
    let home = limited(World::still().await).await;
    let grant = async |home: &Household, body: Value| {
        let asked = home.ask_for_raise(&body).await;
        home.edit(Method::POST, &Household::below(&asked, "/approve"), json!({}))
            .await
            .ok();
        asked
    };
    let mut body = home.request(&home.refusal().await);
    body.as_object_mut().unwrap().remove("max_per_day_units");
    let per_call = grant(&home, body).await;
    let refused = home
        .world
        .authorize(&home.agent, &body_of(home.world.offer(dollars(5))))
        .await;
    let refused = refused.refused(402, "daily_spend_limit_exceeded")["transaction_id"].clone();
    let mut body = home.request(&refused);
    body.as_object_mut().unwrap().remove("max_per_call_units");
    let (in_an_hour, earlier) = (
        home.in_an_hour(),
        home.world.now().after(purser_testkit::sample::secs(900)),
    );
    body["until"] = json!(earlier.to_string());
    grant(&home, body).await;
    let both = json!({
        "max_per_call_units": dollars(5),
        "max_per_day_units": dollars(10),
        "until": earlier.to_string(),
        "max_per_call_until": in_an_hour.to_string(),
        "max_per_day_until": earlier.to_string(),
    });
    assert_eq!(home.read("/services/lab-search").await["policy"]["raised_caps"], both);
    let paid = home
        .world
        .authorize(&home.agent, &body_of(home.world.offer(dollars(5))))
        .await
        .ok();
    assert_eq!(home.world.stack.publish_changes().await, 0);
    let replay = format!("/decisions/{}/replay", paid["transaction_id"].as_str().unwrap());
    let nothing = json!({});
    let replay = home
        .world
        .person_edits(&home.kim, Method::POST, &replay, &nothing)
        .await;
    assert_eq!(replay.ok()["differences"], json!([]));

    // An update of the cap per day ends only this cap's increase.
    home.set_policy(json!({"max_per_day_units": dollars(8)})).await;
    let keep_only_call = json!({
        "max_per_call_units": dollars(5),
        "max_per_day_units": null,
        "until": in_an_hour.to_string(),
        "max_per_call_until": in_an_hour.to_string(),
        "max_per_day_until": null,
    });
    assert_eq!(
        home.read("/services/lab-search").await["policy"]["raised_caps"],
        keep_only_call
    );
    assert_eq!(home.tried(4, "lab-search").await, "daily_spend_limit_exceeded");
    assert_eq!(home.tried(3, "lab-search").await, "");
    // The owner withdraws the approval of the remaining increase.
    home.edit(Method::POST, &Household::below(&per_call, "/withdraw"), json!({}))
        .await
        .ok();
    assert!(
        home.read("/services/lab-search").await["policy"]
            .get("raised_caps")
            .is_none()
    );
}

/// A payment is on its way to the database when the transfer completes. The acceptance must store the agent's version
/// on the windows.
#[tokio::test(flavor = "multi_thread")]
async fn in_flight_payments_use_no_limit_increase_after_a_transfer() {
    let home = limited(World::proxied(ProxyConfig::default()).await).await;
    let (world, proxy) = (&home.world, home.world.proxy.as_ref().unwrap());
    let asked = home.ask_for_raise(&home.request(&home.refusal().await)).await;
    home.edit(Method::POST, &Household::below(&asked, "/approve"), json!({}))
        .await
        .ok();
    let lee = world.person(&LEE);
    home.offer_to(&lee).await;

    proxy.stall(1);
    let paying = tokio::spawn(authorizing(world, &home.agent, body_of(world.offer(dollars(4)))));
    proxy.stalled(1).await;
    deny_stamps(proxy);
    home.accept(&lee).await.refused(500, "internal_error");
    proxy.behave();
    home.accept(&lee).await.ok();
    proxy.resume();
    let paid = paying.await.unwrap();
    paid.refused(402, "amount_exceeds_per_call_limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_increase_requests_must_fit_the_caps_that_blocked_the_payment() {
    let home = limited(World::still().await).await;
    let refusal = home.refusal().await;
    let body = home.request(&refusal);
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    let mut no_cap = with("max_per_call_units", Value::Null);
    no_cap["max_per_day_units"] = Value::Null;
    let late = home.world.now().after(purser_testkit::sample::secs(7 * 86_400 + 1));
    let small = body_of(home.world.offer(dollars(3)));
    let small = home.world.authorize(&home.agent, &small).await;
    let small = small.refused(402, "amount_exceeds_per_call_limit")["transaction_id"].clone();
    let rows = [
        (no_cap, "/max_per_day_units"),
        (with("until", json!(late.to_string())), "/until"),
        (with("until", json!(home.world.now().to_string())), "/until"),
        (with("max_per_call_units", json!(dollars(2))), "/max_per_call_units"),
        (with("transaction_id", small), "/max_per_day_units"),
        (with("reason", json!("")), "/reason"),
    ];
    for (body, path) in rows {
        let refused = home.world.post(&home.agent, "/x402/raises", &body).await;
        let refused = refused.refused(400, "invalid_request");
        assert_eq!(refused["details"][0]["path"], path, "{refused}");
    }
    let unknown = with("transaction_id", json!(fresh_key()));
    let unknown = home.world.post(&home.agent, "/x402/raises", &unknown).await;
    unknown.refused(404, "not_found");
    let stranger = home.world.agent_of(&home.kim, "another").await;
    let foreign = home.world.post(&stranger, "/x402/raises", &body).await;
    foreign.refused(404, "not_found");
    let asked = home.ask_for_raise(&body).await;
    let other = with("max_per_call_units", json!(dollars(6)));
    assert_eq!(home.ask_for_raise(&other).await, asked, "the pending request");
}

/// The maximum is a multiple of the policy's cap, without an active increase.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_request_a_limit_increase_beyond_the_owners_maximum_factor() {
    let home = limited(World::still().await).await;
    let request = |refusal: &Value, units: u64| {
        let mut body = home.request(refusal);
        body["max_per_call_units"] = json!(units);
        body.as_object_mut().unwrap().remove("max_per_day_units");
        body
    };
    let rejected = async |refusal: &Value, units: u64, max: &str| {
        let body = request(refusal, units);
        let refused = home.world.post(&home.agent, "/x402/raises", &body).await;
        let refused = refused.refused(400, "invalid_request");
        let detail = &refused["details"][0];
        assert_eq!(detail["path"], "/max_per_call_units", "{refused}");
        assert!(detail["message"].as_str().unwrap().contains(max), "{refused}");
    };
    let refusal = home.refusal().await;
    rejected(&refusal, dollars(20) + 1, "at most 20000000 units").await;
    rejected(&refusal, (1 << 53) - 1, "10 times the cap").await;
    home.edit(Method::PATCH, "", json!({"max_raise_factor": 1_001}))
        .await
        .refused(400, "invalid_request");
    home.edit(Method::PATCH, "", json!({"max_raise_factor": 0})).await.ok();
    assert_eq!(home.read("").await["max_raise_factor"], 0);
    rejected(&refusal, dollars(5), "at most 0 units").await;
    home.edit(Method::PATCH, "", json!({"max_raise_factor": 3})).await.ok();
    rejected(&refusal, dollars(6) + 1, "at most 6000000 units").await;
    let asked = home.ask_for_raise(&request(&refusal, dollars(6))).await;
    home.edit(Method::POST, &Household::below(&asked, "/approve"), json!({}))
        .await
        .ok();
    let dear = body_of(home.world.offer(dollars(7)));
    let refusal = home.world.authorize(&home.agent, &dear).await;
    let refusal = refusal.refused(402, "amount_exceeds_per_call_limit")["transaction_id"].clone();
    rejected(&refusal, dollars(7), "at most 6000000 units").await;
    let log = home
        .world
        .person_gets(&home.kim, "/audit-log?kind=agent_raise_factor_edited")
        .await
        .ok();
    // The entries have the same time, so their order is undefined.
    let updates = log["entries"].as_array().unwrap().iter();
    let updates: Vec<_> = updates.map(|entry| [&entry["before"], &entry["after"]]).collect();
    let factor = |factor: u32| json!({"max_raise_factor": factor});
    assert_eq!(updates.len(), 2, "{log}");
    assert!(updates.contains(&[&factor(0), &factor(3)]), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_approve_a_limit_increase_with_lower_caps_and_an_earlier_end() {
    let home = limited(World::still().await).await;
    let asked = home.ask_for_raise(&home.request(&home.refusal().await)).await;
    let approve = Household::below(&asked, "/approve");
    let half_an_hour = home.world.now().after(purser_testkit::sample::secs(1_800)).to_string();
    let too_late = home.in_an_hour().after(purser_testkit::sample::secs(1)).to_string();
    let rejected = [
        (json!({"max_per_call_units": dollars(5) + 1}), "/max_per_call_units"),
        (json!({"max_per_call_units": dollars(2)}), "/max_per_call_units"),
        (json!({"max_per_day_units": u64::MAX}), "/max_per_day_units"),
        (json!({"max_per_day_units": -1}), "/max_per_day_units"),
        (
            json!({"max_per_call_units": 0, "max_per_day_units": 0}),
            "/max_per_call_units",
        ),
        (json!({"until": too_late}), "/until"),
        (json!({"until": home.world.now().to_string()}), "/until"),
    ];
    for (body, path) in rejected {
        let refused = home.edit(Method::POST, &approve, body).await;
        let refused = refused.refused(400, "invalid_request");
        assert_eq!(refused["details"][0]["path"], path, "{refused}");
    }
    assert_eq!(home.tried(5, "lab-search").await, "amount_exceeds_per_call_limit");
    let reject = Household::below(&asked, "/reject");
    let body = json!({"max_per_call_units": dollars(3)});
    home.edit(Method::POST, &reject, body)
        .await
        .refused(400, "invalid_request");

    let body = json!({"max_per_call_units": dollars(4), "max_per_day_units": 0, "until": half_an_hour});
    let granted = home.edit(Method::POST, &approve, body.clone()).await.ok();
    let mut caps = json!({"max_per_call_units": dollars(4), "max_per_day_units": null, "until": half_an_hour});
    let stored_caps = json!([caps]);
    caps["max_per_call_until"] = json!(half_an_hour);
    caps["max_per_day_until"] = Value::Null;
    for (name, value) in caps.as_object().unwrap() {
        assert_eq!(&granted["raised_caps"][name], value, "{granted}");
    }
    assert_eq!(granted["expires_at"], half_an_hour);
    let polled = format!("/approvals/{}", asked["approval_id"].as_str().unwrap());
    let polled = home.world.get(&home.agent, &polled).await.ok();
    assert_eq!((&polled["status"], &polled["raised_caps"]), (&json!("approved"), &caps));
    assert_eq!(home.read("/services/lab-search").await["policy"]["raised_caps"], caps);
    let log = home
        .world
        .person_gets(&home.kim, "/audit-log?kind=approval_approved")
        .await
        .ok();
    let entries = log["entries"].as_array().unwrap().iter();
    let stored: Vec<&Value> = entries
        .map(|entry| &entry["after"]["raises"])
        .filter(|raises| !raises.is_null())
        .collect();
    assert_eq!(stored, [&stored_caps], "{log}");
    home.edit(Method::POST, &approve, body)
        .await
        .refused(409, "approval_not_pending");
    assert_eq!(home.tried(5, "lab-search").await, "amount_exceeds_per_call_limit");
    assert_eq!(home.tried(4, "lab-search").await, "daily_spend_limit_exceeded");
    assert_eq!(home.tried(3, "lab-search").await, "");
}

/// A bulk decision shows only the sum of payments, so it grants no limit increase.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_approvals_grant_no_limit_increase() {
    let home = limited(World::still().await).await;
    let asked = home.ask_for_raise(&home.request(&home.refusal().await)).await;
    let before = home.read("/services/lab-search").await;
    let bulk = async |decision: &str| {
        let body = json!({"decision": decision, "approval_ids": [asked["approval_id"]]});
        let decided = home
            .world
            .person_edits(&home.kim, Method::POST, "/approvals/bulk", &body)
            .await
            .ok();
        decided["outcomes"][0].clone()
    };
    let outcome = |outcome: &str, status: &str| json!({"approval_id": asked["approval_id"], "outcome": outcome, "status": status});
    let page = format!(
        "/dashboard/approvals/bulk?decision=approve&approval={}",
        asked["approval_id"].as_str().unwrap()
    );
    let page = home.world.http.get(format!("{}{page}", home.world.stack.base_url));
    let cookie = home.world.browser_session(&KIM).await;
    let page = page
        .header("cookie", cookie)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        page.contains("1 limit increase, not included") && page.contains("None of the selected payments is pending."),
        "{page}"
    );
    for amount in ["$2.00", "$5.00", "$3.00", "$10.00", "so at most "] {
        assert!(page.contains(amount), "{amount}: {page}");
    }
    assert_eq!(bulk("approve").await, outcome("not_in_bulk", "pending"));
    assert_eq!(home.read("/services/lab-search").await, before);
    assert_eq!(home.tried(5, "lab-search").await, "amount_exceeds_per_call_limit");
    assert_eq!(bulk("reject").await, outcome("decided", "rejected"));
    assert_eq!(bulk("approve").await, outcome("not_pending", "rejected"));
}
