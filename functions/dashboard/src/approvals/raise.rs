//! Raises the limit that required an approval, and approves the payment.
//!
//! The policy or the rule is updated first, and then the approval is decided. If the second write fails, the limit
//! stays raised, and the page says so.

use crate::agents::owned::OwnedAgent;
use crate::approvals::operations::{Note, OwnApproval};
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Amount, Approval, ApprovalRequired, ApprovalStatus, CheckedRule, ErrorKind, GrantRestriction, LimitUpdate,
    PolicyChange, PolicyUpdate, Result, RuleKind, RuleUpdate, ServiceUpdate,
};
use purser_store::ApprovalDecision;

/// The limit that required the approval, and the new value for the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitToRaise {
    /// The update that raises the limit.
    update: LimitUpdate,
    /// The amount above which the limit now requires approval; `None` for every amount.
    pub(crate) from: Option<Amount>,
    /// The new threshold: the amount of the payment that waits for approval.
    pub(crate) to: Amount,
    /// The version of the record that contains the limit.
    pub(crate) version: u64,
}

impl LimitToRaise {
    /// Returns whether the limit is a rule of the agent, and not a service's policy.
    pub(crate) const fn is_rule_limit(&self) -> bool {
        matches!(self.update, LimitUpdate::Rules(_))
    }
}

#[derive(Debug)]
pub(crate) enum RaisedAndApproved {
    Both,
    /// The limit was raised, but the approval was no longer pending.
    LimitOnly(ApprovalStatus),
}

impl People {
    /// Returns the first limit that requires this approval; `None` if no update can raise the limit.
    pub(crate) async fn find_limit_to_raise(
        &self,
        owned: &OwnedAgent,
        approval: &Approval,
    ) -> Result<Option<LimitToRaise>> {
        if approval.raise.is_some() {
            return Ok(None);
        }
        let to = approval.amount;
        let increase = |update, from: Option<Amount>, version| LimitToRaise {
            update,
            from,
            to,
            version,
        };
        let Some(asking_limits) = approval.asking.first() else {
            return Ok(None);
        };
        let Some(rule) = asking_limits.rule else {
            let record = self
                .ledger
                .find_enabled_service(approval.agent, approval.service)
                .await?;
            let record = record.filter(|record| record.enabled && record.policy.require_approval_above < to);
            return Ok(record.map(|record| {
                let from = record.policy.require_approval_above;
                let change = PolicyChange {
                    enabled: None,
                    policy: PolicyUpdate {
                        require_approval_above: Some(to),
                        ..PolicyUpdate::default()
                    },
                };
                let update = LimitUpdate::Service(record.service, ServiceUpdate::Change(change));
                increase(update, Some(from), record.version)
            }));
        };
        let agent = owned.agent();
        let Some(rule) = agent.rules.iter().find(|found| found.id == rule) else {
            return Ok(None);
        };
        let RuleKind::ApprovalRequired(limit) = &rule.kind else {
            return Ok(None);
        };
        if limit.above.unwrap_or(Amount::ZERO) >= to {
            return Ok(None);
        }
        let raised = RuleKind::ApprovalRequired(ApprovalRequired {
            above: Some(to),
            ..limit.clone()
        });
        let edition = self.current_catalog().await?;
        let raised = CheckedRule::check(raised, &edition.catalog).ok();
        let update = raised.map(|raised| LimitUpdate::Rules(RuleUpdate::Replace(rule.id, raised)));
        Ok(update.map(|update| increase(update, limit.above, agent.version)))
    }

    /// Raises the limit, and then approves the payment. Both require a recent sign-in.
    pub(crate) async fn raise_limit_and_approve(
        &self,
        owned_approval: OwnApproval,
        if_match: Precondition,
        note: Option<&Note>,
    ) -> Result<RaisedAndApproved> {
        let (approval, now) = (owned_approval.approval(), self.now());
        let status = approval.status(now);
        if status != ApprovalStatus::Pending {
            let approval = approval.id;
            return Err(ErrorKind::ApprovalNotPending { approval, status }.into());
        }
        let owned = owned_approval.owned_agent();
        let Some(increase) = self.find_limit_to_raise(owned, approval).await? else {
            let version = owned.agent().version;
            return Err(ErrorKind::VersionConflict { version }.into());
        };
        Box::pin(self.save_update(owned.clone(), if_match, &increase.update)).await?;
        match Box::pin(self.decide_approval(
            owned_approval,
            ApprovalDecision::Approve,
            &GrantRestriction::default(),
            note,
        ))
        .await
        {
            Ok(_) => Ok(RaisedAndApproved::Both),
            Err(error) => match error.kind() {
                ErrorKind::ApprovalNotPending { status, .. } => Ok(RaisedAndApproved::LimitOnly(*status)),
                _ => Err(error),
            },
        }
    }
}
