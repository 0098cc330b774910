//! Tests that no caller can read or change objects of other owners: ids of others get the same response as unknown ids,
//! and nothing is stored.
//!
//! Declare each new path parameter, query parameter and id in a body here.

use crate::access::{Route, STATED_LATER, routes, world_with_everything};
use crate::bodies::Ground;
use crate::forms::{Browser, PageForm};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::Timestamp;
use purser_local::{DEMO_OWNER, DEMO_STRANGER, openapi};
use purser_tests::{Person, Rows, TestAgent, World, as_repeated, body_of, dollars, fresh_key, plain, unpaid};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Path parameters that name an object of an agent or owner.
const OWNED: [&str; 12] = [
    "agentId",
    "approvalId",
    "backtestId",
    "deliveryId",
    "id",
    "keyId",
    "ruleId",
    "sessionId",
    "settlementId",
    "templateName",
    "transactionId",
    "webhookId",
];
/// Path parameters that name a shared object, or that only operators use.
const SHARED: [&str; 4] = ["operationId", "person", "serviceId", "version"];
/// Query parameters that name no object of an agent.
const FILTERS: [&str; 30] = [
    "agent",
    "archived",
    "by",
    "category",
    "changed",
    "compared_with",
    "days",
    "edit_reason",
    "estimate",
    "from",
    "kind",
    "label",
    "limit",
    "max_amount_units",
    "min_amount_units",
    "outflows",
    "pay_to",
    "person_id",
    "preview",
    "q",
    "reason",
    "refused",
    "result",
    "service_id",
    "slug",
    "status",
    // Templates are found only among the caller's templates.
    "template",
    "to",
    "trust_status",
    "wait_seconds",
];
/// Body fields that name an object.
const REFERENCES: [&str; 10] = [
    "approval_id",
    "approval_ids",
    "idempotency_key",
    "payment_response_header",
    "replay_key",
    "tx_hash",
    // `people/raises.rs` tests decisions of other agents.
    "transaction_id",
    // Names in the catalog, which all callers share.
    "operation_id",
    "service_id",
    "trust_status",
];
/// The id of a user who owns nothing.
const NOBODY: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";
const LISTS: [&str; 3] = ["approvals", "decisions", "settlements"];

/// Returns the body that attaches a shadow policy.
fn shadow() -> Value {
    json!({"policies": [{"service_id": "lab-search", "max_per_day_units": dollars(999)}]})
}

