//! The page of one approval, to which notifications link.

use crate::agents::form::AgentForm;
use crate::agents::owned::require_id;
use crate::approvals::api::AlwaysBody;
use crate::approvals::background::{Background, PayeeHistory};
use crate::approvals::operations::{ApprovalContext, OwnApproval};
use crate::approvals::page::approval_not_pending_message;
use crate::approvals::queue::View;
use crate::approvals::raise::{LimitToRaise, RaisedAndApproved};
use crate::approvals::row;
use crate::sessions::session::PageSession;
use crate::state::{People, PeopleState};
use crate::ui::datetime::relative_time;
use crate::ui::form::{Form, FormName};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem, version_input};
use crate::ui::money::amount_text;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use crate::ui::phrases;
use axum::{
    extract::Path,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Failure, Reply};
use purser_domain::{
    AgentId, ApprovalException, ApprovalId, ApprovalStatus, Catalog, Duration, ErrorKind, HistoryEntry, Labels,
    LoggedDecision, Result, Timestamp,
};

pub(crate) async fn show_approval_page(
    people: PeopleState,
    session: PageSession,
    Path((agent, approval)): Path<(String, String)>,
    uri: Uri,
) -> Reply {
    let (agent, approval) = (
        require_id(AgentId::parse(&agent))?,
        require_id(ApprovalId::parse(&approval))?,
    );
    let owned = people.read_own_agent(&session.person, agent).await?;
    let own = people.read_own_approval(owned, approval).await?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(approval_page_response(&people, &layout, own).await?)
}

pub(crate) async fn submit_approval_with_raised_limit(request: AgentForm) -> Reply {
    approve_and_change_limits(request, false).await
}

pub(crate) async fn submit_approval_with_exception(request: AgentForm) -> Reply {
    approve_and_change_limits(request, true).await
}

/// Approves the payment, and adds an exception (`is_always`) or raises the limit.
async fn approve_and_change_limits(request: AgentForm, is_always: bool) -> Reply {
    let id = request.parse_path_parameter("approval", ApprovalId::parse)?;
    let (mut form, mut layout) = (
        request.parse_posted_form(FormName::ApprovalDecision(id)),
        request.page_layout(),
    );
    let people = &request.people;
    let always = is_always.then(|| parse_exception(&mut form, people.now()));
    let reason = request.agent_with_update_reason(&mut form);
    let own = people
        .read_own_approval(reason.clone().unwrap_or_else(|| request.owned.clone()), id)
        .await?;
    let (note, if_match) = (form.parse_note(), form.parse_version());
    let (Some(_), Ok(note), Some(if_match), false) = (reason, note, if_match, form.has_errors()) else {
        layout.typed = Some(form);
        return Ok((
            StatusCode::BAD_REQUEST,
            approval_page_response(people, &layout, own).await?,
        )
            .into_response());
    };
    let page = paths::approval_path(own.agent().id, id);
    let approved = if let Some(always) = always.flatten() {
        let approved = people.approve_always(own, if_match, &always, note.as_ref()).await;
        approved.map(|_| (RaisedAndApproved::Both, PageMessage::ApprovedAlways))
    } else {
        let raised = people.raise_limit_and_approve(own, if_match, note.as_ref()).await;
        raised.map(|raised| (raised, PageMessage::ApprovedAndRaised))
    };
    let status = match approved {
        Ok((RaisedAndApproved::Both, message)) => return Ok(redirect_with_notice(&page, message)),
        Ok((RaisedAndApproved::LimitOnly(status), _)) => {
            layout.problem = Some(format!(
                "The limit was raised. {}",
                approval_not_pending_message(status)
            ));
            StatusCode::CONFLICT
        }
        Err(error) => {
            let failure = Failure::from(error);
            layout.problem = Some(match failure.error().kind() {
                ErrorKind::ApprovalNotPending { status, .. } => approval_not_pending_message(*status).to_owned(),
                ErrorKind::VersionConflict { .. } => CHANGED.to_owned(),
                ErrorKind::InvalidRequest(errors) if is_always => {
                    let errors = errors.iter().map(|error| format!("Always allow: {}.", error.message));
                    errors.collect::<Vec<_>>().join(" ")
                }
                _ => return Err(failure),
            });
            failure.status()
        }
    };
    let own = people.read_own_approval(request.owned, id).await?;
    Ok((status, approval_page_response(people, &layout, own).await?).into_response())
}

pub(crate) async fn submit_approval_withdrawal(form: AgentForm) -> Reply {
    let id = form.parse_path_parameter("approval", ApprovalId::parse)?;
    let mut layout = form.page_layout();
    let people = &form.people;
    let own = people.read_own_approval(form.owned.clone(), id).await?;
    let page = paths::approval_path(own.agent().id, id);
    let Err(error) = people.withdraw_approval(own, None).await else {
        return Ok(redirect_with_notice(&page, PageMessage::ApprovalWithdrawn));
    };
    let failure = Failure::from(error);
    let ErrorKind::ApprovalNotPending { status, .. } = failure.error().kind() else {
        return Err(failure);
    };
    layout.problem = Some(too_late_to_withdraw_message(*status).to_owned());
    let own = people.read_own_approval(form.owned, id).await?;
    Ok((failure.status(), approval_page_response(people, &layout, own).await?).into_response())
}

