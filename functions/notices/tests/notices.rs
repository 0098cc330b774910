//! Tests the recipients and the number of notifications, with an emulated DynamoDB, SQS and SES.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

use aws_sdk_dynamodb::types::AttributeValue;
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::any};
use purser_api::{Boot, Clock, NotificationRequest, NotificationSource};
use purser_domain::{
    Agent, AgentId, Attempt, CallResult, ChannelSettings, DeliveryId, EnabledService, Event, EventData, EventId,
    EventKind, EventSource, EventSubject, FailedCalls, MailAddress, NoticeChannel, NoticeEnd, NoticeUrlId,
    NotificationPreferences, NotificationSettings, SecretOf, ServiceId, SlackDestination, Timestamp, UserId, WebhookId,
};
use purser_notices::Notifications;
use purser_store::{CreateAgentResult, NewNotificationUrl, UpdateResult, WebhooksTable};
use purser_testkit::{Emulator, Fate, Kms, Moment, Proxy, ProxyConfig, Ses, Sqs, WEBHOOKS, environment, sample, serve};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU16, Ordering::SeqCst},
    },
    time::Duration,
};
use uuid::Uuid;

const EVENTS: &str = "notice-events";
const REQUESTS: &str = "notice-requests";
const NOTICES: &str = "notices";
const BUDGET: Duration = Duration::from_secs(30);
const LONGEST_CALL: Duration = Duration::from_secs(3);
const VISIBILITY_SECS: i64 = 180;
const GATHERING_SECS: i64 = 10;
const BETWEEN_SECS: i64 = 300;
const ORIGIN: &str = "https://purser.example";

