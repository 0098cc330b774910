//! Policy templates: updates, followers, overrides, and interrupted applications.

use crate::support::World;
use purser_domain::{AgentId, AgentStatus};
use purser_testkit::authorize::Answer as Told;
use purser_testkit::sample::{OWNER, service_id};
use purser_testkit::{Fate, Moment};
use serde_json::{Value, json};

const PATH: &str = "/policy-templates/research";

impl World {
    async fn put(&self, who: &str, path: &str, if_match: Option<&str>, body: Value) -> (u16, Value) {
        self.advance(1);
        let answer = self.call(who, "PUT", path, if_match, Some(body)).await;
        (answer.status, answer.body)
    }

    /// Creates or replaces the template `research`.
    async fn template(&self, services: Value, rules: Value) -> Value {
        let is_there = self.get(OWNER, PATH).await.status == 200;
        let body = json!({"services": services, "rules": rules});
        let (status, body) = self.put(OWNER, PATH, is_there.then_some("*"), body).await;
        assert!(status == 200 || status == 201, "{body}");
        body
    }

    /// Returns the result rows.
    async fn apply(&self, query: &str, body: Value) -> Vec<Value> {
        self.advance(1);
        let path = format!("{PATH}/apply{query}");
        let answer = self.call(OWNER, "POST", &path, None, Some(body)).await.ok();
        answer["results"].as_array().unwrap().clone()
    }

    async fn follow(&self, agent: &str, template: Value) -> Value {
        self.advance(1);
        let body = json!({"act": "follow", "template": template, "agents": {"kind": "ids", "ids": [agent]}});
        let answer = self.call(OWNER, "POST", "/agents/bulk", None, Some(body)).await.ok();
        answer["results"][0].clone()
    }

    async fn limit(&self, agent: &str, service: &str, member: &str) -> Value {
        let record = self
            .get(OWNER, &format!("/agents/{agent}/services/{service}"))
            .await
            .ok();
        record["policy"][member].clone()
    }

    /// Reads the id, limit and version of each of the agent's rules.
    async fn budgets(&self, agent: &str) -> Vec<(String, u64, u64)> {
        let answer = self.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
        let rules = answer["rules"].as_array().unwrap().iter();
        let text = |rule: &Value| rule["rule_id"].as_str().unwrap().to_owned();
        let units = |rule: &Value| rule["limit_units"].as_u64().unwrap_or_default();
        rules
            .map(|rule| (text(rule), units(rule), rule["rule_version"].as_u64().unwrap()))
            .collect()
    }

    /// Updates a service of an agent, as a user does.
    async fn limited(&self, agent: &str, service: &str, body: Value) {
        let path = format!("/agents/{agent}/services/{service}");
        Box::pin(self.edit(OWNER, "PATCH", &path, body)).await.ok();
    }

    async fn new_agent(&self, body: Value) -> Value {
        self.advance(1);
        self.call(OWNER, "POST", "/agents", None, Some(body)).await.created()
    }

    async fn audit(&self) -> Vec<String> {
        let answer = self.get(OWNER, "/audit-log?limit=100").await.ok();
        let rows = answer["entries"].as_array().unwrap().iter();
        rows.map(|row| row["kind"].as_str().unwrap().to_owned()).collect()
    }
}

fn id(value: &Value) -> String {
    value["agent_id"].as_str().unwrap().to_owned()
}

fn budget(units: u64) -> Value {
    json!({"kind": "budget_limit", "limit_units": units, "window_seconds": 3_600})
}

