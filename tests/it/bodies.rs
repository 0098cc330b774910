//! Tests each field of every route's body: missing, unknown, and with invalid values.

use crate::access::{Route, routes};
use crate::schemas::Document;
use purser_domain::{DomainPattern, Duration, SpendPolicy};
use purser_local::{DEMO_OWNER, Options};
use purser_tests::{
    Answer, Person, TestAgent, World, body_of, dollars, fresh_key, operation_entry, paths, payment_entry,
    service_entry, unpaid,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A complete, valid body and its route.
pub(crate) struct Whole {
    pub(crate) method: Method,
    /// The path in the OpenAPI document.
    pub(crate) route: &'static str,
    pub(crate) path: String,
    pub(crate) body: Value,
}

impl Whole {
    /// Returns the same body for another path.
    pub(crate) fn at(&self, path: String) -> Self {
        let Self {
            method, route, body, ..
        } = self;
        let (method, body) = (method.clone(), body.clone());
        Self {
            method,
            route,
            path,
            body,
        }
    }
}

pub(crate) struct Ground {
    pub(crate) world: World,
    owner: Person,
    pub(crate) agent: TestAgent,
    pub(crate) wholes: Vec<Whole>,
    /// The path parameters that name existing objects.
    pub(crate) named: [(&'static str, String); 5],
}

impl Ground {
    pub(crate) async fn new() -> Self {
        let world = World::with(Options {
            throttle_per_minute: 1_000_000,
            ..Options::default()
        });
        let world = world.await;
        let owner = world.person(&DEMO_OWNER);
        let agent = world.agent_of(&owner, "thorough").await;
        let edit = async |method, below: &str, body: Value| {
            let path = agent.path(below);
            world.person_edits(&owner, method, &path, &body).await
        };
        edit(
            Method::PATCH,
            "/services/lab-search",
            json!({"require_approval_above_units": dollars(5)}),
        )
        .await
        .ok();
        let template = world.persons_request(&owner, Method::PUT, "/policy-templates/research");
        World::send(template.json(&json!({}))).await.created();
        let asked = world.authorize(&agent, &body_of(world.offer(dollars(6)))).await;
        let asked = asked.refused(402, "approval_required");
        let block = json!({"kind": "category_block", "categories": ["finance"]});
        let rule = edit(Method::POST, "/rules", block.clone()).await.created();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (approval, rule) = (text(&asked["approval_id"]), text(&rule["rule_id"]));

        let mut operation = operation_entry("news.read", "https://newcomer.example/read");
        operation["payment"] = payment_entry(1_000, &world.stack.providers.pay_to);
        let entry = service_entry("newcomer", &[operation]);
        let search = world.service("lab-search").await;
        let service = format!("/internal/services/{}", search.id);
        let authorize = body_of(world.offer(1_000));
        let mut check = authorize.clone();
        check.as_object_mut().unwrap().remove("idempotency_key");
        check["replay_key"] = json!(fresh_key());
        let unpaid = unpaid(&authorize);
        let policy = json!({
            "service_id": "lab-weather", "max_per_call_units": 1, "max_per_day_units": 1,
            "require_approval_above_units": 1, "enabled_operations": null, "allowed_domains": ["*"],
        });
        let mut edited = policy.clone();
        edited.as_object_mut().unwrap().remove("service_id");
        edited["enabled"] = json!(true);
        let hook = json!({
            "url": "https://hooks.example.invalid/purser", "description": "x", "kinds": ["purser.approval.asked.v1"],
            "agents": [agent.id.to_string()], "enabled": true,
        });
        let webhook = world
            .person_edits(&owner, Method::POST, "/webhooks", &hook)
            .await
            .created();
        let post = Method::POST;
        let below = |below: &str| agent.path(below);
        let until = world.now().after(Duration::DAY).to_string();
        let mut wholes: Vec<Whole> = [
            json!({"kind": "category_block", "categories": ["finance"]}),
            json!({"kind": "vendor_allowlist", "services": ["lab-search"], "wallets": [world.stack.providers.pay_to]}),
            json!({"kind": "budget_limit", "limit_units": 1, "window_seconds": 3_600}),
            json!({"kind": "approval_required", "services": null, "categories": ["data"], "above_units": 5}),
            json!({
                "kind": "approval_exception", "services": ["lab-search"], "payee": world.stack.providers.pay_to,
                "max_amount_units": 5, "until": until, "waives_threshold": true,
            }),
        ]
        .into_iter()
        .map(|body| Whole {
            method: Method::POST,
            route: "/agents/{agentId}/rules",
            path: below("/rules"),
            body,
        })
        .collect();
        let ids = json!({"kind": "ids", "ids": [agent.id.to_string()]});
        let bulk = [
            json!({"act": "freeze", "agents": ids}),
            json!({"act": "unfreeze", "agents": ids}),
            json!({"act": "archive", "agents": {"kind": "label", "label": "team=nobody"}}),
            json!({"act": "restore", "agents": {"kind": "all"}}),
            json!({"act": "label", "agents": ids, "labels": {"team": "x"}}),
            json!({"act": "unlabel", "agents": ids, "keys": ["team"]}),
            json!({"act": "limit", "agents": ids}),
        ];
        wholes.extend(bulk.map(|body| Whole {
            method: Method::POST,
            route: "/agents/bulk",
            path: "/agents/bulk".to_owned(),
            body,
        }));
        let nested = json!({
            "service_id": "lab-weather", "policy": {
                "max_per_call_units": 1, "max_per_day_units": 1, "require_approval_above_units": 1,
                "enabled_operations": null, "allowed_domains": ["*"],
            },
        });
        let rows = [
            (post.clone(), "/agents/{agentId}/services", below("/services"), nested),
            (post.clone(), "/x402/authorize", "/x402/authorize".to_owned(), authorize),
            (post.clone(), "/x402/check", "/x402/check".to_owned(), check),
            (
                post.clone(),
                "/x402/check/unpaid",
                "/x402/check/unpaid".to_owned(),
                unpaid,
            ),
            (
                post.clone(),
                "/x402/raises",
                "/x402/raises".to_owned(),
                json!({
                    "transaction_id": fresh_key(), "max_per_call_units": 1, "max_per_day_units": 1, "reason": "x",
                    "until": world.now().after(purser_testkit::sample::secs(3_600)).to_string(),
                }),
            ),
            (
                post.clone(),
                "/x402/settlements/{settlementId}/complete",
                format!("/x402/settlements/{}/complete", fresh_key()),
                json!({"payment_response_header": "e30=", "tx_hash": format!("0x{}", "a".repeat(64))}),
            ),
            (post.clone(), "/agents", "/agents".to_owned(), json!({"name": "x"})),
            (
                Method::PATCH,
                "/agents/{agentId}",
                below(""),
                json!({"name": "x", "status": "frozen", "labels": {"team": "x"}, "archived": false}),
            ),
            (post.clone(), "/agents/{agentId}/keys", below("/keys"), json!({})),
            (
                post.clone(),
                "/agents/{agentId}/keys/{keyId}/rotate",
                below(&format!("/keys/{}/rotate", agent.key_id())),
                json!({"overlap_seconds": 2_592_000}),
            ),
            (
                post.clone(),
                "/agents/{agentId}/runs",
                below("/runs"),
                json!({"limit_units": 1, "expires_at": until, "services": ["lab-search"]}),
            ),
            (post.clone(), "/agents/{agentId}/services", below("/services"), policy),
            (
                Method::PUT,
                "/agents/{agentId}/payout-address",
                below("/payout-address"),
                json!({"address": "0x90F79bf6EB2c4f870365E785982E1f101E93b906"}),
            ),
            (
                post.clone(),
                "/agents/{agentId}/payouts",
                below("/payouts"),
                json!({"amount_units": 1, "idempotency_key": "x"}),
            ),
            (
                Method::PUT,
                "/agents/{agentId}/shadow",
                below("/shadow"),
                json!({
                    "rules": [{"kind": "budget_limit", "limit_units": 1, "window_seconds": 3_600}],
                    "policies": [{
                        "service_id": "lab-weather", "enabled": true, "max_per_call_units": 1, "max_per_day_units": 1,
                        "require_approval_above_units": 1, "enabled_operations": null, "allowed_domains": ["*"],
                    }],
                }),
            ),
            (
                post.clone(),
                "/backtests",
                "/backtests".to_owned(),
                json!({
                    "agents": {"kind": "label", "label": "team=nobody"}, "frozen": false,
                    "days": 7, "to": "2026-11-21T00:00:00Z",
                    "rules": [{"kind": "budget_limit", "limit_units": 1, "window_seconds": 3_600}],
                    "policies": [{
                        "service_id": "lab-weather", "enabled": true, "max_per_call_units": 1, "max_per_day_units": 1,
                        "require_approval_above_units": 1, "enabled_operations": null, "allowed_domains": ["*"],
                    }],
                }),
            ),
            (
                Method::PUT,
                "/policy-templates/{templateName}",
                "/policy-templates/research".to_owned(),
                json!({
                    "services": {"lab-weather": {
                        "enabled": true, "max_per_call_units": 1, "max_per_day_units": 1,
                        "require_approval_above_units": 1, "enabled_operations": null, "allowed_domains": ["*"],
                    }},
                    "rules": [{"kind": "budget_limit", "limit_units": 1, "window_seconds": 3_600}],
                    "default": false,
                }),
            ),
            (
                post.clone(),
                "/policy-templates/{templateName}/apply",
                "/policy-templates/research/apply".to_owned(),
                json!({"agents": {"kind": "label", "label": "team=nobody"}, "overrides": "keep"}),
            ),
            (post.clone(), "/webhooks", "/webhooks".to_owned(), hook.clone()),
            (
                Method::PUT,
                "/webhooks/{webhookId}",
                format!("/webhooks/{}", text(&webhook["webhook_id"])),
                hook,
            ),
            (
                Method::PUT,
                "/notices",
                "/notices".to_owned(),
                json!({
                    "mail": {"enabled": true, "kinds": ["purser.approval.asked.v1"]},
                    "slack": {
                        "url": "https://hooks.example.invalid/x", "enabled": true, "kinds": ["purser.agent.frozen.v1"],
                    },
                }),
            ),
            (
                Method::PATCH,
                "/agents/{agentId}/services",
                below("/services"),
                json!({
                    "max_per_call_units": 1, "max_per_day_units": 2, "require_approval_above_units": 1,
                    "allowed_domains": ["*"],
                }),
            ),
            (
                Method::PATCH,
                "/agents/{agentId}/services/{serviceId}",
                below("/services/lab-weather"),
                edited,
            ),
            (
                Method::PUT,
                "/agents/{agentId}/rules/{ruleId}",
                below(&format!("/rules/{rule}")),
                block,
            ),
            (
                post.clone(),
                "/agents/{agentId}/approvals/{approvalId}/approve",
                below(&format!("/approvals/{approval}/approve")),
                json!({"note": "x"}),
            ),
            (
                post.clone(),
                "/agents/{agentId}/approvals/{approvalId}/withdraw",
                below(&format!("/approvals/{approval}/withdraw")),
                json!({"note": "x"}),
            ),
            (
                post.clone(),
                "/approvals/bulk",
                "/approvals/bulk".to_owned(),
                json!({"decision": "reject", "approval_ids": [approval], "note": "x"}),
            ),
            (
                post,
                "/agents/{agentId}/approvals/{approvalId}/reject",
                below(&format!("/approvals/{approval}/reject")),
                json!({"note": "x"}),
            ),
            (Method::PUT, "/internal/services/{serviceId}", service.clone(), entry),
            (
                Method::PUT,
                "/internal/services/{serviceId}/trust-status",
                format!("{service}/trust-status"),
                json!({"trust_status": "listed"}),
            ),
            (
                Method::PUT,
                "/internal/services/{serviceId}/curated",
                format!("{service}/curated"),
                json!({"curated": true}),
            ),
            (
                Method::PUT,
                "/internal/freezes/agents/{agentId}",
                format!("/internal/freezes/agents/{}", agent.id),
                json!({"reason": "x"}),
            ),
            (
                Method::PUT,
                "/internal/freezes/owners/{person}",
                format!("/internal/freezes/owners/{}", "5e".repeat(32)),
                json!({"reason": "x"}),
            ),
            (
                Method::PUT,
                "/internal/freezes/deployment",
                "/internal/freezes/deployment".to_owned(),
                json!({"reason": "x"}),
            ),
            (
                Method::PUT,
                "/internal/agents/{agentId}/handover",
                format!("/internal/agents/{}/handover", agent.id),
                json!({"to": "5e".repeat(32), "reason": "x"}),
            ),
            (
                Method::POST,
                "/internal/services/{serviceId}/operations/{operationId}/pin",
                format!("{service}/operations/{}/pin", search.operations[0].id),
                json!({"payment": payment_entry(1_000, &world.stack.providers.pay_to)}),
            ),
        ];
        wholes.extend(rows.into_iter().map(|(method, route, path, body)| Whole {
            method,
            route,
            path,
            body,
        }));
        let named = [
            ("{agentId}", agent.id.to_string()),
            ("{id}", approval),
            ("{webhookId}", text(&webhook["webhook_id"])),
            ("{templateName}", "research".to_owned()),
            ("{serviceId}", "lab-search".to_owned()),
        ];
        Self {
            world,
            owner,
            agent,
            wholes,
            named,
        }
    }

    /// Sends a body with a version that no record has. Missing fields must be reported before a wrong version.
    pub(crate) async fn send(&self, whole: &Whole, body: &Value) -> Answer {
        self.send_bytes(whole, "\"99\"", body.to_string().into_bytes()).await
    }

    async fn send_bytes(&self, whole: &Whole, if_match: &str, body: Vec<u8>) -> Answer {
        let url = format!("{}{}", self.world.stack.base_url, whole.path);
        let request = self.world.http.request(whole.method.clone(), url);
        let request = request.header("if-match", if_match).body(body);
        World::send(self.with_credential(request, &whole.path)).await
    }

    fn with_credential(&self, request: reqwest::RequestBuilder, path: &str) -> reqwest::RequestBuilder {
        let is_of_agent = path.ends_with("/settlements") || path.ends_with("/runs");
        let is_agents = path.starts_with("/x402/") || is_of_agent && path.starts_with("/agents/");
        if path.starts_with("/internal/") {
            request.header("x-internal-token", &self.world.stack.internal_token)
        } else if is_agents {
            request.bearer_auth(&self.agent.key)
        } else {
            request.bearer_auth(&self.owner.token)
        }
    }

    async fn get(&self, path: &str, name: &str, value: &str) -> Answer {
        let path = self
            .named
            .iter()
            .fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
        let url = format!("{}{path}", self.world.stack.base_url);
        let url = reqwest::Url::parse_with_params(&url, [(name, value)]).unwrap();
        World::send(self.with_credential(self.world.http.get(url), &path)).await
    }
}

/// Collects the JSON pointers of all fields except those of a provider's data and of free-form objects.
fn members(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, member) in object {
                let pointer = format!("{at}/{name}");
                if !["payment_requirement", "payment_response_header", "params"].contains(&name.as_str()) {
                    members(member, &pointer, found);
                }
                found.push(pointer);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                members(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn parent_of<'a>(body: &'a mut Value, pointer: &str) -> &'a mut serde_json::Map<String, Value> {
    let (parent, _) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap().as_object_mut().unwrap()
}

/// The fields whose absence has the slug `<field>_required`.
const REQUIRED_FIELDS: [&str; 50] = [
    "act",
    "address",
    "agents",
    "amount_units",
    "approval_ids",
    "categories",
    "category",
    "curated",
    "decision",
    "description",
    "endpoint",
    "estimated_price_units",
    "execution",
    "expires_at",
    "id",
    "idempotency_key",
    "ids",
    "keys",
    "kind",
    "label",
    "labels",
    "limit_units",
    "max_amount_units",
    "max_payment_units",
    "method",
    "name",
    "network",
    "operation_id",
    "operations",
    "original_request",
    "overlap_seconds",
    "pay_to",
    "payee",
    "payment",
    "payment_requirement",
    "price_model",
    "reason",
    "replay_key",
    "scheme",
    "service_id",
    "slug",
    "source",
    "target_url",
    "to",
    "token",
    "transaction_id",
    "trust_status",
    "until",
    "url",
    "website",
];

#[tokio::test(flavor = "multi_thread")]
async fn missing_fields_have_the_published_slugs() {
    let ground = Ground::new().await;
    let (world, agent) = (&ground.world, &ground.agent);
    let mut told = BTreeSet::new();
    let named = |method: &Method, path: &str| (method.to_string(), path.to_owned());
    let walked = ground.wholes.iter().map(|whole| named(&whole.method, whole.route));
    let routes = routes();
    let taking = routes
        .iter()
        .filter(|route| route.operation.get("requestBody").is_some());
    let taking = taking.map(|route| named(&route.method, &route.path));
    assert_eq!(
        walked.collect::<BTreeSet<_>>(),
        taking.collect::<BTreeSet<_>>(),
        "every route that takes a body"
    );

    // The evaluation, and not the parser, rejects a scrape request without a target.
    let policy = SpendPolicy {
        allowed_domains: vec![DomainPattern::parse("example.com").unwrap()],
        ..SpendPolicy::permissive()
    };
    world.put_policy(agent, "lab-scrape", true, policy).await;
    let mut aimless = body_of(world.offer(1_000));
    aimless["service_id"] = json!("lab-scrape");
    let aimless = world.authorize(agent, &aimless).await;
    assert_eq!((aimless.status, aimless.body.get("details")), (400, None));
    told.insert(aimless.slug().to_owned());

    for whole in &ground.wholes {
        let shown = format!("{} {}", whole.method, whole.route);
        let mut pointers = Vec::new();
        members(&whole.body, "", &mut pointers);
        for pointer in pointers {
            let (mut without, mut null) = (whole.body.clone(), whole.body.clone());
            let (_, name) = pointer.rsplit_once('/').unwrap();
            parent_of(&mut without, &pointer).remove(name);
            parent_of(&mut null, &pointer).insert(name.to_owned(), Value::Null);
            let answer = ground.send(whole, &without).await;
            if answer.status != 400 || !answer.slug().ends_with("_required") {
                continue;
            }
            assert_eq!(answer.slug(), format!("{name}_required"), "{shown} {pointer}");
            told.insert(answer.slug().to_owned());
            assert_eq!(paths(answer, &shown), [pointer.as_str()]);
            let answer = ground.send(whole, &null).await;
            assert_eq!(answer.slug(), format!("{name}_required"), "{shown} {pointer} null");
            assert_eq!(paths(answer, &shown), [pointer.as_str()]);
        }
    }
    let published = REQUIRED_FIELDS.map(|field| format!("{field}_required"));
    assert_eq!(told, BTreeSet::from(published));
}

#[test]
fn each_required_field_in_openapi_has_an_error_slug() {
    let document: Value = serde_json::from_str(&purser_local::openapi().unwrap()).unwrap();
    let bodies = document["components"]["schemas"].as_object().unwrap();
    let is_variant = |schema: &Value| {
        let properties = schema["properties"].as_object();
        properties.is_some_and(|properties| properties.values().any(|property| property.get("const").is_some()))
    };
    let bodies = bodies
        .iter()
        .filter(|(name, schema)| name.ends_with("Body") && !is_variant(schema));
    let required = bodies.flat_map(|(_, schema)| schema["required"].as_array().into_iter().flatten());
    let missing: Vec<&str> = required
        .map(|name| name.as_str().unwrap())
        .filter(|name| !REQUIRED_FIELDS.contains(name))
        .collect();
    assert_eq!(missing, ["payment_response_header"]);
}

/// Returns whether the value is invalid by a rule that a JSON schema can't express.
fn is_for_no_schema(whole: &Whole, at: &str, value: &Value) -> bool {
    let is_vendor_list = whole.body["kind"] == "vendor_allowlist" && at.is_empty();
    let is_beside = !at.starts_with("/policy") && !["/service_id", "/enabled"].contains(&at) && !value.is_null();
    let is_twice = whole.body["policy"].is_object() && is_beside;
    let is_of_x402 = ["/payment_requirement", "/payment_response_header"].contains(&at);
    let is_raise = whole.route == "/x402/raises" && ["", "/until"].contains(&at);
    let is_grant = whole.route.ends_with("/approve") && at != "/note";
    let is_limited_twice = whole.route == "/agents" && value["limits"].is_string() && value["template"].is_string();
    // A window has exactly one of two fields. Only a calendar period has a time zone.
    let is_window = ["/window_seconds", "/period", "/time_zone"]
        .iter()
        .any(|field| at.ends_with(field))
        || ["budget_limit", "count_limit"]
            .iter()
            .any(|kind| value["kind"] == *kind);
    let is_run_end = whole.route.ends_with("/runs") && at == "/expires_at";
    is_vendor_list || is_twice || is_of_x402 || is_raise || is_grant || is_limited_twice || is_window || is_run_end
}

#[tokio::test(flavor = "multi_thread")]
async fn values_allowed_by_body_schemas_are_accepted() {
    let ground = Ground::new().await;
    let (document, routes) = (Document::read(), routes());
    let mut refused = Vec::new();
    for whole in &ground.wholes {
        let schema = document.body(&route_of(whole, &routes).operation);
        for (at, value) in document.right(schema, "", &whole.body) {
            if is_for_no_schema(whole, &at, &value) {
                continue;
            }
            let answer = ground.send(whole, &with(&whole.body, &at, value.clone())).await;
            if let (201, Some(id)) = (answer.status, answer.body["webhook_id"].as_str()) {
                // A user can have at most ten webhooks.
                let path = format!("/webhooks/{id}");
                let request = ground.world.persons_request(&ground.owner, Method::DELETE, &path);
                World::send(request.header("if-match", "*")).await.ok();
            }
            if whole.route.ends_with("/runs") && answer.status == 201 {
                // An agent can have at most five open runs.
                let path = format!("{}/{}", whole.path, answer.body["key_id"].as_str().unwrap());
                let key = Some(ground.agent.key.as_str());
                ground.world.call(Method::DELETE, &path, key, None).await.ok();
            }
            if answer.status == 400 {
                let shown: String = value.to_string().chars().take(80).collect();
                refused.push(format!(
                    "{} {} {at}: {shown}: {}",
                    whole.method, whole.route, answer.body
                ));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

pub(crate) fn route_of<'a>(whole: &Whole, routes: &'a [Route]) -> &'a Route {
    let mut routes = routes.iter();
    let route = routes.find(|route| (&route.method, route.path.as_str()) == (&whole.method, whole.route));
    route.unwrap()
}

/// Returns the body with this value at this JSON pointer.
pub(crate) fn with(body: &Value, at: &str, value: Value) -> Value {
    let mut changed = body.clone();
    if at.is_empty() {
        return value;
    }
    let (parent, name) = at.rsplit_once('/').unwrap();
    match changed.pointer_mut(parent).unwrap() {
        Value::Array(entries) => entries[name.parse::<usize>().unwrap()] = value,
        object => object[name.replace("~1", "/").replace("~0", "~")] = value,
    }
    changed
}

#[tokio::test(flavor = "multi_thread")]
async fn query_schemas_match_the_accepted_values() {
    let ground = Ground::new().await;
    let document = Document::read();
    let (_, approval) = &ground.named[1];
    // A pending approval would be returned again in later calls.
    let reject = ground.agent.path(&format!("/approvals/{approval}/reject"));
    let rejected = ground
        .world
        .person_edits(&ground.owner, Method::POST, &reject, &json!({}))
        .await;
    rejected.ok();
    let today = ground.world.now().to_string();
    let today = today.split('T').next().unwrap();
    let mut parameters = 0;
    for route in routes().iter().filter(|route| route.method == Method::GET) {
        let all = route.operation["parameters"].as_array().into_iter().flatten();
        for parameter in all.filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().unwrap();
            let (right, wrong) = document.parameter(&parameter["schema"]);
            for value in right {
                let value = value.replace("2026-11-21", today);
                let answer = ground.get(&route.path, name, &value).await;
                assert_ne!(answer.status, 400, "{} {name}={value}: {}", route.path, answer.body);
            }
            for value in wrong {
                let shown = format!("{} {name}={value:?}", route.path);
                let told = paths(ground.get(&route.path, name, &value).await, &shown);
                assert_eq!(told, [format!("/{name}")], "{shown}");
            }
            parameters += 1;
        }
    }
    assert!(
        parameters > 40,
        "only {parameters} parameters: is this test still looking?"
    );
}

/// Unit tests cover all invalid values. This test checks that every route parses every field.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_body_fields_are_reported_by_path() {
    let ground = Ground::new().await;
    let (document, routes) = (Document::read(), routes());
    let tables = ["LedgerTable", "DecisionsTable", "CatalogTable"];
    let mut before = Vec::new();
    for table in tables {
        before.push(ground.world.rows_of(table).await);
    }
    let mut taken = Vec::new();
    for whole in &ground.wholes {
        let shown = format!("{} {}", whole.method, whole.route);
        let schema = document.body(&route_of(whole, &routes).operation);
        for (at, value) in document.wrong(schema, "", &whole.body) {
            let is_not_judged = at.starts_with("/payment_requirement") || at.starts_with("/payment_response_header");
            // A repeated agent is valid and does not count towards the maximum length.
            let counts_once = at == "/agents" && value.as_array().is_some_and(|agents| agents.len() > 1);
            if at.is_empty() || is_not_judged || counts_once {
                continue;
            }
            let answer = ground.send(whole, &with(&whole.body, &at, value.clone())).await;
            // A list that is too long may get 412 or 413, which some routes check before the body's fields.
            if [412, 413].contains(&answer.status) && value.is_array() {
                continue;
            }
            let is_told = |problem: &Value| problem["path"].as_str().is_some_and(|path| path.starts_with(&at));
            let mut details = answer.body["details"].as_array().into_iter().flatten();
            if answer.status != 400 || !details.any(is_told) {
                let drawn: String = value.to_string().chars().take(80).collect();
                taken.push(format!("{shown} {at}: {drawn}: {} {}", answer.status, answer.body));
            }
        }
        let documents: [&[u8]; 10] = [
            b" ",
            b"null",
            b"[]",
            b"7",
            b"{",
            b"{}{}",
            b"{\"a\": 1, \"a\": 1}",
            b"{\"a\": 1e400}",
            b"\xef\xbb\xbf{}",
            b"{\"a\": \"\xff\"}",
        ];
        for document in documents {
            let text = String::from_utf8_lossy(document);
            let answer = ground.send_bytes(whole, "\"99\"", document.to_vec()).await;
            assert_eq!(paths(answer, &shown), [""], "{shown} {text}");
        }
        let huge = [b"{}".to_vec(), vec![b' '; 65_535]].concat();
        let huge = ground.send_bytes(whole, "\"99\"", huge).await;
        assert_eq!(huge.refused(413, "request_too_large")["limit_bytes"], 65_536);
    }
    assert!(taken.is_empty(), "{}", taken.join("\n"));
    // The syntax of the version is checked together with the body.
    let agent = ground
        .wholes
        .iter()
        .find(|whole| whole.route == "/agents/{agentId}")
        .unwrap();
    let answer = ground.send_bytes(agent, "99", br#"{"name": 7}"#.to_vec()).await;
    assert_eq!(paths(answer, "a version"), ["/If-Match", "/name"]);
    for (table, before) in tables.iter().zip(&before) {
        let now = ground.world.rows_of(table).await;
        assert_eq!(now.changes_since(before), Vec::<String>::new());
    }
    // The unchanged bodies are valid, so each error above was caused by the changed field.
    for whole in &ground.wholes {
        let answer = ground.send(whole, &whole.body).await;
        assert_ne!(answer.status, 400, "{} {}: {}", whole.method, whole.route, answer.body);
    }
}
