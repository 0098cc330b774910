//! The errors of a purchase, grouped by what the caller can do next. Their messages contain no text of a provider; only
//! [`ProviderAnswer`] does.

use crate::api::read_start;
use crate::charset::decode_text;
use crate::ordinals::Place;
use crate::terms::payment_required;
use crate::{ApiError, PaymentMade, PendingApproval, ReceiptStatus, Refusal, TermsError, Usdc};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

/// The longest part of a provider's answer that an error keeps, in bytes.
const KEPT_BYTES: usize = 16 * 1024;
/// The greatest distance between `nonce` and `used` at which they count as one statement, in bytes.
const NEAR: usize = 16;

/// The reason that a call was not bought.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayError {
    /// The provider can't be reached. Nothing was paid.
    #[error("the provider did not answer")]
    Provider(#[source] reqwest::Error),
    /// The request has an invalid URL, method or header. Nothing was sent.
    #[error("the request can't be sent")]
    Request(#[source] reqwest::Error),
    /// The provider asks for a payment in another form than x402. Nothing was paid.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// Purser refused the payment. Nothing was paid.
    #[error("{refusal}: {}", .refusal.what_to_do())]
    Refused {
        /// The reason, and what to do.
        refusal: Box<Refusal>,
    },
    /// A person has to approve the call. Nothing was paid.
    #[error("a person has to approve it: approval {}", .0.approval_id())]
    ApprovalRequired(Box<PendingApproval>),
    /// The price exceeds the listed one by more than the caller allows. Nothing was paid.
    #[error("the provider asks for {asked} USD, and the catalog lists {listed}")]
    AboveListed {
        /// The price that the provider asks for.
        asked: Usdc,
        /// The price that the catalog lists.
        listed: Usdc,
    },
    /// Purser can't be asked. Repeating the request is safe: it pays once.
    #[error(transparent)]
    Purser(ApiError),
    /// The paid call got no answer. It is not known whether the provider took the payment.
    #[error("the provider did not answer the paid call (settlement {})", .payment.settlement_id)]
    PaymentUnanswered {
        /// The payment.
        payment: Box<PaymentMade>,
        /// The error of the call.
        source: reqwest::Error,
    },
    /// The provider answered the paid call with 402. It is not paid again, even if its terms changed.
    #[error("the provider did not accept the payment (settlement {})", .payment.settlement_id)]
    PaymentNotAccepted {
        /// The payment.
        payment: Box<PaymentMade>,
        /// The provider's answer.
        answer: ProviderAnswer,
    },
    /// The provider redirected the paid call. The redirect was not followed, because it would send the payment to
    /// another address.
    #[error("the provider redirected the paid call (settlement {})", .payment.settlement_id)]
    PaymentRedirected {
        /// The payment.
        payment: Box<PaymentMade>,
        /// The `Location` header, which is the provider's text.
        location: Option<String>,
        /// The redirect response.
        response: Box<Response>,
    },
    /// This call was already paid by this run, and its answer was delivered then.
    #[error("this call is paid already (settlement {})", .0.payment.settlement_id)]
    AlreadyPaid(Box<AlreadyPaid>),
    /// The payment can no longer be used.
    #[error("the payment of this call can't be used any more (settlement {})", .payment.settlement_id)]
    PaymentLapsed {
        /// The payment.
        payment: Box<PaymentMade>,
        /// `expired` if the payment was never used, `authorized` if that is not known yet.
        receipt_status: ReceiptStatus,
    },
}

/// A call that was paid before.
#[derive(Debug)]
pub struct AlreadyPaid {
    /// The payment.
    pub payment: PaymentMade,
    /// `confirmed` once the payment is verified on chain. Until then only the provider claims that it was paid.
    pub receipt_status: ReceiptStatus,
    pub(crate) place: Option<Place>,
}

impl AlreadyPaid {
    /// Makes the next identical call a new purchase.
    pub fn acknowledge(&self) {
        if let Some(place) = &self.place {
            place.spend();
        }
    }
}

impl PayError {
    /// Returns advice for the caller, in a sentence.
    pub fn what_to_do(&self) -> &'static str {
        match self {
            Self::Provider(_) => "Nothing was paid. Call again.",
            Self::Request(_) => "Correct the request; nothing was sent.",
            Self::Terms(_) => "Don't pay: the provider's terms are no x402 terms.",
            Self::Refused { refusal } | Self::Purser(ApiError::Refused(refusal)) => refusal.what_to_do(),
            Self::ApprovalRequired(pending) => pending.refusal().what_to_do(),
            Self::AboveListed { .. } => {
                "Nothing was paid. Allow a higher percentage above the listed price, if the call is worth it."
            }
            Self::Purser(_) | Self::PaymentUnanswered { .. } => {
                "Make the same call again: it repeats the same payment, and nothing is paid twice."
            }
            Self::PaymentNotAccepted { .. } => {
                "Don't pay another way: the payment may have been taken, as its receipt will say. The same call repeats it."
            }
            Self::PaymentRedirected { .. } => "If the location holds the answer, fetch it without paying.",
            Self::AlreadyPaid(_) => "Use what it bought, or acknowledge this and call again to buy anew.",
            Self::PaymentLapsed { receipt_status, .. } if *receipt_status == ReceiptStatus::Expired => {
                "Nothing was paid: call again under another key."
            }
            Self::PaymentLapsed { .. } => {
                "Repeat the call later: it is not known yet whether the provider took the payment."
            }
        }
    }

    /// Returns the payment, if one was signed.
    pub fn payment(&self) -> Option<&PaymentMade> {
        match self {
            Self::PaymentUnanswered { payment, .. }
            | Self::PaymentNotAccepted { payment, .. }
            | Self::PaymentRedirected { payment, .. }
            | Self::PaymentLapsed { payment, .. } => Some(payment),
            Self::AlreadyPaid(paid) => Some(&paid.payment),
            _ => None,
        }
    }

    /// Returns whether the idempotency key can never pay: its approval has expired, or paid for an identical call under
    /// another key. A new request needs a new key.
    pub(crate) fn is_bound_in_vain(&self) -> bool {
        match self {
            Self::Refused { refusal } => {
                refusal.slug == crate::Slug::IdempotentReplay || refusal.reason.as_deref() == Some("approval_expired")
            }
            _ => false,
        }
    }
}

