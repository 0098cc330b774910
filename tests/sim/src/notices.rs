//! Passes the published events of a run to the function `notices`, while users change their settings and the mail
//! service fails.
//!
//! At the end, each selected event must be in a mail, unless the event was too old or closed, or the address was
//! rejected. Incoming webhooks are left out (`functions/notices/tests` covers them).

use crate::mailbox::{Addressee, BETWEEN, MAX_SPREAD, Mail, Mailroom, Manner, ORIGIN, Passed, Settled, later, path_of};
use crate::mappings::{End, Invocation, Mapping, Mappings, Mode, TIME, Troubles};
use crate::network::Link;
use crate::people::agent_id;
use crate::plan::{OWNERS, WORKERS, agents_of};
use crate::run::Run;
use crate::tables::WEBHOOKS;
use crate::telling::person;
use purser_api::{NotificationRequest, NotificationSource};
use purser_domain::{
    ChannelSettings, DeliveryId, Event, EventData, EventId, EventKind, EventSource, EventSubject, MailAddress,
    NotificationPreferences, NotificationSettings, Timestamp, UserId, pending_event_key, test_event,
};
use purser_notices::Notifications;
use purser_store::{UpdateResult, WebhooksTable};
use purser_testkit::{Rng, Sqs, sample};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

const EVENTS: &str = "NoticeEventsQueue";
const NOTICES: &str = "NoticesQueue";
const REQUESTS: &str = "NoticeRequestsQueue";
pub(crate) const MAPPINGS: [Mapping; 3] = [
    Mapping::new(EVENTS, 5, 20, "Collect"),
    Mapping::new(NOTICES, 5, 100, "Flush"),
    Mapping::new(REQUESTS, 2, 20, "Test"),
];
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// The time within which all work has ended.
const LONGEST: i64 = 3 * 24 * HOUR;
/// The maximum time from an event to the first mail without failures: the wait for further events, and two batches. A
/// flood of another user's events must not delay the mail.
const FIRST_MAIL: i64 = (10 + 2 * 15) * SECOND;
/// The maximum number of events that are passed.
const MAX_EVENTS: usize = 16;
/// The number of the first step of `notices`.
const FIRST_STEP: usize = 100_000;

/// The environment variables of `notices`.
pub(crate) const VARIABLES: [(&str, &str); 7] = [
    ("SES_ENDPOINT", "http://ses.sim"),
    ("NOTICES_SENDER", "purser@example.com"),
    ("DASHBOARD_URL", ORIGIN),
    ("NOTICES_QUEUE_URL", "http://sqs.sim/000000000000/NoticesQueue"),
    ("NOTICES_QUEUE_ARN", "arn:aws:sqs:us-east-1:000000000000:NoticesQueue"),
    (
        "NOTICE_REQUESTS_QUEUE_ARN",
        "arn:aws:sqs:us-east-1:000000000000:NoticeRequestsQueue",
    ),
    (
        "NOTICE_EVENTS_QUEUE_ARN",
        "arn:aws:sqs:us-east-1:000000000000:NoticeEventsQueue",
    ),
];

/// A process of `notices`.
struct Environment {
    link: Arc<Link>,
    notices: Notifications,
}

/// An invocation of `notices` that has ended.
struct Ran {
    environment: Environment,
    mapping: usize,
    batch: Value,
    step: usize,
    end: End,
}

