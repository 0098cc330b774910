//! Tests both kinds of custody of the wallet keys, and failures of KMS.

use purser_api::CustodyKind;
use purser_chain::is_attested;
use purser_domain::{AgentId, SpendPolicy, Wallet, WalletKey};
use purser_local::{DEMO_OWNER, DEMO_STRANGER, Options};
use purser_tests::{Process, Program, World, as_repeated, body_of, dollars, fresh_key};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Starts a stack with this custody. New withdrawal addresses can be used immediately.
async fn world_of(custody: CustodyKind) -> World {
    World::with(Options {
        custody,
        environment: [("PAYOUT_DELAY_SECONDS".to_owned(), "0".to_owned())].into(),
        ..Options::default()
    })
    .await
}

async fn key_of(world: &World, agent: AgentId) -> (String, WalletKey) {
    let key = world
        .stack
        .ledger
        .read_agent_by_id(agent)
        .await
        .unwrap()
        .unwrap()
        .wallet
        .key;
    match key {
        WalletKey::Kms { id, .. } => (id.to_string(), key),
        WalletKey::Seed { index } => (index.to_string(), key),
    }
}

/// A replay signs the same payment again with another signature. The token accepts only one of the signatures.
#[tokio::test(flavor = "multi_thread")]
async fn each_agent_has_its_own_kms_key() {
    let world = world_of(CustodyKind::Kms).await;
    let owner = world.person(&DEMO_OWNER);
    let made = world
        .persons_request(&owner, Method::POST, "/agents")
        .json(&json!({"name": "errands"}));
    let made = World::send(made).await.created();
    let id = AgentId::parse(made["agent_id"].as_str().unwrap()).unwrap();
    let wallet = world.stack.ledger.read_agent_by_id(id).await.unwrap().unwrap().wallet;
    assert!(is_attested(&wallet.attestation, id, wallet.address));
    let (key, _) = key_of(&world, id).await;
    let tags = world.stack.kms.tags();
    assert_eq!(tags[&key]["purser-agent"], id.to_string());
    assert_eq!(tags[&key]["purser-stack"], "local");

    // KMS signatures of the same payment differ. The token accepts one of them, once.
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let mut spent = 0;
    for _ in 0..8 {
        let body = body_of(world.offer(dollars(1)));
        let paid = world.authorize(&agent, &body).await.ok();
        let again = world.authorize(&agent, &body).await.ok();
        let authorization = |answer: &Value| answer["payment"]["payload"]["payload"]["authorization"].clone();
        assert_eq!(authorization(&paid), authorization(&again));
        assert_eq!(as_repeated(&paid)["settlement_id"], again["settlement_id"]);
        let hash = world.settle(if spent % 2 == 0 { &paid } else { &again }).await;
        let settlement = paid["settlement_id"].as_str().unwrap();
        world
            .complete(
                &agent,
                settlement,
                &json!({"payment_response_header": "e30=", "tx_hash": hash}),
            )
            .await
            .ok();
        spent += 1;
    }
    assert_eq!(world.footprint().await.settlements, spent);
    // No secret contains a wallet seed, which would have 128 digits.
    assert!(world.stack.secret_values().iter().all(|value| value.len() != 128));
}

