//! `/dashboard/agents`, which shows the user's agents in a table with search, filters, sorting, pages and bulk
//! operations.
//!
//! The index lists the agents' positions, and the records of the page's rows are read by id. A search or a filter reads
//! up to 100 records, and the link below the table continues with the next 100. Only the records contain names, so the
//! table is sorted by name only if 100 reads suffice for all agents.

use crate::agents::listing::{AgentFilter, MAX_READ};
use crate::agents::outcome::BulkOutcome;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::cursor;
use crate::sessions::session::PageSession;
use crate::state::People;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::relative;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{
    Column, ListPage, columns, filter_problem, filter_select, filters, nothing_shown, page_number, page_text, paging,
    search_field,
};
use crate::ui::paths;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Agent, AgentId, AgentStatus, LabelFilter, OperatorFreeze, Result, visible};
use purser_store::{AgentOrder, AgentPlace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The page's path.
pub(crate) const PATH: &str = "/dashboard/agents";
/// The path of the "Freeze all" page.
pub(crate) const FREEZE_ALL: &str = "/dashboard/freeze-all";
/// The maximum number of rows on a page.
const ROWS: u32 = 25;

/// The table's sort order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Newest,
    Oldest,
    Name,
}

impl Order {
    const ALL: [Self; 3] = [Self::Newest, Self::Oldest, Self::Name];

    const fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Name => "name",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Newest => "Newest first",
            Self::Oldest => "Oldest first",
            Self::Name => "Name",
        }
    }

    fn from_name(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == text)
    }
}

/// The filter, sort order and page in the URL. The default is all agents, newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetView {
    filter: AgentFilter,
    order: Order,
    /// The position at which the page begins; `None` for the first page.
    from: Option<AgentPlace>,
    /// The page number, used only if the agents are sorted by name.
    page: usize,
}

impl FleetView {
    /// Reads the view from a query string. The query collects the validation errors of invalid filters.
    pub(crate) fn from_query(query: &mut Query) -> Self {
        Self {
            filter: AgentFilter::from_query(query),
            order: query.read("sort", Order::from_name, "is unknown").unwrap_or_default(),
            from: query.read("cursor", cursor::read_agent, cursor::FORM),
            page: page_number(query),
        }
    }

    /// The view's query parameters.
    fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        let filter = &self.filter;
        let is_set = |text: &String| !text.is_empty();
        vec![
            ("q", Some(filter.text.clone()).filter(is_set)),
            ("label", filter.label.as_ref().map(ToString::to_string)),
            ("status", filter.status.map(|status| status.name().to_owned())),
            ("archived", filter.archived.then(|| "true".to_owned())),
            (
                "sort",
                (self.order != Order::default()).then(|| self.order.name().to_owned()),
            ),
            ("cursor", self.cursor()),
            ("page", page_text(self.page)),
        ]
    }

    /// Returns the URL of `path` with this view's parameters.
    pub(crate) fn address(&self, path: &str) -> String {
        crate::address::address(path, self.parameters())
    }

    /// Returns a view that begins at this position and has only this view's label as its filter.
    pub(crate) fn rest(&self, place: AgentPlace) -> Self {
        let all = self.label().cloned().map(Self::of_label).unwrap_or_default();
        Self {
            from: Some(place),
            ..all
        }
    }

    /// Returns the view of the agents with this label.
    pub(crate) fn of_label(label: LabelFilter) -> Self {
        let filter = AgentFilter {
            label: Some(label),
            ..AgentFilter::default()
        };
        Self {
            filter,
            ..Self::default()
        }
    }

    /// The label by which the view is filtered.
    pub(crate) const fn label(&self) -> Option<&LabelFilter> {
        self.filter.label.as_ref()
    }

    pub(crate) const fn from(&self) -> Option<AgentPlace> {
        self.from
    }

    /// The position at which the view begins, as a cursor in text form.
    pub(crate) fn cursor(&self) -> Option<String> {
        self.from.map(cursor::write_agent)
    }

    fn first(&self) -> Self {
        Self {
            from: None,
            page: 0,
            ..self.clone()
        }
    }

    fn is_filtered(&self) -> bool {
        self.filter != AgentFilter::default() || self.order != Order::default()
    }
}

/// One page of the table.
pub(crate) struct Fleet {
    view: FleetView,
    rows: Vec<OwnedAgent>,
    /// The operators' freezes of the agents in `rows`.
    freezes: BTreeMap<AgentId, OperatorFreeze>,
    next: Next,
}

