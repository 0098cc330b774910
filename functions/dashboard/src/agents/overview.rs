//! The overview page: pending approvals, spending in the last 24 hours, and denied payments.

use crate::agents::listing::AgentFilter;
use crate::agents::operations::NewAgentLimits;
use crate::agents::owned::{OwnedAgent, require_id};
use crate::agents::spend::AgentSpend;
use crate::approvals;
use crate::approvals::operations::Waiting;
use crate::approvals::queue::View;
use crate::caller::Caller;
use crate::journal;
use crate::journal::filter::{HistoryFilter, HistoryList};
use crate::redirect::see_other;
use crate::services::operations::GovernedService;
use crate::sessions::session::{PageSession, VerifiedForm};
use crate::several::run_concurrently;
use crate::state::{People, PeopleState};
use crate::ui::bar::usage_bar;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::FormName;
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem};
use crate::ui::money::{amount_text, cap_text, is_no_limit, used_amount};
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use crate::ui::phrases::period_phrase;
use crate::usage;
use crate::usage::spending::Spending;
use axum::{
    extract::Path,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{CallerIds, Reply};
use purser_domain::{
    Agent, AgentId, AgentName, AgentStatus, Amount, Catalog, DecisionResult, HistoryEntry, OwnershipOffer, Result,
    RuleKind, RuleScope, Spend, StartingLimits, Timestamp, escape_hidden_characters,
};
use purser_store::{AgentOrder, PageRequest};
use std::sync::Arc;

/// The pending approvals on the overview.
const PENDING: View = View {
    agent: None,
    older: None,
    before: None,
    is_brief: true,
};

#[derive(Debug)]
pub(crate) struct Overview<'a> {
    pub(crate) waiting: Waiting,
    /// Empty if the user has too many agents for the overview.
    pub(crate) agents: Vec<AgentSpend>,
    pub(crate) has_any: bool,
    /// `None` if the spending can't be read. The rest of the page is still shown.
    pub(crate) spending: Option<Spending>,
    /// The ownership transfers that operators offer to the user.
    pub(crate) offers: Vec<(OwnershipOffer, Agent)>,
    /// The latest denied payments, newest first; `None` if they can't be read.
    pub(crate) refused: Option<Vec<HistoryEntry>>,
    /// The time up to which the sums and the denied payments are complete; `None` if they are up to date.
    pub(crate) complete_until: Option<Timestamp>,
    pub(crate) catalog: &'a Catalog,
}

pub(crate) async fn show_overview_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    Ok(overview_response(&people, &session, layout).await?)
}

/// Redirects a `GET` of a path that accepts only `POST`.
pub(crate) async fn redirect_to_overview() -> Response {
    see_other("/dashboard")
}

/// The form value that selects the user's default policy template.
const BY_TEMPLATE: &str = "template";

pub(crate) async fn submit_new_agent(people: PeopleState, caller: CallerIds, verified_form: VerifiedForm) -> Reply {
    let mut form = verified_form.parse_posted_form(FormName::NewAgent);
    let limits = if form.field_text("limits") == BY_TEMPLATE {
        let default = people.read_default_template(&verified_form.session.person).await?;
        if default.is_none() {
            form.add_error("limits", "Limits: you have no default policy template.");
        }
        default.map(|template| NewAgentLimits::Template(template.name))
    } else {
        form.parse_starting_limits().map(NewAgentLimits::Starting)
    };
    let Some((name, limits)) = form.parse_agent_name().zip(limits) else {
        let layout = Layout::new(&verified_form.session, people.now()).with_form(form);
        let page = overview_response(&people, &verified_form.session, layout).await?;
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    };
    let owned = people
        .create_agent(&verified_form.session.person, &name, limits, caller)
        .await?;
    Ok(redirect_with_notice(
        &paths::agent_path(owned.agent().id),
        PageMessage::AgentCreated,
    ))
}

pub(crate) async fn submit_ownership_offer_acceptance(
    people: PeopleState,
    Path(agent): Path<String>,
    form: VerifiedForm,
) -> Reply {
    let id = require_id(AgentId::parse(&agent))?;
    let owned = people.accept_ownership_offer(&form.session.person, id).await?;
    Ok(redirect_with_notice(
        &paths::agent_path(owned.agent().id),
        PageMessage::AgentAccepted,
    ))
}

