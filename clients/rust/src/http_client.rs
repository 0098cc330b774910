//! The HTTP client of this package and of the programs that use this package.

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;

/// The `User-Agent` header of this package.
pub(crate) const USER_AGENT: &str = concat!("purser-client-rust/", env!("CARGO_PKG_VERSION"));

/// Returns a builder for HTTP clients that send `user_agent` (name and version) and decode gzip, deflate and br.
///
/// The clients follow no redirects, because a redirect could send a payment or a key to another host. They use the
/// proxies and certificate authorities from the environment.
pub fn http_client(user_agent: &str) -> ClientBuilder {
    ClientBuilder::new().user_agent(user_agent).redirect(Policy::none())
}
