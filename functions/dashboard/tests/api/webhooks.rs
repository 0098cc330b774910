//! Tests the webhook pages. `tests/it/people/webhooks.rs` tests the API.

use crate::laws::HOSTILE;
use crate::support::World;
use crate::support::browser::{Browser, Seen};
use purser_domain::{
    Attempt, CallResult, Delivery, Duration, Event, EventData, EventId, EventKind, EventSource, EventSubject,
    FailedCalls, Timestamp, UserId, WebhookId,
};
use purser_testkit::Sqs;
use purser_testkit::sample::OWNER;
use serde_json::{Value, json};

const PAGE: &str = "/dashboard/webhooks";
const URL: &str = "https://hooks.example/purser";
const ALL: [(&str, &str); 4] = [("url", URL), ("description", ""), ("kinds", "all"), ("agents", "all")];

/// Starts a world with a queue for webhook requests.
async fn world_with_queue() -> (World, Sqs) {
    let sqs = Sqs::new(|| 0);
    sqs.create("webhook-requests", 30, 10);
    let address = sqs.serve().await;
    let queue = format!("{address}/000000000000/webhook-requests");
    let world = World::with(&[("SQS_ENDPOINT", &address), ("WEBHOOK_REQUESTS_QUEUE_URL", &queue)]).await;
    (world, sqs)
}

/// Submits the form of the list page.
async fn create(browser: &mut Browser<'_>, fields: &[(&str, &str)]) -> Seen {
    let place = browser.get(PAGE).await.input("place");
    let fields = [fields, &[("place", &place)]].concat();
    browser.post(PAGE, PAGE, &fields).await
}

fn secret_of(seen: &Seen) -> &str {
    let (_, rest) = seen.html.split_once("whsec_").unwrap();
    rest.split('<').next().unwrap()
}

/// Reads the user's webhooks through the API.
async fn listed(world: &World) -> Vec<Value> {
    let listed = world.get(OWNER, "/webhooks").await.ok();
    listed["webhooks"].as_array().unwrap().clone()
}

async fn only(world: &World) -> (String, Value) {
    let webhook = listed(world).await.remove(0);
    (format!("{PAGE}/{}", webhook["webhook_id"].as_str().unwrap()), webhook)
}

/// A form that is submitted again creates neither a webhook nor a secret.
#[tokio::test]
async fn webhook_secrets_are_shown_only_once() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    owner.get(PAGE).await.is(200, "There are no webhooks yet.");
    let made = create(&mut owner, &ALL).await;
    made.is(200, "Copy it now");
    let secret = secret_of(&made).to_owned();
    let (page, webhook) = only(&world).await;
    assert_eq!(
        (&webhook["url"], &webhook["kinds"], &webhook["agents"]),
        (&json!(URL), &json!(null), &json!(null))
    );

    let again = [&ALL[..], &[("place", "0")]].concat();
    let again = owner.post(PAGE, PAGE, &again).await;
    again.is(412, "the form was sent twice");
    assert!(!again.html.contains("whsec_"));
    assert_eq!(listed(&world).await.len(), 1);

    let rotated = owner.post(&page, &format!("{page}/rotate"), &[("version", "1")]).await;
    rotated.is(200, "Copy it now");
    assert_ne!(secret_of(&rotated), secret);
    let again = owner.post(&page, &format!("{page}/rotate"), &[("version", "1")]).await;
    again.is(412, "nothing was saved now");
    let (_, webhook) = only(&world).await;
    assert_eq!(
        (&webhook["version"], webhook["secrets"].as_array().unwrap().len()),
        (&json!(2), 2)
    );
    for path in [PAGE, &page] {
        let seen = owner.get(path).await;
        assert!(!seen.html.contains("whsec_") && !seen.html.contains(&secret), "{path}");
    }
    owner.get(&page).await.is(200, "signs until");
}

