//! The approval queue: pending and recently decided approvals. The script polls the pending approvals.

use crate::agents::choice::{AgentChoice, NamedAgent};
use crate::agents::form::AgentForm;
use crate::approvals::operations::{ApprovalContext, ApprovalFilter, Waiting};
use crate::approvals::queue::View;
use crate::approvals::{bulk, row};
use crate::digest::{entity_tag, response_or_not_modified, short_body_digest};
use crate::sessions::session::{PageSession, PollSession};
use crate::state::{People, PeopleState};
use crate::ui::form::FormName;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::first_and_next_links;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use axum::{
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Failure, Query, Reply};
use purser_domain::{AgentStatus, ApprovalId, ApprovalStatus, Catalog, ErrorKind, Result};
use purser_store::{ApprovalCursor, ApprovalDecision};
use purser_store::{Page, PageRequest};

#[derive(Debug)]
pub(crate) struct ApprovalQueue<'a> {
    pub(crate) view: View,
    pub(crate) choice: AgentChoice,
    pub(crate) waiting: Waiting,
    /// The decided and expired approvals, newest first.
    pub(crate) decided: Page<ApprovalContext, ApprovalCursor>,
    pub(crate) catalog: &'a Catalog,
}

pub(crate) async fn show_approvals_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let Some(view) = View::from_uri(&uri) else {
        let error = Some("The filters in this address are invalid, so everything is shown.".to_owned());
        let page =
            approvals_page_response(&people, &session, layout.with_error_message(error), View::default()).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let name = Query::without_blanks(&uri).parse_text("agent");
    Ok(approval_queue_page(&people, &session, layout, view, name).await?)
}

/// Returns the list of pending approvals for the script, or their number if the query has `only=count`.
pub(crate) async fn poll_pending_approvals(
    people: PeopleState,
    PollSession(session): PollSession,
    uri: Uri,
    headers: HeaderMap,
) -> Reply {
    if Query::from_uri(&uri)
        .parse_text("only")
        .is_some_and(|part| part == "count")
    {
        let count = people.count_pending_approvals(&session.person).await?;
        let tag = entity_tag(&count.to_string());
        return Ok(response_or_not_modified(
            &headers,
            &tag,
            html! { ul data-waiting=(count.number) data-at-least[count.is_more] {} },
        ));
    }
    let view = View::from_uri(&uri).unwrap_or_default();
    let waiting = people.read_waiting_approvals(&session.person, view.agent, view.older, view.max_approvals());
    let (waiting, edition) = tokio::try_join!(waiting, people.current_catalog())?;
    let layout = Layout::new(&session, people.now());
    let tag = entity_tag_for_pending_approvals(&layout, &waiting, view, &edition.catalog);
    let list = pending_approval_list(&layout, &waiting, view, &edition.catalog);
    Ok(response_or_not_modified(&headers, &tag, list))
}

pub(crate) async fn submit_approval(uri: Uri, form: AgentForm) -> Reply {
    submit_decision(&uri, form, ApprovalDecision::Approve).await
}

pub(crate) async fn submit_rejection(uri: Uri, form: AgentForm) -> Reply {
    submit_decision(&uri, form, ApprovalDecision::Reject).await
}

async fn submit_decision(uri: &Uri, form: AgentForm, decision: ApprovalDecision) -> Reply {
    let view = View::from_uri(uri).unwrap_or_default();
    let approval = form.parse_path_parameter("approval", ApprovalId::parse)?;
    let (mut fields, mut layout) = (
        form.parse_posted_form(FormName::ApprovalDecision(approval)),
        form.page_layout(),
    );
    let (people, session) = (&form.people, &form.posted.session);
    let is_frozen = form.owned.agent().status == AgentStatus::Frozen
        || people.find_operator_freeze(form.owned.agent()).await?.is_some();
    let own = people.read_own_approval(form.owned, approval).await?;
    let request = own.approval().raise.as_ref();
    let request = request.filter(|_| decision == ApprovalDecision::Approve);
    let restriction = request.map(|request| row::parse_restriction(&mut fields, request, people.now()));
    let note = fields.parse_note();
    let Some(note) = note.ok().filter(|_| !fields.has_errors()) else {
        layout.typed = Some(fields);
        let page = approvals_page_response(people, session, layout, view).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let restriction = restriction.unwrap_or_default();
    let decided = people.decide_approval(own, decision, &restriction, note.as_ref());
    let Err(error) = decided.await else {
        let message = match decision {
            ApprovalDecision::Approve if is_frozen => PageMessage::ApprovedFrozen,
            ApprovalDecision::Approve => PageMessage::Approved,
            ApprovalDecision::Reject => PageMessage::Rejected,
        };
        return Ok(redirect_with_notice(&view.queue_url(), message));
    };
    let failure = Failure::from(error);
    match failure.error().kind() {
        ErrorKind::ApprovalNotPending { status, .. } => {
            layout.problem = Some(approval_not_pending_message(*status).to_owned());
        }
        ErrorKind::InvalidRequest(problems) => {
            fields.add_body_errors(problems, &row::RESTRICTION_FIELDS);
            layout.typed = Some(fields);
        }
        _ => return Err(failure),
    }
    let page = approvals_page_response(people, session, layout, view).await?;
    Ok((failure.status(), page).into_response())
}

pub(crate) const fn approval_not_pending_message(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Pending => "That payment is still pending. Please decide again.",
        ApprovalStatus::Approved => "That payment was already approved. Your decision had no effect.",
        ApprovalStatus::Executed => "That payment was already approved and made. Your decision had no effect.",
        ApprovalStatus::Rejected => "That payment was already rejected. Your decision had no effect.",
        ApprovalStatus::Expired => "That request has expired. Nothing was paid. The agent can ask again.",
    }
}

