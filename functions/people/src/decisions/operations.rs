//! The decision log: every allow, block and escalation of a person's agents, every reverted confirmation and every
//! payout, newest first.
//!
//! A decision's position in the log is a `UUIDv7`: the settlement's id if a payment was authorized, otherwise the
//! decision's own id. The logs of several agents can therefore be merged, and a position serves as the cursor of the
//! next page.

use crate::agents::operations::PartPlace;
use crate::agents::owned::Owned;
use crate::caller::Caller;
use crate::several::several;
use crate::span::Span;
use crate::state::People;
use purser_domain::{
    Address, AgentId, Amount, ApprovalId, CallDescription, Check, ConfirmationReverted, DecisionResult, ErrorKind,
    KeyId, LoggedDecision, LoggedRefusal, OperationSlug, Result, ServiceId, Settlement, SettlementId, Timestamp,
    TransactionId,
};
use purser_store::Ledger;
use purser_store::{Filter, Page, PageRequest, READS, page};
use std::{cmp::Reverse, collections::HashMap};
use uuid::Uuid;

/// The facts that all kinds of decisions have.
pub(crate) struct DecisionFacts<'a> {
    pub(crate) transaction: TransactionId,
    pub(crate) agent: AgentId,
    /// The key of the request; `None` for a payout, as are the other fields that only a purchase has.
    pub(crate) key: Option<KeyId>,
    pub(crate) service: Option<ServiceId>,
    pub(crate) operation: Option<&'a OperationSlug>,
    pub(crate) amount: Amount,
    pub(crate) pay_to: Address,
    pub(crate) at: Timestamp,
    /// All checks; empty for a reverted confirmation and for a payout.
    pub(crate) checks: &'a [Check],
    pub(crate) policy_version: Option<u64>,
    /// The approval that was created or used.
    pub(crate) approval: Option<ApprovalId>,
    /// The settlement that was authorized, paid out or reverted.
    pub(crate) settlement: Option<SettlementId>,
    /// The state of the settlement, for an allowed call or a payout.
    pub(crate) receipt_status: Option<&'static str>,
    /// `x402_authorized`, the error slug of the response, a rule's own reason, `confirmation_vanished`, or `paid_out`.
    pub(crate) reason: &'a str,
    /// The details of a block or an escalation.
    pub(crate) refusal: Option<&'a LoggedRefusal>,
}

impl<'a> From<&'a LoggedDecision> for DecisionFacts<'a> {
    fn from(decision: &'a LoggedDecision) -> Self {
        match decision {
            LoggedDecision::Allowed(Settlement { terms, state, .. })
            | LoggedDecision::PaidOut(Settlement { terms, state, .. }) => {
                let purchase = terms.purchase();
                Self {
                    transaction: terms.transaction,
                    agent: terms.agent,
                    key: purchase.map(|purchase| purchase.key),
                    service: purchase.map(|purchase| purchase.service),
                    operation: purchase.map(|purchase| &purchase.operation),
                    amount: terms.amount,
                    pay_to: terms.pay_to,
                    at: terms.authorized_at,
                    checks: purchase.map_or(&[], |purchase| &purchase.checks),
                    policy_version: purchase.map(|purchase| purchase.policy_version),
                    approval: purchase.and_then(|purchase| purchase.approval),
                    settlement: Some(terms.id),
                    receipt_status: Some(state.name()),
                    reason: if purchase.is_some() {
                        "x402_authorized"
                    } else {
                        "paid_out"
                    },
                    refusal: None,
                }
            }
            LoggedDecision::Refused(refusal) => Self {
                transaction: refusal.transaction,
                agent: refusal.agent,
                key: Some(refusal.key),
                service: Some(refusal.service),
                operation: refusal.operation.as_ref(),
                amount: refusal.amount,
                pay_to: refusal.pay_to,
                at: refusal.at,
                checks: &refusal.checks,
                policy_version: refusal.policy_version,
                approval: refusal.approval,
                settlement: None,
                receipt_status: None,
                reason: &refusal.reason,
                refusal: Some(refusal),
            },
            LoggedDecision::ConfirmationReverted(taken_back) => Self {
                transaction: taken_back.transaction,
                agent: taken_back.agent,
                key: taken_back.key,
                service: taken_back.service,
                operation: taken_back.operation.as_ref(),
                amount: taken_back.amount,
                pay_to: taken_back.pay_to,
                at: taken_back.at,
                checks: &[],
                policy_version: taken_back.policy_version,
                approval: None,
                settlement: Some(taken_back.settlement),
                receipt_status: None,
                reason: ConfirmationReverted::REASON,
                refusal: None,
            },
        }
    }
}

