//! Catalog services and operations as operators write them.

use crate::{World, fresh_key};
use reqwest::Method;
use serde_json::{Value, json};

/// Returns the request body for a service of the curated set.
pub fn service_entry(slug: &str, operations: &[Value]) -> Value {
    json!({
        "slug": slug,
        "name": "Newcomer",
        "description": "Came later.",
        "website": "https://newcomer.example/",
        "logo_url": null,
        "category": "data",
        "source": "operator",
        "trust_status": "listed",
        "curated": true,
        "operations": operations,
    })
}

/// Returns the request body for an operation without a payment.
pub fn operation_entry(slug: &str, endpoint: &str) -> Value {
    json!({
        "id": fresh_key(),
        "operation_id": slug,
        "label": "News",
        "method": "GET",
        "endpoint": endpoint,
        "category": "data",
        "execution": "sync",
        "price_model": "fixed",
        "estimated_price_units": 1_000,
        "max_price_units": null,
        "params": {"topic": {"type": "string"}},
        "payment": null,
    })
}

/// Returns the payment of an operation's request body.
pub fn payment_entry(units: u64, pay_to: &str) -> Value {
    json!({
        "scheme": "exact",
        "network": "base-sepolia",
        "token": "USDC",
        "amount_units": units,
        "pay_to": pay_to,
    })
}

impl World {
    /// Creates a service as an operator. Returns the service's id and the response body.
    pub async fn enter(&self, entry: &Value) -> (String, Value) {
        let id = fresh_key();
        let request = self.operators_request(Method::PUT, &format!("/internal/services/{id}"));
        let made = Self::send(request.json(entry)).await.created();
        (id, made)
    }
}
