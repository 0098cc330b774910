//! Tests signed statements: owner and agent fetch them, verify them offline, and recompute their hashes.

use super::{Household, KIM, LEE};
use aws_sdk_dynamodb::types::AttributeValue;
use purser_domain::DocumentHash;
use purser_evidence::{Note, StatementKind, VerifiedStatement};
use purser_local::{Options, Streaming};
use purser_tests::{World, body_of, dollars};
use purser_verify::{Outcome, StepName, Trust, verify_document, verify_evidence};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(55);

async fn home() -> Household {
    let options = Options {
        streams: Streaming::On,
        ..Options::default()
    };
    Household::in_world(World::still_with(options).await).await
}

impl Household {
    /// Publishes the stream records, and signs the pending statements.
    async fn state(&self) {
        assert_eq!(self.world.stack.publish_changes().await, 0);
        self.world.stack.events.sign_pending_statements(TIME).await.unwrap();
    }

    async fn statement_of(&self, transaction: &Value) -> Value {
        let path = format!("/decisions/{}/statement", transaction.as_str().unwrap());
        self.world.person_gets(&self.kim, &path).await.ok()
    }

    async fn trust(&self) -> Trust {
        let trust = self.world.call(Method::GET, "/log/trust", None, None).await.ok();
        let keys = self
            .world
            .call(Method::GET, "/.well-known/jwks.json", None, None)
            .await
            .ok();
        assert_eq!(trust["jwks"], keys);
        Trust::parse(&trust.to_string()).unwrap()
    }
}

/// Verifies a proof and returns its statement, which the response also contains.
fn verified(answer: &Value, trust: &Trust) -> VerifiedStatement {
    let report = verify_document(answer["proof"].as_str().unwrap(), trust).unwrap();
    assert!(report.is_verified(), "{:?}", report.steps());
    let statement = trust.keys.verify(answer["statement"].as_str().unwrap()).unwrap();
    assert_eq!(report.statement(), Some(&statement));
    statement
}

/// Returns the payload of a statement. Asserts that it has exactly the fields of its schema.
fn payload(statement: &VerifiedStatement) -> Value {
    let payload: Value = serde_json::from_slice(statement.payload()).unwrap();
    let schema: Value = serde_json::from_str(include_str!("../../../docs/statements.schema.json")).unwrap();
    let schemas = schema["oneOf"].as_array().unwrap();
    let own = |schema: &&Value| {
        let properties = &schema["properties"];
        let changes = properties["change"]["enum"].as_array();
        properties["statement"]["const"] == payload["statement"]
            && changes.is_none_or(|changes| changes.contains(&payload["change"]))
    };
    compare(&payload, schemas.iter().find(own).unwrap());
    payload
}

