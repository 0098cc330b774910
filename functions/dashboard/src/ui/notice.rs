//! The notification at the top of a page after a form. The URL contains only the code, so links can't inject text.

use crate::redirect::see_other;
use axum::response::Response;

pub(crate) fn redirect_with_notice(path: &str, message: PageMessage) -> Response {
    let sign = if path.contains('?') { '&' } else { '?' };
    see_other(&format!("{path}{sign}notice={}", message.code()))
}

/// Defines all notifications, each with a code and a text.
macro_rules! notices {
    ($($notice:ident, $code:literal, $text:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum PageMessage {
            $($notice,)*
        }

        impl PageMessage {
            const ALL: &[Self] = &[$(Self::$notice,)*];

            /// Returns the value of the `notice` query parameter for this message.
            pub(crate) const fn code(self) -> &'static str {
                match self {
                    $(Self::$notice => $code,)*
                }
            }

            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Self::$notice => $text,)*
                }
            }
        }
    };
}
notices! {
    ChannelsSaved, "channels_saved", "Saved.";
    TestNoticeSent, "test_notice_sent", "A test notice was sent. It arrives within seconds, or some minutes after the previous notice.";
    NoChannelOn, "no_channel_on", "Nothing was sent: no channel is switched on and configured.";
    AgentCreated, "agent_created", "The agent was created. Create a key for it, then set limits: its services start without limits.";
    AgentRenamed, "agent_renamed", "Renamed.";
    AgentLabelled, "agent_labelled", "The labels were saved.";
    RaiseFactorSaved, "raise_factor_saved", "Saved. Higher limits that you granted stay until they end.";
    AgentArchived, "agent_archived", "The agent is archived: it is frozen, and left out of lists.";
    AgentRestored, "agent_restored", "The agent was restored. It is still frozen.";
    AgentFrozen, "agent_frozen", "The agent is frozen.";
    AgentUnfrozen, "agent_unfrozen", "The agent is active again. Its policies and rules apply as before.";
    AgentAccepted, "agent_accepted", "The agent is yours. Its existing keys still work: revoke those that you don’t know, and review its limits.";
    KeyRevoked, "key_revoked", "The key was revoked. The next call with it is refused.";
    DeviceAllowed, "device_allowed", "Allowed. Go back to your device: it connects within seconds.";
    DeviceDenied, "device_denied", "Denied. The device gets no access.";
    DeviceCodeUnknown, "device_code_unknown", "This code is unknown, was already used, or has expired. Start again on your device.";
    ServiceEnabled, "service_enabled", "The service is enabled.";
    ServiceDisabled, "service_disabled", "The service is disabled. Its limits are kept for later.";
    PolicySaved, "policy_saved", "Saved. The new limits apply to the next payment.";
    RuleAdded, "rule_added", "The rule is in force.";
    RuleSaved, "rule_saved", "The rule was changed.";
    RuleRemoved, "rule_removed", "The rule was removed.";
    TemplateSaved, "template_saved", "The template was saved. No agent has changed: apply it to those that follow it.";
    TemplateRemoved, "template_removed", "The template was removed. The agents that followed it keep their limits.";
    BacktestStarted, "backtest_started", "The backtest was started. It runs in the background within about a minute.";
    ShadowAttached, "shadow_attached", "The shadow is attached. It judges the agent’s decisions from now on, without effect.";
    ShadowPromoted, "shadow_promoted", "Promoted. The limits of the shadow apply to the next payment.";
    ShadowRemoved, "shadow_removed", "The shadow was removed. The limits in force stay as they are.";
    Approved, "approved", "Approved. The payment is made when the agent repeats its request.";
    ApprovedFrozen, "approved_frozen", "Approved, but the agent is frozen: nothing is paid until the freeze ends and the agent repeats its request.";
    ApprovedAndRaised, "approved_and_raised", "Approved, and the limit was raised. The payment is made when the agent repeats its request.";
    ApprovedAlways, "approved_always", "Approved, and the exception is in force. The payment is made when the agent repeats its request. You can remove the exception in the agent’s rules.";
    ApprovalWithdrawn, "approval_withdrawn", "The approval was withdrawn. Nothing was paid.";
    NothingSelected, "nothing_selected", "Nothing was decided: select from 1 to 50 approvals.";
    Rejected, "rejected", "Rejected. Nothing was paid.";
    PayoutAddressNamed, "payout_address_named", "The payout address was set. The time from which it can be used is shown below.";
    PayoutAddressRemoved, "payout_address_removed", "The payout address was removed. No further payout goes to it.";
    PaidOut, "paid_out", "Submitted. The receipt becomes final when the chain shows it, within minutes.";
    PaidOutBefore, "paid_out_before", "This payout was already requested. Its current state is shown.";
    PayoutUnanswered, "payout_unanswered", "Signed, but the facilitator has not confirmed that it received the payout. If the chain shows it within minutes, it was made. If not, it expires, and you can request it again.";
    WebhookSaved, "webhook_saved", "Saved. The new settings apply to events from now on.";
    WebhookEnabled, "webhook_enabled", "The webhook is switched on. It receives events from now on.";
    WebhookDisabled, "webhook_disabled", "The webhook is switched off. It receives no further events.";
    WebhookRemoved, "webhook_removed", "The webhook and its secrets were removed.";
    WebhookTestSent, "webhook_test_sent", "The test event was queued: see the deliveries.";
    WebhookSentAgain, "webhook_sent_again", "The event was queued again: see the deliveries.";
    SignedOut, "signed_out", "You have signed out.";
    SessionEnded, "session_ended", "That session has ended. Its browser has to sign in again.";
    AllEnded, "all_ended", "All your sessions have ended, including this one.";
    SignInAgain, "sign_in_again", "Nothing was changed. This action requires a recent sign-in: please sign in again, and repeat it.";
    SignInNotAgain, "sign_in_not_again", "Your identity provider did not ask for your credentials, so this sign-in does not count as recent. Sign out there, and try again.";
    SignInFailed, "sign_in_failed", "The sign-in failed. Nothing was changed. Please try again.";
    ChangeAccepted, "change_accepted", "Accepted. The catalog lists the change, and agents pay it after the delay of accepted changes.";
    ChangeWithdrawn, "change_withdrawn", "Withdrawn. The current payee and price stay in effect.";
    PaymentPinned, "payment_pinned", "Pinned. A new payee or a higher price takes effect after its delay: see below.";
    PinAwaitsSecond, "pin_awaits_second", "Requested. The payment takes effect once another operator accepts it.";
    ProbeRequested, "probe_requested", "Requested. The service is probed within about a minute.";
    OperatorFroze, "operator_froze", "Frozen. Every decision from now on is refused.";
    OperatorUnfroze, "operator_unfroze", "The freeze has ended.";
    UnfreezeAwaitsSecond, "unfreeze_awaits_second", "Requested. The freeze ends once another operator ends it too.";
    AgentOffered, "agent_offered", "Offered. The person has seven days to accept the agent.";
    OfferAwaitsSecond, "offer_awaits_second", "Requested. The person can accept the agent once another operator makes the same offer.";
    OfferWithdrawn, "offer_withdrawn", "The agent is not offered to anybody.";
    ReconcileRequested, "reconcile_requested", "Requested. The settlement is checked within about a minute.";
    SignInStale, "sign_in_stale", "That sign-in was started too long ago, or in another browser. Please try again.";
}

impl PageMessage {
    pub(crate) fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|message| message.code() == code)
    }

    /// Returns whether the sign-in page may show the notification. That page needs no session.
    pub(crate) const fn is_about_sign_in(self) -> bool {
        matches!(
            self,
            Self::SignedOut
                | Self::AllEnded
                | Self::SignInAgain
                | Self::SignInNotAgain
                | Self::SignInFailed
                | Self::SignInStale
        )
    }

    pub(crate) const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::NothingSelected
                | Self::DeviceCodeUnknown
                | Self::PayoutUnanswered
                | Self::SignInFailed
                | Self::SignInStale
                | Self::SignInAgain
                | Self::SignInNotAgain
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_message_is_found_by_its_code() {
        for notice in PageMessage::ALL.iter().copied() {
            assert_eq!(PageMessage::from_code(notice.code()), Some(notice));
        }
        assert_eq!(PageMessage::from_code("<script>"), None);
    }
}
