//! What the integration tests use: a running stack, agents with their own policies, and the requests that an agent
//! sends. No part of the service is faked: calls go over HTTP to the real functions, payments to the official SDK,
//! transfers to a real node.

mod costs;
mod entries;
mod history;
mod log;
mod measure;
mod offers;
mod person;
mod problems;
mod process;
mod together;
mod transfers;
mod world;

pub use costs::{Budget, Cost, LONG_DENIAL, every_operation, judged_policy};
pub use entries::{operation_entry, payment_entry, service_entry};
pub use history::first_of_history;
pub use log::Log;
pub use measure::{Measured, in_rounds, measure};
pub use offers::{Offered, bare_offer, offer_v1, offer_v2};
pub use person::Person;
pub use problems::paths;
pub use process::{Killer, Process, Program, Request, node_front};
pub use together::{authorizing, together};
pub use transfers::{batch_of, transfer_of};
pub use world::{Answer, Footprint, Rows, TestAgent, World, body_of, dollars, fresh_key, key_id_of, plain, units};
