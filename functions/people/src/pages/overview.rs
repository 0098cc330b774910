//! The overview: what waits, what the agents have spent in the last 24 hours, and what was refused.

use super::approvals::{self, View};
use super::bar::bar;
use super::datetime::length;
use super::decisions::{self, LogRow};
use super::form::FormName;
use super::labels::{self, counted};
use super::layout::{Here, Layout};
use super::money::{cap, is_no_limit, money};
use super::notice::{Notice, done};
use super::paths;
use crate::ops::approvals::Waiting;
use crate::ops::decisions::{Calls, DecisionFilter};
use crate::ops::owned::Owned;
use crate::ops::rules::RuleUsage;
use crate::ops::services::GovernedService;
use crate::ops::several::several;
use crate::page::Slice;
use crate::redirect::see_other;
use crate::session::{PageSession, VerifiedForm};
use crate::state::People;
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{AgentName, AgentStatus, Amount, Catalog, DecisionResult, Result, RuleKind};
use std::sync::Arc;

/// The content of the first page.
#[derive(Debug)]
pub(crate) struct Overview<'a> {
    pub(crate) waiting: Waiting,
    pub(crate) agents: Vec<AgentSpend>,
    /// The latest refusals, newest first.
    pub(crate) refused: Vec<LogRow>,
    pub(crate) catalog: &'a Catalog,
}

/// An agent's spend.
#[derive(Debug)]
pub(crate) struct AgentSpend {
    pub(crate) agent: Owned,
    /// Every service that was ever enabled.
    pub(crate) services: Vec<GovernedService>,
    pub(crate) rules: Vec<RuleUsage>,
}

/// `GET /dashboard`.
pub(super) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::of(&session, people.now()).noticed(&uri);
    Ok(answer(&people, &session, layout).await?)
}

/// `GET /dashboard/agents`: the agents are on the overview.
pub(super) async fn back() -> Response {
    see_other("/dashboard")
}

