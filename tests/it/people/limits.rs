//! Tests rules over HTTP: preflight and authorize agree, and the decision can be replayed.

use super::{Household, KIM, carrying};
use purser_domain::{Duration, Timestamp};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, fresh_key};
use reqwest::Method;
use serde_json::{Value, json};

/// The price of a call, in micro-USDC.
const PRICE: u64 = 10_000;

async fn household() -> Household {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::still_with(options).await).await;
    let free = json!({"max_per_day_units": 1_000_000_000, "require_approval_above_units": 1_000_000_000});
    home.set_policy(free).await;
    home
}

impl Household {
    async fn with_rule(&self, terms: &Value) -> String {
        let rule = self.edit(Method::POST, "/rules", terms.clone()).await.created();
        for (name, value) in terms.as_object().unwrap() {
            assert_eq!(rule[name], *value, "{rule}");
        }
        rule["rule_id"].as_str().unwrap().to_owned()
    }

    async fn without_rule(&self, rule: &str) {
        let removed = self.edit(Method::DELETE, &format!("/rules/{rule}"), json!({})).await;
        removed.ok();
    }

    fn body(&self, units: u64) -> Value {
        body_of(self.world.offer(units))
    }

    /// Asserts that preflight and authorize allow the body. Returns the response of authorize.
    async fn pays(&self, body: &Value) -> Value {
        let foreseen = self.world.check(&self.agent, body).await.ok();
        assert_eq!(foreseen["result"], "allow", "{foreseen}");
        let paid = self.world.authorize(&self.agent, body).await.ok();
        self.is_replayed(&paid).await;
        paid
    }

    /// Makes the payment on the chain, and completes it.
    async fn settles(&self, paid: &Value) {
        let proof = json!({"payment_response_header": "e30=", "tx_hash": self.world.settle(paid).await});
        let settlement = paid["settlement_id"].as_str().unwrap();
        self.world.complete(&self.agent, settlement, &proof).await.ok();
    }

    /// Asserts that preflight and authorize deny the body by this rule. Returns `retry_at`.
    async fn refuses(&self, body: &Value, kind: &str, rule: &str) -> Value {
        let foreseen = self.world.check(&self.agent, body).await.ok();
        let refused = self
            .world
            .authorize(&self.agent, body)
            .await
            .refused(403, "policy_blocked");
        let decision = &refused["decision"];
        assert_eq!(decision["reason"], format!("{kind}:{rule}"), "{refused}");
        assert_eq!(decision["rule_triggered"], kind);
        for name in ["result", "reason", "rule_triggered", "retry_at", "checks"] {
            assert_eq!(foreseen["decision"][name], decision[name], "{name}");
        }
        self.is_replayed(&refused).await;
        decision["retry_at"].clone()
    }

    /// Asserts that preflight and authorize require an approval by this rule. Returns the approval.
    async fn asks(&self, body: &Value, kind: &str, rule: &str) -> Value {
        let foreseen = self.world.check(&self.agent, body).await.ok();
        let asked = self
            .world
            .authorize(&self.agent, body)
            .await
            .refused(402, "approval_required");
        let decision = &asked["decision"];
        assert_eq!(
            [&decision["reason"], &decision["rule_triggered"]],
            ["approval_required", kind]
        );
        assert_eq!(asked["rule_id"], rule, "{asked}");
        for name in ["result", "reason", "rule_triggered", "checks"] {
            assert_eq!(foreseen["decision"][name], decision[name], "{name}");
        }
        self.is_replayed(&asked).await;
        asked["approval_id"].clone()
    }

    async fn approves(&self, approval: &Value) {
        let below = format!("/approvals/{}/approve", approval.as_str().unwrap());
        self.edit(Method::POST, &below, json!({})).await.ok();
    }

    async fn is_replayed(&self, decided: &Value) {
        assert_eq!(self.world.stack.publish_changes().await, 0);
        let path = format!("/decisions/{}/replay", decided["transaction_id"].as_str().unwrap());
        let replayed = self
            .world
            .person_edits(&self.kim, Method::POST, &path, &json!({}))
            .await
            .ok();
        assert_eq!(replayed["outcome"], "same", "{replayed} {decided}");
    }

    fn in_seconds(&self, seconds: u32) -> Value {
        let now = self.world.now();
        json!(now.after(Duration::from_secs_u32(seconds)).to_string())
    }
}

