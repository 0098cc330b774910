//! The forms for rules.

use crate::agents::form::AgentForm;
use crate::preview::operations::PreviewDays;
use crate::rules::section::read_rule;
use crate::ui::form::{FormName, RuleForm};
use crate::ui::notice::Notice;
use purser_api::Reply;
use purser_domain::{Agent, BacktestTerms, RuleId, RuleKind};

/// Handles `POST …/rules`, which adds a rule.
pub(crate) async fn add(sent: AgentForm) -> Reply {
    let edition = sent.people.catalog().await?;
    let kind = RuleForm::from_name(sent.form(FormName::Plain).text("kind"));
    let mut form = sent.form(kind.map_or(FormName::Plain, FormName::NewRule));
    let (rule, owned) = (
        read_rule(&mut form, &edition.catalog),
        sent.agent_with_reason(&mut form),
    );
    let Some(((rule, if_match), owned)) = rule.zip(form.version()).zip(owned) else {
        return sent.again(form).await;
    };
    if let Some(trial) = sent.trial {
        let preview = sent
            .people
            .preview_added_rule(&sent.owned, if_match, &rule, PreviewDays::DEFAULT);
        let terms = with_rule(sent.owned.agent(), None, rule.kind());
        return sent.try_edit(trial, form, terms, Box::pin(preview)).await;
    }
    let added = Box::pin(sent.people.add_rule(owned, if_match, &rule)).await;
    sent.answer(form, added, Notice::RuleAdded).await
}

/// Handles `POST …/rules/{rule}`, which replaces a rule.
pub(crate) async fn replace(sent: AgentForm) -> Reply {
    let id = sent.parse_parameter("rule", RuleId::parse)?;
    let edition = sent.people.catalog().await?;
    let mut form = sent.form(FormName::Rule(id));
    let (rule, owned) = (
        read_rule(&mut form, &edition.catalog),
        sent.agent_with_reason(&mut form),
    );
    let Some(((rule, if_match), owned)) = rule.zip(form.version()).zip(owned) else {
        return sent.again(form).await;
    };
    if let Some(trial) = sent.trial {
        let preview = sent
            .people
            .preview_replaced_rule(&sent.owned, if_match, id, &rule, PreviewDays::DEFAULT);
        let terms = with_rule(sent.owned.agent(), Some(id), rule.kind());
        return sent.try_edit(trial, form, terms, Box::pin(preview)).await;
    }
    let replaced = sent.people.replace_rule(owned, if_match, id, &rule).await;
    sent.answer(form, replaced, Notice::RuleSaved).await
}

/// Returns the agent's rules as limits for a backtest or a shadow policy, with `kind` in place of the rule `replaced`,
/// or in addition if `replaced` is `None`.
fn with_rule(agent: &Agent, replaced: Option<RuleId>, kind: &RuleKind) -> BacktestTerms {
    let rules = agent.rules.iter();
    let kept = rules.map(|rule| if Some(rule.id) == replaced { kind } else { &rule.kind });
    let added = replaced.is_none().then_some(kind);
    BacktestTerms {
        rules: Some(kept.chain(added).cloned().collect()),
        ..BacktestTerms::default()
    }
}

/// Handles `POST …/rules/{rule}/remove`.
pub(crate) async fn remove(sent: AgentForm) -> Reply {
    let id = sent.parse_parameter("rule", RuleId::parse)?;
    let mut form = sent.form(FormName::Plain);
    let owned = sent.agent_with_reason(&mut form);
    let Some((if_match, owned)) = form.version().zip(owned) else {
        return sent.again(form).await;
    };
    let removed = sent.people.remove_rule(owned, if_match, id).await;
    sent.answer(form, removed, Notice::RuleRemoved).await
}
