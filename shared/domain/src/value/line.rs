//! Types for a single line of text from a user.

/// Declares a type for one line of plain text: trimmed, 1 to `$max` characters, without control characters.
macro_rules! line {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The maximum length of the text, in characters.
            pub const MAX: usize = $max;
            /// The message of the validation error for a text that `parse` rejects.
            pub const FORM: &'static str = concat!(
                "must be a text of 1 to ",
                $max,
                " characters, some of them visible, without control characters and direction marks"
            );

            /// Parses and trims a new text. `None` if it is blank, too long, or contains control characters or
            /// direction marks.
            pub fn parse(text: &str) -> Option<Self> {
                Self::from_stored(text).filter(|line| $crate::is_displayable(line.as_str()))
            }

            /// Parses a new text; `Ok(None)` for a blank text. The error is the message in `FORM`.
            pub fn parse_unless_blank(text: &str) -> Result<Option<Self>, &'static str> {
                if text.trim().is_empty() {
                    return Ok(None);
                }
                Self::parse(text).map(Some).ok_or(Self::FORM)
            }

            /// Parses a stored text. It may contain characters that new texts may not.
            pub fn from_stored(text: &str) -> Option<Self> {
                let line = text.trim();
                let fits = (1..=Self::MAX).contains(&line.chars().count()) && !line.chars().any(char::is_control);
                fits.then(|| Self(line.to_owned()))
            }

            /// Returns the text: one line without white space at the start or the end.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

pub(crate) use line;