#[tokio::test]
async fn templates_can_be_created_updated_and_removed() {
    let world = World::start().await;
    let body = json!({"services": {"*": {"max_per_day_units": 5}, "lab": {"enabled": true}}, "rules": [budget(9)]});
    assert_eq!(world.get(OWNER, PATH).await.status, 404);
    let (status, made) = world.put(OWNER, PATH, None, body.clone()).await;
    assert_eq!(
        (status, &made["version"], &made["default"]),
        (201, &json!(1), &json!(false))
    );
    assert_eq!(made["services"], body["services"]);
    assert_eq!(made["rules"][0]["limit_units"], 9);
    let (status, refused) = world.put(OWNER, PATH, None, body.clone()).await;
    assert_eq!((status, &refused["error"]), (428, &json!("version_required")));
    let (status, refused) = world.put(OWNER, PATH, Some("\"7\""), body.clone()).await;
    assert_eq!((status, &refused["error"]), (412, &json!("version_conflict")));
    let (status, _) = world
        .put(OWNER, "/policy-templates/other", Some("*"), body.clone())
        .await;
    assert_eq!(status, 404);
    // The response can be sent back as a request, which creates no new version.
    let again = json!({"services": made["services"], "rules": made["rules"]});
    let (status, same) = world.put(OWNER, PATH, Some("\"1\""), again.clone()).await;
    assert_eq!((status, &same), (200, &made));
    let (_, default) = world
        .put(
            OWNER,
            PATH,
            Some("\"1\""),
            json!({"services": {"lab": {"max_per_day_units": 1}}, "default": true}),
        )
        .await;
    assert_eq!((&default["version"], &default["default"]), (&json!(2), &json!(true)));
    assert_eq!(default["rules"], Value::Null);
    // Another template replaces the default.
    let (_, other) = world
        .put(
            OWNER,
            "/policy-templates/other",
            Some("\"0\""),
            json!({"default": true}),
        )
        .await;
    assert_eq!((&other["version"], &other["default"]), (&json!(3), &json!(true)));
    let list = world.get(OWNER, "/policy-templates").await.ok();
    let rows = list["templates"].as_array().unwrap().iter();
    let rows: Vec<_> = rows
        .map(|row| (row["name"].clone(), row["version"].clone(), row["default"].clone()))
        .collect();
    let expected = [("other", 3, true), ("research", 2, false)];
    assert_eq!(
        rows,
        expected.map(|(name, version, default)| (json!(name), json!(version), json!(default)))
    );

    let remove = async |who: &str, version| world.call(who, "DELETE", PATH, version, None).await;
    assert_eq!(remove(OWNER, None).await.status, 428);
    assert_eq!(remove(OWNER, Some("\"1\"")).await.status, 412);
    assert_eq!(remove("bob", Some("\"2\"")).await.status, 404);
    assert_eq!(world.get("bob", PATH).await.status, 404);
    assert_eq!(world.get("bob", "/policy-templates").await.ok()["count"], 0);
    assert_eq!(remove(OWNER, Some("\"2\"")).await.ok(), json!({"name": "research"}));
    assert_eq!(world.get(OWNER, PATH).await.status, 404);
    let kinds = world.audit().await;
    for kind in [
        "policy_template_created",
        "policy_template_edited",
        "policy_template_removed",
    ] {
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }
}

