//! Every page with made-up data, written to `target/gallery` to be looked at:
//! `cargo nextest run -p purser-people gallery`, then open the files in a browser.

use super::agent::contents::AgentPage;
use super::agent::page::agent_page;
use super::agent::policy::read_policy;
use super::agent::rules::read_rule;
use super::approvals::{ApprovalQueue, View, approvals_page, waiting_list};
use super::asset;
use super::decisions::{DecisionLog, LogRow, decisions_page};
use super::error_page::{ErrorPage, error_page};
use super::form::{Form, FormName, RuleForm};
use super::layout::Layout;
use super::notice::Notice;
use super::overview::{AgentSpend, Overview, overview_page};
use super::receipt::{ReceiptPage, receipt_page};
use super::sign_in::{leaving_page, sign_in_page};
use crate::ops::approvals::{DayRoom, StandingApproval, Waiting};
use crate::ops::decisions::{Calls, DecisionFilter, DecisionResult};
use crate::ops::keys::ListedKey;
use crate::ops::owned::Owned;
use crate::ops::rules::StandingRule;
use crate::ops::services::GovernedService;
use crate::page::Page;
use crate::session::FormToken;
use maud::Markup;
use purser_api::Person;
use purser_domain::{
    Address, Agent, AgentId, AgentKey, AgentStatus, Amount, Approval, ApprovalId, AskingRule, Availability,
    CallDescription, Catalog, CatalogPrice, Category, Check, CheckName, CheckOutcome, DomainPattern, Duration,
    EnabledService, Endpoint, Fingerprint, KeyId, LoggedDecision, LoggedRefusal, Metadata, Network, NewKey, Operation,
    OperationSlug, OperationUuid, ProviderRequest, Resolution, Rule, RuleId, RuleKind, Ruling, SecretDigest, Service,
    ServiceId, ServiceSlug, Settlement, SettlementId, SettlementState, SpendPolicy, TakenBack, Terms, Timestamp,
    TransactionId, TrustStatus, TxHash, Url, Vendor, Wallet, X402Version,
};
use purser_store::ApprovalPlace;
use std::sync::Arc;
use uuid::Uuid;

/// A name that breaks out of every context that forgets to escape it.
const HOSTILE: &str = "\"><script>alert('1')</script>&amp;</textarea>";

fn now() -> Timestamp {
    Timestamp::from_secs(1_795_223_340).unwrap()
}

