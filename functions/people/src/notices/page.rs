//! The page with the notification settings, and its forms.

use crate::notices::api::{kinds, parse_edit};
use crate::notices::operations::{NoticesEdit, OwnNotices};
use crate::redirect::see_other;
use crate::sessions::session::{PageSession, VerifiedForm};
use crate::state::People;
use crate::ui::datetime::both;
use crate::ui::form::{BoxOption, FieldOf, Form, FormName, Inputs, set};
use crate::ui::labels;
use crate::ui::layout::{Button, Layout, NavItem, version_input};
use crate::ui::notice::{Notice, done};
use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::{Failure, Reply};
use purser_domain::{ChannelTerms, DEFAULT_NOTICES, ErrorKind, NoticeChannel, NoticeEnd, WebhookUrl};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const PAGE: &str = "/dashboard/notices";
/// The fields of the request body, each with its form input and label.
const FIELDS: [FieldOf; 2] = [
    ("mail", "mail_kinds", "Mail"),
    ("slack", "slack_url", "Incoming webhook"),
];
const USUAL: &str = "On by default: approvals, freezes, changed payees and low wallets.";

/// Shows `GET /dashboard/notices`: the notification settings.
pub(crate) async fn show(State(people): State<Arc<People>>, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_notice(&uri);
    let own = people.notices(&session.person).await?;
    Ok(page(&layout, &own, people.mails).into_response())
}

/// Redirects a `GET` for a form's path to the page.
pub(crate) async fn back() -> Response {
    see_other(PAGE)
}

/// Handles `POST /dashboard/notices`: saves the notification settings.
pub(crate) async fn edit(State(people): State<Arc<People>>, posted: VerifiedForm) -> Reply {
    let mut form = posted.form(FormName::Notices);
    let own = people.notices(&posted.session.person).await?;
    let edit = read_edit(&mut form, own.settings.terms.slack.is_some());
    let person = &posted.session.person;
    let Some((edit, if_match)) = edit.zip(form.version()) else {
        return again(&people, &posted, StatusCode::BAD_REQUEST, form, None).await;
    };
    let Err(error) = people.edit_notices(person, own, if_match, &edit).await else {
        return Ok(done(PAGE, Notice::ChannelsSaved));
    };
    let failure = Failure::from(error);
    let problem = match failure.error().kind() {
        ErrorKind::InvalidRequest(problems) => {
            form.refuse(problems, &FIELDS);
            None
        }
        ErrorKind::VersionConflict { .. } => Some(CONFLICT.to_owned()),
        _ => return Err(failure),
    };
    again(&people, &posted, failure.status(), form, problem).await
}

const CONFLICT: &str = "These settings were changed elsewhere after you opened the page, so nothing was saved. The page shows the current settings. Your input is kept in the form.";

/// Handles `POST /dashboard/notices/test`: requests a test notification on the enabled channels.
pub(crate) async fn test(State(people): State<Arc<People>>, posted: VerifiedForm) -> Reply {
    let channels = people.test_notices(&posted.session.person).await?;
    let notice = if channels.is_empty() {
        Notice::NoChannelOn
    } else {
        Notice::TestNoticeSent
    };
    Ok(done(PAGE, notice))
}

/// Shows the page in its current state, with the rejected form.
async fn again(
    people: &People,
    posted: &VerifiedForm,
    status: StatusCode,
    form: Form,
    problem: Option<String>,
) -> Reply {
    let own = people.notices(&posted.session.person).await?;
    let layout = Layout {
        problem,
        typed: Some(form),
        ..Layout::new(&posted.session, people.now())
    };
    Ok((status, page(&layout, &own, people.mails)).into_response())
}

/// Parses the update. If the result is `None`, the form has at least one validation error.
fn read_edit(form: &mut Form, has_webhook: bool) -> Option<NoticesEdit> {
    let mail = read_channel(form, "mail");
    let mut slack = read_channel(form, "slack");
    let url = Some(form.text("slack_url").to_owned()).filter(|text| !text.is_empty());
    let is_removed = !form.text("slack_removed").is_empty();
    if is_removed && url.is_some() {
        form.wrong("slack_url", "Incoming webhook: enter a URL or remove it, not both.");
    }
    let is_there = !is_removed && (has_webhook || url.is_some());
    set(&mut slack, "url", url);
    let body = json!({"mail": mail, "slack": is_there.then_some(slack)});
    form.take_parsed(parse_edit(&body), &FIELDS)
}

