//! Verified payees: for each call of a service, the payee, the maximum price, and the time from which the payee may be
//! paid. A call is an operation's HTTP method and address. The function `events` determines these values independently
//! of `internal`, which writes the catalog.
//!
//! `internal` writes the catalog's rows and applies the delay for new payees ([`Edit::apply`](crate::Edit::apply)).
//! `events` applies the same delay independently, based on the stream records that it received, and `payments` pays
//! only what both allow. Therefore a compromised `internal` can't shorten the delay.
//!
//! The rules, in [`PayeeVerification::verify_service`]:
//! - The first verification of a new service takes effect at once, with two exceptions. In the first exception, another
//!   verified service lists or listed the same call with a different payee or a lower price. In the second exception, a
//!   call was removed from another verified service within the delay.
//! - If a payee is already verified for the same operation, method and address, its start time stays the same, even if
//!   the price is lowered.
//! - If the catalog puts a delayed payee into effect before its start time, a second operator has accepted the payee.
//!   The payee may then be paid after the shorter delay for accepted payees.
//! - A delayed payee without a start time in the catalog
//!   ([`NextPricing::effective_from`](crate::NextPricing::effective_from)) waits until a second operator accepts the
//!   payee, without a time limit.
//! - Every other payee waits for the whole delay.
//! - A payee that the catalog no longer lists is removed. A call that the catalog no longer lists becomes a former
//!   call, with the payees that could be paid at that time. Therefore a call that is removed and added again does not
//!   count as new.
//!
//! The result depends only on the current catalog and the previous verification. Therefore repeated or reordered stream
//! records change nothing.

use crate::{
    Address, Amount, Duration, Endpoint, Network, Operation, OperationUuid, Pricing, Service, ServiceId, Timestamp,
};

/// The verified calls of a service that is or was available to agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedService {
    /// The service.
    pub service: ServiceId,
    /// The version, which each write increments.
    pub version: u64,
    /// The service's calls, in the order of the catalog.
    pub calls: Vec<VerifiedCall>,
    /// The calls that the service no longer lists, oldest first: at most [`MAX_FORMER_CALLS`] calls.
    pub former: Vec<VerifiedCall>,
    /// The time at which the service last stopped listing a call. [`Timestamp::MAX`] if `former` was full and a former
    /// call was dropped. The payees of every new service are then delayed.
    pub left_at: Option<Timestamp>,
}

/// An operation, with its method and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCall {
    /// The operation.
    pub operation: OperationUuid,
    /// The operation's HTTP method.
    pub method: String,
    /// The operation's address.
    pub endpoint: Endpoint,
    /// The operation's current payee and its delayed payee. Empty if the operation has no payment.
    pub payees: Vec<VerifiedPayee>,
}

/// A payee and its maximum price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedPayee {
    /// The chain.
    pub network: Network,
    /// The wallet.
    pub pay_to: Address,
    /// The maximum price.
    pub most: Amount,
    /// The time from which the payee may be paid; `None` if there was no delay.
    pub from: Option<Timestamp>,
    /// Whether the catalog lists this payee as the operation's next payee.
    pub is_next: bool,
}

/// The time from which agents may pay an operation's payee at the operation's price, if there is such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayeeAge {
    /// Agents may pay now, because the payee and price had no delay or the delay has ended.
    Old,
    /// Agents may pay from this time.
    Young(Timestamp),
    /// Agents may not pay, because the payee and price are not verified yet.
    Unattested,
}

/// The inputs of a verification, except the service.
#[derive(Clone, Copy, Debug)]
pub struct PayeeVerification<'a> {
    /// The time of the verification.
    pub at: Timestamp,
    /// The delay of a new payee or a higher price.
    pub delay: Duration,
    /// The delay after a second operator has accepted the payee or price.
    pub accepted_delay: Duration,
    /// All verified services, which the first verification of a service needs.
    pub others: &'a [VerifiedService],
}

/// The maximum number of a service's former calls. With addresses of 2,048 bytes, this number of calls takes a third of
/// the 400 KB of a DynamoDB item.
pub const MAX_FORMER_CALLS: usize = 64;

