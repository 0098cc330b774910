//! Renders filters, columns and page links of lists.

use crate::ui::count::count_with_noun;
use maud::{Markup, html};
use purser_api::Query;
use purser_domain::{Duration, ErrorKind, Timestamp};

/// The number of rows on each page of a [`ListPage`].
const ROWS: usize = 25;

/// A numbered page of a list. The whole list is in memory.
pub(crate) struct ListPage<T> {
    pub(crate) rows: Vec<T>,
    /// The number of items on this page, including items whose records were deleted.
    cut: usize,
    /// The page's number, counted from 0.
    page: usize,
    /// The number of rows on all pages.
    count: usize,
}

impl<T> ListPage<T> {
    /// Returns the page with this number, counted from 0. If the number is too high, returns the last page.
    pub(crate) fn new(items: Vec<T>, page: usize) -> Self {
        let count = items.len();
        let page = page.min(count.saturating_sub(1).checked_div(ROWS).unwrap_or(0));
        let before = page.saturating_mul(ROWS);
        let rows: Vec<T> = items.into_iter().skip(before).take(ROWS).collect();
        Self {
            cut: rows.len(),
            rows,
            page,
            count,
        }
    }

    /// Replaces the items, for example by their records. There may be fewer `rows` than items.
    pub(crate) fn with_rows<R>(self, rows: Vec<R>) -> ListPage<R> {
        ListPage {
            rows,
            cut: self.cut,
            page: self.page,
            count: self.count,
        }
    }

    /// Renders the position in the list and the page links. `address` returns a page's URL.
    pub(crate) fn position_and_page_links(&self, label: &str, noun: &str, address: impl Fn(usize) -> String) -> Markup {
        let before = self.page.saturating_mul(ROWS);
        let (first, last) = (before.saturating_add(1), before.saturating_add(self.cut));
        let next = self.page.saturating_add(1);
        html! {
            @if self.count > ROWS {
                p.hint { (first) " to " (last) " of " (count_with_noun(self.count, noun)) }
                (first_and_next_links(
                    label,
                    self.page.checked_sub(1).map(|page| ("Previous", address(page))),
                    (last < self.count).then(|| ("Next", address(next))),
                ))
            }
        }
    }
}

/// Parses the parameter `page`, which counts from 1. Returns the number counted from 0, and 0 by default.
pub(crate) fn parse_page_number(query: &mut Query) -> usize {
    let page = query.parse_with("page", |text| text.parse::<usize>().ok(), "");
    page.unwrap_or(1).saturating_sub(1)
}

/// Returns the page's number for the URL, counted from 1. Returns `None` for the first page.
pub(crate) fn format_page_number(page: usize) -> Option<String> {
    (page > 0).then(|| page.saturating_add(1).to_string())
}

