//! The scope of an agent key: permissions, services, source networks and expiry. A key's scope never changes, and
//! rotation copies it to the new key.
//!
//! Keys are checked against the gateway's source address, the route and the matched service, never against the caller's
//! own claims.

use crate::{
    Catalog, ErrorKind, Result, ServiceId, Timestamp, ValidationError, catalog::service::named,
    policy::rule::is_at_least_one, policy::rule::list_errors,
};
use ipnet::IpNet;
use std::{fmt, net::IpAddr};

named! {
    /// A permission of an agent key.
    Permission {
        /// The permission to list receipts and services and to read the agent's policies.
        Read = "read",
        /// The permission to preflight, authorize and complete payments.
        Pay = "pay",
    }

    /// Why a valid key does not allow a call.
    KeyLack {
        /// The key lacks [`Permission::Read`].
        Read = "read",
        /// The key lacks [`Permission::Pay`].
        Pay = "pay",
        /// The service is not in the key's scope.
        Service = "service",
        /// The call's source address is outside the key's networks.
        Network = "network",
        /// The key can't open runs: it is a grant, a run's key, or named by a budget or count limit.
        Run = "run",
    }
}

impl From<KeyLack> for ErrorKind {
    fn from(lack: KeyLack) -> Self {
        Self::KeyNotAllowed { missing: lack }
    }
}

/// The call's source address and required permission, which are known before any read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The caller's IP address from the gateway; `None` if unknown.
    pub from: Option<IpAddr>,
    /// The required permission; `None` if any key suffices.
    pub needs: Option<Permission>,
}

/// The limits of a key; the default has no limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyScope {
    /// The permissions. `None` means all permissions.
    pub permissions: Option<Vec<Permission>>,
    /// The services that the key may pay and whose data it may read; `None` for all services.
    pub services: Option<Vec<ServiceId>>,
    /// The networks from which the key may be used. `None` means all networks.
    pub networks: Option<Vec<SourceNetwork>>,
    /// The time from which the key is rejected like a revoked key; `None` if the key does not expire.
    pub expires_at: Option<Timestamp>,
}

impl KeyScope {
    /// The maximum number of services in a scope. Every payment reads the agent's record with all keys.
    pub const MAX_SERVICES: usize = 20;
    /// The maximum number of networks in a scope.
    pub const MAX_NETWORKS: usize = 10;

    /// Rejects a call if the source address is outside the scope's networks or the scope lacks the required
    /// permission. An unknown source address is in no network.
    pub fn check_use(
        &self,
        KeyUse {
            from,
            needs: permission,
        }: KeyUse,
    ) -> Result<()> {
        let reaches = |network: &SourceNetwork| from.is_some_and(|from| network.contains(from));
        if !self
            .networks
            .as_ref()
            .is_none_or(|networks| networks.iter().any(reaches))
        {
            return Err(ErrorKind::from(KeyLack::Network).into());
        }
        match permission {
            Some(needs) if !self.permissions().contains(&needs) => Err(ErrorKind::from(match needs {
                Permission::Read => KeyLack::Read,
                Permission::Pay => KeyLack::Pay,
            })
            .into()),
            Some(_) | None => Ok(()),
        }
    }

    /// Rejects a service outside the scope.
    pub fn check_service(&self, service: ServiceId) -> Result<()> {
        if self.includes_service(service) {
            Ok(())
        } else {
            Err(ErrorKind::from(KeyLack::Service).into())
        }
    }

    /// Returns whether the key may be used for this service.
    pub fn includes_service(&self, service: ServiceId) -> bool {
        self.services
            .as_ref()
            .is_none_or(|services| services.contains(&service))
    }

    /// Returns the permissions of the key: all permissions if the scope does not limit them.
    pub fn permissions(&self) -> &[Permission] {
        self.permissions.as_deref().unwrap_or(Permission::ALL)
    }
}

/// A scope from a user's request, before validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedScope {
    /// The requested [`KeyScope::permissions`].
    pub permissions: Option<Vec<Permission>>,
    /// The services, each as a slug or UUID.
    pub services: Option<Vec<String>>,
    /// The requested [`KeyScope::networks`].
    pub networks: Option<Vec<SourceNetwork>>,
    /// The requested [`KeyScope::expires_at`].
    pub expires_at: Option<Timestamp>,
}

