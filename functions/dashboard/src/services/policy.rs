//! The form of a spend policy: limits in dollars, operations and domains.

use crate::ui::form::{BoxOption, FieldOf, Form, Inputs, set_field};
use maud::{Markup, html};
use purser_domain::{Amount, OperationSlug, Service, SpendPolicy};
use serde_json::{Value, json};

/// The JSON fields of a policy, each with the form field and label.
pub(crate) const FIELDS: [FieldOf; 6] = [
    ("service_id", "service_id", "Service"),
    ("max_per_call_units", "max_per_call", "Limit per call"),
    ("max_per_day_units", "max_per_day", "Daily limit"),
    (
        "require_approval_above_units",
        "require_approval_above",
        "Approval threshold",
    ),
    ("enabled_operations", "operation", "Operations"),
    ("allowed_domains", "allowed_domains", "Allowed domains"),
];

/// Returns the form's policy as JSON. With `service` as `None`, the operations stay unchanged.
pub(crate) fn parse_policy_form(form: &mut Form, service: Option<&Service>) -> Value {
    let no_limit = SpendPolicy::permissive();
    let mut cap = |field, label, none| form.parse_cap(field, label, none).map(Amount::units);
    let mut body = json!({
        "max_per_call_units": cap("max_per_call", "Limit per call", no_limit.max_per_call),
        "max_per_day_units": cap("max_per_day", "Daily limit", no_limit.max_per_day),
        "require_approval_above_units":
            cap("require_approval_above", "Approval threshold", no_limit.require_approval_above),
    });
    set_field(
        &mut body,
        "allowed_domains",
        form.distinct_field_words("allowed_domains"),
    );
    if form.field_words("allowed_domains").next().is_none() {
        form.add_error("allowed_domains", "Allowed domains: enter at least one, or * for any.");
    }
    if service.is_some() {
        match form.field_text("operations") {
            "all" => set_field(&mut body, "enabled_operations", Value::Null),
            "some" if form.field_values("operation").next().is_some() => {
                set_field(&mut body, "enabled_operations", form.distinct_field_words("operation"));
            }
            "some" => form.add_error("operation", "Operations: choose at least one, or disable the service."),
            _ => form.add_error("operations", "Operations: choose all, or select some."),
        }
    }
    body
}

/// Renders the inputs for a policy. `service` is `None` until the user has selected a service.
pub(crate) fn policy_inputs(inputs: &Inputs<'_>, current: &SpendPolicy, service: Option<&Service>) -> Markup {
    html! {
        div.caps {
            (inputs.cap_input("max_per_call", "Limit per call", "no limit", "A call that costs more is refused.", current.max_per_call))
            (inputs.cap_input("max_per_day", "Daily limit", "no limit", "For any 24 hours, over all calls to this service.", current.max_per_day))
            (inputs.cap_input("require_approval_above", "Approval threshold", "never ask",
                "Calls that cost more wait for your approval.", current.require_approval_above))
        }
        @match service {
            Some(service) => (operation_inputs(inputs, current, service)),
            // The user can limit the operations after enabling the service.
            None => input type="hidden" name="operations" value="all";,
        }
        @if service.is_none_or(has_operation_with_target_url) {
            (inputs.text_area("allowed_domains", "Allowed domains",
                "For operations that fetch a page: one host per line. example.com covers its subdomains, *.example.com one level, * everything.",
                &allowed_domains(current), 2))
        } @else {
            @for domain in &current.allowed_domains { input type="hidden" name="allowed_domains" value=(domain); }
        }
    }
}

fn allowed_domains(policy: &SpendPolicy) -> Vec<String> {
    policy.allowed_domains.iter().map(ToString::to_string).collect()
}

/// Returns whether an operation of the service has a target URL, to which allowed domains apply.
fn has_operation_with_target_url(service: &Service) -> bool {
    let mut operations = service.operations.iter();
    operations.any(|operation| operation.fetches_target(service.category))
}

