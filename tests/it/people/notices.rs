//! Tests notifications by mail and webhook. `functions/notices` tests rate limits and retries.

use super::webhooks::Program;
use super::{Household, KIM, LEE, NOTHING};
use crate::texts::{HIDDEN, hide_in_tables};
use purser_domain::escape_hidden_characters;
use purser_local::{MailService, NOTICE_EVENTS, NOTICES, Options, Streaming};
use purser_testkit::sample;
use purser_tests::{Log, TestAgent, World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The time in seconds after which several notifications are combined into one message.
const GATHERED_SECS: u64 = 15;

pub(super) async fn pass(world: &World, secs: u64) {
    let url = format!("{}/_local/clock", world.stack.base_url);
    let passed = world
        .http
        .post(url)
        .json(&json!({"advance_seconds": secs}))
        .send()
        .await
        .unwrap();
    assert_eq!(passed.status(), 200);
}

/// Polls until `find` returns a value.
async fn found<T>(find: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_mail_installed() -> bool {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/local/mail/node_modules");
    if !modules.exists() {
        println!("skipped: infra/setup.sh mail installs the mail service");
    }
    modules.exists()
}

/// `aws-ses-v2-local` receives the mail, and the official library verifies the webhook.
#[tokio::test(flavor = "multi_thread")]
async fn approval_requests_are_sent_by_email_and_webhook() {
    if !is_mail_installed() {
        return;
    }
    let program = Program::start().await;
    let world = World::with(Options {
        streams: Streaming::On,
        mail: MailService::Inbox(0),
        ..program.options()
    });
    let home = Household::in_world(world.await).await;
    let world = &home.world;
    home.set_policy(json!({"require_approval_above_units": dollars(5)}))
        .await;
    let made = world
        .person_edits(&home.kim, Method::POST, "/webhooks", &json!({"url": program.url}))
        .await
        .created();
    // The user's address becomes known with the sign-in.
    world.browser_session(&KIM).await;
    tokio::spawn(world.stack.publish_continuously());
    let asked = world.authorize(&home.agent, &body_of(world.offer(dollars(8)))).await;
    let asked = asked.refused(402, "approval_required");
    let id = asked["approval_id"].as_str().unwrap();

    let called = found(async || {
        let events = program.verified(&made["secret"]);
        events
            .into_iter()
            .find(|event| event["type"] == "purser.approval.asked.v1")
    });
    assert_eq!(called.await["data"]["approval_id"], id);
    pass(world, GATHERED_SECS).await;
    let link = format!("{}/dashboard/approvals/{}/{id}", world.stack.base_url, home.agent.id);
    let store = format!("{}/store", world.stack.mail.inbox_url.as_ref().unwrap());
    let mail = found(async || {
        let store: Value = world.http.get(&store).send().await.unwrap().json().await.unwrap();
        let mut mails = store["emails"].as_array().unwrap().clone().into_iter();
        mails.find(|mail| mail["body"]["text"].as_str().is_some_and(|text| text.contains(&link)))
    })
    .await;
    assert_eq!(mail["destination"]["to"], json!([KIM.email]));
    let (text, html) = (
        mail["body"]["text"].as_str().unwrap(),
        mail["body"]["html"].as_str().unwrap(),
    );
    assert!(
        text.contains("“errand runner” asked for approval to pay $8.00 to “Lab Search” for “")
            && text.contains("Over the $5.00 approval threshold. Decide by ")
            && html.contains(&link),
        "{text}"
    );
}

/// Returns the texts in a tool's result.
async fn tool(world: &World, agent: &TestAgent, name: &str, arguments: Value) -> String {
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let answer = world.post(agent, "/mcp", &call).await.ok();
    assert_ne!(answer["result"]["isError"], true, "{name}: {answer}");
    answer["result"].to_string()
}

/// Texts with hidden characters may have been stored before the check existed. They must be escaped wherever they are
/// shown.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_characters_are_escaped_in_mails_webhooks_tools_and_logs() {
    if !is_mail_installed() {
        return;
    }
    let log = Log::start("info");
    let program = Program::start().await;
    let world = World::with(Options {
        streams: Streaming::On,
        mail: MailService::Inbox(0),
        ..program.options()
    });
    let home = Household::in_world(world.await).await;
    let (world, agent) = (&home.world, &home.agent);
    let named = json!({"name": "qqq name", "labels": {"team": "qqq"}});
    home.edit(Method::PATCH, "", named).await.ok();
    home.set_policy(json!({"require_approval_above_units": dollars(5)}))
        .await;
    let hook = json!({"url": program.url});
    let hook = world.person_edits(&home.kim, Method::POST, "/webhooks", &hook).await;
    let secret = hook.created()["secret"].clone();
    world.browser_session(&KIM).await;
    let ask = async |price| {
        let mut body = body_of(world.offer(dollars(price)));
        body["metadata"] = json!({"task": HIDDEN});
        body["original_request"]["body_hash"] = json!(HIDDEN);
        let asked = world.authorize(agent, &body).await.refused(402, "approval_required");
        asked["approval_id"].as_str().unwrap().to_owned()
    };
    let noted = ask(8).await;
    let approve = format!("/approvals/{noted}/approve");
    home.edit(Method::POST, &approve, json!({"note": "qqq"})).await.ok();
    assert!(hide_in_tables(world).await >= 2);
    tokio::spawn(world.stack.publish_continuously());
    let waiting = ask(9).await;
    let freeze = format!("/internal/freezes/agents/{}", agent.id);
    let tools = [
        ("list_enabled", json!({})),
        ("find_services", json!({})),
        ("list_receipts", json!({})),
        ("get_approval", json!({"approval_id": noted})),
        ("get_approval", json!({"approval_id": waiting})),
    ];
    let mut texts = Vec::new();
    for (name, arguments) in tools {
        texts.push(tool(world, agent, name, arguments).await);
    }
    found(async || {
        let events = program.verified(&secret);
        events
            .into_iter()
            .find(|event| event["data"]["approval_id"] == *waiting)
    })
    .await;
    pass(world, GATHERED_SECS).await;
    let link = format!("{}/dashboard/approvals/{}/{waiting}", world.stack.base_url, agent.id);
    let store = format!("{}/store", world.stack.mail.inbox_url.as_ref().unwrap());
    let mail = found(async || {
        let store: Value = world.http.get(&store).send().await.unwrap().json().await.unwrap();
        let mails = store["emails"].as_array().unwrap().clone();
        mails.into_iter().find(|mail| mail.to_string().contains(&link))
    })
    .await;
    world
        .operator_edits(Method::PUT, &freeze, &json!({"reason": "stolen"}))
        .await
        .ok();
    found(async || {
        let events = program.verified(&secret);
        events
            .into_iter()
            .find(|event| event["type"] == "purser.agent.frozen.v1")
    })
    .await;
    // The mail itself contains joiners, which prevent mail programs from making links.
    let mail = format!("{} {} {}", mail["subject"], mail["body"]["text"], mail["body"]["html"]).replace('\u{2060}', "");
    assert!(
        mail.contains("u{202e}") && mail.contains("u{3164}"),
        "the mail has no such name: {mail}"
    );
    let events = program.verified(&secret).into_iter().map(|mut event| {
        event["data"].as_object_mut().unwrap().remove("labels");
        event.to_string()
    });
    texts.extend(events.chain([mail, log.text()]));
    for text in &texts {
        for (line, shown) in text.lines().map(|line| (line, escape_hidden_characters(line))) {
            assert_eq!(line, shown);
        }
    }
    assert!(log.text().contains("approval.staged"), "nobody logs here");
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_settings_are_per_user_versioned_and_hide_secrets() {
    let world = World::start().await;
    let (kim, lee) = (world.person(&KIM), world.person(&LEE));
    let before = world.rows_of("WebhooksTable").await;
    let read = world.person_gets(&kim, "/notices").await;
    assert_eq!(read.etag(), "\"0\"");
    let read = read.ok();
    assert_eq!(
        (&read["mail"]["address"], &read["mail"]["enabled"]),
        (&json!(KIM.email), &json!(true))
    );
    assert_eq!((&read["mail"]["kinds"], &read["slack"]), (&Value::Null, &Value::Null));
    assert_eq!(
        world.rows_of("WebhooksTable").await.changes_since(&before),
        NOTHING,
        "reading writes nothing"
    );

    let edit = async |body: Value| world.person_edits(&kim, Method::PUT, "/notices", &body).await;
    let url = "https://hooks.example.invalid/services/a-secret-in-the-url";
    let body = json!({
        "mail": {"enabled": false}, "slack": {"url": url, "kinds": ["purser.approval.asked.v1"]},
    });
    let edited = edit(body).await;
    assert_eq!(edited.etag(), "\"1\"");
    let edited = edited.ok();
    assert_eq!(edited["slack"]["host"], "hooks.example.invalid");
    assert_eq!(edited["mail"]["enabled"], false);
    assert!(!edited.to_string().contains("a-secret"), "{edited}");
    assert_eq!(world.person_gets(&kim, "/notices").await.ok(), edited);
    let kept = edit(json!({"slack": {}})).await.ok();
    assert_eq!(
        (&kept["slack"]["host"], &kept["version"]),
        (&json!("hooks.example.invalid"), &json!(2))
    );
    let outdated = world
        .person_edits_version(&kim, Method::PUT, "/notices", "\"1\"", &json!({}))
        .await;
    outdated.refused(412, "version_conflict");
    let log = world.person_gets(&kim, "/audit-log?kind=notices_edited").await.ok();
    let log = log.to_string();
    assert!(
        log.contains("hooks.example.invalid") && !log.contains("a-secret") && !log.contains(KIM.email),
        "{log}"
    );
    assert_eq!(world.person_gets(&lee, "/notices").await.ok()["version"], 0);

    let removed = edit(json!({})).await.ok();
    assert_eq!(removed["slack"], Value::Null);
    let urls = world.scan("WebhooksTable").await.into_iter();
    let urls = urls.filter(|item| item["pk"].as_s().is_ok_and(|pk| pk.starts_with("U#")));
    assert_eq!(urls.count(), 0, "what is not used is not kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_urls_must_be_public_and_need_a_recent_sign_in() {
    let world = World::still().await;
    let kim = world.person(&KIM);
    let edit = async |body: Value| world.person_edits(&kim, Method::PUT, "/notices", &body).await;
    for url in [
        "http://hooks.example.invalid/",
        "https://127.0.0.1/",
        "https://169.254.169.254/",
    ] {
        let told = edit(json!({"slack": {"url": url}}))
            .await
            .refused(400, "invalid_request");
        assert_eq!(told["details"][0]["path"], "/slack/url", "{url}: {told}");
    }
    let told = edit(json!({"slack": {}})).await.refused(400, "invalid_request");
    assert_eq!(told["details"][0]["path"], "/slack/url");
    let narrow = json!({"slack": {"url": "https://hooks.example.invalid/", "kinds": ["purser.approval.asked.v1"]}});
    edit(narrow.clone()).await.ok();
    world.pass(601);
    for body in [narrow, json!({"slack": {}})] {
        edit(body).await.refused(403, "recent_sign_in_required");
    }
    edit(json!({"mail": {"kinds": ["purser.key.created.v1"]}})).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn test_notifications_reach_the_enabled_channels() {
    let world = World::start().await;
    let kim = world.person(&KIM);
    let test = async || {
        world
            .person_edits(&kim, Method::POST, "/notices/test", &json!({}))
            .await
    };
    let sent = test().await;
    assert_eq!((sent.status, &sent.body), (202, &json!({"channels": ["mail"]})));
    let queued = async |count| found(async || (world.stack.sqs.bodies(NOTICES).len() == count).then_some(())).await;
    queued(1).await;
    pass(&world, GATHERED_SECS).await;
    let mail = found(async || world.stack.mail.ses.mails().into_iter().next()).await;
    assert_eq!(mail["Destination"]["ToAddresses"], json!([KIM.email]));
    // The notification waits until the channel's wake-up message becomes visible.
    queued(1).await;
    test().await;
    queued(2).await;
    pass(&world, GATHERED_SECS).await;
    queued(1).await;
    assert_eq!(world.stack.mail.ses.mails().len(), 1);
    pass(&world, 310).await;
    found(async || (world.stack.mail.ses.mails().len() == 2).then_some(())).await;
    let off = json!({"mail": {"enabled": false}});
    world.person_edits(&kim, Method::PUT, "/notices", &off).await.ok();
    assert_eq!(test().await.body, json!({"channels": []}));
}

/// A deleted Slack webhook is shown as ended.
#[tokio::test(flavor = "multi_thread")]
async fn owners_are_notified_of_payee_changes() {
    let program = Program::start().await;
    let home = Household::in_world(World::with(program.options()).await).await;
    let world = &home.world;
    let slack = json!({"slack": {"url": program.url}});
    world
        .person_edits(&home.kim, Method::PUT, "/notices", &slack)
        .await
        .ok();
    let mut search = world.service("lab-search").await;
    search.version += 1;
    search.name = "Search & find".to_owned();
    world
        .stack
        .catalog
        .put_service(&search, &sample::audit())
        .await
        .unwrap();
    let changed = json!({"detail": {
        "specversion": "1.0", "id": "0d6f1c1e-7a52-8b3e-9c41-2f6a5b7d9e10", "source": "purser:local",
        "type": "purser.service.payee_changed.v1", "time": world.now().to_string(), "subject": search.id.to_string(),
        "datacontenttype": "application/json", "dataschema": "purser:schemas/events.v1.json",
        "data": {
            "slug": "lab-search", "version": search.version, "operation_id": "web.search",
            "pay_to": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
        },
    }});
    let sqs = &world.stack.sqs;
    let waits = async |count| found(async || (sqs.bodies(NOTICES).len() == count).then_some(())).await;
    sqs.send(NOTICE_EVENTS, &changed.to_string());
    waits(2).await;
    program.is_busy.store(true, SeqCst);
    pass(world, GATHERED_SECS).await;
    let called = async |n: usize| found(async || program.calls.lock().unwrap().get(n).cloned()).await;
    called(0).await;
    program.is_busy.store(false, SeqCst);
    // Each channel has one wake-up message.
    waits(2).await;
    pass(world, 3600).await;
    let posted = called(1).await;
    let posted: Value = serde_json::from_slice(&posted.1).unwrap();
    let text = posted["text"].as_str().unwrap();
    assert!(
        text.contains("“Search the web” of “Search &amp; find” is paid to 0x3C44…93BC from now on."),
        "{text}"
    );
    assert_eq!(
        found(async || world.stack.mail.ses.mails().pop()).await["Destination"]["ToAddresses"],
        json!([KIM.email])
    );

    program.is_gone.store(true, SeqCst);
    pass(world, 310).await;
    waits(0).await;
    world
        .person_edits(&home.kim, Method::POST, "/notices/test", &json!({}))
        .await;
    waits(2).await;
    pass(world, 310).await;
    let ended = found(async || {
        let read = world.person_gets(&home.kim, "/notices").await.ok();
        (!read["slack"]["ended_at"].is_null()).then_some(read)
    })
    .await;
    assert_eq!(ended["slack"]["ended_reason"], "webhook_gone");
    let kept = world
        .person_edits(&home.kim, Method::PUT, "/notices", &json!({"slack": {}}))
        .await
        .ok();
    assert_eq!(kept["slack"]["ended_at"], Value::Null);
}
