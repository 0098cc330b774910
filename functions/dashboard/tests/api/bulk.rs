//! Tests labels, archived agents, list filters, and operations on many agents.

use crate::support::World;
use purser_domain::{AgentId, AgentStatus};
use purser_testkit::authorize::Answer as Told;
use purser_testkit::sample::OWNER;
use serde_json::{Value, json};

impl World {
    /// Creates `count` agents with the names `n0`, `n1`, ….
    async fn named(&self, count: usize) -> Vec<String> {
        let mut agents = Vec::new();
        for n in 0..count {
            let body = json!({"name": format!("n{n}")});
            let made = self.call(OWNER, "POST", "/agents", None, Some(body)).await.created();
            agents.push(made["agent_id"].as_str().unwrap().to_owned());
            self.advance(1);
        }
        agents
    }

    /// Updates an agent, one second later.
    async fn patch(&self, agent: &str, body: Value) -> Value {
        self.advance(1);
        self.edit(OWNER, "PATCH", &format!("/agents/{agent}"), body).await.ok()
    }

    /// Returns the outcomes and the next cursor.
    async fn bulk(&self, who: &str, body: Value) -> (Vec<(String, String)>, Value) {
        self.advance(1);
        let answer = self.call(who, "POST", "/agents/bulk", None, Some(body)).await.ok();
        let rows = answer["results"].as_array().unwrap();
        assert_eq!(answer["count"], rows.len());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let outcomes = rows.iter().map(|row| {
            assert_eq!(row["error"].is_null(), row["outcome"] != "failed", "{row}");
            let error = row["error"]["error"].as_str();
            (
                text(&row["agent_id"]),
                error.map_or_else(|| text(&row["outcome"]), str::to_owned),
            )
        });
        (outcomes.collect(), answer["next_cursor"].clone())
    }

    /// Returns the agents' names on all pages of a list, and the number of pages.
    async fn names(&self, query: &str) -> (Vec<String>, usize) {
        let (mut names, mut pages, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let page = self.get(OWNER, &format!("/agents?{query}{cursor}")).await.ok();
            let agents = page["agents"].as_array().unwrap();
            names.extend(agents.iter().map(|agent| agent["name"].as_str().unwrap().to_owned()));
            pages += 1;
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (names, pages),
            }
        }
    }

    /// Returns the audit kinds of the agent's actions, newest first.
    async fn kinds_of(&self, agent: &str) -> Vec<String> {
        let log = self.get(OWNER, "/audit-log?limit=100").await.ok();
        let rows = log["entries"].as_array().unwrap().iter();
        let own = rows.filter(|row| row["agent_id"] == agent && row["error"].is_null());
        own.map(|row| row["kind"].as_str().unwrap().to_owned()).collect()
    }
}

fn ids(agents: &[String]) -> Value {
    json!({"kind": "ids", "ids": agents})
}

#[tokio::test]
async fn an_update_replaces_all_labels_of_an_agent() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}");
    let labels = json!({"team": "search", "env": "prod"});
    assert_eq!(
        world
            .patch(&agent, json!({"labels": {"env": "prod", "team": " search"}}))
            .await["labels"],
        labels
    );
    assert_eq!(world.get(OWNER, &path).await.ok()["labels"], labels);
    assert_eq!(world.patch(&agent, json!({"name": "other"})).await["labels"], labels);
    assert_eq!(
        world.patch(&agent, json!({"labels": {"a": "b"}})).await["labels"],
        json!({"a": "b"})
    );
    assert_eq!(world.patch(&agent, json!({"labels": {}})).await["labels"], json!({}));
    let wrong = json!({"labels": {"Team": "x", "ok": "a\nb"}, "archived": "yes"});
    let refused = world.edit(OWNER, "PATCH", &path, wrong).await;
    let paths: Vec<&Value> = refused.body["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| &problem["path"])
        .collect();
    assert_eq!(
        (refused.status, paths),
        (
            400,
            vec![&json!("/archived"), &json!("/labels/Team"), &json!("/labels/ok")]
        )
    );
    let edited = "agent_labels_edited";
    assert_eq!(
        world.kinds_of(&agent).await,
        [edited, edited, "agent_renamed", edited, "agent_created"]
    );
}

