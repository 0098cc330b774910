//! The rules on an agent's page, each shown as a sentence, with forms to change them.

use crate::agents::contents::AgentPage;
use crate::history;
use crate::preview::section as preview;
use crate::rules::api::parse_rule;
use crate::rules::operations::RuleUsage;
use crate::ui::bar::usage_bar;
use crate::ui::datetime::largest_whole_unit;
use crate::ui::form::{BoxOption, FieldOf, Form, FormName, Inputs, RuleForm, set_field};
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::used_amount;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{
    Amount, AutomaticFreeze, Catalog, Category, CheckedRule, Duration, KeyId, LimitAction, MAX_BUDGET_WINDOW,
    MAX_COUNT, MAX_FREEZE_MULTIPLE, MAX_PERCENT, MIN_FREEZE_MULTIPLE, MIN_MEDIAN_PRICES, RuleKind, RuleWindow, Service,
    ServiceSlug, UsualPrice, Vendor, WindowPeriod, ZoneName,
};
use serde_json::{Value, json};

/// The JSON fields of a rule, each with the form field and label.
const FIELDS: [FieldOf; 20] = [
    ("categories", "category", "Categories"),
    ("keys", "key", "Keys"),
    ("limit_units", "limit", "Budget"),
    ("window_seconds", "window", "Within"),
    ("above_units", "above", "Above"),
    ("services", "service", "Services"),
    ("wallets", "vendors", "Wallets"),
    ("", "vendors", "Vendors"),
    ("count", "count", "Payments"),
    ("interval_seconds", "interval", "Time"),
    ("within_seconds", "within", "Within"),
    ("action", "action", "Then"),
    ("percent", "percent", "Percent"),
    ("over", "over", "Compared with"),
    ("of", "of", "Prices"),
    ("time_zone", "zone", "Time zone"),
    ("periods", "periods", "Periods"),
    ("period", "window_unit", "Within"),
    ("times", "times", "Times"),
    ("at_least_units", "least", "At least"),
];

/// If the result is `None`, the form has at least one validation error.
pub(crate) fn parse_rule_form(form: &mut Form, catalog: &Catalog) -> Option<CheckedRule> {
    let Some(kind) = RuleForm::from_name(form.field_text("kind")) else {
        form.add_error("", "The form does not name a kind of rule. Reload the page.");
        return None;
    };
    let mut fields = FIELDS;
    let mut body = match kind {
        RuleForm::CategoryBlock => json!({"categories": form.distinct_field_words("category")}),
        RuleForm::VendorAllowlist => {
            fields[4] = ("services", "vendors", "Services");
            let words = form.distinct_field_words("vendors");
            let (wallets, services): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with("0x"));
            json!({"services": services, "wallets": wallets})
        }
        RuleForm::BudgetLimit => {
            fields[14] = ("time_zone", "window_zone", "Time zone");
            let limit = form.parse_dollars("limit", "Budget");
            let mut body = parse_window_form(form);
            set_field(&mut body, "limit_units", limit.map(Amount::units));
            set_field(
                &mut body,
                "per_payee",
                selected_options(form, "per_payee").map(|_| true),
            );
            body
        }
        RuleForm::ApprovalRequired => {
            let above = match form.field_text("above") {
                "" => None,
                _ => form.parse_dollars("above", "Above"),
            };
            json!({
                "services": selected_options(form, "service"),
                "categories": selected_options(form, "category"),
                "above_units": above.map(Amount::units),
            })
        }
        RuleForm::CountLimit => {
            fields[14] = ("time_zone", "window_zone", "Time zone");
            let mut body = parse_window_form(form);
            set_field(&mut body, "count", form.parse_number("count", "Payments", 1, MAX_COUNT));
            body
        }
        RuleForm::MinimumInterval => {
            let interval = parse_duration_seconds(form, "interval", "Time");
            json!({"services": selected_options(form, "service"), "interval_seconds": interval})
        }
        RuleForm::DuplicateGuard => {
            let within = parse_duration_seconds(form, "within", "Within");
            json!({"services": selected_options(form, "service"), "within_seconds": within, "action": form.field_text("action")})
        }
        RuleForm::NewPayee => json!({"services": selected_options(form, "service")}),
        RuleForm::PriceAboveUsual => {
            let percent = form.parse_number("percent", "Percent", 0, MAX_PERCENT);
            let over = form.field_text("over").to_owned();
            // `of`, the number of prices, is only allowed with the median.
            let of = if over == UsualPrice::MEDIAN {
                form.parse_number("of", "Prices", MIN_MEDIAN_PRICES.into(), 9)
            } else {
                None
            };
            json!({
                "services": selected_options(form, "service"),
                "percent": percent,
                "over": over,
                "of": of,
                "action": form.field_text("action"),
            })
        }
        RuleForm::Schedule => json!({
            "services": selected_options(form, "service"),
            "time_zone": form.field_text("zone"),
            "periods": field_lines(form, "periods"),
        }),
        RuleForm::AnomalyBrake => {
            let times = form.parse_number("times", "Times", MIN_FREEZE_MULTIPLE, MAX_FREEZE_MULTIPLE);
            let least = form.parse_dollars("least", "At least");
            json!({"times": times, "at_least_units": least.map(Amount::units)})
        }
    };
    set_field(&mut body, "kind", kind.name());
    form.take_value_or_add_errors(parse_rule(&body, catalog), &fields)
}

