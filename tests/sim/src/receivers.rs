//! The users' webhook receivers, and the checks of each call to a receiver.
//!
//! `docs/webhooks.md` has the rules for calls, pauses and limits.

use crate::mappings::{Invocation, Mode};
use crate::network::{self, Link, World};
use crate::tables::{Key, WEBHOOKS, number, text};
use axum::http::HeaderMap;
use purser_api::WebhookCallResult;
use purser_domain::{
    CallResult, DeliveryId, Event, EventId, EventKind, Timestamp, Webhook, WebhookId, WebhookSettings, WebhookUrl,
};
use purser_webhooks::{Posted, WebhookReceivers};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The time within which a receiver must respond.
const LONGEST_CALL: Duration = Duration::from_secs(15);
/// The pauses after failed calls, in seconds.
const PAUSES: [i64; 7] = [5, 300, 1_800, 7_200, 18_000, 28_800, 28_800];
/// The longest pause that a response can request, in seconds.
const LONGEST_ASKED: i64 = 6 * 3_600;
/// The maximum number of a user's pending deliveries.
pub(crate) const MAX_WAITING: usize = 1_000;
/// How much longer a pause may last, in seconds: a minute until the next sweep, and the time of the batch.
const LATE: i64 = 60 + 20;
const SECOND: i64 = 1_000_000;

/// How a receiver responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Good,
    /// The receiver responds after this many milliseconds.
    Slow(u64),
    /// The receiver responds with 503 until this time, in microseconds since 1970.
    FailsUntil(i64),
    /// The first responses to an event are lost, up to this number.
    LosesAnswers(usize),
    /// The receiver responds with 429 and this `Retry-After` to the first calls of an event.
    Busy(i64, usize),
    Gone,
    Hangs,
    /// The receiver fails in another way each time.
    Hostile,
}

impl Manner {
    /// Returns whether each event is delivered in the end.
    pub(crate) const fn delivers(self) -> bool {
        !matches!(self, Self::Gone | Self::Hangs | Self::Hostile)
    }

    /// Returns whether the first call of an event succeeds.
    pub(crate) const fn delivers_at_once(self) -> bool {
        matches!(self, Self::Good | Self::Slow(_))
    }

    /// Returns the number of calls per event without other failures; `None` if the number varies.
    pub(crate) const fn calls(self) -> Option<usize> {
        match self {
            Self::Good | Self::Slow(_) => Some(1),
            Self::LosesAnswers(count) | Self::Busy(_, count) => Some(count + 1),
            Self::Hangs | Self::Hostile => Some(PAUSES.len() + 1),
            // After the response 410, there are no further calls.
            Self::FailsUntil(_) | Self::Gone => None,
        }
    }

    /// Returns the response to a call, if the event was called `before` times.
    fn reply(self, before: usize, now: i64) -> Reply {
        let answer = |status| Reply::new(20, status);
        match self {
            Self::Good => answer(204),
            Self::Slow(millis) => Reply::new(millis, 200),
            Self::FailsUntil(until) => answer(if now < until { 503 } else { 200 }),
            Self::LosesAnswers(count) if before < count => Reply::Broken,
            Self::LosesAnswers(_) => answer(202),
            Self::Busy(asked, count) if before < count => Reply::Status {
                millis: 20,
                status: 429,
                asked: Some(asked),
            },
            Self::Busy(..) => answer(200),
            Self::Gone => answer(410),
            Self::Hangs => Reply::Never,
            Self::Hostile => match before % 6 {
                0 => Reply::new(14_000, 500),
                1 => answer(302),
                2 => Reply::Broken,
                3 => Reply::Never,
                4 => Reply::Status {
                    millis: 9_000,
                    status: 429,
                    asked: Some(i64::from(u32::MAX)),
                },
                _ => answer(404),
            },
        }
    }
}

enum Reply {
    Status {
        millis: u64,
        status: u16,
        /// The header `Retry-After`, in seconds.
        asked: Option<i64>,
    },
    /// The connection breaks.
    Broken,
    Never,
}

impl Reply {
    const fn new(millis: u64, status: u16) -> Self {
        let asked = None;
        Self::Status { millis, status, asked }
    }
}

/// A webhook and its receiver.
pub(crate) struct Hook {
    pub(crate) webhook: Webhook,
    pub(crate) manner: Manner,
    /// The secrets, each with the time from which it signs.
    pub(crate) secrets: Vec<(i64, String)>,
    /// The settings, each with the time from which every call uses them; `None` after the removal.
    pub(crate) settings: Vec<(i64, Option<WebhookSettings>)>,
    /// Whether the webhook was changed after a response 410.
    pub(crate) is_edited: bool,
}

