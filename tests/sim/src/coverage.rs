//! The coverage of a run. It is reported because a simulation that exercises nothing finds nothing.

use std::collections::BTreeMap;
use std::fmt;

/// The number of occurrences of each event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    pub(crate) fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// The number of occurrences of an event.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.0 {
            writeln!(f, "{count:>9}  {what}")?;
        }
        Ok(())
    }
}

/// The events that must occur in a long run.
pub const EXERCISED: &[&str] = &[
    "Accept accepted",
    "AskForRaise 200",
    "Attack BadBody 400",
    "Attack Flood limited",
    "Attack Guess limited",
    "Attack Questions policy_blocked too_many_open_approvals",
    "Attack Raise 200",
    "Attack TheirApproval not_found",
    "Attack TheirReceipts 404",
    "Attack TheirSettlement 404",
    "Attack TheirTransaction 409 settlement_transaction_already_used",
    "Authorize 5xx",
    "Authorize allow",
    "Authorize amount_exceeds_max",
    "Authorize amount_exceeds_per_call_limit",
    "Authorize approval_required",
    "Authorize crashed",
    "Authorize daily_spend_limit_exceeded",
    "Authorize idempotency_key_reused_for_different_request",
    "Authorize idempotent_replay",
    "Authorize insufficient_usdc_balance",
    "Authorize invalid_agent_key",
    "Authorize key_not_allowed",
    "Authorize policy_blocked agent_frozen",
    "Authorize policy_blocked approval_expired",
    "Authorize policy_blocked approval_rejected",
    "Authorize policy_blocked approval_request_mismatch",
    "Authorize policy_blocked budget_limit",
    "Authorize policy_blocked catalog_payee",
    "Authorize policy_blocked category_block",
    "Authorize policy_blocked count_limit",
    "Authorize policy_blocked duplicate_guard",
    "Authorize policy_blocked minimum_interval",
    "Authorize policy_blocked price_above_usual",
    "Authorize policy_blocked schedule",
    "Authorize replay",
    "Authorize service_not_enabled",
    "Cancel sent",
    "Check 409",
    "Check allow",
    "Check block",
    "Check escalate",
    "Complete 409 settlement_transaction_already_used",
    "Complete 422 authorization_not_used",
    "Complete 422 transaction_not_final",
    "Complete 422 transaction_not_mined",
    "Complete 422 transaction_reverted",
    "Complete 422 transaction_unknown",
    "Complete confirmed",
    "Complete crashed",
    "Deliver crashed",
    "Deliver done",
    "Deliver in part",
    "Drain sent",
    "FanOut crashed",
    "FanOut done",
    "Fold crashed",
    "Fold done",
    "Fold failed",
    "Freeze stored",
    "Fund sent",
    "GrantRaise granted",
    "Invent 422 too_many_failed_proofs",
    "Invent 422 transaction_not_mined",
    "Mark asked",
    "NamePayout done",
    "Offer offered",
    "Operators ended",
    "Operators frozen",
    "Pass passed",
    "PassToDeadline at it",
    "PassToDeadline just before",
    "PassToRollOff at it",
    "PassToRollOff just before",
    "Pay last second",
    "Pay soon",
    "Pay too late",
    "PayOut address waits",
    "PayOut no address",
    "PayOut payout open",
    "PayOut replayed",
    "PayOut reserved",
    "Policy stored",
    "Poll approved",
    "Poll pending",
    "Receipts listed",
    "Reconcile crashed",
    "Reconcile failed",
    "Reconcile in part",
    "Reconcile to the end",
    "ReconcilePart to the end",
    "ReconcileWithWrongKey to the end",
    "RemovePayout done",
    "Reorganize deep",
    "Reorganize shallow",
    "Request done",
    "Resolve already",
    "Resolve done",
    "Resume crashed",
    "Resume done",
    "Revoke stored",
    "Rotate stored",
    "Rule stored",
    "Scope stored",
    "Sweep crashed",
    "Sweep done",
    "Sweep failed",
    "Tell crashed",
    "Tell done",
    "Tell failed",
    "Tell in part",
    "called on request",
    "claimed beside another",
    "confirmed after its release",
    "delivered after a failure",
    "fault Conflict",
    "fault CrashAfter",
    "fault CrashBefore",
    "fault Late",
    "fault LostAnswer",
    "fault LostRequest",
    "fault NoLogs",
    "fault OldHead",
    "fault OtherChain",
    "fault SideBlocks",
    "fault Slow",
    "fault Throttled",
    "fault TooManyLogs",
    "fault of KMS",
    "given up after a day",
    "given up: too many wait",
    "gone",
    "in time beside others",
    "limited by its address",
    "limited by its key",
    "limited by its payments",
    "messages done and not removed",
    "met another transaction",
    "put off",
    "received twice",
    "reconciled: block_changed",
    "reconciled: confirmed",
    "reconciled: failed",
    "reconciled: released",
    "reconciled: superseded",
    "reconciled: taken_back",
    "reconciled: unchanged",
    "set aside",
    "signed again by KMS",
    "signed with two secrets",
    "throttled by a busy partition",
];
