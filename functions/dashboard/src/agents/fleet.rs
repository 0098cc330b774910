//! `/dashboard/agents`: the user's agents in a table. Only a table of up to 100 agents can be sorted by name.

use crate::agents::listing::{AgentFilter, MAX_READ, MAX_SEARCHED};
use crate::agents::outcome::BulkOutcome;
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::cursor;
use crate::sessions::session::PageSession;
use crate::state::{People, PeopleState};
use crate::ui::count::count_with_noun;
use crate::ui::datetime::relative_time;
use crate::ui::labels;
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{
    Column, ListPage, column_headings, filter_error_message, filter_form, filter_select, first_and_next_links,
    format_page_number, invalid_filter_text, parse_page_number, search_field,
};
use crate::ui::paths;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{Agent, AgentId, AgentStatus, LabelFilter, OperatorFreeze, Result, escape_hidden_characters};
use purser_store::{AgentCursor, AgentOrder};
use std::collections::BTreeMap;

pub(crate) const PATH: &str = "/dashboard/agents";
pub(crate) const FREEZE_ALL: &str = "/dashboard/freeze-all";
/// The maximum number of rows on a page.
const ROWS: u32 = 25;

purser_domain::named! {
    #[derive(Default)]
    AgentSortOrder {
        #[default]
        Newest = "newest" => "Newest first",
        Oldest = "oldest" => "Oldest first",
        Name = "name" => "Name",
    }
}

impl AgentSortOrder {}

/// The filter, sort order and page in the URL.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetView {
    filter: AgentFilter,
    order: AgentSortOrder,
    /// The cursor of the page; `None` for the first page.
    from: Option<AgentCursor>,
    /// The page's number. Only a table that is sorted by name has numbered pages.
    page: usize,
}

impl FleetView {
    /// Invalid filters are recorded as validation errors in `query`.
    pub(crate) fn from_query(query: &mut Query) -> Self {
        Self {
            filter: AgentFilter::from_query(query),
            order: query
                .parse_with("sort", AgentSortOrder::from_name, "is unknown")
                .unwrap_or_default(),
            from: query.parse_with("cursor", cursor::parse_agent_cursor, cursor::FORM),
            page: parse_page_number(query),
        }
    }

    /// Returns the query parameters that [`FleetView::from_query`] reads.
    fn query_parameters(&self) -> Vec<(&'static str, Option<String>)> {
        let filter = &self.filter;
        let is_set = |text: &String| !text.is_empty();
        vec![
            ("q", Some(filter.text.clone()).filter(is_set)),
            ("label", filter.label.as_ref().map(ToString::to_string)),
            ("status", filter.status.map(|status| status.name().to_owned())),
            ("archived", filter.archived.then(|| "true".to_owned())),
            (
                "sort",
                (self.order != AgentSortOrder::default()).then(|| self.order.name().to_owned()),
            ),
            ("cursor", self.start_cursor_text()),
            ("page", format_page_number(self.page)),
        ]
    }

    pub(crate) fn url(&self, path: &str) -> String {
        crate::address::path_with_query(path, self.query_parameters())
    }

    /// Returns a view that begins at this cursor and keeps only the label filter.
    pub(crate) fn view_from_cursor(&self, cursor: AgentCursor) -> Self {
        let all = self.label_filter().cloned().map(Self::for_label).unwrap_or_default();
        Self {
            from: Some(cursor),
            ..all
        }
    }

    pub(crate) fn for_label(label: LabelFilter) -> Self {
        let filter = AgentFilter {
            label: Some(label),
            ..AgentFilter::default()
        };
        Self {
            filter,
            ..Self::default()
        }
    }

    pub(crate) const fn label_filter(&self) -> Option<&LabelFilter> {
        self.filter.label.as_ref()
    }

    pub(crate) const fn start_cursor(&self) -> Option<AgentCursor> {
        self.from
    }

    pub(crate) fn start_cursor_text(&self) -> Option<String> {
        self.from.map(cursor::format_agent_cursor)
    }

    fn first_page(&self) -> Self {
        Self {
            from: None,
            page: 0,
            ..self.clone()
        }
    }

