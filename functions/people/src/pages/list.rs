//! Filters and pagination of lists.

use maud::{Markup, html};

/// A filter of a list. An option is its value, its text, and whether it is selected.
pub(super) fn filter_select(
    id: &str,
    field: &str,
    label: &str,
    all: &str,
    options: impl Iterator<Item = (String, Markup, bool)>,
) -> Markup {
    let id = format!("filter-{id}");
    html! {
        div.field {
            label for=(id) { (label) }
            select id=(id) name=(field) {
                option value="" { (all) }
                @for (value, text, is_chosen) in options { option value=(value) selected[is_chosen] { (text) } }
            }
        }
    }
}

/// Links to the first and the next page of a list, each with its text and URL.
pub(super) fn paging(label: &str, first: Option<(&str, String)>, next: Option<(&str, String)>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.paging aria-label=(label) {
                @if let Some((text, address)) = first { a.button href=(address) { (text) } }
                @if let Some((text, address)) = next { a.button href=(address) rel="next" { (text) } }
            }
        }
    }
}
