//! Approvals in lists. A pending approval is one line that unfolds to show the details and the decision form; a decided
//! approval shows the decision.

use crate::approvals::operations::{ApprovalContext, DailyUsage, PendingApproval};
use crate::approvals::queue::View;
use crate::ui::bar::bar;
use crate::ui::call;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{exact, relative};
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::Layout;
use crate::ui::money::{big_money, dollars, is_no_limit, money, spent};
use crate::ui::paths;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{Agent, AgentStatus, Amount, Approval, ApprovalStatus, Catalog, NOTE_MAX, visible};

/// The id of the form to which the list's checkboxes belong.
pub(crate) const SELECTION: &str = "selected-approvals";

/// Renders a pending approval as one line. The checkbox is outside the foldable part, so selecting an approval does not
/// unfold it.
pub(crate) fn pending(layout: &Layout, waiting: &PendingApproval, view: View, catalog: &Catalog) -> Markup {
    let approval = &waiting.approval;
    let agent = waiting.agent.agent();
    let is_typed = layout
        .inputs(FormName::ApprovalDecision)
        .is_typed_for("approval_id", &approval.id.to_string());
    html! {
        li.ask data-approval=(approval.id) {
            label.ask-select {
                input type="checkbox" name="approval" value=(approval.id) form=(SELECTION);
                span.sr { "Select " (subject(approval, agent)) }
            }
            details open[is_typed] {
                summary {
                    span.ask-line data-facts {
                        span.ask-who { span.name { (visible(&agent.name)) } @if agent.status == AgentStatus::Frozen { " " (labels::status(agent.status)) } }
                        span.ask-what { (what(approval, catalog)) }
                        span.ask-why {
                            @match &approval.raise {
                                Some(raise) => { "Higher limits: " (phrases::raise(raise.caps, raise.until)) }
                                None => (phrases::short_approval_reason(&approval.asking)),
                            }
                        }
                        span.ask-expires { "expires " (relative(approval.expires_at, layout.now)) }
                        span.ask-amount { (money(approval.amount)) }
                    }
                }
                div.unfolded {
                    div.facts data-facts { (facts(layout, approval, agent, None, catalog)) }
                    (verdict(layout, approval, agent, view))
                    p.fine {
                        a href=(paths::approval(approval.agent, approval.id)) {
                            "Limits, balance, latest payments" span.sr { " about " (subject(approval, agent)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the approval's service and operation.
pub(crate) fn what(approval: &Approval, catalog: &Catalog) -> Markup {
    html! {
        (labels::service(approval.service, catalog)) " · "
        (labels::operation(catalog.by_id(approval.service), Some(&approval.operation)))
    }
}

/// Renders the details that a decision needs. `day` is the line about the daily cap.
pub(crate) fn facts(
    layout: &Layout,
    approval: &Approval,
    agent: &Agent,
    day: Option<&Markup>,
    catalog: &Catalog,
) -> Markup {
    html! {
        div.headline {
            p.amount { (big_money(approval.amount)) }
            p.expiry {
                "asked " (relative(approval.created_at, layout.now)) " · "
                strong { "expires " (relative(approval.expires_at, layout.now)) } ", " (exact(approval.expires_at))
            }
        }
        p.what {
            (labels::agent(agent.id, &agent.name))
            @if approval.raise.is_some() { " was refused to pay " } @else { " wants to pay " } (labels::service(approval.service, catalog)) " for "
            (labels::operation(catalog.by_id(approval.service), Some(&approval.operation)))
        }
        @if agent.status == AgentStatus::Frozen {
            p.warning { "This agent is frozen. An approval has no effect until the agent is active again." }
        }
        (call::call_details(&approval.call, approval.amount))
        dl.facts-list {
            div { dt { "Requested with key" } dd { (labels::key(approval.key)) } }
            div { dt { "Pays to" } dd { (labels::wallet(approval.pay_to)) } }
            div {
                dt { "Reason" }
                dd {
                    @if approval.raise.is_some() { "Over the limit of " (money(approval.threshold)) "." }
                    @else { (phrases::approval_reason(&approval.asking, &agent.rules, catalog)) }
                }
            }
            @if let Some(raise) = &approval.raise {
                div { dt { "Asks for" } dd { strong { (phrases::raise(raise.caps, raise.until)) } } }
                div { dt { "Because" } dd { p.quote { (visible(&raise.reason)) } } }
            }
            @match approval.id.sequence() {
                0 => {}
                before => div { dt { "Asked before" } dd.warning { (count_with_noun(before, "time")) ", for the same " @if approval.raise.is_some() { "service" } @else { "call" } } }
            }
            @if let Some(day) = day { div { dt { "Daily limit" } dd { (day) } } }
        }
    }
}

/// Renders the decision form: a note, and a button each to approve and to reject.
pub(crate) fn verdict(layout: &Layout, approval: &Approval, agent: &Agent, view: View) -> Markup {
    let path = paths::approval_form(approval.agent, approval.id);
    let inputs = layout.inputs(FormName::ApprovalDecision);
    let note_id = format!("note-{}", approval.id);
    html! {
        div.decide {
            (layout.form(&view.address(&format!("{path}/approve")), &html! {
                div.field.note {
                    label for=(note_id) { "Note " span.muted { "(optional; the agent can read it)" } }
                    textarea id=(note_id) name="note" rows="1" maxlength=(NOTE_MAX) {
                        (inputs.value_for("approval_id", &approval.id.to_string(), "note"))
                    }
                }
                input type="hidden" name="approval_id" value=(approval.id);
                div.verdict {
                    button.primary type="submit" {
                        @if approval.raise.is_some() { "Raise the limits" } @else { "Approve" }
                        span.sr { " " (subject(approval, agent)) }
                    }
                    button.danger type="submit" formaction=(view.address(&format!("{path}/reject"))) {
                        "Reject" span.sr { " " (subject(approval, agent)) }
                    }
                }
            }))
        }
    }
}

/// Renders the button's payment for screen readers.
pub(crate) fn subject(approval: &Approval, agent: &Agent) -> Markup {
    html! { (dollars(approval.amount)) " of " (visible(&agent.name)) }
}

/// Renders the amount that remains of the daily cap before and after this payment.
pub(crate) fn remaining_of_day(amount: Amount, day: Option<DailyUsage>) -> Markup {
    let Some(DailyUsage { cap, used }) = day else {
        return html! { span.warning { "The service is no longer enabled for this agent, so the payment will be refused." } };
    };
    if is_no_limit(cap) {
        return html! { "none; " (spent(used)) " spent in the last 24 hours" };
    }
    let left = cap.above(used.amount);
    html! {
        @if !used.is_exact { "at least " } (money(left)) " left of " (money(cap))
        (bar(used.amount, amount, cap))
        @match left.minus(amount) {
            Some(after) => p.aside { @if !used.is_exact { "at least " } (money(after)) " would be left" },
            None if !used.is_exact => p.aside { "The exact amount is still being calculated, because many payments have left the 24-hour window." },
            None => p.warning { "Not enough for this payment. Even if approved, it is refused until enough of the daily limit is free again." },
        }
    }
}

/// Renders a decided approval.
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
                    @match &approval.raise {
                        Some(raise) => { " · " (phrases::raise(raise.caps, raise.until)) " · " }
                        None => { " · not used yet, expires " (relative(approval.expires_at, layout.now)) " · " }
                    }
                    a href=(paths::approval(approval.agent, approval.id)) {
                        "Withdraw" span.sr { " the approval of " (subject(approval, agent)) }
                    }
                }
            }
            details.fold {
                summary { "The call" }
                (call::call_details(&approval.call, approval.amount))
            }
            @if let Some(note) = approval.ruling().and_then(|ruling| ruling.note.as_deref()) {
                p.quote { (visible(note)) }
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

/// Returns the status as the pages show it.
pub(crate) const fn status_name(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Pending => "waiting",
        ApprovalStatus::Approved => "approved",
        ApprovalStatus::Executed => "approved, paid",
        ApprovalStatus::Rejected => "rejected",
        ApprovalStatus::Expired => "expired",
    }
}
