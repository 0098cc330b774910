//! The JSON of a provider call, for users and for the agent that described the call.

use purser_domain::{Amount, CallDescription};
use serde_json::{Map, Value};

purser_macros::views! {
    /// The provider call of a payment, as the agent described it, with the catalog's price at that time.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CallView as DescribedCall {
        fn from(call: &CallDescription);
        let CallDescription {
            request,
            target_url,
            metadata,
            catalog_price,
        } = call;

        /// The HTTP method of the provider call.
        #[schema(example = "GET")]
        pub method: String = request.method.clone(),
        /// The URL of the provider call.
        #[schema(format = Uri)]
        pub url: String = request.url.to_string(),
        /// The hash of the request body, as the agent sent it. The hash is not verified.
        pub body_hash: Option<String> = request.body_hash.clone(),
        /// The page to scrape or crawl.
        #[schema(format = Uri)]
        pub target_url: Option<String> = target_url.as_ref().map(ToString::to_string),
        /// Additional texts and numbers that the agent sent, by name. Checks ignore these values.
        #[schema(value_type = Object)]
        pub metadata: Map<String, Value> = metadata.json_fields().clone(),
        /// The price of the call in the catalog, in micro-units; null if the catalog does not list the operation.
        pub catalog_price_units: Option<u64> = catalog_price.map(|price| price.price.units()),
        /// The maximum price of the call in the catalog, in micro-units; null if the catalog does not list the
        /// operation, or if the operation could not be paid.
        pub catalog_max_price_units: Option<u64> = catalog_price.and_then(|price| price.most).map(Amount::units),
    }
}
