//! Purser's tools for agents: a server of the [Model Context Protocol](https://modelcontextprotocol.io).
//!
//! [`Tools`] is the server, over whatever transport: `purser mcp` serves it over stdio, `functions/mcp` over HTTP. It is
//! a client of Purser's API with the agent's own key, and can do nothing that the key can't.
//!
//! Always true: an agent names an operation of the catalog, never an address or a payee; every text that a provider or
//! the catalog wrote is bounded, without control characters, and marked as data; a call is paid at most once under its
//! idempotency key, which every answer names.

mod address;
mod answers;
mod arguments;
mod call;
mod failure;
mod read;
mod schema;
mod text;
mod tools;

pub use tools::{Caller, KeyFrom, Providers, Tools};
