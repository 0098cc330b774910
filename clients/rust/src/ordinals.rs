//! Numbers the identical requests of a run. A request's idempotency key depends on the request's number, the ordinal.

use crate::IdempotencyKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ordinals of all identical requests of a run, from 1.
///
/// A failed request releases its ordinal, so that the retry derives the same idempotency key and does not pay twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ordinals(Arc<Mutex<HashMap<IdempotencyKey, Numbers>>>);

/// The ordinals of one request. All ordinals up to and including `bought` are bought. `above` has the states of the
/// higher ordinals.
#[derive(Debug, Default)]
struct Numbers {
    bought: u64,
    above: BTreeMap<u64, State>,
}

#[derive(Debug)]
enum State {
    Bought,
    /// A purchase has reserved the ordinal. The number counts the purchase's current attempts.
    Held(Arc<Purchase>, u32),
}

/// The identity of a purchase, which all attempts share through an `Arc`.
#[derive(Debug)]
struct Purchase;

/// An ordinal that stays reserved until this value is dropped.
#[derive(Debug)]
pub(crate) struct Ordinal {
    place: Place,
    is_bought: bool,
}

/// A request and one of its ordinals, which this value does not reserve.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    ordinals: Ordinals,
    request: IdempotencyKey,
    number: u64,
    purchase: Arc<Purchase>,
}

impl Ordinals {
    /// Reserves the lowest free ordinal for this request.
    pub(crate) fn next(&self, request: IdempotencyKey) -> Ordinal {
        let mut map = self.lock();
        let numbers = map.entry(request.clone()).or_default();
        let number = (1..u64::MAX)
            .map(|step| numbers.bought.saturating_add(step))
            .find(|number| !numbers.above.contains_key(number))
            .unwrap_or(u64::MAX);
        let purchase = Arc::new(Purchase);
        numbers.above.insert(number, State::Held(Arc::clone(&purchase), 1));
        drop(map);
        Ordinal {
            place: Place {
                ordinals: self.clone(),
                request,
                number,
                purchase,
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

    pub(crate) fn reserved_place(&self) -> Place {
        self.place.clone()
    }

    /// Marks the ordinal as bought, so that the next identical request gets another ordinal.
    pub(crate) fn mark_bought(mut self) {
        self.is_bought = true;
    }
}

impl Drop for Ordinal {
    fn drop(&mut self) {
        if self.is_bought {
            self.place.spend();
        } else {
            self.place.release();
        }
    }
}

impl Place {
    /// Reserves the ordinal for another attempt. Returns `None` if another purchase has reserved it.
    pub(crate) fn retake(self) -> Option<Ordinal> {
        let mut map = self.ordinals.lock();
        let numbers = map.entry(self.request.clone()).or_default();
        if self.number > numbers.bought {
            let free = || State::Held(Arc::clone(&self.purchase), 0);
            match numbers.above.entry(self.number).or_insert_with(free) {
                State::Bought => {}
                State::Held(purchase, holders) if Arc::ptr_eq(purchase, &self.purchase) => {
                    *holders = holders.saturating_add(1);
                }
                State::Held(..) => return None,
            }
        }
        drop(map);
        Some(Ordinal {
            place: self,
            is_bought: false,
        })
    }

    /// Ends the reservation of one attempt. A bought ordinal stays bought.
    fn release(&self) {
        let mut map = self.ordinals.lock();
        let Some(numbers) = map.get_mut(&self.request) else {
            return;
        };
        if let Some(State::Held(purchase, holders)) = numbers.above.get_mut(&self.number)
            && Arc::ptr_eq(purchase, &self.purchase)
        {
            *holders = holders.saturating_sub(1);
            if *holders == 0 {
                numbers.above.remove(&self.number);
            }
        }
        if numbers.bought == 0 && numbers.above.is_empty() {
            map.remove(&self.request);
        }
    }

    /// Marks the ordinal as bought, whether or not it is reserved.
    pub(crate) fn spend(&self) {
        let mut map = self.ordinals.lock();
        let numbers = map.entry(self.request.clone()).or_default();
        if self.number > numbers.bought {
            numbers.above.insert(self.number, State::Bought);
        }
        while let Some(next) = numbers.bought.checked_add(1) {
            if !matches!(numbers.above.get(&next), Some(State::Bought)) {
                break;
            }
            numbers.above.remove(&next);
            numbers.bought = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_request_releases_its_purchase_ordinal_for_the_retry() {
        let ordinals = Ordinals::default();
        let request = IdempotencyKey::from_text("a request").unwrap();
        let next = || ordinals.next(request.clone());
        let (first, second) = (next(), next());
        assert_eq!((first.number(), second.number()), (1, 2), "at once");
        drop(first);
        second.mark_bought();
        let again = next();
        assert_eq!(again.number(), 1, "the failed one's repetition");
        again.mark_bought();
        assert_eq!(next().number(), 3);
        assert_eq!(next().number(), 3, "given back");
        let other = ordinals.next(IdempotencyKey::from_text("another").unwrap());
        assert_eq!(other.number(), 1);
        drop(other);
        assert_eq!(ordinals.lock().len(), 1, "nothing is kept of what was never bought");
    }

    #[test]
    fn a_reserved_purchase_ordinal_is_not_assigned_twice() {
        let ordinals = Ordinals::default();
        let request = IdempotencyKey::from_text("a request").unwrap();
        let next = || ordinals.next(request.clone());
        let (first, second) = (next(), next());
        // The second request ends while the first request is still running.
        second.mark_bought();
        let third = next();
        assert_eq!(third.number(), 3);
        // Acknowledging the first purchase marks the ordinal as bought for all requests.
        first.reserved_place().spend();
        drop(first);
        assert_eq!(next().number(), 4);
    }

    #[test]
    fn a_released_purchase_ordinal_can_be_retaken_or_marked_as_bought() {
        let ordinals = Ordinals::default();
        let request = IdempotencyKey::from_text("a request").unwrap();
        let next = || ordinals.next(request.clone());
        let place = next().reserved_place();
        let again = place.clone().retake().unwrap();
        assert_eq!((again.number(), next().number()), (1, 2));
        let third = place.clone().retake().unwrap();
        drop(again);
        assert_eq!((third.number(), next().number()), (1, 2), "one attempt goes on");
        drop(third);
        let other = next();
        assert!(place.clone().retake().is_none(), "another purchase holds it");
        drop(other);
        place.spend();
        assert_eq!(next().number(), 2, "spent by who was told of it");
        drop(place.retake());
        assert_eq!(next().number(), 2, "what is bought stays bought");
    }
}