    fn is_filtered(&self) -> bool {
        self.filter != AgentFilter::default() || self.order != AgentSortOrder::default()
    }
}

pub(crate) struct Fleet {
    view: FleetView,
    rows: Vec<OwnedAgent>,
    freezes: BTreeMap<AgentId, OperatorFreeze>,
    next: Next,
}

/// Links to further pages of the table.
enum Next {
    /// The cursor of the next page; `None` on the last page.
    At(Option<AgentCursor>),
    /// Numbered pages, for a table that is sorted by name.
    Pages(ListPage<()>),
    /// The table is too long to be sorted by name, so it lists the newest agents first.
    TooMany(Option<AgentCursor>),
}

impl Fleet {
    pub(crate) async fn load(people: &People, user: &Caller, view: FleetView) -> Result<Self> {
        let list = async |order, from, limit| people.list_agents(user, &view.filter, order, from, limit).await;
        let (rows, next) = match view.order {
            AgentSortOrder::Oldest => {
                let page = list(AgentOrder::OldestFirst, view.from, ROWS).await?;
                (page.items, Next::At(page.next))
            }
            AgentSortOrder::Newest => {
                let page = list(AgentOrder::NewestFirst, view.from, ROWS).await?;
                (page.items, Next::At(page.next))
            }
            AgentSortOrder::Name => {
                let mut all = list(AgentOrder::NewestFirst, view.from, MAX_READ).await?;
                if view.from.is_none() && all.next.is_none() {
                    all.items
                        .sort_by_cached_key(|owned| (owned.agent().name.to_lowercase(), owned.agent().id));
                    let mut page = ListPage::new(all.items, view.page);
                    let rows = std::mem::take(&mut page.rows);
                    (rows, Next::Pages(page.with_rows(Vec::new())))
                } else {
                    let page = list(AgentOrder::NewestFirst, view.from, ROWS).await?;
                    (page.items, Next::TooMany(page.next))
                }
            }
        };
        let freezes = people.read_freezes_by_agent(rows.iter().map(OwnedAgent::agent)).await?;
        Ok(Self {
            view,
            rows,
            freezes,
            next,
        })
    }
}

pub(crate) async fn show_fleet_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let mut query = Query::without_blanks(&uri);
    let (view, report) = (FleetView::from_query(&mut query), BulkReport::from_query(&mut query));
    let layout = layout.with_error_message(filter_error_message(query));
    let fleet = if layout.problem.is_none() {
        Some(Fleet::load(&people, &session.person, view.clone()).await?)
    } else {
        None
    };
    Ok(fleet_page_response(&layout, &view, fleet.as_ref(), report.as_ref()))
}

/// Renders the page. If a filter is invalid, the page has no rows and the status is 400.
pub(crate) fn fleet_page_response(
    layout: &Layout,
    view: &FleetView,
    fleet: Option<&Fleet>,
    report: Option<&BulkReport>,
) -> Response {
    let status = if layout.problem.is_none() {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    };
    let page = layout.html_page(
        "Agents",
        NavItem::Agents,
        &html! {
            h1 { "Agents" }
            p { a href=(paths::TEMPLATES) { "Policy templates" } }
            @if let Some(report) = report { (report.message_markup(layout, view)) }
            (fleet_filters(view, layout.problem.is_some()))
            @match fleet {
                Some(fleet) => (fleet_section(layout, fleet)),
                None => (invalid_filter_text()),
            }
        },
    );
    (status, page).into_response()
}

