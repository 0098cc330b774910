//! The time that reconcile takes for thousands of holds that are due at once, half of them paid.

use crate::{DELAY, Report, agents, busy, options, states};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, TransactWriteItem, Update};
use purser_local::{Outcome, Part};
use purser_tests::{PayingNode, World, authorizing, body_of, few_at_once, together};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const TABLE: &str = "LedgerTable";
const GROUP: &str = "due holds, half of them paid";
const AGENTS: usize = 10;
/// The timeout of a run in the cloud.
const TIME: Duration = Duration::from_secs(55);
/// The limits for a run of 10,000: the time spent waiting for the node, and the whole time unless the database is
/// slower.
const NODE_LIMIT: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);
/// The number of concurrent writes that reconcile makes.
const WRITES_AT_ONCE: usize = 128;

struct Due {
    world: World,
    node: PayingNode,
    holds: usize,
}

impl Due {
    /// A world with `count` due holds, every other one of which is paid.
    async fn holds(count: usize) -> Self {
        const CALLERS: usize = 50;
        /// The number of blocks that contain the payments: four minutes.
        const BLOCKS: u64 = 120;
        let node = PayingNode::start();
        let world = World::still_with(options(&node)).await;
        let agents = agents(&world, AGENTS).await;
        node.mine_until(world.now().secs());
        world
            .stack
            .reconcile
            .run(TIME)
            .await
            .expect("it remembers where its watch begins");
        let calls = (0..count).map(|n| authorizing(&world, &agents[n % AGENTS], body_of(world.offer(1))));
        let authorized = few_at_once(CALLERS, calls).await;
        node.mine(BLOCKS + 1);
        for (answer, below) in authorized.into_iter().step_by(2).zip((0..BLOCKS).cycle()) {
            node.carry_out_by(&answer.ok(), node.transaction(), below);
        }
        world.pass(900);
        node.mine_until(world.now().secs() + 20);
        node.set_latency(DELAY);
        node.take();
        Self {
            world,
            node,
            holds: count,
        }
    }

    /// Asserts that half was confirmed and half released, once each.
    async fn ended(&self, confirmed: usize, released: usize) {
        let half = self.holds / 2;
        assert_eq!((confirmed, released), (half, half));
        let states = states(&self.world).await;
        assert_eq!((states["confirmed"], states["expired"]), (half, half), "{states:?}");
        purser_testkit::invariants::assert_hold(&self.world.stack.db, "LedgerTable").await;
    }
}

pub async fn by_one_run(report: &mut Report) {
    let due = Due::holds(10_000).await;
    let began = Instant::now();
    let run = due.world.stack.reconcile.run(TIME).await.expect("a run");
    let took = began.elapsed();
    let calls = due.node.take();
    let node = busy(&calls);
    due.ended(run.count(Outcome::Confirmed), run.count(Outcome::Released))
        .await;
    let bare = bare_writes(&due).await;
    let cells = cells(took, node, calls.len(), Some(bare));
    // If the database itself is slower than the limit, its time decides.
    let over = node > NODE_LIMIT || took > LIMIT.max(bare * 2);
    report.add(GROUP, "10,000 by one run", &cells, over);
}

pub async fn by_four_at_once(report: &mut Report) {
    const RUNS: u64 = 4;
    let due = Due::holds(4_000).await;
    let began = Instant::now();
    let runs = (0..RUNS).map(|index| {
        let reconcile = due.world.stack.reconcile.clone();
        let part = Part::of(index, RUNS).expect("a part");
        async move { reconcile.run_part(part, TIME).await.expect("a run") }
    });
    let runs = together(runs.collect()).await;
    let took = began.elapsed();
    let calls = due.node.take();
    let count = |outcome| runs.iter().map(|run| run.count(outcome)).sum();
    due.ended(count(Outcome::Confirmed), count(Outcome::Released)).await;
    report.add(
        GROUP,
        "4,000 by four runs at once",
        &cells(took, busy(&calls), calls.len(), None),
        false,
    );
}

