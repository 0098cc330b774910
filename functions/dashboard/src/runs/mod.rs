//! Runs: an agent opens a key with a budget for a sub-agent's task.

pub(crate) mod api;
mod operations;

pub(crate) use operations::RUNS_PER_MINUTE;
