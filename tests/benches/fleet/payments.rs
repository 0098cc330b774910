//! Payments of agents that behave in different ways.

use crate::{DELAY, Report, agents, options, states};
use purser_testkit::Units;
use purser_tests::{Answer, PayingNode, TestAgent, World, authorizing, body_of, completing, few_at_once};
use serde_json::Value;
use std::time::{Duration, Instant};

const GROUP: &str = "payments of a fleet";
const AGENTS: usize = 12;
const PAYMENTS: usize = 600;
/// The number of concurrent calls: enough to exceed the node's limit at this delay.
const CALLERS: usize = 32;
/// The node's limit of calls per second.
const NODE_LIMIT: u32 = 250;
/// The number of payments in a facilitator's transaction.
const BATCH: usize = 5;

/// The course of a payment.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// The payment is made, and its agent completes it.
    Completed,
    /// The payment is made, and nobody completes it.
    Forgotten,
    /// The payment is not made, but its agent claims that it was.
    Invented,
    /// The payment is made in one transaction with others, and each agent completes its own.
    Batched,
}

impl Manner {
    const ALL: [Self; 4] = [Self::Completed, Self::Forgotten, Self::Invented, Self::Batched];

    /// Of ten payments six are completed, two are forgotten, one is invented and one is batched.
    const fn of(number: usize) -> Self {
        match number % 10 {
            0..=5 => Self::Completed,
            6..=7 => Self::Forgotten,
            8 => Self::Invented,
            _ => Self::Batched,
        }
    }
}

/// The measured costs of a call.
pub struct Costs {
    /// The median times of authorize and complete.
    pub seconds: [f64; 2],
    /// The node calls of a completed payment, including its share of reconcile's.
    pub node_calls: f64,
}

struct Payment {
    agent: TestAgent,
    manner: Manner,
    authorized: Value,
}

struct Fleet {
    world: World,
    node: PayingNode,
}

/// The measurements of a step.
#[derive(Default)]
struct Took {
    units: Units,
    node_calls: usize,
    refused: usize,
    times: Vec<Duration>,
}

impl Took {
    fn add(&mut self, more: Self) {
        self.units.read += more.units.read;
        self.units.write += more.units.write;
        self.node_calls += more.node_calls;
        self.refused += more.refused;
        self.times.extend(more.times);
    }

    fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

pub async fn of_a_fleet(report: &mut Report) -> Costs {
    let node = PayingNode::start();
    let world = World::watched_with(options(&node)).await;
    let agents = agents(&world, AGENTS).await;
    node.mine_until(world.now().secs());
    world
        .stack
        .reconcile
        .run(Duration::from_secs(55))
        .await
        .expect("it remembers where its watch begins");
    node.set_latency(DELAY);
    node.set_limit(NODE_LIMIT);
    let fleet = Fleet { world, node };

    fleet.start_counting();
    let bodies = (0..PAYMENTS).map(|_| body_of(fleet.world.offer(1)));
    let asked = bodies
        .enumerate()
        .map(|(n, body)| authorizing(&fleet.world, &agents[n % AGENTS], body));
    let (answers, authorize) = fleet.count(asked.collect()).await;
    let payments: Vec<Payment> = answers
        .into_iter()
        .enumerate()
        .map(|(n, answer)| Payment {
            agent: agents[n % AGENTS].clone(),
            manner: Manner::of(n / AGENTS),
            authorized: answer.ok(),
        })
        .collect();
    fleet.row(report, "authorize", PAYMENTS, &authorize);
    let hashes = fleet.make(&payments);

    let [completed, invented, batched] = [Manner::Completed, Manner::Invented, Manner::Batched].map(|manner| {
        payments
            .iter()
            .zip(&hashes)
            .filter(|(payment, _)| payment.manner == manner)
            .collect::<Vec<_>>()
    });
    let complete = fleet.complete(report, "complete", &completed).await;
    fleet
        .complete(report, "complete, with an invented proof", &invented)
        .await;
    fleet
        .complete(report, "complete, of five in one transaction", &batched)
        .await;

    let left = payments.len() - completed.len() - batched.len() / BATCH;
    let (reconciled, runs) = fleet.reconcile(left).await;
    fleet.row(report, &format!("reconcile, in {runs} runs"), left, &reconciled);

    let count = |manner| payments.iter().filter(|payment| payment.manner == manner).count();
    let [completed, forgotten, invented, batched] = Manner::ALL.map(count);
    let states = states(&fleet.world).await;
    assert_eq!(states["confirmed"], completed + forgotten + batched, "{states:?}");
    assert_eq!(states["expired"], invented, "{states:?}");
    purser_testkit::invariants::assert_hold(&fleet.world.stack.db, "LedgerTable").await;

    let share = |took: &Took, of: usize| (took.node_calls - took.refused) as f64 / of as f64;
    Costs {
        seconds: [authorize.median().as_secs_f64(), complete.median().as_secs_f64()],
        node_calls: share(&authorize, PAYMENTS) + share(&complete, completed) + share(&reconciled, left),
    }
}

impl Fleet {
    fn start_counting(&self) {
        self.node.take();
        self.node.take_refused();
        self.world.proxy.as_ref().expect("a watched world").calls().take();
    }

