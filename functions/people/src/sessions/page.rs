//! The page that lists the user's open sessions, on which the user can end one or all sessions.

use crate::agents::owned::parse_id;
use crate::redirect::see_other;
use crate::sessions::cookie::Cookie;
use crate::sessions::session::{PageSession, SIGN_IN, VerifiedForm, origin_of};
use crate::state::People;
use crate::ui::datetime::{both, relative};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem};
use crate::ui::notice::{Notice, done};
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

/// Handles `GET /dashboard/sessions`.
pub(crate) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    let sessions = people.sessions(&session.person.id).await?;
    Ok(page(&layout, &sessions, &session).into_response())
}

/// Handles `GET` of a path that only accepts `POST`: redirects to the page.
pub(crate) async fn back() -> Response {
    see_other(PAGE)
}

/// Handles `POST /dashboard/sessions/{session}/end`.
pub(crate) async fn end(State(people): State<Arc<People>>, Path(session): Path<String>, posted: VerifiedForm) -> Reply {
    let id = parse_id(SessionId::parse(&session))?;
    people.end_session(&posted.session.person, &id).await?;
    // If the user ended the current session, the next page requires a sign-in.
    Ok(done(PAGE, Notice::SessionEnded))
}

/// Handles `POST /dashboard/sessions/end`, which ends all of the user's sessions, including the current session.
pub(crate) async fn end_all(State(people): State<Arc<People>>, request: Request) -> Reply {
    let (parts, body) = request.into_parts();
    let origin = origin_of(&people, &parts)?;
    let posted = match VerifiedForm::from_request(Request::from_parts(parts, body), &people).await {
        Ok(posted) => posted,
        Err(refused) => return Ok(refused),
    };
    people.end_sessions(&posted.session.person).await?;
    let mut answer = done(SIGN_IN, Notice::AllEnded);
    let cookie = Cookie::Session.clear(&origin)?;
    answer.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(answer)
}

fn page(layout: &Layout, sessions: &[Session], here: &PageSession) -> Markup {
    let person = here.person.id.as_str();
    layout.page(
        "Sessions",
        NavItem::Sessions,
        &html! {
            div.section-head {
                h1 { "Sessions" }
                (layout.button(&format!("{PAGE}/end"), &Button::danger(
                    "End all",
                    "End all your sessions, including this one? Every browser, and anyone who copied its cookie, has to sign in again.",
                )))
            }
            p { "The browsers in which you are signed in. If you don’t recognize one of them, end all sessions here, then all sessions at your identity provider." }
            p.muted {
                "Your ID, with which an operator can offer you an agent: "
                span.copyable { code.long { (person) } (labels::copy_button(person, "Copy your id")) }
            }
            ul.rows { @for session in sessions { (row(layout, session, session.id == here.id)) } }
        },
    )
}

fn row(layout: &Layout, session: &Session, is_here: bool) -> Markup {
    html! {
        li.row {
            div.row-main {
                p {
                    @match &session.user_agent {
                        Some(words) => { (words) }
                        None => { "A browser without a name" }
                    }
                    @if is_here { " " span.chip.good { "this one" } }
                }
                p.muted {
                    "since " (both(session.created_at, layout.now)) " · last used " (relative(session.seen_at, layout.now))
                    @if let Some(address) = &session.address { " · from " (address) }
                }
            }
            div.row-actions { (layout.button(&format!("{PAGE}/{}/end", session.id), &Button::plain("End"))) }
        }
    }
}
