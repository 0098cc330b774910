//! The page with operator freezes, and the forms that start and end a freeze.

use crate::operators::form::{ActMessages, OperatorForm};
use crate::operators::form_name::OperatorFormName;
use crate::operators::layout::{ConfirmedAct, FREEZES, hidden_input, operator_page};
use crate::redirect::see_other;
use crate::sessions::session::OperatorSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::list::{Column, column_headings};
use crate::ui::notice::PageMessage;
use axum::{http::Uri, response::IntoResponse as _, response::Response};
use maud::{Markup, html};
use purser_api::{OperatorAct, Reply};
use purser_domain::{
    AgentId, FreezeTarget, Freezes, OperatorFreeze, OperatorReason, Result, UserId, escape_hidden_characters,
};
use std::cmp::Reverse;

pub(crate) async fn show_freezes_page(
    people: PeopleState,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(render_freezes_page(&people, &layout).await?.into_response())
}

/// Redirects a `GET` of a form's path to the page.
pub(crate) async fn redirect_to_freezes() -> Response {
    see_other(FREEZES)
}

pub(crate) async fn submit_freeze(request: OperatorForm) -> Reply {
    let mut form = request.parse_posted_form(OperatorFormName::Freeze);
    let target = parse_freeze_target(&mut form, "id");
    let reason = OperatorReason::parse(form.field_text("reason"));
    if reason.is_none() {
        form.add_error("reason", format!("Reason: {}.", OperatorReason::FORM));
    }
    let is_confirmed = form.require_checked("confirmed", "Check the box: a freeze refuses payments at once.");
    let Some((target, reason)) = target.zip(reason).filter(|_| is_confirmed) else {
        return request
            .show_form_again(form, async |people, layout| render_freezes_page(people, &layout).await)
            .await;
    };
    let action = OperatorAct::Freeze {
        target,
        reason: reason.as_str().to_owned(),
    };
    submit_freeze_action(
        request,
        form,
        action,
        ActMessages::for_single_operator(PageMessage::OperatorFroze),
    )
    .await
}

pub(crate) async fn submit_unfreeze(request: OperatorForm) -> Reply {
    let row = request
        .parse_posted_form(OperatorFormName::EndFreeze(0))
        .field_text("row")
        .parse();
    let mut form = request.parse_posted_form(OperatorFormName::EndFreeze(row.unwrap_or(usize::MAX)));
    let target = parse_freeze_target(&mut form, "");
    let is_confirmed = form.require_checked("confirmed", "Check the box: payments are allowed again.");
    let Some(target) = target.filter(|_| is_confirmed) else {
        return request
            .show_form_again(form, async |people, layout| render_freezes_page(people, &layout).await)
            .await;
    };
    let action = OperatorAct::EndFreeze { target };
    let notices = ActMessages {
        done: PageMessage::OperatorUnfroze,
        awaits_second_operator: PageMessage::UnfreezeAwaitsSecond,
    };
    submit_freeze_action(request, form, action, notices).await
}

async fn submit_freeze_action(request: OperatorForm, form: Form, action: OperatorAct, messages: ActMessages) -> Reply {
    let page = async |people: &People, layout: Layout| render_freezes_page(people, &layout).await;
    request
        .submit_operator_action(form, action, messages, FREEZES, page)
        .await
}

/// The error for an invalid target is shown at the input `field`.
fn parse_freeze_target(form: &mut Form, field: &str) -> Option<FreezeTarget> {
    let id = form.field_text("id");
    let (target, message) = match form.field_text("scope") {
        "agent" => (
            AgentId::parse(id).map(FreezeTarget::Agent),
            "ID: enter the agent’s ID, a UUID.",
        ),
        "owner" => (
            UserId::parse(id).map(FreezeTarget::Owner),
            "ID: enter the owner’s ID, 64 hexadecimal digits.",
        ),
        "deployment" => (
            Some(FreezeTarget::Deployment).filter(|_| id.is_empty()),
            "ID: leave it empty to freeze all payments.",
        ),
        _ => (None, "Scope: choose one."),
    };
    if target.is_none() {
        form.add_error(field, message);
    }
    target
}

