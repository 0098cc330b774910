//! The withdrawal section of an agent's page.

use crate::agents::contents::AgentPage;
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Button, Layout};
use crate::ui::money::format_dollars;
use crate::ui::paths;
use maud::{Markup, html};
use purser_domain::{Address, Amount, Settlement, WithdrawalAddress};

pub(crate) fn withdrawal_section(layout: &Layout, page: &AgentPage<'_>, path: &str) -> Markup {
    let payouts = &page.payouts;
    html! {
        section id="payouts" aria-labelledby="payouts-title" {
            h2 id="payouts-title" { "Payouts" }
            @if payouts.is_set_up || payouts.address.is_some() {
                div.card {
                    @if let Some(open) = &payouts.open { (open_withdrawal_details(layout, page, open)) }
                    @match &payouts.address {
                        None => p { "No payout address is set. Add an address of yours to withdraw this agent’s money." },
                        Some(named) => (current_address_section(layout, page, named, path)),
                    }
                    @if payouts.is_set_up { (address_form(layout, payouts.address.is_some(), path)) }
                    p.hint {
                        "A new address can be used only after a waiting period, and the operators of this Purser are notified. "
                        "This stops anyone who takes over your session from withdrawing the money at once. If you did not set the address, remove it."
                    }
                }
            } @else {
                p.empty { "Payouts are not available: this Purser has no facilitator. Its operators can configure one." }
            }
        }
    }
}

fn open_withdrawal_details(layout: &Layout, page: &AgentPage<'_>, open_withdrawal: &Settlement) -> Markup {
    html! {
        p {
            span.chip.wait { "under way" } " " (format_dollars(open_withdrawal.terms.amount)) " to " (labels::short_wallet_address(open_withdrawal.terms.pay_to)) ", completes or expires "
            (relative_and_exact_time(open_withdrawal.terms.valid_before, layout.now)) " at the latest. "
            a href=(paths::receipt_path(page.agent.id, open_withdrawal.id())) { "Show the receipt" }
        }
    }
}

fn current_address_section(layout: &Layout, page: &AgentPage<'_>, address: &WithdrawalAddress, path: &str) -> Markup {
    let is_good = layout.now >= address.good_from;
    html! {
        dl.facts-list.wide {
            div { dt { "Address" } dd { (labels::wallet_address(address.address)) } }
            div { dt { "Set" } dd { (relative_and_exact_time(address.named_at, layout.now)) } }
            div {
                dt { "Usable" }
                dd {
                    @if is_good { span.chip.good { "now" } }
                    @else { span.chip.wait { "not yet" } " from " (relative_and_exact_time(address.good_from, layout.now)) }
                }
            }
        }
        @if page.freeze.is_some() {
            p.hint { "Payouts are stopped while an operator’s freeze is in force." }
        } @else if is_good && page.payouts.is_set_up && page.payouts.open.is_none() {
            (withdrawal_form(layout, page, address.address, path))
        }
        (layout.button_form(
            &format!("{path}/payout-address/remove"),
            &Button::danger("Remove the address", "Remove the payout address? If you set it again, its waiting period starts again."),
        ))
    }
}

fn withdrawal_form(layout: &Layout, page: &AgentPage<'_>, to: Address, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::PayOut);
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { "Pay out" }
            div.pop-body {
                (layout.post_form(&format!("{path}/payouts"), &html! {
                    input type="hidden" name="idempotency_key" value=(page.payout_key);
                    (inputs.cap_input("amount", "Amount", "The whole balance", "In dollars.", page.balance.unwrap_or(Amount::ZERO)))
                    (inputs.required_checkbox("confirmed", &format!("I have compared the address: {}", to.to_checksum(None))))
                    p.hint { "Payments that are authorized but not collected yet fail if the remaining balance is too low." }
                    button.primary type="submit" { "Pay out" }
                }))
            }
        }
    }
}

fn address_form(layout: &Layout, is_change: bool, path: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::PayoutAddress);
    html! {
        details.pop open[inputs.has_posted_form()] {
            summary.button { @if is_change { "Change payout address" } @else { "Add payout address" } }
            div.pop-body {
                (layout.post_form(&format!("{path}/payout-address"), &html! {
                    (inputs.required_text_input("address", "Address", "", 42))
                    @if is_change { p.hint { "The new address has a waiting period. No payout is possible until it ends." } }
                    button.primary type="submit" { "Save address" }
                }))
            }
        }
    }
}
