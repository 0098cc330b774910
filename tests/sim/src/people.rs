//! The initial rows, and the changes that users and operators make. They call the store directly, because sessions
//! would need an issuer.

use crate::laws::End;
use crate::plan::{AGENTS, SERVICES};
use crate::run::Run;
use crate::telling::{owner, person};
use purser_domain::{
    Address, Agent, AgentId, AgentStatus, Amount, ApprovalId, ApprovalRequired, ApprovalResolution, ApprovalStatus,
    Availability, BudgetLimit, CatalogPayment, Category, CategoryBlock, CountLimit, DefaultServices, DomainPattern,
    DuplicateGuard, Duration, EnabledService, Endpoint, FreezeAuthority, FreezeChange, FreezeTarget, KeyId, KeyScope,
    LimitAction, ListingHistory, MinimumInterval, NewKey, NewPayee, Operation, OperationSlug, OperationUuid,
    OperatorFreeze, OperatorName, OperatorReason, OwnershipOffer, Permission, PriceAboveUsual, Result, Rule, RuleId,
    RuleKind, Schedule, SchedulePeriod, Service, ServiceId, ServiceSlug, SourceNetwork, SpendPolicy, Timestamp,
    TrustStatus, UsualPrice, ZoneName,
};
use purser_store::{
    ApprovalDecision, ChangeFreezeResult, CreateAgentResult, GrantResult, Ledger, ResolveResult, StoreServiceResult,
    TransferAgentResult, UpdateResult,
};
use uuid::Uuid;

const CATEGORIES: [Category; SERVICES as usize] = [Category::Search, Category::Data];

/// The offset of agents' numbers in the counts of unfreezes in progress, for the ends of operators' freezes.
pub(crate) const OPERATORS: u8 = 100;

/// The catalog's price of each operation.
pub(crate) const USUAL_PRICE: i64 = 100;

/// The sets of caps: per call, per day, and the approval threshold.
const CAPS: [(u64, u64, u64); crate::plan::CAPS as usize] = [
    (500, 1_000, 240),
    (450, 600, 450),
    (300, 900, 100),
    (1_000, 10_000, 1_000),
];

pub(crate) fn agent_id(agent: u8) -> AgentId {
    AgentId::from_uuid(Uuid::from_u128(
        0xa9e4_0000_0000_4000_8000_0000_0000_0000 | u128::from(agent),
    ))
}

pub(crate) fn service_id(service: u8) -> ServiceId {
    ServiceId::from_uuid(Uuid::from_u128(
        0x5e4f_1ce0_0000_4000_8000_0000_0000_0000 | u128::from(service),
    ))
}

pub(crate) fn slug(service: u8) -> String {
    format!("lab-{service}")
}

pub(crate) fn category(service: u8) -> &'static str {
    CATEGORIES[usize::from(service)].name()
}

pub(crate) fn endpoint(service: u8) -> String {
    format!("https://lab-{service}.example/buy")
}

pub(crate) fn operation(service: u8) -> OperationSlug {
    OperationSlug::parse(&format!("lab.buy-{service}")).expect("a slug")
}

pub(crate) fn payee(service: u8) -> Address {
    Address::repeat_byte(0xb0 + service)
}

fn units(units: u64) -> Amount {
    Amount::from_units(units).expect("an amount")
}

pub(crate) fn service(service: u8) -> Service {
    let operation = Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(u128::from(service))),
        slug: operation(service),
        availability: Availability::PaidX402,
        label: "Buy".to_owned(),
        method: "GET".to_owned(),
        endpoint: Endpoint::parse(&endpoint(service)).expect("an address"),
        category: CATEGORIES[usize::from(service)],
        execution: "sync".to_owned(),
        price_model: "fixed".to_owned(),
        estimated_price: units(USUAL_PRICE.unsigned_abs()),
        // The maximum price allows every price, so that only the agent's limits deny a payment.
        max_price: Some(Amount::MAX),
        params: serde_json::json!({}),
        fetches_target: None,
        next: None,
        payment: Some(CatalogPayment {
            scheme: "exact".to_owned(),
            network: crate::chain::NETWORK,
            amount: units(USUAL_PRICE.unsigned_abs()),
            pay_to: payee(service),
        }),
    };
    Service {
        id: service_id(service),
        version: 1,
        slug: ServiceSlug::parse(&slug(service)).expect("a slug"),
        name: "Lab".to_owned(),
        description: "What is bought in the simulation.".to_owned(),
        website: "https://lab.example".parse().expect("an address"),
        logo_url: None,
        category: CATEGORIES[usize::from(service)],
        source: "simulation".to_owned(),
        trust_status: TrustStatus::Listed,
        curated: true,
        history: ListingHistory::default(),
        operations: vec![operation],
    }
}