/// Restoring requires no recent sign-in, because a restored agent is still frozen.
#[tokio::test]
async fn archived_agents_are_frozen_until_restored_and_unfrozen() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}");
    let pay = async |key: &str| world.pay(&agent, 5, key).await;
    assert!(matches!(pay("one").await, Told::Allowed(_)));
    let archived = world.patch(&agent, json!({"archived": true})).await;
    assert_eq!(
        (&archived["archived"], &archived["status"]),
        (&json!(true), &json!("frozen"))
    );
    assert!(matches!(pay("two").await, Told::Blocked));
    assert_eq!(world.names("").await.0, Vec::<String>::new());
    assert_eq!(world.names("archived=true").await.0, ["buyer"]);
    for body in [
        json!({"status": "active"}),
        json!({"archived": true, "status": "active"}),
    ] {
        let refused = world.edit(OWNER, "PATCH", &path, body.clone()).await;
        assert_eq!(
            (refused.status, &refused.body["details"][0]["path"]),
            (400, &json!("/status")),
            "{body}"
        );
    }
    let old = world.issuer.token(OWNER, world.now());
    world.advance(700);
    let restored = world
        .call_with(&old, "PATCH", &path, Some("*"), Some(json!({"archived": false})))
        .await
        .ok();
    assert_eq!(
        (&restored["archived"], &restored["status"]),
        (&json!(false), &json!("frozen"))
    );
    assert!(matches!(pay("three").await, Told::Blocked));
    let unfreeze = json!({"status": "active"});
    let refused = world
        .call_with(&old, "PATCH", &path, Some("*"), Some(unfreeze.clone()))
        .await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (403, &json!("recent_sign_in_required"))
    );
    world.patch(&agent, unfreeze).await;
    assert!(matches!(pay("four").await, Told::Allowed(_)));
    // One request can restore and unfreeze an agent.
    world.patch(&agent, json!({"archived": true})).await;
    let both = world
        .patch(&agent, json!({"archived": false, "status": "active"}))
        .await;
    assert_eq!((&both["archived"], &both["status"]), (&json!(false), &json!("active")));
    assert_eq!(
        world.kinds_of(&agent).await,
        [
            "agent_unfrozen",
            "agent_archived",
            "agent_unfrozen",
            "agent_restored",
            "agent_archived",
            "agent_created"
        ]
    );
}

#[tokio::test]
async fn agents_can_be_filtered_by_name_label_and_state() {
    let world = World::start().await;
    let agents = world.named(12).await;
    world
        .patch(&agents[1], json!({"labels": {"team": "search", "env": "prod"}}))
        .await;
    world
        .patch(&agents[2], json!({"labels": {"team": "ads"}, "status": "frozen"}))
        .await;
    world
        .patch(&agents[10], json!({"labels": {"team": "search"}, "status": "frozen"}))
        .await;
    world
        .patch(&agents[11], json!({"labels": {"team": "search"}, "archived": true}))
        .await;
    let id = &agents[7];
    for (query, expected) in [
        ("q=N1", vec!["n1", "n10"]),
        (&*format!("q={id}"), vec!["n7"]),
        ("label=team", vec!["n1", "n2", "n10"]),
        ("label=team%3Dsearch", vec!["n1", "n10"]),
        ("label=team%3Dsearch&status=frozen", vec!["n10"]),
        ("label=team%3Dsearch&status=active&q=n1", vec!["n1"]),
        ("status=frozen", vec!["n2", "n10"]),
        ("label=team&archived=true", vec!["n11"]),
        ("label=cost-centre", vec![]),
    ] {
        for limit in [100, 1] {
            let (names, pages) = world.names(&format!("{query}&limit={limit}")).await;
            assert_eq!(names, expected, "{query} {limit}");
            assert_eq!(
                pages,
                if limit == 1 { expected.len().max(1) } else { 1 },
                "{query} {limit}"
            );
        }
    }
    assert_eq!(world.names("").await.0.len(), 11);
    // Archived agents do not count towards a page's limit.
    assert_eq!(world.names("limit=3").await, (world.names("").await.0, 4));
}

/// A page without agents reads on. Its cursor leads to the remaining agents.
#[tokio::test]
async fn a_filtered_agent_page_is_not_empty_while_agents_follow() {
    let world = World::start().await;
    let agents = world.named(205).await;
    world.patch(&agents[150], json!({"labels": {"team": "search"}})).await;
    world.patch(&agents[204], json!({"labels": {"team": "search"}})).await;
    let (names, pages) = world.names("label=team&limit=1").await;
    assert_eq!((names, pages), (vec!["n150".to_owned(), "n204".to_owned()], 2));

    // A repeated call finds the first 100 agents unchanged.
    let all = json!({"act": "freeze", "agents": {"kind": "all"}});
    let (first, next) = world.bulk(OWNER, all.clone()).await;
    assert_eq!(
        (first.len(), first[0].clone()),
        (100, (agents[0].clone(), "done".to_owned()))
    );
    let (again, _) = world.bulk(OWNER, all).await;
    assert!(again.iter().all(|(_, outcome)| outcome == "unchanged"));
    let (mut calls, mut cursor) = (1, next);
    while let Some(next) = cursor.as_str() {
        cursor = world
            .bulk(
                OWNER,
                json!({"act": "freeze", "agents": {"kind": "all", "cursor": next}}),
            )
            .await
            .1;
        calls += 1;
    }
    assert_eq!(calls, 3);
    assert_eq!(world.names("status=active").await.0, Vec::<String>::new());
}

