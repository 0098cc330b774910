//! The sessions of people: one row each, in the partition of their person, under the digest of its secret.
//!
//! A session is where its row is: it ends by its deletion, in every environment at once, since each request reads it. The
//! person's own item says when all of them were ended, so that no sign-in of before begins one after. Nothing else
//! depends on what TTL deletes here: a row that it has not deleted yet is judged by its times.

use crate::{
    audit::entry::AuditEntry,
    codec::attribute::Attribute as _,
    codec::backoff::Backoff,
    codec::fault::failed,
    codec::item::{Draft, Item},
    codec::key::{self, Key},
    codec::ledger::Ledger,
    codec::transact::{Known, Transaction, was_made},
};
use purser_domain::{Error, PersonId, Result, Session, SessionId, Timestamp};

/// Who a person is at their issuer: what their id is the hash of.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The issuer.
    pub issuer: &'a str,
    /// Its name for the person.
    pub subject: &'a str,
}

/// The result of starting a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is stored.
    Stored,
    /// All sessions were ended after its sign-in; nothing was written.
    SignedInTooEarly,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Person,
    Session,
    Audit,
}

/// How many sessions are ended concurrently.
const AT_ONCE: usize = 32;
/// How long a row is kept after its end, for environments whose clocks are behind.
const KEPT_SECS: u64 = 3_600;