/// A filter of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecisionFilter {
    /// Only decisions about this agent.
    pub(crate) agent: Option<AgentId>,
    /// Only decisions with this result.
    pub(crate) result: Option<DecisionResult>,
    /// Only decisions for this service.
    pub(crate) service: Option<ServiceId>,
    /// Only decisions in this time range.
    pub(crate) span: Span,
}

/// The calls of decisions, as the agents described them. The call of an allow is stored in its idempotency record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(HashMap<SettlementId, CallDescription>);

impl Calls {
    /// The call of this decision; `None` for a payout, and for a reverted confirmation, since its settlement has the
    /// call.
    pub(crate) fn of<'a>(&'a self, decision: &'a LoggedDecision) -> Option<&'a CallDescription> {
        match decision {
            LoggedDecision::Allowed(settlement) => self.0.get(&settlement.id()),
            LoggedDecision::Refused(refusal) => Some(&refusal.call),
            LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
        }
    }
}

impl People {
    /// The decisions about the person's agents.
    pub(crate) async fn decisions(
        &self,
        person: &Caller,
        filter: DecisionFilter,
        slice: PageRequest<PartPlace>,
    ) -> Result<Page<LoggedDecision, PartPlace>> {
        let PartPlace { first, before } = slice.before.unwrap_or_default();
        let part = self.part_of_agents(person, filter.agent, first).await?;
        let slice = PageRequest {
            before,
            limit: slice.limit,
        };
        let page = self.decisions_of(part.agents.clone(), filter, slice).await?;
        Ok(part.page(page))
    }

    /// The decisions about these agents, which must belong to the person. Each read of the page makes one query per
    /// agent.
    pub(crate) async fn decisions_of(
        &self,
        agents: Vec<AgentId>,
        filter: DecisionFilter,
        slice: PageRequest<Uuid>,
    ) -> Result<Page<LoggedDecision, Uuid>> {
        let slice = PageRequest {
            before: filter.span.before(slice.before),
            ..slice
        };
        let keep = |decision: &LoggedDecision| {
            if filter.span.is_over(decision.place()) {
                return Filter::Stop;
            }
            Filter::by(
                filter.result.is_none_or(|result| decision.result() == result)
                    && filter.service.is_none_or(|service| decision.service() == Some(service)),
            )
        };
        let is_filtered = filter.result.is_some() || filter.service.is_some() || filter.span.from.is_some();
        let read = |before, count| {
            let (ledger, result) = (self.ledger.clone(), filter.result);
            let logs = several(agents.clone(), move |agent| {
                log(ledger.clone(), agent, result, before, count)
            });
            async move { Ok(newest(logs.await?, LoggedDecision::place, count)) }
        };
        page(
            slice,
            reads_of(agents.len()),
            is_filtered.then_some(keep),
            LoggedDecision::place,
            read,
        )
        .await
    }

    /// The calls of these decisions.
    pub(crate) async fn calls(&self, decisions: &[LoggedDecision]) -> Result<Calls> {
        let allowed = decisions.iter().filter_map(|decision| match decision {
            LoggedDecision::Allowed(settlement) => Some(settlement.clone()),
            LoggedDecision::Refused(_) | LoggedDecision::ConfirmationReverted(_) | LoggedDecision::PaidOut(_) => None,
        });
        let allowed: Vec<Settlement> = allowed.collect();
        Ok(Calls(self.ledger.calls(&allowed).await?))
    }

    /// The call that a settlement is for.
    pub(crate) async fn call_of(&self, settlement: &Settlement) -> Result<Option<CallDescription>> {
        let mut calls = self.ledger.calls(std::slice::from_ref(settlement)).await?;
        Ok(calls.remove(&settlement.id()))
    }

