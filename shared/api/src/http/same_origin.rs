//! Protects against cross-site request forgery (CSRF) by checking the origin of every POST with a session cookie. The
//! cookie's `SameSite` attribute is a second defense.

use axum::http::{HeaderMap, HeaderName, header};
use purser_domain::{ErrorKind, Result};

/// Returns 403 `cross_site_request` unless the request comes from a page of `origin` (`https://host` or
/// `http://host:port`).
///
/// Browsers send `Sec-Fetch-Site` (W3C Fetch Metadata §2.3) and `Origin` (RFC 6454 §7) with every POST, and pages can't
/// set them. At least one must be present, and each must match.
pub fn require_same_origin(headers: &HeaderMap, origin: &str) -> Result<()> {
    let site = HeaderName::from_static("sec-fetch-site");
    let is_named = headers.contains_key(&site) || headers.contains_key(header::ORIGIN);
    let all_are = |name: HeaderName, ours: &str| headers.get_all(name).iter().all(|value| value == ours);
    if is_named && all_are(site, "same-origin") && all_are(header::ORIGIN, origin) {
        Ok(())
    } else {
        Err(ErrorKind::CrossSiteRequest.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_forms_from_the_same_origin_are_accepted() {
        const OURS: &str = "https://purser.example";
        let rows: [(&[&str], &[&str], bool); 16] = [
            (&["same-origin"], &[OURS], true),
            (&["same-origin"], &[], true),
            (&[], &[OURS], true),
            (&[], &[], false),
            (&["same-site"], &[OURS], false),
            (&["cross-site"], &[OURS], false),
            // `none` means that the user typed the URL or used a bookmark, which is never a form.
            (&["none"], &[], false),
            (&["same-origin"], &["null"], false),
            (&["same-origin"], &["https://evil.example"], false),
            (&[], &["https://purser.example:8443"], false),
            (&[], &["http://purser.example"], false),
            (&[], &["https://purser.example/"], false),
            (&[], &["https://purser.example.evil.example"], false),
            (&[""], &[OURS], false),
            (&["same-origin", "cross-site"], &[OURS], false),
            (&["same-origin"], &[OURS, "https://evil.example"], false),
        ];
        for (sites, origins, expected) in rows {
            let mut headers = HeaderMap::new();
            for site in sites {
                headers.append("sec-fetch-site", HeaderValue::from_str(site).unwrap());
            }
            for origin in origins {
                headers.append(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            let refused = require_same_origin(&headers, OURS)
                .err()
                .map(|error| error.kind().slug());
            assert_eq!(refused.is_none(), expected, "{sites:?} {origins:?}");
            assert!(refused.is_none_or(|slug| slug == "cross_site_request"));
        }
    }
}
