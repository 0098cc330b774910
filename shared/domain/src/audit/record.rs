//! One row of the audit log: an edit, a session, a refused act, or an outflow that no settlement explains.
//!
//! Invariants: a row belongs to one person, one operator or reconcile; that of a freeze by a rule belongs to the agent's
//! owner. Its texts are truncated, so that it stays far
//! below the maximum size of an item. It contains no secret, digest of a secret, or body.

use crate::{
    AgentId, AuditChanges, AuditId, EditReason, OperatorName, PersonId, ServiceId, SessionId, Timestamp,
    catalog::service::named,
};
use std::fmt;

named! {
    /// The kind of an act. A refused sign-in is recorded as a session start that was refused.
    AuditKind {
        /// An agent was created.
        AgentCreated = "agent_created",
        /// An agent was renamed.
        AgentRenamed = "agent_renamed",
        /// An agent was frozen.
        AgentFrozen = "agent_frozen",
        /// An agent was unfrozen.
        AgentUnfrozen = "agent_unfrozen",
        /// An agent was archived, and thereby frozen.
        AgentArchived = "agent_archived",
        /// An archived agent was restored, still frozen.
        AgentRestored = "agent_restored",
        /// An agent's labels were edited.
        AgentLabelsEdited = "agent_labels_edited",
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
        /// An agent's payout address was set.
        PayoutAddressNamed = "payout_address_named",
        /// An agent's payout address was removed.
        PayoutAddressRemoved = "payout_address_removed",
        /// Money of an agent was paid out.
        PaidOut = "paid_out",
        /// An approval was approved.
        ApprovalApproved = "approval_approved",
        /// An approval was rejected.
        ApprovalRejected = "approval_rejected",
        /// An approval that no payment had used was withdrawn.
        ApprovalWithdrawn = "approval_withdrawn",
        /// A webhook was created.
        WebhookCreated = "webhook_created",
        /// A webhook's URL or events were edited.
        WebhookEdited = "webhook_edited",
        /// A webhook's secret was rotated.
        WebhookSecretRotated = "webhook_secret_rotated",
        /// A webhook was removed.
        WebhookRemoved = "webhook_removed",
        /// A person's notice settings were edited.
        NoticesEdited = "notices_edited",
        /// A backtest was started.
        BacktestStarted = "backtest_started",
        /// A shadow was attached to an agent.
        ShadowAttached = "shadow_attached",
        /// The limits of a shadow were put in force.
        ShadowPromoted = "shadow_promoted",
        /// A shadow was removed.
        ShadowRemoved = "shadow_removed",
        /// A policy template was created.
        PolicyTemplateCreated = "policy_template_created",
        /// A policy template was edited, or became or ceased to be the default.
        PolicyTemplateEdited = "policy_template_edited",
        /// A policy template was removed.
        PolicyTemplateRemoved = "policy_template_removed",
        /// A policy template was applied to an agent, which follows it.
        PolicyTemplateApplied = "policy_template_applied",
        /// An agent ceased to follow a policy template.
        PolicyTemplateUnfollowed = "policy_template_unfollowed",
        /// A person signed in.
        SessionStarted = "session_started",
        /// A session was ended.
        SessionEnded = "session_ended",
        /// All sessions of a person were ended.
        SessionsEnded = "sessions_ended",
        /// A catalog entry was created or replaced.
        CatalogEdited = "catalog_edited",
        /// An operation's payment was pinned to the one that a probe saw.
        PaymentPinned = "payment_pinned",
        /// Another operator's change of a payee or price was accepted.
        PaymentChangeAccepted = "payment_change_accepted",
        /// A delayed change of a payee or price was withdrawn.
        PaymentChangeWithdrawn = "payment_change_withdrawn",
        /// A service's trust status was set.
        TrustStatusSet = "trust_status_set",
        /// A service was added to the curated set, or removed from it.
        CuratedSet = "curated_set",
        /// A probe was requested.
        ProbeRequested = "probe_requested",
        /// The reconciliation of a settlement was requested.
        ReconcileRequested = "reconcile_requested",
        /// An agent, an owner's agents or the deployment was frozen.
        FreezeSet = "freeze_set",
        /// A freeze by operators was ended.
        FreezeEnded = "freeze_ended",
        /// An operator in a browser asked a second operator to end a freeze.
        FreezeEndRequested = "freeze_end_requested",
        /// An agent was offered to another owner.
        HandoverOffered = "handover_offered",
        /// An offer of an agent was withdrawn.
        HandoverTakenBack = "handover_taken_back",
        /// An offered agent was accepted by its new owner.
        HandoverAccepted = "handover_accepted",
        /// Money left an agent's wallet, and no settlement explains it.
        OutflowFound = "outflow_found",
    }
}

