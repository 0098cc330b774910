//! The commands `login` and `logout`, and the client with the credential of the agent.

use crate::args::Credential;
use crate::credentials::{
    AGENT_KEY, CredentialError, OPERATOR_TOKEN, credential_path, file_error, read_standard_input, store,
};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use purser_client::{AgentKey, Purser};
use std::{fs, io};

/// Reads an agent key from standard input, checks that Purser accepts the key, and stores the key.
pub(crate) async fn login(url: &str, output: &Output) -> Result<Exit, Failure> {
    let text = read_standard_input()?;
    let key = AgentKey::from_text(&text).map_err(CredentialError::Key)?;
    let purser = Purser::new(url, &key).map_err(CredentialError::Url)?;
    let agent = purser.agent().await?;
    let path = credential_path(AGENT_KEY)?;
    store(&path, text.trim())?;
    output.print_text(&format!("The key of {} is stored in {}.", agent.name, path.display()));
    Ok(Exit::Done)
}

/// Removes the stored credential.
pub(crate) fn logout(credential: &Credential, output: &Output) -> Result<Exit, Failure> {
    let path = credential_path(if credential.operator { OPERATOR_TOKEN } else { AGENT_KEY })?;
    match fs::remove_file(&path) {
        Ok(()) => output.print_text("It is removed from this machine. It still works until it is revoked."),
        Err(error) if error.kind() == io::ErrorKind::NotFound => output.print_text("Nothing is stored."),
        Err(source) => return Err(file_error(&path, source).into()),
    }
    Ok(Exit::Done)
}
