//! Operations that list, read and decide approvals.

use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::several::run_concurrently;
use crate::state::People;
use purser_domain::{
    Act, Agent, AgentId, Amount, Approval, ApprovalId, ApprovalResolution, ApprovalStatus, AuditChanges, AuditKind,
    Caps, Duration, Error, ErrorKind, Fingerprint, GrantRestriction, MAX_NOTE_CHARS, Result, ServiceId, Spend,
    Timestamp, ValidationError, WindowPeriod, WindowScope, is_displayable,
};
use purser_store::{ApprovalCursor, ApprovalDecision, ApprovalList, AuditEntry, ResolveResult};
use purser_store::{Filter, MAX_ROWS_PER_READ, Page, PageRequest, read_page_with_batch_size};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use tracing::warn;

/// The maximum of `APPROVAL_TTL_SECONDS` of the Lambda function `payments`.
const MAX_APPROVAL_DURATION: Duration = Duration::from_secs_u32(31 * 86_400);

/// The maximum number of long-polling requests per agent and minute. One client needs three, of 20 s each.
pub(crate) const AGENT_WAITS_PER_MINUTE: u32 = 4;

/// The maximum number of long-polling requests per owner and minute, so that one owner can't use them all.
pub(crate) const OWNER_WAITS_PER_MINUTE: u32 = 8;

/// The maximum number of long-polling requests per minute. Each occupies an instance for up to 20 s, so 15 requests
/// occupy five instances on average: half of a new AWS account's concurrency. The other half is for users, so that
/// waiting agents never prevent a user from deciding an approval or freezing an agent.
pub(crate) const WAITS_PER_MINUTE: u32 = 15;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note(String);

impl Note {
    /// Trims white space. A blank note is `None`. Line breaks are the only allowed control characters.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, String> {
        let note = text.replace("\r\n", "\n");
        let note = note.trim();
        let is_text = !note.chars().any(|symbol| symbol.is_control() && symbol != '\n')
            && (note.is_empty() || is_displayable(note));
        if note.chars().count() > MAX_NOTE_CHARS || !is_text {
            return Err(format!(
                "must be a text of at most {MAX_NOTE_CHARS} characters, some of them visible, without control characters but line breaks, and without direction marks"
            ));
        }
        Ok((!note.is_empty()).then(|| Self(note.to_owned())))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PendingApproval {
    pub(crate) approval: Approval,
    pub(crate) agent: Arc<OwnedAgent>,
    /// The current caps, for a temporary limit increase of an enabled service.
    pub(crate) caps: Option<Caps>,
}

/// An approval with the details that the owner needs to decide.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalContext {
    pub(crate) approval: Approval,
    pub(crate) agent: Arc<OwnedAgent>,
    /// `None` if the approval can't lead to a payment any more, or if the service is not enabled.
    pub(crate) day: Option<DailyUsage>,
}

#[derive(Debug)]
pub(crate) struct OwnApproval {
    owned: OwnedAgent,
    approval: Approval,
}

impl OwnApproval {
    pub(crate) const fn agent(&self) -> &Agent {
        self.owned.agent()
    }

    pub(crate) const fn owned_agent(&self) -> &OwnedAgent {
        &self.owned
    }

    pub(crate) const fn approval(&self) -> &Approval {
        &self.approval
    }
}

/// A service's caps, and the amount that counts against the daily cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DailyUsage {
    pub(crate) caps: Caps,
    pub(crate) used: Spend,
}

/// The maximum number of approvals that one call decides.
pub(crate) const MAX_AT_ONCE: usize = 50;

pub(crate) fn parse_decision(name: &str) -> Option<ApprovalDecision> {
    match name {
        "approve" => Some(ApprovalDecision::Approve),
        "reject" => Some(ApprovalDecision::Reject),
        _ => None,
    }
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Decided(Approval),
    /// The approval was not pending, so nothing was written.
    NotPending(Approval),
    /// A temporary limit increase can only be granted on the approval's own page, so nothing was written.
    NotInBulk(Approval),
    NotFound,
    /// It is unknown whether the decision was stored.
    Failed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApprovalFilter {
    pub(crate) agent: Option<AgentId>,
    /// Selects approvals with this status at the time of the request; `None` for every status.
    pub(crate) status: Option<ApprovalStatus>,
    /// Selects only approvals that are no longer pending.
    pub(crate) decided: bool,
}

/// A page of the pending approvals, and the number of all pending approvals.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Oldest first.
    pub(crate) items: Vec<PendingApproval>,
    /// The cursor of the next page, which has older approvals.
    pub(crate) next: Option<ApprovalCursor>,
    /// The number of pending approvals of all of the user's agents.
    pub(crate) count: WaitingCount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingCount {
    pub(crate) number: usize,
    /// Whether there may be more approvals than `number`.
    pub(crate) is_more: bool,
}

impl fmt::Display for WaitingCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, if self.is_more { "+" } else { "" })
    }
}

