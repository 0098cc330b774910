//! The forms for an agent's services.

use crate::agents::form::AgentForm;
use crate::services::api::{parse_enable_request, parse_limits, parse_service_update};
use crate::services::operations::find_open_service;
use crate::services::policy::{FIELDS, parse_policy_form};
use crate::ui::form::{FormName, set_field};
use crate::ui::notice::PageMessage;
use purser_api::Reply;
use purser_domain::{LimitUpdate, ServiceId, ServiceUpdate};

pub(crate) async fn submit_service_to_enable(request: AgentForm) -> Reply {
    let edition = request.people.current_catalog().await?;
    let mut form = request.parse_posted_form(FormName::Enable);
    let service = form.parse_service_id();
    let mut body = parse_policy_form(&mut form, service.and_then(|id| edition.catalog.find_by_id(id)));
    set_field(&mut body, "service_id", form.field_text("service_id"));
    let enable = form.take_value_or_add_errors(parse_enable_request(&body, &edition.catalog), &FIELDS);
    let update = enable.map(|(reference, policy)| {
        let service = find_open_service(&edition.catalog, &reference)?;
        Ok(LimitUpdate::Service(service, ServiceUpdate::Enable(policy)))
    });
    let update = update.transpose();
    request.submit_update(form, update, PageMessage::ServiceEnabled).await
}

pub(crate) async fn submit_policy_update(request: AgentForm) -> Reply {
    let service = request.parse_path_parameter("service", ServiceId::parse)?;
    let edition = request.people.current_catalog().await?;
    let mut form = request.parse_posted_form(FormName::Policy(service));
    let listed = edition.catalog.find_by_id(service);
    let body = parse_policy_form(&mut form, listed);
    let change = form.take_value_or_add_errors(parse_service_update(&body, listed), &FIELDS);
    let update = change.map(|change| LimitUpdate::Service(service, ServiceUpdate::Change(change)));
    request.submit_update(form, Ok(update), PageMessage::PolicySaved).await
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
    let form = request.parse_posted_form(FormName::Plain);
    let update = LimitUpdate::Service(service, ServiceUpdate::for_status(enabled));
    request.submit_update(form, Ok(Some(update)), message).await
}
