//! Grants temporary limit increases, and approves payments with an exception. Further payments with the same
//! key, operation and payee then need no such approval, up to a maximum amount and until an end time.
//!
//! Both widen the agent's limits, so they require a recent sign-in. The limits and the approval are written in one
//! transaction.

use crate::agents::owned::OwnedAgent;
use crate::approvals::api::AlwaysBody;
use crate::approvals::operations::{ApprovalContext, Note, OwnApproval, approval_action};
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, Agent, Approval, ApprovalStatus, AuditChanges, AuditKind, EnabledService, Error, ErrorKind, GrantRestriction,
    LimitIncreaseRequest, Result, RuleKind, ServiceUpdate,
};
use purser_store::{Backoff, GrantResult};

impl People {
    /// Grants a requested temporary limit increase. `restriction` can set lower caps and an earlier end.
    pub(crate) async fn grant_limit_increase(
        &self,
        owned: &OwnedAgent,
        approval: &Approval,
        increase: &LimitIncreaseRequest,
        restriction: &GrantRestriction,
        note: Option<&Note>,
    ) -> Result<Approval> {
        let action = approval_action(AuditKind::ApprovalApproved, approval);
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
                policy: current.policy.clone().with_increase(caps.grant(
                    increase.asked_of.clone(),
                    approval.id,
                    resolution.at,
                )),
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
                (GrantResult::Conflict, _) => backoff.wait_for_retry().await?,
                (GrantResult::Done, Some(stored)) => return Ok(stored),
                (GrantResult::NotPending, Some(stored)) => {
                    return Err(not_pending(stored.status(resolution.at)).into());
                }
                (GrantResult::Done | GrantResult::NotPending, None) => {
                    return Err(ErrorKind::NotFound.into());
                }
            }
        }
    }

    /// Approves a pending payment, and adds a rule that excepts further payments to the payee from approvals, if the
    /// agent has the version `if_match`. If an earlier request with the same bounds has done both, changes nothing.
    pub(crate) async fn approve_always(
        &self,
        owned_approval: OwnApproval,
        if_match: Precondition,
        always: &AlwaysBody,
        note: Option<&Note>,
    ) -> Result<ApprovalContext> {
        let (owned, approval) = (owned_approval.owned_agent(), owned_approval.approval());
        let action = approval_action(AuditKind::ApprovalApproved, approval);
        let resolution = self.approval_resolution(owned, note);
        let status = approval.status(resolution.at);
        let edition = self.current_catalog().await?;
        let service = edition.catalog.find_by_id(approval.service);
        let rule = service.map(|service| {
            let slug = service.slug.clone();
            approval.to_exception(slug, always.max_amount_units, always.until, resolution.at)
        });
        if status != ApprovalStatus::Pending {
            let is_stored = |rule: &RuleKind| owned.agent().rules.iter().any(|stored| stored.kind == *rule);
            let is_approved = matches!(status, ApprovalStatus::Approved | ApprovalStatus::Executed);
            if is_approved && matches!(&rule, Some(Ok(rule)) if is_stored(rule)) {
                return self.read_approval_context(owned_approval).await;
            }
            let approval = approval.id;
            return Err(ErrorKind::ApprovalNotPending { approval, status }.into());
        }
        let rule = rule.ok_or(ErrorKind::NotFound)?.map_err(Error::invalid)?;
        let id = self.new_rule_id()?;
        let add = |agent: Agent| Ok(agent.with_exception(id, rule.clone(), resolution.at)?);
        let approved = Some((approval, &resolution));
        let stored = async {
            // The user must have signed in recently, because the approved amount may be large.
            self.limits
                .require_recent_sign_in(owned.signed_in_at(), resolution.at)?;
            self.store_agent_update(owned.clone(), if_match, &action, approved, add)
                .await
        };
        let owned = self.audit_rejection(owned.acting(), &action, stored).await?;
        let approval = self.ledger.read_approval_by_id(approval.id).await?;
        self.load_approval_context(owned, approval.ok_or(ErrorKind::NotFound)?)
            .await
    }

    pub(crate) async fn end_limit_increase(&self, owned: &OwnedAgent, approval: &Approval) -> Result<()> {
        let update = ServiceUpdate::EndIncrease(approval.id);
        let ended = self.save_service(owned, Precondition::Any, approval.service, &update);
        ended.await.map(|_| ())
    }
}
