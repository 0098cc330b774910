//! The filter of the journal's lists. The API, the pages and the files parse it from the same parameters.

use crate::span::Span;
use crate::ui::list::has_text;
use purser_api::{Query, from_to};
use purser_domain::{
    Address, AddressError, AgentId, Amount, DecisionResult, JournalEntry, LabelFilter, ReceiptStatus, ServiceId,
    parse_address,
};
use purser_store::{Filter, JournalPart};

/// A list of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalList {
    /// All entries.
    Decisions,
    /// The entries with a settlement of their own: allows and payouts.
    Settlements,
}

/// A filter of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalFilter {
    /// Only entries about this agent.
    pub(crate) agent: Option<AgentId>,
    /// Only entries about agents whose name contains this text.
    pub(crate) name: Option<String>,
    /// Only entries about agents with this label.
    pub(crate) label: Option<LabelFilter>,
    /// Only entries with this result.
    pub(crate) result: Option<DecisionResult>,
    /// Only entries whose settlement has this status.
    pub(crate) status: Option<ReceiptStatus>,
    /// Only entries for this service.
    pub(crate) service: Option<ServiceId>,
    /// Only refusals and escalations with this `error` or `reason`.
    pub(crate) reason: Option<String>,
    /// Only entries with this payee.
    pub(crate) pay_to: Option<Address>,
    /// Only entries of at least this amount.
    pub(crate) least: Option<Amount>,
    /// Only entries of at most this amount.
    pub(crate) most: Option<Amount>,
    /// Only entries of this time range.
    pub(crate) span: Span,
}

impl JournalFilter {
    /// The filter in a query. `service` reads the service, which the API takes by slug, too.
    pub(crate) fn from_query(query: &mut Query, service: impl FnOnce(&mut Query) -> Option<ServiceId>) -> Self {
        let (from, to) = from_to(query);
        Self {
            agent: query.read("agent_id", AgentId::parse, "must be a UUID"),
            name: query.text("agent"),
            label: query.read("label", LabelFilter::parse, LabelFilter::FORM),
            result: query.read("result", DecisionResult::from_name, DecisionResult::choices()),
            status: query.read("status", ReceiptStatus::from_name, ReceiptStatus::choices()),
            service: service(query),
            reason: query.text("reason"),
            pay_to: query.read("pay_to", payee, "must be an address"),
            least: query.amount("min_amount_units"),
            most: query.amount("max_amount_units"),
            span: Span { from, to },
        }
    }

    /// The parameters from which [`JournalFilter::from_query`] reads this filter.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("agent_id", self.agent.map(|agent| agent.to_string())),
            ("agent", self.name.clone()),
            ("label", self.label.as_ref().map(ToString::to_string)),
            ("result", self.result.map(|result| result.name().to_owned())),
            ("status", self.status.map(|status| status.name().to_owned())),
            ("service_id", self.service.map(|service| service.to_string())),
            ("reason", self.reason.clone()),
            ("pay_to", self.pay_to.map(|pay_to| pay_to.to_string())),
            ("min_amount_units", self.least.map(|amount| amount.units().to_string())),
            ("max_amount_units", self.most.map(|amount| amount.units().to_string())),
            ("from", self.span.from.map(|at| at.to_string())),
            ("to", self.span.to.map(|at| at.to_string())),
        ]
    }

    /// The smallest part of the journal that has all entries of the filter.
    pub(crate) const fn part(&self) -> JournalPart {
        match self.result {
            Some(DecisionResult::Block | DecisionResult::Escalate | DecisionResult::RevertConfirmation) => {
                JournalPart::Refusals
            }
            None if self.reason.is_some() => JournalPart::Refusals,
            None | Some(DecisionResult::Allow | DecisionResult::Payout) => JournalPart::All,
        }
    }

    /// Whether every entry of a list passes.
    pub(crate) fn is_none(&self, list: JournalList) -> bool {
        list == JournalList::Decisions && *self == Self::default()
    }

    /// Whether a page has the entry.
    pub(crate) fn keep(&self, list: JournalList, entry: &JournalEntry) -> Filter {
        if self.span.is_over(entry.place) {
            return Filter::Stop;
        }
        let refusal = entry.refusal.as_ref();
        let has_reason = |reason: &String| {
            refusal.is_some_and(|refusal| refusal.error == *reason) || refusal.is_some() && entry.reason == *reason
        };
        Filter::by(
            (list == JournalList::Decisions || entry.payment.is_some())
                && self.agent.is_none_or(|agent| entry.agent == agent)
                && self.name.as_ref().is_none_or(|name| has_text(&entry.agent_name, name))
                && self.label.as_ref().is_none_or(|label| label.accepts(&entry.labels))
                && self.result.is_none_or(|result| entry.result == result)
                && self
                    .status
                    .is_none_or(|status| entry.state().is_some_and(|state| state.status() == status))
                && self.service.is_none_or(|service| entry.service == Some(service))
                && self.reason.as_ref().is_none_or(has_reason)
                && self.pay_to.is_none_or(|pay_to| entry.pay_to == pay_to)
                && self.least.is_none_or(|least| entry.amount >= least)
                && self.most.is_none_or(|most| entry.amount <= most),
        )
    }
}

/// The payee in a text. No payment has the zero address, but it is an address.
fn payee(text: &str) -> Option<Address> {
    match parse_address(text) {
        Err(AddressError::Zero) => Some(Address::ZERO),
        parsed => parsed.ok(),
    }
}
