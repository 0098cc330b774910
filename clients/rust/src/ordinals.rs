//! The ordinals of a run's identical requests.

use crate::IdempotencyKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ordinals of identical requests, from 1. A failed request releases its ordinal, so that a retry has the same
/// idempotency key and pays nothing twice. Concurrent identical requests get different ordinals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ordinals(Arc<Mutex<HashMap<IdempotencyKey, Numbers>>>);

/// The ordinals of one request. All up to `bought` are bought. Ordinals in `above` are bought (`true`) or in use
/// (`false`).
#[derive(Debug, Default)]
struct Numbers {
    bought: u64,
    above: BTreeMap<u64, bool>,
}

/// An ordinal that is reserved until it is dropped.
#[derive(Debug)]
pub(crate) struct Ordinal {
    place: Place,
    is_bought: bool,
}

/// A request and one of its ordinals, without a reservation.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    ordinals: Ordinals,
    request: IdempotencyKey,
    number: u64,
}

impl Ordinals {
    /// Reserves the lowest free ordinal of this request.
    pub(crate) fn next(&self, request: IdempotencyKey) -> Ordinal {
        let mut map = self.lock();
        let numbers = map.entry(request.clone()).or_default();
        let number = (1..u64::MAX)
            .map(|step| numbers.bought.saturating_add(step))
            .find(|number| !numbers.above.contains_key(number))
            .unwrap_or(u64::MAX);
        numbers.above.insert(number, false);
        drop(map);
        Ordinal {
            place: Place {
                ordinals: self.clone(),
                request,
                number,
            },
            is_bought: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IdempotencyKey, Numbers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ordinal {
    pub(crate) const fn number(&self) -> u64 {
        self.place.number
    }

    pub(crate) fn place(&self) -> Place {
        self.place.clone()
    }

    /// Marks the ordinal as used up: it was bought, or can never be. The next identical request gets another one.
    pub(crate) fn bought(mut self) {
        self.is_bought = true;
    }
}

impl Drop for Ordinal {
    fn drop(&mut self) {
        if self.is_bought {
            self.place.spend();
        } else {
            self.place.note(None);
        }
    }
}

impl Place {
    /// Marks the ordinal as bought, whether or not it is reserved.
    pub(crate) fn spend(&self) {
        self.note(Some(true));
    }

    /// Reserves the same ordinal again, for another attempt of the request.
    pub(crate) fn retake(self) -> Ordinal {
        self.note(Some(false));
        Ordinal {
            place: self,
            is_bought: false,
        }
    }

    /// Records that the ordinal is bought (`true`), in use (`false`) or free (`None`). A bought ordinal stays bought.
    fn note(&self, state: Option<bool>) {
        let mut map = self.ordinals.lock();
        let numbers = map.entry(self.request.clone()).or_default();
        let is_bought = self.number <= numbers.bought || numbers.above.get(&self.number) == Some(&true);
        match state {
            _ if is_bought => {}
            Some(state) => {
                numbers.above.insert(self.number, state);
            }
            None => {
                numbers.above.remove(&self.number);
            }
        }
        while let Some(next) = numbers.bought.checked_add(1) {
            if numbers.above.get(&next) != Some(&true) {
                break;
            }
            numbers.above.remove(&next);
            numbers.bought = next;
        }
        if numbers.bought == 0 && numbers.above.is_empty() {
            map.remove(&self.request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_request_keeps_its_number_and_a_bought_one_gives_the_next() {
        let ordinals = Ordinals::default();
        let request = IdempotencyKey::from_text("a request").unwrap();
        let next = || ordinals.next(request.clone());
        let (first, second) = (next(), next());
        assert_eq!((first.number(), second.number()), (1, 2), "at once");
        drop(first);
        second.bought();
        let again = next();
        assert_eq!(again.number(), 1, "the failed one's repetition");
        again.bought();
        assert_eq!(next().number(), 3);
        assert_eq!(next().number(), 3, "given back");
        let other = ordinals.next(IdempotencyKey::from_text("another").unwrap());
        assert_eq!(other.number(), 1);
        drop(other);
        assert_eq!(ordinals.lock().len(), 1, "nothing is kept of what was never bought");
    }

    #[test]
    fn a_number_that_was_given_back_is_taken_again_or_spent() {
        let ordinals = Ordinals::default();
        let request = IdempotencyKey::from_text("a request").unwrap();
        let next = || ordinals.next(request.clone());
        let place = next().place();
        let again = place.clone().retake();
        assert_eq!((again.number(), next().number()), (1, 2));
        drop(again);
        place.spend();
        assert_eq!(next().number(), 2, "spent by who was told of it");
        drop(place.retake());
        assert_eq!(next().number(), 2, "what is bought stays bought");
    }
}
