//! The measured cost of each operation, and its budget from `docs/data-model.toml`.

use crate::{Answer, RequestCost, TestAgent, World, body_of, dollars, measure, units};
use purser_domain::{ApprovalId, SpendPolicy};
use purser_local::DEMO_OWNER;
use purser_store::ApprovalDecision;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// The cost limits of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Read capacity units.
    pub read: u64,
    /// Write capacity units, including the throttle's counter.
    pub write: u64,
    /// The calls to the database and to the node. The calls of a round are concurrent, and the rounds run one after
    /// another.
    pub rounds: &'static [&'static [&'static str]],
}

/// An operation with its cost and its budget.
pub struct Cost {
    /// The name of the operation.
    pub name: &'static str,
    /// The cost of the operation.
    pub measured: RequestCost,
    /// The budget of the operation.
    pub budget: Budget,
}

impl Cost {
    /// Describes the excess over the budget; `None` if there is none. A budgeted call may be missing, or be made in an
    /// earlier round.
    pub fn excess(&self) -> Option<String> {
        let Budget { read, write, rounds } = self.budget;
        let (units, found) = (self.measured.units, self.measured.sequence());
        let mut left: Vec<&str> = Vec::new();
        let fits = found.len() <= rounds.len()
            && rounds.iter().enumerate().rev().all(|(n, allowed)| {
                left.extend(*allowed);
                found
                    .get(n)
                    .is_none_or(|round| round.iter().all(|call| take(&mut left, call)))
            });
        let within = fits && units.read <= read * 10 && units.write <= write * 10;
        (!within).then(|| {
            format!(
                "{}: {units:?} in tenths, {found:?}; the budget is {:?}",
                self.name, self.budget
            )
        })
    }
}

fn take(left: &mut Vec<&str>, call: &str) -> bool {
    let at = left.iter().position(|allowed| *allowed == call);
    at.map(|at| left.swap_remove(at)).is_some()
}

const fn budget(read: u64, write: u64, rounds: &'static [&'static [&'static str]]) -> Budget {
    Budget { read, write, rounds }
}

/// The reads of an authorize call.
const READS: &[&str] = &["BatchGetItem", "Query", "UpdateItem"];
/// The first reads of authorize if the agent's last call needed the balance, which is then also read.
const READS_AND_BALANCE: &[&str] = &["BatchGetItem", "Query", "UpdateItem", "eth_call"];

const FIRST_ALLOW: Budget = budget(
    // The verified payees of a service are read once per catalog version.
    5 + 1,
    9 + 2,
    &[
        READS,
        &["GetItem"],
        &["eth_call"],
        &["TransactWriteItems", "UpdateItem"],
    ],
);
const ALLOW: Budget = budget(5, 9 + 1, &[READS_AND_BALANCE, &["TransactWriteItems"]]);
/// The budget of a replay whose agent needed the balance in the last call.
const REPLAY: Budget = budget(6, 1, &[READS_AND_BALANCE, &["GetItem"]]);
const REPLAY_AGAIN: Budget = budget(6, 1, &[READS, &["GetItem"]]);
/// The set of the agent's open approvals is written in the same transaction.
const ESCALATION: Budget = budget(5, 9 + 1, &[READS, &["TransactWriteItems"]]);
const APPROVED_RETRY: Budget = budget(6, 11 + 1, &[READS, &["eth_call"], &["TransactWriteItems"]]);
/// Before a denial, the window and the idempotency record are read again.
const DAILY_DENIAL: Budget = budget(7, 1 + 1, &[READS_AND_BALANCE, &["GetItem", "GetItem"], &["PutItem"]]);
/// A denial by the daily limit when more than a thousand counted payments have expired. The evaluation then reads only
/// one more page.
pub const LONG_DENIAL: Budget = budget(
    7 + 45,
    1 + 1,
    &[READS_AND_BALANCE, &["Query"], &["GetItem", "GetItem"], &["PutItem"]],
);
const BLOCK: Budget = budget(5, 1 + 1, &[READS, &["PutItem"]]);
const CHECK: Budget = budget(4, 1 + 1, &[READS_AND_BALANCE, &["PutItem"]]);
/// The transaction writes the claim, the settlement and its index entry.
const COMPLETE: Budget = budget(
    2,
    3 + 1,
    &[
        &["BatchGetItem", "UpdateItem"],
        &["eth_getTransactionByHash"],
        &["eth_getBlockByNumber", "eth_getLogs"],
        &["PutItem"],
        &["UpdateItem"],
    ],
);
const COMPLETE_AGAIN: Budget = budget(2, 1, &[&["BatchGetItem", "UpdateItem"]]);
const RECEIPT: Budget = budget(2, 1, &[&["BatchGetItem", "UpdateItem"]]);
/// A page of receipts costs about four read units. Only authenticated callers can cause these reads.
const LIST: Budget = budget(5, 1, &[&["BatchGetItem", "UpdateItem"], &["Query"]]);
const POLL: Budget = budget(2, 1, &[&["BatchGetItem", "UpdateItem"]]);
const ME: Budget = budget(1, 1, &[&["GetItem", "UpdateItem"]]);
/// Reads a hundred policies, of which about ten fit into 4 KB.
const SERVICES: Budget = budget(12, 1, &[&["GetItem", "UpdateItem"], &["Query"]]);
const POLICY: Budget = budget(3, 1, &[READS]);
/// The catalog is served from memory, without calls.
const CATALOG: Budget = budget(0, 0, &[]);
/// The budget of a withdrawal, for the functions `people` and `payments` together.
const PAYOUT: Budget = budget(
    8,
    12,
    &[
        &["GetItem"],
        &["UpdateItem"],
        &["GetItem"],
        &["BatchGetItem"],
        &["eth_call"],
        &["TransactWriteItems"],
        &["GetItem"],
    ],
);
/// The budget of the list of pending approvals, which an open page polls every few seconds.
const WAITING: Budget = budget(
    6,
    1,
    &[
        &["GetItem"],
        &["UpdateItem"],
        &["Query"],
        &["BatchGetItem"],
        &["BatchGetItem"],
        &["BatchGetItem", "GetItem"],
    ],
);

/// Returns the policy of the agent in [`every_operation`].
pub fn judged_policy() -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(dollars(100)),
        require_approval_above: units(dollars(20)),
        ..SpendPolicy::spec_defaults()
    }
}