fn policy(service: u8, caps: u8, on: bool, version: u64) -> EnabledService {
    let (per_call, per_day, above) = CAPS[usize::from(caps)];
    EnabledService {
        service: service_id(service),
        version,
        enabled: on,
        policy: SpendPolicy {
            max_per_call: units(per_call),
            max_per_day: units(per_day),
            require_approval_above: units(above),
            enabled_operations: None,
            allowed_domains: vec![DomainPattern::any_domain()],
            raises: Vec::new(),
        },
    }
}

/// Returns the plan's rule with this number. Rules with the same index replace each other.
fn rule(rule: u8) -> (u8, RuleKind) {
    let budget = |limit, hours: u32| {
        RuleKind::BudgetLimit(BudgetLimit {
            limit: units(limit),
            window: Duration::from_secs_u32(hours * 3_600).into(),
        })
    };
    match rule {
        0 => (0, budget(700, 6)),
        1 => (0, budget(1_200, 30)),
        2 => (1, budget(1_500, 48)),
        3 => (
            2,
            RuleKind::CategoryBlock(CategoryBlock {
                categories: vec![Category::Data],
            }),
        ),
        4 => (
            3,
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: None,
                categories: None,
                above: Some(units(120)),
            }),
        ),
        _ => (rule, later_rule(rule)),
    }
}

/// Returns a rule of the plan's later random stream.
fn later_rule(rule: u8) -> RuleKind {
    let services = None;
    let guard = |secs, action| {
        RuleKind::DuplicateGuard(DuplicateGuard {
            services: None,
            within: Duration::from_secs_u32(secs),
            action,
        })
    };
    let price = |percent, action| {
        RuleKind::PriceAboveUsual(PriceAboveUsual {
            services: None,
            percent,
            over: UsualPrice::Catalog,
            action,
        })
    };
    match rule {
        5 => RuleKind::CountLimit(CountLimit {
            count: 3,
            window: purser_domain::RuleWindow {
                services,
                ..Duration::from_secs_u32(7_200).into()
            },
        }),
        6 => RuleKind::MinimumInterval(MinimumInterval {
            services,
            interval: Duration::from_secs_u32(90),
        }),
        7 => guard(600, LimitAction::Block),
        8 => guard(3_600, LimitAction::Ask),
        9 => RuleKind::NewPayee(NewPayee { services }),
        10 => price(150, LimitAction::Block),
        11 => price(20, LimitAction::Ask),
        _ => RuleKind::Schedule(Schedule {
            services,
            // `is_open` in `expect.rs` computes this schedule again.
            zone: ZoneName::parse("Europe/Berlin").expect("a zone"),
            periods: vec![SchedulePeriod::parse("monday-sunday 22:00-02:30").expect("a period")],
        }),
    }
}

