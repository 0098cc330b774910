//! Tests that after the response to an update, no payment is committed by the earlier limits.

use super::{Household, deny_stamps};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_testkit::{Fate, Moment, ProxyConfig};
use purser_tests::{Answer, TestAgent, World, authorizing, body_of, dollars, fresh_key, together};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A narrowing update, and the result of a payment that was decided before the update and is written after it.
struct Narrowing {
    method: Method,
    below: &'static str,
    body: Value,
    status: u16,
    slug: &'static str,
    /// The expected `decision.reason`; empty if the request is rejected before a decision.
    reason: &'static str,
}

fn freeze() -> Narrowing {
    Narrowing {
        method: Method::PATCH,
        below: "",
        body: json!({"status": "frozen"}),
        status: 403,
        slug: "policy_blocked",
        reason: "agent_frozen",
    }
}

fn narrowings() -> Vec<Narrowing> {
    let to = |method, below, body, status, slug, reason| Narrowing {
        method,
        below,
        body,
        status,
        slug,
        reason,
    };
    let rule = |body, reason| to(Method::POST, "/rules", body, 403, "policy_blocked", reason);
    let policy = |body, status, slug| to(Method::PATCH, "/services/lab-search", body, status, slug, slug);
    vec![
        freeze(),
        to(Method::DELETE, "/keys/{key}", json!({}), 401, "invalid_agent_key", ""),
        to(
            Method::POST,
            "/keys/{key}/rotate",
            json!({"overlap_seconds": 0}),
            401,
            "invalid_agent_key",
            "",
        ),
        rule(
            json!({"kind": "category_block", "categories": ["search"]}),
            "category_block:search",
        ),
        rule(
            json!({"kind": "vendor_allowlist", "services": ["lab-weather"]}),
            "vendor_allowlist:lab-search",
        ),
        rule(
            json!({"kind": "budget_limit", "limit_units": 999_999, "window_seconds": 3_600}),
            "budget_limit:{rule}",
        ),
        to(
            Method::POST,
            "/rules",
            json!({"kind": "approval_required"}),
            402,
            "approval_required",
            "approval_required",
        ),
        policy(
            json!({"max_per_call_units": 999_999}),
            402,
            "amount_exceeds_per_call_limit",
        ),
        policy(json!({"max_per_day_units": 999_999}), 402, "daily_spend_limit_exceeded"),
        policy(
            json!({"require_approval_above_units": 999_999}),
            402,
            "approval_required",
        ),
        policy(
            json!({"enabled_operations": []}),
            403,
            "operation_not_enabled_for_agent",
        ),
        policy(json!({"enabled": false}), 403, "service_not_enabled"),
        to(
            Method::DELETE,
            "/services/lab-search",
            json!({}),
            403,
            "service_not_enabled",
            "service_not_enabled",
        ),
    ]
}

/// The payment's reservation is on its way to the database when the update gets its response.
#[tokio::test(flavor = "multi_thread")]
async fn in_flight_payments_obey_a_completed_update() {
    let home = Household::in_world(World::proxied(ProxyConfig::default()).await).await;
    let (world, agent) = (&home.world, &home.agent);
    for edit in narrowings() {
        let second = home.edit(Method::POST, "/keys", json!({})).await.created();
        let caller = agent.with_key(&second["key"]);
        let policy = json!({
            "enabled": true,
            "max_per_call_units": dollars(1_000),
            "max_per_day_units": dollars(1_000),
            "require_approval_above_units": dollars(1_000),
            "enabled_operations": null,
        });
        home.set_policy(policy).await;

        let (answer, edited, before) = overtaken(&home, &caller, body_of(world.offer(dollars(1))), &edit).await;
        let shown = format!("{} {} {}: {}", edit.method, edit.below, edit.body, answer.body);
        assert_eq!((answer.status, answer.slug()), (edit.status, edit.slug), "{shown}");
        let reason = edit
            .reason
            .replace("{rule}", edited["rule_id"].as_str().unwrap_or_default());
        assert_eq!(
            answer.body["decision"]["reason"].as_str().unwrap_or_default(),
            reason,
            "{shown}"
        );
        let after = world.footprint().await;
        assert_eq!((after.settlements, after.entries, after.total), before, "{shown}");

        home.set_status("active").await;
        if let Some(rule) = edited["rule_id"].as_str() {
            home.edit(Method::DELETE, &format!("/rules/{rule}"), json!({}))
                .await
                .ok();
        }
    }
}

