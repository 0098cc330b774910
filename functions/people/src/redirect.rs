//! Redirects.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use purser_api::Failure;
use purser_domain::Error;

/// 303, which turns a POST into the GET of a page (RFC 9110 §15.4.4). The addresses are our own, or an issuer's as
/// serialized by the URL parser.
pub(crate) fn see_other(address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Err(error) => Failure::from(Error::internal("leading to another page", error)).into_response(),
    }
}
