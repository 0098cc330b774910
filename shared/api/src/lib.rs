//! How we speak: the error envelope and the only status numbers, what every answer carries, who calls and from where,
//! the clock and chance that handlers are given, configuration, and the start of a function.
//!
//! A function's crate builds an axum router and ends with [`finish`]; Lambda runs that router ([`serve`]) and the local
//! stack mounts it, so the same code answers in both. Nothing here knows DynamoDB or the chain, and nothing here decides
//! about money.

mod admit;
mod body;
mod boot;
mod caller;
mod clock;
mod decision;
mod entrance;
mod env;
mod envelope;
mod etag;
mod failure;
mod gateway;
mod openapi;
mod query;
mod random;
mod request_id;
mod router;
mod secrets;
mod source;

pub use admit::admit;
pub use body::json_body;
pub use boot::{Boot, BootError, sdk_loader, serve, start, start_logging};
pub use caller::presented_key;
pub use clock::Clock;
pub use decision::{CheckView, DecisionView};
pub use entrance::Caller;
pub use env::{Env, EnvError};
pub use envelope::{ErrorBody, ProblemView};
pub use etag::cacheable;
pub use failure::{Failure, Reply};
pub use gateway::{GatewayAnswer, GatewayEvent, answer};
pub use openapi::{AGENT_KEY, describe_errors, document, is_error_status};
pub use query::Query;
pub use random::random;
pub use request_id::RequestId;
pub use router::{ApiSettings, finish};
pub use secrets::Secrets;
pub use source::{ThrottleScope, source_ip};
