//! The protected resource for which a client requests access (RFC 8707).

/// Returns whether every `resource` of a request is this deployment: `issuer` or `/mcp` below it, with or without a
/// slash at the end, because clients send each of these forms. No resource or an empty value (RFC 6749 §3.1) also means
/// this deployment.
pub fn are_resources_of_issuer<'a>(issuer: &str, mut resources: impl Iterator<Item = &'a str>) -> bool {
    resources.all(|resource| {
        let path = resource.strip_prefix(issuer);
        resource.is_empty() || matches!(path, Some("" | "/" | "/mcp" | "/mcp/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_of_a_request_must_be_this_deployment() {
        let are_own = |resources: &[&str]| are_resources_of_issuer("https://a.example", resources.iter().copied());
        assert!(are_own(&[]) && are_own(&[""]));
        let own = ["", "/", "/mcp", "/mcp/"].map(|path| format!("https://a.example{path}"));
        assert!(are_own(&own.each_ref().map(String::as_str)));
        for other in [
            "/mcp",
            "http://a.example/mcp",
            "https://a.example/MCP",
            "https://a.example/mcp//",
            "https://a.example/mcp/x",
            "https://a.example/mcp?x",
            "https://a.example/mcp#x",
            "https://a.example.evil.example/mcp",
            "https://a.example@evil.example/mcp",
        ] {
            assert!(!are_own(&[&own[2], other]), "{other}");
        }
    }
}
