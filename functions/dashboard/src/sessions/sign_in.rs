//! Sign-in with the authorization code flow and PKCE (RFC 6749 §4.1, RFC 7636), and sign-out.

use crate::address::path_with_query;
use crate::redirect::see_other;
use crate::sessions::cookie::{Cookie, pending_sign_in_cookies};
use crate::sessions::destination::Destination;
use crate::sessions::origin::Origin;
use crate::sessions::pending_sign_in::{PendingSignIn, SIGN_IN_TIMEOUT};
use crate::sessions::session::{SIGN_IN, VerifiedForm, parse_session_cookie, request_origin, session_cookie};
use crate::state::People;
use crate::ui::layout::{centered_card, html_document, html_head, page_message_box};
use crate::ui::notice::PageMessage;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderValue, Uri, header, request::Parts},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maud::{DOCTYPE, Markup, html};
use purser_api::{AuthorizationCode, EntitlementCheck, Failure, Query, request_source};
use purser_domain::{Acting, Actor, ErrorKind, Result, Timestamp, Url};
use purser_store::StartSessionResult;
use std::sync::Arc;
use tracing::{info, warn};

const START: &str = "/dashboard/sign-in/start";
const CALLBACK: &str = "/dashboard/callback";
/// In bytes, for about a dozen pending sign-ins. API Gateway rejects more than 10,240 bytes of headers.
const MAX_PENDING_BYTES: usize = 4_000;

pub(crate) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route(SIGN_IN, get(show_sign_in_page))
        .route(START, get(start_sign_in))
        .route(CALLBACK, get(handle_sign_in_callback))
        .route("/dashboard/sign-out", post(sign_out))
}

/// After the sign-in, the user returns to `next`.
fn sign_in_address(next: &Destination, message: PageMessage) -> String {
    path_with_query(
        SIGN_IN,
        [
            ("next", next.to_query_parameter()),
            ("notice", Some(message.code().to_owned())),
        ],
    )
}

/// Redirects a user to sign in again, and then back to the page with the form.
pub(crate) fn redirect_to_sign_in_again(next: &Destination) -> Response {
    see_other(&sign_in_address(next, PageMessage::SignInAgain))
}

fn with_cookies<const N: usize>(mut response: Response, cookies: [HeaderValue; N]) -> Response {
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

async fn show_sign_in_page(uri: Uri) -> Response {
    let mut query = Query::from_uri(&uri);
    let next = Destination::parse(&query.parse_text("next").unwrap_or_default());
    // The issuer redirects to this page with the `state` that the sign-out sent: the notification's code.
    let message = query.parse_text("notice").or_else(|| query.parse_text("state"));
    // This page needs no session, so a link from another site can select the notification.
    let message = message.and_then(|code| PageMessage::from_code(&code));
    let message = message.filter(|message| message.is_about_sign_in());
    let is_again = matches!(message, Some(PageMessage::SignInAgain | PageMessage::SignInNotAgain));
    let again = is_again.then(|| "yes".to_owned());
    sign_in_page(
        &path_with_query(START, [("next", next.to_query_parameter()), ("again", again)]),
        message,
    )
    .into_response()
}

/// Redirects to the issuer, or to the sign-in page if the request comes from another site.
async fn start_sign_in(State(people): State<Arc<People>>, parts: Parts) -> Result<Response, Failure> {
    let origin = request_origin(&people, &parts)?;
    let mut query = Query::from_uri(&parts.uri);
    let (next, again) = (query.parse_text("next").unwrap_or_default(), query.parse_text("again"));
    let next = Destination::parse(&next);
    if is_from_another_site(&parts.headers) {
        return Ok(match again {
            Some(_) => redirect_to_sign_in_again(&next),
            None => see_other(&path_with_query(SIGN_IN, [("next", next.to_query_parameter())])),
        });
    }
    let pending = PendingSignIn::new(next, again.is_some(), people.now())?;
    let metadata = people.sessions.oidc_metadata(people.now()).await?;
    let question = pending.authorization_url(
        &metadata.authorization_endpoint,
        people.sessions.client_id(),
        &format!("{origin}{CALLBACK}"),
        people.limits.recent,
    );
    let value = pending.to_cookie(&people.sign_in_key);
    let cookie = Cookie::PendingSignIn(pending.tag()).set_cookie_header(&origin, &value, SIGN_IN_TIMEOUT)?;
    let mut response = with_cookies(see_other(question.as_str()), [cookie]);
    for tag in sign_in_tags_to_drop(&people, &origin, &parts.headers, value.len()) {
        let cleared = Cookie::PendingSignIn(tag).clear_cookie_header(&origin)?;
        response.headers_mut().append(header::SET_COOKIE, cleared);
    }
    Ok(response)
}

/// Returns the tags of the pending sign-ins to drop before a cookie of `new_cookie_bytes` bytes is set: all invalid
/// sign-ins, and the oldest sign-ins above [`MAX_PENDING_BYTES`].
fn sign_in_tags_to_drop<'a>(
    people: &People,
    origin: &Origin,
    headers: &'a HeaderMap,
    new_cookie_bytes: usize,
) -> Vec<&'a str> {
    let mut pending: Vec<_> = pending_sign_in_cookies(headers, origin)
        .filter(|(tag, _)| PendingSignIn::sign_in_tag_from_state(tag) == Some(*tag))
        .map(|(tag, value)| {
            let read = PendingSignIn::from_cookie(value, &people.sign_in_key, people.now());
            (read.map(|read| read.ends_at()), value.len(), tag)
        })
        .collect();
    pending.sort_unstable_by(|left, right| right.cmp(left));
    let mut total = new_cookie_bytes;
    let mut is_surplus = |ends_at: Option<Timestamp>, bytes| {
        total = total.saturating_add(bytes);
        ends_at.is_none() || total > MAX_PENDING_BYTES
    };
    let surplus = pending
        .into_iter()
        .filter(|(ends_at, bytes, _)| is_surplus(*ends_at, *bytes));
    surplus.map(|(_, _, tag)| tag).collect()
}

