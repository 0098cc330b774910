//! Authorizes payments with the store and the evaluator only, without HTTP, chain or catalog.

use crate::sample;
use purser_domain::{
    Address, Agent, AgentId, Amount, Approval, ApprovalId, ApprovalStatus, B256, Block, CallDescription, Catalog,
    Decision, DecisionRecord, Denial, Duration, EvaluationInputs, Eviction, Fingerprint, Freeze, GivenApproval, Grant,
    Intent, KeyId, Network, NoncePrefix, Purchase, Purpose, Reason, RetryAt, Service, ServiceId, SettlementId,
    SettlementTerms, Timestamp, TransactionId, Window, WindowMeasure, earliest_decision_time, evaluate,
};
use purser_store::{
    Backoff, DecisionInputs, DecisionKeys, EscalateResult, IdempotencyRecord, Ledger, ReserveResult, ServiceState,
};

/// The maximum number of an agent's pending approvals.
pub const MAX_WAITING: u32 = 20;

/// A request to authorize.
#[derive(Clone, Debug)]
pub struct Request {
    /// The paying agent.
    pub agent: AgentId,
    /// The service to pay.
    pub service: ServiceId,
    /// The amount, in micro-USDC.
    pub amount: u64,
    /// The idempotency key.
    pub key: String,
    /// A text in the fingerprint, so that requests with different texts are different requests.
    pub body: String,
    /// The id of the approval in the request.
    pub approval: Option<ApprovalId>,
    /// The agent key that sends the request.
    pub agent_key: KeyId,
    /// The payee in the catalog and in the payment requirements.
    pub payee: Address,
}

/// The result of authorize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The payment was authorized by this call.
    Allowed(SettlementId),
    /// An earlier call with the same request authorized the payment.
    Replayed(SettlementId),
    /// A different request used the idempotency key. Contains that request's settlement, if any.
    KeyReused(Option<SettlementId>),
    /// The approval was already used for this payment.
    ApprovalUsed(SettlementId),
    /// The approval is pending, rejected, expired, or for a different request.
    ApprovalNotUsable,
    /// The request needs this approval, which is new or was created by an earlier request.
    Waits(ApprovalId),
    /// The amount does not fit into the service's window.
    Full {
        /// The sum in the window at the time of the request.
        live: Amount,
        /// The earliest time at which the amount fits into the window.
        fits: RetryAt,
    },
    /// The request is denied permanently.
    Blocked,
}

impl Request {
    /// A request without an approval.
    pub fn new(agent: AgentId, service: ServiceId, amount: u64, key: impl Into<String>) -> Self {
        Self {
            agent,
            service,
            amount,
            key: key.into(),
            body: String::new(),
            approval: None,
            agent_key: sample::KEY,
            payee: sample::payee(),
        }
    }

    /// Returns the fingerprint of the request.
    pub fn fingerprint(&self) -> Fingerprint {
        sample::intent(self.amount, &self.body).fingerprint
    }

    fn purchase(&self) -> (Intent, Service, KeyId) {
        let mut service = sample::service(self.service, sample::slug_of_service(self.service).as_str());
        for payment in service
            .operations
            .iter_mut()
            .flat_map(|operation| &mut operation.payment)
        {
            payment.pay_to = self.payee;
        }
        let intent = sample::intent_to(self.payee, self.amount, &self.body);
        (intent, service, self.agent_key)
    }
}

/// Authorizes a request. Retries if another write changed the state meanwhile.
pub async fn authorize(ledger: &Ledger, request: &Request, now: Timestamp) -> purser_domain::Result<Answer> {
    let key = Fingerprint::for_text(&request.key);
    let ask = DecisionKeys {
        payee: Some(request.payee),
        service: Some(request.service),
        key: Some(key),
        approval: request.approval,
        freezes: true,
    };
    let mut backoff = Backoff::new();
    let mut eviction = Eviction::Eager;
    let purchase = request.purchase();
    loop {
        let (agent, inputs) = ledger.read_decision_inputs(request.agent, &ask).await?;
        let agent = agent.unwrap();
        if let Some(answer) = replay(&inputs, request, now) {
            return Ok(answer);
        }
        let service_state = inputs.service_state.as_ref().unwrap();
        if !service_state.is_backfilled {
            ledger
                .backfill_payments(&agent, ask.payee, &Catalog::new(Vec::new()), now)
                .await?;
            continue;
        }
        let at = earliest_decision_time(now, windows(service_state));
        let frozen = inputs.find_operator_freeze(&agent)?;
        let given = inputs.approval.as_ref().map(Approval::as_evaluation_input);
        match decide(&agent, service_state, given, &purchase, at, (eviction, frozen)) {
            Decision::NeedsTarget => return Ok(Answer::Blocked),
            Decision::Allow(grant) => {
                if service_state.is_unwritten && !ledger.try_write_default_policy(&agent, request.service).await? {
                    backoff.wait_for_retry().await?;
                    continue;
                }
                let terms = terms(&agent, &grant, request, key);
                match ledger
                    .reserve_payment(&grant, &terms, &request.fingerprint(), &mut backoff)
                    .await?
                {
                    ReserveResult::Done => return Ok(Answer::Allowed(terms.id)),
                    ReserveResult::IdempotencyRecord(record) => return Ok(bound(&record, request)),
                    ReserveResult::ApprovalUsed { settlement } => return Ok(Answer::ApprovalUsed(settlement)),
                    ReserveResult::Raced => eviction = Eviction::Needed,
                }
            }
            Decision::Refuse(denial) if denial.requires_approval() => {
                let record = record(&agent, &denial, request, at);
                let expires_at = at.after(Duration::DAY);
                return Ok(
                    match ledger
                        .store_escalation(&key, &record, request.approval, expires_at, MAX_WAITING)
                        .await?
                    {
                        EscalateResult::Staged(approval) | EscalateResult::Joined(approval) => {
                            Answer::Waits(approval.id)
                        }
                        EscalateResult::IdempotencyRecord(record) => bound(&record, request),
                        EscalateResult::TooMany => Answer::Blocked,
                    },
                );
            }
            Decision::Refuse(denial) => match refused(ledger, &agent, service_state, denial, request, at).await? {
                Some(answer) => return Ok(answer),
                None => backoff.wait_for_retry().await?,
            },
        }
    }
}

