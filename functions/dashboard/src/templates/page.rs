//! The pages of policy templates.

use crate::agents::bulk::{BulkTarget, MAX_LIMITED};
use crate::agents::listing::AgentFilter;
use crate::agents::outcome::BulkOutcome;
use crate::agents::owned::{OwnedAgent, require_id};
use crate::audit::page::change_list;
use crate::cursor;
use crate::redirect::{see_other, temporary_redirect};
use crate::request::parse_agent_filter;
use crate::sessions::session::{PageSession, VerifiedForm};
use crate::state::{People, PeopleState};
use crate::templates::api::{editable_limits_json, parse_template};
use crate::templates::apply::{ApplyResult, ApplyTo, TemplatePlan};
use crate::templates::operations::OwnTemplate;
use crate::ui::count::count_with_noun;
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::{Form, FormName};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem, version_input};
use crate::ui::list::filter_error_message;
use crate::ui::notice::{PageMessage, redirect_with_notice};
use crate::ui::paths;
use axum::{
    extract::Path,
    http::{StatusCode, Uri},
    response::IntoResponse as _,
};
use maud::{Markup, html};
use purser_api::{Query, Reply, parse_json_body};
use purser_domain::{Catalog, Error, ErrorKind, Overrides, Result, TemplateList, TemplateName, TemplateTerms};
use std::sync::Arc;

/// The number of redirects after which the user must continue, because browsers follow only 20.
const MAX_STEPS: u32 = 15;
/// Example limits that prefill the form for a new template.
const EXAMPLE: &str = r#"{
  "services": {
    "*": {"max_per_call_units": 1000000, "max_per_day_units": 10000000, "require_approval_above_units": 2000000}
  },
  "default": false
}"#;

/// With `agent_id` in the query, the form is filled with the agent's limits.
pub(crate) async fn show_templates_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let list = people.list_templates(&session.person).await?;
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let agent = parse_agent_filter(&mut Query::without_blanks(&uri));
    let example = match agent {
        None => EXAMPLE.to_owned(),
        Some(agent) => format_agent_limits(&people, &people.read_own_agent(&session.person, agent).await?).await?,
    };
    Ok(template_list_page(&layout, &list, &example).into_response())
}

async fn format_agent_limits(people: &People, owned: &OwnedAgent) -> Result<String> {
    let agent = owned.agent();
    let (edition, policies) = tokio::try_join!(people.current_catalog(), people.ledger.list_enabled_services(agent))?;
    let terms = TemplateTerms::from_agent_limits(&policies, &agent.rules);
    Ok(editable_limits_json(&terms, false, &edition.catalog))
}

fn template_list_page(layout: &Layout, list: &TemplateList, example: &str) -> Markup {
    let inputs = layout.form_inputs(FormName::Template);
    let lines: Vec<String> = example.lines().map(str::to_owned).collect();
    layout.html_page(
        "Policy templates",
        NavItem::Agents,
        &html! {
            p.crumb { a href="/dashboard/agents" { "Agents" } }
            h1 { "Policy templates" }
            p { "A template has limits that several agents follow. An update of the template changes no agent until you apply it." }
            @if list.entries.is_empty() { p.empty { "You have no template yet." } } @else {
                ul.rows {
                    @for (name, entry) in &list.entries {
                        li.row {
                            div.row-main {
                                p {
                                    a.name href=(paths::template_path(name)) { (name) }
                                    @if list.default.as_ref() == Some(name) { " " span.chip.good { "default of new agents" } }
                                }
                                p.muted { "Version " (entry.version) ", edited " (relative_and_exact_time(entry.edited_at, layout.now)) }
                            }
                        }
                    }
                }
            }
            section.card aria-labelledby="new-title" {
                h2 id="new-title" { "New template" }
                (layout.post_form(paths::TEMPLATES, &html! {
                    (inputs.required_text_input("name", "Name", "", TemplateName::MAX))
                    (inputs.text_area("limits", "Limits", HINT, &lines, 12))
                    button.primary type="submit" { "Create" }
                }))
            }
        },
    )
}

const HINT: &str = "As JSON: services by slug, category:… or *, with the members of a policy; rules, if all agents shall have the same; and whether it is the default of new agents.";

