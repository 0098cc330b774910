//! The approval queue: all pending approvals, each with a button to approve and one to reject.
//!
//! The list of open approvals is also served on its own, as an HTML fragment that the page's script polls. A new
//! approval therefore appears without a reload, rendered by the same code.
//!
//! The number of open approvals is always that of all agents, regardless of the filter, so that none is overlooked.

use crate::address::address;
use crate::agents::form::AgentForm;
use crate::approvals::operations::{ApprovalContext, ApprovalFilter, DailyUsage, Waiting};
use crate::cursor;
use crate::digest::{entity_tag, unless_held, version_of};
use crate::sessions::session::{PageSession, PollSession};
use crate::state::People;
use crate::ui::bar::bar;
use crate::ui::call;
use crate::ui::datetime::{exact, relative};
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{filter_select, paging};
use crate::ui::money::{big_money, is_no_limit, money, spent};
use crate::ui::notice::{Notice, done};
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{Html, IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Failure, Query, Reply};
use purser_domain::{
    AgentId, AgentStatus, Amount, ApprovalId, ApprovalStatus, Catalog, ErrorKind, NOTE_MAX, Result,
};
use purser_store::{ApprovalDecision, ApprovalPlace};
use purser_store::{Page, PageRequest};
use std::sync::Arc;

/// The content of the queue.
#[derive(Debug)]
pub(crate) struct ApprovalQueue<'a> {
    /// The filter and position.
    pub(crate) view: View,
    /// The pending approvals.
    pub(crate) waiting: Waiting,
    /// The closed approvals, newest first.
    pub(crate) decided: Page<ApprovalContext, ApprovalPlace>,
    pub(crate) catalog: &'a Catalog,
}

/// The filter and position of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Only approvals of this agent.
    pub(crate) agent: Option<AgentId>,
    /// The open approvals created after this one.
    pub(crate) after: Option<ApprovalPlace>,
    /// The decided approvals created before this one.
    pub(crate) before: Option<ApprovalPlace>,
}

impl View {
    /// Parses the view in a URL; `None` if it is invalid. An empty field is no filter.
    fn read(uri: &Uri) -> Option<Self> {
        let mut query = Query::of(uri);
        let [agent, after, before] =
            ["agent_id", "after", "before"].map(|name| query.text(name).filter(|text| !text.is_empty()));
        let place = |text: Option<String>| text.map(|text| cursor::read_approval(&text).ok_or(())).transpose().ok();
        Some(Self {
            agent: agent.map(|text| AgentId::parse(&text).ok_or(())).transpose().ok()?,
            after: place(after)?,
            before: place(before)?,
        })
    }

    /// The URL of this view of the page at `path`.
    fn address(self, path: &str) -> String {
        let place = |place: Option<ApprovalPlace>| place.map(cursor::write_approval);
        address(
            path,
            [
                ("agent_id", self.agent.map(|agent| agent.to_string())),
                ("after", place(self.after)),
                ("before", place(self.before)),
            ],
        )
    }

    /// The URL of the queue in this view.
    fn queue(self) -> String {
        self.address(QUEUE)
    }
}

const QUEUE: &str = "/dashboard/approvals";

/// `GET /dashboard/approvals`.
pub(crate) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::of(&session, people.now()).noticed(&uri);
    let Some(view) = View::read(&uri) else {
        let problem = Some("The filters in this address are invalid, so everything is shown.".to_owned());
        let page = answer(&people, &session, Layout { problem, ..layout }, View::default()).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    Ok(answer(&people, &session, layout, view).await?)
}

/// `GET /dashboard/approvals/waiting`: only the list, or 304 if the script already has this version.
pub(crate) async fn watch(
    State(people): State<Arc<People>>,
    PollSession(session): PollSession,
    uri: Uri,
    headers: HeaderMap,
) -> Reply {
    let view = View::read(&uri).unwrap_or_default();
    let waiting = people.waiting(&session.person, view.agent, view.after);
    let (waiting, edition) = tokio::try_join!(waiting, people.catalog())?;
    let layout = Layout::of(&session, people.now());
    // The script updates relative times itself, and each answer masks the form token anew, so both are left out of the
    // entity tag.
    let list = waiting_list(&layout.to_compare(), &waiting, view, &edition.catalog);
    let tag = entity_tag(&version_of(&list.into_string()));
    let list = waiting_list(&layout, &waiting, view, &edition.catalog);
    Ok(unless_held(&headers, &tag, Html(list.into_string())))
}

