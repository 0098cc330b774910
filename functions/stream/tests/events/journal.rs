//! Tests that each change is aggregated into the decision history exactly once, for any batches.

use crate::world::{FOLDED, RowKey, SHARD, World, agent, at, owner};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use purser_domain::{
    Agent, AgentId, AgentStatus, Amount, Day, DecisionResult, HistoryEntry, Labels, OperatorName, OperatorReason,
    OwnershipOffer, SettlementId, SettlementState, Timestamp, UserId,
};
use purser_store::{
    Change, Corrupt, Filter, HistoryChange, HistoryPart, PageRequest, SequenceNumber, TransferAgentResult,
};
use purser_testkit::{
    DECISIONS, Fate, LEDGER, Moment, Rng, USAGE, authorize::Answer, invariants::scan, journal_event, sample,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::Notify;

const DAY: u32 = 86_400;

/// Returns the name of an entry's state in these tests.
fn letter(entry: &HistoryEntry) -> &'static str {
    match (entry.settlement_state(), entry.result) {
        (Some(SettlementState::Authorized), _) => "authorized",
        (Some(SettlementState::Confirmed { .. }), _) => "confirmed",
        (Some(SettlementState::Expired), _) => "released",
        (None, DecisionResult::Block) => "blocked",
        (None, DecisionResult::Escalate) => "escalated",
        (None, DecisionResult::RevertConfirmation) => "reverted",
        (None, DecisionResult::Allow | DecisionResult::Payout) => panic!("{entry:?}"),
    }
}

impl World {
    /// Passes the remaining records to the function `history`. Returns the entries of the decision history, oldest
    /// first.
    async fn folded(&self) -> Vec<(u64, &'static str)> {
        for batch in self.records() {
            self.fold(SHARD, &batch).await.unwrap();
        }
        self.assert_folded().await;
        let entries = self.journal(HistoryPart::All).await.into_iter().rev();
        entries.map(|entry| (entry.amount.units(), letter(&entry))).collect()
    }
}

/// Entries are sorted by the time of the decision, even if the states of the payments changed in another order.
#[tokio::test]
async fn history_entries_are_ordered_by_time_with_their_current_state() {
    let world = World::start().await;
    let first = world.paid_at(10, "first", at(0)).await;
    assert_eq!(world.folded().await, [(10, "authorized")]);
    world.confirm(first, 1, at(1)).await;
    let second = world.paid_at(20, "second", at(2)).await;
    assert_eq!(world.folded().await, [(10, "confirmed"), (20, "authorized")]);
    assert_eq!(world.pay_at(5_000, "blocked", at(3)).await, Answer::Blocked);
    assert!(matches!(world.pay_at(150, "asked", at(4)).await, Answer::Waits(_)));
    let third = world.paid_at(30, "third", at(5)).await;
    world.take_back(first).await;
    world.release(second).await;
    let refused = [(5_000, "blocked"), (150, "escalated")];
    let expected = [
        &[(10, "authorized"), (20, "released")][..],
        &refused,
        &[(30, "authorized"), (10, "reverted")],
    ];
    assert_eq!(world.folded().await, expected.concat());
    // The reverted payment is confirmed again, and a released payment is confirmed late.
    world.confirm(first, 1, at(DAY)).await;
    world.confirm(second, 2, at(DAY)).await;
    world.confirm(third, 3, at(2 * DAY)).await;
    let expected = [
        &[(10, "confirmed"), (20, "confirmed")][..],
        &refused,
        &[(30, "confirmed"), (10, "reverted")],
    ];
    assert_eq!(world.folded().await, expected.concat());
    let confirmed = &world.journal(HistoryPart::All).await[5];
    let SettlementState::Confirmed {
        tx_hash, settled_at, ..
    } = confirmed.settlement_state().unwrap()
    else {
        panic!()
    };
    assert_eq!((*tx_hash, *settled_at), (sample::tx_hash(1), at(DAY)));
    assert_eq!(confirmed.settlement_id(), Some(first));
    // All amounts count on the days of the decisions.
    let days = world.days().await;
    assert_eq!(days.keys().copied().collect::<Vec<_>>(), [Day::containing(at(0))]);
    let sums = days[&Day::containing(at(0))].total;
    assert_eq!(
        (sums.authorized, sums.confirmed),
        (sample::units(60), sample::units(60))
    );
    assert_eq!((sums.released, sums.taken_back), (Amount::ZERO, sample::units(10)));
}

