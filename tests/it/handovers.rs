//! Tests ownership transfers of agents by operators.

use purser_local::{DEMO_OWNER, DEMO_STRANGER};
use purser_tests::{Answer, Person, TestAgent, World, body_of, dollars, together};
use reqwest::Method;
use serde_json::{Value, json};

/// An agent with a pending approval request, its owner, and another user.
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

#[tokio::test(flavor = "multi_thread")]
async fn agents_keep_keys_and_approvals_after_an_ownership_transfer() {
    let town = Town::start().await;
    let (world, old, new) = (&town.world, &town.old, &town.new);
    assert_eq!(town.offers(new).await, json!([]));
    town.accept(new).await.refused(404, "not_found");
    let offered = town.offer().await;
    assert_eq!(offered["to"], town.to);
    let listed = town.offers(new).await;
    assert_eq!(listed[0]["agent_id"], town.agent.id.to_string());
    assert_eq!(listed[0]["reason"], "their predecessor has left");
    // Nothing changes until the transfer is accepted, and only its recipient can accept it.
    assert_eq!(town.offers(old).await, json!([]));
    world
        .person_gets(new, &town.agent.path(""))
        .await
        .refused(404, "not_found");
    assert_eq!(town.waiting(old).await[0]["approval_id"], town.approval);

    let accepted = town.accept(new).await;
    let version = accepted.etag().to_owned();
    assert_eq!(accepted.ok()["agent_id"], town.agent.id.to_string());
    assert_eq!(town.accept(new).await.etag(), version);
    assert_eq!(town.offers(new).await, json!([]));

    // For its previous owner, the agent does not exist any more.
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

    assert_eq!(town.waiting(new).await[0]["approval_id"], town.approval);
    town.approve(new).await.ok();
    let mut carrying = town.question.clone();
    carrying["approval_id"] = json!(town.approval);
    world.authorize(&town.agent, &carrying).await.ok();
    world.authorize(&town.agent, &body_of(world.offer(1))).await.ok();
}

/// Returns whether a user can read a decision. All routes, lists, pages, files and searches must agree.
async fn reads(town: &Town, (person, cookie): (&Person, &str), decided: &Value) -> bool {
    let (world, agent) = (&town.world, town.agent.id);
    let transaction = decided["transaction_id"].as_str().unwrap();
    let settlement = decided["settlement_id"].as_str();
    let mut routes = vec![
        (Method::GET, format!("/decisions/{transaction}/statement")),
        (Method::POST, format!("/decisions/{transaction}/replay")),
        (Method::GET, town.agent.path(&format!("/decisions/{transaction}"))),
    ];
    let mut lists = vec!["/decisions".to_owned(), format!("/search?q={transaction}")];
    let mut pages = vec![
        format!("/dashboard/decisions/{agent}/{transaction}"),
        format!("/dashboard/decisions/{agent}/{transaction}/evidence.json"),
    ];
    let mut files = vec!["decisions", "decisions.csv"];
    if let Some(settlement) = settlement {
        routes.push((Method::GET, town.agent.path(&format!("/settlements/{settlement}"))));
        lists.push("/settlements".to_owned());
        pages.push(format!("/dashboard/receipts/{agent}/{settlement}"));
        files.extend(["settlements", "settlements.csv"]);
    }
    let mut found = Vec::new();
    for (method, path) in routes {
        let answer = World::send(world.persons_request(person, method, &path)).await;
        assert!([200, 404].contains(&answer.status), "{path}: {answer:?}");
        found.push((path, answer.status == 200));
    }
    let mut shows = |path: String, text: &str| {
        let has = |id: &str| text.contains(id);
        found.push((path, has(transaction) || settlement.is_some_and(has)));
    };
    let of_agent = format!("/decisions?agent_id={agent}");
    let listed = world.person_gets(person, &of_agent).await;
    if listed.status == 200 {
        shows(of_agent, &listed.ok().to_string());
    }
    for path in lists {
        let listed = world.person_gets(person, &path).await.ok();
        shows(path, &listed.to_string());
    }
    let open = async |path: &str| {
        let request = world.http.get(format!("{}{path}", world.stack.base_url));
        request.header("cookie", cookie).send().await.unwrap()
    };
    for list in files {
        let path = format!("/dashboard/{list}");
        let page = open(&path).await;
        assert_eq!(page.status(), 200, "{path}");
        shows(path, &page.text().await.unwrap());
    }
    for path in pages {
        let page = open(&path).await;
        assert!([200, 404].contains(&page.status().as_u16()), "{path}");
        found.push((path, page.status() == 200));
    }
    let first = found[0].1;
    assert!(found.iter().all(|(_, reads)| *reads == first), "{found:?}");
    first
}

/// Makes a payment, a denial and an approval request, each with a different amount.
async fn decide(town: &Town, units: u64) -> [Value; 3] {
    let (world, agent) = (&town.world, &town.agent);
    let paid = world.authorize(agent, &body_of(world.offer(units))).await.ok();
    let refused = world.authorize(agent, &body_of(world.offer(dollars(60) + units))).await;
    let refused = refused.refused(402, "amount_exceeds_per_call_limit");
    let asked = world.authorize(agent, &body_of(world.offer(dollars(6) + units))).await;
    let asked = asked.refused(402, "approval_required");
    [paid, refused, asked]
}

