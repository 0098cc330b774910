//! The authenticated user.

use purser_api::{MailClaim, Person};
use purser_domain::{Acting, Actor, ErrorKind, RequestSource, Result, SessionId, Timestamp, UserId};

/// The authenticated user who sent the request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The user's id. Agents and approvals store the id of their user in `owner`.
    pub(crate) id: UserId,
    /// The display name in the ID token; not unique.
    pub(crate) name: Option<String>,
    /// The issuer's claim about the user's email address; [`MailClaim::Absent`] for a browser session.
    pub(crate) mail: MailClaim,
    /// The time of the user's sign-in at the issuer.
    pub(crate) signed_in_at: Timestamp,
    /// The user as the actor in the audit log.
    pub(crate) acting: Acting,
}

impl Caller {
    /// Creates the caller of a request that a client or a key of the agent sends without the owner. The owner's last
    /// sign-in is unknown, so the request can widen no limit.
    pub(crate) fn for_actor_of_owner(
        owner: &str,
        actor: impl FnOnce(UserId) -> Actor,
        source: RequestSource,
    ) -> Result<Self> {
        let person = Person {
            id: UserId::parse(owner).ok_or(ErrorKind::NotFound)?,
            name: None,
            mail: MailClaim::Absent,
            signed_in_at: Timestamp::EPOCH,
        };
        let mut caller = Self::new(person, None, source);
        caller.acting.actor = actor(caller.id.clone());
        Ok(caller)
    }

    /// Creates the caller of a request. `session` is `None` for a request with an ID token.
    pub(crate) fn new(user: Person, session: Option<SessionId>, source: RequestSource) -> Self {
        Self {
            acting: Acting {
                actor: Actor::Person {
                    id: user.id.clone(),
                    session,
                },
                source,
            },
            id: user.id,
            name: user.name,
            mail: user.mail,
            signed_in_at: user.signed_in_at,
        }
    }
}
