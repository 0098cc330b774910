//! The request id, which is sent in the response and logged.

use crate::random_bytes;
use axum::http::Extensions;
use lambda_http::RequestExt as _;
use std::fmt;
use uuid::Uuid;

/// A request id: Lambda's id, or a random UUID outside Lambda.
///
/// The gateway's id is not used, because `sam local start-api` sends the same id with every request
/// (`docs/decisions.md` §11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    pub(crate) fn for_request(extensions: &Extensions) -> Self {
        let lambda = extensions
            .lambda_context_ref()
            .map(|context| context.request_id.clone());
        Self(lambda.filter(|id| !id.is_empty()).unwrap_or_else(random_uuid))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn random_uuid() -> String {
    // Without entropy, the request gets the nil UUID instead of an error.
    let uuid = random_bytes().map_or(Uuid::nil(), |bytes| uuid::Builder::from_random_bytes(bytes).into_uuid());
    uuid.to_string()
}
