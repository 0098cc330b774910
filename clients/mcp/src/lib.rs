//! Purser's tools for agents, as a server of the [Model Context Protocol](https://modelcontextprotocol.io).
//!
//! [`Tools`] is the server, independent of the transport: `purser mcp` serves it over stdio, `functions/mcp` over HTTP.
//! It is a client of Purser's API with the agent's own key, and can do nothing that the key can't.
//!
//! # Guarantees
//!
//! - An agent names an operation of the catalog, never a URL or a payee.
//! - Text of providers or of the catalog has a maximum length and no control characters, and is marked as data.
//! - A call is paid at most once under its idempotency key, which every answer contains.

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
pub use kept::{KEPT_FOR, MAX_KEPT, MAX_KEPT_BYTES, ResponseId, ResponsePart, ResponseStore, ResponsesUnavailable};
pub use providers::Providers;
pub use tools::{Caller, KeyFrom, Tools};
