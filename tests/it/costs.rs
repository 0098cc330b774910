//! Tests that the cost of each operation is within its budget in `docs/data-model.md`.

use purser_domain::{
    BudgetLimit, CountLimit, DuplicateGuard, Duration, LimitAction, PriceAboveUsual, Rule, RuleId, RuleKind,
    SpendPolicy, Timestamp, UsualPrice,
};
use purser_local::{DEMO_OWNER, NETWORK, Outcome};
use purser_tests::{
    Answer, LONG_DENIAL, RequestCost, World, authorizing, body_of, completing, dollars, every_operation, few_at_once,
    first_of_history, judged_policy, measure, transfer_of, units, writes_of_a_payment,
};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_api_operation_stays_within_its_database_budget() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    let costs = every_operation(&world, &agent).await;
    let excess: Vec<String> = costs.iter().filter_map(|cost| cost.excess()).collect();
    assert!(excess.is_empty(), "{excess:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_histories_and_many_services_do_not_raise_costs() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    world.add_settlements(&agent, 1_200).await;
    world.add_services(&agent, "lab-search", 99).await;
    let mut costs = every_operation(&world, &agent).await;
    // This denial has a larger budget, because it searches for the time at which the payment fits.
    let denial = costs.iter_mut().find(|cost| cost.name == "daily denial").unwrap();
    denial.budget = LONG_DENIAL;
    let excess: Vec<String> = costs.iter().filter_map(|cost| cost.excess()).collect();
    assert!(excess.is_empty(), "{excess:#?}");

    // The decision reads 1,008 payments. `retry_at` is the time at which these have left the window.
    let denied = world.authorize(&agent, &body_of(world.offer(dollars(90)))).await;
    let denied = denied.refused(402, "daily_spend_limit_exceeded");
    let last_seen = first_of_history(world.now()).micros() + 1_007;
    let left = Timestamp::from_micros(last_seen).unwrap().after(Duration::DAY);
    assert_eq!(denied["retry_at"], left.to_string());
}