/// The first payment to a default service is about to write the policy.
#[tokio::test(flavor = "multi_thread")]
async fn in_flight_first_payments_obey_a_completed_update() {
    let mut home = Household::in_world(World::proxied(ProxyConfig::default()).await).await;
    for (number, edit) in narrowings().into_iter().enumerate() {
        home.agent = home.world.agent_of(&home.kim, &format!("agent {number}")).await;
        let body = body_of(home.world.offer(dollars(1)));
        let (answer, _, before) = overtaken(&home, &home.agent, body, &edit).await;
        let shown = format!("{} {} {}: {}", edit.method, edit.below, edit.body, answer.body);
        assert_eq!((answer.status, answer.slug()), (edit.status, edit.slug), "{shown}");
        let after = home.world.footprint().await;
        assert_eq!((after.settlements, after.entries, after.total), before, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_flight_approved_payments_obey_a_completed_freeze() {
    let home = Household::in_world(World::proxied(ProxyConfig::default()).await).await;
    let (world, agent) = (&home.world, &home.agent);
    home.set_policy(json!({"require_approval_above_units": 0})).await;
    let mut body = body_of(world.offer(dollars(1)));
    let asked = world.authorize(agent, &body).await.refused(402, "approval_required");
    body["approval_id"] = asked["approval_id"].clone();
    let below = format!("/approvals/{}", asked["approval_id"].as_str().unwrap());
    home.edit(Method::POST, &format!("{below}/approve"), json!({}))
        .await
        .ok();

    let (answer, _, before) = overtaken(&home, agent, body, &freeze()).await;
    let refused = answer.refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "agent_frozen");
    let after = world.footprint().await;
    assert_eq!((after.settlements, after.entries, after.total), before);
    assert_eq!(home.read(&below).await["status"], "approved");
}

/// The first attempt stores the record but not the new version on the windows, which the retry must store.
#[tokio::test(flavor = "multi_thread")]
async fn retried_updates_apply_after_a_partial_failure() {
    let home = Household::in_world(World::proxied(ProxyConfig::default()).await).await;
    let (world, agent) = (&home.world, &home.agent);
    let proxy = world.proxy.as_ref().unwrap();
    home.set_policy(json!({"require_approval_above_units": dollars(1_000)}))
        .await;
    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    let rule = home.edit(Method::POST, "/rules", rule).await.created();
    let rule = format!("/rules/{}", rule["rule_id"].as_str().unwrap());
    let wider = json!({"kind": "category_block", "categories": ["finance", "search"]});
    let rows = [
        (Method::DELETE, "/keys/{key}".to_owned(), json!({}), "invalid_agent_key"),
        (
            Method::PATCH,
            String::new(),
            json!({"status": "frozen"}),
            "policy_blocked",
        ),
        (Method::PUT, rule, wider, "policy_blocked"),
    ];
    for (method, below, body, slug) in rows {
        home.set_status("active").await;
        let second = home.edit(Method::POST, "/keys", json!({})).await.created();
        let caller = agent.with_key(&second["key"]);
        let below = below.replace("{key}", caller.key_id());
        let edit = async || home.edit(method.clone(), &below, body.clone()).await;

        proxy.stall(1);
        let paying = tokio::spawn(authorizing(world, &caller, body_of(world.offer(dollars(1)))));
        proxy.stalled(1).await;
        deny_stamps(proxy);
        edit().await.refused(500, "internal_error");
        proxy.behave();
        edit().await.ok();
        let before = world.footprint().await;
        proxy.resume();
        let answer = paying.await.unwrap();
        assert_eq!(answer.slug(), slug, "{method} {below}: {}", answer.body);
        let after = world.footprint().await;
        assert_eq!(
            (after.settlements, after.entries, after.total),
            (before.settlements, before.entries, before.total),
            "{method} {below}"
        );
    }
}

/// The first response is lost. The retry must recognize the added rule, although another user updated the agent.
#[tokio::test(flavor = "multi_thread")]
async fn retried_rules_are_added_once_despite_other_updates() {
    let home = Household::in_world(World::proxied(ProxyConfig::default()).await).await;
    let (world, agent) = (&home.world, &home.agent);
    let proxy = world.proxy.as_ref().unwrap();
    let repeated: Arc<AtomicBool> = Arc::default();
    let mut first = None;
    proxy.follow({
        let repeated = Arc::clone(&repeated);
        move |step| {
            let request = step.request.to_string();
            let adds = step.call.starts_with("TransactWriteItems")
                && request.contains("budget_limit")
                && !request.contains("renamed meanwhile");
            if !adds {
                return Fate::PassOn;
            }
            // The SDK retries with the same token. Then the store retries with a new token.
            let token = step.request["ClientRequestToken"].clone();
            let is_first = *first.get_or_insert_with(|| token.clone()) == token;
            match step.moment {
                Moment::CarriedOut if is_first => Fate::server_error(),
                Moment::Arrived if !is_first && !repeated.swap(true, Ordering::SeqCst) => {
                    Fate::Wait(Duration::from_millis(700))
                }
                Moment::Arrived | Moment::CarriedOut => Fate::PassOn,
            }
        }
    });
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(5), "window_seconds": 3_600});
    let meanwhile = async {
        while !repeated.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let renamed = home.edit(Method::PATCH, "", json!({"name": "renamed meanwhile"})).await;
        renamed.ok()
    };
    let (added, renamed) = tokio::join!(home.edit(Method::POST, "/rules", budget), meanwhile);
    proxy.behave();
    let added = added.created();
    assert_eq!(renamed["version"], 4, "it was added before that");
    let rules = home.read("/rules").await;
    assert_eq!(
        (&rules["count"], &rules["rules"][0]["rule_id"]),
        (&json!(1), &added["rule_id"])
    );
    world.authorize(agent, &body_of(world.offer(dollars(1)))).await.ok();
}

