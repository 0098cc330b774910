//! Rejects and escalates payments of `POST /x402/authorize`, after the decision is recorded.

use crate::call::{Attempt, Authorizing};
use purser_api::Failure;
use purser_domain::{
    Agent, Approval, ApprovalId, Block, CallDescription, CatalogMatch, Check, DecisionRecord, Denial, DocumentHash,
    Duration, Error, ErrorKind, OperationSlug, Reason, Refusal, Result, RetryAt, ServiceId, Timestamp, TransactionId,
    Window, rejection_decision_hash,
};
use purser_store::{Backoff, EscalateResult, EvictResult, ServiceState};

/// How long after the start a call may evict expired payments. The Lambda function times out after 15 seconds.
const EVICTION_TIME: Duration = Duration::from_secs_u32(8);

impl Authorizing<'_> {
    /// Returns whether the sums behind a denial are current. Otherwise, the decision must be made again.
    pub(crate) async fn verify_denial_is_current(
        &self,
        denial: &Denial,
        service_state: &mut ServiceState,
        backoff: &mut Backoff,
    ) -> Result<bool> {
        for (window, _) in rejecting_windows(&denial.reason, service_state) {
            if window.may_overstate_spend(denial.at) {
                self.evict_expired_payments(window, denial.at).await?;
                return Ok(false);
            }
            let key = &self.request.idempotency_key;
            if !self
                .payments
                .ledger
                .is_window_unchanged_and_key_unused(window, key)
                .await?
            {
                backoff.wait_for_retry().await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) async fn reject_payment(
        &self,
        agent: &Agent,
        catalog_match: CatalogMatch<'_>,
        denial: Denial,
    ) -> Result<Attempt, Failure> {
        Err(self
            .store_and_return_rejection(self.decision_record_for_match(agent, catalog_match, denial)?)
            .await?
            .into())
    }

    /// Evicts all expired payments of a window. After [`EVICTION_TIME`], returns a retryable error.
    async fn evict_expired_payments(&self, window: &Window, at: Timestamp) -> Result<()> {
        let mut backoff = Backoff::new();
        loop {
            match self.payments.ledger.evict_expired(window, at).await? {
                // The decision is made again without the evicted payments.
                EvictResult::All | EvictResult::Outdated => return Ok(()),
                EvictResult::More => backoff = Backoff::new(),
                EvictResult::Superseded => backoff.wait_for_retry().await?,
            }
            if self.payments.clock.now().since(self.started) >= EVICTION_TIME {
                return Err(self.payments.request_eviction_and_build_error(window).await);
            }
        }
    }

    /// Stores an approval request, or returns the open approval of the same request.
    pub(crate) async fn escalate_payment(
        &self,
        agent: &Agent,
        catalog_match: CatalogMatch<'_>,
        denial: Denial,
        previous_approval: Option<ApprovalId>,
    ) -> Result<Attempt, Failure> {
        let expires_at = denial.at.after(self.payments.approval_ttl);
        let decision = self.decision_record_for_match(agent, catalog_match, denial)?;
        let limit = self.payments.most_open_approvals;
        let key = &self.request.idempotency_key;
        let escalated = self
            .payments
            .ledger
            .store_escalation(key, &decision, previous_approval, expires_at, limit);
        let approval = match escalated.await? {
            EscalateResult::Staged(approval) => {
                tracing::info!(
                    approval.id = %approval.id,
                    agent.id = %approval.agent,
                    amount = %approval.amount,
                    "approval.staged"
                );
                approval
            }
            EscalateResult::Joined(approval) => approval,
            EscalateResult::IdempotencyRecord(_) => return Ok(Attempt::Retry),
            EscalateResult::TooMany => {
                let reason = Reason::PolicyBlocked(Block::TooManyApprovals { limit });
                return Err(self
                    .store_and_return_rejection(DecisionRecord { reason, ..decision })
                    .await?
                    .into());
            }
        };
        self.log_rejection(&decision);
        let decision = DecisionRecord {
            approval: Some(approval.id),
            ..decision
        };
        let hash = rejection_decision_hash(&decision, self.payments.network);
        let DecisionRecord {
            transaction, checks, ..
        } = decision;
        Err(self
            .approval_pending_error(&approval, transaction, checks, Some(hash))
            .into())
    }

    /// Builds the response for an escalation, which is the same for each repeated call.
    pub(crate) fn approval_pending_error(
        &self,
        approval: &Approval,
        transaction: TransactionId,
        checks: Vec<Check>,
        hash: Option<DocumentHash>,
    ) -> Error {
        let reason = Reason::ApprovalRequired {
            approval: Some(approval.id),
            amount: approval.amount,
            threshold: approval.threshold,
            asking: approval.asking.clone(),
        };
        self.rejection_error(transaction, reason, checks, hash)
    }

    /// Records a rejection by a freeze or an unusable approval, and returns it as an error. No check is evaluated.
    pub(crate) async fn record_rejection_without_evaluation(
        &self,
        agent: &Agent,
        (service, operation): (ServiceId, OperationSlug),
        block: Block,
        approval: Option<ApprovalId>,
    ) -> Result<Error> {
        let at = self.payments.clock.now();
        let denial = Denial {
            reason: Reason::PolicyBlocked(block),
            checks: Vec::new(),
            policy_version: None,
            inputs: None,
            at,
        };
        let call = CallDescription::new(&self.request.intent, None, self.payments.network, at);
        let record = DecisionRecord {
            approval,
            ..self.new_decision_record(agent, service, Some(operation), call, denial)?
        };
        self.store_and_return_rejection(record).await
    }

    fn decision_record_for_match(
        &self,
        agent: &Agent,
        catalog_match: CatalogMatch<'_>,
        denial: Denial,
    ) -> Result<DecisionRecord> {
        let intent = &self.request.intent;
        let operation = catalog_match.operation.map(|operation| &operation.slug);
        let operation = operation.or(intent.operation.as_ref()).cloned();
        let call = CallDescription::new(intent, catalog_match.operation, self.payments.network, denial.at);
        self.new_decision_record(agent, catalog_match.service.id, operation, call, denial)
    }

    fn new_decision_record(
        &self,
        agent: &Agent,
        service: ServiceId,
        operation: Option<OperationSlug>,
        call: CallDescription,
        denial: Denial,
    ) -> Result<DecisionRecord> {
        let intent = &self.request.intent;
        Ok(DecisionRecord {
            transaction: TransactionId::new_at(denial.at, self.payments.entropy.random_bytes()?),
            agent: agent.id,
            key: self.key,
            owner: agent.owner.clone(),
            transfers: agent.transfer_count(),
            service,
            operation,
            amount: intent.offer.amount(),
            pay_to: intent.offer.pay_to(),
            fingerprint: intent.fingerprint,
            call,
            at: denial.at,
            reason: denial.reason,
            policy_version: denial.policy_version,
            inputs: denial.inputs,
            approval: None,
            checks: denial.checks,
            latency_ms: self.latency_ms(),
        })
    }

    async fn store_and_return_rejection(&self, record: DecisionRecord) -> Result<Error> {
        self.payments.ledger.add_decision(&record).await?;
        self.log_rejection(&record);
        let hash = rejection_decision_hash(&record, self.payments.network);
        let DecisionRecord {
            transaction,
            reason,
            checks,
            ..
        } = record;
        Ok(self.rejection_error(transaction, reason, checks, Some(hash)))
    }

    fn rejection_error(
        &self,
        transaction: TransactionId,
        reason: Reason,
        checks: Vec<Check>,
        hash: Option<DocumentHash>,
    ) -> Error {
        ErrorKind::Refused(Box::new(Refusal {
            transaction,
            reason,
            checks,
            hash,
            latency_ms: self.latency_ms(),
        }))
        .into()
    }

    fn log_rejection(&self, decision: &DecisionRecord) {
        let reason = &decision.reason;
        tracing::info!(
            result = reason.result().name(),
            rule = reason.triggered_rule(),
            reason = reason.reason_text(),
            transaction.id = %decision.transaction,
            agent.id = %decision.agent,
            amount = %decision.amount,
            latency_ms = self.latency_ms(),
            "payment.decided"
        );
    }
}

/// Returns the first window that rejects the call and needs more counted payments to compute the retry time.
pub(crate) fn find_window_with_inexact_retry_time<'a>(
    denial: &Denial,
    service_state: &'a mut ServiceState,
) -> Option<&'a mut Window> {
    let windows = rejecting_windows(&denial.reason, service_state).into_iter();
    let needs_more = |window: &Window, fits| !window.may_overstate_spend(denial.at) && window.needs_more_entries(fits);
    windows
        .filter(|(window, fits)| needs_more(window, *fits))
        .map(|(window, _)| window)
        .next()
}

