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
    Body, BodyPath, Id, IfMatch, Listed, Member as _, Parameters, Precondition, Reply, RuleView, ValidationErrors,
    endpoint, parse_number_in_range, parse_seconds, view, with_etag,
};
use purser_domain::{
    Address, Agent, AgentId, Amount, ApprovalException, AutomaticFreeze, CalendarPeriod, Catalog, Category,
    CheckedRule, Duration, Error, KeyId, LimitAction, LimitUpdate, MAX_BUDGET_WINDOW, MAX_COUNT, MAX_FREEZE_MULTIPLE,
    MAX_PERCENT, MIN_BUDGET_WINDOW, MIN_COUNT_WINDOW, MIN_FREEZE_MULTIPLE, MIN_INTERVAL, MIN_MEDIAN_PRICES,
    OperationSlug, RuleId, RuleKind, RuleUpdate, RuleWindow, Schedule, SchedulePeriod, ServiceSlug, Timestamp,
    UsualPrice, ValidationError, Vendor, WindowPeriod, ZoneName,
};
use serde_json::{Value, json};
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
            keys: Option<Vec<Key>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// Whether the payments to each payee count alone, each up to the limit. The default is false. An update
            /// can't change this.
            per_payee: Option<bool>,
            limit_units: Amount,
            /// The duration of a rolling window in seconds, from one hour to 31 days.
            window_seconds: Option<Window>,
            period: Option<Period>,
            /// The time zone of a calendar period, required for `day`, `week` and `month`.
            time_zone: Option<Zone>,
            /// The effect of a payment beyond the limit, `block` if absent. A payment that the owner approves counts.
            action: Option<Action>,
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
            keys: Option<Vec<Key>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            count: Count,
            /// The duration of a rolling window in seconds, from one minute to 31 days.
            window_seconds: Option<CountWindow>,
            period: Option<Period>,
            /// The time zone of a calendar period, required for `day`, `week` and `month`.
            time_zone: Option<Zone>,
            /// The effect of a payment beyond the limit, `block` if absent. A payment that the owner approves counts.
            action: Option<Action>,
        }
        /// Requires a minimum time between two payments.
        MinimumInterval = "minimum_interval" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            /// The minimum time in seconds, from one second to 31 days.
            interval_seconds: Interval,
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
            within_seconds: Interval,
            action: Action,
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
            percent: Percent,
            over: Over,
            /// The number of recent prices in the median. Required if `over` is `median`. The rule applies only after
            /// the agent has paid this many prices.
            of: Option<Prices>,
            action: Action,
        }
        /// Allows payments only in these periods, on the clock of a time zone.
        Schedule = "schedule" {
            /// The services to which the rule applies, by slug. If absent, the rule applies to all services.
            services: Option<Vec<ServiceSlug>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
            time_zone: Zone,
            /// The allowed periods: days, then the times of the start and the end.
            periods: Vec<PeriodText> = {"minItems": 1, "maxItems": 14, "uniqueItems": true},
        }
        /// Disables a service or freezes the agent, and notifies the owner, if the agent's payments within an hour reach
        /// `at_least_units`, and exceed the usual amount multiplied by `times`. The rule disables a service if the payments
        /// to other services are not unusual, and if the rule has done neither in the last 24 hours. For each day with
        /// payments in the last two weeks, except the last 24 hours, the payments of the busiest hour are added up. The
        /// usual amount is the median of these sums. If no day had payments, `at_least_units` alone decides. An agent has at
        /// most one rule of this kind.
        AnomalyBrake = "anomaly_brake" {
            times: Times,
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
            keys: Option<Vec<Key>> = {"minItems": 1, "maxItems": 50, "uniqueItems": true},
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
    pub(crate) struct Count(u32):
    |value| parse_number_in_range(value, 1..=MAX_COUNT),
    json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_COUNT})
}

purser_api::field! {
    /// The id of an agent key: 16 hexadecimal digits.
    pub(crate) struct Key(KeyId):
    |value| value.as_str().and_then(KeyId::parse).ok_or_else(|| "must be the id of an agent key".to_owned()),
    json!({"type": "string", "pattern": "^[0-9a-f]{16}$", "example": "0f1e2d3c4b5a6978"})
}

purser_api::field! {
    pub(crate) struct CountWindow(Duration):
    |value| parse_duration(value, MIN_COUNT_WINDOW),
    duration_schema(MIN_COUNT_WINDOW)
}

purser_api::field! {
    /// In seconds, from one second to 31 days.
    pub(crate) struct Interval(Duration):
    |value| parse_duration(value, MIN_INTERVAL),
    duration_schema(MIN_INTERVAL)
}

purser_api::field! {
    /// `block` rejects the payment, and `ask` requires the owner's approval.
    pub(crate) struct Action(LimitAction):
    |value| value.as_str().and_then(LimitAction::from_name).ok_or_else(LimitAction::allowed_names_message),
    json!({"type": "string", "pattern": "^(block|ask)$", "example": "ask"})
}

