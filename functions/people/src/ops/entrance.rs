//! How callers get in: a session becomes a person here, and nowhere else but in the sign-in that makes it; and an agent key
//! an agent. Each is counted, people by who they are and agents by their address.
//!
//! A session is judged before it is counted, so that nobody can use up the requests of somebody else; nothing that is read
//! for a person can be had without it.

use crate::state::Dashboard;
use purser_api::{AgentCredentials, Person, ThrottleScope};
use purser_domain::{PresentedKey, Result};
use purser_store::{Authenticated, DecisionInputs, DecisionKeys};

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
        let scope = ThrottleScope::of_person(&person.sub);
        let found = self.authenticator.throttle.limit(scope, now, read(&person)).await?;
        Ok((person, found))
    }

    /// The agent whose key this is, and what was read for it in the same round trip: as the groups of agents let it in.
    pub(crate) async fn agent_reading(
        &self,
        AgentCredentials { key, scope }: AgentCredentials,
        ask: &DecisionKeys,
    ) -> Result<Authenticated<DecisionInputs>> {
        let now = self.now();
        let read = async |key: &PresentedKey| self.ledger.decision_inputs_for(key, now, ask).await;
        self.authenticator.authenticate(scope, key, || self.now(), read).await
    }
}