/// The tolerance for a payee's start time in the catalog, which may be earlier than the start time that the
/// verification computes. The tolerance is the usual delay of a stream record, plus a clock difference.
const TOLERANCE: Duration = Duration::from_secs_u32(60);

impl VerifiedPayee {
    fn from_pricing(pricing: Pricing<'_>, from: Option<Timestamp>, is_next: bool) -> Option<Self> {
        let payment = pricing.payment?;
        Some(Self {
            network: payment.network,
            pay_to: payment.pay_to,
            most: pricing.max_price()?,
            from,
            is_next,
        })
    }

    /// Returns whether `other` has the same payee and at most this price.
    fn covers(&self, other: &Self) -> bool {
        self.network == other.network && self.pay_to == other.pay_to && other.most <= self.most
    }

    fn has_same_payee_and_price(&self, other: &Self) -> bool {
        self.network == other.network && self.pay_to == other.pay_to && other.most == self.most
    }

    /// Returns whether agents may pay the payee only after a second operator accepts the payee. There is no time limit.
    fn awaits_second(&self) -> bool {
        self.from == Some(Timestamp::MAX)
    }

    fn is_payable_at(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at)
    }
}

impl VerifiedCall {
    /// Returns the call with only the payees that may be paid at this time.
    fn with_payees_payable_at(&self, at: Timestamp) -> Self {
        let payees = self.payees.iter().filter(|payee| payee.is_payable_at(at));
        Self {
            payees: payees.copied().collect(),
            ..self.clone()
        }
    }

    fn belongs_to(&self, operation: &Operation) -> bool {
        self.operation == operation.id && self.matches_call_of(operation)
    }

    fn has_same_call(&self, other: &Self) -> bool {
        (&self.method, &self.endpoint) == (&other.method, &other.endpoint)
    }

    fn matches_call_of(&self, operation: &Operation) -> bool {
        operation.accepts_method(&self.method) && self.endpoint == operation.endpoint
    }
}

impl VerifiedService {
    /// Creates a verification with which agents may pay the listed payees immediately. If the catalog delays a payee,
    /// agents may pay the payee from the start time in the catalog.
    pub fn effective_immediately(service: &Service, before: Option<&Self>, at: Timestamp) -> Self {
        let calls = service.operations.iter().map(|operation| {
            let next = operation.next.as_ref();
            let next = next.and_then(|next| VerifiedPayee::from_pricing(next.as_pricing(), Some(next.from), true));
            let present = VerifiedPayee::from_pricing(operation.pricing_at(Timestamp::EPOCH), None, false);
            verified_call(operation, present.into_iter().chain(next).collect())
        });
        let listed = Self::replacing(before, service.id, calls.collect(), at);
        Self {
            left_at: listed.left_at.max(service.history.removed_at),
            ..listed
        }
    }

    /// Creates the next version of the verification, with these calls.
    fn replacing(before: Option<&Self>, service: ServiceId, calls: Vec<VerifiedCall>, at: Timestamp) -> Self {
        let is_listed = |known: &VerifiedCall| calls.iter().any(|call| call.has_same_call(known));
        let lost: Vec<VerifiedCall> = before
            .into_iter()
            .flat_map(|before| &before.calls)
            .filter(|known| !is_listed(known))
            .map(|known| known.with_payees_payable_at(at))
            .collect();
        let left_at = before.and_then(|before| before.left_at);
        let mut left_at = if lost.is_empty() {
            left_at
        } else {
            left_at.max(Some(at))
        };
        let mut former: Vec<VerifiedCall> = before
            .into_iter()
            .flat_map(|before| &before.former)
            .filter(|known| !is_listed(known) && !lost.iter().any(|lost| lost.has_same_call(known)))
            .cloned()
            .collect();
        former.extend(lost);
        let too_many = former.len().saturating_sub(MAX_FORMER_CALLS);
        if too_many > 0 {
            former.drain(..too_many);
            left_at = Some(Timestamp::MAX);
        }
        Self {
            service,
            version: before.map_or(0, |before| before.version).saturating_add(1),
            calls,
            former,
            left_at,
        }
    }

