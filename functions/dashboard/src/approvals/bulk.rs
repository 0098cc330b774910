//! The decision on several approvals: a page that summarizes the selected approvals, and a page with the outcomes.
//!
//! The summary is a `GET`, so that a user can reload it and return to it after a new sign-in.

use crate::approvals::operations::{MAX_AT_ONCE, Outcome, OwnApproval, parse_decision};
use crate::approvals::row::{service_and_operation, status_chip, status_name};
use crate::sessions::session::{PageSession, VerifiedForm};
use crate::state::{People, PeopleState};
use crate::ui::count::count_with_noun;
use crate::ui::datetime::relative_time;
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::{amount_text, format_dollars};
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{
    AgentId, AgentStatus, Amount, Approval, ApprovalId, ApprovalStatus, Caps, Catalog, MAX_NOTE_CHARS, ServiceId,
    escape_hidden_characters,
};
use purser_store::ApprovalDecision;
use std::collections::BTreeMap;
use url::form_urlencoded;

/// The path of the summary, to which the decision is posted too.
pub(crate) const PAGE: &str = "/dashboard/approvals/bulk";

struct Selection {
    ids: Vec<ApprovalId>,
    decision: ApprovalDecision,
}

impl Selection {
    /// Returns `None` unless the fields have a decision and 1 to [`MAX_AT_ONCE`] approvals.
    fn parse(fields: &[u8]) -> Option<Self> {
        let (mut ids, mut decision) = (Vec::new(), None);
        for (name, value) in form_urlencoded::parse(fields) {
            match &*name {
                "approval" => {
                    let id = ApprovalId::parse(&value)?;
                    if !ids.contains(&id) {
                        ids.push(id);
                    }
                }
                "decision" => decision = parse_decision(&value),
                _ => {}
            }
        }
        let decision = decision?;
        (1..=MAX_AT_ONCE).contains(&ids.len()).then_some(Self { ids, decision })
    }
}

const fn decision_name(decision: ApprovalDecision) -> &'static str {
    match decision {
        ApprovalDecision::Approve => "approve",
        ApprovalDecision::Reject => "reject",
    }
}

const fn decision_verb(decision: ApprovalDecision) -> &'static str {
    match decision {
        ApprovalDecision::Approve => "Approve",
        ApprovalDecision::Reject => "Reject",
    }
}

fn nothing_selected_response() -> Response {
    redirect_with_notice(paths::APPROVALS, PageMessage::NothingSelected)
}

pub(crate) async fn show_bulk_summary_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let Some(selection) = Selection::parse(uri.query().unwrap_or_default().as_bytes()) else {
        return Ok(nothing_selected_response());
    };
    let layout = Layout::new(&session, people.now());
    Ok(render_bulk_approval_summary(&people, &session, &layout, &selection)
        .await?
        .into_response())
}

async fn render_bulk_approval_summary(
    people: &People,
    session: &PageSession,
    layout: &Layout,
    selection: &Selection,
) -> purser_domain::Result<Markup> {
    let selected = people.read_own_approvals(&session.person, &selection.ids);
    let (selected, edition) = tokio::try_join!(selected, people.current_catalog())?;
    let own = selected.iter().filter_map(|(_, own)| own.as_ref());
    let caps = people.read_caps_for_limit_increases(&session.person, own.map(OwnApproval::approval));
    let caps = caps.await?;
    let sum = people.sum_pending_amounts(&selected);
    let is_large = selection.decision == ApprovalDecision::Approve && people.is_large_amount(sum);
    let limit = is_large.then_some(people.limits.recent_sign_in_above);
    Ok(bulk_summary_page(
        layout,
        selection.decision,
        &selected,
        &caps,
        sum,
        limit,
        &edition.catalog,
    ))
}

