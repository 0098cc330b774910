//! The decision log: every allow, block and escalation with its checks, and every confirmation that was taken back.

use super::call;
use super::datetime::{exact, relative};
use super::labels;
use super::layout::{Here, Layout};
use super::money::money;
use super::paths;
use super::phrases;
use crate::ops::decisions::{Calls, DecisionFilter, DecisionResult};
use crate::ops::owned::Owned;
use crate::page::Slice;
use crate::session::PageSession;
use crate::state::Dashboard;
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{
    AgentId, Amount, CallDescription, Catalog, Check, LoggedDecision, OperationSlug, ServiceId, SettlementId,
    SettlementState, Timestamp, TransactionId,
};
use std::sync::Arc;
use url::form_urlencoded;
use uuid::Uuid;

/// One decision with the name of its agent.
#[derive(Clone, Debug)]
pub(crate) struct LogRow {
    pub(crate) decision: LoggedDecision,
    pub(crate) agent: String,
    /// What it was about.
    pub(crate) call: Option<CallDescription>,
}

impl LogRow {
    /// The decisions, with their agents' names. An agent that was created just now may not be listed yet.
    pub(super) fn of(decisions: Vec<LoggedDecision>, calls: &Calls, agents: &[Owned]) -> Vec<Self> {
        let name = |id| {
            agents
                .iter()
                .map(Owned::agent)
                .find(|agent| agent.id == id)
                .map(|agent| agent.name.clone())
        };
        let row = |decision: LoggedDecision| {
            let id = common(&decision).agent;
            Self {
                agent: name(id).unwrap_or_else(|| id.to_string()),
                call: calls.of(&decision).cloned(),
                decision,
            }
        };
        decisions.into_iter().map(row).collect()
    }
}

const fn label(result: DecisionResult) -> &'static str {
    match result {
        DecisionResult::Allow => "Allowed",
        DecisionResult::Block => "Blocked",
        DecisionResult::Escalate => "Sent to a person",
        DecisionResult::TakeBack => "Taken back",
    }
}

/// One page of the log.
#[derive(Debug)]
pub(crate) struct DecisionLog<'a> {
    pub(crate) filter: DecisionFilter,
    /// Every agent that can be chosen.
    pub(crate) agents: &'a [Owned],
    pub(crate) rows: Vec<LogRow>,
    /// Whether this is not the first page.
    pub(crate) is_continued: bool,
    /// Where the next page begins.
    pub(crate) older: Option<Uuid>,
    pub(crate) catalog: &'a Catalog,
}

/// `GET /dashboard/decisions`.
pub(super) async fn show(State(dashboard): State<Arc<Dashboard>>, session: PageSession, uri: Uri) -> Reply {
    /// How many rows a page has.
    const ROWS: u32 = 25;
    let mut query = Query::of(&uri);
    let asked = read(&mut query);
    let (filter, before) = asked.unwrap_or_default();
    let person = &session.person;
    let (agents, page, edition) = tokio::try_join!(
        dashboard.agents(person),
        dashboard.decisions(person, filter, Slice { before, limit: ROWS }),
        dashboard.catalog(),
    )?;
    let calls = dashboard.calls(&page.items).await?;
    let layout = Layout {
        problem: asked
            .is_none()
            .then(|| "These filters were not understood, so everything is shown.".to_owned()),
        ..Layout::of(&session, dashboard.now())
    };
    let log = DecisionLog {
        filter,
        rows: LogRow::of(page.items, &calls, &agents),
        agents: &agents,
        is_continued: before.is_some(),
        older: page.next,
        catalog: &edition.catalog,
    };
    let status = if asked.is_none() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    Ok((status, decisions_page(&layout, &log)).into_response())
}

/// The filter and the place that an address asks for; `None` where it is not understood. What a form leaves empty is no
/// filter.
fn read(query: &mut Query) -> Option<(DecisionFilter, Option<Uuid>)> {
    let [agent, result, service, cursor] =
        ["agent_id", "result", "service_id", "cursor"].map(|name| query.text(name).filter(|text| !text.is_empty()));
    let filter = DecisionFilter {
        agent: agent.map(|text| AgentId::parse(&text).ok_or(())).transpose().ok()?,
        result: result
            .map(|text| DecisionResult::from_name(&text).ok_or(()))
            .transpose()
            .ok()?,
        service: service.map(|text| ServiceId::parse(&text).ok_or(())).transpose().ok()?,
    };
    let cursor = cursor.map(|text| Uuid::try_parse(&text)).transpose().ok()?;
    Some((filter, cursor))
}

