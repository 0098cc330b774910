//! Tests that a rebuild restores missing entries of the decision history, and skips the changes of the last day.

use crate::world::{RowKey, SHARD, World, agent, at, owner};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::{Agent, AgentId, AgentStatus, Day, HistoryEntry, Timestamp, UsageTotals};
use purser_store::{DaySums, HistoryPart, Ledger, RebuildResult, UsageTable};
use purser_testkit::USAGE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOUR: u32 = 3_600;

/// Returns a time more than a day after all changes by [`World::live`].
fn later() -> Timestamp {
    at(26 * HOUR)
}

/// What an owner can read of the decision history: entries, sums per day, and sums per agent.
type Seen = (
    [Vec<HistoryEntry>; 2],
    BTreeMap<Day, DaySums>,
    BTreeMap<AgentId, UsageTotals>,
);

impl World {
    async fn seen(&self) -> Seen {
        let parts = [
            self.journal(HistoryPart::All).await,
            self.journal(HistoryPart::Refusals).await,
        ];
        let days = (
            Day::containing(at(0)).days_earlier(1),
            Day::containing(at(0)).days_later(1),
        );
        let agents = self.usage.read_sums_by_agent(&owner(), days.0, days.1).await.unwrap();
        (parts, self.days().await, agents)
    }

    /// Rebuilds the day on which [`World::live`] made its changes.
    async fn rebuild(&self, now: Timestamp) -> RebuildResult {
        self.rebuild_by(&self.ledger, &self.usage, now).await.unwrap()
    }

    async fn rebuild_by(
        &self,
        ledger: &Ledger,
        usage: &UsageTable,
        now: Timestamp,
    ) -> purser_domain::Result<RebuildResult> {
        let agents = [agent(1, AgentStatus::Active)];
        usage
            .rebuild_day(ledger, &owner(), &agents, Day::containing(at(0)), now)
            .await
    }

    /// Deletes the sums whose index `is_lost` selects.
    async fn lose_sums(&self, is_lost: impl Fn(usize) -> bool) {
        let rows = self.rows("O#").await.into_keys().enumerate();
        for (_, key) in rows.filter(|(index, _)| is_lost(*index)) {
            self.delete(key).await;
        }
    }

    /// Deletes the selected entries, and every second copy in the list of rejections. Returns the number of entries.
    async fn lose_entries(&self, is_lost: impl Fn(usize) -> bool) -> u64 {
        let rows = self.rows("J#").await;
        let of_all = rows.keys().filter(|(pk, _)| !pk.ends_with("#R") && !pk.ends_with("#T"));
        let lost = of_all.enumerate().filter(|(index, _)| is_lost(*index));
        let mut count = 0;
        for (_, (pk, sk)) in lost {
            self.delete((pk.clone(), sk.clone())).await;
            if count % 2 == 0 {
                self.delete((format!("{pk}#R"), sk.clone())).await;
            }
            count += 1;
        }
        count
    }

    async fn delete(&self, (pk, sk): RowKey) {
        let delete = self.emulator.client.delete_item().table_name(USAGE);
        let delete = delete.key("pk", AttributeValue::S(pk)).key("sk", AttributeValue::S(sk));
        delete.send().await.unwrap();
    }

    async fn fold_all(&self, batches: &[Vec<Value>]) {
        for batch in batches {
            self.fold(SHARD, batch).await.unwrap();
        }
    }
}

/// The test cases lose every third entry, every second entry, all sums, or everything.
#[tokio::test]
async fn a_rebuild_restores_lost_history_entries_and_sums() {
    for (entries, sums) in [(3, 100), (2, 2), (100, 1), (1, 1)] {
        let world = World::start().await;
        world.live().await;
        let batches = world.records();
        world.fold_all(&batches).await;
        let before = world.seen().await;
        let lost = world.lose_entries(|index| index % entries == 0).await;
        world.lose_sums(|index| index % sums == 0).await;
        let rebuilt = world.rebuild(later()).await;
        assert!(lost > 0);
        let expected = RebuildResult {
            entries: lost,
            ..RebuildResult::default()
        };
        assert_eq!(rebuilt, expected);
        assert_eq!(world.seen().await, before);
        world.assert_folded().await;
        // A second run changes nothing.
        let rows = [world.rows("J#").await, world.rows("O#").await];
        assert_eq!(world.rebuild(later()).await, RebuildResult::default());
        assert_eq!(world.rows("J#").await, rows[0]);
        assert_eq!(world.seen().await, before);
    }
}

