//! Reads the decisions, payments and inputs that a backtest needs. A payment's provider call takes one read, so the
//! provider call is read only if a limit depends on the provider call.

use crate::{
    catalog::table::CatalogTable,
    codec::ledger::Ledger,
    payments::decision::LogRange,
    usage::{table::UsageTable, versions::StoredInputs},
};
use purser_domain::{
    Agent, AgentId, ApprovalId, Backtest, BacktestDecision, BacktestResult, CallDescription, Duration, InputVersions,
    LoggedDecision, Network, PastPayment, ProposedLimits, RecordedDecision, Result, ServiceId, Settlement,
    SettlementId, Timestamp, TransactionId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The maximum number of different decision inputs (combinations of versions) that one backtest reads, at three read
/// units each.
const MAX_INPUTS: usize = 500;

/// The number of rows per read: about a megabyte, which is a page of a DynamoDB query.
const ROWS: u32 = 1_000;

/// Reads a backtest's data, and caches the inputs of decisions.
pub struct BacktestReads<'a> {
    usage: &'a UsageTable,
    ledger: &'a Ledger,
    catalog: &'a CatalogTable,
    network: Network,
    inputs: BTreeMap<Versions, Option<StoredInputs>>,
    calls_left: usize,
}

/// The service and the versions of a decision's inputs. Decisions with equal values share cached inputs.
type Versions = (ServiceId, Option<u64>, InputVersions);

/// The newest decisions about an agent's payments in a time range.
pub struct NewestDecisions {
    /// The decisions, newest first.
    pub decisions: Vec<LoggedDecision>,
    /// The start of the time range that was read.
    pub from: Timestamp,
    /// Whether the requested time range has more decisions than were read.
    pub is_partial: bool,
}

impl Ledger {
    /// Reads up to `max_decisions` of an agent's newest decisions at or after `from` and before `to`, until the
    /// deadline.
    pub async fn read_newest_decisions(
        &self,
        agent: AgentId,
        (mut from, to): (Timestamp, Timestamp),
        max_decisions: usize,
        is_past_deadline: impl Fn() -> bool,
    ) -> Result<NewestDecisions> {
        let (mut decisions, mut rest) = (Vec::new(), Some(LogRange::new(from, to, true)));
        while let Some(range) = rest.filter(|_| decisions.len() < max_decisions && !is_past_deadline()) {
            let page = self.read_decisions_between(agent, range, ROWS).await?;
            decisions.extend(page.decisions);
            rest = page.rest;
        }
        let is_partial = rest.is_some() || decisions.len() > max_decisions;
        decisions.truncate(max_decisions);
        if let (true, Some(oldest)) = (is_partial, decisions.last()) {
            from = oldest.decided_at();
        }
        Ok(NewestDecisions {
            decisions,
            from,
            is_partial,
        })
    }
}

impl<'a> BacktestReads<'a> {
    /// Creates the reader of a backtest's data. The reader reads at most `calls` provider calls, at one read unit each.
    pub const fn new(
        usage: &'a UsageTable,
        ledger: &'a Ledger,
        catalog: &'a CatalogTable,
        network: Network,
        calls: usize,
    ) -> Self {
        Self {
            usage,
            ledger,
            catalog,
            network,
            inputs: BTreeMap::new(),
            calls_left: calls,
        }
    }

    /// Tests an agent's decisions at or after `from` and before `to`, oldest first, until about `max_payments`
    /// decisions are tested or the deadline passes. Returns whether there are more decisions to test.
    pub async fn test_agent_decisions(
        &mut self,
        agent: &Agent,
        proposed_limits: ProposedLimits,
        (from, to): (Timestamp, Timestamp),
        max_payments: usize,
        is_past_deadline: impl Fn() -> bool,
    ) -> Result<(BacktestResult, bool)> {
        let since = self.usage.read_ownership_start(agent).await?;
        let from = from.max(since);
        let mut backtest = Backtest::new(proposed_limits);
        let is_partial = self
            .add_earlier_payments_to_windows(&mut backtest, agent, (since, from), max_payments)
            .await?;
        let (mut count, mut rest) = (0_usize, Some(LogRange::new(from, to, false)));
        while let Some(range) = rest.filter(|_| count < max_payments && !is_past_deadline()) {
            let page = self.ledger.read_decisions_between(agent.id, range, ROWS).await?;
            count = count.saturating_add(page.decisions.len());
            rest = page.rest;
            self.test_decisions(&mut backtest, page.decisions).await?;
        }
        Ok((backtest.result_so_far(), is_partial || rest.is_some()))
    }

