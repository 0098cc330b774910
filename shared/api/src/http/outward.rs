//! HTTP clients for untrusted servers. They call public internet addresses and the hosts in a setting, and nothing
//! else.

use crate::http::public_address::{PublicOnly, may_be_public};
use reqwest::{ClientBuilder, redirect::Policy};
use std::collections::BTreeSet;
use url::Url;

/// The `User-Agent` of calls to the OpenID Connect issuer and to the blockchain node.
pub(crate) const USER_AGENT: &str = concat!("Purser/", env!("CARGO_PKG_VERSION"));

/// Builds a client for any server, with `program` and the version as `User-Agent`. The client follows no redirects,
/// because a new URL would not be checked, and a payment would go to another URL. The client uses the system's
/// resolver, no proxy, and decodes gzip, deflate and br. Code that reads a body must limit the number of decoded bytes.
pub fn any_address_client_builder(program: &str) -> ClientBuilder {
    ClientBuilder::new()
        .user_agent(format!("{program}/{}", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        // A proxy would resolve names itself, so the addresses could not be checked.
        .no_proxy()
        .referer(false)
        // Lambda freezes a function between invocations, and servers close idle connections during the freeze.
        .pool_max_idle_per_host(0)
}

/// Builds a client like [`any_address_client_builder`], but host names must resolve to public addresses.
/// [`AllowedHosts::may_call`] checks URLs with an IP address.
pub fn client_for_public_servers(program: &str) -> ClientBuilder {
    any_address_client_builder(program).dns_resolver(PublicOnly)
}

/// The hosts, as `host:port`, that may have any address. The local stack needs such hosts.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(BTreeSet<String>);

impl AllowedHosts {
    /// Parses a list separated by commas. Returns `None` if an element is not `host:port`.
    pub fn parse(list: &str) -> Option<Self> {
        let hosts = list.split(',').map(str::trim).filter(|host| !host.is_empty());
        hosts.map(parse_authority).collect::<Option<_>>().map(Self)
    }

    /// Returns whether the list contains the URL's host and port.
    pub fn contains(&self, url: &Url) -> bool {
        normalized_authority(url).is_some_and(|authority| self.0.contains(&authority))
    }

    /// Returns whether `matches` returns true for every host in the list. The hosts are passed without the ports, and
    /// an IPv6 address has brackets.
    pub(crate) fn all_hosts_match(&self, matches: impl Fn(&str) -> bool) -> bool {
        let mut hosts = self.0.iter().filter_map(|host| host.rsplit_once(':'));
        hosts.all(|(host, _port)| matches(host))
    }

    /// Returns whether a function may call the URL. The host name is resolved and checked later, when the client
    /// connects.
    pub fn may_call(&self, url: &Url) -> bool {
        self.contains(url) || may_be_public(url)
    }
}

/// Returns the URL's `host:port` in normalized form.
fn normalized_authority(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// Parses `host:port` into the form that [`normalized_authority`] returns.
fn parse_authority(text: &str) -> Option<String> {
    let (_, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let url = Url::parse(&format!("http://{text}/")).ok()?;
    // The text must consist of a host and a port. Wildcards are not supported.
    let read = normalized_authority(&url)?;
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
