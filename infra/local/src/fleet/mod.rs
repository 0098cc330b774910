//! A demo fleet: an owner with many agents, and a month of payments, refusals and approvals.
#![cfg_attr(not(test), expect(dead_code, reason = "`make demo-fleet` runs the plan"))]

mod act;
mod agent;
mod offer;
mod plan;
mod size;

pub use size::FleetSize;
