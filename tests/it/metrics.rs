//! Provokes every metric, and reads its log line as CloudWatch does.

use purser_domain::SpendPolicy;
use purser_local::{DEMO_OWNER, NETWORK, Options};
use purser_testkit::ProxyConfig;
use purser_tests::{
    Log, TestAgent, World, body_of, dollars, fresh_key, operation_entry, payment_entry, service_entry, units,
};
use serde_json::{Value, json};
use std::time::Duration;

/// The JSON log lines of this process.
struct Lines(Log);

impl Lines {
    fn start() -> Self {
        Self(Log::start("warn,purser=info"))
    }

    /// Returns the lines so far, after checking each of them.
    fn lines(&self) -> Vec<Value> {
        let text = self.0.text();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.inspect(check).collect()
    }

    /// Returns the only line about the agent that has this metric.
    fn one(&self, agent: &TestAgent, metric: &str, dimensions: &[(&str, &str)]) -> Value {
        let lines = self.lines().into_iter().filter(|line| {
            let about = line["agent.id"] == agent.id.to_string();
            let fits = dimensions.iter().all(|(name, value)| line[name] == *value);
            about && fits && counts(line, metric).is_some()
        });
        let lines: Vec<Value> = lines.collect();
        assert_eq!(lines.len(), 1, "{metric} {dimensions:?}: {lines:?}");
        lines[0].clone()
    }

    /// Returns the sum of this metric over all lines.
    fn sum(&self, metric: &str) -> u64 {
        self.lines().iter().filter_map(|line| counts(line, metric)).sum()
    }
}

/// Returns the value of a metric that a line declares.
fn counts(line: &Value, metric: &str) -> Option<u64> {
    let directives = line["_aws"]["CloudWatchMetrics"].as_array()?;
    let declared = directives
        .iter()
        .flat_map(|directive| directive["Metrics"].as_array().unwrap());
    declared
        .into_iter()
        .find(|declared| declared["Name"] == metric)
        .map(|_| line[metric].as_u64().unwrap())
}

/// Checks a line against the CloudWatch user guide, "Specification: Embedded metric format".
fn check(line: &Value) {
    assert!(
        ["INFO", "WARN", "ERROR"].contains(&line["level"].as_str().unwrap()),
        "{line}"
    );
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    let Some(aws) = line.get("_aws") else { return };
    assert!(aws["Timestamp"].is_u64(), "{line}");
    for directive in aws["CloudWatchMetrics"].as_array().unwrap() {
        assert_eq!(directive["Namespace"], "Purser");
        for set in directive["Dimensions"].as_array().unwrap() {
            for name in set.as_array().unwrap() {
                let value = line[name.as_str().unwrap()].as_str().unwrap();
                let is_word = value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                assert!(
                    is_word && !value.is_empty(),
                    "a dimension takes words, and no id: {line}"
                );
            }
        }
        for metric in directive["Metrics"].as_array().unwrap() {
            assert!(["Count", "Milliseconds", "Seconds"].contains(&metric["Unit"].as_str().unwrap()));
            assert!(line[metric["Name"].as_str().unwrap()].is_number(), "{line}");
        }
    }
}

fn environment<const N: usize>(pairs: [(&str, &str); N]) -> Options {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Options {
        environment: pairs.into(),
        ..Options::default()
    }
}

