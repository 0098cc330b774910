//! The inputs of a decision, which [`crate::evaluate`] checks.

use crate::{
    Agent, Amount, ApprovalId, AskingLimit, Category, ENGINE_VERSION, EnabledService, Eviction, Freeze, InputVersions,
    Intent, KeyId, Network, Operation, OperationSlug, ProviderRequest, RecentPayments, RuleId, Service, Target,
    Timestamp, Window,
};

/// The inputs of a decision about a payment.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationInputs<'a> {
    /// The record of the agent that requested the payment.
    pub agent: &'a Agent,
    /// The agent's payment request, with the chosen payment requirements.
    pub intent: &'a Intent,
    /// The agent key that sent the request.
    pub key: KeyId,
    /// The catalog service that the agent wants to pay.
    pub service: &'a Service,
    /// The called operation; `None` if the service lists no operation for the call.
    pub operation: Option<&'a Operation>,
    /// The time from which the operation's payee and price may be paid; `None` if they may be paid now.
    pub payee_from: Option<Timestamp>,
    /// The network of the deployment.
    pub network: Network,
    /// The agent's policy for the service; `None` if the service was never enabled.
    pub enabled: Option<&'a EnabledService>,
    /// The day window of this agent and service.
    pub day: &'a Window,
    /// The windows of the agent's rules that count payments, such as budgets.
    pub budgets: &'a [(RuleId, Window)],
    /// The agent's recent payments to the service, if the agent's rules need them.
    pub recent: &'a RecentPayments,
    /// The operators' freeze that applies to the agent. See [`crate::Freezes::widest_for_agent`].
    pub frozen_by_operators: Option<Freeze>,
    /// The approval in the request, if the approval was granted for this request.
    pub approval: Option<GivenApproval<'a>>,
    /// The wallet's balance; `None` if unknown.
    pub balance: Option<Amount>,
    /// The time that the decision records. See [`earliest_decision_time`].
    pub at: Timestamp,
    /// Whether the payment's reservation removes from the windows all expired payments that were read, or only as many as
    /// this payment needs to fit.
    pub eviction: Eviction,
}

/// An approval that a user granted for the evaluated request.
#[derive(Clone, Copy, Debug)]
pub struct GivenApproval<'a> {
    /// The id of the granted approval.
    pub id: ApprovalId,
    /// The limits that the user saw. The approval waives only these limits.
    pub asking: &'a [AskingLimit],
}

/// The inputs of a decision about a call, without the payment.
#[derive(Clone, Copy, Debug)]
pub struct CallInputs<'a> {
    /// The record of the agent that requested the call.
    pub agent: &'a Agent,
    /// The call to the provider, as the agent described it.
    pub request: &'a ProviderRequest,
    /// The page that a scrape or crawl operation fetches.
    pub target: Option<&'a Target>,
    /// The operation that the agent named in the request, if any.
    pub named: Option<&'a OperationSlug>,
    /// The service that the agent calls.
    pub service: &'a Service,
    /// The called operation; `None` if the service lists no operation for the call.
    pub operation: Option<&'a Operation>,
    /// The agent's policy for the service; `None` if the service was never enabled.
    pub enabled: Option<&'a EnabledService>,
    /// The operators' freeze that applies to the agent.
    pub frozen_by_operators: Option<Freeze>,
    /// The time of the decision.
    pub at: Timestamp,
}

impl CallInputs<'_> {
    pub(super) fn categories(&self) -> impl Iterator<Item = Category> + use<> {
        let of_operation = self.operation.map(|operation| operation.category);
        of_operation.into_iter().chain(std::iter::once(self.service.category))
    }
}

impl EvaluationInputs<'_> {
    pub(super) fn is_waived_by_approval(&self, limit: &AskingLimit) -> bool {
        self.approval.is_some_and(|approval| limit.is_among(approval.asking))
    }

    /// Returns the versions of the inputs, without the policy version.
    pub const fn input_versions(&self) -> InputVersions {
        InputVersions {
            engine: ENGINE_VERSION,
            agent: self.agent.version,
            service: self.service.version,
        }
    }
}

impl<'a> From<&EvaluationInputs<'a>> for CallInputs<'a> {
    fn from(inputs: &EvaluationInputs<'a>) -> Self {
        Self {
            agent: inputs.agent,
            request: &inputs.intent.request,
            target: inputs.intent.target.as_ref(),
            named: inputs.intent.operation.as_ref(),
            service: inputs.service,
            operation: inputs.operation,
            enabled: inputs.enabled,
            frozen_by_operators: inputs.frozen_by_operators,
            at: inputs.at,
        }
    }
}

/// Returns the time that a decision at `now` records: at or after the [`Window::earliest_recordable_time`] of every
/// window.
pub fn earliest_decision_time<'a>(now: Timestamp, windows: impl IntoIterator<Item = &'a Window>) -> Timestamp {
    windows
        .into_iter()
        .fold(now, |at, window| at.max(window.earliest_recordable_time(now)))
}