async fn overview_response(people: &Arc<People>, session: &PageSession, layout: Layout) -> Result<Response> {
    /// The number of denied payments on the overview.
    const REFUSED: u32 = 5;
    let user = &session.person;
    let blocked = HistoryFilter {
        result: Some(DecisionResult::Block),
        ..HistoryFilter::default()
    };
    let newest = PageRequest {
        before: None,
        limit: REFUSED,
    };
    let (waiting, offers, edition) = tokio::try_join!(
        people.read_waiting_approvals(user, None, None, PENDING.max_approvals()),
        people.list_handovers(user),
        people.current_catalog(),
    )?;
    let spending = people.read_spending(user).await;
    if let Err(error) = &spending {
        tracing::warn!(cause = %error, "usage.not_read");
    }
    let spending = spending.ok();
    let (agents, has_any) = load_overview_agents(people, user).await?;
    // Services, rules and freezes are read only for the agents on the page.
    let (refused, freezes, complete_until) = tokio::join!(
        people.read_history_page(user, HistoryList::Decisions, &blocked, newest),
        people.read_freezes_by_agent(agents.iter().map(OwnedAgent::agent)),
        people.read_history_completeness_time(),
    );
    if let Err(error) = &refused {
        tracing::warn!(cause = %error, "journal.not_read");
    }
    let freezes = freezes?;
    let agents = run_concurrently(agents, |agent| {
        let people = Arc::clone(people);
        let freeze = freezes.get(&agent.agent().id).cloned();
        async move {
            let (services, rules) = tokio::try_join!(people.list_services(&agent), people.list_rules(&agent))?;
            Ok(AgentSpend {
                agent,
                freeze,
                services,
                rules,
            })
        }
    });
    let layout = Layout {
        waiting: Some(waiting.count),
        ..layout
    };
    let overview = Overview {
        waiting,
        agents: agents.await?,
        has_any,
        spending,
        offers,
        refused: refused.ok().map(|page| page.items),
        complete_until,
        catalog: &edition.catalog,
    };
    Ok(overview_page(&layout, &overview).into_response())
}

/// Returns the user's agents, and whether the user has any. The list is empty above `FEW` agents, to save reads.
async fn load_overview_agents(people: &People, user: &Caller) -> Result<(Vec<OwnedAgent>, bool)> {
    const FEW: usize = 3;
    let newest_first = AgentOrder::NewestFirst;
    let page = people
        .list_agents(user, &AgentFilter::default(), newest_first, None, 4)
        .await?;
    let has_any = !page.items.is_empty();
    if page.items.len() > FEW || page.next.is_some() {
        return Ok((Vec::new(), has_any));
    }
    Ok((page.items, has_any))
}

pub(crate) fn overview_page(layout: &Layout, overview: &Overview<'_>) -> Markup {
    let none = !overview.has_any;
    layout.html_page(
        "Overview",
        NavItem::Overview,
        &html! {
            h1 { "Overview" }
            @if !overview.offers.is_empty() { (ownership_offers_section(layout, &overview.offers)) }
            @if none { (first_agent_section(layout)) } @else {
                (journal::page::incomplete_data_warning(overview.complete_until))
                (usage::section::spending_section(overview.spending.as_ref(), &overview.agents, overview.catalog))
                section aria-labelledby="waiting-title" {
                    h2 id="waiting-title" { "Waiting for you" }
                    (approvals::page::self_updating_approval_list(layout, &overview.waiting, PENDING, overview.catalog))
                }
                section aria-labelledby="spend-title" {
                    div.section-head {
                        h2 id="spend-title" {
                            "Agents" @if !overview.agents.is_empty() { " " span.muted { "spend of the last 24 hours" } }
                        }
                        a href="/dashboard/agents" { "All agents" }
                        (new_agent_section(layout))
                    }
                    ul.cards.two { @for agent in &overview.agents { (agent_card(layout, agent, overview.catalog)) } }
                }
                section aria-labelledby="refused-title" {
                    div.section-head {
                        h2 id="refused-title" { "Refused lately" }
                        a href="/dashboard/decisions?result=block" { "All refusals" }
                    }
                    @match overview.refused.as_deref() {
                        None => p.empty { "The refused payments can’t be shown at the moment." },
                        Some([]) => p.empty { "No payment was refused." },
                        Some(refused) => (journal::row::decisions_table(layout, "Refused payments, newest first", refused, overview.catalog)),
                    }
                }
            }
        },
    )
}

