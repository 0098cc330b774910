//! The words of the command line.

use clap::{Parser, Subcommand};
use purser_client::Usdc;
use uuid::Uuid;

/// Pays x402 providers through Purser, which judges each payment against the agent's spend policy.
#[derive(Debug, Parser)]
#[command(name = "purser", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Purser's address: the key is sent there.
    #[arg(long, env = "PURSER_URL", global = true)]
    pub(crate) url: Option<String>,
    /// Answer in JSON, for programs. Of `pay`, standard output has the provider's answer, and the last line of standard
    /// error the receipt or the error.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong words; 3 blocked, nothing was paid; 4 a person has to approve it, nothing was paid; \
5 a payment was sent and may have been taken, and the provider's answer is an error or was lost: do not pay again, see \
`purser receipt ID`.
The agent key is read from PURSER_KEY, else from what `purser login` has stored.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Stores an agent key, read from standard input.
    Login(Credential),
    /// Removes the stored agent key.
    Logout(Credential),
    /// The agent that the key belongs to.
    Whoami,
    /// Calls a provider, and pays if it asks for a payment. A command that was killed is the same purchase when it is
    /// repeated.
    Pay(Pay),
    /// Calls a provider without paying, and tells what Purser would decide.
    Check(Call),
    /// What can be bought.
    Services(Filter),
    /// Services and operations with these words.
    Search {
        /// The words.
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// One service with its operations.
    Service {
        /// Its slug or id.
        service: String,
    },
    /// What this agent may buy, and under which limits.
    Enabled,
    /// The newest receipts.
    Receipts {
        /// At most so many.
        #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100))]
        limit: u8,
    },
    /// One receipt.
    Receipt {
        /// The settlement's id.
        settlement: Uuid,
    },
    /// Where an approval stands.
    Approval(Approval),
    /// Serves the tools to an agent's host over standard input and output (Model Context Protocol).
    Mcp,
    /// For operators: what can be bought. Needs an operator's token in `PURSER_OPERATOR_TOKEN`, or stored by `purser login
    /// --operator`; where the gateway asks for an AWS signature, AWS credentials in the environment.
    #[command(subcommand)]
    Catalog(Catalog),
}

/// Which credential.
#[derive(Debug, clap::Args)]
pub(crate) struct Credential {
    /// An operator's token instead of an agent key.
    #[arg(long)]
    pub(crate) operator: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Catalog {
    /// Makes services as the files say. What the files don't name stays as it is.
    Apply {
        /// A JSON file, or a folder of them; each is a service, as `export` writes it.
        path: std::path::PathBuf,
        #[command(flatten)]
        consent: Consent,
    },
    /// Writes each service to a JSON file.
    Export {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// Has services probed out of turn.
    Probe {
        /// Slugs or ids.
        #[arg(required_unless_present = "all")]
        services: Vec<String>,
        /// All services.
        #[arg(long)]
        all: bool,
    },
    /// Adds what a facilitator's Bazaar lists, as discovered, not curated, and payable to nobody until it is pinned.
    Import(Import),
}

/// Whether a difference may be written.
#[derive(Debug, clap::Args)]
pub(crate) struct Consent {
    /// Don't ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Show the difference alone.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// A facilitator's address, or a file with its answer.
    pub(crate) source: String,
    /// Only of these hosts.
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// At most so many entries.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) limit: u32,
    /// At most so many hosts, each of which becomes a service of 200 operations at most.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) most_hosts: u32,
    /// The category of new services.
    #[arg(long, default_value = "data")]
    pub(crate) category: String,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// A call of a provider, in curl's words.
#[derive(Debug, clap::Args)]
pub(crate) struct Call {
    /// The provider's address.
    pub(crate) address: String,
    /// HTTP method; GET, or POST with a body.
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header, `Name: value`.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The body: text, `@file`, or `@-` for standard input.
    #[arg(short = 'd', long = "data", value_name = "BODY")]
    pub(crate) data: Option<String>,
    /// What the call may cost at most, in USD.
    #[arg(long, env = "PURSER_MAX", default_value = "0.10", value_name = "USD")]
    pub(crate) max: Usdc,
    /// The page that a scrape or crawl is pointed at.
    #[arg(long, value_name = "URL")]
    pub(crate) target: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pay {
    #[command(flatten)]
    pub(crate) call: Call,
    /// Where the answer goes instead of standard output.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<std::path::PathBuf>,
    /// Refuse a price more than this percentage above the one that the catalog lists.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) max_over_listed: Option<u32>,
    /// Pay under this idempotency key.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Wait so many seconds for a person who has to approve it.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) wait: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Filter {
    /// Of this category.
    #[arg(long)]
    pub(crate) category: Option<String>,
    /// At most so many.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(crate) limit: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Approval {
    /// Its id.
    pub(crate) approval: Uuid,
    /// Wait so many seconds for the verdict.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) wait: u32,
}
