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
    /// Returns the older of the cursor `id` and the end of the range. Lists are read from there, newest first.
    pub(crate) fn list_start_cursor(self, id: Option<Uuid>) -> Option<Uuid> {
        [id, self.to.map(first_id_at)].into_iter().flatten().min()
    }

    /// Returns whether the item with this id is older than the range. If the item is older, all later items of the list
    /// are older too, because the newest items come first.
    pub(crate) fn starts_after_item(self, id: Uuid) -> bool {
        self.from.is_some_and(|from| id < first_id_at(from))
    }
}

/// Returns the smallest `UUIDv7` with this time, with which the id of any item can be compared.
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
        let before = span.list_start_cursor(None).unwrap();
        for random in [0, 0xff] {
            assert!(id(19, random) < before && id(20, random) >= before);
            assert!(!span.starts_after_item(id(10, random)) && span.starts_after_item(id(9, random)));
        }
        assert_eq!(span.list_start_cursor(Some(id(15, 3))), Some(id(15, 3)));
        assert_eq!(span.list_start_cursor(Some(id(25, 3))), Some(before));
        assert_eq!(Span::default().list_start_cursor(Some(id(5, 3))), Some(id(5, 3)));
        assert!(!Span::default().starts_after_item(id(0, 0)) && Span::default().list_start_cursor(None).is_none());
    }
}
