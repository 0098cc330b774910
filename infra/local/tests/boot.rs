//! Tests that an invalid variable or secret stops a function at its start, with an error that names the variable and no
//! secret.

#![expect(clippy::panic, reason = "a test stops where its ground is missing")]

use purser_api::{Boot, BootError, Clock};
use purser_local::LogAudit;
use purser_testkit::{Reply, ScriptedNode, SecretsManager};
use std::collections::BTreeMap;

const NOWHERE: &str = "http://127.0.0.1:1";
/// A wallet seed that is only used in tests.
const SEED: &str = "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f";

type Texts = BTreeMap<String, String>;

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> Texts {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns all environment variables of all functions in `template.yaml`.
fn variables() -> Texts {
    texts([
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "key"),
        ("DYNAMODB_ENDPOINT", NOWHERE),
        ("CATALOG_TABLE", "catalog"),
        ("LEDGER_TABLE", "ledger"),
        ("DECISIONS_TABLE", "decisions"),
        ("AUDIT_TABLE", "audit"),
        ("THROTTLE_TABLE", "throttle"),
        ("USAGE_TABLE", "usage"),
        ("EVENT_BUS", "bus"),
        ("STACK", "stack"),
        ("NETWORK", "base-sepolia"),
        ("OIDC_ISSUER", NOWHERE),
        ("OIDC_CLIENT_ID", "client"),
        ("WALLET_SEED_SECRET_ARN", "arn:seed"),
        ("NONCE_KEY_SECRET_ARN", "arn:nonce"),
        ("RPC_URL_SECRET_ARN", "arn:rpc"),
        ("PAYMENTS_FUNCTION", "payments"),
        ("SIGN_IN_KEY_SECRET_ARN", "arn:sign-in"),
        ("OAUTH_KEY_SECRET_ARN", "arn:oauth"),
        ("OPERATORS_SECRET_ARN", "arn:token"),
        ("WEBHOOKS_TABLE", "webhooks"),
        ("WEBHOOK_SECRETS_KEY_ARN", "arn:secrets-key"),
        ("WEBHOOK_EVENTS_QUEUE_ARN", "arn:aws:sqs:us-east-1:0:webhook-events"),
        ("WEBHOOK_REQUESTS_QUEUE_URL", "http://127.0.0.1:1/0/webhook-requests"),
        ("WEBHOOK_REQUESTS_QUEUE_ARN", "arn:aws:sqs:us-east-1:0:webhook-requests"),
        ("NOTICE_EVENTS_QUEUE_ARN", "arn:aws:sqs:us-east-1:0:notice-events"),
        ("NOTICE_REQUESTS_QUEUE_URL", "http://127.0.0.1:1/0/notice-requests"),
        ("NOTICE_REQUESTS_QUEUE_ARN", "arn:aws:sqs:us-east-1:0:notice-requests"),
        ("DELIVERIES_QUEUE_URL", "http://127.0.0.1:1/0/deliveries"),
        ("DELIVERIES_QUEUE_ARN", "arn:aws:sqs:us-east-1:0:deliveries"),
        ("NOTICES_QUEUE_URL", "http://127.0.0.1:1/0/notices"),
        ("NOTICES_QUEUE_ARN", "arn:aws:sqs:us-east-1:0:notices"),
        ("DASHBOARD_URL", "https://purser.example"),
        ("STACK", "local"),
    ])
}

fn secrets() -> Texts {
    texts([
        ("arn:seed", SEED),
        ("arn:nonce", "0123456789abcdef0123456789abcdef"),
        ("arn:rpc", NOWHERE),
        ("arn:sign-in", "0123456789abcdef0123456789abcdef"),
        ("arn:oauth", "0123456789abcdef0123456789abcdef"),
        ("arn:token", "{}"),
    ])
}

