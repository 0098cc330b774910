//! Headers set by callers: `Authorization`, `If-Match`, and the trace id.
//!
//! The input is a value, or two on separate lines. An accepted value has exactly one spelling, which can be rebuilt
//! from the parsed value, and a repeated header is never accepted.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use lambda_http::Context;
use purser_api::{Precondition, TraceId, presented_key};
use purser_domain::PresentedKey;

/// See the module's documentation.
pub fn headers(bytes: &[u8]) {
    let mut values = bytes.splitn(2, |byte| *byte == b'\n');
    let first = values.next().and_then(|value| HeaderValue::from_bytes(value).ok());
    let second = values.next().and_then(|value| HeaderValue::from_bytes(value).ok());
    let Some(first) = first else { return };
    an_agent_key(&first, second.as_ref());
    a_version(&first, second.as_ref());
    if let Ok(text) = first.to_str() {
        a_trace_id(text);
    }
}

fn map(name: HeaderName, values: [Option<&HeaderValue>; 2]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values.into_iter().flatten() {
        headers.append(name.clone(), value.clone());
    }
    headers
}

fn an_agent_key(value: &HeaderValue, second: Option<&HeaderValue>) {
    let found = presented_key(&map(header::AUTHORIZATION, [Some(value), None]));
    let Ok(PresentedKey { agent, key, .. }) = &found else {
        let slug = found.err().map(|error| error.kind().slug()).unwrap_or_default();
        assert!(
            matches!(slug.as_str(), "invalid_agent_key" | "invalid_authorization_header"),
            "{slug}"
        );
        return;
    };
    let text = value.to_str().expect("a key is ASCII");
    let (scheme, token) = text.split_once(' ').expect("a scheme and a token");
    assert!(scheme.eq_ignore_ascii_case("bearer"));
    let (public, secret) = token.trim().split_once(':').expect("two halves");
    // The only spelling of this agent's key with this number.
    assert_eq!(public, format!("gak_pub_{}{:016x}", agent.uuid().simple(), key.0));
    let digits = secret.strip_prefix("gak_sec_").expect("the secret half has its prefix");
    assert!(digits.len() == 64 && digits.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
    if second.is_some() {
        assert!(presented_key(&map(header::AUTHORIZATION, [Some(value), second])).is_err());
    }
}

fn a_version(value: &HeaderValue, second: Option<&HeaderValue>) {
    let Ok(found) = Precondition::of(&map(header::IF_MATCH, [Some(value), None])) else {
        return;
    };
    let text = value.to_str().expect("a version is ASCII").trim();
    match found {
        Precondition::Any => assert_eq!(text, "*"),
        Precondition::Version(version) => assert_eq!(text, format!("\"{version}\"")),
    }
    if second.is_some() {
        assert!(Precondition::of(&map(header::IF_MATCH, [Some(value), second])).is_err());
    }
}

/// Asserts that the id is a trace id and nothing else, since it is written to answers and log lines.
fn a_trace_id(text: &str) {
    let mut context = Context::default();
    context.xray_trace_id = Some(text.to_owned());
    let Some(id) = TraceId::of_context(&context).map(|id| id.to_string()) else {
        return;
    };
    assert!(text.contains(&format!("Root={id}")), "{id} is not in {text}");
    let parts: Vec<&str> = id.split('-').collect();
    let [version, seconds, rest] = parts[..] else {
        panic!("{id}")
    };
    assert_eq!((version, seconds.len(), rest.len()), ("1", 8, 24), "{id}");
    assert!(
        [seconds, rest].concat().bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
}