#[tokio::test]
async fn invalid_templates_are_rejected_with_field_paths() {
    let world = World::start().await;
    let rows = [
        (json!({"services": {"nowhere": {}}}), "/services/nowhere"),
        (
            json!({"services": {"category:nothing": {}}}),
            "/services/category:nothing",
        ),
        (json!({"services": {"*": {"enabled": true}}}), "/services/*/enabled"),
        (
            json!({"services": {"*": {"enabled_operations": ["lab.current"]}}}),
            "/services/*/enabled_operations/0",
        ),
        (
            json!({"services": {"lab": {"enabled_operations": ["lab.none"]}}}),
            "/services/lab/enabled_operations/0",
        ),
        (
            json!({"services": {"lab": {"max_per_dya_units": 1}}}),
            "/services/lab/max_per_dya_units",
        ),
        (
            json!({"services": {"lab": {"max_per_day_units": -1}}}),
            "/services/lab/max_per_day_units",
        ),
        (
            json!({"services": {"lab": {"allowed_domains": null}}}),
            "/services/lab/allowed_domains",
        ),
        (json!({"services": {"lab": 7}}), "/services/lab"),
        (json!({"services": 7}), "/services"),
        (
            json!({"rules": [{"kind": "budget_limit", "limit_units": 1, "window_seconds": 1}]}),
            "/rules/0/window_seconds",
        ),
        (
            json!({"rules": [{"kind": "budget_limit", "limit_units": 1, "period": "lifetime", "keys": ["00000000000000ff"]}]}),
            "/rules/0/keys",
        ),
        (json!({"rules": vec![budget(1); 11]}), "/rules"),
        (json!({"rules": vec![json!({"kind": "new_payee"}); 51]}), "/rules"),
        (json!({"default": 1}), "/default"),
        (json!({"name": "x"}), "/name"),
    ];
    for (body, path) in rows {
        let (status, refused) = world.put(OWNER, PATH, None, body.clone()).await;
        assert_eq!((status, &refused["error"]), (400, &json!("invalid_request")), "{body}");
        assert_eq!(refused["details"][0]["path"], path, "{refused}");
        assert_eq!(refused["details"].as_array().unwrap().len(), 1, "{refused}");
    }
    let twice = json!({"services": {"lab": {}, service_id(1).to_string(): {}}});
    let (status, refused) = world.put(OWNER, PATH, None, twice).await;
    assert_eq!(status, 400, "{refused}");
    let (status, _) = world.put(OWNER, "/policy-templates/Research", None, json!({})).await;
    assert_eq!(status, 404);
    // A user can have at most 50 templates.
    for n in 0..50 {
        let (status, body) = world
            .put(OWNER, &format!("/policy-templates/t{n}"), None, json!({}))
            .await;
        assert_eq!(status, 201, "{body}");
    }
    let (status, refused) = world.put(OWNER, PATH, None, json!({})).await;
    assert_eq!((status, &refused["error"]), (400, &json!("invalid_request")));
    let (status, _) = world
        .put(OWNER, "/policy-templates/t9", Some("*"), json!({"rules": []}))
        .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_second_automatic_freeze_rule_is_rejected_in_every_list() {
    let world = World::start().await;
    let agent = id(&world.new_agent(json!({"name": "a"})).await);
    let brake = |times: u32| json!({"kind": "anomaly_brake", "times": times, "at_least_units": 5_000_000});
    let rows = [
        ("PUT", PATH.to_owned()),
        ("PUT", format!("/agents/{agent}/shadow")),
        ("POST", "/backtests".to_owned()),
    ];
    for (method, path) in rows {
        for (rules, is_accepted) in [(vec![brake(2), brake(3)], false), (vec![brake(2)], true)] {
            let mut body = json!({"rules": rules});
            if method == "POST" {
                body["agents"] = json!({"kind": "all"});
            }
            let answer = world.call(OWNER, method, &path, None, Some(body)).await;
            assert_eq!(answer.status != 400, is_accepted, "{path}: {}", answer.body);
            assert!(
                is_accepted || answer.body["details"][0]["path"] == "/rules",
                "{}",
                answer.body
            );
        }
    }
}

/// A limit that a user set is kept, unless the user requests to overwrite it.
#[tokio::test]
async fn agents_follow_template_updates_and_keep_overrides() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}");
    world.limited(&agent, "lab", json!({"max_per_call_units": 77})).await;
    world
        .template(
            json!({"*": {"max_per_call_units": 10, "max_per_day_units": 100}}),
            json!([budget(50)]),
        )
        .await;
    // The preview shows the changes without making them.
    let ids = json!({"kind": "ids", "ids": [agent]});
    let seen = world.apply("?preview=true", json!({"agents": ids})).await;
    assert_eq!(
        (&seen[0]["outcome"], &seen[0]["narrows"], &seen[0]["widens"]),
        (&json!("done"), &json!(true), &json!(false))
    );
    let differences = seen[0]["differences"].as_array().unwrap();
    let of_lab = json!({
        "service": "lab", "member": "max_per_call_units", "template": 10, "agent": 77, "override": true,
    });
    assert!(differences.contains(&of_lab), "{differences:?}");
    assert_eq!(differences.len(), 5);
    assert_eq!(world.get(OWNER, &path).await.ok()["template"], Value::Null);
    // The agent must follow the template before the template is applied.
    let refused = world.apply("", json!({"agents": ids})).await;
    let told = (
        &refused[0]["error"]["error"],
        &refused[0]["error"]["details"][0]["path"],
    );
    assert_eq!(told, (&json!("invalid_request"), &json!("/agents/ids")));

    assert_eq!(world.follow(&agent, json!("research")).await["outcome"], "done");
    assert_eq!(
        world.get(OWNER, &path).await.ok()["template"],
        json!({"name": "research", "version": 1})
    );
    assert_eq!(world.limit(&agent, "lab", "max_per_call_units").await, 77);
    assert_eq!(world.limit(&agent, "lab", "max_per_day_units").await, 100);
    assert_eq!(world.limit(&agent, "maps", "max_per_call_units").await, 10);
    let budgets = world.budgets(&agent).await;
    assert_eq!((budgets.len(), budgets[0].1, budgets[0].2), (1, 50, 1));
    let version = world.get(OWNER, &path).await.ok()["version"].clone();
    assert_eq!(world.follow(&agent, json!("research")).await["outcome"], "unchanged");
    assert_eq!(world.get(OWNER, &path).await.ok()["version"], version);
    assert_eq!(world.get(OWNER, "/agents?template=research").await.ok()["count"], 1);
    assert_eq!(world.get(OWNER, "/agents?template=other").await.ok()["count"], 0);
}