impl Hook {
    /// Returns whether the webhook selected an event at `since` or later.
    pub(crate) fn wanted_since(&self, since: i64, event: &Event) -> bool {
        let first = self.settings.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
        let mut settings = self.settings[first..].iter().filter_map(|(_, terms)| terms.as_ref());
        settings.any(|terms| wants(terms, event)) && event.owner() == Some(&self.webhook.person)
    }

    pub(crate) const fn has_changed(&self) -> bool {
        self.settings.len() > 1
    }
}

fn wants(terms: &WebhookSettings, event: &Event) -> bool {
    let kinds = terms.kinds.as_ref();
    let of_agent = |agents: &BTreeSet<_>| event.agent().is_some_and(|agent| agents.contains(&agent));
    terms.enabled
        && kinds.is_none_or(|kinds| kinds.contains(&event.kind()))
        && terms.agents.as_ref().is_none_or(of_agent)
}

pub(crate) fn key_of(webhook: WebhookId, event: &Event) -> Key {
    let delivery = DeliveryId::derive(webhook, event.id(), event.time());
    (format!("D#{webhook}"), delivery.to_string())
}

/// A call that reached a receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    pub(crate) hook: usize,
    pub(crate) event: EventId,
    pub(crate) kind: EventKind,
    pub(crate) at: i64,
    pub(crate) invocation: usize,
}

/// The receivers, and the observed state of their webhooks.
#[derive(Default)]
pub(crate) struct Receivers {
    pub(crate) mode: Mode,
    /// The maximum difference between two clocks, in microseconds.
    pub(crate) spread: i64,
    pub(crate) hooks: Vec<Hook>,
    pub(crate) posts: Vec<Post>,
    pub(crate) invocations: Vec<Invocation>,
    /// The ended deliveries, each with the time at which its end was stored.
    pub(crate) ended: BTreeMap<Key, i64>,
    /// The redeliveries that users requested, each with the time.
    pub(crate) requested: BTreeMap<Key, i64>,
    /// The webhooks that responded with 410, each with the time at which the 410 was stored.
    gone: BTreeMap<usize, i64>,
    /// The sort keys of pending deliveries, by partition.
    pub(crate) waiting: BTreeMap<String, BTreeSet<String>>,
    /// The sort keys of stored pauses.
    pub(crate) pauses: BTreeSet<String>,
    /// The stored number of calls of each delivery, and the time at which the number was stored.
    counted: BTreeMap<Key, (i64, i64)>,
    /// The pause that the last response to a delivery requested, in seconds.
    asked: BTreeMap<Key, i64>,
}

/// A call when it arrives at a receiver.
struct Arrival<'a> {
    hook: usize,
    event: &'a Event,
    headers: &'a HeaderMap,
    body: &'a str,
    invocation: usize,
    /// The time on the caller's clock.
    clock: i64,
}

impl Receivers {
    /// Forgets a webhook's 410 before the webhook is changed.
    pub(crate) fn edited(&mut self, hook: usize) {
        self.gone.remove(&hook);
        self.hooks[hook].is_edited = true;
    }

    /// Returns the violated rules for a call.
    fn judge(&self, world: &World, call: &Arrival<'_>) -> Vec<String> {
        let Arrival { event, clock, .. } = *call;
        let hook = &self.hooks[call.hook];
        let began = self.invocations[call.invocation].began;
        let key = key_of(hook.webhook.id, event);
        let requested = self.requested.get(&key);
        let mut found = Vec::new();
        let mut complain = |what: &str| {
            let manner = hook.manner;
            found.push(format!(
                "webhook {} ({manner:?}) was called with {} of {}, {what}",
                call.hook,
                event.id(),
                event.kind().name()
            ));
        };
        if !is_signed(hook, began, call) {
            complain("which is not signed with its secret");
        }
        let told = call
            .headers
            .get("webhook-timestamp")
            .and_then(|told| told.to_str().ok());
        let told = told.and_then(|told| told.parse::<i64>().ok()).unwrap_or_default();
        if (clock / SECOND - told).abs() > 20 {
            complain("signed at another time");
        }
        if event.owner() != Some(&hook.webhook.person) {
            complain("which is another person's");
        }
        let is_removed = |(since, terms): &(i64, Option<WebhookSettings>)| *since < began && terms.is_none();
        if hook.settings.iter().any(is_removed) {
            complain("though it is removed");
        }
        let is_by_hand = requested.is_some() || event.kind() == EventKind::WebhookTest;
        if !is_by_hand && !hook.wanted_since(began, event) {
            complain("which it does not select");
        }
        if !is_by_hand && self.gone.get(&call.hook).is_some_and(|gone| *gone < began) {
            complain("though it is gone");
        }
        let ended = self.ended.get(&key).filter(|ended| **ended < began);
        if ended.is_some_and(|ended| requested.is_none_or(|requested| requested < ended)) {
            complain("though its delivery has ended");
        }
        // A concurrent call of the same delivery may have ended meanwhile.
        let is_beside = self.counted.get(&key).is_some_and(|(_, since)| *since >= began);
        if let (Some(row), None, false) = (world.tables.row(WEBHOOKS, &key), requested, is_beside) {
            let calls = usize::try_from(number(&row, "n")).expect("a count");
            let last = number(&row, "called") + number(&row, "ms") * 1_000;
            match calls.checked_sub(1).map(|before| PAUSES.get(before)) {
                None => {}
                Some(None) => complain("after its last call"),
                Some(Some(pause)) => {
                    let is_asked = text(&row, "result") == "status_429";
                    let asked = self.asked.get(&key).filter(|_| is_asked).copied().unwrap_or(0);
                    let pause = asked.min(LONGEST_ASKED).max(*pause) * SECOND;
                    if clock < last + pause {
                        complain(&format!("{} µs too early", last + pause - clock));
                    }
                    let latest = last + pause + pause / 10 + LATE * SECOND + 2 * self.spread;
                    if self.mode == Mode::Quiet && clock > latest {
                        complain(&format!("{} µs too late", clock - latest));
                    }
                }
            }
        }
        found
    }

