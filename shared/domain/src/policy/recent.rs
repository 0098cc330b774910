//! What is remembered of an agent's recent payments to one service, for the rules that compare a payment with earlier
//! ones: `duplicate_guard`, `new_payee`, and `price_above_usual` over the median.
//!
//! It is part of the day window's totals, and is only written for agents with such a rule: a call with the reservation,
//! which a release takes back, and a payee and a price with the confirmation, because an authorization costs nothing. Each part is bounded; the entry that was used least recently is forgotten first. A forgotten call can be
//! repeated, and a forgotten payee is asked about again.
//!
//! Invariant: two reservations of the same call within a guard's time can't both succeed, because each requires that the
//! remembered time of its call is older ([`CallMark::not_after`]). Payees and prices have no such condition: of two
//! concurrent payments one may be missing, which makes a rule ask once more or compare with one price less.

use crate::{Address, Amount, CallDescription, Intent, OperationSlug, ProviderRequest, Timestamp, Url};
use sha2::{Digest as _, Sha256};
use url::Position;

/// The maximum number of remembered calls: 16 * 22 bytes.
pub const MOST_RECENT_CALLS: usize = 16;
/// The maximum number of remembered payees: 16 * 27 bytes.
pub const MOST_RECENT_PAYEES: usize = 16;
/// The maximum number of operations whose prices are remembered: 8 * 50 bytes, so that the totals stay below 2 KB.
pub const MOST_PRICED_OPERATIONS: usize = 8;
/// The maximum number of an operation's remembered prices.
pub const MOST_RECENT_PRICES: usize = 9;

/// The start of the SHA-256 of a call: its operation, amount, method, URL, body hash and target.
///
/// Two spellings of one request have one digest: a fragment is never sent (RFC 9110 §4.2.5), an empty query and the order of
/// parameters change nothing, and GET and HEAD have no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallDigest(pub [u8; 8]);

impl CallDigest {
    /// The digest of a call. Calls of one service are compared, so the service is not part of it.
    pub fn of(intent: &Intent, operation: &OperationSlug) -> Self {
        let target = intent.target.as_ref().map(|target| target.url().as_str());
        Self::of_parts(operation, intent.offer.amount(), &intent.request, target)
    }

    /// The digest of a recorded call.
    pub fn of_call(call: &CallDescription, operation: &OperationSlug, amount: Amount) -> Self {
        let target = call.target_url.as_ref().map(Url::as_str);
        Self::of_parts(operation, amount, &call.request, target)
    }

    fn of_parts(operation: &OperationSlug, amount: Amount, request: &ProviderRequest, target: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        let amount = amount.units().to_string();
        let body = match request.method.as_str() {
            "GET" | "HEAD" => None,
            _ => request.body_hash.as_deref(),
        };
        let parameters = request.url.query().unwrap_or_default().split('&');
        let mut parameters: Vec<&str> = parameters.filter(|parameter| !parameter.is_empty()).collect();
        parameters.sort_unstable();
        let parts = [
            operation.as_str(),
            &amount,
            &request.method,
            &request.url[..Position::AfterPath],
            body.unwrap_or_default(),
            target.unwrap_or_default(),
        ];
        for part in parts.into_iter().chain(parameters) {
            // With their lengths, different parts never have the same concatenation.
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().first_chunk().copied().unwrap_or_default())
    }
}

/// The first bytes of a payee's address: too many for somebody to make another address with the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayeePrefix(pub [u8; 12]);

impl PayeePrefix {
    /// The first bytes of this address.
    pub fn of(payee: Address) -> Self {
        Self(payee.first_chunk().copied().unwrap_or_default())
    }
}

/// The start of the SHA-256 of an operation's slug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationDigest(pub [u8; 8]);

impl OperationDigest {
    /// The digest of this slug.
    pub fn of(operation: &OperationSlug) -> Self {
        Self(
            Sha256::digest(operation.as_str())
                .first_chunk()
                .copied()
                .unwrap_or_default(),
        )
    }
}

/// The last prices that were paid for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidPrices {
    /// The time of the last payment.
    pub at: Timestamp,
    /// Up to [`MOST_RECENT_PRICES`], oldest first.
    pub prices: Vec<Amount>,
}

/// An agent's recent payments to one service; see the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentPayments {
    /// Whether anything was ever remembered.
    pub is_stored: bool,
    /// The calls, each with the time of its last authorization.
    pub calls: Vec<(CallDigest, Timestamp)>,
    /// The payees, each with the time of the last authorization.
    pub payees: Vec<(PayeePrefix, Timestamp)>,
    /// The operations' prices.
    pub prices: Vec<(OperationDigest, PaidPrices)>,
}

/// An entry to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentKey {
    /// A call.
    Call(CallDigest),
    /// A payee.
    Payee(PayeePrefix),
    /// An operation's prices.
    Operation(OperationDigest),
}

