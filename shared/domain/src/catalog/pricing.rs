//! The pricing of an operation: the payee and the maximum price of a call, and the time at which an edit takes effect.
//!
//! The editor of the catalog determines where agents' money goes. So a pricing with another payee or a higher price is
//! delayed ([`NextPricing`]) until the delay is over or a second operator accepts it. The pricing is a function of the
//! operation and the time ([`Operation::pricing`]): no job has to run at that time.
//!
//! The rule, which only [`Edit::apply`] implements:
//!
//! - A pricing takes effect at once if the same operation (id, method and address) already pays the same payee at least
//!   as much, or if it allows no payment. Every other pricing is delayed. So an operation that is removed and added
//!   again, moved, listed a second time or given another id counts as new, and is delayed like a changed one.
//! - A service that opens for the first time takes effect at once, since no agent has enabled it. There are two
//!   exceptions. A call is delayed if another service that is or was open lists it, and does not pay the same payee as
//!   much. The whole service is delayed if another such service lost a call within the delay.
//! - A delayed pricing that is written again keeps its time. Any other pricing replaces it.
//! - An edit in a browser may have to wait for a second operator instead of the delay ([`Edit::awaits_second`]).

use crate::{
    Amount, CatalogPayment, Duration, FIXED_PRICE, Network, Operation, OperationUuid, OperatorName, Payable, Service,
    Timestamp,
};

/// The payee of a call and its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pricing<'a> {
    /// As [`Operation::price_model`].
    pub price_model: &'a str,
    /// As [`Operation::max_price`].
    pub max_price: Option<Amount>,
    /// As [`Operation::payment`].
    pub payment: Option<&'a CatalogPayment>,
}

/// The delayed pricing of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPricing {
    /// As [`Operation::price_model`].
    pub price_model: String,
    /// As [`Operation::max_price`].
    pub max_price: Option<Amount>,
    /// As [`Operation::payment`]; a pricing without a payment is not delayed.
    pub payment: CatalogPayment,
    /// The time from which it is in effect; [`Timestamp::MAX`] if it waits for a second operator without a time limit.
    pub from: Timestamp,
    /// The operator who requested it.
    pub by: OperatorName,
}

/// The parts of a service's history that the rule needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingHistory {
    /// Whether a service that is not open was open before.
    pub was_open: bool,
    /// The time at which a method and address were last removed from the service, since it was open.
    pub removed_at: Option<Timestamp>,
}

impl Pricing<'_> {
    /// The maximum price of a call.
    pub fn most(self) -> Option<Amount> {
        let fixed = self.payment.filter(|_| self.price_model == FIXED_PRICE);
        self.max_price.or(fixed.map(|payment| payment.amount))
    }

    /// The allowed payment and its network; `None` if no payment is allowed.
    fn payable(self) -> Option<(Network, Payable)> {
        let payment = self.payment?;
        let payable = Payable {
            pay_to: payment.pay_to,
            most: self.most()?,
        };
        Some((payment.network, payable))
    }

    /// Whether it allows every payment that `other` allows.
    fn covers(self, other: Self) -> bool {
        match (self.payable(), other.payable()) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some((network, own)), Some((other_network, other))) => {
                network == other_network && own.pay_to == other.pay_to && other.most <= own.most
            }
        }
    }
}

impl NextPricing {
    /// The delayed pricing as a [`Pricing`].
    pub fn pricing(&self) -> Pricing<'_> {
        Pricing {
            price_model: &self.price_model,
            max_price: self.max_price,
            payment: Some(&self.payment),
        }
    }

    /// The time from which it is in effect; `None` if it only takes effect once a second operator accepts it.
    pub fn known_from(&self) -> Option<Timestamp> {
        Some(self.from).filter(|from| *from < Timestamp::MAX)
    }
}

impl Operation {
    /// The pricing of a call at this time.
    pub fn pricing(&self, at: Timestamp) -> Pricing<'_> {
        match &self.next {
            Some(next) if next.from <= at => next.pricing(),
            Some(_) | None => Pricing {
                price_model: &self.price_model,
                max_price: self.max_price,
                payment: self.payment.as_ref(),
            },
        }
    }

    /// The pricing that is still delayed at this time.
    pub fn waiting(&self, at: Timestamp) -> Option<&NextPricing> {
        self.next.as_ref().filter(|next| at < next.from)
    }

    /// The operation at this time: a pricing that has taken effect replaces its fields.
    #[must_use]
    pub fn at(&self, at: Timestamp) -> Self {
        let mut operation = self.clone();
        if self.waiting(at).is_none()
            && let Some(next) = operation.next.take()
        {
            operation.price_model = next.price_model;
            operation.max_price = next.max_price;
            operation.payment = Some(next.payment);
        }
        operation
    }

    /// Whether it is the same operation, with the same method and address.
    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.target() == other.target()
    }
}

impl Service {
    /// The service at this time.
    #[must_use]
    pub fn at(&self, at: Timestamp) -> Self {
        Self {
            operations: self.operations.iter().map(|operation| operation.at(at)).collect(),
            ..self.clone()
        }
    }

