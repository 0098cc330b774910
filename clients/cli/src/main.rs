//! `purser`, the command line: pays providers, verifies evidence, and manages the catalog and policies.

mod api;
mod args;
mod bazaar;
mod bazaar_input;
mod catalog;
mod credentials;
mod entry;
mod evidence;
mod exit;
mod files;
mod grant;
mod journal;
mod keyring;
mod log;
mod login;
mod mcp;
mod node;
mod operator;
mod output;
mod pay;
mod payment;
mod person;
mod policy;
mod policy_file;
mod policy_plan;
mod replay;
mod rule;
mod show;
mod signature;
mod verify;

use args::{Args, Command};
use clap::Parser as _;
use credentials::CredentialError;
use exit::{Exit, Failure};
use output::Output;
use std::process::ExitCode;

/// The `User-Agent` header of this program's own requests.
pub(crate) const USER_AGENT: &str = concat!("purser-cli/", env!("CARGO_PKG_VERSION"));

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let output = Output::new(args.json);
    match run(args, &output).await {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output.failure(&failure);
            failure.exit().into()
        }
    }
}

async fn run(args: Args, output: &Output) -> Result<Exit, Failure> {
    let url = || args.url.as_deref().ok_or(CredentialError::NoUrl);
    match args.command {
        Command::Login(login) if login.credential.operator => operator::login(url()?, output).await,
        Command::Login(login) if login.key => login::store_key(url()?, output).await,
        Command::Login(_) => login::login(url()?, output).await,
        Command::Logout(credential) => login::logout(&credential, output).await,
        Command::Catalog(command) => catalog::run(&operator::Operator::new(url()?)?, command, output).await,
        Command::Policy(command) => policy::run(&person::Person::new(url()?)?, command, output).await,
        Command::Pay(pay) => pay::pay(&login::agent_client(url()?)?, pay, output).await,
        Command::Check(check) => pay::check(&login::agent_client(url()?)?, check, output).await,
        Command::Approval(approval) => show::approval(&login::agent_client(url()?)?, approval, output).await,
        Command::Evidence(arguments) => evidence::write(&login::agent_client(url()?)?, &arguments, output).await,
        Command::Verify(arguments) => verify::verify(&arguments, output).await,
        Command::Replay(arguments) => replay::replay(&arguments, output),
        Command::Log(command) => log::run(command, output).await,
        Command::Mcp => mcp::serve(login::agent_client(url()?)?).await,
        Command::Whoami => show::whoami(&login::agent_client(url()?)?, output).await,
        Command::Services(filter) => show::services(&credentials::public_client(url()?)?, filter, output).await,
        Command::Search { text } => show::search(&credentials::public_client(url()?)?, &text, output).await,
        Command::Service { service } => show::service(&credentials::public_client(url()?)?, &service, output).await,
        Command::Enabled => show::list_enabled(&login::agent_client(url()?)?, output).await,
        Command::Receipts { limit } => show::receipts(&login::agent_client(url()?)?, limit, output).await,
        Command::Statement { settlement, decision } => {
            show::statement(&login::agent_client(url()?)?, settlement, decision, output).await
        }
        Command::Receipt { settlement } => show::receipt(&login::agent_client(url()?)?, settlement, output).await,
    }
}