/// Each validation error is added to the form with the JSON path.
fn parse_template_limits(form: &mut Form, catalog: &Catalog) -> Option<crate::templates::operations::TemplateUpdate> {
    let parsed = parse_json_body(form.field_text("limits").as_bytes()).and_then(|body| parse_template(&body, catalog));
    match parsed {
        Ok(update) => Some(update),
        Err(error) => {
            match error.kind() {
                ErrorKind::InvalidRequest(errors) | ErrorKind::FieldRequired { problems: errors, .. } => {
                    for problem in errors {
                        let message = problem.message.replace('`', "");
                        form.add_error("limits", format!("Limits, {}: {message}.", problem.path));
                    }
                }
                _ => form.add_error("limits", "Limits: they can’t be read."),
            }
            None
        }
    }
}

pub(crate) async fn submit_new_template(people: PeopleState, verified_form: VerifiedForm) -> Reply {
    let edition = people.current_catalog().await?;
    let mut form = verified_form.parse_posted_form(FormName::Template);
    let name = TemplateName::parse(form.field_text("name"));
    if name.is_none() {
        form.add_error("name", format!("Name: {}.", TemplateName::FORM));
    }
    let update = parse_template_limits(&mut form, &edition.catalog);
    let user = &verified_form.session.person;
    if let Some((name, update)) = name.zip(update) {
        match Box::pin(people.put_template(user, &name, None, &update)).await {
            Ok(_) => {
                return Ok(redirect_with_notice(
                    &paths::template_path(&name),
                    PageMessage::TemplateSaved,
                ));
            }
            Err(error) => match error.kind() {
                ErrorKind::VersionRequired => form.add_error("name", "Name: another template has it."),
                ErrorKind::InvalidRequest(errors) => form.add_body_errors(errors, &[]),
                _ => return Err(error.into()),
            },
        }
    }
    let list = people.list_templates(user).await?;
    let layout = Layout::new(&verified_form.session, people.now()).with_form(form);
    Ok((StatusCode::BAD_REQUEST, template_list_page(&layout, &list, EXAMPLE)).into_response())
}

pub(crate) async fn show_template_page(
    people: PeopleState,
    session: PageSession,
    Path(name): Path<String>,
    uri: Uri,
) -> Reply {
    let mut query = Query::without_blanks(&uri);
    let is_report = query.parse_with("act", |action| (action == APPLIED).then_some(()), "is unknown");
    // Counts without a signature are ignored, because a link from another site could contain any counts.
    let steps = is_report.map_or_else(Steps::default, |()| Steps::from_query(&mut query));
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    template_page_response(&people, &session, layout, &name, &steps, StatusCode::OK).await
}

async fn template_page_response(
    people: &Arc<People>,
    session: &PageSession,
    layout: Layout,
    name: &str,
    steps: &Steps,
    status: StatusCode,
) -> Reply {
    let own = people
        .read_template(&session.person, &require_id(TemplateName::parse(name))?)
        .await?;
    let edition = people.current_catalog().await?;
    let (agents, next) = read_template_followers(people, session, &own, steps).await?;
    let owned: Vec<Option<OwnedAgent>> = agents.iter().map(|(_, owned)| owned.clone()).collect();
    let template = own.template.clone();
    let planned = people.apply_template_to_agents(&session.person, agents, template, Overrides::Keep, ApplyTo::Preview);
    let planned = Box::pin(planned).await?;
    let followers: Vec<_> = owned.into_iter().flatten().zip(planned).collect();
    let page = template_page(&layout, &own, &edition.catalog, &followers, steps, next.is_some());
    Ok((status, page).into_response())
}

async fn read_template_followers(
    people: &People,
    session: &PageSession,
    owned_template: &OwnTemplate,
    steps: &Steps,
) -> Result<(
    Vec<(purser_domain::AgentId, Option<OwnedAgent>)>,
    Option<purser_store::AgentCursor>,
)> {
    let filter = AgentFilter {
        template: Some(owned_template.template.name.clone()),
        ..AgentFilter::default()
    };
    let target = BulkTarget::All {
        label: None,
        from: steps.from,
    };
    people
        .select_bulk_agents(&session.person, target, filter, MAX_LIMITED)
        .await
}