/// Decides a request and returns the grant without reserving the amount. Leaks the grant's inputs, so that they live
/// long enough.
pub async fn grant(ledger: &Ledger, request: &Request, now: Timestamp) -> (Grant<'static>, SettlementTerms) {
    let key = Fingerprint::for_text(&request.key);
    let ask = DecisionKeys {
        payee: Some(request.payee),
        service: Some(request.service),
        key: Some(key),
        approval: request.approval,
        freezes: true,
    };
    let (agent, _) = ledger.read_decision_inputs(request.agent, &ask).await.unwrap();
    let catalog = Catalog::new(Vec::new());
    ledger
        .backfill_payments(&agent.unwrap(), ask.payee, &catalog, now)
        .await
        .unwrap();
    let (agent, inputs) = Box::leak(Box::new(
        ledger.read_decision_inputs(request.agent, &ask).await.unwrap(),
    ));
    let agent = agent.as_ref().unwrap();
    let purchase = Box::leak(Box::new(request.purchase()));
    let service_state = inputs.service_state.as_ref().unwrap();
    let at = earliest_decision_time(now, windows(service_state));
    let frozen = inputs.find_operator_freeze(agent).unwrap();
    let given = inputs.approval.as_ref().map(Approval::as_evaluation_input);
    match decide(agent, service_state, given, purchase, at, (Eviction::Eager, frozen)) {
        Decision::Allow(grant) => {
            let terms = terms(agent, &grant, request, key);
            (grant, terms)
        }
        other => panic!("{other:?}"),
    }
}

fn windows(service_state: &ServiceState) -> impl Iterator<Item = &Window> {
    std::iter::once(&service_state.day).chain(service_state.budgets.iter().map(|(_, window)| window))
}

fn replay(inputs: &DecisionInputs, request: &Request, now: Timestamp) -> Option<Answer> {
    if let Some(approval) = &inputs.approval {
        match approval.status(now) {
            ApprovalStatus::Executed => return approval.settlement_id().map(Answer::ApprovalUsed),
            ApprovalStatus::Approved if approval.fingerprint == request.fingerprint() => {
                return match &inputs.record {
                    Some(IdempotencyRecord::Escalated { fingerprint, .. }) if *fingerprint == request.fingerprint() => {
                        None
                    }
                    record => record.as_ref().map(|record| bound(record, request)),
                };
            }
            _ => return Some(Answer::ApprovalNotUsable),
        }
    }
    inputs.record.as_ref().map(|record| bound(record, request))
}

fn bound(record: &IdempotencyRecord, request: &Request) -> Answer {
    let same = *record.fingerprint() == request.fingerprint();
    match *record {
        IdempotencyRecord::Allowed { payment, .. } if same => Answer::Replayed(payment.settlement),
        IdempotencyRecord::Allowed { payment, .. } => Answer::KeyReused(Some(payment.settlement)),
        IdempotencyRecord::Escalated { approval, .. } if same => Answer::Waits(approval),
        IdempotencyRecord::Escalated { .. } => Answer::KeyReused(None),
    }
}

fn decide<'a>(
    agent: &'a Agent,
    service_state: &'a ServiceState,
    approval: Option<GivenApproval<'a>>,
    (intent, service, key): &'a (Intent, Service, KeyId),
    at: Timestamp,
    (eviction, frozen_by_operators): (Eviction, Option<Freeze>),
) -> Decision<'a> {
    evaluate(&EvaluationInputs {
        agent,
        intent,
        key: *key,
        service,
        operation: service.operations.first(),
        payee_from: None,
        network: Network::BaseSepolia,
        enabled: service_state.enabled.as_ref(),
        day: &service_state.day,
        budgets: &service_state.budgets,
        recent: &service_state.recent,
        frozen_by_operators,
        approval,
        balance: None,
        at,
        eviction,
    })
}

