//! The law of replays: each decision of a run, evaluated again from what is stored at its end, is the same.

use crate::people::agent_id;
use crate::plan::AGENTS;
use crate::run::Run;
use purser_domain::{LoggedDecision, Network, RecordedDecision, replay};
use std::collections::HashMap;

impl Run {
    /// Replays every decision. A decision that names its inputs must find them.
    pub(crate) async fn replay(&self) {
        let (ledger, usage) = self.readers();
        for agent in (0..AGENTS).map(agent_id) {
            let decisions = ledger.decisions(agent, None, 10_000).await.expect("the decisions");
            for decision in decisions {
                let recorded = match &decision {
                    LoggedDecision::Allowed(settlement) => {
                        let calls = ledger.calls(std::slice::from_ref(settlement)).await;
                        let mut calls: HashMap<_, _> = calls.expect("its call");
                        let call = calls.remove(&settlement.id()).expect("its call");
                        RecordedDecision::of_settlement(settlement, call).expect("a purchase")
                    }
                    LoggedDecision::Refused(refusal) => {
                        RecordedDecision::of_refusal(refusal.clone(), Network::BaseSepolia)
                    }
                    LoggedDecision::PaidOut(_) | LoggedDecision::ConfirmationReverted(_) => continue,
                };
                let Some((versions, service)) = recorded.inputs.zip(decision.service()) else {
                    continue;
                };
                let of = (agent, service);
                let inputs = usage.inputs(ledger, &self.catalog, of, recorded.policy_version, versions);
                let transaction = decision.transaction();
                match inputs.await.expect("its inputs") {
                    None => self.world.complain(format!("{transaction} does not find {versions}")),
                    Some(inputs) => {
                        for difference in replay(&recorded, &inputs.as_inputs()) {
                            self.world
                                .complain(format!("{transaction} is replayed otherwise: {difference:?}"));
                        }
                    }
                }
            }
        }
    }
}
