//! The pricing of an operation: the payee and the maximum price of a call, and when a change takes effect.
//!
//! Whoever updates the catalog determines where agents' money goes. A new payee or a higher price therefore waits
//! ([`NextPricing`]) for a delay or for a second operator. The pricing is a function of the time, so no job runs when
//! the delay ends.
//!
//! The rules of [`Edit::apply`]:
//! - A pricing takes effect immediately if it allows no payment, or if the same operation (id, method and address)
//!   already pays the same payee at least as much. An operation that is removed and added again, moved, listed twice or
//!   given a new id is therefore new.
//! - A service that opens for the first time has no delay, unless another service lists the same calls with
//!   another payee or network, a lower price or no payment, or recently stopped listing a call.
//! - Every other pricing waits. A pricing that is requested again unchanged keeps the start time.

use crate::{
    Amount, CatalogPayment, Duration, FIXED_PRICE, Network, Operation, OperationUuid, OperatorName, Payable, Service,
    Timestamp,
};

/// The payee and the price of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pricing<'a> {
    /// The price model, for example [`FIXED_PRICE`].
    pub price_model: &'a str,
    /// The maximum price of a call ([`Operation::max_price`]); `None` if the catalog has no maximum price.
    pub max_price: Option<Amount>,
    /// The payment in the catalog ([`Operation::payment`]); `None` if the catalog has no payment.
    pub payment: Option<&'a CatalogPayment>,
}

/// The pricing that an operation will have after a delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPricing {
    /// The price model from the time `from` on, for example [`FIXED_PRICE`].
    pub price_model: String,
    /// The maximum price of a call from the time `from` on; `None` if the catalog has no maximum price.
    pub max_price: Option<Amount>,
    /// The payment from the time `from` on. Removing a payment needs no delay.
    pub payment: CatalogPayment,
    /// The time from which the pricing is in effect. [`Timestamp::MAX`] means that the pricing waits for a second
    /// operator.
    pub from: Timestamp,
    /// The operator who requested the pricing.
    pub by: OperatorName,
}

/// A service's history, which decides whether a new price or payee is delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingHistory {
    /// Whether agents could enable the service in the past. Used only while the service is not open
    /// ([`Service::is_open`]).
    pub was_open: bool,
    /// The time at which an update last removed an operation, method or address from a service that agents could
    /// enable.
    pub removed_at: Option<Timestamp>,
}

impl Pricing<'_> {
    /// Returns the maximum price of a call; `None` if neither a maximum nor a fixed price is set.
    pub fn max_price(self) -> Option<Amount> {
        let fixed = self.payment.filter(|_| self.price_model == FIXED_PRICE);
        self.max_price.or(fixed.map(|payment| payment.amount))
    }

    /// Returns the network and the payment that this pricing allows, if any.
    fn allowed_payment(self) -> Option<(Network, Payable)> {
        let payment = self.payment?;
        let payable = Payable {
            pay_to: payment.pay_to,
            most: self.max_price()?,
        };
        Some((payment.network, payable))
    }

    /// Returns whether this pricing allows every payment that `other` allows.
    fn covers(self, other: Self) -> bool {
        match (self.allowed_payment(), other.allowed_payment()) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some((network, own)), Some((other_network, other))) => {
                network == other_network && own.pay_to == other.pay_to && other.most <= own.most
            }
        }
    }
}

impl NextPricing {
    /// Returns the delayed pricing as a [`Pricing`].
    pub fn as_pricing(&self) -> Pricing<'_> {
        Pricing {
            price_model: &self.price_model,
            max_price: self.max_price,
            payment: Some(&self.payment),
        }
    }

    /// Returns the time from which the pricing is in effect; `None` if it needs a second operator.
    pub fn effective_from(&self) -> Option<Timestamp> {
        Some(self.from).filter(|from| *from < Timestamp::MAX)
    }
}

impl Operation {
    /// Returns the pricing of a call at this time.
    pub fn pricing_at(&self, at: Timestamp) -> Pricing<'_> {
        match &self.next {
            Some(next) if next.from <= at => next.as_pricing(),
            Some(_) | None => Pricing {
                price_model: &self.price_model,
                max_price: self.max_price,
                payment: self.payment.as_ref(),
            },
        }
    }

    /// Returns the delayed pricing that is not in effect yet at `at`.
    pub fn delayed_pricing(&self, at: Timestamp) -> Option<&NextPricing> {
        self.next.as_ref().filter(|next| at < next.from)
    }

    /// Returns the operation with the pricing that is in effect at this time.
    #[must_use]
    pub fn at_time(&self, at: Timestamp) -> Self {
        let mut operation = self.clone();
        if self.delayed_pricing(at).is_none()
            && let Some(next) = operation.next.take()
        {
            operation.price_model = next.price_model;
            operation.max_price = next.max_price;
            operation.payment = Some(next.payment);
        }
        operation
    }

    fn has_same_id_and_call(&self, other: &Self) -> bool {
        self.id == other.id && self.probe_fingerprint() == other.probe_fingerprint()
    }
}

impl Service {
    /// Returns the service at this time. See [`Operation::at_time`].
    #[must_use]
    pub fn at_time(&self, at: Timestamp) -> Self {
        Self {
            operations: self.operations.iter().map(|operation| operation.at_time(at)).collect(),
            ..self.clone()
        }
    }

    /// Returns whether agents may have enabled the service.
    pub fn was_ever_open(&self) -> bool {
        self.is_open() || self.history.was_open
    }

    /// Returns the earliest time after `at` at which a pricing changes.
    pub fn next_pricing_change(&self, at: Timestamp) -> Option<Timestamp> {
        let operations = self.operations.iter();
        operations
            .filter_map(|operation| Some(operation.delayed_pricing(at)?.from))
            .min()
    }

