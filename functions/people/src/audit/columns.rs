//! The audit log as CSV.

use crate::csv::{csv_line, time_cell};
use purser_api::AuditView;

/// The column names.
const COLUMNS: [&str; 18] = [
    "at",
    "kind",
    "result",
    "agent_id",
    "service_id",
    "object_id",
    "error",
    "reason",
    "edit_reason",
    "before",
    "after",
    "session_id",
    "address",
    "user_agent",
    "request_id",
    "person_id",
    "audit_id",
    "sha256",
];

pub(crate) fn csv_header() -> String {
    csv_line(&COLUMNS.map(str::to_owned))
}

/// Formats an audit row as a CSV line.
pub(crate) fn csv_row(act: AuditView) -> String {
    let result = if act.error.is_some() { "refused" } else { "done" };
    let members = |members: serde_json::Map<String, serde_json::Value>| {
        if members.is_empty() {
            String::new()
        } else {
            serde_json::Value::Object(members).to_string()
        }
    };
    csv_line(&[
        time_cell(act.at),
        act.kind.to_owned(),
        result.to_owned(),
        act.agent_id.unwrap_or_default(),
        act.service_id.unwrap_or_default(),
        act.object_id.unwrap_or_default(),
        act.error.unwrap_or_default(),
        act.reason.unwrap_or_default(),
        act.edit_reason.unwrap_or_default(),
        members(act.before),
        members(act.after),
        act.session_id.unwrap_or_default(),
        act.address.unwrap_or_default(),
        act.user_agent.unwrap_or_default(),
        act.request_id,
        act.person_id.unwrap_or_default(),
        act.audit_id,
        act.sha256,
    ])
}
