//! The time range of a list. Lists are sorted by `UUIDv7`, so each time is a position in the list.

use purser_domain::{SettlementId, Timestamp};
use uuid::Uuid;

/// The time range by which a list is filtered. A bound of `None` sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Option<Timestamp>,
    pub(crate) to: Option<Timestamp>,
}

impl Span {
    /// Returns the position from which a list is read, newest first: the cursor `id`, or the end of the range if the
    /// end is older.
    pub(crate) fn cursor_or_range_end(self, id: Option<Uuid>) -> Option<Uuid> {
        [id, self.to.map(first_id_at)].into_iter().flatten().min()
    }

    /// Whether this position is before the range. If so, all older positions are before the range too.
    pub(crate) fn is_after_id(self, id: Uuid) -> bool {
        self.from.is_some_and(|from| id < first_id_at(from))
    }
}

/// Returns the smallest id with this time, for all kinds of ids.
fn first_id_at(at: Timestamp) -> Uuid {
    SettlementId::new_at(at, [0; 8]).uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ranges_include_their_start_but_not_their_end() {
        let at = |micros: i64| Timestamp::from_micros(1_795_223_340_000_000 + micros).unwrap();
        let id = |micros, random| SettlementId::new_at(at(micros), [random; 8]).uuid();
        let span = Span {
            from: Some(at(10)),
            to: Some(at(20)),
        };
        let before = span.cursor_or_range_end(None).unwrap();
        for random in [0, 0xff] {
            assert!(id(19, random) < before && id(20, random) >= before);
            assert!(!span.is_after_id(id(10, random)) && span.is_after_id(id(9, random)));
        }
        // The next page continues where the previous page stopped.
        assert_eq!(span.cursor_or_range_end(Some(id(15, 3))), Some(id(15, 3)));
        assert_eq!(span.cursor_or_range_end(Some(id(25, 3))), Some(before));
        assert_eq!(Span::default().cursor_or_range_end(Some(id(5, 3))), Some(id(5, 3)));
        assert!(!Span::default().is_after_id(id(0, 0)) && Span::default().cursor_or_range_end(None).is_none());
    }
}
