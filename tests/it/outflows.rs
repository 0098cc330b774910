//! Tests that a transfer that no settlement explains is reported once, on a chain on which another party uses the
//! wallets' keys.

use alloy::primitives::{Address, U256};
use alloy::sol;
use alloy::sol_types::SolCall as _;
use aws_sdk_dynamodb::types::AttributeValue;
use purser_api::Boot;
use purser_domain::{SpendPolicy, Timestamp};
use purser_local::{DEMO_OWNER, DEMO_STRANGER, NETWORK, Options, Outcome, Reconcile};
use purser_testkit::SecretsManager;
use purser_tests::{Log, TestAgent, World, batch_of, body_of, transfer_of};
use serde_json::{Value, json};
use std::time::Duration;

sol! {
    function transfer(address to, uint256 value);
}

const TIME: Duration = Duration::from_secs(55);
/// The payee of the unexplained transfers.
const THIEF: &str = "0x00000000000000000000000000000000000000bb";
/// The number of blocks after which a transfer is compared with settlements.
const WATCH: [(&str, &str); 1] = [("WATCH_CONFIRMATIONS", "10")];
const DEEP: u64 = 10;

async fn world(variables: &[(&str, &str)]) -> World {
    let environment = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let world = World::still_with(Options {
        environment: environment.collect(),
        ..Options::default()
    })
    .await;
    world.stack.chain.stand_still().await.unwrap();
    // The first run stores the block from which transfers are searched.
    world.stack.chain.mine(DEEP).await.unwrap();
    run(&world).await;
    world
}

async fn run(world: &World) -> Vec<Outcome> {
    world
        .stack
        .reconcile
        .reconcile_all(TIME)
        .await
        .unwrap()
        .outcomes()
        .to_vec()
}

/// Mines enough blocks for all transfers, and runs the outflow search.
async fn run_deep(world: &World) -> Vec<Outcome> {
    world.stack.chain.mine(DEEP).await.unwrap();
    run(world).await
}

/// Makes a transfer from the wallet that no settlement explains.
pub(crate) async fn steal(world: &World, wallet: &str, units: u64) -> String {
    let chain = &world.stack.chain;
    chain.call("anvil_impersonateAccount", json!([wallet])).await.unwrap();
    chain
        .call("anvil_setBalance", json!([wallet, "0xde0b6b3a7640000"]))
        .await
        .unwrap();
    let call = transferCall {
        to: THIEF.parse().unwrap(),
        value: U256::from(units),
    };
    let transaction = json!({
        "from": wallet, "to": NETWORK.token().address, "gas": "0x30d40",
        "data": alloy::hex::encode_prefixed(call.abi_encode()),
    });
    let hash = chain.call("eth_sendTransaction", json!([transaction])).await.unwrap();
    chain.mine(1).await.unwrap();
    hash.as_str().unwrap().to_owned()
}

/// Returns the payment with another nonce. The wallet accepts any signature, as if the thief had the key.
async fn forged(world: &World, authorized: &Value, nonce: u8) -> Value {
    /// The code of a contract that returns ERC-1271's magic value to every call.
    const SIGNS_ANYTHING: &str = "0x631626ba7e60e01b60005260206000f3";
    let mut forged = authorized.clone();
    let authorization = &mut forged["payment"]["payload"]["payload"]["authorization"];
    authorization["nonce"] = json!(format!("0x{}", format!("{nonce:02x}").repeat(32)));
    let code = json!([authorization["from"], SIGNS_ANYTHING]);
    world.stack.chain.call("anvil_setCode", code).await.unwrap();
    forged
}

/// Returns the outflows in the operators' list, newest first.
async fn told(world: &World) -> Vec<Value> {
    let listed = world.operator_gets("/internal/audit-log?outflows=true").await.ok();
    listed["entries"].as_array().unwrap().clone()
}

fn valid_before(authorized: &Value) -> u64 {
    let authorization = &authorized["payment"]["payload"]["payload"]["authorization"];
    authorization["validBefore"].as_str().unwrap().parse().unwrap()
}

async fn authorize(world: &World, agent: &TestAgent, units: u64) -> Value {
    world.authorize(agent, &body_of(world.offer(units))).await.ok()
}

async fn pay(world: &World, agent: &TestAgent, units: u64) -> Value {
    let authorized = authorize(world, agent, units).await;
    let hash = world.settle(&authorized).await;
    complete(world, agent, &authorized, &hash).await;
    authorized
}

async fn complete(world: &World, agent: &TestAgent, authorized: &Value, hash: &str) {
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    let settlement = authorized["settlement_id"].as_str().unwrap();
    world.complete(agent, settlement, &proof).await.ok();
}

