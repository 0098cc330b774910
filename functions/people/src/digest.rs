//! SHA-256 in hexadecimal, for asset paths, entity tags and form tokens.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The digest of the concatenated parts, in 64 digits.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The entity tag of a body: half of its digest, since 128 bits are enough to distinguish any two bodies.
pub(crate) fn entity_tag(body: &str) -> String {
    let digest = digest(&[body.as_bytes()]);
    format!("\"{}\"", digest.get(..32).unwrap_or(&digest))
}

/// The body with its entity tag, or 304 if the browser already has this version (RFC 9110 §13.1.2).
pub(crate) fn unless_held(request: &HeaderMap, tag: &str, body: impl IntoResponse) -> Response {
    let held = request.get(header::IF_NONE_MATCH).is_some_and(|held| held == tag);
    let mut response = if held {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        body.into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