/// A new agent consists of its counter, its record and, once per catalog version, the default services.
#[tokio::test(flavor = "multi_thread")]
async fn new_agent_cost_is_independent_of_catalog_size() {
    let world = World::metered().await;
    let person = world.person(&DEMO_OWNER);
    let create = async || {
        let named = json!({"name": "new"});
        let made = world.person_edits(&person, Method::POST, "/agents", &named);
        let (measured, answer) = measure(&world, made).await;
        answer.created();
        let calls = measured.rounds.iter().flatten().map(|call| call.operation.clone());
        let mut calls: Vec<String> = calls.collect();
        calls.sort_unstable();
        calls
    };
    // The default services were stored with the demo agent. One transaction claims the wallet, and another stores the
    // agent.
    create().await;
    let calls = vec![
        "GetItem",
        "GetItem",
        "GetItem",
        "TransactWriteItems",
        "TransactWriteItems",
        "UpdateItem",
        "UpdateItem",
    ];
    assert_eq!(create().await, calls);

    let agent = world.agent_of(&person, "buyer").await;
    let pay = async || {
        let (measured, answer) = measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
        answer.ok();
        measured
    };
    world.check(&agent, &body_of(world.offer(1))).await.ok();
    let (first, later) = (pay().await, pay().await);
    assert_eq!(first.units.read, later.units.read);
    assert_eq!(first.units.write - later.units.write, 60, "in tenths");
    let writes = |measured: &RequestCost| {
        let calls = measured.rounds.iter().flatten();
        calls.filter(|call| call.operation == "TransactWriteItems").count()
    };
    assert_eq!((writes(&first), writes(&later)), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_costs_the_same_after_many_payments() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    let mut costs = std::collections::BTreeSet::new();
    for n in 0..60 {
        let (measured, answer) = measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
        answer.ok();
        if n > 0 {
            costs.insert((measured.units, measured.rounds.len()));
        }
    }
    assert_eq!(costs.len(), 1, "{costs:?}");
}

/// A wrong hash costs one node call, and none after the maximum number of failed proofs.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_transaction_hash_costs_few_node_calls() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::spec_defaults(), vec![]).await;
    let paid = world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    let unpaid = world.authorize(&agent, &body_of(world.offer(2))).await.ok();
    let settlement = unpaid["settlement_id"].as_str().unwrap();
    let proof = |hash: &str| json!({"payment_response_header": "e30=", "tx_hash": hash});
    let unknown = proof(&format!("0x{}", "ab".repeat(32)));
    let reads = vec!["BatchGetItem", "UpdateItem"];
    let look = vec!["eth_getTransactionByHash"];

    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &unknown)).await;
    answer.refused(422, "onchain_settlement_not_verified");
    assert_eq!(measured.sequence(), [reads.clone(), look.clone(), vec!["UpdateItem"]]);
    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &unknown)).await;
    answer.refused(422, "onchain_settlement_not_verified");
    assert_eq!(measured.sequence(), [reads.clone(), look.clone()], "it is counted once");

    let hash = world.settle(&paid).await;
    let own = paid["settlement_id"].as_str().unwrap();
    world.complete(&agent, own, &proof(&hash)).await.ok();
    let (measured, answer) = measure(&world, world.complete(&agent, settlement, &proof(&hash))).await;
    answer.refused(409, "settlement_transaction_already_used");
    let evidence = vec!["eth_getBlockByNumber", "eth_getLogs"];
    let receipt = vec!["eth_getTransactionReceipt"];
    let used = [
        reads.clone(),
        look.clone(),
        evidence,
        receipt,
        vec!["UpdateItem"],
        vec!["GetItem"],
    ];
    assert_eq!(measured.sequence(), used);

    // The database calls may also record the last use of the key.
    world.pass(3_600);
    world.stack.chain.advance(3_600).await.unwrap();
    for n in 0..30_u8 {
        let invented = proof(&format!("0x{}", format!("{n:02x}").repeat(32)));
        let (measured, answer) = measure(&world, world.complete(&agent, settlement, &invented)).await;
        let told = answer.refused(422, "onchain_settlement_not_verified");
        // Two proofs have failed before, so 18 more are checked.
        let calls = if n < 18 { 1 } else { 0 };
        assert_eq!(
            (&told["retryable"], node_calls(&measured)),
            (&json!(calls == 1), calls),
            "{n}"
        );
        if calls == 0 {
            assert_eq!(told["reason"], "too_many_failed_proofs");
            let message = told["message"].as_str().unwrap();
            assert!(message.starts_with("too many transactions were sent"), "{message}");
        }
    }
}

