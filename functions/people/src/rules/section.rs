//! The rules on an agent's page: four kinds, each shown as a sentence and edited in place.

use crate::agents::contents::AgentPage;
use crate::history;
use crate::rules::api::parse_rule;
use crate::rules::operations::{CheckedRule, RuleUsage};
use crate::ui::bar::bar;
use crate::ui::form::{BoxOption, FieldOf, Form, FormName, Inputs, RuleForm, set};
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::spent;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{Amount, Catalog, Category, Duration, RuleKind, Service, ServiceSlug, Vendor};
use serde_json::json;

/// The members of a rule's body, each with its form field and label.
const FIELDS: [FieldOf; 7] = [
    ("categories", "category", "Categories"),
    ("limit_units", "limit", "Budget"),
    ("window_seconds", "window", "Within"),
    ("above_units", "above", "Above"),
    ("services", "service", "Services"),
    ("wallets", "vendors", "Wallets"),
    ("", "vendors", "Vendors"),
];

/// Parses a rule; if it returns `None`, the form has at least one problem.
pub(crate) fn read_rule(form: &mut Form, catalog: &Catalog) -> Option<CheckedRule> {
    let Some(kind) = RuleForm::from_name(form.text("kind")) else {
        form.wrong("", "The form does not name a kind of rule. Reload the page.");
        return None;
    };
    let mut fields = FIELDS;
    let mut body = match kind {
        RuleForm::CategoryBlock => json!({"categories": form.distinct_words("category")}),
        RuleForm::VendorAllowlist => {
            fields[4] = ("services", "vendors", "Services");
            let words = form.distinct_words("vendors");
            let (wallets, services): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with("0x"));
            json!({"services": services, "wallets": wallets})
        }
        RuleForm::BudgetLimit => {
            let (limit, window) = (form.dollars("limit", "Budget"), read_window(form));
            json!({"limit_units": limit.map(Amount::units), "window_seconds": window.map(Duration::secs)})
        }
        RuleForm::ApprovalRequired => {
            let above = match form.text("above") {
                "" => None,
                _ => form.dollars("above", "Above"),
            };
            let chosen = |field| Some(form.distinct_words(field)).filter(|chosen| !chosen.is_empty());
            json!({"services": chosen("service"), "categories": chosen("category"), "above_units": above.map(Amount::units)})
        }
    };
    set(&mut body, "kind", kind.name());
    form.parsed(parse_rule(&body, catalog), &fields)
}

fn read_window(form: &mut Form) -> Option<Duration> {
    let (unit, most) = match form.text("window_unit") {
        "hours" => (3_600, 744),
        "days" => (86_400, 31),
        _ => {
            form.wrong("window_unit", "Within: choose hours or days.");
            return None;
        }
    };
    let count = form.number("window", "Within", 1, most)?;
    count.checked_mul(unit).map(Duration::from_secs_u32)
}

pub(crate) fn section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    html! {
        section id="rules" aria-labelledby="rules-title" {
            div.section-head {
                h2 id="rules-title" { "Rules " span.muted { "over all services" } }
                a href=(history::page::path(page.agent.id, None)) { "History" }
            }
            @if page.rules.is_empty() {
                p.empty { "No rules. Add a rule for limits that apply to all services." }
            }
            ul.panels { @for usage in &page.rules { (rule_item(layout, page, usage, path)) } }
            div.adders { @for kind in RuleForm::ALL { (adder(layout, page, kind, path)) } }
        }
    }
}

const fn form_of(kind: &RuleKind) -> RuleForm {
    match kind {
        RuleKind::CategoryBlock { .. } => RuleForm::CategoryBlock,
        RuleKind::VendorAllowlist { .. } => RuleForm::VendorAllowlist,
        RuleKind::BudgetLimit { .. } => RuleForm::BudgetLimit,
        RuleKind::ApprovalRequired { .. } => RuleForm::ApprovalRequired,
    }
}

