//! The form with a webhook's settings: URL, event kinds and agents.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::state::People;
use crate::ui::form::{BoxOption, FieldOf, Form, Inputs, set_field};
use crate::webhooks::api::parse_webhook_settings;
use maud::{Markup, html};
use purser_domain::{
    AgentId, EventKind, Result, WebhookContentType, WebhookSettings, WebhookUrl, escape_hidden_characters,
};
use serde_json::json;
use std::collections::BTreeSet;

/// The JSON fields of a webhook, each with the form field and label.
pub(crate) const FIELDS: [FieldOf; 5] = [
    ("url", "url", "URL"),
    ("description", "description", "Description"),
    ("kinds", "kind", "Events"),
    ("agents", "agent", "Agents"),
    ("content_type", "content_type", "Content type"),
];

/// Each line is an agent's name or id. A name that is not unique is a validation error.
pub(crate) async fn parse_selected_agent_ids(people: &People, user: &Caller, form: &mut Form) -> Result<Vec<String>> {
    if form.field_text("agents") != "some" {
        return Ok(Vec::new());
    }
    let lines: Vec<String> = form
        .field_values("agent")
        .flat_map(str::lines)
        .map(str::to_owned)
        .collect();
    let (mut ids, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        // The page renders a selected agent as id and name, so a line with an id needs no search by name.
        let of_line: Vec<AgentId> = line.split([' ', ',']).filter_map(AgentId::parse).collect();
        if !of_line.is_empty() {
            ids.extend(of_line);
            continue;
        }
        match people.find_agents_by_name(user, line).await?.as_slice() {
            [owned] => {
                ids.insert(owned.agent().id);
            }
            [] => wrong.push(format!(
                "Agents: none of your newest agents is named “{line}”. Enter its ID."
            )),
            _ => wrong.push(format!("Agents: several are named like “{line}”. Enter the ID of one.")),
        }
    }
    for error in wrong {
        form.add_error("agent", error);
    }
    Ok(ids.iter().map(ToString::to_string).collect())
}

/// If the result is `None`, the form has at least one validation error.
pub(crate) fn parse_settings(form: &mut Form, agents: &[String], enabled: bool) -> Option<WebhookSettings> {
    let description = Some(form.field_text("description")).filter(|text| !text.is_empty());
    let mut body = json!({"url": form.field_text("url"), "description": description, "enabled": enabled});
    if !form.field_text("content_type").is_empty() {
        set_field(&mut body, "content_type", form.field_text("content_type"));
    }
    for (name, field, label) in [("kinds", "kind", "Events"), ("agents", "agent", "Agents")] {
        // If no radio button is selected, the form is invalid. It does not select all agents or events.
        match form.field_text(name) {
            "all" => {}
            "some" if field == "agent" && !agents.is_empty() => set_field(&mut body, name, agents),
            "some" if field == "kind" && form.field_words(field).next().is_some() => {
                set_field(&mut body, name, form.distinct_field_words(field));
            }
            // `parse_selected_agent_ids` has recorded the validation errors of invalid lines.
            "some" if form.field_values(field).next().is_some() => {}
            "some" => form.add_error(field, format!("{label}: choose at least one.")),
            _ => form.add_error(name, format!("{label}: choose all, or select some.")),
        }
    }
    form.take_value_or_add_errors(parse_webhook_settings(&body), &FIELDS)
}

