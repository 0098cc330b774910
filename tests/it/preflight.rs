//! A preflight answers what authorize answers to the same request at the same time, however often it was called before.
//! That it predicts each refusal completely: `errors.rs`.

use purser_domain::{AgentStatus, SpendPolicy};
use purser_tests::{World, body_of, dollars, fresh_key, units};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_and_authorize_agree_each_time_anew_under_one_replay_key() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    // The same request in every situation, and one that is above its own maximum.
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
        // A freeze comes before the approval.
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
