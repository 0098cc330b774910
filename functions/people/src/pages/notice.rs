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
    ChannelsSaved, "channels_saved", "Saved.";
    TestNoticeSent, "test_notice_sent", "A test is on its way. It arrives in seconds, or minutes after the last notice.";
    NoChannelOn, "no_channel_on", "Nothing was sent: no channel is on that leads anywhere.";
    AgentCreated, "agent_created", "The agent exists. Give it a key, then set limits: its services start with no limit.";
    AgentRenamed, "agent_renamed", "Renamed.";
    AgentFrozen, "agent_frozen", "Done. The agent is frozen from this moment on.";
    AgentUnfrozen, "agent_unfrozen", "Active again. Its policies and rules apply as before.";
    AgentAccepted, "agent_accepted", "The agent is yours. Its keys still work, whoever has them: revoke those that you don’t know, and look through its limits.";
    KeyRevoked, "key_revoked", "Revoked. The next call with that key is refused.";
    ServiceEnabled, "service_enabled", "The service is enabled.";
    ServiceDisabled, "service_disabled", "The service is disabled. Its limits are kept for later.";
    PolicySaved, "policy_saved", "Saved. The next payment is judged by the new limits.";
    RuleAdded, "rule_added", "The rule is in force.";
    RuleSaved, "rule_saved", "The rule is changed.";
    RuleRemoved, "rule_removed", "The rule is gone.";
    Approved, "approved", "Approved. The payment is made when the agent repeats its request.";
    ApprovedFrozen, "approved_frozen", "Approved, but the agent is frozen: nothing is paid until the freeze ends and the agent repeats its request.";
    Rejected, "rejected", "Rejected. Nothing was paid.";
    PayoutAddressNamed, "payout_address_named", "The address is named. It says below from when on it is good.";
    PayoutAddressRemoved, "payout_address_removed", "The address is removed. Nothing more is paid out to it.";
    PaidOut, "paid_out", "Submitted. The receipt becomes final when the chain shows it, within minutes.";
    PaidOutBefore, "paid_out_before", "This was asked for before; here is what became of it.";
    PayoutUnanswered, "payout_unanswered", "Signed, but the facilitator has not said that it took it. If the chain shows it within minutes, it is made; else it is given up, and you can ask again.";
    WebhookSaved, "webhook_saved", "Saved. What happens from now on is told by the new terms.";
    WebhookEnabled, "webhook_enabled", "Switched on. It is called with what happens from now on.";
    WebhookDisabled, "webhook_disabled", "Switched off. It is called no more.";
    WebhookRemoved, "webhook_removed", "The webhook is gone, and its secrets with it.";
    WebhookTestSent, "webhook_test_sent", "The test event is on its way: look at the deliveries.";
    WebhookSentAgain, "webhook_sent_again", "It is on its way again: look at the deliveries.";
    SignedOut, "signed_out", "You have signed out.";
    SessionEnded, "session_ended", "That session is over. Its browser has to sign in again.";
    AllEnded, "all_ended", "All your sessions are over, this one too.";
    SignInAgain, "sign_in_again", "Nothing was changed. What you want to do takes a sign-in of the last minutes: please sign in again, and repeat it.";
    SignInNotAgain, "sign_in_not_again", "Your account’s site did not ask who you are, so this sign-in does not count as a new one. Sign out there, and try again.";
    SignInFailed, "sign_in_failed", "The sign-in did not succeed. Nothing has changed; please try again.";
    SignInStale, "sign_in_stale", "That sign-in was started too long ago, or in another browser. Please try again.";
}

impl Notice {
    pub(crate) fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|notice| notice.code() == code)
    }

    /// Whether it reports a failure.
    pub(super) const fn is_bad(self) -> bool {
        matches!(
            self,
            Self::PayoutUnanswered | Self::SignInFailed | Self::SignInStale | Self::SignInAgain | Self::SignInNotAgain
        )
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
