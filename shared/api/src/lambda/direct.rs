//! Direct requests: one Lambda function calls another Lambda function through Lambda's `Invoke`, without the API
//! gateway. IAM controls which functions may invoke a function.
//!
//! In a direct request, `version` is a number. In the gateway's event, `version` is a string, so no client of the
//! gateway can send a direct request.

use crate::{
    Failure, GatewayEvent, NewWithdrawalAddress, Reply, RequestedWithdrawal, WithdrawalOwner, handle_any_event,
};
use axum::{
    RequestExt as _, Router,
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Request},
    http::{Method, Uri, request::Parts},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, Collected};
use lambda_http::{Context, LambdaEvent, RequestExt as _};
use purser_domain::{
    AgentId, Error, KmsKeyId, PublicKey, RequestSource, ValidationError, Wallet, WalletAttestation, WalletKey,
    parse_address,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};
use std::convert::Infallible;
use tower::ServiceExt as _;
use tracing::info;

/// The two routers of a Lambda function: one for requests from the API gateway, and one for direct requests from other
/// Lambda functions. No request from the API gateway reaches the router for direct requests.
#[derive(Clone)]
pub struct Routers {
    /// The router for requests that the API gateway passes to the Lambda function.
    pub gateway: Router,
    /// The router for direct requests, which has only the path [`DIRECT_PATH`].
    pub direct: Router,
}

/// The path of direct requests in the router [`Routers::direct`].
pub const DIRECT_PATH: &str = "/direct";

/// The only accepted version of direct requests.
const VERSION: u8 = 1;

/// A direct request to the Lambda function `payments`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PaymentsRequest {
    /// Attests an agent's wallet. The response is an [`AttestedWallet`].
    AttestWallet(AttestWallet),
    /// Sets the withdrawal address of an agent. The response is a [`crate::WithdrawalResponse`].
    NamePayoutAddress(NewWithdrawalAddress),
    /// Removes the withdrawal address of an agent. The response is a [`crate::WithdrawalResponse`].
    RemovePayoutAddress(WithdrawalOwner),
    /// Withdraws money from an agent's wallet to the agent's withdrawal address. The response is a
    /// [`crate::WithdrawalResponse`].
    PayOut(RequestedWithdrawal),
}

/// A request for an agent's wallet address, with an attestation by the wallet's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttestWallet {
    /// The agent, which may not be stored yet.
    pub agent_id: AgentId,
    /// The key of the agent's wallet.
    pub wallet: RequestedWallet,
}

/// The key of the wallet whose address is requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestedWallet {
    /// A key that is derived from the wallet seed.
    Seed {
        /// The last index of the derivation path.
        index: u32,
    },
    /// A key in KMS.
    Kms {
        /// The id of the KMS key.
        key_id: KmsKeyId,
    },
}

/// A wallet's address, with the attestation by the wallet's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttestedWallet {
    /// The address, as `0x` and 40 hexadecimal digits.
    pub address: String,
    /// The signature over the agent and the address: r, s and v (`shared/chain/src/attestation.rs`), 65 bytes in
    /// base64.
    pub signature: String,
    /// The public key of a key in KMS: a compressed point, 33 bytes in base64.
    pub public_key: Option<String>,
}

impl AttestedWallet {
    /// Creates the response that describes a wallet.
    pub fn new(wallet: &Wallet) -> Self {
        let public_key = match &wallet.key {
            WalletKey::Seed { .. } => None,
            WalletKey::Kms { public_key, .. } => Some(BASE64_STANDARD.encode(public_key.as_bytes())),
        };
        Self {
            address: wallet.address.to_string(),
            signature: BASE64_STANDARD.encode(wallet.attestation.as_bytes()),
            public_key,
        }
    }

    /// Returns the wallet in the response, without verifying the attestation. Returns `None` if the wallet's key is of
    /// another kind than the requested key.
    pub fn wallet_for_request(&self, request: &RequestedWallet) -> Option<Wallet> {
        let public_key = self.public_key.as_deref().map(parse_hex_bytes);
        let key = match (request, public_key) {
            (RequestedWallet::Seed { index }, None) => WalletKey::Seed { index: *index },
            (RequestedWallet::Kms { key_id }, Some(public_key)) => WalletKey::Kms {
                id: *key_id,
                public_key: PublicKey::from_bytes(public_key?),
            },
            (RequestedWallet::Seed { .. }, Some(_)) | (RequestedWallet::Kms { .. }, None) => return None,
        };
        Some(Wallet {
            key,
            address: parse_address(&self.address).ok()?,
            attestation: WalletAttestation::from_bytes(parse_hex_bytes(&self.signature)?),
        })
    }
}

