//! Tests the commands for agents.

use crate::home::Home;
use axum::body::Body;
use axum::response::Response;
use purser_domain::SpendPolicy;
use purser_local::DEMO_OWNER;
use purser_tests::{
    LIMITED_SERVICE, Relay, Script, TestAgent, World, limited_agent, operation_entry, payment_entry, service_entry,
    texts_of_limits, units,
};
use reqwest::Method;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// The price of a weather call, in micro-USDC.
const PRICE: u64 = 10_000;

fn weather(world: &World) -> String {
    format!("{}/weather", world.stack.providers.provider_url)
}

/// Creates an agent of the demo owner that may buy weather calls under a policy.
async fn agent(world: &World, policy: SpendPolicy) -> TestAgent {
    let agent = world.agent_of(&world.person(&DEMO_OWNER), "command line").await;
    world.enable(&agent, "lab-weather", policy).await;
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pay_command_respects_the_cap_and_awaits_approval() {
    let world = World::start().await;
    let policy = SpendPolicy {
        max_per_day: units(2 * PRICE),
        ..SpendPolicy::permissive()
    };
    let agent = agent(&world, policy).await;
    let home = Home::for_agent(&world, &agent);
    let weather = weather(&world);

    // The provider's response goes to standard output, and the payment goes to standard error.
    let paid = home.run(&["pay", &weather]).await;
    assert!(
        paid.err.starts_with("Paid 0.01 USD to 0x") && paid.err.contains("confirmed"),
        "{paid:?}"
    );
    let answer = paid.json();
    let to_file = home.run(&["--json", "pay", &weather, "-o", "answer.json"]).await;
    let (told, out) = (to_file.error_json(), to_file.done());
    assert_eq!(
        (out.as_str(), &told["receipt_status"], &told["amount_units"]),
        ("", &json!("confirmed"), &json!(PRICE))
    );
    let file = std::fs::read_to_string(home.folder().join("answer.json")).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&file).unwrap()["city"],
        answer["city"]
    );
    let settlement = told["settlement_id"].as_str().unwrap();

    // A price above the cap blocks the call, and the output contains `retry_at`.
    for arguments in [vec!["pay", &weather], vec!["--json", "pay", &weather]] {
        let over = home.run(&arguments).await;
        assert_eq!((over.code, over.out.as_str()), (3, ""), "{over:?}");
        assert!(
            over.err.contains("retry_at") && over.err.contains("daily_spend_limit_exceeded"),
            "{over:?}"
        );
    }
    assert_eq!(home.run(&["check", &weather]).await.code, 3);

    // A price above the threshold requires an approval. After the approval, the same command succeeds.
    let asking = SpendPolicy {
        require_approval_above: units(PRICE - 1),
        ..SpendPolicy::permissive()
    };
    world.enable(&agent, "lab-weather", asking).await;
    let escalated = home.run(&["--json", "pay", &weather]).await;
    assert_eq!(escalated.code, 4, "{escalated:?}");
    let approval = escalated.error_json()["approval_id"].as_str().unwrap().to_owned();
    assert_eq!(home.run(&["approval", &approval]).await.code, 4, "nobody has decided");
    let approves = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let path = agent.path(&format!("/approvals/{approval}/approve"));
        let person = world.person(&DEMO_OWNER);
        world.person_edits(&person, Method::POST, &path, &json!({})).await.ok();
    };
    let waits = ["--json", "approval", &approval, "--wait", "30"];
    let (waited, ()) = tokio::join!(home.run(&waits), approves);
    assert_eq!(waited.json()["status"], "approved");
    assert_eq!(home.run(&["pay", &weather]).await.json()["city"], answer["city"]);
    assert_eq!(
        home.run(&["--json", "approval", &approval]).await.json()["status"],
        "executed"
    );
    assert_eq!(world.footprint().await.settlements, 3);

    // The commands that only read print a table, or JSON with `--json`.
    let rows = home.run(&["receipts"]).await.done();
    assert!(
        rows.starts_with("AUTHORIZED (UTC)") && rows.lines().count() == 4,
        "{rows}"
    );
    assert_eq!(
        home.run(&["--json", "receipts", "--limit", "2"]).await.json()["count"],
        2
    );
    let receipt = home.run(&["--json", "receipt", settlement]).await.json();
    assert_eq!(
        (&receipt["id"], &receipt["receipt_status"]),
        (&json!(settlement), &json!("confirmed"))
    );
    assert!(home.run(&["receipt", settlement]).await.done().contains("tx_hash"));
    assert_eq!(
        home.run(&["--json", "whoami"]).await.json()["agent_id"],
        agent.id.to_string()
    );
    assert!(home.run(&["whoami"]).await.done().contains("command line"));
    assert!(home.run(&["enabled"]).await.done().contains("lab-weather"));
    assert!(home.run(&["--json", "enabled"]).await.json()["count"].as_u64().unwrap() > 1);
    let services = home.run(&["services", "--category", "data"]).await.done();
    assert!(
        services.starts_with("SERVICE") && services.contains("lab-weather"),
        "{services}"
    );
    let found = home.run(&["--json", "search", "WEATHER"]).await.json();
    assert!(
        found["services"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["slug"] == "lab-weather"),
        "{found}"
    );
    let service = home.run(&["service", "lab-weather"]).await.done();
    assert!(
        service.contains("weather.current") && service.contains(&weather),
        "{service}"
    );
    let checked = home.run(&["--json", "check", &weather]).await;
    assert_eq!(checked.code, 4, "{checked:?}");
    assert!(!home.run(&["service", "no-such"]).await.err.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_has_its_own_exit_code() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    let home = Home::for_agent(&world, &agent);
    let weather = weather(&world);
    let nobody = Home::without_key(&world);
    let unnamed = Home::at("").with("PURSER_KEY", agent.key.clone());
    let stranger = Home::without_key(&world).with("PURSER_KEY", "gak_pub_0000:gak_sec_0000");
    for (what, home, arguments, code, says) in [
        ("no words", &home, vec!["pay"], 2, "Usage"),
        (
            "no amount",
            &home,
            vec!["pay", &weather, "--max", "cheap"],
            2,
            "decimal USD",
        ),
        ("no header", &home, vec!["pay", &weather, "-H", "x"], 1, "Name: value"),
        (
            "no file",
            &home,
            vec!["pay", &weather, "-d", "@none"],
            1,
            "can't be read",
        ),
        (
            "nobody there",
            &home,
            vec!["pay", "http://127.0.0.1:1/"],
            1,
            "did not answer",
        ),
        ("no address", &home, vec!["pay", "nowhere"], 1, "can't be sent"),
        (
            "too dear",
            &home,
            vec!["pay", &weather, "--max", "0.001"],
            3,
            "amount_exceeds_max",
        ),
        ("no Purser named", &unnamed, vec!["whoami"], 1, "set PURSER_URL"),
        ("no key", &nobody, vec!["pay", &weather], 1, "purser login"),
        (
            "another's key",
            &stranger,
            vec!["pay", &weather],
            1,
            "invalid_agent_key",
        ),
        ("the same, of a read", &stranger, vec!["whoami"], 1, "Check PURSER_KEY"),
        (
            "no such receipt",
            &home,
            vec!["receipt", "6f0f5d4c-5d0c-4d57-9d7a-0c6b7d8f3a99"],
            1,
            "not_found",
        ),
        (
            "no Purser",
            &home,
            vec!["--url", "http://127.0.0.1:1", "whoami"],
            1,
            "did not answer",
        ),
        (
            "in the clear",
            &home,
            vec!["--url", "http://purser.example", "whoami"],
            1,
            "https",
        ),
    ] {
        let said = home.run(&arguments).await;
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{what}: {said:?}");
        assert!(said.err.contains(says), "{what}: {said:?}");
    }
    assert_eq!(world.footprint().await.settlements, 0);
}