impl From<ApiError> for PayError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Refused(refusal) if !refusal.is_temporary() => Self::Refused { refusal },
            other => Self::Purser(other),
        }
    }
}

/// A provider's answer, cut to 16 KiB. It is untrusted text: show it, and never follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The provider's x402 v2 terms, if the answer has them; otherwise the start of its body.
    pub text: String,
    /// Whether the text was cut.
    pub cut: bool,
}

impl ProviderAnswer {
    pub(crate) async fn from_response(response: Response) -> Self {
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.map(str::to_owned);
        let (mut bytes, mut cut) = match payment_required(response.headers()) {
            Some(terms) => (terms, false),
            None => read_start(response, KEPT_BYTES).await,
        };
        cut |= bytes.len() > KEPT_BYTES;
        bytes.truncate(KEPT_BYTES);
        let text = decode_text(kind.as_deref(), &bytes, !cut);
        let text = text.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        Self { status, text, cut }
    }

    /// Returns whether the provider says that the payment's nonce was used. This is untrusted, and only decides which
    /// error is returned.
    pub(crate) fn says_used(&self) -> bool {
        let answer: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let error = answer.get("error").and_then(Value::as_str).unwrap_or_default();
        let error = error.to_ascii_lowercase();
        let near = |first: &str, second: &str| {
            error.match_indices(first).any(|(at, _)| {
                let end = at.saturating_add(first.len());
                let rest = error.get(end..).unwrap_or_default();
                rest.find(second).is_some_and(|between| between <= NEAR)
            })
        };
        near("nonce", "used") || near("used", "nonce")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_error_member_reports_a_used_nonce() {
        let says = |text: &str| {
            ProviderAnswer {
                status: 402,
                text: text.to_owned(),
                cut: false,
            }
            .says_used()
        };
        assert!(says(r#"{"error": "invalid_exact_evm_nonce_already_used"}"#));
        assert!(says(r#"{"error": "Used nonce"}"#));
        for text in [
            r#"{"error": "nonce"}"#,
            r#"{"reason": "nonce_already_used"}"#,
            r#"{"error": "a nonce, and very much later something was used"}"#,
            "nonce used",
            "",
        ] {
            assert!(!says(text), "{text}");
        }
    }
}
