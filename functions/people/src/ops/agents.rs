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

impl People {
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
