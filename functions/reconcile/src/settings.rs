//! The function's configuration: environment variables, named as in `template.yaml`.

use purser_api::Env;
use purser_chain::Finality;
use purser_domain::Network;

pub(crate) struct Settings {
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) network: Network,
    pub(crate) nonce_key_secret: String,
    pub(crate) rpc_url_secret: String,
    pub(crate) finality: Finality,
    /// How deep a confirmation's block has to be for nobody to look at it any more. Less than finality is as good as
    /// finality: nothing is looked at before.
    pub(crate) watch: u64,
    /// The most settlements that one run judges.
    pub(crate) most: u32,
    /// How many blocks the node searches for a log at once.
    pub(crate) log_range: u64,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Option<Self> {
        // Everything is read before anything is missed, so that all problems are told at once.
        let names = [
            "LEDGER_TABLE",
            "DECISIONS_TABLE",
            "NONCE_KEY_SECRET_ARN",
            "RPC_URL_SECRET_ARN",
        ];
        let names = names.map(|name| env.text(name));
        let network = env.choice("NETWORK", &Network::ALL, Network::name);
        let confirmations = env.number("FINALITY_CONFIRMATIONS", 5, 1..=10_000);
        // Ten minutes of Base.
        let watch = env.number("WATCH_CONFIRMATIONS", 300, 1..=100_000);
        let most = env.number("RECONCILE_MOST_SETTLEMENTS", 1_000, 1..=100_000);
        let log_range = env.number("LOG_BLOCK_RANGE", 1_000, 1..=100_000);
        let [
            Some(ledger_table),
            Some(decisions_table),
            Some(nonce_key_secret),
            Some(rpc_url_secret),
        ] = names
        else {
            return None;
        };
        Some(Self {
            ledger_table,
            decisions_table,
            network: network?,
            nonce_key_secret,
            rpc_url_secret,
            finality: Finality {
                confirmations: confirmations?,
            },
            watch: watch?,
            most: most?,
            log_range: log_range?,
        })
    }
}
