//! The catalog as one compressed object, so that a function need not scan the catalog table. The object consists of a
//! head item, and of chunk items because an item can have at most 400 KB.
//!
//! Invariants:
//! - The object contains exactly the services of the catalog version in the head.
//! - A head is written after the chunks, and only replaces a head of a lower version. A chunk's key contains the
//!   object's version and hash, so a reader gets a whole object or no object.
//! - The object is only a copy: if it is missing, outdated or damaged, the catalog table is scanned.

use crate::{
    catalog::{
        cache::CatalogVersion,
        sightings::ProbeSummary,
        table::{CatalogTable, READING, partition_key},
    },
    codec::{
        attribute::Attribute as _,
        fault::{Fault, store_error},
        fields::fields,
        item::{Draft, Item, Row},
        json::{item_from_json, item_to_json},
        key::catalog as key,
        ledger::get_all_items,
        table::put_request,
    },
    transact::was_applied,
};
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use miniz_oxide::{deflate::compress_to_vec_zlib, inflate::decompress_to_vec_zlib_with_limit};
use purser_domain::{Catalog, Error, Fingerprint, Result, Service};
use serde_json::Value;
use std::{collections::HashMap, time::Duration};
use tokio::time::timeout;

/// The maximum size of a chunk, in bytes: below DynamoDB's limit of 409,600 bytes for an item including the key.
const CHUNK_BYTES: usize = 400_000;
/// The maximum number of chunks. At most 40 chunks of 400 KB fit into the 16 MB of one `BatchGetItem` response.
const MAX_CHUNKS: u32 = 40;
/// The maximum uncompressed size of all services, in bytes. Ten thousand services take about a third of it.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The zlib compression level. Higher levels take twice the time and save only a tenth of the size.
const LEVEL: u8 = 6;
/// The timeout for reading the object. It leaves enough time to scan the catalog table and respond.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum number of attempts to read an object that is replaced while it is read.
const ATTEMPTS: u32 = 3;

const STORING: &str = "storing the catalog's object";

/// The result of storing the catalog's compressed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectStored {
    /// This call has stored the object, with all chunks.
    Stored,
    /// The stored object already has the current catalog version.
    Present,
    /// The catalog changed meanwhile, or a newer object was stored. This call's chunks were removed.
    Overtaken,
}

/// The first DynamoDB item of the catalog's compressed object. Further items contain the compressed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    version: u64,
    /// The hash of the object's compressed bytes.
    digest: Fingerprint,
    chunks: u32,
}

fields! {
    Head { version: "ver", digest: "digest", chunks: "chunks" }
}

impl Head {
    pub(crate) fn write(&self) -> Item {
        Draft::with_partition_key(key::OBJECT.to_owned())
            .with_fields(self)
            .into_item()
    }

    fn chunk_prefix(&self) -> String {
        key::chunk_prefix(self.version, &self.digest)
    }

    fn chunk_keys(&self) -> Vec<String> {
        let prefix = self.chunk_prefix();
        (0..self.chunks).map(|index| format!("{prefix}{index}")).collect()
    }
}

impl CatalogTable {
    /// Reads the catalog with probe results, at `version` or a later version.
    pub(crate) async fn read_catalog_version(&self, version: u64, summary: ProbeSummary) -> Result<CatalogVersion> {
        let (version, services) = match self.try_read_catalog_object(version).await {
            Some(found) => found,
            None => (version, self.read_services().await?),
        };
        let shown = services
            .into_iter()
            .map(|service| summary.service_with_probe_results(service));
        Ok(CatalogVersion {
            version,
            catalog: Catalog::new(shown.collect()),
            sightings: summary,
        })
    }

    /// Returns `None` if the compressed object is unreadable or older than `min_version`.
    async fn try_read_catalog_object(&self, min_version: u64) -> Option<(u64, Vec<Service>)> {
        let result = match timeout(READ_TIMEOUT, self.read_catalog_object(min_version)).await {
            Ok(Ok(found)) => return found,
            Ok(Err(error)) => error,
            Err(late) => Error::internal(READING, late),
        };
        tracing::warn!(error = %result, "catalog.object_unreadable");
        None
    }

    async fn read_catalog_object(&self, min_version: u64) -> Result<Option<(u64, Vec<Service>)>> {
        let mut lost: Option<Head> = None;
        for _ in 0..ATTEMPTS {
            let item = self.get_item(key::OBJECT.to_owned()).await?;
            let head = item.map(|item| self.read_head(&item)).transpose()?;
            let Some(head) = head.filter(|head| head.version >= min_version) else {
                return Ok(None);
            };
            // Chunks are removed only after a newer head was written, so this chunk is lost.
            if lost.as_ref() == Some(&head) {
                return Err(damaged_catalog_object_error("a chunk is missing"));
            }
            if let Some(packed) = self.read_chunks(&head).await? {
                let services = decompress_services(&packed)?;
                let services = services.iter().map(|item| self.read_service(item));
                return Ok(Some((head.version, services.collect::<Result<_>>()?)));
            }
            lost = Some(head);
        }
        Err(damaged_catalog_object_error("the object was replaced during each read"))
    }

    /// Reads the compressed bytes; `None` if a chunk is missing.
    async fn read_chunks(&self, head: &Head) -> Result<Option<Vec<u8>>> {
        let keys = head.chunk_keys();
        let item_keys = keys
            .iter()
            .map(|key| Draft::with_partition_key(key.clone()).into_item());
        let items = get_all_items(&self.db, &self.table, item_keys.collect(), true, READING).await?;
        let items: HashMap<&str, &Item> = items.iter().map(|item| (partition_key(item), item)).collect();
        let mut packed = Vec::new();
        for key in &keys {
            let Some(item) = items.get(key.as_str()) else {
                return Ok(None);
            };
            let bytes = item.get(BYTES).and_then(|value| value.as_b().ok());
            let bytes = bytes.ok_or_else(|| Row::new(&self.table, item).corrupt_error(BYTES))?;
            packed.extend_from_slice(bytes.as_ref());
        }
        if Fingerprint::for_catalog(&packed) != head.digest {
            return Err(damaged_catalog_object_error(
                "the hash of the chunks differs from the head",
            ));
        }
        Ok(Some(packed))
    }

