//! Denied payments, over generated agents, catalogs, policies, rules and windows.
//!
//! `Case::against` implements the contract's error table (`docs/spec.md` §7) a second time, independently of the
//! evaluator. First, one check after the other fails in order. Then everything varies together.
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "tests calculate what they expect"
)]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use purser_domain::*;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

const PAYEES: [&str; 3] = [
    "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    "0x90F79bf6EB2c4f870365E785982E1f101E93b906",
    WALLET,
];
const WALLET: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const SLUGS: [&str; 4] = ["web.search", "web.scrape", "lab.crawl-deep", "web.skyscraper"];
const SERVICES: [&str; 2] = ["lab", "other"];
const CATEGORIES: [Category; 3] = [Category::Search, Category::Scrape, Category::Finance];

/// Hosts for tests of the domain allowlist (`docs/spec.md` §4.10).
const HOSTS: [&str; 8] = [
    "example.com",
    "a.example.com",
    "a.b.example.com",
    "evil-example.com",
    "example.com.evil.org",
    "api-eu.example.com",
    "api-.x.example.com",
    "127.0.0.1",
];
const ENTRIES: [(&str, [bool; 8]); 5] = [
    ("example.com", [true, true, true, false, false, true, true, false]),
    ("*.example.com", [false, true, false, false, false, true, false, false]),
    (
        "api-*.example.com",
        [false, false, false, false, false, true, false, false],
    ),
    ("evil.org", [false, false, false, false, true, false, false, false]),
    ("127.0.0.1", [false, false, false, false, false, false, false, true]),
];

const NOW: u64 = 10_000_000;

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn address(payee: usize) -> Address {
    parse_address(PAYEES[payee]).unwrap()
}

/// The indexes of the slug and the payee, the category, and the maximum price.
type CatalogOperation = (usize, Category, Option<usize>, Option<u64>);

/// The age in microseconds and the amount of each payment.
type Spent = Vec<(i64, u64)>;

#[derive(Clone, Debug)]
enum Said {
    Categories(Vec<Category>),
    Vendors {
        services: Vec<usize>,
        wallets: Vec<usize>,
    },
    /// The limit, the hours, the payments, and whether the window is among the inputs.
    Budget(u64, u32, Spent, bool),
    Approval {
        services: Option<Vec<usize>>,
        categories: Option<Vec<Category>>,
        above: Option<u64>,
    },
    /// The services, the maximum, the hours, and the payments' ages in microseconds.
    Count(Scope, u32, u32, Vec<i64>),
    /// The services, the hours, and the last payment's age in microseconds.
    Interval(Scope, u32, Option<i64>),
    /// The services, the seconds, and whether the rule blocks.
    Duplicate(Scope, u32, bool),
    Payee(Scope),
    /// The services, the percentage, the number of prices of the median, and whether the rule blocks.
    Price(Scope, u32, Option<u8>, bool),
    /// The services, and whether the schedule is open.
    Schedule(Scope, bool),
}

/// The indexes of the services to which a rule applies; `None` for all services.
type Scope = Option<Vec<usize>>;

/// Owns the values that the inputs of a decision borrow.
struct Given {
    agent: Agent,
    intent: Intent,
    service: Service,
    operation: Option<Operation>,
    payee_from: Option<Timestamp>,
    enabled: Option<EnabledService>,
    day: Window,
    budgets: Vec<(RuleId, Window)>,
    recent: RecentPayments,
    frozen_by_operators: Option<Freeze>,
    /// The limits that a user approved.
    approved: Option<Vec<AskingLimit>>,
    balance: Option<Amount>,
    at: Timestamp,
    eviction: Eviction,
}

fn asking_limits(agent: &Agent) -> Vec<AskingLimit> {
    let limit = |rule, kind| AskingLimit {
        rule,
        above: Amount::ZERO,
        kind,
    };
    let rules = agent.rules.iter();
    let rules = rules.filter_map(|rule| Some(limit(Some(rule.id), AskingKind::from_name(rule.kind.name())?)));
    std::iter::once(limit(None, AskingKind::Threshold))
        .chain(rules)
        .collect()
}

const KEY: KeyId = KeyId(7);

impl Given {
    fn approval(&self) -> Option<ApprovalId> {
        let id = || ApprovalId::derive(self.agent.id, &self.intent.fingerprint, 0);
        self.approved.is_some().then(id)
    }

    fn decide(&self) -> Decision<'_> {
        evaluate(&EvaluationInputs {
            agent: &self.agent,
            intent: &self.intent,
            key: KEY,
            service: &self.service,
            operation: self.operation.as_ref(),
            payee_from: self.payee_from,
            network: Network::BaseSepolia,
            enabled: self.enabled.as_ref(),
            day: &self.day,
            budgets: &self.budgets,
            recent: &self.recent,
            frozen_by_operators: self.frozen_by_operators,
            approval: self
                .approval()
                .zip(self.approved.as_deref())
                .map(|(id, asking)| GivenApproval { id, asking }),
            balance: self.balance,
            at: self.at,
            eviction: self.eviction,
        })
    }
}

impl Given {
    fn inputs(&self) -> ReplayInputs<'_> {
        ReplayInputs {
            agent: &self.agent,
            service: &self.service,
            enabled: self.enabled.as_ref(),
        }
    }

    /// Returns the decision's record; `None` if the decision is not recorded.
    fn recorded(&self) -> Option<RecordedDecision> {
        let (result, reason, checks) = match self.decide() {
            Decision::NeedsTarget => return None,
            Decision::Allow(grant) => (
                DecisionResult::Allow,
                ALLOWED_REASON.to_owned(),
                grant.checks().to_vec(),
            ),
            Decision::Refuse(denial) => (denial.reason.result(), denial.reason.reason_text(), denial.checks),
        };
        let operation = self.operation.as_ref();
        let called = operation.map(|operation| &operation.slug);
        Some(RecordedDecision {
            result,
            reason,
            checks,
            operation: called.or(self.intent.operation.as_ref()).cloned(),
            amount: self.intent.offer.amount(),
            pay_to: self.intent.offer.pay_to(),
            key: KEY,
            network: Network::BaseSepolia,
            call: CallDescription::new(&self.intent, operation, Network::BaseSepolia, self.at),
            at: self.at,
            policy_version: self.enabled.as_ref().map(|enabled| enabled.version),
            inputs: None,
        })
    }
}

/// Replays the decision from only the statement and the documents of the inputs.
fn replay_from_file(given: &Given, recorded: &RecordedDecision) -> Result<Vec<ReplayDifference>, NoReplay> {
    let versions = InputVersions {
        engine: ENGINE_VERSION,
        agent: given.agent.version,
        service: given.service.version,
    };
    let decision = RecordedDecision {
        inputs: Some(versions),
        ..recorded.clone()
    };
    let documents = InputDocuments::new(&given.inputs(), decision.at);
    let stated = StatedDecision {
        ids: DecisionIds {
            transaction: TransactionId::from_uuid(Uuid::from_u128(1)),
            agent: given.agent.id,
            key: KEY,
            service: given.service.id,
            settlement: (recorded.result == DecisionResult::Allow).then(|| SettlementId::from_uuid(Uuid::from_u128(2))),
            approval: given.approval(),
        },
        decision: &decision,
        inputs: Some((versions, &documents)),
    };
    replay_stated_decision(&stated.to_json(&EventSource::default()), &documents.to_json())
}

