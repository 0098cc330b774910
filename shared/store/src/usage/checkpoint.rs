//! Checkpoints: the position in a shard's records up to which they were counted.
//!
//! Sequence numbers increase within a shard, and Lambda first delivers a shard's records in that order. So the sequence
//! number of the last counted record determines for every record of the shard whether it was counted.
//!
//! A batch can touch more rows than a transaction may write. So a shard's records are divided into parts by agent,
//! which is the same on every retry, and a checkpoint has a sequence number for each part. A transaction counts whole
//! parts if possible.

use crate::codec::{
    attribute::{Attribute as _, Item},
    item::Row,
};
use purser_domain::{AgentId, Result};
use std::{cmp::Ordering, fmt};

/// The number of parts. 16 sequence numbers of up to 40 digits, with their names, stay below 1 KB.
const PARTS: usize = 16;

/// The attribute names of the parts.
const NAMES: [&str; PARTS] = [
    "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14", "p15",
];

/// A part of a shard's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part(&'static str);

impl Part {
    /// The part that an agent's records belong to.
    pub(crate) fn of(agent: AgentId) -> Self {
        // The last bits of a UUID are random.
        let [.., last] = *agent.uuid().as_bytes();
        Self(NAMES.get(usize::from(last) % PARTS).copied().unwrap_or("p0"))
    }

    /// The name of the part's attribute.
    pub(crate) const fn name(self) -> &'static str {
        self.0
    }
}

/// A sequence number of a stream, in decimal digits.
#[derive(Clone, Debug)]
pub struct SequenceNumber(String);

impl SequenceNumber {
    /// Parses decimal digits; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Self(text.to_owned()))
    }
}

/// Compares by value. A sequence number can exceed every integer type and DynamoDB's numbers.
impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let [one, two] = [self, other].map(|number| number.0.trim_start_matches('0'));
        one.len().cmp(&two.len()).then_with(|| one.cmp(two))
    }
}

impl PartialEq for SequenceNumber {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SequenceNumber {}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A shard of a table's stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// The table's name.
    pub table: String,
    /// The shard's id, unique within the stream.
    pub id: String,
}

/// The last counted record of each part of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    parts: Vec<(Part, SequenceNumber)>,
    all: Option<SequenceNumber>,
}

/// The attribute with the sequence number up to which all records were counted.
pub(crate) const ALL: &str = "upto";

impl Checkpoint {
    pub(crate) fn read(row: Row<'_>, item: &Item) -> Result<Self> {
        let mut places = Vec::new();
        for name in NAMES {
            if let Some(value) = item.get(name) {
                let place = String::read(value).as_deref().and_then(SequenceNumber::parse);
                places.push((Part(name), place.ok_or_else(|| row.corrupt(name))?));
            }
        }
        let all = row.get_optional::<String>(ALL)?;
        let all = all.map(|all| SequenceNumber::parse(&all).ok_or_else(|| row.corrupt(ALL)));
        Ok(Self {
            parts: places,
            all: all.transpose()?,
        })
    }

    /// The last counted record of a part.
    pub(crate) fn of(&self, part: Part) -> Option<&SequenceNumber> {
        self.parts.iter().find(|(of, _)| *of == part).map(|(_, place)| place)
    }

    /// Whether this record of the agent was counted.
    pub fn has(&self, agent: AgentId, place: &SequenceNumber) -> bool {
        self.of(Part::of(agent)).is_some_and(|last| place <= last)
    }

    /// A sequence number up to which all records of the shard were counted. Some parts may be further ahead.
    pub const fn all_until(&self) -> Option<&SequenceNumber> {
        self.all.as_ref()
    }

    pub(crate) fn advance(&mut self, part: Part, to: SequenceNumber) {
        self.parts.retain(|(of, _)| *of != part);
        self.parts.push((part, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_are_compared_by_value() {
        let place = |text| SequenceNumber::parse(text).unwrap();
        let longest = "9".repeat(40);
        for (less, more) in [("9", "10"), ("0099", "100"), ("0", "1"), ("3999", longest.as_str())] {
            assert!(place(less) < place(more), "{less} {more}");
        }
        assert_eq!(place("000000000000000000007"), place("7"));
        for text in ["", "-1", "1.0", "0x1", " 1", "١"] {
            assert_eq!(SequenceNumber::parse(text), None, "{text}");
        }
    }
}
