//! The mail service of a run, and the checks of each mail.
//!
//! `docs/events.md` §4 has the rules for mails, pauses and limits.

use crate::mappings::{Invocation, Mode};
use crate::network::World;
use crate::plan::Fault;
use crate::tables::{Key, WEBHOOKS};
use purser_domain::{
    Event, EventKind, MailAddress, Notification, NotificationNames, NotificationSettings, Timestamp, UserId,
    closed_approval_request_key, pending_event_key,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The origin of the dashboard's URLs.
pub(crate) const ORIGIN: &str = "https://purser.sim";
/// The prefix of the partition key of the events that were mailed to a user.
const TOLD: &str = "T#mail#";
const SECOND: i64 = 1_000_000;
/// The minimum time between two mails to a user.
pub(crate) const BETWEEN: i64 = 300 * SECOND;
/// The minimum pauses after failed mails. The last pause repeats. Without a new event, the first pause is a minute.
const PAUSES: [i64; 3] = [5 * SECOND, 300 * SECOND, 1_800 * SECOND];
/// The age after which an event is no longer mailed.
const OLDEST: i64 = 86_400 * SECOND;
/// The path of the page that a test mail links to.
const TEST: &str = "/dashboard/notices";
/// The maximum number of events that a mail lists in full.
const MAX_LISTED: usize = 20;
/// The clock difference above which two runs may mail the same user concurrently. A run reserves the user for a minute,
/// and takes half a minute at most.
pub(crate) const MAX_SPREAD: i64 = 25 * SECOND;

/// How the mail service responds to mails to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Good,
    /// The service accepts every mail after this many milliseconds.
    Slow(u64),
    /// The service responds with 503 until this time, in microseconds since 1970.
    FailsUntil(i64),
    /// The service throttles mails until this time, in microseconds since 1970.
    ThrottlesUntil(i64),
    /// The sender is not verified until this time, in microseconds since 1970.
    UnverifiedUntil(i64),
    /// The service rejects the user's address until this time, in microseconds since 1970.
    RefusesUntil(i64),
    /// The service accepts every mail. The responses to this many first mails are lost.
    LosesAnswers(usize),
}

impl Manner {
    /// Returns whether the service accepts every mail without a failure.
    pub(crate) const fn is_good(self) -> bool {
        matches!(self, Self::Good | Self::Slow(_))
    }
}

/// A user who may get mail.
pub(crate) struct Addressee {
    pub(crate) person: UserId,
    pub(crate) manner: Manner,
    /// The user's settings, each with the time from which every run uses them.
    pub(crate) settings: Vec<(i64, NotificationSettings)>,
    /// When the address was rejected; `None` after the user requested a test or changed the settings.
    pub(crate) refused: Option<i64>,
    pub(crate) was_refused: bool,
}

impl Addressee {
    /// Returns the settings that a run since this time may use.
    fn settings_since(&self, since: i64) -> impl Iterator<Item = &NotificationSettings> {
        let first = self.settings.iter().rposition(|(at, _)| *at <= since).unwrap_or(0);
        self.settings[first..].iter().map(|(_, settings)| settings)
    }

    /// Returns whether the user selected this event at `since` or later, with the address `to` if given.
    pub(crate) fn wanted_since(&self, since: i64, event: &Event, to: Option<&str>) -> bool {
        let is_theirs = event.owner().is_none_or(|owner| *owner == self.person);
        let is_there = |address: &MailAddress| to.is_none_or(|to| address.as_str() == to);
        is_theirs
            && self.settings_since(since).any(|settings| {
                let mail = &settings.terms.mail;
                let is_chosen = event.kind() == EventKind::WebhookTest || mail.event_kinds().contains(&event.kind());
                mail.enabled && is_chosen && settings.address.as_ref().is_some_and(is_there)
            })
    }

    pub(crate) const fn has_changed(&self) -> bool {
        self.settings.len() > 1
    }
}

