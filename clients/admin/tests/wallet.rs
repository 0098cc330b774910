//! Tests of the program `wallet` with a fake `aws` command that records calls.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use purser_chain::WalletSeed;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a fake `aws` command, which writes each call to `calls` and the secret's value to `seed`.
struct Account(PathBuf);

impl Account {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wallet-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let here = folder.display();
        let script = format!(
            r#"#!/bin/sh
echo "$*" >> {here}/calls
case "$2" in
  describe-stacks) echo '{{"Stacks": [{{"Outputs": [
    {{"OutputKey": "WalletSeedSecretArn", "OutputValue": "arn:seed"}}]}}]}}' ;;
  describe-secret) if [ -e {here}/seed ]; then echo '{{"VersionIdsToStages": {{"1": ["AWSCURRENT"]}}}}'; else echo '{{}}'; fi ;;
  put-secret-value) [ ! -e {here}/broken ] && cat > {here}/"${{4#arn:}}" ;;
esac
"#
        );
        let aws = folder.join("aws");
        fs::write(&aws, script).unwrap();
        fs::set_permissions(&aws, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn wallet(&self, how: &str, copy: &Path) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.display());
        let mut wallet = Command::new(env!("CARGO_BIN_EXE_wallet"));
        let wallet = wallet.env("PATH", path).args(["--stack", "purser-prod", how]);
        wallet.arg(copy).output().unwrap()
    }
}

fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text))
        .concat()
}

/// The secret and the backup file have the same seed. The output shows only the wallet's address.
#[test]
fn a_new_seed_is_stored_and_never_printed() {
    let account = Account::new("new");
    let copy = account.path("copy");
    let ended = account.wallet("--backup", &copy);
    assert!(ended.status.success(), "{}", printed(&ended));

    let text = account.read("seed");
    assert_eq!((text.len(), account.read("copy")), (128, text.clone()));
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let seed = WalletSeed::from_hex(&text).unwrap();

    let shown = printed(&ended) + &account.read("calls");
    assert!(!shown.contains(&text), "{shown}");
    assert!(
        shown.contains(&seed.derive_wallet(0).unwrap().address().to_string()),
        "{shown}"
    );
}

#[test]
fn an_existing_wallet_seed_is_never_replaced() {
    let account = Account::new("twice");
    assert!(account.wallet("--backup", &account.path("one")).status.success());
    let first = account.read("seed");
    let again = account.wallet("--backup", &account.path("two"));
    assert!(
        !again.status.success() && printed(&again).contains("has a value"),
        "{}",
        printed(&again)
    );
    assert_eq!(account.read("seed"), first);
    assert!(!account.path("two").exists());
}

#[test]
fn an_existing_seed_copy_is_not_overwritten() {
    let account = Account::new("copy");
    fs::write(account.path("copy"), "something").unwrap();
    assert!(!account.wallet("--backup", &account.path("copy")).status.success());
    assert_eq!(account.read("copy"), "something");
    assert!(!account.path("seed").exists());
}

#[test]
fn an_interrupted_seed_change_resumes_from_the_copy() {
    let account = Account::new("broken");
    let copy = account.path("copy");
    fs::write(account.path("broken"), "").unwrap();
    assert!(!account.wallet("--backup", &copy).status.success());
    fs::remove_file(account.path("broken")).unwrap();
    let ended = account.wallet("--restore", &copy);
    assert!(ended.status.success(), "{}", printed(&ended));
    assert_eq!(account.read("seed"), account.read("copy"));
}

#[test]
fn invalid_arguments_print_the_usage() {
    let account = Account::new("usage");
    let ended = account.wallet("--print", &account.path("copy"));
    assert_eq!(ended.status.code(), Some(2));
    assert!(printed(&ended).contains("usage"));
}
