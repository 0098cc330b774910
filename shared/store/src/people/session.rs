//! Users' browser sessions: one row each, under the digest of the session's secret. Every request reads the row, so
//! deleting the row ends the session immediately in all instances. The code checks the times in a row, because TTL may
//! delete the row late.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fields::fields,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::table::{Query, delete_item, update_request},
    transact::{Transaction, TransactionOutcome, was_applied},
};
use purser_domain::{Error, Result, Session, SessionId, Timestamp, UserId};

/// A user's identity at the issuer. The user's id is a hash of both fields.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The issuer's URL.
    pub issuer: &'a str,
    /// The user's `sub` at the issuer.
    pub subject: &'a str,
}

/// The result of starting a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartSessionResult {
    /// The session is stored.
    Stored,
    /// All sessions of the user were ended at or after this sign-in. Nothing was written.
    SignedInTooEarly,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Person,
    Session,
    Audit,
}

const MAX_CONCURRENT: usize = 32;
/// The time in seconds for which an ended session's row is kept, because some clocks may be behind.
const RETENTION_SECS: u64 = 3_600;

impl Ledger {
    /// Stores a new session, unless all sessions of the user were ended at or after the sign-in.
    pub async fn start_session(
        &self,
        session: &Session,
        identity: Identity<'_>,
        audit: &AuditEntry,
    ) -> Result<StartSessionResult> {
        let user = self
            .update_item(&Key::user(&session.person))
            .update_expression("SET iss = :iss, #sub = :sub")
            .condition_expression("attribute_not_exists(nb) OR nb < :signed_in")
            .expression_attribute_names("#sub", "sub")
            .expression_attribute_values(":iss", identity.issuer.to_owned().write())
            .expression_attribute_values(":sub", identity.subject.to_owned().write())
            .expression_attribute_values(":signed_in", session.signed_in_at.write());
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Person, user)?;
        // The secret is random, so an existing row with this digest is the row of this session.
        transaction.add_put(Role::Session, self.put_item(write_session(session)))?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(StartSessionResult::Stored),
            // If the audit row exists already, an earlier attempt has stored the session, and the response to that
            // attempt was lost.
            TransactionOutcome::Refused(rejection) if rejection.has_failed(Role::Audit) => {
                Ok(StartSessionResult::Stored)
            }
            TransactionOutcome::Refused(_) => Ok(StartSessionResult::SignedInTooEarly),
        }
    }

    /// Reads a user's session, strongly consistent. The caller must check whether the session has expired.
    pub async fn read_session_by_id(&self, user: &UserId, id: &SessionId) -> Result<Option<Session>> {
        let item = self.get_item(&Key::session(user, id)).await?;
        item.map(|item| self.item_row(&item).read()).transpose()
    }

    /// Records the time at which a session was last used. An ended session stays ended.
    pub async fn touch_session(&self, session: &Session, now: Timestamp) -> Result<()> {
        let update = update_request(&self.db, &self.table, &Key::session(&session.person, &session.id))
            .update_expression("SET seen = :now")
            .condition_expression("attribute_exists(pk) AND seen < :now")
            .expression_attribute_values(":now", now.write());
        was_applied(update.send().await, "recording the use of a session")?;
        Ok(())
    }

    /// Reads a user's sessions that TTL has not deleted yet, strongly consistent, in any order.
    pub async fn read_sessions(&self, user: &UserId) -> Result<Vec<Session>> {
        let items = Query::new(&self.db, &self.table, key::user_partition(user))
            .prefix(key::SESSIONS)
            .consistent()
            .collect("listing sessions")
            .await?;
        items.iter().map(|item| self.item_row(item).read()).collect()
    }

    /// Ends a session. Returns whether the session existed.
    pub async fn end_session(&self, user: &UserId, id: &SessionId, audit: &AuditEntry) -> Result<bool> {
        let mut transaction = Transaction::new();
        transaction.add_delete_of_existing(Role::Session, &self.table, Key::session(user, id).attributes())?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        match transaction.send_until_outcome(&self.db, &mut Backoff::new()).await? {
            TransactionOutcome::Committed => Ok(true),
            // If the audit row exists already, an earlier attempt has ended the session, and the response to that
            // attempt was lost.
            TransactionOutcome::Refused(rejection) => Ok(rejection.has_failed(Role::Audit)),
        }
    }

    async fn delete_session(&self, session: &Session) -> Result<()> {
        delete_item(
            &self.db,
            &self.table,
            &Key::session(&session.person, &session.id),
            ENDING,
        )
        .await
    }

    /// Ends all sessions of a user, and prevents new sessions from an earlier sign-in. Returns the number of ended
    /// sessions. The time is written first, so that a session that starts concurrently is rejected or found.
    pub async fn end_sessions(&self, user: &UserId, now: Timestamp, audit: &AuditEntry) -> Result<usize> {
        let update = self
            .update_item(&Key::user(user))
            .update_expression("SET nb = :now")
            .condition_expression("attribute_not_exists(nb) OR nb < :now")
            .expression_attribute_values(":now", now.write());
        let mut transaction = Transaction::new();
        transaction.add_update(Role::Person, update)?;
        transaction.add_audit_rows(Role::Audit, audit)?;
        // If the condition fails, `nb` (the end of earlier sessions) is `now` or later already, so no write is needed.
        transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        let sessions = self.read_sessions(user).await?;
        for batch in sessions.chunks(MAX_CONCURRENT) {
            let mut ends = tokio::task::JoinSet::new();
            for session in batch {
                let (ledger, session) = (self.clone(), session.clone());
                ends.spawn(async move { ledger.delete_session(&session).await });
            }
            while let Some(ended) = ends.join_next().await {
                ended.map_err(|error| Error::internal(ENDING, error))??;
            }
        }
        Ok(sessions.len())
    }

    /// Reads the time up to which a user's sign-ins are invalid, because all sessions were ended.
    pub async fn read_sign_in_cutoff_time(&self, user: &UserId) -> Result<Option<Timestamp>> {
        match self.get_item(&Key::user(user)).await? {
            Some(item) => self.item_row(&item).get_optional("nb"),
            None => Ok(None),
        }
    }
}

fields! {
    Session {
        id: sk(key::parse_session),
        person: pk(key::parse_user),
        name: "name" optional,
        created_at: "created",
        seen_at: "seen",
        ends_at: "ends",
        signed_in_at: "auth",
        terms: "terms",
        user_agent: "ua" optional,
        address: "ip" optional,
        is_operator: "operator" or_default,
    }
}

pub(crate) fn write_session(session: &Session) -> Item {
    Draft::new(&Key::session(&session.person, &session.id))
        .with_fields(session)
        .with("ttl", &session.ends_at.secs().saturating_add(RETENTION_SECS))
        .into_item()
}

const ENDING: &str = "ending a session";
