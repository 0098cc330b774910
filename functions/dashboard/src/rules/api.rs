//! The `/agents/{agentId}/rules` routes: an agent's limits across all services.

use crate::agents::owned::OwnedAgent;
use crate::agents::owned::require_id;
use crate::preview::api::{FindingView, PreviewView, RequestedUpdate};
use crate::request::{combine_results_and_errors, created_response};
use crate::rules::operations::RuleUsage;
use crate::state::{People, PeopleState};
use axum::Json;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, Id, IfMatch, Member, Number, Parameters, Precondition, Reply, RuleSeconds, RuleView, Schemas,
    ValidationErrors, endpoint, view, with_etag,
};
use purser_domain::{
    Address, Agent, AgentId, Amount, CalendarPeriod, Catalog, Category, CheckedRule, Error, KeyId, LimitAction,
    LimitUpdate, MAX_COUNT, MAX_FREEZE_MULTIPLE, MAX_PERCENT, MIN_BUDGET_WINDOW, MIN_COUNT_WINDOW, MIN_FREEZE_MULTIPLE,
    MIN_INTERVAL, MIN_MEDIAN_PRICES, OperationSlug, RuleId, RuleKind, RuleUpdate, SchedulePeriod, ServiceSlug,
    Timestamp, UsualPrice, ValidationError, WindowPeriod, ZoneName, parse_rule_kind,
};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// The agent's rules, in the order in which they were added.
#[view(AgentRuleList)]
pub(crate) struct RuleList {
    agent_id: AgentId,
    /// The agent's version. Send it as `If-Match`.
    version: u64,
    rules: Vec<RuleView>,
    /// The number of rules in this response.
    count: usize,
    /// Findings about the agent's rules, for example that a rule never blocks a payment.
    findings: Vec<FindingView>,
}

/// A rule that was added or replaced.
#[view]
pub(crate) struct WrittenRule {
    agent_id: AgentId,
    /// The agent's new version. Send it as `If-Match` with the next update.
    version: u64,
    #[serde(flatten)]
    rule: RuleView,
}

/// The ID of the rule that was removed, and the agent's new version.
#[view]
pub(crate) struct RemovedRule {
    agent_id: AgentId,
    /// The agent's new version. Send it as `If-Match` with the next update.
    version: u64,
    rule_id: RuleId,
}

/// The rule after the update. If the request has `preview=true`, the preview of the update instead.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes the answers, which are made as one or the other")]
pub(crate) enum RuleOrPreview {
    Stored(WrittenRule),
    Preview(Box<PreviewView>),
}

/// The removed rule. If the request has `preview=true`, the preview of the removal instead.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes the answers, which are made as one or the other")]
pub(crate) enum RemovedOrPreview {
    Removed(RemovedRule),
    Preview(Box<PreviewView>),
}