    /// Puts an operation's delayed pricing into effect. Fails if `operator` requested it.
    pub fn accept_delayed_pricing(
        &self,
        operation: OperationUuid,
        operator: &OperatorName,
        at: Timestamp,
    ) -> Result<Self, NotAccepted> {
        let mut service = self.at_time(at);
        let accepted = service
            .operations
            .iter_mut()
            .find(|listed_operation| listed_operation.id == operation);
        let accepted = accepted.ok_or(NotAccepted::NothingWaits)?;
        let next = accepted.next.as_ref().ok_or(NotAccepted::NothingWaits)?;
        if next.by.is_same_operator(operator) {
            return Err(NotAccepted::SameOperator);
        }
        *accepted = accepted.at_time(next.from);
        Ok(service)
    }
}

/// Why an operator could not accept a delayed pricing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// The operation has no delayed pricing.
    NothingWaits,
    /// The accepting operator is the operator who requested the pricing.
    SameOperator,
}

/// An operator's update of a service.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The operator who updates the service.
    pub by: &'a OperatorName,
    /// The time at which the operator updates the service.
    pub at: Timestamp,
    /// How long a changed price or payee waits before the change takes effect.
    pub delay: Duration,
    /// Whether a new pricing waits for a second operator instead of `delay`.
    pub awaits_second_operator: bool,
    /// All services, which are needed if the update [first opens the service](Edit::opens_service_first_time). Without
    /// them, every pricing is delayed.
    pub catalog: Option<&'a [Service]>,
}

impl Edit<'_> {
    /// Returns whether agents can enable the service for the first time after this update.
    pub fn opens_service_first_time(before: Option<&Service>, update: &Service) -> bool {
        update.is_open() && !before.is_some_and(Service::was_ever_open)
    }

    /// Returns the service to store after an update of the stored service `before`.
    pub fn apply(self, before: Option<&Service>, update: Service) -> Service {
        let was_open = before.is_some_and(Service::was_ever_open);
        let opens = Self::opens_service_first_time(before, &update);
        let before = before.map(|before| before.at_time(self.at));
        let known = before.as_ref().map(|before| before.operations.as_slice());
        let known = known.unwrap_or_default();
        let judged = update.operations.iter().map(|operation| {
            let same = known.iter().find(|known| known.has_same_id_and_call(operation));
            let wanted = operation.pricing_at(Timestamp::MAX);
            let at_once = if was_open {
                same.is_some_and(|same| same.pricing_at(self.at).covers(wanted))
            } else {
                !opens || !self.may_conflict_with_other_services(&update, operation)
            };
            let delays = self.awaits_second_operator || self.delay.micros() != 0;
            if at_once || wanted.allowed_payment().is_none() || !delays {
                return operation.at_time(Timestamp::MAX);
            }
            let same = same.filter(|_| was_open);
            let waiting = same.and_then(|same| same.next.clone());
            // The stored delayed pricing keeps the start time, unless the pricing waits for a second operator
            // and this update requires no second operator. An update that already contains `next` is not a
            // new request.
            let keeps = |next: &NextPricing| {
                operation.next.is_some() || self.awaits_second_operator || next.effective_from().is_some()
            };
            let next = waiting.filter(|next| next.as_pricing() == wanted && keeps(next));
            let next = next.or_else(|| self.next_pricing_after_delay(wanted));
            let present = same.map(|same| same.pricing_at(self.at));
            Operation {
                price_model: present
                    .map_or(wanted.price_model, |present| present.price_model)
                    .to_owned(),
                max_price: present.and_then(|present| present.max_price),
                payment: present.and_then(|present| present.payment).cloned(),
                next,
                ..operation.clone()
            }
        });
        let operations: Vec<Operation> = judged.collect();
        let targets = || operations.iter().map(Operation::probe_fingerprint);
        let loses = was_open
            && known
                .iter()
                .any(|known| !targets().any(|target| target == known.probe_fingerprint()));
        let history = ListingHistory {
            was_open: was_open && !update.is_open(),
            removed_at: match &before {
                _ if loses => Some(self.at),
                Some(before) => before.history.removed_at,
                None => None,
            },
        };
        Service {
            operations,
            history,
            ..update
        }
    }

    fn next_pricing_after_delay(self, pricing: Pricing<'_>) -> Option<NextPricing> {
        Some(NextPricing {
            price_model: pricing.price_model.to_owned(),
            max_price: pricing.max_price,
            payment: pricing.payment?.clone(),
            from: if self.awaits_second_operator {
                Timestamp::MAX
            } else {
                self.at.after(self.delay)
            },
            by: self.by.clone(),
        })
    }

    /// Returns whether another service lists the same call with another payee or network, a lower price or no
    /// payment, or stopped listing a call within `delay`. Only services that agents could ever enable count.
    /// Also returns `true` if the catalog is unknown.
    fn may_conflict_with_other_services(self, service: &Service, operation: &Operation) -> bool {
        let Some(catalog) = self.catalog else { return true };
        let mut others = catalog
            .iter()
            .filter(|other| other.id != service.id && other.was_ever_open());
        others.any(|other| {
            let removed_at = other.history.removed_at;
            removed_at.is_some_and(|removed| self.at < removed.after(self.delay))
                || other.operations.iter().any(|other| {
                    operation.accepts_method(&other.method)
                        && operation.endpoint.overlaps(&other.endpoint)
                        && !other.pricing_at(self.at).covers(operation.pricing_at(Timestamp::MAX))
                })
        })
    }
}
