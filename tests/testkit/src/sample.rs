//! Sample values for tests. Values have realistic lengths where the length affects stored sizes.

use crate::AUDIT;
use purser_domain::{
    Act, Acting, Actor, Address, Agent, AgentId, AgentKey, AgentStatus, Amount, ApprovalException, ApprovalRequired,
    ApprovalResolution, AuditChanges, AuditKind, AuditOutcome, AuthorizationState, AutomaticFreeze, Availability, B256,
    BlockId, BudgetLimit, CalendarPeriod, CatalogPayment, Category, CategoryBlock, CountLimit, DomainPattern,
    DuplicateGuard, Duration, EnabledService, Endpoint, ExpectedTransfer, FIXED_PRICE, FinalBlock, Fingerprint, Intent,
    KeyCredential, KeyId, KeyScope, LimitAction, ListingHistory, Log, Metadata, MinimumInterval, Network, NewPayee,
    Offer, Operation, OperationSlug, OperationUuid, OperatorName, PriceAboveUsual, ProviderRequest, Reconciliation,
    RequestSource, Rule, RuleId, RuleKind, RuleWindow, Schedule, SchedulePeriod, SecretDigest, Service, ServiceId,
    ServiceSlug, Settlement, SpendPolicy, Timestamp, TransactionLogs, Transfer, TrustStatus, TxHash,
    UnusableAuthorization, Url, UsualPrice, VanishedTransfer, Vendor, VendorAllowlist, Wallet, WindowPeriod, ZoneName,
    decide_reconciliation, find_authorized_transfer, parse_address,
};
use purser_store::AuditEntry;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// Returns the time at which tests start: 2026-11-21T01:09:00Z.
pub fn start() -> Timestamp {
    Timestamp::from_micros(1_795_223_340_000_000).unwrap()
}

/// Returns an amount of `units` micro-USDC.
pub fn units(units: u64) -> Amount {
    Amount::from_units(units).unwrap()
}

/// Returns a duration in seconds.
pub fn secs(secs: u32) -> Duration {
    Duration::from_secs_u32(secs)
}

/// Returns the id of the `n`-th sample agent.
pub fn agent_id(n: u128) -> AgentId {
    AgentId::from_uuid(Uuid::from_u128(0xa000_0000_0000_4000_8000_0000_0000_0000 + n))
}

/// Returns the id of the `n`-th sample service.
pub fn service_id(n: u128) -> ServiceId {
    ServiceId::from_uuid(Uuid::from_u128(0x5000_0000_0000_4000_8000_0000_0000_0000 + n))
}

/// Returns the id of the `n`-th sample rule.
pub fn rule_id(n: u128) -> RuleId {
    RuleId::from_uuid(Uuid::from_u128(0xb000_0000_0000_4000_8000_0000_0000_0000 + n))
}

/// Returns an address of twenty equal bytes.
pub fn wallet(byte: u8) -> Address {
    Address::repeat_byte(byte)
}

/// The key id of every sample agent.
pub const KEY: KeyId = KeyId(1);

/// The owner of every sample agent.
pub const OWNER: &str = "owner";

/// Returns a unique audit entry for a write without a request.
pub fn audit() -> AuditEntry {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let acting = Acting {
        actor: Actor::Operator(OperatorName::parse("test").unwrap()),
        source: RequestSource::default(),
    };
    let done = AuditOutcome::Done(AuditChanges::default());
    let act = Act::new(AuditKind::CatalogEdited);
    AuditEntry::new(AUDIT, &acting.audit_record(start(), number.to_be_bytes(), &act, done))
}

/// Returns an approval decision by the owner at `at`, without a note.
pub fn ruling(at: Timestamp) -> ApprovalResolution {
    ApprovalResolution {
        at,
        by: OWNER.to_owned(),
        note: None,
    }
}

