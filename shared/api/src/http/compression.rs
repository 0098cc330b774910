//! Compresses responses with `br` or `gzip`, because API Gateway's HTTP APIs do not compress.
//!
//! Only text responses above 1 KB are compressed. The gateway gets them as base64, which is still shorter than the
//! text.
//!
//! A strong entity tag identifies one sequence of bytes (RFC 9110 §8.8.1), so responses with a strong tag are not
//! compressed. They contain a record's version for `If-Match`.

use axum::{
    Router,
    extract::Request,
    http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Version, header},
    middleware::{Next, from_fn},
    response::Response,
};
use tower_http::{
    CompressionLevel,
    compression::{
        CompressionLayer,
        predicate::{Predicate as _, SizeAbove},
    },
};

/// The minimum size of a compressed response, in bytes. Smaller responses fit into a packet anyway.
const MIN_BYTES: u16 = 1_024;

/// The compression level of both codings. Higher `br` levels take several times as long and save a few percent.
const LEVEL: CompressionLevel = CompressionLevel::Precise(4);

/// The prefixes of the content types that are compressed.
const TYPES: [&str; 3] = ["text/", "application/json", "image/svg+xml"];

/// Adds compression to a router, as the outermost layer.
pub(crate) fn with_compression(router: Router) -> Router {
    let worth_it = SizeAbove::new(MIN_BYTES).and(is_compressible);
    router
        .layer(CompressionLayer::new().quality(LEVEL).compress_when(worth_it))
        .layer(from_fn(fix_head_and_304_headers))
}

fn is_compressible(status: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default();
    // A client reads an event stream line by line, so event streams are not compressed.
    let is_text = TYPES.iter().any(|text| kind.starts_with(text)) && !kind.starts_with("text/event-stream");
    let has_strong_tag = headers
        .get(header::ETAG)
        .is_some_and(|tag| !tag.as_bytes().starts_with(b"W/"));
    is_text && !has_strong_tag && status != StatusCode::PARTIAL_CONTENT
}

