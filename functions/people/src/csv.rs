//! The audit log as CSV (RFC 4180), for spreadsheets.
//!
//! Always true: no cell is a formula. One that a spreadsheet would take for one begins with an apostrophe, by which
//! spreadsheets know text: what a caller sent as its program's name must not run on its reader's machine.

use purser_api::AuditView;

/// The columns.
const COLUMNS: [&str; 17] = [
    "at",
    "kind",
    "result",
    "agent_id",
    "service_id",
    "object_id",
    "error",
    "reason",
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

/// The line of the columns' names.
pub(crate) fn header() -> String {
    line(&COLUMNS.map(str::to_owned))
}

/// The line of an act.
pub(crate) fn row(act: AuditView) -> String {
    let result = if act.error.is_some() { "refused" } else { "done" };
    let members = |members: serde_json::Map<String, serde_json::Value>| {
        if members.is_empty() {
            String::new()
        } else {
            serde_json::Value::Object(members).to_string()
        }
    };
    line(&[
        act.at,
        act.kind.to_owned(),
        result.to_owned(),
        act.agent_id.unwrap_or_default(),
        act.service_id.unwrap_or_default(),
        act.object_id.unwrap_or_default(),
        act.error.unwrap_or_default(),
        act.reason.unwrap_or_default(),
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

/// One line of these cells.
pub(crate) fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    format!("{}\r\n", cells.join(","))
}

fn cell(text: &str) -> String {
    // OWASP, "CSV Injection": a tab or a line break before one of these does the same.
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let text = if is_formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_ends_another() {
        for (text, expected) in [
            ("", ""),
            ("plain text", "plain text"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r\n=1", "\"'\r\n=1\""),
            ("=cmd|' /C calc'!A0,\"x\"", "\"'=cmd|' /C calc'!A0,\"\"x\"\"\""),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
        assert_eq!(header().matches(',').count(), COLUMNS.len() - 1);
    }
}
