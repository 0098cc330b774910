//! Checks that each decision of a run gives the same result when it is evaluated again from the stored rows.

use crate::people::agent_id;
use crate::run::Run;
use purser_domain::{LoggedDecision, Network, RecordedDecision, Settlement, replay_decision};
use std::collections::HashMap;

impl Run {
    /// Replays every decision of the run.
    pub(crate) async fn replay(&self) {
        let (ledger, usage) = self.readers();
        for agent in (0..self.agents_in_all()).map(agent_id) {
            let decisions = ledger.read_decisions(agent, None, 10_000).await.expect("the decisions");
            let allowed = decisions.iter().filter_map(|decision| match decision {
                LoggedDecision::Allowed(settlement) => Some(settlement.clone()),
                _ => None,
            });
            let allowed: Vec<Settlement> = allowed.collect();
            let calls = ledger.read_call_descriptions(&allowed).await.expect("their calls");
            let mut known = HashMap::new();
            for decision in decisions {
                let recorded = match &decision {
                    LoggedDecision::Allowed(settlement) => {
                        let call = calls[&settlement.id()].clone();
                        RecordedDecision::from_settlement(settlement, call).expect("a purchase")
                    }
                    LoggedDecision::Refused(refusal) => {
                        RecordedDecision::from_denial(refusal.clone(), Network::BaseSepolia)
                    }
                    LoggedDecision::PaidOut(_) | LoggedDecision::ConfirmationReverted(_) => continue,
                };
                let Some((versions, service)) = recorded.inputs.zip(decision.service_id()) else {
                    continue;
                };
                let place = (service, recorded.policy_version, versions.to_string());
                if !known.contains_key(&place) {
                    let of = (agent, service);
                    let inputs = usage.read_replay_inputs(ledger, &self.catalog, of, recorded.policy_version, versions);
                    known.insert(place.clone(), inputs.await.expect("its inputs"));
                }
                let transaction = decision.transaction_id();
                match &known[&place] {
                    None => self.world.complain(format!("{transaction} does not find {versions}")),
                    Some(inputs) => {
                        for difference in replay_decision(&recorded, &inputs.as_replay_inputs()) {
                            self.world
                                .complain(format!("{transaction} is replayed otherwise: {difference:?}"));
                        }
                    }
                }
            }
        }
    }
}