async fn approvals_page_response(
    people: &People,
    session: &PageSession,
    layout: Layout,
    view: View,
) -> Result<Response> {
    approval_queue_page(people, session, layout, view, None).await
}

/// Renders the queue of approvals for the agent that the text `name` identifies. If `name` is `None`, renders the queue
/// for the agent in `view`.
async fn approval_queue_page(
    people: &People,
    session: &PageSession,
    layout: Layout,
    view: View,
    name: Option<String>,
) -> Result<Response> {
    /// The number of decided approvals on the page.
    const MAX_DECIDED: u32 = 10;
    let user = &session.person;
    let named = NamedAgent {
        id: view.agent,
        text: name,
    };
    let choice = people.resolve_named_agent(user, named).await?;
    let view = View {
        agent: choice.id,
        ..view
    };
    let decided = ApprovalFilter {
        agent: view.agent,
        status: None,
        decided: true,
    };
    let page_request = PageRequest {
        before: view.before,
        limit: MAX_DECIDED,
    };
    let (waiting, decided, edition) = tokio::try_join!(
        people.read_waiting_approvals(user, view.agent, view.older, view.max_approvals()),
        people.list_approvals(user, decided, page_request),
        people.current_catalog(),
    )?;
    let queue = ApprovalQueue {
        view,
        choice,
        waiting,
        decided,
        catalog: &edition.catalog,
    };
    let layout = Layout {
        waiting: Some(queue.waiting.count),
        ..layout
    };
    Ok(approvals_page(&layout, &queue).into_response())
}

pub(crate) fn approvals_page(layout: &Layout, queue: &ApprovalQueue<'_>) -> Markup {
    let (view, decided) = (queue.view, &queue.decided);
    layout.html_page(
        "Approvals",
        NavItem::Approvals,
        &html! {
            h1 { "Approvals" }
            (agent_filter_form(view, &queue.choice))
            section aria-labelledby="waiting-title" {
                h2 id="waiting-title" { "Waiting for you" }
                (self_updating_approval_list(layout, &queue.waiting, view, queue.catalog))
            }
            section aria-labelledby="decided-title" {
                h2 id="decided-title" { "Decided" }
                @if decided.items.is_empty() {
                    p.empty {
                        @if decided.next.is_some() || view.before.is_some() { "No more entries." }
                        @else { "Approvals that you decide are listed here." }
                    }
                } @else {
                    ul.rows { @for decided in &decided.items { (row::decided_approval_row(layout, decided, queue.catalog)) } }
                }
                (first_and_next_links(
                    "Pages of decided approvals",
                    view.before.map(|_| ("Newest", View { before: None, ..view }.queue_url())),
                    decided.next.map(|next| ("Older", View { before: Some(next), ..view }.queue_url())),
                ))
            }
        },
    )
}

fn agent_filter_form(view: View, choice: &AgentChoice) -> Markup {
    html! {
        form.filters method="get" action=(paths::APPROVALS) role="search" aria-label="Filters" {
            (choice.search_field("Agent’s name"))
            button type="submit" { "Show" }
            @if view.agent.is_some() || choice.is_ambiguous() { a href=(paths::APPROVALS) { "Clear" } }
        }
        (choice.matching_agent_links(|agent| View { agent: Some(agent), ..View::default() }.queue_url()))
    }
}

/// Renders the list that the script keeps up to date, and the buttons for the selected approvals.
pub(crate) fn self_updating_approval_list(layout: &Layout, waiting: &Waiting, view: View, catalog: &Catalog) -> Markup {
    let address = View { before: None, ..view }.url("/dashboard/approvals/waiting");
    let tag = entity_tag_for_pending_approvals(layout, waiting, view, catalog);
    html! {
        div.live data-live=(address) data-tag=(tag) {
            (pending_approval_list(layout, waiting, view, catalog))
            form.selected id=(row::SELECTION) method="get" action=(bulk::PAGE) hidden[waiting.items.is_empty()] data-selection {
                button type="button" data-select-all hidden { "Select all" }
                button type="submit" name="decision" value="approve" { "Approve selected…" }
                button.danger type="submit" name="decision" value="reject" { "Reject selected…" }
                p.hint { "A summary is shown before anything is decided." }
            }
        }
    }
}

/// The tag ignores relative times and the masked form token, which differ in each response.
fn entity_tag_for_pending_approvals(layout: &Layout, waiting: &Waiting, view: View, catalog: &Catalog) -> String {
    let list = pending_approval_list(&layout.layout_for_entity_tag(), waiting, view, catalog);
    entity_tag(&short_body_digest(&list.into_string()))
}

pub(crate) fn pending_approval_list(layout: &Layout, waiting: &Waiting, view: View, catalog: &Catalog) -> Markup {
    let is_part = view.agent.is_some() || view.older.is_some();
    html! {
        ul.rows.asks data-waiting=(waiting.count.number) data-at-least[waiting.count.is_more] {
            @for waiting in &waiting.items { (row::pending_approval_row(layout, waiting, view, catalog)) }
        }
        p.empty hidden[!waiting.items.is_empty()] data-none {
            @if is_part { "No approval is pending here. " a href=(paths::APPROVALS) { "See all pending approvals" } }
            @else { "No approval is pending. New requests appear here automatically." }
        }
        div data-more {
            (first_and_next_links(
                "Pages of pending approvals",
                view.older.map(|_| ("Newest", View { older: None, ..view }.queue_url())),
                waiting.next.map(|next| {
                    if view.is_brief { ("All pending approvals", View::default().queue_url()) }
                    else { ("Older pending approvals", View { older: Some(next), ..view }.queue_url()) }
                }),
            ))
        }
    }
}
