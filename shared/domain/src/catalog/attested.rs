//! The payees that a second function attests: whom each call of the catalog pays, how much at most, and since when that
//! is known.
//!
//! The catalog's rows are written by `internal`, which also applies the delay of a new payee
//! ([`Edit::apply`](crate::Edit::apply)). `events` applies the same delay once more, from what it has seen itself, and
//! `payments` pays only what both allow. So a taken-over `internal` can't shorten the delay.
//!
//! The rule, in [`Attesting::attest`]:
//!
//! - The first attestation of a service that opens has effect at once, unless another attested service lists the same
//!   call with another payee or a lower price, or has lost a call within the delay.
//! - A payee that is attested for the same operation, method and address keeps its time; a lower price for it has the
//!   same time.
//! - A waiting payee that is in effect in the catalog before its time was accepted by a second operator. It is paid
//!   after the delay of accepted payees.
//! - Everything else waits for the whole delay.
//! - A payee that the catalog no longer lists is forgotten.
//!
//! The rule depends on the present catalog and the previous attestation only. So repeated and reordered records of the
//! stream change nothing.

use crate::{
    Address, Amount, Duration, Endpoint, Network, Operation, OperationUuid, Pricing, Service, ServiceId, Timestamp,
};

/// The attested calls of one service that is open, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttestedService {
    /// The service.
    pub service: ServiceId,
    /// The number of times that it was written.
    pub version: u64,
    /// Its calls, in the order of the catalog.
    pub calls: Vec<AttestedCall>,
    /// When a method and address were last removed from it.
    pub left_at: Option<Timestamp>,
}

/// One operation, called in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttestedCall {
    /// The operation.
    pub operation: OperationUuid,
    /// Its HTTP method.
    pub method: String,
    /// Its address.
    pub endpoint: Endpoint,
    /// Its payees: the present one and the delayed one. Empty for a call without a payment.
    pub payees: Vec<AttestedPayee>,
}

/// A payee, and the highest price of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttestedPayee {
    /// The chain.
    pub network: Network,
    /// The wallet.
    pub pay_to: Address,
    /// The highest price.
    pub most: Amount,
    /// The first instant at which it may be paid; `None` if it may be paid since it was attested.
    pub from: Option<Timestamp>,
    /// Whether the catalog lists it as the operation's next one.
    pub is_next: bool,
}

/// Since when an operation's payee and price may be paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayeeAge {
    /// They may be paid now.
    Old,
    /// They may be paid from this time on.
    Young(Timestamp),
    /// They are not attested yet.
    Unattested,
}

/// The circumstances of an attestation.
#[derive(Clone, Copy, Debug)]
pub struct Attesting<'a> {
    /// The time.
    pub at: Timestamp,
    /// How long a new payee or a raised price waits.
    pub delay: Duration,
    /// How long it waits after a second operator has accepted it.
    pub accepted_delay: Duration,
    /// Every attested service: required for the first attestation of a service.
    pub others: &'a [AttestedService],
}

/// How much earlier than by the time of its attestation a payee may have effect if the catalog says so: the time that a
/// record of the stream usually takes, and a difference between clocks.
const TOLERANCE: Duration = Duration::from_secs_u32(60);

impl AttestedPayee {
    fn of(pricing: Pricing<'_>, from: Option<Timestamp>, is_next: bool) -> Option<Self> {
        let payment = pricing.payment?;
        Some(Self {
            network: payment.network,
            pay_to: payment.pay_to,
            most: pricing.most()?,
            from,
            is_next,
        })
    }

    /// Whether it is the same payee, at the same price or a higher one.
    fn covers(&self, other: &Self) -> bool {
        self.network == other.network && self.pay_to == other.pay_to && other.most <= self.most
    }

    fn is_same(&self, other: &Self) -> bool {
        self.network == other.network && self.pay_to == other.pay_to && other.most == self.most
    }

    fn is_old(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at)
    }
}

impl AttestedCall {
    fn is_of(&self, operation: &Operation) -> bool {
        self.operation == operation.id && self.is_called_as(operation)
    }

    fn is_called_as(&self, operation: &Operation) -> bool {
        operation.takes(&self.method) && self.endpoint == operation.endpoint
    }
}

impl AttestedService {
    /// The service as it is, with effect at once: a waiting payee keeps the catalog's time.
    pub fn at_once(service: &Service, version: u64) -> Self {
        let calls = service.operations.iter().map(|operation| {
            let next = operation.next.as_ref();
            let next = next.and_then(|next| AttestedPayee::of(next.pricing(), Some(next.from), true));
            let present = AttestedPayee::of(operation.pricing(Timestamp::EPOCH), None, false);
            call(operation, present.into_iter().chain(next).collect())
        });
        Self {
            service: service.id,
            version,
            calls: calls.collect(),
            left_at: service.history.removed_at,
        }
    }

    /// Since when the operation's payee and price at this time may be paid.
    pub fn age(&self, operation: &Operation, at: Timestamp) -> PayeeAge {
        let Some(wanted) = AttestedPayee::of(operation.pricing(at), None, false) else {
            // Nothing is paid.
            return PayeeAge::Old;
        };
        let payees = self.payees(operation).filter(|payee| payee.covers(&wanted));
        match payees.map(|payee| payee.from).min() {
            None => PayeeAge::Unattested,
            Some(Some(from)) if at < from => PayeeAge::Young(from),
            Some(_) => PayeeAge::Old,
        }
    }