/// Writes the initial rows, without faults.
pub(crate) async fn set_up(run: &Run, ledger: &Ledger, now: Timestamp) {
    for number in 0..SERVICES {
        let listed = run
            .catalog
            .put_service(&service(number), &purser_testkit::sample::audit())
            .await
            .expect("a catalog");
        assert_eq!(listed, StoreServiceResult::Stored);
    }
    // One agent starts with the last service, but has no row for it.
    let starts_with = |agent: u8, service: u8| agent + 1 == AGENTS && service + 1 == SERVICES;
    let set = DefaultServices::new([service_id(SERVICES - 1)]);
    let set = ledger.store_default_services(&set).await.expect("a set");
    for number in 0..run.agents_in_all() {
        let id = agent_id(number);
        let new = new_key(run, id, now);
        let agent = Agent {
            id,
            name: format!("agent {number}"),
            owner: owner(number).to_string(),
            created_at: now,
            status: AgentStatus::Active,
            wallet: run.wallet(number),
            keys: vec![new],
            rules: if number == 1 {
                let (place, kind) = rule(2);
                let id = run.new_rule(number, place);
                vec![Rule { id, version: 1, kind }]
            } else {
                Vec::new()
            },
            archived: false,
            labels: purser_domain::Labels::default(),
            starting_set: starts_with(number, SERVICES - 1).then_some(set),
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        };
        assert_eq!(
            ledger
                .create_agent(&agent, &purser_testkit::sample::audit())
                .await
                .expect("an agent"),
            CreateAgentResult::Stored
        );
        for service in (0..SERVICES).filter(|service| !starts_with(number, *service)) {
            let stored = ledger
                .put_policy(id, &policy(service, service, true, 1), &purser_testkit::sample::audit())
                .await;
            assert_eq!(stored.expect("a policy"), UpdateResult::Stored);
        }
    }
}

/// Creates an API key, which the agent uses from then on.
fn new_key(run: &Run, id: AgentId, now: Timestamp) -> purser_domain::AgentKey {
    let mut bytes = [0; 40];
    run.rng().fill(&mut bytes);
    let new = NewKey::from_random(id, bytes, now);
    run.hand_out(id, new.text, Scope::default());
    new.record
}

/// The scope of an API key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Whether the key may not pay, because it lacks the permission or the agent's network.
    pub(crate) forbids_paying: bool,
    pub(crate) forbids_reading: bool,
    /// The service for which the key may not be used.
    pub(crate) forbids: Option<u8>,
    /// The key's expiry, in microseconds since 1970.
    pub(crate) expires: Option<i64>,
}

/// Returns a scope in two forms: as the key stores it, and as the simulation uses it.
fn scope(number: u8, now: Timestamp) -> (KeyScope, Scope) {
    let network = |of: &str| Some(vec![SourceNetwork::parse(of).expect("a network")]);
    let mut key = KeyScope::default();
    let mut told = Scope::default();
    match number {
        1 => {
            key.permissions = Some(vec![Permission::Read]);
            told.forbids_paying = true;
        }
        2 => {
            key.permissions = Some(vec![Permission::Pay]);
            told.forbids_reading = true;
        }
        3 => {
            key.services = Some(vec![service_id(0)]);
            told.forbids = Some(1);
        }
        // Agents call from 192.0.2.0/24, or from an unknown address.
        4 => {
            key.networks = network("198.51.100.0/24");
            (told.forbids_paying, told.forbids_reading) = (true, true);
        }
        5 => {
            let end = now.after(Duration::from_secs_u32(60));
            key.expires_at = Some(end);
            told.expires = Some(end.micros());
        }
        _ => {}
    }
    (key, told)
}

/// Creates an API key with a scope.
pub(crate) async fn add_key(run: &Run, ledger: &Ledger, agent: u8, number: u8, now: Timestamp) -> Done {
    let (id, since) = (agent_id(agent), run.world.now());
    let (key, told) = scope(number, now);
    let mut bytes = [0; 40];
    run.rng().fill(&mut bytes);
    let new = NewKey::from_random(id, bytes, now);
    let mut record = new.record;
    record.scope = key;
    let key = record.id;
    let done = edit(ledger, agent, |agent| agent.with_key(record, now).ok()).await?;
    if done == "stored" {
        run.hand_out(id, new.text, told);
        if let Some(at) = told.expires {
            run.world
                .record()
                .known
                .ended
                .insert(key.to_string(), End { at, since });
        }
    }
    Ok(done)
}

pub(crate) async fn offer(ledger: &Ledger, agent: u8, to: u8, now: Timestamp) -> Done {
    let offer = OwnershipOffer {
        agent: agent_id(agent),
        to: person(to),
        reason: OperatorReason::parse("why").expect("a reason"),
        by: OperatorName::parse("ann").expect("a name"),
        at: now,
        ends_at: now.after(OwnershipOffer::VALIDITY),
    };
    ledger
        .store_ownership_offer(&offer, &purser_testkit::sample::audit())
        .await?;
    Ok("offered")
}