/// Returns whether another site sent the browser here (W3C Fetch Metadata §2.3), which must not sign the user in.
fn is_from_another_site(headers: &HeaderMap) -> bool {
    let sites = headers.get_all("sec-fetch-site");
    sites.iter().any(|site| site != "same-origin" && site != "none")
}

/// Starts a session from the issuer's response, or redirects with a notification about the failure.
async fn handle_sign_in_callback(State(people): State<Arc<People>>, parts: Parts) -> Result<Response, Failure> {
    let origin = request_origin(&people, &parts)?;
    let mut query = Query::from_uri(&parts.uri);
    let (code, state) = (query.parse_text("code"), query.parse_text("state").unwrap_or_default());
    let reject = || {
        info!(reason = "sign_in_stale", "sign_in.refused");
        see_other(&sign_in_address(&Destination::overview(), PageMessage::SignInStale))
    };
    let Some(cookie) = PendingSignIn::sign_in_tag_from_state(&state).map(Cookie::PendingSignIn) else {
        return Ok(reject());
    };
    let over = cookie.clear_cookie_header(&origin)?;
    let pending = cookie.find_value(&parts.headers, &origin);
    let pending = pending.and_then(|value| PendingSignIn::from_cookie(&value, &people.sign_in_key, people.now()));
    let Some(pending) = pending.as_ref().filter(|pending| pending.matches_state(&state)) else {
        return Ok(with_cookies(reject(), [over]));
    };
    let back = |message| {
        with_cookies(
            see_other(&sign_in_address(pending.destination(), message)),
            [over.clone()],
        )
    };
    // The issuer or the user rejected the sign-in (RFC 6749 §4.1.2.1).
    let Some(code) = code else {
        info!(reason = "refused_by_issuer", "sign_in.refused");
        return Ok(back(PageMessage::SignInFailed));
    };
    // Limits how often a caller with valid cookies can make Purser call the issuer.
    people.count_request(&parts).await?;
    match create_session(&people, &origin, pending, &code, &parts).await {
        Ok(SignedIn::Session(session)) => Ok(with_cookies(see_other(pending.destination().as_str()), [session, over])),
        Ok(SignedIn::NotAgain) => Ok(back(PageMessage::SignInNotAgain)),
        Ok(SignedIn::TooEarly) => Ok(back(PageMessage::SignInAgain)),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidSession) => Ok(back(PageMessage::SignInFailed)),
        Err(error) => Err(error.into()),
    }
}

enum SignedIn {
    /// The `Set-Cookie` header of the new session.
    Session(HeaderValue),
    /// The issuer did not authenticate the user again, although it was asked to.
    NotAgain,
    /// The user ended all sessions after this sign-in.
    TooEarly,
}

/// Exchanges a code for a new session. Returns 401 `invalid_session` if the code belongs to another sign-in.
async fn create_session(
    people: &People,
    origin: &Origin,
    pending: &PendingSignIn,
    code: &str,
    parts: &Parts,
) -> Result<SignedIn> {
    let redirect_uri = format!("{origin}{CALLBACK}");
    let code = AuthorizationCode {
        code,
        code_verifier: pending.pkce_verifier(),
        redirect_uri: &redirect_uri,
    };
    let now = people.now();
    let token = people.sessions.exchange_code(code, now).await?;
    let source = request_source(parts);
    let user = match people.sessions.check_entitlement(&token, now).await? {
        EntitlementCheck::Entitled(user) => user,
        EntitlementCheck::NotEntitled(user_id, refused) => {
            people.reject_sign_in(&user_id, source, "entitlement").await?;
            return Err(refused);
        }
    };
    if !pending.matches_nonce(user.nonce.as_deref()) {
        people.reject_sign_in(&user.person.id, source, "nonce").await?;
        return Err(ErrorKind::InvalidSession.into());
    }
    let was_asked = user.has_auth_time
        && people
            .limits
            .require_recent_sign_in(user.person.signed_in_at, now)
            .is_ok();
    if pending.is_reauthentication_required() && !was_asked {
        people
            .reject_sign_in(&user.person.id, source, "not_asked_again")
            .await?;
        return Ok(SignedIn::NotAgain);
    }
    let secret = BASE64_URL_SAFE_NO_PAD.encode(people.entropy.random_bytes::<32>()?);
    match people.start_session(&user, &secret, source).await? {
        StartSessionResult::SignedInTooEarly => Ok(SignedIn::TooEarly),
        StartSessionResult::Stored => {
            end_current_session(people, origin, parts).await;
            let cookie = session_cookie(&user.person.id, &secret);
            Ok(SignedIn::Session(Cookie::Session.set_cookie_header(
                origin,
                &cookie,
                people.limits.longest,
            )?))
        }
    }
}

