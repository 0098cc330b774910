//! Tests the preview buttons of forms, which show the effects of an update and save nothing.

use crate::support::World;
use purser_testkit::sample::{OWNER, service_id};
use serde_json::{Value, json};

#[tokio::test]
async fn a_policy_form_can_be_previewed_before_saving() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let policy = format!("{page}/services/{}", service_id(1));
    let mut owner = world.browser(OWNER).await;
    let button = format!("formaction=\"{policy}?preview=true\"");
    owner.get(&page).await.is(200, &button);
    let typed = [
        ("version", "1"),
        ("max_per_call", "0.75"),
        ("max_per_day", "20"),
        ("require_approval_above", "5"),
        ("operations", "all"),
        ("allowed_domains", "*"),
    ];
    let seen = owner.post(&page, &format!("{policy}?preview=true"), &typed).await;
    seen.is(200, "The agent could do less than now.");
    seen.is(200, "No decision of the last 7 days to compare with.");
    assert!(seen.html.contains("value=\"0.75\""), "{}", seen.html);
    let record = format!("/agents/{agent}/services/lab");
    let before = world.get(OWNER, &record).await.ok();
    assert_eq!((&before["version"], &before["permissive"]), (&1.into(), &true.into()));

    let rules = format!("{page}/rules");
    let budget = [
        ("version", "1"),
        ("kind", "budget_limit"),
        ("limit", "7"),
        ("window", "12"),
        ("window_unit", "hours"),
    ];
    let seen = owner.post(&page, &format!("{rules}?preview=true"), &budget).await;
    seen.is(200, "Nothing is saved yet.");
    assert_eq!(
        world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok()["count"],
        0
    );
    let wrong = [("version", "1"), ("kind", "budget_limit"), ("limit", "x")];
    let seen = owner.post(&page, &format!("{rules}?preview=true"), &wrong).await;
    seen.is(400, "“x” is not an amount in dollars");
    let stale = budget.map(|(name, value)| (name, if name == "version" { "7" } else { value }));
    let seen = owner.post(&page, &format!("{rules}?preview=true"), &stale).await;
    seen.is(412, "Your input is kept in the form");

    // The previewed form is saved without changes.
    assert_eq!(
        owner.post(&page, &policy, &typed).await.leads(),
        format!("{page}?notice=policy_saved")
    );
    let policy = &world.get(OWNER, &record).await.ok()["policy"];
    assert_eq!(policy["max_per_call_units"], 750_000);
}

/// The report counts each rule's decisions. A preview of all limits finds rules that cover each other.
#[tokio::test]
async fn rules_are_reported_with_their_decisions_and_findings() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}");
    let budget = |units: u64| json!({"kind": "budget_limit", "limit_units": units, "window_seconds": 172_800});
    let rules = format!("{path}/rules");
    let rule = world.edit(OWNER, "POST", &rules, budget(50)).await.created();
    let id = rule["rule_id"].as_str().unwrap();
    for (n, amount) in [30, 40, 41, 42, 43].into_iter().enumerate() {
        world.advance(1);
        world.pay(&agent, amount, &n.to_string()).await;
    }
    let report = world.get(OWNER, &format!("{path}/versions?days=7")).await.ok();
    let decisions = report["versions"][0]["decisions"].as_array().unwrap().iter();
    let decisions: Vec<Value> = decisions
        .map(|rule| {
            let amounts = rule["examples"].as_array().unwrap().iter();
            let amounts: Vec<&Value> = amounts.map(|example| &example["amount_units"]).collect();
            let [blocked, escalated, tightest] = ["blocked", "escalated", "tightest"].map(|name| &rule[name]);
            json!([rule["rule_id"], blocked, escalated, tightest, amounts])
        })
        .collect();
    // The test's settlements record no checks, so no budget can be the tightest.
    assert_eq!(decisions, [json!([id, 4, 0, 0, [43, 42, 41]])], "{report}");
    assert_eq!(report["partial"], false);
    let bare = world.get(OWNER, &format!("{path}/versions")).await.ok();
    assert_eq!(bare["versions"][0]["decisions"], Value::Null);
    assert_eq!(world.get(OWNER, &format!("{path}/versions?days=31")).await.status, 400);
    let mut owner = world.browser(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let seen = owner.get(&format!("{page}/history?days=7")).await;
    seen.is(200, "Refused 4, asked 0, nearest limit of 0 payments.");

    let proposed = json!({"rules": [budget(70), budget(60)]});
    let preview = format!("{path}/shadow?preview=true");
    let preview = world.edit(OWNER, "PUT", &preview, proposed).await.ok();
    let finding = &preview["findings"][0];
    assert_eq!(
        json!([
            preview["preview"],
            finding["finding"],
            finding["rule"],
            finding["other_rule"]
        ]),
        json!([true, "is_covered_by", budget(70), budget(60)])
    );
    assert_eq!(world.get(OWNER, &format!("{path}/shadow")).await.status, 404);
    world.edit(OWNER, "POST", &rules, budget(55)).await.created();
    let listed = world.get(OWNER, &rules).await.ok();
    assert_eq!(
        json!([listed["findings"][0]["finding"], listed["findings"][0]["other_rule_id"]]),
        json!(["is_covered_by", id])
    );
    owner.get(&page).await.is(200, "another rule is at least as strict");
}