/// Returns a response to a paid call that has no settlement header.
fn silent(status: u16) -> Response {
    Response::builder().status(status).body(Body::from("{}")).unwrap()
}

/// After a failure, the same command continues the same settlement.
#[tokio::test(flavor = "multi_thread")]
async fn an_unproven_payment_warns_against_paying_again() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    let weather = weather(&world);
    let (relay, url) = Relay::start(&world, None).await;
    let home = Home::for_agent(&world, &agent).with("http_proxy", url);
    let answers: [(i32, Option<&str>, Script); 3] = [
        (0, None, |_| Some(silent(200))),
        (5, Some("provider_status"), |_| Some(silent(500))),
        (5, Some("payment_not_accepted"), |_| Some(silent(402))),
    ];
    for (number, (code, error, script)) in answers.into_iter().enumerate() {
        // Each URL is a separate purchase, because the same URL would continue the failed purchase.
        let address = format!("{weather}?number={number}");
        relay.answers.lock().unwrap().push(("silent", script));
        let told = home.run(&["--json", "pay", &address]).await;
        let json = told.error_json();
        assert_eq!(told.code, code, "{told:?}");
        assert_eq!(json["error"].as_str(), error, "{told:?}");
        assert_eq!(json["receipt_status"], "unproven", "{told:?}");
        let id = json["settlement_id"].as_str().unwrap().to_owned();
        if code == 0 {
            assert_eq!(told.out, "{}");
            continue;
        }
        // The error is also printed as text. The same command sends the same payment.
        relay.answers.lock().unwrap().push(("silent", script));
        let said = home.run(&["pay", &address]).await;
        let hint = format!("may have been taken: do not pay again. `purser receipt {id}`");
        assert!(said.code == code && said.err.contains(&hint), "{said:?}");
        let paid = home.run(&["--json", "pay", &address]).await;
        assert_eq!(
            (
                paid.code,
                &paid.error_json()["settlement_id"],
                &paid.error_json()["receipt_status"]
            ),
            (0, &json!(id), &json!("confirmed"))
        );
    }
    // The command pays, and then cannot write the response. The same command makes no second payment.
    let address = format!("{weather}?number=lost");
    let lost = home.run(&["--json", "pay", &address, "-o", "no/such/folder"]).await;
    let json = lost.error_json();
    assert_eq!((lost.code, &json["error"]), (5, &json!("answer_lost")), "{lost:?}");
    let again = home.run(&["--json", "pay", &address]).await;
    assert_eq!(again.error_json()["settlement_id"], json["settlement_id"]);
    relay.answers.lock().unwrap().push(("silent", |_| Some(silent(200))));
    let said = home.run(&["pay", &weather]).await;
    assert!(
        said.code == 0 && said.err.starts_with("Sent 0.01 USD") && said.err.contains("do not pay again"),
        "{said:?}"
    );
}