const fn title(kind: RuleForm) -> &'static str {
    match kind {
        RuleForm::CategoryBlock => "Block categories",
        RuleForm::VendorAllowlist => "Allow only some vendors",
        RuleForm::BudgetLimit => "Budget",
        RuleForm::ApprovalRequired => "Ask a person",
    }
}

fn rule_item(layout: &Layout, page: &AgentPage<'_>, usage: &RuleUsage, path: &str) -> Markup {
    let rule = &usage.rule;
    let inputs = layout.inputs(FormName::Rule(rule.id));
    let kind = form_of(&rule.kind);
    html! {
        li.panel {
            details id=(format!("rule-{}", rule.id)) open[inputs.is_typed()] {
                summary {
                    span.panel-name { span.chip { (title(kind)) } }
                    span.limits { span { (phrases::rule(&rule.kind, page.catalog)) } }
                    @if let (RuleKind::BudgetLimit { limit, .. }, Some(used)) = (&rule.kind, usage.used) {
                        span.panel-spend {
                            (bar(used.amount, Amount::ZERO, *limit))
                            span.figures { (spent(used)) " used" }
                        }
                    }
                    span.edit aria-hidden="true" { "Edit" }
                }
                div.unfolded {
                    (layout.form(&format!("{path}/rules/{}", rule.id), &html! {
                        (version_input(page.agent.version))
                        input type="hidden" name="kind" value=(kind.name());
                        (rule_inputs(&inputs, page, kind, Some(&rule.kind)))
                        div.actions { button.primary type="submit" { "Save rule" } }
                    }))
                    (layout.button(&format!("{path}/rules/{}/remove", rule.id), &Button::danger(
                        "Remove rule",
                        "Remove this rule? It does not apply to the next payment.",
                    ).at(page.agent.version)))
                }
            }
        }
    }
}

fn adder(layout: &Layout, page: &AgentPage<'_>, kind: RuleForm, path: &str) -> Markup {
    let inputs = layout.inputs(FormName::NewRule(kind));
    html! {
        details.pop.wide open[inputs.is_typed()] {
            summary.button { "+ " (title(kind)) }
            div.pop-body {
                (layout.form(&format!("{path}/rules"), &html! {
                    (version_input(page.agent.version))
                    input type="hidden" name="kind" value=(kind.name());
                    (rule_inputs(&inputs, page, kind, None))
                    button.primary type="submit" { "Add rule" }
                }))
            }
        }
    }
}

fn rule_inputs(inputs: &Inputs<'_>, page: &AgentPage<'_>, kind: RuleForm, present: Option<&RuleKind>) -> Markup {
    match kind {
        RuleForm::CategoryBlock => {
            let blocked = match present {
                Some(RuleKind::CategoryBlock { categories }) => categories.as_slice(),
                _ => &[],
            };
            inputs.boxes(
                "category",
                "Buy nothing in",
                "Payments in these categories are refused.",
                &categories(blocked),
            )
        }
        RuleForm::VendorAllowlist => {
            let vendors = match present {
                Some(RuleKind::VendorAllowlist { vendors }) => vendors.as_slice(),
                _ => &[],
            };
            let lines: Vec<String> = vendors.iter().map(vendor).collect();
            let example = page
                .catalog
                .services()
                .first()
                .map_or("lab-weather", |service| service.slug.as_str());
            let hint = format!(
                "One per line: a service’s slug such as {example}, or a wallet’s address. No other vendor is paid."
            );
            inputs.area("vendors", "Pay only", &hint, &lines, 4)
        }
        RuleForm::BudgetLimit => budget_inputs(inputs, present),
        RuleForm::ApprovalRequired => approval_inputs(inputs, page, present),
    }
}

fn budget_inputs(inputs: &Inputs<'_>, present: Option<&RuleKind>) -> Markup {
    let (limit, window) = match present {
        Some(RuleKind::BudgetLimit { limit, window }) => (Some(*limit), *window),
        _ => (None, Duration::from_secs_u32(7 * 86_400)),
    };
    let hours = window.secs() / 3_600;
    let (count, unit) = if hours.is_multiple_of(24) {
        (hours / 24, "days")
    } else {
        (hours, "hours")
    };
    let units = ["hours", "days"].map(|unit| (unit.to_owned(), unit.to_owned()));
    html! {
        div.caps {
            (inputs.dollars("limit", "Budget", "Over all services together.", limit))
            (inputs.number("window", "Within any", count))
            (inputs.choice("window_unit", "Unit", &units, unit))
        }
    }
}

