//! The evaluation, held against a table in order of precedence and against a second, plain evaluator.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::struct_excessive_bools,
    reason = "tests calculate what they expect, and a case has a switch for every check"
)]

mod given;

use given::Given;
use proptest::prelude::*;
use purser_domain::*;
use serde_json::json;
use uuid::Uuid;

const PAYEE: &str = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
const STRANGER: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const WALLET: &str = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn offer(price: u64, pay_to: &str) -> Offer {
    let token = Network::BaseSepolia.token();
    let requirement = json!({
        "scheme": "exact", "network": "eip155:84532", "amount": price.to_string(), "asset": token.address.to_string(),
        "payTo": pay_to, "maxTimeoutSeconds": 60, "extra": {"name": token.name, "version": token.version},
    });
    Offer::choose(&requirement, Network::BaseSepolia).unwrap()
}

/// A case as plain values; each field can break one check.
#[derive(Clone, Debug)]
struct Case {
    enabled: Option<bool>,
    frozen: bool,
    /// What is called is an operation of the service.
    operation_known: bool,
    /// The catalog lists the operation without a payment.
    operation_free: bool,
    /// The catalog lists its payment on another network.
    other_network: bool,
    /// Its price model is `fixed`.
    fixed_price: bool,
    listed_operations: Option<bool>,
    scrape: bool,
    domains: Option<&'static str>,
    target: Option<&'static str>,
    price: u64,
    ceiling: u64,
    per_call: u64,
    per_day: u64,
    spent: Vec<u64>,
    threshold: u64,
    blocked_category: bool,
    vendor_listed: Option<bool>,
    pay_to: &'static str,
    catalog_max: Option<u64>,
    budget: Option<(u64, u64)>,
    approval_rule_above: Option<u64>,
    approval: bool,
    balance: Option<u64>,
}

impl Case {
    /// A payment against which nothing stands.
    fn fine() -> Self {
        Self {
            enabled: Some(true),
            frozen: false,
            operation_known: true,
            operation_free: false,
            other_network: false,
            fixed_price: true,
            listed_operations: None,
            scrape: false,
            domains: None,
            target: None,
            price: 50,
            ceiling: 100,
            per_call: 100,
            per_day: 1_000,
            spent: vec![],
            threshold: 100,
            blocked_category: false,
            vendor_listed: None,
            pay_to: PAYEE,
            catalog_max: Some(100_000),
            budget: None,
            approval_rule_above: None,
            approval: false,
            balance: Some(1_000),
        }
    }