#[tokio::test]
async fn a_payment_counts_on_the_day_of_its_decision() {
    let world = World::start().await;
    // One payment is one second before midnight. The other payment is at midnight.
    let midnight = Day::containing(at(0)).days_later(1).start_time();
    let before = world.paid_at(10, "before", midnight.before(sample::secs(1))).await;
    let after = world.paid_at(20, "after", midnight).await;
    world.confirm(before, 1, midnight.after(sample::secs(5))).await;
    world.release(after).await;
    world.folded().await;
    let days = world.days().await;
    let sums = [Day::containing(at(0)), Day::containing(at(0)).days_later(1)].map(|day| days[&day].total);
    assert_eq!(sums.map(|sums| sums.authorized.units()), [10, 20]);
    assert_eq!(sums.map(|sums| sums.confirmed.units()), [10, 0]);
    assert_eq!(sums.map(|sums| sums.released.units()), [0, 20]);
}

/// A second list of the decision history has only denials, escalations and reverted confirmations.
#[tokio::test]
async fn denials_are_in_both_parts_of_the_history() {
    let world = World::start().await;
    world.live().await;
    world.folded().await;
    let of = async |part| -> BTreeMap<&'static str, usize> {
        let mut found = BTreeMap::new();
        for entry in world.journal(part).await {
            *found.entry(letter(&entry)).or_default() += 1;
        }
        found
    };
    let refusals = [("blocked", 1), ("escalated", 1), ("reverted", 1)];
    assert_eq!(of(HistoryPart::Refusals).await, refusals.into());
    let payments = [("authorized", 2), ("confirmed", 2), ("released", 1)];
    assert_eq!(
        of(HistoryPart::All).await,
        refusals.into_iter().chain(payments).collect()
    );
}

impl World {
    /// Aggregates `count` copies of one payment, one per second. Returns the change of the copied payment.
    async fn many(&self, count: u32) -> HistoryChange {
        self.paid(10, "copied").await;
        let batches = self.records();
        let changes = batches.iter().flatten().filter_map(|record| Change::parse(record).ok());
        let mut changes = changes.filter_map(|change| self.ledger.decision_history_change(&change).unwrap());
        let change = changes.next().unwrap();
        let owners = self.ledger.read_owners(&[sample::agent_id(1)].into()).await.unwrap();
        let copies = (0..count).map(|n| copy(&change, sample::agent_id(1), n));
        self.usage.add_history_changes(copies.collect(), &owners).await.unwrap();
        change
    }
}

/// Unreadable sums of one owner do not stop the other owners' sums.
#[tokio::test]
async fn unreadable_daily_sums_of_one_owner_do_not_block_other_owners_sums() {
    let world = World::start().await;
    let change = world.many(1).await;
    let bob = UserId::derive("https://issuer.example", "bob");
    let other = Agent {
        id: sample::agent_id(2),
        owner: bob.to_string(),
        ..agent(1, AgentStatus::Active)
    };
    world.ledger.create_agent(&other, &sample::audit()).await.unwrap();
    let mut spoiled = 0;
    for mut row in scan(&world.emulator.client, USAGE, None).await {
        let packed = row.values_mut().find(|value| value.is_b());
        if let Some(packed) = packed {
            *packed = AttributeValue::B(Blob::new([1_u8]));
            spoiled += 1;
            let put = world.emulator.client.put_item().table_name(USAGE);
            put.set_item(Some(row)).send().await.unwrap();
        }
    }
    assert!(spoiled >= 1);
    let owners = [sample::agent_id(1), sample::agent_id(2)].into();
    let owners = world.ledger.read_owners(&owners).await.unwrap();
    let copies = [(1, 7), (2, 8)].map(|(agent, n)| copy(&change, sample::agent_id(agent), n));
    let unreadable = world.usage.add_history_changes(copies.to_vec(), &owners).await.unwrap();
    assert!(!unreadable.is_empty() && unreadable.iter().all(Corrupt::is_cause_of));
    let day = Day::containing(at(0));
    let sums = world.usage.read_daily_sums(&bob, day, day).await.unwrap();
    let allowed: Vec<u64> = sums.iter().map(|(_, day)| day.total.allowed).collect();
    assert_eq!(allowed, [1]);
    assert!(
        world
            .journal(HistoryPart::All)
            .await
            .iter()
            .any(|entry| entry.at == at(7))
    );
    // The function reports the row, and continues with the shard's next batches.
    world.paid(10, "after").await;
    for batch in world.records() {
        assert!(world.fold(SHARD, &batch).await.is_some());
    }
}

