//! Tests of the program `operator` with a fake `aws` command.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use purser_domain::SecretDigest;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a fake `aws` command, which writes each call to `calls` and the secret's value to `secret`.
struct Account(PathBuf);

impl Account {
    fn holding(name: &str, secret: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("operator-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let here = folder.display();
        let script = format!(
            r#"#!/bin/sh
echo "$*" >> {here}/calls
case "$2" in
  describe-stacks) echo '{{"Stacks": [{{"Outputs": [{{"OutputKey": "OperatorsSecretArn", "OutputValue": "arn:operators"}}]}}]}}' ;;
  get-secret-value) cat {here}/answer ;;
  put-secret-value) cat > {here}/secret ;;
esac
"#
        );
        fs::write(folder.join("aws"), script).unwrap();
        fs::set_permissions(folder.join("aws"), fs::Permissions::from_mode(0o755)).unwrap();
        let account = Self(folder);
        account.hold(secret);
        account
    }

    fn hold(&self, secret: &str) {
        fs::write(self.0.join("answer"), json!({"SecretString": secret}).to_string()).unwrap();
    }

    fn operator(&self, change: &str, name: &str) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.display());
        let mut operator = Command::new(env!("CARGO_BIN_EXE_operator"));
        let operator = operator
            .env("PATH", path)
            .args(["--stack", "purser-prod", change, name]);
        operator.output().unwrap()
    }

    /// Returns the secret that the program wrote.
    fn secret(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.0.join("secret")).unwrap()).unwrap()
    }

    fn was_written(&self) -> bool {
        self.0.join("secret").exists()
    }
}

/// Neither the token nor the digest is passed as an argument.
#[test]
fn only_the_digest_of_a_token_is_stored() {
    let account = Account::holding("add", "{}");
    let ended = account.operator("--add", "ada");
    assert!(ended.status.success(), "{ended:?}");
    let token = String::from_utf8(ended.stdout).unwrap();
    let token = token.trim();
    assert_eq!(token.len(), 64);
    assert_eq!(
        account.secret(),
        json!({"ada": SecretDigest::from_secret(token).to_hex()})
    );
    let calls = fs::read_to_string(account.0.join("calls")).unwrap();
    assert!(
        !calls.contains(token) && !calls.contains(&SecretDigest::from_secret(token).to_hex()),
        "{calls}"
    );
}

#[test]
fn adding_an_operator_keeps_the_other_operators() {
    let digest = "ab".repeat(32);
    let account = Account::holding("others", &json!({"bob": digest}).to_string());
    assert!(account.operator("--add", "ada").status.success());
    let both = account.secret();
    assert_eq!(both["bob"], digest);
    account.hold(&both.to_string());
    assert!(account.operator("--remove", "ada").status.success());
    assert_eq!(account.secret(), json!({"bob": digest}));
}

#[test]
fn invalid_operator_changes_are_rejected_without_effect() {
    let digest = "ab".repeat(32);
    let bob = json!({"bob": digest}).to_string();
    let rows = [
        (bob.as_str(), "--add", "bob", "is there"),
        (&bob, "--remove", "ada", "is nobody"),
        (&bob, "--add", "Ada", "must be a name"),
        ("a token of old", "--add", "ada", "is no object"),
    ];
    for (n, (secret, change, name, told)) in rows.into_iter().enumerate() {
        let account = Account::holding(&format!("no-{n}"), secret);
        let ended = account.operator(change, name);
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && words.contains(told), "{words}");
        assert!(!words.contains(&digest) && !words.contains("a token of old"), "{words}");
        assert!(!account.was_written() && ended.stdout.is_empty(), "{name}");
    }
}
