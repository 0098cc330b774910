//! The tools `call_service` and `check_payment`, which call an operation of the catalog.
//!
//! Invariant: a provider is called only after Purser has allowed the call for the agent's key, in the same tool call.
//! An operation without a price is never paid.

use crate::address::{FilledRequest, fill_address};
use crate::answers::{Called, CheckAnswer, Checked, PaymentAnswer, ReadOn};
use crate::arguments::{CallService, CheckPayment, MaxBytes, ReadResponse};
use crate::call_limit::CallLimit;
use crate::failure::Failure;
use crate::kept::ResponseStore;
use crate::providers::Providers;
use crate::read::read_service;
use crate::response::{read_body, read_next_part};
use crate::text::{LONG, NOTICE, SHORT, clean_data};
use purser_client::{
    ApiError, Call, IdempotencyKey, Operation, Paid, PayError, Payer, PaymentMade, Purser, ReceiptState, Refusal,
    Request, UnpaidCheck, Usdc,
};
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
use rmcp::model::ContentBlock;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

/// The time that is reserved for verifying the payment after the provider's response.
const FOR_THE_RECEIPT: Duration = Duration::from_secs(5);
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.8");

struct Meant<'a> {
    service: &'a str,
    operation: &'a str,
    parameters: &'a Map<String, Value>,
    target_url: Option<&'a str>,
    ceiling: Usdc,
}

/// The limits of a tool call.
pub(crate) struct Limits<'a> {
    /// The maximum duration of the tool call.
    pub(crate) longest: Duration,
    /// The limit of concurrent calls. `None` if concurrent calls are not limited.
    pub(crate) calls: Option<&'a CallLimit>,
    /// Stores the rest of long responses.
    pub(crate) responses: &'a dyn ResponseStore,
}

/// A tool's own JSON, and the content block with a response body.
pub(crate) type WithBody<T> = (T, Option<ContentBlock>);

impl Limits<'_> {
    /// Runs a call to a provider. The call counts as open until it ends.
    async fn run_within_limits<T>(
        &self,
        host: &str,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match self.calls {
            Some(calls) => calls.run_within_limit(Some(host), call).await,
            None => call.await,
        }
    }
}

pub(crate) async fn check_payment(
    purser: &Purser,
    providers: &Providers,
    limits: Limits<'_>,
    arguments: CheckPayment,
) -> Result<Checked, Failure> {
    let answer_by = deadline_after(limits.longest);
    let purser = purser.until(answer_by);
    let expected = Meant {
        service: &arguments.service,
        operation: &arguments.operation,
        parameters: &arguments.parameters.0,
        target_url: arguments.target_url.as_deref(),
        ceiling: arguments.max_usd.0,
    };
    let planned = expected.plan(&purser, providers).await?;
    match planned.check_unpaid(&purser).await {
        Ok(_) => {}
        // This tool returns decisions, so a rejection with checks is a result and not an error.
        Err(ApiError::Refused(rejection)) if !rejection.checks.is_empty() => return Ok(planned.block(&rejection)),
        Err(error) => return Err(Failure::from(error).before_payment()),
    }
    let Ready::Paid(request) = planned.ready else {
        return Ok(Checked::for_free_operation());
    };
    let payer = Payer::with_client(purser, "", expected.ceiling, providers.client.clone()).until(answer_by);
    let key = fresh_key()?;
    let check = async {
        let result = payer.check(&request).await;
        result.map_err(|error| Failure::from_pay_error(&error, &key, limits.longest))
    };
    let result = limits.run_within_limits(&planned.host, check).await?;
    Ok(Checked {
        payment_required: result.is_some(),
        would_pay: result.as_ref().is_some_and(|result| result.would_authorize),
        result: result.as_ref().map(|result| clean_data(&result.result, SHORT)),
        reason: result.as_ref().map(|result| clean_data(&result.reason, LONG)),
        cost_usd: result
            .as_ref()
            .map_or(Usdc::from_units(0), |result| result.amount_units)
            .to_string(),
        left_today_usd: result
            .as_ref()
            .map(|result| result.spend.remaining_today_units.to_string()),
        checks: result
            .iter()
            .flat_map(|result| &result.checks)
            .map(CheckAnswer::from)
            .collect(),
    })
}

