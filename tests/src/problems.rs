//! What a refused request is told about itself.

use crate::Answer;
use serde_json::Value;

/// The paths of `details[]` of a 400 `invalid_request`; every entry has a path and words. `of` says which request it was.
#[track_caller]
pub fn paths(answer: Answer, of: &str) -> Vec<String> {
    let status = answer.status;
    assert_eq!(
        (status, answer.slug()),
        (400, "invalid_request"),
        "{of}: {}",
        answer.body
    );
    let body = answer.refused(400, "invalid_request");
    let entry = |entry: &Value| {
        let members: Vec<&String> = entry.as_object().expect("an object").keys().collect();
        assert_eq!(members, ["message", "path"]);
        assert!(
            entry["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{entry}"
        );
        entry["path"].as_str().expect("a text").to_owned()
    };
    body["details"].as_array().expect("a list").iter().map(entry).collect()
}