/// An act at a given time.
#[derive(Clone, Debug)]
enum Act {
    /// The bus delivers an event to the queue.
    Pass(Event),
    /// An unreadable message is sent to a queue.
    Poison(&'static str),
    /// A user turns mail off.
    TurnOff(usize),
    /// A user selects only the default event kinds.
    Choose(usize),
    /// The issuer reports another address of a user, or none.
    Move(usize, Option<&'static str>),
    /// A user requests a test mail.
    Test(usize),
}

struct Office<'a> {
    run: &'a Run,
    rng: Rng,
    mode: Mode,
    /// The table as the dashboard accesses it.
    table: WebhooksTable,
    began: i64,
    /// How far the fastest clock is ahead, in microseconds.
    ahead: i64,
    /// The scheduled acts, earliest first.
    acts: VecDeque<(i64, Act)>,
    idle: Vec<Environment>,
    running: JoinSet<Ran>,
    mappings: Mappings,
}

impl Run {
    /// Passes the published events to `notices`, and checks the mails.
    pub(crate) async fn send_notices(&self, seed: u64) {
        self.landed().await;
        let mut office = Office::open(self, seed);
        office.set_up().await;
        office.work().await;
        for what in office.found() {
            self.world.complain(format!("notices: {what}"));
        }
    }
}

impl<'a> Office<'a> {
    fn open(run: &'a Run, seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed ^ 8);
        let mode = *rng.pick(&[Mode::Calm, Mode::Quiet, Mode::Faulty, Mode::Faulty, Mode::Faulty]);
        let aws = run.boot(&Link::new(&run.world, 0)).aws;
        let skews = (0..WORKERS).map(|worker| run.world.skew(worker));
        let (least, most) = (skews.clone().min().unwrap_or(0), skews.max().unwrap_or(0));
        {
            let mut mailroom = run.world.queues.mailroom();
            mailroom.mode = mode;
            mailroom.spread = most - least;
        }
        Self {
            run,
            mode,
            table: WebhooksTable::new(purser_store::dynamodb_client(&aws), WEBHOOKS),
            began: run.world.now(),
            ahead: most.max(0),
            acts: VecDeque::new(),
            idle: Vec::new(),
            running: JoinSet::new(),
            mappings: Mappings::new(&MAPPINGS, mode),
            rng,
        }
    }

    fn sqs(&self) -> &Sqs {
        &self.run.world.queues.sqs
    }

