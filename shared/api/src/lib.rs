//! How we speak: the error envelope and the only status numbers, what every answer carries, who calls and from where,
//! the clock and chance that handlers are given, configuration, and the start of a function.
//!
//! A function's crate builds an axum router and ends with [`finish`]; Lambda runs that router ([`serve`]) and the local
//! stack mounts it, so the same code answers in both. Nothing here knows DynamoDB or the chain, and nothing here decides
//! about money.

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

mod admit;
mod aside;
mod at_most;
mod aws;
mod body;
mod boot;
mod call;
mod caller;
mod clock;
mod decision;
mod entrance;
mod env;
mod envelope;
mod etag;
mod failure;
mod gateway;
mod http;
mod internal;
mod issuer;
mod metrics;
mod openapi;
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
mod source;
mod spend;
#[cfg(test)]
mod test_clients;
mod trace_id;

pub use admit::admit;
pub use aside::Aside;
pub use at_most::at_most;
pub use body::json_body;
pub use boot::{Boot, BootError, log_to, serve, start_logging, stopped};
pub use call::CallView;
pub use caller::presented_key;
pub use clock::Clock;
pub use decision::{CheckView, DecisionView};
pub use entrance::Caller;
pub use env::{Env, EnvError};
pub use envelope::{ErrorBody, ProblemView};
pub use etag::Cacheable;
pub use failure::{Failure, Reply};
pub use gateway::{GatewayAnswer, GatewayEvent, answer};
pub use http::http;
pub use internal::{InternalCaller, InternalTokens};
pub use issuer::Provider;
pub use openapi::{AGENT_KEY, INTERNAL_TOKEN, SESSION, describe_errors, document, is_error_status};
pub use policy::PolicyView;
pub use precondition::{IfMatch, Precondition, VersionTag, versioned};
pub use query::Query;
pub use random::{Chance, random};
pub use request_id::RequestId;
pub use router::{ApiSettings, finish};
pub use routes::described;
pub use same_origin::same_origin;
pub use schedule::serve_schedule;
pub use secrets::Secrets;
pub use session::{AuthorizationCode, Person, SessionSettings, SessionToken, Sessions};
pub use settlement::SettlementRow;
pub use source::{GatewayContext, ThrottleScope, domain_name, source_ip};
pub use spend::{BudgetView, SpendView};
pub use trace_id::TraceId;