/// Stops a payment before its write, makes the update, and continues the payment. Returns both responses, and the
/// counts before the payment continued.
async fn overtaken(
    home: &Household,
    caller: &TestAgent,
    body: Value,
    edit: &Narrowing,
) -> (Answer, Value, (usize, usize, u64)) {
    let world = &home.world;
    let proxy = world.proxy.as_ref().unwrap();
    proxy.stall(1);
    let paying = tokio::spawn(authorizing(world, caller, body));
    proxy.stalled(1).await;
    let below = edit.below.replace("{key}", caller.key_id());
    let edited = home.edit(edit.method.clone(), &below, edit.body.clone()).await;
    assert!([200, 201].contains(&edited.status), "{}", edited.body);
    let before = world.footprint().await;
    proxy.resume();
    let answer = paying.await.unwrap();
    (answer, edited.body, (before.settlements, before.entries, before.total))
}

/// The number of concurrent callers.
const CALLERS: u32 = 8;

/// The number of calls that each caller makes after the update.
const CALLS_AFTER: usize = 3;

/// The total number of calls after the update.
const LATE: usize = CALLERS as usize * CALLS_AFTER;

/// The responses to calls during an update.
struct Race {
    /// Responses to calls before the update's response.
    before: Vec<Answer>,
    /// Responses to calls after the update's response.
    after: Vec<Answer>,
    /// The number of settlements by policy version, right after the update's response.
    at_the_answer: BTreeMap<u64, usize>,
    /// The number of settlements by policy version, after all calls.
    in_the_end: BTreeMap<u64, usize>,
    /// The update's response.
    edited: Value,
}

