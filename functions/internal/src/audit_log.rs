//! `GET /internal/audit-log`: the operators' actions, one user's actions, or the outflows that no settlement explains.

use crate::Operators;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use purser_api::{AuditList, AuditView, DateOrTime, Failure, OperatorCredentials, Query, audit_filter};
use purser_domain::{AuditId, AuditKind, AuditScope, PersonId};
use purser_store::{PageRequest, READ_AT_ONCE};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors of this endpoint.
    pub(crate) AuditErrors: 400, 401, 429, 500;
}

/// List operators' actions, one user's actions, or the transfers out of wallets that no settlement explains.
#[utoipa::path(
    get,
    path = "/internal/audit-log",
    operation_id = "list_internal_audit_log",
    tag = "internal",
    security(("internalToken" = [])),
    params(
        ("person_id" = Option<String>, Query, pattern = "^[0-9a-f]{64}$", description = "The ID of an owner: lists the owner's actions, and those of operators and reconciliation on the owner's resources. Without it: the operators' actions."),
        ("outflows" = Option<bool>, Query, description = "Only transfers out of wallets that no settlement explains: all of them, or the owner's."),
        ("agent_id" = Option<uuid::Uuid>, Query, description = "Only entries about this agent."),
        ("kind" = Option<String>, Query, pattern = "^(agent_created|agent_renamed|agent_frozen|agent_unfrozen|agent_archived|agent_restored|agent_labels_edited|key_created|key_rotated|key_revoked|service_enabled|service_disabled|policy_edited|rule_added|rule_replaced|rule_removed|payout_address_named|payout_address_removed|paid_out|approval_approved|approval_rejected|approval_withdrawn|webhook_created|webhook_edited|webhook_secret_rotated|webhook_removed|notices_edited|backtest_started|shadow_attached|shadow_promoted|shadow_removed|policy_template_created|policy_template_edited|policy_template_removed|policy_template_applied|policy_template_unfollowed|session_started|session_ended|sessions_ended|catalog_edited|payment_pinned|payment_change_accepted|payment_change_withdrawn|trust_status_set|curated_set|probe_requested|reconcile_requested|freeze_set|freeze_ended|freeze_end_requested|handover_offered|handover_taken_back|handover_accepted|outflow_found)$", description = "Only entries of this action."),
        ("from" = inline(Option<DateOrTime>), Query, description = "The start: a time, or a date in UTC."),
        ("to" = inline(Option<DateOrTime>), Query, description = "The end: before this time, or up to the end of this date in UTC."),
        ("refused" = Option<bool>, Query, description = "Only refused actions."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<uuid::Uuid>, Query, description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = AuditList, description = "Newest first."), AuditErrors)
)]
pub(crate) async fn list(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    uri: Uri,
) -> Result<Json<AuditList>, Failure> {
    let _operator = operators.authenticate(caller).await?;
    let mut query = Query::from_uri(&uri);
    let person = query.read(
        "person_id",
        PersonId::parse,
        "must be a person's id: 64 hexadecimal digits",
    );
    let outflows = query.read("outflows", |text| text.parse().ok(), "must be true or false");
    let mut filter = audit_filter(&mut query);
    let cursor = query.read(
        "cursor",
        AuditId::parse,
        "must be the `next_cursor` of an earlier answer",
    );
    let slice = PageRequest {
        before: cursor.map(AuditId::uuid),
        limit: query.limit("limit", 25, READ_AT_ONCE),
    };
    query.finish()?;
    let scope = match (person, outflows.unwrap_or(false)) {
        (Some(person), true) => {
            filter.kind = Some(AuditKind::OutflowFound);
            AuditScope::Person(person)
        }
        (Some(person), false) => AuditScope::Person(person),
        (None, true) => AuditScope::Outflows,
        (None, false) => AuditScope::Operators,
    };
    let page = operators.audit.page(&scope, filter, slice).await?;
    let entries = page.items.iter().map(|row| AuditView::new(&row.record, &row.sha256));
    Ok(Json(AuditList::new(
        entries.collect(),
        page.next.map(|next| next.to_string()),
    )))
}
