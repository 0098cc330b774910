//! Why a call was not bought, by what the caller can do next. Texts are ours or Purser's: a provider's words are data, in
//! [`ProviderAnswer`].

use crate::api::bounded_start;
use crate::ordinals::Place;
use crate::terms::payment_required;
use crate::{ApiError, PaymentMade, PendingApproval, ReceiptStatus, Refusal, TermsError, Usdc};
use reqwest::Response;
use serde_json::Value;

/// The longest part of a provider's answer that an error keeps, in bytes.
const KEPT_BYTES: usize = 16 * 1024;
/// How far `nonce` and `used` stand from each other at most where they are about each other.
const NEAR: usize = 16;

/// Why a call was not bought.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayError {
    /// The provider can't be called; nothing was paid.
    #[error("the provider did not answer")]
    Provider(#[source] reqwest::Error),
    /// The request has a URL, method or header that can't be sent.
    #[error("the request can't be sent")]
    Request(#[source] reqwest::Error),
    /// The provider asks for a payment that is not x402's; nothing was paid.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// Purser said no; nothing was paid.
    #[error("{refusal}: {}", .refusal.what_to_do())]
    Refused {
        /// Why, and what to do.
        refusal: Box<Refusal>,
    },
    /// A person has to approve it; nothing was paid.
    #[error("a person has to approve it: approval {}", .0.approval_id())]
    ApprovalRequired(Box<PendingApproval>),
    /// The provider asks for more above the listed price than the caller allows; nothing was paid.
    #[error("the provider asks for {asked} USD, and the catalog lists {listed}")]
    AboveListed {
        /// The price that the provider asks for.
        asked: Usdc,
        /// The price that the catalog lists.
        listed: Usdc,
    },
    /// Purser can't be asked. The same request again pays once.
    #[error(transparent)]
    Purser(ApiError),
    /// The paid call got no answer, so that nobody knows yet whether the provider took the payment.
    #[error("the provider did not answer the paid call (settlement {})", .payment.settlement_id)]
    PaymentUnanswered {
        /// The payment.
        payment: Box<PaymentMade>,
        /// What broke.
        source: reqwest::Error,
    },
    /// The provider answers 402 though it was paid. It is not paid again, whatever its new terms.
    #[error("the provider did not accept the payment (settlement {})", .payment.settlement_id)]
    PaymentNotAccepted {
        /// The payment.
        payment: Box<PaymentMade>,
        /// What the provider said.
        answer: ProviderAnswer,
    },
    /// The provider redirects the paid call. A payment goes to nobody else, so that it was not followed.
    #[error("the provider redirected the paid call (settlement {})", .payment.settlement_id)]
    PaymentRedirected {
        /// The payment.
        payment: Box<PaymentMade>,
        /// Where to: a provider's word.
        location: Option<String>,
        /// The redirect.
        response: Box<Response>,
    },
    /// This very call was paid before, by this run: what it bought was handed out then.
    #[error("this call is paid already (settlement {})", .0.payment.settlement_id)]
    AlreadyPaid(Box<AlreadyPaid>),
    /// The payment can't be used any more.
    #[error("the payment of this call can't be used any more (settlement {})", .payment.settlement_id)]
    PaymentLapsed {
        /// The payment.
        payment: Box<PaymentMade>,
        /// `expired` if it never was used, `authorized` if nobody knows yet.
        receipt_status: ReceiptStatus,
    },
}

/// A call that was paid before.
#[derive(Debug)]
pub struct AlreadyPaid {
    /// The payment.
    pub payment: PaymentMade,
    /// `confirmed` once proved on chain; until then only the provider says so.
    pub receipt_status: ReceiptStatus,
    pub(crate) place: Option<Place>,
}

impl AlreadyPaid {
    /// Lets the next identical call be a purchase of its own.
    pub fn acknowledge(&self) {
        if let Some(place) = &self.place {
            place.spend();
        }
    }
}

impl PayError {
    /// What to do about it, in a sentence.
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

    /// The payment that was signed, if one was.
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

    /// Whether the key is bound for good to an approval that can't be used any more, though it paid for nothing: the
    /// approval expired, or paid for an identical call under another key. Asking anew takes another key.
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

/// What a provider said, cut to 16 KiB: text of a stranger, to be shown and never to be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAnswer {
    /// The HTTP status.
    pub status: u16,
    /// Its terms of v2 if it has some, else the start of its body.
    pub text: String,
    /// Whether there was more.
    pub cut: bool,
}

impl ProviderAnswer {
    pub(crate) async fn of(response: Response) -> Self {
        let status = response.status().as_u16();
        let (mut bytes, mut cut) = match payment_required(response.headers()) {
            Some(terms) => (terms, false),
            None => bounded_start(response, KEPT_BYTES).await,
        };
        cut |= bytes.len() > KEPT_BYTES;
        bytes.truncate(KEPT_BYTES);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Self { status, text, cut }
    }

    /// Whether it says that the payment's nonce was used. A provider's word: it decides how an error is called.
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
    fn a_provider_says_that_a_nonce_was_used_in_its_error_alone() {
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
