//! Optimistic concurrency: `If-Match` (RFC 9110 §13.1.1) contains the version of a record that the caller expects, and
//! `ETag` the current version.
//!
//! Every write to an existing record requires the expected version, or `*` for any version. The write is conditional on
//! the version that was read.

use crate::errors;
use crate::http::operation::{Argument, OperationDescription};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use purser_domain::{Error, ErrorKind, Result, ValidationError};
use std::convert::Infallible;
use utoipa::PartialSchema as _;
use utoipa::openapi::{
    Required,
    path::{ParameterBuilder, ParameterIn},
};

/// A version in quotation marks, as in `ETag`, or `*` for any version.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, pattern = r#"^(\*|"(0|[1-9][0-9]{0,18})")$"#, example = "\"3\"")]
#[expect(dead_code, reason = "a schema; the header is read by `Precondition`")]
pub struct VersionTag(String);

/// The version that a write expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Exactly this version.
    Version(u64),
    /// Any version.
    Any,
}

impl Precondition {
    /// Parses `If-Match`. Lists and weak tags are invalid, because a weak tag never matches (RFC 9110 §13.1.1).
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let mut values = headers.get_all(header::IF_MATCH).iter();
        let Some(value) = values.next() else {
            return Err(ErrorKind::VersionRequired.into());
        };
        let text = value.to_str().ok().filter(|_| values.next().is_none());
        text.and_then(|text| Self::parse(text.trim())).ok_or_else(|| {
            let message = "must be one version in quotation marks, as in `ETag`, or *";
            Error::invalid(vec![ValidationError::at_path("/If-Match", message)])
        })
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let digits = text.strip_prefix('"')?.strip_suffix('"')?;
        let version = digits.parse().ok()?;
        // Rejects signs and leading zeros, which `with_etag` never writes.
        (version_tag(version) == text).then_some(Self::Version(version))
    }

    /// Returns 412 `version_conflict` unless the request expects `version`.
    pub fn check_version(&self, version: u64) -> Result<()> {
        match self {
            Self::Any => Ok(()),
            Self::Version(expected) if *expected == version => Ok(()),
            Self::Version(_) => Err(ErrorKind::VersionConflict { version }.into()),
        }
    }
}

/// The parsed `If-Match` header. The handler reports an error after authentication.
pub struct IfMatch(Result<Precondition>);

/// Extraction never fails, so that an unauthenticated caller gets 401.
impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Precondition::from_headers(&parts.headers)))
    }
}

impl Argument for IfMatch {
    fn describe(operation: &mut OperationDescription) {
        let description = "The record's version, as in `ETag`, or `*` for any version.";
        describe_if_match(operation, Required::True, description);
        operation.add_error::<errors::VersionRequired>();
    }
}

fn describe_if_match(operation: &mut OperationDescription, required: Required, description: &str) {
    let parameter = ParameterBuilder::new()
        .name("If-Match")
        .parameter_in(ParameterIn::Header)
        .required(required)
        .description(Some(description))
        .schema(Some(VersionTag::schema()))
        .build();
    operation.add_parameter(parameter);
    operation.add_error::<errors::VersionConflict>();
}

/// An `If-Match` header that may be missing, because the route also creates the record.
pub struct OptionalIfMatch(pub IfMatch);

impl<S: Sync> FromRequestParts<S> for OptionalIfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        IfMatch::from_request_parts(parts, state).await.map(Self)
    }
}

impl Argument for OptionalIfMatch {
    fn describe(operation: &mut OperationDescription) {
        let description = "The record's version, as in `ETag`, `\"0\"` for no record, or `*` for any version.";
        describe_if_match(operation, Required::False, description);
    }
}

impl IfMatch {
    /// Returns the expected version, or the error of [`Precondition::from_headers`].
    pub fn into_precondition(self) -> Result<Precondition> {
        self.0
    }
}

/// Adds the version as `ETag` to a response.
pub fn with_etag(version: u64, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    if let Ok(tag) = HeaderValue::from_str(&version_tag(version)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn version_tag(version: u64) -> String {
    format!("\"{version}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Json;
    use serde_json::json;

    fn precondition(values: &[&[u8]]) -> Result<Precondition, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::IF_MATCH, HeaderValue::from_bytes(value).unwrap());
        }
        Precondition::from_headers(&headers).map_err(|error| match error.kind() {
            ErrorKind::InvalidRequest(problems) => problems.iter().map(|problem| problem.path.clone()).collect(),
            other => other.slug(),
        })
    }

    #[test]
    fn if_match_accepts_one_version_or_any() {
        type Row<'a> = (&'a [&'a [u8]], Result<Precondition, String>);
        let wrong = || Err("/If-Match".to_owned());
        let rows: [Row<'_>; 18] = [
            (&[], Err("version_required".to_owned())),
            (&[b"\"3\""], Ok(Precondition::Version(3))),
            (&[b" \"0\"\t"], Ok(Precondition::Version(0))),
            (&[b"\"18446744073709551615\""], Ok(Precondition::Version(u64::MAX))),
            (&[b"*"], Ok(Precondition::Any)),
            (&[b"\"18446744073709551616\""], wrong()),
            (&[b""], wrong()),
            (&[b"3"], wrong()),
            (&[b"\"\""], wrong()),
            (&[b"\""], wrong()),
            (&[b"\"03\""], wrong()),
            (&[b"\"+3\""], wrong()),
            (&[b"\"-3\""], wrong()),
            (&[b"W/\"3\""], wrong()),
            (&[b"\"3\", \"4\""], wrong()),
            (&[b"\"*\""], wrong()),
            (&[b"\"\xff\""], wrong()),
            (&[b"\"3\"", b"\"3\""], wrong()),
        ];
        for (values, expected) in rows {
            assert_eq!(precondition(values), expected, "{values:?}");
        }
    }

    #[test]
    fn if_match_conflicts_report_the_current_version() {
        assert!(Precondition::Any.check_version(7).is_ok());
        assert!(Precondition::Version(7).check_version(7).is_ok());
        for meant in [6, 8] {
            let error = Precondition::Version(meant).check_version(7).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::VersionConflict { version: 7 }));
        }
    }

    #[test]
    fn response_etags_are_accepted_by_if_match() {
        for version in [0, 3, u64::MAX] {
            let response = with_etag(version, Json(json!({})));
            let tag = response.headers()[header::ETAG].as_bytes();
            assert_eq!(precondition(&[tag]), Ok(Precondition::Version(version)));
        }
    }
}
