//! Replays a decision from its signed statement and the documents of its inputs.
//!
//! The statement and the documents are parsed into the types of the evaluation. Before the replay, both are serialized
//! again and compared with the originals. If anything differs, the replay is rejected, because a field was skipped or
//! misread.

use crate::{
    Address, Agent, AgentId, AgentStatus, Amount, AnomalyBrake, ApprovalId, Availability, CallDescription,
    CatalogPayment, Category, Check, CheckName, CheckOutcome, DecisionIds, DecisionResult, DocumentHash, DomainPattern,
    Duration, EnabledService, Endpoint, InputDocuments, InputVersions, KeyId, Labels, LimitAction, ListingHistory,
    Metadata, Network, Operation, OperationSlug, OperationUuid, ProviderRequest, Raise, RaisedCaps, RecordedDecision,
    ReplayDifference, ReplayInputs, Rule, RuleId, RuleKind, Schedule, Service, ServiceId, ServiceSlug, SettlementId,
    SpendPolicy, StatedDecision, TimeOfDay, Timestamp, TransactionId, TrustStatus, UsualPrice, Vendor, Wallet,
    WalletAttestation, WalletKey, Weekday, ZoneName, parse_address, replay,
};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

/// Why a decision can't be replayed from its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReplay {
    /// The statement has no input hashes, or the file lacks the documents.
    #[error("the decision names no inputs, or the file has not their documents, which the owner's file has")]
    NoInputs,
    /// This version can't parse the statement.
    #[error("the statement has members that this version does not read")]
    Statement,
    /// The hashes of the documents differ from the hashes in the statement.
    #[error("the documents of the inputs are not those that the statement has the hashes of")]
    OtherDocuments,
    /// This version can't parse the documents.
    #[error("the documents of the inputs have members that this version does not read")]
    Documents,
    /// The decision depends on call parameters or an estimated price, which the documents do not contain.
    #[error(
        "the decision depends on what the document of the catalog entry does not have: the parameter that names the target, or an estimated price"
    )]
    NotDocumented,
}

/// Replays the decision of a statement and returns the differences. An empty list means the same decision. `inputs` has
/// the documents `agent`, `policy` and `service`. Signatures are not verified here.
pub fn replay_stated(payload: &Value, inputs: &Value) -> Result<Vec<ReplayDifference>, NoReplay> {
    let hashes = Object(payload).object("inputs").ok_or(NoReplay::NoInputs)?;
    let document = |name| inputs.get(name).cloned().ok_or(NoReplay::NoInputs);
    let documents = InputDocuments {
        agent: document("agent")?,
        policy: document("policy")?,
        service: document("service")?,
    };
    for (name, document) in [
        ("agent_hash", &documents.agent),
        ("policy_hash", &documents.policy),
        ("service_hash", &documents.service),
    ] {
        if hashes.text(name) != Some(&DocumentHash::digest(document).to_string()) {
            return Err(NoReplay::OtherDocuments);
        }
    }
    let (ids, decision) = decision(Object(payload)).ok_or(NoReplay::Statement)?;
    let stated = StatedDecision {
        ids,
        decision: &decision,
        inputs: None,
    };
    if Object(payload).text("decision_hash") != Some(&stated.hash().to_string()) {
        return Err(NoReplay::Statement);
    }
    let agent = agent(Object(&documents.agent)).ok_or(NoReplay::Documents)?;
    let service = service(Object(&documents.service)).ok_or(NoReplay::Documents)?;
    let enabled = match &documents.policy {
        Value::Null => None,
        document => Some(policy(Object(document)).ok_or(NoReplay::Documents)?),
    };
    let inputs = ReplayInputs {
        agent: &agent,
        service: &service,
        enabled: enabled.as_ref(),
    };
    if InputDocuments::new(&inputs, decision.at) != documents {
        return Err(NoReplay::Documents);
    }
    let differences = replay(&decision, &inputs);
    let failed_domain = |check: &Check| check.name == CheckName::Domain && check.outcome == CheckOutcome::Failed;
    let called = |operation: &&Operation| Some(&operation.slug) == decision.operation.as_ref();
    let mut called = service.operations.iter().filter(called);
    let is_documented =
        called.all(|operation| operation.payment.is_some()) && !decision.checks.iter().any(failed_domain);
    if differences.is_empty() || is_documented {
        Ok(differences)
    } else {
        Err(NoReplay::NotDocumented)
    }
}

