//! Passes the published events of a run to the function `webhooks`, while users change webhooks and one receiver fails.
//!
//! At the end, each delivery must have ended as its receiver's responses, the limits and the faults allow.

use crate::mailbox::Mailroom;
use crate::mappings::{End, Mapping, Mappings, Mode, TIME, Troubles};
use crate::network::Link;
use crate::notices;
use crate::plan::{OWNERS, WORKERS};
use crate::receivers::{Hook, Internet, MAX_WAITING, Manner, Post, Receivers, key_of};
use crate::run::Run;
use crate::tables::{Item, Key, WEBHOOKS, number, text};
use crate::telling::person;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use purser_api::WebhookRequest;
use purser_domain::{
    Ciphertext, DeliveryId, Event, EventId, EventKind, SecretOf, SecretValidity, Timestamp, Webhook,
    WebhookContentType, WebhookId, WebhookSecret, WebhookSecretId, WebhookSettings, WebhookUrl,
};
use purser_store::{NewWebhookSecret, UpdateResult, WebhooksTable};
use purser_testkit::{Rng, Sqs, sample};
use purser_webhooks::Webhooks;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

const EVENTS: &str = "WebhookEventsQueue";
const DELIVERIES: &str = "WebhookDeliveriesQueue";
const REQUESTS: &str = "WebhookRequestsQueue";
const MAPPINGS: [Mapping; 3] = [
    Mapping::new(EVENTS, 5, 20, "FanOut"),
    Mapping::new(DELIVERIES, 20, 100, "Deliver"),
    Mapping::new(REQUESTS, 2, 20, "Request"),
];
/// The queue of notifications about failing webhooks.
const FAILING: &str = "FailingWebhooks";
const VISIBILITY_SECS: i64 = 180;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// The time within which all work has ended: eight calls with the longest pauses.
const LONGEST: i64 = 5 * 24 * HOUR;
/// The maximum time until an event is first sent without failures. Other receivers that hang must not delay it.
const FIRST_CALL: i64 = 2 * 15 * SECOND;
/// The maximum number of events that are passed.
const MAX_EVENTS: usize = 10;

/// The environment variables of `webhooks`.
pub(crate) const VARIABLES: [(&str, &str); 8] = [
    ("WEBHOOKS_TABLE", WEBHOOKS),
    ("SQS_ENDPOINT", "http://sqs.sim"),
    ("WEBHOOK_SECRETS_KEY_ARN", "arn:aws:kms:sim:000000000000:key/secrets"),
    (
        "DELIVERIES_QUEUE_URL",
        "http://sqs.sim/000000000000/WebhookDeliveriesQueue",
    ),
    // Nothing reads this queue, because notifications are simulated separately.
    (
        "NOTICE_REQUESTS_QUEUE_URL",
        "http://sqs.sim/000000000000/FailingWebhooks",
    ),
    (
        "DELIVERIES_QUEUE_ARN",
        "arn:aws:sqs:us-east-1:000000000000:WebhookDeliveriesQueue",
    ),
    (
        "WEBHOOK_REQUESTS_QUEUE_ARN",
        "arn:aws:sqs:us-east-1:000000000000:WebhookRequestsQueue",
    ),
    (
        "WEBHOOK_EVENTS_QUEUE_ARN",
        "arn:aws:sqs:us-east-1:000000000000:WebhookEventsQueue",
    ),
];

/// The queues, and the users' webhook receivers.
pub(crate) struct Queues {
    pub(crate) sqs: Sqs,
    /// The time in microseconds since 1970, without clock skew.
    clock: Arc<AtomicI64>,
    receivers: Mutex<Receivers>,
    mailroom: Mutex<Mailroom>,
}

impl Queues {
    pub(crate) fn new(now: i64) -> Self {
        let clock = Arc::new(AtomicI64::new(now));
        let time = Arc::clone(&clock);
        let sqs = Sqs::new(move || time.load(SeqCst));
        for mapping in MAPPINGS.iter().chain(&notices::MAPPINGS) {
            sqs.create(mapping.queue, VISIBILITY_SECS, mapping.most_receipts);
        }
        sqs.create(FAILING, VISIBILITY_SECS, 1);
        Self {
            sqs,
            clock,
            receivers: Mutex::default(),
            mailroom: Mutex::default(),
        }
    }

