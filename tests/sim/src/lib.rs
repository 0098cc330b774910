//! A deterministic simulation of the service, in the manner of FoundationDB, TigerBeetle and Janus.
//!
//! The real routers, the real store, the real SDK and the real chain client run in one thread over an embedded DynamoDB,
//! a small chain, and a network and clocks that belong to the simulation. A seed draws a [`Plan`]: what agents, people,
//! providers and operators do, what meets what, and which call fails before or after it took effect. After every write
//! the laws of `docs/data-model.md` are asked of what is stored, and every answer is held against a plain second reading
//! of the rules.
//!
//! | file | one line |
//! |---|---|
//! | `plan.rs` | what a run does, as data; drawn from a seed |
//! | `run.rs` | carries a plan out, judges every answer, and brings everything to rest |
//! | `network.rs` | the world around the functions: time, and the way of each call |
//! | `tables.rs` | DynamoDB in the process |
//! | `chain.rs` | a chain with one EIP-3009 token |
//! | `people.rs` | what people set up and change |
//! | `stored.rs` | what is stored, read by ourselves |
//! | `laws.rs` | what must hold of each state, and of each step to the next |
//! | `expect.rs` | what authorize has to answer, said plainly |
//! | `shrink.rs` | a failing plan, made small |
//! | `coverage.rs` | what was exercised |
//!
//! Always true: the same plan gives the same calls in the same order and the same rows; nothing of this is in what is
//! deployed. Deliberately elsewhere: real processes, sockets and nodes (`tests`).

mod chain;
mod coverage;
mod expect;
mod laws;
mod network;
mod people;
mod plan;
mod run;
mod shrink;
mod stored;
mod tables;

pub use coverage::{Coverage, EXERCISED};
pub use plan::{AGENTS, Buy, CAPS, Fault, KEYS, Op, Pay, Plan, Proof, RULES, SERVICES, Silence, Step, Twist, WORKERS};
pub use run::{Outcome, run};
pub use shrink::{kind, shrink};
