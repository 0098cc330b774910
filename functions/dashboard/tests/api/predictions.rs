//! Tests that a preview predicts the decisions after an update.
//!
//! Two agents have the same limits and get the same drawn requests. One agent's limits are updated before the last day,
//! and the same update is previewed for the other agent over that day.
//!
//! `PREVIEW_CASES=1000 cargo nextest run -p purser-dashboard -E 'test(/preview_predicts/)'` draws more histories than
//! [`CASES`].

use crate::support::World;
use purser_domain::{
    ALLOWED_REASON, Address, AgentId, CallDescription, Catalog, CatalogPayment, Category, Decision, DecisionRecord,
    DecisionResult, Duration, Endpoint, EvaluationInputs, Eviction, Fingerprint, Intent, KeyId, Network, NoncePrefix,
    Offer, Operation, OperationSlug, OperationUuid, ProviderRequest, Purchase, Purpose, Service, SettlementId,
    SettlementTerms, Timestamp, TransactionId, TxHash, Url, WindowMeasure, earliest_decision_time, evaluate,
};
use purser_store::{Backoff, Claim, ConfirmResult, DecisionKeys, ReserveResult, StoreServiceResult, TransitionResult};
use purser_testkit::{Rng, sample, sample::OWNER};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

const SLUGS: [&str; 2] = ["shop", "bank"];

fn shop(n: usize) -> Service {
    let number = u8::try_from(n).unwrap();
    let operation = |m: u8| Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(100 + u128::from(number * 2 + m))),
        slug: OperationSlug::parse(&format!("{}.op{m}", SLUGS[n])).unwrap(),
        endpoint: Endpoint::parse(&format!("https://{}.example/{m}", SLUGS[n])).unwrap(),
        estimated_price: sample::units(20),
        payment: Some(CatalogPayment {
            amount: sample::units(20),
            pay_to: Address::repeat_byte(16 + number * 2 + m),
            ..sample::operation().payment.unwrap()
        }),
        ..sample::operation()
    };
    Service {
        category: [Category::Data, Category::Finance][n],
        operations: vec![operation(0), operation(1)],
        ..sample::service(sample::service_id(11 + u128::from(number)), SLUGS[n])
    }
}

/// The final state of an allowed payment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Confirmed,
    Released,
    Held,
}

#[derive(Clone, Debug)]
struct Step {
    at: Timestamp,
    service: usize,
    operation: usize,
    amount: u64,
    query: u64,
    /// The index of the API key that sends the request.
    key: usize,
    fate: Fate,
}

/// Draws the requests in the seconds from `from` to `to`.
fn steps(rng: &mut Rng, count: u64, (from, to): (Timestamp, Timestamp)) -> Vec<Step> {
    let span = u32::try_from(to.since(from).secs()).unwrap();
    let mut offsets: Vec<u32> = (0..count)
        .map(|_| u32::try_from(rng.below((span - 1_200).into())).unwrap() + 100)
        .collect();
    offsets.sort_unstable();
    let steps = offsets.iter().zip(0_u32..).map(|(offset, n)| Step {
        // A payment is valid for a minute, and is released at the end.
        at: from.after(Duration::from_secs_u32(offset + n * 61)),
        service: rng.index(2),
        operation: rng.index(2),
        amount: *rng.pick(&[20, 20, 20, 30, 45]),
        query: rng.below(2),
        key: rng.index(2),
        fate: rng.weighted(&[(6, Fate::Confirmed), (1, Fate::Released), (1, Fate::Held)]),
    });
    steps.collect()
}