pub(crate) fn decisions_page(layout: &Layout, log: &DecisionLog<'_>) -> Markup {
    layout.page(
        "Decisions",
        Here::Decisions,
        &html! {
            h1 { "Decisions" }
            (filters(log))
            @if log.rows.is_empty() {
                p.empty { @if log.filter == DecisionFilter::default() { "Nothing was decided yet." } @else { "Nothing fits these filters." } }
            } @else {
                (rows(layout, &log.rows, log.catalog))
            }
            @if log.is_continued || log.older.is_some() {
                nav.paging aria-label="Pages" {
                    @if log.is_continued { a.button href=(address(log.filter, None)) { "Newest" } }
                    @if let Some(older) = log.older { a.button href=(address(log.filter, Some(older))) rel="next" { "Older" } }
                }
            }
        },
    )
}

/// The address of the log, narrowed down and from a place on.
pub(super) fn address(filter: DecisionFilter, cursor: Option<Uuid>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(agent) = filter.agent {
        query.append_pair("agent_id", &agent.to_string());
    }
    if let Some(result) = filter.result {
        query.append_pair("result", result.name());
    }
    if let Some(service) = filter.service {
        query.append_pair("service_id", &service.to_string());
    }
    if let Some(cursor) = cursor {
        query.append_pair("cursor", &cursor.to_string());
    }
    let query = query.finish();
    if query.is_empty() {
        "/dashboard/decisions".to_owned()
    } else {
        format!("/dashboard/decisions?{query}")
    }
}

fn filters(log: &DecisionLog<'_>) -> Markup {
    let filter = log.filter;
    html! {
        form.filters method="get" action="/dashboard/decisions" role="search" {
            div.field {
                label for="filter-agent" { "Agent" }
                select id="filter-agent" name="agent_id" {
                    option value="" { "All agents" }
                    @for agent in log.agents.iter().map(Owned::agent) { option value=(agent.id) selected[filter.agent == Some(agent.id)] { (agent.name) } }
                }
            }
            div.field {
                label for="filter-result" { "Result" }
                select id="filter-result" name="result" {
                    option value="" { "All results" }
                    @for result in DecisionResult::ALL {
                        option value=(result.name()) selected[filter.result == Some(result)] { (label(result)) }
                    }
                }
            }
            div.field {
                label for="filter-service" { "Service" }
                select id="filter-service" name="service_id" {
                    option value="" { "All services" }
                    @for service in log.catalog.services() {
                        option value=(service.id) selected[filter.service == Some(service.id)] { (service.name) }
                    }
                }
            }
            button type="submit" { "Show" }
            @if filter != DecisionFilter::default() { a href="/dashboard/decisions" { "Clear" } }
        }
    }
}

/// Decisions, each of which unfolds.
pub(super) fn rows(layout: &Layout, rows: &[LogRow], catalog: &Catalog) -> Markup {
    html! { ul.rows.log { @for row in rows { (log_row(layout, row, catalog)) } } }
}

/// What every decision has.
struct Common<'a> {
    agent: AgentId,
    at: Timestamp,
    transaction: TransactionId,
    service: ServiceId,
    operation: Option<&'a OperationSlug>,
    amount: Amount,
    pay_to: purser_domain::Address,
    checks: &'a [Check],
    policy_version: Option<u64>,
}

