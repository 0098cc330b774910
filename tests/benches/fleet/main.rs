//! `make bench`, part *fleet*: agents that complete, forget, lie and batch, through the real functions, against a node
//! with a network's delay and a rate limit; the time for 10,000 due holds; and the requirements of 1,000 payments a
//! second. How to read it: `docs/performance.md`. The figures go to `target/bench/fleet.jsonl`.

mod drain;
mod payments;
mod rate;

use purser_local::Options;
use purser_testkit::Call;
use purser_tests::{PayingNode, TestAgent, World, judged_policy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// The delay of each answer of the node.
const DELAY: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() {
    // Lines are formatted as in production, and discarded.
    purser_api::log_to("error,purser=info", std::io::sink);
    let mut report = Report::start();
    let costs = payments::of_a_fleet(&mut report).await;
    rate::at_a_thousand_a_second(&mut report, &costs).await;
    drain::by_one_run(&mut report).await;
    drain::by_four_at_once(&mut report).await;
}

/// The rows so far: printed immediately, and written for `make bench`.
struct Report(File);

impl Report {
    fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
        fs::create_dir_all(&folder).expect("a folder");
        Self(File::create(folder.join("fleet.jsonl")).expect("a file"))
    }

    /// Adds a row with the cells of its columns, and whether a limit is exceeded.
    fn add(&mut self, group: &str, name: &str, cells: &[(&str, String)], over: bool) {
        let cells: Vec<Value> = cells.iter().map(|(title, text)| json!([title, text])).collect();
        let row = json!({"group": group, "name": name, "cells": cells, "over": over});
        println!("{row}");
        writeln!(self.0, "{row}").expect("written");
    }
}

/// The options of a stack whose functions use this node.
fn options(node: &PayingNode) -> Options {
    let url = node.url.clone();
    let environment = [("FINALITY_CONFIRMATIONS", "5"), ("WATCH_CONFIRMATIONS", "20")];
    Options {
        node_front: Some(Box::new(move |_| Box::pin(async move { url }))),
        throttle_per_minute: 1_000_000,
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Options::default()
    }
}

async fn agents(world: &World, count: usize) -> Vec<TestAgent> {
    let mut agents = Vec::new();
    for _ in 0..count {
        let agent = world.poor_agent(vec![]).await;
        world.enable(&agent, "lab-search", judged_policy()).await;
        agents.push(agent);
    }
    agents
}

/// The time during which at least one of the calls was in flight.
fn busy(calls: &[Call]) -> Duration {
    let mut spans: Vec<_> = calls.iter().map(|call| (call.started, call.ended)).collect();
    spans.sort_unstable();
    let (mut busy, mut until) = (Duration::ZERO, None);
    for (started, ended) in spans {
        let from = until.map_or(started, |until| started.max(until));
        busy += ended.saturating_duration_since(from);
        until = until.max(Some(ended));
    }
    busy
}

/// The number of the ledger's settlements in each state.
async fn states(world: &World) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for item in world.scan("LedgerTable").await {
        if let Some(state) = item.get("rs") {
            *states.entry(state.as_s().expect("a text").clone()).or_default() += 1;
        }
    }
    states
}
