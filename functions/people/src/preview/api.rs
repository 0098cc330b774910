//! Previews in the JSON API: `?preview=true` on updates of policies and rules.

use crate::preview::operations::{EditPreview, PreviewDays};
use axum::Json;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use purser_api::Query;
use purser_domain::{
    Amount, BacktestResult, CheckName, Comparison, Counterexample, Differences, EditReason, Result, Timestamp, Verdict,
};
use serde::Serialize;
use utoipa::ToSchema;

/// The query parameters of an update.
#[derive(Clone, Debug)]
pub(crate) struct AskedEdit {
    /// The number of days to test, if the query asks for a preview instead of the update.
    pub(crate) preview: Option<PreviewDays>,
    /// The user's reason for the update.
    pub(crate) reason: Option<EditReason>,
}

/// Parses `preview`, `days` and `edit_reason`.
pub(crate) fn parse_edit_query(uri: &Uri) -> Result<AskedEdit> {
    let mut query = Query::from_uri(uri);
    let is_preview = query.read("preview", |text| text.parse::<bool>().ok(), "must be `true` or `false`");
    let days = query.integer("days", 1, PreviewDays::MAX).and_then(PreviewDays::new);
    let reason = edit_reason(&mut query);
    query.finish()?;
    let is_preview = is_preview.unwrap_or(false);
    Ok(AskedEdit {
        preview: is_preview.then(|| days.unwrap_or(PreviewDays::DEFAULT)),
        reason,
    })
}

/// Parses `edit_reason` for an update that has no preview.
pub(crate) fn parse_reason_query(uri: &Uri) -> Result<Option<EditReason>> {
    let mut query = Query::from_uri(uri);
    let reason = edit_reason(&mut query);
    query.finish()?;
    Ok(reason)
}

/// Parses `preview` and `edit_reason` for an operation on several agents.
pub(crate) fn parse_apply_query(uri: &Uri) -> Result<(bool, Option<EditReason>)> {
    let mut query = Query::from_uri(uri);
    let is_preview = query.read("preview", |text| text.parse::<bool>().ok(), "must be `true` or `false`");
    let reason = edit_reason(&mut query);
    query.finish()?;
    Ok((is_preview.unwrap_or(false), reason))
}

fn edit_reason(query: &mut Query) -> Option<EditReason> {
    let reason = query.read(
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
    /// Always true.
    preview: bool,
    #[serde(flatten)]
    comparison: ComparisonView,
    #[serde(flatten)]
    tested: TestedView,
}

/// A comparison of two versions of limits.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsComparison)]
pub(crate) struct ComparisonView {
    /// Whether the update may allow payments that are now blocked or require approval. Such an update requires a recent
    /// sign-in.
    widens: bool,
    /// Whether the update may block payments that are now allowed, or require approval for them.
    narrows: bool,
    /// An example request that the update treats less strictly. Null if none was found.
    #[schema(required)]
    widened: Option<RequestView>,
    /// An example request that the update treats more strictly. Null if none was found.
    #[schema(required)]
    narrowed: Option<RequestView>,
}

/// A request that the two versions of limits decide differently.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsCounterexample)]
pub(crate) struct RequestView {
    service: String,
    operation_id: String,
    amount_units: u64,
    /// The host of the page to fetch. Null for an operation that fetches no page.
    #[schema(required)]
    hostname: Option<String>,
    /// The amount already spent on the service, in micro-USDC.
    spent_units: u64,
    /// The number of calls already paid.
    paid_calls: u64,
    /// Whether the agent already paid the same call.
    repeated: bool,
    /// The seconds since the amount, the calls or the same call were paid.
    spent_seconds_ago: u64,
    /// Whether the agent never paid the payee.
    new_payee: bool,
    /// The price of the agent's last calls of the operation. Null if the rules compare with no such price.
    #[schema(required)]
    usual_price_units: Option<u64>,
    /// The time of the request. Null if the request is decided differently now.
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
    /// The first failed check. Null if the request is allowed.
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
    /// Whether the range has more decisions than were tested: the newest 5,000 for a preview, the oldest 20,000 for a
    /// shadow policy.
    partial: bool,
    /// The number of tested decisions.
    decisions: u64,
    /// The number of decisions that could not be tested. Their recorded results are kept.
    untested: u64,
    /// The sum of the authorized payments among the tested decisions, in micro-USDC.
    authorized_units: u64,
    /// The differences if nobody approves the payments for which only the proposed limits require approval.
    if_declined: DifferencesView,
    /// The differences if a user immediately approves the payments for which only the proposed limits require approval.
    if_approved: DifferencesView,
}

/// The differences between two sets of decisions. A preview compares the current limits with the proposed limits on the
/// same requests. A backtest and a shadow policy compare recorded decisions with the proposed limits.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsDifferences)]
pub(crate) struct DifferencesView {
    /// The changed decisions, grouped by old result, new result and reason.
    flips: Vec<FlipView>,
    /// The number of blocked or escalated payments with the same result but a different reason.
    other_reasons: u64,
    /// The sum of the payments that only the recorded (or current) limits allow, in micro-USDC.
    saved_units: u64,
    /// The sum of the payments that only the proposed limits allow, in micro-USDC.
    added_units: u64,
}

/// A group of changed decisions.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsFlips)]
pub(crate) struct FlipView {
    /// The previous result, `allow`, `block` or `escalate`: in a preview the result with the current limits, otherwise
    /// the recorded result.
    recorded: &'static str,
    /// The result with the proposed limits.
    tested: &'static str,
    /// Why the proposed limits block or escalate the payment. If the proposed limits allow the payment, why the payment
    /// was blocked or escalated before.
    reason: String,
    count: u64,
    /// The sum of the group's amounts, in micro-USDC.
    amount_units: u64,
    example: ExampleView,
}

/// The newest decision in the group.
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
    pub(crate) fn new(preview: EditPreview) -> Self {
        Self {
            agent_id: preview.agent.to_string(),
            preview: true,
            comparison: preview.comparison.into(),
            tested: TestedView::new(preview.result, preview.from, preview.is_partial),
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
    fn from(example: Counterexample) -> Self {
        Self {
            service: example.service.to_string(),
            operation_id: example.operation.to_string(),
            amount_units: example.amount.units(),
            hostname: example.host,
            spent_units: example.history.spent.units(),
            paid_calls: example.history.calls,
            repeated: example.history.is_repeated,
            spent_seconds_ago: example.history.ago.secs(),
            new_payee: example.history.is_new_payee,
            usual_price_units: example.history.usual_price.map(Amount::units),
            at: example.at.map(|at| at.to_string()),
            before: example.before.into(),
            after: example.now.into(),
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

impl From<Differences> for DifferencesView {
    fn from(differences: Differences) -> Self {
        let flips = differences.flips.into_iter().map(|(kind, flips)| FlipView {
            recorded: kind.recorded.name(),
            tested: kind.tested.name(),
            reason: kind.reason,
            count: flips.count,
            amount_units: flips.amount,
            example: ExampleView {
                agent_id: flips.example.agent.to_string(),
                transaction_id: flips.example.transaction.to_string(),
                service_id: flips.example.service.to_string(),
                at: flips.example.at.to_string(),
                amount_units: flips.example.amount.units(),
            },
        });
        Self {
            flips: flips.collect(),
            other_reasons: differences.other_reasons,
            saved_units: differences.saved,
            added_units: differences.added,
        }
    }
}