/// Operators and the agent's owner see the outflow.
#[tokio::test(flavor = "multi_thread")]
async fn an_unexplained_outflow_is_reported_once() {
    let log = Log::start("warn,purser=info");
    let world = world(&WATCH).await;
    let (owner, stranger) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
    let (agent, other) = (
        world.agent_of(&owner, "robbed").await,
        world.agent_of(&owner, "other").await,
    );
    let paid = pay(&world, &agent, 5_000).await;
    let stolen = steal(&world, &agent.wallet, 7_000).await;
    // Anyone can make a transfer of zero from any wallet, so it is no outflow.
    steal(&world, &other.wallet, 0).await;
    // A transfer with the amount and payee of a payment, and another nonce.
    let again = forged(&world, &paid, 0x11).await;
    let again = world.settle(&again).await;
    run(&world).await;
    assert_eq!(told(&world).await, Vec::<Value>::new(), "it is not deep enough");

    run_deep(&world).await;
    let entries = told(&world).await;
    let expected = [
        (&again, paid["pay_to"].as_str().unwrap(), 5_000),
        (&stolen, THIEF, 7_000),
    ];
    assert_eq!(entries.len(), expected.len(), "{entries:?}");
    for (hash, to, units) in expected {
        let entry = entries
            .iter()
            .find(|entry| entry["after"]["tx_hash"] == json!(hash))
            .unwrap();
        assert_eq!(entry["kind"], "outflow_found");
        assert_eq!(entry["agent_id"], agent.id.to_string());
        assert_eq!(entry["after"]["amount_units"], units);
        assert_eq!(entry["after"]["wallet"], agent.wallet);
        let told_to = entry["after"]["pay_to"].as_str().unwrap();
        assert_eq!(told_to.to_lowercase(), to.to_lowercase());
        assert!(entry["object_id"].as_str().unwrap().starts_with(hash), "{entry}");
        assert_eq!(
            [&entry["person_id"], &entry["operator"], &entry["address"]],
            [&Value::Null; 3]
        );
    }
    let lines = || {
        let text = log.text();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["message"] == "outflow.unexplained")
            .collect::<Vec<_>>()
    };
    assert_eq!(lines().len(), 2, "{:?}", lines());
    assert!(lines().iter().all(|line| line["OutflowUnexplained"] == 1));

    let path = format!("/audit-log?kind=outflow_found&agent_id={}", agent.id);
    let owned = world.person_gets(&owner, &path).await.ok();
    assert_eq!(owned["count"], 2, "{owned}");
    for (mine, all) in owned["entries"].as_array().unwrap().iter().zip(&entries) {
        assert_eq!((&mine["audit_id"], &mine["after"]), (&all["audit_id"], &all["after"]));
    }
    let strangers = world.person_gets(&stranger, "/audit-log?kind=outflow_found").await.ok();
    assert_eq!(strangers["count"], 0);
    let page = world.http.get(format!("{}/dashboard/audit-log", world.stack.base_url));
    let page = page.header("cookie", world.browser_session(&DEMO_OWNER).await);
    let page = page.send().await.unwrap().text().await.unwrap();
    assert!(
        page.contains("Unexplained transfer out of a wallet") && page.contains(&stolen),
        "{page}"
    );
    let nobodys = format!("/internal/audit-log?outflows=true&person_id={}", "0".repeat(64));
    assert_eq!(world.operator_gets(&nobodys).await.ok()["count"], 0);

    run_deep(&world).await;
    rewind(&world).await;
    run_deep(&world).await;
    assert_eq!((told(&world).await.len(), lines().len()), (2, 2));
}

/// Resets the progress of the search.
async fn rewind(world: &World) {
    put_place(world, AttributeValue::N("1".to_owned())).await;
}

