//! Services of the catalog: what agents may buy, whom that pays, and how much at most.

use crate::{
    catalog::table::CatalogTable,
    codec::attribute::Item,
    stream::{
        change::Change,
        fact::{Fact, FactOwner},
    },
};
use purser_domain::{
    Address, Amount, EventData, EventId, EventKind, EventSubject, Operation, Pricing, Result, Service, Timestamp,
};
use std::fmt::Display;

impl CatalogTable {
    /// What an edit of a service changed for agents, at its time. What waits takes effect without a write, so only that
    /// it waits is told.
    pub(crate) fn facts_of_service(&self, change: &Change) -> Result<Vec<Fact>> {
        let read = |image: &Item| self.read_service(image);
        let Some(new) = change.new.as_ref().map(read).transpose()? else {
            return Ok(Vec::new());
        };
        let old = change.old.as_ref().map(read).transpose()?;
        let at = change.at;
        let mut facts = Vec::new();
        let was_open = old.as_ref().is_some_and(Service::is_open);
        match (was_open, new.is_open()) {
            (false, true) => facts.push(fact(&new, EventKind::ServiceOpened, &"", at, EventData::new())),
            (true, false) => facts.push(fact(&new, EventKind::ServiceClosed, &"", at, EventData::new())),
            (false, false) | (true, true) => {}
        }
        if !new.is_open() {
            return Ok(facts);
        }
        for operation in &new.operations {
            let before = old.as_ref().and_then(|old| {
                let mut operations = old.operations.iter();
                operations.find(|before| before.id == operation.id)
            });
            facts.extend(of_operation(&new, before, operation, at));
        }
        Ok(facts)
    }
}

fn of_operation(service: &Service, before: Option<&Operation>, now: &Operation, at: Timestamp) -> Vec<Fact> {
    let tell = |kind, data: EventData| {
        let data = data.text("operation_id", &now.slug);
        fact(service, kind, &now.id, at, data)
    };
    let mut facts = Vec::new();
    let present = now.pricing(at);
    if let Some(before) = before {
        let past = before.pricing(at);
        if payee(past) != payee(present) {
            facts.push(tell(EventKind::ServicePayeeChanged, priced(present)));
        } else if past.most() != present.most() {
            facts.push(tell(EventKind::ServicePriceChanged, priced(present)));
        }
    }
    let waited = before.and_then(|before| before.waiting(at));
    match now.waiting(at) {
        Some(next) if waited != Some(next) => {
            let data = priced(next.pricing()).time("from", next.from);
            facts.push(tell(EventKind::ServiceChangeDelayed, data));
        }
        // A second operator may have accepted it: then it is in effect.
        None if waited.is_some_and(|waited| waited.pricing() != present) => {
            facts.push(tell(EventKind::ServiceChangeWithdrawn, EventData::new()));
        }
        Some(_) | None => {}
    }
    facts
}

fn payee(pricing: Pricing<'_>) -> Option<Address> {
    pricing.payment.map(|payment| payment.pay_to)
}

fn priced(pricing: Pricing<'_>) -> EventData {
    let most: Option<Amount> = pricing.most();
    EventData::new()
        .optional_text("pay_to", payee(pricing))
        .optional_amount("max_price_units", most)
}

fn fact(service: &Service, kind: EventKind, what: &dyn Display, time: Timestamp, data: EventData) -> Fact {
    Fact {
        id: EventId::of(kind, &[&service.id, &service.version, what]),
        kind,
        time,
        subject: EventSubject::Service(service.id),
        owner: FactOwner::Nobody,
        data: data.text("slug", &service.slug).number("version", service.version),
    }
}
