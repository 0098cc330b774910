//! The errors of OAuth, as JSON with `error` and `error_description` (RFC 6749 §5.2).

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use purser_api::Failure;
use purser_domain::{ClientMetadataError, Error};
use serde::Serialize;
use utoipa::ToSchema;

/// Why a client gets no token, registration or device code.
pub(crate) enum OAuthError {
    InvalidRequest(&'static str),
    /// The client's id is unknown or expired, so the client must register again.
    InvalidClient,
    /// The code or token is unknown, expired, used, revoked, or of another client. The response does not say which.
    InvalidGrant,
    UnauthorizedClient,
    UnsupportedGrantType,
    /// `resource` is not this deployment (RFC 8707 §2).
    InvalidTarget,
    /// The client metadata in a registration is invalid (RFC 7591 §3.2.2).
    Metadata(ClientMetadataError),
    /// The user has not decided yet, so the client must poll again (RFC 8628 §3.5).
    AuthorizationPending,
    SlowDown,
    AccessDenied,
    ExpiredToken,
    /// An error that OAuth does not define, in the API's own form.
    Other(Failure),
}

impl From<Error> for OAuthError {
    fn from(error: Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<Failure> for OAuthError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<ClientMetadataError> for OAuthError {
    fn from(error: ClientMetadataError) -> Self {
        Self::Metadata(error)
    }
}

/// An error response of an OAuth endpoint (RFC 6749 §5.2).
#[derive(Serialize, ToSchema)]
#[schema(as = OAuthError)]
pub(crate) struct OAuthErrorView {
    /// A code of RFC 6749, 7591, 8628 or 8707.
    error: &'static str,
    /// What the client should do.
    error_description: String,
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        let (status, error, description) = match self {
            Self::Other(failure) => return failure.into_response(),
            Self::InvalidRequest(message) => (bad, "invalid_request", message.to_owned()),
            Self::InvalidClient => (
                StatusCode::UNAUTHORIZED,
                "invalid_client",
                "the client is unknown or its registration has expired; register again".to_owned(),
            ),
            Self::InvalidGrant => (
                bad,
                "invalid_grant",
                "the code or token is not valid, or access was revoked; ask the user for access again".to_owned(),
            ),
            Self::UnauthorizedClient => (
                bad,
                "unauthorized_client",
                "this client can't use device codes".to_owned(),
            ),
            Self::UnsupportedGrantType => (
                bad,
                "unsupported_grant_type",
                "use authorization_code, refresh_token or urn:ietf:params:oauth:grant-type:device_code".to_owned(),
            ),
            Self::InvalidTarget => (
                bad,
                "invalid_target",
                "`resource` must be this deployment's /mcp".to_owned(),
            ),
            Self::Metadata(ClientMetadataError::RedirectUri(message)) => (bad, "invalid_redirect_uri", message),
            Self::Metadata(ClientMetadataError::Metadata(message)) => {
                (bad, "invalid_client_metadata", message.to_owned())
            }
            Self::AuthorizationPending => (bad, "authorization_pending", "the user has not decided yet".to_owned()),
            Self::SlowDown => (bad, "slow_down", "wait 5 seconds longer between polls".to_owned()),
            Self::AccessDenied => (bad, "access_denied", "the user denied access".to_owned()),
            Self::ExpiredToken => (
                bad,
                "expired_token",
                "the device code has expired; request another".to_owned(),
            ),
        };
        let body = OAuthErrorView {
            error,
            error_description: description,
        };
        (status, Json(body)).into_response()
    }
}
