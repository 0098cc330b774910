//! Handlers for the forms that restore a version.

use crate::agents::form::AgentForm;
use crate::cursor;
use crate::ui::form::FormName;
use crate::ui::notice::Notice;
use purser_api::Reply;
use purser_domain::{RuleId, ServiceId};

/// Handles `POST …/services/{service}/versions/{version}/restore`: restores an earlier version of a policy.
pub(crate) async fn restore_policy(sent: AgentForm) -> Reply {
    let service = sent.parse_parameter("service", ServiceId::parse)?;
    let version = sent.parse_parameter("version", cursor::read_version)?;
    let mut form = sent.form(FormName::Plain);
    let owned = sent.agent_with_reason(&mut form);
    let Some((if_match, owned)) = form.version().zip(owned) else {
        return sent.again(form).await;
    };
    let restored = sent.people.restore_policy(&owned, if_match, service, version).await;
    sent.answer(form, restored, Notice::PolicySaved).await
}

/// Handles `POST …/versions/{version}/rules/{rule}/restore`: restores a rule from an earlier version of the agent.
pub(crate) async fn restore_rule(sent: AgentForm) -> Reply {
    let version = sent.parse_parameter("version", cursor::read_version)?;
    let rule = sent.parse_parameter("rule", RuleId::parse)?;
    let mut form = sent.form(FormName::Plain);
    let owned = sent.agent_with_reason(&mut form);
    let Some((if_match, owned)) = form.version().zip(owned) else {
        return sent.again(form).await;
    };
    let restored = sent.people.restore_rule(owned, if_match, version, rule).await;
    sent.answer(form, restored, Notice::RuleSaved).await
}