/// All rows of the decision history get the current names. No amount changes.
#[tokio::test]
async fn a_rebuild_replaces_former_agent_names() {
    const FORMER: &str = "Ann's assistant";
    let world = World::start().await;
    let former = Agent {
        name: FORMER.to_owned(),
        ..agent(1, AgentStatus::Active)
    };
    world.live().await;
    world.fold_all(&world.records()).await;
    let day = Day::containing(at(0));
    let rename = async |agent: &Agent, now| {
        let agents = std::slice::from_ref(agent);
        world
            .usage
            .rename_agents_in_day(&owner(), agents, day, now)
            .await
            .unwrap()
    };
    let before = world.seen().await;
    assert!(rename(&former, later()).await > 0);
    let names = async || {
        let ([all, refused], days, _) = world.seen().await;
        let names = all.iter().chain(&refused).map(|entry| entry.agent_name.clone());
        let of_sums = days
            .values()
            .flat_map(|day| day.biggest.iter().map(|agent| agent.name.clone()));
        names.chain(of_sums).collect::<BTreeSet<String>>()
    };
    assert_eq!(names().await, BTreeSet::from([FORMER.to_owned()]));

    let current = agent(1, AgentStatus::Active);
    assert_eq!(
        rename(&current, at(HOUR)).await,
        0,
        "the last day is left to the streams"
    );
    assert!(rename(&current, later()).await > 0);
    assert_eq!(rename(&current, later()).await, 0);
    assert_eq!(names().await, BTreeSet::from([current.name.clone()]));
    assert_eq!(world.seen().await, before);
    world.assert_folded().await;
}

/// The expiry time of an entry depends only on the time of the decision.
#[tokio::test]
async fn history_entries_expire_a_fixed_time_after_their_decision() {
    let world = World::start().await;
    let paid = world.paid(10, "paid").await;
    let first = world.records();
    world.confirm(paid, 1, at(10)).await;
    let batches = [first, world.records()].concat();
    world.fold_all(&batches).await;
    assert!(world.rows("J#").await.values().all(|row| !row.contains_key("ttl")));
    let kept: u32 = 90 * 86_400;
    let usage = world
        .usage
        .clone()
        .with_history_retention(Some(purser_domain::Duration::from_secs_u32(kept)));
    for (pk, sk) in world.rows("J#").await.into_keys() {
        world.delete((pk, sk)).await;
    }
    world.rebuild_by(&world.ledger, &usage, later()).await.unwrap();
    let rows = world.rows("J#").await;
    assert_eq!(rows.len(), 2, "the entry, and the way to it from its transaction");
    for row in rows.values() {
        let expected = at(0).secs() + u64::from(kept);
        assert_eq!(row["ttl"], AttributeValue::N(expected.to_string()));
    }
}

/// An entry has an outdated state because records of later changes were lost.
#[tokio::test]
async fn a_rebuild_updates_outdated_history_entries() {
    let world = World::start().await;
    let [confirmed, released] = [world.paid(10, "confirmed").await, world.paid(20, "released").await];
    world.fold_all(&world.records()).await;
    world.confirm(confirmed, 1, at(10)).await;
    world.release(released).await;
    drop(world.records());
    let rebuilt = world.rebuild(later()).await;
    assert_eq!(
        rebuilt,
        RebuildResult {
            entries: 2,
            ..RebuildResult::default()
        }
    );
    world.assert_folded().await;
    let sums = world.sums().await;
    assert_eq!(
        (sums.authorized.units(), sums.confirmed.units(), sums.released.units()),
        (30, 10, 20)
    );
    // A change after the rebuild is aggregated as before.
    world.take_back(confirmed).await;
    world.fold_all(&world.records()).await;
    world.assert_folded().await;
}