/// Returns an agent with these rules and default values.
pub fn agent(n: u128, rules: Vec<Rule>) -> Agent {
    Agent {
        id: agent_id(n),
        name: "buyer".to_owned(),
        owner: OWNER.to_owned(),
        created_at: start(),
        status: AgentStatus::Active,
        wallet: Wallet {
            key: purser_domain::WalletKey::Seed { index: 7 },
            address: wallet(0xa1),
            attestation: purser_domain::WalletAttestation::from_bytes([0; 65]),
        },
        keys: vec![AgentKey {
            id: KEY,
            credential: KeyCredential::Secret(SecretDigest::from_bytes([9; 32])),
            created_at: start(),
            ends_at: None,
            scope: KeyScope::default(),
            opened_by: None,
        }],
        rules,
        archived: false,
        labels: purser_domain::Labels::default(),
        starting_set: None,
        template: None,
        max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
        former_owners: Vec::new(),
        version: 1,
    }
}

/// Returns a budget rule: at most `limit` micro-USDC within any `window`.
pub fn budget(n: u128, limit: u64, window: Duration) -> Rule {
    Rule {
        id: rule_id(n),
        version: 1,
        kind: RuleKind::BudgetLimit(BudgetLimit {
            limit: units(limit),
            window: window.into(),
        }),
    }
}

/// Returns one rule of each kind.
pub fn rules() -> Vec<Rule> {
    let slug = |text| ServiceSlug::parse(text).unwrap();
    let rule = |n, kind| Rule {
        id: rule_id(n),
        version: 3,
        kind,
    };
    vec![
        rule(
            1,
            RuleKind::CategoryBlock(CategoryBlock {
                categories: vec![Category::Finance, Category::Ai],
            }),
        ),
        rule(
            2,
            RuleKind::VendorAllowlist(VendorAllowlist {
                vendors: vec![Vendor::Service(slug("lab")), Vendor::Wallet(wallet(2))],
            }),
        ),
        rule(
            3,
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(1_000),
                window: secs(3_600).into(),
            }),
        ),
        rule(
            4,
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: None,
                categories: None,
                above: None,
            }),
        ),
        rule(
            5,
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: Some(vec![slug("lab")]),
                categories: Some(Vec::new()),
                above: Some(units(5)),
            }),
        ),
        rule(
            6,
            RuleKind::CountLimit(CountLimit {
                count: 7,
                window: RuleWindow {
                    services: Some(vec![slug("lab")]),
                    ..secs(60).into()
                },
            }),
        ),
        rule(
            7,
            RuleKind::MinimumInterval(MinimumInterval {
                services: None,
                interval: secs(1),
            }),
        ),
        rule(
            8,
            RuleKind::DuplicateGuard(DuplicateGuard {
                services: None,
                within: secs(600),
                action: LimitAction::Block,
            }),
        ),
        rule(9, RuleKind::NewPayee(NewPayee { services: None })),
        rule(
            10,
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent: 20,
                over: UsualPrice::Catalog,
                action: LimitAction::Ask,
            }),
        ),
        rule(
            11,
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: Some(vec![slug("lab")]),
                percent: 0,
                over: UsualPrice::Median(9),
                action: LimitAction::Block,
            }),
        ),
        rule(
            12,
            RuleKind::Schedule(Schedule {
                services: None,
                zone: ZoneName::parse("Europe/Berlin").unwrap(),
                periods: vec![SchedulePeriod::parse("monday,sunday 22:30-24:00").unwrap()],
            }),
        ),
        rule(
            13,
            RuleKind::AutomaticFreeze(AutomaticFreeze {
                times: 10,
                at_least: units(10_000_000),
            }),
        ),
        rule(
            14,
            RuleKind::BudgetLimit(BudgetLimit {
                limit: units(1_000),
                window: RuleWindow {
                    services: Some(vec![slug("lab")]),
                    categories: None,
                    keys: None,
                    per_payee: false,
                    period: WindowPeriod::Calendar(CalendarPeriod::Month, ZoneName::parse("Europe/Berlin").unwrap()),
                    action: LimitAction::Ask,
                },
            }),
        ),
        rule(
            15,
            RuleKind::CountLimit(CountLimit {
                count: 7,
                window: RuleWindow {
                    services: None,
                    categories: Some(vec![Category::Data]),
                    keys: None,
                    per_payee: false,
                    period: WindowPeriod::Lifetime,
                    action: LimitAction::Block,
                },
            }),
        ),
        rule(
            16,
            RuleKind::ApprovalException(ApprovalException {
                services: Some(vec![slug("lab")]),
                operation: Some(OperationSlug::parse("lab.current").unwrap()),
                keys: Some(vec![KeyId(0x0f1e_2d3c_4b5a_6978)]),
                payee: Address::repeat_byte(0xa1),
                max_amount: units(5),
                until: start().after(Duration::DAY),
                waives_threshold: true,
                waived_rules: vec![rule_id(4)],
            }),
        ),
    ]
}

