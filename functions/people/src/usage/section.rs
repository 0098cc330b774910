//! The spending of the last days: totals, a chart, and the agents and services with the most spending.

use crate::agents::fleet::nearest;
use crate::agents::owned::Owned;
use crate::agents::spend::AgentSpend;
use crate::ui::bar::{HIGH, share};
use crate::ui::chart::chart;
use crate::ui::count::counted;
use crate::ui::labels;
use crate::ui::money::money;
use crate::usage::spending::{Spending, spent};
use maud::{Markup, html};
use purser_domain::{Amount, Catalog, Day, UsageTotals};

/// The section of the overview with the spending and the agents that are close to a cap. `shown` are the agents on the
/// overview.
pub(crate) fn section(spending: Option<&(Spending, Vec<Owned>)>, shown: &[AgentSpend], catalog: &Catalog) -> Markup {
    html! {
        section aria-labelledby="spending-title" {
            h2 id="spending-title" { "The last 30 days" }
            @match spending {
                None => p.empty { "The spending can’t be shown at the moment. Nothing else is affected." },
                Some((spending, named)) => {
                    @let sum = sum(spending);
                    @if sum != UsageTotals::default() { (totals(sum)) }
                    @if sum.allowed == 0 { (nothing(shown)) } @else {
                        div.card { (chart("Spent or held", &by_day(spending))) }
                        (biggest(spending, named, catalog))
                    }
                }
            }
            (near_a_cap(shown))
        }
    }
}

fn by_day(spending: &Spending) -> Vec<(Day, Amount)> {
    let days = spending.days.iter();
    days.map(|(day, totals)| (*day, spent(*totals))).collect()
}

fn sum(spending: &Spending) -> UsageTotals {
    let days = spending.days.iter();
    days.fold(UsageTotals::default(), |sum, (_, totals)| sum.plus(*totals))
}

/// The text that is shown if nothing was paid.
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

fn totals(sum: UsageTotals) -> Markup {
    html! {
        dl.card.totals {
            div {
                dt { "Spent or held" }
                dd { (money(spent(sum))) p.muted.fine { "Confirmed payments and open holds. A hold that expires unpaid is subtracted." } }
            }
            div { dt { "Payments" } dd { (sum.allowed) } }
            div { dt { "Refused" } dd { (sum.blocked) } }
            div { dt { "Sent for approval" } dd { (sum.escalated) } }
        }
    }
}

fn biggest(spending: &Spending, named: &[Owned], catalog: &Catalog) -> Markup {
    let since = match spending.ranked_days {
        2 => "since yesterday".to_owned(),
        days => format!("in {}", counted(days, "day")),
    };
    html! {
        div.cards.two {
            div.card {
                h3 { "Biggest spenders " span.muted { (since) } }
                @if spending.agents.is_empty() { p.muted { "Nothing was spent." } } @else {
                    ol.ranking {
                        @for (id, amount) in &spending.agents {
                            li {
                                @match named.iter().map(Owned::agent).find(|agent| agent.id == *id) {
                                    Some(agent) => (labels::agent(*id, &agent.name)),
                                    // The agent was handed over to another owner since.
                                    None => code.long { (id) },
                                }
                                " " span.figures { (money(*amount)) }
                            }
                        }
                    }
                }
            }
            div.card {
                h3 { "Biggest services " span.muted { (since) } }
                @if spending.services.is_empty() { p.muted { "Nothing was spent." } } @else {
                    ol.ranking {
                        @for (id, amount) in &spending.services {
                            li { (labels::service(*id, catalog)) " " span.figures { (money(*amount)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The shown agents that have used most of a cap.
fn near_a_cap(shown: &[AgentSpend]) -> Markup {
    let near = shown.iter().filter_map(|spend| {
        let (used, cap) = nearest(spend)?;
        (share(used, cap) >= HIGH).then_some((spend.agent.agent(), used, cap))
    });
    let near: Vec<_> = near.collect();
    html! {
        @if !near.is_empty() {
            div.message.warn {
                p { strong { "Near a cap:" } }
                ul {
                    @for (agent, used, cap) in near {
                        li { (labels::agent(agent.id, &agent.name)) " " span.figures { (money(used)) " of " (money(cap)) } }
                    }
                }
            }
        }
    }
}
