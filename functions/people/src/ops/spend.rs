//! What counts of windows, for display.

use crate::state::People;
use purser_domain::{Duration, Result, Spend, Timestamp, Window, WindowScope};

/// What counts of some windows now; of those that are not in it, nothing does.
pub(crate) struct Spends {
    windows: Vec<Window>,
    at: Timestamp,
}

impl Spends {
    /// What counts of this window.
    pub(crate) fn of(&self, scope: WindowScope) -> Spend {
        let window = self.windows.iter().find(|window| window.scope == scope);
        window.map_or(Spend::NONE, |window| window.spend(self.at))
    }
}

impl People {
    /// What counts of these windows. Where more has rolled out of one than is read it is an upper bound, and reconcile is
    /// asked to evict it.
    pub(crate) async fn spends(&self, scopes: &[(WindowScope, Duration)]) -> Result<Spends> {
        let at = self.now();
        let windows = self.ledger.windows_in_use(scopes, at).await?;
        for window in windows.iter().filter(|window| window.hides_expired(at)) {
            // What is displayed does not depend on it.
            if let Err(error) = self.ledger.request_eviction(window.scope, at).await {
                tracing::warn!(cause = %error, "eviction.not_requested");
            }
        }
        Ok(Spends { windows, at })
    }
}
