//! A preflight answers what authorize answers to the same request at the same time, however often it was asked before.

use purser_domain::{AgentStatus, BUDGET_WINDOW_MIN, Category, Rule, RuleId, RuleKind, SpendPolicy, Vendor};
use purser_tests::{Answer, World, body_of, dollars, fresh_key, units};
use serde_json::{Value, json};

/// What an agent is under, and what comes of its request for two dollars.
struct Situation {
    says: (&'static str, &'static str),
    status: AgentStatus,
    enabled: bool,
    policy: SpendPolicy,
    rule: Option<RuleKind>,
}

fn situation(result: &'static str, reason: &'static str) -> Situation {
    Situation {
        says: (result, reason),
        status: AgentStatus::Active,
        enabled: true,
        policy: SpendPolicy::permissive(),
        rule: None,
    }
}

fn situations() -> Vec<Situation> {
    let under = |reason, edit: fn(&mut SpendPolicy)| {
        let mut situation = situation("block", reason);
        edit(&mut situation.policy);
        situation
    };
    let ruled = |result, reason, rule| Situation {
        rule: Some(rule),
        ..situation(result, reason)
    };
    let allowed = || situation("allow", "x402_authorized");
    let asks = || {
        let mut asks = situation("escalate", "approval_required");
        asks.policy.require_approval_above = units(1);
        asks
    };
    vec![
        allowed(),
        Situation {
            status: AgentStatus::Frozen,
            ..situation("block", "agent_frozen")
        },
        allowed(),
        Situation {
            enabled: false,
            ..situation("block", "service_not_enabled")
        },
        under("operation_not_enabled_for_agent", |policy| {
            policy.enabled_operations = Some(Vec::new());
        }),
        under("amount_exceeds_per_call_limit", |policy| policy.max_per_call = units(1)),
        under("daily_spend_limit_exceeded", |policy| policy.max_per_day = units(1)),
        ruled(
            "block",
            "category_block:search",
            RuleKind::CategoryBlock {
                categories: vec![Category::Search],
            },
        ),
        ruled(
            "block",
            "vendor_allowlist:lab-search",
            RuleKind::VendorAllowlist {
                vendors: vec![Vendor::Wallet(purser_domain::Address::ZERO)],
            },
        ),
        ruled(
            "block",
            "budget_limit:",
            RuleKind::BudgetLimit {
                limit: units(1),
                window: BUDGET_WINDOW_MIN,
            },
        ),
        asks(),
        ruled(
            "escalate",
            "approval_required",
            RuleKind::ApprovalRequired {
                services: None,
                categories: None,
                above: None,
            },
        ),
        // A freeze comes before the question to a person.
        Situation {
            status: AgentStatus::Frozen,
            ..Situation {
                says: ("block", "agent_frozen"),
                ..asks()
            }
        },
        allowed(),
    ]
}

/// The result and the reason of what authorize answered.
fn decided(answer: &Answer) -> [Value; 2] {
    let decision = if answer.status == 200 {
        &answer.body
    } else {
        &answer.body["decision"]
    };
    ["result", "reason"].map(|name| decision[name].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_and_authorize_agree_each_time_anew_under_one_replay_key() {
    let world = World::still().await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    // The same request in every situation, and beside it one that is above its own ceiling.
    let body = body_of(world.offer(dollars(2)));
    let mut dear = body.clone();
    dear["max_payment_units"] = (dollars(2) - 1).into();
    let requests = [body, dear].map(|body| (body, fresh_key()));

    for (n, situation) in situations().into_iter().enumerate() {
        let Situation {
            says,
            status,
            enabled,
            policy,
            rule,
        } = situation;
        world.put_policy(&agent, "lab-search", enabled, policy).await;
        let rule = rule.map(|kind| Rule {
            id: RuleId::from_uuid(uuid::Uuid::new_v4()),
            version: 1,
            kind,
        });
        let budget = rule.as_ref().map(|rule| format!("budget_limit:{}", rule.id));
        world
            .edit(&agent, |agent| {
                agent.status = status;
                agent.rules = rule.into_iter().collect();
            })
            .await;
        for (m, (body, replay_key)) in requests.iter().enumerate() {
            let mut check = body.clone();
            check.as_object_mut().unwrap().remove("idempotency_key");
            check["replay_key"] = json!(replay_key);
            let check = world.post(&agent, "/x402/check", &check).await.ok();
            let mut body = body.clone();
            body["idempotency_key"] = fresh_key().into();
            let answer = world.authorize(&agent, &body).await;

            let foreseen = ["result", "reason"].map(|name| check[name].clone());
            assert_eq!(foreseen, decided(&answer), "{n}: {says:?}: {check} {}", answer.body);
            let (result, reason) = match says {
                (result, "budget_limit:") => (result, budget.as_deref().unwrap()),
                says => says,
            };
            if m == 0 {
                assert_eq!(foreseen, [result, reason], "{n}");
            }
            assert_eq!(
                (&check["would_authorize"], &check["approval_required"]),
                (&json!(foreseen[0] == "allow"), &json!(foreseen[0] == "escalate")),
            );
            assert_eq!(answer.status == 200, foreseen[0] == "allow");
        }
    }

    // All the while the keys were these requests', and nobody else's.
    let [(body, _), (_, replay_key)] = &requests;
    let mut check = body.clone();
    check.as_object_mut().unwrap().remove("idempotency_key");
    check["replay_key"] = json!(replay_key);
    world
        .post(&agent, "/x402/check", &check)
        .await
        .refused(409, "idempotency_key_reused_for_different_request");
}
