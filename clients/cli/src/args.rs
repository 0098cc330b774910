//! The command-line arguments.

use crate::exit::Failure;
use crate::output::confirm;
use clap::{Parser, Subcommand};
use purser_client::Usdc;
use uuid::Uuid;

/// Pays x402 providers through Purser, which checks each payment against the agent's spend policy.
#[derive(Debug, Parser)]
#[command(name = "purser", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// The URL of Purser. The agent key is sent to this URL.
    #[arg(long, env = "PURSER_URL", global = true)]
    pub(crate) url: Option<String>,
    /// Print JSON, for programs. With `pay`, standard output has the provider's response, and the last line of standard
    /// error has the receipt or the error.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong words; 3 blocked, nothing was paid; 4 a person has to approve it, nothing was paid; \
5 a payment was sent and may have been taken, and the provider's answer is an error or was lost: do not pay again, see \
`purser receipt ID`; 6 not verified, or the log does not continue the kept checkpoint; 7 the document or the trust file is unreadable; 8 `policy apply --dry-run` found differences.
The agent key is read from PURSER_KEY, else from what `purser login` has stored.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sign in in a browser, and let this program act for one of your agents, within limits that you choose there.
    Login(Login),
    /// Remove what `login` has stored. Also revokes what you allowed in the browser.
    Logout(Credential),
    /// Show the agent that the key belongs to.
    Whoami,
    /// Call a provider, and pay if the provider requires a payment. Repeating a command that was killed continues the
    /// same purchase.
    Pay(Pay),
    /// Call a provider without paying, and show the decision that Purser would make.
    Check(Call),
    /// List the services of the catalog.
    Services(Filter),
    /// Search the services of the catalog. A service matches if it contains all words.
    Search {
        /// The words to search for.
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// Show one service with its operations.
    Service {
        /// The service's slug or id.
        service: String,
    },
    /// List the services that are enabled for this agent, with their limits.
    Enabled,
    /// List the newest receipts.
    Receipts {
        /// The maximum number of receipts.
        #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100))]
        limit: u8,
    },
    /// Show one receipt.
    Receipt {
        /// The settlement's id.
        settlement: Uuid,
    },
    /// Print the proof of the signed statement about a payment, for `verify`. By default, the proof is for the receipt;
    /// with `--decision`, for the decision.
    Statement {
        /// The settlement's id.
        settlement: Uuid,
        /// Print the proof for the decision instead of the receipt.
        #[arg(long)]
        decision: bool,
    },
    /// Write an evidence file about a payment or, with `--decision`, about any decision. The file contains the signed
    /// statements of the decision and the receipt with their proofs, the keys, and the provider's signed objects.
    /// `verify` reads the file.
    Evidence(Evidence),
    /// Show an approval.
    Approval(Approval),
    /// Verify a statement, a proof with its statement, or an evidence file, offline. Prints for each step whether the
    /// step passed, failed, or was skipped and why.
    Verify(Verify),
    /// Evaluate the decision in an evidence file again, offline, with the input documents in the file. Exits with 0 if
    /// the decision is the same, 8 if the decision differs, 6 if the decision's statement is not verified, and 7 if the
    /// decision can't be evaluated.
    Replay(Replay),
    /// Check a log of statements, without an account.
    #[command(subcommand)]
    Log(Log),
    /// Serve the MCP tools to an agent's host over standard input and output (Model Context Protocol).
    Mcp,
    /// Manage the catalog, as an operator. Needs an operator's token in `PURSER_OPERATOR_TOKEN`, or stored by `purser
    /// login --operator`. If the gateway requires AWS signatures, also needs AWS credentials in the environment.
    #[command(subcommand)]
    Catalog(Catalog),
    /// Export and apply the policies and rules of your agents as a file, as a signed-in user. Needs the ID token of a
    /// sign-in in `PURSER_SESSION_TOKEN`.
    #[command(subcommand)]
    Policy(Policy),
}

