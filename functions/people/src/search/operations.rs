//! Search operations. Each kind of search text is looked up by its own key, so a search takes about ten read units
//! regardless of the amount of data. For a payee or a service, the result links to a filtered list instead.

use crate::agents::listing::AgentFilter;
use crate::caller::Caller;
use crate::journal::filter::JournalFilter;
use crate::state::People;
use crate::ui::list::has_text;
use crate::ui::paths;
use purser_domain::{
    Address, Agent, AgentId, Approval, ApprovalId, Catalog, ErrorKind, JournalEntry, Result, Service, TxHash,
    parse_address,
};
use purser_store::AgentOrder;
use uuid::Uuid;

/// The maximum number of characters in a search text.
pub(crate) const LONGEST: usize = 100;
/// The maximum number of agents that a search returns.
const SHOWN: u32 = 10;

/// A search result.
#[derive(Debug)]
pub(crate) enum SearchResult {
    Agent(Box<Agent>),
    /// A decision, with its payment if any.
    Decision(Box<JournalEntry>),
    Approval(Box<Approval>),
    /// A payee, which links to the payments to this address.
    Payee(Address),
    /// A service, which links to the payments for this service.
    Service(Box<Service>),
}

impl SearchResult {
    /// Returns the name of the result's kind.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Decision(entry) if entry.payment.is_some() => "settlement",
            Self::Decision(_) => "decision",
            Self::Approval(_) => "approval",
            Self::Payee(_) => "payee",
            Self::Service(_) => "service",
        }
    }

    /// Returns the path of the page that shows the result.
    pub(crate) fn path(&self) -> String {
        let list = |filter: JournalFilter| crate::address::address("/dashboard/decisions", filter.parameters());
        match self {
            Self::Agent(agent) => paths::agent(agent.id),
            Self::Decision(entry) => match &entry.payment {
                Some(_) => entry.settlement().map_or_else(
                    || paths::decision(entry.agent, entry.transaction),
                    |settlement| paths::receipt(entry.agent, settlement),
                ),
                None => paths::decision(entry.agent, entry.transaction),
            },
            Self::Approval(approval) => paths::approval(approval.agent, approval.id),
            Self::Payee(address) => list(JournalFilter {
                pay_to: Some(*address),
                ..JournalFilter::default()
            }),
            Self::Service(service) => list(JournalFilter {
                service: Some(service.id),
                ..JournalFilter::default()
            }),
        }
    }
}

impl People {
    /// Searches the user's own data. Returns an empty list if nothing matches.
    pub(crate) async fn search(&self, person: &Caller, text: &str) -> Result<Vec<SearchResult>> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        if let Ok(id) = Uuid::try_parse(text) {
            return self.find_id(person, id).await;
        }
        if let Some(hash) = TxHash::parse(&text.to_lowercase()) {
            let entries = self.usage.entries_of_transaction(&person.id, hash).await?.into_iter();
            return Ok(entries.map(|entry| SearchResult::Decision(Box::new(entry))).collect());
        }
        if let Ok(address) = parse_address(text) {
            return Ok(vec![SearchResult::Payee(address)]);
        }
        let filter = AgentFilter {
            text: text.to_owned(),
            ..AgentFilter::default()
        };
        let agents = self.list_agents(person, &filter, AgentOrder::NewestFirst, None, SHOWN);
        let (agents, edition) = tokio::try_join!(agents, self.catalog())?;
        let agents = agents
            .items
            .into_iter()
            .map(|owned| SearchResult::Agent(Box::new(owned.agent().clone())));
        let services = services(&edition.catalog, text).map(|service| SearchResult::Service(Box::new(service.clone())));
        Ok(agents.chain(services).collect())
    }

    /// Finds the agent, decision, settlement or approval with this id.
    async fn find_id(&self, person: &Caller, id: Uuid) -> Result<Vec<SearchResult>> {
        let agent = own(self.own_agent(person, AgentId::from_uuid(id)).await)?;
        if let Some(owned) = agent {
            return Ok(vec![SearchResult::Agent(Box::new(owned.agent().clone()))]);
        }
        let (entry, approval) = tokio::try_join!(
            self.usage.entry_of(&person.id, id),
            self.ledger.approval(ApprovalId::from_uuid(id)),
        )?;
        let mut found: Vec<SearchResult> = entry
            .into_iter()
            .map(|entry| SearchResult::Decision(Box::new(entry)))
            .collect();
        if let Some(approval) = approval
            && own(self.own_agent(person, approval.agent).await)?.is_some()
            && let Some(approval) = approval.seen_by(person.id.as_str(), self.now())
        {
            found.push(SearchResult::Approval(Box::new(approval)));
        }
        Ok(found)
    }
}

/// Turns `not_found` into `None`.
fn own<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the services whose name, slug or host contains the text.
fn services<'a>(catalog: &'a Catalog, text: &'a str) -> impl Iterator<Item = &'a Service> {
    let is_found = move |service: &&Service| {
        let operations = service.operations.iter();
        let mut hosts = operations.filter_map(|operation| operation.endpoint.host_str());
        has_text(&service.name, text) || has_text(service.slug.as_str(), text) || hosts.any(|host| has_text(host, text))
    };
    catalog.services().iter().filter(is_found).take(10)
}
