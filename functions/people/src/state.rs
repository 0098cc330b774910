//! The state of every handler: the tables, the chain, the sessions, the clock.

use purser_api::{Clock, Entropy, Sessions};
use purser_chain::{Chain, WalletXpub};
use purser_domain::{Network, Result, Timestamp};
use purser_store::{Authenticator, CatalogCache, Edition, Ledger};
use std::sync::Arc;

/// The handlers' shared state.
pub(crate) struct People {
    pub(crate) ledger: Ledger,
    pub(crate) catalog: CatalogCache,
    pub(crate) authenticator: Authenticator,
    /// Only for balances.
    pub(crate) chain: Chain,
    pub(crate) xpub: WalletXpub,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) network: Network,
    /// The origin of the pages; `None` for the gateway's own name.
    pub(crate) dashboard_url: Option<String>,
}

impl People {
    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The catalog, at most seconds old.
    pub(crate) async fn catalog(&self) -> Result<Arc<Edition>> {
        self.catalog.current(self.now()).await
    }
}
