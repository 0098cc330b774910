//! The filter for lists of decisions and settlements. The API, the pages and the CSV files have the same query
//! parameters.

use crate::span::Span;
use crate::ui::list::contains_text;
use purser_api::{Query, parse_time_range};
use purser_domain::{
    Address, AddressError, AgentId, Amount, DecisionResult, HistoryEntry, LabelFilter, ReceiptStatus, ServiceId,
    parse_address,
};
use purser_store::{Filter, HistoryPart};

/// A list that is read from the decision history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryList {
    /// All decisions.
    Decisions,
    /// The decisions that have settlements: allowed payments and withdrawals.
    Settlements,
}

/// A filter for the decision history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryFilter {
    /// Only decisions about this agent.
    pub(crate) agent: Option<AgentId>,
    /// Only decisions about agents whose name contains this text.
    pub(crate) name: Option<String>,
    /// Only decisions about agents with this label.
    pub(crate) label: Option<LabelFilter>,
    /// Only decisions with this result.
    pub(crate) result: Option<DecisionResult>,
    /// Only decisions whose settlement has this status.
    pub(crate) status: Option<ReceiptStatus>,
    /// Only decisions for this service.
    pub(crate) service: Option<ServiceId>,
    /// Only blocked payments and payments that require approval, with this `error` or `reason`.
    pub(crate) reason: Option<String>,
    /// Only payments to this payee.
    pub(crate) pay_to: Option<Address>,
    /// The minimum amount.
    pub(crate) least: Option<Amount>,
    /// The maximum amount.
    pub(crate) most: Option<Amount>,
    /// Only decisions in this time range.
    pub(crate) span: Span,
}

impl HistoryFilter {
    /// Parses the filter from the query. `service` parses the service, because the API also accepts slugs.
    pub(crate) fn from_query(query: &mut Query, service: impl FnOnce(&mut Query) -> Option<ServiceId>) -> Self {
        let (from, to) = parse_time_range(query);
        Self {
            agent: query.parse_with("agent_id", AgentId::parse, "must be a UUID"),
            name: query.parse_text("agent"),
            label: query.parse_with("label", LabelFilter::parse, LabelFilter::FORM),
            result: query.parse_with("result", DecisionResult::from_name, DecisionResult::choices_message()),
            status: query.parse_with("status", ReceiptStatus::from_name, ReceiptStatus::choices_message()),
            service: service(query),
            reason: query.parse_text("reason"),
            pay_to: query.parse_with("pay_to", parse_payee, "must be an address"),
            least: query.parse_amount("min_amount_units"),
            most: query.parse_amount("max_amount_units"),
            span: Span { from, to },
        }
    }

    /// Returns the query parameters from which [`HistoryFilter::from_query`] parses this filter.
    pub(crate) fn query_parameters(&self) -> Vec<(&'static str, Option<String>)> {
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

    /// Returns the smallest index that contains all decisions that the filter selects.
    pub(crate) const fn index_partition(&self) -> HistoryPart {
        match self.result {
            Some(DecisionResult::Block | DecisionResult::Escalate | DecisionResult::RevertConfirmation) => {
                HistoryPart::Refusals
            }
            None if self.reason.is_some() => HistoryPart::Refusals,
            None | Some(DecisionResult::Allow | DecisionResult::Payout) => HistoryPart::All,
        }
    }

    /// Returns whether the filter selects every decision of the list.
    pub(crate) fn is_unfiltered(&self, list: HistoryList) -> bool {
        list == HistoryList::Decisions && *self == Self::default()
    }

    /// Returns whether the filter selects this decision, or whether the time range has ended.
    pub(crate) fn filter_entry(&self, list: HistoryList, entry: &HistoryEntry) -> Filter {
        if self.span.is_after_id(entry.place) {
            return Filter::Stop;
        }
        let denial = entry.refusal.as_ref();
        let has_reason = |reason: &String| {
            denial.is_some_and(|denial| denial.error == *reason) || denial.is_some() && entry.reason == *reason
        };
        Filter::keep_if(
            (list == HistoryList::Decisions || entry.payment.is_some())
                && self.agent.is_none_or(|agent| entry.agent == agent)
                && self
                    .name
                    .as_ref()
                    .is_none_or(|name| contains_text(&entry.agent_name, name))
                && self.label.as_ref().is_none_or(|label| label.matches(&entry.labels))
                && self.result.is_none_or(|result| entry.result == result)
                && self.status.is_none_or(|status| {
                    entry
                        .settlement_state()
                        .is_some_and(|state| state.receipt_status() == status)
                })
                && self.service.is_none_or(|service| entry.service == Some(service))
                && self.reason.as_ref().is_none_or(has_reason)
                && self.pay_to.is_none_or(|pay_to| entry.pay_to == pay_to)
                && self.least.is_none_or(|least| entry.amount >= least)
                && self.most.is_none_or(|max| entry.amount <= max),
        )
    }
}

/// Parses a payee. Accepts the zero address, because the address is valid even if no payment has it.
fn parse_payee(text: &str) -> Option<Address> {
    match parse_address(text) {
        Err(AddressError::Zero) => Some(Address::ZERO),
        parsed => parsed.ok(),
    }
}