    /// Tests up to `max_decisions` of an agent's newest decisions at or after `from` and before `to`, until the
    /// deadline. Returns the tested range, and whether there are more decisions.
    pub async fn test_newest_decisions(
        &mut self,
        backtest: &mut Backtest,
        agent: &Agent,
        (from, to): (Timestamp, Timestamp),
        max_decisions: usize,
        is_past_deadline: impl Fn() -> bool,
    ) -> Result<(Timestamp, Timestamp, bool)> {
        let since = self.usage.read_ownership_start(agent).await?;
        let range = (from.max(since).min(to), to);
        let read = self
            .ledger
            .read_newest_decisions(agent.id, range, max_decisions, &is_past_deadline);
        let NewestDecisions {
            mut decisions,
            from,
            mut is_partial,
        } = read.await?;
        is_partial |= self
            .add_earlier_payments_to_windows(backtest, agent, (since, from), max_decisions)
            .await?;
        let chunk = usize::try_from(ROWS).unwrap_or(usize::MAX);
        while let Some(newest) = decisions.len().checked_sub(1) {
            // Tests the oldest decisions first, which are at the end of the list.
            let mut tested = decisions.split_off(newest.saturating_add(1).saturating_sub(chunk));
            tested.reverse();
            self.test_decisions(backtest, tested).await?;
            if let Some(next) = decisions.last().filter(|_| is_past_deadline()) {
                return Ok((from, next.decided_at(), true));
            }
        }
        Ok((from, to, is_partial))
    }

    /// Adds the agent's payments before `from`, the start of the tested range, to the windows of the tested limits.
    /// Skips payments that are older than `since` or than the limits require. Stops after at least `max_payments`
    /// payments. Returns whether there are more payments to add.
    pub async fn add_earlier_payments_to_windows(
        &mut self,
        backtest: &mut Backtest,
        agent: &Agent,
        (since, from): (Timestamp, Timestamp),
        max_payments: usize,
    ) -> Result<bool> {
        let warm_ups = backtest
            .compared_limits()
            .map(|proposed_limits| proposed_limits.required_lookback(&agent.rules));
        let warm_up = warm_ups.fold(Duration::DAY, Duration::max);
        let range = LogRange::new(from.before(warm_up).max(since), from, true);
        let names_services = backtest
            .compared_limits()
            .any(ProposedLimits::has_service_specific_counting_rule);
        let earlier = self
            .ledger
            .read_payments_between(agent.id, range, max_payments, false)
            .await?;
        if names_services {
            let services = earlier.payments.iter().map(|payment| payment.service);
            for service in services.collect::<BTreeSet<_>>() {
                if let Some(service) = self.catalog.read_service_by_id(service).await? {
                    backtest.register_service(&service);
                }
            }
        }
        for payment in earlier.payments.into_iter().rev() {
            backtest.count_payment_before_test(payment);
        }
        Ok(earlier.is_partial)
    }

    /// Tests decisions of one agent. The decisions must be in order of time.
    pub async fn test_decisions(&mut self, backtest: &mut Backtest, decisions: Vec<LoggedDecision>) -> Result<()> {
        let decisions: Vec<TestedDecision> = decisions
            .into_iter()
            .filter_map(|item| TestedDecision::from_decision(item, self.network))
            .collect();
        for of in &decisions {
            self.cache_decision_inputs(of).await?;
        }
        let calls = self.read_calls(backtest, &decisions).await?;
        for of in decisions {
            let payment = of.past_payment();
            let inputs = of
                .input_versions()
                .and_then(|versions| self.inputs.get(&versions)?.as_ref());
            let (transaction, approval) = (of.transaction_id(), of.approval_id());
            let recorded = inputs.and_then(|inputs| Some((inputs, of.into_recorded_decision(&calls)?)));
            let Some((inputs, (decision, has_call))) = recorded else {
                backtest.record_untested_decision(payment);
                continue;
            };
            backtest.test_decision(&BacktestDecision {
                decision: &decision,
                inputs: inputs.as_replay_inputs(),
                transaction,
                approval,
                released_at: payment.and_then(|payment| payment.released_at),
                paid_at: payment.and_then(|payment| payment.paid_at),
                has_call,
            });
        }
        Ok(())
    }

    async fn cache_decision_inputs(&mut self, decision: &TestedDecision) -> Result<()> {
        let Some(versions) = decision.input_versions() else {
            return Ok(());
        };
        if self.inputs.contains_key(&versions) || self.inputs.len() >= MAX_INPUTS {
            return Ok(());
        }
        let (service, policy, others) = versions;
        let (agent, usage) = (decision.agent_id(), self.usage);
        let inputs = usage.read_replay_inputs(self.ledger, self.catalog, (agent, service), policy, others);
        self.inputs.insert(versions, inputs.await?);
        Ok(())
    }