/// The document to verify, and the trusted keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// The document: a JWS in compact serialization, a C2SP tlog-proof with the statement as `extra`, or an evidence
    /// file from `evidence` or from a decision's page in the dashboard.
    pub(crate) file: std::path::PathBuf,
    /// The trust file: JSON with `jwks`, `logs` (each with `vkey` and `origin`), `witnesses` (vkeys), `quorum`, and
    /// `providers` (each with `host` and `keys`: `did:key`, `did:jwk` or addresses).
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: std::path::PathBuf,
    /// The URL of a chain node, for example your own. `verify` reads the transaction in the receipt's statement from
    /// this node and contacts no other node.
    #[arg(long, value_name = "URL", env = "PURSER_NODE", hide_env_values = true)]
    pub(crate) node: Option<String>,
    /// A checkpoint that you stored earlier. The proofs must be from the same log: the larger tree must start with the
    /// smaller tree.
    #[arg(long, value_name = "FILE", requires = "log")]
    pub(crate) since: Option<std::path::PathBuf>,
    /// The URL of the log, for example `https://purser.example/log`. The tiles of the log are read for `--since`.
    #[arg(long, value_name = "URL", requires = "since")]
    pub(crate) log: Option<String>,
    /// A provider's `did:web` document, as the provider's host publishes it (`/.well-known/did.json`).
    #[arg(long, value_name = "FILE")]
    pub(crate) did: Vec<std::path::PathBuf>,
    /// Fetch missing `did:web` documents from the providers' hosts.
    #[arg(long)]
    pub(crate) fetch_did: bool,
}

/// The evidence file to replay, and the trusted keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// The evidence file with the input documents, from the decision's page in the dashboard.
    pub(crate) file: std::path::PathBuf,
    /// The trust file, as for `verify`.
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: std::path::PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// Compare the log's checkpoint with the checkpoint of the previous run, and store the new checkpoint. Exits with 6
    /// if the log was truncated, forked or rewritten, or if the checkpoint is not verified. The new checkpoint is then
    /// stored in `<state>.conflict`.
    Watch(Watch),
}

/// A log, and the checkpoint of the previous run.
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// The URL of the log, for example `https://purser.example/log`.
    pub(crate) url: String,
    /// The file with the checkpoint of the previous run. The first run creates the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) state: std::path::PathBuf,
    /// The trust file, as for `verify`.
    #[arg(long, value_name = "FILE")]
    pub(crate) trust: std::path::PathBuf,
    /// Repeat after this many seconds, until a check fails. Without this option, check once.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) every: Option<u32>,
}

/// A payment with the provider's signed objects, or a decision.
#[derive(Debug, clap::Args)]
pub(crate) struct Evidence {
    /// The settlement's id.
    #[arg(required_unless_present = "decision")]
    pub(crate) settlement: Option<Uuid>,
    /// The `transaction_id` of a decision, instead of a settlement. The decision may have blocked the payment.
    #[arg(long, value_name = "ID", conflicts_with_all = ["settlement", "offer", "receipt"])]
    pub(crate) decision: Option<Uuid>,
    /// The file to write; by default `purser-evidence-<id>.json`.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<std::path::PathBuf>,
    /// A file with a provider's signed offer (x402 extension `offer-receipt`). Only needed if another client made the
    /// payment, because `pay` stores the offers that it receives.
    #[arg(long, value_name = "FILE")]
    pub(crate) offer: Vec<std::path::PathBuf>,
    /// A file with the provider's signed receipt. Only needed if another client made the payment.
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<std::path::PathBuf>,
}

/// What to store, if not the result of signing in.
#[derive(Debug, clap::Args)]
pub(crate) struct Login {
    /// Store an agent key that is read from standard input.
    #[arg(long, conflicts_with = "operator")]
    pub(crate) key: bool,
    #[command(flatten)]
    pub(crate) credential: Credential,
}

