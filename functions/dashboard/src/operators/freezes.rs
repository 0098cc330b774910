//! Reads operator freezes.

use crate::state::People;
use purser_domain::{Agent, AgentId, FreezeTarget, OperatorFreeze, Result};
use std::collections::BTreeMap;

impl People {
    /// Reads the operator freeze that affects each of the agents. An agent that no operator freeze affects is omitted.
    pub(crate) async fn read_freezes_by_agent(
        &self,
        agents: impl IntoIterator<Item = &Agent>,
    ) -> Result<BTreeMap<AgentId, OperatorFreeze>> {
        let freezes = self.ledger.read_effective_freezes().await?;
        let mut known: Vec<OperatorFreeze> = Vec::new();
        let mut found = BTreeMap::new();
        for agent in agents {
            let target = freezes
                .widest_for_agent(agent)
                .and_then(|freeze| FreezeTarget::new(freeze, agent));
            let Some(target) = target else { continue };
            if !known.iter().any(|freeze| freeze.target == target) {
                known.extend(self.ledger.read_operator_freeze(&target).await?);
            }
            // A freeze that ended after `freezes` was read is omitted.
            let freeze = known.iter().find(|freeze| freeze.target == target);
            found.extend(freeze.map(|freeze| (agent.id, freeze.clone())));
        }
        Ok(found)
    }

    pub(crate) async fn find_operator_freeze(&self, agent: &Agent) -> Result<Option<OperatorFreeze>> {
        Ok(self.read_freezes_by_agent([agent]).await?.remove(&agent.id))
    }
}
