//! The catalog in memory, the only data that is cached: it changes rarely, is the same for every caller, and its pinned
//! payees and prices are only compared with the offer.
//!
//! Always true: an edition is at most five seconds behind the table, or a minute more while the table can't be read.

use crate::catalog::{sightings::Sightings, table::CatalogTable};
use purser_domain::{Catalog, Duration, Result, Timestamp};
use purser_refreshed::{Ages, Refreshed};
use std::sync::Arc;

const AGES: Ages = Ages {
    fresh: Duration::from_secs_u32(5),
    // 60 s more while the table can't be read.
    longest: Some(Duration::from_secs_u32(5 + 60)),
    every: Duration::from_secs_u32(5),
    every_at_first: Duration::from_secs_u32(0),
};

/// The catalog as of one version.
#[derive(Debug)]
pub struct Edition {
    /// The table's version, for `ETag`.
    pub version: u64,
    /// The services, with what probes have seen of them.
    pub catalog: Catalog,
    /// What that is; nothing in a cache that decides about payments.
    pub sightings: Sightings,
}

/// The catalog, kept between requests. Clones share the cache.
#[derive(Clone, Debug)]
pub struct CatalogCache {
    table: CatalogTable,
    /// Whether what probes have seen is read.
    shows_sightings: bool,
    edition: Arc<Refreshed<Arc<Edition>>>,
}

impl CatalogCache {
    /// A cache of this table to show, with what probes have seen; the first request fills it.
    pub fn new(table: CatalogTable) -> Self {
        Self {
            shows_sightings: true,
            ..Self::without_sightings(table)
        }
    }

    /// As [`CatalogCache::new`], to decide by: without what probes have seen, which decides nothing.
    pub fn without_sightings(table: CatalogTable) -> Self {
        let edition = Refreshed::new("reading the catalog", AGES, |error| {
            tracing::warn!(%error, "the catalog can't be refreshed; an older edition is served");
        });
        Self {
            table,
            shows_sightings: false,
            edition: Arc::new(edition),
        }
    }

    /// The cached edition, of any age: to guess which rows to read while [`CatalogCache::current`] confirms it. No
    /// decision is made on it.
    pub fn latest(&self) -> Option<Arc<Edition>> {
        self.edition.latest()
    }

    /// The cached edition, refreshed when it is old.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<Edition>> {
        self.edition.current(now, || self.fetch()).await
    }

    /// The newest edition: the cached one if its version is still current.
    async fn fetch(&self) -> Result<Arc<Edition>> {
        // The version is read first: services loaded after it can only be newer, and the next refresh loads them again.
        let (version, sightings) = tokio::join!(self.table.version(), self.sightings());
        let version = version?;
        match self.latest() {
            Some(edition) if edition.version == version && edition.sightings == sightings => Ok(edition),
            Some(_) | None => Ok(Arc::new(self.table.edition(version, sightings).await?)),
        }
    }

    async fn sightings(&self) -> Sightings {
        if !self.shows_sightings {
            return Sightings::default();
        }
        self.table.sightings().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "what probes have seen can't be read; what was read before is shown");
            self.latest()
                .map(|edition| edition.sightings.clone())
                .unwrap_or_default()
        })
    }
}
