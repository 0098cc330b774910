//! Who calls: a person, how they showed who they are, and where they call from.

use purser_api::{MailClaim, Person};
use purser_domain::{Acting, Actor, PersonId, RequestSource, SessionId, Timestamp};

/// A person who calls, authenticated.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Who: the owner of records.
    pub(crate) id: PersonId,
    /// The display name.
    pub(crate) name: Option<String>,
    /// The issuer's claim about the mail address, if the caller has an ID token.
    pub(crate) mail: MailClaim,
    /// When they showed the issuer who they are.
    pub(crate) signed_in_at: Timestamp,
    /// The actor in the audit log.
    pub(crate) acting: Acting,
}

impl Caller {
    /// The person, calling in this session, or with an ID token.
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
