//! The pages of operators: the catalog as it is stored, delayed changes, freezes.
//!
//! Always true: these pages change nothing, and lead to no form that does. Operators act by their own tokens
//! (`functions/internal`), so a browser session that is stolen changes no payee.

mod catalog;
mod changes;
mod freezes;

use super::labels;
use super::layout::{Layout, NavItem};
use super::money::money;
use crate::redirect::see_other;
use crate::state::People;
use axum::{Router, response::Response, routing::get};
use maud::{Markup, html};
use purser_domain::{Network, Pricing};
use std::sync::Arc;

const CATALOG: &str = "/dashboard/operator/catalog";
const CHANGES: &str = "/dashboard/operator/changes";
const FREEZES: &str = "/dashboard/operator/freezes";

/// The routes of operators' pages.
pub(super) fn routes() -> Router<Arc<People>> {
    Router::new()
        .route("/dashboard/operator", get(to_catalog))
        .route(CATALOG, get(catalog::show))
        .route(CHANGES, get(changes::show))
        .route(FREEZES, get(freezes::show))
}

async fn to_catalog() -> Response {
    see_other(CATALOG)
}

/// An operators' page: `path` is its own, `how` says what acts on what it shows.
fn page(layout: &Layout, title: &str, path: &str, how: &Markup, content: &Markup) -> Markup {
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

/// The payee of a call and its highest price.
fn pays(pricing: Pricing<'_>, network: Network) -> Markup {
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
