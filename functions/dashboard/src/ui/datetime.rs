//! Renders times. The script converts exact times to local time and updates relative times.

use crate::ui::count::count_with_noun;
use maud::{Markup, html};
use purser_domain::{Duration, Timestamp};

/// Renders a relative time such as `in 3 h`, with the exact time on hover.
pub(crate) fn relative_time(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(machine_readable_time(at)) title=(at.to_display_text()) data-relative { (time_distance(at, now)) } }
}

/// Renders an exact time such as `21 Nov 2026, 01:09 UTC`.
pub(crate) fn exact_time(at: Timestamp) -> Markup {
    html! { time datetime=(machine_readable_time(at)) data-exact { (at.to_display_text()) } }
}

/// Renders the relative and the exact time, for deadlines.
pub(crate) fn relative_and_exact_time(at: Timestamp, now: Timestamp) -> Markup {
    html! { (relative_time(at, now)) span.aside { " · " (exact_time(at)) } }
}

/// Formats a duration in the largest unit that divides it, such as `7 days` or `36 hours`.
pub(crate) fn format_duration(duration: Duration) -> String {
    let (count, unit) = largest_whole_unit(duration);
    count_with_noun(count, unit)
}

/// Returns a number and the largest unit that divides the duration, in the singular.
pub(crate) fn largest_whole_unit(duration: Duration) -> (u64, &'static str) {
    match duration.secs() {
        secs if secs >= 86_400 && secs.is_multiple_of(86_400) => (secs / 86_400, "day"),
        secs if secs >= 3_600 && secs.is_multiple_of(3_600) => (secs / 3_600, "hour"),
        secs if secs.is_multiple_of(60) => (secs / 60, "minute"),
        secs => (secs, "second"),
    }
}

/// Rounds down to a whole unit. The script uses the same format.
fn time_distance(at: Timestamp, now: Timestamp) -> String {
    let future = at > now;
    let secs = if future { at.since(now) } else { now.since(at) }.secs();
    let text = match secs {
        0..60 => return if future { "in less than a minute" } else { "just now" }.to_owned(),
        60..3_600 => format!("{} min", secs / 60),
        3_600..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} days", secs / 86_400),
    };
    if future {
        format!("in {text}")
    } else {
        format!("{text} ago")
    }
}

/// Formats a time for HTML's `datetime` attribute, without a fraction of the second.
fn machine_readable_time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{}Z", text.get(..19).unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs).unwrap()
    }

    #[test]
    fn times_are_shown_relative_and_exact() {
        let now = at(1_795_223_340);
        let rows = [
            (0, "just now"),
            (-59, "just now"),
            (1, "in less than a minute"),
            (-60, "1 min ago"),
            (3_599, "in 59 min"),
            (86_400, "in 24 h"),
            (-172_800, "2 days ago"),
            (864_000, "in 10 days"),
        ];
        for (offset, expected) in rows {
            let then = at(1_795_223_340_u64.checked_add_signed(offset).unwrap());
            assert_eq!(time_distance(then, now), expected, "{offset}");
        }
        let markup = exact_time(now).into_string();
        assert_eq!(
            markup,
            "<time datetime=\"2026-11-21T01:09:00Z\" data-exact>21 Nov 2026, 01:09 UTC</time>"
        );
    }

    #[test]
    fn durations_are_shown_in_their_largest_whole_unit() {
        let rows = [
            (3_600, "1 hour"),
            (86_400, "1 day"),
            (604_800, "7 days"),
            (129_600, "36 hours"),
            (90, "90 seconds"),
        ];
        for (secs, expected) in rows {
            assert_eq!(format_duration(Duration::from_secs_u32(secs)), expected);
        }
    }
}
