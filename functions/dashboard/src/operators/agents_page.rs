//! An agent's page for operators: the owner, the freeze and the ownership transfer.

use crate::operators::act_form::ActForm;
use crate::operators::acts::{OFFER, OperatorAct, RECONCILE, WITHDRAW_OFFER};
use crate::operators::layout::{AGENTS, FREEZES, operator_page};
use crate::sessions::session::OperatorSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::layout::Layout;
use crate::ui::list::search_field;
use axum::{http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Agent, AgentId, OperatorFreeze, OwnershipOffer, Result, escape_hidden_characters};

/// Shows the agent with the id in the query parameter `q`.
pub(crate) async fn show_operator_agents_page(
    people: PeopleState,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let searched = Query::without_blanks(&uri).parse_text("q").unwrap_or_default();
    Ok(render_agents_page(&people, &layout, &searched).await?.into_response())
}

pub(crate) async fn render_agents_page(people: &People, layout: &Layout, query: &str) -> Result<Markup> {
    let agent = match AgentId::parse(query.trim()) {
        Some(id) => people.ledger.read_agent_by_id(id).await?,
        None => None,
    };
    let found = match agent {
        Some(agent) => {
            let (offer, freeze) = tokio::try_join!(
                people.ledger.read_ownership_offer(agent.id),
                people.find_operator_freeze(&agent)
            )?;
            Some((agent, offer, freeze))
        }
        None => None,
    };
    let actions = people.internal.is_some();
    let how = html! {
        @if actions {
            "Offer an agent to another owner, or have one of its settlements checked with the chain."
        } @else {
            "Read-only. Operators offer an agent with " code { "PUT /internal/agents/{id}/handover" }
            ", and request a check of a settlement with " code { "POST /internal/agents/{id}/settlements/{settlement}/reconcile" } "."
        }
    };
    let content = html! {
        form.filters method="get" action=(AGENTS) role="search" aria-label="Filters" {
            (search_field("agents", "ID of the agent", query))
            button type="submit" { "Show" }
        }
        @match &found {
            Some((agent, offer, freeze)) => (agent_section(layout, agent, offer.as_ref(), freeze.as_ref(), actions)),
            None if query.is_empty() => p.empty { "Enter the ID of an agent, as its owner’s page, a receipt or the log shows it." },
            None => p.empty { "There is no agent with this ID." },
        }
    };
    Ok(operator_page(layout, "Agents", AGENTS, &how, &content))
}

fn agent_section(
    layout: &Layout,
    agent: &Agent,
    offer: Option<&OwnershipOffer>,
    freeze: Option<&OperatorFreeze>,
    has_actions: bool,
) -> Markup {
    html! {
        section.card aria-labelledby="agent-title" {
            h2 id="agent-title" { "Agent " code.long { (agent.id) } }
            dl.facts-list.wide {
                div { dt { "Owner" } dd { code.long { (agent.owner) } } }
                div { dt { "Frozen" } dd {
                    @match freeze {
                        Some(freeze) => { "by " (freeze.by) ": " q { (escape_hidden_characters(freeze.reason.as_str())) } },
                        None => "not by an operator",
                    }
                    " · " a href=(FREEZES) { "Freezes" }
                } }
                @if let Some(offer) = offer {
                    div { dt { "Offered to" } dd { code.long { (offer.to) } } }
                    div { dt { "By" } dd { (offer.by) ", " (relative_and_exact_time(offer.at, layout.now)) } }
                    div { dt { "Why" } dd { q { (escape_hidden_characters(offer.reason.as_str())) } } }
                    div { dt { "Can be accepted" } dd {
                        @if offer.awaits_second_operator() { "once another operator makes the same offer" }
                        @else if layout.now < offer.ends_at { "until " (relative_and_exact_time(offer.ends_at, layout.now)) }
                        @else { "no longer: it ended " (relative_and_exact_time(offer.ends_at, layout.now)) }
                    } }
                }
            }
            @if has_actions { (agent_forms(layout, agent, offer)) }
        }
    }
}

fn agent_forms(layout: &Layout, agent: &Agent, offer: Option<&OwnershipOffer>) -> Markup {
    let path = |act: &OperatorAct| format!("{AGENTS}/{}/{}", agent.id, act.name);
    let waits = offer.filter(|offer| offer.awaits_second_operator());
    let offering = ActForm {
        values: &[
            ("to", waits.map_or("", |offer| offer.to.as_str())),
            ("reason", waits.map_or("", |offer| offer.reason.as_str())),
        ],
        content: html! { dl.facts-list.wide { div { dt { "Owner now" } dd { code.long { (agent.owner) } } } } },
        ..ActForm::new(&OFFER, path(&OFFER))
    };
    html! {
        div.row-actions {
            (offering.render(layout))
            @if offer.is_some() { (ActForm::new(&WITHDRAW_OFFER, path(&WITHDRAW_OFFER)).render(layout)) }
            (ActForm::new(&RECONCILE, path(&RECONCILE)).render(layout))
        }
    }
}