    fn given(&self) -> Given {
        let agent_id = AgentId::from_uuid(Uuid::from_u128(1));
        let service_id = ServiceId::from_uuid(Uuid::from_u128(2));
        let slug = OperationSlug::parse(if self.scrape { "web.scrape" } else { "web.search" }).unwrap();
        let other = OperationSlug::parse("web.other").unwrap();
        let service_slug = ServiceSlug::parse("lab").unwrap();
        let url = Url::parse("https://lab.example/x").unwrap();
        let operation = Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(3)),
            slug: slug.clone(),
            availability: Availability::PaidX402,
            label: String::new(),
            method: "GET".into(),
            endpoint: Endpoint::parse(url.as_str()).unwrap(),
            category: Category::Search,
            execution: "sync".into(),
            price_model: if self.fixed_price { "fixed" } else { "per_token" }.into(),
            estimated_price: units(50),
            max_price: self.catalog_max.map(units),
            params: json!({}),
            fetches_target: None,
            payment: Some(CatalogPayment {
                scheme: "exact".into(),
                network: if self.other_network {
                    Network::Base
                } else {
                    Network::BaseSepolia
                },
                amount: units(50),
                pay_to: parse_address(PAYEE).unwrap(),
            }),
        };
        let service = Service {
            id: service_id,
            version: 1,
            slug: service_slug.clone(),
            name: String::new(),
            description: String::new(),
            website: url.clone(),
            logo_url: None,
            category: Category::Search,
            source: "test".into(),
            trust_status: TrustStatus::Listed,
            curated: true,
            operations: vec![operation],
        };
        let rule = |n: u128, kind| Rule {
            id: RuleId::from_uuid(Uuid::from_u128(n)),
            version: 1,
            kind,
        };
        let mut rules = vec![];
        if self.blocked_category {
            rules.push(rule(
                10,
                RuleKind::CategoryBlock {
                    categories: vec![Category::Search],
                },
            ));
        }
        if let Some(listed) = self.vendor_listed {
            let vendors = if listed {
                vec![Vendor::Service(service_slug)]
            } else {
                vec![]
            };
            rules.push(rule(11, RuleKind::VendorAllowlist { vendors }));
        }
        if let Some((limit, _)) = self.budget {
            rules.push(rule(
                12,
                RuleKind::BudgetLimit {
                    limit: units(limit),
                    window: BUDGET_WINDOW_MIN,
                },
            ));
        }
        if let Some(above) = self.approval_rule_above {
            let kind = RuleKind::ApprovalRequired {
                services: None,
                categories: None,
                above: Some(units(above)),
            };
            rules.push(rule(13, kind));
        }
        let agent = Agent {
            id: agent_id,
            name: String::new(),
            owner: String::new(),
            created_at: Timestamp::EPOCH,
            status: if self.frozen {
                AgentStatus::Frozen
            } else {
                AgentStatus::Active
            },
            wallet: Wallet {
                index: 0,
                address: parse_address(WALLET).unwrap(),
            },
            keys: vec![],
            rules,
            version: 1,
        };
        let enabled = self.enabled.map(|enabled| EnabledService {
            service: service_id,
            version: 7,
            enabled,
            policy: SpendPolicy {
                max_per_call: units(self.per_call),
                max_per_day: units(self.per_day),
                require_approval_above: units(self.threshold),
                enabled_operations: self.listed_operations.map(|listed| {
                    if listed {
                        vec![slug.clone()]
                    } else {
                        vec![other.clone()]
                    }
                }),
                allowed_domains: vec![
                    self.domains
                        .map_or_else(DomainPattern::any, |text| DomainPattern::parse(text).unwrap()),
                ],
            },
        });
        let at = Timestamp::from_secs(1_000_000).unwrap();
        let window = |scope, length, spent: &[u64]| Window {
            scope,
            length,
            total: units(spent.iter().sum()),
            version: 1,
            stamp: 7,
            horizon: Timestamp::EPOCH,
            oldest: spent
                .iter()
                .map(|amount| Entry {
                    at,
                    amount: units(*amount),
                    settlement: SettlementId::from_uuid(Uuid::nil()),
                })
                .collect(),
            complete: true,
        };
        let day = window(
            WindowScope::Day {
                agent: agent_id,
                service: service_id,
            },
            Duration::DAY,
            &self.spent,
        );
        let budgets: Vec<(RuleId, Window)> = self
            .budget
            .iter()
            .map(|(_, used)| {
                let id = RuleId::from_uuid(Uuid::from_u128(12));
                (
                    id,
                    window(
                        WindowScope::Budget {
                            agent: agent_id,
                            rule: id,
                        },
                        BUDGET_WINDOW_MIN,
                        &[*used],
                    ),
                )
            })
            .collect();
        let intent = Intent {
            offer: offer(self.price, self.pay_to),
            max_payment: units(self.ceiling),
            request: ProviderRequest {
                method: "GET".into(),
                url,
                body_hash: None,
            },
            service: None,
            operation: None,
            target: self
                .target
                .map(|host| Target::parse(&format!("https://{host}/")).unwrap()),
            metadata: Metadata::default(),
            fingerprint: Fingerprint::of_text("x"),
        };
        let bought = Operation {
            payment: service.operations[0].payment.clone().filter(|_| !self.operation_free),
            ..service.operations[0].clone()
        };
        Given {
            approval: self.approval.then(|| ApprovalId::of(agent_id, &intent.fingerprint, 0)),
            operation: self.operation_known.then_some(bought),
            balance: self.balance.map(units),
            agent,
            intent,
            service,
            enabled,
            day,
            budgets,
            at,
            eviction: Eviction::Eager,
        }
    }

    fn answer(&self) -> String {
        name(&self.given().decide())
    }

    /// The same decision, spelled out as a person would read the specification.
    fn plainly(&self) -> String {
        if self.enabled != Some(true) {
            return "service_not_enabled".into();
        }
        if self.frozen {
            return "agent_frozen".into();
        }
        if !self.operation_known || self.listed_operations == Some(false) {
            return "operation_not_enabled_for_agent".into();
        }
        if let (true, Some(domain)) = (self.scrape, self.domains) {
            match self.target {
                None => return "target_url_required".into(),
                Some(host) if host != domain && !host.ends_with(&format!(".{domain}")) => {
                    return "domain_not_allowed".into();
                }
                Some(_) => {}
            }
        }
        if self.price > self.ceiling {
            return "amount_exceeds_max".into();
        }
        if self.price > self.per_call {
            return "amount_exceeds_per_call_limit".into();
        }
        if self.blocked_category {
            return "category_block:search".into();
        }
        if self.vendor_listed == Some(false) {
            return "vendor_allowlist:lab".into();
        }
        if self.pay_to == WALLET {
            return "vendor_allowlist:pay_to_is_own_wallet".into();
        }
        if self.operation_free {
            return "vendor_allowlist:operation_has_no_payment".into();
        }
        if self.other_network {
            return "vendor_allowlist:operation_is_paid_on_another_network".into();
        }
        if self.catalog_max.is_none() && !self.fixed_price {
            return "vendor_allowlist:operation_has_no_maximum_price".into();
        }
        if self.pay_to != PAYEE {
            return "vendor_allowlist:pay_to_not_in_catalog".into();
        }
        if self.price > self.catalog_max.unwrap_or(50) {
            return "vendor_allowlist:price_above_catalog_maximum".into();
        }
        if self.budget.is_some_and(|(limit, used)| used + self.price > limit) {
            return format!("budget_limit:{}", Uuid::from_u128(12));
        }
        if self.spent.iter().sum::<u64>() + self.price > self.per_day {
            return "daily_spend_limit_exceeded".into();
        }
        let asked = self.price > self.threshold || self.approval_rule_above.is_some_and(|above| self.price > above);
        if asked && !self.approval {
            return "approval_required".into();
        }
        if self.balance.is_some_and(|balance| balance < self.price) {
            return "insufficient_usdc_balance".into();
        }
        "allow".into()
    }
}

