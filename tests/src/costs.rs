//! What each operation costs through the real functions, and what it may cost: the budgets of `docs/data-model.md`.

use crate::{Measured, World, body_of, dollars, measure, units};
use purser_domain::{ApprovalId, SpendPolicy};
use purser_store::Verdict;
use serde_json::json;

/// What one operation may cost, the throttle's counter included: one write unit and one call beside the first reads, on
/// every agent endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Read units.
    pub read: u64,
    /// Write units.
    pub write: u64,
    /// Calls of the database.
    pub calls: usize,
    /// Round trips one after another.
    pub rounds: usize,
}

const fn budget(read: u64, write: u64, calls: usize, rounds: usize) -> Budget {
    Budget {
        read,
        write: write + 1,
        calls: calls + 1,
        rounds,
    }
}

fn policy() -> SpendPolicy {
    SpendPolicy {
        max_per_call: units(dollars(100)),
        max_per_day: units(dollars(100)),
        require_approval_above: units(dollars(20)),
        ..SpendPolicy::column_defaults()
    }
}

/// Runs every operation of an agent once and tells what it cost.
pub async fn every_operation() -> Vec<(Measured, Budget)> {
    let mut costs = Vec::new();
    let world = World::metered().await;
    let agent = world.agent(policy(), vec![]).await;
    let agent = &agent;
    // The catalog's copy is read once and then asked for its version at most every five seconds; that is nobody's call.
    world.authorize(agent, &body_of(world.offer(1))).await.ok();

    let body = body_of(world.offer(dollars(1)));
    let (allow, allowed) = measure(&world, "allow", world.authorize(agent, &body)).await;
    let settlement = allowed.ok()["settlement_id"].as_str().expect("present").to_owned();
    costs.push((allow, budget(3, 9, 3, 2)));
    let (replay, _) = measure(&world, "replay", world.authorize(agent, &body)).await;
    costs.push((replay, budget(3, 0, 2, 1)));

    let costly = body_of(world.offer(dollars(30)));
    let (escalate, asked) = measure(&world, "escalate", world.authorize(agent, &costly)).await;
    costs.push((escalate, budget(3, 7, 3, 2)));
    let approval = asked.refused(402, "approval_required")["approval_id"]
        .as_str()
        .expect("present")
        .to_owned();
    let (poll, _) = measure(&world, "poll", world.get(agent, &format!("/approvals/{approval}"))).await;
    costs.push((poll, budget(2, 0, 1, 1)));
    world
        .stack
        .ledger
        .resolve_approval(
            ApprovalId::parse(&approval).expect("present"),
            Verdict::Approve,
            &world.ruling(),
        )
        .await
        .expect("present");
    let mut retry = costly;
    retry["approval_id"] = approval.into();
    let (approved, answer) = measure(&world, "approved retry", world.authorize(agent, &retry)).await;
    answer.ok();
    costs.push((approved, budget(4, 11, 3, 2)));

    let (denial, answer) = measure(
        &world,
        "daily denial",
        world.authorize(agent, &body_of(world.offer(dollars(90)))),
    )
    .await;
    answer.refused(402, "daily_spend_limit_exceeded");
    costs.push((denial, budget(5, 1, 5, 3)));

    let (block, answer) = measure(
        &world,
        "block",
        world.authorize(agent, &body_of(world.offer(dollars(101)))),
    )
    .await;
    answer.refused(402, "amount_exceeds_per_call_limit");
    costs.push((block, budget(3, 1, 3, 2)));

    let (preflight, _) = measure(&world, "check", world.check(agent, &body_of(world.offer(dollars(1))))).await;
    costs.push((preflight, budget(2, 1, 3, 2)));
    let path = format!("/x402/settlements/{settlement}");
    let (receipt, _) = measure(&world, "receipt", world.get(agent, &path)).await;
    costs.push((receipt, budget(2, 0, 2, 1)));
    let (list, _) = measure(
        &world,
        "list",
        world.get(agent, &format!("/agents/{}/settlements", agent.id)),
    )
    .await;
    costs.push((list, budget(2, 0, 2, 2)));

    let hash = world.settle(&world.authorize(agent, &body).await.ok()).await;
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    let (complete, answer) = measure(&world, "complete", world.complete(agent, &settlement, &proof)).await;
    answer.ok();
    costs.push((complete, budget(2, 6, 3, 2)));
    let (me, _) = measure(&world, "me", world.get(agent, "/mcp/agents/me")).await;
    costs.push((me, budget(1, 0, 1, 1)));
    costs
}
