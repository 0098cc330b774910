//! The rules of payments: amounts, ids, policies, evaluation, x402 objects, settlements, and the common error type.
//!
//! This crate only computes on values: it reads no clock, environment, file or socket. A payment passes through these
//! types, each of which can be created only from the type before it:
//!
//! ```text
//! bytes ─parse─▶ Intent ─evaluate─▶ Grant ─reserve─▶ Settlement ─match_transfer─▶ Transfer ─▶ confirmed
//! ```

#![cfg_attr(
    test,
    expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")
)]

mod audit;
mod catalog;
mod error;
mod event;
mod evidence;
mod journal;
mod notice;
mod oauth;
mod person;
mod policy;
mod settlement;
mod value;
mod webhook;
mod x402;

pub use alloy_primitives::B256;
pub use audit::changes::*;
pub use audit::reason::*;
pub use audit::record::*;
pub use catalog::attested::*;
pub use catalog::endpoint::Endpoint;
pub use catalog::pricing::*;
pub use catalog::probe::*;
pub use catalog::service::{
    Aggregates, Availability, Catalog, CatalogPayment, Category, FIXED_PRICE, Operation, Payable, Service, TrustStatus,
    Unpayable,
};
pub use error::*;
pub use event::data::*;
pub use event::field::*;
pub use event::kind::*;
pub use event::record::*;
pub use evidence::inputs::*;
pub use evidence::stated::*;
pub use evidence::statement::*;
pub use journal::entry::*;
pub use journal::hour::*;
pub use journal::sums::*;
pub use notice::mail_address::*;
pub use notice::message::*;
pub use notice::pace::*;
pub use notice::pending::*;
pub use notice::settings::*;
pub use notice::words::*;
pub use oauth::access_token::*;
pub use oauth::client::*;
pub use oauth::device::*;
pub use oauth::grant::*;
pub use oauth::grant_code::*;
pub use oauth::key::*;
pub use oauth::redirect_uri::*;
pub use oauth::refresh::*;
pub use oauth::resource::*;
pub use person::*;
pub use policy::agent::*;
pub use policy::anomaly::*;
pub use policy::approval::*;
pub use policy::backtest::*;
pub use policy::backtest_run::*;
pub use policy::check::*;
pub use policy::comparison::*;
pub use policy::decision::*;
pub use policy::evaluate::*;
pub use policy::facts::*;
pub use policy::finding::*;
pub use policy::freeze::*;
pub use policy::handover::*;
pub use policy::key_scope::*;
pub use policy::label::*;
pub use policy::limit_update::*;
pub use policy::presented_key::*;
pub use policy::raise::*;
pub use policy::recent::*;
pub use policy::replay::*;
pub use policy::rule::*;
pub use policy::rule_report::*;
pub use policy::rules::*;
pub use policy::schedule::*;
pub use policy::shadow::*;
pub use policy::spend_policy::*;
pub use policy::starting_limits::*;
pub use policy::starting_set::*;
pub use policy::target::*;
pub use policy::template::*;
pub use policy::wallet::*;
pub use policy::wallet_level::*;
pub use policy::window::*;
/// The macro [`named`] implements traits of `serde` with this path.
#[doc(hidden)]
pub use serde;
pub use settlement::outflow::*;
pub use settlement::payout::*;
pub use settlement::reconcile::*;
pub use settlement::record::*;
pub use settlement::transfer::*;
pub use url::Url;
pub use value::address::*;
pub use value::amount::*;
pub use value::id::*;
pub use value::json::*;
pub use value::pairs;
pub use value::slug::*;
pub use value::time::*;
pub use value::visible::*;
pub use webhook::ciphertext::*;
pub use webhook::delivery::*;
pub use webhook::failed_calls::*;
pub use webhook::record::*;
pub use webhook::retry::*;
pub use webhook::secret::*;
pub use x402::call::*;
pub use x402::fingerprint::*;
pub use x402::intent::*;
pub use x402::network::*;
pub use x402::payment::*;
pub use x402::proof::*;
pub use x402::requirement::*;
pub use x402::settle::*;
