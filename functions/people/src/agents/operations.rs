//! Agents: list, create, rename, freeze.

use crate::agents::owned::Owned;
use crate::caller::Caller;
use crate::state::People;
use purser_api::{CallerIds, Precondition};
use purser_domain::{Act, Agent, AgentId, AgentName, AgentStatus, AuditChanges, AuditKind, Error, Result, StartingSet};
use purser_store::{AgentPlace, Created, Page};
use uuid::Uuid;

purser_api::body! {
    /// The fields to change, at least one.
    pub(crate) struct AgentEdit as "AgentEditBody" {
        pub(crate) name: Option<AgentName>,
        /// `frozen` refuses every call from this answer on; `active` lets the policies decide again.
        pub(crate) status: Option<AgentStatus>,
    }
}

/// The most agents that are read as a whole: their lists are merged, with a query for each agent and page. A person
/// with more agents chooses one for the lists.
pub(crate) const FEW: usize = 25;

/// A cursor in a list of the rows of several agents, newest first. With more than [`FEW`] agents the list has parts of
/// [`FEW`] agents, in order of creation, so that the reads of a page don't grow with the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartPlace {
    /// With which agent the part begins; `None` for the first part.
    pub(crate) first: Option<AgentPlace>,
    /// Where in the part; `None` for its newest row.
    pub(crate) before: Option<Uuid>,
}

/// A part of a person's agents.
pub(crate) struct Part {
    pub(crate) agents: Vec<AgentId>,
    /// Which one it is.
    first: Option<AgentPlace>,
    /// With which agent the next part begins.
    next: Option<AgentPlace>,
}

impl Part {
    /// The page of the whole list that is this page of the part.
    pub(crate) fn page<T>(&self, page: Page<T, Uuid>) -> Page<T, PartPlace> {
        let more = page.next.map(|before| PartPlace {
            first: self.first,
            before: Some(before),
        });
        let next = self.next.map(|first| PartPlace {
            first: Some(first),
            before: None,
        });
        Page {
            items: page.items,
            next: more.or(next),
        }
    }
}

/// The agents of a person of which one can be chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agents {
    /// The agents that were read: all, oldest first, or of many agents only the chosen one.
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

    /// The person's agents among these, in any order.
    pub(crate) async fn own_agents(&self, person: &Caller, ids: Vec<AgentId>) -> Result<Vec<Owned>> {
        let agents = self.ledger.agents(ids).await?.into_iter();
        Ok(agents.filter_map(|agent| Owned::of(person, agent)).collect())
    }

    /// Up to `limit` of the person's agents, oldest first, from this cursor on, and the next cursor.
    pub(crate) async fn agents_from(
        &self,
        person: &Caller,
        from: Option<AgentPlace>,
        most: u32,
    ) -> Result<(Vec<Owned>, Option<AgentPlace>)> {
        let more = most.saturating_add(1);
        let mut places = self.ledger.agents_from(person.id.as_str(), from, more).await?;
        let is_more = u32::try_from(places.len()).is_ok_and(|count| count > most);
        let next = if is_more { places.pop() } else { None };
        let ids = places.iter().map(|place| place.id).collect();
        let mut agents = self.own_agents(person, ids).await?;
        agents.sort_by_key(|owned| (owned.agent().created_at, owned.agent().id));
        Ok((agents, next))
    }

    /// The part of the person's agents that begins with this one; or only the agent that is asked for.
    pub(crate) async fn part_of_agents(
        &self,
        person: &Caller,
        only: Option<AgentId>,
        first: Option<AgentPlace>,
    ) -> Result<Part> {
        let few = u32::try_from(FEW).unwrap_or(u32::MAX);
        let (agents, next) = match only {
            Some(id) => (vec![self.own_agent(person, id).await?], None),
            None => self.agents_from(person, first, few).await?,
        };
        Ok(Part {
            agents: agents.iter().map(|owned| owned.agent().id).collect(),
            first,
            next,
        })
    }

    /// The person's agents, oldest first. An agent that was just created may be missing for a moment.
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
        // Before the wallet: a failure after it would leave a key in KMS that nobody uses.
        let starting_set = self.ledger.keep_starting_set(&set).await?;
        let (id, wallet) = self.new_wallet(ids).await?;
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
