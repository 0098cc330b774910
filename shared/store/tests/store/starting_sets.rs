//! Tests default policies without a row: no change is bypassed when they are first stored.

use crate::{assert_sound, request};
use purser_domain::{
    Agent, AgentStatus, Amount, Category, DefaultServices, EnabledService, Grant, OperationScope, PolicyChange,
    PolicyUpdate, ServiceId, SettlementTerms, SpendPolicy, StartingLimits, TemplateKey, TemplateList, TemplateName,
    TemplateTerms, UserId, WindowScope,
};
use purser_store::{Backoff, DecisionKeys, Ledger, ReserveResult, ServiceState, UpdateResult};
use purser_testkit::{
    Emulator, LEDGER, ProxyConfig,
    authorize::{Request, grant},
    invariants::scan,
    sample,
};

/// Creates a ledger with one agent that has the default services 1 to 3 and no policy rows.
async fn ledger() -> (Emulator, Ledger, Agent) {
    let emulator = Emulator::start().await;
    let ledger = emulator.ledger();
    let set = DefaultServices::new((1..=3).map(sample::service_id));
    let agent = Agent {
        starting_set: Some(ledger.store_default_services(&set).await.unwrap()),
        ..sample::agent(1, Vec::new())
    };
    ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    (emulator, ledger, agent)
}

async fn service_state(ledger: &Ledger, service: ServiceId) -> ServiceState {
    let ask = DecisionKeys {
        service: Some(service),
        ..DecisionKeys::default()
    };
    let (_, read) = ledger.read_decision_inputs(sample::agent_id(1), &ask).await.unwrap();
    read.service_state.unwrap()
}

