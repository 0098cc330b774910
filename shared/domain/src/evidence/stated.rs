//! Replays a decision from the signed statement and the input documents.
//!
//! The parsed documents are serialized again and compared with the originals. A difference means that a field was
//! misread, so the replay is rejected.

use crate::{
    Address, Agent, AgentId, AgentStatus, Amount, ApprovalId, AutomaticFreeze, Availability, CallDescription,
    CatalogPayment, Category, Check, CheckName, CheckOutcome, DecisionIds, DecisionResult, DocumentHash, DomainPattern,
    Duration, EnabledService, Endpoint, IncreasedCaps, InputDocuments, InputVersions, KeyId, Labels, LimitAction,
    LimitIncrease, ListingHistory, Metadata, Network, Operation, OperationSlug, OperationUuid, ProviderRequest,
    RecordedDecision, ReplayDifference, ReplayInputs, Rule, RuleId, RuleKind, RuleWindow, Schedule, SchedulePeriod,
    Service, ServiceId, ServiceSlug, SettlementId, SpendPolicy, StatedDecision, Timestamp, TransactionId, TrustStatus,
    UsualPrice, Vendor, Wallet, WalletAttestation, WalletKey, WindowPeriod, ZoneName, parse_address, replay_decision,
};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

/// Why a decision can't be replayed from the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReplay {
    /// The statement has no hashes of the inputs, or an input document is missing.
    #[error("the decision names no inputs, or the file has not their documents, which the owner's file has")]
    NoInputs,
    /// This version of the software can't parse the statement.
    #[error("the statement has members that this version does not read")]
    Statement,
    /// The hash of an input document differs from the hash in the statement.
    #[error("the documents of the inputs are not those that the statement has the hashes of")]
    OtherDocuments,
    /// This version of the software can't parse the input documents.
    #[error("the documents of the inputs have members that this version does not read")]
    Documents,
    /// The decision depends on call parameters or an estimated price, which the documents do not contain.
    #[error(
        "the decision depends on what the document of the catalog entry does not have: the parameter that names the target, or an estimated price"
    )]
    NotDocumented,
}

/// Replays the decision in a statement and returns the differences. The caller must verify the signatures.
pub fn replay_stated_decision(payload: &Value, inputs: &Value) -> Result<Vec<ReplayDifference>, NoReplay> {
    let hashes = Object(payload).object_field("inputs").ok_or(NoReplay::NoInputs)?;
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
        if hashes.text_field(name) != Some(&DocumentHash::digest(document).to_string()) {
            return Err(NoReplay::OtherDocuments);
        }
    }
    let (ids, decision) = parse_decision(Object(payload)).ok_or(NoReplay::Statement)?;
    let stated = StatedDecision {
        ids,
        decision: &decision,
        inputs: None,
    };
    if Object(payload).text_field("decision_hash") != Some(&stated.decision_hash().to_string()) {
        return Err(NoReplay::Statement);
    }
    let agent = parse_agent(Object(&documents.agent)).ok_or(NoReplay::Documents)?;
    let service = parse_service(Object(&documents.service)).ok_or(NoReplay::Documents)?;
    let enabled = match &documents.policy {
        Value::Null => None,
        document => Some(parse_policy(Object(document)).ok_or(NoReplay::Documents)?),
    };
    let inputs = ReplayInputs {
        agent: &agent,
        service: &service,
        enabled: enabled.as_ref(),
    };
    if InputDocuments::new(&inputs, decision.at) != documents {
        return Err(NoReplay::Documents);
    }
    let differences = replay_decision(&decision, &inputs);
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

/// A JSON object in a document. Reading a field that is missing or malformed returns `None`.
#[derive(Clone, Copy)]
struct Object<'a>(&'a Value);

impl<'a> Object<'a> {
    fn object_field(self, name: &str) -> Option<Self> {
        self.0.get(name).filter(|value| value.is_object()).map(Object)
    }