/// Accepts the offer of an agent.
pub(crate) async fn accept(run: &Run, ledger: &Ledger, agent: u8, now: Timestamp) -> Done {
    let id = agent_id(agent);
    let Some(offer) = ledger.read_ownership_offer(id).await? else {
        return Ok("no offer");
    };
    let read = ledger.read_agent_by_id(id).await?.expect("an agent");
    if read.owner != offer.to.as_str() {
        if !offer.is_open_to(&offer.to, now) {
            return Ok("too late");
        }
        let entry = purser_testkit::sample::audit();
        match ledger.transfer_agent(&read, &offer, now, &entry).await? {
            TransferAgentResult::Done => {}
            TransferAgentResult::Conflict => return Ok("conflict"),
            TransferAgentResult::NoOffer => return Ok("no offer any more"),
        }
    }
    let owned = ledger.read_agent_by_id(id).await?.expect("an agent");
    ledger.fence_windows(&owned).await?;
    ledger.move_open_approvals_to_owner(&owned, now).await?;
    run.world.record().known.handed_over(&id.to_string(), owned.version);
    Ok(if read.owner == offer.to.as_str() {
        "theirs already"
    } else {
        "accepted"
    })
}

/// The result of a user's operation.
pub(crate) type Done = Result<&'static str>;

const fn edited(edited: UpdateResult) -> &'static str {
    match edited {
        UpdateResult::Stored => "stored",
        UpdateResult::Conflict => "conflict",
    }
}

pub(crate) async fn put_policy(ledger: &Ledger, agent: u8, service: u8, caps: u8, on: bool) -> Done {
    let id = agent_id(agent);
    let before = ledger.find_enabled_service(id, service_id(service)).await?;
    let version = before.map_or(1, |before| before.version + 1);
    ledger
        .put_policy(
            id,
            &policy(service, caps, on, version),
            &purser_testkit::sample::audit(),
        )
        .await
        .map(edited)
}

async fn edit(ledger: &Ledger, agent: u8, change: impl FnOnce(Agent) -> Option<Agent>) -> Done {
    let read = ledger.read_agent_by_id(agent_id(agent)).await?.expect("an agent");
    let Some(mut next) = change(read.clone()).filter(|next| *next != read) else {
        return Ok("nothing to do");
    };
    next.version += 1;
    ledger
        .put_agent(&next, &purser_testkit::sample::audit())
        .await
        .map(edited)
}

pub(crate) async fn freeze(run: &Run, ledger: &Ledger, agent: u8, frozen: bool) -> Done {
    let id = agent_id(agent).to_string();
    if !frozen {
        run.world.record().known.frozen.remove(&id);
    }
    let status = if frozen {
        AgentStatus::Frozen
    } else {
        AgentStatus::Active
    };
    let done = edit(ledger, agent, |agent| Some(Agent { status, ..agent })).await?;
    // Another user's request may have unfrozen the agent meanwhile.
    let is_frozen = run
        .world
        .record()
        .stored
        .agent(&id)
        .is_some_and(|row| crate::tables::text(row, "st") == "frozen");
    if frozen && done == "stored" && is_frozen && !run.thawing(agent) {
        run.world.record().known.frozen.insert(id);
    }
    Ok(done)
}

