//! Direct requests: one Lambda function sends an HTTP request to a route of another Lambda function through Lambda's
//! `Invoke`, without the API gateway. IAM controls which functions may invoke a function. The response has the format
//! of the gateway, and errors have the usual envelope.
//!
//! In a direct request, `version` is a number. In the gateway's event, `version` is a string, so no client of the
//! gateway can send a direct request.

use crate::{
    Failure, GatewayEvent,
    lambda::gateway::{handle_any_event, handle_request, reject_event},
};
use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts, Request},
    http::{header, request::Parts},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use lambda_http::LambdaEvent;
use purser_domain::{
    Acting, Actor, AgentId, ErrorKind, KmsKeyId, PublicKey, RequestSource, SessionId, SettlementId, Submission, UserId,
    Wallet, WalletAttestation, WalletKey, parse_address,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::convert::Infallible;

/// The two routers of a Lambda function: one for requests from the API gateway, and one for direct requests from other
/// Lambda functions. No request from the API gateway reaches the router for direct requests.
#[derive(Clone)]
pub struct Routers {
    /// The router for requests that the API gateway passes to the Lambda function.
    pub gateway: Router,
    /// The router for direct requests, which has only the routes that other Lambda functions need.
    pub direct: Router,
}

/// The only accepted version of direct requests.
const VERSION: u8 = 1;

/// A request of one Lambda function to a route of another Lambda function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectRequest {
    method: String,
    path: String,
    user: Option<DirectUser>,
    /// The version in `If-Match`. A direct request can't contain `*`.
    if_match: Option<u64>,
    /// The JSON body.
    body: Option<Value>,
}

impl DirectRequest {
    /// Creates a request without a user, a body and `If-Match`.
    pub fn new(method: &str, path: String) -> Self {
        Self {
            method: method.to_owned(),
            path,
            user: None,
            if_match: None,
            body: None,
        }
    }

    /// Sets the user for whom the function sends the request. If `acting` is not a user, the request has no user.
    #[must_use]
    pub fn for_user(self, acting: &Acting) -> Self {
        let user = DirectUser::from_acting(acting);
        Self { user, ..self }
    }

    /// Sets the version in `If-Match`.
    #[must_use]
    pub fn with_version(self, if_match: Option<u64>) -> Self {
        Self { if_match, ..self }
    }

    /// Sets the JSON body.
    #[must_use]
    pub fn with_body(self, body: Option<Value>) -> Self {
        Self { body, ..self }
    }
}

/// The signed-in user for whom a Lambda function sends a direct request. The extractor returns `not_found` if the
/// request has no user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectUser {
    /// The user's id.
    pub id: UserId,
    session: Option<SessionId>,
    address: Option<String>,
    user_agent: Option<String>,
    request_id: String,
}

impl DirectUser {
    fn from_acting(acting: &Acting) -> Option<Self> {
        let Actor::Person { id, session } = &acting.actor else {
            return None;
        };
        let source = &acting.source;
        Some(Self {
            id: id.clone(),
            session: session.clone(),
            address: source.address.clone(),
            user_agent: source.user_agent.clone(),
            request_id: source.request_id.clone(),
        })
    }

    /// Returns the user and the source of the user's request, for the audit log.
    pub fn acting(&self) -> Acting {
        Acting {
            actor: Actor::Person {
                id: self.id.clone(),
                session: self.session.clone(),
            },
            source: RequestSource::new(self.address.clone(), self.user_agent.as_deref(), &self.request_id),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for DirectUser {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let user = parts.extensions.get::<Self>().cloned();
        user.ok_or_else(|| ErrorKind::NotFound.into())
    }
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

    /// Returns the wallet in the response, without verifying the attestation. Returns `None` if a field is malformed,
    /// or if the wallet's key is of another kind than the requested key.
    pub fn wallet_for_request(&self, request: &RequestedWallet) -> Option<Wallet> {
        let public_key = self.public_key.as_deref().map(parse_base64_bytes);
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
            attestation: WalletAttestation::from_bytes(parse_base64_bytes(&self.signature)?),
        })
    }
}

fn parse_base64_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    BASE64_STANDARD.decode(text).ok()?.try_into().ok()
}

