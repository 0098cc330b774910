//! Authorize without HTTP, a chain or a catalog: what `functions/payments` does with the store and the evaluator, as
//! plainly as it can be said.

use crate::sample;
use purser_domain::{
    AgentId, Amount, ApprovalId, ApprovalStatus, CallDescription, Decision, DecisionRecord, Denial, Duration, Eviction,
    Facts, Fingerprint, Fits, Grant, Intent, Network, Reason, Service, ServiceId, SettlementId, Terms, Timestamp,
    TransactionId, Window, evaluate, recorded_time,
};
use purser_store::{Ask, Escalated, Ledger, Patience, Prior, Reserved, Snapshot, Standing};

/// How many approvals of an agent may wait for a person.
pub const MOST_WAITING: u32 = 20;

/// A request to authorize.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who pays.
    pub agent: AgentId,
    /// For what.
    pub service: ServiceId,
    /// How much, in micro-units.
    pub amount: u64,
    /// Under which idempotency key.
    pub key: String,
    /// What else is asked; part of the fingerprint.
    pub body: String,
    /// What a person approved.
    pub approval: Option<ApprovalId>,
}

/// An answer of authorize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Paid now.
    Allowed(SettlementId),
    /// Paid before, by the same request.
    Replayed(SettlementId),
    /// The key was used for another request.
    KeyReused(Option<SettlementId>),
    /// The approval was used for that payment.
    ApprovalUsed(SettlementId),
    /// It waits, was refused, has expired, or is for something else.
    ApprovalNotUsable,
    /// Waits for a person: staged, joined or repeated.
    Waits(ApprovalId),
    /// The window is full; what counts, and when the amount fits.
    Full {
        /// What counts.
        live: Amount,
        /// When the amount fits.
        fits: Fits,
    },
    /// Refused for good.
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
        }
    }

    /// What makes it the same request.
    pub fn fingerprint(&self) -> Fingerprint {
        sample::intent(self.amount, &self.body).fingerprint
    }

    fn purchase(&self) -> (Intent, Service) {
        (
            sample::intent(self.amount, &self.body),
            sample::service(self.service, "lab"),
        )
    }
}

/// Carries a request out, as often as it takes.
pub async fn authorize(ledger: &Ledger, request: &Request, now: Timestamp) -> purser_domain::Result<Answer> {
    let key = Fingerprint::of_text(&request.key);
    let ask = Ask {
        agent: request.agent,
        service: Some(request.service),
        key: Some(key),
        approval: request.approval,
    };
    let mut patience = Patience::new();
    let mut eviction = Eviction::Eager;
    let purchase = request.purchase();
    loop {
        let snapshot = ledger.snapshot(&ask).await?;
        if let Some(answer) = replay(&snapshot, request, now) {
            return Ok(answer);
        }
        let standing = snapshot.standing.as_ref().unwrap();
        let at = recorded_time(now, windows(standing));
        match decide(&snapshot, standing, request, &purchase, at, eviction) {
            Decision::NeedsTarget => return Ok(Answer::Blocked),
            Decision::Allow(grant) => {
                let terms = terms(&snapshot, standing, request, at, key);
                match ledger
                    .reserve(&grant, &terms, &request.fingerprint(), &mut patience)
                    .await?
                {
                    Reserved::Done => return Ok(Answer::Allowed(terms.id)),
                    Reserved::Prior(prior) => return Ok(bound(&prior, request)),
                    Reserved::ApprovalUsed { settlement } => return Ok(Answer::ApprovalUsed(settlement)),
                    Reserved::Raced => eviction = Eviction::Needed,
                }
            }
            Decision::Refuse(denial) if denial.escalates() => {
                let record = record(&denial, request, at);
                let expires_at = at.after(Duration::DAY);
                return Ok(match ledger.escalate(&key, &record, expires_at, MOST_WAITING).await? {
                    Escalated::Staged(approval) | Escalated::Joined(approval) => Answer::Waits(approval.id),
                    Escalated::Prior(prior) => bound(&prior, request),
                    Escalated::TooMany => Answer::Blocked,
                });
            }
            Decision::Refuse(denial) => match refused(ledger, standing, denial, request, at).await? {
                Some(answer) => return Ok(answer),
                None => patience.pause().await?,
            },
        }
    }
}

/// Leave to make a payment, decided now and not yet used. What it rests on is kept for the rest of the test's process.
pub async fn grant(ledger: &Ledger, request: &Request, now: Timestamp) -> (Grant<'static>, Terms) {
    let key = Fingerprint::of_text(&request.key);
    let ask = Ask {
        agent: request.agent,
        service: Some(request.service),
        key: Some(key),
        approval: request.approval,
    };
    let snapshot = Box::leak(Box::new(ledger.snapshot(&ask).await.unwrap()));
    let purchase = Box::leak(Box::new(request.purchase()));
    let standing = snapshot.standing.as_ref().unwrap();
    let at = recorded_time(now, windows(standing));
    match decide(snapshot, standing, request, purchase, at, Eviction::Eager) {
        Decision::Allow(grant) => (grant, terms(snapshot, standing, request, at, key)),
        other => panic!("{other:?}"),
    }
}