/// The heading of a column. Columns of numbers are aligned to the right.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column<'a> {
    Text(&'a str),
    Number(&'a str),
}

pub(crate) fn column_headings(columns: &[Column<'_>]) -> Markup {
    html! {
        thead {
            tr {
                @for column in columns {
                    @match column {
                        Column::Text(name) => th scope="col" { (name) },
                        Column::Number(name) => th.num scope="col" { (name) },
                    }
                }
            }
        }
    }
}

/// `is_open` unfolds the form on a narrow screen. `clear` is the URL without filters, if any filter is set.
pub(crate) fn filter_form(action: &str, is_open: bool, clear: Option<&str>, fields: &Markup) -> Markup {
    html! {
        form.filters method="get" action=(action) role="search" aria-label="Filters" {
            details.narrow-fold open[is_open] {
                summary.button { "Filters" @if clear.is_some() { " " span.chip { "on" } } }
                div.fields {
                    (fields)
                    button type="submit" { "Show" }
                    @if let Some(clear) = clear { a href=(clear) { "Clear" } }
                }
            }
        }
    }
}

pub(crate) fn search_field(id: &str, label: &str, text: &str) -> Markup {
    let id = format!("filter-{id}");
    html! {
        div.field {
            label for=(id) { (label) }
            input id=(id) type="search" name="q" value=(text) maxlength="100" autocomplete="off";
        }
    }
}

pub(crate) fn text_field(id: &str, field: &str, label: &str, text: &str) -> Markup {
    let id = format!("filter-{id}");
    html! {
        div.field {
            label for=(id) { (label) }
            input id=(id) type="text" name=(field) value=(text) maxlength="100" autocomplete="off" spellcheck="false";
        }
    }
}

/// Ignores case.
pub(crate) fn contains_text(name: &str, text: &str) -> bool {
    name.to_lowercase().contains(&text.trim().to_lowercase())
}

/// Each option has a value, a text, and whether it is selected.
pub(crate) fn filter_select(
    id: &str,
    field: &str,
    label: &str,
    all_label: &str,
    options: impl Iterator<Item = (String, Markup, bool)>,
) -> Markup {
    let id = format!("filter-{id}");
    html! {
        div.field {
            label for=(id) { (label) }
            select id=(id) name=(field) {
                option value="" { (all_label) }
                @for (value, text, is_chosen) in options { option value=(value) selected[is_chosen] { (text) } }
            }
        }
    }
}

/// Returns a text that names invalid filters. The list must then be empty: unfiltered rows would mislead.
pub(crate) fn filter_error_message(query: Query) -> Option<String> {
    let error = query.finish().err()?;
    let ErrorKind::InvalidRequest(errors) = error.kind() else {
        return Some("These filters are invalid.".to_owned());
    };
    let lines = errors.iter().map(|message| {
        let label = match message.path.trim_start_matches('/') {
            "agent_id" | "agent" => "Agent",
            "min" => "From $",
            "max" => "To $",
            "reason" => "Reason",
            "label" => "Label",
            "q" => "Search",
            "sort" => "Order",
            "pay_to" => "Payee",
            "from" => "From",
            "to" => "To",
            "result" => "Outcome",
            "service_id" => "Service",
            "status" => "State",
            "kind" => "Act",
            "refused" => "Refused only",
            _ => "The address of this page",
        };
        format!("{label}: {}.", message.message.replace('`', ""))
    });
    Some(lines.collect::<Vec<_>>().join(" "))
}

/// Renders the text that is shown instead of rows if a filter is invalid.
pub(crate) fn invalid_filter_text() -> Markup {
    html! { p.empty { "Nothing is shown until the filters are corrected." } }
}

/// The second date is inclusive, so the field shows the last day before `to`.
pub(crate) fn date_fields(from: Option<Timestamp>, to: Option<Timestamp>) -> Markup {
    let day = |at: Option<Timestamp>| at.map(|at| at.to_string().chars().take(10).collect::<String>());
    let to = to.map(|to| to.before(Duration::from_secs_u32(1)));
    html! {
        div.field {
            label for="filter-from" { "From " span.muted { "(UTC)" } }
            input id="filter-from" type="date" name="from" value=[day(from)];
        }
        div.field {
            label for="filter-to" { "To " span.muted { "(UTC)" } }
            input id="filter-to" type="date" name="to" value=[day(to)];
        }
    }
}

/// Each link has a text and a URL.
pub(crate) fn first_and_next_links(label: &str, first: Option<(&str, String)>, next: Option<(&str, String)>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.paging aria-label=(label) {
                @if let Some((text, address)) = first { a.button href=(address) { (text) } }
                @if let Some((text, address)) = next { a.button href=(address) rel="next" { (text) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_numbers_beyond_the_end_show_the_last_page() {
        let all = || (0..60).collect::<Vec<usize>>();
        for (page, first, count, previous, next) in [
            (0, 0, 25, false, true),
            (1, 25, 25, true, true),
            (2, 50, 10, true, false),
            (9, 50, 10, true, false),
        ] {
            let numbered = ListPage::new(all(), page);
            assert_eq!((numbered.rows[0], numbered.rows.len()), (first, count), "{page}");
            let markup = numbered
                .position_and_page_links("Pages", "agent", |page| format!("?{page}"))
                .into_string();
            assert_eq!(
                (markup.contains("Previous"), markup.contains("Next")),
                (previous, next),
                "{page}"
            );
        }
        assert!(ListPage::new(Vec::<u8>::new(), 3).rows.is_empty());
    }

    #[test]
    fn list_pages_are_numbered_from_one() {
        let of = |query: &str| parse_page_number(&mut Query::from_uri(&format!("/?{query}").parse().unwrap()));
        assert_eq!(
            [of(""), of("page=0"), of("page=1"), of("page=3"), of("page=x")],
            [0, 0, 0, 2, 0]
        );
        assert_eq!(
            [format_page_number(0), format_page_number(2)],
            [None, Some("3".to_owned())]
        );
    }
}
