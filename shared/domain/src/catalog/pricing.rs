//! An operation's pricing: whom a call pays, and how much at most; and when an edit of it takes effect.
//!
//! Whoever edits the catalog says where agents' money goes. So a pricing that pays somebody else than before, or more,
//! waits ([`NextPricing`]) until the delay is over, or a second operator accepts it. What is paid is a function of the
//! operation and the time ([`Operation::pricing`]): nothing has to happen when the time comes.
//!
//! The rule, which [`Edit::apply`] alone decides by:
//!
//! - A pricing takes effect at once where the same operation (id, method and address) pays the same payee at least as
//!   much now, or where it allows no payment. Everything else waits. So what was removed and is added again, moved, listed
//!   a second time or under another id is new, and waits as long as what is changed.
//! - A service that opens for the first time is paid at once, since no agent has it enabled. Except calls that another
//!   service lists that was ever open, and for which that does not pay the same payee as much; and all of it, if within
//!   the delay such a service was left without a call.
//! - A pricing that is written again while it waits keeps its time. Any other ends what waited.

use crate::{
    Amount, CatalogPayment, Duration, FIXED_PRICE, Network, Operation, OperationUuid, OperatorName, Payable, Service,
    Timestamp,
};

/// Whom a call pays, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pricing<'a> {
    /// As [`Operation::price_model`].
    pub price_model: &'a str,
    /// As [`Operation::max_price`].
    pub max_price: Option<Amount>,
    /// As [`Operation::payment`].
    pub payment: Option<&'a CatalogPayment>,
}

/// The pricing that an operation will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPricing {
    /// As [`Operation::price_model`].
    pub price_model: String,
    /// As [`Operation::max_price`].
    pub max_price: Option<Amount>,
    /// As [`Operation::payment`]: without one there is nothing to wait for.
    pub payment: CatalogPayment,
    /// The first instant at which a call pays by it.
    pub from: Timestamp,
    /// Who asked for it.
    pub by: OperatorName,
}

/// What is kept of a service's past for the rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingHistory {
    /// Whether a service that is not open was so before.
    pub was_open: bool,
    /// When a method and address were last taken out of it, since it was open.
    pub removed_at: Option<Timestamp>,
}

impl Pricing<'_> {
    /// What a call may cost at most.
    pub fn most(self) -> Option<Amount> {
        let fixed = self.payment.filter(|_| self.price_model == FIXED_PRICE);
        self.max_price.or(fixed.map(|payment| payment.amount))
    }

    /// What it allows to be paid, and on which network; `None` for nothing.
    fn payable(self) -> Option<(Network, Payable)> {
        let payment = self.payment?;
        let payable = Payable {
            pay_to: payment.pay_to,
            most: self.most()?,
        };
        Some((payment.network, payable))
    }

    /// Whether all that the other allows may be paid by this too.
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
    /// The pricing.
    pub fn pricing(&self) -> Pricing<'_> {
        Pricing {
            price_model: &self.price_model,
            max_price: self.max_price,
            payment: Some(&self.payment),
        }
    }
}

impl Operation {
    /// Whom a call at this time pays, and how much.
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

    /// The pricing that waits at this time.
    pub fn waiting(&self, at: Timestamp) -> Option<&NextPricing> {
        self.next.as_ref().filter(|next| at < next.from)
    }

    /// The operation as it is at this time: with what has taken effect as its own.
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

    /// Whether it is the same operation, called in the same way.
    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.target() == other.target()
    }
}

impl Service {
    /// The service as it is at this time.
    #[must_use]
    pub fn at(&self, at: Timestamp) -> Self {
        Self {
            operations: self.operations.iter().map(|operation| operation.at(at)).collect(),
            ..self.clone()
        }
    }

    /// Whether agents may have it enabled: it is open, or was.
    pub fn was_open(&self) -> bool {
        self.is_open() || self.history.was_open
    }

    /// The first instant after this time at which a pricing changes.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let operations = self.operations.iter();
        operations.filter_map(|one| Some(one.waiting(at)?.from)).min()
    }

    /// The service with an operation's waiting pricing in effect, which an operator accepts who did not ask for it.
    pub fn accepted(&self, operation: OperationUuid, by: &OperatorName, at: Timestamp) -> Result<Self, NotAccepted> {
        let mut service = self.at(at);
        let accepted = service.operations.iter_mut().find(|one| one.id == operation);
        let accepted = accepted.ok_or(NotAccepted::NothingWaits)?;
        let next = accepted.next.as_ref().ok_or(NotAccepted::NothingWaits)?;
        if next.by == *by {
            return Err(NotAccepted::SameOperator);
        }
        *accepted = accepted.at(next.from);
        Ok(service)
    }
}

/// Why a pricing was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// None waits there.
    NothingWaits,
    /// Who asked for it is no second operator.
    SameOperator,
}

/// An operator's edit of a service.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// Who edits.
    pub by: &'a OperatorName,
    /// When.
    pub at: Timestamp,
    /// How long a pricing waits.
    pub delay: Duration,
    /// The catalog's services, for a service that [opens for the first time](Edit::opens); without them all of it waits.
    pub catalog: Option<&'a [Service]>,
}

impl Edit<'_> {
    /// Whether agents may have the service enabled from this edit on, and not before.
    pub fn opens(before: Option<&Service>, written: &Service) -> bool {
        written.is_open() && !before.is_some_and(Service::was_open)
    }

    /// The service as it is stored when one that is stored as `before` is written anew. An operation that is written
    /// with its next pricing is written with that.
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
            if at_once || wanted.payable().is_none() || self.delay.micros() == 0 {
                return operation.at(Timestamp::MAX);
            }
            let same = same.filter(|_| was_open);
            let waiting = same.and_then(|same| same.next.clone());
            let next = waiting.filter(|next| next.pricing() == wanted);
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
            from: self.at.after(self.delay),
            by: self.by.clone(),
        })
    }

    /// Whether another service that agents may have enabled lists a call of this operation, and pays somebody else for
    /// it or less; or has just ceased to list one.
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
