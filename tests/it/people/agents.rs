//! Tests creating, listing and renaming agents. `edits.rs` tests the effects of a freeze.

use super::{Household, KIM, LEE, NOTHING};
use purser_chain::is_attested;
use purser_domain::{AgentId, Duration};
use purser_tests::{World, body_of, dollars, together};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The caps of a permissive policy, in micro-USDC (`docs/spec.md` §2.6).
const NO_LIMIT: u64 = 10_000_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn new_agents_get_a_wallet_and_curated_services() {
    let world = World::still().await;
    let kim = world.person(&KIM);
    let nobody = json!({"agents": [], "count": 0, "next_cursor": null});
    assert_eq!(world.person_gets(&kim, "/agents").await.ok(), nobody);
    let curated = world.operator_gets("/internal/services").await.ok();
    let curated = curated["services"].as_array().unwrap().clone();
    let search = world.service("lab-search").await.id;
    let uncurated = format!("/internal/services/{search}/curated");
    world
        .operator_edits(Method::PUT, &uncurated, &json!({"curated": false}))
        .await
        .ok();
    // Every function has loaded the changed catalog.
    world.pass(6);

    let make = async |name: &str| {
        let request = world.persons_request(&kim, Method::POST, "/agents");
        World::send(request.json(&json!({"name": name}))).await
    };
    let made = make("  Errand runner ").await;
    assert_eq!(made.etag(), "\"1\"");
    let made = made.created();
    let id = AgentId::parse(made["agent_id"].as_str().unwrap()).unwrap();
    let wallet = world.stack.ledger.read_agent_by_id(id).await.unwrap().unwrap().wallet;
    assert!(is_attested(&wallet.attestation, id, wallet.address));
    let expected = json!({
        "agent_id": made["agent_id"],
        "name": "Errand runner",
        "status": "active",
        "archived": false,
        "labels": {},
        "max_raise_factor": 10,
        "wallet_address": wallet.address.to_string(),
        "frozen_by_operators": null,
        "template": null,
        "created_at": world.now().to_string(),
        "version": 1,
    });
    assert_eq!(made, expected);
    let path = |below: &str| format!("/agents/{}{below}", made["agent_id"].as_str().unwrap());
    let read = async |below: &str| world.person_gets(&kim, &path(below)).await.ok();
    assert_eq!(read("").await, made);
    let no_keys = json!({"agent_id": made["agent_id"], "version": 1, "keys": [], "count": 0});
    assert_eq!(read("/keys").await, no_keys);
    let no_rules = json!({"agent_id": made["agent_id"], "version": 1, "rules": [], "findings": [], "count": 0});
    assert_eq!(read("/rules").await, no_rules);

    let services = read("/services").await;
    let open = curated.iter().filter(|service| service["trust_status"] != "disabled");
    let open: Vec<&Value> = open.filter(|service| service["slug"] != "lab-search").collect();
    assert!(open.len() >= 12, "{}", open.len());
    assert_eq!(services["count"], open.len());
    // In the demo catalog, only operations without a payment can't be paid.
    let unpaid = async |slug: &str| -> Vec<Value> {
        let service = world.service(slug).await;
        let unpaid = service
            .operations
            .iter()
            .filter(|operation| operation.payment.is_none());
        let told = |slug: &str| json!({"operation_id": slug, "reason": "operation_has_no_payment"});
        unpaid.map(|operation| told(operation.slug.as_str())).collect()
    };
    for (told, service) in services["services"].as_array().unwrap().iter().zip(open) {
        let expected = json!({
            "agent_id": made["agent_id"],
            "service_id": service["id"],
            "slug": service["slug"],
            "name": service["name"],
            "category": service["category"],
            "trust_status": service["trust_status"],
            "enabled": true,
            "version": 1,
            "policy": {
                "max_per_call_units": NO_LIMIT,
                "max_per_day_units": NO_LIMIT,
                "require_approval_above_units": NO_LIMIT,
                "enabled_operations": null,
                "allowed_domains": ["*"],
            },
            "permissive": true,
            "spend_today_units": 0,
            "remaining_today_units": NO_LIMIT,
            "unpayable_operations": unpaid(service["slug"].as_str().unwrap()).await,
            "payment_changes": [],
        });
        assert_eq!(*told, expected);
    }

    world.pass(1);
    // Agents that are created concurrently never share a wallet.
    let more = (0..8).map(|n| {
        let request = world.persons_request(&kim, Method::POST, "/agents");
        World::send(request.json(&json!({"name": format!("helper {n}")})))
    });
    let more: Vec<Value> = together(more.collect())
        .await
        .into_iter()
        .map(|made| made.created())
        .collect();
    let wallets: BTreeSet<&str> = more
        .iter()
        .map(|made| made["wallet_address"].as_str().unwrap())
        .collect();
    let before = [made["wallet_address"].as_str().unwrap(), &world.demo().wallet];
    assert!(wallets.len() == 8 && before.iter().all(|wallet| !wallets.contains(wallet)));

    let listed = world.person_gets(&kim, "/agents").await.ok();
    assert_eq!(
        (&listed["count"], &listed["agents"][0]),
        (&json!(9), &made),
        "oldest first"
    );
    for agent in &more {
        assert!(listed["agents"].as_array().unwrap().contains(agent), "{agent}");
    }
    assert_eq!(world.person_gets(&world.person(&LEE), "/agents").await.ok(), nobody);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wallet_shows_its_current_balance() {
    let home = Household::in_world(World::start().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let token = purser_local::NETWORK.token();
    let holding = |units: u64, usdc: &str| {
        json!({
            "agent_id": agent.id.to_string(),
            "wallet_address": agent.wallet,
            "network": "base-sepolia",
            "token": "USDC",
            "token_address": token.address.to_string(),
            "balance_units": units,
            "balance_usdc": usdc,
            "balance_reason": null,
        })
    };
    assert_eq!(home.read("/wallet").await, holding(dollars(10_000), "10000"));
    let paid = world.authorize(agent, &body_of(world.offer(250_000))).await.ok();
    assert_eq!(
        home.read("/wallet").await,
        holding(dollars(10_000), "10000"),
        "signed is not paid"
    );
    world.settle(&paid).await;
    assert_eq!(
        home.read("/wallet").await,
        holding(dollars(10_000) - 250_000, "9999.75")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_can_rename_an_agent() {
    let home = Household::in_world(World::still().await).await;
    let (world, agent) = (&home.world, &home.agent);
    let before = home.read("").await;
    let longest = "\u{1f4a1}".repeat(100);
    let renamed = home.edit(Method::PATCH, "", json!({"name": longest})).await;
    // The creation of the API key made version 2.
    assert_eq!(renamed.etag(), "\"3\"");
    let mut expected = before;
    expected["name"] = json!(longest);
    expected["version"] = json!(3);
    assert_eq!(renamed.ok(), expected);
    assert_eq!(world.get(agent, "/mcp/agents/me").await.ok()["name"], json!(longest));

    let rows = world.rows().await;
    let same = json!({"name": format!(" {longest} "), "status": "active"});
    assert_eq!(home.edit(Method::PATCH, "", same).await.ok(), expected);
    let lee = world.person(&LEE);
    let stolen = json!({"name": "Lee's now", "status": "frozen"});
    let path = agent.path("");
    world
        .person_edits(&lee, Method::PATCH, &path, &stolen)
        .await
        .refused(404, "not_found");
    world.person_gets(&lee, &path).await.refused(404, "not_found");
    world
        .person_edits(&lee, Method::PATCH, &path, &json!({}))
        .await
        .refused(404, "not_found");
    assert_eq!(world.rows().await.changes_since(&rows), NOTHING);
    assert_eq!(home.read("").await, expected);
}

/// An agent keeps the services that were open at its creation, even before the agent's rows for them are written.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_keeps_services_open_at_its_creation() {
    let world = World::still().await;
    let kim = world.person(&KIM);
    let curate = async |slug: &str, curated: bool| {
        let path = format!("/internal/services/{}/curated", world.service(slug).await.id);
        let body = json!({"curated": curated});
        world.operator_edits(Method::PUT, &path, &body).await.ok();
        // Every function has loaded the changed catalog.
        world.pass(6);
    };
    curate("lab-search", false).await;
    let agent = world.agent_of(&kim, "early").await;
    curate("lab-search", true).await;
    let search = body_of(world.offer(1));
    world
        .authorize(&agent, &search)
        .await
        .refused(403, "service_not_enabled");
    let search = agent.path("/services/lab-search");
    world.person_gets(&kim, &search).await.refused(404, "not_found");

    curate("lab-weather", false).await;
    let weather = agent.path("/services/lab-weather");
    let policy = format!("{weather}/policy");
    let closed = world.get(&agent, &policy).await.ok();
    assert_eq!(closed["unavailable_reason"], "not_curated");
    curate("lab-weather", true).await;
    let open = world.get(&agent, &policy).await.ok();
    assert_eq!((&open["enabled"], &open["version"]), (&json!(true), &json!(1)));

    // The first update of a default service makes version 2, and of another service version 1.
    let edit = json!({"max_per_call_units": 5});
    let stale = world
        .person_edits_version(&kim, Method::PATCH, &weather, "\"2\"", &edit)
        .await;
    stale.refused(412, "version_conflict");
    let edited = world
        .person_edits_version(&kim, Method::PATCH, &weather, "\"1\"", &edit)
        .await;
    assert_eq!((edited.etag(), edited.status), ("\"2\"", 200));
    let enable = json!({"service_id": "lab-search"});
    let enabled = world
        .person_edits(&kim, Method::POST, &agent.path("/services"), &enable)
        .await;
    assert_eq!((enabled.etag(), enabled.status), ("\"1\"", 201));
}

/// `/_local/token` returns a token of a recent sign-in, which some requests need.
#[tokio::test(flavor = "multi_thread")]
async fn the_local_stack_can_sign_its_owner_in_again() {
    let world = World::still().await;
    let file = purser_local::StackFile::new(&world.stack);
    assert_eq!(
        file.user.token_recent_until,
        world.now().after(Duration::from_secs_u32(600)).to_string()
    );
    let key = format!("/agents/{}/keys", file.agent.agent_id);
    let make = async |token: &str| {
        let url = format!("{}{key}", world.stack.base_url);
        let request = world.http.post(url).bearer_auth(token).header("if-match", "*");
        World::send(request.json(&json!({}))).await
    };
    make(&file.user.token).await.created();
    world.pass(601);
    make(&file.user.token).await.refused(403, "recent_sign_in_required");
    let signed_in = world.call(Method::POST, "/_local/token", None, None).await.ok();
    make(signed_in["token"].as_str().unwrap()).await.created();
}