/// Draws a rule of this kind. Its keys are positions in the list of the agent's keys.
fn rule(rng: &mut Rng, kind: usize) -> Value {
    let seconds = *rng.pick(&[3_600, 6 * 3_600, 86_400, 4 * 86_400]);
    let action = *rng.pick(&["block", "ask"]);
    let window = match rng.below(5) {
        0 => json!({"period": "lifetime"}),
        1 => json!({"period": *rng.pick(&["day", "week", "month"]), "time_zone": "America/New_York"}),
        _ => json!({"window_seconds": seconds}),
    };
    let counting = |mut rule: Value| {
        let members = rule.as_object_mut().unwrap();
        members.extend(window.as_object().unwrap().clone());
        members.insert("action".to_owned(), json!(action));
        rule
    };
    let mut rule = match kind {
        0 => return json!({"kind": "category_block", "categories": [rng.pick(&["data", "finance"])]}),
        1 => return json!({"kind": "vendor_allowlist", "services": [rng.pick(&SLUGS)]}),
        2 => counting(json!({"kind": "budget_limit", "limit_units": 40 + rng.below(120)})),
        3 => json!({"kind": "approval_required", "above_units": 19 + rng.below(20)}),
        4 => counting(json!({"kind": "count_limit", "count": 1 + rng.below(5)})),
        5 => json!({"kind": "minimum_interval", "interval_seconds": seconds / 2}),
        6 => json!({"kind": "duplicate_guard", "within_seconds": seconds, "action": action}),
        7 => json!({"kind": "new_payee"}),
        8 => {
            json!({"kind": "price_above_usual", "percent": 10 + rng.below(60), "over": "median", "of": 3, "action": action})
        }
        9 => json!({"kind": "price_above_usual", "percent": rng.below(60), "over": "catalog", "action": action}),
        _ => {
            let from = rng.below(12);
            let periods = [format!("monday-sunday {from:02}:00-{:02}:30", from + 8)];
            json!({"kind": "schedule", "time_zone": "Europe/Berlin", "periods": periods})
        }
    };
    if rng.one_in(3) {
        rule["services"] = json!([rng.pick(&SLUGS)]);
    }
    if [2, 4].contains(&kind) && rng.one_in(3) {
        rule["categories"] = json!([rng.pick(&["data", "finance"])]);
    }
    if [2, 4].contains(&kind) && rng.one_in(2) {
        rule["keys"] = json!([rng.index(2)]);
    }
    if kind == 2 && rng.one_in(3) {
        rule["per_payee"] = json!(true);
    }
    rule
}

/// Replaces the positions of keys in rules by the agent's keys.
fn with_keys(mut body: Value, keys: &[KeyId; 2]) -> Value {
    let rules = match &mut body {
        Value::Array(rules) => rules.as_mut_slice(),
        rule => std::slice::from_mut(rule),
    };
    for rule in rules {
        if let Some(Value::Array(named)) = rule.get_mut("keys") {
            for key in named {
                *key = json!(keys[usize::try_from(key.as_u64().unwrap()).unwrap()].to_string());
            }
        }
    }
    body
}

fn policy(rng: &mut Rng) -> Value {
    match rng.below(5) {
        0 => json!({"max_per_call_units": 15 + rng.below(30)}),
        1 => json!({"max_per_day_units": 30 + rng.below(100)}),
        2 => json!({"require_approval_above_units": 15 + rng.below(30)}),
        3 => json!({"enabled_operations": ["shop.op1"]}),
        _ => json!({
            "max_per_call_units": 25 + rng.below(30), "max_per_day_units": 30 + rng.below(200),
            "require_approval_above_units": 20 + rng.below(30),
        }),
    }
}

/// The cases that every run draws. The first three add a budget or a count limit for a category and a key, the third for
/// each payee. The fourth applies a shadow policy. The others fail if a backfill ignores a rule's categories or services.
const CASES: [usize; 7] = [310, 400, 308, 15, 650, 454, 94];
const KINDS: usize = 11;
/// The kind of rule that compares prices with the catalog. The previous kind uses a median.
const PRICE: usize = 9;

