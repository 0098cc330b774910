//! The catalog in memory. It is the one thing that is cached: it changes rarely, is the same for everybody, and what it
//! pins (payees, prices) is compared with the offer, never spent by itself.
//!
//! Always true: an edition is at most five seconds behind the table or, while the table can't be read, a minute more.

use crate::catalog::table::CatalogTable;
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
    /// The services.
    pub catalog: Catalog,
}

/// The catalog, kept between requests. Clones share it.
#[derive(Clone, Debug)]
pub struct CatalogCache {
    table: CatalogTable,
    edition: Arc<Refreshed<Arc<Edition>>>,
}

impl CatalogCache {
    /// A cache in front of that table; the first request fills it.
    pub fn new(table: CatalogTable) -> Self {
        let edition = Refreshed::new("reading the catalog", AGES, |error| {
            tracing::warn!(%error, "the catalog can't be refreshed; an older edition is served");
        });
        Self {
            table,
            edition: Arc::new(edition),
        }
    }

    /// The edition held, however old: to guess what will have to be read, while [`CatalogCache::current`] confirms it.
    /// Nothing is decided by it.
    pub fn latest(&self) -> Option<Arc<Edition>> {
        self.edition.latest()
    }

    /// The newest edition that is known.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<Edition>> {
        self.edition.current(now, || self.fetch()).await
    }

    /// The newest edition: the one held, if the version says so.
    async fn fetch(&self) -> Result<Arc<Edition>> {
        // The version first: what is loaded afterwards can only be newer, and is then loaded once more next time.
        let version = self.table.version().await?;
        match self.latest() {
            Some(edition) if edition.version == version => Ok(edition),
            Some(_) | None => Ok(Arc::new(Edition {
                version,
                catalog: self.table.load().await?,
            })),
        }
    }
}