/// Returns a copy of an authorized payment's change: `n` seconds later, with the amount `n + 1`.
fn copy(change: &HistoryChange, agent: AgentId, n: u32) -> HistoryChange {
    let mut copy = change.clone();
    let purser_domain::LoggedDecision::Allowed(settlement) = &mut copy.new else {
        panic!("{change:?}")
    };
    let terms = &mut settlement.terms;
    terms.agent = agent;
    terms.authorized_at = at(n);
    terms.id = SettlementId::new_at(at(n), u64::from(n).to_be_bytes());
    terms.amount = sample::units(u64::from(n) + 1);
    copy.agent = agent;
    copy.sequence = SequenceNumber::parse(&(n + 1).to_string()).unwrap();
    copy
}

/// A filtered page reads at most 160 entries, so a page may be empty although more pages follow.
#[tokio::test]
async fn history_pages_contain_every_matching_entry_once_in_order() {
    let world = World::start().await;
    world.many(500).await;
    let all: Vec<u64> = (1..=500).rev().collect();
    for limit in [1, 7, 99] {
        let (mut found, mut before, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = world.page(HistoryPart::All, before, limit).await;
            found.extend(page.items.iter().map(|entry| entry.amount.units()));
            pages += 1;
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (all.clone(), 500_u32.div_ceil(limit)), "{limit}");
    }
    let keep = |entry: &HistoryEntry| match entry.amount.units() {
        ..=9 => Filter::Stop,
        amount => Filter::keep_if(amount % 200 < 5),
    };
    let (mut found, mut before, mut pages) = (Vec::new(), None, Vec::new());
    loop {
        let slice = PageRequest { before, limit: 4 };
        world.proxies[0].calls().take();
        let (_, usage) = world.behind();
        let page = usage
            .read_history_page(&owner(), HistoryPart::All, slice, Some(keep))
            .await
            .unwrap();
        assert!(world.proxies[0].calls().take().len() <= 2);
        pages.push(page.items.len());
        found.extend(page.items.into_iter().map(|entry| entry.amount.units()));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(found, [404, 403, 402, 401, 400, 204, 203, 202, 201, 200]);
    assert!(
        pages.contains(&0) || pages.iter().filter(|found| **found < 4).count() > 1,
        "{pages:?}"
    );
    // Each owner has a separate history.
    let other = UserId::derive("https://issuer.example", "bob");
    let slice = PageRequest { before: None, limit: 4 };
    let page = world
        .usage
        .read_history_page(&other, HistoryPart::All, slice, Some(keep))
        .await
        .unwrap();
    assert_eq!(page, purser_store::Page::default());
}

#[tokio::test]
async fn daily_sums_list_the_largest_agents_and_all_services() {
    let world = World::start().await;
    let change = world.many(0).await;
    let agents: BTreeSet<AgentId> = (1..=12).map(sample::agent_id).collect();
    for id in agents.iter().skip(1) {
        let agent = Agent {
            id: *id,
            name: format!("agent {id}"),
            ..agent(1, AgentStatus::Active)
        };
        world.ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    }
    let owners = world.ledger.read_owners(&agents).await.unwrap();
    let copies = (1..=12_u32).map(|n| {
        let mut copy = copy(&change, sample::agent_id(n.into()), n);
        let purser_domain::LoggedDecision::Allowed(settlement) = &mut copy.new else {
            panic!()
        };
        let purser_domain::Purpose::Purchase(purchase) = &mut settlement.terms.purpose else {
            panic!()
        };
        purchase.service = sample::service_id(u128::from(n % 3));
        copy
    });
    world
        .usage
        .add_history_changes(copies.collect(), &owners)
        .await
        .unwrap();
    let day = &world.days().await[&Day::containing(at(0))];
    assert_eq!((day.agents, day.total.allowed), (12, 12));
    let biggest = day
        .biggest
        .iter()
        .map(|one| (one.agent, one.name.clone(), one.sums.authorized.units()));
    let biggest: Vec<_> = biggest.collect();
    let expected = (3..=12_u32).rev().map(|n| {
        let id = sample::agent_id(n.into());
        (id, format!("agent {id}"), u64::from(n) + 1)
    });
    let expected: Vec<_> = expected.collect();
    assert_eq!(biggest, expected);
    let services: Vec<_> = day.services.values().map(|sums| sums.allowed).collect();
    assert_eq!(services, [4, 4, 4]);
    let by_agent = world
        .usage
        .read_sums_by_agent(&owner(), Day::containing(at(0)), Day::containing(at(0)))
        .await
        .unwrap();
    assert_eq!(by_agent.len(), 12);
}

/// Replays use other batch boundaries. One replay arrives three days later.
#[tokio::test]
async fn replayed_stream_records_are_aggregated_once() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    for batch in &batches {
        world.call(json!({"Records": batch})).await.unwrap();
        // The records are repeated as single records, in groups of three, doubled, and as the whole batch.
        for record in batch {
            world.fold(SHARD, std::slice::from_ref(record)).await.unwrap();
        }
        for records in batch[batch.len() / 2..].chunks(3) {
            world.fold(SHARD, records).await.unwrap();
        }
        let doubled: Vec<Value> = batch.iter().chain(batch).cloned().collect();
        for records in [&doubled, batch] {
            let answer = world.fold(SHARD, records).await.unwrap();
            assert_eq!(answer.to_string(), FOLDED);
        }
    }
    world.assert_told_and_folded().await;
    world.clock.store(at(3 * DAY).micros(), SeqCst);
    let before = [world.rows("J#").await, world.rows("O#").await];
    for batch in &batches {
        world.fold(SHARD, batch).await.unwrap();
    }
    assert_eq!(
        [world.rows("J#").await, world.rows("O#").await],
        before,
        "nothing is written again"
    );
}

