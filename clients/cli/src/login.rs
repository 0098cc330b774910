//! The commands `login` and `logout`, and the client with the credential of the agent.

use crate::args::Credential;
use crate::credentials::{
    AGENT_KEY, CredentialError, OPERATOR_TOKEN, read_credential, read_standard_input, remove_credential,
    store_credential,
};
use crate::exit::{Exit, Failure};
use crate::grant::{Grant, start_device_authorization};
use crate::keyring::has_desktop;
use crate::output::Output;
use purser_client::{AgentKey, AgentKeyError, Purser};
use serde_json::json;
use std::process::{Command, Stdio};
use url::Url;

/// Returns a client with the agent key from the environment. If the environment has no agent key, the client uses the
/// stored agent key or grant.
pub(crate) fn agent_client(url: &str) -> Result<Purser, CredentialError> {
    let key = match AgentKey::from_env() {
        Err(AgentKeyError::Missing) => {
            let text = read_credential(AGENT_KEY)?.ok_or(CredentialError::Missing)?;
            if let Some(grant) = Grant::from_text(&text) {
                return grant.client(url);
            }
            AgentKey::from_text(&text)?
        }
        key => key?,
    };
    Ok(Purser::new(url, &key)?)
}

/// Shows a code for the user, waits for the user's consent in a browser, and stores the tokens.
pub(crate) async fn login(url: &str, output: &Output) -> Result<Exit, Failure> {
    let device = start_device_authorization(url).await?;
    let (code, page) = (&device.user_code, &device.verification_uri);
    let is_opened = open_browser(device.verification_uri_complete.as_ref().unwrap_or(page));
    let instruction = if is_opened {
        format!("Your browser opens {page}. Check that the page shows the code {code}, and decide there.")
    } else {
        format!("Open {page} in a browser, enter the code {code}, and decide there.")
    };
    output.print_note(&json!({"user_code": code, "verification_uri": page}), &instruction);
    let grant = device.wait_for_grant(url).await?;
    let place = grant.store()?;
    let agent = grant.client(url)?.agent().await?;
    output.print_text(&format!(
        "Purser lets this program act for {}. The tokens are stored in {place}.",
        agent.name
    ));
    Ok(Exit::Done)
}

/// Opens a web page in the user's browser. The server chooses the URL, so other kinds of URLs are not opened.
fn open_browser(page: &str) -> bool {
    let is_web_page = Url::parse(page).is_ok_and(|url| matches!(url.scheme(), "https" | "http"));
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !is_web_page || !(has_desktop() || cfg!(target_os = "macos")) {
        return false;
    }
    let mut command = Command::new(program);
    command
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().is_ok()
}

/// Reads an agent key from standard input, checks that Purser accepts the key, and stores the key.
pub(crate) async fn store_key(url: &str, output: &Output) -> Result<Exit, Failure> {
    let text = read_standard_input()?;
    let key = AgentKey::from_text(&text).map_err(CredentialError::Key)?;
    let purser = Purser::new(url, &key).map_err(CredentialError::Url)?;
    let agent = purser.agent().await?;
    let place = store_credential(AGENT_KEY, text.trim())?;
    output.print_text(&format!("The key of {} is stored in {place}.", agent.name));
    Ok(Exit::Done)
}

/// Removes the stored credential, and revokes the credential if it is a grant.
pub(crate) async fn logout(credential: &Credential, output: &Output) -> Result<Exit, Failure> {
    let name = if credential.operator { OPERATOR_TOKEN } else { AGENT_KEY };
    // A credential that can't be read is removed all the same.
    let stored = read_credential(name).ok().flatten();
    let grant = stored.and_then(|text| Grant::from_text(&text));
    let revoked = match &grant {
        Some(grant) => Some(grant.revoke().await),
        None => None,
    };
    let is_removed = remove_credential(name)?;
    match revoked {
        Some(Ok(())) => output.print_text("Purser lets this program act no longer. The tokens are removed."),
        Some(Err(failure)) => {
            output.print_text(
                "The tokens are removed from this machine. Revoke them on the agent's page in the dashboard.",
            );
            return Err(failure);
        }
        None if is_removed => output.print_text("It is removed from this machine. It still works until it is revoked."),
        None => output.print_text("Nothing is stored."),
    }
    Ok(Exit::Done)
}
