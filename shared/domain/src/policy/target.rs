//! The hosts from which an agent's scrape and crawl operations may fetch pages (`docs/spec.md` §4.10).

use std::fmt;
use url::{Host, Url};

/// The page to fetch (`metadata.target_url`). The host is normalized: ASCII (IDNA), lower case, without a trailing dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: String,
    is_ip: bool,
}

impl Target {
    /// Parses an http or https URL as browsers do, so that no spelling makes one host look like another.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "must be an http or https URL with a host name";
        let url = parse_web_url(text).ok_or(WRONG)?;
        let (host, is_ip) = match url.host().ok_or(WRONG)? {
            Host::Domain(domain) => (domain.strip_suffix('.').unwrap_or(domain).to_owned(), false),
            ip @ (Host::Ipv4(_) | Host::Ipv6(_)) => (ip.to_string(), true),
        };
        if is_ip || is_host_name(&host) {
            Ok(Self { url, host, is_ip })
        } else {
            Err(WRONG)
        }
    }

    /// Parses a page's address from a parameter of a provider call. A missing scheme is `https`, because providers
    /// accept such addresses.
    pub fn parse_parameter(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let begins_with = |start: &str| {
            text.get(..start.len())
                .is_some_and(|own| own.eq_ignore_ascii_case(start))
        };
        if begins_with("http:") || begins_with("https:") || text.contains("://") {
            Self::parse(text)
        } else if begins_with("//") {
            Self::parse(&format!("https:{text}"))
        } else {
            Self::parse(&format!("https://{text}"))
        }
    }

    /// Returns the whole URL.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the normalized host.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// Parses an http or https URL. Rejects URLs about whose host parsers disagree: browsers read
/// `https://example.com\@evil.test/` as `example.com`, and others as `evil.test`.
pub fn parse_web_url(text: &str) -> Option<Url> {
    if text.contains(|c: char| c == '\\' || c.is_whitespace() || c.is_control()) {
        return None;
    }
    Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// A pattern in `allowed_domains`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainPattern {
    text: String,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// The pattern `*`, which matches every target.
    Any,
    /// `example.com` matches the domain and all subdomains.
    Domain,
    /// `*.example.com` or `api-*.example.com` is compared label by label with hosts of the same number of labels.
    Glob,
    /// An IP literal matches only this address.
    Ip,
}

impl DomainPattern {
    /// Returns the default of the column `allowed_domains`, which matches every target.
    pub fn any_domain() -> Self {
        Self {
            text: "*".to_owned(),
            shape: Shape::Any,
        }
    }

    /// Parses a pattern. A host name may be in Unicode and in any case.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "must be `*`, a host name, or a host name in whose labels `*` stands for part of one label";
        if text == "*" {
            return Ok(Self::any_domain());
        }
        if let Ok(target) = Target::parse(&format!("http://{text}/")) {
            // The text must be a host without a path, userinfo or port.
            if !text.contains(['/', '@', '?', '#', '\\', '*']) && (target.is_ip || !text.contains(':')) {
                let shape = if target.is_ip { Shape::Ip } else { Shape::Domain };
                return Ok(Self {
                    text: target.host,
                    shape,
                });
            }
        }
        if text.contains('*') {
            return Self::parse_glob(text).ok_or(WRONG);
        }
        Err(WRONG)
    }

    /// Parses a pattern with `*`. Labels are normalized separately, because IDNA rejects `*`.
    fn parse_glob(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let labels: Option<Vec<String>> = text
            .split('.')
            .map(|label| {
                let ascii = if label.contains('*') {
                    label.to_ascii_lowercase()
                } else {
                    idna::domain_to_ascii_strict(label).ok()?
                };
                is_host_label(&ascii, true).then_some(ascii)
            })
            .collect();
        let labels = labels?;
        // The last label must not contain `*`, because the pattern could otherwise match whole top-level domains.
        let ends_literally = labels.len() > 1 && labels.last().is_some_and(|last| !last.contains('*'));
        let text = labels.join(".");
        (ends_literally && text.len() <= MAX_HOST_BYTES).then_some(Self {
            text,
            shape: Shape::Glob,
        })
    }

    /// Returns whether the pattern matches the target's host. A domain name also matches subdomains.
    pub fn matches(&self, target: &Target) -> bool {
        match self.shape {
            Shape::Any => true,
            Shape::Ip => target.is_ip && target.host == self.text,
            Shape::Domain => !target.is_ip && (target.host == self.text || self.is_parent_domain_of(&target.host)),
            Shape::Glob => {
                !target.is_ip
                    && target.host.split('.').count() == self.text.split('.').count()
                    && target
                        .host
                        .split('.')
                        .zip(self.text.split('.'))
                        .all(|(label, pattern)| label_matches(label, pattern))
            }
        }
    }

    /// Returns whether the pattern certainly matches every target that `other` matches. `false` may mean unknown.
    pub fn covers(&self, other: &Self) -> bool {
        self == other
            || match self.shape {
                Shape::Any => true,
                Shape::Domain => {
                    matches!(other.shape, Shape::Domain | Shape::Glob) && self.is_parent_domain_of(&other.text)
                }
                Shape::Glob | Shape::Ip => false,
            }
    }

    fn is_parent_domain_of(&self, host: &str) -> bool {
        host.strip_suffix(&self.text).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Returns whether the pattern matches every target.
    pub const fn is_any(&self) -> bool {
        matches!(self.shape, Shape::Any)
    }
}

