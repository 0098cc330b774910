//! A browser with cookies and forms. It does not follow redirects automatically.

use super::World;
use crate::laws;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, header};
use http_body_util::BodyExt as _;
use std::collections::BTreeMap;
use tower::ServiceExt as _;
use url::{Url, form_urlencoded};

pub(crate) const ORIGIN: &str = "http://127.0.0.1:3000";

pub(crate) struct Browser<'a> {
    world: &'a World,
    pub(crate) cookies: BTreeMap<String, String>,
    /// Maps the URL of a redirect with a report to the signed URL, which [`Browser::get`] uses.
    pub(crate) signed: BTreeMap<String, String>,
}

/// A response that a browser received.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) html: String,
}

impl Seen {
    /// Returns the redirect's target.
    #[track_caller]
    pub(crate) fn leads(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.html);
        self.headers[header::LOCATION].to_str().unwrap()
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16, text: &str) {
        assert_eq!(self.status, status, "{}", self.html);
        assert!(self.html.contains(text), "no `{text}` in {}", self.html);
    }

    /// Returns the value of the first input with this name.
    #[track_caller]
    pub(crate) fn input(&self, name: &str) -> String {
        let (_, rest) = self.html.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    /// Returns the version that the form with this action sends. `action` is the last part of the path.
    pub(crate) fn version_for(&self, action: &str) -> String {
        let (_, form) = self.html.split_once(&format!("/{action}\"")).unwrap();
        let (_, rest) = form.split_once("name=\"version\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

impl World {
    /// Returns a browser without a session.
    pub(crate) fn stranger(&self) -> Browser<'_> {
        Browser {
            world: self,
            cookies: BTreeMap::new(),
            signed: BTreeMap::new(),
        }
    }

    /// Returns the browser of a signed-in user.
    pub(crate) async fn browser(&self, who: &str) -> Browser<'_> {
        let mut browser = self.stranger();
        let back = browser.sign_in(who, "/dashboard/sign-in/start").await;
        assert_eq!(back.leads(), "/dashboard");
        browser
    }
}

/// Returns the parameters that are sent to the identity provider.
pub(crate) fn asked(seen: &Seen) -> BTreeMap<String, String> {
    let url = Url::parse(seen.leads()).unwrap();
    assert_eq!(url.path(), "/authorize");
    url.query_pairs().into_owned().collect()
}

/// Returns the URL to which the identity provider redirects after `who` signs in.
pub(crate) fn answer(who: &str, asked: &BTreeMap<String, String>) -> String {
    let (state, nonce, challenge) = (&asked["state"], &asked["nonce"], &asked["code_challenge"]);
    format!("/dashboard/callback?code={who}.{nonce}.{challenge}&state={state}")
}

impl Browser<'_> {
    /// Signs in, starting at this path. Returns the callback's response.
    pub(crate) async fn sign_in(&mut self, who: &str, start: &str) -> Seen {
        let asked = asked(&self.get(start).await);
        self.get(&answer(who, &asked)).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Seen {
        let path = self.signed.get(path).map_or(path, String::as_str).to_owned();
        self.open(&path).await
    }

    /// Opens exactly this URL, as a link does.
    pub(crate) async fn open(&mut self, path: &str) -> Seen {
        // Boxed, because a test function would otherwise store the future of each call.
        Box::pin(self.send(Method::GET, path, &[], String::new())).await
    }

    /// Submits a form of the page at `on`, with that page's token.
    pub(crate) async fn post(&mut self, on: &str, path: &str, fields: &[(&str, &str)]) -> Seen {
        let token = self.get(on).await.input("form_token");
        let fields = fields.iter().copied().chain([("form_token", token.as_str())]);
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let referrer = format!("{ORIGIN}{on}");
        let own = [
            ("origin", ORIGIN),
            ("sec-fetch-site", "same-origin"),
            ("referer", &referrer),
        ];
        Box::pin(self.send(Method::POST, path, &own, body)).await
    }

    pub(crate) async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Seen {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut request = Request::builder().method(method).uri(path);
        if !cookies.is_empty() {
            request = request.header(header::COOKIE, cookies.join("; "));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        self.world.catch_up().await;
        let response = self.world.router.clone().oneshot(request).await.unwrap();
        let (status, mut headers) = (response.status().as_u16(), response.headers().clone());
        let location = headers
            .get(header::LOCATION)
            .map(|location| location.to_str().unwrap().to_owned());
        if let Some((plain, _)) = location.as_deref().and_then(|signed| signed.rsplit_once("&report=")) {
            headers.insert(header::LOCATION, plain.parse().unwrap());
            self.signed.insert(plain.to_owned(), location.clone().unwrap());
        }
        for cookie in headers.get_all(header::SET_COOKIE) {
            let (pair, attributes) = cookie.to_str().unwrap().split_once("; ").unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            assert!(
                attributes.contains("HttpOnly") && attributes.contains("SameSite=Lax"),
                "{attributes}"
            );
            if attributes.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let html = response.into_body().collect().await.unwrap().to_bytes();
        let html = String::from_utf8(html.to_vec()).unwrap();
        if headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "text/html; charset=utf-8")
        {
            laws::hold(&html, path);
        }
        Seen { status, headers, html }
    }
}
