//! The spending section of the overview: sums, a chart, and rankings.

use crate::agents::spend::AgentSpend;
use crate::journal::filter::HistoryFilter;
use crate::ui::bar::{HIGH, permille_of_cap};
use crate::ui::chart::amount_chart;
use crate::ui::labels;
use crate::ui::list::Column::{Number, Text};
use crate::ui::list::column_headings;
use crate::ui::money::{amount_text, column_amount};
use crate::usage::spending::{Period, Spending};
use maud::{Markup, html};
use purser_domain::{Catalog, LabelFilter, UsageTotals, escape_hidden_characters};
use purser_store::AgentLimit;

/// `agent_spends` contains the agents on the overview.
pub(crate) fn spending_section(spending: Option<&Spending>, agent_spends: &[AgentSpend], catalog: &Catalog) -> Markup {
    html! {
        section aria-labelledby="spending-title" {
            h2 id="spending-title" { "Spending" }
            @match spending {
                None => p.empty { "The spending can’t be shown at the moment. Nothing else is affected." },
                Some(spending) => {
                    (spending_totals(spending))
                    @if spending.usage_totals_in_period(Period::Month).allowed == 0 { (no_payments_text(agent_spends)) } @else {
                        div.card { (amount_chart("Settled or pending", &spending.spent_by_day())) }
                        (spending_rankings(spending, catalog))
                    }
                    (agents_near_limit(spending))
                }
            }
        }
    }
}

fn no_payments_text(agent_spends: &[AgentSpend]) -> Markup {
    let first = agent_spends.first().map(|spend| spend.agent.agent());
    html! {
        p.empty {
            "Nothing was paid in this period. To pay, an agent needs a key and money in its wallet. You can set up both on its page"
            @if let Some(agent) = first { ", such as that of " (labels::agent_link(agent.id, &agent.name)) }
            "."
        }
    }
}

fn spending_totals(spending: &Spending) -> Markup {
    html! {
        table.list.sums {
            caption.sr { "Spending by period" }
            (column_headings(&[
                Text("Days in UTC"), Number("Settled"), Number("Pending"), Number("Released"), Number("Payments"),
                Number("Blocked"), Number("Asked for approval"),
            ]))
            tbody { @for period in Period::ALL { (period_total(*period, spending.usage_totals_in_period(*period))) } }
        }
        p.hint { "Settled: confirmed on chain. Pending: signed and not yet on chain; it settles or is released." }
    }
}

fn period_total(period: Period, sums: UsageTotals) -> Markup {
    html! {
        tr {
            th scope="row" { (period.name()) }
            td.num data-label="Settled" { (column_amount(sums.confirmed)) }
            td.num data-label="Pending" { (column_amount(sums.pending_amount())) }
            td.num data-label="Released" { (column_amount(sums.released)) }
            td.num data-label="Payments" { (sums.allowed) }
            td.num data-label="Blocked" { (sums.blocked) }
            td.num data-label="Asked for approval" { (sums.escalated) }
        }
    }
}

fn spending_rankings(spending: &Spending, catalog: &Catalog) -> Markup {
    html! {
        div.cards.rankings {
            (ranking_table("By agent", "today", spending.top_agents_today().into_iter().map(|agent| {
                (labels::agent_link(agent.agent, &agent.name), column_amount(agent.sums.authorized))
            })))
            (ranking_table("By service", "in 30 days", spending.top_services().into_iter().map(|(service, amount)| {
                let filter = HistoryFilter { service: Some(service), ..HistoryFilter::default() };
                let to = crate::address::path_with_query("/dashboard/settlements", filter.query_parameters());
                (html! { a href=(to) { (labels::service_name(service, catalog)) } }, column_amount(amount))
            })))
            (ranking_table("By label", "in 30 days", spending.top_labels().into_iter().map(|((key, value), amount)| {
                let label = LabelFilter { key, value: Some(value) };
                let text = label.to_string();
                let filter = HistoryFilter { label: Some(label), ..HistoryFilter::default() };
                let to = crate::address::path_with_query("/dashboard/settlements", filter.query_parameters());
                (html! { a href=(to) { (escape_hidden_characters(&text)) } }, column_amount(amount))
            })))
            (ranking_table("By category", "in 30 days", spending.top_categories(catalog).into_iter().map(|(category, amount)| {
                (html! { (category.name()) }, column_amount(amount))
            })))
            (ranking_table("Refusals by reason", "in 30 days", spending.top_block_reasons().into_iter().map(|(reason, count)| {
                let filter = HistoryFilter { reason: Some(reason.clone()), ..HistoryFilter::default() };
                let to = crate::address::path_with_query("/dashboard/decisions", filter.query_parameters());
                (html! { a href=(to) { (reason.replace('_', " ")) } }, html! { (count) })
            })))
        }
    }
}

fn ranking_table(title: &str, since: &str, rows: impl ExactSizeIterator<Item = (Markup, Markup)>) -> Markup {
    html! {
        div.card {
            h3 { (title) " " span.muted { (since) } }
            @if rows.len() == 0 { p.muted { "None." } } @else {
                ol.ranking { @for (name, figure) in rows { li { (name) " " span.figures { (figure) } } } }
            }
        }
    }
}

/// Renders the agents that have used at least 80 percent of a limit today.
fn agents_near_limit(spending: &Spending) -> Markup {
    let is_near = |near: &&AgentLimit| permille_of_cap(near.limit.used, near.limit.limit) >= HIGH;
    let near: Vec<&AgentLimit> = spending.nearest_limits_today().iter().filter(is_near).collect();
    html! {
        @if !near.is_empty() {
            div.message.warn {
                p { strong { "Near a limit today:" } }
                ul {
                    @for AgentLimit { agent, name, limit } in near {
                        li { (labels::agent_link(*agent, name)) " " span.figures { (amount_text(limit.used)) " of " (amount_text(limit.limit)) } }
                    }
                }
            }
        }
    }
}
