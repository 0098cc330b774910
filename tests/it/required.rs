//! A member that a body must have and has not is named by a slug of its own, whatever the body: each member of each body is
//! dropped, and the slugs that come of it are those of `docs/errors.md`.

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

/// A body of which nothing is missing, and where it goes.
struct Whole {
    method: Method,
    /// As the description of the API spells it.
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
        let service = format!("/internal/services/{}", world.service("lab-search").await.id);
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

    /// Sends a body as whoever may, for a version that nothing has: what a body lacks is said before that.
    async fn send(&self, whole: &Whole, body: &Value) -> Answer {
        let request = self
            .world
            .http
            .request(
                whole.method.clone(),
                format!("{}{}", self.world.stack.base_url, whole.path),
            )
            .header("if-match", "\"99\"")
            .json(body);
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

/// The pointers of all members, those of objects in it included, but for what is a provider's or free to be anything.
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

/// Every `<field>_required` that the page of errors names.
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

    // A scrape that has to say what it is pointed at: the decision finds that out, and not the body's reader.
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
    // 422, each of its own.
    assert_eq!(missing, ["payment_response_header"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_that_takes_a_body_is_among_them() {
    let ground = Ground::new().await;
    let walked: BTreeSet<(String, String)> = ground
        .wholes
        .iter()
        .map(|whole| (whole.method.to_string(), whole.route.to_owned()))
        .collect();
    let routes = routes();
    let routes = routes
        .iter()
        .filter(|route| route.operation.get("requestBody").is_some());
    let taking: BTreeSet<(String, String)> = routes
        .map(|route| (route.method.to_string(), route.path.clone()))
        .collect();
    assert_eq!(walked, taking);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_missing_member_is_named_and_everything_else_is_told_beside_it() {
    // The body, what is dropped of it, what is made wrong, the member that is named, and all that is told.
    type Row<'a> = (&'a Whole, &'a [&'a str], Option<&'a str>, &'a str, &'a [&'a str]);
    let ground = Ground::new().await;
    let of = |route: &str| ground.wholes.iter().find(|whole| whole.route == route).unwrap();
    let (authorize, entry) = (of("/x402/authorize"), of("/internal/services/{serviceId}"));
    let without = |whole: &Whole, pointers: &[&str]| {
        let mut body = whole.body.clone();
        for pointer in pointers {
            let (_, name) = pointer.rsplit_once('/').unwrap();
            parent_of(&mut body, pointer).remove(name);
        }
        body
    };
    let rows: [Row<'_>; 6] = [
        (
            authorize,
            &["/original_request/url"],
            None,
            "url",
            &["/original_request/url"],
        ),
        (
            authorize,
            &["/original_request/url", "/original_request/method"],
            None,
            "method",
            &["/original_request/method", "/original_request/url"],
        ),
        (
            authorize,
            &["/original_request/url", "/max_payment_units"],
            Some("/approvalId"),
            "max_payment_units",
            &["/approvalId", "/max_payment_units", "/original_request/url"],
        ),
        (
            entry,
            &["/operations/0/label", "/operations/0/payment/pay_to"],
            Some("/operations/0/id"),
            "label",
            &[
                "/operations/0/id",
                "/operations/0/label",
                "/operations/0/payment/pay_to",
            ],
        ),
        (
            entry,
            &["/operations/0/label", "/category", "/name"],
            None,
            "name",
            &["/category", "/name", "/operations/0/label"],
        ),
        (
            of("/agents/{agentId}/services"),
            &["/service_id"],
            Some("/max_per_call_units"),
            "service_id",
            &["/max_per_call_units", "/service_id"],
        ),
    ];
    for (whole, dropped, wrong, first, all) in rows {
        let mut body = without(whole, dropped);
        if let Some(pointer) = wrong {
            let (_, name) = pointer.rsplit_once('/').unwrap();
            parent_of(&mut body, pointer).insert(name.to_owned(), json!("-"));
        }
        let answer = ground.send(whole, &body).await;
        assert_eq!(answer.slug(), format!("{first}_required"), "{}", answer.body);
        assert_eq!(paths(answer, first), all);
    }
    // Where the slug says it all, there is no more to say.
    let answer = ground.send(authorize, &without(authorize, &["/idempotency_key"])).await;
    let told = answer.refused(400, "idempotency_key_required");
    assert_eq!(told.get("details"), None, "{told}");
}