/// Returns the options that the user selected in the field, or `None` if no option is selected.
fn selected_options<'a>(form: &'a Form, field: &str) -> Option<Vec<&'a str>> {
    Some(form.distinct_field_words(field)).filter(|chosen| !chosen.is_empty())
}

/// Returns the lines of a text field in lower case, without empty lines.
fn field_lines(form: &Form, field: &str) -> Vec<String> {
    let lines = form.field_text(field).lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

/// The units in which a form's duration can be entered, each with the number of seconds per unit.
const UNITS: [(&str, u32); 4] = [("seconds", 1), ("minutes", 60), ("hours", 3_600), ("days", 86_400)];

/// Parses a duration in seconds from a number and a unit.
fn parse_duration_seconds(form: &mut Form, field: &str, label: &str) -> Option<u32> {
    let unit_field = format!("{field}_unit");
    let unit = UNITS.iter().find(|(name, _)| *name == form.field_text(&unit_field));
    let Some((_, unit)) = unit else {
        form.add_error(&unit_field, format!("{label}: choose a unit."));
        return None;
    };
    let max = u32::try_from(MAX_BUDGET_WINDOW.secs()).unwrap_or(u32::MAX);
    let count = form.parse_number(field, label, 1, max.checked_div(*unit)?)?;
    count.checked_mul(*unit)
}

/// Returns a rule's JSON body with the form's window: a number with a unit of time, or the name of a period.
fn parse_window_form(form: &mut Form) -> Value {
    let mut body = json!({});
    let unit = form.field_text("window_unit").to_owned();
    if PERIODS.iter().any(|(name, _)| *name == unit) {
        if unit != WindowPeriod::LIFETIME {
            set_field(&mut body, "time_zone", form.field_text("window_zone"));
        }
        set_field(&mut body, "period", unit);
    } else {
        set_field(
            &mut body,
            "window_seconds",
            parse_duration_seconds(form, "window", "Within"),
        );
    }
    set_field(&mut body, "services", selected_options(form, "service"));
    set_field(&mut body, "categories", selected_options(form, "category"));
    set_field(&mut body, "keys", selected_options(form, "key"));
    if form.field_text("action") == LimitAction::Ask.name() {
        set_field(&mut body, "action", LimitAction::Ask.name());
    }
    body
}

/// The periods of windows that are not rolling, with their labels.
const PERIODS: [(&str, &str); 4] = [
    ("day", "calendar day"),
    ("week", "calendar week"),
    ("month", "calendar month"),
    (WindowPeriod::LIFETIME, "lifetime"),
];

pub(crate) fn rules_section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    html! {
        section id="rules" aria-labelledby="rules-title" {
            div.section-head {
                h2 id="rules-title" { "Rules " span.muted { "over all services" } }
                a href=(history::page::rule_report_path(page.agent.id, None, "7")) { "History and decisions" }
            }
            @if page.rules.is_empty() {
                p.empty { "No rules. Add a rule for limits that apply to all services." }
            }
            ul.panels { @for usage in &page.rules { (rule_item(layout, page, usage, path)) } }
            (preview::finding_list(page.findings.iter(), page.catalog))
            div.adders { @for kind in RuleForm::ALL { (add_rule_form(layout, page, *kind, path)) } }
        }
    }
}

