//! Freezes by operators, read-only: those of an owner's agents, and all of them for operators.

use crate::state::People;
use purser_domain::{Agent, AgentId, FreezeTarget, OperatorFreeze, Result};
use std::collections::BTreeMap;

impl People {
    /// The operator's freeze of each of these agents that is frozen by one.
    pub(crate) async fn freezes_of(
        &self,
        agents: impl IntoIterator<Item = &Agent>,
    ) -> Result<BTreeMap<AgentId, OperatorFreeze>> {
        let freezes = self.ledger.freezes().await?;
        let mut known: Vec<OperatorFreeze> = Vec::new();
        let mut found = BTreeMap::new();
        for agent in agents {
            let target = freezes
                .for_agent(agent)
                .and_then(|freeze| FreezeTarget::new(freeze, agent));
            let Some(target) = target else { continue };
            if !known.iter().any(|freeze| freeze.target == target) {
                known.extend(self.ledger.operator_freeze(&target).await?);
            }
            // The freeze may have ended since it was read.
            let freeze = known.iter().find(|freeze| freeze.target == target);
            found.extend(freeze.map(|freeze| (agent.id, freeze.clone())));
        }
        Ok(found)
    }

    /// All freezes, for operators only.
    pub(crate) async fn operator_freezes(&self) -> Result<Vec<OperatorFreeze>> {
        self.ledger.operator_freezes().await
    }

    /// The operator's freeze of an agent, if it is frozen by one.
    pub(crate) async fn freeze_of(&self, agent: &Agent) -> Result<Option<OperatorFreeze>> {
        Ok(self.freezes_of([agent]).await?.remove(&agent.id))
    }
}
