//! The rules on an agent's page, each shown as a sentence, with forms to change them.

use crate::agents::contents::AgentPage;
use crate::history;
use crate::preview::section as preview;
use crate::rules::form::{draw_rule_inputs, has_form};
use crate::rules::operations::RuleUsage;
use crate::ui::bar::usage_bar;
use crate::ui::form::FormName;
use crate::ui::layout::{Button, Layout, version_input};
use crate::ui::money::used_amount;
use crate::ui::phrases;
use maud::{Markup, html};
use purser_domain::{Amount, RuleKind, RuleKindName};

pub(crate) fn rules_section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    html! {
        section id="rules" aria-labelledby="rules-title" {
            div.section-head {
                h2 id="rules-title" { "Rules " span.muted { "over all services" } }
                a href=(history::page::rule_report_path(page.agent.id, None, "7")) { "History and decisions" }
            }
            @if page.rules.is_empty() {
                p.empty { "No rules. Add a rule for limits that apply to all services." }
            }
            ul.panels { @for usage in &page.rules { (rule_item(layout, page, usage, path)) } }
            (preview::finding_list(page.findings.iter(), page.catalog))
            div.adders { @for kind in RuleKindName::ALL.iter().filter(|kind| has_form(**kind)) { (add_rule_form(layout, page, *kind, path)) } }
        }
    }
}

fn rule_item(layout: &Layout, page: &AgentPage<'_>, usage: &RuleUsage, path: &str) -> Markup {
    let rule = &usage.rule;
    let inputs = layout.form_inputs(FormName::Rule(rule.id));
    let kind = Some(rule.kind.kind_name()).filter(|kind| has_form(*kind));
    html! {
        li.panel {
            details id=(format!("rule-{}", rule.id)) open[inputs.has_posted_form()] {
                summary {
                    span.panel-name { span.chip { (rule.kind.kind_name().label()) } }
                    span.limits { span { (phrases::rule_sentence(&rule.kind, page.catalog)) } }
                    @if let (RuleKind::BudgetLimit(budget), Some(used)) = (&rule.kind, usage.used) {
                        span.panel-spend {
                            (usage_bar(used.amount, Amount::ZERO, budget.limit))
                            span.figures { (used_amount(used)) " used" }
                        }
                    }
                    @if let (RuleKind::CountLimit(limit), Some(used)) = (&rule.kind, usage.used) {
                        span.panel-spend { span.figures { (used.amount.units()) " of " (limit.count) " used" } }
                    }
                    span.edit aria-hidden="true" { @if kind.is_some() { "Edit" } @else { "Remove" } }
                }
                div.unfolded {
                    @if let Some(kind) = kind {
                        (preview::update_preview_section(layout, &inputs))
                        (layout.post_form(&format!("{path}/rules/{}", rule.id), &html! {
                            (version_input(page.agent.version))
                            input type="hidden" name="kind" value=(kind.name());
                            (draw_rule_inputs(&inputs, page, kind, Some(&rule.kind)))
                            (inputs.update_reason_input())
                            div.actions {
                                button.primary type="submit" { "Save rule" }
                                (preview::preview_and_test_buttons(&format!("{path}/rules/{}", rule.id)))
                            }
                        }))
                    }
                    (layout.button_form(&format!("{path}/rules/{}/remove", rule.id), &Button::danger(
                        "Remove rule",
                        "Remove this rule? It does not apply to the next payment.",
                    ).with_version(page.agent.version).with_reason_input()))
                }
            }
        }
    }
}

fn add_rule_form(layout: &Layout, page: &AgentPage<'_>, kind: RuleKindName, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::NewRule(kind));
    html! {
        details.pop.wide open[inputs.has_posted_form()] {
            summary.button { "+ " (kind.label()) }
            div.pop-body {
                (preview::update_preview_section(layout, &inputs))
                (layout.post_form(&format!("{path}/rules"), &html! {
                    (version_input(page.agent.version))
                    input type="hidden" name="kind" value=(kind.name());
                    (draw_rule_inputs(&inputs, page, kind, None))
                    (inputs.update_reason_input())
                    div.actions {
                        button.primary type="submit" { "Add rule" }
                        (preview::preview_and_test_buttons(&format!("{path}/rules")))
                    }
                }))
            }
        }
    }
}
