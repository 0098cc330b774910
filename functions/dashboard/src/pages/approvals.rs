//! The approval queue: everything a person needs to decide, and the two buttons.
//!
//! The list of what waits is also a page of its own, without anything around it, which the script asks for: so a new
//! approval appears without a reload, drawn by the same code.

use super::bar::bar;
use super::digest::entity_tag;
use super::form::FormName;
use super::moment::{exact, relative};
use super::money::{big_money, is_no_limit, money};
use super::names::{self, ServiceRef};
use super::notice::Notice;
use super::shell::{Here, Shell};
use super::words;
use super::{done, named};
use crate::Dashboard;
use crate::approvals::{ApprovalFilter, DayRoom, StandingApproval};
use crate::page::{READ_AT_ONCE, Slice};
use crate::sign_in::{Posted, Visitor, Watcher};
use axum::{
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{Html, IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Failure, Person, Reply};
use purser_domain::{AgentStatus, Amount, ApprovalId, ApprovalStatus, Catalog, ErrorKind, NOTE_MAX, Result};
use purser_store::Verdict;
use std::sync::Arc;

/// The queue.
#[derive(Debug)]
pub(crate) struct ApprovalQueue<'a> {
    /// What waits for a person, the first to expire first.
    pub(crate) waiting: Vec<StandingApproval>,
    /// What no longer does, newest first.
    pub(crate) decided: Vec<StandingApproval>,
    pub(crate) catalog: &'a Catalog,
}

/// `GET /dashboard/approvals`.
pub(super) async fn show(State(dashboard): State<Arc<Dashboard>>, visitor: Visitor, uri: Uri) -> Reply {
    let shell = Shell::of(&visitor, dashboard.now()).noticed(&uri);
    Ok(answer(&dashboard, &visitor, shell).await?)
}

/// `GET /dashboard/approvals/waiting`: the list alone, or 304 where the script has this very one.
pub(super) async fn watch(
    State(dashboard): State<Arc<Dashboard>>,
    Watcher(visitor): Watcher,
    headers: HeaderMap,
) -> Reply {
    let (waiting, edition) = tokio::try_join!(waiting(&dashboard, &visitor.person), dashboard.catalog())?;
    let shell = Shell::of(&visitor, dashboard.now());
    let list = waiting_list(&shell, &waiting, &edition.catalog);
    Ok(tagged(&headers, list))
}

/// `POST /dashboard/agents/{agent}/approvals/{approval}/approve`.
pub(super) async fn approve(dashboard: State<Arc<Dashboard>>, path: Path<(String, String)>, posted: Posted) -> Reply {
    decide(dashboard, path, posted, Verdict::Approve, Notice::Approved).await
}

/// `POST /dashboard/agents/{agent}/approvals/{approval}/reject`.
pub(super) async fn reject(dashboard: State<Arc<Dashboard>>, path: Path<(String, String)>, posted: Posted) -> Reply {
    decide(dashboard, path, posted, Verdict::Reject, Notice::Rejected).await
}

async fn decide(
    State(dashboard): State<Arc<Dashboard>>,
    Path((agent, approval)): Path<(String, String)>,
    posted: Posted,
    verdict: Verdict,
    notice: Notice,
) -> Reply {
    let owned = posted.own_agent(&dashboard, &agent).await?;
    let own = dashboard
        .own_approval(owned, named(ApprovalId::parse(&approval))?)
        .await?;
    let mut form = posted.form(FormName::Verdict);
    let mut shell = Shell::of(&posted.visitor, dashboard.now());
    let Ok(note) = form.note() else {
        shell.typed = Some(form);
        let page = answer(&dashboard, &posted.visitor, shell).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let Err(error) = dashboard.decide_approval(own, verdict, note.as_ref()).await else {
        return Ok(done("/dashboard/approvals", notice));
    };
    let failure = Failure::from(error);
    let ErrorKind::ApprovalNotPending { status, .. } = failure.error().kind() else {
        return Err(failure);
    };
    shell.problem = Some(too_late(*status).to_owned());
    let page = answer(&dashboard, &posted.visitor, shell).await?;
    Ok((failure.status(), page).into_response())
}

const fn too_late(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Pending => "That payment still waits; please decide again.",
        ApprovalStatus::Approved => "That payment was approved already. Your decision changed nothing.",
        ApprovalStatus::Executed => "That payment was approved and made already. Your decision changed nothing.",
        ApprovalStatus::Rejected => "That payment was rejected already. Your decision changed nothing.",
        ApprovalStatus::Expired => "That request has expired. Nothing was paid; the agent can ask again.",
    }
}

