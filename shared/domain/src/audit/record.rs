//! A row of the audit log: an update, a session, a rejected action, or an outflow without a settlement.
//!
//! A row contains no secret, no digest of a secret and no request body. All texts are truncated, so that the row stays
//! far below the maximum size of a DynamoDB item.

use crate::{
    AgentId, AuditChanges, AuditId, EditReason, OperatorName, ServiceId, SessionId, Timestamp, UserId,
    catalog::service::named,
};
use std::fmt;

named! {
    /// The kind of an action. A rejected sign-in is recorded as a rejected `session_started`.
    AuditKind {
        /// An agent was created.
        AgentCreated = "agent_created",
        /// An agent's display name was changed.
        AgentRenamed = "agent_renamed",
        /// An agent was frozen.
        AgentFrozen = "agent_frozen",
        /// An agent was unfrozen.
        AgentUnfrozen = "agent_unfrozen",
        /// An agent was archived. Archiving also freezes the agent.
        AgentArchived = "agent_archived",
        /// An archived agent was restored. The agent stays frozen.
        AgentRestored = "agent_restored",
        /// An agent's labels were updated.
        AgentLabelsEdited = "agent_labels_edited",
        /// The factor that limits an agent's requests for higher caps was changed.
        AgentRaiseFactorEdited = "agent_raise_factor_edited",
        /// An agent key was created.
        KeyCreated = "key_created",
        /// An agent key was replaced by a new key. The old key stays valid until the overlap ends.
        KeyRotated = "key_rotated",
        /// An agent key was revoked.
        KeyRevoked = "key_revoked",
        /// A service was enabled for an agent.
        ServiceEnabled = "service_enabled",
        /// A service was disabled for an agent.
        ServiceDisabled = "service_disabled",
        /// An agent's policy for a service was updated.
        PolicyEdited = "policy_edited",
        /// A rule was added.
        RuleAdded = "rule_added",
        /// A rule was replaced.
        RuleReplaced = "rule_replaced",
        /// A rule was removed.
        RuleRemoved = "rule_removed",
        /// An agent's withdrawal address was set.
        PayoutAddressNamed = "payout_address_named",
        /// An agent's withdrawal address was removed.
        PayoutAddressRemoved = "payout_address_removed",
        /// Money was withdrawn from an agent's wallet to the withdrawal address.
        PaidOut = "paid_out",
        /// An approval request was approved.
        ApprovalApproved = "approval_approved",
        /// An approval request was rejected.
        ApprovalRejected = "approval_rejected",
        /// An unused approval was withdrawn.
        ApprovalWithdrawn = "approval_withdrawn",
        /// A webhook was created.
        WebhookCreated = "webhook_created",
        /// A webhook's URL or events were updated.
        WebhookEdited = "webhook_edited",
        /// A webhook got a new secret. The old secret also signs calls for one more day.
        WebhookSecretRotated = "webhook_secret_rotated",
        /// A webhook was removed, and its pending deliveries were dropped.
        WebhookRemoved = "webhook_removed",
        /// A user's notification settings were updated.
        NoticesEdited = "notices_edited",
        /// A backtest was started.
        BacktestStarted = "backtest_started",
        /// A shadow policy was attached to an agent.
        ShadowAttached = "shadow_attached",
        /// The limits of a shadow policy became the agent's limits.
        ShadowPromoted = "shadow_promoted",
        /// A shadow policy was removed.
        ShadowRemoved = "shadow_removed",
        /// A policy template was created.
        PolicyTemplateCreated = "policy_template_created",
        /// A policy template was updated, was made the default, or stopped being the default.
        PolicyTemplateEdited = "policy_template_edited",
        /// A policy template was removed.
        PolicyTemplateRemoved = "policy_template_removed",
        /// A policy template was applied to an agent, and the agent now follows the template.
        PolicyTemplateApplied = "policy_template_applied",
        /// An agent stopped following a policy template.
        PolicyTemplateUnfollowed = "policy_template_unfollowed",
        /// A user signed in.
        SessionStarted = "session_started",
        /// A session was ended.
        SessionEnded = "session_ended",
        /// All sessions of a user were ended.
        SessionsEnded = "sessions_ended",
        /// A catalog service was created or replaced.
        CatalogEdited = "catalog_edited",
        /// An operation's payment was set to the payment that a probe found.
        PaymentPinned = "payment_pinned",
        /// A second operator accepted a change of a payee or price.
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
        /// One agent, all agents of an owner, or the whole deployment was frozen.
        FreezeSet = "freeze_set",
        /// A freeze by operators was ended.
        FreezeEnded = "freeze_ended",
        /// An operator in a browser requested that a second operator ends a freeze.
        FreezeEndRequested = "freeze_end_requested",
        /// An agent was offered to another owner.
        HandoverOffered = "handover_offered",
        /// An offer of an agent was withdrawn.
        HandoverTakenBack = "handover_taken_back",
        /// An offered agent was accepted by its new owner.
        HandoverAccepted = "handover_accepted",
        /// Money left an agent's wallet in a transfer without a settlement.
        OutflowFound = "outflow_found",
    }
}

/// A section of the audit log. Each Lambda function may write only the sections that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditScope {
    /// The actions of this user, and copies of the rows by operators and `reconcile` about the user's agents.
    Person(UserId),
    /// The actions of operators, for example updates of the catalog and freezes.
    Operators,
    /// Transfers from agents' wallets without a settlement, which the Lambda function `reconcile` found.
    Outflows,
}

