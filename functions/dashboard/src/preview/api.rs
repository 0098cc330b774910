//! Previews in the JSON API: `?preview=true` on updates of policies and rules.

use crate::preview::operations::{PreviewDays, UpdatePreview};
use axum::Json;
use axum::response::{IntoResponse, Response};
use purser_api::{FromQuery, Query};
use purser_domain::{
    Amount, BacktestResult, ChangedDecisionExample, CheckName, Comparison, Counterexample, Differences, EditReason,
    Rule, RuleFinding, Timestamp, Verdict, rule_kind_audit_value,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// The query parameters of an update that has a preview.
#[derive(IntoParams)]
pub(crate) struct RequestedUpdate {
    /// If true, nothing is saved, and the response describes the effects of the update.
    #[param(value_type = bool, required = false)]
    preview: bool,
    /// The number of days whose decisions a preview tests. Default: 7.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 30)]
    days: Option<PreviewDays>,
    /// Why you make the update. The version history and the audit log contain the reason.
    #[param(value_type = String, required = false, max_length = 200, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    pub(crate) edit_reason: Option<EditReason>,
}

impl RequestedUpdate {
    /// Returns the number of days to test if the query requests a preview.
    pub(crate) fn preview(&self) -> Option<PreviewDays> {
        self.preview.then(|| self.days.unwrap_or(PreviewDays::DEFAULT))
    }
}

impl FromQuery for RequestedUpdate {
    fn from_query(query: &mut Query) -> Self {
        Self {
            preview: is_preview(query),
            days: parse_days(query),
            edit_reason: parse_update_reason(query),
        }
    }
}

pub(crate) fn parse_days(query: &mut Query) -> Option<PreviewDays> {
    let days = query.parse_integer("days", 1, PreviewDays::MAX);
    days.and_then(PreviewDays::new)
}

/// The reason for an update, as the query parameter of an operation that has no preview.
#[derive(IntoParams)]
pub(crate) struct AskedReason {
    /// Why you make the update. The version history and the audit log contain the reason.
    #[param(value_type = String, required = false, max_length = 200, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    pub(crate) edit_reason: Option<EditReason>,
}

impl FromQuery for AskedReason {
    fn from_query(query: &mut Query) -> Self {
        Self {
            edit_reason: parse_update_reason(query),
        }
    }
}

/// The query parameters of an operation on several agents.
#[derive(IntoParams)]
pub(crate) struct AskedApply {
    /// If true, nothing is saved, and the response describes the changes. A preview may also contain agents that do not
    /// follow the template.
    #[param(value_type = bool, required = false)]
    pub(crate) preview: bool,
    /// Why you make the update. The version history and the audit log contain the reason.
    #[param(value_type = String, required = false, max_length = 200, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    pub(crate) edit_reason: Option<EditReason>,
}

impl FromQuery for AskedApply {
    fn from_query(query: &mut Query) -> Self {
        Self {
            preview: is_preview(query),
            edit_reason: parse_update_reason(query),
        }
    }
}

fn is_preview(query: &mut Query) -> bool {
    let is_preview = query.parse_with("preview", |text| text.parse().ok(), "must be `true` or `false`");
    is_preview.unwrap_or(false)
}

fn parse_update_reason(query: &mut Query) -> Option<EditReason> {
    let reason = query.parse_with(
        "edit_reason",
        |text| EditReason::parse_optional(text).ok(),
        EditReason::FORM,
    );
    reason.flatten()
}

/// The changes that an update would make. Nothing was saved.
#[derive(Serialize, ToSchema)]
#[schema(as = EditPreview)]
pub(crate) struct PreviewView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// Always true, because nothing was saved.
    preview: bool,
    #[serde(flatten)]
    comparison: ComparisonView,
    #[serde(flatten)]
    tested: TestedView,
    /// The findings about the agent's rules after the update.
    findings: Vec<FindingView>,
}

/// A finding about a rule, or about the cap per call of a service. A finding has no effect. Rules without a finding may
/// also be useless.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleFinding)]
pub(crate) struct FindingView {
    /// `is_covered_by` (other limits are at least as strict), `never_fires` (no payment meets the rule's conditions) or
    /// `contradicts` (the rule, alone or together with `other_rule`, blocks every payment to which both apply).
    finding: &'static str,
    /// The id of the rule. In a preview, the id of a new rule has no meaning. Null for a finding about a service's cap
    /// per call.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    rule_id: Option<String>,
    /// The rule.
    #[schema(value_type = Option<Object>, required)]
    rule: Option<Value>,
    /// The id of the rule in `other_rule`. Null if the finding involves no other rule.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    other_rule_id: Option<String>,
    /// The other rule of the finding: the rule that is at least as strict (`is_covered_by`), or the rule that blocks
    /// every payment together with `rule` (`contradicts`). Null if the finding involves no other rule.
    #[schema(value_type = Option<Object>, required)]
    other_rule: Option<Value>,
    /// The service whose cap per call is covered. Null for a finding about a rule.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    service_id: Option<String>,
    /// The finding as a sentence.
    message: &'static str,
}

