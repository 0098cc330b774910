//! Verified payees: for each call of a service, the payee, the maximum price, and the time from which agents may pay
//! the payee.
//!
//! The Lambda function `internal` writes the catalog, and `events` verifies payees independently from stream records.
//! `payments` pays only a payee and a price that both the catalog and the verification allow. A compromised `internal`
//! therefore can't shorten the delay for new payees.
//!
//! The rules of [`PayeeVerification::verify_service`]:
//! - A new service's payees have no delay, unless another service lists the same calls with another payee or
//!   a lower price, or recently stopped listing a call.
//! - A payee that is already verified for the same operation, method and address keeps the start time, even if the
//!   price is lowered.
//! - If the catalog puts a payee into effect early, a second operator accepted the payee, so the shorter
//!   delay applies.
//! - A payee that waits for a second operator has no start time.
//! - Every other payee waits for the whole delay.
//! - A call that the catalog no longer lists becomes a former call, so that it is not new if it is added again.
//!
//! The result depends only on the catalog and the previous verification. Repeated or reordered stream records change
//! nothing.

use crate::{
    Address, Amount, Duration, Endpoint, Network, Operation, OperationUuid, Pricing, Service, ServiceId, Timestamp,
};

/// A service that is or was available to agents, with each paid operation's endpoint and verified payees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedService {
    /// The id of the verified service.
    pub service: ServiceId,
    /// The version of the verified service, which each write increments.
    pub version: u64,
    /// The service's calls, in the order of the catalog.
    pub calls: Vec<VerifiedCall>,
    /// The calls that the service no longer lists, oldest first: at most [`MAX_FORMER_CALLS`].
    pub former: Vec<VerifiedCall>,
    /// The time at which the service last stopped listing a call. The value is [`Timestamp::MAX`] if a former call was
    /// dropped, because new services can't be compared with a dropped call.
    pub left_at: Option<Timestamp>,
}

/// A catalog operation, with the operation's HTTP method and URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCall {
    /// The id of the operation in the catalog.
    pub operation: OperationUuid,
    /// The operation's HTTP method.
    pub method: String,
    /// The URL at which the operation is called.
    pub endpoint: Endpoint,
    /// The operation's current payee, and the payee of a delayed change. The list is empty if the operation has no
    /// payment.
    pub payees: Vec<VerifiedPayee>,
}

/// A payee that may be paid for a call, and the maximum price of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedPayee {
    /// The chain on which the payee is paid.
    pub network: Network,
    /// The address of the payee.
    pub pay_to: Address,
    /// The maximum price of a call that pays this payee.
    pub most: Amount,
    /// The time from which agents may pay the payee; `None` if the payee had no delay.
    pub from: Option<Timestamp>,
    /// Whether this payee belongs to a delayed change of the operation, which is not in effect yet.
    pub is_next: bool,
}

/// When agents may pay an operation's payee at the operation's price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayeeAge {
    /// Agents may pay now, because the payee and price had no delay or the delay has ended.
    Old,
    /// Agents may pay only from this time on.
    Young(Timestamp),
    /// Agents may not pay, because the payee and price are not verified yet.
    Unattested,
}

/// The inputs of a verification, except the service.
#[derive(Clone, Copy, Debug)]
pub struct PayeeVerification<'a> {
    /// The time of the verification.
    pub at: Timestamp,
    /// How long agents must wait before they may pay a new payee or a higher price.
    pub delay: Duration,
    /// How long agents must wait after a second operator has accepted the payee or price.
    pub accepted_delay: Duration,
    /// All verified services, which the first verification of a service needs.
    pub others: &'a [VerifiedService],
}

/// The maximum number of a service's former calls. With addresses of 2,048 bytes, the calls take a third of a DynamoDB
/// item.
pub const MAX_FORMER_CALLS: usize = 64;

