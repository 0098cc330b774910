//! The calling person, with the time of their sign-in and the source of the request.

use purser_api::{MailClaim, Person};
use purser_domain::{Acting, Actor, PersonId, RequestSource, SessionId, Timestamp};

/// An authenticated person who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The person's id, which is the owner of records.
    pub(crate) id: PersonId,
    /// The display name.
    pub(crate) name: Option<String>,
    /// The issuer's claim about the mail address, if the caller has an ID token.
    pub(crate) mail: MailClaim,
    /// The time of the sign-in at the issuer.
    pub(crate) signed_in_at: Timestamp,
    /// The actor in the audit log.
    pub(crate) acting: Acting,
}

impl Caller {
    /// A person who calls in this session, or with an ID token if `session` is `None`.
    pub(crate) fn new(person: Person, session: Option<SessionId>, source: RequestSource) -> Self {
        Self {
            acting: Acting {
                actor: Actor::Person {
                    id: person.id.clone(),
                    session,
                },
                source,
            },
            id: person.id,
            name: person.name,
            mail: person.mail,
            signed_in_at: person.signed_in_at,
        }
    }
}
