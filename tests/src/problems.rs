//! Reads the validation errors in the response to an invalid request.

use crate::Answer;
use serde_json::Value;

/// Returns the paths of all validation errors in a 400 response. `of` names the request in failure messages.
#[track_caller]
pub fn paths(answer: Answer, of: &str) -> Vec<String> {
    assert_eq!(answer.status, 400, "{of}: {}", answer.body);
    let missing = answer.slug().strip_suffix("_required").map(str::to_owned);
    let slug = missing.as_ref().map(|field| format!("{field}_required"));
    let body = answer.refused(400, slug.as_deref().unwrap_or("invalid_request"));
    let Some(details) = body["details"].as_array() else {
        return vec![format!("/{}", missing.expect("a problem"))];
    };
    let entry = |entry: &Value| {
        let members: Vec<&String> = entry.as_object().expect("an object").keys().collect();
        assert_eq!(members, ["message", "path"]);
        assert!(
            entry["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{entry}"
        );
        entry["path"].as_str().expect("a text").to_owned()
    };
    let paths: Vec<String> = details.iter().map(entry).collect();
    // The slug names the first missing field that the caller can add. The caller can't add fields to the provider's
    // payment requirements.
    let required = details
        .iter()
        .zip(&paths)
        .filter(|(entry, path)| entry["message"] == "is required" && !path.starts_with("/payment_requirement/"));
    let required: Vec<&str> = required.filter_map(|(_, path)| path.rsplit('/').next()).collect();
    match &missing {
        Some(field) => assert!(required.contains(&field.as_str()), "{of}: {body}"),
        None => assert!(required.is_empty(), "{of}: {body}"),
    }
    paths
}