#[tokio::test]
async fn a_template_update_keeps_windows_and_overrides() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    world.limited(&agent, "lab", json!({"max_per_call_units": 77})).await;
    world
        .template(
            json!({"*": {"max_per_call_units": 10, "max_per_day_units": 100}}),
            json!([budget(50)]),
        )
        .await;
    world.follow(&agent, json!("research")).await;
    let budgets = world.budgets(&agent).await;
    // The user sets a limit, then the template is updated. The budget keeps its window.
    world.limited(&agent, "maps", json!({"max_per_day_units": 33})).await;
    world
        .template(
            json!({"*": {"max_per_call_units": 9, "max_per_day_units": 99}}),
            json!([budget(40)]),
        )
        .await;
    let rows = world.apply("", json!({})).await;
    assert_eq!((rows.len(), &rows[0]["outcome"]), (1, &json!("done")));
    assert_eq!(world.limit(&agent, "maps", "max_per_call_units").await, 9);
    assert_eq!(world.limit(&agent, "maps", "max_per_day_units").await, 33);
    assert_eq!(world.limit(&agent, "lab", "max_per_day_units").await, 99);
    let changed = world.budgets(&agent).await;
    assert_eq!(changed, [(budgets[0].0.clone(), 40, 2)]);
    let followers = world.get(OWNER, &format!("{PATH}/agents")).await.ok();
    let follower = &followers["agents"][0];
    assert_eq!((&followers["count"], &follower["version"]), (&json!(1), &json!(2)));
    let overrides = follower["differences"].as_array().unwrap();
    assert_eq!(overrides.len(), 2);
    assert!(overrides.iter().all(|difference| difference["override"] == true));
}

