//! The dashboard: HTML pages for a browser with a session.
//!
//! Each page is a function from plain data to markup. maud escapes every value. Pages also work without a script.

use crate::sessions::session::{Stops, referring_page};
use crate::ui::error_page::{ErrorPage, error_page};
use crate::{
    agents, approvals, audit, backtests, connect, decisions, journal, notices, operators, search, services, sessions,
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
            agents::pages::form_route(approvals::page::submit_approval),
        )
        .route(
            "/approvals/{approval}/reject",
            agents::pages::form_route(approvals::page::submit_rejection),
        )
        .route(
            "/approvals/{approval}/approve-and-raise",
            agents::pages::form_route(approvals::single::submit_approval_with_raised_limit),
        )
        .route(
            "/approvals/{approval}/approve-always",
            agents::pages::form_route(approvals::single::submit_approval_with_exception),
        )
        .route(
            "/approvals/{approval}/withdraw",
            agents::pages::form_route(approvals::single::submit_approval_withdrawal),
        );
    Router::new()
        .route("/dashboard", get(agents::overview::show_overview_page))
        .route(
            "/dashboard/agents",
            post(agents::overview::submit_new_agent).get(agents::fleet::show_fleet_page),
        )
        .route(
            "/dashboard/agents/bulk",
            post(agents::fleet_actions::submit_bulk_operation)
                .get(agents::fleet_actions::redirect_to_fleet)
                .layer(Extension(Stops(agents::fleet_actions::is_freeze_or_archive_form))),
        )
        .route(
            "/dashboard/freeze-all",
            post(agents::fleet_actions::freeze_all_agents)
                .get(agents::fleet_actions::show_freeze_all_page)
                .layer(Extension(Stops::ALWAYS)),
        )
        .nest("/dashboard/agents/{agent}", agent)
        .route(
            "/dashboard/handovers/{agent}/accept",
            post(agents::overview::submit_ownership_offer_acceptance).get(agents::overview::redirect_to_overview),
        )
        .route("/dashboard/approvals", get(approvals::page::show_approvals_page))
        .route(
            "/dashboard/approvals/waiting",
            get(approvals::page::poll_pending_approvals),
        )
        .route(
            approvals::bulk::PAGE,
            get(approvals::bulk::show_bulk_summary_page).post(approvals::bulk::submit_bulk_decision),
        )
        .route(
            "/dashboard/approvals/{agent}/{approval}",
            get(approvals::single::show_approval_page),
        )
        .route("/dashboard/audit-log", get(audit::page::show_audit_log_page))
        .route("/dashboard/audit-log.csv", get(audit::page::download_audit_log))
        .route(ui::paths::BACKTESTS, get(backtests::page::show_backtests_page))
        .route(
            "/dashboard/backtests/{backtest}",
            get(backtests::page::show_backtest_page),
        )
        .route("/dashboard/decisions", get(journal::page::show_decisions_page))
        .route("/dashboard/decisions.csv", get(journal::page::download_decisions))
        .route(
            "/dashboard/decisions/{agent}/{transaction}",
            get(decisions::page::show_decision_page),
        )
        .route(
            "/dashboard/decisions/{agent}/{transaction}/evidence.json",
            get(decisions::evidence::download_evidence),
        )
        .route("/dashboard/search", get(search::page::show_search_page))
        .route("/dashboard/settlements", get(journal::page::show_settlements_page))
        .route("/dashboard/settlements.csv", get(journal::page::download_settlements))
        .route("/dashboard/catalog", get(services::catalog_page::show_catalog_page))
        .route(
            "/dashboard/receipts/{agent}/{settlement}",
            get(settlements::receipt::show_receipt_page),
        )
        .route(
            "/dashboard/notices",
            post(notices::page::submit_notification_settings).get(notices::page::show_notifications_page),
        )
        .route(
            "/dashboard/notices/test",
            post(notices::page::submit_test_notification).get(notices::page::redirect_to_notifications),
        )
        .route(
            "/dashboard/sessions",
            get(sessions::page::show_sessions_page).layer(Extension(Stops::ALWAYS)),
        )
        .route(
            "/dashboard/sessions/end",
            post(sessions::page::submit_end_of_all_sessions)
                .get(sessions::page::redirect_to_sessions)
                .layer(Extension(Stops::ALWAYS)),
        )
        .route(
            "/dashboard/sessions/{session}/end",
            post(sessions::page::submit_session_end)
                .get(sessions::page::redirect_to_sessions)
                .layer(Extension(Stops::ALWAYS)),
        )
        .nest("/dashboard/webhooks", webhooks::pages::routes())
        .route(
            ui::paths::TEMPLATES,
            get(templates::page::show_templates_page).post(templates::page::submit_new_template),
        )
        .route(
            "/dashboard/templates/{name}",
            get(templates::page::show_template_page).post(templates::page::submit_template_update),
        )
        .route(
            "/dashboard/templates/{name}/apply",
            post(templates::page::submit_template_application).get(templates::page::redirect_to_template),
        )
        .route(
            "/dashboard/templates/{name}/remove",
            post(templates::page::submit_template_removal).get(templates::page::redirect_to_template),
        )
        .route("/dashboard/{*nowhere}", any(page_not_found))
        .merge(operators::pages::routes())
        .merge(sessions::sign_in::routes())
        .merge(connect::pages::routes())
        .layer(from_fn(add_page_headers))
        .merge(ui::asset::routes())
}

async fn page_not_found() -> Failure {
    ErrorKind::NotFound.into()
}

/// Adds the headers of every page, and turns errors into error pages or into a redirect to the sign-in page.
async fn add_page_headers(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().map(ToString::to_string);
    let page = referring_page(request.headers());
    let is_opened_by_clients = OPENED_BY_CLIENTS
        .iter()
        .any(|path| request.uri().path().starts_with(path));
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions().get::<Failure>().cloned() {
        response = match failure.error().kind() {
            ErrorKind::RecentSignInRequired { .. } => {
                let mut leading = sessions::sign_in::redirect_to_sign_in_again(&page);
                // The request's log line contains the failure.
                leading.extensions_mut().insert(failure);
                leading
            }
            kind => {
                let page = ErrorPage::for_error(kind);
                failure.into_page_response(error_page(page, id.as_deref()))
            }
        };
    }
    let own_policy = response.headers_mut().remove(header::CONTENT_SECURITY_POLICY);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if let Some(policy) = own_policy {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    if is_opened_by_clients {
        let policy = HeaderValue::from_static("unsafe-none");
        response.headers_mut().insert(OPENER_POLICY, policy);
    }
    response
}

/// Allows the page's forms to redirect to `form_action_source`.
pub(crate) fn page_security_policy(form_action_source: &str) -> String {
    SECURITY_POLICY.replace(
        "form-action 'self'",
        &format!("form-action 'self' {form_action_source}"),
    )
}

/// The pages that an OAuth client may open in a popup, which need another opener policy.
const OPENED_BY_CLIENTS: [&str; 3] = ["/dashboard/connect", "/dashboard/sign-in", "/dashboard/callback"];

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// `no-store` also keeps pages out of the browser's cache, because a page may show an agent key.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, SECURITY_POLICY),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), microphone=(), geolocation=(), payment=(), usb=(), browsing-topics=()",
    ),
    (OPENER_POLICY, "same-origin"),
];