/// A reserved withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedWithdrawal {
    /// The settlement of the withdrawal.
    pub settlement: SettlementId,
    /// The facilitator's current response; `None` if nothing was submitted.
    pub submission: Option<Submission>,
    /// Whether an earlier request already reserved the withdrawal.
    pub replayed: bool,
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectEvent {
    version: u8,
    caller: CallerIds,
    request: DirectRequest,
}

impl DirectEvent {
    pub(crate) const fn new(caller: CallerIds, request: DirectRequest) -> Self {
        let version = VERSION;
        Self {
            version,
            caller,
            request,
        }
    }

    /// Parses the HTTP request. The error omits the parser's message, which may repeat parts of the request.
    fn parse_http_request(payload: &str) -> Result<Request, &'static str> {
        const UNKNOWN: &str = "must be a known request";
        let event: Self = serde_json::from_str(payload).map_err(|_| UNKNOWN)?;
        if event.version != VERSION {
            return Err("must be of version 1");
        }
        let DirectRequest {
            method,
            path,
            user,
            if_match,
            body,
        } = event.request;
        let mut request = Request::builder()
            .method(method.as_str())
            .uri(path)
            .extension(event.caller);
        if let Some(version) = if_match {
            request = request.header(header::IF_MATCH, format!("\"{version}\""));
        }
        if let Some(user) = user {
            request = request.extension(user);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        request.body(body).map_err(|_| UNKNOWN)
    }
}

/// Handles an event from the API gateway or from another Lambda function.
pub async fn handle_gateway_or_direct_event(routers: Routers, event: LambdaEvent<Box<RawValue>>) -> Box<RawValue> {
    let text = event.payload.get();
    let is_direct =
        serde_json::from_str::<VersionedRequest>(text).is_ok() && serde_json::from_str::<GatewayEvent>(text).is_err();
    let response = if is_direct {
        match DirectEvent::parse_http_request(text) {
            Ok(request) => handle_request(routers.direct, request, event.context).await,
            Err(message) => reject_event(message, event.context).await,
        }
    } else {
        handle_any_event(routers.gateway, event).await
    };
    response.to_json()
}

