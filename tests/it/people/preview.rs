//! Tests previews of updates, which save nothing.

use super::{Household, LEE};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, dollars};
use reqwest::Method;
use serde_json::{Value, json};

/// Returns the changed decisions of a preview: recorded result, new result, reason, number and sum.
fn flips(differences: &Value) -> Vec<Value> {
    let flips = differences["flips"].as_array().unwrap().iter();
    let row = |flip: &Value| {
        let names = ["recorded", "tested", "reason", "count", "amount_units"];
        json!(names.map(|name| &flip[name]))
    };
    flips.map(row).collect()
}

async fn home() -> Household {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    Household::in_world(World::still_with(options).await).await
}

impl Household {
    /// Requests payments of these amounts in dollars, a minute apart.
    async fn asks_for(&self, amounts: &[u64]) -> Vec<Value> {
        let mut told = Vec::new();
        for amount in amounts {
            self.world.pass(60);
            let body = body_of(self.world.offer(dollars(*amount)));
            told.push(self.world.authorize(&self.agent, &body).await.body);
        }
        assert_eq!(self.world.stack.publish_changes().await, 0);
        told
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_preview_shows_changed_decisions_and_saves_nothing() {
    let home = home().await;
    let limits = json!({"max_per_call_units": dollars(5), "max_per_day_units": dollars(20), "require_approval_above_units": dollars(50)});
    let saved = home.set_policy(limits.clone()).await;
    let told = home.asks_for(&[4, 3, 2, 6]).await;
    assert_eq!(told[3]["decision"]["rule_triggered"], "max_per_call_units", "{told:?}");
    let preview = async |edit: Value| {
        let path = "/services/lab-search?preview=true";
        home.edit(Method::PATCH, path, edit).await.ok()
    };

    let same = preview(limits).await;
    assert_eq!((&same["widens"], &same["narrows"]), (&json!(false), &json!(false)));
    assert_eq!((&same["decisions"], &same["untested"]), (&json!(4), &json!(0)));
    assert_eq!(same["authorized_units"], dollars(9));
    for differences in [&same["if_declined"], &same["if_approved"]] {
        let nothing = json!({"flips": [], "other_reasons": 0, "saved_units": 0, "added_units": 0});
        assert_eq!(*differences, nothing);
    }

    let less = preview(json!({"max_per_day_units": dollars(6)})).await;
    assert_eq!((&less["widens"], &less["narrows"]), (&json!(false), &json!(true)));
    assert_eq!(less["narrowed"]["after"]["check"], "max_per_day_units", "{less}");
    assert_eq!(less["widened"], Value::Null);
    // With the proposed limit, the payment of three dollars is denied, so the next payment of two dollars fits.
    let expected = json!(["allow", "block", "daily_spend_limit_exceeded", 1, dollars(3)]);
    assert_eq!(flips(&less["if_declined"]), [expected]);
    assert_eq!(less["if_declined"]["saved_units"], dollars(3));
    let example = &less["if_declined"]["flips"][0]["example"];
    assert_eq!(example["transaction_id"], told[1]["transaction_id"]);

    let more = preview(json!({"max_per_call_units": dollars(9), "require_approval_above_units": dollars(5)})).await;
    assert_eq!((&more["widens"], &more["narrows"]), (&json!(true), &json!(true)));
    let asked = json!(["block", "escalate", "approval_required", 1, dollars(6)]);
    assert_eq!(flips(&more["if_declined"]), [asked]);
    let added = [&more["if_declined"], &more["if_approved"]].map(|differences| &differences["added_units"]);
    assert_eq!(added, [&json!(0), &json!(dollars(6))]);

    assert_eq!(home.read("/services/lab-search").await["version"], saved["version"]);
    let policy = &home.read("/services/lab-search").await["policy"];
    assert_eq!(*policy, saved["policy"]);
    let off = home.edit(Method::DELETE, "/services/lab-search?preview=true", json!({}));
    assert_eq!(flips(&off.await.ok()["if_declined"])[0][2], "service_not_enabled");

    for wrong in ["preview=maybe", "preview=true&days=31", "days=0"] {
        let path = format!("/services/lab-search?{wrong}");
        let refused = home.edit(Method::PATCH, &path, json!({"enabled": true})).await;
        assert_eq!((refused.status, refused.slug()), (400, "invalid_request"), "{wrong}");
    }
    let path = home.agent.path("/services/lab-search?preview=true");
    let request = home.world.persons_request(&home.kim, Method::PATCH, &path);
    let stale = World::send(request.header("if-match", "\"1\"").json(&json!({}))).await;
    stale.refused(412, "version_conflict");
}

/// An earlier update has no effect on a later preview.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_independent_of_earlier_updates() {
    let home = home().await;
    let limits = json!({"max_per_call_units": dollars(5), "max_per_day_units": dollars(20), "require_approval_above_units": dollars(50)});
    home.set_policy(limits).await;
    home.asks_for(&[4, 3, 6]).await;
    let path = "/services/lab-search";
    home.edit(Method::PATCH, path, json!({"max_per_call_units": dollars(3)}))
        .await
        .ok();
    let blocks = json!({"kind": "category_block", "categories": ["search"]});
    let budget = json!({"kind": "budget_limit", "limit_units": 1_000_000_000_000_u64, "window_seconds": 3_600});
    let is_empty = |preview: &Value| {
        let differences = [&preview["if_declined"], &preview["if_approved"]];
        differences.into_iter().all(|differences| {
            *differences == json!({"flips": [], "other_reasons": 0, "saved_units": 0, "added_units": 0})
        })
    };
    for rule in [None, Some(blocks)] {
        if let Some(rule) = rule {
            home.edit(Method::POST, "/rules", rule).await.created();
        }
        let same = home
            .edit(Method::PATCH, "/services/lab-search?preview=true", json!({}))
            .await
            .ok();
        assert!(is_empty(&same), "{same}");
        assert_eq!((&same["widens"], &same["narrows"]), (&json!(false), &json!(false)));
        let added = home
            .edit(Method::POST, "/rules?preview=true", budget.clone())
            .await
            .ok();
        assert!(is_empty(&added), "{added}");
        assert_eq!((&added["decisions"], &added["untested"]), (&json!(3), &json!(0)));
    }
}

/// The days before the preview's first day count in budgets, but are not tested.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_preview_counts_earlier_spending() {
    let mut home = home().await;
    home.asks_for(&[4]).await;
    for _ in 0..2 {
        home.pass_a_day();
    }
    home.asks_for(&[3, 1]).await;
    let budget = json!({"kind": "budget_limit", "limit_units": dollars(6), "window_seconds": 7 * 86_400});
    let added = home
        .edit(Method::POST, "/rules?preview=true&days=1", budget.clone())
        .await
        .ok();
    assert_eq!(
        (&added["widens"], &added["narrows"], &added["decisions"]),
        (&json!(false), &json!(true), &json!(2))
    );
    let flipped = flips(&added["if_declined"]);
    assert_eq!(flipped.len(), 1, "{added}");
    assert_eq!((&flipped[0][1], &flipped[0][4]), (&json!("block"), &json!(dollars(3))));
    assert_eq!(home.read("/rules").await["count"], 0);

    let rule = home.edit(Method::POST, "/rules", budget.clone()).await.created();
    let path = format!("/rules/{}?preview=true", rule["rule_id"].as_str().unwrap());
    let removed = home.edit(Method::DELETE, &path, json!({})).await.ok();
    assert_eq!((&removed["widens"], &removed["narrows"]), (&json!(true), &json!(false)));
    let other = json!({"kind": "budget_limit", "limit_units": dollars(7), "window_seconds": 3_600});
    let replaced = home.edit(Method::PUT, &path, other).await.ok();
    assert_eq!(replaced["widens"], true);
    assert_eq!(home.read("/rules").await["rules"][0]["limit_units"], dollars(6));
    let stranger = home.world.person(&LEE);
    let path = home.agent.path("/rules?preview=true");
    let theirs = home.world.person_edits(&stranger, Method::POST, &path, &budget).await;
    theirs.refused(404, "not_found");
}
