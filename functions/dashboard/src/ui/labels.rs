//! Renders the names of agents, services, wallets and chains.

use crate::ui::datetime::relative_and_exact_time;
use crate::ui::paths;
use maud::{Markup, html};
use purser_domain::{
    Address, AgentId, AgentStatus, Catalog, DecisionResult, FreezeTarget, KeyId, Network, OperationSlug,
    OperatorFreeze, Service, ServiceId, Timestamp, escape_hidden_characters,
};

pub(crate) fn agent_link(id: AgentId, name: &str) -> Markup {
    html! { a.name href=(paths::agent_path(id)) { (escape_hidden_characters(name)) } }
}

/// Renders the service's name, or a text for a service that is no longer in the catalog.
pub(crate) fn service_name(id: ServiceId, catalog: &Catalog) -> Markup {
    let Some(service) = catalog.find_by_id(id) else {
        return html! { span.name.gone title=(id) { "a service that is no longer in the catalog" } };
    };
    html! { span.name { (escape_hidden_characters(&service.name)) } }
}

/// Renders an operation's label in the catalog, such as `Lab Weather · Current weather`. If the catalog has no label,
/// renders the operation's slug.
pub(crate) fn operation_name(service: Option<&Service>, slug: Option<&OperationSlug>) -> Markup {
    let label = slug
        .and_then(|slug| service?.find_operation(slug))
        .map(|operation| operation.label.as_str());
    html! {
        @match (label, slug) {
            (Some(label), Some(slug)) => span title=(slug) { (escape_hidden_characters(label)) },
            (None, Some(slug)) => code { (slug) },
            (_, None) => span.muted { "an operation that is not in the catalog" },
        }
    }
}

/// Renders a wallet address in full, so that users can compare it before they approve a payment.
pub(crate) fn wallet_address(address: Address) -> Markup {
    let text = address.to_checksum(None);
    let (first, second) = text.split_at_checked(21).unwrap_or((&text, ""));
    html! { span.copyable { code.long.halves { (first) wbr; (second) } (copy_button(&text, "Copy the address")) } }
}

/// The full address is shown on hover and read by screen readers.
pub(crate) fn short_wallet_address(address: Address) -> Markup {
    let text = address.to_checksum(None);
    let (head, tail) = (text.get(..6).unwrap_or(&text), text.get(38..).unwrap_or_default());
    html! { code title=(text) { span aria-hidden="true" { (head) "…" (tail) } span.sr { (text) } } }
}

/// Renders a copy button, which the script enables.
pub(crate) fn copy_button(text: &str, label: &str) -> Markup {
    html! { button.copy type="button" data-copy=(text) aria-label=(label) hidden { "Copy" } }
}

pub(crate) fn status_chip(status: AgentStatus) -> Markup {
    match status {
        AgentStatus::Active => html! { span.chip.good { "active" } },
        AgentStatus::Frozen => html! { span.chip.bad { "frozen" } },
    }
}

pub(crate) fn result_chip(result: DecisionResult) -> Markup {
    let name = result.label();
    match result {
        DecisionResult::Allow => html! { span.chip.good { (name) } },
        DecisionResult::Block => html! { span.chip.bad { (name) } },
        DecisionResult::Escalate | DecisionResult::RevertConfirmation => html! { span.chip.wait { (name) } },
        DecisionResult::Payout => html! { span.chip { (name) } },
    }
}

/// Renders a message about an operator's freeze, which the owner cannot end.
pub(crate) fn operator_freeze_message(now: Timestamp, freeze: &OperatorFreeze) -> Markup {
    html! {
        div.message.bad {
            p {
                strong {
                    @match freeze.target {
                        FreezeTarget::Agent(_) => "An operator has frozen this agent.",
                        FreezeTarget::Owner(_) => "An operator has frozen all your agents.",
                        FreezeTarget::Deployment => "An operator has frozen all payments.",
                    }
                }
                " Nothing is paid until operators end the freeze. Since " (relative_and_exact_time(freeze.at, now)) ": " q { (escape_hidden_characters(freeze.reason.as_str())) }
            }
        }
    }
}

pub(crate) const fn network_name(network: Network) -> &'static str {
    match network {
        Network::Base => "Base",
        Network::BaseSepolia => "Base Sepolia (test network)",
    }
}

/// The browser sends no referrer to the other site.
pub(crate) fn external_link(url: &str, text: &str) -> Markup {
    html! { a.outside href=(url) rel="noopener noreferrer external" target="_blank" { (text) span.sr { " (opens a new tab)" } } }
}

/// Renders the end of an agent key's public part, which identifies the key.
pub(crate) fn key_suffix(id: KeyId) -> Markup {
    html! { code title="The end of the key’s public part" { "…" (id) } }
}