#[derive(Clone, Default)]
struct Incoming {
    status: Arc<AtomicU16>,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Incoming {
    async fn start() -> (Self, String) {
        let incoming = Self::default();
        incoming.status.store(200, SeqCst);
        let router = Router::new().fallback(any(received)).with_state(incoming.clone());
        let url = serve(router).await;
        (incoming, format!("{url}/services/secret-in-the-url"))
    }

    fn texts(&self) -> Vec<String> {
        let bodies = self.bodies.lock().unwrap();
        let text = |body: &String| {
            serde_json::from_str::<Value>(body).unwrap()["text"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        bodies.iter().map(text).collect()
    }
}

async fn received(State(incoming): State<Incoming>, body: Bytes) -> (StatusCode, [(&'static str, &'static str); 1]) {
    let status = incoming.status.load(SeqCst);
    if status == 200 {
        incoming
            .bodies
            .lock()
            .unwrap()
            .push(String::from_utf8(body.to_vec()).unwrap());
    }
    (StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")])
}

struct World {
    emulator: Emulator,
    table: WebhooksTable,
    sqs: Sqs,
    ses: Ses,
    kms: Kms,
    urls: [String; 4],
    allowed: String,
    micros: Arc<AtomicI64>,
    notices: Notifications,
}

impl World {
    async fn start(allowed: &str) -> Self {
        let emulator = Emulator::start().await;
        let micros = Arc::new(AtomicI64::new(Clock::system().now().micros()));
        let clock = Arc::clone(&micros);
        let sqs = Sqs::new(move || clock.load(SeqCst));
        sqs.create(EVENTS, VISIBILITY_SECS, 20);
        sqs.create(REQUESTS, VISIBILITY_SECS, 20);
        sqs.create(NOTICES, VISIBILITY_SECS, 100);
        let ses = Ses::default();
        let kms = Kms::default();
        let urls = [
            emulator.url.clone(),
            sqs.serve().await,
            ses.serve().await,
            kms.serve().await,
        ];
        let notices = function(&urls, allowed, &micros);
        Self {
            table: WebhooksTable::new(emulator.client.clone(), WEBHOOKS),
            emulator,
            sqs,
            ses,
            kms,
            urls,
            allowed: allowed.to_owned(),
            micros,
            notices,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(SeqCst)).unwrap()
    }

    fn pass(&self, secs: i64) {
        self.micros.fetch_add(secs * 1_000_000, SeqCst);
    }

    /// Stores a user whose mail address the issuer has verified.
    async fn person(&self, name: &str) -> UserId {
        let id = person(name);
        let address = MailAddress::parse(&format!("{name}@example.com")).unwrap();
        assert!(
            self.table
                .try_store_mail_address(&id, Some(&address), self.now())
                .await
                .unwrap()
        );
        id
    }

    async fn slack(&self, person: &UserId, url: &str) {
        let settings = self.table.read_notification_settings(person).await.unwrap();
        let id = NoticeUrlId::from_uuid(Uuid::new_v4());
        let of = SecretOf::NoticeUrl {
            person: person.clone(),
            url: id,
        };
        let url = NewNotificationUrl {
            id,
            url: self.kms.encrypt(&of, url.as_bytes()),
        };
        let place = SlackDestination {
            url: url.id,
            host: "hooks.example".to_owned(),
        };
        let terms = NotificationPreferences {
            slack: Some((place, ChannelSettings::default())),
            ..settings.terms.clone()
        };
        self.edit(settings, terms, Some(&url)).await;
    }

    async fn edit(
        &self,
        settings: NotificationSettings,
        terms: NotificationPreferences,
        url: Option<&NewNotificationUrl>,
    ) {
        let next = settings.with_settings(terms);
        let edited = self
            .table
            .update_notification_settings(&next, url, None, &sample::audit())
            .await
            .unwrap();
        assert_eq!(edited, UpdateResult::Stored);
    }

    async fn agent(&self, n: u128, owner: &UserId, name: &str) -> Agent {
        let agent = Agent {
            owner: owner.to_string(),
            name: name.to_owned(),
            ..sample::agent(n, Vec::new())
        };
        let created = self
            .emulator
            .ledger()
            .create_agent(&agent, &sample::audit())
            .await
            .unwrap();
        assert!(matches!(created, CreateAgentResult::Stored), "{created:?}");
        agent
    }

    /// Publishes an event in the format of the event bus.
    fn happen(&self, event: &Event) {
        let from_bus = json!({"version": "0", "detail-type": event.kind().name(), "detail": event.to_json()});
        self.sqs.send(EVENTS, &from_bus.to_string());
    }

    async fn run(&self) {
        work(&self.sqs, &self.notices).await;
    }

    /// Advances the clock, and processes all visible messages.
    async fn run_after(&self, secs: i64) {
        self.pass(secs);
        self.run().await;
    }

    fn mails_to(&self, name: &str) -> Vec<Value> {
        let mut mails = self.ses.mails();
        mails.retain(|mail| mail["Destination"]["ToAddresses"] == json!([format!("{name}@example.com")]));
        mails
    }

    fn left(&self) -> usize {
        self.sqs.bodies(EVENTS).len() + self.sqs.bodies(NOTICES).len()
    }

    /// Asserts that no message remains after the pauses of the last mails.
    async fn ends_empty(&self) {
        self.run_after(BETWEEN_SECS).await;
        assert_eq!((self.left(), self.sqs.set_aside(NOTICES)), (0, Vec::new()));
    }
}

async fn work(sqs: &Sqs, notices: &Notifications) {
    for _ in 0..2 {
        for queue in [EVENTS, REQUESTS, NOTICES] {
            while let Some(batch) = sqs.receive(queue, 10) {
                let answer = notices.process_batch(batch.clone(), BUDGET).await.unwrap();
                sqs.delete_done(queue, &batch, Some(&answer));
            }
        }
    }
}

fn function([dynamodb, sqs, ses, kms]: &[String; 4], allowed: &str, now: &Arc<AtomicI64>) -> Notifications {
    let mut env: std::collections::BTreeMap<&str, String> = environment(dynamodb, sqs).collect();
    env.insert("SQS_ENDPOINT", sqs.clone());
    env.insert("SES_ENDPOINT", ses.clone());
    env.insert("KMS_ENDPOINT", kms.clone());
    env.insert("NOTICES_QUEUE_URL", Sqs::url(sqs, NOTICES));
    env.insert("NOTICES_QUEUE_ARN", Sqs::arn(NOTICES));
    env.insert("NOTICE_REQUESTS_QUEUE_ARN", Sqs::arn(REQUESTS));
    env.insert("NOTICE_EVENTS_QUEUE_ARN", Sqs::arn(EVENTS));
    env.insert("NOTICES_SENDER", "purser@example.com".to_owned());
    env.insert("DASHBOARD_URL", ORIGIN.to_owned());
    env.insert("WEBHOOK_ALLOWED_HOSTS", allowed.to_owned());
    let boot = Boot::new(env.into_iter().collect(), Clock::at_fixed_time(Arc::clone(now)));
    Notifications::boot_with_timeout(boot, LONGEST_CALL).unwrap()
}

fn person(name: &str) -> UserId {
    UserId::derive("https://issuer.example", name)
}

fn event(
    kind: EventKind,
    n: u128,
    at: Timestamp,
    subject: EventSubject,
    owner: Option<&UserId>,
    data: EventData,
) -> Event {
    let source = EventSource::for_stack("tests").unwrap();
    Event::new(
        EventId::derive(kind, &[&n, &at.micros()]),
        source,
        kind,
        at,
        subject,
        owner.cloned(),
        data,
    )
    .unwrap()
}

/// Returns an event about an approval for an owner's agent: the request or the decision.
fn approval(kind: EventKind, n: u128, owner: &UserId, agent: AgentId, at: Timestamp) -> Event {
    let id = Uuid::from_u128(n);
    let data = EventData::new()
        .text("approval_id", id)
        .text("transaction_id", id)
        .text("service_id", sample::service_id(1))
        .text("operation_id", "weather.current")
        .text("key_id", "00000000000000aa")
        .amount("amount_units", sample::units(12_500_000))
        .text("pay_to", "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC")
        .time("expires_at", at.after(purser_domain::Duration::from_secs_u32(40_000)));
    let data = match kind {
        EventKind::ApprovalDecided => data.text("status", "approved"),
        _ => data,
    };
    event(kind, n, at, EventSubject::Agent(agent), Some(owner), data)
}

fn frozen(owner: &UserId, agent: AgentId, n: u128, at: Timestamp) -> Event {
    let data = EventData::new().text("by", "operator");
    event(
        EventKind::AgentFrozen,
        n,
        at,
        EventSubject::Agent(agent),
        Some(owner),
        data,
    )
}

/// Returns the event of an updated policy; with a reason, a rule has disabled the service.
fn policy_changed(owner: &UserId, reason: Option<&str>, n: u128, at: Timestamp) -> Event {
    let data = EventData::new()
        .text("service_id", sample::service_id(1))
        .number("version", 2)
        .flag("enabled", false)
        .amount("max_per_call_units", sample::units(1))
        .amount("max_per_day_units", sample::units(1))
        .amount("require_approval_above_units", sample::units(1))
        .optional_text("reason", reason);
    let subject = EventSubject::Agent(sample::agent_id(1));
    event(EventKind::PolicyChanged, n, at, subject, Some(owner), data)
}

fn payee_changed(service: ServiceId, at: Timestamp) -> Event {
    let data = EventData::new()
        .text("slug", "weather")
        .number("version", 2)
        .text("operation_id", "weather.current")
        .text("pay_to", "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC");
    event(
        EventKind::ServicePayeeChanged,
        1,
        at,
        EventSubject::Service(service),
        None,
        data,
    )
}

fn text_of(mail: &Value) -> &str {
    mail["Content"]["Simple"]["Body"]["Text"]["Data"].as_str().unwrap()
}

/// The mail and the Slack message link to the approval and escape the agent's name.
#[tokio::test]
async fn approval_requests_reach_only_the_agents_owner() {
    let (incoming, url) = Incoming::start().await;
    let world = World::start(authority(&url)).await;
    let [ann, bob] = [world.person("ann").await, world.person("bob").await];
    world.slack(&ann, &url).await;
    let agent = world.agent(1, &ann, "<b>Res</b> & evil.example").await;
    let asked = approval(EventKind::ApprovalAsked, 7, &ann, agent.id, world.now());
    world.happen(&asked);
    world.run().await;
    assert!(world.ses.mails().is_empty(), "a burst is gathered first");
    world.run_after(GATHERING_SECS).await;

    let mails = world.mails_to("ann");
    assert_eq!((mails.len(), world.ses.mails().len()), (1, 1));
    let mail = &mails[0];
    assert_eq!(mail["FromEmailAddress"], "purser@example.com");
    let link = format!("{ORIGIN}/dashboard/approvals/{}/{}", agent.id, Uuid::from_u128(7));
    let (text, simple) = (text_of(mail), &mail["Content"]["Simple"]);
    assert!(
        text.contains("asked for approval to pay $12.50") && text.contains(&link),
        "{text}"
    );
    let html = simple["Body"]["Html"]["Data"].as_str().unwrap();
    assert!(
        html.contains(&link) && !html.contains("<b>") && html.contains("&amp; evil\u{2060}.\u{2060}example"),
        "{html}"
    );
    let unsubscribe = json!([{"Name": "List-Unsubscribe", "Value": format!("<{ORIGIN}/dashboard/notices>")}]);
    assert_eq!(simple["Headers"], unsubscribe);
    let texts = incoming.texts();
    assert!(
        texts.len() == 1 && texts[0].contains(&link) && texts[0].contains("&amp; evil\u{2060}.\u{2060}example"),
        "{texts:?}"
    );
    world.ends_empty().await;
    world.happen(&approval(EventKind::ApprovalDecided, 7, &ann, agent.id, world.now()));
    world.happen(&frozen(&bob, sample::agent_id(2), 1, world.now()));
    world.run().await;
    world.run_after(BETWEEN_SECS).await;
    assert_eq!((world.mails_to("ann").len(), world.mails_to("bob").len()), (1, 1));
}

/// Fifty approval requests, each delivered twice, result in two mails.
#[tokio::test]
async fn approval_requests_are_batched_and_deduplicated() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let agent = world.agent(1, &ann, "Researcher").await.id;
    let asked: Vec<Event> = (0..50)
        .map(|n| approval(EventKind::ApprovalAsked, n, &ann, agent, world.now()))
        .collect();
    // Half of the events are published before the first message and half after it. Each is delivered twice.
    for part in asked.chunks(25) {
        for event in part.iter().chain(part.iter().rev()) {
            world.happen(event);
        }
        world.run().await;
        world.run_after(GATHERING_SECS).await;
    }
    world.run_after(BETWEEN_SECS).await;
    let mails = world.mails_to("ann");
    assert_eq!(mails.len(), 2);
    for mail in &mails {
        assert_eq!(
            mail["Content"]["Simple"]["Subject"]["Data"],
            "25 payments wait for your approval"
        );
        assert!(text_of(mail).contains("And 5 more."));
    }
    // The bus delivers an event again after the mail was sent.
    world.happen(&asked[0]);
    world.run().await;
    world.run_after(BETWEEN_SECS).await;
    world.ends_empty().await;
    assert_eq!(world.mails_to("ann").len(), 2);
}

/// 360 events in an hour result in 12 to 14 mails, and no message remains in the queue.
#[tokio::test]
async fn frequent_notifications_are_combined_into_few_messages() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    for n in 0..360 {
        world.happen(&frozen(&ann, sample::agent_id(1), n, world.now()));
        world.run_after(10).await;
        assert!(world.left() <= 3, "{} after {n}", world.left());
    }
    world.run_after(BETWEEN_SECS).await;
    world.ends_empty().await;
    let mails = world.mails_to("ann");
    assert!((12..=14).contains(&mails.len()), "{}", mails.len());
    let told = |mail: &Value| -> usize {
        let more = text_of(mail).lines().find_map(|line| line.strip_prefix("And "));
        let more = more.and_then(|more| more.split(' ').next()?.parse::<usize>().ok());
        text_of(mail).matches("was frozen").count() + more.unwrap_or(0)
    };
    assert_eq!(mails.iter().map(told).sum::<usize>(), 360);
}

/// The kinds that a user chose for freezes include a service that a rule disabled, but no other updates of policies.
#[tokio::test]
async fn an_automatically_disabled_service_is_notified_like_a_freeze() {
    for kinds in [
        None,
        Some(BTreeSet::from([EventKind::AgentFrozen])),
        Some(BTreeSet::from([EventKind::KeyCreated])),
    ] {
        let world = World::start("").await;
        let ann = world.person("ann").await;
        let is_wanted = kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&EventKind::AgentFrozen));
        let mut terms = NotificationPreferences::default();
        terms.mail.kinds = kinds;
        world
            .edit(world.table.read_notification_settings(&ann).await.unwrap(), terms, None)
            .await;
        world.happen(&policy_changed(&ann, None, 1, world.now()));
        world.happen(&policy_changed(&ann, Some("anomaly brake"), 2, world.now()));
        world.run().await;
        world.run_after(GATHERING_SECS).await;
        let mails = world.mails_to("ann");
        assert_eq!(mails.len(), usize::from(is_wanted));
        for mail in &mails {
            let text = text_of(mail);
            assert!(text.starts_with("An agent of yours can no longer pay "), "{text}");
            assert_eq!(text.matches("An agent of yours").count(), 1, "{text}");
        }
        world.ends_empty().await;
    }
}