/// The pagination of the table.
enum Next {
    /// The position at which the next page begins; `None` on the last page.
    At(Option<AgentPlace>),
    /// Numbered pages, because the agents are sorted by name.
    Pages(ListPage<()>),
    /// The position at which the next page begins. The newest agents are first, because there are too many agents to
    /// sort by name.
    TooMany(Option<AgentPlace>),
}

impl Fleet {
    /// Reads the page that the view selects.
    pub(crate) async fn read(people: &People, person: &Caller, view: FleetView) -> Result<Self> {
        let list = async |order, from, limit| people.list_agents(person, &view.filter, order, from, limit).await;
        let (rows, next) = match view.order {
            Order::Oldest => {
                let page = list(AgentOrder::OldestFirst, view.from, ROWS).await?;
                (page.items, Next::At(page.next))
            }
            Order::Newest => {
                let page = list(AgentOrder::NewestFirst, view.from, ROWS).await?;
                (page.items, Next::At(page.next))
            }
            Order::Name => {
                let mut all = list(AgentOrder::NewestFirst, view.from, MAX_READ).await?;
                if view.from.is_none() && all.next.is_none() {
                    all.items
                        .sort_by_cached_key(|owned| (owned.agent().name.to_lowercase(), owned.agent().id));
                    let mut page = ListPage::new(all.items, view.page);
                    let rows = std::mem::take(&mut page.rows);
                    (rows, Next::Pages(page.with(Vec::new())))
                } else {
                    let page = list(AgentOrder::NewestFirst, view.from, ROWS).await?;
                    (page.items, Next::TooMany(page.next))
                }
            }
        };
        let freezes = people.freezes_of(rows.iter().map(OwnedAgent::agent)).await?;
        Ok(Self {
            view,
            rows,
            freezes,
            next,
        })
    }
}

/// Handles `GET /dashboard/agents`.
pub(crate) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    let mut query = Query::without_blanks(&uri);
    let (view, report) = (FleetView::from_query(&mut query), Report::from_query(&mut query));
    let layout = Layout {
        problem: filter_problem(query),
        ..layout
    };
    let fleet = if layout.problem.is_none() {
        Some(Fleet::read(&people, &session.person, view.clone()).await?)
    } else {
        None
    };
    Ok(page(&layout, &view, fleet.as_ref(), report.as_ref()))
}

/// Renders the page with the report of a bulk operation. If a filter is invalid, the page has no rows and the status is
/// 400.
pub(crate) fn page(layout: &Layout, view: &FleetView, fleet: Option<&Fleet>, report: Option<&Report>) -> Response {
    let status = if layout.problem.is_none() {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    };
    let page = layout.page(
        "Agents",
        NavItem::Agents,
        &html! {
            h1 { "Agents" }
            p { a href=(paths::TEMPLATES) { "Policy templates" } }
            @if let Some(report) = report { (report.message(layout, view)) }
            (fleet_filters(view, layout.problem.is_some()))
            @match fleet {
                Some(fleet) => (section(layout, fleet)),
                None => (nothing_shown()),
            }
        },
    );
    (status, page).into_response()
}

fn fleet_filters(view: &FleetView, open: bool) -> Markup {
    let filter = &view.filter;
    let states = [AgentStatus::Active, AgentStatus::Frozen].into_iter();
    let states = states.map(|status| {
        let name = status.name();
        (name.to_owned(), html! { (name) }, filter.status == Some(status))
    });
    let fields = html! {
        (search_field("agents", "Name or ID", &filter.text))
        (label_field(filter.label.as_ref()))
        (filter_select("status", "status", "State", "All states", states))
        div.field {
            label for="filter-sort" { "Order" }
            select id="filter-sort" name="sort" {
                @for order in Order::ALL { option value=(order.name()) selected[order == view.order] { (order.label()) } }
            }
        }
        label.check { input type="checkbox" name="archived" value="true" checked[filter.archived]; " Archived" }
    };
    filters(PATH, open, view.is_filtered().then_some(PATH), &fields)
}

/// Renders the text field of the label filter.
pub(crate) fn label_field(label: Option<&LabelFilter>) -> Markup {
    html! {
        div.field {
            label for="filter-label" { "Label" }
            input id="filter-label" type="text" name="label" value=[label] maxlength="91"
                placeholder="team=search" autocomplete="off" spellcheck="false";
        }
    }
}

