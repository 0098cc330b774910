//! Tests that a low wallet balance is reported once each time it falls below the threshold.

use super::node::{Manner, Node};
use crate::outflows::steal;
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Event, EventKind, SpendPolicy, UserId};
use purser_local::{Options, Reconcile, Streaming};
use purser_testkit::{LEDGER, invariants::scan};
use purser_tests::{TestAgent, World, dollars};
use std::collections::BTreeSet;
use std::time::Duration;

const TIME: Duration = Duration::from_secs(55);
/// More blocks than a final block needs confirmations.
const DEEP: u64 = 10;
/// The default threshold of a low balance, in micro-USDC.
const BELOW: u64 = 5_000_000;

async fn world(variables: &[(&str, &str)]) -> World {
    let finality = ("FINALITY_CONFIRMATIONS", "5");
    let environment = variables
        .iter()
        .chain([&finality])
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let world = World::still_with(Options {
        streams: Streaming::On,
        environment: environment.collect(),
        ..Options::default()
    })
    .await;
    world.stack.chain.stand_still().await.unwrap();
    world
}

/// Creates an agent with `units` in its wallet.
async fn agent(world: &World, units: u64) -> TestAgent {
    let agent = world.poor_agent(vec![]).await;
    let owner = UserId::derive("https://issuer.example", "ann");
    world.edit(&agent, |record| record.owner = owner.to_string()).await;
    if units > 0 {
        world.fund(&agent, units).await;
    }
    agent
}

/// Makes the newest blocks final, checks all wallets, and publishes the events.
async fn look_by(world: &World, reconcile: &Reconcile) {
    world.stack.chain.mine(DEEP).await.unwrap();
    reconcile.check_wallet_balances(TIME).await.unwrap();
    assert_eq!(world.stack.publish_changes().await, 0);
}

async fn look(world: &World) {
    look_by(world, &world.stack.reconcile).await;
}

/// Returns the balances in the published events about an agent, without duplicates.
fn told(world: &World, agent: &TestAgent) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let mut told = Vec::new();
    for entry in world.stack.bus.taken() {
        let event = Event::parse(entry.detail.to_string().as_bytes()).unwrap();
        let is_meant = event.kind() == EventKind::WalletLow && event.agent() == Some(agent.id);
        if is_meant && seen.insert(event.id()) {
            let data = event.data();
            assert_eq!(data.find_text("network"), Some("base-sepolia"));
            assert_eq!(data.find_amount("below_units").unwrap().units(), BELOW);
            told.push(data.find_amount("balance_units").unwrap().units());
        }
    }
    told
}

/// Returns the number of stored low balances.
async fn levels(world: &World) -> usize {
    let rows = scan(&world.stack.db, LEDGER, None).await;
    let is_level = |pk: &AttributeValue| pk.as_s().is_ok_and(|pk| pk.starts_with("LEVEL#"));
    rows.iter().filter(|row| is_level(&row["pk"])).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_wallet_balance_is_reported_once() {
    let world = world(&[]).await;
    let spent = agent(&world, dollars(100)).await;
    let rich = agent(&world, dollars(100)).await;
    let empty = agent(&world, 0).await;
    look(&world).await;
    assert_eq!(told(&world, &spent), Vec::<u64>::new());
    steal(&world, &spent.wallet, dollars(100) - (BELOW - 1)).await;
    world.stack.reconcile.check_wallet_balances(TIME).await.unwrap();
    assert_eq!(world.stack.publish_changes().await, 0);
    assert_eq!(told(&world, &spent), Vec::<u64>::new());
    for _ in 0..3 {
        look(&world).await;
        assert_eq!(told(&world, &spent), [BELOW - 1]);
    }
    world.fund(&spent, 1_000).await;
    look(&world).await;
    steal(&world, &spent.wallet, 1_000).await;
    look(&world).await;
    assert_eq!(told(&world, &spent), [BELOW - 1]);
    world.fund(&spent, dollars(100)).await;
    look(&world).await;
    assert_eq!(told(&world, &spent), [BELOW - 1]);
    steal(&world, &spent.wallet, dollars(100) + BELOW - 1).await;
    look(&world).await;
    look(&world).await;
    assert_eq!(told(&world, &spent), [BELOW - 1, 0]);
    for other in [rich, empty] {
        assert_eq!(told(&world, &other), Vec::<u64>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wallet_levels_ignore_balances_from_faulty_or_disagreeing_nodes() {
    let world = world(&[]).await;
    let spent = agent(&world, dollars(100)).await;
    look(&world).await;
    let known = levels(&world).await;
    steal(&world, &spent.wallet, dollars(100)).await;
    let poor = agent(&world, 1).await;
    let (node, reconcile) = Node::between(&world).await;
    for manner in [Manner::Nonsense, Manner::Forgetful, Manner::Scarce(3)] {
        node.set(manner);
        look_by(&world, &reconcile).await;
        assert_eq!(levels(&world).await, known, "{manner:?}");
    }
    for manner in [Manner::Down, Manner::Elsewhere] {
        node.set(manner);
        reconcile.check_wallet_balances(TIME).await.unwrap_err();
        assert_eq!(levels(&world).await, known, "{manner:?}");
    }
    let ([first, second], of_two) = Node::endpoints(&world).await;
    for (one, other) in [(Manner::Nonsense, Manner::Honest), (Manner::Honest, Manner::Nonsense)] {
        first.set(one);
        second.set(other);
        look_by(&world, &of_two).await;
        assert_eq!(levels(&world).await, known, "{one:?} {other:?}");
    }
    for agent in [&spent, &poor] {
        assert_eq!(told(&world, agent), Vec::<u64>::new());
    }
    first.set(Manner::Honest);
    second.set(Manner::Honest);
    look_by(&world, &of_two).await;
    assert_eq!((told(&world, &spent), told(&world, &poor)), (vec![0], vec![1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_wallet_checks_report_low_balances_once() {
    let world = world(&[]).await;
    let mut agents = Vec::new();
    for _ in 0..6 {
        agents.push(agent(&world, 1).await);
    }
    world.stack.chain.mine(DEEP).await.unwrap();
    world
        .stack
        .reconcile
        .check_wallet_balances(Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(levels(&world).await, 0);
    // The stored progress is that of a check that was interrupted after the third agent.
    let ledger = &world.stack.ledger;
    agents.sort_by_key(|agent| agent.id);
    ledger.save_wallet_level_checkpoint(Some(agents[2].id)).await.unwrap();
    let (one, other) = tokio::join!(
        world.stack.reconcile.check_wallet_balances(TIME),
        world.stack.reconcile.check_wallet_balances(TIME)
    );
    one.and(other).unwrap();
    assert_eq!(world.stack.publish_changes().await, 0);
    let all = |agents: &[TestAgent]| -> Vec<usize> { agents.iter().map(|agent| told(&world, agent).len()).collect() };
    assert_eq!(all(&agents), [0, 0, 0, 1, 1, 1]);
    assert_eq!(ledger.read_wallet_level_checkpoint().await.unwrap(), None);
    look(&world).await;
    assert_eq!(all(&agents), [1; 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wallet_balance_is_read_without_a_limit() {
    let world = world(&[("LOW_WALLET_UNITS", "0")]).await;
    let paying = world.agent(SpendPolicy::permissive(), vec![]).await;
    steal(&world, &paying.wallet, dollars(10_000)).await;
    look(&world).await;
    assert_eq!(levels(&world).await, 0);
}