#[tokio::test]
async fn urgent_notifications_are_sent_before_older_notifications() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let mut terms = NotificationPreferences::default();
    terms.mail.kinds = Some([EventKind::AgentFrozen, EventKind::AgentUnfrozen].into());
    world
        .edit(world.table.read_notification_settings(&ann).await.unwrap(), terms, None)
        .await;
    let agent = sample::agent_id(1);
    for n in 0..250 {
        let by = EventData::new().text("by", "owner");
        let subject = EventSubject::Agent(agent);
        world.happen(&event(
            EventKind::AgentUnfrozen,
            n,
            world.now(),
            subject,
            Some(&ann),
            by,
        ));
    }
    world.happen(&frozen(&ann, agent, 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    let mails = world.mails_to("ann");
    assert_eq!(mails.len(), 1);
    let text = text_of(&mails[0]);
    assert!(text.starts_with("An agent of yours was frozen"), "{text}");
    // The next message contains the remaining notifications.
    world.run_after(GATHERING_SECS).await;
    world.run_after(BETWEEN_SECS).await;
    assert_eq!(world.mails_to("ann").len(), 2);
    world.ends_empty().await;
}

/// After the user corrects a webhook URL, pending notifications are sent without a retry delay.
#[tokio::test]
async fn a_corrected_webhook_url_receives_pending_notifications_without_retry_delay() {
    let (incoming, url) = Incoming::start().await;
    let world = World::start(authority(&url)).await;
    let ann = person("ann");
    world.slack(&ann, &url).await;
    incoming.status.store(500, SeqCst);
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    for _ in 0..8 {
        world.run_after(600).await;
    }
    incoming.status.store(200, SeqCst);
    world.slack(&ann, &format!("{url}mended")).await;
    world.happen(&frozen(&ann, sample::agent_id(1), 2, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert_eq!(incoming.texts().len(), 1);
    assert_eq!(incoming.texts()[0].matches("was frozen").count(), 2);
}

/// An earlier claim of the identity provider does not restore the address.
#[tokio::test]
async fn unverified_addresses_receive_no_email() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let before = world.table.read_notification_settings(&ann).await.unwrap().address;
    let [earlier, later] = [world.now(), world.now().after(sample::secs(60))];
    assert!(world.table.try_store_mail_address(&ann, None, later).await.unwrap());
    assert!(
        !world
            .table
            .try_store_mail_address(&ann, before.as_ref(), earlier)
            .await
            .unwrap()
    );
    assert_eq!(
        world.table.read_notification_settings(&ann).await.unwrap().address,
        None
    );
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert!(world.ses.mails().is_empty());
}

#[tokio::test]
async fn an_unreadable_row_does_not_block_other_notifications() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let put = world.emulator.client.put_item().table_name(WEBHOOKS);
    let put = put.item("pk", text(&format!("Q#mail#{ann}"))).item("sk", text("A#x"));
    put.item("event", text("{}")).send().await.unwrap();
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert_eq!(world.mails_to("ann").len(), 1);
    world.ends_empty().await;
}

#[tokio::test]
async fn former_owners_never_see_an_agents_new_name() {
    let world = World::start("").await;
    let (ann, bob) = (world.person("ann").await, world.person("bob").await);
    let agent = world.agent(1, &bob, "Bob’s words").await.id;
    world.happen(&frozen(&ann, agent, 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    let mails = world.mails_to("ann");
    assert_eq!(mails.len(), 1);
    assert!(!text_of(&mails[0]).contains("Bob"), "{}", text_of(&mails[0]));
}

/// The result is the same whether the approval request or the decision arrives first.
#[tokio::test]
async fn decided_approvals_are_omitted_from_notifications() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let agent = world.agent(1, &ann, "Researcher").await.id;
    let of = |kind, n| approval(kind, n, &ann, agent, world.now());
    let (asked, decided) = (EventKind::ApprovalAsked, EventKind::ApprovalDecided);
    for event in [of(asked, 1), of(decided, 1), of(decided, 2), of(asked, 2), of(asked, 3)] {
        world.happen(&event);
        world.run().await;
    }
    world.run_after(GATHERING_SECS).await;
    let mails = world.mails_to("ann");
    assert_eq!(mails.len(), 1);
    assert_eq!(text_of(&mails[0]).matches("asked for approval to pay").count(), 1);
    assert!(text_of(&mails[0]).contains(&Uuid::from_u128(3).to_string()));
}

/// After an outage of an hour, all notifications are sent in one mail. After a day, they are dropped.
#[tokio::test]
async fn undelivered_notifications_are_retried_for_a_day() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    world.ses.refuse(503, "ServiceUnavailable", "down");
    for n in 0..3 {
        world.happen(&frozen(&ann, sample::agent_id(1), n, world.now()));
    }
    world.run().await;
    for _ in 0..60 {
        world.run_after(60).await;
    }
    assert!(world.ses.mails().is_empty() && world.left() > 0);
    world.ses.behave();
    // After two hours, the pause after the fourth failed call is over.
    world.run_after(2 * 3_600).await;
    let mails = world.mails_to("ann");
    assert_eq!(mails.len(), 1);
    assert_eq!(text_of(&mails[0]).matches("was frozen").count(), 3);
    world.ends_empty().await;

    world
        .ses
        .refuse(400, "MessageRejected", "Email address is not verified.");
    world.happen(&frozen(&ann, sample::agent_id(1), 9, world.now()));
    world.run().await;
    for _ in 0..26 {
        world.run_after(3_600).await;
    }
    world.ses.behave();
    world.run_after(9 * 3_600).await;
    assert_eq!(world.mails_to("ann").len(), 1);
    world.ends_empty().await;
}

/// SQS delivers a deleted message again, and the mail fails. The next message must still send the notification.
#[tokio::test]
async fn a_repeated_queue_message_loses_no_notification() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    world.run().await;
    world.pass(GATHERING_SECS);
    let done = world.sqs.receive(NOTICES, 10).unwrap();
    let answer = world.notices.process_batch(done.clone(), BUDGET).await.unwrap();
    world.sqs.delete_done(NOTICES, &done, Some(&answer));
    world.ends_empty().await;

    world.happen(&frozen(&ann, sample::agent_id(1), 2, world.now()));
    world.run().await;
    world.pass(GATHERING_SECS - 2);
    world.ses.refuse(503, "ServiceUnavailable", "down");
    world.notices.process_batch(done, BUDGET).await.unwrap();
    world.ses.behave();
    // The channel pauses for five seconds when the second message arrives.
    world.run_after(2).await;
    world.run_after(BETWEEN_SECS).await;
    assert_eq!(world.mails_to("ann").len(), 2);
    world.ends_empty().await;
}