/// Returns the windows that caused a rejection, each with the time from which the limit allows the call.
fn rejecting_windows<'a>(reason: &Reason, service_state: &'a mut ServiceState) -> Vec<(&'a mut Window, RetryAt)> {
    let window = match reason {
        Reason::DailyLimit { retry_at, .. } => Some((&mut service_state.day, *retry_at)),
        Reason::PolicyBlocked(Block::Duplicate { retry_at, .. }) => {
            Some((&mut service_state.day, RetryAt::At(*retry_at)))
        }
        Reason::PolicyBlocked(Block::PriceAboveUsual { .. }) => Some((&mut service_state.day, RetryAt::Never)),
        Reason::PolicyBlocked(
            Block::Budget { rule, retry_at, .. }
            | Block::Count { rule, retry_at, .. }
            | Block::Interval { rule, retry_at, .. },
        ) => {
            let budget = service_state.budgets.iter_mut().find(|(id, _)| id == rule);
            budget.map(|(_, window)| (window, *retry_at))
        }
        Reason::ApprovalRequired { asking, .. } => {
            let windows = service_state.budgets.iter_mut();
            let windows = windows.filter(|(id, _)| asking.iter().any(|limit| limit.rule == Some(*id)));
            return windows.map(|(_, window)| (window, RetryAt::Never)).collect();
        }
        Reason::ServiceNotEnabled { .. }
        | Reason::OperationNotEnabled { .. }
        | Reason::DomainNotAllowed { .. }
        | Reason::AmountExceedsMax { .. }
        | Reason::PerCallLimit { .. }
        | Reason::PolicyBlocked(_)
        | Reason::InsufficientBalance { .. } => None,
    };
    window.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::{Amount, AskingKind, AskingLimit, RecentPayments, RuleId, WindowPeriod, WindowScope};
    use uuid::Uuid;

    /// An approval request stores each budget's remaining amount, so all their windows must be exact.
    #[test]
    fn an_escalation_depends_on_the_windows_of_all_budgets_that_require_approval() {
        let (agent, service) = (
            purser_domain::AgentId::from_uuid(Uuid::nil()),
            ServiceId::from_uuid(Uuid::nil()),
        );
        let rule = |n| RuleId::from_uuid(Uuid::from_u128(n));
        let window = |scope| Window {
            scope,
            period: WindowPeriod::DAY,
            total: Amount::ZERO,
            version: 0,
            stamp: 0,
            watermark: Timestamp::EPOCH,
            oldest: Vec::new(),
            complete: true,
        };
        let mut state = ServiceState {
            enabled: None,
            is_unwritten: false,
            day: window(WindowScope::Day { agent, service }),
            budgets: [1, 2, 3]
                .map(|n| (rule(n), window(WindowScope::Budget { agent, rule: rule(n) })))
                .to_vec(),
            is_backfilled: true,
            recent: RecentPayments::default(),
        };
        let limit = |n| AskingLimit {
            rule: Some(rule(n)),
            above: Amount::ZERO,
            kind: AskingKind::BudgetLimit,
        };
        let reason = Reason::ApprovalRequired {
            approval: None,
            amount: Amount::ONE,
            threshold: Amount::MAX,
            asking: vec![limit(1), limit(3)],
        };
        let windows = rejecting_windows(&reason, &mut state).into_iter();
        let rules: Vec<_> = windows.map(|(window, _)| window.scope.rule_id()).collect();
        assert_eq!(rules, [Some(rule(1)), Some(rule(3))]);
    }
}
