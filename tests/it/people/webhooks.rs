//! Tests webhooks, from their creation to a call that the official library verifies. `functions/webhooks` tests
//! retries.

use super::{KIM, LEE, NOTHING, notices::pass};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use purser_local::{Options, Streaming};
use purser_testkit::serve;
use purser_tests::{Person, World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

/// A user's webhook receiver, which records its calls.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) url: String,
    pub(super) calls: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    /// Whether the receiver responds with 410.
    pub(super) is_gone: Arc<AtomicBool>,
    /// Whether the receiver responds with 503 and requests a pause of an hour.
    pub(super) is_busy: Arc<AtomicBool>,
}

async fn taken(State(program): State<Program>, headers: HeaderMap, body: Bytes) -> Response {
    let answer = if program.is_gone.load(SeqCst) {
        StatusCode::GONE.into_response()
    } else if program.is_busy.load(SeqCst) {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3600")]).into_response()
    } else {
        StatusCode::OK.into_response()
    };
    program.calls.lock().unwrap().push((headers, body));
    answer
}

impl Program {
    pub(super) async fn start() -> Self {
        let program = Self {
            url: String::new(),
            calls: Arc::default(),
            is_gone: Arc::default(),
            is_busy: Arc::default(),
        };
        let router = Router::new().fallback(post(taken)).with_state(program.clone());
        Self {
            url: serve(router).await,
            ..program
        }
    }

    pub(super) fn options(&self) -> Options {
        let allowed = self.url.trim_start_matches("http://").to_owned();
        Options {
            environment: [("WEBHOOK_ALLOWED_HOSTS".to_owned(), allowed)].into(),
            ..Options::default()
        }
    }

    /// Returns the events in calls that the official library verifies with this secret.
    pub(super) fn verified(&self, secret: &Value) -> Vec<Value> {
        let library = standardwebhooks::Webhook::new(secret.as_str().unwrap()).unwrap();
        let calls = self.calls.lock().unwrap();
        let verified = calls
            .iter()
            .filter(|(headers, body)| library.verify(body, headers).is_ok());
        verified
            .map(|(_, body)| serde_json::from_slice(body).unwrap())
            .collect()
    }
}