    pub(crate) fn set_time(&self, now: i64) {
        self.clock.store(now, SeqCst);
    }

    pub(crate) fn time(&self) -> i64 {
        self.clock.load(SeqCst)
    }

    pub(crate) fn receivers(&self) -> MutexGuard<'_, Receivers> {
        self.receivers.lock().expect("not poisoned")
    }

    pub(crate) fn mailroom(&self) -> MutexGuard<'_, Mailroom> {
        self.mailroom.lock().expect("not poisoned")
    }

    /// Responds to a call to SQS or KMS.
    pub(crate) fn answer(&self, operation: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let body = std::str::from_utf8(body).expect("the SDK writes text");
        let (status, answer) = match operation {
            "Decrypt" => decrypt(&serde_json::from_str(body).expect("the SDK writes JSON")),
            operation => self.sqs.call(&format!("AmazonSQS.{operation}"), body),
        };
        (status, answer.into_bytes())
    }
}

/// Encrypts a secret with its encryption context.
fn encrypt(of: &SecretOf, secret: &[u8]) -> Ciphertext {
    let sealed = json!({"context": of.encryption_context(), "secret": BASE64_STANDARD.encode(secret)});
    Ciphertext::from_bytes(sealed.to_string().into_bytes())
}

fn decrypt(request: &Value) -> (u16, String) {
    let sealed = request["CiphertextBlob"].as_str().expect("a ciphertext");
    let sealed = BASE64_STANDARD.decode(sealed).expect("base64");
    let sealed: Value = serde_json::from_slice(&sealed).expect("what `encrypt` makes");
    if sealed["context"] == request["EncryptionContext"] {
        (
            200,
            json!({"KeyId": "secrets", "Plaintext": sealed["secret"]}).to_string(),
        )
    } else {
        (400, json!({"__type": "InvalidCiphertextException"}).to_string())
    }
}

/// A process of `webhooks`.
struct Environment {
    link: Arc<Link>,
    webhooks: Webhooks,
    invocation: Arc<AtomicUsize>,
}

/// The event of an invocation.
enum Work {
    /// A batch of the mapping with this number.
    Batch(usize, Value),
    /// The scheduled sweep of pauses.
    Sweep,
}

struct Ended {
    environment: Environment,
    work: Work,
    end: End,
}

/// An act at a given time.
#[derive(Clone, Debug)]
enum Act {
    /// The bus delivers an event to the queue.
    Send(Event),
    /// An unreadable message is sent to a queue.
    Poison(&'static str),
    /// A user removes, disables, rotates or updates a webhook.
    Remove(usize),
    Disable(usize),
    Rotate(usize),
    Edit(usize),
    /// A user requests a test delivery.
    Test(usize),
    /// A user requests a redelivery.
    Again(usize),
}

struct Office<'a> {
    run: &'a Run,
    step: usize,
    rng: Rng,
    mode: Mode,
    /// The table as the dashboard accesses it.
    table: WebhooksTable,
    began: i64,
    /// The scheduled acts, earliest first.
    acts: VecDeque<(i64, Act)>,
    idle: Vec<Environment>,
    running: JoinSet<Ended>,
    mappings: Mappings,
    swept: i64,
    sweeper: usize,
    /// The passed events, each with the time at which it was first passed.
    sent: BTreeMap<EventId, (Event, i64)>,
    /// The requested deliveries: the webhook, the event of a redelivery, and the time.
    requests: Vec<(usize, Option<EventId>, i64)>,
    /// The partition of a user near the limit of pending deliveries, and the rows of the user's other deliveries.
    limited: Option<(String, BTreeSet<String>)>,
}

impl Run {
    /// Passes the published events to `webhooks`, and checks the deliveries.
    pub(crate) async fn call_webhooks(&self, seed: u64, step: usize) {
        self.landed().await;
        let mut office = Office::open(self, seed, step);
        office.set_up().await;
        office.work().await;
        for what in office.found() {
            self.world.complain(what);
        }
    }