    fn mailroom(&self) -> MutexGuard<'_, Mailroom> {
        self.run.world.queues.mailroom()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.run.world.now()).expect("an instant")
    }

    /// Stores the users' settings, and schedules the acts.
    async fn set_up(&mut self) {
        let mut events = self.run.some_events(&mut self.rng, MAX_EVENTS);
        let newest = events.iter().map(|(event, _)| event.time().micros()).max();
        for (event, _) in &mut events {
            // The events' times are moved, so that the newest event is published now.
            *event = later(event, self.began - newest.unwrap_or(self.began));
        }
        let busiest = events.first().and_then(|(event, _)| event.owner().cloned());
        let failing = self.rng.index(usize::from(OWNERS));
        for owner in 0..OWNERS {
            let is_busiest = busiest.as_ref() == Some(&person(owner));
            let manner = if usize::from(owner) == failing || is_busiest && self.rng.one_in(2) {
                self.failing()
            } else {
                let slow = 3_000 + self.rng.below(6_000);
                self.rng.weighted(&[(3, Manner::Good), (1, Manner::Slow(slow))])
            };
            self.settle_in(owner, manner, is_busiest).await;
        }
        let some = self.rng.index(usize::from(OWNERS));
        match self.rng.below(8) {
            0 => self.later(HOUR, Act::TurnOff(some)),
            1 => self.later(HOUR, Act::Choose(some)),
            2 => self.later(HOUR, Act::Move(some, None)),
            3 => self.later(HOUR, Act::Move(some, Some("moved@example.com"))),
            4 | 5 => self.later(4 * HOUR, Act::Test(failing)),
            _ => {}
        }
        for queue in [EVENTS, NOTICES, REQUESTS] {
            if self.rng.one_in(12) {
                self.later(HOUR, Act::Poison(queue));
            }
        }
        for (event, count) in events {
            for _ in 0..count {
                let within = self.rng.weighted(&[(4, MINUTE), (3, 20 * MINUTE), (1, 20 * HOUR)]);
                self.later(within, Act::Pass(event.clone()));
            }
        }
        self.flood();
        self.acts.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    fn failing(&mut self) -> Manner {
        let until = self.began + *self.rng.pick(&[20 * SECOND, 10 * MINUTE, 3 * HOUR, 30 * HOUR]);
        let count = 1 + self.rng.index(3);
        *self.rng.pick(&[
            Manner::FailsUntil(until),
            Manner::ThrottlesUntil(until),
            Manner::UnverifiedUntil(until),
            Manner::RefusesUntil(until),
            Manner::LosesAnswers(count),
        ])
    }

    /// Adds many events of one user, a freeze of the deployment, and one event of each other user.
    fn flood(&mut self) {
        let count = self.rng.weighted(&[(8, 0), (6, 25), (1, 60), (1, 210)]);
        let flooded = self.rng.small(OWNERS);
        let at = self.now();
        for number in 0..count {
            let event = frozen(flooded, number, at);
            self.later(MINUTE, Act::Pass(event));
        }
        for owner in (0..OWNERS).filter(|owner| *owner != flooded) {
            let event = frozen(owner, 0, at);
            self.later(20 * MINUTE, Act::Pass(event));
        }
        if self.rng.one_in(3) {
            let event = new_event(EventKind::DeploymentFrozen, 0, at, EventSubject::Deployment, None);
            self.later(20 * MINUTE, Act::Pass(event));
        }
    }

    fn later(&mut self, within: i64, act: Act) {
        let at = self.began + i64::try_from(self.rng.below(within.unsigned_abs())).expect("hours");
        self.acts.push_back((at, act));
    }

    /// Stores a user's address and settings.
    async fn settle_in(&mut self, owner: u8, manner: Manner, is_busiest: bool) {
        let person = person(owner);
        let mut settings = NotificationSettings::new(person.clone());
        let kinds = Some(EventKind::ALL.iter().copied().collect());
        let is_on = is_busiest || !self.rng.one_in(8);
        let terms = [
            None,
            Some(ChannelSettings { enabled: is_on, kinds }),
            Some(ChannelSettings {
                enabled: is_on,
                kinds: None,
            }),
        ];
        let terms = self.rng.pick(&terms[usize::from(is_busiest)..]).clone();
        if is_busiest || !self.rng.one_in(8) {
            settings.address = MailAddress::parse(&format!("person-{owner}@example.com"));
            let kept = self
                .table
                .try_store_mail_address(&person, settings.address.as_ref(), self.now())
                .await;
            assert!(kept.expect("an address"));
        }
        self.mailroom().people.push(Addressee {
            person,
            manner,
            settings: vec![(0, settings.clone())],
            refused: None,
            was_refused: false,
        });
        if let Some(mail) = terms {
            let settings = self.edited(settings, mail).await;
            self.mailroom().people[usize::from(owner)].settings = vec![(0, settings)];
        }
    }

    async fn edited(&self, settings: NotificationSettings, mail: ChannelSettings) -> NotificationSettings {
        let next = settings.with_settings(NotificationPreferences { mail, slack: None });
        let edited = self
            .table
            .update_notification_settings(&next, None, None, &sample::audit())
            .await;
        assert_eq!(edited.expect("an edit"), UpdateResult::Stored);
        next
    }

    async fn act(&mut self, act: Act) {
        let now = self.now();
        match act {
            Act::Pass(event) => {
                let body = json!({"detail-type": event.kind().name(), "detail": event.to_json()});
                self.sqs().send(EVENTS, &body.to_string());
                self.passed(event, now);
            }
            Act::Poison(queue) => self.mappings.send_poison(queue, &self.run.world.queues.sqs),
            Act::Test(addressee) => {
                let person = self.mailroom().people[addressee].person.clone();
                let id = DeliveryId::new_at(now, [1; 8]);
                let source = EventSource::for_stack("sim").expect("a source");
                let event = test_event(source, &person, "notices", id).expect("an event");
                self.passed(event, now);
                for _ in 0..2 {
                    let request = NotificationRequest {
                        person: person.clone(),
                        of: NotificationSource::Test(id),
                    };
                    self.sqs().send(REQUESTS, &json!(request).to_string());
                }
            }
            Act::TurnOff(addressee) | Act::Choose(addressee) | Act::Move(addressee, _) => {
                self.edit(addressee, &act, now).await;
            }
        }
    }

    fn passed(&self, event: Event, now: Timestamp) {
        let mut mailroom = self.mailroom();
        if !mailroom.passed.iter().any(|passed| passed.event.id() == event.id()) {
            let (at, done) = (now.micros(), None);
            mailroom.passed.push(Passed { event, at, done });
        }
    }

    async fn edit(&self, addressee: usize, act: &Act, now: Timestamp) {
        let (person, before) = {
            let addressee = &self.mailroom().people[addressee];
            let (_, settings) = addressee.settings.last().expect("settings").clone();
            (addressee.person.clone(), settings)
        };
        let after = match act {
            Act::Move(_, address) => {
                let address = address.and_then(MailAddress::parse);
                if address.is_none() && before.address.is_none() {
                    return;
                }
                // The new settings are recorded before the write, because a mail to the new address may be sent before
                // the write returns.
                let moved = NotificationSettings { address, ..before };
                self.mailroom().people[addressee]
                    .settings
                    .push((now.micros(), moved.clone()));
                let kept = self
                    .table
                    .try_store_mail_address(&person, moved.address.as_ref(), now)
                    .await;
                assert!(kept.expect("an address"));
                moved
            }
            act => {
                let enabled = !matches!(act, Act::TurnOff(_));
                self.edited(before, ChannelSettings { enabled, kinds: None }).await
            }
        };
        let now = self.run.world.now();
        let mut mailroom = self.mailroom();
        let addressee = &mut mailroom.people[addressee];
        addressee.refused = None;
        addressee.settings.push((now, after));
    }

    /// Lets time pass until no work is left.
    async fn work(&mut self) {
        loop {
            let now = self.run.world.now();
            while self.acts.front().is_some_and(|(at, _)| *at <= now) {
                let (_, act) = self.acts.pop_front().expect("one is due");
                self.act(act).await;
            }
            self.receive();
            let now = self.run.world.now();
            let next = self.next();
            if next.is_none() && self.running.is_empty() {
                if self.run.world.record().flying() == 0 {
                    return;
                }
                // A sent message may arrive late.
                self.run.landed().await;
                continue;
            }
            if now > self.began + LONGEST {
                self.run.world.complain("notices: the queues are never empty");
                return;
            }
            let wait = next.map_or(HOUR, |next| (next - now).max(1_000)).unsigned_abs();
            tokio::select! {
                biased;
                Some(ran) = self.running.join_next() => self.end(ran.expect("no panic")),
                () = sleep(Duration::from_micros(wait)) => {}
            }
        }
    }

    /// Returns the time of the next work that is not in progress.
    fn next(&self) -> Option<i64> {
        let visible = self.mappings.next_visible(self.sqs()).into_iter();
        visible.chain(self.acts.front().map(|(at, _)| *at)).min()
    }

    /// Starts an invocation for each visible batch, up to the mappings' concurrency.
    fn receive(&mut self) {
        let sqs = &self.run.world.queues.sqs;
        for mapping in 0..self.mappings.count() {
            while let Some(batch) = self.mappings.receive(mapping, sqs, &mut self.rng) {
                if batch.is_doubled {
                    self.start(mapping, batch.event.clone());
                }
                self.start(mapping, batch.event);
            }
        }
    }

    /// Starts an invocation in an idle process, or in a new one.
    fn start(&mut self, mapping: usize, batch: Value) {
        self.mappings.begin(mapping);
        let worker = match self.mode {
            Mode::Calm => 0,
            _ => self.rng.index(WORKERS),
        };
        let is_fit = |environment: &Environment| environment.link.worker == worker;
        let environment = match self.idle.iter().position(is_fit) {
            Some(place) => self.idle.swap_remove(place),
            None => self.boot(worker),
        };
        let troubles = Troubles::draw(self.mode, 3, &mut self.rng);
        let mut mailroom = self.mailroom();
        let step = FIRST_STEP + mailroom.invocations.len();
        let invocation = troubles.invocation(self.run.world.now());
        mailroom.invocations.insert(step, invocation);
        drop(mailroom);
        environment.link.begin(step, troubles.pace, troubles.faults);
        self.running.spawn(invoke(environment, mapping, batch, step));
    }

    fn boot(&self, worker: usize) -> Environment {
        let link = Link::new(&self.run.world, worker);
        let notices = Notifications::boot(self.run.boot(&link));
        Environment {
            notices: notices.expect("the function starts"),
            link,
        }
    }

    /// Ends an invocation: deletes the processed messages, and keeps the process.
    fn end(&mut self, ran: Ran) {
        let Ran {
            environment,
            mapping,
            batch,
            step,
            end,
        } = ran;
        let now = self.run.world.now();
        self.run.note_end(self.mappings.mapping(mapping).name, &end);
        self.mappings.end(self.run, (mapping, &batch), &end, &mut self.rng);
        let mut mailroom = self.mailroom();
        let is_disturbed = end.is_disturbed();
        let invocation = mailroom.invocations.get_mut(&step).expect("it began");
        (invocation.ended, invocation.is_disturbed) = (Some(now), is_disturbed);
        let refused = |mail: &&Mail| mail.step == step && !mail.is_accepted;
        let refused: Vec<usize> = mailroom
            .mails
            .iter()
            .filter(refused)
            .map(|mail| mail.addressee)
            .collect();
        for number in refused {
            let addressee = &mut mailroom.people[number];
            addressee.refused = Some(now).filter(|_| addressee.was_refused && !is_disturbed);
        }
        let accepted = |mail: &&Mail| mail.step == step && mail.is_accepted;
        let accepted: Vec<usize> = mailroom
            .mails
            .iter()
            .filter(accepted)
            .map(|mail| mail.addressee)
            .collect();
        for number in accepted {
            mailroom.people[number].refused = None;
        }
        if let Some(answer) = &end.answer {
            for event in done(&batch, answer) {
                let mut passed = mailroom.passed.iter_mut();
                if let Some(passed) = passed.find(|passed| passed.event.id().to_string() == event) {
                    passed.done.get_or_insert(now);
                }
            }
        }
        drop(mailroom);
        if end.is_alive() {
            self.idle.push(environment);
        }
    }

    /// Returns what is wrong at the end.
    fn found(&self) -> Vec<String> {
        let mut found = self.mappings.found(self.run);
        for (pk, sk) in self.run.world.tables.rows(WEBHOOKS, None).keys() {
            if pk.starts_with("Q#") {
                found.push(format!("{sk} still waits in {pk}"));
            }
        }
        let mailroom = self.mailroom();
        for (number, addressee) in mailroom.people.iter().enumerate() {
            for passed in &mailroom.passed {
                if !addressee.has_changed() && addressee.wanted_since(0, &passed.event, None) {
                    let what = self.of_event(&mailroom, number, passed);
                    let of = (passed.event.id(), passed.event.kind().name(), number, addressee.manner);
                    found.extend(what.map(|what| format!("the event {of:?} {what}")));
                }
            }
        }
        if mailroom.spread < MAX_SPREAD {
            found.extend(mailroom.mails.iter().filter_map(|mail| self.of_mail(&mailroom, mail)));
        }
        found
    }

    /// Returns what is wrong with an event for a user whose settings have not changed.
    fn of_event(&self, mailroom: &Mailroom, number: usize, passed: &Passed) -> Option<&'static str> {
        let addressee = &mailroom.people[number];
        let key = pending_event_key(&passed.event);
        let is_test = passed.event.kind() == EventKind::WebhookTest;
        let Some(settled) = mailroom.settled.get(&(addressee.person.clone(), key.clone())) else {
            // An event without an owner concerns all users, and becomes due for each when its message is processed.
            let collected = passed.done.filter(|_| passed.event.owner().is_some());
            let collected = collected.unwrap_or_else(|| self.run.world.now()) + self.ahead;
            return if passed.is_over(collected) {
                self.run.world.count("dropped as too old");
                None
            } else if addressee.was_refused && !is_test {
                self.run.world.count("dropped for a refused address");
                None
            } else {
                Some("was lost")
            };
        };
        let mut mails = mailroom.mails.iter();
        let mail = mails.find(|mail| (mail.addressee, mail.step) == (number, settled.step));
        match mail {
            Some(mail) if mail.is_accepted => {
                let is_told = mail.count > mail.paths.len() || mail.paths.contains(&path_of(&passed.event));
                if !is_told && !passed.is_over(settled.clock) {
                    return Some("is not in the mail that settled it");
                }
                self.run.world.count("told by mail");
                self.late(mailroom, addressee, passed, mail)
            }
            Some(_) if addressee.was_refused => None,
            _ if passed.is_over(settled.clock) => {
                self.run.world.count("dropped as too old");
                None
            }
            _ if mailroom.closes(&addressee.person, &key) => {
                self.run.world.count("left out: answered");
                None
            }
            _ => Some("was settled without a mail"),
        }
    }

    /// Returns an error if an event's mail was late although nothing failed.
    fn late(&self, mailroom: &Mailroom, addressee: &Addressee, passed: &Passed, mail: &Mail) -> Option<&'static str> {
        if self.mode != Mode::Quiet || mailroom.spread >= MAX_SPREAD || !addressee.manner.is_good() {
            return None;
        }
        let is_before = |other: &&Mail| other.addressee == mail.addressee && other.at < mail.at;
        let before = mailroom.mails.iter().rfind(is_before);
        let free = before.map_or(passed.at, |before| before.at + BETWEEN);
        let most = free.max(passed.at) + FIRST_MAIL + 2 * mailroom.spread;
        (mail.at > most).then_some("was told late")
    }

    /// Returns an error if the number of events marked as mailed differs from the number in the mail, although nothing
    /// failed.
    fn of_mail(&self, mailroom: &Mailroom, mail: &Mail) -> Option<String> {
        let addressee = &mailroom.people[mail.addressee];
        let is_disturbed = mailroom.invocations[&mail.step].is_disturbed || addressee.has_changed();
        if !mail.is_accepted || !mail.is_said || is_disturbed {
            return None;
        }
        let person = &addressee.person;
        let of_mail = |((of, _), settled): &(&(UserId, String), &Settled)| of == person && settled.step == mail.step;
        let settled: Vec<_> = mailroom.settled.iter().filter(of_mail).collect();
        let is_over = |((_, key), settled): &&(&(UserId, String), &Settled)| {
            let mut passed = mailroom.passed.iter();
            let passed = passed.find(|passed| pending_event_key(&passed.event) == *key);
            passed.is_some_and(|passed| passed.is_over(settled.clock))
        };
        // The users decided these approval requests during the invocation, so the mail may still contain them.
        let Invocation { began, ended, .. } = mailroom.invocations[&mail.step];
        let beside = mailroom.settled.iter().filter(|((of, key), settled)| {
            let is_answered = of == person && mailroom.closes(person, key);
            is_answered && settled.step != mail.step && settled.at >= began
        });
        let (most, over) = (settled.len(), settled.iter().filter(is_over).count());
        let beside = beside
            .filter(|(_, settled)| ended.is_none_or(|ended| settled.at <= ended))
            .count();
        let is_told = (most - over..=most + beside).contains(&mail.count);
        let what = format!(
            "the mail of step {} with {} events to {person} settled {most}, {over} of them too old, changed {}",
            mail.step,
            mail.count,
            mailroom.people[mail.addressee].has_changed()
        );
        (!is_told).then_some(what)
    }
}