/// A removed rule stays removed until the template is applied with `overwrite`.
#[tokio::test]
async fn template_overrides_are_overwritten_on_demand() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let path = format!("/agents/{agent}");
    world.limited(&agent, "lab", json!({"max_per_call_units": 77})).await;
    world
        .template(
            json!({"*": {"max_per_call_units": 9, "max_per_day_units": 99}}),
            json!([budget(40)]),
        )
        .await;
    world.follow(&agent, json!("research")).await;
    world.limited(&agent, "maps", json!({"max_per_day_units": 33})).await;
    let changed = world.budgets(&agent).await;
    let rule = format!("{path}/rules/{}", changed[0].0);
    world.call(OWNER, "DELETE", &rule, Some("*"), None).await.ok();
    assert_eq!(world.apply("", json!({})).await[0]["outcome"], "unchanged");
    assert_eq!(world.budgets(&agent).await, []);
    let rows = world
        .apply("?edit_reason=all%20the%20same", json!({"overrides": "overwrite"}))
        .await;
    assert_eq!(rows[0]["outcome"], "done");
    assert_eq!(world.limit(&agent, "lab", "max_per_call_units").await, 9);
    assert_eq!(world.limit(&agent, "maps", "max_per_day_units").await, 99);
    assert_eq!(world.budgets(&agent).await[0].1, 40);
    let log = world
        .get(OWNER, &format!("/audit-log?limit=100&agent_id={agent}"))
        .await
        .ok();
    let rows = log["entries"].as_array().unwrap().iter();
    let reasons: Vec<&str> = rows
        .filter(|row| row["kind"] == "policy_edited")
        .filter_map(|row| row["edit_reason"].as_str())
        .collect();
    assert!(
        reasons.contains(&"all the same") && reasons.contains(&"policy template research version 1"),
        "{reasons:?}"
    );

    // An agent that no longer follows a template keeps its limits.
    assert_eq!(world.follow(&agent, Value::Null).await["outcome"], "done");
    assert_eq!(world.get(OWNER, &path).await.ok()["template"], Value::Null);
    assert_eq!(world.limit(&agent, "lab", "max_per_call_units").await, 9);
    assert_eq!(world.apply("", json!({})).await.len(), 0);
    let kinds = world.audit().await;
    for kind in ["policy_template_applied", "policy_template_unfollowed", "policy_edited"] {
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }
}

#[tokio::test]
async fn applying_a_template_that_widens_requires_a_recent_sign_in() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    world
        .template(json!({"*": {"max_per_day_units": 5}}), Value::Null)
        .await;
    world.follow(&agent, json!("research")).await;
    world
        .template(
            json!({"lab": {"max_per_day_units": 6}, "*": {"max_per_day_units": 4}}),
            Value::Null,
        )
        .await;
    let old = world.issuer.token(OWNER, world.now());
    world.advance(700);
    let apply = async |token: &str| {
        let path = format!("{PATH}/apply");
        let answer = world.call_with(token, "POST", &path, None, Some(json!({}))).await.ok();
        answer["results"][0].clone()
    };
    let refused = apply(&old).await;
    assert_eq!(refused["error"]["error"], "recent_sign_in_required");
    // Nothing was updated, not even the limits that the template narrows.
    assert_eq!(world.limit(&agent, "maps", "max_per_day_units").await, 5);
    assert!(world.audit().await.iter().any(|kind| kind == "policy_template_applied"));
    let fresh = world.issuer.token(OWNER, world.now());
    assert_eq!(apply(&fresh).await["widens"], true);
    assert_eq!(world.limit(&agent, "maps", "max_per_day_units").await, 4);
    assert_eq!(world.limit(&agent, "lab", "max_per_day_units").await, 6);
    // An update of the template itself changes no agent's limits.
    let wide = json!({"services": {"*": {"max_per_day_units": 1_000}}});
    let answer = world.call_with(&old, "PUT", PATH, Some("*"), Some(wide)).await;
    assert_eq!(answer.status, 200);
}

