//! Tests that texts for users accept no direction controls, and that pages escape stored hidden characters.
//! `people/notices.rs` tests mail, webhooks, tools and logs.

use crate::access::{routes, world_with_everything};
use crate::bodies::{Ground, route_of, with};
use crate::forms::Browser;
use crate::schemas::Document;
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::escape_hidden_characters;
use purser_local::DEMO_OWNER;
use purser_tests::{World, body_of, dollars, plain};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Free-text fields that accept any character. Pages escape these texts with `visible`.
const OPAQUE: [&str; 11] = [
    "body_hash",
    "execution",
    "idempotency_key",
    "metadata",
    "payment_response_header",
    "price_model",
    "replay_key",
    "service_id",
    "services",
    "source",
    "transaction_id",
];

/// Every text field must reject direction controls and accept joiners, or be in the list above.
#[tokio::test(flavor = "multi_thread")]
async fn every_text_field_rejects_direction_controls_or_is_opaque() {
    let ground = Ground::new().await;
    let (document, routes) = (Document::read(), routes());
    let (mut accepted, mut count) = (BTreeSet::new(), 0);
    for whole in &ground.wholes {
        let route = route_of(whole, &routes);
        let texts = document.free_texts(document.body(&route.operation), "", &whole.body);
        for (at, text) in texts.iter().flat_map(|at| TEXTS.map(|text| (at, text))) {
            let answer = ground.send(whole, &with(&whole.body, at, json!(text))).await;
            let mut details = answer.body["details"].as_array().into_iter().flatten();
            let is_rejected = answer.status == 400 && details.any(|problem| problem["path"] == **at);
            let field = OPAQUE
                .into_iter()
                .find(|field| at.split('/').any(|name| name == *field));
            let is_direction = text.contains('\u{202e}') || text.contains('\u{2066}');
            let context = format!("{} {} {at} {text:?}: {}", whole.method, whole.route, answer.body);
            match field {
                Some(field) if !is_rejected => drop(accepted.insert(field)),
                Some(_) => (),
                None => assert_eq!(is_rejected, is_direction, "{context}"),
            }
            count += 1;
        }
        if route.takes("edit_reason") {
            for text in TEXTS {
                let reason = reqwest::Url::parse_with_params("http://a", [("edit_reason", text)]).unwrap();
                let path = format!("{}?{}", whole.path, reason.query().unwrap());
                let answer = ground.send(&whole.at(path), &whole.body).await;
                let is_told = answer.body["details"].to_string().contains("edit_reason");
                assert_eq!(
                    is_told,
                    text.contains('\u{202e}') || text.contains('\u{2066}'),
                    "{} {text:?}",
                    whole.route
                );
                count += 1;
            }
        }
    }
    assert!(count > 150, "only {count} calls: is this test still looking?");
    assert!(accepted.contains("idempotency_key"), "{accepted:?}");
}

/// The first texts contain direction controls. The others are valid: a Persian word, an emoji and a flag with joiners.
const TEXTS: [&str; 5] = [
    "x\u{202e}y",
    "x\u{2066}y",
    "می\u{200c}خواهم",
    "👩\u{200d}💻",
    "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
];

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_forms_store_no_direction_control_characters() {
    let (world, _) = world_with_everything().await;
    let browser = Browser::start(&world, world.browser_session(&DEMO_OWNER).await).await;
    let forms = browser.forms().await;
    let mut rejected = BTreeSet::new();
    for text in [TEXTS[0], TEXTS[1], TEXTS[2]] {
        for form in &forms {
            for field in &form.texts {
                let mut form = form.clone();
                form.fields.insert(field.clone(), format!("{WORD} {text}"));
                let answer = browser.post(&form).await;
                assert!(answer.status().as_u16() < 500, "{form:?}");
                if answer.status() == 400 {
                    rejected.insert((form.action, field.clone()));
                }
            }
        }
    }
    assert!(rejected.len() >= 12, "only {rejected:?}: is this test still looking?");
    let mut joined = 0;
    for table in [
        "LedgerTable",
        "DecisionsTable",
        "AuditTable",
        "WebhooksTable",
        "UsageTable",
    ] {
        for row in world.scan(table).await {
            let row = plain(&AttributeValue::M(row));
            let row = row.replace('\\', "");
            assert!(!row.contains("u{202e}") && !row.contains("u{2066}"), "{row}");
            joined += usize::from(row.contains("u{200c}"));
        }
    }
    assert!(joined >= 4, "only {joined} rows with a text of a form");
}

/// A word in the texts of the next test, which is replaced in the tables.
const WORD: &str = "qqq";
pub(crate) const HIDDEN: &str = "q\u{202e}q\u{200b}\u{2066}\u{3164}q می\u{200c}خواهم 👩\u{200d}💻";
const SHOWN: &str = "q\\u{202e}q\\u{200b}\\u{2066}\\u{3164}q می\u{200c}خواهم 👩\u{200d}💻";

/// Replaces the word in a stored value. Returns whether the value contained the word.
fn hide(value: &mut AttributeValue) -> bool {
    match value {
        AttributeValue::S(text) if text.contains(WORD) => {
            *text = text.replace(WORD, HIDDEN);
            true
        }
        AttributeValue::M(members) => members.values_mut().map(hide).filter(|found| *found).count() > 0,
        AttributeValue::L(items) => items.iter_mut().map(hide).filter(|found| *found).count() > 0,
        _ => false,
    }
}

