//! An agent's page for operators: its owner, its freeze, its ownership transfer offer, and the forms that offer the
//! agent, withdraw the offer and request a reconciliation. The page shows nothing else about the agent.

use crate::agents::owned::parse_id;
use crate::operators::form::{Notices, OperatorForm};
use crate::operators::form_name::OperatorFormName;
use crate::operators::layout::{AGENTS, ConfirmedAct, FREEZES, agent_path, page};
use crate::redirect::see_other;
use crate::sessions::session::OperatorSession;
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::list::search_field;
use crate::ui::notice::Notice;
use axum::{
    extract::{Path, State},
    http::Uri,
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{OperatorAct, Query, Reply};
use purser_domain::{
    Agent, AgentId, Handover, OperatorFreeze, OperatorReason, PersonId, Result, SettlementId, visible,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Shows `GET /dashboard/operator/agents`: the agent with the id in `q`.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    let searched = Query::without_blanks(&uri).text("q").unwrap_or_default();
    Ok(render(&people, &layout, &searched).await?.into_response())
}

/// Redirects a `GET` for a form's path to the agent's page.
pub(crate) async fn back(Path(path): Path<HashMap<String, String>>) -> Reply {
    let id = parse_id(path.get("agent").and_then(|agent| AgentId::parse(agent)))?;
    Ok(see_other(&agent_path(id)))
}

/// Handles `POST …/{agent}/offer`: offers the agent to a new owner.
pub(crate) async fn offer(sent: OperatorForm) -> Reply {
    let agent = sent.parse_parameter("agent", AgentId::parse)?;
    let mut form = sent.form(OperatorFormName::Offer);
    let to = PersonId::parse(form.text("to"));
    if to.is_none() {
        form.wrong("to", "New owner: enter the person’s ID, 64 hexadecimal digits.");
    }
    let reason = OperatorReason::parse(form.text("reason"));
    if reason.is_none() {
        form.wrong("reason", format!("Reason: {}.", OperatorReason::FORM));
    }
    let is_confirmed = form.is_checked("confirmed", "Compare the person’s ID and check the box.");
    let Some((to, reason)) = to.zip(reason).filter(|_| is_confirmed) else {
        return again(sent, agent, form).await;
    };
    let act = OperatorAct::OfferAgent {
        agent_id: agent.uuid(),
        to: to.to_string(),
        reason: reason.as_str().to_owned(),
    };
    let notices = Notices {
        done: Notice::AgentOffered,
        awaits_second: Notice::OfferAwaitsSecond,
    };
    answer(sent, agent, form, act, notices).await
}

/// Handles `POST …/{agent}/withdraw-offer`: withdraws the agent's ownership transfer offer.
pub(crate) async fn withdraw_offer(sent: OperatorForm) -> Reply {
    let agent = sent.parse_parameter("agent", AgentId::parse)?;
    let mut form = sent.form(OperatorFormName::WithdrawOffer);
    if !form.is_checked("confirmed", "Check the box.") {
        return again(sent, agent, form).await;
    }
    let act = OperatorAct::WithdrawOffer { agent_id: agent.uuid() };
    answer(sent, agent, form, act, Notices::one(Notice::OfferWithdrawn)).await
}

/// Handles `POST …/{agent}/reconcile`: requests the reconciliation of a settlement.
pub(crate) async fn reconcile(sent: OperatorForm) -> Reply {
    let agent = sent.parse_parameter("agent", AgentId::parse)?;
    let mut form = sent.form(OperatorFormName::Reconcile);
    let Some(settlement) = SettlementId::parse(form.text("settlement")) else {
        form.wrong("settlement", "Settlement: enter its ID, a UUID.");
        return again(sent, agent, form).await;
    };
    let act = OperatorAct::Reconcile {
        agent_id: agent.uuid(),
        settlement_id: settlement.uuid(),
    };
    answer(sent, agent, form, act, Notices::one(Notice::ReconcileRequested)).await
}

async fn again(sent: OperatorForm, agent: AgentId, form: Form) -> Reply {
    let page = async |people: &People, layout: Layout| render(people, &layout, &agent.to_string()).await;
    sent.again(form, page).await
}

async fn answer(sent: OperatorForm, agent: AgentId, form: Form, act: OperatorAct, notices: Notices) -> Reply {
    let page = async |people: &People, layout: Layout| render(people, &layout, &agent.to_string()).await;
    sent.act(form, act, notices, &agent_path(agent), page).await
}

/// Renders the page in its current state.
async fn render(people: &People, layout: &Layout, searched: &str) -> Result<Markup> {
    let agent = match AgentId::parse(searched.trim()) {
        Some(id) => people.ledger.agent(id).await?,
        None => None,
    };
    let found = match agent {
        Some(agent) => {
            let (offer, freeze) = tokio::try_join!(people.ledger.offer_of(agent.id), people.freeze_of(&agent))?;
            Some((agent, offer, freeze))
        }
        None => None,
    };
    let acts = people.internal.is_some();
    let how = html! {
        @if acts {
            "Offer an agent to another owner, or have one of its settlements checked with the chain."
        } @else {
            "Read-only. Operators offer an agent with " code { "PUT /internal/agents/{id}/handover" }
            ", and request a check of a settlement with " code { "POST /internal/agents/{id}/settlements/{settlement}/reconcile" } "."
        }
    };
    let content = html! {
        form.filters method="get" action=(AGENTS) role="search" aria-label="Filters" {
            (search_field("agents", "ID of the agent", searched))
            button type="submit" { "Show" }
        }
        @match &found {
            Some((agent, offer, freeze)) => (section(layout, agent, offer.as_ref(), freeze.as_ref(), acts)),
            None if searched.is_empty() => p.empty { "Enter the ID of an agent, as its owner’s page, a receipt or the log shows it." },
            None => p.empty { "There is no agent with this ID." },
        }
    };
    Ok(page(layout, "Agents", AGENTS, &how, &content))
}

fn section(
    layout: &Layout,
    agent: &Agent,
    offer: Option<&Handover>,
    freeze: Option<&OperatorFreeze>,
    acts: bool,
) -> Markup {
    html! {
        section.card aria-labelledby="agent-title" {
            h2 id="agent-title" { "Agent " code.long { (agent.id) } }
            dl.facts-list.wide {
                div { dt { "Owner" } dd { code.long { (agent.owner) } } }
                div { dt { "Frozen" } dd {
                    @match freeze {
                        Some(freeze) => { "by " (freeze.by) ": " q { (visible(freeze.reason.as_str())) } },
                        None => "not by an operator",
                    }
                    " · " a href=(FREEZES) { "Freezes" }
                } }
                @if let Some(offer) = offer {
                    div { dt { "Offered to" } dd { code.long { (offer.to) } } }
                    div { dt { "By" } dd { (offer.by) ", " (both(offer.at, layout.now)) } }
                    div { dt { "Why" } dd { q { (visible(offer.reason.as_str())) } } }
                    div { dt { "Can be accepted" } dd {
                        @if offer.awaits_second() { "once another operator makes the same offer" }
                        @else if layout.now < offer.ends_at { "until " (both(offer.ends_at, layout.now)) }
                        @else { "no longer: it ended " (both(offer.ends_at, layout.now)) }
                    } }
                }
            }
            @if acts { (forms(layout, agent, offer)) }
        }
    }
}

fn forms(layout: &Layout, agent: &Agent, offer: Option<&Handover>) -> Markup {
    let path = format!("{AGENTS}/{}", agent.id);
    let inputs = layout.inputs(FormName::Operator(OperatorFormName::Offer));
    let waits = offer.filter(|offer| offer.awaits_second());
    let content = html! {
        dl.facts-list.wide { div { dt { "Owner now" } dd { code.long { (agent.owner) } } } }
        (inputs.line("to", "ID of the new owner, from their sessions page", waits.map_or("", |offer| offer.to.as_str()), 64))
        (inputs.line("reason", "Reason, which the person sees", waits.map_or("", |offer| offer.reason.as_str()), OperatorReason::MAX))
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
    let reconciling = layout.inputs(FormName::Operator(OperatorFormName::Reconcile));
    html! {
        div.row-actions {
            (offering.show(layout))
            @if offer.is_some() { (withdrawing.show(layout)) }
            details.pop open[reconciling.is_typed()] {
                summary.button { "Check a settlement" }
                div.pop-body {
                    (layout.form(&format!("{path}/reconcile"), &html! {
                        (reconciling.line("settlement", "ID of the settlement", "", 36))
                        button.primary type="submit" { "Check with the chain" }
                    }))
                }
            }
        }
    }
}
