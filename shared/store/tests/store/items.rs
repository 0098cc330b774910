//! Tests that stored items read back equal, and stay small.

use crate::{assert_sound, ledger_with, request};
use purser_domain::{
    AgentKey, AgentName, AgentStatus, Amount, Check, CheckName, CheckOutcome, Fingerprint, KeyCredential, KeyId,
    KeyScope, LabelKey, LabelValue, Labels, LoggedDecision, OperationSlug, Permission, Purpose, SecretDigest,
    SettlementState, SourceNetwork, Timestamp,
};
use purser_store::{Backoff, CreateAgentResult, ReplayKey, UpdateResult};
use purser_testkit::{
    CATALOG, DECISIONS, Emulator, LEDGER,
    authorize::{Answer, authorize, grant},
    invariants::{scan, size},
    sample,
};

/// The size of one write unit in bytes. No item that a payment writes may be larger.
const ONE_UNIT: usize = 1_024;

fn longest_scope() -> KeyScope {
    let network = |n: usize| SourceNetwork::parse(&format!("2001:db8:aaaa:bbbb:cccc:dddd:eeee:fff{n:x}/128")).unwrap();
    KeyScope {
        permissions: Some(Permission::ALL.to_vec()),
        services: Some((0..).take(KeyScope::MAX_SERVICES).map(sample::service_id).collect()),
        networks: Some((0..KeyScope::MAX_NETWORKS).map(network).collect()),
        expires_at: Some(Timestamp::MAX),
    }
}

fn longest_labels() -> Labels {
    let bytes = Labels::MAX_BYTES / Labels::MAX;
    let pair = |n: usize| {
        let key = LabelKey::parse(&format!("k{n}")).unwrap();
        (key, LabelValue::parse(&"v".repeat(bytes - 2)).unwrap())
    };
    Labels::from_pairs((0..Labels::MAX).map(pair)).unwrap()
}

/// Every payment reads the agent's record, which takes one read unit up to 4 KB.
#[tokio::test]
async fn large_key_scopes_and_labels_fit_in_one_read_unit() {
    let emulator = Emulator::start().await;
    let mut agent = sample::agent(1, Vec::new());
    agent.name = "\u{1f4b8}".repeat(AgentName::MAX);
    agent.labels = longest_labels();
    agent.archived = true;
    for id in [2, 3] {
        let key = AgentKey {
            id: KeyId(id),
            scope: longest_scope(),
            ..agent.keys[0].clone()
        };
        agent.keys.push(key);
    }
    assert_eq!(
        emulator.ledger().create_agent(&agent, &sample::audit()).await.unwrap(),
        CreateAgentResult::Stored
    );
    let items = scan(&emulator.client, LEDGER, None).await;
    assert!(size(&items[0]) <= 4_096, "{}", size(&items[0]));
}

