//! Money for people: dollars, with the exact units on hover, on focus and for screen readers.

use maud::{Markup, html};
use purser_domain::{Amount, Spend, SpendPolicy};

/// An amount within a sentence or a table.
pub(super) fn money(amount: Amount) -> Markup {
    let units = units(amount);
    html! { data.money value=(amount) title=(units) { (dollars(amount)) span.sr { " (" (units) ")" } } }
}

/// An amount that a decision depends on: its units can be focused with the keyboard.
pub(super) fn big_money(amount: Amount) -> Markup {
    let units = units(amount);
    html! {
        data.money.reachable value=(amount) title=(units) data-units=(units) tabindex="0" {
            (dollars(amount)) span.sr { " (" (units) ")" }
        }
    }
}

/// What counts of a window; "at most" where more has rolled out of it than was read.
pub(super) fn spent(spend: Spend) -> Markup {
    html! { @if !spend.is_exact { "at most " } (money(spend.amount)) }
}

/// A cap, or "no limit".
pub(super) fn cap(limit: Amount) -> Markup {
    if is_no_limit(limit) {
        html! { span.nolimit title=(units(limit)) { "no limit" span.sr { " (" (units(limit)) ")" } } }
    } else {
        money(limit)
    }
}

/// Whether a cap is so high that it limits nothing: the value of pre-enabled services, or above.
pub(super) fn is_no_limit(limit: Amount) -> bool {
    let permissive = SpendPolicy::permissive();
    limit >= permissive.max_per_call
}

/// `$1,234.50`: always cents, more places where the amount has them.
pub(super) fn dollars(amount: Amount) -> String {
    let text = amount.to_usdc();
    let (whole, places) = text.split_once('.').unwrap_or((&text, ""));
    format!("${}.{places:0<2}", grouped(whole))
}

/// `1,234,500 units`.
pub(super) fn units(amount: Amount) -> String {
    let word = if amount.units() == 1 { "unit" } else { "units" };
    format!("{} {word}", grouped(&amount.to_string()))
}

fn grouped(digits: &str) -> String {
    let mut grouped = String::new();
    for (position, digit) in digits.chars().enumerate() {
        let left = digits.len().saturating_sub(position);
        if position > 0 && left.is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    #[test]
    fn dollars_have_cents_and_as_many_places_as_they_need() {
        let rows = [
            (0, "$0.00", "0 units"),
            (1, "$0.000001", "1 unit"),
            (10_000, "$0.01", "10,000 units"),
            (12_500_000, "$12.50", "12,500,000 units"),
            (1_234_567_890, "$1,234.56789", "1,234,567,890 units"),
            (999_000_000, "$999.00", "999,000,000 units"),
            (
                9_007_199_254_740_991,
                "$9,007,199,254.740991",
                "9,007,199,254,740,991 units",
            ),
        ];
        for (count, text, exact) in rows {
            assert_eq!(
                (dollars(amount(count)).as_str(), units(amount(count)).as_str()),
                (text, exact)
            );
        }
    }

    #[test]
    fn the_values_of_pre_enabled_services_and_above_are_no_limit() {
        let rows = [
            (9_999_999_999_999, false),
            (10_000_000_000_000, true),
            (Amount::MAX.units(), true),
        ];
        for (count, expected) in rows {
            assert_eq!(is_no_limit(amount(count)), expected);
            assert_eq!(cap(amount(count)).into_string().contains("no limit"), expected);
        }
    }

    #[test]
    fn the_exact_units_are_in_the_title_and_in_the_text_that_is_read_aloud() {
        let markup = money(amount(10_000)).into_string();
        assert!(markup.contains("title=\"10,000 units\""));
        assert!(markup.contains("<span class=\"sr\"> (10,000 units)</span>"));
    }
}
