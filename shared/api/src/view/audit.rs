//! The JSON of the audit log, for users and operators, and the filter of a query.

use crate::Query;
use purser_domain::{
    Actor, AgentId, AuditFilter, AuditId, AuditKind, AuditOutcome, AuditRecord, Duration, Fingerprint, ServiceId,
    Timestamp,
};
use serde_json::{Map, Value, json};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

purser_macros::views! {
    /// An audit row. The row records one action (an update, a sign-in or a rejected request), or a transfer that
    /// belongs to no settlement.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct AuditView as AuditEntry {
        /// Creates the view of a row. `sha256` is the row's hash.
        pub fn new(record: &AuditRecord, sha256: &Fingerprint);
        let (person_id, session_id, operator) = match &record.actor {
            Actor::Person { id, session } => (Some(id.to_string()), session.as_ref().map(ToString::to_string), None),
            Actor::Operator(name) => (None, None, Some(name.to_string())),
            Actor::Reconcile | Actor::Rule { .. } | Actor::Client { .. } | Actor::Agent { .. } => (None, None, None),
        };
        let (before, after, rejection) = match &record.outcome {
            AuditOutcome::Done(changes) => (changes.before.clone(), changes.after.clone(), None),
            AuditOutcome::Refused(rejection) => (Map::new(), Map::new(), Some(rejection)),
        };
        let action = &record.act;

        /// The row's ID. IDs sort by time.
        pub audit_id: AuditId = record.id,
        /// The time of the recorded action.
        pub at: Timestamp = record.at,
        /// The kind of the action, such as `policy_edited` or `key_created`. The query parameter `kind` lists all
        /// kinds.
        #[schema(value_type = String, example = "policy_edited")]
        pub kind: &'static str = action.kind.name(),
        /// The user who acted; null for an operator, for a client that ended its access, for a run that an agent opened
        /// or closed, for a transfer found on chain, and for a freeze by a rule.
        pub person_id: Option<String>,
        /// The operator who acted, or `browser:<name>` if the operator used a browser; null for a user, for a client
        /// that ended its access, for a run that an agent opened or closed, for a transfer found on chain, and for a
        /// freeze by a rule.
        pub operator: Option<String>,
        /// The browser session of the user; null if the request had an ID token, and for an operator.
        pub session_id: Option<String>,
        /// The IP address from which the request came.
        pub address: Option<String> = record.source.address.clone(),
        /// The caller's `User-Agent`.
        pub user_agent: Option<String> = record.source.user_agent.clone(),
        /// The request's ID, as in `X-Request-Id`; empty for a transfer found on chain.
        pub request_id: String = record.source.request_id.clone(),
        /// The agent that was changed or affected.
        pub agent_id: Option<AgentId> = action.agent,
        /// The service that was changed or affected.
        pub service_id: Option<ServiceId> = action.service,
        /// The key, rule, approval, session or settlement that was changed or affected; for a transfer that belongs to
        /// no settlement, the transaction and the log index.
        pub object_id: Option<String> = action.object.clone(),
        /// The old values of the changed fields. Long values are truncated.
        #[schema(value_type = Object)]
        pub before: Map<String, Value>,
        /// The new values of the changed fields. Long values are truncated.
        #[schema(value_type = Object)]
        pub after: Map<String, Value>,
        /// The error slug if the action was rejected; null if the action was done.
        #[schema(example = "recent_sign_in_required")]
        pub error: Option<String> = rejection.map(|rejection| rejection.error.clone()),
        /// Why the action was rejected, in addition to `error`. Null if the action was done.
        pub reason: Option<String> = rejection.map(|rejection| rejection.reason.clone()),
        /// The user's reason for an update of limits, the reason for a freeze by a rule, or why Purser ended a client's
        /// access; null without a reason.
        pub edit_reason: Option<String> = record.source.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        /// The SHA-256 hash of the row. The log line about the row contains the same hash.
        pub sha256: String = sha256.to_string(),
    }

    /// A page of audit rows, newest first.
    pub struct AuditList as AuditEntryList {
        /// Creates a page with the cursor of the next page.
        pub fn new(entries: Vec<AuditView>, next_cursor: Option<String>);
        let count = entries.len();

        entries: Vec<AuditView>,
        /// The number of rows on this page. With a filter, a page can contain fewer rows than `limit` even if more
        /// pages follow.
        count: usize,
        /// Send this value as `cursor` to read the next page; null on the last page.
        next_cursor: Option<String>,
    }
}