    /// Returns the calls of a webhook for an event.
    pub(crate) fn posts_of(&self, hook: usize, event: EventId) -> impl Iterator<Item = &Post> {
        let is_its = move |post: &&Post| (post.hook, post.event) == (hook, event);
        self.posts.iter().filter(is_its)
    }

    /// Returns by how many a user's pending deliveries may exceed the limit because of concurrent calls.
    fn slack(&self, partition: &str) -> usize {
        let is_under_way = |post: &&Post| {
            let person = &self.hooks[post.hook].webhook.person;
            self.invocations[post.invocation].ended.is_none() && partition.ends_with(person.as_str())
        };
        match self.mode {
            Mode::Calm => 0,
            Mode::Quiet => self.posts.iter().filter(is_under_way).count().saturating_sub(1),
            // Calls may arrive late.
            Mode::Faulty => 20,
        }
    }
}

/// Returns whether the official library verifies a call with the webhook's newest secret at the time of the invocation.
fn is_signed(hook: &Hook, began: i64, call: &Arrival<'_>) -> bool {
    let header = |name| call.headers.get(name).and_then(|value| value.to_str().ok());
    let newest = hook.secrets.iter().rfind(|(since, _)| *since <= began);
    let signed = || {
        let library = standardwebhooks::Webhook::new(&newest?.1).ok()?;
        let id = header("webhook-id").filter(|id| *id == call.event.id().to_string())?;
        let at = header("webhook-timestamp")?.parse().ok()?;
        let signed = library.sign(id, at, call.body.as_bytes()).ok()?;
        let mut signatures = header("webhook-signature")?.split(' ');
        Some(signatures.any(|signature| signature == signed))
    };
    signed().unwrap_or(false)
}

impl World {
    /// Records and checks the written rows of webhooks.
    pub(crate) fn look_at_webhooks(&self, keys: &[(String, Key)]) {
        for (_, key) in keys.iter().filter(|(table, _)| table == WEBHOOKS) {
            for what in self.look_at_row(key) {
                self.complain(what);
            }
        }
    }

    fn look_at_row(&self, key: &Key) -> Vec<String> {
        let row = self.tables.row(WEBHOOKS, key);
        let now = self.queues.time();
        let mut receivers = self.queues.receivers();
        let (prefix, rest) = key.0.split_once('#').unwrap_or_default();
        let hook_of = |receivers: &Receivers| {
            let hooks = receivers.hooks.iter();
            hooks.map(|hook| hook.webhook.id.to_string()).position(|id| id == rest)
        };
        let mut found = Vec::new();
        match (prefix, row) {
            ("D", Some(row)) => {
                if text(&row, "st") == "waiting" {
                    receivers.ended.remove(key);
                } else {
                    receivers.ended.entry(key.clone()).or_insert(now);
                }
                let calls = number(&row, "n");
                if receivers.counted.get(key).is_none_or(|(counted, _)| *counted != calls) {
                    receivers.counted.insert(key.clone(), (calls, now));
                }
                if calls > 8 {
                    found.push(format!("{key:?} was called {calls} times"));
                }
                let hook = hook_of(&receivers);
                if text(&row, "result") == "status_410" {
                    let mark = self.tables.row(WEBHOOKS, &(format!("G#{rest}"), "#".to_owned()));
                    let is_edited = hook.is_some_and(|hook| receivers.hooks[hook].is_edited);
                    if !mark.is_some_and(|mark| is_edited || number(&mark, "ver") == 1) {
                        found.push(format!("{key:?} answered 410, and its webhook is not marked as gone"));
                    }
                }
            }
            ("G", Some(row)) if key.1 == "#" => {
                if let Some(hook) = hook_of(&receivers)
                    && receivers.hooks[hook].webhook.version == number(&row, "ver").unsigned_abs()
                {
                    receivers.gone.entry(hook).or_insert(now);
                }
            }
            ("N", Some(_)) => {
                receivers.pauses.insert(key.1.clone());
            }
            ("N", None) => {
                receivers.pauses.remove(&key.1);
            }
            ("W", Some(_)) => {
                let slack = receivers.slack(&key.0);
                let waiting = receivers.waiting.entry(key.0.clone()).or_default();
                if waiting.insert(key.1.clone()) && waiting.len() > MAX_WAITING + slack {
                    found.push(format!("{} deliveries of {rest} wait", waiting.len()));
                }
            }
            ("W", None) => {
                let waiting = receivers.waiting.entry(key.0.clone()).or_default();
                waiting.remove(&key.1);
            }
            _ => {}
        }
        found
    }
}

