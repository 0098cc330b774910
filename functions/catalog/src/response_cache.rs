//! A cache of the catalog's list responses, because nearly all callers request the same few lists.
//!
//! Invariants: a cached response belongs to the requested catalog version and time, and the number of cached responses
//! is limited.

use purser_api::Cacheable;
use purser_domain::{Category, Result, Timestamp, TrustStatus};
use purser_store::CatalogVersion;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of cached lists. Each takes up to a quarter of a megabyte.
const MAX_CACHED: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Listing {
    pub(crate) category: Option<Category>,
    pub(crate) trust_status: Option<TrustStatus>,
    pub(crate) limit: usize,
}

/// The cached service lists of one catalog version, until the next price change.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache(Mutex<CachedResponse>);

#[derive(Debug, Default)]
struct CachedResponse {
    catalog_version: Option<Arc<CatalogVersion>>,
    /// The time at which a price in the catalog changes next. `None` if no price change is known.
    until: Option<Timestamp>,
    lists: HashMap<Listing, Cacheable>,
}

impl ResponseCache {
    /// Returns the list of this catalog version from the cache, or from `render` if the list is not cached.
    pub(crate) fn get_or_render_list(
        &self,
        catalog_version: &Arc<CatalogVersion>,
        listing: Listing,
        now: Timestamp,
        render: impl FnOnce() -> Result<Cacheable>,
    ) -> Result<Cacheable> {
        if let Some(list) = self.find_cached_list(catalog_version, listing, now) {
            return Ok(list);
        }
        // The lock is released while a list is built, so concurrent callers may both build the list.
        let list = render()?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.is_current_for(catalog_version, now) {
            *kept = CachedResponse {
                catalog_version: Some(Arc::clone(catalog_version)),
                until: catalog_version.catalog.next_pricing_change(now),
                lists: HashMap::new(),
            };
        }
        if kept.lists.len() < MAX_CACHED {
            kept.lists.insert(listing, list.clone());
        }
        Ok(list)
    }

    fn find_cached_list(
        &self,
        catalog_version: &Arc<CatalogVersion>,
        listing: Listing,
        now: Timestamp,
    ) -> Option<Cacheable> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.is_current_for(catalog_version, now)
            .then(|| kept.lists.get(&listing).cloned())
            .flatten()
    }
}

impl CachedResponse {
    fn is_current_for(&self, catalog_version: &Arc<CatalogVersion>, now: Timestamp) -> bool {
        let is_this = self
            .catalog_version
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, catalog_version));
        is_this && self.until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Catalog;
    use purser_store::ProbeSummary;
    use std::cell::Cell;

    fn catalog_version(version: u64) -> Arc<CatalogVersion> {
        let catalog = Catalog::default();
        Arc::new(CatalogVersion {
            version,
            catalog,
            sightings: ProbeSummary::default(),
        })
    }

    const fn listing(limit: usize) -> Listing {
        Listing {
            category: None,
            trust_status: None,
            limit,
        }
    }

    #[test]
    fn service_lists_are_cached_per_catalog_version_up_to_a_limit() {
        let prepared = ResponseCache::default();
        let count = Cell::new(0);
        let list = |catalog_version: &Arc<CatalogVersion>, limit| {
            let make = || {
                count.set(count.get() + 1);
                Ok(Cacheable::new(format!("{} {limit}", catalog_version.version)))
            };
            format!(
                "{:?}",
                prepared
                    .get_or_render_list(catalog_version, listing(limit), Timestamp::EPOCH, make)
                    .unwrap()
            )
        };
        let [first, second] = [1, 2].map(catalog_version);
        assert_eq!(
            [list(&first, 100), list(&first, 100)].map(|text| text.contains("\"1 100\"")),
            [true; 2]
        );
        assert_eq!(count.get(), 1, "the second is the first");
        assert!(list(&first, 500).contains("\"1 500\""), "another list");
        assert!(list(&second, 100).contains("\"2 100\""), "another catalog version");
        assert!(list(&first, 100).contains("\"1 100\""), "whoever still has the old one");
        assert_eq!(count.get(), 4);
        for limit in 0..1_000 {
            list(&first, limit);
        }
        assert_eq!(prepared.0.lock().unwrap().lists.len(), MAX_CACHED);
    }
}