impl People {
    /// Returns whether a request may wait for the decision on this approval. Otherwise, the response is immediate.
    pub(crate) async fn may_wait_for_decision(&self, approval: &Approval) -> bool {
        let owner = format!("approval waits of {}", Fingerprint::for_text(&approval.owner));
        let scopes = [
            (&self.agent_waits, format!("approval waits {}", approval.agent)),
            (&self.owner_waits, owner),
            (&self.waits, "approval waits".to_owned()),
        ];
        for (throttle, scope) in scopes {
            if throttle
                .run_limited_by(scope, self.now(), async { Ok(()) })
                .await
                .is_err()
            {
                return false;
            }
        }
        true
    }

    /// Lists the user's approvals, newest first. A new approval may be missing for a moment.
    pub(crate) async fn list_approvals(
        &self,
        user: &Caller,
        filter: ApprovalFilter,
        page_request: PageRequest<ApprovalCursor>,
    ) -> Result<Page<ApprovalContext, ApprovalCursor>> {
        if let Some(agent) = filter.agent {
            self.read_own_agent(user, agent).await?;
        }
        let now = self.now();
        let list = match filter.status {
            Some(ApprovalStatus::Pending) => ApprovalList::UndecidedSince(now.before(MAX_APPROVAL_DURATION)),
            _ if filter.decided => ApprovalList::DecidedOrBefore(self.oldest_open_approval_time()),
            _ => ApprovalList::All,
        };
        let only_open = filter.status.is_some_and(ApprovalStatus::is_open);
        let keep = |approval: &Approval| {
            if only_open && now.since(approval.created_at) > MAX_APPROVAL_DURATION {
                return Filter::Stop;
            }
            Filter::keep_if(
                filter.agent.is_none_or(|agent| approval.agent == agent)
                    && filter.status.is_none_or(|status| approval.status(now) == status)
                    && !(filter.decided && approval.status(now) == ApprovalStatus::Pending),
            )
        };
        let read = |before, count: u32| {
            let count = u8::try_from(count).unwrap_or(u8::MAX);
            self.ledger.read_owners_approvals(user.id.as_str(), list, before, count)
        };
        let filtered = filter != ApprovalFilter::default();
        // A filtered page may read four times as many approvals as it contains.
        let reads = (4, page_request.limit.saturating_add(1).min(MAX_ROWS_PER_READ));
        let page =
            read_page_with_batch_size(page_request, reads, filtered.then_some(keep), ApprovalCursor::new, read).await?;
        Ok(Page {
            items: self.load_approval_contexts(user, page.items).await?,
            next: page.next,
        })
    }

    /// Lists pending approvals, newest first, for one agent or for all agents.
    async fn list_pending_approvals(
        &self,
        user: &Caller,
        agent_id: Option<AgentId>,
        before: Option<ApprovalCursor>,
        max_rows: u32,
    ) -> Result<Page<Approval, ApprovalCursor>> {
        let (now, since) = (self.now(), self.oldest_open_approval_time());
        let page_request = PageRequest {
            before,
            limit: max_rows,
        };
        let is_pending = |approval: &Approval| approval.status(now) == ApprovalStatus::Pending;
        let Some(agent) = agent_id else {
            let list = ApprovalList::UndecidedSince(since);
            let read = |before, count: u32| {
                let count = u8::try_from(count).unwrap_or(u8::MAX);
                self.ledger.read_owners_approvals(user.id.as_str(), list, before, count)
            };
            let rows = max_rows.saturating_add(1);
            let keep = |approval: &Approval| Filter::keep_if(is_pending(approval));
            return read_page_with_batch_size(page_request, (2, rows), Some(keep), ApprovalCursor::new, read).await;
        };
        // One row per agent has the ids of the approvals that may be pending.
        let waiting = self.ledger.read_agents_with_approvals(vec![agent]).await?;
        let ids = waiting.into_iter().flat_map(|(_, ids)| ids);
        let mut approvals = self.ledger.read_approvals(ids).await?;
        approvals.retain(|approval| {
            is_pending(approval)
                && approval.owner == user.id.as_str()
                && before.is_none_or(|before| ApprovalCursor::new(approval) < before)
        });
        approvals.sort_by_key(|approval| std::cmp::Reverse(ApprovalCursor::new(approval)));
        let is_more = approvals.len() > usize::try_from(max_rows).unwrap_or(usize::MAX);
        approvals.truncate(usize::try_from(max_rows).unwrap_or(usize::MAX));
        let next = approvals.last().filter(|_| is_more).map(ApprovalCursor::new);
        Ok(Page { items: approvals, next })
    }

