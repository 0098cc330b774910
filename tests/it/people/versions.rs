//! Tests `If-Match`: an update applies only to the version that the user has seen.

use super::{Household, NOTHING};
use purser_tests::{Answer, World, dollars, paths, together};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The record that an update changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Agent,
    Search,
}

/// Returns all updates of existing records.
async fn writes(home: &Household) -> Vec<(Method, String, Value, Of)> {
    let key = async || {
        let made = home.edit(Method::POST, "/keys", json!({})).await.created();
        format!("/keys/{}", made["key_id"].as_str().unwrap())
    };
    let rule = async || {
        let rule = json!({"kind": "category_block", "categories": ["finance"]});
        let made = home.edit(Method::POST, "/rules", rule).await.created();
        format!("/rules/{}", made["rule_id"].as_str().unwrap())
    };
    let search = "/services/lab-search".to_owned();
    vec![
        (Method::PATCH, String::new(), json!({"name": "other"}), Of::Agent),
        (Method::PATCH, String::new(), json!({"status": "frozen"}), Of::Agent),
        (Method::POST, "/keys".to_owned(), json!({}), Of::Agent),
        (
            Method::POST,
            format!("{}/rotate", key().await),
            json!({"overlap_seconds": 60}),
            Of::Agent,
        ),
        (Method::DELETE, key().await, json!({}), Of::Agent),
        (
            Method::POST,
            "/rules".to_owned(),
            json!({"kind": "approval_required"}),
            Of::Agent,
        ),
        (
            Method::PUT,
            rule().await,
            json!({"kind": "category_block", "categories": ["ai"]}),
            Of::Agent,
        ),
        (Method::DELETE, rule().await, json!({}), Of::Agent),
        (
            Method::PATCH,
            search.clone(),
            json!({"max_per_call_units": 7}),
            Of::Search,
        ),
        (Method::DELETE, search, json!({}), Of::Search),
        (
            Method::POST,
            "/services".to_owned(),
            json!({"service_id": "lab-search"}),
            Of::Search,
        ),
    ]
}

impl Household {
    /// Returns an update request. `if_match` is the expected version.
    fn write(&self, method: &Method, below: &str, if_match: Option<&str>, body: &Value) -> RequestBuilder {
        let request = self
            .world
            .persons_request(&self.kim, method.clone(), &self.agent.path(below))
            .json(body);
        match if_match {
            Some(version) => request.header("if-match", version),
            None => request,
        }
    }

    async fn version(&self, of: Of) -> u64 {
        let below = match of {
            Of::Agent => "",
            Of::Search => "/services/lab-search",
        };
        let answer = self.world.person_gets(&self.kim, &self.agent.path(below)).await;
        let tag = answer.etag().to_owned();
        let version = answer.ok()["version"].as_u64().unwrap();
        assert_eq!(tag, format!("\"{version}\""));
        version
    }
}

/// Enabling a service replaces the whole policy, so it needs no version.
#[tokio::test(flavor = "multi_thread")]
async fn updates_require_the_current_version() {
    let home = Household::in_world(World::start().await).await;
    for (method, below, body, of) in writes(&home).await {
        let shown = format!("{method} {below}");
        let version = home.version(of).await;
        let before = home.world.rows().await;
        let send = async |if_match: Option<&str>| World::send(home.write(&method, &below, if_match, &body)).await;

        if below != "/services" {
            send(None).await.refused(428, "version_required");
        }
        for stale in [version - 1, version + 1, 0, u64::MAX] {
            let told = send(Some(&format!("\"{stale}\"")))
                .await
                .refused(412, "version_conflict");
            assert_eq!(told["version"], version, "{shown}");
        }
        for malformed in [
            version.to_string(),
            format!("W/\"{version}\""),
            format!("\"{version}\", \"1\""),
            String::new(),
        ] {
            assert_eq!(
                paths(send(Some(&malformed)).await, &shown),
                ["/If-Match"],
                "{malformed}"
            );
        }
        let twice = home.write(&method, &below, Some("*"), &body).header("if-match", "*");
        assert_eq!(paths(World::send(twice).await, &shown), ["/If-Match"], "twice");
        assert_eq!(home.world.rows().await.changes_since(&before), NOTHING, "{shown}");

        let done = send(Some(&format!("\"{version}\""))).await;
        assert!([200, 201].contains(&done.status), "{shown}: {}", done.body);
        assert_eq!(done.etag(), format!("\"{}\"", version + 1), "{shown}");
        assert_eq!(done.body["version"], version + 1, "{shown}");
        assert_eq!(home.version(of).await, version + 1, "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_if_match_asterisk_accepts_any_version() {
    let home = Household::in_world(World::start().await).await;
    for (method, below, body, of) in writes(&home).await {
        let version = home.version(of).await;
        let done = World::send(home.write(&method, &below, Some("*"), &body)).await;
        assert!([200, 201].contains(&done.status), "{method} {below}: {}", done.body);
        assert_eq!(home.version(of).await, version + 1, "{method} {below}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_concurrent_update_of_a_version_succeeds() {
    const RACERS: u64 = 16;
    let home = Household::in_world(World::conflicted().await).await;
    let race = async |method: Method, below: &str, body: fn(u64) -> Value| {
        let requests = (1..=RACERS).map(|n| World::send(home.write(&method, below, Some("\"2\""), &body(n))));
        let answers = together(requests.collect()).await;
        let (won, lost): (Vec<Answer>, Vec<Answer>) = answers.into_iter().partition(|answer| answer.status == 200);
        assert_eq!(won.len(), 1, "{below}");
        for answer in lost {
            assert_eq!(answer.refused(412, "version_conflict")["version"], 3, "{below}");
        }
        won[0].body.clone()
    };
    let agent = race(Method::PATCH, "", |n| json!({"name": format!("name {n}")})).await;
    assert_eq!(home.read("").await, agent);

    home.set_policy(json!({"max_per_call_units": 99})).await;
    let search =
        |n: u64| json!({"max_per_call_units": n, "max_per_day_units": dollars(n), "require_approval_above_units": n});
    let service = race(Method::PATCH, "/services/lab-search", search).await;
    assert_eq!(home.read("/services/lab-search").await, service);
    let policy = &service["policy"];
    let n = policy["max_per_call_units"].as_u64().unwrap();
    let whole = (&policy["max_per_day_units"], &policy["require_approval_above_units"]);
    assert_eq!(whole, (&json!(dollars(n)), &json!(n)), "one edit's values, all of them");
    assert_eq!(home.version(Of::Agent).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_updates_without_a_version_all_succeed() {
    const RACERS: usize = 8;
    let home = Household::in_world(World::conflicted().await).await;
    let requests = (0..RACERS).map(|_| World::send(home.write(&Method::POST, "/keys", Some("*"), &json!({}))));
    let made = together(requests.collect()).await.into_iter().map(Answer::created);
    let versions: BTreeSet<u64> = made.map(|made| made["version"].as_u64().unwrap()).collect();
    let expected: BTreeSet<u64> = (3..).take(RACERS).collect();
    assert_eq!(versions, expected, "each has its own");
    assert_eq!(home.read("/keys").await["count"], RACERS + 1);
}
