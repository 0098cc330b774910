//! The preview of an update, shown above the update's form.

use crate::preview::operations::UpdatePreview;
use crate::preview::trial::Trial;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::{exact_time, format_duration};
use crate::ui::form::Inputs;
use crate::ui::labels;
use crate::ui::layout::Layout;
use crate::ui::money::{amount_text, column_amount, format_dollars};
use crate::ui::paths;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{
    Amount, BacktestResult, Catalog, ChangedDecisionKind, ChangedDecisions, Comparison, Counterexample, DecisionResult,
    Differences, ExampleHistory, RuleFinding, Timestamp, Verdict,
};

/// Renders the buttons that try out a form's values instead of saving them.
pub(crate) fn preview_and_test_buttons(action: &str) -> Markup {
    let button = |trial: Trial, label: &str| {
        let action = format!("{action}?{}=true", trial.name());
        html! { button type="submit" formaction=(action) { (label) } }
    };
    html! {
        (button(Trial::Preview, "Preview"))
        (button(Trial::Shadow, "Try in shadow"))
        (button(Trial::Backtest, "Backtest 30 days"))
    }
}

pub(crate) fn update_preview_section(layout: &Layout, inputs: &Inputs<'_>) -> Markup {
    html! {
        @if let Some(preview) = layout.preview.as_ref().filter(|_| inputs.has_posted_form()) {
            div.message.preview role="status" tabindex="-1" data-problem { (preview) }
        }
    }
}

pub(crate) fn preview_content(preview: &UpdatePreview, catalog: &Catalog) -> Markup {
    html! {
        (limit_change_summary(&preview.comparison, true))
        (finding_list(preview.findings.iter(), catalog))
        @if preview.result.decisions == 0 {
            p { "No decision of the last " (count_with_noun(preview.days.count(), "day")) " to compare with." }
        } @else {
            (backtest_result(&preview.result, preview.from))
        }
        @if preview.is_partial { p.muted { "There are more decisions than a preview reads." } }
    }
}

/// Renders nothing if there are no findings.
pub(crate) fn finding_list<'a>(findings: impl ExactSizeIterator<Item = &'a RuleFinding>, catalog: &Catalog) -> Markup {
    html! {
        @if findings.len() > 0 {
            ul.findings {
                @for finding in findings {
                    li {
                        @if let Some(rule) = &finding.rule { (phrases::rule_sentence(&rule.kind, catalog)) }
                        @if let Some(service) = finding.service { (labels::service_name(service, catalog)) }
                        " " em { (finding.message) }
                        @if let Some(other) = &finding.other { ": " (phrases::rule_sentence(&other.kind, catalog)) }
                    }
                }
            }
        }
    }
}

pub(crate) fn limit_change_summary(comparison: &Comparison, is_preview: bool) -> Markup {
    html! {
        p {
            @if is_preview { strong { "Preview. " } }
            @match (comparison.widens, comparison.narrows) {
                (false, false) => "These settings allow and refuse the same as now.",
                (true, false) => "The agent could do more than now.",
                (false, true) => "The agent could do less than now.",
                (true, true) => "The agent could do more than now in some ways, and less in others.",
            }
            @if is_preview { " Nothing is saved yet." }
        }
        @if comparison.widened.is_some() || comparison.narrowed.is_some() {
            ul {
                @if let Some(example) = &comparison.widened { li { (counterexample_text(example)) } }
                @if let Some(example) = &comparison.narrowed { li { (counterexample_text(example)) } }
            }
        }
    }
}

fn counterexample_text(counterexample: &Counterexample) -> Markup {
    html! {
        "A call of " code { (counterexample.operation) } " of " strong { (counterexample.service) } " for " (amount_text(counterexample.amount))
        @if let Some(key) = counterexample.key { ", with the key " code { (key.to_string()) } "," }
        @if let Some(host) = &counterexample.host { ", for a page of " code { (host) } "," }
        (example_history_text(&counterexample.history))
        @if let Some(at) = counterexample.at { ", at " (exact_time(at)) "," }
        " is now " (decision_result_text(&counterexample.before)) ", and would be " (decision_result_text(&counterexample.now)) "."
    }
}