/// A call to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallMark {
    /// The call.
    pub call: CallDigest,
    /// The write fails if the call was authorized after this time; `None` if no guard forbids it.
    pub not_after: Option<Timestamp>,
}

/// What is remembered of a payment: its call at the authorization, its payee and price at the confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentUpdate {
    /// The recorded time of the payment.
    pub at: Timestamp,
    /// Whether it is the first, as far as was read; the write requires that.
    pub is_first: bool,
    /// The call, if a rule guards against duplicates.
    pub call: Option<CallMark>,
    /// The payee, if a rule asks about new ones.
    pub payee: Option<PayeePrefix>,
    /// The operation and its prices with this one, if a rule compares them.
    pub prices: Option<(OperationDigest, Vec<Amount>)>,
    /// The entries to forget, each with the time of its last authorization. The write fails if a call or a payee was paid
    /// again meanwhile, which must not be forgotten.
    pub forget: Vec<(RecentKey, Timestamp)>,
}

impl RecentUpdate {
    /// The update at the authorization, which does not show yet that the payee is paid; `None` without a call.
    pub fn only_call(mut self) -> Option<Self> {
        (self.payee, self.prices) = (None, None);
        self.forget.retain(|(key, _)| matches!(key, RecentKey::Call(_)));
        self.call.is_some().then_some(self)
    }
}

impl RecentPayments {
    /// Nothing remembered.
    pub const NONE: &Self = &Self {
        is_stored: false,
        calls: Vec::new(),
        payees: Vec::new(),
        prices: Vec::new(),
    };

    /// The time at which this call was last authorized.
    pub fn last_call(&self, call: CallDigest) -> Option<Timestamp> {
        self.calls.iter().find(|(known, _)| *known == call).map(|(_, at)| *at)
    }

    /// Whether this payee was paid.
    pub fn has_paid(&self, payee: PayeePrefix) -> bool {
        self.payees.iter().any(|(known, _)| *known == payee)
    }

    /// The operation's remembered prices, oldest first.
    pub fn prices_of(&self, operation: OperationDigest) -> &[Amount] {
        let paid = self.prices.iter().find(|(known, _)| *known == operation);
        paid.map_or(&[], |(_, paid)| &paid.prices)
    }

    /// The median of the last `count` prices of an operation, of an even number the lower one; `None` if fewer are
    /// remembered.
    pub fn usual_price(&self, operation: OperationDigest, count: u8) -> Option<Amount> {
        let prices = self.prices_of(operation);
        let first = prices.len().checked_sub(count.into())?;
        let mut last = [Amount::ZERO; MOST_RECENT_PRICES];
        let last = last.get_mut(..count.into())?;
        last.copy_from_slice(prices.get(first..)?);
        last.sort_unstable();
        last.get(last.len().checked_sub(1)? / 2).copied()
    }

    /// The update that remembers a payment, without entries to forget.
    pub fn update(
        &self,
        at: Timestamp,
        call: Option<CallMark>,
        payee: Option<PayeePrefix>,
        price: Option<(OperationDigest, Amount)>,
    ) -> RecentUpdate {
        let mut forget = Vec::new();
        if let Some(mark) = call {
            let calls = self.calls.iter().map(|(call, at)| (*call, *at));
            forget.extend(oldest(calls, mark.call, MOST_RECENT_CALLS).map(|(call, at)| (RecentKey::Call(call), at)));
        }
        if let Some(payee) = payee {
            let payees = self.payees.iter().map(|(payee, at)| (*payee, *at));
            forget.extend(oldest(payees, payee, MOST_RECENT_PAYEES).map(|(payee, at)| (RecentKey::Payee(payee), at)));
        }
        if let Some((operation, _)) = price {
            let prices = self.prices.iter().map(|(operation, paid)| (*operation, paid.at));
            forget.extend(
                oldest(prices, operation, MOST_PRICED_OPERATIONS)
                    .map(|(operation, at)| (RecentKey::Operation(operation), at)),
            );
        }
        let prices = price.map(|(operation, price)| {
            let known = self.prices_of(operation);
            let dropped = known.len().saturating_sub(MOST_RECENT_PRICES.saturating_sub(1));
            let kept = known.get(dropped..).unwrap_or_default();
            (operation, kept.iter().copied().chain([price]).collect())
        });
        RecentUpdate {
            at,
            is_first: !self.is_stored,
            call,
            payee,
            prices,
            forget,
        }
    }