/// The code of a contract that logs 12,000 times, and then calls the token with its call data.
fn logging_contract() -> String {
    // The code pushes 12000 (PUSH2), and then makes an empty log (LOG0) in a loop.
    let logs = "612ee05b5f5fa060019003806003575b";
    // The code calls the token with all call data.
    let token = NETWORK.token().address.to_string();
    format!(
        "0x{logs}365f5f375f5f365f5f73{}5af100",
        token.trim_start_matches("0x").to_lowercase()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_thousand_logs_do_not_raise_verification_costs() {
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let authorized = world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    let chain = &world.stack.chain;
    let contract = purser_domain::Address::repeat_byte(0x10);
    let code = json!([contract.to_string(), logging_contract()]);
    chain.call("anvil_setCode", code).await.unwrap();
    let hash = chain.send(contract, transfer_of(&authorized).to_vec()).await.unwrap();
    let receipt = chain.call("eth_getTransactionReceipt", json!([hash])).await.unwrap();
    assert_eq!(receipt["logs"].as_array().unwrap().len(), 12_002);

    let (measured, answer) = measure(&world, completing(&world, &agent, &authorized, &hash)).await;
    assert_eq!(answer.ok()["receipt_status"], "confirmed");
    assert_eq!(node_calls(&measured), 3);
}

/// Makes the payments in one block, each in a separate transaction. Returns the hashes.
async fn settle_in_one_block(world: &World, authorized: &[Value]) -> Vec<String> {
    let chain = &world.stack.chain;
    let accounts = chain.call("eth_accounts", json!([])).await.unwrap();
    chain.call("evm_setAutomine", json!([false])).await.unwrap();
    let mut hashes = Vec::new();
    for payment in authorized {
        let transaction = json!({
            "from": accounts[0],
            "to": NETWORK.token().address.to_string(),
            "data": transfer_of(payment),
            "gas": "0x30d40",
        });
        let hash = chain.call("eth_sendTransaction", json!([transaction])).await.unwrap();
        hashes.push(hash.as_str().unwrap().to_owned());
    }
    chain.mine(1).await.unwrap();
    chain.call("evm_setAutomine", json!([true])).await.unwrap();
    hashes
}

/// A payment takes four node calls. A hundred payments of one agent, or in one block, share the calls of reconcile.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_takes_four_node_calls_plus_reconciliation() {
    /// The maximum number of reconcile's node calls per payment, in tenths of a call.
    const RECONCILED_TENTHS: usize = 1;
    const NOBODY_COMPLETES_TENTHS: usize = 2;
    const PAYMENTS: usize = 100;
    const CALLERS: usize = 20;
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let reconcile = async || {
        let run = world.stack.reconcile.reconcile_all(std::time::Duration::from_secs(55));
        let (measured, run) = measure(&world, run).await;
        (node_calls(&measured), run.unwrap())
    };
    world.stack.chain.stand_still().await.unwrap();
    // The first run stores the block from which blocks are checked.
    reconcile().await;
    let calls = (0..2 * PAYMENTS).map(|_| authorizing(&world, &agent, body_of(world.offer(1))));
    let (measured, answers) = measure(&world, few_at_once(CALLERS, calls)).await;
    assert!(node_calls(&measured) <= 2 * PAYMENTS, "{}", node_calls(&measured));
    let authorized: Vec<Value> = answers.into_iter().map(Answer::ok).collect();
    // Half of the uncompleted payments are made on the chain.
    let (completed, others) = authorized.split_at(PAYMENTS);
    let hashes = settle_in_one_block(&world, completed).await;
    settle_in_one_block(&world, &others[..PAYMENTS / 2]).await;
    let made = completed.iter().zip(&hashes);
    let calls = made.map(|(payment, hash)| completing(&world, &agent, payment, hash));
    let (measured, answers) = measure(&world, few_at_once(CALLERS, calls)).await;
    answers.into_iter().for_each(|answer| drop(answer.ok()));
    assert!(node_calls(&measured) <= 3 * PAYMENTS, "{}", node_calls(&measured));

    // The block is now deep enough for its second check.
    world.stack.chain.mine(5).await.unwrap();
    let (calls, run) = reconcile().await;
    assert!(run.outcomes().is_empty(), "{run:?}");
    assert!(calls * 10 <= RECONCILED_TENTHS * PAYMENTS, "{calls}");

    world.pass(3_600);
    world.stack.chain.advance(3_600).await.unwrap();
    let (calls, run) = reconcile().await;
    let ended = (
        run.count_outcome(Outcome::Confirmed),
        run.count_outcome(Outcome::Released),
    );
    assert_eq!(ended, (PAYMENTS / 2, PAYMENTS / 2), "{run:?}");
    assert!(calls * 10 <= NOBODY_COMPLETES_TENTHS * PAYMENTS, "{calls}");
}

/// A search over a thousand wallets takes three node calls. Reading 40 wallets takes one read unit.
#[tokio::test(flavor = "multi_thread")]
async fn an_outflow_search_of_many_wallets_takes_few_node_calls() {
    const WALLETS: u64 = 1_000;
    const PAYMENTS: usize = 40;
    let world = World::metered().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let chain = &world.stack.chain;
    chain.stand_still().await.unwrap();
    chain.mine(310).await.unwrap();
    let reconcile = async || {
        let run = world.stack.reconcile.reconcile_all(std::time::Duration::from_secs(55));
        let (measured, run) = measure(&world, run).await;
        assert!(run.unwrap().outcomes().is_empty());
        let searches = measured.rounds.iter().flatten();
        let searches = searches.filter(|call| call.operation == "eth_getLogs").count();
        (searches, measured.units.read)
    };
    // The first run stores the block from which transfers are searched.
    reconcile().await;
    chain.mine(60).await.unwrap();
    let (searches, few) = reconcile().await;
    assert_eq!(searches, 1);

    let record = world.stack.ledger.read_agent_by_id(agent.id).await.unwrap().unwrap();
    for number in 1..WALLETS {
        let mut other = record.clone();
        other.id = purser_domain::AgentId::from_uuid(uuid::Uuid::new_v4());
        let mut address = [0x5a; 20];
        address[12..].copy_from_slice(&number.to_be_bytes());
        other.wallet.address = purser_domain::Address::new(address);
        let audit = purser_testkit::sample::audit();
        world.stack.ledger.create_agent(&other, &audit).await.unwrap();
    }
    let calls = (0..PAYMENTS).map(|_| authorizing(&world, &agent, body_of(world.offer(1))));
    let answers = few_at_once(10, calls).await;
    let authorized: Vec<Value> = answers.into_iter().map(Answer::ok).collect();
    let hashes = settle_in_one_block(&world, &authorized).await;
    for (payment, hash) in authorized.iter().zip(&hashes) {
        completing(&world, &agent, payment, hash).await.ok();
    }
    chain.mine(60).await.unwrap();
    reconcile().await;
    chain.mine(299).await.unwrap();
    let (searches, many) = reconcile().await;
    assert!(searches <= 3, "{searches}");
    // In tenths of a read unit. A block takes four units, and a block with payments is read twice.
    let blocks = 299 - 60;
    assert!(many <= few + blocks * 40 + 400, "{many} after {few}");
}

/// Pages read only the rows that they show, and the index keys of other agents. A search also reads each agent.
#[tokio::test(flavor = "multi_thread")]
async fn pages_with_many_agents_read_only_the_shown_rows() {
    /// The pages, each with its maximum number of read units, in tenths of a unit.
    const PAGES: [(&str, u64); 6] = [
        // Reads the session, the index, the approval and the agent.
        ("/dashboard/approvals/waiting", 45),
        // Also reads the index of decided approvals twice.
        ("/dashboard/approvals", 65),
        ("/dashboard/decisions", 20),
        ("/dashboard/settlements", 20),
        ("/dashboard/audit-log", 70),
        ("/dashboard", 300),
    ];
    let world = World::metered().await;
    let person = world.person(&DEMO_OWNER);
    let agent = world.agent_of(&person, "asking").await;
    world.put_policy(&agent, "lab-search", true, judged_policy()).await;
    let costly = body_of(world.offer(dollars(30)));
    world.authorize(&agent, &costly).await.refused(402, "approval_required");
    let record = world.stack.ledger.read_agent_by_id(agent.id).await.unwrap().unwrap();
    let cookie = world.browser_session(&DEMO_OWNER).await;
    let read = async |path: &str| {
        let page = world.http.get(format!("{}{path}", world.stack.base_url));
        let (measured, answer) = measure(&world, page.header("cookie", &cookie).send()).await;
        let text = answer.unwrap().error_for_status().unwrap().text().await.unwrap();
        (measured.units.read, text)
    };
    let more_agents = async |count| {
        for _ in 0..count {
            let mut other = record.clone();
            other.id = purser_domain::AgentId::from_uuid(uuid::Uuid::new_v4());
            other.name = "another".to_owned();
            let audit = purser_testkit::sample::audit();
            world.stack.ledger.create_agent(&other, &audit).await.unwrap();
        }
    };
    more_agents(30).await;
    // The first request reads the catalog's version.
    read("/dashboard").await;
    let mut before = Vec::new();
    for (path, most) in PAGES {
        let (units, _) = read(path).await;
        assert!(units <= most, "{path}: {units} of {most}");
        before.push(units);
    }
    let (searched, _) = read("/dashboard/agents?q=asking").await;
    more_agents(30).await;
    for ((path, _), before) in PAGES.into_iter().zip(before) {
        let (units, text) = read(path).await;
        let keys = if path == "/dashboard" { 10 } else { 0 };
        assert!(units <= before + keys, "{path}: {units} after {before}");
        let waiting = path.contains("approvals") || path == "/dashboard";
        assert!(!waiting || text.contains("data-waiting=\"1\""), "{path}: {text}");
    }
    let (units, text) = read("/dashboard/agents?q=asking").await;
    assert!(
        (searched + 300..searched + 330).contains(&units),
        "{units} after {searched}"
    );
    assert!(text.contains(">asking</a>") && !text.contains(">another</a>"), "{text}");
}

/// A partition accepts 1,000 write units a second. The index of authorized settlements therefore has 16 partitions, and
/// the claims of a block have 4.
#[tokio::test(flavor = "multi_thread")]
async fn payment_writes_are_spread_over_partitions() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    let writes = writes_of_a_payment(&world, &agent).await;
    let expected = [("I", 2), ("L", 4), ("RL", 2), ("S", 3), ("X", 1), ("index hold", 2)];
    let expected = expected.map(|(kind, units)| (kind.to_owned(), units));
    assert_eq!(writes, expected.into());
}

