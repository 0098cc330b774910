//! The requirements of 1,000 payments a second: for each part of the deployment, the rate of payments that it carries.

use crate::Report;
use crate::payments::Costs;
use purser_tests::{World, judged_policy, writes_of_a_payment};

const GROUP: &str = "what carries how many payments a second";
/// The write units per second of a partition (DynamoDB developer guide, "Burst and adaptive capacity").
const PARTITION: f64 = 1_000.0;
/// The write units per second of a table, unless its quota is raised (the same guide, "Quotas": on-demand).
const TABLE: f64 = 40_000.0;
/// The write units per second with which an on-demand table starts, unless it is warmed (the same guide, "Warm throughput").
const NEW_TABLE: f64 = 4_000.0;
/// The concurrent executions in an account, unless raised (Lambda developer guide, "Lambda quotas"), and what new accounts
/// may have instead.
const CONCURRENCY: f64 = 1_000.0;
const NEW_ACCOUNT: f64 = 10.0;
/// The default of `PaymentsConcurrency` in template.yaml: a reserved share is also a cap.
const PAYMENTS_CONCURRENCY: f64 = 100.0;
/// The requests per second of an account's gateways, unless raised (API Gateway developer guide, "Quotas").
const GATEWAY: f64 = 10_000.0;
/// The default of `GatewayRateLimit` in template.yaml.
const GATEWAY_SETTING: f64 = 500.0;
/// The partitions of the index of holds, and those of one block's claims. A block takes two seconds, and all its claims
/// may come within one.
const HOLD_PARTITIONS: f64 = 16.0;
const CLAIM_PARTITIONS: f64 = 4.0;
/// Authorize and complete.
const REQUESTS: f64 = 2.0;

pub async fn at_a_thousand_a_second(report: &mut Report, costs: &Costs) {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    let writes = writes_of_a_payment(&world, &agent).await;
    let units = |kind: &str| {
        *writes
            .get(kind)
            .unwrap_or_else(|| panic!("{kind} is not in {writes:?}")) as f64
    };
    let ledger: f64 = writes
        .iter()
        .filter(|(kind, _)| *kind != "RL")
        .map(|(_, units)| *units as f64)
        .sum();
    let seconds: f64 = costs.seconds.iter().sum();
    let rows = [
        (
            "a new account's concurrency, where nothing is reserved",
            seconds,
            "s",
            NEW_ACCOUNT,
        ),
        (
            "one agent's payments to one service: its window",
            units("L"),
            "units",
            PARTITION,
        ),
        (
            "`GatewayRateLimit`, unless it is raised",
            REQUESTS,
            "requests",
            GATEWAY_SETTING,
        ),
        ("one agent's payments: its settlements", units("S"), "units", PARTITION),
        (
            "`PaymentsConcurrency`, where it is reserved, unless it is raised",
            seconds,
            "s",
            PAYMENTS_CONCURRENCY,
        ),
        (
            "the account's concurrency, where nothing is reserved",
            seconds,
            "s",
            CONCURRENCY,
        ),
        (
            "a new ledger, without `LedgerWarmWriteUnits`",
            ledger,
            "units",
            NEW_TABLE,
        ),
        ("the ledger's quota, unless it is raised", ledger, "units", TABLE),
        (
            "the claims of one block",
            units("X"),
            "units",
            CLAIM_PARTITIONS * PARTITION / 2.0,
        ),
        (
            "the gateway's quota, unless it is raised",
            REQUESTS,
            "requests",
            GATEWAY,
        ),
        (
            "the index over holds",
            units("index hold"),
            "units",
            HOLD_PARTITIONS * PARTITION,
        ),
    ];
    for (name, each, unit, limit) in rows {
        let cells = [
            ("a payment takes", format!("{each:.3} {unit}")),
            ("a second has", format!("{limit:.0}")),
            ("payments a second", format!("{:.0}", limit / each)),
        ];
        report.add(GROUP, name, &cells, false);
    }
    let cells = [
        ("a payment takes", format!("{:.3} calls", costs.node_calls)),
        ("a second has", "what the node's plan allows".to_owned()),
        (
            "payments a second",
            format!("1,000 take {:.0}", costs.node_calls * 1_000.0),
        ),
    ];
    report.add(GROUP, "the node, asked again where its limit refuses", &cells, false);
}
