//! Calls to untrusted servers: only at public internet addresses, and at the hosts in a setting.

use crate::http::public_address::{PublicOnly, may_be_public};
use reqwest::{ClientBuilder, redirect::Policy};
use std::collections::BTreeSet;
use url::Url;

/// The `User-Agent` of the functions' own calls: of the issuer and of the chain's node.
pub(crate) const USER_AGENT: &str = concat!("Purser/", env!("CARGO_PKG_VERSION"));

/// A client for any server, whose name in `User-Agent` is `program` and the version. It follows no redirect, which would
/// have to be checked like the first address, and would send a payment to another address. It resolves names with the
/// system's resolver, uses no proxy, and decodes gzip, deflate and br: who reads a body bounds the decoded bytes.
pub fn client_for_any(program: &str) -> ClientBuilder {
    ClientBuilder::new()
        .user_agent(format!("{program}/{}", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        // A proxy would resolve names itself, so no address could be checked.
        .no_proxy()
        .referer(false)
        // A function is frozen between two calls, and its connections are closed meanwhile.
        .pool_max_idle_per_host(0)
}

/// The same, for names that have only public addresses. [`AllowedHosts::may_call`] checks URLs with an IP address.
pub fn client_for_public(program: &str) -> ClientBuilder {
    client_for_any(program).dns_resolver(PublicOnly)
}

/// Hosts that may have any address, as `host:port`: for the local stack.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(BTreeSet<String>);

impl AllowedHosts {
    /// Reads a list separated by commas; `None` if an entry is not `host:port`.
    pub fn parse(list: &str) -> Option<Self> {
        let hosts = list.split(',').map(str::trim).filter(|host| !host.is_empty());
        hosts.map(parse_authority).collect::<Option<_>>().map(Self)
    }

    /// Whether this URL's host is one of them.
    pub fn contains(&self, url: &Url) -> bool {
        authority(url).is_some_and(|authority| self.0.contains(&authority))
    }

    /// Whether the condition holds for the host of each; an IPv6 address has brackets.
    pub(crate) fn all(&self, is_one: impl Fn(&str) -> bool) -> bool {
        let mut hosts = self.0.iter().filter_map(|host| host.rsplit_once(':'));
        hosts.all(|(host, _port)| is_one(host))
    }

    /// Whether a URL may be called, as far as can be known before its name is resolved.
    pub fn may_call(&self, url: &Url) -> bool {
        self.contains(url) || may_be_public(url)
    }
}

/// `host:port` of a URL, the form for comparisons.
fn authority(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// Reads `host:port`, as [`authority`] writes it.
fn parse_authority(text: &str) -> Option<String> {
    let (_, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let url = Url::parse(&format!("http://{text}/")).ok()?;
    // The parser must have read only a host and a port; there are no wildcards.
    let read = authority(&url)?;
    (read.eq_ignore_ascii_case(text) && !text.contains('*')).then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_hosts_require_a_host_and_port() {
        let rows = [
            ("127.0.0.1:4021", Some("127.0.0.1:4021")),
            ("[::1]:80", Some("[::1]:80")),
            ("Lab.example:443", Some("lab.example:443")),
            ("127.0.0.1", None),
            ("127.1:80", None),
            ("lab.example:", None),
            ("lab.example:http", None),
            ("lab.example:65536", None),
            ("a@lab.example:80", None),
            ("lab.example/x:80", None),
            ("*:80", None),
            (":80", None),
            ("", None),
        ];
        for (text, read) in rows {
            assert_eq!(parse_authority(text).as_deref(), read, "{text}");
        }
    }
}
