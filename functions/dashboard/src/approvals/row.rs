//! Renders approvals in lists: pending approvals with a decision form, and decided approvals.

use crate::approvals::operations::{ApprovalContext, DailyUsage, PendingApproval};
use crate::approvals::queue::View;
use crate::ui::bar::usage_bar;
use crate::ui::call;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{exact_time, relative_time};
use crate::ui::form::{FieldOf, Form, FormName, Inputs};
use crate::ui::labels;
use crate::ui::layout::Layout;
use crate::ui::money::{amount_text, format_dollars, is_no_limit, prominent_amount, used_amount};
use crate::ui::paths;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{
    Agent, AgentStatus, Amount, Approval, ApprovalStatus, Caps, Catalog, Duration, GrantRestriction, LimitIncrease,
    LimitIncreaseRequest, MAX_NOTE_CHARS, Timestamp, escape_hidden_characters,
};

/// The id of the form that the list's checkboxes belong to.
pub(crate) const SELECTION: &str = "selected-approvals";

/// The checkbox is outside the foldable part, so that a click on it does not unfold the approval.
pub(crate) fn pending_approval_row(
    layout: &Layout,
    pending_approval: &PendingApproval,
    view: View,
    catalog: &Catalog,
) -> Markup {
    let approval = &pending_approval.approval;
    let agent = pending_approval.agent.agent();
    let is_typed = layout
        .form_inputs(FormName::ApprovalDecision(approval.id))
        .has_posted_form();
    html! {
        li.ask data-approval=(approval.id) {
            label.ask-select {
                input type="checkbox" name="approval" value=(approval.id) form=(SELECTION);
                span.sr { "Select " (payment_description(approval, agent)) }
            }
            details open[is_typed] {
                summary {
                    span.ask-line data-facts {
                        span.ask-who { span.name { (escape_hidden_characters(&agent.name)) } @if agent.status == AgentStatus::Frozen { " " (labels::status_chip(agent.status)) } }
                        span.ask-what { (service_and_operation(approval, catalog)) }
                        span.ask-why {
                            @match &approval.raise {
                                Some(increase) => { "Higher limits: " (phrases::limit_increase_phrase(increase.temporary_caps(), pending_approval.caps, layout.now)) }
                                None => (phrases::short_approval_reason(&approval.asking)),
                            }
                        }
                        span.ask-expires { "expires " (relative_time(approval.expires_at, layout.now)) }
                        span.ask-amount { (amount_text(approval.amount)) }
                    }
                }
                div.unfolded {
                    div.facts data-facts { (approval_details(layout, approval, agent, pending_approval.caps, None, catalog)) }
                    (decision_form(layout, approval, agent, view))
                    p.fine {
                        a href=(paths::approval_path(approval.agent, approval.id)) {
                            "Limits, balance, latest payments" span.sr { " about " (payment_description(approval, agent)) }
                        }
                    }
                }
            }
        }
    }
}

pub(crate) fn service_and_operation(approval: &Approval, catalog: &Catalog) -> Markup {
    html! {
        (labels::service_name(approval.service, catalog)) " · "
        (labels::operation_name(catalog.find_by_id(approval.service), Some(&approval.operation)))
    }
}