/// Returns the slug of the first sample service.
pub fn service_slug() -> ServiceSlug {
    ServiceSlug::parse("lab").unwrap()
}

/// Returns the slug of a sample service.
pub fn slug_of_service(service: ServiceId) -> ServiceSlug {
    if service == service_id(1) {
        service_slug()
    } else {
        ServiceSlug::parse("other").unwrap()
    }
}

/// Returns a policy with this daily cap and approval threshold, both in micro-USDC.
pub fn enabled(service: ServiceId, max_per_day: u64, require_approval_above: u64) -> EnabledService {
    EnabledService {
        service,
        version: 1,
        enabled: true,
        policy: SpendPolicy {
            max_per_call: units(max_per_day),
            max_per_day: units(max_per_day),
            require_approval_above: units(require_approval_above),
            ..SpendPolicy::permissive()
        },
    }
}

/// Returns a disabled policy that uses every field.
pub fn tight_policy(service: ServiceId) -> EnabledService {
    let operations = ["weather.current", "weather.forecast"].map(|text| OperationSlug::parse(text).unwrap());
    let domains = ["example.com", "*.example.org"].map(|text| DomainPattern::parse(text).unwrap());
    let mut enabled = enabled(service, 5_000, 100);
    enabled.enabled = false;
    enabled.policy.enabled_operations = Some(operations.to_vec());
    enabled.policy.allowed_domains = domains.to_vec();
    enabled
}

/// Returns a paid operation that allows any price.
pub fn operation() -> Operation {
    Operation {
        id: OperationUuid::from_uuid(Uuid::from_u128(1)),
        slug: OperationSlug::parse("lab.pay").unwrap(),
        availability: Availability::Unverified,
        label: "Pay".to_owned(),
        method: "GET".to_owned(),
        endpoint: Endpoint::parse("https://lab.example/pay").unwrap(),
        category: Category::Data,
        execution: "sync".to_owned(),
        price_model: FIXED_PRICE.to_owned(),
        estimated_price: Amount::ZERO,
        max_price: Some(Amount::MAX),
        params: json!({}),
        fetches_target: None,
        next: None,
        payment: Some(CatalogPayment {
            scheme: "exact".to_owned(),
            network: Network::BaseSepolia,
            amount: Amount::from_units(1).unwrap(),
            pay_to: payee(),
        }),
    }
}

const PAYEE: &str = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";

/// Returns a catalog service.
pub fn service(id: ServiceId, slug: &str) -> Service {
    Service {
        id,
        version: 1,
        slug: ServiceSlug::parse(slug).unwrap(),
        name: "Lab".to_owned(),
        description: "A laboratory.".to_owned(),
        website: Url::parse("https://lab.example/").unwrap(),
        logo_url: None,
        category: Category::Data,
        source: "test".to_owned(),
        trust_status: TrustStatus::Listed,
        curated: true,
        history: ListingHistory::default(),
        operations: vec![operation()],
    }
}

/// Returns a request to pay this amount. Requests with different `body` are different.
pub fn intent(amount: u64, body: &str) -> Intent {
    intent_to(payee(), amount, body)
}

/// The payee of every sample operation.
pub fn payee() -> Address {
    parse_address(PAYEE).unwrap()
}

