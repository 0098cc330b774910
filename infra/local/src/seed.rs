//! The initial data of a stack: new secrets, the catalog in `catalog.json`, and an agent with a balance. The catalog
//! and the agent are created by requests to the functions.

use crate::{Providers, gateway};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use http_body_util::BodyExt as _;
use purser_api::{CustodyKind, random_bytes};
use purser_chain::{KeyError, WalletSeed};
use purser_domain::{Address, AgentId, Error, SecretDigest, parse_address};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The initial balance of the demo agent's wallet: 1,000 dollars.
pub(crate) const DEMO_FUNDS: u64 = 1_000_000_000;

// Tables and secrets are named by their logical id in `template.yaml`.
pub(crate) const WALLET_SEED_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:WalletSeedSecret";
pub(crate) const NONCE_KEY_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:NonceKeySecret";
pub(crate) const STATEMENTS_KEY_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:StatementsKeySecret";
pub(crate) const RPC_URL_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:RpcUrlSecret";
pub(crate) const OAUTH_KEY_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:OauthKeySecret";
pub(crate) const SIGN_IN_KEY_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:SignInKeySecret";
/// The keys with which functions verify client addresses that other functions forward, by function.
pub(crate) const CLIENT_IP_KEY_ARNS: [(&str, &str); 3] = [
    (
        "AgentsFunction",
        "arn:aws:secretsmanager:us-east-1:000000000000:secret:AgentsClientIpKeySecret",
    ),
    (
        "PaymentsFunction",
        "arn:aws:secretsmanager:us-east-1:000000000000:secret:ClientIpKeySecret",
    ),
    (
        "PeopleFunction",
        "arn:aws:secretsmanager:us-east-1:000000000000:secret:PeopleClientIpKeySecret",
    ),
];
pub(crate) const OPERATORS_ARN: &str = "arn:aws:secretsmanager:us-east-1:000000000000:secret:OperatorsSecret";

/// The reason why the demo data could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// `catalog.json` is no valid catalog.
    #[error("catalog.json: {0}")]
    Catalog(String),
    /// A function rejected a request.
    #[error("seeding {seeding}: {detail}")]
    Refused {
        /// The object that the request should create.
        seeding: String,
        /// The response.
        detail: String,
    },
    /// The system provided no entropy.
    #[error(transparent)]
    Service(#[from] Error),
    /// The wallet seed is invalid.
    #[error(transparent)]
    Key(#[from] KeyError),
}

pub(crate) struct SecretValues {
    /// The wallet seed; `None` with KMS custody.
    wallet_seed: Option<String>,
    nonce_key: String,
    statements_key: String,
    rpc_url: String,
    internal_token: String,
    browser_operator_tokens: [String; 2],
    sign_in_key: String,
    oauth_key: String,
    client_ip_keys: [String; 3],
}

pub(crate) fn secrets(rpc_url: &str, custody: CustodyKind) -> Result<SecretValues, SeedError> {
    Ok(SecretValues {
        wallet_seed: match custody {
            CustodyKind::Seed => Some(hex(&random_bytes::<64>()?)),
            CustodyKind::Kms => None,
        },
        nonce_key: hex(&random_bytes::<32>()?),
        statements_key: hex(&random_bytes::<32>()?),
        rpc_url: rpc_url.to_owned(),
        internal_token: hex(&random_bytes::<32>()?),
        browser_operator_tokens: [hex(&random_bytes::<32>()?), hex(&random_bytes::<32>()?)],
        sign_in_key: hex(&random_bytes::<32>()?),
        oauth_key: hex(&random_bytes::<32>()?),
        client_ip_keys: [
            hex(&random_bytes::<32>()?),
            hex(&random_bytes::<32>()?),
            hex(&random_bytes::<32>()?),
        ],
    })
}

fn hex(bytes: &[u8]) -> String {
    alloy::hex::encode(bytes)
}

/// The name of the stack's operator.
pub(crate) const OPERATOR: &str = "local";

/// The operator names of the demo owner and the second user in the browser. By default, only the demo owner is
/// permitted.
pub(crate) const BROWSER_OPERATORS: [&str; 2] = ["ada", "bob"];

/// Returns the value of the operators' secret.
pub(crate) fn operators(tokens: &[(&str, &str)]) -> String {
    let digest = |token: &str| SecretDigest::from_secret(token).to_hex();
    let listed = tokens
        .iter()
        .map(|(name, token)| ((*name).to_owned(), digest(token).into()));
    Value::Object(listed.collect()).to_string()
}

impl SecretValues {
    /// Returns the wallet seed; `None` with KMS custody.
    pub(crate) fn wallet_seed(&self) -> Result<Option<WalletSeed>, SeedError> {
        Ok(self.wallet_seed.as_deref().map(WalletSeed::from_hex).transpose()?)
    }

    pub(crate) fn internal_token(&self) -> &str {
        &self.internal_token
    }

    pub(crate) fn by_arn(self) -> BTreeMap<String, String> {
        let browser_tokens = self.browser_operator_tokens.iter().map(String::as_str);
        let browser_tokens = BROWSER_OPERATORS.into_iter().zip(browser_tokens);
        let tokens: Vec<_> = [(OPERATOR, self.internal_token.as_str())]
            .into_iter()
            .chain(browser_tokens)
            .collect();
        let by_arn = [
            (NONCE_KEY_ARN, self.nonce_key),
            (STATEMENTS_KEY_ARN, self.statements_key),
            (RPC_URL_ARN, self.rpc_url),
            (SIGN_IN_KEY_ARN, self.sign_in_key),
            (OAUTH_KEY_ARN, self.oauth_key),
            (OPERATORS_ARN, operators(&tokens)),
        ];
        let seed = self.wallet_seed.map(|seed| (WALLET_SEED_ARN, seed));
        let client_ip_keys = CLIENT_IP_KEY_ARNS.into_iter().zip(self.client_ip_keys);
        let client_ip_keys = client_ip_keys.map(|((_, arn), key)| (arn, key));
        let by_arn = by_arn.into_iter().chain(seed).chain(client_ip_keys);
        by_arn.map(|(arn, value)| (arn.to_owned(), value)).collect()
    }
}

/// The demo agent.
#[derive(Clone, Debug)]
pub struct DemoAgent {
    /// The agent's id.
    pub id: AgentId,
    /// The whole API key of the agent.
    pub key: String,
    /// The agent's wallet.
    pub wallet_address: Address,
}

const CATALOG: &str = include_str!("../catalog.json");

/// A service in `catalog.json`.
#[derive(Deserialize)]
struct SeededService {
    id: String,
    /// The demo owner's changes to the agent's policy for this service; null for none.
    demo_policy: Option<Value>,
    /// The operator's request body.
    service: Value,
}

fn parse_catalog(providers: &Providers) -> Result<Vec<SeededService>, SeedError> {
    let text = CATALOG
        .replace("{provider}", &providers.provider_url)
        .replace("{provider_v1}", &providers.provider_v1_url)
        .replace("{pay_to}", &providers.pay_to);
    serde_json::from_str(&text).map_err(|error| SeedError::Catalog(error.to_string()))
}

/// An operator or the demo owner, whose requests go directly to a function.
pub(crate) struct Caller<'a> {
    function: &'a Router,
    credential: (&'static str, String),
    /// The `If-Match` header of updates.
    if_match: Option<&'static str>,
}

impl<'a> Caller<'a> {
    /// Returns an operator who calls the function `internal`.
    pub(crate) fn operator(function: &'a Router, token: &str) -> Self {
        Self {
            function,
            credential: ("x-internal-token", token.to_owned()),
            if_match: None,
        }
    }

    /// Returns a user who calls the function `people`.
    pub(crate) fn person(function: &'a Router, token: &str) -> Self {
        Self {
            function,
            credential: ("authorization", format!("Bearer {token}")),
            if_match: Some("*"),
        }
    }

    /// Sends a request, which must succeed. `seeding` names the created object in errors.
    async fn send(&self, seeding: &str, method: &str, path: &str, body: &Value) -> Result<Value, SeedError> {
        let refused = |detail: String| SeedError::Refused {
            seeding: seeding.to_owned(),
            detail,
        };
        let (name, value) = &self.credential;
        let mut request = Request::builder().method(method).uri(path).header(*name, value);
        if let Some(version) = self.if_match {
            request = request.header(header::IF_MATCH, version);
        }
        let request = request
            .body(Body::from(body.to_string()))
            .map_err(|error| refused(error.to_string()))?;
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let response = gateway::invoke(self.function.clone(), here, request).await;
        let status = response.status();
        let response = response.into_body().collect().await;
        let bytes = response.map_err(|error| refused(error.to_string()))?.to_bytes();
        if !status.is_success() {
            return Err(refused(format!("{status} {}", String::from_utf8_lossy(&bytes))));
        }
        serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))
    }
}