/// Returns the form for this kind of rule. Returns `None` for an exception, because an approval adds the exception, and
/// a user can only remove the exception.
const fn rule_form(kind: &RuleKind) -> Option<RuleForm> {
    Some(match kind {
        RuleKind::CategoryBlock { .. } => RuleForm::CategoryBlock,
        RuleKind::VendorAllowlist { .. } => RuleForm::VendorAllowlist,
        RuleKind::BudgetLimit { .. } => RuleForm::BudgetLimit,
        RuleKind::ApprovalRequired { .. } => RuleForm::ApprovalRequired,
        RuleKind::CountLimit { .. } => RuleForm::CountLimit,
        RuleKind::MinimumInterval { .. } => RuleForm::MinimumInterval,
        RuleKind::DuplicateGuard { .. } => RuleForm::DuplicateGuard,
        RuleKind::NewPayee { .. } => RuleForm::NewPayee,
        RuleKind::PriceAboveUsual { .. } => RuleForm::PriceAboveUsual,
        RuleKind::Schedule { .. } => RuleForm::Schedule,
        RuleKind::AnomalyBrake(_) => RuleForm::AnomalyBrake,
        RuleKind::ApprovalException(_) => return None,
    })
}

fn rule_item(layout: &Layout, page: &AgentPage<'_>, usage: &RuleUsage, path: &str) -> Markup {
    let rule = &usage.rule;
    let inputs = layout.form_inputs(FormName::Rule(rule.id));
    let kind = rule_form(&rule.kind);
    html! {
        li.panel {
            details id=(format!("rule-{}", rule.id)) open[inputs.has_posted_form()] {
                summary {
                    span.panel-name { span.chip { (kind.map_or("Always allowed", |kind| kind.label())) } }
                    span.limits { span { (phrases::rule_sentence(&rule.kind, page.catalog)) } }
                    @if let (RuleKind::BudgetLimit { limit, .. }, Some(used)) = (&rule.kind, usage.used) {
                        span.panel-spend {
                            (usage_bar(used.amount, Amount::ZERO, *limit))
                            span.figures { (used_amount(used)) " used" }
                        }
                    }
                    @if let (RuleKind::CountLimit { count, .. }, Some(used)) = (&rule.kind, usage.used) {
                        span.panel-spend { span.figures { (used.amount.units()) " of " (count) " used" } }
                    }
                    span.edit aria-hidden="true" { @if kind.is_some() { "Edit" } @else { "Remove" } }
                }
                div.unfolded {
                    @if let Some(kind) = kind {
                        (preview::update_preview_section(layout, &inputs))
                        (layout.post_form(&format!("{path}/rules/{}", rule.id), &html! {
                            (version_input(page.agent.version))
                            input type="hidden" name="kind" value=(kind.name());
                            (rule_inputs(&inputs, page, kind, Some(&rule.kind)))
                            (inputs.update_reason_input())
                            div.actions {
                                button.primary type="submit" { "Save rule" }
                                (preview::preview_and_test_buttons(&format!("{path}/rules/{}", rule.id)))
                            }
                        }))
                    }
                    (layout.button_form(&format!("{path}/rules/{}/remove", rule.id), &Button::danger(
                        "Remove rule",
                        "Remove this rule? It does not apply to the next payment.",
                    ).with_version(page.agent.version).with_reason_input()))
                }
            }
        }
    }
}

fn add_rule_form(layout: &Layout, page: &AgentPage<'_>, kind: RuleForm, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::NewRule(kind));
    html! {
        details.pop.wide open[inputs.has_posted_form()] {
            summary.button { "+ " (kind.label()) }
            div.pop-body {
                (preview::update_preview_section(layout, &inputs))
                (layout.post_form(&format!("{path}/rules"), &html! {
                    (version_input(page.agent.version))
                    input type="hidden" name="kind" value=(kind.name());
                    (rule_inputs(&inputs, page, kind, None))
                    (inputs.update_reason_input())
                    div.actions {
                        button.primary type="submit" { "Add rule" }
                        (preview::preview_and_test_buttons(&format!("{path}/rules")))
                    }
                }))
            }
        }
    }
}