/// Requests fail until the KMS key works again. Only one settlement is reserved.
#[tokio::test(flavor = "multi_thread")]
async fn payments_are_signed_after_the_kms_key_recovers() {
    let world = world_of(CustodyKind::Kms).await;
    let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
    let kms = &world.stack.kms;
    let body = body_of(world.offer(dollars(1)));
    for exception in ["ThrottlingException", "KMSInternalException", "KeyUnavailableException"] {
        kms.fail("Sign", exception);
        world
            .authorize(&agent, &body)
            .await
            .refused(503, "temporarily_unavailable");
    }
    kms.behave();
    let (key, _) = key_of(&world, agent.id).await;
    kms.enable(&key, false);
    world.authorize(&agent, &body).await.refused(500, "internal_error");
    kms.enable(&key, true);
    world.authorize(&agent, &body).await.ok();
    assert_eq!(world.footprint().await.settlements, 1);
    kms.forget(&key);
    world.authorize(&agent, &body).await.refused(500, "internal_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn wallets_with_a_foreign_key_cannot_reserve_payments() {
    for custody in [CustodyKind::Seed, CustodyKind::Kms] {
        let world = world_of(custody).await;
        let agent = world.agent(SpendPolicy::permissive(), vec![]).await;
        let (_, other) = key_of(&world, world.agent(SpendPolicy::permissive(), vec![]).await.id).await;
        world.edit(&agent, |agent| agent.wallet.key = other).await;
        let body = body_of(world.offer(dollars(1)));
        world.authorize(&agent, &body).await.refused(500, "internal_error");
        assert_eq!(world.footprint().await.settlements, 0);
    }
}

/// `people` writes agents' records, so a compromised `people` can store any wallet in an agent's record.
#[tokio::test(flavor = "multi_thread")]
async fn agents_cannot_use_another_agents_wallet() {
    const TO: &str = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
    for custody in [CustodyKind::Seed, CustodyKind::Kms] {
        let world = world_of(custody).await;
        let victim = world.agent_of(&world.person(&DEMO_OWNER), "victim").await;
        let stranger = world.person(&DEMO_STRANGER);
        let thief = world.agent_of(&stranger, "thief").await;
        let address = thief.path("/payout-address");
        let body = json!({"address": TO});
        let named = world.person_edits(&stranger, Method::PUT, &address, &body).await;
        named.ok();
        let paid = body_of(world.offer(dollars(1)));
        world.authorize(&thief, &paid).await.ok();

        let wallet_of = async |id| world.stack.ledger.read_agent_by_id(id).await.unwrap().unwrap().wallet;
        let (theirs, own) = (wallet_of(victim.id).await, wallet_of(thief.id).await);
        let attested_for_the_thief = Wallet {
            attestation: own.attestation,
            ..theirs
        };
        let payouts = thief.path("/payouts");
        for wallet in [theirs, attested_for_the_thief] {
            world.edit(&thief, |agent| agent.wallet = wallet).await;
            for body in [&paid, &body_of(world.offer(dollars(1)))] {
                world.authorize(&thief, body).await.refused(500, "internal_error");
            }
            let body = json!({"amount_units": dollars(1), "idempotency_key": fresh_key()});
            let paid_out = world.person_edits(&stranger, Method::POST, &payouts, &body).await;
            paid_out.refused(500, "internal_error");
        }
        assert_eq!(world.footprint().await.settlements, 1, "the thief's own payment");

        world.edit(&thief, |agent| agent.wallet = own).await;
        world.authorize(&thief, &body_of(world.offer(dollars(1)))).await.ok();
        let body = json!({"amount_units": dollars(1), "idempotency_key": fresh_key()});
        let paid_out = world.person_edits(&stranger, Method::POST, &payouts, &body).await;
        paid_out.created();
    }
}

/// A compromised `people` can request any attestation of a wallet from `payments`.
#[tokio::test(flavor = "multi_thread")]
async fn each_wallet_is_attested_for_one_agent() {
    for custody in [CustodyKind::Seed, CustodyKind::Kms] {
        let world = world_of(custody).await;
        let agent = world.agent_of(&world.person(&DEMO_OWNER), "saver").await.id;
        let other = world.agent_of(&world.person(&DEMO_STRANGER), "thief").await.id;
        let unknown = AgentId::from_uuid(uuid::Uuid::new_v4());
        let program = Program {
            path: env!("CARGO_BIN_EXE_function").into(),
            function: "payments",
            time: Duration::from_secs(15),
            environment: Vec::new(),
        };
        let process = Process::for_program(&world, program).await;
        let attest = async |agent: AgentId, key: &Value| {
            let event = json!({
                "version": 1,
                "caller": {"request_id": "r", "trace_id": "t"},
                "request": {
                    "method": "POST",
                    "path": "/wallets",
                    "body": {"agent_id": agent.to_string(), "wallet": key},
                },
            });
            let mut response = process.invoke(event).await.unwrap().unwrap();
            response["body"] = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
            response
        };
        let record = world.stack.ledger.read_agent_by_id(agent).await.unwrap().unwrap();
        let (its_key, new_key) = match record.wallet.key {
            WalletKey::Seed { index } => (
                json!({"seed": {"index": index}}),
                json!({"seed": {"index": world.stack.ledger.assign_wallet_index().await.unwrap()}}),
            ),
            WalletKey::Kms { id, .. } => {
                let keys = world.stack.custody.kms_keys().unwrap();
                let new = keys.create_key(agent, "local", None).await.unwrap();
                (
                    json!({"kms": {"key_id": id.to_string()}}),
                    json!({"kms": {"key_id": new.to_string()}}),
                )
            }
        };
        let again = attest(agent, &its_key).await;
        assert_eq!(again["statusCode"], 200, "{again}");
        assert_eq!(again["body"]["address"], record.wallet.address.to_string());
        for (agent, key) in [(other, &its_key), (unknown, &its_key), (agent, &new_key)] {
            let refused = attest(agent, key).await;
            assert_eq!(refused["statusCode"], 500, "{refused}");
            assert!(!refused.to_string().contains("signature"), "{refused}");
        }
        // The rejected requests claimed nothing.
        let attested = attest(unknown, &new_key).await;
        assert_eq!(attested["statusCode"], 200, "{attested}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_created_only_with_attested_wallets() {
    let world = world_of(CustodyKind::Kms).await;
    let owner = world.person(&DEMO_OWNER);
    let agents = async || world.person_gets(&owner, "/agents").await.ok()["count"].clone();
    let before = agents().await;
    let make = async || {
        let request = world.persons_request(&owner, Method::POST, "/agents");
        World::send(request.json(&json!({"name": "errands"}))).await
    };
    for (operation, exception, status, slug) in [
        ("CreateKey", "ThrottlingException", 503, "temporarily_unavailable"),
        ("CreateKey", "LimitExceededException", 503, "temporarily_unavailable"),
        ("CreateKey", "AccessDeniedException", 500, "internal_error"),
        ("GetPublicKey", "NotFoundException", 503, "temporarily_unavailable"),
        ("GetPublicKey", "DisabledException", 500, "internal_error"),
        ("Sign", "KMSInternalException", 503, "temporarily_unavailable"),
    ] {
        world.stack.kms.fail(operation, exception);
        make().await.refused(status, slug);
        world.stack.kms.behave();
        assert_eq!(agents().await, before, "{operation} {exception}");
    }
    make().await.created();
}

/// A role may use a KMS key by the key's tags, which take effect some minutes after the key's creation.
#[tokio::test(flavor = "multi_thread")]
async fn delayed_kms_keys_are_reused_by_the_next_agent() {
    let world = World::with(Options {
        custody: CustodyKind::Kms,
        environment: [(
            "WALLET_KEY_POLICY".to_owned(),
            r#"{"Version": "2012-10-17"}"#.to_owned(),
        )]
        .into(),
        ..Options::default()
    })
    .await;
    let kms = &world.stack.kms;
    let make = async |owner| {
        let person = world.person(owner);
        let request = world.persons_request(&person, Method::POST, "/agents");
        World::send(request.json(&json!({"name": "errands"}))).await
    };
    let known = kms.tags();
    // A request makes four attempts to read the key, so two requests use up eight of the nine rejections. The third
    // request can't sign.
    kms.refuse_new_keys(9);
    for _ in 0..2 {
        let refused = make(&DEMO_OWNER).await.refused(503, "temporarily_unavailable");
        assert_eq!(refused["retry_after"], 10);
    }
    kms.fail("Sign", "AccessDeniedException");
    make(&DEMO_OWNER).await.refused(503, "temporarily_unavailable");
    kms.behave();
    // The next agent, of another user, gets the unused key.
    let made = make(&DEMO_STRANGER).await.created();
    let agent = AgentId::parse(made["agent_id"].as_str().unwrap()).unwrap();
    let (key, _) = key_of(&world, agent).await;
    let mut tags = kms.tags();
    tags.retain(|id, _| !known.contains_key(id));
    assert_eq!(tags.keys().collect::<Vec<_>>(), [&key], "one key was made");
    assert_eq!(tags[&key]["purser-agent"], agent.to_string());
    // The next agent gets a separate key.
    kms.refuse_new_keys(0);
    let made = make(&DEMO_OWNER).await.created();
    let other = AgentId::parse(made["agent_id"].as_str().unwrap()).unwrap();
    assert_ne!(key_of(&world, other).await.0, key);
}
