//! The function's configuration: environment variables, named as in `template.yaml`.

use purser_api::{CustodyKind, Env, ProviderProof};
use purser_chain::Finality;
use purser_domain::{Duration, Network};

purser_api::settings! {
    pub(crate) struct Settings {
        pub(crate) fn from_env(env: &mut Env);
        let provider_proof = match env.get("ACCEPT_PROVIDER_OK") {
            Some("true") => ProviderProof::OrAssertion,
            None | Some("false") => ProviderProof::Required,
            Some(_) => {
                env.add_error("ACCEPT_PROVIDER_OK", "must be `true` or `false`");
                ProviderProof::Required
            }
        };
        let network = env.require_network();

        pub(crate) catalog_table: String = env.require_text("CATALOG_TABLE"),
        pub(crate) ledger_table: String = env.require_text("LEDGER_TABLE"),
        pub(crate) decisions_table: String = env.require_text("DECISIONS_TABLE"),
        pub(crate) audit_table: String = env.require_text("AUDIT_TABLE"),
        /// The table in which the Lambda function `events` stores verified payees.
        pub(crate) usage_table: String = env.require_text("USAGE_TABLE"),
        pub(crate) throttle_table: String = env.require_text("THROTTLE_TABLE"),
        pub(crate) throttle_per_minute: u32 = env.parse_number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000),
        pub(crate) key_requests_per_minute: u32 = env.parse_number("KEY_REQUESTS_PER_MINUTE", 600, 1..=1_000_000),
        pub(crate) network: Network,
        /// The secret with the wallet seed. `None` if the wallet keys are in KMS.
        pub(crate) wallet_seed_secret: Option<String> = match env.parse_custody() {
            CustodyKind::Seed => Some(env.require_text("WALLET_SEED_SECRET_ARN")),
            CustodyKind::Kms => None,
        },
        pub(crate) nonce_key_secret: String = env.require_text("NONCE_KEY_SECRET_ARN"),
        pub(crate) rpc_url_secret: String = env.require_text("RPC_URL_SECRET_ARN"),
        /// The secret with the key for signatures with which the Lambda function `mcp` asserts a caller's address.
        /// Without this secret, all such signatures are rejected.
        pub(crate) client_ip_key_secret: Option<String> = env.get("CLIENT_IP_KEY_SECRET_ARN").map(str::to_owned),
        pub(crate) finality: Finality = Finality {
            confirmations: env.parse_number("FINALITY_CONFIRMATIONS", 5, 1..=10_000),
        },
        pub(crate) max_authorization: Duration =
            Duration::from_secs_u32(env.parse_number("MAX_AUTHORIZATION_SECONDS", 900, 30..=3_600)),
        pub(crate) most_holds: u32 = env.parse_number("MAX_HOLDS_PER_AGENT", 9_000, 1..=10_000_000),
        pub(crate) approval_ttl: Duration =
            Duration::from_secs_u32(env.parse_number("APPROVAL_TTL_SECONDS", 86_400, 60..=31 * 86_400)),
        // 100 ids take 3.6 KB in the set of open approvals, so adding an id costs four write units, or eight in a
        // transaction.
        pub(crate) most_open_approvals: u32 = env.parse_number("MAX_OPEN_APPROVALS", 20, 1..=100),
        pub(crate) provider_proof: ProviderProof,
        /// The facilitator for withdrawals. `None` if the deployment does not support withdrawals.
        pub(crate) facilitator_url: Option<String> = env.get("FACILITATOR_URL").map(str::to_owned),
        pub(crate) payout_delay: Duration = read_withdrawal_delay(env, network),
    }
}

/// Reads the delay for new withdrawal addresses. The default is one day, so that an owner has time to remove an address
/// that somebody else set. The minimum on a real chain is one hour.
fn read_withdrawal_delay(env: &mut Env, network: Network) -> Duration {
    const NAME: &str = "PAYOUT_DELAY_SECONDS";
    let seconds: u32 = env.parse_number(NAME, 86_400, 0..=31 * 86_400);
    if seconds < 3_600 && !network.is_testnet() {
        env.add_error(NAME, "must be 3600 or more on a real chain");
    }
    Duration::from_secs_u32(seconds)
}
