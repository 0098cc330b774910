//! A deterministic simulation of the service, in the manner of FoundationDB, TigerBeetle and Janus.
//!
//! The real routers, the real store, the real SDK and the real chain client run in one thread over an embedded
//! DynamoDB, a small chain, and a network and clocks that the simulation controls. A seed generates a [`Plan`]: the
//! actions of agents, users, providers and operators, which of them run concurrently, and which call fails before or
//! after it took effect. After every write the simulation checks the invariants of `docs/data-model.md` on the stored
//! rows, and compares every response with a simple second implementation of the rules.
//!
//! | file | content |
//! |---|---|
//! | `plan.rs` | the plan of a run, as data; generated from a seed |
//! | `run.rs` | runs a plan, checks every response, and completes all pending work |
//! | `hostile.rs` | a hostile agent's actions, and the limits that only the caller's calls may reach |
//! | `network.rs` | the world around the functions: time, and the delivery of each call |
//! | `tables.rs` | in-process DynamoDB |
//! | `chain.rs` | a chain with one EIP-3009 token |
//! | `kms.rs` | KMS with the agents' keys |
//! | `people.rs` | the initial state, and the users' changes |
//! | `payouts.rs` | withdrawals, and the facilitator that submits them |
//! | `raises.rs` | requests for temporary limit increases |
//! | `telling.rs` | checks the published events, and aggregates the decision history |
//! | `mappings.rs` | the event source mappings of queues, and the faults of invocations |
//! | `queues.rs` | passes the events to users' webhooks over queues, and checks the deliveries |
//! | `receivers.rs` | webhook receivers, and the invariants of each call |
//! | `notices.rs` | passes the events to users' notifications over queues, and checks the mail |
//! | `mailbox.rs` | the mail service, and the invariants of each mail |
//! | `replayed.rs` | evaluates each decision again |
//! | `journaled.rs` | checks the decision history and its sums |
//! | `stored.rs` | the stored rows, read without the store's code |
//! | `laws.rs` | the invariants of each state, and of each step to the next state |
//! | `modelled.rs` | maps each write to a transition of the model in `tests/model` |
//! | `expect.rs` | the expected responses of authorize |
//! | `shrink.rs` | makes a failing plan smaller |
//! | `coverage.rs` | the events that a run has exercised |
//!
//! Invariants: the same plan gives the same calls in the same order and the same rows. Nothing here is deployed. Real
//! processes, sockets and nodes are tested in `tests`.

mod chain;
mod coverage;
mod expect;
mod hostile;
mod journaled;
mod kms;
mod laws;
mod mailbox;
mod mappings;
mod modelled;
mod network;
mod notices;
mod payouts;
mod people;
mod plan;
mod queues;
mod raises;
mod receivers;
mod replayed;
mod run;
mod shrink;
mod stored;
mod tables;
mod telling;

pub use coverage::{Coverage, EXERCISED};
pub use plan::{
    AGENTS, Buy, CAPS, CROWD, FIRST_ENDPOINT, Fault, Hostility, KEYS, KMS, LATER_RULES, OWNERS, Op, PAYOUTS, Pay, Plan,
    Proof, RULES, Row, SCOPES, SECOND_ENDPOINT, SERVICES, Setting, Silence, Step, Twist, WORKERS,
};
pub use run::{Outcome, run, run_beside};
pub use shrink::{kind, shrink};
