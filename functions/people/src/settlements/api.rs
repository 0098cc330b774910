//! `/settlements`: authorized payments and payouts, with their results.

use crate::agents::owned::named;
use crate::cursor;
use crate::request::{agent_filter, slice, span};
use crate::settlements::operations::SettlementFilter;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use purser_api::{DateOrTime, Failure, Query, SessionToken};
use purser_domain::{ReceiptStatus, Settlement, SettlementId};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of listing settlements.
    pub(crate) ListErrors: 400, 401, 403, 404, 429, 500;
    /// The errors of reading a settlement.
    pub(crate) ReadErrors: 401, 403, 404, 429, 500;
}

/// A settlement of one of the caller's agents.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnSettlement)]
pub(crate) struct SettlementView {
    #[schema(value_type = uuid::Uuid)]
    id: String,
    /// The ID of the decision in the audit log.
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    /// `purchase`, or `payout` for a transfer to your payout address. The fields of a purchase are null for a payout.
    #[schema(value_type = String, example = "purchase")]
    kind: &'static str,
    /// The agent that pays.
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    #[schema(value_type = Option<uuid::Uuid>, required)]
    service_id: Option<String>,
    /// Operation slug.
    #[schema(required)]
    operation_id: Option<String>,
    /// The chain.
    #[schema(value_type = String, example = "base")]
    network: &'static str,
    #[schema(value_type = String, example = "USDC")]
    token: &'static str,
    amount_units: u64,
    /// The payee.
    pay_to: String,
    /// `authorized`, `confirmed` or `expired`.
    #[schema(value_type = String, example = "confirmed")]
    receipt_status: &'static str,
    /// Null until confirmed.
    #[schema(required)]
    tx_hash: Option<String>,
    #[schema(format = DateTime)]
    authorized_at: String,
    /// Null until confirmed.
    #[schema(format = DateTime, required)]
    settled_at: Option<String>,
    /// The agent's key that authorized it.
    #[schema(required, example = "00c0ffee00c0ffee")]
    key_id: Option<String>,
    /// The wallet that pays.
    wallet_address: String,
    /// The chain takes the payment only in blocks before this instant.
    #[schema(format = DateTime)]
    expires_at: String,
    /// The approval that it used.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    approval_id: Option<String>,
    /// The version of the policy that was applied.
    #[schema(required)]
    policy_version: Option<u64>,
}

impl From<&Settlement> for SettlementView {
    fn from(settlement: &Settlement) -> Self {
        let terms = &settlement.terms;
        let purchase = terms.purchase();
        Self {
            id: terms.id.to_string(),
            transaction_id: terms.transaction.to_string(),
            kind: if purchase.is_some() { "purchase" } else { "payout" },
            agent_id: terms.agent.to_string(),
            service_id: purchase.map(|purchase| purchase.service.to_string()),
            operation_id: purchase.map(|purchase| purchase.operation.to_string()),
            network: terms.network.name(),
            token: terms.network.token_symbol(),
            amount_units: terms.amount.units(),
            pay_to: terms.pay_to.to_string(),
            receipt_status: settlement.state.name(),
            tx_hash: settlement.tx_hash().map(|hash| hash.to_string()),
            authorized_at: terms.authorized_at.to_string(),
            settled_at: settlement.settled_at().map(|at| at.to_string()),
            key_id: purchase.map(|purchase| purchase.key.to_string()),
            wallet_address: terms.wallet.to_string(),
            expires_at: terms.valid_before.to_string(),
            approval_id: purchase.and_then(|purchase| purchase.approval).map(|id| id.to_string()),
            policy_version: purchase.map(|purchase| purchase.policy_version),
        }
    }
}

/// Settlements, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnSettlementList)]
pub(crate) struct SettlementList {
    settlements: Vec<SettlementView>,
    /// The number of settlements in this answer. With a filter, or with more than 25 agents, a page can contain fewer
    /// than `limit` even if more pages follow.
    count: usize,
    /// Send it as `cursor` to read the next page; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List the settlements of your agents, payouts included.
#[utoipa::path(
    get,
    path = "/settlements",
    operation_id = "list_settlements",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agent_id" = Option<uuid::Uuid>, Query, description = "An agent that you own."),
        ("status" = Option<String>, Query, pattern = "^(authorized|confirmed|expired)$", description = "Only settlements in this state."),
        ("from" = inline(Option<DateOrTime>), Query, description = "The start: a time, or a date in UTC."),
        ("to" = inline(Option<DateOrTime>), Query, description = "The end: before this time, or up to the end of this date in UTC."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^([0-9a-f]{32}|0[0-2][0-9a-f]{46}|0[0-2][0-9a-f]{78})$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = SettlementList, description = "Newest first by `authorized_at`. With more than 25 agents, a page covers 25 of them, in order of creation."), ListErrors)
)]
pub(crate) async fn list(
    State(people): State<Arc<People>>,
    token: SessionToken,
    uri: Uri,
) -> Result<Json<SettlementList>, Failure> {
    let person = people.authenticate(token).await?;
    let mut query = Query::of(&uri);
    let filter = SettlementFilter {
        agent: agent_filter(&mut query),
        status: query.read("status", ReceiptStatus::from_name, ReceiptStatus::choices()),
        span: span(&mut query),
    };
    let slice = slice(&mut query, cursor::read_part);
    query.finish()?;
    let page = people.settlements(&person, filter, slice).await?;
    let settlements: Vec<SettlementView> = page.items.iter().map(SettlementView::from).collect();
    Ok(Json(SettlementList {
        count: settlements.len(),
        settlements,
        next_cursor: page.next.map(cursor::write_part),
    }))
}

/// Read one settlement.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/settlements/{settlementId}",
    operation_id = "read_settlement",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("settlementId" = String, Path, description = "The settlement id."),
    ),
    responses((status = 200, body = SettlementView, description = "The settlement."), ReadErrors)
)]
pub(crate) async fn read(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((agent, settlement)): Path<(String, String)>,
) -> Result<Json<SettlementView>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let id = named(SettlementId::parse(&settlement))?;
    let settlement = people.settlement(&owned, id).await?;
    Ok(Json(SettlementView::from(&settlement)))
}
