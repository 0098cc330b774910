//! The audit table: reads rows, and adds rows without a transaction.

use crate::{
    audit::entry::{AuditEntry, BY_CLIENT, BY_KEY, BY_RULE, row_digest},
    codec::backoff::Backoff,
    codec::item::{Item, Row},
    codec::key::{self, Key},
    codec::table::{Query, get_item},
    page::{Filter, Page, PageRequest, READS, read_page},
    transact::{Transaction, was_applied},
};
use aws_sdk_dynamodb::Client;
use purser_domain::{Actor, AuditFilter, AuditId, AuditRecord, AuditScope, Error, Fingerprint, Result};
use std::sync::Arc;
use tokio::task::JoinSet;
use uuid::Uuid;

/// A client of the audit table.
#[derive(Clone, Debug)]
pub struct AuditLog {
    db: Client,
    table: Arc<str>,
}

/// A stored row of the audit table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// The recorded action.
    pub record: AuditRecord,
    /// The row's SHA-256, which the log line about the row also contains.
    pub sha256: Fingerprint,
}

impl AuditLog {
    /// Creates a client of the audit table with the name `table`.
    pub fn new(db: Client, table: impl Into<Arc<str>>) -> Self {
        Self {
            db,
            table: table.into(),
        }
    }

    /// Creates the audit row of an audit record. The caller writes the row in the transaction of the recorded change.
    pub fn new_entry(&self, record: &AuditRecord) -> AuditEntry {
        AuditEntry::new(Arc::clone(&self.table), record)
    }

    /// Adds the audit row of an action that changes nothing, for example a rejected action.
    pub async fn add_row(&self, record: &AuditRecord) -> Result<()> {
        let entry = self.new_entry(record);
        let put = self
            .db
            .put_item()
            .table_name(entry.table_name())
            .set_item(Some(entry.to_item()))
            .condition_expression(AuditEntry::IS_NEW);
        // The audit row's id is random. If the row exists already, an earlier attempt has written the row, and the
        // response to that attempt was lost.
        was_applied(put.send().await, "writing an audit row")?;
        entry.log_audit_rows();
        Ok(())
    }

    /// Runs `work` and returns the result. If `audit_record` returns a record for an error, the record is stored first.
    pub async fn audit_rejection<T>(
        &self,
        work: impl Future<Output = Result<T>>,
        audit_record: impl FnOnce(&Error) -> Result<Option<AuditRecord>>,
    ) -> Result<T> {
        let result = work.await;
        if let Err(error) = &result
            && let Some(record) = audit_record(error)?
        {
            self.add_row(&record).await?;
        }
        result
    }

    /// Adds the audit rows of a finding, such as an unexplained transfer, unless the rows exist. Writes no other row.
    pub async fn add_entry_if_absent(&self, entry: &AuditEntry) -> Result<()> {
        let mut transaction = Transaction::new();
        transaction.add_audit_rows((), entry)?;
        // If the conditions fail, the rows already exist.
        let _there = transaction.send_until_outcome(&self.db, &mut Backoff::new()).await?;
        Ok(())
    }

    /// Returns whether the actor has an audit row with this id. The read is strongly consistent.
    pub async fn has_row(&self, actor: &Actor, id: AuditId) -> Result<bool> {
        let item = get_item(&self.db, &self.table, &Key::audit(actor, id), "reading the audit log").await?;
        Ok(item.is_some())
    }

    /// Reads a page of the audit rows that `scope` covers and that match the filter, newest first.
    pub async fn read_page(
        &self,
        scope: &AuditScope,
        filter: AuditFilter,
        page_request: PageRequest<Uuid>,
    ) -> Result<Page<AuditRow, Uuid>> {
        let keep = |row: &AuditRow| {
            let is_earlier = filter.from.is_some_and(|from| row.record.at < from);
            if is_earlier {
                Filter::Stop
            } else {
                Filter::keep_if(filter.matches(&row.record))
            }
        };
        // Audit ids are `UUIDv7`s, so the first id at the time `to` follows all ids before `to`.
        let end = filter.to.map(|to| AuditId::first_at(to).uuid());
        let request = PageRequest {
            before: page_request.before.into_iter().chain(end).min(),
            ..page_request
        };
        let is_filtered = filter != AuditFilter::default();
        let place = |row: &AuditRow| row.record.id.uuid();
        let read = |before, count| self.read_rows(scope, before, count);
        read_page(request, READS, is_filtered.then_some(keep), place, read).await
    }

    /// Reads up to `limit` audit rows of `scope`, newest first. `before` excludes the rows at or after this id.
    async fn read_rows(&self, scope: &AuditScope, before: Option<Uuid>, limit: u32) -> Result<Vec<AuditRow>> {
        let mut reads = JoinSet::new();
        for partition in key::audit_partitions(scope) {
            let log = self.clone();
            reads.spawn(async move { log.read_partition_rows(partition, before, limit).await });
        }
        let mut rows = Vec::new();
        while let Some(read) = reads.join_next().await {
            rows.extend(read.map_err(|error| Error::internal("reading the audit log", error))??);
        }
        rows.sort_by_key(|row: &AuditRow| std::cmp::Reverse(row.record.id.uuid()));
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(rows)
    }

    async fn read_partition_rows(&self, partition: String, before: Option<Uuid>, limit: u32) -> Result<Vec<AuditRow>> {
        let response = Query::new(&self.db, &self.table, partition)
            .newest_page(before, limit)
            .send("reading the audit log")
            .await?;
        let items = response.items().iter();
        items
            .map(|item| {
                Ok(AuditRow {
                    record: read_record(Row::new(&self.table, item), item)?,
                    sha256: row_digest(item),
                })
            })
            .collect()
    }
}

pub(crate) fn read_record(row: Row<'_>, item: &Item) -> Result<AuditRecord> {
    let id = AuditId::parse(key::sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
    let owner = key::find_actor_id(item);
    let actor = if let Some(owner) = owner.clone().filter(|_| item.contains_key(BY_RULE)) {
        Actor::Rule { owner }
    } else if let Some(owner) = owner.clone().filter(|_| item.contains_key(BY_CLIENT)) {
        Actor::Client { owner }
    } else if let Some((owner, key)) = owner.clone().zip(row.get_optional(BY_KEY)?) {
        Actor::Agent { owner, key }
    } else if let Some(user) = owner {
        Actor::Person {
            id: user,
            session: row.get_optional("session")?,
        }
    } else {
        row.get_optional("op")?.map_or(Actor::Reconcile, Actor::Operator)
    };
    Ok(AuditRecord {
        id,
        at: row.get("t")?,
        actor,
        source: row.read()?,
        act: row.read()?,
        outcome: row.read()?,
    })
}
