//! The layout of the operators' pages.

use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::money;
use maud::{Markup, html};
use purser_domain::{Network, Pricing};

pub(crate) const CATALOG: &str = "/dashboard/operator/catalog";
pub(crate) const CHANGES: &str = "/dashboard/operator/changes";
pub(crate) const FREEZES: &str = "/dashboard/operator/freezes";

/// A page for operators. `path` is the page's path, and `how` explains how operators change its content.
pub(crate) fn page(layout: &Layout, title: &str, path: &str, how: &Markup, content: &Markup) -> Markup {
    let entry = |to: &str, text: &str| {
        html! { li { a href=(to) aria-current=[(to == path).then_some("page")] { (text) } } }
    };
    layout.page(
        title,
        NavItem::Operators,
        &html! {
            h1 { (title) }
            nav.inpage aria-label="For operators" {
                ul { (entry(CATALOG, "Catalog")) (entry(CHANGES, "Waiting changes")) (entry(FREEZES, "Freezes")) }
            }
            p.hint { "Read-only. " (how) }
            (content)
        },
    )
}

/// The payee and the maximum price of a call.
pub(crate) fn pays(pricing: Pricing<'_>, network: Network) -> Markup {
    let Some(payment) = pricing.payment else {
        return html! { span.muted { "no payment" } };
    };
    html! {
        @match pricing.most() {
            Some(most) => { "at most " (money(most)) },
            None => span.chip.wait { "no highest price" },
        }
        " to " code.long { (payment.pay_to.to_checksum(None)) }
        @if payment.network != network { " " span.chip.bad { "on " (labels::network(payment.network)) } }
    }
}
