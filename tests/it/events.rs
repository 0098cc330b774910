//! Passes every file of `events/` to its function as Lambda does, and compares the responses with a table.
//!
//! The order of the table matters, because a placeholder such as `{{settlement_id}}` stands for a value of an earlier
//! response (`events/README.md`).

use lambda_http::{Context, LambdaEvent};
use purser_api::{GatewayEvent, GatewayResponse, handle_gateway_event};
use purser_local::{DEMO_OWNER, DEMO_STRANGER};
use purser_testkit::Template;
use purser_tests::{World, as_repeated};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The file, the status, and the `error` or the `reason` of the response.
const EVENTS: [(&str, u16, &str); 216] = [
    // The catalog function also responds to unknown routes.
    ("catalog/unknown-route", 404, "not_found"),
    ("catalog/wrong-method", 404, "not_found"),
    ("catalog/list-services", 200, ""),
    ("catalog/list-services-not-modified", 304, ""),
    ("catalog/list-services-filtered", 200, ""),
    ("catalog/list-services-bad-limit", 400, "invalid_request"),
    ("catalog/get-service", 200, ""),
    ("catalog/get-service-unknown", 404, "service_not_found"),
    ("catalog/llms-txt", 200, ""),
    ("catalog/openapi", 200, ""),
    ("catalog/openapi-not-modified", 304, ""),
    ("catalog/skill", 200, ""),
    ("catalog/head-services", 200, ""),
    ("catalog/head-service", 200, ""),
    ("catalog/head-openapi", 200, ""),
    ("catalog/head-llms-txt", 200, ""),
    ("catalog/head-skill", 200, ""),
    ("catalog/get-statement-keys", 200, ""),
    ("catalog/head-statement-keys", 200, ""),
    ("catalog/get-log-trust", 200, ""),
    ("catalog/head-log-trust", 200, ""),
    ("catalog/get-log-checkpoint", 200, ""),
    ("catalog/head-log-checkpoint", 200, ""),
    // Log entries are private. `people/statements.rs` reads tiles.
    ("catalog/get-log-tile-entries", 404, "not_found"),
    ("catalog/head-log-tile-entries", 404, ""),
    // An agent's routes about itself.
    ("agents/get-me", 200, ""),
    ("agents/get-me-no-credentials", 401, "invalid_agent_key"),
    ("agents/get-me-wrong-key", 401, "invalid_agent_key"),
    ("agents/list-agent-services", 200, ""),
    ("agents/list-agent-services-no-credentials", 401, "invalid_agent_key"),
    ("agents/list-agent-services-wrong-key", 401, "invalid_agent_key"),
    ("agents/list-agent-services-other-agent", 404, "not_found"),
    ("agents/get-policy", 200, ""),
    ("agents/get-policy-no-credentials", 401, "invalid_agent_key"),
    ("agents/get-policy-wrong-key", 401, "invalid_agent_key"),
    ("agents/get-policy-other-agent", 404, "not_found"),
    ("agents/get-policy-unknown-service", 404, "not_found"),
    // The MCP tools, whose errors are JSON-RPC errors (`mcp.rs`).
    ("mcp/list-tools", 200, ""),
    ("mcp/call-tool", 200, ""),
    ("mcp/call-tool-no-credentials", 401, "invalid_agent_key"),
    ("oauth/resource", 200, ""),
    ("oauth/mcp-resource", 200, ""),
    ("oauth/server", 200, ""),
    ("oauth/register", 201, ""),
    ("oauth/register-bad-redirect", 400, "invalid_redirect_uri"),
    ("oauth/device", 200, ""),
    ("oauth/token-unknown-code", 400, "invalid_grant"),
    // Preflights.
    ("payments/check", 200, "x402_authorized"),
    ("payments/check-base64-body", 200, "x402_authorized"),
    ("payments/check-unpaid", 200, ""),
    ("payments/check-would-block", 200, "amount_exceeds_max"),
    (
        "payments/check-replay-key-reused",
        409,
        "idempotency_key_reused_for_different_request",
    ),
    ("payments/check-no-credentials", 401, "invalid_agent_key"),
    // The rejections come in the order of the checks. A later event reads the approval that is created here.
    ("payments/authorize-no-credentials", 401, "invalid_agent_key"),
    (
        "payments/authorize-malformed-authorization",
        401,
        "invalid_authorization_header",
    ),
    ("payments/authorize-wrong-key", 401, "invalid_agent_key"),
    ("payments/authorize-not-json", 400, "invalid_request"),
    ("payments/authorize-no-idempotency-key", 400, "idempotency_key_required"),
    ("payments/authorize-unknown-service", 404, "service_not_found"),
    ("payments/authorize-domain-not-allowed", 403, "domain_not_allowed"),
    ("payments/authorize-amount-exceeds-max", 402, "amount_exceeds_max"),
    (
        "payments/authorize-per-call-limit",
        402,
        "amount_exceeds_per_call_limit",
    ),
    ("payments/authorize-price-above-catalog", 403, "policy_blocked"),
    ("payments/authorize-approval-required", 402, "approval_required"),
    (
        "payments/authorize-insufficient-balance",
        402,
        "insufficient_usdc_balance",
    ),
    ("payments/authorize-base64-body", 200, "x402_authorized"),
    ("payments/authorize", 200, "x402_authorized"),
    ("payments/authorize-replayed", 200, "x402_authorized"),
    (
        "payments/authorize-key-reused",
        409,
        "idempotency_key_reused_for_different_request",
    ),
    ("payments/raise-no-credentials", 401, "invalid_agent_key"),
    ("payments/raise-until-passed", 400, "invalid_request"),
    // Authorized payments.
    ("payments/complete-settlement-no-credentials", 401, "invalid_agent_key"),
    ("payments/complete-settlement-no-proof", 422, "provider_proof_required"),
    (
        "payments/complete-settlement-no-transaction-hash",
        422,
        "settlement_transaction_hash_required",
    ),
    ("payments/complete-settlement-unknown", 404, "not_found"),
    (
        "payments/complete-settlement-not-mined",
        422,
        "onchain_settlement_not_verified",
    ),
    ("payments/get-settlement", 200, ""),
    ("agents/get-settlement-statement", 200, ""),
    ("agents/get-decision-statement-unknown", 404, "not_found"),
    ("agents/get-decision-statement-no-credentials", 401, "invalid_agent_key"),
    ("payments/get-settlement-unknown", 404, "not_found"),
    ("payments/get-settlement-no-credentials", 401, "invalid_agent_key"),
    ("payments/list-settlements", 200, ""),
    ("payments/list-settlements-bad-limit", 400, "invalid_request"),
    ("payments/list-settlements-other-agent", 404, "not_found"),
    ("payments/list-settlements-no-credentials", 401, "invalid_agent_key"),
    ("people/poll-approval", 200, ""),
    ("people/poll-approval-waiting", 200, ""),
    ("people/poll-approval-bad-wait", 400, "invalid_request"),
    ("people/poll-approval-session", 200, ""),
    ("people/poll-approval-unknown", 404, "not_found"),
    ("people/poll-approval-no-credentials", 401, "invalid_agent_key"),
    ("people/open-run-no-limit", 400, "limit_units_required"),
    ("people/open-run-no-credentials", 401, "invalid_agent_key"),
    ("people/close-run-unknown", 404, "not_found"),
    // A signed-in user's agents.
    ("people/list-agents", 200, ""),
    ("people/list-agents-no-credentials", 401, "invalid_session"),
    ("people/list-agents-agent-key", 401, "invalid_session"),
    ("people/create-agent", 201, ""),
    ("people/create-agent-no-name", 400, "name_required"),
    ("people/freeze-agents-unknown", 200, ""),
    ("people/get-agent", 200, ""),
    ("people/get-agent-other-owner", 404, "not_found"),
    ("people/edit-agent", 200, ""),
    ("people/edit-agent-no-version", 428, "version_required"),
    ("people/edit-agent-stale-version", 412, "version_conflict"),
    ("people/create-key", 201, ""),
    ("people/list-keys", 200, ""),
    ("people/rotate-key", 201, ""),
    ("people/revoke-key", 200, ""),
    ("people/revoke-grant-unknown", 200, ""),
    ("people/list-services", 200, ""),
    ("people/get-service", 200, ""),
    ("people/limit-services", 200, ""),
    ("people/list-policy-versions", 200, ""),
    ("people/restore-policy-version-unknown", 404, "not_found"),
    ("people/edit-service", 200, ""),
    ("people/edit-service-bad-values", 400, "invalid_request"),
    ("people/disable-service", 200, ""),
    ("people/enable-service-stale-version", 412, "version_conflict"),
    ("people/enable-service-present", 200, ""),
    ("people/enable-service", 200, ""),
    ("people/enable-service-unknown", 404, "service_not_found"),
    ("people/create-rule", 201, ""),
    ("people/list-rules", 200, ""),
    ("people/list-agent-versions", 200, ""),
    ("people/restore-rule-version-unknown", 404, "not_found"),
    ("people/replace-rule", 200, ""),
    ("people/delete-rule", 200, ""),
    ("people/get-wallet", 200, ""),
    ("people/name-payout-address", 200, ""),
    ("people/get-payout-address", 200, ""),
    ("people/pay-out-early", 409, "payout_refused"),
    ("people/remove-payout-address", 200, ""),
    ("people/list-approvals", 200, ""),
    ("people/get-approval", 200, ""),
    ("people/approve-agent-key", 401, "invalid_session"),
    ("people/approve", 200, ""),
    ("people/reject-decided", 409, "approval_not_pending"),
    ("people/withdraw-approval", 200, ""),
    ("people/reject-approvals-unknown", 200, ""),
    ("people/list-decisions", 200, ""),
    ("people/get-decision", 200, "approval_required"),
    ("people/replay-decision", 200, ""),
    ("people/get-decision-statement", 200, ""),
    ("people/list-settlements", 200, ""),
    ("people/search", 200, ""),
    ("people/start-backtest", 202, ""),
    ("people/list-backtests", 200, ""),
    ("people/get-backtest", 200, ""),
    ("people/attach-shadow", 200, ""),
    ("people/get-shadow", 200, ""),
    ("people/promote-shadow", 200, ""),
    ("people/remove-shadow-none", 404, "not_found"),
    ("people/put-policy-template", 201, ""),
    ("people/list-policy-templates", 200, ""),
    ("people/get-policy-template", 200, ""),
    ("people/apply-policy-template", 200, ""),
    ("people/list-template-agents", 200, ""),
    ("people/remove-policy-template", 200, ""),
    ("people/get-policy-template-unknown", 404, "not_found"),
    ("people/read-usage", 200, ""),
    ("people/read-usage-bad-range", 400, "invalid_request"),
    ("people/list-audit-log", 200, ""),
    ("people/get-settlement", 200, ""),
    // The user already owns the agent of the accepted offer, as after a lost response.
    ("people/list-handovers", 200, ""),
    ("people/accept-handover", 200, ""),
    ("people/accept-handover-unknown", 404, "not_found"),
    // The URL's host does not resolve.
    ("people/create-webhook", 201, ""),
    ("people/create-webhook-private", 400, "invalid_request"),
    ("people/list-webhooks", 200, ""),
    ("people/get-webhook", 200, ""),
    ("people/replace-webhook", 200, ""),
    ("people/rotate-webhook-secret", 200, ""),
    ("people/test-webhook", 202, ""),
    ("people/list-webhook-deliveries", 200, ""),
    ("people/redeliver-unknown", 404, "not_found"),
    ("people/remove-webhook", 200, ""),
    // Notifications.
    ("people/get-notices", 200, ""),
    ("people/replace-notices", 200, ""),
    ("people/test-notices", 202, ""),
    // The event that ends all sessions also ends the session of the events' token.
    ("people/list-sessions", 200, ""),
    ("people/end-session-unknown", 404, "not_found"),
    ("people/end-sessions", 200, ""),
    ("people/list-agents-ended-session", 401, "invalid_session"),
    // Pages of the dashboard.
    ("people/overview-signed-out", 303, ""),
    ("people/head-overview-signed-out", 303, ""),
    ("people/sign-in", 200, ""),
    // The operators' routes.
    ("internal/list-services", 200, ""),
    ("internal/list-services-no-credentials", 401, "invalid_internal_token"),
    ("internal/list-services-session", 401, "invalid_internal_token"),
    ("internal/get-service", 200, ""),
    ("internal/put-service", 201, ""),
    ("internal/put-service-no-version", 428, "version_required"),
    ("internal/put-service-slug-taken", 409, "slug_taken"),
    ("internal/put-service-bad-values", 400, "invalid_request"),
    ("internal/set-trust-status", 200, ""),
    ("internal/set-curated", 200, ""),
    ("internal/probe-service", 202, ""),
    ("internal/pin-payment-unseen", 400, "invalid_request"),
    ("internal/accept-change-outdated", 412, "version_conflict"),
    ("internal/withdraw-change-outdated", 412, "version_conflict"),
    ("internal/reconcile-settlement", 202, ""),
    ("internal/reconcile-settlement-unknown", 404, "not_found"),
    ("internal/list-audit-log", 200, ""),
    ("internal/freeze-agent", 200, ""),
    ("internal/freeze-agent-no-reason", 400, "reason_required"),
    ("internal/unfreeze-agent", 200, ""),
    ("internal/freeze-owner", 200, ""),
    ("internal/unfreeze-owner", 200, ""),
    ("internal/freeze-deployment", 200, ""),
    ("internal/list-freezes", 200, ""),
    ("internal/unfreeze-deployment", 200, ""),
    ("internal/offer-agent", 200, "their predecessor has left"),
    ("internal/offer-agent-bad-values", 400, "invalid_request"),
    ("internal/take-offer-back", 200, ""),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../events")
}

