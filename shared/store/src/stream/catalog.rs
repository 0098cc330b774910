//! Change events of the catalog's services: availability, payees and maximum prices.

use crate::{
    catalog::table::CatalogTable,
    codec::attribute::Item,
    stream::{
        change::Change,
        fact::{Fact, FactOwner},
    },
};
use purser_domain::{
    Address, Amount, EventData, EventId, EventKind, EventSubject, NextPricing, Operation, Pricing, Result, Service,
    Timestamp,
};
use std::fmt::Display;

impl CatalogTable {
    /// Returns the change events of an update of a service, at the time of the update: the changes that affect agents,
    /// and delayed changes that took effect before the update and that the row no longer contains as delayed.
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
        if let Some(old) = old.as_ref().filter(|old| old.is_open()) {
            facts.extend(over(old, &new, at));
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

impl Fact {
    /// Returns the change events of the service's delayed changes that take effect at `from`, unless they were
    /// withdrawn.
    pub fn in_effect(service: &Service, from: Timestamp) -> Vec<Self> {
        let operations = service.operations.iter().filter(|_| service.is_open());
        let waited = operations.filter_map(|operation| Some((operation, operation.next.as_ref()?)));
        let due = waited.filter(|(_, next)| next.from == from);
        due.filter_map(|(operation, next)| effect(service, operation, next))
            .collect()
    }
}

/// Returns the change event of a delayed change that has taken effect. The id is the same whether the event is derived
/// from the row with the delayed change or from the update that merges the change into the operation.
fn effect(service: &Service, operation: &Operation, next: &NextPricing) -> Option<Fact> {
    // The epoch is before any delayed change takes effect.
    let (past, present) = (operation.pricing(Timestamp::EPOCH), next.pricing());
    let kind = if payee(past) != payee(present) {
        EventKind::ServicePayeeChanged
    } else if past.most() != present.most() {
        EventKind::ServicePriceChanged
    } else {
        return None;
    };
    let data = pricing_data(present).text("operation_id", &operation.slug);
    let id = EventId::derive(kind, &[&service.id, &operation.id, &"from", &next.from.micros()]);
    Some(Fact {
        id,
        ..fact(service, kind, &operation.id, next.from, data)
    })
}

/// Returns the change events of delayed changes that had taken effect when an update merged them into the operations.
fn over(old: &Service, new: &Service, at: Timestamp) -> Vec<Fact> {
    let is_kept = |before: &Operation| {
        let mut operations = new.operations.iter();
        operations.any(|now| now.id == before.id && now.next == before.next)
    };
    let over = old.operations.iter().filter(|before| !is_kept(before));
    let waited = over.filter_map(|before| Some((before, before.next.as_ref()?)));
    let due = waited.filter(|(_, next)| next.from <= at);
    due.filter_map(|(before, next)| effect(old, before, next)).collect()
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
            facts.push(tell(EventKind::ServicePayeeChanged, pricing_data(present)));
        } else if past.most() != present.most() {
            facts.push(tell(EventKind::ServicePriceChanged, pricing_data(present)));
        }
    }
    let waited = before.and_then(|before| before.waiting(at));
    match now.waiting(at) {
        Some(next) if waited != Some(next) => {
            let data = pricing_data(next.pricing()).time("from", next.from);
            facts.push(tell(EventKind::ServiceChangeDelayed, data));
        }
        // A change that a second operator accepted has taken effect and was not withdrawn.
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

fn pricing_data(pricing: Pricing<'_>) -> EventData {
    let most: Option<Amount> = pricing.most();
    EventData::new()
        .optional_text("pay_to", payee(pricing))
        .optional_amount("max_price_units", most)
}

fn fact(service: &Service, kind: EventKind, what: &dyn Display, time: Timestamp, data: EventData) -> Fact {
    Fact {
        id: EventId::derive(kind, &[&service.id, &service.version, what]),
        kind,
        time,
        subject: EventSubject::Service(service.id),
        owner: FactOwner::Nobody,
        data: data.text("slug", &service.slug).number("version", service.version),
    }
}