pub(crate) async fn submit_bulk_decision(people: PeopleState, form: VerifiedForm) -> Reply {
    let Some(selection) = Selection::parse(form.body()) else {
        return Ok(nothing_selected_response());
    };
    let (session, mut layout) = (&form.session, Layout::new(&form.session, people.now()));
    let mut typed = form.parse_posted_form(FormName::ApprovalSelection);
    let Ok(note) = typed.parse_note() else {
        layout.typed = Some(typed);
        let page = render_bulk_approval_summary(&people, session, &layout, &selection).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let selected = people.read_own_approvals(&session.person, &selection.ids);
    let (selected, edition) = tokio::try_join!(selected, people.current_catalog())?;
    let own = selected.iter().filter_map(|(_, own)| own.as_ref());
    let names: BTreeMap<AgentId, String> = own.map(|own| (own.agent().id, own.agent().name.clone())).collect();
    let approvals = selected
        .iter()
        .filter_map(|(id, own)| Some((*id, own.as_ref()?.approval().clone())));
    let approvals: BTreeMap<ApprovalId, Approval> = approvals.collect();
    let outcomes = people.decide_approvals(&session.person, selected, selection.decision, note.as_ref());
    let results = Results {
        decision: selection.decision,
        outcomes: &outcomes.await?,
        approvals: &approvals,
        names: &names,
        catalog: &edition.catalog,
    };
    // The decisions took time, so read the time again: the page shows the approvals' statuses at `now`.
    let layout = Layout {
        now: people.now(),
        ..layout
    };
    Ok(bulk_outcome_page(&layout, &results).into_response())
}

fn bulk_summary_page(
    layout: &Layout,
    decision: ApprovalDecision,
    selected: &[(ApprovalId, Option<OwnApproval>)],
    caps: &BTreeMap<(AgentId, ServiceId), Caps>,
    sum: Amount,
    recent_sign_in_above: Option<Amount>,
    catalog: &Catalog,
) -> Markup {
    let is_pending = |own: &&OwnApproval| own.approval().status(layout.now) == ApprovalStatus::Pending;
    let (pending, closed): (Vec<&OwnApproval>, Vec<&OwnApproval>) = selected
        .iter()
        .filter_map(|(_, own)| own.as_ref())
        .partition(is_pending);
    let is_left_out = |own: &&OwnApproval| decision == ApprovalDecision::Approve && own.approval().raise.is_some();
    let (increases, pending): (Vec<&OwnApproval>, Vec<&OwnApproval>) = pending.into_iter().partition(is_left_out);
    let unknown = selected.iter().filter(|(_, own)| own.is_none()).count();
    let is_any_frozen = pending.iter().any(|own| own.agent().status == AgentStatus::Frozen);
    let title = format!(
        "{} {}",
        decision_verb(decision),
        count_with_noun(pending.len(), "payment")
    );
    let class = match decision {
        ApprovalDecision::Approve => "primary",
        ApprovalDecision::Reject => "danger",
    };
    layout.html_page(
        &title,
        NavItem::Approvals,
        &html! {
            p.crumb { a href=(paths::APPROVALS) { "Approvals" } }
            h1 { (title) }
            @if pending.is_empty() {
                p.empty { "None of the selected payments is pending." }
            } @else {
                dl.card.totals {
                    div { dt { "Payments" } dd { (pending.len()) } }
                    div { dt { "Sum" } dd { (amount_text(sum)) } }
                }
                (sums_table_by_agent_and_service(&pending, catalog))
                (pending_approval_table(layout, &pending, catalog))
                @if is_any_frozen && decision == ApprovalDecision::Approve {
                    p.warning { "An agent among these is frozen. Its payments are not made until the freeze ends." }
                }
                @if let Some(limit) = recent_sign_in_above {
                    p.hint { "The sum is above " (amount_text(limit)) ", so approving requires a recent sign-in." }
                }
            }
            @if !increases.is_empty() {
                section aria-labelledby="increases" {
                    h2 id="increases" { (count_with_noun(increases.len(), "limit increase")) ", not included" }
                    p.hint { "Grant each on its own page, where you can also grant less." }
                    ul.rows { @for own in &increases { (limit_increase_row(layout, own, caps, catalog)) } }
                }
            }
            @if !closed.is_empty() || unknown > 0 {
                section aria-labelledby="left-out" {
                    h2 id="left-out" { "Not included" }
                    ul.rows {
                        @for own in &closed {
                            li.row {
                                div.row-main {
                                    (status_chip(own.approval().status(layout.now))) " " (amount_text(own.approval().amount)) " · "
                                    (labels::agent_link(own.agent().id, &own.agent().name))
                                }
                            }
                        }
                        @if unknown > 0 { li.row { (count_with_noun(unknown, "approval")) " not found" } }
                    }
                }
            }
            @if !pending.is_empty() {
                (layout.post_form(PAGE, &html! {
                    @for own in &pending { input type="hidden" name="approval" value=(own.approval().id); }
                    input type="hidden" name="decision" value=(decision_name(decision));
                    (layout.form_inputs(FormName::ApprovalSelection).optional_text_input("note", "Note for each; the agents can read it", "", MAX_NOTE_CHARS))
                    div.actions {
                        button class=(class) type="submit" { (title) " of " (format_dollars(sum)) }
                        a.button href=(paths::APPROVALS) { "Cancel" }
                    }
                }))
            }
        },
    )
}

/// Renders a requested temporary limit increase with the current caps.
fn limit_increase_row(
    layout: &Layout,
    own_approval: &OwnApproval,
    caps: &BTreeMap<(AgentId, ServiceId), Caps>,
    catalog: &Catalog,
) -> Markup {
    let (agent, approval) = (own_approval.agent(), own_approval.approval());
    let present = caps.get(&(agent.id, approval.service)).copied();
    html! {
        li.row {
            div.row-main {
                (labels::agent_link(agent.id, &agent.name)) " → " (labels::service_name(approval.service, catalog)) ": "
                @if let Some(increase) = approval.temporary_caps() { (phrases::limit_increase_phrase(increase, present, layout.now)) }
            }
            div.row-aside { a href=(paths::approval_path(agent.id, approval.id)) { "Decide" } }
        }
    }
}

/// Renders the number and the sum of the payments per agent and service.
fn sums_table_by_agent_and_service(pending: &[&OwnApproval], catalog: &Catalog) -> Markup {
    let mut groups: BTreeMap<(&str, AgentId, ServiceId), (usize, Amount)> = BTreeMap::new();
    for own in pending {
        let (agent, approval) = (own.agent(), own.approval());
        let group = groups
            .entry((&agent.name, agent.id, approval.service))
            .or_insert((0, Amount::ZERO));
        group.0 = group.0.saturating_add(1);
        group.1 = group.1.plus(approval.amount).unwrap_or(Amount::MAX);
    }
    html! {
        table.list {
            caption.sr { "By agent and service" }
            thead { tr { th scope="col" { "Agent" } th scope="col" { "Service" } th.num scope="col" { "Payments" } th.num scope="col" { "Sum" } } }
            tbody {
                @for ((name, agent, service), (count, sum)) in &groups {
                    tr {
                        th scope="row" { (labels::agent_link(*agent, name)) }
                        td data-label="Service" { (labels::service_name(*service, catalog)) }
                        td.num data-label="Payments" { (count) }
                        td.num data-label="Sum" { (amount_text(*sum)) }
                    }
                }
            }
        }
    }
}

fn pending_approval_table(layout: &Layout, pending: &[&OwnApproval], catalog: &Catalog) -> Markup {
    html! {
        table.list {
            caption.sr { "The payments" }
            thead { tr { th scope="col" { "Agent" } th scope="col" { "Service and operation" } th scope="col" { "Reason" } th scope="col" { "Payee" } th scope="col" { "Expires" } th.num scope="col" { "Amount" } } }
            tbody {
                @for own in pending {
                    @let approval = own.approval();
                    tr {
                        th scope="row" { a href=(paths::approval_path(approval.agent, approval.id)) { (escape_hidden_characters(&own.agent().name)) } }
                        td data-label="For" { (service_and_operation(approval, catalog)) }
                        td data-label="Reason" { (phrases::short_approval_reason(&approval.asking)) }
                        td data-label="Payee" { (labels::short_wallet_address(approval.pay_to)) }
                        td data-label="Expires" { (relative_time(approval.expires_at, layout.now)) }
                        td.num data-label="Amount" { (amount_text(approval.amount)) }
                    }
                }
            }
        }
    }
}

/// What a bulk decision did with each approval. `approvals` was read before the decision.
struct Results<'a> {
    decision: ApprovalDecision,
    outcomes: &'a [(ApprovalId, Outcome)],
    approvals: &'a BTreeMap<ApprovalId, Approval>,
    names: &'a BTreeMap<AgentId, String>,
    catalog: &'a Catalog,
}

