//! A row of the audit log: an update, a session, a rejected action, or an outflow without a settlement.
//!
//! A row contains no secret, no digest of a secret and no request body. All texts are truncated, so that the row stays
//! far below the maximum size of a DynamoDB item.

use crate::{
    AgentId, AuditChanges, AuditId, EditReason, KeyId, OperatorName, ServiceId, SessionId, Timestamp, UserId,
    catalog::service::named,
};
use std::fmt;

named! {
    /// The kind of an action. A rejected sign-in is recorded as a rejected `session_started`.
    AuditKind {
        /// An agent was created, with a wallet and without an agent key.
        AgentCreated = "agent_created" => "Create an agent",
        /// An agent's display name was changed.
        AgentRenamed = "agent_renamed" => "Rename an agent",
        /// An agent was frozen by the owner or by a rule. From then on, the agent's calls are rejected.
        AgentFrozen = "agent_frozen" => "Freeze an agent",
        /// The owner ended the freeze of an agent. The end of a freeze by operators is a [`AuditKind::FreezeEnded`].
        AgentUnfrozen = "agent_unfrozen" => "Unfreeze an agent",
        /// An agent was archived. Archiving also freezes the agent.
        AgentArchived = "agent_archived" => "Archive an agent",
        /// An archived agent was restored. The agent stays frozen.
        AgentRestored = "agent_restored" => "Restore an agent",
        /// An agent's labels were updated.
        AgentLabelsEdited = "agent_labels_edited" => "Edit an agent’s labels",
        /// The maximum factor of an agent's limit increases was changed.
        AgentRaiseFactorEdited = "agent_raise_factor_edited" => "Edit how much more an agent can ask for",
        /// A key with which an agent authenticates requests was created.
        KeyCreated = "key_created" => "Create a key",
        /// An agent key was replaced by a new key. The old key stays valid until the overlap ends.
        KeyRotated = "key_rotated" => "Rotate a key",
        /// An agent key was revoked. From then on, calls with this key are rejected.
        KeyRevoked = "key_revoked" => "Revoke a key",
        /// A user gave an OAuth client access to an agent. This grant is stored as a key of the agent.
        GrantCreated = "grant_created" => "Allow an application",
        /// A grant ended, because the client revoked a token or because a used code or token was presented again.
        GrantEnded = "grant_ended" => "End an application’s access with its token",
        /// A service was enabled for an agent.
        ServiceEnabled = "service_enabled" => "Enable a service",
        /// A service was disabled for an agent. The agent's policy is kept, but every call is denied.
        ServiceDisabled = "service_disabled" => "Disable a service",
        /// An agent's policy for a service was updated.
        PolicyEdited = "policy_edited" => "Edit a policy",
        /// A rule was added to an agent.
        RuleAdded = "rule_added" => "Add a rule",
        /// An agent's rule was replaced by a new version.
        RuleReplaced = "rule_replaced" => "Replace a rule",
        /// A rule was removed from an agent.
        RuleRemoved = "rule_removed" => "Remove a rule",
        /// An agent's withdrawal address was set.
        PayoutAddressNamed = "payout_address_named" => "Set a payout address",
        /// An agent's withdrawal address was removed. Without an address, no withdrawal is possible.
        PayoutAddressRemoved = "payout_address_removed" => "Remove a payout address",
        /// Money was withdrawn from an agent's wallet to the withdrawal address.
        PaidOut = "paid_out" => "Pay out",
        /// A user approved a payment or a temporary limit increase that an agent requested.
        ApprovalApproved = "approval_approved" => "Approve a payment",
        /// A user rejected a payment or a temporary limit increase that an agent requested.
        ApprovalRejected = "approval_rejected" => "Reject a payment",
        /// A user withdrew an approval that no payment had used.
        ApprovalWithdrawn = "approval_withdrawn" => "Withdraw an approval",
        /// A user created a webhook: a URL to which events are sent.
        WebhookCreated = "webhook_created" => "Make a webhook",
        /// A webhook's URL or events were updated.
        WebhookEdited = "webhook_edited" => "Edit a webhook",
        /// A webhook got a new secret. The old secret also signs calls for one more day.
        WebhookSecretRotated = "webhook_secret_rotated" => "Rotate a webhook’s secret",
        /// A webhook was removed, and the pending deliveries were dropped.
        WebhookRemoved = "webhook_removed" => "Remove a webhook",
        /// A user's notification settings were updated.
        NoticesEdited = "notices_edited" => "Edit notices",
        /// A user requested a backtest, which then runs in the background.
        BacktestStarted = "backtest_started" => "Start a backtest",
        /// A shadow policy was attached to an agent.
        ShadowAttached = "shadow_attached" => "Attach a shadow",
        /// The limits of a shadow policy became the agent's limits.
        ShadowPromoted = "shadow_promoted" => "Promote a shadow",
        /// A shadow policy was removed from an agent.
        ShadowRemoved = "shadow_removed" => "Remove a shadow",
        /// A policy template was created. No existing agent changes until the template is applied.
        PolicyTemplateCreated = "policy_template_created" => "Create a policy template",
        /// A policy template was updated, was made the default, or stopped being the default.
        PolicyTemplateEdited = "policy_template_edited" => "Edit a policy template",
        /// A policy template was removed. The agents that follow the template keep their limits.
        PolicyTemplateRemoved = "policy_template_removed" => "Remove a policy template",
        /// A policy template was applied to an agent, and the agent now follows the template.
        PolicyTemplateApplied = "policy_template_applied" => "Apply a policy template",
        /// An agent no longer follows a policy template. Later versions of the template are not applied to it.
        PolicyTemplateUnfollowed = "policy_template_unfollowed" => "Stop following a policy template",
        /// A user signed in.
        SessionStarted = "session_started" => "Sign in",
        /// A session was ended.
        SessionEnded = "session_ended" => "End a session",
        /// All sessions of a user were ended. A sign-in before this action can't start a new session.
        SessionsEnded = "sessions_ended" => "End all sessions",
        /// A catalog service was created or replaced.
        CatalogEdited = "catalog_edited" => "Edit the catalog",
        /// An operation's payment was set to the payment that a probe found.
        PaymentPinned = "payment_pinned" => "Pin a payment",
        /// A second operator accepted a change of a payee or price.
        PaymentChangeAccepted = "payment_change_accepted" => "Accept a changed payment",
        /// A delayed change of a payee or price was withdrawn.
        PaymentChangeWithdrawn = "payment_change_withdrawn" => "Withdraw a changed payment",
        /// An operator set the trust status of a service, for example to `disabled`.
        TrustStatusSet = "trust_status_set" => "Set a trust status",
        /// A service was added to the curated set, or removed from it.
        CuratedSet = "curated_set" => "Curate a service",
        /// An operator requested a probe of a service.
        ProbeRequested = "probe_requested" => "Ask for a probe",
        /// The reconciliation of a settlement was requested.
        ReconcileRequested = "reconcile_requested" => "Ask for reconciliation",
        /// One agent, all agents of an owner, or the whole deployment was frozen.
        FreezeSet = "freeze_set" => "Freeze by an operator",
        /// An operator ended a freeze by operators.
        FreezeEnded = "freeze_ended" => "End a freeze by an operator",
        /// An operator in a browser requested that a second operator ends a freeze.
        FreezeEndRequested = "freeze_end_requested" => "Ask to end a freeze by an operator",
        /// An operator offered an agent to another user.
        HandoverOffered = "handover_offered" => "Offer an agent",
        /// An operator withdrew the offer of an agent to another user.
        HandoverTakenBack = "handover_taken_back" => "Withdraw an offer",
        /// A user accepted an agent that an operator had offered, and became the owner.
        HandoverAccepted = "handover_accepted" => "Accept an agent",
        /// Money left an agent's wallet in a transfer without a settlement.
        OutflowFound = "outflow_found" => "Unexplained transfer out of a wallet",
    }
}

/// A section of the audit log. Each Lambda function may write only the sections that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditScope {
    /// The actions of this user, and of rules and clients of the user's agents. Also copies of the rows about
    /// the user's agents whose actor is an operator or `reconcile`.
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
    /// The Lambda function `reconcile`, which found a transfer without a settlement.
    Reconcile,
    /// A rule of the agent froze the agent automatically.
    Rule {
        /// The owner of the agent that the rule froze.
        owner: UserId,
    },
    /// A client, with a token of a grant. The row has a reason if Purser ended the grant because of a reused code or
    /// token.
    Client {
        /// The owner of the agent for which the client acts.
        owner: UserId,
    },
    /// The agent, with an agent key.
    Agent {
        /// The owner of the agent.
        owner: UserId,
        /// The agent key of the request.
        key: KeyId,
    },
}

/// Writes the user's id, the operator's name, `reconcile`, `rule`, `client` or `agent`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { id, .. } => id.fmt(f),
            Self::Operator(name) => name.fmt(f),
            Self::Reconcile => f.write_str("reconcile"),
            Self::Rule { .. } => f.write_str("rule"),
            Self::Client { .. } => f.write_str("client"),
            Self::Agent { .. } => f.write_str("agent"),
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
