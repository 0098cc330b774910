//! Tests the path of an event from `events` to a webhook, with this project's test doubles and with ministack, an AWS
//! emulator. So an independent implementation confirms the requests and the doubles.

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::any;
use purser_api::{Boot, Clock, Env};
use purser_domain::{
    Agent, EventKind, FreezeChange, FreezeTarget, OperatorFreeze, OperatorName, OperatorReason, UserId,
};
use purser_domain::{
    SecretOf, SecretValidity, Webhook, WebhookContentType, WebhookId, WebhookSecretId, WebhookSettings, WebhookUrl,
};
use purser_local::{NOTICE_EVENTS, WEBHOOK_DELIVERIES, WEBHOOK_EVENTS, follow_bus};
use purser_store::{NewWebhookSecret, WebhooksTable};
use purser_testkit::{Emulator, EventBus, Kms, Sqs, WEBHOOKS, environment, sample, serve};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

const STACK: &str = "purser-dev";
const BUS: &str = "purser";
const SET_ASIDE: &str = "WebhooksSetAsideQueue";
/// The visibility timeout in seconds, and the maximum receive count. Both are low, to shorten the test.
const HIDDEN: i64 = 1;
const RECEIPTS: u32 = 3;
const TIME: Duration = Duration::from_secs(30);

/// The queues and the event bus of an AWS emulator.
trait Messaging {
    fn url(&self) -> &str;
    fn queue(&self, name: &str) -> String;
    /// Returns a batch as an event source mapping receives it; `None` if no message is visible.
    async fn receive(&self, queue: &str) -> Option<Value>;
    /// Deletes the messages that the function's response does not report as failed.
    async fn delete_done(&self, queue: &str, batch: &Value, answer: &Value);
    /// Returns the number of messages in the dead-letter queue of events.
    async fn set_aside(&self) -> usize;
}

struct Ours {
    sqs: Sqs,
    sqs_url: String,
    bus_url: String,
}

impl Ours {
    async fn start() -> Self {
        let clock = Clock::system();
        let sqs = Sqs::new(move || clock.now().micros());
        // The template's second rule passes events to the queue for notifications.
        for queue in [WEBHOOK_EVENTS, WEBHOOK_DELIVERIES, NOTICE_EVENTS] {
            sqs.create(queue, HIDDEN, RECEIPTS);
        }
        let bus = EventBus::new(BUS);
        follow_bus(&bus, &sqs, STACK);
        Self {
            sqs_url: sqs.serve().await,
            bus_url: bus.serve().await,
            sqs,
        }
    }
}

impl Messaging for Ours {
    fn url(&self) -> &str {
        &self.sqs_url
    }

    fn queue(&self, name: &str) -> String {
        Sqs::url(&self.sqs_url, name)
    }

    async fn receive(&self, queue: &str) -> Option<Value> {
        self.sqs.receive(queue, 10)
    }

    async fn delete_done(&self, queue: &str, batch: &Value, answer: &Value) {
        self.sqs.delete_done(queue, batch, Some(answer));
    }

    async fn set_aside(&self) -> usize {
        self.sqs.set_aside(WEBHOOK_EVENTS).len()
    }
}

struct Ministack {
    url: String,
    http: reqwest::Client,
    _process: Child,
}