fn rule_inputs(inputs: &Inputs<'_>, page: &AgentPage<'_>, kind: RuleForm, current: Option<&RuleKind>) -> Markup {
    match kind {
        RuleForm::CategoryBlock => {
            let blocked = match current {
                Some(RuleKind::CategoryBlock { categories }) => categories.as_slice(),
                _ => &[],
            };
            inputs.checkboxes(
                "category",
                "Buy nothing in",
                "Payments in these categories are refused.",
                &category_options(blocked),
            )
        }
        RuleForm::VendorAllowlist => {
            let vendors = match current {
                Some(RuleKind::VendorAllowlist { vendors }) => vendors.as_slice(),
                _ => &[],
            };
            let lines: Vec<String> = vendors.iter().map(vendor_text).collect();
            let example = page
                .catalog
                .services()
                .first()
                .map_or("lab-weather", |service| service.slug.as_str());
            let hint = format!(
                "One per line: a service’s slug such as {example}, or a wallet’s address. No other vendor is paid."
            );
            inputs.text_area("vendors", "Pay only", &hint, &lines, 4)
        }
        RuleForm::ApprovalRequired => approval_inputs(inputs, page, current),
        RuleForm::AnomalyBrake => automatic_freeze_inputs(inputs, current),
        RuleForm::BudgetLimit
        | RuleForm::CountLimit
        | RuleForm::MinimumInterval
        | RuleForm::DuplicateGuard
        | RuleForm::NewPayee
        | RuleForm::PriceAboveUsual
        | RuleForm::Schedule => html! {
            (limit_inputs(inputs, kind, current))
            (scope_inputs(inputs, page, current))
            @if matches!(kind, RuleForm::BudgetLimit | RuleForm::CountLimit) {
                @let scope = current.map(RuleKind::scope).unwrap_or_default();
                (inputs.checkboxes("category", "Only at services in these categories", "None chosen: in any category.", &category_options(scope.categories.unwrap_or_default())))
                (inputs.checkboxes("key", "Only with these keys", "None chosen: with any key.", &key_options(page, scope.keys.unwrap_or_default())))
            }
        },
    }
}

/// Renders the inputs of a limit, except the services.
fn limit_inputs(inputs: &Inputs<'_>, kind: RuleForm, current: Option<&RuleKind>) -> Markup {
    let minutes = |minutes: u32| Duration::from_secs_u32(minutes.saturating_mul(60));
    match kind {
        RuleForm::CountLimit => {
            let (count, window) = match current {
                Some(RuleKind::CountLimit { count, window }) => (*count, window.clone()),
                _ => (10, minutes(60).into()),
            };
            html! {
                div.caps { (inputs.number_input("count", "Payments", count.into())) }
                (window_inputs(inputs, &window))
            }
        }
        RuleForm::BudgetLimit => {
            let (limit, window) = match current {
                Some(RuleKind::BudgetLimit { limit, window }) => (Some(*limit), window.clone()),
                _ => (None, minutes(7 * 24 * 60).into()),
            };
            html! {
                div.caps { (inputs.dollars_input("limit", "Budget", "Over the services below together.", limit)) }
                (window_inputs(inputs, &window))
                @let per_payee = BoxOption { value: "yes".to_owned(), label: "Each payee alone".to_owned(), present: window.per_payee };
                (inputs.checkboxes("per_payee", "Count", "Chosen: the budget is for each payee. You can’t change this later.", &[per_payee]))
            }
        }
        RuleForm::MinimumInterval => {
            let interval = match current {
                Some(RuleKind::MinimumInterval { interval, .. }) => *interval,
                _ => minutes(1),
            };
            html! { div.caps { (duration_inputs(inputs, "interval", "Time between two payments", interval)) } }
        }
        RuleForm::DuplicateGuard => {
            let (within, action) = match current {
                Some(RuleKind::DuplicateGuard { within, action, .. }) => (*within, *action),
                _ => (minutes(10), LimitAction::Ask),
            };
            html! {
                div.caps { (duration_inputs(inputs, "within", "Same call again within", within)) }
                (action_inputs(inputs, action))
            }
        }
        RuleForm::PriceAboveUsual => {
            let (percent, over, action) = match current {
                Some(RuleKind::PriceAboveUsual {
                    percent, over, action, ..
                }) => (*percent, *over, *action),
                _ => (20, UsualPrice::Catalog, LimitAction::Ask),
            };
            let bases = [
                (UsualPrice::CATALOG, "The catalog’s price"),
                (UsualPrice::MEDIAN, "The median of the operation’s last prices"),
            ];
            html! {
                div.caps { (inputs.number_input("percent", "Percent above", percent.into())) }
                (inputs.radio_buttons("over", "Compared with", &bases, over.name()))
                div.caps { (inputs.number_input("of", "Number of last prices, 3 to 9", over.price_count().unwrap_or(5).into())) }
                (action_inputs(inputs, action))
            }
        }
        RuleForm::Schedule => {
            let (zone, periods) = match current {
                Some(RuleKind::Schedule { schedule, .. }) => (
                    schedule.zone,
                    schedule.periods.iter().map(ToString::to_string).collect(),
                ),
                _ => (ZoneName::UTC, vec!["monday-friday 08:00-18:00".to_owned()]),
            };
            let hint = "One per line, such as monday-friday 09:00-17:00 or monday,sunday 22:00-02:00. An end before the start is on \
                the next day.";
            html! {
                (inputs.text_area("periods", "Pay only within", hint, &periods, 3))
                div.caps { (inputs.required_text_input("zone", "Time zone, such as Europe/Berlin", &zone.to_string(), 64)) }
            }
        }
        RuleForm::CategoryBlock
        | RuleForm::VendorAllowlist
        | RuleForm::ApprovalRequired
        | RuleForm::NewPayee
        | RuleForm::AnomalyBrake => html! {},
    }
}

