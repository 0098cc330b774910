//! The forms for an agent's services.

use crate::agents::form::AgentForm;
use crate::history::operations::full_policy_update;
use crate::preview::operations::PreviewDays;
use crate::services::api::{parse_enable_request, parse_limits, parse_service_update};
use crate::services::operations::ServiceUpdate;
use crate::services::policy::{FIELDS, policy_body};
use crate::ui::form::{FormName, set_field};
use crate::ui::notice::PageMessage;
use purser_api::{Precondition, Reply};
use purser_domain::{PolicyChange, ServiceId, SpendPolicy, TestedLimits};

/// Handles `POST …/services`, which enables a service.
pub(crate) async fn submit_service_to_enable(sent: AgentForm) -> Reply {
    let edition = sent.people.current_catalog().await?;
    let mut form = sent.parse_form(FormName::Enable);
    let service = form.parse_service_id();
    let mut body = policy_body(&mut form, service.and_then(|id| edition.catalog.find_by_id(id)));
    set_field(&mut body, "service_id", form.field_text("service_id"));
    let owned = sent.agent_with_reason(&mut form);
    let enable = form.take_valid(parse_enable_request(&body, &edition.catalog), &FIELDS);
    let Some((enable, owned)) = enable.zip(owned) else {
        return sent.show_form_again(form).await;
    };
    // Version zero means that no record exists. If the service was enabled in the meantime, the write fails and the
    // existing limits stay.
    let if_match = Precondition::Version(0);
    if let Some((trial, service)) = sent.trial.zip(service) {
        let change = PolicyChange {
            enabled: Some(true),
            policy: full_policy_update(SpendPolicy::column_defaults().apply(&enable.policy)),
        };
        let preview = sent
            .people
            .preview_enabling(&sent.owned, if_match, &enable, PreviewDays::DEFAULT);
        return sent
            .try_update(trial, form, limits_with_policy(service, change), Box::pin(preview))
            .await;
    }
    let enabled = sent.people.enable_agent_service(&owned, if_match, &enable).await;
    sent.respond_to_form(form, enabled, PageMessage::ServiceEnabled).await
}

/// Handles `POST …/services/{service}`, which changes the service's policy.
pub(crate) async fn submit_policy_update(sent: AgentForm) -> Reply {
    let service = sent.parse_path_parameter("service", ServiceId::parse)?;
    let edition = sent.people.current_catalog().await?;
    let mut form = sent.parse_form(FormName::Policy(service));
    let listed = edition.catalog.find_by_id(service);
    let body = policy_body(&mut form, listed);
    let edit = form.take_valid(parse_service_update(&body, listed), &FIELDS);
    let owned = sent.agent_with_reason(&mut form);
    let Some(((edit, if_match), owned)) = edit.zip(form.parse_version()).zip(owned) else {
        return sent.show_form_again(form).await;
    };
    if let Some(trial) = sent.trial {
        let change = PolicyChange {
            enabled: edit.enabled,
            policy: edit.policy.clone(),
        };
        let preview = sent
            .people
            .preview_service_update(&sent.owned, if_match, service, &edit, PreviewDays::DEFAULT);
        return sent
            .try_update(trial, form, limits_with_policy(service, change), Box::pin(preview))
            .await;
    }
    let edited = sent.people.update_service(&owned, if_match, service, &edit).await;
    sent.respond_to_form(form, edited, PageMessage::PolicySaved).await
}

/// Returns limits with one changed policy, which a backtest or a shadow policy tests.
fn limits_with_policy(service: ServiceId, change: PolicyChange) -> TestedLimits {
    TestedLimits {
        policies: [(service, change)].into(),
        ..TestedLimits::default()
    }
}

/// Handles `POST …/services/limits`, which sets limits for all services without limits.
pub(crate) async fn submit_limits_for_unlimited(sent: AgentForm) -> Reply {
    let mut form = sent.parse_form(FormName::Unlimited);
    let body = policy_body(&mut form, None);
    let owned = sent.agent_with_reason(&mut form);
    let Some((edit, owned)) = form.take_valid(parse_limits(&body), &FIELDS).zip(owned) else {
        return sent.show_form_again(form).await;
    };
    let limited = sent.people.limit_unlimited_services(&owned, &edit);
    let limited = sent.people.run_in_user_slot(&owned.agent().owner, limited).await;
    sent.respond_to_form(form, limited, PageMessage::PolicySaved).await
}

pub(crate) async fn disable_service(sent: AgentForm) -> Reply {
    set_service_enabled(sent, false, PageMessage::ServiceDisabled).await
}

/// Handles `POST …/services/{service}/enable`, which enables a disabled service again.
pub(crate) async fn enable_service_again(sent: AgentForm) -> Reply {
    set_service_enabled(sent, true, PageMessage::ServiceEnabled).await
}

async fn set_service_enabled(sent: AgentForm, enabled: bool, notice: PageMessage) -> Reply {
    let service = sent.parse_path_parameter("service", ServiceId::parse)?;
    let mut form = sent.parse_form(FormName::Plain);
    let owned = sent.agent_with_reason(&mut form);
    let Some((if_match, owned)) = form.parse_version().zip(owned) else {
        return sent.show_form_again(form).await;
    };
    let edit = ServiceUpdate {
        enabled: Some(enabled),
        ..ServiceUpdate::default()
    };
    let edited = sent.people.update_service(&owned, if_match, service, &edit).await;
    sent.respond_to_form(form, edited, notice).await
}
