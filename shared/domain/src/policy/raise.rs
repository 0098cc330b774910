//! Temporary limit increases: higher caps of an agent for one service until a set time, and an agent's request for an
//! increase.
//!
//! An increase is part of the policy for one service and has the policy's version. The increase ends at its time
//! without a write. An increase applies only while the user who granted it owns the agent.

use crate::{Amount, ApprovalId, Duration, Timestamp};

/// The caps of an increase. A cap replaces the policy's cap if it is higher. At least one cap is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncreasedCaps {
    /// The per-call cap.
    pub max_per_call: Option<Amount>,
    /// The cap on the amount authorized within 24 hours.
    pub max_per_day: Option<Amount>,
}

/// A temporary limit increase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitIncrease {
    /// The higher caps.
    pub caps: IncreasedCaps,
    /// The time from which the increase applies: the time of the approval.
    pub from: Timestamp,
    /// The time from which the increase no longer applies.
    pub until: Timestamp,
    /// The id of the user who granted the increase. The increase applies only while this user owns the agent.
    pub by: String,
    /// The approval of the agent's request.
    pub approval: ApprovalId,
}

impl LimitIncrease {
    /// The maximum duration of an increase that an agent can request.
    pub const LONGEST: Duration = Duration::from_secs_u32(7 * 86_400);

    /// Returns whether the increase applies to an agent of this owner at this time.
    pub fn applies_at(&self, owner: &str, at: Timestamp) -> bool {
        self.by == owner && self.from <= at && at < self.until
    }

    /// Returns whether `other` allows everything that this increase allows, regardless of the policy's caps.
    pub(super) fn is_at_most(&self, other: &Self) -> bool {
        self.by == other.by
            && self.from >= other.from
            && self.until <= other.until
            && self.caps.max_per_call <= other.caps.max_per_call
            && self.caps.max_per_day <= other.caps.max_per_day
    }
}

/// An agent's request for a temporary limit increase. The service and the agent are in the approval request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitIncreaseRequest {
    /// The requested caps.
    pub caps: IncreasedCaps,
    /// The requested end of the increase.
    pub until: Timestamp,
    /// The agent's reason for the request: at most [`RAISE_REASON_MAX`] characters.
    pub reason: String,
    /// The id of the user who must approve. No other user can grant the increase.
    pub asked_of: String,
}

/// The time after a rejection in which an agent can't request another limit increase for the service. The pause
/// protects the user from repeated requests.
pub const RAISE_PAUSE: Duration = Duration::DAY;

/// The maximum length of the reason for a limit increase, in characters.
pub const RAISE_REASON_MAX: usize = 500;

impl LimitIncreaseRequest {
    /// Creates the granted increase. `approval` is the approval with this request, and `at` the time of the decision.
    pub fn granted_at(&self, approval: ApprovalId, at: Timestamp) -> LimitIncrease {
        LimitIncrease {
            caps: self.caps,
            from: at,
            until: self.until,
            by: self.asked_of.clone(),
            approval,
        }
    }
}