/// Renders the inputs of a window, except the services.
fn window_inputs(inputs: &Inputs<'_>, window: &RuleWindow) -> Markup {
    let period = window.period;
    let (count, unit) = largest_whole_unit(period.duration().unwrap_or(Duration::DAY));
    let unit = period.name().map_or_else(|| format!("{unit}s"), str::to_owned);
    let units = UNITS.map(|(name, _)| (name, name)).into_iter().chain(PERIODS);
    let units: Vec<(String, String)> = units.map(|(name, label)| (name.to_owned(), label.to_owned())).collect();
    let zone = period.time_zone().unwrap_or(ZoneName::UTC).to_string();
    html! {
        div.caps {
            (inputs.number_input("window", "Within any", count))
            (inputs.drop_down("window_unit", "Unit, or period of the calendar", &units, &unit))
            (inputs.required_text_input("window_zone", "Time zone of a calendar period", &zone, 64))
        }
        (action_inputs(inputs, window.action))
    }
}

fn duration_inputs(inputs: &Inputs<'_>, field: &str, label: &str, current: Duration) -> Markup {
    let (count, unit) = largest_whole_unit(current);
    let units = UNITS.map(|(name, _)| (name.to_owned(), name.to_owned()));
    html! {
        (inputs.number_input(field, label, count))
        (inputs.drop_down(&format!("{field}_unit"), "Unit", &units, &format!("{unit}s")))
    }
}

fn action_inputs(inputs: &Inputs<'_>, current: LimitAction) -> Markup {
    let options = [
        (LimitAction::Ask.name(), "Ask a person"),
        (LimitAction::Block.name(), "Refuse"),
    ];
    inputs.radio_buttons("action", "Then", &options, current.name())
}

/// Renders the checkboxes for the services to which a limit applies.
fn scope_inputs(inputs: &Inputs<'_>, page: &AgentPage<'_>, current: Option<&RuleKind>) -> Markup {
    let services = current.and_then(RuleKind::service_slugs).unwrap_or_default();
    html! {
        (inputs.checkboxes("service", "Only at these services", "None chosen: at any service.", &service_options(page, services)))
        (removed_service_options(page, services))
    }
}

fn removed_service_options(page: &AgentPage<'_>, services: &[ServiceSlug]) -> Markup {
    let gone = services.iter().map(ServiceSlug::as_str);
    let gone: Vec<&str> = gone
        .filter(|slug| page.catalog.find_by_reference(slug).is_none())
        .collect();
    html! {
        @if !gone.is_empty() {
            p.warning { "No longer in the catalog, and removed when you save: " code { (gone.join(", ")) } "." }
        }
    }
}

