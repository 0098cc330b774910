//! Handlers for the forms of a shadow policy.

use crate::agents::form::AgentForm;
use crate::shadow::page;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::notice::{Notice, done};
use crate::ui::paths;
use axum::response::IntoResponse as _;
use purser_api::{Failure, Reply};
use purser_domain::{Error, ErrorKind};

/// Handles `POST …/shadow/promote`: applies the shadow policy's limits to the agent.
pub(crate) async fn promote(sent: AgentForm) -> Reply {
    let mut form = sent.form(FormName::Plain);
    let Some(if_match) = form.version() else {
        return again(&sent, Some(form), None).await;
    };
    match sent.people.promote_shadow(sent.owned.clone(), if_match).await {
        Ok(_) => Ok(done(&paths::agent(sent.owned.agent().id), Notice::ShadowPromoted)),
        Err(error) => again(&sent, None, Some(error)).await,
    }
}

/// Handles `POST …/shadow/remove`: removes the shadow policy.
pub(crate) async fn remove(sent: AgentForm) -> Reply {
    match sent.people.remove_shadow(&sent.owned).await {
        Ok(()) => Ok(done(&paths::agent(sent.owned.agent().id), Notice::ShadowRemoved)),
        Err(error) => again(&sent, None, Some(error)).await,
    }
}

/// Shows the shadow policy's page in its current state, with the reason why nothing was changed.
async fn again(sent: &AgentForm, form: Option<Form>, error: Option<Error>) -> Reply {
    let (status, problem) = match error.map(Failure::from) {
        None => (axum::http::StatusCode::BAD_REQUEST, None),
        Some(failure) => match failure.error().kind() {
            ErrorKind::VersionConflict { .. } => (failure.status(), Some(CONFLICT.to_owned())),
            ErrorKind::ServiceNotFound => (failure.status(), Some(CLOSED.to_owned())),
            _ => return Err(failure),
        },
    };
    let layout = Layout {
        problem,
        typed: form,
        ..sent.layout()
    };
    let person = &sent.posted.session.person;
    let owned = sent.people.own_agent(person, sent.owned.agent().id).await?;
    let page = page::answer(&sent.people, &layout, &owned).await?;
    Ok((status, page).into_response())
}

const CONFLICT: &str = "The limits were edited after you opened the page. What is in force now, and what promoting changes, is shown below. Edits that were already made are kept.";
const CLOSED: &str = "A service of the shadow is no longer offered, so it can’t be enabled.";
