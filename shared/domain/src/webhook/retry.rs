//! The next step after a webhook call: success, a retry after an increasing pause, or failure.

use crate::{Duration, Timestamp};
use chrono::DateTime;
use std::fmt;

/// The result of a webhook call or of sending an email. Nothing else of the response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// The endpoint responded with this status. Redirects are not followed.
    Status(u16),
    /// The endpoint did not respond in time.
    Timeout,
    /// The connection to the endpoint failed.
    Unreachable,
    /// The host name could not be resolved.
    UnknownHost,
    /// The host name resolves to an address that is not public.
    BlockedAddress,
}

impl CallResult {
    /// Returns whether the status is 2xx (Standard Webhooks 1.0.0, "Deliverability and reliability").
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Status(200..=299))
    }

    /// Returns whether the endpoint responded with 410 and must not be called again (Standard Webhooks 1.0.0).
    pub const fn is_endpoint_gone(self) -> bool {
        matches!(self, Self::Status(410))
    }

    /// Parses the output of [`fmt::Display`]. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let named = [
            Self::Timeout,
            Self::Unreachable,
            Self::UnknownHost,
            Self::BlockedAddress,
        ];
        let named = named.into_iter().find(|result| result.to_string() == text);
        let status = || {
            let status: u16 = text.strip_prefix("status_")?.parse().ok()?;
            ((100..=999).contains(&status)).then_some(Self::Status(status))
        };
        named.or_else(status)
    }
}

/// Writes `status_503`, `timeout`, `unreachable`, `unknown_host` or `blocked_address`.
impl fmt::Display for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status_{status}"),
            Self::Timeout => f.write_str("timeout"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::UnknownHost => f.write_str("unknown_host"),
            Self::BlockedAddress => f.write_str("blocked_address"),
        }
    }
}

/// What happens to a delivery after a webhook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCall {
    /// The call succeeded.
    Delivered,
    /// The call failed. The next call is made after this pause.
    Again(Duration),
    /// No further call is made, after a day of failures or a 410 response.
    GivenUp {
        /// Whether the webhook must not be called again (410, Standard Webhooks 1.0.0).
        gone: bool,
    },
}

/// The pauses after failed calls: 23 hours and 35 minutes in total.
pub const RETRY_PAUSES: [Duration; 7] = [
    Duration::from_secs_u32(5),
    Duration::from_secs_u32(5 * 60),
    Duration::from_secs_u32(30 * 60),
    Duration::from_secs_u32(2 * 3_600),
    Duration::from_secs_u32(5 * 3_600),
    Duration::from_secs_u32(8 * 3_600),
    Duration::from_secs_u32(8 * 3_600),
];

/// The maximum pause that an endpoint may request with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs_u32(6 * 3_600);

/// Returns the next step after call number `attempt`, counted from one. `jitter` is a random number that lengthens the
/// pause by up to a tenth, so that failed calls are not retried together.
pub fn next_step_after_call(result: CallResult, attempt: u32, retry_after: Option<Duration>, jitter: u8) -> AfterCall {
    if result.is_success() {
        return AfterCall::Delivered;
    }
    if result.is_endpoint_gone() {
        return AfterCall::GivenUp { gone: true };
    }
    let failed_before = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(pause) = RETRY_PAUSES.get(failed_before) else {
        return AfterCall::GivenUp { gone: false };
    };
    let request = retry_after.map_or(*pause, |request| request.min(MAX_RETRY_AFTER));
    let secs = request.max(*pause).secs();
    let longer = secs.saturating_mul(u64::from(jitter)) / 2_560;
    let secs = u32::try_from(secs.saturating_add(longer)).unwrap_or(u32::MAX);
    AfterCall::Again(Duration::from_secs_u32(secs))
}