fn policy() -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(dollars(1_000)),
        require_approval_above: units(dollars(50)),
        ..SpendPolicy::spec_defaults()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_payment_outcome_is_counted_once_with_the_payments_ids() {
    let log = Lines::start();
    let world = World::start().await;
    let agent = world.agent(policy(), vec![]).await;

    let body = body_of(world.offer(5_000));
    let paid = world.authorize(&agent, &body).await;
    let request = paid.headers["x-request-id"].to_str().unwrap().to_owned();
    let trace = paid.headers["x-amzn-trace-id"].to_str().unwrap().to_owned();
    let paid = paid.ok();
    let line = log.one(&agent, "Decisions", &[("Result", "allow"), ("Rule", "none")]);
    assert_eq!(line["settlement.id"], paid["settlement_id"]);
    assert_eq!(line["transaction.id"], paid["transaction_id"]);
    assert_eq!(line["span"]["request.id"], request);
    assert_eq!(format!("Root={}", line["span"]["trace.id"].as_str().unwrap()), trace);
    assert!(line["AuthorizeLatencyMs"].is_u64());
    assert_eq!(log.sum("Replays"), 0);
    world.authorize(&agent, &body).await.ok();
    assert_eq!(log.one(&agent, "Replays", &[])["settlement.id"], paid["settlement_id"]);
    assert_eq!(log.sum("Decisions"), 1, "a replay decides nothing");

    let refused = world.authorize(&agent, &body_of(world.offer(dollars(101)))).await;
    let refused = refused.refused(402, "amount_exceeds_per_call_limit");
    let line = log.one(
        &agent,
        "Decisions",
        &[("Result", "block"), ("Rule", "max_per_call_units")],
    );
    assert_eq!(line["transaction.id"], refused["transaction_id"]);

    // The second request shares the approval, which is counted once.
    let mut costly = body_of(world.offer(dollars(60)));
    world.authorize(&agent, &costly).await.refused(402, "approval_required");
    let staged = log.one(&agent, "ApprovalsStaged", &[]);
    log.one(
        &agent,
        "Decisions",
        &[("Result", "escalate"), ("Rule", "require_approval_above_units")],
    );
    costly["idempotency_key"] = fresh_key().into();
    let joined = world.authorize(&agent, &costly).await.refused(402, "approval_required");
    assert_eq!(log.sum("ApprovalsStaged"), 1);
    assert_eq!(staged["approval.id"], joined["approval_id"]);
    assert_eq!(log.sum("Decisions"), 4);

    // First the transaction is not final. Then the settlement is confirmed, and the request is repeated.
    let settlement = paid["settlement_id"].as_str().unwrap();
    let proof = |hash: &str| json!({"payment_response_header": "e30=", "tx_hash": hash});
    let unmined = format!("0x{}", "1".repeat(64));
    world.complete(&agent, settlement, &proof(&unmined)).await;
    let line = log.one(&agent, "Confirmations", &[("Outcome", "not_yet")]);
    assert_eq!(line["settlement.id"], paid["settlement_id"]);
    let hash = world.settle(&paid).await;
    world.complete(&agent, settlement, &proof(&hash)).await.ok();
    log.one(&agent, "Confirmations", &[("Outcome", "confirmed")]);
    world.complete(&agent, settlement, &proof(&hash)).await.ok();
    log.one(&agent, "Confirmations", &[("Outcome", "already")]);
    assert_eq!(log.sum("ConfirmationFailures"), 0);
    let other = world.authorize(&agent, &body_of(world.offer(6_000))).await.ok();
    let other = other["settlement_id"].as_str().unwrap();
    let refused = world.complete(&agent, other, &proof(&hash)).await;
    refused.refused(409, "settlement_transaction_already_used");
    let line = log.one(&agent, "Confirmations", &[("Outcome", "transaction_used")]);
    assert_eq!(counts(&line, "ConfirmationFailures"), Some(1));
    let reverted = world.stack.chain.send(NETWORK.token().address, vec![1, 2, 3, 4]);
    let refused = world.complete(&agent, other, &proof(&reverted.await.unwrap())).await;
    refused.refused(422, "onchain_settlement_not_verified");
    let line = log.one(&agent, "Confirmations", &[("Outcome", "mismatch")]);
    assert_eq!(counts(&line, "ConfirmationFailures"), Some(1));
    assert_eq!(log.sum("ConfirmationFailures"), 2);

    // A change of a payee and a request with an unknown operator token are also counted.
    let url = format!("{}/internal/services/{}", world.stack.base_url, fresh_key());
    let write = async |entry: &Value, token: &str| {
        let request = world.http.put(&url).header("if-match", "*").json(entry);
        World::send(request.header("x-internal-token", token)).await
    };
    let mut entry = service_entry("news", &[operation_entry("news.read", "https://news.example/read")]);
    entry["operations"][0]["payment"] = payment_entry(1_000, "0x00000000000000000000000000000000000000bb");
    let token = world.stack.internal_token.as_str();
    let first = world.http.put(&url).json(&entry).header("x-internal-token", token);
    World::send(first).await.created();
    assert_eq!(log.sum("ChangesSeen"), 0, "a new one leads nobody elsewhere");
    let new = "0x00000000000000000000000000000000000000aa";
    entry["operations"][0]["payment"]["pay_to"] = json!(new);
    write(&entry, token).await.ok();
    assert_eq!(log.sum("ChangesSeen"), 1);
    let line = log
        .lines()
        .into_iter()
        .find(|line| counts(line, "ChangesSeen").is_some());
    let line = line.unwrap();
    assert_eq!(line["Change"], "payee");
    assert_eq!(line["pay_to"].as_str().unwrap().to_lowercase(), new);
    write(&entry, &"x".repeat(64))
        .await
        .refused(401, "invalid_internal_token");
    assert_eq!(log.sum("OperatorsRefused"), 1);

    assert_eq!(log.sum("ThrottleUnavailable"), 0);
    world.stack.probe.run_probes(Duration::from_secs(55)).await.unwrap();
    assert!(log.sum("ProbeObstacles") > 0, "the seeded providers don't exist");

    let text = log.0.text();
    for secret in [agent.key.as_str(), &world.stack.internal_token] {
        let secret = secret.rsplit(':').next().unwrap();
        assert!(!text.contains(secret), "nothing that opens anything is logged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn anomalies_are_counted_as_metrics() {
    let log = Lines::start();
    let options = environment([("THROTTLE_TABLE", "Missing")]);
    let world = World::node_proxied(ProxyConfig::default(), options).await;
    let agent = world.agent(policy(), vec![]).await;
    assert_eq!((log.sum("RpcFailures"), log.sum("BalanceUnavailable")), (0, 0));

    world.node_proxy.as_ref().unwrap().go_down();
    let paid = world.authorize(&agent, &body_of(world.offer(5_000))).await.ok();
    log.one(&agent, "BalanceUnavailable", &[]);
    assert!(log.sum("RpcFailures") > 0);
    let settlement = paid["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": "e30=", "tx_hash": format!("0x{}", "1".repeat(64))});
    world.complete(&agent, settlement, &proof).await;
    let line = log.one(&agent, "ConfirmationFailures", &[("Outcome", "not_yet")]);
    assert_eq!(line["failure"], "chain_unavailable");

    // Without the throttle's table, requests are still served.
    assert!(log.sum("ThrottleUnavailable") >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn database_contention_is_counted_once_per_operation() {
    let log = Lines::start();
    let world = World::conflicted().await;
    let agent = world.agent(policy(), vec![]).await;
    let calls = (0..16).map(|_| {
        let request = world
            .http
            .post(format!("{}/x402/authorize", world.stack.base_url))
            .bearer_auth(&agent.key)
            .json(&body_of(world.offer(5_000)));
        tokio::spawn(World::send(request))
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().ok();
    }
    let contended: Vec<Value> = log
        .lines()
        .into_iter()
        .filter(|line| line["message"] == "store.contended")
        .collect();
    assert!(!contended.is_empty(), "transactions did meet");
    for line in &contended {
        assert_eq!(counts(line, "Conflicts"), line["attempts"].as_u64());
        assert!(line["span"]["request.id"].is_string(), "{line}");
    }
    assert_eq!(log.sum("Decisions"), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_and_reconcile_outcomes_are_counted() {
    let log = Lines::start();
    let world = World::with(environment([("PAYOUT_DELAY_SECONDS", "0")])).await;
    let owner = world.person(&DEMO_OWNER);
    let own = world.agent_of(&owner, "own").await;
    let edit =
        async |method, below: &str, body: Value| world.person_edits(&owner, method, &own.path(below), &body).await;
    let address = json!({"address": "0x90F79bf6EB2c4f870365E785982E1f101E93b906"});
    edit(reqwest::Method::PUT, "/payout-address", address).await.ok();
    let payout = json!({"amount_units": 1, "idempotency_key": "x"});
    edit(reqwest::Method::POST, "/payouts", payout).await.created();
    log.one(&own, "PayoutsSubmitted", &[("Outcome", "accepted")]);

    let agent = world.agent(policy(), vec![]).await;
    let chain = &world.stack.chain;
    chain.stand_still().await.unwrap();
    let paid = world.authorize(&agent, &body_of(world.offer(5_000))).await.ok();
    let run = async || {
        world
            .stack
            .reconcile
            .reconcile_all(Duration::from_secs(55))
            .await
            .unwrap()
    };
    run().await;
    assert_eq!((log.sum("HoldsWaiting"), log.sum("Reconciliations")), (0, 0));

    let before = chain.snapshot().await.unwrap();
    let hash = world.settle(&paid).await;
    chain.advance(1_000).await.unwrap();
    run().await;
    let line = log.one(&agent, "Reconciliations", &[("Outcome", "confirmed")]);
    assert_eq!(
        (&line["settlement.id"], &line["tx.hash"], &line["level"]),
        (&paid["settlement_id"], &json!(hash), &json!("INFO"))
    );
    // The chain no longer contains the payment. An operator requests the reconciliation, because the payment is not
    // due.
    chain.revert(&before).await.unwrap();
    let path = format!(
        "/internal/agents/{}/settlements/{}/reconcile",
        agent.id,
        paid["settlement_id"].as_str().unwrap()
    );
    world.operator_edits(reqwest::Method::POST, &path, &json!({})).await;
    chain.mine(10).await.unwrap();
    run().await;
    let line = log.one(&agent, "Reconciliations", &[("Outcome", "taken_back")]);
    assert_eq!((&line["tx.hash"], &line["level"]), (&json!(hash), &json!("WARN")));

    // The run fails, because the node serves another chain.
    chain.call("anvil_setChainId", json!([1])).await.unwrap();
    assert!(
        world
            .stack
            .reconcile
            .reconcile_all(Duration::from_secs(55))
            .await
            .is_err()
    );
    chain
        .call("anvil_setChainId", json!([NETWORK.chain_id()]))
        .await
        .unwrap();
    chain.advance(10_000).await.unwrap();
    let late = world.stack.reconcile.reconcile_all(Duration::ZERO).await.unwrap();
    assert!(late.outcomes().is_empty(), "there was no time for a look: {late:?}");
    assert!(!late.is_complete);
    assert!(log.sum("ReconcileLagSeconds") > 9_000);
    run().await;
    log.one(&agent, "Reconciliations", &[("Outcome", "released")]);
    assert_eq!(log.sum("ReconcileFailures"), 0);
}
