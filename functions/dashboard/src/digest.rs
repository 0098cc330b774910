//! SHA-256 in hexadecimal, for asset paths, entity tags and form tokens.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use purser_api::matches_if_none_match;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Returns the digest of the concatenated parts.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the first 128 bits of the body's SHA-256 hash in hexadecimal digits. 128 bits are enough to distinguish any
/// two bodies.
pub(crate) fn short_body_digest(body: &str) -> String {
    let mut digest = hexadecimal(&sha256(&[body.as_bytes()]));
    digest.truncate(32);
    digest
}

/// Returns a weak entity tag for this version of a body. The entity tag is weak because the same body may be sent with
/// different content encodings.
pub(crate) fn entity_tag(version: &str) -> String {
    format!("W/\"{version}\"")
}

/// Returns 304 if the browser already has the version with this tag (RFC 9110 §13.1.2).
pub(crate) fn response_or_not_modified(request: &HeaderMap, tag: &str, body: impl IntoResponse) -> Response {
    let mut response = if matches_if_none_match(request, tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        body.into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