fn template_page(
    layout: &Layout,
    owned_template: &OwnTemplate,
    catalog: &Catalog,
    followers: &[(OwnedAgent, ApplyResult)],
    steps: &Steps,
    has_more: bool,
) -> Markup {
    let template = &owned_template.template;
    let path = paths::template_path(&template.name);
    let inputs = layout.form_inputs(FormName::Template);
    let text = editable_limits_json(&template.terms, owned_template.is_default, catalog);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    layout.html_page(
        "Policy template",
        NavItem::Agents,
        &html! {
            p.crumb { a href=(paths::TEMPLATES) { "Policy templates" } }
            h1 { (template.name) @if owned_template.is_default { " " span.chip.good { "default of new agents" } } }
            p.muted { "Version " (template.version) ", edited " (relative_and_exact_time(template.edited_at, layout.now)) }
            (steps.progress_message())
            @for (service, operations) in template.terms.unlisted_operations(catalog) {
                p.warning {
                    "No longer in the catalog, and left out when the template is applied: operations of "
                    (labels::service_name(service, catalog)) " "
                    @for operation in &operations { code { (operation) } " " }
                }
            }
            section aria-labelledby="agents-title" {
                h2 id="agents-title" { "Agents that follow it" }
                @if followers.is_empty() {
                    p.empty { "No agent follows it here. Select agents in the table of agents, and choose “Follow a template…”." }
                } @else {
                    ul.rows { @for (owned, planned) in followers { (follower_row(owned, planned, catalog)) } }
                    @if has_more { p.hint { "There are more agents. Applying the template goes through all of them." } }
                    (layout.post_form(&format!("{path}/apply"), &html! {
                        p { "Edits that widen limits require a recent sign-in. A limit that a person set is an override." }
                        div.row-actions {
                            button.primary type="submit" name="overrides" value="keep" { "Apply, keep overrides" }
                            button.danger type="submit" name="overrides" value="overwrite" { "Apply, replace overrides" }
                        }
                    }))
                }
            }
            section aria-labelledby="limits-title" {
                h2 id="limits-title" { "Limits" }
                (layout.post_form(&path, &html! {
                    (version_input(template.version))
                    (inputs.text_area("limits", "Limits", HINT, &lines, 24))
                    button.primary type="submit" { "Save" }
                }))
                (layout.button_form(&format!("{path}/remove"), &Button::danger("Remove", "Remove this template? The agents that follow it keep their limits.").with_version(template.version)))
            }
        },
    )
}

/// Renders an agent that follows the template, with the agent's differing limits.
fn follower_row(owned: &OwnedAgent, planned_change: &ApplyResult, catalog: &Catalog) -> Markup {
    let agent = owned.agent();
    let version = agent
        .template
        .as_ref()
        .and_then(purser_domain::FollowedTemplate::version);
    let differences: Vec<bool> = planned_change
        .plan
        .iter()
        .flat_map(TemplatePlan::override_flags_of_differences)
        .collect();
    let overrides = differences.iter().filter(|is_override| **is_override).count();
    let others = differences.len().saturating_sub(overrides);
    html! {
        li.row {
            div.row-main {
                p { (labels::agent_link(agent.id, &agent.name)) }
                p.muted {
                    @match version { Some(version) => { "Version " (version) }, None => "An application was interrupted" }
                    ", " (count_with_noun(others, "limit")) " to change, " (count_with_noun(overrides, "override"))
                    @if let Some(plan) = &planned_change.plan {
                        @if plan.direction.widens { ", widens" }
                        @if plan.direction.narrows { ", narrows" }
                    }
                    @if let BulkOutcome::Failed(_) = planned_change.outcome { " " span.chip.bad { "can’t be applied" } }
                }
                @if let Some(plan) = &planned_change.plan {
                    @for (title, count, are_overrides) in [("To change", others, false), ("Overrides", overrides, true)] {
                        @if count > 0 {
                            details.fold { summary { (title) } (change_list(&plan.differing_limits(are_overrides, catalog))) }
                        }
                    }
                }
            }
        }
    }
}

pub(crate) async fn submit_template_update(
    people: PeopleState,
    Path(name): Path<String>,
    verified_form: VerifiedForm,
) -> Reply {
    let named_so = require_id(TemplateName::parse(&name))?;
    let edition = people.current_catalog().await?;
    let mut form = verified_form.parse_posted_form(FormName::Template);
    let if_match = form.parse_version();
    let update = parse_template_limits(&mut form, &edition.catalog);
    let (session, path) = (&verified_form.session, paths::template_path(&named_so));
    let layout = Layout::new(session, people.now());
    let (status, layout) = match if_match.zip(update) {
        None => (StatusCode::BAD_REQUEST, layout.with_form(form)),
        Some((if_match, update)) => {
            let put = people.put_template(&session.person, &named_so, Some(if_match), &update);
            match Box::pin(put).await {
                Ok(_) => return Ok(redirect_with_notice(&path, PageMessage::TemplateSaved)),
                Err(error) => layout.with_rejected_form(form, error, &[], CONFLICT)?,
            }
        }
    };
    template_page_response(&people, session, layout, &name, &Steps::default(), status).await
}

const CONFLICT: &str = "The template was edited after you opened the page, so nothing was saved now.";