fn approval_inputs(inputs: &Inputs<'_>, page: &AgentPage<'_>, present: Option<&RuleKind>) -> Markup {
    let (services, chosen, above) = match present {
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
    let gone = services
        .iter()
        .map(ServiceSlug::as_str)
        .filter(|slug| page.catalog.by_reference(slug).is_none());
    let gone: Vec<&str> = gone.collect();
    html! {
        (inputs.dollars("above", "Payments above", "Empty: every payment, at any price.", above))
        (inputs.boxes("service", "Only to these services", "None chosen: to any service.", &service_options(page, services)))
        @if !gone.is_empty() {
            p.warning { "No longer in the catalog, and removed when you save: " code { (gone.join(", ")) } "." }
        }
        (inputs.boxes("category", "Only in these categories", "None chosen: in any category.", &categories(chosen)))
    }
}

fn categories(chosen: &[Category]) -> Vec<BoxOption> {
    let option = |category: &Category| BoxOption {
        value: category.name().to_owned(),
        label: category.name().to_owned(),
        present: chosen.contains(category),
    };
    Category::ALL.iter().map(option).collect()
}

/// The agent's enabled services, and the other services that the rule names.
fn service_options(page: &AgentPage<'_>, chosen: &[ServiceSlug]) -> Vec<BoxOption> {
    let own = page.services.iter().filter(|governed| governed.record.enabled);
    let own = own.filter_map(|governed| page.catalog.by_id(governed.record.service));
    let mut services: Vec<&Service> = own.collect();
    for named in chosen
        .iter()
        .filter_map(|slug| page.catalog.by_reference(slug.as_str()))
    {
        if services.iter().all(|service| service.id != named.id) {
            services.push(named);
        }
    }
    let option = |service: &Service| BoxOption {
        value: service.slug.to_string(),
        label: service.name.clone(),
        present: chosen.contains(&service.slug),
    };
    services.into_iter().map(option).collect()
}

fn vendor(vendor: &Vendor) -> String {
    match vendor {
        Vendor::Service(slug) => slug.to_string(),
        Vendor::Wallet(wallet) => wallet.to_checksum(None),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use purser_domain::{
        Availability, BUDGET_WINDOW_MAX, Endpoint, ListingHistory, Operation, OperationSlug, OperationUuid, Service,
        ServiceId, TrustStatus, Url,
    };
    use uuid::Uuid;

    /// Two services, with these operations.
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
            params: serde_json::Value::Null,
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
        let mut form = Form::of(FormName::NewRule(RuleForm::BudgetLimit), body.as_bytes());
        let rule = read_rule(&mut form, &catalog());
        let problems: Vec<String> = form.problems().iter().map(|problem| problem.field.clone()).collect();
        assert_eq!(rule.is_some(), problems.is_empty(), "{body}");
        rule.map(|rule| rule.kind().clone()).ok_or(problems)
    }

    #[test]
    fn the_four_kinds_are_read() {
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
                    window: Duration::from_secs_u32(604_800),
                },
            ),
            (
                "kind=budget_limit&limit=1&window=744&window_unit=hours".to_owned(),
                RuleKind::BudgetLimit {
                    limit: amount(1_000_000),
                    window: BUDGET_WINDOW_MAX,
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
        ];
        for (body, rule) in rows {
            assert_eq!(read(&body), Ok(rule), "{body}");
        }
    }

    #[test]
    fn all_rule_form_problems_are_reported_together() {
        let rows: [(&str, &[&str]); 10] = [
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
        ];
        for (body, fields) in rows {
            assert_eq!(read(body).unwrap_err(), fields, "{body}");
        }
    }
}