#[tokio::test]
async fn agents_survive_storage_with_keys_and_rules() {
    let ledger = Emulator::start().await.ledger();
    let mut agent = sample::agent(1, sample::rules());
    agent.keys.push(AgentKey {
        id: KeyId(u64::MAX),
        credential: KeyCredential::Secret(SecretDigest::from_bytes([0xff; 32])),
        created_at: sample::start(),
        ends_at: Some(sample::start().after(sample::secs(1))),
        scope: longest_scope(),
        opened_by: Some(KeyId(1)),
    });
    agent.labels = longest_labels();
    assert_eq!(ledger.read_agent_by_id(agent.id).await.unwrap(), None);
    assert_eq!(
        ledger.create_agent(&agent, &sample::audit()).await.unwrap(),
        CreateAgentResult::Stored
    );
    assert_eq!(ledger.read_agent_by_id(agent.id).await.unwrap(), Some(agent.clone()));

    assert_eq!(
        ledger.create_agent(&agent, &sample::audit()).await.unwrap(),
        CreateAgentResult::Stored,
        "the same again is the same"
    );
    let other = purser_domain::Agent {
        name: "other".to_owned(),
        ..agent.clone()
    };
    assert_eq!(
        ledger.create_agent(&other, &sample::audit()).await.unwrap(),
        CreateAgentResult::Exists
    );

    let frozen = purser_domain::Agent {
        status: AgentStatus::Frozen,
        archived: true,
        labels: Labels::default(),
        version: 2,
        ..agent.clone()
    };
    assert_eq!(
        ledger.put_agent(&frozen, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    assert_eq!(
        ledger.put_agent(&frozen, &sample::audit()).await.unwrap(),
        UpdateResult::Stored,
        "the same again is the same"
    );
    let late = purser_domain::Agent {
        name: "late".to_owned(),
        version: 2,
        ..agent.clone()
    };
    assert_eq!(
        ledger.put_agent(&late, &sample::audit()).await.unwrap(),
        UpdateResult::Conflict
    );
    let early = purser_domain::Agent {
        version: 4,
        ..frozen.clone()
    };
    assert_eq!(
        ledger.put_agent(&early, &sample::audit()).await.unwrap(),
        UpdateResult::Conflict
    );
    assert_eq!(
        ledger
            .put_agent(&sample::agent(2, Vec::new()), &sample::audit())
            .await
            .unwrap(),
        UpdateResult::Conflict,
        "there is none"
    );
    assert_eq!(ledger.read_agent_by_id(agent.id).await.unwrap(), Some(frozen));
}

#[tokio::test]
async fn policies_survive_storage_and_are_listed_beyond_one_batch() {
    let ledger = Emulator::start().await.ledger();
    let agent = sample::agent_id(1);
    let policies: Vec<_> = (0..103).map(|n| sample::tight_policy(sample::service_id(n))).collect();
    for policy in &policies {
        assert_eq!(
            ledger.put_policy(agent, policy, &sample::audit()).await.unwrap(),
            UpdateResult::Stored
        );
    }
    let of = |number| sample::agent(number, Vec::new());
    assert_eq!(ledger.list_enabled_services(&of(1)).await.unwrap(), policies);
    assert_eq!(ledger.list_enabled_services(&of(2)).await.unwrap(), []);
    assert_eq!(
        ledger
            .find_enabled_service(agent, sample::service_id(0))
            .await
            .unwrap()
            .as_ref(),
        policies.first()
    );
    assert_eq!(
        ledger
            .find_enabled_service(agent, sample::service_id(999))
            .await
            .unwrap(),
        None
    );

    let mut next = sample::enabled(sample::service_id(0), 7, 7);
    assert_eq!(
        ledger.put_policy(agent, &next, &sample::audit()).await.unwrap(),
        UpdateResult::Conflict,
        "there is a first version"
    );
    next.version = 3;
    assert_eq!(
        ledger.put_policy(agent, &next, &sample::audit()).await.unwrap(),
        UpdateResult::Conflict,
        "there is no second version"
    );
    next.version = 2;
    assert_eq!(
        ledger.put_policy(agent, &next, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    assert_eq!(
        ledger.put_policy(agent, &next, &sample::audit()).await.unwrap(),
        UpdateResult::Stored,
        "the same again is the same"
    );
    assert_eq!(
        ledger.find_enabled_service(agent, sample::service_id(0)).await.unwrap(),
        Some(next)
    );
}

#[tokio::test]
async fn the_longest_settlement_survives_storage_in_one_read_unit() {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    let budgets: Vec<_> = (0..10)
        .map(|n| sample::budget(n, Amount::MAX.units(), sample::secs(31 * 86_400)))
        .collect();
    ledger
        .create_agent(&sample::agent(1, budgets), &sample::audit())
        .await
        .unwrap();
    let max = Amount::MAX.units();
    ledger
        .put_policy(
            sample::agent_id(1),
            &sample::enabled(sample::service_id(1), max, max / 2),
            &sample::audit(),
        )
        .await
        .unwrap();

    let mut asked = request(max - 1, "k");
    let Answer::Waits(approval) = authorize(&ledger, &asked, sample::start()).await.unwrap() else {
        panic!()
    };
    ledger
        .resolve_approval(
            approval,
            purser_store::ApprovalDecision::Approve,
            &sample::ruling(sample::start()),
            &sample::audit(),
        )
        .await
        .unwrap();
    asked.approval = Some(approval);
    let (grant, mut terms) = grant(&ledger, &asked, sample::start()).await;
    let Purpose::Purchase(purchase) = &mut terms.purpose else {
        panic!("a purchase");
    };
    purchase.operation = OperationSlug::parse(&format!("a.{}", "x".repeat(126))).unwrap();
    purchase.offer_index = u32::MAX;
    purchase.checks = longest_checks();
    assert!(purchase.budgets.len() == 10 && purchase.approval.is_some());
    let reserved = ledger
        .reserve_payment(&grant, &terms, &asked.fingerprint(), &mut Backoff::new())
        .await
        .unwrap();
    assert_eq!(reserved, purser_store::ReserveResult::Done);
    let stored = ledger
        .read_settlement_by_id(terms.agent, terms.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&stored.terms, &stored.state), (&terms, &SettlementState::Authorized));
    assert_sound(&emulator).await;
    check_sizes(&emulator).await;

    ledger
        .confirm_settlement(
            &stored,
            &sample::transfer(&stored, sample::tx_hash(0xee)),
            purser_store::Claim::Transaction,
            sample::start(),
        )
        .await
        .unwrap();
    let confirmed = ledger
        .read_settlement_by_id(terms.agent, terms.id)
        .await
        .unwrap()
        .unwrap();
    let state = SettlementState::Confirmed {
        tx_hash: sample::tx_hash(0xee),
        block_number: sample::BLOCK,
        settled_at: sample::start(),
    };
    assert_eq!((&confirmed.terms, &confirmed.state), (&terms, &state));
    assert_sound(&emulator).await;
    check_sizes(&emulator).await;
}

/// Asserts that no item exceeds 1 KB, or 4 KB (one read unit) for an agent's record.
async fn check_sizes(emulator: &Emulator) {
    for table in [LEDGER, DECISIONS, CATALOG] {
        for item in scan(&emulator.client, table, None).await {
            let agent = item.contains_key("rules");
            let text = item.get("pk").and_then(|pk| pk.as_s().ok());
            let preflight = text.is_some_and(|pk| pk.starts_with("R#"));
            assert!(
                preflight || !item.contains_key("ttl"),
                "nothing that money depends on expires: {item:?}"
            );
            assert!(
                size(&item) <= if agent { 4 * ONE_UNIT } else { ONE_UNIT },
                "{} bytes: {item:?}",
                size(&item)
            );
        }
    }
}

fn longest_checks() -> Vec<Check> {
    let numbers = Some(Amount::MAX);
    let check = |name: &CheckName| {
        let counted = matches!(
            name,
            CheckName::MaxPayment | CheckName::PerCall | CheckName::Budget | CheckName::Day | CheckName::Balance
        );
        let number = numbers.filter(|_| counted);
        Check {
            name: *name,
            outcome: CheckOutcome::Unknown,
            limit: number,
            used: number,
            remaining: number,
        }
    };
    CheckName::ALL.iter().map(check).collect()
}

/// The key is kept for one day after the last use.
#[tokio::test]
async fn a_preflight_keeps_its_replay_key_for_one_day_after_the_last_use() {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    let agent = sample::agent_id(1);
    let [key, one, two] = ["key", "one", "two"].map(Fingerprint::for_text);
    let start = sample::start();
    let hours = |hours: u32| start.after(sample::secs(hours * 3_600));
    let last = |at: Timestamp| Timestamp::from_secs(at.secs() - 1).unwrap();
    for (request, at, held) in [
        (one, start, ReplayKey::Held),
        (two, last(hours(24)), ReplayKey::Taken(one)),
        (one, hours(1), ReplayKey::Held),
        (two, last(hours(25)), ReplayKey::Taken(one)),
        (two, hours(25), ReplayKey::Held),
        (one, hours(26), ReplayKey::Taken(two)),
    ] {
        assert_eq!(
            ledger.try_reserve_replay_key(agent, &key, &request, at).await.unwrap(),
            held
        );
    }
    check_sizes(&emulator).await;
    assert_eq!(ledger.read_settlements(agent, None, 100).await.unwrap(), []);
}

/// Only the agent of the decision can read the decision.
#[tokio::test]
async fn a_denied_decision_is_stored_once_with_the_failed_check_and_its_limit() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let denied = authorize(&ledger, &request(101, "k"), sample::start()).await.unwrap();
    assert_eq!(denied, Answer::Blocked);
    let rows = scan(&emulator.client, DECISIONS, None).await;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let text = |name: &str| row[name].as_s().unwrap().as_str();
    assert_eq!(
        (text("result"), text("error"), text("rule")),
        ("block", "amount_exceeds_per_call_limit", "max_per_call_units")
    );
    let [LoggedDecision::Refused(logged)] = &ledger.read_decisions(sample::agent_id(1), None, 10).await.unwrap()[..]
    else {
        panic!()
    };
    let failed = logged.checks.iter().find(|check| check.outcome == CheckOutcome::Failed);
    let failed = failed.unwrap();
    assert_eq!(failed.name, CheckName::PerCall);
    assert_eq!(failed.limit.map(Amount::units), Some(100));
    let recorded = async |agent| ledger.find_recorded_decision(agent, logged.transaction).await.unwrap();
    assert_eq!(
        recorded(sample::agent_id(1)).await,
        Some(LoggedDecision::Refused(logged.clone()))
    );
    assert_eq!(recorded(sample::agent_id(2)).await, None);
    assert_sound(&emulator).await;
}

#[tokio::test]
async fn unreadable_items_are_reported_without_their_values() {
    let (emulator, ledger) = ledger_with(100, 100).await;
    let key = format!("A#{}", sample::agent_id(1));
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let update = emulator
        .client
        .update_item()
        .table_name(LEDGER)
        .key("pk", text(&key))
        .key("sk", text("#"));
    let update = update
        .update_expression("SET wallet = :x")
        .expression_attribute_values(":x", text("secret"));
    update.send().await.unwrap();
    let error = ledger.read_agent_by_id(sample::agent_id(1)).await.unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(
        told.contains("`wallet`") && told.contains(&key) && told.contains("`LedgerTable`"),
        "{told}"
    );
    assert!(!told.contains("secret"), "{told}");
}
