//! The audit log as CSV.

use crate::csv::{csv_line, time_cell};
use purser_api::AuditView;

/// The first line of the CSV file: the name of each cell of [`csv_row`], in the same order.
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
pub(crate) fn csv_row(row: AuditView) -> String {
    let result = if row.error.is_some() { "refused" } else { "done" };
    let fields = |fields: serde_json::Map<String, serde_json::Value>| {
        if fields.is_empty() {
            String::new()
        } else {
            serde_json::Value::Object(fields).to_string()
        }
    };
    csv_line(&[
        time_cell(row.at),
        row.kind.to_owned(),
        result.to_owned(),
        row.agent_id.unwrap_or_default(),
        row.service_id.unwrap_or_default(),
        row.object_id.unwrap_or_default(),
        row.error.unwrap_or_default(),
        row.reason.unwrap_or_default(),
        row.edit_reason.unwrap_or_default(),
        fields(row.before),
        fields(row.after),
        row.session_id.unwrap_or_default(),
        row.address.unwrap_or_default(),
        row.user_agent.unwrap_or_default(),
        row.request_id,
        row.person_id.unwrap_or_default(),
        row.audit_id,
        row.sha256,
    ])
}