/// Renders the table, the form around the table, and the links to other pages.
pub(crate) fn section(layout: &Layout, fleet: &Fleet) -> Markup {
    let view = &fleet.view;
    html! {
        @if matches!(fleet.next, Next::TooMany(_)) {
            p.hint { "Sorting by name is available for up to " (MAX_READ) " agents. The newest are first: search by name, or filter by label." }
        }
        @if fleet.rows.is_empty() {
            p.empty {
                @if matches!(fleet.next, Next::At(Some(_)) | Next::TooMany(Some(_))) {
                    "None of the " (MAX_READ) " agents that were searched fits."
                } @else if view.is_filtered() || view.from.is_some() { "No agent fits." }
                @else { "You have no agent yet." }
            }
        } @else {
            (layout.form(&view.address(&format!("{PATH}/bulk")), &html! {
                (buttons(view))
                table.list.fleet {
                    caption.sr { "Agents" }
                    (columns(&["Agent", "Labels", "State", "Created", "Action"].map(Column::Text)))
                    tbody {
                        @for owned in &fleet.rows { (row(layout, owned.agent(), fleet.freezes.contains_key(&owned.agent().id))) }
                    }
                }
            }))
        }
        (pages(fleet))
    }
}

/// Renders the buttons for the selected agents. Enter in a checkbox activates the first button, so the first button
/// changes nothing by itself.
fn buttons(view: &FleetView) -> Markup {
    let button = |act: &str, text: &str| html! { button type="submit" name="act" value=(act) { (text) } };
    html! {
        div.row-actions role="group" aria-labelledby="selected" {
            span.check id="selected" { "Selected agents:" }
            (button("label", "Label…"))
            @if view.filter.archived {
                (button("restore", "Restore"))
            } @else {
                (button("freeze", "Freeze"))
                (button("unfreeze", "Unfreeze"))
                (button("archive", "Archive"))
                (button("limit", "Set safe limits"))
                (button("template", "Follow a template…"))
                @if let Some(label) = view.label() {
                    a href=(FleetView::of_label(label.clone()).address(FREEZE_ALL)) { "Freeze all with " (visible(&label.to_string())) }
                }
            }
        }
    }
}

fn row(layout: &Layout, agent: &Agent, is_frozen_by_operator: bool) -> Markup {
    let one = |act: &str, text: &str| {
        html! {
            button type="submit" name=(act) value=(agent.id) { (text) span.sr { " " (visible(&agent.name)) } }
        }
    };
    html! {
        tr {
            th scope="row" {
                label.check { input type="checkbox" name="agent" value=(agent.id); span.sr { "Select " (visible(&agent.name)) } }
                " " (labels::agent(agent.id, &agent.name))
            }
            td data-label="Labels" { (label_chips(agent)) }
            td data-label="State" {
                (labels::status(agent.status))
                @if is_frozen_by_operator { " " span.chip.bad { "frozen by an operator" } }
                @if agent.archived { " " span.chip { "archived" } }
            }
            td data-label="Created" { (relative(agent.created_at, layout.now)) }
            td data-label="Action" {
                @match (agent.archived, agent.status) {
                    (true, _) => (one("restore", "Restore")),
                    (false, AgentStatus::Active) => (one("freeze", "Freeze")),
                    (false, AgentStatus::Frozen) => (one("unfreeze", "Unfreeze")),
                }
            }
        }
    }
}

/// Renders an agent's labels. Each label links to the list of agents with that label.
pub(crate) fn label_chips(agent: &Agent) -> Markup {
    html! {
        @if agent.labels.is_empty() { span.muted { "none" } }
        @for (key, value) in agent.labels.iter() {
            @let label = LabelFilter { key: key.clone(), value: Some(value.clone()) };
            a.chip href=(FleetView::of_label(label.clone()).address(PATH)) { (visible(&label.to_string())) } " "
        }
    }
}

fn pages(fleet: &Fleet) -> Markup {
    let view = &fleet.view;
    let next = match &fleet.next {
        Next::Pages(page) => {
            return page.paging("Pages of agents", "agent", |page| {
                FleetView { page, ..view.clone() }.address(PATH)
            });
        }
        Next::At(next) | Next::TooMany(next) => *next,
    };
    let is_full = u32::try_from(fleet.rows.len()).is_ok_and(|rows| rows >= ROWS);
    let text = if is_full { "Next" } else { "Search further" };
    let first = view.from.map(|_| ("First page", view.first().address(PATH)));
    let next = next.map(|from| {
        let next = FleetView {
            from: Some(from),
            ..view.clone()
        };
        (text, next.address(PATH))
    });
    paging("Pages of agents", first, next)
}

/// The outcome of a bulk operation, which the page shows after the redirect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    act: Option<Done>,
    done: usize,
    unchanged: usize,
    failed: usize,
    /// The agents that the operation froze, which the "Undo" button unfreezes.
    pub(crate) frozen: Vec<AgentId>,
}

/// The operations that a report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Frozen,
    Unfrozen,
    Archived,
    Restored,
    Labelled,
    Limited,
    Following,
    Unfollowed,
}

