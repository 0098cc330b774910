//! Raising the limit that asked for an approval, together with the approval.
//!
//! These are two writes: first the edit of the policy or the rule, then the approval. If the second fails, the limit
//! stays raised, and the person is told so.

use crate::agents::owned::OwnedAgent;
use crate::approvals::operations::{Note, OwnApproval};
use crate::rules::operations::CheckedRule;
use crate::services::operations::ServiceEdit;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{Amount, Approval, ApprovalStatus, ErrorKind, PolicyEdit, Result, RuleId, RuleKind, ServiceId};
use purser_store::ApprovalDecision;

/// The limit that asked for an approval, and the amount from which it no longer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raise {
    limit: AskingLimit,
    /// The amount above which it asks now; `None` if it asks at any amount.
    pub(crate) from: Option<Amount>,
    /// The amount above which it would ask: that of the approval.
    pub(crate) to: Amount,
    /// The version of the record that has the limit.
    pub(crate) version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AskingLimit {
    /// The approval threshold of the service's policy.
    Policy(ServiceId),
    /// A rule, as it would be.
    Rule(RuleId, CheckedRule),
}

impl Raise {
    /// Whether the limit is a rule of the agent, and not the policy of one service.
    pub(crate) const fn is_of_rule(&self) -> bool {
        matches!(self.limit, AskingLimit::Rule(..))
    }
}

/// The result of raising a limit and approving.
#[derive(Debug)]
pub(crate) enum RaisedAndApproved {
    Both,
    /// The limit is raised, but the approval was no longer pending.
    LimitOnly(ApprovalStatus),
}

impl People {
    /// The limit that asks for this approval now. `None` if none does any more, if a rule can't be edited because it
    /// names a service that has left the catalog, or if the approval is a request for a raise itself.
    pub(crate) async fn raise_of(&self, owned: &OwnedAgent, approval: &Approval) -> Result<Option<Raise>> {
        if approval.raise.is_some() {
            return Ok(None);
        }
        let to = approval.amount;
        let raise = |limit, from: Option<Amount>, version| Raise {
            limit,
            from,
            to,
            version,
        };
        let Some(asking) = approval.rule else {
            let record = self
                .ledger
                .find_enabled_service(approval.agent, approval.service)
                .await?;
            let record = record.filter(|record| record.enabled && record.policy.require_approval_above < to);
            return Ok(record.map(|record| {
                let from = record.policy.require_approval_above;
                raise(AskingLimit::Policy(record.service), Some(from), record.version)
            }));
        };
        let agent = owned.agent();
        let Some(rule) = agent.rules.iter().find(|rule| rule.id == asking.id) else {
            return Ok(None);
        };
        let RuleKind::ApprovalRequired {
            services,
            categories,
            above,
        } = &rule.kind
        else {
            return Ok(None);
        };
        if above.unwrap_or(Amount::ZERO) >= to {
            return Ok(None);
        }
        let raised = RuleKind::ApprovalRequired {
            services: services.clone(),
            categories: categories.clone(),
            above: Some(to),
        };
        let edition = self.catalog().await?;
        let raised = CheckedRule::check(raised, &edition.catalog).ok();
        Ok(raised.map(|raised| raise(AskingLimit::Rule(rule.id, raised), *above, agent.version)))
    }

    /// Raises the limit that asked, if its record has the version `if_match`, and then approves. Both require a recent
    /// sign-in. Each edit is boxed, since the state of all of them together is larger than a thread's stack bears in an
    /// unoptimized build.
    pub(crate) async fn approve_and_raise(
        &self,
        own: OwnApproval,
        if_match: Precondition,
        note: Option<&Note>,
    ) -> Result<RaisedAndApproved> {
        let (approval, now) = (own.approval(), self.now());
        let status = approval.status(now);
        if status != ApprovalStatus::Pending {
            let approval = approval.id;
            return Err(ErrorKind::ApprovalNotPending { approval, status }.into());
        }
        let owned = own.agent_with_owner();
        let Some(raise) = self.raise_of(owned, approval).await? else {
            let version = owned.agent().version;
            return Err(ErrorKind::VersionConflict { version }.into());
        };
        match &raise.limit {
            AskingLimit::Policy(service) => {
                let edit = ServiceEdit {
                    policy: PolicyEdit {
                        require_approval_above: Some(raise.to),
                        ..PolicyEdit::default()
                    },
                    ..ServiceEdit::default()
                };
                Box::pin(self.edit_service(owned, if_match, *service, &edit)).await?;
            }
            AskingLimit::Rule(id, rule) => {
                Box::pin(self.replace_rule(owned.clone(), if_match, *id, rule)).await?;
            }
        }
        match Box::pin(self.decide_approval(own, ApprovalDecision::Approve, note)).await {
            Ok(_) => Ok(RaisedAndApproved::Both),
            Err(error) => match error.kind() {
                ErrorKind::ApprovalNotPending { status, .. } => Ok(RaisedAndApproved::LimitOnly(*status)),
                _ => Err(error),
            },
        }
    }
}