fn bulk_outcome_page(layout: &Layout, results: &Results<'_>) -> Markup {
    let is_done = |(_, outcome): &&(ApprovalId, Outcome)| matches!(outcome, Outcome::Decided(_));
    let done = results.outcomes.iter().filter(is_done).count();
    let all = results.outcomes.len();
    let word = match results.decision {
        ApprovalDecision::Approve => "approved",
        ApprovalDecision::Reject => "rejected",
    };
    let title = if done == all {
        format!("{} {word}", count_with_noun(done, "payment"))
    } else {
        format!("{done} of {} {word}", count_with_noun(all, "payment"))
    };
    layout.html_page(
        &title,
        NavItem::Approvals,
        &html! {
            p.crumb { a href=(paths::APPROVALS) { "Approvals" } }
            h1 { (title) }
            @if done > 0 && results.decision == ApprovalDecision::Approve {
                p { "Each payment is made when its agent repeats its request." }
            }
            table.list {
                caption.sr { "The outcome of each" }
                thead { tr { th scope="col" { "Agent" } th scope="col" { "Service and operation" } th scope="col" { "Outcome" } th.num scope="col" { "Amount" } } }
                tbody { @for (id, outcome) in results.outcomes { (outcome_row(layout, *id, outcome, results)) } }
            }
            p { a href=(paths::APPROVALS) { "All approvals" } }
        },
    )
}

