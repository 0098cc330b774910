//! The client for direct requests to the functions `payments` and `internal`. `direct.rs` has the receiving side.

use crate::{AttestWallet, AttestedWallet, CallerIds, DirectRequest, GatewayResponse, lambda::direct::DirectEvent};
use aws_sdk_lambda::{
    Client,
    config::{Builder, retry::RetryConfig, timeout::TimeoutConfig},
    error::SdkError,
    operation::invoke::InvokeError,
    primitives::Blob,
};
use aws_types::SdkConfig;
use purser_domain::{
    Amount, Causes, Error, ErrorKind, Freeze, Freezes, Result, SettlementId, Timestamp, ValidationError,
    WithdrawalRejection,
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{sync::OnceLock, time::Duration};

/// A client of another Lambda function. The caller's role needs the IAM permission to invoke the function.
#[derive(Debug)]
pub struct InvokedFunction {
    aws: SdkConfig,
    /// Created at the first request, because most Lambda instances make no request.
    client: OnceLock<Client>,
    /// The function's name or ARN.
    name: String,
    /// The operation in errors and in the log, such as "calling `payments`".
    asking: &'static str,
}

/// The maximum number of attempts. All attempts together take at most [`INVOKE_TIMEOUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// Two attempts of five seconds each, for a request that is safe to repeat. The first may meet a cold start.
    Two,
    /// One attempt, for a request that takes long or must not be repeated.
    One,
}

impl InvokedFunction {
    /// Creates a client for the function with this name or ARN. Does not connect. The log contains `operation`, such as
    /// "calling `payments`".
    pub const fn new(aws: SdkConfig, name: String, operation: &'static str) -> Self {
        let client = OnceLock::new();
        Self {
            aws,
            client,
            name,
            asking: operation,
        }
    }

    /// Requests an agent's wallet address from `payments`, with an attestation that the caller must verify.
    pub async fn attest_wallet(&self, caller: CallerIds, request: AttestWallet) -> Result<AttestedWallet> {
        let body = serde_json::to_value(request).map_err(|error| self.invocation_error(error))?;
        let request = DirectRequest::new("POST", "/wallets".to_owned()).with_body(Some(body));
        self.send(caller, request, Attempts::Two).await
    }

    fn lambda_client(&self) -> &Client {
        self.client.get_or_init(|| {
            let timeouts = TimeoutConfig::builder()
                .operation_attempt_timeout(Duration::from_secs(5))
                .operation_timeout(INVOKE_TIMEOUT)
                .build();
            let config = Builder::from(&self.aws)
                .timeout_config(timeouts)
                .retry_config(RetryConfig::standard().with_max_attempts(2));
            Client::from_conf(config.build())
        })
    }

    /// Sends a request. Returns the error that the function returned, if the error is known (`ReceivedError`).
    /// Otherwise returns `temporarily_unavailable` for a temporary failure, and an internal error for any other failure
    /// or for a response of an unexpected shape.
    pub async fn send<T: DeserializeOwned>(
        &self,
        caller: CallerIds,
        request: DirectRequest,
        attempts: Attempts,
    ) -> Result<T> {
        let event = DirectEvent::new(caller, request);
        let event = serde_json::to_vec(&event).map_err(|error| self.invocation_error(error))?;
        let invoked = self
            .lambda_client()
            .invoke()
            .function_name(&self.name)
            .payload(Blob::new(event));
        let response = match attempts {
            Attempts::Two => invoked.send().await,
            Attempts::One => {
                let timeouts = TimeoutConfig::builder().operation_attempt_timeout(INVOKE_TIMEOUT);
                let once = Builder::new()
                    .timeout_config(timeouts.operation_timeout(INVOKE_TIMEOUT).build())
                    .retry_config(RetryConfig::standard().with_max_attempts(1));
                invoked.customize().config_override(once).send().await
            }
        };
        let response = response.map_err(|error| self.not_invoked_error(&error))?;
        // The function could not start or was too slow. The payload may contain secrets, so only the kind of the error
        // is logged.
        if let Some(kind) = response.function_error {
            return Err(Error::temporarily_unavailable(
                self.asking,
                format!("the function ended: {kind}"),
            ));
        }
        let payload = response.payload.map(Blob::into_inner).unwrap_or_default();
        let unexpected = |_| self.invocation_error("the response has an unexpected format");
        let GatewayResponse { status_code, body, .. } = serde_json::from_slice(&payload).map_err(unexpected)?;
        if (200..300).contains(&status_code) {
            return serde_json::from_str(&body).map_err(unexpected);
        }
        let received: ReceivedError = serde_json::from_str(&body).unwrap_or_default();
        if let Some(kind) = received.to_kind() {
            return Err(kind.into());
        }
        let ReceivedError { error, request_id, .. } = received;
        let result = format!("the function returned {status_code} {error}, request {request_id}");
        Err(match status_code {
            429 | 503 => Error::temporarily_unavailable(self.asking, result),
            _ => self.invocation_error(result),
        })
    }

