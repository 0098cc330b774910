//! Restricts calls outside AWS to public addresses, against server-side request forgery (SSRF).
//!
//! The catalog's URLs are untrusted. With a URL or a DNS record, an attacker could otherwise make a function call the
//! metadata service, the Lambda runtime API or other internal services.

use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use url::{Host, Url};

/// IPv4 ranges that are not globally reachable (IANA IPv4 Special-Purpose Address Registry), and multicast and reserved
/// ranges.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u32)] = &[
    // "This network", which includes the unspecified address.
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Carrier-grade NAT, which clouds use for internal services.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback, which the Lambda runtime API uses.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, where clouds have their metadata services.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    // Relays of 6to4, an IPv6 transition mechanism.
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, the reserved range, and broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The only IPv6 range for global unicast (RFC 4291 §2.4). IPv4-mapped, NAT64, unique local and link-local addresses
/// are outside.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Subranges of [`GLOBAL_V6`] that are not globally reachable (IANA IPv6 Special-Purpose Address Registry), or that a
/// relay forwards to an IPv4 address.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u32)] = &[
    // Protocol assignments: Teredo, benchmarking, ORCHID.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // The older and the newer range for documentation (RFC 3849 and RFC 9637).
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    // Addresses of 6to4, an IPv6 transition mechanism, which contain an IPv4 address.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
];

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !NOT_PUBLIC_V4.iter().any(|(range, bits)| {
            let distance = range.to_bits() ^ ip.to_bits();
            distance.leading_zeros() >= *bits
        }),
        IpAddr::V6(ip) => {
            let in_range = |(range, bits): &(Ipv6Addr, u32)| {
                let distance = range.to_bits() ^ ip.to_bits();
                distance.leading_zeros() >= *bits
            };
            in_range(&GLOBAL_V6) && !NOT_PUBLIC_V6.iter().any(in_range)
        }
    }
}

/// Returns whether a function may call the URL. A host name is checked when it is resolved.
pub fn may_be_public(url: &Url) -> bool {
    match url.host() {
        // No resolver checks an IP address, so this is the check. The URL parser has normalized IPv4 texts.
        Some(Host::Ipv4(ip)) => is_public(ip.into()),
        Some(Host::Ipv6(ip)) => is_public(ip.into()),
        Some(Host::Domain(name)) => !is_localhost_name(name),
        None => false,
    }
}

/// Returns whether a host name always resolves to this machine (RFC 6761 §6.3).
fn is_localhost_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Why a host name may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedHostName {
    /// The host name has no address.
    Unknown,
    /// The host name has an address that is not public.
    NotPublic,
}

impl fmt::Display for RejectedHostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "the name does not resolve to an address",
            Self::NotPublic => "the name resolves to an address that is not public",
        })
    }
}

impl std::error::Error for RejectedHostName {}

/// Resolves a host name. Fails if any address is not public.
///
/// The caller must connect to the returned addresses, because a second resolution could return others (DNS rebinding).
async fn resolve_public_addresses(name: &str) -> Result<Vec<SocketAddr>, RejectedHostName> {
    let addresses = tokio::net::lookup_host((name, 0)).await;
    let addresses: Vec<SocketAddr> = addresses.map_err(|_| RejectedHostName::Unknown)?.collect();
    if addresses.is_empty() {
        return Err(RejectedHostName::Unknown);
    }
    let public = addresses.iter().all(|address| is_public(address.ip()));
    public.then_some(addresses).ok_or(RejectedHostName::NotPublic)
}

/// A resolver for HTTP clients that call public addresses only.
#[derive(Clone, Debug)]
pub(crate) struct PublicOnly;

impl ResolveDns for PublicOnly {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move {
            let addresses = resolve_public_addresses(name).await.map_err(ResolveDnsError::new)?;
            Ok(addresses.iter().map(SocketAddr::ip).collect())
        })
    }
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Addrs = Box::new(resolve_public_addresses(name.as_str()).await?.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_ip_addresses_may_be_called() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2606:4700::1111",
            "2003::1",
            "3ffe::1",
        ];
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.0.1",
            "169.254.169.254",
            "169.254.170.2",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            // IPv4 in IPv6: mapped, compatible, translated (RFC 2765), NAT64 (two ranges), 6to4, Teredo.
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::7f00:1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ];
        for ip in public {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in refused {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn ip_addresses_in_urls_are_checked_in_every_notation() {
        let refused = [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[0:0:0:0:0:ffff:7f00:1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://\u{ff11}27.0.0.1/",
            "http://localhost./",
            "data:text/plain,x",
        ];
        for text in refused {
            assert!(!may_be_public(&Url::parse(text).unwrap()), "{text}");
        }
        for text in [
            "http://8.8.8.8/",
            "https://lab.example/",
            "https://[2606:4700::1111]:8443/x",
        ] {
            assert!(may_be_public(&Url::parse(text).unwrap()), "{text}");
        }
    }

    #[tokio::test]
    async fn host_names_without_public_addresses_are_rejected() {
        assert_eq!(
            resolve_public_addresses("localhost").await,
            Err(RejectedHostName::NotPublic)
        );
        assert_eq!(resolve_public_addresses("").await, Err(RejectedHostName::Unknown));
    }

    #[test]
    fn local_host_names_are_recognized() {
        for name in ["localhost", "LOCALHOST", "localhost.", "a.localhost", "a.b.LocalHost."] {
            assert!(is_localhost_name(name), "{name}");
        }
        for name in ["localhost.example", "notlocalhost", "lab.example", ""] {
            assert!(!is_localhost_name(name), "{name}");
        }
    }
}