pub(crate) async fn submit_template_removal(
    people: PeopleState,
    Path(name): Path<String>,
    verified_form: VerifiedForm,
) -> Reply {
    let name = require_id(TemplateName::parse(&name))?;
    let mut form = verified_form.parse_posted_form(FormName::Plain);
    let Some(if_match) = form.parse_version() else {
        return Ok(see_other(&paths::template_path(&name)));
    };
    Box::pin(people.remove_template(&verified_form.session.person, &name, if_match)).await?;
    Ok(redirect_with_notice(paths::TEMPLATES, PageMessage::TemplateRemoved))
}

/// Redirects a `GET` of a path that accepts only `POST`.
pub(crate) async fn redirect_to_template(Path(name): Path<String>) -> Reply {
    let name = require_id(TemplateName::parse(&name))?;
    Ok(see_other(&paths::template_path(&name)))
}

/// The value of the query parameter `act` that reports that a template was applied.
const APPLIED: &str = "applied";

/// The progress of applying a template: the number of agents per result, and the cursor of the next agents.
#[derive(Debug, Default)]
struct Steps {
    from: Option<purser_store::AgentCursor>,
    step: u32,
    done: u32,
    unchanged: u32,
    failed: u32,
}

impl Steps {
    fn from_query(query: &mut Query) -> Self {
        let mut number = |name: &str, max| query.parse_integer(name, 0, max).unwrap_or_default();
        Self {
            step: number("step", MAX_STEPS),
            done: number("done", u32::MAX),
            unchanged: number("unchanged", u32::MAX),
            failed: number("failed", u32::MAX),
            from: query.parse_with("cursor", cursor::parse_agent_cursor, cursor::FORM),
        }
    }

    fn url(&self, path: &str) -> String {
        let number = |number: u32| (number > 0).then(|| number.to_string());
        crate::address::path_with_query(
            path,
            [
                ("act", Some(APPLIED.to_owned())),
                ("cursor", self.from.map(cursor::format_agent_cursor)),
                ("step", number(self.step)),
                ("done", number(self.done)),
                ("unchanged", number(self.unchanged)),
                ("failed", number(self.failed)),
            ],
        )
    }

    fn progress_message(&self) -> Markup {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        html! {
            @if self.done > 0 || self.unchanged > 0 || self.failed > 0 {
                div.message.good[self.failed == 0].bad[self.failed > 0] role="status" {
                    p {
                        "The template was applied to " (count_with_noun(count(self.done), "agent")) ". "
                        (self.unchanged) " had its limits already."
                        @if self.failed > 0 { " " (self.failed) " could not be changed: apply it again." }
                        @if self.from.is_some() { " There are more: apply it again." }
                    }
                }
            }
        }
    }
}

/// Applies the template to up to 25 followers, then repeats the `POST` by a 307 (RFC 9110 §15.4.8) for the rest.
pub(crate) async fn submit_template_application(
    people: PeopleState,
    Path(name): Path<String>,
    uri: Uri,
    form: VerifiedForm,
) -> Reply {
    let mut query = Query::without_blanks(&uri);
    let mut steps = Steps::from_query(&mut query);
    if filter_error_message(query).is_some() {
        return Err(Error::from(ErrorKind::NotFound).into());
    }
    let session = &form.session;
    let own = people
        .read_template(&session.person, &require_id(TemplateName::parse(&name))?)
        .await?;
    let overrides = Overrides::from_name(form.parse_posted_form(FormName::Plain).field_text("overrides"))
        .unwrap_or(Overrides::Keep);
    let path = paths::template_path(&own.template.name);
    let (agents, next) = read_template_followers(&people, session, &own, &steps).await?;
    let applied = people.apply_template_to_agents(&session.person, agents, own.template, overrides, ApplyTo::Followers);
    for applied in Box::pin(applied).await? {
        let count = match applied.outcome {
            BulkOutcome::Done => &mut steps.done,
            BulkOutcome::Unchanged => &mut steps.unchanged,
            BulkOutcome::Failed(error) if matches!(error.kind(), ErrorKind::RecentSignInRequired { .. }) => {
                return Err(error.into());
            }
            BulkOutcome::Failed(_) => &mut steps.failed,
        };
        *count = count.saturating_add(1);
    }
    steps.from = next;
    steps.step = steps.step.saturating_add(1);
    if next.is_none() || steps.step >= MAX_STEPS {
        steps.step = 0;
        return Ok(see_other(&steps.url(&path)));
    }
    Ok(temporary_redirect(&steps.url(&format!("{path}/apply"))))
}
