//! The page on which a user lists and ends sessions.

use crate::agents::owned::require_id;
use crate::redirect::see_other;
use crate::sessions::cookie::Cookie;
use crate::sessions::session::{PageSession, SIGN_IN, VerifiedForm, request_origin};
use crate::state::People;
use crate::ui::datetime::{relative_and_exact_time, relative_time};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem};
use crate::ui::notice::{PageMessage, redirect_with_notice};
use axum::{
    extract::{FromRequest as _, Path, Request, State},
    http::{Uri, header},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{Session, SessionId};
use std::sync::Arc;

const PAGE: &str = "/dashboard/sessions";

pub(crate) async fn show_sessions_page(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let sessions = people.list_sessions(&session.person.id).await?;
    Ok(sessions_page(&layout, &sessions, &session).into_response())
}

/// Redirects a `GET` of a path that accepts only `POST`.
pub(crate) async fn redirect_to_sessions() -> Response {
    see_other(PAGE)
}

pub(crate) async fn submit_session_end(
    State(people): State<Arc<People>>,
    Path(session): Path<String>,
    form: VerifiedForm,
) -> Reply {
    let id = require_id(SessionId::parse(&session))?;
    people.end_session(&form.session.person, &id).await?;
    // If the user ended the current session, the redirect leads to the sign-in page.
    Ok(redirect_with_notice(PAGE, PageMessage::SessionEnded))
}

/// Ends all sessions of the user, including the current session.
pub(crate) async fn submit_end_of_all_sessions(State(people): State<Arc<People>>, request: Request) -> Reply {
    let (parts, body) = request.into_parts();
    let origin = request_origin(&people, &parts)?;
    let form = match VerifiedForm::from_request(Request::from_parts(parts, body), &people).await {
        Ok(form) => form,
        Err(refused) => return Ok(refused),
    };
    people.end_sessions(&form.session.person).await?;
    let mut response = redirect_with_notice(SIGN_IN, PageMessage::AllEnded);
    let cookie = Cookie::Session.clear_cookie_header(&origin)?;
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

fn sessions_page(layout: &Layout, sessions: &[Session], current_session: &PageSession) -> Markup {
    let user = current_session.person.id.as_str();
    layout.html_page(
        "Sessions",
        NavItem::Sessions,
        &html! {
            div.section-head {
                h1 { "Sessions" }
                (layout.button_form(&format!("{PAGE}/end"), &Button::danger(
                    "End all",
                    "End all your sessions, including this one? Every browser, and anyone who copied its cookie, has to sign in again.",
                )))
            }
            p { "The browsers in which you are signed in. If you don’t recognize one of them, end all sessions here, then all sessions at your identity provider." }
            p.muted {
                "Your ID, with which an operator can offer you an agent: "
                span.copyable { code.long { (user) } (labels::copy_button(user, "Copy your id")) }
            }
            ul.rows { @for session in sessions { (session_row(layout, session, session.id == current_session.id)) } }
        },
    )
}

fn session_row(layout: &Layout, session: &Session, is_current: bool) -> Markup {
    html! {
        li.row {
            div.row-main {
                p {
                    @match &session.user_agent {
                        Some(words) => { (words) }
                        None => { "A browser without a name" }
                    }
                    @if is_current { " " span.chip.good { "this one" } }
                }
                p.muted {
                    "since " (relative_and_exact_time(session.created_at, layout.now)) " · last used " (relative_time(session.seen_at, layout.now))
                    @if let Some(address) = &session.address { " · from " (address) }
                }
            }
            div.row-actions { (layout.button_form(&format!("{PAGE}/{}/end", session.id), &Button::plain("End"))) }
        }
    }
}
