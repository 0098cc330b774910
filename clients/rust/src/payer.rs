//! The whole flow for one request: call, authorize, call again with the payment, complete.

use crate::answer::{ApprovalStatus, Authorized, Preflight, ReceiptStatus, SignedPayment};
use crate::api::{BodyError, bounded, time_left};
use crate::ordinals::{Ordinal, Ordinals, Place};
use crate::paid_body::paid;
use crate::pay_error::{AlreadyPaid, ProviderAnswer};
use crate::request::Key;
use crate::terms::MAX_TERMS_BYTES;
use crate::{
    ApiError, IdempotencyKey, PayError, PaymentMade, PaymentTerms, PendingApproval, Purser, Request, Slug, TermsError,
    Usdc,
};
use reqwest::header::{HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a provider's answer takes at most, body included, if the caller sets nothing else.
const PROVIDER_TIMEOUT: Duration = Duration::from_mins(2);
/// The longest paid answer that is read, in bytes, if the caller sets nothing else.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// How many payments of one request may have expired unused before the next is not tried.
const MAX_EXPIRED: u32 = 20;
/// The headers that a payment goes in: v2's, v1's.
const PAYMENT_HEADERS: [&str; 2] = ["payment-signature", "x-payment"];
/// The statuses that send a client elsewhere.
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Calls providers and pays them through Purser. Cloning is cheap, and clones count as one.
#[derive(Clone, Debug)]
pub struct Payer {
    purser: Purser,
    provider: Client,
    run: String,
    ceiling: Usdc,
    max_over_listed: Option<u32>,
    wait_for_approval: Duration,
    max_answer_bytes: usize,
    ordinals: Ordinals,
    deadline: Option<Instant>,
}

/// The provider's answer, and what was paid for it.
#[derive(Debug)]
pub struct Paid {
    /// The provider's answer, whatever its status but 402. The purchase is over once its body was read to the end: an
    /// identical call before that repeats the same payment.
    pub response: Response,
    /// The payment; `None` where the provider asked for none.
    pub payment: Option<PaymentMade>,
}

/// What a provider answers to a call without a payment.
enum Asked {
    Nothing(Response),
    Payment(PaymentTerms),
}

/// A payment that was authorized, under which key.
struct Purchase {
    authorized: Authorized,
    key: IdempotencyKey,
    /// `None` where the caller gave the key.
    ordinal: Option<Ordinal>,
}

impl Payer {
    /// A payer whose calls cost `ceiling` each at most. `run` says what this run is, as a job's id: one that is repeated
    /// under the same id pays nothing twice.
    pub fn new(purser: Purser, run: impl Into<String>, ceiling: Usdc) -> Result<Self, PayError> {
        // A redirect would carry the payment elsewhere.
        let provider = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PROVIDER_TIMEOUT)
            .build()
            .map_err(PayError::Request)?;
        Ok(Self::with_client(purser, run, ceiling, provider))
    }

    /// As [`Payer::new`], calling providers with a client of the caller's own. It must follow no redirects, and bound the
    /// time of an answer.
    pub fn with_client(purser: Purser, run: impl Into<String>, ceiling: Usdc, provider: Client) -> Self {
        Self {
            purser,
            provider,
            run: run.into(),
            ceiling,
            max_over_listed: None,
            wait_for_approval: Duration::ZERO,
            max_answer_bytes: MAX_ANSWER_BYTES,
            ordinals: Ordinals::default(),
            deadline: None,
        }
    }

    /// Calls of providers are over at `deadline`; those of Purser are bounded by [`Purser::until`]. A payment that was sent
    /// by then is told, and the same request again goes on with it.
    #[must_use]
    pub fn until(self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Refuses a price more than `percent` above the one that the catalog lists; by default none is refused for that.
    /// Each paid call asks `check` before.
    #[must_use]
    pub fn max_over_listed(self, percent: u32) -> Self {
        Self {
            max_over_listed: Some(percent),
            ..self
        }
    }

    /// Calls wait so long for a person who has to approve them; by default not at all.
    #[must_use]
    pub fn wait_for_approval(self, most: Duration) -> Self {
        Self {
            wait_for_approval: most,
            ..self
        }
    }

    /// So many bytes of a paid answer are read at most; by default 64 MiB.
    #[must_use]
    pub fn max_answer_bytes(self, most: usize) -> Self {
        Self {
            max_answer_bytes: most,
            ..self
        }
    }

    /// The API that it pays through.
    pub const fn purser(&self) -> &Purser {
        &self.purser
    }

    /// Buys the answer to a GET.
    pub async fn get(&self, url: impl Into<String>) -> Result<Paid, PayError> {
        self.send(Request::new(Method::GET, url)).await
    }

    /// Calls the provider, and pays if it asks for a payment.
    pub async fn send(&self, request: Request) -> Result<Paid, PayError> {
        match self.asked(&request).await? {
            Asked::Nothing(response) => Ok(Paid {
                response,
                payment: None,
            }),
            Asked::Payment(terms) => {
                self.compare_with_listed(&request, &terms).await?;
                self.pay(request, &terms).await
            }
        }
    }

    /// Calls the provider without paying, and asks Purser what it would decide; `None` where the provider asks for no
    /// payment.
    pub async fn check(&self, request: &Request) -> Result<Option<Preflight>, PayError> {
        let Asked::Payment(terms) = self.asked(request).await? else {
            return Ok(None);
        };
        Ok(Some(self.preflight(request, &terms).await?))
    }

    async fn preflight(&self, request: &Request, terms: &PaymentTerms) -> Result<Preflight, PayError> {
        let replay_key = Uuid::new_v4().to_string();
        let call = request.call(self.ceiling);
        Ok(self.purser.check(&call, terms, &replay_key).await?)
    }

    /// Refuses a price that is further above the listed one than the caller allows.
    async fn compare_with_listed(&self, request: &Request, terms: &PaymentTerms) -> Result<(), PayError> {
        let Some(percent) = self.max_over_listed else {
            return Ok(());
        };
        let told = self.preflight(request, terms).await?;
        let asked = told.amount_units;
        match told.listed_amount_units {
            Some(listed) if asked.is_over(listed, percent) => Err(PayError::AboveListed { asked, listed }),
            _ => Ok(()),
        }
    }

    /// The provider's answer without a payment.
    async fn asked(&self, request: &Request) -> Result<Asked, PayError> {
        let response = self.call(request, None).await.map_err(|error| {
            if error.is_builder() {
                PayError::Request(error)
            } else {
                PayError::Provider(error)
            }
        })?;
        if response.status() != StatusCode::PAYMENT_REQUIRED {
            return Ok(Asked::Nothing(response));
        }
        let headers = response.headers().clone();
        let body = bounded(response, MAX_TERMS_BYTES).await.map_err(|error| match error {
            BodyError::Broken(error) => PayError::Provider(error),
            BodyError::TooLong => PayError::Terms(TermsError::TooLong),
        })?;
        Ok(Asked::Payment(PaymentTerms::read(&headers, &body)?))
    }

    async fn pay(&self, request: Request, terms: &PaymentTerms) -> Result<Paid, PayError> {
        let purchase = self.authorize(&request, terms).await?;
        let Purchase {
            authorized,
            key,
            ordinal,
        } = purchase;
        let place = ordinal.as_ref().map(Ordinal::place);
        let mut payment = PaymentMade::of(&self.purser, key, &authorized);
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
        let header = header_of(signed).filter(|_| is_asked_for);
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
            return Err(refused(payment, response, place).await);
        }
        // What failed at the provider is no purchase: its repetition sends the same payment.
        let ordinal = ordinal.filter(|_| status.is_success());
        Ok(Paid {
            response: paid(response, payment.settlement_id, self.max_answer_bytes, ordinal),
            payment: Some(payment),
        })
    }

    /// Has the payment authorized, under the request's own key or the derived one.
    async fn authorize(&self, request: &Request, terms: &PaymentTerms) -> Result<Purchase, PayError> {
        let mut key = request.key.clone();
        for _ in 0..MAX_EXPIRED {
            let (key, ordinal) = match std::mem::replace(&mut key, Key::Derived) {
                Key::Given(key) => (key, None),
                Key::Held(key, place) => (key, Some(place.retake())),
                Key::Derived => {
                    let derived = |number| {
                        let Request { method, url, body, .. } = request;
                        IdempotencyKey::derived(&self.run, method.as_str(), url, body, number)
                    };
                    let ordinal = self.ordinals.next(derived(0));
                    (derived(ordinal.number()), Some(ordinal))
                }
            };
            let place = ordinal.as_ref().map(Ordinal::place);
            let authorized = match self.authorize_under(request, terms, &key, place).await {
                Ok(authorized) => authorized,
                Err(error) => {
                    if let (true, Some(ordinal)) = (error.is_bound_in_vain(), ordinal) {
                        ordinal.bought();
                    }
                    return Err(error);
                }
            };
            let is_over = authorized.payment.is_none() && authorized.receipt_status == ReceiptStatus::Expired;
            match ordinal {
                // It was never paid and never can be, so the next key buys nothing twice.
                Some(ordinal) if is_over => ordinal.bought(),
                ordinal => {
                    return Ok(Purchase {
                        authorized,
                        key,
                        ordinal,
                    });
                }
            }
        }
        Err(PayError::Purser(ApiError::Unreadable(
            "all payments of this request have expired",
        )))
    }

    async fn authorize_under(
        &self,
        request: &Request,
        terms: &PaymentTerms,
        key: &IdempotencyKey,
        place: Option<Place>,
    ) -> Result<Authorized, PayError> {
        let call = request.call(self.ceiling);
        let ask = async |approval| match self.purser.authorize(&call, terms, key, approval).await {
            // The answer to the approved call was lost: under its key alone it is the same payment.
            Err(ApiError::Refused(refusal)) if approval.is_some() && refusal.slug == Slug::IdempotentReplay => {
                self.purser.authorize(&call, terms, key, None).await
            }
            answer => answer,
        };
        let refusal = match ask(request.approval).await {
            Err(ApiError::Refused(refusal)) => refusal,
            answer => return Ok(answer?),
        };
        let (Slug::ApprovalRequired, Some(approval_id)) = (&refusal.slug, refusal.approval_id) else {
            return Err(ApiError::Refused(refusal).into());
        };
        // A person may have decided since, as when the run was ended while it waited.
        let wait = request.wait_for_approval.unwrap_or(self.wait_for_approval);
        let found = PendingApproval::verdict(&self.purser, approval_id, wait).await;
        Ok(match found.map(|approval| approval.status) {
            Ok(ApprovalStatus::Approved) => ask(Some(approval_id)).await?,
            // Executed by a call whose answer was lost: the key replays it. Or ended: the key answers how.
            Ok(ApprovalStatus::Executed | ApprovalStatus::Rejected | ApprovalStatus::Expired) => ask(None).await?,
            // Who may not read the approval may still be told of it.
            Ok(ApprovalStatus::Pending | ApprovalStatus::Other(_)) | Err(_) => {
                return Err(PayError::ApprovalRequired(Box::new(PendingApproval {
                    purser: self.purser.clone(),
                    request: request.clone().held(key.clone(), place),
                    approval_id,
                    refusal,
                })));
            }
        })
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
            // What asks for the price leaves most of the time to what is paid for.
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

/// The header that a payment goes in.
fn header_of(signed: &SignedPayment) -> Option<(HeaderName, HeaderValue)> {
    let name: HeaderName = signed.header_name.parse().ok()?;
    let mut value = HeaderValue::from_str(&signed.header_value).ok()?;
    value.set_sensitive(true);
    PAYMENT_HEADERS.contains(&name.as_str()).then_some((name, value))
}

/// Paid, and 402 again: either an earlier attempt's payment was taken, or it was not accepted.
async fn refused(mut payment: PaymentMade, response: Response, place: Option<Place>) -> PayError {
    let answer = ProviderAnswer::of(response).await;
    let status = payment.look().await.unwrap_or(ReceiptStatus::Authorized);
    if payment.replayed && (status == ReceiptStatus::Confirmed || answer.says_used()) {
        return already_paid(payment, status, place);
    }
    let payment = Box::new(payment);
    PayError::PaymentNotAccepted { payment, answer }
}

fn already_paid(payment: PaymentMade, receipt_status: ReceiptStatus, place: Option<Place>) -> PayError {
    PayError::AlreadyPaid(Box::new(AlreadyPaid {
        payment,
        receipt_status,
        place,
    }))
}