fn is_documented(given: &Given, recorded: &RecordedDecision) -> bool {
    let failed = |check: &Check| check.name == CheckName::Domain && check.outcome == CheckOutcome::Failed;
    let called = given.operation.as_ref();
    called.is_none_or(|operation| operation.pricing_at(given.at).payment.is_some())
        && !recorded.checks.iter().any(failed)
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, in every combination")]
struct Case {
    enabled: Option<bool>,
    frozen: bool,
    /// Used only by `the_first_failed_check_determines_the_reason`.
    frozen_by_operators: Option<Freeze>,
    service_category: Category,
    operations: Vec<CatalogOperation>,
    /// The called operation, if the catalog has it.
    called: Option<usize>,
    /// Whether the request names an operation that the catalog does not have.
    named_unknown: bool,
    enabled_operations: Option<Vec<usize>>,
    /// Indexes into `HOSTS`; `None` for `*`.
    domains: Option<Vec<usize>>,
    target: Option<usize>,
    price: u64,
    pay_to: usize,
    ceiling: u64,
    per_call: u64,
    per_day: u64,
    threshold: u64,
    day: Spent,
    rules: Vec<Said>,
    /// The age of the last payment for the same call, in microseconds.
    repeated: Option<i64>,
    /// Whether the payee was paid before.
    known_payee: bool,
    /// The prices that were paid for the operation, oldest first.
    paid: Vec<u64>,
    approval: bool,
    balance: Option<u64>,
    eager: bool,
    /// Whether the catalog lists other networks, or no fixed price. Used only by
    /// `the_first_failed_check_determines_the_reason`.
    other_network: bool,
    metered: bool,
}

const HOUR: i64 = 3_600_000_000;

/// Generates ages at the end of a window, one microsecond around it, and at any other time.
fn spent(hours: i64) -> impl Strategy<Value = Spent> {
    let end = hours * HOUR;
    let age = prop_oneof![Just(0), Just(end - 1), Just(end), Just(end + 1), 0..end * 2];
    prop::collection::vec((age, 1_u64..60), 0..4)
}

fn some_categories() -> impl Strategy<Value = Vec<Category>> {
    prop::collection::vec(select(CATEGORIES.to_vec()), 1..3)
}

fn rule() -> impl Strategy<Value = Said> {
    let some_services = || prop::collection::vec(0..SERVICES.len(), 0..3);
    let budget = (1_u32..48).prop_flat_map(|hours| {
        let limit = prop_oneof![4 => 60_u64..400, 1 => 1_u64..60];
        (limit, Just(hours), spent(i64::from(hours)), prop::bool::weighted(0.95))
    });
    prop_oneof![
        1 => some_categories().prop_map(Said::Categories),
        2 => (some_services(), prop::collection::vec(0..PAYEES.len(), 0..3))
            .prop_map(|(services, wallets)| Said::Vendors { services, wallets }),
        3 => budget.prop_map(|(limit, hours, spent, known)| Said::Budget(limit, hours, spent, known)),
        2 => (prop::option::of(some_services()), prop::option::of(some_categories()), prop::option::of(1_u64..80))
            .prop_map(|(services, categories, above)| Said::Approval { services, categories, above }),
        3 => limit(),
    ]
}

fn limit() -> impl Strategy<Value = Said> {
    let scope = || prop::option::of(select(vec![vec![0], vec![0, 1], vec![1]]));
    let age = |hours: u32| {
        let end = i64::from(hours) * HOUR;
        prop_oneof![Just(0), Just(end - 1), Just(end), 0..end * 2]
    };
    let count = (1_u32..48)
        .prop_flat_map(move |hours| (scope(), 1_u32..4, Just(hours), prop::collection::vec(age(hours), 0..4)));
    let interval = (1_u32..48).prop_flat_map(move |hours| (scope(), Just(hours), prop::option::of(age(hours))));
    prop_oneof![
        count.prop_map(|(scope, count, hours, ages)| Said::Count(scope, count, hours, ages)),
        interval.prop_map(|(scope, hours, age)| Said::Interval(scope, hours, age)),
        (scope(), 1_u32..100, any::<bool>()).prop_map(|(scope, within, blocks)| Said::Duplicate(scope, within, blocks)),
        scope().prop_map(Said::Payee),
        (
            scope(),
            prop_oneof![0_u32..100, 100_u32..10_000],
            prop::option::of(3_u8..10),
            any::<bool>()
        )
            .prop_map(|(scope, percent, over, blocks)| Said::Price(scope, percent, over, blocks)),
        (scope(), prop::bool::weighted(0.8)).prop_map(|(scope, open)| Said::Schedule(scope, open)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let often = |p: f64| prop::bool::weighted(p);
    let operation = (
        0..SLUGS.len(),
        select(CATEGORIES.to_vec()),
        prop::option::weighted(0.8, select(vec![0_usize, 0, 0, 1])),
        prop::option::weighted(0.9, 20_u64..90),
    );
    let catalog = (
        select(CATEGORIES.to_vec()),
        prop::collection::vec(operation, 1..3),
        any::<Index>(),
        often(0.85),
        often(0.05),
    );
    let scope = (
        prop::option::weighted(0.3, prop::collection::vec(0..SLUGS.len(), 0..4)),
        prop::option::weighted(0.4, prop::collection::vec(0..ENTRIES.len(), 0..3)),
        prop::option::weighted(0.8, 0..HOSTS.len()),
    );
    let high = || prop_oneof![4 => 60_u64..400, 1 => 1_u64..60];
    let prices = (1_u64..60, high(), high(), high(), high(), spent(24));
    let parties = (
        prop::option::weighted(0.97, often(0.97)),
        often(0.03),
        select(vec![0_usize, 0, 0, 0, 0, 0, 1, 2]),
        prop::collection::vec(rule(), 0..4),
        (
            prop::option::of(prop_oneof![
                0_i64..100_000_000,
                (0_i64..100).prop_map(|secs| secs * 1_000_000)
            ]),
            any::<bool>(),
            prop::collection::vec(1_u64..60, 0..10),
        ),
        often(0.4),
        prop::option::weighted(0.8, high()),
        any::<bool>(),
    );
    (catalog, scope, prices, parties).prop_map(
        |(
            (service_category, operations, which, is_called, named_unknown),
            (enabled_operations, domains, target),
            (price, ceiling, per_call, per_day, threshold, day),
            (enabled, frozen, pay_to, rules, (repeated, known_payee, paid), approval, balance, eager),
        )| Case {
            called: (is_called && !named_unknown).then(|| which.index(operations.len())),
            enabled,
            frozen,
            frozen_by_operators: None,
            service_category,
            operations,
            named_unknown,
            enabled_operations,
            domains,
            target,
            price,
            pay_to,
            ceiling,
            per_call,
            per_day,
            threshold,
            day,
            rules,
            repeated,
            known_payee,
            paid,
            approval,
            balance,
            eager,
            other_network: false,
            metered: false,
        },
    )
}

fn rule_id(index: usize) -> RuleId {
    RuleId::from_uuid(Uuid::from_u128(100 + u128::try_from(index).unwrap()))
}

fn window(scope: WindowScope, duration: Duration, spent: &Spent) -> Window {
    let now = Timestamp::from_secs(NOW).unwrap();
    let mut oldest: Vec<Entry> = spent
        .iter()
        .map(|(age, amount)| Entry {
            at: Timestamp::from_micros(now.micros() - age).unwrap(),
            amount: units(*amount),
            settlement: SettlementId::from_uuid(Uuid::nil()),
        })
        .collect();
    oldest.sort_by_key(|entry| entry.at);
    Window {
        scope,
        period: WindowPeriod::Rolling(duration),
        total: units(spent.iter().map(|(_, amount)| amount).sum()),
        version: 1,
        stamp: 7,
        watermark: Timestamp::EPOCH,
        oldest,
        complete: true,
    }
}

impl Case {
    /// Returns a payment that passes every check.
    fn fine() -> Self {
        Self {
            enabled: Some(true),
            frozen: false,
            frozen_by_operators: None,
            service_category: Category::Search,
            operations: vec![(0, Category::Search, Some(0), Some(100_000))],
            called: Some(0),
            named_unknown: false,
            enabled_operations: None,
            domains: None,
            target: None,
            price: 50,
            pay_to: 0,
            ceiling: 100,
            per_call: 100,
            per_day: 1_000,
            threshold: 100,
            day: vec![],
            rules: vec![],
            repeated: None,
            known_payee: true,
            paid: vec![],
            approval: false,
            balance: Some(1_000),
            eager: true,
            other_network: false,
            metered: false,
        }
    }

    fn given(&self) -> Given {
        let agent_id = AgentId::from_uuid(Uuid::from_u128(1));
        let service_id = ServiceId::from_uuid(Uuid::from_u128(2));
        let url = Url::parse("https://lab.example/x").unwrap();
        let network = [Network::BaseSepolia, Network::Base][usize::from(self.other_network)];
        let slug = |index: usize| OperationSlug::parse(SLUGS[index]).unwrap();
        let service_slug = |index: &usize| ServiceSlug::parse(SERVICES[*index]).unwrap();
        let operations = self.operations.iter().map(|(name, category, payee, max)| Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(3)),
            slug: slug(*name),
            availability: Availability::PaidX402,
            label: String::new(),
            method: "GET".into(),
            endpoint: Endpoint::parse(url.as_str()).unwrap(),
            category: *category,
            execution: "sync".into(),
            price_model: if self.metered { "metered" } else { "fixed" }.into(),
            estimated_price: units(1),
            max_price: max.map(units),
            params: json!({}),
            fetches_target: None,
            next: None,
            payment: payee.map(|payee| CatalogPayment {
                scheme: "exact".into(),
                network,
                amount: units(1),
                pay_to: address(payee),
            }),
        });
        let service = Service {
            id: service_id,
            version: 1,
            slug: service_slug(&0),
            name: String::new(),
            description: String::new(),
            website: url.clone(),
            logo_url: None,
            category: self.service_category,
            source: "test".into(),
            trust_status: TrustStatus::Listed,
            curated: true,
            history: ListingHistory::default(),
            operations: operations.collect(),
        };
        let mut budgets = Vec::new();
        let rules = self.rules.iter().enumerate().map(|(index, said)| {
            let kind = match said {
                Said::Categories(categories) => RuleKind::CategoryBlock(CategoryBlock {
                    categories: categories.clone(),
                }),
                Said::Vendors { services, wallets } => {
                    let services = services.iter().map(service_slug).map(Vendor::Service);
                    let wallets = wallets.iter().map(|wallet| Vendor::Wallet(address(*wallet)));
                    RuleKind::VendorAllowlist(VendorAllowlist {
                        vendors: services.chain(wallets).collect(),
                    })
                }
                Said::Budget(limit, hours, spent, known) => {
                    let length = Duration::from_secs_u32(hours * 3_600);
                    let scope = WindowScope::Budget {
                        agent: agent_id,
                        rule: rule_id(index),
                    };
                    if *known {
                        budgets.push((rule_id(index), window(scope, length, spent)));
                    }
                    RuleKind::BudgetLimit(BudgetLimit {
                        limit: units(*limit),
                        window: length.into(),
                    })
                }
                Said::Approval {
                    services,
                    categories,
                    above,
                } => RuleKind::ApprovalRequired(ApprovalRequired {
                    services: services
                        .as_ref()
                        .map(|services| services.iter().map(service_slug).collect()),
                    categories: categories.clone(),
                    above: above.map(units),
                }),
                Said::Count(..)
                | Said::Interval(..)
                | Said::Duplicate(..)
                | Said::Payee(..)
                | Said::Price(..)
                | Said::Schedule(..) => {
                    if let Some((length, ages)) = said.counts() {
                        let scope = WindowScope::Budget {
                            agent: agent_id,
                            rule: rule_id(index),
                        };
                        let paid = ages.into_iter().map(|age| (age, 1)).collect();
                        budgets.push((rule_id(index), window(scope, length, &paid)));
                    }
                    said.limit().unwrap()
                }
            };
            Rule {
                id: rule_id(index),
                version: 1,
                kind,
            }
        });
        let agent = Agent {
            id: agent_id,
            name: String::new(),
            owner: String::new(),
            created_at: Timestamp::EPOCH,
            status: [AgentStatus::Active, AgentStatus::Frozen][usize::from(self.frozen)],
            wallet: Wallet {
                key: WalletKey::Seed { index: 0 },
                address: parse_address(WALLET).unwrap(),
                attestation: WalletAttestation::from_bytes([0; 65]),
            },
            keys: vec![],
            rules: rules.collect(),
            archived: false,
            labels: Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        };
        let allowed = self.domains.as_ref().map_or_else(
            || vec![DomainPattern::any_domain()],
            |entries| {
                entries
                    .iter()
                    .map(|entry| DomainPattern::parse(ENTRIES[*entry].0).unwrap())
                    .collect()
            },
        );
        let enabled = self.enabled.map(|enabled| EnabledService {
            service: service_id,
            version: 7,
            enabled,
            policy: SpendPolicy {
                max_per_call: units(self.per_call),
                max_per_day: units(self.per_day),
                require_approval_above: units(self.threshold),
                enabled_operations: self
                    .enabled_operations
                    .as_ref()
                    .map(|list| list.iter().map(|index| slug(*index)).collect()),
                allowed_domains: allowed,
                raises: Vec::new(),
            },
        });
        let token = Network::BaseSepolia.token();
        let requirement = json!({
            "scheme": "exact", "network": "eip155:84532", "amount": self.price.to_string(),
            "asset": token.address.to_string(), "payTo": PAYEES[self.pay_to], "maxTimeoutSeconds": 60,
            "extra": {"name": token.name, "version": token.version},
        });
        let unknown = OperationSlug::parse("nobody.knows").unwrap();
        let intent = Intent {
            offer: Offer::choose_cheapest(&requirement, Network::BaseSepolia).unwrap(),
            max_payment: units(self.ceiling),
            request: ProviderRequest {
                method: "GET".into(),
                url,
                body_hash: None,
            },
            service: None,
            operation: self.named_unknown.then_some(unknown),
            target: self
                .target
                .map(|host| Target::parse(&format!("https://{}/", HOSTS[host])).unwrap()),
            metadata: Metadata::default(),
            fingerprint: Fingerprint::for_text("x"),
        };
        let day = window(
            WindowScope::Day {
                agent: agent_id,
                service: service_id,
            },
            Duration::DAY,
            &self.day,
        );
        Given {
            recent: self.recent(&intent),
            operation: self.called.map(|index| service.operations[index].clone()),
            payee_from: None,
            approved: self.approval.then(|| asking_limits(&agent)),
            balance: self.balance.map(units),
            agent,
            intent,
            service,
            enabled,
            day,
            budgets,
            frozen_by_operators: self.frozen_by_operators,
            at: Timestamp::from_secs(NOW).unwrap(),
            eviction: if self.eager { Eviction::Eager } else { Eviction::Needed },
        }
    }

    /// Returns every error that applies, in the order of `docs/errors.md`.
    fn against(&self) -> Vec<&'static str> {
        let operation = self.called.map(|index| &self.operations[index]);
        let categories = || std::iter::once(self.service_category).chain(operation.map(|operation| operation.1));
        let live = |spent: &Spent, hours: i64| -> u64 {
            spent
                .iter()
                .filter(|(age, _)| *age < hours * HOUR)
                .map(|(_, amount)| amount)
                .sum()
        };
        let enabled = self.enabled == Some(true);
        let mut against = Vec::new();
        let mut say = |stands: bool, slug| {
            if stands {
                against.push(slug);
            }
        };
        say(!enabled, "service_not_enabled");
        say(self.frozen, "agent_frozen");
        let listed = operation.is_some_and(|operation| {
            let is_listed = |list: &Vec<usize>| list.iter().any(|index| SLUGS[*index] == SLUGS[operation.0]);
            self.enabled_operations.as_ref().is_none_or(is_listed)
        });
        say(enabled && !listed, "operation_not_enabled_for_agent");

        let fetches = categories().any(|category| category == Category::Scrape)
            || operation.is_some_and(|operation| matches!(SLUGS[operation.0], "web.scrape" | "lab.crawl-deep"));
        if let (true, true, Some(entries)) = (enabled, fetches, &self.domains) {
            let covered = |host: usize| entries.iter().any(|entry| ENTRIES[*entry].1[host]);
            say(self.target.is_none(), "target_url_required");
            say(self.target.is_some_and(|host| !covered(host)), "domain_not_allowed");
        }
        say(self.price > self.ceiling, "amount_exceeds_max");
        say(enabled && self.price > self.per_call, "amount_exceeds_per_call_limit");

        let blocks =
            |said: &Said| matches!(said, Said::Categories(list) if categories().any(|one| list.contains(&one)));
        say(self.rules.iter().any(blocks), "category_block");
        let names_nobody = |said: &Said| matches!(said, Said::Vendors { services, wallets } if !services.contains(&0) && !wallets.contains(&self.pay_to));
        let wrong =
            operation.is_some_and(|(_, _, payee, max)| *payee != Some(self.pay_to) || self.price > max.unwrap_or(1));
        let redirected = PAYEES[self.pay_to] == WALLET || wrong;
        say(self.rules.iter().any(names_nobody) || redirected, "vendor_allowlist");
        let any =
            |holds: &dyn Fn(&Said) -> bool| self.rules.iter().any(|said| said.is_for_the_service() && holds(said));
        say(any(&|said| matches!(said, Said::Schedule(_, false))), "schedule");
        let used_up = |said: &Said| matches!(said, Said::Budget(limit, hours, spent, true) if live(spent, i64::from(*hours)) + self.price > *limit);
        say(self.rules.iter().any(used_up), "budget_limit");
        let made = |hours: u32, ages: &[i64]| ages.iter().filter(|age| **age < i64::from(hours) * HOUR).count();
        say(
            any(
                &|said| matches!(said, Said::Count(_, count, hours, ages) if made(*hours, ages) >= usize::try_from(*count).unwrap()),
            ),
            "count_limit",
        );
        say(
            any(&|said| matches!(said, Said::Interval(_, hours, age) if made(*hours, age.as_slice()) > 0)),
            "minimum_interval",
        );
        say(
            enabled && live(&self.day, 24) + self.price > self.per_day,
            "max_per_day_units",
        );

        let repeats = |blocks: bool| {
            any(&|said| {
                matches!(said, Said::Duplicate(_, within, block) if *block == blocks && operation.is_some()
                    && self.repeated.is_some_and(|age| age < i64::from(*within) * 1_000_000))
            })
        };
        let dear = |blocks: bool| {
            any(&|said| {
                let Said::Price(_, percent, over, block) = said else {
                    return false;
                };
                let usual = match over {
                    None => Some(1),
                    Some(count) => self.median(usize::from(*count)),
                };
                let above = usual.is_some_and(|usual| self.price * 100 > usual * u64::from(100 + percent));
                *block == blocks && operation.is_some() && above
            })
        };
        say(repeats(true), "duplicate_guard");
        say(dear(true), "price_above_usual");
        let asks = |said: &Said| {
            matches!(said, Said::Approval { services, categories: listed, above }
                if services.as_ref().is_none_or(|services| services.contains(&0))
                    && listed.as_ref().is_none_or(|list| categories().any(|one| list.contains(&one)))
                    && self.price > above.unwrap_or(0))
        };
        let asked = self.price > self.threshold || self.rules.iter().any(asks);
        say(enabled && asked && !self.approval, "approval");
        say(repeats(false) && !self.approval, "duplicate_guard");
        say(dear(false) && !self.approval, "price_above_usual");
        let is_new = any(&|said| matches!(said, Said::Payee(_))) && !self.known_payee;
        say(is_new && !self.approval, "new_payee");
        say(self.balance.is_some_and(|balance| self.price > balance), "usdc_balance");
        // A budget whose window is missing allows no payment.
        say(
            self.rules.iter().any(|said| matches!(said, Said::Budget(.., false))),
            "max_per_day_units",
        );
        against
    }
}

