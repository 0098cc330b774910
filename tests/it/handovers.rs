//! Agents that operators hand to another owner.

use purser_local::{DEMO_OWNER, DEMO_STRANGER};
use purser_tests::{Answer, Person, TestAgent, World, body_of, dollars, together};
use reqwest::Method;
use serde_json::{Value, json};

/// An agent with a pending request, its owner, and another person.
struct Town {
    world: World,
    old: Person,
    new: Person,
    to: String,
    agent: TestAgent,
    question: Value,
    approval: String,
}

impl Town {
    async fn start() -> Self {
        let world = World::still().await;
        let (old, new) = (world.person(&DEMO_OWNER), world.person(&DEMO_STRANGER));
        let agent = world.agent_of(&old, "buyer").await;
        let policy = json!({"require_approval_above_units": dollars(5)});
        let path = agent.path("/services/lab-search");
        world.person_edits(&old, Method::PATCH, &path, &policy).await.ok();
        let question = body_of(world.offer(dollars(6)));
        let asked = world
            .authorize(&agent, &question)
            .await
            .refused(402, "approval_required");
        let to = world.person_gets(&new, "/sessions").await.ok()["person"].clone();
        Self {
            to: to.as_str().unwrap().to_owned(),
            approval: asked["approval_id"].as_str().unwrap().to_owned(),
            world,
            old,
            new,
            agent,
            question,
        }
    }

    fn at(&self) -> String {
        format!("/internal/agents/{}/handover", self.agent.id)
    }

    async fn offer(&self) -> Value {
        let offer = json!({"to": self.to, "reason": "their predecessor has left"});
        let put = self.world.operators_request(Method::PUT, &self.at()).json(&offer);
        World::send(put).await.ok()
    }

    async fn accept(&self, person: &Person) -> Answer {
        let path = format!("/handovers/{}/accept", self.agent.id);
        World::send(self.world.persons_request(person, Method::POST, &path)).await
    }

    async fn offers(&self, person: &Person) -> Value {
        self.world.person_gets(person, "/handovers").await.ok()["handovers"].clone()
    }

    async fn waiting(&self, person: &Person) -> Value {
        let listed = self.world.person_gets(person, "/approvals?status=pending").await.ok();
        listed["approvals"].clone()
    }

    async fn approve(&self, person: &Person) -> Answer {
        let path = self.agent.path(&format!("/approvals/{}/approve", self.approval));
        self.world.person_edits(person, Method::POST, &path, &json!({})).await
    }
}

/// To its old owner the agent no longer exists.
#[tokio::test(flavor = "multi_thread")]
async fn agents_keep_keys_and_approvals_after_a_handover() {
    let town = Town::start().await;
    let (world, old, new) = (&town.world, &town.old, &town.new);
    assert_eq!(town.offers(new).await, json!([]));
    town.accept(new).await.refused(404, "not_found");
    let offered = town.offer().await;
    assert_eq!(offered["to"], town.to);
    let listed = town.offers(new).await;
    assert_eq!(listed[0]["agent_id"], town.agent.id.to_string());
    assert_eq!(listed[0]["reason"], "their predecessor has left");
    // Nothing changes until the handover is accepted, and only its recipient can accept it.
    assert_eq!(town.offers(old).await, json!([]));
    world
        .person_gets(new, &town.agent.path(""))
        .await
        .refused(404, "not_found");
    assert_eq!(town.waiting(old).await[0]["approval_id"], town.approval);

    let accepted = town.accept(new).await;
    let version = accepted.etag().to_owned();
    assert_eq!(accepted.ok()["agent_id"], town.agent.id.to_string());
    // A repetition, as after a lost answer, changes nothing.
    assert_eq!(town.accept(new).await.etag(), version);
    assert_eq!(town.offers(new).await, json!([]));

    // To its old owner the agent no longer exists.
    for path in [
        "",
        "/keys",
        "/rules",
        "/services",
        "/wallet",
        &format!("/approvals/{}", town.approval),
    ] {
        world
            .person_gets(old, &town.agent.path(path))
            .await
            .refused(404, "not_found");
    }
    town.approve(old).await.refused(404, "not_found");
    let freeze = json!({"status": "frozen"});
    world
        .person_edits(old, Method::PATCH, &town.agent.path(""), &freeze)
        .await
        .refused(404, "not_found");
    world
        .person_gets(old, &format!("/approvals/{}", town.approval))
        .await
        .refused(404, "not_found");
    assert_eq!(town.waiting(old).await, json!([]));
    town.accept(old).await.refused(404, "not_found");

    // The new owner decides the agent's pending request, and the agent's key stays valid.
    assert_eq!(town.waiting(new).await[0]["approval_id"], town.approval);
    town.approve(new).await.ok();
    let mut carrying = town.question.clone();
    carrying["approval_id"] = json!(town.approval);
    world.authorize(&town.agent, &carrying).await.ok();
    world.authorize(&town.agent, &body_of(world.offer(1))).await.ok();
}

