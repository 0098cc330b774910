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
    pub(crate) backoff: std::time::Duration,
    pub(crate) provider_proof: ProviderProof,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Self {
        let provider_proof = match env.get("ACCEPT_PROVIDER_OK") {
            Some("true") => ProviderProof::OrAssertion,
            None | Some("false") => ProviderProof::Required,
            Some(_) => {
                env.wrong("ACCEPT_PROVIDER_OK", "must be `true` or `false`");
                ProviderProof::Required
            }
        };
        Self {
            catalog_table: env.text("CATALOG_TABLE"),
            ledger_table: env.text("LEDGER_TABLE"),
            decisions_table: env.text("DECISIONS_TABLE"),
            throttle_table: env.text("THROTTLE_TABLE"),
            throttle_per_minute: env.number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000),
            network: env.network(),
            wallet_seed_secret: env.text("WALLET_SEED_SECRET_ARN"),
            nonce_key_secret: env.text("NONCE_KEY_SECRET_ARN"),
            rpc_url_secret: env.text("RPC_URL_SECRET_ARN"),
            finality: Finality {
                confirmations: env.number("FINALITY_CONFIRMATIONS", 5, 1..=10_000),
            },
            max_authorization: Duration::from_secs_u32(env.number("MAX_AUTHORIZATION_SECONDS", 900, 30..=3_600)),
            approval_ttl: Duration::from_secs_u32(env.number("APPROVAL_TTL_SECONDS", 86_400, 60..=31 * 86_400)),
            // A set of a hundred ids is 3.6 KB: adding one costs four write units, eight in a transaction.
            most_open_approvals: env.number("MAX_OPEN_APPROVALS", 20, 1..=100),
            backoff: std::time::Duration::from_secs(env.number("FINALITY_PATIENCE_SECONDS", 3, 0..=10)),
            provider_proof,
        }
    }
}
