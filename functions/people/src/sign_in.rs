//! Signing in and out, and who is signed in.
//!
//! A person signs in where their account is: the authorization code flow with PKCE (RFC 6749 §4.1, RFC 7636, OpenID
//! Connect Core §3.1). What comes of it is an ID token, and the session is that token in a cookie: there is no session
//! table, and the session ends when the token does.
//!
//! Always true: a page is shown to a verified token alone; a form does something only when it comes from our own origin,
//! with the session's cookie, and with the token that this session's pages put into their forms; and the way in leads to
//! our own pages only.

mod attempt;
mod cookie;
mod destination;
mod origin;

use crate::ops::owned::Owned;
use crate::pages::{Form, FormName, FormToken, Notice, leaving_page, sign_in_page};
use crate::state::Dashboard;
use attempt::Attempt;
use axum::{
    Router,
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use cookie::Cookie;
use destination::Destination;
use origin::Origin;
use purser_api::{AuthorizationCode, Failure, Person, Query, same_origin};
use purser_domain::{AgentId, Duration, Error, ErrorKind, Result, Url};
use std::sync::Arc;
use url::form_urlencoded;

const SIGN_IN: &str = "/dashboard/sign-in";
const CALLBACK: &str = "/dashboard/callback";

/// How long a person may take at the issuer.
const PATIENCE: Duration = Duration::from_secs_u32(600);

/// The way in and out.
pub(crate) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route(SIGN_IN, get(ask))
        .route("/dashboard/sign-in/start", get(start))
        .route(CALLBACK, get(callback))
        .route("/dashboard/sign-out", post(sign_out))
}

/// Somebody who is signed in, looking at a page. Others are sent to sign in first.
pub(crate) struct Visitor {
    /// Who it is.
    pub(crate) person: Person,
    /// For the forms of the page.
    pub(crate) token: FormToken,
}

impl Visitor {
    /// The visitor behind a request; 401 `invalid_session` where there is none.
    async fn of(headers: &HeaderMap, origin: &Origin, dashboard: &Dashboard) -> Result<Self> {
        let session = Cookie::Session.of(headers, origin).ok_or(ErrorKind::InvalidSession)?;
        let person = dashboard.person(&session).await?;
        let token = FormToken::of(&session);
        Ok(Self { person, token })
    }

    /// What to call them.
    pub(crate) fn name(&self) -> &str {
        self.person.name.as_deref().unwrap_or(&self.person.sub)
    }
}

impl FromRequestParts<Arc<Dashboard>> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let origin = origin_of(dashboard, parts).map_err(failed)?;
        let visitor = Self::of(&parts.headers, &origin, dashboard).await;
        visitor.map_err(|error| to_sign_in(error, &parts.method, &parts.uri))
    }
}

/// A script that watches for what waits. It is told 401 where a page would be sent to sign in.
pub(crate) struct Watcher(pub(crate) Visitor);

impl FromRequestParts<Arc<Dashboard>> for Watcher {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, dashboard: &Arc<Dashboard>) -> Result<Self, Failure> {
        let origin = origin_of(dashboard, parts)?;
        Ok(Self(Visitor::of(&parts.headers, &origin, dashboard).await?))
    }
}

/// A form that was sent by one of our own pages, made for this very session.
pub(crate) struct Posted {
    /// Who sent it.
    pub(crate) visitor: Visitor,
    body: Bytes,
}

impl Posted {
    /// The agent that the form is about, if it is the sender's own.
    pub(crate) async fn own_agent(&self, dashboard: &Dashboard, named: &str) -> Result<Owned> {
        let id = AgentId::parse(named).ok_or(ErrorKind::NotFound)?;
        dashboard.own_agent(&self.visitor.person, id).await
    }

    /// What was typed.
    pub(crate) fn form(&self, name: FormName) -> Form {
        Form::of(name, &self.body)
    }
}