fn fleet_filters(view: &FleetView, is_open: bool) -> Markup {
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
                @for order in AgentSortOrder::ALL { option value=(order.name()) selected[*order == view.order] { (order.label()) } }
            }
        }
        label.check { input type="checkbox" name="archived" value="true" checked[filter.archived]; " Archived" }
    };
    filter_form(PATH, is_open, view.is_filtered().then_some(PATH), &fields)
}

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
pub(crate) fn fleet_section(layout: &Layout, fleet: &Fleet) -> Markup {
    let view = &fleet.view;
    html! {
        @if matches!(fleet.next, Next::TooMany(_)) {
            p.hint { "Sorting by name is available for up to " (MAX_READ) " agents. The newest are first: search by name, or filter by label." }
        }
        @if fleet.rows.is_empty() {
            p.empty {
                @if matches!(fleet.next, Next::At(Some(_)) | Next::TooMany(Some(_))) {
                    "None of the " (MAX_SEARCHED) " agents that were searched fits."
                } @else if view.is_filtered() || view.from.is_some() { "No agent fits." }
                @else { "You have no agent yet." }
            }
        } @else {
            (layout.post_form(&view.url(&format!("{PATH}/bulk")), &html! {
                (bulk_buttons(view))
                table.list.fleet {
                    caption.sr { "Agents" }
                    (column_headings(&["Agent", "Labels", "State", "Created", "Action"].map(Column::Text)))
                    tbody {
                        @for owned in &fleet.rows { (agent_row(layout, owned.agent(), fleet.freezes.contains_key(&owned.agent().id))) }
                    }
                }
            }))
        }
        (page_links(fleet))
    }
}

/// The first button must be harmless, because the Enter key in a checkbox activates it.
fn bulk_buttons(view: &FleetView) -> Markup {
    let button = |action: &str, text: &str| html! { button type="submit" name="act" value=(action) { (text) } };
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
                @if let Some(label) = view.label_filter() {
                    a href=(FleetView::for_label(label.clone()).url(FREEZE_ALL)) { "Freeze all with " (escape_hidden_characters(&label.to_string())) }
                }
            }
        }
    }
}

fn agent_row(layout: &Layout, agent: &Agent, is_frozen_by_operator: bool) -> Markup {
    let item = |action: &str, text: &str| {
        html! {
            button type="submit" name=(action) value=(agent.id) { (text) span.sr { " " (escape_hidden_characters(&agent.name)) } }
        }
    };
    html! {
        tr {
            th scope="row" {
                label.check { input type="checkbox" name="agent" value=(agent.id); span.sr { "Select " (escape_hidden_characters(&agent.name)) } }
                " " (labels::agent_link(agent.id, &agent.name))
            }
            td data-label="Labels" { (label_chips(agent)) }
            td data-label="State" {
                (labels::status_chip(agent.status))
                @if is_frozen_by_operator { " " span.chip.bad { "frozen by an operator" } }
                @if agent.archived { " " span.chip { "archived" } }
            }
            td data-label="Created" { (relative_time(agent.created_at, layout.now)) }
            td data-label="Action" {
                @match (agent.archived, agent.status) {
                    (true, _) => (item("restore", "Restore")),
                    (false, AgentStatus::Active) => (item("freeze", "Freeze")),
                    (false, AgentStatus::Frozen) => (item("unfreeze", "Unfreeze")),
                }
            }
        }
    }
}

/// Renders the agent's labels as links to the agents with the same label.
pub(crate) fn label_chips(agent: &Agent) -> Markup {
    html! {
        @if agent.labels.is_empty() { span.muted { "none" } }
        @for (key, value) in agent.labels.iter() {
            @let label = LabelFilter { key: key.clone(), value: Some(value.clone()) };
            a.chip href=(FleetView::for_label(label.clone()).url(PATH)) { (escape_hidden_characters(&label.to_string())) } " "
        }
    }
}

fn page_links(fleet: &Fleet) -> Markup {
    let view = &fleet.view;
    let next = match &fleet.next {
        Next::Pages(page) => {
            return page.position_and_page_links("Pages of agents", "agent", |page| {
                FleetView { page, ..view.clone() }.url(PATH)
            });
        }
        Next::At(next) | Next::TooMany(next) => *next,
    };
    let is_full = u32::try_from(fleet.rows.len()).is_ok_and(|rows| rows >= ROWS);
    let text = if is_full { "Next" } else { "Search further" };
    let first = view.from.map(|_| ("First page", view.first_page().url(PATH)));
    let next = next.map(|from| {
        let next = FleetView {
            from: Some(from),
            ..view.clone()
        };
        (text, next.url(PATH))
    });
    first_and_next_links("Pages of agents", first, next)
}

/// The results of a bulk operation, which the page shows after the redirect.
#[derive(Clone, Debug, Default)]
pub(crate) struct BulkReport {
    act: Option<CompletedOperation>,
    done: usize,
    unchanged: usize,
    failed: usize,
    /// The agents that the "Undo" button unfreezes.
    pub(crate) frozen: Vec<AgentId>,
}

