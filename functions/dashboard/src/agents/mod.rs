//! Agents: their records, wallets and pages, and the overview of all agents.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod bulk;
pub(crate) mod bulk_api;
pub(crate) mod choice;
pub(crate) mod contents;
pub(crate) mod fleet;
pub(crate) mod fleet_actions;
pub(crate) mod form;
pub(crate) mod listing;
pub(crate) mod new_keys;
pub(crate) mod operations;
pub(crate) mod outcome;
pub(crate) mod overview;
pub(crate) mod owned;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod spend;
pub(crate) mod wallet;
pub(crate) mod wallet_api;
pub(crate) mod wallet_section;
