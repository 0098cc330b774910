//! Payment requirements as providers write them.

use purser_local::NETWORK;
use serde_json::{Value, json};

/// The terms of a requirement.
#[derive(Clone, Debug)]
pub struct OfferedTerms {
    /// The price, in micro-units.
    pub units: u64,
    /// The payee's wallet.
    pub pay_to: String,
    /// `maxTimeoutSeconds`.
    pub timeout: u64,
}

/// A single v2 entry.
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

/// A v2 requirement with one entry.
pub fn offer_v2(offered: &OfferedTerms) -> Value {
    json!({"x402Version": 2, "resource": {"url": "https://provider.example/x"}, "accepts": [bare_offer(offered)]})
}

/// A v1 requirement with one entry.
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
