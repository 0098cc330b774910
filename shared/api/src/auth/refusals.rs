//! Limits the requests with wrong credentials per source and minute. Valid credentials are accepted even from an
//! attacker's address.
//!
//! Each Lambda instance counts in memory, because a write per rejected request would cost more than the rejection.

use crate::ThrottleScope;
use purser_domain::{Error, ErrorKind, Timestamp};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The maximum number of counted sources. Rejected requests from further sources get 429 immediately.
const MAX_SOURCES: usize = 10_000;

/// Counts rejected requests per source, and limits them per minute.
#[derive(Debug)]
pub struct RejectionLimit {
    per_minute: u32,
    counted: Mutex<RejectionCounts>,
}

/// The rejections per source in one minute.
#[derive(Debug, Default)]
struct RejectionCounts {
    minute: u64,
    by_source: HashMap<ThrottleScope, u32>,
}

impl RejectionLimit {
    /// Creates a limit of `per_minute` rejected requests for each source, with empty counts.
    pub fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            counted: Mutex::default(),
        }
    }

    /// Counts a rejected request. Returns `error`, or 429 `too_many_requests` if the source has reached the limit.
    pub fn count_rejection_and_return_error(&self, source: ThrottleScope, now: Timestamp, error: Error) -> Error {
        const SECONDS_PER_MINUTE: u64 = 60;
        let minute = now.secs().div_euclid(SECONDS_PER_MINUTE);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.minute != minute {
            *counted = RejectionCounts {
                minute,
                by_source: HashMap::new(),
            };
        }
        let is_full = counted.by_source.len() >= MAX_SOURCES;
        let so_far = counted.by_source.get(&source).copied();
        let is_within = so_far.map_or(!is_full, |so_far| so_far < self.per_minute);
        if !is_within {
            // The remainder is less than 60, so the result is at least 1.
            let retry_after = SECONDS_PER_MINUTE.saturating_sub(now.secs().rem_euclid(SECONDS_PER_MINUTE));
            return ErrorKind::TooManyRequests { retry_after }.into();
        }
        counted
            .by_source
            .insert(source, so_far.unwrap_or_default().saturating_add(1));
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(1_795_223_340 + secs).unwrap()
    }

    fn source(number: u32) -> ThrottleScope {
        ThrottleScope::for_ip(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    fn told(limit: &RejectionLimit, number: u32, secs: u64) -> String {
        let refused =
            limit.count_rejection_and_return_error(source(number), at(secs), ErrorKind::InvalidInternalToken.into());
        match refused.kind() {
            ErrorKind::TooManyRequests { retry_after } => format!("429 for {retry_after} s"),
            kind => kind.slug(),
        }
    }

    #[test]
    fn rejected_requests_are_limited_per_source_and_minute() {
        let limit = RejectionLimit::new(2);
        let rows = [
            (1, 0, "invalid_internal_token"),
            (1, 1, "invalid_internal_token"),
            (1, 2, "429 for 58 s"),
            (1, 59, "429 for 1 s"),
            (2, 59, "invalid_internal_token"),
            (1, 60, "invalid_internal_token"),
        ];
        for (number, secs, expected) in rows {
            assert_eq!(told(&limit, number, secs), expected, "{number} {secs}");
        }
    }

    #[test]
    fn sources_beyond_the_counting_limit_are_throttled() {
        let limit = RejectionLimit::new(2);
        for number in 0..10_000 {
            assert_eq!(told(&limit, number, 0), "invalid_internal_token");
        }
        assert_eq!(told(&limit, 10_000, 0), "429 for 60 s");
        assert_eq!(told(&limit, 7, 0), "invalid_internal_token");
        assert_eq!(told(&limit, 10_000, 60), "invalid_internal_token");
    }
}
