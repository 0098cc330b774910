//! What people see: pages of HTML for a browser with a session.
//!
//! Each page is a function from plain data to markup, in the file that is named for it; maud escapes every value. A
//! page works without script: forms are posted and answered with a redirect, and what is edited in place lies in
//! `<details>`. `assets/script.js` adds what only a script can: new approvals without a reload, copying, local times.
//!
//! Deliberately elsewhere: who is asking (`sign_in.rs`), and what a form does (the operations, which the JSON endpoints
//! share).

mod agent;
mod approvals;
mod asset;
mod bar;
mod call;
mod decisions;
mod digest;
mod form;
mod keys;
mod moment;
mod money;
mod names;
mod notice;
mod overview;
mod policy;
mod receipt;
mod rules;
mod services;
mod shell;
mod trouble;
mod wallet;
mod welcome;
mod words;

pub(crate) use form::{Form, FormName, FormToken};
pub(crate) use notice::Notice;
pub(crate) use welcome::{leaving_page, sign_in_page};

use crate::{Dashboard, sign_in};
use axum::{
    Router,
    extract::Request,
    handler::Handler,
    http::{HeaderName, HeaderValue, header},
    middleware::{Next, from_fn},
    response::Response,
    routing::{MethodRouter, any, get, post},
};
use purser_api::{Failure, RequestId};
use purser_domain::{ErrorKind, Result};
use std::sync::Arc;
use trouble::{Trouble, trouble_page};

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "tests calculate what they show")]
mod gallery;

/// The pages, the way in and out, and what they are drawn with.
pub(crate) fn routes() -> Router<Arc<Dashboard>> {
    let agent = Router::new()
        .route("/", get(agent::show))
        .route("/rename", form(agent::rename))
        .route("/freeze", form(agent::freeze))
        .route("/unfreeze", form(agent::unfreeze))
        .route("/keys", form(keys::create))
        .route("/keys/{key}/rotate", form(keys::rotate))
        .route("/keys/{key}/revoke", form(keys::revoke))
        .route("/services", form(services::enable))
        .route("/services/{service}", form(services::edit))
        .route("/services/{service}/disable", form(services::disable))
        .route("/services/{service}/enable", form(services::enable_again))
        .route("/rules", form(rules::add))
        .route("/rules/{rule}", form(rules::replace))
        .route("/rules/{rule}/remove", form(rules::remove))
        .route("/approvals/{approval}/approve", form(approvals::approve))
        .route("/approvals/{approval}/reject", form(approvals::reject));
    Router::new()
        .route("/dashboard", get(overview::show))
        .route("/dashboard/agents", post(overview::create_agent).get(overview::back))
        .nest("/dashboard/agents/{agent}", agent)
        .route("/dashboard/approvals", get(approvals::show))
        .route("/dashboard/approvals/waiting", get(approvals::watch))
        .route("/dashboard/decisions", get(decisions::show))
        .route("/dashboard/receipts/{agent}/{settlement}", get(receipt::show))
        .route("/dashboard/{*nowhere}", any(nowhere))
        .merge(sign_in::routes())
        .layer(from_fn(dress))
        .merge(asset::routes())
}

/// An address that forms are sent to.
fn form<H, T>(handler: H) -> MethodRouter<Arc<Dashboard>>
where
    H: Handler<T, Arc<Dashboard>>,
    T: 'static,
{
    post(handler).get(agent::back)
}

async fn nowhere() -> Failure {
    ErrorKind::NotFound.into()
}

/// What every page is sent with, failures included, which become pages here.
async fn dress(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().map(ToString::to_string);
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions().get::<Failure>().cloned() {
        let trouble = Trouble::of(failure.error().kind());
        response = failure.page(trouble_page(trouble, id.as_deref()));
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A page runs our script, draws with our style sheet, talks to us alone, and is shown in nobody's frame. `no-store`
/// keeps it out of every cache, the browser's own included: it may show a key.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), microphone=(), geolocation=(), payment=(), usb=(), browsing-topics=()",
    ),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// What an address names; a text that is no id names nothing.
fn named<T>(id: Option<T>) -> Result<T> {
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

/// On to a page, where it is told what was done.
fn done(path: &str, notice: Notice) -> Response {
    let sign = if path.contains('?') { '&' } else { '?' };
    sign_in::see_other(&format!("{path}{sign}notice={}", notice.code()))
}
