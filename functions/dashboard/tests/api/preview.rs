//! Previews in forms: the second button shows above the filled form what the update would change, and saves nothing.

use crate::support::World;
use purser_testkit::sample::{OWNER, service_id};

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
