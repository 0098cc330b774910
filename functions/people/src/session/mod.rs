//! Who is signed in: the session of a page, and what a form must carry to act in it.
//!
//! The session is an ID token in a cookie: there is no session table, and the session ends when the token expires. It
//! is created in `pages/sign_in.rs`.
//!
//! Always true: a page needs a verified token; a form is handled only if it comes from our own origin, with the
//! session's cookie, and with the form token of this session.

mod cookie;
mod destination;
mod form_token;
mod origin;
mod pending_sign_in;

pub(crate) use cookie::Cookie;
pub(crate) use destination::Destination;
pub(crate) use form_token::FormToken;
pub(crate) use origin::Origin;
pub(crate) use pending_sign_in::PendingSignIn;

use crate::address::address;
use crate::redirect::see_other;
use crate::state::People;
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, Method, Uri, request::Parts},
    response::{IntoResponse as _, Response},
};
use purser_api::{Failure, Person, same_origin};
use purser_domain::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The sign-in page.
pub(crate) const SIGN_IN: &str = "/dashboard/sign-in";

/// The session of a page. Without one, the person is redirected to sign in.
pub(crate) struct PageSession {
    /// Who it is.
    pub(crate) person: Person,
    /// For the forms of the page.
    pub(crate) token: FormToken,
}

impl PageSession {
    /// The session of a request; 401 `invalid_session` where there is none.
    async fn of(headers: &HeaderMap, origin: &Origin, people: &People) -> Result<Self> {
        let id_token = Cookie::Session.of(headers, origin).ok_or(ErrorKind::InvalidSession)?;
        let person = people.person(&id_token).await?;
        let token = FormToken::of(&id_token);
        Ok(Self { person, token })
    }

    /// The person's display name.
    pub(crate) fn name(&self) -> &str {
        self.person.name.as_deref().unwrap_or(&self.person.sub)
    }
}

impl FromRequestParts<Arc<People>> for PageSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Response> {
        let origin = origin_of(people, parts).map_err(failed)?;
        let session = Self::of(&parts.headers, &origin, people).await;
        session.map_err(|error| to_sign_in(error, &parts.method, &parts.uri))
    }
}

/// The session of a polling script. Without one it gets 401, where a page would be redirected to sign in.
pub(crate) struct PollSession(pub(crate) PageSession);

impl FromRequestParts<Arc<People>> for PollSession {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Failure> {
        let origin = origin_of(people, parts)?;
        Ok(Self(PageSession::of(&parts.headers, &origin, people).await?))
    }
}

/// A form that was sent by one of our own pages, rendered for this session.
pub(crate) struct VerifiedForm {
    /// Who sent it.
    pub(crate) session: PageSession,
    body: Bytes,
}

impl VerifiedForm {
    /// The form's body as sent.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

impl FromRequest<Arc<People>> for VerifiedForm {
    type Rejection = Response;

    async fn from_request(request: Request, people: &Arc<People>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let origin = origin_of(people, &parts).map_err(failed)?;
        same_origin(&parts.headers, origin.as_str()).map_err(failed)?;
        let session = PageSession::of(&parts.headers, &origin, people).await;
        let session = session.map_err(|error| to_sign_in(error, &parts.method, &parts.uri))?;
        let request = Request::from_parts(parts, body);
        let body = Bytes::from_request(request, people)
            .await
            .map_err(|error| failed(Error::internal("reading a form", error)))?;
        if !session.token.is_in(&body) {
            return Err(failed(ErrorKind::CrossSiteRequest.into()));
        }
        Ok(Self { session, body })
    }
}

/// The origin of a request.
pub(crate) fn origin_of(people: &People, parts: &Parts) -> Result<Origin> {
    Origin::of(people.dashboard_url.as_deref(), &parts.extensions)
}

fn failed(error: Error) -> Response {
    Failure::from(error).into_response()
}

/// Redirects a person without a session to sign in, and then back to the page. A typed form is lost then, but is never
/// sent by another person.
fn to_sign_in(error: Error, method: &Method, uri: &Uri) -> Response {
    if !matches!(error.kind(), ErrorKind::InvalidSession) {
        return failed(error);
    }
    let asked = uri.path_and_query().map_or("", |asked| asked.as_str());
    let asked = if method == Method::GET { asked } else { "" };
    see_other(&address(SIGN_IN, [("next", Destination::parse(asked).as_parameter())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{StatusCode, header};

    #[test]
    fn whoever_has_no_session_comes_back_to_the_page_they_asked_for_and_to_no_other_site() {
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
            let response = to_sign_in(ErrorKind::InvalidSession.into(), &method, &asked.parse().unwrap());
            assert_eq!(response.status(), StatusCode::SEE_OTHER);
            assert_eq!(response.headers()[header::LOCATION], expected);
        }
        let broken = to_sign_in(
            Error::internal("testing", "no"),
            &Method::GET,
            &Uri::from_static("/dashboard"),
        );
        assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
