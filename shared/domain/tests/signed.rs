//! The signed payment, over generated catalogs, policies and requests: it pays the called operation's payee at most the
//! catalog's price, within the policy.
//!
//! The test finds the called operation with a separate, simpler comparison of URLs.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops where its ground is missing"
)]

use proptest::prelude::*;
use proptest::sample::select;
use purser_domain::*;
use serde_json::json;
use uuid::Uuid;

const METHODS: [&str; 2] = ["GET", "POST"];
const PLACES: [&str; 3] = ["https://a.example", "https://b.example", "https://a.example:8443"];
const TEMPLATES: [&str; 6] = ["/x", "/x/count", "/x/{id}", "/{any}/count", "/{any}/{id}", "/x/{id}/y"];
const PATHS: [&str; 8] = [
    "/x", "/x/", "/x/count", "/x/7", "/z/count", "/z/7", "/x/7/y", "/x/7/y/z",
];
const SLUGS: [&str; 4] = ["web.search", "web.look-up", "page.bulk-scrape", "page.read"];
const SERVICES: [&str; 4] = ["lab", "mill", "port", "yard"];
const CATEGORIES: [Category; 3] = [Category::Search, Category::Scrape, Category::Finance];
const PAYEES: [u8; 3] = [0x11, 0x22, 0x33];
const NETWORKS: [Network; 3] = [Network::BaseSepolia, Network::BaseSepolia, Network::Base];
const HOSTS: [&str; 2] = ["allowed.example", "evil.example"];

fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

#[derive(Clone, Debug)]
struct Listed {
    method: usize,
    place: usize,
    template: usize,
    category: Category,
    /// The network, the index of the payee, and the amount.
    payment: Option<(Network, usize, u64)>,
    fixed: bool,
    most: Option<u64>,
    fetches: Option<bool>,
}

#[derive(Clone, Debug)]
struct Case {
    /// Whether the service is open, the category and the operations.
    services: Vec<(bool, Category, Vec<Listed>)>,
    enabled_operations: Option<Vec<usize>>,
    any_domain: bool,
    blocked: Option<Category>,
    method: usize,
    place: usize,
    path: usize,
    query_host: Option<usize>,
    service: Option<usize>,
    operation: Option<usize>,
    target: Option<usize>,
    payee: usize,
    price: u64,
}

fn listed() -> impl Strategy<Value = Listed> {
    let payment = (select(NETWORKS.to_vec()), 0..PAYEES.len(), 1_u64..20);
    (
        0..METHODS.len(),
        0..PLACES.len(),
        0..TEMPLATES.len(),
        select(CATEGORIES.to_vec()),
        prop::option::weighted(0.8, payment),
        any::<bool>(),
        prop::option::of(1_u64..30),
        prop::option::weighted(0.3, any::<bool>()),
    )
        .prop_map(
            |(method, place, template, category, payment, fixed, most, fetches)| Listed {
                method,
                place,
                template,
                category,
                payment,
                fixed,
                most,
                fetches,
            },
        )
}

fn case() -> impl Strategy<Value = Case> {
    let service = (
        prop::bool::weighted(0.9),
        select(CATEGORIES.to_vec()),
        prop::collection::vec(listed(), 1..SLUGS.len()),
    );
    let policy = (
        prop::option::weighted(0.3, prop::collection::vec(0..SLUGS.len(), 1..3)),
        any::<bool>(),
        prop::option::weighted(0.2, select(CATEGORIES.to_vec())),
    );
    let called = (
        0..METHODS.len(),
        0..PLACES.len(),
        0..PATHS.len(),
        prop::option::weighted(0.2, 0..HOSTS.len()),
        prop::option::weighted(0.3, 0..SERVICES.len()),
        prop::option::weighted(0.2, 0..SLUGS.len()),
        prop::option::weighted(0.7, 0..HOSTS.len()),
    );
    let offered = (0..PAYEES.len(), 1_u64..25);
    (
        prop::collection::vec(service, 1..SERVICES.len()),
        policy,
        called,
        offered,
    )
        .prop_map(
            |(
                services,
                (enabled_operations, any_domain, blocked),
                (method, place, path, query_host, service, operation, target),
                (payee, price),
            )| Case {
                services,
                enabled_operations,
                any_domain,
                blocked,
                method,
                place,
                path,
                query_host,
                service,
                operation,
                target,
                payee,
                price,
            },
        )
}

fn service_id(index: usize) -> ServiceId {
    ServiceId::from_uuid(Uuid::from_u128(u128::try_from(index).unwrap()))
}

fn payee(index: usize) -> Address {
    Address::repeat_byte(PAYEES[index])
}

