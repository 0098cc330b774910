//! Creates the seed of all wallets on this machine and puts it into the stack's secret, with its extended public key:
//!
//! ```text
//! wallet --stack <name> --backup <file>     a new seed; the file is written first, and is the only copy outside AWS
//! wallet --stack <name> --restore <file>    the seed of such a file, for a stack that is made anew
//! ```
//!
//! The seed is never printed and never a program's argument. It goes only into the file and into the standard input of
//! the `aws` command, which finds account and region as usual. A secret that has a value is not changed: another seed
//! would abandon every wallet that was derived from the first.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_chain::WalletSeed;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use zeroize::Zeroizing;

type Failed = Box<dyn std::error::Error>;

/// Where the seed comes from.
enum Source {
    /// Generated from entropy; the copy is written here.
    New { backup: PathBuf },
    /// Read from an earlier copy.
    Copy(PathBuf),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((stack, source)) = parse(&arguments) else {
        eprintln!("wallet: usage: wallet --stack <name> (--backup <new file> | --restore <file>)");
        return ExitCode::from(2);
    };
    match run(stack, &source) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wallet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<(&str, Source)> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--stack", stack, "--backup", file] => Some((*stack, Source::New { backup: file.into() })),
        ["--stack", stack, "--restore", file] => Some((*stack, Source::Copy(file.into()))),
        _ => None,
    }
}

fn run(stack: &str, source: &Source) -> Result<(), Failed> {
    let outputs = aws(&["cloudformation", "describe-stacks", "--stack-name", stack], None)?;
    let seed_arn = output(&outputs, "WalletSeedSecretArn")?;
    let xpub_arn = output(&outputs, "WalletXpubSecretArn")?;
    let secret = aws(&["secretsmanager", "describe-secret", "--secret-id", &seed_arn], None)?;
    if secret
        .get("VersionIdsToStages")
        .is_some_and(|versions| !versions.is_null())
    {
        return Err(format!("`{seed_arn}` has a value; another one would abandon its wallets").into());
    }

    let text = match source {
        Source::New { backup } => {
            let random: Zeroizing<[u8; 64]> = Zeroizing::new(purser_api::random()?);
            let text = Zeroizing::new(alloy::hex::encode(random.as_slice()));
            // Before anything depends on the seed.
            write_copy(backup, &text)?;
            text
        }
        Source::Copy(file) => {
            let text = Zeroizing::new(fs::read_to_string(file).map_err(|error| told(file, &error))?);
            Zeroizing::new(text.trim().to_owned())
        }
    };
    let seed = WalletSeed::from_hex(&text)?;
    // If the second write fails, the first secret still has no value, and everything can be run again.
    put(&xpub_arn, &seed.xpub().to_text()?)?;
    put(&seed_arn, &text)?;
    println!("wallet: the seed and its public half are stored");
    println!("wallet: the first agent's wallet will be {}", seed.wallet(0)?.address());
    if let Source::New { backup } = source {
        println!("wallet: keep {} where no computer can reach it", backup.display());
    }
    Ok(())
}

/// A file that only its owner can read, and that must not exist yet.
fn write_copy(path: &Path, text: &str) -> Result<(), Failed> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| told(path, &error).into())
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn put(arn: &str, value: &str) -> Result<(), Failed> {
    let arguments = [
        "secretsmanager",
        "put-secret-value",
        "--secret-id",
        arn,
        "--secret-string",
    ];
    aws(&[arguments.as_slice(), &["file:///dev/stdin"]].concat(), Some(value))?;
    Ok(())
}

/// Runs `aws` with this standard input, which nobody else sees, and returns what it prints.
fn aws(arguments: &[&str], input: Option<&str>) -> Result<Value, Failed> {
    let mut child = Command::new("aws")
        .args(arguments)
        .args(["--output", "json"])
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the `aws` command does not start: {error}"))?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(input.as_bytes())?;
    }
    let ended = child.wait_with_output()?;
    if !ended.status.success() {
        // `aws` has printed its own error.
        return Err(format!(
            "`aws {}` failed",
            arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ")
        )
        .into());
    }
    Ok(serde_json::from_slice(&ended.stdout).unwrap_or_default())
}

/// An output of the described stack.
fn output(described: &Value, name: &str) -> Result<String, Failed> {
    let outputs = described.pointer("/Stacks/0/Outputs").and_then(Value::as_array);
    let is_named = |output: &&Value| output.get("OutputKey").and_then(Value::as_str) == Some(name);
    let found = outputs.into_iter().flatten().find(is_named);
    let value = found
        .and_then(|output| output.get("OutputValue"))
        .and_then(Value::as_str);
    Ok(value
        .ok_or_else(|| format!("the stack has no output `{name}`"))?
        .to_owned())
}
