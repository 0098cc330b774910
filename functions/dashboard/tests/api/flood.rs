//! Tests the limit on a user's concurrent long operations.

use crate::support::World;
use purser_domain::Fingerprint;
use purser_store::{CallLease, TakeLeaseResult};
use purser_testkit::Call;
use purser_testkit::sample::OWNER;
use serde_json::{Value, json};

const STRANGER: &str = "bob";
/// The number of slots per user.
const SLOTS: u32 = 3;
/// The maximum number of database calls of a list request.
const MAX_CALLS: usize = 10;

struct Request {
    method: &'static str,
    path: String,
    body: Option<Value>,
}

impl Request {
    fn new(method: &'static str, path: &str, body: Option<Value>) -> Self {
        Self {
            method,
            path: path.to_owned(),
            body,
        }
    }
}

struct User {
    who: &'static str,
    agents: Vec<String>,
}

impl User {
    async fn new(world: &World, who: &'static str, count: usize) -> Self {
        let mut agents = Vec::new();
        for _ in 0..count {
            agents.push(world.agent(who).await);
            world.advance(1);
        }
        for agent in &agents {
            for service in ["lab", "maps", "shed"] {
                let path = format!("/agents/{agent}/services");
                let enable = json!({"service_id": service});
                world.call(who, "POST", &path, None, Some(enable)).await;
            }
        }
        let template = json!({"services": {"lab": {"max_per_call_units": 5}}, "rules": []});
        world
            .call(who, "PUT", "/policy-templates/t", None, Some(template))
            .await
            .created();
        Self { who, agents }
    }

    fn act(&self, act: &str) -> Request {
        let mut body = json!({"act": act, "agents": {"kind": "ids", "ids": self.agents}});
        match act {
            "label" => body["labels"] = json!({"team": "x"}),
            "unlabel" => body["keys"] = json!(["team"]),
            "follow" => body["template"] = json!("t"),
            _ => (),
        }
        Request::new("POST", "/agents/bulk", Some(body))
    }

    /// Lists the operations that need a slot.
    fn long(&self) -> Vec<Request> {
        let agent = format!("/agents/{}", self.agents[0]);
        let mut requests: Vec<Request> = ["label", "unlabel", "limit", "follow", "unfreeze", "restore"]
            .map(|act| self.act(act))
            .into();
        let apply = json!({"agents": {"kind": "ids", "ids": self.agents}});
        let limits = json!({"max_per_call_units": 4});
        requests.extend([
            Request::new("POST", "/policy-templates/t/apply", Some(apply.clone())),
            Request::new("POST", "/policy-templates/t/apply?preview=true", Some(apply)),
            Request::new("PATCH", &format!("{agent}/services"), Some(limits.clone())),
            Request::new("PATCH", &format!("{agent}/services/lab?preview=true"), Some(limits)),
            Request::new(
                "POST",
                &format!("{agent}/rules?preview=true"),
                Some(json!({"kind": "count_limit", "count": 3, "window_seconds": 3_600})),
            ),
        ]);
        requests
    }

    /// Lists the requests that need no slot.
    fn short(&self) -> Vec<Request> {
        let agent = format!("/agents/{}", self.agents[0]);
        let get = |path: &str| Request::new("GET", path, None);
        vec![
            get("/agents"),
            get("/decisions"),
            get("/approvals"),
            get("/settlements"),
            get("/audit-log"),
            get("/usage"),
            get("/search?q=lab"),
            get(&agent),
            get(&format!("{agent}/services")),
            Request::new("PATCH", &agent, Some(json!({"status": "frozen"}))),
        ]
    }

    async fn send(&self, world: &World, request: &Request) -> (u16, Value) {
        world.advance(1);
        let Request { method, path, body } = request;
        let if_match = (*method != "GET").then_some("*");
        let answer = world.call(self.who, method, path, if_match, body.clone()).await;
        (answer.status, answer.body)
    }

    async fn take(&self, world: &World) -> Vec<CallLease> {
        let sessions = world.get(self.who, "/sessions").await.ok();
        let id = Fingerprint::for_text(sessions["person"].as_str().unwrap());
        let mut leases = Vec::new();
        for _ in 0..SLOTS {
            let scope = format!("long operations of {id}");
            match world.slots.take_lease(scope, SLOTS, world.now()).await.unwrap() {
                TakeLeaseResult::Taken(lease) => leases.push(lease),
                TakeLeaseResult::Full { .. } => panic!("a slot is in use"),
            }
        }
        leases
    }
}

/// Counts the updates of a user's slots among these calls.
fn slot_updates(calls: &[Call]) -> usize {
    let pk = |call: &Call| call.request["Key"]["pk"]["S"].as_str().unwrap_or_default().to_owned();
    calls.iter().filter(|call| pk(call).starts_with("RL#open#")).count()
}