/// Errors are shown with the rejected input.
#[tokio::test]
async fn webhooks_can_be_updated_disabled_and_removed() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut owner = world.browser(OWNER).await;
    for (url, problem) in [
        ("hooks.example", "URL: must be an https URL"),
        ("https://10.0.0.1/", "URL: must be an https URL of the public internet."),
    ] {
        let wrong = [
            ("url", url),
            ("kinds", "some"),
            ("agents", "all"),
            ("kind", "purser.approval.asked.v1"),
        ];
        let seen = create(&mut owner, &wrong).await;
        seen.is(400, problem);
        seen.is(400, &format!("value=\"{url}\""));
        seen.is(400, "value=\"purser.approval.asked.v1\" checked");
    }
    create(&mut owner, &[("url", URL)])
        .await
        .is(400, "Events: choose all, or select some.");
    assert!(listed(&world).await.is_empty());

    create(&mut owner, &ALL).await;
    let (page, _) = only(&world).await;
    let narrow = [
        ("version", "1"),
        ("url", URL),
        ("description", "For the <night> shift"),
        ("kinds", "some"),
        ("kind", "purser.approval.asked.v1"),
        ("agents", "some"),
        ("agent", agent.as_str()),
    ];
    let saved = owner.post(&page, &format!("{page}/edit"), &narrow).await;
    assert_eq!(saved.leads(), format!("{page}?notice=webhook_saved"));
    let shown = owner.get(saved.leads()).await;
    for text in ["For the &lt;night&gt; shift", "Approval requested", "buyer</a>"] {
        shown.is(200, text);
    }
    let (_, webhook) = only(&world).await;
    assert_eq!(
        (&webhook["kinds"], &webhook["agents"], &webhook["version"]),
        (&json!(["purser.approval.asked.v1"]), &json!([agent]), &json!(2))
    );
    // The form of an outdated page is rejected.
    owner
        .post(&page, &format!("{page}/edit"), &narrow)
        .await
        .is(412, "nothing was saved now");
    let off = owner.post(&page, &format!("{page}/disable"), &[("version", "2")]).await;
    assert_eq!(off.leads(), format!("{page}?notice=webhook_disabled"));
    owner.get(PAGE).await.is(200, "off</span>");

    // A widening update requires a recent sign-in. A narrowing update does not.
    world.advance(601);
    for (form, version) in [("enable", "3"), ("rotate", "3")] {
        let refused = owner
            .post(&page, &format!("{page}/{form}"), &[("version", version)])
            .await;
        assert!(refused.leads().starts_with("/dashboard/sign-in?"), "{form}");
        assert!(refused.leads().ends_with("notice=sign_in_again"), "{form}");
    }
    assert_eq!(only(&world).await.1["version"], 3);
    let gone = owner.post(&page, &format!("{page}/remove"), &[("version", "3")]).await;
    assert_eq!(gone.leads(), format!("{PAGE}?notice=webhook_removed"));
    assert!(listed(&world).await.is_empty());
    owner.get(&page).await.is(404, "This page does not exist");
}

#[tokio::test]
async fn another_users_webhook_returns_not_found() {
    let (world, sqs) = world_with_queue().await;
    let mut owner = world.browser(OWNER).await;
    create(&mut owner, &ALL).await;
    let (page, webhook) = only(&world).await;
    let mut bob = world.browser("bob").await;
    bob.get(PAGE).await.is(200, "There are no webhooks yet.");
    bob.get(&page)
        .await
        .is(404, "This page does not exist, or you don’t have access to it.");
    for form in [
        "edit",
        "enable",
        "disable",
        "remove",
        "rotate",
        "test",
        "deliveries/00000000-0000-0000-0000-000000000000/redeliver",
    ] {
        let fields = [&ALL[..], &[("version", "1")]].concat();
        let seen = bob.post(PAGE, &format!("{page}/{form}"), &fields).await;
        assert_eq!(seen.status, 404, "{form}");
        assert_eq!(bob.get(&format!("{page}/{form}")).await.leads(), page, "{form}");
    }
    assert_eq!(
        (only(&world).await.1, sqs.bodies("webhook-requests").len()),
        (webhook, 0)
    );
}