/// How much earlier the payee's start time in the catalog may be than the start time in the verification. The two times
/// differ if a stream record is late or if two clocks differ.
const TOLERANCE: Duration = Duration::from_secs_u32(60);

impl VerifiedPayee {
    fn from_pricing(pricing: Pricing<'_>, start_time: Option<Timestamp>, is_next: bool) -> Option<Self> {
        let payment = pricing.payment?;
        Some(Self {
            network: payment.network,
            pay_to: payment.pay_to,
            most: pricing.max_price()?,
            from: start_time,
            is_next,
        })
    }

    /// Returns whether `other` has the same payee as `self`, and the same or a lower maximum price.
    fn allows_payee_and_price_of(&self, other: &Self) -> bool {
        self.network == other.network && self.pay_to == other.pay_to && other.most <= self.most
    }

    fn has_same_payee_and_price(&self, other: &Self) -> bool {
        self.network == other.network && self.pay_to == other.pay_to && other.most == self.most
    }

    fn awaits_second_operator(&self) -> bool {
        self.from == Some(Timestamp::MAX)
    }

    fn is_payable_at(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at)
    }
}

impl VerifiedCall {
    /// Returns the call with only the payees that agents may pay at this time.
    fn with_payees_payable_at(&self, at: Timestamp) -> Self {
        let payees = self.payees.iter().filter(|payee| payee.is_payable_at(at));
        Self {
            payees: payees.copied().collect(),
            ..self.clone()
        }
    }

    fn is_for_operation(&self, operation: &Operation) -> bool {
        self.operation == operation.id && self.matches_method_and_endpoint_of(operation)
    }

    fn has_same_method_and_endpoint(&self, other: &Self) -> bool {
        (&self.method, &self.endpoint) == (&other.method, &other.endpoint)
    }

    fn matches_method_and_endpoint_of(&self, operation: &Operation) -> bool {
        operation.accepts_method(&self.method) && self.endpoint == operation.endpoint
    }
}

impl VerifiedService {
    /// Creates a verified service whose payees are not delayed by the verification. Only the payee of a
    /// delayed change has a start time, which is the catalog's start time.
    pub fn from_service_without_delay(service: &Service, before: Option<&Self>, at: Timestamp) -> Self {
        let calls = service.operations.iter().map(|operation| {
            let next = operation.next.as_ref();
            let next = next.and_then(|next| VerifiedPayee::from_pricing(next.as_pricing(), Some(next.from), true));
            let present = VerifiedPayee::from_pricing(operation.pricing_at(Timestamp::EPOCH), None, false);
            verified_call(operation, present.into_iter().chain(next).collect())
        });
        let listed = Self::from_previous_version(before, service.id, calls.collect(), at);
        Self {
            left_at: listed.left_at.max(service.history.removed_at),
            ..listed
        }
    }

    fn from_previous_version(
        before: Option<&Self>,
        service: ServiceId,
        calls: Vec<VerifiedCall>,
        at: Timestamp,
    ) -> Self {
        let is_listed = |known: &VerifiedCall| calls.iter().any(|call| call.has_same_method_and_endpoint(known));
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
            .filter(|known| !is_listed(known) && !lost.iter().any(|lost| lost.has_same_method_and_endpoint(known)))
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

    /// Returns whether agents may pay the operation's payee and price at the time `at`, or from which later time.
    pub fn payee_age(&self, operation: &Operation, at: Timestamp) -> PayeeAge {
        let Some(wanted) = VerifiedPayee::from_pricing(operation.pricing_at(at), None, false) else {
            // An operation without a payment or without a maximum price has no payee that needs a verification, so the
            // operation has no delay.
            return PayeeAge::Old;
        };
        let payees = self
            .operation_payees(operation)
            .filter(|payee| payee.allows_payee_and_price_of(&wanted));
        match payees.map(|payee| payee.from).min() {
            None => PayeeAge::Unattested,
            Some(Some(from)) if at < from => PayeeAge::Young(from),
            Some(_) => PayeeAge::Old,
        }
    }

    /// Returns each payee that `before` does not have with the same call, price and start time. Without
    /// `before`, omits payees without a start time.
    pub fn payees_changed_since<'a>(
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

    /// Returns whether the verified service differs from the previous version `before` in more than the version number.
    pub fn differs_from(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| {
            (&before.calls, &before.former, before.left_at) != (&self.calls, &self.former, self.left_at)
        })
    }