/// The limits are in the agent's first record, so no payment above them is ever allowed.
#[tokio::test]
async fn a_new_agent_starts_with_the_default_templates_limits() {
    let world = World::start().await;
    world
        .template(
            json!({"lab": {"enabled": true, "max_per_call_units": 5}, "*": {"enabled": false}}),
            json!([budget(50)]),
        )
        .await;
    let agent = world.new_agent(json!({"name": "a", "template": "research"})).await;
    assert_eq!(
        (&agent["template"], &agent["status"]),
        (&json!({"name": "research", "version": 1}), &json!("active"))
    );
    let agent = id(&agent);
    assert!(matches!(world.pay(&agent, 6, "one").await, Told::Blocked));
    assert!(matches!(world.pay(&agent, 5, "two").await, Told::Allowed { .. }));
    let record = world.get(OWNER, &format!("/agents/{agent}/services/maps")).await.ok();
    assert_eq!((&record["enabled"], &record["version"]), (&json!(false), &json!(1)));
    assert_eq!(world.budgets(&agent).await[0].1, 50);
    assert_eq!(world.apply("", json!({})).await[0]["outcome"], "unchanged");
    // The agent's own updates are overrides, and the other limits follow the template.
    world
        .template(json!({"lab": {"max_per_call_units": 7}}), json!([budget(60)]))
        .await;
    assert_eq!(world.apply("", json!({})).await[0]["outcome"], "done");
    assert_eq!(world.limit(&agent, "lab", "max_per_call_units").await, 7);
    assert_eq!(world.budgets(&agent).await[0].1, 60);

    // The default template applies if the creator specifies neither limits nor a template.
    let none = world.new_agent(json!({"name": "b"})).await;
    assert_eq!(none["template"], Value::Null);
    let body = json!({"services": {"lab": {"max_per_call_units": 7}}, "default": true});
    world.put(OWNER, PATH, Some("*"), body).await;
    let default = world.new_agent(json!({"name": "c"})).await;
    assert_eq!(default["template"]["name"], "research");
    assert_eq!(world.limit(&id(&default), "lab", "max_per_call_units").await, 7);
    let safe = world.new_agent(json!({"name": "d", "limits": "safe"})).await;
    assert_eq!(safe["template"], Value::Null);
    assert_eq!(world.limit(&id(&safe), "lab", "max_per_call_units").await, 1_000_000);
    let theirs = world.agent("bob").await;
    let theirs = world.get("bob", &format!("/agents/{theirs}")).await.ok();
    assert_eq!(theirs["template"], Value::Null);
    let refused = async |body: Value| {
        let answer = world.call(OWNER, "POST", "/agents", None, Some(body)).await;
        (answer.status, answer.body["details"][0]["path"].clone())
    };
    for body in [
        json!({"name": "e", "template": "none-such"}),
        json!({"name": "e", "template": "research", "limits": "safe"}),
        json!({"name": "e", "template": "No"}),
    ] {
        assert_eq!(refused(body).await, (400, json!("/template")));
    }
    for template in [
        json!({"act": "follow"}),
        json!({"act": "follow", "template": "none-such"}),
    ] {
        let mut body = template;
        body["agents"] = json!({"kind": "all"});
        let answer = world.call(OWNER, "POST", "/agents/bulk", None, Some(body)).await;
        assert_eq!(
            (answer.status, &answer.body["details"][0]["path"]),
            (400, &json!("/template"))
        );
    }
}

/// The error is the same as for an agent that does not exist.
#[tokio::test]
async fn a_template_cannot_be_applied_to_other_users_agents() {
    let world = World::start().await;
    world
        .template(json!({"*": {"max_per_day_units": 5}}), Value::Null)
        .await;
    let theirs = world.agent("bob").await;
    assert_eq!(
        world.follow(&theirs, json!("research")).await["error"]["error"],
        "not_found"
    );
    let ids = json!({"agents": {"kind": "ids", "ids": [theirs]}});
    for query in ["", "?preview=true"] {
        assert_eq!(world.apply(query, ids.clone()).await[0]["error"]["error"], "not_found");
    }
    let untouched = world
        .ledger
        .read_agent_by_id(AgentId::parse(&theirs).unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (untouched.version, untouched.status, untouched.template),
        (1, AgentStatus::Active, None)
    );
    let many: Vec<String> = (0..26).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
    for (body, path) in [
        (json!({"agents": {"kind": "ids", "ids": many}}), "/agents/ids"),
        (json!({"overrides": "lose"}), "/overrides"),
    ] {
        let answer = world
            .call(OWNER, "POST", &format!("{PATH}/apply"), None, Some(body))
            .await;
        assert_eq!((answer.status, &answer.body["details"][0]["path"]), (400, &json!(path)));
    }
}