fn automatic_freeze_inputs(inputs: &Inputs<'_>, current: Option<&RuleKind>) -> Markup {
    let automatic_freeze = match current {
        Some(RuleKind::AnomalyBrake(automatic_freeze)) => Some(*automatic_freeze),
        _ => None,
    };
    let times = automatic_freeze.map_or(10, |automatic_freeze: AutomaticFreeze| automatic_freeze.times);
    html! {
        p.muted { "Disables the service with most of the payments, or freezes the agent, and tells you some seconds after the payments." }
        div.caps {
            (inputs.number_input("times", "Times the busiest hour of a usual day", times.into()))
            (inputs.dollars_input("least", "And at least", "In one hour.", automatic_freeze.map(|automatic_freeze| automatic_freeze.at_least)))
        }
    }
}

fn approval_inputs(inputs: &Inputs<'_>, page: &AgentPage<'_>, current: Option<&RuleKind>) -> Markup {
    let (services, chosen, above) = match current {
        Some(RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        }) => (
            services.as_deref().unwrap_or_default(),
            categories.as_deref().unwrap_or_default(),
            *above,
        ),
        _ => (&[][..], &[][..], None),
    };
    html! {
        (inputs.dollars_input("above", "Payments above", "Empty: every payment, at any price.", above))
        (inputs.checkboxes("service", "Only to these services", "None chosen: to any service.", &service_options(page, services)))
        (removed_service_options(page, services))
        (inputs.checkboxes("category", "Only in these categories", "None chosen: in any category.", &category_options(chosen)))
    }
}

fn category_options(selected: &[Category]) -> Vec<BoxOption> {
    let option = |category: &Category| BoxOption {
        value: category.name().to_owned(),
        label: category.name().to_owned(),
        present: selected.contains(category),
    };
    Category::ALL.iter().map(option).collect()
}

/// Includes ended keys that the rule names.
fn key_options(page: &AgentPage<'_>, selected: &[KeyId]) -> Vec<BoxOption> {
    let own: Vec<KeyId> = page.agent.keys.iter().map(|key| key.id).collect();
    let ended = selected.iter().filter(|key| !own.contains(key));
    let option = |key: &KeyId| BoxOption {
        value: key.to_string(),
        label: key.to_string(),
        present: selected.contains(key),
    };
    own.iter().chain(ended).map(option).collect()
}

/// Includes services that are not enabled, if the rule names them.
fn service_options(page: &AgentPage<'_>, selected: &[ServiceSlug]) -> Vec<BoxOption> {
    let own = page
        .services
        .iter()
        .filter(|governed_service| governed_service.record.enabled);
    let own = own.filter_map(|governed_service| page.catalog.find_by_id(governed_service.record.service));
    let mut services: Vec<&Service> = own.collect();
    for named in selected
        .iter()
        .filter_map(|slug| page.catalog.find_by_reference(slug.as_str()))
    {
        if services.iter().all(|service| service.id != named.id) {
            services.push(named);
        }
    }
    let option = |service: &Service| BoxOption {
        value: service.slug.to_string(),
        label: service.name.clone(),
        present: selected.contains(&service.slug),
    };
    services.into_iter().map(option).collect()
}

