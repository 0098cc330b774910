//! A deterministic simulation of the service, in the manner of FoundationDB, TigerBeetle and Janus.
//!
//! The real routers, the real store, the real SDK and the real chain client run in one thread over an embedded
//! DynamoDB, a small chain, and a network and clocks that the simulation controls. A seed generates a [`Plan`]: what
//! agents, people, providers and operators do, what runs concurrently, and which call fails before or after it took
//! effect. After every write the laws of `docs/data-model.md` are checked on the stored rows, and every answer is
//! compared with a simple second implementation of the rules.
//!
//! | file | one line |
//! |---|---|
//! | `plan.rs` | what a run does, as data; generated from a seed |
//! | `run.rs` | runs a plan, checks every answer, and completes all open work |
//! | `hostile.rs` | what a hostile agent does, and the limits that only the caller's own calls may reach |
//! | `network.rs` | the world around the functions: time, and the delivery of each call |
//! | `tables.rs` | in-process DynamoDB |
//! | `chain.rs` | a chain with one EIP-3009 token |
//! | `kms.rs` | KMS with the agents' keys |
//! | `people.rs` | what people set up and change |
//! | `payouts.rs` | payouts, and the facilitator that submits them |
//! | `raises.rs` | requests for raises |
//! | `telling.rs` | checks the published events, and folds the journal |
//! | `mappings.rs` | the mappings from queues to functions, and the faults of invocations |
//! | `queues.rs` | passes the events to people's webhooks over queues, and checks what became of them |
//! | `receivers.rs` | people's programs, and the laws of each call of one |
//! | `notices.rs` | passes the events to people's notices over queues, and checks what became of them |
//! | `mailbox.rs` | the mail service, and the laws of each mail |
//! | `replayed.rs` | evaluates each decision again |
//! | `journaled.rs` | checks the journal and its sums |
//! | `stored.rs` | the stored rows, read without the store's code |
//! | `laws.rs` | the laws of each state, and of each step to the next |
//! | `modelled.rs` | each write as a transition of the model of `tests/model` |
//! | `expect.rs` | the expected answers of authorize |
//! | `shrink.rs` | makes a failing plan smaller |
//! | `coverage.rs` | the events that a run has exercised |
//!
//! Always true: the same plan gives the same calls in the same order and the same rows; nothing here is deployed.
//! Deliberately elsewhere: real processes, sockets and nodes (`tests`).

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
