//! The forms for rules.

use crate::agents::form::AgentForm;
use crate::preview::operations::PreviewDays;
use crate::rules::section::parse_rule_form;
use crate::ui::form::{FormName, RuleForm};
use crate::ui::notice::PageMessage;
use purser_api::Reply;
use purser_domain::{Agent, RuleId, RuleKind, TestedLimits};

pub(crate) async fn submit_new_rule(request: AgentForm) -> Reply {
    let edition = request.people.current_catalog().await?;
    let kind = RuleForm::from_name(request.parse_posted_form(FormName::Plain).field_text("kind"));
    let mut form = request.parse_posted_form(kind.map_or(FormName::Plain, FormName::NewRule));
    let (rule, owned) = (
        parse_rule_form(&mut form, &edition.catalog),
        request.agent_with_update_reason(&mut form),
    );
    let Some(((rule, if_match), owned)) = rule.zip(form.parse_version()).zip(owned) else {
        return request.show_form_again(form).await;
    };
    if let Some(trial) = request.trial {
        let preview = request
            .people
            .preview_added_rule(&request.owned, if_match, &rule, PreviewDays::DEFAULT);
        let terms = limits_with_rule(request.owned.agent(), None, rule.kind());
        return request
            .preview_or_test_update(trial, form, terms, Box::pin(preview))
            .await;
    }
    let added = Box::pin(request.people.add_rule(owned, if_match, &rule)).await;
    request.respond_to_form(form, added, PageMessage::RuleAdded).await
}

pub(crate) async fn submit_rule_replacement(request: AgentForm) -> Reply {
    let id = request.parse_path_parameter("rule", RuleId::parse)?;
    let edition = request.people.current_catalog().await?;
    let mut form = request.parse_posted_form(FormName::Rule(id));
    let (rule, owned) = (
        parse_rule_form(&mut form, &edition.catalog),
        request.agent_with_update_reason(&mut form),
    );
    let Some(((rule, if_match), owned)) = rule.zip(form.parse_version()).zip(owned) else {
        return request.show_form_again(form).await;
    };
    if let Some(trial) = request.trial {
        let preview = request
            .people
            .preview_replaced_rule(&request.owned, if_match, id, &rule, PreviewDays::DEFAULT);
        let terms = limits_with_rule(request.owned.agent(), Some(id), rule.kind());
        return request
            .preview_or_test_update(trial, form, terms, Box::pin(preview))
            .await;
    }
    let replaced = request.people.replace_rule(owned, if_match, id, &rule).await;
    request.respond_to_form(form, replaced, PageMessage::RuleSaved).await
}

/// Returns the agent's rules, with `kind` in place of the rule `replaced_rule` or as an additional rule.
fn limits_with_rule(agent: &Agent, replaced_rule: Option<RuleId>, kind: &RuleKind) -> TestedLimits {
    let rules = agent.rules.iter();
    let kept = rules.map(|rule| {
        if Some(rule.id) == replaced_rule {
            kind
        } else {
            &rule.kind
        }
    });
    let added = replaced_rule.is_none().then_some(kind);
    TestedLimits {
        rules: Some(kept.chain(added).cloned().collect()),
        ..TestedLimits::default()
    }
}

pub(crate) async fn submit_rule_removal(request: AgentForm) -> Reply {
    let id = request.parse_path_parameter("rule", RuleId::parse)?;
    let mut form = request.parse_posted_form(FormName::Plain);
    let owned = request.agent_with_update_reason(&mut form);
    let Some((if_match, owned)) = form.parse_version().zip(owned) else {
        return request.show_form_again(form).await;
    };
    let removed = request.people.remove_rule(owned, if_match, id).await;
    request.respond_to_form(form, removed, PageMessage::RuleRemoved).await
}
