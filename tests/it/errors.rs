//! Every error of the specification (`docs/spec.md` §7) that an agent can meet, provoked over HTTP: its status, its
//! slug, exactly its context, and that nothing else moved. A block or an escalation leaves one row of decisions, and
//! what failed before there was a decision leaves none; the preflight tells the same and leaves nothing at all.

use base64::Engine as _;
use purser_domain::{
    AgentStatus, ApprovalId, Category, DomainPattern, Duration, OperationSlug, Rule, RuleId, RuleKind, ServiceSlug,
    SpendPolicy, Timestamp, Vendor,
};
use purser_local::{NETWORK, Options};
use purser_store::Verdict;
use purser_testkit::ProxyConfig;
use purser_tests::{
    Answer, Offered, Rows, TestAgent, World, batch_of, body_of, dollars, fresh_key, offer_v2, plain, transfer_of, units,
};
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

const STRANGER: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

/// Every check, in the order in which they are made (`docs/errors.md` §4).
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

/// What a block or an escalation has to say.
struct Refusal {
    status: u16,
    slug: &'static str,
    /// The context fields, all of them, but for ids that are made with the answer.
    context: Value,
    /// `decision` without its checks and its latency.
    decision: Value,
    /// The first check that failed, with its numbers.
    failed: Value,
}

fn decision(result: &str, reason: &str, rule: &str) -> Value {
    json!({"result": result, "reason": reason, "rule_triggered": rule})
}

/// A failed check without numbers.
fn failed(name: &str) -> Value {
    json!({"name": name, "outcome": "failed", "passed": false, "limit": null, "used": null, "remaining": null})
}

/// A failed check with its numbers.
fn over(name: &str, limit: u64, used: u64) -> Value {
    let remaining = limit.saturating_sub(used);
    json!({"name": name, "outcome": "failed", "passed": false, "limit": limit, "used": used, "remaining": remaining})
}

/// A `policy_blocked` that names this reason and rule.
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

/// The body with some members replaced; a null takes one away.
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

/// An authorize body for an operation of the catalog, as an agent that read the catalog sends it.
async fn body_for(world: &World, service: &str, operation: &str, units: u64) -> Value {
    let service = world.service(service).await;
    let operation = service.operation(&OperationSlug::parse(operation).unwrap()).unwrap();
    with(
        &body_of(world.offer(units)),
        json!({
            "service_id": service.slug.as_str(),
            "operation_id": operation.slug.as_str(),
            "original_request": {"method": operation.method, "url": operation.endpoint.as_str()},
        }),
    )
}

/// An agent that may do everything on these services, under these rules, with money.
async fn free_agent(world: &World, services: &[&str], rules: Vec<Rule>) -> TestAgent {
    let agent = world.poor_agent(rules).await;
    for service in services {
        world.enable(&agent, service, SpendPolicy::permissive()).await;
    }
    world.fund(&agent, dollars(10_000)).await;
    agent
}

/// The agent's decisions, by transaction id.
async fn decisions(world: &World, agent: &TestAgent) -> Decisions {
    let items = world.scan("DecisionsTable").await.into_iter().map(|item| {
        let text = |(name, value): (String, aws_sdk_dynamodb::types::AttributeValue)| {
            let text = value.as_s().or(value.as_n()).cloned().unwrap_or_else(|_| plain(&value));
            (name, text)
        };
        item.into_iter().map(text).collect::<BTreeMap<_, _>>()
    });
    let own = items.filter(|item| item["pk"] == format!("A#{}", agent.id));
    own.map(|item| (item["sk"].trim_start_matches("T#").to_owned(), item))
        .collect()
}

/// The agent's decisions, by transaction id and attribute.
type Decisions = BTreeMap<String, BTreeMap<String, String>>;

/// The ledger and the agent's decisions at one moment.
struct Before {
    rows: Rows,
    decisions: Decisions,
}

const NOTHING: [String; 0] = [];

impl Before {
    async fn of(world: &World, agent: &TestAgent) -> Self {
        Self {
            rows: world.rows().await,
            decisions: decisions(world, agent).await,
        }
    }

    /// Asserts that nothing moved since.
    async fn still_holds(&self, world: &World, agent: &TestAgent, after: &str) {
        assert_eq!(
            world.rows().await.changes_since(&self.rows),
            NOTHING,
            "{after} moves nothing"
        );
        assert_eq!(decisions(world, agent).await, self.decisions, "{after} decides nothing");
    }
}

/// Takes a member out of an answer.
#[track_caller]
fn take(body: &mut Value, name: &str) -> Value {
    body.as_object_mut()
        .unwrap()
        .remove(name)
        .unwrap_or_else(|| panic!("`{name}` is missing in {body}"))
}

/// Takes out what every error has, and answers the rest: the slug and its context.
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

/// Asserts that an answer is this refusal, and answers its transaction id and its checks.
#[track_caller]
fn told(answer: Answer, expected: &Refusal) -> (String, Value) {
    let mut body = context_of(answer, expected.status, expected.slug);
    let transaction = take(&mut body, "transaction_id").as_str().unwrap().to_owned();
    assert!(uuid::Uuid::parse_str(&transaction).is_ok(), "{transaction}");
    let mut decision = take(&mut body, "decision");
    assert!(take(&mut decision, "latency_ms").is_u64());
    let checks = take(&mut decision, "checks");
    assert_eq!((decision, body), (expected.decision.clone(), expected.context.clone()));
    (transaction, checks)
}

/// Asserts that the checks are complete, in order, and first failed where they should.
#[track_caller]
fn assert_checks(checks: &Value, first_failed: &Value) {
    let checks = checks.as_array().unwrap();
    let names: Vec<&str> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(names, CHECKS);
    assert_eq!(checks.iter().find(|check| check["passed"] == false), Some(first_failed));
}

