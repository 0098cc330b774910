//! Stores the texts of the last few paid responses of each scope, so that the caller can read the rest of a text later.
//! A text is stored in chunks. Each text has a nonce, a random id that all chunks of the text contain. A reader
//! requests a text by the nonce, and so never gets a mixture of two texts.

use crate::{
    codec::attribute::Attribute as _,
    codec::fault::store_error,
    codec::item::{Draft, Item, read_field},
    codec::key,
    people::throttle::RETENTION_SECS,
};
use aws_sdk_dynamodb::{
    Client,
    primitives::Blob,
    types::{AttributeValue, ReturnValue},
};
use purser_domain::{Duration, Result, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

/// The maximum number of bytes of a text in one chunk. Each chunk is a DynamoDB item, which has at most 400 KB.
const CHUNK_BYTES: usize = 256 * 1024;

/// A store for the texts of paid responses. Each scope, for example an agent key, has separate slots for texts.
#[derive(Clone, Debug)]
pub struct KeptResponses {
    db: Client,
    table: Arc<str>,
    slots: u8,
    kept_for: Duration,
}

impl KeptResponses {
    /// Creates the store of the Lambda function `mcp`. The store keeps the last `slots` responses of each scope, each
    /// for the duration `retention`.
    pub fn for_mcp(db: &Client, table: impl Into<Arc<str>>, slots: u8, retention: Duration) -> Self {
        Self {
            db: db.clone(),
            table: table.into(),
            slots,
            kept_for: retention,
        }
    }

    /// Stores a text in the scope's next slot, in place of the scope's oldest text. Returns the slot's number.
    pub async fn store_text_in_next_slot(&self, scope: &str, nonce: Uuid, text: &str, now: Timestamp) -> Result<u8> {
        let slot = self.reserve_response_slot(scope, now).await?;
        let until = now.after(self.kept_for);
        let total = u64::try_from(text.len()).unwrap_or(u64::MAX);
        for (index, chunk) in text.as_bytes().chunks(CHUNK_BYTES).enumerate() {
            let update = self
                .db
                .update_item()
                .table_name(&*self.table)
                .set_key(Some(chunk_key(scope, slot, index)))
                .update_expression("SET #body = :body, #nonce = :nonce, #total = :total, #until = :until, #ttl = :ttl")
                .expression_attribute_names("#body", BODY)
                .expression_attribute_names("#nonce", NONCE)
                .expression_attribute_names("#total", TOTAL)
                .expression_attribute_names("#until", UNTIL)
                .expression_attribute_names("#ttl", "ttl")
                .expression_attribute_values(":body", AttributeValue::B(Blob::new(chunk)))
                .expression_attribute_values(":nonce", AttributeValue::B(Blob::new(nonce.into_bytes())))
                .expression_attribute_values(":total", total.write())
                .expression_attribute_values(":until", until.write())
                .expression_attribute_values(":ttl", until.secs().write());
            update.send().await.map_err(store_error("storing a response"))?;
        }
        Ok(slot)
    }

    /// Reads at most `max_bytes` bytes of the text from the byte `offset` on. Also returns the size of the whole text in
    /// bytes. Returns `None` if the text with this nonce is no longer stored.
    pub async fn read_text(
        &self,
        scope: &str,
        slot: u8,
        nonce: Uuid,
        (offset, max_bytes): (usize, usize),
        now: Timestamp,
    ) -> Result<Option<(Vec<u8>, usize)>> {
        let mut part = Vec::new();
        let mut position = offset;
        loop {
            let (index, start) = (position / CHUNK_BYTES, position % CHUNK_BYTES);
            let get = self.db.get_item().table_name(&*self.table).consistent_read(true);
            let get = get.set_key(Some(chunk_key(scope, slot, index))).send().await;
            let item = get
                .map_err(store_error("reading a stored response"))?
                .item
                .unwrap_or_default();
            let is_kept = read_field::<Timestamp>(&item, UNTIL).is_some_and(|until| now < until);
            let total = read_field::<u64>(&item, TOTAL).and_then(|total| usize::try_from(total).ok());
            let (Some(chunk), Some(total)) = (read_blob(&item, BODY), total.filter(|_| is_kept)) else {
                return Ok(None);
            };
            if read_blob(&item, NONCE) != Some(nonce.as_bytes()) {
                return Ok(None);
            }
            let missing = max_bytes.saturating_sub(part.len());
            part.extend(chunk.iter().skip(start).take(missing));
            position = offset.saturating_add(part.len());
            if part.len() >= max_bytes || position >= total || position % CHUNK_BYTES != 0 {
                return Ok(Some((part, total)));
            }
        }
    }

    /// Increments the scope's count of stored texts, and returns the slot for the next text.
    async fn reserve_response_slot(&self, scope: &str, now: Timestamp) -> Result<u8> {
        let update = self
            .db
            .update_item()
            .table_name(&*self.table)
            .set_key(Some(
                Draft::with_partition_key(key::stored_responses_counter_key(scope)).into_item(),
            ))
            .update_expression("ADD #count :one SET #ttl = :ttl")
            .expression_attribute_names("#count", COUNT)
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":one", 1_u64.write())
            .expression_attribute_values(
                ":ttl",
                now.after(self.kept_for).secs().saturating_add(RETENTION_SECS).write(),
            )
            .return_values(ReturnValue::UpdatedNew);
        let updated = update.send().await.map_err(store_error("storing a response"))?;
        let count = updated
            .attributes
            .as_ref()
            .and_then(|item| read_field::<u64>(item, COUNT));
        let slot = count.unwrap_or(0).checked_rem(self.slots.into()).unwrap_or(0);
        Ok(u8::try_from(slot).unwrap_or(0))
    }
}

const BODY: &str = "body";
const COUNT: &str = "count";
const NONCE: &str = "nonce";
const TOTAL: &str = "total";
const UNTIL: &str = "until";

fn chunk_key(scope: &str, slot: u8, index: usize) -> Item {
    Draft::with_partition_key(key::stored_response_chunk_key(scope, slot, index)).into_item()
}

fn read_blob<'a>(item: &'a Item, name: &str) -> Option<&'a [u8]> {
    match item.get(name)? {
        AttributeValue::B(blob) => Some(blob.as_ref()),
        _ => None,
    }
}
