//! The HTML pages for failed requests to the dashboard.

use crate::ui::layout::{centered_card, html_document};
use maud::{Markup, html};
use purser_domain::ErrorKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorPage {
    /// The resource does not exist or belongs to another user.
    NotFound,
    /// The form came from another site or another session.
    CrossSite,
    /// The user's account lacks the claim that the dashboard requires.
    NotEntitled,
    /// The user has sent too many requests within a minute.
    TooMany,
    Internal,
}

impl ErrorPage {
    pub(crate) const fn for_error(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound | ErrorKind::ServiceNotFound => Self::NotFound,
            ErrorKind::CrossSiteRequest => Self::CrossSite,
            ErrorKind::NotEntitled { .. } => Self::NotEntitled,
            ErrorKind::TooManyRequests { .. } => Self::TooMany,
            // Errors that the user can fix are shown next to the form, so all others are internal errors.
            _ => Self::Internal,
        }
    }
}

/// Renders the page for an error. `request` is the id of the failed request, which also appears in the logs.
pub(crate) fn error_page(page: ErrorPage, request: Option<&str>) -> Markup {
    let (title, text) = match page {
        ErrorPage::NotFound => (
            "Nothing here",
            "This page does not exist, or you don’t have access to it.",
        ),
        ErrorPage::CrossSite => (
            "Nothing was changed",
            "This form came from another site, or from a session that has ended. Go back, reload the page, and try again.",
        ),
        ErrorPage::NotEntitled => (
            "Not for your account",
            "You have signed in, but your account is not entitled to use Purser. Ask the administrator of your accounts, then sign in again.",
        ),
        ErrorPage::TooMany => (
            "Too many requests",
            "Your account has sent more requests than are allowed in one minute. Nothing was changed. Wait a minute, and try again.",
        ),
        ErrorPage::Internal => (
            "Something broke",
            "The error is on our side. Go back and check before you try again: your action may have taken effect.",
        ),
    };
    html_document(
        title,
        None,
        &centered_card(&html! {
            h1 { (title) }
            p { (text) }
            a.primary.wide href="/dashboard" { "To the overview" }
            @if page == ErrorPage::TooMany {
                p.hint { a href="/dashboard/freeze-all" { "Freeze all agents" } " and " a href="/dashboard/sessions" { "end sessions" } " meanwhile." }
            }
            @if let Some(request) = request { p.hint { "Request " code { (request) } } }
        }),
    )
}
