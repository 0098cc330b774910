//! An agent's recent payments to one service, for the rules `duplicate_guard`, `new_payee` and `price_above_usual`.
//!
//! A reservation stores the call, and a confirmation stores the payee and the price, because an authorization alone
//! costs nothing. Each list has a maximum length. A call that a duplicate guard still compares is never evicted, so
//! cheap calls can't displace an expensive call.
//!
//! After a change of these rules, the recent payments may be incomplete ([`RecentPayments::coverage`]). The next
//! decision then adds the payments of the last 31 days ([`RememberedPayments`]).
//!
//! Invariant: two reservations of the same call within a duplicate guard's duration can't both succeed, because each
//! write requires that the stored call is older ([`CallMark::not_after`]). Payees and prices have no such condition, so
//! one of two concurrent payments may be missing there.

use crate::{
    Address, Agent, Amount, CallDescription, DuplicateGuard, Fingerprint, Intent, OperationSlug, PastPayment,
    ProviderRequest, ServiceId, ServiceSlug, Timestamp, Url,
};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use url::Position;

/// The maximum number of stored calls, 22 bytes each. Concurrent payments can exceed this number.
pub const MAX_RECENT_CALLS: usize = 32;
/// The maximum number of stored payees, 27 bytes each.
pub const MAX_RECENT_PAYEES: usize = 16;
/// The maximum number of operations with stored prices, about 50 bytes each. With full lists of calls, payees
/// and prices, the DynamoDB row stays below 2 KB.
pub const MAX_PRICED_OPERATIONS: usize = 8;
/// The maximum number of stored prices per operation.
pub const MAX_RECENT_PRICES: usize = 9;

/// The first 8 bytes of the SHA-256 of a call: the operation, method, URL, and body hash or page to fetch.
///
/// Spellings that a provider treats alike have the same digest: fragments (RFC 9110 §4.2.5), an empty query and the
/// order of parameters do not matter, and GET and HEAD have no body. The amount is not part of the digest, because an
/// agent could pay the same call again with another amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallDigest(pub [u8; 8]);

impl CallDigest {
    /// Computes the digest of a call. The service is not part of the digest, because only calls to the same service are
    /// compared.
    pub fn from_intent(intent: &Intent, operation: &OperationSlug) -> Self {
        let target = intent.target.as_ref().map(|target| target.url().as_str());
        Self::for_parts(operation, &intent.request, target)
    }

    /// Computes the digest of a recorded call.
    pub fn for_call(call: &CallDescription, operation: &OperationSlug) -> Self {
        let target = call.target_url.as_ref().map(Url::as_str);
        Self::for_parts(operation, &call.request, target)
    }

    fn for_parts(operation: &OperationSlug, request: &ProviderRequest, target: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        let (body, target) = match (request.method.as_str(), &request.body_hash) {
            ("GET" | "HEAD", _) => (None, None),
            (_, Some(body)) => (Some(body.as_str()), None),
            (_, None) => (None, target),
        };
        let parameters = request.url.query().unwrap_or_default().split('&');
        let mut parameters: Vec<&str> = parameters.filter(|parameter| !parameter.is_empty()).collect();
        parameters.sort_unstable();
        let parts = [
            operation.as_str(),
            &request.method,
            &request.url[..Position::AfterPath],
            body.unwrap_or_default(),
            target.unwrap_or_default(),
        ];
        for part in parts.into_iter().chain(parameters) {
            // The length prefixes ensure that different lists of parts never have the same hash input.
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().first_chunk().copied().unwrap_or_default())
    }
}

/// The first 12 bytes of a payee's address: enough that nobody can create another address with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayeePrefix(pub [u8; 12]);

impl PayeePrefix {
    /// Returns the first 12 of the 20 bytes of this address.
    pub fn from_address(payee: Address) -> Self {
        Self(payee.first_chunk().copied().unwrap_or_default())
    }
}

/// The first 8 bytes of the SHA-256 of an operation's slug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationDigest(pub [u8; 8]);

impl OperationDigest {
    /// Computes the digest of this slug.
    pub fn from_slug(operation: &OperationSlug) -> Self {
        Self(
            Sha256::digest(operation.as_str())
                .first_chunk()
                .copied()
                .unwrap_or_default(),
        )
    }
}

/// The last paid prices of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaidPrices {
    /// The time at which the operation was last paid.
    pub at: Timestamp,
    /// Up to [`MAX_RECENT_PRICES`] prices, oldest first.
    pub prices: Vec<Amount>,
}