/// Asserts what the preflight says of a body, and that it left nothing.
async fn foresees(world: &World, agent: &TestAgent, body: &Value, expected: &Refusal) -> Value {
    let before = Before::of(world, agent).await;
    let foreseen = world.check(agent, body).await.ok();
    before.still_holds(world, agent, "a preflight").await;
    let result = expected.decision["result"].as_str().unwrap();
    let amount = body["payment_requirement"]["accepts"][0]["amount"]
        .as_str()
        .unwrap()
        .parse::<u64>()
        .unwrap();
    let told = json!({
        "check": true,
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
    assert_eq!(foreseen, told);
    assert_checks(&foreseen["checks"], &expected.failed);
    foreseen["checks"].clone()
}

/// Asserts that a call is blocked, as its preflight foresees: nothing moves, and one row of decisions says why.
async fn blocks(world: &World, agent: &TestAgent, body: &Value, expected: &Refusal) {
    let foreseen = foresees(world, agent, body, expected).await;
    let Before { rows, decisions } = Before::of(world, agent).await;
    let (transaction, checks) = told(world.authorize(agent, body).await, expected);
    assert_eq!(checks, foreseen, "authorize judges as the preflight does");
    assert_eq!(world.rows().await.changes_since(&rows), NOTHING);
    recorded(world, agent, &decisions, &transaction, expected).await;
}

/// Asserts that exactly one decision was added, and that it is this refusal's.
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

/// Asserts that an answer is this error, with exactly this context, and that nothing whatever moved; its message.
async fn nothing_moves(
    world: &World,
    agent: &TestAgent,
    call: impl Future<Output = Answer>,
    expected: (u16, &str, Value),
) -> Value {
    let before = Before::of(world, agent).await;
    let (status, slug, context) = expected;
    let answer = call.await;
    let message = answer.body["message"].clone();
    assert_eq!(context_of(answer, status, slug), context);
    before.still_holds(world, agent, slug).await;
    message
}

/// What an authorize and its preflight say when there is nothing against a body.
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
async fn a_call_without_a_valid_key_is_unauthorized_and_learns_nothing() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;
    let settled = world.authorize(&agent, &body_of(world.offer(5_000))).await.ok();
    let (settlement, id) = (settled["settlement_id"].as_str().unwrap(), agent.id);
    let body = body_of(world.offer(5_000));
    let routes = [
        (Method::POST, "/x402/check".to_owned(), Some(&body)),
        (Method::POST, "/x402/authorize".to_owned(), Some(&body)),
        (
            Method::POST,
            format!("/x402/settlements/{settlement}/complete"),
            Some(&body),
        ),
        (Method::GET, format!("/x402/settlements/{settlement}"), None),
        (Method::GET, format!("/agents/{id}/settlements"), None),
        (Method::GET, format!("/approvals/{settlement}"), None),
        (Method::GET, "/mcp/agents/me".to_owned(), None),
        (Method::GET, format!("/mcp/agents/{id}/services"), None),
        (Method::GET, format!("/agents/{id}/services/lab-search/policy"), None),
    ];
    let refused = async |header: Option<&str>, slug: &str| {
        let mut messages = Vec::new();
        for (method, path, body) in &routes {
            let mut request = world
                .http
                .request(method.clone(), format!("{}{path}", world.stack.base_url));
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let call = async {
                let answer = World::send(request).await;
                assert_eq!(
                    (answer.status, &answer.headers["www-authenticate"]),
                    (401, &HeaderValue::from_static("Bearer"))
                );
                answer
            };
            messages.push(nothing_moves(&world, &agent, call, (401, slug, json!({}))).await);
        }
        messages.dedup();
        assert_eq!(messages.len(), 1, "{header:?}: no route tells more than another");
        messages.remove(0)
    };

    let (public, secret) = agent.key.split_once(':').unwrap();
    let other_secret = other.key.split_once(':').unwrap().1;
    let unknown_key = format!("{}0000000000000000:{secret}", &public[.."gak_pub_".len() + 32]);
    let unknown_agent = format!("gak_pub_{}:{secret}", "0".repeat(48));
    let missing = refused(None, "invalid_agent_key").await;
    for key in [
        &format!("{public}:{other_secret}"),
        &unknown_key,
        &unknown_agent,
        "gak_pub_x:gak_sec_y",
    ] {
        assert_eq!(
            refused(Some(&format!("Bearer {key}")), "invalid_agent_key").await,
            missing,
            "all alike"
        );
    }
    for header in ["", "Bearer", "Bearer x", &agent.key, &format!("Basic {}", agent.key)] {
        refused(Some(header), "invalid_authorization_header").await;
    }

    // A rotated key works until the end of its overlap and not at that instant; a revoked one stops at once.
    let end = world.now().after(Duration::from_secs_u32(600));
    world.edit(&agent, |agent| agent.keys[0].ends_at = Some(end)).await;
    world.set_clock(Timestamp::from_micros(end.micros() - 1).unwrap());
    world.get(&agent, "/mcp/agents/me").await.ok();
    world.set_clock(end);
    refused(Some(&format!("Bearer {}", agent.key)), "invalid_agent_key").await;
    world.edit(&agent, |agent| agent.keys[0].ends_at = None).await;
    world.get(&agent, "/mcp/agents/me").await.ok();
    let now = world.now();
    world.edit(&agent, |agent| agent.keys[0].ends_at = Some(now)).await;
    refused(Some(&format!("Bearer {}", agent.key)), "invalid_agent_key").await;

    assert_eq!(
        world
            .http
            .get(format!("{}/services", world.stack.base_url))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_field_is_named_and_a_wrong_one_described() {
    let world = World::start().await;
    let agent = free_agent(&world, &["lab-search"], vec![]).await;
    world
        .enable(
            &agent,
            "lab-scrape",
            policy(|policy| policy.allowed_domains = domains(&["example.com"])),
        )
        .await;
    let authorize = body_of(world.offer(5_000));
    let check = with(&authorize, json!({"idempotency_key": null, "replay_key": fresh_key()}));

    for (path, body, last) in [
        ("/x402/authorize", &authorize, "idempotency_key"),
        ("/x402/check", &check, "replay_key"),
    ] {
        // The first that is missing is named, in the order of the table, whatever else is wrong.
        let names = ["payment_requirement", "max_payment_units", "original_request", last];
        for (index, name) in names.into_iter().enumerate() {
            let (mut alone, mut and_all_after, mut null) = (body.clone(), body.clone(), body.clone());
            let mut problems = vec![json!({"path": "/approvalId", "message": "is not a field of this request"})];
            take(&mut alone, name);
            null[name] = Value::Null;
            for name in &names[index..] {
                take(&mut and_all_after, name);
                problems.push(json!({"path": format!("/{name}"), "message": "is required"}));
            }
            and_all_after["approvalId"] = json!(7);
            problems.sort_by_key(|problem| problem["path"].to_string());
            let nothing_more = || json!({});
            let rows = [
                (alone, nothing_more()),
                (null, nothing_more()),
                (and_all_after, json!({"details": problems})),
            ];
            for (body, context) in rows {
                let expected = (400, &*format!("{name}_required"), context);
                nothing_moves(&world, &agent, world.post(&agent, path, &body), expected).await;
            }
        }
        // A scrape has to say what it is pointed at, once not everything is allowed.
        let aimless = with(body, json!({"service_id": "lab-scrape"}));
        nothing_moves(
            &world,
            &agent,
            world.post(&agent, path, &aimless),
            (400, "target_url_required", json!({})),
        )
        .await;
        let empty = with(&aimless, json!({"metadata": {}}));
        nothing_moves(
            &world,
            &agent,
            world.post(&agent, path, &empty),
            (400, "target_url_required", json!({})),
        )
        .await;

        let wrong = with(
            body,
            json!({"max_payment_units": -1, "operation_id": "search", "approvalId": fresh_key()}),
        );
        let details = json!([
            {"path": "/approvalId", "message": "is not a field of this request"},
            {"path": "/max_payment_units", "message": "must be a whole number of micro-units from 0 to 9007199254740991"},
            {"path": "/operation_id", "message": "must be an operation slug of the form `<domain>.<action>`"},
        ]);
        let expected = (400, "invalid_request", json!({"details": details}));
        nothing_moves(&world, &agent, world.post(&agent, path, &wrong), expected).await;

        let another = with(
            body,
            json!({
                "operation_id": "web.crawl",
                "original_request": {"method": "GET", "url": format!("{}/search?q=x", world.stack.providers.provider_url)},
            }),
        );
        let message = "names another operation than the one that `original_request` calls";
        let details = json!([{"path": "/operation_id", "message": message}]);
        let expected = (400, "invalid_request", json!({"details": details}));
        nothing_moves(&world, &agent, world.post(&agent, path, &another), expected).await;

        let large = with(
            body,
            json!({"original_request": {"method": "GET", "url": "http://x.test/", "x": "x".repeat(65_536)}}),
        );
        let expected = (413, "request_too_large", json!({"limit_bytes": 65_536}));
        nothing_moves(&world, &agent, world.post(&agent, path, &large), expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_out_of_scope_is_forbidden() {
    let world = World::start().await;
    let agent = free_agent(&world, &["lab-search", "lab-reports", "lab-scrape"], vec![]).await;
    let search = body_for(&world, "lab-search", "web.search", 5_000).await;
    let not_enabled = |service: &str| Refusal {
        status: 403,
        slug: "service_not_enabled",
        context: json!({"code": "SERVICE_NOT_ENABLED", "service_id": service}),
        decision: decision("block", "service_not_enabled", "service_enabled"),
        failed: failed("service_enabled"),
    };

    // Never enabled, by slug, by UUID and by the address that it is called at; then disabled.
    let weather = body_for(&world, "lab-weather", "weather.current", 5_000).await;
    let id = world.service("lab-weather").await.id.to_string();
    for named in [json!("lab-weather"), json!(id), Value::Null] {
        blocks(
            &world,
            &agent,
            &with(&weather, json!({"service_id": named})),
            &not_enabled("lab-weather"),
        )
        .await;
    }
    world
        .put_policy(&agent, "lab-search", false, SpendPolicy::permissive())
        .await;
    blocks(&world, &agent, &search, &not_enabled("lab-search")).await;
    world.enable(&agent, "lab-search", SpendPolicy::permissive()).await;
    would_pay(&world, &agent, &search).await;

    // An operation that is in no list, or that nobody knows.
    let operation = |operation: Value, enabled: Value| Refusal {
        status: 403,
        slug: "operation_not_enabled_for_agent",
        context: json!({"operation_id": operation, "enabled_operations": enabled}),
        decision: decision("block", "operation_not_enabled_for_agent", "enabled_operations"),
        failed: failed("enabled_operations"),
    };
    world
        .enable(
            &agent,
            "lab-reports",
            policy(|policy| policy.enabled_operations = operations(&["report.short"])),
        )
        .await;
    let premium = body_for(&world, "lab-reports", "report.premium", dollars(12)).await;
    let expected = operation(json!("report.premium"), json!(["report.short"]));
    blocks(&world, &agent, &premium, &expected).await;
    blocks(
        &world,
        &agent,
        &with(&premium, json!({"operation_id": null})),
        &expected,
    )
    .await;
    blocks(
        &world,
        &agent,
        &with(&premium, json!({"operation_id": null, "service_id": null})),
        &expected,
    )
    .await;
    let elsewhere = json!({"method": "GET", "url": "https://provider.example/no/where"});
    let nameless = with(&premium, json!({"operation_id": null, "original_request": elsewhere}));
    blocks(
        &world,
        &agent,
        &nameless,
        &operation(Value::Null, json!(["report.short"])),
    )
    .await;
    let unheard = with(&nameless, json!({"operation_id": "report.secret"}));
    blocks(
        &world,
        &agent,
        &unheard,
        &operation(json!("report.secret"), json!(["report.short"])),
    )
    .await;
    world
        .enable(
            &agent,
            "lab-reports",
            policy(|policy| policy.enabled_operations = operations(&[])),
        )
        .await;
    blocks(&world, &agent, &premium, &operation(json!("report.premium"), json!([]))).await;
    world.enable(&agent, "lab-reports", SpendPolicy::permissive()).await;
    blocks(
        &world,
        &agent,
        &unheard,
        &operation(json!("report.secret"), Value::Null),
    )
    .await;
    would_pay(&world, &agent, &premium).await;

    // A host that the allowlist does not know.
    let allowed = ["example.com", "*.docs.example.org"];
    world
        .enable(
            &agent,
            "lab-scrape",
            policy(|policy| policy.allowed_domains = domains(&allowed)),
        )
        .await;
    let scrape = body_for(&world, "lab-scrape", "web.scrape", 20_000).await;
    for (target, hostname) in [
        ("https://evil.test/", "evil.test"),
        (
            "https://user@Evil-Example.COM.:8443/?https://example.com",
            "evil-example.com",
        ),
        ("https://docs.example.org/", "docs.example.org"),
        ("http://127.0.0.1/", "127.0.0.1"),
    ] {
        let expected = Refusal {
            status: 403,
            slug: "domain_not_allowed",
            context: json!({"hostname": hostname, "allowed_domains": allowed}),
            decision: decision("block", "domain_not_allowed", "allowed_domains"),
            failed: failed("allowed_domains"),
        };
        blocks(
            &world,
            &agent,
            &with(&scrape, json!({"metadata": {"target_url": target}})),
            &expected,
        )
        .await;
    }
    would_pay(
        &world,
        &agent,
        &with(&scrape, json!({"metadata": {"target_url": "https://a.b.example.com/"}})),
    )
    .await;

    // A frozen agent pays nobody, and can still be told who it is.
    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    let frozen = policy_blocked("agent_frozen", "agent_frozen", failed("agent_active"));
    blocks(&world, &agent, &search, &frozen).await;
    world.get(&agent, "/mcp/agents/me").await.ok();
    world.edit(&agent, |agent| agent.status = AgentStatus::Active).await;
    would_pay(&world, &agent, &search).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_above_what_was_said_or_what_there_is_is_refused() {
    let world = World::start().await;
    let agent = free_agent(&world, &["lab-search"], vec![]).await;
    let at = |units: u64| body_of(world.offer(units));

    let expected = Refusal {
        status: 402,
        slug: "amount_exceeds_max",
        context: json!({"amount_units": 5_000, "max_payment_units": 4_999}),
        decision: decision("block", "amount_exceeds_max", "max_payment_units"),
        failed: over("max_payment_units", 4_999, 0),
    };
    blocks(
        &world,
        &agent,
        &with(&at(5_000), json!({"max_payment_units": 4_999})),
        &expected,
    )
    .await;
    would_pay(&world, &agent, &with(&at(5_000), json!({"max_payment_units": 5_000}))).await;

    // The column's default, a dollar a call.
    world.enable(&agent, "lab-search", SpendPolicy::column_defaults()).await;
    let expected = Refusal {
        status: 402,
        slug: "amount_exceeds_per_call_limit",
        context: json!({"amount_units": 1_000_001, "max_per_call_units": 1_000_000}),
        decision: decision("block", "amount_exceeds_per_call_limit", "max_per_call_units"),
        failed: over("max_per_call_units", 1_000_000, 0),
    };
    blocks(&world, &agent, &at(1_000_001), &expected).await;
    would_pay(&world, &agent, &at(1_000_000)).await;

    // Nobody can redirect money or ask more than the catalog says.
    world.enable(&agent, "lab-search", SpendPolicy::permissive()).await;
    let search = body_for(&world, "lab-search", "web.search", 100_000).await;
    would_pay(&world, &agent, &search).await;
    let redirected = |pay_to: &str| {
        let offered = Offered {
            units: 5_000,
            pay_to: pay_to.to_owned(),
            timeout: 60,
        };
        json!({"payment_requirement": offer_v2(&offered)})
    };
    let vendor = |reason: &str| policy_blocked(reason, "vendor_allowlist", failed("vendor_allowlist"));
    let stranger = vendor("vendor_allowlist:pay_to_not_in_catalog");
    blocks(&world, &agent, &with(&search, redirected(STRANGER)), &stranger).await;
    blocks(&world, &agent, &with(&at(5_000), redirected(STRANGER)), &stranger).await;
    let own = vendor("vendor_allowlist:pay_to_is_own_wallet");
    blocks(&world, &agent, &with(&search, redirected(&agent.wallet)), &own).await;
    let dear = with(&search, json!({"payment_requirement": world.offer(100_001)}));
    blocks(
        &world,
        &agent,
        &dear,
        &vendor("vendor_allowlist:price_above_catalog_maximum"),
    )
    .await;

    // What the wallet holds, to the unit, and in decimals.
    let poor = world.poor_agent(vec![]).await;
    world.enable(&poor, "lab-search", SpendPolicy::permissive()).await;
    let short = |balance: u64, required: u64, decimals: [&str; 2]| {
        let [balance_usdc, required_usdc] = decimals;
        let wallet = &poor.wallet;
        let expected = Refusal {
            status: 402,
            slug: "insufficient_usdc_balance",
            context: json!({"balance_usdc": balance_usdc, "required_usdc": required_usdc, "wallet_address": wallet}),
            decision: decision("block", "insufficient_usdc_balance", "usdc_balance"),
            failed: over("usdc_balance", balance, 0),
        };
        (at(required), expected)
    };
    for (funds, required, decimals) in [
        (0, 1, ["0", "0.000001"]),
        (250_000, 1_500_000, ["0.25", "1.5"]),
        (750_000, 1_000_001, ["1", "1.000001"]),
    ] {
        world.fund(&poor, funds).await;
        let balance = world
            .stack
            .chain
            .call("eth_call", balance_of(&poor.wallet))
            .await
            .unwrap();
        let balance = u64::from_str_radix(balance.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let (body, expected) = short(balance, required, decimals);
        blocks(&world, &poor, &body, &expected).await;
    }
    would_pay(&world, &poor, &at(1_000_000)).await;
}

fn balance_of(wallet: &str) -> Value {
    let data = format!("0x70a08231{:0>64}", wallet.trim_start_matches("0x"));
    json!([{"to": NETWORK.token().address.to_string(), "data": data}, "latest"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_blocks_by_category_by_vendor_and_by_budget() {
    let world = World::still().await;
    let services = ["lab-search", "lab-weather"];
    let body = body_of(world.offer(5_000));

    let categories = vec![Category::Finance, Category::Search];
    let agent = free_agent(&world, &services, vec![rule(RuleKind::CategoryBlock { categories })]).await;
    let expected = policy_blocked("category_block:search", "category_block", failed("category_block"));
    blocks(&world, &agent, &body, &expected).await;
    would_pay(&world, &agent, &with(&body, json!({"service_id": "lab-weather"}))).await;

    // Every allowlist has to name the vendor, by its slug or by its wallet; an empty one names nobody.
    let wallet = world.stack.providers.pay_to.parse().unwrap();
    let allow = |vendors: Vec<Vendor>| rule(RuleKind::VendorAllowlist { vendors });
    let expected = policy_blocked(
        "vendor_allowlist:lab-search",
        "vendor_allowlist",
        failed("vendor_allowlist"),
    );
    let lists = [
        vec![allow(vec![])],
        vec![allow(vec![Vendor::Service(slug("lab-weather"))])],
        vec![
            allow(vec![Vendor::Wallet(wallet)]),
            allow(vec![Vendor::Wallet(STRANGER.parse().unwrap())]),
        ],
    ];
    for rules in lists {
        let agent = free_agent(&world, &services, rules).await;
        blocks(&world, &agent, &body, &expected).await;
    }
    let rules = vec![
        allow(vec![Vendor::Service(slug("lab-search"))]),
        allow(vec![Vendor::Wallet(wallet)]),
    ];
    would_pay(&world, &free_agent(&world, &services, rules).await, &body).await;

    // A budget holds over all services, and says when the call fits.
    let budget = RuleKind::BudgetLimit {
        limit: units(12_000),
        window: Duration::from_secs_u32(3_600),
    };
    let budget = rule(budget);
    let agent = free_agent(&world, &services, vec![budget.clone()]).await;
    let budget_blocked = |used: u64, retry_at: Value| {
        let reason = format!("budget_limit:{}", budget.id);
        let mut expected = policy_blocked(&reason, "budget_limit", over("budget_limit", 12_000, used));
        expected.decision["retry_at"] = retry_at;
        expected
    };
    blocks(
        &world,
        &agent,
        &body_of(world.offer(12_001)),
        &budget_blocked(0, Value::Null),
    )
    .await;
    let first = world.now();
    world.authorize(&agent, &body).await.ok();
    world.set_clock(first.after(Duration::from_secs_u32(60)));
    let weather = with(
        &body,
        json!({"service_id": "lab-weather", "idempotency_key": fresh_key()}),
    );
    world.authorize(&agent, &weather).await.ok();
    let free = first.after(Duration::from_secs_u32(3_600));
    let third = body_of(world.offer(5_000));
    blocks(&world, &agent, &third, &budget_blocked(10_000, json!(free.to_string()))).await;
    would_pay(&world, &agent, &body_of(world.offer(2_000))).await;
    world.set_clock(Timestamp::from_micros(free.micros() - 1).unwrap());
    blocks(&world, &agent, &third, &budget_blocked(10_000, json!(free.to_string()))).await;
    world.set_clock(free);
    world.authorize(&agent, &third).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rolling_day_is_a_limit_with_an_end() {
    let world = World::still().await;
    let agent = world
        .agent(policy(|policy| policy.max_per_day = units(12_000)), vec![])
        .await;
    let daily = |spent: u64, amount: u64, retry_at: Value| Refusal {
        status: 402,
        slug: "daily_spend_limit_exceeded",
        context: json!({
            "spend_today": spent,
            "amount_units": amount,
            "max_per_day_units": 12_000,
            "retry_at": retry_at,
        }),
        decision: decision("block", "daily_spend_limit_exceeded", "max_per_day_units"),
        failed: over("max_per_day_units", 12_000, spent),
    };
    let at = |units: u64| body_of(world.offer(units));
    blocks(&world, &agent, &at(12_001), &daily(0, 12_001, Value::Null)).await;
    let first = world.now();
    world.authorize(&agent, &at(5_000)).await.ok();
    let second = first.after(Duration::from_secs_u32(7_200));
    world.set_clock(second);
    world.authorize(&agent, &at(5_000)).await.ok();

    let free = first.after(Duration::DAY);
    blocks(
        &world,
        &agent,
        &at(2_001),
        &daily(10_000, 2_001, json!(free.to_string())),
    )
    .await;
    let both = second.after(Duration::DAY);
    blocks(
        &world,
        &agent,
        &at(7_001),
        &daily(10_000, 7_001, json!(both.to_string())),
    )
    .await;
    blocks(&world, &agent, &at(12_001), &daily(10_000, 12_001, Value::Null)).await;
    would_pay(&world, &agent, &at(2_000)).await;

    world.set_clock(Timestamp::from_micros(free.micros() - 1).unwrap());
    blocks(
        &world,
        &agent,
        &at(7_000),
        &daily(10_000, 7_000, json!(free.to_string())),
    )
    .await;
    world.set_clock(free);
    blocks(
        &world,
        &agent,
        &at(7_001),
        &daily(5_000, 7_001, json!(both.to_string())),
    )
    .await;
    world.authorize(&agent, &at(7_000)).await.ok();
    blocks(&world, &agent, &at(1), &daily(12_000, 1, json!(both.to_string()))).await;
}

/// Asserts that a call escalates, as its preflight foresees: one approval, one key bound to it, one decision, no money.
/// Answers the approval's id.
///
/// `above` is the amount that asks: the policy's threshold, or a rule's under a permissive policy.
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

    // The same call again is the same question, told the same, and adds nothing.
    let before = Before::of(world, agent).await;
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
async fn a_person_is_asked_above_a_threshold_or_by_a_rule() {
    let world = World::start().await;
    let body = body_of(world.offer(5_000));
    let agent = world
        .agent(policy(|policy| policy.require_approval_above = units(4_999)), vec![])
        .await;
    let approval = escalates(&world, &agent, &body, 4_999, "require_approval_above_units").await;
    would_pay(&world, &agent, &body_of(world.offer(4_999))).await;

    // The same request under another key joins the question.
    let (mut footprint, before) = (world.footprint().await, Before::of(&world, &agent).await);
    let joined = with(&body, json!({"idempotency_key": fresh_key()}));
    let joined = world.authorize(&agent, &joined).await.refused(402, "approval_required");
    assert_eq!(joined["approval_id"], json!(approval));
    footprint.keys += 1;
    assert_eq!(world.footprint().await, footprint);
    let decided = decisions(&world, &agent).await;
    assert!(decided.contains_key(joined["transaction_id"].as_str().unwrap()));
    assert_eq!(decided.len(), before.decisions.len() + 1, "one row for each escalation");

    let ask = |services: Option<&str>, categories: Option<Category>, above: Option<u64>| {
        rule(RuleKind::ApprovalRequired {
            services: services.map(|service| vec![slug(service)]),
            categories: categories.map(|category| vec![category]),
            above: above.map(units),
        })
    };
    for (asking, threshold) in [
        (ask(None, None, None), 0),
        (ask(Some("lab-search"), None, None), 0),
        (ask(None, Some(Category::Search), None), 0),
        (ask(None, None, Some(4_999)), 4_999),
        (ask(Some("lab-search"), Some(Category::Search), Some(4_000)), 4_000),
    ] {
        let agent = world.agent(SpendPolicy::permissive(), vec![asking]).await;
        escalates(&world, &agent, &body, threshold, "approval_required").await;
    }
    for idle in [
        ask(Some("lab-weather"), None, None),
        ask(None, Some(Category::Data), None),
        ask(None, None, Some(5_000)),
        ask(Some("lab-search"), Some(Category::Data), Some(1)),
    ] {
        let agent = world.agent(SpendPolicy::permissive(), vec![idle]).await;
        would_pay(&world, &agent, &body).await;
    }
}

/// Asserts that a call that carries an approval is blocked for the approval's sake.
async fn void(world: &World, agent: &TestAgent, body: &Value, reason: &str) {
    let Before { rows, decisions } = Before::of(world, agent).await;
    let expected = policy_blocked(reason, "approval_required", Value::Null);
    let (transaction, checks) = told(world.authorize(agent, body).await, &expected);
    assert_eq!(checks, json!([]), "the policy was not asked");
    assert_eq!(world.rows().await.changes_since(&rows), NOTHING);
    recorded(world, agent, &decisions, &transaction, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_used_once_in_time_and_for_its_own_request() {
    let world = World::still().await;
    let start = world.now();
    let agent = world
        .agent(policy(|policy| policy.require_approval_above = units(4_999)), vec![])
        .await;
    let other = world
        .agent(policy(|policy| policy.require_approval_above = units(4_999)), vec![])
        .await;
    let ask = async |agent: &TestAgent, amount: u64| {
        let body = body_of(world.offer(amount));
        let approval = escalates(&world, agent, &body, 4_999, "require_approval_above_units").await;
        let carrying = with(&body, json!({"approval_id": approval}));
        (body, carrying, approval)
    };

    // Not decided yet: the same answer, with the approval or without.
    let (body, carrying, approval) = ask(&agent, 5_000).await;
    for body in [&body, &carrying] {
        let before = Before::of(&world, &agent).await;
        let again = world.authorize(&agent, body).await.refused(402, "approval_required");
        assert_eq!(again["approval_id"], json!(approval));
        before.still_holds(&world, &agent, "all of that").await;
    }

    // Approved, and still the request has to carry it, unchanged, and nobody else may.
    world.resolve(&approval, Verdict::Approve).await;
    let waiting = world.authorize(&agent, &body).await.refused(402, "approval_required");
    assert_eq!(waiting["approval_id"], json!(approval));
    let dearer = with(
        &carrying,
        json!({"payment_requirement": world.offer(5_001), "idempotency_key": fresh_key()}),
    );
    void(&world, &agent, &dearer, "approval_request_mismatch").await;
    let moved = json!({"method": "GET", "url": "https://provider.example/y"});
    let moved = with(
        &carrying,
        json!({"original_request": moved, "idempotency_key": fresh_key()}),
    );
    void(&world, &agent, &moved, "approval_request_mismatch").await;
    let missing = (404, "not_found", json!({}));
    nothing_moves(&world, &other, world.authorize(&other, &carrying), missing.clone()).await;
    let unknown = with(
        &carrying,
        json!({"approval_id": fresh_key(), "idempotency_key": fresh_key()}),
    );
    nothing_moves(&world, &agent, world.authorize(&agent, &unknown), missing).await;

    // A freeze wins over a person's yes.
    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    let frozen = world.authorize(&agent, &carrying).await.refused(403, "policy_blocked");
    assert_eq!(frozen["decision"]["reason"], "agent_frozen");
    world.edit(&agent, |agent| agent.status = AgentStatus::Active).await;

    let paid = world.authorize(&agent, &carrying).await.ok();
    for key in [body["idempotency_key"].clone(), json!(fresh_key())] {
        let used = with(&carrying, json!({"idempotency_key": key}));
        let expected = json!({"approval_id": approval, "settlement_id": paid["settlement_id"]});
        nothing_moves(
            &world,
            &agent,
            world.authorize(&agent, &used),
            (409, "idempotent_replay", expected),
        )
        .await;
    }
    let polled = world.get(&agent, &format!("/approvals/{approval}")).await.ok();
    assert_eq!(
        [&polled["status"], &polled["settlement_id"]],
        [&json!("executed"), &paid["settlement_id"]]
    );

    // Rejected: the request and its key stay refused, and only a new key asks anew.
    let (body, carrying, approval) = ask(&agent, 6_000).await;
    world.resolve(&approval, Verdict::Reject).await;
    for body in [&body, &carrying] {
        void(&world, &agent, body, "approval_rejected").await;
    }
    let anew = with(&body, json!({"idempotency_key": fresh_key()}));
    let second = escalates(&world, &agent, &anew, 4_999, "require_approval_above_units").await;
    assert_ne!(second, approval);

    // Out of time, whether a person said yes or nothing.
    let (_, unanswered, _) = ask(&agent, 7_000).await;
    let (_, unused, approval) = ask(&agent, 8_000).await;
    world.resolve(&approval, Verdict::Approve).await;
    let expiry = start.after(Duration::DAY);
    world.set_clock(Timestamp::from_micros(expiry.micros() - 1).unwrap());
    let last = world
        .authorize(&agent, &unanswered)
        .await
        .refused(402, "approval_required");
    assert_eq!(last["approval_id"], unanswered["approval_id"]);
    world.set_clock(expiry);
    for body in [&unanswered, &unused] {
        void(&world, &agent, body, "approval_expired").await;
        let polled = world
            .get(&agent, &format!("/approvals/{}", body["approval_id"].as_str().unwrap()))
            .await
            .ok();
        assert_eq!(polled["status"], "expired");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_and_what_is_somebody_elses_are_alike_not_found() {
    let world = World::start().await;
    let agent = free_agent(&world, &["lab-search", "sundown-feeds"], vec![]).await;
    let other = world
        .agent(policy(|policy| policy.require_approval_above = units(4_999)), vec![])
        .await;
    let body = body_of(world.offer(5_000));

    // Unknown, not inferable, disabled by the operator.
    let nowhere = json!({"method": "GET", "url": "https://nowhere.example/x"});
    let unfindable = [
        with(&body, json!({"service_id": "no-such-service"})),
        with(&body, json!({"service_id": fresh_key()})),
        with(&body, json!({"service_id": null, "original_request": nowhere})),
        with(
            &body,
            json!({"service_id": null, "operation_id": "web.search", "original_request": nowhere}),
        ),
        with(&body, json!({"service_id": "sundown-feeds"})),
        with(
            &body,
            json!({"service_id": world.service("sundown-feeds").await.id.to_string()}),
        ),
        with(
            &body,
            json!({"service_id": null, "original_request": {"method": "GET", "url": "https://api.sundown-feeds.example/v1/feeds"}}),
        ),
    ];
    for body in &unfindable {
        let expected = (404, "service_not_found", json!({}));
        nothing_moves(&world, &agent, world.authorize(&agent, body), expected.clone()).await;
        nothing_moves(&world, &agent, world.check(&agent, body), expected).await;
    }
    for path in ["/services/no-such-service", &format!("/services/{}", fresh_key())] {
        let answer = world.call(Method::GET, path, None, None).await;
        assert_eq!(context_of(answer, 404, "service_not_found"), json!({}));
    }

    // Another agent's and nobody's, word for word the same.
    let settlement = world.authorize(&other, &body_of(world.offer(1_000))).await.ok()["settlement_id"].clone();
    let approval = world.authorize(&other, &body).await.refused(402, "approval_required")["approval_id"].clone();
    let (settlement, approval) = (settlement.as_str().unwrap(), approval.as_str().unwrap());
    for (of, path) in [
        (&other, format!("/x402/settlements/{settlement}")),
        (&other, format!("/approvals/{approval}")),
    ] {
        world.get(of, &path).await.ok();
    }
    let mut messages = Vec::new();
    let (nobody, foreign) = (fresh_key(), other.id.to_string());
    let own = agent.id;
    for path in [
        format!("/x402/settlements/{settlement}"),
        format!("/x402/settlements/{nobody}"),
        format!("/approvals/{approval}"),
        format!("/approvals/{nobody}"),
        format!("/approvals/{settlement}"),
        format!("/agents/{foreign}/settlements"),
        format!("/agents/{nobody}/settlements"),
        format!("/mcp/agents/{foreign}/services"),
        format!("/mcp/agents/{nobody}/services"),
        format!("/agents/{foreign}/services/lab-search/policy"),
        format!("/agents/{own}/services/lab-weather/policy"),
        format!("/agents/{own}/services/no-such-service/policy"),
        format!("/agents/{own}/policies"),
        "/nowhere".to_owned(),
        "/".to_owned(),
        "/x402/authorize".to_owned(),
        "/x402/check".to_owned(),
        format!("/x402/settlements/{settlement}/complete"),
    ] {
        let call = world.get(&agent, &path);
        messages.push(nothing_moves(&world, &agent, call, (404, "not_found", json!({}))).await);
    }
    let proof = json!({"payment_response_header": "e30=", "tx_hash": format!("0x{}", "1".repeat(64))});
    for id in [settlement, &nobody] {
        let call = world.complete(&agent, id, &proof);
        messages.push(nothing_moves(&world, &agent, call, (404, "not_found", json!({}))).await);
    }
    for (method, path) in [
        (Method::POST, "/services"),
        (Method::DELETE, "/services/lab-search"),
        (Method::PUT, "/x402/authorize"),
        (Method::PATCH, "/x402/check"),
        (Method::POST, "/mcp/agents/me"),
        (Method::OPTIONS, "/x402/authorize"),
        (Method::POST, &format!("/agents/{own}/settlements")),
    ] {
        let call = world.call(method, path, Some(&agent.key), Some(&body));
        messages.push(nothing_moves(&world, &agent, call, (404, "not_found", json!({}))).await);
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "one answer for all of them: {messages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_belongs_to_one_request() {
    const REUSED: &str = "idempotency_key_reused_for_different_request";
    let world = World::still().await;
    let agent = world
        .agent(policy(|policy| policy.require_approval_above = units(10_000)), vec![])
        .await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;

    // After an allow, the answer names the settlement; today's catalog and policy are not asked.
    let body = body_of(world.offer(5_000));
    let paid = world.authorize(&agent, &body).await.ok();
    let changes = [
        json!({"payment_requirement": world.offer(5_001)}),
        json!({"max_payment_units": 5_000}),
        json!({"original_request": {"method": "POST", "url": "https://provider.example/x"}}),
        json!({"original_request": {"method": "GET", "url": "https://provider.example/x", "body_hash": "sha256:00"}}),
        json!({"metadata": {"target_url": "https://example.com/"}}),
        json!({"operation_id": "web.search"}),
        json!({"service_id": null}),
        json!({"service_id": "no-such-service"}),
    ];
    let context = json!({"settlement_id": paid["settlement_id"]});
    for change in &changes {
        let changed = with(&body, change.clone());
        nothing_moves(
            &world,
            &agent,
            world.authorize(&agent, &changed),
            (409, REUSED, context.clone()),
        )
        .await;
    }
    world
        .put_policy(&agent, "lab-search", false, SpendPolicy::permissive())
        .await;
    nothing_moves(
        &world,
        &agent,
        world.authorize(&agent, &with(&body, changes[0].clone())),
        (409, REUSED, context),
    )
    .await;
    let replay = world.authorize(&agent, &body).await;
    assert_eq!(replay.headers["idempotent-replayed"], "true");
    assert_eq!(replay.ok(), paid, "and the same request is told the same");
    world
        .enable(
            &agent,
            "lab-search",
            policy(|policy| policy.require_approval_above = units(10_000)),
        )
        .await;
    world.authorize(&other, &body).await.ok();

    // After an escalation there is no settlement to name.
    let asked = body_of(world.offer(10_001));
    world.authorize(&agent, &asked).await.refused(402, "approval_required");
    for change in &changes {
        let changed = with(&asked, change.clone());
        let expected = (409, REUSED, json!({"settlement_id": null}));
        nothing_moves(&world, &agent, world.authorize(&agent, &changed), expected).await;
    }

    // A denial, and what failed before a decision, leave the key free.
    let denied = with(&body_of(world.offer(5_000)), json!({"max_payment_units": 1}));
    world
        .authorize(&agent, &denied)
        .await
        .refused(402, "amount_exceeds_max");
    world
        .authorize(&agent, &with(&denied, json!({"service_id": "nobody"})))
        .await
        .refused(404, "service_not_found");
    world
        .authorize(&agent, &with(&denied, json!({"max_payment_units": "1"})))
        .await
        .refused(400, "invalid_request");
    world
        .authorize(&agent, &with(&denied, json!({"max_payment_units": 5_000})))
        .await
        .ok();

    // The preflight's key is a thing of its own, and lives a day.
    let preflight = with(
        &body,
        json!({"idempotency_key": null, "replay_key": body["idempotency_key"]}),
    );
    let check = async |body: &Value| world.post(&agent, "/x402/check", body).await;
    assert_eq!(check(&preflight).await.ok()["would_authorize"], true);
    for change in &changes[..5] {
        let changed = with(&preflight, change.clone());
        nothing_moves(
            &world,
            &agent,
            check(&changed),
            (409, REUSED, json!({"settlement_id": null})),
        )
        .await;
    }
    world
        .put_policy(&agent, "lab-search", false, SpendPolicy::permissive())
        .await;
    assert_eq!(
        check(&preflight).await.ok()["reason"],
        "service_not_enabled",
        "judged anew"
    );
    world.set_clock(world.now().after(Duration::DAY));
    check(&with(&preflight, changes[0].clone())).await.ok();
    nothing_moves(
        &world,
        &agent,
        check(&preflight),
        (409, REUSED, json!({"settlement_id": null})),
    )
    .await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_the_chain_does_not_show_is_not_confirmed() {
    let environment = [("FINALITY_PATIENCE_SECONDS", "0")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let world = World::with(Options {
        environment: environment.into(),
        ..Options::default()
    })
    .await;
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

    // No proof at all; a proof that names no transaction.
    let hash = format!("0x{}", "ab".repeat(32));
    for body in [
        json!({}),
        json!({"payment_response_header": null}),
        json!({"tx_hash": hash}),
        json!({"payment_response_header": "", "tx_hash": hash}),
        json!({"payment_response_header": " ", "tx_hash": hash}),
        json!({"payment_response_header": {}, "tx_hash": hash}),
        json!({"payment_response_header": {"payment-response": ""}, "tx_hash": hash}),
        json!({"payment_response_header": {"payment-response": [""]}, "tx_hash": hash}),
    ] {
        refuses(id(0), body, (422, "provider_proof_required", json!({}))).await;
    }
    for header in [
        json!("e30="),
        json!("no base64!"),
        json!({"x-other": "e30="}),
        proof_of("")["payment_response_header"].clone(),
    ] {
        let body = json!({"payment_response_header": header});
        refuses(id(0), body, (422, "settlement_transaction_hash_required", json!({}))).await;
    }

    // Nothing is mined under that hash: come back. The answer says when.
    let pending = |reason: &str| {
        (
            503,
            "onchain_settlement_not_verified",
            json!({"reason": reason, "retryable": true}),
        )
    };
    refuses(id(0), proof_of(&hash), pending("transaction_not_mined")).await;
    assert_eq!(
        world.complete(&agent, id(0), &proof_of(&hash)).await.headers["retry-after"],
        "2"
    );

    // A transaction that failed, and one that is about something else: final.
    let final_no = |reason: &str| {
        (
            422,
            "onchain_settlement_not_verified",
            json!({"reason": reason, "retryable": false}),
        )
    };
    let reverted = chain.send(token, vec![1, 2, 3, 4]).await.unwrap();
    refuses(id(0), proof_of(&reverted), final_no("transaction_reverted")).await;
    let mint = chain.send(
        token,
        alloy::hex::decode(format!(
            "40c10f19{:0>64}{:064x}",
            STRANGER.trim_start_matches("0x"),
            5_000
        ))
        .unwrap(),
    );
    refuses(
        id(0),
        proof_of(&mint.await.unwrap()),
        final_no("authorization_not_used"),
    )
    .await;

    // Another settlement's payment, equal in all but its nonce, is not this one's, before and after it confirmed its own.
    let first = chain.send(token, transfer_of(&paid[0]).to_vec()).await.unwrap();
    refuses(id(1), proof_of(&first), final_no("authorization_not_used")).await;
    world.complete(&agent, id(0), &proof_of(&first)).await.ok();
    let used = (409, "settlement_transaction_already_used", json!({}));
    refuses(id(1), proof_of(&first), used.clone()).await;
    let other = world.agent(SpendPolicy::permissive(), vec![]).await;
    let theirs = world.authorize(&other, &body_of(world.offer(5_000))).await.ok();
    let theirs = theirs["settlement_id"].as_str().unwrap();
    nothing_moves(
        &world,
        &other,
        world.complete(&other, theirs, &proof_of(&first)),
        used.clone(),
    )
    .await;
    // Of whom it is not told: a settlement that there is not, and somebody else's, come before.
    for unknown in [theirs, &fresh_key()] {
        refuses(unknown, proof_of(&first), (404, "not_found", json!({}))).await;
    }
    // A provider's "no" proves as little as its "yes".
    let mut failing = proof_of(&first);
    failing["tx_hash"] = json!(reverted);
    refuses(id(1), failing, final_no("transaction_reverted")).await;
    let receipt = world.get(&agent, &format!("/x402/settlements/{}", id(1))).await.ok();
    assert_eq!(
        [&receipt["receipt_status"], &receipt["tx_hash"]],
        [&json!("authorized"), &Value::Null]
    );

    // One transaction that makes two payments finalizes one settlement.
    let batch = batch_of(token, vec![transfer_of(&paid[2]), transfer_of(&paid[3])]);
    let both = chain
        .send(world.stack.providers.batch_address.parse().unwrap(), batch)
        .await
        .unwrap();
    world.complete(&agent, id(2), &proof_of(&both)).await.ok();
    refuses(id(3), proof_of(&both), used.clone()).await;
    // Nor is one that has its own confirmed by another's.
    refuses(id(2), proof_of(&first), used).await;
    let again = world.complete(&agent, id(2), &proof_of(&both)).await.ok();
    assert_eq!(
        [&again["receipt_status"], &again["tx_hash"]],
        [&json!("confirmed"), &json!(both)]
    );
    assert!(decisions(&world, &agent).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_cannot_be_asked_delays_a_confirmation_and_stops_no_payment() {
    let environment = [("FINALITY_PATIENCE_SECONDS", "0"), ("FINALITY_CONFIRMATIONS", "1000")];
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
    let pending = |reason: &str| {
        (
            503,
            "onchain_settlement_not_verified",
            json!({"reason": reason, "retryable": true}),
        )
    };
    nothing_moves(&world, &agent, complete(), pending("chain_unavailable")).await;

    // Back again, and not deep enough; then it is.
    node.come_up().await;
    nothing_moves(&world, &agent, complete(), pending("transaction_not_final")).await;
    chain.call("anvil_mine", json!([1_000])).await.unwrap();
    assert_eq!(complete().await.ok()["confirmed_via"], "onchain");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_asks_too_often_waits_for_the_next_minute() {
    let world = World::still_with(Options {
        // More than the local stack's owner needs to make the demo agent.
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
        nothing_moves(
            &world,
            &agent,
            call,
            (429, "too_many_requests", json!({"retry_after": seconds})),
        )
        .await;
    };

    let all_but_three = async || {
        for _ in 0..17 {
            world.get(&agent, "/mcp/agents/me").await.ok();
        }
    };

    // Three calls, whoever makes them and however they end.
    world.set_clock(second(60));
    all_but_three().await;
    world.get(&agent, "/mcp/agents/me").await.ok();
    world
        .call(Method::GET, "/mcp/agents/me", None, None)
        .await
        .refused(401, "invalid_agent_key");
    world
        .post(&agent, "/x402/check", &json!({}))
        .await
        .refused(400, "payment_requirement_required");
    limited(Box::pin(world.get(&agent, "/mcp/agents/me")), 60).await;
    world.set_clock(Timestamp::from_micros(second(77).micros() + 999_999).unwrap());
    limited(Box::pin(world.authorize(&agent, &body_of(world.offer(5_000)))), 43).await;

    // The limit answers before the key, the body and the id are looked at, on every route of agents.
    let id = agent.id;
    for (method, path, body) in [
        (Method::POST, "/x402/check".to_owned(), Some(json!({}))),
        (Method::POST, "/x402/authorize".to_owned(), Some(json!([]))),
        (
            Method::POST,
            format!("/x402/settlements/{}/complete", fresh_key()),
            Some(json!({})),
        ),
        (Method::GET, "/x402/settlements/x".to_owned(), None),
        (Method::GET, format!("/agents/{id}/settlements?limit=0"), None),
        (Method::GET, "/approvals/x".to_owned(), None),
        (Method::GET, "/mcp/agents/x/services".to_owned(), None),
        (Method::GET, format!("/agents/{id}/services/x/policy"), None),
    ] {
        limited(
            Box::pin(world.call(method, &path, Some("gak_pub_x:gak_sec_y"), body.as_ref())),
            43,
        )
        .await;
    }
    // A header's word for an address is nobody's.
    for header in ["x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip"] {
        let request = world
            .http
            .get(format!("{}/mcp/agents/me", world.stack.base_url))
            .bearer_auth(&agent.key);
        limited(Box::pin(World::send(request.header(header, "203.0.113.7"))), 43).await;
    }
    world.call(Method::GET, "/services", None, None).await.ok();
    world
        .call(Method::GET, "/nowhere", None, None)
        .await
        .refused(404, "not_found");
    world.set_clock(Timestamp::from_micros(second(120).micros() - 1).unwrap());
    limited(Box::pin(world.get(&agent, "/mcp/agents/me")), 1).await;

    // The turned away are not charged to the next minute.
    world.set_clock(second(120));
    all_but_three().await;
    for _ in 0..3 {
        world.get(&agent, "/mcp/agents/me").await.ok();
    }
    limited(Box::pin(world.get(&agent, "/mcp/agents/me")), 60).await;
}

/// One obstacle of the ladder: what it is refused with, and how it is taken away.
struct Rung {
    status: u16,
    slug: &'static str,
    reason: &'static str,
    clear: Clear,
}

enum Clear {
    Policy(fn(&mut SpendPolicy)),
    Enable,
    Unfreeze,
    Rules(fn(&RuleKind) -> bool),
    Body(&'static str, Value),
    Fund,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cheapest_and_most_permanent_refusal_comes_first() {
    let world = World::start().await;
    let broken = policy(|policy| {
        policy.max_per_call = units(19_999);
        policy.max_per_day = units(19_998);
        policy.require_approval_above = units(1);
        policy.enabled_operations = operations(&["web.other"]);
        policy.allowed_domains = domains(&["example.com"]);
    });
    let rules = vec![
        rule(RuleKind::ApprovalRequired {
            services: None,
            categories: None,
            above: None,
        }),
        rule(RuleKind::BudgetLimit {
            limit: units(3),
            window: Duration::DAY,
        }),
        rule(RuleKind::VendorAllowlist { vendors: vec![] }),
        rule(RuleKind::CategoryBlock {
            categories: vec![Category::Scrape],
        }),
    ];
    let agent = world.poor_agent(rules).await;
    world.put_policy(&agent, "lab-scrape", false, broken.clone()).await;
    world.edit(&agent, |agent| agent.status = AgentStatus::Frozen).await;
    let mut body = body_for(&world, "lab-scrape", "web.scrape", 20_000).await;
    body["metadata"] = json!({"target_url": "https://evil.test/"});
    body["max_payment_units"] = json!(2);

    let rung = |status, slug, reason, clear| Rung {
        status,
        slug,
        reason,
        clear,
    };
    let kept = |kind: &RuleKind| !matches!(kind, RuleKind::CategoryBlock { .. });
    let rungs = [
        rung(403, "service_not_enabled", "service_not_enabled", Clear::Enable),
        rung(403, "policy_blocked", "agent_frozen", Clear::Unfreeze),
        rung(
            403,
            "operation_not_enabled_for_agent",
            "operation_not_enabled_for_agent",
            Clear::Policy(|policy| policy.enabled_operations = None),
        ),
        rung(
            403,
            "domain_not_allowed",
            "domain_not_allowed",
            Clear::Policy(|policy| policy.allowed_domains = domains(&["evil.test"])),
        ),
        rung(
            402,
            "amount_exceeds_max",
            "amount_exceeds_max",
            Clear::Body("max_payment_units", json!(20_000)),
        ),
        rung(
            402,
            "amount_exceeds_per_call_limit",
            "amount_exceeds_per_call_limit",
            Clear::Policy(|policy| policy.max_per_call = units(20_000)),
        ),
        rung(403, "policy_blocked", "category_block:scrape", Clear::Rules(kept)),
        rung(
            403,
            "policy_blocked",
            "vendor_allowlist:lab-scrape",
            Clear::Rules(|kind| !matches!(kind, RuleKind::VendorAllowlist { .. })),
        ),
        rung(
            403,
            "policy_blocked",
            "budget_limit:",
            Clear::Rules(|kind| !matches!(kind, RuleKind::BudgetLimit { .. })),
        ),
        rung(
            402,
            "daily_spend_limit_exceeded",
            "daily_spend_limit_exceeded",
            Clear::Policy(|policy| policy.max_per_day = units(20_000)),
        ),
        rung(
            402,
            "approval_required",
            "approval_required",
            Clear::Policy(|policy| policy.require_approval_above = units(20_000)),
        ),
        rung(402, "approval_required", "approval_required", Clear::Rules(|_| false)),
        rung(
            402,
            "insufficient_usdc_balance",
            "insufficient_usdc_balance",
            Clear::Fund,
        ),
    ];
    let mut policy = broken;
    for Rung {
        status,
        slug,
        reason,
        clear,
    } in rungs
    {
        body["idempotency_key"] = json!(fresh_key());
        let foreseen = world.check(&agent, &body).await.ok();
        let refused = world.authorize(&agent, &body).await.refused(status, slug);
        for told in [&foreseen["reason"], &refused["decision"]["reason"]] {
            assert!(told.as_str().unwrap().starts_with(reason), "{told}, not {reason}");
        }
        match clear {
            Clear::Policy(edit) => edit(&mut policy),
            Clear::Enable => {}
            Clear::Unfreeze => world.edit(&agent, |agent| agent.status = AgentStatus::Active).await,
            Clear::Rules(kept) => {
                world
                    .edit(&agent, |agent| agent.rules.retain(|rule| kept(&rule.kind)))
                    .await
            }
            Clear::Body(name, value) => body[name] = value,
            Clear::Fund => world.fund(&agent, 20_000).await,
        }
        world.enable(&agent, "lab-scrape", policy.clone()).await;
    }
    body["idempotency_key"] = json!(fresh_key());
    would_pay(&world, &agent, &body).await;
    let paid = world.authorize(&agent, &body).await.ok();

    // What is answered before any policy is asked: the key, the body, what was answered before, the service.
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
    let stranger = format!("/agents/{}/settlements?limit=0", fresh_key());
    let unheard = with(&body, json!({"approval_id": fresh_key()}));
    let before = Before::of(&world, &agent).await;
    for (path, key, body, status, slug) in [
        ("/x402/authorize", wrong, &json!([]), 401, "invalid_agent_key"),
        ("/x402/authorize", wrong, &incomplete, 401, "invalid_agent_key"),
        ("/x402/authorize", wrong, &nobody, 401, "invalid_agent_key"),
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
        (
            &complete,
            key,
            &json!({"payment_response_header": "e30="}),
            422,
            "settlement_transaction_hash_required",
        ),
        (
            &complete,
            key,
            &proof_of(&format!("0x{}", "1".repeat(64))),
            404,
            "not_found",
        ),
        (
            &own,
            key,
            &json!({"payment_response_header": "e30=", "x": 1}),
            400,
            "invalid_request",
        ),
    ] {
        world
            .call(Method::POST, path, key, Some(body))
            .await
            .refused(status, slug);
    }
    world.get(&agent, &stranger).await.refused(404, "not_found");
    before.still_holds(&world, &agent, "all of that").await;
    assert_eq!(
        world.authorize(&agent, &body).await.ok()["settlement_id"],
        paid["settlement_id"]
    );
}
