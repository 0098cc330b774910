//! `POST /agents/bulk`, which applies one operation to many of the caller's agents.

use crate::agents::bulk::{BulkOperation, BulkResult, BulkTarget, MAX_AGENTS};
use crate::agents::operations::AgentUpdate;
use crate::agents::outcome::BulkOutcome;
use crate::cursor;
use crate::preview::api::AskedReason;
use crate::request::combine_results_and_errors;
use crate::state::PeopleState;
use axum::Json;
use purser_api::{Body, ErrorBody, Listed, Member as _, Nullable, Parameters, Reply, SessionToken, endpoint, view};
use purser_domain::{
    AgentId, AgentStatus, Error, LabelFilter, LabelKey, Labels, Overrides, Result, TemplateName, ValidationError,
};
use purser_store::AgentCursor;
use serde_json::{Value, json};
use std::collections::BTreeSet;

purser_api::field! {
    /// The id of an agent that a bulk call changes.
    pub(crate) struct BulkAgent(AgentId):
    |value| value.as_str().and_then(AgentId::parse).ok_or_else(|| "must be a UUID".to_owned()),
    json!({"type": "string", "format": "uuid"})
}

impl Listed for BulkAgent {
    const NAME: &'static str = "BulkAgent";

    fn item_schema() -> Value {
        json!({"description": "The ID of an agent that you own."})
    }
}

purser_api::field! {
    /// The cursor at which a bulk call continues.
    pub(crate) struct BulkCursor(AgentCursor):
    |value| value.as_str().and_then(cursor::parse_agent_cursor).ok_or_else(|| cursor::FORM.to_owned()),
    json!({"type": "string", "pattern": "^0[0-2][0-9a-f]{46}$"})
}

purser_api::body! {
    /// The agents that the call changes.
    pub(crate) enum BulkAgents by kind {
        /// The agents whose ids are in `ids`.
        Ids = "ids" {
            ids: Vec<BulkAgent> = {"minItems": 1, "maxItems": MAX_AGENTS, "uniqueItems": true},
        }
        /// The agents with a label. `restore` selects only archived agents; all other operations leave archived agents
        /// out.
        Label = "label" {
            /// The label, as `key=value`, or as `key` for any value.
            label: LabelFilter,
            /// The `next_cursor` from the response to the previous call.
            cursor: Option<BulkCursor>,
        }
        /// All your agents. `restore` selects only archived agents; all other operations leave archived agents out.
        All = "all" {
            /// The `next_cursor` from the response to the previous call.
            cursor: Option<BulkCursor>,
        }
    }
}