fn ownership_offers_section(layout: &Layout, offers: &[(OwnershipOffer, Agent)]) -> Markup {
    html! {
        section aria-labelledby="offers-title" {
            h2 id="offers-title" { "Offered to you" }
            p { "An operator offers you these agents. When you accept an agent, you own it and decide its approvals. Its keys work until you revoke them." }
            ul.rows {
                @for (offer, agent) in offers {
                    li.row {
                        div.row-main {
                            p { strong { (escape_hidden_characters(&agent.name)) } " " code.long { (agent.id) } }
                            p.muted { q { (escape_hidden_characters(offer.reason.as_str())) } " · until " (relative_and_exact_time(offer.ends_at, layout.now)) }
                        }
                        div.row-actions {
                            (layout.button_form(
                                &format!("/dashboard/handovers/{}/accept", agent.id),
                                &Button { class: "primary", ..Button::plain("Accept") },
                            ))
                        }
                    }
                }
            }
        }
    }
}

fn first_agent_section(layout: &Layout) -> Markup {
    html! {
        section.card.first aria-labelledby="first-title" {
            h2 id="first-title" { "Create your first agent" }
            p {
                "An agent has its own wallet, keys to request payments, and limits that you set. Nothing is paid "
                "outside these limits."
            }
            (new_agent_form(layout))
        }
    }
}

fn new_agent_section(layout: &Layout) -> Markup {
    html! {
        details.pop open[layout.form_inputs(FormName::NewAgent).has_posted_form()] {
            summary.button { "New agent" }
            div.pop-body { (new_agent_form(layout)) }
        }
    }
}

fn new_agent_form(layout: &Layout) -> Markup {
    let inputs = layout.form_inputs(FormName::NewAgent);
    layout.post_form(
        "/dashboard/agents",
        &html! {
            (inputs.required_text_input("name", "Name of the agent", "", AgentName::MAX))
            (inputs.radio_buttons("limits", "Limits", &[
                (StartingLimits::Safe.name(), "Safe: $1 a call, $20 a day, and it asks before it pays anyone new"),
                (BY_TEMPLATE, "Those of your default policy template, which it then follows"),
                (StartingLimits::Unlimited.name(), "None: it can spend its whole balance without asking"),
            ], StartingLimits::Safe.name()))
            p.hint { "You can change them for each service, and add rules." }
            button.primary type="submit" { "Create agent" }
        },
    )
}

fn agent_card(layout: &Layout, spend: &AgentSpend, catalog: &Catalog) -> Markup {
    let agent = spend.agent.agent();
    let total = spend.services.iter().map(|service| service.spent_today);
    let total = total.fold(Spend::NONE, Spend::plus);
    let enabled: Vec<&GovernedService> = spend.services.iter().filter(|service| service.record.enabled).collect();
    let cap_of = |service: &GovernedService| service.caps.per_day;
    // A service without spending and without a limit has no bar.
    let (mut page, rest): (Vec<&GovernedService>, Vec<&GovernedService>) = spend
        .services
        .iter()
        .filter(|service| service.record.enabled || !service.spent_today.amount.is_zero())
        .partition(|service| !service.spent_today.amount.is_zero() || !is_no_limit(cap_of(service)));
    page.sort_by_key(|service| std::cmp::Reverse(service.spent_today.amount));
    html! {
        li.card.agent {
            div.headline {
                h3 {
                    (labels::agent_link(agent.id, &agent.name))
                    @if agent.status == AgentStatus::Frozen { " " (labels::status_chip(agent.status)) }
                }
                p.total { (used_amount(total)) }
            }
            @if let Some(freeze) = &spend.freeze { (labels::operator_freeze_message(layout.now, freeze)) }
            ul.spend {
                @for rule in &spend.rules {
                    @if let (RuleKind::BudgetLimit(budget), Some(used)) = (&rule.rule.kind, rule.used) {
                        li {
                            div.spend-line {
                                span { @if rule.rule.kind.scope() == RuleScope::default() { "All services, " } @else { "Some payments, " } (period_phrase(budget.window.period)) }
                                span.figures { (used_amount(used)) " of " (amount_text(budget.limit)) }
                            }
                            (usage_bar(used.amount, Amount::ZERO, budget.limit))
                        }
                    }
                }
                @for service in page {
                    li {
                        div.spend-line {
                            span {
                                (labels::service_name(service.record.service, catalog))
                                @if !service.record.enabled { span.muted { " disabled" } }
                            }
                            span.figures { (used_amount(service.spent_today)) " of " (cap_text(cap_of(service))) }
                        }
                        (usage_bar(service.spent_today.amount, Amount::ZERO, cap_of(service)))
                    }
                }
            }
            @if !rest.is_empty() {
                p.warning-line {
                    span.nolimit { "no limit" }
                    " on " (count_with_noun(rest.len(), "more service")) ", nothing spent · "
                    a href=(format!("{}#services", paths::agent_path(agent.id))) { "Set limits" }
                }
            }
            @if enabled.is_empty() { p.empty { "No service is enabled." } }
        }
    }
}