/// Who or what performed an action in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A user, who acts in a browser or through the API.
    Person {
        /// The hash of the issuer and of the user's `sub`, which identifies the user.
        id: UserId,
        /// The user's session. `None` if the user authenticated with an ID token.
        session: Option<SessionId>,
    },
    /// An operator, who is identified by name.
    Operator(OperatorName),
    /// The Lambda function `reconcile`, which found a transfer by an unknown sender.
    Reconcile,
    /// A rule of the agent froze the agent automatically.
    Rule {
        /// The agent's owner.
        owner: UserId,
    },
}

/// Writes the user's id, the operator's name, `reconcile`, `rule` or `client`.
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

/// The actor, and the source of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// Who or what acted.
    pub actor: Actor,
    /// The source of the request.
    pub source: RequestSource,
}

impl Acting {
    /// Creates the audit row of this action. `random` distinguishes rows of the same microsecond.
    pub fn audit_record(&self, at: Timestamp, random: [u8; 8], action: &Act, outcome: AuditOutcome) -> AuditRecord {
        AuditRecord {
            id: AuditId::new_at(at, random),
            at,
            actor: self.actor.clone(),
            source: self.source.clone(),
            act: action.clone(),
            outcome,
        }
    }
}

/// The source of a request, with the caller's reason for the update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSource {
    /// The caller's IP address according to the gateway.
    pub address: Option<String>,
    /// The caller's user agent.
    pub user_agent: Option<String>,
    /// The request id. The response and the log lines contain the same id.
    pub request_id: String,
    /// The caller's reason for an update of limits.
    pub reason: Option<EditReason>,
}

impl RequestSource {
    /// The maximum length of a stored text from the caller, in characters.
    const MAX_CHARS: usize = 200;

    /// Creates the source of a request without a reason. The user agent and the request id are truncated to 200
    /// characters.
    pub fn new(address: Option<String>, user_agent: Option<&str>, request_id: &str) -> Self {
        let bounded = |text: &str| text.chars().take(Self::MAX_CHARS).collect();
        Self {
            address,
            user_agent: user_agent.map(bounded),
            request_id: bounded(request_id),
            reason: None,
        }
    }
}

/// The kind of an action, and the objects that the action concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The kind of the action.
    pub kind: AuditKind,
    /// The agent that the action concerns.
    pub agent: Option<AgentId>,
    /// The service that the action concerns.
    pub service: Option<ServiceId>,
    /// The public id of the object that the action concerns, for example a key or a rule.
    pub object: Option<String>,
}

impl Act {
    /// Creates an action without an agent, a service or an object.
    pub const fn new(kind: AuditKind) -> Self {
        Self {
            kind,
            agent: None,
            service: None,
            object: None,
        }
    }

    /// Sets the agent that the action concerns.
    #[must_use]
    pub fn on_agent(self, agent: AgentId) -> Self {
        Self {
            agent: Some(agent),
            ..self
        }
    }

    /// Sets the service that the action concerns.
    #[must_use]
    pub fn about_service(self, service: ServiceId) -> Self {
        Self {
            service: Some(service),
            ..self
        }
    }

    /// Sets the object that the action concerns, by public id.
    #[must_use]
    pub fn with_object(self, object: &impl ToString) -> Self {
        Self {
            object: Some(object.to_string()),
            ..self
        }
    }
}

/// How an action ended: it succeeded or was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// The action succeeded and made these changes.
    Done(AuditChanges),
    /// The action was rejected and changed nothing.
    Refused(AuditRejection),
}

/// Why an action in the audit log was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRejection {
    /// The slug in the field `error` of the response to the caller.
    pub error: String,
    /// Details of the rejection, as text.
    pub reason: String,
}

impl AuditRejection {
    /// The maximum length of a reason, in characters.
    const MAX_CHARS: usize = 500;

    /// Creates a rejection. Truncates a reason that is too long.
    pub fn new(error: impl Into<String>, reason: &str) -> Self {
        Self {
            error: error.into(),
            reason: reason.chars().take(Self::MAX_CHARS).collect(),
        }
    }
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// The row's id. Ids sort by time.
    pub id: AuditId,
    /// The time of the action.
    pub at: Timestamp,
    /// Who or what acted.
    pub actor: Actor,
    /// The source of the request.
    pub source: RequestSource,
    /// The action and its object.
    pub act: Act,
    /// The outcome of the action.
    pub outcome: AuditOutcome,
}

/// A filter for the rows in one section of the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Selects only rows that concern this agent.
    pub agent: Option<AgentId>,
    /// Selects only rows of this kind.
    pub kind: Option<AuditKind>,
    /// Selects only rows of actions at or after this time.
    pub from: Option<Timestamp>,
    /// Selects only rows of actions before this time.
    pub to: Option<Timestamp>,
    /// Whether the filter selects only rejected actions.
    pub refused: bool,
}

impl AuditFilter {
    /// Returns whether a row matches the filter. The time range is not checked.
    pub fn matches(&self, record: &AuditRecord) -> bool {
        self.agent.is_none_or(|agent| record.act.agent == Some(agent))
            && self.kind.is_none_or(|kind| record.act.kind == kind)
            && (!self.refused || matches!(record.outcome, AuditOutcome::Refused(_)))
    }
}
