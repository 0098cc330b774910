//! The function's configuration, from environment variables that `template.yaml` sets.

use purser_api::Env;
use purser_chain::Finality;
use purser_domain::{Amount, Network};

pub(crate) struct Settings {
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) audit_table: String,
    pub(crate) network: Network,
    pub(crate) nonce_key_secret: String,
    pub(crate) rpc_url_secret: String,
    pub(crate) finality: Finality,
    /// The depth at which a block with confirmations is checked again. A value below the depth of final blocks has the
    /// same effect as that depth.
    pub(crate) watch: u64,
    /// The maximum number of settlements that one run reconciles.
    pub(crate) most: u32,
    /// The maximum number of blocks that one log search covers. If the node rejects the range, the search is repeated
    /// with smaller ranges.
    pub(crate) log_range: u64,
    /// A wallet with a balance below this amount is reported as low. If this amount is 0, balances are not checked.
    pub(crate) low_wallet: Amount,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Self {
        Self {
            ledger_table: env.require_text("LEDGER_TABLE"),
            decisions_table: env.require_text("DECISIONS_TABLE"),
            audit_table: env.require_text("AUDIT_TABLE"),
            network: env.require_network(),
            nonce_key_secret: env.require_text("NONCE_KEY_SECRET_ARN"),
            rpc_url_secret: env.require_text("RPC_URL_SECRET_ARN"),
            finality: Finality {
                confirmations: env.parse_number("FINALITY_CONFIRMATIONS", 5, 1..=10_000),
            },
            // 300 blocks take ten minutes on Base.
            watch: env.parse_number("WATCH_CONFIRMATIONS", 300, 1..=100_000),
            most: env.parse_number("RECONCILE_MOST_SETTLEMENTS", 20_000, 1..=100_000),
            log_range: env.parse_number("LOG_BLOCK_RANGE", 1_000, 1..=100_000),
            low_wallet: low_wallet_limit(env),
        }
    }
}

fn low_wallet_limit(env: &mut Env) -> Amount {
    let units = env.parse_number("LOW_WALLET_UNITS", 5_000_000, 0..=Amount::MAX.units());
    Amount::from_units(units).unwrap_or(Amount::MAX)
}
