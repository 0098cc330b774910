//! Tests that an `anomaly_brake` rule disables a service or freezes an agent once per unusual hour, for any order of
//! records.

use crate::world::{SHARD, World, agent, at, owner};
use purser_domain::{
    Act, Acting, Actor, Agent, AgentStatus, AuditChanges, AuditFilter, AuditKind, AuditOutcome, AuditScope,
    AutomaticFreeze, Day, EditReason, EnabledService, EventKind, Hour, RequestSource, Rule, RuleId, RuleKind,
    Timestamp,
};
use purser_store::{AuditEntry, AuditLog, AuditRow, PageRequest, UpdateResult};
use purser_testkit::{AUDIT, authorize::Answer, sample};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::SeqCst;
use uuid::Uuid;

const HOUR: u32 = 3_600;

/// Returns the agent with an `anomaly_brake` rule: at least 50 units, and more than `times` the busiest hour.
fn braked(times: u32, version: u64, status: AgentStatus) -> Agent {
    let rule = Rule {
        id: RuleId::from_uuid(Uuid::from_u128(1)),
        version: 1,
        kind: RuleKind::AutomaticFreeze(AutomaticFreeze {
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
    /// Starts with an agent of which the rule disabled a service less than 24 hours ago, so the rule freezes the agent.
    async fn with_brake(times: u32) -> Self {
        let world = Self::with_unused_brake(times).await;
        let earlier = Hour::containing(midnight().before(sample::secs(21 * HOUR)));
        let (owner, agent) = (owner(), sample::agent_id(1));
        let recorded = world.usage.record_automatic_freeze(&owner, agent, earlier);
        recorded.await.unwrap();
        world
    }

    /// Starts with an agent that may also spend 1,000 a day at service 2.
    async fn with_unused_brake(times: u32) -> Self {
        let world = Self::start().await;
        let other = sample::enabled(sample::service_id(2), 1_000, 1_000);
        let stored = world
            .ledger
            .put_policy(sample::agent_id(1), &other, &sample::audit())
            .await;
        assert_eq!(stored.unwrap(), UpdateResult::Stored);
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

    /// Makes a payment to a service for each triple of service, time and amount.
    async fn pays_services(&self, payments: &[(u128, Timestamp, u64)]) {
        for (service, at, amount) in payments {
            let key = format!("{service} {at} {amount}");
            let answer = self.pay_service_at(*service, *amount, &key, *at).await;
            assert!(matches!(answer, Answer::Allowed(_)), "{answer:?} {key}");
        }
    }

    /// Stores a policy as the agent's owner does.
    async fn set_enabled(&self, service: u128, enabled: bool) {
        let (agent, service) = (sample::agent_id(1), sample::service_id(service));
        let (policy, _) = self
            .ledger
            .read_policy_with_update_mark(agent, service)
            .await
            .unwrap()
            .unwrap();
        let next = EnabledService {
            enabled,
            version: policy.version + 1,
            ..policy
        };
        let acting = Acting {
            actor: Actor::Person {
                id: owner(),
                session: None,
            },
            source: RequestSource::default(),
        };
        let act = Act::new(AuditKind::ServiceEnabled).on_agent(agent);
        let done = AuditOutcome::Done(AuditChanges::default());
        let random = (next.version << 8).to_be_bytes();
        let row = AuditEntry::new(AUDIT, &acting.audit_record(sample::start(), random, &act, done));
        let stored = self.ledger.put_policy(agent, &next, &row).await.unwrap();
        assert_eq!(stored, UpdateResult::Stored);
    }

    /// Returns the agent's status, and for services 1 and 2 whether they are enabled.
    async fn limits(&self) -> (AgentStatus, bool, bool) {
        let mut enabled = Vec::new();
        for service in [1, 2] {
            let service = sample::service_id(service);
            let policy = self.ledger.find_enabled_service(sample::agent_id(1), service).await;
            enabled.push(policy.unwrap().unwrap().enabled);
        }
        (self.now().await.0, enabled[0], enabled[1])
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
        self.audit_rows(AuditKind::AgentFrozen).await
    }

    async fn audit_rows(&self, kind: AuditKind) -> Vec<AuditRow> {
        let filter = AuditFilter {
            kind: Some(kind),
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

/// The payments as triples of service, time and amount, and the agent's status and the enabled services afterwards.
type ServiceRow<'a> = (&'static str, &'a [(u128, Timestamp, u64)], (AgentStatus, bool, bool));

/// Only the service without which the hour would be usual is disabled. Otherwise, the agent is frozen.
#[tokio::test]
async fn a_service_that_received_most_of_an_unusual_hours_amount_is_disabled() {
    let after = |secs| midnight().after(sample::secs(secs));
    let before = |secs| midnight().before(sample::secs(secs));
    let (disabled_1, disabled_2) = ((ACTIVE, false, true), (ACTIVE, true, false));
    let all = (FROZEN, true, true);
    let rows: [ServiceRow<'_>; 13] = [
        (
            "less than the least",
            &[(1, after(0), 25), (2, after(1), 24)],
            (ACTIVE, true, true),
        ),
        ("one service", &[(1, after(0), 50)], disabled_1),
        ("mostly one", &[(1, after(0), 5), (2, after(1), 48)], disabled_2),
        ("halves", &[(1, after(0), 30), (2, after(1), 30)], disabled_1),
        (
            "the rest is just usual",
            &[(1, after(0), 49), (2, after(1), 60)],
            disabled_2,
        ),
        ("the rest is unusual", &[(1, after(0), 50), (2, after(1), 60)], all),
        (
            "across an hour",
            &[(2, after(HOUR - 1), 25), (2, after(HOUR), 25)],
            disabled_2,
        ),
        (
            "across midnight",
            &[(2, before(1), 25), (1, after(0), 1), (2, after(0), 25)],
            disabled_2,
        ),
        (
            "the rest is at most twice the usual",
            &[(1, before(48 * HOUR), 30), (1, after(0), 60), (2, after(1), 61)],
            disabled_2,
        ),
        (
            "the rest is more than twice the usual",
            &[(1, before(48 * HOUR), 30), (1, after(0), 61), (2, after(1), 61)],
            all,
        ),
        (
            "a burst in each of two hours",
            &[(2, after(HOUR - 1), 60), (2, after(HOUR), 60)],
            disabled_2,
        ),
        (
            "a batch of two hours",
            &[(2, after(0), 60), (1, after(HOUR), 1)],
            disabled_2,
        ),
        // The sums by service of an hour long ago are not kept.
        ("a late batch", &[(2, after(0), 60), (1, after(4 * HOUR), 1)], all),
    ];
    for (name, payments, expected) in rows {
        let world = World::with_unused_brake(2).await;
        world.pays_services(payments).await;
        world.pass_all().await;
        assert_eq!(world.limits().await, expected, "{name}");
    }
}

/// Until the agent is frozen, an adversary gets the triggering amount twice, whatever services and hours it uses and
/// whatever the owner enables again.
#[tokio::test]
async fn a_disabled_service_admits_one_more_triggering_amount_in_24_hours() {
    let burst = midnight().after(sample::secs(HOUR));
    let later = |secs| burst.after(sample::secs(secs));
    let world = World::with_unused_brake(2).await;
    world.pays_services(&[(1, burst, 9), (2, burst, 40)]).await;
    let mut batches = world.pass_all().await;
    assert_eq!(world.limits().await, (ACTIVE, true, true));
    world.pays_services(&[(2, later(1), 1)]).await;
    batches.extend(world.pass_all().await);
    assert_eq!(world.limits().await, (ACTIVE, true, false));
    let blocked = world.pay_service_at(2, 1, "blocked", later(2)).await;
    assert_eq!(blocked, Answer::Blocked);

    let reason = "anomaly brake: $0.00005 within an hour on 2026-12-11, 01:00 to 02:00 UTC, after at most $0.00 an hour on a \
        usual day";
    let rows = world.audit_rows(AuditKind::ServiceDisabled).await;
    let [AuditRow { record, .. }] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!(record.actor, Actor::Rule { owner: owner() });
    assert_eq!(record.source.reason.as_ref().map(EditReason::as_str), Some(reason));
    assert_eq!(record.act.agent, Some(sample::agent_id(1)));
    assert_eq!(record.act.service, Some(sample::service_id(2)));
    let AuditOutcome::Done(changes) = &record.outcome else {
        panic!("{record:?}")
    };
    assert_eq!(Value::Object(changes.after.clone()), json!({"enabled": false}));
    let told = world.told();
    let is_by_rule = |event: &&purser_domain::Event| event.data().find_text("reason").is_some();
    let told: Vec<_> = told.iter().filter(is_by_rule).collect();
    let [told] = told[..] else { panic!("{told:?}") };
    assert_eq!((told.kind(), told.owner()), (EventKind::PolicyChanged, Some(&owner())));
    assert_eq!(told.data().find_text("reason"), Some(reason));
    assert_eq!(
        told.data().find_text("service_id"),
        Some(sample::service_id(2).to_string().as_str())
    );

    // All records arrive again in other batches and in reverse order, before and after the owner enables the service.
    let mut repeated: Vec<Value> = batches.concat();
    repeated.reverse();
    for enabled in [false, true] {
        if enabled {
            world.set_enabled(2, true).await;
        }
        for batch in repeated.chunks(3).chain([&repeated[..]]) {
            world.pass(batch).await.unwrap();
        }
        assert_eq!(world.limits().await, (ACTIVE, true, enabled));
    }
    // The rest of the hour triggers again at the same amount, and then the agent is frozen.
    world.pays_services(&[(2, later(3), 30), (1, later(4), 19)]).await;
    world.pass_all().await;
    assert_eq!(world.limits().await, (ACTIVE, true, true));
    world.pays_services(&[(2, later(5), 1)]).await;
    world.pass_all().await;
    assert_eq!(world.limits().await, (FROZEN, true, true));
    assert_eq!(world.audit_rows(AuditKind::ServiceDisabled).await.len(), 1);
    assert_eq!(world.freezes().await.len(), 1);
}

#[tokio::test]
async fn after_24_hours_another_service_is_disabled() {
    for (hours, expected) in [(1, FROZEN), (24, FROZEN), (25, ACTIVE)] {
        let world = World::with_unused_brake(2).await;
        world.pays_services(&[(1, midnight(), 60)]).await;
        world.pass_all().await;
        assert_eq!(world.limits().await, (ACTIVE, false, true));
        let next = midnight().after(sample::secs(hours * HOUR));
        // After 24 hours, the first burst is usual, so the second must be larger.
        world.pays_services(&[(2, next, 130)]).await;
        world.pass_all().await;
        assert_eq!(world.limits().await, (expected, false, expected == FROZEN), "{hours}");
    }
}

/// The rule ignores what a user disabled, and is evaluated again after the user enables it.
#[tokio::test]
async fn a_service_that_a_user_disabled_is_not_disabled_automatically() {
    let world = World::with_unused_brake(2).await;
    world.pays_services(&[(1, midnight(), 60), (2, midnight(), 10)]).await;
    world.set_enabled(1, false).await;
    let batches = world.pass_all().await;
    assert_eq!(world.limits().await, (ACTIVE, false, true));
    assert_eq!(world.audit_rows(AuditKind::ServiceDisabled).await, []);
    world.set_enabled(1, true).await;
    world.fold(SHARD, &batches.concat()).await.unwrap();
    assert_eq!(world.limits().await, (ACTIVE, false, true));
    assert_eq!(world.audit_rows(AuditKind::ServiceDisabled).await.len(), 1);
}

/// Payments that were decided before the rule disabled the service arrive in later batches, also of the next hour.
#[tokio::test]
async fn earlier_payments_to_a_disabled_service_freeze_nothing() {
    let world = World::with_unused_brake(2).await;
    let at = |secs| midnight().after(sample::secs(secs));
    let mut batches = Vec::new();
    for (service, secs) in [(1, 0), (1, 1), (1, HOUR)] {
        world.pays_services(&[(service, at(secs), 60)]).await;
        batches.push(world.records().concat());
    }
    for batch in &batches {
        world.fold(SHARD, batch).await.unwrap();
        assert_eq!(world.limits().await, (ACTIVE, false, true));
    }
    assert_eq!(world.audit_rows(AuditKind::ServiceDisabled).await.len(), 1);
    world.pays_services(&[(2, at(HOUR + 1), 49)]).await;
    world.pass_all().await;
    assert_eq!(world.limits().await, (ACTIVE, false, true));
    world.pays_services(&[(2, at(HOUR + 2), 1)]).await;
    world.pass_all().await;
    assert_eq!(world.limits().await, (FROZEN, false, true));
}

/// A released payment counts neither for its service nor for the rest.
#[tokio::test]
async fn released_payments_do_not_count_for_a_service() {
    let world = World::with_unused_brake(2).await;
    let released = world.paid_at(60, "released", midnight()).await;
    world.release(released).await;
    world.pays_services(&[(2, midnight(), 40), (1, midnight(), 15)]).await;
    world.pass_all().await;
    assert_eq!(world.limits().await, (ACTIVE, true, false));
}

/// Concurrent calls evaluate the same hour, and the test kills a call at each step and repeats the batch.
#[tokio::test]
async fn a_service_is_disabled_once_despite_concurrent_or_killed_calls() {
    let mut killed_at = None;
    loop {
        let world = World::with_unused_brake(2).await;
        world.pays_services(&[(1, midnight(), 10), (2, midnight(), 50)]).await;
        let batch = world.records().concat();
        let mut was_killed = true;
        if let Some(killed_at) = killed_at {
            let kill = world.kill_at(killed_at);
            was_killed = tokio::select! {
                () = kill.notified() => true,
                answer = world.fold(SHARD, &batch) => {
                    assert!(answer.is_some());
                    false
                }
            };
            world.behave();
            world.fold(SHARD, &batch).await.unwrap();
        } else {
            let folds = tokio::join!(
                world.fold(SHARD, &batch),
                world.fold("shardId-00000002", &batch),
                world.fold("shardId-00000003", &batch)
            );
            assert!(folds.0.is_some() && folds.1.is_some() && folds.2.is_some(), "{folds:?}");
        }
        let disabled = world.audit_rows(AuditKind::ServiceDisabled).await.len();
        assert_eq!(
            (world.limits().await, disabled),
            ((ACTIVE, true, false), 1),
            "{killed_at:?}"
        );
        world.set_enabled(2, true).await;
        world.fold(SHARD, &batch).await.unwrap();
        assert_eq!(world.limits().await, (ACTIVE, true, true), "{killed_at:?}");
        if !was_killed {
            break;
        }
        killed_at = Some(killed_at.map_or(0, |moment| moment + 1));
    }
    assert!(
        killed_at.is_some_and(|moments| moments > 40),
        "only {killed_at:?} moments"
    );
}