/// The query parameters of the audit log.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the parameters are parsed by `audit_filter`")]
pub struct AuditParameters {
    /// Only rows about this agent.
    agent_id: Option<uuid::Uuid>,
    /// Only rows of this kind.
    #[param(schema_with = audit_kind_schema)]
    kind: Option<String>,
    /// Only rows at or after this time. A date means the start of the day in UTC.
    #[param(schema_with = DateOrTime::schema)]
    from: Option<String>,
    /// Only rows before this time. A date means the end of the day in UTC.
    #[param(schema_with = DateOrTime::schema)]
    to: Option<String>,
    /// Only rejected actions.
    refused: Option<bool>,
}

fn audit_kind_schema() -> Schema {
    let kinds: Vec<&str> = AuditKind::ALL.iter().map(|kind| kind.name()).collect();
    let pattern = format!("^({})$", kinds.join("|"));
    let kind = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
    Schema::Object(kind.build())
}

/// Parses the filter from the query parameters `agent_id`, `kind`, `from`, `to` and `refused`.
pub fn parse_audit_filter(query: &mut Query) -> AuditFilter {
    let (from, to) = parse_time_range(query);
    AuditFilter {
        agent: query.parse_with("agent_id", AgentId::parse, "must be a UUID"),
        kind: query.parse_with("kind", AuditKind::from_name, AuditKind::allowed_names_message()),
        from,
        to,
        refused: query
            .parse_with("refused", |text| text.parse().ok(), "must be true or false")
            .unwrap_or(false),
    }
}

/// The schema of `from` and `to`: a date or a time.
#[derive(Clone, Copy, Debug)]
pub struct DateOrTime;

impl PartialSchema for DateOrTime {
    fn schema() -> RefOr<Schema> {
        let schema = json!({"oneOf": [
            {"type": "string", "format": "date", "example": "2026-12-31"},
            {"type": "string", "format": "date-time"},
        ]});
        // Without a valid schema, the OpenAPI document differs from the committed document, and a test fails.
        serde_json::from_value(schema).unwrap_or_default()
    }
}

impl ToSchema for DateOrTime {}

/// Parses a query's time range, which includes `from` and excludes `to`. A date in `to` includes the whole day in UTC.
pub fn parse_time_range(query: &mut Query) -> (Option<Timestamp>, Option<Timestamp>) {
    const TIME: &str = "must be a date (YYYY-MM-DD, UTC), or a time as in RFC 3339";
    let from = query.parse_with("from", |text| parse_time(text, Duration::from_secs_u32(0)), TIME);
    let to = query.parse_with("to", |text| parse_time(text, Duration::DAY), TIME);
    if let (Some(from), Some(to)) = (from, to)
        && to <= from
    {
        query.add_error("to", "must be after `from`");
    }
    (from, to)
}

/// Parses a time or a date. A date is the start of the day in UTC plus `date_offset` (`from`: 0, `to`: one day).
fn parse_time(text: &str, date_offset: Duration) -> Option<Timestamp> {
    if text.len() == "2026-11-21".len() {
        return Timestamp::parse(&format!("{text}T00:00:00Z")).map(|start| start.after(date_offset));
    }
    Timestamp::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_filter_includes_the_whole_last_day() {
        let filter = |query: &str| {
            let mut query = Query::from_uri(&format!("/audit-log?{query}").parse().unwrap());
            let filter = parse_audit_filter(&mut query);
            query.finish().map(|()| filter).ok()
        };
        let at = Timestamp::parse;
        let days = filter("from=2026-11-21&to=2026-11-21&refused=true").unwrap();
        assert_eq!(
            (days.from, days.to),
            (at("2026-11-21T00:00:00Z"), at("2026-11-22T00:00:00Z"))
        );
        assert!(days.refused);
        let exact = filter("from=2026-11-21T01:02:03.000004Z&kind=key_created").unwrap();
        assert_eq!(exact.from, at("2026-11-21T01:02:03.000004Z"));
        assert_eq!(exact.kind, Some(AuditKind::KeyCreated));
        for wrong in [
            "from=yesterday",
            "to=2026-13-01",
            "kind=keys",
            "refused=yes",
            "agent_id=1",
        ] {
            assert_eq!(filter(wrong), None, "{wrong}");
        }
    }
}