/// A decision before the transfer stays with the previous owner. Only the writer of an approval's note can read the
/// note.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_readable_only_by_the_owner_at_that_time() {
    let town = Town::start().await;
    let (world, old, new) = (&town.world, &town.old, &town.new);
    let cookies = [
        world.browser_session(&DEMO_OWNER).await,
        world.browser_session(&DEMO_STRANGER).await,
    ];
    let policy = json!({"max_per_call_units": dollars(50)});
    let path = town.agent.path("/services/lab-search");
    world.person_edits(old, Method::PATCH, &path, &policy).await.ok();
    let folded = decide(&town, 1).await;
    assert_eq!(world.stack.aggregate_history().await, 0);
    let late = decide(&town, 2).await;
    let path = town.agent.path(&format!("/approvals/{}/approve", town.approval));
    let note = json!({"note": "only for us"});
    world.person_edits(old, Method::POST, &path, &note).await.ok();
    town.offer().await;
    town.accept(new).await.ok();
    assert_eq!(world.stack.aggregate_history().await, 0);
    let after = decide(&town, 3).await;
    assert_eq!(world.stack.aggregate_history().await, 0);
    for (decisions, by_old) in [(&folded, true), (&late, true), (&after, false)] {
        for decided in decisions {
            assert_eq!(reads(&town, (old, &cookies[0]), decided).await, by_old, "{decided}");
            assert_eq!(reads(&town, (new, &cookies[1]), decided).await, !by_old, "{decided}");
        }
    }
    // The new owner sees an approval that can still be used, without its note.
    for path in [
        "/approvals".to_owned(),
        town.agent.path(&format!("/approvals/{}", town.approval)),
    ] {
        let seen = world.person_gets(new, &path).await.ok().to_string();
        assert!(seen.contains(&town.approval) && !seen.contains("only for us"), "{seen}");
    }
}

/// Windows continue after the transfer. Each owner has separate sums and logs.
#[tokio::test(flavor = "multi_thread")]
async fn an_ownership_transfer_keeps_windows_but_separates_the_owners_histories() {
    let town = Town::start().await;
    let (world, old, new) = (&town.world, &town.old, &town.new);
    let id = town.agent.id.to_string();
    let edit = async |person: &Person, method: Method, path: &str, body: Value| {
        let answer = world.person_edits(person, method, path, &body).await;
        assert!(answer.status < 300, "{path}: {}", answer.body);
        answer.body
    };
    let template = world.persons_request(old, Method::PUT, "/policy-templates/theirs");
    World::send(template.json(&json!({"rules": []}))).await.created();
    let agents = json!({"kind": "ids", "ids": [id]});
    let follow = json!({"act": "follow", "agents": agents, "template": "theirs"});
    edit(old, Method::POST, "/agents/bulk", follow).await;
    let policy = json!({"max_per_day_units": dollars(10)});
    edit(old, Method::PATCH, &town.agent.path("/services/lab-search"), policy).await;
    edit(
        old,
        Method::PATCH,
        &town.agent.path(""),
        json!({"labels": {"team": "old"}}),
    )
    .await;
    let pay = async |units| world.authorize(&town.agent, &body_of(world.offer(units))).await;
    let first = pay(dollars(4)).await.ok();
    town.offer().await;
    town.accept(new).await.ok();
    let renamed = json!({"name": "renamed", "labels": {"team": "new"}});
    assert_eq!(
        edit(new, Method::PATCH, &town.agent.path(""), renamed).await["template"],
        Value::Null
    );
    let second = pay(dollars(3)).await.ok();
    let full = pay(dollars(4)).await.refused(402, "daily_spend_limit_exceeded");
    assert_eq!(full["spend_today"], dollars(7), "{full}");
    assert_eq!(world.stack.aggregate_history().await, 0);

    let kinds = ["policy_edited", "policy_template_created", "handover_accepted"];
    for (person, paid, name, team, units, own) in [
        (old, &first, "buyer", "old", 4, [true, true, false]),
        (new, &second, "renamed", "new", 3, [false, false, true]),
    ] {
        for by in ["day", "agent", "service", "label"] {
            let usage = world.person_gets(person, &format!("/usage?by={by}")).await.ok();
            let [total, row] = [&usage["total"], &usage["rows"][0]].map(|sums| &sums["authorized_units"]);
            assert_eq!(
                (total, row),
                (&json!(dollars(units)), &json!(dollars(units))),
                "{by}: {usage}"
            );
            let others = if team == "old" { "new" } else { "old" };
            assert!(!usage.to_string().contains(&format!("\"{others}\"")), "{by}: {usage}");
        }
        let listed = world.person_gets(person, "/settlements").await.ok();
        assert_eq!(listed["count"], 1, "{listed}");
        let entry = world.person_gets(person, "/decisions?result=allow").await.ok()["decisions"][0].clone();
        assert_eq!(
            (&entry["transaction_id"], &entry["agent_name"], &entry["labels"]["team"]),
            (&paid["transaction_id"], &json!(name), &json!(team))
        );
        let log = world.person_gets(person, "/audit-log?limit=100").await.ok();
        let found = kinds.map(|kind| log["entries"].as_array().unwrap().iter().any(|row| row["kind"] == kind));
        assert_eq!(found, own, "{log}");
    }
    let receipts = world
        .get(&town.agent, &town.agent.path("/settlements"))
        .await
        .ok()
        .to_string();
    for paid in [&first, &second] {
        assert!(receipts.contains(paid["settlement_id"].as_str().unwrap()), "{receipts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ownership_transfer_offers_expire_after_a_week() {
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
    // The offer now names another user.
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
async fn concurrent_transfer_acceptances_and_updates_stay_consistent() {
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
async fn invalid_transfer_offers_report_all_validation_errors() {
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
