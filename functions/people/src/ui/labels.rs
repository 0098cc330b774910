//! The names of agents, services, wallets and chains on pages.

use crate::ui::datetime::both;
use crate::ui::paths;
use maud::{Markup, html};
use purser_domain::{
    Address, AgentId, AgentStatus, Catalog, FreezeTarget, KeyId, Network, OperationSlug, OperatorFreeze, Service,
    ServiceId, Timestamp,
};

pub(crate) fn agent(id: AgentId, name: &str) -> Markup {
    html! { a.name href=(paths::agent(id)) { (name) } }
}

/// The name of a service. Records can remain after the service has left the catalog.
pub(crate) fn service(id: ServiceId, catalog: &Catalog) -> Markup {
    let Some(service) = catalog.by_id(id) else {
        return html! { span.name.gone title=(id) { "a service that is no longer in the catalog" } };
    };
    html! { span.name { (service.name) } }
}

/// The name of an operation, such as `Lab Weather · Current weather`: its label if the catalog has it, otherwise its
/// slug.
pub(crate) fn operation(of: Option<&Service>, slug: Option<&OperationSlug>) -> Markup {
    let label = slug
        .and_then(|slug| of?.operation(slug))
        .map(|operation| operation.label.as_str());
    html! {
        @match (label, slug) {
            (Some(label), Some(slug)) => span title=(slug) { (label) },
            (None, Some(slug)) => code { (slug) },
            (_, None) => span.muted { "an operation that is not in the catalog" },
        }
    }
}

/// A wallet address in full, for a person to compare before approving.
pub(crate) fn wallet(address: Address) -> Markup {
    let text = address.to_checksum(None);
    html! { span.copyable { code.long { (text) } (copy_button(&text, "Copy the address")) } }
}

/// A shortened wallet address, with the full address on hover and for screen readers.
pub(crate) fn short_wallet(address: Address) -> Markup {
    let text = address.to_checksum(None);
    let (head, tail) = (text.get(..6).unwrap_or(&text), text.get(38..).unwrap_or_default());
    html! { code title=(text) { span aria-hidden="true" { (head) "…" (tail) } span.sr { (text) } } }
}

/// A copy button, which the script enables.
pub(crate) fn copy_button(text: &str, label: &str) -> Markup {
    html! { button.copy type="button" data-copy=(text) aria-label=(label) hidden { "Copy" } }
}

pub(crate) fn status(status: AgentStatus) -> Markup {
    match status {
        AgentStatus::Active => html! { span.chip.good { "active" } },
        AgentStatus::Frozen => html! { span.chip.bad { "frozen" } },
    }
}

/// The message that an operator has frozen an agent, which its owner can't end.
pub(crate) fn frozen_by_operator(now: Timestamp, freeze: &OperatorFreeze) -> Markup {
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
                " Nothing is paid until operators end the freeze. Since " (both(freeze.at, now)) ": " q { (freeze.reason.as_str()) }
            }
        }
    }
}

/// The chain's usual name.
pub(crate) const fn network(network: Network) -> &'static str {
    match network {
        Network::Base => "Base",
        Network::BaseSepolia => "Base Sepolia (test network)",
    }
}

/// A link to another site, without a referrer.
pub(crate) fn outside(url: &str, text: &str) -> Markup {
    html! { a.outside href=(url) rel="noopener noreferrer external" target="_blank" { (text) span.sr { " (opens a new tab)" } } }
}

/// The end of a key's public half.
pub(crate) fn key(id: KeyId) -> Markup {
    html! { code title="The end of the key’s public part" { "…" (id) } }
}
