//! JSON API for an agent's withdrawal address, and for withdrawals to it.

use crate::agents::owned::OwnedAgent;
use crate::payouts::operations::{MadeWithdrawal, Withdrawals};
use crate::request::created_response;
use crate::settlements::api::SettlementView;
use crate::state::People;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Body, CallerIds, Failure, Text, errors};
use purser_domain::{Address, Amount, Submission, WithdrawalAmount};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use utoipa::ToSchema;

/// An agent's withdrawal address.
#[derive(Serialize, ToSchema)]
#[schema(as = PayoutAddress)]
pub(crate) struct PayoutAddressView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// Whether this deployment supports withdrawals.
    set_up: bool,
    /// The address to which money can be withdrawn. If no address is set, `address`, `named_at` and `good_from` are
    /// null.
    #[schema(required)]
    address: Option<String>,
    #[schema(format = DateTime, required)]
    named_at: Option<String>,
    /// The time from which withdrawals to the address are possible.
    #[schema(format = DateTime, required)]
    good_from: Option<String>,
    /// The withdrawal in progress. An agent has at most one.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    open_settlement_id: Option<String>,
}

impl PayoutAddressView {
    async fn load_address_view(people: &People, owned: &OwnedAgent) -> purser_domain::Result<Json<Self>> {
        let Withdrawals {
            is_set_up,
            address,
            open,
        } = people.read_withdrawals(owned).await?;
        let named = address.as_ref();
        Ok(Json(Self {
            agent_id: owned.agent().id.to_string(),
            set_up: is_set_up,
            address: named.map(|named| named.address.to_string()),
            named_at: named.map(|named| named.named_at.to_string()),
            good_from: named.map(|named| named.good_from.to_string()),
            open_settlement_id: open.map(|payout| payout.id().to_string()),
        }))
    }
}

purser_api::body! {
    /// The address that replaces the agent's withdrawal address.
    pub(crate) struct NewPayoutAddress as "NewPayoutAddressBody" {
        /// An address that you own. A mixed-case address must have a valid EIP-55 checksum.
        address: Address,
    }
}

purser_api::field! {
    /// An amount in micro-USDC, or the whole balance.
    pub(crate) struct AskedAmount(WithdrawalAmount):
    |value| {
        if value.as_str() == Some("balance") {
            return Ok(WithdrawalAmount::Balance);
        }
        let amount = <Amount as purser_api::Field>::read(value).ok().and_then(WithdrawalAmount::from_amount);
        amount.ok_or_else(|| {
            format!("must be a whole number of micro-units from 1 to {}, or `balance`", Amount::MAX)
        })
    },
    json!({"oneOf": [
        {"type": "integer", "format": "int64", "minimum": 1, "maximum": Amount::MAX.units()},
        {"type": "string", "enum": ["balance"]},
    ]})
}

purser_api::body! {
    /// The amount to withdraw to the agent's withdrawal address.
    pub(crate) struct NewPayout as "NewPayoutBody" {
        /// The amount in micro-USDC, or `balance` for the wallet's whole balance.
        amount_units: AskedAmount,
        /// An idempotency key of your choice. A repeated request with the same key and amount returns the same
        /// withdrawal.
        idempotency_key: Text<255>,
    }
}

/// A withdrawal, with the facilitator's response.
#[derive(Serialize, ToSchema)]
#[schema(as = Payout)]
pub(crate) struct PayoutView {
    payout: SettlementView,
    /// The facilitator's response to this submission: `accepted`, `refused` or `unanswered`. Only the chain shows
    /// whether the withdrawal succeeds. While `receipt_status` is `authorized`, repeat the request to submit the
    /// withdrawal again. Null if nothing was submitted, because the withdrawal has ended, its address was changed, or
    /// operators froze the agent.
    #[schema(value_type = Option<String>, required, example = "accepted")]
    submission: Option<&'static str>,
}

/// Read an agent's withdrawal address.
#[utoipa::path(
    get, path = "/agents/{agentId}/payout-address", operation_id = "read_payout_address",
    responses((status = 200, body = PayoutAddressView, description = "The withdrawal address."))
)]
pub(crate) async fn read_withdrawal_address(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
) -> Result<Json<PayoutAddressView>, Failure> {
    Ok(PayoutAddressView::load_address_view(&people, &owned).await?)
}

/// Set the address to which an agent's money may be withdrawn.
///
/// Withdrawals to a new address are possible after a delay, by default one day. Setting the current address again does
/// not restart the delay.
#[utoipa::path(
    put, path = "/agents/{agentId}/payout-address", operation_id = "name_payout_address",
    responses(
        (status = 200, body = PayoutAddressView, description = "The withdrawal address, with the time from which withdrawals are possible."),
        errors::RecentSignInRequired, errors::PayoutRefused,
    )
)]
pub(crate) async fn set_withdrawal_address(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    caller: CallerIds,
    body: Body<NewPayoutAddress>,
) -> Result<Json<PayoutAddressView>, Failure> {
    let new = body.parse()?;
    people.set_withdrawal_address(&owned, caller, new.address).await?;
    Ok(PayoutAddressView::load_address_view(&people, &owned).await?)
}

/// Remove the withdrawal address immediately.
#[utoipa::path(
    delete, path = "/agents/{agentId}/payout-address", operation_id = "remove_payout_address",
    responses((status = 200, body = PayoutAddressView, description = "The withdrawal address was removed."))
)]
pub(crate) async fn remove_withdrawal_address(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    caller: CallerIds,
) -> Result<Json<PayoutAddressView>, Failure> {
    people.remove_withdrawal_address(&owned, caller).await?;
    Ok(PayoutAddressView::load_address_view(&people, &owned).await?)
}

/// Withdraw money from the agent's wallet to the withdrawal address.
#[utoipa::path(
    post, path = "/agents/{agentId}/payouts", operation_id = "pay_out",
    responses(
        (status = 201, body = PayoutView, description = "The withdrawal was reserved, signed and submitted."),
        (status = 200, body = PayoutView, description = "The withdrawal of an earlier request with the same `idempotency_key`. The header `Idempotent-Replayed` is `true`."),
        errors::RecentSignInRequired, errors::PayoutRefused, errors::IdempotencyKeyReused,
    )
)]
pub(crate) async fn withdraw_to_owner(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    caller: CallerIds,
    body: Body<NewPayout>,
) -> Result<Response, Failure> {
    let new = body.parse()?;
    let MadeWithdrawal {
        settlement,
        submission,
        replayed: replay,
    } = people
        .withdraw_to_owner(&owned, caller, new.amount_units.0, &new.idempotency_key.0)
        .await?;
    let response = Json(PayoutView {
        payout: SettlementView::from_settlement(settlement, owned.agent())?,
        submission: submission.map(Submission::name),
    });
    if !replay {
        return Ok(created_response(response));
    }
    let mut response = response.into_response();
    let result = HeaderValue::from_static("true");
    response.headers_mut().insert("idempotent-replayed", result);
    Ok(response)
}