/// A part of the log. The IAM role of a function is limited to the parts that it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditScope {
    /// The acts of this person, and the acts of operators and findings of reconcile that concern them.
    Person(PersonId),
    /// The acts of operators.
    Operators,
    /// The outflows that reconcile found.
    Outflows,
}

/// The actor of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person.
    Person {
        /// The person's id.
        id: PersonId,
        /// The session; `None` if the caller used an ID token.
        session: Option<SessionId>,
    },
    /// An operator.
    Operator(OperatorName),
    /// An unknown actor: reconcile found the act on chain.
    Reconcile,
    /// Purser, by a rule of an agent of this person.
    Rule {
        /// The agent's owner.
        owner: PersonId,
    },
}

/// The person's id, the operator's name, `reconcile`, or `rule`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { id, .. } => id.fmt(f),
            Self::Operator(name) => name.fmt(f),
            Self::Reconcile => f.write_str("reconcile"),
            Self::Rule { .. } => f.write_str("rule"),
        }
    }
}

/// The actor and the source of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// The actor.
    pub actor: Actor,
    /// The source of the request.
    pub source: RequestSource,
}

impl Acting {
    /// The row of an act, done or refused, at this time; `random` distinguishes rows of the same microsecond.
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

/// The source of a request, and the reason that it gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSource {
    /// The caller's IP address according to the gateway.
    pub address: Option<String>,
    /// The caller's user agent.
    pub user_agent: Option<String>,
    /// The id of the request, which is also in its answer and its log lines.
    pub request_id: String,
    /// The caller's reason for an edit of limits.
    pub reason: Option<EditReason>,
}

impl RequestSource {
    /// The maximum length of a stored text from the caller, in characters.
    const LONGEST: usize = 200;

    /// A source with truncated texts, without a reason.
    pub fn new(address: Option<String>, user_agent: Option<&str>, request_id: &str) -> Self {
        let bounded = |text: &str| text.chars().take(Self::LONGEST).collect();
        Self {
            address,
            user_agent: user_agent.map(bounded),
            request_id: bounded(request_id),
            reason: None,
        }
    }
}

/// An act and its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The kind of the act.
    pub kind: AuditKind,
    /// The agent that the act concerns.
    pub agent: Option<AgentId>,
    /// The service that the act concerns.
    pub service: Option<ServiceId>,
    /// The public id of the key, rule, approval, session or settlement that the act concerns, or the transfer.
    pub object: Option<String>,
}

impl Act {
    /// An act without an object.
    pub const fn of(kind: AuditKind) -> Self {
        Self {
            kind,
            agent: None,
            service: None,
            object: None,
        }
    }

    /// The act, on this agent.
    #[must_use]
    pub fn on(self, agent: AgentId) -> Self {
        Self {
            agent: Some(agent),
            ..self
        }
    }

    /// The act, about this service.
    #[must_use]
    pub fn about(self, service: ServiceId) -> Self {
        Self {
            service: Some(service),
            ..self
        }
    }

    /// The act, on the object with this public id.
    #[must_use]
    pub fn with(self, object: &impl ToString) -> Self {
        Self {
            object: Some(object.to_string()),
            ..self
        }
    }
}

/// The result of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The act was done, with these changes.
    Done(AuditChanges),
    /// The act was refused and changed nothing.
    Refused(AuditRefusal),
}

/// The reason that an act was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRefusal {
    /// The `error` slug of the answer.
    pub error: String,
    /// More details, as text.
    pub reason: String,
}

impl AuditRefusal {
    /// The maximum length of a reason, in characters.
    const LONGEST: usize = 500;

    /// A refusal with a truncated reason.
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
    /// The time of the act.
    pub at: Timestamp,
    /// The actor.
    pub actor: Actor,
    /// The source of the request.
    pub source: RequestSource,
    /// The act and its object.
    pub act: Act,
    /// The outcome of the act.
    pub outcome: AuditOutcome,
}

/// A filter for the rows of a part of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only rows that concern this agent.
    pub agent: Option<AgentId>,
    /// Only rows of this kind.
    pub kind: Option<AuditKind>,
    /// Only rows with this time or a later one.
    pub from: Option<Timestamp>,
    /// Only rows with an earlier time.
    pub to: Option<Timestamp>,
    /// Only refused acts.
    pub refused: bool,
}

impl AuditFilter {
    /// Whether a row matches, apart from its time.
    pub fn includes(&self, record: &AuditRecord) -> bool {
        self.agent.is_none_or(|agent| record.act.agent == Some(agent))
            && self.kind.is_none_or(|kind| record.act.kind == kind)
            && (!self.refused || matches!(record.outcome, AuditOutcome::Refused(_)))
    }
}
