//! Operations that start, list and end a user's dashboard sessions.

use crate::caller::Caller;
use crate::state::People;
use purser_api::IdToken;
use purser_domain::{
    Act, Acting, Actor, AuditChanges, AuditFields, AuditKind, AuditRejection, ErrorKind, RequestSource, Result,
    Session, SessionId, UserId,
};
use purser_store::{Identity, StartSessionResult};
use std::cmp::Reverse;
use tracing::info;

/// Longer texts are truncated to this number of characters.
const MAX_CHARS: usize = 200;

impl People {
    /// Starts a session. Returns `SignedInTooEarly` if the user has ended all sessions since the sign-in.
    pub(crate) async fn start_session(
        &self,
        id_token: &IdToken,
        secret: &str,
        source: RequestSource,
    ) -> Result<StartSessionResult> {
        let now = self.now();
        let session = Session {
            id: SessionId::from_secret(secret),
            person: id_token.person.id.clone(),
            name: id_token.person.name.as_deref().map(truncate_text),
            created_at: now,
            seen_at: now,
            ends_at: now.after(self.limits.longest),
            signed_in_at: id_token.person.signed_in_at,
            terms: self.sessions.settings_fingerprint(),
            user_agent: source.user_agent.clone(),
            address: source.address.clone(),
            is_operator: id_token.is_operator,
        };
        let identity = Identity {
            issuer: self.sessions.issuer(),
            subject: &id_token.subject,
        };
        let acting = Acting {
            actor: Actor::Person {
                id: session.person.clone(),
                session: Some(session.id.clone()),
            },
            source,
        };
        let action = Act::new(AuditKind::SessionStarted).with_object(&session.id);
        let times = [("signed_in_at", session.signed_in_at), ("ends_at", session.ends_at)];
        let times = times.map(|(name, at)| (name.to_owned(), at.to_string().into()));
        let operator = session.is_operator.then(|| ("is_operator".to_owned(), true.into()));
        let result: AuditFields = times.into_iter().chain(operator).collect();
        let entry = self.audit_entry(&acting, &action, AuditChanges::between(None, Some(result)))?;
        let started = self.ledger.start_session(&session, identity, &entry).await?;
        match started {
            StartSessionResult::Stored => {
                info!(person = %session.person, session = %session.id, "session.started");
                self.try_store_mail_address(&session.person, &id_token.person.mail, self.now())
                    .await;
            }
            StartSessionResult::SignedInTooEarly => {
                self.reject_sign_in(&session.person, acting.source, "ended").await?;
            }
        }
        Ok(started)
    }

    /// Logs a rejected sign-in and writes an audit row for it.
    pub(crate) async fn reject_sign_in(
        &self,
        user: &UserId,
        source: RequestSource,
        reason: &'static str,
    ) -> Result<()> {
        info!(reason, person = %user, "sign_in.refused");
        let acting = Acting {
            actor: Actor::Person {
                id: user.clone(),
                session: None,
            },
            source,
        };
        let rejection = AuditRejection::new(ErrorKind::InvalidSession.slug(), reason);
        self.record_rejection(&acting, &Act::new(AuditKind::SessionStarted), rejection)
            .await
    }

    /// Lists the user's open sessions, newest first.
    pub(crate) async fn list_sessions(&self, user: &UserId) -> Result<Vec<Session>> {
        let (now, terms) = (self.now(), self.sessions.settings_fingerprint());
        let mut sessions = self.ledger.read_sessions(user).await?;
        sessions.retain(|session| self.limits.is_open(session, now) && session.terms == terms);
        sessions.sort_by_key(|session| Reverse(session.created_at));
        Ok(sessions)
    }

    /// Returns `not_found` for another user's session and for an unknown id.
    pub(crate) async fn end_session(&self, user: &Caller, id: &SessionId) -> Result<()> {
        let action = Act::new(AuditKind::SessionEnded).with_object(id);
        let ended = async {
            let was_there = self.end_session_if_open(&user.acting, &user.id, id).await?;
            if was_there {
                Ok(())
            } else {
                Err(ErrorKind::NotFound.into())
            }
        };
        self.audit_rejection(&user.acting, &action, ended).await
    }

    /// Returns whether the session existed.
    pub(crate) async fn end_session_if_open(&self, acting: &Acting, user: &UserId, id: &SessionId) -> Result<bool> {
        let action = Act::new(AuditKind::SessionEnded).with_object(id);
        let entry = self.audit_entry(acting, &action, AuditChanges::default())?;
        let was_there = self.ledger.end_session(user, id, &entry).await?;
        if was_there {
            info!(person = %user, session = %id, "session.ended");
        }
        Ok(was_there)
    }

    /// Ends all of the user's sessions, and invalidates earlier ID tokens. Returns the number of ended sessions.
    pub(crate) async fn end_sessions(&self, user: &Caller) -> Result<usize> {
        let action = Act::new(AuditKind::SessionsEnded);
        let entry = self.audit_entry(&user.acting, &action, AuditChanges::default())?;
        let ended = self.ledger.end_sessions(&user.id, self.now(), &entry).await?;
        info!(person = %user.id, ended, "session.all_ended");
        Ok(ended)
    }
}

fn truncate_text(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}