fn text_of(file: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{file}.json"))).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Events whose response is HTML, or a redirect to HTML.
const PAGES: [&str; 3] = [
    "people/overview-signed-out",
    "people/head-overview-signed-out",
    "people/sign-in",
];

/// Events whose response is text, with the content type.
const TEXTS: [(&str, &str); 3] = [
    ("catalog/llms-txt", "text/plain"),
    ("catalog/skill", "text/markdown"),
    ("catalog/get-log-checkpoint", "text/plain"),
];

/// The schedules' events.
const SCHEDULES: [&str; 5] = [
    "probe/every-minute",
    "reconcile/every-minute",
    "events/every-minute",
    "webhooks/every-minute",
    "reconcile/every-hour",
];

/// Each function's tests replay its events of streams and queues.
const BATCHES: [&str; 3] = [
    "history/ledger-stream",
    "notices/what-happened",
    "webhooks/what-happened",
];

/// Returns every event of the gateway by file, with its placeholders.
fn events() -> BTreeMap<String, Value> {
    let mut events = BTreeMap::new();
    for group in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        if !group.is_dir() {
            continue;
        }
        for path in std::fs::read_dir(&group).unwrap().map(|entry| entry.unwrap().path()) {
            let [group, name] = [&group, &path].map(|path| path.file_stem().unwrap().to_str().unwrap());
            let file = format!("{group}/{name}");
            assert_eq!(path.extension().unwrap(), "json", "{file}");
            if SCHEDULES.contains(&file.as_str()) || BATCHES.contains(&file.as_str()) {
                continue;
            }
            events.insert(file.clone(), serde_json::from_str(&text_of(&file)).expect(&file));
        }
    }
    events
}

