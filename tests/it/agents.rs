//! What an agent is told about itself.

use purser_domain::{OperationSlug, SpendPolicy};
use purser_tests::World;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_itself_its_services_and_their_policies() {
    let world = World::start().await;
    let policy = SpendPolicy {
        enabled_operations: Some(vec![OperationSlug::parse("web.search").unwrap()]),
        ..SpendPolicy::column_defaults()
    };
    let agent = world.agent(policy, vec![]).await;

    let me = world.get(&agent, "/mcp/agents/me").await.ok();
    let created_at = me["created_at"].clone();
    assert_eq!(
        me,
        json!({"agent_id": agent.id.to_string(), "name": "test agent", "created_at": created_at})
    );

    world.enable(&agent, "lab-reports", SpendPolicy::permissive()).await;
    world
        .put_policy(&agent, "lab-weather", false, SpendPolicy::column_defaults())
        .await;
    let services = world
        .get(&agent, &format!("/mcp/agents/{}/services", agent.id))
        .await
        .ok();
    let listed: Vec<&str> = services["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["slug"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["lab-reports", "lab-search"], "what is disabled is not listed");
    assert_eq!(
        (&services["count"], &services["agent_id"]),
        (&json!(2), &json!(agent.id.to_string()))
    );

    let path = |service: &str| format!("/agents/{}/services/{service}/policy", agent.id);
    let by_slug = world.get(&agent, &path("lab-search")).await.ok();
    assert_eq!(by_slug, services["services"][1], "the same record");
    let expected = json!({
        "max_per_call_units": 1_000_000, "max_per_day_units": 50_000_000, "require_approval_above_units": 10_000_000,
        "enabled_operations": ["web.search"], "allowed_domains": ["*"],
    });
    assert_eq!(by_slug["policy"], expected, "the column defaults of the contract");
    let by_id = world
        .get(&agent, &path(by_slug["service_id"].as_str().unwrap()))
        .await
        .ok();
    assert_eq!(by_slug, by_id);
    assert_eq!(
        world.get(&agent, &path("lab-weather")).await.ok()["enabled"],
        false,
        "a disabled record can be read"
    );
    world.get(&agent, &path("lab-scrape")).await.refused(404, "not_found");
    world.get(&agent, &path("no-such")).await.refused(404, "not_found");
}
