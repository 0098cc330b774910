//! Change events of catalog services: availability, payees and maximum prices.

use crate::{
    catalog::table::CatalogTable,
    codec::attribute::Item,
    stream::{
        change::Change,
        fact::{ChangeEvent, ChangeEventOwner},
    },
};
use purser_domain::{
    Address, Amount, EventData, EventId, EventKind, EventSubject, NextPricing, Operation, Pricing, Result, Service,
    Timestamp,
};
use std::fmt::Display;

impl CatalogTable {
    /// Returns one change event for each change of a service that affects agents, including delayed changes that took
    /// effect before the update.
    pub(crate) fn service_change_events(&self, change: &Change) -> Result<Vec<ChangeEvent>> {
        let read = |image: &Item| self.read_service(image);
        let Some(new) = change.new.as_ref().map(read).transpose()? else {
            return Ok(Vec::new());
        };
        let old = change.old.as_ref().map(read).transpose()?;
        let at = change.at;
        let mut changes = Vec::new();
        let was_open = old.as_ref().is_some_and(Service::is_open);
        match (was_open, new.is_open()) {
            (false, true) => changes.push(service_event(&new, EventKind::ServiceOpened, &"", at, EventData::new())),
            (true, false) => changes.push(service_event(&new, EventKind::ServiceClosed, &"", at, EventData::new())),
            (false, false) | (true, true) => {}
        }
        if !new.is_open() {
            return Ok(changes);
        }
        if let Some(old) = old.as_ref().filter(|old| old.is_open()) {
            changes.extend(effective_change_events(old, &new, at));
        }
        for operation in &new.operations {
            let before = old.as_ref().and_then(|old| {
                let mut operations = old.operations.iter();
                operations.find(|before| before.id == operation.id)
            });
            changes.extend(operation_change_events(&new, before, operation, at));
        }
        Ok(changes)
    }
}

impl ChangeEvent {
    /// Returns the change events of the delayed changes that take effect at `from`. Withdrawn changes have no event.
    pub fn delayed_pricing_events(service: &Service, from: Timestamp) -> Vec<Self> {
        let operations = service.operations.iter().filter(|_| service.is_open());
        let delayed = operations.filter_map(|operation| Some((operation, operation.next.as_ref()?)));
        let due = delayed.filter(|(_, next)| next.from == from);
        due.filter_map(|(operation, next)| effective_change_event(service, operation, next))
            .collect()
    }
}

/// The event's id is the same for the row with the delayed change and for the update that merges it.
fn effective_change_event(service: &Service, operation: &Operation, next: &NextPricing) -> Option<ChangeEvent> {
    // At the epoch, no delayed change has taken effect, so `past` is the pricing before the delayed change.
    let (past, present) = (operation.pricing_at(Timestamp::EPOCH), next.as_pricing());
    let kind = if pricing_payee(past) != pricing_payee(present) {
        EventKind::ServicePayeeChanged
    } else if past.max_price() != present.max_price() {
        EventKind::ServicePriceChanged
    } else {
        return None;
    };
    let data = pricing_data(present).text("operation_id", &operation.slug);
    let id = EventId::derive(kind, &[&service.id, &operation.id, &"from", &next.from.micros()]);
    Some(ChangeEvent {
        id,
        ..service_event(service, kind, &operation.id, next.from, data)
    })
}

/// Returns the change events of the delayed changes that took effect before this update.
fn effective_change_events(old: &Service, new: &Service, at: Timestamp) -> Vec<ChangeEvent> {
    let is_kept = |before: &Operation| {
        let mut operations = new.operations.iter();
        operations.any(|now| now.id == before.id && now.next == before.next)
    };
    let over = old.operations.iter().filter(|before| !is_kept(before));
    let delayed = over.filter_map(|before| Some((before, before.next.as_ref()?)));
    let due = delayed.filter(|(_, next)| next.from <= at);
    due.filter_map(|(before, next)| effective_change_event(old, before, next))
        .collect()
}

fn operation_change_events(
    service: &Service,
    before: Option<&Operation>,
    now: &Operation,
    at: Timestamp,
) -> Vec<ChangeEvent> {
    let tell = |kind, data: EventData| {
        let data = data.text("operation_id", &now.slug);
        service_event(service, kind, &now.id, at, data)
    };
    let mut changes = Vec::new();
    let present = now.pricing_at(at);
    if let Some(before) = before {
        let past = before.pricing_at(at);
        if pricing_payee(past) != pricing_payee(present) {
            changes.push(tell(EventKind::ServicePayeeChanged, pricing_data(present)));
        } else if past.max_price() != present.max_price() {
            changes.push(tell(EventKind::ServicePriceChanged, pricing_data(present)));
        }
    }
    let delayed = before.and_then(|before| before.delayed_pricing(at));
    match now.delayed_pricing(at) {
        Some(next) if delayed != Some(next) => {
            let data = pricing_data(next.as_pricing()).time("from", next.from);
            changes.push(tell(EventKind::ServiceChangeDelayed, data));
        }
        // The earlier delayed change was removed and did not take effect, so the change was withdrawn.
        None if delayed.is_some_and(|delayed| delayed.as_pricing() != present) => {
            changes.push(tell(EventKind::ServiceChangeWithdrawn, EventData::new()));
        }
        Some(_) | None => {}
    }
    changes
}

fn pricing_payee(pricing: Pricing<'_>) -> Option<Address> {
    pricing.payment.map(|payment| payment.pay_to)
}

fn pricing_data(pricing: Pricing<'_>) -> EventData {
    let max: Option<Amount> = pricing.max_price();
    EventData::new()
        .optional_text("pay_to", pricing_payee(pricing))
        .optional_amount("max_price_units", max)
}

fn service_event(
    service: &Service,
    kind: EventKind,
    subject: &dyn Display,
    time: Timestamp,
    data: EventData,
) -> ChangeEvent {
    ChangeEvent {
        id: EventId::derive(kind, &[&service.id, &service.version, subject]),
        kind,
        time,
        subject: EventSubject::Service(service.id),
        owner: ChangeEventOwner::Nobody,
        data: data.text("slug", &service.slug).number("version", service.version),
    }
}