impl Case {
    fn catalog(&self) -> Catalog {
        let services = self
            .services
            .iter()
            .enumerate()
            .map(|(index, (open, category, operations))| Service {
                id: service_id(index),
                version: 1,
                slug: ServiceSlug::parse(SERVICES[index]).unwrap(),
                name: String::new(),
                description: String::new(),
                website: Url::parse("https://lab.example").unwrap(),
                logo_url: None,
                category: *category,
                source: String::new(),
                trust_status: TrustStatus::Listed,
                curated: *open,
                history: ListingHistory::default(),
                operations: operations
                    .iter()
                    .enumerate()
                    .map(|(slug, listed)| operation(slug, listed))
                    .collect(),
            });
        Catalog::new(services.collect())
    }

    fn intent(&self) -> Intent {
        let token = Network::BaseSepolia.token();
        let query = self
            .query_host
            .map_or_else(String::new, |host| format!("?url=https%3A%2F%2F{}%2Fp", HOSTS[host]));
        let target = self.target.map(|host| format!("https://{}/p", HOSTS[host]));
        let requirement = json!({
            "scheme": "exact", "network": "eip155:84532", "amount": self.price.to_string(),
            "asset": token.address.to_string(), "payTo": payee(self.payee).to_string(), "maxTimeoutSeconds": 60,
            "extra": {"name": token.name, "version": token.version},
        });
        let url = format!("{}{}{query}", PLACES[self.place], PATHS[self.path]);
        Intent {
            offer: Offer::choose_cheapest(&requirement, Network::BaseSepolia).unwrap(),
            max_payment: Amount::from_units(1_000).unwrap(),
            request: ProviderRequest {
                method: METHODS[self.method].to_owned(),
                url: Url::parse(&url).unwrap(),
                body_hash: None,
            },
            service: self.service.map(|index| SERVICES[index].to_owned()),
            operation: self.operation.map(|index| OperationSlug::parse(SLUGS[index]).unwrap()),
            target: target.map(|target| Target::parse(&target).unwrap()),
            metadata: Metadata::default(),
            fingerprint: Fingerprint::for_text("once"),
        }
    }

    fn agent(&self) -> Agent {
        let kind = |categories| RuleKind::CategoryBlock(CategoryBlock { categories });
        let rule = |category| Rule {
            id: RuleId::from_uuid(Uuid::nil()),
            version: 1,
            kind: kind(vec![category]),
        };
        Agent {
            id: AgentId::from_uuid(Uuid::nil()),
            name: String::new(),
            owner: String::new(),
            created_at: Timestamp::EPOCH,
            status: AgentStatus::Active,
            wallet: Wallet {
                key: WalletKey::Seed { index: 0 },
                address: Address::repeat_byte(0xff),
                attestation: WalletAttestation::from_bytes([0; 65]),
            },
            keys: Vec::new(),
            rules: self.blocked.map(rule).into_iter().collect(),
            archived: false,
            labels: Labels::default(),
            starting_set: None,
            template: None,
            max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
            former_owners: Vec::new(),
            version: 1,
        }
    }

    fn policy(&self) -> SpendPolicy {
        let slugs = |list: &Vec<usize>| {
            list.iter()
                .map(|index| OperationSlug::parse(SLUGS[*index]).unwrap())
                .collect()
        };
        let domain = if self.any_domain { "*" } else { HOSTS[0] };
        SpendPolicy {
            enabled_operations: self.enabled_operations.as_ref().map(slugs),
            allowed_domains: vec![DomainPattern::parse(domain).unwrap()],
            ..SpendPolicy::permissive()
        }
    }

    /// Returns the called operations, found without the index.
    fn called(&self) -> Vec<(usize, usize)> {
        let parts = |path: &'static str| path.trim_matches('/').split('/');
        let is_parameter = |part: &&str| part.starts_with('{');
        let fits = |listed: &&Listed| {
            let (ours, theirs) = (parts(TEMPLATES[listed.template]), parts(PATHS[self.path]));
            listed.method == self.method
                && listed.place == self.place
                && ours.clone().count() == theirs.clone().count()
                && ours
                    .zip(theirs)
                    .all(|(ours, theirs)| is_parameter(&ours) || ours == theirs)
        };
        let open = self.services.iter().enumerate().filter(|(_, (open, ..))| *open);
        let all: Vec<(usize, usize, usize)> = open
            .flat_map(|(service, (.., operations))| {
                let fitting = operations.iter().enumerate().filter(|(_, listed)| fits(listed));
                fitting.map(move |(index, listed)| {
                    (
                        parts(TEMPLATES[listed.template]).filter(is_parameter).count(),
                        service,
                        index,
                    )
                })
            })
            .collect();
        let fewest = all.iter().map(|(parameters, ..)| *parameters).min();
        let literal = all.into_iter().filter(|(parameters, ..)| Some(*parameters) == fewest);
        literal.map(|(_, service, index)| (service, index)).collect()
    }
}

