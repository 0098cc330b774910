//! Extractors and parsers that all endpoints share.

use crate::agents::owned::{OwnedAgent, require_id};
use crate::approvals::operations::OwnApproval;
use crate::caller::Caller;
use crate::cursor;
use crate::state::People;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use purser_api::{
    Argument, Failure, Id, IfMatch, OperationDescription, PathId, Precondition, Query, SessionToken, path_parameter,
};
use purser_domain::{AgentId, ApprovalId, Error, ErrorKind, Result};
use purser_store::{MAX_ROWS_PER_READ, PageRequest};
use std::sync::Arc;

impl FromRequestParts<Arc<People>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Failure> {
        let Ok(token) = SessionToken::from_request_parts(parts, people).await;
        Ok(people.authenticate_user(token.into_token()?, false).await?)
    }
}

impl Argument for Caller {
    fn describe(operation: &mut OperationDescription) {
        SessionToken::describe(operation);
    }
}

/// The error is `not_found` if the agent does not belong to the user.
impl FromRequestParts<Arc<People>> for OwnedAgent {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Failure> {
        let Ok(token) = SessionToken::from_request_parts(parts, people).await;
        let agent = path_parameter(parts, AgentId::PARAMETER).await;
        Ok(people
            .authenticate_for_agent(token, &agent.unwrap_or_default(), false)
            .await?)
    }
}

impl Argument for OwnedAgent {
    fn describe(operation: &mut OperationDescription) {
        SessionToken::describe(operation);
        operation.add_path_parameter(AgentId::PARAMETER, "An agent that you own.", false);
    }
}

/// The error is `not_found` if the approval does not belong to the agent in the path.
impl FromRequestParts<Arc<People>> for OwnApproval {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Failure> {
        let owned = OwnedAgent::from_request_parts(parts, people).await?;
        let Id(approval) = Id::from_request_parts(parts, people).await?;
        Ok(people.read_own_approval(owned, approval).await?)
    }
}

impl Argument for OwnApproval {
    fn describe(operation: &mut OperationDescription) {
        OwnedAgent::describe(operation);
        Id::<ApprovalId>::describe(operation);
    }
}

impl People {
    /// Returns the agent in the path. `is_stop_request` is whether the request stops the agent's payments.
    pub(crate) async fn authenticate_for_agent(
        &self,
        token: SessionToken,
        agent: &str,
        is_stop_request: bool,
    ) -> Result<OwnedAgent> {
        let read = async |user: &Caller| self.read_own_agent(user, require_id(AgentId::parse(agent))?).await;
        let (_, owned) = self
            .authenticate_user_and_read(token.into_token()?, is_stop_request, read)
            .await?;
        Ok(owned)
    }
}

/// The slug or UUID of a service, in the path.
pub(crate) struct ServiceReference(pub(crate) String);

impl PathId for ServiceReference {
    const PARAMETER: &'static str = "serviceId";
    const DESCRIPTION: &'static str = "The service's slug or UUID.";
    const IS_UUID: bool = false;

    fn parse_id(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

/// A record's version, in the path.
pub(crate) struct Version(pub(crate) u64);

impl PathId for Version {
    const PARAMETER: &'static str = "version";
    const DESCRIPTION: &'static str = "The version to restore: a `version` in the list of versions.";
    const IS_UUID: bool = false;

    fn parse_id(text: &str) -> Option<Self> {
        cursor::parse_version_cursor(text).map(Self)
    }
}

/// The error lists the validation errors of both results.
pub(crate) fn combine_results_and_errors<T, O>(body: Result<T>, other: Result<O>) -> Result<(T, O)> {
    match (body, other) {
        (Ok(body), Ok(other)) => Ok((body, other)),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
        (Err(body), Err(other)) => match (body.kind(), other.kind()) {
            (ErrorKind::InvalidRequest(of_body), ErrorKind::InvalidRequest(of_header)) => {
                Err(Error::invalid([of_header.as_slice(), of_body.as_slice()].concat()))
            }
            (
                ErrorKind::FieldRequired {
                    field,
                    problems: errors,
                },
                ErrorKind::InvalidRequest(of_header),
            ) => {
                let errors = [of_header.as_slice(), errors.as_slice()].concat();
                Err(ErrorKind::FieldRequired {
                    field,
                    problems: errors,
                }
                .into())
            }
            _ => Err(body),
        },
    }
}

/// Without `If-Match`, any version matches, because the write replaces the whole record.
pub(crate) fn precondition_or_any_version(if_match: IfMatch) -> Result<Precondition> {
    match if_match.into_precondition() {
        Err(error) if matches!(error.kind(), ErrorKind::VersionRequired) => Ok(Precondition::Any),
        if_match => if_match,
    }
}

pub(crate) fn parse_page_request<P>(query: &mut Query, parse_cursor: impl FnOnce(&str) -> Option<P>) -> PageRequest<P> {
    PageRequest {
        before: query.parse_with("cursor", parse_cursor, cursor::FORM),
        limit: query.parse_limit("limit", 25, MAX_ROWS_PER_READ),
    }
}

pub(crate) fn parse_agent_filter(query: &mut Query) -> Option<AgentId> {
    query.parse_with("agent_id", AgentId::parse, "must be a UUID")
}

pub(crate) fn created_response(body: impl IntoResponse) -> Response {
    (StatusCode::CREATED, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::ValidationError;

    #[test]
    fn body_and_if_match_errors_are_reported_together() {
        let wrong =
            |path: &str| -> Result<Precondition> { Err(Error::invalid(vec![ValidationError::at_path(path, "no")])) };
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
        for (body, if_match, expected) in rows {
            let told = combine_results_and_errors(body, if_match)
                .err()
                .map(|error| match error.kind() {
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