    fn text_field(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    fn number_field(self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn amount_field(self, name: &str) -> Option<Amount> {
        Amount::from_units(self.number_field(name)?)
    }

    fn duration_field(self, name: &str) -> Option<Duration> {
        u32::try_from(self.number_field(name)?)
            .ok()
            .map(Duration::from_secs_u32)
    }

    fn address_field(self, name: &str) -> Option<Address> {
        parse_address(self.text_field(name)?).ok()
    }

    fn time_field(self, name: &str) -> Option<Timestamp> {
        Timestamp::parse(self.text_field(name)?)
    }

    fn text_list_field<T>(self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        let texts = self.0.get(name)?.as_array()?.iter();
        texts.map(|text| parse(text.as_str()?)).collect()
    }

    fn object_list_field<T>(self, name: &str, parse: impl Fn(Self) -> Option<T>) -> Option<Vec<T>> {
        self.0.get(name)?.as_array()?.iter().map(Object).map(parse).collect()
    }

    /// Reads a field that may be null. `parse` reads the value if it is not null.
    #[expect(clippy::option_option, reason = "a missing member is not null")]
    fn nullable_field<T>(self, name: &str, parse: impl FnOnce(Self, &str) -> Option<T>) -> Option<Option<T>> {
        if self.0.get(name)?.is_null() {
            return Some(None);
        }
        parse(self, name).map(Some)
    }

    /// Reads a field that may be null or absent.
    #[expect(clippy::option_option, reason = "a wrong value is not an absent value")]
    fn optional_field<T>(self, name: &str, read: impl FnOnce(Self, &str) -> Option<T>) -> Option<Option<T>> {
        match self.0.get(name) {
            None => Some(None),
            Some(_) => self.nullable_field(name, read),
        }
    }
}

fn parse_decision(payload: Object<'_>) -> Option<(DecisionIds, RecordedDecision)> {
    let inputs = payload.object_field("facts")?;
    let (call, versions) = (inputs.object_field("call")?, inputs.object_field("versions")?);
    let ids = DecisionIds {
        transaction: TransactionId::parse(payload.text_field("transaction_id")?)?,
        agent: AgentId::parse(inputs.text_field("agent_id")?)?,
        key: KeyId::parse(inputs.text_field("key_id")?)?,
        service: ServiceId::parse(inputs.text_field("service_id")?)?,
        settlement: payload.nullable_field("settlement_id", |object, name| {
            SettlementId::parse(object.text_field(name)?)
        })?,
        approval: payload.nullable_field("approval_id", |object, name| {
            ApprovalId::parse(object.text_field(name)?)
        })?,
    };
    let network = inputs.text_field("network")?;
    let decision = RecordedDecision {
        result: DecisionResult::from_name(payload.text_field("result")?)?,
        reason: payload.text_field("reason")?.to_owned(),
        checks: inputs.object_list_field("checks", parse_check)?,
        operation: inputs.nullable_field("operation_id", |object, name| {
            OperationSlug::parse(object.text_field(name)?)
        })?,
        amount: inputs.amount_field("amount_units")?,
        pay_to: inputs.address_field("pay_to")?,
        network: Network::ALL.into_iter().find(|known| known.caip2() == network)?,
        call: CallDescription {
            request: ProviderRequest {
                method: call.text_field("method")?.to_owned(),
                url: Url::parse(call.text_field("url")?).ok()?,
                body_hash: call
                    .nullable_field("body_hash", |object, name| object.text_field(name).map(str::to_owned))?,
            },
            target_url: call.nullable_field("target_url", |object, name| Url::parse(object.text_field(name)?).ok())?,
            metadata: Metadata::default(),
            catalog_price: None,
        },
        at: inputs.time_field("decided_at")?,
        policy_version: versions.nullable_field("policy", Object::number_field)?,
        inputs: Some(InputVersions {
            engine: u32::try_from(versions.number_field("engine")?).ok()?,
            agent: versions.number_field("agent")?,
            service: versions.number_field("service")?,
        }),
    };
    Some((ids, decision))
}

fn parse_check(check: Object<'_>) -> Option<Check> {
    Some(Check {
        name: CheckName::from_name(check.text_field("name")?)?,
        outcome: CheckOutcome::from_name(check.text_field("outcome")?)?,
        limit: check.nullable_field("limit", Object::amount_field)?,
        used: check.nullable_field("used", Object::amount_field)?,
        remaining: check.nullable_field("remaining", Object::amount_field)?,
    })
}

/// Parses the agent's document. The agent's name and owner are empty. The user who granted a parsed [`LimitIncrease`]
/// is also empty, because the checks only compare this user with the owner.
fn parse_agent(document: Object<'_>) -> Option<Agent> {
    let rule = |rule: Object<'_>| {
        Some(Rule {
            id: RuleId::parse(rule.text_field("rule_id")?)?,
            version: rule.number_field("rule_version")?,
            kind: parse_rule_kind(rule)?,
        })
    };
    Some(Agent {
        id: AgentId::parse(document.text_field("agent_id")?)?,
        name: String::new(),
        owner: String::new(),
        created_at: Timestamp::EPOCH,
        status: AgentStatus::from_name(document.text_field("status")?)?,
        archived: false,
        labels: Labels::default(),
        wallet: Wallet {
            key: WalletKey::Seed { index: 0 },
            address: document.address_field("wallet")?,
            attestation: WalletAttestation::from_bytes([0; 65]),
        },
        keys: Vec::new(),
        rules: document.object_list_field("rules", rule)?,
        starting_set: None,
        template: None,
        max_increase_factor: Agent::DEFAULT_INCREASE_FACTOR,
        former_owners: Vec::new(),
        version: document.number_field("version")?,
    })
}

/// Parses a rule. This is the inverse of [`rule_parameters`](super::inputs::rule_parameters).
fn parse_rule_kind(rule: Object<'_>) -> Option<RuleKind> {
    let slugs = |object: Object<'_>, name: &str| object.text_list_field(name, ServiceSlug::parse);
    let services = || rule.nullable_field("services", slugs);
    let number = |name| u32::try_from(rule.number_field(name)?).ok();
    let action = || LimitAction::from_name(rule.text_field("action")?);
    Some(match rule.text_field("kind")? {
        RuleKind::CATEGORY_BLOCK => RuleKind::CategoryBlock {
            categories: rule.text_list_field("categories", Category::from_name)?,
        },
        RuleKind::VENDOR_ALLOWLIST => {
            let services = rule.text_list_field("services", |slug| ServiceSlug::parse(slug).map(Vendor::Service))?;
            let wallets = rule.text_list_field("wallets", |wallet| parse_address(wallet).ok().map(Vendor::Wallet))?;
            let vendors = [services, wallets].concat();
            RuleKind::VendorAllowlist { vendors }
        }
        RuleKind::BUDGET_LIMIT => RuleKind::BudgetLimit {
            limit: rule.amount_field("limit_units")?,
            window: parse_window(rule)?,
        },
        RuleKind::APPROVAL_REQUIRED => RuleKind::ApprovalRequired {
            services: services()?,
            categories: rule.nullable_field("categories", |object, name| {
                object.text_list_field(name, Category::from_name)
            })?,
            above: rule.nullable_field("above_units", Object::amount_field)?,
        },
        RuleKind::COUNT_LIMIT => RuleKind::CountLimit {
            count: number("count")?,
            window: parse_window(rule)?,
        },
        RuleKind::MINIMUM_INTERVAL => RuleKind::MinimumInterval {
            services: services()?,
            interval: rule.duration_field("interval_seconds")?,
        },
        RuleKind::DUPLICATE_GUARD => RuleKind::DuplicateGuard {
            services: services()?,
            within: rule.duration_field("within_seconds")?,
            action: action()?,
        },
        RuleKind::NEW_PAYEE => RuleKind::NewPayee { services: services()? },
        RuleKind::PRICE_ABOVE_USUAL => {
            let prices = rule.nullable_field("of", |object, name| u8::try_from(object.number_field(name)?).ok())?;
            RuleKind::PriceAboveUsual {
                services: services()?,
                percent: number("percent")?,
                over: UsualPrice::from_name(rule.text_field("over")?, prices)?,
                action: action()?,
            }
        }
        RuleKind::SCHEDULE => RuleKind::Schedule {
            services: services()?,
            schedule: Schedule {
                zone: ZoneName::parse(rule.text_field("time_zone")?)?,
                periods: rule.text_list_field("periods", SchedulePeriod::parse)?,
            },
        },
        RuleKind::ANOMALY_BRAKE => RuleKind::AnomalyBrake(AutomaticFreeze {
            times: number("times")?,
            at_least: rule.amount_field("at_least_units")?,
        }),
        _ => return None,
    })
}

/// Parses a window; the inverse of [`window_parameters`](super::inputs::window_parameters).
fn parse_window(rule: Object<'_>) -> Option<RuleWindow> {
    let slugs = |of: Object<'_>, name: &str| of.text_list_field(name, ServiceSlug::parse);
    let zone = |of: Object<'_>, name: &str| ZoneName::parse(of.text_field(name)?);
    let action = |of: Object<'_>, name: &str| LimitAction::from_name(of.text_field(name)?);
    let name = rule.optional_field("period", |of, name| of.text_field(name).map(str::to_owned))?;
    let duration = rule.optional_field("window_seconds", Object::duration_field)?;
    Some(RuleWindow {
        services: rule.optional_field("services", slugs)?,
        categories: rule.optional_field("categories", |of, name| of.text_list_field(name, Category::from_name))?,
        period: WindowPeriod::from_parts(duration, name.as_deref(), rule.optional_field("time_zone", zone)?)?,
        action: rule.optional_field("action", action)?.unwrap_or(LimitAction::Block),
    })
}

fn parse_policy(document: Object<'_>) -> Option<EnabledService> {
    let increase = |increase: Object<'_>| {
        Some(LimitIncrease {
            caps: IncreasedCaps {
                max_per_call: increase.nullable_field("max_per_call_units", Object::amount_field)?,
                max_per_day: increase.nullable_field("max_per_day_units", Object::amount_field)?,
            },
            from: increase.time_field("from")?,
            until: increase.time_field("until")?,
            by: String::new(),
            approval: ApprovalId::from_uuid(Uuid::nil()),
        })
    };
    let slugs = |of: Object<'_>, name: &str| of.text_list_field(name, OperationSlug::parse);
    Some(EnabledService {
        service: ServiceId::parse(document.text_field("service_id")?)?,
        version: document.number_field("version")?,
        enabled: document.0.get("enabled")?.as_bool()?,
        policy: SpendPolicy {
            max_per_call: document.amount_field("max_per_call_units")?,
            max_per_day: document.amount_field("max_per_day_units")?,
            require_approval_above: document.amount_field("require_approval_above_units")?,
            enabled_operations: document.nullable_field("enabled_operations", slugs)?,
            allowed_domains: document.text_list_field("allowed_domains", |text| DomainPattern::parse(text).ok())?,
            raise: match document.object_field("raise") {
                Some(document) => Some(increase(document)?),
                None => None,
            },
        },
    })
}

