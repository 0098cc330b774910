//! The function's configuration, from environment variables that `template.yaml` sets.

use purser_api::Env;
use purser_chain::Finality;
use purser_domain::{Amount, Network};

purser_api::settings! {
    pub(crate) struct Settings {
        pub(crate) fn from_env(env: &mut Env);

        pub(crate) ledger_table: String = env.require_text("LEDGER_TABLE"),
        pub(crate) decisions_table: String = env.require_text("DECISIONS_TABLE"),
        pub(crate) audit_table: String = env.require_text("AUDIT_TABLE"),
        pub(crate) network: Network = env.require_network(),
        pub(crate) nonce_key_secret: String = env.require_text("NONCE_KEY_SECRET_ARN"),
        pub(crate) rpc_url_secret: String = env.require_text("RPC_URL_SECRET_ARN"),
        pub(crate) finality: Finality = Finality {
            confirmations: env.parse_number("FINALITY_CONFIRMATIONS", 5, 1..=10_000),
        },
        /// The depth, in blocks, at which a block with confirmed payments is checked again. If this depth is less than
        /// the depth of final blocks, the depth of final blocks applies.
        // 300 blocks take ten minutes on Base.
        pub(crate) watch: u64 = env.parse_number("WATCH_CONFIRMATIONS", 300, 1..=100_000),
        /// The maximum number of settlements that one run reconciles.
        pub(crate) most: u32 = env.parse_number("RECONCILE_MOST_SETTLEMENTS", 20_000, 1..=100_000),
        /// The maximum number of blocks that one log search covers. If the node rejects the range, the search is
        /// repeated with smaller ranges.
        pub(crate) log_range: u64 = env.parse_number("LOG_BLOCK_RANGE", 1_000, 1..=100_000),
        /// The balance below which a wallet is low. With 0, balances are not checked.
        pub(crate) low_wallet: Amount = read_low_balance_threshold(env),
    }
}

fn read_low_balance_threshold(env: &mut Env) -> Amount {
    let units = env.parse_number("LOW_WALLET_UNITS", 5_000_000, 0..=Amount::MAX.units());
    Amount::from_units(units).unwrap_or(Amount::MAX)
}