/// Returns the function of a file by its folder, such as `PaymentsFunction` for `events/payments/…`.
fn function_of(file: &str) -> String {
    let (group, _) = file.split_once('/').unwrap();
    format!("{}{}Function", group[..1].to_uppercase(), &group[1..])
}

fn answered<'a>(answer: &'a GatewayResponse, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", String::as_str)
}

#[test]
fn recorded_event_files_match_the_documented_table() {
    let files: BTreeSet<String> = events().into_keys().collect();
    let rows: BTreeSet<String> = EVENTS.iter().map(|(file, ..)| (*file).to_owned()).collect();
    let alone: Vec<&String> = files.symmetric_difference(&rows).collect();
    assert!(alone.is_empty(), "without a row, or without a file: {alone:?}");
    assert_eq!(rows.len(), EVENTS.len(), "a file has one row");
}

#[test]
fn recorded_events_match_the_sam_template_routes() {
    let route_key = |method: &str, path: &str| match path {
        "$default" => path.to_owned(),
        path => format!("{method} {path}"),
    };
    let routes: BTreeSet<(String, String)> = Template::of_repository()
        .routes()
        .into_iter()
        .map(|route| (route.function, route_key(&route.method, &route.path)))
        .collect();
    let replayed: BTreeSet<(String, String)> = events()
        .iter()
        .map(|(file, event)| (function_of(file), event["routeKey"].as_str().unwrap().to_owned()))
        .collect();
    let alone: Vec<&(String, String)> = routes.symmetric_difference(&replayed).collect();
    assert!(alone.is_empty(), "without an event, or without a route: {alone:?}");
}

