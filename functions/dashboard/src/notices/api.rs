//! JSON API under `/notices`: a user's settings for notifications by mail and incoming webhook.

use crate::caller::Caller;
use crate::notices::operations::{NotificationSettingsUpdate, OwnNotificationSettings, SlackUpdate};
use crate::request::combine_results_and_errors;
use crate::state::{People, PeopleState};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Body, IfMatch, Listed, Member as _, Reply, WEB, endpoint, view, with_etag};
use purser_domain::{ChannelSettings, DEFAULT_NOTICES, EventKind, NoticeChannel, Timestamp, WebhookUrl};
use serde_json::{Value, json};

purser_api::views! {
    /// The user's notification settings, by channel.
    pub(crate) struct NoticesView {
        fn new(owned_settings: &OwnNotificationSettings, sends_mail: bool);
        let settings = &owned_settings.settings;
        let slack = settings.terms.slack.as_ref();

        /// The settings' version. Each update increases the version. Send it in `If-Match`.
        version: u64 = settings.version,
        mail: MailView = MailView {
            address: settings.address.as_ref().map(|address| address.as_str().to_owned()),
            available: sends_mail,
            channel: ChannelView::new(owned_settings, NoticeChannel::Mail, &settings.terms.mail),
        },
        /// The incoming webhook. Null if none is configured.
        slack: Option<SlackView> = slack.map(|(destination, terms)| SlackView {
            host: destination.host.clone(),
            channel: ChannelView::new(owned_settings, NoticeChannel::Slack, terms),
        }),
        /// The default event kinds, which apply to a channel whose `kinds` is null.
        usual_kinds: Vec<&'static str> = DEFAULT_NOTICES.iter().map(|kind| kind.name()).collect(),
    }
}

/// Settings for notifications by mail.
#[view(MailNotices)]
pub(crate) struct MailView {
    /// The mail address that your identity provider verified. Null if no address is verified.
    address: Option<String>,
    /// Whether this deployment sends mail.
    available: bool,
    #[serde(flatten)]
    channel: ChannelView,
}

/// Settings for notifications to a Slack-compatible incoming webhook.
#[view(SlackNotices)]
pub(crate) struct SlackView {
    /// The host of the incoming webhook. The full URL is secret and is not shown.
    #[schema(example = "hooks.slack.com")]
    host: String,
    #[serde(flatten)]
    channel: ChannelView,
}

purser_api::views! {
    /// The settings and the state of a channel.
    pub(crate) struct ChannelView as NoticeChannel {
        fn new(owned_settings: &OwnNotificationSettings, channel: NoticeChannel, settings: &ChannelSettings);
        let kinds = settings.kinds.as_ref();
        let ended = owned_settings.ended.get(&channel);

        enabled: bool = settings.enabled,
        /// The event kinds that the channel receives. Null if the channel receives the default kinds.
        kinds: Option<Vec<&'static str>> = kinds.map(|kinds| kinds.iter().map(|kind| kind.name()).collect()),
        /// The time at which delivery failed permanently. The channel is not used until you update the channel or a
        /// test succeeds. Null if the channel works.
        ended_at: Option<Timestamp> = ended.map(|ended| ended.at),
        /// Why delivery failed permanently: `mail_refused` or `webhook_gone`. Null if the channel works.
        ended_reason: Option<&'static str> = ended.map(|ended| ended.reason.name()),
    }
}

/// A queued test notification.
#[view(SentNoticeTest)]
pub(crate) struct SentTest {
    /// The channels to which the test is sent: `mail` or `slack`.
    channels: Vec<&'static str>,
}

purser_api::field! {
    /// The URL of an incoming webhook.
    pub(crate) struct IncomingUrl(WebhookUrl):
    |value| value.as_str().and_then(WebhookUrl::parse).ok_or_else(|| WebhookUrl::FORM.to_owned()),
    json!({
        "type": "string",
        "format": "uri",
        "pattern": WEB,
        "maxLength": WebhookUrl::MAX,
        "example": "https://hooks.slack.com/services/<secret>",
    })
}

purser_api::field! {
    /// An event kind that users can be notified about.
    pub(crate) struct NoticeKind(EventKind):
    |value| {
        let kind = value.as_str().and_then(EventKind::from_name).filter(|kind| *kind != EventKind::WebhookTest);
        kind.ok_or_else(|| format!("must be one of: {}", notifiable_kinds().map(EventKind::name).collect::<Vec<_>>().join(", ")))
    },
    json!({"type": "string", "pattern": format!("^({})$", notifiable_kinds().map(|kind| kind.name().replace('.', "\\.")).collect::<Vec<_>>().join("|"))})
}

