//! How we speak: the error envelope and the only status numbers, what every answer carries, who calls and from where,
//! the clock and entropy that handlers are given, configuration, and the start of a function.
//!
//! A function's crate builds an axum router and ends with [`with_middleware`]; Lambda runs that router ([`serve`]) and the local
//! stack mounts it, so the same code answers in both. Nothing here knows DynamoDB or the chain, and nothing here decides
//! about money.

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

mod at_most;
mod aws;
mod background;
pub mod body;
mod boot;
mod call;
mod caller;
mod client_ip;
mod clock;
mod decision;
mod env;
mod envelope;
mod etag;
mod failure;
mod field;
mod gateway;
mod http;
mod internal;
mod issuer;
mod metrics;
mod openapi;
mod payment_body;
mod policy;
mod precondition;
mod query;
mod random;
mod request_id;
mod router;
mod routes;
mod same_origin;
mod schedule;
mod secrets;
mod session;
mod settlement;
mod spend;
#[cfg(test)]
mod test_clients;
mod trace_id;

pub use at_most::at_most;
pub use background::Background;
pub use body::{Member, Place, Problems, Said, Schemas, json_body};
pub use boot::{Boot, BootError, log_to, serve, start_logging, stopped};
pub use call::CallView;
pub use caller::{AgentCredentials, presented_key};
pub use client_ip::{GatewayContext, ThrottleScope, client_ip, domain_name};
pub use clock::Clock;
pub use decision::{CheckView, DecisionView};
pub use env::{Env, EnvError};
pub use envelope::{ErrorBody, ProblemView};
pub use etag::Cacheable;
pub use failure::{Failure, Reply};
pub use field::{CalledUrl, Field, HttpMethod, Listed, Price, Text, seconds};
pub use gateway::{GatewayAnswer, GatewayEvent, answer};
pub use http::http;
pub use internal::{InternalTokens, OperatorCredentials};
pub use issuer::OidcMetadata;
pub use openapi::{AGENT_KEY, INTERNAL_TOKEN, SESSION, describe_errors, document, is_error_status};
pub use payment_body::{
    AuthorizeBody, AuthorizeRequest, CheckBody, CheckRequest, CompleteBody, CompleteRequest, ProviderProof,
};
pub use policy::PolicyView;
pub use precondition::{IfMatch, Precondition, VersionTag, versioned};
pub use query::Query;
pub use random::{Entropy, random};
pub use request_id::RequestId;
pub use router::{ApiSettings, with_middleware};
pub use routes::described;
pub use same_origin::same_origin;
pub use schedule::serve_schedule;
pub use secrets::Secrets;
pub use session::{AuthorizationCode, Person, SessionSettings, SessionToken, Sessions};
pub use settlement::SettlementRow;
pub use spend::{BudgetView, SpendView};
pub use trace_id::TraceId;
