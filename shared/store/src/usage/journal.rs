//! The entries of the decision history: copies of the decisions about payments, by owner and time. Only a later stream
//! record replaces an entry, so repeated records change nothing.

use crate::{
    codec::{
        attribute::{Item, encode_text},
        fields::fields,
        item::{Draft, Row},
        key::{Key, sort_key_text},
        table::{Query, put_item, put_request},
    },
    page::{Filter, Page, PageRequest, read_page_with_batch_size},
    stream::sequence::SequenceNumber,
    transact::was_applied,
    usage::{
        key::{self, HistoryPart},
        table::UsageTable,
    },
};
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use purser_domain::{
    HistoryDenial, HistoryEntry, HistoryPayment, LimitUse, Result, SettlementId, SettlementState, Timestamp, TxHash,
    UserId,
};
use uuid::Uuid;

/// The maximum number of reads for a filtered page, of up to 80 entries each.
pub const JOURNAL_READS: u32 = 2;
/// The number of entries per read of a filtered page. An entry takes about 450 bytes.
const ROWS: u32 = 80;

const WRITING: &str = "writing the decision history";
const READING: &str = "reading the decision history";

/// An entry with the sequence number of the stream record; `None` if a rebuild wrote the entry.
#[derive(Clone, Debug)]
pub(crate) struct StoredEntry {
    pub(crate) entry: HistoryEntry,
    pub(crate) sequence: Option<SequenceNumber>,
}

impl UsageTable {
    /// Reads a page of an owner's decision history, newest first, eventually consistent. `filter` selects the entries.
    /// A page may be short even if more pages follow.
    pub async fn read_history_page(
        &self,
        owner: &UserId,
        part: HistoryPart,
        page_request: PageRequest<Uuid>,
        filter: Option<impl Fn(&HistoryEntry) -> Filter>,
    ) -> Result<Page<HistoryEntry, Uuid>> {
        let read = |before, count| async move {
            let entries = self.read_entries_before(owner, part, before, count, false).await?;
            Ok(entries.into_iter().map(|stored| stored.entry).collect())
        };
        read_page_with_batch_size(page_request, (JOURNAL_READS, ROWS), filter, |entry| entry.place, read).await
    }

