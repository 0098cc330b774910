//! The page of freezes by operators, with operator, time and reason.

use crate::operators::layout::{FREEZES, page};
use crate::sessions::session::OperatorSession;
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::layout::Layout;
use crate::ui::list::columns;
use axum::{extract::State, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{FreezeTarget, Freezes, OperatorFreeze};
use std::cmp::Reverse;
use std::sync::Arc;

/// `GET /dashboard/operator/freezes`. There are at most [`Freezes::MOST`] of each kind, so one page shows all of them.
pub(crate) async fn show(State(people): State<Arc<People>>, OperatorSession(session): OperatorSession) -> Reply {
    let mut freezes = people.operator_freezes().await?;
    freezes.sort_by_key(|freeze| (freeze.target != FreezeTarget::Deployment, Reverse(freeze.at)));
    let layout = Layout::of(&session, people.now());
    let how = html! {
        "Operators freeze with " code { "PUT /internal/freezes/…" } ", and end a freeze with " code { "DELETE" }
        " of the same path; " (Freezes::MOST) " is the maximum number of frozen agents, and also of frozen owners."
    };
    let content = html! {
        @if freezes.is_empty() { p.empty { "No operator has frozen anything. Agents that their owners froze are not listed here." } } @else {
            table.list {
                caption.sr { "Freezes: that of the deployment, then newest first" }
                (columns(&["Frozen", "Since", "By", "Why"]))
                tbody { @for freeze in &freezes { (row(&layout, freeze)) } }
            }
        }
    };
    Ok(page(&layout, "Operators’ freezes", FREEZES, &how, &content).into_response())
}

fn row(layout: &Layout, freeze: &OperatorFreeze) -> Markup {
    html! {
        tr {
            th scope="row" {
                @match &freeze.target {
                    FreezeTarget::Deployment => { span.chip.bad { "all payments" } },
                    FreezeTarget::Owner(person) => { "all agents of " code.long { (person) } },
                    FreezeTarget::Agent(agent) => { "agent " code.long { (agent) } },
                }
            }
            td data-label="Since" { (both(freeze.at, layout.now)) }
            td data-label="By" { (freeze.by) }
            td data-label="Why" { (freeze.reason.as_str()) }
        }
    }
}