/// A payment of this amount to this payee.
pub fn intent_to(payee: Address, amount: u64, body: &str) -> Intent {
    let offer = json!({
        "scheme": "exact",
        "network": "base-sepolia",
        "maxAmountRequired": amount.to_string(),
        "resource": "https://lab.example/pay",
        "description": "",
        "mimeType": "application/json",
        "payTo": payee.to_string(),
        "maxTimeoutSeconds": 60,
        "asset": Network::BaseSepolia.token().address.to_string(),
        "extra": { "name": "USDC", "version": "2" },
    });
    Intent {
        offer: Offer::choose_cheapest(&json!({ "x402Version": 1, "accepts": [offer] }), Network::BaseSepolia).unwrap(),
        max_payment: Amount::MAX,
        request: ProviderRequest {
            method: "GET".to_owned(),
            // Calls with different amounts have different URLs, so they are not duplicates.
            url: Url::parse(&format!("https://lab.example/pay?amount={amount}")).unwrap(),
            body_hash: None,
        },
        service: None,
        operation: None,
        target: None,
        metadata: Metadata::default(),
        fingerprint: Fingerprint::for_text(&format!("{amount} {body}")),
    }
}

/// Returns a transaction hash of 32 equal bytes.
pub fn tx_hash(byte: u8) -> TxHash {
    TxHash::from_b256(B256::repeat_byte(byte))
}

/// The number of the block that contains the sample transfers.
pub const BLOCK: u64 = 1_000;

/// Returns the transfer that confirms a settlement.
pub fn expected(settlement: &Settlement) -> ExpectedTransfer {
    ExpectedTransfer::new(&settlement.terms, B256::repeat_byte(0x11))
}

/// Returns the settlement's transfer in this transaction. The chain's matcher creates the value, because `Transfer` has
/// no public constructor.
pub fn transfer(settlement: &Settlement, tx_hash: TxHash) -> Transfer {
    find_authorized_transfer(&expected(settlement), &transaction(settlement, tx_hash)).unwrap()
}

/// Returns the settlement's transfer. `log_index` is the index of its event in the block, from 1 on.
pub fn transfer_at(settlement: &Settlement, tx_hash: TxHash, log_index: u64) -> Transfer {
    let mut transaction = transaction(settlement, tx_hash);
    for log in &mut transaction.logs {
        log.index += log_index - 1;
    }
    find_authorized_transfer(&expected(settlement), &transaction).unwrap()
}

/// Returns the logs of a transaction that pays the settlement.
pub fn transaction(settlement: &Settlement, tx_hash: TxHash) -> TransactionLogs {
    let expected = expected(settlement);
    let word = |address: Address| address.into_word();
    let log = |index, topics, data| Log {
        address: expected.token,
        topics,
        data,
        index,
        removed: false,
    };
    let mut value = vec![0; 24];
    value.extend(expected.amount.units().to_be_bytes());
    TransactionLogs {
        tx_hash,
        block: BlockId {
            number: BLOCK,
            hash: B256::repeat_byte(0xb0),
        },
        logs: vec![
            log(
                0,
                vec![purser_domain::AUTHORIZATION_USED, word(expected.from), expected.nonce],
                Vec::new(),
            ),
            log(
                1,
                vec![purser_domain::TRANSFER, word(expected.from), word(expected.to)],
                value,
            ),
        ],
    }
}

/// Returns the last block in which the payment can be made, and the next block.
pub fn last_block_and_next(settlement: &Settlement) -> [FinalBlock; 2] {
    [1, 0].map(|before| FinalBlock {
        number: BLOCK + 1 - u64::from(before),
        hash: B256::repeat_byte(0xb0),
        at: settlement.terms.valid_before.before(secs(before)),
    })
}

/// Returns evidence that a settlement can never be paid. [`decide_reconciliation`] creates it, because
/// `UnusableAuthorization` has no public constructor.
pub fn unusable(settlement: &Settlement) -> UnusableAuthorization {
    let [_, past] = last_block_and_next(settlement);
    match decide_reconciliation(settlement, &expected(settlement), &past, &AuthorizationState::Unused) {
        Reconciliation::Release(unusable) => unusable,
        other => panic!("{other:?}"),
    }
}

/// Returns evidence that the transfer of a confirmed settlement is no longer on the chain.
pub fn transfer_gone(settlement: &Settlement) -> VanishedTransfer {
    let [_, past] = last_block_and_next(settlement);
    match decide_reconciliation(settlement, &expected(settlement), &past, &AuthorizationState::Unused) {
        Reconciliation::RevertConfirmation(transfer_gone) => transfer_gone,
        other => panic!("{other:?}"),
    }
}
