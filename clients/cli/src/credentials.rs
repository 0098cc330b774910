//! Reads credentials from the environment, from the desktop's keyring, or from a file that only the owner can read.

use crate::keyring;
use purser_client::{AgentKeyError, Purser, PurserUrlError};
use reqwest::header::HeaderValue;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The names of stored credentials. `AGENT_KEY` stores an agent key or the tokens of an OAuth grant.
pub(crate) const AGENT_KEY: &str = "agent-key";
pub(crate) const OPERATOR_TOKEN: &str = "operator-token";
/// The maximum length of a credential, in bytes.
const MAX_BYTES: u64 = 4_096;

/// The reason why no credential is available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error("there is no agent key: set PURSER_KEY, or store one with `purser login`")]
    Missing,
    #[error("Purser's address is missing: set PURSER_URL, or give --url")]
    NoUrl,
    #[error("there is no operator's token: set PURSER_OPERATOR_TOKEN, or store one with `purser login --operator`")]
    NoToken,
    #[error("an operator's token is one line of printable ASCII, 256 characters at most")]
    Token,
    #[error("there is no session of a person: set PURSER_SESSION_TOKEN to the ID token of a sign-in")]
    NoSession,
    #[error("a session token is one line of printable ASCII, 8,192 characters at most")]
    Session,
    #[error("you signed in at {signed_in}: run `purser login` again to use {url}")]
    OtherUrl { signed_in: String, url: String },
    #[error(transparent)]
    Key(#[from] AgentKeyError),
    #[error(transparent)]
    Url(#[from] PurserUrlError),
    #[error(
        "{path} can be read by others: run `chmod 600 {path}`, and have the key rotated if others use this machine"
    )]
    Open { path: String },
    #[error("there is no home directory: set HOME or XDG_CONFIG_HOME")]
    NoHome,
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
}

/// Returns a client without a key, which can read the public catalog.
pub(crate) fn public_client(url: &str) -> Result<Purser, CredentialError> {
    Ok(Purser::without_key(url)?)
}

/// Returns the value of an environment variable, unless the variable is empty.
#[expect(
    clippy::disallowed_methods,
    reason = "a program of its own, which reads its few settings where they are used"
)]
pub(crate) fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns a header value with a scheme and a credential. Returns `None` unless the credential is one line of ASCII.
pub(crate) fn credential_header(credential: &str, scheme: &str, max_bytes: usize) -> Option<HeaderValue> {
    let credential = credential.trim();
    let is_one = (1..=max_bytes).contains(&credential.len()) && credential.bytes().all(|byte| byte.is_ascii_graphic());
    let text = Zeroizing::new(format!("{scheme}{credential}"));
    HeaderValue::from_str(&text).ok().filter(|_| is_one)
}

pub(crate) fn read_standard_input() -> Result<Zeroizing<String>, CredentialError> {
    let mut text = Zeroizing::new(String::new());
    let read = io::stdin().take(MAX_BYTES).read_to_string(&mut text);
    read.map_err(|source| CredentialError::File {
        path: "standard input".to_owned(),
        source,
    })?;
    Ok(text)
}

/// Returns the path of a credential's file (XDG Base Directory specification).
fn credential_path(name: &str) -> Result<PathBuf, CredentialError> {
    directory("XDG_CONFIG_HOME", ".config").map(|config| config.join("purser").join(name))
}

/// Reads a stored credential.
pub(crate) fn read_credential(name: &str) -> Result<Option<Zeroizing<String>>, CredentialError> {
    let stored = read_file(&credential_path(name)?)?;
    Ok(stored.or_else(|| keyring::read(name)))
}

/// Stores a credential in the keyring or, without a keyring, in a file. Returns where, for a message.
pub(crate) fn store_credential(name: &str, text: &str) -> Result<String, CredentialError> {
    let path = credential_path(name)?;
    if keyring::store(name, text) {
        remove_file(&path)?;
        return Ok("the keyring".to_owned());
    }
    write_file(&path, text)?;
    Ok(path.display().to_string())
}

/// Removes a stored credential, and returns whether a credential was stored.
pub(crate) fn remove_credential(name: &str) -> Result<bool, CredentialError> {
    let is_removed = keyring::remove(name);
    Ok(remove_file(&credential_path(name)?)? || is_removed)
}

/// Returns the XDG base directory in the variable, or the default directory below the home directory.
pub(crate) fn directory(variable: &str, relative_path: &str) -> Result<PathBuf, CredentialError> {
    let named = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(relative_path));
    named.or_else(home).ok_or(CredentialError::NoHome)
}

/// Reads a credential file. Returns an error if other users can read the file.
fn read_file(path: &Path) -> Result<Option<Zeroizing<String>>, CredentialError> {
    let of = |source| file_error(path, source);
    let opened = match fs::File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(of(error)),
    };
    if opened.metadata().map_err(of)?.permissions().mode() & 0o077 != 0 {
        let path = path.display().to_string();
        return Err(CredentialError::Open { path });
    }
    let mut text = Zeroizing::new(String::new());
    opened.take(MAX_BYTES).read_to_string(&mut text).map_err(of)?;
    Ok(Some(text))
}

/// Replaces a file with a new file.
fn write_file(path: &Path, text: &str) -> Result<(), CredentialError> {
    let of = |source| file_error(path, source);
    let new = path.with_extension("new");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(of)?;
    }
    remove_file(&new)?;
    let mut options = OpenOptions::new();
    let mut opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(of)?;
    opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.sync_all())
        .map_err(of)?;
    fs::rename(&new, path).map_err(of)
}

/// Removes a file, and returns whether the file existed.
fn remove_file(path: &Path) -> Result<bool, CredentialError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(file_error(path, source)),
    }
}

fn file_error(path: &Path, source: io::Error) -> CredentialError {
    let path = path.display().to_string();
    CredentialError::File { path, source }
}
