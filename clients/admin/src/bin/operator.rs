//! Adds or removes an operator of a stack:
//!
//! ```text
//! operator --stack <name> --add <operator>       with a new token, which is printed once and not stored
//! operator --stack <name> --remove <operator>
//! ```
//!
//! The secret contains only operator names and token digests. The functions apply a change within a minute.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_admin::{Failed, aws, output, put_secret};
use purser_domain::{OperatorName, SecretDigest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;
use zeroize::Zeroizing;

enum Change {
    Add,
    Remove,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (stack, change, name) = match arguments.as_slice() {
        ["--stack", stack, "--add", name] => (*stack, Change::Add, *name),
        ["--stack", stack, "--remove", name] => (*stack, Change::Remove, *name),
        _ => {
            eprintln!("operator: usage: operator --stack <name> (--add | --remove) <operator>");
            return ExitCode::from(2);
        }
    };
    match run(stack, &change, name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(stack: &str, change: &Change, name: &str) -> Result<(), Failed> {
    let name = OperatorName::parse(name).ok_or(OperatorName::FORM)?;
    let outputs = aws(&["cloudformation", "describe-stacks", "--stack-name", stack], None)?;
    let arn = output(&outputs, "OperatorsSecretArn")?;
    let secret = aws(&["secretsmanager", "get-secret-value", "--secret-id", &arn], None)?;
    let text = secret.get("SecretString").and_then(Value::as_str).unwrap_or_default();
    let mut operators: BTreeMap<String, String> =
        serde_json::from_str(text).map_err(|_| format!("`{arn}` is no object of names and digests"))?;
    let is_there = operators.contains_key(name.as_str());
    match change {
        Change::Add if is_there => Err(format!("`{name}` is there; another token takes a --remove first").into()),
        Change::Add => {
            let random: Zeroizing<[u8; 32]> = Zeroizing::new(purser_api::random_bytes()?);
            let token = Zeroizing::new(alloy::hex::encode(random.as_slice()));
            operators.insert(name.to_string(), SecretDigest::from_secret(token.as_bytes()).to_hex());
            put_secret(&arn, &serde_json::to_string(&operators)?)?;
            eprintln!("operator: `{name}` has this token, which is shown once:");
            println!("{}", *token);
            Ok(())
        }
        Change::Remove if is_there => {
            operators.remove(name.as_str());
            put_secret(&arn, &serde_json::to_string(&operators)?)?;
            eprintln!("operator: `{name}` is refused within a minute");
            Ok(())
        }
        Change::Remove => Err(format!("`{name}` is nobody").into()),
    }
}