const CHANGED: &str = "The limits were changed after you opened the page, so nothing was approved. The page shows the current limits. Please decide again.";

const fn too_late_to_withdraw_message(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Pending | ApprovalStatus::Approved => "Nothing was withdrawn. Please try again.",
        ApprovalStatus::Executed => "The payment was already made, so its approval can’t be withdrawn.",
        ApprovalStatus::Rejected => "That payment was already rejected.",
        ApprovalStatus::Expired => "That approval has expired. Nothing can be paid with it.",
    }
}

async fn approval_page_response(people: &People, layout: &Layout, owned_approval: OwnApproval) -> Result<Response> {
    let is_open = owned_approval.approval().status(layout.now) == ApprovalStatus::Pending;
    let more = async {
        if is_open {
            let (background, increase) = tokio::try_join!(
                people.read_approval_background(&owned_approval),
                people.find_limit_to_raise(owned_approval.owned_agent(), owned_approval.approval())
            )?;
            Ok(Some((background, increase)))
        } else {
            Ok(None)
        }
    };
    let (more, edition) = tokio::try_join!(more, people.current_catalog())?;
    let context = people.read_approval_context(owned_approval).await?;
    Ok(approval_page(layout, &context, more.as_ref(), &edition.catalog).into_response())
}

fn approval_page(
    layout: &Layout,
    context: &ApprovalContext,
    open_approval: Option<&(Background, Option<LimitToRaise>)>,
    catalog: &Catalog,
) -> Markup {
    let (approval, agent) = (&context.approval, context.agent.agent());
    let is_raise = approval.raise.is_some();
    let caps = context.day.map(|day| day.caps);
    let day = (!is_raise).then(|| row::remaining_daily_cap(approval.amount, context.day));
    layout.html_page(
        "Approval",
        NavItem::Approvals,
        &html! {
            p.crumb { a href=(paths::APPROVALS) { "Approvals" } }
            h1 { @if open_approval.is_some() { "Waiting for you" } @else { "Approval" } }
            @match open_approval {
                Some((background, increase)) => {
                    div.card.waiting {
                        div.facts { (row::approval_details(layout, approval, agent, caps, day.as_ref(), catalog)) }
                        (balance_and_payee_section(layout, context, background))
                        (row::decision_form(layout, approval, agent, View::default()))
                        @if let Some(increase) = increase { (approve_and_raise_limit_form(layout, context, increase, catalog)) }
                        @if approval.allows_exception() { (approve_always_form(layout, context, catalog)) }
                    }
                    (latest_decisions(layout, &background.latest, catalog))
                }
                None => {
                    ul.rows { (row::decided_approval_row(layout, context, catalog)) }
                    @if approval.status(layout.now) == ApprovalStatus::Approved { (approval_withdrawal_form(layout, context)) }
                }
            }
        },
    )
}

/// Renders the wallet's balance and the agent's earlier payments to the payee.
fn balance_and_payee_section(layout: &Layout, context: &ApprovalContext, background: &Background) -> Markup {
    let PayeeHistory {
        count,
        last,
        of,
        is_all,
    } = background.payee;
    html! {
        dl.facts-list {
            div {
                dt { "Wallet’s balance" }
                dd {
                    @match background.balance {
                        None => span.muted { "can’t be read at the moment" },
                        Some(balance) => {
                            (amount_text(balance))
                            @if balance < context.approval.amount { p.warning { "Not enough for this payment." } }
                        }
                    }
                }
            }
            div {
                dt { "Payee" }
                dd {
                    @match last {
                        None if is_all => strong.warning { "First payment to this payee by this agent" },
                        None => strong.warning { "First payment to this payee among this agent’s latest " (of) },
                        Some(last) => {
                            "Paid " @if count == 1 { "once" } @else { (count) " times" }
                            @if !is_all { " among this agent’s latest " (of) " payments" }
                            ", last " (relative_time(last, layout.now))
                        }
                    }
                }
            }
        }
    }
}

fn approve_and_raise_limit_form(
    layout: &Layout,
    context: &ApprovalContext,
    increase: &LimitToRaise,
    catalog: &Catalog,
) -> Markup {
    let approval = &context.approval;
    let path = paths::approval_form_path(approval.agent, approval.id);
    html! {
        details.fold {
            summary { "Approve and raise the limit" }
            (layout.post_form(&format!("{path}/approve-and-raise"), &html! {
                p {
                    @if increase.is_rule_limit() { "The approval rule of this agent" }
                    @else { "The approval threshold of " (labels::service_name(approval.service, catalog)) " for this agent" }
                    ": "
                    @match increase.from { Some(from) => (amount_text(from)), None => "every payment" }
                    " → " strong { (amount_text(increase.to)) }
                    ". Payments up to this amount are then made without asking."
                }
                p.hint { "Requires a recent sign-in." }
                (layout.form_inputs(FormName::ApprovalDecision(approval.id)).update_reason_input())
                (version_input(increase.version))
                button type="submit" { span { "Approve and raise to " (amount_text(increase.to)) } }
            }))
        }
    }
}

