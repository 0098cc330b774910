//! Sends the pending notices of a channel as one message, when its pause is over.
//!
//! Pending rows are deleted after the message is sent. A run that is cut off in between causes a second message. Only
//! one flush per channel runs at a time. While the next message must wait, one message of the queue returns for the
//! channel (`NoticePace::waker`); all others are deleted, since the pending notices are rows. That message is a new one,
//! or the one that holds the channel: a message that finds the channel busy may be a second delivery of one that is done
//! and deleted. After the flush releases the channel it reads the rows again, so an event whose message found the
//! channel busy is not missed.

use crate::{Notices, collect::log_too_late, send::Sent};
use purser_api::{MessageResult, NoticeWork, SqsRecord};
use purser_domain::{
    AgentId, ApprovalId, EndedChannel, Error, Event, EventKind, EventSubject, NoticeChannel, NoticeEnd, NoticeMessage,
    NoticeNames, NoticePace, NoticeSettings, OperationSlug, PersonId, Result, ServiceId, Timestamp, is_worth_telling,
    told_by_name, told_first, why_asked,
};
use purser_store::Waiting;
use std::collections::BTreeSet;
use tokio::time::Instant;

/// The most events in one message. The next message has the rest.
const MOST: u32 = 200;

impl Notices {
    pub(crate) async fn flush(
        &self,
        record: &SqsRecord,
        person: &PersonId,
        channel: NoticeChannel,
        last_call: Instant,
    ) -> Result<MessageResult> {
        let shared = &self.0;
        let settings = shared.table.notices_of(person).await?;
        let pace = shared.table.notice_pace(person, channel).await?;
        let pace = pace.at(settings.place(channel));
        let now = shared.clock.now();
        if pace.wait(now).is_some() {
            return self.come_back(record, person, channel, pace).await;
        }
        let waiting = shared.table.waiting_notices(person, channel, MOST).await?;
        let is_full = waiting.len() >= usize::try_from(MOST).unwrap_or(usize::MAX);
        let (wanted, over) = self.sorted_out(&settings, channel, waiting, now);
        shared.table.settle_notices(person, channel, &over, now).await?;
        if wanted.is_empty() {
            return Ok(if is_full {
                MessageResult::Stays
            } else {
                MessageResult::Done
            });
        }
        let turn = pace.taken(&record.message_id, now);
        if Instant::now() > last_call {
            return Ok(MessageResult::Stays);
        }
        if !shared.table.put_notice_pace(person, channel, &turn, now).await? {
            // Another message flushes the channel.
            let pace = shared.table.notice_pace(person, channel).await?;
            return self.come_back(record, person, channel, pace).await;
        }
        let (keys, mut events): (Vec<String>, Vec<Event>) =
            wanted.into_iter().map(|waiting| (waiting.key, waiting.event)).unzip();
        told_first(&mut events);
        let sent = self.tell(&settings, channel, &events).await?;
        let pace = self.after(&settings, channel, turn, sent, &keys).await?;
        log(person, channel, events.len(), sent);
        match sent {
            Sent::Ended(_) => Ok(MessageResult::Done),
            Sent::Taken(_) => {
                if events.iter().any(|event| event.kind() == EventKind::WebhookTest) {
                    shared.table.revive_channel(person, channel).await?;
                }
                self.wake_for_the_rest(person, channel).await?;
                Ok(MessageResult::Done)
            }
            Sent::Failed(..) => self.come_back(record, person, channel, pace).await,
        }
    }

    /// Ensures that a message comes when the next flush may run: another one that already waits, this one if it holds the
    /// channel, or a new one.
    async fn come_back(
        &self,
        record: &SqsRecord,
        person: &PersonId,
        channel: NoticeChannel,
        pace: NoticePace,
    ) -> Result<MessageResult> {
        let shared = &self.0;
        let now = shared.clock.now();
        let Some(pause) = pace.wait(now) else {
            return Ok(MessageResult::Stays);
        };
        match &pace.waker {
            Some(waker) if *waker != record.message_id => Ok(MessageResult::Done),
            Some(_) => {
                shared.queue.hide(&record.receipt_handle, pause).await?;
                Ok(MessageResult::Stays)
            }
            // What is stored from now on has a message of its own.
            None if self.is_nothing_waiting(person, channel).await? => Ok(MessageResult::Done),
            None => {
                // If the pace can't be stored, the new message finds the channel as this one did, and is deleted.
                let waker = shared.queue.wake(person, channel, pause).await?;
                let woken = pace.woken_by(&waker);
                let is_stored = shared.table.put_notice_pace(person, channel, &woken, now).await?;
                Ok(if is_stored {
                    MessageResult::Done
                } else {
                    MessageResult::Stays
                })
            }
        }
    }

    /// Enqueues another flush if notices arrived while a message was sent, or if they exceeded one message.
    async fn wake_for_the_rest(&self, person: &PersonId, channel: NoticeChannel) -> Result<()> {
        if self.is_nothing_waiting(person, channel).await? {
            return Ok(());
        }
        let flush = NoticeWork::Flush {
            person: person.clone(),
            channel,
        };
        self.0.queue.send(&flush).await
    }

    async fn is_nothing_waiting(&self, person: &PersonId, channel: NoticeChannel) -> Result<bool> {
        let waiting = self.0.table.waiting_notices(person, channel, 1).await?;
        Ok(waiting.is_empty())
    }