    /// Reads the provider call of each allowed payment that the tested limits may decide differently depending on the
    /// call, for example because of the fetched page.
    async fn read_calls(&mut self, backtest: &Backtest, decisions: &[TestedDecision]) -> Result<Calls> {
        let mut wanted = Vec::new();
        let mut calls = HashMap::new();
        for of in decisions {
            let inputs = of
                .input_versions()
                .and_then(|versions| self.inputs.get(&versions)?.as_ref());
            let (TestedDecision::Allowed(settlement), Some(inputs)) = (of, inputs) else {
                continue;
            };
            let Some(purchase) = settlement.terms.purchase() else {
                continue;
            };
            let inputs = inputs.as_replay_inputs();
            let mut candidates = backtest.compared_limits();
            if candidates.any(|item| item.may_depend_on_call_details(&inputs, &purchase.operation)) {
                if let Some(remaining) = self.calls_left.checked_sub(1) {
                    self.calls_left = remaining;
                    wanted.push(settlement.clone());
                }
            } else if let Some(operation) = inputs.service.find_operation(&purchase.operation) {
                calls.insert(settlement.id(), (CallDescription::without_agent_data(operation), false));
            }
        }
        if !wanted.is_empty() {
            let read = self.ledger.read_call_descriptions(&wanted).await?.into_iter();
            calls.extend(read.map(|(id, call)| (id, (call, true))));
        }
        Ok(calls)
    }
}

/// The provider call of each settlement, and whether the agent described the call.
type Calls = HashMap<SettlementId, (CallDescription, bool)>;

/// A decision about a payment to a provider.
enum TestedDecision {
    Allowed(Settlement),
    Refused(DeniedDecision),
}

struct DeniedDecision {
    agent: AgentId,
    service: ServiceId,
    transaction: TransactionId,
    approval: Option<ApprovalId>,
    decision: RecordedDecision,
}

impl TestedDecision {
    /// Converts a decision. Returns `None` for a withdrawal and for a reverted confirmation.
    fn from_decision(decision: LoggedDecision, network: Network) -> Option<Self> {
        match decision {
            LoggedDecision::Allowed(settlement) => Some(Self::Allowed(settlement)),
            LoggedDecision::Refused(denial) => Some(Self::Refused(DeniedDecision {
                agent: denial.agent,
                service: denial.service,
                transaction: denial.transaction,
                approval: denial.approval,
                decision: RecordedDecision::from_denial(denial, network),
            })),
            LoggedDecision::PaidOut(_) | LoggedDecision::ConfirmationReverted(_) => None,
        }
    }

    fn input_versions(&self) -> Option<Versions> {
        match self {
            Self::Allowed(settlement) => {
                let purchase = settlement.terms.purchase()?;
                Some((purchase.service, Some(purchase.policy_version), purchase.inputs))
            }
            Self::Refused(refused) => {
                let decision = &refused.decision;
                Some((refused.service, decision.policy_version, decision.inputs?))
            }
        }
    }

    const fn agent_id(&self) -> AgentId {
        match self {
            Self::Allowed(settlement) => settlement.terms.agent,
            Self::Refused(refused) => refused.agent,
        }
    }

    const fn transaction_id(&self) -> TransactionId {
        match self {
            Self::Allowed(settlement) => settlement.terms.transaction,
            Self::Refused(refused) => refused.transaction,
        }
    }

    fn approval_id(&self) -> Option<ApprovalId> {
        match self {
            Self::Allowed(settlement) => settlement.terms.purchase()?.approval,
            Self::Refused(refused) => refused.approval,
        }
    }

    fn past_payment(&self) -> Option<PastPayment> {
        match self {
            Self::Allowed(settlement) => PastPayment::from_settlement(settlement),
            Self::Refused(_) => None,
        }
    }

    /// Returns the recorded decision, and whether the agent described the provider call. Returns `None` if the provider
    /// call is not known.
    fn into_recorded_decision(self, calls: &Calls) -> Option<(RecordedDecision, bool)> {
        match self {
            Self::Allowed(settlement) => {
                let (call, is_known) = calls.get(&settlement.id())?;
                Some((RecordedDecision::from_settlement(&settlement, call.clone())?, *is_known))
            }
            Self::Refused(refused) => Some((refused.decision, true)),
        }
    }
}
