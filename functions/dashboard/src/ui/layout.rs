//! The layout of every page: head, navigation, notification and error message.

use crate::approvals::operations::WaitingCount;
use crate::sessions::form_token::FormToken;
use crate::sessions::session::PageSession;
use crate::ui::asset;
use crate::ui::form::{FieldOf, Form, FormName, Inputs};
use crate::ui::notice::PageMessage;
use axum::http::{StatusCode, Uri};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use purser_api::{Failure, Query};
use purser_domain::{EditReason, Error, ErrorKind, Timestamp};

/// Everything on a page except the content.
pub(crate) struct Layout {
    /// The signed-in user's name, as the issuer returns it.
    pub(crate) person: String,
    /// Whether the user may open the operators' pages.
    pub(crate) is_operator: bool,
    /// The CSRF token that the page's forms send.
    pub(crate) token: FormToken,
    /// The time from which relative times are computed.
    pub(crate) now: Timestamp,
    /// The number of the user's pending approvals. With `None`, the page's script inserts the number.
    pub(crate) waiting: Option<WaitingCount>,
    pub(crate) notice: Option<PageMessage>,
    /// The error message for a failed request, if no form field has the error.
    pub(crate) problem: Option<String>,
    /// The form that the page shows again, with validation errors or with a preview.
    pub(crate) typed: Option<Form>,
    pub(crate) preview: Option<Markup>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NavItem {
    Overview,
    Agents,
    Approvals,
    Decisions,
    Settlements,
    Search,
    Catalog,
    Webhooks,
    Audit,
    Notices,
    Operators,
    Sessions,
    Elsewhere,
}

impl Layout {
    pub(crate) fn new(session: &PageSession, now: Timestamp) -> Self {
        Self {
            person: session.user_name().to_owned(),
            is_operator: session.is_operator,
            token: session.token.clone(),
            now,
            waiting: None,
            notice: None,
            problem: None,
            typed: None,
            preview: None,
        }
    }

    pub(crate) fn with_error_message(self, problem: Option<String>) -> Self {
        Self { problem, ..self }
    }

    pub(crate) fn with_form(self, form: Form) -> Self {
        Self {
            typed: Some(form),
            ..self
        }
    }

    /// Returns the status and the layout that show the form with `error`. `conflict` is the message for a version
    /// conflict. Returns the error as a [`Failure`] if a form can't show this kind of error.
    pub(crate) fn with_rejected_form(
        self,
        mut form: Form,
        error: Error,
        fields: &[FieldOf],
        conflict: &str,
    ) -> Result<(StatusCode, Self), Failure> {
        let failure = Failure::from(error);
        let message = match failure.error().kind() {
            ErrorKind::InvalidRequest(errors) => {
                form.add_body_errors(errors, fields);
                None
            }
            ErrorKind::VersionConflict { .. } => Some(conflict.to_owned()),
            _ => return Err(failure),
        };
        Ok((failure.status(), self.with_error_message(message).with_form(form)))
    }

    /// Returns the layout with which a part of a page is rendered for an entity tag. The layout has no current time and
    /// an unmasked form token, because both differ in each response.
    pub(crate) fn layout_for_entity_tag(&self) -> Self {
        Self {
            person: self.person.clone(),
            is_operator: self.is_operator,
            token: self.token.with_zero_mask(),
            now: Timestamp::EPOCH,
            waiting: None,
            notice: None,
            problem: None,
            typed: None,
            preview: None,
        }
    }

    /// Adds the notification whose code is in the URL's `notice` parameter.
    pub(crate) fn with_message_in_url(self, uri: &Uri) -> Self {
        let message = Query::from_uri(uri)
            .parse_text("notice")
            .and_then(|code| PageMessage::from_code(&code));
        Self {
            notice: message,
            ..self
        }
    }

    pub(crate) fn form_inputs(&self, name: FormName) -> Inputs<'_> {
        Inputs::new(name, self.typed.as_ref())
    }

    /// Renders a `POST` form with the CSRF token.
    pub(crate) fn post_form(&self, action: &str, content: &Markup) -> Markup {
        html! { form method="post" action=(action) { (self.token.hidden_input()) (content) } }
    }

    /// If the button has a `question`, the script asks it before the form is sent.
    pub(crate) fn button_form(&self, action: &str, button: &Button<'_>) -> Markup {
        html! {
            form method="post" action=(action) data-confirm=[button.question] {
                (self.token.hidden_input())
                @if let Some(version) = button.version { (version_input(version)) }
                @if button.asks_why {
                    input type="text" name="edit_reason" maxlength=(EditReason::MAX) autocomplete="off"
                        aria-label="Why (optional)" placeholder="Why (optional)";
                }
                button class=(button.class) type="submit" { (button.label) }
            }
        }
    }