/// An event that was passed to the queues.
pub(crate) struct Passed {
    pub(crate) event: Event,
    /// The time at which the event was first passed.
    pub(crate) at: i64,
    /// The time at which the event's message was first processed.
    pub(crate) done: Option<i64>,
}

impl Passed {
    /// Returns whether the event is too old at this time, or its deadline has passed.
    pub(crate) fn is_over(&self, at: i64) -> bool {
        let event = &self.event;
        let deadline = event.data().find_time("expires_at");
        let deadline = deadline.filter(|_| event.kind() == EventKind::ApprovalAsked);
        event.time().micros() + OLDEST <= at || deadline.is_some_and(|deadline| deadline.micros() <= at)
    }
}

/// A mail that reached the mail service.
pub(crate) struct Mail {
    pub(crate) addressee: usize,
    pub(crate) at: i64,
    pub(crate) step: usize,
    pub(crate) is_accepted: bool,
    /// Whether the mail service responded with success. The response may be lost.
    pub(crate) is_said: bool,
    /// The dashboard pages of the events that the mail lists.
    pub(crate) paths: Vec<String>,
    /// The number of events in the mail.
    pub(crate) count: usize,
}

/// An event that was mailed or dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) at: i64,
    /// The invocation that mailed or dropped the event, and the time on its clock.
    pub(crate) step: usize,
    pub(crate) clock: i64,
}

/// The mail service, and what it observed.
#[derive(Default)]
pub(crate) struct Mailroom {
    pub(crate) mode: Mode,
    /// The maximum difference between two clocks, in microseconds.
    pub(crate) spread: i64,
    pub(crate) people: Vec<Addressee>,
    pub(crate) passed: Vec<Passed>,
    pub(crate) mails: Vec<Mail>,
    /// The invocations of the function `notices`, by step.
    pub(crate) invocations: BTreeMap<usize, Invocation>,
    /// The mailed and dropped events, by user and key.
    pub(crate) settled: BTreeMap<(UserId, String), Settled>,
}

/// A mail as `notices` sends it to SES.
struct Letter {
    to: String,
    paths: Vec<String>,
    count: usize,
}

impl Letter {
    fn read(body: &[u8]) -> Self {
        let request: Value = serde_json::from_slice(body).expect("the SDK writes JSON");
        let to = request["Destination"]["ToAddresses"].as_array().expect("addresses");
        assert_eq!(to.len(), 1, "one address");
        let text = &request["Content"]["Simple"]["Body"]["Text"]["Data"];
        let lines = || text.as_str().expect("a text").split("\r\n");
        let mut paths: Vec<String> = lines()
            .filter_map(|line| Some(line.strip_prefix(ORIGIN)?.to_owned()))
            .collect();
        let more = lines().find_map(|line| line.strip_prefix("And ")?.strip_suffix(" more."));
        let more = more.map_or(0, |more| more.parse().expect("a number"));
        if more > 0 {
            // The last link leads to the page with the remaining events.
            paths.pop();
        }
        Self {
            to: to[0].as_str().expect("a text").to_owned(),
            count: paths.len() + more,
            paths,
        }
    }
}

/// Returns the path of the page that shows an event.
pub(crate) fn path_of(event: &Event) -> String {
    Notification::for_event(event, &NotificationNames::default()).path
}

