//! How callers are authenticated: a session to a person (only here and in the sign-in that creates it), an agent key to
//! an agent. Each is rate-limited, people by their identity and agents by their IP address.
//!
//! A session is verified before it is counted, so that nobody can use up somebody else's limit; nothing is returned for
//! a person unless it is valid.

use crate::state::People;
use purser_api::{AgentCredentials, Person, ThrottleScope};
use purser_domain::{PresentedKey, Result};
use purser_store::{Authenticated, DecisionInputs, DecisionKeys};

impl People {
    /// The person of this session; 401 `invalid_session` for anything else.
    pub(crate) async fn person(&self, session: &str) -> Result<Person> {
        let (person, ()) = self.person_reading(session, async |_| Ok(())).await?;
        Ok(person)
    }

    /// The person of this session, and what `read` reads for them while they are counted. `read` must not write.
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

    /// The agent of this key, and what was read for it in the same round trip: authenticated as in the agents' groups.
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
