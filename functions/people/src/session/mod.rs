//! Who is signed in: the session of a page, and what a form has to show to act in it.
//!
//! The session is an ID token in a cookie: there is no session table, and the session ends when the token does. How it
//! comes to be is `pages/sign_in.rs`.
//!
//! Always true: a page is shown to a verified token alone; a form does something only when it comes from our own origin,
//! with the session's cookie, and with the token that this session's pages put into their forms.

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
use crate::state::Dashboard;
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, Method, Uri, request::Parts},
    response::{IntoResponse as _, Response},
};
use purser_api::{Failure, Person, same_origin};
use purser_domain::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The page that asks to sign in.
pub(crate) const SIGN_IN: &str = "/dashboard/sign-in";

/// Somebody who is signed in, looking at a page. Others are sent to sign in first.
pub(crate) struct PageSession {
    /// Who it is.
    pub(crate) person: Person,
    /// For the forms of the page.
    pub(crate) token: FormToken,
}

impl PageSession {
    /// The session behind a request; 401 `invalid_session` where there is none.
    async fn of(headers: &HeaderMap, origin: &Origin, dashboard: &Dashboard) -> Result<Self> {
        let id_token = Cookie::Session.of(headers, origin).ok_or(ErrorKind::InvalidSession)?;
        let person = dashboard.person(&id_token).await?;
        let token = FormToken::of(&id_token);
        Ok(Self { person, token })
    }

    /// What to call them.
    pub(crate) fn name(&self) -> &str {
        self.person.name.as_deref().unwrap_or(&self.person.sub)
    }
}

impl FromRequestParts<Arc<Dashboard>> for PageSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let origin = origin_of(dashboard, parts).map_err(failed)?;
        let session = Self::of(&parts.headers, &origin, dashboard).await;
        session.map_err(|error| to_sign_in(error, &parts.method, &parts.uri))
    }
}

/// A script that watches for what waits. It is told 401 where a page would be sent to sign in.
pub(crate) struct PollSession(pub(crate) PageSession);

impl FromRequestParts<Arc<Dashboard>> for PollSession {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, dashboard: &Arc<Dashboard>) -> Result<Self, Failure> {
        let origin = origin_of(dashboard, parts)?;
        Ok(Self(PageSession::of(&parts.headers, &origin, dashboard).await?))
    }
}

/// A form that was sent by one of our own pages, made for this very session.
pub(crate) struct VerifiedForm {
    /// Who sent it.
    pub(crate) session: PageSession,
    body: Bytes,
}

impl VerifiedForm {
    /// What was typed, as it was sent.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

impl FromRequest<Arc<Dashboard>> for VerifiedForm {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let origin = origin_of(dashboard, &parts).map_err(failed)?;
        same_origin(&parts.headers, origin.as_str()).map_err(failed)?;
        let session = PageSession::of(&parts.headers, &origin, dashboard).await;
        let session = session.map_err(|error| to_sign_in(error, &parts.method, &parts.uri))?;
        let request = Request::from_parts(parts, body);
        let body = Bytes::from_request(request, dashboard)
            .await
            .map_err(|error| failed(Error::internal("reading a form", error)))?;
        if !session.token.is_in(&body) {
            return Err(failed(ErrorKind::CrossSiteRequest.into()));
        }
        Ok(Self { session, body })
    }
}

/// The origin that a request came to.
pub(crate) fn origin_of(dashboard: &Dashboard, parts: &Parts) -> Result<Origin> {
    Origin::of(dashboard.dashboard_url.as_deref(), &parts.extensions)
}

fn failed(error: Error) -> Response {
    Failure::from(error).into_response()
}

/// Sends somebody without a session to sign in, and back to where they were. What was typed into a form is lost then, but
/// never sent by somebody else.
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
