//! The tools `call_service` and `check_payment`, which call an operation of the catalog.
//!
//! Invariant: a provider is called only after Purser has accepted the agent's key in the same call. Without an agent,
//! nobody can make this program send a request. An operation that the catalog lists without a price is called without a
//! payment, and never paid.

use crate::address::{Filled, filled};
use crate::answers::{Called, CheckAnswer, Checked, PaymentAnswer, ProviderAnswer};
use crate::arguments::{CallService, CheckPayment};
use crate::failure::Failure;
use crate::text::{LONG, NOTICE, SHORT, body, data};
use crate::tools::Providers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use purser_client::{
    ApiError, IdempotencyKey, Operation, Paid, PayError, Payer, PaymentMade, Purser, ReceiptState, Request, Usdc,
};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The longest body of a provider's answer that is returned, in bytes. With JSON escapes it fits the limits of Lambda
/// and API Gateway, and a model's context.
const MAX_ANSWER_BYTES: usize = 128 * 1024;
/// The time that is reserved for the receipt after the provider's answer.
const FOR_THE_RECEIPT: Duration = Duration::from_secs(5);
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A call that the agent asked for.
struct Meant<'a> {
    service: &'a str,
    operation: &'a str,
    parameters: &'a Map<String, Value>,
    target_url: Option<&'a str>,
    ceiling: Usdc,
}

pub(crate) async fn check_payment(
    purser: &Purser,
    providers: &Providers,
    longest: Duration,
    asked: CheckPayment,
) -> Result<Checked, Failure> {
    let answer_by = after(longest);
    let purser = purser.until(answer_by);
    let meant = Meant {
        service: &asked.service,
        operation: &asked.operation,
        parameters: &asked.parameters,
        target_url: asked.target_url.as_deref(),
        ceiling: asked.max_usd.0,
    };
    let (_, ready) = meant.ready(&purser, providers).await?;
    let Ready::Paid(request) = ready else {
        return Ok(Checked::of_free_operation());
    };
    let payer = Payer::with_client(purser, "", meant.ceiling, providers.client.clone()).until(answer_by);
    let key = fresh_key()?;
    let told = payer.check(&request).await;
    let told = told.map_err(|error| Failure::of_payment(&error, &key, longest))?;
    Ok(Checked {
        payment_required: told.is_some(),
        would_pay: told.as_ref().is_some_and(|told| told.would_authorize),
        result: told.as_ref().map(|told| data(&told.result, SHORT)),
        reason: told.as_ref().map(|told| data(&told.reason, LONG)),
        cost_usd: told
            .as_ref()
            .map_or(Usdc::from_units(0), |told| told.amount_units)
            .to_string(),
        left_today_usd: told.as_ref().map(|told| told.spend.remaining_today_units.to_string()),
        checks: told
            .iter()
            .flat_map(|told| &told.checks)
            .map(CheckAnswer::from)
            .collect(),
    })
}

pub(crate) async fn call_service(
    purser: &Purser,
    providers: &Providers,
    longest: Duration,
    asked: CallService,
) -> Result<Called, Failure> {
    let over = after(longest);
    let answer_by = over.checked_sub(FOR_THE_RECEIPT).unwrap_or(over);
    let meant = Meant {
        service: &asked.service,
        operation: &asked.operation,
        parameters: &asked.parameters,
        target_url: asked.target_url.as_deref(),
        ceiling: asked.max_usd.0,
    };
    let key = match asked.idempotency_key {
        Some(key) => key.0,
        None if asked.approval_id.is_some() => {
            return Err(Failure::arguments(
                "an `approval_id` goes with the `idempotency_key` that the refusal told",
            ));
        }
        None => fresh_key()?,
    };
    let (agent_id, ready) = meant.ready(&purser.until(answer_by), providers).await?;
    let request = match ready {
        Ready::Paid(request) => request.key(key.clone()),
        Ready::Free(request) => return called_free(request.timeout(time_left(answer_by)), longest, &key).await,
    };
    let request = match asked.approval_id {
        Some(approval) => request.approved(approval.0),
        None => request,
    };
    let provider = providers.client.clone();
    let payer = Payer::with_client(purser.until(answer_by), "", meant.ceiling, provider).until(over);
    let failed = |error: PayError| Failure::of_payment(&error, &key, longest);
    let Paid { response, payment } = payer.send(request).await.map_err(failed)?;
    let purser = purser.until(over);
    let (answer, left_today_usd) = tokio::join!(read(response), left_today(&purser, &agent_id, meant.service));
    let cost = payment.as_ref().map_or(Usdc::from_units(0), |payment| payment.amount);
    Ok(Called {
        answer,
        cost_usd: cost.to_string(),
        payment: payment.map(paid),
        left_today_usd,
        idempotency_key: key.to_string(),
        notice: NOTICE,
    })
}

/// Calls an operation that the catalog lists without a price. If the provider asks for a payment, none is made.
async fn called_free(request: RequestBuilder, longest: Duration, key: &IdempotencyKey) -> Result<Called, Failure> {
    let response = request.send().await;
    let response = response.map_err(|error| Failure::of_payment(&PayError::Provider(error), key, longest))?;
    if response.status() == StatusCode::PAYMENT_REQUIRED {
        return Err(Failure::new(
            "payment_not_listed",
            "the provider asks for a payment, and the catalog lists this operation as free; nothing was paid",
            "Call an operation that get_service names as payable.",
        )
        .before_payment());
    }
    Ok(Called {
        answer: read(response).await,
        cost_usd: Usdc::from_units(0).to_string(),
        payment: None,
        left_today_usd: None,
        idempotency_key: key.to_string(),
        notice: NOTICE,
    })
}

