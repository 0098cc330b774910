//! The time range of a list. Lists are sorted by `UUIDv7`, which begins with its time, so a time is also a position in
//! the list. Reads start and stop at the range, so only the last page reads items outside it.

use purser_domain::{SettlementId, Timestamp};
use uuid::Uuid;

/// A time range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The start of the range, inclusive.
    pub(crate) from: Option<Timestamp>,
    /// The end of the range, exclusive.
    pub(crate) to: Option<Timestamp>,
}

impl Span {
    /// Returns the position from which a list is read, newest first: the cursor `place`, or the end of the range if
    /// that is older.
    pub(crate) fn before(self, place: Option<Uuid>) -> Option<Uuid> {
        [place, self.to.map(first_at)].into_iter().flatten().min()
    }

    /// Whether this position is before the range. If so, all older positions are too.
    pub(crate) fn is_over(self, place: Uuid) -> bool {
        self.from.is_some_and(|from| place < first_at(from))
    }
}

/// Returns the smallest id at this time. Ids of all kinds have the same format.
fn first_at(at: Timestamp) -> Uuid {
    SettlementId::at(at, [0; 8]).uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_include_their_start_but_not_their_end() {
        let at = |micros: i64| Timestamp::from_micros(1_795_223_340_000_000 + micros).unwrap();
        let id = |micros, random| SettlementId::at(at(micros), [random; 8]).uuid();
        let span = Span {
            from: Some(at(10)),
            to: Some(at(20)),
        };
        let before = span.before(None).unwrap();
        for random in [0, 0xff] {
            assert!(id(19, random) < before && id(20, random) >= before);
            assert!(!span.is_over(id(10, random)) && span.is_over(id(9, random)));
        }
        // The next page continues where the previous page ended.
        assert_eq!(span.before(Some(id(15, 3))), Some(id(15, 3)));
        assert_eq!(span.before(Some(id(25, 3))), Some(before));
        assert_eq!(Span::default().before(Some(id(5, 3))), Some(id(5, 3)));
        assert!(!Span::default().is_over(id(0, 0)) && Span::default().before(None).is_none());
    }
}
