//! Approvals: payments that agents ask a person to approve, the facts needed to decide, and the decision.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::several::several;
use crate::state::People;
use purser_domain::{
    Act, Agent, AgentId, Amount, Approval, ApprovalId, ApprovalResolution, ApprovalStatus, AuditChanges, AuditKind,
    Duration, ErrorKind, Fingerprint, NOTE_MAX, Result, ServiceId, Spend, Timestamp, WindowScope, is_readable,
};
use purser_store::{ApprovalDecision, ApprovalList, ApprovalPlace, AuditEntry, ResolveResult};
use purser_store::{Filter, Page, PageRequest, READ_AT_ONCE, page_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use tracing::warn;

/// The longest time that an approval can be open: the maximum of `APPROVAL_TTL_SECONDS` (`functions/payments`).
const LONGEST_WAIT: Duration = Duration::from_secs_u32(31 * 86_400);

/// The maximum number of waits for approvals of one agent that begin in a minute. A client that polls without a pause
/// begins three.
pub(crate) const AGENT_WAITS_PER_MINUTE: u32 = 4;

/// The maximum number of waits for all agents of one owner that begin in a minute: about half of all, so that no owner
/// uses up the waits of the others.
pub(crate) const OWNER_WAITS_PER_MINUTE: u32 = 8;

/// The maximum number of waits for all agents that begin in a minute. Each occupies an execution environment of this
/// function for at most 20 s, so 15 a minute occupy five on average: half of the concurrency of a new AWS account. The
/// other half stays free for people, so waiting agents never keep a person from deciding an approval or freezing an
/// agent.
pub(crate) const WAITS_PER_MINUTE: u32 = 15;

/// A person's note on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note(String);

impl Note {
    /// Parses a note. Surrounding white space is removed, and a blank note is `None`. Line breaks are the only control
    /// characters allowed.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, String> {
        let note = text.replace("\r\n", "\n");
        let note = note.trim();
        let is_text =
            !note.chars().any(|symbol| symbol.is_control() && symbol != '\n') && (note.is_empty() || is_readable(note));
        if note.chars().count() > NOTE_MAX || !is_text {
            return Err(format!(
                "must be a text of at most {NOTE_MAX} characters, some of them visible, without control characters but line breaks, and without direction marks"
            ));
        }
        Ok((!note.is_empty()).then(|| Self(note.to_owned())))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// An approval in a list of those that wait. The facts that cost further reads are on its own page.
#[derive(Clone, Debug)]
pub(crate) struct PendingApproval {
    pub(crate) approval: Approval,
    /// The agent that requested the approval.
    pub(crate) agent: Arc<OwnedAgent>,
}

/// An approval with the facts a person needs to decide.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalContext {
    pub(crate) approval: Approval,
    /// The agent that requested the approval.
    pub(crate) agent: Arc<OwnedAgent>,
    /// The daily cap and the amount used. `None` if the approval can no longer lead to a payment, or if the service is
    /// not enabled.
    pub(crate) day: Option<DailyUsage>,
}

/// An approval that was checked to belong to an agent of the person.
#[derive(Debug)]
pub(crate) struct OwnApproval {
    owned: OwnedAgent,
    approval: Approval,
}

impl OwnApproval {
    pub(crate) const fn agent(&self) -> &Agent {
        self.owned.agent()
    }

    pub(crate) const fn agent_with_owner(&self) -> &OwnedAgent {
        &self.owned
    }

    pub(crate) const fn approval(&self) -> &Approval {
        &self.approval
    }
}

/// The daily cap of a service, and the amount that counts against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DailyUsage {
    pub(crate) cap: Amount,
    pub(crate) used: Spend,
}

/// The most approvals that one call decides.
pub(crate) const MAX_AT_ONCE: usize = 50;

/// The decision with this name, in forms and in JSON.
pub(crate) fn read_decision(name: &str) -> Option<ApprovalDecision> {
    match name {
        "approve" => Some(ApprovalDecision::Approve),
        "reject" => Some(ApprovalDecision::Reject),
        _ => None,
    }
}