fn common(decision: &LoggedDecision) -> Common<'_> {
    match decision {
        LoggedDecision::Allowed(settlement) => {
            let terms = &settlement.terms;
            Common {
                agent: terms.agent,
                at: terms.authorized_at,
                transaction: terms.transaction,
                service: terms.service,
                operation: Some(&terms.operation),
                amount: terms.amount,
                pay_to: terms.pay_to,
                checks: &terms.checks,
                policy_version: Some(terms.policy_version),
            }
        }
        LoggedDecision::Refused(refusal) => Common {
            agent: refusal.agent,
            at: refusal.at,
            transaction: refusal.transaction,
            service: refusal.service,
            operation: refusal.operation.as_ref(),
            amount: refusal.amount,
            pay_to: refusal.pay_to,
            checks: &refusal.checks,
            policy_version: refusal.policy_version,
        },
        LoggedDecision::TakenBack(taken_back) => Common {
            agent: taken_back.agent,
            at: taken_back.at,
            transaction: taken_back.transaction,
            service: taken_back.service,
            operation: taken_back.operation.as_ref(),
            amount: taken_back.amount,
            pay_to: taken_back.pay_to,
            checks: &[],
            policy_version: Some(taken_back.policy_version),
        },
    }
}

fn log_row(layout: &Layout, row: &LogRow, catalog: &Catalog) -> Markup {
    let facts = common(&row.decision);
    html! {
        li.row {
            details {
                summary {
                    span.log-when { (relative(facts.at, layout.now)) }
                    span.log-chip { (chip(&row.decision)) }
                    span.log-who {
                        span.name { (row.agent) } " → " (labels::service(facts.service, catalog))
                    }
                    span.log-why { (told(&row.decision)) }
                    span.log-amount { (money(facts.amount)) }
                }
                div.unfolded {
                    dl.facts-list {
                        div { dt { "When" } dd { (exact(facts.at)) } }
                        div { dt { "Agent" } dd { (labels::agent(facts.agent, &row.agent)) } }
                        div { dt { "Operation" } dd { (labels::operation(catalog.by_id(facts.service), facts.operation)) } }
                        div { dt { "Pays to" } dd { (labels::wallet(facts.pay_to)) } }
                        div { dt { "Decision" } dd { code.long { (facts.transaction) } } }
                        @if let Some(version) = facts.policy_version { div { dt { "Policy" } dd { "version " (version) } } }
                        (more(&row.decision))
                    }
                    @if let Some(described) = &row.call { (call::described(described, facts.amount)) }
                    @if let LoggedDecision::Allowed(_) | LoggedDecision::Refused(_) = row.decision { (phrases::checks(facts.checks)) }
                }
            }
        }
    }
}

fn more(decision: &LoggedDecision) -> Markup {
    match decision {
        LoggedDecision::Allowed(settlement) => receipt(settlement.terms.agent, settlement.id()),
        LoggedDecision::TakenBack(taken_back) => html! {
            div { dt { "Transaction" } dd { code.long { (taken_back.tx_hash) } } }
            (receipt(taken_back.agent, taken_back.settlement))
        },
        LoggedDecision::Refused(refusal) => html! {
            div { dt { "Took" } dd { (refusal.latency_ms) " ms" } }
            @if refusal.approval.is_some() {
                div { dt { "Approval" } dd { a href="/dashboard/approvals" { "See approvals" } } }
            }
        },
    }
}

fn receipt(agent: AgentId, settlement: SettlementId) -> Markup {
    html! { div { dt { "Receipt" } dd { a href=(paths::receipt(agent, settlement)) { "Show the receipt" } } } }
}

fn chip(decision: &LoggedDecision) -> Markup {
    match decision {
        LoggedDecision::Allowed(_) => html! { span.chip.good { "allowed" } },
        LoggedDecision::Refused(refusal) if refusal.result == "escalate" => html! { span.chip.wait { "asked" } },
        LoggedDecision::Refused(_) => html! { span.chip.bad { "blocked" } },
        LoggedDecision::TakenBack(_) => html! { span.chip.wait { "taken back" } },
    }
}

fn told(decision: &LoggedDecision) -> Markup {
    match decision {
        LoggedDecision::Allowed(settlement) => match settlement.state {
            SettlementState::Authorized => html! { "Payment authorized; not yet seen on chain." },
            SettlementState::Confirmed { .. } => html! { "Paid and confirmed on chain." },
            SettlementState::Expired => html! { "Never paid; the amount was given back." },
        },
        LoggedDecision::Refused(refusal) => phrases::why(refusal),
        LoggedDecision::TakenBack(_) => {
            html! { "Its confirmation vanished from the chain and was taken back; the receipt tells where it stands now." }
        }
    }
}
