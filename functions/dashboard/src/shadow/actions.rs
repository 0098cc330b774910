//! The forms of a shadow policy.

use crate::agents::form::AgentForm;
use crate::shadow::page;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::Layout;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use axum::response::IntoResponse as _;
use purser_api::{Failure, Reply};
use purser_domain::{Error, ErrorKind};

pub(crate) async fn submit_shadow_promotion(request: AgentForm) -> Reply {
    let mut form = request.parse_posted_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return show_shadow_page_with_error(&request, Some(form), None).await;
    };
    match request.people.promote_shadow(request.owned.clone(), if_match).await {
        Ok(_) => Ok(redirect_with_notice(
            &paths::agent_path(request.owned.agent().id),
            PageMessage::ShadowPromoted,
        )),
        Err(error) => show_shadow_page_with_error(&request, None, Some(error)).await,
    }
}

pub(crate) async fn submit_shadow_removal(form: AgentForm) -> Reply {
    match form.people.remove_shadow(&form.owned).await {
        Ok(()) => Ok(redirect_with_notice(
            &paths::agent_path(form.owned.agent().id),
            PageMessage::ShadowRemoved,
        )),
        Err(error) => show_shadow_page_with_error(&form, None, Some(error)).await,
    }
}

async fn show_shadow_page_with_error(request: &AgentForm, form: Option<Form>, error: Option<Error>) -> Reply {
    let (status, message) = match error.map(Failure::from) {
        None => (axum::http::StatusCode::BAD_REQUEST, None),
        Some(failure) => match failure.error().kind() {
            ErrorKind::VersionConflict { .. } => (failure.status(), Some(CONFLICT.to_owned())),
            ErrorKind::ServiceNotFound => (failure.status(), Some(CLOSED.to_owned())),
            _ => return Err(failure),
        },
    };
    let layout = Layout {
        problem: message,
        typed: form,
        ..request.page_layout()
    };
    let user = &request.posted.session.person;
    let owned = request.people.read_own_agent(user, request.owned.agent().id).await?;
    let page = page::shadow_page_response(&request.people, &layout, &owned).await?;
    Ok((status, page).into_response())
}

const CONFLICT: &str = "The limits were edited after you opened the page. What is in force now, and what promoting changes, is shown below. Edits that were already made are kept.";
const CLOSED: &str = "A service of the shadow is no longer offered, so it can’t be enabled.";