/// Renders the details of an approval. `daily_cap_text` is the rendered text about the remaining part of the daily cap.
pub(crate) fn approval_details(
    layout: &Layout,
    approval: &Approval,
    agent: &Agent,
    caps: Option<Caps>,
    daily_cap_text: Option<&Markup>,
    catalog: &Catalog,
) -> Markup {
    html! {
        div.headline {
            p.amount { (prominent_amount(approval.amount)) }
            p.expiry {
                "asked " (relative_time(approval.created_at, layout.now)) " · "
                strong { "expires " (relative_time(approval.expires_at, layout.now)) } ", " (exact_time(approval.expires_at))
            }
        }
        p.what {
            (labels::agent_link(agent.id, &agent.name))
            @if approval.raise.is_some() { " was refused to pay " } @else { " wants to pay " } (labels::service_name(approval.service, catalog)) " for "
            (labels::operation_name(catalog.find_by_id(approval.service), Some(&approval.operation)))
        }
        @if agent.status == AgentStatus::Frozen {
            p.warning { "This agent is frozen. An approval has no effect until the agent is active again." }
        }
        (call::call_details(&approval.call, approval.amount))
        dl.facts-list {
            div { dt { "Requested with key" } dd { (labels::key_suffix(approval.key)) } }
            div { dt { "Pays to" } dd { (labels::wallet_address(approval.pay_to)) } }
            div {
                dt { "Reason" }
                dd {
                    @if approval.raise.is_some() { "Over the limit of " (amount_text(approval.threshold)) "." }
                    @else { (phrases::approval_reason(&approval.asking, &agent.rules, catalog)) }
                }
            }
            @if let Some(increase) = &approval.raise {
                div { dt { "Asks for" } dd { strong { (phrases::limit_increase_phrase(increase.temporary_caps(), caps, layout.now)) } } }
                div { dt { "Because" } dd { p.quote { (escape_hidden_characters(&increase.reason)) } } }
            }
            @match approval.id.sequence() {
                0 => {}
                before => div { dt { "Asked before" } dd.warning { (count_with_noun(before, "time")) ", for the same " @if approval.raise.is_some() { "service" } @else { "call" } } }
            }
            @if let Some(daily_cap_text) = daily_cap_text { div { dt { "Daily limit" } dd { (daily_cap_text) } } }
        }
    }
}

pub(crate) fn decision_form(layout: &Layout, approval: &Approval, agent: &Agent, view: View) -> Markup {
    let path = paths::approval_form_path(approval.agent, approval.id);
    let inputs = layout.form_inputs(FormName::ApprovalDecision(approval.id));
    let note_id = format!("note-{}", approval.id);
    html! {
        div.decide {
            (layout.post_form(&view.url(&format!("{path}/approve")), &html! {
                div.field.note {
                    label for=(note_id) { "Note " span.muted { "(optional; the agent can read it)" } }
                    textarea id=(note_id) name="note" rows="1" maxlength=(MAX_NOTE_CHARS) {
                        (inputs.posted_value("note"))
                    }
                }
                @if let Some(raise) = &approval.raise { (restriction_inputs(&inputs, raise, layout.now)) }
                div.verdict {
                    button.primary type="submit" {
                        @if approval.raise.is_some() { "Raise the limits" } @else { "Approve" }
                        span.sr { " " (payment_description(approval, agent)) }
                    }
                    button.danger type="submit" formaction=(view.url(&format!("{path}/reject"))) {
                        "Reject" span.sr { " " (payment_description(approval, agent)) }
                    }
                }
            }))
        }
    }
}

/// Renders the inputs with which the owner grants lower caps or an earlier end than the agent requests.
fn restriction_inputs(inputs: &Inputs<'_>, increase: &LimitIncreaseRequest, now: Timestamp) -> Markup {
    let hint = "At most what the agent asks for. 0 leaves the limit as it is.";
    html! {
        @if let Some(cap) = increase.caps.max_per_call { (inputs.dollars_input("max_per_call", "Per call", hint, Some(cap))) }
        @if let Some(cap) = increase.caps.max_per_day { (inputs.dollars_input("max_per_day", "Per day", hint, Some(cap))) }
        (inputs.number_input("hours", "For at most this many hours", increase.until.since(now).secs().div_ceil(3_600)))
    }
}

/// The JSON fields of a restriction, with their labels.
pub(crate) const RESTRICTION_FIELDS: [FieldOf; 3] = [
    ("max_per_call_units", "max_per_call", "Per call"),
    ("max_per_day_units", "max_per_day", "Per day"),
    ("until", "hours", "Hours"),
];

/// Parses the caps and the end that the owner grants.
pub(crate) fn parse_restriction(form: &mut Form, increase: &LimitIncreaseRequest, now: Timestamp) -> GrantRestriction {
    let caps = increase.caps;
    let longest = u32::try_from(LimitIncrease::MAX_DURATION.secs() / 3_600).unwrap_or(u32::MAX);
    let hours = form.parse_number("hours", "Hours", 1, longest);
    let end = hours.map(|hours| now.after(Duration::from_secs_u32(hours.saturating_mul(3_600))));
    GrantRestriction {
        max_per_call: caps
            .max_per_call
            .and_then(|_| form.parse_dollars("max_per_call", "Per call")),
        max_per_day: caps
            .max_per_day
            .and_then(|_| form.parse_dollars("max_per_day", "Per day")),
        until: end.map(|end| end.min(increase.until)),
    }
}

