//! A bar chart of amounts per day as SVG, with all information also as text.

use crate::ui::bar::{FULL_WIDTH, permille_of_cap};
use crate::ui::money::{column_amount, format_dollars};
use maud::{Markup, html};
use purser_domain::{Amount, Day};

/// The width of one day in the chart, in units of the SVG's `viewBox`.
const DAY: usize = 20;
const BAR: usize = 16;
/// A chart with fewer days has empty space on the right, so that the bars do not get wider.
const MIN_DAYS: usize = 30;

/// Renders nothing if `days` is empty. `title` names the amounts.
pub(crate) fn amount_chart(title: &str, days: &[(Day, Amount)]) -> Markup {
    let highest = days.iter().copied().max_by_key(|(day, amount)| (*amount, *day));
    let (Some((first, _)), Some((last, _)), Some((peak, max))) = (days.first(), days.last(), highest) else {
        return html! {};
    };
    let label = if max.is_zero() {
        format!("{title} from {first} to {last}: none")
    } else {
        let sum = days.iter().fold(Amount::ZERO, |sum, (_, amount)| {
            sum.plus(*amount).unwrap_or(Amount::MAX)
        });
        format!(
            "{title} from {first} to {last}: {}; most on {peak}: {}",
            format_dollars(sum),
            format_dollars(max)
        )
    };
    let width = days.len().max(MIN_DAYS).saturating_mul(DAY);
    let is_short = days.len() < MIN_DAYS;
    html! {
        figure.chart {
            p.chart-most aria-hidden="true" { @if !max.is_zero() { (format_dollars(max)) } }
            svg viewBox=(format!("0 0 {width} {FULL_WIDTH}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                title { (label) }
                @for (index, (day, amount)) in days.iter().enumerate() {
                    @let height = permille_of_cap(*amount, max);
                    @if height > 0 {
                        rect x=(index.saturating_mul(DAY)) y=(FULL_WIDTH.saturating_sub(height)) width=(BAR) height=(height) {
                            title { (day) ": " (format_dollars(*amount)) }
                        }
                    }
                }
                line x1="0" y1=(FULL_WIDTH) x2=(width) y2=(FULL_WIDTH) vector-effect="non-scaling-stroke" {}
            }
            p.chart-days.short[is_short] aria-hidden="true" {
                span { (first) }
                @if first != last { @if is_short { " to " } span { (last) } }
            }
            details.fold {
                summary { "View as table" }
                table.list {
                    caption.sr { (title) " by day" }
                    thead { tr { th scope="col" { "Day" } th.num scope="col" { "Amount" } } }
                    tbody {
                        @for (day, amount) in days.iter().rev() {
                            tr {
                                th scope="row" { (day) }
                                td.num data-label="Amount" { (column_amount(*amount)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(units: &[u64]) -> Vec<(Day, Amount)> {
        let first = Day::parse("2026-10-30").unwrap();
        let days = (0..).zip(units);
        days.map(|(n, units)| (first.days_later(n), Amount::from_units(*units).unwrap()))
            .collect()
    }

    /// Returns the horizontal position, top and height of each bar.
    fn bars(html: &str) -> Vec<(u64, u64, u64)> {
        let number = |rect: &str, name: &str| {
            let (_, rest) = rect.split_once(&format!(" {name}=\"")).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let rects = html.split("<rect").skip(1);
        rects
            .map(|rect| (number(rect, "x"), number(rect, "y"), number(rect, "height")))
            .collect()
    }

    /// Days without an amount have no bar.
    #[test]
    fn bar_heights_are_proportional_to_the_maximum() {
        let html = amount_chart("Spent", &days(&[0, 1_000_000, 250_000, 1, 0])).into_string();
        assert_eq!(bars(&html), [(20, 0, 1_000), (40, 750, 250), (60, 994, 6)]);
        assert!(html.contains("viewBox=\"0 0 600 1000\""), "{html}");
        let long = amount_chart("Spent", &days(&[1; 45])).into_string();
        assert!(long.contains("viewBox=\"0 0 900 1000\""), "{long}");
        let most = Amount::MAX.units();
        let html = amount_chart("Spent", &days(&[most, most, most])).into_string();
        assert_eq!(bars(&html), [(0, 0, 1_000), (20, 0, 1_000), (40, 0, 1_000)]);
    }

    #[test]
    fn charts_have_a_text_label_and_a_table() {
        let html = amount_chart("Spent", &days(&[500_000, 1_000_000, 0])).into_string();
        let label = "Spent from 2026-10-30 to 2026-11-01: $1.50; most on 2026-10-31: $1.00";
        assert!(
            html.contains(&format!("role=\"img\" aria-label=\"{label}\"><title>{label}</title>")),
            "{html}"
        );
        assert!(html.contains("<title>2026-10-31: $1.00</title>"), "{html}");
        let (_, table) = html.split_once("<tbody>").unwrap();
        let rows: Vec<&str> = table
            .split("<th scope=\"row\">")
            .skip(1)
            .filter_map(|row| row.get(..10))
            .collect();
        assert_eq!(rows, ["2026-11-01", "2026-10-31", "2026-10-30"]);
    }

    /// If no day has an amount, the chart's label says "none". Without days, no chart is rendered.
    #[test]
    fn charts_without_amounts_have_no_bars() {
        let html = amount_chart("Spent", &days(&[0, 0])).into_string();
        assert!(html.contains("Spent from 2026-10-30 to 2026-10-31: none") && bars(&html).is_empty());
        assert_eq!(amount_chart("Spent", &[]).into_string(), "");
    }
}
