//! The scope of an agent key: its permissions, services, source networks and end.
//!
//! Always true: a scope limits only what it names; a key is never checked against a caller's own claims, but against
//! the gateway's address, the route, and the service that a call matches or a row names. A scope is created with its
//! key, rotation copies it to the new key, and nothing changes it.

use crate::{
    Catalog, ErrorKind, Problem, Result, ServiceId, Timestamp, catalog::service::named, policy::rule::at_least_one,
    policy::rule::listed,
};
use ipnet::IpNet;
use std::{fmt, net::IpAddr};

named! {
    /// A kind of call.
    Permission {
        /// Lists of receipts and services, and the agent's policies.
        Read = "read",
        /// Preflights, payments and their completion.
        Pay = "pay",
    }

    /// The reason that a valid key does not allow a call.
    KeyLack {
        /// The key lacks [`Permission::Read`].
        Read = "read",
        /// The key lacks [`Permission::Pay`].
        Pay = "pay",
        /// The service is not in the key's scope.
        Service = "service",
        /// The call is from a network outside the key's scope.
        Network = "network",
    }
}

impl From<KeyLack> for ErrorKind {
    fn from(missing: KeyLack) -> Self {
        Self::KeyNotAllowed { missing }
    }
}

/// The permission and source of a call, as far as they are known before anything is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The caller's IP address according to the gateway; `None` if unknown.
    pub from: Option<IpAddr>,
    /// The permission; `None` if any key suffices.
    pub needs: Option<Permission>,
}

/// The limits of a key; the default has no limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyScope {
    /// The permissions; `None`: all.
    pub permissions: Option<Vec<Permission>>,
    /// The services that it may pay, and whose data it may read; `None`: all.
    pub services: Option<Vec<ServiceId>>,
    /// The networks from which it may be used; `None`: all.
    pub networks: Option<Vec<SourceNetwork>>,
    /// The time from which it is refused, like a revoked key; `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl KeyScope {
    /// The maximum number of services in a scope: the agent's record, with all its keys, is read with every payment.
    pub const MOST_SERVICES: usize = 20;
    /// The maximum number of networks in a scope.
    pub const MOST_NETWORKS: usize = 10;

    /// Refuses a use from another network, or without the permission. An unknown address is in no network.
    pub fn check_use(&self, KeyUse { from, needs }: KeyUse) -> Result<()> {
        let reaches = |network: &SourceNetwork| from.is_some_and(|from| network.contains(from));
        if !self
            .networks
            .as_ref()
            .is_none_or(|networks| networks.iter().any(reaches))
        {
            return Err(ErrorKind::from(KeyLack::Network).into());
        }
        match needs {
            Some(needs) if !self.permissions().contains(&needs) => Err(ErrorKind::from(match needs {
                Permission::Read => KeyLack::Read,
                Permission::Pay => KeyLack::Pay,
            })
            .into()),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a service outside the scope.
    pub fn check_service(&self, service: ServiceId) -> Result<()> {
        if self.covers(service) {
            Ok(())
        } else {
            Err(ErrorKind::from(KeyLack::Service).into())
        }
    }

    /// Whether the key may be used for this service.
    pub fn covers(&self, service: ServiceId) -> bool {
        self.services
            .as_ref()
            .is_none_or(|services| services.contains(&service))
    }

    /// The permissions.
    pub fn permissions(&self) -> &[Permission] {
        self.permissions.as_deref().unwrap_or(Permission::ALL)
    }
}

/// A scope as a person requests it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedScope {
    /// As [`KeyScope::permissions`].
    pub permissions: Option<Vec<Permission>>,
    /// The services, each by slug or UUID.
    pub services: Option<Vec<String>>,
    /// As [`KeyScope::networks`].
    pub networks: Option<Vec<SourceNetwork>>,
    /// As [`KeyScope::expires_at`].
    pub expires_at: Option<Timestamp>,
}