/// An agent's recent payments to one service. See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentPayments {
    /// Whether recent payments were ever stored.
    pub is_stored: bool,
    /// The stored calls, each with the time of the last authorization.
    pub calls: Vec<(CallDigest, Timestamp)>,
    /// The stored payees, each with the time of the last authorization.
    pub payees: Vec<(PayeePrefix, Timestamp)>,
    /// The stored prices, by operation.
    pub prices: Vec<(OperationDigest, PaidPrices)>,
    /// The [`Agent::recent_payment_rules_fingerprint`] of the rules for which payments were stored. If the
    /// agent's present rules have another fingerprint, payments may be missing.
    pub coverage: Option<Fingerprint>,
}

/// Identifies an element of [`RecentPayments`] to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecentKey {
    /// The stored call with this digest.
    Call(CallDigest),
    /// The stored payee with this address prefix.
    Payee(PayeePrefix),
    /// The stored prices of the operation with this digest.
    Operation(OperationDigest),
}

/// The call that a reservation stores, so that duplicate guards can compare later calls with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallMark {
    /// The digest of the call. Two calls with equal digests count as the same call.
    pub call: CallDigest,
    /// The write fails if the same call was authorized after this time; `None` for no such condition.
    pub not_after: Option<Timestamp>,
}

/// An update of the recent payments. The reservation stores the call, and the confirmation stores the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentUpdate {
    /// The recorded time of the payment.
    pub at: Timestamp,
    /// Whether no recent payments were stored at the decision. The write fails if recent payments are stored
    /// meanwhile.
    pub is_first: bool,
    /// The call, if a rule is a duplicate guard.
    pub call: Option<CallMark>,
    /// The payee, if a rule requires approval for new payees.
    pub payee: Option<PayeePrefix>,
    /// The operation with the last prices, this payment's price last; `None` if no rule uses a median.
    pub prices: Option<(OperationDigest, Vec<Amount>)>,
    /// The calls, payees and operations to remove, each with the time of the last authorization. The write
    /// fails if a removed call or payee was stored again meanwhile.
    pub forget: Vec<(RecentKey, Timestamp)>,
}

impl RecentUpdate {
    /// Returns the part that the reservation stores: only the call. `None` if this update has no call.
    pub fn keep_only_call(mut self) -> Option<Self> {
        (self.payee, self.prices) = (None, None);
        self.forget.retain(|(key, _)| matches!(key, RecentKey::Call(_)));
        self.call.is_some().then_some(self)
    }
}

impl RecentPayments {
    /// The value for an agent without recent payments.
    pub const NONE: &Self = &Self {
        is_stored: false,
        calls: Vec::new(),
        payees: Vec::new(),
        prices: Vec::new(),
        coverage: None,
    };

    /// Returns when this call was last authorized. For a call that a full list lacks, returns the oldest call's time as
    /// an upper bound.
    pub fn last_call_time(&self, call: CallDigest) -> Option<Timestamp> {
        let known = self.calls.iter().find(|(known, _)| *known == call).map(|(_, at)| *at);
        let oldest = || self.calls.iter().map(|(_, at)| *at).min();
        known.or_else(|| oldest().filter(|_| self.calls.len() >= MAX_RECENT_CALLS))
    }

    /// Returns whether this payee is stored. Only the last [`MAX_RECENT_PAYEES`] payees are stored.
    pub fn has_paid(&self, payee: PayeePrefix) -> bool {
        self.payees.iter().any(|(known, _)| *known == payee)
    }

    /// Returns the operation's stored prices, oldest first.
    pub fn operation_prices(&self, operation: OperationDigest) -> &[Amount] {
        let paid = self.prices.iter().find(|(known, _)| *known == operation);
        paid.map_or(&[], |(_, paid)| &paid.prices)
    }

    /// Returns the lower median of an operation's last `count` prices; `None` if fewer prices are stored.
    pub fn usual_price(&self, operation: OperationDigest, count: u8) -> Option<Amount> {
        let prices = self.operation_prices(operation);
        let first = prices.len().checked_sub(count.into())?;
        let mut last = [Amount::ZERO; MAX_RECENT_PRICES];
        let last = last.get_mut(..count.into())?;
        last.copy_from_slice(prices.get(first..)?);
        last.sort_unstable();
        last.get(last.len().checked_sub(1)? / 2).copied()
    }

