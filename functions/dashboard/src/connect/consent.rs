//! The form in which a user allows an OAuth client to act for an agent.

use crate::agents::listing::{AgentFilter, MAX_READ};
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::connect::operations::{Consent, ConsentAgent};
use crate::keys::section::{parse_key_scope, permission_options};
use crate::state::People;
use crate::ui::count::count_with_noun;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::{Layout, NavItem};
use maud::{Markup, html};
use purser_domain::{
    Agent, AgentId, AgentName, Amount, Catalog, ClientName, Permission, RedirectUri, Result, Timestamp, UserCode,
    escape_hidden_characters,
};
use purser_store::AgentOrder;

/// The maximum duration of a grant, in days.
const MAX_DAYS: u32 = 90;
const DEFAULT_DAYS: u64 = 30;
/// The default spending cap for 24 hours, in micro-USDC.
const DEFAULT_PER_DAY: u64 = 10_000_000;
/// The form value that selects a new agent.
const NEW: &str = "new";

pub(crate) struct AskingClient<'a> {
    /// The client's own name, which nobody has verified.
    pub(crate) name: &'a ClientName,
    pub(crate) permissions: &'a [Permission],
    pub(crate) target: ConsentTarget<'a>,
}

/// The receiver of the access: a client's redirect URI, or a device that shows a code.
pub(crate) enum ConsentTarget<'a> {
    Redirect(&'a RedirectUri),
    Device(&'a UserCode),
}

/// The user can allow fewer permissions than the client requested, but not more.
pub(crate) fn parse_consent(
    form: &mut Form,
    requested: &[Permission],
    catalog: &Catalog,
    now: Timestamp,
) -> Option<Consent> {
    let agent = match form.field_text("agent") {
        NEW => form.parse_agent_name().map(ConsentAgent::New),
        agent => AgentId::parse(agent).map(ConsentAgent::Existing),
    };
    if agent.is_none() && !form.has_errors() {
        form.add_error("agent", "Agent: choose one.");
    }
    let per_day = form.parse_dollars("per_day", "At most");
    let days = form.parse_number("expires_days", "Days", 1, MAX_DAYS);
    let scope = days.and_then(|_| parse_key_scope(form, catalog, now));
    if let Some(scope) = &scope
        && !scope
            .permissions()
            .iter()
            .all(|permission| requested.contains(permission))
    {
        form.add_error("may", "It may: the application did not ask for this.");
    }
    let consent = Consent {
        agent: agent?,
        scope: scope?,
        per_day: per_day?,
    };
    (!form.has_errors()).then_some(consent)
}

/// Renders the consent page. The form is posted to `action`.
pub(crate) async fn load_consent_page(
    people: &People,
    user: &Caller,
    layout: &Layout,
    client: &AskingClient<'_>,
    action: &str,
) -> Result<Markup> {
    let order = AgentOrder::NewestFirst;
    let agents = people
        .list_agents(user, &AgentFilter::default(), order, None, MAX_READ)
        .await?;
    Ok(render_consent_page(layout, client, action, &agents.items))
}

fn render_consent_page(layout: &Layout, client: &AskingClient<'_>, action: &str, agents: &[OwnedAgent]) -> Markup {
    let name = escape_hidden_characters(client.name.as_str());
    layout.html_page(
        "Allow access",
        NavItem::Elsewhere,
        &html! {
            h1 { "Allow access to one of your agents?" }
            section.card {
                p { "An application that calls itself " strong { "“" (name) "”" } " wants to act for one of your agents." }
                (target_text(&client.target))
                p.warning {
                    strong { "Purser has not verified the name." } " Anyone can choose any name. "
                    "If you did not just start this yourself, deny it."
                }
            }
            section.card { (layout.post_form(action, &consent_form(layout, client, agents))) }
        },
    )
}

/// Names the host of a redirect URI instead of the client, because the code is sent only to this host.
fn target_text(target: &ConsentTarget<'_>) -> Markup {
    html! {
        @match target {
            ConsentTarget::Device(code) => {
                p { "The access goes to the device that shows this code:" }
                p.total { code { (code) } }
                p { "Compare the code with the one on your own device." }
            }
            ConsentTarget::Redirect(uri) => {
                p { "The access goes to:" }
                p.total { code { (uri.origin()) } }
                @if is_local_program_origin(uri.origin().as_str()) { p { "This is a program on the computer on which you see this page." } }
            }
        }
    }
}

/// Returns whether the origin is a loopback address or a private-use scheme.
fn is_local_program_origin(origin: &str) -> bool {
    matches!(origin, "127.0.0.1" | "[::1]" | "localhost") || origin.ends_with(':')
}

fn consent_form(layout: &Layout, client: &AskingClient<'_>, agents: &[OwnedAgent]) -> Markup {
    let inputs = layout.form_inputs(FormName::Consent);
    let agents = agents.iter().map(OwnedAgent::agent);
    let option = |agent: &Agent| (agent.id.to_string(), escape_hidden_characters(&agent.name));
    let mut options: Vec<(String, String)> = agents.map(option).collect();
    options.push((NEW.to_owned(), "A new agent with safe limits".to_owned()));
    let first = options.first().map_or_else(String::new, |(id, _)| id.clone());
    let name: String = client.name.as_str().chars().take(AgentName::MAX).collect();
    let mut permissions = permission_options();
    permissions.retain(|option| client.permissions.iter().any(|may| may.name() == option.value));
    html! {
        (inputs.drop_down("agent", "It acts for", &options, &first))
        (inputs.optional_text_input("name", "Name of the new agent", &name, AgentName::MAX))
        p.hint { "Safe limits are $1 a call and $20 a day, and the agent asks before it pays anyone new." }
        (inputs.checkboxes("may", "It may", "The agent’s own limits always apply.", &permissions))
        (inputs.dollars_input("per_day", "It may spend in 24 hours at most", "Only payments of this application count.", Amount::from_units(DEFAULT_PER_DAY)))
        (inputs.text_area("services", "Services", "One slug per line, as the catalog shows them. Empty: all services of the agent.", &[], 2))
        (inputs.number_input("expires_days", "Days until the access ends", DEFAULT_DAYS))
        p.hint { "At most " (count_with_noun(MAX_DAYS, "day")) ". You can revoke the access at any time on the agent’s page." }
        div.row-actions {
            button.primary type="submit" name="decision" value="allow" { "Allow" }
            button type="submit" name="decision" value="deny" formnovalidate { "Deny" }
        }
    }
}