/// The records can arrive in any order, singly or together, from the stream of either table first.
#[tokio::test]
async fn stream_batches_of_different_shards_are_aggregated_equally_in_any_order() {
    for ledger_first in [false, true] {
        for size in [1, 3, 100] {
            let world = World::start().await;
            world.live().await;
            let mut batches = world.records();
            let of = |batch: &Vec<Value>, table: &str| {
                let arn = batch[0]["eventSourceARN"].as_str().unwrap();
                arn.contains(&format!("/{table}/"))
            };
            batches.retain(|batch| of(batch, LEDGER) || of(batch, DECISIONS));
            batches.sort_by_key(|batch| of(batch, LEDGER) != ledger_first);
            for batch in &batches {
                for records in batch.chunks(size) {
                    let mut records = records.to_vec();
                    records.reverse();
                    world.fold(SHARD, &records).await.unwrap();
                }
            }
            world.assert_folded().await;
        }
    }
}

/// A tumbling window may end without records.
#[tokio::test]
async fn a_stream_window_without_records_writes_no_history() {
    let world = World::start().await;
    world.live().await;
    let mut event = journal_event(&world.records()[0], SHARD);
    event["Records"] = json!([]);
    event["isFinalInvokeForWindow"] = json!(true);
    let answer = world.call(event).await.unwrap();
    assert_eq!(answer.to_string(), FOLDED);
    assert_eq!(world.rows("").await, BTreeMap::new());
}

impl World {
    /// Passes a batch as if the shard were split. The parent shard is repeated after the child shards have started.
    async fn fold_split(&self, batch: &[Value], split: usize) {
        let (parent, after) = batch.split_at(split);
        // Records with the same partition key stay in the same shard after a split.
        let mut children: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for record in after {
            let pk = record["dynamodb"]["NewImage"]["pk"]["S"].as_str().unwrap_or_default();
            if pk.starts_with("S#") || pk.starts_with("A#") {
                children.entry(pk).or_default().push(record.clone());
            }
        }
        if !parent.is_empty() {
            self.fold("parent", parent).await.unwrap();
        }
        for (child, records) in &children {
            for _ in 0..2 {
                self.fold(child, records).await.unwrap();
            }
            if !parent.is_empty() {
                self.fold("parent", parent).await.unwrap();
                self.fold("parent", &parent[parent.len() / 2..]).await.unwrap();
            }
        }
    }
}

/// The test splits the shard at every record, and repeats the parent shard after the child shards.
#[tokio::test]
async fn records_of_split_shards_are_aggregated_once() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    for batch in &batches {
        world.call(json!({"Records": batch})).await.unwrap();
        world.fold_split(batch, batch.len() / 2).await;
    }
    world.assert_told_and_folded().await;
    for batch in &batches {
        for split in 0..=batch.len() {
            world.fold_split(batch, split).await;
            world.assert_folded().await;
        }
    }
}

