use std::fmt::Display;

/// Formats a count with the noun, such as `1 rule` or `2 rules`.
pub(crate) fn count_with_noun<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
