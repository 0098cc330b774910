//! The reason that a person gives for an edit.

use crate::is_readable;

/// A reason for an edit: a line of plain text, without white space around it, of 1 to [`EditReason::LONGEST`]
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditReason(String);

impl EditReason {
    /// The maximum length, in characters.
    pub const LONGEST: usize = 200;
    /// The form, as a caller reads it.
    pub const FORM: &'static str = "must be a line of at most 200 characters, some of them visible, without control characters and direction marks";

    /// Parses a new reason, and removes white space around it. A blank text is none. The error is [`Self::FORM`].
    pub fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let reason = Self::from_stored(text).filter(|reason| is_readable(reason.as_str()));
        reason.map(Some).ok_or(Self::FORM)
    }

    /// Parses a stored reason, which may be from before new ones had to be readable.
    pub fn from_stored(text: &str) -> Option<Self> {
        let reason = text.trim();
        let fits = (1..=Self::LONGEST).contains(&reason.chars().count()) && !reason.chars().any(char::is_control);
        fits.then(|| Self(reason.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_bounded_line() {
        let longest = "é".repeat(EditReason::LONGEST);
        let rows = [
            ("", Ok(None)),
            (" \t", Ok(None)),
            (" more calls ", Ok(Some("more calls"))),
            (&longest, Ok(Some(longest.as_str()))),
            (&format!("{longest}é"), Err(EditReason::FORM)),
            ("two\nlines", Err(EditReason::FORM)),
            ("nul\0", Err(EditReason::FORM)),
            ("\u{200b}", Err(EditReason::FORM)),
            ("more \u{202e}sllac", Err(EditReason::FORM)),
        ];
        for (text, expected) in rows {
            let parsed = EditReason::parse(text);
            let parsed = parsed.as_ref().map(|reason| reason.as_ref().map(EditReason::as_str));
            let parsed = parsed.map_err(|form| *form);
            assert_eq!(parsed, expected, "{text:?}");
        }
        assert!(EditReason::FORM.contains(&EditReason::LONGEST.to_string()));
    }
}