/// Invokes `notices` once.
async fn invoke(environment: Environment, mapping: usize, batch: Value, step: usize) -> Ran {
    let end = End::invoke(
        &environment.link,
        environment.notices.process_batch(batch.clone(), TIME),
    )
    .await;
    Ran {
        environment,
        mapping,
        batch,
        step,
        end,
    }
}

/// Returns the ids of the events whose messages are processed.
fn done(batch: &Value, answer: &Value) -> Vec<String> {
    let failures = answer["batchItemFailures"].as_array().expect("failures");
    let is_done = |record: &&Value| {
        !failures
            .iter()
            .any(|failed| failed["itemIdentifier"] == record["messageId"])
    };
    let records = batch["Records"].as_array().expect("records").iter();
    let id = |record: &Value| {
        let body: Value = serde_json::from_str(record["body"].as_str()?).ok()?;
        Some(body["detail"]["id"].as_str()?.to_owned())
    };
    records.filter(is_done).filter_map(id).collect()
}

fn frozen(owner: u8, number: u64, at: Timestamp) -> Event {
    let agent = agent_id(agents_of(owner)[0]);
    let subject = EventSubject::Agent(agent);
    new_event(EventKind::AgentFrozen, number, at, subject, Some(person(owner)))
}

fn new_event(kind: EventKind, number: u64, at: Timestamp, subject: EventSubject, owner: Option<UserId>) -> Event {
    let data = match kind {
        EventKind::AgentFrozen => EventData::new().text("by", "operator"),
        _ => EventData::new(),
    };
    let id = EventId::derive(kind, &[&number, &subject]);
    let source = EventSource::for_stack("sim").expect("a source");
    Event::new(id, source, kind, at, subject, owner, data).expect("an event")
}
