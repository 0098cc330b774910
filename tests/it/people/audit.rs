//! Tests the audit log: each update and each rejected update has one entry.

use super::{Household, KIM, LEE};
use purser_tests::{World, body_of, dollars, fresh_key, key_id_of, operation_entry, payment_entry, service_entry};
use reqwest::Method;
use serde_json::{Value, json};

/// Returns Kim's audit log, newest first.
async fn log(home: &Household, query: &str) -> Vec<Value> {
    let path = format!("/audit-log{query}");
    home.world.pages_of(&home.kim, &path, "entries", 100).await.0
}

/// Returns the only entry added after the first `seen` entries, and increments `seen`.
async fn one(home: &Household, seen: &mut usize, kind: &str) -> Value {
    let rows = log(home, "").await;
    *seen += 1;
    let kinds: Vec<&Value> = rows.iter().map(|row| &row["kind"]).collect();
    assert_eq!(rows.len(), *seen, "{kind}: {kinds:?}");
    let row = rows[0].clone();
    assert_eq!(row["kind"], kind, "{row}");
    assert_eq!(row["person_id"].as_str().unwrap().len(), 64, "{row}");
    assert!(row["address"].is_string() && row["operator"].is_null(), "{row}");
    assert!(!row["request_id"].as_str().unwrap().is_empty(), "{row}");
    row
}

/// Returns the entry of an update of the agent.
async fn edited(home: &Household, seen: &mut usize, kind: &str) -> Value {
    let row = one(home, seen, kind).await;
    assert_eq!(row["agent_id"], home.agent.id.to_string(), "{row}");
    assert_eq!(row["error"], Value::Null, "{row}");
    row
}

