//! Temporary limit increases: higher caps of an agent for one service until a set time.
//!
//! An increase is part of the policy and ends without a write. It applies only while the user who granted it owns the
//! agent. Each cap of a policy has at most one increase, with an end of its own.

use crate::{Amount, ApprovalId, Caps, Duration, SpendPolicy, Timestamp, ValidationError};

/// Higher caps for an agent. A cap applies only where it is higher than the policy's cap. At least one cap is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncreasedCaps {
    /// The maximum amount of a call, in micro-USDC.
    pub max_per_call: Option<Amount>,
    /// The cap on the amount authorized within 24 hours.
    pub max_per_day: Option<Amount>,
}

impl IncreasedCaps {
    /// Removes the caps that `other` has.
    pub(super) fn remove_caps(&mut self, other: Self) {
        self.max_per_call = self.max_per_call.filter(|_| other.max_per_call.is_none());
        self.max_per_day = self.max_per_day.filter(|_| other.max_per_day.is_none());
    }
}

/// Higher caps that apply until a set time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemporaryCaps {
    /// The caps that apply until the end of the increase.
    pub caps: IncreasedCaps,
    /// The time from which the higher caps no longer apply.
    pub until: Timestamp,
}

/// The owner's restriction of a requested limit increase. An omitted field grants the requested value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantRestriction {
    /// The per-call cap to grant: at most the requested cap. Zero leaves the policy's per-call cap unchanged.
    pub max_per_call: Option<Amount>,
    /// The daily cap to grant: at most the requested cap. Zero leaves the policy's daily cap unchanged.
    pub max_per_day: Option<Amount>,
    /// The end of the granted increase: at most the requested end.
    pub until: Option<Timestamp>,
}

/// Higher caps that a user granted to an agent for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitIncrease {
    /// The caps that the user granted.
    pub caps: IncreasedCaps,
    /// The time from which the increase applies: the time of the approval.
    pub from: Timestamp,
    /// The time from which the increase no longer applies.
    pub until: Timestamp,
    /// The id of the user who granted the increase. It applies only while this user owns the agent.
    pub by: String,
    /// The id of the approval with which the user granted the increase.
    pub approval: ApprovalId,
}

impl LimitIncrease {
    /// The maximum duration of an increase that an agent can request.
    pub const MAX_DURATION: Duration = Duration::from_secs_u32(7 * 86_400);

    /// Returns the granted caps and the time at which they expire.
    pub const fn temporary_caps(&self) -> TemporaryCaps {
        TemporaryCaps {
            caps: self.caps,
            until: self.until,
        }
    }

    /// Returns whether the increase applies to an agent of this owner at this time.
    pub fn applies_at(&self, owner: &str, at: Timestamp) -> bool {
        self.by == owner && self.from <= at && at < self.until
    }

    /// Returns whether `other` allows everything that this increase allows.
    pub(super) fn is_at_most(&self, other: &Self) -> bool {
        self.by == other.by
            && self.from >= other.from
            && self.until <= other.until
            && self.caps.max_per_call <= other.caps.max_per_call
            && self.caps.max_per_day <= other.caps.max_per_day
    }
}

/// An agent's request for a temporary limit increase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitIncreaseRequest {
    /// The caps that the agent requests.
    pub caps: IncreasedCaps,
    /// The requested end of the increase.
    pub until: Timestamp,
    /// The agent's reason for the request: at most 500 characters.
    pub reason: String,
    /// The id of the user who must approve the request. No other user can.
    pub asked_of: String,
}

/// How long an agent can't request another increase for the service after a rejection. The pause protects the user.
pub const RAISE_PAUSE: Duration = Duration::DAY;

impl LimitIncreaseRequest {
    /// Returns the requested caps and the time at which they expire.
    pub const fn temporary_caps(&self) -> TemporaryCaps {
        TemporaryCaps {
            caps: self.caps,
            until: self.until,
        }
    }

    /// Returns the caps to grant at `now`. A validation error means that the restriction grants nothing, or more than
    /// was requested.
    pub fn restrict(
        &self,
        restriction: &GrantRestriction,
        policy: &SpendPolicy,
        now: Timestamp,
    ) -> Result<TemporaryCaps, Vec<ValidationError>> {
        let (call, day) = ("/max_per_call_units", "/max_per_day_units");
        let mut errors = Vec::new();
        let mut restrict = |path: &str, requested, chosen, current| {
            granted_cap(requested, chosen, current).unwrap_or_else(|message| {
                errors.push(ValidationError::at_path(path, message));
                None
            })
        };
        let caps = IncreasedCaps {
            max_per_call: restrict(
                call,
                self.caps.max_per_call,
                restriction.max_per_call,
                policy.max_per_call,
            ),
            max_per_day: restrict(day, self.caps.max_per_day, restriction.max_per_day, policy.max_per_day),
        };
        let until = restriction.until.unwrap_or(self.until);
        if until <= now || until > self.until {
            let message = format!(
                "must be in the future, and at the latest the requested end {}",
                self.until
            );
            errors.push(ValidationError::at_path("/until", message));
        }
        if errors.is_empty() && caps == IncreasedCaps::default() {
            let path = if self.caps.max_per_call.is_some() { call } else { day };
            errors.push(ValidationError::at_path(
                path,
                "grants no cap; reject the request instead",
            ));
        }
        if errors.is_empty() {
            Ok(TemporaryCaps { caps, until })
        } else {
            Err(errors)
        }
    }
}

