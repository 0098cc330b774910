//! A model of the protocol, checked exhaustively within bounds by `stateright`.

pub mod flaw;
pub mod ledger;
