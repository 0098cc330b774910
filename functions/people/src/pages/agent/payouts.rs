//! Taking an agent's money back: the address, and the payout.

use super::contents::AgentPage;
use crate::pages::datetime::both;
use crate::pages::form::FormName;
use crate::pages::labels;
use crate::pages::layout::{Button, Layout};
use crate::pages::money::dollars;
use crate::pages::paths;
use maud::{Markup, html};
use purser_domain::{Address, Amount, PayoutAddress, Settlement};

pub(super) fn section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let payouts = &page.payouts;
    html! {
        section id="payouts" aria-labelledby="payouts-title" {
            h2 id="payouts-title" { "Payouts" }
            @if payouts.is_set_up || payouts.address.is_some() {
                div.card {
                    @if let Some(open) = &payouts.open { (under_way(layout, page, open)) }
                    @match &payouts.address {
                        None => p { "No address is named. Name one of yours to take this agent’s money back to it." },
                        Some(named) => (present(layout, page, named, path)),
                    }
                    @if payouts.is_set_up { (address_form(layout, payouts.address.is_some(), path)) }
                    p.hint {
                        "A new address is good only after a wait, and we tell whoever runs this Purser of it. "
                        "So nobody who gets hold of your session can take the money at once: if you did not name it, remove it."
                    }
                }
            } @else {
                p.empty { "This Purser pays nothing out: it has no facilitator, which whoever runs it can set up." }
            }
        }
    }
}

fn under_way(layout: &Layout, page: &AgentPage<'_>, open: &Settlement) -> Markup {
    html! {
        p {
            span.chip.wait { "under way" } " " (dollars(open.terms.amount)) " to " (labels::short_wallet(open.terms.pay_to)) ", made or given up "
            (both(open.terms.valid_before, layout.now)) " at the latest. "
            a href=(paths::receipt(page.agent.id, open.id())) { "Show the receipt" }
        }
    }
}

fn present(layout: &Layout, page: &AgentPage<'_>, named: &PayoutAddress, path: &str) -> Markup {
    let is_good = layout.now >= named.good_from;
    html! {
        dl.facts-list.wide {
            div { dt { "Address" } dd { (labels::wallet(named.address)) } }
            div { dt { "Named" } dd { (both(named.named_at, layout.now)) } }
            div {
                dt { "Good" }
                dd {
                    @if is_good { span.chip.good { "now" } }
                    @else { span.chip.wait { "not yet" } " from " (both(named.good_from, layout.now)) }
                }
            }
        }
        @if page.freeze.is_some() {
            p.hint { "Nothing is paid out while an operator’s freeze lasts." }
        } @else if is_good && page.payouts.is_set_up && page.payouts.open.is_none() {
            (payout_form(layout, page, named.address, path))
        }
        (layout.button(
            &format!("{path}/payout-address/remove"),
            &Button::danger("Remove the address", "Remove the payout address? Naming it again starts its wait anew."),
        ))
    }
}

fn payout_form(layout: &Layout, page: &AgentPage<'_>, to: Address, path: &str) -> Markup {
    let inputs = layout.inputs(FormName::PayOut);
    html! {
        details.pop open[inputs.is_typed()] {
            summary.button { "Pay out" }
            div.pop-body {
                (layout.form(&format!("{path}/payouts"), &html! {
                    input type="hidden" name="idempotency_key" value=(page.payout_key);
                    (inputs.cap("amount", "Amount", "All that the wallet holds", "In dollars.", page.balance.unwrap_or(Amount::ZERO)))
                    (inputs.box_to_check("confirmed", &format!("I have compared the address: {}", to.to_checksum(None))))
                    p.hint { "What the agent has authorized and nobody has collected yet fails if too little is left for it." }
                    button.primary type="submit" { "Pay out" }
                }))
            }
        }
    }
}

fn address_form(layout: &Layout, is_change: bool, path: &str) -> Markup {
    let inputs = layout.inputs(FormName::PayoutAddress);
    html! {
        details.pop open[inputs.is_typed()] {
            summary.button { @if is_change { "Change the address" } @else { "Name an address" } }
            div.pop-body {
                (layout.form(&format!("{path}/payout-address"), &html! {
                    (inputs.line("address", "Address", "", 42))
                    @if is_change { p.hint { "The new one waits anew; until then nothing is paid out." } }
                    button.primary type="submit" { "Name it" }
                }))
            }
        }
    }
}
