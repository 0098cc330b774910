//! The spending section of the overview: sums for today, a week and a month, a chart, and rankings.

use crate::agents::spend::AgentSpend;
use crate::journal::filter::JournalFilter;
use crate::ui::bar::{HIGH, share};
use crate::ui::chart::chart;
use crate::ui::labels;
use crate::ui::list::Column::{Number, Text};
use crate::ui::list::columns;
use crate::ui::money::money;
use crate::usage::spending::{Period, Spending};
use maud::{Markup, html};
use purser_domain::{Catalog, LabelFilter, UsageTotals, visible};
use purser_store::AgentLimit;

/// Renders the spending, and the agents that are near a limit. `shown` contains the agents on the overview.
pub(crate) fn section(spending: Option<&Spending>, shown: &[AgentSpend], catalog: &Catalog) -> Markup {
    html! {
        section aria-labelledby="spending-title" {
            h2 id="spending-title" { "Spending" }
            @match spending {
                None => p.empty { "The spending can’t be shown at the moment. Nothing else is affected." },
                Some(spending) => {
                    (totals(spending))
                    @if spending.in_period(Period::Month).allowed == 0 { (nothing(shown)) } @else {
                        div.card { (chart("Settled or pending", &spending.by_day())) }
                        (rankings(spending, catalog))
                    }
                    (near_a_limit(spending))
                }
            }
        }
    }
}

/// Renders the text for a period without payments.
fn nothing(shown: &[AgentSpend]) -> Markup {
    let first = shown.first().map(|spend| spend.agent.agent());
    html! {
        p.empty {
            "Nothing was paid in this period. To pay, an agent needs a key and money in its wallet. You can set up both on its page"
            @if let Some(agent) = first { ", such as that of " (labels::agent(agent.id, &agent.name)) }
            "."
        }
    }
}

fn totals(spending: &Spending) -> Markup {
    html! {
        table.list.sums {
            caption.sr { "Spending by period" }
            (columns(&[
                Text("Days in UTC"), Number("Settled"), Number("Pending"), Number("Released"), Number("Payments"),
                Number("Blocked"), Number("Asked for approval"),
            ]))
            tbody { @for period in Period::ALL { (total(period, spending.in_period(period))) } }
        }
        p.hint { "Settled: confirmed on chain. Pending: signed and not yet on chain; it settles or is released." }
    }
}

fn total(period: Period, sums: UsageTotals) -> Markup {
    html! {
        tr {
            th scope="row" { (period.name()) }
            td.num data-label="Settled" { (money(sums.confirmed)) }
            td.num data-label="Pending" { (money(sums.pending())) }
            td.num data-label="Released" { (money(sums.released)) }
            td.num data-label="Payments" { (sums.allowed) }
            td.num data-label="Blocked" { (sums.blocked) }
            td.num data-label="Asked for approval" { (sums.escalated) }
        }
    }
}

fn rankings(spending: &Spending, catalog: &Catalog) -> Markup {
    html! {
        div.cards.rankings {
            (ranking("By agent", "today", spending.agents_today().into_iter().map(|agent| {
                (labels::agent(agent.agent, &agent.name), money(agent.sums.authorized))
            })))
            (ranking("By service", "in 30 days", spending.services().into_iter().map(|(service, amount)| {
                let filter = JournalFilter { service: Some(service), ..JournalFilter::default() };
                let to = crate::address::address("/dashboard/settlements", filter.parameters());
                (html! { a href=(to) { (labels::service(service, catalog)) } }, money(amount))
            })))
            (ranking("By label", "in 30 days", spending.labels().into_iter().map(|((key, value), amount)| {
                let label = LabelFilter { key, value: Some(value) };
                let text = label.to_string();
                let filter = JournalFilter { label: Some(label), ..JournalFilter::default() };
                let to = crate::address::address("/dashboard/settlements", filter.parameters());
                (html! { a href=(to) { (visible(&text)) } }, money(amount))
            })))
            (ranking("By category", "in 30 days", spending.categories(catalog).into_iter().map(|(category, amount)| {
                (html! { (category.name()) }, money(amount))
            })))
            (ranking("Refusals by reason", "in 30 days", spending.reasons().into_iter().map(|(reason, count)| {
                let filter = JournalFilter { reason: Some(reason.clone()), ..JournalFilter::default() };
                let to = crate::address::address("/dashboard/decisions", filter.parameters());
                (html! { a href=(to) { (reason.replace('_', " ")) } }, html! { (count) })
            })))
        }
    }
}

fn ranking(title: &str, since: &str, rows: impl ExactSizeIterator<Item = (Markup, Markup)>) -> Markup {
    html! {
        div.card {
            h3 { (title) " " span.muted { (since) } }
            @if rows.len() == 0 { p.muted { "None." } } @else {
                ol.ranking { @for (name, figure) in rows { li { (name) " " span.figures { (figure) } } } }
            }
        }
    }
}

/// Renders the agents whose payments used most of a limit today.
fn near_a_limit(spending: &Spending) -> Markup {
    let is_near = |near: &&AgentLimit| share(near.limit.used, near.limit.limit) >= HIGH;
    let near: Vec<&AgentLimit> = spending.nearest_today().iter().filter(is_near).collect();
    html! {
        @if !near.is_empty() {
            div.message.warn {
                p { strong { "Near a limit today:" } }
                ul {
                    @for AgentLimit { agent, name, limit } in near {
                        li { (labels::agent(*agent, name)) " " span.figures { (money(limit.used)) " of " (money(limit.limit)) } }
                    }
                }
            }
        }
    }
}
