//! The configuration of the functions `events` and `history`, from the environment variables in `template.yaml`.

use crate::payees::Delays;
use purser_api::{Env, any_address_client_builder};
use purser_domain::{Duration, EventSource, Network};
use purser_evidence::{KeyType, VerifierKey};
use purser_log::Witnesses;

/// The `User-Agent` header of requests to witnesses.
const USER_AGENT: &str = concat!("Purser/", env!("CARGO_PKG_VERSION"));

purser_api::settings! {
    pub(crate) struct Settings {
        pub(crate) fn from_env(env: &mut Env);

        pub(crate) ledger_table: String = env.require_text("LEDGER_TABLE"),
        pub(crate) decisions_table: String = env.require_text("DECISIONS_TABLE"),
        pub(crate) catalog_table: String = env.require_text("CATALOG_TABLE"),
        pub(crate) usage_table: String = env.require_text("USAGE_TABLE"),
        /// The name of the event bus.
        pub(crate) bus: String = env.require_text("EVENT_BUS"),
        /// The deployment's name, which is the `source` of events.
        pub(crate) source: EventSource = env.require_event_source(),
        pub(crate) network: Network = env.require_network(),
        pub(crate) delays: Delays = payee_delays(env),
        /// The settings of the statement log; `None` if the deployment has no statement log.
        pub(crate) log: Option<LogSettings> = read_log_settings(env),
    }

    pub(crate) struct HistorySettings {
        pub(crate) fn from_env(env: &mut Env);

        pub(crate) ledger_table: String = env.require_text("LEDGER_TABLE"),
        pub(crate) decisions_table: String = env.require_text("DECISIONS_TABLE"),
        pub(crate) usage_table: String = env.require_text("USAGE_TABLE"),
        pub(crate) audit_table: String = env.require_text("AUDIT_TABLE"),
        /// The bucket of the statement log; `None` if the deployment has no statement log.
        pub(crate) log_bucket: Option<String> = env.get("LOG_BUCKET").map(str::to_owned),
        /// How long a history entry is kept after the decision. `None` means forever.
        pub(crate) kept: Option<Duration> = history_retention(env),
    }
}

pub(crate) struct LogSettings {
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

fn read_log_settings(env: &mut Env) -> Option<LogSettings> {
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