purser_domain::named! {
    /// The kind of bulk operation that a [`BulkReport`] describes.
    CompletedOperation {
        Frozen = "frozen",
        Unfrozen = "unfrozen",
        Archived = "archived",
        Restored = "restored",
        Labelled = "labelled",
        Limited = "limited",
        Following = "updated",
        Unfollowed = "unlinked",
    }
}

impl CompletedOperation {
    /// Returns the words for agents that were already in the requested state, such as "already frozen".
    const fn already_done_text(self) -> &'static str {
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

impl BulkReport {
    pub(crate) fn new(operation: CompletedOperation, outcomes: &[(AgentId, BulkOutcome)]) -> Self {
        let mut report = Self {
            act: Some(operation),
            ..Self::default()
        };
        report.add_outcomes(outcomes);
        if operation == CompletedOperation::Frozen {
            let done = outcomes
                .iter()
                .filter(|(_, outcome)| matches!(outcome, BulkOutcome::Done));
            report.frozen = done.map(|(id, _)| *id).collect();
        }
        report
    }

    pub(crate) fn add_outcomes(&mut self, outcomes: &[(AgentId, BulkOutcome)]) {
        for (_, outcome) in outcomes {
            let count = match outcome {
                BulkOutcome::Done => &mut self.done,
                BulkOutcome::Unchanged => &mut self.unchanged,
                BulkOutcome::Failed(_) => &mut self.failed,
            };
            *count = count.saturating_add(1);
        }
    }

    /// Reads the report from a URL. Free text is rejected, because anyone can write a URL.
    pub(crate) fn from_query(query: &mut Query) -> Option<Self> {
        let mut number = |name: &str| {
            query
                .parse_with(name, |text| text.parse().ok(), "is no number")
                .unwrap_or_default()
        };
        let (done, unchanged, failed) = (number("done"), number("unchanged"), number("failed"));
        let ids = |text: &str| text.split('.').map(AgentId::parse).collect::<Option<Vec<_>>>();
        Some(Self {
            act: Some(query.parse_with("act", CompletedOperation::from_name, "is unknown")?),
            done,
            unchanged,
            failed,
            frozen: query.parse_with("frozen", ids, "is unknown").unwrap_or_default(),
        })
    }

    pub(crate) const fn total_count(&self) -> usize {
        self.done.saturating_add(self.unchanged).saturating_add(self.failed)
    }

    /// Returns the query parameters that [`BulkReport::from_query`] reads.
    pub(crate) fn query_parameters(&self) -> Vec<(&'static str, Option<String>)> {
        let number = |number: usize| (number > 0).then(|| number.to_string());
        let ids: Vec<String> = self.frozen.iter().map(ToString::to_string).collect();
        vec![
            ("act", self.act.map(|action| action.name().to_owned())),
            ("done", number(self.done)),
            ("unchanged", number(self.unchanged)),
            ("failed", number(self.failed)),
            ("frozen", (!ids.is_empty()).then(|| ids.join("."))),
        ]
    }

    pub(crate) fn url_with_report(&self, view: &FleetView) -> String {
        let parameters = [view.query_parameters(), self.query_parameters()].concat();
        crate::address::path_with_query(PATH, parameters)
    }

    fn message_markup(&self, layout: &Layout, view: &FleetView) -> Markup {
        let Some(action) = self.act else { return html! {} };
        let were = |count: usize| if count == 1 { "was" } else { "were" };
        html! {
            div.message.good[self.failed == 0].bad[self.failed > 0] role="status" {
                p {
                    (count_with_noun(self.done, "agent")) " " (were(self.done)) " " (action.name()) "."
                    @if self.unchanged > 0 { " " (self.unchanged) " " (were(self.unchanged)) " " (action.already_done_text()) "." }
                    @if self.failed > 0 {
                        " " (self.failed) " could not be changed. Try again: an archived agent must be restored before it is "
                        "unfrozen, and an agent has at most 10 labels."
                    }
                }
                @if !self.frozen.is_empty() {
                    (layout.post_form(&view.url(&format!("{PATH}/bulk")), &html! {
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
