//! JSON API for a user's dashboard sessions. Ending all sessions also invalidates the user's ID tokens.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::PeopleState;
use axum::Json;
use axum::extract::Path;
use purser_api::{Reply, SessionToken, endpoint, view};
use purser_domain::{Session, SessionId, Timestamp};

purser_api::views! {
    /// One of the caller's sessions.
    pub(crate) struct SessionView as OwnSession {
        fn from(session: Session);

        /// The session's id: a digest of the secret in the cookie.
        session_id: String = session.id.to_string(),
        created_at: Timestamp = session.created_at,
        /// The time of the last use, to the minute.
        last_seen_at: Timestamp = session.seen_at,
        /// The time at which the session ends at the latest.
        ends_at: Timestamp = session.ends_at,
        /// The time of the user's sign-in at the issuer.
        signed_in_at: Timestamp = session.signed_in_at,
        /// The browser's `User-Agent` header at sign-in.
        user_agent: Option<String> = session.user_agent,
        /// The IP address from which the user signed in.
        address: Option<String> = session.address,
    }
}

/// The caller's open sessions.
#[view(OwnSessionList)]
pub(crate) struct SessionList {
    /// The caller's user id. Operators need it to transfer an agent to you.
    person: String,
    sessions: Vec<SessionView>,
    /// The number of sessions in this response.
    count: usize,
}

/// The number of sessions that the request ended.
#[view(EndedSessions)]
pub(crate) struct EndedView {
    /// The number of sessions that this call ended.
    ended: usize,
}

/// List your sessions.
#[endpoint(get "/sessions", returns = "The open sessions of the dashboard, newest first.")]
pub(crate) async fn list_sessions(people: PeopleState, user: Caller) -> Reply<Json<SessionList>> {
    let sessions = people.list_sessions(&user.id).await?;
    let sessions = sessions.into_iter().map(Into::into);
    Ok(Json(SessionList::from_items(user.id.to_string(), sessions)))
}

/// End a session. Requests with this session are rejected at once.
#[endpoint(
    delete "/sessions/{sessionId}", returns = "The session has ended.",
    params(("sessionId" = String, Path, description = "The `session_id` of one of your sessions.")), errors(NotFound)
)]
pub(crate) async fn end_session(
    people: PeopleState,
    token: SessionToken,
    Path(session): Path<String>,
) -> Reply<Json<EndedView>> {
    let user = people.authenticate_user(token.into_token()?, true).await?;
    people
        .end_session(&user, &require_id(SessionId::parse(&session))?)
        .await?;
    Ok(Json(EndedView { ended: 1 }))
}

/// End all your sessions.
///
/// All sessions, including the current session, and all ID tokens from before this request are rejected.
#[endpoint(delete "/sessions", returns = "The number of ended sessions.")]
pub(crate) async fn end_sessions(people: PeopleState, token: SessionToken) -> Reply<Json<EndedView>> {
    let user = people.authenticate_user(token.into_token()?, true).await?;
    let ended = people.end_sessions(&user).await?;
    Ok(Json(EndedView { ended }))
}