    /// Returns some of the published events that have an owner, and how often each was published, at most three times.
    pub(crate) fn some_events(&self, rng: &mut Rng, most: usize) -> Vec<(Event, usize)> {
        let mut told: BTreeMap<String, (Value, usize)> = BTreeMap::new();
        for detail in &self.world.record().told {
            if detail["owner"].is_string() {
                let id = detail["id"].as_str().expect("an id").to_owned();
                told.entry(id).or_insert((detail.clone(), 0)).1 += 1;
            }
        }
        let mut told: Vec<(Value, usize)> = told.into_values().collect();
        let mut chosen = Vec::new();
        while chosen.len() < most && !told.is_empty() {
            let (detail, count) = told.swap_remove(rng.index(told.len()));
            let event = Event::parse(detail.to_string().as_bytes()).expect("one of our events");
            chosen.push((event, count.min(3)));
        }
        chosen
    }
}

impl<'a> Office<'a> {
    fn open(run: &'a Run, seed: u64, step: usize) -> Self {
        let mut rng = Rng::from_seed(seed ^ 7);
        let mode = *rng.pick(&[Mode::Calm, Mode::Quiet, Mode::Faulty, Mode::Faulty, Mode::Faulty]);
        let aws = run.boot(&Link::new(&run.world, 0)).aws;
        let skews = (0..WORKERS).map(|worker| run.world.skew(worker));
        let (least, most) = (skews.clone().min(), skews.max());
        {
            let mut receivers = run.world.queues.receivers();
            receivers.mode = mode;
            receivers.spread = most.zip(least).map_or(0, |(most, least)| most - least);
        }
        Self {
            run,
            step,
            mode,
            table: WebhooksTable::new(purser_store::dynamodb_client(&aws), WEBHOOKS),
            began: run.world.now(),
            acts: VecDeque::new(),
            idle: Vec::new(),
            running: JoinSet::new(),
            mappings: Mappings::new(&MAPPINGS, mode),
            swept: 0,
            sweeper: rng.index(WORKERS),
            sent: BTreeMap::new(),
            requests: Vec::new(),
            limited: None,
            rng,
        }
    }

    fn sqs(&self) -> &Sqs {
        &self.run.world.queues.sqs
    }

