//! The in-memory cache of the catalog. The catalog changes rarely, is the same for every caller, and its pinned payees
//! and prices are only compared with the offer.
//!
//! Invariant: a cached edition is at most five seconds old, or 65 seconds while the table can't be read.

use crate::catalog::{sightings::Sightings, table::CatalogTable};
use purser_domain::{Catalog, Duration, Result, Timestamp};
use purser_refreshed::{RefreshPolicy, Refreshed};
use std::sync::Arc;

const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(5),
    // 60 s longer while the table can't be read.
    longest: Some(Duration::from_secs_u32(5 + 60)),
    every: Duration::from_secs_u32(5),
    every_at_first: Duration::from_secs_u32(0),
};

/// One version of the catalog.
#[derive(Debug)]
pub struct Edition {
    /// The table's version, for `ETag`.
    pub version: u64,
    /// The services, with the labels of the probe results.
    pub catalog: Catalog,
    /// The summary of probe results; empty in a cache that is used for payment decisions.
    pub sightings: Sightings,
}

/// The catalog, kept between requests. Clones share the cache.
#[derive(Clone, Debug)]
pub struct CatalogCache {
    table: CatalogTable,
    /// Whether probe results are read.
    shows_sightings: bool,
    edition: Arc<Refreshed<Arc<Edition>>>,
}

impl CatalogCache {
    /// A cache of this table for display, with probe results. The first request fills it.
    pub fn new(table: CatalogTable) -> Self {
        Self {
            shows_sightings: true,
            ..Self::without_sightings(table)
        }
    }

    /// A cache of this table for decisions, without probe results, which don't affect decisions. The first request
    /// fills it.
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

    /// The cached edition, of any age. Used to guess which rows to read while [`CatalogCache::current`] confirms it; no
    /// decision is based on it.
    pub fn latest(&self) -> Option<Arc<Edition>> {
        self.edition.latest()
    }

    /// The cached edition, refreshed if it is stale.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<Edition>> {
        self.edition.current(now, || self.fetch()).await
    }

    /// The newest edition: the cached one if its version is still current.
    async fn fetch(&self) -> Result<Arc<Edition>> {
        // The version is read before the services, so services loaded afterwards can only be newer, and the next
        // refresh loads them again.
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
            tracing::warn!(%error, "the results of probes can't be read; older ones are shown");
            self.latest()
                .map(|edition| edition.sightings.clone())
                .unwrap_or_default()
        })
    }
}