async fn put_place(world: &World, block: AttributeValue) {
    let put = world.stack.db.put_item().table_name("LedgerTable");
    let put = put
        .item("pk", AttributeValue::S("RECONCILE".to_owned()))
        .item("sk", AttributeValue::S("OUTFLOWS#0#1".to_owned()))
        .item("blk", block);
    put.send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_of_settlements_are_never_reported_as_outflows() {
    let world = world(&[("WATCH_CONFIRMATIONS", "10"), ("LOG_BLOCK_RANGE", "2")]).await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let mine_at = async |seconds| {
        world.stack.chain.mine_at(seconds).await.unwrap();
        world.set_clock(Timestamp::from_secs(seconds).unwrap());
    };
    pay(&world, &agent, 1_000).await;
    // The settlement is still authorized when the search compares its payment.
    let held = authorize(&world, &agent, 2_000).await;
    world.settle(&held).await;
    // One transaction contains two payments, of which the agent completes one.
    let (one, two) = (
        authorize(&world, &agent, 3_000).await,
        authorize(&world, &agent, 3_000).await,
    );
    let both = batch_of(NETWORK.token().address, vec![transfer_of(&one), transfer_of(&two)]);
    let batch: Address = world.stack.providers.batch_address.parse().unwrap();
    let hash = world.stack.chain.send(batch, both).await.unwrap();
    complete(&world, &agent, &one, &hash).await;
    assert_eq!(run_deep(&world).await, []);
    assert_eq!(told(&world).await, Vec::<Value>::new());
    mine_at(valid_before(&two) + 1).await;
    assert_eq!(run_deep(&world).await, [Outcome::Confirmed; 2]);
    rewind(&world).await;
    run_deep(&world).await;
    assert_eq!(told(&world).await, Vec::<Value>::new());

    // A payment that appears after its release is no outflow, and counts again.
    let before = world.stack.chain.snapshot().await.unwrap();
    let late = authorize(&world, &agent, 4_000).await;
    mine_at(valid_before(&late)).await;
    assert_eq!(run(&world).await, [Outcome::Released]);
    world.stack.chain.revert(&before).await.unwrap();
    world.settle(&late).await;
    run_deep(&world).await;
    let path = format!("/x402/settlements/{}", late["settlement_id"].as_str().unwrap());
    assert_eq!(world.get(&agent, &path).await.ok()["receipt_status"], "confirmed");
    assert_eq!(told(&world).await, Vec::<Value>::new());

    // A transaction with a payment also contains another transfer.
    let paid = authorize(&world, &agent, 5_000).await;
    let beside = forged(&world, &paid, 0x22).await;
    let both = batch_of(NETWORK.token().address, vec![transfer_of(&beside), transfer_of(&paid)]);
    let hash = world.stack.chain.send(batch, both).await.unwrap();
    complete(&world, &agent, &paid, &hash).await;
    run_deep(&world).await;
    assert_eq!(told(&world).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_nonce_key_reports_no_false_outflows() {
    let world = world(&WATCH).await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    pay(&world, &agent, 1_000).await;
    let held = authorize(&world, &agent, 2_000).await;
    world.settle(&held).await;
    let stolen = steal(&world, &agent.wallet, 7_000).await;
    world.stack.chain.mine(DEEP).await.unwrap();

    let mut environment = world.stack.environment.clone();
    let secrets = SecretsManager::new([
        (
            environment["NONCE_KEY_SECRET_ARN"].as_str(),
            "another key, which is long enough",
        ),
        (&environment["RPC_URL_SECRET_ARN"], world.stack.rpc_url.as_str()),
    ]);
    environment.insert("SECRETS_ENDPOINT".to_owned(), secrets.serve().await);
    // The recorder identifies the function by its access key id (`infra/local/src/iam_recorder.rs`).
    environment.insert("AWS_ACCESS_KEY_ID".to_owned(), "ReconcileFunction".to_owned());
    let boot = Boot::new(environment.into_iter().collect(), world.stack.clock.clone());
    let wrong = Reconcile::boot(boot).await.unwrap();
    wrong.reconcile_all(TIME).await.unwrap();
    let told = told(&world).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["after"]["tx_hash"], json!(stolen));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_outflow_search_is_repeated_later() {
    let log = Log::start("warn,purser=info");
    let world = world(&WATCH).await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    steal(&world, &agent.wallet, 7_000).await;
    let held = authorize(&world, &agent, 2_000).await;
    put_place(&world, AttributeValue::S("unreadable".to_owned())).await;
    world.stack.chain.mine_at(valid_before(&held)).await.unwrap();
    assert_eq!(run_deep(&world).await, [Outcome::Released]);
    assert_eq!(log.text().matches("\"message\":\"outflows.failed\"").count(), 1);
    assert_eq!(told(&world).await.len(), 0);
    rewind(&world).await;
    run(&world).await;
    assert_eq!(told(&world).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_run_over_a_group_of_wallets_reports_the_outflows_of_the_group() {
    let world = world(&WATCH).await;
    let mut wallets = Vec::new();
    for _ in 0..6 {
        let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
        steal(&world, &agent.wallet, 1_000).await;
        wallets.push((
            agent.id.to_string().chars().last().unwrap().to_digit(16).unwrap(),
            agent.wallet,
        ));
    }
    world.stack.chain.mine(DEEP).await.unwrap();
    let mut found = 0;
    for index in 0..4_u32 {
        let part = purser_local::Part::new(index.into(), 4).unwrap();
        world.stack.reconcile.reconcile_part(part, TIME).await.unwrap();
        found += wallets.iter().filter(|(digit, _)| digit % 4 == index).count();
        assert_eq!(told(&world).await.len(), found, "{index}");
    }
    assert_eq!(found, 6);
    run_deep(&world).await;
    assert_eq!(told(&world).await.len(), 6);
}
