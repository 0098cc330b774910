//! JSON API for an agent's withdrawal address, and for withdrawals to it.

use crate::agents::owned::OwnedAgent;
use crate::payouts::operations::{MadeWithdrawal, Withdrawals};
use crate::request::created_response;
use crate::settlements::api::SettlementView;
use crate::state::{People, PeopleState};
use axum::Json;
use axum::http::HeaderValue;
use axum::response::IntoResponse as _;
use purser_api::{Body, CallerIds, Reply, Text, endpoint, errors, view};
use purser_domain::{Address, AgentId, Amount, Settlement, SettlementId, Submission, Timestamp, WithdrawalAmount};
use serde_json::json;

purser_api::views! {
    /// The address to which an agent's money can be withdrawn, and the withdrawal in progress.
    pub(crate) struct PayoutAddressView {
        fn new(agent: AgentId, withdrawals: &Withdrawals);
        let named = withdrawals.address.as_ref();

        agent_id: AgentId = agent,
        /// Whether this deployment supports withdrawals.
        set_up: bool = withdrawals.is_set_up,
        /// The address to which money can be withdrawn. If no address is set, `address`, `named_at` and `good_from` are
        /// null.
        address: Option<String> = named.map(|named| named.address.to_string()),
        named_at: Option<Timestamp> = named.map(|named| named.named_at),
        /// The time from which withdrawals to the address are possible.
        good_from: Option<Timestamp> = named.map(|named| named.good_from),
        /// The withdrawal in progress. An agent has at most one.
        open_settlement_id: Option<SettlementId> = withdrawals.open.as_ref().map(Settlement::id),
    }
}

impl PayoutAddressView {
    async fn load_address_view(people: &People, owned: &OwnedAgent) -> purser_domain::Result<Json<Self>> {
        let withdrawals = people.read_withdrawals(owned).await?;
        Ok(Json(Self::new(owned.agent().id, &withdrawals)))
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
#[view]
pub(crate) struct PayoutView {
    payout: SettlementView,
    /// The facilitator's response to this submission: `accepted`, `refused` or `unanswered`. Only the chain shows
    /// whether the withdrawal succeeds. While `receipt_status` is `authorized`, repeat the request to submit the
    /// withdrawal again. Null if nothing was submitted, because the withdrawal has ended, its address was changed, or
    /// operators froze the agent.
    #[schema(value_type = Option<String>, example = "accepted")]
    submission: Option<&'static str>,
}

/// Read an agent's withdrawal address.
#[endpoint(
    get "/agents/{agentId}/payout-address", operation_id = "read_payout_address", returns = "The withdrawal address."
)]
pub(crate) async fn read_withdrawal_address(people: PeopleState, owned: OwnedAgent) -> Reply<Json<PayoutAddressView>> {
    Ok(PayoutAddressView::load_address_view(&people, &owned).await?)
}

/// Set the address to which an agent's money may be withdrawn.
///
/// Withdrawals to a new address are possible after a delay, by default one day. Setting the current address again does
/// not restart the delay.
#[endpoint(
    put "/agents/{agentId}/payout-address", operation_id = "name_payout_address",
    returns = "The withdrawal address, with the time from which withdrawals are possible.",
    errors(RecentSignInRequired, PayoutRefused)
)]
pub(crate) async fn set_withdrawal_address(
    people: PeopleState,
    owned: OwnedAgent,
    caller: CallerIds,
    body: Body<NewPayoutAddress>,
) -> Reply<Json<PayoutAddressView>> {
    let new = body.parse()?;
    people.set_withdrawal_address(&owned, caller, new.address).await?;
    Ok(PayoutAddressView::load_address_view(&people, &owned).await?)
}

/// Remove the withdrawal address immediately.
#[endpoint(
    delete "/agents/{agentId}/payout-address", operation_id = "remove_payout_address",
    returns = "The withdrawal address was removed."
)]
pub(crate) async fn remove_withdrawal_address(
    people: PeopleState,
    owned: OwnedAgent,
    caller: CallerIds,
) -> Reply<Json<PayoutAddressView>> {
    people.remove_withdrawal_address(&owned, caller).await?;
    Ok(PayoutAddressView::load_address_view(&people, &owned).await?)
}

/// Withdraw money from the agent's wallet to the withdrawal address.
#[endpoint(
    post "/agents/{agentId}/payouts", operation_id = "pay_out",
    responses(
        (status = 201, body = PayoutView, description = "The withdrawal was reserved, signed and submitted."),
        (status = 200, body = PayoutView, description = "The withdrawal of an earlier request with the same `idempotency_key`. The header `Idempotent-Replayed` is `true`."),
        errors::RecentSignInRequired, errors::PayoutRefused, errors::IdempotencyKeyReused,
    )
)]
pub(crate) async fn withdraw_to_owner(
    people: PeopleState,
    owned: OwnedAgent,
    caller: CallerIds,
    body: Body<NewPayout>,
) -> Reply {
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
