//! One row of the audit log: an edit, a session, an act that was refused, or an outflow that no settlement explains.
//!
//! Always true: a row is of one person, of one operator or of reconcile; its texts are cut to a length, so that it stays far below an
//! item's largest size; no secret, digest of one or body is in it.

use crate::{
    AgentId, AuditChanges, AuditId, OperatorName, PersonId, ServiceId, SessionId, Timestamp, catalog::service::named,
};
use std::fmt;

named! {
    /// The kinds of acts. A refused sign-in is a session that was not started.
    AuditKind {
        /// An agent was created.
        AgentCreated = "agent_created",
        /// An agent was renamed.
        AgentRenamed = "agent_renamed",
        /// An agent was frozen.
        AgentFrozen = "agent_frozen",
        /// An agent was unfrozen.
        AgentUnfrozen = "agent_unfrozen",
        /// An agent key was created.
        KeyCreated = "key_created",
        /// An agent key was replaced by another.
        KeyRotated = "key_rotated",
        /// An agent key was ended.
        KeyRevoked = "key_revoked",
        /// A service was enabled for an agent.
        ServiceEnabled = "service_enabled",
        /// A service was disabled for an agent.
        ServiceDisabled = "service_disabled",
        /// An agent's policy for a service was edited.
        PolicyEdited = "policy_edited",
        /// A rule was added.
        RuleAdded = "rule_added",
        /// A rule was replaced.
        RuleReplaced = "rule_replaced",
        /// A rule was removed.
        RuleRemoved = "rule_removed",
        /// An address for an agent's payouts was named.
        PayoutAddressNamed = "payout_address_named",
        /// It was removed.
        PayoutAddressRemoved = "payout_address_removed",
        /// Money of an agent was paid out.
        PaidOut = "paid_out",
        /// An approval was approved.
        ApprovalApproved = "approval_approved",
        /// An approval was rejected.
        ApprovalRejected = "approval_rejected",
        /// A webhook was made.
        WebhookCreated = "webhook_created",
        /// What a webhook is called with, or where, was edited.
        WebhookEdited = "webhook_edited",
        /// A webhook got another secret.
        WebhookSecretRotated = "webhook_secret_rotated",
        /// A webhook was removed.
        WebhookRemoved = "webhook_removed",
        /// What a person is told, or where, was edited.
        NoticesEdited = "notices_edited",
        /// A person signed in.
        SessionStarted = "session_started",
        /// A session was ended.
        SessionEnded = "session_ended",
        /// All sessions of a person were ended.
        SessionsEnded = "sessions_ended",
        /// A catalog entry was created or replaced.
        CatalogEdited = "catalog_edited",
        /// The payment that a probe saw became an operation's.
        PaymentPinned = "payment_pinned",
        /// Another operator's change of a payee or price was accepted.
        PaymentChangeAccepted = "payment_change_accepted",
        /// A service's trust status was set.
        TrustStatusSet = "trust_status_set",
        /// A service was taken into the curated set, or out of it.
        CuratedSet = "curated_set",
        /// A probe was asked for.
        ProbeRequested = "probe_requested",
        /// The reconciliation of a settlement was asked for.
        ReconcileRequested = "reconcile_requested",
        /// An agent, an owner's agents or the deployment was frozen.
        FreezeSet = "freeze_set",
        /// Such a freeze was ended.
        FreezeEnded = "freeze_ended",
        /// An agent was offered to another owner.
        HandoverOffered = "handover_offered",
        /// Such an offer was taken back.
        HandoverTakenBack = "handover_taken_back",
        /// Its new owner accepted an agent.
        HandoverAccepted = "handover_accepted",
        /// Money left an agent's wallet, and no settlement explains it.
        OutflowFound = "outflow_found",
    }
}

/// A part of the log. Roles tell by it who may add to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditScope {
    /// What this person did, and what operators did and reconcile found of what is theirs.
    Person(PersonId),
    /// What operators did.
    Operators,
    /// Which outflows reconcile found.
    Outflows,
}

/// Who acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person.
    Person {
        /// Who.
        id: PersonId,
        /// In which session; `None` with an ID token.
        session: Option<SessionId>,
    },
    /// An operator.
    Operator(OperatorName),
    /// Nobody that we know: reconcile saw it on chain.
    Reconcile,
}

