//! JSON API for the approvals that agents request, and for the owner's decisions.

use crate::approvals::operations::{
    ApprovalContext, ApprovalFilter, MAX_AT_ONCE, Note, Outcome, OwnApproval, parse_decision,
};
use crate::caller::Caller;
use crate::cursor;
use crate::request::{parse_agent_filter, parse_page_request};
use crate::state::{People, PeopleState};
use axum::Json;
use axum::http::Uri;
use purser_api::{
    Body, BodyPath, CallView, Listed, Member as _, OptionalBody, Precondition, Query, RaiseView, Reply,
    ValidationErrors, endpoint, view,
};
use purser_domain::{
    AgentId, Amount, ApprovalId, ApprovalStatus, AskingLimit, Catalog, Error, GrantRestriction, MAX_NOTE_CHARS, RuleId,
    ServiceId, SettlementId, Timestamp, TransactionId, ValidationError,
};
use purser_store::ApprovalDecision;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The statuses that the `status` filter accepts, in the order of the filter's error message.
const STATUSES: [ApprovalStatus; 5] = [
    ApprovalStatus::Pending,
    ApprovalStatus::Approved,
    ApprovalStatus::Rejected,
    ApprovalStatus::Expired,
    ApprovalStatus::Executed,
];

/// An agent's request for approval, with the details that the owner needs to decide.
#[view(OwnApproval)]
pub(crate) struct ApprovalView {
    approval_id: ApprovalId,
    /// The approval's status: `pending`, `approved`, `rejected`, `expired` or `executed` (a payment has used it).
    #[schema(value_type = String, example = "pending")]
    status: &'static str,
    agent_id: AgentId,
    agent_name: String,
    /// `active` or `frozen`. A frozen agent cannot pay, even if you approve the payment.
    #[schema(value_type = String, example = "active")]
    agent_status: &'static str,
    /// The id of the agent key that sent the request.
    #[schema(example = "00c0ffee00c0ffee")]
    key_id: String,
    /// The id of the decision that required approval.
    transaction_id: TransactionId,
    service_id: ServiceId,
    /// The service's slug. The slug and the name are null if the service is no longer in the catalog.
    service_slug: Option<String>,
    service_name: Option<String>,
    operation_id: String,
    amount_units: u64,
    pay_to: String,
    /// The call that the agent wants to pay for.
    call: CallView,
    /// The number of earlier approval requests for the same call, with any outcome.
    asked_before: u32,
    /// The policy's approval threshold at the time of the request. For a temporary limit increase, the cap that blocked
    /// the payment.
    threshold_units: u64,
    /// The limits that require the approval. An approval waives only these limits. Empty for a temporary limit
    /// increase.
    asking: Vec<AskingLimitView>,
    /// The service's daily cap. The caps and amounts of the day (`max_per_day_units`, `spend_today_units` and
    /// `remaining_today_units`) are null if no payment can use the approval any more, or if the service is not enabled.
    max_per_day_units: Option<u64>,
    /// The amount in micro-USDC that counts against the daily cap now. If more than about 20,000 payments have become
    /// older than 24 hours and are not removed yet, the amount is an upper bound.
    spend_today_units: Option<u64>,
    /// The amount that remains of the daily cap before this payment.
    remaining_today_units: Option<u64>,
    created_at: Timestamp,
    /// The time from which nobody can approve the request and no payment can use the approval.
    expires_at: Timestamp,
    /// The time of the owner's decision. Null if the owner has made no decision.
    resolved_at: Option<Timestamp>,
    /// The note that the owner added to the decision. Null without a note.
    note: Option<String>,
    /// The settlement that used the approval. Null if no settlement used the approval.
    settlement_id: Option<SettlementId>,
    /// The temporary limit increase that the agent requests or, after the approval, that you granted. Absent if the agent
    /// requests approval for a payment.
    #[omit_none]
    raised_caps: Option<RaiseRequestView>,
}

/// A limit for which the payment needs an approval: the policy's threshold, or a rule.
#[view]
pub(crate) struct AskingLimitView {
    /// `require_approval_above_units` for the policy's threshold, or the kind of the rule.
    #[schema(value_type = String, example = "new_payee")]
    kind: &'static str,
    /// The rule's ID, as in the list of the agent's rules. Null for the policy's threshold.
    rule_id: Option<RuleId>,
    /// The amount above which the limit requires approval. 0 if the limit applies to every amount.
    above_units: u64,
}