/// The result of one of several decisions.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The decision is stored.
    Decided(Approval),
    /// The approval was no longer pending. Nothing was written.
    NotPending(Approval),
    /// A request for a limit increase, which is granted alone, where its caps and its end are shown. Nothing was written.
    NotInBulk(Approval),
    /// There is no such approval of the person's agents.
    NotFound,
    /// It is unknown whether the decision was stored: the approval's page shows it.
    Failed,
}

/// A filter of approvals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApprovalFilter {
    /// Only approvals of this agent.
    pub(crate) agent: Option<AgentId>,
    /// Only approvals that have this status now.
    pub(crate) status: Option<ApprovalStatus>,
    /// Only approvals that are no longer pending.
    pub(crate) decided: bool,
}

/// The approvals that are waiting for a person's decision: a page of them, and how many wait in all.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// A page of the approvals, oldest first.
    pub(crate) items: Vec<PendingApproval>,
    /// The cursor of the next page, which has older approvals.
    pub(crate) next: Option<ApprovalPlace>,
    /// The number of open approvals of all agents.
    pub(crate) count: WaitingCount,
}

/// The number of a person's pending approvals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingCount {
    /// The number of those that were counted.
    pub(crate) number: usize,
    /// Whether there may be more.
    pub(crate) is_more: bool,
}

impl fmt::Display for WaitingCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, if self.is_more { "+" } else { "" })
    }
}

impl People {
    /// Whether one more call may wait for a decision on this approval; otherwise it is answered at once. The limits are
    /// per agent, per owner and per deployment. A call that exceeds one of them does not count against the next.
    pub(crate) async fn may_wait(&self, approval: &Approval) -> bool {
        let owner = format!("approval waits of {}", Fingerprint::for_text(&approval.owner));
        let scopes = [
            (&self.agent_waits, format!("approval waits {}", approval.agent)),
            (&self.owner_waits, owner),
            (&self.waits, "approval waits".to_owned()),
        ];
        for (throttle, scope) in scopes {
            if throttle.limit(scope, self.now(), async { Ok(()) }).await.is_err() {
                return false;
            }
        }
        true
    }

    /// The person's approvals, newest first. An approval that was just created may be missing for a moment.
    pub(crate) async fn approvals(
        &self,
        person: &Caller,
        filter: ApprovalFilter,
        slice: PageRequest<ApprovalPlace>,
    ) -> Result<Page<ApprovalContext, ApprovalPlace>> {
        if let Some(agent) = filter.agent {
            self.own_agent(person, agent).await?;
        }
        let now = self.now();
        let list = match filter.status {
            Some(ApprovalStatus::Pending) => ApprovalList::UndecidedSince(now.before(LONGEST_WAIT)),
            _ if filter.decided => ApprovalList::DecidedOrBefore(self.oldest_pending()),
            _ => ApprovalList::All,
        };
        let only_open = filter.status.is_some_and(ApprovalStatus::is_open);
        let keep = |approval: &Approval| {
            if only_open && now.since(approval.created_at) > LONGEST_WAIT {
                return Filter::Stop;
            }
            Filter::by(
                filter.agent.is_none_or(|agent| approval.agent == agent)
                    && filter.status.is_none_or(|status| approval.status(now) == status)
                    && !(filter.decided && approval.status(now) == ApprovalStatus::Pending),
            )
        };
        let read = |before, count: u32| {
            let count = u8::try_from(count).unwrap_or(u8::MAX);
            self.ledger.approvals_of(person.id.as_str(), list, before, count)
        };
        let filtered = filter != ApprovalFilter::default();
        // A filtered page reads up to four times its length.
        let reads = (4, slice.limit.saturating_add(1).min(READ_AT_ONCE));
        let page = page_of(slice, reads, filtered.then_some(keep), ApprovalPlace::new, read).await?;
        Ok(Page {
            items: self.contexts(person, page.items).await?,
            next: page.next,
        })
    }