    fn operation_payees(&self, operation: &Operation) -> impl Iterator<Item = &VerifiedPayee> {
        let calls = self.calls.iter().filter(|call| call.is_for_operation(operation));
        calls.flat_map(|call| &call.payees)
    }
}

impl PayeeVerification<'_> {
    /// Verifies a service in the catalog. Returns `None` if agents could never enable the service.
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
        Some(VerifiedService::from_previous_version(
            before,
            service.id,
            calls.collect(),
            self.at,
        ))
    }

    /// Returns the next version after the service left the catalog. All calls become [`VerifiedService::former`] calls.
    pub fn verify_removed_service(&self, before: &VerifiedService) -> VerifiedService {
        VerifiedService::from_previous_version(Some(before), before.service, Vec::new(), self.at)
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
        // The payee waited for a second operator, and the catalog now has a start time for the payee.
        let is_requested_anew =
            |same: &VerifiedPayee| same.awaits_second_operator() && payee.is_next && !payee.awaits_second_operator();
        let from = if let Some(same) = same.filter(|same| !is_requested_anew(same)) {
            let is_accepted = same.is_next && !payee.is_next && !same.is_payable_at(self.at);
            if is_accepted {
                same.from.min(self.end_of_delay(self.accepted_delay))
            } else {
                same.from
            }
        } else if let Some(from) = known()
            .filter(|known| known.allows_payee_and_price_of(&payee) && !known.awaits_second_operator())
            .map(|known| known.from)
            .min()
        {
            from
        } else if is_new_service(before, service)
            && !self.is_payee_delayed_by_other_services(service, operation, &payee)
        {
            None
        } else {
            let own = self.end_of_delay(self.delay);
            match payee.from {
                // The catalog's start time `said` may be earlier than the verification's start time `own`
                // only by the tolerance, so that the catalog can't shorten the delay.
                Some(said) => own.map(|own| if own <= said.after(TOLERANCE) { said } else { own }),
                None => own,
            }
        };
        VerifiedPayee { from, ..payee }
    }

    /// Returns the end of a delay that starts now; `None` if `delay` is zero.
    fn end_of_delay(&self, delay: Duration) -> Option<Timestamp> {
        (delay.micros() > 0).then(|| self.at.after(delay))
    }

    /// Returns whether another service lists or listed a matching call for which agents may not pay this
    /// payee and price now, or stopped listing any call within the last `self.delay`.
    fn is_payee_delayed_by_other_services(
        &self,
        service: &Service,
        operation: &Operation,
        verified_payee: &VerifiedPayee,
    ) -> bool {
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
                    !payees.any(|payee| payee.is_payable_at(self.at) && payee.allows_payee_and_price_of(verified_payee))
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

/// Returns whether the service is new, so that no agent can have enabled it.
fn is_new_service(before: Option<&VerifiedService>, service: &Service) -> bool {
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
        VerifiedService::from_previous_version(before, service, vec![called(n)], at)
    }

    #[test]
    fn a_service_that_drops_a_former_endpoint_delays_every_new_service() {
        let at = Timestamp::EPOCH.after(Duration::from_secs_u32(9));
        let mut service = next(None, 0, at);
        assert_eq!((service.former.len(), service.left_at), (0, None));
        for n in 1..=MAX_FORMER_CALLS {
            service = next(Some(&service), n, at);
        }
        assert_eq!((service.former.len(), service.left_at), (MAX_FORMER_CALLS, Some(at)));
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
