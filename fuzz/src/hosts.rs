//! Fuzzes hosts and allowlist entries (`docs/spec.md` §4.10).
//!
//! The input is an allowlist entry and a URL on separate lines. `DomainPattern::matches` must agree with a second
//! implementation, `covers`.

use purser_domain::{DomainPattern, Target, Url, parse_web_url};
use std::net::{IpAddr, Ipv6Addr};

/// Checks the parsers of hosts, and the comparison of a host with an allowlist entry.
pub fn hosts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (entry, url) = text.split_once('\n').unwrap_or((text, text));
    let pattern = DomainPattern::parse(entry).ok();
    let target = Target::parse(url).ok();
    if let Some(pattern) = &pattern {
        an_entry_is_kept_as_it_is_compared(entry, pattern);
    }
    if let Some(target) = &target {
        a_host_is_what_the_web_connects_to(url, target);
    }
    if let (Some(pattern), Some(target)) = (pattern, target) {
        let entry = pattern.to_string();
        let covered = pattern.matches(&target);
        assert_eq!(covered, covers(&entry, target.host()), "{entry} {}", target.host());
        assert_eq!(pattern.is_any(), entry == "*");
    }
}

/// Returns whether an allowlist entry covers a host, as the table in `docs/spec.md` §4.10 specifies.
fn covers(entry: &str, host: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if address(entry).is_some() || address(host).is_some() {
        return entry == host;
    }
    let [entry, host]: [Vec<&str>; 2] = [entry, host].map(|name| name.split('.').collect());
    if entry.iter().any(|label| label.contains('*')) {
        // A glob has as many labels as the hosts that match the glob.
        return entry.len() == host.len() && entry.iter().zip(&host).all(|(glob, label)| fits(glob, label));
    }
    host.ends_with(&entry)
}

/// Returns whether a label matches a glob. Tries every text that `*` may stand for.
fn fits(glob: &str, label: &str) -> bool {
    match glob.chars().next() {
        None => label.is_empty(),
        Some('*') => {
            let rest = glob.trim_start_matches('*');
            (0..=label.len()).any(|taken| label.is_char_boundary(taken) && fits(rest, &label[taken..]))
        }
        Some(literal) => label.strip_prefix(literal).is_some_and(|label| fits(&glob[1..], label)),
    }
}

fn address(host: &str) -> Option<IpAddr> {
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match v6 {
        Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => host.parse().ok(),
    }
}

fn is_plain(name: &str, more: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c) || more.contains(c);
    !name.is_empty() && name.len() <= 253 && name.chars().all(plain)
}

fn an_entry_is_kept_as_it_is_compared(entry: &str, pattern: &DomainPattern) {
    let kept = pattern.to_string();
    assert!(
        address(&kept).is_some() || is_plain(&kept, "*"),
        "{entry:?} is kept as {kept:?}"
    );
    let again = DomainPattern::parse(&kept);
    assert_eq!(again.as_ref(), Ok(pattern), "{entry:?} is kept as {kept:?}");
    if kept == "*" {
        assert_eq!(entry, "*", "nothing but a star is any host");
    } else {
        // A pattern whose last label contains a star would match several top-level domains.
        assert!(!kept.rsplit('.').next().unwrap().contains('*'), "{kept}");
    }
}

fn a_host_is_what_the_web_connects_to(url: &str, target: &Target) {
    let host = target.host();
    assert!(
        address(host).is_some() || is_plain(host, ""),
        "{url:?} has the host {host:?}"
    );
    assert!(!host.starts_with('.') && !host.ends_with('.'), "{host}");
    let again = Target::parse(&format!("https://{host}/"));
    assert_eq!(again.as_ref().map(Target::host), Ok(host), "{host}");

    let parsed = parse_web_url(url).expect("a target is an address");
    assert!(matches!(parsed.scheme(), "http" | "https"));
    assert_eq!(
        parsed.host_str().map(|host| host.trim_end_matches('.')),
        Some(host),
        "{url:?}"
    );
    // The HTTP client parses the URL again, and must connect to the host that was checked.
    let written = Url::parse(parsed.as_str()).expect("what was written can be read");
    assert_eq!(written.host_str(), parsed.host_str());
    // User info before the host and a port after the host do not change the host.
    let disguised = format!("https://example.com:443@{host}:8443/@example.com");
    assert_eq!(
        Target::parse(&disguised).as_ref().map(Target::host),
        Ok(target.host()),
        "{disguised}"
    );
}
