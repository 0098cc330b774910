//! The forms that rename, label, freeze, archive and restore an agent.

use crate::agents::form::AgentForm;
use crate::agents::operations::{AgentUpdate, RaiseFactor};
use crate::ui::form::FormName;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use purser_api::{Precondition, Reply};
use purser_domain::{Agent, AgentStatus};

pub(crate) async fn submit_agent_name(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Rename);
    let Some((name, if_match)) = form.parse_agent_name().zip(form.parse_version()) else {
        return request.show_form_again(form).await;
    };
    let update = AgentUpdate {
        name: Some(name),
        ..AgentUpdate::NONE
    };
    let renamed = request
        .people
        .update_agent(request.owned.clone(), if_match, &update)
        .await;
    request.respond_to_form(form, renamed, PageMessage::AgentRenamed).await
}

/// Replaces all of the agent's labels by the labels in the form, one per line.
pub(crate) async fn submit_agent_labels(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Labels);
    let Some((labels, if_match)) = form.parse_labels().zip(form.parse_version()) else {
        return request.show_form_again(form).await;
    };
    let update = AgentUpdate {
        labels: Some(labels),
        ..AgentUpdate::NONE
    };
    let labelled = request
        .people
        .update_agent(request.owned.clone(), if_match, &update)
        .await;
    request
        .respond_to_form(form, labelled, PageMessage::AgentLabelled)
        .await
}

/// Sets the maximum cap that the agent may request, as a multiple of the current cap.
pub(crate) async fn submit_max_increase_factor(form: AgentForm) -> Reply {
    let mut fields = form.parse_posted_form(FormName::RaiseFactor);
    let factor = fields.parse_number("factor", "Times", 0, Agent::MAX_INCREASE_FACTOR);
    let Some((factor, if_match)) = factor.zip(fields.parse_version()) else {
        return form.show_form_again(fields).await;
    };
    let edit = AgentUpdate {
        max_raise_factor: Some(RaiseFactor(factor)),
        ..AgentUpdate::NONE
    };
    let edited = form.people.update_agent(form.owned.clone(), if_match, &edit).await;
    form.respond_to_form(fields, edited, PageMessage::RaiseFactorSaved)
        .await
}

pub(crate) async fn archive_agent(form: AgentForm) -> Reply {
    set_agent_archived(form, true, PageMessage::AgentArchived).await
}

/// Restores an archived agent, which stays frozen.
pub(crate) async fn restore_agent(form: AgentForm) -> Reply {
    set_agent_archived(form, false, PageMessage::AgentRestored).await
}

async fn set_agent_archived(form: AgentForm, archived: bool, message: PageMessage) -> Reply {
    let update = AgentUpdate {
        archived: Some(archived),
        ..AgentUpdate::NONE
    };
    let updated = form.people.update_agent(form.owned, Precondition::Any, &update).await?;
    Ok(redirect_with_notice(&paths::agent_path(updated.agent().id), message))
}

pub(crate) async fn freeze_agent(form: AgentForm) -> Reply {
    set_agent_status(form, AgentStatus::Frozen, PageMessage::AgentFrozen).await
}

pub(crate) async fn unfreeze_agent(form: AgentForm) -> Reply {
    set_agent_status(form, AgentStatus::Active, PageMessage::AgentUnfrozen).await
}

/// Does not check the agent's version, so that a concurrent update can't delay a freeze.
async fn set_agent_status(form: AgentForm, status: AgentStatus, message: PageMessage) -> Reply {
    let update = AgentUpdate {
        status: Some(status),
        ..AgentUpdate::NONE
    };
    let updated = form.people.update_agent(form.owned, Precondition::Any, &update).await?;
    Ok(redirect_with_notice(&paths::agent_path(updated.agent().id), message))
}
