//! The page with a user's notification settings, and the forms that update and test the settings.

use crate::notices::api::{notifiable_kinds, parse_settings_update};
use crate::notices::operations::{NotificationSettingsUpdate, OwnNotificationSettings};
use crate::redirect::see_other;
use crate::sessions::session::{PageSession, VerifiedForm};
use crate::state::PeopleState;
use crate::ui::datetime::relative_and_exact_time;
use crate::ui::form::{BoxOption, FieldOf, Form, FormName, Inputs, set_field};
use crate::ui::layout::{Button, Layout, NavItem, version_input};
use crate::ui::notice::{PageMessage, redirect_with_notice};
use axum::{
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use purser_api::Reply;
use purser_domain::{ChannelSettings, DEFAULT_NOTICES, NoticeChannel, NoticeEnd, WebhookUrl};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PAGE: &str = "/dashboard/notices";
/// The JSON fields of the settings, each with the form field and label.
const FIELDS: [FieldOf; 2] = [
    ("mail", "mail_kinds", "Mail"),
    ("slack", "slack_url", "Incoming webhook"),
];
const USUAL: &str = "On by default: approvals, freezes, changed payees and low wallets.";

pub(crate) async fn show_notifications_page(people: PeopleState, session: PageSession, uri: Uri) -> Reply {
    let layout = Layout::new(&session, people.now()).with_message_in_url(&uri);
    let own = people.read_notification_settings(&session.person).await?;
    Ok(notifications_page(&layout, &own, people.mails).into_response())
}

/// Redirects a `GET` of a form's path to the page.
pub(crate) async fn redirect_to_notifications() -> Response {
    see_other(PAGE)
}

pub(crate) async fn submit_notification_settings(people: PeopleState, verified_form: VerifiedForm) -> Reply {
    let mut form = verified_form.parse_posted_form(FormName::Notices);
    let own = people.read_notification_settings(&verified_form.session.person).await?;
    let update = parse_settings_form(&mut form, own.settings.terms.slack.is_some());
    let user = &verified_form.session.person;
    let layout = Layout::new(&verified_form.session, people.now());
    let (status, layout) = match update.zip(form.parse_version()) {
        None => (StatusCode::BAD_REQUEST, layout.with_form(form)),
        Some((update, if_match)) => match people.update_notification_settings(user, own, if_match, &update).await {
            Ok(_) => return Ok(redirect_with_notice(PAGE, PageMessage::ChannelsSaved)),
            Err(error) => layout.with_rejected_form(form, error, &FIELDS, CONFLICT)?,
        },
    };
    let own = people.read_notification_settings(user).await?;
    Ok((status, notifications_page(&layout, &own, people.mails)).into_response())
}

const CONFLICT: &str = "These settings were changed elsewhere after you opened the page, so nothing was saved. The page shows the current settings. Your input is kept in the form.";

pub(crate) async fn submit_test_notification(people: PeopleState, form: VerifiedForm) -> Reply {
    let channels = people.request_test_notification(&form.session.person).await?;
    let message = if channels.is_empty() {
        PageMessage::NoChannelOn
    } else {
        PageMessage::TestNoticeSent
    };
    Ok(redirect_with_notice(PAGE, message))
}

/// If the result is `None`, the form has at least one validation error.
fn parse_settings_form(form: &mut Form, has_webhook: bool) -> Option<NotificationSettingsUpdate> {
    let mail = parse_channel_form(form, "mail");
    let mut slack = parse_channel_form(form, "slack");
    let url = Some(form.field_text("slack_url").to_owned()).filter(|text| !text.is_empty());
    let is_removed = !form.field_text("slack_removed").is_empty();
    if is_removed && url.is_some() {
        form.add_error("slack_url", "Incoming webhook: enter a URL or remove it, not both.");
    }
    let is_there = !is_removed && (has_webhook || url.is_some());
    set_field(&mut slack, "url", url);
    let body = json!({"mail": mail, "slack": is_there.then_some(slack)});
    form.take_value_or_add_errors(parse_settings_update(&body), &FIELDS)
}

fn parse_channel_form(form: &mut Form, name: &str) -> Value {
    let enabled = !form.field_text(&format!("{name}_on")).is_empty();
    let field = format!("{name}_kinds");
    if form.field_values(&field).next().is_none() && enabled {
        form.add_error(&field, "Choose at least one event, or switch the channel off.");
    }
    let kinds: BTreeSet<&str> = form.field_values(&field).collect();
    // The default kinds are stored as null, so that the channel follows later changes to the defaults.
    let is_usual = kinds.is_empty() || kinds == DEFAULT_NOTICES.iter().map(|kind| kind.name()).collect();
    json!({"enabled": enabled, "kinds": (!is_usual).then_some(kinds)})
}

fn notifications_page(layout: &Layout, owned_settings: &OwnNotificationSettings, sends_mail: bool) -> Markup {
    let settings = &owned_settings.settings;
    let inputs = layout.form_inputs(FormName::Notices);
    let slack = settings.terms.slack.as_ref();
    let off = ChannelSettings::default();
    layout.html_page("Notices", NavItem::Notices, &html! {
        div.section-head {
            h1 { "Notices" }
            (layout.button_form(&format!("{PAGE}/test"), &Button::plain("Send a test")))
        }
        p {
            "The notices that you receive, and where. Several are grouped into one message, at most one every five minutes. "
            "Links open the dashboard; none approves a payment."
        }
        (layout.post_form(PAGE, &html! {
            (version_input(settings.version))
            section aria-labelledby="mail-title" {
                h2 id="mail-title" { "Mail" }
                @match (&settings.address, sends_mail) {
                    (_, false) => p.empty { "This Purser sends no mail. Its operators can configure a sender." },
                    (None, true) => p.empty { "Your account has no verified mail address. Once it has one, sign in again." },
                    (Some(address), true) => p { "To " strong { (address.as_str()) } ", the verified address of your account." },
                }
                (ended_channel_message(layout, owned_settings, NoticeChannel::Mail))
                (channel_inputs(inputs, "mail", "Notify me by mail", &settings.terms.mail))
            }
            section aria-labelledby="slack-title" {
                h2 id="slack-title" { "Incoming webhook" }
                @match slack {
                    Some((destination, _)) => p { "To a URL of " strong { (destination.host) } ", which is not shown again." },
                    None => p {
                        "Anyone who has the URL can post there, so it is kept and not shown again."
                    },
                }
                (ended_channel_message(layout, owned_settings, NoticeChannel::Slack))
                (inputs.optional_text_input("slack_url", if slack.is_some() { "Another Slack or Slack-compatible URL" } else { "Slack or Slack-compatible URL" }, "", WebhookUrl::MAX))
                @if slack.is_some() { (inputs.optional_checkbox("slack_removed", "Remove it", false)) }
                (channel_inputs(inputs, "slack", "Notify me there", slack.map_or(&off, |(_, terms)| terms)))
            }
            button.primary type="submit" { "Save" }
        }))
    })
}

fn channel_inputs(inputs: Inputs<'_>, name: &str, label: &str, settings: &ChannelSettings) -> Markup {
    let chosen = settings.event_kinds();
    let options: Vec<BoxOption> = notifiable_kinds()
        .map(|kind| BoxOption {
            value: kind.name().to_owned(),
            label: kind.label().to_owned(),
            present: chosen.contains(&kind),
        })
        .collect();
    let more = chosen != DEFAULT_NOTICES.into();
    html! {
        (inputs.optional_checkbox(&format!("{name}_on"), label, settings.enabled))
        details.fold open[inputs.has_posted_form() || more] {
            summary { "Choose events (" (chosen.len()) ")" }
            (inputs.checkboxes(&format!("{name}_kinds"), "Events", USUAL, &options))
        }
    }
}

fn ended_channel_message(layout: &Layout, owned_settings: &OwnNotificationSettings, channel: NoticeChannel) -> Markup {
    html! {
        @if let Some(ended) = owned_settings.ended.get(&channel) {
            p.warning {
                @match ended.reason {
                    NoticeEnd::MailRefused => { "The mail service refused mail for this address" }
                    NoticeEnd::WebhookGone => { "The webhook responded that it no longer exists" }
                }
                ", " (relative_and_exact_time(ended.at, layout.now)) ". No notices are sent there until you save this page or a test succeeds."
            }
        }
    }
}