    /// The person's pending approvals before a position, or the newest, of all their agents or of one; newest first, up
    /// to `most`.
    async fn pending(
        &self,
        person: &Caller,
        only: Option<AgentId>,
        before: Option<ApprovalPlace>,
        most: u32,
    ) -> Result<Page<Approval, ApprovalPlace>> {
        let (now, since) = (self.now(), self.oldest_pending());
        let slice = PageRequest { before, limit: most };
        let is_pending = |approval: &Approval| approval.status(now) == ApprovalStatus::Pending;
        let Some(agent) = only else {
            let list = ApprovalList::UndecidedSince(since);
            let read = |before, count: u32| {
                let count = u8::try_from(count).unwrap_or(u8::MAX);
                self.ledger.approvals_of(person.id.as_str(), list, before, count)
            };
            let rows = most.saturating_add(1);
            let keep = |approval: &Approval| Filter::by(is_pending(approval));
            return page_of(slice, (2, rows), Some(keep), ApprovalPlace::new, read).await;
        };
        // The approvals that one agent waits for are a small set of the agent.
        let waiting = self.ledger.asking(vec![agent]).await?;
        let ids = waiting.into_iter().flat_map(|(_, ids)| ids);
        let mut approvals = self.ledger.approvals(ids).await?;
        approvals.retain(|approval| {
            is_pending(approval)
                && approval.owner == person.id.as_str()
                && before.is_none_or(|before| ApprovalPlace::new(approval) < before)
        });
        approvals.sort_by_key(|approval| std::cmp::Reverse(ApprovalPlace::new(approval)));
        let is_more = approvals.len() > usize::try_from(most).unwrap_or(usize::MAX);
        approvals.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let next = approvals.last().filter(|_| is_more).map(ApprovalPlace::new);
        Ok(Page { items: approvals, next })
    }

    /// The time before which every approval that nobody has decided has expired.
    fn oldest_pending(&self) -> Timestamp {
        self.now().before(self.approval_ttl)
    }

    /// The number of the person's pending approvals.
    pub(crate) async fn count_of_waiting(&self, person: &Caller) -> Result<WaitingCount> {
        /// The largest number that is counted.
        const MAX: u8 = 99;
        let since = self.oldest_pending();
        let most = MAX.saturating_add(1);
        let counted = self.ledger.count_of_undecided(person.id.as_str(), since, most);
        let counted = counted.await?;
        Ok(WaitingCount {
            number: counted.min(MAX.into()),
            is_more: counted > usize::from(MAX),
        })
    }

    /// Up to `most` approvals that are waiting for the person, of all their agents or of one: those before a cursor.
    pub(crate) async fn waiting(
        &self,
        person: &Caller,
        only: Option<AgentId>,
        before: Option<ApprovalPlace>,
        most: u32,
    ) -> Result<Waiting> {
        let page = self.pending(person, only, before, most).await?;
        // The number is that of all, whatever the page shows, so that none is overlooked.
        let count = if only.is_some() || before.is_some() || page.next.is_some() {
            self.count_of_waiting(person).await?
        } else {
            WaitingCount {
                number: page.items.len(),
                is_more: false,
            }
        };
        let mut waiting = page.items;
        waiting.reverse();
        let ids: BTreeSet<AgentId> = waiting.iter().map(|approval| approval.agent).collect();
        let agents = self.ledger.agents(ids).await?;
        self.move_to_owners(&waiting, &agents).await?;
        let own = agents.into_iter().filter_map(|agent| OwnedAgent::new(person, agent));
        let agents: Vec<Arc<OwnedAgent>> = own.map(Arc::new).collect();
        let items = waiting.into_iter().filter_map(|approval| {
            let owned = agents.iter().find(|owned| owned.agent().id == approval.agent);
            Some(PendingApproval {
                agent: Arc::clone(owned?),
                approval,
            })
        });
        Ok(Waiting {
            items: items.collect(),
            next: page.next,
            count,
        })
    }

    /// Moves the approvals of a handed-over agent to its new owner, if the handover was interrupted before it did so.
    async fn move_to_owners(&self, approvals: &[Approval], agents: &[Agent]) -> Result<()> {
        for approval in approvals {
            if let Some(agent) = agents.iter().find(|agent| agent.id == approval.agent) {
                self.ledger.move_approval(approval, &agent.owner, self.now()).await?;
            }
        }
        Ok(())
    }