    fn counted(&self, times: Vec<Duration>) -> Took {
        let calls = self.world.proxy.as_ref().expect("a watched world").calls().take();
        Took {
            units: Units::of(&calls),
            node_calls: self.node.take().len(),
            refused: self.node.take_refused(),
            times,
        }
    }

    /// Makes the calls, `CALLERS` at a time, and returns the answers and the measurements.
    async fn count<F>(&self, calls: Vec<F>) -> (Vec<Answer>, Took)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let timed = calls.into_iter().map(|call| async move {
            let began = Instant::now();
            (call.await, began.elapsed())
        });
        let (answers, times) = few_at_once(CALLERS, timed).await.into_iter().unzip();
        (answers, self.counted(times))
    }

    /// Makes the payments in final blocks, except the invented ones. Returns the hashes that the agents know or invent.
    fn make(&self, payments: &[Payment]) -> Vec<String> {
        /// The number of blocks that contain the payments.
        const BLOCKS: u64 = 8;
        self.node.mine(BLOCKS);
        let mut batch = Vec::new();
        let mut hashes = Vec::new();
        for (payment, below) in payments.iter().zip((0..BLOCKS).cycle()) {
            let mut hash = self.node.transaction();
            let mut below = below;
            match payment.manner {
                Manner::Completed | Manner::Forgotten => {}
                Manner::Invented => {
                    hashes.push(hash.to_string());
                    continue;
                }
                Manner::Batched => {
                    if batch.len() % BATCH == 0 {
                        batch.clear();
                    }
                    batch.push((hash, below));
                    (hash, below) = batch[0];
                }
            }
            self.node.carry_out_by(&payment.authorized, hash, below);
            hashes.push(hash.to_string());
        }
        self.node.mine(5);
        hashes
    }

    /// Completes the payments, retrying until every answer is final.
    async fn complete(&self, report: &mut Report, name: &str, payments: &[(&Payment, &String)]) -> Took {
        const MOST_ATTEMPTS: usize = 10;
        self.start_counting();
        let mut took = Took::default();
        let mut left = payments.to_vec();
        for _ in 0..MOST_ATTEMPTS {
            let calls = left
                .iter()
                .map(|(payment, hash)| completing(&self.world, &payment.agent, &payment.authorized, hash));
            let (answers, more) = self.count(calls.collect()).await;
            took.add(more);
            let is_refused = |answer: &Answer| answer.body["reason"] == "chain_unavailable";
            let mut refused = answers.iter().map(is_refused);
            left.retain(|_| refused.next().unwrap_or_default());
            if left.is_empty() {
                self.row(report, name, payments.len(), &took);
                return took;
            }
            // The answer's `retry_after`.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        panic!("{} are left of {name}", left.len());
    }

    /// Reconciles until nothing is held; returns the measurements and the number of runs.
    async fn reconcile(&self, holds: usize) -> (Took, usize) {
        const MOST_RUNS: usize = 30;
        self.start_counting();
        let mut ended = 0;
        for runs in 1..=MOST_RUNS {
            // First past the life of the authorizations; later past the minute for which a hold may be postponed.
            self.world.pass(if runs == 1 { 600 } else { 60 });
            self.node.mine_until(self.world.now().secs() + 20);
            let Ok(run) = self.world.stack.reconcile.run(Duration::from_secs(55)).await else {
                continue;
            };
            ended += run.count(purser_local::Outcome::Confirmed) + run.count(purser_local::Outcome::Released);
            if ended == holds {
                return (self.counted(Vec::new()), runs);
            }
        }
        panic!("{ended} of {holds} ended in {MOST_RUNS} runs");
    }

    fn row(&self, report: &mut Report, name: &str, count: usize, took: &Took) {
        let each = |number: f64| format!("{:.3}", number / count as f64);
        let cells = [
            ("payments", count.to_string()),
            ("read units", each(took.units.read as f64 / 10.0)),
            ("write units", each(took.units.write as f64 / 10.0)),
            ("node calls", each((took.node_calls - took.refused) as f64)),
            ("refused by the node", each(took.refused as f64)),
            (
                "median",
                if took.times.is_empty() {
                    String::new()
                } else {
                    format!("{:.0?}", took.median())
                },
            ),
        ];
        report.add(GROUP, name, &cells, false);
    }
}
