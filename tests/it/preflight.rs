//! Tests that preflight and authorize give the same response to the same request. `errors.rs` tests each rejection.

use purser_domain::{AgentStatus, SpendPolicy};
use purser_tests::{World, body_of, dollars, fresh_key, units};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn preflight_and_authorize_always_agree() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    // Each situation is tested with this request, and with one whose price exceeds its own maximum.
    let body = body_of(world.offer(dollars(2)));
    let mut dear = body.clone();
    dear["max_payment_units"] = (dollars(2) - 1).into();
    let requests = [body, dear].map(|mut body| {
        body.as_object_mut().unwrap().remove("idempotency_key");
        (body, fresh_key())
    });
    let (active, frozen, free, asking) = (AgentStatus::Active, AgentStatus::Frozen, dollars(1_000), 1);
    for (status, enabled, threshold, result, reason) in [
        (active, true, free, "allow", "x402_authorized"),
        (frozen, true, free, "block", "agent_frozen"),
        (active, true, free, "allow", "x402_authorized"),
        (active, false, free, "block", "service_not_enabled"),
        (active, true, asking, "escalate", "approval_required"),
        (frozen, true, asking, "block", "agent_frozen"),
        (active, true, free, "allow", "x402_authorized"),
    ] {
        let policy = SpendPolicy {
            require_approval_above: units(threshold),
            ..SpendPolicy::permissive()
        };
        world.put_policy(&agent, "lab-search", enabled, policy).await;
        world.edit(&agent, |agent| agent.status = status).await;
        for (body, replay_key) in &requests {
            let (mut check, mut authorize) = (body.clone(), body.clone());
            check["replay_key"] = json!(replay_key);
            authorize["idempotency_key"] = fresh_key().into();
            let foreseen = world.post(&agent, "/x402/check", &check).await.ok();
            let answer = world.authorize(&agent, &authorize).await;
            let decided = if answer.status == 200 {
                &answer.body
            } else {
                &answer.body["decision"]
            };
            if answer.status == 200 {
                assert!(foreseen.get("decision").is_none(), "{foreseen}");
            } else {
                for name in ["result", "reason", "rule_triggered", "checks"] {
                    assert_eq!(foreseen["decision"][name], decided[name], "{result} {reason}");
                }
                assert!(foreseen["decision"]["latency_ms"].is_u64(), "{foreseen}");
            }
            for name in ["result", "reason"] {
                assert_eq!(
                    foreseen[name], decided[name],
                    "{result} {reason}: {foreseen} {}",
                    answer.body
                );
            }
            if *body == requests[0].0 {
                assert_eq!(
                    (&foreseen["result"], &foreseen["reason"]),
                    (&json!(result), &json!(reason))
                );
            }
            assert_eq!(foreseen["would_authorize"], foreseen["result"] == "allow");
            assert_eq!(foreseen["approval_required"], foreseen["result"] == "escalate");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_reports_when_a_blocked_call_will_fit() {
    let world = World::still().await;
    let policy = SpendPolicy {
        max_per_day: units(dollars(3)),
        ..SpendPolicy::permissive()
    };
    let agent = world.agent(policy, vec![]).await;
    // One read of the window does not return all payments, so `retry_at` needs a second read.
    for _ in 0..12 {
        world
            .authorize(&agent, &body_of(world.offer(dollars(3) / 12)))
            .await
            .ok();
        world.pass(60);
    }
    let body = body_of(world.offer(dollars(3)));
    let foreseen = world.check(&agent, &body).await.ok();
    let refused = world
        .authorize(&agent, &body)
        .await
        .refused(402, "daily_spend_limit_exceeded");
    assert!(refused["retry_at"].is_string(), "{refused}");
    for decision in [&refused["decision"], &foreseen["decision"]] {
        assert_eq!(decision["retry_at"], refused["retry_at"]);
    }
}
