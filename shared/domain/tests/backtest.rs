//! Compares backtests with a simple reference that recomputes sums over lists of payments.
//!
//! The engine decides and records a generated history. Then a [`Backtest`] and the reference test generated limits.
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests calculate what they expect"
)]

use proptest::prelude::*;
use purser_domain::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const SLUGS: [&str; 2] = ["lab", "other"];
const START: u64 = 1_000_000_000;

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(START + secs).unwrap()
}

fn hours(hours: u32) -> Duration {
    Duration::from_secs_u32(hours * 3_600)
}

fn payee(operation: usize) -> Address {
    Address::repeat_byte(7 + u8::try_from(operation).unwrap())
}

fn service(index: usize) -> Service {
    let url = Url::parse(&format!("https://{}.example/x", SLUGS[index])).unwrap();
    Service {
        id: ServiceId::from_uuid(Uuid::from_u128(u128::try_from(index).unwrap())),
        version: 1,
        slug: ServiceSlug::parse(SLUGS[index]).unwrap(),
        name: String::new(),
        description: String::new(),
        website: url.clone(),
        logo_url: None,
        category: [Category::Search, Category::Finance][index],
        source: "test".into(),
        trust_status: TrustStatus::Listed,
        curated: true,
        history: ListingHistory::default(),
        operations: (0..2).map(|number| operation(index, number)).collect(),
    }
}

fn address(index: usize, operation: usize) -> String {
    format!("https://{}.example/{operation}", SLUGS[index])
}

fn operation(index: usize, number: usize) -> Operation {
    Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(3)),
        slug: OperationSlug::parse(["a.call", "b.call"][number]).unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: "GET".into(),
        endpoint: Endpoint::parse(&address(index, number)).unwrap(),
        category: Category::Data,
        execution: "sync".into(),
        price_model: "fixed".into(),
        estimated_price: units(1),
        max_price: Some(units(1_000)),
        params: json!({}),
        fetches_target: None,
        next: None,
        payment: Some(CatalogPayment {
            scheme: "exact".into(),
            network: Network::BaseSepolia,
            amount: units(1),
            pay_to: payee(number),
        }),
    }
}

/// The limits in the form of the reference.
#[derive(Clone, Debug, PartialEq)]
struct Limits {
    frozen: bool,
    /// Whether the service is enabled, the per-call and daily caps, and the approval threshold.
    policies: [(bool, u64, u64, u64); 2],
    /// The rule number, the limit in micro-USDC, and the hours of the window.
    budgets: Vec<(u128, u64, u32)>,
    /// The amount above which a rule requires approval.
    asks: Option<u64>,
    blocks_finance: bool,
    habits: Habits,
}

/// The optional rules, which the updates in a history do not change.
#[derive(Clone, Debug, Default, PartialEq)]
struct Habits {
    /// The rule number, the limit, the hours, and whether only the first service counts.
    counts: Vec<(u128, u64, u32, bool)>,
    /// The hours between two payments, and whether only the first service counts.
    interval: Option<(u32, bool)>,
    /// The hours of the guard, and whether a repeated call needs approval.
    guard: Option<(u32, bool)>,
    asks_for_new_payees: bool,
    /// The percentage, the number of prices, and whether a higher price needs approval.
    median: Option<(u32, u8, bool)>,
}

const INTERVAL: u128 = 200;
const GUARD: u128 = 201;
const NEW_PAYEE: u128 = 202;
const MEDIAN: u128 = 203;

impl Habits {
    fn rules(&self) -> Vec<(u128, RuleKind)> {
        let services = |only: bool| only.then(|| vec![ServiceSlug::parse(SLUGS[0]).unwrap()]);
        let action = |asks| if asks { LimitAction::Ask } else { LimitAction::Block };
        let counts = self.counts.iter().map(|(id, count, length, only)| {
            let kind = RuleKind::CountLimit(CountLimit {
                count: u32::try_from(*count).unwrap(),
                window: RuleWindow {
                    services: services(*only),
                    ..hours(*length).into()
                },
            });
            (*id, kind)
        });
        let interval = self.interval.map(|(length, only)| {
            RuleKind::MinimumInterval(MinimumInterval {
                services: services(only),
                interval: hours(length),
            })
        });
        let guard = self.guard.map(|(length, asks)| {
            RuleKind::DuplicateGuard(DuplicateGuard {
                services: None,
                within: hours(length),
                action: action(asks),
            })
        });
        let payee = self
            .asks_for_new_payees
            .then_some(RuleKind::NewPayee(NewPayee { services: None }));
        let median = self.median.map(|(percent, prices, asks)| {
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent,
                over: UsualPrice::Median(prices),
                action: action(asks),
            })
        });
        let others = [
            (INTERVAL, interval),
            (GUARD, guard),
            (NEW_PAYEE, payee),
            (MEDIAN, median),
        ];
        let others = others.into_iter().filter_map(|(id, kind)| Some((id, kind?)));
        counts.chain(others).collect()
    }
}

