//! Values for audit rows: the source of a request, and the reason for a rejection.

use crate::{RequestId, client_ip, http::envelope::ErrorBody};
use axum::http::{header, request::Parts};
use purser_domain::{AuditRejection, Error, ErrorKind, RequestSource};

/// Returns the caller's IP address, the `User-Agent` and the request id.
pub fn request_source(parts: &Parts) -> RequestSource {
    let user_agent = parts.headers.get(header::USER_AGENT);
    let user_agent = user_agent.and_then(|value| value.to_str().ok());
    let address = client_ip(&parts.extensions).map(|ip| ip.to_string());
    let id = parts.extensions.get::<RequestId>().map_or("", RequestId::as_str);
    RequestSource::new(address, user_agent, id)
}

/// Returns the rejection that the audit log records; `None` for errors after which the caller retries. Also `None` for
/// `not_found`, because the object may belong to another user.
pub fn rejection_for_audit(error: &Error) -> Option<AuditRejection> {
    let kind = error.kind();
    let is_refusal = !matches!(
        kind,
        ErrorKind::Internal
            | ErrorKind::NotFound
            | ErrorKind::TemporarilyUnavailable { .. }
            | ErrorKind::TooManyRequests { .. }
    );
    is_refusal.then(|| {
        let response = ErrorBody::from(kind);
        AuditRejection::new(response.error, &response.message)
    })
}
