//! The page of one approval, which notices link to. A pending approval can be decided here; else its result is shown.

use crate::agents::owned::named;
use crate::approvals::operations::ApprovalContext;
use crate::approvals::page::{View, card, decided_row};
use crate::sessions::session::PageSession;
use crate::state::People;
use crate::ui::layout::{Layout, NavItem};
use axum::{
    extract::{Path, State},
    http::Uri,
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentId, ApprovalId, ApprovalStatus, Catalog};
use std::sync::Arc;

/// `GET /dashboard/approvals/{agent}/{approval}`.
pub(crate) async fn show(
    State(people): State<Arc<People>>,
    session: PageSession,
    Path((agent, approval)): Path<(String, String)>,
    uri: Uri,
) -> Reply {
    let (agent, approval) = (named(AgentId::parse(&agent))?, named(ApprovalId::parse(&approval))?);
    let owned = people.own_agent(&session.person, agent).await?;
    let own = people.own_approval(owned, approval).await?;
    let (context, edition) = tokio::try_join!(people.approval(own), people.catalog())?;
    let layout = Layout::of(&session, people.now()).noticed(&uri);
    Ok(page(&layout, &context, &edition.catalog).into_response())
}

fn page(layout: &Layout, context: &ApprovalContext, catalog: &Catalog) -> Markup {
    let is_open = context.approval.status(layout.now) == ApprovalStatus::Pending;
    layout.page(
        "Approval",
        NavItem::Approvals,
        &html! {
            h1 { @if is_open { "Waiting for you" } @else { "Approval" } }
            @if is_open {
                ul.cards { (card(layout, context, View::default(), catalog)) }
            } @else {
                ul.rows { (decided_row(layout, context, catalog)) }
            }
            p { a href="/dashboard/approvals" { "All approvals" } }
        },
    )
}