impl RequestedScope {
    /// Validates the scope. The error contains all validation errors, each with a JSON Pointer.
    pub fn validate(self, catalog: &Catalog, now: Timestamp) -> Result<KeyScope, Vec<ValidationError>> {
        let mut errors = Vec::new();
        if let Some(permissions) = &self.permissions {
            let max = Permission::ALL.len();
            errors.extend(list_errors("/permissions", permissions, is_at_least_one, max, |_| None));
        }
        let services = self.services.map(|references| {
            let found = references.into_iter().map(|reference| {
                let service = catalog.find_by_reference(&reference).map(|service| service.id);
                service.ok_or(reference)
            });
            let found: Vec<Result<ServiceId, String>> = found.collect();
            // The message does not repeat the text, because the user may have pasted a key by mistake.
            let unknown = |service: &Result<_, _>| service.is_err().then(|| "is no service of the catalog".to_owned());
            let max = KeyScope::MAX_SERVICES;
            errors.extend(list_errors("/services", &found, is_at_least_one, max, unknown));
            found.into_iter().filter_map(Result::ok).collect()
        });
        if let Some(networks) = &self.networks {
            let max = KeyScope::MAX_NETWORKS;
            errors.extend(list_errors("/networks", networks, is_at_least_one, max, |_| None));
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            errors.push(ValidationError::at_path("/expires_at", "must be in the future"));
        }
        if errors.is_empty() {
            Ok(KeyScope {
                permissions: self.permissions,
                services,
                networks: self.networks,
                expires_at: self.expires_at,
            })
        } else {
            Err(errors)
        }
    }
}

/// A block of source addresses in CIDR notation (RFC 4632 and RFC 4291 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceNetwork(IpNet);

impl SourceNetwork {
    /// The requirements of [`SourceNetwork::parse`], for validation errors.
    pub const FORM: &'static str =
        "must be a CIDR block such as `203.0.113.0/24` or `2001:db8::/32`; one address is `203.0.113.7/32`";

    /// Parses a CIDR block. Rejects address bits beyond the prefix, because the address or the prefix is then mistyped.
    pub fn parse(text: &str) -> Result<Self, String> {
        let block = Self::parse_cidr(text).ok_or(Self::FORM)?;
        let exact = block.trunc();
        if block != exact {
            return Err(format!(
                "has bits beyond its prefix: the block is `{exact}`, the address alone `{}/{}`",
                block.addr(),
                block.max_prefix_len()
            ));
        }
        // Callers' IPv4-mapped addresses are compared as IPv4, so a block of IPv4-mapped addresses would match no
        // caller.
        if let IpAddr::V6(address) = block.addr()
            && address.to_ipv4_mapped().is_some()
        {
            return Err("must be written as a block of IPv4".to_owned());
        }
        Ok(Self(block))
    }

    fn parse_cidr(text: &str) -> Option<IpNet> {
        let (address, duration) = text.split_once('/')?;
        // `u8::from_str` also accepts `+24` and `024`.
        let prefix: u8 = duration
            .parse()
            .ok()
            .filter(|prefix: &u8| prefix.to_string() == duration)?;
        IpNet::new(address.parse().ok()?, prefix).ok()
    }

    /// Returns whether the address is in the block. An IPv4-mapped address counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Writes the block in the form that [`SourceNetwork::parse`] accepts.
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

    #[test]
    fn cidr_blocks_contain_only_their_addresses() {
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
    fn malformed_cidr_blocks_are_rejected_with_a_reason() {
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
    fn agent_keys_are_limited_to_permissions_and_networks() {
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
    fn agent_keys_are_limited_to_their_services() {
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
    fn all_validation_errors_of_a_key_scope_are_reported() {
        let now = Timestamp::EPOCH.after(Duration::DAY);
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        let asked = RequestedScope {
            permissions: Some(vec![Permission::Pay, Permission::Pay]),
            services: texts(&["no-such", "no-such", "none"]),
            networks: Some(networks(&["10.0.0.0/8", "10.0.0.0/8"])),
            expires_at: Some(now),
        };
        let paths = |judged: Result<KeyScope, Vec<ValidationError>>| -> Vec<String> {
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
        assert_eq!(paths(asked.validate(&catalog, now)), expected);
        let empty = RequestedScope {
            permissions: Some(vec![]),
            services: Some(vec![]),
            networks: Some(vec![]),
            expires_at: Some(now.after(Duration::DAY)),
        };
        assert_eq!(
            paths(empty.validate(&catalog, now)),
            ["/permissions", "/services", "/networks"]
        );
        assert_eq!(
            RequestedScope::default().validate(&catalog, now),
            Ok(KeyScope::default())
        );
    }

    proptest! {
        /// The expected result is computed with arithmetic on the whole address instead of a mask.
        #[test]
        fn a_cidr_block_contains_addresses_with_its_prefix(address: u32, other: u32, prefix in 0_u32..=32, wide: u128, near: u128, long in 0_u32..=128) {
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
