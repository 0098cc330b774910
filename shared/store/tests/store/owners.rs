//! Tests the owner's view of agents: lists, the decision log, the use of the caps, and the last use of keys.

use crate::{ledger_with, request};
use purser_domain::{
    Agent, AgentId, Amount, ApprovalId, FollowedTemplate, KeyId, KmsKeyId, OperatorName, OperatorReason,
    OwnershipOffer, TemplateName, Timestamp, UserId, WindowPeriod, WindowScope,
};
use purser_store::{
    AgentCursor, AgentOrder, ApprovalCursor, ApprovalDecision, ApprovalList, ResolveResult, SpareKey,
    TransferAgentResult, UpdateResult,
};
use purser_testkit::{
    Emulator,
    authorize::{Answer, authorize},
    sample,
};
use std::{collections::BTreeSet, time};

fn place(agent: &Agent) -> AgentCursor {
    AgentCursor {
        created_at: agent.created_at,
        id: agent.id,
    }
}

fn at(seconds: u32) -> Timestamp {
    sample::start().after(sample::secs(seconds))
}

#[tokio::test]
async fn agents_are_listed_by_owner_in_creation_order() {
    let ledger = Emulator::start().await.ledger();
    let mut expected = Vec::new();
    for n in (0..130_u32).rev() {
        let agent = Agent {
            created_at: at(n),
            ..sample::agent(u128::from(1_000 - n), Vec::new())
        };
        ledger.create_agent(&agent, &sample::audit()).await.unwrap();
        expected.push(agent);
    }
    expected.reverse();
    let foreign = Agent {
        owner: "owner2".to_owned(),
        ..sample::agent(5_000, Vec::new())
    };
    ledger.create_agent(&foreign, &sample::audit()).await.unwrap();
    assert_eq!(ledger.read_owners_agents(sample::OWNER).await.unwrap(), expected);
    assert_eq!(ledger.read_owners_agents("owner2").await.unwrap(), [foreign]);
    // A page starts at the position in the cursor, and includes this position.
    let places: Vec<AgentCursor> = expected.iter().map(place).collect();
    let list = async |from, most| {
        let oldest_first = AgentOrder::OldestFirst;
        ledger
            .read_agent_cursors(sample::OWNER, oldest_first, from, most)
            .await
            .unwrap()
    };
    assert_eq!(list(None, 60).await, places[..60]);
    assert_eq!(list(Some(places[60]), 60).await, places[60..120]);
    assert_eq!(list(Some(places[120]), 60).await, places[120..]);
    assert_eq!(ledger.read_owners_agents("nobody").await.unwrap(), []);
}

#[tokio::test]
async fn approvals_are_listed_newest_first_with_current_state() {
    let (_emulator, ledger) = ledger_with(1_000, 10).await;
    let mut ids: Vec<ApprovalId> = Vec::new();
    for n in 0..5 {
        let asked = request(50 + u64::from(n), &n.to_string());
        let Answer::Waits(id) = authorize(&ledger, &asked, at(n)).await.unwrap() else {
            panic!()
        };
        ids.insert(0, id);
    }
    let list = async |before, limit| -> Vec<ApprovalId> {
        let approvals = ledger
            .read_owners_approvals(sample::OWNER, ApprovalList::All, before, limit)
            .await
            .unwrap();
        approvals.iter().map(|approval| approval.id).collect()
    };
    assert_eq!(list(None, 100).await, ids);
    assert_eq!(list(None, 2).await, ids[..2]);
    let second = ledger.read_approval_by_id(ids[1]).await.unwrap().unwrap();
    assert_eq!(list(Some(ApprovalCursor::new(&second)), 2).await, ids[2..4]);
    let oldest = ledger.read_approval_by_id(ids[4]).await.unwrap().unwrap();
    assert_eq!(list(Some(ApprovalCursor::new(&oldest)), 2).await, []);
    assert!(
        ledger
            .read_owners_approvals("nobody", ApprovalList::All, None, 9)
            .await
            .unwrap()
            .is_empty()
    );

    let ruling = purser_domain::ApprovalResolution {
        note: Some("for the report".to_owned()),
        ..sample::ruling(at(9))
    };
    ledger
        .resolve_approval(ids[0], ApprovalDecision::Approve, &ruling, &sample::audit())
        .await
        .unwrap();
    let newest = ledger
        .read_owners_approvals(sample::OWNER, ApprovalList::All, None, 1)
        .await
        .unwrap();
    assert_eq!(newest[0].users_decision(), Some(&ruling));
}