/// The batches are aggregated several times and concurrently, while they are published.
#[tokio::test]
async fn concurrent_batches_are_aggregated_once() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    let published = json!({"Records": batches.concat()});
    let folded = batches.iter().map(|batch| journal_event(batch, SHARD));
    let events = folded.chain([published]).cycle().take(4 * (batches.len() + 1));
    let world = Arc::new(world);
    let calls = events.map(|event| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.call(event).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    world.assert_told_and_folded().await;
}

/// Two shards have different agents of the same owner, so both write the same items with sums.
#[tokio::test]
async fn concurrent_batches_of_one_owner_are_all_in_the_sums() {
    let world = World::start().await;
    let change = world.many(0).await;
    // The agent ids have the same last digits, so one item contains the sums of all agents.
    let agents: BTreeSet<AgentId> = (0..8_u128).map(|n| sample::agent_id(1 + 16 * n)).collect();
    for id in agents.iter().skip(1) {
        let agent = Agent {
            id: *id,
            ..agent(1, AgentStatus::Active)
        };
        world.ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    }
    let owners = Arc::new(world.ledger.read_owners(&agents).await.unwrap());
    let calls = (0..80_u32).map(|n| {
        let agent = sample::agent_id(1 + 16 * u128::from(n / 10));
        let (usage, owners, copy) = (world.usage.clone(), Arc::clone(&owners), copy(&change, agent, n));
        (agent, async move {
            usage.add_history_changes(vec![copy], &owners).await.unwrap()
        })
    });
    // The batches of one agent arrive in order, and the batches of different agents arrive concurrently.
    let mut by_agent: BTreeMap<AgentId, Vec<_>> = BTreeMap::new();
    for (agent, call) in calls {
        by_agent.entry(agent).or_default().push(call);
    }
    let shards = by_agent.into_values().map(|calls| {
        tokio::spawn(async move {
            for call in calls {
                call.await;
            }
        })
    });
    for shard in shards.collect::<Vec<_>>() {
        shard.await.unwrap();
    }
    let day = &world.days().await[&Day::containing(at(0))];
    assert_eq!((day.agents, day.total.allowed), (8, 80));
    assert_eq!(day.total.authorized.units(), (1..=80).sum::<u64>());
    assert_eq!(world.journal(HistoryPart::All).await.len(), 80);
}

/// Each call is killed after more writes than the call before, until all writes are done.
#[tokio::test]
async fn a_killed_large_batch_is_aggregated_once() {
    let world = World::start().await;
    let change = world.many(0).await;
    let owner_of = |n: u32| UserId::derive("https://issuer.example", &format!("owner {n}"));
    let agents: BTreeSet<AgentId> = (100..250).map(sample::agent_id).collect();
    for (id, n) in agents.iter().zip(0..) {
        let agent = Agent {
            id: *id,
            owner: owner_of(n).to_string(),
            ..agent(1, AgentStatus::Active)
        };
        world.ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    }
    let owners = world.ledger.read_owners(&agents).await.unwrap();
    let changes: Vec<HistoryChange> = (0..600_u32)
        .map(|n| copy(&change, sample::agent_id(u128::from(100 + n % 150)), n))
        .collect();
    let (_, table) = world.behind();
    let mut killed = 0;
    for writes in (1..).step_by(70) {
        let (counter, kill) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let told = Arc::clone(&kill);
        world.proxies[0].follow(move |step| {
            let is_answer = matches!(step.moment, Moment::CarriedOut) && step.call.starts_with("PutItem");
            if is_answer && counter.fetch_add(1, SeqCst) == writes {
                told.notify_one();
                return Fate::Silence;
            }
            Fate::PassOn
        });
        tokio::select! {
            () = kill.notified() => killed += 1,
            done = table.add_history_changes(changes.clone(), &owners) => {
                done.unwrap();
                break;
            }
        }
    }
    assert!(killed > 8, "{killed} kills");
    world.behave();
    let day = Day::containing(at(0));
    for n in 0..150 {
        let days = world.usage.read_daily_sums(&owner_of(n), day, day).await.unwrap();
        let amounts = (0..600).filter(|other| other % 150 == n).map(|n| u64::from(n) + 1);
        assert_eq!(days[0].1.total.authorized.units(), amounts.sum::<u64>(), "{n}");
        assert_eq!((days[0].1.total.allowed, days[0].1.agents), (4, 1), "{n}");
    }
    assert_eq!(world.rows("J#").await.len(), 600);
}