    fn invocation_error(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::internal(self.asking, source)
    }

    /// Returns the error of an invocation that Lambda did not accept: temporary unless the invocation is invalid or
    /// forbidden.
    fn not_invoked_error(&self, error: &SdkError<InvokeError>) -> Error {
        let result = Causes(error).to_string();
        let is_wrong = error.raw_response().is_some_and(|response| {
            let status = response.status().as_u16();
            (400..500).contains(&status) && status != 429
        });
        if is_wrong {
            self.invocation_error(result)
        } else {
            Error::temporarily_unavailable(self.asking, result)
        }
    }
}

/// The timeout of a request with all attempts. The caller `people` has 29 seconds (`template.yaml`).
const INVOKE_TIMEOUT: Duration = Duration::from_secs(11);

/// The fields of an error envelope (`envelope.rs`) that determine the error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReceivedError {
    error: String,
    request_id: String,
    details: Vec<ValidationError>,
    claim: String,
    version: u64,
    reason: String,
    settlement_id: Option<SettlementId>,
    retry_at: Option<Timestamp>,
    balance_usdc: String,
}

impl ReceivedError {
    /// Returns the error, or `None` if the user can't act on the error. A validation error of the whole request is a
    /// bug of the calling function, so the result is `None`.
    fn to_kind(&self) -> Option<ErrorKind> {
        Some(match self.error.as_str() {
            _ if self.details.iter().any(|problem| !problem.path.is_empty()) => {
                ErrorKind::InvalidRequest(self.details.clone())
            }
            "invalid_internal_token" => ErrorKind::InvalidInternalToken,
            "not_entitled" => ErrorKind::NotEntitled {
                claim: self.claim.clone(),
            },
            "not_found" => ErrorKind::NotFound,
            "second_operator_required" => ErrorKind::SecondOperatorRequired,
            "too_many_freezes" => ErrorKind::TooManyFreezes { limit: Freezes::MAX },
            "version_conflict" => ErrorKind::VersionConflict { version: self.version },
            "idempotency_key_reused_for_different_request" => ErrorKind::IdempotencyKeyReused {
                settlement: self.settlement_id,
            },
            "payout_refused" => ErrorKind::PayoutRefused(self.to_withdrawal_rejection()?),
            _ => return None,
        })
    }

