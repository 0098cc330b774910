//! Renders the call that a payment is for, always in full, because a hidden part could contain anything.
//!
//! The agent writes the call's description, so invisible characters are shown as code points.

use crate::ui::money::amount_text;
use maud::{Markup, html};
use purser_domain::{Amount, CallDescription, CatalogPrice, Metadata, Url, escape_hidden_characters};
use serde_json::Value;
use url::Position;

/// Renders the call, with a comparison of the catalog's price and the requested amount.
pub(crate) fn call_details(call: &CallDescription, requested_amount: Amount) -> Markup {
    html! {
        dl.facts-list.wide.call {
            div {
                dt { "Calls" }
                dd { strong.method { (call.request.method) } " " (highlighted_url(&call.request.url)) }
            }
            @if let Some(target) = &call.target_url {
                div { dt { "Fetches from" } dd { (highlighted_url(target)) } }
            }
            div { dt { "Price" } dd { (price_comparison(requested_amount, call.catalog_price)) } }
            @if let Some(hash) = &call.request.body_hash {
                div { dt { "Body’s hash" } dd { code.long { (escape_hidden_characters(hash)) } " " span.aside { "as the agent says" } } }
            }
            @if !call.metadata.is_empty() {
                div { dt { "The agent says" } dd { (agent_metadata_table(&call.metadata)) } }
            }
        }
    }
}

/// Renders a URL in full, with the host highlighted.
fn highlighted_url(url: &Url) -> Markup {
    html! {
        code.long {
            (&url[..Position::BeforeHost])
            strong.host { (&url[Position::BeforeHost..Position::AfterPort]) }
            (&url[Position::AfterPort..])
        }
    }
}

fn price_comparison(requested_amount: Amount, listed_price: Option<CatalogPrice>) -> Markup {
    let Some(CatalogPrice { price, most: max }) = listed_price else {
        return html! { "Asks " (amount_text(requested_amount)) p.aside { "Not compared: the catalog was not read, or does not list this call." } };
    };
    html! {
        "Asks " (amount_text(requested_amount)) " · listed at " (amount_text(price)) " · "
        @match max {
            Some(max) => { "ceiling " (amount_text(max)) },
            None => "can’t be paid at this price",
        }
        @if let Some(above) = requested_amount.minus(price).filter(|above| !above.is_zero()) {
            p.warning {
                (amount_text(above)) " above the listed price"
                @if max.is_some_and(|max| requested_amount > max) { ", and above the ceiling" }
            }
        }
    }
}

fn agent_metadata_table(metadata: &Metadata) -> Markup {
    html! {
        table.said {
            caption.sr { "The agent’s description of the call" }
            tbody {
                @for (name, value) in metadata.json_fields() {
                    tr {
                        th scope="row" { bdi { (escape_hidden_characters(name)) } }
                        td { bdi { @match value { Value::String(text) => (escape_hidden_characters(text)), other => (other) } } }
                    }
                }
            }
        }
        p.aside { "Written by the agent. Not used in the decision." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_in_full_with_emphasized_host() {
        let long = format!("https://a.example:8443/p?{}<b>#end", "q".repeat(2_000));
        let html = highlighted_url(&Url::parse(&long).unwrap()).into_string();
        assert!(html.contains("https://<strong class=\"host\">a.example:8443</strong>/p?"));
        assert!(
            html.contains(&"q".repeat(2_000)) && html.ends_with("%3Cb%3E#end</code>"),
            "{html}"
        );
    }

    /// A call that has no price or is not in the catalog also has a note.
    #[test]
    fn prices_above_the_listed_price_show_a_warning() {
        let units = |units| Amount::from_units(units).unwrap();
        let listed = |most| {
            Some(CatalogPrice {
                price: units(10_000),
                most,
            })
        };
        let told = |asked, listed| price_comparison(units(asked), listed).into_string();
        let plain = told(10_000, listed(Some(units(50_000))));
        assert!(!plain.contains("above") && plain.contains("· ceiling "), "{plain}");
        let above = told(40_000, listed(Some(units(50_000))));
        assert!(
            above.contains(" above the listed price<") && above.contains("$0.03"),
            "{above}"
        );
        assert!(told(60_000, listed(Some(units(50_000)))).contains("and above the ceiling"));
        assert!(told(10_000, listed(None)).contains("can’t be paid at this price"));
        assert!(told(10_000, None).contains("does not list this call"));
    }
}
