//! JSON API for `/decisions` and `/settlements`: lists from the decision history.

use crate::caller::Caller;
use crate::cursor;
use crate::decisions::api::DecisionRow;
use crate::journal::filter::{HistoryFilter, HistoryList};
use crate::request::parse_page_request;
use crate::settlements::api::SettlementView;
use crate::state::{People, PeopleState};
use axum::Json;
use purser_api::{DateOrTime, Query, QueryOf, Reply, endpoint, view};
use purser_domain::{Catalog, ErrorKind, HistoryEntry, Result, ServiceId, Timestamp};
use purser_store::{CatalogVersion, Page};
use std::sync::Arc;
use utoipa::{IntoParams, PartialSchema as _};
use uuid::Uuid;

/// A page of decisions, newest first.
#[view(LoggedDecisionList)]
pub(crate) struct DecisionList {
    decisions: Vec<DecisionRow>,
    /// The number of decisions in this response. With a filter, a page can have fewer decisions than `limit` although
    /// more pages follow.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    next_cursor: Option<String>,
    /// The time up to which the list is complete. Null if the list is at most ten seconds behind.
    complete_until: Option<Timestamp>,
}

/// A page of settlements, newest first.
#[view(OwnSettlementList)]
pub(crate) struct SettlementList {
    settlements: Vec<SettlementView>,
    /// The number of settlements in this response. With a filter, a page can have fewer settlements than `limit`
    /// although more pages follow.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    next_cursor: Option<String>,
    /// The time up to which the list is complete. Null if the list is at most ten seconds behind.
    complete_until: Option<Timestamp>,
}

/// The query parameters of `GET /decisions` and `GET /settlements`, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the parameters are parsed by `JournalFilter::from_query`")]
pub(crate) struct JournalParameters {
    /// The ID of an agent that you own.
    agent_id: Option<Uuid>,
    /// Only payments by agents whose name contains this text.
    agent: Option<String>,
    /// Only agents with this label, as `key=value`, or as `key` for any value.
    #[param(pattern = r"^[a-z][a-z0-9_.-]{0,29}(=[^\x00-\x1f\x7f-\x9f]{1,60})?$")]
    label: Option<String>,
    /// Only payments whose settlement is in this state.
    #[param(pattern = "^(authorized|confirmed|expired)$")]
    status: Option<String>,
    /// Only payments for this service: its slug or UUID.
    service_id: Option<String>,
    /// Only payments to this address.
    #[param(pattern = "^0x[0-9a-f]{40}$")]
    pay_to: Option<String>,
    /// Only payments of at least this amount, in micro-units.
    #[param(minimum = 0)]
    min_amount_units: Option<u64>,
    /// Only payments of at most this amount, in micro-units.
    #[param(minimum = 0)]
    max_amount_units: Option<u64>,
    /// Only payments from this time on. A time, or a date in UTC.
    #[param(schema_with = DateOrTime::schema)]
    from: Option<String>,
    /// Only payments before this time. If the value is a date, up to the end of this date in UTC.
    #[param(schema_with = DateOrTime::schema)]
    to: Option<String>,
}

/// List the decisions about your agents' payments.
///
/// If `agent_id` is absent, the list is a few seconds behind.
#[endpoint(
    get "/decisions",
    params(
        ("result" = Option<String>, Query, pattern = "^(allow|block|escalate|take_back|payout)$", description = "Only decisions with this result."),
        ("reason" = Option<String>, Query, description = "Only denied payments with this `error` or `reason`."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of the list, newest first.", errors(NotFound, ServiceNotFound)
)]
pub(crate) async fn list_decisions(
    people: PeopleState,
    user: Caller,
    QueryOf(query, _): QueryOf<JournalParameters>,
) -> Reply<Json<DecisionList>> {
    let (page, edition, complete_until) = read_history_page(&people, &user, HistoryList::Decisions, query).await?;
    let decisions = page.items.iter().map(|entry| DecisionRow::new(entry, &edition.catalog));
    Ok(Json(DecisionList::from_items(
        decisions,
        page.next.map(cursor::format_uuid_cursor),
        complete_until,
    )))
}

/// List your agents' settlements, including withdrawals.
///
/// If `agent_id` is absent, the list is a few seconds behind.
#[endpoint(
    get "/settlements",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of settlements, newest `authorized_at` first.", errors(NotFound, ServiceNotFound)
)]
pub(crate) async fn list_settlements(
    people: PeopleState,
    user: Caller,
    QueryOf(query, _): QueryOf<JournalParameters>,
) -> Reply<Json<SettlementList>> {
    let (page, _, complete_until) = read_history_page(&people, &user, HistoryList::Settlements, query).await?;
    Ok(Json(SettlementList::from_items(
        page.items.iter().filter_map(SettlementView::from_entry),
        page.next.map(cursor::format_uuid_cursor),
        complete_until,
    )))
}

type Listed = (Page<HistoryEntry, Uuid>, Arc<CatalogVersion>, Option<Timestamp>);

async fn read_history_page(people: &People, user: &Caller, list: HistoryList, mut query: Query) -> Result<Listed> {
    let service = query.parse_text("service_id");
    let filter = HistoryFilter::from_query(&mut query, |_| None);
    let page_request = parse_page_request(&mut query, cursor::parse_uuid_cursor);
    query.finish()?;
    let edition = people.current_catalog().await?;
    let service = service.map(|service| parse_service_filter(&edition.catalog, &service));
    let filter = HistoryFilter {
        service: service.transpose()?,
        ..filter
    };
    let page = people.read_history_page(user, list, &filter, page_request);
    let (page, complete_until) = tokio::join!(page, people.read_history_completeness_time());
    Ok((page?, edition, complete_until))
}

/// Parses the slug or UUID of a service. Only the UUID can select a service that has left the catalog.
fn parse_service_filter(catalog: &Catalog, reference: &str) -> Result<ServiceId> {
    let id = catalog.find_by_reference(reference).map(|service| service.id);
    id.or_else(|| ServiceId::parse(reference))
        .ok_or_else(|| ErrorKind::ServiceNotFound.into())
}
