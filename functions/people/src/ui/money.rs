//! Money for people: dollars, with the exact units on hover, on focus and for screen readers.

use maud::{Markup, html};
use purser_domain::{Amount, Spend, SpendPolicy};

/// An amount within a sentence or a table.
pub(crate) fn money(amount: Amount) -> Markup {
    let units = units(amount);
    html! { data.money value=(amount) title=(units) { (dollars(amount)) span.sr { " (" (units) ")" } } }
}

/// An amount that a decision depends on: its units can be focused with the keyboard.
pub(crate) fn big_money(amount: Amount) -> Markup {
    let units = units(amount);
    html! {
        data.money.reachable value=(amount) title=(units) data-units=(units) tabindex="0" {
            (dollars(amount)) span.sr { " (" (units) ")" }
        }
    }
}

/// The use of a window; "at most" if not all expired entries were read.
pub(crate) fn spent(spend: Spend) -> Markup {
    html! { @if !spend.is_exact { "at most " } (money(spend.amount)) }
}

/// A cap, or "no limit".
pub(crate) fn cap(limit: Amount) -> Markup {
    if is_no_limit(limit) {
        html! { span.nolimit title=(units(limit)) { "no limit" span.sr { " (" (units(limit)) ")" } } }
    } else {
        money(limit)
    }
}

/// Whether a cap is so high that it limits nothing: the value of pre-enabled services, or above.
pub(crate) fn is_no_limit(limit: Amount) -> bool {
    let permissive = SpendPolicy::permissive();
    limit >= permissive.max_per_call
}

/// `$1,234.50`.
pub(crate) fn dollars(amount: Amount) -> String {
    amount.to_dollars()
}

/// `1,234,500 units`.
pub(crate) fn units(amount: Amount) -> String {
    amount.to_grouped_units()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    /// They start at the value that services enabled by default have.
    #[test]
    fn very_large_caps_are_shown_as_no_limit() {
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
    fn exact_units_appear_in_title_and_accessible_text() {
        let markup = money(amount(10_000)).into_string();
        assert!(markup.contains("title=\"10,000 units\""));
        assert!(markup.contains("<span class=\"sr\"> (10,000 units)</span>"));
    }
}
