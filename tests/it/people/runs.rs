//! Tests runs: keys with budgets that an agent opens for sub-agents.

use super::{Household, KIM, LEE};
use purser_domain::{Agent, ClientGrant, ClientName, Duration, GrantOrigin, KeyCredential, OAuthKey};
use purser_tests::{Answer, TestAgent, World, authorizing, body_of, dollars, paths, together};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The maximum amount of a run, in micro-USDC.
const LIMIT: u64 = 1_000;

impl Household {
    fn in_hours(&self, hours: u32) -> Value {
        let now = self.world.now();
        json!(now.after(Duration::from_secs_u32(hours * 3_600)).to_string())
    }

    async fn open(&self, opener: &TestAgent, changes: Value) -> Answer {
        let mut body = json!({"limit_units": LIMIT, "expires_at": self.in_hours(1)});
        body.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        self.world.post(opener, &self.agent.path("/runs"), &body).await
    }

    /// Opens a run with the agent's first key.
    async fn run(&self, changes: Value) -> TestAgent {
        let run = self.open(&self.agent, changes).await.created();
        self.agent.with_key(&run["key"])
    }

    async fn close(&self, opener: &TestAgent, run: &TestAgent) -> Answer {
        let path = self.agent.path(&format!("/runs/{}", run.key_id()));
        self.world.call(Method::DELETE, &path, Some(&opener.key), None).await
    }

    async fn pay(&self, key: &TestAgent, units: u64) -> Answer {
        self.world.authorize(key, &body_of(self.world.offer(units))).await
    }

    async fn key(&self, scope: Value) -> TestAgent {
        let key = self.edit(Method::POST, "/keys", scope).await.created();
        self.agent.with_key(&key["key"])
    }

    /// Returns the rules that the policy shows to this key.
    async fn shown_rules(&self, key: &TestAgent) -> Vec<Value> {
        let policy = self
            .world
            .get(key, &self.agent.path("/services/lab-search/policy"))
            .await
            .ok();
        policy["rules"].as_array().unwrap().clone()
    }

    async fn rules(&self) -> Vec<Value> {
        self.read("/rules").await["rules"].as_array().unwrap().clone()
    }

