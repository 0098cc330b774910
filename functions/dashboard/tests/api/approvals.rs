//! Approvals: one word, in time, from the owner.

use crate::support::World;
use purser_testkit::{authorize::Answer as Told, sample::OWNER};
use serde_json::{Value, json};

impl World {
    /// An agent that may spend a hundred a day, and has to ask above ten.
    async fn asking(&self) -> String {
        let id = self.agent(OWNER).await;
        let path = format!("/agents/{id}/services/lab");
        let policy = json!({"max_per_day_units": 100, "require_approval_above_units": 10});
        self.edit(OWNER, "PATCH", &path, policy).await.ok();
        id
    }

    async fn asks(&self, agent: &str, amount: u64, key: &str) -> String {
        match self.pay(agent, amount, key).await {
            Told::Waits(approval) => approval.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_person_sees_what_a_decision_rests_on_and_decides_once() {
    let world = World::start().await;
    let agent = world.asking().await;
    world.pay(&agent, 8, "small").await;
    let id = world.asks(&agent, 20, "large").await;
    let path = format!("/agents/{agent}/approvals/{id}");
    let waiting = world.get(OWNER, &path).await.ok();
    let expected = json!({
        "approval_id": id, "status": "pending", "agent_id": agent, "agent_name": "buyer", "agent_status": "active",
        "service_slug": "lab", "service_name": "LAB", "operation_id": "lab.pay", "amount_units": 20,
        "pay_to": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", "threshold_units": 10, "rule_id": null,
        "max_per_day_units": 100, "spend_today_units": 8, "remaining_today_units": 92,
        "created_at": "2026-11-21T01:09:00.000000Z", "expires_at": "2026-11-22T01:09:00.000000Z",
        "resolved_at": null, "note": null, "settlement_id": null,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&waiting[name], value, "{name}");
    }
    assert_eq!(
        world.get(OWNER, "/approvals?status=pending").await.ok()["approvals"],
        json!([waiting])
    );
    assert_eq!(world.get("bob", "/approvals").await.ok()["count"], 0);
    let other = world.asking().await;
    for (who, agent, id) in [("bob", &agent, &*id), (OWNER, &other, &id), (OWNER, &agent, "x")] {
        let path = format!("/agents/{agent}/approvals/{id}");
        world.get(who, &path).await.refused(404, "not_found");
        for verdict in ["approve", "reject"] {
            let answer = world.call(who, "POST", &format!("{path}/{verdict}"), None, None).await;
            answer.refused(404, "not_found");
        }
    }
    let decide = async |verdict: &str, body| {
        world
            .call(OWNER, "POST", &format!("{path}/{verdict}"), None, body)
            .await
    };
    assert_eq!(
        decide("approve", Some(json!({"note": 7, "x": 1}))).await.problems(),
        ["/note", "/x"]
    );
    world.advance(60);
    let approved = decide("approve", Some(json!({"note": " go on "}))).await.ok();
    assert_eq!(
        (&approved["status"], &approved["note"]),
        (&json!("approved"), &json!("go on"))
    );
    assert_eq!(approved["resolved_at"], "2026-11-21T01:10:00.000000Z");
    for verdict in ["approve", "reject"] {
        let late = decide(verdict, None).await.refused(409, "approval_not_pending");
        assert_eq!(
            (&late["status"], &late["approval_id"]),
            (&json!("approved"), &json!(id))
        );
    }
    world.advance(86_400);
    let late = decide("reject", None).await.refused(409, "approval_not_pending");
    assert_eq!(late["status"], "expired");
    let expired = world.get(OWNER, &path).await.ok();
    assert_eq!(
        (&expired["status"], &expired["remaining_today_units"]),
        (&json!("expired"), &Value::Null)
    );
}

#[tokio::test]
async fn of_two_who_decide_at_once_one_is_told_that_it_was_too_late() {
    let world = World::start().await;
    let agent = world.asking().await;
    let id = world.asks(&agent, 20, "large").await;
    let decide = async |verdict: &str| {
        let path = format!("/agents/{agent}/approvals/{id}/{verdict}");
        world.call(OWNER, "POST", &path, None, None).await
    };
    let (yes, no) = tokio::join!(decide("approve"), decide("reject"));
    let mut statuses = [yes.status, no.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    let (won, lost) = if yes.status == 200 { (yes, no) } else { (no, yes) };
    assert_eq!(lost.refused(409, "approval_not_pending")["status"], won.ok()["status"]);
}

#[tokio::test]
async fn approvals_are_paged_newest_first_and_filtered() {
    let world = World::start().await;
    let (first, second) = (world.asking().await, world.asking().await);
    let mut ids = Vec::new();
    for n in 0..7 {
        world.advance(1);
        let agent = if n % 2 == 0 { &first } else { &second };
        ids.insert(0, (world.asks(agent, 20 + n, &n.to_string()).await, agent));
    }
    let (rejected, agent) = &ids[2];
    world
        .call(
            OWNER,
            "POST",
            &format!("/agents/{agent}/approvals/{rejected}/reject"),
            None,
            None,
        )
        .await
        .ok();
    let all = async |query: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = world
                .get(OWNER, &format!("/approvals?limit=2{query}{cursor}"))
                .await
                .ok();
            let approvals = page["approvals"].as_array().unwrap();
            assert!(approvals.len() <= 2);
            assert_eq!(page["count"], approvals.len());
            found.extend(
                approvals
                    .iter()
                    .map(|approval| approval["approval_id"].as_str().unwrap().to_owned()),
            );
            match page["next_cursor"].as_str() {
                None => return found,
                Some(next) => cursor = format!("&cursor={next}"),
            }
        }
    };
    let of = |wanted: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
        ids.iter()
            .filter(|(id, agent)| wanted(id, agent))
            .map(|(id, _)| id.clone())
            .collect()
    };
    assert_eq!(all("").await, of(&|_, _| true));
    assert_eq!(all("&status=pending").await, of(&|id, _| id != rejected));
    assert_eq!(all("&status=rejected").await, of(&|id, _| id == rejected));
    assert_eq!(
        all(&format!("&agent_id={second}")).await,
        of(&|_, agent| agent == second)
    );
    let wrong = world
        .get(OWNER, "/approvals?status=open&limit=0&cursor=x&agent_id=y")
        .await;
    assert_eq!(wrong.problems(), ["/agent_id", "/cursor", "/limit", "/status"]);
}