/// The receivers, as one process reaches them.
pub(crate) struct Internet {
    pub(crate) link: Arc<Link>,
    /// The number of the invocation that the process is working on.
    pub(crate) invocation: Arc<AtomicUsize>,
    pub(crate) step: usize,
}

impl Internet {
    /// Checks a call, and returns the receiver's response.
    fn arrive(&self, url: &WebhookUrl, headers: &HeaderMap, body: &str) -> Reply {
        let world = &self.link.world;
        let (at, invocation) = (world.now(), self.invocation.load(SeqCst));
        let mut receivers = world.queues.receivers();
        let is_called = |hook: &Hook| hook.webhook.terms.url == *url;
        let hook = receivers.hooks.iter().position(is_called);
        let (Some(hook), Ok(event)) = (hook, Event::parse(body.as_bytes())) else {
            drop(receivers);
            world.complain(format!("{url} was called with {body}"));
            return Reply::Broken;
        };
        let clock = world.clock_of(self.link.worker);
        let call = Arrival {
            hook,
            event: &event,
            headers,
            body,
            invocation,
            clock,
        };
        let found = receivers.judge(world, &call);
        let before = receivers.posts_of(hook, event.id()).count();
        receivers.posts.push(Post {
            hook,
            event: event.id(),
            kind: event.kind(),
            at,
            invocation,
        });
        let Hook { manner, webhook, .. } = &receivers.hooks[hook];
        let (reply, key) = (manner.reply(before, at), key_of(webhook.id, &event));
        let (status, asked) = match reply {
            Reply::Status { status, asked, .. } => (status, asked),
            Reply::Broken => (1, None),
            Reply::Never => (2, None),
        };
        receivers.asked.insert(key, asked.unwrap_or(0));
        if let Some((fault, skipped, length)) = receivers.invocations[invocation].strike.take() {
            self.link.strike(fault, skipped, length);
        }
        drop(receivers);
        let signatures = headers.get("webhook-signature").and_then(|value| value.to_str().ok());
        let mut record = world.record();
        record.complaints.extend(found);
        if before > 0 {
            record.coverage.count("received twice");
        }
        if status == 410 {
            record.coverage.count("answered 410");
        }
        if signatures.is_some_and(|signatures| signatures.contains(' ')) {
            record.coverage.count("signed with two secrets");
        }
        record.events.push(network::Event {
            at,
            step: self.step,
            worker: self.link.worker,
            call: 0,
            what: format!("webhook {hook}, {}", event.kind().name()),
            fault: None,
            status,
        });
        reply
    }
}

impl WebhookReceivers for Internet {
    fn post<'a>(&'a self, url: &'a WebhookUrl, headers: HeaderMap, body: String, now: Timestamp) -> Posted<'a> {
        Box::pin(async move {
            let calling = async {
                sleep(Duration::from_millis(5)).await;
                match self.arrive(url, &headers, &body) {
                    Reply::Never => std::future::pending().await,
                    Reply::Broken => CallResult::Unreachable.into(),
                    Reply::Status { millis, status, asked } => {
                        sleep(Duration::from_millis(millis)).await;
                        let asked = asked.and_then(|secs| purser_domain::parse_retry_after(&secs.to_string(), now));
                        let result = CallResult::Status(status);
                        WebhookCallResult { result, asked }
                    }
                }
            };
            let called = timeout(LONGEST_CALL, calling).await;
            // The caller's clock advances during the call.
            self.link.world.now();
            called.unwrap_or_else(|_| CallResult::Timeout.into())
        })
    }
}
