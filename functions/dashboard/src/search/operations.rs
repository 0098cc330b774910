//! Searches by id and transaction hash read rows by DynamoDB key. A search by name reads the user's agents,
//! 100 at a time, until an agent matches, at most 1,000 agents, and searches the catalog's services.

use crate::agents::listing::AgentFilter;
use crate::caller::Caller;
use crate::journal::filter::HistoryFilter;
use crate::state::People;
use crate::ui::list::contains_text;
use crate::ui::paths;
use purser_domain::{
    Address, Agent, AgentId, Approval, ApprovalId, Catalog, ErrorKind, HistoryEntry, Result, Service, TxHash,
    parse_address,
};
use purser_store::AgentOrder;
use uuid::Uuid;

pub(crate) const MAX_QUERY_CHARS: usize = 100;
/// The maximum number of agents that a search returns.
const MAX_SHOWN: u32 = 10;

/// An agent, payment, approval, payee or service that matches a search.
#[derive(Debug)]
pub(crate) enum SearchResult {
    Agent(Box<Agent>),
    Decision(Box<HistoryEntry>),
    Approval(Box<Approval>),
    /// A payee, with a link to the decisions about payments to this address.
    Payee(Address),
    /// A service. The result links to the list of decisions about payments for this service.
    Service(Box<Service>),
}

impl SearchResult {
    pub(crate) const fn kind_name(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Decision(entry) if entry.payment.is_some() => "settlement",
            Self::Decision(_) => "decision",
            Self::Approval(_) => "approval",
            Self::Payee(_) => "payee",
            Self::Service(_) => "service",
        }
    }

    pub(crate) fn page_path(&self) -> String {
        let list =
            |filter: HistoryFilter| crate::address::path_with_query("/dashboard/decisions", filter.query_parameters());
        match self {
            Self::Agent(agent) => paths::agent_path(agent.id),
            Self::Decision(entry) => match &entry.payment {
                Some(_) => entry.settlement_id().map_or_else(
                    || paths::decision_path(entry.agent, entry.transaction),
                    |settlement| paths::receipt_path(entry.agent, settlement),
                ),
                None => paths::decision_path(entry.agent, entry.transaction),
            },
            Self::Approval(approval) => paths::approval_path(approval.agent, approval.id),
            Self::Payee(address) => list(HistoryFilter {
                pay_to: Some(*address),
                ..HistoryFilter::default()
            }),
            Self::Service(service) => list(HistoryFilter {
                service: Some(service.id),
                ..HistoryFilter::default()
            }),
        }
    }
}

impl People {
    /// Searches the user's own data and the catalog.
    pub(crate) async fn search_own_data(&self, user: &Caller, text: &str) -> Result<Vec<SearchResult>> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        if let Ok(id) = Uuid::try_parse(text) {
            return self.find_results_by_id(user, id).await;
        }
        if let Some(hash) = TxHash::parse(&text.to_lowercase()) {
            let entries = self
                .usage
                .find_entries_by_transaction(&user.id, hash)
                .await?
                .into_iter();
            return Ok(entries.map(|entry| SearchResult::Decision(Box::new(entry))).collect());
        }
        if let Ok(address) = parse_address(text) {
            return Ok(vec![SearchResult::Payee(address)]);
        }
        let filter = AgentFilter {
            text: text.to_owned(),
            ..AgentFilter::default()
        };
        let agents = self.list_agents(user, &filter, AgentOrder::NewestFirst, None, MAX_SHOWN);
        let (agents, edition) = tokio::try_join!(agents, self.current_catalog())?;
        let agents = agents
            .items
            .into_iter()
            .map(|owned| SearchResult::Agent(Box::new(owned.agent().clone())));
        let services =
            find_services(&edition.catalog, text).map(|service| SearchResult::Service(Box::new(service.clone())));
        Ok(agents.chain(services).collect())
    }

    /// Finds the agent, decision, settlement or approval with this id.
    async fn find_results_by_id(&self, user: &Caller, id: Uuid) -> Result<Vec<SearchResult>> {
        let agent = none_if_not_found(self.read_own_agent(user, AgentId::from_uuid(id)).await)?;
        if let Some(owned) = agent {
            return Ok(vec![SearchResult::Agent(Box::new(owned.agent().clone()))]);
        }
        let (entry, approval) = tokio::try_join!(
            self.usage.find_entry(&user.id, id),
            self.ledger.read_approval_by_id(ApprovalId::from_uuid(id)),
        )?;
        let mut found: Vec<SearchResult> = entry
            .into_iter()
            .map(|entry| SearchResult::Decision(Box::new(entry)))
            .collect();
        if let Some(approval) = approval
            && none_if_not_found(self.read_own_agent(user, approval.agent).await)?.is_some()
            && let Some(approval) = approval.for_current_owner(user.id.as_str(), self.now())
        {
            found.push(SearchResult::Approval(Box::new(approval)));
        }
        Ok(found)
    }
}

fn none_if_not_found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

fn find_services<'a>(catalog: &'a Catalog, text: &'a str) -> impl Iterator<Item = &'a Service> {
    let is_found = move |service: &&Service| {
        let operations = service.operations.iter();
        let mut hosts = operations.filter_map(|operation| operation.endpoint.host_str());
        contains_text(&service.name, text)
            || contains_text(service.slug.as_str(), text)
            || hosts.any(|host| contains_text(host, text))
    };
    catalog.services().iter().filter(is_found).take(10)
}
