//! The function's configuration: environment variables, named as in `template.yaml`.

use purser_api::{Env, SessionSettings};
use purser_domain::{Network, Url};

pub(crate) struct Settings {
    pub(crate) catalog_table: String,
    pub(crate) ledger_table: String,
    pub(crate) decisions_table: String,
    pub(crate) throttle_table: String,
    pub(crate) throttle_per_minute: u32,
    pub(crate) network: Network,
    pub(crate) sessions: SessionSettings,
    /// The origin of the pages; `None` for the gateway's own name.
    pub(crate) dashboard_url: Option<String>,
    pub(crate) wallet_xpub_secret: String,
    pub(crate) rpc_url_secret: String,
}

impl Settings {
    pub(crate) fn from_env(env: &mut Env) -> Self {
        let dashboard_url = env.get("DASHBOARD_URL").map(str::to_owned);
        if dashboard_url.as_deref().is_some_and(|text| !is_origin(text)) {
            env.wrong(
                "DASHBOARD_URL",
                "must be an origin: https://<host>, or http://<host>:<port>",
            );
        }
        Self {
            catalog_table: env.text("CATALOG_TABLE"),
            ledger_table: env.text("LEDGER_TABLE"),
            decisions_table: env.text("DECISIONS_TABLE"),
            throttle_table: env.text("THROTTLE_TABLE"),
            throttle_per_minute: env.number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000),
            network: env.network(),
            sessions: SessionSettings::from_env(env),
            dashboard_url,
            wallet_xpub_secret: env.text("WALLET_XPUB_SECRET_ARN"),
            rpc_url_secret: env.text("RPC_URL_SECRET_ARN"),
        }
    }
}

/// Whether it is exactly what a browser sends as `Origin`: the two are compared as text.
fn is_origin(text: &str) -> bool {
    let url = Url::parse(text).ok();
    let web = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    web.is_some_and(|url| url.origin().ascii_serialization() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_spelled_as_browsers_send_it() {
        for text in [
            "https://purser.example",
            "http://127.0.0.1:3000",
            "https://purser.example:8443",
        ] {
            assert!(is_origin(text), "{text}");
        }
        for text in [
            "https://purser.example/",
            "https://Purser.example",
            "https://purser.example:443",
            "https://a@purser.example",
            "purser.example",
            "ftp://purser.example",
            "null",
        ] {
            assert!(!is_origin(text), "{text}");
        }
    }
}
