//! The configuration of the functions `events` and `history`, from the environment variables in `template.yaml`.

use crate::payees::Delays;
use purser_api::{Env, any_address_client_builder};
use purser_domain::{Duration, EventSource, Network};
use purser_evidence::{KeyType, VerifierKey};
use purser_log::Witnesses;

/// The `User-Agent` header of requests to witnesses.
const USER_AGENT: &str = concat!("Purser/", env!("CARGO_PKG_VERSION"));

pub(crate) struct Settings {
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) catalog_table: String,
    pub(crate) usage_table: String,
    /// The name of the event bus.
    pub(crate) bus: String,
    /// The deployment's name, which is the `source` of events.
    pub(crate) source: EventSource,
    pub(crate) network: Network,
    pub(crate) delays: Delays,
    /// The log; `None` if the deployment has no log.
    pub(crate) log: Option<LogSettings>,
}

/// The configuration of the function `history`.
pub(crate) struct HistorySettings {
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) usage_table: String,
    pub(crate) audit_table: String,
    /// The log's bucket; `None` if the deployment has no log.
    pub(crate) log_bucket: Option<String>,
    /// How long a history entry is kept after the decision; `None` means forever.
    pub(crate) kept: Option<Duration>,
}

pub(crate) struct LogSettings {
    /// The bucket for the statement log's objects.
    pub(crate) bucket: String,
    /// The bucket for the statement log's archive; `None` if the deployment has no archive.
    pub(crate) archive: Option<String>,
    /// The name of the secret from which the log's key is derived, and by default also the key that signs statements.
    pub(crate) key_secret: String,
    /// The ARN of the KMS key that signs statements; `None` if the statements' key is derived from the secret.
    pub(crate) kms_key: Option<String>,
    pub(crate) network: Network,
    /// The name with which a new statement log is created. An existing log keeps its name.
    pub(crate) origin: String,
    /// The witnesses that cosign the log's checkpoints; `None` if the deployment has no witnesses.
    pub(crate) witnesses: Option<Witnesses>,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Self {
        Self {
            ledger_table: env.require_text("LEDGER_TABLE"),
            decisions_table: env.require_text("DECISIONS_TABLE"),
            catalog_table: env.require_text("CATALOG_TABLE"),
            usage_table: env.require_text("USAGE_TABLE"),
            bus: env.require_text("EVENT_BUS"),
            source: event_source(env),
            network: env.require_network(),
            delays: payee_delays(env),
            log: log_settings(env),
        }
    }
}

impl HistorySettings {
    pub(crate) fn from_env(env: &mut Env) -> Self {
        Self {
            ledger_table: env.require_text("LEDGER_TABLE"),
            decisions_table: env.require_text("DECISIONS_TABLE"),
            usage_table: env.require_text("USAGE_TABLE"),
            audit_table: env.require_text("AUDIT_TABLE"),
            log_bucket: env.get("LOG_BUCKET").map(str::to_owned),
            kept: history_retention(env),
        }
    }
}

fn event_source(env: &mut Env) -> EventSource {
    let stack = env.require_text("STACK");
    let source = EventSource::for_stack(&stack);
    // If `STACK` is missing, `require_text` has already recorded the error.
    if source.is_none() && !stack.is_empty() {
        env.add_error("STACK", "must be letters, digits and hyphens");
    }
    source.unwrap_or_default()
}

fn log_settings(env: &mut Env) -> Option<LogSettings> {
    let bucket = env.get("LOG_BUCKET")?.to_owned();
    let optional = |name| env.get(name).map(str::to_owned);
    let (archive, kms_key) = (optional("ARCHIVE_BUCKET"), optional("STATEMENTS_KEY_ARN"));
    let origin = env.require_text("LOG_ORIGIN");
    // `require_text` has already recorded the error for a missing `LOG_ORIGIN`.
    if !origin.is_empty() && VerifierKey::new(&origin, KeyType::Ed25519, [0; 32]).is_err() {
        env.add_error("LOG_ORIGIN", "must have no space, `+` or control character");
    }
    let witnesses = env.get("LOG_WITNESSES").map(str::to_owned);
    let witnesses = witnesses.and_then(|list| {
        let http = any_address_client_builder(USER_AGENT).build().ok();
        let witnesses = http.and_then(|http| Witnesses::parse(&list, http));
        if witnesses.is_none() {
            env.add_error(
                "LOG_WITNESSES",
                "must be at most 8 times a vkey of cosignatures and an https URL",
            );
        }
        witnesses
    });
    Some(LogSettings {
        bucket,
        archive,
        key_secret: env.require_text("STATEMENTS_KEY_SECRET_ARN"),
        kms_key,
        network: env.require_network(),
        origin,
        witnesses,
    })
}

/// Reads how long history entries are kept. The minimum is 90 days, because lists and filters cover weeks.
fn history_retention(env: &mut Env) -> Option<Duration> {
    const NAME: &str = "JOURNAL_DAYS";
    let days: u32 = env.parse_number(NAME, 0, 0..=3_650);
    if days == 0 {
        return None;
    }
    if days < 90 {
        env.add_error(NAME, "must be 0 or at least 90");
    }
    if env.get("LOG_BUCKET").is_none() || env.get("ARCHIVE_BUCKET").is_none() {
        env.add_error(NAME, "needs an archive");
    }
    Some(Duration::from_secs_u32(days.saturating_mul(86_400)))
}

/// Reads the delays for new payees. A delay may be zero only on a test network.
fn payee_delays(env: &mut Env) -> Delays {
    let is_testnet = env.require_network().is_testnet();
    let mut delay = |name, default| {
        let seconds: u32 = env.parse_number(name, default, 0..=2_592_000);
        if seconds == 0 && !is_testnet {
            env.add_error(name, "must not be 0 on a network whose payments have value");
        }
        Duration::from_secs_u32(seconds)
    };
    Delays {
        of_changes: delay("PAYMENT_CHANGE_DELAY_SECONDS", 86_400),
        of_accepted_changes: delay("ACCEPTED_PAYEE_DELAY_SECONDS", 3_600),
    }
}
