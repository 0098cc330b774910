//! Purser's tools for agents, as a server of the [Model Context Protocol](https://modelcontextprotocol.io).
//!
//! `purser mcp` serves [`Tools`] over stdio, and `functions/mcp` serves them over HTTP. The server calls Purser's API
//! with the agent's own key.
//!
//! # Guarantees
//!
//! - An agent selects an operation of the catalog, and cannot choose a URL or a payee.
//! - Text from providers and from the catalog has a maximum length, has no control characters and is labelled as data.
//! - A call is paid at most once for one idempotency key. Every result of a call contains the key.

mod address;
mod answers;
mod arguments;
mod call;
mod call_limit;
mod failure;
mod hidden;
mod kept;
mod providers;
mod read;
mod response;
mod schema;
mod text;
mod tools;

pub use address::is_parameter_header;
pub use call_limit::{CallLimit, CallsOf, OpenCall, TooManyCalls};
pub use kept::{MAX_KEPT, MAX_KEPT_BYTES, RETENTION, ResponseId, ResponsePart, ResponseStore, ResponsesUnavailable};
pub use providers::Providers;
pub use tools::{Caller, KeyFrom, Tools};
