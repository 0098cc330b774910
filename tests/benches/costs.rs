//! `make bench`: compares the cost of each operation with its budget. Writes `target/bench/costs.jsonl`.

use purser_tests::{Cost, World, every_operation, judged_policy};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

#[tokio::main]
async fn main() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    let costs = every_operation(&world, &agent).await;
    let lines: Vec<String> = costs.iter().map(|cost| line(cost).to_string()).collect();
    let text = lines.join("\n") + "\n";
    print!("{text}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("costs.jsonl"), text).expect("written");
    let excess: Vec<String> = costs.iter().filter_map(Cost::excess).collect();
    assert!(excess.is_empty(), "{excess:#?}");
}

fn line(cost: &Cost) -> Value {
    let Cost { name, measured, budget } = cost;
    let units = |tenths: u64| f64::from(u32::try_from(tenths).expect("few")) / 10.0;
    json!({
        "group": "costs",
        "name": name,
        "read": units(measured.units.read),
        "read_budget": budget.read,
        "write": units(measured.units.write),
        "write_budget": budget.write,
        "sequence": measured.sequence(),
    })
}
