//! The form of an agent's labels in API responses: an object with a field for each label.

use purser_domain::Labels;
use std::collections::BTreeMap;

/// Returns an agent's labels by key.
pub fn labels_by_key(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}
