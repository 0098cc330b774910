//! Renders an agent's wallet: the address and the balance.

use crate::agents::contents::AgentPage;
use crate::ui::labels;
use crate::ui::money::prominent_amount;
use crate::ui::paths;
use maud::{Markup, html};

pub(crate) fn wallet_section(page: &AgentPage<'_>) -> Markup {
    let address = page.agent.wallet.address;
    html! {
        section id="wallet" aria-labelledby="wallet-title" {
            h2 id="wallet-title" { "Wallet" }
            div.card {
                dl.facts-list.wide {
                    div {
                        dt { "Balance" }
                        dd.balance {
                            @match page.balance {
                                Some(balance) => { (prominent_amount(balance)) " " span.token { (page.network.token_symbol()) } }
                                None => { span.muted { "unknown: the chain can’t be reached at the moment" } }
                            }
                        }
                    }
                    div {
                        dt { "Address" }
                        dd { (labels::wallet_address(address)) (labels::external_link(&paths::wallet_url(page.network, address), "View it in the block explorer")) }
                    }
                    div { dt { "Network" } dd { (labels::network_name(page.network)) } }
                }
                p.hint {
                    "Send " (page.network.token_symbol()) " on " (labels::network_name(page.network)) " to this address to fund the agent. "
                    "The wallet needs no other coin: the payee submits the transaction."
                }
            }
        }
    }
}