impl FromRequest<Arc<Dashboard>> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let origin = origin_of(dashboard, &parts).map_err(failed)?;
        same_origin(&parts.headers, origin.as_str()).map_err(failed)?;
        let visitor = Visitor::of(&parts.headers, &origin, dashboard).await;
        let visitor = visitor.map_err(|error| to_sign_in(error, &parts.method, &parts.uri))?;
        let request = Request::from_parts(parts, body);
        let body = Bytes::from_request(request, dashboard)
            .await
            .map_err(|error| failed(Error::internal("reading a form", error)))?;
        if !visitor.token.is_in(&body) {
            return Err(failed(ErrorKind::CrossSiteRequest.into()));
        }
        Ok(Self { visitor, body })
    }
}

fn origin_of(dashboard: &Dashboard, parts: &Parts) -> Result<Origin> {
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
    see_other(&sign_in_address(&Destination::parse(asked), None))
}

fn sign_in_address(next: &Destination, notice: Option<Notice>) -> String {
    address(SIGN_IN, next, notice)
}

fn address(path: &str, next: &Destination, notice: Option<Notice>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if *next != Destination::overview() {
        query.append_pair("next", next.as_str());
    }
    if let Some(notice) = notice {
        query.append_pair("notice", notice.code());
    }
    let query = query.finish();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

/// 303, by which a POST becomes the GET of a page (RFC 9110 §15.4.4). The addresses are our own, or an issuer's that the
/// URL reader has written.
pub(crate) fn see_other(address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        Err(error) => failed(Error::internal("leading to another page", error)),
    }
}

fn with_cookies<const N: usize>(mut response: Response, cookies: [HeaderValue; N]) -> Response {
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// `GET /dashboard/sign-in`: the page with the button.
async fn ask(uri: Uri) -> Response {
    let mut query = Query::of(&uri);
    let next = Destination::parse(&query.text("next").unwrap_or_default());
    // An issuer that signed somebody out hands back the `state` that it was given.
    let notice = query.text("notice").or_else(|| query.text("state"));
    let notice = notice.and_then(|code| Notice::from_code(&code));
    sign_in_page(&address("/dashboard/sign-in/start", &next, None), notice).into_response()
}

/// `GET /dashboard/sign-in/start`: on to the issuer.
async fn start(State(dashboard): State<Arc<Dashboard>>, parts: Parts) -> Result<Response, Failure> {
    let origin = origin_of(&dashboard, &parts)?;
    let next = Query::of(&parts.uri).text("next").unwrap_or_default();
    let attempt = Attempt::new(Destination::parse(&next))?;
    let provider = dashboard.sessions.provider(dashboard.now()).await?;
    let question = attempt.question(
        &provider.authorization_endpoint,
        dashboard.sessions.client_id(),
        &format!("{origin}{CALLBACK}"),
    );
    let cookie = Cookie::Attempt.set(&origin, &attempt.to_cookie(), PATIENCE)?;
    Ok(with_cookies(see_other(question.as_str()), [cookie]))
}

/// `GET /dashboard/callback`: the issuer's answer becomes the session, or a notice why it does not.
async fn callback(State(dashboard): State<Arc<Dashboard>>, parts: Parts) -> Result<Response, Failure> {
    let origin = origin_of(&dashboard, &parts)?;
    let attempt = Cookie::Attempt.of(&parts.headers, &origin);
    let attempt = attempt.as_deref().and_then(Attempt::from_cookie);
    let over = Cookie::Attempt.clear(&origin)?;
    let back = |notice| {
        let next = attempt
            .as_ref()
            .map_or_else(Destination::overview, |attempt| attempt.destination().clone());
        with_cookies(see_other(&sign_in_address(&next, Some(notice))), [over.clone()])
    };

    let mut query = Query::of(&parts.uri);
    let (code, state) = (query.text("code"), query.text("state").unwrap_or_default());
    let Some(attempt) = attempt.as_ref().filter(|attempt| attempt.is_answered_by(&state)) else {
        return Ok(back(Notice::SignInStale));
    };
    // The issuer said no, or the person did (RFC 6749 §4.1.2.1).
    let Some(code) = code else {
        return Ok(back(Notice::SignInFailed));
    };
    match session(&dashboard, &origin, attempt, &code).await {
        Ok(session) => Ok(with_cookies(see_other(attempt.destination().as_str()), [session, over])),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidSession) => Ok(back(Notice::SignInFailed)),
        Err(error) => Err(error.into()),
    }
}

