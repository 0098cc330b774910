//! The dashboard: pages of HTML for a browser with a session.
//!
//! Each page is a function from plain data to markup, in the file that is named for it; maud escapes every value. A
//! page works without script: forms are posted and answered with a redirect, and what is edited in place is in
//! `<details>`. `assets/script.js` adds what only a script can: new approvals without a reload, copying, local times.
//!
//! Deliberately elsewhere: authentication (`crate::session`), and what a form does (the operations, which the JSON
//! endpoints share).

mod agent;
mod agent_spend;
mod approval;
mod approvals;
mod asset;
mod audit;
mod bar;
mod call;
mod catalog;
mod chart;
mod count;
mod datetime;
mod decisions;
mod error_page;
mod fleet;
mod form;
mod labels;
mod layout;
mod list;
mod money;
mod notice;
mod notice_settings;
mod operator;
mod overview;
mod paths;
mod phrases;
mod receipt;
mod sessions;
mod settlements;
mod sign_in;
mod spending;
mod webhooks;

use crate::session::page_of;
use crate::state::People;
use axum::{
    Router,
    extract::Request,
    http::{HeaderName, HeaderValue, header},
    middleware::{Next, from_fn},
    response::Response,
    routing::{any, get, post},
};
use error_page::{ErrorPage, error_page};
use purser_api::{Failure, RequestId};
use purser_domain::ErrorKind;
use std::sync::Arc;

/// The routes of the pages, of sign-in and sign-out, and of the assets.
pub(crate) fn routes() -> Router<Arc<People>> {
    let agent = agent::routes()
        .route("/approvals/{approval}/approve", agent::form(approvals::approve))
        .route("/approvals/{approval}/reject", agent::form(approvals::reject));
    Router::new()
        .route("/dashboard", get(overview::show))
        .route("/dashboard/agents", post(overview::create_agent).get(overview::back))
        .nest("/dashboard/agents/{agent}", agent)
        .route(
            "/dashboard/handovers/{agent}/accept",
            post(overview::accept).get(overview::back),
        )
        .route("/dashboard/approvals", get(approvals::show))
        .route("/dashboard/approvals/waiting", get(approvals::watch))
        .route("/dashboard/approvals/{agent}/{approval}", get(approval::show))
        .route("/dashboard/audit-log", get(audit::show))
        .route("/dashboard/audit-log.csv", get(audit::file))
        .route("/dashboard/decisions", get(decisions::show))
        .route("/dashboard/decisions.csv", get(decisions::file))
        .route("/dashboard/settlements", get(settlements::show))
        .route("/dashboard/settlements.csv", get(settlements::file))
        .route("/dashboard/catalog", get(catalog::show))
        .route("/dashboard/receipts/{agent}/{settlement}", get(receipt::show))
        .route(
            "/dashboard/notices",
            post(notice_settings::edit).get(notice_settings::show),
        )
        .route(
            "/dashboard/notices/test",
            post(notice_settings::test).get(notice_settings::back),
        )
        .route("/dashboard/sessions", get(sessions::show))
        .route("/dashboard/sessions/end", post(sessions::end_all).get(sessions::back))
        .route(
            "/dashboard/sessions/{session}/end",
            post(sessions::end).get(sessions::back),
        )
        .nest("/dashboard/webhooks", webhooks::routes())
        .route("/dashboard/{*nowhere}", any(nowhere))
        .merge(operator::routes())
        .merge(sign_in::routes())
        .layer(from_fn(page_headers))
        .merge(asset::routes())
}

async fn nowhere() -> Failure {
    ErrorKind::NotFound.into()
}

/// Adds the headers of every page, and turns failures into error pages.
async fn page_headers(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().map(ToString::to_string);
    let page = page_of(request.headers());
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions().get::<Failure>().cloned() {
        response = match failure.error().kind() {
            ErrorKind::RecentSignInRequired { .. } => {
                let mut leading = sign_in::again(&page);
                // The log tells why.
                leading.extensions_mut().insert(failure);
                leading
            }
            kind => {
                let page = ErrorPage::of(kind);
                failure.page(error_page(page, id.as_deref()))
            }
        };
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A page runs only our script, uses only our style sheet, connects only to us, and can't be framed. `no-store` keeps
/// it out of every cache, the browser's own included: it may show a key.
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