type Names = BTreeMap<&'static str, String>;
type Headers = Vec<(&'static str, String)>;

/// An agent, its owner, and an object of every kind.
struct Home {
    owner: Person,
    agent: TestAgent,
    names: Names,
    /// A pending approval request of the agent.
    question: Value,
    /// The transaction of a payment that is not completed.
    hash: String,
}

impl Home {
    async fn new(world: &World, owner: &Person, name: &str) -> Self {
        let agent = world.agent_of(owner, name).await;
        let edit =
            async |method, below: &str, body: Value| world.person_edits(owner, method, &agent.path(below), &body).await;
        let tight = json!({"max_per_call_units": dollars(100), "require_approval_above_units": dollars(5)});
        edit(Method::PATCH, "/services/lab-search", tight).await.ok();
        let daily = json!({"max_per_day_units": dollars(1_000)});
        edit(Method::PATCH, "/services/lab-search", daily).await.ok();
        let rule = json!({"kind": "category_block", "categories": ["finance"]});
        let rule = edit(Method::POST, "/rules", rule).await.created();
        edit(Method::PUT, "/shadow", shadow()).await.ok();
        // A second payment, so that every list has two items.
        world.authorize(&agent, &body_of(world.offer(1))).await.ok();
        let paid = world.authorize(&agent, &body_of(world.offer(dollars(1)))).await.ok();
        let question = body_of(world.offer(dollars(6)));
        let other = body_of(world.offer(dollars(7)));
        world.authorize(&agent, &other).await.refused(402, "approval_required");
        let asked = world
            .authorize(&agent, &question)
            .await
            .refused(402, "approval_required");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (webhook, delivery) = world.webhook_of(owner).await;
        let template = format!("of-{}", agent.id);
        let path = format!("/policy-templates/{template}");
        let limits = json!({"services": {"lab-search": {"max_per_day_units": dollars(999)}}});
        let made = world.persons_request(owner, Method::PUT, &path).json(&limits);
        World::send(made).await.created();
        let names = [
            ("backtestId", world.backtest_of(owner).await),
            ("webhookId", webhook),
            ("deliveryId", delivery),
            ("agentId", agent.id.to_string()),
            ("approvalId", text(&asked["approval_id"])),
            ("id", text(&asked["approval_id"])),
            ("keyId", agent.key_id().to_owned()),
            ("person", NOBODY.to_owned()),
            ("ruleId", text(&rule["rule_id"])),
            (
                "operationId",
                world.service("lab-search").await.operations[0].id.to_string(),
            ),
            ("serviceId", "lab-search".to_owned()),
            // The version of the policy and of the agent.
            ("version", "3".to_owned()),
            ("sessionId", world.newest_session(owner).await),
            ("settlementId", text(&paid["settlement_id"])),
            ("transactionId", text(&asked["transaction_id"])),
            ("templateName", template),
        ];
        Self {
            owner: owner.clone(),
            hash: world.settle(&paid).await,
            names: names.into(),
            question,
            agent,
        }
    }

    fn session(&self) -> Headers {
        let token = format!("Bearer {}", self.owner.token);
        vec![("authorization", token), ("if-match", "*".to_owned())]
    }

    fn key(&self) -> Headers {
        vec![("authorization", format!("Bearer {}", self.agent.key))]
    }

    /// Returns texts that other callers must never see.
    fn marks(&self) -> Vec<&str> {
        let names = self.names.iter().filter(|(name, _)| !SHARED.contains(name));
        let names = names.map(|(_, value)| value.as_str());
        names.chain([self.agent.wallet.as_str(), self.hash.as_str()]).collect()
    }
}

/// Two agents of one owner, and an agent of another owner.
struct Town {
    world: World,
    first: Home,
    second: Home,
    elsewhere: Home,
}

impl Town {
    async fn start() -> Self {
        Self::new(World::start().await).await
    }

    async fn new(world: World) -> Self {
        let (owner, stranger) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
        for user in [&DEMO_OWNER, &DEMO_STRANGER] {
            world.browser_session(user).await;
        }
        Self {
            first: Home::new(&world, &owner, "first").await,
            second: Home::new(&world, &owner, "second").await,
            elsewhere: Home::new(&world, &stranger, "elsewhere").await,
            world,
        }
    }

    async fn tables(&self) -> [Rows; 3] {
        let world = &self.world;
        [
            world.rows_of("LedgerTable").await,
            world.rows_of("DecisionsTable").await,
            world.rows_of("CatalogTable").await,
        ]
    }

    async fn is_as_it_was(&self, before: &[Rows; 3]) {
        for (is, was) in self.tables().await.iter().zip(before) {
            assert_eq!(is.changes_since(was), Vec::<String>::new());
        }
    }

    async fn send(&self, method: &Method, path: &str, headers: &Headers, body: Option<&Value>) -> Response {
        let url = format!("{}{path}", self.world.stack.base_url);
        let mut request = self.world.http.request(method.clone(), url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let mut headers = answer.headers().clone();
        let id = headers.remove("x-request-id").unwrap();
        for name in ["date", "x-amzn-trace-id"] {
            headers.remove(name);
        }
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value:?}"));
        Response {
            status: answer.status().as_u16(),
            headers: headers.collect(),
            text: answer.text().await.unwrap().replace(id.to_str().unwrap(), ""),
        }
    }

    /// Asserts that a request with other owners' ids gets the response to unknown ids.
    async fn is_nothing(
        &self,
        route: &Route,
        headers: &Headers,
        theirs: &Names,
        nobodys: &Names,
        body: Option<&Value>,
    ) {
        let asked = format!("{} {}", route.method, path_of(route, theirs));
        let told = self.send(&route.method, &path_of(route, theirs), headers, body).await;
        told.refused(404, "not_found", &asked);
        let unknown = self.send(&route.method, &path_of(route, nobodys), headers, body).await;
        assert_eq!(told, unknown, "{asked}");
    }

    /// Calls every route with ids of `theirs`, also combined with the caller's ids. Returns the number of calls.
    async fn walk(&self, scheme: &str, caller: &Headers, own: &Home, theirs: &Home) -> usize {
        let mut walked = 0;
        let owns_both = scheme == "session" && own.owner.token == theirs.owner.token;
        // An owner may use all of their agents.
        let opens = |route: &&Route| {
            route.scheme.as_deref() == Some(scheme) || (scheme == "session" && route.takes_both && !owns_both)
        };
        for route in routes().iter().filter(opens) {
            let body = body_for(route, theirs);
            let body = body.as_ref();
            let named = route.names();
            let with = |base: &Names, name: &str, value: &str| {
                let mut names = base.clone();
                *names.get_mut(name).unwrap() = value.to_owned();
                names
            };
            for name in named.iter().filter(|name| OWNED.contains(name)) {
                // In a path without an agent, an object belongs to the owner.
                let is_owners =
                    ["agentId", "backtestId", "sessionId", "webhookId"].contains(name) || !named.contains(&"agentId");
                if is_owners && owns_both {
                    continue;
                }
                let theirs = &theirs.names[name];
                let (mixed, unknown) = (with(&own.names, name, theirs), with(&own.names, name, &unlike(theirs)));
                self.is_nothing(route, caller, &mixed, &unknown, body).await;
                walked += 1;
            }
            if named.contains(&"agentId") && !owns_both {
                let nobodys = theirs.names.iter().map(|(name, value)| (*name, unlike(value)));
                self.is_nothing(route, caller, &theirs.names, &nobodys.collect(), body)
                    .await;
                walked += 1;
            }
        }
        walked
    }
}

/// A response without its request id.
#[derive(Debug, PartialEq)]
struct Response {
    status: u16,
    headers: BTreeSet<String>,
    text: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    #[track_caller]
    fn refused(&self, status: u16, slug: &str, asked: &str) {
        assert_eq!(
            (self.status, &self.json()["error"]),
            (status, &json!(slug)),
            "{asked}: {self:?}"
        );
    }

    #[track_caller]
    fn says_nothing_of(&self, home: &Home, asked: &str) {
        for mark in home.marks() {
            assert!(!self.text.contains(mark), "{asked} tells {mark}: {}", self.text);
        }
    }
}

fn path_of(route: &Route, names: &Names) -> String {
    let filled = |path: String, name: &&str| path.replace(&format!("{{{name}}}"), &names[name]);
    route.names().iter().fold(route.path.clone(), filled)
}

/// Returns an unknown id of the same form.
fn unlike(id: &str) -> String {
    let (rest, last) = id.split_at(id.len() - 1);
    format!("{rest}{}", if last == "e" { "f" } else { "e" })
}

/// A run may not outlive its opener, which another route rotates.
fn in_seconds(seconds: u64) -> String {
    let now = u64::try_from(chrono::Utc::now().timestamp()).unwrap();
    Timestamp::from_secs(now + seconds).unwrap().to_string()
}

/// Returns a valid body for a route.
fn body_for(route: &Route, home: &Home) -> Option<Value> {
    let body = match (route.method.as_str(), route.path.as_str()) {
        ("POST", "/agents") | ("PATCH", "/agents/{agentId}") => json!({"name": "renamed"}),
        ("POST", "/agents/bulk") => {
            json!({"act": "freeze", "agents": {"kind": "ids", "ids": [home.agent.id.to_string()]}})
        }
        ("POST", "/agents/{agentId}/keys/{keyId}/rotate") => json!({"overlap_seconds": 60}),
        ("POST", "/agents/{agentId}/rules") | ("PUT", "/agents/{agentId}/rules/{ruleId}") => {
            json!({"kind": "category_block", "categories": ["data"]})
        }
        ("POST", "/agents/{agentId}/services") => json!({"service_id": "lab-reports"}),
        ("PATCH", "/agents/{agentId}/services") => json!({
            "max_per_call_units": 1, "max_per_day_units": 2, "require_approval_above_units": 1,
        }),
        ("PATCH", "/agents/{agentId}/services/{serviceId}") => json!({"max_per_call_units": 1}),
        (
            "POST",
            "/agents/{agentId}/approvals/{approvalId}/approve"
            | "/agents/{agentId}/approvals/{approvalId}/reject"
            | "/agents/{agentId}/approvals/{approvalId}/withdraw",
        ) => {
            json!({"note": "mine"})
        }
        ("POST", "/approvals/bulk") => json!({"decision": "reject", "approval_ids": [home.names["approvalId"]]}),
        ("PUT", "/internal/agents/{agentId}/handover") => json!({"to": NOBODY, "reason": "a test"}),
        ("PUT", path) if path.starts_with("/internal/freezes/") => json!({"reason": "a test"}),
        ("POST", "/webhooks") | ("PUT", "/webhooks/{webhookId}") => json!({"url": "https://hooks.example.invalid/"}),
        ("POST", "/backtests") => json!({"agents": {"kind": "ids", "ids": [home.agent.id.to_string()]}}),
        ("PUT", "/agents/{agentId}/shadow") => shadow(),
        ("PUT", "/policy-templates/{templateName}") => json!({"rules": []}),
        ("POST", "/policy-templates/{templateName}/apply") => json!({"overrides": "keep"}),
        ("PUT", "/notices") => json!({"mail": {"enabled": false}}),
        ("POST", "/agents/{agentId}/keys") => json!({}),
        ("POST", "/agents/{agentId}/runs") => json!({"limit_units": 1, "expires_at": in_seconds(30)}),
        ("PUT", "/agents/{agentId}/payout-address") => json!({"address": "0x90F79bf6EB2c4f870365E785982E1f101E93b906"}),
        ("POST", "/agents/{agentId}/payouts") => json!({"amount_units": 1, "idempotency_key": "payout"}),
        ("POST", "/x402/authorize") => home.question.clone(),
        ("POST", "/x402/check") => {
            let mut body = home.question.clone();
            body.as_object_mut().unwrap().remove("idempotency_key");
            body["replay_key"] = fresh_key().into();
            body
        }
        ("POST", "/x402/check/unpaid") => unpaid(&home.question),
        ("POST", "/x402/raises") => json!({
            "transaction_id": home.names["transactionId"], "max_per_call_units": dollars(200), "reason": "mine",
            "until": "2026-12-31T23:59:59Z",
        }),
        ("POST", "/x402/settlements/{settlementId}/complete") => {
            json!({"payment_response_header": "e30=", "tx_hash": home.hash})
        }
        _ => {
            let takes_one = route.operation.get("requestBody").is_some();
            assert!(
                !takes_one,
                "{} {} has a body that this test does not know",
                route.method, route.path
            );
            return None;
        }
    };
    Some(body)
}

/// Every parameter and body field that may name an object must be declared in this file.
#[test]
fn isolation_tests_cover_every_request_parameter() {
    let known: BTreeSet<&str> = OWNED.into_iter().chain(SHARED).collect();
    for route in routes() {
        let asked = format!("{} {}", route.method, route.path);
        assert!(
            route.names().iter().all(|name| known.contains(name)),
            "{asked}: whose is it?"
        );
        let parameters = route.operation["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().unwrap();
            let is_known = FILTERS.contains(&name) || ["agent_id", "cursor"].contains(&name);
            assert!(is_known, "{asked}: whose is {name}?");
        }
    }
    // The fields that may name an object, by the ends of their names.
    let document: Value = serde_json::from_str(&openapi().unwrap()).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let bodies = schemas
        .iter()
        .filter(|(name, _)| name.ends_with("Body") && *name != "ErrorBody");
    let members = bodies.flat_map(|(_, schema)| schema["properties"].as_object().into_iter().flatten());
    let members = members.map(|(name, _)| name.as_str());
    let names_something = |name: &&str| {
        let ends = ["_id", "_ids", "_key", "_hash", "_header", "_status"];
        ends.iter().any(|end| name.ends_with(end))
    };
    let members: BTreeSet<&str> = members.filter(names_something).collect();
    assert_eq!(members, REFERENCES.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_missing_objects_get_identical_responses() {
    let town = Town::start().await;
    let (before, audit) = (town.tables().await, town.world.rows_of("AuditTable").await);
    let (first, second, elsewhere) = (&town.first, &town.second, &town.elsewhere);
    for theirs in [second, elsewhere] {
        assert!(town.walk("agentKey", &first.key(), first, theirs).await >= 9);
    }
    assert!(town.walk("session", &elsewhere.session(), elsewhere, first).await >= 50);
    assert!(town.walk("session", &first.session(), first, second).await >= 9);
    town.is_as_it_was(&before).await;
    let rows = town.world.rows_of("AuditTable").await;
    assert_eq!(rows.changes_since(&audit), Vec::<String>::new());

    let operator = vec![("x-internal-token", town.world.stack.internal_token.clone())];
    // The owner's calls succeed, which proves that the paths are valid. Routes that remove an object come last.
    let mut all = routes();
    all.sort_by_key(|route| {
        let restores = route.path.contains("{version}");
        let promotes = route.path.ends_with("/promote");
        let is_removal = route.method == Method::DELETE && !route.path.ends_with("/runs/{keyId}");
        (route.method != Method::GET, !restores, !promotes, is_removal)
    });
    for route in all
        .iter()
        .filter(|route| route.names().iter().any(|name| OWNED.contains(name)))
    {
        let asked = format!("{} {}", route.method, route.path);
        let (headers, others): (_, &[&Home]) = match route.scheme.as_deref() {
            Some("agentKey") => (second.key(), &[first, elsewhere]),
            Some("internalToken") => (operator.clone(), &[first, elsewhere]),
            _ => (second.session(), &[elsewhere]),
        };
        let path = path_of(route, &second.names);
        let told = town
            .send(&route.method, &path, &headers, body_for(route, second).as_ref())
            .await;
        let waits = path.ends_with("/reject") || path.ends_with("/payouts");
        let fine = match waits {
            true => 409,
            // The key in the path is no run's key.
            false if route.path == STATED_LATER || route.path.ends_with("/runs/{keyId}") => 404,
            false => 202,
        };
        assert!(told.status <= 201 || told.status == fine, "{asked}: {told:?}");
        for other in others {
            told.says_nothing_of(other, &asked);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wrong_credential_type_reveals_no_ids() {
    let town = Town::start().await;
    let before = town.tables().await;
    let operator = vec![("x-internal-token", town.world.stack.internal_token.clone())];
    let (key, session, nothing) = (town.first.key(), town.first.session(), Headers::new());
    let nobodys: Names = town
        .first
        .names
        .iter()
        .map(|(name, value)| (*name, unlike(value)))
        .collect();
    for route in routes() {
        let wrong: [(&Headers, &str); 2] = match route.scheme.as_deref() {
            // The route also accepts the owner's session.
            Some("agentKey") if route.takes_both => [(&operator, "invalid_agent_key"), (&nothing, "invalid_agent_key")],
            Some("agentKey") => [
                (&session, "invalid_authorization_header"),
                (&operator, "invalid_agent_key"),
            ],
            Some("session") => [(&key, "invalid_session"), (&operator, "invalid_session")],
            Some("internalToken") => [(&key, "invalid_internal_token"), (&session, "invalid_internal_token")],
            _ => continue,
        };
        let body = match route.scheme.as_deref() {
            Some("internalToken") => None,
            _ => body_for(&route, &town.first),
        };
        for (caller, slug) in wrong {
            let path = path_of(&route, &town.first.names);
            let told = town.send(&route.method, &path, caller, body.as_ref()).await;
            told.refused(401, slug, &format!("{} {path}", route.method));
            let path = path_of(&route, &nobodys);
            let unknown = town.send(&route.method, &path, caller, body.as_ref()).await;
            assert_eq!(told, unknown, "{} {path}", route.method);
        }
    }
    town.is_as_it_was(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_contain_no_data_of_other_users() {
    let town = Town::start().await;
    let (first, second, elsewhere) = (&town.first, &town.second, &town.elsewhere);
    let asks = routes()
        .into_iter()
        .filter(|route| route.takes("cursor") || route.takes("agent_id"));
    // Operators can list everything. `people::audit` tests the audit log.
    let asks = asks
        .map(|route| route.path)
        .filter(|path| !path.ends_with("/audit-log") && !path.contains('{'));
    let asks: BTreeSet<String> = asks.collect();
    // The list of agents has no filter `agent_id`.
    let walked = LISTS.into_iter().chain(["agents"]);
    assert_eq!(
        asks,
        walked.map(|list| format!("/{list}")).collect(),
        "a list that is not walked"
    );
    let get = async |path: String, headers: &Headers| town.send(&Method::GET, &path, headers, None).await;
    for list in LISTS {
        let agent = &first.names["agentId"];
        let told = get(format!("/{list}?agent_id={agent}"), &elsewhere.session()).await;
        let unknown = get(format!("/{list}?agent_id={}", unlike(agent)), &elsewhere.session()).await;
        assert_eq!(told, unknown, "{list}");
        told.says_nothing_of(first, list);

        // A cursor of another user's list selects a position in the caller's own list.
        for (owner, of) in [(first, ""), (second, &*format!("&agent_id={}", second.agent.id))] {
            let page = get(format!("/{list}?limit=1{of}"), &owner.session()).await.json();
            let cursor = page["next_cursor"]
                .as_str()
                .unwrap_or_else(|| panic!("{list}{of} has a second page"));
            let told = get(format!("/{list}?cursor={cursor}"), &elsewhere.session()).await;
            assert_eq!(told.status, 200, "{told:?}");
            let next = get(format!("/{list}?cursor={}", unlike(cursor)), &elsewhere.session()).await;
            assert_eq!(told, next, "{list}: a place is a place, whoever was there");
            for other in [first, second] {
                told.says_nothing_of(other, list);
            }
            let told = get(format!("/{list}?cursor={cursor}&agent_id={agent}"), &first.session()).await;
            assert_eq!(told.status, 200, "{told:?}");
            told.says_nothing_of(second, list);
        }
        let own = get(format!("/{list}"), &elsewhere.session()).await;
        assert!(own.json()["count"].as_u64().unwrap() >= 2, "{own:?}");
        for other in [first, second] {
            own.says_nothing_of(other, list);
        }
    }
    let agents = get("/agents".to_owned(), &elsewhere.session()).await;
    assert_eq!(agents.json()["count"], 1);
    let page = get("/agents?limit=1".to_owned(), &first.session()).await.json();
    let cursor = page["next_cursor"].as_str().expect("a second page");
    let told = get(format!("/agents?cursor={cursor}"), &elsewhere.session()).await;
    assert_eq!(told.status, 200, "{told:?}");
    for other in [first, second] {
        told.says_nothing_of(other, "agents");
    }
}

/// Returns the text with unknown ids of the same form.
fn with_unknown(text: &str, ids: &[String]) -> String {
    ids.iter()
        .fold(text.to_owned(), |text, id| text.replace(id, &unlike(id)))
}

/// Sends every body with another user's ids and with unknown ids: the responses are equal and nothing is stored.
#[tokio::test(flavor = "multi_thread")]
async fn actions_on_foreign_and_unknown_ids_write_no_row() {
    let ground = Ground::new().await;
    let world = &ground.world;
    let stranger = world.person(&DEMO_STRANGER);
    let mut ids: Vec<String> = ground.named.iter().map(|(_, id)| id.clone()).collect();
    ids.retain(|id| id.len() >= 32);
    ids.push(ground.agent.key_id().to_owned());
    let agents = json!({"kind": "ids", "ids": [ground.agent.id.to_string()]});
    let before = [world.rows_of("LedgerTable").await, world.rows_of("AuditTable").await];
    let mut count = 0;
    for whole in ground
        .wholes
        .iter()
        .filter(|whole| !whole.path.starts_with("/internal/"))
    {
        let mut body = whole.body.clone();
        if body.get("agents").is_some_and(Value::is_object) {
            body["agents"] = agents.clone();
        }
        let names = |text: &str| ids.iter().any(|id| text.contains(id));
        // A new webhook gets only events of the caller's agents, even if it names another owner's agent.
        if whole.path.starts_with("/x402/")
            || whole.route == "/webhooks"
            || !names(&whole.path) && !names(&body.to_string())
        {
            continue;
        }
        let unknown = serde_json::from_str(&with_unknown(&body.to_string(), &ids)).unwrap();
        let path = with_unknown(&whole.path, &ids);
        let foreign = world
            .person_edits(&stranger, whole.method.clone(), &whole.path, &body)
            .await;
        let unknown = world
            .person_edits(&stranger, whole.method.clone(), &path, &unknown)
            .await;
        assert_eq!(
            foreign.status, unknown.status,
            "{} {body}: {}",
            whole.path, foreign.body
        );
        assert!(
            !foreign.body.to_string().contains("\"done\""),
            "{} {body}: {}",
            whole.path,
            foreign.body
        );
        count += 1;
    }
    assert!(count >= 25, "only {count} bodies: is this test still looking?");
    for (is, was) in [world.rows_of("LedgerTable").await, world.rows_of("AuditTable").await]
        .iter()
        .zip(&before)
    {
        assert_eq!(is.changes_since(was), Vec::<String>::new());
    }
}

/// Submits every form with another user's ids and with unknown ids: the responses are equal and nothing is stored.
#[tokio::test(flavor = "multi_thread")]
async fn forms_with_foreign_and_unknown_ids_write_no_row() {
    let (world, names) = world_with_everything().await;
    let owner = Browser::start(&world, world.browser_session(&DEMO_OWNER).await).await;
    let stranger = Browser::start(&world, world.browser_session(&DEMO_STRANGER).await).await;
    let ids = names.iter().filter(|(name, id)| OWNED.contains(name) && id.len() >= 32);
    let mut ids: Vec<String> = ids.map(|(_, id)| id.clone()).collect();
    ids.push(names["keyId"].clone());
    let forms = owner.forms().await;
    let named = forms.iter().filter(|form| {
        let mut texts = form.fields.values().chain([&form.action]);
        texts.any(|text| ids.iter().any(|id| text.contains(id)))
    });
    // The rows of sessions contain the time of the last use, which changes.
    let ledger = async || {
        let mut rows = world.scan("LedgerTable").await;
        rows.iter_mut().for_each(|row| drop(row.remove("seen")));
        let mut rows: Vec<String> = rows.into_iter().map(|row| plain(&AttributeValue::M(row))).collect();
        rows.sort();
        rows
    };
    let (before, audit) = (ledger().await, world.rows_of("AuditTable").await);
    let mut actions = BTreeSet::new();
    for form in named {
        let fields = form.fields.iter();
        let unknown = PageForm {
            action: with_unknown(&form.action, &ids),
            fields: fields
                .map(|(name, value)| (with_unknown(name, &ids), with_unknown(value, &ids)))
                .collect(),
            ..form.clone()
        };
        let (foreign, unknown) = (stranger.post(form).await, stranger.post(&unknown).await);
        assert_eq!(foreign.status(), unknown.status(), "{form:?}");
        actions.insert(form.action.clone());
    }
    assert!(actions.len() >= 25, "only {actions:?}: is this test still looking?");
    assert_eq!(ledger().await, before);
    assert_eq!(
        world.rows_of("AuditTable").await.changes_since(&audit),
        Vec::<String>::new()
    );
}

/// A bulk decision finds only the caller's approvals, even if other agents requested the same call.
#[tokio::test(flavor = "multi_thread")]
async fn bulk_decisions_find_no_approvals_of_other_users() {
    let town = Town::start().await;
    let theirs = &town.elsewhere.names["approvalId"];
    let before = town.tables().await;
    for decision in ["approve", "reject"] {
        let ids = [theirs.clone(), unlike(theirs)];
        let body = json!({"decision": decision, "approval_ids": ids});
        let session = town.first.session();
        let told = town.send(&Method::POST, "/approvals/bulk", &session, Some(&body)).await;
        let outcomes = ids.map(|id| json!({"approval_id": id, "outcome": "not_found", "status": null}));
        assert_eq!(told.json(), json!({"decided": 0, "outcomes": outcomes}));
    }
    town.is_as_it_was(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_agents_cannot_use_an_approval() {
    let town = Town::start().await;
    let (world, first) = (&town.world, &town.first);
    for (theirs, approve) in [(&town.second, false), (&town.elsewhere, false), (&town.second, true)] {
        let approval = &theirs.names["approvalId"];
        if approve {
            let path = theirs.agent.path(&format!("/approvals/{approval}/approve"));
            world
                .person_edits(&theirs.owner, Method::POST, &path, &json!({}))
                .await
                .ok();
        }
        let before = town.tables().await;
        for key in [theirs.question["idempotency_key"].clone(), fresh_key().into()] {
            let mut body = theirs.question.clone();
            body["idempotency_key"] = key;
            body["approval_id"] = json!(approval);
            let told = town
                .send(&Method::POST, "/x402/authorize", &first.key(), Some(&body))
                .await;
            told.refused(404, "not_found", "another agent's approval");
            body["approval_id"] = json!(unlike(approval));
            let unknown = town
                .send(&Method::POST, "/x402/authorize", &first.key(), Some(&body))
                .await;
            assert_eq!(told, unknown);
        }
        town.is_as_it_was(&before).await;
    }
    let mut body = town.second.question.clone();
    body["approval_id"] = json!(town.second.names["approvalId"]);
    world.authorize(&town.second.agent, &body).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_idempotency_keys_of_two_agents_are_independent() {
    let world = World::start().await;
    let (owner, stranger) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
    let agents = [
        world.agent_of(&owner, "first").await,
        world.agent_of(&owner, "second").await,
        world.agent_of(&stranger, "elsewhere").await,
    ];
    let body = body_of(world.offer(dollars(1)));
    let mut other = body.clone();
    other["max_payment_units"] = json!(dollars(2));
    let mut paid = Vec::new();
    for agent in &agents {
        let first = world.authorize(agent, &body).await;
        assert!(!first.headers.contains_key("idempotent-replayed"), "{}", first.body);
        paid.push(first.ok());
    }
    for (agent, paid) in agents.iter().zip(&paid) {
        let again = world.authorize(agent, &body).await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(as_repeated(&again.ok()), as_repeated(paid));
        let reused = world.authorize(agent, &other).await;
        let reused = reused.refused(409, "idempotency_key_reused_for_different_request");
        assert_eq!(reused["settlement_id"], paid["settlement_id"]);
    }
    for name in ["settlement_id", "transaction_id", "wallet_address"] {
        let all: BTreeSet<&str> = paid.iter().map(|paid| paid[name].as_str().unwrap()).collect();
        assert_eq!(all.len(), agents.len(), "{name}");
    }

    let mut body = body;
    body.as_object_mut().unwrap().remove("idempotency_key");
    body["replay_key"] = fresh_key().into();
    let mut other = body.clone();
    other["max_payment_units"] = json!(1);
    let [first, second, _] = &agents;
    let allowed = world.post(first, "/x402/check", &body).await.ok();
    let blocked = world.post(second, "/x402/check", &other).await.ok();
    assert_eq!(
        (&allowed["result"], &blocked["result"]),
        (&json!("allow"), &json!("block"))
    );
    assert_eq!(world.post(first, "/x402/check", &body).await.ok(), allowed);
    world
        .post(second, "/x402/check", &body)
        .await
        .refused(409, "idempotency_key_reused_for_different_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_never_complete_settlements_of_other_agents() {
    let town = Town::start().await;
    let world = &town.world;
    let complete = async |home: &Home, hash: &str| {
        let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
        world.complete(&home.agent, &home.names["settlementId"], &proof).await
    };
    // The proof is a final transaction of another agent, with the same amount and payee.
    for (mine, theirs) in [(&town.first, &town.second), (&town.elsewhere, &town.first)] {
        let before = town.tables().await;
        let refused = complete(mine, &theirs.hash).await;
        let refused = refused.refused(422, "onchain_settlement_not_verified");
        assert_eq!(refused["retryable"], false, "{refused}");
        town.is_as_it_was(&before).await;
    }
    // The rejected proofs claimed nothing.
    for home in [&town.first, &town.second, &town.elsewhere] {
        let row = complete(home, &home.hash).await.ok();
        assert_eq!(
            (&row["receipt_status"], &row["tx_hash"]),
            (&json!("confirmed"), &json!(home.hash))
        );
    }
    complete(&town.first, &town.elsewhere.hash)
        .await
        .refused(409, "settlement_transaction_already_used");
}

/// Returns the response of a route, and the names of its database calls.
async fn work(town: &Town, route: &Route, names: &Names, key: &str, body: Option<&Value>) -> (Response, Vec<String>) {
    let calls = town.world.proxy.as_ref().unwrap().calls();
    calls.take();
    let headers = vec![("authorization", format!("Bearer {key}"))];
    let told = town.send(&route.method, &path_of(route, names), &headers, body).await;
    let mut calls: Vec<String> = calls.take().into_iter().map(|call| call.operation).collect();
    calls.sort();
    (told, calls)
}

/// The response time depends on the database calls, which are equal for all invalid keys.
#[tokio::test(flavor = "multi_thread")]
async fn all_invalid_keys_get_the_same_response_and_database_calls() {
    let town = Town::new(World::watched().await).await;
    let (world, home) = (&town.world, &town.first);
    // An agent with budgets takes additional reads, so an existing agent could be distinguished from an unknown one.
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(1_000), "window_seconds": 86_400});
    let edit = async |method, below: &str, body: Value| {
        world
            .person_edits(&home.owner, method, &home.agent.path(below), &body)
            .await
    };
    edit(Method::POST, "/rules", budget).await.created();
    let ended = edit(Method::POST, "/keys", json!({})).await.created();
    let below = format!("/keys/{}", ended["key_id"].as_str().unwrap());
    edit(Method::DELETE, &below, json!({})).await.ok();

    let good = home.agent.key.as_str();
    let (public, secret) = good.split_once(':').unwrap();
    let nobody = unlike(&town.elsewhere.agent.id.uuid().simple().to_string());
    let number = home.agent.key_id();
    let wrong = [
        ("another secret", unlike(good)),
        (
            "another agent's secret",
            format!("{public}:{}", town.second.agent.key.split_once(':').unwrap().1),
        ),
        ("another number", format!("{}:{secret}", unlike(public))),
        ("an ended key", ended["key"].as_str().unwrap().to_owned()),
        ("no such agent", format!("gak_pub_{nobody}{number}:{secret}")),
    ];
    let mut work_for_nobody = Vec::new();
    for route in routes()
        .iter()
        .filter(|route| route.scheme.as_deref() == Some("agentKey"))
    {
        let asked = format!("{} {}", route.method, route.path);
        let body = body_for(route, home);
        let mut seen = Vec::new();
        for (why, key) in &wrong {
            let (told, calls) = work(&town, route, &home.names, key, body.as_ref()).await;
            told.refused(401, "invalid_agent_key", &format!("{asked}, {why}"));
            assert!(!calls.is_empty(), "{asked}: is anybody counting?");
            seen.push((*why, told, calls));
        }
        let (_, told, calls) = &seen[0];
        for (why, other, others) in &seen {
            assert_eq!((other, others), (told, calls), "{asked}, {why}");
        }
        work_for_nobody.push((route.clone(), calls.clone()));
    }
    // A valid key causes more reads, which proves that the comparison can find a difference.
    let mut told_apart = 0;
    for (route, for_nobody) in work_for_nobody {
        let body = body_for(&route, home);
        let (told, calls) = work(&town, &route, &home.names, good, body.as_ref()).await;
        assert_ne!(told.status, 401);
        told_apart += usize::from(calls != for_nobody);
    }
    assert!(told_apart >= 4, "{told_apart}");
}