impl From<&AskingLimit> for AskingLimitView {
    fn from(limit: &AskingLimit) -> Self {
        Self {
            kind: limit.kind.name(),
            rule_id: limit.rule,
            above_units: limit.above.units(),
        }
    }
}

/// Higher caps for a limited time: as requested by the agent or, after the approval, as granted.
#[view]
pub(crate) struct RaiseRequestView {
    #[serde(flatten)]
    raise: RaiseView,
    /// The cap per call that applies without this increase, in micro-units. Null if the request is no longer pending,
    /// or if the service is not enabled.
    present_max_per_call_units: Option<u64>,
    /// The cap per 24 hours that applies without this increase, in micro-units. Null if the request is no longer
    /// pending, or if the service is not enabled.
    present_max_per_day_units: Option<u64>,
    /// The maximum amount that the agent could pay at the service until the end of the increase, in micro-units. Null
    /// if the request is no longer pending, or if the service is not enabled.
    exposure_units: Option<u64>,
    /// The agent's reason for the request.
    reason: String,
}

impl ApprovalView {
    fn from_context(context: &ApprovalContext, catalog: &Catalog, now: Timestamp) -> Self {
        let ApprovalContext { approval, agent, day } = context;
        let (agent, service) = (agent.agent(), catalog.find_by_id(approval.service));
        Self {
            approval_id: approval.id,
            status: approval.status(now).name(),
            agent_id: agent.id,
            agent_name: agent.name.clone(),
            agent_status: agent.status.name(),
            key_id: approval.key.to_string(),
            transaction_id: approval.transaction,
            service_id: approval.service,
            service_slug: service.map(|service| service.slug.to_string()),
            service_name: service.map(|service| service.name.clone()),
            operation_id: approval.operation.to_string(),
            amount_units: approval.amount.units(),
            pay_to: approval.pay_to.to_string(),
            call: CallView::from(&approval.call),
            asked_before: approval.id.sequence(),
            threshold_units: approval.threshold.units(),
            asking: approval.asking.iter().map(AskingLimitView::from).collect(),
            max_per_day_units: day.map(|day| day.caps.per_day.units()),
            spend_today_units: day.map(|day| day.used.amount.units()),
            remaining_today_units: day.map(|day| Amount::units(day.caps.per_day.saturating_minus(day.used.amount))),
            created_at: approval.created_at,
            expires_at: approval.expires_at,
            resolved_at: approval.resolved_at(),
            note: approval.users_decision().and_then(|resolution| resolution.note.clone()),
            settlement_id: approval.settlement_id(),
            raised_caps: approval.temporary_caps().map(|increase| {
                let is_pending = approval.status(now) == ApprovalStatus::Pending;
                let present = day.filter(|_| is_pending).map(|day| day.caps);
                RaiseRequestView {
                    raise: RaiseView::from(increase),
                    present_max_per_call_units: present.map(|caps| caps.per_call.units()),
                    present_max_per_day_units: present.map(|caps| caps.per_day.units()),
                    exposure_units: present.map(|caps| increase.max_exposure(caps, now).units()),
                    reason: approval
                        .raise
                        .as_ref()
                        .map(|increase| increase.reason.clone())
                        .unwrap_or_default(),
                }
            }),
        }
    }
}

/// A page of approvals, newest first.
#[view(OwnApprovalList)]
pub(crate) struct ApprovalList {
    approvals: Vec<ApprovalView>,
    /// The number of approvals in this response. With a filter, a page can contain fewer approvals than `limit` even if
    /// more pages follow.
    count: usize,
    /// The cursor of the next page. Send it as `cursor`. Null on the last page.
    next_cursor: Option<String>,
}

purser_api::body! {
    /// The owner's decision on an approval. The body may be absent.
    pub(crate) struct VerdictBody {
        /// A note for yourself and for the agent. White space at the start and the end is removed. Line breaks are the
        /// only allowed control characters.
        note: Option<Written>,
    }
}

