//! `/agents/{agentId}/rules`: the limits of an agent over all its services.

use crate::agents::owned::Owned;
use crate::agents::owned::named;
use crate::request::{created, with_version};
use crate::rules::operations::{CheckedRule, RuleUsage};
use crate::state::People;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{
    Failure, IfMatch, Member as _, Place, Problems, SessionToken, VersionTag, json_body, seconds, versioned,
};
use purser_domain::{
    Address, Agent, Amount, BUDGET_WINDOW_MAX, BUDGET_WINDOW_MIN, Catalog, Category, Duration, Error, Problem, RuleId,
    RuleKind, ServiceSlug, Vendor,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of listing rules.
    pub(crate) ListErrors: 401, 403, 404, 429, 500;
    /// The errors of a write on rules.
    pub(crate) WriteErrors: 400, 401, 403, 404, 412, 413, 428, 429, 500;
}

/// A rule of one of the caller's agents.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentRule)]
pub(crate) struct RuleView {
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
    /// The number of edits of this rule.
    rule_version: u64,
    #[serde(flatten)]
    says: RuleSays,
}

/// The terms of a rule.
#[derive(Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum RuleSays {
    /// Payments in these categories are blocked.
    CategoryBlock {
        /// The blocked categories.
        categories: Vec<&'static str>,
    },
    /// Only these vendors are paid.
    VendorAllowlist {
        /// The slugs of allowed services. Every wallet of these services is allowed.
        services: Vec<String>,
        /// The addresses of allowed wallets, for every service.
        wallets: Vec<String>,
    },
    /// The most that may be spent within every window of this length, over all services.
    BudgetLimit {
        /// The budget, in micro-units.
        limit_units: u64,
        /// The length of the window, in seconds.
        window_seconds: u64,
        /// The amount used at this time. It is an upper bound while more than about 20,000 payments that left the
        /// window are not removed yet.
        used_units: u64,
        /// The remaining amount.
        remaining_units: u64,
    },
    /// A person must approve each payment that meets all conditions that are not null. If all are null, a person must
    /// approve every payment.
    ApprovalRequired {
        /// Payments to these services.
        #[schema(required)]
        services: Option<Vec<String>>,
        /// Payments in these categories.
        #[schema(required)]
        categories: Option<Vec<&'static str>>,
        /// Payments above this amount.
        #[schema(required)]
        above_units: Option<u64>,
    },
}

impl RuleView {
    fn of(usage: &RuleUsage) -> Self {
        let RuleUsage { rule, used } = usage;
        let slugs = |services: &[ServiceSlug]| services.iter().map(ToString::to_string).collect();
        let names = |categories: &[Category]| categories.iter().map(|category| category.name()).collect();
        let says = match &rule.kind {
            RuleKind::CategoryBlock { categories } => RuleSays::CategoryBlock {
                categories: names(categories),
            },
            RuleKind::VendorAllowlist { vendors } => RuleSays::VendorAllowlist {
                services: vendors
                    .iter()
                    .filter_map(Vendor::service)
                    .map(ToString::to_string)
                    .collect(),
                wallets: vendors
                    .iter()
                    .filter_map(Vendor::wallet)
                    .map(|wallet| wallet.to_string())
                    .collect(),
            },
            RuleKind::BudgetLimit { limit, window } => {
                let used = used.map_or(Amount::ZERO, |used| used.amount);
                RuleSays::BudgetLimit {
                    limit_units: limit.units(),
                    window_seconds: window.secs(),
                    used_units: used.units(),
                    remaining_units: limit.above(used).units(),
                }
            }
            RuleKind::ApprovalRequired {
                services,
                categories,
                above,
            } => RuleSays::ApprovalRequired {
                services: services.as_deref().map(slugs),
                categories: categories.as_deref().map(names),
                above_units: above.map(Amount::units),
            },
        };
        Self {
            rule_id: rule.id.to_string(),
            rule_version: rule.version,
            says,
        }
    }
}

/// The agent's rules, in the order in which they were added.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentRuleList)]
pub(crate) struct RuleList {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's version.
    version: u64,
    rules: Vec<RuleView>,
    /// The number of rules in this answer.
    count: usize,
}

/// A rule as it was written.
#[derive(Serialize, ToSchema)]
#[schema(as = WrittenRule)]
pub(crate) struct WrittenRule {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's version.
    version: u64,
    #[serde(flatten)]
    rule: RuleView,
}

