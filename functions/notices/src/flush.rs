//! Sends the pending notifications of a channel as one message, when the channel's pause is over.
//!
//! Pending rows are deleted after the message is sent, so a run that is interrupted in between causes a second message.
//! A flush first reserves the channel with a conditional write, so only one flush per channel runs at a time.
//!
//! Before that write, the flush sends a delayed queue message that starts the next flush (`NotificationPace::waker`).
//! The queue message that started this flush can't be reused, because SQS may deliver a deleted message again.

use crate::{Notifications, collect::log_dropped_event, send::SendResult};
use purser_api::{MessageResult, SqsRecord};
use purser_domain::{
    AgentId, ApprovalId, Duration, EndedChannel, Error, Event, EventKind, EventSubject, NoticeChannel, NoticeEnd,
    NotificationMessage, NotificationNames, NotificationPace, NotificationSettings, OperationSlug, Result, ServiceId,
    Timestamp, UserId, approval_reason, is_worth_sending, listed_events, sort_by_urgency,
};
use purser_store::Waiting;
use std::collections::BTreeSet;
use tokio::time::Instant;

/// The maximum number of events in one message. The next message has the remaining events.
const MAX: u32 = 200;

struct Next {
    wanted: Vec<Waiting>,
    is_full: bool,
}

impl Notifications {
    pub(crate) async fn flush_channel(
        &self,
        record: &SqsRecord,
        user: &UserId,
        channel: NoticeChannel,
        last_call: Instant,
    ) -> Result<MessageResult> {
        let shared = &self.0;
        let settings = shared.table.read_notification_settings(user).await?;
        let stored = shared.table.read_notification_pace(user, channel).await?;
        let is_waker = stored.waker.as_ref() == Some(&record.message_id);
        let mut pace = stored.with_destination(settings.destination_fingerprint(channel));
        let now = shared.clock.now();
        if let Some(pause) = pace.time_until_next(now) {
            return self.postpone_flush(record, &pace, pause).await;
        }
        let mut waiting = self.read_next_notifications(&settings, channel, now).await?;
        if waiting.wanted.is_empty() && is_waker {
            // While a wake-up message is stored, other runs delete their messages and rely on the wake-up.
            // This message is the wake-up, so this run clears the stored message before the second read.
            pace = pace.without_wake_up();
            if !shared.table.put_pace_if_unchanged(user, channel, &pace, now).await? {
                return Ok(MessageResult::Stays);
            }
            waiting = self.read_next_notifications(&settings, channel, now).await?;
        }
        if waiting.wanted.is_empty() {
            return Ok(if waiting.is_full {
                MessageResult::Stays
            } else {
                MessageResult::Done
            });
        }
        if Instant::now() > last_call {
            return Ok(MessageResult::Stays);
        }
        let waker = shared.queue.schedule_flush(user, channel).await?;
        let turn = pace.reserve_send_slot(&waker, now);
        if !shared.table.put_pace_if_unchanged(user, channel, &turn, now).await? {
            // A concurrent flush has reserved the channel since this flush read the pace.
            let pace = shared.table.read_notification_pace(user, channel).await?;
            return match pace.time_until_next(now) {
                Some(pause) => self.postpone_flush(record, &pace, pause).await,
                None => Ok(MessageResult::Stays),
            };
        }
        let (keys, mut events): (Vec<String>, Vec<Event>) = waiting
            .wanted
            .into_iter()
            .map(|waiting| (waiting.key, waiting.event))
            .unzip();
        sort_by_urgency(&mut events);
        let result = self.send_message(&settings, channel, &events).await?;
        self.store_send_result(&settings, channel, turn, result, &keys).await?;
        log_send_result(user, channel, events.len(), result);
        if matches!(result, SendResult::Taken(_)) && events.iter().any(|event| event.kind() == EventKind::WebhookTest) {
            shared.table.remove_ended_channel(user, channel).await?;
        }
        Ok(MessageResult::Done)
    }

    /// Handles a queue message that arrived too early. Deletes the message if another message will start the
    /// channel's next flush, and otherwise hides the message for `pause`.
    async fn postpone_flush(
        &self,
        record: &SqsRecord,
        pace: &NotificationPace,
        pause: Duration,
    ) -> Result<MessageResult> {
        if pace.waker.as_ref().is_some_and(|waker| *waker != record.message_id) {
            return Ok(MessageResult::Done);
        }
        self.0.queue.hide_message(&record.receipt_handle, pause).await?;
        Ok(MessageResult::Stays)
    }

    /// Reads the next notifications to send, and deletes obsolete notifications.
    async fn read_next_notifications(
        &self,
        settings: &NotificationSettings,
        channel: NoticeChannel,
        now: Timestamp,
    ) -> Result<Next> {
        let (table, user) = (&self.0.table, &settings.person);
        let waiting = table.read_waiting_notifications(user, channel, MAX).await?;
        let is_full = waiting.len() >= usize::try_from(MAX).unwrap_or(usize::MAX);
        let (wanted, over) = self.separate_obsolete_notifications(settings, channel, waiting, now);
        table.remove_waiting_notifications(user, channel, &over, now).await?;
        Ok(Next { wanted, is_full })
    }