purser_api::body! {
    /// An approval. The body may be absent. Caps and `until` are only for a temporary limit increase.
    pub(crate) struct GrantBody {
        /// A note for yourself and for the agent.
        note: Option<Written>,
        /// The cap per call to grant, in micro-units: at most the requested cap. With 0, the current cap per call stays
        /// unchanged. Default: the requested cap.
        max_per_call_units: Option<Amount>,
        /// The cap per 24 hours to grant, in micro-units: at most the requested cap. With 0, the current cap per 24
        /// hours stays unchanged. Default: the requested cap.
        max_per_day_units: Option<Amount>,
        /// The end of the increase: at the latest the requested end, which is the default.
        until: Option<Timestamp>,
        /// Also adds a rule of the kind `approval_exception`, so that further payments with the same key, operation and
        /// payee need no approval for the same reasons. Requires a recent sign-in. A repeated request returns the stored
        /// approval. Only for an approval that the policy's threshold or a rule of the kind `approval_required`
        /// requires.
        always: Option<AlwaysBody>,
    }
}

purser_api::body! {
    /// The bounds of the payments that need no approval any more.
    pub(crate) struct AlwaysBody {
        /// The maximum amount of a payment in micro-units: at most the approved amount.
        pub(crate) max_amount_units: Amount,
        /// The time at which the exception ends: at most 90 days from now.
        pub(crate) until: Timestamp,
    }
}

impl VerdictBody {
    pub(crate) fn into_note(self) -> Option<Note> {
        self.note?.0
    }
}

purser_api::field! {
    /// A blank note becomes `None`.
    pub(crate) struct Written(Option<Note>):
    |value| Note::parse(value.as_str().ok_or("must be a text")?),
    json!({"type": "string", "maxLength": MAX_NOTE_CHARS, "pattern": "^([^\\x00-\\x1f\\x7f-\\x9f]|\\r?\\n)*$"})
}

purser_api::body! {
    /// One decision on several approvals.
    pub(crate) struct ApprovalBulkBody {
        /// The decision on all of the approvals: `approve` or `reject`.
        decision: Decision,
        /// The ids of 1 to 50 approvals. Each approval is decided separately, with its own row in the audit log.
        approval_ids: Vec<ApprovalRef> = {"minItems": 1, "maxItems": MAX_AT_ONCE, "uniqueItems": true},
        /// A note for yourself and for the agents.
        note: Option<Written>,
    }
}

#[derive(Debug)]
pub(crate) struct BulkDecision {
    pub(crate) ids: Vec<ApprovalId>,
    pub(crate) decision: ApprovalDecision,
    pub(crate) note: Option<Note>,
}

impl BulkDecision {
    pub(crate) fn parse(body: &Value) -> purser_domain::Result<Self> {
        let mut errors = ValidationErrors::default();
        let body = ApprovalBulkBody::read(body, BodyPath::Body, &mut errors);
        let bulk = body.and_then(|body| {
            let ids: Vec<ApprovalId> = body.approval_ids.into_iter().map(|id| id.0).collect();
            let distinct: BTreeSet<&ApprovalId> = ids.iter().collect();
            if distinct.len() != ids.len() || !(1..=MAX_AT_ONCE).contains(&ids.len()) {
                let message = format!("must have from 1 to {MAX_AT_ONCE} entries, each once");
                errors.extend(vec![ValidationError::at_path("/approval_ids", message)]);
                return None;
            }
            Some(Self {
                ids,
                decision: body.decision.0,
                note: body.note.and_then(|note| note.0),
            })
        });
        errors.finish(bulk)
    }
}

purser_api::field! {
    pub(crate) struct Decision(ApprovalDecision):
    |value| value.as_str().and_then(parse_decision).ok_or_else(|| "must be one of: approve, reject".to_owned()),
    json!({"type": "string", "enum": ["approve", "reject"]})
}

purser_api::field! {
    pub(crate) struct ApprovalRef(ApprovalId):
    |value| value.as_str().and_then(ApprovalId::parse).ok_or_else(|| "must be a UUID".to_owned()),
    json!({"type": "string", "format": "uuid"})
}

impl Listed for ApprovalRef {
    const NAME: &'static str = "ApprovalReference";