/// `POST /dashboard/agents`.
pub(super) async fn create_agent(State(people): State<Arc<People>>, posted: VerifiedForm) -> Reply {
    let mut form = posted.form(FormName::NewAgent);
    let Some(name) = form.agent_name() else {
        let layout = Layout {
            typed: Some(form),
            ..Layout::of(&posted.session, people.now())
        };
        let page = answer(&people, &posted.session, layout).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let owned = people.create_agent(&posted.session.person, &name).await?;
    Ok(done(&paths::agent(owned.agent().id), Notice::AgentCreated))
}

async fn answer(people: &Arc<People>, session: &PageSession, layout: Layout) -> Result<Response> {
    /// How many refusals are shown.
    const REFUSED: u32 = 5;
    let person = &session.person;
    let blocked = DecisionFilter {
        result: Some(DecisionResult::Block),
        ..DecisionFilter::default()
    };
    let newest = Slice {
        before: None,
        limit: REFUSED,
    };
    let (waiting, agents, refused, edition) = tokio::try_join!(
        people.waiting(person, None, None),
        people.agents(person),
        people.decisions(person, blocked, newest),
        people.catalog(),
    )?;
    // A refusal has its call in its own row.
    let refused = LogRow::of(refused.items, &Calls::default(), &agents);
    let agents = several(agents, |agent| {
        let people = Arc::clone(people);
        async move {
            let (services, rules) = tokio::try_join!(people.services(&agent), people.rules(&agent))?;
            Ok(AgentSpend { agent, services, rules })
        }
    });
    let layout = Layout {
        waiting: Some(waiting.count()),
        ..layout
    };
    let overview = Overview {
        waiting,
        agents: agents.await?,
        refused,
        catalog: &edition.catalog,
    };
    Ok(overview_page(&layout, &overview).into_response())
}

pub(crate) fn overview_page(layout: &Layout, overview: &Overview<'_>) -> Markup {
    let none = overview.agents.is_empty();
    layout.page(
        "Overview",
        Here::Overview,
        &html! {
            h1 { "Overview" }
            @if none { (first_agent(layout)) } @else {
                section aria-labelledby="waiting-title" {
                    h2 id="waiting-title" { "Waiting for you" }
                    (approvals::live(layout, &overview.waiting, View::default(), overview.catalog))
                }
                section aria-labelledby="spend-title" {
                    div.section-head {
                        h2 id="spend-title" { "Agents " span.muted { "spend of the last 24 hours" } }
                        (new_agent(layout))
                    }
                    ul.cards.two { @for agent in &overview.agents { (agent_card(agent, overview.catalog)) } }
                }
                section aria-labelledby="refused-title" {
                    div.section-head {
                        h2 id="refused-title" { "Refused lately" }
                        a href="/dashboard/decisions" { "All decisions" }
                    }
                    @if overview.refused.is_empty() {
                        p.empty { "No payment was refused." }
                    } @else {
                        (decisions::rows(layout, &overview.refused, overview.catalog))
                    }
                }
            }
        },
    )
}

fn first_agent(layout: &Layout) -> Markup {
    html! {
        section.card.first aria-labelledby="first-title" {
            h2 id="first-title" { "Create your first agent" }
            p {
                "An agent has a wallet of its own, a key to ask for payments with, and limits that you set. Nothing is paid "
                "that they do not allow."
            }
            (new_agent_form(layout))
        }
    }
}

fn new_agent(layout: &Layout) -> Markup {
    html! {
        details.pop open[layout.inputs(FormName::NewAgent).is_typed()] {
            summary.button { "New agent" }
            div.pop-body { (new_agent_form(layout)) }
        }
    }
}

fn new_agent_form(layout: &Layout) -> Markup {
    layout.form(
        "/dashboard/agents",
        &html! {
            (layout.inputs(FormName::NewAgent).line("name", "Name of the agent", "", AgentName::MAX))
            button.primary type="submit" { "Create agent" }
        },
    )
}

fn agent_card(spend: &AgentSpend, catalog: &Catalog) -> Markup {
    let agent = spend.agent.agent();
    let total = spend.services.iter().map(|service| service.spent_today);
    let total = total.fold(Amount::ZERO, |total, spent| total.plus(spent).unwrap_or(Amount::MAX));
    let enabled: Vec<&GovernedService> = spend.services.iter().filter(|service| service.record.enabled).collect();
    let cap_of = |service: &GovernedService| service.record.policy.max_per_day;
    // Only services with spend or with a limit get a bar.
    let (mut shown, rest): (Vec<&GovernedService>, Vec<&GovernedService>) = spend
        .services
        .iter()
        .filter(|service| service.record.enabled || !service.spent_today.is_zero())
        .partition(|service| !service.spent_today.is_zero() || !is_no_limit(cap_of(service)));
    shown.sort_by_key(|service| std::cmp::Reverse(service.spent_today));
    html! {
        li.card.agent {
            div.headline {
                h3 {
                    (labels::agent(agent.id, &agent.name))
                    @if agent.status == AgentStatus::Frozen { " " (labels::status(agent.status)) }
                }
                p.total { (money(total)) }
            }
            ul.spend {
                @for rule in &spend.rules {
                    @if let (RuleKind::BudgetLimit { limit, window }, Some(used)) = (&rule.rule.kind, rule.used) {
                        li {
                            div.spend-line {
                                span { "All services, any " (length(*window)) }
                                span.figures { (money(used)) " of " (money(*limit)) }
                            }
                            (bar(used, Amount::ZERO, *limit))
                        }
                    }
                }
                @for service in shown {
                    li {
                        div.spend-line {
                            span {
                                (labels::service(service.record.service, catalog))
                                @if !service.record.enabled { span.muted { " disabled" } }
                            }
                            span.figures { (money(service.spent_today)) " of " (cap(cap_of(service))) }
                        }
                        (bar(service.spent_today, Amount::ZERO, cap_of(service)))
                    }
                }
            }
            @if !rest.is_empty() {
                p.warning-line {
                    span.nolimit { "no limit" }
                    " on " (counted(rest.len(), "more service")) ", nothing spent · "
                    a href=(format!("{}#services", paths::agent(agent.id))) { "Set limits" }
                }
            }
            @if enabled.is_empty() { p.empty { "No service is enabled." } }
        }
    }
}