/// Begins or ends an operators' freeze. The operator 0 has a token, and the others use browsers.
pub(crate) async fn operate(run: &Run, ledger: &Ledger, (agent, by): (u8, u8), frozen: bool, now: Timestamp) -> Done {
    let id = agent_id(agent);
    let name = ["ann", "browser:bob", "browser:carl"][usize::from(by)];
    let by = OperatorName::from_stored(name).expect("a name");
    let has_token = by.freeze_authority() == FreezeAuthority::Token;
    if !frozen && has_token {
        run.world.record().known.stopped.remove(&id.to_string());
    }
    let target = FreezeTarget::Agent(id);
    loop {
        let freezes = ledger.list_operator_freezes().await?;
        let stored = freezes.into_iter().find(|freeze| freeze.target == target);
        let freeze = OperatorFreeze {
            target: target.clone(),
            reason: OperatorReason::parse("why").expect("a reason"),
            by: by.clone(),
            at: now,
            end_asked_by: None,
        };
        let change = if frozen {
            FreezeChange::begin_freeze(stored, freeze)
        } else {
            FreezeChange::end_freeze(target.clone(), stored, &by, true)
        };
        let Ok(change) = change else {
            return Ok("token required");
        };
        let audit = purser_testkit::sample::audit();
        if ledger.change_freeze(&change, &audit).await? == ChangeFreezeResult::Conflict {
            continue;
        }
        let is_request = change.new_freeze().is_some_and(|freeze| freeze.end_asked_by.is_some());
        if is_request || !frozen {
            return Ok(if is_request { "requested" } else { "ended" });
        }
        let since = run.world.now();
        let mut record = run.world.record();
        // Another operator may have ended the freeze meanwhile.
        let is_frozen = record.stored.stopped(&id.to_string());
        if has_token && is_frozen && !run.thawing(OPERATORS + agent) {
            record.known.stopped.insert(id.to_string(), since);
        }
        return Ok("frozen");
    }
}

pub(crate) async fn set_rule(run: &Run, ledger: &Ledger, agent: u8, number: u8, on: bool) -> Done {
    let (place, kind) = rule(number);
    let id = agent_id(agent).to_string();
    let present = run.rule_in(agent, place);
    if let (false, Some(rule)) = (on, present) {
        let of = (id.clone(), rule.to_string());
        let mut record = run.world.record();
        record.known.service_state.remove(&of);
        record.known.standing.remove(&of);
    }
    let mut chosen = None;
    let is_budget = matches!(
        kind,
        RuleKind::BudgetLimit(_) | RuleKind::CountLimit(_) | RuleKind::MinimumInterval(_)
    );
    let done = edit(ledger, agent, |agent| {
        let present = present.filter(|rule| agent.rules.iter().any(|known| known.id == *rule));
        match (on, present) {
            (true, Some(rule)) => {
                chosen = Some(rule);
                agent.with_changed_rule(rule, kind).ok()
            }
            (true, None) => {
                let number = u8::try_from(agent.id.uuid().as_u128() & 0xff).expect("small");
                let rule = run.new_rule(number, place);
                chosen = Some(rule);
                agent.with_rule(rule, kind).ok()
            }
            (false, Some(rule)) => agent.without_rule(rule).ok(),
            (false, None) => None,
        }
    })
    .await?;
    if let ("stored", true, Some(rule)) = (done, on, chosen) {
        let mut record = run.world.record();
        if record.stored.rules(&id).iter().any(|known| *known == rule.to_string()) {
            let of = (id, rule.to_string());
            if is_budget {
                record.known.service_state.insert(of.clone());
            }
            record.known.standing.insert(of);
        }
    }
    Ok(done)
}

pub(crate) async fn rotate(run: &Run, ledger: &Ledger, agent: u8, secs: u16, now: Timestamp) -> Done {
    let (id, since) = (agent_id(agent), run.world.now());
    let mut text = None;
    let mut bytes = [0; 40];
    run.rng().fill(&mut bytes);
    let mut ended = None;
    let done = edit(ledger, agent, |agent| {
        let new = NewKey::from_random(id, bytes, now);
        text = Some(new.text);
        let old = agent
            .keys
            .iter()
            .rev()
            .find(|key| key.ends_at.is_none_or(|end| now < end))?
            .id;
        ended = Some(old);
        agent
            .with_rotated_key(old, new.record, Duration::from_secs_u32(secs.into()), now)
            .ok()
    })
    .await?;
    if let ("stored", Some(text), Some(old)) = (done, text, ended) {
        let scope = run.scope_of(agent, &old.to_string());
        run.hand_out(id, text, scope);
        note_ends(run, agent, &[old], since);
    }
    Ok(done)
}

