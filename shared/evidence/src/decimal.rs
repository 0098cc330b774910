//! Numbers in the texts of logs: decimal, without sign or leading zeros.

/// Parses a number in its one spelling.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