    /// Returns the update that stores a payment and removes the elements for which the lists have no room.
    pub fn update_for_payment(
        &self,
        at: Timestamp,
        call: Option<CallMark>,
        payee: Option<PayeePrefix>,
        price: Option<(OperationDigest, Amount)>,
    ) -> RecentUpdate {
        let mut forget = Vec::new();
        if let Some(mark) = call {
            let calls = self.calls.iter().map(|(call, at)| (*call, *at));
            let surplus = entries_to_evict(calls, mark.call, MAX_RECENT_CALLS);
            // A duplicate guard still compares calls after `not_after`, so they stay stored.
            let surplus = surplus.filter(|(_, at)| mark.not_after.is_none_or(|not_after| *at <= not_after));
            forget.extend(surplus.map(|(call, at)| (RecentKey::Call(call), at)));
        }
        if let Some(payee) = payee {
            let payees = self.payees.iter().map(|(payee, at)| (*payee, *at));
            forget.extend(
                entries_to_evict(payees, payee, MAX_RECENT_PAYEES).map(|(payee, at)| (RecentKey::Payee(payee), at)),
            );
        }
        if let Some((operation, _)) = price {
            let prices = self.prices.iter().map(|(operation, paid)| (*operation, paid.at));
            forget.extend(
                entries_to_evict(prices, operation, MAX_PRICED_OPERATIONS)
                    .map(|(operation, at)| (RecentKey::Operation(operation), at)),
            );
        }
        let prices = price.map(|(operation, price)| {
            let known = self.operation_prices(operation);
            let dropped = known.len().saturating_sub(MAX_RECENT_PRICES.saturating_sub(1));
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

    /// Applies the update as the store does.
    pub fn apply_update(&mut self, update: &RecentUpdate) {
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

impl RecentPayments {
    /// Adds the calls, payees and prices of `others`, which must be payments to the same service. A list that
    /// becomes too long keeps the newest elements.
    pub fn merge(&mut self, others: &Self) {
        merge_newest_entries(&mut self.calls, &others.calls, |at| *at, MAX_RECENT_CALLS);
        merge_newest_entries(&mut self.payees, &others.payees, |at| *at, MAX_RECENT_PAYEES);
        merge_newest_entries(&mut self.prices, &others.prices, |paid| paid.at, MAX_PRICED_OPERATIONS);
    }
}

fn merge_newest_entries<K: Clone + PartialEq, V: Clone>(
    entries: &mut Vec<(K, V)>,
    others: &[(K, V)],
    time_of: fn(&V) -> Timestamp,
    max: usize,
) {
    for (key, value) in others {
        match entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) if time_of(known) >= time_of(value) => {}
            Some((_, known)) => known.clone_from(value),
            None => entries.push((key.clone(), value.clone())),
        }
    }
    entries.sort_by_key(|(_, value)| std::cmp::Reverse(time_of(value)));
    entries.truncate(max);
}

impl Agent {
    /// Returns whether a rule of the agent is a duplicate guard.
    pub fn has_duplicate_guard(&self) -> bool {
        self.rules.iter().any(|rule| rule.kind.is_kind::<DuplicateGuard>())
    }

    /// Returns a fingerprint of the rules that need recent payments; `None` without such rules.
    pub fn recent_payment_rules_fingerprint(&self) -> Option<Fingerprint> {
        let rules = self.rules.iter().filter(|rule| rule.kind.needs_recent_payments());
        let rules = rules.map(|rule| {
            let services = rule
                .kind
                .scope()
                .services
                .map(|services| services.iter().map(ServiceSlug::as_str));
            // `*` means all services. It is not a valid slug, so this text never equals a list of slugs.
            let services = services.map_or_else(|| "*".to_owned(), |services| services.collect::<Vec<_>>().join(","));
            format!("{} {} {services}", rule.id, rule.kind.name())
        });
        let rules: Vec<String> = rules.collect();
        (!rules.is_empty()).then(|| Fingerprint::for_text(&rules.join("\n")))
    }
}

/// The recent payments to each service, computed from payments in chronological order.
#[derive(Clone, Debug, Default)]
pub struct RememberedPayments {
    services: BTreeMap<ServiceId, RecentPayments>,
    /// Confirmations and releases that are not applied yet. The sequence number separates equal times.
    later: BTreeMap<(Timestamp, u64), PastPayment>,
    next: u64,
}

impl RememberedPayments {
    /// Returns the recent payments to a service.
    pub fn payments_to_service(&self, service: ServiceId) -> &RecentPayments {
        self.services.get(&service).unwrap_or(RecentPayments::NONE)
    }

    pub(super) fn payments_to_service_mut(&mut self, service: ServiceId) -> &mut RecentPayments {
        self.services.entry(service).or_default()
    }

    /// Adds a payment. Payments must be added in chronological order.
    pub fn add(&mut self, payment: &PastPayment) {
        self.apply_changes_until(payment.at);
        let call = payment.call.map(|call| CallMark { call, not_after: None });
        if call.is_some() {
            let recent = self.payments_to_service_mut(payment.service);
            let update = recent.update_for_payment(payment.at, call, None, None);
            recent.apply_update(&update);
        }
        for at in [payment.paid_at, payment.released_at].into_iter().flatten() {
            self.later.insert((at, self.next), *payment);
            self.next = self.next.saturating_add(1);
        }
    }

    /// Applies the confirmations and releases up to this time.
    pub fn apply_changes_until(&mut self, now: Timestamp) {
        while let Some(first) = self.later.first_entry() {
            let (at, _) = *first.key();
            if at > now {
                break;
            }
            let payment = first.remove();
            let recent = self.payments_to_service_mut(payment.service);
            if payment.released_at == Some(at) {
                recent
                    .calls
                    .retain(|(call, last)| Some(*call) != payment.call || *last != payment.at);
            } else {
                let price = (payment.operation, payment.amount);
                let update = recent.update_for_payment(payment.at, None, Some(payment.payee), Some(price));
                recent.apply_update(&update);
            }
        }
    }
}

/// Returns the least recently used elements to evict when `new` is added.
fn entries_to_evict<K: Copy + PartialEq>(
    entries: impl Iterator<Item = (K, Timestamp)>,
    new: K,
    max: usize,
) -> impl Iterator<Item = (K, Timestamp)> {
    let mut others: Vec<(K, Timestamp)> = entries.filter(|(key, _)| *key != new).collect();
    others.sort_by_key(|(_, at)| *at);
    let over = others.len().saturating_add(1).saturating_sub(max);
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
    fn equivalent_requests_have_the_same_call_digest() {
        let operation = OperationSlug::parse("lab.lookup").unwrap();
        let digest_with_target = |method: &str, url: &str, body_hash: Option<&str>, target: Option<&str>| {
            let request = ProviderRequest {
                method: method.to_owned(),
                url: url.parse().unwrap(),
                body_hash: body_hash.map(str::to_owned),
            };
            CallDigest::for_parts(&operation, &request, target)
        };
        let digest = |method: &str, url: &str, body_hash| digest_with_target(method, url, body_hash, None);
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
        // The page to fetch is part of the digest only without a body hash.
        let [page, other] = [Some("https://a.example/"), Some("https://b.example/")];
        let url = "https://lab.example/a";
        let with_target = |method, body_hash, target| digest_with_target(method, url, body_hash, target);
        assert_eq!(with_target("GET", None, page), with_target("GET", None, other));
        assert_eq!(
            with_target("POST", Some("1"), page),
            with_target("POST", Some("1"), None)
        );
        assert_ne!(with_target("POST", None, page), with_target("POST", None, other));
    }

    #[test]
    fn the_usual_price_is_the_median_of_the_last_prices() {
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
        #[test]
        fn recent_payments_drop_least_recently_used_calls_and_payees(calls in prop::collection::vec(0_u8..40, 1..100)) {
            let mut recent = RecentPayments::default();
            for (time, call) in calls.iter().enumerate() {
                let (byte, time) = (*call, at(u64::try_from(time).unwrap()));
                let mark = CallMark { call: CallDigest([byte; 8]), not_after: None };
                let price = (OperationDigest([byte; 8]), units(byte.into()));
                let update = recent.update_for_payment(time, Some(mark), Some(PayeePrefix([byte; 12])), Some(price));
                recent.apply_update(&update);
            }
            let mut latest: Vec<u8> = Vec::new();
            for call in calls.iter().rev() {
                if !latest.contains(call) {
                    latest.push(*call);
                }
            }
            for (index, call) in latest.iter().enumerate() {
                let is_known = recent.calls.iter().any(|(known, _)| *known == CallDigest([*call; 8]));
                prop_assert_eq!(is_known, index < MAX_RECENT_CALLS);
                prop_assert_eq!(recent.has_paid(PayeePrefix([*call; 12])), index < MAX_RECENT_PAYEES);
                let prices = recent.operation_prices(OperationDigest([*call; 8]));
                prop_assert_eq!(!prices.is_empty(), index < MAX_PRICED_OPERATIONS);
                prop_assert!(prices.len() <= MAX_RECENT_PRICES);
            }
        }
    }
}