pub(crate) async fn call_service(
    purser: &Purser,
    providers: &Providers,
    limits: Limits<'_>,
    arguments: CallService,
) -> Result<WithBody<Called>, Failure> {
    let over = deadline_after(limits.longest);
    let answer_by = over.checked_sub(FOR_THE_RECEIPT).unwrap_or(over);
    let expected = Meant {
        service: &arguments.service,
        operation: &arguments.operation,
        parameters: &arguments.parameters.0,
        target_url: arguments.target_url.as_deref(),
        ceiling: arguments.max_usd.0,
    };
    let key = match arguments.idempotency_key {
        Some(key) => key.0,
        None if arguments.approval_id.is_some() => {
            return Err(Failure::invalid_arguments(
                "an `approval_id` goes with the `idempotency_key` that the refusal told",
            ));
        }
        None => fresh_key()?,
    };
    let keyed = |failure: Failure| failure.with_key(&key);
    let planned = expected
        .plan(&purser.until(answer_by), providers)
        .await
        .map_err(keyed)?;
    let allowed = planned.check_unpaid(&purser.until(answer_by)).await;
    let agent_id = allowed
        .map_err(|error| keyed(Failure::from(error).before_payment()))?
        .agent_id;
    let PlannedCall { host, ready, .. } = planned;
    let call = async {
        let request = match ready {
            Ready::Paid(request) => request.key(key.clone()),
            Ready::Free(request) => {
                let request = request.timeout(time_left(answer_by));
                return call_free(request, limits.longest, &key, arguments.max_bytes).await;
            }
        };
        let request = match arguments.approval_id {
            Some(approval) => request.with_approval(approval.0),
            None => request,
        };
        let provider = providers.client.clone();
        let payer = Payer::with_client(purser.until(answer_by), "", expected.ceiling, provider).until(over);
        let failed = |error: PayError| Failure::from_pay_error(&error, &key, limits.longest);
        let Paid { response, payment } = payer.send(request).await.map_err(failed)?;
        let purser = purser.until(over);
        let (received, left_today_usd) = tokio::join!(
            read_body(response),
            remaining_today(&purser, &agent_id, expected.service)
        );
        let store = payment.is_some().then_some(limits.responses);
        let (reply, body) = received.into_result(arguments.max_bytes, store).await;
        let cost = payment.as_ref().map_or(Usdc::from_units(0), |payment| payment.amount);
        let called = Called {
            answer: reply,
            cost_usd: cost.to_string(),
            payment: payment.map(payment_result),
            left_today_usd,
            idempotency_key: key.to_string(),
            notice: NOTICE,
        };
        Ok((called, body))
    };
    limits.run_within_limits(&host, call).await.map_err(keyed)
}

/// Calls an operation without a price in the catalog. Returns an error if the provider requires a payment.
async fn call_free(
    request: RequestBuilder,
    timeout: Duration,
    key: &IdempotencyKey,
    max_bytes: Option<MaxBytes>,
) -> Result<WithBody<Called>, Failure> {
    let response = request.send().await;
    let response = response.map_err(|error| Failure::from_pay_error(&PayError::Provider(error), key, timeout))?;
    if response.status() == StatusCode::PAYMENT_REQUIRED {
        return Err(Failure::new(
            "payment_not_listed",
            "the provider asks for a payment, and the catalog lists this operation as free; nothing was paid",
            "Call an operation that get_service names as payable.",
        )
        .before_payment());
    }
    let (reply, body) = read_body(response).await.into_result(max_bytes, None).await;
    let called = Called {
        answer: reply,
        cost_usd: Usdc::from_units(0).to_string(),
        payment: None,
        left_today_usd: None,
        idempotency_key: key.to_string(),
        notice: NOTICE,
    };
    Ok((called, body))
}

/// Returns the next part of a stored response to a paid call. Calls no provider and pays nothing.
pub(crate) async fn read_response(limits: Limits<'_>, request: ReadResponse) -> Result<WithBody<ReadOn>, Failure> {
    let (text, rest) = read_next_part(limits.responses, request.cursor, request.max_bytes).await?;
    Ok((ReadOn { rest, notice: NOTICE }, Some(ContentBlock::text(text))))
}

/// A call to an operation of the catalog, before Purser has allowed it.
struct PlannedCall<'a> {
    service: String,
    operation: Operation,
    url: Url,
    /// The provider's host and port. Open calls are counted per host and port.
    host: String,
    target_url: Option<&'a str>,
    ceiling: Usdc,
    ready: Ready,
}

/// A request to the operation's own URL.
enum Ready {
    /// The operation has a price in the catalog.
    Paid(Request),
    /// The operation has no price in the catalog.
    Free(RequestBuilder),
}