/// Returns the error of a function with these variables and secrets; `None` if the function starts.
async fn said(function: &str, variables: Texts, secrets: Texts) -> Option<String> {
    let audit = LogAudit::from_environment();
    if let Some(audit) = &audit {
        audit.listen();
        for value in secrets.values().filter(|value| *value != NOWHERE) {
            audit.must_not_log("a secret at the start", value);
        }
    }
    let mut all = texts([("SECRETS_ENDPOINT", &SecretsManager::new(secrets).serve().await)]);
    all.extend(variables);
    let boot = Boot::new(all.into_iter().collect(), Clock::system());
    let started: Result<(), BootError> = match function {
        "agents" => purser_agents::router(boot).await.map(drop),
        "catalog" => purser_catalog::router(boot).await.map(drop),
        "people" => purser_dashboard::router(boot).await.map(drop),
        "events" => purser_local::Events::boot(boot).map(drop),
        "history" => purser_local::History::boot(boot).map(drop),
        "internal" => purser_internal::routers(boot).await.map(drop),
        "mcp" => purser_mcp_function::router(boot).await.map(drop),
        "notices" => purser_local::Notifications::boot(boot).map(drop),
        "oauth" => purser_oauth::router(boot).await.map(drop),
        "payments" => purser_payments::routers(boot).await.map(drop),
        "probe" => purser_local::Probe::boot(boot).map(drop),
        "reconcile" => purser_local::Reconcile::boot(boot).await.map(drop),
        "webhooks" => purser_local::Webhooks::boot(boot).map(drop),
        other => panic!("{other}"),
    };
    started.err().map(|error| {
        purser_api::log_fatal_error(&*error);
        let (mut text, mut source) = (error.to_string(), error.source());
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    })
}

#[tokio::test]
async fn every_function_starts_in_the_local_environment() {
    let functions = [
        "agents",
        "catalog",
        "people",
        "events",
        "history",
        "internal",
        "mcp",
        "notices",
        "oauth",
        "payments",
        "probe",
        "reconcile",
        "webhooks",
    ];
    for function in functions {
        assert_eq!(said(function, variables(), secrets()).await, None, "{function}");
    }
}

/// With KMS custody, `WALLET_KEYS_STACK` must be set instead of the wallet seed.
#[tokio::test]
async fn kms_custody_needs_no_wallet_seed() {
    let mut variables = variables();
    variables.remove("WALLET_SEED_SECRET_ARN");
    variables.insert("CUSTODY".to_owned(), "kms".to_owned());
    variables.insert("WALLET_KEYS_STACK".to_owned(), "stack".to_owned());
    let mut secrets = secrets();
    secrets.remove("arn:seed");
    for function in ["payments", "people"] {
        assert_eq!(
            said(function, variables.clone(), secrets.clone()).await,
            None,
            "{function}"
        );
    }
    variables.remove("WALLET_KEYS_STACK");
    let missing = "`WALLET_KEYS_STACK` is not set".to_owned();
    assert_eq!(said("people", variables, secrets).await, Some(missing));
}