impl Listed for NoticeKind {
    const NAME: &'static str = "NoticeKind";

    fn item_schema() -> Value {
        json!({"description": "An event type; docs/events.md lists them.", "example": "purser.approval.asked.v1"})
    }
}

pub(crate) fn notifiable_kinds() -> impl Iterator<Item = EventKind> {
    EventKind::ALL
        .iter()
        .copied()
        .filter(|kind| *kind != EventKind::WebhookTest)
}

purser_api::body! {
    /// New settings for notifications by mail.
    pub(crate) struct MailBody {
        /// Whether the channel is used. The default is true.
        enabled: Option<bool>,
        /// The event kinds that the channel receives. If absent, the default kinds.
        kinds: Option<Vec<NoticeKind>> = {"minItems": 1},
    }
}

purser_api::body! {
    /// New settings for notifications to a Slack-compatible incoming webhook.
    pub(crate) struct SlackBody {
        /// An https URL on the public internet. If absent, the stored URL is kept.
        url: Option<IncomingUrl>,
        /// Whether the channel is used. The default is true.
        enabled: Option<bool>,
        /// The event kinds that the channel receives. If absent, the default kinds.
        kinds: Option<Vec<NoticeKind>> = {"minItems": 1},
    }
}

purser_api::body! {
    /// New notification settings, which replace the current settings. An absent field gets its default.
    pub(crate) struct NoticesBody {
        /// Settings for mail, which is sent to the address that your identity provider verified.
        mail: Option<MailBody>,
        /// The incoming webhook. If absent, the stored incoming webhook is removed.
        slack: Option<SlackBody>,
    }
}

/// Does not check whether Purser may call the webhook's URL: `update_notification_settings` checks the URL.
pub(crate) fn parse_settings_update(body: &Value) -> purser_domain::Result<NotificationSettingsUpdate> {
    let body = NoticesBody::parse(body)?;
    let terms = |enabled: Option<bool>, kinds: Option<Vec<NoticeKind>>| ChannelSettings {
        enabled: enabled.unwrap_or(true),
        kinds: kinds.map(|kinds| kinds.into_iter().map(|kind| kind.0).collect()),
    };
    Ok(NotificationSettingsUpdate {
        mail: body
            .mail
            .map_or_else(ChannelSettings::default, |mail| terms(mail.enabled, mail.kinds)),
        slack: body.slack.map(|slack| SlackUpdate {
            url: slack.url.map(|url| url.0),
            terms: terms(slack.enabled, slack.kinds),
        }),
    })
}

/// Read your notification settings.
#[endpoint(
    get "/notices", operation_id = "read_notices", body = NoticesView, returns = "Your notification settings.",
    headers(("ETag" = String, description = "The version of the settings, for `If-Match`."))
)]
pub(crate) async fn read_notification_settings(people: PeopleState, user: Caller) -> Reply {
    let own = people.read_notification_settings(&user).await?;
    Ok(notification_settings_response(&people, &own))
}

/// Replace your notification settings.
///
/// The update also re-enables a channel whose delivery failed permanently.
#[endpoint(
    put "/notices", operation_id = "replace_notices", body = NoticesView,
    returns = "Your updated notification settings.",
    headers(("ETag" = String, description = "The version of the settings, for `If-Match`.")),
    errors(RecentSignInRequired)
)]
pub(crate) async fn replace_notification_settings(
    people: PeopleState,
    user: Caller,
    if_match: IfMatch,
    body: Body<NoticesBody>,
) -> Reply {
    let own = people.read_notification_settings(&user).await?;
    let update = body.json().and_then(|body| parse_settings_update(&body));
    let (update, if_match) = combine_results_and_errors(update, if_match.into_precondition())?;
    let own = people
        .update_notification_settings(&user, own, if_match, &update)
        .await?;
    Ok(notification_settings_response(&people, &own))
}

/// Send a test notification to your enabled channels, together with pending notifications.
#[endpoint(
    post "/notices/test", operation_id = "test_notices", status = 202, body = SentTest,
    returns = "The notification was queued. Purser sends the notification within seconds. If Purser sent another notification recently, the test notification is sent some minutes after that notification."
)]
pub(crate) async fn test_notifications(people: PeopleState, user: Caller) -> Reply {
    let channels = people.request_test_notification(&user).await?;
    let channels = channels.into_iter().map(NoticeChannel::name).collect();
    Ok((StatusCode::ACCEPTED, Json(SentTest { channels })).into_response())
}

fn notification_settings_response(people: &People, owned_settings: &OwnNotificationSettings) -> Response {
    with_etag(
        owned_settings.settings.version,
        Json(NoticesView::new(owned_settings, people.mails)),
    )
}