/// A JSON object of a document. Reading a field that is missing or has a wrong format returns `None`.
#[derive(Clone, Copy)]
struct Object<'a>(&'a Value);

impl<'a> Object<'a> {
    fn object(self, name: &str) -> Option<Self> {
        self.0.get(name).filter(|value| value.is_object()).map(Object)
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    fn number(self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn amount(self, name: &str) -> Option<Amount> {
        Amount::from_units(self.number(name)?)
    }

    fn duration(self, name: &str) -> Option<Duration> {
        u32::try_from(self.number(name)?).ok().map(Duration::from_secs_u32)
    }

    fn address(self, name: &str) -> Option<Address> {
        parse_address(self.text(name)?).ok()
    }

    fn time(self, name: &str) -> Option<Timestamp> {
        Timestamp::parse(self.text(name)?)
    }

    fn texts<T>(self, name: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        let texts = self.0.get(name)?.as_array()?.iter();
        texts.map(|text| read(text.as_str()?)).collect()
    }

    fn objects<T>(self, name: &str, read: impl Fn(Self) -> Option<T>) -> Option<Vec<T>> {
        self.0.get(name)?.as_array()?.iter().map(Object).map(read).collect()
    }

    /// Reads a field that may be null. `read` reads any other value.
    #[expect(clippy::option_option, reason = "a missing member is not null")]
    fn nullable<T>(self, name: &str, read: impl FnOnce(Self, &str) -> Option<T>) -> Option<Option<T>> {
        if self.0.get(name)?.is_null() {
            return Some(None);
        }
        read(self, name).map(Some)
    }
}

fn decision(payload: Object<'_>) -> Option<(DecisionIds, RecordedDecision)> {
    let facts = payload.object("facts")?;
    let (call, versions) = (facts.object("call")?, facts.object("versions")?);
    let ids = DecisionIds {
        transaction: TransactionId::parse(payload.text("transaction_id")?)?,
        agent: AgentId::parse(facts.text("agent_id")?)?,
        key: KeyId::parse(facts.text("key_id")?)?,
        service: ServiceId::parse(facts.text("service_id")?)?,
        settlement: payload.nullable("settlement_id", |of, name| SettlementId::parse(of.text(name)?))?,
        approval: payload.nullable("approval_id", |of, name| ApprovalId::parse(of.text(name)?))?,
    };
    let network = facts.text("network")?;
    let decision = RecordedDecision {
        result: DecisionResult::from_name(payload.text("result")?)?,
        reason: payload.text("reason")?.to_owned(),
        checks: facts.objects("checks", check)?,
        operation: facts.nullable("operation_id", |of, name| OperationSlug::parse(of.text(name)?))?,
        amount: facts.amount("amount_units")?,
        pay_to: facts.address("pay_to")?,
        network: Network::ALL.into_iter().find(|known| known.caip2() == network)?,
        call: CallDescription {
            request: ProviderRequest {
                method: call.text("method")?.to_owned(),
                url: Url::parse(call.text("url")?).ok()?,
                body_hash: call.nullable("body_hash", |of, name| of.text(name).map(str::to_owned))?,
            },
            target_url: call.nullable("target_url", |of, name| Url::parse(of.text(name)?).ok())?,
            metadata: Metadata::default(),
            catalog_price: None,
        },
        at: facts.time("decided_at")?,
        policy_version: versions.nullable("policy", Object::number)?,
        inputs: Some(InputVersions {
            engine: u32::try_from(versions.number("engine")?).ok()?,
            agent: versions.number("agent")?,
            service: versions.number("service")?,
        }),
    };
    Some((ids, decision))
}

fn check(check: Object<'_>) -> Option<Check> {
    Some(Check {
        name: CheckName::from_name(check.text("name")?)?,
        outcome: CheckOutcome::from_name(check.text("outcome")?)?,
        limit: check.nullable("limit", Object::amount)?,
        used: check.nullable("used", Object::amount)?,
        remaining: check.nullable("remaining", Object::amount)?,
    })
}

/// Parses the agent's document. The name and the owner are empty, as in the parsed [`Raise`], because the checks only
/// compare the two owners.
fn agent(document: Object<'_>) -> Option<Agent> {
    let rule = |rule: Object<'_>| {
        Some(Rule {
            id: RuleId::parse(rule.text("rule_id")?)?,
            version: rule.number("rule_version")?,
            kind: rule_kind(rule)?,
        })
    };
    Some(Agent {
        id: AgentId::parse(document.text("agent_id")?)?,
        name: String::new(),
        owner: String::new(),
        created_at: Timestamp::EPOCH,
        status: AgentStatus::from_name(document.text("status")?)?,
        archived: false,
        labels: Labels::default(),
        wallet: Wallet {
            key: WalletKey::Seed { index: 0 },
            address: document.address("wallet")?,
            attestation: WalletAttestation::from_bytes([0; 65]),
        },
        keys: Vec::new(),
        rules: document.objects("rules", rule)?,
        starting_set: None,
        template: None,
        former_owners: Vec::new(),
        version: document.number("version")?,
    })
}

/// Parses a rule; the inverse of [`rule_terms`](super::inputs::rule_terms).
fn rule_kind(rule: Object<'_>) -> Option<RuleKind> {
    let slugs = |of: Object<'_>, name: &str| of.texts(name, ServiceSlug::parse);
    let services = || rule.nullable("services", slugs);
    let number = |name| u32::try_from(rule.number(name)?).ok();
    let action = || LimitAction::from_name(rule.text("action")?);
    Some(match rule.text("kind")? {
        RuleKind::CATEGORY_BLOCK => RuleKind::CategoryBlock {
            categories: rule.texts("categories", Category::from_name)?,
        },
        RuleKind::VENDOR_ALLOWLIST => {
            let services = rule.texts("services", |slug| ServiceSlug::parse(slug).map(Vendor::Service))?;
            let wallets = rule.texts("wallets", |wallet| parse_address(wallet).ok().map(Vendor::Wallet))?;
            let vendors = [services, wallets].concat();
            RuleKind::VendorAllowlist { vendors }
        }
        RuleKind::BUDGET_LIMIT => RuleKind::BudgetLimit {
            limit: rule.amount("limit_units")?,
            window: rule.duration("window_seconds")?,
        },
        RuleKind::APPROVAL_REQUIRED => RuleKind::ApprovalRequired {
            services: services()?,
            categories: rule.nullable("categories", |of, name| of.texts(name, Category::from_name))?,
            above: rule.nullable("above_units", Object::amount)?,
        },
        RuleKind::COUNT_LIMIT => RuleKind::CountLimit {
            services: services()?,
            count: number("count")?,
            window: rule.duration("window_seconds")?,
        },
        RuleKind::MINIMUM_INTERVAL => RuleKind::MinimumInterval {
            services: services()?,
            interval: rule.duration("interval_seconds")?,
        },
        RuleKind::DUPLICATE_GUARD => RuleKind::DuplicateGuard {
            services: services()?,
            within: rule.duration("within_seconds")?,
            action: action()?,
        },
        RuleKind::NEW_PAYEE => RuleKind::NewPayee { services: services()? },
        RuleKind::PRICE_ABOVE_USUAL => {
            let prices = rule.nullable("of", |of, name| u8::try_from(of.number(name)?).ok())?;
            RuleKind::PriceAboveUsual {
                services: services()?,
                percent: number("percent")?,
                over: UsualPrice::from_name(rule.text("over")?, prices)?,
                action: action()?,
            }
        }
        RuleKind::SCHEDULE => RuleKind::Schedule {
            services: services()?,
            schedule: Schedule {
                zone: ZoneName::parse(rule.text("time_zone")?)?,
                days: rule.texts("days", Weekday::from_name)?,
                from: TimeOfDay::parse(rule.text("from")?)?,
                to: TimeOfDay::parse(rule.text("to")?)?,
            },
        },
        RuleKind::ANOMALY_BRAKE => RuleKind::AnomalyBrake(AnomalyBrake {
            times: number("times")?,
            at_least: rule.amount("at_least_units")?,
        }),
        _ => return None,
    })
}

fn policy(document: Object<'_>) -> Option<EnabledService> {
    let raise = |raise: Object<'_>| {
        Some(Raise {
            caps: RaisedCaps {
                max_per_call: raise.nullable("max_per_call_units", Object::amount)?,
                max_per_day: raise.nullable("max_per_day_units", Object::amount)?,
            },
            from: raise.time("from")?,
            until: raise.time("until")?,
            by: String::new(),
            approval: ApprovalId::from_uuid(Uuid::nil()),
        })
    };
    let slugs = |of: Object<'_>, name: &str| of.texts(name, OperationSlug::parse);
    Some(EnabledService {
        service: ServiceId::parse(document.text("service_id")?)?,
        version: document.number("version")?,
        enabled: document.0.get("enabled")?.as_bool()?,
        policy: SpendPolicy {
            max_per_call: document.amount("max_per_call_units")?,
            max_per_day: document.amount("max_per_day_units")?,
            require_approval_above: document.amount("require_approval_above_units")?,
            enabled_operations: document.nullable("enabled_operations", slugs)?,
            allowed_domains: document.texts("allowed_domains", |text| DomainPattern::parse(text).ok())?,
            raise: match document.object("raise") {
                Some(document) => Some(raise(document)?),
                None => None,
            },
        },
    })
}