impl Case {
    fn recent(&self, intent: &Intent) -> RecentPayments {
        let now = Timestamp::from_secs(NOW).unwrap();
        let mut recent = RecentPayments::default();
        if let Some(index) = self.called {
            let operation = OperationSlug::parse(SLUGS[self.operations[index].0]).unwrap();
            let ago = |age: i64| Timestamp::from_micros(now.micros() - age).unwrap();
            let call = CallDigest::from_intent(intent, &operation);
            recent.calls.extend(self.repeated.map(|age| (call, ago(age))));
            let paid = PaidPrices {
                at: now,
                prices: self.paid.iter().copied().map(units).collect(),
            };
            recent.prices.push((OperationDigest::from_slug(&operation), paid));
        }
        if self.known_payee {
            recent
                .payees
                .push((PayeePrefix::from_address(intent.offer.pay_to()), now));
        }
        recent
    }

    /// Returns the lower median of the last `count` prices; `None` if there are fewer prices.
    fn median(&self, count: usize) -> Option<u64> {
        let first = self.paid.len().checked_sub(count)?;
        let mut last = self.paid[first..].to_vec();
        last.sort_unstable();
        Some(last[(count - 1) / 2])
    }
}

impl Said {
    fn scope(&self) -> Option<&Scope> {
        match self {
            Self::Count(scope, ..)
            | Self::Interval(scope, ..)
            | Self::Duplicate(scope, ..)
            | Self::Payee(scope)
            | Self::Price(scope, ..)
            | Self::Schedule(scope, _) => Some(scope),
            Self::Categories(_) | Self::Vendors { .. } | Self::Budget(..) | Self::Approval { .. } => None,
        }
    }

