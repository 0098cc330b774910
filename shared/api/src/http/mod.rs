//! HTTP: the router and middleware, requests, errors with their status codes, and the OpenAPI document.

pub(crate) mod arguments;
pub(crate) mod asserted_ip;
pub mod body;
pub(crate) mod client;
pub(crate) mod client_ip;
pub(crate) mod compression;
pub(crate) mod envelope;
pub mod errors;
pub(crate) mod etag;
pub(crate) mod failure;
pub(crate) mod field;
pub(crate) mod openapi;
pub(crate) mod operation;
pub(crate) mod outward;
pub(crate) mod payment_body;
pub(crate) mod precondition;
pub(crate) mod public_address;
pub(crate) mod query;
pub(crate) mod request_id;
pub(crate) mod router;
pub(crate) mod routes;
pub(crate) mod same_origin;
pub(crate) mod source;
pub(crate) mod untrusted_http_client;