    /// The agent's approval with this id. An approval of another agent is `not_found`, like an unknown one.
    pub(crate) async fn own_approval(&self, owned: OwnedAgent, id: ApprovalId) -> Result<OwnApproval> {
        let approval = self.ledger.approval(id).await?;
        let own = approval.filter(|approval| approval.agent == owned.agent().id);
        let (present, now) = (owned.agent().owner.as_str(), self.now());
        let mut approval = own
            .and_then(|approval| approval.seen_by(present, now))
            .ok_or(ErrorKind::NotFound)?;
        // If the agent was handed over after its request, the open approval moves to the new owner.
        self.ledger.move_approval(&approval, present, now).await?;
        approval.owner = present.to_owned();
        Ok(OwnApproval { owned, approval })
    }

    /// The approval with the facts a person needs to decide.
    pub(crate) async fn approval(&self, own: OwnApproval) -> Result<ApprovalContext> {
        self.context_of(own.owned, own.approval).await
    }

    /// The approvals with these ids, in their order; `None` for an approval that is not of the person's agents.
    pub(crate) async fn own_approvals(
        &self,
        person: &Caller,
        ids: &[ApprovalId],
    ) -> Result<Vec<(ApprovalId, Option<OwnApproval>)>> {
        let now = self.now();
        let approvals = self.ledger.approvals(ids.iter().copied()).await?;
        let agents: BTreeSet<AgentId> = approvals.iter().map(|approval| approval.agent).collect();
        let mut agents = self.ledger.agents(agents).await?;
        agents.retain(|agent| agent.owner == person.id.as_str());
        self.move_to_owners(&approvals, &agents).await?;
        let owned: Vec<OwnedAgent> = agents
            .into_iter()
            .filter_map(|agent| OwnedAgent::new(person, agent))
            .collect();
        let own = |id: ApprovalId| {
            let approval = approvals.iter().find(|approval| approval.id == id)?.clone();
            let owned = owned.iter().find(|owned| owned.agent().id == approval.agent)?.clone();
            let mut approval = approval.seen_by(&owned.agent().owner, now)?;
            approval.owner.clone_from(&owned.agent().owner);
            Some(OwnApproval { owned, approval })
        };
        Ok(ids.iter().map(|id| (*id, own(*id))).collect())
    }

    /// Decides several approvals, each with its own write and its own row of the audit log, and returns the outcome of
    /// each. Approving requires a recent sign-in if the sum is large; then nothing is decided without one.
    pub(crate) async fn decide_approvals(
        &self,
        person: &Caller,
        selected: Vec<(ApprovalId, Option<OwnApproval>)>,
        decision: ApprovalDecision,
        note: Option<&Note>,
    ) -> Result<Vec<(ApprovalId, Outcome)>> {
        if decision == ApprovalDecision::Approve && self.is_large(self.sum_of(&selected)) {
            let act = Act::new(AuditKind::ApprovalApproved);
            let recent = async { self.limits.recently(person.signed_in_at, self.now()) };
            self.audit_rejection(&person.acting, &act, recent).await?;
        }
        let decide = Box::pin(async {
            let mut outcomes = Vec::new();
            for (id, own) in selected {
                let outcome = match own {
                    None => Outcome::NotFound,
                    Some(own) => self.outcome(own, decision, note).await?,
                };
                outcomes.push((id, outcome));
            }
            Ok(outcomes)
        });
        match decision {
            ApprovalDecision::Approve => self.run_long(person.id.as_str(), decide).await,
            ApprovalDecision::Reject => decide.await,
        }
    }

    /// The sum of the selected payments that are pending. A limit increase is no payment.
    pub(crate) fn sum_of(&self, selected: &[(ApprovalId, Option<OwnApproval>)]) -> Amount {
        let now = self.now();
        let own = selected.iter().filter_map(|(_, own)| own.as_ref());
        let pending = own.filter(|own| own.approval.status(now) == ApprovalStatus::Pending);
        let payments = pending.filter(|own| own.approval.raise.is_none());
        payments.fold(Amount::ZERO, |sum, own| {
            sum.plus(own.approval.amount).unwrap_or(Amount::MAX)
        })
    }

