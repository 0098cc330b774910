//! An agent with rules of every kind, a catalog of any size, and the agent's requests.

use purser_domain::{
    Address, Agent, AgentId, AgentStatus, Amount, ApprovalRequired, Availability, BudgetLimit, Catalog, CatalogPayment,
    Category, CategoryBlock, DomainPattern, Duration, EnabledService, Endpoint, Entry, ListingHistory, Network,
    Operation, OperationSlug, OperationUuid, Rule, RuleId, RuleKind, Service, ServiceId, ServiceSlug, SettlementId,
    SpendPolicy, Timestamp, TrustStatus, Url, Vendor, VendorAllowlist, Wallet, Window, WindowPeriod, WindowScope,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// The network of all payments in these benchmarks.
pub const NETWORK: Network = Network::BaseSepolia;

/// The data that a decision depends on, besides the request.
#[derive(Clone, Debug)]
pub struct World {
    /// The agent, with rules of every kind.
    pub agent: Agent,
    /// The catalog of services.
    pub catalog: Catalog,
    /// The agent's policy for the service that gets the payment; `None` if the agent has not enabled the service.
    pub enabled: Option<EnabledService>,
    /// The daily window. Three of the window's payments have expired.
    pub day: Window,
    /// The windows of the agent's three budgets.
    pub budgets: Vec<(RuleId, Window)>,
    /// The balance of the agent's wallet.
    pub balance: Amount,
    /// The time of the evaluation.
    pub at: Timestamp,
}

pub(crate) fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

fn uuid(kind: u128, n: usize) -> Uuid {
    Uuid::from_u128((kind << 96) | u128::try_from(n).unwrap())
}

impl World {
    /// Returns a world with `count` services in the catalog, each with five operations.
    pub fn with_services(count: usize) -> Self {
        let at = Timestamp::from_secs(1_795_223_340).unwrap();
        let bought = count / 2;
        let agent = agent(bought);
        let id = agent.id;
        let service = ServiceId::from_uuid(uuid(2, bought));
        let budgets = agent.rules.iter().filter_map(|rule| match &rule.kind {
            RuleKind::BudgetLimit(BudgetLimit { window: counted, .. }) => {
                let scope = WindowScope::Budget {
                    agent: id,
                    rule: rule.id,
                };
                Some((rule.id, window(scope, counted.period, rule.version, at)))
            }
            _ => None,
        });
        Self {
            catalog: Catalog::new((0..count).map(service_of).collect()),
            enabled: Some(EnabledService {
                service,
                version: 7,
                enabled: true,
                policy: policy(),
            }),
            day: window(WindowScope::Day { agent: id, service }, WindowPeriod::DAY, 7, at),
            budgets: budgets.collect(),
            balance: units(25_000_000),
            agent,
            at,
        }
    }

    /// Returns the index of the service that gets the payment, in the middle of the catalog.
    fn bought(&self) -> usize {
        self.catalog.services().len() / 2
    }
}

fn slug(n: usize) -> String {
    format!("service-{n:05}")
}

fn payee(n: usize) -> Address {
    let mut bytes = [0x11; 20];
    for (byte, digit) in bytes.iter_mut().zip(n.to_be_bytes()) {
        *byte ^= digit;
    }
    Address::from(bytes)
}

fn service_of(n: usize) -> Service {
    let actions = ["search", "scrape", "crawl", "rank", "watch"];
    let operation = |(index, action): (usize, &&str)| Operation {
        id: OperationUuid::from_uuid(uuid(3, n * 8 + index)),
        slug: OperationSlug::parse(&format!("web.{action}")).unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: "POST".to_owned(),
        endpoint: Endpoint::parse(&format!("https://{}.example/v1/{action}", slug(n))).unwrap(),
        category: if *action == "scrape" {
            Category::Scrape
        } else {
            Category::Search
        },
        execution: "sync".to_owned(),
        price_model: "fixed".to_owned(),
        estimated_price: units(10_000),
        max_price: Some(units(900_000)),
        params: json!({}),
        fetches_target: None,
        next: None,
        payment: Some(CatalogPayment {
            scheme: "exact".to_owned(),
            network: NETWORK,
            amount: units(10_000),
            pay_to: payee(n),
        }),
    };
    Service {
        id: ServiceId::from_uuid(uuid(2, n)),
        version: 1,
        slug: ServiceSlug::parse(&slug(n)).unwrap(),
        name: String::new(),
        description: String::new(),
        website: Url::parse(&format!("https://{}.example/", slug(n))).unwrap(),
        logo_url: None,
        category: Category::Search,
        source: String::new(),
        trust_status: TrustStatus::PlatformVerified,
        curated: true,
        history: ListingHistory::default(),
        operations: actions.iter().enumerate().map(operation).collect(),
    }
}

fn agent(bought: usize) -> Agent {
    let service = |n| ServiceSlug::parse(&slug(n)).unwrap();
    let vendor = |n| Vendor::Service(service(n));
    let budget = |units: u64, hours: u32| {
        RuleKind::BudgetLimit(BudgetLimit {
            limit: self::units(units),
            window: Duration::from_secs_u32(hours * 3_600).into(),
        })
    };
    let kinds = [
        RuleKind::CategoryBlock(CategoryBlock {
            categories: vec![Category::Finance, Category::Security],
        }),
        RuleKind::VendorAllowlist(VendorAllowlist {
            vendors: [90_001, 90_002, 90_003, bought].map(vendor).to_vec(),
        }),
        budget(2_000_000, 1),
        budget(20_000_000, 24),
        budget(90_000_000, 24 * 30),
        RuleKind::ApprovalRequired(ApprovalRequired {
            services: Some([90_004, 90_005].map(service).to_vec()),
            categories: None,
            above: None,
        }),
        RuleKind::ApprovalRequired(ApprovalRequired {
            services: None,
            categories: Some(vec![Category::Search, Category::Scrape]),
            above: Some(units(500_000)),
        }),
    ];
    let rules = kinds.into_iter().enumerate().map(|(n, kind)| Rule {
        id: RuleId::from_uuid(uuid(4, n)),
        version: 1,
        kind,
    });
    Agent {
        id: AgentId::from_uuid(uuid(1, 1)),
        name: "buyer".to_owned(),
        owner: "owner".to_owned(),
        created_at: Timestamp::EPOCH,
        status: AgentStatus::Active,
        wallet: Wallet {
            key: purser_domain::WalletKey::Seed { index: 0 },
            address: "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266".parse().unwrap(),
            attestation: purser_domain::WalletAttestation::from_bytes([0; 65]),
        },
        keys: Vec::new(),
        rules: rules.collect(),
        archived: false,
        labels: purser_domain::Labels::default(),
        starting_set: None,
        template: None,
        max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
        former_owners: Vec::new(),
        version: 3,
    }
}

fn policy() -> SpendPolicy {
    let domains = ["example.net", "docs.example.org", "example.edu", "example.com"];
    SpendPolicy {
        max_per_call: units(800_000),
        max_per_day: units(10_000_000),
        require_approval_above: units(400_000),
        enabled_operations: Some(
            ["web.rank", "web.search", "web.scrape"]
                .map(|slug| OperationSlug::parse(slug).unwrap())
                .to_vec(),
        ),
        allowed_domains: domains.map(|domain| DomainPattern::parse(domain).unwrap()).to_vec(),
        raises: Vec::new(),
    }
}

/// Returns a window with the oldest eight of its payments. Three of these have expired.
fn window(scope: WindowScope, period: WindowPeriod, stamp: u64, at: Timestamp) -> Window {
    let entry = |n: usize| {
        let age = period.max_duration().micros() / 6 * i64::try_from(8 - n).unwrap();
        Entry {
            at: Timestamp::from_micros(at.micros() - age).unwrap(),
            amount: units(100_000),
            settlement: SettlementId::from_uuid(uuid(5, n)),
        }
    };
    Window {
        scope,
        period,
        total: units(1_000_000),
        version: 40,
        stamp,
        watermark: Timestamp::EPOCH,
        oldest: (0..8).map(entry).collect(),
        complete: false,
    }
}

/// Returns one `accepts` member of version 2 payment requirements.
fn entry_v2(price: u64, pay_to: Address) -> Value {
    let token = NETWORK.token();
    json!({
        "scheme": "exact", "network": NETWORK.caip2(), "amount": price.to_string(), "asset": token.address.to_string(),
        "payTo": pay_to.to_string(), "maxTimeoutSeconds": 60,
        "extra": {"name": token.name, "version": token.version},
    })
}

/// Returns version 2 payment requirements with three members: a more expensive one, the cheapest, and one on another
/// chain.
pub fn offer_v2(price: u64, pay_to: Address) -> Value {
    let mut elsewhere = entry_v2(price, pay_to);
    if let Some(network) = elsewhere.get_mut("network") {
        *network = json!("eip155:1");
    }
    json!({
        "x402Version": 2, "error": "Payment required",
        "resource": {
            "url": "https://provider.example/v1/scrape", "description": "One page, extracted", "mimeType": "application/json",
        },
        "accepts": [elsewhere, entry_v2(price * 2, pay_to), entry_v2(price, pay_to)],
    })
}

/// Returns the payment requirements of [`offer_v2`] in x402 version 1.
pub fn offer_v1(price: u64, pay_to: Address) -> Value {
    let token = NETWORK.token();
    let entry = |network: &str, price: u64| {
        json!({
            "scheme": "exact", "network": network, "maxAmountRequired": price.to_string(),
            "resource": "https://provider.example/v1/scrape", "description": "One page, extracted",
            "mimeType": "application/json", "payTo": pay_to.to_string(), "maxTimeoutSeconds": 60,
            "asset": token.address.to_string(),
            "outputSchema": {"input": {"type": "http", "method": "POST", "discoverable": true}},
            "extra": {"name": token.name, "version": token.version},
        })
    };
    json!({
        "x402Version": 1, "error": "X-PAYMENT header is required",
        "accepts": [entry("ethereum", price), entry(NETWORK.name(), price * 2), entry(NETWORK.name(), price)],
    })
}

/// Returns the request body of an authorize call to the service in the middle of the catalog.
pub fn authorize_body(world: &World) -> Value {
    let bought = world.bought();
    json!({
        "payment_requirement": offer_v2(100_000, payee(bought)),
        "max_payment_units": 300_000,
        "original_request": {
            "method": "POST", "url": format!("https://{}.example/v1/scrape?depth=1", slug(bought)),
            "body_hash": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        },
        "service_id": slug(bought),
        "operation_id": "web.scrape",
        "metadata": {"target_url": "https://www.docs.example.com/guide?page=7"},
        "idempotency_key": "run-4711-step-12-attempt-1",
    })
}
