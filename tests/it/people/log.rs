//! Tests the lists of decisions and settlements.

use super::{Household, KIM, NOTHING, carrying};
use purser_domain::Amount;
use purser_tests::{TestAgent, World, body_of, dollars, fresh_key, paths};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

impl Household {
    async fn log(&self, query: &str) -> Vec<Value> {
        let log = self
            .world
            .person_gets(&self.kim, &format!("/decisions?{query}"))
            .await
            .ok();
        assert_eq!(log["count"], log["decisions"].as_array().unwrap().len());
        log["decisions"].as_array().unwrap().clone()
    }

    async fn decision(&self, transaction: &Value) -> Value {
        self.read(&format!("/decisions/{}", transaction.as_str().unwrap()))
            .await
    }
}

/// Returns a decision as in a list, without its call and its checks.
fn listed(mut decision: Value) -> Value {
    let members = decision.as_object_mut().unwrap();
    assert!(members.remove("call").is_some() && members.remove("checks").is_some());
    decision
}

fn each<'a>(rows: &'a [Value], name: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[name].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_logged_with_checks_and_amounts() {
    let home = Household::in_world(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let policy = json!({
        "max_per_call_units": dollars(50),
        "max_per_day_units": dollars(20),
        "require_approval_above_units": dollars(5),
    });
    home.set_policy(policy).await;
    let service = world.service("lab-search").await;
    let common = |result: &str, reason: &str, units: u64| {
        json!({
            "agent_id": agent.id.to_string(),
            "agent_name": "errand runner",
            "labels": {},
            "key_id": agent.key_id(),
            "service_id": service.id.to_string(),
            "service_slug": "lab-search",
            "service_name": service.name,
            "operation_id": "test.anything",
            "amount_units": units,
            "pay_to": world.stack.providers.pay_to,
            "call": {
                "method": "GET",
                "url": "https://provider.example/x",
                "body_hash": null,
                "target_url": null,
                "metadata": {},
                "catalog_price_units": 5_000,
                "catalog_max_price_units": Amount::MAX.units(),
            },
            "decided_at": world.now().to_string(),
            "result": result,
            "reason": reason,
            "error": null,
            "rule_triggered": null,
            "hostname": null,
            "policy_version": 2,
            "approval_id": null,
            "settlement_id": null,
            "receipt_status": null,
            "latency_ms": null,
        })
    };
    let with = |mut common: Value, members: Value| {
        for (name, value) in members.as_object().unwrap() {
            common[name] = value.clone();
        }
        common
    };
    let number = |checks: &Value, name: &str| {
        let check = checks
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["name"] == name)
            .unwrap()
            .clone();
        (
            check["outcome"].clone(),
            check["limit"].clone(),
            check["used"].clone(),
            check["remaining"].clone(),
        )
    };

    // The stored checks are those that the preflight predicted.
    let body = body_of(world.offer(dollars(4)));
    let foreseen = world.check(agent, &body).await.ok();
    let paid = world.authorize(agent, &body).await.ok();
    let allow = home.decision(&paid["transaction_id"]).await;
    let expected = with(
        common("allow", "x402_authorized", dollars(4)),
        json!({
            "transaction_id": paid["transaction_id"],
            "settlement_id": paid["settlement_id"],
            "receipt_status": "authorized",
            "checks": foreseen["checks"],
        }),
    );
    assert_eq!(allow, expected);
    let day = (json!("passed"), json!(dollars(20)), json!(0), json!(dollars(20)));
    assert_eq!(number(&allow["checks"], "max_per_day_units"), day);

    // The stored checks are those in the response.
    world.pass(1);
    let refused = world.authorize(agent, &body_of(world.offer(dollars(17)))).await;
    let refused = refused.refused(402, "daily_spend_limit_exceeded");
    let block = home.decision(&refused["transaction_id"]).await;
    let expected = with(
        common("block", "daily_spend_limit_exceeded", dollars(17)),
        json!({
            "transaction_id": refused["transaction_id"],
            "error": "daily_spend_limit_exceeded",
            "rule_triggered": "max_per_day_units",
            "latency_ms": 0,
            "checks": refused["decision"]["checks"],
        }),
    );
    assert_eq!(block, expected);
    let day = (
        json!("failed"),
        json!(dollars(20)),
        json!(dollars(4)),
        json!(dollars(16)),
    );
    assert_eq!(number(&block["checks"], "max_per_day_units"), day);

    world.pass(1);
    let body = body_of(world.offer(dollars(6)));
    let asked = world.authorize(agent, &body).await.refused(402, "approval_required");
    let escalation = home.decision(&asked["transaction_id"]).await;
    let expected = with(
        common("escalate", "approval_required", dollars(6)),
        json!({
            "transaction_id": asked["transaction_id"],
            "error": "approval_required",
            "rule_triggered": "require_approval_above_units",
            "approval_id": asked["approval_id"],
            "latency_ms": 0,
            "checks": asked["decision"]["checks"],
        }),
    );
    assert_eq!(escalation, expected);

    world.pass(1);
    let below = format!("/approvals/{}/approve", asked["approval_id"].as_str().unwrap());
    home.edit(Method::POST, &below, json!({})).await.ok();
    let executed = world
        .authorize(agent, &carrying(&body, &asked["approval_id"]))
        .await
        .ok();
    let lifted = home.decision(&executed["transaction_id"]).await;
    assert_eq!(
        (&lifted["approval_id"], &lifted["result"]),
        (&asked["approval_id"], &json!("allow"))
    );
    let approval = (json!("lifted"), json!(dollars(5)), Value::Null, Value::Null);
    assert_eq!(number(&lifted["checks"], "approval"), approval);

    world.pass(1);
    let rule = json!({"kind": "category_block", "categories": ["search"]});
    home.edit(Method::POST, "/rules", rule).await.created();
    let blocked = world
        .authorize(agent, &body_of(world.offer(1)))
        .await
        .refused(403, "policy_blocked");
    let told = home.decision(&blocked["transaction_id"]).await;
    assert_eq!(
        (&told["error"], &told["reason"]),
        (&json!("policy_blocked"), &json!("category_block:search"))
    );
    assert_eq!(
        (&told["rule_triggered"], &told["result"]),
        (&json!("category_block"), &json!("block"))
    );

    // The preflight and the replay are no decisions.
    world
        .authorize(agent, &carrying(&body, &asked["approval_id"]))
        .await
        .refused(409, "idempotent_replay");
    let whole = [told, lifted, escalation, block, allow].map(listed);
    assert_eq!(home.log("").await, whole);
    for (query, expected) in [
        ("result=allow", vec![&whole[1], &whole[4]]),
        ("result=block", vec![&whole[0], &whole[3]]),
        ("result=escalate", vec![&whole[2]]),
        ("service_id=lab-search&result=block", vec![&whole[0], &whole[3]]),
        ("service_id=lab-weather", vec![]),
        (&format!("service_id={}", service.id), whole.iter().collect()),
    ] {
        assert_eq!(home.log(query).await.iter().collect::<Vec<_>>(), expected, "{query}");
    }
}