    /// Approvals that were created before this time are decided or expired.
    fn oldest_open_approval_time(&self) -> Timestamp {
        self.now().before(self.approval_ttl)
    }

    pub(crate) async fn count_pending_approvals(&self, user: &Caller) -> Result<WaitingCount> {
        /// Above this number, the page shows `99+`.
        const MAX: u8 = 99;
        let since = self.oldest_open_approval_time();
        let max = MAX.saturating_add(1);
        let counted = self.ledger.count_undecided_approvals(user.id.as_str(), since, max);
        let counted = counted.await?;
        Ok(WaitingCount {
            number: counted.min(MAX.into()),
            is_more: counted > usize::from(MAX),
        })
    }

    /// Reads a page of pending approvals, and the number of all pending approvals.
    pub(crate) async fn read_waiting_approvals(
        &self,
        user: &Caller,
        agent_id: Option<AgentId>,
        before: Option<ApprovalCursor>,
        max_rows: u32,
    ) -> Result<Waiting> {
        let page = self.list_pending_approvals(user, agent_id, before, max_rows).await?;
        // The count ignores the page's filter, so that the user overlooks no approval.
        let count = if agent_id.is_some() || before.is_some() || page.next.is_some() {
            self.count_pending_approvals(user).await?
        } else {
            WaitingCount {
                number: page.items.len(),
                is_more: false,
            }
        };
        let mut waiting = page.items;
        waiting.reverse();
        let ids: BTreeSet<AgentId> = waiting.iter().map(|approval| approval.agent).collect();
        let agents = self.ledger.read_agents(ids).await?;
        self.move_approvals_to_owners(&waiting, &agents).await?;
        let own = agents.into_iter().filter_map(|agent| OwnedAgent::new(user, agent));
        let agents: Vec<Arc<OwnedAgent>> = own.map(Arc::new).collect();
        let caps = self.read_caps_for_limit_increases(user, &waiting).await?;
        let items = waiting.into_iter().filter_map(|approval| {
            let owned = agents.iter().find(|owned| owned.agent().id == approval.agent);
            Some(PendingApproval {
                agent: Arc::clone(owned?),
                caps: caps.get(&(approval.agent, approval.service)).copied(),
                approval,
            })
        });
        Ok(Waiting {
            items: items.collect(),
            next: page.next,
            count,
        })
    }

    /// Reads the current caps of each service for which an agent requests a temporary limit increase.
    pub(crate) async fn read_caps_for_limit_increases(
        &self,
        user: &Caller,
        approvals: impl IntoIterator<Item = &Approval>,
    ) -> Result<BTreeMap<(AgentId, ServiceId), Caps>> {
        let requests = approvals.into_iter().filter(|approval| approval.raise.is_some());
        let pairs = requests.map(|request| (request.agent, request.service)).collect();
        self.read_enabled_service_caps(user.id.as_str(), pairs).await
    }

    /// Completes ownership transfers that were interrupted before they moved the approvals to the new owner.
    async fn move_approvals_to_owners(&self, approvals: &[Approval], agents: &[Agent]) -> Result<()> {
        for approval in approvals {
            if let Some(agent) = agents.iter().find(|agent| agent.id == approval.agent) {
                self.ledger
                    .move_approval_to_owner(approval, &agent.owner, self.now())
                    .await?;
            }
        }
        Ok(())
    }