async fn reserve(
    ledger: &Ledger,
    request: &Request,
    (grant, terms): &(Grant<'static>, SettlementTerms),
) -> ReserveResult {
    let fingerprint = request.fingerprint();
    let mut backoff = Backoff::new();
    ledger
        .reserve_payment(grant, terms, &fingerprint, &mut backoff)
        .await
        .unwrap()
}

fn tighter(version: u64) -> EnabledService {
    EnabledService {
        version,
        ..sample::enabled(sample::service_id(1), 5, 5)
    }
}

/// The default policy has no stored row, and services outside the set have no policy.
#[tokio::test]
async fn default_services_have_a_default_policy() {
    let (emulator, _, agent) = ledger().await;
    // This instance has not cached the set of default services.
    let ledger = emulator.ledger();
    let default = |number| EnabledService::pre_enabled(sample::service_id(number));
    let one = sample::service_id(1);
    let state = service_state(&ledger, one).await;
    assert_eq!((state.enabled.as_ref(), state.is_unwritten), (Some(&default(1)), true));
    assert_eq!((state.day.stamp, state.day.total), (1, Amount::ZERO));
    assert_eq!(
        ledger.find_enabled_service(agent.id, one).await.unwrap(),
        Some(default(1))
    );
    let all = [1, 2, 3].map(default).to_vec();
    assert_eq!(ledger.list_enabled_services(&agent).await.unwrap(), all);

    let other = sample::service_id(4);
    assert_eq!(service_state(&ledger, other).await.enabled, None);
    assert_eq!(ledger.find_enabled_service(agent.id, other).await.unwrap(), None);
    let late = Agent {
        starting_set: None,
        ..sample::agent(2, Vec::new())
    };
    ledger.create_agent(&late, &sample::audit()).await.unwrap();
    assert_eq!(ledger.find_enabled_service(late.id, one).await.unwrap(), None);
    assert_eq!(ledger.list_enabled_services(&late).await.unwrap(), []);
    assert_eq!(
        scan(&emulator.client, LEDGER, None).await.len(),
        5,
        "the set, and two agents with their wallets"
    );
}

/// The caps apply before the agent has a policy row, and the first payment stores them.
#[tokio::test]
async fn starting_caps_apply_to_the_first_payment() {
    let (emulator, ledger, unlimited) = ledger().await;
    let set = DefaultServices::new((1..=3).map(sample::service_id)).with_caps(StartingLimits::Safe.to_caps());
    let digest = ledger.store_default_services(&set).await.unwrap();
    assert_ne!(Some(digest), unlimited.starting_set);
    let agent = Agent {
        starting_set: Some(digest),
        ..sample::agent(2, Vec::new())
    };
    ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    let fresh = emulator.ledger();
    let capped = |number| set.default_policy(sample::service_id(number)).unwrap();
    let one = sample::service_id(1);
    let found = fresh.find_enabled_service(agent.id, one).await.unwrap();
    assert_eq!(found, Some(capped(1)));
    assert_eq!(found.unwrap().policy.max_per_day, sample::units(10_000_000));
    assert_eq!(
        fresh.list_enabled_services(&agent).await.unwrap(),
        [1, 2, 3].map(capped).to_vec()
    );
    let ask = DecisionKeys {
        service: Some(one),
        ..DecisionKeys::default()
    };
    let (_, read) = fresh.read_decision_inputs(agent.id, &ask).await.unwrap();
    let state = read.service_state.unwrap();
    assert_eq!((state.enabled, state.is_unwritten), (Some(capped(1)), true));

    assert!(fresh.try_write_default_policy(&agent, one).await.unwrap());
    assert_eq!(
        ledger.find_enabled_service(agent.id, one).await.unwrap(),
        Some(capped(1))
    );
    assert!(
        !fresh
            .try_write_default_policy(&agent, sample::service_id(4))
            .await
            .unwrap()
    );
    assert_eq!(
        ledger.find_enabled_service(unlimited.id, one).await.unwrap(),
        Some(EnabledService::pre_enabled(one))
    );
    assert_sound(&emulator).await;
}

/// The limits apply even in an instance that has not read the set of default services.
#[tokio::test]
async fn default_service_limits_apply_without_a_policy_row() {
    let (emulator, ledger, _) = ledger().await;
    let limits = PolicyChange {
        enabled: None,
        policy: PolicyUpdate {
            max_per_day: Some(sample::units(7)),
            enabled_operations: Some(OperationScope::All),
            ..PolicyUpdate::default()
        },
    };
    let off = PolicyChange {
        enabled: Some(false),
        policy: PolicyUpdate::default(),
    };
    let service = sample::service_id;
    let set = DefaultServices::new((1..=3).map(service))
        .with_changes(vec![(limits, vec![service(2), service(1)]), (off, vec![service(3)])]);
    let agent = Agent {
        starting_set: Some(ledger.store_default_services(&set).await.unwrap()),
        ..sample::agent(2, Vec::new())
    };
    ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    let fresh = emulator.ledger();
    let all = fresh.list_enabled_services(&agent).await.unwrap();
    assert_eq!(
        all,
        [1, 2, 3].map(|number| set.default_policy(service(number)).unwrap())
    );
    assert_eq!(all[1].policy.max_per_day, sample::units(7));
    assert!(!all[2].enabled);
    assert!(fresh.has_service_enabled(&agent.owner, service(2)).await.unwrap());
    assert!(fresh.try_write_default_policy(&agent, service(1)).await.unwrap());
    assert_eq!(
        ledger.find_enabled_service(agent.id, service(1)).await.unwrap(),
        Some(all[0].clone())
    );
    assert_sound(&emulator).await;
}

/// The list and each version are stored together, and only on the version that was read.
#[tokio::test]
async fn templates_are_stored_with_their_versions() {
    let ledger = Emulator::start().await.ledger();
    let person = UserId::derive("https://issuer.example", "ann");
    let name = TemplateName::parse("research").unwrap();
    let terms = |units: u64| TemplateTerms {
        services: [
            TemplateKey::Service(sample::service_id(1)),
            TemplateKey::Category(Category::Ai),
            TemplateKey::Every,
        ]
        .map(|key| {
            let change = PolicyChange {
                enabled: Some(false),
                policy: PolicyUpdate {
                    max_per_call: Some(sample::units(units)),
                    enabled_operations: Some(OperationScope::Only(Vec::new())),
                    ..PolicyUpdate::default()
                },
            };
            (key, change)
        })
        .into(),
        rules: Some(StartingLimits::Safe.to_rules()),
    };
    let empty = ledger.read_template_list(&person).await.unwrap();
    assert_eq!(empty, TemplateList::default());
    let first = empty.with_template(&name, true, Some(true), sample::start()).unwrap();
    let put = async |list: &TemplateList, terms: Option<&TemplateTerms>| {
        ledger
            .put_templates(&person, list, terms, &sample::audit())
            .await
            .unwrap()
    };
    assert_eq!(put(&first, Some(&terms(1))).await, UpdateResult::Stored);
    assert_eq!(
        put(&first, Some(&terms(2))).await,
        UpdateResult::Conflict,
        "by another call"
    );
    let second = first.with_template(&name, true, None, sample::start()).unwrap();
    assert_eq!(put(&second, Some(&terms(2))).await, UpdateResult::Stored);
    assert_eq!(ledger.read_template_list(&person).await.unwrap(), second);
    assert_eq!(ledger.read_template_limits(&person, 1).await.unwrap(), Some(terms(1)));
    assert_eq!(ledger.read_template_limits(&person, 2).await.unwrap(), Some(terms(2)));
    // The versions of a removed template stay stored. A new template with the same name gets the next version.
    let removed = second.without_template(&name);
    assert_eq!(
        (removed.version, removed.default.clone(), removed.entries.len()),
        (3, None, 0)
    );
    assert_eq!(put(&removed, None).await, UpdateResult::Stored);
    let again = removed.with_template(&name, true, None, sample::start()).unwrap();
    assert_eq!(again.entries[&name].version, 4);
    assert_eq!(ledger.read_template_limits(&person, 3).await.unwrap(), None);
    assert_eq!(ledger.read_template_limits(&person, 2).await.unwrap(), Some(terms(2)));
}

/// Version 1 is the default policy.
#[tokio::test]
async fn the_first_policy_update_creates_version_two() {
    let (emulator, ledger, agent) = ledger().await;
    let id = agent.id;
    for too_early in [tighter(1), tighter(3)] {
        assert_eq!(
            ledger.put_policy(id, &too_early, &sample::audit()).await.unwrap(),
            UpdateResult::Conflict
        );
    }
    assert_eq!(
        ledger.put_policy(id, &tighter(2), &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    assert_eq!(
        ledger.put_policy(id, &tighter(2), &sample::audit()).await.unwrap(),
        UpdateResult::Stored,
        "again"
    );
    let state = service_state(&ledger, sample::service_id(1)).await;
    assert_eq!((state.enabled.as_ref(), state.is_unwritten), (Some(&tighter(2)), false));
    let all = [
        tighter(2),
        EnabledService::pre_enabled(sample::service_id(2)),
        EnabledService::pre_enabled(sample::service_id(3)),
    ];
    assert_eq!(ledger.list_enabled_services(&agent).await.unwrap(), all);
    // A service outside the set starts with version 1.
    let other = sample::enabled(sample::service_id(4), 5, 5);
    let second = EnabledService {
        version: 2,
        ..other.clone()
    };
    assert_eq!(
        ledger.put_policy(id, &second, &sample::audit()).await.unwrap(),
        UpdateResult::Conflict
    );
    assert_eq!(
        ledger.put_policy(id, &other, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    assert_sound(&emulator).await;
}

/// The change comes before, during or after the write of the default policy.
#[tokio::test]
async fn first_payments_respect_concurrent_policy_updates() {
    let freeze = |agent: &Agent| Agent {
        status: AgentStatus::Frozen,
        version: 2,
        ..agent.clone()
    };
    let request = request(10, "first");
    // Without a change, the payment is reserved.
    let (emulator, ledger, agent) = ledger().await;
    let granted = grant(&ledger, &request, sample::start()).await;
    assert!(ledger.try_write_default_policy(&agent, request.service).await.unwrap());
    assert!(
        ledger.try_write_default_policy(&agent, request.service).await.unwrap(),
        "by a concurrent call"
    );
    assert_eq!(reserve(&ledger, &request, &granted).await, ReserveResult::Done);
    assert_sound(&emulator).await;

    for is_freeze in [true, false] {
        // The change comes before the policy's row, during the write, or after it.
        for moment in 0..3 {
            let (emulator, ledger, agent) = self::ledger().await;
            let granted = grant(&ledger, &request, sample::start()).await;
            let edit = async || {
                let edited = if is_freeze {
                    ledger.put_agent(&freeze(&agent), &sample::audit()).await
                } else {
                    ledger.put_policy(agent.id, &tighter(2), &sample::audit()).await
                };
                assert_eq!(edited.unwrap(), UpdateResult::Stored);
            };
            let (behind, proxy) = emulator.ledger_behind(ProxyConfig::default()).await;
            let write = {
                let (agent, service) = (agent.clone(), request.service);
                async move { behind.try_write_default_policy(&agent, service).await.unwrap() }
            };
            let written = match moment {
                0 => {
                    edit().await;
                    write.await
                }
                1 => {
                    proxy.stall(1);
                    let write = tokio::spawn(write);
                    proxy.stalled(1).await;
                    edit().await;
                    proxy.resume();
                    write.await.unwrap()
                }
                _ => {
                    let written = write.await;
                    edit().await;
                    written
                }
            };
            assert_eq!(written, moment == 2, "freeze {is_freeze}, moment {moment}");
            // Even if the caller did not decide again, the store would reserve nothing.
            assert_eq!(reserve(&ledger, &request, &granted).await, ReserveResult::Raced);
            assert_sound(&emulator).await;
        }
    }
}

/// A renamed agent has a new version, so the payment is decided again and reserved.
#[tokio::test]
async fn a_new_window_stores_the_version_of_the_evaluated_agent() {
    let (emulator, ledger, agent) = ledger().await;
    let renamed = Agent {
        name: "other".to_owned(),
        version: 2,
        ..agent.clone()
    };
    assert_eq!(
        ledger.put_agent(&renamed, &sample::audit()).await.unwrap(),
        UpdateResult::Stored
    );
    let service = sample::service_id(1);
    assert!(!ledger.try_write_default_policy(&agent, service).await.unwrap());
    assert!(ledger.try_write_default_policy(&renamed, service).await.unwrap());
    let scope = WindowScope::Day {
        agent: agent.id,
        service,
    };
    let rows = scan(&emulator.client, LEDGER, None).await;
    let partition = format!("L#{}#{service}", agent.id);
    let window = rows
        .iter()
        .find(|row| row["pk"].as_s() == Ok(&partition) && row["sk"].as_s().unwrap() == "#W");
    assert_eq!(window.unwrap()["aver"].as_n().unwrap(), "2", "{scope:?}");
    assert_eq!(
        service_state(&ledger, service).await.enabled.unwrap().policy,
        SpendPolicy::permissive()
    );
}
