//! The forms for the agents that the user selects in the table of agents, and the form "Freeze all".

use crate::agents::bulk::{BulkOperation, BulkTarget, MAX_AGENTS, MAX_LIMITED};
use crate::agents::fleet::{self, BulkReport, CompletedOperation, FREEZE_ALL, Fleet, FleetView, PATH, label_field};
use crate::agents::listing::{AgentFilter, MAX_READ};
use crate::agents::operations::AgentUpdate;
use crate::agents::outcome::BulkOutcome;
use crate::caller::Caller;
use crate::redirect::{see_other, temporary_redirect};
use crate::sessions::session::{PageSession, VerifiedForm};
use crate::state::{People, PeopleState};
use crate::ui::count::count_with_noun;
use crate::ui::form::{Form, FormName};
use crate::ui::layout::{Layout, NavItem};
use crate::ui::list::{filter_error_message, invalid_filter_text};
use axum::{
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Query, Reply};
use purser_domain::{
    AgentId, AgentStatus, ErrorKind, LabelFilter, LabelKey, LabelValue, Labels, Overrides, Result, TemplateList,
    TemplateName, escape_hidden_characters,
};
use purser_store::AgentOrder;

/// The maximum number of agents that the page of "Freeze all" counts. If the user has more agents, the page says "more
/// than".
const MAX_COUNTED: usize = 1_000;
/// The number of redirects after which "Freeze all" shows a button to continue. Browsers follow at most 20.
const MAX_STEPS: u32 = 15;

/// Redirects a `GET` of a path that accepts only `POST`.
pub(crate) async fn redirect_to_fleet() -> Response {
    see_other(PATH)
}

/// Returns whether a form for [`submit_bulk_operation`] freezes or archives agents.
pub(crate) fn is_freeze_or_archive_form(body: &[u8]) -> bool {
    url::form_urlencoded::parse(body).any(|(name, value)| match &*name {
        "freeze" => !value.is_empty(),
        "act" => ["freeze", "archive"].contains(&&*value),
        _ => false,
    })
}

/// Performs the operation of the button that the user clicked. A button in a table row has the operation as the name
/// and the agent's id as the value.
pub(crate) async fn submit_bulk_operation(people: PeopleState, uri: Uri, verified_form: VerifiedForm) -> Reply {
    let view = FleetView::from_query(&mut Query::without_blanks(&uri));
    let mut form = verified_form.parse_posted_form(FormName::BulkLabel);
    let row = ["freeze", "unfreeze", "restore"].into_iter();
    let row = row
        .map(|action| (action, form.field_text(action).to_owned()))
        .find(|(_, id)| !id.is_empty());
    let (action, ids) = match row {
        Some((action, id)) => (action.to_owned(), vec![id]),
        None => (
            form.field_text("act").to_owned(),
            form.distinct_field_words("agent")
                .into_iter()
                .map(str::to_owned)
                .collect(),
        ),
    };
    let ids: Vec<AgentId> = ids.iter().filter_map(|id| AgentId::parse(id)).collect();
    let layout = Layout::new(&verified_form.session, people.now());
    let is_limited = ["limit", "template", "follow"].contains(&action.as_str());
    let max = if is_limited { MAX_LIMITED } else { MAX_AGENTS };
    let message = if ids.is_empty() {
        Some("Nothing was changed: select at least one agent.".to_owned())
    } else if ids.len() > max {
        Some(format!("Nothing was changed: select at most {max} agents."))
    } else {
        None
    };
    if message.is_some() {
        let layout = layout.with_error_message(message);
        let fleet = Fleet::load(&people, &verified_form.session.person, view.clone()).await?;
        return Ok(fleet::fleet_page_response(&layout, &view, Some(&fleet), None));
    }
    let status = |status| BulkOperation::Update(AgentUpdate::for_status(status));
    let archived = |archived| BulkOperation::Update(AgentUpdate::for_archived(archived));
    let (action, done) = match action.as_str() {
        "freeze" => (status(AgentStatus::Frozen), CompletedOperation::Frozen),
        "unfreeze" => (status(AgentStatus::Active), CompletedOperation::Unfrozen),
        "archive" => (archived(true), CompletedOperation::Archived),
        "restore" => (archived(false), CompletedOperation::Restored),
        "limit" => (BulkOperation::Limit, CompletedOperation::Limited),
        "unfollow" => (BulkOperation::Unfollow, CompletedOperation::Unfollowed),
        "template" | "follow" => {
            let name = TemplateName::parse(form.field_text("template")).filter(|_| action == "follow");
            let Some(name) = name else {
                let list = people.list_templates(&verified_form.session.person).await?;
                return Ok(template_page(&layout, &view, &ids, &list).into_response());
            };
            (
                BulkOperation::Follow(name, Overrides::Keep),
                CompletedOperation::Following,
            )
        }
        "add-label" | "remove-label" => {
            let Some(action) = parse_label_operation(&mut form, action == "add-label") else {
                let layout = layout.with_form(form);
                return Ok((StatusCode::BAD_REQUEST, label_page(&layout, &view, &ids)).into_response());
            };
            (action, CompletedOperation::Labelled)
        }
        _ => return Ok(label_page(&layout, &view, &ids).into_response()),
    };
    let target = BulkTarget::Agents(ids);
    let mut result = Box::pin(people.update_agents(&verified_form.session.person, target, &action)).await?;
    // If the update of an agent needs a recent sign-in, the user signs in again, and the operation is repeated for all
    // selected agents.
    let needs_sign_in = |outcome: &BulkOutcome| matches!(outcome, BulkOutcome::Failed(error) if matches!(error.kind(), ErrorKind::RecentSignInRequired { .. }));
    if let Some(index) = result.outcomes.iter().position(|(_, outcome)| needs_sign_in(outcome))
        && let (_, BulkOutcome::Failed(error)) = result.outcomes.swap_remove(index)
    {
        return Err(error.into());
    }
    Ok(see_other(
        &BulkReport::new(done, &result.outcomes).url_with_report(&view),
    ))
}