fn parse_exception(form: &mut Form, now: Timestamp) -> Option<AlwaysBody> {
    let amount = form.parse_dollars("max_amount", "Up to");
    let max_days = ApprovalException::MAX_DURATION.secs() / 86_400;
    let days = form.parse_number("days", "Days", 1, u32::try_from(max_days).unwrap_or(1));
    let (max_amount_units, days) = amount.zip(days)?;
    let until = now.after(Duration::from_secs_u32(days.saturating_mul(86_400)));
    Some(AlwaysBody {
        max_amount_units,
        until,
    })
}

/// Renders the form that approves the payment and excepts further payments to the payee from approvals.
fn approve_always_form(layout: &Layout, context: &ApprovalContext, catalog: &Catalog) -> Markup {
    let approval = &context.approval;
    let path = paths::approval_form_path(approval.agent, approval.id);
    let inputs = layout.form_inputs(FormName::ApprovalDecision(approval.id));
    html! {
        details.fold open[!inputs.posted_value("days").is_empty()] {
            summary { "Approve and always allow" }
            (layout.post_form(&format!("{path}/approve-always"), &html! {
                p {
                    "Payments of this agent with the key " code { (approval.key) } " for " code { (approval.operation) } " to "
                    (labels::wallet_address(approval.pay_to)) " at " (labels::service_name(approval.service, catalog))
                    " then need no approval for these reasons, up to this amount each:"
                }
                @let waived: Vec<_> = approval.asking.iter().copied().filter(ApprovalException::can_waive).collect();
                p { (phrases::approval_reason(&waived, &context.agent.agent().rules, catalog)) }
                p {
                    "Budgets, caps and every other limit still apply, and every rule that you add later. You can remove the "
                    "exception in the agent’s rules."
                }
                (inputs.dollars_input("max_amount", "Up to", "At most the amount of this payment.", Some(approval.amount)))
                (inputs.number_input("days", "For this many days, at most 90", 30))
                p.hint { "Requires a recent sign-in." }
                (version_input(context.agent.agent().version))
                button type="submit" { "Approve and always allow" }
            }))
        }
    }
}

fn approval_withdrawal_form(layout: &Layout, context: &ApprovalContext) -> Markup {
    let approval = &context.approval;
    let path = paths::approval_form_path(approval.agent, approval.id);
    html! {
        @if approval.raise.is_some() {
            (layout.button_form(&format!("{path}/withdraw"), &Button::danger(
                "End the higher limits",
                "End the higher limits now? The limits of the policy then apply again.",
            )))
        } @else {
            p { "The agent has not used this approval yet." }
            (layout.button_form(&format!("{path}/withdraw"), &Button::danger(
                "Withdraw approval",
                "Withdraw this approval? The agent can then no longer pay with it.",
            )))
        }
    }
}

/// Renders the agent's latest decisions. A denied payment links to the limit that denied it.
fn latest_decisions(layout: &Layout, decisions: &[LoggedDecision], catalog: &Catalog) -> Markup {
    html! {
        section aria-labelledby="latest-title" {
            h2 id="latest-title" { "Latest payments of this agent" }
            @if decisions.is_empty() {
                p.empty { "This agent has not requested a payment before." }
            } @else {
                ul.rows { @for decision in decisions { (latest_decision_row(layout, decision, catalog)) } }
            }
        }
    }
}

fn latest_decision_row(layout: &Layout, decision: &LoggedDecision, catalog: &Catalog) -> Markup {
    let (amount, at, receipt, limit) = match decision {
        LoggedDecision::Allowed(settlement) | LoggedDecision::PaidOut(settlement) => {
            let terms = &settlement.terms;
            let receipt = paths::receipt_path(terms.agent, terms.id);
            (terms.amount, terms.authorized_at, Some(receipt), None)
        }
        LoggedDecision::Refused(denial) => {
            let entry = HistoryEntry::new(decision, "", &Labels::default());
            (denial.amount, denial.at, None, phrases::denying_limit_url(&entry))
        }
        LoggedDecision::ConfirmationReverted(reverted) => {
            let receipt = paths::receipt_path(reverted.agent, reverted.settlement);
            (reverted.amount, reverted.at, Some(receipt), None)
        }
    };
    html! {
        li.row {
            div.row-main {
                (labels::result_chip(decision.result())) " " (amount_text(amount))
                @if let Some(service) = decision.service_id() { " → " (labels::service_name(service, catalog)) }
            }
            div.row-aside {
                (relative_time(at, layout.now))
                @if let Some(receipt) = receipt { " · " a href=(receipt) { "Receipt" } }
                @if let Some(limit) = limit { " · " a href=(limit) { "See the limit" } }
            }
        }
    }
}
