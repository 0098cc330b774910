//! The cache of default services (`people/starting_set.rs`).

use purser_domain::{Fingerprint, StartingSet};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The maximum number of sets that an instance caches. At the maximum, the cache is cleared. A set has 16 bytes for
/// each service.
const MAX_KEPT: usize = 32;

/// The sets that this instance has read or written.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownSets(Arc<Mutex<HashMap<Fingerprint, Arc<StartingSet>>>>);

impl KnownSets {
    pub(crate) fn get(&self, digest: &Fingerprint) -> Option<Arc<StartingSet>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).map(Arc::clone)
    }

    pub(crate) fn keep(&self, digest: Fingerprint, set: &Arc<StartingSet>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KEPT {
            known.clear();
        }
        known.insert(digest, Arc::clone(set));
    }
}
