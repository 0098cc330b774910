//! A client of the x402 facilitator, which submits withdrawals so that a wallet needs no gas.
//!
//! A facilitator can only submit the signed transfer, and the response proves nothing. The URL must be https and
//! public, except on Base Sepolia.

use crate::{ChainError, http_node::is_local};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector as _, SharedHttpConnector},
    orchestrator::HttpRequest,
};
use aws_smithy_types::body::SdkBody;
use http_body_util::{BodyExt as _, Limited};
use purser_domain::{Network, Submission};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// The timeout of a call. The facilitator responds after some two-second blocks. This Lambda function and the caller
/// have a timeout of 15 seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// The size limit of a response, in bytes. Typical responses have a few hundred bytes.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// A client of one facilitator.
pub struct Facilitator {
    http: SharedHttpConnector,
    settle: String,
}

/// The error for a URL that is not allowed for a facilitator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an https address of the public internet, without user, password, query or fragment")]
pub struct FacilitatorAddressError;

impl Facilitator {
    /// Creates a client for the facilitator at this URL. `is_public` checks a URL before the host name is resolved.
    ///
    /// `local_connector` connects to this machine and private networks, `outward_connector` to public addresses.
    pub fn new(
        network: Network,
        address: &str,
        local_connector: &SharedHttpConnector,
        outward_connector: SharedHttpConnector,
        is_public: impl FnOnce(&Url) -> bool,
    ) -> Result<Self, FacilitatorAddressError> {
        let mut url = Url::parse(address).map_err(|_| FacilitatorAddressError)?;
        let bare = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
            && matches!(url.scheme(), "http" | "https");
        if !bare {
            return Err(FacilitatorAddressError);
        }
        let http = if network.is_testnet() && is_local(&url) {
            local_connector.clone()
        } else if url.scheme() == "https" && is_public(&url) {
            outward_connector
        } else {
            return Err(FacilitatorAddressError);
        };
        let path = format!("{}/settle", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self {
            http,
            settle: url.into(),
        })
    }

    /// Submits a transfer (x402 v2, `POST /settle`). Returns the result, and the reason if the response contains one.
    pub async fn submit_transfer(&self, request: &Value) -> (Submission, Option<String>) {
        match timeout(CALL_TIMEOUT, self.post_settle_request(request)).await {
            Ok(Ok(body)) => Submission::parse_response(&body),
            Ok(Err(error)) => {
                tracing::warn!(cause = %purser_domain::Causes(&error), "facilitator.failed");
                (Submission::Unanswered, None)
            }
            Err(_late) => {
                tracing::warn!(cause = "the facilitator did not respond in time", "facilitator.failed");
                (Submission::Unanswered, None)
            }
        }
    }

    /// Posts the request and returns the response's body, whatever the status, because a rejection also has a body.
    async fn post_settle_request(&self, request: &Value) -> Result<Vec<u8>, ChainError> {
        const METHOD: &str = "settle";
        let failed = |source| ChainError::Unreachable { method: METHOD, source };
        let mut post = HttpRequest::new(SdkBody::from(request.to_string()));
        post.set_method("POST").map_err(|_| ChainError::Address)?;
        post.set_uri(self.settle.clone()).map_err(|_| ChainError::Address)?;
        let headers = post.headers_mut();
        headers.insert("content-type", "application/json");
        // A new connection, because a pooled connection may be dead and this call must not be repeated.
        headers.insert("connection", "close");
        let response = self.http.call(post).await.map_err(|error| failed(error.into()))?;
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        Ok(body.map_err(failed)?.to_bytes().into())
    }
}

/// Omits the URL, because the URL may contain a secret.
impl std::fmt::Debug for Facilitator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Facilitator(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::tests::http;

    /// On Base Sepolia, plain HTTP to a local address is allowed.
    #[test]
    fn facilitators_require_public_https_addresses() {
        use Network::{Base, BaseSepolia};
        let public = |url: &Url| !is_local(url);
        let rows = [
            (
                Base,
                "https://facilitator.example",
                Some("https://facilitator.example/settle"),
            ),
            (
                Base,
                "https://facilitator.example/x402/",
                Some("https://facilitator.example/x402/settle"),
            ),
            (Base, "http://facilitator.example", None),
            (Base, "https://127.0.0.1", None),
            (Base, "http://127.0.0.1:4022", None),
            (
                BaseSepolia,
                "http://127.0.0.1:4022",
                Some("http://127.0.0.1:4022/settle"),
            ),
            (BaseSepolia, "http://facilitator.example", None),
            (BaseSepolia, "https://a:b@facilitator.example", None),
            (BaseSepolia, "https://facilitator.example?x", None),
            (BaseSepolia, "ftp://127.0.0.1", None),
            (BaseSepolia, "facilitator", None),
        ];
        for (network, address, settle) in rows {
            let facilitator = Facilitator::new(network, address, &http(), http(), public);
            assert_eq!(facilitator.ok().map(|it| it.settle).as_deref(), settle, "{address}");
        }
    }
}
