//! Redirects.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use purser_api::Failure;
use purser_domain::Error;

/// Returns a 303 response, which leads from a `POST` to the `GET` of a page (RFC 9110 §15.4.4). The URL is a dashboard
/// path, or an issuer URL that was serialized by the URL parser.
pub(crate) fn see_other(address: &str) -> Response {
    redirect_response(StatusCode::SEE_OTHER, address)
}

/// Returns a 307 response, after which the browser repeats the request's method and body at another path (RFC 9110
/// §15.4.8).
pub(crate) fn temporary_redirect(address: &str) -> Response {
    redirect_response(StatusCode::TEMPORARY_REDIRECT, address)
}

fn redirect_response(status: StatusCode, address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (status, [(header::LOCATION, address)]).into_response(),
        Err(error) => Failure::from(Error::internal("leading to another page", error)).into_response(),
    }
}