fn parse_hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}

/// The source of the user's request that caused a direct request, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserRequest {
    address: Option<String>,
    user_agent: Option<String>,
    request_id: String,
}

impl UserRequest {
    pub(crate) fn new(source: &RequestSource) -> Self {
        Self {
            address: source.address.clone(),
            user_agent: source.user_agent.clone(),
            request_id: source.request_id.clone(),
        }
    }

    pub(crate) fn to_source(&self) -> RequestSource {
        RequestSource::new(self.address.clone(), self.user_agent.as_deref(), &self.request_id)
    }
}

/// The request id and the trace id of the request that caused a direct request. The called function writes both ids to
/// the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerIds {
    /// The request id of the request that caused the direct request.
    pub request_id: String,
    /// The trace id of the request that caused the direct request.
    pub trace_id: String,
}

impl<S: Sync> FromRequestParts<S> for CallerIds {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // The middleware adds these ids to the extensions of the request.
        let ids = parts.extensions.get::<Self>().cloned();
        Ok(ids.unwrap_or_else(|| Self {
            request_id: String::new(),
            trace_id: String::new(),
        }))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectEvent<T> {
    version: u8,
    caller: CallerIds,
    request: T,
}

impl<T> DirectEvent<T> {
    pub(crate) const fn new(caller: CallerIds, request: T) -> Self {
        let version = VERSION;
        Self {
            version,
            caller,
            request,
        }
    }
}

/// The parsed direct request of another Lambda function.
#[derive(Debug)]
pub struct Direct<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Direct<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Reply<Self> {
        let refused = |message: &str| Failure::from(Error::invalid(vec![ValidationError::at_path("", message)]));
        let own = request.extensions().get::<CallerIds>().cloned();
        let bytes: Bytes = request.extract().await.map_err(|_| refused("must arrive whole"))?;
        // Omits the parser's message, which may repeat parts of the request.
        let event: DirectEvent<T> = serde_json::from_slice(&bytes).map_err(|_| refused("must be a known request"))?;
        if event.version != VERSION {
            return Err(refused("must be of version 1"));
        }
        let own = own.map(|own| own.request_id);
        let CallerIds { request_id, trace_id } = event.caller;
        info!(
            request.id = own,
            caller.request.id = request_id,
            caller.trace.id = trace_id,
            "direct.request"
        );
        Ok(Self(event.request))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectAnswer {
    /// The HTTP status: 200 or the status of the error.
    pub(crate) status: u16,
    /// The response, or the error envelope.
    pub(crate) body: Box<RawValue>,
}

/// Handles an event from the API gateway or from another Lambda function. Returns the response in the format that the
/// sender expects.
pub async fn handle_gateway_or_direct_event(routers: Routers, event: LambdaEvent<Box<RawValue>>) -> Box<RawValue> {
    let text = event.payload.get();
    let is_direct =
        serde_json::from_str::<VersionedRequest>(text).is_ok() && serde_json::from_str::<GatewayEvent>(text).is_err();
    if is_direct {
        return handle_direct_event(routers.direct, text.to_owned(), event.context).await;
    }
    handle_any_event(routers.gateway, event).await.to_json()
}

/// The field `version` of a direct request. All versions of direct requests are numbers.
#[derive(Deserialize)]
struct VersionedRequest {
    #[serde(rename = "version")]
    _version: u64,
}

/// Handles one direct request, with the same middleware as a request from the API gateway.
async fn handle_direct_event(router: Router, payload: String, context: Context) -> Box<RawValue> {
    let mut request = Request::new(Body::from(payload)).with_lambda_context(context);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(DIRECT_PATH);
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    // The body is in memory, so collecting it can't fail.
    let body = response.into_body().collect().await.map(Collected::to_bytes);
    let body = body.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let reply = DirectAnswer {
        status,
        body: body.unwrap_or_default(),
    };
    // The status is a number and the body is JSON, so serialization can't fail.
    to_raw_value(&reply).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiSettings, test_clients::TestLog, with_middleware};
    use axum::{
        Json,
        routing::{any, post},
    };
    use serde_json::{Value, json};
    use uuid::Uuid;

