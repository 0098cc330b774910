//! Renders a bar that shows how much of a cap is used, with a text alternative.

use crate::ui::money::{format_dollars, is_no_limit};
use maud::{Markup, html};
use purser_domain::Amount;

/// Renders a bar with the used part of a cap. `pending_amount` is the amount that a pending payment would add to the used part.
pub(crate) fn usage_bar(spent: Amount, pending_amount: Amount, cap: Amount) -> Markup {
    if is_no_limit(cap) {
        let label = format!("{} used, no limit", format_dollars(spent));
        return html! {
            svg.bar.open viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(label) {
                title { (label) }
                line x1="0" y1="5" x2="1000" y2="5" vector-effect="non-scaling-stroke" {}
            }
        };
    }
    let (from, to) = (
        permille_of_cap(spent, cap),
        permille_of_cap(spent.plus(pending_amount).unwrap_or(Amount::MAX), cap),
    );
    let label = if pending_amount.is_zero() {
        format!("{} of {} used", format_dollars(spent), format_dollars(cap))
    } else {
        format!(
            "{} of {} used; this payment adds {}",
            format_dollars(spent),
            format_dollars(cap),
            format_dollars(pending_amount)
        )
    };
    html! {
        svg.bar.full[to >= FULL_WIDTH].high[(HIGH..FULL_WIDTH).contains(&to)] viewBox="0 0 1000 10" preserveAspectRatio="none"
            role="img" aria-label=(label) {
            title { (label) }
            rect.track x="0" y="0" width="1000" height="10" {}
            @if to > from { rect.more x=(from) y="0" width=(to.saturating_sub(from)) height="10" {} }
            @if from > 0 { rect.used x="0" y="0" width=(from) height="10" {} }
        }
    }
}

/// The length of a full bar, in the units of the SVG's `viewBox`.
pub(crate) const FULL_WIDTH: u64 = 1_000;
/// The length from which a bar is highlighted: 80 % of [`FULL_WIDTH`].
pub(crate) const HIGH: u64 = 800;

/// Returns a length from 0 to [`FULL_WIDTH`]. A length above zero is large enough to be visible.
pub(crate) fn permille_of_cap(part: Amount, cap: Amount) -> u64 {
    if part.is_zero() {
        return 0;
    }
    let share = u128::from(part.units())
        .saturating_mul(u128::from(FULL_WIDTH))
        .checked_div(u128::from(cap.units()));
    let share = share.and_then(|share| u64::try_from(share).ok()).unwrap_or(FULL_WIDTH);
    share.clamp(6, FULL_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_bars_are_measured_in_thousandths_up_to_the_cap() {
        let amount = |units| Amount::from_units(units).unwrap();
        let rows = [
            (0, 100, 0),
            (0, 0, 0),
            (1, 0, 1_000),
            (50, 100, 500),
            (1, 1_000_000, 6),
            (100, 100, 1_000),
            (101, 100, 1_000),
            (Amount::MAX.units(), 1, 1_000),
        ];
        for (part, cap, expected) in rows {
            assert_eq!(permille_of_cap(amount(part), amount(cap)), expected, "{part} of {cap}");
        }
    }
}
