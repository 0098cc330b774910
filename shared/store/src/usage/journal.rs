//! The entries of the decision history: one for each decision about a payment of an owner's agents, in the order of
//! time.
//!
//! An entry is a copy of a row of the ledger or decisions table (`JournalEntry::new`) under the owner and the time, so
//! that one query reads the decisions of all agents of an owner. Blocked and escalated requests and reverted
//! confirmations have a second copy in a separate partition, because they are rare among many payments.
//!
//! Invariant: an entry has the sequence number of the record from which it was written, and only a later record
//! replaces it. All repetitions of records therefore have the same result.

use crate::{
    codec::{
        attribute::{Item, text},
        fault::store_error,
        fields::fields,
        item::{Draft, Row},
        key::{newest, sort_key},
    },
    page::{Filter, Page, PageRequest, page_of},
    stream::sequence::SequenceNumber,
    transact::was_made,
    usage::{
        key::{self, JournalPart},
        table::UsageTable,
    },
};
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use purser_domain::{
    JournalEntry, LimitUse, PaymentEntry, PersonId, RefusalEntry, Result, SettlementId, SettlementState, Timestamp,
    TxHash,
};
use uuid::Uuid;

/// The maximum number of read calls for a filtered page, of [`ROWS`] entries each.
pub const JOURNAL_READS: u32 = 2;
/// The number of entries in one read of a filtered page. An entry has some 450 bytes, so two reads take ten read units.
const ROWS: u32 = 80;

const WRITING: &str = "writing the journal";
const READING: &str = "reading the journal";

/// An entry with the sequence number of its record; `None` if a rebuild wrote the entry.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntry {
    pub(crate) entry: JournalEntry,
    pub(crate) sequence: Option<SequenceNumber>,
}

impl UsageTable {
    /// Reads a page of an owner's decision history, newest first, eventually consistent. The page has only entries that
    /// `keep` keeps. At most 160 entries are read, so a page may be short even if more pages follow.
    pub async fn journal(
        &self,
        owner: &PersonId,
        part: JournalPart,
        slice: PageRequest<Uuid>,
        keep: Option<impl Fn(&JournalEntry) -> Filter>,
    ) -> Result<Page<JournalEntry, Uuid>> {
        let read = |before, count| async move {
            let entries = self.entries_before(owner, part, before, count, false).await?;
            Ok(entries.into_iter().map(|stored| stored.entry).collect())
        };
        page_of(slice, (JOURNAL_READS, ROWS), keep, |entry| entry.place, read).await
    }