/// All freezes fit on one page, because there are at most [`Freezes::MAX`] of each kind.
async fn render_freezes_page(people: &People, layout: &Layout) -> Result<Markup> {
    let mut freezes = people.list_operator_freezes().await?;
    freezes.sort_by_key(|freeze| (freeze.target != FreezeTarget::Deployment, Reverse(freeze.at)));
    let actions = people.internal.is_some();
    let how = html! {
        @if actions {
            "A freeze applies to every decision from its beginning on. One that was set with a token can only be ended with a token. "
        } @else {
            "Read-only. Operators freeze with " code { "PUT /internal/freezes/…" } ", and end a freeze with " code { "DELETE" }
            " of the same path. "
        }
        (Freezes::MAX) " is the maximum number of frozen agents, and also of frozen owners."
    };
    let mut names = ["Frozen", "Since", "By", "Why"].map(Column::Text).to_vec();
    if actions {
        names.push(Column::Text("End"));
    }
    let content = html! {
        @if actions { (freeze_form(layout)) }
        @if freezes.is_empty() { p.empty { "No operator has frozen anything. Agents that their owners froze are not listed here." } } @else {
            table.list {
                caption.sr { "Freezes: that of the deployment, then newest first" }
                (column_headings(&names))
                tbody { @for (number, freeze) in freezes.iter().enumerate() { (freeze_row(layout, freeze, actions.then_some(number))) } }
            }
        }
    };
    Ok(operator_page(layout, "Operators’ freezes", FREEZES, &how, &content))
}

fn freeze_form(layout: &Layout) -> Markup {
    let inputs = layout.form_inputs(FormName::Operator(OperatorFormName::Freeze));
    let scopes = [
        ("agent", "One agent"),
        ("owner", "All agents of an owner"),
        ("deployment", "All payments of this Purser"),
    ];
    let content = html! {
        (inputs.radio_buttons("scope", "Scope", &scopes, "agent"))
        (inputs.optional_text_input("id", "ID of the agent or the owner; none for all payments", "", 64))
        (inputs.required_text_input("reason", "Reason, which the owners see", "", OperatorReason::MAX))
    };
    let form = ConfirmedAct {
        name: OperatorFormName::Freeze,
        action: FREEZES,
        label: "Freeze",
        confirms: "Refuse these payments at once",
        content: &content,
    };
    form.render_confirmation_form(layout)
}

fn freeze_row(layout: &Layout, freeze: &OperatorFreeze, number: Option<usize>) -> Markup {
    html! {
        tr {
            th scope="row" {
                @match &freeze.target {
                    FreezeTarget::Deployment => { span.chip.bad { "all payments" } },
                    FreezeTarget::Owner(user) => { "all agents of " code.long { (user) } },
                    FreezeTarget::Agent(agent) => { "agent " code.long { (agent) } },
                }
            }
            td data-label="Since" { (relative_and_exact_time(freeze.at, layout.now)) }
            td data-label="By" { (freeze.by) }
            td data-label="Why" { (escape_hidden_characters(freeze.reason.as_str())) }
            @if let Some(number) = number { td data-label="End" { (unfreeze_form(layout, freeze, number)) } }
        }
    }
}

fn unfreeze_form(layout: &Layout, freeze: &OperatorFreeze, number: usize) -> Markup {
    if !freeze.by.is_browser_session_name() {
        return html! { span.muted { "with a token" } };
    }
    let id = match &freeze.target {
        FreezeTarget::Deployment => String::new(),
        FreezeTarget::Owner(user) => user.to_string(),
        FreezeTarget::Agent(agent) => agent.to_string(),
    };
    let content = html! {
        (hidden_input("scope", freeze.target.scope_name()))
        (hidden_input("id", &id))
        (hidden_input("row", &number.to_string()))
    };
    let form = ConfirmedAct {
        name: OperatorFormName::EndFreeze(number),
        action: &format!("{FREEZES}/end"),
        label: "End the freeze",
        confirms: "Allow these payments again",
        content: &content,
    };
    html! {
        @if let Some(first) = &freeze.end_asked_by { p.fine { (first) " has ended it: another operator has to end it too." } }
        (form.render_confirmation_form(layout))
    }
}