    pub(crate) fn html_page(&self, title: &str, current_item: NavItem, content: &Markup) -> Markup {
        html_document(
            title,
            Some(self.now),
            &html! {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    div.bar-inner {
                        (brand_link())
                        (self.navigation(current_item))
                        form.search method="get" action="/dashboard/search" role="search" aria-label="Everything" {
                            label.sr for="search" { "Search ids, transactions, payees, hosts and agents" }
                            input id="search" type="search" name="q" maxlength="100" placeholder="Search" autocomplete="off" spellcheck="false";
                        }
                        div.who {
                            a.button.danger href="/dashboard/freeze-all" { "Freeze all" }
                            a.person href="/dashboard/sessions" title=(format!("{}: your sessions", self.person))
                                aria-current=[(current_item == NavItem::Sessions).then_some("page")] {
                                span.sr { "Your sessions. Signed in as " } (self.person)
                            }
                            (self.button_form("/dashboard/sign-out", &Button::quiet("Sign out")))
                        }
                    }
                }
                main id="main" tabindex="-1" {
                    (self.messages())
                    (content)
                }
                footer.zone {
                    p { "Times are in " span data-zone { "UTC" } "; days in filters, charts and exports are in UTC." }
                }
                p.sr role="status" aria-live="polite" data-announce {}
            },
        )
    }

    fn navigation(&self, current_item: NavItem) -> Markup {
        let entry = |to: NavItem, path: &str, content: Markup| {
            html! { li { a href=(path) aria-current=[(to == current_item).then_some("page")] { (content) } } }
        };
        html! {
            nav aria-label="Main" {
                ul {
                    (entry(NavItem::Overview, "/dashboard", html! { "Overview" }))
                    (entry(NavItem::Agents, "/dashboard/agents", html! { "Agents" }))
                    (entry(NavItem::Approvals, "/dashboard/approvals", html! {
                        "Approvals" (pending_badge(self.waiting))
                    }))
                    (entry(NavItem::Decisions, "/dashboard/decisions", html! { "Decisions" }))
                    (entry(NavItem::Settlements, "/dashboard/settlements", html! { "Settlements" }))
                    (entry(NavItem::Catalog, "/dashboard/catalog", html! { "Catalog" }))
                    (entry(NavItem::Notices, "/dashboard/notices", html! { "Notices" }))
                    (entry(NavItem::Webhooks, "/dashboard/webhooks", html! { "Webhooks" }))
                    (entry(NavItem::Audit, "/dashboard/audit-log", html! { "Audit" }))
                    @if self.is_operator { (entry(NavItem::Operators, "/dashboard/operator/catalog", html! { "Operators" })) }
                }
            }
        }
    }

    fn messages(&self) -> Markup {
        let wrong = self.typed.as_ref().filter(|form| form.has_errors());
        html! {
            @if let Some(message) = self.notice { (page_message_box(message)) }
            @if let Some(error) = &self.problem {
                div.message.bad role="alert" tabindex="-1" data-problem { p { (error) } }
            }
            @if let Some(form) = wrong {
                div.message.bad role="alert" tabindex="-1" data-problem {
                    p { strong { "Nothing was saved." } " Please correct this:" }
                    ul {
                        @for error in form.errors() {
                            li {
                                @if error.field.is_empty() { (error.message) }
                                @else { a href=(format!("#{}-{}", form.name, error.field)) { (error.message) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The only button of a form.
pub(crate) struct Button<'a> {
    pub(crate) label: &'a str,
    pub(crate) class: &'a str,
    pub(crate) question: Option<&'a str>,
    pub(crate) version: Option<u64>,
    /// Whether the form asks for the user's reason for a change of limits.
    pub(crate) asks_why: bool,
}

impl<'a> Button<'a> {
    pub(crate) const fn quiet(label: &'a str) -> Self {
        Self {
            label,
            class: "quiet",
            question: None,
            version: None,
            asks_why: false,
        }
    }

    pub(crate) const fn danger(label: &'a str, prompt: &'a str) -> Self {
        Self {
            label,
            class: "danger",
            question: Some(prompt),
            version: None,
            asks_why: false,
        }
    }

    pub(crate) const fn plain(label: &'a str) -> Self {
        Self {
            label,
            class: "",
            question: None,
            version: None,
            asks_why: false,
        }
    }

    pub(crate) const fn with_version(self, version: u64) -> Self {
        Self {
            version: Some(version),
            ..self
        }
    }

    pub(crate) const fn with_reason_input(self) -> Self {
        Self { asks_why: true, ..self }
    }
}

pub(crate) fn version_input(version: u64) -> Markup {
    html! { input type="hidden" name="version" value=(version); }
}

pub(crate) fn page_message_box(message: PageMessage) -> Markup {
    html! {
        div.message.bad[message.is_failure()].good[!message.is_failure()] role="status" data-notice { p { (message.text()) } }
    }
}

/// The script computes relative times from `now`.
pub(crate) fn html_document(title: &str, now: Option<Timestamp>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (html_head(title)) script src=(asset::script_path()) defer {} }
            body data-now=[now.map(Timestamp::secs)] { (body) }
        }
    }
}

/// Renders a centred card, for pages without a session.
pub(crate) fn centered_card(content: &Markup) -> Markup {
    html! { main.welcome id="main" { div.welcome-card { (brand_link()) (content) } } }
}

pub(crate) fn html_head(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        title { (title) " · Purser" }
        link rel="icon" href=(asset::ICON);
        link rel="stylesheet" href=(asset::style_path());
    }
}

fn brand_link() -> Markup {
    html! { a.brand href="/dashboard" { (PreEscaped(asset::MARK)) "Purser" } }
}

fn pending_badge(waiting_count: Option<WaitingCount>) -> Markup {
    let count = waiting_count.unwrap_or_default();
    html! {
        span.badge data-waiting-count=[waiting_count.map(|waiting| waiting.number)] data-at-least[count.is_more] data-badge
            hidden[count.number == 0] {
            span.sr { ", " } span data-number { (count) } span.sr { " waiting" }
        }
    }
}