impl Mailroom {
    /// Returns the violated rules for a mail when it arrives.
    fn judge(&self, addressee: &Addressee, letter: &Letter, step: usize, now: i64, clock: i64) -> Vec<String> {
        let mut found = Vec::new();
        let mut complain = |what: String| found.push(format!("a mail to {} {what}", letter.to));
        let began = self.invocations[&step].began;
        let began_by_clock = began + (clock - now);
        let is_on = |settings: &NotificationSettings| {
            let is_there = |address: &MailAddress| address.as_str() == letter.to;
            settings.terms.mail.enabled && settings.address.as_ref().is_some_and(is_there)
        };
        if !addressee.settings_since(began).any(is_on) {
            complain("was sent though mail is off".to_owned());
        }
        let person = &addressee.person;
        let is_open = |passed: &&Passed| {
            let settled = self.settled.get(&(person.clone(), pending_event_key(&passed.event)));
            let is_settled = settled.is_some_and(|settled| settled.at < began);
            addressee.wanted_since(began, &passed.event, Some(&letter.to))
                && !is_settled
                && !passed.is_over(began_by_clock)
        };
        let mut open: BTreeMap<String, usize> = BTreeMap::new();
        for passed in self.passed.iter().filter(is_open) {
            *open.entry(path_of(&passed.event)).or_default() += 1;
        }
        let most: usize = open.values().sum();
        for path in &letter.paths {
            match open.get_mut(path) {
                Some(left) if *left > 0 => *left -= 1,
                _ => complain(format!("tells of {path}, which does not wait for its person")),
            }
        }
        if letter.count > most {
            complain(format!("has {} events of {most}", letter.count));
        }
        if letter.paths.len() != letter.count.min(MAX_LISTED) {
            complain(format!("has {} of {} events in full", letter.paths.len(), letter.count));
        }
        let is_test = letter.paths.iter().any(|path| path == TEST);
        let is_refused = addressee.refused.is_some_and(|refused| refused < began);
        if self.mode == Mode::Calm && is_refused && !is_test {
            complain("was sent though its address is refused".to_owned());
        }
        found.extend(self.pace(addressee, now));
        found
    }

    /// Returns an error if a mail to this user comes too early.
    fn pace(&self, addressee: &Addressee, now: i64) -> Option<String> {
        if self.spread >= MAX_SPREAD || addressee.has_changed() {
            return None;
        }
        let of_person = |mail: &&Mail| self.people[mail.addressee].person == addressee.person;
        let mails: Vec<&Mail> = self.mails.iter().filter(of_person).collect();
        let last = mails.last()?;
        let name = &addressee.person;
        let run = &self.invocations[&last.step];
        if run.ended.is_none() {
            // An invocation may also send other users' mails, and then last longer than the pause.
            let is_early = now < last.at + PAUSES[0] - self.spread;
            return is_early.then(|| format!("two mails to {name} are under way"));
        }
        if run.is_disturbed {
            return None;
        }
        let is_failure = |mail: &&&Mail| !mail.is_said;
        let failures = mails.iter().rev().take_while(is_failure);
        let failures = failures
            .filter(|mail| !self.invocations[&mail.step].is_disturbed)
            .count();
        let pause = match failures.checked_sub(1) {
            None => BETWEEN,
            // After a rejected address, no mail is repeated.
            Some(_) if addressee.was_refused => return None,
            Some(before) => PAUSES[before.min(PAUSES.len() - 1)],
        };
        let early = last.at + pause - self.spread - now;
        (early > 0).then(|| format!("a mail to {name} comes {early} µs too early, after {failures} failures"))
    }

    /// Returns the fault that follows the first mail of an invocation.
    pub(crate) fn strike(&mut self, step: usize) -> Option<(Fault, u8, u8)> {
        self.invocations.get_mut(&step)?.strike.take()
    }

    /// Returns whether an event has closed the user's approval request with this key.
    pub(crate) fn closes(&self, person: &UserId, key: &str) -> bool {
        let is_theirs = |event: &Event| event.owner() == Some(person);
        let mut passed = self.passed.iter();
        passed.any(|passed| {
            is_theirs(&passed.event) && closed_approval_request_key(&passed.event).as_deref() == Some(key)
        })
    }
}

