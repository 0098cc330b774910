//! Tests that an `anomaly_brake` rule freezes an agent once per unusual hour, for any order of records.

use crate::world::{SHARD, World, agent, at, owner};
use purser_domain::{
    Act, Acting, Actor, Agent, AgentStatus, AuditChanges, AuditFilter, AuditKind, AuditOutcome, AuditScope,
    AutomaticFreeze, Day, EditReason, EventKind, RequestSource, Rule, RuleId, RuleKind, Timestamp,
};
use purser_store::{AuditEntry, AuditLog, AuditRow, PageRequest};
use purser_testkit::{AUDIT, sample};
use serde_json::Value;
use std::sync::atomic::Ordering::SeqCst;
use uuid::Uuid;

const HOUR: u32 = 3_600;

/// Returns the agent with an `anomaly_brake` rule: at least 50 units, and more than `times` the busiest hour.
fn braked(times: u32, version: u64, status: AgentStatus) -> Agent {
    let rule = Rule {
        id: RuleId::from_uuid(Uuid::from_u128(1)),
        version: 1,
        kind: RuleKind::AnomalyBrake(AutomaticFreeze {
            times,
            at_least: sample::units(50),
        }),
    };
    Agent {
        rules: vec![rule],
        ..agent(version, status)
    }
}

/// Returns a midnight after the start time of every test.
fn midnight() -> Timestamp {
    Day::containing(at(0)).days_later(20).start_time()
}

impl World {
    async fn with_brake(times: u32) -> Self {
        let world = Self::start().await;
        world.edit(&braked(times, 2, AgentStatus::Active)).await;
        world
            .clock
            .store(midnight().after(sample::secs(2 * HOUR)).micros(), SeqCst);
        world
    }

    async fn edit(&self, agent: &Agent) {
        let acting = Acting {
            actor: Actor::Person {
                id: owner(),
                session: None,
            },
            source: RequestSource::default(),
        };
        let act = Act::new(AuditKind::AgentRenamed).on_agent(agent.id);
        let random = agent.version.to_be_bytes();
        let done = AuditOutcome::Done(AuditChanges::default());
        let row = AuditEntry::new(AUDIT, &acting.audit_record(sample::start(), random, &act, done));
        self.ledger.put_agent(agent, &row).await.unwrap();
    }

    /// Makes a payment for each pair of time and amount.
    async fn pays(&self, payments: &[(Timestamp, u64)]) {
        for (at, amount) in payments {
            let key = format!("{at} {amount}");
            self.paid_at(*amount, &key, *at).await;
        }
    }

    /// Aggregates and publishes all records, including the records of a freeze. Returns the batches.
    async fn pass_all(&self) -> Vec<Vec<Value>> {
        let mut passed = Vec::new();
        loop {
            let batches = self.records();
            if batches.is_empty() {
                return passed;
            }
            for batch in &batches {
                self.pass(batch).await.unwrap();
            }
            passed.extend(batches);
        }
    }

    async fn now(&self) -> (AgentStatus, u64) {
        let agent = self
            .ledger
            .read_agent_by_id(sample::agent_id(1))
            .await
            .unwrap()
            .unwrap();
        (agent.status, agent.version)
    }

    async fn freezes(&self) -> Vec<AuditRow> {
        let filter = AuditFilter {
            kind: Some(AuditKind::AgentFrozen),
            ..AuditFilter::default()
        };
        let slice = PageRequest {
            before: None,
            limit: 10,
        };
        let log = AuditLog::new(self.emulator.client.clone(), AUDIT);
        log.read_page(&AuditScope::Person(owner()), filter, slice)
            .await
            .unwrap()
            .items
    }
}

const FROZEN: AgentStatus = AgentStatus::Frozen;
const ACTIVE: AgentStatus = AgentStatus::Active;

