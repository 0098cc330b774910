//! The API: JSON for whoever has a session of a person (in `approval.rs`: or an agent's key), in the `Authorization` header
//! alone. The pages' cookie does not speak here, so that no other site can make a browser ask.
//!
//! One file per thing, and in it one function per route: parse, operate, answer. They judge in one order: the session
//! (401), whose thing it is and whether it exists (404), the body and the query (400, every problem at once), the version
//! that is meant (428, 412).

mod agents;
mod approval;
mod approval_view;
mod approvals;
#[cfg(test)]
mod bodies;
pub(crate) mod cursor;
mod decisions;
mod keys;
mod rules;
mod services;
mod settlements;
mod wallet;

use crate::Dashboard;
use crate::owned::Owned;
use crate::page::READ_AT_ONCE;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use purser_api::{IfMatch, Person, Precondition, Query, SessionToken, json_body};
use purser_domain::{AgentId, Error, ErrorKind, Result};
use serde_json::Value;
use std::sync::Arc;

purser_api::routes!(
    Arc<Dashboard>,
    agents::list,
    agents::create,
    agents::read,
    agents::edit,
    keys::list,
    keys::create,
    keys::rotate,
    keys::revoke,
    services::list,
    services::enable,
    services::read,
    services::edit,
    services::disable,
    rules::list,
    rules::add,
    rules::replace,
    rules::remove,
    wallet::read,
    approval::approval,
    approvals::list,
    approvals::read,
    approvals::approve,
    approvals::reject,
    decisions::list,
    decisions::read,
    settlements::list,
    settlements::read,
);

impl Dashboard {
    /// The person behind a request.
    async fn enter(&self, token: SessionToken) -> Result<Person> {
        self.person(&token.presented()?).await
    }

    /// The agent that a request names, if it is the caller's.
    async fn enter_for(&self, token: SessionToken, agent: &str) -> Result<Owned> {
        let read = async |person: &Person| self.own_agent(person, named(AgentId::parse(agent))?).await;
        let (_, owned) = self.person_reading(&token.presented()?, read).await?;
        Ok(owned)
    }
}

/// What a path names; a text that is no id names nothing.
fn named<T>(id: Option<T>) -> Result<T> {
    id.ok_or_else(|| ErrorKind::NotFound.into())
}

/// A body that may be left out, for requests that need no word.
fn optional_body(bytes: &Bytes) -> Result<Value> {
    if bytes.is_empty() {
        Ok(Value::Object(serde_json::Map::new()))
    } else {
        json_body(bytes)
    }
}

/// The body and the version that is meant. Both are judged, so that the problems of both are told at once.
fn with_version<T>(body: Result<T>, meant: Result<Precondition>) -> Result<(T, Precondition)> {
    match (body, meant) {
        (Ok(body), Ok(meant)) => Ok((body, meant)),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
        (Err(body), Err(meant)) => match (body.kind(), meant.kind()) {
            (ErrorKind::InvalidRequest(of_body), ErrorKind::InvalidRequest(of_header)) => {
                Err(Error::invalid([of_header.as_slice(), of_body.as_slice()].concat()))
            }
            (ErrorKind::FieldRequired { field, problems }, ErrorKind::InvalidRequest(of_header)) => {
                let problems = [of_header.as_slice(), problems.as_slice()].concat();
                Err(ErrorKind::FieldRequired { field, problems }.into())
            }
            _ => Err(body),
        },
    }
}

/// The version that is meant, where a write that says everything may leave it out: whatever is there.
fn version_or_any(meant: IfMatch) -> Result<Precondition> {
    match meant.precondition() {
        Err(error) if matches!(error.kind(), ErrorKind::VersionRequired) => Ok(Precondition::Any),
        meant => meant,
    }
}

/// How many rows a list answers.
fn limit(query: &mut Query) -> u32 {
    query.limit("limit", 25, READ_AT_ONCE)
}

/// The agent that a list is narrowed down to.
fn agent_filter(query: &mut Query) -> Option<AgentId> {
    query.read("agent_id", AgentId::parse, "must be a UUID")
}

/// An answer to what was made.
fn created(answer: impl IntoResponse) -> Response {
    (StatusCode::CREATED, answer).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Problem;

    #[test]
    fn the_problems_of_a_body_and_of_its_version_are_told_together() {
        let wrong = |path: &str| -> Result<Precondition> { Err(Error::invalid(vec![Problem::at(path, "no")])) };
        let missing = || -> Result<Precondition> { Err(ErrorKind::VersionRequired.into()) };
        let any = || Ok(Precondition::Any);
        let rows = [
            (any(), any(), None),
            (any(), missing(), Some(("version_required", vec![]))),
            (wrong("/name"), missing(), Some(("invalid_request", vec!["/name"]))),
            (wrong("/name"), any(), Some(("invalid_request", vec!["/name"]))),
            (
                wrong("/name"),
                wrong("/If-Match"),
                Some(("invalid_request", vec!["/If-Match", "/name"])),
            ),
        ];
        for (body, meant, expected) in rows {
            let told = with_version(body, meant).err().map(|error| match error.kind() {
                ErrorKind::InvalidRequest(problems) => (
                    error.kind().slug(),
                    problems.iter().map(|problem| problem.path.clone()).collect(),
                ),
                other => (other.slug(), Vec::new()),
            });
            let expected = expected.map(|(slug, paths)| {
                (
                    slug.to_owned(),
                    paths.into_iter().map(str::to_owned).collect::<Vec<_>>(),
                )
            });
            assert_eq!(told, expected);
        }
    }
}
