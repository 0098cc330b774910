//! What just happened, told at the top of the page that a form leads to.
//!
//! A notice travels as a code in the address, so that a reload changes nothing and nobody's text is shown.

use crate::redirect::see_other;
use axum::response::Response;

/// On to a page, where it is told what was done.
pub(super) fn done(path: &str, notice: Notice) -> Response {
    let sign = if path.contains('?') { '&' } else { '?' };
    see_other(&format!("{path}{sign}notice={}", notice.code()))
}

/// One thing that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    AgentCreated,
    AgentRenamed,
    AgentFrozen,
    AgentUnfrozen,
    KeyRevoked,
    ServiceEnabled,
    ServiceDisabled,
    PolicySaved,
    RuleAdded,
    RuleSaved,
    RuleRemoved,
    Approved,
    Rejected,
    SignedOut,
    SignInFailed,
    SignInStale,
}

impl Notice {
    const ALL: [Self; 16] = [
        Self::AgentCreated,
        Self::AgentRenamed,
        Self::AgentFrozen,
        Self::AgentUnfrozen,
        Self::KeyRevoked,
        Self::ServiceEnabled,
        Self::ServiceDisabled,
        Self::PolicySaved,
        Self::RuleAdded,
        Self::RuleSaved,
        Self::RuleRemoved,
        Self::Approved,
        Self::Rejected,
        Self::SignedOut,
        Self::SignInFailed,
        Self::SignInStale,
    ];

    /// What the address carries.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::AgentCreated => "agent_created",
            Self::AgentRenamed => "agent_renamed",
            Self::AgentFrozen => "agent_frozen",
            Self::AgentUnfrozen => "agent_unfrozen",
            Self::KeyRevoked => "key_revoked",
            Self::ServiceEnabled => "service_enabled",
            Self::ServiceDisabled => "service_disabled",
            Self::PolicySaved => "policy_saved",
            Self::RuleAdded => "rule_added",
            Self::RuleSaved => "rule_saved",
            Self::RuleRemoved => "rule_removed",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::SignedOut => "signed_out",
            Self::SignInFailed => "sign_in_failed",
            Self::SignInStale => "sign_in_stale",
        }
    }

    pub(crate) fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|notice| notice.code() == code)
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::AgentCreated => "The agent exists. Give it a key, then set limits: its services start with no limit.",
            Self::AgentRenamed => "Renamed.",
            Self::AgentFrozen => "Done. The agent is frozen from this moment on.",
            Self::AgentUnfrozen => "Active again. Its policies and rules apply as before.",
            Self::KeyRevoked => "Revoked. The next call with that key is refused.",
            Self::ServiceEnabled => "The service is enabled.",
            Self::ServiceDisabled => "The service is disabled. Its limits are kept for later.",
            Self::PolicySaved => "Saved. The next payment is judged by the new limits.",
            Self::RuleAdded => "The rule is in force.",
            Self::RuleSaved => "The rule is changed.",
            Self::RuleRemoved => "The rule is gone.",
            Self::Approved => "Approved. The payment is made when the agent repeats its request.",
            Self::Rejected => "Rejected. Nothing was paid.",
            Self::SignedOut => "You have signed out.",
            Self::SignInFailed => "The sign-in did not succeed. Nothing has changed; please try again.",
            Self::SignInStale => "That sign-in was started too long ago, or in another browser. Please try again.",
        }
    }

    /// Whether it tells a failure.
    pub(super) const fn is_bad(self) -> bool {
        matches!(self, Self::SignInFailed | Self::SignInStale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notice_is_found_by_its_code() {
        for notice in Notice::ALL {
            assert_eq!(Notice::from_code(notice.code()), Some(notice));
        }
        assert_eq!(Notice::from_code("<script>"), None);
    }
}
