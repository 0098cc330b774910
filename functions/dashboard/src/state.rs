//! The state that all handlers share: tables, chain, sessions and clock.

use crate::agents::new_keys::NewKeys;
use crate::sessions::sign_in_key::SignInKey;
use axum::extract::State;
use axum::http::request::Parts;
use purser_api::{
    AllowedHosts, Clock, Entropy, InvokedFunction, NotificationRequestsQueue, SecretsKey, Sessions, ThrottleScope,
    UntrustedHttpClient, WebhookRequestsQueue,
};
use purser_chain::Chain;
use purser_domain::{Duration, EventSource, Network, OAuthKey, Result, SessionLimits, StartingLimits, Timestamp};
use purser_log::LogReader;
use purser_store::{
    AuditLog, Authenticator, CallLeases, CatalogCache, CatalogTable, CatalogVersion, Ledger, Throttle, UsageTable,
    WebhooksTable,
};
use std::sync::Arc;

pub(crate) type PeopleState = State<Arc<People>>;

/// The state that all handlers share.
pub(crate) struct People {
    pub(crate) ledger: Ledger,
    pub(crate) catalog: CatalogCache,
    /// The catalog table, which is read without a cache for operators.
    pub(crate) catalog_table: CatalogTable,
    pub(crate) audit: AuditLog,
    /// The usage table, which contains the decision history and the sums of spending.
    pub(crate) usage: UsageTable,
    /// The log of signed statements; `None` if the deployment has no such log.
    pub(crate) log: Option<LogReader>,
    pub(crate) authenticator: Authenticator,
    /// The throttles for long-polling requests: per agent, per owner, and for the deployment.
    pub(crate) agent_waits: Throttle,
    pub(crate) owner_waits: Throttle,
    pub(crate) waits: Throttle,
    /// The throttle for requests that stop agents or end sessions. It shares counters with the authenticator's.
    pub(crate) stops: Throttle,
    /// The leases that limit each user's concurrent long operations.
    pub(crate) long_operations: CallLeases,
    /// The chain client, which reads balances.
    pub(crate) chain: Chain,
    /// A client of the Lambda function `payments`, which alone can sign with the wallets' keys.
    pub(crate) payments: InvokedFunction,
    /// Runs operators' actions; `None` if operators can't act in the dashboard.
    pub(crate) internal: Option<InvokedFunction>,
    pub(crate) new_keys: NewKeys,
    pub(crate) sessions: Sessions,
    pub(crate) limits: SessionLimits,
    pub(crate) approval_ttl: Duration,
    /// The limits of a new agent if the user selects no limits and has no default template.
    pub(crate) starting_limits: StartingLimits,
    pub(crate) sign_in_key: SignInKey,
    /// The secret from which the credentials of grants are derived.
    pub(crate) oauth_key: OAuthKey,
    /// The client that reads the metadata documents of OAuth clients.
    pub(crate) client_documents: UntrustedHttpClient,
    /// The throttle for entering device codes.
    pub(crate) code_guesses: Throttle,
    /// The throttle for opening runs.
    pub(crate) run_openings: Throttle,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) network: Network,
    /// Whether the deployment has a facilitator for withdrawals.
    pub(crate) pays_out: bool,
    pub(crate) webhooks: WebhooksTable,
    /// The queue for webhook tests and redeliveries.
    pub(crate) webhook_requests: WebhookRequestsQueue,
    pub(crate) notice_requests: NotificationRequestsQueue,
    /// Encrypts webhook secrets and notification URLs. The Lambda function `people` cannot decrypt them.
    pub(crate) secrets_key: SecretsKey,
    /// Whether the deployment sends notifications by mail.
    pub(crate) mails: bool,
    /// The hosts that webhook URLs may have even if their IP addresses are not public.
    pub(crate) webhook_hosts: AllowedHosts,
    pub(crate) event_source: EventSource,
    /// The dashboard's origin; `None` for the gateway's host name.
    pub(crate) dashboard_url: Option<String>,
}

impl People {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Counts a request without a session for the throttle.
    pub(crate) async fn count_request(&self, parts: &Parts) -> Result<()> {
        let scope = ThrottleScope::for_request(&parts.extensions);
        let counted = async { Ok(()) };
        self.authenticator
            .throttle
            .run_limited_by(scope, self.now(), counted)
            .await
    }

    /// Returns the catalog, which is at most a few seconds old.
    pub(crate) async fn current_catalog(&self) -> Result<Arc<CatalogVersion>> {
        self.catalog.current(self.now()).await
    }
}
