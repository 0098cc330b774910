//! The state that all handlers share: the tables, the chain, the sessions and the clock.

use crate::agents::new_keys::NewKeys;
use crate::sessions::sign_in_key::SignInKey;
use purser_api::{
    AllowedHosts, Clock, Entropy, InternalFunction, NoticeRequestsQueue, PaymentsFunction, SecretsKey, Sessions,
    WebhookRequestsQueue,
};
use purser_chain::Chain;
use purser_domain::{Duration, EventSource, Network, Result, SessionLimits, StartingLimits, Timestamp};
use purser_log::LogReader;
use purser_store::{
    AuditLog, Authenticator, CallLeases, CatalogCache, CatalogTable, Edition, Ledger, Throttle, UsageTable,
    WebhooksTable,
};
use std::sync::Arc;

/// The handlers' shared state.
pub(crate) struct People {
    pub(crate) ledger: Ledger,
    pub(crate) catalog: CatalogCache,
    /// The catalog as it is stored now, with the results of probes, for operators.
    pub(crate) catalog_table: CatalogTable,
    pub(crate) audit: AuditLog,
    /// The sums of spending.
    pub(crate) usage: UsageTable,
    /// The log of statements; `None` if the deployment keeps none.
    pub(crate) log: Option<LogReader>,
    pub(crate) authenticator: Authenticator,
    /// The limits of the waits for approvals that begin in a minute: for one agent, for one owner's agents, and for
    /// all.
    pub(crate) agent_waits: Throttle,
    pub(crate) owner_waits: Throttle,
    pub(crate) waits: Throttle,
    /// The counters of the authenticator's throttle, with a higher limit, for what stops an agent or ends a session.
    pub(crate) stops: Throttle,
    /// The slots of each user's long operations.
    pub(crate) long_operations: CallLeases,
    /// Used only to read balances.
    pub(crate) chain: Chain,
    /// The only function that can sign with the wallets' keys.
    pub(crate) payments: PaymentsFunction,
    /// The only function that can do what operators do; `None` if they don't act in the browser.
    pub(crate) internal: Option<InternalFunction>,
    pub(crate) new_keys: NewKeys,
    pub(crate) sessions: Sessions,
    pub(crate) limits: SessionLimits,
    /// The lifetime of an approval.
    pub(crate) approval_ttl: Duration,
    /// The limits of a new agent whose creator names none.
    pub(crate) starting_limits: StartingLimits,
    pub(crate) sign_in_key: SignInKey,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) network: Network,
    /// Whether the deployment has a facilitator for payouts.
    pub(crate) pays_out: bool,
    pub(crate) webhooks: WebhooksTable,
    /// The queue of tests and redeliveries of webhooks.
    pub(crate) webhook_requests: WebhookRequestsQueue,
    /// The queue of tests of notices.
    pub(crate) notice_requests: NoticeRequestsQueue,
    /// The key that webhooks' secrets and notices' URLs are encrypted with. This function can't decrypt.
    pub(crate) secrets_key: SecretsKey,
    /// Whether the deployment sends notices by mail.
    pub(crate) mails: bool,
    /// Hosts that a webhook's URL may have regardless of their IP address.
    pub(crate) webhook_hosts: AllowedHosts,
    /// The name of the deployment in events.
    pub(crate) event_source: EventSource,
    /// The dashboard's origin; `None` for the gateway's host name.
    pub(crate) dashboard_url: Option<String>,
}

impl People {
    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The catalog, at most a few seconds old.
    pub(crate) async fn catalog(&self) -> Result<Arc<Edition>> {
        self.catalog.current(self.now()).await
    }
}