fn ago(secs: u32) -> Timestamp {
    now().before(Duration::from_secs_u32(secs))
}

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn uuid(n: u128) -> Uuid {
    Uuid::from_u128(0x1234_5678_0000_4000_8000_0000_0000_0000 + n)
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn payee() -> Address {
    address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
}

fn operation(n: u128, slug: &str, label: &str, category: Category) -> Operation {
    Operation {
        id: OperationUuid::from_uuid(uuid(n)),
        slug: OperationSlug::parse(slug).unwrap(),
        availability: Availability::PaidX402,
        label: label.to_owned(),
        method: "GET".to_owned(),
        endpoint: Endpoint::parse("http://provider.test/x").unwrap(),
        category,
        execution: "sync".to_owned(),
        price_model: "fixed".to_owned(),
        estimated_price: units(10_000),
        max_price: None,
        params: serde_json::Value::Null,
        fetches_target: None,
        payment: None,
    }
}

fn service(n: u128, slug: &str, name: &str, category: Category, operations: Vec<Operation>) -> Service {
    Service {
        id: ServiceId::from_uuid(uuid(n)),
        slug: ServiceSlug::parse(slug).unwrap(),
        name: name.to_owned(),
        description: String::new(),
        website: Url::parse("http://provider.test/").unwrap(),
        logo_url: None,
        category,
        source: "test".to_owned(),
        trust_status: if n.is_multiple_of(2) {
            TrustStatus::ProbePassed
        } else {
            TrustStatus::Listed
        },
        operations,
        curated: true,
        version: 1,
    }
}

pub(super) fn catalog() -> Catalog {
    use Category::{Ai, Data, Finance, Scrape, Search};
    Catalog::new(vec![
        service(
            10,
            "lab-weather",
            "Lab Weather",
            Data,
            vec![
                operation(20, "weather.current", "Current weather", Data),
                operation(21, "weather.history", "Past weather", Data),
            ],
        ),
        service(
            12,
            "lab-search",
            "Lab Search",
            Search,
            vec![operation(22, "search.web", "Search the web", Search)],
        ),
        service(
            14,
            "lab-scrape",
            "Lab Scrape",
            Scrape,
            vec![operation(23, "web.scrape", "Scrape a page", Scrape)],
        ),
        service(
            15,
            "market-feed",
            "Market Feed",
            Finance,
            vec![operation(24, "quotes.latest", "Latest quotes", Finance)],
        ),
        service(
            16,
            "inference",
            "Inference, by the token",
            Ai,
            vec![operation(25, "llm.complete", "Complete a text", Ai)],
        ),
        service(18, "not-yet", "Not yet enabled", Ai, vec![]),
    ])
}

fn agent_id(n: u128) -> AgentId {
    AgentId::from_uuid(uuid(n))
}

fn owned(agent: Agent) -> Owned {
    let person = Person {
        sub: agent.owner.clone(),
        name: None,
        expires_at: now(),
        nonce: None,
    };
    Owned::of(&person, agent).unwrap()
}

fn agent_named(n: u128, name: &str, status: AgentStatus) -> Owned {
    owned(Agent {
        id: agent_id(n),
        ..agent(name, status)
    })
}

fn research_bot() -> Owned {
    agent_named(1, "Research bot", AgentStatus::Active)
}

fn layout() -> Layout {
    Layout {
        person: "ada@example.com".to_owned(),
        token: FormToken::of("session"),
        now: now(),
        waiting: Some(2),
        notice: None,
        problem: None,
        typed: None,
    }
}

fn call() -> CallDescription {
    CallDescription {
        request: ProviderRequest {
            method: "POST".to_owned(),
            url: Url::parse("https://provider.test/v1/history?city=Lisbon&days=30").unwrap(),
            body_hash: Some("sha256:9f86d081884c7d65".to_owned()),
        },
        target_url: Some(Url::parse("https://pages.example/report").unwrap()),
        metadata: Metadata::from_json(r#"{"task":"quarterly <b>report</b>","step":3}"#).unwrap(),
        catalog_price: Some(CatalogPrice {
            price: units(10_000),
            most: Some(units(1_000_000)),
        }),
    }
}

/// As long, and as misleading, as an agent can make it.
fn hostile_call() -> CallDescription {
    let url = format!(
        "https://provider.test.{}.example/{}?to=lab",
        "very".repeat(12),
        "a/b".repeat(600)
    );
    let metadata = serde_json::json!({HOSTILE: HOSTILE, "note": "approved by\u{202e} rekcatta\n\nsecond line", "long": "x".repeat(900)});
    CallDescription {
        request: ProviderRequest {
            method: "DELETE".to_owned(),
            url: Url::parse(&url).unwrap(),
            body_hash: Some(HOSTILE.to_owned()),
        },
        target_url: Some(Url::parse("http://192.0.2.1:8080/?u=https://provider.test/").unwrap()),
        metadata: Metadata::from_json(&metadata.to_string()).unwrap(),
        catalog_price: Some(CatalogPrice {
            price: units(1_000),
            most: Some(units(500_000)),
        }),
    }
}

fn approval(n: u8, amount: u64, rule: Option<RuleId>, resolution: Resolution) -> Approval {
    let agent = agent_id(1);
    let fingerprint = Fingerprint::of_text(&n.to_string());
    Approval {
        id: ApprovalId::of(agent, &fingerprint, 0),
        agent,
        owner: "ada".to_owned(),
        transaction: TransactionId::from_uuid(uuid(40)),
        fingerprint,
        service: ServiceId::from_uuid(uuid(10)),
        operation: OperationSlug::parse("weather.history").unwrap(),
        amount: units(amount),
        pay_to: payee(),
        call: call(),
        threshold: units(1_000_000),
        rule: rule.map(|id| AskingRule {
            id,
            above: units(500_000),
        }),
        created_at: ago(300),
        expires_at: ago(300).after(Duration::DAY),
        resolution,
    }
}

fn waiting() -> Vec<StandingApproval> {
    let one = |n, amount, rule, day, status| StandingApproval {
        approval: Approval {
            call: if n == 3 { hostile_call() } else { call() },
            ..approval(n, amount, rule, Resolution::Pending)
        },
        agent: Arc::new(agent_named(1, "Research bot", status)),
        day,
    };
    let day = |used, cap| {
        Some(DayRoom {
            used: units(used),
            cap: units(cap),
        })
    };
    let rule = |n| Some(RuleId::from_uuid(uuid(n)));
    vec![
        one(1, 2_500_000, None, day(12_340_000, 50_000_000), AgentStatus::Active),
        one(2, 250_000, rule(33), day(49_900_000, 50_000_000), AgentStatus::Active),
        one(3, 1_000_001, rule(99), day(0, 10_000_000_000_000), AgentStatus::Frozen),
        one(4, 5, None, None, AgentStatus::Active),
    ]
}

/// All that waits, in which these are shown.
fn asking(items: Vec<StandingApproval>, next: Option<ApprovalPlace>) -> Waiting {
    let count = items.len();
    Waiting {
        items,
        next,
        agents: vec![
            (Arc::new(research_bot()), count),
            (Arc::new(agent_named(2, HOSTILE, AgentStatus::Active)), 0),
        ],
    }
}

fn place() -> ApprovalPlace {
    ApprovalPlace::of(&approval(9, 1, None, Resolution::Pending))
}

fn decided() -> Vec<StandingApproval> {
    let ruling = |note: Option<&str>| Ruling {
        at: ago(7_200),
        by: "ada".to_owned(),
        note: note.map(str::to_owned),
    };
    let settlement = SettlementId::from_uuid(uuid(50));
    let resolutions = [
        Resolution::Executed {
            ruling: ruling(None),
            settlement,
        },
        Resolution::Rejected(ruling(Some(
            "Too dear for what it is.\nAsk again for the monthly file.",
        ))),
        Resolution::Approved(ruling(None)),
        Resolution::Approved(ruling(Some(HOSTILE))),
    ];
    let one = |(n, resolution): (usize, Resolution)| StandingApproval {
        approval: approval(u8::try_from(n).unwrap(), 3_000_000, None, resolution),
        agent: Arc::new(research_bot()),
        day: None,
    };
    resolutions.into_iter().enumerate().map(one).collect()
}

fn rules() -> Vec<Rule> {
    let slug = |text| ServiceSlug::parse(text).unwrap();
    let kinds = [
        RuleKind::BudgetLimit {
            limit: units(20_000_000),
            window: Duration::from_secs_u32(604_800),
        },
        RuleKind::CategoryBlock {
            categories: vec![Category::Finance, Category::Security],
        },
        RuleKind::VendorAllowlist {
            vendors: vec![Vendor::Service(slug("lab-weather")), Vendor::Wallet(payee())],
        },
        RuleKind::ApprovalRequired {
            services: Some(vec![slug("lab-weather"), slug("gone-since")]),
            categories: None,
            above: Some(units(200_000)),
        },
    ];
    let rule = |(n, kind): (u128, RuleKind)| Rule {
        id: RuleId::from_uuid(uuid(30 + n)),
        version: 1,
        kind,
    };
    (0_u128..).zip(kinds).map(rule).collect()
}

fn governed(n: u128, enabled: bool, policy: SpendPolicy, spent: u64) -> GovernedService {
    GovernedService {
        record: EnabledService {
            service: ServiceId::from_uuid(uuid(n)),
            version: 3,
            enabled,
            policy,
        },
        spent_today: units(spent),
    }
}

fn standing_rules() -> Vec<StandingRule> {
    let used = |rule: &Rule| matches!(rule.kind, RuleKind::BudgetLimit { .. }).then_some(units(17_000_000));
    rules()
        .into_iter()
        .map(|rule| StandingRule {
            used: used(&rule),
            rule,
        })
        .collect()
}

fn overview(catalog: &Catalog, hostile: bool) -> Overview<'_> {
    let name = if hostile { HOSTILE } else { "Research bot" };
    let spend = |n, used, cap| {
        let policy = SpendPolicy {
            max_per_day: units(cap),
            ..SpendPolicy::permissive()
        };
        governed(n, true, policy, used)
    };
    let none = 10_000_000_000_000;
    Overview {
        waiting: asking(waiting().into_iter().take(2).collect(), None),
        agents: vec![
            AgentSpend {
                agent: agent_named(1, name, AgentStatus::Active),
                services: vec![
                    spend(10, 12_340_000, 50_000_000),
                    spend(12, 9_100_000, 10_000_000),
                    spend(14, 2_000_000, 2_000_000),
                    spend(15, 0, 5_000_000),
                    spend(16, 420_001, none),
                    spend(77, 0, none),
                    spend(78, 0, none),
                ],
                rules: standing_rules(),
            },
            AgentSpend {
                agent: agent_named(2, "Night shift", AgentStatus::Frozen),
                services: vec![spend(10, 0, none), spend(12, 0, none)],
                rules: vec![],
            },
            AgentSpend {
                agent: agent_named(3, "Empty", AgentStatus::Active),
                services: vec![],
                rules: vec![],
            },
        ],
        refused: log_rows()
            .into_iter()
            .filter(|row| row.decision.result() == "block")
            .take(4)
            .collect(),
        catalog,
    }
}

fn checks(failed: CheckName) -> Vec<Check> {
    CheckName::ALL
        .iter()
        .map(|&name| {
            let numbers = match name {
                CheckName::MaxPayment => Some((1_500_000, 0)),
                CheckName::PerCall => Some((1_000_000, 0)),
                CheckName::Day => Some((50_000_000, 49_800_000)),
                CheckName::Budget => Some((20_000_000, 19_999_000)),
                CheckName::Approval => Some((10_000_000_000_000, 0)),
                CheckName::Balance => Some((3_210_000, 0)),
                _ => None,
            };
            Check {
                name,
                outcome: match name {
                    name if name == failed => CheckOutcome::Failed,
                    CheckName::Balance => CheckOutcome::Unknown,
                    _ => CheckOutcome::Passed,
                },
                limit: numbers.map(|(limit, _)| units(limit)),
                used: numbers.map(|(_, used)| units(used)),
                remaining: numbers.map(|(limit, used)| units(limit - used)),
            }
        })
        .collect()
}

fn settlement(state: SettlementState) -> Settlement {
    Settlement {
        terms: Terms {
            id: SettlementId::from_uuid(uuid(50)),
            transaction: TransactionId::from_uuid(uuid(51)),
            agent: agent_id(1),
            wallet: address("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
            service: ServiceId::from_uuid(uuid(10)),
            operation: OperationSlug::parse("weather.current").unwrap(),
            network: Network::BaseSepolia,
            amount: units(2_500_000),
            pay_to: payee(),
            authorized_at: ago(90),
            valid_before: ago(90).after(Duration::from_secs_u32(300)),
            x402_version: X402Version::V2,
            offer_index: 0,
            policy_version: 3,
            budgets: vec![],
            idempotency_key: Fingerprint::of_text("k"),
            approval: Some(ApprovalId::from_uuid(uuid(52))),
            checks: checks(CheckName::AgentActive)
                .into_iter()
                .map(|check| Check {
                    outcome: match check.name {
                        CheckName::Approval => CheckOutcome::Lifted,
                        _ => CheckOutcome::Passed,
                    },
                    ..check
                })
                .collect(),
        },
        state,
        counted_at: ago(90),
    }
}

fn hash() -> TxHash {
    TxHash::parse(&format!("0x{}", "ab".repeat(32))).unwrap()
}

fn confirmed() -> SettlementState {
    SettlementState::Confirmed {
        tx_hash: hash(),
        block_number: 31_415_926,
        settled_at: ago(60),
    }
}

fn log_rows() -> Vec<LogRow> {
    let refused = |n: u32, result: &str, error: &str, reason: &str, rule: &str, failed| {
        LoggedDecision::Refused(LoggedRefusal {
            transaction: TransactionId::from_uuid(uuid(60 + u128::from(n))),
            agent: agent_id(1),
            service: ServiceId::from_uuid(uuid(if n == 3 { 500 } else { 12 })),
            operation: OperationSlug::parse("search.web"),
            amount: units(1_200_000),
            pay_to: payee(),
            call: call(),
            at: ago(n * 4_000),
            result: result.to_owned(),
            error: error.to_owned(),
            reason: reason.to_owned(),
            rule: rule.to_owned(),
            hostname: Some("evil.example".to_owned()),
            policy_version: Some(2),
            approval: None,
            checks: checks(failed),
            latency_ms: 14,
        })
    };
    let blocked = |n, error: &str, failed| refused(n, "block", error, error, "", failed);
    let ruled = |n, reason: &str, failed| refused(n, "block", "policy_blocked", reason, "", failed);
    let decisions = vec![
        LoggedDecision::Allowed(settlement(confirmed())),
        refused(
            1,
            "escalate",
            "approval_required",
            "approval_required",
            "require_approval_above_units",
            CheckName::Approval,
        ),
        blocked(2, "amount_exceeds_per_call_limit", CheckName::PerCall),
        blocked(3, "daily_spend_limit_exceeded", CheckName::Day),
        ruled(4, "category_block:finance", CheckName::Category),
        ruled(5, "budget_limit:x", CheckName::Budget),
        ruled(6, "vendor_allowlist:pay_to_not_in_catalog", CheckName::Vendor),
        ruled(7, "agent_frozen", CheckName::AgentActive),
        blocked(8, "domain_not_allowed", CheckName::Domain),
        blocked(9, "insufficient_usdc_balance", CheckName::Balance),
        blocked(10, "amount_exceeds_max", CheckName::MaxPayment),
        blocked(11, "service_not_enabled", CheckName::ServiceEnabled),
        blocked(12, "operation_not_enabled_for_agent", CheckName::OperationEnabled),
        LoggedDecision::Allowed(settlement(SettlementState::Authorized)),
        LoggedDecision::Allowed(settlement(SettlementState::Expired)),
        LoggedDecision::TakenBack(TakenBack {
            transaction: TransactionId::from_uuid(uuid(120)),
            agent: agent_id(1),
            service: ServiceId::from_uuid(uuid(10)),
            operation: OperationSlug::parse("weather.current"),
            amount: units(2_500_000),
            pay_to: payee(),
            at: ago(30),
            settlement: SettlementId::from_uuid(uuid(50)),
            tx_hash: hash(),
            policy_version: 3,
        }),
    ];
    let mut rows = LogRow::of(decisions, &Calls::default(), &[research_bot()]);
    for row in &mut rows {
        let is_allow = row.decision.result() == "allow";
        row.call = row.call.take().or_else(|| is_allow.then(call));
    }
    rows
}

fn agent(name: &str, status: AgentStatus) -> Agent {
    Agent {
        id: agent_id(1),
        name: name.to_owned(),
        owner: "ada".to_owned(),
        created_at: ago(300_000),
        status,
        wallet: Wallet {
            index: 0,
            address: address("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"),
        },
        keys: vec![],
        rules: rules(),
        version: 7,
    }
}

fn agent_sample<'a>(agent: &'a Agent, catalog: &'a Catalog) -> AgentPage<'a> {
    let narrow = SpendPolicy {
        max_per_call: units(250_000),
        enabled_operations: Some(vec![
            OperationSlug::parse("weather.current").unwrap(),
            OperationSlug::parse("weather.gone").unwrap(),
        ]),
        ..SpendPolicy::column_defaults()
    };
    let asks = SpendPolicy {
        require_approval_above: units(1_000_000),
        ..SpendPolicy::permissive()
    };
    let domains = SpendPolicy {
        allowed_domains: vec![
            DomainPattern::parse("example.com").unwrap(),
            DomainPattern::parse("*.example.org").unwrap(),
        ],
        ..SpendPolicy::column_defaults()
    };
    let key = |n, created, ends_at, last_used_at| {
        let key = AgentKey {
            id: KeyId(n),
            digest: SecretDigest::from_bytes([0; 32]),
            created_at: ago(created),
            ends_at,
        };
        ListedKey {
            status: key.status(now()),
            key,
            last_used_at,
        }
    };
    AgentPage {
        agent,
        catalog,
        services: vec![
            governed(10, true, narrow, 12_340_000),
            governed(12, true, asks, 9_100_000),
            governed(14, true, domains, 49_000_000),
            governed(16, true, SpendPolicy::permissive(), 420_001),
            governed(404, true, SpendPolicy::permissive(), 0),
            governed(15, false, SpendPolicy::column_defaults(), 0),
        ],
        keys: vec![
            key(0xa1b2_c3d4_e5f6_0718, 100, None, None),
            key(
                0x0718_c3d4_e5f6_a1b2,
                300_000,
                Some(now().after(Duration::from_secs_u32(80_000))),
                Some(ago(200)),
            ),
            key(0x1111, 500_000, Some(ago(90_000)), Some(ago(100_000))),
        ],
        rules: standing_rules(),
        balance: Some(units(104_250_000)),
        network: Network::BaseSepolia,
        new_key: None,
    }
}

fn typed(name: FormName, body: &str, read: impl FnOnce(&mut Form)) -> Form {
    let mut form = Form::of(name, body.as_bytes());
    read(&mut form);
    assert!(form.is_wrong());
    form
}

fn gallery() -> Vec<(&'static str, Markup)> {
    let catalog = catalog();
    let plain = agent("Research bot", AgentStatus::Active);
    let frozen = agent("Research bot", AgentStatus::Frozen);
    let hostile = agent(HOSTILE, AgentStatus::Active);
    let queue = |waiting, view| ApprovalQueue {
        view,
        waiting,
        decided: Page {
            items: decided(),
            next: Some(place()),
        },
        catalog: &catalog,
    };
    let nothing = || asking(vec![], None);
    let agents = [research_bot(), agent_named(2, HOSTILE, AgentStatus::Active)];
    let log = |rows, filter| DecisionLog {
        filter,
        agents: &agents,
        rows,
        is_continued: true,
        older: Some(uuid(70)),
        catalog: &catalog,
    };
    let narrowed = DecisionFilter {
        agent: Some(agent_id(1)),
        result: Some(DecisionResult::Block),
        service: None,
    };
    let receipt = |state| ReceiptPage {
        settlement: settlement(state),
        call: Some(call()),
        agent: research_bot(),
        catalog: &catalog,
    };
    let key = NewKey::from_random(agent_id(1), [7; 40], now()).text;
    let policy_form = FormName::Policy(ServiceId::from_uuid(uuid(10)));
    let wrong_policy = Layout {
        typed: Some(typed(
            policy_form,
            "max_per_call=1,5&operations=some&max_per_day=5&require_approval_above=&allowed_domains=*",
            |form| {
                assert_eq!(read_policy(form, catalog.by_reference("lab-weather")), None);
            },
        )),
        ..layout()
    };
    let wrong_rule = Layout {
        typed: Some(typed(
            FormName::NewRule(RuleForm::VendorAllowlist),
            "kind=vendor_allowlist&vendors=0x12%0ALab+Weather",
            |form| {
                assert_eq!(read_rule(form, &catalog), None);
            },
        )),
        ..layout()
    };
    let problem = Some(
        "Research bot was changed by someone else in the meantime, so nothing was saved. This is how it stands now.",
    );
    vec![
        ("sign-in", sign_in_page("/dashboard/sign-in/start", None)),
        (
            "sign-in-failed",
            sign_in_page("/dashboard/sign-in/start", Some(Notice::SignInStale)),
        ),
        ("overview", overview_page(&layout(), &overview(&catalog, false))),
        ("overview-hostile", overview_page(&layout(), &overview(&catalog, true))),
        (
            "overview-first",
            overview_page(
                &Layout {
                    waiting: Some(0),
                    ..layout()
                },
                &Overview {
                    waiting: nothing(),
                    agents: vec![],
                    refused: vec![],
                    catalog: &catalog,
                },
            ),
        ),
        ("agent", agent_page(&layout(), &agent_sample(&plain, &catalog))),
        (
            "agent-frozen",
            agent_page(
                &Layout {
                    notice: Some(Notice::AgentFrozen),
                    ..layout()
                },
                &AgentPage {
                    balance: None,
                    ..agent_sample(&frozen, &catalog)
                },
            ),
        ),
        (
            "agent-new-key",
            agent_page(
                &layout(),
                &AgentPage {
                    new_key: Some(key),
                    ..agent_sample(&plain, &catalog)
                },
            ),
        ),
        (
            "agent-hostile",
            agent_page(&layout(), &agent_sample(&hostile, &catalog)),
        ),
        (
            "agent-wrong-policy",
            agent_page(&wrong_policy, &agent_sample(&plain, &catalog)),
        ),
        (
            "agent-wrong-rule",
            agent_page(&wrong_rule, &agent_sample(&plain, &catalog)),
        ),
        (
            "agent-conflict",
            agent_page(
                &Layout {
                    problem: problem.map(str::to_owned),
                    ..layout()
                },
                &AgentPage {
                    services: vec![],
                    keys: vec![],
                    ..agent_sample(&plain, &catalog)
                },
            ),
        ),
        (
            "approvals",
            approvals_page(&layout(), &queue(asking(waiting(), None), View::default())),
        ),
        (
            "approvals-of-one-agent",
            approvals_page(
                &layout(),
                &queue(
                    asking(waiting(), Some(place())),
                    View {
                        agent: Some(agent_id(1)),
                        after: Some(place()),
                        before: Some(place()),
                    },
                ),
            ),
        ),
        (
            "approvals-none",
            approvals_page(
                &Layout {
                    waiting: Some(0),
                    notice: Some(Notice::Approved),
                    ..layout()
                },
                &queue(nothing(), View::default()),
            ),
        ),
        (
            "waiting",
            waiting_list(&layout(), &asking(waiting(), None), View::default(), &catalog),
        ),
        (
            "decisions",
            decisions_page(&layout(), &log(log_rows(), DecisionFilter::default())),
        ),
        ("decisions-none", decisions_page(&layout(), &log(vec![], narrowed))),
        ("receipt", receipt_page(&layout(), &receipt(confirmed()))),
        (
            "receipt-open",
            receipt_page(&layout(), &receipt(SettlementState::Authorized)),
        ),
        (
            "receipt-expired",
            receipt_page(&layout(), &receipt(SettlementState::Expired)),
        ),
        ("leaving", leaving_page("https://issuer.example/logout")),
        ("error", error_page(ErrorPage::CrossSite, Some("8e6c1c1b-request"))),
    ]
}

#[test]
fn gallery_is_written_to_be_looked_at() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/gallery");
    std::fs::create_dir_all(folder).unwrap();
    let files = [
        ("style.css", include_str!("../../assets/style.css")),
        ("script.js", include_str!("../../assets/script.js")),
    ];
    for (name, text) in files {
        std::fs::write(format!("{folder}/{name}"), text).unwrap();
    }
    for (name, page) in gallery() {
        let html = page.into_string();
        let html = html
            .replace(asset::style_path(), "style.css")
            .replace(asset::script_path(), "script.js");
        std::fs::write(format!("{folder}/{name}.html"), html).unwrap();
    }
}

#[test]
fn no_page_lets_a_name_become_markup() {
    for (name, page) in gallery() {
        let html = page.into_string();
        assert!(!html.contains("<script>alert"), "{name}");
        assert!(!html.contains("&amp;</textarea>"), "{name}");
    }
    let catalog = catalog();
    let html = overview_page(&layout(), &overview(&catalog, true)).into_string();
    assert!(html.contains("&quot;&gt;&lt;script&gt;"));
}

#[test]
fn pages_hold_to_their_content_security_policy() {
    for (name, page) in gallery() {
        let html = page.into_string();
        for forbidden in [" style=", "<style", " onclick=", " onsubmit=", "javascript:"] {
            assert!(!html.contains(forbidden), "{name}: {forbidden}");
        }
        let scripts: Vec<&str> = html.matches("<script").collect();
        assert!(scripts.len() <= 1, "{name}");
    }
}

#[test]
fn every_form_that_changes_something_carries_the_token() {
    for (name, page) in gallery() {
        let html = page.into_string();
        for form in html.split("<form").skip(1) {
            let (head, rest) = form.split_once('>').unwrap();
            if head.contains("method=\"post\"") {
                assert!(
                    rest.starts_with("<input type=\"hidden\" name=\"form_token\""),
                    "{name}: {head}"
                );
            } else {
                assert!(head.contains("method=\"get\""), "{name}: {head}");
            }
        }
    }
}

#[test]
fn every_id_is_there_once_and_every_label_has_its_input() {
    for (name, page) in gallery() {
        let html = page.into_string();
        let values = |attribute: &str| -> Vec<String> {
            let begin = format!(" {attribute}=\"");
            let parts = html.split(&begin).skip(1);
            parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
        };
        let ids = values("id");
        let mut once = ids.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), ids.len(), "{name}");
        for attribute in ["for", "aria-labelledby", "aria-describedby"] {
            for value in values(attribute) {
                assert!(ids.contains(&value), "{name}: {attribute}={value}");
            }
        }
        let problems = html.split("href=\"#").skip(1);
        for target in problems.map(|part| part.split('"').next().unwrap()) {
            assert!(ids.iter().any(|id| id == target), "{name}: #{target}");
        }
    }
}

