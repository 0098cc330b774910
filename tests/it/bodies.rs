//! The body of every route, member by member: missing, of a wrong type, unknown. Each missing required member has its
//! own slug, and these slugs are those of `docs/errors.md`.

use crate::access::routes;
use purser_domain::{DomainPattern, SpendPolicy};
use purser_local::DEMO_OWNER;
use purser_tests::{
    Answer, Person, TestAgent, World, body_of, dollars, fresh_key, operation_entry, paths, payment_entry, service_entry,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// A complete body and its route.
struct Whole {
    method: Method,
    /// The path in the OpenAPI document.
    route: &'static str,
    path: String,
    body: Value,
}

struct Ground {
    world: World,
    owner: Person,
    agent: TestAgent,
    wholes: Vec<Whole>,
}

impl Ground {
    async fn new() -> Self {
        let world = World::start().await;
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
        let mut wholes: Vec<Whole> = [
            json!({"kind": "category_block", "categories": ["finance"]}),
            json!({"kind": "vendor_allowlist", "services": ["lab-search"], "wallets": [world.stack.providers.pay_to]}),
            json!({"kind": "budget_limit", "limit_units": 1, "window_seconds": 3_600}),
            json!({"kind": "approval_required", "services": null, "categories": ["data"], "above_units": 5}),
        ]
        .into_iter()
        .map(|body| Whole {
            method: Method::POST,
            route: "/agents/{agentId}/rules",
            path: below("/rules"),
            body,
        })
        .collect();
        let rows = [
            (post.clone(), "/x402/authorize", "/x402/authorize".to_owned(), authorize),
            (post.clone(), "/x402/check", "/x402/check".to_owned(), check),
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
                json!({"name": "x", "status": "active"}),
            ),
            (post.clone(), "/agents/{agentId}/keys", below("/keys"), json!({})),
            (
                post.clone(),
                "/agents/{agentId}/keys/{keyId}/rotate",
                below(&format!("/keys/{}/rotate", agent.key_id())),
                json!({"overlap_seconds": 2_592_000}),
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
        Self {
            world,
            owner,
            agent,
            wholes,
        }
    }

    /// Sends a body with its caller's credential and a version that no record has: a missing member is reported before
    /// a wrong version.
    async fn send(&self, whole: &Whole, body: &Value) -> Answer {
        self.send_bytes(whole, "\"99\"", body.to_string().into_bytes()).await
    }

    async fn send_bytes(&self, whole: &Whole, if_match: &str, body: Vec<u8>) -> Answer {
        let url = format!("{}{}", self.world.stack.base_url, whole.path);
        let request = self.world.http.request(whole.method.clone(), url);
        let request = request.header("if-match", if_match).body(body);
        let request = if whole.path.starts_with("/internal/") {
            request.header("x-internal-token", &self.world.stack.internal_token)
        } else if whole.path.starts_with("/x402/") {
            request.bearer_auth(&self.agent.key)
        } else {
            request.bearer_auth(&self.owner.token)
        };
        World::send(request).await
    }
}

/// The pointers of all members, including nested ones, except those of a provider's data and of free-form objects.
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

/// Every `<field>_required` in `docs/errors.md`.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md")).unwrap();
    let (_, section) = page.split_once("### `<field>_required`").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let words = section.split('`').skip(1).step_by(2);
    words
        .filter(|word| word.ends_with("_required"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slug_of_every_member_that_is_missing_is_documented_and_there_is_no_other() {
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

    // A scrape must name its target. The decision finds it missing, not the body's parser.
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
    assert_eq!(told, documented());
}

#[test]
fn every_member_that_the_description_calls_required_is_asked_for() {
    let page = documented();
    let document: Value = serde_json::from_str(&purser_local::openapi().unwrap()).unwrap();
    let bodies = document["components"]["schemas"].as_object().unwrap();
    let bodies = bodies.iter().filter(|(name, _)| name.ends_with("Body"));
    let required = bodies.flat_map(|(_, schema)| schema["required"].as_array().into_iter().flatten());
    let missing: Vec<&str> = required
        .map(|name| name.as_str().unwrap())
        .filter(|name| !page.contains(&format!("{name}_required")))
        .collect();
    // This member is missing with status 422 and its own slug.
    assert_eq!(missing, ["payment_response_header"]);
}

/// The parsing of each member is tested beside its parser. This test shows that every route parses every member.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_body_is_told_by_its_path_on_every_route_and_changes_nothing() {
    let ground = Ground::new().await;
    let tables = ["LedgerTable", "DecisionsTable", "CatalogTable"];
    let mut before = Vec::new();
    for table in tables {
        before.push(ground.world.rows_of(table).await);
    }
    for whole in &ground.wholes {
        let shown = format!("{} {}", whole.method, whole.route);
        let mut pointers = Vec::new();
        members(&whole.body, "", &mut pointers);
        for pointer in pointers {
            let mut wrong = whole.body.clone();
            let at = wrong.pointer_mut(&pointer).unwrap();
            *at = if at.is_number() || at.is_null() {
                json!({})
            } else {
                json!(7)
            };
            let told = paths(ground.send(whole, &wrong).await, &format!("{shown} {pointer}"));
            assert_eq!(told, [pointer], "{shown}");
        }
        let mut unknown = whole.body.clone();
        unknown["a/b~c"] = Value::Null;
        assert_eq!(
            paths(ground.send(whole, &unknown).await, &shown),
            ["/a~1b~0c"],
            "{shown}"
        );
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
    // The form of the version is checked together with the body.
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
    // Nothing else was wrong with these requests.
    for whole in &ground.wholes {
        let answer = ground.send(whole, &whole.body).await;
        assert_ne!(answer.status, 400, "{} {}: {}", whole.method, whole.route, answer.body);
    }
}
