//! The inputs of each kind of rule. The same table draws a form, and parses the submitted form to the JSON of the API.

use crate::agents::contents::AgentPage;
use crate::rules::api::{MAX_PRICES, parse_rule};
use crate::ui::datetime::largest_whole_unit;
use crate::ui::form::{BoxOption, FieldOf, Form, Inputs, set_field};
use maud::{Markup, html};
use purser_domain::{
    Amount, Catalog, Category, CheckedRule, Duration, LimitAction, MAX_BUDGET_WINDOW, MAX_COUNT, MAX_FREEZE_MULTIPLE,
    MAX_PERCENT, MIN_FREEZE_MULTIPLE, MIN_MEDIAN_PRICES, RuleKind, RuleKindName, Service, UsualPrice, WindowPeriod,
    rule_kind_json,
};
use serde_json::{Value, json};

/// An input of a rule's form.
struct RuleInput {
    /// The JSON field of the rule.
    json: &'static str,
    /// The name of the form's field.
    field: &'static str,
    /// The name in error messages.
    label: &'static str,
    /// The text above the input.
    legend: &'static str,
    kind: InputKind,
}

/// The kind of an input. The form of a new rule shows the default.
enum InputKind {
    /// An amount in dollars, with a hint.
    Dollars(&'static str),
    /// An amount in dollars that may be empty, with a hint.
    OptionalDollars(&'static str),
    /// A whole number: the minimum, the maximum and the default.
    Number(u32, u32, u32),
    /// The number of prices in a median, which only the median uses.
    MedianPrices,
    /// A number of units of time: the default in seconds.
    Seconds(u32),
    /// A number of units of time, or a period of the calendar: the default in seconds.
    Window(u32),
    /// The action for a payment beyond the limit. `block` is not sent, because `block` is the API's default.
    WindowAction,
    /// The action, which the API requires.
    Action,
    UsualPrice,
    PerPayee,
    /// One line of text: the default.
    Text(&'static str),
    /// A text with several lines: the default and a hint.
    Lines(&'static str, &'static str),
    /// Services and wallets.
    Vendors,
    /// Services, with a hint. If no service is selected, the rule applies to all services.
    Services(&'static str),
    /// Categories. If no category is selected, the rule applies to all categories.
    Categories,
    /// Categories that the rule blocks.
    BlockedCategories,
    /// Keys. If no key is selected, the rule applies to all keys.
    Keys,
}

/// Declares the inputs of each kind. A row has the JSON field, the form's field, the label and the legend.
macro_rules! rule_inputs {
    ($($rule:ident { $($json:literal as $field:literal, $label:literal: $legend:literal, $kind:ident $(($($detail:expr),*))?;)* })*) => {
        /// Returns the inputs of this kind's form. Returns `None` for an exception, because the pages add exceptions
        /// only with an approval.
        const fn rule_inputs(rule: RuleKindName) -> Option<&'static [RuleInput]> {
            Some(match rule {
                $(RuleKindName::$rule => &[$(RuleInput {
                    json: $json,
                    field: $field,
                    label: $label,
                    legend: $legend,
                    kind: InputKind::$kind $(($($detail),*))?,
                }),*],)*
                RuleKindName::ApprovalException => return None,
            })
        }
    };
}

rule_inputs! {
    BudgetLimit {
        "limit_units" as "limit", "Budget": "Budget", Dollars("Over the services below together.");
        "window_seconds" as "window", "Within": "Within any", Window(7 * 86_400);
        "action" as "action", "Then": "Then", WindowAction;
        "per_payee" as "per_payee", "Count": "Count", PerPayee;
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
        "categories" as "category", "Categories": "Only at services in these categories", Categories;
        "keys" as "key", "Keys": "Only with these keys", Keys;
    }
    ApprovalRequired {
        "above_units" as "above", "Above": "Payments above", OptionalDollars("Empty: every payment, at any price.");
        "services" as "service", "Services": "Only to these services", Services("None chosen: to any service.");
        "categories" as "category", "Categories": "Only in these categories", Categories;
    }
    CategoryBlock {
        "categories" as "category", "Categories": "Buy nothing in", BlockedCategories;
    }
    VendorAllowlist {
        "services" as "vendors", "Services": "Pay only", Vendors;
    }
    CountLimit {
        "count" as "count", "Payments": "Payments", Number(1, MAX_COUNT, 10);
        "window_seconds" as "window", "Within": "Within any", Window(3_600);
        "action" as "action", "Then": "Then", WindowAction;
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
        "categories" as "category", "Categories": "Only at services in these categories", Categories;
        "keys" as "key", "Keys": "Only with these keys", Keys;
    }
    MinimumInterval {
        "interval_seconds" as "interval", "Time": "Time between two payments", Seconds(60);
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
    }
    DuplicateGuard {
        "within_seconds" as "within", "Within": "Same call again within", Seconds(600);
        "action" as "action", "Then": "Then", Action;
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
    }
    NewPayee {
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
    }
    PriceAboveUsual {
        "percent" as "percent", "Percent": "Percent above", Number(0, MAX_PERCENT, 20);
        "over" as "over", "Compared with": "Compared with", UsualPrice;
        "of" as "of", "Prices": "Number of last prices, 3 to 9", MedianPrices;
        "action" as "action", "Then": "Then", Action;
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
    }
    Schedule {
        "periods" as "periods", "Periods": "Pay only within", Lines(
            "monday-friday 08:00-18:00",
            "One per line, such as monday-friday 09:00-17:00 or monday,sunday 22:00-02:00. An end before the start is on the next day."
        );
        "time_zone" as "zone", "Time zone": "Time zone, such as Europe/Berlin", Text("UTC");
        "services" as "service", "Services": "Only at these services", Services("None chosen: at any service.");
    }
    AutomaticFreeze {
        "times" as "times", "Times": "Times the busiest hour of a usual day", Number(MIN_FREEZE_MULTIPLE, MAX_FREEZE_MULTIPLE, 10);
        "at_least_units" as "least", "At least": "And at least", Dollars("In one hour.");
    }
}

/// Returns whether a user can add and change rules of this kind.
pub(crate) const fn has_form(kind: RuleKindName) -> bool {
    rule_inputs(kind).is_some()
}

/// If the result is `None`, the form has at least one validation error.
pub(crate) fn parse_rule_form(form: &mut Form, catalog: &Catalog) -> Option<CheckedRule> {
    let kind = RuleKindName::from_name(form.field_text("kind"));
    let Some((kind, inputs)) = kind.and_then(|kind| Some((kind, rule_inputs(kind)?))) else {
        form.add_error("", "The form does not name a kind of rule. Reload the page.");
        return None;
    };
    let mut body = json!({"kind": kind.name()});
    let mut fields: Vec<FieldOf> = Vec::new();
    for input in inputs {
        let value = input.parse(form, &mut body, &mut fields);
        set_field(&mut body, input.json, value);
        fields.push((input.json, input.field, input.label));
    }
    form.take_value_or_add_errors(parse_rule(&body, catalog), &fields)
}

/// Renders the inputs of this kind. `current` is the rule that the form changes.
pub(crate) fn draw_rule_inputs(
    inputs: &Inputs<'_>,
    page: &AgentPage<'_>,
    kind: RuleKindName,
    current: Option<&RuleKind>,
) -> Markup {
    let rule = current.map_or(Value::Null, rule_kind_json);
    let rows = rule_inputs(kind).unwrap_or_default();
    html! {
        @if kind == RuleKindName::AutomaticFreeze {
            p.muted { "Disables the service with most of the payments, or freezes the agent, and tells you some seconds after the payments." }
        }
        @for rows in rows.chunk_by(|row, next| row.is_narrow() && next.is_narrow()) {
            @let drawn = html! { @for row in rows { (row.draw(inputs, page, &rule)) } };
            @if rows.iter().any(RuleInput::is_narrow) { div.caps { (drawn) } } @else { (drawn) }
        }
    }
}

impl RuleInput {
    /// Returns whether the page shows the input in one line with adjacent narrow inputs.
    const fn is_narrow(&self) -> bool {
        matches!(
            self.kind,
            InputKind::Dollars(_)
                | InputKind::Number(..)
                | InputKind::MedianPrices
                | InputKind::Seconds(_)
                | InputKind::Text(_)
        )
    }

    /// Returns the value of the JSON field. Some inputs also set other fields of `body`, and add them to `fields`.
    fn parse(&self, form: &mut Form, body: &mut Value, fields: &mut Vec<FieldOf>) -> Value {
        let Self { field, label, .. } = *self;
        match self.kind {
            InputKind::OptionalDollars(_) if form.field_text(field).is_empty() => Value::Null,
            InputKind::Dollars(_) | InputKind::OptionalDollars(_) => {
                form.parse_dollars(field, label).map(Amount::units).into()
            }
            InputKind::Number(min, max, _) => form.parse_number(field, label, min, max).into(),
            InputKind::MedianPrices if form.field_text("over") != UsualPrice::MEDIAN => Value::Null,
            InputKind::MedianPrices => form.parse_number(field, label, MIN_MEDIAN_PRICES, MAX_PRICES).into(),
            InputKind::Seconds(_) => parse_duration_seconds(form, field, label).into(),
            InputKind::Window(_) => {
                fields.extend([
                    ("period", "window_unit", label),
                    ("time_zone", "window_zone", "Time zone"),
                ]);
                let unit = form.field_text("window_unit").to_owned();
                if PERIODS.iter().all(|(name, _)| *name != unit) {
                    return parse_duration_seconds(form, field, label).into();
                }
                if unit != WindowPeriod::LIFETIME {
                    set_field(body, "time_zone", form.field_text("window_zone"));
                }
                set_field(body, "period", unit);
                Value::Null
            }
            InputKind::WindowAction if form.field_text(field) != LimitAction::Ask.name() => Value::Null,
            InputKind::WindowAction | InputKind::Action | InputKind::UsualPrice | InputKind::Text(_) => {
                form.field_text(field).into()
            }
            InputKind::PerPayee => selected_options(form, field).map(|_| true).into(),
            InputKind::Lines(..) => field_lines(form, field).into(),
            InputKind::Vendors => {
                fields.extend([("wallets", field, "Wallets"), ("", field, "Vendors")]);
                let words = form.distinct_field_words(field);
                let (wallets, services): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with("0x"));
                set_field(body, "wallets", wallets);
                services.into()
            }
            InputKind::BlockedCategories => form.distinct_field_words(field).into(),
            InputKind::Services(_) | InputKind::Categories | InputKind::Keys => selected_options(form, field).into(),
        }
    }

    /// Renders the input with the value in `rule`, the rule's JSON, or with the default.
    fn draw(&self, inputs: &Inputs<'_>, page: &AgentPage<'_>, rule: &Value) -> Markup {
        let Self { field, legend, .. } = *self;
        let value = rule.get(self.json);
        let (number, text) = (value.and_then(Value::as_u64), value.and_then(Value::as_str));
        let selected = selected_values(rule, self.json);
        match self.kind {
            InputKind::Dollars(hint) | InputKind::OptionalDollars(hint) => {
                inputs.dollars_input(field, legend, hint, number.and_then(Amount::from_units))
            }
            InputKind::Number(.., default) => inputs.number_input(field, legend, number.unwrap_or(default.into())),
            InputKind::MedianPrices => inputs.number_input(field, legend, number.unwrap_or(5)),
            InputKind::Seconds(default) => {
                let (count, unit) = count_and_unit(number.unwrap_or(default.into()));
                let units = UNITS.map(|(name, _)| (name.to_owned(), name.to_owned()));
                html! {
                    (inputs.number_input(field, legend, count))
                    (inputs.drop_down(&format!("{field}_unit"), "Unit", &units, &unit))
                }
            }
            InputKind::Window(default) => {
                let text = |name| rule.get(name).and_then(Value::as_str);
                let period = text("period");
                let secs = if period.is_some() {
                    86_400
                } else {
                    number.unwrap_or(default.into())
                };
                let (count, unit) = count_and_unit(secs);
                let units = UNITS.map(|(name, _)| (name, name)).into_iter().chain(PERIODS);
                let units: Vec<_> = units.map(|(name, label)| (name.to_owned(), label.to_owned())).collect();
                let zone = text("time_zone").unwrap_or("UTC");
                html! {
                    div.caps {
                        (inputs.number_input(field, legend, count))
                        (inputs.drop_down("window_unit", "Unit, or period of the calendar", &units, period.unwrap_or(&unit)))
                        (inputs.required_text_input("window_zone", "Time zone of a calendar period", zone, 64))
                    }
                }
            }
            InputKind::WindowAction => action_inputs(inputs, self, text.unwrap_or(LimitAction::Block.name())),
            InputKind::Action => action_inputs(inputs, self, text.unwrap_or(LimitAction::Ask.name())),
            InputKind::UsualPrice => {
                let options = [
                    (UsualPrice::CATALOG, "The catalog’s price"),
                    (UsualPrice::MEDIAN, "The median of the operation’s last prices"),
                ];
                inputs.radio_buttons(field, legend, &options, text.unwrap_or(UsualPrice::CATALOG))
            }
            InputKind::PerPayee => {
                let is_present = value.and_then(Value::as_bool).unwrap_or_default();
                let hint = "Chosen: the budget is for each payee. You can’t change this later.";
                let option = ("yes".to_owned(), "Each payee alone".to_owned());
                let selected: &[&str] = if is_present { &["yes"] } else { &[] };
                inputs.checkboxes(field, legend, hint, &box_options([option], selected))
            }
            InputKind::Text(default) => inputs.required_text_input(field, legend, text.unwrap_or(default), 64),
            InputKind::Lines(default, hint) => {
                let lines = value.map_or_else(|| vec![default], |_| selected);
                inputs.text_area(
                    field,
                    legend,
                    hint,
                    &lines.into_iter().map(str::to_owned).collect::<Vec<_>>(),
                    3,
                )
            }
            InputKind::Vendors => {
                let vendors = selected.into_iter().chain(selected_values(rule, "wallets"));
                let service = page.catalog.services().first();
                let example = service.map_or("lab-weather", |service| service.slug.as_str());
                let hint = format!(
                    "One per line: a service’s slug such as {example}, or a wallet’s address. No other vendor is paid."
                );
                let lines: Vec<String> = vendors.map(str::to_owned).collect();
                inputs.text_area(field, legend, &hint, &lines, 4)
            }
            InputKind::Services(hint) => html! {
                (inputs.checkboxes(field, legend, hint, &box_options(service_choices(page, &selected), &selected)))
                (removed_service_warning(page, &selected))
            },
            InputKind::Categories => inputs.checkboxes(
                field,
                legend,
                "None chosen: in any category.",
                &category_options(&selected),
            ),
            InputKind::BlockedCategories => {
                let hint = "Payments in these categories are refused.";
                inputs.checkboxes(field, legend, hint, &category_options(&selected))
            }
            InputKind::Keys => {
                let own = page.agent.keys.iter().map(|key| key.id.to_string());
                let own: Vec<String> = own.collect();
                // Ended keys that the rule names.
                let ended = selected
                    .iter()
                    .map(|key| (*key).to_owned())
                    .filter(|key| !own.contains(key));
                let keys = own.iter().cloned().chain(ended).map(|key| (key.clone(), key));
                inputs.checkboxes(
                    field,
                    legend,
                    "None chosen: with any key.",
                    &box_options(keys, &selected),
                )
            }
        }
    }
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

/// The periods of windows that are not rolling, with their labels.
const PERIODS: [(&str, &str); 4] = [
    ("day", "calendar day"),
    ("week", "calendar week"),
    ("month", "calendar month"),
    (WindowPeriod::LIFETIME, "lifetime"),
];

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

/// Returns a number of seconds as a number of the largest unit that fits, and the unit's name in [`UNITS`].
fn count_and_unit(secs: u64) -> (u64, String) {
    let secs = u32::try_from(secs).unwrap_or(u32::MAX);
    let (count, unit) = largest_whole_unit(Duration::from_secs_u32(secs));
    (count, format!("{unit}s"))
}

fn action_inputs(inputs: &Inputs<'_>, input: &RuleInput, current: &str) -> Markup {
    let options = [
        (LimitAction::Ask.name(), "Ask a person"),
        (LimitAction::Block.name(), "Refuse"),
    ];
    inputs.radio_buttons(input.field, input.legend, &options, current)
}

/// Returns the texts of a list in the rule's JSON; empty if the rule has no such list.
fn selected_values<'a>(rule: &'a Value, json: &str) -> Vec<&'a str> {
    let list = rule.get(json).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns an option for each value and label.
fn box_options(choices: impl IntoIterator<Item = (String, String)>, selected: &[&str]) -> Vec<BoxOption> {
    let option = |(value, label): (String, String)| BoxOption {
        present: selected.contains(&value.as_str()),
        value,
        label,
    };
    choices.into_iter().map(option).collect()
}

fn category_options(selected: &[&str]) -> Vec<BoxOption> {
    let names = Category::ALL.iter().map(|category| category.name().to_owned());
    box_options(names.map(|name| (name.clone(), name)), selected)
}

/// Returns the enabled services, and services that are not enabled if the rule names them.
fn service_choices(page: &AgentPage<'_>, selected: &[&str]) -> Vec<(String, String)> {
    let enabled = page.services.iter().filter(|service| service.record.enabled);
    let enabled = enabled.filter_map(|service| page.catalog.find_by_id(service.record.service));
    let mut services: Vec<&Service> = enabled.collect();
    for named in selected.iter().filter_map(|slug| page.catalog.find_by_reference(slug)) {
        if services.iter().all(|service| service.id != named.id) {
            services.push(named);
        }
    }
    let choice = |service: &Service| (service.slug.to_string(), service.name.clone());
    services.into_iter().map(choice).collect()
}

fn removed_service_warning(page: &AgentPage<'_>, selected: &[&str]) -> Markup {
    let removed = selected
        .iter()
        .filter(|slug| page.catalog.find_by_reference(slug).is_none());
    let removed: Vec<&str> = removed.copied().collect();
    html! {
        @if !removed.is_empty() {
            p.warning { "No longer in the catalog, and removed when you save: " code { (removed.join(", ")) } "." }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ui::form::FormName;
    use purser_domain::{
        ApprovalRequired, AutomaticFreeze, Availability, BudgetLimit, CalendarPeriod, CategoryBlock, CountLimit,
        DuplicateGuard, Endpoint, KeyId, ListingHistory, MinimumInterval, NewPayee, Operation, OperationSlug,
        OperationUuid, PriceAboveUsual, RuleWindow, Schedule, SchedulePeriod, Service, ServiceId, ServiceSlug,
        TrustStatus, Url, Vendor, VendorAllowlist, ZoneName,
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
        let mut form = Form::parse(FormName::NewRule(RuleKindName::BudgetLimit), body.as_bytes());
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
                RuleKind::CategoryBlock(CategoryBlock {
                    categories: vec![Category::Ai, Category::Finance],
                }),
            ),
            (
                format!("kind=vendor_allowlist&vendors=lab-weather%0D%0A{wallet}%0Alab-weather"),
                RuleKind::VendorAllowlist(VendorAllowlist {
                    vendors: vec![
                        Vendor::Service(slug("lab-weather")),
                        Vendor::Wallet(wallet.parse().unwrap()),
                    ],
                }),
            ),
            (
                "kind=budget_limit&limit=20.5&window=7&window_unit=days".to_owned(),
                RuleKind::BudgetLimit(BudgetLimit {
                    limit: amount(20_500_000),
                    window: Duration::from_secs_u32(604_800).into(),
                }),
            ),
            (
                "kind=budget_limit&limit=1&window=744&window_unit=hours&per_payee=yes".to_owned(),
                RuleKind::BudgetLimit(BudgetLimit {
                    limit: amount(1_000_000),
                    window: RuleWindow {
                        per_payee: true,
                        ..MAX_BUDGET_WINDOW.into()
                    },
                }),
            ),
            (
                // The form always sends the number, which only a rolling window uses.
                "kind=budget_limit&limit=1&window=7&window_unit=month&window_zone=Europe%2FBerlin&action=ask&service=lab-weather&category=data&key=0f1e2d3c4b5a6978".to_owned(),
                RuleKind::BudgetLimit(BudgetLimit {
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
                }),
            ),
            (
                "kind=count_limit&count=3&window=7&window_unit=lifetime&window_zone=UTC&action=block".to_owned(),
                RuleKind::CountLimit(CountLimit {
                    count: 3,
                    window: RuleWindow {
                        services: None,
                        categories: None,
                        keys: None,
                        per_payee: false,
                        period: WindowPeriod::Lifetime,
                        action: LimitAction::Block,
                    },
                }),
            ),
            (
                "kind=approval_required&above=".to_owned(),
                RuleKind::ApprovalRequired(ApprovalRequired {
                    services: None,
                    categories: None,
                    above: None,
                }),
            ),
            (
                "kind=approval_required&above=2&service=lab-weather&category=ai".to_owned(),
                RuleKind::ApprovalRequired(ApprovalRequired {
                    services: Some(vec![slug("lab-weather")]),
                    categories: Some(vec![Category::Ai]),
                    above: Some(amount(2_000_000)),
                }),
            ),
            (
                "kind=count_limit&count=10&window=90&window_unit=minutes&service=lab-weather".to_owned(),
                RuleKind::CountLimit(CountLimit {
                    count: 10,
                    window: RuleWindow {
                        services: Some(vec![slug("lab-weather")]),
                        ..Duration::from_secs_u32(5_400).into()
                    },
                }),
            ),
            (
                "kind=minimum_interval&interval=30&interval_unit=seconds".to_owned(),
                RuleKind::MinimumInterval(MinimumInterval {
                    services: None,
                    interval: Duration::from_secs_u32(30),
                }),
            ),
            (
                "kind=duplicate_guard&within=31&within_unit=days&action=block".to_owned(),
                RuleKind::DuplicateGuard(DuplicateGuard {
                    services: None,
                    within: MAX_BUDGET_WINDOW,
                    action: LimitAction::Block,
                }),
            ),
            ("kind=new_payee".to_owned(), RuleKind::NewPayee(NewPayee { services: None })),
            (
                // The form always sends the number of prices, which only the median uses.
                "kind=price_above_usual&percent=20&over=catalog&of=5&action=ask".to_owned(),
                RuleKind::PriceAboveUsual(PriceAboveUsual {
                    services: None,
                    percent: 20,
                    over: UsualPrice::Catalog,
                    action: LimitAction::Ask,
                }),
            ),
            (
                "kind=price_above_usual&percent=20&over=median&of=5&action=ask".to_owned(),
                RuleKind::PriceAboveUsual(PriceAboveUsual {
                    services: None,
                    percent: 20,
                    over: UsualPrice::Median(5),
                    action: LimitAction::Ask,
                }),
            ),
            (
                "kind=anomaly_brake&times=10&least=10".to_owned(),
                RuleKind::AutomaticFreeze(AutomaticFreeze {
                    times: 10,
                    at_least: amount(10_000_000),
                }),
            ),
            (
                "kind=schedule&zone=Asia%2FTokyo&periods=Monday-friday+09:00-17:00%0D%0A%0D%0A+saturday+09:00-12:00"
                    .to_owned(),
                RuleKind::Schedule(Schedule { services: None,
                        zone: ZoneName::parse("Asia/Tokyo").unwrap(),
                        periods: ["monday-friday 09:00-17:00", "saturday 09:00-12:00"]
                            .map(|period| SchedulePeriod::parse(period).unwrap())
                            .to_vec(),
                    }),
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
                &["count", "window"],
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