/// Returns the number of node calls in a measured request.
fn node_calls(measured: &RequestCost) -> usize {
    measured.rounds.iter().flatten().filter(|call| call.is_rpc()).count()
}

/// The check runs concurrently with the decision's other reads.
#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_version_check_adds_no_round_trip() {
    let world = World::metered().await;
    let agent = world.agent(judged_policy(), vec![]).await;
    world.authorize(&agent, &body_of(world.offer(1))).await.ok();
    world.pass(6);
    let (measured, answer) = measure(&world, world.authorize(&agent, &body_of(world.offer(1)))).await;
    answer.ok();
    let reads = vec!["BatchGetItem", "GetItem", "Query", "UpdateItem", "eth_call"];
    assert_eq!(measured.sequence(), [reads, vec!["TransactWriteItems"]]);
}

/// A waiting poll costs as much as a poll, the updates of the counters, and one row per second.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_polling_approval_request_reads_one_row_per_second() {
    let world = World::metered().await;
    let policy = SpendPolicy {
        require_approval_above: units(0),
        ..judged_policy()
    };
    let agent = world.agent(policy, vec![]).await;
    let asked = world.authorize(&agent, &body_of(world.offer(1))).await;
    let asked = asked.refused(402, "approval_required");
    let path = format!("/approvals/{}?wait_seconds=3", asked["approval_id"].as_str().unwrap());
    let (measured, answer) = measure(&world, world.get(&agent, &path)).await;
    assert_eq!(answer.ok()["status"], "pending");
    let calls = measured.rounds.iter().flatten();
    let calls: Vec<&str> = calls.map(|call| call.operation.as_str()).collect();
    let count = |name: &str| calls.iter().filter(|call| **call == name).count();
    // The counters are updated in the background: for the address, the key, the agent, its owner and all agents.
    assert_eq!((count("BatchGetItem"), count("GetItem")), (1, 3), "{calls:?}");
    assert!(count("UpdateItem") <= 5, "{calls:?}");
    assert_eq!(measured.units.read, 50, "in tenths: 2 of the poll, 3 of the wait");
}