fn name(decision: &Decision<'_>) -> String {
    match decision {
        Decision::Allow(_) => "allow".into(),
        Decision::NeedsTarget => "target_url_required".into(),
        Decision::Refuse(denial) => denial.reason.text(),
    }
}

/// Each row breaks its own check and every check below it; the answer is its own.
#[test]
fn the_first_failed_check_answers() {
    type Break = fn(&mut Case);
    let rows: [(&str, Break); 19] = [
        ("service_not_enabled", |case| case.enabled = Some(false)),
        ("agent_frozen", |case| case.frozen = true),
        ("operation_not_enabled_for_agent", |case| {
            case.listed_operations = Some(false);
        }),
        ("domain_not_allowed", |case| {
            case.scrape = true;
            case.domains = Some("example.com");
            case.target = Some("evil-example.com");
        }),
        ("amount_exceeds_max", |case| case.ceiling = 49),
        ("amount_exceeds_per_call_limit", |case| case.per_call = 49),
        ("category_block:search", |case| case.blocked_category = true),
        ("vendor_allowlist:lab", |case| case.vendor_listed = Some(false)),
        ("vendor_allowlist:pay_to_is_own_wallet", |case| case.pay_to = WALLET),
        ("vendor_allowlist:operation_has_no_payment", |case| {
            case.operation_free = true;
        }),
        ("vendor_allowlist:operation_is_paid_on_another_network", |case| {
            case.other_network = true;
        }),
        ("vendor_allowlist:operation_has_no_maximum_price", |case| {
            case.catalog_max = None;
            case.fixed_price = false;
        }),
        ("vendor_allowlist:pay_to_not_in_catalog", |case| case.pay_to = STRANGER),
        ("vendor_allowlist:price_above_catalog_maximum", |case| {
            case.catalog_max = Some(49);
        }),
        ("budget_limit:00000000-0000-0000-0000-00000000000c", |case| {
            case.budget = Some((100, 51));
        }),
        ("daily_spend_limit_exceeded", |case| case.spent = vec![500, 451]),
        ("approval_required", |case| case.threshold = 49),
        ("insufficient_usdc_balance", |case| case.balance = Some(49)),
        ("allow", |_| {}),
    ];
    for (index, (expected, _)) in rows.iter().enumerate() {
        let mut case = Case::fine();
        // From the bottom up, so that the row's own break is applied last and wins where two touch one field.
        for (_, break_it) in rows[index..].iter().rev() {
            break_it(&mut case);
        }
        assert_eq!(case.answer(), *expected);
    }
}

#[test]
fn every_check_is_reported_once_and_in_order_whatever_fails() {
    for case in [
        Case::fine(),
        Case {
            enabled: None,
            ..Case::fine()
        },
        Case {
            price: 5_000,
            balance: Some(1),
            ..Case::fine()
        },
    ] {
        let checks = match case.given().decide() {
            Decision::Allow(grant) => grant.checks().to_vec(),
            Decision::Refuse(denial) => denial.checks,
            Decision::NeedsTarget => panic!("no target is needed"),
        };
        let names: Vec<CheckName> = checks.iter().map(|check| check.name).collect();
        assert_eq!(names, CheckName::ALL);
    }
}

#[test]
fn a_daily_denial_names_the_instant_at_which_it_fits() {
    let case = Case {
        spent: vec![980],
        ..Case::fine()
    };
    let Decision::Refuse(denial) = case.given().decide() else {
        panic!("must be refused")
    };
    let at = Timestamp::from_secs(1_000_000).unwrap();
    let expected = Reason::DailyLimit {
        spend_today: units(980),
        amount: units(50),
        max_per_day: units(1_000),
        retry_at: Fits::At(at.after(Duration::DAY)),
    };
    assert_eq!(denial.reason, expected);
}