impl Ministack {
    /// Starts ministack with the template's bus, rule and queues; `None` if ministack is not installed.
    async fn start() -> Option<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv-ministack/bin/ministack");
        if !program.exists() {
            println!("skipped: there is no {}; `make setup` installs it", program.display());
            return None;
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        // Without these options, ministack listens on all addresses.
        let process = Command::new(program)
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", free.port().to_string())
            .env("SERVICES", "sqs,events")
            .env("SFTP_ENABLED", "0")
            .env("IOT_MTLS_ENABLED", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let patience = Instant::now() + TIME;
        while tokio::net::TcpStream::connect(free).await.is_err() {
            assert!(Instant::now() < patience, "ministack does not start");
            sleep(Duration::from_millis(50)).await;
        }
        let ministack = Self {
            url: format!("http://{free}"),
            http: reqwest::Client::new(),
            _process: process,
        };
        ministack.deploy().await;
        Some(ministack)
    }

    async fn deploy(&self) {
        self.sqs("CreateQueue", json!({"QueueName": SET_ASIDE})).await;
        let redrive = json!({"deadLetterTargetArn": Sqs::arn(SET_ASIDE), "maxReceiveCount": RECEIPTS}).to_string();
        let attributes = json!({"VisibilityTimeout": HIDDEN.to_string(), "RedrivePolicy": redrive});
        for queue in [WEBHOOK_EVENTS, WEBHOOK_DELIVERIES] {
            self.sqs("CreateQueue", json!({"QueueName": queue, "Attributes": attributes}))
                .await;
        }
        self.events("CreateEventBus", json!({"Name": BUS})).await;
        let rule = json!({"Name": "webhooks", "EventBusName": BUS, "EventPattern": pattern().to_string()});
        self.events("PutRule", rule).await;
        let target = json!({
            "Id": "webhooks", "Arn": Sqs::arn(WEBHOOK_EVENTS), "DeadLetterConfig": {"Arn": Sqs::arn(SET_ASIDE)},
        });
        let targets = json!({"Rule": "webhooks", "EventBusName": BUS, "Targets": [target]});
        assert_eq!(self.events("PutTargets", targets).await["FailedEntryCount"], 0);
    }

    async fn sqs(&self, operation: &str, body: Value) -> Value {
        self.call("sqs", &format!("AmazonSQS.{operation}"), body).await
    }

    async fn events(&self, operation: &str, body: Value) -> Value {
        self.call("events", &format!("AWSEvents.{operation}"), body).await
    }

    /// Calls a service of ministack, which the scope of the signature selects.
    async fn call(&self, service: &str, target: &str, body: Value) -> Value {
        let scope = format!("AWS4-HMAC-SHA256 Credential=test/20261121/us-east-1/{service}/aws4_request, Signature=00");
        let request = self.http.post(&self.url).header("x-amz-target", target);
        let request = request.header("content-type", "application/x-amz-json-1.0");
        let answer = request.header("authorization", scope).body(body.to_string()).send();
        let answer = answer.await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{target}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    async fn messages(&self, queue: &str) -> Vec<Value> {
        let request = json!({"QueueUrl": self.queue(queue), "MaxNumberOfMessages": 10});
        let answer = self.sqs("ReceiveMessage", request).await;
        answer["Messages"].as_array().cloned().unwrap_or_default()
    }
}

impl Messaging for Ministack {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue(&self, name: &str) -> String {
        Sqs::url(&self.url, name)
    }

    async fn receive(&self, queue: &str) -> Option<Value> {
        let messages = self.messages(queue).await;
        let records = messages.iter().map(|message| {
            json!({
                "messageId": message["MessageId"], "receiptHandle": message["ReceiptHandle"], "body": message["Body"],
                "eventSourceARN": Sqs::arn(queue),
            })
        });
        (!messages.is_empty()).then(|| json!({"Records": records.collect::<Vec<_>>()}))
    }

    async fn delete_done(&self, queue: &str, batch: &Value, answer: &Value) {
        let left: Vec<&Value> = answer["batchItemFailures"].as_array().unwrap().iter().collect();
        for record in batch["Records"].as_array().unwrap() {
            if left.iter().all(|left| left["itemIdentifier"] != record["messageId"]) {
                let delete = json!({"QueueUrl": self.queue(queue), "ReceiptHandle": record["receiptHandle"]});
                self.sqs("DeleteMessage", delete).await;
            }
        }
    }

    async fn set_aside(&self) -> usize {
        self.messages(SET_ASIDE).await.len()
    }
}

/// Returns the event pattern of the template's rule for this deployment.
fn pattern() -> Value {
    let template = include_str!("../../template.yaml").replace("${AWS::StackName}", STACK);
    let (_, rule) = template.split_once("\n  WebhookEventsRule:\n").expect("the rule");
    let lines = |name: &str| {
        let line = rule.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}")).trim().to_owned()
    };
    assert_eq!(lines("source:"), format!("[!Sub 'purser:{STACK}']"));
    assert_eq!(lines("detail:"), "{owner: [{exists: true}]}");
    json!({"source": [format!("purser:{STACK}")], "detail": {"owner": [{"exists": true}]}})
}

/// A webhook receiver whose responses a test sets.
struct Program {
    authority: String,
    answers: Arc<AtomicU16>,
    calls: Arc<Mutex<Vec<Value>>>,
}

impl Program {
    async fn start() -> Self {
        let (answers, calls) = (Arc::new(AtomicU16::new(503)), Arc::new(Mutex::new(Vec::new())));
        let (status, seen) = (Arc::clone(&answers), Arc::clone(&calls));
        let take = async move |body: Bytes| {
            seen.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            StatusCode::from_u16(status.load(SeqCst)).unwrap()
        };
        let url = serve(Router::new().fallback(any(take))).await;
        Self {
            authority: url.trim_start_matches("http://").to_owned(),
            answers,
            calls,
        }
    }