impl PlannedCall<'_> {
    /// Checks with Purser whether the agent may make this call. Its payment is evaluated later.
    async fn check_unpaid(&self, purser: &Purser) -> Result<UnpaidCheck, ApiError> {
        let call = Call {
            method: &self.operation.method,
            url: self.url.as_str(),
            body_hash: None,
            target_url: self.target_url,
            service_id: Some(&self.service),
            operation_id: Some(&self.operation.operation_id),
            ceiling: self.ceiling,
        };
        purser.check_unpaid(&call).await
    }

    fn block(&self, rejection: &Refusal) -> Checked {
        let payment = self.operation.payment.as_ref();
        let price = payment.map_or(Usdc::from_units(0), |payment| payment.amount_units);
        Checked {
            payment_required: payment.is_some(),
            would_pay: false,
            result: Some("block".to_owned()),
            reason: rejection.reason.as_ref().map(|reason| clean_data(reason, LONG)),
            cost_usd: price.to_string(),
            checks: rejection.checks.iter().map(CheckAnswer::from).collect(),
            left_today_usd: None,
        }
    }
}

impl<'a> Meant<'a> {
    /// Finds the operation in the catalog and builds the request.
    async fn plan(&self, purser: &Purser, providers: &Providers) -> Result<PlannedCall<'a>, Failure> {
        let service = read_service(purser, self.service)
            .await
            .map_err(Failure::before_payment)?;
        let operation = service
            .operations
            .into_iter()
            .find(|operation| operation.operation_id == self.operation)
            .ok_or_else(|| {
                Failure::new(
                    "operation_not_found",
                    "the service has no such operation",
                    "Call one that get_service names.",
                )
            });
        let planned = operation.and_then(|operation| self.plan_operation(operation, service.slug, providers));
        planned.map_err(Failure::before_payment)
    }

    fn plan_operation(
        &self,
        operation: Operation,
        service: String,
        providers: &Providers,
    ) -> Result<PlannedCall<'a>, Failure> {
        let FilledRequest { url, mut headers, body } =
            fill_address(&operation, self.parameters).map_err(Failure::invalid_arguments)?;
        if !providers.may_call(&url) {
            return Err(Failure::new(
                "provider_not_callable",
                "the operation's address is not on the public internet",
                "Call another service.",
            ));
        }
        let target_url = self.target_url.filter(|target| !target.is_empty());
        // Otherwise, the policy could evaluate a different page than the operation fetches.
        let is_parameter = |target: &str| self.parameters.values().any(|value| value == target);
        if target_url.is_some_and(|target| !is_parameter(target)) {
            return Err(Failure::invalid_arguments(
                "`target_url` must be the value of one of `parameters`",
            ));
        }
        let method = operation.method.parse::<Method>();
        let method = method.map_err(|_| Failure::invalid_arguments("the operation's method can't be called"))?;
        headers.entry(ACCEPT).or_insert(ACCEPTED);
        let ready = if operation.payment.is_none() {
            let request = providers.client.request(method, url.clone()).headers(headers);
            Ready::Free(request.body(body.unwrap_or_default()))
        } else {
            let mut request = Request::new(method, url.as_str())
                .operation(&service, &operation.operation_id)
                .ceiling(self.ceiling);
            for (name, value) in &headers {
                request = request.header(name.clone(), value.clone());
            }
            if let Some(body) = body {
                request = request.body(body);
            }
            if let Some(target) = target_url {
                request = request.target(target);
            }
            Ready::Paid(request)
        };
        Ok(PlannedCall {
            host: format!(
                "{}:{}",
                url.host_str().unwrap_or_default(),
                url.port_or_known_default().unwrap_or_default()
            ),
            service,
            operation,
            url,
            target_url,
            ceiling: self.ceiling,
            ready,
        })
    }
}

fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

pub(crate) fn deadline_after(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now)
}

fn fresh_key() -> Result<IdempotencyKey, Failure> {
    let text = format!("mcp-{}", Uuid::new_v4());
    IdempotencyKey::from_text(&text).map_err(|error| Failure::invalid_arguments(error.to_string()))
}

/// Returns the remainder of the service's cap per rolling 24 hours, or `None` if Purser does not respond in time.
async fn remaining_today(purser: &Purser, agent_id: &str, service: &str) -> Option<String> {
    let policy = purser.policy(agent_id, service).await.ok()?;
    Some(policy.spend.remaining_today_units.to_string())
}

fn payment_result(payment: PaymentMade) -> PaymentAnswer {
    let (receipt_status, tx_hash) = match payment.receipt {
        ReceiptState::Confirmed(settlement) => ("confirmed", settlement.tx_hash),
        _ => ("authorized", None),
    };
    PaymentAnswer {
        settlement_id: payment.settlement_id.to_string(),
        transaction_id: payment.transaction_id.to_string(),
        pay_to: clean_data(&payment.pay_to, SHORT),
        receipt_status: receipt_status.to_owned(),
        tx_hash: tx_hash.map(|hash| clean_data(&hash, SHORT)),
    }
}