    async fn is_open(&self, key: &TestAgent) -> bool {
        let answer = self.world.get(key, "/mcp/agents/me").await;
        if answer.status == 200 {
            return true;
        }
        answer.refused(401, "invalid_agent_key");
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_pays_up_to_its_limit_and_the_opener_sees_the_rest() {
    let home = Household::in_world(World::still().await).await;
    let (opener, other) = (&home.agent, home.key(json!({})).await);
    let opened = home.open(opener, json!({})).await.created();
    let run = opener.with_key(&opened["key"]);
    let [budget] = &*home.rules().await else { panic!() };
    let expected = json!({
        "agent_id": opener.id.to_string(),
        "key": run.key,
        "key_id": run.key_id(),
        "rule_id": budget["rule_id"],
        "limit_units": LIMIT,
        "services": null,
        "expires_at": home.in_hours(1),
    });
    assert_eq!(opened, expected);

    home.pay(&run, 600).await.ok();
    let blocked = home.pay(&run, 401).await.refused(403, "policy_blocked");
    let reason = format!("budget_limit:{}", budget["rule_id"].as_str().unwrap());
    assert_eq!(blocked["decision"]["reason"], reason);
    // The opener's own payments do not count in the run's budget.
    home.pay(opener, 500).await.ok();
    for viewer in [opener, &run] {
        let [shown] = &*home.shown_rules(viewer).await else {
            panic!()
        };
        assert_eq!(
            [
                &shown["rule_id"],
                &shown["keys"],
                &shown["used_units"],
                &shown["remaining_units"]
            ],
            [&budget["rule_id"], &json!([run.key_id()]), &json!(600), &json!(400)]
        );
    }
    assert_eq!(home.shown_rules(&other).await, [Value::Null; 0]);
    // The run's budget does not limit the opener's own payments.
    let foreseen = home.world.check(opener, &body_of(home.world.offer(1))).await.ok();
    assert_eq!(foreseen["budgets"], json!([]), "{foreseen}");
    home.pay(&run, 400).await.ok();
    home.pay(&run, 1).await.refused(403, "policy_blocked");

    let keys = home.read("/keys").await;
    assert_eq!(
        [&keys["keys"][0]["key_id"], &keys["keys"][0]["opened_by"]],
        [run.key_id(), opener.key_id()]
    );
    let page = format!("{}/dashboard/agents/{}", home.world.stack.base_url, opener.id);
    let page = home
        .world
        .http
        .get(page)
        .header("cookie", home.world.browser_session(&KIM).await);
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(page.contains("A run, opened by key"), "{page}");
    let audit = home
        .world
        .person_gets(&home.kim, "/audit-log?kind=key_created")
        .await
        .ok();
    let entries = audit["entries"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["object_id"] == run.key_id()).unwrap();
    assert_eq!(entry["person_id"], Value::Null);
    assert_eq!(
        entry["after"][format!("keys/{}", run.key_id())]["opened_by"],
        opener.key_id()
    );
}

/// Another budget with the run's key in `keys` does not limit all payments with the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_when_no_lifetime_budget_counts_all_its_payments() {
    let home = Household::in_world(World::still().await).await;
    let opener = &home.agent;
    for part in [
        json!({"services": ["lab-search"]}),
        json!({"categories": ["data"]}),
        json!({"per_payee": true}),
        json!({"period": "day", "time_zone": "UTC"}),
        json!({"keys": "both"}),
    ] {
        let opened = home.open(opener, json!({})).await.created();
        let run = opener.with_key(&opened["key"]);
        let budget =
            |keys: Value| json!({"kind": "budget_limit", "limit_units": LIMIT, "period": "lifetime", "keys": keys});
        let mut other = budget(json!([run.key_id()]));
        for (name, value) in part.as_object().unwrap() {
            other[name] = value.clone();
        }
        if part["keys"] == "both" {
            other["keys"] = json!([run.key_id(), opener.key_id()]);
        }
        let added = home.edit(Method::POST, "/rules", other).await.created();
        assert!(home.is_open(&run).await, "{part}");
        let path = format!("/rules/{}", opened["rule_id"].as_str().unwrap());
        home.edit(Method::DELETE, &path, json!({})).await.ok();
        assert!(!home.is_open(&run).await, "{part}");
        let path = format!("/rules/{}", added["rule_id"].as_str().unwrap());
        home.edit(Method::DELETE, &path, json!({})).await;
    }

    let opened = home.open(opener, json!({})).await.created();
    let run = opener.with_key(&opened["key"]);
    let path = format!("/rules/{}", opened["rule_id"].as_str().unwrap());
    let mut budget = json!({"kind": "budget_limit", "limit_units": 5, "period": "lifetime", "keys": [run.key_id()]});
    home.edit(Method::PUT, &path, budget.clone()).await.ok();
    assert!(home.is_open(&run).await);
    budget["services"] = json!(["lab-search"]);
    home.edit(Method::PUT, &path, budget).await.ok();
    assert!(!home.is_open(&run).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_with_its_opener_its_expiry_or_when_the_opener_closes_it() {
    let home = Household::in_world(World::still().await).await;
    let (opener, other) = (home.key(json!({})).await, home.key(json!({})).await);
    let open = async || {
        let run = home.open(&opener, json!({})).await.created();
        opener.with_key(&run["key"])
    };
    let [closed, ended, expiring] = [open().await, open().await, open().await];
    for stranger in [&other, &home.agent, &closed] {
        home.close(stranger, &closed).await.refused(404, "not_found");
    }
    home.close(&opener, &other).await.refused(404, "not_found");
    let key = home.close(&opener, &closed).await.ok();
    assert_eq!([&key["key_id"], &key["status"]], [closed.key_id(), "ended"]);
    home.pay(&closed, 1).await.refused(401, "invalid_agent_key");
    home.close(&opener, &closed).await.ok();
    assert!(home.is_open(&ended).await);

    // The owner can revoke, but not rotate, a run's key.
    let below = format!("/keys/{}", ended.key_id());
    let rotation = home
        .edit(Method::POST, &format!("{below}/rotate"), json!({"overlap_seconds": 0}))
        .await;
    assert_eq!(paths(rotation, "a run's key"), ["/keyId"]);
    home.edit(Method::DELETE, &below, json!({})).await.ok();
    assert!(!home.is_open(&ended).await && home.is_open(&expiring).await);
    assert_eq!(home.rules().await.len(), 1, "budgets of ended runs are removed");
    let late = home.run(json!({})).await;

    // The rotation's overlap ends before the run.
    let below = format!("/keys/{}/rotate", opener.key_id());
    let rotated = home
        .edit(Method::POST, &below, json!({"overlap_seconds": 60}))
        .await
        .created();
    let new = opener.with_key(&rotated["key"]);
    let answer = home.open(&opener, json!({})).await;
    assert_eq!(paths(answer, "a run after its opener"), ["/expires_at"]);
    home.world.pass(59);
    assert!(home.is_open(&expiring).await && home.is_open(&late).await);
    home.world.pass(1);
    assert!(!home.is_open(&expiring).await && !home.is_open(&opener).await);
    let answers = home.close(&new, &expiring).await;
    answers.refused(404, "not_found");

    let last = home.open(&new, json!({})).await.created();
    let last = new.with_key(&last["key"]);
    home.edit(Method::DELETE, &format!("/keys/{}", new.key_id()), json!({}))
        .await
        .ok();
    home.pay(&last, 1).await.refused(401, "invalid_agent_key");
    home.open(&new, json!({})).await.refused(401, "invalid_agent_key");
    assert!(home.is_open(&late).await);
    home.world.pass(3_600);
    assert!(!home.is_open(&late).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_permits_nothing_that_its_opener_does_not_permit() {
    let home = Household::in_world(World::still().await).await;
    let world = &home.world;
    let narrow = json!({
        "permissions": ["pay"], "services": ["lab-search", "lab-weather"], "networks": ["127.0.0.0/8"],
        "expires_at": home.in_hours(2),
    });
    let opener = home.key(narrow).await;
    let opened = home.open(&opener, json!({"services": ["lab-weather"]})).await.created();
    let run = opener.with_key(&opened["key"]);
    let missing = home.pay(&run, 1).await.refused(403, "key_not_allowed");
    assert_eq!(missing["missing"], "service");
    let keys = home.read("/keys").await;
    let key = &keys["keys"][0];
    let weather = world.service("lab-weather").await.id.to_string();
    assert_eq!(
        [
            &key["permissions"],
            &key["services"],
            &key["networks"],
            &key["expires_at"]
        ],
        [
            &json!(["pay"]),
            &json!([weather]),
            &json!(["127.0.0.0/8"]),
            &home.in_hours(1)
        ]
    );
    let outside = home.open(&opener, json!({"services": ["lab-reports"]})).await;
    assert_eq!(outside.refused(403, "key_not_allowed")["missing"], "service");
    let rows = [
        (json!({"expires_at": home.in_hours(3)}), "/expires_at"),
        (json!({"expires_at": world.now().to_string()}), "/expires_at"),
        (json!({"limit_units": 0}), "/limit_units"),
        (json!({"limit_units": -1}), "/limit_units"),
        (json!({"limit_units": 1.5}), "/limit_units"),
        (json!({"services": []}), "/services"),
        (json!({"services": ["lab-search", "lab-search"]}), "/services/1"),
        (json!({"services": ["unknown"]}), "/services/0"),
        (json!({"permissions": ["read", "pay"]}), "/permissions"),
        (json!({"networks": ["0.0.0.0/0"]}), "/networks"),
        (json!({"opened_by": null}), "/opened_by"),
    ];
    for (changes, path) in rows {
        let about = changes.to_string();
        assert_eq!(paths(home.open(&opener, changes).await, &about), [path], "{about}");
    }
    let long = home
        .open(&home.agent, json!({"expires_at": home.in_hours(7 * 24 + 1)}))
        .await;
    assert_eq!(paths(long, "a long run"), ["/expires_at"]);
    home.open(&home.agent, json!({"expires_at": home.in_hours(7 * 24)}))
        .await
        .created();

    let reader = home.key(json!({"permissions": ["read"]})).await;
    assert_eq!(
        home.open(&reader, json!({})).await.refused(403, "key_not_allowed")["missing"],
        "pay"
    );
    let stranger = world.agent_of(&world.person(&LEE), "stranger").await;
    home.open(&stranger, json!({})).await.refused(404, "not_found");
    home.close(&stranger, &run).await.refused(404, "not_found");
    let path = home.agent.path("/runs");
    world
        .person_edits(&home.kim, Method::POST, &path, &json!({}))
        .await
        .refused(401, "invalid_authorization_header");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_payments_count_in_its_own_budget_opens_no_run() {
    let home = Household::in_world(World::still().await).await;
    let lacks_run = async |opener: &TestAgent| {
        let answer = home.open(opener, json!({})).await.refused(403, "key_not_allowed");
        assert_eq!(answer["missing"], "run", "{answer}");
    };
    let run = home.run(json!({})).await;
    lacks_run(&run).await;
    // A run whose budget the owner removes ends.
    let budget = home.rules().await[0]["rule_id"].as_str().unwrap().to_owned();
    home.edit(Method::DELETE, &format!("/rules/{budget}"), json!({}))
        .await
        .ok();
    home.pay(&run, 1).await.refused(401, "invalid_agent_key");
    let limited = home.key(json!({})).await;
    for rule in [
        json!({"kind": "budget_limit", "limit_units": dollars(1), "window_seconds": 3_600}),
        json!({"kind": "count_limit", "count": 9, "period": "lifetime"}),
    ] {
        let mut rule = rule;
        rule["keys"] = json!([limited.key_id()]);
        let added = home.edit(Method::POST, "/rules", rule).await.created();
        lacks_run(&limited).await;
        let below = format!("/rules/{}", added["rule_id"].as_str().unwrap());
        home.edit(Method::DELETE, &below, json!({})).await.ok();
    }
    home.open(&limited, json!({})).await.created();

    let (oauth, now) = (OAuthKey::from_secret(&"k".repeat(32)).unwrap(), home.world.now());
    let (agent, grant) = (home.agent.id, purser_domain::KeyId(7));
    let client = ClientGrant {
        verification_key: oauth.verification_key(agent, grant),
        client: ClientName::parse("Claude").unwrap(),
        origin: GrantOrigin::device(),
    };
    let add = |record: &mut Agent| {
        let mut key = record.keys[0].clone();
        (key.id, key.credential) = (grant, KeyCredential::Grant(client));
        record.keys.push(key);
    };
    home.world.edit(&home.agent, add).await;
    let token = oauth.sign_access_token(agent, grant, now.after(Duration::DAY));
    let client = home.agent.with_key(&json!(token));
    home.pay(&client, 1).await.ok();
    lacks_run(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_agent_opens_no_run_and_can_close_runs() {
    let home = Household::in_world(World::still().await).await;
    let run = home.run(json!({})).await;
    let refused = async |reason: &str| {
        let answer = home.open(&home.agent, json!({})).await.refused(403, "policy_blocked");
        assert_eq!(answer["decision"]["reason"], reason);
    };
    home.set_status("frozen").await;
    refused("agent_frozen").await;
    home.close(&home.agent, &run).await.ok();
    home.set_status("active").await;
    let path = format!("/internal/freezes/agents/{}", home.agent.id);
    let freeze = home.world.operators_request(Method::PUT, &path);
    World::send(freeze.json(&json!({"reason": "reported stolen"})))
        .await
        .ok();
    for _ in 2..20 {
        refused("agent_frozen:by_operator").await;
    }
    // Each opening changes the agent's version, so the openings per minute are limited.
    home.open(&home.agent, json!({}))
        .await
        .refused(429, "too_many_requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_openings_leave_five_runs_and_half_of_the_budgets() {
    let home = Household::in_world(World::conflicted().await).await;
    let body = json!({"limit_units": LIMIT, "expires_at": home.in_hours(1)});
    let url = format!("{}{}", home.world.stack.base_url, home.agent.path("/runs"));
    let open = || World::send(home.world.http.post(&url).bearer_auth(&home.agent.key).json(&body));
    let answers = together((0..20).map(|_| open()).collect()).await;
    let mut tally = BTreeMap::new();
    for answer in &answers {
        *tally.entry((answer.status, answer.slug())).or_insert(0) += 1;
    }
    assert_eq!(tally, BTreeMap::from([((201, ""), 5), ((400, "invalid_request"), 15)]));
    let keys = home.read("/keys").await;
    let runs = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|key| !key["opened_by"].is_null());
    assert_eq!(runs.count(), Agent::MAX_RUNS);
    assert_eq!(home.rules().await.len(), Agent::MAX_RUNS);

    // Concurrent payments stay within the run's limit.
    let opened = answers.iter().find(|answer| answer.status == 201).unwrap();
    let run = home.agent.with_key(&opened.body["key"]);
    let pay = |_| authorizing(&home.world, &run, body_of(home.world.offer(LIMIT / 4)));
    let answers = together((0..12).map(pay).collect()).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 4);

    let budget = json!({"kind": "budget_limit", "limit_units": 1, "window_seconds": 3_600});
    for _ in Agent::MAX_RUNS..Agent::MAX_BUDGETS {
        home.edit(Method::POST, "/rules", budget.clone()).await.created();
    }
    assert_eq!(home.edit(Method::POST, "/rules", budget).await.status, 400);
}