    fn is_for_the_service(&self) -> bool {
        self.scope()
            .is_none_or(|scope| scope.as_ref().is_none_or(|scope| scope.contains(&0)))
    }

    /// Returns the window's duration and the payments' ages, for a rule that counts payments.
    fn counts(&self) -> Option<(Duration, Vec<i64>)> {
        let length = |hours: u32| Duration::from_secs_u32(hours * 3_600);
        match self {
            Self::Count(_, _, hours, ages) => Some((length(*hours), ages.clone())),
            Self::Interval(_, hours, age) => Some((length(*hours), age.iter().copied().collect())),
            _ => None,
        }
    }

    fn limit(&self) -> Option<RuleKind> {
        let scope = self.scope()?.as_ref();
        let services = scope.map(|scope| {
            scope
                .iter()
                .map(|index| ServiceSlug::parse(SERVICES[*index]).unwrap())
                .collect()
        });
        let action = |blocks: bool| if blocks { LimitAction::Block } else { LimitAction::Ask };
        Some(match self {
            Self::Count(_, count, hours, _) => RuleKind::CountLimit(CountLimit {
                count: *count,
                window: RuleWindow {
                    services,
                    ..Duration::from_secs_u32(hours * 3_600).into()
                },
            }),
            Self::Interval(_, hours, _) => RuleKind::MinimumInterval(MinimumInterval {
                services,
                interval: Duration::from_secs_u32(hours * 3_600),
            }),
            Self::Duplicate(_, within, blocks) => RuleKind::DuplicateGuard(DuplicateGuard {
                services,
                within: Duration::from_secs_u32(*within),
                action: action(*blocks),
            }),
            Self::Payee(_) => RuleKind::NewPayee(NewPayee { services }),
            Self::Price(_, percent, over, blocks) => RuleKind::PriceAboveUsual(PriceAboveUsual {
                services,
                percent: *percent,
                over: over.map_or(UsualPrice::Catalog, UsualPrice::Median),
                action: action(*blocks),
            }),
            Self::Schedule(_, open) => RuleKind::Schedule(Schedule {
                services,
                zone: ZoneName::UTC,
                // The decision is made at 17:46 UTC.
                periods: vec![period(if *open { "17:00" } else { "18:00" }, "19:00")],
            }),
            Self::Categories(_) | Self::Vendors { .. } | Self::Budget(..) | Self::Approval { .. } => return None,
        })
    }
}

