//! What a decision borrows, owned by the test that asks for one.

use purser_domain::*;

pub(crate) struct Given {
    pub(crate) agent: Agent,
    pub(crate) intent: Intent,
    pub(crate) service: Service,
    pub(crate) operation: Option<Operation>,
    pub(crate) enabled: Option<EnabledService>,
    pub(crate) day: Window,
    pub(crate) budgets: Vec<(RuleId, Window)>,
    pub(crate) approval: Option<ApprovalId>,
    pub(crate) balance: Option<Amount>,
    pub(crate) at: Timestamp,
    pub(crate) eviction: Eviction,
}

impl Given {
    pub(crate) fn decide(&self) -> Decision<'_> {
        evaluate(&Facts {
            agent: &self.agent,
            intent: &self.intent,
            service: &self.service,
            operation: self.operation.as_ref(),
            network: Network::BaseSepolia,
            enabled: self.enabled.as_ref(),
            day: &self.day,
            budgets: &self.budgets,
            approval: self.approval,
            balance: self.balance,
            at: self.at,
            eviction: self.eviction,
        })
    }
}