pub(crate) async fn revoke(run: &Run, ledger: &Ledger, agent: u8, now: Timestamp) -> Done {
    let (since, mut ended) = (run.world.now(), Vec::new());
    let done = edit(ledger, agent, |agent| {
        let mut agent = agent;
        let newest = agent.keys.last()?.id;
        let working: Vec<KeyId> = agent
            .keys
            .iter()
            .filter(|key| key.id != newest && key.ends_at.is_none_or(|end| now < end))
            .map(|key| key.id)
            .collect();
        for key in working {
            ended.push(key);
            agent = agent.with_revoked_key(key, now).ok()?;
        }
        Some(agent)
    })
    .await?;
    if done == "stored" {
        note_ends(run, agent, &ended, since);
    }
    Ok(done)
}

/// Records the expiry of API keys. No later authorization may use an expired key.
fn note_ends(run: &Run, agent: u8, keys: &[KeyId], since: i64) {
    use dynoxide::types::AttributeValue;
    let mut record = run.world.record();
    let stored = record.stored.clone();
    let Some(row) = stored.agent(&agent_id(agent).to_string()) else {
        return;
    };
    for key in crate::tables::list(row, "keys") {
        if let AttributeValue::M(key) = key
            && keys
                .iter()
                .any(|ended| ended.to_string() == crate::tables::text(key, "id"))
        {
            let end = End {
                at: crate::tables::number(key, "ends"),
                since,
            };
            record
                .known
                .ended
                .insert(crate::tables::text(key, "id").to_owned(), end);
        }
    }
}

pub(crate) async fn resolve(ledger: &Ledger, agent: u8, approval: ApprovalId, yes: bool, now: Timestamp) -> Done {
    let verdict = if yes {
        ApprovalDecision::Approve
    } else {
        ApprovalDecision::Reject
    };
    let owner = ledger.read_agent_by_id(agent_id(agent)).await?.expect("an agent").owner;
    let ruling = ApprovalResolution {
        at: now,
        by: owner,
        note: None,
    };
    Ok(
        match ledger
            .resolve_approval(approval, verdict, &ruling, &purser_testkit::sample::audit())
            .await?
        {
            ResolveResult::Done(_) => "done",
            ResolveResult::Already(_) => "already",
            ResolveResult::NotFound => "not found",
        },
    )
}

/// Grants a temporary limit increase, as the dashboard does.
pub(crate) async fn grant_raise(ledger: &Ledger, approval: ApprovalId, now: Timestamp) -> Done {
    let approval = ledger.read_approval_by_id(approval).await?.expect("an approval");
    let asked = approval.raise.as_ref().expect("a request for a raise");
    let owner = ledger.read_agent_by_id(approval.agent).await?.expect("an agent").owner;
    if owner != asked.asked_of {
        return Ok("of another owner");
    }
    if approval.status(now) != ApprovalStatus::Pending {
        return Ok("not pending");
    }
    let present = ledger.find_enabled_service(approval.agent, approval.service).await?;
    let present = present.expect("a policy");
    let raised = EnabledService {
        version: present.version + 1,
        policy: present
            .policy
            .with_increase(asked.temporary_caps().grant(owner.clone(), approval.id, now)),
        ..present
    };
    let ruling = ApprovalResolution {
        at: now,
        by: owner,
        note: None,
    };
    let audit = purser_testkit::sample::audit();
    Ok(
        match ledger
            .grant_limit_increase(&approval, asked.temporary_caps(), &raised, &ruling, &audit)
            .await?
        {
            GrantResult::Done => "granted",
            GrantResult::Conflict => "conflict",
            GrantResult::NotPending => "not pending",
        },
    )
}

/// Returns the id of the rule with this number.
pub(crate) fn rule_id(number: u64) -> RuleId {
    RuleId::from_uuid(Uuid::from_u128(
        0x441e_0000_0000_4000_8000_0000_0000_0000 | u128::from(number),
    ))
}

pub(crate) async fn mark(ledger: &Ledger, agent: u8, settlement: &str, now: Timestamp) -> Done {
    let settlement = purser_domain::SettlementId::parse(settlement).expect("an id");
    let mark = purser_store::ReconcileRequest {
        agent: agent_id(agent),
        settlement,
        requested_at: now,
    };
    ledger
        .request_reconcile(&mark, &purser_testkit::sample::audit())
        .await
        .map(|()| "asked")
}