fn cells(took: Duration, node: Duration, calls: usize, bare: Option<Duration>) -> [(&'static str, String); 4] {
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    [
        ("took", seconds(took)),
        ("of that the node", seconds(node)),
        ("node calls", calls.to_string()),
        ("the same writes alone", bare.map_or_else(String::new, seconds)),
    ]
}

/// The time that the database takes for as many writes of the same kinds without reconcile.
async fn bare_writes(due: &Due) -> Duration {
    let bare = Bare {
        db: due.world.stack.db.clone(),
    };
    let prepared = (0..due.holds).map(|n| bare.clone().prepare(n));
    few_at_once(WRITES_AT_ONCE, prepared).await;
    let began = Instant::now();
    few_at_once(WRITES_AT_ONCE, (0..due.holds).map(|n| bare.clone().write(n))).await;
    began.elapsed()
}

/// Rows like those of holds, in separate partitions.
#[derive(Clone)]
struct Bare {
    db: Client,
}

impl Bare {
    async fn prepare(self, n: usize) {
        let [settlement, entry, window] = keys(n);
        let rows = [
            (
                settlement,
                vec![
                    ("rs", "authorized".to_owned()),
                    ("hp", "0".to_owned()),
                    ("hs", format!("{n:012}")),
                ],
            ),
            (entry, vec![]),
            (window, vec![]),
        ];
        for (key, attributes) in rows {
            let mut put = self.db.put_item().table_name(TABLE).set_item(Some(key));
            // As large as a settlement.
            put = put.item("terms", AttributeValue::S("x".repeat(400)));
            for (name, value) in attributes {
                put = put.item(name, AttributeValue::S(value));
            }
            put.send().await.expect("written");
        }
    }

    /// Releases every other hold with one transaction. Confirms the others with a claim and an update.
    async fn write(self, n: usize) {
        const ENDS: &str = "SET rs = :ended REMOVE hp, hs";
        const IS_OPEN: &str = "rs = :open";
        let [settlement, entry, window] = keys(n);
        let (ended, open) = (
            AttributeValue::S("ended".to_owned()),
            AttributeValue::S("authorized".to_owned()),
        );
        if n.is_multiple_of(2) {
            let ends = Update::builder().update_expression(ENDS).condition_expression(IS_OPEN);
            let ends = ends
                .expression_attribute_values(":ended", ended)
                .expression_attribute_values(":open", open);
            let lowers = Update::builder().update_expression("ADD n :less");
            let lowers = lowers.expression_attribute_values(":less", AttributeValue::N("-1".to_owned()));
            let removes = Delete::builder().condition_expression("attribute_exists(pk)");
            let [ends, lowers] = [(ends, settlement), (lowers, window)].map(|(update, key)| {
                let update = update.table_name(TABLE).set_key(Some(key)).build().expect("whole");
                TransactWriteItem::builder().update(update).build()
            });
            let removes = removes.table_name(TABLE).set_key(Some(entry)).build().expect("whole");
            let removes = TransactWriteItem::builder().delete(removes).build();
            let transaction = self.db.transact_write_items();
            let transaction = transaction
                .transact_items(ends)
                .transact_items(lowers)
                .transact_items(removes);
            transaction.send().await.expect("written");
        } else {
            let claim = item(&format!("BARE#X{n}"), "claim");
            let claim = self.db.put_item().table_name(TABLE).set_item(Some(claim));
            claim
                .condition_expression("attribute_not_exists(pk)")
                .send()
                .await
                .expect("written");
            let ends = self.db.update_item().table_name(TABLE).set_key(Some(settlement));
            let ends = ends.update_expression(ENDS).condition_expression(IS_OPEN);
            let ends = ends
                .expression_attribute_values(":ended", ended)
                .expression_attribute_values(":open", open);
            ends.send().await.expect("written");
        }
    }
}

/// The keys of a settlement, its entry, and its agent's window.
fn keys(n: usize) -> [HashMap<String, AttributeValue>; 3] {
    let agent = n / 2 % AGENTS;
    [
        item(&format!("BARE#A{agent}"), &format!("S#{n}")),
        item(&format!("BARE#L{agent}"), &format!("E#{n}")),
        item(&format!("BARE#L{agent}"), "#W"),
    ]
}

fn item(pk: &str, sk: &str) -> HashMap<String, AttributeValue> {
    let key = [("pk", pk), ("sk", sk)];
    key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())))
        .into()
}
