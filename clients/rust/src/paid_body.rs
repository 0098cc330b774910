//! The body of a paid response. The purchase is complete once the body has been read to its end.

use crate::ordinals::Ordinal;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use reqwest::{Body, Response, ResponseBuilderExt as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use uuid::Uuid;

/// The error for a paid response that was not received completely. Repeating the call uses the same payment.
#[derive(Debug, thiserror::Error)]
#[error(
    "the answer to the paid call {what} (settlement {settlement_id}); the same call again repeats the same payment"
)]
pub struct AnswerBrokeOff {
    /// The id of the payment's settlement.
    pub settlement_id: Uuid,
    what: &'static str,
    source: Option<reqwest::Error>,
}

struct PaidBody {
    inner: Body,
    settlement_id: Uuid,
    left: usize,
    /// The ordinal of the purchase. `None` once the body is complete or failed.
    ordinal: Option<Ordinal>,
}

/// Wraps a paid response, whose complete body marks `ordinal` as bought. The body has at most `max_bytes` bytes.
pub(crate) fn wrap_paid_response(
    response: Response,
    settlement_id: Uuid,
    max_bytes: usize,
    ordinal: Option<Ordinal>,
) -> Response {
    let url = http::Response::builder().url(response.url().clone()).body(());
    let (head, inner) = http::Response::from(response).into_parts();
    let mut body = PaidBody {
        inner,
        settlement_id,
        left: max_bytes,
        ordinal,
    };
    body.record_end();
    let mut paid = http::Response::new(Body::wrap(body));
    *paid.status_mut() = head.status;
    *paid.version_mut() = head.version;
    *paid.headers_mut() = head.headers;
    *paid.extensions_mut() = head.extensions;
    if let Ok(url) = url {
        paid.extensions_mut().extend(url.into_parts().0.extensions);
    }
    paid.into()
}

impl PaidBody {
    fn record_end(&mut self) {
        if self.inner.is_end_stream()
            && let Some(ordinal) = self.ordinal.take()
        {
            ordinal.mark_bought();
        }
    }

    fn interrupted_error(&mut self, cause: &'static str, source: Option<reqwest::Error>) -> AnswerBrokeOff {
        self.ordinal = None;
        AnswerBrokeOff {
            settlement_id: self.settlement_id,
            what: cause,
            source: source.map(reqwest::Error::without_url),
        }
    }
}

impl http_body::Body for PaidBody {
    type Data = Bytes;
    type Error = AnswerBrokeOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerBrokeOff>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            None => {
                if let Some(ordinal) = self.ordinal.take() {
                    ordinal.mark_bought();
                }
                return Poll::Ready(None);
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(self.interrupted_error("broke off", Some(error))))),
            Some(Ok(frame)) => frame,
        };
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(left) = self.left.checked_sub(length) else {
            self.inner = Body::default();
            return Poll::Ready(Some(Err(self.interrupted_error("is longer than is read", None))));
        };
        self.left = left;
        self.record_end();
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