/// Gives a `HEAD` response the length of the uncompressed body, and a 304 the `Vary` header of the 200 (RFC 9110
/// §15.4.5).
async fn fix_head_and_304_headers(mut request: Request, next: Next) -> Response {
    if request.method() == Method::HEAD {
        request.headers_mut().remove(header::ACCEPT_ENCODING);
    }
    let mut response = next.run(request).await;
    if response.status() == StatusCode::NOT_MODIFIED {
        let vary = HeaderValue::from_static("accept-encoding");
        response.headers_mut().append(header::VARY, vary);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiSettings, Cacheable, GatewayResponse, handle_any_event, with_etag, with_middleware};
    use axum::routing::get;
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use lambda_http::{Context, LambdaEvent};
    use serde_json::{json, value::to_raw_value};
    use std::io::Read as _;

    /// Returns a text of this many bytes.
    fn text(size: usize) -> String {
        "a line of a page\n".chars().cycle().take(size).collect()
    }

    fn app() -> Router {
        let of =
            |kind: &'static str, size: usize| get(move || async move { ([(header::CONTENT_TYPE, kind)], text(size)) });
        let routes = Router::new()
            .route("/page", of("text/html; charset=utf-8", 4_096))
            .route("/json", of("application/json", 4_096))
            .route("/drawing", of("image/svg+xml", 4_096))
            .route("/small", of("text/html; charset=utf-8", 1_023))
            .route("/picture", of("image/png", 4_096))
            .route("/stream", of("text/event-stream", 4_096))
            .route(
                "/cached",
                get(|headers: HeaderMap| async move {
                    Cacheable::text_response("text/css", text(4_096)).respond(&headers, "public")
                }),
            )
            .route(
                "/record",
                get(|| async { with_etag(7, ([(header::CONTENT_TYPE, "application/json")], text(4_096))) }),
            );
        with_middleware(routes, ApiSettings::default())
    }

    /// Sends a request in the gateway's format.
    async fn send(method: &str, path: &str, headers: &[(&str, &str)]) -> GatewayResponse {
        let headers: serde_json::Map<_, _> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let event = json!({"rawPath": path, "headers": headers, "requestContext": {"http": {"method": method}}});
        handle_any_event(
            app(),
            LambdaEvent::new(to_raw_value(&event).unwrap(), Context::default()),
        )
        .await
    }

    fn coding(answer: &GatewayResponse) -> Option<&str> {
        answer.headers.get("content-encoding").map(String::as_str)
    }

    /// Decodes the body as a browser does.
    fn decoded(answer: &GatewayResponse) -> String {
        let body = if answer.is_base64_encoded {
            BASE64_STANDARD.decode(&answer.body).unwrap()
        } else {
            answer.body.clone().into_bytes()
        };
        let body = match coding(answer) {
            Some("br") => {
                let mut text = Vec::new();
                brotli_decompressor::Decompressor::new(body.as_slice(), 4_096)
                    .read_to_end(&mut text)
                    .unwrap();
                text
            }
            // A header of ten bytes precedes the compressed data, and a trailer of eight bytes follows (RFC 1952 §2.3).
            Some("gzip") => miniz_oxide::inflate::decompress_to_vec(&body[10..body.len() - 8]).unwrap(),
            _ => body,
        };
        String::from_utf8(body).unwrap()
    }

    #[tokio::test]
    async fn long_responses_are_compressed_if_the_client_accepts_it() {
        let rows = [
            ("/page", "gzip, deflate, br", Some("br")),
            ("/page", "gzip", Some("gzip")),
            ("/page", "br;q=0.1, gzip;q=0.9", Some("gzip")),
            ("/page", "br;q=0, gzip;q=0", None),
            ("/page", "", None),
            ("/json", "br", Some("br")),
            ("/drawing", "gzip", Some("gzip")),
            ("/small", "br", None),
            ("/picture", "br", None),
            ("/stream", "br", None),
            ("/nowhere", "br", None),
        ];
        for (path, accepted, expected) in rows {
            let answer = send("GET", path, &[("accept-encoding", accepted)]).await;
            assert_eq!(coding(&answer), expected, "{path} {accepted}");
            assert_eq!(answer.is_base64_encoded, expected.is_some());
            let varies = answer.headers.get("vary").is_some_and(|vary| vary == "accept-encoding");
            assert_eq!(
                varies,
                ["/page", "/json", "/drawing"].contains(&path),
                "{path} {accepted}"
            );
            if expected.is_some() {
                assert_eq!(decoded(&answer), text(4_096));
                assert!(answer.body.len() < 400, "{}", answer.body.len());
            }
        }
    }

    #[tokio::test]
    async fn compressed_responses_can_be_revalidated() {
        let accepted = ("accept-encoding", "br");
        let first = send("GET", "/cached", &[accepted]).await;
        let tag = first.headers["etag"].as_str();
        assert!(coding(&first) == Some("br") && tag.starts_with("W/\""), "{first:?}");
        for again in [vec![accepted, ("if-none-match", tag)], vec![("if-none-match", tag)]] {
            let answer = send("GET", "/cached", &again).await;
            assert_eq!(
                (answer.status_code, answer.body.as_str(), coding(&answer)),
                (304, "", None)
            );
            assert_eq!(
                (&answer.headers["etag"], &*answer.headers["vary"]),
                (&first.headers["etag"], "accept-encoding")
            );
        }
    }

    /// `If-Match` compares strongly, so the tag must identify the exact bytes.
    #[tokio::test]
    async fn responses_with_a_version_etag_are_not_compressed() {
        let answer = send("GET", "/record", &[("accept-encoding", "br")]).await;
        assert_eq!((coding(&answer), &*answer.headers["etag"]), (None, "\"7\""));
    }

    #[tokio::test]
    async fn head_responses_state_the_uncompressed_length() {
        let answer = send("HEAD", "/page", &[("accept-encoding", "br")]).await;
        assert_eq!((coding(&answer), answer.body.as_str()), (None, ""));
        assert_eq!(answer.headers["content-length"], "4096");
    }
}
