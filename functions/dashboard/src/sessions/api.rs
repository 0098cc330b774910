//! JSON API for a user's dashboard sessions. Ending all sessions also invalidates the user's ID tokens.

use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{Failure, SessionToken, errors};
use purser_domain::{Session, SessionId};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// One of the caller's sessions.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnSession)]
pub(crate) struct SessionView {
    /// The session's id: a digest of the secret in the cookie.
    session_id: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// The time of the last use, to the minute.
    #[schema(format = DateTime)]
    last_seen_at: String,
    /// The time at which the session ends at the latest.
    #[schema(format = DateTime)]
    ends_at: String,
    /// The time of the user's sign-in at the issuer.
    #[schema(format = DateTime)]
    signed_in_at: String,
    /// The browser's `User-Agent` header at sign-in.
    #[schema(required)]
    user_agent: Option<String>,
    /// The IP address from which the user signed in.
    #[schema(required)]
    address: Option<String>,
}

impl From<Session> for SessionView {
    fn from(session: Session) -> Self {
        Self {
            session_id: session.id.to_string(),
            created_at: session.created_at.to_string(),
            last_seen_at: session.seen_at.to_string(),
            ends_at: session.ends_at.to_string(),
            signed_in_at: session.signed_in_at.to_string(),
            user_agent: session.user_agent,
            address: session.address,
        }
    }
}

/// The caller's open sessions.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnSessionList)]
pub(crate) struct SessionList {
    /// The caller's user id. Operators need it to transfer an agent to you.
    person: String,
    sessions: Vec<SessionView>,
    /// The number of sessions in this response.
    count: usize,
}

/// The number of sessions that the request ended.
#[derive(Serialize, ToSchema)]
#[schema(as = EndedSessions)]
pub(crate) struct EndedView {
    /// The number of sessions that this call ended.
    ended: usize,
}

/// List your sessions.
#[utoipa::path(
    get, path = "/sessions", operation_id = "list_sessions",
    responses((status = 200, body = SessionList, description = "The open sessions of the dashboard, newest first."))
)]
pub(crate) async fn list_sessions(
    State(people): State<Arc<People>>,
    user: Caller,
) -> Result<Json<SessionList>, Failure> {
    let sessions: Vec<SessionView> = people
        .list_sessions(&user.id)
        .await?
        .into_iter()
        .map(Into::into)
        .collect();
    Ok(Json(SessionList {
        person: user.id.to_string(),
        count: sessions.len(),
        sessions,
    }))
}

/// End a session. Requests with this session are rejected at once.
#[utoipa::path(
    delete, path = "/sessions/{sessionId}", operation_id = "end_session",
    params(("sessionId" = String, Path, description = "The `session_id` of one of your sessions.")),
    responses((status = 200, body = EndedView, description = "The session has ended."), errors::NotFound)
)]
pub(crate) async fn end_session(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(session): Path<String>,
) -> Result<Json<EndedView>, Failure> {
    let user = people.authenticate_user(token.into_token()?, true).await?;
    people
        .end_session(&user, &require_id(SessionId::parse(&session))?)
        .await?;
    Ok(Json(EndedView { ended: 1 }))
}

/// End all your sessions.
///
/// All sessions, including the current session, and all ID tokens from before this request are rejected.
#[utoipa::path(
    delete, path = "/sessions", operation_id = "end_sessions",
    responses((status = 200, body = EndedView, description = "The number of ended sessions."))
)]
pub(crate) async fn end_sessions(
    State(people): State<Arc<People>>,
    token: SessionToken,
) -> Result<Json<EndedView>, Failure> {
    let user = people.authenticate_user(token.into_token()?, true).await?;
    let ended = people.end_sessions(&user).await?;
    Ok(Json(EndedView { ended }))
}
