//! JSON API under `/audit-log`, the user's audit log.

use crate::caller::Caller;
use crate::cursor;
use crate::request::parse_page_request;
use crate::state::PeopleState;
use axum::Json;
use purser_api::{AuditList, AuditParameters, AuditView, QueryOf, Reply, endpoint, parse_audit_filter};

/// List your actions, your rejected requests, and operators' actions on your agents.
///
/// The log has one row per update of your agents, per approval decision and per session. It also has one row per
/// transfer out of a wallet without a matching settlement. Rows cannot be changed.
#[endpoint(
    get "/audit-log",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of the list, newest first."
)]
pub(crate) async fn list_audit_log(
    people: PeopleState,
    user: Caller,
    QueryOf(mut query, _): QueryOf<AuditParameters>,
) -> Reply<Json<AuditList>> {
    let filter = parse_audit_filter(&mut query);
    let page_request = parse_page_request(&mut query, cursor::parse_uuid_cursor);
    query.finish()?;
    let page = people.list_audit_log(&user, filter, page_request).await?;
    let entries = page.items.iter().map(|row| AuditView::new(&row.record, &row.sha256));
    Ok(Json(AuditList::new(
        entries.collect(),
        page.next.map(cursor::format_uuid_cursor),
    )))
}
