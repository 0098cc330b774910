//! The forms that rename, label, freeze, archive and restore an agent.

use crate::agents::form::AgentForm;
use crate::agents::operations::AgentUpdate;
use crate::ui::form::{Form, FormName};
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use purser_api::{Number, Precondition, Reply};
use purser_domain::{Agent, AgentStatus};

pub(crate) async fn submit_agent_name(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Rename);
    let update = form.parse_agent_name().map(|name| AgentUpdate {
        name: Some(name),
        ..AgentUpdate::NONE
    });
    update_agent(request, form, update, PageMessage::AgentRenamed).await
}

/// Replaces all of the agent's labels by the labels in the form, one per line.
pub(crate) async fn submit_agent_labels(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Labels);
    let update = form.parse_labels().map(|labels| AgentUpdate {
        labels: Some(labels),
        ..AgentUpdate::NONE
    });
    update_agent(request, form, update, PageMessage::AgentLabelled).await
}

/// Sets the maximum cap that the agent may request, as a multiple of the current cap.
pub(crate) async fn submit_max_increase_factor(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::RaiseFactor);
    let factor = form.parse_number("factor", "Times", 0, Agent::MAX_INCREASE_FACTOR);
    let update = factor.map(|factor| AgentUpdate {
        max_raise_factor: Some(Number(factor)),
        ..AgentUpdate::NONE
    });
    update_agent(request, form, update, PageMessage::RaiseFactorSaved).await
}

/// Saves the update, or shows the form again. `update` is `None` if the form has validation errors.
async fn update_agent(request: AgentForm, mut form: Form, update: Option<AgentUpdate>, message: PageMessage) -> Reply {
    let Some((update, if_match)) = update.zip(form.parse_version()) else {
        return request.show_form_again(form).await;
    };
    let updated = request.people.update_agent(request.owned.clone(), if_match, &update);
    let updated = updated.await;
    request.respond_to_form(form, updated, message).await
}

pub(crate) async fn archive_agent(form: AgentForm) -> Reply {
    update_any_version(form, AgentUpdate::for_archived(true), PageMessage::AgentArchived).await
}

/// Restores an archived agent, which stays frozen.
pub(crate) async fn restore_agent(form: AgentForm) -> Reply {
    update_any_version(form, AgentUpdate::for_archived(false), PageMessage::AgentRestored).await
}

pub(crate) async fn freeze_agent(form: AgentForm) -> Reply {
    let update = AgentUpdate::for_status(AgentStatus::Frozen);
    update_any_version(form, update, PageMessage::AgentFrozen).await
}

pub(crate) async fn unfreeze_agent(form: AgentForm) -> Reply {
    let update = AgentUpdate::for_status(AgentStatus::Active);
    update_any_version(form, update, PageMessage::AgentUnfrozen).await
}

/// Does not check the agent's version, so that a concurrent update can't delay a freeze.
async fn update_any_version(form: AgentForm, update: AgentUpdate, message: PageMessage) -> Reply {
    let updated = form.people.update_agent(form.owned, Precondition::Any, &update).await?;
    Ok(redirect_with_notice(&paths::agent_path(updated.agent().id), message))
}