impl Limits {
    fn rules(&self) -> Vec<Rule> {
        let budgets = self.budgets.iter().map(|(id, limit, length)| {
            let kind = RuleKind::BudgetLimit(BudgetLimit {
                limit: units(*limit),
                window: hours(*length).into(),
            });
            (*id, kind)
        });
        let asks = self.asks.map(|above| {
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: None,
                categories: None,
                above: Some(units(above)),
            })
        });
        let blocks = self.blocks_finance.then(|| {
            RuleKind::CategoryBlock(CategoryBlock {
                categories: vec![Category::Finance],
            })
        });
        let others = asks
            .map(|rule| (100, rule))
            .into_iter()
            .chain(blocks.map(|rule| (101, rule)));
        let habits = self.habits.rules();
        let rules = budgets.chain(others).chain(habits).map(|(id, kind)| Rule {
            id: rule_id(id),
            version: 1,
            kind,
        });
        rules.collect()
    }

    fn status(&self) -> AgentStatus {
        if self.frozen {
            AgentStatus::Frozen
        } else {
            AgentStatus::Active
        }
    }

    fn agent(&self, version: u64) -> Agent {
        Agent {
            id: AgentId::from_uuid(Uuid::from_u128(1)),
            name: String::new(),
            owner: String::new(),
            created_at: Timestamp::EPOCH,
            status: self.status(),
            wallet: Wallet {
                key: WalletKey::Seed { index: 0 },
                address: Address::ZERO,
                attestation: WalletAttestation::from_bytes([0; 65]),
            },
            keys: vec![],
            rules: self.rules(),
            archived: false,
            labels: Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version,
        }
    }

    fn policy(&self, index: usize) -> EnabledService {
        let (enabled, per_call, per_day, threshold) = self.policies[index];
        EnabledService {
            service: service(index).id,
            version: 1,
            enabled,
            policy: SpendPolicy {
                max_per_call: units(per_call),
                max_per_day: units(per_day),
                require_approval_above: units(threshold),
                enabled_operations: None,
                allowed_domains: vec![DomainPattern::any_domain()],
                raises: Vec::new(),
            },
        }
    }

    /// Returns the expected result and reason, without the engine.
    fn decide(&self, step: &Step, is_approved: bool, paid: &[Paid], now: Timestamp) -> (DecisionResult, String) {
        let block = |reason: &str| (DecisionResult::Block, reason.to_owned());
        let by_rule = |kind: &str, id| block(&format!("{kind}:{}", rule_id(id)));
        let (index, amount, habits) = (step.index, step.amount, &self.habits);
        let (enabled, per_call, per_day, threshold) = self.policies[index];
        if !enabled {
            return block("service_not_enabled");
        }
        if self.frozen {
            return block("agent_frozen");
        }
        if amount > per_call {
            return block("amount_exceeds_per_call_limit");
        }
        if self.blocks_finance && index == 1 {
            return block("category_block:finance");
        }
        let spent = |index, length| spent(paid, now, index, length);
        let left = |(_, limit, length): &(u128, u64, u32)| limit.saturating_sub(spent(None, *length));
        let tightest = self.budgets.iter().min_by_key(|budget| left(budget));
        if let Some((id, limit, length)) = tightest
            && spent(None, *length) + amount > *limit
        {
            return by_rule("budget_limit", *id);
        }
        let number = |only: bool, length| {
            let counts = paid.iter().filter(|one| one.counts(now, only.then_some(0), length));
            u64::try_from(counts.count()).unwrap()
        };
        let counts = habits.counts.iter().filter(|(.., only)| !only || index == 0);
        let left = |(_, limit, length, only): &&(u128, u64, u32, bool)| limit.saturating_sub(number(*only, *length));
        if let Some((id, limit, length, only)) = counts.min_by_key(left)
            && number(*only, *length) + 1 > *limit
        {
            return by_rule("count_limit", *id);
        }
        if let Some((length, only)) = habits.interval
            && (!only || index == 0)
            && number(only, length) > 0
        {
            return by_rule("minimum_interval", INTERVAL);
        }
        if spent(Some(index), 24) + amount > per_day {
            return block("daily_spend_limit_exceeded");
        }
        // A payment that is not released is confirmed immediately.
        let confirmed = || {
            let here = paid.iter().rev().filter(|one| one.step.index == index);
            here.filter(|one| one.released_at.is_none())
        };
        let repeats = habits.guard.filter(|(length, _)| {
            // A release removes the call from the guard, unless the call was repeated.
            let mut calls: Vec<&Paid> = vec![];
            let is_held = |one: &Paid, now| one.released_at.is_none_or(|released| released > now);
            for one in paid.iter().filter(|one| one.step.index == index) {
                calls.retain(|known| is_held(known, one.at) && !known.step.is_same_call(&one.step));
                calls.push(one);
                let surplus = calls.len().saturating_sub(MAX_RECENT_CALLS);
                calls.drain(..surplus);
            }
            calls.retain(|known| is_held(known, now));
            let last = calls.iter().find(|one| one.step.is_same_call(step));
            last.is_some_and(|last| now.since(last.at) < hours(*length))
        });
        let rises = habits.median.filter(|(percent, prices, _)| {
            let of_operation = confirmed().filter(|one| one.step.operation == step.operation);
            let mut last: Vec<u64> = of_operation.map(|one| one.step.amount).take((*prices).into()).collect();
            last.sort_unstable();
            let is_enough = last.len() == usize::from(*prices);
            is_enough && amount > last[(last.len() - 1) / 2] * (100 + u64::from(*percent)) / 100
        });
        if let Some((_, false)) = repeats {
            return by_rule("duplicate_guard", GUARD);
        }
        if let Some((.., false)) = rises {
            return by_rule("price_above_usual", MEDIAN);
        }
        let is_new = habits.asks_for_new_payees && !confirmed().any(|one| one.step.operation == step.operation);
        let asks = amount > threshold || self.asks.is_some_and(|above| amount > above);
        if (asks || repeats.is_some() || rises.is_some() || is_new) && !is_approved {
            return (DecisionResult::Escalate, "approval_required".to_owned());
        }
        (DecisionResult::Allow, ALLOWED_REASON.to_owned())
    }
}

fn rule_id(id: u128) -> RuleId {
    RuleId::from_uuid(Uuid::from_u128(id))
}

#[derive(Clone, Debug)]
struct Paid {
    step: Step,
    at: Timestamp,
    released_at: Option<Timestamp>,
}

impl Paid {
    /// Returns whether a window of this many hours counts the payment to service `index`, or to any service.
    fn counts(&self, now: Timestamp, index: Option<usize>, length: u32) -> bool {
        now.since(self.at) < hours(length)
            && self.released_at.is_none_or(|released| released > now)
            && index.is_none_or(|index| index == self.step.index)
    }
}

fn spent(paid: &[Paid], now: Timestamp, index: Option<usize>, length: u32) -> u64 {
    let counts = paid.iter().filter(|one| one.counts(now, index, length));
    counts.map(|one| one.step.amount).sum()
}

#[derive(Clone, Debug)]
enum Edit {
    Policy(usize, (bool, u64, u64, u64)),
    /// The budget's index and new limit.
    Budget(usize, u64),
    Frozen(bool),
    Asks(Option<u64>),
}

#[derive(Clone, Debug)]
struct Step {
    gap: u64,
    index: usize,
    operation: usize,
    amount: u64,
    /// The number in the query of the URL.
    query: u8,
    /// The seconds until the payment is released.
    released: Option<u64>,
    /// Whether an escalation is approved and the call repeated after an hour.
    approved: bool,
    edit: Option<Edit>,
}

impl Step {
    fn is_same_call(&self, other: &Self) -> bool {
        (self.operation, self.query) == (other.operation, other.query)
    }
}

/// The budgets, the approval threshold, whether a category is blocked, and the optional rules.
type ChangedRules = (Vec<(u128, u64, u32)>, Option<u64>, bool, Habits);