    /// Reads the entry of a decision: at this position, or with this transaction id. Takes half a read unit.
    pub async fn entry_of(&self, owner: &PersonId, id: Uuid) -> Result<Option<JournalEntry>> {
        // The ids of a payment's decision and of its settlement begin with the same time.
        let [first, last] = instant_of(id);
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND sk BETWEEN :first AND :last")
            .expression_attribute_values(":pk", text(&key::journal_partition(owner, JournalPart::All)))
            .expression_attribute_values(":first", text(&first.to_string()))
            .expression_attribute_values(":last", text(&last.to_string()));
        let answer = query.send().await.map_err(store_error(READING))?;
        for item in answer.items() {
            let entry = self.read_entry(item)?.entry;
            if entry.place == id || entry.transaction.uuid() == id {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Reads up to ten entries that a transaction on the chain confirmed. Takes half a read unit, and half for each
    /// entry.
    pub async fn entries_of_transaction(&self, owner: &PersonId, hash: TxHash) -> Result<Vec<JournalEntry>> {
        let query = self
            .db
            .query()
            .table_name(&*self.table)
            .key_condition_expression("pk = :pk AND begins_with(sk, :hash)")
            .expression_attribute_values(":pk", text(&key::transactions_partition(owner)))
            .expression_attribute_values(":hash", text(&key::of_transaction(hash)))
            .limit(10);
        let answer = query.send().await.map_err(store_error(READING))?;
        let mut entries = Vec::new();
        for item in answer.items() {
            let row = Row::new(&self.table, item);
            let settlement = key::parse_transaction(sort_key(item)).ok_or_else(|| row.corrupt("sk"))?;
            let entry = self.entry_of(owner, settlement.uuid()).await?;
            // The transaction's block may have been replaced, and another transaction may have confirmed the payment.
            entries.extend(entry.filter(|entry| entry.state().and_then(SettlementState::tx_hash) == Some(hash)));
        }
        Ok(entries)
    }

    pub(super) async fn entries_before(
        &self,
        owner: &PersonId,
        part: JournalPart,
        before: Option<Uuid>,
        count: u32,
        is_consistent: bool,
    ) -> Result<Vec<StoredEntry>> {
        let query = self.db.query().table_name(&*self.table);
        let query = newest(query, key::journal_partition(owner, part), before, count).consistent_read(is_consistent);
        let answer = query.send().await.map_err(store_error(READING))?;
        answer.items().iter().map(|item| self.read_entry(item)).collect()
    }

    /// Stores an entry, unless a later record was added before. An entry without a settlement is stored in both parts.
    pub(super) async fn put_entry(
        &self,
        owner: &PersonId,
        entry: &JournalEntry,
        sequence: &SequenceNumber,
    ) -> Result<()> {
        for part in parts_of(entry) {
            let put = self.putting(owner, *part, entry, Some(sequence));
            let put = put
                .condition_expression("attribute_not_exists(seq) OR seq < :seq")
                .expression_attribute_values(":seq", text(&sequence.to_string()));
            was_made(put.send().await, WRITING)?;
        }
        self.put_transaction(owner, entry).await
    }

    /// Stores the row that leads from the transaction to the entry, if a transaction confirmed the payment.
    pub(super) async fn put_transaction(&self, owner: &PersonId, entry: &JournalEntry) -> Result<()> {
        let Some(hash) = entry.state().and_then(SettlementState::tx_hash) else {
            return Ok(());
        };
        let row = Draft::new(&key::transaction(owner, hash, SettlementId::from_uuid(entry.place)))
            .with_optional("ttl", self.ends_at(entry).as_ref());
        let put = self
            .db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()));
        put.send().await.map_err(store_error(WRITING))?;
        Ok(())
    }

    /// Creates the put of an entry into a part, without a condition.
    pub(super) fn putting(
        &self,
        owner: &PersonId,
        part: JournalPart,
        entry: &JournalEntry,
        sequence: Option<&SequenceNumber>,
    ) -> PutItemFluentBuilder {
        let row =
            Draft::of_partition(key::journal_partition(owner, part)).with_optional("ttl", self.ends_at(entry).as_ref());
        let row = row
            .with_value("sk", text(&entry.place.to_string()))
            .with_optional("seq", sequence)
            .with_fields(entry);
        self.db
            .put_item()
            .table_name(&*self.table)
            .set_item(Some(row.into_item()))
    }

    /// Returns the time at which an entry is deleted, in seconds; `None` if it is never deleted. The first write of an
    /// entry sets this time for all later writes.
    fn ends_at(&self, entry: &JournalEntry) -> Option<u64> {
        self.journal_kept.map(|kept| entry.at.after(kept).secs())
    }

    pub(crate) fn read_entry(&self, item: &Item) -> Result<StoredEntry> {
        Row::new(&self.table, item).read()
    }
}

/// Returns the first and the last id with the same time as this id.
fn instant_of(id: Uuid) -> [Uuid; 2] {
    /// A mask for the random half of a `UUIDv7`.
    const RANDOM: u128 = (1 << 64) - 1;
    [
        Uuid::from_u128(id.as_u128() & !RANDOM),
        Uuid::from_u128(id.as_u128() | RANDOM),
    ]
}

/// Returns the parts of the decision history that contain the entry.
pub(super) const fn parts_of(entry: &JournalEntry) -> &'static [JournalPart] {
    if entry.payment.is_some() {
        &[JournalPart::All]
    } else {
        // The list of all entries comes last, so if it has an entry, the other part has it too.
        &[JournalPart::Refusals, JournalPart::All]
    }
}

fields! {
    StoredEntry { entry: part, sequence: "seq" optional }

    JournalEntry {
        place: sk(|sk| Uuid::try_parse(sk).ok()),
        agent: "agent",
        agent_name: "name",
        labels: "labels" or_default,
        transaction: "txid",
        result: "result",
        at: "t",
        key: "kid" optional,
        service: "svc" optional,
        operation: "op" optional,
        amount: "amt",
        pay_to: "payto",
        reason: "reason",
        policy_version: "pver" optional,
        approval: "apid" optional,
        refusal: part_if("error"),
        payment: part_if("rs"),
        reverted: "sid" optional,
    }

    RefusalEntry {
        error: "error",
        rule: "rule",
        hostname: "host" optional,
        limit: "limit" optional,
        used: "used" optional,
        latency_ms: "ms",
    }

    PaymentEntry { network: "net", wallet: "wallet", valid_before: "vb", state: part, nearest: part_if("limit") }

    LimitUse { limit: "limit", used: "used" }
}

/// Returns the time of the entry's last change, as far as it is known: a release happens after `validBefore`.
pub(super) fn last_change(entry: &JournalEntry) -> Timestamp {
    match entry
        .payment
        .as_ref()
        .map(|payment| (&payment.state, payment.valid_before))
    {
        None | Some((SettlementState::Authorized, _)) => entry.at,
        Some((SettlementState::Confirmed { settled_at, .. }, _)) => *settled_at,
        Some((SettlementState::Expired, valid_before)) => valid_before,
    }
}