fn intent(step: &Step, service: &Service, key: &str) -> Intent {
    let payment = service.operations[step.operation].payment.clone().unwrap();
    let offer = json!({
        "scheme": "exact", "network": "base-sepolia", "maxAmountRequired": step.amount.to_string(),
        "resource": "https://shop.example/", "description": "", "mimeType": "application/json",
        "payTo": payment.pay_to.to_string(), "maxTimeoutSeconds": 60,
        "asset": Network::BaseSepolia.token().address.to_string(), "extra": {"name": "USDC", "version": "2"},
    });
    let offers = json!({"x402Version": 1, "accepts": [offer]});
    let url = format!(
        "https://{}.example/{}?n={}",
        SLUGS[step.service], step.operation, step.query
    );
    Intent {
        offer: Offer::choose_cheapest(&offers, Network::BaseSepolia).unwrap(),
        request: ProviderRequest {
            method: "GET".to_owned(),
            url: Url::parse(&url).unwrap(),
            body_hash: None,
        },
        fingerprint: Fingerprint::for_text(key),
        ..sample::intent(step.amount, key)
    }
}

/// A decision: the result and the reason.
type Decided = (DecisionResult, String);

/// Decides a request as `payments` does, and then confirms or releases the payment.
async fn decide(world: &World, rng: &mut Rng, (agent, keys): (&str, &[KeyId; 2]), step: &Step, fate: Fate) -> Decided {
    let (ledger, id) = (&world.ledger, AgentId::parse(agent).unwrap());
    let service = shop(step.service);
    let catalog = Catalog::new(vec![shop(0), shop(1)]);
    let operation = &service.operations[step.operation];
    let text = format!("{agent} {}", rng.draw());
    let (intent, key) = (intent(step, &service, &text), Fingerprint::for_text(&text));
    let agent_key = keys[step.key];
    let keys = DecisionKeys {
        payee: Some(intent.offer.pay_to()),
        service: Some(service.id),
        key: Some(key),
        approval: None,
        freezes: true,
    };
    loop {
        let (agent, inputs) = ledger.read_decision_inputs(id, &keys).await.unwrap();
        let (agent, mut state) = (agent.unwrap(), inputs.service_state.unwrap());
        if !state.is_backfilled {
            ledger
                .backfill_payments(&agent, keys.payee, &catalog, step.at)
                .await
                .unwrap();
            continue;
        }
        let at = earliest_decision_time(step.at, state.all_windows());
        ledger.load_expired_payments(&mut state, at).await.unwrap();
        let decision = evaluate(&EvaluationInputs {
            agent: &agent,
            intent: &intent,
            key: agent_key,
            service: &service,
            operation: Some(operation),
            payee_from: None,
            network: Network::BaseSepolia,
            enabled: state.enabled.as_ref(),
            day: &state.day,
            budgets: &state.budgets,
            recent: &state.recent,
            frozen_by_operators: None,
            approval: None,
            balance: None,
            at,
            eviction: Eviction::Eager,
        });
        let transaction = TransactionId::new_at(at, rng.draw().to_be_bytes());
        let grant = match decision {
            Decision::NeedsTarget => panic!("every page is allowed"),
            Decision::Allow(grant) => grant,
            Decision::Refuse(denial) => {
                let decided = (denial.reason.result(), denial.reason.reason_text());
                let record = DecisionRecord {
                    transaction,
                    agent: agent.id,
                    key: agent_key,
                    owner: agent.owner.clone(),
                    transfers: agent.transfer_count(),
                    service: service.id,
                    operation: Some(operation.slug.clone()),
                    amount: intent.offer.amount(),
                    pay_to: intent.offer.pay_to(),
                    fingerprint: intent.fingerprint,
                    call: CallDescription::new(&intent, Some(operation), Network::BaseSepolia, at),
                    at,
                    reason: denial.reason,
                    policy_version: denial.policy_version,
                    inputs: denial.inputs,
                    approval: None,
                    checks: denial.checks,
                    latency_ms: 1,
                };
                ledger.add_decision(&record).await.unwrap();
                return decided;
            }
        };
        if state.is_unwritten {
            assert!(ledger.try_write_default_policy(&agent, service.id).await.unwrap());
        }
        let terms = SettlementTerms {
            id: SettlementId::new_at(at, rng.draw().to_be_bytes()),
            transaction,
            agent: agent.id,
            wallet: agent.wallet.address,
            network: Network::BaseSepolia,
            amount: grant.amount(),
            pay_to: intent.offer.pay_to(),
            authorized_at: at,
            valid_before: Timestamp::from_secs(at.secs() + 60).unwrap(),
            idempotency_key: key,
            nonce_prefix: NoncePrefix::from_nonce(purser_domain::B256::repeat_byte(0x11)),
            transfers: agent.transfer_count(),
            purpose: Purpose::Purchase(Purchase {
                key: agent_key,
                service: service.id,
                operation: operation.slug.clone(),
                scope: grant.purchase_scope(),
                x402_version: intent.offer.version(),
                offer_index: intent.offer.index(),
                policy_version: grant.policy_version(),
                inputs: grant.input_versions(),
                budgets: grant.counting_window_ids(WindowMeasure::Amounts).collect(),
                counts: grant.counting_window_ids(WindowMeasure::Payments).collect(),
                approval: None,
                checks: grant.checks().to_vec(),
            }),
        };
        let mut backoff = Backoff::new();
        let reserved = ledger
            .reserve_payment(&grant, &terms, &intent.fingerprint, &mut backoff)
            .await;
        match reserved.unwrap() {
            ReserveResult::Done => {}
            ReserveResult::Raced => continue,
            other => panic!("{other:?}"),
        }
        let settlement = ledger.read_settlement_by_id(id, terms.id).await.unwrap().unwrap();
        match fate {
            Fate::Held => {}
            Fate::Confirmed => {
                let hash = TxHash::from_b256(purser_domain::B256::from(*Fingerprint::for_text(&text).as_bytes()));
                let transfer = sample::transfer(&settlement, hash);
                let confirmed = ledger.confirm_settlement(&settlement, &transfer, Claim::Transaction, at);
                assert!(matches!(confirmed.await.unwrap(), ConfirmResult::Done(_)));
            }
            Fate::Released => {
                let unusable = sample::unusable(&settlement);
                let released = ledger.release_hold(&settlement, &unusable).await;
                assert!(matches!(released.unwrap(), TransitionResult::Done(_)));
            }
        }
        return (DecisionResult::Allow, ALLOWED_REASON.to_owned());
    }
}