/// `POST /dashboard/agents/{agent}/approvals/{approval}/approve`.
pub(crate) async fn approve(uri: Uri, sent: AgentForm) -> Reply {
    decide(&uri, sent, ApprovalDecision::Approve).await
}

/// `POST /dashboard/agents/{agent}/approvals/{approval}/reject`.
pub(crate) async fn reject(uri: Uri, sent: AgentForm) -> Reply {
    decide(&uri, sent, ApprovalDecision::Reject).await
}

async fn decide(uri: &Uri, sent: AgentForm, decision: ApprovalDecision) -> Reply {
    let view = View::read(uri).unwrap_or_default();
    let approval = sent.named("approval", ApprovalId::parse)?;
    let (mut form, mut layout) = (sent.form(FormName::ApprovalDecision), sent.layout());
    let (people, session) = (&sent.people, &sent.posted.session);
    let is_frozen =
        sent.owned.agent().status == AgentStatus::Frozen || people.freeze_of(sent.owned.agent()).await?.is_some();
    let own = people.own_approval(sent.owned, approval).await?;
    let Ok(note) = form.note() else {
        layout.typed = Some(form);
        let page = answer(people, session, layout, view).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let Err(error) = people.decide_approval(own, decision, note.as_ref()).await else {
        let notice = match decision {
            ApprovalDecision::Approve if is_frozen => Notice::ApprovedFrozen,
            ApprovalDecision::Approve => Notice::Approved,
            ApprovalDecision::Reject => Notice::Rejected,
        };
        return Ok(done(&view.queue(), notice));
    };
    let failure = Failure::from(error);
    let ErrorKind::ApprovalNotPending { status, .. } = failure.error().kind() else {
        return Err(failure);
    };
    layout.problem = Some(too_late(*status).to_owned());
    let page = answer(people, session, layout, view).await?;
    Ok((failure.status(), page).into_response())
}

const fn too_late(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Pending => "That payment is still pending. Please decide again.",
        ApprovalStatus::Approved => "That payment was already approved. Your decision had no effect.",
        ApprovalStatus::Executed => "That payment was already approved and made. Your decision had no effect.",
        ApprovalStatus::Rejected => "That payment was already rejected. Your decision had no effect.",
        ApprovalStatus::Expired => "That request has expired. Nothing was paid. The agent can ask again.",
    }
}

async fn answer(people: &People, session: &PageSession, layout: Layout, view: View) -> Result<Response> {
    /// The number of decided approvals that are shown.
    const DECIDED: u32 = 25;
    let person = &session.person;
    let decided = ApprovalFilter {
        agent: view.agent,
        status: None,
        decided: true,
    };
    let slice = PageRequest {
        before: view.before,
        limit: DECIDED,
    };
    let (waiting, decided, edition) = tokio::try_join!(
        people.waiting(person, view.agent, view.after),
        people.approvals(person, decided, slice),
        people.catalog(),
    )?;
    let queue = ApprovalQueue {
        view,
        waiting,
        decided,
        catalog: &edition.catalog,
    };
    let layout = Layout {
        waiting: Some(queue.waiting.count()),
        ..layout
    };
    Ok(approvals_page(&layout, &queue).into_response())
}