/// Writes the pattern in normalized form.
impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn label_matches(label: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return label == pattern;
    };
    let Some(mut remaining) = label.strip_prefix(head) else {
        return false;
    };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    // Matching each part as far left as possible leaves the longest rest for the next parts.
    for part in middle.split('*') {
        match remaining.split_once(part) {
            Some((_, after)) => remaining = after,
            None => return false,
        }
    }
    remaining.len() >= tail.len() && remaining.ends_with(tail)
}

/// The maximum length of a host name (RFC 1035 §2.3.4, as text).
const MAX_HOST_BYTES: usize = 253;

fn is_host_name(host: &str) -> bool {
    host.len() <= MAX_HOST_BYTES && host.split('.').all(|label| is_host_label(label, false))
}

/// Accepts RFC 1123 labels, and underscores because real hosts have them.
fn is_host_label(label: &str, allows_wildcard: bool) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || (allows_wildcard && b == b'*'))
        // `**` would match the same labels as `*`, but look as if it matched several labels.
        && !label.contains("**")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(entry: &str, url: &str, expected: bool) {
        let pattern = DomainPattern::parse(entry).unwrap();
        let matched = Target::parse(url).is_ok_and(|target| pattern.matches(&target));
        assert_eq!(matched, expected, "{entry} {url}");
    }

    #[test]
    fn domain_patterns_match_like_the_specification_table() {
        let rows = [
            ("example.com", "https://example.com/a", true),
            ("example.com", "https://a.b.c.example.com", true),
            ("example.com", "https://evil-example.com", false),
            ("example.com", "https://example.com.evil.org", false),
            ("*.example.com", "https://a.example.com", true),
            ("*.example.com", "https://example.com", false),
            ("*.example.com", "https://a.b.example.com", false),
            ("*.example.com", "https://a.example.com.evil.org", false),
            ("*.example.com", "https://x.evil-example.com", false),
            ("api-*.example.com", "https://api-eu.example.com", true),
            ("api-*.example.com", "https://api.example.com", false),
            ("api-*.example.com", "https://api-eu.x.example.com", false),
            ("*.docs.example.com", "https://v1.docs.example.com", true),
            ("*.docs.example.com", "https://docs.example.com", false),
            ("*.docs.example.com", "https://a.v1.docs.example.com", false),
            ("*", "https://anything.at.all", true),
            ("*", "http://127.0.0.1", true),
        ];
        for (entry, url, expected) in rows {
            check(entry, url, expected);
        }
    }

    #[test]
    fn allowed_domains_do_not_match_look_alike_hosts() {
        let rows = [
            ("example.com", "https://EXAMPLE.com./x", true),
            ("example.com", "https://example.com@evil.org/", false),
            ("example.com", "https://evil.org\\@example.com/", false),
            ("example.com", "https://example.com:8443/", true),
            ("example.com", "https://ex%61mple.com/", true),
            ("example.com", "https://example\u{3002}com/", true),
            ("example.com", "https://a@example.com@evil.test/", false),
            ("example.com", "https://example.com%2eevil.test/", false),
            ("example.com", "https://evil.test?@example.com", false),
            ("203.0.113.7", "http://0xcb.0x0.0x71.0x7/", true),
            ("203.0.113.7", "http://[::ffff:203.0.113.7]/", false),
            ("[2001:db8::1]", "http://[2001:DB8:0:0:0:0:0:1]:80/", true),
            ("example.com", "https://\u{435}xample.com/", false),
            ("b\u{fc}cher.example", "https://xn--bcher-kva.example/", true),
            ("xn--bcher-kva.example", "https://B\u{dc}CHER.example/", true),
            ("127.0.0.1", "http://127.0.0.1/", true),
            ("127.0.0.1", "http://2130706433/", true),
            ("0.0.1", "http://127.0.0.1/", false),
            ("*.0.0.1", "http://127.0.0.1/", false),
            ("example.com", "ftp://example.com/", false),
            ("example.com", "javascript:alert(1)//example.com", false),
        ];
        for (entry, url, expected) in rows {
            if DomainPattern::parse(entry).is_ok() {
                check(entry, url, expected);
            }
        }
    }

    #[test]
    fn only_host_patterns_are_accepted_as_allowed_domains() {
        for entry in [
            "",
            "https://example.com",
            "example.com/path",
            "a b",
            "*.*",
            "**",
            "**.example.com",
            "api-**.example.com",
            "a@example.com",
            "example.com:443",
            "*.",
            ".example.com",
            "exa*",
            &format!("*.{}com", "example.".repeat(32)),
        ] {
            assert!(DomainPattern::parse(entry).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn a_target_must_be_a_web_address() {
        for url in [
            "",
            "example.com",
            "//example.com/",
            "file:///etc/passwd",
            "http://",
            "http://?x",
            "https://exa mple.com",
            "data:text/html,x",
            "blob:https://example.com/x",
            "https://example.com:99999/",
            "https://[::1/",
            "https://[fe80::1%25eth0]/",
            "https://a..example.com/",
            "https://.example.com/",
            "https://example.com%00.evil.test/",
            "https://example.com%2f.evil.test/",
            "https://example.com%40evil.test/",
            "https://*.example.com/",
            "https://xn--a.example.com/",
            "http://256.256.256.256/",
            "https://example.com\\@evil.test/",
            "https:\\\\example.com\\",
            "https://exam\tple.com/",
            "https://example.com\n.evil.test/",
            " https://example.com/",
            &format!("https://{}.example.com/", "a".repeat(64)),
        ] {
            assert!(Target::parse(url).is_err(), "{url:?}");
        }
    }

    #[test]
    fn target_hosts_are_found_in_any_notation() {
        let host = |text: &str| Target::parse_parameter(text).map(|target| target.host).ok();
        for text in [
            "b.example",
            "B.EXAMPLE.",
            " b.example/x?y#z ",
            "b.example:8080/x",
            "//b.example/x",
            "http://b.example",
            "HTTPS://b.example/",
            "https:b.example",
            "http:/b.example",
            "u:p@b.example",
            "b%2eexample",
            "b\u{3002}example",
            "/b.example",
        ] {
            assert_eq!(host(text).as_deref(), Some("b.example"), "{text}");
        }
        for text in [
            "",
            "ftp://b.example",
            "a.example\\@b.example",
            "https%3A%2F%2Fb.example",
            "[\"b.example\"]",
            "view-source:https://b.example",
        ] {
            assert_eq!(host(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_wildcard_covers_one_domain_label(prefix in "[a-z0-9]{0,5}", a in "[a-z0-9]{1,8}", b in "[a-z0-9]{1,8}") {
            let pattern = DomainPattern::parse(&format!("{prefix}*.example.com")).unwrap();
            let covers = |host: String| pattern.matches(&Target::parse(&format!("https://{host}/")).unwrap());
            let one = format!("{prefix}{a}.example.com");
            let two = format!("{prefix}{a}.{b}.example.com");
            let foreign = format!("{prefix}{a}.example.com.{b}.org");
            prop_assert!(covers(one));
            prop_assert!(!covers(two));
            prop_assert!(!covers(foreign));
        }

        #[test]
        fn the_domain_matcher_never_panics(entry in ".{0,40}", url in ".{0,60}") {
            if let (Ok(pattern), Ok(target)) = (DomainPattern::parse(&entry), Target::parse(&url)) {
                pattern.matches(&target);
            }
        }
    }
}
