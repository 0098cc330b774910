//! The trace id of an invocation, which is sent in the response and logged.

use crate::random_bytes;
use axum::http::{Extensions, HeaderMap};
use lambda_http::{Context, RequestExt as _};
use purser_domain::Timestamp;
use std::fmt;

/// The root of an X-Ray trace, such as `1-<8 hex digits of seconds>-<24 hex digits>` (X-Ray developer guide, "Tracing
/// header").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceId(String);

impl TraceId {
    /// Returns the trace id in Lambda's context. If the context has no trace id, returns the trace id that the API
    /// gateway sent, or a random trace id if the API gateway sent none.
    pub(crate) fn for_request(extensions: &Extensions, headers: &HeaderMap, now: Timestamp) -> Self {
        let lambda = extensions.lambda_context_ref().and_then(Self::from_context);
        let gateway = || Self::parse_header(headers.get("x-amzn-trace-id")?.to_str().ok()?);
        lambda.or_else(gateway).unwrap_or_else(|| Self::random(now))
    }

    /// Returns the trace id in Lambda's context, if present.
    pub fn from_context(context: &Context) -> Option<Self> {
        Self::parse_header(context.xray_trace_id.as_deref()?)
    }

    /// Parses `Root` in a tracing header, which has the fields `Root=1-…;Parent=…;Sampled=…` in any order.
    fn parse_header(header: &str) -> Option<Self> {
        let root = header.split(';').find_map(|part| part.trim().strip_prefix("Root="))?;
        let (seconds, rest) = root.strip_prefix("1-")?.split_once('-')?;
        let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hex(seconds, 8) && is_hex(rest, 24)).then(|| Self(root.to_owned()))
    }

    fn random(now: Timestamp) -> Self {
        // Without entropy, all requests of a second have the same id instead of an error.
        let bytes: [u8; 12] = random_bytes().unwrap_or_default();
        let rest = bytes
            .iter()
            .fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
        Self(format!("1-{:08x}-{rest:024x}", now.secs() & 0xffff_ffff))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "1-68a8f5c0-000000000000000000000087";

    #[test]
    fn a_tracing_header_contains_the_root_trace_id() {
        let rows = [
            (format!("Root={ROOT}"), true),
            (format!("Root={ROOT};Parent=53995c3f42cd8ad8;Sampled=1"), true),
            (format!("Self=1-67891234-12456789abcdef012345678; Root={ROOT}"), true),
            (format!("Parent={ROOT}"), false),
            ("Root=1-68a8f5c0-87".to_owned(), false),
            ("Root=1-68a8f5c0-00000000000000000000008g".to_owned(), false),
            ("Root=2-68a8f5c0-000000000000000000000087".to_owned(), false),
            (String::new(), false),
        ];
        for (header, named) in rows {
            let root = TraceId::parse_header(&header).map(|id| id.to_string());
            assert_eq!(root.as_deref(), named.then_some(ROOT), "{header}");
        }
    }

    #[test]
    fn requests_without_a_trace_get_unique_trace_ids() {
        let now = Timestamp::from_secs(0x68a8_f5c0).unwrap();
        let [one, other] = [TraceId::random(now), TraceId::random(now)];
        assert_ne!(one, other);
        assert_eq!(TraceId::parse_header(&format!("Root={one}")), Some(one));
        assert!(other.to_string().starts_with("1-68a8f5c0-"));
    }
}
