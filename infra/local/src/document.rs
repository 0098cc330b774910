//! The OpenAPI document of all groups.

/// The document as stored in `docs/openapi.json`, with a final line break.
pub fn openapi() -> Result<String, serde_json::Error> {
    let groups = [
        purser_catalog::openapi(),
        purser_payments::openapi(),
        purser_agents::openapi(),
        purser_people::openapi(),
        purser_internal::openapi(),
        purser_mcp_function::openapi(),
    ];
    let mut text = serde_json::to_string_pretty(&purser_api::document(groups))?;
    text.push('\n');
    Ok(text)
}