/// After the user unfreezes the agent, the payments of the frozen hour no longer count.
#[tokio::test]
async fn a_payment_burst_freezes_the_agent_once_per_hour() {
    let world = World::with_brake(10).await;
    let (burst, last) = (
        midnight().after(sample::secs(HOUR)),
        midnight().before(sample::secs(24 * HOUR)),
    );
    world.pays(&[(last, 4), (burst, 45)]).await;
    let mut batches = world.pass_all().await;
    assert_eq!(world.now().await, (ACTIVE, 2), "less than the least");
    world.pays(&[(burst.after(sample::secs(1)), 5)]).await;
    batches.extend(world.pass_all().await);
    assert_eq!(world.now().await, (FROZEN, 3));
    let reason = "anomaly brake: $0.00005 within an hour on 2026-12-11, 01:00 to 02:00 UTC, after at most $0.000004 an \
        hour on a usual day";
    let rows = world.freezes().await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let record = &rows[0].record;
    assert_eq!(record.actor, Actor::Rule { owner: owner() });
    assert_eq!(record.source.reason.as_ref().map(EditReason::as_str), Some(reason));
    assert_eq!(record.act.agent, Some(sample::agent_id(1)));
    let (_, mark) = world
        .ledger
        .read_agent_with_update_mark(sample::agent_id(1))
        .await
        .unwrap()
        .unwrap();
    assert!(mark.was_made_by_rule() && mark.audit_id == Some(record.id), "{mark:?}");
    let told = world.told();
    let told: Vec<_> = told
        .iter()
        .filter(|event| event.kind() == EventKind::AgentFrozen)
        .collect();
    let [told] = told[..] else { panic!("{told:?}") };
    assert_eq!(told.data().find_text("reason"), Some(reason));
    assert_eq!(
        (told.data().find_text("by"), told.owner()),
        (Some("owner"), Some(&owner()))
    );

    // All records arrive again in other batches and in reverse order, before and after the user unfreezes the agent.
    let mut repeated: Vec<Value> = batches.concat();
    repeated.reverse();
    for version in [3, 4] {
        if version == 4 {
            world.edit(&braked(10, 4, ACTIVE)).await;
            world.pays(&[(burst.after(sample::secs(2)), 40)]).await;
            let later = world.pass_all().await;
            repeated.extend(later.concat());
        }
        for batch in repeated.chunks(3).chain([&repeated[..]]) {
            world.pass(batch).await.unwrap();
        }
        let status = if version == 4 { ACTIVE } else { FROZEN };
        assert_eq!(world.now().await, (status, version));
    }
    // A rebuild of the history keeps the hours in which the rule froze the agent.
    let (owner, agents, later) = (owner(), [braked(10, 4, ACTIVE)], burst.after(sample::secs(30 * HOUR)));
    let rebuilt = world
        .usage
        .rebuild_day(&world.ledger, &owner, &agents, Day::containing(burst), later);
    rebuilt.await.unwrap();
    world.fold(SHARD, &repeated).await.unwrap();
    assert_eq!(world.now().await, (ACTIVE, 4));
    assert_eq!(world.freezes().await.len(), 1);

    // The payments that caused the freeze no longer count.
    world.pays(&[(burst.after(sample::secs(3)), 10)]).await;
    world.pass_all().await;
    assert_eq!(world.now().await, (FROZEN, 5));
    world.edit(&braked(10, 6, ACTIVE)).await;
    let next = burst.after(sample::secs(HOUR));
    world.pays(&[(next, 49)]).await;
    world.pass_all().await;
    assert_eq!(world.now().await, (ACTIVE, 6));
}

/// A test case: the name, the payments as pairs of time and amount, and the agent's expected status.
type Row<'a> = (&'static str, &'a [(Timestamp, u64)], AgentStatus);

/// The hour is compared with the busiest hour of each of the fourteen days before.
#[tokio::test]
async fn an_automatic_freeze_compares_an_hour_with_fourteen_days() {
    let after = |secs| midnight().after(sample::secs(secs));
    let before = |secs| midnight().before(sample::secs(secs));
    let rows: [Row<'_>; 10] = [
        ("without a past", &[(after(0), 50)], FROZEN),
        ("a burst across midnight", &[(before(1), 25), (after(0), 25)], FROZEN),
        (
            "a burst across an hour",
            &[(after(HOUR - 1), 25), (after(HOUR), 25)],
            FROZEN,
        ),
        ("one hour", &[(after(0), 40), (after(HOUR - 1), 40)], FROZEN),
        ("two hours", &[(after(0), 40), (after(2 * HOUR - 60), 40)], ACTIVE),
        ("24 hours before", &[(before(24 * HOUR), 40), (after(0), 60)], FROZEN),
        (
            "25 hours before",
            &[(before(24 * HOUR + 1), 40), (after(0), 60)],
            ACTIVE,
        ),
        (
            "above twice the usual of two days",
            &[(before(72 * HOUR), 30), (before(48 * HOUR), 45), (after(0), 61)],
            FROZEN,
        ),
        ("336 hours before", &[(before(336 * HOUR), 30), (after(0), 60)], ACTIVE),
        (
            "337 hours before",
            &[(before(336 * HOUR + 1), 30), (after(0), 60)],
            FROZEN,
        ),
    ];
    for (name, payments, expected) in rows {
        let world = World::with_brake(2).await;
        world.pays(payments).await;
        world.pass_all().await;
        assert_eq!(world.now().await.0, expected, "{name}");
    }
}