/// Makes many decisions of two agents for two services, some at the same time. Returns their ids.
async fn busy(
    home: &Household,
    sibling: &TestAgent,
) -> BTreeMap<(&'static str, &'static str, &'static str), BTreeSet<String>> {
    let world = &home.world;
    let asking = json!({"require_approval_above_units": dollars(5), "max_per_call_units": dollars(9)});
    for agent in [&home.agent, sibling] {
        for service in ["lab-search", "lab-weather"] {
            let path = agent.path(&format!("/services/{service}"));
            world.person_edits(&home.kim, Method::PATCH, &path, &asking).await.ok();
        }
    }
    let mut made: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for round in 0..3_u64 {
        for (whose, agent) in [("own", &home.agent), ("sibling", sibling)] {
            for service in ["lab-search", "lab-weather"] {
                for (result, price) in [("allow", 1), ("block", 10), ("escalate", 6 + round)] {
                    let mut body = body_of(world.offer(dollars(price)));
                    body["service_id"] = json!(service);
                    let answer = world.authorize(agent, &body).await;
                    let transaction = answer.body["transaction_id"].as_str().unwrap().to_owned();
                    made.entry((whose, service, result)).or_default().insert(transaction);
                }
            }
        }
        world.pass(1);
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_can_be_filtered_and_paged() {
    let home = Household::in_world(World::still().await).await;
    let (world, kim) = (&home.world, &home.kim);
    let sibling = world.agent_of(kim, "sibling").await;
    let made = busy(&home, &sibling).await;
    let all = made.values().map(BTreeSet::len).sum::<usize>();
    assert_eq!(all, 36);
    let (whole, pages) = world.pages_of(kim, "/decisions", "decisions", 100).await;
    assert_eq!((whole.len(), pages), (all, 1));
    assert!(each(&whole, "decided_at").is_sorted_by(|a, b| a >= b), "newest first");

    let agents = [("own", &home.agent), ("sibling", &sibling)].map(|(name, agent)| (name, agent.id.to_string()));
    let mut filters = Vec::new();
    for (whose, agent) in [None, Some(&agents[0]), Some(&agents[1])].map(|agent| agent.cloned().unzip()) {
        for service in [None, Some("lab-search"), Some("lab-weather")] {
            for result in [None, Some("allow"), Some("block"), Some("escalate")] {
                filters.push((whose, agent.clone(), service, result));
            }
        }
    }
    for (whose, agent, service, result) in filters {
        let of = |wanted: Option<&str>, is: &str| wanted.is_none_or(|wanted| wanted == is);
        let wanted = made
            .iter()
            .filter(|((a, s, r), _)| of(whose, a) && of(service, s) && of(result, r));
        let wanted: BTreeSet<&str> = wanted.flat_map(|(_, ids)| ids).map(String::as_str).collect();
        let parameters = [
            ("agent_id", agent.as_deref()),
            ("service_id", service),
            ("result", result),
        ];
        let query: Vec<String> = parameters
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", (*value)?)))
            .collect();
        let path = format!("/decisions?{}", query.join("&"));
        for limit in [5, 100] {
            let (found, pages) = world.pages_of(kim, &path, "decisions", limit).await;
            let ids = each(&found, "transaction_id");
            assert_eq!(
                (ids.iter().copied().collect::<BTreeSet<_>>(), ids.len()),
                (wanted.clone(), wanted.len()),
                "{path}"
            );
            assert!(each(&found, "decided_at").is_sorted_by(|a, b| a >= b), "{path}");
            let least = wanted.len().div_ceil(limit);
            assert!(pages >= least && pages <= least + 1, "{path}: {pages} pages of {limit}");
        }
    }
    // `from` and `to` also apply with other filters.
    let (from, to) = (&whole[24]["decided_at"], &whole[12]["decided_at"]);
    let (from, to) = (from.as_str().unwrap(), to.as_str().unwrap());
    assert!(from < to);
    for result in ["", "&result=block"] {
        let path = format!("/decisions?from={from}&to={to}{result}");
        let (found, _) = world.pages_of(kim, &path, "decisions", 5).await;
        let within = whole.iter().filter(|row| {
            let at = row["decided_at"].as_str().unwrap();
            from <= at && at < to && (result.is_empty() || row["result"] == "block")
        });
        let within: Vec<Value> = within.cloned().collect();
        assert!(!within.is_empty() && found == within, "{path}");
    }
    for row in whole.iter().step_by(5) {
        let of = |agent: &str| format!("/agents/{agent}/decisions/{}", row["transaction_id"].as_str().unwrap());
        let own = row["agent_id"].as_str().unwrap();
        let read = world.person_gets(kim, &of(own)).await.ok();
        for (name, value) in row.as_object().unwrap() {
            assert_eq!(read[name], *value, "{name}");
        }
        let other = agents.iter().find(|(_, id)| id != own).unwrap();
        world.person_gets(kim, &of(&other.1)).await.refused(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_are_shown_from_authorization_to_receipt() {
    let home = Household::in_world(World::start().await).await;
    let (world, kim, agent) = (&home.world, &home.kim, &home.agent);
    let sibling = world.agent_of(kim, "sibling").await;
    let mut settlements = Vec::new();
    for n in 1..=6 {
        let payer = if n % 3 == 0 { &sibling } else { agent };
        settlements.push(world.authorize(payer, &body_of(world.offer(n * 1_000))).await.ok());
    }
    let hash = world.settle(&settlements[0]).await;
    let id = settlements[0]["settlement_id"].as_str().unwrap();
    let proof = json!({"payment_response_header": "e30=", "tx_hash": hash});
    let receipt = world.complete(agent, id, &proof).await.ok();

    let told = home.read(&format!("/settlements/{id}")).await;
    let expected = json!({
        "id": id,
        "transaction_id": settlements[0]["transaction_id"],
        "agent_id": agent.id.to_string(),
        "labels": {},
        "key_id": agent.key_id(),
        "service_id": world.service("lab-search").await.id.to_string(),
        "kind": "purchase",
        "operation_id": "test.anything",
        "network": "base-sepolia",
        "token": "USDC",
        "amount_units": 1_000,
        "pay_to": world.stack.providers.pay_to,
        "wallet_address": agent.wallet,
        "receipt_status": "confirmed",
        "tx_hash": hash,
        "authorized_at": receipt["authorized_at"],
        "expires_at": settlements[0]["expires_at"],
        "settled_at": receipt["settled_at"],
        "approval_id": null,
        "policy_version": 1,
    });
    assert_eq!(told, expected);
    assert!(told["settled_at"].is_string() && told["authorized_at"].is_string());
    let decision = home.decision(&settlements[0]["transaction_id"]).await;
    assert_eq!(decision["receipt_status"], "confirmed");

    let ids: Vec<&str> = settlements
        .iter()
        .rev()
        .map(|paid| paid["settlement_id"].as_str().unwrap())
        .collect();
    for limit in [1, 2, 6, 100] {
        let (found, pages) = world.pages_of(kim, "/settlements", "settlements", limit).await;
        assert_eq!(
            (each(&found, "id"), pages),
            (ids.clone(), 6_usize.div_ceil(limit)),
            "newest first, {limit} a page"
        );
        assert_eq!(found[5], told);
    }
    let own = [ids[1], ids[2], ids[4], ids[5]];
    for (query, expected) in [
        (format!("agent_id={}", agent.id), own.to_vec()),
        (format!("agent_id={}", sibling.id), vec![ids[0], ids[3]]),
        ("status=confirmed".to_owned(), vec![id]),
        ("status=authorized".to_owned(), ids[..5].to_vec()),
        ("status=expired".to_owned(), vec![]),
        (format!("agent_id={}&status=authorized", agent.id), own[..3].to_vec()),
    ] {
        let (found, _) = world
            .pages_of(kim, &format!("/settlements?{query}"), "settlements", 2)
            .await;
        assert_eq!(each(&found, "id"), expected, "{query}");
    }
    let authorized = |n: usize| settlements[n]["authorized_at"].as_str();
    let (from, to) = (authorized(1).unwrap(), authorized(4).unwrap());
    for (query, expected) in [
        (format!("from={from}"), ids[..5].to_vec()),
        (format!("to={to}"), ids[2..].to_vec()),
        (format!("from={from}&to={to}"), ids[2..5].to_vec()),
        (format!("from={from}&to={to}&agent_id={}", sibling.id), vec![ids[3]]),
    ] {
        let (found, _) = world
            .pages_of(kim, &format!("/settlements?{query}"), "settlements", 2)
            .await;
        assert_eq!(each(&found, "id"), expected, "{query}");
    }
    let reversed = format!("/settlements?from={to}&to={from}");
    let refused = world.person_gets(kim, &reversed).await;
    assert_eq!(refused.refused(400, "invalid_request")["details"][0]["path"], "/to");
    let elsewhere = sibling.path(&format!("/settlements/{id}"));
    world.person_gets(kim, &elsewhere).await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_list_parameters_are_reported_by_name() {
    let home = Household::in_world(World::start().await).await;
    let (world, kim) = (&home.world, &home.kim);
    let before = world.rows().await;
    for (path, query, wrong) in [
        (
            "/decisions",
            "agent_id=x&cursor=x&limit=101&result=allowed",
            vec!["/agent_id", "/cursor", "/limit", "/result"],
        ),
        ("/decisions", "result=allow&result=block", vec!["/result"]),
        ("/decisions", "limit=0", vec!["/limit"]),
        (
            "/decisions",
            "cursor=018f2f6e-0c00-7000-8000-000000000001",
            vec!["/cursor"],
        ),
        (
            "/settlements",
            "agent_id=&cursor=&limit=&status=",
            vec!["/agent_id", "/cursor", "/limit", "/status"],
        ),
        ("/settlements", "status=pending", vec!["/status"]),
        ("/settlements", "from=now&to=2026-02-30", vec!["/from", "/to"]),
        ("/decisions", "from=&to=1", vec!["/from", "/to"]),
        ("/settlements", "limit=-1&limit=1", vec!["/limit"]),
    ] {
        assert_eq!(
            paths(world.person_gets(kim, &format!("{path}?{query}")).await, query),
            wrong
        );
    }
    for path in ["/decisions", "/settlements", "/approvals"] {
        let unknown = format!("{path}?agent_id={}", fresh_key());
        world.person_gets(kim, &unknown).await.refused(404, "not_found");
    }
    let unknown = "/decisions?service_id=no-such-service";
    world.person_gets(kim, unknown).await.refused(404, "service_not_found");
    // A service that the catalog no longer contains is found by its id.
    let left = format!("/decisions?service_id={}", fresh_key());
    assert_eq!(world.person_gets(kim, &left).await.ok()["count"], 0);
    assert_eq!(world.rows().await.changes_since(&before), NOTHING);
}

/// A response has a maximum size, so an export has several files. Each settlement is in exactly one.
#[tokio::test(flavor = "multi_thread")]
async fn full_csv_exports_link_to_the_next_file() {
    const AGENTS: usize = 2;
    const EACH: usize = 6_000;
    let home = Household::in_world(World::start().await).await;
    let (world, agent) = (&home.world, &home.agent);
    world.authorize(agent, &body_of(world.offer(1))).await.ok();
    world.add_fleet(agent, AGENTS, EACH).await;
    let cookie = world.browser_session(&KIM).await;
    let mut next = Some("/dashboard/settlements.csv".to_owned());
    let (mut seen, mut files) = (BTreeSet::new(), 0);
    while let Some(path) = next.take() {
        let file = world.http.get(format!("{}{path}", world.stack.base_url));
        let file = file.header("cookie", &cookie).send().await.unwrap();
        let text = file.error_for_status().unwrap().text().await.unwrap();
        assert!(text.len() < 5_000_000, "{}", text.len());
        for line in text.lines().skip(1) {
            match line.strip_prefix("next: ") {
                Some(address) => next = Some(address.to_owned()),
                None => assert!(seen.insert(line.split(',').nth(1).unwrap().to_owned()), "{line}"),
            }
        }
        files += 1;
    }
    assert_eq!((seen.len(), files), (AGENTS * EACH + 1, 2));
}

/// For two minutes after a late batch, a list contains the time up to which it is complete.
#[tokio::test(flavor = "multi_thread")]
async fn lists_report_when_the_decision_history_is_behind() {
    let home = Household::in_world(World::still().await).await;
    let (world, kim) = (&home.world, &home.kim);
    let complete = async || world.person_gets(kim, "/decisions").await.ok()["complete_until"].clone();
    assert_eq!(complete().await, Value::Null);
    let written = world.now().secs() - 60;
    let row = json!({"pk": {"S": "L#a-window"}, "sk": {"S": "#W"}});
    let record = json!({
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:000000000000:table/LedgerTable/stream/2026-11-21T00:00:00.000",
        "dynamodb": {"ApproximateCreationDateTime": written, "SequenceNumber": "1", "NewImage": row},
    });
    let late = json!({"shardId": "shardId-1", "Records": [record]});
    world.stack.history.handle_event(&late).await.unwrap();
    let since = purser_domain::Timestamp::from_secs(written).unwrap().to_string();
    assert_eq!(complete().await, since);
    world.pass(121);
    assert_eq!(complete().await, Value::Null);
}
