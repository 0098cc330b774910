//! The cache of default services (`people/starting_set.rs`).

use purser_domain::{DefaultServices, Fingerprint};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The maximum number of sets that an instance caches. At the maximum, the cache is cleared. A set has 16 bytes for
/// each service.
const MAX_KEPT: usize = 32;

/// The sets that this instance has read or written.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownDefaultServices(Arc<Mutex<HashMap<Fingerprint, Arc<DefaultServices>>>>);

impl KnownDefaultServices {
    pub(crate) fn find(&self, digest: &Fingerprint) -> Option<Arc<DefaultServices>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).map(Arc::clone)
    }

    pub(crate) fn remember(&self, digest: Fingerprint, set: &Arc<DefaultServices>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KEPT {
            known.clear();
        }
        known.insert(digest, Arc::clone(set));
    }
}
