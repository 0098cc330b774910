//! Grants and ends temporary limit increases.
//!
//! A grant widens the agent's policy, so it requires a recent sign-in. The policy and the approval are written in one
//! transaction.

use crate::agents::owned::OwnedAgent;
use crate::approvals::operations::Note;
use crate::services::operations::ServiceEdit;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Approval, ApprovalStatus, AuditChanges, AuditKind, EnabledService, ErrorKind, RaiseRequest, Result,
    SpendPolicy,
};
use purser_store::{Backoff, RaiseGranted};

impl People {
    /// Grants the temporary limit increase that a pending approval requests.
    pub(crate) async fn grant_raise(
        &self,
        owned: &OwnedAgent,
        approval: &Approval,
        raise: &RaiseRequest,
        note: Option<&Note>,
    ) -> Result<Approval> {
        let act = Act::new(AuditKind::ApprovalApproved)
            .on(approval.agent)
            .about(approval.service)
            .with(&approval.id);
        let granted = self.store_limit_increase(owned, &act, approval, raise, note);
        self.audit_rejection(owned.acting(), &act, granted).await
    }

    async fn store_limit_increase(
        &self,
        owned: &OwnedAgent,
        act: &Act,
        approval: &Approval,
        raise: &RaiseRequest,
        note: Option<&Note>,
    ) -> Result<Approval> {
        let not_pending = |status| ErrorKind::ApprovalNotPending {
            approval: approval.id,
            status,
        };
        self.limits.recently(owned.signed_in_at(), self.now())?;
        let mut backoff = Backoff::new();
        loop {
            let ruling = self.ruling(owned, note);
            let status = approval.status(ruling.at);
            if status != ApprovalStatus::Pending {
                return Err(not_pending(status).into());
            }
            let present = self
                .ledger
                .find_enabled_service(approval.agent, approval.service)
                .await?;
            let present = present.ok_or(ErrorKind::NotFound)?;
            let record = EnabledService {
                version: present.version.saturating_add(1),
                policy: SpendPolicy {
                    raise: Some(raise.grant(approval.id, ruling.at)),
                    ..present.policy.clone()
                },
                ..present
            };
            let mut changes = AuditChanges::between(Some(present.audit_members()), Some(record.audit_members()));
            let status = |status: ApprovalStatus| ("status".to_owned(), status.name().into());
            changes.before.extend([status(ApprovalStatus::Pending)]);
            changes.after.extend([status(ApprovalStatus::Approved)]);
            let entry = self.entry(owned.acting(), act, changes)?;
            let granted = self.ledger.grant_raise(approval, &record, &ruling, &entry).await?;
            let stored = self.ledger.approval(approval.id).await?;
            match (granted, stored) {
                (RaiseGranted::Conflict, _) => backoff.wait().await?,
                (RaiseGranted::Done, Some(stored)) => return Ok(stored),
                (RaiseGranted::NotPending, Some(stored)) => return Err(not_pending(stored.status(ruling.at)).into()),
                (RaiseGranted::Done | RaiseGranted::NotPending, None) => return Err(ErrorKind::NotFound.into()),
            }
        }
    }

    /// Ends the temporary limit increase that was granted with this approval, if it is still part of the policy.
    pub(crate) async fn end_raise(&self, owned: &OwnedAgent, approval: &Approval) -> Result<()> {
        let edit = ServiceEdit {
            ended_raise: Some(approval.id),
            ..ServiceEdit::default()
        };
        let ended = self.edit_service(owned, Precondition::Any, approval.service, &edit);
        ended.await.map(|_| ())
    }
}
