//! Tests that a replay evaluates a decision with the policy, rules and service of its time.

use super::{Household, KIM, LEE};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};

impl Household {
    async fn replayed(&self, transaction: &Value) -> Value {
        let path = format!("/decisions/{}/replay", transaction.as_str().unwrap());
        let answer = self
            .world
            .person_edits(&self.kim, Method::POST, &path, &json!({}))
            .await;
        answer.ok()
    }

    /// Returns the page of a decision, with this query.
    async fn decision_page(&self, transaction: &Value, query: &str) -> String {
        let session = self.world.browser_session(&KIM).await;
        let (base, agent) = (&self.world.stack.base_url, self.agent.id);
        let address = format!(
            "{base}/dashboard/decisions/{agent}/{}{query}",
            transaction.as_str().unwrap()
        );
        let page = self
            .world
            .http
            .get(address)
            .header("cookie", session)
            .send()
            .await
            .unwrap();
        assert_eq!(page.status(), 200);
        page.text().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_replayed_with_the_versions_of_their_time() {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    let home = Household::in_world(World::still_with(options).await).await;
    let (world, agent) = (&home.world, &home.agent);
    let limits = |per_call: u64| json!({"max_per_call_units": dollars(per_call), "max_per_day_units": dollars(20)});
    home.set_policy(limits(5)).await;
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(9), "window_seconds": 86_400});
    home.edit(Method::POST, "/rules", budget).await.created();
    let paid = world.authorize(agent, &body_of(world.offer(dollars(4)))).await.ok();
    let blocked = world.authorize(agent, &body_of(world.offer(dollars(6)))).await.body;
    let over = world.authorize(agent, &body_of(world.offer(dollars(5) - 1))).await.ok();
    let budget = world.authorize(agent, &body_of(world.offer(2))).await.body;
    assert_eq!(budget["decision"]["rule_triggered"], "budget_limit", "{budget}");
    assert_eq!(world.stack.publish_changes().await, 0);
    home.set_policy(limits(7)).await;
    home.edit(Method::POST, "/keys", json!({})).await.created();
    home.set_status("frozen").await;
    let frozen = world.authorize(agent, &body_of(world.offer(dollars(4)))).await.body;
    assert_eq!(world.stack.publish_changes().await, 0);
    home.set_status("active").await;
    assert_eq!(world.stack.publish_changes().await, 0);
    for (decision, agent_version, policy_version) in [
        (&paid, 3, 2),
        (&blocked, 3, 2),
        (&over, 3, 2),
        (&budget, 3, 2),
        (&frozen, 5, 3),
    ] {
        let transaction = &decision["transaction_id"];
        let expected = json!({
            "transaction_id": transaction,
            "outcome": "same",
            "detail": null,
            "engine_version": 1,
            "inputs": {
                "engine_version": 1,
                "agent_version": agent_version,
                "service_version": world.service("lab-search").await.version,
                "policy_version": policy_version,
            },
            "differences": [],
        });
        assert_eq!(home.replayed(transaction).await, expected, "{decision}");
        let page = home.decision_page(transaction, "").await;
        assert!(
            page.contains(r#"<button name="replay" value="1">"#) && !page.contains("decides the same"),
            "{page}"
        );
        let page = home.decision_page(transaction, "?replay=1").await;
        assert!(page.contains("The evaluation decides the same."), "{page}");
        let path = format!("/decisions/{}/replay", transaction.as_str().unwrap());
        let lee = world.person(&LEE);
        let theirs = world.person_edits(&lee, Method::POST, &path, &json!({})).await;
        assert_eq!((theirs.status, theirs.slug()), (404, "not_found"));
    }
}