    /// One decision about the agent, by its transaction id.
    ///
    /// An allow is stored as its settlement, which has its own id, and no index maps one id to the other. None is
    /// needed, since the first half of both ids is the same time.
    pub(crate) async fn decision(&self, owned: &Owned, id: TransactionId) -> Result<LoggedDecision> {
        let agent = owned.agent().id;
        let (recorded, allowed) = tokio::try_join!(self.ledger.recorded_decision(agent, id), self.allowed(agent, id))?;
        let decision = recorded.or(allowed.map(LoggedDecision::of));
        decision.ok_or_else(|| ErrorKind::NotFound.into())
    }

    async fn allowed(&self, agent: AgentId, id: TransactionId) -> Result<Option<Settlement>> {
        /// The number of settlements to read at once: an agent rarely has more than one decision in the same
        /// microsecond.
        const AT_ONCE: u32 = 4;
        let mut before = first_after_instant(id.uuid());
        loop {
            let settlements = self.ledger.settlements(agent, Some(before), AT_ONCE).await?;
            let Some(last) = settlements.last().map(|settlement| settlement.id().uuid()) else {
                return Ok(None);
            };
            let found = settlements
                .into_iter()
                .find(|settlement| settlement.terms.transaction == id);
            if found.is_some() || !is_of_instant(last, id.uuid()) {
                return Ok(found);
            }
            before = last;
        }
    }
}

/// An agent's log, filtered by result. Each kind of decision has its own rows, so a few blocks among many payments are
/// found without reading the payments.
async fn log(
    ledger: Ledger,
    agent: AgentId,
    result: Option<DecisionResult>,
    before: Option<Uuid>,
    count: u32,
) -> Result<Vec<LoggedDecision>> {
    match result {
        None => ledger.decisions(agent, before, count).await,
        Some(DecisionResult::Allow | DecisionResult::Payout) => {
            let settlements = ledger.settlements(agent, before, count).await?;
            Ok(settlements.into_iter().map(LoggedDecision::of).collect())
        }
        Some(DecisionResult::Block | DecisionResult::Escalate | DecisionResult::RevertConfirmation) => {
            ledger.recorded(agent, before, count).await
        }
    }
}

/// The maximum number of reads of each agent's list for one page: fewer for more agents.
pub(crate) fn reads_of(agents: usize) -> u32 {
    let agents = u32::try_from(agents).unwrap_or(u32::MAX);
    READS.checked_div(agents).unwrap_or(READS).max(1)
}

/// The newest `count` rows of several lists. Each list contains its own newest rows, so these are the newest of all.
pub(crate) fn newest<T>(lists: Vec<Vec<T>>, place: impl Fn(&T) -> Uuid, count: u32) -> Vec<T> {
    let mut rows: Vec<T> = lists.into_iter().flatten().collect();
    rows.sort_by_key(|row| Reverse(place(row)));
    rows.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    rows
}

/// The random half of a `UUIDv7`, which distinguishes ids of the same time.
const RANDOM_HALF: u128 = (1 << 64) - 1;

/// The smallest id that is greater than all ids with the same time as this one.
const fn first_after_instant(id: Uuid) -> Uuid {
    Uuid::from_u128((id.as_u128() | RANDOM_HALF).saturating_add(1))
}

const fn is_of_instant(id: Uuid, other: Uuid) -> bool {
    id.as_u128() | RANDOM_HALF == other.as_u128() | RANDOM_HALF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_adjacent_instants_are_distinguished() {
        let at = |micros, random| {
            let at = Timestamp::from_micros(micros).unwrap();
            SettlementId::at(at, random).uuid()
        };
        let transaction = TransactionId::at(Timestamp::from_micros(1_795_223_340_000_999).unwrap(), [7; 8]).uuid();
        let after = first_after_instant(transaction);
        for random in [[0; 8], [7; 8], [0xff; 8]] {
            let same = at(1_795_223_340_000_999, random);
            assert!(is_of_instant(same, transaction) && same < after);
            for other in [1_795_223_340_000_998, 1_795_223_340_001_000] {
                assert!(!is_of_instant(at(other, random), transaction));
            }
            assert!(at(1_795_223_340_001_000, random) >= after);
        }
        assert_eq!(first_after_instant(Uuid::max()), Uuid::max());
    }

    #[test]
    fn the_newest_of_several_lists_come_first() {
        let id = |n: u128| Uuid::from_u128(n);
        let lists = vec![vec![id(9), id(3)], vec![], vec![id(7), id(5)]];
        assert_eq!(newest(lists, |id| *id, 3), [id(9), id(7), id(5)]);
    }
}
