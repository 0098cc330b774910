//! The function's configuration: environment variables, named as in `template.yaml`.

use crate::payees::Delays;
use purser_api::Env;
use purser_domain::{Duration, EventSource, Network};

pub(crate) struct Settings {
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) catalog_table: String,
    pub(crate) usage_table: String,
    /// The bus for events.
    pub(crate) bus: String,
    /// The deployment, as events name it.
    pub(crate) source: EventSource,
    pub(crate) delays: Delays,
    /// The objects of the log, the secret of its keys, and the network; `None` if the deployment keeps no log.
    pub(crate) statements: Option<(String, String, Network)>,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Self {
        Self {
            ledger_table: env.text("LEDGER_TABLE"),
            decisions_table: env.text("DECISIONS_TABLE"),
            catalog_table: env.text("CATALOG_TABLE"),
            usage_table: env.text("USAGE_TABLE"),
            bus: env.text("EVENT_BUS"),
            source: source(env),
            delays: delays(env),
            statements: statements(env),
        }
    }
}

fn source(env: &mut Env) -> EventSource {
    let stack = env.text("STACK");
    let source = EventSource::of(&stack);
    // A missing variable is already recorded.
    if source.is_none() && !stack.is_empty() {
        env.wrong("STACK", "must be letters, digits and hyphens");
    }
    source.unwrap_or_default()
}

fn statements(env: &mut Env) -> Option<(String, String, Network)> {
    let bucket = env.get("LOG_BUCKET")?.to_owned();
    Some((bucket, env.text("STATEMENTS_KEY_SECRET_ARN"), env.network()))
}

/// The delays of payees. On a real chain neither is zero.
fn delays(env: &mut Env) -> Delays {
    let is_testnet = env.network().is_testnet();
    let mut delay = |name, default| {
        let seconds: u32 = env.number(name, default, 0..=2_592_000);
        if seconds == 0 && !is_testnet {
            env.wrong(name, "must not be 0 on a network whose payments have value");
        }
        Duration::from_secs_u32(seconds)
    };
    Delays {
        of_changes: delay("PAYMENT_CHANGE_DELAY_SECONDS", 86_400),
        of_accepted_changes: delay("ACCEPTED_PAYEE_DELAY_SECONDS", 3_600),
    }
}
