//! The forms for agent keys.

use crate::agents::form::AgentForm;
use crate::keys::section::read_scope;
use crate::ui::form::FormName;
use crate::ui::notice::{Notice, done};
use crate::ui::paths;
use purser_api::{Precondition, Reply};
use purser_domain::{KeyId, KeyScope};

/// Handles `POST …/keys`. The response is the page that shows the key, because a redirect could not carry the key. A
/// reload sends the same version again, so it creates no second key.
pub(crate) async fn create(sent: AgentForm) -> Reply {
    let edition = sent.people.catalog().await?;
    let is_limited = !sent.form(FormName::Plain).text("limited").is_empty();
    let mut form = sent.form(if is_limited {
        FormName::LimitedKey
    } else {
        FormName::Plain
    });
    let scope = if is_limited {
        read_scope(&mut form, &edition.catalog, sent.people.now())
    } else {
        Some(KeyScope::default())
    };
    let Some((scope, if_match)) = scope.zip(form.version()) else {
        return sent.again(form).await;
    };
    match sent.people.create_key(sent.owned.clone(), if_match, scope).await {
        Ok(issued) => sent.show_key(&issued.agent, issued.text).await,
        Err(error) => sent.reject_key(form, error).await,
    }
}

/// Handles `POST …/keys/{key}/rotate`.
pub(crate) async fn rotate(sent: AgentForm) -> Reply {
    let key = sent.parse_parameter("key", KeyId::parse)?;
    let mut form = sent.form(FormName::Rotate(key));
    let Some((overlap, if_match)) = form.overlap().zip(form.version()) else {
        return sent.again(form).await;
    };
    match sent.people.rotate_key(sent.owned.clone(), if_match, key, overlap).await {
        Ok(rotation) => sent.show_key(&rotation.issued.agent, rotation.issued.text).await,
        Err(error) => sent.reject_key(form, error).await,
    }
}

/// Handles `POST …/keys/{key}/revoke`. The form sends no version, because a stolen key must end at once, even while
/// another user updates the agent.
pub(crate) async fn revoke(sent: AgentForm) -> Reply {
    let key = sent.parse_parameter("key", KeyId::parse)?;
    let (owned, _) = sent.people.revoke_key(sent.owned, Precondition::Any, key).await?;
    Ok(done(&paths::agent(owned.agent().id), Notice::KeyRevoked))
}
