//! Authenticates users by ID token or session, and agents by agent key.
//!
//! A user is authenticated before the request counts against the user's rate limit, so that nobody can use up another
//! user's limit.

use crate::caller::Caller;
use crate::state::People;
use purser_api::{AgentCredentials, ThrottleScope};
use purser_domain::{Duration, ErrorKind, Permission, RequestSource, Result, Session, SessionId, UserId};
use purser_store::{AuthenticatedCaller, DecisionInputs, DecisionKeys, Reader, Throttle};
use tracing::{info, warn};

/// The interval in which a session's last use is recorded.
const PRECISION: Duration = Duration::from_secs_u32(60);
/// Additional requests per minute that stop agents or end sessions, so that other requests can't prevent a stop.
pub(crate) const STOPS_PER_MINUTE: u32 = 60;

impl People {
    /// Both throttles share one counter, but requests that stop agents or end sessions have a higher limit.
    const fn user_request_throttle(&self, is_stop_request: bool) -> &Throttle {
        if is_stop_request {
            &self.stops
        } else {
            &self.authenticator.throttle
        }
    }

    /// Verifies an ID token. `is_stop_request` is whether the request stops an agent or ends a session.
    pub(crate) async fn authenticate_user(
        &self,
        credentials: (String, RequestSource),
        is_stop_request: bool,
    ) -> Result<Caller> {
        let (user, ()) = self
            .authenticate_user_and_read(credentials, is_stop_request, async |_| Ok(()))
            .await?;
        Ok(user)
    }

    /// Runs `read` while the throttle counts the request. `read` must not write, because the request may
    /// still be rejected.
    pub(crate) async fn authenticate_user_and_read<T>(
        &self,
        (token, source): (String, RequestSource),
        is_stop_request: bool,
        read: impl AsyncFnOnce(&Caller) -> Result<T>,
    ) -> Result<(Caller, T)> {
        let now = self.now();
        let user = self.sessions.verify_id_token(&token, now).await?.person;
        let user = Caller::new(user, None, source);
        let scope = ThrottleScope::for_user(&user.id);
        let found = async {
            let (ended_at, found) = tokio::join!(self.ledger.read_sign_in_cutoff_time(&user.id), read(&user));
            if ended_at?.is_some_and(|ended_at| user.signed_in_at <= ended_at) {
                info!(reason = "ended", person = %user.id, "session.refused");
                return Err(ErrorKind::InvalidSession.into());
            }
            found
        };
        let found = self
            .user_request_throttle(is_stop_request)
            .run_limited_by(scope, now, found)
            .await?;
        Ok((user, found))
    }

    /// Returns 401 `invalid_session` unless the session is open. `counts_as_activity` keeps the session from becoming idle.
    pub(crate) async fn require_open_session(
        &self,
        user: &UserId,
        id: &SessionId,
        counts_as_activity: bool,
        is_stop_request: bool,
    ) -> Result<Session> {
        let now = self.now();
        let session = self.ledger.read_session_by_id(user, id).await?;
        let open = session.filter(|session| {
            self.limits.is_open(session, now) && session.terms == self.sessions.settings_fingerprint()
        });
        let session = open.ok_or(ErrorKind::InvalidSession)?;
        let scope = ThrottleScope::for_user(&session.person);
        let noted = async {
            if counts_as_activity && now >= session.seen_at.after(PRECISION) {
                // If the use is not recorded, the session may end earlier.
                if let Err(error) = self.ledger.touch_session(&session, now).await {
                    warn!(cause = %error, "session.use_not_noted");
                }
            }
            Ok(())
        };
        self.user_request_throttle(is_stop_request)
            .run_limited_by(scope, now, noted)
            .await?;
        Ok(session)
    }

    /// Checks an agent key and its `permission` if given, and reads the decision inputs at the same time.
    pub(crate) async fn authenticate_agent_and_read_inputs(
        &self,
        caller: AgentCredentials,
        permission: impl Into<Option<Permission>>,
        keys: &DecisionKeys,
    ) -> Result<AuthenticatedCaller<DecisionInputs>> {
        let (now, key_use) = (self.now(), caller.key_use(permission));
        let call = self
            .authenticator
            .begin_call(caller.scope, caller.key, key_use, now)
            .await?;
        let read = self
            .ledger
            .read_decision_inputs(Reader::Unverified(&call.key, now), keys);
        let (agent, inputs) = self.authenticator.run_throttled(&call, read).await?;
        self.authenticator.verify_call(call, agent, inputs, self.now())
    }
}