purser_api::body! {
    /// A rule. An agent has at most 50 rules. At most ten of them can be budgets, count limits or minimum intervals.
    pub(crate) enum RuleBody by kind {
        /// Blocks payments in these categories.
        CategoryBlock = "category_block" {
            /// Payments to services or operations in these categories are blocked, for example `finance`.
            categories: Vec<Category> = {"minItems": 1, "uniqueItems": true},
        }
        /// Blocks payments to all vendors that are not listed. The list must have at least one service or wallet.
        VendorAllowlist = "vendor_allowlist" {
            /// The allowed services, by their slugs in the catalog.
            services: Option<Vec<ServiceSlug>> = {"maxItems": 50, "uniqueItems": true},
            /// The addresses of the allowed wallets.
            wallets: Option<Vec<Address>> = {"maxItems": 50, "uniqueItems": true},
        }
        /// Limits the amount that the agent may spend within a window. Exactly one of `window_seconds` and `period` is
        /// required.
        BudgetLimit = "budget_limit" {
            /// The services whose payments count, by slug; absent for all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The categories of the services whose payments count; absent for all categories.
            categories: Option<Vec<Category>> = {"minItems": 1, "uniqueItems": true},
            /// The agent keys whose payments count, by ID; absent for all keys. If all keys have ended, the rule stays
            /// and counts no further payment.
            keys: Option<Vec<KeyId>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// Whether the payments to each payee count alone, each up to the limit. The default is false. An update
            /// can't change this.
            per_payee: Option<bool>,
            limit_units: Amount,
            /// The duration of a rolling window in seconds, from one hour to 31 days.
            window_seconds: Option<RuleSeconds<{ MIN_BUDGET_WINDOW.secs() }>>,
            period: Option<Period>,
            /// The time zone of a calendar period, required for `day`, `week` and `month`.
            time_zone: Option<ZoneName>,
            /// The effect of a payment beyond the limit, `block` if absent. A payment that the owner approves counts.
            action: Option<LimitAction>,
        }
        /// Requires the owner's approval for each payment that meets all of the rule's conditions. A rule without
        /// conditions requires approval for every payment.
        ApprovalRequired = "approval_required" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The categories to which the rule applies. If absent, the rule applies to all categories.
            categories: Option<Vec<Category>> = {"minItems": 1, "uniqueItems": true},
            /// The amount in micro-USDC above which the rule applies. If absent, the rule applies to every amount.
            above_units: Option<Amount>,
        }
        /// Limits the number of payments that the agent may make within a window. Exactly one of `window_seconds` and
        /// `period` is required.
        CountLimit = "count_limit" {
            /// The services whose payments count, by slug. If absent, payments to all services count.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The categories of the services whose payments count; absent for all categories.
            categories: Option<Vec<Category>> = {"minItems": 1, "uniqueItems": true},
            /// The agent keys whose payments count, by ID; absent for all keys. If all keys have ended, the rule stays
            /// and counts no further payment.
            keys: Option<Vec<KeyId>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            count: Number<1, MAX_COUNT>,
            /// The duration of a rolling window in seconds, from one minute to 31 days.
            window_seconds: Option<RuleSeconds<{ MIN_COUNT_WINDOW.secs() }>>,
            period: Option<Period>,
            /// The time zone of a calendar period, required for `day`, `week` and `month`.
            time_zone: Option<ZoneName>,
            /// The effect of a payment beyond the limit, `block` if absent. A payment that the owner approves counts.
            action: Option<LimitAction>,
        }
        /// Requires a minimum time between two payments.
        MinimumInterval = "minimum_interval" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The minimum time in seconds, from one second to 31 days.
            interval_seconds: RuleSeconds<{ MIN_INTERVAL.secs() }>,
        }
        /// Blocks or requires approval for a paid call that repeats a paid call of the last `within_seconds`. Two calls
        /// to a service are the same if their operation, method, URL and body hash are equal. The comparison ignores
        /// the URL's fragment, the order of the URL's parameters, and the amount. For calls without a body hash, the
        /// targets (the pages that the calls fetch) must be equal instead. GET calls have no body. After 32 different
        /// calls in the last `within_seconds`, every further call counts as a repetition.
        DuplicateGuard = "duplicate_guard" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The number of seconds after a paid call during which the same call is a duplicate: from one second to 31
            /// days.
            within_seconds: RuleSeconds<{ MIN_INTERVAL.secs() }>,
            action: LimitAction,
        }
        /// Requires the owner's approval for the first payment to each payee of a service.
        NewPayee = "new_payee" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
        }
        /// Blocks or requires approval for a payment whose amount is more than `percent` above the operation's usual
        /// price.
        PriceAboveUsual = "price_above_usual" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            percent: Number<0, MAX_PERCENT> = {"example": 20},
            over: Over,
            /// The number of recent prices in the median. Required if `over` is `median`. The rule applies only after
            /// the agent has paid this many prices.
            of: Option<Number<MIN_MEDIAN_PRICES, MAX_PRICES>>,
            action: LimitAction,
        }
        /// Allows payments only in these periods, on the clock of a time zone.
        Schedule = "schedule" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            time_zone: ZoneName,
            /// The allowed periods: days, then the times of the start and the end.
            periods: Vec<SchedulePeriod> = {"minItems": 1, "maxItems": 14, "uniqueItems": true},
        }
        /// Disables a service or freezes the agent, and notifies the owner, if the agent's payments within an hour reach
        /// `at_least_units`, and exceed the usual amount multiplied by `times`. The rule disables a service if the payments
        /// to other services are not unusual, and if the rule has done neither in the last 24 hours. For each day with
        /// payments in the last two weeks, except the last 24 hours, the payments of the busiest hour are added up. The
        /// usual amount is the median of these sums. If no day had payments, `at_least_units` alone decides. An agent has at
        /// most one rule of this kind.
        AnomalyBrake = "anomaly_brake" {
            times: Number<MIN_FREEZE_MULTIPLE, MAX_FREEZE_MULTIPLE> = {"example": 10},
            at_least_units: Amount = {"minimum": 1},
        }
        /// Exempts payments from the policy's approval threshold, from rules of the kind `approval_required`, or from
        /// both. All other limits apply. To add or widen this rule requires a recent sign-in.
        ApprovalException = "approval_exception" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The operation to which the rule applies; absent for all operations.
            operation_id: Option<OperationSlug>,
            /// The agent keys to which the rule applies, by ID; absent for all keys.
            keys: Option<Vec<KeyId>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The address of the payee.
            payee: Address,
            /// The maximum amount of a payment.
            max_amount_units: Amount = {"minimum": 1},
            /// The time from which the rule has no effect: in the next 90 days.
            until: Timestamp,
            /// Whether the payments are exempt from the policy's threshold `require_approval_above_units`. The default
            /// is false.
            waives_threshold: Option<bool>,
            /// The rules of the kind `approval_required` from which the payments are exempt, by ID. Rules that are not
            /// named, such as rules that are added later, apply. Required unless `waives_threshold` is true.
            waived_rules: Option<Vec<RuleId>> = {"maxItems": 50, "uniqueItems": true},
        }
    }
}