    /// Returns whether agents may pay the operation's payee at `at`, at the price that the operation has at `at`. If
    /// agents may pay only later, returns the time from which they may pay.
    pub fn payee_age(&self, operation: &Operation, at: Timestamp) -> PayeeAge {
        let Some(wanted) = VerifiedPayee::from_pricing(operation.pricing_at(at), None, false) else {
            // The call has no payment.
            return PayeeAge::Old;
        };
        let payees = self.operation_payees(operation).filter(|payee| payee.covers(&wanted));
        match payees.map(|payee| payee.from).min() {
            None => PayeeAge::Unattested,
            Some(Some(from)) if at < from => PayeeAge::Young(from),
            Some(_) => PayeeAge::Old,
        }
    }

    /// Returns the payees that this verification adds, or whose start time it changes. If the service is new, payees
    /// that may be paid at once are omitted.
    pub fn changes_since<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (&'a VerifiedCall, &'a VerifiedPayee)> {
        let calls = self.calls.iter();
        let payees = calls.flat_map(|call| call.payees.iter().map(move |payee| (call, payee)));
        payees.filter(move |(call, payee)| match before {
            None => payee.from.is_some(),
            Some(before) => {
                let known = before.calls.iter().filter(|known| {
                    (known.operation, &known.method, &known.endpoint) == (call.operation, &call.method, &call.endpoint)
                });
                let mut known = known.flat_map(|known| &known.payees);
                !known.any(|known| known.has_same_payee_and_price(payee) && known.from == payee.from)
            }
        })
    }

    /// Returns whether the verification differs from the previous verification, ignoring the version.
    pub fn differs_from(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| {
            (&before.calls, &before.former, before.left_at) != (&self.calls, &self.former, self.left_at)
        })
    }

    fn operation_payees(&self, operation: &Operation) -> impl Iterator<Item = &VerifiedPayee> {
        let calls = self.calls.iter().filter(|call| call.belongs_to(operation));
        calls.flat_map(|call| &call.payees)
    }
}

impl PayeeVerification<'_> {
    /// Verifies the service as listed in the catalog. Returns `None` if the service was never available to agents.
    pub fn verify_service(&self, before: Option<&VerifiedService>, service: &Service) -> Option<VerifiedService> {
        if before.is_none() && !service.was_ever_open() {
            return None;
        }
        let calls = service.operations.iter().map(|operation| {
            let present = VerifiedPayee::from_pricing(operation.pricing_at(Timestamp::EPOCH), None, false);
            let next = operation.next.as_ref();
            let next = next.and_then(|next| VerifiedPayee::from_pricing(next.as_pricing(), Some(next.from), true));
            let wanted = present.into_iter().chain(next);
            let payees = wanted.map(|wanted| self.verify_payee(before, service, operation, wanted));
            verified_call(operation, payees.collect())
        });
        Some(VerifiedService::replacing(before, service.id, calls.collect(), self.at))
    }

    /// Returns the verification after the service was removed from the catalog. All calls of the service move to
    /// [`VerifiedService::former`].
    pub fn removed_service_verification(&self, before: &VerifiedService) -> VerifiedService {
        VerifiedService::replacing(Some(before), before.service, Vec::new(), self.at)
    }

    fn verify_payee(
        &self,
        before: Option<&VerifiedService>,
        service: &Service,
        operation: &Operation,
        payee: VerifiedPayee,
    ) -> VerifiedPayee {
        let known = || before.into_iter().flat_map(|before| before.operation_payees(operation));
        let same = known().find(|known| known.has_same_payee_and_price(&payee));
        // The known payee waited for a second operator. Meanwhile an operator requested the same payee again, and the
        // payee now has a start time in the catalog.
        let is_requested_anew = |same: &VerifiedPayee| same.awaits_second() && payee.is_next && !payee.awaits_second();
        let from = if let Some(same) = same.filter(|same| !is_requested_anew(same)) {
            let is_accepted = same.is_next && !payee.is_next && !same.is_payable_at(self.at);
            if is_accepted {
                same.from.min(self.end_of_delay(self.accepted_delay))
            } else {
                same.from
            }
        } else if let Some(from) = known()
            .filter(|known| known.covers(&payee) && !known.awaits_second())
            .map(|known| known.from)
            .min()
        {
            from
        } else if opens_first_time(before, service) && !self.is_listed_elsewhere(service, operation, &payee) {
            None
        } else {
            let own = self.end_of_delay(self.delay);
            match payee.from {
                // `said` is the start time in the catalog, and `own` is the start time that this verification computes.
                // The start time in the catalog applies, unless that time is earlier than `own` by more than the
                // tolerance. In that case, `own` applies.
                Some(said) => own.map(|own| if own <= said.after(TOLERANCE) { said } else { own }),
                None => own,
            }
        };
        VerifiedPayee { from, ..payee }
    }

    /// Returns the end of this delay; `None` if the delay is zero.
    fn end_of_delay(&self, delay: Duration) -> Option<Timestamp> {
        (delay.micros() > 0).then(|| self.at.after(delay))
    }

    /// Returns whether the payee of a new service must wait because of another verified service. There are two reasons:
    /// - The other service lists or listed the same call, and no payee of that call that may be paid now has the same
    ///   wallet and at least the same maximum price.
    /// - The other service removed a call within the delay.
    fn is_listed_elsewhere(&self, service: &Service, operation: &Operation, verified_payee: &VerifiedPayee) -> bool {
        let mut others = self.others.iter().filter(|other| other.service != service.id);
        others.any(|other| {
            let has_lost = other.left_at.is_some_and(|left| self.at < left.after(self.delay));
            let mut shared =
                other.calls.iter().chain(&other.former).filter(|call| {
                    operation.accepts_method(&call.method) && operation.endpoint.overlaps(&call.endpoint)
                });
            has_lost
                || shared.any(|call| {
                    let mut payees = call.payees.iter();
                    !payees.any(|payee| payee.is_payable_at(self.at) && payee.covers(verified_payee))
                })
        })
    }
}

