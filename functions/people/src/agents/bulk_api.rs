//! `POST /agents/bulk`: one act on many of the caller's agents.

use crate::agents::bulk::{BulkAct, BulkResult, BulkTarget, MAX_AGENTS};
use crate::agents::outcome::BulkOutcome;
use crate::cursor;
use crate::preview::api::parse_reason_query;
use crate::request::together;
use crate::state::People;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Uri;
use purser_api::{ErrorBody, Failure, Listed, Member as _, Nullable, SessionToken, json_body};
use purser_domain::{AgentId, Error, LabelFilter, LabelKey, Labels, Overrides, Problem, Result, TemplateName};
use purser_store::AgentPlace;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of an act on many agents.
    pub(crate) BulkErrors: 400, 401, 403, 413, 429, 500;
}

purser_api::field! {
    /// An agent, by its id.
    pub(crate) struct BulkAgent(AgentId):
    |value| value.as_str().and_then(AgentId::parse).ok_or_else(|| "must be a UUID".to_owned()),
    json!({"type": "string", "format": "uuid"})
}

impl Listed for BulkAgent {
    const NAME: &'static str = "BulkAgent";

    fn entry() -> Value {
        json!({"description": "The ID of an agent that you own."})
    }
}

purser_api::field! {
    /// The position at which a call continues.
    pub(crate) struct BulkCursor(AgentPlace):
    |value| value.as_str().and_then(cursor::read_agent).ok_or_else(|| cursor::FORM.to_owned()),
    json!({"type": "string", "pattern": "^0[0-2][0-9a-f]{46}$"})
}

purser_api::body! {
    /// The agents on which the call acts.
    pub(crate) enum BulkAgents by kind {
        /// These agents.
        Ids = "ids" {
            ids: Vec<BulkAgent> = {"minItems": 1, "maxItems": MAX_AGENTS, "uniqueItems": true},
        }
        /// The agents with a label. Archived agents are left out, except by `restore`, which leaves out all others.
        Label = "label" {
            /// `key=value`, or `key` for any value.
            label: LabelFilter,
            /// The `next_cursor` of the answer to the previous call.
            cursor: Option<BulkCursor>,
        }
        /// All your agents. Archived agents are left out, except by `restore`, which leaves out all others.
        All = "all" {
            /// The `next_cursor` of the answer to the previous call.
            cursor: Option<BulkCursor>,
        }
    }
}

purser_api::body! {
    /// An act on up to a hundred agents.
    pub(crate) enum BulkBody by act {
        /// Every call of the agents is refused from this answer on.
        Freeze = "freeze" {
            agents: BulkAgents,
        }
        /// Policies decide again. Requires a recent sign-in. Archived agents must be restored first.
        Unfreeze = "unfreeze" {
            agents: BulkAgents,
        }
        /// Freezes the agents and leaves them out of lists.
        Archive = "archive" {
            agents: BulkAgents,
        }
        /// Lists archived agents again, still frozen.
        Restore = "restore" {
            agents: BulkAgents,
        }
        /// Adds labels.
        Label = "label" {
            agents: BulkAgents,
            /// The labels. Their values replace those of equal keys.
            labels: Labels,
        }
        /// Removes labels.
        Unlabel = "unlabel" {
            agents: BulkAgents,
            /// The keys of the labels.
            keys: Vec<LabelKey> = {"minItems": 1, "maxItems": Labels::MAX, "uniqueItems": true},
        }
        /// Sets the safe limits of docs/policies/safe.yaml for up to 25 agents where they have none of their own: caps
        /// for enabled services without limits, and rules of the kinds that the agent does not have (a budget counts
        /// with its window). Limits of its own are kept, and nothing is widened.
        Limit = "limit" {
            agents: BulkAgents,
        }
        /// Applies a policy template to up to 25 agents, which then follow it. Requires a recent sign-in where that widens.
        Follow = "follow" {
            agents: BulkAgents,
            /// The template. Null: the agents follow none any more, and keep their limits.
            template: Nullable<TemplateName>,
            /// What happens to limits that a person set: `keep`, the default, or `overwrite`.
            overrides: Option<Overrides>,
        }
    }
}

impl From<BulkAgents> for BulkTarget {
    fn from(agents: BulkAgents) -> Self {
        let place = |cursor: Option<BulkCursor>| cursor.map(|cursor| cursor.0);
        match agents {
            BulkAgents::Ids { ids } => Self::Agents(ids.into_iter().map(|id| id.0).collect()),
            BulkAgents::Label { label, cursor } => Self::All {
                label: Some(label),
                from: place(cursor),
            },
            BulkAgents::All { cursor } => Self::All {
                label: None,
                from: place(cursor),
            },
        }
    }
}

