//! Operations on one decision about a payment: read and replay it.

use crate::agents::owned::KnownAgent;
use crate::caller::Caller;
use crate::state::People;
use purser_domain::{
    AgentId, CallDescription, DecisionIds, ErrorKind, InputDocuments, InputVersions, LoggedDecision, RecordedDecision,
    ReplayDifference, Result, Settlement, SettlementId, StatedDecision, TransactionId, replay_decision,
};
use purser_log::{FoundStatement, MissingReason, PaymentStatements, unverified_payload};
use purser_store::StoredInputs;
use uuid::Uuid;

pub(crate) enum ReplayResult {
    Made {
        versions: InputVersions,
        policy_version: Option<u64>,
        /// The differences between the replay and the record; empty if the replay decides the same.
        differences: Vec<ReplayDifference>,
    },
    /// The decision cannot be evaluated again, for this reason.
    Impossible(&'static str),
}

#[derive(Default)]
pub(crate) struct DecisionStatements {
    /// The signed statement of the decision; `None` if the log contains no such statement.
    pub(crate) statement: Option<FoundStatement>,
    /// `None` if the log contains the decision's statement.
    pub(crate) missing_reason: Option<MissingReason>,
    pub(crate) differing: Vec<&'static str>,
    /// The statements about the decision's payment or approval.
    pub(crate) payment: PaymentStatements,
}

fn decision_ids(decision: &LoggedDecision) -> Option<DecisionIds> {
    match decision {
        LoggedDecision::Allowed(settlement) => DecisionIds::from_settlement(settlement),
        LoggedDecision::Refused(denial) => Some(DecisionIds::from_denial(denial)),
        LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
    }
}

impl People {
    /// Reads the call as the agent described it. Returns `None` for a withdrawal and for a reverted confirmation.
    pub(crate) async fn read_decision_call(&self, decision: &LoggedDecision) -> Result<Option<CallDescription>> {
        match decision {
            LoggedDecision::Allowed(settlement) => self.read_settlement_call(settlement).await,
            LoggedDecision::Refused(denial) => Ok(Some(denial.call.clone())),
            LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => Ok(None),
        }
    }

    pub(crate) async fn read_settlement_call(&self, settlement: &Settlement) -> Result<Option<CallDescription>> {
        let mut calls = self
            .ledger
            .read_call_descriptions(std::slice::from_ref(settlement))
            .await?;
        Ok(calls.remove(&settlement.id()))
    }

    /// Reads an agent's settlement, if the user owned the agent when the settlement was authorized.
    pub(crate) async fn read_own_settlement(
        &self,
        user: &Caller,
        agent: AgentId,
        id: SettlementId,
    ) -> Result<(KnownAgent, Settlement)> {
        let agent = self.find_current_or_former_agent(user, agent).await?;
        let settlement = self
            .ledger
            .read_settlement_by_id(agent.id, id)
            .await?
            .ok_or(ErrorKind::NotFound)?;
        Ok((
            KnownAgent::for_owner_after_transfers(user, &agent, settlement.terms.transfers)?,
            settlement,
        ))
    }

    /// Reads a decision about the agent by transaction id, if the user owned the agent at that time.
    pub(crate) async fn read_own_decision(
        &self,
        user: &Caller,
        agent: AgentId,
        id: TransactionId,
    ) -> Result<(KnownAgent, LoggedDecision)> {
        let agent = self.find_current_or_former_agent(user, agent).await?;
        let decision = self.read_decision(agent.id, id).await?;
        Ok((
            KnownAgent::for_owner_after_transfers(user, &agent, decision.transfer_count())?,
            decision,
        ))
    }

    pub(crate) async fn find_decision_in_history(&self, user: &Caller, id: TransactionId) -> Result<LoggedDecision> {
        let entry = self.usage.find_entry(&user.id, id.uuid()).await?;
        let entry = entry.filter(|entry| entry.transaction == id);
        let agent = entry.ok_or(ErrorKind::NotFound)?.agent;
        let (_, decision) = self.read_own_decision(user, agent, id).await?;
        Ok(decision)
    }

