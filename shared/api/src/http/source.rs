//! The source of a request, and the reason of its refusal, for the audit log.

use crate::{RequestId, client_ip, http::envelope::ErrorBody};
use axum::http::{header, request::Parts};
use purser_domain::{AuditRefusal, Error, ErrorKind, RequestSource};

/// The source of a request: its address according to the gateway, the program that it names, and its id.
pub fn request_source(parts: &Parts) -> RequestSource {
    let user_agent = parts.headers.get(header::USER_AGENT);
    // A value that is not text is ignored.
    let user_agent = user_agent.and_then(|value| value.to_str().ok());
    let address = client_ip(&parts.extensions).map(|ip| ip.to_string());
    let id = parts.extensions.get::<RequestId>().map_or("", RequestId::as_str);
    RequestSource::new(address, user_agent, id)
}

/// The refusal of an act, as it was answered; `None` for a failure of the service, after which the caller tries again, and
/// for an object that does not exist or is another person's.
pub fn audit_refusal(error: &Error) -> Option<AuditRefusal> {
    let kind = error.kind();
    let is_refusal = !matches!(
        kind,
        ErrorKind::Internal
            | ErrorKind::NotFound
            | ErrorKind::TemporarilyUnavailable { .. }
            | ErrorKind::TooManyRequests { .. }
    );
    is_refusal.then(|| {
        let answer = ErrorBody::from(kind);
        AuditRefusal::new(answer.error, &answer.message)
    })
}
