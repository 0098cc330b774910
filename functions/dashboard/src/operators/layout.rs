//! The layout of the operators' pages.

use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::amount_text;
use maud::{Markup, html};
use purser_domain::{AgentId, Network, Pricing, ServiceId};

pub(crate) const CATALOG: &str = "/dashboard/operator/catalog";
pub(crate) const CHANGES: &str = "/dashboard/operator/changes";
pub(crate) const FREEZES: &str = "/dashboard/operator/freezes";
pub(crate) const AGENTS: &str = "/dashboard/operator/agents";

pub(crate) fn service_path(service: ServiceId) -> String {
    format!("/dashboard/operator/services/{service}")
}

pub(crate) fn agent_path(agent: AgentId) -> String {
    format!("{AGENTS}?q={agent}")
}

/// `hint` explains the page's actions, or names the API that performs them.
pub(crate) fn operator_page(layout: &Layout, title: &str, path: &str, hint: &Markup, content: &Markup) -> Markup {
    let entry = |to: &str, text: &str| {
        html! { li { a href=(to) aria-current=[(to == path).then_some("page")] { (text) } } }
    };
    layout.html_page(
        title,
        NavItem::Operators,
        &html! {
            h1 { (title) }
            nav.inpage aria-label="For operators" {
                ul { (entry(CATALOG, "Catalog")) (entry(CHANGES, "Waiting changes")) (entry(FREEZES, "Freezes")) (entry(AGENTS, "Agents")) }
            }
            p.hint { (hint) }
            (content)
        },
    )
}

/// Renders the payee and the maximum price of a call.
pub(crate) fn payee_and_price(pricing: Pricing<'_>, network: Network) -> Markup {
    let Some(payment) = pricing.payment else {
        return html! { span.muted { "no payment" } };
    };
    html! {
        @match pricing.max_price() {
            Some(max) => { "at most " (amount_text(max)) },
            None => span.chip.wait { "no highest price" },
        }
        " to " code.long { (payment.pay_to.to_checksum(None)) }
        @if payment.network != network { " " span.chip.bad { "on " (labels::network_name(payment.network)) } }
    }
}
