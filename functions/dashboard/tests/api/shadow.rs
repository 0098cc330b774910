//! Tests the "shadow policy" and "backtest" buttons of forms, and the pages that they open.

use crate::support::World;
use purser_testkit::sample::{OWNER, service_id};
use serde_json::{Value, json};

fn typed(version: &str) -> [(&str, &str); 6] {
    [
        ("version", version),
        ("max_per_call", "3"),
        ("max_per_day", "20"),
        ("require_approval_above", "5"),
        ("operations", "all"),
        ("allowed_domains", "*"),
    ]
}

#[tokio::test]
async fn a_policy_form_can_start_a_shadow_policy_and_promote_it() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut owner = world.browser(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let (policy, shadow) = (format!("{page}/services/{}", service_id(1)), format!("{page}/shadow"));
    owner.get(&shadow).await.is(200, "This agent has no shadow.");
    let seen = owner.get(&page).await;
    seen.is(200, &format!("formaction=\"{policy}?shadow=true\""));
    let typed = typed("1");
    let attached = owner.post(&page, &format!("{policy}?shadow=true"), &typed).await;
    assert_eq!(attached.leads(), format!("{shadow}?notice=shadow_attached"));
    owner.get(&page).await.is(200, &format!("href=\"{shadow}\""));
    let seen = owner.get(&shadow).await;
    seen.is(200, "0 of 0 decisions");
    seen.is(200, "The agent could do less than now.");
    assert!(seen.html.contains("services/lab/max_per_call_units"), "{}", seen.html);

    // Applying a shadow policy needs the version on the page.
    let version = seen.input("version");
    let promote = format!("{shadow}/promote");
    owner
        .post(&shadow, &promote, &[("version", "1")])
        .await
        .is(412, "The limits were edited after you opened the page.");
    owner.post(&shadow, &promote, &[]).await.is(400, "Reload the page.");
    let promoted = owner.post(&shadow, &promote, &[("version", &version)]).await;
    assert_eq!(promoted.leads(), format!("{page}?notice=shadow_promoted"));
    owner.get(&shadow).await.is(200, "This agent has no shadow.");
    let record = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    assert_eq!(record["policy"]["max_per_call_units"], 3_000_000);

    // A rule's form submits all rules, and the shadow policy can be removed.
    let rule = [
        ("version", "1"),
        ("kind", "budget_limit"),
        ("limit", "7"),
        ("window", "12"),
        ("window_unit", "hours"),
    ];
    let attached = owner.post(&page, &format!("{page}/rules?shadow=true"), &rule).await;
    assert_eq!(
        attached.leads(),
        format!("{shadow}?notice=shadow_attached"),
        "{}",
        attached.html
    );
    let removed = owner.post(&shadow, &format!("{shadow}/remove"), &[]).await;
    assert_eq!(removed.leads(), format!("{page}?notice=shadow_removed"));
    assert_eq!(owner.post(&page, &format!("{shadow}/remove"), &[]).await.status, 404);

    let mut bob = world.browser("bob").await;
    assert_eq!(bob.get(&shadow).await.status, 404);
    assert_eq!(bob.post("/dashboard", &promote, &[("version", "1")]).await.status, 404);
}

/// The error names the key. A rule that the agent already has keeps keys that have ended.
#[tokio::test]
async fn a_shadow_policy_names_only_keys_of_the_agent() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}/shadow");
    let key = world
        .edit(OWNER, "POST", &format!("/agents/{agent}/keys"), json!({}))
        .await
        .created();
    let rule = |key: &Value| json!({"kind": "count_limit", "count": 1, "period": "lifetime", "keys": [key]});
    let (known, unknown) = (rule(&key["key_id"]), rule(&json!("0123456789abcdef")));
    for query in ["", "?preview=true"] {
        let body = json!({"rules": [known, unknown]});
        let rejected = world
            .call(OWNER, "PUT", &format!("{path}{query}"), None, Some(body))
            .await;
        assert_eq!(rejected.status, 400, "{}", rejected.body);
        assert!(
            rejected.body.to_string().contains("/rules/1/keys/0"),
            "{}",
            rejected.body
        );
    }
    let body = json!({"rules": [known]});
    world.call(OWNER, "PUT", &path, None, Some(body)).await.ok();
}

#[tokio::test]
async fn a_policy_form_can_start_a_backtest_with_a_result_page() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut owner = world.browser(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let policy = format!("{page}/services/{}", service_id(1));
    let list = "/dashboard/backtests";
    owner.get(list).await.is(200, "There are no backtests yet.");
    let typed = typed("1");
    let started = owner.post(&page, &format!("{policy}?backtest=true"), &typed).await;
    let (backtest, notice) = started.leads().split_once('?').unwrap();
    assert_eq!(notice, "notice=backtest_started");
    let seen = owner.get(backtest).await;
    seen.is(200, "0 of 1 agent are done.");
    seen.is(200, "per call");
    owner.get(list).await.is(200, &format!("href=\"{backtest}\""));
    owner
        .get("/dashboard/decisions")
        .await
        .is(200, &format!("href=\"{list}\""));
    let mut bob = world.browser("bob").await;
    assert_eq!(bob.get(backtest).await.status, 404);
    bob.get(list).await.is(200, "There are no backtests yet.");
}