/// A rule counts earlier payments, however it was added: created, restored, or applied from a shadow policy or
/// template.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_or_count_limit_counts_the_payments_before_it_was_added() {
    let home = household().await;
    for _ in 0..5 {
        home.pays(&home.body(PRICE)).await;
    }
    let limits = [
        json!({"kind": "budget_limit", "limit_units": 6 * PRICE, "window_seconds": 86_400}),
        json!({"kind": "count_limit", "count": 6, "window_seconds": 86_400}),
    ];
    let version = home.read("/versions").await["versions"][0]["version"].as_u64().unwrap();
    let budget = home.with_rule(&limits[0]).await;
    let used = home.read("/rules").await["rules"][0]["used_units"].clone();
    assert_eq!(used, 5 * PRICE, "before the first decision");
    let path = home.agent.path("/services/lab-search/policy");
    let seen = home.world.get(&home.agent, &path).await.ok();
    assert_eq!(seen["budgets"][0]["remaining_units"], PRICE, "{seen}");
    home.pays(&home.body(PRICE)).await;
    let seventh = home.body(PRICE);
    home.refuses(&seventh, "budget_limit", &budget).await;

    home.without_rule(&budget).await;
    let count = home.with_rule(&limits[1]).await;
    home.refuses(&seventh, "count_limit", &count).await;
    home.without_rule(&count).await;
    for (added, kind, rule) in [(1, "budget_limit", &budget), (3, "count_limit", &count)] {
        let restore = format!("/versions/{}/rules/{rule}/restore", version + added);
        let restored = home.edit(Method::POST, &restore, json!({})).await.ok();
        let restored = restored["rule_id"].as_str().unwrap();
        assert_ne!(restored, rule);
        home.refuses(&seventh, kind, restored).await;
        home.without_rule(restored).await;
    }

    for (template, limit) in ["budget", "count"].into_iter().zip(&limits) {
        let kind = limit["kind"].as_str().unwrap();
        let only_rule = async || {
            let rules = home.read("/rules").await;
            assert_eq!(rules["count"], 1, "{rules}");
            rules["rules"][0]["rule_id"].as_str().unwrap().to_owned()
        };
        let shadow = home.edit(Method::PUT, "/shadow", json!({"rules": [limit]})).await.ok();
        let (path, tag) = (home.agent.path("/shadow/promote"), format!("\"{}\"", shadow["version"]));
        let world = &home.world;
        let empty = json!({});
        let promote = world.person_edits_version(&home.kim, Method::POST, &path, &tag, &empty);
        promote.await.ok();
        let promoted = only_rule().await;
        home.refuses(&seventh, kind, &promoted).await;
        home.without_rule(&promoted).await;

        let put = world.persons_request(&home.kim, Method::PUT, &format!("/policy-templates/{template}"));
        World::send(put.json(&json!({"rules": [limit]}))).await.created();
        let agents = json!({"kind": "ids", "ids": [home.agent.id.to_string()]});
        let follow = json!({"act": "follow", "template": template, "agents": agents});
        let followed = world.person_edits(&home.kim, Method::POST, "/agents/bulk", &follow);
        followed.await.ok();
        let applied = only_rule().await;
        home.refuses(&seventh, kind, &applied).await;
        home.without_rule(&applied).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn count_and_interval_limits_allow_payments_again_after_their_duration() {
    let home = household().await;
    let terms = json!({"kind": "count_limit", "services": ["lab-search"], "count": 2, "window_seconds": 60});
    let rule = home.with_rule(&terms).await;
    home.pays(&home.body(PRICE)).await;
    home.pays(&home.body(PRICE)).await;
    let third = home.body(PRICE);
    assert_eq!(home.refuses(&third, "count_limit", &rule).await, home.in_seconds(60));
    let foreseen = home.world.check(&home.agent, &third).await.ok();
    let counts = &foreseen["counts"];
    assert_eq!(
        [&counts[0]["used"], &counts[0]["remaining"]],
        [&json!(2), &json!(0)],
        "{foreseen}"
    );
    home.world.pass(60);
    home.pays(&home.body(PRICE)).await;
    let shown = home.read("/rules").await;
    assert_eq!(shown["rules"][0]["used"], 1, "{shown}");
    home.without_rule(&rule).await;

    let terms = json!({"kind": "count_limit", "services": ["lab-scrape"], "count": 1, "window_seconds": 60});
    let other = home.with_rule(&terms).await;
    for _ in 0..2 {
        home.pays(&home.body(PRICE)).await;
    }
    home.without_rule(&other).await;

    let rule = home
        .with_rule(&json!({"kind": "minimum_interval", "interval_seconds": 5}))
        .await;
    home.world.pass(5);
    home.pays(&home.body(PRICE)).await;
    let second = home.body(PRICE);
    assert_eq!(
        home.refuses(&second, "minimum_interval", &rule).await,
        home.in_seconds(5)
    );
    home.world.pass(5);
    home.pays(&home.body(PRICE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_duplicate_guard_blocks_a_repeated_call() {
    let mut home = household().await;
    let terms = json!({"kind": "duplicate_guard", "within_seconds": 600, "action": "block"});
    let rule = home.with_rule(&terms).await;
    let first = home.body(PRICE);
    home.pays(&first).await;
    let mut again = first.clone();
    again["idempotency_key"] = fresh_key().into();
    home.world.pass(1);
    assert_eq!(
        home.refuses(&again, "duplicate_guard", &rule).await,
        home.in_seconds(599)
    );
    // For the duplicate guard, a call with another query is another call, and a call with another price is the same
    // call.
    home.world.authorize(&home.agent, &first).await.ok();
    home.refuses(&home.body(PRICE + 1), "duplicate_guard", &rule).await;
    let mut other = again.clone();
    let url = other["original_request"]["url"].as_str().unwrap();
    other["original_request"]["url"] = json!(format!("{url}?n=1"));
    other["idempotency_key"] = fresh_key().into();
    home.pays(&other).await;
    home.world.pass(599);
    // An update needs a recent sign-in.
    home.kim = home.world.person(&KIM);
    home.pays(&again).await;
    home.without_rule(&rule).await;

    let terms = json!({"kind": "duplicate_guard", "within_seconds": 60, "action": "ask"});
    let rule = home.with_rule(&terms).await;
    again["idempotency_key"] = fresh_key().into();
    let approval = home.asks(&again, "duplicate_guard", &rule).await;
    home.approves(&approval).await;
    let paid = home
        .world
        .authorize(&home.agent, &carrying(&again, &approval))
        .await
        .ok();
    home.is_replayed(&paid).await;
    home.world.pass(59);
    again["idempotency_key"] = fresh_key().into();
    home.asks(&again, "duplicate_guard", &rule).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equivalent_spellings_of_a_call_are_duplicates() {
    let home = household().await;
    let terms = json!({"kind": "duplicate_guard", "within_seconds": 600, "action": "block"});
    let rule = home.with_rule(&terms).await;
    let mut call = home.body(PRICE);
    home.pays(&call).await;
    let url = call["original_request"]["url"].as_str().unwrap().to_owned();
    call["idempotency_key"] = fresh_key().into();
    call["original_request"]["body_hash"] = json!("sha256:01");
    call["original_request"]["url"] = json!(format!("{url}?#n"));
    home.refuses(&call, "duplicate_guard", &rule).await;
}

/// Only confirmed payments make a payee or price known.
#[tokio::test(flavor = "multi_thread")]
async fn only_confirmed_payments_change_the_usual_price() {
    let home = household().await;
    let payee = home.with_rule(&json!({"kind": "new_payee"})).await;
    for _ in 0..2 {
        let first = home.body(PRICE);
        let approval = home.asks(&first, "new_payee", &payee).await;
        home.approves(&approval).await;
        let paid = home.world.authorize(&home.agent, &carrying(&first, &approval)).await;
        paid.ok();
    }
    home.without_rule(&payee).await;

    let terms = json!({"kind": "price_above_usual", "percent": 20, "over": "median", "of": 3, "action": "ask"});
    let price = home.with_rule(&terms).await;
    for units in [1_000, 900, 1_100] {
        let paid = home.pays(&home.body(units)).await;
        home.settles(&paid).await;
    }
    for _ in 0..4 {
        home.pays(&home.body(1_200)).await;
    }
    home.asks(&home.body(1_201), "price_above_usual", &price).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_payees_and_unusual_prices_require_approval() {
    let home = household().await;
    let rule = home.with_rule(&json!({"kind": "new_payee"})).await;
    let first = home.body(PRICE);
    let approval = home.asks(&first, "new_payee", &rule).await;
    home.approves(&approval).await;
    let paid = home
        .world
        .authorize(&home.agent, &carrying(&first, &approval))
        .await
        .ok();
    home.is_replayed(&paid).await;
    home.settles(&paid).await;
    home.pays(&home.body(PRICE)).await;
    home.without_rule(&rule).await;

    let listed = home.world.service("lab-search").await.operations[0]
        .expected_price(home.world.now())
        .units();
    let terms = json!({"kind": "price_above_usual", "percent": 50, "over": "catalog", "action": "block"});
    let rule = home.with_rule(&terms).await;
    home.pays(&home.body(listed * 3 / 2)).await;
    let dear = home.body(listed * 3 / 2 + 1);
    assert_eq!(home.refuses(&dear, "price_above_usual", &rule).await, Value::Null);
    home.without_rule(&rule).await;

    let terms = json!({"kind": "price_above_usual", "percent": 20, "over": "median", "of": 3, "action": "ask"});
    let rule = home.with_rule(&terms).await;
    for price in [1_000, 900, 1_100] {
        let paid = home.pays(&home.body(price)).await;
        home.settles(&paid).await;
    }
    home.asks(&home.body(1_201), "price_above_usual", &rule).await;
    home.pays(&home.body(1_200)).await;
}

/// Kathmandu is 5:45 ahead of UTC all year.
#[tokio::test(flavor = "multi_thread")]
async fn payments_wait_for_the_next_scheduled_opening() {
    let mut home = household().await;
    let opens = (home.world.now().secs() / 3_600 + 2) * 3_600;
    let clock = |secs: u64| {
        let minutes = (secs / 60 + 5 * 60 + 45) % 1_440;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    };
    let (from, to) = (clock(opens), clock(opens + 1_800));
    let periods = [format!("monday-saturday {from}-{to}"), format!("sunday {from}-{to}")];
    let terms = json!({"kind": "schedule", "time_zone": "Asia/Kathmandu", "periods": periods});
    let rule = home.with_rule(&terms).await;
    let body = home.body(PRICE);
    let opens = Timestamp::from_secs(opens).unwrap();
    assert_eq!(home.refuses(&body, "schedule", &rule).await, opens.to_string());
    home.world.set_clock(opens);
    home.kim = home.world.person(&KIM);
    home.pays(&body).await;
}