fn compare(value: &Value, schema: &Value) {
    let schema = schema["anyOf"].get(1).filter(|_| !value.is_null()).unwrap_or(schema);
    match value {
        Value::Object(members) => {
            let described = schema["properties"]
                .as_object()
                .unwrap_or_else(|| panic!("{schema}: {value}"));
            assert_eq!(members.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
            assert_eq!(schema["required"].as_array().unwrap().len(), members.len());
            for (name, value) in members {
                compare(value, &described[name]);
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| compare(entry, &schema["items"])),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_verify_and_can_be_recomputed_offline() {
    let home = home().await;
    let (world, agent) = (&home.world, &home.agent);
    home.set_policy(json!({"max_per_call_units": dollars(5)})).await;
    let paid = world.authorize(agent, &body_of(world.offer(1_000))).await.ok();
    let blocked = world.authorize(agent, &body_of(world.offer(dollars(6)))).await.body;
    let settlement = paid["settlement_id"].as_str().unwrap();
    let own = format!("/x402/settlements/{settlement}/statement");
    let of_agent = async || world.call(Method::GET, &own, Some(&agent.key), None).await.ok();
    let early = of_agent().await;
    assert_eq!((&early["decision"], &early["receipt"]), (&Value::Null, &Value::Null));
    assert_eq!(early["missing_reason"], "pending");
    let told = home.statement_of(&paid["transaction_id"]).await;
    assert_eq!(told["missing_reason"], "pending");
    home.state().await;
    let hash = world.settle(&paid).await;
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    world.complete(agent, settlement, &proof).await.ok();
    home.state().await;
    home.set_policy(json!({"max_per_call_units": dollars(9)})).await;
    home.state().await;

    let trust = home.trust().await;
    for (decision, result, reason) in [
        (&paid, "allow", "x402_authorized"),
        (&blocked, "block", "amount_exceeds_per_call_limit"),
    ] {
        let told = home.statement_of(&decision["transaction_id"]).await;
        let statement = verified(&told["statement"], &trust);
        assert_eq!(statement.kind(), Some(StatementKind::Decision));
        let payload = payload(&statement);
        assert_eq!(payload["transaction_id"], decision["transaction_id"]);
        assert_eq!(
            (&payload["result"], &payload["reason"]),
            (&json!(result), &json!(reason))
        );
        assert_eq!(payload["facts"]["agent_id"], agent.id.to_string());
        let hashed = json!({
            "transaction_id": payload["transaction_id"],
            "settlement_id": payload["settlement_id"],
            "approval_id": payload["approval_id"],
            "facts": payload["facts"],
            "result": payload["result"],
            "reason": payload["reason"],
        });
        assert_eq!(
            payload["decision_hash"],
            DocumentHash::for_document(&hashed).to_string()
        );
        assert_eq!(payload["decision_hash"], decision["decision_hash"]);
        for (document, hash) in [
            ("agent", "agent_hash"),
            ("policy", "policy_hash"),
            ("service", "service_hash"),
        ] {
            let document = &told["inputs"][document];
            assert_eq!(
                payload["inputs"][hash],
                DocumentHash::for_document(document).to_string(),
                "{document}"
            );
        }
        assert_eq!(told["inputs"]["policy"]["max_per_call_units"], dollars(5));
        let path = format!("/decisions/{}/statement", decision["transaction_id"].as_str().unwrap());
        let lee = world.person(&LEE);
        world.person_gets(&lee, &path).await.refused(404, "not_found");
    }
    let told = of_agent().await;
    let decision = home.statement_of(&paid["transaction_id"]).await;
    assert_eq!(told["decision"], decision["statement"]);
    for found in [&told, &decision] {
        assert_eq!(
            (&found["missing_reason"], &found["differing"]),
            (&Value::Null, &json!([]))
        );
    }
    let receipt = payload(&verified(&told["receipt"], &trust));
    assert_eq!(receipt["settlement"]["tx_hash"], hash);
    assert_eq!(receipt["settlement"]["amount_units"], 1_000);
    assert_eq!(receipt["settlement"]["pay_to"], world.stack.providers.pay_to);
    let other = world.agent_of(&home.kim, "another").await;
    world
        .call(Method::GET, &own, Some(&other.key), None)
        .await
        .refused(404, "not_found");
    for decision in [&paid, &blocked] {
        let id = decision["transaction_id"].as_str().unwrap();
        let path = format!("/x402/decisions/{id}/statement");
        let read = world.call(Method::GET, &path, Some(&agent.key), None).await.ok();
        assert_eq!(
            read["decision"],
            home.statement_of(&decision["transaction_id"]).await["statement"]
        );
        assert_eq!(read["transaction_id"], decision["transaction_id"]);
        assert_eq!(read["settlement_id"], decision["settlement_id"]);
        for key in [Some(&other.key), None] {
            let status = if key.is_some() {
                (404, "not_found")
            } else {
                (401, "invalid_agent_key")
            };
            let key = key.map(String::as_str);
            world
                .call(Method::GET, &path, key, None)
                .await
                .refused(status.0, status.1);
        }
    }
    let indexes = [
        &told["decision"],
        &told["receipt"],
        &home.statement_of(&blocked["transaction_id"]).await["statement"],
    ];
    let mut indexes: Vec<u64> = indexes.iter().map(|found| found["index"].as_u64().unwrap()).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2]);

    // Only the owner can download the statement from the decision's page.
    let browser = world.browser_session(&KIM).await;
    let file = |session: &str| {
        let path = format!(
            "/dashboard/decisions/{}/{}/evidence.json",
            agent.id,
            paid["transaction_id"].as_str().unwrap()
        );
        world
            .http
            .get(format!("{}{path}", world.stack.base_url))
            .header("cookie", session.to_owned())
    };
    let evidence = World::send(file(&browser)).await.ok();
    assert_eq!(evidence["decision"], told["decision"]);
    assert_eq!(evidence["receipt"], told["receipt"]);
    assert_eq!(evidence["inputs"], decision["inputs"]);
    let report = verify_evidence(&evidence.to_string(), &trust).unwrap();
    assert!(report.is_verified(), "{:?}", report.steps());
    let hashes = report.steps().iter().find(|step| step.step.step == StepName::Hashes);
    assert!(matches!(&hashes.unwrap().step.outcome, Outcome::Passed(found) if found.contains("policy")));
    assert!(report.receipt_statement().is_some());
    let other = world.browser_session(&LEE).await;
    let refused = file(&other).send().await.unwrap();
    assert_eq!(refused.status(), 404);

    // The daily check reads the rows of each statement, as the role of `events` permits.
    world.set_clock(world.now().after(purser_domain::Duration::from_secs_u32(25 * 3_600)));
    home.state().await;

    // The row of the settlement is changed, and both routes report it.
    let update = world.stack.db.update_item().table_name("LedgerTable");
    let update = update.key("pk", AttributeValue::S(format!("S#{}", agent.id)));
    let update = update.key("sk", AttributeValue::S(settlement.to_owned()));
    let update = update.update_expression("SET amt = amt + :one");
    let update = update.expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    update.send().await.unwrap();
    let path = format!("/decisions/{}/statement", paid["transaction_id"].as_str().unwrap());
    // The first session has expired.
    let decision = world.person_gets(&world.person(&KIM), &path).await.ok();
    for found in [of_agent().await, decision] {
        assert_eq!(found["differing"], json!(["decision", "receipt"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_about_the_largest_authorize_request_has_a_statement() {
    const BASE: &str = "https://provider.example/x?q=";
    let home = home().await;
    let (world, agent) = (&home.world, &home.agent);
    let mut decisions = Vec::new();
    for character in ['a', '\'', '"', 'é', '€', '💸'] {
        let encoded = |text: &str| purser_domain::Url::parse(text).unwrap().as_str().len();
        let each = encoded(&format!("{BASE}{character}")) - BASE.len();
        let longest = (8_192 - BASE.len()) / each;
        let text = |count| character.to_string().repeat(count);
        let body = |count| {
            let mut body = body_of(world.offer(1_000));
            let url = format!("{BASE}{}", text(count));
            body["max_payment_units"] = json!(1);
            body["original_request"] = json!({"method": "POST", "url": url, "body_hash": text(255)});
            body["metadata"] = json!({"target_url": url});
            body
        };
        let rejected = world.authorize(agent, &body(longest)).await.body;
        assert!(rejected["decision_hash"].is_string(), "{character}: {rejected}");
        decisions.push(rejected);
        let rejected = world.authorize(agent, &body(longest + 1)).await.body;
        assert_eq!(rejected["error"], "invalid_request", "{character}: {rejected}");
    }
    decisions.push(world.authorize(agent, &body_of(world.offer(1_000))).await.ok());
    home.state().await;
    let trust = home.trust().await;
    for decision in decisions {
        let told = home.statement_of(&decision["transaction_id"]).await;
        let payload = payload(&verified(&told["statement"], &trust));
        assert_eq!(payload["decision_hash"], decision["decision_hash"]);
    }
}

/// If no version of a record is stored, the statement uses the current row. A default policy has no row.
#[tokio::test(flavor = "multi_thread")]
async fn statements_use_current_records_if_no_version_is_stored() {
    let home = Household::in_world(World::still().await).await;
    let world = &home.world;
    let mut body = body_of(world.offer(dollars(2)));
    body["max_payment_units"] = json!(1);
    let blocked = world.authorize(&home.agent, &body).await.body;
    assert_eq!(blocked["error"], "amount_exceeds_max", "{blocked}");
    home.state().await;
    let told = home.statement_of(&blocked["transaction_id"]).await;
    let inputs = &payload(&verified(&told["statement"], &home.trust().await))["inputs"];
    assert_eq!(inputs["policy_version"], 1);
    let policy = &told["inputs"]["policy"];
    assert_eq!(inputs["policy_hash"], DocumentHash::for_document(policy).to_string());
}

/// The paths are those of c2sp.org/tlog-tiles.
#[tokio::test(flavor = "multi_thread")]
async fn hash_tiles_are_public_and_log_entries_are_not() {
    let home = Household::in_world(World::still().await).await;
    let world = &home.world;
    let mut body = body_of(world.offer(dollars(2)));
    body["max_payment_units"] = json!(1);
    world.authorize(&home.agent, &body).await;
    home.state().await;
    let read = async |path: &str| {
        let address = format!("{}{path}", world.stack.base_url);
        world.http.get(address).send().await.unwrap()
    };
    let checkpoint = read("/log/checkpoint").await.text().await.unwrap();
    let checkpoint = Note::parse(&checkpoint).unwrap();
    let checkpoint = home.trust().await.policy.open_checkpoint(&checkpoint).unwrap();
    assert_eq!(checkpoint.tree_head().size, 1);
    let tile = read("/log/tile/0/000.p/1").await;
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("cache-control", "public, max-age=60"),
        ("access-control-allow-origin", "*"),
    ] {
        assert_eq!(tile.headers()[name], value);
    }
    // The only hash of the tile is the root of the log.
    assert_eq!(tile.bytes().await.unwrap(), checkpoint.tree_head().root.as_bytes()[..]);
    for private in [
        "entries/000.p/1",
        "0/000",
        "0/000.p/2",
        "0/0",
        "../trust.json",
        "8/000",
        "0/000.p/1/",
    ] {
        let response = read(&format!("/log/tile/{private}")).await;
        assert_eq!(response.status(), 404, "{private}");
    }
    for path in ["/log/checkpoint", "/log/trust", "/.well-known/jwks.json"] {
        assert_eq!(read(path).await.headers()["access-control-allow-origin"], "*", "{path}");
    }
    let others = read("/services").await;
    assert!(others.headers().get("access-control-allow-origin").is_none());
}

/// If `SAMPLE` names a folder, the evidence files are written there (`tests/evidence/run.sh --publish`).
#[tokio::test(flavor = "multi_thread")]
async fn evidence_of_each_result_verifies_with_its_checks_and_inputs() {
    let home = home().await;
    let (world, agent) = (&home.world, &home.agent);
    home.set_policy(json!({"max_per_call_units": dollars(5), "require_approval_above_units": dollars(3)}))
        .await;
    let paid = world.authorize(agent, &body_of(world.offer(1_000))).await.ok();
    let hash = world.settle(&paid).await;
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    let settlement = paid["settlement_id"].as_str().unwrap();
    world.complete(agent, settlement, &proof).await.ok();
    let body = body_of(world.offer(dollars(4)));
    let escalated = world.authorize(agent, &body).await.body;
    let repeated = world.authorize(agent, &body).await.body;
    assert_eq!(repeated["decision_hash"], escalated["decision_hash"]);
    let approval = escalated["approval_id"].as_str().unwrap();
    let path = format!("/approvals/{approval}/approve");
    home.edit(Method::POST, &path, json!({})).await.ok();
    let blocked = world.authorize(agent, &body_of(world.offer(dollars(6)))).await.body;
    home.state().await;
    let trust = world.call(Method::GET, "/log/trust", None, None).await.ok();
    let parsed = Trust::parse(&trust.to_string()).unwrap();
    let mut files = vec![("trust.json", trust.clone()), ("jwks.json", trust["jwks"].clone())];
    let browser = world.browser_session(&KIM).await;
    for (name, result, decision) in [
        ("receipt.json", "allow", &paid),
        ("block.json", "block", &blocked),
        ("escalation.json", "escalate", &escalated),
    ] {
        let id = decision["transaction_id"].as_str().unwrap();
        let path = format!("/dashboard/decisions/{}/{id}/evidence.json", agent.id);
        let address = format!("{}{path}", world.stack.base_url);
        let evidence = World::send(world.http.get(address).header("cookie", &browser))
            .await
            .ok();
        let report = verify_evidence(&evidence.to_string(), &parsed).unwrap();
        assert!(report.is_verified(), "{name}: {:?}", report.steps());
        assert_eq!(report.unverified_pointers(), ["/how_to_check"], "{name}");
        assert_eq!(report.receipt_statement().is_some(), result == "allow");
        let stated = payload(report.decision_statement().unwrap());
        assert_eq!(stated["result"], result);
        assert_eq!(stated["decision_hash"], decision["decision_hash"]);
        assert!(
            stated["facts"]["checks"]
                .as_array()
                .is_some_and(|checks| checks.len() > 3)
        );
        for document in ["agent", "policy", "service"] {
            assert!(evidence["inputs"][document].is_object(), "{name}: {document}");
        }
        let changes = evidence["changes"].as_array().unwrap();
        assert_eq!(changes.len(), usize::from(result == "escalate"), "{name}");
        for change in changes {
            let stated = payload(&verified(change, &parsed));
            assert_eq!(stated["change"], "approval");
            assert_eq!(stated["approval"]["approval_id"], approval);
            assert_eq!(stated["changed_decision"]["decision_hash"], decision["decision_hash"]);
        }
        files.push((name, evidence));
    }
    if let Some(folder) = std::env::var_os("SAMPLE") {
        let folder = std::path::PathBuf::from(folder);
        let of_receipt = files[2].1["receipt"].clone();
        let checkpoint = of_receipt["proof"].as_str().unwrap().split_once("\n\n").unwrap().1;
        for (name, text) in [
            ("statement.jws", of_receipt["statement"].as_str().unwrap()),
            ("proof.txt", of_receipt["proof"].as_str().unwrap()),
            ("checkpoint", checkpoint),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        for (name, file) in files {
            std::fs::write(folder.join(name), serde_json::to_string_pretty(&file).unwrap() + "\n").unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_statements_name_the_decision_that_required_approval() {
    let home = home().await;
    let (world, agent) = (&home.world, &home.agent);
    home.set_policy(json!({"max_per_call_units": dollars(5), "require_approval_above_units": 1}))
        .await;
    let escalated = world.authorize(agent, &body_of(world.offer(1_000))).await.body;
    let (id, approval) = (&escalated["transaction_id"], escalated["approval_id"].as_str().unwrap());
    let path = format!("/approvals/{approval}/approve");
    home.edit(Method::POST, &path, json!({})).await.ok();
    home.state().await;
    let trust = home.trust().await;
    let path = format!("/x402/decisions/{}/statement", id.as_str().unwrap());
    let read = world.call(Method::GET, &path, Some(&agent.key), None).await.ok();
    let changes = read["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(home.statement_of(id).await["changes"], read["changes"]);
    let stated = payload(&verified(&changes[0], &trust));
    assert_eq!(stated["change"], "approval");
    assert_eq!(stated["approval"]["approval_id"], approval);
    assert_eq!(stated["changed_decision"]["decision_hash"], escalated["decision_hash"]);
    let file = json!({"transaction_id": id, "decision": read["decision"], "receipt": null, "changes": changes});
    let report = verify_evidence(&file.to_string(), &trust).unwrap();
    assert!(report.is_verified(), "{:?}", report.steps());
    assert_eq!(report.unverified_pointers(), [""; 0]);

    // The daily check reads the approval, as the role of `events` permits.
    world.set_clock(world.now().after(purser_domain::Duration::from_secs_u32(25 * 3_600)));
    home.state().await;
}
