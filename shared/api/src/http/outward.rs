//! HTTP clients for untrusted servers. A client calls servers at public addresses, and the servers that the deployment
//! allows ([`AllowedHosts`]).

use crate::http::public_address::{PublicOnly, may_be_public};
use reqwest::{ClientBuilder, redirect::Policy};
use std::collections::BTreeSet;
use url::Url;

/// The `User-Agent` of calls to the OpenID Connect issuer and to the blockchain node.
pub(crate) const USER_AGENT: &str = concat!("Purser/", env!("CARGO_PKG_VERSION"));

/// Builds an HTTP client that may call a server at any address. The header `User-Agent` starts with
/// `user_agent_product`.
///
/// The client follows no redirects, because the redirect's URL would not be checked and could receive a payment. Code
/// that reads a body must limit the decoded bytes.
pub fn any_address_client_builder(user_agent_product: &str) -> ClientBuilder {
    ClientBuilder::new()
        .user_agent(format!("{user_agent_product}/{}", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        // A proxy would resolve host names itself, so the addresses of the hosts could not be checked.
        .no_proxy()
        .referer(false)
        // Keeps no idle connections, because servers close connections while Lambda freezes the instance.
        .pool_max_idle_per_host(0)
}

/// Builds a client like [`any_address_client_builder`] that connects to host names only at public addresses. The caller
/// must check a URL that contains an IP address with [`AllowedHosts::may_call`].
pub fn public_address_client_builder(user_agent_product: &str) -> ClientBuilder {
    any_address_client_builder(user_agent_product).dns_resolver(PublicOnly)
}

/// A list of servers, each as `host:port`, that a function may call even at a private address. The local stack needs
/// such a list, because the servers of a local stack have private addresses.
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

    /// Returns whether `matches` returns `true` for every host in the list. `matches` gets the host without the port.
    /// An IPv6 address has brackets.
    pub(crate) fn all_hosts_match(&self, matches: impl Fn(&str) -> bool) -> bool {
        let mut hosts = self.0.iter().filter_map(|host| host.rsplit_once(':'));
        hosts.all(|(host, _port)| matches(host))
    }

    /// Returns whether a function may call the URL. If the URL contains a host name, the client checks the host's
    /// addresses when the client connects.
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
    // If `text` has more than a host and a port, such as a path, `text` differs from `read`.
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