fn vendor_text(vendor: &Vendor) -> String {
    match vendor {
        Vendor::Service(slug) => slug.to_string(),
        Vendor::Wallet(wallet) => wallet.to_checksum(None),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use purser_domain::{
        Availability, CalendarPeriod, Endpoint, ListingHistory, Operation, OperationSlug, OperationUuid, RuleWindow,
        Schedule, SchedulePeriod, Service, ServiceId, TrustStatus, Url,
    };
    use uuid::Uuid;

    pub(crate) fn catalog() -> Catalog {
        let operation = |slug: &&str| Operation {
            id: OperationUuid::from_uuid(Uuid::from_u128(1)),
            slug: OperationSlug::parse(slug).unwrap(),
            availability: Availability::PaidX402,
            label: String::new(),
            method: "GET".to_owned(),
            endpoint: Endpoint::parse("http://provider.test/x").unwrap(),
            category: Category::Data,
            execution: "sync".to_owned(),
            price_model: "fixed".to_owned(),
            estimated_price: Amount::ZERO,
            max_price: None,
            params: Value::Null,
            fetches_target: None,
            next: None,
            payment: None,
        };
        let service = |(id, slug, operations): (u128, &str, &[&str])| Service {
            id: ServiceId::from_uuid(Uuid::from_u128(id)),
            slug: ServiceSlug::parse(slug).unwrap(),
            name: slug.to_owned(),
            description: String::new(),
            website: Url::parse("http://provider.test/").unwrap(),
            logo_url: None,
            category: Category::Data,
            source: "test".to_owned(),
            trust_status: TrustStatus::Listed,
            operations: operations.iter().map(operation).collect(),
            curated: true,
            history: ListingHistory::default(),
            version: 1,
        };
        let services: [(u128, &str, &[&str]); 2] = [
            (1, "lab-weather", &["weather.current", "weather.history"]),
            (2, "lab-search", &["search.web"]),
        ];
        Catalog::new(services.into_iter().map(service).collect())
    }

    fn read(body: &str) -> Result<RuleKind, Vec<String>> {
        let mut form = Form::parse(FormName::NewRule(RuleForm::BudgetLimit), body.as_bytes());
        let rule = parse_rule_form(&mut form, &catalog());
        let errors: Vec<String> = form.errors().iter().map(|error| error.field.clone()).collect();
        assert_eq!(rule.is_some(), errors.is_empty(), "{body}");
        rule.map(|rule| rule.kind().clone()).ok_or(errors)
    }

    #[test]
    fn every_rule_kind_is_parsed_from_its_form() {
        let wallet = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
        let slug = |text| ServiceSlug::parse(text).unwrap();
        let amount = |units| Amount::from_units(units).unwrap();
        let rows = [
            (
                "kind=category_block&category=ai&category=finance".to_owned(),
                RuleKind::CategoryBlock {
                    categories: vec![Category::Ai, Category::Finance],
                },
            ),
            (
                format!("kind=vendor_allowlist&vendors=lab-weather%0D%0A{wallet}%0Alab-weather"),
                RuleKind::VendorAllowlist {
                    vendors: vec![
                        Vendor::Service(slug("lab-weather")),
                        Vendor::Wallet(wallet.parse().unwrap()),
                    ],
                },
            ),
            (
                "kind=budget_limit&limit=20.5&window=7&window_unit=days".to_owned(),
                RuleKind::BudgetLimit {
                    limit: amount(20_500_000),
                    window: Duration::from_secs_u32(604_800).into(),
                },
            ),
            (
                "kind=budget_limit&limit=1&window=744&window_unit=hours&per_payee=yes".to_owned(),
                RuleKind::BudgetLimit {
                    limit: amount(1_000_000),
                    window: RuleWindow {
                        per_payee: true,
                        ..MAX_BUDGET_WINDOW.into()
                    },
                },
            ),
            (
                // The form always sends the number, which only a rolling window uses.
                "kind=budget_limit&limit=1&window=7&window_unit=month&window_zone=Europe%2FBerlin&action=ask&service=lab-weather&category=data&key=0f1e2d3c4b5a6978".to_owned(),
                RuleKind::BudgetLimit {
                    limit: amount(1_000_000),
                    window: RuleWindow {
                        services: Some(vec![slug("lab-weather")]),
                        categories: Some(vec![Category::Data]),
                        keys: Some(vec![KeyId(0x0f1e_2d3c_4b5a_6978)]),
                        per_payee: false,
                        period: WindowPeriod::Calendar(
                            CalendarPeriod::Month,
                            ZoneName::parse("Europe/Berlin").unwrap(),
                        ),
                        action: LimitAction::Ask,
                    },
                },
            ),
            (
                "kind=count_limit&count=3&window=7&window_unit=lifetime&window_zone=UTC&action=block".to_owned(),
                RuleKind::CountLimit {
                    count: 3,
                    window: RuleWindow {
                        services: None,
                        categories: None,
                        keys: None,
                        per_payee: false,
                        period: WindowPeriod::Lifetime,
                        action: LimitAction::Block,
                    },
                },
            ),
            (
                "kind=approval_required&above=".to_owned(),
                RuleKind::ApprovalRequired {
                    services: None,
                    categories: None,
                    above: None,
                },
            ),
            (
                "kind=approval_required&above=2&service=lab-weather&category=ai".to_owned(),
                RuleKind::ApprovalRequired {
                    services: Some(vec![slug("lab-weather")]),
                    categories: Some(vec![Category::Ai]),
                    above: Some(amount(2_000_000)),
                },
            ),
            (
                "kind=count_limit&count=10&window=90&window_unit=minutes&service=lab-weather".to_owned(),
                RuleKind::CountLimit {
                    count: 10,
                    window: RuleWindow {
                        services: Some(vec![slug("lab-weather")]),
                        ..Duration::from_secs_u32(5_400).into()
                    },
                },
            ),
            (
                "kind=minimum_interval&interval=30&interval_unit=seconds".to_owned(),
                RuleKind::MinimumInterval {
                    services: None,
                    interval: Duration::from_secs_u32(30),
                },
            ),
            (
                "kind=duplicate_guard&within=31&within_unit=days&action=block".to_owned(),
                RuleKind::DuplicateGuard {
                    services: None,
                    within: MAX_BUDGET_WINDOW,
                    action: LimitAction::Block,
                },
            ),
            ("kind=new_payee".to_owned(), RuleKind::NewPayee { services: None }),
            (
                // The form always sends the number of prices, which only the median uses.
                "kind=price_above_usual&percent=20&over=catalog&of=5&action=ask".to_owned(),
                RuleKind::PriceAboveUsual {
                    services: None,
                    percent: 20,
                    over: UsualPrice::Catalog,
                    action: LimitAction::Ask,
                },
            ),
            (
                "kind=price_above_usual&percent=20&over=median&of=5&action=ask".to_owned(),
                RuleKind::PriceAboveUsual {
                    services: None,
                    percent: 20,
                    over: UsualPrice::Median(5),
                    action: LimitAction::Ask,
                },
            ),
            (
                "kind=anomaly_brake&times=10&least=10".to_owned(),
                RuleKind::AnomalyBrake(AutomaticFreeze {
                    times: 10,
                    at_least: amount(10_000_000),
                }),
            ),
            (
                "kind=schedule&zone=Asia%2FTokyo&periods=Monday-friday+09:00-17:00%0D%0A%0D%0A+saturday+09:00-12:00"
                    .to_owned(),
                RuleKind::Schedule {
                    services: None,
                    schedule: Schedule {
                        zone: ZoneName::parse("Asia/Tokyo").unwrap(),
                        periods: ["monday-friday 09:00-17:00", "saturday 09:00-12:00"]
                            .map(|period| SchedulePeriod::parse(period).unwrap())
                            .to_vec(),
                    },
                },
            ),
        ];
        for (body, rule) in rows {
            assert_eq!(read(&body), Ok(rule), "{body}");
        }
    }

    #[test]
    fn all_rule_form_errors_are_reported_together() {
        let rows: [(&str, &[&str]); 19] = [
            ("kind=anomaly_brake&times=1&least=", &["times", "least"]),
            ("kind=anomaly_brake&times=100&least=0", &["least"]),
            ("", &[""]),
            ("kind=vendor_allowlist&vendors=mistyped", &["vendors"]),
            ("kind=approval_required&service=mistyped", &["service"]),
            ("kind=category_block", &["category"]),
            ("kind=category_block&category=cheese", &["category"]),
            ("kind=vendor_allowlist&vendors=", &["vendors"]),
            ("kind=vendor_allowlist&vendors=0x12+Lab", &["vendors", "vendors"]),
            (
                "kind=budget_limit&limit=-1&window=0&window_unit=days",
                &["limit", "window"],
            ),
            ("kind=budget_limit&limit=1&window=32&window_unit=days", &["window"]),
            (
                "kind=approval_required&above=1,5&service=A+b&category=x",
                &["above", "category", "service"],
            ),
            (
                "kind=count_limit&count=0&window=32&window_unit=days",
                &["window", "count"],
            ),
            (
                "kind=minimum_interval&interval=1&interval_unit=weeks",
                &["interval_unit"],
            ),
            ("kind=duplicate_guard&within=1&within_unit=hours&action=", &["action"]),
            (
                "kind=price_above_usual&percent=-1&over=median&of=2&action=ask",
                &["percent", "of"],
            ),
            (
                "kind=budget_limit&limit=1&window_unit=week&window_zone=Berlin",
                &["window_zone"],
            ),
            ("kind=schedule&zone=Berlin&periods=monday+8-24:01", &["periods", "zone"]),
            ("kind=schedule&zone=UTC&periods=", &["periods"]),
        ];
        for (body, fields) in rows {
            assert_eq!(read(body).unwrap_err(), fields, "{body}");
        }
    }
}