purser_api::body! {
    /// An operation on up to 100 agents.
    pub(crate) enum BulkBody by act {
        /// Freezes the agents. All calls of the agents are rejected as soon as you have this response.
        Freeze = "freeze" {
            agents: BulkAgents,
        }
        /// Makes the agents active again. This requires a recent sign-in. An archived agent must be restored first.
        Unfreeze = "unfreeze" {
            agents: BulkAgents,
        }
        /// Archives the agents: freezes the agents, and omits the agents from lists of agents.
        Archive = "archive" {
            agents: BulkAgents,
        }
        /// Restores archived agents, so that lists of agents show the agents again. The agents stay frozen.
        Restore = "restore" {
            agents: BulkAgents,
        }
        /// Adds labels to the agents.
        Label = "label" {
            agents: BulkAgents,
            /// The labels to add. If an agent already has a label with the same key, the new value replaces the old
            /// value.
            labels: Labels,
        }
        /// Removes labels from the agents.
        Unlabel = "unlabel" {
            agents: BulkAgents,
            /// The keys of the labels to remove.
            keys: Vec<LabelKey> = {"minItems": 1, "maxItems": Labels::MAX, "uniqueItems": true},
        }
        /// Sets the safe limits of docs/policies/safe.yaml for up to 25 agents. Enabled services without limits get
        /// caps, and an agent gets each kind of rule that the agent does not have (budgets with different windows are
        /// different kinds). Existing limits stay, and no limit is widened.
        Limit = "limit" {
            agents: BulkAgents,
        }
        /// Applies a policy template to up to 25 agents, which follow the template afterwards. This requires a recent
        /// sign-in if it widens an agent's limits.
        Follow = "follow" {
            agents: BulkAgents,
            /// The template's name. With null, the agents stop following their template and keep their limits.
            template: Nullable<TemplateName>,
            /// What happens to limits that a user set on the agent: `keep` (the default) keeps them, and `overwrite`
            /// replaces them by the template's limits.
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

pub(crate) fn parse_bulk_update(body: &Value) -> Result<(BulkTarget, BulkOperation)> {
    let status = |status| BulkOperation::Update(AgentUpdate::for_status(status));
    let archived = |archived| BulkOperation::Update(AgentUpdate::for_archived(archived));
    let (agents, action) = match BulkBody::parse(body)? {
        BulkBody::Freeze { agents } => (agents, status(AgentStatus::Frozen)),
        BulkBody::Unfreeze { agents } => (agents, status(AgentStatus::Active)),
        BulkBody::Archive { agents } => (agents, archived(true)),
        BulkBody::Restore { agents } => (agents, archived(false)),
        BulkBody::Label { agents, labels } => (agents, BulkOperation::Label(labels)),
        BulkBody::Unlabel { agents, keys } => (agents, BulkOperation::Unlabel(keys)),
        BulkBody::Limit { agents } => (agents, BulkOperation::Limit),
        BulkBody::Follow {
            agents,
            template: Nullable::Value(name),
            overrides,
        } => (
            agents,
            BulkOperation::Follow(name, overrides.unwrap_or(Overrides::Keep)),
        ),
        BulkBody::Follow {
            agents,
            template: Nullable::Null,
            overrides: _,
        } => (agents, BulkOperation::Unfollow),
        BulkBody::Follow {
            template: Nullable::Absent,
            ..
        } => {
            return Err(Error::invalid(vec![ValidationError::at_path(
                "/template",
                "is required: a name, or null for none",
            )]));
        }
    };
    let mut errors = Vec::new();
    let target = BulkTarget::from(agents);
    if let BulkTarget::Agents(ids) = &target {
        errors.extend(size_and_duplicate_errors("/agents/ids", ids, action.max_agents()));
    }
    if let BulkOperation::Unlabel(keys) = &action {
        errors.extend(size_and_duplicate_errors("/keys", keys, Labels::MAX));
    }
    if errors.is_empty() {
        Ok((target, action))
    } else {
        Err(Error::invalid(errors))
    }
}

/// Checks that the list has 1 to `max_len` entries, without duplicates.
pub(crate) fn size_and_duplicate_errors<T: Ord>(path: &str, entries: &[T], max_len: usize) -> Vec<ValidationError> {
    if entries.is_empty() || entries.len() > max_len {
        return vec![ValidationError::at_path(
            path,
            format!("must have 1 to {max_len} entries"),
        )];
    }
    let mut seen = BTreeSet::new();
    let repeated = entries.iter().enumerate().filter(|(_, entry)| !seen.insert(*entry));
    repeated
        .map(|(index, _)| ValidationError::at_path(format!("{path}/{index}"), "must not be repeated"))
        .collect()
}

/// Returns the outcome's name in JSON, and the error of a failed update.
pub(crate) fn outcome_and_error(outcome: &BulkOutcome) -> (&'static str, Option<ErrorBody>) {
    match outcome {
        BulkOutcome::Done => ("done", None),
        BulkOutcome::Unchanged => ("unchanged", None),
        BulkOutcome::Failed(error) => ("failed", Some(ErrorBody::from(error.kind()))),
    }
}

purser_api::views! {
    /// The result of a bulk operation for each agent, and the cursor for the remaining agents.
    pub(crate) struct BulkAnswer as BulkResults {
        fn from(result: BulkResult);
        let rows = result.outcomes.iter().map(|(id, outcome)| {
            let (outcome, error) = outcome_and_error(outcome);
            BulkRow {
                agent_id: *id,
                outcome,
                error,
            }
        });
        let results: Vec<BulkRow> = rows.collect();
        let count = results.len();

        /// One result per agent, in the order of `ids`, or oldest agent first.
        results: Vec<BulkRow>,
        /// The number of agents in this response.
        count: usize,
        /// The cursor for the remaining agents. Repeat the call with this `cursor`. Null if no agents remain.
        next_cursor: Option<String> = result.next.map(cursor::format_agent_cursor),
    }
}

/// The result of a bulk operation for one agent.
#[view(BulkResult)]
pub(crate) struct BulkRow {
    agent_id: AgentId,
    /// `done`, `unchanged` if the agent was already in the requested state, or `failed`.
    #[schema(value_type = String, example = "done")]
    outcome: &'static str,
    /// The error that prevented the update; null unless `outcome` is `failed`.
    error: Option<ErrorBody>,
}

/// Freeze, unfreeze, archive, restore, label or limit many agents, or let them follow a policy template.
///
/// One call changes up to 100 agents, or up to 25 if it changes limits. Repeat the call with `next_cursor` for the
/// remaining agents. Each agent is updated separately, so a failure does not affect other agents. A repeated call
/// changes only agents that are not yet in the requested state.
#[endpoint(
    post "/agents/bulk", operation_id = "edit_agents", returns = "The result for each agent.",
    errors(RecentSignInRequired)
)]
pub(crate) async fn update_agents(
    people: PeopleState,
    token: SessionToken,
    reason: Parameters<AskedReason>,
    body: Body<BulkBody>,
) -> Reply<Json<BulkAnswer>> {
    let parsed = body.json().and_then(|body| parse_bulk_update(&body));
    let stops = parsed.as_ref().is_ok_and(|(_, action)| action.stops_payments());
    let mut user = people.authenticate_user(token.into_token()?, stops).await?;
    let ((target, action), reason) = combine_results_and_errors(parsed, reason.0)?;
    user.acting.source.reason = reason.edit_reason;
    Ok(Json(
        Box::pin(people.update_agents(&user, target, &action)).await?.into(),
    ))
}
