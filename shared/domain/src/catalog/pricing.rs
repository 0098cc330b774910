//! The pricing of an operation: the payee and the maximum price of a call, and the time from which a change takes
//! effect.
//!
//! Whoever updates the catalog determines where agents' money goes. Therefore a new payee or a higher price is delayed
//! ([`NextPricing`]) until the delay is over or a second operator accepts the change. The pricing is a function of the
//! operation and the time ([`Operation::pricing_at`]), so no job has to run when the delay ends.
//!
//! The rules, which only [`Edit::apply`] implements:
//! - A pricing takes effect at once if it allows no payment, or if the same operation (id, method and address) already
//!   pays the same payee at least as much. Every other pricing is delayed. Therefore an operation that is removed and
//!   added again, moved, listed twice or given a new id counts as new and is delayed.
//! - A service that opens for the first time takes effect at once, because no agent has enabled the service. There are
//!   two exceptions. A call is delayed if another service that is or was open lists the same call and does not pay the
//!   same payee as much. The whole service is delayed if another service that is or was open lost a call within the
//!   delay.
//! - If a delayed pricing is written again unchanged, its start time stays the same. Any other pricing replaces the
//!   delayed pricing.
//! - A change in a browser may have to wait for a second operator instead of the delay ([`Edit::awaits_second`]).

use crate::{
    Amount, CatalogPayment, Duration, FIXED_PRICE, Network, Operation, OperationUuid, OperatorName, Payable, Service,
    Timestamp,
};

/// The payee and the price of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pricing<'a> {
    /// See [`Operation::price_model`].
    pub price_model: &'a str,
    /// See [`Operation::max_price`].
    pub max_price: Option<Amount>,
    /// See [`Operation::payment`].
    pub payment: Option<&'a CatalogPayment>,
}

/// An operation's delayed pricing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPricing {
    /// See [`Operation::price_model`].
    pub price_model: String,
    /// See [`Operation::max_price`].
    pub max_price: Option<Amount>,
    /// See [`Operation::payment`]. A delayed pricing always has a payment, because an update that removes the payment
    /// takes effect at once.
    pub payment: CatalogPayment,
    /// The time from which the pricing is in effect. [`Timestamp::MAX`] means that the pricing has no start time and is
    /// in effect only after a second operator accepts the pricing.
    pub from: Timestamp,
    /// The operator who requested the pricing.
    pub by: OperatorName,
}

/// The past of a service, which decides whether a new price or payee takes effect only after a delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingHistory {
    /// Whether the service was open in the past: agents could enable and pay the service ([`Service::is_open`]). This
    /// field is used only while the service is not open.
    pub was_open: bool,
    /// The time at which an update last removed a call from the service: an operation, or an operation's method or
    /// address. Removals before agents could first enable the service do not count.
    pub removed_at: Option<Timestamp>,
}

impl Pricing<'_> {
    /// Returns the maximum price of a call; `None` if the catalog has no maximum and the price is not fixed.
    pub fn max_price(self) -> Option<Amount> {
        let fixed = self.payment.filter(|_| self.price_model == FIXED_PRICE);
        self.max_price.or(fixed.map(|payment| payment.amount))
    }

    /// Returns the allowed payment and its network; `None` if no payment is allowed.
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

    /// Returns the time from which the pricing is in effect; `None` if only a second operator can put it into effect.
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

    /// Returns the next pricing if it is still delayed at this time.
    pub fn delayed_pricing(&self, at: Timestamp) -> Option<&NextPricing> {
        self.next.as_ref().filter(|next| at < next.from)
    }

    /// Returns the operation at this time. If a delayed pricing has taken effect, it replaces the operation's own
    /// pricing.
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

    /// Returns whether both are the same operation, with the same method and address.
    fn is_same_operation(&self, other: &Self) -> bool {
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

    /// Returns whether agents may have the service enabled, because the service is or was open.
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

    /// Puts an operation's delayed pricing into effect. Fails if `operator` is the operator who requested the pricing.
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

/// Why a pricing was not accepted.
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
    /// The time of the update.
    pub at: Timestamp,
    /// How long a changed price or payee waits before the change takes effect.
    pub delay: Duration,
    /// Whether a new pricing takes effect only when a second operator accepts the pricing, without a time limit.
    /// Otherwise, a new pricing takes effect after `delay`.
    pub awaits_second: bool,
    /// All services in the catalog. The catalog is needed if the update [makes the service available to agents for the
    /// first time](Edit::is_first_service_opening). Without the catalog, the pricing of every operation is delayed.
    pub catalog: Option<&'a [Service]>,
}

impl Edit<'_> {
    /// Returns whether this update opens a service that was never open before, so that agents can enable the service
    /// for the first time.
    pub fn is_first_service_opening(before: Option<&Service>, update: &Service) -> bool {
        update.is_open() && !before.is_some_and(Service::was_ever_open)
    }

    /// Returns the service to store. `before` is the stored service. A delayed pricing in `update` is also stored.
    pub fn apply(self, before: Option<&Service>, update: Service) -> Service {
        let was_open = before.is_some_and(Service::was_ever_open);
        let opens = Self::is_first_service_opening(before, &update);
        let before = before.map(|before| before.at_time(self.at));
        let known = before.as_ref().map(|before| before.operations.as_slice());
        let known = known.unwrap_or_default();
        let judged = update.operations.iter().map(|operation| {
            let same = known.iter().find(|known| known.is_same_operation(operation));
            let wanted = operation.pricing_at(Timestamp::MAX);
            let at_once = if was_open {
                same.is_some_and(|same| same.pricing_at(self.at).covers(wanted))
            } else {
                !opens || !self.is_listed_elsewhere(&update, operation)
            };
            let delays = self.awaits_second || self.delay.micros() != 0;
            if at_once || wanted.allowed_payment().is_none() || !delays {
                return operation.at_time(Timestamp::MAX);
            }
            let same = same.filter(|_| was_open);
            let waiting = same.and_then(|same| same.next.clone());
            // The pricing in `waiting` may wait for a second operator without a time limit. If an operator requests the
            // same pricing again, the pricing takes effect after `delay` and no longer waits for a second operator. An
            // update whose operation already has the pricing in `next` only repeats the stored state and is not a new
            // request.
            let keeps =
                |next: &NextPricing| operation.next.is_some() || self.awaits_second || next.effective_from().is_some();
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
            from: if self.awaits_second {
                Timestamp::MAX
            } else {
                self.at.after(self.delay)
            },
            by: self.by.clone(),
        })
    }

    /// Returns whether another service lists a call of this operation with a different payee or a lower price, or had a
    /// call removed within the last `delay`. Only services that are or were available to agents count. Returns true if
    /// the catalog is unknown.
    fn is_listed_elsewhere(self, service: &Service, operation: &Operation) -> bool {
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
