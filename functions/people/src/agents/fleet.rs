//! The agents of a fleet, which has more agents than cards can show: totals, and a table with search, sorting and
//! pages.
//!
//! Spending is read only for the agents on a page. If the agents are many, so are their records: the index suffices to
//! sort by creation time or by pending approvals. Only the records have names and states, so a search, a filter and
//! sorting by name read all records, at one read unit for each agent.

use crate::agents::owned::Owned;
use crate::agents::spend::AgentSpend;
use crate::approvals::operations::Waiting;
use crate::caller::Caller;
use crate::state::People;
use crate::ui::bar::bar;
use crate::ui::count::counted;
use crate::ui::datetime::relative;
use crate::ui::labels;
use crate::ui::layout::Layout;
use crate::ui::list::{Paginated, columns, filter_select, has_text, page_number, page_text, search_field};
use crate::ui::money::{is_no_limit, money, spent};
use axum::http::Uri;
use maud::{Markup, html};
use purser_api::Query;
use purser_domain::{AgentId, AgentStatus, Amount, Result, RuleKind, Spend};
use std::cmp::Reverse;
use std::sync::Arc;

/// The maximum number of agents that are shown as cards.
pub(crate) const CARDS: usize = 12;

/// The order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    Name,
    #[default]
    Newest,
    Oldest,
    Waiting,
}

impl Order {
    const ALL: [Self; 4] = [Self::Newest, Self::Oldest, Self::Waiting, Self::Name];

    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Waiting => "waiting",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Newest => "Newest first",
            Self::Oldest => "Oldest first",
            Self::Waiting => "Pending approvals first",
        }
    }
}

/// The view of the table that the URL selects; by default all agents, newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetView {
    search: String,
    status: Option<AgentStatus>,
    order: Order,
    page: usize,
}

/// An agent with the number of its pending approvals.
pub(crate) type Asking = (Arc<Owned>, usize);

impl FleetView {
    /// The view in a URL. Unknown parts are ignored.
    pub(crate) fn of(uri: &Uri) -> Self {
        let mut query = Query::without_blanks(uri);
        let order = |text: &str| Order::ALL.into_iter().find(|order| order.name() == text);
        Self {
            search: query.text("q").unwrap_or_default(),
            status: query.read("status", status_named, ""),
            order: query.read("sort", order, "").unwrap_or_default(),
            page: page_number(&mut query),
        }
    }

    /// The page of these agents that the view selects.
    pub(crate) fn page_of(&self, agents: &[Asking]) -> Paginated<Asking> {
        let is_sought = |(owned, _): &&Asking| {
            let agent = owned.agent();
            let text = self.search.trim();
            self.status.is_none_or(|status| agent.status == status)
                && (has_text(&agent.name, text) || agent.id.to_string().starts_with(&text.to_lowercase()))
        };
        let mut found: Vec<Asking> = agents.iter().filter(is_sought).cloned().collect();
        match self.order {
            Order::Name => found.sort_by_cached_key(|(owned, _)| (owned.agent().name.to_lowercase(), owned.agent().id)),
            Order::Newest => found.sort_by_key(|(owned, _)| Reverse((owned.agent().created_at, owned.agent().id))),
            Order::Oldest => found.sort_by_key(|(owned, _)| (owned.agent().created_at, owned.agent().id)),
            Order::Waiting => {
                found.sort_by_key(|(owned, waiting)| Reverse((*waiting, owned.agent().created_at, owned.agent().id)));
            }
        }
        Paginated::of(found, self.page)
    }

    /// Whether the view needs the agents' records.
    fn asks_records(&self) -> bool {
        !self.search.trim().is_empty() || self.status.is_some() || self.order == Order::Name
    }

    /// The page of these agents that the view selects without their records. `ids` are in order of creation.
    fn page_of_ids(&self, mut ids: Vec<AgentId>, waiting: &Waiting) -> Paginated<AgentId> {
        if self.order != Order::Oldest {
            ids.reverse();
        }
        if self.order == Order::Waiting {
            ids.sort_by_key(|id| Reverse(waiting.count_of(*id)));
        }
        Paginated::of(ids, self.page)
    }

    fn address(&self, page: usize) -> String {
        let order = (self.order != Order::default()).then(|| self.order.name().to_owned());
        let parameters = [
            ("q", (!self.search.is_empty()).then(|| self.search.clone())),
            ("status", self.status.map(|status| status.name().to_owned())),
            ("sort", order),
            ("page", page_text(page)),
        ];
        crate::address::address("/dashboard", parameters)
    }
}

fn status_named(text: &str) -> Option<AgentStatus> {
    [AgentStatus::Active, AgentStatus::Frozen]
        .into_iter()
        .find(|status| status.name() == text)
}

/// A fleet: a page of its agents, and its totals.
pub(crate) struct Fleet {
    view: FleetView,
    /// The number of all agents.
    agents: usize,
    /// The number of frozen agents; `None` if not all agents were read.
    frozen: Option<usize>,
    pub(crate) page: Paginated<Asking>,
}

