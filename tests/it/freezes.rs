//! Tests freezes by operators. `people/edits.rs` tests freezes by the owner.

use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{
    AgentId, FreezeChange, FreezeTarget, Freezes, OperatorFreeze, OperatorName, OperatorReason, UserId,
};
use purser_local::{DEMO_OWNER, DEMO_STRANGER};
use purser_store::ChangeFreezeResult;
use purser_tests::{
    Answer, Person, TestAgent, World, as_repeated, authorizing, body_of, completing, dollars, fresh_key, measure,
    together,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The number of copies of the operators' freezes.
const COPIES: u8 = 4;

/// Returns the number of the copy that the agent's decisions read.
fn copy_of(agent: &TestAgent) -> u8 {
    agent.id.uuid().into_bytes()[15] % COPIES
}

/// Creates an agent for each copy of the operators' freezes.
async fn one_of_each(world: &World, owner: &Person) -> Vec<TestAgent> {
    let mut agents: Vec<TestAgent> = Vec::new();
    while agents.len() < usize::from(COPIES) {
        let agent = world.agent_of(owner, "buyer").await;
        if agents.iter().all(|known| copy_of(known) != copy_of(&agent)) {
            agents.push(agent);
        }
    }
    agents
}

async fn person_id(world: &World, person: &Person) -> String {
    let listed = world.person_gets(person, "/sessions").await.ok();
    listed["person"].as_str().unwrap().to_owned()
}

fn at(target: &str) -> String {
    format!("/internal/freezes/{target}")
}

async fn freeze(world: &World, target: &str) -> Answer {
    let why = json!({"reason": "reported stolen"});
    World::send(world.operators_request(Method::PUT, &at(target)).json(&why)).await
}

async fn unfreeze(world: &World, target: &str) -> Answer {
    World::send(world.operators_request(Method::DELETE, &at(target))).await
}

#[track_caller]
fn is_refused(answer: Answer, reason: &str) {
    let told = answer.refused(403, "policy_blocked");
    assert_eq!(told["decision"]["reason"], reason);
    assert_eq!(told["decision"]["rule_triggered"], "agent_frozen");
    assert!(told["message"].as_str().unwrap().contains("operator"), "{told}");
}

/// An agent with an authorized payment, and a request that the owner has approved.
struct Buyer {
    agent: TestAgent,
    body: Value,
    paid: Value,
    approved: Value,
}

impl Buyer {
    async fn new(world: &World, owner: &Person, agent: TestAgent) -> Self {
        let policy = json!({"require_approval_above_units": dollars(5)});
        let path = agent.path("/services/lab-search");
        world.person_edits(owner, Method::PATCH, &path, &policy).await.ok();
        let body = body_of(world.offer(dollars(1)));
        let paid = world.authorize(&agent, &body).await.ok();
        let mut approved = body_of(world.offer(dollars(6)));
        let asked = world
            .authorize(&agent, &approved)
            .await
            .refused(402, "approval_required");
        let path = agent.path(&format!(
            "/approvals/{}/approve",
            asked["approval_id"].as_str().unwrap()
        ));
        world.person_edits(owner, Method::POST, &path, &json!({})).await.ok();
        approved["approval_id"] = asked["approval_id"].clone();
        Self {
            agent,
            body,
            paid,
            approved,
        }
    }

    async fn is_refused_everything(&self, world: &World, reason: &str) {
        let before = world.footprint().await;
        let new = body_of(world.offer(dollars(1)));
        is_refused(world.authorize(&self.agent, &new).await, reason);
        // A replay would return the signed payment.
        is_refused(world.authorize(&self.agent, &self.body).await, reason);
        is_refused(world.authorize(&self.agent, &self.approved).await, reason);
        let foreseen = world.check(&self.agent, &new).await.ok();
        assert_eq!(
            (&foreseen["result"], &foreseen["reason"]),
            (&json!("block"), &json!(reason))
        );
        assert_eq!(world.footprint().await, before);
    }

    async fn is_refused_nothing(&self, world: &World) {
        let again = world.authorize(&self.agent, &self.body).await.ok();
        assert_eq!(as_repeated(&again)["payment"], as_repeated(&self.paid)["payment"]);
        world
            .authorize(&self.agent, &body_of(world.offer(dollars(1))))
            .await
            .ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_freezes_block_every_decision() {
    let world = World::still().await;
    let (owner, stranger) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
    let mut buyers = Vec::new();
    for agent in one_of_each(&world, &owner).await {
        buyers.push(Buyer::new(&world, &owner, agent).await);
    }
    let elsewhere = Buyer::new(&world, &stranger, world.agent_of(&stranger, "other").await).await;
    let id = person_id(&world, &owner).await;

    for buyer in &buyers {
        let target = format!("agents/{}", buyer.agent.id);
        let listed = freeze(&world, &target).await.ok();
        assert_eq!(
            (&listed["count"], &listed["freezes"][0]["scope"]),
            (&json!(1), &json!("agent"))
        );
        assert_eq!(listed["freezes"][0]["owner"], id);
        buyer.is_refused_everything(&world, "agent_frozen:by_operator").await;
        elsewhere.is_refused_nothing(&world).await;
        assert_eq!(unfreeze(&world, &target).await.ok()["count"], 0);
        buyer.is_refused_nothing(&world).await;
    }
    for (target, reason) in [
        (format!("owners/{id}"), "agent_frozen:owner"),
        ("deployment".to_owned(), "agent_frozen:deployment"),
    ] {
        freeze(&world, &target).await.ok();
        // Repeating the freeze changes nothing.
        assert_eq!(freeze(&world, &target).await.ok()["count"], 1);
        for buyer in &buyers {
            buyer.is_refused_everything(&world, reason).await;
        }
        let later = world.agent_of(&owner, "later").await;
        is_refused(world.authorize(&later, &body_of(world.offer(1))).await, reason);
        if target == "deployment" {
            elsewhere.is_refused_everything(&world, reason).await;
        } else {
            elsewhere.is_refused_nothing(&world).await;
        }
        unfreeze(&world, &target).await.ok();
        assert_eq!(unfreeze(&world, &target).await.ok()["count"], 0);
        for buyer in &buyers {
            buyer.is_refused_nothing(&world).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_see_operator_freezes_but_cannot_end_them() {
    let world = World::still().await;
    let owner = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&owner, "buyer").await;
    let buyer = Buyer::new(&world, &owner, agent).await;
    let read = async || world.person_gets(&owner, &buyer.agent.path("")).await.ok();
    assert_eq!(read().await["frozen_by_operators"], Value::Null);
    let target = format!("agents/{}", buyer.agent.id);
    freeze(&world, &target).await.ok();

    let active = json!({"status": "active"});
    let path = buyer.agent.path("");
    let edited = world.person_edits(&owner, Method::PATCH, &path, &active).await.ok();
    let expected = json!({"scope": "agent", "reason": "reported stolen", "frozen_at": world.now().to_string()});
    assert_eq!(edited["frozen_by_operators"], expected);
    assert_eq!(read().await["frozen_by_operators"], expected);
    let listed = world.person_gets(&owner, "/agents").await.ok();
    let frozen = listed["agents"].as_array().unwrap().iter();
    let frozen = frozen.filter(|agent| agent["frozen_by_operators"] == expected);
    assert_eq!(frozen.count(), 1);
    // If the owner and an operator freeze the agent, the response reports the operator's freeze.
    let both = json!({"status": "frozen"});
    world.person_edits(&owner, Method::PATCH, &path, &both).await.ok();
    buyer.is_refused_everything(&world, "agent_frozen:by_operator").await;

    // The payment was signed before the freeze.
    let hash = world.settle(&buyer.paid).await;
    let receipt = completing(&world, &buyer.agent, &buyer.paid, &hash).await.ok();
    assert_eq!(receipt["receipt_status"], "confirmed");
    let path = format!("/x402/settlements/{}", buyer.paid["settlement_id"].as_str().unwrap());
    world.get(&buyer.agent, &path).await.ok();
    world.get(&buyer.agent, "/mcp/agents/me").await.ok();

    unfreeze(&world, &target).await.ok();
    let refused = world.authorize(&buyer.agent, &buyer.body).await;
    let refused = refused.refused(403, "policy_blocked");
    assert_eq!(refused["decision"]["reason"], "agent_frozen");
}

/// A payment whose decision begins after the response to the freeze is denied.
#[tokio::test(flavor = "multi_thread")]
async fn no_payment_is_signed_after_an_operator_freeze() {
    let world = World::conflicted().await;
    let owner = world.person(&DEMO_OWNER);
    let agents = one_of_each(&world, &owner).await;
    let pay = |count: usize| {
        let payers = agents.iter().cycle().take(count);
        payers
            .map(|agent| authorizing(&world, agent, body_of(world.offer(1))))
            .collect()
    };
    let (before, answer) = tokio::join!(together(pay(24)), freeze(&world, "deployment"));
    answer.ok();
    for answer in together(pay(12)).await {
        is_refused(answer, "agent_frozen:deployment");
    }
    for answer in before {
        assert!([200, 403].contains(&answer.status), "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_operator_freezes_is_limited() {
    let world = World::metered().await;
    let owner = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&owner, "buyer").await;
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    let cost = async || {
        let (measured, answer) = measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
        answer.ok();
        measured.units
    };
    let none = cost().await;
    let person = |n: usize| format!("owners/{n:064x}");
    for n in 0..Freezes::MAX {
        let owner = UserId::parse(&format!("{n:064x}")).unwrap();
        let other = AgentId::from_uuid(fresh_key().parse().unwrap());
        for target in [FreezeTarget::Owner(owner), FreezeTarget::Agent(other)] {
            let freeze = OperatorFreeze {
                target,
                reason: OperatorReason::parse("reported stolen").unwrap(),
                by: OperatorName::parse("ann").unwrap(),
                at: world.now(),
                end_asked_by: None,
            };
            let begun = FreezeChange::begin_freeze(None, freeze).unwrap();
            let audit = purser_testkit::sample::audit();
            let changed = world.stack.ledger.change_freeze(&begun, &audit).await.unwrap();
            assert_eq!(changed, ChangeFreezeResult::Stored);
        }
    }
    assert_eq!(cost().await, none);
    let before = world.rows().await;
    freeze(&world, &person(99)).await.refused(409, "too_many_freezes");
    let one_more = format!("agents/{}", agent.id);
    freeze(&world, &one_more).await.refused(409, "too_many_freezes");
    assert_eq!(world.rows().await.changes_since(&before), Vec::<String>::new());
    // An existing freeze can be set again, even at the maximum number.
    freeze(&world, &person(0)).await.ok();
    unfreeze(&world, &person(0)).await.ok();
    freeze(&world, &person(99)).await.ok();
    freeze(&world, "deployment").await.ok();
    is_refused(
        world.authorize(&agent, &body_of(world.offer(1))).await,
        "agent_frozen:deployment",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_freeze_records_block_payments() {
    let world = World::still().await;
    let owner = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&owner, "buyer").await;
    let body = body_of(world.offer(1));
    world.authorize(&agent, &body).await.ok();
    let put = world.stack.db.put_item().table_name("LedgerTable");
    let put = put.item("pk", AttributeValue::S(format!("FREEZES#{}", copy_of(&agent))));
    let put = put.item("sk", AttributeValue::S("#".to_owned()));
    put.item("agents", AttributeValue::S("?".to_owned()))
        .send()
        .await
        .unwrap();
    world.authorize(&agent, &body).await.refused(500, "internal_error");
    world
        .authorize(&agent, &body_of(world.offer(1)))
        .await
        .refused(500, "internal_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn freezes_require_a_valid_reason_and_target() {
    let world = World::still().await;
    let before = world.rows().await;
    for (target, body, status, slug) in [
        ("deployment", json!({}), 400, "reason_required"),
        ("deployment", json!({"reason": ""}), 400, "invalid_request"),
        ("deployment", json!({"reason": "a\nb"}), 400, "invalid_request"),
        ("deployment", json!({"reason": "x".repeat(301)}), 400, "invalid_request"),
        (
            "agents/00000000-0000-0000-0000-000000000000",
            json!({"reason": "x"}),
            404,
            "not_found",
        ),
        ("agents/x", json!({"reason": "x"}), 404, "not_found"),
        ("owners/x", json!({"reason": "x"}), 404, "not_found"),
    ] {
        let put = world.operators_request(Method::PUT, &at(target)).json(&body);
        World::send(put).await.refused(status, slug);
    }
    assert_eq!(world.rows().await.changes_since(&before), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_actions_appear_in_the_owners_audit_log() {
    let world = World::start().await;
    let (owner, stranger) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
    let agent = world.agent_of(&owner, "told").await;
    let (own, other) = (person_id(&world, &owner).await, person_id(&world, &stranger).await);
    let handover = format!("/internal/agents/{}/handover", agent.id);
    let on_agent = format!("agents/{}", agent.id);
    freeze(&world, &on_agent).await.ok();
    unfreeze(&world, &on_agent).await.ok();
    freeze(&world, &format!("owners/{own}")).await.ok();
    unfreeze(&world, &format!("owners/{own}")).await.ok();
    freeze(&world, "deployment").await.ok();
    unfreeze(&world, "deployment").await.ok();
    let offer = json!({"to": other, "reason": "they leave"});
    world.operator_edits(Method::PUT, &handover, &offer).await.ok();
    World::send(world.operators_request(Method::DELETE, &handover))
        .await
        .ok();

    let log = async |person: &Person| {
        let listed = world.person_gets(person, "/audit-log?limit=100").await.ok();
        let entries = listed["entries"].as_array().unwrap().clone();
        let by_operators: Vec<Value> = entries
            .into_iter()
            .filter(|entry| !entry["operator"].is_null())
            .collect();
        by_operators
    };
    let told = log(&owner).await;
    let kinds: Vec<&str> = told.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    let expected = [
        "handover_taken_back",
        "handover_offered",
        "freeze_ended",
        "freeze_set",
        "freeze_ended",
        "freeze_set",
    ];
    assert_eq!(kinds, expected, "newest first, without the deployment's");
    assert_eq!(log(&stranger).await, Vec::<Value>::new());
    let all = world.operator_gets("/internal/audit-log?limit=100").await.ok();
    let all = all["entries"].as_array().unwrap();
    for entry in &told {
        assert_eq!(
            (&entry["operator"], &entry["person_id"]),
            (&json!("local"), &Value::Null)
        );
        // The owner is not shown where the operator's request came from.
        assert_eq!((&entry["address"], &entry["user_agent"]), (&Value::Null, &Value::Null));
        let same: Vec<&Value> = all.iter().filter(|one| one["audit_id"] == entry["audit_id"]).collect();
        assert_eq!(same.len(), 1);
        for member in ["at", "kind", "agent_id", "object_id", "before", "after", "request_id"] {
            assert_eq!(same[0][member], entry[member], "{member}");
        }
    }
    assert_eq!(told[1]["after"]["owner"], other);
    assert_eq!(told[5]["after"]["reason"], "reported stolen");
    assert_eq!(told[5]["agent_id"], agent.id.to_string());
    // Operators read the same entries as the owner.
    let path = format!("/internal/audit-log?person_id={own}&kind=freeze_set");
    assert_eq!(world.operator_gets(&path).await.ok()["count"], 2);
    let (paged, pages) = world.pages_of(&owner, "/audit-log", "entries", 2).await;
    let whole = world.person_gets(&owner, "/audit-log?limit=100").await.ok();
    assert_eq!(json!(paged), whole["entries"]);
    assert!(pages > 3, "{pages}");
    let page = world.http.get(format!("{}/dashboard/audit-log", world.stack.base_url));
    let page = page.header("cookie", world.browser_session(&DEMO_OWNER).await);
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(
        page.contains("Freeze by an operator") && page.contains("the operator local"),
        "{page}"
    );
}

/// The effect of a freeze on a route or tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// The route still reads or proves existing payments.
    Open,
    /// The route responds with 403 `policy_blocked`.
    Blocked,
    /// The route responds with 200 and the result `block`.
    Foreseen,
}

/// Returns the effect of a freeze on each route and each MCP tool of agents. Add each new route or tool here.
fn gate_of(method: &Method, name: &str) -> Gate {
    match (method.as_str(), name) {
        ("GET", _)
        | ("POST", "/x402/settlements/{settlementId}/complete")
        | ("DELETE", "/agents/{agentId}/runs/{keyId}")
        | (
            "tool",
            "find_services" | "get_service" | "list_enabled" | "get_approval" | "list_receipts" | "get_receipt"
            | "read_response",
        ) => Gate::Open,
        ("POST", "/x402/authorize" | "/x402/check/unpaid" | "/x402/raises" | "/agents/{agentId}/runs")
        | ("tool", "call_service" | "request_raise") => Gate::Blocked,
        ("POST", "/x402/check") | ("tool", "check_payment") => Gate::Foreseen,
        _ => panic!("decide what a frozen agent gets from {method} {name}"),
    }
}

/// An agent with a confirmed payment, a pending approval request, and a denial by a cap.
struct Gated<'a> {
    world: &'a World,
    owner: &'a Person,
    agent: TestAgent,
    owner_id: String,
    bodies: BTreeMap<&'static str, Vec<Value>>,
    names: [(&'static str, String); 6],
}

impl<'a> Gated<'a> {
    async fn new(world: &'a World, owner: &'a Person) -> Self {
        let agent = world.agent_of(owner, "gated").await;
        let policy = json!({"max_per_call_units": dollars(7), "require_approval_above_units": dollars(5)});
        let path = agent.path("/services/lab-search");
        world.person_edits(owner, Method::PATCH, &path, &policy).await.ok();
        let body = body_of(world.offer(dollars(1)));
        let paid = world.authorize(&agent, &body).await.ok();
        let hash = world.settle(&paid).await;
        completing(world, &agent, &paid, &hash).await.ok();
        let pending = body_of(world.offer(dollars(6)));
        let asked = world.authorize(&agent, &pending).await;
        let asked = asked.refused(402, "approval_required");
        let capped = world.authorize(&agent, &body_of(world.offer(dollars(8)))).await;
        let capped = capped.refused(402, "amount_exceeds_per_call_limit");
        let raise = json!({
            "transaction_id": capped["transaction_id"], "max_per_call_units": dollars(9), "reason": "unfreeze me",
            "until": world.now().after(purser_testkit::sample::secs(3_600)).to_string(),
        });
        let run = json!({"limit_units": 1, "expires_at": raise["until"]});
        let mut carried = pending.clone();
        carried["approval_id"] = asked["approval_id"].clone();
        let fresh = body_of(world.offer(dollars(1)));
        let over = body_of(world.offer(dollars(6)));
        let mut check = fresh.clone();
        check.as_object_mut().unwrap().remove("idempotency_key");
        check["replay_key"] = fresh_key().into();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            owner_id: person_id(world, owner).await,
            bodies: BTreeMap::from([
                ("/x402/check/unpaid", vec![purser_tests::unpaid(&fresh)]),
                ("/x402/authorize", vec![fresh, body, pending, carried, over]),
                ("/x402/check", vec![check]),
                ("/x402/raises", vec![raise]),
                ("/agents/{agentId}/runs", vec![run]),
                (
                    "/x402/settlements/{settlementId}/complete",
                    vec![json!({"payment_response_header": "e30=", "tx_hash": hash})],
                ),
            ]),
            names: [
                ("agentId", agent.id.to_string()),
                ("serviceId", "lab-search".to_owned()),
                ("settlementId", text(&paid["settlement_id"])),
                ("id", text(&asked["approval_id"])),
                ("transactionId", text(&capped["transaction_id"])),
                ("keyId", "00c0ffee00c0ffee".to_owned()),
            ],
            world,
            owner,
            agent,
        }
    }

    fn name(&self, name: &str) -> &str {
        &self.names.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Calls every route and every MCP tool of agents.
    async fn calls(&self) -> Vec<(Method, String, Answer)> {
        let mut answers = Vec::new();
        for route in crate::access::routes() {
            if route.scheme.as_deref() != Some("agentKey") {
                continue;
            }
            let mut path = route.path.clone();
            for (name, value) in &self.names {
                path = path.replace(&format!("{{{name}}}"), value);
            }
            let bodies = match self.bodies.get(&*route.path) {
                Some(bodies) => bodies.iter().map(Some).collect(),
                None => vec![None],
            };
            for body in bodies {
                let key = Some(&*self.agent.key);
                let answer = self.world.call(route.method.clone(), &path, key, body).await;
                answers.push((route.method.clone(), route.path.clone(), answer));
            }
        }
        let listed = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let listed = self.world.post(&self.agent, "/mcp", &listed).await.ok();
        for tool in listed["result"]["tools"].as_array().unwrap() {
            let tool = tool["name"].as_str().unwrap();
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": tool, "arguments": self.arguments(tool)}});
            let answer = self.world.post(&self.agent, "/mcp", &call).await;
            answers.push(("tool".parse().unwrap(), tool.to_owned(), answer));
        }
        answers
    }

    fn arguments(&self, tool: &str) -> Value {
        let weather = json!({"service": "lab-weather", "operation": "weather.current", "max_usd": "0.05"});
        match tool {
            "get_service" => json!({"service": "lab-weather"}),
            "check_payment" | "call_service" => weather,
            "get_approval" => json!({"approval_id": self.name("id")}),
            "get_receipt" => json!({"settlement_id": self.name("settlementId")}),
            "read_response" => json!({"cursor": format!("0.{}.0", "0".repeat(32))}),
            "request_raise" => {
                let mut raise = self.bodies["/x402/raises"][0].clone();
                raise.as_object_mut().unwrap().remove("max_per_call_units");
                raise["max_per_call_usd"] = "9".into();
                raise
            }
            _ => json!({}),
        }
    }

    async fn set(&self, state: &str, begins: bool) {
        let path = self.agent.path("");
        let edit = async |body: Value| {
            let edited = self.world.person_edits(self.owner, Method::PATCH, &path, &body).await;
            edited.ok();
        };
        let target = match state {
            "own" => return edit(json!({"status": if begins { "frozen" } else { "active" }})).await,
            "archived" if begins => return edit(json!({"archived": true})).await,
            "archived" => {
                edit(json!({"archived": false})).await;
                return edit(json!({"status": "active"})).await;
            }
            "agent" => format!("agents/{}", self.agent.id),
            "owner" => format!("owners/{}", self.owner_id),
            _ => "deployment".to_owned(),
        };
        if begins {
            freeze(self.world, &target).await.ok();
        } else {
            unfreeze(self.world, &target).await.ok();
        }
    }
}

/// A frozen agent can only read, so its texts do not reach its owner.
#[tokio::test(flavor = "multi_thread")]
async fn frozen_agents_can_only_read() {
    let world = World::still().await;
    let owner = world.person(&DEMO_OWNER);
    let gated = Gated::new(&world, &owner).await;
    for (state, reason) in [
        ("own", "agent_frozen"),
        ("archived", "agent_frozen"),
        ("agent", "agent_frozen:by_operator"),
        ("owner", "agent_frozen:owner"),
        ("deployment", "agent_frozen:deployment"),
    ] {
        gated.set(state, true).await;
        let before = world.rows_of("LedgerTable").await;
        let calls = gated.calls().await;
        assert!(
            calls.len() >= 25,
            "only {} calls: is this test still looking?",
            calls.len()
        );
        for (method, name, answer) in &calls {
            let asked = format!("{state}: {method} {name}: {} {}", answer.status, answer.body);
            let is_tool = method.as_str() == "tool";
            let result = &answer.body["result"];
            match gate_of(method, name) {
                Gate::Open if name == "read_response" => {
                    let text = result["content"][0]["text"].as_str().unwrap();
                    assert!(text.contains("response_not_kept"), "{asked}");
                }
                Gate::Open if is_tool => assert_ne!(result["isError"], true, "{asked}"),
                // A statement that is not signed yet is not found, nor is a run that the agent did not open.
                Gate::Open if name.ends_with("/statement") || name.contains("/runs/") => {
                    assert!([200, 404].contains(&answer.status), "{asked}")
                }
                Gate::Open => assert_eq!(answer.status, 200, "{asked}"),
                Gate::Blocked if is_tool => {
                    let text = result["content"][0]["text"].as_str().unwrap();
                    assert!(text.contains("policy_blocked") && text.contains(reason), "{asked}");
                }
                Gate::Blocked => {
                    assert_eq!((answer.status, answer.slug()), (403, "policy_blocked"), "{asked}");
                    assert_eq!(answer.body["decision"]["reason"], reason, "{asked}");
                }
                Gate::Foreseen if is_tool => {
                    let foreseen = &result["structuredContent"];
                    assert_eq!(foreseen["would_pay"], false, "{asked}");
                }
                Gate::Foreseen => assert_eq!(answer.body["reason"], reason, "{asked}"),
            }
        }
        // Only the row of a preflight's `replay_key` changes.
        let mut changes = world.rows_of("LedgerTable").await.changes_since(&before);
        changes.retain(|change| !change.starts_with("[\"R#"));
        assert_eq!(changes, Vec::<String>::new(), "{state}");
        gated.set(state, false).await;
    }
    // After the freezes have ended, the same request succeeds.
    let raise = &gated.bodies["/x402/raises"][0];
    assert_eq!(
        world.post(&gated.agent, "/x402/raises", raise).await.ok()["status"],
        "pending"
    );
}