async fn answer(dashboard: &Dashboard, visitor: &Visitor, shell: Shell) -> Result<Response> {
    /// How many of the latest requests are looked at for those that no longer wait.
    const DECIDED: u32 = 25;
    let newest = Slice {
        before: None,
        limit: DECIDED,
    };
    let (waiting, latest, edition) = tokio::try_join!(
        waiting(dashboard, &visitor.person),
        dashboard.approvals(&visitor.person, ApprovalFilter::default(), newest),
        dashboard.catalog(),
    )?;
    let is_decided = |standing: &StandingApproval| standing.approval.status(shell.now) != ApprovalStatus::Pending;
    let queue = ApprovalQueue {
        decided: latest.items.into_iter().filter(is_decided).collect(),
        waiting,
        catalog: &edition.catalog,
    };
    let shell = Shell {
        waiting: Some(queue.waiting.len()),
        ..shell
    };
    Ok(approvals_page(&shell, &queue).into_response())
}

/// What waits for a person, the first to expire first.
pub(super) async fn waiting(dashboard: &Dashboard, person: &Person) -> Result<Vec<StandingApproval>> {
    let pending = ApprovalFilter {
        agent: None,
        status: Some(ApprovalStatus::Pending),
    };
    let newest = Slice {
        before: None,
        limit: READ_AT_ONCE,
    };
    let mut waiting = dashboard.approvals(person, pending, newest).await?.items;
    waiting.sort_by_key(|standing| standing.approval.expires_at);
    Ok(waiting)
}