/// The session's cookie for a code; 401 `invalid_session` where the code, or the token that it becomes, is not this
/// sign-in's.
async fn session(dashboard: &Dashboard, origin: &Origin, attempt: &Attempt, code: &str) -> Result<HeaderValue> {
    let redirect_uri = format!("{origin}{CALLBACK}");
    let code = AuthorizationCode {
        code,
        code_verifier: attempt.verifier(),
        redirect_uri: &redirect_uri,
    };
    let now = dashboard.now();
    let token = dashboard.sessions.exchange(code, now).await?;
    let person = dashboard.sessions.person(&token, now).await?;
    if !attempt.is_meant_by(person.nonce.as_deref()) {
        return Err(ErrorKind::InvalidSession.into());
    }
    Cookie::Session.set(origin, &token, person.expires_at.since(now))
}

/// `POST /dashboard/sign-out`: ends our session, then the issuer's.
///
/// The issuer is another site, where `form-action 'self'` lets no form lead, by redirection neither; so the answer is a
/// page that goes on by itself.
async fn sign_out(State(dashboard): State<Arc<Dashboard>>, parts: Parts, _: SignOut) -> Result<Response, Failure> {
    let origin = origin_of(&dashboard, &parts)?;
    // Our own session ends, whether or not the issuer can be asked about its.
    let provider = dashboard.sessions.provider(dashboard.now()).await.ok();
    let answer = match provider
        .as_ref()
        .and_then(|provider| provider.end_session_endpoint.as_ref())
    {
        Some(endpoint) => {
            leaving_page(farewell(endpoint, dashboard.sessions.client_id(), &origin).as_str()).into_response()
        }
        None => see_other(&sign_in_address(&Destination::overview(), Some(Notice::SignedOut))),
    };
    Ok(with_cookies(answer, [Cookie::Session.clear(&origin)?]))
}

/// Where the issuer's own session ends, and where it leads back to (OpenID Connect RP-Initiated Logout 1.0 §2). Cognito
/// calls the last parameter `logout_uri`; whoever does not know one of the two ignores it.
fn farewell(endpoint: &Url, client_id: &str, origin: &Origin) -> Url {
    let back = format!("{origin}{SIGN_IN}");
    let mut url = endpoint.clone();
    url.query_pairs_mut()
        .append_pair("client_id", client_id)
        .append_pair("post_logout_redirect_uri", &back)
        .append_pair("logout_uri", &back)
        .append_pair("state", Notice::SignedOut.code());
    url
}

/// The form that signs out. It needs a session like every other; without one there is nothing to end.
struct SignOut;

impl FromRequest<Arc<Dashboard>> for SignOut {
    type Rejection = Response;

    async fn from_request(request: Request, dashboard: &Arc<Dashboard>) -> Result<Self, Response> {
        Posted::from_request(request, dashboard).await.map(|_| Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Extensions;

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

    #[test]
    fn signing_out_leads_back_to_the_page_that_the_issuer_knows() {
        let origin = Origin::of(Some("https://purser.example"), &Extensions::new()).unwrap();
        let endpoint = Url::parse("https://issuer.example/logout?x=1").unwrap();
        let url = farewell(&endpoint, "client", &origin);
        let back = "https%3A%2F%2Fpurser.example%2Fdashboard%2Fsign-in";
        let expected = format!(
            "https://issuer.example/logout?x=1&client_id=client&post_logout_redirect_uri={back}&logout_uri={back}&state=signed_out"
        );
        assert_eq!(url.as_str(), expected);
    }
}