    fn to_withdrawal_rejection(&self) -> Option<WithdrawalRejection> {
        Some(match self.reason.as_str() {
            "not_set_up" => WithdrawalRejection::NotSetUp,
            "no_payout_address" => WithdrawalRejection::NoAddress,
            "payout_address_waits" => WithdrawalRejection::AddressWaits {
                good_from: self.retry_at?,
            },
            "payout_open" => WithdrawalRejection::PayoutOpen {
                settlement: self.settlement_id?,
                until: self.retry_at?,
            },
            "insufficient_balance" => WithdrawalRejection::InsufficientBalance {
                balance: Amount::from_usdc(&self.balance_usdc)?,
            },
            reason => WithdrawalRejection::Frozen(Freeze::from_reason(reason)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Boot, Clock, Env, Failure, RequestedWallet};
    use axum::response::IntoResponse as _;
    use http_body_util::BodyExt as _;
    use purser_domain::AgentId;
    use purser_testkit::Lambda;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};
    use uuid::Uuid;

    fn function(endpoint: &str, name: &str) -> InvokedFunction {
        let env = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
            ("LAMBDA_ENDPOINT", endpoint),
        ];
        let aws = Boot::new(env.into_iter().collect::<Env>(), Clock::system()).aws;
        InvokedFunction::new(aws, name.to_owned(), "calling `payments`")
    }

    async fn asked(function: &InvokedFunction) -> Result<AttestedWallet> {
        let caller = CallerIds {
            request_id: "r".to_owned(),
            trace_id: "t".to_owned(),
        };
        let wallet = AttestWallet {
            agent_id: AgentId::from_uuid(Uuid::nil()),
            wallet: RequestedWallet::Seed { index: 3 },
        };
        function.attest_wallet(caller, wallet).await
    }

    #[tokio::test]
    async fn only_transient_invocation_errors_are_retryable() {
        let attested = json!({"address": "0xa", "signature": "0xb", "public_key": null});
        let response = |status: u16, body: Value| {
            json!({
                "statusCode": status, "headers": {}, "cookies": [], "body": body.to_string(), "isBase64Encoded": false,
            })
        };
        let mut more = response(200, attested.clone());
        more["more"] = json!(1);
        // Each row: the response, and whether a retry may succeed.
        let rows = [
            (response(200, attested), None),
            (response(200, json!({"address": "0xa"})), Some(false)),
            (more, Some(false)),
            (json!({"status": 200, "body": {}}), Some(false)),
            (response(400, json!({"error": "invalid_request"})), Some(false)),
            (
                response(500, json!({"error": "internal_error", "request_id": "q"})),
                Some(false),
            ),
            (response(503, json!({"error": "temporarily_unavailable"})), Some(true)),
            (Value::Null, Some(false)),
        ];
        let lambda = Lambda::default();
        let said = Arc::new(Mutex::new(String::new()));
        let answer = Arc::clone(&said);
        lambda.set("payments", move |_| std::future::ready(answer.lock().unwrap().clone()));
        lambda.set("broken", |_| async { panic!("a bug") });
        let endpoint = lambda.serve().await;
        let payments = function(&endpoint, "payments");
        for (answer, passes) in rows {
            *said.lock().unwrap() = answer.to_string();
            let told = asked(&payments).await;
            assert_eq!(told.as_ref().err().map(may_pass), passes, "{answer}: {told:?}");
        }
        assert!(may_pass(&asked(&function(&endpoint, "broken")).await.unwrap_err()));
        assert!(!may_pass(&asked(&function(&endpoint, "unknown")).await.unwrap_err()));
        assert!(may_pass(
            &asked(&function("http://127.0.0.1:1", "payments")).await.unwrap_err()
        ));
    }

    #[tokio::test]
    async fn known_errors_round_trip_between_functions() {
        let settlement = SettlementId::from_uuid(Uuid::max());
        let at = Timestamp::from_micros(1_795_223_340_000_001).unwrap();
        let problems = || {
            ["/address", "/reason"]
                .map(|path| ValidationError::at_path(path, "must be so"))
                .to_vec()
        };
        let rejections = [
            WithdrawalRejection::NotSetUp,
            WithdrawalRejection::Frozen(Freeze::Agent),
            WithdrawalRejection::Frozen(Freeze::Owner),
            WithdrawalRejection::Frozen(Freeze::Deployment),
            WithdrawalRejection::NoAddress,
            WithdrawalRejection::AddressWaits { good_from: at },
            WithdrawalRejection::PayoutOpen { settlement, until: at },
            WithdrawalRejection::InsufficientBalance {
                balance: Amount::from_units(7).unwrap(),
            },
        ];
        let kinds = rejections.map(ErrorKind::PayoutRefused).into_iter().chain([
            ErrorKind::NotFound,
            ErrorKind::InvalidInternalToken,
            ErrorKind::NotEntitled { claim: "x".to_owned() },
            ErrorKind::SecondOperatorRequired,
            ErrorKind::TooManyFreezes { limit: Freezes::MAX },
            ErrorKind::VersionConflict { version: 7 },
            ErrorKind::IdempotencyKeyReused { settlement: None },
            ErrorKind::IdempotencyKeyReused {
                settlement: Some(settlement),
            },
            ErrorKind::InvalidRequest(problems()),
        ]);
        for kind in kinds {
            let expected = format!("{kind:?}");
            let body = Failure::from(kind).into_response().into_body().collect().await.unwrap();
            let received: ReceivedError = serde_json::from_slice(&body.to_bytes()).unwrap();
            assert_eq!(format!("{:?}", received.to_kind().unwrap()), expected);
        }
        for kind in [
            ErrorKind::Internal,
            ErrorKind::TemporarilyUnavailable { retry_after: 1 },
            ErrorKind::InvalidRequest(vec![ValidationError::at_path("", "must be a known request")]),
        ] {
            let body = Failure::from(kind).into_response().into_body().collect().await.unwrap();
            let received: ReceivedError = serde_json::from_slice(&body.to_bytes()).unwrap();
            assert!(received.to_kind().is_none());
        }
    }

    fn may_pass(error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::TemporarilyUnavailable { .. })
    }
}
