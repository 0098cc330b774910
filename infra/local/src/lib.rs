//! The local stack: the whole service on one machine, for people who try it and for the tests.
//!
//! It runs the same routers that Lambda runs, behind the routes of `template.yaml`, over tables that it creates from
//! that file. What only exists here: `/_local/clock`, `/_local/fund`, and the demo data.

mod chain;
mod children;
mod database;
mod document;
mod endpoints;
mod gateway;
mod secrets;
mod seed;
mod stack;
mod stack_file;
mod template;

pub use chain::{DevChain, DevChainError};
pub use children::{ChildError, ProviderPorts, Providers};
pub use document::openapi;
pub use gateway::Unrouted;
pub use seed::{DemoAgent, SeedError};
pub use stack::{Front, NETWORK, Options, Ports, Stack, StackError, ledger_at};
pub use stack_file::{StackFile, StackFileError};
pub use template::{Route, Template, TemplateError};
