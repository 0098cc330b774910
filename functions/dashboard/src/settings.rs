//! The configuration: environment variables with the names in `template.yaml`.

use purser_api::{AllowedHosts, CustodyKind, Env, SessionSettings};
use purser_domain::{Amount, Duration, EventSource, Network, SessionLimits, StartingLimits, Url};

purser_api::settings! {
    pub(crate) struct Settings {
        pub(crate) fn from_env(env: &mut Env);

        pub(crate) catalog_table: String = env.require_text("CATALOG_TABLE"),
        pub(crate) ledger_table: String = env.require_text("LEDGER_TABLE"),
        pub(crate) decisions_table: String = env.require_text("DECISIONS_TABLE"),
        pub(crate) audit_table: String = env.require_text("AUDIT_TABLE"),
        pub(crate) throttle_table: String = env.require_text("THROTTLE_TABLE"),
        pub(crate) usage_table: String = env.require_text("USAGE_TABLE"),
        /// The bucket with the log of signed statements; `None` if the deployment has no such log.
        pub(crate) log_bucket: Option<String> = env.get("LOG_BUCKET").map(str::to_owned),
        pub(crate) throttle_per_minute: u32 = env.parse_number("THROTTLE_PER_MINUTE", 120, 1..=1_000_000),
        pub(crate) key_requests_per_minute: u32 = env.parse_number("KEY_REQUESTS_PER_MINUTE", 600, 1..=1_000_000),
        pub(crate) network: Network = env.require_network(),
        pub(crate) pays_out: bool = env.get("FACILITATOR_URL").is_some(),
        pub(crate) sessions: SessionSettings = SessionSettings::from_env(env),
        pub(crate) session_limits: SessionLimits = session_limits(env),
        /// The lifetime of an approval. The Lambda function `payments` uses the same value.
        pub(crate) approval_ttl: Duration =
            Duration::from_secs_u32(env.parse_number("APPROVAL_TTL_SECONDS", 86_400, 60..=31 * 86_400)),
        /// The initial limits of a new agent, if the user selects none.
        pub(crate) starting_limits: StartingLimits = starting_limits(env),
        /// The dashboard's origin; `None` for the gateway's host name.
        pub(crate) dashboard_url: Option<String> = dashboard_origin(env),
        pub(crate) payments_function: String = env.require_text("PAYMENTS_FUNCTION"),
        /// The name of the Lambda function `internal`; `None` if operators can't act in the dashboard.
        pub(crate) internal_function: Option<String> = env.get("INTERNAL_FUNCTION").map(str::to_owned),
        /// The stack's name and the policy of new keys; `None` unless wallet keys are in KMS.
        pub(crate) new_keys: Option<(String, Option<String>)> = match env.parse_custody() {
            CustodyKind::Seed => None,
            CustodyKind::Kms => {
                let policy = env.get("WALLET_KEY_POLICY").map(str::to_owned);
                Some((env.require_text("WALLET_KEYS_STACK"), policy))
            }
        },
        pub(crate) rpc_url_secret: String = env.require_text("RPC_URL_SECRET_ARN"),
        pub(crate) sign_in_key_secret: String = env.require_text("SIGN_IN_KEY_SECRET_ARN"),
        pub(crate) oauth_key_secret: String = env.require_text("OAUTH_KEY_SECRET_ARN"),
        /// The secret with which `mcp` signs a caller's address. With `None`, such signatures are ignored.
        pub(crate) client_ip_key_secret: Option<String> = env.get("CLIENT_IP_KEY_SECRET_ARN").map(str::to_owned),
        pub(crate) webhooks_table: String = env.require_text("WEBHOOKS_TABLE"),
        pub(crate) webhook_requests_queue_url: String = env.require_text("WEBHOOK_REQUESTS_QUEUE_URL"),
        pub(crate) notice_requests_queue_url: String = env.require_text("NOTICE_REQUESTS_QUEUE_URL"),
        pub(crate) webhook_secrets_key: String = env.require_text("WEBHOOK_SECRETS_KEY_ARN"),
        /// Whether the deployment sends notifications by mail.
        pub(crate) mails: bool = env.get("NOTICES_SENDER").is_some(),
        pub(crate) webhook_hosts: AllowedHosts = env.take_allowed_hosts("WEBHOOK_ALLOWED_HOSTS"),
        /// The deployment's name in events.
        pub(crate) event_source: EventSource = env.require_event_source(),
    }
}

fn starting_limits(env: &mut Env) -> StartingLimits {
    let limits = env.get("STARTING_LIMITS").map(StartingLimits::from_name);
    if limits == Some(None) {
        env.add_error("STARTING_LIMITS", &StartingLimits::allowed_names_message());
    }
    limits.flatten().unwrap_or(StartingLimits::Unlimited)
}

fn dashboard_origin(env: &mut Env) -> Option<String> {
    let url = env.get("DASHBOARD_URL").map(str::to_owned);
    if url.as_deref().is_some_and(|text| !is_origin(text)) {
        env.add_error(
            "DASHBOARD_URL",
            "must be an origin: https://<host>, or http://<host>:<port>",
        );
    }
    url
}

/// Reads the limits of sessions, by default an hour without use and eight hours in total.
fn session_limits(env: &mut Env) -> SessionLimits {
    let minutes: u32 = env.parse_number("SESSION_IDLE_MINUTES", 60, 5..=1_440);
    let hours: u32 = env.parse_number("SESSION_HOURS", 8, 1..=168);
    let recent = env.parse_number("RECENT_SIGN_IN_SECONDS", 600, 60..=86_400);
    let above = env.parse_number("RECENT_SIGN_IN_ABOVE_UNITS", 50_000_000, 0..=Amount::MAX.units());
    SessionLimits {
        idle: Duration::from_secs_u32(minutes.saturating_mul(60)),
        longest: Duration::from_secs_u32(hours.saturating_mul(3_600)),
        recent: Duration::from_secs_u32(recent),
        recent_sign_in_above: Amount::from_units(above).unwrap_or(Amount::MAX),
    }
}

/// Returns whether the text is exactly an origin as browsers send it, because origins are compared as text.
fn is_origin(text: &str) -> bool {
    let url = Url::parse(text).ok();
    let web = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    web.is_some_and(|url| url.origin().ascii_serialization() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_origin_has_the_format_that_browsers_send() {
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