/// The field `version` of a direct request. All versions of direct requests are numbers.
#[derive(Deserialize)]
struct VersionedRequest {
    #[serde(rename = "version")]
    _version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiSettings, test_clients::TestLog, with_middleware};
    use axum::{
        Json,
        body::Bytes,
        http::HeaderMap,
        routing::{any, put},
    };
    use lambda_http::Context;
    use serde_json::{json, value::to_raw_value};

    const ROUTE: &str = "/agents/{agent}/payout-address";

    async fn respond(user: DirectUser, headers: HeaderMap, body: Bytes) -> Json<Value> {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let if_match = headers.get(header::IF_MATCH).map(|value| value.to_str().unwrap());
        Json(json!({"user": user.id.to_string(), "if_match": if_match, "body": body}))
    }

    /// Returns the response to an event.
    async fn invoke(event: &Value) -> Value {
        let settings = ApiSettings::default();
        let gateway = Router::new().route(ROUTE, any(async || "the gateway's"));
        let direct = Router::new().route(ROUTE, put(respond));
        let routers = Routers {
            gateway: with_middleware(gateway, settings),
            direct: with_middleware(direct, settings),
        };
        let event = LambdaEvent::new(to_raw_value(event).unwrap(), Context::default());
        serde_json::from_str(handle_gateway_or_direct_event(routers, event).await.get()).unwrap()
    }

    /// Returns the status and the body of a response.
    fn status_and_body(response: &Value) -> (u64, Value) {
        let body = response["body"].as_str().unwrap();
        (
            response["statusCode"].as_u64().unwrap(),
            serde_json::from_str(body).unwrap(),
        )
    }

    fn person() -> UserId {
        UserId::derive("https://issuer.example", "someone")
    }

    fn event() -> Value {
        json!({
            "version": 1,
            "caller": {"request_id": "r", "trace_id": "t"},
            "request": {
                "method": "PUT",
                "path": "/agents/7/payout-address",
                "user": {"id": person().to_string(), "request_id": "r"},
                "if_match": 3,
                "body": {"address": "0x1"},
            },
        })
    }

    #[tokio::test]
    async fn gateway_requests_never_reach_the_direct_router() {
        let context = json!({"http": {"method": "PUT", "sourceIp": "203.0.113.9"}});
        let path = "/agents/7/payout-address";
        let through = json!({"rawPath": path, "requestContext": context, "body": event().to_string()});
        let mut both = event();
        both["rawPath"] = path.into();
        both["requestContext"] = context;
        for event in [through, both] {
            let response = invoke(&event).await;
            assert_eq!(response["body"], "the gateway's", "{response}");
        }
        let expected = json!({"user": person().to_string(), "if_match": "\"3\"", "body": {"address": "0x1"}});
        assert_eq!(status_and_body(&invoke(&event()).await), (200, expected));
    }

    #[tokio::test]
    async fn a_direct_request_needs_a_known_route_and_user() {
        for (field, value) in [
            ("user", Value::Null),
            ("path", json!("/agents/7/payouts")),
            ("method", json!("DELETE")),
        ] {
            let mut event = event();
            event["request"][field] = value;
            let (status, body) = status_and_body(&invoke(&event).await);
            assert_eq!((status, &body["error"]), (404, &json!("not_found")), "{field}");
        }
    }

    #[tokio::test]
    async fn unknown_direct_requests_are_rejected_without_echo() {
        let with = |pointer: &str, value: Value| {
            let mut event = event();
            *event.pointer_mut(pointer).unwrap() = value;
            event
        };
        let mut more = event();
        more["hunter2"] = json!(1);
        let mut more_in_request = event();
        more_in_request["request"]["hunter2"] = json!(1);
        let rows = [
            (with("/version", json!(2)), "must be of version 1"),
            (more, "must be a known request"),
            (more_in_request, "must be a known request"),
            (with("/request", json!({"hunter2": {}})), "must be a known request"),
            (with("/request/user/id", json!("hunter2")), "must be a known request"),
            (with("/request/method", json!("hunter 2")), "must be a known request"),
            (with("/request/path", json!("hunter2 /")), "must be a known request"),
            (with("/request/if_match", json!("*")), "must be a known request"),
            (json!({"version": 1}), "must be a known request"),
        ];
        let logged = TestLog::start();
        for (event, words) in rows {
            let response = invoke(&event).await;
            let (status, body) = status_and_body(&response);
            assert_eq!((status, &body["error"]), (400, &json!("invalid_request")), "{event}");
            assert_eq!(body["details"][0]["message"], words, "{event}");
            assert!(!response.to_string().contains("hunter"), "{response}");
        }
        assert!(!logged.take().contains("hunter"));
    }

    #[tokio::test]
    async fn unrecognized_events_return_a_gateway_error() {
        let mut unversioned = event();
        unversioned.as_object_mut().unwrap().remove("version");
        let mut worded = event();
        worded["version"] = json!("2.0");
        let scheduled = json!({"version": "0", "source": "aws.events", "detail": {}});
        for event in [json!({}), json!("x"), json!(null), unversioned, worded, scheduled] {
            let (status, body) = status_and_body(&invoke(&event).await);
            assert_eq!(status, 400, "{event}");
            let message = "must be an event of an HTTP API, payload format 2.0";
            assert_eq!(body["details"][0]["message"], message, "{event}");
        }
    }

    #[tokio::test]
    async fn the_callers_request_ids_are_logged_with_the_functions_ids() {
        let logged = TestLog::start();
        invoke(&event()).await;
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

    #[test]
    fn the_acting_user_round_trips_between_functions() {
        for session in [None, Some(SessionId::from_secret("secret"))] {
            let acting = Acting {
                actor: Actor::Person { id: person(), session },
                source: RequestSource::new(Some("203.0.113.9".to_owned()), Some("curl"), "r"),
            };
            let sent = serde_json::to_string(&DirectRequest::new("PUT", "/".to_owned()).for_user(&acting)).unwrap();
            let received: DirectRequest = serde_json::from_str(&sent).unwrap();
            let user = received.user.unwrap();
            assert_eq!((&user.id, user.acting()), (&person(), acting));
        }
        let operator = Acting {
            actor: Actor::Reconcile,
            source: RequestSource::default(),
        };
        assert_eq!(DirectRequest::new("PUT", "/".to_owned()).for_user(&operator).user, None);
    }
}
