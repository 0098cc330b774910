//! The current use of windows, which is only shown and not used for decisions.

use crate::state::People;
use purser_domain::{Result, RuleId, Spend, Timestamp, Window, WindowPeriod, WindowScope};

/// The windows that were read at the time `at`. A window that is absent is unused.
pub(crate) struct Spends {
    windows: Vec<Window>,
    at: Timestamp,
}

impl Spends {
    pub(crate) fn spend_in_window(&self, scope: WindowScope) -> Spend {
        let window = self.windows.iter().find(|window| window.scope == scope);
        window.map_or(Spend::NONE, |window| window.spend_at(self.at))
    }

    /// Adds the windows in `backfilled`, which estimate the use of rules whose backfill is incomplete. Each replaces the
    /// stored window of the same scope.
    pub(crate) fn replace_windows(&mut self, backfilled: Vec<(RuleId, Window)>) {
        self.windows
            .retain(|window| !backfilled.iter().any(|(_, other)| other.scope == window.scope));
        self.windows.extend(backfilled.into_iter().map(|(_, window)| window));
    }
}

impl People {
    /// Reads the current use of windows. If a window has many expired payments, the use is an upper bound,
    /// and an eviction of the expired payments is requested.
    pub(crate) async fn read_spend_in_windows(&self, scopes: &[(WindowScope, WindowPeriod)]) -> Result<Spends> {
        let at = self.now();
        let windows = self.ledger.read_nonzero_windows(scopes, at).await?;
        for window in windows.iter().filter(|window| window.may_overstate_spend(at)) {
            // The page does not need the eviction, so a failed request is only logged.
            if let Err(error) = self.ledger.request_eviction(window.scope, at).await {
                tracing::warn!(cause = %error, "eviction.not_requested");
            }
        }
        Ok(Spends { windows, at })
    }
}