    fn receivers(&self) -> MutexGuard<'_, Receivers> {
        self.run.world.queues.receivers()
    }

    /// Creates the webhooks, and schedules the acts.
    async fn set_up(&mut self) {
        let events = self.run.some_events(&mut self.rng, MAX_EVENTS);
        for owner in 0..OWNERS {
            let slow = 5_000 + self.rng.below(9_000);
            let manner = self
                .rng
                .weighted(&[(4, Manner::Good), (1, Manner::Slow(slow)), (1, Manner::LosesAnswers(1))]);
            self.create(owner, manner, |_| {}).await;
        }
        let Some((event, _)) = events.first().cloned() else {
            return;
        };
        let Some(owner) = (0..OWNERS).find(|owner| event.owner() == Some(&person(*owner))) else {
            return;
        };
        let failing = self.fail(owner, &events).await;
        if self.rng.one_in(2) {
            let (by_kind, kind, agent) = (self.rng.one_in(2), event.kind(), event.agent());
            let hook = self.create(owner, Manner::Good, |terms| {
                if by_kind {
                    terms.kinds = Some([kind].into());
                } else {
                    terms.agents = agent.map(|agent| [agent].into());
                }
            });
            let hook = hook.await;
            let acts = [Act::Remove(hook), Act::Disable(hook), Act::Rotate(hook)];
            let act = self.rng.pick(&acts).clone();
            self.later(4 * HOUR, act);
        }
        let some = self.rng.index(usize::from(OWNERS));
        match self.rng.below(6) {
            0 => self.later(HOUR, Act::Rotate(some)),
            1 => self.later(HOUR, Act::Test(some)),
            2 => self.later(6 * HOUR, Act::Again(usize::from(owner))),
            3 => self.later(6 * HOUR, Act::Again(failing)),
            4 => self.later(MINUTE, Act::Remove(failing)),
            _ => {}
        }
        for queue in [EVENTS, DELIVERIES] {
            if self.rng.one_in(6) {
                self.later(HOUR, Act::Poison(queue));
            }
        }
        for (event, count) in events {
            for _ in 0..count {
                let within = self.rng.weighted(&[(6, MINUTE), (1, 20 * HOUR)]);
                self.later(within, Act::Send(event.clone()));
            }
        }
        self.acts.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    /// Creates a webhook whose receiver fails.
    async fn fail(&mut self, owner: u8, events: &[(Event, usize)]) -> usize {
        let until = self.began + *self.rng.pick(&[8 * SECOND, 400 * SECOND, 3 * HOUR, 12 * HOUR]);
        let busy = *self.rng.pick(&[30, 1_200, 7_200, 40_000]);
        let manner = self.rng.weighted(&[
            (1, Manner::Hangs),
            (2, Manner::Hostile),
            (3, Manner::Gone),
            (3, Manner::FailsUntil(until)),
            (2, Manner::Busy(busy, 2)),
            (1, Manner::LosesAnswers(2)),
        ]);
        let is_limited = matches!(manner, Manner::Hangs | Manner::Hostile) && self.rng.one_in(2);
        // Repeated calls slow down the simulation, so this webhook gets fewer events.
        let is_long = !matches!(manner, Manner::Gone | Manner::LosesAnswers(_)) && !is_limited;
        let of_owner = events.iter().filter(|(event, _)| event.owner() == Some(&person(owner)));
        let mut kinds: BTreeMap<EventKind, usize> = BTreeMap::new();
        for (event, _) in of_owner {
            *kinds.entry(event.kind()).or_default() += 1;
        }
        let rarest = kinds.into_iter().min_by_key(|(_, count)| *count);
        let kind = rarest.map(|(kind, _)| kind).filter(|_| is_long);
        let hook = self.create(owner, manner, |terms| terms.kinds = kind.map(|kind| [kind].into()));
        let hook = hook.await;
        if is_limited {
            self.crowd(owner);
        }
        if manner == Manner::Gone && self.rng.one_in(2) {
            self.later(6 * HOUR, Act::Edit(hook));
        }
        hook
    }

    /// Fills a user's pending deliveries up to the limit.
    fn crowd(&mut self, owner: u8) {
        let world = &self.run.world;
        let partition = format!("W#{}", person(owner));
        let ttl = (self.began + 6 * 24 * HOUR) / SECOND;
        let count = MAX_WAITING - self.rng.index(3);
        let mut rows = BTreeSet::new();
        for number in 0..count {
            let id = Uuid::from_u128(number as u128).to_string();
            let row = json!({"pk": {"S": partition}, "sk": {"S": id}, "ttl": {"N": ttl.to_string()}});
            let put = json!({"TableName": WEBHOOKS, "Item": row}).to_string();
            let (status, _) = world.tables.call("PutItem", put.as_bytes());
            assert_eq!(status, 200);
            rows.insert(id);
        }
        let mut receivers = self.receivers();
        receivers.waiting.insert(partition.clone(), rows.clone());
        drop(receivers);
        self.limited = Some((partition, rows));
    }

    fn later(&mut self, within: i64, act: Act) {
        let at = self.began + i64::try_from(self.rng.below(within.unsigned_abs())).expect("hours");
        self.acts.push_back((at, act));
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.run.world.now()).expect("an instant")
    }

    async fn create(&mut self, owner: u8, manner: Manner, edit: impl FnOnce(&mut WebhookSettings)) -> usize {
        let number = self.receivers().hooks.len();
        let id = WebhookId::from_uuid(Uuid::from_u128(0x3eb0 << 64 | number as u128));
        let (secret, text) = self.new_secret(owner, id);
        let mut terms = WebhookSettings {
            url: WebhookUrl::parse(&format!("https://hook-{number}.sim/")).expect("a URL"),
            description: None,
            kinds: None,
            agents: None,
            enabled: true,
            content_type: WebhookContentType::CloudEvents,
        };
        edit(&mut terms);
        let created_at = self.now();
        let webhook = Webhook {
            id,
            person: person(owner),
            slot: u8::try_from(number).expect("few"),
            version: 1,
            created_at,
            terms: terms.clone(),
            secrets: vec![SecretValidity {
                id: secret.id,
                created_at,
                ends_at: None,
            }],
        };
        let stored = self.table.create_webhook(&webhook, &secret, &sample::audit()).await;
        assert_eq!(stored.expect("a webhook"), UpdateResult::Stored);
        self.receivers().hooks.push(Hook {
            webhook,
            manner,
            secrets: vec![(0, text)],
            settings: vec![(0, Some(terms))],
            is_edited: false,
        });
        number
    }

    /// Creates a webhook secret. Returns the stored form, and the text that the user gets.
    fn new_secret(&mut self, owner: u8, webhook: WebhookId) -> (NewWebhookSecret, String) {
        let mut bytes = [0; 48];
        self.rng.fill(&mut bytes);
        let (id, secret) = bytes.split_at(16);
        let id = WebhookSecretId::from_uuid(Uuid::from_slice(id).expect("16 bytes"));
        let of = SecretOf::Webhook {
            person: person(owner),
            webhook,
            secret: id,
        };
        let stored = NewWebhookSecret {
            id,
            secret: encrypt(&of, secret),
        };
        let text = WebhookSecret::from_random(secret.try_into().expect("32 bytes")).to_standard_text();
        (stored, text.to_string())
    }

    async fn act(&mut self, act: Act) {
        let now = self.now();
        match act {
            Act::Send(event) => {
                self.sent.entry(event.id()).or_insert((event.clone(), now.micros()));
                let body = json!({"detail-type": event.kind().name(), "detail": event.to_json()});
                self.sqs().send(EVENTS, &body.to_string());
            }
            Act::Poison(queue) => self.mappings.send_poison(queue, &self.run.world.queues.sqs),
            Act::Test(hook) => self.ask(hook, None),
            Act::Again(hook) => {
                let receivers = self.receivers();
                let partition = format!("D#{}", receivers.hooks[hook].webhook.id);
                let mut ended = receivers.ended.keys().filter(|key| key.0 == partition);
                let ended = ended.next().cloned();
                drop(receivers);
                if let Some(key) = ended {
                    self.ask(hook, Some(key));
                }
            }
            Act::Remove(hook) | Act::Disable(hook) | Act::Rotate(hook) | Act::Edit(hook) => {
                self.edit(hook, &act, now).await;
            }
        }
    }

    async fn edit(&mut self, hook: usize, act: &Act, now: Timestamp) {
        let webhook = {
            let hook = &self.receivers().hooks[hook];
            if hook.settings.iter().any(|(_, terms)| terms.is_none()) {
                return;
            }
            hook.webhook.clone()
        };
        let audit = sample::audit();
        let (edited, stored, secret) = match act {
            Act::Remove(_) => (webhook.clone(), self.table.remove_webhook(&webhook, &audit).await, None),
            Act::Rotate(_) => {
                let owner = (0..OWNERS).find(|owner| person(*owner) == webhook.person);
                let (secret, text) = self.new_secret(owner.expect("an owner"), webhook.id);
                let (rotated, ended) = webhook.rotate_secret(secret.id, now);
                let stored = self
                    .table
                    .rotate_webhook_secret(&rotated, &secret, &ended, &audit)
                    .await;
                (rotated, stored, Some(text))
            }
            Act::Disable(_) => {
                let mut terms = webhook.terms.clone();
                terms.enabled = false;
                let edited = webhook.with_settings(terms);
                let stored = self.table.update_webhook(&edited, &audit).await;
                (edited, stored, None)
            }
            _ => {
                self.receivers().edited(hook);
                let edited = webhook.clone().with_settings(webhook.terms);
                let stored = self.table.update_webhook(&edited, &audit).await;
                (edited, stored, None)
            }
        };
        assert_eq!(stored.expect("an edit"), UpdateResult::Stored);
        let now = self.run.world.now();
        let mut receivers = self.receivers();
        let hook = &mut receivers.hooks[hook];
        let settings = match act {
            Act::Remove(_) => Some(None),
            Act::Disable(_) => Some(Some(edited.terms.clone())),
            _ => None,
        };
        hook.settings.extend(settings.map(|settings| (now, settings)));
        hook.secrets.extend(secret.map(|text| (now, text)));
        hook.webhook = edited;
    }

    /// Requests a test or a redelivery as a user. The message is sent twice.
    fn ask(&mut self, hook: usize, again: Option<Key>) {
        let now = self.now();
        let mut receivers = self.receivers();
        let webhook = &receivers.hooks[hook].webhook;
        let request = WebhookRequest {
            person: webhook.person.clone(),
            webhook: webhook.id,
            id: DeliveryId::new_at(now, [1; 8]),
            again: again.as_ref().and_then(|key| DeliveryId::parse(&key.1)),
        };
        let event = again.as_ref().and_then(|key| {
            let mut sent = self.sent.values().map(|(event, _)| event);
            sent.find(|event| key_of(webhook.id, event) == *key).map(Event::id)
        });
        receivers.requested.extend(again.map(|key| (key, now.micros())));
        drop(receivers);
        self.requests.push((hook, event, now.micros()));
        for _ in 0..2 {
            self.sqs().send(REQUESTS, &json!(request).to_string());
        }
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
            if self.next_sweep().is_some_and(|at| at <= self.run.world.now()) {
                self.swept = self.run.world.now();
                self.start(Work::Sweep);
                if self.mode != Mode::Calm && self.rng.one_in(8) {
                    self.start(Work::Sweep);
                }
            }
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
                self.run.world.complain("webhooks: the queues are never empty");
                return;
            }
            let wait = next.map_or(HOUR, |next| (next - now).max(1_000)).unsigned_abs();
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next() => self.end(ended.expect("no panic")),
                () = sleep(Duration::from_micros(wait)) => {}
            }
        }
    }

    /// Returns the time of the next work that is not in progress.
    fn next(&self) -> Option<i64> {
        let visible = self.mappings.next_visible(self.sqs()).into_iter();
        let acts = self.acts.front().map(|(at, _)| *at);
        visible.chain(acts).chain(self.next_sweep()).min()
    }

    /// Returns the minute of the next sweep that finds a pause.
    fn next_sweep(&self) -> Option<i64> {
        let receivers = self.receivers();
        let (ends, _) = receivers.pauses.first()?.split_once('#')?;
        let ends = Timestamp::parse(ends)?.micros();
        let found = ends - MINUTE - self.run.world.skew(self.sweeper);
        let after = found.max(self.swept + 1);
        Some((after + MINUTE - 1) / MINUTE * MINUTE)
    }

    /// Starts an invocation for each visible batch, up to the mappings' concurrency.
    fn receive(&mut self) {
        let sqs = &self.run.world.queues.sqs;
        for mapping in 0..self.mappings.count() {
            while let Some(batch) = self.mappings.receive(mapping, sqs, &mut self.rng) {
                if batch.is_doubled {
                    self.start(Work::Batch(mapping, batch.event.clone()));
                }
                self.start(Work::Batch(mapping, batch.event));
            }
        }
    }

    /// Starts an invocation in an idle process, or in a new one.
    fn start(&mut self, work: Work) {
        let worker = match work {
            Work::Batch(mapping, _) => {
                self.mappings.begin(mapping);
                self.rng.index(WORKERS)
            }
            Work::Sweep => self.sweeper,
        };
        let is_fit = |environment: &Environment| environment.link.worker == worker;
        let environment = match self.idle.iter().position(is_fit) {
            Some(place) => self.idle.swap_remove(place),
            None => self.boot(worker),
        };
        let troubles = Troubles::draw(self.mode, 2, &mut self.rng);
        let mut receivers = self.receivers();
        environment.invocation.store(receivers.invocations.len(), SeqCst);
        receivers.invocations.push(troubles.invocation(self.run.world.now()));
        drop(receivers);
        environment.link.begin(self.step, troubles.pace, troubles.faults);
        self.running.spawn(invocation(environment, work));
    }

    fn boot(&self, worker: usize) -> Environment {
        let link = Link::new(&self.run.world, worker);
        let invocation = Arc::new(AtomicUsize::new(0));
        let internet = Internet {
            link: Arc::clone(&link),
            invocation: Arc::clone(&invocation),
            step: self.step,
        };
        let webhooks = Webhooks::boot_with_receivers(self.run.boot(&link), |_| Ok(Box::new(internet)));
        Environment {
            webhooks: webhooks.expect("the function starts"),
            link,
            invocation,
        }
    }

    /// Ends an invocation: deletes the processed messages, and keeps the process.
    fn end(&mut self, ended: Ended) {
        let Ended { environment, work, end } = ended;
        let now = self.run.world.now();
        let name = match &work {
            Work::Batch(mapping, _) => self.mappings.mapping(*mapping).name,
            Work::Sweep => "Resume",
        };
        self.run.note_end(name, &end);
        let number = environment.invocation.load(SeqCst);
        {
            let mut receivers = self.receivers();
            let invocation = &mut receivers.invocations[number];
            invocation.ended = Some(now);
            invocation.is_disturbed = end.is_disturbed();
        }
        if let Work::Batch(mapping, batch) = work {
            self.mappings.end(self.run, (mapping, &batch), &end, &mut self.rng);
            self.compare(mapping, &batch, end.answer.as_ref());
        }
        if end.is_alive() {
            self.idle.push(environment);
        }
    }

    /// Checks that without faults and concurrency every readable message is processed.
    fn compare(&self, mapping: usize, batch: &Value, answer: Option<&Value>) {
        let failures = answer.and_then(|answer| answer["batchItemFailures"].as_array());
        let Some(failures) = failures.filter(|failures| !failures.is_empty()) else {
            return;
        };
        self.run.world.count("messages stay");
        let queue = self.mappings.mapping(mapping).queue;
        let body = batch["Records"][0]["body"].as_str().unwrap_or_default();
        if self.mode == Mode::Calm && !self.mappings.is_poison(queue, body) {
            let what = format!("webhooks: a message of {queue} stays without cause: {failures:?}, {body}");
            self.run.world.complain(what);
        }
    }

    /// Returns what is wrong at the end.
    fn found(&self) -> Vec<String> {
        let queues = self.mappings.found(self.run).into_iter();
        let mut found: Vec<String> = queues.map(|what| format!("webhooks: {what}")).collect();
        let rows = self.run.world.tables.rows(WEBHOOKS, None);
        let receivers = self.receivers();
        for (key, row) in &rows {
            let webhook = key.0.split_once('#').map_or("", |(_, webhook)| webhook);
            let hook = receivers.hooks.iter();
            let mut hook = hook.filter(|hook| hook.webhook.id.to_string() == webhook);
            let is_removed = hook
                .next()
                .is_some_and(|hook| hook.settings.iter().any(|(_, terms)| terms.is_none()));
            let is_known =
                |(partition, rows): &(String, BTreeSet<String>)| *partition == key.0 && rows.contains(&key.1);
            let is_left = match key.0.split('#').next() {
                Some("N") => true,
                Some("D") => text(row, "st") == "waiting" && !is_removed,
                // After a crash, the row of an ended delivery stays until it expires.
                Some("W") => self.mode != Mode::Faulty && !self.limited.as_ref().is_some_and(is_known),
                _ => false,
            };
            if is_left {
                found.push(format!("webhooks: {key:?} is left: {}", crate::tables::words(row)));
            }
        }
        for (number, hook) in receivers.hooks.iter().enumerate() {
            for (event, sent) in self.sent.values() {
                if hook.wanted_since(0, event) && !hook.has_changed() {
                    let key = key_of(hook.webhook.id, event);
                    let row = rows.get(&key).map(|row| &**row);
                    let posts: Vec<&Post> = receivers.posts_of(number, event.id()).collect();
                    for what in self.of_delivery(&receivers, hook, &key, row, &posts, *sent) {
                        let of = (number, hook.manner, event.id());
                        let count = posts.len();
                        found.push(format!("webhooks: the delivery {of:?} {what}, after {count} calls"));
                    }
                }
            }
        }
        for (hook, event, at) in &self.requests {
            let is_it = |post: &&Post| match event {
                Some(event) => post.event == *event,
                None => post.kind == EventKind::WebhookTest,
            };
            let mut posts = receivers
                .posts
                .iter()
                .filter(|post| post.hook == *hook && post.at >= *at);
            if receivers.hooks[*hook].has_changed() || posts.any(|post| is_it(&post)) {
                self.run.world.count("called on request");
            } else {
                found.push(format!(
                    "webhooks: the request for {event:?} of webhook {hook} was not met"
                ));
            }
        }
        found
    }

    /// Returns what is wrong with a delivery of a webhook that has not changed.
    fn of_delivery(
        &self,
        receivers: &Receivers,
        hook: &Hook,
        key: &Key,
        row: Option<&Item>,
        posts: &[&Post],
        sent: i64,
    ) -> Vec<&'static str> {
        let world = &self.run.world;
        let mut found = Vec::new();
        let is_requested = receivers.requested.contains_key(key);
        let partition = format!("W#{}", hook.webhook.person);
        let is_limited = self.limited.as_ref().is_some_and(|(limited, _)| *limited == partition);
        let Some(row) = row else {
            // A webhook that has responded with 410 gets no further call.
            if hook.manner != Manner::Gone {
                found.push("is missing");
            } else if !posts.is_empty() {
                found.push("has no row");
            }
            return found;
        };
        let (state, calls) = (text(row, "st"), number(row, "n"));
        let is_given_up = is_limited && state == "failed" && calls == 1 && !hook.manner.delivers_at_once();
        match (state, hook.manner) {
            (_, manner) if is_given_up && manner != Manner::Gone => world.count("given up: too many wait"),
            ("delivered", manner) if manner.delivers() => {
                if calls > 1 {
                    world.count("delivered after a failure");
                }
            }
            ("failed", Manner::Gone) => world.count("gone"),
            ("failed", Manner::Hangs | Manner::Hostile) if calls == 8 => world.count("given up after a day"),
            _ => found.push("ended otherwise"),
        }
        if is_requested {
            return found;
        }
        if self.mode == Mode::Calm && !is_given_up && hook.manner.calls().is_some_and(|calls| calls != posts.len()) {
            found.push("was called another number of times");
        }
        // A call may be repeated if its result was lost or if invocations were concurrent.
        let invocation_of = |post: &Post| receivers.invocations[post.invocation];
        let is_disturbed = |post: &&&Post| invocation_of(post).is_disturbed;
        let is_beside = |(number, post): &(usize, &&Post)| {
            let began = invocation_of(post).began;
            let mut before = posts[..*number].iter();
            before.any(|other| invocation_of(other).ended.is_none_or(|ended| ended >= began))
        };
        let disturbed = posts.iter().filter(is_disturbed).count();
        let beside = posts.iter().enumerate().filter(is_beside).count();
        let most = usize::try_from(calls).expect("a count") + 2 * disturbed + beside;
        if posts.len() > most {
            found.push("was called too often");
        }
        if posts.is_empty() && hook.manner != Manner::Gone {
            found.push("was never called");
        }
        let first = posts.first().map(|post| post.at - sent);
        let is_late = first.is_some_and(|first| first > FIRST_CALL) && hook.manner != Manner::Gone;
        if self.mode == Mode::Quiet && is_late {
            found.push("was first called late");
        }
        found
    }
}

/// Invokes `webhooks` once.
async fn invocation(environment: Environment, work: Work) -> Ended {
    let Environment { link, webhooks, .. } = &environment;
    let operation = async {
        match &work {
            Work::Batch(_, batch) => webhooks.process_batch(batch.clone(), TIME).await,
            Work::Sweep => {
                webhooks.enqueue_due_paused_deliveries(TIME).await;
                Ok(Value::Null)
            }
        }
    };
    let end = End::invoke(link, operation).await;
    Ended { environment, work, end }
}