/// `agents` contains the records of the selected agents that belong to the user.
pub(crate) fn settings_inputs(inputs: &Inputs<'_>, current: Option<&WebhookSettings>, agents: &[OwnedAgent]) -> Markup {
    let kinds = current.and_then(|terms| terms.kinds.as_ref());
    let chosen = current.and_then(|terms| terms.agents.as_ref());
    let scope = |is_some: bool| if is_some { "some" } else { "all" };
    let options: Vec<BoxOption> = EventKind::ALL
        .iter()
        .filter(|kind| kind.is_for_webhooks())
        .map(|kind| BoxOption {
            value: kind.name().to_owned(),
            label: kind.label().to_owned(),
            present: kinds.is_some_and(|kinds| kinds.contains(kind)),
        })
        .collect();
    html! {
        (inputs.required_text_input("url", "URL", &current.map(|terms| terms.url.to_string()).unwrap_or_default(), WebhookUrl::MAX))
        p.hint { "An HTTPS URL on the public internet." }
        (inputs.optional_text_input("description", "Description",
            current.and_then(|terms| terms.description.as_deref()).unwrap_or_default(), 200))
        (inputs.radio_buttons("content_type", "Content type", &[
            (WebhookContentType::CloudEvents.name(), "application/cloudevents+json, for CloudEvents libraries"),
            (WebhookContentType::Json.name(), "application/json, for frameworks that read no other"),
        ], current.map_or(WebhookContentType::CloudEvents, |terms| terms.content_type).name()))
        (inputs.radio_buttons("kinds", "Events", &[("all", "All, including future types"), ("some", "Only these:")],
            scope(kinds.is_some())))
        div.some-kinds { (inputs.checkboxes("kind", "Which events", "Used only with “Only these”.", &options)) }
        (inputs.radio_buttons("agents", "Agents", &[("all", "All, including future ones"), ("some", "Only these:")],
            scope(chosen.is_some())))
        div.some-agents {
            (inputs.text_area("agent", "Which agents", "One name or ID per line. Used only with “Only these”.", &selected_agent_lines(chosen, agents), 3))
        }
    }
}

/// Formats each selected agent as an id, with the name if the agent is in `agents`.
fn selected_agent_lines(selected: Option<&BTreeSet<AgentId>>, agents: &[OwnedAgent]) -> Vec<String> {
    let line = |id: &AgentId| match agents.iter().map(OwnedAgent::agent).find(|agent| agent.id == *id) {
        Some(agent) => format!("{id} {}", escape_hidden_characters(&agent.name)),
        None => id.to_string(),
    };
    selected.into_iter().flatten().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::form::FormName;

    /// Returns the settings, or the names of the invalid fields.
    fn read(body: &str) -> Result<WebhookSettings, Vec<String>> {
        let mut form = Form::parse(FormName::NewWebhook, body.as_bytes());
        let agents: Vec<String> = form
            .distinct_field_words("agent")
            .into_iter()
            .map(str::to_owned)
            .collect();
        let agents = if form.field_text("agents") == "some" {
            agents
        } else {
            Vec::new()
        };
        let terms = parse_settings(&mut form, &agents, true);
        let problems: Vec<String> = form.errors().iter().map(|problem| problem.field.clone()).collect();
        assert_eq!(terms.is_some(), problems.is_empty(), "{body}");
        terms.ok_or(problems)
    }

    /// The test enters ids of agents, one on each line.
    #[test]
    fn event_checkboxes_are_ignored_when_all_events_are_selected() {
        let agent = "00000000-0000-0000-0000-000000000001";
        let boxes = format!("kind=purser.approval.asked.v1&kind=purser.agent.frozen.v1&agent={agent}");
        let url = "url=https%3A%2F%2Fhooks.example%2Fx";
        let all = read(&format!("{url}&description=&kinds=all&agents=all&{boxes}")).unwrap();
        assert_eq!((all.kinds, all.agents, all.description), (None, None, None));
        let some = read(&format!("{url}&description=+mine+&kinds=some&agents=some&{boxes}")).unwrap();
        assert_eq!(
            (some.kinds, some.agents, some.description),
            (
                Some([EventKind::ApprovalAsked, EventKind::AgentFrozen].into()),
                Some([AgentId::parse(agent).unwrap()].into()),
                Some("mine".to_owned())
            )
        );
        let typed = format!(
            "{url}&kinds=all&agents=some&agent={agent}%0D%0A{}",
            agent.replace('1', "2")
        );
        assert_eq!(read(&typed).unwrap().agents.unwrap().len(), 2);
    }

    #[test]
    fn selecting_no_events_is_an_error() {
        assert_eq!(read("").unwrap_err(), ["kinds", "agents", "url"]);
        let url = "url=https%3A%2F%2Fhooks.example%2Fx";
        assert_eq!(
            read(&format!("{url}&kinds=some&agents=some")).unwrap_err(),
            ["kind", "agent"]
        );
        let unknown = format!("{url}&kinds=some&kind=x&agents=some&agent=x&description=a%00b");
        assert_eq!(read(&unknown).unwrap_err(), ["agent", "description", "kind"]);
    }
}