/// The database fails at each write in turn. A repeated call loses no override and adds none.
#[tokio::test]
async fn an_interrupted_template_application_is_continued() {
    for failing in 0..6 {
        let world = World::start().await;
        let agent = world.agent(OWNER).await;
        world
            .template(json!({"*": {"max_per_call_units": 5}}), json!([budget(50)]))
            .await;
        world.follow(&agent, json!("research")).await;
        let path = format!("/agents/{agent}/services/maps");
        world
            .edit(OWNER, "PATCH", &path, json!({"max_per_call_units": 3}))
            .await
            .ok();
        world
            .template(json!({"*": {"max_per_call_units": 4}}), json!([budget(40)]))
            .await;
        world.catch_up().await;
        let (mut writes, denied) = (
            0,
            json!({"__type": "com.amazonaws.dynamodb.v20120810#AccessDeniedException"}),
        );
        world.proxy.follow(move |step| {
            if step.moment != Moment::Arrived || !step.call.starts_with("TransactWriteItems") {
                return Fate::PassOn;
            }
            writes += 1;
            if writes > failing {
                Fate::Answer(400, denied.clone())
            } else {
                Fate::PassOn
            }
        });
        world
            .call(OWNER, "POST", &format!("{PATH}/apply"), None, Some(json!({})))
            .await;
        world.proxy.behave();
        // The template is updated before the next call.
        world
            .template(json!({"*": {"max_per_call_units": 6}}), json!([budget(60)]))
            .await;
        let rows = world.apply("", json!({})).await;
        assert_eq!(rows[0]["outcome"], "done", "{failing}: {rows:?}");
        assert_eq!(world.limit(&agent, "lab", "max_per_call_units").await, 6, "{failing}");
        assert_eq!(world.limit(&agent, "maps", "max_per_call_units").await, 3, "{failing}");
        let budgets = world.budgets(&agent).await;
        assert_eq!((budgets.len(), budgets[0].1), (1, 60), "{failing}");
        assert_eq!(world.apply("", json!({})).await[0]["outcome"], "unchanged", "{failing}");
    }
}