/// A payment with any kind of rule consumes at most as many units as a payment with a budget.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_rule_consumes_at_most_the_write_units_of_a_budget() {
    let world = World::metered().await;
    let cost = async |kinds: Vec<RuleKind>| {
        let rules = kinds.into_iter().map(|kind| Rule {
            id: RuleId::from_uuid(uuid::Uuid::new_v4()),
            version: 1,
            kind,
        });
        let agent = world.agent(SpendPolicy::permissive(), rules.collect()).await;
        let call = |number: u64| {
            let mut body = body_of(world.offer(1));
            body["original_request"]["url"] = json!(format!("https://provider.example/x?number={number}"));
            body
        };
        for number in [1, 2] {
            world.authorize(&agent, &call(number)).await.ok();
        }
        let (measured, answer) = measure(&world, world.authorize(&agent, &call(3))).await;
        answer.ok();
        measured
    };
    let day = Duration::DAY;
    let budget = RuleKind::BudgetLimit(BudgetLimit {
        limit: units(dollars(1)),
        window: day.into(),
    });
    let count = RuleKind::CountLimit(CountLimit {
        count: 9,
        window: day.into(),
    });
    let guard = RuleKind::DuplicateGuard(DuplicateGuard {
        services: None,
        within: day,
        action: LimitAction::Block,
    });
    let median = RuleKind::PriceAboveUsual(PriceAboveUsual {
        services: None,
        percent: 10_000,
        over: UsualPrice::Median(3),
        action: LimitAction::Ask,
    });
    let none = cost(Vec::new()).await;
    let recent = cost(vec![guard, median]).await;
    assert_eq!((recent.units, recent.sequence()), (none.units, none.sequence()));
    let (budget, count) = (cost(vec![budget]).await, cost(vec![count]).await);
    assert_eq!((count.units, count.sequence()), (budget.units, budget.sequence()));
}
