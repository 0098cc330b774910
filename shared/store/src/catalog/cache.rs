//! The in-memory cache of the catalog. The catalog can be cached because it changes rarely and is the same for every
//! caller, and because its payees and prices are only compared with the payment requirements.
//!
//! Invariant: the cached catalog is at most five seconds old, or 65 seconds while the table can't be read.

use crate::catalog::{sightings::ProbeSummary, table::CatalogTable};
use purser_domain::{Catalog, Duration, Result, Timestamp};
use purser_refreshed::{RefreshPolicy, RefreshingCache};
use std::sync::Arc;

const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(5),
    // The catalog may be 60 s older while the table can't be read.
    longest: Some(Duration::from_secs_u32(5 + 60)),
    every: Duration::from_secs_u32(5),
    every_at_first: Duration::from_secs_u32(0),
};

/// The services and probe results of the catalog at one version of the catalog table.
#[derive(Debug)]
pub struct CatalogVersion {
    /// The version number in the table, which `ETag` contains.
    pub version: u64,
    /// The services, with labels from probe results.
    pub catalog: Catalog,
    /// The summary of probe results; empty in a cache for payment decisions.
    pub sightings: ProbeSummary,
}

/// A cache of the catalog. Clones share the cache.
#[derive(Clone, Debug)]
pub struct CatalogCache {
    table: CatalogTable,
    /// Whether the cache also reads probe results.
    shows_sightings: bool,
    edition: Arc<RefreshingCache<Arc<CatalogVersion>>>,
}

impl CatalogCache {
    /// Creates a cache for display, with probe results. The first request fills the cache.
    pub fn new(table: CatalogTable) -> Self {
        Self {
            shows_sightings: true,
            ..Self::without_probe_results(table)
        }
    }

    /// Creates a cache for decisions, without probe results, because they do not affect decisions. The first request
    /// fills the cache.
    pub fn without_probe_results(table: CatalogTable) -> Self {
        let edition = RefreshingCache::new("reading the catalog", AGES, |error| {
            tracing::warn!(%error, "the catalog can't be refreshed; an older edition is served");
        });
        Self {
            table,
            shows_sightings: false,
            edition: Arc::new(edition),
        }
    }

    /// Returns the cached catalog of any age. Callers use it only to predict which rows to read while
    /// [`CatalogCache::current`] runs; no decision is based on it.
    pub fn latest(&self) -> Option<Arc<CatalogVersion>> {
        self.edition.latest_value()
    }

    /// Returns the cached catalog if it is fresh, and otherwise reads the catalog.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<CatalogVersion>> {
        self.edition.get_or_fetch(now, || self.fetch_newest()).await
    }

    /// Reads the newest catalog. Returns the cached catalog if its version is still the newest.
    async fn fetch_newest(&self) -> Result<Arc<CatalogVersion>> {
        // The version is read before the services. If the services are newer than the version, the next refresh reads
        // them again.
        let (version, summary) = tokio::join!(self.table.read_version(), self.read_probe_summary());
        let version = version?;
        match self.latest() {
            Some(edition) if edition.version == version && edition.sightings == summary => Ok(edition),
            Some(_) | None => Ok(Arc::new(self.table.read_edition(version, summary).await?)),
        }
    }

    async fn read_probe_summary(&self) -> ProbeSummary {
        if !self.shows_sightings {
            return ProbeSummary::default();
        }
        self.table.read_probe_summary().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the results of probes can't be read; older ones are shown");
            self.latest()
                .map(|edition| edition.sightings.clone())
                .unwrap_or_default()
        })
    }
}
