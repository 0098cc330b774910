//! The HTTP client of this package and of the programs that are built on it.

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;

/// This package's own `User-Agent`.
pub(crate) const USER_AGENT: &str = concat!("purser-client-rust/", env!("CARGO_PKG_VERSION"));

/// Returns a builder of HTTP clients that send this `User-Agent` (name and version), follow no redirect and decode
/// gzip, deflate and br.
///
/// A followed redirect would send a payment or a key to another address. The proxies of the environment (`HTTP_PROXY`,
/// `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`) and the system's certificate authorities (`SSL_CERT_FILE`, `SSL_CERT_DIR`)
/// are used.
pub fn http_client(user_agent: &str) -> ClientBuilder {
    ClientBuilder::new().user_agent(user_agent).redirect(Policy::none())
}