/// Creates a delivery, `ago` seconds ago, whose last call ended with `result`.
fn delivery(webhook: WebhookId, now: Timestamp, ago: u32, result: Option<CallResult>) -> Delivery {
    let kind = EventKind::WebhookTest;
    let at = now.before(Duration::from_secs_u32(ago));
    let person = UserId::derive("https://issuer.example", "ann");
    let event = Event::new(
        EventId::derive(kind, &[&webhook, &ago]),
        EventSource::for_stack("tests").unwrap(),
        kind,
        at,
        EventSubject::Person(person.clone()),
        Some(person),
        EventData::new().text("endpoint_id", webhook),
    );
    let delivery = Delivery::new(webhook, &event.unwrap());
    let call = |result| Attempt {
        at,
        took: Duration::from_secs_u32(1),
        result,
    };
    match result {
        Some(result) => delivery.record_attempt(call(result), None, 0).0,
        None => delivery,
    }
}

#[tokio::test]
async fn the_delivery_log_shows_results_and_allows_redelivery() {
    let (world, sqs) = world_with_queue().await;
    let mut owner = world.browser(OWNER).await;
    create(&mut owner, &ALL).await;
    let (page, webhook) = only(&world).await;
    let id = WebhookId::parse(webhook["webhook_id"].as_str().unwrap()).unwrap();
    owner.get(&page).await.is(200, "There are no deliveries yet.");
    let mut oldest = None;
    for n in 0..27 {
        let result = match n {
            0 => Some(CallResult::Status(204)),
            1 => Some(CallResult::Timeout),
            _ => Some(CallResult::Status(410)),
        };
        let made = delivery(id, world.now(), n * 60, result);
        oldest = Some(made.id);
        assert!(
            world
                .webhooks
                .put_delivery_if_unchanged(&made, world.now())
                .await
                .unwrap()
        );
    }
    let seen = owner.get(&page).await;
    for text in [
        "answered 204",
        "no answer in time",
        "waiting</span>",
        "delivered</span>",
        "given up</span>",
        "Send now",
    ] {
        seen.is(200, text);
    }
    let oldest = format!("deliveries/{}/redeliver", oldest.unwrap());
    assert!(!seen.html.contains(&oldest));
    let (_, older) = seen.html.split_once(&format!("href=\"{page}?cursor=")).unwrap();
    let older = format!("{page}?cursor={}", older.split(['"', '#']).next().unwrap());
    let seen = owner.get(&older).await;
    seen.is(200, &oldest);
    assert_eq!(seen.html.matches("given up</span>").count(), 2);

    let again = owner.post(&older, &format!("{page}/{oldest}"), &[]).await;
    assert_eq!(again.leads(), format!("{page}?notice=webhook_sent_again"));
    let tested = owner.post(&page, &format!("{page}/test"), &[]).await;
    assert_eq!(tested.leads(), format!("{page}?notice=webhook_test_sent"));
    assert_eq!(sqs.bodies("webhook-requests").len(), 2);
    let unknown = format!("{page}/deliveries/00000000-0000-7000-8000-000000000000/redeliver");
    assert_eq!(owner.post(&page, &unknown, &[]).await.status, 404);
    assert_eq!(sqs.bodies("webhook-requests").len(), 2);
}

#[tokio::test]
async fn webhooks_that_responded_410_can_be_re_enabled() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let hostile = [
        ("url", URL),
        ("description", HOSTILE),
        ("kinds", "all"),
        ("agents", "all"),
    ];
    create(&mut owner, &hostile)
        .await
        .is(200, "&quot;&gt;&lt;script&gt;alert");
    let (page, webhook) = only(&world).await;
    let stored = world
        .webhooks
        .list_webhooks(&UserId::derive(&world.issuer.url, OWNER))
        .await
        .unwrap();
    assert_eq!(json!(stored[0].id.to_string()), webhook["webhook_id"]);
    world
        .webhooks
        .record_410_response(&stored[0], world.now())
        .await
        .unwrap();
    owner.get(PAGE).await.is(200, "gone</span>");
    owner.get(&page).await.is(200, "answered 410 Gone");
    let on = owner.post(&page, &format!("{page}/enable"), &[("version", "1")]).await;
    assert_eq!(on.leads(), format!("{page}?notice=webhook_enabled"));
    owner.get(PAGE).await.is(200, "on</span>");
}