fn operation(slug: usize, listed: &Listed) -> Operation {
    Operation {
        id: OperationUuid::from_uuid(Uuid::nil()),
        slug: OperationSlug::parse(SLUGS[slug]).unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: METHODS[listed.method].to_owned(),
        endpoint: Endpoint::parse(&format!("{}{}", PLACES[listed.place], TEMPLATES[listed.template])).unwrap(),
        category: listed.category,
        execution: String::new(),
        price_model: if listed.fixed { FIXED_PRICE } else { "metered" }.to_owned(),
        // No check may use the estimated price, so any value is possible.
        estimated_price: units(1_000),
        max_price: listed.most.map(units),
        params: json!({"url": {"type": "string", "target": true}}),
        fetches_target: listed.fetches,
        next: None,
        payment: listed.payment.map(|(network, index, amount)| CatalogPayment {
            scheme: "exact".to_owned(),
            network,
            amount: units(amount),
            pay_to: payee(index),
        }),
    }
}

fn signed(grant: &Grant<'_>, offer: &Offer, agent: &Agent) -> TransferAuthorization {
    let terms = PaymentTerms::from_settlement_terms(&SettlementTerms {
        id: SettlementId::from_uuid(Uuid::nil()),
        transaction: TransactionId::from_uuid(Uuid::nil()),
        agent: agent.id,
        wallet: agent.wallet.address,
        network: Network::BaseSepolia,
        amount: grant.amount(),
        pay_to: offer.pay_to(),
        authorized_at: grant.authorized_at(),
        valid_before: grant.authorized_at().after(Duration::DAY),
        idempotency_key: Fingerprint::for_text("once"),
        nonce_prefix: NoncePrefix::from_nonce(B256::ZERO),
        transfers: 0,
        purpose: Purpose::Purchase(Purchase {
            key: KeyId(1),
            service: grant.service_id(),
            operation: grant.operation_slug().clone(),
            scope: grant.purchase_scope(),
            x402_version: offer.version(),
            offer_index: offer.index(),
            policy_version: grant.policy_version(),
            inputs: grant.input_versions(),
            budgets: Vec::new(),
            counts: Vec::new(),
            approval: None,
            checks: Vec::new(),
        }),
    });
    TransferAuthorization::new(&terms, B256::ZERO)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8_192))]

    #[test]
    fn signed_transfers_pay_only_the_called_operation(case in case()) {
        let (catalog, intent, agent) = (case.catalog(), case.intent(), case.agent());
        let called = case.called();
        let Ok(matched) = CatalogMatch::find_in_catalog(&intent, &catalog) else { return Ok(()) };
        prop_assert_eq!(matched.operation.is_some(), !called.is_empty());
        let enabled = EnabledService { service: matched.service.id, version: 1, enabled: true, policy: case.policy() };
        let day = Window {
            scope: WindowScope::Day { agent: agent.id, service: matched.service.id },
            period: WindowPeriod::DAY,
            total: Amount::ZERO,
            version: 1,
            stamp: 1,
            watermark: Timestamp::EPOCH,
            oldest: Vec::new(),
            complete: true,
        };
        let facts = EvaluationInputs {
            agent: &agent,
            intent: &intent,
            key: KeyId(1),
            service: matched.service,
            operation: matched.operation,
            payee_from: None,
            network: Network::BaseSepolia,
            enabled: Some(&enabled),
            day: &day,
            budgets: &[],
            recent: RecentPayments::NONE,
            frozen_by_operators: None,
            approval: None,
            balance: None,
            at: Timestamp::from_secs(1_000_000).unwrap(),
            eviction: Eviction::Eager,
        };
        let Decision::Allow(grant) = evaluate(&facts) else { return Ok(()) };
        let transfer = signed(&grant, &intent.offer, &agent);

        let is_granted = |&&(service, index): &&(usize, usize)| {
            service_id(service) == grant.service_id() && SLUGS[index] == grant.operation_slug().as_str()
        };
        let (service, index) = *called.iter().find(is_granted).expect("only what is called is paid");
        let (_, category, operations) = &case.services[service];
        let listed = &operations[index];
        let (network, pinned, amount) = listed.payment.expect("what has no payment is not paid");
        prop_assert_eq!((network, payee(pinned)), (Network::BaseSepolia, transfer.to));
        let most = listed.most.or(listed.fixed.then_some(amount)).expect("what has no maximum is not paid");
        prop_assert!(grant.amount().units() <= most && transfer.value == grant.amount());
        prop_assert!(case.service.is_none_or(|named| named == service));
        prop_assert!(case.operation.is_none_or(|named| named == index));
        prop_assert!(case.enabled_operations.as_ref().is_none_or(|list| list.contains(&index)));
        prop_assert!(case.blocked.is_none_or(|blocked| blocked != *category && blocked != listed.category));
        let by_name = [*category, listed.category].contains(&Category::Scrape) || SLUGS[index] == "page.bulk-scrape";
        if listed.fetches.unwrap_or(by_name) && !case.any_domain {
            prop_assert_eq!(case.target, Some(0));
            prop_assert!(case.query_host.is_none_or(|host| host == 0), "the query names another target");
        }
    }
}