#[derive(Clone, Debug)]
struct Change {
    status: Option<bool>,
    policies: [Option<(bool, u64, u64, u64)>; 2],
    rules: Option<ChangedRules>,
}

fn policy() -> impl Strategy<Value = (bool, u64, u64, u64)> {
    let per_call = prop_oneof![3 => Just(1_000), 1 => 1_u64..60];
    let per_day = prop_oneof![1 => Just(10_000), 3 => 50_u64..300];
    let threshold = prop_oneof![2 => Just(1_000), 1 => 1_u64..60];
    (prop::bool::weighted(0.9), per_call, per_day, threshold)
}

/// Limits differ, because a record identifies a budget by the limit.
fn budgets() -> impl Strategy<Value = Vec<(u128, u64, u32)>> {
    let budget = |id: u128| {
        (25_u64..300, 1_u32..72).prop_map(move |(limit, length)| (id, limit * 3 + u64::try_from(id).unwrap(), length))
    };
    (
        prop::option::of(budget(0)),
        prop::option::of(budget(1)),
        prop::option::weighted(0.2, budget(2)),
    )
        .prop_map(|(first, second, third)| [first, second, third].into_iter().flatten().collect())
}

fn asks() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.3, 1_u64..60)
}

/// Limits of count limits differ, because a record identifies a rule by the limit.
fn habits() -> impl Strategy<Value = Habits> {
    let count = |id: u128| {
        let count = (1_u64..6, prop_oneof![1_u32..4, 1_u32..72], any::<bool>());
        count.prop_map(move |(limit, length, only)| (300 + id, limit * 2 + u64::try_from(id).unwrap(), length, only))
    };
    let counts = (
        prop::option::weighted(0.3, count(0)),
        prop::option::weighted(0.2, count(1)),
    );
    (
        counts.prop_map(|(first, second)| [first, second].into_iter().flatten().collect()),
        prop::option::weighted(0.2, (1_u32..4, any::<bool>())),
        prop::option::weighted(0.3, (prop_oneof![1_u32..4, 1_u32..72], any::<bool>())),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.3, (prop_oneof![Just(0_u32), 0_u32..150], 3_u8..6, any::<bool>())),
    )
        .prop_map(|(counts, interval, guard, asks_for_new_payees, median)| Habits {
            counts,
            interval,
            guard,
            asks_for_new_payees,
            median,
        })
}