#[test]
fn an_approval_lifts_the_approval_check_and_nothing_else() {
    let asked = Case {
        threshold: 49,
        approval: true,
        ..Case::fine()
    };
    assert_eq!(asked.answer(), "allow");
    for (case, expected) in [
        (
            Case {
                frozen: true,
                ..asked.clone()
            },
            "agent_frozen",
        ),
        (
            Case {
                per_call: 49,
                ..asked.clone()
            },
            "amount_exceeds_per_call_limit",
        ),
        (
            Case {
                per_day: 49,
                ..asked.clone()
            },
            "daily_spend_limit_exceeded",
        ),
        (
            Case {
                balance: Some(49),
                ..asked.clone()
            },
            "insufficient_usdc_balance",
        ),
    ] {
        assert_eq!(case.answer(), expected);
    }
}

fn small() -> impl Strategy<Value = u64> {
    1_u64..120
}

fn case() -> impl Strategy<Value = Case> {
    let mostly = |p: f64| prop::bool::weighted(p);
    let identity = (
        prop::option::weighted(0.95, mostly(0.95)),
        mostly(0.05),
        mostly(0.95),
        prop::option::weighted(0.3, mostly(0.8)),
    );
    let hosts = prop::sample::select(vec![
        "example.com",
        "a.example.com",
        "evil-example.com",
        "example.com.evil.org",
    ]);
    let scope = (
        (mostly(0.05), mostly(0.05), mostly(0.9)),
        mostly(0.4),
        prop::option::weighted(0.6, Just("example.com")),
        prop::option::weighted(0.8, hosts),
    );
    let prices = (
        small(),
        small(),
        small(),
        1_u64..400,
        prop::collection::vec(1_u64..80, 0..4),
        small(),
    );
    let payees = prop::sample::select(vec![PAYEE, PAYEE, PAYEE, PAYEE, PAYEE, PAYEE, STRANGER, WALLET]);
    let rules = (
        mostly(0.05),
        prop::option::weighted(0.2, mostly(0.8)),
        payees,
        prop::option::weighted(0.7, small()),
    );
    let rest = (
        prop::option::weighted(0.3, (1_u64..300, 0_u64..100)),
        prop::option::weighted(0.3, small()),
        mostly(0.5),
        prop::option::weighted(0.8, 1_u64..300),
    );
    (identity, scope, prices, rules, rest).prop_map(
        |(
            (enabled, frozen, operation_known, listed_operations),
            ((operation_free, other_network, fixed_price), scrape, domains, target),
            (price, ceiling, per_call, per_day, spent, threshold),
            (blocked_category, vendor_listed, pay_to, catalog_max),
            (budget, approval_rule_above, approval, balance),
        )| Case {
            enabled,
            frozen,
            operation_known,
            operation_free,
            other_network,
            fixed_price,
            listed_operations,
            scrape,
            domains,
            target,
            price,
            ceiling,
            per_call,
            per_day,
            spent,
            threshold,
            blocked_category,
            vendor_listed,
            pay_to,
            catalog_max,
            budget,
            approval_rule_above,
            approval,
            balance,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn the_evaluation_agrees_with_the_plain_one(case in case()) {
        prop_assert_eq!(case.answer(), case.plainly());
    }

    /// Whatever else changes, a grant never exceeds any limit that is given.
    #[test]
    fn a_grant_is_within_every_limit(case in case()) {
        if let Decision::Allow(grant) = case.given().decide() {
            let price = grant.amount().units();
            prop_assert!(price <= case.ceiling && price <= case.per_call);
            prop_assert!(case.spent.iter().sum::<u64>() + price <= case.per_day);
            prop_assert!(case.budget.is_none_or(|(limit, used)| used + price <= limit));
            prop_assert!(case.approval || price <= case.threshold);
            prop_assert!(price <= case.catalog_max.unwrap_or(50) && case.pay_to == PAYEE);
            prop_assert_eq!(grant.charges().count(), 1 + usize::from(case.budget.is_some()));
            prop_assert!(grant.charges().all(|charge| charge.fits() && charge.amount == grant.amount()));
        }
    }

    /// Making a limit tighter never turns a refusal into a grant.
    #[test]
    fn tightening_never_allows(case in case(), less in 0_u64..60) {
        let tighter = Case {
            per_call: case.per_call.saturating_sub(less),
            per_day: case.per_day.saturating_sub(less),
            threshold: case.threshold.saturating_sub(less),
            ..case.clone()
        };
        if tighter.answer() == "allow" {
            prop_assert_eq!(case.answer(), "allow");
        }
    }
}
