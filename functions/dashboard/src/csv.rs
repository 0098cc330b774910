//! Lists as CSV files (RFC 4180) for spreadsheets. A byte order mark makes Excel read them as UTF-8.
//!
//! Invariant: no cell is a formula, which could run code on the reader's computer. Such cells get a leading apostrophe.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use purser_domain::escape_hidden_characters;
use std::fmt::Display;

/// The size in bytes at which a file is full. A Lambda response has at most 6 MB, with quotes escaped as JSON.
pub(crate) const MAX_BYTES: usize = 4_000_000;

/// If rows remain, the last line is the URL of the next file.
pub(crate) fn csv_file_response(name: &str, lines: &str, next: Option<String>) -> Response {
    let mut text = format!("\u{feff}{lines}");
    if let Some(next) = next {
        text.push_str(&csv_line([format!("next: {next}")]));
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}.csv\""),
        ),
    ];
    (headers, text).into_response()
}

/// The name of each column, and the function that formats a cell.
pub(crate) type Columns<R> = [(&'static str, fn(&R) -> String)];

pub(crate) fn csv_header<R>(columns: &Columns<R>) -> String {
    csv_line(columns.iter().map(|(name, _)| (*name).to_owned()))
}

pub(crate) fn csv_row<R>(columns: &Columns<R>, row: &R) -> String {
    csv_line(columns.iter().map(|(_, format)| format(row)))
}

/// Formats the value of a cell; empty if the value is absent.
pub(crate) fn cell(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats a time as UTC in whole seconds, because spreadsheets do not recognize RFC 3339.
pub(crate) fn time_cell(at: impl Display) -> String {
    let at = at.to_string();
    at.chars().take(19).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

fn csv_line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|text| escape_cell(&text)).collect();
    format!("{}\r\n", cells.join(","))
}

fn escape_cell(text: &str) -> String {
    // Spreadsheets also evaluate formulas after a tab or a line break (OWASP, CSV Injection). Some programs evaluate
    // formulas that begin with a full-width sign, or drop a byte order mark before a formula.
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠', '\u{feff}']);
    let prefix = if is_formula { "'" } else { "" };
    let text = format!("{prefix}{}", escape_hidden_characters(text));
    // Spreadsheets that separate cells at semicolons or tabs would evaluate the second part of `x;=1+1`.
    if text.contains(['"', ',', ';', '\t', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_times_have_a_format_that_spreadsheets_parse() {
        for (at, cell) in [
            ("2026-11-29T01:02:03.456789Z", "2026-11-29 01:02:03"),
            ("2026-11-29T01:02:03Z", "2026-11-29 01:02:03"),
            ("", ""),
        ] {
            assert_eq!(time_cell(at), cell);
        }
    }

    #[test]
    fn csv_cells_escape_formulas_quotes_and_separators() {
        for (text, expected) in [
            ("", ""),
            ("plain text", "plain text"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("＝1+1", "'＝1+1"),
            ("＋1", "'＋1"),
            ("－1", "'－1"),
            ("＠SUM(A1)", "'＠SUM(A1)"),
            ("\u{feff}=1+1", "'\\u{feff}=1+1"),
            ("\t=1", "'\\u{9}=1"),
            ("a\u{202e}b\u{200b}", "a\\u{202e}b\\u{200b}"),
            ("x;=1+1", "\"x;=1+1\""),
            ("\r\n=1", "\"'\\u{d}\n=1\""),
            ("=cmd|' /C calc'!A0,\"x\"", "\"'=cmd|' /C calc'!A0,\"\"x\"\"\""),
        ] {
            assert_eq!(escape_cell(text), expected, "{text:?}");
        }
    }
}
