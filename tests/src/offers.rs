//! Payment requirements as providers write them.

use purser_local::NETWORK;
use serde_json::{Value, json};

/// The price, payee and timeout of payment requirements.
#[derive(Clone, Debug)]
pub struct OfferedTerms {
    /// The price, in micro-USDC.
    pub units: u64,
    /// The payee's wallet.
    pub pay_to: String,
    /// `maxTimeoutSeconds`.
    pub timeout: u64,
}

/// Returns one x402 v2 `PaymentRequirements`.
pub fn bare_offer(offered: &OfferedTerms) -> Value {
    let token = NETWORK.token();
    json!({
        "scheme": "exact",
        "network": NETWORK.caip2(),
        "amount": offered.units.to_string(),
        "asset": token.address.to_string(),
        "payTo": offered.pay_to,
        "maxTimeoutSeconds": offered.timeout,
        "extra": {"name": token.name, "version": token.version},
    })
}

/// Returns a v2 402 response with one `PaymentRequirements`.
pub fn offer_v2(offered: &OfferedTerms) -> Value {
    json!({"x402Version": 2, "resource": {"url": "https://provider.example/x"}, "accepts": [bare_offer(offered)]})
}

/// Returns a v1 402 response with one `PaymentRequirements`.
pub fn offer_v1(offered: &OfferedTerms) -> Value {
    let token = NETWORK.token();
    json!({"x402Version": 1, "error": "X-PAYMENT header is required", "accepts": [{
        "scheme": "exact",
        "network": NETWORK.name(),
        "maxAmountRequired": offered.units.to_string(),
        "resource": "https://provider.example/x",
        "description": "",
        "mimeType": "application/json",
        "payTo": offered.pay_to,
        "maxTimeoutSeconds": offered.timeout,
        "asset": token.address.to_string(),
        "extra": {"name": token.name, "version": token.version},
    }]})
}