/// The person's id, the operator's name, or `reconcile`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { id, .. } => id.fmt(f),
            Self::Operator(name) => name.fmt(f),
            Self::Reconcile => f.write_str("reconcile"),
        }
    }
}

/// Who acts, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// Who.
    pub actor: Actor,
    /// From where.
    pub source: RequestSource,
}

impl Acting {
    /// The row of what was done, or tried, at that time; `random` distinguishes rows of one microsecond.
    pub fn record(&self, at: Timestamp, random: [u8; 8], act: &Act, outcome: AuditOutcome) -> AuditRecord {
        AuditRecord {
            id: AuditId::at(at, random),
            at,
            actor: self.actor.clone(),
            source: self.source.clone(),
            act: act.clone(),
            outcome,
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSource {
    /// The address, as the gateway saw it.
    pub address: Option<String>,
    /// The caller's program, in its own words.
    pub user_agent: Option<String>,
    /// The request's id, as in its answer and its log lines.
    pub request_id: String,
}

impl RequestSource {
    /// The longest text that is kept of what a caller says, in characters.
    const LONGEST: usize = 200;

    /// A source, its texts cut to a length.
    pub fn new(address: Option<String>, user_agent: Option<&str>, request_id: &str) -> Self {
        let bounded = |text: &str| text.chars().take(Self::LONGEST).collect();
        Self {
            address,
            user_agent: user_agent.map(bounded),
            request_id: bounded(request_id),
        }
    }
}

/// What was done, or tried, to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The kind.
    pub kind: AuditKind,
    /// The agent that it is about.
    pub agent: Option<AgentId>,
    /// The service that it is about.
    pub service: Option<ServiceId>,
    /// The public id of the key, rule, approval, session or settlement that it is about, or the transfer.
    pub object: Option<String>,
}

impl Act {
    /// An act on nothing in particular.
    pub const fn of(kind: AuditKind) -> Self {
        Self {
            kind,
            agent: None,
            service: None,
            object: None,
        }
    }

    /// The same, on this agent.
    #[must_use]
    pub fn on(self, agent: AgentId) -> Self {
        Self {
            agent: Some(agent),
            ..self
        }
    }

    /// The same, about this service.
    #[must_use]
    pub fn about(self, service: ServiceId) -> Self {
        Self {
            service: Some(service),
            ..self
        }
    }

    /// The same, on the thing with this public id.
    #[must_use]
    pub fn with(self, object: &impl ToString) -> Self {
        Self {
            object: Some(object.to_string()),
            ..self
        }
    }
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It was done, and changed this.
    Done(AuditChanges),
    /// It was refused, and changed nothing.
    Refused(AuditRefusal),
}

/// Why an act was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRefusal {
    /// The slug that was answered.
    pub error: String,
    /// More about it, in words.
    pub reason: String,
}

impl AuditRefusal {
    /// The longest reason, in characters.
    const LONGEST: usize = 500;

    /// A refusal, its words cut to a length.
    pub fn new(error: impl Into<String>, reason: &str) -> Self {
        Self {
            error: error.into(),
            reason: reason.chars().take(Self::LONGEST).collect(),
        }
    }
}

/// One row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its id, which sorts by time.
    pub id: AuditId,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// From where.
    pub source: RequestSource,
    /// What, to what.
    pub act: Act,
    /// What came of it.
    pub outcome: AuditOutcome,
}

/// Which rows of a part of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only what is about this agent.
    pub agent: Option<AgentId>,
    /// Only this kind.
    pub kind: Option<AuditKind>,
    /// Only what happened at this time or later.
    pub from: Option<Timestamp>,
    /// Only what happened before this time.
    pub to: Option<Timestamp>,
    /// Only what was refused.
    pub refused: bool,
}

impl AuditFilter {
    /// Whether a row is wanted, its time aside.
    pub fn includes(&self, record: &AuditRecord) -> bool {
        self.agent.is_none_or(|agent| record.act.agent == Some(agent))
            && self.kind.is_none_or(|kind| record.act.kind == kind)
            && (!self.refused || matches!(record.outcome, AuditOutcome::Refused(_)))
    }
}
