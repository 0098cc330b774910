//! The OpenAPI document of all groups together.

/// The document as it is kept in `docs/openapi.json`, with a line break at its end.
pub fn openapi() -> Result<String, serde_json::Error> {
    let groups = [
        purser_catalog::openapi(),
        purser_payments::openapi(),
        purser_agents::openapi(),
        purser_people::openapi(),
        purser_internal::openapi(),
    ];
    let mut text = serde_json::to_string_pretty(&purser_api::document(groups))?;
    text.push('\n');
    Ok(text)
}