/// Values that occur twice in a gateway event are equal.
#[test]
fn recorded_events_are_valid_gateway_events() {
    for (file, event) in events() {
        let (context, body) = (&event["requestContext"], event["body"].as_str().unwrap_or_default());
        assert_eq!(event["version"], "2.0", "{file}");
        assert_eq!(event["routeKey"], context["routeKey"], "{file}");
        assert_eq!(event["rawPath"], context["http"]["path"], "{file}");
        assert!(
            !body.contains("{{"),
            "{file}: a placeholder would change the length of the body"
        );

        let headers = event["headers"].as_object().unwrap();
        for name in headers.keys() {
            assert_eq!(
                *name,
                name.to_ascii_lowercase(),
                "{file}: the gateway sends names in lower case"
            );
        }
        let length = match event["isBase64Encoded"].as_bool().unwrap() {
            true => body.len() / 4 * 3 - body.bytes().rev().take_while(|byte| *byte == b'=').count(),
            false => body.len(),
        };
        let stated = headers
            .get("content-length")
            .map_or("0", |length| length.as_str().unwrap());
        assert_eq!(stated, length.to_string(), "{file}");

        let query = event["queryStringParameters"].as_object().into_iter().flatten();
        let query: Vec<String> = query
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap()))
            .collect();
        let raw: BTreeSet<&str> = event["rawQueryString"]
            .as_str()
            .unwrap()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .collect();
        assert_eq!(query.iter().map(String::as_str).collect::<BTreeSet<_>>(), raw, "{file}");

        // The path matches the route, except for the path of an unknown route.
        let route_key = event["routeKey"].as_str().unwrap();
        if let Some((method, route)) = route_key.split_once(' ') {
            let parameters = event["pathParameters"].as_object().into_iter().flatten();
            let path = parameters.fold(route.to_owned(), |path, (name, value)| {
                let value = value.as_str().unwrap();
                path.replace(&format!("{{{name}}}"), value)
                    .replace(&format!("{{{name}+}}"), value)
            });
            assert_eq!(event["rawPath"], path, "{file}");
            assert!(method == "ANY" || context["http"]["method"] == method, "{file}");
        }
    }
}

