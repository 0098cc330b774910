//! The table of `docs/spec.md` §4.10, row by row: for each pattern, hosts that match and hosts that do not match.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use proptest::prelude::*;
use purser_domain::{DomainPattern, Target};

fn label() -> impl Strategy<Value = String> {
    "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?".prop_filter("an IDNA prefix asks for more", |label| {
        !label.starts_with("xn--") && label.get(2..4) != Some("--")
    })
}

/// Generates a domain of two or three labels. A numeric last label would make it an IP address.
fn domain() -> impl Strategy<Value = String> {
    (prop::collection::vec(label(), 1..3), "[a-z]{2,6}").prop_map(|(labels, top)| format!("{}.{top}", labels.join(".")))
}

/// Returns another spelling of the host that connects to the same server.
fn spelled(host: &str, how: u8) -> String {
    let host = match how % 3 {
        0 => host.to_owned(),
        1 => host.to_uppercase(),
        _ => format!(
            "%{:02x}{}",
            host.as_bytes().first().copied().unwrap_or(b'a'),
            host.get(1..).unwrap()
        ),
    };
    let dot = if how & 4 == 0 { "" } else { "." };
    let (user, port) = match how >> 3 & 3 {
        0 => ("", ""),
        1 => ("user:pass@", ""),
        2 => ("", ":8443"),
        _ => ("example.com@", ":80"),
    };
    format!("https://{user}{host}{dot}{port}/path?q=a.example.com#b.example.com")
}

fn covers(entry: &str, host: &str, how: u8) -> bool {
    let pattern = DomainPattern::parse(entry).unwrap();
    pattern.matches(&Target::parse(&spelled(host, how)).unwrap())
}

proptest! {
    #[test]
    fn bare_domains_cover_the_apex_and_all_subdomains(domain in domain(), below in prop::collection::vec(label(), 0..4), how: u8) {
        let host = below.iter().chain([&domain]).cloned().collect::<Vec<_>>().join(".");
        prop_assert!(covers(&domain, &host, how));
    }

    #[test]
    fn a_bare_domain_does_not_cover_look_alike_domains(domain in domain(), other in label(), how: u8) {
        let parent = domain.split_once('.').unwrap().1.to_owned();
        for host in [format!("{other}{domain}"), format!("{other}-{domain}"), format!("{domain}.{other}.org"), parent] {
            prop_assert!(!covers(&domain, &host, how), "{}", host);
        }
    }

    #[test]
    fn a_wildcard_pattern_covers_exactly_one_subdomain_level(domain in domain(), one in label(), two in label(), how: u8) {
        let entry = format!("*.{domain}");
        let below = format!("{one}.{domain}");
        prop_assert!(covers(&entry, &below, how));
        for host in [
            domain.clone(),
            format!("{one}.{two}.{domain}"),
            format!("{one}{domain}"),
            format!("{one}.{domain}.{two}.org"),
            format!("{one}.{two}{domain}"),
        ] {
            prop_assert!(!covers(&entry, &host, how), "{}", host);
        }
    }

    #[test]
    fn partial_wildcards_match_only_within_one_label(
        domain in domain(), head in "[a-z]{1,4}", tail in "[a-z]{1,4}", middle in "[0-9]{0,6}", other in label(), how: u8
    ) {
        let fitting = format!("{head}{middle}{tail}.{domain}");
        let (begins, ends) = (format!("{head}*.{domain}"), format!("*{tail}.{domain}"));
        let both = format!("{head}*{tail}.{domain}");
        let rows = [
            (&both, fitting.clone(), true),
            (&begins, fitting.clone(), true),
            (&ends, fitting.clone(), true),
            // A pattern is anchored at both ends, and a star does not match a dot.
            (&begins, format!("0{fitting}"), false),
            (&ends, format!("{head}{middle}{tail}0.{domain}"), false),
            (&both, format!("{other}.{fitting}"), false),
            (&both, format!("{head}.{tail}.{domain}"), false),
            (&both, format!("{head}{tail}.{domain}.{other}.org"), false),
        ];
        for (entry, host, covered) in rows {
            prop_assert_eq!(covers(entry, &host, how), covered, "{} {}", entry, host);
        }
    }

    #[test]
    fn a_single_star_covers_every_host(domain in domain(), address: std::net::Ipv4Addr, how: u8) {
        prop_assert!(covers("*", &domain, how));
        let at_address = Target::parse(&format!("http://{address}/")).unwrap();
        prop_assert!(DomainPattern::any_domain().matches(&at_address));
    }

    #[test]
    fn an_ip_address_pattern_covers_only_that_address(address: std::net::Ipv4Addr, other: std::net::Ipv4Addr) {
        let target = Target::parse(&format!("http://{}/", u32::from(address))).unwrap();
        prop_assert!(DomainPattern::parse(&address.to_string()).unwrap().matches(&target));
        let by_other = DomainPattern::parse(&other.to_string()).unwrap().matches(&target);
        prop_assert_eq!(by_other, address == other);
        let [a, b, c, d] = address.octets();
        for entry in [format!("*.{b}.{c}.{d}"), format!("{a}.*.{c}.{d}"), format!("*.{c}.{d}"), format!("{a}.{b}.{c}.*")] {
            let covers = DomainPattern::parse(&entry).is_ok_and(|pattern| pattern.matches(&target));
            prop_assert!(!covers, "{}", entry);
        }
    }
}
