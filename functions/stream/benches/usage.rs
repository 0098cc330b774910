//! `make bench`: counts the capacity units of the decision history, and writes them to `target/bench/usage.jsonl`.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench stops where its ground is missing"
)]

#[path = "../tests/folding/mod.rs"]
mod folding;

use folding::{FLEETS, measure};
use serde_json::json;
use std::fs;
use std::path::Path;

#[tokio::main]
async fn main() {
    let mut lines = Vec::new();
    for fleet in &FLEETS {
        let aggregated = measure(fleet).await;
        let decimal = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
        let line = json!({
            "group": "the journal and its sums",
            "name": fleet.name,
            "cells": [
                ["records of a batch", aggregated.records_of_a_batch.to_string()],
                ["read units for a payment", decimal(aggregated.read)],
                ["write units for a payment", decimal(aggregated.write)],
                ["most writes of an item of sums for a batch", aggregated.hottest.to_string()],
                ["limit of write units", format!("≤ {}", decimal(fleet.limit))],
                ["limit of read units", format!("≤ {}", decimal(fleet.read_limit))],
            ],
            "over": aggregated.write > fleet.limit || aggregated.read > fleet.read_limit,
        });
        lines.push(line.to_string());
    }
    let text = lines.join("\n") + "\n";
    print!("{text}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("usage.jsonl"), text).expect("written");
}