fn answered(decision: &Decision<'_>) -> Option<&'static str> {
    match decision {
        Decision::Allow(_) => None,
        Decision::NeedsTarget => Some("target_url_required"),
        Decision::Refuse(denial) => Some(match denial.reason.triggered_rule() {
            "service_enabled" => "service_not_enabled",
            "enabled_operations" => "operation_not_enabled_for_agent",
            "allowed_domains" => "domain_not_allowed",
            "max_payment_units" => "amount_exceeds_max",
            "max_per_call_units" => "amount_exceeds_per_call_limit",
            "require_approval_above_units" | "approval_required" => "approval",
            "catalog_payee" | "catalog_payment" | "catalog_price" => "vendor_allowlist",
            other => other,
        }),
    }
}

type Break = fn(&mut Case);

/// Applies the changes, last first, to a payment that passes every check, and returns the decision.
fn answer(changes: &[Break]) -> String {
    let mut case = Case::fine();
    for change in changes.iter().rev() {
        change(&mut case);
    }
    match case.given().decide() {
        Decision::Allow(_) => "allow".into(),
        Decision::NeedsTarget => "target_url_required".into(),
        Decision::Refuse(denial) => {
            let reason = denial.reason.reason_text();
            let rule = reason.split_once(":00000000-").map(|(kind, _)| kind.to_owned());
            rule.unwrap_or(reason)
        }
    }
}

/// In each row, the row's check and all later checks fail, and the row's error is expected.
#[test]
fn the_first_failed_check_determines_the_reason() {
    let rows: [(&str, Break); 29] = [
        ("service_not_enabled", |case| case.enabled = Some(false)),
        ("agent_frozen:owner", |case| {
            case.frozen_by_operators = Some(Freeze::Owner);
        }),
        ("agent_frozen", |case| case.frozen = true),
        ("operation_not_enabled_for_agent", |case| {
            case.enabled_operations = Some(vec![1]);
        }),
        ("target_url_required", |case| case.target = None),
        ("domain_not_allowed", |case| {
            case.service_category = Category::Scrape;
            case.domains = Some(vec![0]);
            case.target = Some(3);
        }),
        ("amount_exceeds_max", |case| case.ceiling = 49),
        ("amount_exceeds_per_call_limit", |case| case.per_call = 49),
        ("category_block:search", |case| {
            case.rules.push(Said::Categories(vec![Category::Search]));
        }),
        ("vendor_allowlist:lab", |case| {
            let (services, wallets) = (vec![], vec![]);
            case.rules.push(Said::Vendors { services, wallets });
        }),
        ("catalog_payee:pay_to_is_own_wallet", |case| case.pay_to = 2),
        ("catalog_payment:operation_has_no_payment", |case| {
            case.operations[0].2 = None;
        }),
        ("catalog_payment:operation_is_paid_on_another_network", |case| {
            case.other_network = true;
        }),
        ("catalog_payment:operation_has_no_maximum_price", |case| {
            case.operations[0].3 = None;
            case.metered = true;
        }),
        ("catalog_payee:pay_to_not_in_catalog", |case| case.pay_to = 1),
        ("catalog_price:price_above_catalog_maximum", |case| {
            case.operations[0].3 = Some(49);
        }),
        ("schedule", |case| case.rules.push(Said::Schedule(None, false))),
        ("budget_limit", |case| {
            case.rules.push(Said::Budget(100, 1, vec![(0, 51)], true));
        }),
        ("count_limit", |case| {
            case.rules.push(Said::Count(None, 2, 1, vec![0, 0]));
        }),
        ("minimum_interval", |case| {
            case.rules.push(Said::Interval(None, 1, Some(0)));
        }),
        ("daily_spend_limit_exceeded", |case| case.day = vec![(0, 500), (0, 451)]),
        ("duplicate_guard", |case| {
            case.repeated = Some(0);
            case.rules.push(Said::Duplicate(None, 1, true));
        }),
        ("price_above_usual", |case| {
            case.rules.push(Said::Price(None, 4_899, None, true));
        }),
        ("approval_required", |case| case.threshold = 49),
        // These rules have the same error, so each row is after the blocks of its kind.
        ("approval_required", |case| {
            case.repeated = Some(0);
            case.rules.push(Said::Duplicate(None, 1, false));
        }),
        ("approval_required", |case| {
            case.rules.push(Said::Price(None, 4_899, None, false));
        }),
        ("approval_required", |case| {
            case.known_payee = false;
            case.rules.push(Said::Payee(None));
        }),
        ("insufficient_usdc_balance", |case| case.balance = Some(49)),
        ("allow", |_| {}),
    ];
    let changes = rows.map(|(_, change)| change);
    for (index, (expected, _)) in rows.iter().enumerate() {
        assert_eq!(answer(&changes[index..]), *expected);
    }
    for (expected, change) in rows {
        let expected = if expected == "approval_required" {
            "allow"
        } else {
            expected
        };
        if expected != "target_url_required" {
            assert_eq!(answer(&[change, |case| case.approval = true]), expected);
        }
    }
}

#[test]
fn delayed_prices_are_rejected_until_they_take_effect() {
    let now = Timestamp::from_secs(NOW).unwrap();
    let later = now.after(Duration::from_secs_u32(1));
    let block = |given: &Given| match given.decide() {
        Decision::Refuse(denial) => Some(denial.reason),
        Decision::Allow(_) | Decision::NeedsTarget => None,
    };
    let young = Some(Reason::PolicyBlocked(Block::PayeeTooYoung { retry_at: later }));
    let mut given = Case::fine().given();
    for (from, expected) in [(later, &young), (now, &None)] {
        given.payee_from = Some(from);
        assert_eq!(block(&given), *expected, "{from}");
    }
    let (other_payee, higher_price) = ((1, 50), (0, 60));
    for (payee, price) in [other_payee, higher_price] {
        let mut given = Case {
            pay_to: payee,
            price,
            ..Case::fine()
        }
        .given();
        let operation = given.operation.as_mut().unwrap();
        operation.max_price = Some(units(50));
        let next = |from, most| NextPricing {
            price_model: "fixed".into(),
            max_price: Some(units(most)),
            payment: CatalogPayment {
                pay_to: address(payee),
                ..operation.payment.clone().unwrap()
            },
            from,
            by: OperatorName::parse("o").unwrap(),
        };
        let other = Some(Reason::PolicyBlocked(match payee {
            0 => Block::PriceAboveCatalog { max: units(50) },
            _ => Block::PayeeNotInCatalog,
        }));
        let rows = [
            (next(later, 60), &young),
            (next(now, 60), &None),
            (next(Timestamp::MAX, 60), &other),
            (next(later, 49), &other),
        ];
        for (next, expected) in rows {
            given.operation.as_mut().unwrap().next = Some(next);
            assert_eq!(block(&given), *expected, "{payee}");
        }
    }
}

#[test]
fn an_allow_decision_records_the_versions_of_its_inputs() {
    let mut given = Case::fine().given();
    (given.agent.version, given.service.version) = (3, 4);
    let Decision::Allow(grant) = given.decide() else {
        panic!("must be allowed")
    };
    let inputs = InputVersions {
        engine: ENGINE_VERSION,
        agent: 3,
        service: 4,
    };
    assert_eq!((grant.agent_version(), grant.policy_version()), (3, 7));
    assert_eq!(
        (grant.agent_id(), grant.service_id(), grant.authorized_at()),
        (given.agent.id, given.service.id, given.at)
    );
    assert_eq!(grant.input_versions(), inputs);
    assert_eq!(InputVersions::parse(&inputs.to_string()), Some(inputs));
    for text in ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x"] {
        assert_eq!(InputVersions::parse(text), None, "{text}");
    }
    assert_eq!(
        grant.call_description(),
        CallDescription::new(&given.intent, given.operation.as_ref(), Network::BaseSepolia, given.at)
    );
}

/// A check records the numbers of one rule, which several rules could have.
#[test]
fn a_replay_distinguishes_rules_with_equal_recorded_limits() {
    let later = Timestamp::from_secs(NOW + 1).unwrap();
    let rows = [
        // Both rules have the recorded limit, and the reason contains the second rule.
        vec![
            Said::Budget(100, 1, vec![(0, 10)], true),
            Said::Budget(100, 2, vec![(0, 90)], true),
        ],
        vec![
            Said::Count(None, 100, 1, vec![]),
            Said::Budget(100, 1, vec![(0, 90)], true),
        ],
        // Either rule's median could give the recorded limit of 100. The replay assumes the rule that requires
        // approval.
        vec![
            Said::Price(None, 0, Some(3), true),
            Said::Price(None, 50, Some(5), false),
        ],
        // The recorded limit comes from the catalog's price.
        vec![
            Said::Price(None, 0, Some(3), true),
            Said::Price(None, 6_900, None, true),
        ],
        // The first rule is for another service.
        vec![
            Said::Price(Some(vec![1]), 50, Some(5), true),
            Said::Price(None, 50, Some(5), true),
        ],
    ];
    for rules in rows {
        let case = Case {
            price: 80,
            paid: vec![60, 60, 60, 100, 100],
            rules,
            ..Case::fine()
        };
        // A replay derives the delay for a new payee from the recorded checks.
        for payee_from in [None, Some(later)] {
            let mut given = case.given();
            given.payee_from = payee_from;
            let recorded = given.recorded().unwrap();
            assert_eq!(replay_decision(&recorded, &given.inputs()), [], "{:?}", case.rules);
        }
    }
}