fn windows(standing: &Standing) -> impl Iterator<Item = &Window> {
    std::iter::once(&standing.day).chain(standing.budgets.iter().map(|(_, window)| window))
}

fn replay(snapshot: &Snapshot, request: &Request, now: Timestamp) -> Option<Answer> {
    if let Some(approval) = &snapshot.approval {
        match approval.status(now) {
            ApprovalStatus::Executed => return approval.settlement().map(Answer::ApprovalUsed),
            ApprovalStatus::Approved if approval.fingerprint == request.fingerprint() => {
                return match &snapshot.prior {
                    Some(Prior::Escalated { fingerprint, .. }) if *fingerprint == request.fingerprint() => None,
                    prior => prior.as_ref().map(|prior| bound(prior, request)),
                };
            }
            _ => return Some(Answer::ApprovalNotUsable),
        }
    }
    snapshot.prior.as_ref().map(|prior| bound(prior, request))
}

fn bound(prior: &Prior, request: &Request) -> Answer {
    let same = *prior.fingerprint() == request.fingerprint();
    match *prior {
        Prior::Allowed { payment, .. } if same => Answer::Replayed(payment.settlement),
        Prior::Allowed { payment, .. } => Answer::KeyReused(Some(payment.settlement)),
        Prior::Escalated { approval, .. } if same => Answer::Waits(approval),
        Prior::Escalated { .. } => Answer::KeyReused(None),
    }
}

fn decide<'a>(
    snapshot: &'a Snapshot,
    standing: &'a Standing,
    request: &Request,
    (intent, service): &'a (Intent, Service),
    at: Timestamp,
    eviction: Eviction,
) -> Decision<'a> {
    evaluate(&Facts {
        agent: snapshot.agent.as_ref().unwrap(),
        intent,
        offer: &intent.offer,
        service,
        operation: service.operations.first(),
        network: Network::BaseSepolia,
        enabled: standing.enabled.as_ref(),
        day: &standing.day,
        budgets: &standing.budgets,
        approval: request.approval,
        balance: None,
        at,
        eviction,
    })
}

fn terms(snapshot: &Snapshot, standing: &Standing, request: &Request, at: Timestamp, key: Fingerprint) -> Terms {
    let intent = sample::intent(request.amount, &request.body);
    let random = || getrandom::u64().unwrap().to_be_bytes();
    Terms {
        id: SettlementId::at(at, random()),
        transaction: TransactionId::at(at, random()),
        agent: request.agent,
        wallet: snapshot.agent.as_ref().unwrap().wallet.address,
        service: request.service,
        operation: sample::operation().slug,
        network: Network::BaseSepolia,
        amount: intent.offer.amount(),
        pay_to: intent.offer.pay_to(),
        authorized_at: at,
        valid_before: Timestamp::from_secs(at.secs() + 60).unwrap(),
        x402_version: intent.offer.version(),
        offer_index: intent.offer.index(),
        policy_version: standing.enabled.as_ref().unwrap().version,
        budgets: standing.budgets.iter().map(|(rule, _)| *rule).collect(),
        idempotency_key: key,
        approval: request.approval,
        checks: Vec::new(),
    }
}

fn record(denial: &Denial, request: &Request, at: Timestamp) -> DecisionRecord {
    let intent = sample::intent(request.amount, &request.body);
    DecisionRecord {
        transaction: TransactionId::at(at, getrandom::u64().unwrap().to_be_bytes()),
        agent: request.agent,
        owner: sample::OWNER.to_owned(),
        service: request.service,
        operation: Some(sample::operation().slug),
        amount: intent.offer.amount(),
        pay_to: intent.offer.pay_to(),
        fingerprint: intent.fingerprint,
        call: CallDescription::of(&intent, Some(&sample::operation()), Network::BaseSepolia),
        at,
        reason: denial.reason.clone(),
        policy_version: denial.policy_version,
        approval: None,
        checks: denial.checks.clone(),
        latency_ms: 1,
    }
}

/// The answer to a refusal once it is exact; `None` to look again.
async fn refused(
    ledger: &Ledger,
    standing: &Standing,
    denial: Denial,
    request: &Request,
    at: Timestamp,
) -> purser_domain::Result<Option<Answer>> {
    if !denial.rests_on_windows() {
        ledger.record(&record(&denial, request, at)).await?;
        return Ok(Some(Answer::Blocked));
    }
    let mut cleared = false;
    for window in windows(standing) {
        if window.hides_expired(at) {
            ledger.clear_expired(window, at).await?;
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
        Reason::PolicyBlocked(purser_domain::Block::Budget { used, retry_at, .. }) => (used, retry_at),
        _ => panic!("no other refusal rests on windows"),
    };
    let cap = standing.enabled.as_ref().unwrap().policy.max_per_day;
    let mut day = standing.day.clone();
    while matches!(denial.reason, Reason::DailyLimit { .. }) && day.tells_more(fits) {
        ledger.read_further(&mut day).await?;
        (live, fits) = (day.live(at), day.fits(sample::units(request.amount), cap, at));
    }
    for window in windows(standing) {
        if !ledger.held_still(window, &Fingerprint::of_text(&request.key)).await? {
            return Ok(None);
        }
    }
    ledger.record(&record(&denial, request, at)).await?;
    Ok(Some(Answer::Full { live, fits }))
}