/// The changed decisions: both results and the reason without a rule's id, with their number.
type Changes = BTreeMap<(String, String, String), u64>;

fn plain(reason: &str) -> String {
    match reason.rsplit_once(':') {
        Some((kind, id)) if Uuid::try_parse(id).is_ok() => kind.to_owned(),
        _ => reason.to_owned(),
    }
}

fn predicted(preview: &Value) -> Changes {
    let flips = preview["if_declined"]["flips"].as_array().unwrap().iter();
    let mut changes = Changes::new();
    for flip in flips {
        let text = |name: &str| flip[name].as_str().unwrap();
        let key = (
            text("recorded").to_owned(),
            text("tested").to_owned(),
            plain(text("reason")),
        );
        *changes.entry(key).or_default() += flip["count"].as_u64().unwrap();
    }
    changes
}

impl World {
    async fn add_keys(&self, agent: &str) -> [KeyId; 2] {
        let path = format!("/agents/{agent}/keys");
        let mut keys = [KeyId(0); 2];
        for key in &mut keys {
            let added = self.edit(OWNER, "POST", &path, json!({})).await.created();
            *key = KeyId::parse(added["key_id"].as_str().unwrap()).unwrap();
        }
        keys
    }

    async fn with_rule(&self, agent: &str, rule: &Value) -> String {
        let path = format!("/agents/{agent}/rules");
        let added = self.edit(OWNER, "POST", &path, rule.clone()).await.created();
        added["rule_id"].as_str().unwrap().to_owned()
    }

    async fn shadow(&self, agent: &str, rules: &Value) {
        let body = Some(json!({"rules": rules}));
        let path = format!("/agents/{agent}/shadow");
        self.call(OWNER, "PUT", &path, None, body).await.ok();
    }

    fn pass_until(&self, at: Timestamp) {
        self.advance(i64::try_from(at.since(self.now()).secs()).unwrap());
    }
}

