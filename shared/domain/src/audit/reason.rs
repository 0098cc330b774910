//! The reason that a user gives for an update.

use crate::value::line::line;

line! {
    /// A user's reason for an update: one line of at most 200 characters.
    EditReason, 200
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_reason_is_short_readable_and_trimmed() {
        let longest = "é".repeat(EditReason::MAX);
        let rows = [
            ("", Ok(None)),
            (" \t", Ok(None)),
            (" a b ", Ok(Some("a b"))),
            (&longest, Ok(Some(longest.as_str()))),
            (&format!("{longest}é"), Err(EditReason::FORM)),
            ("a\nb", Err(EditReason::FORM)),
            ("nul\0", Err(EditReason::FORM)),
            ("a\u{7f}", Err(EditReason::FORM)),
            ("\u{200b}", Err(EditReason::FORM)),
            ("a\u{202e}b", Err(EditReason::FORM)),
        ];
        for (text, expected) in rows {
            let parsed = EditReason::parse_unless_blank(text);
            assert_eq!(
                parsed.as_ref().map(|line| line.as_ref().map(EditReason::as_str)),
                expected.as_ref().copied(),
                "{text:?}"
            );
            assert_eq!(EditReason::parse(text), parsed.unwrap_or_default(), "{text:?}");
        }
        assert_eq!(
            EditReason::FORM,
            "must be a text of 1 to 200 characters, some of them visible, without control characters and direction marks"
        );
        assert!(EditReason::from_stored("a\u{202e}b").is_some() && EditReason::from_stored("a\nb").is_none());
    }
}