impl Done {
    const ALL: [Self; 8] = [
        Self::Frozen,
        Self::Unfrozen,
        Self::Archived,
        Self::Restored,
        Self::Labelled,
        Self::Limited,
        Self::Following,
        Self::Unfollowed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Unfrozen => "unfrozen",
            Self::Archived => "archived",
            Self::Restored => "restored",
            Self::Labelled => "labelled",
            Self::Limited => "limited",
            Self::Following => "updated",
            Self::Unfollowed => "unlinked",
        }
    }

    /// Returns the end of the sentence about agents that already were in the requested state.
    const fn before(self) -> &'static str {
        match self {
            Self::Frozen => "already frozen",
            Self::Unfrozen => "already active",
            Self::Archived => "already archived",
            Self::Restored => "not archived",
            Self::Labelled | Self::Following | Self::Unfollowed => "already so",
            Self::Limited => "already limited",
        }
    }
}

impl Report {
    /// Counts the outcomes of a bulk operation.
    pub(crate) fn new(act: Done, outcomes: &[(AgentId, BulkOutcome)]) -> Self {
        let mut report = Self {
            act: Some(act),
            ..Self::default()
        };
        report.add(outcomes);
        if act == Done::Frozen {
            let done = outcomes
                .iter()
                .filter(|(_, outcome)| matches!(outcome, BulkOutcome::Done));
            report.frozen = done.map(|(id, _)| *id).collect();
        }
        report
    }

    /// Adds the counts of further outcomes.
    pub(crate) fn add(&mut self, outcomes: &[(AgentId, BulkOutcome)]) {
        for (_, outcome) in outcomes {
            let count = match outcome {
                BulkOutcome::Done => &mut self.done,
                BulkOutcome::Unchanged => &mut self.unchanged,
                BulkOutcome::Failed(_) => &mut self.failed,
            };
            *count = count.saturating_add(1);
        }
    }

    /// Reads the report from a query string. Only numbers, ids and operation names are read, so that no text from the
    /// URL appears on the page.
    pub(crate) fn from_query(query: &mut Query) -> Option<Self> {
        let act = |text: &str| Done::ALL.into_iter().find(|act| act.name() == text);
        let mut number = |name: &str| {
            query
                .read(name, |text| text.parse().ok(), "is no number")
                .unwrap_or_default()
        };
        let (done, unchanged, failed) = (number("done"), number("unchanged"), number("failed"));
        let ids = |text: &str| text.split('.').map(AgentId::parse).collect::<Option<Vec<_>>>();
        Some(Self {
            act: Some(query.read("act", act, "is unknown")?),
            done,
            unchanged,
            failed,
            frozen: query.read("frozen", ids, "is unknown").unwrap_or_default(),
        })
    }

    pub(crate) const fn count(&self) -> usize {
        self.done.saturating_add(self.unchanged).saturating_add(self.failed)
    }

    /// The report's query parameters.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, Option<String>)> {
        let number = |number: usize| (number > 0).then(|| number.to_string());
        let ids: Vec<String> = self.frozen.iter().map(ToString::to_string).collect();
        vec![
            ("act", self.act.map(|act| act.name().to_owned())),
            ("done", number(self.done)),
            ("unchanged", number(self.unchanged)),
            ("failed", number(self.failed)),
            ("frozen", (!ids.is_empty()).then(|| ids.join("."))),
        ]
    }

    /// Returns the URL of the table with this report.
    pub(crate) fn address(&self, view: &FleetView) -> String {
        let parameters = [view.parameters(), self.parameters()].concat();
        crate::address::address(PATH, parameters)
    }

    fn message(&self, layout: &Layout, view: &FleetView) -> Markup {
        let Some(act) = self.act else { return html! {} };
        let were = |count: usize| if count == 1 { "was" } else { "were" };
        html! {
            div.message.good[self.failed == 0].bad[self.failed > 0] role="status" {
                p {
                    (count_with_noun(self.done, "agent")) " " (were(self.done)) " " (act.name()) "."
                    @if self.unchanged > 0 { " " (self.unchanged) " " (were(self.unchanged)) " " (act.before()) "." }
                    @if self.failed > 0 {
                        " " (self.failed) " could not be changed. Try again: an archived agent must be restored before it is "
                        "unfrozen, and an agent has at most 10 labels."
                    }
                }
                @if !self.frozen.is_empty() {
                    (layout.form(&view.address(&format!("{PATH}/bulk")), &html! {
                        @for id in &self.frozen { input type="hidden" name="agent" value=(id); }
                        button type="submit" name="act" value="unfreeze" {
                            "Undo: unfreeze " (count_with_noun(self.frozen.len(), "agent"))
                        }
                    }))
                }
            }
        }
    }
}