pub(crate) fn approvals_page(layout: &Layout, queue: &ApprovalQueue<'_>) -> Markup {
    let (view, decided) = (queue.view, &queue.decided);
    layout.page(
        "Approvals",
        NavItem::Approvals,
        &html! {
            h1 { "Approvals" }
            (by_agent(view, &queue.waiting))
            section aria-labelledby="waiting-title" {
                h2 id="waiting-title" { "Waiting for you" }
                (live(layout, &queue.waiting, view, queue.catalog))
            }
            section aria-labelledby="decided-title" {
                h2 id="decided-title" { "Decided" }
                @if decided.items.is_empty() {
                    p.empty {
                        @if decided.next.is_some() || view.before.is_some() { "No more entries." }
                        @else { "Approvals that you decide are listed here." }
                    }
                } @else {
                    ul.rows { @for decided in &decided.items { (decided_row(layout, decided, queue.catalog)) } }
                }
                (paging(
                    "Pages of decided approvals",
                    view.before.map(|_| ("Newest", View { before: None, ..view }.queue())),
                    decided.next.map(|next| ("Older", View { before: Some(next), ..view }.queue())),
                ))
            }
        },
    )
}

/// The filter by agent, with the number of each agent's open approvals; shown if there are several agents. If they are
/// many, it lists only the agents with an approval on this page.
fn by_agent(view: View, waiting: &Waiting) -> Markup {
    let options = waiting.agents.iter().map(|owned| {
        let agent = owned.agent();
        let count = waiting.count_of(agent.id);
        let text = html! { (agent.name) @if count > 0 { " (" (count) " waiting)" } };
        (agent.id.to_string(), text, view.agent == Some(agent.id))
    });
    html! {
        @if waiting.agents.len() > 1 || view.agent.is_some() {
            form.filters method="get" action=(QUEUE) role="search" {
                (filter_select("agent", "agent_id", "Agent", "All agents", options))
                button type="submit" { "Show" }
                @if view.agent.is_some() { a href=(QUEUE) { "Clear" } }
            }
        }
    }
}

/// The list of open approvals, which the script keeps up to date.
pub(crate) fn live(layout: &Layout, waiting: &Waiting, view: View, catalog: &Catalog) -> Markup {
    let address = View { before: None, ..view }.address("/dashboard/approvals/waiting");
    html! { div.live data-live=(address) { (waiting_list(layout, waiting, view, catalog)) } }
}

/// Only the list: the response to the script's poll.
pub(crate) fn waiting_list(layout: &Layout, waiting: &Waiting, view: View, catalog: &Catalog) -> Markup {
    let is_part = view.agent.is_some() || view.after.is_some();
    html! {
        ul.cards data-waiting=(waiting.count()) {
            @for waiting in &waiting.items { (card(layout, waiting, view, catalog)) }
        }
        p.empty hidden[!waiting.items.is_empty()] data-none {
            @if is_part { "No approval is pending here. " a href=(QUEUE) { "See all pending approvals" } }
            @else { "No approval is pending. New requests appear here automatically." }
        }
        div data-more {
            (paging(
                "Pages of pending approvals",
                view.after.map(|_| ("First", View { after: None, ..view }.queue())),
                waiting.next.map(|next| ("More pending approvals", View { after: Some(next), ..view }.queue())),
            ))
        }
    }
}

pub(crate) fn card(layout: &Layout, waiting: &ApprovalContext, view: View, catalog: &Catalog) -> Markup {
    let approval = &waiting.approval;
    let agent = waiting.agent.agent();
    let path = format!("{}/approvals/{}", paths::agent(approval.agent), approval.id);
    let inputs = layout.inputs(FormName::ApprovalDecision);
    let note_id = format!("note-{}", approval.id);
    html! {
        li.card.waiting data-approval=(approval.id) {
            div.facts data-facts {
                div.headline {
                    p.amount { (big_money(approval.amount)) }
                    p.expiry {
                        "asked " (relative(approval.created_at, layout.now)) " · "
                        strong { "expires " (relative(approval.expires_at, layout.now)) } ", " (exact(approval.expires_at))
                    }
                }
                p.what {
                    (labels::agent(agent.id, &agent.name)) " wants to pay " (labels::service(approval.service, catalog)) " for "
                    (labels::operation(catalog.by_id(approval.service), Some(&approval.operation)))
                }
                @if agent.status == AgentStatus::Frozen {
                    p.warning { "This agent is frozen. An approval has no effect until the agent is active again." }
                }
                (call::described(&approval.call, approval.amount))
                dl.facts-list {
                    div { dt { "Requested with key" } dd { (labels::key(approval.key)) } }
                    div { dt { "Pays to" } dd { (labels::wallet(approval.pay_to)) } }
                    div {
                        dt { "Reason" }
                        dd { (phrases::asked(approval.rule, approval.threshold, &agent.rules, catalog)) }
                    }
                    div { dt { "Remaining daily cap" } dd { (left_of_day(approval.amount, waiting.day)) } }
                }
            }
            (layout.form(&view.address(&format!("{path}/approve")), &html! {
                div.field.note {
                    label for=(note_id) { "Note " span.muted { "(optional; the agent can read it)" } }
                    textarea id=(note_id) name="note" rows="1" maxlength=(NOTE_MAX) {
                        (inputs.value_for("approval_id", &approval.id.to_string(), "note"))
                    }
                }
                input type="hidden" name="approval_id" value=(approval.id);
                div.verdict {
                    button.primary type="submit" { "Approve" span.sr { " " (subject(waiting)) } }
                    button.danger type="submit" formaction=(view.address(&format!("{path}/reject"))) {
                        "Reject" span.sr { " " (subject(waiting)) }
                    }
                }
            }))
        }
    }
}