    /// Stores the catalog's compressed object. Must be called after changes of the catalog.
    pub async fn store_catalog_object(&self) -> Result<ObjectStored> {
        let version = self.read_version().await?;
        let stored = self.get_item(key::OBJECT.to_owned()).await?;
        // A head that can't be read counts as missing, so this call replaces it.
        let stored = stored.and_then(|item| self.read_head(&item).ok());
        if stored.is_some_and(|head| head.version >= version) {
            return Ok(ObjectStored::Present);
        }
        let items = self.scan_prefixes(&[key::SERVICES, key::CHUNKS]).await?;
        if self.read_version().await? != version {
            return Ok(ObjectStored::Overtaken);
        }
        let (left, services): (Vec<Item>, Vec<Item>) = items
            .into_iter()
            .partition(|item| partition_key(item).starts_with(key::CHUNKS));
        let packed = compress_services(services)?;
        let chunks = packed.chunks(CHUNK_BYTES);
        let head = Head {
            version,
            digest: Fingerprint::for_catalog(&packed),
            chunks: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
        };
        if head.chunks > MAX_CHUNKS {
            return Err(catalog_too_large_error());
        }
        let keys = head.chunk_keys();
        for (key, chunk) in keys.iter().zip(chunks) {
            let chunk = Draft::with_partition_key(key.clone()).with_value(BYTES, AttributeValue::B(Blob::new(chunk)));
            let put = self.db.put_item().table_name(&*self.table);
            let put = put.set_item(Some(chunk.into_item())).send().await;
            put.map_err(store_error(STORING))?;
        }
        let current = self.put_if_newer(&head).await?;
        let left = left.iter().map(|item| partition_key(item).to_owned());
        self.remove_stale_chunks(left.chain(keys), &current).await?;
        Ok(if current == head {
            ObjectStored::Stored
        } else {
            ObjectStored::Overtaken
        })
    }

    /// Writes this head unless the stored head has the same or a higher version. Returns the stored head.
    async fn put_if_newer(&self, head: &Head) -> Result<Head> {
        let put = put_request(&self.db, &self.table, head.write())
            .condition_expression("attribute_not_exists(ver) OR ver < :ver")
            .expression_attribute_values(":ver", head.version.write());
        if was_applied(put.send().await, STORING)? {
            return Ok(head.clone());
        }
        // Another call has written the stored head, or an earlier attempt of this call has, and the response to that
        // attempt was lost.
        let item = self.get_item(key::OBJECT.to_owned()).await?;
        let item = item.ok_or_else(|| Error::internal(STORING, Fault::new("the object's head no longer exists")))?;
        self.read_head(&item)
    }

    /// Removes stale chunks of the object. Chunks of higher versions are kept, because another call may still be
    /// storing their object.
    async fn remove_stale_chunks(&self, keys: impl Iterator<Item = String>, current: &Head) -> Result<()> {
        let own = current.chunk_prefix();
        for key in keys {
            let is_over = key::parse_chunk_version(&key).is_none_or(|version| version <= current.version);
            if !is_over || key.starts_with(&own) {
                continue;
            }
            let delete = self.db.delete_item().table_name(&*self.table);
            let delete = delete.set_key(Some(Draft::with_partition_key(key).into_item()));
            delete.send().await.map_err(store_error(STORING))?;
        }
        Ok(())
    }

    pub(crate) fn read_head(&self, item: &Item) -> Result<Head> {
        let row = Row::new(&self.table, item);
        let head: Head = row.read()?;
        if head.chunks > MAX_CHUNKS {
            return Err(row.corrupt_error("chunks"));
        }
        Ok(head)
    }
}

const BYTES: &str = "bytes";

/// Compresses the items without decoding, so that attributes that later versions of this code add are preserved. Items
/// are sorted, so the same catalog always gives the same bytes.
fn compress_services(mut services: Vec<Item>) -> Result<Vec<u8>> {
    services.sort_by(|a, b| partition_key(a).cmp(partition_key(b)));
    let services: Option<Vec<Value>> = services.iter().map(item_to_json).collect();
    let services =
        services.ok_or_else(|| damaged_catalog_object_error("a service has an attribute of an unsupported type"))?;
    let text = Value::Array(services).to_string();
    if text.len() > MAX_BYTES {
        return Err(catalog_too_large_error());
    }
    Ok(compress_to_vec_zlib(text.as_bytes(), LEVEL))
}

fn decompress_services(packed: &[u8]) -> Result<Vec<Item>> {
    let text = decompress_to_vec_zlib_with_limit(packed, MAX_BYTES);
    let text = text.map_err(|error| Error::internal(READING, Fault::new(error.to_string())))?;
    let services: Vec<Value> = serde_json::from_slice(&text)
        .map_err(|_| damaged_catalog_object_error("the decompressed object is not a list"))?;
    let services: Option<Vec<Item>> = services.into_iter().map(item_from_json).collect();
    services.ok_or_else(|| damaged_catalog_object_error("a list element is not an item"))
}

fn damaged_catalog_object_error(message: &'static str) -> Error {
    Error::internal("encoding or decoding the catalog's object", Fault::new(message))
}

fn catalog_too_large_error() -> Error {
    Error::internal(STORING, Fault::new("the catalog is too large for the object"))
}