    fn item_schema() -> Value {
        json!({"description": "The `approval_id` of an approval."})
    }
}

/// The outcome of a bulk decision for one approval.
#[view(ApprovalOutcome)]
pub(crate) struct OutcomeView {
    approval_id: ApprovalId,
    /// `decided`; `not_pending` if the approval was already decided, used or expired; `not_in_bulk` for a temporary
    /// limit increase, which only `POST /agents/{agentId}/approvals/{approvalId}/approve` can approve; `not_found`; or
    /// `failed` if it is unknown whether the decision was stored.
    #[schema(value_type = String, example = "decided")]
    outcome: &'static str,
    /// The approval's status; null for `not_found` and `failed`.
    #[schema(value_type = Option<String>, example = "approved")]
    status: Option<&'static str>,
}

/// The outcomes for all approvals, in the order of the request.
#[view(ApprovalOutcomes)]
pub(crate) struct OutcomeList {
    outcomes: Vec<OutcomeView>,
    /// The number of decisions that this request stored.
    decided: usize,
}

impl OutcomeView {
    fn new(id: ApprovalId, outcome: &Outcome, now: Timestamp) -> Self {
        let (outcome, approval) = match outcome {
            Outcome::Decided(approval) => ("decided", Some(approval)),
            Outcome::NotPending(approval) => ("not_pending", Some(approval)),
            Outcome::NotInBulk(approval) => ("not_in_bulk", Some(approval)),
            Outcome::NotFound => ("not_found", None),
            Outcome::Failed => ("failed", None),
        };
        Self {
            approval_id: id,
            outcome,
            status: approval.map(|approval| approval.status(now).name()),
        }
    }
}

/// List the approvals of your agents.
#[endpoint(
    get "/approvals",
    params(
        ("status" = Option<String>, Query, pattern = "^(pending|approved|rejected|expired|executed)$", description = "Only approvals with this status."),
        ("agent_id" = Option<uuid::Uuid>, Query, description = "The ID of an agent that you own."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^0[0-2][0-9a-f]{46}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of the list, newest first.", errors(NotFound)
)]
pub(crate) async fn list_approvals(people: PeopleState, user: Caller, uri: Uri) -> Reply<Json<ApprovalList>> {
    let mut query = Query::from_uri(&uri);
    let filter = ApprovalFilter {
        agent: parse_agent_filter(&mut query),
        status: query.parse_with("status", parse_status, status_names()),
        decided: false,
    };
    let page_request = parse_page_request(&mut query, cursor::parse_approval_cursor);
    query.finish()?;
    let page = people.list_approvals(&user, filter, page_request);
    let (page, edition) = tokio::try_join!(page, people.current_catalog())?;
    let now = people.now();
    let approvals = page
        .items
        .iter()
        .map(|context| ApprovalView::from_context(context, &edition.catalog, now));
    Ok(Json(ApprovalList::from_items(
        approvals,
        page.next.map(cursor::format_approval_cursor),
    )))
}

fn parse_status(name: &str) -> Option<ApprovalStatus> {
    STATUSES.into_iter().find(|status| status.name() == name)
}

fn status_names() -> String {
    format!("must be one of: {}", STATUSES.map(ApprovalStatus::name).join(", "))
}

/// Read an approval.
#[endpoint(get "/agents/{agentId}/approvals/{approvalId}", returns = "The approval.")]
pub(crate) async fn read_approval(people: PeopleState, owned_approval: OwnApproval) -> Reply<Json<ApprovalView>> {
    approval_response(&people, people.read_approval_context(owned_approval)).await
}