    fn kinds(&self) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let kinds = calls.iter().map(|event| event["type"].as_str().unwrap().to_owned());
        kinds.collect()
    }
}

fn owner() -> UserId {
    UserId::derive("https://issuer.example", "ann")
}

/// Creates a webhook of [`owner`] for all events.
async fn put_webhook(table: &WebhooksTable, kms: &Kms, authority: &str) {
    let (id, secret) = [(); 2].map(|()| uuid::Uuid::new_v4()).into();
    let (id, secret) = (WebhookId::from_uuid(id), WebhookSecretId::from_uuid(secret));
    let of = SecretOf::Webhook {
        person: owner(),
        webhook: id,
        secret,
    };
    let secret = NewWebhookSecret {
        id: secret,
        secret: kms.encrypt(&of, &[7; 32]),
    };
    let now = Clock::system().now();
    let webhook = Webhook {
        id,
        person: owner(),
        slot: 0,
        version: 1,
        created_at: now,
        terms: WebhookSettings {
            url: WebhookUrl::parse(&format!("http://{authority}/")).unwrap(),
            description: None,
            kinds: Some([EventKind::AgentCreated].into()),
            agents: None,
            enabled: true,
            content_type: WebhookContentType::CloudEvents,
        },
        secrets: vec![SecretValidity {
            id: secret.id,
            created_at: now,
            ends_at: None,
        }],
    };
    table.create_webhook(&webhook, &secret, &sample::audit()).await.unwrap();
}

/// Waits for the two messages that the rule passes.
async fn both(messaging: &impl Messaging) -> Value {
    let patience = Instant::now() + TIME;
    let mut records = Vec::new();
    while records.len() < 2 {
        assert!(Instant::now() < patience, "the rule passed {records:?}");
        if let Some(mut batch) = messaging.receive(WEBHOOK_EVENTS).await {
            records.append(batch["Records"].as_array_mut().unwrap());
        } else {
            sleep(Duration::from_millis(50)).await;
        }
    }
    json!({"Records": records})
}

