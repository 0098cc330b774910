//! The desktop's keyring, through `secret-tool` of libsecret. A keyring crate would need a C library.

use std::io::Write as _;
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

const PROGRAM: &str = "secret-tool";

/// Returns the arguments that identify a credential in the keyring.
fn attributes(name: &str) -> [&str; 4] {
    ["application", "purser", "credential", name]
}

/// Returns whether the program runs in a desktop session (X11 or Wayland).
pub(crate) fn has_desktop() -> bool {
    let displays = ["WAYLAND_DISPLAY", "DISPLAY"].map(std::env::var_os);
    displays.into_iter().flatten().any(|display| !display.is_empty())
}

/// Returns a `secret-tool` command, or `None` outside a desktop session.
fn command(action: &str) -> Option<Command> {
    if !has_desktop() {
        return None;
    }
    let mut command = Command::new(PROGRAM);
    command.arg(action).stdin(Stdio::null()).stderr(Stdio::null());
    Some(command)
}

/// Stores a credential. Returns false if no keyring is available.
pub(crate) fn store(name: &str, text: &str) -> bool {
    let Some(mut command) = command("store") else {
        return false;
    };
    command
        .arg("--label")
        .arg(format!("Purser: {name}"))
        .args(attributes(name));
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else {
        return false;
    };
    // Dropping the pipe ends the input.
    let is_written = child
        .stdin
        .take()
        .is_some_and(|mut pipe| pipe.write_all(text.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| status.success() && is_written)
}

/// Returns a stored credential, or `None` if there is no credential or no keyring.
pub(crate) fn read(name: &str) -> Option<Zeroizing<String>> {
    let output = command("lookup")?.args(attributes(name)).output().ok()?;
    let text = Zeroizing::new(String::from_utf8(output.stdout).ok()?);
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Removes a credential, and returns whether a credential was removed.
pub(crate) fn remove(name: &str) -> bool {
    let is_stored = read(name).is_some();
    let status = command("clear").and_then(|mut command| command.args(attributes(name)).status().ok());
    is_stored && status.is_some_and(|status| status.success())
}
