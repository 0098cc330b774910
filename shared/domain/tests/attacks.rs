//! Attacks and mistakes of agents that limits on amounts alone do not stop, each with the rule that blocks or escalates
//! them.
//!
//! An attack is a list of calls. Each call is decided and, if it is allowed, counted as the store counts it. Without
//! rules, every call in the attack is paid.
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    reason = "a test stops where its ground is missing"
)]

use purser_domain::*;
use serde_json::json;
use uuid::Uuid;

const PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
const OTHER_PAYEE: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
/// The operation's price in the catalog, in micro-USDC.
const PRICE: u64 = 10_000;

/// One call: the seconds since the start of the attack, the price, the query, and the payee.
struct Call {
    after: u32,
    price: u64,
    query: u32,
    payee: &'static str,
}

const fn call(after: u32, price: u64, query: u32) -> Call {
    Call {
        after,
        price,
        query,
        payee: PAYEE,
    }
}

/// The result of an attack.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The number of paid calls.
    paid: usize,
    /// The rule that blocked or escalated the first call that was not paid, and whether the call was escalated.
    stopped_by: Option<(&'static str, bool)>,
}

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn minutes(minutes: u32) -> Duration {
    Duration::from_secs_u32(minutes * 60)
}

/// Returns Monday, 2026-11-23, 09:00 in Berlin.
fn start() -> Timestamp {
    Timestamp::parse("2026-11-23T08:00:00Z").unwrap()
}

fn service(payee: &str) -> Service {
    let url = Url::parse("https://lab.example/x").unwrap();
    let operation = Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(3)),
        slug: OperationSlug::parse("web.search").unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: "GET".into(),
        endpoint: Endpoint::parse(url.as_str()).unwrap(),
        category: Category::Search,
        execution: "sync".into(),
        price_model: "fixed".into(),
        estimated_price: units(PRICE),
        max_price: Some(units(PRICE * 1_000)),
        params: json!({}),
        fetches_target: None,
        next: None,
        payment: Some(CatalogPayment {
            scheme: "exact".into(),
            network: Network::BaseSepolia,
            amount: units(PRICE),
            pay_to: parse_address(payee).unwrap(),
        }),
    };
    Service {
        id: ServiceId::from_uuid(Uuid::from_u128(2)),
        version: 1,
        slug: ServiceSlug::parse("lab").unwrap(),
        name: String::new(),
        description: String::new(),
        website: url,
        logo_url: None,
        category: Category::Search,
        source: "test".into(),
        trust_status: TrustStatus::Listed,
        curated: true,
        history: ListingHistory::default(),
        operations: vec![operation],
    }
}

fn intent(call: &Call) -> Intent {
    let token = Network::BaseSepolia.token();
    let requirement = json!({
        "scheme": "exact", "network": "eip155:84532", "amount": call.price.to_string(),
        "asset": token.address.to_string(), "payTo": call.payee, "maxTimeoutSeconds": 60,
        "extra": {"name": token.name, "version": token.version},
    });
    Intent {
        offer: Offer::choose_cheapest(&requirement, Network::BaseSepolia).unwrap(),
        max_payment: Amount::MAX,
        request: ProviderRequest {
            method: "GET".into(),
            url: Url::parse(&format!("https://lab.example/x?q={}", call.query)).unwrap(),
            body_hash: None,
        },
        service: None,
        operation: None,
        target: None,
        metadata: Metadata::default(),
        fingerprint: Fingerprint::for_text("x"),
    }
}

fn agent(rules: Vec<RuleKind>) -> Agent {
    Agent {
        id: AgentId::from_uuid(Uuid::from_u128(1)),
        name: String::new(),
        owner: String::new(),
        created_at: Timestamp::EPOCH,
        status: AgentStatus::Active,
        wallet: Wallet {
            key: WalletKey::Seed { index: 0 },
            address: Address::repeat_byte(1),
            attestation: WalletAttestation::from_bytes([0; 65]),
        },
        keys: vec![],
        rules: (7..)
            .zip(rules)
            .map(|(id, kind)| Rule {
                id: RuleId::from_uuid(Uuid::from_u128(id)),
                version: 1,
                kind,
            })
            .collect(),
        archived: false,
        labels: Labels::default(),
        starting_set: None,
        template: None,
        max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
        former_owners: Vec::new(),
        version: 1,
    }
}

fn window(scope: WindowScope, length: Duration) -> Window {
    Window {
        scope,
        length,
        total: Amount::ZERO,
        version: 1,
        stamp: 1,
        horizon: Timestamp::EPOCH,
        oldest: Vec::new(),
        complete: true,
    }
}

fn add(window: &mut Window, at: Timestamp, amount: Amount) {
    window.total = window.total.plus(amount).unwrap();
    window.oldest.push(Entry {
        at,
        amount,
        settlement: SettlementId::from_uuid(Uuid::nil()),
    });
}