/// Without a free slot, the response is 429. A slot becomes free when the operation ends or the lease expires.
#[tokio::test]
async fn one_users_long_operations_leave_instances_for_other_users() {
    let world = World::start().await;
    let owner = User::new(&world, OWNER, 2).await;
    let neighbor = User::new(&world, STRANGER, 2).await;
    owner.take(&world).await;
    let before = world.get(OWNER, "/audit-log").await.ok();
    let began = world.now();
    for request in owner.long() {
        let (status, body) = owner.send(&world, &request).await;
        let context = format!("{} {} {:?}: {body}", request.method, request.path, request.body);
        assert_eq!(
            (status, &body["error"]),
            (429, &json!("too_many_requests")),
            "{context}"
        );
        let waited = world.now().since(began).secs_rounded_up();
        assert_eq!(body["retry_after"], 30 - waited, "{context}");
    }
    assert_eq!(world.get(OWNER, "/audit-log").await.ok(), before);
    for request in neighbor.long().iter().chain(&neighbor.short()) {
        let (status, body) = neighbor.send(&world, request).await;
        assert_eq!(status, 200, "{} {}: {body}", request.method, request.path);
    }
    // The earlier leases have expired, so the user can take all slots again.
    let leases = owner.take(&world).await;
    for request in owner
        .short()
        .into_iter()
        .chain(["freeze", "archive"].map(|act| owner.act(act)))
    {
        let (status, body) = owner.send(&world, &request).await;
        assert_eq!(status, 200, "{} {}: {body}", request.method, request.path);
        assert!(!body.to_string().contains("failed"), "{body}");
    }
    for agent in &owner.agents {
        let agent = world.get(OWNER, &format!("/agents/{agent}")).await.ok();
        assert_eq!((&agent["status"], &agent["archived"]), (&json!("frozen"), &json!(true)));
    }
    for lease in leases {
        world.slots.end_lease(lease).await.unwrap();
    }
    // Each operation frees its slot at the end.
    for _ in 0..2 {
        for act in ["restore", "label", "unlabel"] {
            assert_eq!(owner.send(&world, &owner.act(act)).await.0, 200);
        }
    }
    owner.take(&world).await;
    assert_eq!(owner.send(&world, &owner.act("label")).await.0, 429);
    world.advance(30);
    assert_eq!(owner.send(&world, &owner.act("label")).await.0, 200);
}

/// "Freeze all" needs no slot.
#[tokio::test]
async fn csv_downloads_and_bulk_forms_need_a_free_slot() {
    let world = World::start().await;
    let owner = User::new(&world, OWNER, 2).await;
    let mut browser = world.browser(OWNER).await;
    let page = "/dashboard/agents";
    let files = ["decisions", "settlements", "audit-log"].map(|list| format!("/dashboard/{list}.csv"));
    let label = [("act", "add-label"), ("agent", &*owner.agents[0]), ("label", "team=x")];
    let leases = owner.take(&world).await;
    for file in &files {
        browser.get(file).await.is(429, "");
    }
    let bulk = "/dashboard/agents/bulk";
    browser.post(page, bulk, &label).await.is(429, "");
    let all = "/dashboard/freeze-all";
    assert_eq!(browser.post(all, all, &[]).await.status, 303);
    for agent in &owner.agents {
        let agent = world.get(OWNER, &format!("/agents/{agent}")).await.ok();
        assert_eq!(agent["status"], "frozen");
    }
    for lease in leases {
        world.slots.end_lease(lease).await.unwrap();
    }
    for file in &files {
        browser.get(file).await.is(200, "");
    }
    assert_eq!(browser.post(page, bulk, &label).await.status, 303);
}

/// Another user's list requests make few database calls.
#[tokio::test]
async fn requests_with_many_database_calls_need_a_free_slot() {
    let world = World::start().await;
    let owner = User::new(&world, OWNER, 25).await;
    let (mut most, mut few) = (0, 0);
    let requests = owner.long().into_iter().map(|request| (request, 2));
    let freezes = ["freeze", "archive"].map(|act| (owner.act(act), 0));
    for (request, slots) in requests
        .chain(owner.short().into_iter().map(|request| (request, 0)))
        .chain(freezes)
    {
        world.proxy.calls().take();
        let (status, body) = owner.send(&world, &request).await;
        assert_eq!(status, 200, "{} {}: {body}", request.method, request.path);
        world.proxy.quiet().await;
        let calls = world.proxy.calls().take();
        assert_eq!(slot_updates(&calls), slots, "{} {}", request.method, request.path);
        most = most.max(calls.len());
        if slots == 0 && request.method == "GET" {
            few = few.max(calls.len());
        }
    }
    assert!(few <= MAX_CALLS && most > 5 * few, "{few} and {most}");
}

/// The request limit in these tests, and the additional limit for requests that stop agents or sessions.
const PER_MINUTE: u32 = 60;
const STOPS: u32 = 60;
const FREEZE_ALL: &str = "/dashboard/freeze-all";