/// A wake-up message finds nothing to send. The instance that gets the next event has a slow clock.
#[tokio::test]
async fn a_notification_after_an_unused_wake_up_is_sent_despite_a_slow_clock() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    world.ends_empty().await;

    let behind: Arc<AtomicI64> = Arc::default();
    let notices = function(&world.urls, "", &behind);
    world.happen(&frozen(&ann, sample::agent_id(1), 2, world.now()));
    for secs in [0, GATHERING_SECS] {
        world.pass(secs);
        behind.store(world.now().micros() - 60_000_000, SeqCst);
        work(&world.sqs, &notices).await;
    }
    assert_eq!(world.mails_to("ann").len(), 1);
    world.run_after(60).await;
    assert_eq!(world.mails_to("ann").len(), 2);
}

/// A successful test message enables the channel again.
#[tokio::test]
async fn permanently_failing_channels_are_disabled() {
    let (incoming, url) = Incoming::start().await;
    let world = World::start(authority(&url)).await;
    let ann = world.person("ann").await;
    world.slack(&ann, &url).await;
    incoming.status.store(410, SeqCst);
    world.ses.refuse(400, "MessageRejected", "Address blacklisted");
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    let settings = world.table.read_notification_settings(&ann).await.unwrap();
    let ended = world.table.list_ended_channels(&settings).await.unwrap();
    assert_eq!(ended[&NoticeChannel::Mail].reason, NoticeEnd::MailRefused);
    assert_eq!(ended[&NoticeChannel::Slack].reason, NoticeEnd::WebhookGone);
    world.ends_empty().await;

    incoming.status.store(200, SeqCst);
    world.ses.behave();
    world.happen(&frozen(&ann, sample::agent_id(1), 2, world.now()));
    world.run().await;
    world.run_after(BETWEEN_SECS).await;
    assert!(world.ses.mails().is_empty() && incoming.texts().is_empty());
    // A successful test on a disabled channel sends all pending notifications.
    let request = |n| NotificationRequest {
        person: ann.clone(),
        of: NotificationSource::Test(DeliveryId::new_at(world.now(), [n; 8])),
    };
    world.sqs.send(REQUESTS, &json!(request(1)).to_string());
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert_eq!((world.ses.mails().len(), incoming.texts().len()), (1, 1));
    assert!(world.table.list_ended_channels(&settings).await.unwrap().is_empty());
}

