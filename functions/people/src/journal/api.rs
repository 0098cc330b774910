//! JSON API for `/decisions` and `/settlements`: lists from the decision history.

use crate::cursor;
use crate::decisions::api::DecisionRow;
use crate::journal::filter::{JournalFilter, JournalList};
use crate::request::slice;
use crate::settlements::api::SettlementView;
use crate::state::People;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use purser_api::{DateOrTime, Failure, Query, SessionToken};
use purser_domain::{Catalog, ErrorKind, JournalEntry, Result, ServiceId};
use purser_store::{Edition, Page};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

purser_api::error_responses! {
    /// Errors when reading a list.
    pub(crate) ListErrors: 400, 401, 403, 404, 429, 500;
}

/// A page of decisions, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = LoggedDecisionList)]
pub(crate) struct DecisionList {
    decisions: Vec<DecisionRow>,
    /// The number of decisions in this response. With a filter, a page can have fewer decisions than `limit` although
    /// more pages follow.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
    /// The time up to which the list is complete. Null unless the list is more than ten seconds behind.
    #[schema(format = DateTime, required)]
    complete_until: Option<String>,
}

/// A page of settlements, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnSettlementList)]
pub(crate) struct SettlementList {
    settlements: Vec<SettlementView>,
    /// The number of settlements in this response. With a filter, a page can have fewer settlements than `limit`
    /// although more pages follow.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
    /// The time up to which the list is complete. Null unless the list is more than ten seconds behind.
    #[schema(format = DateTime, required)]
    complete_until: Option<String>,
}

/// List the decisions about your agents' payments.
///
/// Without `agent_id`, the list is a few seconds behind.
#[utoipa::path(
    get,
    path = "/decisions",
    operation_id = "list_decisions",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agent_id" = Option<uuid::Uuid>, Query, description = "An agent that you own."),
        ("agent" = Option<String>, Query, description = "Only decisions about agents whose name contains this text."),
        ("result" = Option<String>, Query, pattern = "^(allow|block|escalate|take_back|payout)$", description = "Only decisions with this result."),
        ("label" = Option<String>, Query, pattern = "^[a-z][a-z0-9_.-]{0,29}(=[^\\x00-\\x1f\\x7f-\\x9f]{1,60})?$", description = "Only agents with this label, `key=value`, or with any label of this key."),
        ("status" = Option<String>, Query, pattern = "^(authorized|confirmed|expired)$", description = "Only decisions whose settlement is in this state."),
        ("service_id" = Option<String>, Query, description = "Only decisions for this service: its slug or UUID."),
        ("reason" = Option<String>, Query, description = "Only refusals with this `error` or `reason`."),
        ("pay_to" = Option<String>, Query, pattern = "^0x[0-9a-f]{40}$", description = "Only payments to this address."),
        ("min_amount_units" = Option<u64>, Query, minimum = 0, description = "Only decisions about at least this amount."),
        ("max_amount_units" = Option<u64>, Query, minimum = 0, description = "Only decisions about at most this amount."),
        ("from" = inline(Option<DateOrTime>), Query, description = "The start: a time, or a date in UTC."),
        ("to" = inline(Option<DateOrTime>), Query, description = "The end: before this time, or up to the end of this date in UTC."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = DecisionList, description = "Newest first."), ListErrors)
)]
pub(crate) async fn decisions(
    State(people): State<Arc<People>>,
    token: SessionToken,
    uri: Uri,
) -> Result<Json<DecisionList>, Failure> {
    let (page, edition, complete_until) = read(&people, token, JournalList::Decisions, &uri).await?;
    let decisions = page.items.iter().map(|entry| DecisionRow::new(entry, &edition.catalog));
    let decisions: Vec<DecisionRow> = decisions.collect();
    Ok(Json(DecisionList {
        count: decisions.len(),
        decisions,
        next_cursor: page.next.map(cursor::write_place),
        complete_until,
    }))
}

/// List your agents' settlements, including withdrawals.
///
/// Without `agent_id`, the list is a few seconds behind.
#[utoipa::path(
    get,
    path = "/settlements",
    operation_id = "list_settlements",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agent_id" = Option<uuid::Uuid>, Query, description = "An agent that you own."),
        ("agent" = Option<String>, Query, description = "Only settlements of agents whose name contains this text."),
        ("label" = Option<String>, Query, pattern = "^[a-z][a-z0-9_.-]{0,29}(=[^\\x00-\\x1f\\x7f-\\x9f]{1,60})?$", description = "Only agents with this label, `key=value`, or with any label of this key."),
        ("status" = Option<String>, Query, pattern = "^(authorized|confirmed|expired)$", description = "Only settlements in this state."),
        ("service_id" = Option<String>, Query, description = "Only settlements for this service: its slug or UUID."),
        ("pay_to" = Option<String>, Query, pattern = "^0x[0-9a-f]{40}$", description = "Only payments to this address."),
        ("min_amount_units" = Option<u64>, Query, minimum = 0, description = "Only settlements of at least this amount."),
        ("max_amount_units" = Option<u64>, Query, minimum = 0, description = "Only settlements of at most this amount."),
        ("from" = inline(Option<DateOrTime>), Query, description = "The start: a time, or a date in UTC."),
        ("to" = inline(Option<DateOrTime>), Query, description = "The end: before this time, or up to the end of this date in UTC."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = SettlementList, description = "Newest first by `authorized_at`."), ListErrors)
)]
pub(crate) async fn settlements(
    State(people): State<Arc<People>>,
    token: SessionToken,
    uri: Uri,
) -> Result<Json<SettlementList>, Failure> {
    let (page, _, complete_until) = read(&people, token, JournalList::Settlements, &uri).await?;
    let settlements: Vec<SettlementView> = page.items.iter().filter_map(SettlementView::from_entry).collect();
    Ok(Json(SettlementList {
        count: settlements.len(),
        settlements,
        next_cursor: page.next.map(cursor::write_place),
        complete_until,
    }))
}

type Listed = (Page<JournalEntry, Uuid>, Arc<Edition>, Option<String>);

async fn read(people: &People, token: SessionToken, list: JournalList, uri: &Uri) -> Result<Listed> {
    let person = people.authenticate(token).await?;
    let mut query = Query::from_uri(uri);
    let service = query.text("service_id");
    let filter = JournalFilter::from_query(&mut query, |_| None);
    let slice = slice(&mut query, cursor::read_place);
    query.finish()?;
    let edition = people.catalog().await?;
    let service = service.map(|service| parse_service_filter(&edition.catalog, &service));
    let filter = JournalFilter {
        service: service.transpose()?,
        ..filter
    };
    let page = people.journal(&person, list, &filter, slice);
    let (page, complete_until) = tokio::join!(page, people.complete_until());
    Ok((page?, edition, complete_until.map(|until| until.to_string())))
}

/// Parses the service filter. A service that has left the catalog can only be selected by UUID.
fn parse_service_filter(catalog: &Catalog, reference: &str) -> Result<ServiceId> {
    let id = catalog.by_reference(reference).map(|service| service.id);
    id.or_else(|| ServiceId::parse(reference))
        .ok_or_else(|| ErrorKind::ServiceNotFound.into())
}