impl From<RuleFinding> for FindingView {
    fn from(finding: RuleFinding) -> Self {
        let id = |rule: &Option<Rule>| rule.as_ref().map(|rule| rule.id.to_string());
        let value = |rule: &Option<Rule>| rule.as_ref().map(|rule| rule_kind_audit_value(&rule.kind));
        Self {
            finding: finding.kind.name(),
            rule_id: id(&finding.rule),
            rule: value(&finding.rule),
            other_rule_id: id(&finding.other),
            other_rule: value(&finding.other),
            service_id: finding.service.map(|service| service.to_string()),
            message: finding.message,
        }
    }
}

/// A comparison of the limits before and after an update.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsComparison)]
pub(crate) struct ComparisonView {
    /// Whether the update may allow payments that are now blocked or require approval. If so, the update requires a
    /// recent sign-in.
    widens: bool,
    /// Whether the update may block or require approval for payments that are now allowed.
    narrows: bool,
    /// An example of a request that has a less strict result after the update. Null if no example was found.
    #[schema(required)]
    widened: Option<RequestView>,
    /// An example of a request that has a stricter result after the update. Null if no example was found.
    #[schema(required)]
    narrowed: Option<RequestView>,
}

/// A request that has different results under the limits before and after an update.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsCounterexample)]
pub(crate) struct RequestView {
    service: String,
    operation_id: String,
    amount_units: u64,
    /// The host of the page to fetch. Null if the operation fetches no page.
    #[schema(required)]
    hostname: Option<String>,
    /// The amount that the agent had already spent on the service, in micro-USDC.
    spent_units: u64,
    /// The number of calls that the agent had already paid.
    paid_calls: u64,
    /// Whether the agent had already paid the same call.
    repeated: bool,
    /// The number of seconds between the agent's earlier payments and the request. `spent_units`, `paid_calls` and
    /// `repeated` describe the earlier payments.
    spent_seconds_ago: u64,
    /// Whether the payee is new to the agent.
    new_payee: bool,
    /// The price in micro-USDC that the agent paid for each of its latest calls of the operation. Null if no rule
    /// compares prices with the usual price.
    #[schema(required)]
    usual_price_units: Option<u64>,
    /// The time of the request. Null if the example holds for the current time.
    #[schema(format = DateTime, required)]
    at: Option<String>,
    before: VerdictView,
    after: VerdictView,
}

/// The decision about the example request.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsVerdict)]
pub(crate) struct VerdictView {
    /// The result: `allow`, `block` or `escalate`.
    result: &'static str,
    reason: String,
    /// The first check that fails. Null if the request is allowed.
    #[schema(required)]
    check: Option<&'static str>,
}

/// The result of testing the proposed limits on recorded decisions.
#[derive(Serialize, ToSchema)]
#[schema(as = TestedLimits)]
pub(crate) struct TestedView {
    /// The start of the tested range.
    #[schema(format = DateTime)]
    from: String,
    /// Whether the range has more decisions than were tested. A preview tests at most the newest 5,000 decisions, and a
    /// shadow policy the newest 20,000.
    partial: bool,
    /// The number of tested decisions.
    decisions: u64,
    /// The number of decisions that could not be tested. Their recorded results are kept.
    untested: u64,
    /// The sum of the authorized payments among the tested decisions, in micro-USDC.
    authorized_units: u64,
    /// The differences if every payment that newly requires approval is rejected. A payment newly requires approval if
    /// only the proposed limits require the approval.
    if_declined: DifferencesView,
    /// The differences if every payment that newly requires approval is approved immediately. A payment newly requires
    /// approval if only the proposed limits require the approval.
    if_approved: DifferencesView,
}

