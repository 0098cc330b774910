//! The in-memory cache of the catalog, at most five seconds old, or 65 seconds while the table can't be read.

use crate::catalog::{sightings::ProbeSummary, table::CatalogTable};
use purser_domain::{Catalog, Duration, Result, Timestamp};
use purser_refreshed::{RefreshPolicy, RefreshingCache};
use std::sync::Arc;

const AGES: RefreshPolicy = RefreshPolicy {
    fresh: Duration::from_secs_u32(5),
    // While the table can't be read, the cached catalog may be up to 65 s old instead of 5 s.
    longest: Some(Duration::from_secs_u32(5 + 60)),
    every: Duration::from_secs_u32(5),
    every_at_first: Duration::from_secs_u32(0),
};

/// The services and probe results of the catalog at one version of the catalog table.
#[derive(Debug)]
pub struct CatalogVersion {
    /// The catalog version in the table, which the header `ETag` contains.
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
    shows_sightings: bool,
    edition: Arc<RefreshingCache<Arc<CatalogVersion>>>,
}

impl CatalogCache {
    /// Creates a cache of the catalog with probe results, for the display of services.
    pub fn new(table: CatalogTable) -> Self {
        Self {
            shows_sightings: true,
            ..Self::without_probe_results(table)
        }
    }

    /// Creates a cache of the catalog without probe results, for payment decisions.
    pub fn without_probe_results(table: CatalogTable) -> Self {
        let edition = RefreshingCache::new("reading the catalog", AGES, |error| {
            tracing::warn!(%error, "the catalog can't be refreshed; an older catalog version is served");
        });
        Self {
            table,
            shows_sightings: false,
            edition: Arc::new(edition),
        }
    }

    /// Returns the cached catalog of any age. Only for predicting which rows to read: no decision may be based on it.
    pub fn find_cached_of_any_age(&self) -> Option<Arc<CatalogVersion>> {
        self.edition.latest_value()
    }

    /// Returns the cached catalog if it is fresh, and otherwise reads the catalog table.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<CatalogVersion>> {
        self.edition.get_or_fetch(now, || self.fetch_newest()).await
    }

    async fn fetch_newest(&self) -> Result<Arc<CatalogVersion>> {
        // The version is read before the services. If a service changes in between, the next refresh therefore finds
        // another version and reads the services again.
        let (version, summary) = tokio::join!(self.table.read_version(), self.read_probe_summary());
        let version = version?;
        match self.find_cached_of_any_age() {
            Some(edition) if edition.version == version && edition.sightings == summary => Ok(edition),
            Some(_) | None => Ok(Arc::new(self.table.read_catalog_version(version, summary).await?)),
        }
    }

    async fn read_probe_summary(&self) -> ProbeSummary {
        if !self.shows_sightings {
            return ProbeSummary::default();
        }
        self.table.read_probe_summary().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "probe results can't be read; older probe results are shown");
            self.find_cached_of_any_age()
                .map(|edition| edition.sightings.clone())
                .unwrap_or_default()
        })
    }
}