fn limits() -> impl Strategy<Value = Limits> {
    let rules = (budgets(), asks(), prop::bool::weighted(0.1), habits());
    (prop::bool::weighted(0.02), [policy(), policy()], rules).prop_map(
        |(frozen, policies, (budgets, asks, blocks_finance, habits))| Limits {
            frozen,
            policies,
            budgets,
            asks,
            blocks_finance,
            habits,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![6 => 0_u64..7_200, 1 => Just(86_400), 1 => Just(3_600), 1 => 0_u64..86_400];
    let edit = prop_oneof![
        (0..2_usize, policy()).prop_map(|(index, policy)| Edit::Policy(index, policy)),
        (0..3_usize, 25_u64..300).prop_map(|(index, limit)| Edit::Budget(index, limit)),
        prop::bool::weighted(0.3).prop_map(Edit::Frozen),
        asks().prop_map(Edit::Asks),
    ];
    (
        gap,
        (0..2_usize, 0..2_usize),
        prop_oneof![(1_u64..60, 0..1_u8), (Just(20_u64), 0..2_u8)],
        prop::option::weighted(0.2, 1_u64..900),
        any::<bool>(),
        prop::option::weighted(0.05, edit),
    )
        .prop_map(
            |(gap, (index, operation), (amount, query), released, approved, edit)| Step {
                gap,
                index,
                operation,
                amount,
                query,
                released,
                approved,
                edit,
            },
        )
}

fn change() -> impl Strategy<Value = Change> {
    let policy = || prop::option::weighted(0.5, policy());
    (
        prop::option::weighted(0.1, prop::bool::weighted(0.2)),
        [policy(), policy()],
        prop::option::of((budgets(), asks(), prop::bool::weighted(0.1), habits())),
    )
        .prop_map(|(status, policies, rules)| Change {
            status,
            policies,
            rules,
        })
}

impl Change {
    fn candidate(&self) -> ProposedLimits {
        let limits = self.apply(&Limits {
            frozen: false,
            policies: [(true, 0, 0, 0); 2],
            budgets: vec![],
            asks: None,
            blocks_finance: false,
            habits: Habits::default(),
        });
        let policies = (0..2).filter(|index| self.policies[*index].is_some());
        ProposedLimits {
            rules: self.rules.is_some().then(|| limits.rules()),
            status: self.status.is_some().then(|| limits.status()),
            policies: policies
                .map(|index| (service(index).id, limits.policy(index)))
                .collect(),
        }
    }

    fn apply(&self, recorded: &Limits) -> Limits {
        let mut limits = recorded.clone();
        limits.frozen = self.status.unwrap_or(limits.frozen);
        for (index, policy) in self.policies.iter().enumerate() {
            limits.policies[index] = policy.unwrap_or(limits.policies[index]);
        }
        if let Some((budgets, asks, blocks, habits)) = &self.rules {
            (limits.budgets, limits.asks, limits.blocks_finance) = (budgets.clone(), *asks, *blocks);
            limits.habits = habits.clone();
        }
        limits
    }
}

struct Recorded {
    decision: RecordedDecision,
    agent: Agent,
    enabled: EnabledService,
    service: Service,
    transaction: TransactionId,
    approval: Option<ApprovalId>,
    limits: Limits,
    step: Step,
    released_at: Option<Timestamp>,
    is_approved: bool,
}

/// Lets the engine decide and record a history.
fn record(mut limits: Limits, steps: &[Step]) -> Vec<Recorded> {
    let (mut paid, mut recorded, mut now, mut version) = (Vec::<Paid>::new(), Vec::new(), 0, 1);
    let mut remembered = RememberedPayments::default();
    for step in steps {
        now += step.gap;
        if let Some(edit) = &step.edit {
            version += 1;
            match edit {
                Edit::Policy(index, policy) => limits.policies[*index] = *policy,
                Edit::Frozen(frozen) => limits.frozen = *frozen,
                Edit::Asks(above) => limits.asks = *above,
                Edit::Budget(index, limit) => {
                    if let Some((id, old, _)) = limits.budgets.get_mut(*index) {
                        *old = *limit * 3 + u64::try_from(*id).unwrap();
                    }
                }
            }
        }
        let approval = ApprovalId::derive(
            AgentId::from_uuid(Uuid::nil()),
            &Fingerprint::for_text(&now.to_string()),
            u32::try_from(recorded.len()).unwrap(),
        );
        let mut is_approved = false;
        loop {
            let approved = is_approved.then_some(approval);
            remembered.apply_changes_until(at(now));
            let recent = remembered.payments_to_service(service(step.index).id);
            let one = decide(&limits, version, step, at(now), approved, &paid, recent);
            let result = one.decision.result;
            let expected = limits.decide(step, is_approved, &paid, at(now));
            assert_eq!(
                (result, one.decision.reason.clone()),
                expected,
                "the reference and the engine agree"
            );
            if result == DecisionResult::Allow {
                remembered.add(&one.payment());
                paid.push(Paid {
                    step: step.clone(),
                    at: at(now),
                    released_at: one.released_at,
                });
            }
            recorded.push(Recorded {
                approval: (result == DecisionResult::Escalate || is_approved).then_some(approval),
                ..one
            });
            if result != DecisionResult::Escalate || !step.approved {
                break;
            }
            is_approved = true;
            now += 3_600;
        }
    }
    recorded
}

fn decide(
    limits: &Limits,
    version: u64,
    step: &Step,
    now: Timestamp,
    approval: Option<ApprovalId>,
    paid: &[Paid],
    recent: &RecentPayments,
) -> Recorded {
    let (agent, enabled, service) = (limits.agent(version), limits.policy(step.index), service(step.index));
    let window = |scope, period: WindowPeriod, spent: u64| Window {
        scope,
        period,
        total: units(spent),
        version: 1,
        stamp: 1,
        watermark: Timestamp::EPOCH,
        oldest: vec![],
        complete: true,
    };
    let day = WindowScope::Day {
        agent: agent.id,
        service: service.id,
    };
    let day = window(day, WindowPeriod::DAY, spent(paid, now, Some(step.index), 24));
    let budgets = agent.counting_rules().map(|rule| {
        let length = u32::try_from(rule.period.max_duration().secs() / 3_600).unwrap();
        let only = rule.rule.kind.scope().services.map(|_| 0);
        let counted = paid.iter().filter(|one| one.counts(now, only, length));
        let used = counted
            .map(|one| rule.counted.payment_units(units(one.step.amount)).units())
            .sum();
        (
            rule.rule.id,
            window(rule.window_scope(agent.id, None).unwrap(), rule.period, used),
        )
    });
    let budgets: Vec<_> = budgets.collect();
    let token = Network::BaseSepolia.token();
    let requirement = json!({
        "scheme": "exact", "network": "eip155:84532", "amount": step.amount.to_string(),
        "asset": token.address.to_string(), "payTo": payee(step.operation).to_string(), "maxTimeoutSeconds": 60,
        "extra": {"name": token.name, "version": token.version},
    });
    let intent = Intent {
        offer: Offer::choose_cheapest(&requirement, Network::BaseSepolia).unwrap(),
        max_payment: units(1_000),
        request: ProviderRequest {
            method: "GET".into(),
            url: Url::parse(&format!("{}?n={}", address(step.index, step.operation), step.query)).unwrap(),
            body_hash: None,
        },
        service: None,
        operation: None,
        target: None,
        metadata: Metadata::default(),
        fingerprint: Fingerprint::for_text("x"),
    };
    let operation = &service.operations[step.operation];
    let limit = |rule, kind| AskingLimit {
        rule,
        above: Amount::ZERO,
        kind,
    };
    let asking = agent.rules.iter().filter_map(|rule| {
        let kind = AskingKind::from_name(rule.kind.name())?;
        Some(limit(Some(rule.id), kind))
    });
    let threshold = limit(None, AskingKind::Threshold);
    let asking: Vec<_> = std::iter::once(threshold).chain(asking).collect();
    let decided = evaluate(&EvaluationInputs {
        agent: &agent,
        intent: &intent,
        key: KeyId(1),
        service: &service,
        operation: Some(operation),
        payee_from: None,
        network: Network::BaseSepolia,
        enabled: Some(&enabled),
        day: &day,
        budgets: &budgets,
        recent,
        frozen_by_operators: None,
        approval: approval.map(|id| GivenApproval { id, asking: &asking }),
        balance: None,
        at: now,
        eviction: Eviction::Needed,
    });
    let (result, reason, checks) = match decided {
        Decision::NeedsTarget => panic!("every target is allowed"),
        Decision::Allow(grant) => {
            let checks = grant.checks().to_vec();
            (DecisionResult::Allow, ALLOWED_REASON.to_owned(), checks)
        }
        Decision::Refuse(denial) => (denial.reason.result(), denial.reason.reason_text(), denial.checks),
    };
    let decision = RecordedDecision {
        result,
        reason,
        checks,
        operation: Some(operation.slug.clone()),
        amount: units(step.amount),
        pay_to: payee(step.operation),
        key: KeyId(1),
        network: Network::BaseSepolia,
        call: CallDescription::new(&intent, Some(operation), Network::BaseSepolia, now),
        at: now,
        policy_version: Some(1),
        inputs: None,
    };
    Recorded {
        transaction: TransactionId::new_at(now, [u8::try_from(step.index).unwrap(); 8]),
        decision,
        agent,
        enabled,
        service,
        approval: None,
        limits: limits.clone(),
        step: step.clone(),
        released_at: step
            .released
            .filter(|_| result == DecisionResult::Allow)
            .map(|after| now.after(Duration::from_secs_u32(u32::try_from(after).unwrap()))),
        is_approved: approval.is_some(),
    }
}

impl Recorded {
    fn as_tested(&self) -> BacktestDecision<'_> {
        BacktestDecision {
            decision: &self.decision,
            inputs: ReplayInputs {
                agent: &self.agent,
                service: &self.service,
                enabled: Some(&self.enabled),
            },
            transaction: self.transaction,
            approval: self.approval,
            released_at: self.released_at,
            paid_at: self.paid_at(),
            has_call: true,
        }
    }

    /// A payment that is not released is confirmed immediately.
    fn paid_at(&self) -> Option<Timestamp> {
        Some(self.decision.at).filter(|_| self.released_at.is_none())
    }

    fn call(&self) -> CallDigest {
        let decision = &self.decision;
        CallDigest::for_call(&decision.call, decision.operation.as_ref().unwrap())
    }

    fn payment(&self) -> PastPayment {
        let decision = &self.decision;
        PastPayment {
            service: self.service.id,
            key: decision.key,
            amount: decision.amount,
            at: decision.at,
            released_at: self.released_at,
            paid_at: self.paid_at(),
            payee: PayeePrefix::from_address(decision.pay_to),
            operation: OperationDigest::from_slug(decision.operation.as_ref().unwrap()),
            call: Some(self.call()),
        }
    }

    fn paid(&self) -> Option<Paid> {
        (self.decision.result == DecisionResult::Allow).then(|| Paid {
            step: self.step.clone(),
            at: self.decision.at,
            released_at: self.released_at,
        })
    }
}

/// Tests the decisions from `first` on, and counts the earlier payments.
fn backtest(candidate: ProposedLimits, recorded: &[Recorded], first: usize) -> BacktestResult {
    run(Backtest::new(candidate), recorded, first)
}

fn run(mut backtest: Backtest, recorded: &[Recorded], first: usize) -> BacktestResult {
    for one in recorded[..first].iter().filter(|one| one.paid().is_some()) {
        backtest.register_service(&one.service);
        backtest.count_payment_before_test(one.payment());
    }
    for one in &recorded[first..] {
        backtest.test_decision(&one.as_tested());
    }
    backtest.result_so_far()
}

/// The changed decisions (recorded result, new result, reason; number and sum), the saved and the added amount.
type Flipped = (BTreeMap<(DecisionResult, DecisionResult, String), (u64, u64)>, u64, u64);

/// The result, the reason, and whether the agent paid.
type Decided = (DecisionResult, String, bool);

/// Computes the decisions under the changed limits, without the engine.
fn simulate(change: &Change, recorded: &[Recorded], first: usize, is_approved: bool) -> Vec<Decided> {
    let mut paid: Vec<Paid> = recorded[..first].iter().filter_map(Recorded::paid).collect();
    let mut unasked = BTreeSet::new();
    let decide = |one: &Recorded| -> Decided {
        let was = one.decision.result;
        if was == DecisionResult::Allow && one.approval.is_some_and(|approval| unasked.remove(&approval)) {
            return (was, one.decision.reason.clone(), false);
        }
        let now = one.decision.at;
        let (is, reason) = change.apply(&one.limits).decide(&one.step, one.is_approved, &paid, now);
        let asked_only_now = is == DecisionResult::Escalate && was != DecisionResult::Escalate;
        let pays = is == DecisionResult::Allow || (asked_only_now && is_approved);
        if pays {
            paid.push(Paid {
                step: one.step.clone(),
                at: now,
                released_at: one.released_at,
            });
        }
        if pays && was == DecisionResult::Escalate {
            unasked.extend(one.approval);
        }
        (is, reason, pays)
    };
    recorded[first..].iter().map(decide).collect()
}

fn as_recorded(recorded: &[Recorded], first: usize) -> Vec<Decided> {
    let decided = recorded[first..].iter().map(|one| {
        let (result, reason) = (one.decision.result, one.decision.reason.clone());
        (result, reason, result == DecisionResult::Allow)
    });
    decided.collect()
}

/// Compares two lists of decisions. A payment with an approval counts once, at the request or after the approval.
fn compare(recorded: &[Recorded], before: &[Decided], after: &[Decided]) -> Flipped {
    let mut flips = BTreeMap::new();
    for (one, (before, after)) in recorded.iter().zip(before.iter().zip(after)) {
        if before.0 != after.0 {
            let allows = after.0 == DecisionResult::Allow;
            let reason = if allows { &before.1 } else { &after.1 };
            let (count, sum) = flips.entry((before.0, after.0, reason.clone())).or_insert((0, 0));
            (*count, *sum) = (*count + 1, *sum + one.step.amount);
        }
    }
    let payments = |decided: &[Decided]| -> BTreeMap<(Option<ApprovalId>, usize), u64> {
        let paid = recorded.iter().zip(decided).enumerate();
        let paid = paid.filter(|(_, (_, decided))| decided.2);
        let key = |number, one: &Recorded| (one.approval, one.approval.map_or(number, |_| 0));
        paid.map(|(number, (one, _))| (key(number, one), one.step.amount))
            .collect()
    };
    let (before, after) = (payments(before), payments(after));
    let only = |these: &BTreeMap<_, u64>, others: &BTreeMap<_, u64>| {
        let only = these.iter().filter(|(key, _)| !others.contains_key(*key));
        only.map(|(_, amount)| *amount).sum::<u64>()
    };
    (flips, only(&before, &after), only(&after, &before))
}

fn flipped(differences: &Differences) -> Flipped {
    let flips = differences.flips.iter().map(|(kind, flips)| {
        (
            (kind.recorded, kind.tested, kind.reason.clone()),
            (flips.count, flips.amount),
        )
    });
    (flips.collect(), differences.saved, differences.added)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn a_backtest_equals_a_straightforward_simulation(
        limits in limits(),
        steps in prop::collection::vec(step(), 1..60),
        change in change(),
        first in 0..20_usize,
    ) {
        let recorded = record(limits, &steps);
        let first = first.min(recorded.len());
        let result = backtest(change.candidate(), &recorded, first);
        prop_assert_eq!(result.untested, 0);
        prop_assert_eq!(result.decisions, u64::try_from(recorded.len() - first).unwrap());
        let before = as_recorded(&recorded, first);
        for (is_approved, found) in [(false, &result.if_declined), (true, &result.if_approved)] {
            let after = simulate(&change, &recorded, first, is_approved);
            prop_assert_eq!(flipped(found), compare(&recorded[first..], &before, &after));
        }
    }

    #[test]
    fn unchanged_limits_produce_no_backtest_differences(
        limits in limits(),
        steps in prop::collection::vec(step().prop_map(|step| Step { edit: None, ..step }), 1..60),
        first in 0..20_usize,
    ) {
        let recorded = record(limits.clone(), &steps);
        let candidate = ProposedLimits {
            rules: Some(limits.rules()),
            status: Some(limits.status()),
            policies: (0..2).map(|index| (service(index).id, limits.policy(index))).collect(),
        };
        let mut backtest = Backtest::new(candidate);
        for one in recorded.iter().skip(first) {
            backtest.test_decision(&BacktestDecision { released_at: None, ..one.as_tested() });
        }
        let result = backtest.result_so_far();
        prop_assert_eq!(result.untested, 0);
        prop_assert!(result.if_declined.is_empty() && result.if_approved.is_empty(), "{:?}", result);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn an_update_preview_compares_with_the_current_limits(
        limits in limits(),
        steps in prop::collection::vec(step(), 1..60),
        current in change(),
        drawn in change(),
        keeps in 0..3_u8,
        first in 0..20_usize,
    ) {
        let proposed = match keeps {
            0 => Change { rules: current.rules.clone(), ..drawn },
            1 => Change { policies: current.policies, ..drawn },
            _ => drawn,
        };
        let recorded = record(limits, &steps);
        let first = first.min(recorded.len());
        let preview = |proposed: &Change| {
            run(Backtest::for_update(current.candidate(), proposed.candidate()), &recorded, first)
        };
        let result = preview(&proposed);
        for (is_approved, found) in [(false, &result.if_declined), (true, &result.if_approved)] {
            let [before, after] = [&current, &proposed].map(|limits| simulate(limits, &recorded, first, is_approved));
            prop_assert_eq!(flipped(found), compare(&recorded[first..], &before, &after));
        }
        let same = preview(&current);
        prop_assert!(same.if_declined.is_empty() && same.if_approved.is_empty(), "{:?}", same);
        prop_assert_eq!(same.decisions, u64::try_from(recorded.len() - first).unwrap());
    }
}

fn limits_of(habits: Habits) -> Limits {
    Limits {
        frozen: false,
        policies: [(true, 100, 100, 1_000); 2],
        budgets: vec![],
        asks: None,
        blocks_finance: false,
        habits,
    }
}

fn call(gap: u64, amount: u64) -> Step {
    Step {
        gap,
        index: 0,
        operation: 0,
        amount,
        query: 0,
        released: None,
        approved: false,
        edit: None,
    }
}

fn guard(id: u128, length: u32, services: Option<Vec<ServiceSlug>>) -> Rule {
    Rule {
        id: rule_id(id),
        version: 1,
        kind: RuleKind::DuplicateGuard(DuplicateGuard {
            services,
            within: hours(length),
            action: LimitAction::Block,
        }),
    }
}

/// A later payment fits, because the proposal denies an earlier one.
#[test]
fn a_payment_denied_in_a_backtest_leaves_its_amount_to_later_payments() {
    let recorded = record(
        limits_of(Habits::default()),
        &[call(60, 60), call(60, 50), call(60, 40)],
    );
    let results = recorded.iter().map(|one| one.decision.result);
    assert!(results.eq([DecisionResult::Allow, DecisionResult::Block, DecisionResult::Allow]));
    let change = Change {
        status: None,
        policies: [Some((true, 55, 100, 1_000)), None],
        rules: None,
    };
    let result = backtest(change.candidate(), &recorded, 0);
    let (flips, saved, added) = flipped(&result.if_declined);
    assert_eq!((saved, added), (60, 50));
    // The result of a backtest of two agents is the sum of both results.
    let mut both = result.clone();
    both.add(&result);
    let twice = |sums: (u64, u64)| (2 * sums.0, 2 * sums.1);
    let (all, ..) = flipped(&both.if_approved);
    assert!(
        all.into_iter()
            .eq(flips.iter().map(|(kind, sums)| (kind.clone(), twice(*sums))))
    );
    assert_eq!((both.if_declined.saved, both.if_declined.added), (120, 100));
    assert_eq!((both.decisions, both.authorized), (6, 200));
    assert_eq!(both.if_declined.counts.values().sum::<u64>(), 6);
    let kinds: Vec<_> = flips.into_keys().collect();
    assert_eq!(
        kinds,
        [
            (
                DecisionResult::Allow,
                DecisionResult::Block,
                "amount_exceeds_per_call_limit".to_owned()
            ),
            (
                DecisionResult::Block,
                DecisionResult::Allow,
                "daily_spend_limit_exceeded".to_owned()
            ),
        ]
    );
}

/// For an existing duplicate guard, the recorded decisions contain the comparison's result.
#[test]
fn only_new_duplicate_guards_read_the_recorded_calls() {
    let with = |rules: Vec<Rule>| Agent {
        rules,
        ..limits_of(Habits::default()).agent(1)
    };
    let compares = |rules: Option<Vec<Rule>>, index: usize| {
        let candidate = ProposedLimits {
            rules,
            status: None,
            policies: BTreeMap::new(),
        };
        candidate.adds_duplicate_guard(&with(vec![guard(1, 1, None)]), &service(index))
    };
    assert!(!compares(None, 0));
    assert!(!compares(Some(vec![guard(1, 1, None)]), 0));
    assert!(compares(Some(vec![guard(1, 2, None)]), 0));
    assert!(compares(Some(vec![guard(2, 1, None)]), 0));
    let of_first = || Some(vec![guard(2, 1, Some(vec![ServiceSlug::parse(SLUGS[0]).unwrap()]))]);
    assert_eq!([0, 1].map(|index| compares(of_first(), index)), [true, false]);
    let other = limits_of(Habits {
        asks_for_new_payees: true,
        ..Habits::default()
    });
    assert!(!compares(Some(other.rules()), 0));
}

#[test]
fn backtest_differences_in_any_single_field_are_reported() {
    assert!(Differences::default().is_empty());
    let others: [fn(&mut Differences); 3] = [|one| one.other_reasons = 1, |one| one.saved = 1, |one| one.added = 1];
    for change in others {
        let mut one = Differences::default();
        change(&mut one);
        assert!(!one.is_empty(), "{one:?}");
    }
}

#[test]
fn a_backtest_infers_an_earlier_payment_from_a_recorded_decision() {
    let habits = Habits {
        guard: Some((1, false)),
        asks_for_new_payees: true,
        ..Habits::default()
    };
    let first = Step {
        approved: true,
        ..call(60, 20)
    };
    let other = Step {
        query: 1,
        ..call(60, 20)
    };
    let recorded = record(limits_of(habits), &[first, call(60, 20), other]);
    let results = recorded.iter().map(|one| one.decision.result);
    let [asks, allows, blocks] = [DecisionResult::Escalate, DecisionResult::Allow, DecisionResult::Block];
    assert!(results.eq([asks, allows, blocks, allows]));
    // Other parameters, so that the rules do not equal the recorded rules.
    let services = Some(vec![ServiceSlug::parse(SLUGS[0]).unwrap()]);
    let new_payee = Rule {
        id: rule_id(NEW_PAYEE),
        version: 2,
        kind: RuleKind::NewPayee(NewPayee {
            services: services.clone(),
        }),
    };
    let candidate = ProposedLimits {
        rules: Some(vec![guard(GUARD, 2, services), new_payee]),
        ..ProposedLimits::default()
    };
    assert!(backtest(candidate, &recorded[2..], 0).if_declined.is_empty());
}

/// Both payments are made at the same time.
#[test]
fn a_backtest_does_not_repeat_approved_calls() {
    let asks = Limits {
        policies: [(true, 100, 100, 10); 2],
        ..limits_of(Habits::default())
    };
    let approved = |gap| Step {
        approved: true,
        ..call(gap, 20)
    };
    let (first, second) = (record(asks.clone(), &[approved(60)]), record(asks, &[approved(120)]));
    let mut recorded: Vec<Recorded> = first.into_iter().chain(second).collect();
    recorded.sort_by_key(|one| one.decision.at);
    let change = Change {
        status: None,
        policies: [Some((true, 100, 100, 50)), None],
        rules: None,
    };
    let result = backtest(change.candidate(), &recorded, 0);
    assert_eq!((result.if_declined.saved, result.if_declined.added), (0, 0));
}

#[test]
fn a_backtest_reads_back_as_far_as_the_proposed_rules_need() {
    let limits = |budget, habits| Limits {
        budgets: vec![(0, 100, budget)],
        ..limits_of(habits)
    };
    let new_payees = Habits {
        asks_for_new_payees: true,
        ..Habits::default()
    };
    let named = |limits: &Limits| ProposedLimits {
        rules: Some(limits.rules()),
        ..ProposedLimits::default()
    };
    let (long, short) = (limits(48, Habits::default()), limits(1, Habits::default()));
    assert_eq!(named(&long).required_lookback(&[]), hours(48));
    assert_eq!(named(&short).required_lookback(&long.rules()), Duration::DAY);
    // Decisions record the use of windows, but not recent payments.
    assert_eq!(
        ProposedLimits::default().required_lookback(&long.rules()),
        Duration::DAY
    );
    assert_eq!(
        ProposedLimits::default().required_lookback(&[guard(GUARD, 30, None)]),
        hours(30)
    );
    assert_eq!(named(&limits(1, new_payees)).required_lookback(&[]), MAX_BUDGET_WINDOW);
}

#[test]
fn a_backtest_evaluates_the_page_that_a_call_fetches() {
    let limits = limits_of(Habits::default());
    let judges = |fetches, domain: &str| {
        let mut service = service(0);
        service.operations[0].fetches_target = Some(fetches);
        let mut enabled = limits.policy(0);
        enabled.policy.allowed_domains = vec![DomainPattern::parse(domain).unwrap()];
        let agent = limits.agent(1);
        let inputs = ReplayInputs {
            agent: &agent,
            service: &service,
            enabled: Some(&enabled),
        };
        ProposedLimits::default().may_depend_on_call_details(&inputs, &service.operations[0].slug)
    };
    assert!(judges(true, "example.org"));
    assert!(!judges(true, "*") && !judges(false, "example.org"));
}

#[test]
fn payments_that_a_backtest_cannot_evaluate_count_in_its_windows() {
    let recorded = record(limits_of(Habits::default()), &[call(60, 60), call(60, 30)]);
    let budget = Limits {
        budgets: vec![(0, 80, 24)],
        ..limits_of(Habits::default())
    };
    let mut backtest = Backtest::new(ProposedLimits {
        rules: Some(budget.rules()),
        ..ProposedLimits::default()
    });
    backtest.record_untested_decision(None);
    backtest.record_untested_decision(Some(recorded[0].payment()));
    backtest.test_decision(&recorded[1].as_tested());
    let result = backtest.result_so_far();
    assert_eq!((result.decisions, result.untested), (1, 2));
    assert_eq!(result.if_declined.saved, 30, "{result:?}");
}

/// A rule keeps its id if the agent has an equal rule, or a replaced rule with the same window.
#[test]
fn proposed_limits_update_the_agents_current_limits() {
    let hour = |count| {
        RuleKind::CountLimit(CountLimit {
            count,
            window: hours(1).into(),
        })
    };
    let payee = || RuleKind::NewPayee(NewPayee { services: None });
    let agent = Agent {
        rules: [(7, hour(1)), (8, hour(2)), (9, payee())]
            .map(|(id, kind)| Rule {
                id: rule_id(id),
                version: 3,
                kind,
            })
            .to_vec(),
        ..limits_of(Habits::default()).agent(1)
    };
    let rules = |kinds: &[RuleKind]| -> Vec<(u128, u64, RuleKind)> {
        let terms = TestedLimits {
            rules: Some(kinds.to_vec()),
            ..TestedLimits::default()
        };
        let rules = terms.proposed_limits(&agent, &[]).rules.unwrap();
        let told = rules.into_iter();
        told.map(|rule| (rule.id.uuid().as_u128(), rule.version, rule.kind))
            .collect()
    };
    assert_eq!(rules(&[payee(), hour(2)]), [(9, 3, payee()), (8, 3, hour(2))]);
    // The second rule equals one of the agent's rules, so the first replaces the other.
    assert_eq!(rules(&[hour(5), hour(2)]), [(7, 4, hour(5)), (8, 3, hour(2))]);
    assert_eq!(rules(&[hour(1), hour(5)]), [(7, 3, hour(1)), (8, 4, hour(5))]);
    let longer = RuleKind::CountLimit(CountLimit {
        count: 1,
        window: hours(2).into(),
    });
    let narrower = RuleKind::NewPayee(NewPayee { services: Some(vec![]) });
    assert_eq!(
        rules(&[longer.clone(), narrower.clone()]),
        [(1, 1, longer), (2, 1, narrower)]
    );
    let change = |enabled| PolicyChange {
        enabled,
        policy: PolicyUpdate {
            max_per_call: Some(units(5)),
            ..PolicyUpdate::default()
        },
    };
    let present = limits_of(Habits::default()).policy(0);
    let [first, second, third] = [0, 1, 2].map(|number| ServiceId::from_uuid(Uuid::from_u128(number)));
    let terms = TestedLimits {
        rules: None,
        status: Some(AgentStatus::Frozen),
        policies: BTreeMap::from([
            (first, change(None)),
            (second, change(Some(true))),
            (third, change(None)),
        ]),
    };
    let found = terms.proposed_limits(&agent, std::slice::from_ref(&present));
    assert_eq!((found.rules, found.status), (None, Some(AgentStatus::Frozen)));
    let edited = |policy: SpendPolicy, service, version| EnabledService {
        service,
        version,
        enabled: true,
        policy: policy.apply(&change(None).policy),
    };
    let expected = [
        (first, edited(present.policy.clone(), first, present.version)),
        (second, edited(SpendPolicy::spec_defaults(), second, 0)),
    ];
    assert_eq!(found.policies, BTreeMap::from(expected));
}

/// The recorded limits did not need the approval.
#[test]
fn an_unused_approval_counts_if_the_proposed_limits_require_one() {
    let recorded = record(limits_of(Habits::default()), &[call(60, 20)]);
    let change = Change {
        status: None,
        policies: [Some((true, 100, 100, 10)), None],
        rules: None,
    };
    let approval = ApprovalId::derive(AgentId::from_uuid(Uuid::nil()), &Fingerprint::for_text("x"), 0);
    for (approval, flipped) in [(Some(approval), 0), (None, 1)] {
        let mut backtest = Backtest::new(change.candidate());
        backtest.test_decision(&BacktestDecision {
            approval,
            ..recorded[0].as_tested()
        });
        assert_eq!(backtest.result_so_far().if_declined.count_changed(), flipped);
    }
}

/// Of two budgets with the same remaining amount, the first is recorded.
#[test]
fn a_backtest_assumes_an_unrecorded_budget_has_no_more_left_than_the_recorded_one() {
    let limits = Limits {
        policies: [(true, 100, 1_000, 1_000); 2],
        budgets: vec![(0, 100, 1), (1, 140, 48)],
        ..limits_of(Habits::default())
    };
    let steps = [call(60, 40), call(7_200, 60), call(60, 41)];
    let recorded = record(limits.clone(), &steps);
    assert_eq!(recorded[2].decision.reason, format!("budget_limit:{}", rule_id(0)));
    let candidate = ProposedLimits {
        rules: Some(limits.rules().split_off(1)),
        ..ProposedLimits::default()
    };
    let result = backtest(candidate, &recorded, 0);
    assert_eq!(
        (result.if_declined.count_changed(), result.if_declined.other_reasons),
        (0, 1)
    );
}

#[test]
fn a_backtest_needs_service_names_only_for_per_service_rules() {
    let count = |only| Habits {
        counts: vec![(300, 5, 1, only)],
        ..Habits::default()
    };
    let names = |rules: Vec<Rule>| {
        let candidate = ProposedLimits {
            rules: Some(rules),
            ..ProposedLimits::default()
        };
        candidate.has_service_specific_counting_rule()
    };
    assert!(!ProposedLimits::default().has_service_specific_counting_rule());
    assert!(names(limits_of(count(true)).rules()) && !names(limits_of(count(false)).rules()));
    let services = Some(vec![ServiceSlug::parse(SLUGS[0]).unwrap()]);
    assert!(!names(vec![guard(GUARD, 1, services)]));
}

/// One read unit covers 8,192 bytes of decisions or one call. Each agent adds ten units.
#[test]
fn the_estimated_reads_of_a_backtest_grow_with_its_decisions() {
    let plain = TestedLimits::default();
    let guarded = TestedLimits {
        rules: Some(vec![guard(GUARD, 1, None).kind]),
        ..TestedLimits::default()
    };
    let most = u64::try_from(BacktestRun::MAX_CALLS).unwrap();
    for (decisions, agents, expected) in [(0, 1, 10), (8_192, 2, 920), (100_000, 1, 10_996)] {
        assert_eq!(plain.estimated_read_units(decisions, agents), expected);
        let calls = decisions.min(agents * most);
        assert_eq!(guarded.estimated_read_units(decisions, agents), expected + calls);
    }
}

#[test]
fn a_backtest_run_tests_agents_one_after_another() {
    let agents = [1, 2, 3].map(|number| AgentId::from_uuid(Uuid::from_u128(number)));
    let mut run = BacktestRun {
        id: BacktestId::from_uuid(Uuid::nil()),
        owner: UserId::derive("issuer", "subject"),
        version: 1,
        created_at: at(0),
        from: at(0),
        to: at(1),
        terms: TestedLimits::default(),
        agents: agents.to_vec(),
        estimated: 0,
        done: 0,
        left_out: 0,
        partial: 0,
        result: BacktestResult::default(),
    };
    let tested = |is_partial| AgentTested::Tested {
        result: BacktestResult {
            decisions: 5,
            ..BacktestResult::default()
        },
        is_partial,
    };
    for (agent, outcome) in agents
        .into_iter()
        .zip([tested(false), tested(true), AgentTested::LeftOut])
    {
        assert_eq!(run.next_agent(), Some(agent));
        run = run.with_tested_agent(&outcome);
    }
    assert_eq!(run.next_agent(), None);
    let told = (run.version, run.done, run.left_out, run.partial, run.result.decisions);
    assert_eq!(told, (4, 3, 1, 1, 10));
}

#[test]
fn a_backtest_groups_kinds_of_changed_decisions_beyond_the_maximum() {
    let kind = |reason: &str| ChangedDecisionKind {
        recorded: DecisionResult::Allow,
        tested: DecisionResult::Block,
        reason: reason.to_owned(),
    };
    let flips = || ChangedDecisions {
        count: 1,
        amount: 5,
        example: ChangedDecisionExample {
            agent: AgentId::from_uuid(Uuid::nil()),
            transaction: TransactionId::from_uuid(Uuid::nil()),
            at: at(0),
            service: service(0).id,
            amount: units(5),
        },
    };
    let result = |reasons: &[String]| BacktestResult {
        if_declined: Differences {
            flips: reasons.iter().map(|reason| (kind(reason), flips())).collect(),
            ..Differences::default()
        },
        ..BacktestResult::default()
    };
    let most: Vec<String> = (0..Differences::MAX_KINDS).map(|number| format!("r{number}")).collect();
    let mut sum = result(&most);
    sum.add(&result(&["r0", "x", "y"].map(str::to_owned)));
    let flips = &sum.if_declined.flips;
    let of = |reason| (flips[&kind(reason)].count, flips[&kind(reason)].amount);
    assert_eq!(flips.len(), Differences::MAX_KINDS + 1);
    assert_eq!(
        [of("r0"), of("r1"), of(Differences::OTHER_REASON)],
        [(2, 10), (1, 5), (2, 10)]
    );
}