    /// Reads the entry of a decision, by position or by transaction id. Takes half a read unit.
    pub async fn find_entry(&self, owner: &UserId, id: Uuid) -> Result<Option<HistoryEntry>> {
        // The ids of a decision and of the settlement begin with the same time.
        let [first, last] = id_range_with_same_time(id);
        let response = Query::new(&self.db, &self.table, key::history_partition(owner, HistoryPart::All))
            .range(first.to_string(), last.to_string())
            .send(READING)
            .await?;
        for item in response.items() {
            let entry = self.read_history_entry(item)?.entry;
            if entry.place == id || entry.transaction.uuid() == id {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Reads up to ten entries of payments that an on-chain transaction confirmed. Takes half a read unit, and half per
    /// entry.
    pub async fn find_entries_by_transaction(&self, owner: &UserId, hash: TxHash) -> Result<Vec<HistoryEntry>> {
        let response = Query::new(&self.db, &self.table, key::transactions_partition(owner))
            .prefix(key::transaction_prefix(hash))
            .limit(10)
            .send(READING)
            .await?;
        let mut entries = Vec::new();
        for item in response.items() {
            let row = Row::new(&self.table, item);
            let settlement =
                key::parse_settlement_sort_key(sort_key_text(item)).ok_or_else(|| row.corrupt_error("sk"))?;
            let entry = self.find_entry(owner, settlement.uuid()).await?;
            // Another transaction may confirm the entry now, because this transaction's block may have been replaced.
            entries.extend(
                entry.filter(|entry| entry.settlement_state().and_then(SettlementState::tx_hash) == Some(hash)),
            );
        }
        Ok(entries)
    }

    pub(super) async fn read_entries_before(
        &self,
        owner: &UserId,
        part: HistoryPart,
        before: Option<Uuid>,
        count: u32,
        is_consistent: bool,
    ) -> Result<Vec<StoredEntry>> {
        let response = Query::new(&self.db, &self.table, key::history_partition(owner, part))
            .newest_page(before, count)
            .consistent_if(is_consistent)
            .send(READING)
            .await?;
        response
            .items()
            .iter()
            .map(|item| self.read_history_entry(item))
            .collect()
    }

    /// Stores an entry, unless the stored entry is from the same or a later stream record.
    pub(super) async fn put_history_entry(
        &self,
        owner: &UserId,
        entry: &HistoryEntry,
        sequence: &SequenceNumber,
    ) -> Result<()> {
        for part in history_parts(entry) {
            let put = self.put_entry_request(owner, *part, entry, Some(sequence));
            let put = put
                .condition_expression("attribute_not_exists(seq) OR seq < :seq")
                .expression_attribute_values(":seq", encode_text(&sequence.to_string()));
            was_applied(put.send().await, WRITING)?;
        }
        self.put_transaction(owner, entry).await
    }

    /// Stores the row that maps the transaction to the entry, if a transaction confirmed the payment.
    pub(super) async fn put_transaction(&self, owner: &UserId, entry: &HistoryEntry) -> Result<()> {
        let Some(hash) = entry.settlement_state().and_then(SettlementState::tx_hash) else {
            return Ok(());
        };
        let row = Draft::new(&Key::transaction_entry(
            owner,
            hash,
            SettlementId::from_uuid(entry.place),
        ))
        .with_optional("ttl", self.expires_at_secs(entry).as_ref());
        put_item(&self.db, &self.table, row.into_item(), WRITING).await
    }

    /// Creates a `PutItem` request for an entry in one of the owner's lists, without a condition.
    pub(super) fn put_entry_request(
        &self,
        owner: &UserId,
        part: HistoryPart,
        entry: &HistoryEntry,
        sequence: Option<&SequenceNumber>,
    ) -> PutItemFluentBuilder {
        let row = Draft::with_partition_key(key::history_partition(owner, part))
            .with_optional("ttl", self.expires_at_secs(entry).as_ref());
        let row = row
            .with_value("sk", encode_text(&entry.place.to_string()))
            .with_optional("seq", sequence)
            .with_fields(entry);
        put_request(&self.db, &self.table, row.into_item())
    }

    /// Returns the time at which an entry is deleted, in seconds; `None` if the entry is never deleted.
    fn expires_at_secs(&self, entry: &HistoryEntry) -> Option<u64> {
        self.journal_kept.map(|kept| entry.at.after(kept).secs())
    }

    pub(crate) fn read_history_entry(&self, item: &Item) -> Result<StoredEntry> {
        Row::new(&self.table, item).read()
    }
}

fn id_range_with_same_time(id: Uuid) -> [Uuid; 2] {
    /// A mask for the random half of a `UUIDv7`.
    const RANDOM: u128 = (1 << 64) - 1;
    [
        Uuid::from_u128(id.as_u128() & !RANDOM),
        Uuid::from_u128(id.as_u128() | RANDOM),
    ]
}

/// Returns the lists of the decision history that contain an entry.
pub(super) const fn history_parts(entry: &HistoryEntry) -> &'static [HistoryPart] {
    if entry.payment.is_some() {
        &[HistoryPart::All]
    } else {
        // The list of all entries is written last, so these entries are also in the other list.
        &[HistoryPart::Refusals, HistoryPart::All]
    }
}

fields! {
    StoredEntry { entry: part, sequence: "seq" optional }

    HistoryEntry {
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

    HistoryDenial {
        error: "error",
        rule: "rule",
        hostname: "host" optional,
        limit: "limit" optional,
        used: "used" optional,
        latency_ms: "ms",
    }

    HistoryPayment { network: "net", wallet: "wallet", valid_before: "vb", state: part, nearest: part_if("limit") }

    LimitUse { limit: "limit", used: "used" }
}

/// The time of a release is not known, so `validBefore` is returned for a released payment.
pub(super) fn last_change_time(entry: &HistoryEntry) -> Timestamp {
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
