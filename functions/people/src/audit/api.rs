//! JSON API under `/audit-log`: the user's actions, their rejected requests, and other people's actions on their
//! agents.

use crate::cursor;
use crate::request::slice;
use crate::state::People;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use purser_api::{AuditList, AuditView, DateOrTime, Failure, Query, SessionToken, audit_filter};
use std::sync::Arc;

purser_api::error_responses! {
    /// Errors when reading the audit log.
    pub(crate) ListErrors: 400, 401, 403, 429, 500;
}

/// List your actions, your rejected requests, and operators' actions on your agents.
///
/// The log has one row per update of your agents, per approval decision and per session. It also has one row per
/// transfer out of a wallet that no settlement explains. Rows cannot be changed.
#[utoipa::path(
    get,
    path = "/audit-log",
    operation_id = "list_audit_log",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agent_id" = Option<uuid::Uuid>, Query, description = "Only entries about this agent."),
        ("kind" = Option<String>, Query, pattern = "^(agent_created|agent_renamed|agent_frozen|agent_unfrozen|agent_archived|agent_restored|agent_labels_edited|key_created|key_rotated|key_revoked|service_enabled|service_disabled|policy_edited|rule_added|rule_replaced|rule_removed|payout_address_named|payout_address_removed|paid_out|approval_approved|approval_rejected|approval_withdrawn|webhook_created|webhook_edited|webhook_secret_rotated|webhook_removed|notices_edited|backtest_started|shadow_attached|shadow_promoted|shadow_removed|policy_template_created|policy_template_edited|policy_template_removed|policy_template_applied|policy_template_unfollowed|session_started|session_ended|sessions_ended|catalog_edited|payment_pinned|payment_change_accepted|payment_change_withdrawn|trust_status_set|curated_set|probe_requested|reconcile_requested|freeze_set|freeze_ended|freeze_end_requested|handover_offered|handover_taken_back|handover_accepted|outflow_found)$", description = "Only entries of this action."),
        ("from" = inline(Option<DateOrTime>), Query, description = "The start: a time, or a date in UTC."),
        ("to" = inline(Option<DateOrTime>), Query, description = "The end: before this time, or up to the end of this date in UTC."),
        ("refused" = Option<bool>, Query, description = "Only refused actions."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{32}$", description = "The `next_cursor` of an earlier answer."),
    ),
    responses((status = 200, body = AuditList, description = "Newest first."), ListErrors)
)]
pub(crate) async fn list(
    State(people): State<Arc<People>>,
    token: SessionToken,
    uri: Uri,
) -> Result<Json<AuditList>, Failure> {
    let person = people.authenticate(token).await?;
    let mut query = Query::from_uri(&uri);
    let filter = audit_filter(&mut query);
    let slice = slice(&mut query, cursor::read_place);
    query.finish()?;
    let page = people.audit_log(&person, filter, slice).await?;
    let entries = page.items.iter().map(|row| AuditView::new(&row.record, &row.sha256));
    Ok(Json(AuditList::new(
        entries.collect(),
        page.next.map(cursor::write_place),
    )))
}
