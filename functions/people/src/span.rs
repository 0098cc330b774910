//! A part of a list by time. Lists are in order of `UUIDv7`s, which begin with their time: so a time is a place in them,
//! and nothing outside the part is read but the rest of its last page.

use purser_domain::{SettlementId, Timestamp};
use uuid::Uuid;

/// From a time on, and before a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first instant that is in it.
    pub(crate) from: Option<Timestamp>,
    /// The first instant that no longer is.
    pub(crate) to: Option<Timestamp>,
}

impl Span {
    /// Where a list is read from, newest first: at this place of it, or later where the part begins.
    pub(crate) fn before(self, place: Option<Uuid>) -> Option<Uuid> {
        [place, self.to.map(first_at)].into_iter().flatten().min()
    }

    /// Whether this place, and everything older, is before the part.
    pub(crate) fn is_over(self, place: Uuid) -> bool {
        self.from.is_some_and(|from| place < first_at(from))
    }
}

/// The smallest id of an instant; ids of every kind have the same form.
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
        // A page of it goes on where the one before ended.
        assert_eq!(span.before(Some(id(15, 3))), Some(id(15, 3)));
        assert_eq!(span.before(Some(id(25, 3))), Some(before));
        assert_eq!(Span::default().before(Some(id(5, 3))), Some(id(5, 3)));
        assert!(!Span::default().is_over(id(0, 0)) && Span::default().before(None).is_none());
    }
}