impl AskedScope {
    /// The scope; else every problem, at its JSON Pointer. Services must be in the catalog, so that mistyped ones are
    /// found.
    pub fn judged(self, catalog: &Catalog, now: Timestamp) -> Result<KeyScope, Vec<Problem>> {
        let mut problems = Vec::new();
        if let Some(permissions) = &self.permissions {
            let most = Permission::ALL.len();
            problems.extend(listed("/permissions", permissions, at_least_one, most, |_| None));
        }
        let services = self.services.map(|references| {
            let found = references.into_iter().map(|reference| {
                let service = catalog.by_reference(&reference).map(|service| service.id);
                service.ok_or(reference)
            });
            let found: Vec<Result<ServiceId, String>> = found.collect();
            // The reference is not repeated in the message: a key that was pasted here by mistake looks like a slug.
            let unknown = |service: &Result<_, _>| service.is_err().then(|| "is no service of the catalog".to_owned());
            let most = KeyScope::MOST_SERVICES;
            problems.extend(listed("/services", &found, at_least_one, most, unknown));
            found.into_iter().filter_map(Result::ok).collect()
        });
        if let Some(networks) = &self.networks {
            let most = KeyScope::MOST_NETWORKS;
            problems.extend(listed("/networks", networks, at_least_one, most, |_| None));
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            problems.push(Problem::at("/expires_at", "must be in the future"));
        }
        if problems.is_empty() {
            Ok(KeyScope {
                permissions: self.permissions,
                services,
                networks: self.networks,
                expires_at: self.expires_at,
            })
        } else {
            Err(problems)
        }
    }
}

/// A block of caller addresses (CIDR, RFC 4632 and RFC 4291 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceNetwork(IpNet);

impl SourceNetwork {
    /// The requirement of [`SourceNetwork::parse`], for the message of a problem.
    pub const FORM: &'static str =
        "must be a CIDR block such as `203.0.113.0/24` or `2001:db8::/32`; one address is `203.0.113.7/32`";

    /// Parses a block; else the problem. Bits beyond the prefix are refused, since either the address or the prefix is
    /// mistyped.
    pub fn parse(text: &str) -> Result<Self, String> {
        let block = Self::read(text).ok_or(Self::FORM)?;
        let exact = block.trunc();
        if block != exact {
            return Err(format!(
                "has bits beyond its prefix: the block is `{exact}`, the address alone `{}/{}`",
                block.addr(),
                block.max_prefix_len()
            ));
        }
        // Callers' IPv4-mapped addresses are compared as IPv4, so such a block would match no caller.
        if let IpAddr::V6(address) = block.addr()
            && address.to_ipv4_mapped().is_some()
        {
            return Err("must be written as a block of IPv4".to_owned());
        }
        Ok(Self(block))
    }

    fn read(text: &str) -> Option<IpNet> {
        let (address, length) = text.split_once('/')?;
        // The standard library accepts only one spelling of an IPv4 address, but also `+24` and `024` as a number.
        let prefix: u8 = length.parse().ok().filter(|prefix: &u8| prefix.to_string() == length)?;
        IpNet::new(address.parse().ok()?, prefix).ok()
    }

