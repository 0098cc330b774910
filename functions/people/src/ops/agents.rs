//! Agents: list, create, rename, freeze.

use crate::ops::owned::Owned;
use crate::ops::several::several;
use crate::state::People;
use purser_api::{Person, Precondition};
use purser_domain::{
    Agent, AgentId, AgentName, AgentStatus, Catalog, EnabledService, Error, Result, SpendPolicy, Wallet,
};
use purser_store::{Created, Edited};

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
    pub(crate) async fn agents(&self, person: &Person) -> Result<Vec<Owned>> {
        let agents = self.ledger.agents_of(&person.sub).await?;
        Ok(agents
            .into_iter()
            .filter_map(|agent| Owned::of(person, agent))
            .collect())
    }

    /// A new agent with a wallet of its own, no key, and every service of the curated set enabled without limits
    /// (`docs/spec.md` §2.6).
    ///
    /// The services are written first and the agent last, in one write. So no agent has only some of them: if this
    /// fails half-way, records remain of an agent that was never created, whose id is never used again.
    pub(crate) async fn create_agent(&self, person: &Person, name: &AgentName) -> Result<Owned> {
        const DOING: &str = "creating an agent";
        let (index, edition) = tokio::try_join!(self.ledger.next_wallet_index(), self.catalog())?;
        let address = self
            .xpub
            .address(index)
            .map_err(|error| Error::internal(DOING, error))?;
        let id = AgentId::from_uuid(uuid::Builder::from_random_bytes(self.entropy.bytes()?).into_uuid());
        several(pre_enabled(&edition.catalog), |record| {
            let ledger = self.ledger.clone();
            async move {
                match ledger.put_policy(id, &record).await? {
                    Edited::Stored => Ok(()),
                    Edited::Conflict => Err(Error::internal(DOING, "its id has a service already")),
                }
            }
        })
        .await?;
        let agent = Agent {
            id,
            name: name.as_str().to_owned(),
            owner: person.sub.clone(),
            created_at: self.now(),
            status: AgentStatus::Active,
            wallet: Wallet { index, address },
            keys: Vec::new(),
            rules: Vec::new(),
            version: 1,
        };
        match self.ledger.create_agent(&agent).await? {
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
        self.change(owned, meant, change).await
    }
}

/// The first records of a new agent.
fn pre_enabled(catalog: &Catalog) -> Vec<EnabledService> {
    let open = catalog.services().iter().filter(|service| service.is_open());
    let records = open.map(|service| EnabledService {
        service: service.id,
        version: 1,
        enabled: true,
        policy: SpendPolicy::permissive(),
    });
    records.collect()
}
