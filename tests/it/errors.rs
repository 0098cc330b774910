//! Provokes every error of `docs/spec.md` §7 that an agent can get, and checks its status, slug and context.
//!
//! A denial stores one decision and nothing else. A preflight returns the same error and stores nothing.

use base64::Engine as _;
use purser_domain::{
    AgentStatus, ApprovalId, ApprovalRequired, BudgetLimit, Category, CategoryBlock, DomainPattern, Duration,
    OperationSlug, Rule, RuleId, RuleKind, ServiceSlug, SpendPolicy, Timestamp, VendorAllowlist,
};
use purser_local::{NETWORK, Options};
use purser_store::ApprovalDecision;
use purser_testkit::ProxyConfig;
use purser_tests::{
    Answer, OfferedTerms, Rows, TestAgent, World, as_repeated, batch_of, body_of, dollars, fresh_key, offer_v2, plain,
    transfer_of, units,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

/// The names of all checks in their order (`docs/errors.md` §4).
const CHECKS: [&str; 12] = [
    "service_enabled",
    "agent_active",
    "enabled_operations",
    "allowed_domains",
    "max_payment_units",
    "max_per_call_units",
    "category_block",
    "vendor_allowlist",
    "budget_limit",
    "max_per_day_units",
    "approval",
    "usdc_balance",
];

/// The expected content of a denial.
struct Refusal {
    status: u16,
    slug: &'static str,
    /// The context fields, except for ids that are created with the response.
    context: Value,
    /// The `decision` object without its checks and its latency.
    decision: Value,
    /// The first failed check, with its numbers.
    failed: Value,
}

impl Refusal {
    /// Returns the expected decision and context. `retry_at` is either in both or in neither.
    fn decision_and_context(&self) -> (Value, Value) {
        let (mut decision, mut context) = (self.decision.clone(), self.context.clone());
        if let Some(retry_at) = decision.get("retry_at").or(context.get("retry_at")).cloned() {
            decision["retry_at"] = retry_at.clone();
            context["retry_at"] = retry_at;
        }
        (decision, context)
    }
}

fn decision(result: &str, reason: &str, rule: &str) -> Value {
    json!({"result": result, "reason": reason, "rule_triggered": rule})
}

/// Returns a failed check without numbers.
fn failed(name: &str) -> Value {
    json!({"name": name, "outcome": "failed", "passed": false, "limit": null, "used": null, "remaining": null})
}

/// Returns a failed check with its limit and its used amount.
fn over(name: &str, limit: u64, used: u64) -> Value {
    let remaining = limit.saturating_sub(used);
    json!({"name": name, "outcome": "failed", "passed": false, "limit": limit, "used": used, "remaining": remaining})
}

/// Returns the expected `policy_blocked` error.
fn policy_blocked(reason: &str, rule: &str, failed: Value) -> Refusal {
    Refusal {
        status: 403,
        slug: "policy_blocked",
        context: json!({}),
        decision: decision("block", reason, rule),
        failed,
    }
}

fn policy(edit: impl FnOnce(&mut SpendPolicy)) -> SpendPolicy {
    let mut policy = SpendPolicy::permissive();
    edit(&mut policy);
    policy
}

fn rule(kind: RuleKind) -> Rule {
    Rule {
        id: RuleId::from_uuid(uuid::Uuid::new_v4()),
        version: 1,
        kind,
    }
}

fn slug(text: &str) -> ServiceSlug {
    ServiceSlug::parse(text).unwrap()
}

fn operations(slugs: &[&str]) -> Option<Vec<OperationSlug>> {
    Some(slugs.iter().map(|slug| OperationSlug::parse(slug).unwrap()).collect())
}

fn domains(entries: &[&str]) -> Vec<DomainPattern> {
    entries
        .iter()
        .map(|entry| DomainPattern::parse(entry).unwrap())
        .collect()
}

/// Returns the body with replaced fields. The value null removes a field.
fn with(body: &Value, members: Value) -> Value {
    let mut body = body.clone();
    for (name, value) in members.as_object().unwrap() {
        match value {
            Value::Null => body.as_object_mut().unwrap().remove(name),
            value => body.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    body
}

/// Returns an authorize body for an operation.
async fn body_for(world: &World, service: &str, operation: &str, units: u64) -> Value {
    let service = world.service(service).await;
    let operation = service
        .find_operation(&OperationSlug::parse(operation).unwrap())
        .unwrap();
    with(
        &body_of(world.offer(units)),
        json!({
            "service_id": service.slug.as_str(),
            "operation_id": operation.slug.as_str(),
            "original_request": {"method": operation.method, "url": operation.endpoint.as_str()},
        }),
    )
}

/// Creates an agent with a balance, these rules, and no limits for these services.
async fn free_agent(world: &World, services: &[&str], rules: Vec<Rule>) -> TestAgent {
    let agent = world.poor_agent(rules).await;
    for service in services {
        world.enable(&agent, service, SpendPolicy::permissive()).await;
    }
    world.fund(&agent, dollars(10_000)).await;
    agent
}

async fn decisions(world: &World, agent: &TestAgent) -> Decisions {
    let items = world.scan("DecisionsTable").await.into_iter().map(|item| {
        let text = |(name, value): (String, aws_sdk_dynamodb::types::AttributeValue)| {
            let text = value.as_s().or(value.as_n()).cloned().unwrap_or_else(|_| plain(&value));
            (name, text)
        };
        item.into_iter().map(text).collect::<BTreeMap<_, _>>()
    });
    let own = items.filter(|item| item["pk"] == format!("A#{}", agent.id));
    own.map(|item| (item["sk"].clone(), item)).collect()
}

/// The attributes of stored decisions, by transaction id.
type Decisions = BTreeMap<String, BTreeMap<String, String>>;

/// The stored rows at one moment.
struct Before {
    rows: Rows,
    decisions: Decisions,
}

const NOTHING: [String; 0] = [];

impl Before {
    async fn take(world: &World, agent: &TestAgent) -> Self {
        Self {
            rows: world.rows().await,
            decisions: decisions(world, agent).await,
        }
    }

    /// Asserts that the stored rows have not changed.
    async fn still_holds(&self, world: &World, agent: &TestAgent, after: &str) {
        assert_eq!(
            world.rows().await.changes_since(&self.rows),
            NOTHING,
            "{after} moves nothing"
        );
        assert_eq!(decisions(world, agent).await, self.decisions, "{after} decides nothing");
    }
}

#[track_caller]
fn take(body: &mut Value, name: &str) -> Value {
    body.as_object_mut()
        .unwrap()
        .remove(name)
        .unwrap_or_else(|| panic!("`{name}` is missing in {body}"))
}

/// Returns the slug and the context of an error, without the fields of every error.
#[track_caller]
fn context_of(answer: Answer, status: u16, slug: &str) -> Value {
    let request = answer.headers["x-request-id"].to_str().unwrap().to_owned();
    let mut body = answer.refused(status, slug);
    assert_eq!(take(&mut body, "request_id"), json!(request));
    let message = take(&mut body, "message");
    assert!(
        message.as_str().is_some_and(|message| message.len() > 10),
        "`message` is for people: {message}"
    );
    take(&mut body, "error");
    body
}

/// Asserts that a response is this denial. Returns its transaction id and its checks.
#[track_caller]
fn told(answer: Answer, expected: &Refusal) -> (String, Value) {
    let mut body = context_of(answer, expected.status, expected.slug);
    let transaction = take(&mut body, "transaction_id").as_str().unwrap().to_owned();
    // The field is absent if an earlier call made the decision.
    if let Some(hash) = body.as_object_mut().unwrap().remove("decision_hash") {
        assert!(hash.as_str().is_some_and(|hash| hash.len() == 64), "{hash}");
    }
    assert!(uuid::Uuid::parse_str(&transaction).is_ok(), "{transaction}");
    let mut decision = take(&mut body, "decision");
    assert!(take(&mut decision, "latency_ms").is_u64());
    let checks = take(&mut decision, "checks");
    assert_eq!((decision, body), expected.decision_and_context());
    (transaction, checks)
}

/// Asserts that all checks are listed in order, and that this check is the first that failed.
#[track_caller]
fn assert_checks(checks: &Value, first_failed: &Value) {
    let checks = checks.as_array().unwrap();
    let names: Vec<&str> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(names, CHECKS);
    assert_eq!(checks.iter().find(|check| check["passed"] == false), Some(first_failed));
}

/// Asserts that a preflight predicts this denial, and stores nothing.
async fn foresees(world: &World, agent: &TestAgent, body: &Value, expected: &Refusal) -> Value {
    // The first decision after a rule was added may write rows, so it is made before the comparison.
    world.check(agent, body).await.ok();
    let before = Before::take(world, agent).await;
    let foreseen = world.check(agent, body).await.ok();
    before.still_holds(world, agent, "a preflight").await;
    let result = expected.decision["result"].as_str().unwrap();
    let amount = body["payment_requirement"]["accepts"][0]["amount"]
        .as_str()
        .unwrap()
        .parse::<u64>()
        .unwrap();
    let (mut decision, _) = expected.decision_and_context();
    decision["latency_ms"] = foreseen["decision"]["latency_ms"].clone();
    decision["checks"] = foreseen["checks"].clone();
    let mut told = json!({
        "check": true,
        "decision": decision,
        "would_authorize": false,
        "result": result,
        "reason": expected.decision["reason"],
        "amount_units": amount,
        "approval_required": result == "escalate",
        "checks": foreseen["checks"],
        "spend_today_units": foreseen["spend_today_units"],
        "remaining_today_units": foreseen["remaining_today_units"],
        "budgets": foreseen["budgets"],
    });
    // The field is present only if the amount exceeds the catalog's price.
    if let Some(listed) = foreseen.get("listed_amount_units") {
        assert!(listed.as_u64() < Some(amount), "{foreseen}");
        told["listed_amount_units"] = listed.clone();
    }
    assert_eq!(foreseen, told);
    assert_checks(&foreseen["checks"], &expected.failed);
    foreseen["checks"].clone()
}

/// Asserts that authorize denies a body as the preflight predicts, and stores one decision.
async fn blocks(world: &World, agent: &TestAgent, body: &Value, expected: &Refusal) {
    let foreseen = foresees(world, agent, body, expected).await;
    let Before { rows, decisions } = Before::take(world, agent).await;
    let (transaction, checks) = told(world.authorize(agent, body).await, expected);
    assert_eq!(checks, foreseen, "authorize judges as the preflight does");
    assert_eq!(world.rows().await.changes_since(&rows), NOTHING);
    recorded(world, agent, &decisions, &transaction, expected).await;
}

/// Asserts that exactly this decision was added.
async fn recorded(world: &World, agent: &TestAgent, before: &Decisions, transaction: &str, expected: &Refusal) {
    let mut now = decisions(world, agent).await;
    let row = now
        .remove(transaction)
        .expect("the decision of the answer's transaction id");
    assert_eq!(&now, before, "one decision more, and the others unchanged");
    let texts = |names: [&str; 3]| names.map(|name| expected.decision[name].as_str().unwrap().to_owned());
    assert_eq!(
        ["result", "reason", "rule"].map(|name| row[name].clone()),
        texts(["result", "reason", "rule_triggered"])
    );
    assert_eq!(row["error"], expected.slug);
}

/// Asserts that a response is this error and that nothing was stored. Returns the message.
async fn nothing_moves(
    world: &World,
    agent: &TestAgent,
    call: impl Future<Output = Answer>,
    expected: (u16, &str, Value),
) -> Value {
    let before = Before::take(world, agent).await;
    let (status, slug, context) = expected;
    let answer = call.await;
    let message = answer.body["message"].clone();
    assert_eq!(context_of(answer, status, slug), context);
    before.still_holds(world, agent, slug).await;
    message
}

/// Asserts that a preflight would allow a body.
async fn would_pay(world: &World, agent: &TestAgent, body: &Value) {
    let foreseen = world.check(agent, body).await.ok();
    let told = ["would_authorize", "result", "reason", "approval_required"].map(|name| foreseen[name].clone());
    assert_eq!(
        told,
        [json!(true), json!("allow"), json!("x402_authorized"), json!(false)],
        "{foreseen}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_valid_agent_key_are_unauthorized() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;
    let body = body_of(world.offer(5_000));
    let settled = world.authorize(&agent, &body).await.ok();
    let (settlement, id) = (settled["settlement_id"].as_str().unwrap(), agent.id);
    let routes = [
        (Method::POST, "/x402/check".to_owned()),
        (Method::POST, "/x402/check/unpaid".to_owned()),
        (Method::POST, "/x402/authorize".to_owned()),
        (Method::POST, format!("/x402/settlements/{settlement}/complete")),
        (Method::GET, format!("/x402/settlements/{settlement}")),
        (Method::GET, format!("/agents/{id}/settlements")),
        (Method::GET, format!("/approvals/{settlement}")),
        (Method::GET, "/mcp/agents/me".to_owned()),
        (Method::GET, format!("/mcp/agents/{id}/services")),
        (Method::GET, format!("/agents/{id}/services/lab-search/policy")),
    ];
    let refused = async |header: Option<&str>, slug: &str| {
        let mut messages = BTreeSet::new();
        for (method, path) in &routes {
            let url = format!("{}{path}", world.stack.base_url);
            let mut request = world.http.request(method.clone(), url);
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            if method == Method::POST {
                request = request.json(&body);
            }
            let call = async {
                let answer = World::send(request).await;
                assert_eq!(answer.headers["www-authenticate"], "Bearer");
                answer
            };
            let message = nothing_moves(&world, &agent, call, (401, slug, json!({}))).await;
            messages.insert(message.to_string());
        }
        assert_eq!(messages.len(), 1, "{header:?}: no route tells more than another");
        messages
    };
    let (public, _) = agent.key.split_once(':').unwrap();
    let (_, other_secret) = other.key.split_once(':').unwrap();
    let unknown = format!("Bearer gak_pub_{}:{other_secret}", "0".repeat(48));
    let missing = refused(None, "invalid_agent_key").await;
    for header in [format!("Bearer {public}:{other_secret}"), unknown] {
        assert_eq!(refused(Some(&header), "invalid_agent_key").await, missing, "all alike");
    }
    refused(Some("Bearer x"), "invalid_authorization_header").await;
    world.call(Method::GET, "/services", None, None).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bodies_are_rejected_and_bind_no_idempotency_key() {
    let world = World::start().await;
    let agent = free_agent(&world, &["lab-search"], vec![]).await;
    let narrow = policy(|policy| policy.allowed_domains = domains(&["example.com"]));
    world.enable(&agent, "lab-scrape", narrow).await;
    let authorize = body_of(world.offer(5_000));
    let check = with(&authorize, json!({"idempotency_key": null, "replay_key": fresh_key()}));
    for (path, body) in [("/x402/authorize", &authorize), ("/x402/check", &check)] {
        let wrong = json!({"max_payment_units": -1, "operation_id": "search", "approvalId": fresh_key()});
        let details = json!([
            {"path": "/approvalId", "message": "is not a field of this request"},
            {"path": "/max_payment_units", "message": "must be a whole number of micro-units from 0 to 9007199254740991"},
            {"path": "/operation_id", "message": "must be an operation slug of the form `<domain>.<action>`"},
        ]);
        let search = format!("{}/search?q=x", world.stack.providers.provider_url);
        let another = json!({"operation_id": "web.crawl", "original_request": {"method": "GET", "url": search}});
        let message = "names another operation than the one that `original_request` calls";
        let large = json!({"original_request": {"method": "GET", "url": "http://x.test/", "x": "x".repeat(65_536)}});
        for (members, status, slug, context) in [
            (
                json!({"payment_requirement": null}),
                400,
                "payment_requirement_required",
                json!({}),
            ),
            (
                json!({"service_id": "lab-scrape"}),
                400,
                "target_url_required",
                json!({}),
            ),
            (wrong, 400, "invalid_request", json!({"details": details})),
            (
                another,
                400,
                "invalid_request",
                json!({"details": [{"path": "/operation_id", "message": message}]}),
            ),
            (large, 413, "request_too_large", json!({"limit_bytes": 65_536})),
        ] {
            let body = with(body, members);
            nothing_moves(&world, &agent, world.post(&agent, path, &body), (status, slug, context)).await;
        }
    }
}

/// A change of the policy, a rule, the request's body, and the expected denial.
type Row = (fn(&mut SpendPolicy), Option<RuleKind>, Value, Refusal);

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_denial_reports_its_numbers() {
    let world = World::still().await;
    let agent = free_agent(&world, &["lab-search"], vec![]).await;
    let at = |units: u64| body_of(world.offer(units));
    let search = body_for(&world, "lab-search", "web.search", 5_000).await;
    let scrape = body_for(&world, "lab-scrape", "web.scrape", 20_000).await;
    let elsewhere = json!({"method": "GET", "url": "https://provider.example/no/where"});
    let nameless = with(&search, json!({"operation_id": null, "original_request": elsewhere}));
    let stranger = OfferedTerms {
        units: 5_000,
        pay_to: STRANGER.to_owned(),
        timeout: 60,
    };
    let blocked = |status, slug, context, failed: Value| Refusal {
        status,
        slug,
        context,
        decision: decision("block", slug, failed["name"].as_str().unwrap()),
        failed,
    };
    let operation = |operation: Value| {
        let context = json!({"operation_id": operation, "enabled_operations": ["web.other"]});
        blocked(
            403,
            "operation_not_enabled_for_agent",
            context,
            failed("enabled_operations"),
        )
    };
    let other: fn(&mut SpendPolicy) = |policy| policy.enabled_operations = operations(&["web.other"]);
    let any: fn(&mut SpendPolicy) = |_| ();
    let vendor = |reason, rule| policy_blocked(reason, rule, failed("vendor_allowlist"));
    let hostname = json!({"hostname": "evil-example.com", "allowed_domains": ["example.com", "*.docs.example.org"]});
    let daily = json!({"spend_today": 0, "amount_units": 5_000, "max_per_day_units": 4_999, "retry_at": null});
    let rows: Vec<Row> = vec![
        (other, None, search.clone(), operation(json!("web.search"))),
        (other, None, nameless, operation(Value::Null)),
        (
            |policy| policy.allowed_domains = domains(&["example.com", "*.docs.example.org"]),
            None,
            with(
                &scrape,
                json!({"metadata": {"target_url": "https://user@Evil-Example.COM.:8443/?https://example.com"}}),
            ),
            blocked(403, "domain_not_allowed", hostname, failed("allowed_domains")),
        ),
        (
            any,
            None,
            with(&search, json!({"max_payment_units": 4_999})),
            blocked(
                402,
                "amount_exceeds_max",
                json!({"amount_units": 5_000, "max_payment_units": 4_999}),
                over("max_payment_units", 4_999, 0),
            ),
        ),
        (
            |policy| policy.max_per_call = units(4_999),
            None,
            search.clone(),
            blocked(
                402,
                "amount_exceeds_per_call_limit",
                json!({"amount_units": 5_000, "max_per_call_units": 4_999}),
                over("max_per_call_units", 4_999, 0),
            ),
        ),
        (
            any,
            Some(RuleKind::CategoryBlock(CategoryBlock {
                categories: vec![Category::Search],
            })),
            search.clone(),
            policy_blocked("category_block:search", "category_block", failed("category_block")),
        ),
        (
            any,
            Some(RuleKind::VendorAllowlist(VendorAllowlist { vendors: vec![] })),
            search.clone(),
            vendor("vendor_allowlist:lab-search", "vendor_allowlist"),
        ),
        (
            any,
            None,
            with(&search, json!({"payment_requirement": offer_v2(&stranger)})),
            vendor("catalog_payee:pay_to_not_in_catalog", "catalog_payee"),
        ),
        (
            |policy| policy.max_per_day = units(4_999),
            None,
            search.clone(),
            blocked(
                402,
                "daily_spend_limit_exceeded",
                daily,
                over("max_per_day_units", 4_999, 0),
            ),
        ),
    ];
    for (edit, kind, body, expected) in rows {
        for service in ["lab-search", "lab-scrape"] {
            world.enable(&agent, service, policy(edit)).await;
        }
        let rules: Vec<Rule> = kind.map(rule).into_iter().collect();
        world.edit(&agent, |agent| agent.rules = rules).await;
        blocks(&world, &agent, &body, &expected).await;
    }
    world.edit(&agent, |agent| agent.rules.clear()).await;
    world.enable(&agent, "lab-search", SpendPolicy::permissive()).await;
    would_pay(&world, &agent, &search).await;

    // Services are named by slug, by UUID, and only by the called URL.
    world
        .put_policy(&agent, "lab-scrape", false, SpendPolicy::permissive())
        .await;
    for service in ["lab-scrape", "lab-weather"] {
        let body = match service {
            "lab-scrape" => scrape.clone(),
            _ => body_for(&world, service, "weather.current", 5_000).await,
        };
        let context = json!({"code": "SERVICE_NOT_ENABLED", "service_id": service});
        let expected = blocked(403, "service_not_enabled", context, failed("service_enabled"));
        let id = world.service(service).await.id.to_string();
        for named in [json!(service), json!(id), Value::Null] {
            blocks(&world, &agent, &with(&body, json!({"service_id": named})), &expected).await;
        }
    }

    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    let frozen = policy_blocked("agent_frozen", "agent_frozen", failed("agent_active"));
    blocks(&world, &agent, &search, &frozen).await;
    world.get(&agent, "/mcp/agents/me").await.ok();

    let budget = rule(RuleKind::BudgetLimit(BudgetLimit {
        limit: units(12_000),
        window: Duration::from_secs_u32(3_600).into(),
    }));
    let agent = free_agent(&world, &["lab-search"], vec![budget.clone()]).await;
    for (amount, used, retry_at) in [
        (12_001, 0, Value::Null),
        (
            5_000,
            10_000,
            json!(world.now().after(Duration::from_secs_u32(3_600)).to_string()),
        ),
    ] {
        let reason = format!("budget_limit:{}", budget.id);
        let mut expected = policy_blocked(&reason, "budget_limit", over("budget_limit", 12_000, used));
        expected.decision["retry_at"] = retry_at;
        blocks(&world, &agent, &at(amount), &expected).await;
        if used == 0 {
            world.authorize(&agent, &at(10_000)).await.ok();
        }
    }

    // The response has the wallet's balance in units and in decimals.
    let poor = world.poor_agent(vec![]).await;
    world.enable(&poor, "lab-search", SpendPolicy::permissive()).await;
    world.fund(&poor, 250_000).await;
    let context = json!({"balance_usdc": "0.25", "required_usdc": "0.250001", "wallet_address": poor.wallet});
    let expected = blocked(
        402,
        "insufficient_usdc_balance",
        context,
        over("usdc_balance", 250_000, 0),
    );
    blocks(&world, &poor, &at(250_001), &expected).await;
    would_pay(&world, &poor, &at(250_000)).await;
}

/// Asserts that authorize requires an approval as the preflight predicts. Returns the approval's id.
///
/// `above` is the approval threshold of the policy or of a rule.
async fn escalates(world: &World, agent: &TestAgent, body: &Value, above: u64, rule: &str) -> String {
    let amount = body["payment_requirement"]["accepts"][0]["amount"]
        .as_str()
        .unwrap()
        .parse::<u64>()
        .unwrap();
    let mut check = failed("approval");
    check["limit"] = json!(above);
    let by_rule = rule == "approval_required";
    let threshold = if by_rule {
        SpendPolicy::permissive().require_approval_above.units()
    } else {
        above
    };
    let mut expected = Refusal {
        status: 402,
        slug: "approval_required",
        context: json!({"amount_units": amount, "require_approval_above_units": threshold}),
        decision: decision("escalate", "approval_required", rule),
        failed: check,
    };
    let foreseen = foresees(world, agent, body, &expected).await;
    let (mut footprint, decided) = (world.footprint().await, decisions(world, agent).await);
    let answer = world.authorize(agent, body).await;
    let approval = answer.body["approval_id"].as_str().expect("an approval").to_owned();
    assert!(ApprovalId::parse(&approval).is_some());
    expected.context["approval_id"] = json!(approval);
    if by_rule {
        expected.context["rule_id"] = answer.body["rule_id"].clone();
        expected.context["rule_above_units"] = json!(above);
        assert!(expected.context["rule_id"].is_string());
    }
    let (transaction, checks) = told(answer, &expected);
    assert_eq!(checks, foreseen);
    footprint.keys += 1;
    *footprint.approvals.entry("pending".to_owned()).or_default() += 1;
    assert_eq!(
        world.footprint().await,
        footprint,
        "an escalation asks, and spends nothing"
    );
    recorded(world, agent, &decided, &transaction, &expected).await;
    assert_eq!(decisions(world, agent).await[&transaction]["apid"], approval);

    let before = Before::take(world, agent).await;
    let (again, _) = told(world.authorize(agent, body).await, &expected);
    assert_eq!(again, transaction);
    before.still_holds(world, agent, "asking again").await;

    let polled = world.get(agent, &format!("/approvals/{approval}")).await.ok();
    assert_eq!(
        [&polled["status"], &polled["transaction_id"]],
        [&json!("pending"), &json!(transaction)]
    );
    approval
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_thresholds_and_rules_require_approval() {
    let world = World::start().await;
    let body = body_of(world.offer(5_000));
    let careful = policy(|policy| policy.require_approval_above = units(4_999));
    let agent = world.agent(careful, vec![]).await;
    escalates(&world, &agent, &body, 4_999, "require_approval_above_units").await;
    would_pay(&world, &agent, &body_of(world.offer(4_999))).await;
    let asking = rule(RuleKind::ApprovalRequired(ApprovalRequired {
        services: Some(vec![slug("lab-search")]),
        categories: Some(vec![Category::Search]),
        above: Some(units(4_000)),
    }));
    let agent = world.agent(SpendPolicy::permissive(), vec![asking]).await;
    escalates(&world, &agent, &body, 4_000, "approval_required").await;
    would_pay(&world, &agent, &body_of(world.offer(4_000))).await;
}

/// Asserts that authorize denies a call because of its approval.
async fn void(world: &World, agent: &TestAgent, body: &Value, reason: &str) {
    let Before { rows, decisions } = Before::take(world, agent).await;
    let expected = policy_blocked(reason, "approval_required", Value::Null);
    let (transaction, checks) = told(world.authorize(agent, body).await, &expected);
    assert_eq!(checks, json!([]), "the policy was not asked");
    assert_eq!(world.rows().await.changes_since(&rows), NOTHING);
    recorded(world, agent, &decisions, &transaction, &expected).await;
}

/// `approvals.rs` tests that an approval is used once and expires.
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_allows_only_its_own_request_once() {
    let world = World::still().await;
    let careful = || policy(|policy| policy.require_approval_above = units(4_999));
    let agent = world.agent(careful(), vec![]).await;
    let other = world.agent(careful(), vec![]).await;
    let ask = async |amount: u64| {
        let body = body_of(world.offer(amount));
        let approval = escalates(&world, &agent, &body, 4_999, "require_approval_above_units").await;
        (with(&body, json!({"approval_id": approval})), approval)
    };

    let (carrying, approval) = ask(5_000).await;
    world.resolve(&approval, ApprovalDecision::Approve).await;
    let elsewhere = json!({"method": "GET", "url": "https://provider.example/y"});
    for change in [
        json!({"payment_requirement": world.offer(5_001), "idempotency_key": fresh_key()}),
        json!({"original_request": elsewhere, "idempotency_key": fresh_key()}),
    ] {
        void(&world, &agent, &with(&carrying, change), "approval_request_mismatch").await;
    }
    let missing = || (404, "not_found", json!({}));
    nothing_moves(&world, &other, world.authorize(&other, &carrying), missing()).await;
    let unknown = json!({"approval_id": fresh_key(), "idempotency_key": fresh_key()});
    let unknown = with(&carrying, unknown);
    nothing_moves(&world, &agent, world.authorize(&agent, &unknown), missing()).await;

    // A freeze takes precedence over an approval.
    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    let frozen = world.authorize(&agent, &carrying).await.refused(403, "policy_blocked");
    assert_eq!(frozen["decision"]["reason"], "agent_frozen");
    world.edit(&agent, |agent| agent.status = AgentStatus::Active).await;

    let paid = world.authorize(&agent, &carrying).await.ok();
    for key in [carrying["idempotency_key"].clone(), json!(fresh_key())] {
        let used = with(&carrying, json!({"idempotency_key": key}));
        let context = json!({"approval_id": approval, "settlement_id": paid["settlement_id"]});
        let expected = (409, "idempotent_replay", context);
        nothing_moves(&world, &agent, world.authorize(&agent, &used), expected).await;
    }

    let (carrying, approval) = ask(6_000).await;
    world.resolve(&approval, ApprovalDecision::Reject).await;
    let body = with(&carrying, json!({"approval_id": null}));
    for body in [&body, &carrying] {
        void(&world, &agent, body, "approval_rejected").await;
    }
    let anew = with(&body, json!({"idempotency_key": fresh_key()}));
    let second = escalates(&world, &agent, &anew, 4_999, "require_approval_above_units").await;
    assert_ne!(second, approval);

    // The approval expires without a decision.
    let (unanswered, approval) = ask(7_000).await;
    world.set_clock(world.now().after(Duration::DAY));
    void(&world, &agent, &unanswered, "approval_expired").await;
    let polled = world.get(&agent, &format!("/approvals/{approval}")).await.ok();
    assert_eq!(polled["status"], "expired");
}

/// `isolation.rs` tests ids of other owners on every route.
#[tokio::test(flavor = "multi_thread")]
async fn missing_and_foreign_objects_both_return_not_found() {
    let world = World::start().await;
    let agent = free_agent(&world, &["lab-search", "sundown-feeds"], vec![]).await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;
    let body = body_of(world.offer(5_000));

    // The service is unknown, can't be found by the URL, or is disabled.
    let at = |url: &str| json!({"service_id": null, "original_request": {"method": "GET", "url": url}});
    for named in [
        json!({"service_id": "no-such-service"}),
        json!({"service_id": fresh_key()}),
        at("https://nowhere.example/x"),
        json!({"service_id": "sundown-feeds"}),
        json!({"service_id": world.service("sundown-feeds").await.id.to_string()}),
        at("https://api.sundown-feeds.example/v1/feeds"),
    ] {
        let body = with(&body, named);
        let expected = (404, "service_not_found", json!({}));
        nothing_moves(&world, &agent, world.authorize(&agent, &body), expected.clone()).await;
        nothing_moves(&world, &agent, world.check(&agent, &body), expected).await;
    }
    let answer = world.call(Method::GET, "/services/no-such-service", None, None).await;
    assert_eq!(context_of(answer, 404, "service_not_found"), json!({}));

    let settlement = world.authorize(&other, &body).await.ok()["settlement_id"].clone();
    let (settlement, nobody) = (settlement.as_str().unwrap(), fresh_key());
    let mut messages = BTreeSet::new();
    for (method, path) in [
        (Method::GET, format!("/x402/settlements/{settlement}")),
        (Method::GET, format!("/x402/settlements/{nobody}")),
        (Method::GET, format!("/approvals/{nobody}")),
        (Method::GET, format!("/agents/{}/settlements", other.id)),
        (
            Method::GET,
            format!("/agents/{}/services/no-such-service/policy", agent.id),
        ),
        (Method::GET, "/nowhere".to_owned()),
        (Method::GET, "/x402/authorize".to_owned()),
        (Method::OPTIONS, "/x402/authorize".to_owned()),
        (Method::DELETE, "/services/lab-search".to_owned()),
    ] {
        let sent = (method != Method::GET).then_some(&body);
        let call = world.call(method, &path, Some(&agent.key), sent);
        messages.insert(
            nothing_moves(&world, &agent, call, (404, "not_found", json!({})))
                .await
                .to_string(),
        );
    }
    for id in [settlement, &nobody] {
        let proof = proof_of(&format!("0x{}", "1".repeat(64)));
        let call = world.complete(&agent, id, &proof);
        messages.insert(
            nothing_moves(&world, &agent, call, (404, "not_found", json!({})))
                .await
                .to_string(),
        );
    }
    assert_eq!(messages.len(), 1, "one answer for all of them: {messages:?}");
}

/// `shared/domain/src/x402/fingerprint.rs` tests which fields belong to a request.
#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_belongs_to_one_request() {
    const REUSED: &str = "idempotency_key_reused_for_different_request";
    let world = World::still().await;
    let careful = || policy(|policy| policy.require_approval_above = units(10_000));
    let agent = world.agent(careful(), vec![]).await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;
    let reused = |settlement: &Value| (409, REUSED, json!({"settlement_id": settlement}));
    let dearer = |body: &Value| with(body, json!({"payment_requirement": world.offer(5_001)}));

    // A conflict with an authorized request is reported without reading the catalog or the policy.
    let body = body_of(world.offer(5_000));
    let paid = world.authorize(&agent, &body).await.ok();
    let nobody = with(&body, json!({"service_id": "no-such-service"}));
    for enabled in [true, false] {
        world.put_policy(&agent, "lab-search", enabled, careful()).await;
        for changed in [&dearer(&body), &nobody] {
            let expected = reused(&paid["settlement_id"]);
            nothing_moves(&world, &agent, world.authorize(&agent, changed), expected).await;
        }
    }
    let replay = world.authorize(&agent, &body).await;
    assert_eq!(replay.headers["idempotent-replayed"], "true");
    assert_eq!(
        as_repeated(&replay.ok()),
        as_repeated(&paid),
        "and the same request is told the same"
    );
    world.enable(&agent, "lab-search", careful()).await;
    world.authorize(&other, &body).await.ok();

    // An escalated request has no settlement.
    let asked = body_of(world.offer(10_001));
    world.authorize(&agent, &asked).await.refused(402, "approval_required");
    nothing_moves(
        &world,
        &agent,
        world.authorize(&agent, &dearer(&asked)),
        reused(&Value::Null),
    )
    .await;

    // A denied or failed request does not bind its idempotency key.
    let denied = with(&body_of(world.offer(5_000)), json!({"max_payment_units": 1}));
    for (change, status, slug) in [
        (json!({}), 402, "amount_exceeds_max"),
        (json!({"service_id": "nobody"}), 404, "service_not_found"),
        (json!({"max_payment_units": "1"}), 400, "invalid_request"),
    ] {
        let answer = world.authorize(&agent, &with(&denied, change)).await;
        answer.refused(status, slug);
    }
    let free = with(&denied, json!({"max_payment_units": 5_000}));
    world.authorize(&agent, &free).await.ok();

    // A preflight's `replay_key` is independent of idempotency keys, and is stored for one day.
    let key = &body["idempotency_key"];
    let preflight = with(&body, json!({"idempotency_key": null, "replay_key": key}));
    let check = async |body: &Value| world.post(&agent, "/x402/check", body).await;
    assert_eq!(check(&preflight).await.ok()["would_authorize"], true);
    nothing_moves(&world, &agent, check(&dearer(&preflight)), reused(&Value::Null)).await;
    world.set_clock(world.now().after(Duration::DAY));
    check(&dearer(&preflight)).await.ok();
    nothing_moves(&world, &agent, check(&preflight), reused(&Value::Null)).await;
    let decided = decisions(&world, &agent).await;
    let slugs: BTreeSet<&str> = decided.values().map(|row| row["error"].as_str()).collect();
    assert_eq!(
        (slugs, decided.len()),
        (["amount_exceeds_max", "approval_required"].into(), 2),
        "only authorize decides"
    );
}

fn proof_of(transaction: &str) -> Value {
    let response = json!({"success": true, "transaction": transaction, "network": NETWORK.caip2()}).to_string();
    json!({"payment_response_header": base64::engine::general_purpose::STANDARD.encode(response)})
}

/// `shared/domain/src/x402` tests the parsing of proofs (`proof.rs`) and the matching of transfers (`transfer.rs`).
#[tokio::test(flavor = "multi_thread")]
async fn payments_without_on_chain_proof_are_not_confirmed() {
    let world = World::start().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let (token, chain) = (NETWORK.token().address, &world.stack.chain);
    let mut paid = Vec::new();
    for _ in 0..4 {
        paid.push(world.authorize(&agent, &body_of(world.offer(5_000))).await.ok());
    }
    let id = |index: usize| paid[index]["settlement_id"].as_str().unwrap();
    let refuses = async |settlement: &str, body: Value, expected: (u16, &str, Value)| {
        nothing_moves(&world, &agent, world.complete(&agent, settlement, &body), expected).await;
    };

    // The request has no proof, or a proof without a transaction hash.
    let hash = format!("0x{}", "ab".repeat(32));
    for body in [json!({}), json!({"payment_response_header": "", "tx_hash": hash})] {
        refuses(id(0), body, (422, "provider_proof_required", json!({}))).await;
    }
    let nameless = json!({"payment_response_header": "e30="});
    refuses(
        id(0),
        nameless,
        (422, "settlement_transaction_hash_required", json!({})),
    )
    .await;

    // The transaction may still be mined, so the error is retryable.
    const SLUG: &str = "onchain_settlement_not_verified";
    let not_yet = json!({"reason": "transaction_not_mined", "retryable": true, "retry_after": 2});
    refuses(id(0), proof_of(&hash), (422, SLUG, not_yet)).await;
    let never = |reason: &str| (422, SLUG, json!({"reason": reason, "retryable": false}));
    let pending = world.complete(&agent, id(0), &proof_of(&hash)).await;
    assert_eq!(pending.headers["retry-after"], "2");

    // A failed transaction and the payment of another settlement can't become a proof later, so the errors are final.
    let reverted = chain.send(token, vec![1, 2, 3, 4]).await.unwrap();
    refuses(id(0), proof_of(&reverted), never("transaction_reverted")).await;
    let first = chain.send(token, transfer_of(&paid[0]).to_vec()).await.unwrap();
    refuses(id(1), proof_of(&first), never("authorization_not_used")).await;
    world.complete(&agent, id(0), &proof_of(&first)).await.ok();
    let used = (409, "settlement_transaction_already_used", json!({}));
    refuses(id(1), proof_of(&first), used.clone()).await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;
    let theirs = world.authorize(&other, &body_of(world.offer(5_000))).await.ok();
    for unknown in [theirs["settlement_id"].as_str().unwrap(), &fresh_key()] {
        refuses(unknown, proof_of(&first), (404, "not_found", json!({}))).await;
    }
    // A confirmed settlement accepts no other transaction.
    refuses(id(0), proof_of(&hash), never("transaction_unknown")).await;
    let mut failing = proof_of(&first);
    failing["tx_hash"] = json!(reverted);
    let words = "must be the transaction that `payment_response_header` names, or be left out";
    let differ = json!({"details": [{"path": "/tx_hash", "message": words}]});
    refuses(id(1), failing.clone(), (400, "invalid_request", differ)).await;
    failing["payment_response_header"] = json!("e30=");
    refuses(id(1), failing, never("transaction_reverted")).await;

    // By proof, a transaction with two payments confirms only one settlement.
    let batch = batch_of(token, vec![transfer_of(&paid[2]), transfer_of(&paid[3])]);
    let batcher = world.stack.providers.batch_address.parse().unwrap();
    let both = chain.send(batcher, batch).await.unwrap();
    world.complete(&agent, id(2), &proof_of(&both)).await.ok();
    refuses(id(3), proof_of(&both), used.clone()).await;
    refuses(id(2), proof_of(&first), used).await;
    let again = world.complete(&agent, id(2), &proof_of(&both)).await.ok();
    assert_eq!(
        [&again["receipt_status"], &again["tx_hash"]],
        [&json!("confirmed"), &json!(both)]
    );
    assert!(decisions(&world, &agent).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_outage_only_delays_confirmations() {
    let environment = [("FINALITY_CONFIRMATIONS", "1000")];
    let environment = environment
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let options = Options {
        environment,
        ..Options::default()
    };
    let world = World::node_proxied(ProxyConfig::default(), options).await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let (chain, node) = (&world.stack.chain, world.node_proxy.as_ref().unwrap());
    // The response depends on the number of confirmations, so no block may be mined meanwhile.
    chain.stand_still().await.unwrap();

    node.go_down();
    let body = body_of(world.offer(5_000));
    let foreseen = world.check(&agent, &body).await.ok();
    assert_eq!(
        (&foreseen["result"], &foreseen["checks"][11]["outcome"]),
        (&json!("allow"), &json!("unknown"))
    );
    let paid = world.authorize(&agent, &body).await.ok();
    let settled = chain
        .send(NETWORK.token().address, transfer_of(&paid).to_vec())
        .await
        .unwrap();
    let settlement = paid["settlement_id"].as_str().unwrap();
    let proof = proof_of(&settled);
    let complete = || world.complete(&agent, settlement, &proof);
    let pending = |status: u16, reason: &str, seconds: u64| {
        (
            status,
            "onchain_settlement_not_verified",
            json!({"reason": reason, "retryable": true, "retry_after": seconds}),
        )
    };
    nothing_moves(&world, &agent, complete(), pending(503, "chain_unavailable", 2)).await;

    // The node works again, first with too few confirmations.
    node.come_up().await;
    nothing_moves(
        &world,
        &agent,
        complete(),
        pending(422, "transaction_not_final", 2 * 999),
    )
    .await;
    chain.call("anvil_mine", json!([1_000])).await.unwrap();
    assert_eq!(complete().await.ok()["confirmed_via"], "onchain");
}

/// Public routes have no limit per address.
#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_address_waits_for_the_next_minute() {
    let world = World::still_with(Options {
        // The limit exceeds the number of calls with which the stack creates the demo agent.
        throttle_per_minute: 20,
        ..Options::default()
    })
    .await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let minute = world.now().secs() / 60 * 60;
    let second = |second: u64| Timestamp::from_secs(minute + second).unwrap();
    let limited = async |call: Pin<Box<dyn Future<Output = Answer> + '_>>, seconds: u64| {
        let call = async {
            let answer = call.await;
            assert_eq!(answer.headers["retry-after"], seconds.to_string());
            answer
        };
        let expected = (429, "too_many_requests", json!({"retry_after": seconds}));
        nothing_moves(&world, &agent, call, expected).await;
    };
    let me = || world.get(&agent, "/mcp/agents/me");
    let calls = async |count: usize| {
        for _ in 0..count {
            me().await.ok();
        }
    };

    // Calls count with any caller and any result.
    world.set_clock(second(60));
    calls(18).await;
    let nobody = world.call(Method::GET, "/mcp/agents/me", None, None).await;
    nobody.refused(401, "invalid_agent_key");
    let empty = world.post(&agent, "/x402/check", &json!({})).await;
    empty.refused(400, "payment_requirement_required");
    limited(Box::pin(me()), 60).await;
    world.set_clock(Timestamp::from_micros(second(77).micros() + 999_999).unwrap());

    // The throttle comes before all other checks.
    let id = agent.id;
    let complete = format!("/x402/settlements/{}/complete", fresh_key());
    for (path, body) in [
        ("/x402/check", Some(json!({}))),
        ("/x402/authorize", Some(json!([]))),
        (complete.as_str(), Some(json!({}))),
        ("/x402/settlements/x", None),
        (&format!("/agents/{id}/settlements?limit=0"), None),
        ("/approvals/x", None),
        ("/mcp/agents/x/services", None),
        (&format!("/agents/{id}/services/x/policy"), None),
    ] {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let call = world.call(method, path, Some("gak_pub_x:gak_sec_y"), body.as_ref());
        limited(Box::pin(call), 43).await;
    }
    for header in ["x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip"] {
        let request = world.http.get(format!("{}/mcp/agents/me", world.stack.base_url));
        let request = request.bearer_auth(&agent.key).header(header, "203.0.113.7");
        limited(Box::pin(World::send(request)), 43).await;
    }
    world.call(Method::GET, "/services", None, None).await.ok();
    let nowhere = world.call(Method::GET, "/nowhere", None, None).await;
    nowhere.refused(404, "not_found");

    world.set_clock(second(120));
    calls(20).await;
    limited(Box::pin(me()), 60).await;
}

/// `shared/domain/tests/admission.rs` tests the order of the policy's checks.
#[tokio::test(flavor = "multi_thread")]
async fn the_most_permanent_rejection_is_reported_first() {
    let world = World::start().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let body = body_of(world.offer(20_000));
    let paid = world.authorize(&agent, &body).await.ok();
    let key = Some(agent.key.as_str());
    let wrong = Some("gak_pub_x:gak_sec_y");
    let nobody = with(&body, json!({"service_id": "nobody"}));
    let fresh_nobody = with(&nobody, json!({"idempotency_key": fresh_key()}));
    let reused = "idempotency_key_reused_for_different_request";
    let malformed = with(&body, json!({"max_payment_units": 0.5}));
    let incomplete = with(&malformed, json!({"payment_requirement": null}));
    let settlement = paid["settlement_id"].as_str().unwrap();
    let complete = format!("/x402/settlements/{}/complete", fresh_key());
    let own = format!("/x402/settlements/{settlement}/complete");
    let unheard = with(&body, json!({"approval_id": fresh_key()}));
    let no_proof = json!({"payment_response_header": "e30="});
    let unknown_too = json!({"payment_response_header": "e30=", "x": 1});
    let proof = proof_of(&format!("0x{}", "1".repeat(64)));
    let before = Before::take(&world, &agent).await;
    for (path, key, body, status, slug) in [
        ("/x402/authorize", wrong, &json!([]), 401, "invalid_agent_key"),
        ("/x402/authorize", wrong, &incomplete, 401, "invalid_agent_key"),
        (
            "/x402/authorize",
            Some("x"),
            &incomplete,
            401,
            "invalid_authorization_header",
        ),
        ("/x402/authorize", key, &incomplete, 400, "payment_requirement_required"),
        ("/x402/authorize", key, &malformed, 400, "invalid_request"),
        ("/x402/authorize", key, &nobody, 409, reused),
        ("/x402/authorize", key, &fresh_nobody, 404, "service_not_found"),
        ("/x402/authorize", key, &unheard, 404, "not_found"),
        (&complete, wrong, &json!({}), 401, "invalid_agent_key"),
        (&complete, key, &json!({}), 422, "provider_proof_required"),
        (
            &complete,
            key,
            &json!({"payment_response_header": 1}),
            400,
            "invalid_request",
        ),
        (&complete, key, &no_proof, 422, "settlement_transaction_hash_required"),
        (&complete, key, &proof, 404, "not_found"),
        (&own, key, &unknown_too, 400, "invalid_request"),
    ] {
        let answer = world.call(Method::POST, path, key, Some(body)).await;
        answer.refused(status, slug);
    }
    let stranger = format!("/agents/{}/settlements?limit=0", fresh_key());
    world.get(&agent, &stranger).await.refused(404, "not_found");
    before.still_holds(&world, &agent, "all of that").await;
    let again = world.authorize(&agent, &body).await.ok();
    assert_eq!(again["settlement_id"], paid["settlement_id"]);
}