purser_api::field! {
    /// The usual price: the catalog's price, or the median of the recently paid prices.
    pub(crate) struct Over(String):
    |value| {
        let name = value.as_str().filter(|name| [UsualPrice::CATALOG, UsualPrice::MEDIAN].contains(name));
        name.map(str::to_owned).ok_or_else(|| "must be one of: catalog, median".to_owned())
    },
    json!({"type": "string", "pattern": "^(catalog|median)$", "example": "catalog"})
}

purser_api::field! {
    /// The calendar day, week (from Monday) or month, or the `lifetime` of the agent.
    pub(crate) struct Period(String):
    |value| {
        let is_period = |name: &&str| *name == WindowPeriod::LIFETIME || CalendarPeriod::from_name(name).is_some();
        let name = value.as_str().filter(is_period).map(str::to_owned);
        name.ok_or_else(|| "must be one of: day, week, month, lifetime".to_owned())
    },
    json!({"type": "string", "pattern": "^(day|week|month|lifetime)$", "example": "month"})
}

/// Equals the domain's `MAX_RECENT_PRICES`.
pub(crate) const MAX_PRICES: u32 = 9;

/// A rule in a request. An optional field with a validation error counts as absent. `None` if the other fields then
/// make no rule, such as `window_seconds` with `period`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestedRule(pub(crate) Option<RuleKind>);

impl Member for RequestedRule {
    fn read(value: &Value, path: BodyPath<'_>, errors: &mut ValidationErrors) -> Option<Self> {
        RuleBody::read(value, path, errors)?;
        let has_error =
            |errors: &ValidationErrors, name: &str| errors.has_error_at(&BodyPath::Member(&path, name).to_string());
        // A field with an error counts as absent, so that the response also lists the errors of the other fields.
        let mut fields = value.as_object()?.clone();
        fields.retain(|name, _| !has_error(errors, name));
        let kind = parse_rule_kind(&fields);
        if kind.is_none() {
            let (field, message) = combination_error(&fields);
            if !has_error(errors, field) && !has_error(errors, "period") {
                errors.add_at(BodyPath::Member(&path, field), message);
            }
        }
        Some(Self(kind))
    }

