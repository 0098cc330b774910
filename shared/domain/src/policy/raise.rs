//! Raises: higher caps of an agent for one service, for a limited time, and the request of an agent for one.
//!
//! A raise is part of the policy of one service, so it has that policy's version. It ends by the time alone: nothing is
//! written when it ends. It is its person's own: for an agent that was handed over, it has no effect.

use crate::{Amount, ApprovalId, Duration, Timestamp};

/// The caps of a policy that a raise replaces, where they are higher. At least one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaisedCaps {
    /// The cap per call.
    pub max_per_call: Option<Amount>,
    /// The cap on the amount authorized in the last 24 hours.
    pub max_per_day: Option<Amount>,
}

/// Higher caps for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    /// The caps.
    pub caps: RaisedCaps,
    /// The time from which it applies: when it was granted.
    pub from: Timestamp,
    /// The time at which it ends; it no longer applies then.
    pub until: Timestamp,
    /// The `sub` of the person who granted it. It applies only while the agent is theirs.
    pub by: String,
    /// The request that was granted.
    pub approval: ApprovalId,
}

impl Raise {
    /// The longest time for which an agent can ask for a raise.
    pub const LONGEST: Duration = Duration::from_secs_u32(7 * 86_400);

    /// Whether it applies to an agent of this owner at this time.
    pub fn applies(&self, owner: &str, at: Timestamp) -> bool {
        self.by == owner && self.from <= at && at < self.until
    }

    /// Whether it allows nothing that `other` does not allow, whatever the policy's caps are.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.by == other.by
            && self.from >= other.from
            && self.until <= other.until
            && self.caps.max_per_call <= other.caps.max_per_call
            && self.caps.max_per_day <= other.caps.max_per_day
    }
}

/// The request of an agent for a raise, of the service and to the person of the approval that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaiseRequest {
    /// The caps that it asks for.
    pub caps: RaisedCaps,
    /// The end of the raise.
    pub until: Timestamp,
    /// Why it asks, in the agent's words: at most [`RAISE_REASON_MAX`] characters.
    pub reason: String,
    /// The `sub` of the person who is asked. No other person can grant it.
    pub asked_of: String,
}

/// The maximum length of the reason for a raise, in characters.
pub const RAISE_REASON_MAX: usize = 500;

impl RaiseRequest {
    /// The raise, granted at `at` by the person who is asked. `approval` has this request.
    pub fn granted(&self, approval: ApprovalId, at: Timestamp) -> Raise {
        Raise {
            caps: self.caps,
            from: at,
            until: self.until,
            by: self.asked_of.clone(),
            approval,
        }
    }
}
