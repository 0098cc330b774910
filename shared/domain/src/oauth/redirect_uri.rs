//! Redirect URIs, to which authorization codes are sent.

use crate::oauth::grant::GrantOrigin;
use std::fmt;
use url::{Host, Url};

/// A redirect URI: `https`, a loopback address (RFC 8252 §7.3) or a private-use scheme (RFC 8252 §7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectUri {
    text: String,
    origin: GrantOrigin,
    is_loopback: bool,
}

/// Schemes that a browser or an operating system handles itself, so that a redirect would not reach a client.
const FOREIGN_SCHEMES: [&str; 17] = [
    "about",
    "blob",
    "content",
    "data",
    "file",
    "filesystem",
    "ftp",
    "http",
    "intent",
    "javascript",
    "mailto",
    "sms",
    "tel",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];

impl RedirectUri {
    /// The maximum length of a redirect URI, in bytes.
    pub const MAX: usize = 512;

    /// Parses a redirect URI. The error is the message of the validation error.
    ///
    /// Rejects spellings that browsers would change (WHATWG URL), because the user could see another host than the
    /// browser opens.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > Self::MAX {
            return Err("must have at most 512 characters");
        }
        let url = Url::parse(text).map_err(|_| "must be an absolute URI")?;
        if text.contains('#') {
            return Err("must have no fragment");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must have no user information");
        }
        if url.as_str().strip_suffix('/') != Some(text) && url.as_str() != text {
            return Err("must be written as a browser writes it, in lower case and without `..` or a default port");
        }
        let scheme = url.scheme();
        let is_loopback = scheme == "http" && is_loopback_host(&url);
        let origin = if is_loopback || scheme == "https" {
            let host = url.host_str().unwrap_or_default();
            if !is_loopback && !host.contains(['.', ':']) {
                return Err("must have a host name with a dot");
            }
            host.to_owned()
        } else if FOREIGN_SCHEMES.contains(&scheme) {
            return Err("must be https, http on 127.0.0.1, [::1] or localhost, or a scheme of the client's own");
        } else {
            format!("{scheme}:")
        };
        Ok(Self {
            text: text.to_owned(),
            origin: GrantOrigin::parse(&origin).ok_or("must have a host of at most 100 characters")?,
            is_loopback,
        })
    }

    /// Returns whether a client that registered this URI may use `requested`. Only loopback ports may differ (RFC 8252
    /// §7.3).
    pub fn allows(&self, requested: &Self) -> bool {
        let without_port = |uri: &Self| {
            let mut url = Url::parse(&uri.text).ok()?;
            url.set_port(None).ok()?;
            Some(url)
        };
        self.text == requested.text
            || (self.is_loopback && requested.is_loopback && without_port(self) == without_port(requested))
    }

    /// Returns the host, or a private-use scheme with a colon.
    pub fn origin(&self) -> &GrantOrigin {
        &self.origin
    }

    /// Returns the text as the client wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the URI with these query parameters added.
    pub fn with_parameters(&self, parameters: &[(&str, &str)]) -> String {
        // The text was parsed as a URL before.
        Url::parse(&self.text).map_or_else(
            |_| self.text.clone(),
            |mut url| {
                url.query_pairs_mut().extend_pairs(parameters);
                url.into()
            },
        )
    }
}

fn is_loopback_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address == std::net::Ipv4Addr::LOCALHOST,
        Some(Host::Ipv6(address)) => address == std::net::Ipv6Addr::LOCALHOST,
        None => false,
    }
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_uri_is_https_loopback_or_private_and_shows_its_host() {
        let accepted = [
            ("https://claude.ai/api/mcp/auth_callback", "claude.ai"),
            ("https://vscode.dev/redirect", "vscode.dev"),
            ("https://a.example:8443/cb?x=1", "a.example"),
            ("https://a.example", "a.example"),
            ("https://xn--80ak6aa92e.com/", "xn--80ak6aa92e.com"),
            ("http://127.0.0.1:33418", "127.0.0.1"),
            ("http://localhost/callback", "localhost"),
            ("http://[::1]:7/", "[::1]"),
            ("cursor://anysphere.cursor-retrieval/oauth/callback", "cursor:"),
            ("com.example.app:/oauth", "com.example.app:"),
        ];
        for (text, origin) in accepted {
            let uri = RedirectUri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((uri.as_str(), uri.origin().as_str()), (text, origin));
        }
        let long = format!("https://a.example/{}", "a".repeat(RedirectUri::MAX));
        let rejected = [
            "",
            "/callback",
            "a.example/cb",
            "http://a.example/cb",
            "http://127.0.0.1.a.example/",
            "http://127.0.0.2/",
            "http://0.0.0.0/",
            "http://2130706433/",
            "http://localhost.a.example/",
            "http://localhost@a.example/",
            "https://claude.ai@evil.example/",
            "https://claude.ai:x@evil.example/",
            "https://evil.example\\@claude.ai/",
            "https://evil.example/#claude.ai",
            "https://a.example/cb#",
            "https://A.example/cb",
            "https://a.example:443/cb",
            "https://a.example/x/../cb",
            "https://a.example/c b",
            "https://a.example/\tcb",
            " https://a.example/cb",
            "https://аpple.com/",
            "https://device/",
            "https://",
            "javascript:alert(1)//.a.example",
            "JavaScript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "vbscript:x",
            "blob:https://a.example/1",
            "about:blank",
            "ftp://a.example/",
            "ws://a.example/",
            "wss://a.example/",
            "intent://a.example/#Intent;end",
            "view-source:https://a.example/",
            &long,
        ];
        for text in rejected {
            assert!(RedirectUri::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_loopback_redirect_uris_may_change_their_port() {
        let rows = [
            ("http://127.0.0.1/", "http://127.0.0.1:5000/", true),
            ("http://127.0.0.1:33418", "http://127.0.0.1:59656/", true),
            ("http://localhost/cb", "http://localhost:1/cb", true),
            ("http://[::1]/cb", "http://[::1]:1/cb", true),
            ("http://localhost/cb", "http://127.0.0.1/cb", false),
            ("http://localhost/cb", "http://localhost:1/other", false),
            ("http://localhost/cb", "http://localhost:1/cb?x=1", false),
            ("https://a.example/cb", "https://a.example/cb", true),
            ("https://a.example/cb", "https://a.example:8443/cb", false),
            ("https://a.example/cb", "https://a.example/cb/x", false),
            ("https://a.example/cb", "https://a.example/cb?x=1", false),
            ("https://a.example", "https://a.example/", false),
            ("cursor://a/cb", "cursor://a/cb", true),
            ("cursor://a/cb", "cursor://a:1/cb", false),
        ];
        for (registered, requested, expected) in rows {
            let parse = |text| RedirectUri::parse(text).unwrap();
            assert_eq!(
                parse(registered).allows(&parse(requested)),
                expected,
                "{registered} {requested}"
            );
        }
    }

    #[test]
    fn parameters_are_added_to_a_redirect_uri() {
        let parameters = [("code", "a&b"), ("state", "ä")];
        for (text, expected) in [
            (
                "https://a.example/cb?x=1",
                "https://a.example/cb?x=1&code=a%26b&state=%C3%A4",
            ),
            ("https://a.example", "https://a.example/?code=a%26b&state=%C3%A4"),
            ("com.example.app:/cb", "com.example.app:/cb?code=a%26b&state=%C3%A4"),
        ] {
            assert_eq!(RedirectUri::parse(text).unwrap().with_parameters(&parameters), expected);
        }
    }
}
