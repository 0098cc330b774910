//! An agent's labels in API responses.

use purser_domain::Labels;
use std::collections::BTreeMap;

/// Returns an agent's labels as a map from keys to values.
pub fn labels_by_key(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}