/// A removed rule.
#[derive(Serialize, ToSchema)]
pub(crate) struct RemovedRule {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's version.
    version: u64,
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
}

purser_api::body! {
    /// A rule. At most 50 for an agent, ten of them budgets.
    pub(crate) enum RuleBody by kind {
        /// Payments in these categories are blocked.
        CategoryBlock = "category_block" {
            /// At least one.
            categories: Vec<Category> = {"minItems": 1, "uniqueItems": true},
        }
        /// Only these vendors are paid. At least one vendor is required.
        VendorAllowlist = "vendor_allowlist" {
            /// Slugs of services in the catalog.
            services: Option<Vec<ServiceSlug>> = {"maxItems": 50, "uniqueItems": true},
            /// Addresses.
            wallets: Option<Vec<Address>> = {"maxItems": 50, "uniqueItems": true},
        }
        /// The most that may be spent within every window of this length, over all services.
        BudgetLimit = "budget_limit" {
            limit_units: Amount,
            /// From one hour to 31 days.
            window_seconds: Window,
        }
        /// A person must approve each payment that meets all given conditions. Without conditions, a person must
        /// approve every payment.
        ApprovalRequired = "approval_required" {
            /// Payments to these services, by slug.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// Payments in these categories.
            categories: Option<Vec<Category>> = {"minItems": 1, "uniqueItems": true},
            /// Payments above this amount.
            above_units: Option<Amount>,
        }
    }
}

purser_api::field! {
    /// The time for which an authorization counts against a budget.
    pub(crate) struct Window(Duration):
    |value| {
        let window = seconds(value).ok_or("must be a whole number of seconds")?;
        RuleKind::check_window(window).map(|()| window)
    },
    json!({
        "type": "integer",
        "format": "int32",
        "minimum": BUDGET_WINDOW_MIN.secs(),
        "maximum": BUDGET_WINDOW_MAX.secs(),
    })
}

impl From<RuleBody> for RuleKind {
    fn from(body: RuleBody) -> Self {
        match body {
            RuleBody::CategoryBlock { categories } => Self::CategoryBlock { categories },
            RuleBody::VendorAllowlist { services, wallets } => {
                let services = services.into_iter().flatten().map(Vendor::Service);
                let wallets = wallets.into_iter().flatten().map(Vendor::Wallet);
                let vendors = services.chain(wallets).collect();
                Self::VendorAllowlist { vendors }
            }
            RuleBody::BudgetLimit {
                limit_units: limit,
                window_seconds: Window(window),
            } => Self::BudgetLimit { limit, window },
            RuleBody::ApprovalRequired {
                services,
                categories,
                above_units: above,
            } => Self::ApprovalRequired {
                services,
                categories,
                above,
            },
        }
    }
}

/// Parses and validates a rule. A member that can't be parsed is not checked further.
pub(crate) fn parse_rule(body: &Value, catalog: &Catalog) -> Result<CheckedRule, Error> {
    let mut problems = Problems::default();
    let rule = RuleBody::read(body, Place::Body, &mut problems).map(RuleKind::from);
    let was_read = !["/services", "/wallets"].iter().any(|path| problems.are_at(path));
    let checked = rule.and_then(|rule| {
        let checked = CheckedRule::check(rule, catalog);
        let counts = |problem: &Problem| was_read || !problem.path.is_empty();
        checked
            .map_err(|found| problems.extend(found.into_iter().filter(counts)))
            .ok()
    });
    problems.finish(checked)
}

/// List an agent's rules. Budgets include their used and remaining amounts.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/rules",
    operation_id = "list_rules",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    responses(
        (status = 200, body = RuleList, description = "The rules.", headers(("ETag" = String, description = "The agent's version."))),
        ListErrors,
    )
)]
pub(crate) async fn list(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let rules: Vec<RuleView> = people.rules(&owned).await?.iter().map(RuleView::of).collect();
    let Agent { id, version, .. } = *owned.agent();
    let list = RuleList {
        agent_id: id.to_string(),
        version,
        count: rules.len(),
        rules,
    };
    Ok(versioned(version, Json(list)))
}