/// The values of the placeholders, from the seeded agent and from earlier responses.
struct Placeholders(BTreeMap<&'static str, String>);

impl Placeholders {
    fn fill(&self, file: &str) -> GatewayEvent {
        let mut text = text_of(file);
        for (name, value) in &self.0 {
            // An entity tag contains quotes, which must be escaped in JSON.
            let escaped = Value::from(value.as_str()).to_string();
            text = text.replace(
                &format!("{{{{{name}}}}}"),
                escaped
                    .strip_prefix('"')
                    .and_then(|text| text.strip_suffix('"'))
                    .unwrap(),
            );
        }
        assert!(
            !text.contains("{{"),
            "{file}: a placeholder that nothing before it fills"
        );
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn learn(&mut self, answer: &GatewayResponse, body: &Value) {
        for name in [
            "settlement_id",
            "approval_id",
            "transaction_id",
            "key_id",
            "rule_id",
            "webhook_id",
            "backtest_id",
        ] {
            if let Some(id) = body[name].as_str() {
                self.0.insert(name, id.to_owned());
            }
        }
        if let Some(etag) = answer.headers.get("etag") {
            self.0.insert("etag", etag.clone());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_event_gets_the_documented_response() {
    let world = World::start().await;
    // The event that ends all sessions also ends this session, so a new session is needed.
    world.browser_session(&DEMO_OWNER).await;
    let agent = &world.stack.agent;
    let token = |user| world.stack.issuer.token(user);
    let known = [
        ("agent_key", agent.key.clone()),
        ("agent_id", agent.id.to_string()),
        ("session_token", token(&DEMO_OWNER)),
        ("stranger_token", token(&DEMO_STRANGER)),
        ("internal_token", world.stack.internal_token.clone()),
    ];
    let mut placeholders = Placeholders(known.into());

    let mut others = Vec::new();
    let mut bodies = BTreeMap::new();
    for (file, status, outcome) in EVENTS {
        assert_eq!(world.stack.aggregate_history().await, 0);
        let router = world.stack.functions[function_of(file).as_str()].clone();
        let mut context = Context::default();
        context.request_id = format!("request-of-{file}");
        let answer = handle_gateway_event(router, LambdaEvent::new(placeholders.fill(file), context)).await;

        assert_eq!(answered(&answer, "x-request-id"), format!("request-of-{file}"));
        assert!(!answer.is_base64_encoded, "{file}");
        let body = if PAGES.contains(&file) {
            let kind = answered(&answer, "content-type");
            assert!(status == 303 || kind == "text/html; charset=utf-8", "{file}: {kind}");
            Value::Null
        } else if answer.status_code == 304 || file.starts_with("catalog/head-") {
            assert_eq!(answer.body, "", "{file}");
            Value::Null
        } else if let Some((_, kind)) = TEXTS.iter().find(|(text, _)| *text == file) {
            let given = answered(&answer, "content-type");
            assert_eq!(given, format!("{kind}; charset=utf-8"), "{file}");
            answer.body.clone().into()
        } else {
            assert!(
                answered(&answer, "content-type").starts_with("application/json"),
                "{file}"
            );
            serde_json::from_str(&answer.body).expect(file)
        };
        if answer.status_code >= 400 && !file.starts_with("catalog/head-") {
            // OAuth errors have the message in `error_description` (RFC 6749).
            let message = if file.starts_with("oauth/") {
                "error_description"
            } else {
                "message"
            };
            assert!(body[message].is_string(), "{file}: {body}");
        }
        let scheme = if file.starts_with("internal/") {
            "InternalToken"
        } else {
            "Bearer"
        };
        let challenge = answered(&answer, "www-authenticate");
        assert_eq!(
            challenge == scheme || challenge.contains("resource_metadata"),
            answer.status_code == 401,
            "{file}"
        );
        assert_eq!(
            answered(&answer, "idempotent-replayed") == "true",
            file.ends_with("-replayed"),
            "{file}"
        );
        let told = body["error"].as_str().or(body["reason"].as_str()).unwrap_or_default();
        if (answer.status_code, told) != (status, outcome) {
            others.push(format!(
                "{file}: {status} {outcome} expected, {} {body} answered",
                answer.status_code
            ));
        }
        placeholders.learn(&answer, &body);
        bodies.insert(file, body);
    }
    assert!(others.is_empty(), "{others:#?}");

    assert_eq!(
        as_repeated(&bodies["payments/authorize"]),
        as_repeated(&bodies["payments/authorize-replayed"]),
        "the very same payment"
    );
    let id = |file: &str, name: &str| bodies[file][name].clone();
    assert_eq!(
        id("payments/authorize", "settlement_id"),
        id("payments/get-settlement", "id")
    );
    assert_eq!(
        id("payments/authorize-approval-required", "approval_id"),
        id("people/poll-approval", "approval_id")
    );
    assert_eq!(bodies["people/poll-approval"], bodies["people/poll-approval-session"]);
}

/// Only the event of reconcile has content: the shard of the due settlements, or a run for the wallets.
#[test]
fn recorded_schedule_events_match_the_scheduler_format() {
    let [probe, reconcile, events, webhooks, wallets] =
        SCHEDULES.map(|file| serde_json::from_str::<Value>(&text_of(file)).unwrap());
    for (schedule, name) in [(probe, "probe"), (events, "events"), (webhooks, "webhooks")] {
        assert_eq!(schedule["detail-type"], "Scheduled Event");
        let named = schedule["resources"][0].as_str().unwrap();
        assert!(named.ends_with(&format!("/purser-{name}")), "{named}");
    }

    let template = include_str!("../../template.yaml");
    let inputs = template
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Input: !Sub '"));
    let inputs: Vec<Value> = inputs
        .map(|input| input.trim_end_matches('\'').replace("${ReconcileRuns}", "1"))
        .map(|input| serde_json::from_str(&input).unwrap())
        .collect();
    assert_eq!(inputs.len(), 4, "one for each part that there may be");
    assert_eq!(inputs[0], reconcile);
    assert_eq!(wallets, json!({"job": "wallets"}));
    assert!(template.contains(&format!("Input: '{}'", text_of("reconcile/every-hour").trim())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduled_event_reconciles_holds() {
    let world = World::start().await;
    let paid = world
        .authorize(&world.demo(), &purser_tests::body_of(world.offer(5_000)))
        .await
        .ok();
    world.settle(&paid).await;
    world.stack.chain.advance(1_000).await.unwrap();
    let run = world
        .stack
        .reconcile
        .reconcile_all(std::time::Duration::from_secs(55))
        .await
        .unwrap();
    assert_eq!(run.outcomes(), [purser_local::Outcome::Confirmed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduled_event_probes_due_services() {
    let world = World::start().await;
    let report = world
        .stack
        .probe
        .run_probes(std::time::Duration::from_secs(55))
        .await
        .unwrap();
    assert!(report.services > 0, "{report:?}");
    let weather = world.service("lab-weather").await;
    let record = world.stack.catalog.read_probe_record(weather.id).await.unwrap();
    let here = weather
        .operations
        .iter()
        .filter(|one| one.endpoint.host_str() == Some("127.0.0.1"));
    let seen: Vec<&str> = here.map(|operation| record.availability(operation).name()).collect();
    assert_eq!(seen, ["paid_x402", "free_verified"]);
    let again = world
        .stack
        .probe
        .run_probes(std::time::Duration::from_secs(55))
        .await
        .unwrap();
    assert_eq!(again.services, 0, "nothing is due so soon: {again:?}");
}
