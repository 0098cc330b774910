//! The local stack: the whole service on one machine, for development and tests.
//!
//! The stack runs the routers of the Lambda functions behind the routes of `template.yaml`. Only the local stack has
//! `/_local/…`, an OpenID issuer and demo data.

mod bridge;
mod chain;
mod console;
mod document;
mod error;
mod fleet;
mod gateway;
mod iam_recorder;
mod issuer;
mod log_audit;
mod mail;
mod processes;
mod seed;
mod sqs_mapping;
mod stack;
mod stack_file;

pub use chain::{DevChain, DevChainError, NETWORK};
pub use console::console;
pub use document::openapi;
pub use error::StackError;
pub use fleet::{FleetCounts, FleetError, FleetSize, fill as fill_fleet};
pub use gateway::UnroutedError;
pub use issuer::{CLIENT_ID, DEMO_OWNER, DEMO_STRANGER, DemoUser, Issuer};
pub use log_audit::LogAudit;
pub use mail::{Mail, MailService};
pub use processes::{ChildError, ProviderPorts, Providers};
pub use purser_notices::Notifications;
pub use purser_probe::Probe;
pub use purser_reconcile::{Outcome, Part, Reconcile, Run};
pub use purser_stream::{Events, History};
pub use purser_webhooks::Webhooks;
pub use seed::{DemoAgent, SeedError};
pub use sqs_mapping::{NOTICE_EVENTS, NOTICES, WEBHOOK_DELIVERIES, WEBHOOK_EVENTS, follow_bus};
pub use stack::{Front, Options, Ports, Stack, Streaming};
pub use stack_file::{FunctionsFile, StackAgent, StackFile, StackFileError, StackUser, stack_folder};
