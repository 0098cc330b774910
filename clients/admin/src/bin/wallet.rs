//! Creates the seed of all wallets on this machine and stores the seed in the stack's secret:
//!
//! ```text
//! wallet --stack <name> --backup <file>     stores a new seed; writes the file first, the only copy outside AWS
//! wallet --stack <name> --restore <file>    stores the seed from a backup file, for a stack that is created again
//! ```
//!
//! The seed is never printed, and is never an argument of a program. An existing value of the secret is never replaced,
//! because another seed would make every existing wallet inaccessible.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

use purser_admin::{Failed, aws, output, put_secret};
use purser_chain::WalletSeed;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// The source of the seed.
enum Source {
    /// A new random seed. The backup is written to this file.
    New { backup: PathBuf },
    /// The seed in this backup file.
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
    let secret = aws(&["secretsmanager", "describe-secret", "--secret-id", &seed_arn], None)?;
    if secret
        .get("VersionIdsToStages")
        .is_some_and(|versions| !versions.is_null())
    {
        return Err(format!("`{seed_arn}` has a value; another one would abandon its wallets").into());
    }

    let text = match source {
        Source::New { backup } => {
            let random: Zeroizing<[u8; 64]> = Zeroizing::new(purser_api::random_bytes()?);
            let text = Zeroizing::new(alloy::hex::encode(random.as_slice()));
            // The backup is written first, so that no wallet depends on a seed without a backup.
            write_copy(backup, &text)?;
            text
        }
        Source::Copy(file) => {
            let text = Zeroizing::new(fs::read_to_string(file).map_err(|error| error_message(file, &error))?);
            Zeroizing::new(text.trim().to_owned())
        }
    };
    let seed = WalletSeed::from_hex(&text)?;
    put_secret(&seed_arn, &text)?;
    println!("wallet: the seed is stored");
    println!(
        "wallet: the first agent's wallet will be {}",
        seed.derive_wallet(0)?.address()
    );
    if let Source::New { backup } = source {
        println!("wallet: keep {} where no computer can reach it", backup.display());
    }
    Ok(())
}

/// Writes the seed to a new file that only the file's owner can read. Returns an error if the file exists.
fn write_copy(path: &Path, text: &str) -> Result<(), Failed> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| error_message(path, &error).into())
}

fn error_message(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