/// After an update, the page shows no failures.
#[tokio::test]
async fn failing_webhooks_are_shown_until_an_update() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    create(&mut owner, &ALL).await;
    let (page, webhook) = only(&world).await;
    assert_eq!(webhook["failing_since"], Value::Null);
    let id = WebhookId::parse(webhook["webhook_id"].as_str().unwrap()).unwrap();
    let since = world.now();
    let mut old = None;
    for result in [CallResult::Timeout, CallResult::Status(503)] {
        let call = Attempt {
            at: since,
            took: Duration::from_secs_u32(1),
            result,
        };
        let calls = FailedCalls::with_failed_call(old.clone(), 1, call, 1);
        let stored = world.webhooks.put_failed_calls(id, &calls, old.as_ref(), since).await;
        assert!(stored.unwrap());
        old = Some(calls);
    }
    assert_eq!(only(&world).await.1["failing_since"], since.to_string());
    owner.get(PAGE).await.is(200, "failing</span>");
    let shown = owner.get(&page).await;
    shown.is(200, "2 calls failed</strong> since");
    shown.is(200, "The last error: answered 503.");
    let fields = [&ALL[..], &[("version", "1"), ("description", "new")]].concat();
    owner.post(&page, &format!("{page}/edit"), &fields).await.leads();
    assert_eq!(only(&world).await.1["failing_since"], Value::Null);
    owner.get(PAGE).await.is(200, "on</span>");
}

/// The form contains the stored value. A form without the value keeps the default.
#[tokio::test]
async fn the_webhook_form_selects_the_content_type() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER).await;
    let json = [&ALL[..], &[("content_type", "application/json")]].concat();
    let wrong = [&ALL[..], &[("content_type", "text/plain")]].concat();
    create(&mut owner, &wrong).await.is(
        400,
        "Content type: must be one of: application/cloudevents+json, application/json",
    );
    assert!(listed(&world).await.is_empty());
    create(&mut owner, &json).await.is(200, "<code>application/json</code>");
    let (page, webhook) = only(&world).await;
    assert_eq!(webhook["content_type"], "application/json");
    owner.get(&page).await.is(200, "value=\"application/json\" checked");
    let edited = [
        &ALL[..],
        &[("version", "1"), ("content_type", "application/cloudevents+json")],
    ]
    .concat();
    owner.post(&page, &format!("{page}/edit"), &edited).await.leads();
    let (_, webhook) = only(&world).await;
    assert_eq!(
        (&webhook["content_type"], &webhook["version"]),
        (&json!("application/cloudevents+json"), &json!(2))
    );
}

/// Each line names one agent. The form's content can be submitted again.
#[tokio::test]
async fn webhook_agents_can_be_entered_by_name_or_id() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let named = world.agent(OWNER).await;
    let name = json!({"name": "Night shift"});
    world.edit(OWNER, "PATCH", &format!("/agents/{named}"), name).await.ok();
    let mut owner = world.browser(OWNER).await;
    owner.get(PAGE).await.is(200, "One name or ID per line.");
    let some = |agents: &str| {
        let fields = [("url", URL), ("kinds", "all"), ("agents", "some"), ("agent", agents)];
        fields.map(|(name, value)| (name, value.to_owned()))
    };
    for (wrong, problem) in [
        ("nobody", "none of your newest agents is named “nobody”"),
        (" \r\n", "Agents: choose at least one."),
    ] {
        let fields = some(wrong);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        create(&mut owner, &fields).await.is(400, problem);
    }
    let fields = some(&format!("night SHIFT\r\n{agent}"));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let made = create(&mut owner, &fields).await;
    made.is(200, &format!("{named} Night shift"));
    let mut expected = vec![agent.clone(), named.clone()];
    expected.sort();
    assert_eq!(only(&world).await.1["agents"], json!(expected));
    let (page, _) = only(&world).await;
    let again = [
        ("version", "1"),
        ("url", URL),
        ("kinds", "all"),
        ("agents", "some"),
        ("agent", &format!("{named} Night shift")),
    ];
    owner.post(&page, &format!("{page}/edit"), &again).await.leads();
    assert_eq!(only(&world).await.1["agents"], json!([named]));
}
