//! `GET /internal/audit-log`: the actions of operators or of one user, or unexplained transfers.

use crate::AppState;
use crate::Caller;
use axum::Json;
use purser_api::{AuditList, AuditParameters, AuditView, QueryOf, Reply, endpoint, parse_audit_filter};
use purser_domain::{AuditId, AuditKind, AuditScope, UserId};
use purser_store::{MAX_ROWS_PER_READ, PageRequest};

/// List the operators' actions, one user's actions, or unexplained transfers out of agents' wallets.
#[endpoint(
    get "/internal/audit-log",
    params(
        ("person_id" = Option<String>, Query, pattern = "^[0-9a-f]{64}$", description = "The ID of an owner. The list then has the owner's actions, the operators' actions on the owner's agents, and unexplained transfers out of these agents' wallets. If absent, the list has the operators' actions."),
        ("outflows" = Option<bool>, Query, description = "If true, the list has only unexplained transfers. Such a transfer moved money out of an agent's wallet, but belongs to no settlement. With `person_id`, the list has only transfers out of the wallets of this owner's agents."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<uuid::Uuid>, Query, description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of the list, newest first."
)]
pub(crate) async fn list_internal_audit_log(
    operators: AppState,
    Caller(_operator): Caller,
    QueryOf(mut query, _): QueryOf<AuditParameters>,
) -> Reply<Json<AuditList>> {
    let user = query.parse_with(
        "person_id",
        UserId::parse,
        "must be a person's id: 64 hexadecimal digits",
    );
    let outflows = query.parse_with("outflows", |text| text.parse().ok(), "must be true or false");
    let mut filter = parse_audit_filter(&mut query);
    let cursor = query.parse_with(
        "cursor",
        AuditId::parse,
        "must be the `next_cursor` of an earlier answer",
    );
    let page_request = PageRequest {
        before: cursor.map(AuditId::uuid),
        limit: query.parse_limit("limit", 25, MAX_ROWS_PER_READ),
    };
    query.finish()?;
    let scope = match (user, outflows.unwrap_or(false)) {
        (Some(user), true) => {
            filter.kind = Some(AuditKind::OutflowFound);
            AuditScope::Person(user)
        }
        (Some(user), false) => AuditScope::Person(user),
        (None, true) => AuditScope::Outflows,
        (None, false) => AuditScope::Operators,
    };
    let page = operators.audit.read_page(&scope, filter, page_request).await?;
    let entries = page.items.iter().map(|row| AuditView::new(&row.record, &row.sha256));
    Ok(Json(AuditList::new(
        entries.collect(),
        page.next.map(|next| next.to_string()),
    )))
}
