//! Divides the held payments (holds) and the wallets among concurrent runs.

use purser_domain::{Error, Result};
use purser_store::{PARTITIONS, WalletPart};
use serde_json::Value;

/// A share of the holds and wallets, which one run processes. `index` counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: u8,
    of: u8,
}

impl Part {
    /// All holds and wallets.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Returns a share, counted from 0. Returns `None` unless `count` divides the number of index partitions.
    pub fn new(index: u64, count: u64) -> Option<Self> {
        let (index, of) = (u8::try_from(index).ok()?, u8::try_from(count).ok()?);
        let is_divisor = PARTITIONS.checked_rem(of)? == 0;
        (is_divisor && index < of).then_some(Self { index, of })
    }

    /// Returns the share that the event selects. Without the fields `part` and `of`, returns all holds and wallets.
    pub fn from_event(event: &Value) -> Result<Self> {
        match (event.get("part"), event.get("of")) {
            (None, None) => Ok(Self::WHOLE),
            (index, of) => {
                let numbers = index.and_then(Value::as_u64).zip(of.and_then(Value::as_u64));
                let part = numbers.and_then(|(index, of)| Self::new(index, of));
                part.ok_or_else(|| {
                    Error::internal(
                        "reading a schedule's event",
                        "`of` must divide 16, and `part` must be less than `of`",
                    )
                })
            }
        }
    }

    /// Returns whether this is the first share. Only the run of the first share does the work that is not divided.
    pub(crate) const fn is_first(self) -> bool {
        self.index == 0
    }

    pub(crate) const fn wallet_shard(self) -> WalletPart {
        WalletPart {
            index: self.index,
            of: self.of,
        }
    }

    /// Returns the partitions of the hold index that the run processes, as numbers from 0 to 15.
    pub(crate) fn index_partitions(self) -> Vec<u8> {
        (self.index..PARTITIONS).step_by(self.of.into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reconcile_shards_are_disjoint_and_complete() {
        for of in [1, 2, 4, 8, 16] {
            let parts = (0..of).map(|index| Part::new(index, of).unwrap());
            let mut partitions: Vec<u8> = parts.flat_map(Part::index_partitions).collect();
            partitions.sort_unstable();
            assert_eq!(partitions, (0..16).collect::<Vec<u8>>(), "{of}");
        }
    }

    #[test]
    fn a_reconcile_event_names_at_most_one_shard() {
        let part = |event| Part::from_event(&event).ok();
        assert_eq!(part(json!({"detail": "{}"})), Some(Part::WHOLE));
        assert_eq!(part(json!({"part": 3, "of": 4})), Some(Part { index: 3, of: 4 }));
        for wrong in [
            json!({"part": 0}),
            json!({"of": 4}),
            json!({"part": 4, "of": 4}),
            json!({"part": 0, "of": 3}),
            json!({"part": 0, "of": 0}),
            json!({"part": "0", "of": "4"}),
            json!({"part": 256, "of": 272}),
        ] {
            assert_eq!(part(wrong.clone()), None, "{wrong}");
        }
    }
}
