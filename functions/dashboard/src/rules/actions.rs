//! The forms for rules.

use crate::agents::form::AgentForm;
use crate::rules::form::{has_form, parse_rule_form};
use crate::ui::form::FormName;
use crate::ui::notice::PageMessage;
use purser_api::Reply;
use purser_domain::{LimitUpdate, RuleId, RuleKindName, RuleUpdate};

pub(crate) async fn submit_new_rule(request: AgentForm) -> Reply {
    let edition = request.people.current_catalog().await?;
    let kind = RuleKindName::from_name(request.parse_posted_form(FormName::Plain).field_text("kind"));
    let kind = kind.filter(|kind| has_form(*kind));
    let mut form = request.parse_posted_form(kind.map_or(FormName::Plain, FormName::NewRule));
    let id = request.people.new_rule_id()?;
    let rule = parse_rule_form(&mut form, &edition.catalog);
    let update = rule.map(|rule| LimitUpdate::Rules(RuleUpdate::Add(id, rule)));
    request.submit_update(form, Ok(update), PageMessage::RuleAdded).await
}

pub(crate) async fn submit_rule_replacement(request: AgentForm) -> Reply {
    let id = request.parse_path_parameter("rule", RuleId::parse)?;
    let edition = request.people.current_catalog().await?;
    let mut form = request.parse_posted_form(FormName::Rule(id));
    let rule = parse_rule_form(&mut form, &edition.catalog);
    let update = rule.map(|rule| LimitUpdate::Rules(RuleUpdate::Replace(id, rule)));
    request.submit_update(form, Ok(update), PageMessage::RuleSaved).await
}

pub(crate) async fn submit_rule_removal(request: AgentForm) -> Reply {
    let id = request.parse_path_parameter("rule", RuleId::parse)?;
    let form = request.parse_posted_form(FormName::Plain);
    let update = LimitUpdate::Rules(RuleUpdate::Remove(id));
    request
        .submit_update(form, Ok(Some(update)), PageMessage::RuleRemoved)
        .await
}
