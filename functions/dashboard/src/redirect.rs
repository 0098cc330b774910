use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use purser_api::Failure;
use purser_domain::Error;

/// A 303 response leads from a `POST` to the `GET` of a page (RFC 9110 §15.4.4).
pub(crate) fn see_other(address: &str) -> Response {
    redirect_response(StatusCode::SEE_OTHER, address)
}

/// After a 307 response, the browser repeats the method and the body at `address` (RFC 9110 §15.4.8).
pub(crate) fn temporary_redirect(address: &str) -> Response {
    redirect_response(StatusCode::TEMPORARY_REDIRECT, address)
}

fn redirect_response(status: StatusCode, address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (status, [(header::LOCATION, address)]).into_response(),
        Err(error) => Failure::from(Error::internal("redirecting to another page", error)).into_response(),
    }
}