impl World {
    /// Asserts that the history has no gaps: all records of an agent before the last recorded entry have entries.
    async fn assert_no_gaps(&self, batches: &[Vec<Value>]) {
        let rows = self.rows("J#").await;
        let prefix = format!("J#{}", owner());
        let of = |(pk, sk): &RowKey| (*pk == prefix).then(|| sk.clone());
        let written: BTreeMap<String, String> = rows
            .iter()
            .filter_map(|(key, row)| Some((of(key)?, row["seq"].as_s().unwrap().clone())))
            .collect();
        for batch in batches {
            let mut records: Vec<(String, String)> = Vec::new();
            for record in batch {
                let change = Change::parse(record).unwrap();
                if let Some(change) = self.ledger.decision_history_change(&change).unwrap() {
                    let entry = HistoryEntry::new(&change.new, "", &Labels::default());
                    records.push((change.sequence.to_string(), entry.place.to_string()));
                }
            }
            let is_in = |(sequence, place): &(String, String)| written.get(place).is_some_and(|last| last >= sequence);
            let last = records
                .iter()
                .rposition(|record| is_in(record) && written[&record.1] == record.0);
            let gap = records
                .iter()
                .take(last.unwrap_or_default())
                .find(|record| !is_in(record));
            assert_eq!(gap, None, "{written:?}");
        }
    }
}

/// The test kills the function at each step and delivers all records again.
#[tokio::test]
async fn events_and_history_survive_a_kill_at_any_step() {
    let mut killed_at = 0;
    loop {
        let world = World::start().await;
        world.live().await;
        let kill = world.kill_at(killed_at);
        let batches = world.records();
        let mut was_killed = false;
        for batch in &batches {
            tokio::select! {
                () = kill.notified() => was_killed = true,
                answer = world.pass(batch) => assert!(answer.is_some()),
            }
            if was_killed {
                break;
            }
        }
        world.behave();
        world.assert_no_gaps(&batches).await;
        // The repeated batches have different boundaries.
        for batch in batches {
            for records in batch.chunks(batch.len().div_ceil(2).max(1)) {
                let answer = world.pass(records).await.unwrap();
                assert_eq!(answer, json!({"batchItemFailures": []}));
            }
        }
        world.assert_told_and_folded().await;
        if !was_killed {
            break;
        }
        killed_at += 1;
    }
    assert!(killed_at > 40, "only {killed_at} moments");
}

/// Returns an owner's history, oldest first: amount, state and agent name.
async fn history(world: &World, owner: &UserId) -> Vec<(u64, &'static str, String)> {
    let slice = PageRequest {
        before: None,
        limit: 99,
    };
    let none = None::<fn(&HistoryEntry) -> Filter>;
    let page = world
        .usage
        .read_history_page(owner, HistoryPart::All, slice, none)
        .await
        .unwrap();
    let entries = page.items.into_iter().rev();
    entries
        .map(|entry| (entry.amount.units(), letter(&entry), entry.agent_name))
        .collect()
}

/// Returns the agent's `n`-th owner, counted from 0.
fn nth_owner(n: usize) -> UserId {
    match n {
        0 => owner(),
        n => UserId::derive("https://issuer.example", &format!("owner {n}")),
    }
}

impl World {
    /// Transfers the agent to the next owner, who renames the agent.
    async fn transfer(&self, to: usize) {
        let old = self
            .ledger
            .read_agent_by_id(sample::agent_id(1))
            .await
            .unwrap()
            .unwrap();
        let offer = OwnershipOffer {
            agent: old.id,
            to: nth_owner(to),
            reason: OperatorReason::parse("left").unwrap(),
            by: OperatorName::parse("ann").unwrap(),
            at: at(0),
            ends_at: at(DAY),
        };
        self.ledger
            .store_ownership_offer(&offer, &sample::audit())
            .await
            .unwrap();
        let handed = self
            .ledger
            .transfer_agent(&old, &offer, at(0), &sample::audit())
            .await
            .unwrap();
        assert_eq!(handed, TransferAgentResult::Done);
        let accepted = self.ledger.read_agent_by_id(old.id).await.unwrap().unwrap();
        let renamed = Agent {
            name: format!("name {to}"),
            version: accepted.version + 1,
            ..accepted
        };
        self.ledger.put_agent(&renamed, &sample::audit()).await.unwrap();
    }

