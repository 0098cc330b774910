//! Signs the result of a form, which is in the query of the URL to which the form redirects.
//!
//! Without a valid signature, a page shows no result. Otherwise a link from another site could fake the result of an
//! operation.

use crate::digest::hexadecimal;
use crate::sessions::cookie::Cookie;
use crate::sessions::session::{SIGN_IN, request_origin};
use crate::state::PeopleState;
use axum::{
    extract::Request,
    http::{HeaderValue, Method, Uri, header},
    middleware::Next,
    response::Response,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use url::form_urlencoded;

/// The query parameters with a form's result: `notice` for a notification, `act` for a completed operation.
const REPORTS: [&str; 2] = ["notice", "act"];
/// The query parameter with the signature, which is the URL's last parameter.
const SIGNATURE: &str = "&report=";

/// Signs redirects with a result, and drops a result without a valid signature. The sign-in page is exempt.
pub(crate) async fn sign_and_verify_form_results(people: PeopleState, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let origin = request_origin(&people, &parts).ok();
    let session = origin.and_then(|origin| Cookie::Session.find_value(&parts.headers, &origin));
    let address = parts.uri.path_and_query().map_or("", |address| address.as_str());
    if parts.method == Method::GET && has_form_result(address) && !has_valid_signature(address, session.as_deref()) {
        parts.uri = without_form_result(&parts.uri);
    }
    let mut response = next.run(Request::from_parts(parts, body)).await;
    let location = response.headers().get(header::LOCATION);
    let location = location.and_then(|location| location.to_str().ok());
    let reported = location.filter(|address| has_form_result(address)).zip(session);
    let signed = reported.and_then(|(address, session)| {
        let signature = url_mac_for_session(address, &session)?;
        HeaderValue::from_str(&format!("{address}{SIGNATURE}{signature}")).ok()
    });
    if let Some(signed) = signed {
        response.headers_mut().insert(header::LOCATION, signed);
    }
    response
}

/// Returns whether the URL is a dashboard page with the result of a form.
fn has_form_result(address: &str) -> bool {
    let Some((path, query)) = address.split_once('?') else {
        return false;
    };
    let mut names = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    path.starts_with("/dashboard") && path != SIGN_IN && names.any(|name| REPORTS.contains(&&*name))
}

fn has_valid_signature(address: &str, session: Option<&str>) -> bool {
    let signed = address.rsplit_once(SIGNATURE).zip(session);
    signed.is_some_and(|((address, result), session)| {
        let ours = url_mac_for_session(address, session);
        ours.is_some_and(|ours| ours.as_bytes().ct_eq(result.as_bytes()).into())
    })
}

/// Returns the MAC of a URL, with the session's secret as the key.
fn url_mac_for_session(address: &str, session: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(session.as_bytes()).ok()?;
    mac.update(b"purser/dashboard/report/v1\0");
    mac.update(address.as_bytes());
    Some(hexadecimal(&mac.finalize().into_bytes()))
}

fn without_form_result(uri: &Uri) -> Uri {
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let query = query.filter(|(name, _)| !REPORTS.contains(&&**name));
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(query)
        .finish();
    let address = if query.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{query}", uri.path())
    };
    address.parse().unwrap_or_default()
}