type Fields = Vec<(&'static str, String)>;

/// Returns forms, each with whether the form stops an agent, the path and the fields.
fn forms(agent: &str) -> Vec<(bool, String, Fields)> {
    let at = |below: &str| format!("/dashboard/agents/{agent}/{below}");
    let bulk = |fields: &[(&'static str, &str)]| {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned()));
        ("/dashboard/agents/bulk".to_owned(), fields.collect::<Vec<_>>())
    };
    let [row, table, archive] = [
        bulk(&[("freeze", agent)]),
        bulk(&[("act", "freeze"), ("agent", agent)]),
        bulk(&[("act", "archive"), ("agent", agent)]),
    ];
    let [undo, label, none] = [
        bulk(&[("act", "unfreeze"), ("agent", agent)]),
        bulk(&[("act", "add-label"), ("agent", agent), ("label", "freeze=archive")]),
        bulk(&[("freeze", ""), ("unfreeze", agent)]),
    ];
    let stops = [
        (at("freeze"), vec![]),
        (at("archive"), vec![]),
        row,
        table,
        archive,
        (FREEZE_ALL.to_owned(), vec![]),
    ];
    let others = [
        (at("unfreeze"), vec![]),
        (at("rename"), vec![("name", "freeze".to_owned())]),
        (at("keys"), vec![]),
        undo,
        label,
        none,
    ];
    let stops = stops.into_iter().map(|(path, fields)| (true, path, fields));
    stops
        .chain(others.into_iter().map(|(path, fields)| (false, path, fields)))
        .collect()
}

/// Requests that stop agents or sessions have a limit of their own, which also counts unknown agents.
#[tokio::test]
async fn a_users_other_requests_do_not_block_a_freeze() {
    let limit = PER_MINUTE.to_string();
    let world = World::with(&[("THROTTLE_PER_MINUTE", &limit)]).await;
    let owner = User::new(&world, OWNER, 2).await;
    let theirs = world.agent(STRANGER).await;
    let mut browser = world.browser(OWNER).await;
    world.advance(1);
    let elsewhere = world.browser(OWNER).await;
    let session = world.get(OWNER, "/sessions").await.ok()["sessions"][0]["session_id"].clone();
    drop(elsewhere);
    // The next minute begins.
    world.advance(60);
    let call = async |(method, path, body): (&str, &str, Option<Value>)| {
        let if_match = (method != "GET").then_some("*");
        world.call(OWNER, method, path, if_match, body).await.status
    };
    for _ in 0..PER_MINUTE {
        assert_eq!(call(("GET", "/agents", None)).await, 200);
    }
    let agent = format!("/agents/{}", owner.agents[0]);
    let edit = |edit: Value| ("PATCH", &*agent, Some(edit));
    let requests = owner.long().into_iter().chain(owner.short());
    for Request { method, path, body } in requests.filter(|request| request.body != Some(json!({"status": "frozen"}))) {
        assert_eq!(call((method, &path, body)).await, 429, "{method} {path}");
    }
    for other in [
        json!({"status": "active"}),
        json!({"name": "frozen"}),
        json!({"archived": false}),
        json!(3),
    ] {
        assert_eq!(call(edit(other.clone())).await, 429, "{other}");
    }
    browser.get("/dashboard").await.is(429, FREEZE_ALL);
    browser.get("/dashboard/sessions").await.is(200, "End all");
    for (stops, path, fields) in forms(&owner.agents[0]) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
        let status = browser.post(FREEZE_ALL, &path, &fields).await.status;
        assert_eq!(status, if stops { 303 } else { 429 }, "{path} {fields:?}");
    }
    for stop in [json!({"status": "frozen"}), json!({"archived": true})] {
        assert_eq!(call(edit(stop)).await, 200);
    }
    for act in ["freeze", "archive"] {
        let Request { method, path, body } = owner.act(act);
        assert_eq!(call((method, &path, body)).await, 200, "{act}");
    }
    let ended = format!("/sessions/{}", session.as_str().unwrap());
    assert_eq!(call(("DELETE", &ended, None)).await, 200);
    let mut unknown = 0;
    let foreign = format!("/agents/{theirs}");
    while call(("PATCH", &foreign, Some(json!({"status": "frozen"})))).await == 404 {
        unknown += 1;
        assert!(unknown < STOPS, "unknown agents have no limit");
    }
    assert!(unknown > 0);
    assert_eq!(call(edit(json!({"status": "frozen"}))).await, 429);
    assert_eq!(call(("DELETE", "/sessions", None)).await, 429);
    browser.get(FREEZE_ALL).await.is(429, "");
    world.get(STRANGER, &foreign).await.ok();
    world.advance(60);
    let frozen = call(edit(json!({"status": "frozen"}))).await;
    assert_eq!((frozen, call(("GET", &*agent, None)).await), (200, 200));
}
