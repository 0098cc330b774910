//! The forms that restore a version.

use crate::agents::form::AgentForm;
use crate::cursor;
use crate::ui::form::FormName;
use crate::ui::notice::PageMessage;
use purser_api::Reply;
use purser_domain::{LimitUpdate, RuleId, ServiceId};

pub(crate) async fn submit_policy_restore(request: AgentForm) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let version = request.parse_path_parameter("version", cursor::parse_version_cursor)?;
    let found = request.people.find_policy_to_restore(&request.owned, service, version);
    let update = found.await.map(|update| Some(LimitUpdate::Service(service, update)));
    let form = request.parse_posted_form(FormName::Plain);
    request.submit_update(form, update, PageMessage::PolicySaved).await
}

pub(crate) async fn submit_rule_restore(request: AgentForm) -> Reply {
    let version = request.parse_path_parameter("version", cursor::parse_version_cursor)?;
    let rule = request.parse_path_parameter("rule", RuleId::parse)?;
    let found = request.people.find_rule_to_restore(&request.owned, version, rule);
    let update = found.await.map(|(update, _)| Some(LimitUpdate::Rules(update)));
    let form = request.parse_posted_form(FormName::Plain);
    request.submit_update(form, update, PageMessage::RuleSaved).await
}