fn changed(row: &Value) -> (Value, Value) {
    (row["before"].clone(), row["after"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_update_writes_exactly_one_audit_row() {
    let home = Household::in_world(World::start().await).await;
    let (world, agent) = (&home.world, &home.agent);
    // The log begins with the creation of the agent and of its API key.
    let mut seen = 2;
    let made = log(&home, "").await;
    assert_eq!((made.len(), &made[1]["kind"]), (2, &json!("agent_created")));
    assert_eq!(made[1]["before"], json!({}));
    assert_eq!(made[1]["after"]["wallet_address"], agent.wallet);

    let request = world.persons_edit(&home.kim, Method::PATCH, &agent.path(""), "*");
    let request = request
        .header("user-agent", "x".repeat(300))
        .json(&json!({"name": "buyer"}));
    let answer = World::send(request).await;
    let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
    answer.ok();
    let row = edited(&home, &mut seen, "agent_renamed").await;
    assert_eq!(
        changed(&row),
        (json!({"name": "errand runner"}), json!({"name": "buyer"}))
    );
    assert_eq!(
        (&row["request_id"], &row["user_agent"]),
        (&json!(id), &json!("x".repeat(200)))
    );

    for (status, kind, before) in [
        ("frozen", "agent_frozen", "active"),
        ("active", "agent_unfrozen", "frozen"),
    ] {
        home.edit(Method::PATCH, "", json!({"status": status})).await.ok();
        let row = edited(&home, &mut seen, kind).await;
        assert_eq!(changed(&row), (json!({"status": before}), json!({"status": status})));
        home.edit(Method::PATCH, "", json!({"status": status})).await.ok();
        assert_eq!(log(&home, "").await.len(), seen);
    }

    let made = home
        .edit(Method::POST, "/keys", json!({"permissions": ["read"]}))
        .await
        .created();
    let key = made["key_id"].as_str().unwrap();
    let row = edited(&home, &mut seen, "key_created").await;
    assert_eq!(row["object_id"], key);
    assert_eq!(
        row["after"][format!("keys/{key}")]["permissions"],
        json!(["read"]),
        "{row}"
    );
    let (_, secret) = made["key"].as_str().unwrap().split_once(':').unwrap();
    assert!(!row.to_string().contains(secret) && !row.to_string().contains("digest"));
    let rotate = format!("/keys/{key}/rotate");
    let rotated = home
        .edit(Method::POST, &rotate, json!({"overlap_seconds": 60}))
        .await
        .created();
    let row = edited(&home, &mut seen, "key_rotated").await;
    assert_eq!(
        (
            row["before"].as_object().unwrap().len(),
            row["after"].as_object().unwrap().len()
        ),
        (1, 2)
    );
    let newer = format!("/keys/{}", key_id_of(rotated["key"].as_str().unwrap()));
    home.edit(Method::DELETE, &newer, json!({})).await.ok();
    edited(&home, &mut seen, "key_revoked").await;

    home.edit(Method::PATCH, "/services/lab-search", json!({"max_per_call_units": 7}))
        .await
        .ok();
    let row = edited(&home, &mut seen, "policy_edited").await;
    let (before, after) = (
        json!({"max_per_call_units": 10_000_000_000_000_u64}),
        json!({"max_per_call_units": 7}),
    );
    assert_eq!(changed(&row), (before, after));
    home.edit(Method::DELETE, "/services/lab-search", json!({})).await.ok();
    let row = edited(&home, &mut seen, "service_disabled").await;
    assert_eq!(changed(&row), (json!({"enabled": true}), json!({"enabled": false})));
    let limits = json!({
        "service_id": "lab-search", "max_per_call_units": dollars(100), "require_approval_above_units": dollars(5),
    });
    home.edit(Method::POST, "/services", limits).await.ok();
    let row = edited(&home, &mut seen, "service_enabled").await;
    assert_eq!(row["after"]["enabled"], true, "{row}");

    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    let rule = home.edit(Method::POST, "/rules", rule).await.created()["rule_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let row = edited(&home, &mut seen, "rule_added").await;
    assert_eq!(
        row["after"][format!("rules/{rule}")]["categories"],
        json!(["finance"]),
        "{row}"
    );
    let below = format!("/rules/{rule}");
    home.edit(
        Method::PUT,
        &below,
        json!({"kind": "category_block", "categories": ["data"]}),
    )
    .await
    .ok();
    edited(&home, &mut seen, "rule_replaced").await;
    home.edit(Method::DELETE, &below, json!({})).await.ok();
    let row = edited(&home, &mut seen, "rule_removed").await;
    assert_eq!(
        (row["before"].as_object().unwrap().len(), &row["after"]),
        (1, &json!({}))
    );

    for (verdict, kind, status) in [
        ("approve", "approval_approved", "approved"),
        ("reject", "approval_rejected", "rejected"),
    ] {
        let mut question = body_of(world.offer(dollars(6)));
        question["idempotency_key"] = fresh_key().into();
        let asked = world
            .authorize(agent, &question)
            .await
            .refused(402, "approval_required");
        let approval = asked["approval_id"].as_str().unwrap();
        let below = format!("/approvals/{approval}/{verdict}");
        home.edit(Method::POST, &below, json!({"note": "why not"})).await.ok();
        let row = edited(&home, &mut seen, kind).await;
        assert_eq!(changed(&row), (json!({"status": "pending"}), json!({"status": status})));
        assert_eq!(row["object_id"], approval);
        // A second decision is rejected.
        home.edit(Method::POST, &below, json!({}))
            .await
            .refused(409, "approval_not_pending");
        let row = one(&home, &mut seen, kind).await;
        assert_eq!(
            (&row["error"], changed(&row)),
            (&json!("approval_not_pending"), (json!({}), json!({})))
        );
        if verdict == "approve" {
            question["approval_id"] = approval.into();
            world.authorize(agent, &question).await.ok();
        }
    }
    world
        .person_edits_version(
            &home.kim,
            Method::PATCH,
            &agent.path(""),
            "\"1\"",
            &json!({"name": "late"}),
        )
        .await
        .refused(412, "version_conflict");
    let row = one(&home, &mut seen, "agent_renamed").await;
    assert_eq!(row["error"], "version_conflict");
    assert!(!row["reason"].as_str().unwrap().is_empty(), "{row}");

    world.browser_session(&KIM).await;
    let row = one(&home, &mut seen, "session_started").await;
    let session = row["session_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&row["object_id"], row["after"]["signed_in_at"].is_string()),
        (&json!(session), true)
    );
    let path = format!("/sessions/{session}");
    world
        .person_edits(&home.kim, Method::DELETE, &path, &json!({}))
        .await
        .ok();
    assert_eq!(one(&home, &mut seen, "session_ended").await["object_id"], session);
    let before = log(&home, "").await;
    world
        .person_edits(&home.kim, Method::DELETE, &path, &json!({}))
        .await
        .refused(404, "not_found");
    assert_eq!(log(&home, "").await, before);

    let all = log(&home, "").await;
    let (paged, pages) = world.pages_of(&home.kim, "/audit-log", "entries", 3).await;
    assert!(pages > 3 && paged == all);
    let wanted = |keep: &dyn Fn(&Value) -> bool| all.iter().filter(|row| keep(row)).cloned().collect::<Vec<_>>();
    let refused = wanted(&|row| !row["error"].is_null());
    assert!(refused.len() == 3 && log(&home, "?refused=true").await == refused);
    let kind = wanted(&|row| row["kind"] == "key_created");
    assert!(kind.len() == 2 && log(&home, "?kind=key_created").await == kind);
    let of_agent = wanted(&|row| row["agent_id"] == agent.id.to_string());
    assert!(of_agent.len() + 2 == all.len() && log(&home, &format!("?agent_id={}", agent.id)).await == of_agent);
    let (from, to) = (all[4]["at"].as_str().unwrap(), all[2]["at"].as_str().unwrap());
    assert_eq!(log(&home, &format!("?from={from}&to={to}")).await, all[3..=4]);
    let wrong = world
        .person_gets(&home.kim, "/audit-log?from=now&kind=x&refused=1")
        .await;
    assert_eq!(
        wrong.refused(400, "invalid_request")["details"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    let lee = world.person(&LEE);
    let query = format!("/audit-log?agent_id={}", agent.id);
    for path in ["/audit-log", &query] {
        assert_eq!(world.person_gets(&lee, path).await.ok()["count"], 0, "{path}");
    }
    world
        .person_edits(&home.kim, Method::DELETE, "/sessions", &json!({}))
        .await
        .ok();
    let person = all[0]["person_id"].as_str().unwrap();
    let read = world
        .operator_gets(&format!("/internal/audit-log?person_id={person}&limit=1"))
        .await
        .ok();
    assert_eq!(read["entries"][0]["kind"], "sessions_ended");
    assert!(read["next_cursor"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_actions_are_audited_with_name_and_payee() {
    let world = World::start().await;
    let log = async || {
        let read = world.operator_gets("/internal/audit-log?limit=100").await.ok();
        read["entries"].as_array().unwrap().clone()
    };
    let mut seen = log().await.len();
    let mut one = async |kind: &str| {
        let rows = log().await;
        seen += 1;
        assert_eq!((rows.len(), &rows[0]["kind"]), (seen, &json!(kind)), "{}", rows[0]);
        assert_eq!(
            (&rows[0]["operator"], &rows[0]["person_id"]),
            (&json!("local"), &Value::Null)
        );
        rows[0].clone()
    };
    let at = format!("/internal/services/{}", fresh_key());
    let mut entry = service_entry("news", &[operation_entry("news.read", "https://news.example/read")]);
    entry["operations"][0]["payment"] = payment_entry(1_000, "0x00000000000000000000000000000000000000bb");
    let put = world.operators_request(Method::PUT, &at).json(&entry);
    World::send(put).await.created();
    let row = one("catalog_edited").await;
    assert_eq!((&row["before"], &row["after"]["slug"]), (&json!({}), &json!("news")));
    world.operator_edits(Method::PUT, &at, &entry).await.ok();
    entry["operations"][0]["payment"] = payment_entry(2_000, "0x00000000000000000000000000000000000000aa");
    world.operator_edits(Method::PUT, &at, &entry).await.ok();
    let row = one("catalog_edited").await;
    assert_eq!(row["before"].as_object().unwrap().len(), 1, "{row}");
    let of = |side: &str| row[side]["payments/news.read"].clone();
    let payee = |payment: &Value| payment["pay_to"].as_str().unwrap().to_lowercase();
    // The change is delayed, so the current payment is unchanged.
    assert_eq!(
        (&of("before")["payment"], &of("before")["next"]),
        (&of("after")["payment"], &Value::Null)
    );
    assert_eq!(
        payee(&of("after")["payment"]),
        "0x00000000000000000000000000000000000000bb"
    );
    let next = &of("after")["next"];
    assert_eq!(
        (&next["payment"]["amount_units"], &next["by"]),
        (&json!(2_000), &json!("local"))
    );
    assert_eq!(payee(&next["payment"]), "0x00000000000000000000000000000000000000aa");

    world
        .operator_edits(
            Method::PUT,
            &format!("{at}/trust-status"),
            &json!({"trust_status": "disabled"}),
        )
        .await
        .ok();
    assert_eq!(
        one("trust_status_set").await["after"],
        json!({"trust_status": "disabled"})
    );
    world
        .operator_edits(Method::PUT, &format!("{at}/curated"), &json!({"curated": false}))
        .await
        .ok();
    assert_eq!(one("curated_set").await["after"], json!({"curated": false}));
    let probe = world.operators_request(Method::POST, &format!("{at}/probe"));
    assert_eq!(World::send(probe).await.status, 202);
    one("probe_requested").await;
    let demo = world.demo();
    let paid = world.authorize(&demo, &body_of(world.offer(1))).await.ok();
    let mark = format!(
        "/internal/agents/{}/settlements/{}/reconcile",
        demo.id,
        paid["settlement_id"].as_str().unwrap()
    );
    assert_eq!(
        World::send(world.operators_request(Method::POST, &mark)).await.status,
        202
    );
    let row = one("reconcile_requested").await;
    assert_eq!(
        (&row["object_id"], &row["agent_id"]),
        (&paid["settlement_id"], &json!(demo.id.to_string()))
    );

    let taken = world
        .operators_request(Method::PUT, &format!("/internal/services/{}", fresh_key()))
        .json(&entry);
    World::send(taken).await.refused(409, "slug_taken");
    let row = one("catalog_edited").await;
    assert_eq!((&row["error"], &row["after"]), (&json!("slug_taken"), &json!({})));
}