/// The kind of credential.
#[derive(Debug, clap::Args)]
pub(crate) struct Credential {
    /// Use an operator's token, which `login` reads from standard input.
    #[arg(long)]
    pub(crate) operator: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Catalog {
    /// Write services from files. Services and fields that are not in the files stay unchanged.
    Apply {
        /// A JSON file, or a folder of JSON files. Each file has one service, in the format of `export`.
        path: std::path::PathBuf,
        #[command(flatten)]
        consent: Consent,
    },
    /// Export each service to a JSON file.
    Export {
        /// The folder to write to.
        folder: std::path::PathBuf,
    },
    /// Request probes of services now, before their next scheduled probe.
    Probe {
        /// The slugs or ids of the services.
        #[arg(required_unless_present = "all")]
        services: Vec<String>,
        /// Probe all services.
        #[arg(long)]
        all: bool,
    },
    /// Import a facilitator's Bazaar listing. Imported services have the status `discovered`, are not curated, and
    /// can't be paid until an operator sets their price and payee.
    Import(Import),
}

/// How the user consents to writing the differences.
#[derive(Debug, clap::Args)]
pub(crate) struct Consent {
    /// Write without asking for confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Only show the differences.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

impl Consent {
    /// Returns whether the differences should be written. Asks the user at the terminal if no option decides.
    pub(crate) fn is_given(&self, prompt: &str) -> Result<bool, Failure> {
        Ok(!self.dry_run && (self.yes || confirm(prompt)?))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Print the policies and rules of your agents, in the format that `apply` reads: YAML, or JSON with `--json`.
    Export {
        /// Export only these agents, by id or name.
        #[arg(long = "agent", value_name = "AGENT")]
        agents: Vec<String>,
    },
    /// Write the policies and rules in a file to your agents. Shows the differences first. Agents, services, fields and
    /// rules that are not in the file stay unchanged.
    Apply {
        /// The file, in YAML or JSON.
        #[arg(short = 'f', long = "file", value_name = "FILE")]
        file: std::path::PathBuf,
        /// The reason for the updates: a line of at most 200 characters, which is stored in the versions and the audit
        /// log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The facilitator's URL, or a file with the facilitator's response.
    pub(crate) source: String,
    /// Import only these hosts.
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// The maximum number of entries in the listing.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(crate) limit: u32,
    /// The maximum number of hosts. Each host becomes a service with at most 200 operations.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) most_hosts: u32,
    /// The category of new services.
    #[arg(long, default_value = "data")]
    pub(crate) category: String,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

/// A call to a provider, with the same options as curl.
#[derive(Debug, clap::Args)]
pub(crate) struct Call {
    /// The URL to call.
    pub(crate) address: String,
    /// The HTTP method. The default is GET, or POST if there is a body.
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header, `Name: value`.
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The body: text, `@file`, or `@-` for standard input.
    #[arg(short = 'd', long = "data", value_name = "BODY")]
    pub(crate) data: Option<String>,
    /// The maximum price of the call, in USD.
    #[arg(long, env = "PURSER_MAX", default_value = "0.10", value_name = "USD")]
    pub(crate) max: Usdc,
    /// The URL of the page that a scrape or crawl operation fetches.
    #[arg(long, value_name = "URL")]
    pub(crate) target: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pay {
    #[command(flatten)]
    pub(crate) call: Call,
    /// Write the response to this file instead of standard output.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output: Option<std::path::PathBuf>,
    /// Reject a price that exceeds the catalog's price by more than this percentage.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) max_over_listed: Option<u32>,
    /// Pay with this idempotency key.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// How long to wait for an approval, in seconds.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) wait: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Filter {
    /// List only services in this category.
    #[arg(long)]
    pub(crate) category: Option<String>,
    /// The maximum number of services.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(crate) limit: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Approval {
    /// The approval's id.
    pub(crate) approval: Uuid,
    /// How long to wait for the decision, in seconds.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    pub(crate) wait: u32,
}