/// Add a rule.
#[utoipa::path(
    post,
    path = "/agents/{agentId}/rules",
    operation_id = "add_rule",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("If-Match" = inline(VersionTag), Header, description = "The agent's version in quotation marks, or `*`."),
    ),
    request_body = RuleBody,
    responses(
        (status = 201, body = WrittenRule, description = "The rule.", headers(("ETag" = String, description = "The agent's version.")),
            links(
                ("replace" = (operation_id = "replace_rule", parameters(("agentId" = "$response.body#/agent_id"), ("ruleId" = "$response.body#/rule_id"), ("If-Match" = "$response.header.ETag")))),
                ("remove" = (operation_id = "remove_rule", parameters(("agentId" = "$response.body#/agent_id"), ("ruleId" = "$response.body#/rule_id"), ("If-Match" = "$response.header.ETag")))),
            )),
        WriteErrors,
    )
)]
pub(crate) async fn add(
    State(people): State<Arc<People>>,
    token: SessionToken,
    meant: IfMatch,
    Path(agent): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let edition = people.catalog().await?;
    let kind = json_body(&body).and_then(|body| parse_rule(&body, &edition.catalog));
    let (kind, meant) = with_version(kind, meant.precondition())?;
    let (owned, id) = people.add_rule(owned, meant, &kind).await?;
    Ok(created(written(&people, &owned, id).await?))
}

/// Replace a rule with another of the same kind.
#[utoipa::path(
    put,
    path = "/agents/{agentId}/rules/{ruleId}",
    operation_id = "replace_rule",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("ruleId" = String, Path, description = "The `rule_id` of a rule."),
        ("If-Match" = inline(VersionTag), Header, description = "The agent's version in quotation marks, or `*`."),
    ),
    request_body = RuleBody,
    responses(
        (status = 200, body = WrittenRule, description = "The updated rule.", headers(("ETag" = String, description = "The agent's version."))),
        WriteErrors,
    )
)]
pub(crate) async fn replace(
    State(people): State<Arc<People>>,
    token: SessionToken,
    meant: IfMatch,
    Path((agent, rule)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let id = known_rule(owned.agent(), &rule)?;
    let edition = people.catalog().await?;
    let kind = json_body(&body).and_then(|body| parse_rule(&body, &edition.catalog));
    let (kind, meant) = with_version(kind, meant.precondition())?;
    let owned = people.replace_rule(owned, meant, id, &kind).await?;
    Ok(written(&people, &owned, id).await?)
}

/// Remove a rule.
#[utoipa::path(
    delete,
    path = "/agents/{agentId}/rules/{ruleId}",
    operation_id = "remove_rule",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("ruleId" = String, Path, description = "The `rule_id` of a rule."),
        ("If-Match" = inline(VersionTag), Header, description = "The agent's version in quotation marks, or `*`."),
    ),
    responses(
        (status = 200, body = RemovedRule, description = "The rule is removed.", headers(("ETag" = String, description = "The agent's version."))),
        WriteErrors,
    )
)]
pub(crate) async fn remove(
    State(people): State<Arc<People>>,
    token: SessionToken,
    meant: IfMatch,
    Path((agent, rule)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let rule = known_rule(owned.agent(), &rule)?;
    let owned = people.remove_rule(owned, meant.precondition()?, rule).await?;
    let Agent { id, version, .. } = *owned.agent();
    let removed = RemovedRule {
        agent_id: id.to_string(),
        version,
        rule_id: rule.to_string(),
    };
    Ok(versioned(version, Json(removed)))
}

/// The id of one of the agent's rules. It is checked first, so that an unknown rule is 404 regardless of other errors.
fn known_rule(agent: &Agent, text: &str) -> Result<RuleId, Error> {
    let known = |id: &RuleId| agent.rules.iter().any(|rule| rule.id == *id);
    named(RuleId::parse(text).filter(known))
}

async fn written(people: &People, owned: &Owned, id: RuleId) -> Result<Response, Error> {
    let rules = people.rules(owned).await?;
    let rule = rules.iter().find(|usage| usage.rule.id == id);
    let rule = rule.ok_or_else(|| Error::internal("answering with a rule", "it is not there"))?;
    let Agent { id, version, .. } = *owned.agent();
    let written = WrittenRule {
        agent_id: id.to_string(),
        version,
        rule: RuleView::of(rule),
    };
    Ok(versioned(version, Json(written)))
}