    async fn attested(Direct(request): Direct<PaymentsRequest>) -> Json<Value> {
        let request = json!(request);
        Json(json!({"asked": request.as_object().unwrap().keys().next()}))
    }

    async fn answered(event: Value) -> Value {
        let settings = ApiSettings::default();
        let gateway = Router::new().route(DIRECT_PATH, any(async || "the gateway's"));
        let direct = Router::new().route(DIRECT_PATH, post(attested));
        let routers = Routers {
            gateway: with_middleware(gateway, settings),
            direct: with_middleware(direct, settings),
        };
        let event = LambdaEvent::new(to_raw_value(&event).unwrap(), Context::default());
        serde_json::from_str(handle_gateway_or_direct_event(routers, event).await.get()).unwrap()
    }

    fn asked() -> Value {
        let wallet = json!({"agent_id": Uuid::nil(), "wallet": {"seed": {"index": 3}}});
        json!({
            "version": 1,
            "caller": {"request_id": "r", "trace_id": "t"},
            "request": {"attest_wallet": wallet},
        })
    }

    #[tokio::test]
    async fn gateway_requests_never_reach_the_direct_router() {
        let context = json!({"http": {"method": "POST", "sourceIp": "203.0.113.9"}});
        let through = json!({"rawPath": DIRECT_PATH, "requestContext": context, "body": asked().to_string()});
        let mut both = asked();
        both["rawPath"] = DIRECT_PATH.into();
        both["requestContext"] = context;
        for event in [through, both] {
            let answer = answered(event).await;
            assert_eq!(answer["body"], "the gateway's", "{answer}");
        }
        let answer = answered(asked()).await;
        assert_eq!(answer, json!({"status": 200, "body": {"asked": "attest_wallet"}}));
    }

    #[tokio::test]
    async fn unknown_direct_requests_are_rejected_without_echo() {
        let with = |pointer: &str, value: Value| {
            let mut event = asked();
            *event.pointer_mut(pointer).unwrap() = value;
            event
        };
        let mut more = asked();
        more["hunter2"] = json!(1);
        let known = asked()["request"]["attest_wallet"].clone();
        let rows = [
            (with("/version", json!(2)), "must be of version 1"),
            (more, "must be a known request"),
            (with("/request", json!({"hunter2": known})), "must be a known request"),
            (
                with("/request/attest_wallet/wallet", json!({"hunter2": {}})),
                "must be a known request",
            ),
            (
                with("/request/attest_wallet/wallet/seed/index", json!(-1)),
                "must be a known request",
            ),
            (json!({"version": 1}), "must be a known request"),
        ];
        let logged = TestLog::start();
        for (event, words) in rows {
            let answer = answered(event).await;
            assert_eq!(
                (&answer["status"], &answer["body"]["error"]),
                (&json!(400), &json!("invalid_request"))
            );
            assert_eq!(answer["body"]["details"][0]["message"], words, "{answer}");
            assert!(!answer.to_string().contains("hunter2"), "{answer}");
        }
        assert!(!logged.take().contains("hunter2"));
    }

    #[tokio::test]
    async fn unrecognized_events_return_a_gateway_error() {
        let mut unversioned = asked();
        unversioned.as_object_mut().unwrap().remove("version");
        let mut worded = asked();
        worded["version"] = json!("2.0");
        let scheduled = json!({"version": "0", "source": "aws.events", "detail": {}});
        for event in [json!({}), json!("x"), json!(null), unversioned, worded, scheduled] {
            let answer = answered(event).await;
            assert_eq!(answer["statusCode"], 400, "{answer}");
        }
    }

    #[tokio::test]
    async fn the_callers_request_ids_are_logged_with_the_functions_ids() {
        let logged = TestLog::start();
        answered(asked()).await;
        let lines = logged.take();
        let line: Value = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .find(|line: &Value| line["message"] == "direct.request")
            .unwrap();
        assert_eq!(
            (&line["caller.request.id"], &line["caller.trace.id"]),
            (&json!("r"), &json!("t"))
        );
        assert!(line["request.id"].as_str().is_some_and(|id| !id.is_empty()), "{line}");
    }
}