fn outcome_row(layout: &Layout, id: ApprovalId, outcome: &Outcome, results: &Results<'_>) -> Markup {
    let Some(approval) = results.approvals.get(&id) else {
        return html! {
            tr { th scope="row" { code { (id) } } td {} td data-label="Outcome" { "not found" } td {} }
        };
    };
    let name = results.names.get(&approval.agent).map_or("", String::as_str);
    html! {
        tr {
            th scope="row" { a href=(paths::approval_path(approval.agent, id)) { (escape_hidden_characters(name)) } }
            td data-label="For" { (service_and_operation(approval, results.catalog)) }
            td data-label="Outcome" {
                @match outcome {
                    Outcome::Decided(now) => (status_chip(now.status(layout.now))),
                    Outcome::NotPending(now) => { "no change: " (status_name(now.status(layout.now))) " before" },
                    Outcome::NotInBulk(_) => "a limit increase: open it to grant it",
                    Outcome::NotFound => "not found",
                    Outcome::Failed => span.warning { "unknown: open it to see its state" },
                }
            }
            td.num data-label="Amount" { (amount_text(approval.amount)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Fingerprint;
    use uuid::Uuid;

    #[test]
    fn a_bulk_decision_selects_one_to_fifty_approvals() {
        let id = |n| {
            ApprovalId::derive(
                AgentId::from_uuid(Uuid::from_u128(1)),
                &Fingerprint::for_text(&format!("{n}")),
                0,
            )
        };
        let fields = |count: usize| {
            let ids: Vec<String> = (0..count).map(|n| format!("&approval={}", id(n))).collect();
            format!("decision=approve{}", ids.concat())
        };
        let read = |fields: &str| Selection::parse(fields.as_bytes()).map(|selection| selection.ids.len());
        for (count, expected) in [(0, None), (1, Some(1)), (50, Some(50)), (51, None)] {
            assert_eq!(read(&fields(count)), expected, "{count}");
        }
        assert_eq!(read(&format!("{}&approval={}", fields(2), id(1))), Some(2), "each once");
        for wrong in [
            "",
            "decision=approve&approval=x",
            &fields(1).replace("approve", "pay"),
            &fields(1).replace("decision", "x"),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        // A sign-in must be able to return to a summary of the maximum number of approvals.
        let address = format!("{PAGE}?{}", fields(MAX_AT_ONCE));
        assert_eq!(
            crate::sessions::destination::Destination::parse(&address).as_str(),
            address
        );
    }
}