#[tokio::test]
async fn a_malformed_environment_variable_stops_the_function() {
    let word = "must be an integer from";
    let rows = [
        ("agents", "THROTTLE_PER_MINUTE", "0", format!("{word} 1 to 1000000")),
        ("people", "KEY_REQUESTS_PER_MINUTE", "0", format!("{word} 1 to 1000000")),
        ("catalog", "BODY_LIMIT_BYTES", "64k", format!("{word} 1024 to 1048576")),
        ("catalog", "BODY_LIMIT_BYTES", "-1", format!("{word} 1024 to 1048576")),
        (
            "payments",
            "NETWORK",
            "mainnet",
            "must be one of: base, base-sepolia".to_owned(),
        ),
        ("payments", "CUSTODY", "vault", "must be `seed` or `kms`".to_owned()),
        ("people", "CUSTODY", "vault", "must be `seed` or `kms`".to_owned()),
        ("payments", "FINALITY_CONFIRMATIONS", "0", format!("{word} 1 to 10000")),
        (
            "payments",
            "MAX_AUTHORIZATION_SECONDS",
            "1h",
            format!("{word} 30 to 3600"),
        ),
        ("payments", "APPROVAL_TTL_SECONDS", "1", format!("{word} 60 to 2678400")),
        ("people", "APPROVAL_TTL_SECONDS", "1", format!("{word} 60 to 2678400")),
        (
            "people",
            "STARTING_LIMITS",
            "permissive",
            "must be one of: none, safe".to_owned(),
        ),
        ("payments", "MAX_OPEN_APPROVALS", "0", format!("{word} 1 to 100")),
        (
            "payments",
            "ACCEPT_PROVIDER_OK",
            "yes",
            "must be `true` or `false`".to_owned(),
        ),
        (
            "payments",
            "DYNAMODB_ENDPOINT",
            "localhost:8000",
            "must be empty, or an address: http://<host>:<port>".to_owned(),
        ),
        (
            "internal",
            "SECRETS_ENDPOINT",
            "nowhere",
            "must be empty, or an address: http://<host>:<port>".to_owned(),
        ),
        ("internal", "AWS_REGION", "", "is not set".to_owned()),
        (
            "internal",
            "PAYMENT_CHANGE_DELAY_SECONDS",
            "2592001",
            format!("{word} 0 to 2592000"),
        ),
        (
            "people",
            "OIDC_ISSUER",
            "http://issuer.example",
            "must be an https address without query or fragment, or http on a loopback host".to_owned(),
        ),
        (
            "people",
            "DASHBOARD_URL",
            "https://purser.example/",
            "must be an origin: https://<host>, or http://<host>:<port>".to_owned(),
        ),
        (
            "events",
            "ACCEPTED_PAYEE_DELAY_SECONDS",
            "2592001",
            format!("{word} 0 to 2592000"),
        ),
        ("history", "JOURNAL_DAYS", "3651", format!("{word} 0 to 3650")),
        ("history", "JOURNAL_DAYS", "90", "needs an archive".to_owned()),
        (
            "events",
            "STACK",
            "a stack",
            "must be letters, digits and hyphens".to_owned(),
        ),
        ("people", "SESSION_IDLE_MINUTES", "0", format!("{word} 5 to 1440")),
        ("people", "SESSION_HOURS", "0", format!("{word} 1 to 168")),
        ("people", "RECENT_SIGN_IN_SECONDS", "1", format!("{word} 60 to 86400")),
        (
            "people",
            "RECENT_SIGN_IN_ABOVE_UNITS",
            "-1",
            format!("{word} 0 to 9007199254740991"),
        ),
        (
            "people",
            "ENTITLEMENT_CLAIM",
            "groups",
            "and `ENTITLEMENT_VALUE` need each other".to_owned(),
        ),
        (
            "people",
            "OPERATOR_CLAIM",
            "groups",
            "and `OPERATOR_VALUE` need each other".to_owned(),
        ),
        ("probe", "PROBE_INTERVAL_SECONDS", "1", format!("{word} 60 to 604800")),
        (
            "probe",
            "PROBE_ALLOWED_HOSTS",
            "http://a",
            "must be a list of `host:port`".to_owned(),
        ),
        (
            "mcp",
            "API_URL",
            "purser.example",
            "must be an address: https://<host>".to_owned(),
        ),
        ("reconcile", "WATCH_CONFIRMATIONS", "0", format!("{word} 1 to 100000")),
        ("reconcile", "LOG_BLOCK_RANGE", "all", format!("{word} 1 to 100000")),
        (
            "reconcile",
            "LOW_WALLET_UNITS",
            "-1",
            format!("{word} 0 to 9007199254740991"),
        ),
        (
            "reconcile",
            "RECONCILE_MOST_SETTLEMENTS",
            "0",
            format!("{word} 1 to 100000"),
        ),
    ];
    for (function, name, value, words) in rows {
        let mut variables = variables();
        variables.insert(name.to_owned(), value.to_owned());
        let said = said(function, variables, secrets()).await;
        assert_eq!(said, Some(format!("`{name}` {words}")), "{function}, {name}");
    }
    // A payment change delay of zero is valid only on a test network.
    let mut variables = variables();
    let delay = [("NETWORK", "base"), ("PAYMENT_CHANGE_DELAY_SECONDS", "0")];
    variables.extend(delay.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let said = said("internal", variables, secrets()).await.unwrap();
    assert!(
        said.starts_with("`PAYMENT_CHANGE_DELAY_SECONDS` must not be 0"),
        "{said}"
    );
}

#[tokio::test]
async fn a_missing_or_malformed_secret_stops_the_function() {
    const SEED_FORM: &str = "the wallet seed must be 64 to 128 hexadecimal digits, two for each byte";
    const SIGN_IN_FORM: &str = "the sign-in key must have at least 32 characters";
    const RPC_FORM: &str = "the RPC secret must be one https address or two different ones";
    let missing = |arn: &str| format!("reading a secret: `{arn}`: the secret does not exist");
    let rows: [(&str, &str, Option<&str>, String); 24] = [
        ("payments", "arn:seed", None, missing("arn:seed")),
        ("payments", "arn:seed", Some(""), SEED_FORM.to_owned()),
        (
            "payments",
            "arn:seed",
            Some("hunter2hunter2hunter2hunter2hunter2"),
            SEED_FORM.to_owned(),
        ),
        ("payments", "arn:seed", Some(SEED.split_at(62).0), SEED_FORM.to_owned()),
        ("payments", "arn:seed", Some(SEED.split_at(63).0), SEED_FORM.to_owned()),
        ("payments", "arn:nonce", None, missing("arn:nonce")),
        (
            "payments",
            "arn:nonce",
            Some("hunter2"),
            "the nonce key must have at least 32 characters".to_owned(),
        ),
        ("payments", "arn:rpc", None, missing("arn:rpc")),
        ("payments", "arn:rpc", Some(""), RPC_FORM.to_owned()),
        (
            "payments",
            "arn:rpc",
            Some("hunter2.example/v2/key"),
            RPC_FORM.to_owned(),
        ),
        (
            "payments",
            "arn:rpc",
            Some("wss://hunter2.example"),
            RPC_FORM.to_owned(),
        ),
        (
            "payments",
            "arn:rpc",
            Some("http://hunter2.example/v2/key"),
            RPC_FORM.to_owned(),
        ),
        ("reconcile", "arn:nonce", None, missing("arn:nonce")),
        (
            "reconcile",
            "arn:nonce",
            Some("hunter2"),
            "the nonce key must have at least 32 characters".to_owned(),
        ),
        ("reconcile", "arn:rpc", None, missing("arn:rpc")),
        ("reconcile", "arn:rpc", Some("hunter2"), RPC_FORM.to_owned()),
        (
            "reconcile",
            "arn:rpc",
            Some("https://hunter2.example https://hunter2.example"),
            RPC_FORM.to_owned(),
        ),
        ("people", "arn:rpc", None, missing("arn:rpc")),
        ("people", "arn:rpc", Some("file:///hunter2"), RPC_FORM.to_owned()),
        ("people", "arn:sign-in", None, missing("arn:sign-in")),
        ("people", "arn:sign-in", Some("hunter2"), SIGN_IN_FORM.to_owned()),
        ("internal", "arn:token", None, missing("arn:token")),
        ("internal", "arn:token", Some(""), token_form()),
        ("internal", "arn:token", Some("hunter2"), token_form()),
    ];
    for (function, arn, value, words) in rows {
        let mut secrets = secrets();
        match value {
            Some(value) => secrets.insert(arn.to_owned(), value.to_owned()),
            None => secrets.remove(arn),
        };
        let said = said(function, variables(), secrets).await.unwrap_or_default();
        assert!(said.contains(&words), "{function}, {arn}, {value:?}: {said}");
        assert!(
            value.is_none_or(|value| value.is_empty() || !said.contains(value)),
            "{said}"
        );
    }
}

/// Starts a node that returns only the chain id and the client version.
async fn node(version: &'static str) -> String {
    let node = ScriptedNode::start(move |method, _| match method {
        "eth_chainId" => Reply::Result("0x14a34".into()),
        "web3_clientVersion" => Reply::Result(version.into()),
        _ => Reply::Refused(-32_601),
    });
    node.await.url
}

#[tokio::test]
async fn accept_provider_ok_is_rejected_outside_local_chains() {
    let refused = Some("`ACCEPT_PROVIDER_OK` is for local chains alone");
    let rows = [
        ("true", Some("anvil/v1.5.1"), None),
        ("true", Some("HardhatNetwork/2.22.0/@ethereumjs/vm/5.3.0"), None),
        ("true", Some("Geth/v1.16.4-stable/linux-amd64/go1.24.7"), refused),
        ("true", Some("reth/v1.8.2-anvil/x86_64-unknown-linux-gnu"), refused),
        // Only a node's response proves that the chain is local.
        ("true", None, Some("got no response")),
        ("false", Some("Geth/v1.16.4-stable/linux-amd64/go1.24.7"), None),
        ("", Some("Geth/v1.16.4-stable/linux-amd64/go1.24.7"), None),
    ];
    for (setting, version, words) in rows {
        let mut variables = variables();
        variables.insert("ACCEPT_PROVIDER_OK".to_owned(), setting.to_owned());
        let mut secrets = secrets();
        if let Some(version) = version {
            secrets.insert("arn:rpc".to_owned(), node(version).await);
        }
        let said = said("payments", variables, secrets).await;
        let expected = match (&said, words) {
            (Some(said), Some(words)) => said.contains(words),
            (said, words) => said.is_none() && words.is_none(),
        };
        assert!(expected, "{setting:?}, {version:?}: {said:?}");
    }
}

fn token_form() -> String {
    "`arn:token`: must be a JSON object of names, each with the SHA-256 of its token in hex".to_owned()
}

#[tokio::test]
async fn secrets_that_cannot_be_read_stop_the_function() {
    let mut variables = variables();
    variables.insert("SECRETS_ENDPOINT".to_owned(), NOWHERE.to_owned());
    for function in ["payments", "people", "internal", "reconcile"] {
        let said = said(function, variables.clone(), secrets()).await.unwrap_or_default();
        assert!(said.contains("reading a secret"), "{function}: {said}");
    }
}