/// Creates the catalog as an operator, with `operations` added to the services.
pub(crate) async fn catalog(
    operator: &Caller<'_>,
    providers: &Providers,
    fields: &[(&'static str, Value)],
) -> Result<(), SeedError> {
    for SeededService { id, mut service, .. } in parse_catalog(providers)? {
        let slug = service.get("slug").cloned();
        for (_, operation) in fields.iter().filter(|(of, _)| slug.as_ref() == Some(&json!(of))) {
            let text = operation.to_string().replace("{pay_to}", &providers.pay_to);
            let operation = serde_json::from_str(&text).map_err(|error| SeedError::Catalog(error.to_string()))?;
            let operations = service.get_mut("operations").and_then(Value::as_array_mut);
            operations
                .ok_or_else(|| SeedError::Catalog("a service has no operations".to_owned()))?
                .push(operation);
        }
        operator
            .send("the catalog", "PUT", &format!("/internal/services/{id}"), &service)
            .await?;
    }
    Ok(())
}

/// Creates the demo agent as the owner, with an API key and policies.
pub(crate) async fn agent(owner: &Caller<'_>, providers: &Providers) -> Result<DemoAgent, SeedError> {
    const SEEDING: &str = "the demo agent";
    let unreadable = |what: &str| SeedError::Refused {
        seeding: SEEDING.to_owned(),
        detail: format!("the answer has no {what}"),
    };
    let text = |response: &Value, name: &str| response.get(name).and_then(Value::as_str).map(str::to_owned);
    let made = owner
        .send(SEEDING, "POST", "/agents", &json!({"name": "Demo agent"}))
        .await?;
    let id = text(&made, "agent_id").and_then(|id| AgentId::parse(&id));
    let id = id.ok_or_else(|| unreadable("agent_id"))?;
    let wallet = text(&made, "wallet_address").and_then(|wallet| parse_address(&wallet).ok());
    let wallet_address = wallet.ok_or_else(|| unreadable("wallet_address"))?;
    for SeededService {
        id: service,
        demo_policy,
        ..
    } in parse_catalog(providers)?
    {
        if let Some(policy) = demo_policy {
            let path = format!("/agents/{id}/services/{service}");
            owner.send(SEEDING, "PATCH", &path, &policy).await?;
        }
    }
    let issued = owner
        .send(SEEDING, "POST", &format!("/agents/{id}/keys"), &json!({}))
        .await?;
    Ok(DemoAgent {
        id,
        key: text(&issued, "key").ok_or_else(|| unreadable("key"))?,
        wallet_address,
    })
}