/// Ends the browser's current session. If the write fails, the session ends when it expires.
async fn end_current_session(people: &People, origin: &Origin, parts: &Parts) {
    let cookie = Cookie::Session.find_value(&parts.headers, origin);
    let Some((user, id)) = cookie.as_deref().and_then(parse_session_cookie) else {
        return;
    };
    let acting = Acting {
        actor: Actor::Person {
            id: user.clone(),
            session: Some(id.clone()),
        },
        source: request_source(parts),
    };
    if let Err(error) = people.end_session_if_open(&acting, &user, &id).await {
        warn!(cause = %error, "session.not_ended");
    }
}

/// Responds with a page that redirects, because `form-action 'self'` blocks a redirect to the issuer.
async fn sign_out(State(people): State<Arc<People>>, parts: Parts, form: VerifiedForm) -> Result<Response, Failure> {
    let origin = request_origin(&people, &parts)?;
    let (user, id) = (&form.session.person, &form.session.id);
    // If the session has already ended, the sign-out continues.
    people.end_session_if_open(&user.acting, &user.id, id).await?;
    // The sign-out succeeds even if the issuer's metadata can't be read.
    let metadata = people.sessions.oidc_metadata(people.now()).await.ok();
    let response = match metadata
        .as_ref()
        .and_then(|metadata| metadata.end_session_endpoint.as_ref())
    {
        Some(endpoint) => {
            issuer_sign_out_page(logout_url(endpoint, people.sessions.client_id(), &origin).as_str()).into_response()
        }
        None => see_other(&sign_in_address(&Destination::overview(), PageMessage::SignedOut)),
    };
    Ok(with_cookies(response, [Cookie::Session.clear_cookie_header(&origin)?]))
}

/// Returns the issuer's sign-out URL (OpenID Connect RP-Initiated Logout 1.0 §2, and `logout_uri` for Cognito).
fn logout_url(endpoint: &Url, client_id: &str, origin: &Origin) -> Url {
    let back = format!("{origin}{SIGN_IN}");
    let mut url = endpoint.clone();
    url.query_pairs_mut()
        .append_pair("client_id", client_id)
        .append_pair("post_logout_redirect_uri", &back)
        .append_pair("logout_uri", &back)
        .append_pair("state", PageMessage::SignedOut.code());
    url
}

/// Renders the page for users without a session. Its button opens `start`, which redirects to the issuer.
pub(crate) fn sign_in_page(start: &str, message: Option<PageMessage>) -> Markup {
    html_document(
        "Sign in",
        None,
        &centered_card(&html! {
            @if let Some(page_message) = message { (page_message_box(page_message)) }
            h1 { "Your agents spend. You decide." }
            p { "Set what each agent may pay for, approve what it asks for, and see every payment and every refusal." }
            a.primary.wide href=(start) { "Sign in" }
            p.hint { "You sign in with your identity provider. Purser never sees your password." }
        }),
    )
}

/// Redirects with a `meta` element, because `form-action 'self'` blocks forms that lead to other sites.
pub(crate) fn issuer_sign_out_page(next: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (html_head("Signing out"))
                meta http-equiv="refresh" content=(format!("0;url={next}"));
            }
            body {
                (centered_card(&html! {
                    h1 { "Signing out" }
                    p { "Your session here has ended. Your identity provider signs you out next." }
                    a.primary.wide href=(next) { "Go on" }
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Extensions;

    #[test]
    fn sign_out_redirects_to_the_sign_in_page() {
        let origin = Origin::for_request(Some("https://purser.example"), &Extensions::new()).unwrap();
        let endpoint = Url::parse("https://issuer.example/logout?x=1").unwrap();
        let url = logout_url(&endpoint, "client", &origin);
        let back = "https%3A%2F%2Fpurser.example%2Fdashboard%2Fsign-in";
        let expected = format!(
            "https://issuer.example/logout?x=1&client_id=client&post_logout_redirect_uri={back}&logout_uri={back}&state=signed_out"
        );
        assert_eq!(url.as_str(), expected);
    }
}
