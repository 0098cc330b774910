//! The HTML that people see: the login page and the error page. They run no script.

use super::{DEMO_PASSWORD, NO_STORE, USERS};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Only our own style sheet is loaded, and the page can't be framed. There is no `form-action`: browsers also apply it
/// to the redirect after the form, which leads to the client.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'";

/// The dashboard's logo.
const MARK: &str = "<svg viewBox=\"0 0 24 24\" aria-hidden=\"true\" focusable=\"false\" fill=\"currentColor\">\
    <path d=\"M8 8V7a4 4 0 0 1 8 0v1\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" stroke-linecap=\"round\"/>\
    <path d=\"M6.6 8h10.8a2 2 0 0 1 1.9 1.5l1.2 5.2A5 5 0 0 1 15.6 21H8.4a5 5 0 0 1-4.9-6.3l1.2-5.2A2 2 0 0 1 6.6 8Z\"/>\
    <circle cx=\"12\" cy=\"14.2\" r=\"2.4\" class=\"hole\"/></svg>";

/// The style sheet.
pub(super) async fn style() -> Response {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8")],
        include_str!("style.css"),
    )
        .into_response()
}

/// The login page.
pub(super) fn sign_in() -> Response {
    login(StatusCode::OK, "", false)
}

/// The login page after a wrong e-mail or password.
pub(super) fn sign_in_again(email: &str) -> Response {
    login(StatusCode::FORBIDDEN, email, true)
}

fn login(status: StatusCode, email: &str, refused: bool) -> Response {
    let described = refused.then_some("refused");
    let content = html! {
        h1 { "Sign in" }
        p .lead { "to your Purser dashboard" }
        @if refused {
            p #refused .refused role="alert" { "That e-mail and password don’t go together. Try again." }
        }
        // Without an action the form is sent to the page's own URL, with the client's parameters.
        form method="post" {
            label for="email" { "E-mail" }
            input #email type="email" name="email" value=(email) required autocomplete="username"
                autocapitalize="none" spellcheck="false" autofocus[!refused]
                aria-invalid=[refused.then_some("true")] aria-describedby=[described];
            label for="password" { "Password" }
            input #password type="password" name="password" required autocomplete="current-password"
                autofocus[refused] aria-invalid=[refused.then_some("true")] aria-describedby=[described];
            button type="submit" { "Sign in" }
        }
        aside aria-labelledby="demo" {
            h2 #demo { "This is the local stack" }
            p { "Its demo accounts have the password " code { (DEMO_PASSWORD) } ":" }
            ul {
                @for user in USERS {
                    li { (user.email) }
                }
            }
        }
    };
    page(status, "Sign in", &content)
}

/// An error page. Only the site that sent the person here can fix it.
pub(super) fn problem(status: StatusCode, what: &str) -> Response {
    let content = html! {
        h1 { "This link does not work" }
        p .lead { "The issuer can’t continue: " (what) }
        p { "Go back to the dashboard, and sign in from there." }
    };
    page(status, "This link does not work", &content)
}

/// The page after signing out, if the client named no redirect.
pub(super) fn signed_out() -> Response {
    let content = html! {
        h1 { "You are signed out" }
        p .lead { "You can close this page." }
    };
    page(StatusCode::OK, "You are signed out", &content)
}

fn page(status: StatusCode, title: &str, content: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Purser" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/style.css";
            }
            body {
                main {
                    p .brand { (PreEscaped(MARK)) "Purser" }
                    (content)
                }
            }
        }
    };
    let headers = [
        NO_STORE,
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // The URL contains the client's state, which no other site may see.
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (status, headers, Html(page.into_string())).into_response()
}