fn parse_service(document: Object<'_>) -> Option<Service> {
    let website = Url::parse("https://service.invalid/").ok()?;
    Some(Service {
        id: ServiceId::parse(document.text_field("service_id")?)?,
        version: document.number_field("version")?,
        slug: ServiceSlug::parse(document.text_field("slug")?)?,
        name: String::new(),
        description: String::new(),
        website,
        logo_url: None,
        category: Category::from_name(document.text_field("category")?)?,
        source: String::new(),
        trust_status: TrustStatus::Listed,
        curated: true,
        operations: document.object_list_field("operations", parse_operation)?,
        history: ListingHistory::default(),
    })
}

/// Parses an operation. The document contains the pricing at the time of the decision.
fn parse_operation(document: Object<'_>) -> Option<Operation> {
    let payment = |payment: Object<'_>| {
        Some(CatalogPayment {
            scheme: payment.text_field("scheme")?.to_owned(),
            network: Network::from_name(payment.text_field("network")?)?,
            amount: payment.amount_field("amount_units")?,
            pay_to: payment.address_field("pay_to")?,
        })
    };
    Some(Operation {
        id: OperationUuid::from_uuid(Uuid::nil()),
        slug: OperationSlug::parse(document.text_field("operation_id")?)?,
        availability: Availability::Unverified,
        label: String::new(),
        method: document.text_field("method")?.to_owned(),
        endpoint: Endpoint::parse(document.text_field("endpoint")?)?,
        category: Category::from_name(document.text_field("category")?)?,
        execution: String::new(),
        price_model: document.text_field("price_model")?.to_owned(),
        estimated_price: Amount::ZERO,
        max_price: document.nullable_field("max_price_units", Object::amount_field)?,
        params: Value::Null,
        fetches_target: Some(document.0.get("fetches_target")?.as_bool()?),
        payment: document.nullable_field("payment", |object, name| payment(object.object_field(name)?))?,
        next: None,
    })
}