/// The payment that a button is for, as text for screen readers.
fn subject(waiting: &ApprovalContext) -> Markup {
    html! { (crate::ui::money::dollars(waiting.approval.amount)) " of " (waiting.agent.agent().name) }
}

fn left_of_day(amount: Amount, day: Option<DailyUsage>) -> Markup {
    let Some(DailyUsage { cap, used }) = day else {
        return html! { span.warning { "The service is no longer enabled for this agent, so the payment will be refused." } };
    };
    if is_no_limit(cap) {
        return html! { span.nolimit { "no limit" } " on a day; " (spent(used)) " spent in the last 24 hours" };
    }
    let left = cap.above(used.amount);
    html! {
        @if !used.is_exact { "at least " } (money(left)) " of " (money(cap))
        (bar(used.amount, amount, cap))
        @match left.minus(amount) {
            Some(after) => p.aside { @if !used.is_exact { "at least " } (money(after)) " would be left" },
            None if !used.is_exact => p.aside { "The exact amount is still being calculated, because many payments have left the 24-hour window." },
            None => p.warning { "Not enough for this payment. Even if approved, it is refused until enough of the cap is free again." },
        }
    }
}

pub(crate) fn decided_row(layout: &Layout, decided: &ApprovalContext, catalog: &Catalog) -> Markup {
    let approval = &decided.approval;
    let status = approval.status(layout.now);
    let agent = decided.agent.agent();
    html! {
        li.row {
            div.row-main {
                (status_chip(status))
                " " (money(approval.amount)) " · " (labels::agent(agent.id, &agent.name)) " → "
                (labels::service(approval.service, catalog))
            }
            div.row-aside {
                @match approval.ruling() {
                    Some(ruling) => { "decided " (relative(ruling.at, layout.now)) }
                    None => { "nobody decided; expired " (exact(approval.expires_at)) }
                }
                @if let Some(settlement) = approval.settlement() {
                    " · " a href=(paths::receipt(approval.agent, settlement)) { "Receipt" }
                }
                @if status == ApprovalStatus::Approved {
                    " · not used yet, expires " (relative(approval.expires_at, layout.now))
                }
            }
            details.fold {
                summary { "The call" }
                (call::described(&approval.call, approval.amount))
            }
            @if let Some(note) = approval.ruling().and_then(|ruling| ruling.note.as_deref()) {
                p.quote { (note) }
            }
        }
    }
}

pub(crate) fn status_chip(status: ApprovalStatus) -> Markup {
    match status {
        ApprovalStatus::Pending => html! { span.chip.wait { "waiting" } },
        ApprovalStatus::Approved => html! { span.chip.good { "approved" } },
        ApprovalStatus::Executed => html! { span.chip.good { "approved, paid" } },
        ApprovalStatus::Rejected => html! { span.chip.bad { "rejected" } },
        ApprovalStatus::Expired => html! { span.chip { "expired" } },
    }
}
