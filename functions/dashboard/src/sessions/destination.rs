//! The dashboard page to which a sign-in returns. It is never on another site.

use purser_domain::Url;

/// The path and query of a dashboard page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination(String);

/// In bytes. The address of a page with 50 approval ids is shorter, and a signed destination of this length
/// fits into a cookie.
const MAX_BYTES: usize = 2_700;

impl Destination {
    pub(crate) fn overview() -> Self {
        Self("/dashboard".to_owned())
    }

    /// Parses the address of a dashboard page as browsers do, which read `//evil.example` as another host.
    /// Returns the overview for any other text, and for sign-in and sign-out pages.
    pub(crate) fn parse(text: &str) -> Self {
        Self::parse_page(text).unwrap_or_else(Self::overview)
    }

    fn parse_page(text: &str) -> Option<Self> {
        let is_plain = text.len() <= MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        if !is_plain || !text.starts_with("/dashboard") {
            return None;
        }
        let here = Url::parse("https://purser.invalid/").ok()?;
        let url = here.join(text).ok().filter(|url| url.origin() == here.origin())?;
        let is_page = url.path() == "/dashboard" || url.path().starts_with("/dashboard/");
        // A sign-in does not return to a sign-in or sign-out page.
        let is_way = ["/dashboard/sign-", "/dashboard/callback"]
            .iter()
            .any(|way| url.path().starts_with(way));
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        (is_page && !is_way).then(|| Self(format!("{}{query}", url.path())))
    }

    /// Returns the value of the query parameter with the destination. Returns `None` for the overview, which is the
    /// default destination.
    pub(crate) fn to_query_parameter(&self) -> Option<String> {
        (*self != Self::overview()).then(|| self.0.clone())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_destinations_stay_within_the_dashboard() {
        let rows = [
            ("/dashboard", "/dashboard"),
            ("/dashboard/approvals", "/dashboard/approvals"),
            (
                "/dashboard/decisions?result=block&x=%2F",
                "/dashboard/decisions?result=block&x=%2F",
            ),
            ("/dashboard/agents/1#keys", "/dashboard/agents/1"),
            ("/dashboard/a/../approvals", "/dashboard/approvals"),
        ];
        for (text, expected) in rows {
            assert_eq!(Destination::parse(text).as_str(), expected, "{text}");
        }
        let elsewhere = [
            "",
            "dashboard",
            "https://evil.example/dashboard",
            "//evil.example/dashboard",
            "/\\evil.example",
            "/dashboard\\..\\evil",
            "/dashboard/../evil",
            "/dashboard/..//evil.example",
            "/dashboard/%2e%2e/evil",
            "/dashboardevil",
            "/dashboard.evil.example",
            "/dashboard@evil.example",
            "/dashboard\r\nLocation: https://evil.example",
            "/dashboard/ x",
            "javascript:alert(1)",
            "/dashboard/sign-in?next=/dashboard",
            "/dashboard/sign-in/start",
            "/dashboard/sign-out",
            "/dashboard/callback?code=1",
            &format!("/dashboard/{}", "a".repeat(2_700)),
        ];
        for text in elsewhere {
            assert_eq!(Destination::parse(text), Destination::overview(), "{text}");
        }
    }
}
