//! The dashboard: HTML pages for a browser with a session.
//!
//! Each page is a function from plain data to markup, in its feature's folder. maud escapes every value. Pages work
//! without a script: the response to a posted form is a redirect, and values are changed within `<details>` elements.
//! `assets/script.js` adds new approvals without a reload, copy buttons and local times.
//!
//! Authentication is in `sessions/session.rs`. Forms and JSON endpoints run the same operations.

use crate::sessions::session::{Stops, page_of};
use crate::ui::error_page::{ErrorPage, error_page};
use crate::{
    agents, approvals, audit, backtests, decisions, journal, notices, operators, search, services, sessions,
    settlements, state::People, templates, ui, webhooks,
};
use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderName, HeaderValue, header},
    middleware::{Next, from_fn},
    response::Response,
    routing::{any, get, post},
};
use purser_api::{Failure, RequestId};
use purser_domain::ErrorKind;
use std::sync::Arc;

/// The routes of the pages, of sign-in and sign-out, and of the assets.
pub(crate) fn routes() -> Router<Arc<People>> {
    let agent = agents::pages::routes()
        .route(
            "/approvals/{approval}/approve",
            agents::pages::form(approvals::page::approve),
        )
        .route(
            "/approvals/{approval}/reject",
            agents::pages::form(approvals::page::reject),
        )
        .route(
            "/approvals/{approval}/approve-and-raise",
            agents::pages::form(approvals::single::approve_and_raise),
        )
        .route(
            "/approvals/{approval}/withdraw",
            agents::pages::form(approvals::single::withdraw),
        );
    Router::new()
        .route("/dashboard", get(agents::overview::show))
        .route(
            "/dashboard/agents",
            post(agents::overview::create_agent).get(agents::fleet::show),
        )
        .route(
            "/dashboard/agents/bulk",
            post(agents::fleet_actions::act)
                .get(agents::fleet_actions::back)
                .layer(Extension(Stops(agents::fleet_actions::stops))),
        )
        .route(
            "/dashboard/freeze-all",
            post(agents::fleet_actions::freeze_all)
                .get(agents::fleet_actions::confirm)
                .layer(Extension(Stops::ALWAYS)),
        )
        .nest("/dashboard/agents/{agent}", agent)
        .route(
            "/dashboard/handovers/{agent}/accept",
            post(agents::overview::accept).get(agents::overview::back),
        )
        .route("/dashboard/approvals", get(approvals::page::show))
        .route("/dashboard/approvals/waiting", get(approvals::page::watch))
        .route(
            approvals::bulk::PAGE,
            get(approvals::bulk::show).post(approvals::bulk::decide),
        )
        .route("/dashboard/approvals/{agent}/{approval}", get(approvals::single::show))
        .route("/dashboard/audit-log", get(audit::page::show))
        .route("/dashboard/audit-log.csv", get(audit::page::file))
        .route(ui::paths::BACKTESTS, get(backtests::page::list))
        .route("/dashboard/backtests/{backtest}", get(backtests::page::show))
        .route("/dashboard/decisions", get(journal::page::decisions))
        .route("/dashboard/decisions.csv", get(journal::page::decisions_file))
        .route("/dashboard/decisions/{agent}/{transaction}", get(decisions::page::show))
        .route(
            "/dashboard/decisions/{agent}/{transaction}/evidence.json",
            get(decisions::evidence::file),
        )
        .route("/dashboard/search", get(search::page::show))
        .route("/dashboard/settlements", get(journal::page::settlements))
        .route("/dashboard/settlements.csv", get(journal::page::settlements_file))
        .route("/dashboard/catalog", get(services::catalog_page::show))
        .route(
            "/dashboard/receipts/{agent}/{settlement}",
            get(settlements::receipt::show),
        )
        .route("/dashboard/notices", post(notices::page::edit).get(notices::page::show))
        .route(
            "/dashboard/notices/test",
            post(notices::page::test).get(notices::page::back),
        )
        .route(
            "/dashboard/sessions",
            get(sessions::page::show).layer(Extension(Stops::ALWAYS)),
        )
        .route(
            "/dashboard/sessions/end",
            post(sessions::page::end_all)
                .get(sessions::page::back)
                .layer(Extension(Stops::ALWAYS)),
        )
        .route(
            "/dashboard/sessions/{session}/end",
            post(sessions::page::end)
                .get(sessions::page::back)
                .layer(Extension(Stops::ALWAYS)),
        )
        .nest("/dashboard/webhooks", webhooks::pages::routes())
        .route(
            ui::paths::TEMPLATES,
            get(templates::page::list).post(templates::page::create),
        )
        .route(
            "/dashboard/templates/{name}",
            get(templates::page::show).post(templates::page::edit),
        )
        .route(
            "/dashboard/templates/{name}/apply",
            post(templates::page::apply).get(templates::page::back),
        )
        .route(
            "/dashboard/templates/{name}/remove",
            post(templates::page::remove).get(templates::page::back),
        )
        .route("/dashboard/{*nowhere}", any(nowhere))
        .merge(operators::pages::routes())
        .merge(sessions::sign_in::routes())
        .layer(from_fn(page_headers))
        .merge(ui::asset::routes())
}

async fn nowhere() -> Failure {
    ErrorKind::NotFound.into()
}

/// Adds the headers of every page, and replaces errors by error pages. An error that requires a recent sign-in becomes
/// a redirect to the sign-in page.
async fn page_headers(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().map(ToString::to_string);
    let page = page_of(request.headers());
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions().get::<Failure>().cloned() {
        response = match failure.error().kind() {
            ErrorKind::RecentSignInRequired { .. } => {
                let mut leading = sessions::sign_in::again(&page);
                // The failure stays in the extensions, so that the request's log line reports it.
                leading.extensions_mut().insert(failure);
                leading
            }
            kind => {
                let page = ErrorPage::for_error(kind);
                failure.page(error_page(page, id.as_deref()))
            }
        };
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The headers of every page. A page runs scripts, uses style sheets and connects to servers only from the dashboard's
/// origin, and can't be framed. `no-store` keeps pages out of every cache, including the browser's own cache, because a
/// page may show an agent key.
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
