//! An agent's wallet.

use crate::ops::owned::Owned;
use crate::state::People;
use purser_domain::Amount;
use tracing::warn;

impl People {
    /// The wallet's balance, or `None` while the chain can't be reached: the rest of the agent can be managed without
    /// it.
    pub(crate) async fn balance(&self, owned: &Owned) -> Option<Amount> {
        match self.chain.balance(owned.agent().wallet.address).await {
            Ok(balance) => Some(balance),
            Err(error) => {
                warn!(cause = %error, "balance.unavailable");
                None
            }
        }
    }
}
