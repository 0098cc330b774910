//! The session of a page request, and the checks of the forms that the session posts.
//!
//! Invariant: a form is handled only if it comes from the dashboard's origin, with the session's cookie and form token.

use crate::address::path_with_query;
use crate::caller::Caller;
use crate::redirect::see_other;
use crate::sessions::cookie::Cookie;
use crate::sessions::destination::Destination;
use crate::sessions::form_token::FormToken;
use crate::sessions::origin::Origin;
use crate::state::People;
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, Method, Uri, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use purser_api::{Failure, MailClaim, Person, request_source, require_same_origin};
use purser_domain::{Error, ErrorKind, Result, Session, SessionId, UserId};
use std::sync::Arc;
use url::{Position, Url};

pub(crate) const SIGN_IN: &str = "/dashboard/sign-in";

/// Users without a session are redirected to the sign-in page.
pub(crate) struct PageSession {
    pub(crate) person: Caller,
    pub(crate) id: SessionId,
    /// The CSRF token that the page's forms send.
    pub(crate) token: FormToken,
    /// Whether the user may open the operators' pages.
    pub(crate) is_operator: bool,
}

impl PageSession {
    /// Returns 401 `invalid_session` without an open session. `counts_as_activity` keeps the session from becoming idle.
    async fn for_request(
        parts: &Parts,
        body: &[u8],
        origin: &Origin,
        people: &People,
        counts_as_activity: bool,
    ) -> Result<Self> {
        let cookie = Cookie::Session
            .find_value(&parts.headers, origin)
            .ok_or(ErrorKind::InvalidSession)?;
        let (user, id) = parse_session_cookie(&cookie).ok_or(ErrorKind::InvalidSession)?;
        let stops = parts.extensions.get::<Stops>().is_some_and(|stops| (stops.0)(body));
        let session = people
            .require_open_session(&user, &id, counts_as_activity, stops)
            .await?;
        let Session {
            id,
            person: user,
            name,
            signed_in_at,
            is_operator,
            ..
        } = session;
        let user = Person {
            id: user,
            name,
            mail: MailClaim::Absent,
            signed_in_at,
        };
        Ok(Self {
            person: Caller::new(user, Some(id.clone()), request_source(parts)),
            id,
            token: FormToken::for_session(&cookie, people.entropy.random_bytes()?),
            is_operator,
        })
    }

    pub(crate) fn user_name(&self) -> &str {
        self.person.name.as_deref().unwrap_or("somebody without a name")
    }
}

impl FromRequestParts<Arc<People>> for PageSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Response> {
        let origin = request_origin(people, parts).map_err(error_response)?;
        let session = Self::for_request(parts, &[], &origin, people, true).await;
        session.map_err(|error| redirect_to_sign_in(error, &parts.method, &parts.uri))
    }
}

/// Marks a route that can stop agents or end sessions, by the request's body. Such requests have a higher limit.
#[derive(Clone, Copy)]
pub(crate) struct Stops(pub(crate) fn(&[u8]) -> bool);

impl Stops {
    pub(crate) const ALWAYS: Self = Self(|_| true);
}

/// The session of an operator. For other users, the response is 404.
pub(crate) struct OperatorSession(pub(crate) PageSession);

impl FromRequestParts<Arc<People>> for OperatorSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Response> {
        let session = PageSession::from_request_parts(parts, people).await?;
        if session.is_operator {
            Ok(Self(session))
        } else {
            Err(error_response(ErrorKind::NotFound.into()))
        }
    }
}

/// Returns the value of a session cookie: the user id and the session's secret.
pub(crate) fn session_cookie(user: &UserId, secret: &str) -> String {
    format!("{user}.{secret}")
}

/// Parses a cookie's value into the user id and the session's id. The session is not looked up.
pub(crate) fn parse_session_cookie(cookie: &str) -> Option<(UserId, SessionId)> {
    let (user, secret) = cookie.split_once('.')?;
    Some((UserId::parse(user)?, SessionId::from_secret(secret)))
}

/// The session of a polling script. Without a session, the response is 401 instead of a redirect.
pub(crate) struct PollSession(pub(crate) PageSession);

impl FromRequestParts<Arc<People>> for PollSession {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Failure> {
        let origin = request_origin(people, parts)?;
        // Polling does not keep the session alive.
        Ok(Self(
            PageSession::for_request(parts, &[], &origin, people, false).await?,
        ))
    }
}

/// A form whose origin, session cookie and form token were checked.
pub(crate) struct VerifiedForm {
    pub(crate) session: PageSession,
    body: Bytes,
}

impl VerifiedForm {
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

impl FromRequest<Arc<People>> for VerifiedForm {
    type Rejection = Response;

    async fn from_request(request: Request, people: &Arc<People>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let origin = request_origin(people, &parts).map_err(error_response)?;
        require_same_origin(&parts.headers, origin.as_str()).map_err(error_response)?;
        let body = Bytes::from_request(Request::new(body), people)
            .await
            .map_err(|error| error_response(Error::internal("reading the body of a form", error)))?;
        let session = PageSession::for_request(&parts, &body, &origin, people, true).await;
        let session = session.map_err(|error| redirect_to_sign_in(error, &parts.method, &parts.uri))?;
        if !session.token.matches_form(&body) {
            return Err(error_response(ErrorKind::CrossSiteRequest.into()));
        }
        Ok(Self { session, body })
    }
}

pub(crate) fn request_origin(people: &People, parts: &Parts) -> Result<Origin> {
    Origin::for_request(people.dashboard_url.as_deref(), &parts.extensions)
}

/// Returns the page that contains the form, to which a new sign-in returns.
pub(crate) fn referring_page(headers: &HeaderMap) -> Destination {
    let referrer = headers.get(header::REFERER).and_then(|value| value.to_str().ok());
    let url = referrer.and_then(|text| Url::parse(text).ok());
    let path = url.map(|url| url[Position::BeforePath..Position::AfterQuery].to_owned());
    Destination::parse(&path.unwrap_or_default())
}

fn error_response(error: Error) -> Response {
    Failure::from(error).into_response()
}

/// Redirects to the sign-in page. A form's values are dropped, because another user might sign in.
fn redirect_to_sign_in(error: Error, method: &Method, uri: &Uri) -> Response {
    if !matches!(error.kind(), ErrorKind::InvalidSession) {
        return error_response(error);
    }
    let request = uri.path_and_query().map_or("", |request| request.as_str());
    let request = if method == Method::GET { request } else { "" };
    see_other(&path_with_query(
        SIGN_IN,
        [("next", Destination::parse(request).to_query_parameter())],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    /// Only a `GET` request for a dashboard page is remembered.
    #[test]
    fn sign_in_returns_only_to_the_requested_page() {
        let rows = [
            (Method::GET, "/dashboard", "/dashboard/sign-in"),
            (
                Method::GET,
                "/dashboard/decisions?result=block",
                "/dashboard/sign-in?next=%2Fdashboard%2Fdecisions%3Fresult%3Dblock",
            ),
            (Method::POST, "/dashboard/agents/1/freeze", "/dashboard/sign-in"),
            (Method::GET, "//evil.example/dashboard", "/dashboard/sign-in"),
        ];
        for (method, asked, expected) in rows {
            let response = redirect_to_sign_in(ErrorKind::InvalidSession.into(), &method, &asked.parse().unwrap());
            assert_eq!(response.status(), StatusCode::SEE_OTHER);
            assert_eq!(response.headers()[header::LOCATION], expected);
        }
        let broken = redirect_to_sign_in(
            Error::internal("testing", "no"),
            &Method::GET,
            &Uri::from_static("/dashboard"),
        );
        assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