#[test]
fn a_service_without_limits_is_plainly_marked() {
    let catalog = catalog();
    let agent = agent("Research bot", AgentStatus::Active);
    let html = agent_page(&layout(), &agent_sample(&agent, &catalog)).into_string();
    assert!(html.contains("<strong>No limit</strong> on 2 of its services"));
    assert!(html.contains("spends what the wallet holds, asks nobody"));
}

#[test]
fn a_key_is_on_the_page_that_follows_its_creation_and_on_no_other() {
    for (name, page) in gallery() {
        assert_eq!(
            page.into_string().contains("gak_sec_07"),
            name == "agent-new-key",
            "{name}"
        );
    }
}

#[test]
fn a_receipt_leads_to_its_transaction_on_the_explorer_of_its_chain() {
    let catalog = catalog();
    let mut receipt = ReceiptPage {
        settlement: settlement(confirmed()),
        call: None,
        agent: research_bot(),
        catalog: &catalog,
    };
    for (network, host) in [
        (Network::Base, "basescan.org"),
        (Network::BaseSepolia, "sepolia.basescan.org"),
    ] {
        receipt.settlement.terms.network = network;
        let html = receipt_page(&layout(), &receipt).into_string();
        assert!(
            html.contains(&format!("href=\"https://{host}/tx/{}\"", hash())),
            "{host}"
        );
    }
}