/// The notification lists the failed calls. After a successful call, no notification is sent.
#[tokio::test]
async fn owners_are_notified_of_failing_webhooks() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let webhook = WebhookId::from_uuid(Uuid::from_u128(7));
    let request = NotificationRequest {
        person: ann.clone(),
        of: NotificationSource::Webhook(webhook),
    };
    world.sqs.send(REQUESTS, &json!(request).to_string());
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert!(world.ses.mails().is_empty(), "no call has failed");

    let mut old: Option<FailedCalls> = None;
    for hours in [13, 0] {
        let call = Attempt {
            at: world
                .now()
                .before(purser_domain::Duration::from_secs_u32(hours * 3_600)),
            took: purser_domain::Duration::from_secs_u32(1),
            result: CallResult::Status(503),
        };
        let calls = FailedCalls::with_failed_call(old.clone(), 1, call, 1);
        let is_stored = world
            .table
            .put_failed_calls(webhook, &calls, old.as_ref(), world.now())
            .await;
        assert!(is_stored.unwrap());
        old = Some(calls);
    }
    for _ in 0..2 {
        world.sqs.send(REQUESTS, &json!(request).to_string());
    }
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    let mails = world.ses.mails();
    assert_eq!(mails.len(), 1);
    let text = text_of(&mails[0]);
    let since = old.unwrap().since.to_display_text();
    let sentence = format!("A webhook of yours has failed since {since} (calls: 2, last result: status_503).");
    assert_eq!(text.matches(&sentence).count(), 1, "{text}");
    assert!(text.contains(&format!("/dashboard/webhooks/{webhook}")), "{text}");
    assert!(!text.contains("switch it on"), "{text}");
}

