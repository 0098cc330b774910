//! `/agents/{agentId}/payout-address` and `…/payouts`: the payout address, and withdrawals to it.

use crate::payouts::operations::{PaidOut, Payouts};
use crate::request::created_response;
use crate::settlements::api::SettlementView;
use crate::state::People;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse as _, Response};
use purser_api::{CallerIds, Failure, Member as _, SessionToken, Text, json_body};
use purser_domain::{Address, Amount, PayoutAmount, Submission};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of reading the payout address.
    pub(crate) ReadErrors: 401, 403, 404, 429, 500;
    /// The errors of setting the payout address.
    pub(crate) NameErrors: 400, 401, 403, 404, 409, 413, 429, 500, 503;
    /// The errors of removing the payout address.
    pub(crate) RemoveErrors: 401, 403, 404, 429, 500, 503;
    /// The errors of a payout.
    pub(crate) PayOutErrors: 400, 401, 403, 404, 409, 413, 429, 500, 503;
}

/// An agent's payout address.
#[derive(Serialize, ToSchema)]
#[schema(as = PayoutAddress)]
pub(crate) struct PayoutAddressView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// Whether this deployment makes payouts.
    set_up: bool,
    /// The address. It and the times are null if none is set.
    #[schema(required)]
    address: Option<String>,
    #[schema(format = DateTime, required)]
    named_at: Option<String>,
    /// The time from which it can be used.
    #[schema(format = DateTime, required)]
    good_from: Option<String>,
    /// The payout in progress; an agent has at most one.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    open_settlement_id: Option<String>,
}

impl PayoutAddressView {
    async fn load(people: &People, owned: &crate::agents::owned::OwnedAgent) -> purser_domain::Result<Json<Self>> {
        let Payouts {
            is_set_up,
            address,
            open,
        } = people.payouts(owned).await?;
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
    /// The address to pay out to.
    pub(crate) struct NewPayoutAddress as "NewPayoutAddressBody" {
        /// An address of yours. Mixed case must be the EIP-55 checksum.
        address: Address,
    }
}

purser_api::field! {
    /// An amount in micro-units, or the whole balance.
    pub(crate) struct AskedAmount(PayoutAmount):
    |value| {
        if value.as_str() == Some("balance") {
            return Ok(PayoutAmount::Balance);
        }
        let amount = <Amount as purser_api::Field>::read(value).ok().and_then(PayoutAmount::units);
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
    /// A payout to the payout address.
    pub(crate) struct NewPayout as "NewPayoutBody" {
        /// In micro-units; `balance` for all that the wallet holds.
        amount_units: AskedAmount,
        /// A key of your choice. A repeated request with the same key and amount returns the same payout.
        idempotency_key: Text<255>,
    }
}

/// A payout.
#[derive(Serialize, ToSchema)]
#[schema(as = Payout)]
pub(crate) struct PayoutView {
    payout: SettlementView,
    /// The facilitator's answer to this submission: `accepted`, `refused` or `unanswered`. Null if nothing was
    /// submitted, because the payout has ended, its address was changed, or operators have frozen the agent. Only the
    /// chain decides whether a payout is made or expires: while `receipt_status` is `authorized`, repeating the request
    /// submits it again.
    #[schema(value_type = Option<String>, required, example = "accepted")]
    submission: Option<&'static str>,
}

/// Read an agent's payout address.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/payout-address",
    operation_id = "read_payout_address",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    responses((status = 200, body = PayoutAddressView, description = "The address."), ReadErrors)
)]
pub(crate) async fn read(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
) -> Result<Json<PayoutAddressView>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    Ok(PayoutAddressView::load(&people, &owned).await?)
}

/// Set the address that an agent's money may be paid out to.
///
/// The address can be used after a delay, one day by default. A different address starts a new delay; the same address
/// does not.
#[utoipa::path(
    put,
    path = "/agents/{agentId}/payout-address",
    operation_id = "name_payout_address",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    request_body = NewPayoutAddress,
    responses((status = 200, body = PayoutAddressView, description = "The address, and the time from which it can be used."), NameErrors)
)]
pub(crate) async fn name(
    State(people): State<Arc<People>>,
    token: SessionToken,
    caller: CallerIds,
    Path(agent): Path<String>,
    body: Bytes,
) -> Result<Json<PayoutAddressView>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let new = NewPayoutAddress::parse(&json_body(&body)?)?;
    people.name_payout_address(&owned, caller, new.address).await?;
    Ok(PayoutAddressView::load(&people, &owned).await?)
}

/// Remove the payout address, at once.
#[utoipa::path(
    delete,
    path = "/agents/{agentId}/payout-address",
    operation_id = "remove_payout_address",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    responses((status = 200, body = PayoutAddressView, description = "The agent has no payout address."), RemoveErrors)
)]
pub(crate) async fn remove(
    State(people): State<Arc<People>>,
    token: SessionToken,
    caller: CallerIds,
    Path(agent): Path<String>,
) -> Result<Json<PayoutAddressView>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    people.remove_payout_address(&owned, caller).await?;
    Ok(PayoutAddressView::load(&people, &owned).await?)
}

/// Pay out to the payout address.
#[utoipa::path(
    post,
    path = "/agents/{agentId}/payouts",
    operation_id = "pay_out",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    request_body = NewPayout,
    responses(
        (status = 201, body = PayoutView, description = "The payout is reserved, signed and submitted."),
        (status = 200, body = PayoutView, description = "The payout of an earlier request with this key. The header `Idempotent-Replayed` is `true`."),
        PayOutErrors,
    )
)]
pub(crate) async fn pay_out(
    State(people): State<Arc<People>>,
    token: SessionToken,
    caller: CallerIds,
    Path(agent): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let new = NewPayout::parse(&json_body(&body)?)?;
    let PaidOut {
        settlement,
        submission,
        replayed,
    } = people
        .pay_out(&owned, caller, new.amount_units.0, &new.idempotency_key.0)
        .await?;
    let answer = Json(PayoutView {
        payout: SettlementView::from_settlement(settlement, owned.agent())?,
        submission: submission.map(Submission::name),
    });
    if !replayed {
        return Ok(created_response(answer));
    }
    let mut answer = answer.into_response();
    let told = HeaderValue::from_static("true");
    answer.headers_mut().insert("idempotent-replayed", told);
    Ok(answer)
}