fn tagged(request: &HeaderMap, list: Markup) -> Response {
    let text = list.into_string();
    let tag = entity_tag(&text);
    let held = request
        .get(header::IF_NONE_MATCH)
        .is_some_and(|held| held == tag.as_str());
    let mut response = if held {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Html(text).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

pub(crate) fn approvals_page(shell: &Shell, queue: &ApprovalQueue<'_>) -> Markup {
    shell.page(
        "Approvals",
        Here::Approvals,
        &html! {
            h1 { "Approvals" }
            section aria-labelledby="waiting-title" {
                h2 id="waiting-title" { "Waiting for you" }
                (live(shell, &queue.waiting, queue.catalog))
            }
            section aria-labelledby="decided-title" {
                h2 id="decided-title" { "Decided" }
                @if queue.decided.is_empty() {
                    p.empty { "What you approve or reject will be listed here." }
                } @else {
                    ul.rows { @for decided in &queue.decided { (decided_row(shell, decided, queue.catalog)) } }
                }
            }
        },
    )
}

/// The list of what waits, where the script keeps it up to date.
pub(super) fn live(shell: &Shell, waiting: &[StandingApproval], catalog: &Catalog) -> Markup {
    html! { div.live data-live { (waiting_list(shell, waiting, catalog)) } }
}

/// The list alone: the answer to the script.
pub(crate) fn waiting_list(shell: &Shell, waiting: &[StandingApproval], catalog: &Catalog) -> Markup {
    html! {
        ul.cards data-waiting=(waiting.len()) {
            @for waiting in waiting { (card(shell, waiting, catalog)) }
        }
        p.empty hidden[!waiting.is_empty()] data-none {
            "Nothing is waiting. New requests appear here by themselves."
        }
    }
}

fn card(shell: &Shell, waiting: &StandingApproval, catalog: &Catalog) -> Markup {
    let approval = &waiting.approval;
    let agent = waiting.agent.agent();
    let service = ServiceRef::of(approval.service, catalog);
    let path = format!("{}/approvals/{}", names::agent_path(approval.agent), approval.id);
    let inputs = shell.inputs(FormName::Verdict);
    let note_id = format!("note-{}", approval.id);
    html! {
        li.card.waiting data-approval=(approval.id) {
            div.facts data-facts {
                div.headline {
                    p.amount { (big_money(approval.amount)) }
                    p.expiry {
                        "asked " (relative(approval.created_at, shell.now)) " · "
                        strong { "expires " (relative(approval.expires_at, shell.now)) } ", " (exact(approval.expires_at))
                    }
                }
                p.what {
                    (names::agent(agent.id, &agent.name)) " wants to pay " (names::service(&service)) " for "
                    (names::operation(catalog.by_id(approval.service), Some(&approval.operation)))
                }
                @if agent.status == AgentStatus::Frozen {
                    p.warning { "This agent is frozen. Approving changes nothing until it is active again." }
                }
                dl.facts-list {
                    div { dt { "Pays to" } dd { (names::wallet(approval.pay_to)) } }
                    div {
                        dt { "Why it asks" }
                        dd { (words::asked(approval.rule, approval.threshold, &agent.rules, catalog)) }
                    }
                    div { dt { "Left of the day’s cap" } dd { (left_of_day(approval.amount, waiting.day)) } }
                }
            }
            (shell.form(&format!("{path}/approve"), &html! {
                div.field.note {
                    label for=(note_id) { "Note " span.muted { "(optional; the agent can read it)" } }
                    textarea id=(note_id) name="note" rows="1" maxlength=(NOTE_MAX) {
                        (inputs.value_for("approval_id", &approval.id.to_string(), "note"))
                    }
                }
                input type="hidden" name="approval_id" value=(approval.id);
                div.verdict {
                    button.primary type="submit" { "Approve" span.sr { " " (subject(waiting)) } }
                    button.danger type="submit" formaction=(format!("{path}/reject")) {
                        "Reject" span.sr { " " (subject(waiting)) }
                    }
                }
            }))
        }
    }
}

/// Which payment a button is about, for those who hear it alone.
fn subject(waiting: &StandingApproval) -> Markup {
    html! { (super::money::dollars(waiting.approval.amount)) " of " (waiting.agent.agent().name) }
}

fn left_of_day(amount: Amount, day: Option<DayRoom>) -> Markup {
    let Some(DayRoom { cap, used }) = day else {
        return html! { span.warning { "The service is no longer enabled for this agent, so the payment will be refused." } };
    };
    if is_no_limit(cap) {
        return html! { span.nolimit { "no limit" } " on a day; " (money(used)) " spent in the last 24 hours" };
    }
    let left = cap.above(used);
    html! {
        (money(left)) " of " (money(cap))
        (bar(used, amount, cap))
        @match left.minus(amount) {
            Some(after) => p.aside { (money(after)) " would be left" },
            None => p.warning { "Not enough for this payment: even approved, it is refused until there is room again." },
        }
    }
}

fn decided_row(shell: &Shell, decided: &StandingApproval, catalog: &Catalog) -> Markup {
    let approval = &decided.approval;
    let status = approval.status(shell.now);
    let agent = decided.agent.agent();
    html! {
        li.row {
            div.row-main {
                (status_chip(status))
                " " (money(approval.amount)) " · " (names::agent(agent.id, &agent.name)) " → "
                (names::service(&ServiceRef::of(approval.service, catalog)))
            }
            div.row-aside {
                @match approval.ruling() {
                    Some(ruling) => { "decided " (relative(ruling.at, shell.now)) }
                    None => { "nobody decided; void since " (exact(approval.expires_at)) }
                }
                @if let Some(settlement) = approval.settlement() {
                    " · " a href=(super::receipt::path(approval.agent, settlement)) { "Receipt" }
                }
                @if status == ApprovalStatus::Approved {
                    " · not used yet, void " (relative(approval.expires_at, shell.now))
                }
            }
            @if let Some(note) = approval.ruling().and_then(|ruling| ruling.note.as_deref()) {
                p.quote { (note) }
            }
        }
    }
}

pub(super) fn status_chip(status: ApprovalStatus) -> Markup {
    match status {
        ApprovalStatus::Pending => html! { span.chip.wait { "waiting" } },
        ApprovalStatus::Approved => html! { span.chip.good { "approved" } },
        ApprovalStatus::Executed => html! { span.chip.good { "approved, paid" } },
        ApprovalStatus::Rejected => html! { span.chip.bad { "rejected" } },
        ApprovalStatus::Expired => html! { span.chip { "expired" } },
    }
}
