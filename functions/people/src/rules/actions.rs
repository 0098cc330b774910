//! The forms for rules.

use crate::agents::form::AgentForm;
use crate::preview::operations::PreviewDays;
use crate::rules::section::parse_rule_form;
use crate::ui::form::{FormName, RuleForm};
use crate::ui::notice::PageMessage;
use purser_api::Reply;
use purser_domain::{Agent, RuleId, RuleKind, TestedLimits};

/// Handles `POST …/rules`, which adds a rule.
pub(crate) async fn submit_new_rule(sent: AgentForm) -> Reply {
    let edition = sent.people.current_catalog().await?;
    let kind = RuleForm::from_name(sent.parse_form(FormName::Plain).field_text("kind"));
    let mut form = sent.parse_form(kind.map_or(FormName::Plain, FormName::NewRule));
    let (rule, owned) = (
        parse_rule_form(&mut form, &edition.catalog),
        sent.agent_with_reason(&mut form),
    );
    let Some(((rule, if_match), owned)) = rule.zip(form.parse_version()).zip(owned) else {
        return sent.show_form_again(form).await;
    };
    if let Some(trial) = sent.trial {
        let preview = sent
            .people
            .preview_added_rule(&sent.owned, if_match, &rule, PreviewDays::DEFAULT);
        let terms = limits_with_rule(sent.owned.agent(), None, rule.kind());
        return sent.try_update(trial, form, terms, Box::pin(preview)).await;
    }
    let added = Box::pin(sent.people.add_rule(owned, if_match, &rule)).await;
    sent.respond_to_form(form, added, PageMessage::RuleAdded).await
}

/// Handles `POST …/rules/{rule}`, which replaces a rule.
pub(crate) async fn submit_rule_replacement(sent: AgentForm) -> Reply {
    let id = sent.parse_path_parameter("rule", RuleId::parse)?;
    let edition = sent.people.current_catalog().await?;
    let mut form = sent.parse_form(FormName::Rule(id));
    let (rule, owned) = (
        parse_rule_form(&mut form, &edition.catalog),
        sent.agent_with_reason(&mut form),
    );
    let Some(((rule, if_match), owned)) = rule.zip(form.parse_version()).zip(owned) else {
        return sent.show_form_again(form).await;
    };
    if let Some(trial) = sent.trial {
        let preview = sent
            .people
            .preview_replaced_rule(&sent.owned, if_match, id, &rule, PreviewDays::DEFAULT);
        let terms = limits_with_rule(sent.owned.agent(), Some(id), rule.kind());
        return sent.try_update(trial, form, terms, Box::pin(preview)).await;
    }
    let replaced = sent.people.replace_rule(owned, if_match, id, &rule).await;
    sent.respond_to_form(form, replaced, PageMessage::RuleSaved).await
}

/// Returns the limits that a backtest or a shadow policy tests: the agent's rules, with `kind` in place of the rule
/// `replaced`, or in addition if `replaced` is `None`.
fn limits_with_rule(agent: &Agent, replaced: Option<RuleId>, kind: &RuleKind) -> TestedLimits {
    let rules = agent.rules.iter();
    let kept = rules.map(|rule| if Some(rule.id) == replaced { kind } else { &rule.kind });
    let added = replaced.is_none().then_some(kind);
    TestedLimits {
        rules: Some(kept.chain(added).cloned().collect()),
        ..TestedLimits::default()
    }
}

/// Handles `POST …/rules/{rule}/remove`.
pub(crate) async fn submit_rule_removal(sent: AgentForm) -> Reply {
    let id = sent.parse_path_parameter("rule", RuleId::parse)?;
    let mut form = sent.parse_form(FormName::Plain);
    let owned = sent.agent_with_reason(&mut form);
    let Some((if_match, owned)) = form.parse_version().zip(owned) else {
        return sent.show_form_again(form).await;
    };
    let removed = sent.people.remove_rule(owned, if_match, id).await;
    sent.respond_to_form(form, removed, PageMessage::RuleRemoved).await
}