purser_api::field! {
    /// The percentage by which a price may exceed the usual price.
    pub(crate) struct Percent(u32):
    |value| parse_number_in_range(value, 0..=MAX_PERCENT),
    json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": MAX_PERCENT, "example": 20})
}

purser_api::field! {
    /// The factor by which an hour's spending may exceed the busiest hour of a usual day.
    pub(crate) struct Times(u32):
    |value| parse_number_in_range(value, MIN_FREEZE_MULTIPLE..=MAX_FREEZE_MULTIPLE),
    json!({"type": "integer", "format": "int32", "minimum": MIN_FREEZE_MULTIPLE, "maximum": MAX_FREEZE_MULTIPLE, "example": 10})
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
    /// The number of prices in a median.
    pub(crate) struct Prices(u32):
    |value| parse_number_in_range(value, MIN_MEDIAN_PRICES.into()..=MAX_PRICES),
    json!({"type": "integer", "format": "int32", "minimum": MIN_MEDIAN_PRICES, "maximum": MAX_PRICES})
}

purser_api::field! {
    /// The name of an IANA time zone.
    pub(crate) struct Zone(ZoneName):
    |value| {
        let zone = value.as_str().and_then(ZoneName::parse);
        zone.ok_or_else(|| "must be the name of an IANA time zone, such as `Europe/Berlin`".to_owned())
    },
    json!({"type": "string", "pattern": "^[A-Za-z0-9+_-]+(/[A-Za-z0-9+_-]+)*$", "maxLength": 64, "example": "Europe/Berlin"})
}

purser_api::field! {
    /// An allowed period of a schedule.
    pub(crate) struct PeriodText(SchedulePeriod):
    |value| {
        let wrong = "must be days and two different times, such as `monday-friday 09:00-17:00` or `monday,sunday 22:00-02:00`";
        value.as_str().and_then(SchedulePeriod::parse).ok_or_else(|| wrong.to_owned())
    },
    {
        let day = "(mon|tues|wednes|thurs|fri|satur|sun)day";
        let (days, time) = (format!("{day}(-{day})?"), "(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)");
        json!({"type": "string", "pattern": format!("^{days}(,{days})* {time}-{time}$"), "maxLength": 80})
    }
}

impl Listed for Key {
    const NAME: &'static str = "KeyId";

    fn item_schema() -> Value {
        json!({"description": "The ID of an agent key.", "example": "0f1e2d3c4b5a6978"})
    }
}

impl Listed for PeriodText {
    const NAME: &'static str = "SchedulePeriod";

    fn item_schema() -> Value {
        json!({
            "description": "The days on which a period starts, as names and ranges with commas between them, and the times of \
                the start and the end. An end before the start is on the next day.",
            "example": "monday-friday 09:00-17:00",
        })
    }
}

/// Equals the domain's `MAX_RECENT_PRICES`.
const MAX_PRICES: u32 = 9;

fn parse_duration(value: &Value, min_duration: Duration) -> Result<Duration, String> {
    let duration = parse_seconds(value).ok_or("must be a whole number of seconds")?;
    RuleKind::check_duration(duration, min_duration).map(|()| duration)
}

fn duration_schema(min_duration: Duration) -> Value {
    json!({
        "type": "integer",
        "format": "int32",
        "minimum": min_duration.secs(),
        "maximum": MAX_BUDGET_WINDOW.secs(),
    })
}

