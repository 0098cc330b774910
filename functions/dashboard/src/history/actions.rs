//! The forms that restore a version.

use crate::agents::form::AgentForm;
use crate::cursor;
use crate::ui::form::FormName;
use crate::ui::notice::PageMessage;
use purser_api::Reply;
use purser_domain::{RuleId, ServiceId};

pub(crate) async fn submit_policy_restore(request: AgentForm) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let version = request.parse_path_parameter("version", cursor::parse_version_cursor)?;
    let mut form = request.parse_posted_form(FormName::Plain);
    let owned = request.agent_with_update_reason(&mut form);
    let Some((if_match, owned)) = form.parse_version().zip(owned) else {
        return request.show_form_again(form).await;
    };
    let restored = request.people.restore_policy(&owned, if_match, service, version).await;
    request.respond_to_form(form, restored, PageMessage::PolicySaved).await
}

pub(crate) async fn submit_rule_restore(request: AgentForm) -> Reply {
    let version = request.parse_path_parameter("version", cursor::parse_version_cursor)?;
    let rule = request.parse_path_parameter("rule", RuleId::parse)?;
    let mut form = request.parse_posted_form(FormName::Plain);
    let owned = request.agent_with_update_reason(&mut form);
    let Some((if_match, owned)) = form.parse_version().zip(owned) else {
        return request.show_form_again(form).await;
    };
    let restored = request.people.restore_rule(owned, if_match, version, rule).await;
    request.respond_to_form(form, restored, PageMessage::RuleSaved).await
}
