//! Runs the program with a separate home directory.

use purser_tests::{TestAgent, World};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The environment variable for an operator's token.
pub(crate) const TOKEN: &str = "PURSER_OPERATOR_TOKEN";
/// The environment variable for a user's session token.
pub(crate) const SESSION: &str = "PURSER_SESSION_TOKEN";

/// A temporary home directory, which is removed when the value is dropped.
pub(crate) struct Home {
    folder: PathBuf,
    url: String,
    key: Option<String>,
    more: Vec<(&'static str, String)>,
}

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    /// Asserts that the command succeeded, and returns the output.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Asserts that the command succeeded, and returns the output as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.done();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Returns standard error as JSON: the receipt, or the error.
    #[track_caller]
    pub(crate) fn error_json(&self) -> Value {
        serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Home {
    /// Creates a home with the agent's key in the environment.
    pub(crate) fn for_agent(world: &World, agent: &TestAgent) -> Self {
        let mut home = Self::without_key(world);
        home.key = Some(agent.key.clone());
        home
    }

    /// Creates a home with an operator's token in the environment.
    pub(crate) fn of_operator(world: &World) -> Self {
        Self::without_key(world).with(TOKEN, &world.stack.internal_token)
    }

    /// Creates a home without a key.
    pub(crate) fn without_key(world: &World) -> Self {
        Self::at(&world.stack.base_url)
    }

    /// Creates a home for a Purser server at this URL. An empty URL leaves the variable unset.
    pub(crate) fn at(url: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("purser-cli-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            folder,
            url: url.to_owned(),
            key: None,
            more: vec![],
        }
    }

    /// Adds an environment variable.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.more.push((name, value.into()));
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates a command without starting it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_purser"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", &self.folder)
            .envs((!self.url.is_empty()).then_some(("PURSER_URL", &self.url)))
            .envs(self.key.as_ref().map(|key| ("PURSER_KEY", key)))
            .envs(self.more.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command until it exits.
    pub(crate) async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(arguments, None).await
    }

    /// Runs a command with this standard input until it exits.
    pub(crate) async fn run_with(&self, arguments: &[&str], input: Option<&str>) -> CommandOutput {
        let mut command = self.command(arguments);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            stdin.write_all(input.as_bytes()).await.unwrap();
        }
        let output = child.wait_with_output();
        let output = tokio::time::timeout(std::time::Duration::from_mins(2), output).await;
        let output = output.expect("it ends in time").unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let said = CommandOutput {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        self.assert_keeps_secrets(&said);
        said
    }

    /// Asserts that the output contains no key, token or signed payment.
    fn assert_keeps_secrets(&self, said: &CommandOutput) {
        let both = format!("{}{}", said.out, said.err);
        let secret = self.key.as_deref().and_then(|key| key.split_once(':'));
        if let Some((_, secret)) = secret {
            assert!(!both.contains(secret), "the key is told");
        }
        for (name, token) in &self.more {
            assert!(
                ![TOKEN, SESSION].contains(name) || !both.contains(token),
                "the token is told"
            );
        }
        // The description of the key format contains this placeholder.
        let both = both.replace("gak_sec_<secret>", "");
        for word in ["gak_sec_", "signature", "header_value"] {
            assert!(!both.contains(word), "{word}: {both}");
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