/// A request that may be sent: the key was accepted, and the operation is in the catalog.
enum Ready {
    /// An operation with a price.
    Paid(Request),
    /// An operation without a price.
    Free(RequestBuilder),
}

impl Meant<'_> {
    /// Verifies the key and finds the operation. Returns the agent's id and the request to the operation's own URL.
    async fn ready(&self, purser: &Purser, providers: &Providers) -> Result<(String, Ready), Failure> {
        let (agent, service) = tokio::join!(purser.agent(), purser.service(self.service));
        let unpaid = |error: ApiError| Failure::from(error).before_payment();
        let (agent, service) = (agent.map_err(unpaid)?, service.map_err(unpaid)?);
        let operation = service
            .operations
            .iter()
            .find(|operation| operation.operation_id == self.operation)
            .ok_or_else(|| {
                Failure::new(
                    "operation_not_found",
                    "the service has no such operation",
                    "Call one that get_service names.",
                )
            });
        let ready = operation.and_then(|operation| self.of(operation, &service.slug, providers));
        Ok((agent.agent_id, ready.map_err(Failure::before_payment)?))
    }

    fn of(&self, operation: &Operation, service: &str, providers: &Providers) -> Result<Ready, Failure> {
        let Filled { url, body } = filled(operation, self.parameters).map_err(Failure::arguments)?;
        if !providers.may_call(&url) {
            return Err(Failure::new(
                "provider_not_callable",
                "the operation's address is not on the public internet",
                "Call another service.",
            ));
        }
        // Otherwise, the policy could judge one page while the operation fetches another.
        let is_parameter = |target: &str| self.parameters.values().any(|value| value == target);
        if self.target_url.is_some_and(|target| !is_parameter(target)) {
            return Err(Failure::arguments(
                "`target_url` must be the value of one of `parameters`",
            ));
        }
        let method = operation.method.parse::<Method>();
        let method = method.map_err(|_| Failure::arguments("the operation's method can't be called"))?;
        let mut headers = HeaderMap::from_iter([(ACCEPT, ACCEPTED)]);
        if body.is_some() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        if operation.payment.is_none() {
            let request = providers.client.request(method, url).headers(headers);
            return Ok(Ready::Free(request.body(body.unwrap_or_default())));
        }
        let mut request = Request::new(method, url.as_str())
            .operation(service, &operation.operation_id)
            .ceiling(self.ceiling);
        for (name, value) in &headers {
            request = request.header(name.clone(), value.clone());
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        if let Some(target) = self.target_url {
            request = request.target(target);
        }
        Ok(Ready::Paid(request))
    }
}

fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

pub(crate) fn after(longest: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(longest).unwrap_or(now)
}

/// Generates a key for a purchase without one from the agent.
fn fresh_key() -> Result<IdempotencyKey, Failure> {
    let text = format!("mcp-{}", Uuid::new_v4());
    IdempotencyKey::from_text(&text).map_err(|error| Failure::arguments(error.to_string()))
}

/// Returns the remainder of the service's cap, if Purser answers in time.
async fn left_today(purser: &Purser, agent_id: &str, service: &str) -> Option<String> {
    let policy = purser.policy(agent_id, service).await.ok()?;
    Some(policy.spend.remaining_today_units.to_string())
}

fn paid(payment: PaymentMade) -> PaymentAnswer {
    let (receipt_status, tx_hash) = match payment.receipt {
        ReceiptState::Confirmed(settlement) => ("confirmed", settlement.tx_hash),
        _ => ("authorized", None),
    };
    PaymentAnswer {
        settlement_id: payment.settlement_id.to_string(),
        transaction_id: payment.transaction_id.to_string(),
        pay_to: data(&payment.pay_to, SHORT),
        receipt_status: receipt_status.to_owned(),
        tx_hash: tx_hash.map(|hash| data(&hash, SHORT)),
    }
}

/// Reads the answer, as far as the limits allow. It was paid for, so a partial answer is returned too.
async fn read(mut response: Response) -> ProviderAnswer {
    let status = response.status().as_u16();
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let content_type = content_type.map(|kind| data(kind, SHORT));
    let mut bytes = Vec::new();
    let cut = loop {
        match response.chunk().await {
            Ok(None) => break None,
            Ok(Some(chunk)) => {
                let room = MAX_ANSWER_BYTES.saturating_sub(bytes.len());
                bytes.extend(chunk.iter().take(room));
                if chunk.len() > room {
                    break Some("too_long");
                }
            }
            Err(error) if error.is_timeout() => break Some("too_slow"),
            Err(_) => break Some("broken"),
        }
    };
    // A character that was cut in the middle is dropped.
    let whole = match std::str::from_utf8(&bytes) {
        Ok(text) => Some(text),
        Err(error) if cut.is_some() && error.error_len().is_none() => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(valid).ok()
        }
        Err(_) => None,
    };
    ProviderAnswer {
        status,
        content_type,
        base64: whole.is_none().then(|| STANDARD.encode(&bytes)),
        text: whole.map(body),
        cut,
    }
}