fn operation_inputs(inputs: &Inputs<'_>, current: &SpendPolicy, service: &Service) -> Markup {
    let chosen = current.enabled_operations.as_deref();
    let known = service.operations.iter().map(|operation| BoxOption {
        value: operation.slug.to_string(),
        label: format!("{} ({})", operation.label, operation.slug),
        present: chosen.is_none_or(|chosen| chosen.contains(&operation.slug)),
    });
    let options: Vec<BoxOption> = known.collect();
    let gone = chosen
        .unwrap_or_default()
        .iter()
        .filter(|slug| service.find_operation(slug).is_none());
    let gone: Vec<&str> = gone.map(OperationSlug::as_str).collect();
    html! {
        (inputs.radio_buttons("operations", "Operations", &[("all", "All, including future ones"), ("some", "Only these:")],
            if chosen.is_some() { "some" } else { "all" }))
        div.only-some {
            (inputs.checkboxes("operation", "Which operations", "Used only with “Only these”.", &options))
            @if !gone.is_empty() {
                p.warning { "No longer in the catalog, and removed when you save: " code { (gone.join(", ")) } "." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::form::tests::catalog;
    use crate::services::api::parse_service_update;
    use crate::ui::form::FormName;

    /// Applies the form to a permissive policy. Returns the new policy, or the names of the invalid fields.
    fn read(body: &str) -> Result<SpendPolicy, Vec<String>> {
        let mut form = Form::parse(FormName::Enable, body.as_bytes());
        let catalog = catalog();
        let service = catalog.find_by_reference("lab-weather");
        let body = parse_policy_form(&mut form, service);
        let edit = form.take_value_or_add_errors(parse_service_update(&body, service), &FIELDS);
        let problems: Vec<String> = form.errors().iter().map(|problem| problem.field.clone()).collect();
        assert_eq!(edit.is_some(), problems.is_empty(), "{body}");
        edit.map(|edit| SpendPolicy::permissive().apply(&edit.policy))
            .ok_or(problems)
    }

    #[test]
    fn all_policy_form_errors_are_reported_together() {
        let good = "max_per_call=0.5&max_per_day=20&require_approval_above=&require_approval_above_no_limit=yes\
                    &operations=some&operation=weather.current&operation=weather.history\
                    &allowed_domains=example.com%0D%0A*.example.org";
        let policy = read(good).unwrap();
        assert_eq!(policy.max_per_call.units(), 500_000);
        assert_eq!(policy.max_per_day.units(), 20_000_000);
        assert_eq!(
            policy.require_approval_above,
            SpendPolicy::permissive().require_approval_above
        );
        assert_eq!(policy.enabled_operations.unwrap().len(), 2);
        assert_eq!(policy.allowed_domains.len(), 2);

        let all = read("max_per_call=1&max_per_day=1&require_approval_above=1&operations=all&allowed_domains=*");
        assert_eq!(all.unwrap().enabled_operations, None);

        let wrong = "max_per_call=&max_per_day=1e3&require_approval_above=x&operations=some&allowed_domains=a/b";
        assert_eq!(
            read(wrong).unwrap_err(),
            [
                "max_per_call",
                "max_per_day",
                "require_approval_above",
                "operation",
                "allowed_domains"
            ]
        );
        assert_eq!(read("").unwrap_err().len(), 5);

        let stranger = good.replace("weather.history", "search.web");
        assert_eq!(read(&stranger).unwrap_err(), ["operation"]);
    }

    #[test]
    fn a_policy_form_keeps_the_operations_of_a_removed_service() {
        let body = "max_per_call=1&max_per_day=1&require_approval_above=1&allowed_domains=*&operations=all";
        let mut form = Form::parse(FormName::Enable, body.as_bytes());
        let body = parse_policy_form(&mut form, None);
        assert_eq!(
            parse_service_update(&body, None).unwrap().policy.enabled_operations,
            None
        );
    }
}
