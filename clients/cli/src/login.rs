//! The commands `login` and `logout`.

use crate::args::Credential;
use crate::credentials::{AGENT_KEY, CredentialError, OPERATOR_TOKEN, file, from_standard_input, path, store};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use purser_client::{AgentKey, Purser};
use std::{fs, io};

/// Reads an agent key from standard input, checks that Purser accepts the key, and stores the key.
pub(crate) async fn login(url: &str, output: &Output) -> Result<Exit, Failure> {
    let text = from_standard_input()?;
    let key = AgentKey::from_text(&text).map_err(CredentialError::Key)?;
    let purser = Purser::new(url, &key).map_err(CredentialError::Url)?;
    let agent = purser.agent().await?;
    let path = path(AGENT_KEY)?;
    store(&path, text.trim())?;
    output.say(&format!("The key of {} is stored in {}.", agent.name, path.display()));
    Ok(Exit::Done)
}

/// Removes the stored credential.
pub(crate) fn logout(credential: &Credential, output: &Output) -> Result<Exit, Failure> {
    let path = path(if credential.operator { OPERATOR_TOKEN } else { AGENT_KEY })?;
    match fs::remove_file(&path) {
        Ok(()) => output.say("It is removed from this machine. It still works until it is revoked."),
        Err(error) if error.kind() == io::ErrorKind::NotFound => output.say("Nothing is stored."),
        Err(source) => return Err(file(&path, source).into()),
    }
    Ok(Exit::Done)
}
