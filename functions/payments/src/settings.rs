//! The function's configuration: environment variables, named as in `template.yaml`.

use purser_api::{Env, ProviderProof};
use purser_chain::Finality;
use purser_domain::{Duration, Network};

pub(crate) struct Settings {
    pub(crate) catalog_table: String,
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) throttle_table: String,
    pub(crate) throttle_per_minute: u32,
    pub(crate) network: Network,
    pub(crate) wallet_seed_secret: String,
    pub(crate) nonce_key_secret: String,
    pub(crate) rpc_url_secret: String,
    pub(crate) finality: Finality,
    pub(crate) max_authorization: Duration,
    pub(crate) approval_ttl: Duration,
    pub(crate) most_open_approvals: u32,
    pub(crate) patience: std::time::Duration,
    pub(crate) provider_proof: ProviderProof,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Option<Self> {
        // Everything is read before anything is missed, so that all problems are told at once.
        let tables = ["CATALOG_TABLE", "LEDGER_TABLE", "DECISIONS_TABLE", "THROTTLE_TABLE"].map(|name| env.text(name));
        let secrets =
            ["WALLET_SEED_SECRET_ARN", "NONCE_KEY_SECRET_ARN", "RPC_URL_SECRET_ARN"].map(|name| env.text(name));
        let network = env.choice("NETWORK", &Network::ALL, Network::name);
        let throttle_per_minute = env.number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000);
        let confirmations = env.number("FINALITY_CONFIRMATIONS", 5, 1..=10_000);
        let max_authorization = env.number("MAX_AUTHORIZATION_SECONDS", 900, 30..=3_600);
        let approval_ttl = env.number("APPROVAL_TTL_SECONDS", 86_400, 60..=31 * 86_400);
        // A set of a hundred ids is 3.6 KB, four write units each time that one is added.
        let most_open_approvals = env.number("MAX_OPEN_APPROVALS", 20, 1..=100);
        let patience = env.number("FINALITY_PATIENCE_SECONDS", 3, 0..=10);
        let provider_proof = match env.get("ACCEPT_PROVIDER_OK") {
            None | Some("false") => Some(ProviderProof::Required),
            Some("true") => Some(ProviderProof::OrAssertion),
            Some(_) => {
                env.wrong("ACCEPT_PROVIDER_OK", "must be `true` or `false`");
                None
            }
        };
        let [
            Some(catalog_table),
            Some(ledger_table),
            Some(decisions_table),
            Some(throttle_table),
        ] = tables
        else {
            return None;
        };
        let [Some(wallet_seed_secret), Some(nonce_key_secret), Some(rpc_url_secret)] = secrets else {
            return None;
        };
        Some(Self {
            catalog_table,
            ledger_table,
            decisions_table,
            throttle_table,
            throttle_per_minute: throttle_per_minute?,
            network: network?,
            wallet_seed_secret,
            nonce_key_secret,
            rpc_url_secret,
            finality: Finality {
                confirmations: confirmations?,
            },
            max_authorization: Duration::from_secs_u32(max_authorization?),
            approval_ttl: Duration::from_secs_u32(approval_ttl?),
            most_open_approvals: most_open_approvals?,
            patience: std::time::Duration::from_secs(patience?),
            provider_proof: provider_proof?,
        })
    }
}
