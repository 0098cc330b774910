//! The form of a spend policy: caps in dollars, which operations, which domains.

use crate::ui::form::{BoxOption, Form, Inputs};
use maud::{Markup, html};
use purser_domain::{DomainPattern, OperationScope, OperationSlug, PolicyEdit, Service, SpendPolicy};

/// Reads a policy; `None` leaves at least one problem. Without a `service` (it has left the catalog), the operations
/// stay as they were.
pub(crate) fn read_policy(form: &mut Form, service: Option<&Service>) -> Option<PolicyEdit> {
    let no_limit = SpendPolicy::permissive();
    let max_per_call = form.cap("max_per_call", "Cap per call", no_limit.max_per_call);
    let max_per_day = form.cap("max_per_day", "Cap per day", no_limit.max_per_day);
    let require_approval_above = form.cap(
        "require_approval_above",
        "Ask a person above",
        no_limit.require_approval_above,
    );
    let operations = match service {
        Some(_) => read_operations(form).map(Some),
        None => Some(None),
    };
    let allowed_domains = read_domains(form);
    let edit = PolicyEdit {
        max_per_call: Some(max_per_call?),
        max_per_day: Some(max_per_day?),
        require_approval_above: Some(require_approval_above?),
        enabled_operations: operations?,
        allowed_domains: Some(allowed_domains?),
    };
    let fields = [
        ("enabled_operations", "operation", "Operations"),
        ("allowed_domains", "allowed_domains", "Allowed domains"),
    ];
    form.refuse(&edit.problems(service), &fields);
    (!form.is_wrong()).then_some(edit)
}

fn read_operations(form: &mut Form) -> Option<OperationScope> {
    match form.text("operations") {
        "all" => return Some(OperationScope::All),
        "some" => {}
        _ => {
            form.wrong("operations", "Operations: choose all, or select some.");
            return None;
        }
    }
    let slugs: Option<Vec<OperationSlug>> = form.all("operation").map(OperationSlug::parse).collect();
    let slugs = slugs.filter(|slugs| !slugs.is_empty());
    if slugs.is_none() {
        form.wrong("operation", "Operations: choose at least one, or disable the service.");
    }
    slugs.map(OperationScope::Only)
}

fn read_domains(form: &mut Form) -> Option<Vec<DomainPattern>> {
    let mut domains = Vec::new();
    let mut wrong = Vec::new();
    for word in form.words("allowed_domains") {
        match DomainPattern::parse(word) {
            Ok(pattern) if domains.contains(&pattern) => {}
            Ok(pattern) => domains.push(pattern),
            Err(problem) => wrong.push(format!("Allowed domains: “{word}” {problem}.")),
        }
    }
    if wrong.is_empty() && domains.is_empty() {
        wrong.push("Allowed domains: enter at least one, or * for any.".to_owned());
    }
    let is_good = wrong.is_empty();
    for message in wrong {
        form.wrong("allowed_domains", message);
    }
    is_good.then_some(domains)
}

/// The inputs of a policy of `service`, which is `None` before it has been chosen.
pub(crate) fn policy_inputs(inputs: &Inputs<'_>, present: &SpendPolicy, service: Option<&Service>) -> Markup {
    html! {
        div.caps {
            (inputs.cap("max_per_call", "Cap per call", "no limit", "A call that costs more is refused.", present.max_per_call))
            (inputs.cap("max_per_day", "Cap per day", "no limit", "For any 24 hours, over all calls to this service.", present.max_per_day))
            (inputs.cap("require_approval_above", "Ask a person above", "never ask",
                "Calls that cost more wait for your approval.", present.require_approval_above))
        }
        @match service {
            Some(service) => (operation_inputs(inputs, present, service)),
            // The service is still to be chosen; the operations can be limited once it is enabled.
            None => input type="hidden" name="operations" value="all";,
        }
        @if service.is_none_or(fetches) {
            (inputs.area("allowed_domains", "Allowed domains",
                "For operations that fetch a page: one host per line. example.com covers its subdomains, *.example.com one level, * everything.",
                &domains(present), 2))
        } @else {
            @for domain in &present.allowed_domains { input type="hidden" name="allowed_domains" value=(domain); }
        }
    }
}

fn domains(policy: &SpendPolicy) -> Vec<String> {
    policy.allowed_domains.iter().map(ToString::to_string).collect()
}

/// Whether any operation has a target URL that the domains limit.
fn fetches(service: &Service) -> bool {
    let mut operations = service.operations.iter();
    operations.any(|operation| operation.fetches_target(service.category))
}

fn operation_inputs(inputs: &Inputs<'_>, present: &SpendPolicy, service: &Service) -> Markup {
    let chosen = present.enabled_operations.as_deref();
    let known = service.operations.iter().map(|operation| BoxOption {
        value: operation.slug.to_string(),
        label: format!("{} ({})", operation.label, operation.slug),
        present: chosen.is_none_or(|chosen| chosen.contains(&operation.slug)),
    });
    let options: Vec<BoxOption> = known.collect();
    let gone = chosen
        .unwrap_or_default()
        .iter()
        .filter(|slug| service.operation(slug).is_none());
    let gone: Vec<&str> = gone.map(OperationSlug::as_str).collect();
    html! {
        (inputs.radios("operations", "Operations", &[("all", "All, including future ones"), ("some", "Only these:")],
            if chosen.is_some() { "some" } else { "all" }))
        div.only-some {
            (inputs.boxes("operation", "Which operations", "Used only with “Only these”.", &options))
            @if !gone.is_empty() {
                p.warning { "No longer in the catalog, and removed when you save: " code { (gone.join(", ")) } "." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::section::tests::catalog;
    use crate::ui::form::FormName;

    /// The policy that the form makes of the permissive one, for `lab-weather`, or the names of the wrong fields.
    fn read(body: &str) -> Result<SpendPolicy, Vec<String>> {
        let mut form = Form::of(FormName::Enable, body.as_bytes());
        let edit = read_policy(&mut form, catalog().by_reference("lab-weather"));
        let problems: Vec<String> = form.problems().iter().map(|problem| problem.field.clone()).collect();
        assert_eq!(edit.is_some(), problems.is_empty(), "{body}");
        edit.map(|edit| SpendPolicy::permissive().edited(&edit)).ok_or(problems)
    }

    #[test]
    fn a_policy_is_read_whole_or_every_problem_is_told() {
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
    fn the_operations_of_a_service_that_has_left_the_catalog_stay_as_they_were() {
        let body = "max_per_call=1&max_per_day=1&require_approval_above=1&allowed_domains=*&operations=all";
        let mut form = Form::of(FormName::Enable, body.as_bytes());
        assert_eq!(read_policy(&mut form, None).unwrap().enabled_operations, None);
    }
}