#[tokio::test]
async fn a_bulk_operation_updates_each_agent_independently() {
    let world = World::start().await;
    let agents = world.named(4).await;
    let theirs = world.agent("bob").await;
    let full: serde_json::Map<String, Value> = (0..10).map(|n| (format!("k{n}"), json!("v"))).collect();
    world.patch(&agents[2], json!({"labels": full})).await;
    world.patch(&agents[3], json!({"labels": {"team": "search"}})).await;
    let mut all = agents.clone();
    all.push(theirs.clone());
    let outcomes = |expected: [&str; 5]| -> Vec<(String, String)> {
        let expected = expected.map(str::to_owned);
        all.iter().cloned().zip(expected).collect()
    };
    let act = async |body| world.bulk(OWNER, body).await;
    let label = json!({"act": "label", "agents": ids(&all), "labels": {"team": "search"}});
    let expected = ["done", "done", "invalid_request", "unchanged", "not_found"];
    assert_eq!(act(label).await, (outcomes(expected), json!(null)));
    let frozen = json!({"act": "freeze", "agents": {"kind": "label", "label": "team=search"}});
    let done = |index: usize| (agents[index].clone(), "done".to_owned());
    assert_eq!(act(frozen).await.0, [done(0), done(1), done(3)]);
    let archive = json!({"act": "archive", "agents": ids(&agents[..1])});
    assert_eq!(act(archive).await.0, [done(0)]);
    let unfreeze = json!({"act": "unfreeze", "agents": ids(&all)});
    let expected = ["invalid_request", "done", "unchanged", "done", "not_found"];
    assert_eq!(act(unfreeze).await.0, outcomes(expected));
    // A selection by label skips archived agents, and `restore` skips all agents that are not archived.
    let unlabel = json!({"act": "unlabel", "agents": {"kind": "label", "label": "team"}, "keys": ["team", "x"]});
    assert_eq!(act(unlabel).await.0, [done(1), done(3)]);
    let restore = json!({"act": "restore", "agents": {"kind": "all"}});
    assert_eq!(act(restore).await.0, [done(0)]);

    assert_eq!(
        world.kinds_of(&agents[0]).await,
        [
            "agent_restored",
            "agent_archived",
            "agent_frozen",
            "agent_labels_edited",
            "agent_created"
        ]
    );
    let untouched = world
        .ledger
        .read_agent_by_id(AgentId::parse(&theirs).unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((untouched.version, untouched.status), (1, AgentStatus::Active));
    // A filter or a cursor of another user selects only the caller's own agents.
    let (theirs_only, _) = world
        .bulk("bob", json!({"act": "freeze", "agents": {"kind": "all"}}))
        .await;
    assert_eq!(theirs_only, [(theirs, "done".to_owned())]);
    assert_eq!(
        world.get(OWNER, &format!("/agents/{}", agents[1])).await.ok()["status"],
        "active"
    );
}

/// A repeated call changes nothing. No recent sign-in is required, because no limit is widened.
#[tokio::test]
async fn a_bulk_operation_sets_safe_limits_on_agents_without_limits() {
    let world = World::start().await;
    let agents = world.named(3).await;
    let edit = async |method, path: &str, body: Value| {
        let path = format!("/agents/{}{path}", agents[1]);
        world.edit(OWNER, method, &path, body).await
    };
    edit("PATCH", "/services/lab", json!({"max_per_call_units": 7_000_000}))
        .await
        .ok();
    let own = json!({"kind": "budget_limit", "limit_units": 9, "window_seconds": 86_400});
    edit("POST", "/rules", own).await.created();
    world.advance(601);
    let limit = json!({"act": "limit", "agents": ids(&agents[..2])});
    let outcome = |outcome: &str| -> Vec<(String, String)> {
        let agents = agents[..2].iter().cloned();
        agents.map(|agent| (agent, outcome.to_owned())).collect()
    };
    let path = "/agents/bulk?edit_reason=a+safe+start";
    let first = world.call(OWNER, "POST", path, None, Some(limit.clone())).await.ok();
    let done = |row: &Value| row["outcome"] == "done";
    assert!(first["results"].as_array().unwrap().iter().all(done), "{first}");
    let log = world.get(OWNER, "/audit-log?kind=rule_added").await.ok();
    assert_eq!(log["entries"][0]["edit_reason"], "a safe start");
    assert_eq!(world.bulk(OWNER, limit).await.0, outcome("unchanged"));
    let per_call = async |agent: &str| {
        let service = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
        service["policy"]["max_per_call_units"].as_u64().unwrap()
    };
    let budgets = async |agent: &str| {
        let rules = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
        let rules = rules["rules"].as_array().unwrap().clone();
        let limits: Vec<u64> = rules.iter().filter_map(|rule| rule["limit_units"].as_u64()).collect();
        (rules.len(), limits)
    };
    assert_eq!(per_call(&agents[0]).await, 1_000_000);
    assert_eq!(budgets(&agents[0]).await, (6, vec![20_000_000, 200_000_000]));
    assert_eq!(per_call(&agents[1]).await, 7_000_000);
    assert_eq!(budgets(&agents[1]).await, (6, vec![9, 200_000_000]));
    assert_eq!(budgets(&agents[2]).await, (0, vec![]));
    let many: Vec<String> = (0..26)
        .map(|n| format!("00000000-0000-4000-8000-0000000000{n:02}"))
        .collect();
    let answer = world
        .call(
            OWNER,
            "POST",
            "/agents/bulk",
            None,
            Some(json!({"act": "limit", "agents": ids(&many)})),
        )
        .await;
    assert_eq!(answer.status, 400);
}

/// An agent's rule replaces a safe rule only if it is stricter and covers every service.
#[tokio::test]
async fn safe_limits_are_added_only_to_agents_with_looser_rules() {
    let world = World::start().await;
    let agents = world.named(2).await;
    let loose = [
        json!({"kind": "budget_limit", "limit_units": 900_000_000, "window_seconds": 86_400}),
        json!({"kind": "count_limit", "services": ["lab"], "count": 1_000_000, "window_seconds": 60}),
        json!({"kind": "duplicate_guard", "services": ["lab"], "within_seconds": 1, "action": "ask"}),
        json!({"kind": "new_payee", "services": ["lab"]}),
        json!({"kind": "price_above_usual", "percent": 10_000, "over": "catalog", "action": "ask"}),
    ];
    let strict = [
        json!({"kind": "budget_limit", "limit_units": 9, "window_seconds": 2_592_000}),
        json!({"kind": "count_limit", "count": 100, "window_seconds": 86_400}),
        json!({"kind": "duplicate_guard", "within_seconds": 601, "action": "block"}),
        json!({"kind": "new_payee"}),
        json!({"kind": "price_above_usual", "percent": 9, "over": "catalog", "action": "block"}),
    ];
    for (agent, rules, expected) in [(&agents[0], &loose, 5 + 6), (&agents[1], &strict, 5)] {
        let path = format!("/agents/{agent}/rules");
        for rule in rules {
            world.edit(OWNER, "POST", &path, rule.clone()).await.created();
        }
        let limit = json!({"act": "limit", "agents": ids(std::slice::from_ref(agent))});
        for outcome in ["done", "unchanged"] {
            assert_eq!(
                world.bulk(OWNER, limit.clone()).await.0,
                [(agent.clone(), outcome.to_owned())]
            );
            let rules = world.get(OWNER, &path).await.ok();
            assert_eq!(rules["count"], expected, "{rules}");
        }
    }
}

#[tokio::test]
async fn a_bulk_unfreeze_requires_a_recent_sign_in() {
    let world = World::start().await;
    let agents = world.named(2).await;
    let old = world.issuer.token(OWNER, world.now());
    world.advance(700);
    let act = async |act: &str| {
        let body = json!({"act": act, "agents": ids(&agents)});
        world.call_with(&old, "POST", "/agents/bulk", None, Some(body)).await
    };
    for free in ["freeze", "archive", "restore"] {
        let answer = act(free).await.ok();
        assert_eq!(answer["results"][1]["outcome"], "done", "{free}");
    }
    let refused = act("unfreeze").await;
    assert_eq!(
        (refused.status, &refused.body["error"]),
        (403, &json!("recent_sign_in_required"))
    );
    let log = world.get(OWNER, "/audit-log?refused=true").await.ok();
    assert_eq!(
        (&log["count"], &log["entries"][0]["kind"]),
        (&json!(1), &json!("agent_unfrozen"))
    );
    assert_eq!(world.names("status=active").await.0, Vec::<String>::new());
}