/// Approve a payment. The agent may then make this payment once.
///
/// Caps, rules and freezes still apply to that request. If the agent requests a temporary limit increase, the approval
/// grants the increase, which requires a recent sign-in. You can grant lower caps and an earlier end than the agent
/// requested. With `always`, the approval also adds an exception for further payments, which you can remove like any
/// rule.
#[endpoint(
    post "/agents/{agentId}/approvals/{approvalId}/approve", operation_id = "approve",
    returns = "The approval, with the status `approved`.", errors(RecentSignInRequired, ApprovalNotPending)
)]
pub(crate) async fn approve_request(
    people: PeopleState,
    owned_approval: OwnApproval,
    body: OptionalBody<GrantBody>,
) -> Reply<Json<ApprovalView>> {
    let body = body.parse()?;
    let restriction = GrantRestriction {
        max_per_call: body.max_per_call_units,
        max_per_day: body.max_per_day_units,
        until: body.until,
    };
    let note = body.note.and_then(|note| note.0);
    if let Some(always) = &body.always {
        if restriction != GrantRestriction::default() {
            let message = "must be absent for the approval of a limit increase";
            return Err(Error::invalid(vec![ValidationError::at_path("/always", message)]).into());
        }
        let approved = people.approve_always(owned_approval, Precondition::Any, always, note.as_ref());
        return approval_response(&people, approved).await;
    }
    let decided = people.decide_approval(owned_approval, ApprovalDecision::Approve, &restriction, note.as_ref());
    approval_response(&people, decided).await
}

/// Reject an approval request, so that the payment is not made.
#[endpoint(
    post "/agents/{agentId}/approvals/{approvalId}/reject", operation_id = "reject",
    returns = "The approval, with the status `rejected`.", errors(ApprovalNotPending)
)]
pub(crate) async fn reject_request(
    people: PeopleState,
    owned_approval: OwnApproval,
    body: OptionalBody<VerdictBody>,
) -> Reply<Json<ApprovalView>> {
    let note = body.parse()?.into_note();
    let restriction = GrantRestriction::default();
    let decided = people.decide_approval(owned_approval, ApprovalDecision::Reject, &restriction, note.as_ref());
    approval_response(&people, decided).await
}

/// Withdraw an approval that no payment has used. The approval's status becomes `rejected`. A granted limit increase
/// ends.
#[endpoint(
    post "/agents/{agentId}/approvals/{approvalId}/withdraw", returns = "The approval, with the status `rejected`.",
    errors(ApprovalNotPending)
)]
pub(crate) async fn withdraw_approval(
    people: PeopleState,
    owned_approval: OwnApproval,
    body: OptionalBody<VerdictBody>,
) -> Reply<Json<ApprovalView>> {
    let note = body.parse()?.into_note();
    approval_response(&people, people.withdraw_approval(owned_approval, note.as_ref())).await
}

/// Approve or reject several payments. Approving requires a recent sign-in if the sum of the payments is large.
///
/// Each approval is decided separately, so the outcomes can differ. You can reject temporary limit increases here, but
/// you must approve each of them with `POST /agents/{agentId}/approvals/{approvalId}/approve`.
#[endpoint(post "/approvals/bulk", returns = "The outcome for each approval.", errors(RecentSignInRequired))]
pub(crate) async fn decide_approvals(
    people: PeopleState,
    user: Caller,
    body: Body<ApprovalBulkBody>,
) -> Reply<Json<OutcomeList>> {
    let BulkDecision { ids, decision, note } = BulkDecision::parse(&body.json()?)?;
    let selected = people.read_own_approvals(&user, &ids).await?;
    let outcomes = people
        .decide_approvals(&user, selected, decision, note.as_ref())
        .await?;
    let now = people.now();
    let is_decided = |(_, outcome): &&(ApprovalId, Outcome)| matches!(outcome, Outcome::Decided(_));
    Ok(Json(OutcomeList {
        decided: outcomes.iter().filter(is_decided).count(),
        outcomes: outcomes
            .iter()
            .map(|(id, outcome)| OutcomeView::new(*id, outcome, now))
            .collect(),
    }))
}

async fn approval_response(
    people: &People,
    approval: impl Future<Output = purser_domain::Result<ApprovalContext>>,
) -> Reply<Json<ApprovalView>> {
    let edition = people.current_catalog().await?;
    let approval = approval.await?;
    Ok(Json(ApprovalView::from_context(
        &approval,
        &edition.catalog,
        people.now(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approvals_are_filtered_by_status_name() {
        for known in STATUSES {
            assert_eq!(parse_status(known.name()), Some(known));
        }
        assert_eq!(parse_status("Pending"), None);
        assert_eq!(
            status_names(),
            "must be one of: pending, approved, rejected, expired, executed"
        );
    }
}
