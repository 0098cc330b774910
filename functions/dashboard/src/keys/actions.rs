//! The forms for agent keys.

use crate::agents::form::AgentForm;
use crate::keys::section::parse_key_scope;
use crate::ui::form::FormName;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use purser_api::{Precondition, Reply};
use purser_domain::{KeyId, KeyScope};

/// Creates a key and shows it on the page, because a redirect can't carry it. A reload creates no second key.
pub(crate) async fn submit_new_key(request: AgentForm) -> Reply {
    let edition = request.people.current_catalog().await?;
    let is_limited = !request
        .parse_posted_form(FormName::Plain)
        .field_text("limited")
        .is_empty();
    let mut form = request.parse_posted_form(if is_limited {
        FormName::LimitedKey
    } else {
        FormName::Plain
    });
    let scope = if is_limited {
        parse_key_scope(&mut form, &edition.catalog, request.people.now())
    } else {
        Some(KeyScope::default())
    };
    let Some((scope, if_match)) = scope.zip(form.parse_version()) else {
        return request.show_form_again(form).await;
    };
    match request.people.create_key(request.owned.clone(), if_match, scope).await {
        Ok(issued) => request.show_new_key(&issued.agent, issued.text).await,
        Err(error) => request.show_rejected_key_form(form, error).await,
    }
}

pub(crate) async fn submit_key_rotation(request: AgentForm) -> Reply {
    let key = request.parse_path_parameter("key", KeyId::parse)?;
    let mut form = request.parse_posted_form(FormName::Rotate(key));
    let Some((overlap, if_match)) = form.parse_key_overlap().zip(form.parse_version()) else {
        return request.show_form_again(form).await;
    };
    match request
        .people
        .rotate_key(request.owned.clone(), if_match, key, overlap)
        .await
    {
        Ok(rotation) => request.show_new_key(&rotation.issued.agent, rotation.issued.text).await,
        Err(error) => request.show_rejected_key_form(form, error).await,
    }
}

/// The form sends no version, so that a concurrent update can't delay the revocation of a stolen key.
pub(crate) async fn submit_key_revocation(form: AgentForm) -> Reply {
    let key = form.parse_path_parameter("key", KeyId::parse)?;
    let (owned, _) = form.people.revoke_key(form.owned, Precondition::Any, key).await?;
    Ok(redirect_with_notice(
        &paths::agent_path(owned.agent().id),
        PageMessage::KeyRevoked,
    ))
}
