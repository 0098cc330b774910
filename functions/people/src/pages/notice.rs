//! The notice at the top of a page after a form was handled.
//!
//! A notice is a code in the URL, so a reload repeats nothing, and no text from the URL is shown.

use crate::redirect::see_other;
use axum::response::Response;

/// Redirects to a page that shows the notice.
pub(super) fn done(path: &str, notice: Notice) -> Response {
    let sign = if path.contains('?') { '&' } else { '?' };
    see_other(&format!("{path}{sign}notice={}", notice.code()))
}

/// Every notice with its code and its text.
macro_rules! notices {
    ($($notice:ident, $code:literal, $text:literal;)*) => {
        /// One thing that was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Notice {
            $($notice,)*
        }

        impl Notice {
            const ALL: &[Self] = &[$(Self::$notice,)*];

            /// The code in the URL.
            pub(crate) const fn code(self) -> &'static str {
                match self {
                    $(Self::$notice => $code,)*
                }
            }

            pub(super) const fn text(self) -> &'static str {
                match self {
                    $(Self::$notice => $text,)*
                }
            }
        }
    };
}
notices! {
    AgentCreated, "agent_created", "The agent exists. Give it a key, then set limits: its services start with no limit.";
    AgentRenamed, "agent_renamed", "Renamed.";
    AgentFrozen, "agent_frozen", "Done. The agent is frozen from this moment on.";
    AgentUnfrozen, "agent_unfrozen", "Active again. Its policies and rules apply as before.";
    KeyRevoked, "key_revoked", "Revoked. The next call with that key is refused.";
    ServiceEnabled, "service_enabled", "The service is enabled.";
    ServiceDisabled, "service_disabled", "The service is disabled. Its limits are kept for later.";
    PolicySaved, "policy_saved", "Saved. The next payment is judged by the new limits.";
    RuleAdded, "rule_added", "The rule is in force.";
    RuleSaved, "rule_saved", "The rule is changed.";
    RuleRemoved, "rule_removed", "The rule is gone.";
    Approved, "approved", "Approved. The payment is made when the agent repeats its request.";
    Rejected, "rejected", "Rejected. Nothing was paid.";
    SignedOut, "signed_out", "You have signed out.";
    SignInFailed, "sign_in_failed", "The sign-in did not succeed. Nothing has changed; please try again.";
    SignInStale, "sign_in_stale", "That sign-in was started too long ago, or in another browser. Please try again.";
}

impl Notice {
    pub(crate) fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|notice| notice.code() == code)
    }

    /// Whether it reports a failure.
    pub(super) const fn is_bad(self) -> bool {
        matches!(self, Self::SignInFailed | Self::SignInStale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notice_is_found_by_its_code() {
        for notice in Notice::ALL.iter().copied() {
            assert_eq!(Notice::from_code(notice.code()), Some(notice));
        }
        assert_eq!(Notice::from_code("<script>"), None);
    }
}
