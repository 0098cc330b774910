//! The forms that rename, label, freeze, unfreeze, archive and restore an agent.

use crate::agents::form::AgentForm;
use crate::agents::operations::AgentEdit;
use crate::ui::form::FormName;
use crate::ui::notice::{Notice, done};
use crate::ui::paths;
use purser_api::{Precondition, Reply};
use purser_domain::AgentStatus;

/// Handles `POST …/rename`, which changes the agent's name.
pub(crate) async fn rename(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::Rename);
    let Some((name, if_match)) = form.agent_name().zip(form.version()) else {
        return sent.again(form).await;
    };
    let edit = AgentEdit {
        name: Some(name),
        ..AgentEdit::NONE
    };
    let renamed = sent.people.edit_agent(sent.owned.clone(), if_match, &edit).await;
    sent.answer(form, renamed, Notice::AgentRenamed).await
}

/// Handles `POST …/labels`, which replaces all of the agent's labels by the labels in the form, one per line.
pub(crate) async fn label(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::Labels);
    let Some((labels, if_match)) = form.labels().zip(form.version()) else {
        return sent.again(form).await;
    };
    let edit = AgentEdit {
        labels: Some(labels),
        ..AgentEdit::NONE
    };
    let labelled = sent.people.edit_agent(sent.owned.clone(), if_match, &edit).await;
    sent.answer(form, labelled, Notice::AgentLabelled).await
}

/// Handles `POST …/archive`, which archives the agent.
pub(crate) async fn archive(sent: AgentForm) -> Reply {
    set_archived(sent, true, Notice::AgentArchived).await
}

/// Handles `POST …/restore`, which restores an archived agent. The agent stays frozen.
pub(crate) async fn restore(sent: AgentForm) -> Reply {
    set_archived(sent, false, Notice::AgentRestored).await
}

async fn set_archived(sent: AgentForm, archived: bool, notice: Notice) -> Reply {
    let edit = AgentEdit {
        archived: Some(archived),
        ..AgentEdit::NONE
    };
    let edited = sent.people.edit_agent(sent.owned, Precondition::Any, &edit).await?;
    Ok(done(&paths::agent(edited.agent().id), notice))
}

/// Handles `POST …/freeze`, which freezes the agent.
pub(crate) async fn freeze(sent: AgentForm) -> Reply {
    set_status(sent, AgentStatus::Frozen, Notice::AgentFrozen).await
}

/// Handles `POST …/unfreeze`, which makes the agent active again.
pub(crate) async fn unfreeze(sent: AgentForm) -> Reply {
    set_status(sent, AgentStatus::Active, Notice::AgentUnfrozen).await
}

/// Sets the agent's status without a version check, because a freeze must take effect at once, even while another user
/// updates the agent.
async fn set_status(sent: AgentForm, status: AgentStatus, notice: Notice) -> Reply {
    let edit = AgentEdit {
        status: Some(status),
        ..AgentEdit::NONE
    };
    let edited = sent.people.edit_agent(sent.owned, Precondition::Any, &edit).await?;
    Ok(done(&paths::agent(edited.agent().id), notice))
}
