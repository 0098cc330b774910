//! The current use of windows, which is only shown and not used for decisions.

use crate::state::People;
use purser_domain::{Result, RuleId, Spend, Timestamp, Window, WindowPeriod, WindowScope};

/// A window that is not stored is unused.
pub(crate) struct Spends {
    windows: Vec<Window>,
    at: Timestamp,
}

impl Spends {
    pub(crate) fn spend_in_window(&self, scope: WindowScope) -> Spend {
        let window = self.windows.iter().find(|window| window.scope == scope);
        window.map_or(Spend::NONE, |window| window.spend_at(self.at))
    }

    /// Replaces each window that still needs a backfill by the window of the same rule in `backfilled`.
    pub(crate) fn replace(&mut self, backfilled: Vec<(RuleId, Window)>) {
        self.windows
            .retain(|window| !backfilled.iter().any(|(_, other)| other.scope == window.scope));
        self.windows.extend(backfilled.into_iter().map(|(_, window)| window));
    }
}

impl People {
    /// Requests an eviction for a window with many expired payments. Until then, the window's use is an upper bound.
    pub(crate) async fn read_spend_in_windows(&self, scopes: &[(WindowScope, WindowPeriod)]) -> Result<Spends> {
        let at = self.now();
        let windows = self.ledger.read_used_windows(scopes, at).await?;
        for window in windows.iter().filter(|window| window.may_overstate_spend(at)) {
            // A failed request for an eviction is only logged, because the page does not need the eviction.
            if let Err(error) = self.ledger.request_eviction(window.scope, at).await {
                tracing::warn!(cause = %error, "eviction.not_requested");
            }
        }
        Ok(Spends { windows, at })
    }
}