    /// Whether agents may have it enabled, because it is or was open.
    pub fn was_open(&self) -> bool {
        self.is_open() || self.history.was_open
    }

    /// The first time after this one at which a pricing changes.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let operations = self.operations.iter();
        operations.filter_map(|one| Some(one.waiting(at)?.from)).min()
    }

    /// The service with an operation's delayed pricing in effect, accepted by an operator who did not request it.
    pub fn accepted(&self, operation: OperationUuid, by: &OperatorName, at: Timestamp) -> Result<Self, NotAccepted> {
        let mut service = self.at(at);
        let accepted = service.operations.iter_mut().find(|one| one.id == operation);
        let accepted = accepted.ok_or(NotAccepted::NothingWaits)?;
        let next = accepted.next.as_ref().ok_or(NotAccepted::NothingWaits)?;
        if next.by.is_same_operator(by) {
            return Err(NotAccepted::SameOperator);
        }
        *accepted = accepted.at(next.from);
        Ok(service)
    }
}

/// The reason that a pricing was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// The operation has no delayed pricing.
    NothingWaits,
    /// The accepting operator requested the pricing, and so can't be the second operator.
    SameOperator,
}

/// An operator's edit of a service.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// The editing operator.
    pub by: &'a OperatorName,
    /// The time of the edit.
    pub at: Timestamp,
    /// The delay of a new pricing.
    pub delay: Duration,
    /// Whether a new pricing waits for a second operator instead, without a time limit.
    pub awaits_second: bool,
    /// The catalog's services, needed for a service that [opens for the first time](Edit::opens); without them the
    /// whole service is delayed.
    pub catalog: Option<&'a [Service]>,
}

impl Edit<'_> {
    /// Whether agents may have the service enabled after this edit, but not before.
    pub fn opens(before: Option<&Service>, written: &Service) -> bool {
        written.is_open() && !before.is_some_and(Service::was_open)
    }

    /// The service to store, where `before` is the stored one. The next pricing of a written operation is stored too.
    pub fn apply(self, before: Option<&Service>, written: Service) -> Service {
        let was_open = before.is_some_and(Service::was_open);
        let opens = Self::opens(before, &written);
        let before = before.map(|before| before.at(self.at));
        let known = before.as_ref().map(|before| before.operations.as_slice());
        let known = known.unwrap_or_default();
        let judged = written.operations.iter().map(|operation| {
            let same = known.iter().find(|known| known.is_same(operation));
            let wanted = operation.pricing(Timestamp::MAX);
            let at_once = if was_open {
                same.is_some_and(|same| same.pricing(self.at).covers(wanted))
            } else {
                !opens || !self.is_listed_elsewhere(&written, operation)
            };
            let delays = self.awaits_second || self.delay.micros() != 0;
            if at_once || wanted.payable().is_none() || !delays {
                return operation.at(Timestamp::MAX);
            }
            let same = same.filter(|_| was_open);
            let waiting = same.and_then(|same| same.next.clone());
            // Writing a pricing that waits for a second operator requests it anew, with a delay. An edit that only
            // keeps it does not.
            let keeps =
                |next: &NextPricing| operation.next.is_some() || self.awaits_second || next.known_from().is_some();
            let next = waiting.filter(|next| next.pricing() == wanted && keeps(next));
            let next = next.or_else(|| self.next(wanted));
            let present = same.map(|same| same.pricing(self.at));
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
        let targets = || operations.iter().map(Operation::target);
        let loses = was_open
            && known
                .iter()
                .any(|known| !targets().any(|target| target == known.target()));
        let history = ListingHistory {
            was_open: was_open && !written.is_open(),
            removed_at: match &before {
                _ if loses => Some(self.at),
                Some(before) => before.history.removed_at,
                None => None,
            },
        };
        Service {
            operations,
            history,
            ..written
        }
    }

    fn next(self, wanted: Pricing<'_>) -> Option<NextPricing> {
        Some(NextPricing {
            price_model: wanted.price_model.to_owned(),
            max_price: wanted.max_price,
            payment: wanted.payment?.clone(),
            from: if self.awaits_second {
                Timestamp::MAX
            } else {
                self.at.after(self.delay)
            },
            by: self.by.clone(),
        })
    }

    /// Whether another service that agents may have enabled lists a call of this operation with another payee or a
    /// lower price, or recently lost a call.
    fn is_listed_elsewhere(self, service: &Service, operation: &Operation) -> bool {
        let Some(catalog) = self.catalog else { return true };
        let mut others = catalog
            .iter()
            .filter(|other| other.id != service.id && other.was_open());
        others.any(|other| {
            let removed_at = other.history.removed_at;
            removed_at.is_some_and(|removed| self.at < removed.after(self.delay))
                || other.operations.iter().any(|other| {
                    operation.takes(&other.method)
                        && operation.endpoint.shares_calls_with(&other.endpoint)
                        && !other.pricing(self.at).covers(operation.pricing(Timestamp::MAX))
                })
        })
    }
}