    /// Returns the notifications to send, and the keys of obsolete notifications.
    fn separate_obsolete_notifications(
        &self,
        settings: &NotificationSettings,
        channel: NoticeChannel,
        notifications: Vec<(String, Result<Event>)>,
        now: Timestamp,
    ) -> (Vec<Waiting>, Vec<String>) {
        let is_wanted = |event: &Event| {
            let is_theirs = event.owner().is_none_or(|owner| *owner == settings.person);
            is_theirs
                && self.is_channel_usable(channel)
                && settings.channels_for_event(event).any(|wanting| wanting == channel)
        };
        let (mut wanted, mut over) = (Vec::new(), Vec::new());
        for (key, event) in notifications {
            match event {
                Ok(event) if !is_worth_sending(&event, now) => {
                    log_dropped_event(&settings.person, &event);
                    over.push(key);
                }
                Ok(event) if is_wanted(&event) => wanted.push(Waiting { key, event }),
                Ok(_) => over.push(key),
                Err(error) => {
                    tracing::error!(person = %settings.person, cause = %error, "notice.unreadable");
                    over.push(key);
                }
            }
        }
        (wanted, over)
    }

    async fn send_message(
        &self,
        settings: &NotificationSettings,
        channel: NoticeChannel,
        events: &[Event],
    ) -> Result<SendResult> {
        let names = self.read_event_names(&settings.person, listed_events(events)).await;
        let Some(message) = NotificationMessage::for_events(events, &names) else {
            return Ok(SendResult::nothing_to_send());
        };
        match channel {
            NoticeChannel::Mail => self.mail_to_user(settings, &message).await,
            NoticeChannel::Slack => self.post_to_user_webhook(settings, &message).await,
        }
    }

    /// Reads the current names and reasons for a message. Leaves out names of agents that now belong to another user,
    /// who may have chosen them.
    async fn read_event_names(&self, user: &UserId, events: &[Event]) -> NotificationNames {
        let shared = &self.0;
        let agents: BTreeSet<AgentId> = events.iter().filter_map(Event::agent).collect();
        let request = events.iter().filter(|event| event.kind() == EventKind::ApprovalAsked);
        let request = request.filter_map(|event| ApprovalId::parse(event.data().find_text("approval_id")?));
        let (agents, approvals, edition) = tokio::join!(
            shared.ledger.read_agents(agents),
            shared.ledger.read_approvals(request),
            async { shared.catalog.current(shared.clock.now()).await }
        );
        let unnamed = |error: &Error| tracing::warn!(person = %user, cause = %error, "notice.without_names");
        let mut agents = agents.inspect_err(unnamed).unwrap_or_default();
        agents.retain(|agent| agent.owner == user.as_str());
        let reasons = approvals.inspect_err(unnamed).unwrap_or_default().into_iter();
        let reasons = reasons.filter_map(|approval| {
            let agent = agents.iter().find(|agent| agent.id == approval.agent)?;
            Some((approval.id.to_string(), approval_reason(&approval, &agent.rules)))
        });
        let reasons = reasons.collect();
        let edition = edition.inspect_err(unnamed).ok();
        let service_of = |event: &Event| match event.subject() {
            EventSubject::Service(service) => Some(*service),
            _ => ServiceId::parse(event.data().find_text("service_id")?),
        };
        let services = events.iter().filter_map(service_of);
        let services = services.filter_map(|id| Some((id, edition.as_ref()?.catalog.find_by_id(id)?.name.clone())));
        let operations = events.iter().filter_map(|event| {
            let service = service_of(event)?;
            let slug = OperationSlug::parse(event.data().find_text("operation_id")?)?;
            let label = &edition
                .as_ref()?
                .catalog
                .find_by_id(service)?
                .find_operation(&slug)?
                .label;
            Some(((service, slug), label.clone()))
        });
        NotificationNames {
            agents: agents.iter().map(|agent| (agent.id, agent.name.clone())).collect(),
            services: services.collect(),
            operations: operations.collect(),
            reasons,
        }
    }

    /// Deletes the sent notifications first, and then stores the time of the next flush.
    async fn store_send_result(
        &self,
        settings: &NotificationSettings,
        channel: NoticeChannel,
        reserved_pace: NotificationPace,
        send_result: SendResult,
        keys: &[String],
    ) -> Result<()> {
        let shared = &self.0;
        let (user, now) = (&settings.person, shared.clock.now());
        let pace = match send_result {
            SendResult::Taken(_) => {
                shared
                    .table
                    .remove_waiting_notifications(user, channel, keys, now)
                    .await?;
                reserved_pace.record_sent_message(now)
            }
            SendResult::Ended(_) => {
                let ended = EndedChannel {
                    place: settings.destination_fingerprint(channel),
                    reason: match channel {
                        NoticeChannel::Mail => NoticeEnd::MailRefused,
                        NoticeChannel::Slack => NoticeEnd::WebhookGone,
                    },
                    at: now,
                };
                shared.table.record_ended_channel(user, channel, &ended).await?;
                shared
                    .table
                    .remove_waiting_notifications(user, channel, keys, now)
                    .await?;
                reserved_pace.release_send_slot(now)
            }
            SendResult::Failed(result, request) => {
                let [jitter] = shared.entropy.random_bytes()?;
                reserved_pace.after_failure(now, result, request, jitter)
            }
        };
        // If the condition fails, a later flush has stored a newer time.
        let _is_stored = shared.table.put_pace_if_unchanged(user, channel, &pace, now).await?;
        Ok(())
    }
}

/// Logs a message without address, URL or response.
fn log_send_result(user: &UserId, channel: NoticeChannel, events: usize, result: SendResult) {
    let outcome = match result {
        SendResult::Taken(_) => "sent",
        SendResult::Failed(..) => "failed",
        SendResult::Ended(_) => "ended",
    };
    tracing::info!(
        person = %user,
        channel = channel.name(),
        events,
        call.result = %result.call_result(),
        outcome,
        "notice.sent"
    );
}