purser_api::field! {
    pub(crate) struct Window(Duration):
    |value| parse_duration(value, MIN_BUDGET_WINDOW),
    duration_schema(MIN_BUDGET_WINDOW)
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

/// Rejects combinations of fields that are not allowed, such as `window_seconds` with `period`.
impl TryFrom<RuleBody> for RuleKind {
    type Error = ValidationError;

    fn try_from(body: RuleBody) -> Result<Self, ValidationError> {
        Ok(match body {
            RuleBody::CategoryBlock { categories } => Self::CategoryBlock { categories },
            RuleBody::VendorAllowlist { services, wallets } => {
                let services = services.into_iter().flatten().map(Vendor::Service);
                let wallets = wallets.into_iter().flatten().map(Vendor::Wallet);
                let vendors = services.chain(wallets).collect();
                Self::VendorAllowlist { vendors }
            }
            RuleBody::BudgetLimit {
                services,
                categories,
                keys,
                per_payee,
                limit_units: limit,
                window_seconds,
                period,
                time_zone,
                action,
            } => {
                let duration = window_seconds.map(|Window(duration)| duration);
                let window = build_rule_window(duration, period, time_zone, action)?;
                let window = RuleWindow {
                    services,
                    categories,
                    keys: keys.map(|keys| keys.into_iter().map(|Key(key)| key).collect()),
                    per_payee: per_payee.unwrap_or_default(),
                    ..window
                };
                Self::BudgetLimit { limit, window }
            }
            RuleBody::ApprovalRequired {
                services,
                categories,
                above_units: above,
            } => Self::ApprovalRequired {
                services,
                categories,
                above,
            },
            RuleBody::CountLimit {
                services,
                categories,
                keys,
                count: Count(count),
                window_seconds,
                period,
                time_zone,
                action,
            } => {
                let duration = window_seconds.map(|CountWindow(duration)| duration);
                let window = build_rule_window(duration, period, time_zone, action)?;
                let window = RuleWindow {
                    services,
                    categories,
                    keys: keys.map(|keys| keys.into_iter().map(|Key(key)| key).collect()),
                    ..window
                };
                Self::CountLimit { count, window }
            }
            RuleBody::MinimumInterval {
                services,
                interval_seconds: Interval(interval),
            } => Self::MinimumInterval { services, interval },
            RuleBody::DuplicateGuard {
                services,
                within_seconds: Interval(within),
                action: Action(action),
            } => Self::DuplicateGuard {
                services,
                within,
                action,
            },
            RuleBody::NewPayee { services } => Self::NewPayee { services },
            RuleBody::PriceAboveUsual {
                services,
                percent: Percent(percent),
                over: Over(over),
                of,
                action: Action(action),
            } => {
                let prices = of.and_then(|Prices(prices)| u8::try_from(prices).ok());
                let over = UsualPrice::from_name(&over, prices);
                let wrong = || ValidationError::at_path("/of", "must be given for the median, and only for it");
                Self::PriceAboveUsual {
                    services,
                    percent,
                    over: over.ok_or_else(wrong)?,
                    action,
                }
            }
            RuleBody::Schedule {
                services,
                time_zone: Zone(zone),
                periods,
            } => Self::Schedule {
                services,
                schedule: Schedule {
                    zone,
                    periods: periods.into_iter().map(|PeriodText(period)| period).collect(),
                },
            },
            RuleBody::AnomalyBrake {
                times: Times(times),
                at_least_units: at_least,
            } => Self::AnomalyBrake(AutomaticFreeze { times, at_least }),
            RuleBody::ApprovalException {
                services,
                operation_id: operation,
                keys,
                payee,
                max_amount_units: max_amount,
                until,
                waives_threshold,
                waived_rules,
            } => Self::ApprovalException(ApprovalException {
                services,
                operation,
                keys: keys.map(|keys| keys.into_iter().map(|Key(key)| key).collect()),
                payee,
                max_amount,
                until,
                waives_threshold: waives_threshold.unwrap_or_default(),
                waived_rules: waived_rules.unwrap_or_default(),
            }),
        })
    }
}

/// Builds a window from the period and the action. The callers add services, categories and keys.
fn build_rule_window(
    duration: Option<Duration>,
    period: Option<Period>,
    time_zone: Option<Zone>,
    action: Option<Action>,
) -> Result<RuleWindow, ValidationError> {
    let name = period.map(|Period(name)| name);
    let zone = time_zone.map(|Zone(zone)| zone);
    let period = WindowPeriod::from_parts(duration, name.as_deref(), zone);
    Ok(RuleWindow {
        services: None,
        categories: None,
        keys: None,
        per_payee: false,
        period: period.ok_or_else(|| match (duration, name) {
            (None, None) => ValidationError::at_path("/window_seconds", "or `period` must be given"),
            (Some(_), Some(_)) => ValidationError::at_path("/period", "must be absent if `window_seconds` is given"),
            _ => ValidationError::at_path(
                "/time_zone",
                "must be given for `day`, `week` and `month`, and only for these",
            ),
        })?,
        action: action.map_or(LimitAction::Block, |Action(action)| action),
    })
}

/// Returns `error`, unless the error's field or `period` already has an error in `errors`. `path` is the
/// rule's path in the body.
pub(crate) fn unreported_error(
    error: ValidationError,
    path: &str,
    errors: &ValidationErrors,
) -> Option<ValidationError> {
    let is_reported = |field: &str| errors.has_error_at(&format!("{path}{field}"));
    let is_known = is_reported(&error.path) || is_reported("/period");
    (!is_known).then_some(error)
}

/// A field that can't be parsed is not checked further.
pub(crate) fn parse_rule(body: &Value, catalog: &Catalog) -> Result<CheckedRule, Error> {
    let mut errors = ValidationErrors::default();
    let rule = RuleBody::read(body, BodyPath::Body, &mut errors).map(RuleKind::try_from);
    let rule = match rule {
        Some(Ok(rule)) => Some(rule),
        Some(Err(error)) => {
            errors.extend(unreported_error(error, "", &errors));
            None
        }
        None => None,
    };
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