fn verified_call(operation: &Operation, payees: Vec<VerifiedPayee>) -> VerifiedCall {
    VerifiedCall {
        operation: operation.id,
        method: operation.method.to_ascii_uppercase(),
        endpoint: operation.endpoint.clone(),
        payees,
    }
}

/// Returns whether the service is new: no agent can have the service enabled yet.
fn opens_first_time(before: Option<&VerifiedService>, service: &Service) -> bool {
    before.is_none() && !service.history.was_open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(n: usize) -> VerifiedCall {
        VerifiedCall {
            operation: OperationUuid::from_uuid(uuid::Uuid::from_u128(1)),
            method: "GET".to_owned(),
            endpoint: Endpoint::parse(&format!("https://shop.example/{n}")).unwrap(),
            payees: Vec::new(),
        }
    }

    fn next(before: Option<&VerifiedService>, n: usize, at: Timestamp) -> VerifiedService {
        let service = ServiceId::from_uuid(uuid::Uuid::from_u128(1));
        VerifiedService::replacing(before, service, vec![called(n)], at)
    }

    #[test]
    fn a_forgotten_removed_endpoint_delays_every_new_service() {
        let at = Timestamp::EPOCH.after(Duration::from_secs_u32(9));
        let mut service = next(None, 0, at);
        assert_eq!((service.former.len(), service.left_at), (0, None));
        for n in 1..=MAX_FORMER_CALLS {
            service = next(Some(&service), n, at);
        }
        assert_eq!((service.former.len(), service.left_at), (MAX_FORMER_CALLS, Some(at)));
        // If the call is listed again, it is no longer a former call.
        let again = next(Some(&service), 0, at);
        assert_eq!((again.former.len(), again.left_at), (MAX_FORMER_CALLS, Some(at)));
        for n in [MAX_FORMER_CALLS + 1, MAX_FORMER_CALLS + 2] {
            service = next(Some(&service), n, at);
            assert_eq!(
                (service.former.len(), service.left_at),
                (MAX_FORMER_CALLS, Some(Timestamp::MAX))
            );
        }
    }
}
