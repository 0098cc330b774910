//! Lines of text that people write.

/// Declares a line of plain text: trimmed, of 1 to `$max` characters, without control characters.
macro_rules! line {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The maximum length, in characters.
            pub const MAX: usize = $max;
            /// The requirement of `parse`, for the message of a problem.
            pub const FORM: &'static str = concat!(
                "must be a text of 1 to ",
                $max,
                " characters, some of them visible, without control characters and direction marks"
            );

            /// Parses a new text and trims it. `None` unless readers see the text as its author wrote it.
            pub fn parse(text: &str) -> Option<Self> {
                Self::from_stored(text).filter(|line| $crate::is_readable(line.as_str()))
            }

            /// Parses a new text; a blank one is none. The error is `FORM`.
            pub fn parse_optional(text: &str) -> Result<Option<Self>, &'static str> {
                if text.trim().is_empty() {
                    return Ok(None);
                }
                Self::parse(text).map(Some).ok_or(Self::FORM)
            }

            /// Parses a stored text, which may be from before new ones had to be readable.
            pub fn from_stored(text: &str) -> Option<Self> {
                let line = text.trim();
                let fits = (1..=Self::MAX).contains(&line.chars().count()) && !line.chars().any(char::is_control);
                fits.then(|| Self(line.to_owned()))
            }

            /// The text.
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