/// Describes the payments that the agent made before the example request.
fn example_history_text(history: &ExampleHistory) -> Markup {
    let ago = if history.ago.secs() == 0 {
        html! { "just before," }
    } else {
        html! { (format_duration(history.ago)) " before," }
    };
    html! {
        @if !history.spent.is_zero() { ", with " (amount_text(history.spent)) " spent " (ago) }
        @if history.calls > 0 { ", with " (count_with_noun(history.calls, "call")) " paid " (ago) }
        @if history.is_repeated { ", the same as a call " (ago) }
        @if history.is_new_payee { ", to a payee that the agent never paid," }
        @if let Some(price) = history.usual_price { ", where the last calls cost " (amount_text(price)) " each," }
    }
}

fn decision_result_text(verdict: &Verdict) -> Markup {
    html! {
        @match verdict.result {
            DecisionResult::Allow => "allowed",
            DecisionResult::Escalate => "a question to you",
            DecisionResult::Block | DecisionResult::RevertConfirmation | DecisionResult::Payout => {
                "blocked" @if let Some(check) = verdict.check { " (" (check.label()) ")" }
            }
        }
    }
}

/// Renders which recorded decisions since `since` the tested limits would change.
pub(crate) fn backtest_result(result: &BacktestResult, since: Timestamp) -> Markup {
    let BacktestResult {
        decisions,
        untested,
        if_declined,
        if_approved,
        ..
    } = result;
    let asks = if_declined != if_approved;
    html! {
        @if *decisions == 0 {
            p { "There is no decision since " (exact_time(since)) " to compare with." }
        } @else if if_declined.is_empty() && if_approved.is_empty() {
            p { "None of the " (count_with_noun(*decisions, "decision")) " since " (exact_time(since)) " would have been different." }
        } @else {
            p {
                "Of the " (count_with_noun(*decisions, "decision")) " since " (exact_time(since)) ", "
                (if_declined.count_changed()) " would have been different. "
                @if asks { "If you had declined what it asks for: " } @else { "Spending: " }
                (spend_difference_text(if_declined)) "."
                @if asks { " If you had approved it: " (spend_difference_text(if_approved)) "." }
            }
            (changed_decisions_table(if_declined))
        }
        @if *untested > 0 {
            p.muted { (count_with_noun(*untested, "decision")) " can’t be tested, such as those about rejected approvals." }
        }
    }
}

fn spend_difference_text(differences: &Differences) -> Markup {
    let sum = |units| format_dollars(Amount::from_units(units).unwrap_or(Amount::MAX));
    html! { (sum(differences.saved)) " less, " (sum(differences.added)) " more" }
}

fn changed_decisions_table(differences: &Differences) -> Markup {
    html! {
        table.checks {
            caption.sr { "Decisions that would have been different" }
            thead {
                tr { th scope="col" { "Was" } th scope="col" { "Would be" } th.num scope="col" { "Decisions" } th.num scope="col" { "Amount" } th scope="col" { "Example" } }
            }
            tbody { @for (kind, changed_decisions) in &differences.flips { (changed_decisions_row(kind, changed_decisions)) } }
        }
    }
}

fn changed_decisions_row(kind: &ChangedDecisionKind, changed_decisions: &ChangedDecisions) -> Markup {
    let sum = Amount::from_units(changed_decisions.amount).unwrap_or(Amount::MAX);
    let reason = kind.reason.split(':').next().unwrap_or_default().replace('_', " ");
    html! {
        tr {
            td { (kind.recorded.label()) @if kind.tested == DecisionResult::Allow { ": " (reason) } }
            td { (kind.tested.label()) @if kind.tested != DecisionResult::Allow { ": " (reason) } }
            td.num { (changed_decisions.count) }
            td.num { (column_amount(sum)) }
            td { a href=(paths::decision_path(changed_decisions.example.agent, changed_decisions.example.transaction)) { (exact_time(changed_decisions.example.at)) } }
        }
    }
}
