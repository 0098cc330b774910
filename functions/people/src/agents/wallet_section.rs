//! An agent's wallet: address and balance.

use crate::agents::contents::AgentPage;
use crate::ui::labels;
use crate::ui::money::big_money;
use crate::ui::paths;
use maud::{Markup, html};

pub(crate) fn section(page: &AgentPage<'_>) -> Markup {
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
                                Some(balance) => { (big_money(balance)) " " span.token { (page.network.token_symbol()) } }
                                None => { span.muted { "unknown: the chain can’t be reached at the moment" } }
                            }
                        }
                    }
                    div {
                        dt { "Address" }
                        dd { (labels::wallet(address)) (labels::outside(&paths::wallet(page.network, address), "View it in the block explorer")) }
                    }
                    div { dt { "Network" } dd { (labels::network(page.network)) } }
                }
                p.hint {
                    "Send " (page.network.token_symbol()) " on " (labels::network(page.network)) " to this address to fund the agent. "
                    "The wallet needs no other coin: the payee submits the transaction."
                }
            }
        }
    }
}