/// The streams still have the last day's records and will deliver them.
#[tokio::test]
async fn a_history_rebuild_skips_changes_of_the_last_25_hours() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    let rebuilt = world.rebuild(at(HOUR)).await;
    assert_eq!(
        rebuilt,
        RebuildResult {
            young: 8,
            ..RebuildResult::default()
        }
    );
    assert_eq!(world.rows("J#").await, BTreeMap::new());
    world.fold_all(&batches).await;
    world.assert_folded().await;
    // The limit is one hour longer than the day for which streams keep their records.
    world.lose_entries(|_| true).await;
    assert_eq!(world.rebuild(at(25 * HOUR - 1)).await.entries, 0);
    let rebuilt = world.rebuild(at(25 * HOUR + 100)).await;
    assert_eq!(
        rebuilt,
        RebuildResult {
            entries: 8,
            ..RebuildResult::default()
        }
    );
    world.assert_folded().await;
}

/// Some entries of old payments are lost. Records of newer payments arrive during the rebuild.
#[tokio::test]
async fn a_history_rebuild_can_run_while_stream_records_are_aggregated() {
    for delay in [0, 4, 16, 64] {
        let world = World::start().await;
        world.live().await;
        world.fold_all(&world.records()).await;
        let lost = world.lose_entries(|index| index % 2 == 0).await;
        world.lose_sums(|index| index % 2 == delay % 2).await;
        assert!(lost > 3);
        // These payments were made on the same day, and less than a day before the rebuild.
        let now = at(43 * HOUR);
        let old = world.paid_at(60, "young and confirmed", at(20 * HOUR)).await;
        world.confirm(old, 7, at(20 * HOUR)).await;
        for n in 0..10 {
            world.paid_at(61 + n, &format!("young {n}"), at(20 * HOUR)).await;
        }
        let batches = world.records();
        let (one, other) = tokio::join!(
            async {
                tokio::time::sleep(Duration::from_millis(u64::try_from(delay).unwrap())).await;
                for record in batches.iter().flatten() {
                    world.fold(SHARD, std::slice::from_ref(record)).await.unwrap();
                }
            },
            async { (world.rebuild(now).await, world.rebuild(now).await) },
        );
        let ((), (first, _)) = (one, other);
        assert!(first.entries > 0);
        world.assert_folded().await;
        world.fold_all(&batches).await;
        world.rebuild(now).await;
        world.assert_folded().await;
    }
}

#[tokio::test]
async fn concurrent_rebuilds_have_the_same_result() {
    let world = World::start().await;
    world.live().await;
    world.fold_all(&world.records()).await;
    world.lose_entries(|index| index % 2 == 0).await;
    world.lose_sums(|_| true).await;
    tokio::join!(world.rebuild(later()), world.rebuild(later()), world.rebuild(later()));
    world.assert_folded().await;
}

/// The test kills the rebuild at each step and repeats it.
#[tokio::test]
async fn a_killed_rebuild_can_be_repeated() {
    let mut killed_at = 0;
    loop {
        let world = World::start().await;
        world.live().await;
        let batches = world.records();
        world.fold_all(&batches).await;
        world.lose_entries(|index| index % 2 == 0).await;
        world.lose_sums(|index| index % 2 == 0).await;
        let kill = world.kill_at(killed_at);
        let (ledger, usage) = world.behind();
        let was_killed = tokio::select! {
            () = kill.notified() => true,
            done = world.rebuild_by(&ledger, &usage, later()) => done.is_err(),
        };
        world.behave();
        world.rebuild(later()).await;
        world.assert_folded().await;
        if !was_killed {
            break;
        }
        killed_at += 1;
    }
    assert!(killed_at > 30, "only {killed_at} moments");
}

#[tokio::test]
async fn a_rebuild_reports_the_number_of_unreadable_rows() {
    let world = World::start().await;
    world.live().await;
    let text = |text: String| AttributeValue::S(text);
    let place = purser_domain::SettlementId::new_at(at(1), [7; 8]).to_string();
    for (table, pk) in [
        (
            purser_testkit::LEDGER,
            format!("S#{}", purser_testkit::sample::agent_id(1)),
        ),
        (
            purser_testkit::DECISIONS,
            format!("A#{}", purser_testkit::sample::agent_id(1)),
        ),
    ] {
        let put = world.emulator.client.put_item().table_name(table);
        let put = put.item("pk", text(pk)).item("sk", text(place.clone()));
        put.send().await.unwrap();
    }
    let rebuilt = world.rebuild(later()).await;
    assert_eq!(
        rebuilt,
        RebuildResult {
            entries: 8,
            unreadable: 2,
            ..RebuildResult::default()
        }
    );
    assert_eq!(world.journal(HistoryPart::All).await.len(), 8);
}
