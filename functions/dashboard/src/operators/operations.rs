//! Sends operator actions to the Lambda function `internal`, because `people` has no permission to perform them.

use crate::caller::Caller;
use crate::state::People;
use purser_api::{BrowserAct, CallerIds, OperatorAct, OperatorResponse};
use purser_domain::{Act, AuditKind, ErrorKind, FreezeTarget, Result};

impl People {
    /// Requires a recent sign-in. The rejection of an old sign-in is in the user's audit log. A completed
    /// action is in the operators' audit log.
    pub(crate) async fn send_operator_action(
        &self,
        user: &Caller,
        ids: CallerIds,
        action: OperatorAct,
    ) -> Result<OperatorResponse> {
        let internal = self.internal.as_ref().ok_or(ErrorKind::NotFound)?;
        let recent = async { self.limits.require_recent_sign_in(user.signed_in_at, self.now()) };
        self.audit_rejection(&user.acting, &operator_audit_action(&action), recent)
            .await?;
        internal
            .invoke_operator_action(ids, BrowserAct::new(&user.acting, action))
            .await
    }
}

fn operator_audit_action(action: &OperatorAct) -> Act {
    let frozen = |kind, target: &FreezeTarget| match target {
        FreezeTarget::Agent(agent) => Act::new(kind).on_agent(*agent),
        FreezeTarget::Owner(owner) => Act::new(kind).with_object(owner),
        FreezeTarget::Deployment => Act::new(kind).with_object(&"deployment"),
    };
    match action {
        OperatorAct::AcceptChange(at) => Act::new(AuditKind::PaymentChangeAccepted).about_service(at.service),
        OperatorAct::WithdrawChange(at) => Act::new(AuditKind::PaymentChangeWithdrawn).about_service(at.service),
        OperatorAct::PinPayment { at, .. } => Act::new(AuditKind::PaymentPinned).about_service(at.service),
        OperatorAct::RequestProbe { service_id } => Act::new(AuditKind::ProbeRequested).about_service(*service_id),
        OperatorAct::Freeze { target, .. } => frozen(AuditKind::FreezeSet, target),
        OperatorAct::EndFreeze { target } => frozen(AuditKind::FreezeEnded, target),
        OperatorAct::OfferAgent { agent_id, .. } => Act::new(AuditKind::HandoverOffered).on_agent(*agent_id),
        OperatorAct::WithdrawOffer { agent_id } => Act::new(AuditKind::HandoverTakenBack).on_agent(*agent_id),
        OperatorAct::Reconcile {
            agent_id,
            settlement_id,
        } => Act::new(AuditKind::ReconcileRequested)
            .on_agent(*agent_id)
            .with_object(settlement_id),
    }
}