    /// Returns `not_found` for an unknown approval and for another agent's approval.
    pub(crate) async fn read_own_approval(&self, owned: OwnedAgent, id: ApprovalId) -> Result<OwnApproval> {
        let approval = self.ledger.read_approval_by_id(id).await?;
        let own = approval.filter(|approval| approval.agent == owned.agent().id);
        let (current, now) = (owned.agent().owner.as_str(), self.now());
        let mut approval = own
            .and_then(|approval| approval.for_current_owner(current, now))
            .ok_or(ErrorKind::NotFound)?;
        // After an ownership transfer, the pending approval is moved to the new owner.
        self.ledger.move_approval_to_owner(&approval, current, now).await?;
        approval.owner = current.to_owned();
        Ok(OwnApproval { owned, approval })
    }

    pub(crate) async fn read_approval_context(&self, owned_approval: OwnApproval) -> Result<ApprovalContext> {
        self.load_approval_context(owned_approval.owned, owned_approval.approval)
            .await
    }

    /// Returns the approvals in the order of the ids, with `None` for each approval of another user's agent.
    pub(crate) async fn read_own_approvals(
        &self,
        user: &Caller,
        ids: &[ApprovalId],
    ) -> Result<Vec<(ApprovalId, Option<OwnApproval>)>> {
        let now = self.now();
        let approvals = self.ledger.read_approvals(ids.iter().copied()).await?;
        let agents: BTreeSet<AgentId> = approvals.iter().map(|approval| approval.agent).collect();
        let mut agents = self.ledger.read_agents(agents).await?;
        agents.retain(|agent| agent.owner == user.id.as_str());
        self.move_approvals_to_owners(&approvals, &agents).await?;
        let owned: Vec<OwnedAgent> = agents
            .into_iter()
            .filter_map(|agent| OwnedAgent::new(user, agent))
            .collect();
        let own = |id: ApprovalId| {
            let approval = approvals.iter().find(|approval| approval.id == id)?.clone();
            let owned = owned.iter().find(|owned| owned.agent().id == approval.agent)?.clone();
            let mut approval = approval.for_current_owner(&owned.agent().owner, now)?;
            approval.owner.clone_from(&owned.agent().owner);
            Some(OwnApproval { owned, approval })
        };
        Ok(ids.iter().map(|id| (*id, own(*id))).collect())
    }

    /// Decides each approval with a separate write and audit row. A large sum requires a recent sign-in.
    pub(crate) async fn decide_approvals(
        &self,
        user: &Caller,
        selected: Vec<(ApprovalId, Option<OwnApproval>)>,
        decision: ApprovalDecision,
        note: Option<&Note>,
    ) -> Result<Vec<(ApprovalId, Outcome)>> {
        if decision == ApprovalDecision::Approve && self.is_large_amount(self.sum_pending_amounts(&selected)) {
            let action = Act::new(AuditKind::ApprovalApproved);
            let recent = async { self.limits.require_recent_sign_in(user.signed_in_at, self.now()) };
            self.audit_rejection(&user.acting, &action, recent).await?;
        }
        let decide = Box::pin(async {
            let mut outcomes = Vec::new();
            for (id, own) in selected {
                let outcome = match own {
                    None => Outcome::NotFound,
                    Some(own) => self.decide_selected_approval(own, decision, note).await?,
                };
                outcomes.push((id, outcome));
            }
            Ok(outcomes)
        });
        match decision {
            ApprovalDecision::Approve => self.run_in_long_operation_slot(user.id.as_str(), decide).await,
            ApprovalDecision::Reject => decide.await,
        }
    }

    /// Sums the selected pending payments. Temporary limit increases are not payments.
    pub(crate) fn sum_pending_amounts(&self, selected: &[(ApprovalId, Option<OwnApproval>)]) -> Amount {
        let now = self.now();
        let own = selected.iter().filter_map(|(_, own)| own.as_ref());
        let pending = own.filter(|own| own.approval.status(now) == ApprovalStatus::Pending);
        let payments = pending.filter(|own| own.approval.raise.is_none());
        payments.fold(Amount::ZERO, |sum, own| {
            sum.plus(own.approval.amount).unwrap_or(Amount::MAX)
        })
    }

    pub(crate) fn is_large_amount(&self, amount: Amount) -> bool {
        amount > self.limits.recent_sign_in_above
    }

