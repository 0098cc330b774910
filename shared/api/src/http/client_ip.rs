//! The caller's IP address, and the throttle scope of a request.

use axum::http::{Extensions, Method};
use purser_domain::{Fingerprint, UserId};
use serde::{Deserialize, Deserializer, de::Error as _};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The used fields of the gateway's `requestContext` (HTTP API, payload format 2.0), in the extensions of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayContext {
    domain_name: Option<String>,
    http: GatewayHttp,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayHttp {
    #[serde(deserialize_with = "deserialize_method")]
    method: Method,
    source_ip: Option<String>,
}

fn deserialize_method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    let name = String::deserialize(deserializer)?;
    Method::from_bytes(name.as_bytes()).map_err(D::Error::custom)
}

impl GatewayContext {
    /// Creates the context of a request to this host.
    pub fn new(method: Method, domain_name: Option<&str>, source_ip: IpAddr) -> Self {
        Self {
            domain_name: domain_name.map(str::to_owned),
            http: GatewayHttp {
                method,
                source_ip: Some(source_ip.to_string()),
            },
        }
    }

    /// Replaces the gateway's source address by the address in a valid assertion (`asserted_ip.rs`).
    pub(crate) fn set_source_ip(&mut self, ip: IpAddr) {
        self.http.source_ip = Some(ip.to_string());
    }

    pub(crate) const fn http_method(&self) -> &Method {
        &self.http.method
    }
}

/// Returns the caller's address: the gateway's source address, or the address that `mcp` asserted (`asserted_ip.rs`).
pub fn client_ip(extensions: &Extensions) -> Option<IpAddr> {
    extensions
        .get::<GatewayContext>()?
        .http
        .source_ip
        .as_deref()?
        .parse()
        .ok()
}

/// Returns the host name of the request, as the gateway reports it.
pub fn domain_name(extensions: &Extensions) -> Option<&str> {
    extensions.get::<GatewayContext>()?.domain_name.as_deref()
}

/// A group of requests that are throttled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThrottleScope {
    /// Requests from one IPv4 address.
    V4(Ipv4Addr),
    /// Requests from one IPv6 /64 network, within which a site can freely change addresses.
    V6(Ipv6Addr),
    /// Requests of one user, from any address.
    Person(Fingerprint),
    /// Requests without a source address. The gateway always reports a source address.
    Unknown,
}

impl ThrottleScope {
    /// Returns the scope of the caller's IP address, or [`Self::Unknown`] without an address.
    pub fn for_request(extensions: &Extensions) -> Self {
        client_ip(extensions).map_or(Self::Unknown, Self::for_ip)
    }

    /// Returns the scope of a user whose session was verified.
    pub fn for_user(user: &UserId) -> Self {
        Self::Person(Fingerprint::for_text(user.as_str()))
    }

    /// Returns the scope of an address. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn for_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Self::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        }
    }
}

/// Formats the scope for the key of the scope's request counter.
impl fmt::Display for ThrottleScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.fmt(f),
            Self::V6(network) => write!(f, "{network}/64"),
            Self::Person(hash) => write!(f, "person {hash}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn extensions(source_ip: &str) -> Extensions {
        let http = json!({"method": "GET", "sourceIp": source_ip});
        let context = json!({"domainName": "purser.example", "http": http});
        let mut extensions = Extensions::new();
        extensions.insert(serde_json::from_value::<GatewayContext>(context).unwrap());
        extensions
    }

    #[test]
    fn throttling_uses_full_ipv4_addresses_and_ipv6_networks() {
        let rows = [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::", "2001:db8:1:2::/64"),
            ("::1", "::/64"),
            ("nowhere", "unknown"),
        ];
        for (ip, scope) in rows {
            assert_eq!(ThrottleScope::for_request(&extensions(ip)).to_string(), scope, "{ip}");
        }
    }

    #[test]
    fn the_gateway_event_contains_the_gateways_host_name() {
        assert_eq!(domain_name(&extensions("203.0.113.7")), Some("purser.example"));
    }

    #[test]
    fn requests_without_a_gateway_have_no_client_address() {
        assert_eq!(client_ip(&Extensions::new()), None);
        assert_eq!(domain_name(&Extensions::new()), None);
        assert_eq!(ThrottleScope::for_request(&Extensions::new()), ThrottleScope::Unknown);
    }
}