    /// The payees that this attestation adds to the previous one, or gives another time: all but those of a service that
    /// opens for the first time and that may be paid at once.
    pub fn changes_since<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (&'a AttestedCall, &'a AttestedPayee)> {
        let calls = self.calls.iter();
        let payees = calls.flat_map(|call| call.payees.iter().map(move |payee| (call, payee)));
        payees.filter(move |(call, payee)| match before {
            None => payee.from.is_some(),
            Some(before) => {
                let known = before.calls.iter().filter(|known| {
                    (known.operation, &known.method, &known.endpoint) == (call.operation, &call.method, &call.endpoint)
                });
                let mut known = known.flat_map(|known| &known.payees);
                !known.any(|known| known.is_same(payee) && known.from == payee.from)
            }
        })
    }

    /// Whether it says anything else than the previous one, but for its version.
    pub fn differs_from(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|before| (&before.calls, before.left_at) != (&self.calls, self.left_at))
    }

    fn payees(&self, operation: &Operation) -> impl Iterator<Item = &AttestedPayee> {
        let calls = self.calls.iter().filter(|call| call.is_of(operation));
        calls.flat_map(|call| &call.payees)
    }
}

impl Attesting<'_> {
    /// The attestation of a service as it is in the catalog; `None` for one that was never open.
    pub fn attest(&self, before: Option<&AttestedService>, service: &Service) -> Option<AttestedService> {
        if before.is_none() && !service.was_open() {
            return None;
        }
        let calls = service.operations.iter().map(|operation| {
            let present = AttestedPayee::of(operation.pricing(Timestamp::EPOCH), None, false);
            let next = operation.next.as_ref();
            let next = next.and_then(|next| AttestedPayee::of(next.pricing(), Some(next.from), true));
            let wanted = present.into_iter().chain(next);
            let payees = wanted.map(|wanted| self.payee(before, service, operation, wanted));
            call(operation, payees.collect())
        });
        Some(self.with_calls(before, service.id, calls.collect()))
    }

    /// The attestation of a service that is no longer in the catalog.
    pub fn removed(&self, before: &AttestedService) -> AttestedService {
        self.with_calls(Some(before), before.service, Vec::new())
    }

    fn with_calls(
        &self,
        before: Option<&AttestedService>,
        service: ServiceId,
        calls: Vec<AttestedCall>,
    ) -> AttestedService {
        let is_kept = |known: &AttestedCall| {
            let mut calls = calls.iter();
            calls.any(|call| (&call.method, &call.endpoint) == (&known.method, &known.endpoint))
        };
        let loses = before.is_some_and(|before| !before.calls.iter().all(is_kept));
        AttestedService {
            service,
            version: before.map_or(0, |before| before.version).saturating_add(1),
            left_at: match before {
                _ if loses => Some(self.at),
                Some(before) => before.left_at,
                None => None,
            },
            calls,
        }
    }

    fn payee(
        &self,
        before: Option<&AttestedService>,
        service: &Service,
        operation: &Operation,
        wanted: AttestedPayee,
    ) -> AttestedPayee {
        let known = || before.into_iter().flat_map(|before| before.payees(operation));
        let from = if let Some(same) = known().find(|known| known.is_same(&wanted)) {
            let is_accepted = same.is_next && !wanted.is_next && !same.is_old(self.at);
            if is_accepted {
                same.from.min(self.after(self.accepted_delay))
            } else {
                same.from
            }
        } else if let Some(from) = known()
            .filter(|known| known.covers(&wanted))
            .map(|known| known.from)
            .min()
        {
            from
        } else if opens(before, service) && !self.is_listed_elsewhere(service, operation, &wanted) {
            None
        } else {
            let own = self.after(self.delay);
            match wanted.from {
                // The catalog's time, unless it is too early by more than the stream takes.
                Some(said) => own.map(|own| if own <= said.after(TOLERANCE) { said } else { own }),
                None => own,
            }
        };
        AttestedPayee { from, ..wanted }
    }

    /// The end of this delay; `None` for no delay.
    fn after(&self, delay: Duration) -> Option<Timestamp> {
        (delay.micros() > 0).then(|| self.at.after(delay))
    }

    /// Whether another service lists a call of this operation, and pays somebody else for it or less; or has just lost
    /// one.
    fn is_listed_elsewhere(&self, service: &Service, operation: &Operation, wanted: &AttestedPayee) -> bool {
        let mut others = self.others.iter().filter(|other| other.service != service.id);
        others.any(|other| {
            let has_lost = other.left_at.is_some_and(|left| self.at < left.after(self.delay));
            let mut shared = other
                .calls
                .iter()
                .filter(|call| operation.takes(&call.method) && operation.endpoint.shares_calls_with(&call.endpoint));
            has_lost
                || shared.any(|call| {
                    let mut payees = call.payees.iter();
                    !payees.any(|payee| payee.is_old(self.at) && payee.covers(wanted))
                })
        })
    }
}

fn call(operation: &Operation, payees: Vec<AttestedPayee>) -> AttestedCall {
    AttestedCall {
        operation: operation.id,
        method: operation.method.to_ascii_uppercase(),
        endpoint: operation.endpoint.clone(),
        payees,
    }
}

/// Whether nobody can have the service enabled.
fn opens(before: Option<&AttestedService>, service: &Service) -> bool {
    before.is_none() && !service.history.was_open
}