/// A released payment counts neither in the evaluated hour nor in earlier hours.
#[tokio::test]
async fn released_payments_do_not_count_for_an_automatic_freeze() {
    let world = World::with_brake(2).await;
    let past = world.paid_at(100, "past", midnight()).await;
    world.release(past).await;
    let burst = midnight().after(sample::secs(HOUR));
    let released = world.paid_at(40, "released", burst).await;
    world.release(released).await;
    world.pays(&[(burst.after(sample::secs(1)), 20)]).await;
    world.pass_all().await;
    // The payment of 40 was released, so only the payment of 20 counts.
    assert_eq!(world.now().await, (ACTIVE, 2));
    world.pays(&[(burst.after(sample::secs(2)), 30)]).await;
    world.pass_all().await;
    assert_eq!(world.now().await, (FROZEN, 3));
}

/// The rule does not change a user's own freeze. After the user unfreezes the agent, the rule is evaluated again.
#[tokio::test]
async fn frozen_and_archived_agents_are_not_frozen_automatically() {
    for archived in [false, true] {
        let world = World::with_brake(2).await;
        world.pays(&[(midnight(), 60)]).await;
        let frozen = Agent {
            archived,
            ..braked(2, 3, FROZEN)
        };
        world.edit(&frozen).await;
        let batches = world.pass_all().await;
        assert_eq!(world.now().await, (FROZEN, 3));
        assert_eq!(world.freezes().await, []);
        world.edit(&braked(2, 4, ACTIVE)).await;
        world.fold(SHARD, &batches.concat()).await.unwrap();
        assert_eq!(world.now().await, (FROZEN, 5));
    }
}

/// An agent without an active rule is not frozen.
#[tokio::test]
async fn only_an_active_rule_freezes_an_agent_automatically() {
    let world = World::start().await;
    world.pays(&[(midnight(), 60)]).await;
    world.pass_all().await;
    assert_eq!(world.now().await, (ACTIVE, 1));
}

/// Concurrent calls evaluate the same hour.
#[tokio::test]
async fn concurrent_stream_batches_freeze_an_agent_once() {
    let world = World::with_brake(2).await;
    world
        .pays(&[(midnight(), 30), (midnight().after(sample::secs(1)), 30)])
        .await;
    let batches = world.records().concat();
    let folds = tokio::join!(
        world.fold(SHARD, &batches),
        world.fold("shardId-00000002", &batches),
        world.fold("shardId-00000003", &batches)
    );
    assert!(folds.0.is_some() && folds.1.is_some() && folds.2.is_some(), "{folds:?}");
    assert_eq!(world.now().await, (FROZEN, 3));
    assert_eq!(world.freezes().await.len(), 1);
}

/// The test kills the call at each step and repeats the batch.
#[tokio::test]
async fn an_automatic_freeze_survives_a_kill_at_any_step() {
    let mut killed_at = 0;
    loop {
        let world = World::with_brake(2).await;
        world.pays(&[(midnight(), 60)]).await;
        let batch = world.records().concat();
        let kill = world.kill_at(killed_at);
        let was_killed = tokio::select! {
            () = kill.notified() => true,
            answer = world.fold(SHARD, &batch) => {
                assert!(answer.is_some());
                false
            }
        };
        world.behave();
        world.fold(SHARD, &batch).await.unwrap();
        assert_eq!(world.now().await, (FROZEN, 3), "killed at {killed_at}");
        assert_eq!(world.freezes().await.len(), 1, "killed at {killed_at}");
        world.edit(&braked(2, 4, ACTIVE)).await;
        world.fold(SHARD, &batch).await.unwrap();
        assert_eq!(world.now().await, (ACTIVE, 4), "killed at {killed_at}");
        if !was_killed {
            break;
        }
        killed_at += 1;
    }
    assert!(killed_at > 40, "only {killed_at} moments");
}