    /// Remembers a payment, as the store does.
    pub fn remember(&mut self, update: &RecentUpdate) {
        self.is_stored = true;
        for (key, _) in &update.forget {
            match key {
                RecentKey::Call(call) => self.calls.retain(|(known, _)| known != call),
                RecentKey::Payee(payee) => self.payees.retain(|(known, _)| known != payee),
                RecentKey::Operation(operation) => self.prices.retain(|(known, _)| known != operation),
            }
        }
        if let Some(CallMark { call, .. }) = update.call {
            self.calls.retain(|(known, _)| *known != call);
            self.calls.push((call, update.at));
        }
        if let Some(payee) = update.payee {
            self.payees.retain(|(known, _)| *known != payee);
            self.payees.push((payee, update.at));
        }
        if let Some((operation, prices)) = &update.prices {
            self.prices.retain(|(known, _)| known != operation);
            let paid = PaidPrices {
                at: update.at,
                prices: prices.clone(),
            };
            self.prices.push((*operation, paid));
        }
    }
}

/// The least recently used entries beyond the bound, if `new` is remembered too.
fn oldest<K: Copy + PartialEq>(
    entries: impl Iterator<Item = (K, Timestamp)>,
    new: K,
    most: usize,
) -> impl Iterator<Item = (K, Timestamp)> {
    let mut others: Vec<(K, Timestamp)> = entries.filter(|(key, _)| *key != new).collect();
    others.sort_by_key(|(_, at)| *at);
    let over = others.len().saturating_add(1).saturating_sub(most);
    others.truncate(over);
    others.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    fn units(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    #[test]
    fn spellings_of_one_request_have_one_digest() {
        let operation = OperationSlug::parse("lab.lookup").unwrap();
        let digest = |method: &str, url: &str, body_hash: Option<&str>| {
            let request = ProviderRequest {
                method: method.to_owned(),
                url: url.parse().unwrap(),
                body_hash: body_hash.map(str::to_owned),
            };
            CallDigest::of_parts(&operation, units(1), &request, None)
        };
        let call = digest("GET", "https://lab.example/a?x=1&y=2", None);
        for same in ["?y=2&x=1", "?x=1&y=2#2", "?&x=1&&y=2&"] {
            assert_eq!(
                digest("GET", &format!("https://lab.example/a{same}"), Some("1")),
                call,
                "{same}"
            );
        }
        for other in ["?x=1", "?x=1&y=3", "?x=1&y=2&y=2", "/?x=1&y=2", "?X=1&y=2"] {
            assert_ne!(
                digest("GET", &format!("https://lab.example/a{other}"), None),
                call,
                "{other}"
            );
        }
        assert_eq!(
            digest("GET", "https://lab.example/a?", None),
            digest("GET", "https://lab.example/a", None)
        );
        let post = |body_hash| digest("POST", "https://lab.example/a", body_hash);
        assert!(post(Some("1")) != post(Some("2")) && post(None) != post(Some("1")));
    }

    #[test]
    fn the_usual_price_is_the_median_of_the_last() {
        let operation = OperationDigest([1; 8]);
        let paid = |prices: &[u64]| RecentPayments {
            prices: vec![(
                operation,
                PaidPrices {
                    at: at(0),
                    prices: prices.iter().copied().map(units).collect(),
                },
            )],
            ..RecentPayments::default()
        };
        for (prices, count, usual) in [
            (&[][..], 3, None),
            (&[1, 2][..], 3, None),
            (&[9, 1, 5][..], 3, Some(5)),
            (&[100, 100, 9, 1, 5][..], 3, Some(5)),
            (&[4, 1, 3, 2][..], 4, Some(2)),
        ] {
            assert_eq!(
                paid(prices).usual_price(operation, count),
                usual.map(units),
                "{prices:?}"
            );
        }
        assert_eq!(paid(&[1, 2, 3]).usual_price(OperationDigest([2; 8]), 3), None);
    }

    proptest! {
        /// The latest entries are kept, up to each bound; a repeated entry takes no room.
        #[test]
        fn the_least_recently_used_entries_are_forgotten(calls in prop::collection::vec(0_u8..40, 1..100)) {
            let mut recent = RecentPayments::default();
            for (time, call) in calls.iter().enumerate() {
                let (byte, time) = (*call, at(u64::try_from(time).unwrap()));
                let mark = CallMark { call: CallDigest([byte; 8]), not_after: None };
                let price = (OperationDigest([byte; 8]), units(byte.into()));
                let update = recent.update(time, Some(mark), Some(PayeePrefix([byte; 12])), Some(price));
                recent.remember(&update);
            }
            let mut latest: Vec<u8> = Vec::new();
            for call in calls.iter().rev() {
                if !latest.contains(call) {
                    latest.push(*call);
                }
            }
            for (index, call) in latest.iter().enumerate() {
                prop_assert_eq!(recent.last_call(CallDigest([*call; 8])).is_some(), index < MOST_RECENT_CALLS);
                prop_assert_eq!(recent.has_paid(PayeePrefix([*call; 12])), index < MOST_RECENT_PAYEES);
                let prices = recent.prices_of(OperationDigest([*call; 8]));
                prop_assert_eq!(!prices.is_empty(), index < MOST_PRICED_OPERATIONS);
                prop_assert!(prices.len() <= MOST_RECENT_PRICES);
            }
        }
    }
}