fn parse_label_operation(form: &mut Form, is_addition: bool) -> Option<BulkOperation> {
    let label = LabelFilter::parse(form.field_text("label")).filter(LabelFilter::is_displayable);
    let action = match label {
        Some(LabelFilter { key, .. }) if !is_addition => Some(BulkOperation::Unlabel(vec![key])),
        Some(LabelFilter {
            key,
            value: Some(value),
        }) => Labels::from_pairs([(key, value)]).map(BulkOperation::Label),
        Some(LabelFilter { value: None, .. }) | None => None,
    };
    if action.is_none() {
        let form_of = if is_addition {
            "key=value, such as team=search"
        } else {
            "its key, such as team"
        };
        form.add_error("label", format!("Label: enter {form_of}."));
    }
    action
}

/// Renders the form in which the user selects the policy template that the selected agents follow.
fn template_page(layout: &Layout, view: &FleetView, ids: &[AgentId], list: &TemplateList) -> Markup {
    let agents = count_with_noun(ids.len(), "agent");
    layout.html_page(
        "Follow a policy template",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(view.url(PATH)) { "Agents" } }
            h1 { "Policy template of " (agents) }
            section.card aria-label="Policy template" {
                @if list.entries.is_empty() { p.empty { "You have no template yet." } }
                (layout.post_form(&view.url(&format!("{PATH}/bulk")), &html! {
                    @for id in ids { input type="hidden" name="agent" value=(id); }
                    @if !list.entries.is_empty() {
                        div.field {
                            label for="template" { "Template" }
                            select id="template" name="template" {
                                @for name in list.entries.keys() { option value=(name) { (name) } }
                            }
                        }
                        p.hint { "Its limits are set where no person has set others. Edits that widen limits require a recent sign-in." }
                    }
                    div.row-actions {
                        @if !list.entries.is_empty() {
                            button.primary type="submit" name="act" value="follow" { "Follow it" }
                        }
                        button type="submit" name="act" value="unfollow" { "Follow none, keep the limits" }
                    }
                }))
            }
        },
    )
}

/// Renders the form in which the user enters a label. One button adds the label to the selected agents, and another
/// button removes the label from the selected agents.
fn label_page(layout: &Layout, view: &FleetView, ids: &[AgentId]) -> Markup {
    let agents = count_with_noun(ids.len(), "agent");
    let longest = LabelKey::MAX.saturating_add(LabelValue::MAX).saturating_add(1);
    layout.html_page(
        "Label agents",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(view.url(PATH)) { "Agents" } }
            h1 { "Label " (agents) }
            section.card aria-label="Label" {
                (layout.post_form(&view.url(&format!("{PATH}/bulk")), &html! {
                    @for id in ids { input type="hidden" name="agent" value=(id); }
                    (layout.form_inputs(FormName::BulkLabel).required_text_input("label", "Label, as key=value", "", longest))
                    p.hint {
                        "For example team=search. A new value replaces that of the same key. To remove a label, its key suffices."
                    }
                    div.row-actions {
                        button.primary type="submit" name="act" value="add-label" { "Add to " (agents) }
                        button type="submit" name="act" value="remove-label" { "Remove from " (agents) }
                    }
                }))
            }
        },
    )
}

