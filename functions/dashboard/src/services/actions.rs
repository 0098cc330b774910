//! The forms for an agent's services.

use crate::agents::form::AgentForm;
use crate::history::operations::full_policy_update;
use crate::preview::operations::PreviewDays;
use crate::services::api::{parse_enable_request, parse_limits, parse_service_update};
use crate::services::operations::ServiceUpdate;
use crate::services::policy::{FIELDS, parse_policy_form};
use crate::ui::form::{FormName, set_field};
use crate::ui::notice::PageMessage;
use purser_api::{Precondition, Reply};
use purser_domain::{PolicyChange, ServiceId, SpendPolicy, TestedLimits};

pub(crate) async fn submit_service_to_enable(request: AgentForm) -> Reply {
    let edition = request.people.current_catalog().await?;
    let mut form = request.parse_posted_form(FormName::Enable);
    let service = form.parse_service_id();
    let mut body = parse_policy_form(&mut form, service.and_then(|id| edition.catalog.find_by_id(id)));
    set_field(&mut body, "service_id", form.field_text("service_id"));
    let owned = request.agent_with_update_reason(&mut form);
    let enable = form.take_value_or_add_errors(parse_enable_request(&body, &edition.catalog), &FIELDS);
    let Some((enable, owned)) = enable.zip(owned) else {
        return request.show_form_again(form).await;
    };
    // Version zero means that no record exists, so existing limits are never overwritten.
    let if_match = Precondition::Version(0);
    if let Some((trial, service)) = request.trial.zip(service) {
        let change = PolicyChange {
            enabled: Some(true),
            policy: full_policy_update(SpendPolicy::spec_defaults().apply(&enable.policy)),
        };
        let preview = request
            .people
            .preview_enabling(&request.owned, if_match, &enable, PreviewDays::DEFAULT);
        return request
            .preview_or_test_update(trial, form, limits_with_policy(service, change), Box::pin(preview))
            .await;
    }
    let enabled = request.people.enable_agent_service(&owned, if_match, &enable).await;
    request
        .respond_to_form(form, enabled, PageMessage::ServiceEnabled)
        .await
}

pub(crate) async fn submit_policy_update(request: AgentForm) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let edition = request.people.current_catalog().await?;
    let mut form = request.parse_posted_form(FormName::Policy(service));
    let listed = edition.catalog.find_by_id(service);
    let body = parse_policy_form(&mut form, listed);
    let update = form.take_value_or_add_errors(parse_service_update(&body, listed), &FIELDS);
    let owned = request.agent_with_update_reason(&mut form);
    let Some(((update, if_match), owned)) = update.zip(form.parse_version()).zip(owned) else {
        return request.show_form_again(form).await;
    };
    if let Some(trial) = request.trial {
        let change = PolicyChange {
            enabled: update.enabled,
            policy: update.policy.clone(),
        };
        let preview =
            request
                .people
                .preview_service_update(&request.owned, if_match, service, &update, PreviewDays::DEFAULT);
        return request
            .preview_or_test_update(trial, form, limits_with_policy(service, change), Box::pin(preview))
            .await;
    }
    let updated = request.people.update_service(&owned, if_match, service, &update).await;
    request.respond_to_form(form, updated, PageMessage::PolicySaved).await
}

fn limits_with_policy(service: ServiceId, change: PolicyChange) -> TestedLimits {
    TestedLimits {
        policies: [(service, change)].into(),
        ..TestedLimits::default()
    }
}

pub(crate) async fn submit_limits_for_unlimited_services(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Unlimited);
    let body = parse_policy_form(&mut form, None);
    let owned = request.agent_with_update_reason(&mut form);
    let Some((update, owned)) = form.take_value_or_add_errors(parse_limits(&body), &FIELDS).zip(owned) else {
        return request.show_form_again(form).await;
    };
    let limited = request.people.limit_unlimited_services(&owned, &update);
    let limited = request
        .people
        .run_in_long_operation_slot(&owned.agent().owner, limited)
        .await;
    request.respond_to_form(form, limited, PageMessage::PolicySaved).await
}

pub(crate) async fn disable_service(form: AgentForm) -> Reply {
    set_service_enabled(form, false, PageMessage::ServiceDisabled).await
}

pub(crate) async fn enable_service_again(form: AgentForm) -> Reply {
    set_service_enabled(form, true, PageMessage::ServiceEnabled).await
}

async fn set_service_enabled(request: AgentForm, enabled: bool, message: PageMessage) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let mut form = request.parse_posted_form(FormName::Plain);
    let owned = request.agent_with_update_reason(&mut form);
    let Some((if_match, owned)) = form.parse_version().zip(owned) else {
        return request.show_form_again(form).await;
    };
    let update = ServiceUpdate {
        enabled: Some(enabled),
        ..ServiceUpdate::default()
    };
    let updated = request.people.update_service(&owned, if_match, service, &update).await;
    request.respond_to_form(form, updated, message).await
}
