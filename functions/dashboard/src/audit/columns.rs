//! The audit log as CSV.

use crate::csv::{Columns, cell, time_cell};
use purser_api::AuditView;
use serde_json::{Map, Value};

pub(crate) const COLUMNS: &Columns<AuditView> = &[
    ("at", |row| time_cell(row.at)),
    ("kind", |row| row.kind.to_owned()),
    ("result", |row| {
        if row.error.is_some() { "refused" } else { "done" }.to_owned()
    }),
    ("agent_id", |row| cell(row.agent_id)),
    ("service_id", |row| cell(row.service_id)),
    ("object_id", |row| cell(row.object_id.as_ref())),
    ("error", |row| cell(row.error.as_ref())),
    ("reason", |row| cell(row.reason.as_ref())),
    ("edit_reason", |row| cell(row.edit_reason.as_ref())),
    ("before", |row| changes_cell(&row.before)),
    ("after", |row| changes_cell(&row.after)),
    ("session_id", |row| cell(row.session_id.as_ref())),
    ("address", |row| cell(row.address.as_ref())),
    ("user_agent", |row| cell(row.user_agent.as_ref())),
    ("request_id", |row| row.request_id.clone()),
    ("person_id", |row| cell(row.person_id.as_ref())),
    ("audit_id", |row| row.audit_id.to_string()),
    ("sha256", |row| row.sha256.clone()),
];

fn changes_cell(fields: &Map<String, Value>) -> String {
    if fields.is_empty() {
        return String::new();
    }
    Value::Object(fields.clone()).to_string()
}