fn service(document: Object<'_>) -> Option<Service> {
    let website = Url::parse("https://service.invalid/").ok()?;
    Some(Service {
        id: ServiceId::parse(document.text("service_id")?)?,
        version: document.number("version")?,
        slug: ServiceSlug::parse(document.text("slug")?)?,
        name: String::new(),
        description: String::new(),
        website,
        logo_url: None,
        category: Category::from_name(document.text("category")?)?,
        source: String::new(),
        trust_status: TrustStatus::Listed,
        curated: true,
        operations: document.objects("operations", operation)?,
        history: ListingHistory::default(),
    })
}

/// Parses an operation with the pricing of the document, which is the pricing at the time of the decision.
fn operation(document: Object<'_>) -> Option<Operation> {
    let payment = |payment: Object<'_>| {
        Some(CatalogPayment {
            scheme: payment.text("scheme")?.to_owned(),
            network: Network::from_name(payment.text("network")?)?,
            amount: payment.amount("amount_units")?,
            pay_to: payment.address("pay_to")?,
        })
    };
    Some(Operation {
        id: OperationUuid::from_uuid(Uuid::nil()),
        slug: OperationSlug::parse(document.text("operation_id")?)?,
        availability: Availability::Unverified,
        label: String::new(),
        method: document.text("method")?.to_owned(),
        endpoint: Endpoint::parse(document.text("endpoint")?)?,
        category: Category::from_name(document.text("category")?)?,
        execution: String::new(),
        price_model: document.text("price_model")?.to_owned(),
        estimated_price: Amount::ZERO,
        max_price: document.nullable("max_price_units", Object::amount)?,
        params: Value::Null,
        fetches_target: Some(document.0.get("fetches_target")?.as_bool()?),
        payment: document.nullable("payment", |of, name| payment(of.object(name)?))?,
        next: None,
    })
}