/// No policy applies to an operation outside the catalog, so the call is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn unpaid_calls_are_checked_against_the_policy() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    let home = Home::for_agent(&world, &agent);
    let free = format!("{}/free", world.stack.providers.provider_url);
    // The catalog has no provider at this host.
    let elsewhere = format!("{}/services", world.stack.base_url.replace("127.0.0.1", "localhost"));
    assert!(home.run(&["pay", &free]).await.done().contains("on the house"));
    assert!(home.run(&["check", &free]).await.done().contains("no payment"));
    world
        .put_policy(&agent, "lab-weather", false, SpendPolicy::permissive())
        .await;
    for command in ["pay", "check"] {
        let refused = home.run(&[command, &free]).await;
        assert_eq!((refused.code, refused.out.as_str()), (3, ""), "{refused:?}");
        assert!(refused.err.contains("service_not_enabled"), "{refused:?}");
        // No limit applies to a call outside the catalog.
        assert_eq!(home.run(&[command, &elsewhere]).await.code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_parallel_pay_commands_make_forty_separate_purchases() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    let home = Home::for_agent(&world, &agent);
    let url = weather(&world);
    // The commands overlap in different ways, because they take different times.
    let worker = async || {
        let mut bought = Vec::new();
        for _ in 0..10 {
            let paid = home.run(&["--json", "pay", &url]).await;
            bought.push(paid.error_json()["settlement_id"].to_string());
            assert!(paid.done().contains("Lisbon"));
        }
        bought
    };
    let (first, second, third, fourth) = tokio::join!(worker(), worker(), worker(), worker());
    let bought: std::collections::HashSet<_> = [first, second, third, fourth].concat().into_iter().collect();
    assert_eq!((bought.len(), world.footprint().await.settlements), (40, 40));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_provider_responses_are_retried_with_the_same_payment() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    world.enable(&agent, "lab-weather-v1", SpendPolicy::permissive()).await;
    let home = Home::for_agent(&world, &agent);
    let providers = &world.stack.providers;
    for (number, base) in [(1, &providers.provider_url), (2, &providers.provider_v1_url)] {
        let url = format!("{base}/weather?answers=lost&offers=vary");
        let lost = home.run(&["--json", "pay", &url]).await;
        assert_eq!(lost.code, 5, "{lost:?}");
        let again = home.run(&["--json", "pay", &url]).await;
        assert_eq!(
            again.error_json()["settlement_id"],
            lost.error_json()["settlement_id"],
            "{again:?}"
        );
        assert_eq!(again.error_json()["receipt_status"], "confirmed", "{again:?}");
        assert!(again.done().contains("Lisbon"));
        assert_eq!(world.footprint().await.settlements, number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pay_command_uses_the_newest_price_after_late_approval() {
    let world = World::start().await;
    let asking = SpendPolicy {
        require_approval_above: units(PRICE - 1),
        ..SpendPolicy::permissive()
    };
    let agent = agent(&world, asking).await;
    let home = Home::for_agent(&world, &agent);
    // The provider no longer accepts the payment requirements of the first response.
    let url = format!("{}?offers=vary", weather(&world));
    for arguments in [vec!["pay", &url], vec!["pay", &url, "--wait", "120"]] {
        let escalated = home.run(&["--json", "pay", &url]).await;
        let approval = escalated.error_json()["approval_id"].as_str().unwrap().to_owned();
        let approves = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let later = json!({"advance_seconds": 600});
            let moved = world.call(Method::POST, "/_local/clock", None, Some(&later)).await;
            moved.ok();
            let path = agent.path(&format!("/approvals/{approval}/approve"));
            let person = world.person(&DEMO_OWNER);
            world.person_edits(&person, Method::POST, &path, &json!({})).await.ok();
        };
        let paid = if arguments.contains(&"--wait") {
            tokio::join!(home.run(&arguments), approves).0
        } else {
            approves.await;
            home.run(&arguments).await
        };
        assert!(paid.err.contains("confirmed"), "{paid:?}");
        paid.done();
    }
    assert_eq!(world.footprint().await.settlements, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_option_max_over_listed_limits_how_far_prices_exceed_the_catalog() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    let home = Home::for_agent(&world, &agent);
    let weather = weather(&world);
    let service = home.run(&["--json", "service", "lab-weather"]).await.json();
    let pay_to = service["operations"][0]["payment"]["pay_to"].as_str().unwrap();
    // This service lists the same operation for a tenth of the price, and its slug sorts first.
    let mut operation = operation_entry("weather.raised", &weather);
    operation["payment"] = payment_entry(PRICE / 10, pay_to);
    operation["max_price_units"] = json!(PRICE);
    world.enter(&service_entry("a-raised-price", &[operation])).await;
    world.enable(&agent, "a-raised-price", SpendPolicy::permissive()).await;
    // The functions reload the catalog after five seconds.
    tokio::time::sleep(Duration::from_millis(5_500)).await;

    let refused = home.run(&["pay", &weather, "--max-over-listed", "899"]).await;
    assert!(
        refused.code == 3 && refused.err.contains("catalog lists 0.001"),
        "{refused:?}"
    );
    assert_eq!(world.footprint().await.settlements, 0);
    let paid = home.run(&["pay", &weather, "--max-over-listed", "900"]).await;
    assert!(
        paid.code == 0 && paid.err.contains("catalog lists 0.001 USD"),
        "{paid:?}"
    );
    let paid = home.run(&["--json", "pay", &weather]).await;
    assert_eq!(paid.error_json()["listed_amount_units"], PRICE / 10);
    assert!(home.run(&["check", &weather]).await.out.contains("catalog lists 0.001"));
}

/// The test kills the command before and after each of the four steps.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_and_repeated_pay_command_pays_once() {
    let world = World::start().await;
    let weather = weather(&world);
    // The four steps are: read the payment requirements, authorize, call with the payment, complete.
    for moment in 0..8 {
        let agent = agent(&world, SpendPolicy::permissive()).await;
        let before = world.footprint().await.settlements;
        let (relay, url) = Relay::start(&world, Some(moment)).await;
        let home = Home::for_agent(&world, &agent).with("http_proxy", url);
        let mut killed = home.command(&["pay", &weather]).spawn().unwrap();
        tokio::time::timeout(Duration::from_secs(30), relay.stopped.notified())
            .await
            .expect("it comes to it");
        killed.kill().await.unwrap();

        let (_relay, url) = Relay::start(&world, None).await;
        let home = home.with("http_proxy", url);
        let repeated = home.run(&["--json", "pay", &weather]).await;
        if moment < 5 {
            assert_eq!(
                (repeated.code, &repeated.error_json()["receipt_status"]),
                (0, &json!("confirmed")),
                "{moment}"
            );
        } else {
            // The provider accepted the payment, but the response is lost.
            assert_eq!(
                (repeated.code, &repeated.error_json()["error"]),
                (5, &json!("already_paid")),
                "{moment}"
            );
        }
        assert_eq!(world.footprint().await.settlements, before + 1, "moment {moment}");
        // The same command makes a new purchase.
        home.run(&["pay", &weather]).await.done();
        assert_eq!(world.footprint().await.settlements, before + 2, "moment {moment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_agent_key_is_readable_only_by_its_owner() {
    let world = World::start().await;
    let agent = agent(&world, SpendPolicy::permissive()).await;
    let home = Home::without_key(&world);
    let file = home.folder().join(".config/purser/agent-key");

    assert_eq!(home.run_with(&["login", "--key"], Some("no key")).await.code, 1);
    assert_eq!(
        home.run_with(&["login", "--key"], Some("gak_pub_0000:gak_sec_0000\n"))
            .await
            .code,
        1
    );
    assert!(!file.exists(), "a key that Purser does not know is not stored");
    let line = format!("{}\n", agent.key);
    let said = home.run_with(&["login", "--key"], Some(&line)).await;
    assert!(said.err.contains("command line"), "{said:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(home.run(&["whoami"]).await.done().contains(&agent.id.to_string()));

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let open = home.run(&["whoami"]).await;
    assert!(open.code == 1 && open.err.contains("chmod 600"), "{open:?}");
    home.run_with(&["login", "--key"], Some(&line)).await.done();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    home.run(&["logout"]).await.done();
    assert!(!file.exists());
    assert!(home.run(&["whoami"]).await.err.contains("purser login"));
}

/// The command shows each limit and rule as the API returns it.
#[tokio::test(flavor = "multi_thread")]
async fn the_enabled_command_shows_each_limit_of_the_agent() {
    let world = World::start().await;
    let agent = limited_agent(&world).await;
    let path = format!("/agents/{}/services/{LIMITED_SERVICE}/policy", agent.id);
    let texts = texts_of_limits(&world.get(&agent, &path).await.ok());
    let lines = Home::for_agent(&world, &agent).run(&["enabled"]).await.done();
    let missing: Vec<_> = texts.iter().filter(|text| !lines.contains(text.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}: {lines}");
    let rules = Home::for_agent(&world, &agent).run(&["--json", "enabled"]).await.json()["rules"].clone();
    assert!(texts.iter().any(|text| text == "anomaly_brake") && rules.to_string().contains("anomaly_brake"));
}
