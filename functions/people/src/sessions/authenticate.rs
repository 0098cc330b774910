//! The authentication of callers: an ID token or a session identifies a person (only here, and in the sign-in that
//! starts a session), and an agent key identifies an agent. People are rate-limited by their id, and agents by their IP
//! address.
//!
//! A person is verified before a request counts against their rate limit, so that no caller can use up another person's
//! limit. Nothing is returned for a token or session that is not valid.

use crate::caller::Caller;
use crate::state::People;
use purser_api::{AgentCredentials, ThrottleScope};
use purser_domain::{Duration, ErrorKind, PersonId, RequestSource, Result, Session, SessionId};
use purser_store::{AuthenticatedCaller, DecisionInputs, DecisionKeys, Reader, Throttle};
use tracing::{info, warn};

/// The precision of a session's last use. A write for each request would cost more than it is worth.
const PRECISION: Duration = Duration::from_secs_u32(60);
/// The requests of a minute above a user's limit that only a stop may use: a freeze, an archive, or the end of a session.
/// So neither the user's other requests nor those of a stolen session keep the user from stopping either.
pub(crate) const STOPS_PER_MINUTE: u32 = 60;

impl People {
    /// The throttle that counts a user's request. Both have the same counter; only the limit for stops is higher.
    const fn throttle(&self, stops: bool) -> &Throttle {
        if stops {
            &self.stops
        } else {
            &self.authenticator.throttle
        }
    }

    /// The person that this ID token identifies; 401 `invalid_session` if it is not valid. `stops` is whether the request
    /// stops an agent or ends a session.
    pub(crate) async fn person(&self, presented: (String, RequestSource), stops: bool) -> Result<Caller> {
        let (person, ()) = self.person_reading(presented, stops, async |_| Ok(())).await?;
        Ok(person)
    }

    /// The person that this ID token identifies, and the result of `read`, which runs while the request is counted.
    /// `read` must not write.
    pub(crate) async fn person_reading<T>(
        &self,
        (token, source): (String, RequestSource),
        stops: bool,
        read: impl AsyncFnOnce(&Caller) -> Result<T>,
    ) -> Result<(Caller, T)> {
        let now = self.now();
        let person = self.sessions.id_token(&token, now).await?.person;
        let person = Caller::new(person, None, source);
        let scope = ThrottleScope::for_person(&person.id);
        let found = async {
            let (ended_at, found) = tokio::join!(self.ledger.sessions_ended_at(&person.id), read(&person));
            if ended_at?.is_some_and(|ended_at| person.signed_in_at <= ended_at) {
                info!(reason = "ended", person = %person.id, "session.refused");
                return Err(ErrorKind::InvalidSession.into());
            }
            found
        };
        let found = self.throttle(stops).limit(scope, now, found).await?;
        Ok((person, found))
    }

    /// The session with this id; 401 `invalid_session` unless it is open. `is_use` is whether the request counts as a
    /// use of the session, and `stops` whether it stops an agent or ends a session.
    pub(crate) async fn open_session(
        &self,
        person: &PersonId,
        id: &SessionId,
        is_use: bool,
        stops: bool,
    ) -> Result<Session> {
        let now = self.now();
        let session = self.ledger.session(person, id).await?;
        let open =
            session.filter(|session| self.limits.is_open(session, now) && session.terms == self.sessions.terms());
        let session = open.ok_or(ErrorKind::InvalidSession)?;
        let scope = ThrottleScope::for_person(&session.person);
        let noted = async {
            if is_use && now >= session.seen_at.after(PRECISION) {
                // If this fails, the session may only end earlier.
                if let Err(error) = self.ledger.touch_session(&session, now).await {
                    warn!(cause = %error, "session.use_not_noted");
                }
            }
            Ok(())
        };
        self.throttle(stops).limit(scope, now, noted).await?;
        Ok(session)
    }

    /// The agent of this key, regardless of the key's permissions, and the decision inputs that were read in the same
    /// round trip. The key is authenticated as on the agents' routes.
    pub(crate) async fn agent_reading(
        &self,
        caller: AgentCredentials,
        ask: &DecisionKeys,
    ) -> Result<AuthenticatedCaller<DecisionInputs>> {
        let (now, key_use) = (self.now(), caller.key_use(None));
        let call = self.authenticator.begin(caller.scope, caller.key, key_use, now).await?;
        let read = self.ledger.decision_inputs(Reader::Unverified(&call.key, now), ask);
        let (agent, inputs) = self.authenticator.counting(&call, read).await?;
        self.authenticator.verify(call, agent, inputs, self.now())
    }
}