fn period(from: &str, to: &str) -> SchedulePeriod {
    SchedulePeriod::parse(&format!("monday-sunday {from}-{to}")).unwrap()
}

fn every_rule() -> Vec<RuleKind> {
    let (amount, duration) = (Amount::ONE, Duration::DAY);
    let services = Some(vec![ServiceSlug::parse("lab").unwrap()]);
    let vendors = vec![
        Vendor::Service(ServiceSlug::parse("lab").unwrap()),
        Vendor::Wallet(parse_address(WALLET).unwrap()),
    ];
    let schedule = Schedule {
        services: services.clone(),
        zone: ZoneName::parse("Europe/Berlin").unwrap(),
        periods: ["monday,sunday 08:30-24:00", "saturday 22:00-02:00"]
            .map(|period| SchedulePeriod::parse(period).unwrap())
            .to_vec(),
    };
    let price = |over, action| {
        RuleKind::PriceAboveUsual(PriceAboveUsual {
            services: None,
            percent: 50,
            over,
            action,
        })
    };
    vec![
        RuleKind::CategoryBlock(CategoryBlock {
            categories: Category::ALL.to_vec(),
        }),
        RuleKind::VendorAllowlist(VendorAllowlist { vendors }),
        RuleKind::BudgetLimit(BudgetLimit {
            limit: amount,
            window: duration.into(),
        }),
        RuleKind::BudgetLimit(BudgetLimit {
            limit: amount,
            window: RuleWindow {
                services: services.clone(),
                categories: None,
                keys: None,
                per_payee: false,
                period: WindowPeriod::Calendar(CalendarPeriod::Month, ZoneName::parse("Europe/Berlin").unwrap()),
                action: LimitAction::Ask,
            },
        }),
        RuleKind::CountLimit(CountLimit {
            count: 3,
            window: RuleWindow {
                services: None,
                categories: None,
                keys: None,
                per_payee: false,
                period: WindowPeriod::Lifetime,
                action: LimitAction::Ask,
            },
        }),
        RuleKind::ApprovalRequired(ApprovalRequired {
            services: services.clone(),
            categories: Some(vec![Category::Ai]),
            above: None,
        }),
        RuleKind::ApprovalRequired(ApprovalRequired {
            services: None,
            categories: None,
            above: Some(amount),
        }),
        RuleKind::CountLimit(CountLimit {
            count: 3,
            window: RuleWindow {
                services: services.clone(),
                ..duration.into()
            },
        }),
        RuleKind::MinimumInterval(MinimumInterval {
            services: None,
            interval: duration,
        }),
        RuleKind::DuplicateGuard(DuplicateGuard {
            services: services.clone(),
            within: duration,
            action: LimitAction::Ask,
        }),
        RuleKind::NewPayee(NewPayee {
            services: services.clone(),
        }),
        price(UsualPrice::Catalog, LimitAction::Block),
        price(UsualPrice::Median(5), LimitAction::Ask),
        RuleKind::Schedule(schedule),
        RuleKind::AutomaticFreeze(AutomaticFreeze {
            times: 3,
            at_least: amount,
        }),
        RuleKind::ApprovalException(ApprovalException {
            services: None,
            operation: Some(OperationSlug::parse("lab.current").unwrap()),
            keys: Some(vec![KeyId(7)]),
            payee: address(0),
            max_amount: amount,
            until: Timestamp::MAX,
            waives_threshold: true,
            waived_rules: vec![rule_id(1)],
        }),
    ]
}

#[test]
fn every_rule_kind_is_parsed_from_its_document() {
    for (number, kind) in (1..).zip(every_rule()) {
        let mut given = Case::fine().given();
        let id = RuleId::from_uuid(Uuid::from_u128(number));
        given.agent.rules = vec![Rule { id, version: 3, kind }];
        let recorded = given.recorded().unwrap();
        let replayed = replay_from_file(&given, &recorded);
        assert!(replayed.is_ok(), "{replayed:?}: {:?}", given.agent.rules);
    }
}

/// An operators' freeze has no version, so the replay derives it from the checks.
#[test]
fn decisions_about_frozen_agents_are_replayed() {
    for frozen in [false, true] {
        for freeze in [Freeze::Agent, Freeze::Owner, Freeze::Deployment] {
            // A disabled service is reported before the freeze.
            for enabled in [false, true] {
                let case = Case {
                    enabled: Some(enabled),
                    frozen,
                    frozen_by_operators: Some(freeze),
                    ..Case::fine()
                };
                let given = case.given();
                let recorded = given.recorded().unwrap();
                assert_eq!(replay_decision(&recorded, &given.inputs()), [], "{freeze:?} {enabled}");
            }
        }
    }
}

#[test]
fn an_approval_waives_only_the_limits_that_were_shown() {
    let mut case = Case {
        threshold: 49,
        repeated: Some(0),
        known_payee: false,
        ..Case::fine()
    };
    case.rules = vec![
        Said::Approval {
            services: None,
            categories: None,
            above: None,
        },
        Said::Payee(None),
        Said::Price(None, 4_899, None, false),
        Said::Duplicate(None, 1, false),
    ];
    let asked = |approved: Option<Vec<AskingLimit>>| {
        let given = Given {
            approved,
            ..case.given()
        };
        let recorded = given.recorded().unwrap();
        assert_eq!(replay_decision(&recorded, &given.inputs()), []);
        let failed = recorded
            .checks
            .iter()
            .filter(|check| check.outcome == CheckOutcome::Failed);
        let failed: Vec<CheckName> = failed.map(|check| check.name).collect();
        match given.decide() {
            Decision::Refuse(Denial {
                reason: Reason::ApprovalRequired { asking, .. },
                ..
            }) => (asking, failed),
            Decision::Allow(_) => (Vec::new(), failed),
            other => panic!("{other:?}"),
        }
    };
    let (all, failed) = asked(None);
    let kinds = [
        AskingKind::Threshold,
        AskingKind::ApprovalRequired,
        AskingKind::DuplicateGuard,
        AskingKind::PriceAboveUsual,
        AskingKind::NewPayee,
    ];
    assert_eq!(all.iter().map(|limit| limit.kind).collect::<Vec<_>>(), kinds);
    let checks = [
        CheckName::Duplicate,
        CheckName::Price,
        CheckName::Payee,
        CheckName::Approval,
    ];
    assert_eq!(failed, checks);
    assert_eq!(asked(Some(all.clone())), (Vec::new(), Vec::new()));
    for (index, hidden) in all.iter().enumerate() {
        let mut shown = all.clone();
        shown.remove(index);
        let (again, failed) = asked(Some(shown));
        assert_eq!(again, all, "{hidden:?}");
        assert_eq!(failed.len(), 1, "{hidden:?}: {failed:?}");
    }
}

