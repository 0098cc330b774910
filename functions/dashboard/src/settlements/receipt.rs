//! The receipt page: a payment or withdrawal from the authorization to the result on the chain.

use crate::agents::owned::{KnownAgent, require_id};
use crate::sessions::session::PageSession;
use crate::state::PeopleState;
use crate::ui::call;
use crate::ui::datetime::exact_time;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::money::prominent_amount;
use crate::ui::paths;
use crate::ui::phrases;
use axum::{extract::Path, http::Uri, response::IntoResponse as _};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentId, CallDescription, Catalog, Purchase, Settlement, SettlementId, SettlementState};

#[derive(Debug)]
pub(crate) struct ReceiptPage<'a> {
    pub(crate) settlement: Settlement,
    /// The call that the payment is for; `None` for a withdrawal.
    pub(crate) call: Option<CallDescription>,
    pub(crate) agent: KnownAgent,
    pub(crate) catalog: &'a Catalog,
}

pub(crate) async fn show_receipt_page(
    people: PeopleState,
    session: PageSession,
    Path((agent, settlement)): Path<(String, String)>,
    uri: Uri,
) -> Reply {
    let (agent, id) = (
        require_id(AgentId::parse(&agent))?,
        require_id(SettlementId::parse(&settlement))?,
    );
    let ((agent, settlement), edition) = tokio::try_join!(
        people.read_own_settlement(&session.person, agent, id),
        people.current_catalog()
    )?;
    let call = match settlement.terms.purchase() {
        Some(_) => people.read_settlement_call(&settlement).await?,
        None => None,
    };
    let receipt = ReceiptPage {
        settlement,
        call,
        agent,
        catalog: &edition.catalog,
    };
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(receipt_page(&layout, &receipt).into_response())
}

pub(crate) fn receipt_page(layout: &Layout, receipt: &ReceiptPage<'_>) -> Markup {
    let (terms, agent) = (&receipt.settlement.terms, &receipt.agent);
    let purchase = terms.purchase();
    layout.html_page(
        "Receipt",
        NavItem::Elsewhere,
        &html! {
            p.crumb { a href="/dashboard/settlements" { "Settlements" } " · " a href="/dashboard/decisions" { "Decisions" } }
            article.card.receipt {
                header.receipt-head {
                    h1 { "Receipt" }
                    (settlement_state_chip(&receipt.settlement.state))
                }
                p.amount { (prominent_amount(terms.amount)) " " span.token { (terms.network.token_symbol()) } }
                p.what {
                    @match purchase {
                        Some(Purchase { service, operation, .. }) => {
                            (labels::agent_link(agent.id, &agent.name)) " " (settlement_verb(&receipt.settlement.state)) " " (labels::service_name(*service, receipt.catalog)) " for "
                            (labels::operation_name(receipt.catalog.find_by_id(*service), Some(operation)))
                        }
                        None => {
                            (withdrawal_status(&receipt.settlement.state)) " of " (labels::agent_link(agent.id, &agent.name))
                        }
                    }
                }
                (settlement_state_hint(&receipt.settlement.state, purchase.is_some()))
                dl.facts-list.wide {
                    @if let SettlementState::Confirmed { tx_hash, .. } = receipt.settlement.state {
                        @let hash = tx_hash.to_string();
                        div {
                            dt { "Transaction" }
                            dd {
                                span.copyable { code.long { (hash) } (labels::copy_button(&hash, "Copy the transaction hash")) }
                                (labels::external_link(&paths::transaction_url(terms.network, tx_hash), "View it in the block explorer"))
                            }
                        }
                    }
                    @if let Some(purchase) = purchase { div { dt { "Key" } dd { (labels::key_suffix(purchase.key)) } } }
                    div { dt { "Network" } dd { (labels::network_name(terms.network)) } }
                    div { dt { "From" } dd { (labels::wallet_address(terms.wallet)) } }
                    div { dt { @if purchase.is_some() { "To" } @else { "Paid out to" } } dd { (labels::wallet_address(terms.pay_to)) } }
                    div { dt { "Authorized" } dd { (exact_time(terms.authorized_at)) } }
                    @if let SettlementState::Confirmed { settled_at, .. } = receipt.settlement.state {
                        div { dt { "Settled" } dd { (exact_time(settled_at)) } }
                    }
                    @if let SettlementState::Authorized = receipt.settlement.state {
                        div { dt { "Payable until" } dd { (exact_time(terms.valid_before)) } }
                    }
                    div { dt { "Receipt" } dd { code.long { (terms.id) } } }
                    div { dt { "Decision" } dd { code.long { (terms.transaction) } } }
                    @if let Some(approval) = purchase.and_then(|purchase| purchase.approval) {
                        div { dt { "Approved by a person" } dd { code.long { (approval) } } }
                    }
                    @if purchase.is_some() {
                        div { dt { "Evidence" } dd { a href=(paths::evidence_path(agent.id, terms.transaction)) download { "Download the signed statements" } } }
                    }
                    @if let Some(purchase) = purchase { div { dt { "Policy" } dd { "version " (purchase.policy_version) } } }
                }
                @if let Some(described) = &receipt.call { (call::call_details(described, terms.amount)) }
                @if let Some(purchase) = purchase {
                    details.checks-fold {
                        summary { "The checks it passed" }
                        (phrases::checks_table(&purchase.checks))
                    }
                }
            }
        },
    )
}

const fn settlement_verb(state: &SettlementState) -> &'static str {
    match state {
        SettlementState::Authorized => "may pay",
        SettlementState::Confirmed { .. } => "paid",
        SettlementState::Expired => "did not pay",
    }
}

const fn withdrawal_status(state: &SettlementState) -> &'static str {
    match state {
        SettlementState::Authorized => "On its way to your address, from the wallet",
        SettlementState::Confirmed { .. } => "Paid out to your address, from the wallet",
        SettlementState::Expired => "Not paid out: still in the wallet",
    }
}

pub(crate) fn settlement_state_chip(state: &SettlementState) -> Markup {
    match state {
        SettlementState::Authorized => html! { span.chip.wait { "authorized" } },
        SettlementState::Confirmed { .. } => html! { span.chip.good { "confirmed" } },
        SettlementState::Expired => html! { span.chip { "expired" } },
    }
}

fn settlement_state_hint(state: &SettlementState, is_purchase: bool) -> Markup {
    match state {
        SettlementState::Authorized if !is_purchase => html! {
            p.hint { "Signed and submitted to the facilitator. Within minutes after the time below, the chain shows whether it was made. If not, the money is still in the wallet." }
        },
        SettlementState::Expired if !is_purchase => html! {
            p.hint { "The chain shows that it was not made and can no longer be made." }
        },
        SettlementState::Authorized => html! {
            p.hint { "Signed and returned to the agent. It counts against the caps until the chain shows that it was paid or can no longer be paid." }
        },
        SettlementState::Confirmed { .. } => html! {},
        SettlementState::Expired => html! {
            p.hint { "The chain shows that it was not paid and can no longer be paid. The amount no longer counts against the caps." }
        },
    }
}
