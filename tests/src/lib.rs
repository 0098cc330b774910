//! The shared code of the integration tests: a running stack, its agents and their requests. Calls go over HTTP to the
//! real functions, and transfers to a real node.

mod costs;
mod entries;
mod history;
mod limits;
mod log;
mod measure;
mod offers;
mod paying_node;
mod person;
mod problems;
mod process;
mod recorder;
mod relay;
mod scale;
mod together;
mod transfers;
mod world;

pub use costs::{Budget, Cost, LONG_DENIAL, every_operation, judged_policy};
pub use entries::{operation_entry, payment_entry, service_entry};
pub use history::first_of_history;
pub use limits::{LIMITED_SERVICE, kinds_of_rules, limited_agent, texts_of_limits};
pub use log::Log;
pub use measure::{RequestCost, in_rounds, measure};
pub use offers::{OfferedTerms, bare_offer, offer_v1, offer_v2};
pub use paying_node::PayingNode;
pub use person::Person;
pub use problems::paths;
pub use process::{Killer, Process, Program, Request, node_fronts};
pub use recorder::{BOMB_BYTES, RecordedRequest, Recorder, TEXT};
pub use relay::{Relay, Script};
pub use scale::writes_of_a_payment;
pub use together::{authorizing, completing, few_at_once, together};
pub use transfers::{batch_of, transfer_of};
pub use world::{
    Answer, Footprint, Rows, TestAgent, World, as_repeated, body_of, custody, dollars, fresh_key, key_id_of, plain,
    units, unpaid,
};
