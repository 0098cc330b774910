//! Cacheable responses of the catalog. The entity tags are weak, because the same content may be sent in several
//! codings.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// A response body with a weak `ETag`, which the constructor computes once for all responses.
#[derive(Clone, Debug)]
pub struct Cacheable {
    content_type: &'static str,
    body: Bytes,
    tag: String,
}

impl Cacheable {
    /// Creates a response of the type `application/json`. Does not check that `body` is JSON.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self::text_response("application/json", body)
    }

    /// Creates a response with a text of this content type.
    pub fn text_response(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let tag = weak_etag(&body);
        Self {
            content_type,
            body,
            tag,
        }
    }

    /// Builds the response. Returns 304 without a body if the client has the current body.
    pub fn respond(self, request_headers: &HeaderMap, cache_control: &'static str) -> Response {
        let mut response = if matches_if_none_match(request_headers, &self.tag) {
            // A 304 has the same `Cache-Control` and `ETag` as the 200 (RFC 9110 §15.4.5).
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, self.content_type)], Body::from(self.body)).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
        if let Ok(tag) = HeaderValue::try_from(self.tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// Computes a weak tag: 128 bits of the body's SHA-256 hash.
fn weak_etag(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    let mut tag = String::from("W/\"");
    for byte in digest.iter().take(16) {
        // Writing to a `String` can't fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

/// Returns whether `If-None-Match` contains the tag or `*` (RFC 9110 §13.1.2), by weak comparison.
pub fn matches_if_none_match(headers: &HeaderMap, tag: &str) -> bool {
    fn opaque_tag(tag: &str) -> &str {
        tag.strip_prefix("W/").unwrap_or(tag)
    }
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        // No tag of this service contains a comma.
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|entry| entry == "*" || opaque_tag(entry) == opaque_tag(tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn matching_etags_return_304_without_a_body() {
        const TAG: &str = "W/\"44136fa355b3678a1146ad16f7e8649e\"";
        let rows: [(&[&str], u16); 8] = [
            (&[], 200),
            (&[TAG], 304),
            (&["\"44136fa355b3678a1146ad16f7e8649e\""], 304),
            (&["*"], 304),
            (&["\"x\", \"44136fa355b3678a1146ad16f7e8649e\""], 304),
            (&["\"x\"", TAG], 304),
            (&["\"44136fa3\""], 200),
            (&["44136fa355b3678a1146ad16f7e8649e"], 200),
        ];
        for (values, status) in rows {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, HeaderValue::from_str(value).unwrap());
            }
            let response = Cacheable::new("{}").respond(&headers, "public, max-age=60");
            assert_eq!(response.status().as_u16(), status, "{values:?}");
            assert_eq!(response.headers()[header::ETAG], TAG);
            assert_eq!(response.headers()[header::CACHE_CONTROL], "public, max-age=60");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(&body[..], if status == 200 { b"{}".as_slice() } else { b"" });
        }
    }

    #[test]
    fn different_bodies_have_different_etags() {
        assert_ne!(weak_etag(b"{}"), weak_etag(b"{ }"));
    }
}