fn read_channel(form: &mut Form, name: &str) -> Value {
    let enabled = !form.text(&format!("{name}_on")).is_empty();
    let field = format!("{name}_kinds");
    if form.all(&field).next().is_none() && enabled {
        form.wrong(&field, "Choose at least one event, or switch the channel off.");
    }
    let kinds: BTreeSet<&str> = form.all(&field).collect();
    // The default kinds are stored as null, so that the channel follows later changes of the defaults.
    let is_usual = kinds.is_empty() || kinds == DEFAULT_NOTICES.iter().map(|kind| kind.name()).collect();
    json!({"enabled": enabled, "kinds": (!is_usual).then_some(kinds)})
}

fn page(layout: &Layout, own: &OwnNotices, mails: bool) -> Markup {
    let settings = &own.settings;
    let inputs = layout.inputs(FormName::Notices);
    let slack = settings.terms.slack.as_ref();
    let off = ChannelTerms::default();
    layout.page("Notices", NavItem::Notices, &html! {
        div.section-head {
            h1 { "Notices" }
            (layout.button(&format!("{PAGE}/test"), &Button::plain("Send a test")))
        }
        p {
            "The notices that you receive, and where. Several are grouped into one message, at most one every five minutes. "
            "Links open the dashboard; none approves a payment."
        }
        (layout.form(PAGE, &html! {
            (version_input(settings.version))
            section aria-labelledby="mail-title" {
                h2 id="mail-title" { "Mail" }
                @match (&settings.address, mails) {
                    (_, false) => p.empty { "This Purser sends no mail. Its operators can configure a sender." },
                    (None, true) => p.empty { "Your account has no verified mail address. Once it has one, sign in again." },
                    (Some(address), true) => p { "To " strong { (address.as_str()) } ", the verified address of your account." },
                }
                (channel_end(layout, own, NoticeChannel::Mail))
                (channel(inputs, "mail", "Notify me by mail", &settings.terms.mail))
            }
            section aria-labelledby="slack-title" {
                h2 id="slack-title" { "Incoming webhook" }
                @match slack {
                    Some((place, _)) => p { "To a URL of " strong { (place.host) } ", which is not shown again." },
                    None => p {
                        "Anyone who has the URL can post there, so it is kept and not shown again."
                    },
                }
                (channel_end(layout, own, NoticeChannel::Slack))
                (inputs.optional_line("slack_url", if slack.is_some() { "Another Slack or Slack-compatible URL" } else { "Slack or Slack-compatible URL" }, "", WebhookUrl::MAX))
                @if slack.is_some() { (inputs.optional_box("slack_removed", "Remove it", false)) }
                (channel(inputs, "slack", "Notify me there", slack.map_or(&off, |(_, terms)| terms)))
            }
            button.primary type="submit" { "Save" }
        }))
    })
}

fn channel(inputs: Inputs<'_>, name: &str, label: &str, terms: &ChannelTerms) -> Markup {
    let chosen = terms.kinds();
    let options: Vec<BoxOption> = kinds()
        .map(|kind| BoxOption {
            value: kind.name().to_owned(),
            label: labels::event(kind).to_owned(),
            present: chosen.contains(&kind),
        })
        .collect();
    let more = chosen != DEFAULT_NOTICES.into();
    html! {
        (inputs.optional_box(&format!("{name}_on"), label, terms.enabled))
        details.fold open[inputs.is_typed() || more] {
            summary { "Choose events (" (chosen.len()) ")" }
            (inputs.boxes(&format!("{name}_kinds"), "Events", USUAL, &options))
        }
    }
}

fn channel_end(layout: &Layout, own: &OwnNotices, channel: NoticeChannel) -> Markup {
    html! {
        @if let Some(ended) = own.ended.get(&channel) {
            p.warning {
                @match ended.reason {
                    NoticeEnd::MailRefused => { "The mail service refused mail for this address" }
                    NoticeEnd::WebhookGone => { "The webhook responded that it no longer exists" }
                }
                ", " (both(ended.at, layout.now)) ". No notices are sent there until you save this page or a test succeeds."
            }
        }
    }
}