    /// The notices to send, and the keys of those that are obsolete. Another person's event is never sent.
    fn sorted_out(
        &self,
        settings: &NoticeSettings,
        channel: NoticeChannel,
        waiting: Vec<(String, Result<Event>)>,
        now: Timestamp,
    ) -> (Vec<Waiting>, Vec<String>) {
        let is_wanted = |event: &Event| {
            let is_theirs = event.owner().is_none_or(|owner| *owner == settings.person);
            is_theirs && self.can_use(channel) && settings.wanting(event.kind()).any(|wanting| wanting == channel)
        };
        let (mut wanted, mut over) = (Vec::new(), Vec::new());
        for (key, event) in waiting {
            match event {
                Ok(event) if !is_worth_telling(&event, now) => {
                    log_too_late(&settings.person, &event);
                    over.push(key);
                }
                Ok(event) if is_wanted(&event) => wanted.push(Waiting { key, event }),
                Ok(_) => over.push(key),
                // An unreadable notice does not hold up the others.
                Err(error) => {
                    tracing::error!(person = %settings.person, cause = %error, "notice.unreadable");
                    over.push(key);
                }
            }
        }
        (wanted, over)
    }

    /// Sends one message with these events.
    async fn tell(&self, settings: &NoticeSettings, channel: NoticeChannel, events: &[Event]) -> Result<Sent> {
        let names = self.names(&settings.person, told_by_name(events)).await;
        let Some(message) = NoticeMessage::of(events, &names) else {
            return Ok(Sent::nothing());
        };
        match channel {
            NoticeChannel::Mail => self.send_mail(settings, &message).await,
            NoticeChannel::Slack => self.post(settings, &message).await,
        }
    }

    /// The present names of a message's agents, services and operations, and the reasons of its approvals, as far as
    /// they are known. An agent that belongs to another person by now has no name here, since its name may be that
    /// person's text.
    async fn names(&self, person: &PersonId, events: &[Event]) -> NoticeNames {
        let shared = &self.0;
        let agents: BTreeSet<AgentId> = events.iter().filter_map(Event::agent).collect();
        let asked = events.iter().filter(|event| event.kind() == EventKind::ApprovalAsked);
        let asked = asked.filter_map(|event| ApprovalId::parse(event.data().get_text("approval_id")?));
        let (agents, approvals, edition) =
            tokio::join!(shared.ledger.agents(agents), shared.ledger.approvals(asked), async {
                shared.catalog.current(shared.clock.now()).await
            });
        let unnamed = |error: &Error| tracing::warn!(%person, cause = %error, "notice.without_names");
        let mut agents = agents.inspect_err(unnamed).unwrap_or_default();
        agents.retain(|agent| agent.owner == person.as_str());
        let reasons = approvals.inspect_err(unnamed).unwrap_or_default().into_iter();
        let reasons = reasons.filter_map(|approval| {
            let agent = agents.iter().find(|agent| agent.id == approval.agent)?;
            Some((approval.id.to_string(), why_asked(&approval, &agent.rules)))
        });
        let reasons = reasons.collect();
        let edition = edition.inspect_err(unnamed).ok();
        let service_of = |event: &Event| match event.subject() {
            EventSubject::Service(service) => Some(*service),
            _ => ServiceId::parse(event.data().get_text("service_id")?),
        };
        let services = events.iter().filter_map(service_of);
        let services = services.filter_map(|id| Some((id, edition.as_ref()?.catalog.by_id(id)?.name.clone())));
        let operations = events.iter().filter_map(|event| {
            let service = service_of(event)?;
            let slug = OperationSlug::parse(event.data().get_text("operation_id")?)?;
            let label = &edition.as_ref()?.catalog.by_id(service)?.operation(&slug)?.label;
            Some(((service, slug), label.clone()))
        });
        NoticeNames {
            agents: agents.iter().map(|agent| (agent.id, agent.name.clone())).collect(),
            services: services.collect(),
            operations: operations.collect(),
            reasons,
        }
    }

    /// Stores the result of a message: deletes the sent notices, then stores when the next flush may run.
    async fn after(
        &self,
        settings: &NoticeSettings,
        channel: NoticeChannel,
        turn: NoticePace,
        sent: Sent,
        keys: &[String],
    ) -> Result<NoticePace> {
        let shared = &self.0;
        let (person, now) = (&settings.person, shared.clock.now());
        let pace = match sent {
            Sent::Taken(_) => {
                shared.table.settle_notices(person, channel, keys, now).await?;
                turn.sent(now)
            }
            Sent::Ended(_) => {
                let ended = EndedChannel {
                    place: settings.place(channel),
                    reason: match channel {
                        NoticeChannel::Mail => NoticeEnd::MailRefused,
                        NoticeChannel::Slack => NoticeEnd::WebhookGone,
                    },
                    at: now,
                };
                shared.table.note_ended(person, channel, &ended).await?;
                shared.table.settle_notices(person, channel, keys, now).await?;
                turn.given_back(now)
            }
            Sent::Failed(result, asked) => {
                let [jitter] = shared.entropy.bytes()?;
                turn.failed(now, result, asked, jitter)
            }
        };
        // A flush that took over has stored its own pace.
        let _is_stored = shared.table.put_notice_pace(person, channel, &pace, now).await?;
        Ok(pace)
    }
}

/// Logs one line for each message, without address, URL or answer.
fn log(person: &PersonId, channel: NoticeChannel, events: usize, sent: Sent) {
    let outcome = match sent {
        Sent::Taken(_) => "sent",
        Sent::Failed(..) => "failed",
        Sent::Ended(_) => "ended",
    };
    tracing::info!(
        person = %person,
        channel = channel.name(),
        events,
        call.result = %sent.result(),
        outcome,
        "notice.sent"
    );
}