    fn describe(schemas: &mut Schemas) -> Value {
        RuleBody::describe(schemas)
    }
}

/// Returns the field and the message of the error for fields that are each valid but make no rule, such as
/// `window_seconds` with `period`.
fn combination_error(fields: &Map<String, Value>) -> (&'static str, &'static str) {
    let has = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
    match (has("over"), has("window_seconds"), has("period")) {
        (true, ..) => ("of", "must be given for the median, and only for it"),
        (_, false, false) => ("window_seconds", "or `period` must be given"),
        (_, true, true) => ("period", "must be absent if `window_seconds` is given"),
        _ => (
            "time_zone",
            "must be given for `day`, `week` and `month`, and only for these",
        ),
    }
}

/// A field that can't be parsed is not checked further.
pub(crate) fn parse_rule(body: &Value, catalog: &Catalog) -> Result<CheckedRule, Error> {
    let mut errors = ValidationErrors::default();
    let rule = RequestedRule::read(body, BodyPath::Body, &mut errors).and_then(|rule| rule.0);
    let was_read = !["/services", "/wallets"].iter().any(|path| errors.has_error_at(path));
    let checked = rule.and_then(|rule| {
        let checked = CheckedRule::check(rule, catalog);
        let counts = |error: &ValidationError| was_read || !error.path.is_empty();
        checked
            .map_err(|found| errors.extend(found.into_iter().filter(counts)))
            .ok()
    });
    errors.finish(checked)
}

/// List an agent's rules. Budgets and count limits include the used and the remaining amount or count.
#[endpoint(
    get "/agents/{agentId}/rules", body = RuleList, returns = "The rules.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`."))
)]
pub(crate) async fn list_rules(people: PeopleState, owned: OwnedAgent) -> Reply {
    let (usages, findings) = tokio::try_join!(people.list_rules(&owned), people.list_rule_findings(&owned))?;
    let rules: Vec<RuleView> = usages.iter().map(rule_view).collect();
    let Agent { id, version, .. } = *owned.agent();
    let list = RuleList {
        agent_id: id,
        version,
        count: rules.len(),
        rules,
        findings: findings.into_iter().map(FindingView::from).collect(),
    };
    Ok(with_etag(version, Json(list)))
}

/// Add a rule.
#[endpoint(
    post "/agents/{agentId}/rules",
    responses(
        (status = 201, body = WrittenRule, description = "The added rule, with the agent's new version.", headers(("ETag" = String, description = "The agent's version, for `If-Match`.")),
            links(
                ("replace" = (operation_id = "replace_rule", parameters(("agentId" = "$response.body#/agent_id"), ("ruleId" = "$response.body#/rule_id"), ("If-Match" = "$response.header.ETag")))),
                ("remove" = (operation_id = "remove_rule", parameters(("agentId" = "$response.body#/agent_id"), ("ruleId" = "$response.body#/rule_id"), ("If-Match" = "$response.header.ETag")))),
            )),
        (status = 200, body = PreviewView, description = "The preview of the update."),
        purser_api::errors::RecentSignInRequired,
    )
)]
pub(crate) async fn add_rule(
    people: PeopleState,
    owned: OwnedAgent,
    if_match: IfMatch,
    query: Parameters<RequestedUpdate>,
    body: Body<RuleBody>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let kind = body.json().and_then(|body| parse_rule(&body, &edition.catalog));
    let kind = combine_results_and_errors(kind, query.0);
    let ((kind, request), if_match) = combine_results_and_errors(kind, if_match.into_precondition())?;
    let update = RuleUpdate::Add(people.new_rule_id()?, kind);
    save_or_preview(&people, owned, if_match, request, update).await
}