/// Makes payments from several callers before, during and after the update.
async fn race(home: &Household, edit: impl Future<Output = Answer>) -> Race {
    let (world, agent) = (&home.world, &home.agent);
    let offer = world.offer(dollars(1));
    let request = world
        .http
        .post(format!("{}/x402/authorize", world.stack.base_url))
        .bearer_auth(&agent.key);
    let (paid, answered) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let callers = (0..CALLERS).map(|_| {
        let (request, offer) = (request.try_clone().unwrap(), offer.clone());
        let (paid, answered) = (Arc::clone(&paid), Arc::clone(&answered));
        async move {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            while after.len() < CALLS_AFTER {
                let mut body = body_of(offer.clone());
                body["idempotency_key"] = fresh_key().into();
                let is_late = answered.load(Ordering::SeqCst);
                let answer = World::send(request.try_clone().unwrap().json(&body)).await;
                paid.fetch_or(answer.status == 200, Ordering::SeqCst);
                if is_late { &mut after } else { &mut before }.push(answer);
            }
            (before, after)
        }
    });
    let calls = tokio::spawn(together(callers.collect()));
    let first = async {
        while !paid.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let first = tokio::time::timeout(Duration::from_secs(20), first);
    first.await.expect("payments are under way");
    // Stalls half of the callers' payments before their write.
    let proxy = world.proxy.as_ref().unwrap();
    proxy.stall(CALLERS / 2);
    proxy.stalled(CALLERS / 2).await;
    let edited = edit.await;
    answered.store(true, Ordering::SeqCst);
    let at_the_answer = settlements_by_version(world, agent).await;
    proxy.resume();
    let (before, after): (Vec<_>, Vec<_>) = calls.await.unwrap().into_iter().unzip();
    Race {
        before: before.concat(),
        after: after.concat(),
        at_the_answer,
        in_the_end: settlements_by_version(world, agent).await,
        edited: edited.ok(),
    }
}

/// Returns the number of the agent's settlements by policy version.
async fn settlements_by_version(world: &World, agent: &TestAgent) -> BTreeMap<u64, usize> {
    let mut versions = BTreeMap::new();
    let pk = AttributeValue::S(format!("S#{}", agent.id));
    for item in world.scan("LedgerTable").await {
        if item["pk"] == pk {
            let version = item["pver"].as_n().unwrap().parse().unwrap();
            *versions.entry(version).or_default() += 1;
        }
    }
    versions
}

impl Race {
    /// Asserts that no payment was allowed or committed after the update's response.
    fn was_won_by_the_edit(&self, status: u16, slug: &str, reason: &str) {
        assert_eq!(self.after.len(), LATE);
        for answer in &self.after {
            let answer = answer.clone().refused(status, slug);
            assert_eq!(answer["decision"]["reason"], reason);
        }
        for answer in &self.before {
            assert!(answer.status == 200 || answer.slug() == slug, "{}", answer.body);
        }
        assert_eq!(
            self.in_the_end, self.at_the_answer,
            "nothing was committed after the edit was answered"
        );
        let allowed = self.before.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(self.in_the_end.values().sum::<usize>(), allowed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_payment_is_committed_after_a_freeze() {
    let home = Household::in_world(World::conflicted().await).await;
    let race = race(&home, home.edit(Method::PATCH, "", json!({"status": "frozen"}))).await;
    race.was_won_by_the_edit(403, "policy_blocked", "agent_frozen");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_blocked_payment_is_committed_after_a_rule_is_added() {
    let home = Household::in_world(World::conflicted().await).await;
    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    let rule = home.edit(Method::POST, "/rules", rule).await.created();
    let below = format!("/rules/{}", rule["rule_id"].as_str().unwrap());
    let wider = json!({"kind": "category_block", "categories": ["finance", "search"]});
    let race = race(&home, home.edit(Method::PUT, &below, wider)).await;
    race.was_won_by_the_edit(403, "policy_blocked", "category_block:search");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_payment_above_a_lowered_cap_is_committed() {
    let home = Household::in_world(World::conflicted().await).await;
    let lower = json!({"max_per_call_units": dollars(1) - 1});
    let race = race(&home, home.edit(Method::PATCH, "/services/lab-search", lower)).await;
    race.was_won_by_the_edit(402, "amount_exceeds_per_call_limit", "amount_exceeds_per_call_limit");
}

/// These updates narrow nothing.
#[tokio::test(flavor = "multi_thread")]
async fn no_payment_is_committed_under_an_outdated_policy() {
    let home = Household::in_world(World::conflicted().await).await;
    for version in 2..4 {
        let edit = home.edit(
            Method::PATCH,
            "/services/lab-search",
            json!({"max_per_day_units": dollars(1_000 + version)}),
        );
        let race = race(&home, edit).await;
        assert_eq!(race.edited["version"], version);
        for answer in race.before.iter().chain(&race.after) {
            answer.clone().ok();
        }
        let judged_before =
            |settlements: &BTreeMap<u64, usize>| settlements.range(..version).map(|(_, count)| count).sum::<usize>();
        assert_eq!(judged_before(&race.in_the_end), judged_before(&race.at_the_answer));
        assert!(race.in_the_end[&version] >= LATE, "{:?}", race.in_the_end);
    }
}