    async fn fold_rest(&self) {
        for batch in self.records() {
            self.fold(SHARD, &batch).await.unwrap();
        }
    }
}

/// An entry belongs to the agent's owner at the time of the decision, even if the payment ends later.
#[tokio::test]
async fn decisions_before_a_transfer_stay_in_the_former_owners_history() {
    let world = World::start().await;
    let folded = world.paid_at(10, "folded before", at(0)).await;
    world.fold_rest().await;
    let late = world.paid_at(20, "folded after", at(1)).await;
    assert_eq!(world.pay_at(5_000, "blocked", at(2)).await, Answer::Blocked);
    world.transfer(1).await;
    world.fold_rest().await;
    world.confirm(folded, 1, at(10)).await;
    world.release(late).await;
    world.take_back(folded).await;
    world.paid_at(30, "after", at(11)).await;
    assert_eq!(world.pay_at(6_000, "blocked after", at(12)).await, Answer::Blocked);
    world.fold_rest().await;

    let of = |name: &str, entries: &[(u64, &'static str)]| -> Vec<_> {
        let entries = entries.iter();
        entries
            .map(|(amount, state)| (*amount, *state, name.to_owned()))
            .collect()
    };
    let old = [
        (10, "authorized"),
        (20, "released"),
        (5_000, "blocked"),
        (10, "reverted"),
    ];
    assert_eq!(history(&world, &nth_owner(0)).await, of("buyer", &old));
    let new = [(30, "authorized"), (6_000, "blocked")];
    assert_eq!(history(&world, &nth_owner(1)).await, of("name 1", &new));
    let sums = async |owner: usize| -> (u64, u64, u64, u64) {
        let days = world
            .usage
            .read_daily_sums(&nth_owner(owner), Day::containing(at(0)), Day::containing(at(0)))
            .await
            .unwrap();
        let total = days[0].1.total;
        (
            total.authorized.units(),
            total.released.units(),
            total.taken_back.units(),
            total.blocked,
        )
    };
    assert_eq!(sums(0).await, (30, 20, 10, 1));
    assert_eq!(sums(1).await, (30, 0, 0, 1));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Authorize,
    Block,
    Confirm,
    Release,
    Transfer,
    Fold,
}

/// Payments, transfers and batches come in random order.
#[tokio::test]
async fn every_decision_is_in_one_owners_history_after_any_transfers() {
    use Step::{Authorize, Block, Confirm, Fold, Release, Transfer};
    const STEPS: [Step; 8] = [Authorize, Authorize, Block, Confirm, Release, Transfer, Fold, Fold];
    for seed in 0..24_u64 {
        let mut draw = Rng::from_seed(seed);
        let world = World::start().await;
        let (mut owner, mut open, mut expected) = (0, Vec::new(), BTreeMap::<usize, Vec<(u64, &'static str)>>::new());
        let mut batches: Vec<Vec<Value>> = Vec::new();
        for step in 1..=24_u32 {
            match *draw.pick(&STEPS) {
                Authorize => {
                    let id = world.paid_at(step.into(), &step.to_string(), at(step)).await;
                    open.push((id, owner, u64::from(step)));
                    expected.entry(owner).or_default().push((step.into(), "authorized"));
                }
                Block => {
                    let amount = 5_000 + u64::from(step);
                    assert_eq!(world.pay_at(amount, &step.to_string(), at(step)).await, Answer::Blocked);
                    expected.entry(owner).or_default().push((amount, "blocked"));
                }
                end @ (Confirm | Release) if !open.is_empty() => {
                    let (id, of, amount) = open.swap_remove(draw.index(open.len()));
                    let state = if let Confirm = end { "confirmed" } else { "released" };
                    match end {
                        Confirm => world.confirm(id, step.try_into().unwrap(), at(DAY)).await,
                        _ => world.release(id).await,
                    }
                    let entries = expected.get_mut(&of).unwrap().iter_mut();
                    entries
                        .filter(|entry| *entry == &(amount, "authorized"))
                        .for_each(|entry| entry.1 = state);
                }
                Confirm | Release => {}
                Transfer => {
                    owner += 1;
                    world.transfer(owner).await;
                }
                Fold => {
                    // A shard may repeat all batches from any earlier batch on.
                    let first = draw.index(batches.len() + 1);
                    batches.extend(world.records());
                    for batch in &batches[first..] {
                        world.fold(SHARD, batch).await.unwrap();
                    }
                }
            }
        }
        for batch in batches.into_iter().chain(world.records()) {
            world.fold(SHARD, &batch).await.unwrap();
        }
        for owner in 0..=owner {
            let entries = history(&world, &nth_owner(owner)).await;
            let found: Vec<_> = entries.iter().map(|(amount, state, _)| (*amount, *state)).collect();
            let expected = expected.remove(&owner).unwrap_or_default();
            assert_eq!(found, expected, "seed {seed}, owner {owner}");
            let of = |states: &[&str]| -> u64 {
                let entries = expected.iter().filter(|entry| states.contains(&entry.1));
                entries.map(|entry| entry.0).sum()
            };
            let days = world
                .usage
                .read_daily_sums(&nth_owner(owner), Day::containing(at(0)), Day::containing(at(0)))
                .await
                .unwrap();
            let total = days.first().map(|day| day.1.total).unwrap_or_default();
            let sums = (
                total.authorized.units(),
                total.confirmed.units(),
                total.released.units(),
            );
            let payments = of(&["authorized", "confirmed", "released"]);
            assert_eq!(
                sums,
                (payments, of(&["confirmed"]), of(&["released"])),
                "seed {seed}, owner {owner}"
            );
        }
    }
}

/// A record that is more than ten seconds old makes the function report the delay in a row.
#[tokio::test]
async fn a_late_batch_reports_how_far_the_history_is_complete() {
    let world = World::start().await;
    world.paid(10, "paid").await;
    let now = Timestamp::from_micros(world.clock.load(SeqCst)).unwrap();
    let now = Timestamp::from_secs(now.secs()).unwrap();
    let mut batch = world.records().concat();
    let of_age = |batch: &mut Vec<Value>, ages: [u32; 2]| {
        for (index, record) in batch.iter_mut().enumerate() {
            let age = ages[usize::from(index > 0)];
            record["dynamodb"]["ApproximateCreationDateTime"] = json!(now.before(sample::secs(age)).secs());
        }
    };
    assert!(batch.len() > 1);
    of_age(&mut batch, [10, 3]);
    world.fold(SHARD, &batch).await.unwrap();
    assert_eq!(world.rows("LAG").await, BTreeMap::new());
    assert_eq!(world.usage.read_history_completeness_time(now).await.unwrap(), None);

    of_age(&mut batch, [11, 3]);
    world.fold(SHARD, &batch).await.unwrap();
    let since = now.before(sample::secs(11));
    for (after, expected) in [(0, Some(since)), (119, Some(since)), (121, None)] {
        let complete = world
            .usage
            .read_history_completeness_time(now.after(sample::secs(after)))
            .await
            .unwrap();
        assert_eq!(complete, expected, "{after}");
    }
    let rows = world.rows("LAG").await;
    let ttl = |row: &BTreeMap<String, AttributeValue>| row["ttl"].as_n().unwrap().clone();
    let expected = now.after(sample::secs(120)).secs().to_string();
    assert_eq!(rows.values().map(ttl).collect::<Vec<_>>(), [expected]);
    // The delay is reported before the aggregation, which may fail.
    world.proxies[0].follow(|step| match step.moment {
        Moment::Arrived if step.call.starts_with("BatchGetItem") => {
            Fate::Answer(400, json!({"__type": "AccessDenied"}))
        }
        Moment::Arrived | Moment::CarriedOut => Fate::PassOn,
    });
    of_age(&mut batch, [600, 3]);
    assert!(world.fold(SHARD, &batch).await.is_none());
    let complete = world.usage.read_history_completeness_time(now).await.unwrap();
    assert_eq!(complete, Some(now.before(sample::secs(600))));
}

/// A list without the unreadable entry would be incomplete, so the list fails.
#[tokio::test]
async fn an_unreadable_history_entry_fails_the_list() {
    let world = World::start().await;
    world.live().await;
    world.folded().await;
    let put = world.emulator.client.put_item().table_name(USAGE);
    let text = |text: String| AttributeValue::S(text);
    let place = SettlementId::new_at(at(100), [0; 8]).to_string();
    let put = put.item("pk", text(format!("J#{}", owner()))).item("sk", text(place));
    put.send().await.unwrap();
    let slice = PageRequest { before: None, limit: 9 };
    let none = None::<fn(&HistoryEntry) -> Filter>;
    let page = world
        .usage
        .read_history_page(&owner(), HistoryPart::All, slice, none)
        .await;
    assert!(page.is_err(), "{page:?}");
}