#[tokio::test]
async fn concurrent_approval_decisions_have_one_winner() {
    let (_emulator, ledger) = ledger_with(1_000, 10).await;
    let Answer::Waits(id) = authorize(&ledger, &request(50, "k"), at(0)).await.unwrap() else {
        panic!()
    };
    let (yes, no) = (
        sample::ruling(at(1)),
        purser_domain::ApprovalResolution {
            note: Some("no".to_owned()),
            ..sample::ruling(at(1))
        },
    );
    let rows = [sample::audit(), sample::audit()];
    let (one, other) = tokio::join!(
        ledger.resolve_approval(id, ApprovalDecision::Approve, &yes, &rows[0]),
        ledger.resolve_approval(id, ApprovalDecision::Reject, &no, &rows[1])
    );
    let won = |resolved: &ResolveResult| matches!(resolved, ResolveResult::Done(_));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(won(&one) != won(&other), "{one:?} {other:?}");
    let (verdict, ruling) = if won(&one) {
        (ApprovalDecision::Approve, &yes)
    } else {
        (ApprovalDecision::Reject, &no)
    };
    assert!(won(&ledger
        .resolve_approval(id, verdict, ruling, &sample::audit())
        .await
        .unwrap()));
    let later = sample::ruling(at(2));
    assert!(!won(&ledger
        .resolve_approval(id, verdict, &later, &sample::audit())
        .await
        .unwrap()));
}

