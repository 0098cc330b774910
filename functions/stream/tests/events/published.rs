//! Tests that each event is published under one id, and that due events are published without a write.

use crate::world::{FOLDED, SHARD, TIME, World, agent, at, owner};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_api::Clock;
use purser_domain::{
    Agent, AgentStatus, ApprovalId, ApprovalResolution, Day, Event, EventKind, FreezeChange, FreezeTarget, NextPricing,
    OperatorFreeze, OperatorName, OperatorReason, Timestamp, UserId,
};
use purser_store::{ApprovalDecision, ChangeFreezeResult, HistoryPart, Reminder, ReminderKind, ResolveResult};
use purser_testkit::{
    CATALOG, DECISIONS, Fate, Fault, LEDGER, Moment, USAGE, authorize::Answer, invariants::scan, sample,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;

/// The changes are also aggregated into the decision history.
#[tokio::test]
async fn each_change_event_is_published_once_without_secrets() {
    let world = World::start().await;
    world.live().await;
    assert_eq!(world.deliver().await, 0);
    world.assert_told_and_folded().await;
    assert!(world.told().iter().all(|event| event.owner() == Some(&owner())));
    let text = format!("{:?}", world.bus.taken());
    // The sample key's digest in Base64 and in hexadecimal, and texts that a user wrote.
    for secret in ["CQkJCQkJ", "09090909", "no body of mine", "lab.example"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let reasons = &world.days().await[&Day::containing(at(0))].reasons;
    let expected = [("amount_exceeds_per_call_limit", 1), ("approval_required", 1)];
    assert_eq!(
        *reasons,
        expected.map(|(error, count)| (error.to_owned(), count)).into()
    );
}

/// Batches are doubled, reordered and replayed.
#[tokio::test]
async fn repeated_stream_batches_publish_the_same_event_ids() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    for batch in &batches {
        world.fold(SHARD, batch).await.unwrap();
    }
    // The last table's batches come first, and each batch is doubled. Then every record is repeated singly.
    for batch in batches.iter().rev() {
        let doubled: Vec<&Value> = batch.iter().chain(batch).collect();
        world.call(json!({"Records": doubled})).await.unwrap();
    }
    for record in batches.iter().flatten().rev() {
        world.call(json!({"Records": [record]})).await.unwrap();
    }
    world.assert_told_and_folded().await;
}

/// The bus is unavailable, rejects three entries, or loses responses.
#[tokio::test]
async fn all_events_are_published_after_bus_failures() {
    for fault in [Fault::Down, Fault::Refuses(3), Fault::LosesAnswers] {
        let world = World::start().await;
        world.live().await;
        world.bus.set_fault(fault);
        let batches = world.records();
        let mut failed = 0;
        for batch in &batches {
            let answer = world.call(json!({"Records": batch})).await.unwrap();
            failed += answer["batchItemFailures"].as_array().unwrap().len();
        }
        assert!(failed > 0, "{fault:?}");
        if fault == Fault::Down {
            assert_eq!(world.bus.taken(), []);
        }
        world.bus.set_fault(Fault::None);
        for batch in &batches {
            world.pass(batch).await.unwrap();
        }
        world.assert_told_and_folded().await;
    }
}

#[tokio::test]
async fn a_retry_starts_with_the_event_that_the_bus_rejected() {
    let world = World::start().await;
    world.live().await;
    world.bus.set_fault(Fault::Refuses(3));
    for batch in world.records() {
        world.fold(SHARD, &batch).await.unwrap();
        let mut rest = batch;
        // Each call publishes two more entries and repeats no entry.
        loop {
            let answer = world.call(json!({"Records": rest})).await.unwrap();
            let Some(first) = answer["batchItemFailures"][0]["itemIdentifier"].as_str() else {
                break;
            };
            let place = |record: &Value| record["dynamodb"]["SequenceNumber"].as_str() == Some(first);
            let index = rest.iter().position(place).unwrap();
            assert!(index > 0, "it goes on");
            rest.drain(..index);
        }
    }
    world.assert_told_and_folded().await;
}

/// While writes fail, changes are neither published nor aggregated.
#[tokio::test]
async fn a_database_failure_delays_events_and_history() {
    let world = World::start().await;
    world.live().await;
    let batches = world.records();
    world.proxies[0].follow(|step| match step.moment {
        Moment::Arrived if step.call.starts_with("PutItem") => Fate::Answer(400, json!({"__type": "AccessDenied"})),
        Moment::Arrived | Moment::CarriedOut => Fate::PassOn,
    });
    let settlements = batches.iter().max_by_key(|batch| batch.len()).unwrap();
    assert!(world.call(json!({"Records": settlements})).await.is_none());
    assert_eq!(world.bus.taken(), [], "an approval's end is remembered first");
    assert!(world.fold(SHARD, settlements).await.is_none());
    world.proxies[0].behave();
    assert_eq!(world.journal(HistoryPart::All).await, []);
    assert_eq!(world.days().await, BTreeMap::new());
    for batch in &batches {
        world.pass(batch).await.unwrap();
    }
    world.assert_told_and_folded().await;
}

/// All other rows are published and aggregated.
#[tokio::test]
async fn an_unreadable_table_row_is_quarantined_and_other_rows_are_published() {
    let world = World::start().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    for (table, pk) in [
        (LEDGER, format!("S#{}", sample::agent_id(1))),
        (DECISIONS, format!("A#{}", sample::agent_id(1))),
    ] {
        let put = world.emulator.client.put_item().table_name(table);
        put.item("pk", text(&pk))
            .item("sk", text("poison"))
            .send()
            .await
            .unwrap();
    }
    let put = world.emulator.client.put_item().table_name(CATALOG);
    put.item("pk", text("SVC#poison")).send().await.unwrap();
    world.live().await;
    assert_eq!(world.deliver().await, 0);
    let poisoned = json!({"Records": [{"eventSourceARN": "arn:aws:sqs:us-east-1:1:queue"}]});
    assert_eq!(world.call(poisoned).await.unwrap(), json!({"batchItemFailures": []}));
    let aside = scan(&world.emulator.client, USAGE, None).await;
    let aside = aside.iter().filter(|item| item["pk"] == text("ASIDE"));
    let keys: BTreeSet<&str> = aside.map(|item| item["key"].as_s().unwrap().as_str()).collect();
    let agent = sample::agent_id(1);
    let (settlement, decision) = (format!("S#{agent} poison"), format!("A#{agent} poison"));
    assert_eq!(keys, ["", &settlement, &decision, "SVC#poison"].into());
    // The unreadable rows are deleted, so that the ledger can be compared.
    for (table, pk) in [(LEDGER, format!("S#{agent}")), (DECISIONS, format!("A#{agent}"))] {
        let delete = world.emulator.client.delete_item().table_name(table);
        delete
            .key("pk", text(&pk))
            .key("sk", text("poison"))
            .send()
            .await
            .unwrap();
    }
    world.assert_told_and_folded().await;
}

/// Withdrawing an unused approval is a withdrawal event. Rejecting a pending request is a decision event.
#[tokio::test]
async fn withdrawing_an_unused_approval_publishes_its_own_event() {
    let world = World::start().await;
    let (Answer::Waits(withdrawn), Answer::Waits(rejected)) =
        (world.pay(150, "withdrawn").await, world.pay(160, "rejected").await)
    else {
        panic!()
    };
    let ledger = &world.ledger;
    let ruling = |secs| ApprovalResolution {
        at: at(secs),
        by: owner().to_string(),
        note: None,
    };
    for (id, decision) in [
        (withdrawn, ApprovalDecision::Approve),
        (rejected, ApprovalDecision::Reject),
    ] {
        let audit = sample::audit();
        let decided = ledger.resolve_approval(id, decision, &ruling(40), &audit).await;
        assert!(matches!(decided.unwrap(), ResolveResult::Done(_)));
    }
    let audit = sample::audit();
    let taken_back = ledger.withdraw_approval(withdrawn, &ruling(50), &audit).await;
    assert!(matches!(taken_back.unwrap(), ResolveResult::Done(_)));
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let of = |kind| -> Vec<_> {
        let told = told.iter().filter(|event| event.kind() == kind);
        told.map(|event| (event.time(), event.data().find_text("approval_id").map(str::to_owned)))
            .collect()
    };
    assert_eq!(of(EventKind::ApprovalDecided).len(), 2);
    assert_eq!(
        of(EventKind::ApprovalWithdrawn),
        [(at(50), Some(withdrawn.to_string()))]
    );
}

/// The expiry is published only when no payment can use the approval any more.
#[tokio::test]
async fn only_unused_approvals_publish_an_expiry_event() {
    let world = World::start().await;
    world.live().await;
    let Answer::Waits(unused) = world.pay(160, "unused").await else {
        panic!()
    };
    assert_eq!(world.deliver().await, 0);
    let end = world
        .ledger
        .read_approval_by_id(unused)
        .await
        .unwrap()
        .unwrap()
        .expires_at;
    let expired = || -> Vec<Event> {
        let told = world.told().into_iter();
        told.filter(|event| event.kind() == EventKind::ApprovalExpired)
            .collect()
    };
    // A payment may still be written at the time of the expiry, so the event is published 120 seconds later.
    for (after, count) in [(0, 0), (119, 0), (120, 1), (121, 1)] {
        world.clock.store(end.after(sample::secs(after)).micros(), SeqCst);
        world
            .bus
            .set_fault(if after == 120 { Fault::LosesAnswers } else { Fault::None });
        let swept = world.events.handle_event(&json!({"detail": "{}"}), TIME).await;
        assert_eq!(swept.is_err(), after == 120, "{after}");
        assert_eq!(expired().len(), count, "{after}");
    }
    let told = expired();
    assert_eq!(
        told[0].data().find_text("approval_id"),
        Some(unused.to_string().as_str())
    );
    assert_eq!(told[0].data().find_text("was"), Some("pending"));
    assert_eq!(told[0].time(), end);
    let before = world.bus.taken().len();
    world.events.publish_due_events(TIME).await.unwrap();
    assert_eq!(world.bus.taken().len(), before, "it is looked at once");
}

/// The unreadable reminders fill more than a page.
#[tokio::test]
async fn an_unreadable_reminder_does_not_block_other_reminders() {
    let world = World::start().await;
    world.live().await;
    let Answer::Waits(unused) = world.pay(160, "unused").await else {
        panic!()
    };
    assert_eq!(world.deliver().await, 0);
    let text = |text: String| AttributeValue::S(text);
    for n in 0..60_u32 {
        let approval = ApprovalId::from_request_prefix(&"7".repeat(24), n).unwrap();
        let reminder = Reminder {
            of: ReminderKind::Expiry(approval),
            at: at(n),
        };
        world.usage.store_reminder(reminder).await.unwrap();
        let (pk, sk) = (format!("AP#{}", approval.request_prefix()), format!("{n:010}"));
        let put = world.emulator.client.put_item().table_name(LEDGER);
        put.item("pk", text(pk)).item("sk", text(sk)).send().await.unwrap();
        let put = world.emulator.client.put_item().table_name(USAGE);
        let put = put.item("pk", text("REMINDERS".to_owned()));
        put.item("sk", text(format!("{n:016}#poison"))).send().await.unwrap();
    }
    let end = world
        .ledger
        .read_approval_by_id(unused)
        .await
        .unwrap()
        .unwrap()
        .expires_at;
    world.clock.store(end.after(sample::secs(120)).micros(), SeqCst);
    let expired = || {
        let told = world.told().into_iter();
        told.filter(|event| event.kind() == EventKind::ApprovalExpired).count()
    };
    for _ in 0..2 {
        assert!(
            world.events.publish_due_events(TIME).await.is_err(),
            "it is not passed over in silence"
        );
        assert_eq!(expired(), 1);
    }
}

/// The previous owner gets only the event that the ownership was transferred.
#[tokio::test]
async fn events_after_an_ownership_transfer_reach_the_new_owner() {
    let world = World::start().await;
    let before = world.paid(10, "before").await;
    assert_eq!(world.deliver().await, 0);
    let new_owner = UserId::derive("https://issuer.example", "bob");
    let agent = Agent {
        owner: new_owner.to_string(),
        ..agent(2, AgentStatus::Active)
    };
    world.ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    world.confirm(before, 1, at(10)).await;
    world.paid(20, "after").await;
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let of = |kind: EventKind| -> Vec<&Event> { told.iter().filter(|event| event.kind() == kind).collect() };
    let owners = |kind| -> Vec<&UserId> { of(kind).into_iter().filter_map(Event::owner).collect() };
    assert_eq!(owners(EventKind::PaymentAuthorized), [&owner(), &new_owner]);
    assert_eq!(owners(EventKind::PaymentConfirmed), [&new_owner]);
    assert_eq!(owners(EventKind::AgentAccepted), [&new_owner]);
    assert_eq!(owners(EventKind::AgentHandedOver), [&owner()]);
    let handed_over = of(EventKind::AgentHandedOver)[0].to_json().to_string();
    assert!(!handed_over.contains(new_owner.as_str()));
}

/// A freeze of the deployment has no owner, and the operator's reason is not published.
#[tokio::test]
async fn freeze_events_reach_the_affected_owner() {
    let world = World::start().await;
    for (version, status) in [(2, AgentStatus::Frozen), (3, AgentStatus::Active)] {
        let agent = agent(version, status);
        world.ledger.put_agent(&agent, &sample::audit()).await.unwrap();
    }
    let targets = [
        FreezeTarget::Agent(sample::agent_id(1)),
        FreezeTarget::Owner(owner()),
        FreezeTarget::Deployment,
    ];
    for target in targets {
        let freeze = OperatorFreeze {
            target: target.clone(),
            reason: OperatorReason::parse("a reason of operators").unwrap(),
            by: OperatorName::parse("op").unwrap(),
            at: at(0),
            end_asked_by: None,
        };
        // Writing the same freeze again publishes no event.
        let (by, stored) = (freeze.by.clone(), Some(freeze.clone()));
        for change in [
            FreezeChange::begin_freeze(None, freeze.clone()),
            FreezeChange::begin_freeze(stored.clone(), freeze),
            FreezeChange::end_freeze(target, stored, &by, false),
        ] {
            let changed = world.ledger.change_freeze(&change.unwrap(), &sample::audit()).await;
            assert_eq!(changed.unwrap(), ChangeFreezeResult::Stored);
        }
    }
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let freezes = told.iter().filter(|event| event.kind().name().contains("frozen"));
    let by = |event: &Event| event.data().find_text("by").map(str::to_owned);
    let freezes: Vec<_> = freezes
        .map(|event| (event.kind(), by(event), event.owner().is_some()))
        .collect();
    let by = |who: &str| Some(who.to_owned());
    let mut expected = vec![
        (EventKind::AgentFrozen, by("owner"), true),
        (EventKind::AgentUnfrozen, by("owner"), true),
        (EventKind::AgentFrozen, by("operator"), true),
        (EventKind::AgentUnfrozen, by("operator"), true),
        (EventKind::OwnerFrozen, None, true),
        (EventKind::OwnerUnfrozen, None, true),
        (EventKind::DeploymentFrozen, None, false),
        (EventKind::DeploymentUnfrozen, None, false),
    ];
    expected.sort();
    let mut freezes = freezes;
    freezes.sort();
    assert_eq!(freezes, expected);
    assert!(!format!("{told:?}").contains("a reason of operators"));
}

/// A changed name publishes no event. The end of curation publishes that the service was closed.
#[tokio::test]
async fn catalog_updates_publish_opened_and_closed_services_new_payees_and_prices() {
    let world = World::start().await;
    let catalog = world.emulator.catalog();
    let mut service = sample::service(sample::service_id(2), "shop");
    let put = async |service: &purser_domain::Service| {
        catalog.put_service(service, &sample::audit()).await.unwrap();
    };
    put(&service).await;
    let edit = |service: &mut purser_domain::Service, change: &dyn Fn(&mut purser_domain::Operation)| {
        service.version += 1;
        service.operations.iter_mut().for_each(change);
    };
    let pay_to = |byte: u8| {
        move |operation: &mut purser_domain::Operation| {
            let payment = operation.payment.as_mut().unwrap();
            payment.pay_to = sample::wallet(byte);
        }
    };
    edit(&mut service, &pay_to(0xe1));
    put(&service).await;
    edit(&mut service, &|operation| operation.max_price = Some(sample::units(7)));
    put(&service).await;
    service.version += 1;
    service.name = "another name".to_owned();
    put(&service).await;
    service.version += 1;
    service.curated = false;
    put(&service).await;
    assert_eq!(world.deliver().await, 0);
    let told = world.told();
    let of_services: Vec<EventKind> = told
        .iter()
        .filter(|event| event.data().find_text("slug") == Some("shop"))
        .map(Event::kind)
        .collect();
    assert_eq!(
        of_services,
        [
            EventKind::ServiceOpened,
            EventKind::ServicePayeeChanged,
            EventKind::ServicePriceChanged,
            EventKind::ServiceClosed,
        ]
    );
    assert!(
        told.iter()
            .filter(|event| event.data().find_text("slug").is_some())
            .all(|event| event.owner().is_none())
    );
}

/// Returns a service with an operation that pays a different payee from this time on.
fn delayed(slug: &str, n: u128, from: Timestamp) -> purser_domain::Service {
    let mut service = sample::service(sample::service_id(n), slug);
    for operation in &mut service.operations {
        let mut payment = operation.payment.clone().unwrap();
        payment.pay_to = sample::wallet(0xe1);
        operation.next = Some(NextPricing {
            price_model: operation.price_model.clone(),
            max_price: operation.max_price,
            payment,
            from,
            by: OperatorName::parse("op").unwrap(),
        });
    }
    service
}

/// A withdrawn change is not published, and a later update does not publish the event again.
#[tokio::test]
async fn delayed_changes_are_published_when_they_take_effect() {
    let world = World::start().await;
    let catalog = world.emulator.catalog();
    let put = async |service: &purser_domain::Service| {
        catalog.put_service(service, &sample::audit()).await.unwrap();
    };
    // The embedded database stamps stream records with this machine's time, so the test uses the system clock.
    let now = Clock::system().now();
    let from = now.after(sample::secs(3_600));
    let next_of = |service: &purser_domain::Service| purser_domain::Service {
        version: service.version + 1,
        ..service.clone()
    };
    let shops = [("stays", 2), ("withdrawn", 3), ("edited", 4)].map(|(slug, n)| {
        let with = delayed(slug, n, from);
        let mut without = with.clone();
        without
            .operations
            .iter_mut()
            .for_each(|operation| operation.next = None);
        (without, with)
    });
    for (without, with) in &shops {
        put(without).await;
        put(&next_of(with)).await;
    }
    let withdrawn = next_of(&next_of(&shops[1].0));
    put(&withdrawn).await;
    assert_eq!(world.deliver().await, 0);
    let told = |kind: EventKind| -> Vec<Event> {
        let mut told = world.told();
        told.retain(|event| event.kind() == kind);
        told
    };
    assert_eq!(told(EventKind::ServiceChangeDelayed).len(), 3);
    assert_eq!(told(EventKind::ServiceChangeWithdrawn).len(), 1);
    for (after, count) in [(0, 0), (119, 0), (120, 2), (121, 2)] {
        world.clock.store(from.after(sample::secs(after)).micros(), SeqCst);
        world
            .bus
            .set_fault(if after == 120 { Fault::LosesAnswers } else { Fault::None });
        let swept = world.events.handle_event(&json!({"detail": "{}"}), TIME).await;
        assert_eq!(swept.is_err(), after == 120, "{after}");
        assert_eq!(told(EventKind::ServicePayeeChanged).len(), count, "{after}");
    }
    // An update of the service after the time of the change publishes the same event.
    let mut later = next_of(&next_of(&shops[2].1)).at_time(from);
    later.name = "another name".to_owned();
    put(&later).await;
    let mut batch = world.records().concat();
    for record in &mut batch {
        record["dynamodb"]["ApproximateCreationDateTime"] = json!(from.after(sample::secs(300)).secs());
    }
    let before = world.bus.taken().len();
    world.call(json!({"Records": batch})).await.unwrap();
    assert_eq!(world.bus.taken().len(), before + 1);
    let changed = told(EventKind::ServicePayeeChanged);
    let slugs: BTreeSet<_> = changed
        .iter()
        .filter_map(|event| event.data().find_text("slug"))
        .collect();
    assert_eq!((changed.len(), slugs), (2, ["edited", "stays"].into()));
    for event in &changed {
        assert_eq!(event.time(), from);
        let pay_to = event.data().find_text("pay_to").unwrap();
        assert_eq!(pay_to, sample::wallet(0xe1).to_string());
    }
}

/// Tools call the built function with `events/history/ledger-stream.json`. This test creates the agent of that batch.
#[tokio::test]
async fn a_recorded_stream_batch_publishes_the_recorded_events() {
    let recorded = include_str!("../../../../events/history/ledger-stream.json");
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let world = World::start().await;
    let published = json!({"Records": recorded["Records"]});
    assert_eq!(world.call(recorded).await.unwrap().to_string(), FOLDED);
    assert_eq!(world.call(published).await.unwrap(), json!({"batchItemFailures": []}));
    let kinds = [(EventKind::PaymentAuthorized, 1), (EventKind::PaymentConfirmed, 1)];
    assert_eq!(world.kinds(), kinds.map(|(kind, count)| (kind.name(), count)).into());
    assert_eq!(world.sums().await.confirmed, sample::units(10));
}
