//! Sends operator actions to the Lambda function `internal`, because `people` has no permission to perform them.

use crate::caller::Caller;
use crate::state::People;
use purser_api::{BrowserAct, CallerIds, FreezeScope, OperatorAct, OperatorResponse};
use purser_domain::{Act, AgentId, AuditKind, ErrorKind, Result, ServiceId, SettlementId};

impl People {
    /// Sends an operator's action to `internal`. Requires a recent sign-in. If the sign-in is too old, the rejection is
    /// recorded in the user's audit log. All other results are recorded in the operators' audit log.
    pub(crate) async fn send_operator_act(
        &self,
        user: &Caller,
        ids: CallerIds,
        action: OperatorAct,
    ) -> Result<OperatorResponse> {
        let internal = self.internal.as_ref().ok_or(ErrorKind::NotFound)?;
        let recent = async { self.limits.require_recent_sign_in(user.signed_in_at, self.now()) };
        self.audit_rejection(&user.acting, &audit_act(&action), recent).await?;
        internal.perform_act(ids, BrowserAct::new(&user.acting, action)).await
    }
}

/// Returns the audit row's description of the action.
fn audit_act(action: &OperatorAct) -> Act {
    let frozen = |kind, target: &FreezeScope| match target {
        FreezeScope::Agent(agent) => Act::new(kind).on_agent(AgentId::from_uuid(*agent)),
        FreezeScope::Owner(owner) => Act::new(kind).with_object(owner),
        FreezeScope::Deployment => Act::new(kind).with_object(&"deployment"),
    };
    match action {
        OperatorAct::AcceptChange(at) => Act::new(AuditKind::PaymentChangeAccepted).about_service(at.service()),
        OperatorAct::WithdrawChange(at) => Act::new(AuditKind::PaymentChangeWithdrawn).about_service(at.service()),
        OperatorAct::PinPayment { at, .. } => Act::new(AuditKind::PaymentPinned).about_service(at.service()),
        OperatorAct::RequestProbe { service_id } => {
            Act::new(AuditKind::ProbeRequested).about_service(ServiceId::from_uuid(*service_id))
        }
        OperatorAct::Freeze { target, .. } => frozen(AuditKind::FreezeSet, target),
        OperatorAct::EndFreeze { target } => frozen(AuditKind::FreezeEnded, target),
        OperatorAct::OfferAgent { agent_id, .. } => {
            Act::new(AuditKind::HandoverOffered).on_agent(AgentId::from_uuid(*agent_id))
        }
        OperatorAct::WithdrawOffer { agent_id } => {
            Act::new(AuditKind::HandoverTakenBack).on_agent(AgentId::from_uuid(*agent_id))
        }
        OperatorAct::Reconcile {
            agent_id,
            settlement_id,
        } => Act::new(AuditKind::ReconcileRequested)
            .on_agent(AgentId::from_uuid(*agent_id))
            .with_object(&SettlementId::from_uuid(*settlement_id)),
    }
}