/// Shows the confirmation of "Freeze all", or offers to continue an interrupted run.
pub(crate) async fn show_freeze_all_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let mut query = Query::without_blanks(&uri);
    let (view, report) = (FleetView::from_query(&mut query), BulkReport::from_query(&mut query));
    let so_far = report.filter(|report| report.total_count() > 0);
    // Only an interrupted run has a cursor. Otherwise a crafted link could make "Freeze all" skip agents.
    let view = match so_far {
        Some(_) => view,
        None => view
            .label_filter()
            .cloned()
            .map(FleetView::for_label)
            .unwrap_or_default(),
    };
    let layout = Layout::new(&session, people.now()).with_error_message(filter_error_message(query));
    if layout.problem.is_some() {
        let page = freeze_all_page(&layout, &view, &invalid_filter_text());
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    }
    let agents = describe_agents_to_freeze(&people, &session.person, view.label_filter()).await?;
    let action = crate::address::path_with_query(FREEZE_ALL, next_step_parameters(&view, so_far.as_ref(), 0));
    let content = html! {
        @if let Some(report) = &so_far {
            div.message.warn role="status" {
                p { strong { "Not done yet." } " " (count_with_noun(report.total_count(), "agent")) " so far: continue with the rest." }
            }
        }
        section.card aria-label="Freeze all agents" {
            p {
                "You own " (agents) ". Every payment of each is refused, including approved ones, until you unfreeze it. "
                "Agents that are frozen already, or archived, stay so."
            }
            (layout.post_form(&action, &html! {
                button.danger type="submit" {
                    @match (&so_far, view.label_filter()) {
                        (Some(_), _) => "Continue",
                        (None, Some(label)) => { "Freeze all with " (escape_hidden_characters(&label.to_string())) },
                        (None, None) => { "Freeze " (agents) },
                    }
                }
            }))
        }
    };
    Ok(freeze_all_page(&layout, &view, &content).into_response())
}

fn freeze_all_page(layout: &Layout, view: &FleetView, content: &Markup) -> Markup {
    layout.html_page(
        "Freeze all agents",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(PATH) { "Agents" } }
            h1 { "Freeze all agents" }
            form.filters method="get" action=(FREEZE_ALL) {
                (label_field(view.label_filter()))
                button type="submit" { "Only with this label" }
                @if view.label_filter().is_some() { a href=(FREEZE_ALL) { "All agents" } }
            }
            (content)
        },
    )
}

async fn describe_agents_to_freeze(people: &People, user: &Caller, label: Option<&LabelFilter>) -> Result<String> {
    let Some(label) = label else {
        let max = MAX_COUNTED.saturating_add(1);
        let ids = people.ledger.read_agent_ids(user.id.as_str(), Some(max)).await?;
        return Ok(if ids.len() > MAX_COUNTED {
            format!("more than {MAX_COUNTED} agents")
        } else {
            count_with_noun(ids.len(), "agent")
        });
    };
    let filter = AgentFilter {
        label: Some(label.clone()),
        ..AgentFilter::default()
    };
    let page = people
        .list_agents(user, &filter, AgentOrder::NewestFirst, None, MAX_READ)
        .await?;
    let count = count_with_noun(page.items.len(), "agent");
    Ok(match page.next {
        Some(_) => format!("at least {count} with {label}"),
        None => format!("{count} with {label}"),
    })
}

fn next_step_parameters(
    view: &FleetView,
    report: Option<&BulkReport>,
    step: u32,
) -> Vec<(&'static str, Option<String>)> {
    let mut parameters = report.map(BulkReport::query_parameters).unwrap_or_default();
    parameters.push(("label", view.label_filter().map(ToString::to_string)));
    parameters.push(("cursor", view.start_cursor_text()));
    parameters.push(("step", (step > 0).then(|| step.to_string())));
    parameters
}

/// Freezes up to 100 agents, then repeats the `POST` by a 307 (RFC 9110 §15.4.8) until all agents are frozen.
pub(crate) async fn freeze_all_agents(people: PeopleState, uri: Uri, form: VerifiedForm) -> Reply {
    let mut query = Query::without_blanks(&uri);
    let (view, report) = (FleetView::from_query(&mut query), BulkReport::from_query(&mut query));
    let steps = query
        .parse_integer("step", 0, MAX_STEPS)
        .unwrap_or_default()
        .saturating_add(1);
    // An invalid filter must be rejected, because it would otherwise freeze all agents.
    if let Some(message) = filter_error_message(query) {
        let layout = Layout::new(&form.session, people.now()).with_error_message(Some(message));
        let page = freeze_all_page(&layout, &view, &invalid_filter_text());
        return Ok((StatusCode::BAD_REQUEST, page).into_response());
    }
    let target = BulkTarget::All {
        label: view.label_filter().cloned(),
        from: view.start_cursor(),
    };
    let freeze = BulkOperation::Update(AgentUpdate::for_status(AgentStatus::Frozen));
    let result = people.update_agents(&form.session.person, target, &freeze).await?;
    let mut report = match report {
        Some(mut report) => {
            report.add_outcomes(&result.outcomes);
            report
        }
        None => BulkReport::new(CompletedOperation::Frozen, &result.outcomes),
    };
    let Some(next) = result.next else {
        let frozen = view.label_filter().cloned().map(FleetView::for_label);
        return Ok(see_other(&report.url_with_report(&frozen.unwrap_or_default())));
    };
    // A run of "Freeze all" that took several requests has no "Undo" button, so the report does not list the frozen
    // agents.
    report.frozen = Vec::new();
    let address = |steps| {
        crate::address::path_with_query(
            FREEZE_ALL,
            next_step_parameters(&view.view_from_cursor(next), Some(&report), steps),
        )
    };
    if steps >= MAX_STEPS {
        return Ok(see_other(&address(0)));
    }
    Ok(temporary_redirect(&address(steps)))
}
