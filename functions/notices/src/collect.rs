//! Turns events into pending notifications for each channel of a user that wants them. An event without an owner is
//! spread over all affected users, one page of users per message, which limits the work of a run.

use crate::{Notices, unread};
use purser_api::{MessageResult, NoticeOf, NoticeRequest, NoticeWork, SqsRecord};
use purser_domain::{
    Error, Event, EventKind, EventSubject, NoticeChannel, NoticeSettings, PersonId, Result, is_worth_telling,
    key_to_close, test_event, waiting_key,
};
use purser_store::{PERSON_PARTS, Waiting};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// The number of users that one message covers.
const PAGE: u32 = 10;

impl Notices {
    /// Processes an event from the event bus. Repetitions have no further effect.
    pub(crate) async fn collect_event(&self, record: &SqsRecord) -> Result<MessageResult> {
        let event = record.event()?;
        if let Some(owner) = event.owner() {
            self.collect(owner, &event).await?;
            return Ok(MessageResult::Done);
        }
        for part in PERSON_PARTS {
            let work = NoticeWork::Spread {
                event: event.clone(),
                part,
                after: None,
            };
            self.0.queue.send(&work).await?;
        }
        Ok(MessageResult::Done)
    }

    /// Enqueues the test notification that a user requested, or the notification about a failing webhook.
    pub(crate) async fn collect_request(&self, record: &SqsRecord) -> Result<MessageResult> {
        let NoticeRequest { person, of } = NoticeRequest::parse(&record.body).ok_or_else(unread)?;
        let source = self.0.event_source.clone();
        let event = match of {
            NoticeOf::Test(id) => test_event(source, &person, "notices", id),
            NoticeOf::Webhook(webhook) => {
                let failed = self.0.table.list_failed_calls(&[webhook]).await?;
                match failed.get(&webhook) {
                    Some(calls) => calls.event(source, &person, webhook),
                    // A call of the webhook has succeeded meanwhile.
                    None => return Ok(MessageResult::Done),
                }
            }
        };
        let event = event.map_err(|problem| Error::internal("making a requested event", problem))?;
        self.collect(&person, &event).await?;
        Ok(MessageResult::Done)
    }

    /// Processes a message of the notification queue.
    pub(crate) async fn work(&self, record: &SqsRecord, last_call: Instant) -> Result<MessageResult> {
        match NoticeWork::parse(&record.body).ok_or_else(unread)? {
            NoticeWork::Spread { event, part, after } => self.spread(event, part, after, last_call).await,
            NoticeWork::Flush { person, channel } => self.flush(record, &person, channel, last_call).await,
        }
    }

    async fn collect(&self, person: &PersonId, event: &Event) -> Result<()> {
        let settings = self.0.table.notices_of(person).await?;
        self.collect_for(&settings, event).await
    }

    async fn collect_for(&self, settings: &NoticeSettings, event: &Event) -> Result<()> {
        let shared = &self.0;
        let (person, now) = (&settings.person, shared.clock.now());
        if let Some(key) = key_to_close(event) {
            let leading = NoticeChannel::ALL
                .iter()
                .filter(|channel| settings.terms_of(**channel).is_some());
            for channel in leading {
                shared
                    .table
                    .settle_notices(person, *channel, std::slice::from_ref(&key), now)
                    .await?;
            }
        }
        let channels: Vec<NoticeChannel> = settings
            .wanting(event.kind())
            .filter(|channel| self.can_use(*channel))
            .collect();
        if channels.is_empty() {
            return Ok(());
        }
        if !is_worth_telling(event, now) {
            log_too_late(person, event);
            return Ok(());
        }
        // A test is sent even on a disabled channel, because the user wants to know whether the channel works.
        let ended = match event.kind() {
            EventKind::WebhookTest => BTreeMap::new(),
            _ => shared.table.list_ended_channels(settings).await?,
        };
        let row = Waiting {
            key: waiting_key(event),
            event: event.clone(),
        };
        for channel in channels.into_iter().filter(|channel| !ended.contains_key(channel)) {
            // The flush of a notification that is already pending is sent again, because the function may have ended
            // after it stored the notification.
            if shared.table.enqueue(person, channel, &row, now).await? {
                let flush = NoticeWork::Flush {
                    person: person.clone(),
                    channel,
                };
                shared.queue.send(&flush).await?;
            }
        }
        Ok(())
    }

    /// Stores notifications for a page of users, as far as time permits, and sends a message for the remaining users.
    async fn spread(
        &self,
        event: Event,
        part: char,
        after: Option<PersonId>,
        last_call: Instant,
    ) -> Result<MessageResult> {
        let shared = &self.0;
        let people = shared.table.recipients(part, after.as_ref(), PAGE).await?;
        let is_last = u32::try_from(people.len()).unwrap_or(u32::MAX) < PAGE;
        let (mut last, mut is_cut_off) = (None, false);
        for (person, settings) in people {
            // At least one user is processed, so that each message makes progress.
            is_cut_off = last.is_some() && Instant::now() > last_call;
            if is_cut_off {
                break;
            }
            match settings {
                Ok(settings) => self.tell_if_concerned(&settings, &event).await?,
                // A user with an unreadable row is skipped, so that all others get their notifications.
                Err(error) => tracing::error!(%person, cause = %error, "notice.unreadable"),
            }
            last = Some(person);
        }
        if let Some(last) = last.filter(|_| is_cut_off || !is_last) {
            let next = NoticeWork::Spread {
                event,
                part,
                after: Some(last),
            };
            shared.queue.send(&next).await?;
        }
        Ok(MessageResult::Done)
    }

    async fn tell_if_concerned(&self, settings: &NoticeSettings, event: &Event) -> Result<()> {
        if settings.wanting(event.kind()).next().is_some() && self.concerns(&settings.person, event).await? {
            self.collect_for(settings, event).await?;
        }
        Ok(())
    }

    /// Whether an event without an owner affects a user. An event about a service does if one of the user's agents may
    /// use the service.
    async fn concerns(&self, person: &PersonId, event: &Event) -> Result<bool> {
        match event.subject() {
            EventSubject::Service(service) => self.0.ledger.has_service_enabled(person.as_str(), *service).await,
            EventSubject::Deployment => Ok(true),
            EventSubject::Agent(_) | EventSubject::Person(_) => Ok(false),
        }
    }

    /// Whether a channel is usable. Mail needs a configured sender.
    pub(crate) fn can_use(&self, channel: NoticeChannel) -> bool {
        match channel {
            NoticeChannel::Mail => self.0.mail.is_some(),
            NoticeChannel::Slack => true,
        }
    }
}

/// Logs an event that is dropped although the user wants it, because the event is a day old or its approval is closed.
pub(crate) fn log_too_late(person: &PersonId, event: &Event) {
    tracing::warn!(
        %person,
        event.id = %event.id(),
        event.kind = event.kind().name(),
        "notice.too_late"
    );
}