    async fn decide_selected_approval(
        &self,
        owned_approval: OwnApproval,
        decision: ApprovalDecision,
        note: Option<&Note>,
    ) -> Result<Outcome> {
        let approval = owned_approval.approval.clone();
        let is_pending = approval.status(self.now()) == ApprovalStatus::Pending;
        if decision == ApprovalDecision::Approve && approval.raise.is_some() && is_pending {
            return Ok(Outcome::NotInBulk(approval));
        }
        let restriction = GrantRestriction::default();
        let error = match self
            .record_decision(&owned_approval, decision, &restriction, note)
            .await
        {
            Ok(approval) => return Ok(Outcome::Decided(approval)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::ApprovalNotPending { .. } => {
                let now = self.ledger.read_approval_by_id(approval.id).await?;
                Ok(now.map_or(Outcome::NotFound, Outcome::NotPending))
            }
            ErrorKind::NotFound => Ok(Outcome::NotFound),
            ErrorKind::Internal => {
                // The response must still contain the outcomes of the other approvals.
                warn!(approval.id = %approval.id, cause = %error, "approval.not_decided");
                Ok(Outcome::Failed)
            }
            _ => Err(error),
        }
    }

    /// Rejects an approval that no payment has used. A temporary limit increase that it granted ends first.
    pub(crate) async fn withdraw_approval(
        &self,
        owned_approval: OwnApproval,
        note: Option<&Note>,
    ) -> Result<ApprovalContext> {
        let OwnApproval { owned, approval } = owned_approval;
        if approval.raise.is_some() && approval.status(self.now()) == ApprovalStatus::Approved {
            Box::pin(self.end_limit_increase(&owned, &approval)).await?;
        }
        let action = approval_action(AuditKind::ApprovalWithdrawn, &approval);
        let (before, after) = (ApprovalStatus::Approved, ApprovalStatus::Rejected);
        let entry = self.audit_entry(
            owned.acting(),
            &action,
            AuditChanges::single("status", before.name(), after.name()),
        )?;
        let withdrawn = async {
            let resolution = self.approval_resolution(&owned, note);
            let resolved = self.ledger.withdraw_approval(approval.id, &resolution, &entry).await?;
            require_resolved(resolved, resolution.at)
        };
        let withdrawn = self.audit_rejection(owned.acting(), &action, withdrawn).await?;
        self.load_approval_context(owned, withdrawn).await
    }

    /// Stores the owner's decision on a pending approval. Only a temporary limit increase may have a `restriction`.
    pub(crate) async fn decide_approval(
        &self,
        owned_approval: OwnApproval,
        decision: ApprovalDecision,
        restriction: &GrantRestriction,
        note: Option<&Note>,
    ) -> Result<ApprovalContext> {
        let decided = self
            .record_decision(&owned_approval, decision, restriction, note)
            .await?;
        self.load_approval_context(owned_approval.owned, decided).await
    }

    async fn record_decision(
        &self,
        owned_approval: &OwnApproval,
        decision: ApprovalDecision,
        restriction: &GrantRestriction,
        note: Option<&Note>,
    ) -> Result<Approval> {
        let OwnApproval { owned, approval } = owned_approval;
        if decision == ApprovalDecision::Approve
            && let Some(increase) = &approval.raise
        {
            return Box::pin(self.grant_limit_increase(owned, approval, increase, restriction, note)).await;
        }
        if *restriction != GrantRestriction::default() {
            return Err(Error::invalid(vec![ValidationError::at_path(
                "",
                "caps and `until` are only for the approval of a limit increase",
            )]));
        }
        let (kind, status) = match decision {
            ApprovalDecision::Approve => (AuditKind::ApprovalApproved, ApprovalStatus::Approved),
            ApprovalDecision::Reject => (AuditKind::ApprovalRejected, ApprovalStatus::Rejected),
        };
        let action = approval_action(kind, approval);
        let changes = AuditChanges::single("status", ApprovalStatus::Pending.name(), status.name());
        let entry = self.audit_entry(owned.acting(), &action, changes)?;
        let decided = self.store_decision(owned, approval, decision, note, &entry);
        self.audit_rejection(owned.acting(), &action, decided).await
    }

    async fn store_decision(
        &self,
        owned: &OwnedAgent,
        approval: &Approval,
        decision: ApprovalDecision,
        note: Option<&Note>,
        entry: &AuditEntry,
    ) -> Result<Approval> {
        if decision == ApprovalDecision::Approve && self.is_large_amount(approval.amount) {
            self.limits.require_recent_sign_in(owned.signed_in_at(), self.now())?;
        }
        let resolution = self.approval_resolution(owned, note);
        let resolved = self.ledger.resolve_approval(approval.id, decision, &resolution, entry);
        require_resolved(resolved.await?, resolution.at)
    }

    pub(crate) fn approval_resolution(&self, owned: &OwnedAgent, note: Option<&Note>) -> ApprovalResolution {
        ApprovalResolution {
            at: self.now(),
            by: owned.agent().owner.clone(),
            note: note.map(|note| note.as_str().to_owned()),
        }
    }

    pub(crate) async fn load_approval_context(&self, owned: OwnedAgent, approval: Approval) -> Result<ApprovalContext> {
        let place = (approval.agent, approval.service);
        let open = approval.status(self.now()).is_open();
        let days = self
            .read_daily_usage(&owned.agent().owner, open.then_some(place).into_iter().collect())
            .await?;
        Ok(ApprovalContext {
            approval,
            agent: Arc::new(owned),
            day: days.get(&place).copied(),
        })
    }

    async fn load_approval_contexts(&self, user: &Caller, approvals: Vec<Approval>) -> Result<Vec<ApprovalContext>> {
        let now = self.now();
        let asking_limits: BTreeSet<AgentId> = approvals.iter().map(|approval| approval.agent).collect();
        let open = approvals.iter().filter(|approval| approval.status(now).is_open());
        let cursors = open.map(|approval| (approval.agent, approval.service)).collect();
        let agents = run_concurrently(asking_limits, |id| {
            let ledger = self.ledger.clone();
            async move { ledger.read_agent_by_id(id).await }
        });
        let (agents, days) = tokio::try_join!(agents, self.read_daily_usage(user.id.as_str(), cursors))?;
        let own = agents
            .into_iter()
            .flatten()
            .filter_map(|agent| OwnedAgent::new(user, agent));
        let agents: BTreeMap<AgentId, Arc<OwnedAgent>> = own.map(|owned| (owned.agent().id, Arc::new(owned))).collect();
        let contexts = approvals.into_iter().filter_map(|approval| {
            let approval = approval.for_current_owner(user.id.as_str(), now)?;
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

    /// Reads the caps, and the amount that counts against the daily cap, for each pair of an agent and a service. Omits
    /// the pairs whose service is not enabled for the agent.
    async fn read_daily_usage(
        &self,
        owner: &str,
        pairs: BTreeSet<(AgentId, ServiceId)>,
    ) -> Result<BTreeMap<(AgentId, ServiceId), DailyUsage>> {
        let scopes: Vec<_> = pairs
            .iter()
            .map(|(agent, service)| (daily_window_scope(*agent, *service), WindowPeriod::DAY))
            .collect();
        let (caps, spends) = tokio::try_join!(
            self.read_enabled_service_caps(owner, pairs),
            self.read_spend_in_windows(&scopes)
        )?;
        let usage = caps.into_iter().map(|((agent, service), caps)| {
            let used = spends.spend_in_window(daily_window_scope(agent, service));
            ((agent, service), DailyUsage { caps, used })
        });
        Ok(usage.collect())
    }

    /// Reads the caps for each pair of an agent and a service. Omits each pair whose service is not enabled for the
    /// agent.
    async fn read_enabled_service_caps(
        &self,
        owner: &str,
        pairs: BTreeSet<(AgentId, ServiceId)>,
    ) -> Result<BTreeMap<(AgentId, ServiceId), Caps>> {
        let records = run_concurrently(pairs, |(agent, service)| {
            let ledger = self.ledger.clone();
            async move { Ok((agent, ledger.find_enabled_service(agent, service).await?)) }
        });
        let enabled = records.await?.into_iter();
        let enabled = enabled.filter_map(|(agent, record)| Some((agent, record.filter(|record| record.enabled)?)));
        let now = self.now();
        let caps = enabled.map(|(agent, record)| ((agent, record.service), record.policy.caps(owner, now)));
        Ok(caps.collect())
    }
}

pub(crate) fn approval_action(kind: AuditKind, approval: &Approval) -> Act {
    Act::new(kind)
        .on_agent(approval.agent)
        .about_service(approval.service)
        .with_object(&approval.id)
}

fn require_resolved(result: ResolveResult, at: Timestamp) -> Result<Approval> {
    match result {
        ResolveResult::Done(approval) => Ok(approval),
        ResolveResult::Already(approval) => Err(ErrorKind::ApprovalNotPending {
            approval: approval.id,
            status: approval.status(at),
        }
        .into()),
        ResolveResult::NotFound => Err(ErrorKind::NotFound.into()),
    }
}

const fn daily_window_scope(agent: AgentId, service: ServiceId) -> WindowScope {
    WindowScope::Day { agent, service }
}