    /// Reads a decision. Finds an allowed one by the time in `id`: settlements have no index by this id.
    async fn read_decision(&self, agent: AgentId, id: TransactionId) -> Result<LoggedDecision> {
        let (recorded, allowed) = tokio::try_join!(
            self.ledger.find_recorded_decision(agent, id),
            self.find_settlement(agent, id)
        )?;
        let decision = recorded.or(allowed.map(LoggedDecision::from_settlement));
        decision.ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(crate) async fn replay_decision(&self, decision: &LoggedDecision) -> Result<ReplayResult> {
        let Some(recorded) = self.find_recorded_decision(decision).await? else {
            return Ok(ReplayResult::Impossible(
                "no policy was applied to it, or the description of its call is no longer stored",
            ));
        };
        let Some(versions) = recorded.inputs else {
            return Ok(ReplayResult::Impossible(
                "its checks were not made, or it was recorded before decisions named the versions of their inputs",
            ));
        };
        Ok(match self.read_decision_inputs(decision, &recorded).await? {
            None => ReplayResult::Impossible("a version of its inputs was replaced before versions were stored"),
            Some(inputs) => ReplayResult::Made {
                versions,
                policy_version: recorded.policy_version,
                differences: replay_decision(&recorded, &inputs.as_replay_inputs()),
            },
        })
    }

    pub(crate) async fn read_statements(&self, decision: &LoggedDecision) -> Result<DecisionStatements> {
        let Some(log) = &self.log else {
            return Ok(DecisionStatements {
                missing_reason: Some(MissingReason::NotStated),
                ..DecisionStatements::default()
            });
        };
        let id = match decision {
            LoggedDecision::Allowed(settlement) | LoggedDecision::PaidOut(settlement) => Some(settlement.id()),
            LoggedDecision::ConfirmationReverted(reverted) => Some(reverted.settlement),
            LoggedDecision::Refused(_) => None,
        };
        let settlement = match id {
            Some(id) => self.ledger.read_settlement_by_id(decision.agent_id(), id).await?,
            None => None,
        };
        let payment = match &settlement {
            Some(settlement) => log.find_payment_statements(settlement).await?,
            None => PaymentStatements {
                receipt: None,
                changes: log
                    .find_change_statements(decision.transaction_id().uuid(), decision.decided_at())
                    .await?,
            },
        };
        let statement = match decision {
            LoggedDecision::Allowed(_) | LoggedDecision::Refused(_) => {
                log.find_decision_statement(decision.transaction_id(), decision.decided_at())
                    .await?
            }
            LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => {
                payment.find_change_statement(decision.transaction_id()).cloned()
            }
        };
        let missing_reason = match &statement {
            Some(_) => None,
            None => Some(
                log.find_reason_for_missing_statement(decision.decided_at(), self.now())
                    .await?,
            ),
        };
        let of_payment = settlement.map(|settlement| payment.differing_statement_names(None, &settlement));
        let mut differing = of_payment.unwrap_or_default();
        if let Some(statement) = &statement
            && let Some(recorded) = self.find_recorded_decision(decision).await?
            && let Some(ids) = decision_ids(decision)
        {
            let stated = unverified_payload(&statement.statement).unwrap_or_default();
            let (decision, inputs) = (&recorded, None);
            let hash = StatedDecision { ids, decision, inputs }.decision_hash().to_string();
            if stated.get("decision_hash") != Some(&hash.into()) {
                differing.insert(0, "decision");
            }
        }
        Ok(DecisionStatements {
            statement,
            missing_reason,
            differing,
            payment,
        })
    }

    /// Reads the documents whose hashes the decision's statement contains. `None` if the documents are not stored.
    pub(crate) async fn read_input_documents(&self, decision: &LoggedDecision) -> Result<Option<InputDocuments>> {
        let Some(recorded) = self.find_recorded_decision(decision).await? else {
            return Ok(None);
        };
        let inputs = self.read_decision_inputs(decision, &recorded).await?;
        Ok(inputs.map(|inputs| InputDocuments::new(&inputs.as_replay_inputs(), recorded.at)))
    }

    /// Returns `None` if the decision is not about a purchase, or if the call is no longer stored.
    async fn find_recorded_decision(&self, decision: &LoggedDecision) -> Result<Option<RecordedDecision>> {
        Ok(match decision {
            LoggedDecision::Allowed(settlement) => {
                let call = self.read_settlement_call(settlement).await?;
                call.and_then(|call| RecordedDecision::from_settlement(settlement, call))
            }
            LoggedDecision::Refused(denial) => Some(RecordedDecision::from_denial(denial.clone(), self.network)),
            LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
        })
    }

    /// Returns `None` unless the versions of all inputs are recorded and stored.
    async fn read_decision_inputs(
        &self,
        decision: &LoggedDecision,
        recorded_decision: &RecordedDecision,
    ) -> Result<Option<StoredInputs>> {
        let Some((versions, service)) = recorded_decision.inputs.zip(decision.service_id()) else {
            return Ok(None);
        };
        let of = (decision.agent_id(), service);
        let policy = recorded_decision.policy_version;
        self.usage
            .read_replay_inputs(&self.ledger, &self.catalog_table, of, policy, versions)
            .await
    }

    async fn find_settlement(&self, agent: AgentId, id: TransactionId) -> Result<Option<Settlement>> {
        /// The number of settlements per read. An agent rarely makes more than four in one microsecond.
        const PAGE_SIZE: u32 = 4;
        let mut before = first_id_with_later_time(id.uuid());
        loop {
            let settlements = self.ledger.read_settlements(agent, Some(before), PAGE_SIZE).await?;
            let Some(last) = settlements.last().map(|settlement| settlement.id().uuid()) else {
                return Ok(None);
            };
            let found = settlements
                .into_iter()
                .find(|settlement| settlement.terms.transaction == id);
            if found.is_some() || !has_same_timestamp(last, id.uuid()) {
                return Ok(found);
            }
            before = last;
        }
    }
}

/// The bits of a `UUIDv7` that differ between ids with the same time.
const RANDOM_HALF: u128 = (1 << 64) - 1;

const fn first_id_with_later_time(id: Uuid) -> Uuid {
    Uuid::from_u128((id.as_u128() | RANDOM_HALF).saturating_add(1))
}

const fn has_same_timestamp(id: Uuid, other: Uuid) -> bool {
    id.as_u128() | RANDOM_HALF == other.as_u128() | RANDOM_HALF
}

#[cfg(test)]
mod tests {
    use super::*;
    use purser_domain::Timestamp;

    #[test]
    fn ids_of_adjacent_microseconds_are_distinguished() {
        let at = |micros, random| {
            let at = Timestamp::from_micros(micros).unwrap();
            SettlementId::new_at(at, random).uuid()
        };
        let transaction = TransactionId::new_at(Timestamp::from_micros(1_795_223_340_000_999).unwrap(), [7; 8]).uuid();
        let after = first_id_with_later_time(transaction);
        for random in [[0; 8], [7; 8], [0xff; 8]] {
            let same = at(1_795_223_340_000_999, random);
            assert!(has_same_timestamp(same, transaction) && same < after);
            for other in [1_795_223_340_000_998, 1_795_223_340_001_000] {
                assert!(!has_same_timestamp(at(other, random), transaction));
            }
            assert!(at(1_795_223_340_001_000, random) >= after);
        }
        assert_eq!(first_id_with_later_time(Uuid::max()), Uuid::max());
    }
}