/// Parses the body of a call.
pub(crate) fn parse(body: &Value) -> Result<(BulkTarget, BulkAct)> {
    let (agents, act) = match BulkBody::parse(body)? {
        BulkBody::Freeze { agents } => (agents, BulkAct::Freeze),
        BulkBody::Unfreeze { agents } => (agents, BulkAct::Unfreeze),
        BulkBody::Archive { agents } => (agents, BulkAct::Archive),
        BulkBody::Restore { agents } => (agents, BulkAct::Restore),
        BulkBody::Label { agents, labels } => (agents, BulkAct::Label(labels)),
        BulkBody::Unlabel { agents, keys } => (agents, BulkAct::Unlabel(keys)),
        BulkBody::Limit { agents } => (agents, BulkAct::Limit),
        BulkBody::Follow {
            agents,
            template: Nullable::Value(name),
            overrides,
        } => (agents, BulkAct::Follow(name, overrides.unwrap_or(Overrides::Keep))),
        BulkBody::Follow {
            agents,
            template: Nullable::Null,
            overrides: _,
        } => (agents, BulkAct::Unfollow),
        BulkBody::Follow {
            template: Nullable::Absent,
            ..
        } => {
            return Err(Error::invalid(vec![Problem::at(
                "/template",
                "is required: a name, or null for none",
            )]));
        }
    };
    let mut problems = Vec::new();
    let target = BulkTarget::from(agents);
    if let BulkTarget::Agents(ids) = &target {
        problems.extend(list_problems("/agents/ids", ids, act.most_agents()));
    }
    if let BulkAct::Unlabel(keys) = &act {
        problems.extend(list_problems("/keys", keys, Labels::MAX));
    }
    if problems.is_empty() {
        Ok((target, act))
    } else {
        Err(Error::invalid(problems))
    }
}

/// The problems of a list of distinct entries, from one to `most`.
pub(crate) fn list_problems<T: Ord>(path: &str, entries: &[T], most: usize) -> Vec<Problem> {
    if entries.is_empty() || entries.len() > most {
        return vec![Problem::at(path, format!("must have 1 to {most} entries"))];
    }
    let mut seen = BTreeSet::new();
    let repeated = entries.iter().enumerate().filter(|(_, entry)| !seen.insert(*entry));
    repeated
        .map(|(index, _)| Problem::at(format!("{path}/{index}"), "must not be repeated"))
        .collect()
}

/// The name of an outcome, and its error.
pub(crate) fn outcome_and_error(outcome: &BulkOutcome) -> (&'static str, Option<ErrorBody>) {
    match outcome {
        BulkOutcome::Done => ("done", None),
        BulkOutcome::Unchanged => ("unchanged", None),
        BulkOutcome::Failed(error) => ("failed", Some(ErrorBody::from(error.kind()))),
    }
}

/// The results of an act on many agents.
#[derive(Serialize, ToSchema)]
#[schema(as = BulkResults)]
pub(crate) struct BulkAnswer {
    /// A result for each agent, in the order of `ids`, or of creation.
    results: Vec<BulkRow>,
    /// The number of agents in this answer.
    count: usize,
    /// Send it as `cursor` to act on the next agents; null if there are no more.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// The result of an act on one agent.
#[derive(Serialize, ToSchema)]
#[schema(as = BulkResult)]
pub(crate) struct BulkRow {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// `done`, `unchanged` if the agent already was as requested, or `failed`.
    #[schema(value_type = String, example = "done")]
    outcome: &'static str,
    /// The reason that the agent was not edited; null if it was.
    #[schema(required)]
    error: Option<ErrorBody>,
}

impl From<BulkResult> for BulkAnswer {
    fn from(result: BulkResult) -> Self {
        let rows = result.outcomes.iter().map(|(id, outcome)| {
            let (outcome, error) = outcome_and_error(outcome);
            BulkRow {
                agent_id: id.to_string(),
                outcome,
                error,
            }
        });
        let results: Vec<BulkRow> = rows.collect();
        Self {
            count: results.len(),
            results,
            next_cursor: result.next.map(cursor::write_agent),
        }
    }
}

/// Freeze, unfreeze, archive, restore, label or limit many agents, or let them follow a policy template.
///
/// Acts on up to a hundred agents, or limits up to 25: repeat the call with `next_cursor` for the rest. Each agent is edited on its own; one
/// that fails does not affect the others, and a repeated call changes only what is not done yet.
#[utoipa::path(
    post,
    path = "/agents/bulk",
    operation_id = "edit_agents",
    tag = "dashboard",
    security(("session" = [])),
    params(("edit_reason" = Option<String>, Query, max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$", description = "Why you set limits. It is kept in the versions and the audit log.")),
    request_body = BulkBody,
    responses((status = 200, body = BulkAnswer, description = "The result for each agent."), BulkErrors)
)]
pub(crate) async fn edit(
    State(people): State<Arc<People>>,
    token: SessionToken,
    uri: Uri,
    body: Bytes,
) -> Result<Json<BulkAnswer>, Failure> {
    let parsed = json_body(&body).and_then(|body| parse(&body));
    let stops = parsed.as_ref().is_ok_and(|(_, act)| act.stops());
    let mut person = people.person(token.into_token()?, stops).await?;
    let ((target, act), reason) = together(parsed, parse_reason_query(&uri))?;
    person.acting.source.reason = reason;
    Ok(Json(Box::pin(people.edit_agents(&person, target, &act)).await?.into()))
}