/// Makes all calls, even if earlier calls were not paid. The `known` payments precede the attack.
fn attack(caps: Option<StartingCaps>, rules: Vec<RuleKind>, known: &[Call], calls: &[Call]) -> Outcome {
    let agent = agent(rules);
    let service_of = service(PAYEE).id;
    let enabled = DefaultServices::new([service_of])
        .with_caps(caps)
        .default_policy(service_of)
        .unwrap();
    let (id, service_id) = (agent.id, enabled.service);
    let asking = |rule: &Rule| {
        Some(AskingLimit {
            rule: Some(rule.id),
            above: Amount::ZERO,
            kind: AskingKind::from_name(rule.kind.name())?,
        })
    };
    let approved: Vec<AskingLimit> = agent.rules.iter().filter_map(asking).collect();
    let day = WindowScope::Day {
        agent: id,
        service: service_id,
    };
    let mut day = window(day, Duration::DAY);
    let counting = agent.counting_rules();
    let mut windows: Vec<(RuleId, Window)> = counting
        .map(|rule| (rule.rule.id, window(rule.window_scope(id), rule.length)))
        .collect();
    let is_budget = |id: RuleId| {
        let mut rules = agent.rules.iter();
        rules.any(|rule| rule.id == id && matches!(rule.kind, RuleKind::BudgetLimit { .. }))
    };
    let mut recent = RecentPayments::default();
    let mut outcome = Outcome {
        paid: 0,
        stopped_by: None,
    };
    for (index, call) in known.iter().chain(calls).enumerate() {
        let (intent, service) = (intent(call), service(call.payee));
        let at = start().after(Duration::from_secs_u32(call.after));
        let is_known = index < known.len();
        let facts = EvaluationInputs {
            agent: &agent,
            intent: &intent,
            service: &service,
            operation: service.operations.first(),
            payee_from: None,
            network: Network::BaseSepolia,
            enabled: Some(&enabled),
            day: &day,
            budgets: &windows,
            recent: &recent,
            frozen_by_operators: None,
            // A user approved the payments before the attack.
            approval: is_known.then(|| GivenApproval {
                id: ApprovalId::derive(id, &intent.fingerprint, 0),
                asking: &approved,
            }),
            balance: None,
            at,
            eviction: Eviction::Needed,
        };
        match evaluate(&facts) {
            Decision::Allow(grant) => {
                let amount = grant.amount();
                let remembered = grant.recent_update();
                outcome.paid += usize::from(!is_known);
                add(&mut day, at, amount);
                for (rule, window) in &mut windows {
                    add(window, at, if is_budget(*rule) { amount } else { Amount::ONE });
                }
                if let Some(remembered) = remembered {
                    recent.apply_update(&remembered);
                }
            }
            Decision::Refuse(denial) => {
                let stopped = (denial.reason.triggered_rule(), denial.requires_approval());
                outcome.stopped_by.get_or_insert(stopped);
            }
            Decision::NeedsTarget => {
                outcome.stopped_by.get_or_insert(("target_url", false));
            }
        }
    }
    outcome
}

/// Each row: the attack's name, the earlier payments, the calls, the rule, the number of paid calls, and the rule that
/// stops the attack.
type Row<'a> = (
    &'static str,
    &'a [Call],
    &'a [Call],
    RuleKind,
    usize,
    (&'static str, bool),
);

