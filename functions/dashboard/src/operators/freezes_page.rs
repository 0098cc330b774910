//! The page with operator freezes, and the forms that start and end a freeze.

use crate::operators::act_form::ActForm;
use crate::operators::acts::{END_FREEZE, FREEZE};
use crate::operators::layout::{FREEZES, operator_page};
use crate::sessions::session::OperatorSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::FormName;
use crate::ui::layout::Layout;
use crate::ui::list::{Column, column_headings};
use axum::{http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{FreezeTarget, Freezes, OperatorFreeze, Result, escape_hidden_characters};
use std::cmp::Reverse;

pub(crate) async fn show_freezes_page(
    people: PeopleState,
    OperatorSession(session): OperatorSession,
    uri: Uri,
) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(render_freezes_page(&people, &layout).await?.into_response())
}

/// All freezes fit on one page, because there are at most [`Freezes::MAX`] of each kind.
pub(crate) async fn render_freezes_page(people: &People, layout: &Layout) -> Result<Markup> {
    let mut freezes = people.ledger.list_operator_freezes().await?;
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
                tbody { @for (freeze, number) in freezes.iter().zip(0..) { (freeze_row(layout, freeze, actions.then_some(number))) } }
            }
        }
    };
    Ok(operator_page(layout, "Operators’ freezes", FREEZES, &how, &content))
}

fn freeze_form(layout: &Layout) -> Markup {
    let inputs = layout.form_inputs(FormName::Operator(FREEZE.name, 0));
    let scopes = [
        ("agent", "One agent"),
        ("owner", "All agents of an owner"),
        ("deployment", "All payments of this Purser"),
    ];
    let form = ActForm {
        content: html! {
            (inputs.radio_buttons("scope", "Scope", &scopes, "agent"))
            (inputs.optional_text_input("id", "ID of the agent or the owner; none for all payments", "", 64))
        },
        ..ActForm::new(&FREEZE, FREEZES.to_owned())
    };
    form.render(layout)
}

fn freeze_row(layout: &Layout, freeze: &OperatorFreeze, number: Option<u128>) -> Markup {
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

fn unfreeze_form(layout: &Layout, freeze: &OperatorFreeze, number: u128) -> Markup {
    if !freeze.by.is_browser_session_name() {
        return html! { span.muted { "with a token" } };
    }
    let id = match &freeze.target {
        FreezeTarget::Deployment => String::new(),
        FreezeTarget::Owner(user) => user.to_string(),
        FreezeTarget::Agent(agent) => agent.to_string(),
    };
    let form = ActForm {
        key: number,
        values: &[
            ("scope", freeze.target.scope_name()),
            ("id", &id),
            ("row", &number.to_string()),
        ],
        ..ActForm::new(&END_FREEZE, format!("{FREEZES}/{}", END_FREEZE.name))
    };
    html! {
        @if let Some(first) = &freeze.end_asked_by { p.fine { (first) " has ended it: another operator has to end it too." } }
        (form.render(layout))
    }
}