    /// Whether the address is in the block. An IPv4-mapped address counts as IPv4, so no IPv6 block contains it.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// The block in the form that [`SourceNetwork::parse`] accepts.
impl fmt::Display for SourceNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Duration, Error};
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use uuid::Uuid;

    fn networks(blocks: &[&str]) -> Vec<SourceNetwork> {
        let blocks = blocks.iter();
        blocks.map(|block| SourceNetwork::parse(block).unwrap()).collect()
    }

    fn lack(judged: &Result<()>) -> Option<KeyLack> {
        match judged.as_ref().map_err(Error::kind) {
            Ok(()) => None,
            Err(ErrorKind::KeyNotAllowed { missing }) => Some(*missing),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// An IPv4-mapped IPv6 address counts as an IPv4 address; other IPv6 forms with IPv4 bits do not.
    #[test]
    fn network_blocks_contain_only_their_addresses() {
        let rows: [(&str, &[&str], &[&str]); 7] = [
            (
                "203.0.113.0/24",
                &["203.0.113.0", "203.0.113.255", "::ffff:203.0.113.7"],
                &[
                    "203.0.112.255",
                    "203.0.114.0",
                    "::203.0.113.7",
                    "2002:cb00:7107::",
                    "64:ff9b::203.0.113.7",
                ],
            ),
            ("203.0.113.7/32", &["203.0.113.7"], &["203.0.113.6", "203.0.113.8"]),
            (
                "0.0.0.0/0",
                &["203.0.113.7", "::ffff:203.0.113.7"],
                &["::1", "2001:db8::1"],
            ),
            ("::/0", &["::1", "2001:db8::1"], &["203.0.113.7", "::ffff:203.0.113.7"]),
            ("::fffe:0:0/95", &["::fffe:203.0.113.7"], &["::ffff:203.0.113.7"]),
            (
                "2001:DB8::/33",
                &["2001:db8:7fff::1"],
                &["2001:db8:8000::", "2001:db9::"],
            ),
            ("2001:db8::7/128", &["2001:db8::7"], &["2001:db8::6", "2001:db8::8"]),
        ];
        for (block, inside, outside) in rows {
            let network = SourceNetwork::parse(block).unwrap();
            assert_eq!(SourceNetwork::parse(&network.to_string()), Ok(network));
            for (addresses, expected) in [(inside, true), (outside, false)] {
                for address in addresses {
                    assert_eq!(
                        network.contains(address.parse().unwrap()),
                        expected,
                        "{block} {address}"
                    );
                }
            }
        }
    }

    #[test]
    fn malformed_network_blocks_are_refused_with_a_reason() {
        let form = SourceNetwork::FORM;
        let rows = [
            ("", form),
            ("203.0.113.7", form),
            ("203.0.113.0/", form),
            ("203.0.113.0/33", form),
            ("203.0.113.0/024", form),
            ("203.0.113.0/+24", form),
            ("203.0.113.0/24 ", form),
            ("203.0.113/24", form),
            ("0313.0.0161.0/24", form),
            ("203.0.113.0/255.255.255.0", form),
            ("2001:db8::/129", form),
            ("[2001:db8::]/32", form),
            ("fe80::%eth0/64", form),
            ("example.com/24", form),
            ("*", form),
            (
                "203.0.113.7/24",
                "has bits beyond its prefix: the block is `203.0.113.0/24`, the address alone `203.0.113.7/32`",
            ),
            (
                "2001:db8::1/32",
                "has bits beyond its prefix: the block is `2001:db8::/32`, the address alone `2001:db8::1/128`",
            ),
            ("::ffff:203.0.113.0/120", "must be written as a block of IPv4"),
            ("::ffff:0:0/96", "must be written as a block of IPv4"),
        ];
        for (text, problem) in rows {
            assert_eq!(SourceNetwork::parse(text), Err(problem.to_owned()), "{text}");
        }
    }

    #[test]
    fn keys_are_limited_to_permissions_and_networks() {
        let at = |text: &str| Some(text.parse().unwrap());
        let (inside, outside) = (at("203.0.113.7"), at("198.51.100.7"));
        let home = Some(networks(&["192.0.2.0/24", "203.0.113.0/24"]));
        let only = |permission| Some(vec![permission]);
        let (read, pay) = (Some(Permission::Read), Some(Permission::Pay));
        let rows = [
            (None, None, outside, pay, None),
            (None, None, None, read, None),
            (None, home.clone(), inside, pay, None),
            (None, home.clone(), outside, None, Some(KeyLack::Network)),
            (None, home.clone(), None, None, Some(KeyLack::Network)),
            (only(Permission::Read), None, inside, read, None),
            (only(Permission::Read), None, inside, None, None),
            (only(Permission::Read), None, inside, pay, Some(KeyLack::Pay)),
            (only(Permission::Pay), None, inside, pay, None),
            (only(Permission::Pay), None, inside, read, Some(KeyLack::Read)),
            (only(Permission::Read), home, outside, pay, Some(KeyLack::Network)),
            (Some(vec![]), None, inside, read, Some(KeyLack::Read)),
        ];
        for (permissions, networks, from, needs, expected) in rows {
            let scope = KeyScope {
                permissions,
                networks,
                ..KeyScope::default()
            };
            assert_eq!(
                lack(&scope.check_use(KeyUse { from, needs })),
                expected,
                "{scope:?} {from:?}"
            );
        }
    }

    #[test]
    fn keys_are_limited_to_their_services() {
        let [one, two] = [1, 2].map(|id| ServiceId::from_uuid(Uuid::from_u128(id)));
        let rows = [
            (None, None),
            (Some(vec![two, one]), None),
            (Some(vec![two]), Some(KeyLack::Service)),
        ];
        for (services, expected) in rows {
            let scope = KeyScope {
                services,
                ..KeyScope::default()
            };
            assert_eq!(lack(&scope.check_service(one)), expected, "{scope:?}");
        }
    }

    #[test]
    fn every_problem_of_a_requested_scope_is_reported() {
        let now = Timestamp::EPOCH.after(Duration::DAY);
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        let asked = AskedScope {
            permissions: Some(vec![Permission::Pay, Permission::Pay]),
            services: texts(&["no-such", "no-such", "none"]),
            networks: Some(networks(&["10.0.0.0/8", "10.0.0.0/8"])),
            expires_at: Some(now),
        };
        let paths = |judged: Result<KeyScope, Vec<Problem>>| -> Vec<String> {
            judged.unwrap_err().into_iter().map(|problem| problem.path).collect()
        };
        let catalog = Catalog::new(vec![]);
        let expected = [
            "/permissions/1",
            "/services/0",
            "/services/1",
            "/services/2",
            "/networks/1",
            "/expires_at",
        ];
        assert_eq!(paths(asked.judged(&catalog, now)), expected);
        let empty = AskedScope {
            permissions: Some(vec![]),
            services: Some(vec![]),
            networks: Some(vec![]),
            expires_at: Some(now.after(Duration::DAY)),
        };
        assert_eq!(
            paths(empty.judged(&catalog, now)),
            ["/permissions", "/services", "/networks"]
        );
        assert_eq!(AskedScope::default().judged(&catalog, now), Ok(KeyScope::default()));
    }

    proptest! {
        /// Computed by arithmetic on the whole address instead of a mask.
        #[test]
        fn a_block_holds_what_shares_its_prefix(address: u32, other: u32, prefix in 0_u32..=32, wide: u128, near: u128, long in 0_u32..=128) {
            let beyond = |bits: u32, prefix: u32| 1_u128 << (bits - prefix);
            let size = beyond(32, prefix);
            let start = u128::from(address) / size * size;
            let block = format!("{}/{prefix}", Ipv4Addr::from(u32::try_from(start).unwrap()));
            let block = SourceNetwork::parse(&block).unwrap();
            let inside = (start..start + size).contains(&u128::from(other));
            prop_assert_eq!(block.contains(Ipv4Addr::from(other).into()), inside);
            prop_assert_eq!(block.contains(Ipv4Addr::from(other).to_ipv6_mapped().into()), inside);

            let mask = if long == 0 { 0 } else { u128::MAX << (128 - long) };
            let start = Ipv6Addr::from(wide & mask);
            if let Ok(block) = SourceNetwork::parse(&format!("{start}/{long}")) {
                for other in [near, wide, (wide & mask) | (near & !mask)] {
                    let is_mapped = Ipv6Addr::from(other).to_ipv4_mapped().is_some();
                    let inside = other & mask == wide & mask && !is_mapped;
                    prop_assert_eq!(block.contains(Ipv6Addr::from(other).into()), inside);
                }
            }
        }
    }
}