#[test]
fn an_exception_waives_approvals_only_within_its_bounds() {
    let case = Case {
        threshold: 49,
        rules: vec![Said::Approval {
            services: None,
            categories: None,
            above: None,
        }],
        ..Case::fine()
    };
    let decide = |case: &Case, change: fn(&mut ApprovalException)| {
        let mut given = case.given();
        let mut exception = ApprovalException {
            services: None,
            operation: None,
            keys: None,
            payee: given.intent.offer.pay_to(),
            max_amount: units(50),
            until: given.at.after(Duration::from_secs_u32(1)),
            waives_threshold: true,
            waived_rules: given.agent.rules.iter().map(|rule| rule.id).collect(),
        };
        change(&mut exception);
        given.agent.rules.push(Rule {
            id: rule_id(90),
            version: 1,
            kind: RuleKind::ApprovalException(exception),
        });
        let recorded = given.recorded().unwrap();
        assert_eq!(replay_decision(&recorded, &given.inputs()), []);
        answered(&given.decide())
    };
    let (nothing, approval) = (|_: &mut ApprovalException| {}, Some("approval"));
    let rows: [(fn(&mut ApprovalException), _); 9] = [
        (nothing, None),
        (|exception| exception.max_amount = units(49), approval),
        (
            |exception| exception.until = Timestamp::from_secs(NOW).unwrap(),
            approval,
        ),
        (|exception| exception.payee = address(1), approval),
        (
            |exception| exception.services = Some(vec![ServiceSlug::parse("other-service").unwrap()]),
            approval,
        ),
        (
            |exception| exception.operation = Some(OperationSlug::parse("lab.other").unwrap()),
            approval,
        ),
        (|exception| exception.keys = Some(vec![KeyId(u64::MAX)]), approval),
        (|exception| exception.waives_threshold = false, approval),
        // A rule that the exception does not name, such as a later rule, applies.
        (|exception| exception.waived_rules = vec![rule_id(90)], approval),
    ];
    for (index, (change, expected)) in rows.into_iter().enumerate() {
        assert_eq!(decide(&case, change), expected, "row {index}");
    }
    let limited = |rule| Case {
        rules: vec![rule],
        known_payee: false,
        ..case.clone()
    };
    let budget = limited(Said::Budget(100, 1, vec![(1, 60)], true));
    assert_eq!(decide(&budget, nothing), Some("budget_limit"));
    assert_eq!(decide(&limited(Said::Payee(None)), nothing), Some("new_payee"));
}

#[test]
fn a_payment_beyond_a_limit_with_action_ask_needs_approval_and_then_counts() {
    // The price is 50.
    let budget = |limit, spent| Said::Budget(limit, 1, vec![(1, spent)], true);
    let count = |count| Said::Count(None, count, 1, vec![1, 2]);
    let decide = |rules: Vec<Said>, asking: &[usize], approved: Option<Vec<AskingLimit>>| {
        let case = Case { rules, ..Case::fine() };
        let mut given = Given {
            approved,
            ..case.given()
        };
        for index in asking {
            if let RuleKind::BudgetLimit(BudgetLimit { window, .. }) | RuleKind::CountLimit(CountLimit { window, .. }) =
                &mut given.agent.rules[*index].kind
            {
                window.action = LimitAction::Ask;
            }
        }
        let recorded = given.recorded().unwrap();
        assert_eq!(replay_decision(&recorded, &given.inputs()), []);
        match given.decide() {
            Decision::Refuse(Denial {
                reason: Reason::ApprovalRequired { asking, .. },
                ..
            }) => Err(asking),
            Decision::Refuse(denial) => panic!("{:?}", denial.reason),
            Decision::Allow(grant) => Ok(grant.charges().skip(1).map(|charge| charge.cap).collect::<Vec<_>>()),
            Decision::NeedsTarget => panic!(),
        }
    };
    let limit = |index, above, kind| AskingLimit {
        rule: Some(rule_id(index)),
        above: units(above),
        kind,
    };
    let beyond = || vec![budget(100, 60), count(2), budget(1_000, 0)];
    let limits = vec![
        limit(0, 40, AskingKind::BudgetLimit),
        limit(1, 0, AskingKind::CountLimit),
    ];
    assert_eq!(decide(beyond(), &[0, 1], None), Err(limits.clone()));
    let caps = vec![Amount::MAX, Amount::MAX, units(1_000)];
    assert_eq!(decide(beyond(), &[0, 1], Some(limits.clone())), Ok(caps));
    assert_eq!(decide(beyond(), &[0, 1], Some(limits[1..].to_vec())), Err(limits));
    let within = || vec![budget(110, 60), count(3)];
    assert_eq!(decide(within(), &[0, 1], None), Ok(vec![units(110), units(3)]));
    // The other budget blocks and is not exceeded.
    for (spent, asking) in [([10, 60], 1), ([60, 10], 0)] {
        let rules = || spent.map(|spent| budget(100, spent)).to_vec();
        let limits = vec![limit(asking, 40, AskingKind::BudgetLimit)];
        assert_eq!(decide(rules(), &[asking], None), Err(limits.clone()));
        let mut caps = vec![units(100); 2];
        caps[asking] = Amount::MAX;
        assert_eq!(decide(rules(), &[asking], Some(limits)), Ok(caps));
    }
    // A limit that blocks takes precedence, even if more remains of it.
    let case = Case {
        rules: vec![budget(100, 60), budget(100, 51)],
        ..Case::fine()
    };
    let mut given = case.given();
    if let RuleKind::BudgetLimit(BudgetLimit { window, .. }) = &mut given.agent.rules[0].kind {
        window.action = LimitAction::Ask;
    }
    assert_eq!(replay_decision(&given.recorded().unwrap(), &given.inputs()), []);
    let Decision::Refuse(denial) = given.decide() else {
        panic!()
    };
    assert_eq!(denial.reason.reason_text(), format!("budget_limit:{}", rule_id(1)));
}

#[test]
fn an_allow_decision_records_only_the_recent_payment_data_that_rules_use() {
    let remembered = |approval, rules: Vec<Said>| {
        let case = Case {
            rules,
            approval,
            ..Case::fine()
        };
        let given = case.given();
        let Decision::Allow(grant) = given.decide() else {
            panic!("must be allowed")
        };
        let update = grant.recent_payments_update()?;
        assert!(update.is_first, "nothing is stored yet");
        let ago = |at: Timestamp| given.at.since(at).secs();
        let call = update.call.map(|mark| mark.not_after.map(ago));
        Some((call, update.payee.is_some(), update.prices.is_some()))
    };
    let guard = |within, blocks| Said::Duplicate(None, within, blocks);
    let price = |over| Said::Price(None, 9_000, over, true);
    let rows = [
        (false, vec![], None),
        (false, vec![Said::Schedule(None, true), price(None)], None),
        (false, vec![Said::Duplicate(Some(vec![1]), 5, true)], None),
        (false, vec![guard(10, true)], Some((Some(Some(10)), false, false))),
        (
            false,
            vec![guard(10, false), guard(20, true)],
            Some((Some(Some(20)), false, false)),
        ),
        (
            true,
            vec![guard(10, true), guard(20, false)],
            Some((Some(Some(10)), false, false)),
        ),
        (true, vec![guard(10, false)], Some((Some(None), false, false))),
        (false, vec![Said::Payee(None)], Some((None, true, false))),
        (false, vec![price(Some(5))], Some((None, false, true))),
    ];
    for (approval, rules, expected) in rows {
        assert_eq!(remembered(approval, rules.clone()), expected, "{rules:?}");
    }
}

#[test]
fn a_payment_counts_only_for_rules_of_its_service() {
    let (other, own) = (Some(vec![1]), Some(vec![0]));
    let case = Case {
        rules: vec![
            Said::Budget(1_000, 1, vec![], true),
            Said::Count(other, 5, 1, vec![]),
            Said::Count(own, 5, 1, vec![]),
            Said::Interval(None, 1, None),
        ],
        ..Case::fine()
    };
    let given = case.given();
    let Decision::Allow(grant) = given.decide() else {
        panic!("must be allowed")
    };
    let counted = |counted| grant.counting_window_ids(counted).collect::<Vec<_>>();
    assert_eq!(counted(WindowMeasure::Amounts), [rule_id(0)]);
    assert_eq!(counted(WindowMeasure::Payments), [rule_id(2), rule_id(3)]);
}

/// The decision is made at 17:46 UTC.
#[test]
fn a_payment_waits_until_all_schedules_are_open() {
    let mut given = Case::fine().given();
    let mut opening = |times: &[(&str, &str)]| {
        let rules = times.iter().zip(1_u128..).map(|((from, to), id)| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(id)),
            version: 1,
            kind: RuleKind::Schedule(Schedule {
                services: None,
                zone: ZoneName::UTC,
                periods: vec![period(from, to)],
            }),
        });
        given.agent.rules = rules.collect();
        match given.decide() {
            Decision::Refuse(Denial {
                reason: Reason::PolicyBlocked(Block::Schedule { rule, retry_at }),
                ..
            }) => Some((rule.uuid().as_u128(), retry_at)),
            _ => None,
        }
    };
    let today = NOW - NOW % 86_400;
    let at = |hour: u64| RetryAt::At(Timestamp::from_secs(today + hour * 3_600).unwrap());
    assert_eq!(opening(&[("17:00", "18:00")]), None);
    assert_eq!(opening(&[("20:00", "22:00")]), Some((1, at(20))));
    assert_eq!(
        opening(&[("17:00", "24:00"), ("20:00", "22:00"), ("21:00", "23:00")]),
        Some((2, at(21)))
    );
    // The second period is over midnight.
    assert_eq!(opening(&[("20:00", "21:00"), ("22:00", "20:30")]), Some((1, at(20))));
    assert_eq!(opening(&[("22:00", "03:00"), ("02:00", "04:00")]), Some((1, at(26))));
    // The two schedules have no common time.
    assert_eq!(
        opening(&[("20:00", "21:00"), ("21:00", "22:00")]),
        Some((1, RetryAt::Never))
    );
}

