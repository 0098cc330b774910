//! Previews in the JSON API: `?preview=true` on updates of policies and rules.

use crate::agents::owned::OwnedAgent;
use crate::preview::operations::{PreviewDays, UpdatePreview};
use crate::state::People;
use axum::Json;
use axum::response::{IntoResponse, Response};
use purser_api::{FromQuery, Precondition, Query, Reply};
use purser_domain::{
    AgentId, Amount, BacktestResult, ChangedDecisionExample, ChangedDecisionKind, ChangedDecisions, CheckName,
    Comparison, Counterexample, Differences, EditReason, LimitUpdate, Rule, RuleFinding, RuleId, ServiceId, Timestamp,
    TransactionId, Verdict, rule_kind_json,
};
use serde_json::Value;
use utoipa::IntoParams;

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
    pub(crate) fn preview_days(&self) -> Option<PreviewDays> {
        self.preview.then(|| self.days.unwrap_or(PreviewDays::DEFAULT))
    }

    /// Previews the update if the query requests a preview. Otherwise, `save` saves the update and creates the response.
    pub(crate) async fn save_or_preview<F: Future<Output = Reply>>(
        self,
        people: &People,
        owned: OwnedAgent,
        if_match: Precondition,
        update: &LimitUpdate,
        save: impl FnOnce(OwnedAgent) -> F,
    ) -> Reply {
        if let Some(days) = self.preview_days() {
            let preview = people.preview_update(&owned, if_match, update, days).await?;
            return Ok(PreviewView::new(preview).into_response());
        }
        save(owned.with_reason(self.edit_reason)).await
    }
}

impl FromQuery for RequestedUpdate {
    fn from_query(query: &mut Query) -> Self {
        Self {
            preview: parse_preview_flag(query),
            days: parse_preview_days(query),
            edit_reason: parse_update_reason(query),
        }
    }
}

pub(crate) fn parse_preview_days(query: &mut Query) -> Option<PreviewDays> {
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
            preview: parse_preview_flag(query),
            edit_reason: parse_update_reason(query),
        }
    }
}

fn parse_preview_flag(query: &mut Query) -> bool {
    let is_preview = query.parse_with("preview", |text| text.parse().ok(), "must be `true` or `false`");
    is_preview.unwrap_or(false)
}

fn parse_update_reason(query: &mut Query) -> Option<EditReason> {
    let reason = query.parse_with(
        "edit_reason",
        |text| EditReason::parse_unless_blank(text).ok(),
        EditReason::FORM,
    );
    reason.flatten()
}

