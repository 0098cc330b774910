//! The dashboard's origin as browsers see it. Forms are accepted only from this origin.

use axum::http::Extensions;
use purser_domain::{Error, Result, Url};
use std::fmt;

/// An origin exactly as browsers send it in the `Origin` header, such as `https://purser.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin(String);

impl Origin {
    /// Without a configured origin, returns the gateway's host name with HTTPS.
    pub(crate) fn for_request(configured_origin: Option<&str>, extensions: &Extensions) -> Result<Self> {
        if let Some(origin) = configured_origin {
            return Ok(Self(origin.to_owned()));
        }
        let host = purser_api::domain_name(extensions).unwrap_or_default();
        let url = Url::parse(&format!("https://{host}"));
        let bare = url
            .ok()
            .filter(|url| url.origin().ascii_serialization() == url.as_str().trim_end_matches('/'));
        let origin = bare.map(|url| Self(url.origin().ascii_serialization()));
        origin.ok_or_else(|| {
            Error::internal(
                "determining the origin of the pages",
                "the gateway sent no valid domain name",
            )
        })
    }

    /// Returns whether the origin uses HTTPS, which `Secure` cookies require.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.starts_with("https://")
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_configured_https_origin_is_secure() {
        for (text, secure) in [("https://purser.example", true), ("http://127.0.0.1:3000", false)] {
            let origin = Origin::for_request(Some(text), &Extensions::new()).unwrap();
            assert_eq!((origin.as_str(), origin.is_secure()), (text, secure));
        }
    }

    #[test]
    fn a_missing_origin_requires_a_gateway_request() {
        assert!(Origin::for_request(None, &Extensions::new()).is_err());
    }
}