/// The pages work without JavaScript.
#[tokio::test]
async fn templates_can_be_created_applied_and_removed_by_form() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut owner = world.browser(OWNER).await;
    let (list, page) = ("/dashboard/templates", "/dashboard/templates/research");
    owner
        .get("/dashboard/agents")
        .await
        .is(200, "href=\"/dashboard/templates\"");
    owner.get(list).await.is(200, "You have no template yet.");
    let wrong = [("name", "Research"), ("limits", r#"{"services": {"nowhere": {}}}"#)];
    let seen = owner.post(list, list, &wrong).await;
    seen.is(400, "/services/nowhere");
    seen.is(400, "Name: must be");
    let limits = r#"{"services": {"*": {"max_per_day_units": 5}}}"#;
    let made = owner
        .post(list, list, &[("name", "research"), ("limits", limits)])
        .await;
    assert_eq!(made.leads(), format!("{page}?notice=template_saved"));
    let again = owner
        .post(list, list, &[("name", "research"), ("limits", limits)])
        .await;
    again.is(400, "Name: another template has it.");

    let (agents, bulk) = ("/dashboard/agents", "/dashboard/agents/bulk");
    let ask = owner
        .post(agents, bulk, &[("agent", &agent), ("act", "template")])
        .await;
    ask.is(200, "<option value=\"research\">");
    let follow = [("agent", agent.as_str()), ("act", "follow"), ("template", "research")];
    let followed = owner.post(agents, bulk, &follow).await;
    assert!(followed.leads().contains("act=updated&done=1"), "{}", followed.leads());
    assert_eq!(world.limit(&agent, "lab", "max_per_day_units").await, 5);
    let of_agent = format!("/dashboard/agents/{agent}");
    owner.get(&of_agent).await.is(200, &format!("href=\"{page}\""));

    world.limited(&agent, "maps", json!({"max_per_day_units": 3})).await;
    let seen = owner.get(page).await;
    seen.is(200, "0 limits to change, 1 override");
    let version = seen.input("version");
    let edit = [
        ("version", version.as_str()),
        ("limits", r#"{"services": {"*": {"max_per_day_units": 4}}}"#),
    ];
    assert_eq!(
        owner.post(page, page, &edit).await.leads(),
        format!("{page}?notice=template_saved")
    );
    owner
        .post(page, page, &edit)
        .await
        .is(412, "The template was edited after you opened the page");
    let seen = owner.get(page).await;
    seen.is(200, "1 limit to change, 1 override, narrows");
    for (service, own) in [("lab", 5), ("maps", 3)] {
        let value = |units: u64| format!("<code class=\"long\">{units}</code>");
        let (own, new) = (value(own), value(4));
        seen.is(
            200,
            &format!("<dt>services/{service}/max_per_day_units</dt><dd>{own} → {new}</dd>"),
        );
    }
    let apply = format!("{page}/apply");
    let applied = owner.post(page, &apply, &[("overrides", "keep")]).await;
    assert_eq!(applied.leads(), format!("{page}?act=applied&done=1"));
    owner
        .get(&format!("{page}?act=applied&done=1"))
        .await
        .is(200, "The template was applied to 1 agent.");
    assert_eq!(world.limit(&agent, "lab", "max_per_day_units").await, 4);
    assert_eq!(world.limit(&agent, "maps", "max_per_day_units").await, 3);

    let mut bob = world.browser("bob").await;
    assert_eq!(bob.get(page).await.status, 404);
    assert_eq!(
        bob.post("/dashboard", &apply, &[("overrides", "keep")]).await.status,
        404
    );
    let remove = format!("{page}/remove");
    assert_eq!(owner.get(&remove).await.leads(), page);
    let version = owner.get(page).await.input("version");
    let removed = owner.post(page, &remove, &[("version", &version)]).await;
    assert_eq!(removed.leads(), format!("{list}?notice=template_removed"));
}

/// A new agent starts with the default template.
#[tokio::test]
async fn a_template_form_can_start_from_an_agents_limits() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    world.limited(&agent, "lab", json!({"max_per_call_units": 77})).await;
    let mut owner = world.browser(OWNER).await;
    let offer = format!("/dashboard/templates?agent_id={agent}");
    owner
        .get(&format!("/dashboard/agents/{agent}"))
        .await
        .is(200, &format!("href=\"{offer}\""));
    owner.get(&offer).await.is(200, "&quot;max_per_call_units&quot;: 77");
    let mut bob = world.browser("bob").await;
    assert_eq!(bob.get(&offer).await.status, 404);

    let fields = [("name", "new"), ("limits", "template")];
    let refused = owner.post("/dashboard", "/dashboard/agents", &fields).await;
    refused.is(400, "Limits: you have no default policy template.");
    let body = json!({"services": {"lab": {"max_per_call_units": 7}}, "default": true});
    world.put(OWNER, PATH, None, body).await;
    let made = owner.post("/dashboard", "/dashboard/agents", &fields).await;
    let made = made.leads().split(['/', '?']).nth(3).unwrap();
    assert_eq!(world.limit(made, "lab", "max_per_call_units").await, 7);
}