struct Bill<'a> {
    world: &'a World,
    costs: Vec<Cost>,
}

impl Bill<'_> {
    async fn add<T>(&mut self, name: &'static str, budget: Budget, request: impl Future<Output = T>) -> T {
        let (measured, answer) = measure(self.world, request).await;
        self.costs.push(Cost { name, measured, budget });
        answer
    }
}

/// Runs each operation once and returns its cost. The world must be metered, and the agent must have [`judged_policy`]
/// and no earlier call.
pub async fn every_operation(world: &World, agent: &TestAgent) -> Vec<Cost> {
    let costs = Vec::new();
    let mut bill = Bill { world, costs };
    let first = body_of(world.offer(1));
    bill.add("first allow", FIRST_ALLOW, world.authorize(agent, &first))
        .await
        .ok();
    payments(&mut bill, agent).await;
    receipts_and_services(&mut bill, agent).await;
    catalog(&mut bill).await;
    polled_page(&mut bill).await;
    payout(&mut bill).await;
    bill.costs
}

async fn payments(bill: &mut Bill<'_>, agent: &TestAgent) {
    let world = bill.world;
    let body = body_of(world.offer(dollars(1)));
    let allowed = bill.add("allow", ALLOW, world.authorize(agent, &body)).await.ok();
    let asked = body_of(world.offer(dollars(1)));
    bill.add("check", CHECK, world.check(agent, &asked)).await.ok();
    bill.add("replay", REPLAY, world.authorize(agent, &body)).await.ok();
    bill.add("replay, again", REPLAY_AGAIN, world.authorize(agent, &body))
        .await
        .ok();

    let costly = body_of(world.offer(dollars(30)));
    let asked = bill
        .add("escalation", ESCALATION, world.authorize(agent, &costly))
        .await;
    let approval = text(&asked.refused(402, "approval_required")["approval_id"]);
    let path = format!("/approvals/{approval}");
    // `payments` also writes the last use of an API key once a minute, in the background.
    let calls = world.proxy.as_ref().expect("a metered world").calls();
    calls.take();
    world.get(agent, &path).await.ok();
    calls.reach(3).await;
    bill.add("poll of an approval", POLL, world.get(agent, &path))
        .await
        .ok();
    let id = ApprovalId::parse(&approval).expect("an id");
    let ruling = world.ruling();
    let audit = purser_testkit::sample::audit();
    let ruled = world
        .stack
        .ledger
        .resolve_approval(id, ApprovalDecision::Approve, &ruling, &audit);
    ruled.await.expect("a verdict");
    let mut retry = costly;
    retry["approval_id"] = approval.into();
    bill.add("approved retry", APPROVED_RETRY, world.authorize(agent, &retry))
        .await
        .ok();

    let body = body_of(world.offer(dollars(90)));
    let denied = bill
        .add("daily denial", DAILY_DENIAL, world.authorize(agent, &body))
        .await;
    denied.refused(402, "daily_spend_limit_exceeded");
    let body = body_of(world.offer(dollars(101)));
    let blocked = bill.add("any other block", BLOCK, world.authorize(agent, &body)).await;
    blocked.refused(402, "amount_exceeds_per_call_limit");

    let settlement = text(&allowed["settlement_id"]);
    let hash = world.settle(&allowed).await;
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    bill.add("complete", COMPLETE, world.complete(agent, &settlement, &proof))
        .await
        .ok();
    let again = world.complete(agent, &settlement, &proof);
    bill.add("complete, again", COMPLETE_AGAIN, again).await.ok();
    let path = format!("/x402/settlements/{settlement}");
    bill.add("receipt", RECEIPT, world.get(agent, &path)).await.ok();
}

