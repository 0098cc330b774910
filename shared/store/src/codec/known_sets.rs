use purser_domain::{DefaultServices, Fingerprint};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The maximum number of cached sets of default services, at 16 bytes per service. A full cache drops all sets.
const MAX_SETS: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct KnownDefaultServices(Arc<Mutex<HashMap<Fingerprint, Arc<DefaultServices>>>>);

impl KnownDefaultServices {
    pub(crate) fn find(&self, digest: &Fingerprint) -> Option<Arc<DefaultServices>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).map(Arc::clone)
    }

    pub(crate) fn insert(&self, digest: Fingerprint, set: &Arc<DefaultServices>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_SETS {
            known.clear();
        }
        known.insert(digest, Arc::clone(set));
    }
}
