//! The client for direct requests to the functions `payments` and `internal`. `direct.rs` has the receiving side.

use crate::{
    AttestWallet, AttestedWallet, BrowserAct, CallerIds, NewWithdrawalAddress, OperatorResponse, PaymentsRequest,
    RequestedWithdrawal, WithdrawalOwner, WithdrawalResponse,
    lambda::direct::{DirectAnswer, DirectEvent},
};
use aws_sdk_lambda::{
    Client,
    config::{Builder, retry::RetryConfig, timeout::TimeoutConfig},
    error::SdkError,
    operation::invoke::InvokeError,
    primitives::Blob,
};
use aws_types::SdkConfig;
use purser_domain::{Causes, Error, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::OnceLock, time::Duration};

/// A client of the function `payments`. The caller's role needs the IAM permission to invoke `payments`.
#[derive(Debug)]
pub struct PaymentsFunction(InvokedFunction);

/// A client of the function `internal`. The caller's role needs the IAM permission to invoke `internal`.
#[derive(Debug)]
pub struct InternalFunction(InvokedFunction);

#[derive(Debug)]
struct InvokedFunction {
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
enum Attempts {
    /// Two attempts of five seconds each, for a request that is safe to repeat. The first may meet a cold start.
    Two,
    /// One attempt, for a request that takes long or must not be repeated.
    One,
}

impl PaymentsFunction {
    /// Creates a client for the function with this name or ARN. Does not connect.
    pub const fn new(aws: SdkConfig, name: String) -> Self {
        Self(InvokedFunction::new(aws, name, "calling `payments`"))
    }

    /// Requests an agent's wallet address, with an attestation that the caller must verify.
    pub async fn attest_wallet(&self, caller: CallerIds, request: AttestWallet) -> Result<AttestedWallet> {
        self.call_payments(caller, PaymentsRequest::AttestWallet(request), Attempts::Two)
            .await
    }

    /// Sets the address to which an agent's money may be withdrawn.
    pub async fn set_withdrawal_address(
        &self,
        caller: CallerIds,
        request: NewWithdrawalAddress,
    ) -> Result<WithdrawalResponse> {
        self.call_payments(caller, PaymentsRequest::NamePayoutAddress(request), Attempts::Two)
            .await
    }

    /// Removes an agent's withdrawal address. Makes up to two attempts, because the removal is safe to repeat.
    pub async fn remove_withdrawal_address(
        &self,
        caller: CallerIds,
        owner: WithdrawalOwner,
    ) -> Result<WithdrawalResponse> {
        self.call_payments(caller, PaymentsRequest::RemovePayoutAddress(owner), Attempts::Two)
            .await
    }

    /// Withdraws money to the withdrawal address. Waits for the facilitator, which takes longer than other requests.
    pub async fn withdraw_to_owner(
        &self,
        caller: CallerIds,
        request: RequestedWithdrawal,
    ) -> Result<WithdrawalResponse> {
        self.call_payments(caller, PaymentsRequest::PayOut(request), Attempts::One)
            .await
    }

    async fn call_payments<T: DeserializeOwned>(
        &self,
        caller: CallerIds,
        request: PaymentsRequest,
        attempts: Attempts,
    ) -> Result<T> {
        self.0.invoke(caller, request, attempts).await
    }
}

impl InternalFunction {
    /// Creates a client for the function with this name or ARN. Does not connect.
    pub const fn new(aws: SdkConfig, name: String) -> Self {
        Self(InvokedFunction::new(aws, name, "calling `internal`"))
    }

    /// Requests an operator action from a browser. Makes one attempt, because a second would see the changes of the
    /// first.
    pub async fn invoke_operator_action(&self, caller: CallerIds, action: BrowserAct) -> Result<OperatorResponse> {
        self.0.invoke(caller, action, Attempts::One).await
    }
}

impl InvokedFunction {
    const fn new(aws: SdkConfig, name: String, operation: &'static str) -> Self {
        let client = OnceLock::new();
        Self {
            aws,
            client,
            name,
            asking: operation,
        }
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

    /// Invokes the function. Returns `temporarily_unavailable` for a temporary failure, and an internal error
    /// for any other failure or for a response of an unexpected shape.
    async fn invoke<T: DeserializeOwned>(
        &self,
        caller: CallerIds,
        request: impl Serialize,
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
        let response: DirectAnswer = serde_json::from_slice(&payload).map_err(unexpected)?;
        if response.status == 200 {
            return serde_json::from_str(response.body.get()).map_err(unexpected);
        }
        let Refusal { error, request_id } = serde_json::from_str(response.body.get()).unwrap_or_default();
        let result = format!(
            "the function returned {} {error}, request {request_id}",
            response.status
        );
        Err(match response.status {
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

/// The logged fields of an error envelope.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: String,
    request_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Boot, Clock, Env, RequestedWallet};
    use purser_domain::{AgentId, ErrorKind};
    use purser_testkit::Lambda;
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};
    use uuid::Uuid;

    fn function(endpoint: &str, name: &str) -> PaymentsFunction {
        let env = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
            ("LAMBDA_ENDPOINT", endpoint),
        ];
        let aws = Boot::new(env.into_iter().collect::<Env>(), Clock::system()).aws;
        PaymentsFunction::new(aws, name.to_owned())
    }

    async fn asked(function: &PaymentsFunction) -> Result<AttestedWallet> {
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
        // Each row: the response, and whether a retry may succeed.
        let rows = [
            (json!({"status": 200, "body": attested}), None),
            (json!({"status": 200, "body": {"address": "0xa"}}), Some(false)),
            (json!({"status": 200, "body": attested, "more": 1}), Some(false)),
            (json!({"statusCode": 200, "body": ""}), Some(false)),
            (
                json!({"status": 400, "body": {"error": "invalid_request"}}),
                Some(false),
            ),
            (
                json!({"status": 500, "body": {"error": "internal_error", "request_id": "q"}}),
                Some(false),
            ),
            (
                json!({"status": 503, "body": {"error": "temporarily_unavailable"}}),
                Some(true),
            ),
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

    fn may_pass(error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::TemporarilyUnavailable { .. })
    }
}