#[test]
fn every_policy_check_is_reported_once_in_order() {
    let changes: [Break; 3] = [
        |_| {},
        |case| case.enabled = None,
        |case| {
            (case.price, case.balance) = (5_000, Some(1));
        },
    ];
    for change in changes {
        let mut case = Case::fine();
        change(&mut case);
        let checks = match case.given().decide() {
            Decision::Allow(grant) => grant.checks().to_vec(),
            Decision::Refuse(denial) => denial.checks,
            Decision::NeedsTarget => panic!("no target is needed"),
        };
        let names: Vec<CheckName> = checks.iter().map(|check| check.name).collect();
        // These checks are made only if the agent has such a rule.
        let conditional = [
            CheckName::Schedule,
            CheckName::Count,
            CheckName::Interval,
            CheckName::Duplicate,
            CheckName::Price,
            CheckName::Payee,
        ];
        let always: Vec<CheckName> = CheckName::ALL
            .iter()
            .copied()
            .filter(|name| !conditional.contains(name))
            .collect();
        assert_eq!(names, always);
    }
}

#[test]
fn daily_limit_denials_state_when_to_retry() {
    let case = Case {
        day: vec![(0, 980)],
        ..Case::fine()
    };
    let given = case.given();
    let Decision::Refuse(denial) = given.decide() else {
        panic!("must be refused")
    };
    let expected = Reason::DailyLimit {
        spend_today: units(980),
        amount: units(50),
        max_per_day: units(1_000),
        retry_at: RetryAt::At(Timestamp::from_secs(NOW).unwrap().after(Duration::DAY)),
    };
    assert_eq!(denial.reason, expected);
    assert_eq!(
        denial.reason.retry_at(),
        Some(RetryAt::At(given.at.after(Duration::DAY)))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn the_evaluation_matches_the_specified_decision_table(case in case()) {
        let against = case.against();
        prop_assert_eq!(answered(&case.given().decide()), against.first().copied(), "{:?}", against);
    }

    /// Each window stays within its cap even if expired payments still count.
    #[test]
    fn an_allow_decision_keeps_every_window_within_its_cap(case in case()) {
        let given = case.given();
        let Decision::Allow(grant) = given.decide() else { return Ok(()) };
        let rules = given.agent.counting_rules().filter(|rule| rule.applies_to(&given.service, KEY));
        let rules: Vec<_> = rules.map(|rule| (rule.find_window(&given.budgets).unwrap(), rule.counted)).collect();
        let windows: Vec<_> = std::iter::once((&given.day, WindowMeasure::Amounts)).chain(rules).collect();
        prop_assert_eq!(case.against(), Vec::<&str>::new());
        prop_assert_eq!(grant.amount(), units(case.price));
        prop_assert_eq!(grant.approval_id().is_some(), case.approval);
        prop_assert_eq!(grant.charges().count(), windows.len());
        let now = Timestamp::from_secs(NOW).unwrap();
        for (window, counted) in windows {
            let charges: Vec<Charge<'_>> = grant.charges().filter(|charge| charge.scope == window.scope).collect();
            prop_assert_eq!(charges.len(), 1, "each window is charged once");
            let charge = &charges[0];
            prop_assert_eq!(charge.amount, counted.payment_units(grant.amount()));
            let evicted: u64 = charge.evict.iter().map(|entry| entry.amount.units()).sum();
            prop_assert_eq!(charge.evicted, units(evicted));
            prop_assert!(window.total.units() - evicted + charge.amount.units() <= charge.cap.units());
            // No payment that still counts in the window is evicted.
            let still_counts = |entry: &Entry| entry.at > window.period.newest_expired_time(now);
            prop_assert!(!charge.evict.iter().any(still_counts));
        }
    }

    /// If the recorded outcome of a check is changed, the replay differs, except where an input is derived from that
    /// check.
    #[test]
    fn replaying_a_recorded_decision_gives_the_same_result(case in case(), changed in any::<Index>()) {
        let given = case.given();
        let slugs: BTreeSet<_> = given.service.operations.iter().map(|operation| &operation.slug).collect();
        let is_possible = given.budgets.len() == given.agent.counting_rules().count()
            && slugs.len() == given.service.operations.len();
        let Some(recorded) = given.recorded().filter(|_| is_possible) else { return Ok(()) };
        let inputs = given.inputs();
        prop_assert_eq!(replay_decision(&recorded, &inputs), Vec::new());
        let from_file = replay_from_file(&given, &recorded);
        let is_documented = is_documented(&given, &recorded);
        prop_assert!(from_file == Ok(Vec::new()) || (!is_documented && from_file == Err(NoReplay::NotDocumented)), "{:?}", from_file);
        let mut forged = recorded.clone();
        let check = changed.index(forged.checks.len());
        let is_failed = forged.checks[check].outcome == CheckOutcome::Failed;
        forged.checks[check].outcome = if is_failed { CheckOutcome::Passed } else { CheckOutcome::Failed };
        if is_documented && forged.checks[check].name != CheckName::Domain {
            prop_assert_eq!(replay_from_file(&given, &forged), Ok(replay_decision(&forged, &inputs)));
        }
        let derived = [CheckName::AgentActive, CheckName::Vendor, CheckName::Approval];
        let is_derived = derived.contains(&forged.checks[check].name) && recorded.result != DecisionResult::Allow;
        // Whether the payee was paid before is derived from this check, so a changed outcome makes no difference.
        let is_payee = forged.checks[check].name == CheckName::Payee && recorded.result != DecisionResult::Allow;
        // The approval is derived from the waived check.
        let was_waived = recorded.checks[check].outcome == CheckOutcome::Waived;
        prop_assert!((is_derived && !is_failed) || is_payee || was_waived || !replay_decision(&forged, &inputs).is_empty(), "{:?}", forged.checks[check]);
    }
    #[test]
    fn a_backtest_with_unchanged_limits_changes_no_decision(cases in prop::collection::vec(case(), 1..8)) {
        let mut unnamed = Backtest::new(ProposedLimits::default());
        let mut tested = 0;
        for (version, case) in (1..).zip(&cases) {
            let mut given = case.given();
            given.agent.version = version;
            let slugs: BTreeSet<_> = given.service.operations.iter().map(|operation| &operation.slug).collect();
            let is_possible = given.budgets.len() == given.agent.counting_rules().count()
                && slugs.len() == given.service.operations.len();
            let Some(recorded) = given.recorded().filter(|_| is_possible) else { continue };
            let decision = BacktestDecision {
                decision: &recorded,
                inputs: given.inputs(),
                transaction: TransactionId::from_uuid(Uuid::nil()),
                approval: None,
                released_at: None,
                paid_at: None,
                has_call: true,
            };
            let mut named = Backtest::new(ProposedLimits {
                rules: Some(given.agent.rules.clone()),
                status: Some(given.agent.status),
                policies: given.enabled.iter().map(|enabled| (enabled.service, enabled.clone())).collect(),
            });
            unnamed.test_decision(&decision);
            named.test_decision(&decision);
            tested += 1;
            let result = named.result_so_far();
            prop_assert_eq!((result.decisions, result.untested), (1, 0));
            prop_assert!(result.if_declined.is_empty() && result.if_approved.is_empty(), "{:?}", result);
        }
        let result = unnamed.result_so_far();
        prop_assert_eq!((result.decisions, result.untested), (tested, 0));
        prop_assert!(result.if_declined.is_empty() && result.if_approved.is_empty(), "{:?}", result);
    }
}