/// The differences between two sets of decisions. A preview compares decisions under the current limits with decisions
/// under the proposed limits. A backtest and a shadow policy compare recorded decisions with decisions under the
/// proposed limits.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsDifferences)]
pub(crate) struct DifferencesView {
    /// The changed decisions, grouped by old result, new result and reason.
    flips: Vec<FlipView>,
    /// The number of payments that have the same result with a different reason.
    other_reasons: u64,
    /// The sum of the payments, in micro-USDC, that the proposed limits no longer allow. In a preview, the current
    /// limits allow these payments. Otherwise, the recorded decisions allowed them.
    saved_units: u64,
    /// The sum of the payments that only the proposed limits allow, in micro-USDC.
    added_units: u64,
}

/// A group of decisions whose result the proposed limits change. The decisions have the same old result, new result and
/// reason.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsFlips)]
pub(crate) struct FlipView {
    /// The previous result: `allow`, `block` or `escalate`. In a preview, the result under the current limits.
    /// Otherwise, the recorded result.
    recorded: &'static str,
    /// The result under the proposed limits: `allow`, `block` or `escalate`.
    tested: &'static str,
    /// Why the proposed limits do not allow the payment. If the proposed limits allow the payment, why the payment was
    /// not allowed before.
    reason: String,
    count: u64,
    /// The sum of the group's amounts, in micro-USDC.
    amount_units: u64,
    example: ExampleView,
}

/// A decision as an example: the newest decision of a group of changed decisions, or a decision of a rule.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsFlipExample)]
pub(crate) struct ExampleView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    #[schema(value_type = uuid::Uuid)]
    transaction_id: String,
    #[schema(value_type = uuid::Uuid)]
    service_id: String,
    #[schema(format = DateTime)]
    at: String,
    amount_units: u64,
}

impl PreviewView {
    pub(crate) fn new(preview: UpdatePreview) -> Self {
        Self {
            agent_id: preview.agent.to_string(),
            preview: true,
            comparison: preview.comparison.into(),
            tested: TestedView::new(preview.result, preview.from, preview.is_partial),
            findings: preview.findings.into_iter().map(FindingView::from).collect(),
        }
    }
}

impl IntoResponse for PreviewView {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

impl From<Comparison> for ComparisonView {
    fn from(comparison: Comparison) -> Self {
        Self {
            widens: comparison.widens,
            narrows: comparison.narrows,
            widened: comparison.widened.map(RequestView::from),
            narrowed: comparison.narrowed.map(RequestView::from),
        }
    }
}

impl From<Counterexample> for RequestView {
    fn from(counterexample: Counterexample) -> Self {
        Self {
            service: counterexample.service.to_string(),
            operation_id: counterexample.operation.to_string(),
            amount_units: counterexample.amount.units(),
            hostname: counterexample.host,
            spent_units: counterexample.history.spent.units(),
            paid_calls: counterexample.history.calls,
            repeated: counterexample.history.is_repeated,
            spent_seconds_ago: counterexample.history.ago.secs(),
            new_payee: counterexample.history.is_new_payee,
            usual_price_units: counterexample.history.usual_price.map(Amount::units),
            at: counterexample.at.map(|at| at.to_string()),
            before: counterexample.before.into(),
            after: counterexample.now.into(),
        }
    }
}

impl From<Verdict> for VerdictView {
    fn from(verdict: Verdict) -> Self {
        Self {
            result: verdict.result.name(),
            reason: verdict.reason,
            check: verdict.check.map(CheckName::name),
        }
    }
}

impl TestedView {
    pub(crate) fn new(result: BacktestResult, from: Timestamp, is_partial: bool) -> Self {
        Self {
            from: from.to_string(),
            partial: is_partial,
            decisions: result.decisions,
            untested: result.untested,
            authorized_units: result.authorized,
            if_declined: result.if_declined.into(),
            if_approved: result.if_approved.into(),
        }
    }
}

impl From<&ChangedDecisionExample> for ExampleView {
    fn from(example: &ChangedDecisionExample) -> Self {
        Self {
            agent_id: example.agent.to_string(),
            transaction_id: example.transaction.to_string(),
            service_id: example.service.to_string(),
            at: example.at.to_string(),
            amount_units: example.amount.units(),
        }
    }
}

impl From<Differences> for DifferencesView {
    fn from(differences: Differences) -> Self {
        let changed_decisions = differences.flips.into_iter().map(|(kind, changed_decisions)| FlipView {
            recorded: kind.recorded.name(),
            tested: kind.tested.name(),
            reason: kind.reason,
            count: changed_decisions.count,
            amount_units: changed_decisions.amount,
            example: ExampleView::from(&changed_decisions.example),
        });
        Self {
            flips: changed_decisions.collect(),
            other_reasons: differences.other_reasons,
            saved_units: differences.saved,
            added_units: differences.added,
        }
    }
}
