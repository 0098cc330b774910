use crate::codec::attribute::{Attribute, encode_text, read_text};
use aws_sdk_dynamodb::types::AttributeValue;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The sequence number of a stream record, padded with zeros so that text order is record order. The changes of one
/// partition key have increasing numbers, even if the stream's shards are split.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SequenceNumber(String);

impl SequenceNumber {
    /// The maximum number of digits in a sequence number (DynamoDB API reference, `StreamRecord`).
    const DIGITS: usize = 40;

    /// Parses decimal digits; `None` for any other text.
    pub fn parse(digits: &str) -> Option<Self> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let digits = digits.trim_start_matches('0');
        (is_number && digits.len() <= Self::DIGITS).then(|| Self(format!("{digits:0>width$}", width = Self::DIGITS)))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Attribute for SequenceNumber {
    fn write(&self) -> AttributeValue {
        encode_text(&self.0)
    }
    fn read(value: &AttributeValue) -> Option<Self> {
        Self::parse(read_text(value)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_sequence_numbers_are_ordered_by_numeric_value() {
        let number = |digits: &str| SequenceNumber::parse(digits).unwrap();
        assert!(number("9") < number("10") && number("99") < number("100000000000000000000000000000000000001"));
        assert_eq!(number("0010"), number("10"));
        assert_eq!(SequenceNumber::parse(&number("7").to_string()), Some(number("7")));
        for wrong in ["", "-1", "1a", &"1".repeat(41)] {
            assert_eq!(SequenceNumber::parse(wrong), None, "{wrong}");
        }
    }
}