impl Ledger {
    /// Stores a new session, unless all of the person's were ended at or after its sign-in.
    pub async fn start_session(
        &self,
        session: &Session,
        identity: Identity<'_>,
        audit: &AuditEntry,
    ) -> Result<Started> {
        let person = self
            .update(&Key::person(&session.person))
            .update_expression("SET iss = :iss, #sub = :sub")
            .condition_expression("attribute_not_exists(nb) OR nb < :signed_in")
            .expression_attribute_names("#sub", "sub")
            .expression_attribute_values(":iss", identity.issuer.to_owned().write())
            .expression_attribute_values(":sub", identity.subject.to_owned().write())
            .expression_attribute_values(":signed_in", session.signed_in_at.write());
        let mut transaction = Transaction::new();
        transaction.update(Role::Person, person)?;
        // Its secret is random, so the only row that could be there is its own.
        transaction.put(Role::Session, self.put(write_session(session)))?;
        transaction.audit(Role::Audit, audit)?;
        match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
            Known::Committed => Ok(Started::Stored),
            // Its own row is there: an attempt whose response was lost had stored it.
            Known::Refused(refusal) if refusal.names(Role::Audit) => Ok(Started::Stored),
            Known::Refused(_) => Ok(Started::SignedInTooEarly),
        }
    }

    /// A person's session, strongly consistent; its times are not judged.
    pub async fn session(&self, person: &PersonId, id: &SessionId) -> Result<Option<Session>> {
        let item = self.get(&Key::session(person, id)).await?;
        item.map(|item| self.read_session(person, &item)).transpose()
    }

    /// Notes that a session is in use. One that was ended meanwhile stays ended.
    pub async fn touch_session(&self, session: &Session, now: Timestamp) -> Result<()> {
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(Key::session(&session.person, &session.id).attributes()))
            .update_expression("SET seen = :now")
            .condition_expression("attribute_exists(pk) AND seen < :now")
            .expression_attribute_values(":now", now.write());
        was_made(update.send().await, "noting the use of a session")?;
        Ok(())
    }

    /// A person's sessions that TTL has not deleted yet, strongly consistent, in any order.
    pub async fn sessions_of(&self, person: &PersonId) -> Result<Vec<Session>> {
        let items = self
            .db
            .query()
            .table_name(&*self.table)
            .consistent_read(true)
            .key_condition_expression("pk = :pk AND begins_with(sk, :kind)")
            .expression_attribute_values(":pk", key::person_partition(person).write())
            .expression_attribute_values(":kind", key::SESSIONS.to_owned().write())
            .into_paginator()
            .items()
            .send();
        let items: Result<Vec<Item>, _> = items.collect().await;
        let items = items.map_err(failed("listing sessions"))?;
        items.iter().map(|item| self.read_session(person, item)).collect()
    }

    /// Ends a session: whether it was there.
    pub async fn end_session(&self, person: &PersonId, id: &SessionId, audit: &AuditEntry) -> Result<bool> {
        let mut transaction = Transaction::new();
        transaction.delete_existing(Role::Session, &self.table, Key::session(person, id).attributes())?;
        transaction.audit(Role::Audit, audit)?;
        match transaction.send_until_known(&self.db, &mut Backoff::new()).await? {
            Known::Committed => Ok(true),
            // Its own row is there: an attempt whose response was lost had ended it.
            Known::Refused(refusal) => Ok(refusal.names(Role::Audit)),
        }
    }

    /// Deletes a session that the person's own item has ended already.
    async fn delete_session(&self, session: &Session) -> Result<()> {
        let delete = self
            .db
            .delete_item()
            .table_name(&*self.table)
            .set_key(Some(Key::session(&session.person, &session.id).attributes()));
        delete.send().await.map_err(failed(ENDING))?;
        Ok(())
    }

    /// Ends all sessions of a person, and lets none begin by a sign-in of before; how many there were.
    ///
    /// The time is written first: a session that is started meanwhile is refused by it, or is found and deleted.
    pub async fn end_sessions(&self, person: &PersonId, now: Timestamp, audit: &AuditEntry) -> Result<usize> {
        let update = self
            .update(&Key::person(person))
            .update_expression("SET nb = :now")
            .condition_expression("attribute_not_exists(nb) OR nb < :now")
            .expression_attribute_values(":now", now.write());
        let mut transaction = Transaction::new();
        transaction.update(Role::Person, update)?;
        transaction.audit(Role::Audit, audit)?;
        // A repetition finds its own time there, and goes on.
        transaction.send_until_known(&self.db, &mut Backoff::new()).await?;
        let sessions = self.sessions_of(person).await?;
        for batch in sessions.chunks(AT_ONCE) {
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

    /// When all sessions of a person were last ended, strongly consistent: no sign-in until then counts.
    pub async fn sessions_ended_at(&self, person: &PersonId) -> Result<Option<Timestamp>> {
        match self.get(&Key::person(person)).await? {
            Some(item) => self.row(&item).get_optional("nb"),
            None => Ok(None),
        }
    }

    fn read_session(&self, person: &PersonId, item: &Item) -> Result<Session> {
        let row = self.row(item);
        let id = key::sort_key(item).strip_prefix(key::SESSIONS);
        Ok(Session {
            id: id.and_then(SessionId::parse).ok_or_else(|| row.corrupt("sk"))?,
            person: person.clone(),
            name: row.get_optional("name")?,
            created_at: row.get("created")?,
            seen_at: row.get("seen")?,
            ends_at: row.get("ends")?,
            signed_in_at: row.get("auth")?,
            terms: row.get("terms")?,
            user_agent: row.get_optional("ua")?,
            address: row.get_optional("ip")?,
            is_operator: row.get_optional("operator")?.unwrap_or(false),
        })
    }
}

fn write_session(session: &Session) -> Item {
    Draft::of(&Key::session(&session.person, &session.id))
        .with_optional("name", session.name.as_ref())
        .with("created", &session.created_at)
        .with("seen", &session.seen_at)
        .with("ends", &session.ends_at)
        .with("auth", &session.signed_in_at)
        .with("terms", &session.terms)
        .with_optional("ua", session.user_agent.as_ref())
        .with_optional("ip", session.address.as_ref())
        .with_optional("operator", session.is_operator.then_some(&true))
        .with("ttl", &session.ends_at.secs().saturating_add(KEPT_SECS))
        .into_item()
}

const ENDING: &str = "ending a session";