/// Returns the pause in `Retry-After`, in seconds or as a time (RFC 9110 §10.2.3); `None` for any other text.
pub fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit into a `u32` is above every limit.
        return Some(Duration::from_secs_u32(text.parse().unwrap_or(u32::MAX)));
    }
    let at = DateTime::parse_from_rfc2822(text).ok()?;
    Some(Timestamp::from_micros(at.timestamp_micros())?.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u32) -> Duration {
        Duration::from_secs_u32(secs)
    }

    #[test]
    fn failed_webhook_calls_are_retried_with_growing_pauses() {
        assert!(RETRY_PAUSES.is_sorted());
        let total: u64 = RETRY_PAUSES.iter().map(|pause| pause.secs()).sum();
        assert_eq!(total, 23 * 3_600 + 35 * 60 + 5);
        let after = |attempt| next_step_after_call(CallResult::Status(500), attempt, None, 0);
        assert_eq!(after(1), AfterCall::Again(secs(5)));
        assert_eq!(after(2), AfterCall::Again(secs(300)));
        assert_eq!(after(7), AfterCall::Again(secs(28_800)));
        assert_eq!(after(8), AfterCall::GivenUp { gone: false });
        assert_eq!(after(u32::MAX), AfterCall::GivenUp { gone: false });
    }

    #[test]
    fn only_2xx_statuses_deliver_and_410_ends_the_webhook() {
        for status in [200, 202, 204, 299] {
            let after = next_step_after_call(CallResult::Status(status), 1, None, 0);
            assert_eq!(after, AfterCall::Delivered, "{status}");
        }
        let failed = [100, 199, 300, 302, 307, 400, 404, 429, 500, 503].map(CallResult::Status);
        let others = [CallResult::Timeout, CallResult::Unreachable, CallResult::BlockedAddress];
        for result in failed.into_iter().chain(others) {
            let after = next_step_after_call(result, 1, None, 0);
            assert_eq!(after, AfterCall::Again(secs(5)), "{result}");
        }
        let gone = next_step_after_call(CallResult::Status(410), 1, None, 0);
        assert_eq!(gone, AfterCall::GivenUp { gone: true });
    }

    #[test]
    fn requested_retry_pauses_are_bounded_and_have_jitter() {
        let after = |asked, jitter| next_step_after_call(CallResult::Status(429), 2, Some(secs(asked)), jitter);
        assert_eq!(after(0, 0), AfterCall::Again(secs(300)));
        assert_eq!(after(600, 0), AfterCall::Again(secs(600)));
        assert_eq!(after(u32::MAX, 0), AfterCall::Again(secs(6 * 3_600)));
        assert_eq!(after(0, 255), AfterCall::Again(secs(329)));
        // The longest pause is eight hours plus a tenth for the jitter.
        for attempt in 1..=8 {
            if let AfterCall::Again(pause) =
                next_step_after_call(CallResult::Timeout, attempt, Some(secs(u32::MAX)), u8::MAX)
            {
                assert!(pause < secs(9 * 3_600), "{attempt}");
            }
        }
    }

    #[test]
    fn retry_after_accepts_seconds_or_a_date() {
        let now = Timestamp::parse("2026-11-23T12:00:00Z").unwrap();
        let rows = [
            ("0", Some(0)),
            ("120", Some(120)),
            ("99999999999999999999", Some(u32::MAX)),
            ("Mon, 23 Nov 2026 12:01:00 GMT", Some(60)),
            ("Mon, 23 Nov 2026 11:00:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_retry_after(text, now), expected.map(secs), "{text}");
        }
    }

    #[test]
    fn call_results_survive_formatting_and_parsing() {
        for result in [
            CallResult::Status(200),
            CallResult::Status(503),
            CallResult::Timeout,
            CallResult::Unreachable,
            CallResult::UnknownHost,
            CallResult::BlockedAddress,
        ] {
            assert_eq!(CallResult::parse(&result.to_string()), Some(result));
        }
        for text in ["", "status_", "status_99", "status_1000", "503"] {
            assert_eq!(CallResult::parse(text), None, "{text}");
        }
    }
}
