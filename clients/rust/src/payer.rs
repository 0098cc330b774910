//! Pays for one request: call the provider, authorize, call with the payment, complete the settlement.

use crate::answer::{ApprovalStatus, Authorized, Preflight, ReceiptStatus, SignedPayment};
use crate::api::{BodyError, read_bounded, time_left};
use crate::http_client::{USER_AGENT, http_client};
use crate::ordinals::{Ordinal, Ordinals, Place};
use crate::paid_body::wrap_paid_response;
use crate::pay_error::{AlreadyPaid, ProviderAnswer};
use crate::request::Key;
use crate::terms::MAX_TERMS_BYTES;
use crate::{
    ApiError, IdempotencyKey, PayError, PaymentMade, PaymentTerms, PendingApproval, Purser, Request, Slug, TermsError,
    UnpaidCheck, Usdc,
};
use reqwest::header::{HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// The default timeout for a provider's response, including the body.
const PROVIDER_TIMEOUT: Duration = Duration::from_mins(2);
/// The default maximum length of a paid response's body, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of keys for one request. The next key is tried after a payment expired unused.
const MAX_EXPIRED: u32 = 20;
/// The longest wait for an approval after which the first payment requirements are still used. After a longer wait, the
/// payer requests them again, because payment requirements can expire.
const MAX_REQUIREMENTS_AGE: Duration = Duration::from_secs(1);
/// The headers that carry a payment, in x402 version 2 and version 1.
const PAYMENT_HEADERS: [&str; 2] = ["payment-signature", "x-payment"];
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// A client that calls providers and pays them through Purser.
///
/// Clones share the ordinals of identical requests.
#[derive(Clone, Debug)]
pub struct Payer {
    purser: Purser,
    provider: Client,
    run: String,
    ceiling: Usdc,
    max_over_listed: Option<u32>,
    check_first: bool,
    wait_for_approval: Duration,
    max_answer_bytes: usize,
    ordinals: Ordinals,
    deadline: Option<Instant>,
}

/// A provider's response and the payment for the response.
#[derive(Debug)]
pub struct Paid {
    /// The provider's response, with any status except 402. The purchase is complete after the whole body is read.
    pub response: Response,
    /// The payment. `None` if the provider required no payment.
    pub payment: Option<PaymentMade>,
}

impl Paid {
    const fn free(response: Response) -> Self {
        Self {
            response,
            payment: None,
        }
    }
}

/// A provider's response to a call without a payment.
enum UnpaidResult {
    Nothing(Response),
    Payment(PaymentTerms),
}

/// The result of an authorization request. The provider may no longer require a payment.
enum Asking<T> {
    Authorized(T),
    /// The provider no longer requires a payment.
    Unpriced(Response),
}

/// An authorized payment with the idempotency key.
struct Purchase {
    authorized: Authorized,
    key: IdempotencyKey,
    /// The ordinal of the key. `None` if the caller chose the key.
    ordinal: Option<Ordinal>,
    /// The provider's signed offers in the authorized payment requirements.
    offers: Vec<Value>,
}

impl Payer {
    /// Creates a payer. Each call costs at most `ceiling`.
    ///
    /// `run` identifies this run, for example by a job id. A run that is repeated with the same id pays for no call
    /// twice.
    pub fn new(purser: Purser, run: impl Into<String>, ceiling: Usdc) -> Result<Self, PayError> {
        let provider = http_client(USER_AGENT)
            .timeout(PROVIDER_TIMEOUT)
            .build()
            .map_err(PayError::Request)?;
        Ok(Self::with_client(purser, run, ceiling, provider))
    }

    /// Creates a payer with an HTTP client for providers, which must follow no redirects and have a timeout.
    pub fn with_client(purser: Purser, run: impl Into<String>, ceiling: Usdc, provider: Client) -> Self {
        Self {
            purser,
            provider,
            run: run.into(),
            ceiling,
            max_over_listed: None,
            check_first: false,
            wait_for_approval: Duration::ZERO,
            max_answer_bytes: MAX_RESPONSE_BYTES,
            ordinals: Ordinals::default(),
            deadline: None,
        }
    }

    /// Sets the deadline for calls to providers. [`Purser::until`] sets the deadline for calls to Purser.
    ///
    /// If a payment was sent before the deadline, the error contains it, and repeating the request uses the same
    /// payment.
    #[must_use]
    pub fn until(self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Rejects a price that exceeds the catalog's price by more than `percent` percent.
    #[must_use]
    pub fn max_over_listed(self, percent: u32) -> Self {
        Self {
            max_over_listed: Some(percent),
            ..self
        }
    }

    /// Lets Purser check each call before the provider receives it, including calls that cost nothing.
    ///
    /// By default, Purser is involved only if the provider requires a payment.
    #[must_use]
    pub fn check_first(self) -> Self {
        Self {
            check_first: true,
            ..self
        }
    }

    /// Sets how long calls wait for an approval. By default, calls don't wait.
    #[must_use]
    pub fn wait_for_approval(self, max_wait: Duration) -> Self {
        Self {
            wait_for_approval: max_wait,
            ..self
        }
    }

    /// Sets the maximum length of a paid response's body, in bytes. The default is 64 MiB.
    #[must_use]
    pub fn max_answer_bytes(self, max_bytes: usize) -> Self {
        Self {
            max_answer_bytes: max_bytes,
            ..self
        }
    }

    /// Returns the client of Purser that this payer uses.
    pub const fn purser(&self) -> &Purser {
        &self.purser
    }

    /// Sends a GET request, and pays if the provider requires a payment.
    pub async fn get(&self, url: impl Into<String>) -> Result<Paid, PayError> {
        self.send(Request::new(Method::GET, url)).await
    }

    /// Sends a request, and pays if the provider requires a payment.
    pub async fn send(&self, request: Request) -> Result<Paid, PayError> {
        if self.check_first {
            self.check_unpaid(&request).await?;
        }
        match self.call_unpaid(&request).await? {
            UnpaidResult::Nothing(response) => Ok(Paid::free(response)),
            UnpaidResult::Payment(terms) => {
                self.compare_with_listed(&request, &terms).await?;
                self.pay(request, terms).await
            }
        }
    }

    /// Calls the provider without a payment, and returns the decision that Purser would make. Returns `None` for a free
    /// call.
    pub async fn check(&self, request: &Request) -> Result<Option<Preflight>, PayError> {
        let UnpaidResult::Payment(terms) = self.call_unpaid(request).await? else {
            return Ok(None);
        };
        Ok(Some(self.preflight(request, &terms).await?))
    }

    /// Checks whether the agent may make a call without a payment. A rejection is returned as an error.
    pub async fn check_unpaid(&self, request: &Request) -> Result<UnpaidCheck, PayError> {
        Ok(self.purser.check_unpaid(&request.call(self.ceiling)).await?)
    }

    async fn preflight(&self, request: &Request, terms: &PaymentTerms) -> Result<Preflight, PayError> {
        let replay_key = Uuid::new_v4().to_string();
        let call = request.call(self.ceiling);
        Ok(self.purser.check(&call, terms, &replay_key).await?)
    }

    /// Rejects a price that exceeds the catalog's price by more than the configured percentage.
    async fn compare_with_listed(&self, request: &Request, terms: &PaymentTerms) -> Result<(), PayError> {
        let Some(percent) = self.max_over_listed else {
            return Ok(());
        };
        let result = self.preflight(request, terms).await?;
        let requested = result.amount_units;
        match result.listed_amount_units {
            Some(listed) if requested.is_over(listed, percent) => Err(PayError::AboveListed {
                asked: requested,
                listed,
            }),
            _ => Ok(()),
        }
    }

    async fn call_unpaid(&self, request: &Request) -> Result<UnpaidResult, PayError> {
        let response = self.call(request, None).await.map_err(|error| {
            if error.is_builder() {
                PayError::Request(error)
            } else {
                PayError::Provider(error)
            }
        })?;
        if response.status() != StatusCode::PAYMENT_REQUIRED {
            return Ok(UnpaidResult::Nothing(response));
        }
        let headers = response.headers().clone();
        let body = read_bounded(response, MAX_TERMS_BYTES)
            .await
            .map_err(|error| match error {
                BodyError::Broken(error) => PayError::Provider(error),
                BodyError::TooLong => PayError::Terms(TermsError::TooLong),
            })?;
        Ok(UnpaidResult::Payment(PaymentTerms::read(&headers, &body)?))
    }

    async fn pay(&self, request: Request, terms: PaymentTerms) -> Result<Paid, PayError> {
        let Purchase {
            authorized,
            key,
            ordinal,
            offers,
        } = match self.authorize(&request, terms).await? {
            Asking::Authorized(purchase) => purchase,
            Asking::Unpriced(response) => return Ok(Paid::free(response)),
        };
        let place = ordinal.as_ref().map(Ordinal::reserved_place);
        let mut payment = PaymentMade::from_authorized(&self.purser, key, &authorized, offers);
        let Some(signed) = &authorized.payment else {
            let receipt_status = payment.look().await.unwrap_or(authorized.receipt_status);
            return Err(if receipt_status == ReceiptStatus::Confirmed {
                already_paid(payment, receipt_status, place)
            } else {
                PayError::PaymentLapsed {
                    payment: Box::new(payment),
                    receipt_status,
                }
            });
        };
        let is_asked_for = authorized.amount_units <= request.most(self.ceiling);
        let header = payment_header(signed).filter(|_| is_asked_for);
        let header = header.ok_or(ApiError::Unreadable("it is no payment as it was asked for"))?;
        let response = match self.call(&request, Some(header)).await {
            Ok(response) => response,
            Err(source) => {
                let payment = Box::new(payment);
                return Err(PayError::PaymentUnanswered { payment, source });
            }
        };
        payment.prove(response.headers()).await;
        let status = response.status();
        if REDIRECTS.contains(&status.as_u16()) {
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            return Err(PayError::PaymentRedirected {
                payment: Box::new(payment),
                location: location.map(str::to_owned),
                response: Box::new(response),
            });
        }
        if status == StatusCode::PAYMENT_REQUIRED {
            return Err(rejection_error(payment, response, place).await);
        }
        // A failed response does not complete the purchase, so a retry sends the same payment.
        let ordinal = ordinal.filter(|_| status.is_success());
        Ok(Paid {
            response: wrap_paid_response(response, payment.settlement_id, self.max_answer_bytes, ordinal),
            payment: Some(payment),
        })
    }

    /// Authorizes the payment with the request's own key or with a derived key.
    async fn authorize(&self, request: &Request, mut terms: PaymentTerms) -> Result<Asking<Purchase>, PayError> {
        let mut key = request.key.clone();
        for _ in 0..MAX_EXPIRED {
            let (key, ordinal) = match std::mem::replace(&mut key, Key::Derived) {
                Key::Given(key) => (key, None),
                // Another identical request has continued the purchase, so this request gets a new key.
                Key::Held(key, location) => match location.retake() {
                    Some(ordinal) => (key, Some(ordinal)),
                    None => self.next_key(request),
                },
                Key::Derived => self.next_key(request),
            };
            let location = ordinal.as_ref().map(Ordinal::reserved_place);
            let authorized = match self.authorize_under(request, &mut terms, &key, location).await {
                Ok(Asking::Authorized(authorized)) => authorized,
                Ok(Asking::Unpriced(response)) => return Ok(Asking::Unpriced(response)),
                Err(error) => {
                    if let (true, Some(ordinal)) = (error.is_bound_in_vain(), ordinal) {
                        ordinal.mark_bought();
                    }
                    return Err(error);
                }
            };
            let is_over = authorized.payment.is_none() && authorized.receipt_status == ReceiptStatus::Expired;
            match ordinal {
                // This payment expired unused, so authorizing with the next key does not pay twice.
                Some(ordinal) if is_over => ordinal.mark_bought(),
                ordinal => {
                    return Ok(Asking::Authorized(Purchase {
                        authorized,
                        key,
                        ordinal,
                        offers: terms.offers(),
                    }));
                }
            }
        }
        Err(PayError::Purser(ApiError::Unreadable(
            "all payments of this request have expired",
        )))
    }

    /// Derives the key for the lowest free ordinal of this request.
    fn next_key(&self, request: &Request) -> (IdempotencyKey, Option<Ordinal>) {
        let derived = |number| {
            let Request { method, url, body, .. } = request;
            IdempotencyKey::derive(&self.run, method.as_str(), url, body, number)
        };
        let ordinal = self.ordinals.next(derived(0));
        (derived(ordinal.number()), Some(ordinal))
    }

    /// Authorizes the payment with `key`, and waits for an approval if needed. A wait renews `terms`.
    async fn authorize_under(
        &self,
        request: &Request,
        terms: &mut PaymentTerms,
        key: &IdempotencyKey,
        location: Option<Place>,
    ) -> Result<Asking<Authorized>, PayError> {
        let call = request.call(self.ceiling);
        let ask = async |terms: &PaymentTerms, approval| match self.purser.authorize(&call, terms, key, approval).await
        {
            // The response to the approved call was lost. The same key without the approval returns the same payment.
            Err(ApiError::Refused(rejection)) if approval.is_some() && rejection.slug == Slug::IdempotentReplay => {
                self.purser.authorize(&call, terms, key, None).await
            }
            reply => reply,
        };
        let rejection = match ask(terms, request.approval).await {
            Err(ApiError::Refused(rejection)) => rejection,
            reply => return Ok(Asking::Authorized(reply?)),
        };
        let (Slug::ApprovalRequired, Some(approval_id)) = (&rejection.slug, rejection.approval_id) else {
            return Err(ApiError::Refused(rejection).into());
        };
        // An earlier attempt of this run may have waited for the approval already.
        let wait = request.wait_for_approval.unwrap_or(self.wait_for_approval);
        let start = Instant::now();
        let found = PendingApproval::verdict(&self.purser, approval_id, wait).await;
        let approval = match found.map(|approval| approval.status) {
            Ok(ApprovalStatus::Approved) => Some(approval_id),
            // The next authorization with this key returns the payment, or the reason for the rejection.
            Ok(ApprovalStatus::Executed | ApprovalStatus::Rejected | ApprovalStatus::Expired) => None,
            // The agent key may lack the permission to read the approval. The caller still gets the approval's id.
            Ok(ApprovalStatus::Pending | ApprovalStatus::Other(_)) | Err(_) => {
                return Err(PayError::ApprovalRequired(Box::new(PendingApproval {
                    purser: self.purser.clone(),
                    request: request.clone().with_key(key.clone(), location),
                    approval_id,
                    refusal: rejection,
                })));
            }
        };
        if approval.is_some() && start.elapsed() > MAX_REQUIREMENTS_AGE {
            *terms = match self.call_unpaid(request).await? {
                UnpaidResult::Payment(newest) => newest,
                UnpaidResult::Nothing(response) => return Ok(Asking::Unpriced(response)),
            };
        }
        Ok(Asking::Authorized(ask(terms, approval).await?))
    }

    async fn call(&self, request: &Request, payment: Option<(HeaderName, HeaderValue)>) -> reqwest::Result<Response> {
        let mut call = self
            .provider
            .request(request.method.clone(), request.url.as_str())
            .headers(request.headers.clone());
        let is_paid = payment.is_some();
        if let Some((name, value)) = payment {
            call = call.header(name, value);
        }
        if !request.body.is_empty() {
            call = call.body(request.body.clone());
        }
        if let Some(deadline) = self.deadline {
            let left = time_left(deadline);
            // The unpaid call gets a third of the remaining time, so that most of the time is left for the paid call.
            let part = if is_paid {
                left
            } else {
                left.checked_div(3).unwrap_or(left)
            };
            call = call.timeout(part.min(PROVIDER_TIMEOUT));
        }
        call.send().await.map_err(reqwest::Error::without_url)
    }
}

/// Returns the header that carries the payment, or `None` if x402 does not define the header's name.
fn payment_header(signed: &SignedPayment) -> Option<(HeaderName, HeaderValue)> {
    let name: HeaderName = signed.header_name.parse().ok()?;
    let mut value = HeaderValue::from_str(&signed.header_value).ok()?;
    value.set_sensitive(true);
    PAYMENT_HEADERS.contains(&name.as_str()).then_some((name, value))
}

/// Handles a 402 response to the paid call. The provider either rejected this payment or already took it.
async fn rejection_error(mut payment: PaymentMade, response: Response, location: Option<Place>) -> PayError {
    let reply = ProviderAnswer::from_response(response).await;
    let status = payment.look().await.unwrap_or(ReceiptStatus::Authorized);
    if payment.replayed && (status == ReceiptStatus::Confirmed || reply.says_used()) {
        return already_paid(payment, status, location);
    }
    let payment = Box::new(payment);
    PayError::PaymentNotAccepted { payment, answer: reply }
}

fn already_paid(payment: PaymentMade, receipt_status: ReceiptStatus, location: Option<Place>) -> PayError {
    PayError::AlreadyPaid(Box::new(AlreadyPaid {
        payment,
        receipt_status,
        place: location,
    }))
}
