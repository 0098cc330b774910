//! Agents: list, create, rename, freeze.

use crate::caller::Caller;
use crate::ops::owned::Owned;
use crate::state::People;
use purser_api::{CallerIds, Precondition};
use purser_domain::{Act, Agent, AgentId, AgentName, AgentStatus, AuditChanges, AuditKind, Error, Result, StartingSet};
use purser_store::Created;

purser_api::body! {
    /// New values for some of these; one at least.
    pub(crate) struct AgentEdit as "AgentEditBody" {
        pub(crate) name: Option<AgentName>,
        /// `frozen` refuses every call from this answer on; `active` lets the policies decide again.
        pub(crate) status: Option<AgentStatus>,
    }
}

/// Up to so many agents are few: all are read where one can be chosen, and their lists are merged, by a query of each for
/// every page. Of more a page reads what it shows, and one has to be chosen for its lists.
pub(crate) const FEW: usize = 25;

/// The agents of a person of which one can be chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agents {
    /// Those that were read: all, oldest first, or of many the chosen one alone.
    pub(crate) known: Vec<Owned>,
    /// Whether there are others.
    pub(crate) are_many: bool,
}

impl Agents {
    /// The ids of those that were read.
    pub(crate) fn ids(&self) -> Vec<AgentId> {
        self.known.iter().map(|owned| owned.agent().id).collect()
    }
}

impl People {
    /// The person's agents, for one to be chosen; one that already is must be theirs.
    pub(crate) async fn agents_to_choose(&self, person: &Caller, chosen: Option<AgentId>) -> Result<Agents> {
        let most = FEW.saturating_add(1);
        let ids = self.ledger.ids_of_agents(person.id.as_str(), Some(most)).await?;
        let are_many = ids.len() > FEW;
        let mut known = if are_many {
            Vec::new()
        } else {
            self.own_agents(person, ids).await?
        };
        known.sort_by_key(|owned| (owned.agent().created_at, owned.agent().id));
        if let Some(id) = chosen
            && !known.iter().any(|owned| owned.agent().id == id)
        {
            known.push(self.own_agent(person, id).await?);
        }
        Ok(Agents { known, are_many })
    }

    /// Those of these agents that are the person's, in any order.
    pub(crate) async fn own_agents(&self, person: &Caller, ids: Vec<AgentId>) -> Result<Vec<Owned>> {
        let agents = self.ledger.agents(ids).await?.into_iter();
        Ok(agents.filter_map(|agent| Owned::of(person, agent)).collect())
    }

    /// The person's agents, oldest first. One that was just created may be missing for a moment.
    pub(crate) async fn agents(&self, person: &Caller) -> Result<Vec<Owned>> {
        let agents = self.ledger.agents_of(person.id.as_str()).await?;
        Ok(agents
            .into_iter()
            .filter_map(|agent| Owned::of(person, agent))
            .collect())
    }

    /// A new agent with a wallet of its own, no key, and every service of the curated set enabled without limits
    /// (`docs/spec.md` §2.6).
    ///
    /// The services are those of its starting set, which is shared: no row is written for each.
    pub(crate) async fn create_agent(&self, person: &Caller, name: &AgentName, ids: CallerIds) -> Result<Owned> {
        const DOING: &str = "creating an agent";
        let edition = self.catalog().await?;
        let open = edition.catalog.services().iter().filter(|service| service.is_open());
        let set = StartingSet::of(open.map(|service| service.id));
        let id = AgentId::from_uuid(uuid::Builder::from_random_bytes(self.entropy.bytes()?).into_uuid());
        let (wallet, starting_set) = tokio::try_join!(self.new_wallet(id, ids), self.ledger.keep_starting_set(&set))?;
        let agent = Agent {
            id,
            name: name.as_str().to_owned(),
            owner: person.id.to_string(),
            created_at: self.now(),
            status: AgentStatus::Active,
            wallet,
            keys: Vec::new(),
            rules: Vec::new(),
            starting_set: Some(starting_set),
            version: 1,
        };
        let act = Act::of(AuditKind::AgentCreated).on(id);
        let changes = AuditChanges::between(None, Some(agent.audit_members()));
        let entry = self.entry(&person.acting, &act, changes)?;
        match self.ledger.create_agent(&agent, &entry).await? {
            Created::Stored => Owned::of(person, agent).ok_or_else(|| Error::internal(DOING, "it is not its owner's")),
            Created::Exists => Err(Error::internal(DOING, "its id is taken")),
        }
    }

    /// The agent, renamed, frozen or unfrozen.
    pub(crate) async fn edit_agent(&self, owned: Owned, meant: Precondition, edit: &AgentEdit) -> Result<Owned> {
        let change = |agent: Agent| {
            Ok(Agent {
                name: edit.name.as_ref().map_or(agent.name, |name| name.as_str().to_owned()),
                status: edit.status.unwrap_or(agent.status),
                ..agent
            })
        };
        let kind = match edit.status {
            Some(AgentStatus::Frozen) => AuditKind::AgentFrozen,
            Some(AgentStatus::Active) => AuditKind::AgentUnfrozen,
            None => AuditKind::AgentRenamed,
        };
        self.change(owned, meant, Act::of(kind), change).await
    }
}
