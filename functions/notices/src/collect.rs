//! Turns events into pending notifications. Each queue message covers one page of users.

use crate::Notifications;
use purser_api::{MessageResult, NotificationRequest, NotificationSource, NotificationWork, SqsRecord};
use purser_domain::{
    Error, Event, EventKind, EventSubject, NoticeChannel, NotificationSettings, Result, UserId,
    closed_approval_request_key, is_worth_sending, pending_event_key, test_event,
};
use purser_store::{USER_SHARDS, Waiting};
use std::collections::BTreeMap;
use tokio::time::Instant;

const PAGE: u32 = 10;

impl Notifications {
    /// Processes an event from the event bus. A repeated event has no further effect.
    pub(crate) async fn process_event(&self, record: &SqsRecord) -> Result<MessageResult> {
        let event = record.parse_event()?;
        if let Some(owner) = event.owner() {
            self.enqueue_for_user(owner, &event).await?;
            return Ok(MessageResult::Done);
        }
        for part in USER_SHARDS {
            let work = NotificationWork::Spread {
                event: event.clone(),
                part,
                after: None,
            };
            self.0.queue.send(&work).await?;
        }
        Ok(MessageResult::Done)
    }

    /// Stores the notification that a user (a test) or the Lambda function `webhooks` (a failing webhook) requested.
    pub(crate) async fn process_request(&self, record: &SqsRecord) -> Result<MessageResult> {
        let NotificationRequest { person: user, of } = record.parse_message()?;
        let source = self.0.event_source.clone();
        let event = match of {
            NotificationSource::Test(id) => test_event(source, &user, "notices", id),
            NotificationSource::Webhook(webhook) => {
                let failed = self.0.table.list_failed_calls(&[webhook]).await?;
                match failed.get(&webhook) {
                    Some(calls) => calls.failing_webhook_event(source, &user, webhook),
                    // A call of the webhook has succeeded since the notification was requested.
                    None => return Ok(MessageResult::Done),
                }
            }
        };
        let event = event.map_err(|error| Error::internal("building a requested event", error))?;
        self.enqueue_for_user(&user, &event).await?;
        Ok(MessageResult::Done)
    }

    pub(crate) async fn process_work_message(&self, record: &SqsRecord, last_call: Instant) -> Result<MessageResult> {
        match record.parse_message()? {
            NotificationWork::Spread { event, part, after } => {
                self.notify_next_recipients(event, part, after, last_call).await
            }
            NotificationWork::Flush { person: user, channel } => {
                self.flush_channel(record, &user, channel, last_call).await
            }
        }
    }

    async fn enqueue_for_user(&self, user: &UserId, event: &Event) -> Result<()> {
        let settings = self.0.table.read_notification_settings(user).await?;
        self.enqueue_for_enabled_channels(&settings, event).await
    }

    async fn enqueue_for_enabled_channels(&self, settings: &NotificationSettings, event: &Event) -> Result<()> {
        let shared = &self.0;
        let (user, now) = (&settings.person, shared.clock.now());
        if let Some(key) = closed_approval_request_key(event) {
            let leading = NoticeChannel::ALL
                .iter()
                .filter(|channel| settings.channel_settings(**channel).is_some());
            for channel in leading {
                shared
                    .table
                    .remove_waiting_notifications(user, *channel, std::slice::from_ref(&key), now)
                    .await?;
            }
        }
        let channels: Vec<NoticeChannel> = settings
            .channels_for_event(event)
            .filter(|channel| self.is_channel_usable(*channel))
            .collect();
        if channels.is_empty() {
            return Ok(());
        }
        if !is_worth_sending(event, now) {
            log_dropped_event(user, event);
            return Ok(());
        }
        // A test is sent even on a disabled channel, because the user wants to know whether the channel works.
        let ended = match event.kind() {
            EventKind::WebhookTest => BTreeMap::new(),
            _ => shared.table.list_ended_channels(settings).await?,
        };
        let row = Waiting {
            key: pending_event_key(event),
            event: event.clone(),
        };
        for channel in channels.into_iter().filter(|channel| !ended.contains_key(channel)) {
            // The flush message is sent again, because an earlier run may have stopped before sending it.
            if shared.table.try_enqueue_notification(user, channel, &row, now).await? {
                let flush = NotificationWork::Flush {
                    person: user.clone(),
                    channel,
                };
                shared.queue.send(&flush).await?;
            }
        }
        Ok(())
    }

    /// Stores notifications for a page of users. When time runs out, sends a message for the remaining users.
    async fn notify_next_recipients(
        &self,
        event: Event,
        user_shard: char,
        after: Option<UserId>,
        last_call: Instant,
    ) -> Result<MessageResult> {
        let shared = &self.0;
        let people = shared.table.read_recipients(user_shard, after.as_ref(), PAGE).await?;
        let is_last = u32::try_from(people.len()).unwrap_or(u32::MAX) < PAGE;
        let (mut last, mut is_cut_off) = (None, false);
        for (user, settings) in people {
            // At least one user is processed, so that each message makes progress.
            is_cut_off = last.is_some() && Instant::now() > last_call;
            if is_cut_off {
                break;
            }
            match settings {
                Ok(settings) => self.enqueue_if_user_is_affected(&settings, &event).await?,
                // An unreadable row of one user does not stop the notifications of other users.
                Err(error) => tracing::error!(person = %user, cause = %error, "notice.unreadable"),
            }
            last = Some(user);
        }
        if let Some(last) = last.filter(|_| is_cut_off || !is_last) {
            let next = NotificationWork::Spread {
                event,
                part: user_shard,
                after: Some(last),
            };
            shared.queue.send(&next).await?;
        }
        Ok(MessageResult::Done)
    }

    async fn enqueue_if_user_is_affected(&self, settings: &NotificationSettings, event: &Event) -> Result<()> {
        if settings.channels_for_event(event).next().is_some() && self.affects_user(&settings.person, event).await? {
            self.enqueue_for_enabled_channels(settings, event).await?;
        }
        Ok(())
    }

    /// Returns whether an event without an owner affects a user, for example by a service that the user's agents may
    /// use.
    async fn affects_user(&self, user: &UserId, event: &Event) -> Result<bool> {
        match event.subject() {
            EventSubject::Service(service) => self.0.ledger.has_service_enabled(user.as_str(), *service).await,
            EventSubject::Deployment => Ok(true),
            EventSubject::Agent(_) | EventSubject::Person(_) => Ok(false),
        }
    }

    /// Returns whether a channel is usable. Mail needs a configured sender.
    pub(crate) fn is_channel_usable(&self, channel: NoticeChannel) -> bool {
        match channel {
            NoticeChannel::Mail => self.0.mail.is_some(),
            NoticeChannel::Slack => true,
        }
    }
}

/// Logs that an event was dropped because it is a day old or the approval is closed.
pub(crate) fn log_dropped_event(user: &UserId, event: &Event) {
    tracing::warn!(
        person = %user,
        event.id = %event.id(),
        event.kind = event.kind().name(),
        "notice.too_late"
    );
}
