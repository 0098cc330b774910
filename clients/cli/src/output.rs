//! The output of commands, without control characters, which a terminal would execute.

use crate::exit::Failure;
use serde_json::Value;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

/// The format and colour of the output.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    colour: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        // Disables colours if the variable `NO_COLOR` is set (https://no-color.org).
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            json,
            colour: !json && !no_color && io::stderr().is_terminal(),
        }
    }

    /// Prints a result to standard output, as JSON or as lines of text.
    pub(crate) fn print_result(&self, json: &Value, lines: impl FnOnce() -> Vec<String>) {
        let text = if self.json {
            json.to_string()
        } else {
            lines()
                .iter()
                .map(|line| printable(line))
                .collect::<Vec<_>>()
                .join("\n")
        };
        // A closed pipe is not an error, because the reader may be `head`.
        let _ = writeln!(io::stdout(), "{text}");
    }

    /// Prints additional output to standard error, as JSON or as a line of text.
    pub(crate) fn print_note(&self, json: &Value, line: &str) {
        let text = if self.json { json.to_string() } else { printable(line) };
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Prints a message for humans to standard error. Prints nothing in JSON mode.
    pub(crate) fn print_text(&self, text: &str) {
        if !self.json {
            let _ = writeln!(io::stderr(), "{}", printable(text));
        }
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            let _ = writeln!(io::stderr(), "{}", failure.as_json());
            return;
        }
        let mut text = failure.to_string();
        let mut cause = std::error::Error::source(failure);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        let (red, plain) = if self.colour {
            ("\u{1b}[31m", "\u{1b}[0m")
        } else {
            ("", "")
        };
        let _ = writeln!(io::stderr(), "{red}purser:{plain} {}", printable(&text));
        for line in failure.lines() {
            let _ = writeln!(io::stderr(), "  {}", printable(&line));
        }
    }
}

/// Asks the user at the terminal a question, and returns whether the user answers yes.
pub(crate) fn confirm(prompt: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        let message = "nothing is written: nobody is there to ask; see the difference with --dry-run, then say --yes";
        return Err(Failure::Words(message.to_owned()));
    }
    let mut to = io::stderr();
    let _ = write!(to, "{prompt} [y/N] ").and_then(|()| to.flush());
    let mut line = String::new();
    let read = io::stdin().lock().take(16).read_line(&mut line);
    read.map_err(|error| Failure::Words(format!("standard input can't be read: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Replaces control characters, and characters that change the direction of text, with spaces.
fn printable(text: &str) -> String {
    let is_shown = |c: char| {
        !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if is_shown(c) { c } else { ' ' }).collect()
}

/// Formats a table with aligned columns.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let head = head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            all()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    all()
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_provider_text_are_replaced() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}d"), "a [2Jb c d");
    }

    #[test]
    fn table_cells_are_aligned_in_columns() {
        let rows = [
            vec!["a".to_owned(), "b".to_owned()],
            vec!["long".to_owned(), "c".to_owned()],
        ];
        assert_eq!(table(&["x", "y"], &rows), ["x     y", "a     b", "long  c"]);
    }
}