pub(crate) struct Answer {
    pub(crate) after: Duration,
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl World {
    /// Checks a mail, and returns the response.
    pub(crate) fn mail(&self, step: usize, worker: usize, body: &[u8]) -> Answer {
        let (now, clock) = (self.now(), self.clock_of(worker));
        let letter = Letter::read(body);
        let mut mailroom = self.queues.mailroom();
        let has_had = |addressee: &Addressee| {
            let mut settings = addressee.settings.iter();
            settings.any(|(_, settings)| settings.address.as_ref().is_some_and(|to| to.as_str() == letter.to))
        };
        let Some(addressee) = mailroom.people.iter().position(has_had) else {
            drop(mailroom);
            self.complain(format!("a mail went to {}, whom nobody knows", letter.to));
            return Answer::new(200, json!({"MessageId": "none"}));
        };
        let found = mailroom.judge(&mailroom.people[addressee], &letter, step, now, clock);
        let of_person = |mail: &&Mail| mail.addressee == addressee && mail.is_accepted;
        let before = mailroom.mails.iter().filter(of_person).count();
        let accepted = || Answer::new(200, json!({"MessageId": format!("mail-{step}")}));
        let refused =
            |status, kind: &str, message: &str| Answer::new(status, json!({"__type": kind, "message": message}));
        let down = || refused(503, "ServiceUnavailable", "down");
        let manner = mailroom.people[addressee].manner;
        let (is_accepted, answer) = match manner {
            Manner::Slow(millis) => {
                let after = Duration::from_millis(millis);
                (true, Answer { after, ..accepted() })
            }
            Manner::FailsUntil(until) if now < until => (false, down()),
            Manner::ThrottlesUntil(until) if now < until => (false, refused(429, "TooManyRequestsException", "slower")),
            Manner::UnverifiedUntil(until) if now < until => {
                let message = "Email address is not verified.";
                (false, refused(400, "MessageRejected", message))
            }
            Manner::RefusesUntil(until) if now < until => {
                mailroom.people[addressee].was_refused = true;
                (false, refused(400, "MessageRejected", "Address blacklisted"))
            }
            Manner::LosesAnswers(count) if before < count => {
                let after = Duration::from_secs(if before.is_multiple_of(2) { 20 } else { 0 });
                (true, Answer { after, ..down() })
            }
            _ => (true, accepted()),
        };
        mailroom.mails.push(Mail {
            addressee,
            at: now,
            step,
            is_accepted,
            is_said: answer.status == 200,
            paths: letter.paths,
            count: letter.count,
        });
        drop(mailroom);
        let mut record = self.record();
        record
            .complaints
            .extend(found.into_iter().map(|what| format!("notices: {what}")));
        record
            .coverage
            .count(if is_accepted { "mailed" } else { "mail refused" });
        if letter.count > MAX_LISTED {
            record.coverage.count("mailed as a digest");
        }
        answer
    }

    /// Records the mailed and dropped events among the written rows.
    pub(crate) fn look_at_notices(&self, step: usize, worker: usize, keys: &[(String, Key)]) {
        let is_told = |(table, key): &&(String, Key)| table == WEBHOOKS && key.0.starts_with(TOLD);
        // `keys` also contains rows that a transaction only checks.
        let is_stored = |(_, key): &&(String, Key)| self.tables.row(WEBHOOKS, key).is_some();
        for (_, key) in keys.iter().filter(is_told).filter(is_stored) {
            let settled = Settled {
                at: self.now(),
                step,
                clock: self.clock_of(worker),
            };
            let person = UserId::parse(&key.0[TOLD.len()..]).expect("a person");
            let mut mailroom = self.queues.mailroom();
            mailroom.settled.entry((person, key.1.clone())).or_insert(settled);
        }
    }
}

impl Answer {
    fn new(status: u16, body: Value) -> Self {
        Self {
            after: Duration::ZERO,
            status,
            body: body.to_string().into_bytes(),
        }
    }
}

/// Returns the event with its time and deadline moved by `micros` microseconds.
pub(crate) fn later(event: &Event, micros: i64) -> Event {
    let mut told = event.to_json();
    let shift = |time: &mut Value| {
        let at = Timestamp::parse(time.as_str().unwrap_or_default()).expect("a time");
        *time = Timestamp::from_micros(at.micros() + micros)
            .expect("a time")
            .to_string()
            .into();
    };
    shift(&mut told["time"]);
    if told["data"]["expires_at"].is_string() {
        shift(&mut told["data"]["expires_at"]);
    }
    Event::parse(told.to_string().as_bytes()).expect("one of our events")
}