/// Names the payment for screen readers, after the label of a control such as the "Reject" button.
pub(crate) fn payment_description(approval: &Approval, agent: &Agent) -> Markup {
    html! { (format_dollars(approval.amount)) " of " (escape_hidden_characters(&agent.name)) }
}

/// Renders the amount that remains of the daily cap before and after this payment.
pub(crate) fn remaining_daily_cap(amount: Amount, daily_usage: Option<DailyUsage>) -> Markup {
    let Some(DailyUsage { caps, used }) = daily_usage else {
        return html! { span.warning { "The service is no longer enabled for this agent, so the payment will be refused." } };
    };
    let cap = caps.per_day;
    if is_no_limit(cap) {
        return html! { "none; " (used_amount(used)) " spent in the last 24 hours" };
    }
    let left = cap.saturating_minus(used.amount);
    html! {
        @if !used.is_exact { "at least " } (amount_text(left)) " left of " (amount_text(cap))
        (usage_bar(used.amount, amount, cap))
        @match left.minus(amount) {
            Some(after) => p.aside { @if !used.is_exact { "at least " } (amount_text(after)) " would be left" },
            None if !used.is_exact => p.aside { "The exact amount is still being calculated, because many payments have left the 24-hour window." },
            None => p.warning { "Not enough for this payment. Even if approved, it is refused until enough of the daily limit is free again." },
        }
    }
}

pub(crate) fn decided_approval_row(layout: &Layout, context: &ApprovalContext, catalog: &Catalog) -> Markup {
    let approval = &context.approval;
    let status = approval.status(layout.now);
    let agent = context.agent.agent();
    html! {
        li.row {
            div.row-main {
                (status_chip(status))
                " " (amount_text(approval.amount)) " · " (labels::agent_link(agent.id, &agent.name)) " → "
                (labels::service_name(approval.service, catalog))
            }
            div.row-aside {
                @match approval.users_decision() {
                    Some(resolution) => { "decided " (relative_time(resolution.at, layout.now)) }
                    None => { "nobody decided; expired " (exact_time(approval.expires_at)) }
                }
                @if let Some(settlement) = approval.settlement_id() {
                    " · " a href=(paths::receipt_path(approval.agent, settlement)) { "Receipt" }
                }
                @if status == ApprovalStatus::Approved {
                    @match approval.temporary_caps() {
                        Some(increase) => { " · " (phrases::limit_increase_phrase(increase, None, layout.now)) " · " }
                        None => { " · not used yet, expires " (relative_time(approval.expires_at, layout.now)) " · " }
                    }
                    a href=(paths::approval_path(approval.agent, approval.id)) {
                        "Withdraw" span.sr { " the approval of " (payment_description(approval, agent)) }
                    }
                }
            }
            details.fold {
                summary { "The call" }
                (call::call_details(&approval.call, approval.amount))
            }
            @if let Some(note) = approval.users_decision().and_then(|resolution| resolution.note.as_deref()) {
                p.quote { (escape_hidden_characters(note)) }
            }
        }
    }
}

pub(crate) fn status_chip(status: ApprovalStatus) -> Markup {
    let text = status_name(status);
    match status {
        ApprovalStatus::Pending => html! { span.chip.wait { (text) } },
        ApprovalStatus::Approved | ApprovalStatus::Executed => html! { span.chip.good { (text) } },
        ApprovalStatus::Rejected => html! { span.chip.bad { (text) } },
        ApprovalStatus::Expired => html! { span.chip { (text) } },
    }
}

pub(crate) const fn status_name(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Pending => "waiting",
        ApprovalStatus::Approved => "approved",
        ApprovalStatus::Executed => "approved, paid",
        ApprovalStatus::Rejected => "rejected",
        ApprovalStatus::Expired => "expired",
    }
}
