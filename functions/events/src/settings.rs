//! The function's configuration: environment variables, named as in `template.yaml`.

use purser_api::Env;
use purser_domain::EventSource;

pub(crate) struct Settings {
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) catalog_table: String,
    pub(crate) usage_table: String,
    /// The bus that events go to.
    pub(crate) bus: String,
    /// The deployment, as events name it.
    pub(crate) source: EventSource,
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
        }
    }
}

fn source(env: &mut Env) -> EventSource {
    let stack = env.text("STACK");
    let source = EventSource::of(&stack);
    // What is missing is noted already.
    if source.is_none() && !stack.is_empty() {
        env.wrong("STACK", "must be letters, digits and hyphens");
    }
    source.unwrap_or_default()
}
