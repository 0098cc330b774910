//! Grants temporary limit increases, and approvals that also except further payments with the same key, operation and
//! payee.
//!
//! Both widen the agent's limits, so they require a recent sign-in. The limits and the approval are written in one
//! transaction.

use crate::agents::owned::OwnedAgent;
use crate::approvals::operations::Note;
use crate::services::operations::ServiceUpdate;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Approval, ApprovalStatus, AuditChanges, AuditKind, EnabledService, Error, ErrorKind, GrantRestriction,
    LimitIncreaseRequest, Result, SpendPolicy,
};
use purser_store::{Backoff, GrantLimitIncreaseResult};

impl People {
    /// Grants a requested temporary limit increase, at most with the caps and the end in `restriction`.
    pub(crate) async fn grant_limit_increase(
        &self,
        owned: &OwnedAgent,
        approval: &Approval,
        increase: &LimitIncreaseRequest,
        restriction: &GrantRestriction,
        note: Option<&Note>,
    ) -> Result<Approval> {
        let action = Act::new(AuditKind::ApprovalApproved)
            .on_agent(approval.agent)
            .about_service(approval.service)
            .with_object(&approval.id);
        let granted = self.store_limit_increase(owned, &action, approval, increase, restriction, note);
        self.audit_rejection(owned.acting(), &action, granted).await
    }

    async fn store_limit_increase(
        &self,
        owned: &OwnedAgent,
        action: &Act,
        approval: &Approval,
        increase: &LimitIncreaseRequest,
        restriction: &GrantRestriction,
        note: Option<&Note>,
    ) -> Result<Approval> {
        let not_pending = |status| ErrorKind::ApprovalNotPending {
            approval: approval.id,
            status,
        };
        self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
        let mut backoff = Backoff::new();
        loop {
            let resolution = self.approval_resolution(owned, note);
            let status = approval.status(resolution.at);
            if status != ApprovalStatus::Pending {
                return Err(not_pending(status).into());
            }
            let current = self
                .ledger
                .find_enabled_service(approval.agent, approval.service)
                .await?;
            let current = current.ok_or(ErrorKind::NotFound)?;
            let caps = increase.restrict(restriction, &current.policy, resolution.at);
            let caps = caps.map_err(Error::invalid)?;
            let record = EnabledService {
                version: current.version.saturating_add(1),
                policy: SpendPolicy {
                    raise: Some(caps.grant(increase.asked_of.clone(), approval.id, resolution.at)),
                    ..current.policy.clone()
                },
                ..current
            };
            let mut changes = AuditChanges::between(Some(current.audit_log_fields()), Some(record.audit_log_fields()));
            let status = |status: ApprovalStatus| ("status".to_owned(), status.name().into());
            changes.before.extend([status(ApprovalStatus::Pending)]);
            changes.after.extend([status(ApprovalStatus::Approved)]);
            let entry = self.audit_entry(owned.acting(), action, changes)?;
            let granted = self
                .ledger
                .grant_limit_increase(approval, caps, &record, &resolution, &entry)
                .await?;
            let stored = self.ledger.read_approval_by_id(approval.id).await?;
            match (granted, stored) {
                (GrantLimitIncreaseResult::Conflict, _) => backoff.wait_for_retry().await?,
                (GrantLimitIncreaseResult::Done, Some(stored)) => return Ok(stored),
                (GrantLimitIncreaseResult::NotPending, Some(stored)) => {
                    return Err(not_pending(stored.status(resolution.at)).into());
                }
                (GrantLimitIncreaseResult::Done | GrantLimitIncreaseResult::NotPending, None) => {
                    return Err(ErrorKind::NotFound.into());
                }
            }
        }
    }

    /// Ends the temporary limit increase that was granted with this approval, if it is still part of the policy.
    pub(crate) async fn end_limit_increase(&self, owned: &OwnedAgent, approval: &Approval) -> Result<()> {
        let update = ServiceUpdate {
            ended_raise: Some(approval.id),
            ..ServiceUpdate::default()
        };
        let ended = self.update_service(owned, Precondition::Any, approval.service, &update);
        ended.await.map(|_| ())
    }
}