#[test]
fn each_attack_is_blocked_or_escalated_by_a_rule() {
    const HOUR: u32 = 3_600;
    let services = None;
    let identical: Vec<Call> = (0..100).map(|n| call(n, PRICE, 1)).collect();
    let different: Vec<Call> = (0..100).map(|n| call(n, PRICE, n)).collect();
    let twice = [call(0, PRICE, 1), call(30, PRICE, 1)];
    // Each price is 15 percent above the previous price.
    let mut price = PRICE;
    let ratchet: Vec<Call> = (0..20)
        .map(|n| {
            price = price * 115 / 100;
            call(n * HOUR, price, n)
        })
        .collect();
    let jump = [
        call(0, PRICE, 1),
        call(1, PRICE, 2),
        call(2, PRICE, 3),
        call(3, PRICE * 5, 4),
    ];
    let swapped = [Call {
        payee: OTHER_PAYEE,
        ..call(HOUR, PRICE, 2)
    }];
    // A payment every twenty minutes for a week, so that no single hour is unusual.
    let drain: Vec<Call> = (0..504).map(|n| call(n * 1_200, PRICE, n)).collect();
    // From 22:00 to 03:00 in Berlin.
    let night: Vec<Call> = (13..18).map(|hour| call(hour * HOUR, PRICE, hour)).collect();
    let schedule = Schedule {
        zone: ZoneName::parse("Europe/Berlin").unwrap(),
        days: vec![
            Weekday::Monday,
            Weekday::Tuesday,
            Weekday::Wednesday,
            Weekday::Thursday,
            Weekday::Friday,
        ],
        from: TimeOfDay::parse("08:00").unwrap(),
        to: TimeOfDay::parse("18:00").unwrap(),
    };
    let guard = |action| RuleKind::DuplicateGuard {
        services: None,
        within: minutes(10),
        action,
    };
    let above = |over, action| RuleKind::PriceAboveUsual {
        services: None,
        percent: 20,
        over,
        action,
    };
    let count = |count, window| RuleKind::CountLimit {
        services: None,
        count,
        window,
    };
    let interval = RuleKind::MinimumInterval {
        services: None,
        interval: minutes(1),
    };
    let paid_before = [call(0, PRICE, 1)];
    let none: &[Call] = &[];
    let (block, ask) = (LimitAction::Block, LimitAction::Ask);
    let rows: [Row<'_>; 11] = [
        (
            "a loop",
            none,
            &identical,
            count(10, minutes(60)),
            10,
            ("count_limit", false),
        ),
        (
            "a fast loop",
            none,
            &different,
            interval,
            2,
            ("minimum_interval", false),
        ),
        (
            "a loop of one call",
            none,
            &identical,
            guard(block),
            1,
            ("duplicate_guard", false),
        ),
        ("a duplicate", none, &twice, guard(ask), 1, ("duplicate_guard", true)),
        (
            "a ratchet",
            none,
            &ratchet,
            above(UsualPrice::Catalog, block),
            1,
            ("price_above_usual", false),
        ),
        (
            "a ratchet, by its own past",
            none,
            &ratchet,
            above(UsualPrice::Median(5), ask),
            5,
            ("price_above_usual", true),
        ),
        (
            "a jump",
            none,
            &jump,
            above(UsualPrice::Median(3), ask),
            3,
            ("price_above_usual", true),
        ),
        (
            "a payee swap",
            &paid_before,
            &swapped,
            RuleKind::NewPayee { services: None },
            0,
            ("new_payee", true),
        ),
        (
            "a first payment",
            none,
            &paid_before,
            RuleKind::NewPayee { services },
            0,
            ("new_payee", true),
        ),
        (
            "a slow drain",
            none,
            &drain,
            count(100, Duration::from_secs_u32(7 * 86_400)),
            100,
            ("count_limit", false),
        ),
        (
            "spending at night",
            none,
            &night,
            RuleKind::Schedule {
                services: None,
                schedule,
            },
            0,
            ("schedule", false),
        ),
    ];
    for (name, known, calls, rule, paid, stopped_by) in rows {
        let without = attack(None, vec![], known, calls);
        assert_eq!((without.paid, without.stopped_by), (calls.len(), None), "{name}");
        let expected = Outcome {
            paid,
            stopped_by: Some(stopped_by),
        };
        assert_eq!(attack(None, vec![rule], known, calls), expected, "{name}");
    }
}

/// Each row: the attack's name, the earlier payments, the calls, the number of paid calls, and the rule that stops the
/// attack.
type SafeRow<'a> = (&'static str, &'a [Call], &'a [Call], usize, (&'static str, bool));

/// The limits are the limits with which the dashboard creates an agent (`docs/policies/safe.yaml`), and the agent's
/// first payment was approved. Each attack is blocked or escalated before it costs more than the daily cap.
#[test]
fn the_safe_limits_block_or_escalate_each_attack() {
    let identical: Vec<Call> = (1..100).map(|n| call(n * 5, PRICE, 1)).collect();
    let different: Vec<Call> = (1..300).map(|n| call(n, PRICE, n + 1)).collect();
    let mut price = PRICE;
    let ratchet: Vec<Call> = (2..20)
        .map(|n| {
            price = price * 115 / 100;
            call(n * 3_600, price, n)
        })
        .collect();
    let swapped = Call {
        payee: OTHER_PAYEE,
        ..call(3_600, PRICE, 2)
    };
    // A payment every twenty seconds for eight hours, so that there are never more than two hundred per hour.
    let drain: Vec<Call> = (1..1_440).map(|n| call(n * 20, PRICE, n + 1)).collect();
    let paid_before = [call(0, PRICE, 1)];
    let rows: [SafeRow<'_>; 7] = [
        (
            "a loop of one call",
            &paid_before,
            &identical,
            0,
            ("duplicate_guard", true),
        ),
        ("a loop", &paid_before, &different, 199, ("count_limit", false)),
        (
            "a duplicate",
            &paid_before,
            &[call(30, PRICE, 1)],
            0,
            ("duplicate_guard", true),
        ),
        ("a ratchet", &paid_before, &ratchet, 2, ("price_above_usual", true)),
        ("a payee swap", &paid_before, &[swapped], 0, ("new_payee", true)),
        ("a first payment", &[], &paid_before, 0, ("new_payee", true)),
        ("a slow drain", &paid_before, &drain, 999, ("max_per_day_units", false)),
    ];
    let safe = StartingLimits::Safe;
    for (name, known, calls, paid, stopped_by) in rows {
        let expected = Outcome {
            paid,
            stopped_by: Some(stopped_by),
        };
        assert_eq!(
            attack(safe.to_caps(), safe.to_rules(), known, calls),
            expected,
            "{name}"
        );
    }
}