impl Fleet {
    /// Reads the page that the view selects. `waiting` are the pending approvals of the person's agents.
    pub(crate) async fn read(people: &People, person: &Caller, view: FleetView, waiting: &Waiting) -> Result<Self> {
        let asking = |owned: &Arc<Owned>| (Arc::clone(owned), waiting.count_of(owned.agent().id));
        if waiting.are_many && !view.asks_records() {
            let ids = people.ledger.ids_of_agents(person.id.as_str(), None).await?;
            let (agents, page) = (ids.len(), view.page_of_ids(ids, waiting));
            let read = people.own_agents(person, page.rows.clone()).await?;
            let read: Vec<Arc<Owned>> = read.into_iter().map(Arc::new).collect();
            let found = |id: &AgentId| read.iter().find(|owned| owned.agent().id == *id).map(asking);
            let rows = page.rows.iter().filter_map(found).collect();
            return Ok(Self {
                view,
                agents,
                frozen: None,
                page: page.with(rows),
            });
        }
        let all: Vec<Asking> = if waiting.are_many {
            let all = people.agents(person).await?.into_iter().map(Arc::new);
            all.map(|owned| asking(&owned)).collect()
        } else {
            waiting.agents.iter().map(asking).collect()
        };
        let frozen = all.iter();
        let frozen = frozen.filter(|(owned, _)| owned.agent().status == AgentStatus::Frozen);
        Ok(Self {
            agents: all.len(),
            frozen: Some(frozen.count()),
            page: view.page_of(&all),
            view,
        })
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

/// The totals of all agents.
fn totals(fleet: &Fleet, waiting: usize) -> Markup {
    html! {
        dl.card.totals {
            div { dt { "Agents" } dd { (fleet.agents) } }
            div {
                dt { "Frozen" }
                dd {
                    @match fleet.frozen {
                        Some(frozen) => (frozen),
                        None => a href="/dashboard?status=frozen" { "Show" },
                    }
                }
            }
            div { dt { "Waiting for you" } dd { (waiting) } }
        }
    }
}

/// The totals, the search form and the table. `spends` are the agents of the page, in the same order.
pub(crate) fn section(layout: &Layout, fleet: &Fleet, waiting: usize, spends: &[AgentSpend]) -> Markup {
    let view = &fleet.view;
    let is_filtered = !view.search.is_empty() || view.status.is_some() || view.order != Order::default();
    html! {
        (totals(fleet, waiting))
        form.filters method="get" action="/dashboard" role="search" {
            (search_field("agents", "Name or id", &view.search))
            (filter_select("status", "status", "State", "All states", [AgentStatus::Active, AgentStatus::Frozen].into_iter().map(|status| {
                (status.name().to_owned(), html! { (status.name()) }, view.status == Some(status))
            })))
            div.field {
                label for="filter-sort" { "Order" }
                select id="filter-sort" name="sort" {
                    @for order in Order::ALL { option value=(order.name()) selected[order == view.order] { (order.label()) } }
                }
            }
            button type="submit" { "Show" }
            @if is_filtered { a href="/dashboard" { "Clear" } }
        }
        @if spends.is_empty() {
            p.empty { "No agent fits." }
        } @else {
            table.list {
                caption.sr { "Agents" }
                (columns(&["Agent", "Waiting", "Spent in 24 h", "Nearest to a cap", "Services", "Created"]))
                tbody { @for (spend, (_, waiting)) in spends.iter().zip(&fleet.page.rows) { (row(layout, spend, *waiting)) } }
            }
        }
        (fleet.page.paging("Pages of agents", "agent", |page| view.address(page)))
    }
}

fn row(layout: &Layout, spend: &AgentSpend, waiting: usize) -> Markup {
    let agent = spend.agent.agent();
    let total = spend.services.iter().map(|service| service.spent_today);
    let total = total.fold(Spend::NONE, Spend::plus);
    let enabled = spend.services.iter().filter(|service| service.record.enabled).count();
    html! {
        tr {
            th scope="row" {
                (labels::agent(agent.id, &agent.name))
                @if agent.status == AgentStatus::Frozen { " " (labels::status(agent.status)) }
                @else if spend.freeze.is_some() { " " span.chip.bad { "frozen by an operator" } }
            }
            td data-label="Waiting" {
                @if waiting > 0 {
                    a href=(format!("/dashboard/approvals?agent_id={}", agent.id)) { span.chip.wait { (waiting) " waiting" } }
                } @else { span.muted { "nothing" } }
            }
            td data-label="Spent in 24 h" { (spent(total)) }
            td data-label="Nearest to a cap" {
                @match nearest(spend) {
                    Some((used, cap)) => {
                        span.figures { (money(used)) " of " (money(cap)) }
                        (bar(used, Amount::ZERO, cap))
                    }
                    None => { span.muted { "no cap" } }
                }
            }
            td data-label="Services" { @if enabled == 0 { span.muted { "none" } } @else { (counted(enabled, "service")) } }
            td data-label="Created" { (relative(agent.created_at, layout.now)) }
        }
    }
}

/// The amount used and the limit of the cap that is closest to being reached: a service's daily cap, or a budget over
/// all services.
pub(crate) fn nearest(spend: &AgentSpend) -> Option<(Amount, Amount)> {
    let services = spend.services.iter().filter(|service| service.record.enabled);
    let services = services.map(|service| (service.spent_today.amount, service.record.policy.max_per_day));
    let budgets = spend
        .rules
        .iter()
        .filter_map(|rule| match (&rule.rule.kind, rule.used) {
            (RuleKind::BudgetLimit { limit, .. }, Some(used)) => Some((used.amount, *limit)),
            _ => None,
        });
    let capped = services.chain(budgets).filter(|(_, cap)| !is_no_limit(*cap));
    capped.max_by(|(used, cap), (other_used, other_cap)| {
        // Compares used / cap without a division.
        let product = |a: &Amount, b: &Amount| u128::from(a.units()).saturating_mul(u128::from(b.units()));
        product(used, other_cap).cmp(&product(other_used, cap))
    })
}
