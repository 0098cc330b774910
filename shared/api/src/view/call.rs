//! The JSON of a provider call, for users and for the agent that described the call.

use purser_domain::{Amount, CallDescription};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The provider call of a payment, as the agent described it, with the catalog's price at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DescribedCall)]
pub struct CallView {
    /// The HTTP method of the provider call.
    #[schema(example = "GET")]
    pub method: String,
    /// The URL of the provider call.
    #[schema(format = Uri)]
    pub url: String,
    /// The hash of the request body, as the agent sent it. The hash is not verified.
    #[schema(required)]
    pub body_hash: Option<String>,
    /// The page to scrape or crawl.
    #[schema(format = Uri, required)]
    pub target_url: Option<String>,
    /// Additional texts and numbers that the agent sent, by name. Checks ignore these values.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// The price of the call in the catalog, in micro-units; null if the catalog does not list the operation.
    #[schema(required)]
    pub catalog_price_units: Option<u64>,
    /// The maximum price of the call in the catalog, in micro-units; null if the catalog does not list the operation,
    /// or if the operation could not be paid.
    #[schema(required)]
    pub catalog_max_price_units: Option<u64>,
}

impl From<&CallDescription> for CallView {
    fn from(call: &CallDescription) -> Self {
        let CallDescription {
            request,
            target_url,
            metadata,
            catalog_price,
        } = call;
        Self {
            method: request.method.clone(),
            url: request.url.to_string(),
            body_hash: request.body_hash.clone(),
            target_url: target_url.as_ref().map(ToString::to_string),
            metadata: metadata.json_fields().clone(),
            catalog_price_units: catalog_price.map(|price| price.price.units()),
            catalog_max_price_units: catalog_price.and_then(|price| price.most).map(Amount::units),
        }
    }
}