/// Returns the number of changed decisions.
async fn run(world: &World, case: usize) -> u64 {
    let mut rng = Rng::from_seed(u64::try_from(case).unwrap());
    let [kept, updated] = [world.agent(OWNER).await, world.agent(OWNER).await];
    let keys = [world.add_keys(&kept).await, world.add_keys(&updated).await];
    let [kept_keys, updated_keys] = &keys;
    let route = case % (KINDS + 7);
    let kind = if route < KINDS { route } else { rng.index(KINDS) };
    let mut added = rule(&mut rng, kind);
    if route == KINDS + 6 {
        // Keys belong to one agent, so templates have no keys.
        added.as_object_mut().unwrap().remove("keys");
    }
    // A decision records only one rule of each check, so the agent gets at most one rule of each check.
    let check = |kind: usize| if kind == PRICE { PRICE - 1 } else { kind };
    let mut base: Vec<usize> = (0..rng.below(3)).map(|_| check(rng.index(KINDS))).collect();
    base.sort_unstable();
    base.dedup();
    base.retain(|other| *other != check(kind));
    let base: Vec<Value> = base.into_iter().map(|kind| rule(&mut rng, kind)).collect();
    let mut ids = [String::new(), String::new()];
    for ((agent, keys), id) in [&kept, &updated].into_iter().zip(&keys).zip(&mut ids) {
        for service in SLUGS {
            let body = json!({"max_per_call_units": 40 + case % 3 * 10, "max_per_day_units": 200, "require_approval_above_units": 200});
            let path = format!("/agents/{agent}/services/{service}");
            world.edit(OWNER, "PATCH", &path, body).await.ok();
        }
        for rule in &base {
            world.with_rule(agent, &with_keys(rule.clone(), keys)).await;
        }
        // The routes `KINDS` and `KINDS + 1` update or remove an existing rule.
        if [KINDS, KINDS + 1].contains(&route) {
            *id = world.with_rule(agent, &with_keys(added.clone(), keys)).await;
        }
    }
    let mut remaining: Value = json!(base);
    remaining.as_array_mut().unwrap().push(added.clone());

    let start = world.now();
    let split = start.after(Duration::from_secs_u32(3 * 86_400));
    let first = steps(&mut rng, 10, (start, split));
    for step in &first {
        let outcomes = [
            decide(world, &mut rng, (&kept, kept_keys), step, step.fate).await,
            decide(world, &mut rng, (&updated, updated_keys), step, step.fate).await,
        ];
        assert_eq!(outcomes[0].1.split(':').next(), outcomes[1].1.split(':').next());
    }
    world.pass_until(split);

    // Updates the second agent.
    let rules = format!("/agents/{updated}/rules");
    let shop = format!("/agents/{updated}/services/shop");
    let caps = policy(&mut rng);
    let (method, path, body) = match route - route.min(KINDS) {
        _ if route < KINDS => ("POST", "/rules".to_owned(), added.clone()),
        0 => {
            let mut body = rule(&mut rng, kind);
            if kind == 2 {
                // An update can't change whether a budget is for each payee.
                body["per_payee"] = added["per_payee"].clone();
            }
            ("PUT", format!("/rules/{}", ids[0]), body)
        }
        1 => ("DELETE", format!("/rules/{}", ids[0]), json!({})),
        2 => ("PATCH", "/services/shop".to_owned(), caps),
        3 => ("DELETE", "/services/shop".to_owned(), json!({})),
        _ => ("POST", "/rules".to_owned(), added.clone()),
    };
    match route - route.min(KINDS) {
        _ if route < KINDS => drop(world.with_rule(&updated, &with_keys(body.clone(), updated_keys)).await),
        0 => drop(
            world
                .edit(
                    OWNER,
                    "PUT",
                    &format!("{rules}/{}", ids[1]),
                    with_keys(body.clone(), updated_keys),
                )
                .await
                .ok(),
        ),
        1 => drop(
            world
                .edit(OWNER, "DELETE", &format!("{rules}/{}", ids[1]), json!({}))
                .await
                .ok(),
        ),
        2 | 3 => drop(world.edit(OWNER, method, &shop, body.clone()).await.ok()),
        4 => {
            world.shadow(&kept, &with_keys(remaining.clone(), kept_keys)).await;
            world
                .shadow(&updated, &with_keys(remaining.clone(), updated_keys))
                .await;
            let path = format!("/agents/{updated}/shadow/promote");
            drop(world.call(OWNER, "POST", &path, Some("*"), Some(json!({}))).await.ok());
        }
        5 => {
            // Removing and adding a rule has the same effect as restoring an earlier version.
            let added = with_keys(added.clone(), updated_keys);
            let id = world.with_rule(&updated, &added).await;
            let path = format!("{rules}/{id}");
            drop(world.edit(OWNER, "DELETE", &path, json!({})).await.ok());
            world.with_rule(&updated, &added).await;
        }
        _ => {
            let template = format!("predicted{case}");
            let path = format!("/policy-templates/{template}");
            let body = Some(json!({"rules": [added]}));
            drop(world.call(OWNER, "PUT", &path, None, body).await.created());
            let body = json!({"act": "follow", "template": template, "agents": {"kind": "ids", "ids": [updated]}});
            world.call(OWNER, "POST", "/agents/bulk", None, Some(body)).await.ok();
            let path = format!("{path}/apply");
            world.call(OWNER, "POST", &path, None, Some(json!({}))).await.ok();
            assert_eq!(world.get(OWNER, &rules).await.ok()["count"], base.len() + 1);
        }
    }

    let mut actual = Changes::new();
    let last = steps(&mut rng, 12, (split, split.after(Duration::DAY)));
    let mut log = Vec::new();
    for step in &last {
        let before = decide(world, &mut rng, (&kept, kept_keys), step, step.fate).await;
        // The preview counts a payment that only the updated limits allow as paid.
        let is_new = before.0 != DecisionResult::Allow;
        let fate = if is_new { Fate::Confirmed } else { step.fate };
        let after = decide(world, &mut rng, (&updated, updated_keys), step, fate).await;
        log.push(format!("{step:?} {before:?} {after:?}"));
        if before.0 != after.0 {
            let reason = if after.0 == DecisionResult::Allow {
                &before.1
            } else {
                &after.1
            };
            let key = (before.0.name().to_owned(), after.0.name().to_owned(), plain(reason));
            *actual.entry(key).or_default() += 1;
        }
    }
    world.pass_until(split.after(Duration::DAY));
    let preview = if route == KINDS + 4 {
        let shadow = world.get(OWNER, &format!("/agents/{kept}/shadow")).await;
        shadow.ok()
    } else {
        let path = format!("/agents/{kept}{path}?preview=true&days=1");
        world
            .edit(OWNER, method, &path, with_keys(body.clone(), kept_keys))
            .await
            .ok()
    };
    assert_eq!(preview["untested"], 0, "case {case}: {preview}");
    assert_eq!(preview["decisions"], last.len(), "case {case}: {preview}");
    let earlier: Vec<String> = first.iter().map(|step| format!("{step:?}")).collect();
    assert_eq!(
        predicted(&preview),
        actual,
        "case {case}, {method} {path} {body} after {base:?}\nearlier {}\nlast {}",
        earlier.join("\n"),
        log.join("\n")
    );
    actual.values().sum()
}

#[tokio::test]
async fn a_preview_predicts_the_decisions_after_the_update() {
    let world = World::start().await;
    for n in 0..2 {
        let stored = world.catalog.put_service(&shop(n), &sample::audit()).await.unwrap();
        assert_eq!(stored, StoreServiceResult::Stored);
    }
    world.advance(3_600);
    let count = std::env::var_os("PREVIEW_CASES").and_then(|count| count.to_str()?.parse().ok());
    let cases: Vec<usize> = match count {
        // Consecutive cases have different kinds of rules and routes.
        Some(count) => (0..count).map(|case: usize| case * 5).collect(),
        None => CASES.to_vec(),
    };
    let mut changed = 0;
    for case in &cases {
        changed += usize::from(run(&world, *case).await > 0);
    }
    assert!(
        changed * 3 >= cases.len(),
        "only {changed} of {} updates change decisions",
        cases.len()
    );
}
