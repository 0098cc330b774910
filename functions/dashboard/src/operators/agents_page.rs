//! An agent's page for operators: the owner, the freeze and the ownership transfer.

use crate::agents::owned::require_id;
use crate::operators::form::{ActMessages, OperatorForm};
use crate::operators::form_name::OperatorFormName;
use crate::operators::layout::{AGENTS, ConfirmedAct, FREEZES, agent_path, operator_page};
use crate::redirect::see_other;
use crate::sessions::session::OperatorSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::list::search_field;
use crate::ui::notice::PageMessage;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::{OperatorAct, Query, Reply};
use purser_domain::{
    Agent, AgentId, OperatorFreeze, OperatorReason, OwnershipOffer, Result, SettlementId, UserId,
    escape_hidden_characters,
};
use std::collections::HashMap;

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

/// Redirects a `GET` of a path that accepts only `POST`.
pub(crate) async fn redirect_to_operator_agent(Path(path): Path<HashMap<String, String>>) -> Reply {
    let id = require_id(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
    Ok(see_other(&agent_path(id)))
}

pub(crate) async fn submit_ownership_offer(request: OperatorForm) -> Reply {
    let agent = request.parse_path_parameter("agent", AgentId::parse)?;
    let mut form = request.parse_posted_form(OperatorFormName::Offer);
    let to = UserId::parse(form.field_text("to"));
    if to.is_none() {
        form.add_error("to", "New owner: enter the person’s ID, 64 hexadecimal digits.");
    }
    let reason = OperatorReason::parse(form.field_text("reason"));
    if reason.is_none() {
        form.add_error("reason", format!("Reason: {}.", OperatorReason::FORM));
    }
    let is_confirmed = form.require_checked("confirmed", "Compare the person’s ID and check the box.");
    let Some((to, reason)) = to.zip(reason).filter(|_| is_confirmed) else {
        return show_form_again(request, agent, form).await;
    };
    let action = OperatorAct::OfferAgent {
        agent_id: agent,
        to: to.to_string(),
        reason: reason.as_str().to_owned(),
    };
    let notices = ActMessages {
        done: PageMessage::AgentOffered,
        awaits_second_operator: PageMessage::OfferAwaitsSecond,
    };
    submit_agent_action(request, agent, form, action, notices).await
}

pub(crate) async fn submit_ownership_offer_withdrawal(request: OperatorForm) -> Reply {
    let agent = request.parse_path_parameter("agent", AgentId::parse)?;
    let mut form = request.parse_posted_form(OperatorFormName::WithdrawOffer);
    if !form.require_checked("confirmed", "Check the box.") {
        return show_form_again(request, agent, form).await;
    }
    let action = OperatorAct::WithdrawOffer { agent_id: agent };
    submit_agent_action(
        request,
        agent,
        form,
        action,
        ActMessages::for_single_operator(PageMessage::OfferWithdrawn),
    )
    .await
}

pub(crate) async fn submit_reconcile_request(request: OperatorForm) -> Reply {
    let agent = request.parse_path_parameter("agent", AgentId::parse)?;
    let mut form = request.parse_posted_form(OperatorFormName::Reconcile);
    let Some(settlement) = SettlementId::parse(form.field_text("settlement")) else {
        form.add_error("settlement", "Settlement: enter its ID, a UUID.");
        return show_form_again(request, agent, form).await;
    };
    let action = OperatorAct::Reconcile {
        agent_id: agent,
        settlement_id: settlement,
    };
    submit_agent_action(
        request,
        agent,
        form,
        action,
        ActMessages::for_single_operator(PageMessage::ReconcileRequested),
    )
    .await
}

async fn show_form_again(request: OperatorForm, agent: AgentId, form: Form) -> Reply {
    let page = async |people: &People, layout: Layout| render_agents_page(people, &layout, &agent.to_string()).await;
    request.show_form_again(form, page).await
}

async fn submit_agent_action(
    request: OperatorForm,
    agent: AgentId,
    form: Form,
    action: OperatorAct,
    messages: ActMessages,
) -> Reply {
    let page = async |people: &People, layout: Layout| render_agents_page(people, &layout, &agent.to_string()).await;
    request
        .submit_operator_action(form, action, messages, &agent_path(agent), page)
        .await
}

async fn render_agents_page(people: &People, layout: &Layout, query: &str) -> Result<Markup> {
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
    let path = format!("{AGENTS}/{}", agent.id);
    let inputs = layout.form_inputs(FormName::Operator(OperatorFormName::Offer));
    let waits = offer.filter(|offer| offer.awaits_second_operator());
    let content = html! {
        dl.facts-list.wide { div { dt { "Owner now" } dd { code.long { (agent.owner) } } } }
        (inputs.required_text_input("to", "ID of the new owner, from their sessions page", waits.map_or("", |offer| offer.to.as_str()), 64))
        (inputs.required_text_input("reason", "Reason, which the person sees", waits.map_or("", |offer| offer.reason.as_str()), OperatorReason::MAX))
    };
    let offering = ConfirmedAct {
        name: OperatorFormName::Offer,
        action: &format!("{path}/offer"),
        label: "Offer to another owner",
        confirms: "I have compared the person’s ID. Whoever accepts the agent decides about its money",
        content: &content,
    };
    let withdrawing = ConfirmedAct {
        name: OperatorFormName::WithdrawOffer,
        action: &format!("{path}/withdraw-offer"),
        label: "Withdraw the offer",
        confirms: "The agent stays with its owner",
        content: &html! {},
    };
    let reconciling = layout.form_inputs(FormName::Operator(OperatorFormName::Reconcile));
    html! {
        div.row-actions {
            (offering.render_confirmation_form(layout))
            @if offer.is_some() { (withdrawing.render_confirmation_form(layout)) }
            details.pop open[reconciling.has_posted_form()] {
                summary.button { "Check a settlement" }
                div.pop-body {
                    (layout.post_form(&format!("{path}/reconcile"), &html! {
                        (reconciling.required_text_input("settlement", "ID of the settlement", "", 36))
                        button.primary type="submit" { "Check with the chain" }
                    }))
                }
            }
        }
    }
}