/// Whether the person reads a decision, by each route, list and search; all of them must agree.
async fn reads(town: &Town, person: &Person, paid: &Value) -> bool {
    let world = &town.world;
    let [transaction, settlement] = ["transaction_id", "settlement_id"].map(|field| paid[field].as_str().unwrap());
    let routes = [
        (Method::GET, format!("/decisions/{transaction}/statement")),
        (Method::POST, format!("/decisions/{transaction}/replay")),
        (Method::GET, town.agent.path(&format!("/decisions/{transaction}"))),
        (Method::GET, town.agent.path(&format!("/settlements/{settlement}"))),
    ];
    let mut found = Vec::new();
    for (method, path) in routes {
        let answer = World::send(world.persons_request(person, method, &path)).await;
        assert!([200, 404].contains(&answer.status), "{path}: {answer:?}");
        found.push(answer.status == 200);
    }
    for path in ["/decisions", "/settlements"] {
        let listed = world.person_gets(person, path).await.ok();
        found.push(listed.to_string().contains(transaction));
    }
    let searched = world
        .person_gets(person, &format!("/search?q={transaction}"))
        .await
        .ok();
    // The search leads to the receipt.
    found.push(searched.to_string().contains(settlement));
    // A list of one agent is its owner's alone.
    let listed = world
        .person_gets(person, &format!("/decisions?agent_id={}", town.agent.id))
        .await;
    if listed.status == 200 {
        found.push(listed.ok().to_string().contains(transaction));
    }
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
    found[0]
}

/// Also if it was made before the transfer and folded after it. A note on an approval is read by its writer alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_read_by_its_owner_at_that_time_alone() {
    let town = Town::start().await;
    let (world, old, new) = (&town.world, &town.old, &town.new);
    let folded = world.authorize(&town.agent, &body_of(world.offer(1))).await.ok();
    assert_eq!(world.stack.fold().await, 0);
    let late = world.authorize(&town.agent, &body_of(world.offer(2))).await.ok();
    let path = town.agent.path(&format!("/approvals/{}/approve", town.approval));
    let note = json!({"note": "only for us"});
    world.person_edits(old, Method::POST, &path, &note).await.ok();
    town.offer().await;
    town.accept(new).await.ok();
    assert_eq!(world.stack.fold().await, 0);
    let after = world.authorize(&town.agent, &body_of(world.offer(3))).await.ok();
    assert_eq!(world.stack.fold().await, 0);
    for (paid, by_old) in [(&folded, true), (&late, true), (&after, false)] {
        assert_eq!(reads(&town, old, paid).await, by_old);
        assert_eq!(reads(&town, new, paid).await, !by_old);
    }
    // The approval can still be used, so the new owner sees it, without the note.
    for path in [
        "/approvals".to_owned(),
        town.agent.path(&format!("/approvals/{}", town.approval)),
    ] {
        let seen = world.person_gets(new, &path).await.ok().to_string();
        assert!(seen.contains(&town.approval) && !seen.contains("only for us"), "{seen}");
    }
}

/// An operator can withdraw an offer earlier, or replace its recipient.
#[tokio::test(flavor = "multi_thread")]
async fn handover_offers_expire_after_a_week() {
    let town = Town::start().await;
    let (world, new) = (&town.world, &town.new);
    town.offer().await;
    for _ in 0..2 {
        World::send(world.operators_request(Method::DELETE, &town.at()))
            .await
            .ok();
        town.accept(new).await.refused(404, "not_found");
    }
    town.offer().await;
    world.pass(7 * 86_400 - 1);
    let new = world.person(&DEMO_STRANGER);
    assert_eq!(town.offers(&new).await.as_array().unwrap().len(), 1);
    world.pass(1);
    assert_eq!(town.offers(&new).await, json!([]));
    town.accept(&new).await.refused(404, "not_found");
    // The handover is redirected to another person: the first recipient can no longer accept it.
    town.offer().await;
    let other = json!({"to": "5e".repeat(32), "reason": "a mistake"});
    World::send(world.operators_request(Method::PUT, &town.at()).json(&other))
        .await
        .ok();
    assert_eq!(town.offers(&new).await, json!([]));
    town.accept(&new).await.refused(404, "not_found");
    town.offer().await;
    town.accept(&new).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_handover_acceptances_and_edits_stay_consistent() {
    let town = Town::start().await;
    let world = &town.world;
    town.offer().await;
    let accept = async || town.accept(&town.new).await.status;
    let rename = async || {
        let name = json!({"name": "renamed"});
        world
            .person_edits(&town.old, Method::PATCH, &town.agent.path(""), &name)
            .await
            .status
    };
    let (accepted, renamed, again) = tokio::join!(accept(), rename(), accept());
    assert_eq!((accepted, again), (200, 200));
    assert!([200, 404].contains(&renamed), "{renamed}");
    let owner = world.person_gets(&town.new, &town.agent.path("")).await.ok();
    assert_eq!(owner["name"] == "renamed", renamed == 200);
    let reads = (0..4).map(|_| {
        let request = world.persons_request(&town.old, Method::GET, &town.agent.path(""));
        World::send(request)
    });
    for answer in together(reads.collect()).await {
        answer.refused(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_handover_offers_report_every_problem() {
    let town = Town::start().await;
    let world = &town.world;
    let put = async |body: Value| World::send(world.operators_request(Method::PUT, &town.at()).json(&body)).await;
    let told = put(json!({"to": "nobody", "reason": "", "more": 1})).await;
    let told = told.refused(400, "invalid_request");
    let paths: Vec<&str> = told["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/more", "/reason", "/to"]);
    put(json!({})).await.refused(400, "to_required");
    let owner = world.person_gets(&town.old, "/sessions").await.ok()["person"].clone();
    let told = put(json!({"to": owner, "reason": "x"}))
        .await
        .refused(400, "invalid_request");
    assert_eq!(told["details"][0]["path"], "/to");
}
