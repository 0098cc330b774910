//! The preview of an edit in the JSON API: `?preview=true` on the edits of policies and rules.

use crate::preview::operations::{EditPreview, PreviewDays};
use axum::Json;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use purser_api::Query;
use purser_domain::{
    BacktestResult, CheckName, Comparison, Counterexample, Differences, EditReason, Result, Timestamp, Verdict,
};
use serde::Serialize;
use utoipa::ToSchema;

/// What the query of an edit asks for.
#[derive(Clone, Debug)]
pub(crate) struct AskedEdit {
    /// The days to test, if the query asks for a preview instead of the edit.
    pub(crate) preview: Option<PreviewDays>,
    /// The person's reason.
    pub(crate) reason: Option<EditReason>,
}

/// Reads `preview`, `days` and `edit_reason`.
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

/// Reads `edit_reason`, the reason of an edit without a preview.
pub(crate) fn parse_reason_query(uri: &Uri) -> Result<Option<EditReason>> {
    let mut query = Query::from_uri(uri);
    let reason = edit_reason(&mut query);
    query.finish()?;
    Ok(reason)
}

/// Reads `preview` and `edit_reason` of an act on many agents.
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

/// What an edit would change. Nothing was saved.
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

/// Two versions of limits.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsComparison)]
pub(crate) struct ComparisonView {
    /// Whether the edit may allow what is refused or asked for now. Such an edit requires a recent sign-in.
    widens: bool,
    /// Whether the edit may refuse or ask for what is allowed now.
    narrows: bool,
    /// A request that the edit treats less strictly; null if none was found.
    #[schema(required)]
    widened: Option<RequestView>,
    /// A request that the edit treats more strictly; null if none was found.
    #[schema(required)]
    narrowed: Option<RequestView>,
}

/// A request that two versions of limits decide differently.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsCounterexample)]
pub(crate) struct RequestView {
    service: String,
    operation_id: String,
    amount_units: u64,
    /// The host of the page to fetch; null for an operation that fetches none.
    #[schema(required)]
    hostname: Option<String>,
    /// The amount that was spent on the service before.
    spent_units: u64,
    /// The time since then.
    spent_seconds_ago: u64,
    before: VerdictView,
    after: VerdictView,
}

/// A decision about a request.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsVerdict)]
pub(crate) struct VerdictView {
    /// `allow`, `block` or `escalate`.
    result: &'static str,
    reason: String,
    /// The first check that failed; null if the request is allowed.
    #[schema(required)]
    check: Option<&'static str>,
}

/// What other limits would have decided.
#[derive(Serialize, ToSchema)]
#[schema(as = TestedLimits)]
pub(crate) struct TestedView {
    /// The time from which decisions were tested.
    #[schema(format = DateTime)]
    from: String,
    /// Whether there are more decisions than were tested: 5,000, the newest ones.
    partial: bool,
    /// The number of tested decisions.
    decisions: u64,
    /// The number of decisions that could not be tested, and stand as they were recorded.
    untested: u64,
    /// The sum of the tested payments that were authorized.
    authorized_units: u64,
    /// What differs if nobody approves what only the edit asks for.
    if_declined: DifferencesView,
    /// What differs if a person approves at once what only the edit asks for.
    if_approved: DifferencesView,
}

/// The differences between decisions and those of other limits. A preview compares the current with the proposed limits over
/// the same requests; a backtest and a shadow compare recorded decisions with the proposed limits.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsDifferences)]
pub(crate) struct DifferencesView {
    /// The decisions with another result, by the results and the reason.
    flips: Vec<FlipView>,
    /// The number of refusals with the same result and another reason.
    other_reasons: u64,
    /// The sum of the payments that the edit does not make.
    saved_units: u64,
    /// The sum of the payments that only the edit makes.
    added_units: u64,
}

/// Decisions that flip.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitsFlips)]
pub(crate) struct FlipView {
    /// `allow`, `block` or `escalate`: in a preview the result with the current limits, otherwise the recorded result.
    recorded: &'static str,
    /// The result with the edit.
    tested: &'static str,
    /// The reason of the edit's refusal; of a payment that the edit allows, the reason of the refusal that `recorded` is.
    reason: String,
    count: u64,
    /// The sum of their amounts.
    amount_units: u64,
    example: ExampleView,
}

/// The newest of the decisions that flip.
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
            spent_units: example.spent.units(),
            spent_seconds_ago: example.spent_ago.secs(),
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