async fn edit(world: &World, person: &Person, method: Method, path: &str, body: Value) -> purser_tests::Answer {
    world.person_edits(person, method, path, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_can_be_created_tested_rotated_and_removed() {
    let program = Program::start().await;
    let world = World::with(program.options()).await;
    let (kim, lee) = (world.person(&KIM), world.person(&LEE));
    let made = edit(&world, &kim, Method::POST, "/webhooks", json!({"url": program.url})).await;
    let etag = made.etag().to_owned();
    let made = made.created();
    assert!(made["secret"].as_str().unwrap().starts_with("whsec_"));
    let path = format!("/webhooks/{}", made["webhook_id"].as_str().unwrap());
    let mut told = made.clone();
    told.as_object_mut().unwrap().remove("secret");
    let read = world.person_gets(&kim, &path).await;
    assert_eq!((read.etag(), etag.as_str()), ("\"1\"", "\"1\""));
    assert_eq!(read.ok(), told);
    let listed = world.person_gets(&kim, "/webhooks").await.ok();
    assert_eq!(listed, json!({"webhooks": [told], "count": 1}));
    assert_eq!(world.person_gets(&lee, "/webhooks").await.ok()["count"], 0);

    let test = async || {
        let sent = edit(&world, &kim, Method::POST, &format!("{path}/test"), json!({})).await;
        assert_eq!(sent.status, 202, "{}", sent.body);
        let id = sent.body["delivery_id"].clone();
        let is_done = |delivery: &Value| delivery["delivery_id"] == id && delivery["status"] == "delivered";
        world.delivery_where(&kim, &path, is_done).await
    };
    let delivered = test().await;
    assert_eq!(
        (&delivered["attempts"], &delivered["last_result"], &delivered["kind"]),
        (&json!(1), &json!("status_200"), &json!("purser.webhook.test.v1"))
    );
    let events = program.verified(&made["secret"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["id"], delivered["event_id"]);
    assert_eq!(events[0]["data"]["endpoint_id"], made["webhook_id"]);

    let rotated = edit(&world, &kim, Method::POST, &format!("{path}/rotate"), json!({})).await;
    assert_eq!(rotated.etag(), "\"2\"");
    let rotated = rotated.ok();
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!(rotated["secrets"].as_array().unwrap().len(), 2);
    test().await;
    assert_eq!(program.verified(&made["secret"]).len(), 2);
    assert_eq!(program.verified(&rotated["secret"]).len(), 1);

    let again = format!(
        "{path}/deliveries/{}/redeliver",
        delivered["delivery_id"].as_str().unwrap()
    );
    let sent = edit(&world, &kim, Method::POST, &again, json!({})).await;
    assert_eq!(sent.status, 202, "{}", sent.body);
    let is_there = || program.verified(&rotated["secret"]).len() == 2;
    for _ in 0..200 {
        if is_there() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let events = program.verified(&rotated["secret"]);
    assert_eq!((events.len(), &events[1]["id"]), (2, &delivered["event_id"]));

    // After a 410, the receiver gets no call until the webhook is updated.
    program.is_gone.store(true, SeqCst);
    edit(&world, &kim, Method::POST, &format!("{path}/test"), json!({})).await;
    let failed = world
        .delivery_where(&kim, &path, |delivery| delivery["status"] == "failed")
        .await;
    assert_eq!(failed["last_result"], "status_410");
    assert!(world.person_gets(&kim, &path).await.ok()["gone_at"].is_string());
    let same = json!({"url": program.url});
    let rows = world.rows_of("WebhooksTable").await;
    let unchanged = edit(&world, &kim, Method::PUT, &path, same.clone()).await.ok();
    assert_eq!(
        (unchanged["gone_at"].is_string(), &unchanged["version"]),
        (true, &json!(2))
    );
    assert_eq!(world.rows_of("WebhooksTable").await.changes_since(&rows), NOTHING);
    let resumed = json!({"url": program.url, "enabled": true});
    for _ in 0..2 {
        let edited = edit(&world, &kim, Method::PUT, &path, resumed.clone()).await.ok();
        assert_eq!((&edited["gone_at"], &edited["version"]), (&Value::Null, &json!(3)));
    }

    edit(&world, &kim, Method::DELETE, &path, json!({})).await.ok();
    world.person_gets(&kim, &path).await.refused(404, "not_found");
    let kinds = world.person_gets(&kim, "/audit-log").await.ok();
    let kinds = kinds["entries"].as_array().unwrap().iter().map(|row| &row["kind"]);
    let expected = [
        "webhook_removed",
        "webhook_edited",
        "webhook_secret_rotated",
        "webhook_created",
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    let log = world.person_gets(&kim, "/audit-log").await.ok().to_string();
    assert!(!log.contains("whsec_"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_calls_have_the_configured_content_type() {
    let program = Program::start().await;
    let world = World::with(program.options()).await;
    let kim = world.person(&KIM);
    let wrong = [
        "",
        "text/plain",
        "application/JSON",
        "application/json; charset=utf-8",
        "application/json\r\nx: y",
    ];
    for value in wrong.map(Value::from).into_iter().chain([json!(1), json!([])]) {
        let body = json!({"url": program.url, "content_type": value});
        let answer = edit(&world, &kim, Method::POST, "/webhooks", body).await;
        assert_eq!(
            answer.refused(400, "invalid_request")["details"][0]["path"],
            "/content_type",
            "{value}"
        );
    }
    let body = json!({"url": program.url, "content_type": "application/json"});
    let made = edit(&world, &kim, Method::POST, "/webhooks", body).await.created();
    assert_eq!(made["content_type"], "application/json");
    let path = format!("/webhooks/{}", made["webhook_id"].as_str().unwrap());
    for (calls, content_type) in [(1, "application/json"), (2, "application/cloudevents+json")] {
        let sent = edit(&world, &kim, Method::POST, &format!("{path}/test"), json!({})).await;
        let id = sent.body["delivery_id"].clone();
        let is_done = |delivery: &Value| delivery["delivery_id"] == id && delivery["status"] == "delivered";
        world.delivery_where(&kim, &path, is_done).await;
        let headers = program.calls.lock().unwrap().last().unwrap().0.clone();
        assert_eq!(headers["content-type"], content_type);
        assert_eq!(program.verified(&made["secret"]).len(), calls);
        let default = json!({"url": program.url, "content_type": null});
        let updated = edit(&world, &kim, Method::PUT, &path, default).await.ok();
        assert_eq!(updated["content_type"], "application/cloudevents+json");
    }
}

/// The event passes through the stream, the bus and the queues to the owner's receiver.
#[tokio::test(flavor = "multi_thread")]
async fn approval_requests_call_only_the_owners_webhook() {
    let [program, other] = [Program::start().await, Program::start().await];
    let allowed = [&program, &other].map(|program| program.url.trim_start_matches("http://").to_owned());
    let options = Options {
        environment: [("WEBHOOK_ALLOWED_HOSTS".to_owned(), allowed.join(","))].into(),
        streams: Streaming::On,
        ..Options::default()
    };
    let world = World::with(options).await;
    let (kim, lee) = (world.person(&KIM), world.person(&LEE));
    let agent = world.agent_of(&kim, "errand runner").await;
    let of_approvals = |url: &str| json!({"url": url, "kinds": ["purser.approval.asked.v1"]});
    let hook = edit(&world, &kim, Method::POST, "/webhooks", of_approvals(&program.url))
        .await
        .created();
    edit(&world, &lee, Method::POST, "/webhooks", of_approvals(&other.url))
        .await
        .created();
    let tight = json!({"require_approval_above_units": dollars(5)});
    edit(&world, &kim, Method::PATCH, &agent.path("/services/lab-search"), tight)
        .await
        .ok();
    let asked = world.authorize(&agent, &body_of(world.offer(dollars(6)))).await;
    let asked = asked.refused(402, "approval_required");
    assert_eq!(world.stack.publish_changes().await, 0);
    let path = format!("/webhooks/{}", hook["webhook_id"].as_str().unwrap());
    let delivered = world
        .delivery_where(&kim, &path, |delivery| delivery["status"] == "delivered")
        .await;
    let events = program.verified(&hook["secret"]);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (
            &events[0]["type"],
            &events[0]["subject"],
            &events[0]["data"]["approval_id"]
        ),
        (
            &json!("purser.approval.asked.v1"),
            &json!(agent.id.to_string()),
            &asked["approval_id"]
        )
    );
    assert_eq!(events[0]["id"], delivered["event_id"]);
    assert!(other.calls.lock().unwrap().is_empty());
}

/// The pause exceeds SQS's maximum delay, so it is stored in a row, which the sweep finds.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_calls_resume_after_a_requested_pause() {
    let program = Program::start().await;
    let options = Options {
        streams: Streaming::On,
        ..program.options()
    };
    let world = World::with(options).await;
    let kim = world.person(&KIM);
    let made = edit(&world, &kim, Method::POST, "/webhooks", json!({"url": program.url})).await;
    let path = format!("/webhooks/{}", made.created()["webhook_id"].as_str().unwrap());
    program.is_busy.store(true, SeqCst);
    edit(&world, &kim, Method::POST, &format!("{path}/test"), json!({})).await;
    let waits = |delivery: &Value| delivery["status"] == "waiting" && !delivery["next_attempt_at"].is_null();
    world.delivery_where(&kim, &path, waits).await;
    program.is_busy.store(false, SeqCst);
    // The pause has a random part.
    pass(&world, 7_200).await;
    world
        .delivery_where(&kim, &path, |delivery| delivery["status"] == "delivered")
        .await;
    assert_eq!(program.calls.lock().unwrap().len(), 2);
}

/// Starts the local stack's receiver, which uses the official library for Node.js. Returns its output.
async fn receiver(secret: &str, port: u16) -> (tokio::process::Child, Lines<BufReader<ChildStdout>>) {
    let mut receiver = Command::new("node")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../infra/local/webhooks/receiver.mjs"
        ))
        .env("WEBHOOK_SECRET", secret)
        .env("PORT", port.to_string())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node, with what infra/setup.sh installs");
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    let listening = lines.next_line().await.unwrap().expect("it listens");
    assert!(listening.contains("listening"), "{listening}");
    (receiver, lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_receiver_verifies_webhook_signatures() {
    // The receiver starts on this port once the webhook has a secret.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let allowed = format!("127.0.0.1:{port}");
    let world = World::with(Options {
        environment: [("WEBHOOK_ALLOWED_HOSTS".to_owned(), allowed.clone())].into(),
        ..Options::default()
    });
    let world = world.await;
    let kim = world.person(&KIM);
    let made = edit(
        &world,
        &kim,
        Method::POST,
        "/webhooks",
        json!({"url": format!("http://{allowed}/")}),
    )
    .await;
    let made = made.created();
    let (_receiver, mut lines) = receiver(made["secret"].as_str().unwrap(), port).await;
    let test = format!("/webhooks/{}/test", made["webhook_id"].as_str().unwrap());
    edit(&world, &kim, Method::POST, &test, json!({})).await;
    let line = tokio::time::timeout(std::time::Duration::from_secs(60), lines.next_line()).await;
    let told: Value = serde_json::from_str(&line.expect("in time").unwrap().unwrap()).unwrap();
    assert_eq!(
        (&told["verified"], &told["again"]),
        (&json!(true), &json!(false)),
        "{told}"
    );
    assert_eq!(
        (&told["type"], &told["data"]["endpoint_id"]),
        (&json!("purser.webhook.test.v1"), &made["webhook_id"])
    );
    let forged = world
        .http
        .post(format!("http://{allowed}/"))
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(forged.status(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_updates_with_a_new_url_or_more_events_require_a_recent_sign_in() {
    let world = World::still().await;
    let kim = world.person(&KIM);
    let url = "https://hooks.example.invalid/purser";
    let narrow = json!({"url": url, "kinds": ["purser.approval.asked.v1"]});
    let made = edit(&world, &kim, Method::POST, "/webhooks", narrow.clone())
        .await
        .created();
    let path = format!("/webhooks/{}", made["webhook_id"].as_str().unwrap());
    world.pass(601);
    let before = world.rows_of("WebhooksTable").await;
    let wide = [
        json!({"url": url}),
        json!({"url": "https://other.example.invalid/", "kinds": ["purser.approval.asked.v1"]}),
        json!({"url": url, "kinds": ["purser.approval.asked.v1", "purser.agent.frozen.v1"]}),
    ];
    for body in wide {
        let answer = edit(&world, &kim, Method::PUT, &path, body).await;
        answer.refused(403, "recent_sign_in_required");
    }
    for (path, body) in [
        ("/webhooks".to_owned(), narrow.clone()),
        (format!("{path}/rotate"), json!({})),
    ] {
        let answer = edit(&world, &kim, Method::POST, &path, body).await;
        answer.refused(403, "recent_sign_in_required");
    }
    assert_eq!(world.rows_of("WebhooksTable").await.changes_since(&before), NOTHING);
    let mut off = narrow.clone();
    off["enabled"] = json!(false);
    let off = edit(&world, &kim, Method::PUT, &path, off).await.ok();
    assert_eq!((&off["enabled"], &off["version"]), (&json!(false), &json!(2)));
    edit(&world, &kim, Method::PUT, &path, narrow)
        .await
        .refused(403, "recent_sign_in_required");
    edit(&world, &kim, Method::DELETE, &path, json!({})).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_has_at_most_ten_webhooks() {
    let world = World::start().await;
    let kim = world.person(&KIM);
    let requests = (0..14).map(|n| {
        let request = world.persons_request(&kim, Method::POST, "/webhooks");
        World::send(request.json(&json!({"url": format!("https://hooks.example.invalid/{n}")})))
    });
    let answers = futures_util::future::join_all(requests).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    assert_eq!((made.len(), refused.len()), (10, 4));
    for answer in refused {
        answer.refused(400, "invalid_request");
    }
    assert_eq!(world.person_gets(&kim, "/webhooks").await.ok()["count"], 10);
    let first = format!("/webhooks/{}", made[0].body["webhook_id"].as_str().unwrap());
    edit(&world, &kim, Method::DELETE, &first, json!({})).await.ok();
    edit(
        &world,
        &kim,
        Method::POST,
        "/webhooks",
        json!({"url": "https://hooks.example.invalid/"}),
    )
    .await
    .created();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_urls_must_be_public_https_addresses() {
    let world = World::start().await;
    let kim = world.person(&KIM);
    let urls = [
        "http://hooks.example.invalid/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://[::1]/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://kim@hooks.example.invalid/",
        "ftp://hooks.example.invalid/",
        "hooks.example.invalid",
    ];
    for url in urls {
        let answer = edit(&world, &kim, Method::POST, "/webhooks", json!({"url": url})).await;
        let told = answer.refused(400, "invalid_request");
        assert_eq!(told["details"][0]["path"], "/url", "{url}: {told}");
    }
    let body = json!({"url": "https://hooks.example.invalid/", "kinds": ["purser.deployment.frozen.v1"], "agents": []});
    let told = edit(&world, &kim, Method::POST, "/webhooks", body)
        .await
        .refused(400, "invalid_request");
    let paths: Vec<_> = told["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["path"].clone())
        .collect();
    assert!(paths.contains(&json!("/kinds/0")), "{told}");
    assert_eq!(world.person_gets(&kim, "/webhooks").await.ok()["count"], 0);
}
