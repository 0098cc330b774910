//! Parses the decimal numbers in checkpoints, proofs and paths.

/// Parses a decimal number. Returns `None` for any other text, such as a number with leading zeros.
pub fn parse_decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
