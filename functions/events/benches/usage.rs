//! `make bench`: the units of counting usage. It counts and does not time, so any build will do. The figures go to
//! `target/bench/usage.jsonl`.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench stops where its ground is missing"
)]

#[path = "../tests/counting/mod.rs"]
mod counting;

use counting::{FLEETS, measure};
use serde_json::json;
use std::fs;
use std::path::Path;

#[tokio::main]
async fn main() {
    let mut lines = Vec::new();
    for fleet in &FLEETS {
        let counted = measure(fleet).await;
        let decimal = |hundredths: u64| format!("{}.{:02}", hundredths / 100, hundredths % 100);
        let line = json!({
            "group": "counting usage",
            "name": fleet.name,
            "cells": [
                ["records of a batch", counted.records_of_a_batch.to_string()],
                ["read units for a payment", decimal(counted.read)],
                ["write units for a payment", decimal(counted.write)],
                ["most writes of a row for a batch", counted.hottest.to_string()],
                ["limit", format!("≤ {}", decimal(fleet.limit))],
            ],
            "over": counted.write > fleet.limit,
        });
        lines.push(line.to_string());
    }
    let text = lines.join("\n") + "\n";
    print!("{text}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("usage.jsonl"), text).expect("written");
}