fn terms(agent: &Agent, grant: &Grant<'_>, request: &Request, key: Fingerprint) -> SettlementTerms {
    let intent = sample::intent_to(request.payee, request.amount, &request.body);
    let random = || getrandom::u64().unwrap().to_be_bytes();
    let at = grant.authorized_at();
    SettlementTerms {
        id: SettlementId::new_at(at, random()),
        transaction: TransactionId::new_at(at, random()),
        agent: request.agent,
        wallet: agent.wallet.address,
        network: Network::BaseSepolia,
        amount: intent.offer.amount(),
        pay_to: intent.offer.pay_to(),
        authorized_at: at,
        valid_before: Timestamp::from_secs(at.secs() + 60).unwrap(),
        idempotency_key: key,
        nonce_prefix: NoncePrefix::from_nonce(B256::repeat_byte(0x11)),
        transfers: agent.transfer_count(),
        purpose: Purpose::Purchase(Purchase {
            key: request.agent_key,
            service: request.service,
            operation: sample::operation().slug,
            scope: grant.purchase_scope(),
            x402_version: intent.offer.version(),
            offer_index: intent.offer.index(),
            policy_version: grant.policy_version(),
            inputs: grant.input_versions(),
            budgets: grant.counting_window_ids(WindowMeasure::Amounts).collect(),
            counts: grant.counting_window_ids(WindowMeasure::Payments).collect(),
            approval: request.approval,
            checks: Vec::new(),
        }),
    }
}

fn record(agent: &Agent, denial: &Denial, request: &Request, at: Timestamp) -> DecisionRecord {
    let intent = sample::intent_to(request.payee, request.amount, &request.body);
    DecisionRecord {
        transaction: TransactionId::new_at(at, getrandom::u64().unwrap().to_be_bytes()),
        agent: request.agent,
        key: request.agent_key,
        owner: agent.owner.clone(),
        transfers: agent.transfer_count(),
        service: request.service,
        operation: Some(sample::operation().slug),
        amount: intent.offer.amount(),
        pay_to: intent.offer.pay_to(),
        fingerprint: intent.fingerprint,
        call: CallDescription::new(&intent, Some(&sample::operation()), Network::BaseSepolia, at),
        at,
        reason: denial.reason.clone(),
        policy_version: denial.policy_version,
        inputs: denial.inputs,
        approval: None,
        checks: denial.checks.clone(),
        latency_ms: 1,
    }
}

/// Returns whether the decision depends on the content of a window. Such a decision is valid only while the window is
/// unchanged.
const fn depends_on_windows(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::DailyLimit { .. }
            | Reason::PolicyBlocked(
                Block::Budget { .. }
                    | Block::Count { .. }
                    | Block::Interval { .. }
                    | Block::Duplicate { .. }
                    | Block::PriceAboveUsual { .. }
            )
    )
}

/// Stores the denial. Returns `None` if the stored state has changed, so that the caller decides again.
async fn refused(
    ledger: &Ledger,
    agent: &Agent,
    service_state: &ServiceState,
    denial: Denial,
    request: &Request,
    at: Timestamp,
) -> purser_domain::Result<Option<Answer>> {
    if !depends_on_windows(&denial.reason) {
        ledger.add_decision(&record(agent, &denial, request, at)).await?;
        return Ok(Some(Answer::Blocked));
    }
    let mut cleared = false;
    for window in windows(service_state) {
        if window.may_overstate_spend(at) {
            ledger.evict_expired(window, at).await?;
            cleared = true;
        }
    }
    if cleared {
        return Ok(None);
    }
    let (mut live, mut fits) = match denial.reason {
        Reason::DailyLimit {
            spend_today, retry_at, ..
        } => (spend_today, retry_at),
        Reason::PolicyBlocked(Block::Budget { used, retry_at, .. } | Block::Count { used, retry_at, .. }) => {
            (used, retry_at)
        }
        Reason::PolicyBlocked(Block::Interval { retry_at, .. }) => (Amount::ONE, retry_at),
        Reason::PolicyBlocked(Block::Duplicate { retry_at, .. }) => (Amount::ONE, RetryAt::At(retry_at)),
        Reason::PolicyBlocked(Block::PriceAboveUsual { most, .. }) => (most, RetryAt::Never),
        _ => panic!("no other refusal rests on windows"),
    };
    let cap = service_state.enabled.as_ref().unwrap().policy.max_per_day;
    let mut day = service_state.day.clone();
    while matches!(denial.reason, Reason::DailyLimit { .. }) && day.needs_more_entries(fits) {
        ledger.append_next_window_payments(&mut day).await?;
        (live, fits) = (
            day.counted_amount_at(at),
            day.first_fitting_time(sample::units(request.amount), cap, at),
        );
    }
    for window in windows(service_state) {
        if !ledger
            .is_window_unchanged_and_key_unused(window, &Fingerprint::for_text(&request.key))
            .await?
        {
            return Ok(None);
        }
    }
    ledger.add_decision(&record(agent, &denial, request, at)).await?;
    Ok(Some(Answer::Full { live, fits }))
}