/// Publishes events of this deployment, with and without an owner, and of another deployment. Returns what happened as
/// text.
async fn story(messaging: &impl Messaging, bus_url: &str) -> Vec<String> {
    let (emulator, streams) = Emulator::with_streams().await;
    let program = Program::start().await;
    let kms = Kms::default();
    let mut base: BTreeMap<&str, String> = environment(&emulator.url, "http://127.0.0.1:9").collect();
    base.insert("KMS_ENDPOINT", kms.serve().await);
    let booted = |more: [(&'static str, String); 11]| {
        let env: Env = base.clone().into_iter().chain(more).collect();
        Boot::new(env, Clock::system())
    };
    let variables = |stack: &str| {
        [
            // Ministack keeps separate buses and queues for each region.
            ("AWS_REGION", "us-east-1".to_owned()),
            ("STACK", stack.to_owned()),
            ("NETWORK", "base-sepolia".to_owned()),
            ("EVENT_BUS", BUS.to_owned()),
            ("EVENTBRIDGE_ENDPOINT", bus_url.to_owned()),
            ("SQS_ENDPOINT", messaging.url().to_owned()),
            ("DELIVERIES_QUEUE_URL", messaging.queue(WEBHOOK_DELIVERIES)),
            ("WEBHOOK_EVENTS_QUEUE_ARN", Sqs::arn(WEBHOOK_EVENTS)),
            ("WEBHOOK_REQUESTS_QUEUE_ARN", Sqs::arn("WebhookRequestsQueue")),
            ("DELIVERIES_QUEUE_ARN", Sqs::arn(WEBHOOK_DELIVERIES)),
            ("WEBHOOK_ALLOWED_HOSTS", program.authority.clone()),
        ]
    };
    let webhooks = purser_webhooks::Webhooks::boot(booted(variables(STACK))).unwrap();
    put_webhook(
        &WebhooksTable::new(emulator.client.clone(), WEBHOOKS),
        &kms,
        &program.authority,
    )
    .await;
    let ledger = emulator.ledger();
    let agent = Agent {
        owner: owner().to_string(),
        ..sample::agent(1, Vec::new())
    };
    ledger.create_agent(&agent, &sample::audit()).await.unwrap();
    let freeze = OperatorFreeze {
        target: FreezeTarget::Deployment,
        reason: OperatorReason::parse("a reason").unwrap(),
        by: OperatorName::parse("op").unwrap(),
        at: sample::start(),
        end_asked_by: None,
    };
    let begun = FreezeChange::begin_freeze(None, freeze).unwrap();
    ledger.change_freeze(&begun, &sample::audit()).await.unwrap();
    let records = json!({"Records": streams.next_batches().concat()});
    for stack in ["another", STACK] {
        let events = purser_stream::Events::boot(booted(variables(stack))).unwrap();
        let answer = events.handle_event(&records, TIME).await.unwrap();
        assert_eq!(answer, json!({"batchItemFailures": []}));
    }

    let mut told = Vec::new();
    let kinds = |batch: &Value| -> String {
        let bodies = batch["Records"].as_array().unwrap().iter();
        let bodies = bodies.map(|record| serde_json::from_str::<Value>(record["body"].as_str().unwrap()).unwrap());
        let mut kinds: Vec<String> = bodies
            .map(|body| format!("{} {}", body["source"], body["detail-type"]))
            .collect();
        kinds.sort();
        kinds.join(", ")
    };
    let batch = both(messaging).await;
    told.push(format!("the rule passes {}", kinds(&batch)));
    let answer = webhooks.process_batch(batch.clone(), TIME).await.unwrap();
    messaging.delete_done(WEBHOOK_EVENTS, &batch, &answer).await;

    let run = async |queue: &str| {
        let Some(batch) = messaging.receive(queue).await else {
            return "nothing is visible".to_owned();
        };
        let answer = webhooks.process_batch(batch.clone(), TIME).await.unwrap();
        messaging.delete_done(queue, &batch, &answer).await;
        let all = batch["Records"].as_array().unwrap().len();
        format!(
            "{} of {all} stay",
            answer["batchItemFailures"].as_array().unwrap().len()
        )
    };
    told.push(format!("a call that fails: {}", run(WEBHOOK_DELIVERIES).await));
    sleep(Duration::from_millis(1_500)).await;
    told.push(format!("in its pause: {}", run(WEBHOOK_DELIVERIES).await));
    program.answers.store(204, SeqCst);
    let patience = Instant::now() + TIME;
    let again = loop {
        let ran = run(WEBHOOK_DELIVERIES).await;
        if ran != "nothing is visible" || Instant::now() > patience {
            break ran;
        }
        sleep(Duration::from_millis(200)).await;
    };
    told.push(format!("after it: {again}"));
    told.push(format!("the program was called with {}", program.kinds().join(", ")));
    sleep(Duration::from_millis(1_200)).await;
    told.push(format!("then {}", run(WEBHOOK_DELIVERIES).await));
    told
}

/// A message that can't be processed moves to the dead-letter queue after the maximum receive count.
async fn poisoned(messaging: &impl Messaging, send: impl AsyncFn()) -> Vec<usize> {
    send().await;
    let mut left = Vec::new();
    for _ in 0..=RECEIPTS {
        let batch = messaging.receive(WEBHOOK_EVENTS).await;
        left.push(batch.map_or(0, |batch| batch["Records"].as_array().unwrap().len()));
        sleep(Duration::from_millis(1_200)).await;
    }
    left.push(messaging.set_aside().await);
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn local_messaging_matches_an_independent_aws_emulator() {
    let Some(theirs) = Ministack::start().await else { return };
    let ours = Ours::start().await;
    let (of_theirs, of_ours) = tokio::join!(story(&theirs, &theirs.url), story(&ours, &ours.bus_url));
    let created = format!("\"purser:{STACK}\" \"purser.agent.created.v1\"");
    let key = format!("\"purser:{STACK}\" \"purser.key.created.v1\"");
    let expected = [
        format!("the rule passes {created}, {key}"),
        "a call that fails: 0 of 1 stay".to_owned(),
        "in its pause: nothing is visible".to_owned(),
        "after it: 0 of 1 stay".to_owned(),
        "the program was called with purser.agent.created.v1, purser.agent.created.v1".to_owned(),
        "then nothing is visible".to_owned(),
    ];
    assert_eq!(of_theirs, expected);
    assert_eq!(of_ours, expected);

    let send = async || {
        let message = json!({"QueueUrl": theirs.queue(WEBHOOK_EVENTS), "MessageBody": "{}"});
        theirs.sqs("SendMessage", message).await;
    };
    let (of_theirs, of_ours) = tokio::join!(
        poisoned(&theirs, send),
        poisoned(&ours, async || ours.sqs.send(WEBHOOK_EVENTS, "{}"))
    );
    assert_eq!(of_theirs, [1, 1, 1, 0, 1]);
    assert_eq!(of_ours, of_theirs);
}