/// Returns the cap to grant: the cap `chosen` that the owner chose, or the requested cap if the owner chose none.
/// `None` means that the policy's cap `current` stays unchanged.
fn granted_cap(requested: Option<Amount>, chosen: Option<Amount>, current: Amount) -> Result<Option<Amount>, String> {
    match (requested, chosen) {
        (requested, None) => Ok(requested),
        (_, Some(Amount::ZERO)) => Ok(None),
        (None, Some(_)) => Err("was not requested".to_owned()),
        (Some(requested), Some(chosen)) if chosen > requested => {
            Err(format!("must be at most the requested {requested} units"))
        }
        (Some(_), Some(chosen)) if chosen <= current => Err(format!(
            "must be above the cap of {current} units, or 0 to leave the cap unchanged"
        )),
        (Some(_), Some(chosen)) => Ok(Some(chosen)),
    }
}

impl TemporaryCaps {
    /// Returns the maximum amount that the agent can pay from `now` to the end of the increase: the daily cap
    /// for each started day.
    pub fn max_exposure(&self, current_caps: Caps, now: Timestamp) -> Amount {
        let per_day = self
            .caps
            .max_per_day
            .map_or(current_caps.per_day, |cap| cap.max(current_caps.per_day));
        let days = self
            .until
            .since(now)
            .micros()
            .unsigned_abs()
            .div_ceil(Duration::DAY.micros().unsigned_abs());
        Amount::from_units(per_day.units().saturating_mul(days)).unwrap_or(Amount::MAX)
    }

    /// Creates the increase that the user `by` granted with the approval `approval` at `at`.
    pub const fn grant(self, by: String, approval: ApprovalId, at: Timestamp) -> LimitIncrease {
        LimitIncrease {
            caps: self.caps,
            from: at,
            until: self.until,
            by,
            approval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposure_of_a_limit_increase_is_the_daily_cap_for_each_started_day() {
        let units = |units| Amount::from_units(units).unwrap();
        let secs = |secs| Timestamp::from_secs(secs).unwrap();
        let exposure = |max_per_day: Option<u64>, until| {
            let increase = TemporaryCaps {
                caps: IncreasedCaps {
                    max_per_call: Some(units(9)),
                    max_per_day: max_per_day.map(units),
                },
                until: secs(until),
            };
            let current_caps = Caps {
                per_call: units(5),
                per_day: units(50),
            };
            increase.max_exposure(current_caps, secs(100)).units()
        };
        let rows = [
            (Some(100), 101, 100),
            (Some(100), 100 + 86_400, 100),
            (Some(100), 101 + 86_400, 200),
            (Some(40), 101, 50),
            (None, 101 + 86_400, 100),
            (Some(Amount::MAX.units()), 101 + 86_400, Amount::MAX.units()),
        ];
        for (max_per_day, until, expected) in rows {
            assert_eq!(exposure(max_per_day, until), expected, "{max_per_day:?} {until}");
        }
    }

    #[test]
    fn an_owner_grants_at_most_the_requested_caps_until_the_requested_end() {
        let units = |units| Amount::from_units(units).unwrap();
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let (now, until) = (at(10), at(30));
        let caps = |call: Option<u64>, day: Option<u64>| IncreasedCaps {
            max_per_call: call.map(units),
            max_per_day: day.map(units),
        };
        let policy = SpendPolicy {
            max_per_call: units(5),
            max_per_day: units(50),
            ..SpendPolicy::spec_defaults()
        };
        let restrict = |requested, restricted: IncreasedCaps, end: Option<i64>| {
            let request = LimitIncreaseRequest {
                caps: requested,
                until,
                reason: "more pages".to_owned(),
                asked_of: "ann".to_owned(),
            };
            let restriction = GrantRestriction {
                max_per_call: restricted.max_per_call,
                max_per_day: restricted.max_per_day,
                until: end.map(at),
            };
            let granted = request.restrict(&restriction, &policy, now);
            granted.map_err(|errors| errors.into_iter().map(|error| error.path).collect::<Vec<_>>())
        };
        let both = caps(Some(10), Some(100));
        let granted = [
            (caps(None, None), None, both, until),
            (caps(Some(10), Some(100)), Some(30), both, until),
            (caps(Some(6), None), Some(11), caps(Some(6), Some(100)), at(11)),
            (caps(Some(0), Some(51)), None, caps(None, Some(51)), until),
        ];
        for (restricted, end, caps, until) in granted {
            assert_eq!(restrict(both, restricted, end), Ok(TemporaryCaps { caps, until }));
        }
        let (call, day) = ("/max_per_call_units", "/max_per_day_units");
        let rejected = [
            (both, caps(Some(11), None), None, call),
            (both, caps(Some(5), None), None, call),
            (both, caps(Some(0), Some(0)), None, call),
            (both, caps(None, Some(101)), None, day),
            (both, caps(None, Some(50)), None, day),
            (both, caps(None, None), Some(10), "/until"),
            (both, caps(None, None), Some(31), "/until"),
            (caps(None, Some(100)), caps(Some(1), None), None, call),
            (caps(None, Some(100)), caps(None, Some(0)), None, day),
        ];
        for (requested, restricted, end, path) in rejected {
            let paths = vec![path.to_owned()];
            assert_eq!(
                restrict(requested, restricted, end),
                Err(paths),
                "{restricted:?} {end:?}"
            );
        }
    }
}