    /// Whether approving this amount requires a recent sign-in.
    pub(crate) fn is_large(&self, amount: Amount) -> bool {
        amount > self.limits.recent_above
    }

    async fn outcome(&self, own: OwnApproval, decision: ApprovalDecision, note: Option<&Note>) -> Result<Outcome> {
        let approval = own.approval.clone();
        let is_pending = approval.status(self.now()) == ApprovalStatus::Pending;
        if decision == ApprovalDecision::Approve && approval.raise.is_some() && is_pending {
            return Ok(Outcome::NotInBulk(approval));
        }
        let error = match self.decide(&own, decision, note).await {
            Ok(approval) => return Ok(Outcome::Decided(approval)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::ApprovalNotPending { .. } => {
                let now = self.ledger.approval(approval.id).await?;
                Ok(now.map_or(Outcome::NotFound, Outcome::NotPending))
            }
            ErrorKind::NotFound => Ok(Outcome::NotFound),
            ErrorKind::Internal => {
                // The outcomes of the other decisions are still told.
                warn!(approval.id = %approval.id, cause = %error, "approval.not_decided");
                Ok(Outcome::Failed)
            }
            _ => Err(error),
        }
    }

    /// Withdraws an approval that no payment has used yet: the request is then rejected. Of a request for a raise, the
    /// raise ends first.
    pub(crate) async fn withdraw_approval(&self, own: OwnApproval, note: Option<&Note>) -> Result<ApprovalContext> {
        let OwnApproval { owned, approval } = own;
        if approval.raise.is_some() && approval.status(self.now()) == ApprovalStatus::Approved {
            Box::pin(self.end_raise(&owned, &approval)).await?;
        }
        let act = Act::new(AuditKind::ApprovalWithdrawn)
            .on(approval.agent)
            .about(approval.service)
            .with(&approval.id);
        let (before, after) = (ApprovalStatus::Approved, ApprovalStatus::Rejected);
        let entry = self.entry(
            owned.acting(),
            &act,
            AuditChanges::one("status", before.name(), after.name()),
        )?;
        let withdrawn = async {
            let ruling = self.ruling(&owned, note);
            let resolved = self.ledger.withdraw_approval(approval.id, &ruling, &entry).await?;
            check_resolved(resolved, ruling.at)
        };
        let withdrawn = self.audit_rejection(owned.acting(), &act, withdrawn).await?;
        self.context_of(owned, withdrawn).await
    }

    /// Stores the owner's decision. Only one decision is accepted, and only before the approval expires. Approving a
    /// large amount requires a recent sign-in.
    pub(crate) async fn decide_approval(
        &self,
        own: OwnApproval,
        decision: ApprovalDecision,
        note: Option<&Note>,
    ) -> Result<ApprovalContext> {
        let decided = self.decide(&own, decision, note).await?;
        self.context_of(own.owned, decided).await
    }

    async fn decide(&self, own: &OwnApproval, decision: ApprovalDecision, note: Option<&Note>) -> Result<Approval> {
        let OwnApproval { owned, approval } = own;
        if decision == ApprovalDecision::Approve
            && let Some(raise) = &approval.raise
        {
            return Box::pin(self.grant_raise(owned, approval, raise, note)).await;
        }
        let (kind, status) = match decision {
            ApprovalDecision::Approve => (AuditKind::ApprovalApproved, ApprovalStatus::Approved),
            ApprovalDecision::Reject => (AuditKind::ApprovalRejected, ApprovalStatus::Rejected),
        };
        let act = Act::new(kind)
            .on(approval.agent)
            .about(approval.service)
            .with(&approval.id);
        let changes = AuditChanges::one("status", ApprovalStatus::Pending.name(), status.name());
        let entry = self.entry(owned.acting(), &act, changes)?;
        let decided = self.store_decision(owned, approval, decision, note, &entry);
        self.audit_rejection(owned.acting(), &act, decided).await
    }

    async fn store_decision(
        &self,
        owned: &OwnedAgent,
        approval: &Approval,
        decision: ApprovalDecision,
        note: Option<&Note>,
        entry: &AuditEntry,
    ) -> Result<Approval> {
        if decision == ApprovalDecision::Approve && self.is_large(approval.amount) {
            self.limits.recently(owned.signed_in_at(), self.now())?;
        }
        let ruling = self.ruling(owned, note);
        let resolved = self.ledger.resolve_approval(approval.id, decision, &ruling, entry);
        check_resolved(resolved.await?, ruling.at)
    }

    pub(crate) fn ruling(&self, owned: &OwnedAgent, note: Option<&Note>) -> ApprovalResolution {
        ApprovalResolution {
            at: self.now(),
            by: owned.agent().owner.clone(),
            note: note.map(|note| note.as_str().to_owned()),
        }
    }

    async fn context_of(&self, owned: OwnedAgent, approval: Approval) -> Result<ApprovalContext> {
        let place = (approval.agent, approval.service);
        let open = approval.status(self.now()).is_open();
        let days = self
            .days(&owned.agent().owner, open.then_some(place).into_iter().collect())
            .await?;
        Ok(ApprovalContext {
            approval,
            agent: Arc::new(owned),
            day: days.get(&place).copied(),
        })
    }

    async fn contexts(&self, person: &Caller, approvals: Vec<Approval>) -> Result<Vec<ApprovalContext>> {
        let now = self.now();
        let asking: BTreeSet<AgentId> = approvals.iter().map(|approval| approval.agent).collect();
        let open = approvals.iter().filter(|approval| approval.status(now).is_open());
        let places = open.map(|approval| (approval.agent, approval.service)).collect();
        let agents = several(asking, |id| {
            let ledger = self.ledger.clone();
            async move { ledger.agent(id).await }
        });
        let (agents, days) = tokio::try_join!(agents, self.days(person.id.as_str(), places))?;
        let own = agents
            .into_iter()
            .flatten()
            .filter_map(|agent| OwnedAgent::new(person, agent));
        let agents: BTreeMap<AgentId, Arc<OwnedAgent>> = own.map(|owned| (owned.agent().id, Arc::new(owned))).collect();
        let contexts = approvals.into_iter().filter_map(|approval| {
            let approval = approval.seen_by(person.id.as_str(), now)?;
            Some(ApprovalContext {
                agent: agents.get(&approval.agent).cloned()?,
                day: days
                    .get(&(approval.agent, approval.service))
                    .copied()
                    .filter(|_| approval.status(now).is_open()),
                approval,
            })
        });
        Ok(contexts.collect())
    }

    /// The daily cap and the amount used, for each of these services of an owner's agents that is enabled.
    async fn days(
        &self,
        owner: &str,
        places: BTreeSet<(AgentId, ServiceId)>,
    ) -> Result<BTreeMap<(AgentId, ServiceId), DailyUsage>> {
        let scopes: Vec<_> = places
            .iter()
            .map(|(agent, service)| (day(*agent, *service), Duration::DAY))
            .collect();
        let records = several(places, |(agent, service)| {
            let ledger = self.ledger.clone();
            async move { Ok((agent, ledger.find_enabled_service(agent, service).await?)) }
        });
        let (records, spends) = tokio::try_join!(records, self.spends(&scopes))?;
        let enabled = records
            .into_iter()
            .filter_map(|(agent, record)| Some((agent, record.filter(|record| record.enabled)?)));
        let now = self.now();
        let rooms = enabled.map(|(agent, record)| {
            let room = DailyUsage {
                cap: record.policy.caps(owner, now).per_day,
                used: spends.in_window(day(agent, record.service)),
            };
            ((agent, record.service), room)
        });
        Ok(rooms.collect())
    }
}

fn check_resolved(resolved: ResolveResult, at: Timestamp) -> Result<Approval> {
    match resolved {
        ResolveResult::Done(approval) => Ok(approval),
        ResolveResult::Already(approval) => Err(ErrorKind::ApprovalNotPending {
            approval: approval.id,
            status: approval.status(at),
        }
        .into()),
        ResolveResult::NotFound => Err(ErrorKind::NotFound.into()),
    }
}

const fn day(agent: AgentId, service: ServiceId) -> WindowScope {
    WindowScope::Day { agent, service }
}
