//! Tests DynamoDB failures during every operation on a payment: no partial writes, and a retry that succeeds once. A
//! long failure causes an error before the function's timeout.

use super::{authorizing, completing, confirmed, payments, process};
use purser_local::DEMO_OWNER;
use purser_testkit::{Fate, Moment, Step};
use purser_tests::{Answer, Person, Process, Request, TestAgent, World, as_repeated, body_of, dollars, together};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Authorize,
    Replay,
    Escalate,
    Complete,
    Approve,
    Freeze,
    EditPolicy,
}
use Operation::{Approve, Authorize, Complete, EditPolicy, Escalate, Freeze, Replay};

const ALL: [Operation; 7] = [Authorize, Replay, Escalate, Complete, Approve, Freeze, EditPolicy];

fn writes_the_ledger(step: &Step<'_>) -> bool {
    step.call.ends_with("LedgerTable") && (writes_in_a_transaction(step) || writes_one(step))
}

fn writes_in_a_transaction(step: &Step<'_>) -> bool {
    step.call.starts_with("TransactWriteItems")
}

fn writes_one(step: &Step<'_>) -> bool {
    ["PutItem ", "UpdateItem ", "DeleteItem "]
        .iter()
        .any(|name| step.call.starts_with(name))
}

type Script = Box<dyn FnMut(&Step<'_>) -> Fate + Send>;

/// Returns a script that applies `fate` to the first `times` calls of each selected name, at this moment.
fn first(
    times: u32,
    moment: Moment,
    which: fn(&Step<'_>) -> bool,
    fate: impl Fn(&Step<'_>) -> Fate + Send + 'static,
) -> Script {
    let mut met: BTreeMap<String, u32> = BTreeMap::new();
    Box::new(move |step| {
        if step.moment != moment || !which(step) {
            return Fate::PassOn;
        }
        let met = met.entry(step.call.to_owned()).or_default();
        *met += 1;
        if *met <= times { fate(step) } else { Fate::PassOn }
    })
}

/// The operations of one user's agents, each in a separate process.
struct Bench<'a> {
    world: &'a World,
    owner: Person,
    payer: TestAgent,
    frozen: TestAgent,
    edited: TestAgent,
    processes: BTreeMap<Operation, Arc<Process>>,
    made: usize,
    /// A counter that makes requests different.
    turn: u64,
}

/// A prepared operation.
struct Asked {
    operation: Operation,
    request: Request,
    /// The input of the operation: the first response for a replay, or the approval's id.
    about: Value,
}

impl<'a> Bench<'a> {
    async fn new(world: &'a World) -> Self {
        let owner = world.person(&DEMO_OWNER);
        let mut agents = Vec::new();
        for name in ["payer", "frozen", "edited"] {
            let agent = world.agent_of(&owner, name).await;
            let policy = json!({"require_approval_above_units": dollars(20)});
            let path = agent.path("/services/lab-search");
            world.person_edits(&owner, Method::PATCH, &path, &policy).await.ok();
            agents.push(agent);
        }
        let mut processes = BTreeMap::new();
        for operation in ALL {
            let function = match operation {
                Authorize | Replay | Escalate | Complete => payments(world, &[]).await,
                Approve | Freeze | EditPolicy => process(world, "people", &[]).await,
            };
            processes.insert(operation, Arc::new(function));
        }
        let [payer, frozen, edited] = agents.try_into().ok().unwrap();
        Self {
            world,
            owner,
            payer,
            frozen,
            edited,
            processes,
            made: 0,
            turn: 0,
        }
    }

    /// Prepares an operation without faults.
    async fn prepare(&mut self, operation: Operation) -> Asked {
        self.turn += 1;
        let (world, payer) = (self.world, &self.payer);
        let new = |units: u64| body_of(world.offer(units + self.turn));
        let as_owner = |path: String, body: Value| Request::post(&self.owner.token, &path, &body);
        let (request, about) = match operation {
            Authorize => {
                self.made += 1;
                (authorizing(payer, &new(1_000)), Value::Null)
            }
            Replay => {
                self.made += 1;
                let body = new(1_000);
                let first = world.authorize(payer, &body).await.ok();
                (authorizing(payer, &body), first)
            }
            Escalate => (authorizing(payer, &new(dollars(21))), Value::Null),
            Complete => {
                self.made += 1;
                let authorized = world.authorize(payer, &new(1_000)).await.ok();
                let hash = world.settle(&authorized).await;
                (completing(payer, &authorized, &hash), json!(hash))
            }
            Approve => {
                let asked = world.authorize(payer, &new(dollars(22))).await;
                let approval = asked.refused(402, "approval_required")["approval_id"].clone();
                let path = payer.path(&format!("/approvals/{}/approve", approval.as_str().unwrap()));
                (as_owner(path, json!({})), approval)
            }
            Freeze => {
                let request = as_owner(self.frozen.path(""), json!({"status": "frozen"}));
                (request.editing(Method::PATCH, "*"), Value::Null)
            }
            EditPolicy => {
                let cap = 2_000 + self.turn;
                let request = as_owner(
                    self.edited.path("/services/lab-search"),
                    json!({"max_per_call_units": cap}),
                );
                (request.editing(Method::PATCH, "*"), cap.into())
            }
        };
        Asked {
            operation,
            request,
            about,
        }
    }

    async fn prepare_all(&mut self) -> Vec<Asked> {
        let mut asked = Vec::new();
        for operation in ALL {
            asked.push(self.prepare(operation).await);
        }
        asked
    }

    /// Sends the requests, each to a separate process.
    fn asking(&self, asked: &[Asked]) -> Vec<impl Future<Output = Answer> + Send + use<>> {
        let one = |asked: &Asked| {
            let process = Arc::clone(&self.processes[&asked.operation]);
            let (request, operation) = (asked.request.clone(), asked.operation);
            async move {
                let answer = process.send(&request).await;
                answer.unwrap_or_else(|| panic!("{operation:?} is answered within the function's time"))
            }
        };
        asked.iter().map(one).collect()
    }

    /// Starts every function and loads its catalog.
    async fn warm(&self) {
        for process in self.processes.values() {
            process.insist(&Request::get("nobody", "/approvals/none")).await;
        }
    }

    fn heal(&self) {
        for process in self.processes.values() {
            process.spare();
        }
    }

    /// Asserts that the operation took effect once, and that a retry returns the same response.
    async fn assert_done(&self, asked: &Asked, answer: Answer) {
        let (world, payer) = (self.world, &self.payer);
        match asked.operation {
            Authorize => {
                let authorized = answer.ok();
                let body = asked.request.body.as_ref().unwrap();
                let again = world.authorize(payer, body).await.ok();
                assert_eq!(as_repeated(&again), as_repeated(&authorized), "the same payment");
            }
            Replay => assert_eq!(as_repeated(&answer.ok()), as_repeated(&asked.about), "the same payment"),
            Escalate => {
                let approval = answer.refused(402, "approval_required")["approval_id"].clone();
                let body = asked.request.body.as_ref().unwrap();
                let once_more = world.authorize(payer, body).await.refused(402, "approval_required");
                assert_eq!(once_more["approval_id"], approval, "one question");
            }
            Complete => {
                confirmed(answer, asked.about.as_str().unwrap());
            }
            Approve => {
                if answer.status == 409 {
                    let decided = answer.refused(409, "approval_not_pending");
                    assert_eq!(decided["status"], "approved", "{decided}");
                } else {
                    answer.ok();
                }
                let path = payer.path(&format!("/approvals/{}", asked.about.as_str().unwrap()));
                let approval = world.person_gets(&self.owner, &path).await.ok();
                assert_eq!(approval["status"], "approved");
            }
            Freeze => {
                assert_eq!(answer.ok()["status"], "frozen");
                let refused = world.authorize(&self.frozen, &body_of(world.offer(1))).await;
                assert_eq!(
                    refused.refused(403, "policy_blocked")["decision"]["reason"],
                    "agent_frozen"
                );
                let active = json!({"status": "active"});
                let path = self.frozen.path("");
                world
                    .person_edits(&self.owner, Method::PATCH, &path, &active)
                    .await
                    .ok();
            }
            EditPolicy => {
                let cap = asked.about.as_u64().unwrap();
                assert_eq!(answer.ok()["policy"]["max_per_call_units"], cap);
                let over = world.authorize(&self.edited, &body_of(world.offer(cap + 1))).await;
                assert_eq!(
                    over.refused(402, "amount_exceeds_per_call_limit")["max_per_call_units"],
                    cap
                );
            }
        }
    }
}

/// The faults for which a function must return a temporary error.
const CONTENDED: &str = "others hold the rows for long";
const THROTTLED: &str = "the tables' throughput is used up";
const THROTTLED_WRITES: &str = "writes are throttled";
const THROTTLED_TRANSACTIONS: &str = "transactions are cancelled for throttling";
const UNPROCESSED: &str = "batches are left unprocessed";
const TEMPORARY: [&str; 5] = [
    CONTENDED,
    THROTTLED,
    THROTTLED_WRITES,
    THROTTLED_TRANSACTIONS,
    UNPROCESSED,
];

/// A fault: its name, the operations that succeed despite it, and its effect on calls.
struct Fault {
    name: &'static str,
    unharmed: &'static [Operation],
    script: Box<dyn Fn() -> Script>,
}

fn fault(name: &'static str, unharmed: &'static [Operation], script: impl Fn() -> Script + 'static) -> Fault {
    Fault {
        name,
        unharmed,
        script: Box::new(script),
    }
}

/// Asserts that no partial writes exist and that every payment was made once.
async fn assert_sound(world: &World, made: Option<usize>, faults: &[Fault]) {
    let names: Vec<&str> = faults.iter().map(|fault| fault.name).collect();
    let found = purser_testkit::invariants::violations(&world.stack.db, "LedgerTable").await;
    assert!(found.is_empty(), "{names:?}: {found:#?}");
    if let Some(made) = made {
        assert_eq!(world.footprint().await.settlements, made, "{names:?}");
    }
}

/// Runs every operation with every fault. A failed operation must respond in time, and its retry must succeed.
async fn check(faults: Vec<Fault>) {
    /// The number of concurrently tested faults. Most of them only wait.
    const AT_ONCE: usize = 4;
    let world = World::start().await;
    let mut benches = Vec::new();
    for _ in 0..AT_ONCE {
        benches.push(Bench::new(&world).await);
    }
    for faults in faults.chunks(AT_ONCE) {
        let mut asked = Vec::new();
        for (bench, fault) in benches.iter_mut().zip(faults) {
            asked.push(bench.prepare_all().await);
            bench.warm().await;
            for process in bench.processes.values() {
                process.db.follow((fault.script)());
            }
        }
        let ask = || {
            benches
                .iter()
                .zip(&asked)
                .flat_map(|(bench, asked)| bench.asking(asked))
                .collect()
        };
        let answers = together(ask()).await;
        assert_sound(&world, None, faults).await;
        for bench in &benches {
            bench.heal();
        }
        let repeated = together(ask()).await;
        let all = benches.iter().zip(&asked).zip(faults);
        let all = all.flat_map(|((bench, asked), fault)| asked.iter().map(move |asked| (bench, asked, fault)));
        for ((answer, repeated), (bench, asked, fault)) in answers.into_iter().zip(repeated).zip(all) {
            let shown = format!(
                "{}, {:?}: {} {}",
                fault.name, asked.operation, answer.status, answer.body
            );
            println!("{}", shown.get(..100).unwrap_or(&shown));
            if fault.unharmed.contains(&asked.operation) {
                assert!(answer.status < 409, "{shown}");
            } else {
                // Contention and throttling end by themselves, so the error must be 503.
                let temporary = answer.status == 503;
                assert!(temporary || !TEMPORARY.contains(&fault.name), "{shown}");
                if temporary {
                    assert_eq!(answer.headers["retry-after"], "1", "{shown}");
                    answer.refused(503, "temporarily_unavailable");
                } else {
                    answer.refused(500, "internal_error");
                }
            }
            bench.assert_done(asked, repeated).await;
        }
        assert_sound(&world, Some(benches.iter().map(|bench| bench.made).sum()), faults).await;
    }
}

const fn any(_: &Step<'_>) -> bool {
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_database_faults_cause_no_errors() {
    type Of = fn(&Step<'_>) -> bool;
    let arrived = |name, times, which: Of, fate: fn(&Step<'_>) -> Fate| {
        fault(name, &ALL, move || first(times, Moment::Arrived, which, fate))
    };
    let done = |name, times, which: Of, fate: fn(&Step<'_>) -> Fate| {
        fault(name, &ALL, move || first(times, Moment::CarriedOut, which, fate))
    };
    let batches: Of = |step| step.call.starts_with("BatchGetItem");
    let every = u32::MAX;
    check(vec![
        arrived("the table's throughput is used up", 2, any, |_| {
            Fate::throttled("ProvisionedThroughputExceededException")
        }),
        arrived("the account is throttled", 1, any, |_| {
            Fate::throttled("ThrottlingException")
        }),
        arrived("a transaction is throttled", 2, writes_in_a_transaction, |step| {
            Fate::throttled_transaction(step.request, "ThrottlingError")
        }),
        arrived("a batch is left unprocessed", 2, batches, |step| {
            Fate::unprocessed(step.request)
        }),
        arrived("others hold the rows", 6, writes_the_ledger, |step| {
            Fate::conflict(step.request)
        }),
        arrived("it fails", 2, any, |_| Fate::server_error()),
        done("it fails after it wrote", 2, any, |_| Fate::server_error()),
        arrived("it hangs up", 1, any, |_| Fate::HangUp),
        done("it hangs up after it wrote", 2, any, |_| Fate::HangUp),
        done("an answer breaks off", 1, any, |_| Fate::CutOff),
        done("an answer never comes", 1, writes_the_ledger, |_| Fate::Silence),
        // All of the SDK's attempts fail, so the store must recognize the rows that it wrote.
        done("answers never come", 3, writes_in_a_transaction, |_| Fate::Silence),
        arrived("every call is slow", every, any, |_| {
            Fate::Wait(Duration::from_millis(300))
        }),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lasting_database_faults_are_reported_in_time() {
    type Of = fn(&Step<'_>) -> bool;
    let arrived = |name, unharmed, which: Of, fate: fn(&Step<'_>) -> Fate| {
        fault(name, unharmed, move || first(u32::MAX, Moment::Arrived, which, fate))
    };
    let done = |name, unharmed, which: Of, fate: fn(&Step<'_>) -> Fate| {
        fault(name, unharmed, move || first(u32::MAX, Moment::CarriedOut, which, fate))
    };
    let batches: Of = |step| step.call.starts_with("BatchGetItem LedgerTable");
    let throttled = |_: &Step<'_>| Fate::throttled("ProvisionedThroughputExceededException");
    check(vec![
        arrived(THROTTLED_WRITES, &[Replay], writes_the_ledger, throttled),
        // `Complete` makes no transaction.
        arrived(
            THROTTLED_TRANSACTIONS,
            &[Replay, Complete],
            writes_in_a_transaction,
            |step| Fate::throttled_transaction(step.request, "ProvisionedThroughputExceeded"),
        ),
        // The contention lasts until shortly before the function's timeout.
        arrived(CONTENDED, &[Replay], writes_the_ledger, |step| {
            Fate::conflict(step.request)
        }),
        arrived("it never answers", &[], any, |_| Fate::Silence),
        done("it never answers after it wrote", &[Replay], writes_the_ledger, |_| {
            Fate::Silence
        }),
        // `Freeze` reads no batch of the ledger.
        arrived(UNPROCESSED, &[Freeze], batches, |step| Fate::unprocessed(step.request)),
        arrived(THROTTLED, &[], any, throttled),
        arrived("it fails", &[], any, |_| Fate::server_error()),
        done("it fails after it wrote", &[Replay], writes_the_ledger, |_| {
            Fate::server_error()
        }),
        done("its answers break off", &[], any, |_| Fate::CutOff),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_recover_from_an_unreachable_database() {
    let world = World::start().await;
    let mut bench = Bench::new(&world).await;
    let asked = bench.prepare_all().await;
    bench.warm().await;
    for process in bench.processes.values() {
        process.db.go_down();
    }
    for answer in together(bench.asking(&asked)).await {
        answer.refused(500, "internal_error");
    }
    for process in bench.processes.values() {
        process.db.come_up().await;
    }
    for (asked, answer) in asked.iter().zip(together(bench.asking(&asked)).await) {
        bench.assert_done(asked, answer).await;
    }
    assert_sound(&world, Some(bench.made), &[]).await;
}
