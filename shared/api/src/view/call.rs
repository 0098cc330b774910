//! The JSON of the call that a payment is for, for people and for the agent that described it.

use purser_domain::{Amount, CallDescription};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The provider call that a payment is for, in the agent's own words, beside what the catalog said of its price then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DescribedCall)]
pub struct CallView {
    /// HTTP method.
    #[schema(example = "GET")]
    pub method: String,
    /// Where the provider is called.
    #[schema(format = Uri)]
    pub url: String,
    /// The hash of the body that is sent there, as the agent has it; compared with nothing.
    #[schema(required)]
    pub body_hash: Option<String>,
    /// The page that a scrape or crawl is pointed at.
    #[schema(format = Uri, required)]
    pub target_url: Option<String>,
    /// Further texts and numbers of the agent, by name. No check uses them.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// The catalog's price of the call; null, as is the next member, if the catalog lists no such operation.
    #[schema(required)]
    pub catalog_price_units: Option<u64>,
    /// The most that the catalog allowed for the call; also null if it could not be paid.
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
            metadata: metadata.members().clone(),
            catalog_price_units: catalog_price.map(|price| price.price.units()),
            catalog_max_price_units: catalog_price.and_then(|price| price.most).map(Amount::units),
        }
    }
}
