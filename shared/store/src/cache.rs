//! The catalog in memory. It is the one thing that is cached: it changes rarely, is the same for everybody, and what it
//! pins (payees, prices) is compared with the offer, never spent by itself.
//!
//! Always true: an edition is at most five seconds behind the table or, while the table can't be read, a minute more.

use crate::catalog::CatalogTable;
use purser_domain::{Catalog, Duration, Result, Timestamp};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;

/// How long the table is not asked again.
const FRESH: Duration = Duration::from_secs_u32(5);
/// How long an edition is served at most: 5 s, and 60 s more while the table can't be read.
const LONGEST: Duration = Duration::from_secs_u32(5 + 60);

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
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: CatalogTable,
    held: RwLock<Option<Held>>,
    /// Held by the one request that asks the table.
    asking: Mutex<()>,
}

#[derive(Clone, Debug)]
struct Held {
    edition: Arc<Edition>,
    /// When the table last said that this is the newest edition.
    confirmed_at: Timestamp,
    /// When the table was last asked, whatever came of it.
    asked_at: Timestamp,
}

impl CatalogCache {
    /// A cache in front of that table; the first request fills it.
    pub fn new(table: CatalogTable) -> Self {
        Self {
            shared: Arc::new(Shared {
                table,
                held: RwLock::new(None),
                asking: Mutex::new(()),
            }),
        }
    }

    /// The edition held, however old: to guess what will have to be read, while [`CatalogCache::current`] confirms it.
    /// Nothing is decided by it.
    pub fn latest(&self) -> Option<Arc<Edition>> {
        self.held().map(|held| held.edition)
    }

    /// The newest edition that is known.
    pub async fn current(&self, now: Timestamp) -> Result<Arc<Edition>> {
        if let Some(edition) = self.unquestioned(now) {
            return Ok(edition);
        }
        let _asking = self.shared.asking.lock().await;
        // Whoever waited for the question finds it answered.
        if let Some(edition) = self.unquestioned(now) {
            return Ok(edition);
        }
        let held = self.held();
        match self.ask(held.as_ref()).await {
            Ok(edition) => {
                self.hold(Held {
                    edition: edition.clone(),
                    confirmed_at: now,
                    asked_at: now,
                });
                Ok(edition)
            }
            Err(error) => match held {
                Some(held) if now.since(held.confirmed_at) <= LONGEST => {
                    tracing::warn!(%error, "the catalog can't be refreshed; an older edition is served");
                    self.hold(Held {
                        asked_at: now,
                        ..held.clone()
                    });
                    Ok(held.edition)
                }
                Some(_) | None => Err(error),
            },
        }
    }

    /// The edition held, where the table was asked just now.
    fn unquestioned(&self, now: Timestamp) -> Option<Arc<Edition>> {
        let held = self.held()?;
        let recently = now.since(held.asked_at) < FRESH && now.since(held.confirmed_at) <= LONGEST;
        recently.then_some(held.edition)
    }

    /// The newest edition: the one held, if the version says so.
    async fn ask(&self, held: Option<&Held>) -> Result<Arc<Edition>> {
        // The version first: what is loaded afterwards can only be newer, and is then loaded once more next time.
        let version = self.shared.table.version().await?;
        match held {
            Some(held) if held.edition.version == version => Ok(held.edition.clone()),
            Some(_) | None => Ok(Arc::new(Edition {
                version,
                catalog: self.shared.table.load().await?,
            })),
        }
    }

    fn held(&self) -> Option<Held> {
        self.shared.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self, held: Held) {
        *self.shared.held.write().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }
}