#[tokio::test]
async fn decisions_are_listed_newest_first_page_by_page() {
    let (_emulator, ledger) = ledger_with(100, 60).await;
    for (n, amount) in [(0, 10), (1, 101), (2, 70), (3, 20), (4, 90)] {
        authorize(&ledger, &request(amount, &n.to_string()), at(n))
            .await
            .unwrap();
    }
    let agent = sample::agent_id(1);
    let log = ledger.read_decisions(agent, None, 100).await.unwrap();
    let results: Vec<&str> = log.iter().map(|decision| decision.result().name()).collect();
    assert_eq!(results, ["block", "allow", "escalate", "block", "allow"]);
    let mut paged = Vec::new();
    let mut before = None;
    loop {
        let page = ledger.read_decisions(agent, before, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.log_position());
        assert!(page.len() <= 2);
        paged.extend(page);
    }
    assert_eq!(paged, log);
    assert!(
        ledger
            .read_decisions(sample::agent_id(2), None, 5)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn window_usage_is_exact_despite_expired_entries() {
    let (_emulator, ledger) = ledger_with(1_000, 1_000).await;
    for n in 0..30 {
        let answer = authorize(&ledger, &request(10, &n.to_string()), at(n)).await.unwrap();
        assert!(matches!(answer, Answer::Allowed(_)));
    }
    let agent = sample::agent_id(1);
    let scope = |n| {
        (
            WindowScope::Day {
                agent,
                service: sample::service_id(n),
            },
            WindowPeriod::DAY,
        )
    };
    let scopes: Vec<_> = (1..=130).map(scope).collect();
    let live = async |at: Timestamp| {
        let windows = ledger.read_nonzero_windows(&scopes, at).await.unwrap();
        let [window] = &windows[..] else { panic!("{windows:?}") };
        assert_eq!(window.scope, scopes[0].0);
        window.counted_amount_at(at).units()
    };
    assert_eq!(live(at(30)).await, 300);
    // Twenty of thirty payments have left the window, and no payment has been evicted.
    assert_eq!(live(at(86_400 + 19)).await, 100);
    assert_eq!(live(at(86_400 + 29)).await, Amount::ZERO.units());
}

#[tokio::test]
async fn each_wallet_index_is_assigned_once() {
    let ledger = Emulator::start().await.ledger();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let ledger = ledger.clone();
        asking.spawn(async move { ledger.assign_wallet_index().await.unwrap() });
    }
    let numbers: BTreeSet<u32> = asking.join_all().await.into_iter().collect();
    assert_eq!(numbers, (0..32).collect());
}

#[tokio::test]
async fn spare_keys_are_taken_once_oldest_first() {
    let ledger = Emulator::start().await.ledger();
    assert_eq!(ledger.take_spare_key().await.unwrap(), None);
    let spare = |number: u128| SpareKey {
        key: KmsKeyId::parse(&uuid::Uuid::from_u128(number).to_string()).unwrap(),
        agent: AgentId::from_uuid(uuid::Uuid::from_u128(number)),
    };
    for number in 1..=8 {
        ledger.add_spare_key(spare(number)).await.unwrap();
    }
    assert_eq!(ledger.take_spare_key().await.unwrap(), Some(spare(1)));
    let mut taking = tokio::task::JoinSet::new();
    for _ in 0..9 {
        let ledger = ledger.clone();
        taking.spawn(async move { ledger.take_spare_key().await.unwrap() });
    }
    let mut taken: Vec<_> = taking.join_all().await.into_iter().flatten().collect();
    taken.sort_by_key(|spare| spare.agent);
    assert_eq!(taken, (2..=8).map(spare).collect::<Vec<_>>());
    // The counter of wallet indexes is in a separate row, so it still starts at 0.
    assert_eq!(ledger.assign_wallet_index().await.unwrap(), 0);
}

#[tokio::test]
async fn agent_key_use_is_recorded_to_the_minute() {
    let emulator = Emulator::start().await;
    let agent = sample::agent_id(1);
    let (used, other) = (KeyId(1), KeyId(2));
    let seen = async |expected: Timestamp| {
        for _ in 0..200 {
            let last = emulator.key_uses().read_last_uses(agent, &[used, other]).await.unwrap();
            assert_eq!(last.get(&other), None);
            if last.get(&used) == Some(&expected) {
                return true;
            }
            tokio::time::sleep(time::Duration::from_millis(10)).await;
        }
        false
    };
    let environment = emulator.key_uses();
    environment.record_use(agent, used, at(0));
    assert!(seen(at(0)).await);
    environment.record_use(agent, used, at(59));
    environment.record_use(agent, used, at(60));
    assert!(seen(at(60)).await);
    // Another instance, whose clock is behind, does not lower the recorded time.
    emulator.key_uses().record_use(agent, used, at(30));
    tokio::time::sleep(time::Duration::from_millis(100)).await;
    assert!(seen(at(60)).await);
}

/// First only the transaction runs, as if the move of the approvals had been interrupted.
#[tokio::test]
async fn open_approvals_move_to_the_agents_new_owner() {
    let (_emulator, ledger) = ledger_with(1_000, 10).await;
    let Answer::Waits(id) = authorize(&ledger, &request(50, "k"), at(0)).await.unwrap() else {
        panic!()
    };
    let agent = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap().unwrap();
    let followed = FollowedTemplate {
        started_versions: vec![3, 4],
        ..FollowedTemplate::fully_applied(TemplateName::parse("research").unwrap(), 2)
    };
    let agent = Agent {
        template: Some(followed),
        version: agent.version + 1,
        ..agent
    };
    assert_eq!(
        ledger.put_agent(&agent, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    let offer = OwnershipOffer {
        agent: agent.id,
        to: UserId::derive("https://issuer.example", "new"),
        reason: OperatorReason::parse("left").unwrap(),
        by: OperatorName::parse("ann").unwrap(),
        at: at(0),
        ends_at: at(9),
    };
    assert_eq!(
        ledger
            .transfer_agent(&agent, &offer, at(2), &sample::audit())
            .await
            .unwrap(),
        TransferAgentResult::NoOffer
    );
    ledger.store_ownership_offer(&offer, &sample::audit()).await.unwrap();
    let later = OwnershipOffer {
        at: at(1),
        ..offer.clone()
    };
    assert_eq!(
        ledger
            .transfer_agent(&agent, &later, at(2), &sample::audit())
            .await
            .unwrap(),
        TransferAgentResult::NoOffer
    );
    let listed = ledger.read_offers_to_user(&offer.to).await.unwrap();
    assert_eq!(listed, [(offer.clone(), agent.clone())]);
    assert_eq!(
        ledger
            .transfer_agent(&agent, &offer, at(2), &sample::audit())
            .await
            .unwrap(),
        TransferAgentResult::Done
    );
    let handed = ledger.read_agent_by_id(agent.id).await.unwrap().unwrap();
    assert_eq!(
        (handed.owner.as_str(), handed.version, handed.template.clone()),
        (offer.to.as_str(), agent.version + 1, None)
    );
    assert_eq!(ledger.read_ownership_offer(agent.id).await.unwrap(), None);
    let stale = Agent {
        version: agent.version + 1,
        ..agent.clone()
    };
    assert_eq!(
        ledger.put_agent(&stale, &sample::audit()).await.unwrap(),
        UpdateResult::Conflict
    );

    let asked = ledger
        .read_owners_approvals(sample::OWNER, ApprovalList::All, None, 9)
        .await
        .unwrap();
    assert_eq!(asked.len(), 1);
    for _ in 0..2 {
        ledger.move_open_approvals_to_owner(&handed, at(2)).await.unwrap();
    }
    assert!(
        ledger
            .read_owners_approvals(sample::OWNER, ApprovalList::All, None, 9)
            .await
            .unwrap()
            .is_empty()
    );
    // The former owner's request had read the agent before the ownership transfer. (Found by `tests/model`.)
    let approval = ledger.read_approval_by_id(id).await.unwrap().unwrap();
    ledger
        .move_approval_to_owner(&approval, sample::OWNER, at(2))
        .await
        .unwrap();
    assert_eq!(
        ledger.read_approval_by_id(id).await.unwrap().unwrap().owner,
        handed.owner
    );
    let late = sample::ruling(at(1));
    let row = sample::audit();
    let late = ledger.resolve_approval(id, ApprovalDecision::Approve, &late, &row);
    assert_eq!(late.await.unwrap(), ResolveResult::NotFound);
    let ruling = purser_domain::ApprovalResolution {
        by: handed.owner.clone(),
        ..sample::ruling(at(1))
    };
    let decided = ledger
        .resolve_approval(id, ApprovalDecision::Approve, &ruling, &sample::audit())
        .await
        .unwrap();
    assert!(matches!(decided, ResolveResult::Done(_)), "{decided:?}");
}