async fn receipts_and_services(bill: &mut Bill<'_>, agent: &TestAgent) {
    let world = bill.world;
    bill.add("list of receipts", LIST, world.get(agent, &agent.path("/settlements")))
        .await
        .ok();
    // `payments` also writes the last use of an API key once a minute, in the background.
    let calls = world.proxy.as_ref().expect("a metered world").calls();
    calls.take();
    world.get(agent, "/mcp/agents/me").await.ok();
    calls.reach(3).await;
    bill.add("who am I", ME, world.get(agent, "/mcp/agents/me")).await.ok();
    let path = format!("/mcp/agents/{}/services", agent.id);
    bill.add("my services", SERVICES, world.get(agent, &path)).await.ok();
    let path = agent.path("/services/lab-search/policy");
    bill.add("my policy", POLICY, world.get(agent, &path)).await.ok();
}

async fn catalog(bill: &mut Bill<'_>) {
    let world = bill.world;
    let get = |path: &'static str| world.call(Method::GET, path, None, None);
    let known = get("/services").await;
    let known = known.headers["etag"].clone();
    bill.add("catalog, warm", CATALOG, get("/services")).await.ok();
    bill.add("one service, warm", CATALOG, get("/services/lab-weather"))
        .await
        .ok();
    let asked = world.http.get(format!("{}/services", world.stack.base_url));
    let asked = asked.header("if-none-match", known);
    let unchanged: Answer = bill.add("catalog, not changed", CATALOG, World::send(asked)).await;
    assert_eq!(unchanged.status, 304);
}

async fn payout(bill: &mut Bill<'_>) {
    let world = bill.world;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "saver").await;
    let body = json!({"address": "0x90F79bf6EB2c4f870365E785982E1f101E93b906"});
    world
        .person_edits(&person, Method::PUT, &agent.path("/payout-address"), &body)
        .await
        .ok();
    // A new withdrawal address has to wait for a day. The clock is set back for the remaining measurements.
    let now = world.now();
    world.pass(86_400);
    let person = world.person(&DEMO_OWNER);
    let body = json!({"amount_units": 1, "idempotency_key": "x"});
    let path = agent.path("/payouts");
    let paid = world.person_edits(&person, Method::POST, &path, &body);
    bill.add("payout", PAYOUT, paid).await.created();
    world.set_clock(now);
}

async fn polled_page(bill: &mut Bill<'_>) {
    let world = bill.world;
    let person = world.person(&DEMO_OWNER);
    let cookie = world.browser_session(&DEMO_OWNER).await;
    let agent = world.agent_of(&person, "polled").await;
    world.put_policy(&agent, "lab-search", true, judged_policy()).await;
    let costly = body_of(world.offer(dollars(30)));
    world.authorize(&agent, &costly).await.refused(402, "approval_required");
    let request = || {
        let url = format!("{}/dashboard/approvals/waiting", world.stack.base_url);
        world.http.get(url).header("cookie", &cookie)
    };
    // The first request also reads the issuer's keys and the catalog's version.
    request().send().await.expect("an answer");
    let page = bill.add("poll of what waits", WAITING, request().send()).await;
    let page = page.expect("an answer");
    assert_eq!(page.status(), StatusCode::OK);
    assert!(page.text().await.expect("a page").contains("data-waiting=\"1\""));
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