/// Writes hidden characters into every stored text that contains the word.
pub(crate) async fn hide_in_tables(world: &World) -> usize {
    let mut count = 0;
    for table in [
        "LedgerTable",
        "DecisionsTable",
        "AuditTable",
        "CatalogTable",
        "WebhooksTable",
    ] {
        let scan = world.stack.db.scan().table_name(table).into_paginator().items().send();
        let items: Vec<_> = scan.collect::<Result<_, _>>().await.unwrap();
        for mut item in items {
            let mut is_changed = false;
            for (_, value) in item
                .iter_mut()
                .filter(|(name, _)| !["pk", "sk"].contains(&name.as_str()))
            {
                is_changed = hide(value) || is_changed;
            }
            if is_changed {
                let put = world.stack.db.put_item().table_name(table).set_item(Some(item));
                put.send().await.unwrap();
                count += 1;
            }
        }
    }
    count
}

/// Writes texts with the word into all fields of the owner and the agent.
async fn write_texts(world: &World, names: &BTreeMap<&'static str, String>) {
    let (owner, demo) = (world.person(&DEMO_OWNER), world.demo());
    let agent = format!("/agents/{}", demo.id);
    let edit = async |method: Method, path: &str, body: Value| {
        let answer = world.person_edits(&owner, method, path, &body).await;
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer.body
    };
    edit(
        Method::PATCH,
        &agent,
        json!({"name": "qqq name", "labels": {"team": "qqq"}}),
    )
    .await;
    let webhook = format!("/webhooks/{}", names["webhookId"]);
    let hook = json!({"url": "https://hooks.example.invalid/purser", "description": "qqq"});
    edit(Method::PUT, &webhook, hook).await;
    let limits = json!({"max_per_call_units": dollars(4), "require_approval_above_units": dollars(2)});
    let policy = format!("{agent}/services/lab-search?edit_reason=qqq");
    edit(Method::PATCH, &policy, limits).await;
    let mut waiting = body_of(world.offer(dollars(3)));
    waiting["metadata"] = json!({"task": "qqq", "qqq": "x"});
    let waiting = world.authorize(&demo, &waiting).await.refused(402, "approval_required");
    let approve = format!("{agent}/approvals/{}/approve", waiting["approval_id"].as_str().unwrap());
    edit(Method::POST, &approve, json!({"note": "qqq"})).await;
    let mut dear = body_of(world.offer(dollars(9)));
    dear["metadata"] = json!({"task": "qqq"});
    let dear = world.authorize(&demo, &dear).await;
    let raise = json!({
        "transaction_id": dear.body["transaction_id"], "max_per_call_units": dollars(9), "reason": "qqq",
        "until": world.now().after(purser_testkit::sample::secs(3_600)).to_string(),
    });
    world.post(&demo, "/x402/raises", &raise).await.ok();
    let freeze = world
        .http
        .put(format!("{}/internal/freezes/agents/{}", world.stack.base_url, demo.id));
    let freeze = freeze.header("x-internal-token", &world.stack.internal_token);
    let freeze = World::send(freeze.json(&json!({"reason": "qqq"}))).await;
    assert!(freeze.status < 300, "{}", freeze.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_files_show_hidden_characters_of_stored_texts() {
    let (world, names) = world_with_everything().await;
    write_texts(&world, &names).await;
    assert_eq!(world.stack.aggregate_history().await, 0);
    let cookie = world.browser_session(&DEMO_OWNER).await;
    assert!(hide_in_tables(&world).await >= 8);
    let (mut seen, mut showing, mut hidden) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut open = vec!["/dashboard".to_owned(), "/dashboard/search?q=qqq".to_owned()];
    while let Some(path) = open.pop() {
        if seen.len() > 150 || !seen.insert(path.clone()) {
            continue;
        }
        let request = world.http.get(format!("{}{path}", world.stack.base_url));
        let answer = request.header("cookie", &cookie).send().await.unwrap();
        let kind = answer
            .headers()
            .get("content-type")
            .map(|kind| kind.to_str().unwrap().to_owned());
        if answer.status() != 200
            || !kind.is_some_and(|kind| kind.starts_with("text/html") || kind.starts_with("text/csv"))
        {
            continue;
        }
        let text = answer.text().await.unwrap();
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        // The browser must send back the values of form fields unchanged.
        let mut parts = text.split(" value=\"");
        let first = parts.next().map(str::to_owned);
        let rest = parts.filter_map(|part| Some(part.split_once('"')?.1.to_owned()));
        let text: String = first.into_iter().chain(rest).collect();
        for (line, shown) in text.split('>').zip(escape_hidden_characters(&text).split('>')) {
            if line != shown && !line.ends_with("</textarea") {
                hidden.insert(format!("{path}: {shown}"));
            }
        }
        if text.contains(SHOWN) || text.contains(&SHOWN.replace('"', "&quot;")) {
            showing.insert(path.clone());
        }
        let links = ["href=\"", "action=\""].map(|start| text.split(start).skip(1).collect::<Vec<_>>());
        let links = links.iter().flatten().filter_map(|rest| rest.split(['"', '#']).next());
        let links = links.filter(|path| path.starts_with("/dashboard") && !path.contains("sign-"));
        open.extend(links.map(|path| path.replace("&amp;", "&")));
    }
    assert!(hidden.is_empty(), "{hidden:#?}");
    let agent = format!("/dashboard/agents/{}", world.demo().id);
    for path in [
        "/dashboard",
        "/dashboard/agents",
        &agent,
        "/dashboard/audit-log.csv",
        "/dashboard/webhooks",
    ] {
        assert!(
            showing.contains(path),
            "{path} shows no such text: {showing:?} of {seen:?}"
        );
    }
}
