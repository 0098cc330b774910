//! Renders amounts in dollars, with the exact micro-USDC units on hover, on focus and for screen readers.

use maud::{Markup, html};
use purser_domain::{Amount, Spend, SpendPolicy};

/// Renders an amount in a sentence or a table.
pub(crate) fn amount_text(amount: Amount) -> Markup {
    let units = format_units(amount);
    html! { data.money value=(amount) title=(units) { (format_dollars(amount)) span.sr { " (" (units) ")" } } }
}

/// Pads the amount with grey zeros to six decimals, so that a column's decimal points are aligned.
pub(crate) fn column_amount(amount: Amount) -> Markup {
    let (dollars, units) = (format_dollars(amount), format_units(amount));
    let decimals = dollars.rsplit('.').next().map_or(0, str::len);
    let zeros = "0".repeat(DECIMALS.saturating_sub(decimals));
    html! {
        data.money value=(amount) title=(units) { (dollars) span.zeros { (zeros) } span.sr { " (" (units) ")" } }
    }
}

/// The decimals of USDC.
const DECIMALS: usize = 6;

/// Renders an amount on which a user's decision depends.
pub(crate) fn prominent_amount(amount: Amount) -> Markup {
    let units = format_units(amount);
    html! {
        data.money.reachable value=(amount) title=(units) data-units=(units) tabindex="0" {
            (format_dollars(amount)) span.sr { " (" (units) ")" }
        }
    }
}

/// Adds "at most" if the amount is an upper bound.
pub(crate) fn used_amount(spend: Spend) -> Markup {
    html! { @if !spend.is_exact { "at most " } (amount_text(spend.amount)) }
}

/// Renders "no limit" for a cap that is too high to limit anything.
pub(crate) fn cap_text(limit: Amount) -> Markup {
    if is_no_limit(limit) {
        html! { span.nolimit title=(format_units(limit)) { "no limit" span.sr { " (" (format_units(limit)) ")" } } }
    } else {
        amount_text(limit)
    }
}

/// Returns whether a cap is at least as high as the cap of default services, so that it limits nothing.
pub(crate) fn is_no_limit(limit: Amount) -> bool {
    let permissive = SpendPolicy::permissive();
    limit >= permissive.max_per_call
}

/// Formats an amount such as `$1,234.50`.
pub(crate) fn format_dollars(amount: Amount) -> String {
    amount.to_dollars()
}

/// Formats an amount such as `1,234,500 units`.
pub(crate) fn format_units(amount: Amount) -> String {
    amount.to_grouped_units()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(units: u64) -> Amount {
        Amount::from_units(units).unwrap()
    }

    /// The cap of a service that is enabled by default is the lowest cap that is shown as "no limit".
    #[test]
    fn very_large_caps_are_shown_as_no_limit() {
        let rows = [
            (9_999_999_999_999, false),
            (10_000_000_000_000, true),
            (Amount::MAX.units(), true),
        ];
        for (count, expected) in rows {
            assert_eq!(is_no_limit(amount(count)), expected);
            assert_eq!(cap_text(amount(count)).into_string().contains("no limit"), expected);
        }
    }

    #[test]
    fn all_amounts_of_a_column_have_six_decimals() {
        let rows = [
            (0, "$0.00", "0000"),
            (10_000, "$0.01", "0000"),
            (1, "$0.000001", ""),
            (1_234_500_000, "$1,234.50", "0000"),
        ];
        for (units, dollars, zeros) in rows {
            let markup = column_amount(amount(units)).into_string();
            assert!(
                markup.contains(&format!("{dollars}<span class=\"zeros\">{zeros}</span>")),
                "{markup}"
            );
        }
    }

    #[test]
    fn exact_units_appear_in_title_and_accessible_text() {
        let markup = amount_text(amount(10_000)).into_string();
        assert!(markup.contains("title=\"10,000 units\""));
        assert!(markup.contains("<span class=\"sr\"> (10,000 units)</span>"));
    }
}