/// A compromised `people` can send any message to the queue of requests.
#[tokio::test]
async fn forged_events_in_the_request_queue_are_rejected() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let forged = frozen(&ann, sample::agent_id(1), 1, world.now());
    let bodies = [
        json!({"detail": forged.to_json()}),
        json!({"spread": {"event": forged, "part": "0"}}),
        json!({"flush": {"person": ann, "channel": "mail"}}),
    ];
    for body in &bodies {
        world.sqs.send(REQUESTS, &body.to_string());
    }
    for _ in 0..22 {
        world.run_after(VISIBILITY_SECS).await;
    }
    assert!(world.ses.mails().is_empty());
    assert_eq!(world.sqs.set_aside(REQUESTS).len(), bodies.len());
}

/// A freeze of the deployment notifies all users.
#[tokio::test]
async fn service_changes_notify_owners_who_enabled_the_service() {
    let world = World::start("").await;
    let service = sample::service_id(1);
    for (n, name) in ["ann", "bob", "cleo"].into_iter().enumerate() {
        let owner = world.person(name).await;
        let n = u128::try_from(n).unwrap() + 1;
        let agent = world.agent(n, &owner, name).await;
        let enabled = sample::enabled(service, 1_000_000, 1_000_000);
        let policy = match name {
            "ann" => enabled,
            "bob" => EnabledService {
                enabled: false,
                ..enabled
            },
            _ => sample::enabled(sample::service_id(2), 1_000_000, 1_000_000),
        };
        let stored = world
            .emulator
            .ledger()
            .put_policy(agent.id, &policy, &sample::audit())
            .await
            .unwrap();
        assert_eq!(stored, UpdateResult::Stored);
    }
    // There are more users than a message covers.
    for n in 0..200 {
        world.person(&format!("p{n}")).await;
    }
    world.happen(&payee_changed(service, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert_eq!((world.mails_to("ann").len(), world.ses.mails().len()), (1, 1));
    assert!(text_of(&world.mails_to("ann")[0]).contains("is paid to 0x3C44…93BC from now on"));

    let data = EventData::new();
    world.happen(&event(
        EventKind::DeploymentFrozen,
        1,
        world.now(),
        EventSubject::Deployment,
        None,
        data,
    ));
    world.run().await;
    world.run_after(BETWEEN_SECS).await;
    assert_eq!(world.ses.mails().len(), 1 + 203);
    world.ends_empty().await;
}

/// If a call fails, the message stays in the queue.
#[tokio::test]
async fn notifications_never_reach_private_addresses_or_redirects() {
    let (incoming, url) = Incoming::start().await;
    let world = World::start("").await;
    let (ann, bob) = (person("ann"), person("bob"));
    world.slack(&ann, &url).await;
    world.slack(&bob, "https://169.254.169.254/latest").await;
    for owner in [&ann, &bob] {
        world.happen(&frozen(owner, sample::agent_id(1), 1, world.now()));
    }
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert!(incoming.texts().is_empty());
    assert_eq!(world.left(), 2, "a name may have another address later");

    let world = World::start(authority(&url)).await;
    world.slack(&ann, &url).await;
    incoming.status.store(307, SeqCst);
    world.happen(&frozen(&ann, sample::agent_id(1), 1, world.now()));
    world.run().await;
    world.run_after(GATHERING_SECS).await;
    assert!(incoming.texts().is_empty());
    assert_eq!(world.left(), 1);
}

fn authority(url: &str) -> &str {
    url.trim_start_matches("http://").split('/').next().unwrap()
}

/// Processes the queues and kills the function at this step. Returns the number of steps that were reached.
async fn killed_at(world: &World, step: Option<usize>) -> usize {
    let steps: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let (kill, killed) = tokio::sync::oneshot::channel::<()>();
    let kill = Arc::new(Mutex::new(Some(kill)));
    let mut urls = Vec::new();
    for upstream in &world.urls {
        let proxy = Proxy::start(upstream.clone(), ProxyConfig::default()).await;
        let (steps, kill) = (Arc::clone(&steps), Arc::clone(&kill));
        proxy.follow(move |at| {
            let mut steps = steps.lock().unwrap();
            steps.push(at.moment);
            if step == Some(steps.len() - 1) {
                if let Some(kill) = kill.lock().unwrap().take() {
                    kill.send(()).ok();
                }
                return Fate::Silence;
            }
            Fate::PassOn
        });
        urls.push(proxy.url);
    }
    let notices = function(&urls.try_into().unwrap(), &world.allowed, &world.micros);
    let run = async {
        work(&world.sqs, &notices).await;
        world.pass(GATHERING_SECS);
        work(&world.sqs, &notices).await;
    };
    tokio::select! {
        () = run => {}
        _ = killed, if step.is_some() => {}
    }
    steps.lock().unwrap().len()
}

/// After a kill, the mail is sent once or twice.
#[tokio::test(flavor = "multi_thread")]
async fn notifications_survive_a_kill_at_any_step() {
    let world = World::start("").await;
    let ann = world.person("ann").await;
    let mut n = 0;
    world.happen(&frozen(&ann, sample::agent_id(1), n, world.now()));
    let steps = killed_at(&world, None).await;
    assert!(steps >= 12, "{steps}");
    for step in 0..steps {
        n += 1;
        world.pass(BETWEEN_SECS);
        let before = world.mails_to("ann").len();
        world.happen(&frozen(&ann, sample::agent_id(1), n, world.now()));
        killed_at(&world, Some(step)).await;
        for _ in 0..4 {
            world.run_after(VISIBILITY_SECS).await;
        }
        let told = world.mails_to("ann").len() - before;
        assert!((1..=2).contains(&told), "killed at {step}: {told}");
        assert_eq!(world.left(), 0, "killed at {step}");
    }
}

/// Tools call the built function with the batch in `events/notices/what-happened.json`.
#[tokio::test]
async fn a_recorded_queue_batch_of_notification_events_is_processed() {
    let recorded = include_str!("../../../events/notices/what-happened.json");
    let mut recorded: Value = serde_json::from_str(recorded).unwrap();
    recorded["Records"][0]["eventSourceARN"] = json!(Sqs::arn(EVENTS));
    let world = World::start("").await;
    let ann = UserId::parse(&"5e".repeat(32)).unwrap();
    let address = MailAddress::parse("ann@example.com").unwrap();
    let now = world.now();
    world
        .table
        .try_store_mail_address(&ann, Some(&address), now)
        .await
        .unwrap();
    let answer = world.notices.process_batch(recorded, BUDGET).await.unwrap();
    assert_eq!(answer, json!({"batchItemFailures": []}));
}
