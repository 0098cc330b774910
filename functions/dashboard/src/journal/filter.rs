//! The filter for lists of decisions and settlements, in the API, the pages and the CSV files.

use crate::span::Span;
use crate::ui::list::contains_text;
use purser_api::{Query, parse_time_range};
use purser_domain::{
    Address, AddressError, AgentId, Amount, DecisionResult, HistoryEntry, LabelFilter, ReceiptStatus, ServiceId,
    parse_address,
};
use purser_store::{Filter, HistoryPart};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryList {
    Decisions,
    /// Only decisions that have settlements: allowed payments and withdrawals.
    Settlements,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryFilter {
    pub(crate) agent: Option<AgentId>,
    /// A part of the agent's name.
    pub(crate) name: Option<String>,
    pub(crate) label: Option<LabelFilter>,
    pub(crate) result: Option<DecisionResult>,
    pub(crate) status: Option<ReceiptStatus>,
    pub(crate) service: Option<ServiceId>,
    /// The `error` or the `reason` of the decision. Only blocked and escalated payments match.
    pub(crate) reason: Option<String>,
    pub(crate) pay_to: Option<Address>,
    pub(crate) min_amount: Option<Amount>,
    pub(crate) max_amount: Option<Amount>,
    pub(crate) span: Span,
}

impl HistoryFilter {
    /// Parses the filter from the query parameters. `service` parses the parameter with the service, because the API
    /// accepts slugs and the pages accept only ids.
    pub(crate) fn from_query(query: &mut Query, service: impl FnOnce(&mut Query) -> Option<ServiceId>) -> Self {
        let (from, to) = parse_time_range(query);
        Self {
            agent: query.parse_with("agent_id", AgentId::parse, "must be a UUID"),
            name: query.parse_text("agent"),
            label: query.parse_with("label", LabelFilter::parse, LabelFilter::FORM),
            result: query.parse_with(
                "result",
                DecisionResult::from_name,
                DecisionResult::allowed_names_message(),
            ),
            status: query.parse_with(
                "status",
                ReceiptStatus::from_name,
                ReceiptStatus::allowed_names_message(),
            ),
            service: service(query),
            reason: query.parse_text("reason"),
            pay_to: query.parse_with("pay_to", parse_payee, "must be an address"),
            min_amount: query.parse_amount("min_amount_units"),
            max_amount: query.parse_amount("max_amount_units"),
            span: Span { from, to },
        }
    }

    /// Returns the query parameters that [`HistoryFilter::from_query`] reads.
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
            (
                "min_amount_units",
                self.min_amount.map(|amount| amount.units().to_string()),
            ),
            (
                "max_amount_units",
                self.max_amount.map(|amount| amount.units().to_string()),
            ),
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

    pub(crate) fn is_unfiltered(&self, list: HistoryList) -> bool {
        list == HistoryList::Decisions && *self == Self::default()
    }

    /// Stops the list at the first decision before the time range.
    pub(crate) fn filter_entry(&self, list: HistoryList, entry: &HistoryEntry) -> Filter {
        if self.span.starts_after_item(entry.place) {
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
                && self.min_amount.is_none_or(|min| entry.amount >= min)
                && self.max_amount.is_none_or(|max| entry.amount <= max),
        )
    }
}

/// Accepts the zero address, although no payment has it.
fn parse_payee(text: &str) -> Option<Address> {
    match parse_address(text) {
        Err(AddressError::Zero) => Some(Address::ZERO),
        parsed => parsed.ok(),
    }
}
