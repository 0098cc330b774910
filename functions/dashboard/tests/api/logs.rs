//! The decision log and the settlements: of all of a person's agents, and of nobody else's.

use crate::support::World;
use purser_domain::AgentId;
use purser_testkit::{authorize::Answer as Told, sample::OWNER};
use serde_json::{Value, json};

impl World {
    /// Every row of a list, a page of two at a time.
    async fn rows(&self, list: &str, query: &str) -> Vec<Value> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(OWNER, &format!("/{list}?limit=2{query}{cursor}")).await.ok();
            let rows = page[list].as_array().unwrap();
            assert!(rows.len() <= 2 && page["count"] == rows.len());
            found.extend(rows.clone());
            match page["next_cursor"].as_str() {
                None => return found,
                Some(next) => cursor = format!("&cursor={next}"),
            }
        }
    }

    /// An agent that may spend a hundred a call, and has to ask above ten.
    async fn limited(&self) -> String {
        let id = self.agent(OWNER).await;
        let policy = json!({"max_per_call_units": 100, "require_approval_above_units": 10});
        self.edit(OWNER, "PATCH", &format!("/agents/{id}/services/lab"), policy)
            .await
            .ok();
        id
    }
}

fn texts(rows: &[Value], name: &str) -> Vec<String> {
    rows.iter()
        .map(|row| row[name].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn every_allow_block_and_escalation_of_every_own_agent_is_in_the_log() {
    let world = World::start().await;
    let agents = [world.limited().await, world.limited().await];
    let stranger = world
        .call("bob", "POST", "/agents", None, Some(json!({"name": "other"})))
        .await
        .created();
    world.pay(stranger["agent_id"].as_str().unwrap(), 5, "k").await;
    let mut expected = Vec::new();
    for (n, amount) in [5, 500, 50, 6, 600, 7, 60].into_iter().enumerate() {
        world.advance(1);
        let agent = &agents[n % 2];
        let result = match world.pay(agent, amount, &n.to_string()).await {
            Told::Allowed(_) => "allow",
            Told::Blocked => "block",
            Told::Waits(_) => "escalate",
            other => panic!("{other:?}"),
        };
        expected.insert(0, (agent.clone(), result.to_owned(), amount));
    }
    let seen = |rows: &[Value]| -> Vec<(String, String, u64)> {
        let pairs = texts(rows, "agent_id").into_iter().zip(texts(rows, "result"));
        let amounts = rows.iter().map(|row| row["amount_units"].as_u64().unwrap());
        pairs
            .zip(amounts)
            .map(|((agent, result), amount)| (agent, result, amount))
            .collect()
    };
    assert_eq!(seen(&world.rows("decisions", "").await), expected);
    for result in ["allow", "block", "escalate"] {
        let rows = world.rows("decisions", &format!("&result={result}")).await;
        let wanted: Vec<_> = expected.iter().filter(|(_, of, _)| of == result).cloned().collect();
        assert_eq!(seen(&rows), wanted, "{result}");
    }
    let rows = world.rows("decisions", &format!("&agent_id={}", agents[1])).await;
    assert!(seen(&rows).iter().all(|(agent, ..)| *agent == agents[1]) && rows.len() == 3);
    assert_eq!(world.rows("decisions", "&service_id=lab").await.len(), 7);
    assert_eq!(world.rows("decisions", "&service_id=maps").await.len(), 0);
    world
        .get(OWNER, "/decisions?service_id=nowhere")
        .await
        .refused(404, "service_not_found");
    assert_eq!(
        world
            .get(OWNER, "/decisions?result=deny&cursor=0&limit=101")
            .await
            .problems(),
        ["/cursor", "/limit", "/result"]
    );

    let allowed: Vec<_> = expected
        .iter()
        .filter(|(_, result, _)| result == "allow")
        .cloned()
        .collect();
    let settlements = world.rows("settlements", "").await;
    assert_eq!(settlements.len(), allowed.len());
    assert_eq!(
        texts(&settlements, "agent_id"),
        allowed.iter().map(|(agent, ..)| agent.clone()).collect::<Vec<_>>()
    );
    assert_eq!(world.rows("settlements", "&status=authorized").await, settlements);
    assert_eq!(
        world.rows("settlements", "&status=confirmed").await,
        Vec::<Value>::new()
    );
    assert_eq!(
        world.get(OWNER, "/settlements?status=done&cursor=-").await.problems(),
        ["/cursor", "/status"]
    );
}

#[tokio::test]
async fn one_decision_is_found_by_its_audit_reference_and_one_settlement_by_its_id() {
    let world = World::start().await;
    let agent = world.limited().await;
    world.pay(&agent, 1, "earlier").await;
    world.advance(1);
    let mut allowed = Vec::new();
    // Several of one instant.
    for key in ["a", "b", "c", "d", "e", "f"] {
        allowed.push(world.pay(&agent, 5, key).await);
    }
    assert_eq!(world.pay(&agent, 500, "g").await, Told::Blocked);
    let id = AgentId::parse(&agent).unwrap();
    let blocked = world
        .ledger
        .recorded(id, None, 1)
        .await
        .unwrap()
        .remove(0)
        .transaction();
    world.advance(1);
    world.pay(&agent, 1, "later").await;
    for told in allowed {
        let Told::Allowed(settlement) = told else {
            panic!("{told:?}")
        };
        let stored = world.ledger.settlement(id, settlement).await.unwrap().unwrap();
        let transaction = stored.terms.transaction;
        let decision = world
            .get(OWNER, &format!("/agents/{agent}/decisions/{transaction}"))
            .await
            .ok();
        assert_eq!(decision["transaction_id"], transaction.to_string());
        assert_eq!(decision["settlement_id"], settlement.to_string());
        assert_eq!(
            (&decision["result"], &decision["reason"]),
            (&json!("allow"), &json!("x402_authorized"))
        );
        assert_eq!(
            (&decision["latency_ms"], &decision["error"]),
            (&Value::Null, &Value::Null)
        );
        let path = format!("/agents/{agent}/settlements/{settlement}");
        let row = world.get(OWNER, &path).await.ok();
        assert_eq!(row["transaction_id"], transaction.to_string());
        assert_eq!(
            (&row["receipt_status"], &row["tx_hash"]),
            (&json!("authorized"), &Value::Null)
        );
        world.get("bob", &path).await.refused(404, "not_found");
        // A settlement is no decision's reference.
        let path = format!("/agents/{agent}/decisions/{settlement}");
        world.get(OWNER, &path).await.refused(404, "not_found");
    }
    let path = format!("/agents/{agent}/decisions/{blocked}");
    let decision = world.get(OWNER, &path).await.ok();
    assert_eq!(
        (&decision["result"], &decision["latency_ms"]),
        (&json!("block"), &json!(1))
    );
    assert_eq!(decision["error"], "amount_exceeds_per_call_limit");
    assert_eq!(decision["rule_triggered"], "max_per_call_units");
    assert_eq!(decision["checks"].as_array().unwrap().len(), 12);
    world.get("bob", &path).await.refused(404, "not_found");
    for unknown in [
        "x",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ] {
        world
            .get(OWNER, &format!("/agents/{agent}/decisions/{unknown}"))
            .await
            .refused(404, "not_found");
        world
            .get(OWNER, &format!("/agents/{agent}/settlements/{unknown}"))
            .await
            .refused(404, "not_found");
    }
}