/// Replace a rule with another rule of the same kind.
#[endpoint(
    put "/agents/{agentId}/rules/{ruleId}", body = RuleOrPreview,
    returns = "The updated rule, or the preview of the update.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`.")), errors(RecentSignInRequired)
)]
pub(crate) async fn replace_rule(
    people: PeopleState,
    owned: OwnedAgent,
    Id(rule): Id<RuleId>,
    if_match: IfMatch,
    query: Parameters<RequestedUpdate>,
    body: Body<RuleBody>,
) -> Reply {
    let id = require_existing_rule(owned.agent(), rule)?;
    let edition = people.current_catalog().await?;
    let kind = body.json().and_then(|body| parse_rule(&body, &edition.catalog));
    let kind = combine_results_and_errors(kind, query.0);
    let ((kind, request), if_match) = combine_results_and_errors(kind, if_match.into_precondition())?;
    save_or_preview(&people, owned, if_match, request, RuleUpdate::Replace(id, kind)).await
}

/// Remove a rule.
#[endpoint(
    delete "/agents/{agentId}/rules/{ruleId}", body = RemovedOrPreview,
    returns = "The removed rule, or the preview of the update.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`.")), errors(RecentSignInRequired)
)]
pub(crate) async fn remove_rule(
    people: PeopleState,
    owned: OwnedAgent,
    Id(rule): Id<RuleId>,
    if_match: IfMatch,
    query: Parameters<RequestedUpdate>,
) -> Reply {
    let rule = require_existing_rule(owned.agent(), rule)?;
    let (request, if_match) = combine_results_and_errors(query.0, if_match.into_precondition())?;
    save_or_preview(&people, owned, if_match, request, RuleUpdate::Remove(rule)).await
}

async fn save_or_preview(
    people: &People,
    owned: OwnedAgent,
    if_match: Precondition,
    request: RequestedUpdate,
    update: RuleUpdate,
) -> Reply {
    let rules = &update;
    let save = |owned| async move {
        let owned = people.save_rules(owned, if_match, rules).await?;
        rules_update_response(people, &owned, rules).await
    };
    let update = LimitUpdate::Rules(update.clone());
    request.save_or_preview(people, owned, if_match, &update, save).await
}

/// Creates the response to a saved update: the rule, or the ID of a removed rule.
async fn rules_update_response(people: &People, owned: &OwnedAgent, update: &RuleUpdate) -> Reply {
    let Agent { id, version, .. } = *owned.agent();
    match *update {
        RuleUpdate::Add(rule, _) => Ok(created_response(rule_response(people, owned, rule).await?)),
        RuleUpdate::Replace(rule, _) => Ok(rule_response(people, owned, rule).await?),
        RuleUpdate::Remove(rule) => {
            let removed = RemovedRule {
                agent_id: id,
                version,
                rule_id: rule,
            };
            Ok(with_etag(version, Json(removed)))
        }
    }
}

/// Handlers call this first, so that an unknown rule is 404 regardless of other errors.
fn require_existing_rule(agent: &Agent, id: RuleId) -> Result<RuleId, Error> {
    let known = |id: &RuleId| agent.rules.iter().any(|rule| rule.id == *id);
    require_id(Some(id).filter(known))
}

fn rule_view(usage: &RuleUsage) -> RuleView {
    RuleView::new(&usage.rule, usage.used.map(|used| used.amount))
}

async fn rule_response(people: &People, owned: &OwnedAgent, id: RuleId) -> Result<Response, Error> {
    let rules = people.list_rules(owned).await?;
    let rule = rules.iter().find(|usage| usage.rule.id == id);
    let rule = rule.ok_or_else(|| Error::internal("returning a rule", "the rule no longer exists"))?;
    let Agent { id, version, .. } = *owned.agent();
    let written = WrittenRule {
        agent_id: id,
        version,
        rule: rule_view(rule),
    };
    Ok(with_etag(version, Json(written)))
}