purser_api::views! {
    /// The changes that an update would make. Nothing was saved.
    pub(crate) struct PreviewView as EditPreview {
        pub(crate) fn new(preview: UpdatePreview);

        agent_id: AgentId = preview.agent,
        /// Always true, because nothing was saved.
        preview: bool = true,
        #[serde(flatten)]
        comparison: ComparisonView = preview.comparison.into(),
        #[serde(flatten)]
        tested: TestedView = TestedView::new(preview.result, preview.from, preview.is_partial),
        /// The findings about the agent's rules after the update.
        findings: Vec<FindingView> = preview.findings.into_iter().map(FindingView::from).collect(),
    }

    /// A finding about a rule, or about the cap per call of a service. A finding has no effect. Rules without a finding
    /// may also be useless.
    pub(crate) struct FindingView as RuleFinding {
        fn from(finding: RuleFinding);
        let id = |rule: &Option<Rule>| rule.as_ref().map(|rule| rule.id);
        let value = |rule: &Option<Rule>| rule.as_ref().map(|rule| rule_kind_json(&rule.kind));

        /// `is_covered_by` (other limits are at least as strict), `never_fires` (no payment meets the rule's
        /// conditions) or `contradicts` (the rule, alone or together with `other_rule`, blocks every payment to which
        /// both apply).
        finding: &'static str = finding.kind.name(),
        /// The id of the rule. In a preview, the id of a new rule has no meaning. Null for a finding about a service's
        /// cap per call.
        rule_id: Option<RuleId> = id(&finding.rule),
        /// The rule that the finding is about. Null for a finding about a service's cap per call.
        #[schema(value_type = Option<Object>)]
        rule: Option<Value> = value(&finding.rule),
        /// The id of the rule in `other_rule`. Null if the finding involves no other rule.
        other_rule_id: Option<RuleId> = id(&finding.other),
        /// The other rule of the finding: the rule that is at least as strict (`is_covered_by`), or the rule that
        /// blocks every payment together with `rule` (`contradicts`). Null if the finding involves no other rule.
        #[schema(value_type = Option<Object>)]
        other_rule: Option<Value> = value(&finding.other),
        /// The service whose cap per call has no effect, because a rule is at least as strict. Null for a finding about
        /// a rule.
        service_id: Option<ServiceId> = finding.service,
        /// The finding as a sentence.
        message: &'static str = finding.message,
    }

    /// A comparison of the limits before and after an update.
    pub(crate) struct ComparisonView as LimitsComparison {
        fn from(comparison: Comparison);

        /// Whether the update may allow payments that are now blocked or require approval. If so, the update requires a
        /// recent sign-in.
        widens: bool = comparison.widens,
        /// Whether the update may block or require approval for payments that are now allowed.
        narrows: bool = comparison.narrows,
        /// An example of a request that has a less strict result after the update. Null if no example was found.
        widened: Option<RequestView> = comparison.widened.map(RequestView::from),
        /// An example of a request that has a stricter result after the update. Null if no example was found.
        narrowed: Option<RequestView> = comparison.narrowed.map(RequestView::from),
    }

    /// A request that has different results under the limits before and after an update.
    pub(crate) struct RequestView as LimitsCounterexample {
        fn from(counterexample: Counterexample);

        service: String = counterexample.service.to_string(),
        operation_id: String = counterexample.operation.to_string(),
        /// The ID of the agent key that sends the request. Null if the example holds for a key that no rule names.
        key_id: Option<String> = counterexample.key.map(|key| key.to_string()),
        amount_units: u64 = counterexample.amount.units(),
        /// The host of the page to fetch. Null if the operation fetches no page.
        hostname: Option<String> = counterexample.host,
        /// The amount that the agent had already spent on the service, in micro-USDC.
        spent_units: u64 = counterexample.history.spent.units(),
        /// The number of calls that the agent had already paid.
        paid_calls: u64 = counterexample.history.calls,
        /// Whether the agent had already paid the same call.
        repeated: bool = counterexample.history.is_repeated,
        /// How many seconds before the request the agent made its earlier payments, which `spent_units`, `paid_calls`
        /// and `repeated` describe. In the example, all earlier payments were made at the same time.
        spent_seconds_ago: u64 = counterexample.history.ago.secs(),
        /// Whether the payee is new to the agent.
        new_payee: bool = counterexample.history.is_new_payee,
        /// The price in micro-USDC that the agent paid for each of its latest calls of the operation. Null if no rule
        /// compares prices with the usual price.
        usual_price_units: Option<u64> = counterexample.history.usual_price.map(Amount::units),
        /// The time of the request. Null if the example holds for the current time.
        at: Option<Timestamp> = counterexample.at,
        before: VerdictView = counterexample.before.into(),
        after: VerdictView = counterexample.now.into(),
    }

    /// The decision about the example request.
    pub(crate) struct VerdictView as LimitsVerdict {
        fn from(verdict: Verdict);

        /// The result: `allow`, `block` or `escalate`.
        result: &'static str = verdict.result.name(),
        reason: String = verdict.reason,
        /// The first check that fails. Null if the request is allowed.
        check: Option<&'static str> = verdict.check.map(CheckName::name),
    }

    /// The result of testing the proposed limits on recorded decisions.
    pub(crate) struct TestedView as TestedLimits {
        pub(crate) fn new(result: BacktestResult, from: Timestamp, is_partial: bool);

        /// The start of the tested range.
        from: Timestamp,
        /// Whether the range has more decisions than were tested. A preview tests at most the newest 5,000 decisions,
        /// and a shadow policy the newest 20,000.
        partial: bool = is_partial,
        /// The number of tested decisions.
        decisions: u64 = result.decisions,
        /// The number of decisions that could not be tested. Their recorded results are kept.
        untested: u64 = result.untested,
        /// The sum of the authorized payments among the tested decisions, in micro-USDC.
        authorized_units: u64 = result.authorized,
        /// The differences if every payment that newly requires approval is rejected. A payment newly requires approval
        /// if only the proposed limits require the approval.
        if_declined: DifferencesView = result.if_declined.into(),
        /// The differences if every payment that newly requires approval is approved immediately. A payment newly
        /// requires approval if only the proposed limits require the approval.
        if_approved: DifferencesView = result.if_approved.into(),
    }

    /// The differences between two sets of decisions. A preview compares decisions under the current limits with
    /// decisions under the proposed limits. A backtest and a shadow policy compare recorded decisions with decisions
    /// under the proposed limits.
    pub(crate) struct DifferencesView as LimitsDifferences {
        fn from(differences: Differences);
        let changed_decisions = differences.flips.into_iter().map(FlipView::from);

        /// The changed decisions, grouped by old result, new result and reason.
        flips: Vec<FlipView> = changed_decisions.collect(),
        /// The number of payments that have the same result with a different reason.
        other_reasons: u64 = differences.other_reasons,
        /// The sum of the payments, in micro-USDC, that the proposed limits no longer allow. In a preview, the current
        /// limits allow these payments. Otherwise, the recorded decisions allowed them.
        saved_units: u64 = differences.saved,
        /// The sum of the payments that only the proposed limits allow, in micro-USDC.
        added_units: u64 = differences.added,
    }

    /// A group of decisions whose result the proposed limits change. The decisions have the same old result, new result
    /// and reason.
    pub(crate) struct FlipView as LimitsFlips {
        fn from((kind, changed): (ChangedDecisionKind, ChangedDecisions));

        /// The previous result: `allow`, `block` or `escalate`. In a preview, the result under the current limits.
        /// Otherwise, the recorded result.
        recorded: &'static str = kind.recorded.name(),
        /// The result under the proposed limits: `allow`, `block` or `escalate`.
        tested: &'static str = kind.tested.name(),
        /// Why the proposed limits do not allow the payment. If the proposed limits allow the payment, why the payment
        /// was not allowed before.
        reason: String = kind.reason,
        count: u64 = changed.count,
        /// The sum of the group's amounts, in micro-USDC.
        amount_units: u64 = changed.amount,
        example: ExampleView = ExampleView::from(&changed.example),
    }

    /// A decision as an example: the newest decision of a group of changed decisions, or a decision of a rule.
    pub(crate) struct ExampleView as LimitsFlipExample {
        fn from(example: &ChangedDecisionExample);

        agent_id: AgentId = example.agent,
        transaction_id: TransactionId = example.transaction,
        service_id: ServiceId = example.service,
        at: Timestamp = example.at,
        amount_units: u64 = example.amount.units(),
    }
}

impl IntoResponse for PreviewView {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}
