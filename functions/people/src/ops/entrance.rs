//! How callers get in: a session becomes a person here, and nowhere else but in the sign-in that makes it; and an agent key
//! an agent. Each is counted, people by who they are and agents by their address.
//!
//! A session is judged before it is counted, so that nobody can use up the requests of somebody else; nothing that is read
//! for a person can be had without it.

use crate::state::Dashboard;
use purser_api::{Caller, Person, ThrottleScope, admit};
use purser_domain::{Agent, AgentId, PresentedKey, Result};
use purser_store::{Ask, Snapshot};

impl Dashboard {
    /// The person whose session this is; 401 `invalid_session` for anything else.
    pub(crate) async fn person(&self, session: &str) -> Result<Person> {
        let (person, ()) = self.person_reading(session, async |_| Ok(())).await?;
        Ok(person)
    }

    /// The person whose session this is, and what `read` reads for them while they are counted. It must not write.
    pub(crate) async fn person_reading<T>(
        &self,
        session: &str,
        read: impl AsyncFnOnce(&Person) -> Result<T>,
    ) -> Result<(Person, T)> {
        let now = self.now();
        let person = self.sessions.person(session, now).await?;
        let hit = self.throttle.hit(ThrottleScope::of_person(&person.sub), now);
        let found = admit(hit, read(&person)).await?;
        Ok((person, found))
    }

    /// The agent whose key this is, and what was read for it in the same round trip: as the groups of agents let it in.
    pub(crate) async fn agent_reading(
        &self,
        caller: Caller,
        ask: impl FnOnce(AgentId) -> Ask,
    ) -> Result<(Agent, Snapshot)> {
        let now = self.now();
        let scope = caller.scope();
        let read = async |key: &PresentedKey| {
            let knows = |agent: &Agent| key.is_valid_for(Some(agent), self.now());
            let mut snapshot = self.ledger.snapshot_for(&ask(key.agent), knows).await?;
            Ok((snapshot.agent.take(), snapshot))
        };
        let (agent, key, snapshot) = caller.enter(self.throttle.hit(scope, now), &self.clock, read).await?;
        self.key_uses.note(agent.id, key, now);
        Ok((agent, snapshot))
    }
}
