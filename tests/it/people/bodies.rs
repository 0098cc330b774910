//! Wrong bodies of a person's writes: each gets every problem at once, by path, and nothing moves.

use super::{Household, NOTHING};
use purser_tests::{World, body_of, dollars, fresh_key, paths};
use reqwest::Method;
use serde_json::{Value, json};

/// How many bytes a body may have.
const LIMIT: usize = 65_536;

/// A write, a body that it takes, and bodies that it does not with the paths of what is wrong with them.
struct Write {
    method: Method,
    below: String,
    good: Value,
    wrong: Vec<(Value, Vec<&'static str>)>,
}

/// What is no name.
fn no_names() -> Vec<Value> {
    let texts = ["", "   ", "a\nb", "\u{0}", "a\u{7f}", "a\u{85}b", "\t"].map(|text| json!(text));
    let others = [
        json!("x".repeat(101)),
        json!("\u{1f4a1}".repeat(101)),
        json!(7),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
    ];
    [texts.to_vec(), others.to_vec()].concat()
}

/// What is no amount: each is a problem of its own.
fn no_amounts() -> Vec<Value> {
    vec![
        json!(-1),
        json!(0.5),
        json!(1.0),
        json!(1e3),
        json!("1"),
        json!(true),
        json!([1]),
        json!({"units": 1}),
        json!(9_007_199_254_740_992_u64),
        json!(u64::MAX),
        json!(i64::MIN),
    ]
}

fn no_bools() -> Vec<Value> {
    vec![json!("true"), json!(1), json!(0), json!([]), json!({})]
}

fn each(values: Vec<Value>, of: impl Fn(Value) -> Value, path: &'static str) -> Vec<(Value, Vec<&'static str>)> {
    values.into_iter().map(|value| (of(value), vec![path])).collect()
}

fn agents() -> Write {
    let mut wrong = each(no_names(), |name| json!({"name": name}), "/name");
    wrong.push((
        json!({"name": 7, "owner": "me", "status": "active", "wallet_address": null, "a/b~c": 1, "": 2}),
        vec!["/", "/a~1b~0c", "/name", "/owner", "/status", "/wallet_address"],
    ));
    Write {
        method: Method::POST,
        below: String::new(),
        good: json!({"name": "x"}),
        wrong,
    }
}

fn agent() -> Write {
    let mut wrong = each(no_names(), |name| json!({"name": name}), "/name");
    let no_statuses = ["", "Frozen", "frozen ", "deleted", "pending"]
        .map(|text| json!(text))
        .to_vec();
    wrong.extend(each(no_statuses, |status| json!({"status": status}), "/status"));
    wrong.extend(each(no_bools(), |status| json!({"status": status}), "/status"));
    wrong.extend([
        (json!({}), vec![""]),
        (json!({"name": null, "status": null}), vec![""]),
        (
            json!({"name": "", "status": 1, "owner": "me", "version": 3}),
            vec!["/name", "/owner", "/status", "/version"],
        ),
    ]);
    Write {
        method: Method::PATCH,
        below: String::new(),
        good: json!({"name": "x"}),
        wrong,
    }
}

fn keys() -> Write {
    Write {
        method: Method::POST,
        below: "/keys".to_owned(),
        good: json!({}),
        wrong: vec![(json!({"name": "x", "expires_at": null}), vec!["/expires_at", "/name"])],
    }
}

fn rotation(key: &str) -> Write {
    let mut no_seconds = no_amounts();
    no_seconds.extend([json!(2_592_001), json!(4_294_967_296_u64)]);
    let mut wrong = each(
        no_seconds,
        |seconds| json!({"overlap_seconds": seconds}),
        "/overlap_seconds",
    );
    wrong.push((
        json!({"overlap_seconds": -1, "overlap": 0}),
        vec!["/overlap", "/overlap_seconds"],
    ));
    Write {
        method: Method::POST,
        below: format!("/keys/{key}/rotate"),
        good: json!({"overlap_seconds": 2_592_000}),
        wrong,
    }
}

/// The problems that a policy can have, below `base`.
fn policies(base: &Value) -> Vec<(Value, Vec<&'static str>)> {
    let with = |name: &str, value: Value| {
        let mut body = base.clone();
        body[name] = value;
        body
    };
    let mut wrong = Vec::new();
    let caps = [
        ("max_per_call_units", "/max_per_call_units"),
        ("max_per_day_units", "/max_per_day_units"),
        ("require_approval_above_units", "/require_approval_above_units"),
    ];
    for (name, path) in caps {
        wrong.extend(each(no_amounts(), |value| with(name, value), path));
    }
    let no_lists = || vec![json!("web.search"), json!(7), json!(true), json!({})];
    wrong.extend(each(
        no_lists(),
        |value| with("enabled_operations", value),
        "/enabled_operations",
    ));
    wrong.extend(each(
        no_lists(),
        |value| with("allowed_domains", value),
        "/allowed_domains",
    ));
    let operations = |list: Value| with("enabled_operations", list);
    let domains = |list: Value| with("allowed_domains", list);
    wrong.extend([
        (
            operations(json!(["web.search", "web.search"])),
            vec!["/enabled_operations/1"],
        ),
        (operations(json!(["web.scrape"])), vec!["/enabled_operations/0"]),
        (
            operations(json!(["web.search", "Web.search", 7, null, ""])),
            vec![
                "/enabled_operations/1",
                "/enabled_operations/2",
                "/enabled_operations/3",
                "/enabled_operations/4",
            ],
        ),
        (
            domains(json!([
                "example.com",
                "https://example.com",
                "exa mple.com",
                "",
                7,
                null,
                "a..b"
            ])),
            vec![
                "/allowed_domains/1",
                "/allowed_domains/2",
                "/allowed_domains/3",
                "/allowed_domains/4",
                "/allowed_domains/5",
                "/allowed_domains/6",
            ],
        ),
        (domains(json!(vec!["example.com"; 101])), vec!["/allowed_domains"]),
        (domains(Value::Null), vec!["/allowed_domains"]),
    ]);
    let mut all = base.clone();
    for (name, value) in [
        ("max_per_call_units", json!(-1)),
        ("max_per_day_units", json!("9")),
        ("require_approval_above_units", json!(1.5)),
        ("enabled_operations", json!(["nonsense"])),
        ("allowed_domains", json!([7])),
        ("allowedDomains", json!([])),
        ("max_per_month_units", json!(1)),
    ] {
        all[name] = value;
    }
    let every = vec![
        "/allowedDomains",
        "/allowed_domains/0",
        "/enabled_operations/0",
        "/max_per_call_units",
        "/max_per_day_units",
        "/max_per_month_units",
        "/require_approval_above_units",
    ];
    wrong.push((all, every));
    wrong
}

fn enabling() -> Write {
    let no_references = [
        json!(""),
        json!("x".repeat(129)),
        json!("lab\nsearch"),
        json!(7),
        json!(true),
        json!([]),
        json!({}),
    ];
    let mut wrong = policies(&json!({"service_id": "lab-search"}));
    wrong.extend(each(
        no_references.to_vec(),
        |service| json!({"service_id": service}),
        "/service_id",
    ));
    wrong.push((
        json!({"service_id": 7, "enabled": true, "max_per_call_units": -1}),
        vec!["/enabled", "/max_per_call_units", "/service_id"],
    ));
    // What is wrong with the body is told before what is not there.
    wrong.push((
        json!({"service_id": "no-such-service", "max_per_day_units": 0.1}),
        vec!["/max_per_day_units"],
    ));
    Write {
        method: Method::POST,
        below: "/services".to_owned(),
        good: json!({"service_id": "lab-search"}),
        wrong,
    }
}

fn service() -> Write {
    let mut wrong = policies(&json!({"enabled": false}));
    wrong.extend(each(no_bools(), |enabled| json!({"enabled": enabled}), "/enabled"));
    wrong.extend([
        (json!({}), vec![""]),
        (json!({"enabled": null}), vec![""]),
        (
            json!({"enabled": 1, "service_id": "lab-search", "version": 1}),
            vec!["/enabled", "/service_id", "/version"],
        ),
    ]);
    Write {
        method: Method::PATCH,
        below: "/services/lab-search".to_owned(),
        good: json!({"enabled": true}),
        wrong,
    }
}

/// The problems that a rule can have.
fn rules() -> Vec<(Value, Vec<&'static str>)> {
    let kinds = [
        json!(""),
        json!("Category_block"),
        json!("budget"),
        json!(7),
        json!([]),
        json!({}),
        json!(true),
    ];
    let mut wrong = each(kinds.to_vec(), |kind| json!({"kind": kind}), "/kind");
    let block = |categories: Value| json!({"kind": "category_block", "categories": categories});
    let budget =
        |limit: Value, window: Value| json!({"kind": "budget_limit", "limit_units": limit, "window_seconds": window});
    wrong.extend(each(no_amounts(), |limit| budget(limit, json!(3_600)), "/limit_units"));
    let mut no_windows = no_amounts();
    no_windows.extend([
        json!(0),
        json!(3_599),
        json!(2_678_401),
        json!(4_294_967_296_u64 + 3_600),
    ]);
    wrong.extend(each(no_windows, |window| budget(json!(1), window), "/window_seconds"));
    wrong.extend(each(no_bools(), block, "/categories"));
    let fifty_one: Vec<String> = (1..52).map(|n| format!("0x{n:040x}")).collect();
    wrong.extend([
        (block(json!([])), vec!["/categories"]),
        (block(json!(["finance", "finance"])), vec!["/categories/1"]),
        (block(json!(["finance", "Finance", 7, null])), vec!["/categories/1", "/categories/2", "/categories/3"]),
        (
            json!({"kind": "category_block", "categories": ["x"], "services": ["lab-search"], "rule_id": "x"}),
            vec!["/categories/0", "/rule_id", "/services"],
        ),
        (json!({"kind": "vendor_allowlist"}), vec![""]),
        (json!({"kind": "vendor_allowlist", "services": [], "wallets": null}), vec![""]),
        (
            json!({"kind": "vendor_allowlist", "services": ["lab-search", "no-such", "lab-search", "LAB", 7], "wallets": ["0x1", 7]}),
            vec!["/services/3", "/services/4", "/wallets/0", "/wallets/1"],
        ),
        (
            json!({"kind": "vendor_allowlist", "services": ["lab-search", "no-such", "lab-search"]}),
            vec!["/services/1", "/services/2"],
        ),
        (json!({"kind": "vendor_allowlist", "services": "lab-search", "vendors": []}), vec!["/services", "/vendors"]),
        (json!({"kind": "vendor_allowlist", "wallets": fifty_one}), vec!["/wallets"]),
        (budget(json!(-1), json!(1.5)), vec!["/limit_units", "/window_seconds"]),
        (
            json!({"kind": "budget_limit", "limit_units": "1", "window_seconds": 1, "window": "day"}),
            vec!["/limit_units", "/window", "/window_seconds"],
        ),
        (
            json!({"kind": "approval_required", "services": [], "categories": [], "above_units": -1, "above": 1}),
            vec!["/above", "/above_units", "/categories", "/services"],
        ),
        (
            json!({"kind": "approval_required", "services": ["no-such"], "categories": ["no-such"]}),
            vec!["/categories/0", "/services/0"],
        ),
    ]);
    wrong
}

fn verdict(approval: &str, word: &str) -> Write {
    let no_notes = [
        json!(7),
        json!(true),
        json!([]),
        json!({}),
        json!("x".repeat(501)),
        json!("a\u{0}b"),
        json!("\u{1b}[31m"),
    ];
    let mut wrong = each(no_notes.to_vec(), |note| json!({"note": note}), "/note");
    wrong.push((
        json!({"note": 7, "Note": "x", "reason": "x", "verdict": "approve"}),
        vec!["/Note", "/note", "/reason", "/verdict"],
    ));
    Write {
        method: Method::POST,
        below: format!("/approvals/{approval}/{word}"),
        good: json!({"note": "x".repeat(500)}),
        wrong,
    }
}

/// A household whose agent has a rule and a question, and every write that takes a body.
async fn ground() -> (Household, Vec<Write>) {
    let home = Household::in_world(World::start().await).await;
    home.set_policy(json!({"require_approval_above_units": dollars(5)}))
        .await;
    let asked = home
        .world
        .authorize(&home.agent, &body_of(home.world.offer(dollars(6))))
        .await;
    let asked = asked.refused(402, "approval_required");
    let rule = json!({"kind": "category_block", "categories": ["finance"]});
    let rule = home.edit(Method::POST, "/rules", rule).await.created();
    let (approval, rule) = (
        asked["approval_id"].as_str().unwrap(),
        rule["rule_id"].as_str().unwrap(),
    );
    let good = json!({"kind": "category_block", "categories": ["ai"]});
    let other_kind = (json!({"kind": "approval_required"}), vec!["/kind"]);
    let writes = vec![
        agents(),
        agent(),
        keys(),
        rotation(home.agent.key_id()),
        enabling(),
        service(),
        Write {
            method: Method::POST,
            below: "/rules".to_owned(),
            good: good.clone(),
            wrong: rules(),
        },
        Write {
            method: Method::PUT,
            below: format!("/rules/{rule}"),
            good,
            wrong: [vec![other_kind], rules()].concat(),
        },
        verdict(approval, "approve"),
        verdict(approval, "reject"),
    ];
    (home, writes)
}

impl Write {
    fn path(&self, home: &Household) -> String {
        if self.method == Method::POST && self.below.is_empty() {
            "/agents".to_owned()
        } else {
            home.agent.path(&self.below)
        }
    }

    /// Sends these bytes, for whatever version is there.
    async fn send(&self, home: &Household, bytes: impl Into<Vec<u8>>) -> purser_tests::Answer {
        let request = home
            .world
            .persons_edit(&home.kim, self.method.clone(), &self.path(home), "*");
        World::send(request.body(bytes.into())).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_body_is_told_every_problem_at_once_and_changes_nothing() {
    let (home, writes) = ground().await;
    let before = home.world.rows().await;
    let mut rows = 0;
    for write in &writes {
        for (body, expected) in &write.wrong {
            let shown = format!("{} {} {body}", write.method, write.below);
            let answer = write.send(&home, body.to_string()).await;
            assert_eq!(paths(answer, &shown), *expected, "{shown}");
            rows += 1;
        }
    }
    assert!(rows > 250, "{rows}");
    assert_eq!(home.world.rows().await.changes_since(&before), NOTHING);
    // The form is judged before the version, and the version's form with it.
    for write in writes
        .iter()
        .filter(|write| !write.below.contains("approvals") && !write.path(&home).ends_with("/agents"))
    {
        let (body, expected) = write.wrong.last().unwrap();
        let send = async |if_match: &str| {
            let path = write.path(&home);
            home.world
                .person_edits_version(&home.kim, write.method.clone(), &path, if_match, body)
                .await
        };
        assert_eq!(paths(send("\"99\"").await, &write.below), *expected);
        let mut with_version = [&["/If-Match"], expected.as_slice()].concat();
        with_version.sort_unstable();
        let mut told = paths(send("99").await, &write.below);
        told.sort_unstable();
        assert_eq!(told, with_version, "{}", write.below);
    }
    assert_eq!(home.world.rows().await.changes_since(&before), NOTHING);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_member_is_named_by_its_own_error() {
    let home = Household::in_world(World::start().await).await;
    let before = home.world.rows().await;
    let rotate = format!("/keys/{}/rotate", home.agent.key_id());
    let rows = [
        ("/agents".to_owned(), json!({}), "name_required"),
        ("/agents".to_owned(), json!({"name": null, "owner": 7}), "name_required"),
        (home.agent.path(&rotate), json!({}), "overlap_seconds_required"),
        (
            home.agent.path("/services"),
            json!({"max_per_call_units": -1}),
            "service_id_required",
        ),
        (home.agent.path("/rules"), json!({}), "kind_required"),
        (
            home.agent.path("/rules"),
            json!({"kind": null, "categories": []}),
            "kind_required",
        ),
        (
            home.agent.path("/rules"),
            json!({"kind": "category_block"}),
            "categories_required",
        ),
        (
            home.agent.path("/rules"),
            json!({"kind": "budget_limit", "window_seconds": 0}),
            "limit_units_required",
        ),
        (
            home.agent.path("/rules"),
            json!({"kind": "budget_limit", "limit_units": 1}),
            "window_seconds_required",
        ),
    ];
    for (path, body, slug) in rows {
        let answer = home.world.person_edits(&home.kim, Method::POST, &path, &body).await;
        answer.refused(400, slug);
    }
    assert_eq!(home.world.rows().await.changes_since(&before), NOTHING);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_document_or_no_object_is_refused_everywhere() {
    let (home, writes) = ground().await;
    let before = home.world.rows().await;
    for write in &writes {
        let good = write.good.to_string();
        let shown = format!("{} {}", write.method, write.below);
        let repeated = if write.good.as_object().unwrap().is_empty() {
            r#"{"a": 1, "a": 1}"#.to_owned()
        } else {
            // The same member with the same value once more: two readers may still see two documents.
            format!("{},{}", good.trim_end_matches('}'), good.trim_start_matches('{'))
        };
        let mut documents: Vec<Vec<u8>> = [
            "null",
            "[]",
            "7",
            "\"x\"",
            "true",
            "{",
            "{}{}",
            "{\"name\": 1e400}",
            "{'name': 1}",
            "{\"name\": NaN}",
            "{\"a\": 1,}",
            "\u{feff}{}",
            " ",
        ]
        .map(|text| text.as_bytes().to_vec())
        .into();
        documents.extend([
            repeated.into_bytes(),
            format!("[{good}]").into_bytes(),
            format!("{good}x").into_bytes(),
            format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)).into_bytes(),
            b"{\"name\": \"\xff\"}".to_vec(),
            b"{\"name\": \"\\ud800\"}".to_vec(),
        ]);
        for document in documents {
            let text = String::from_utf8_lossy(&document).chars().take(80).collect::<String>();
            let answer = write.send(&home, document).await;
            assert_eq!(paths(answer, &format!("{shown} {text}")), [""], "{shown} {text}");
        }
        let huge = format!("{good}{}", " ".repeat(LIMIT + 1 - good.len()));
        assert_eq!(
            write.send(&home, huge).await.refused(413, "request_too_large")["limit_bytes"],
            LIMIT
        );
    }
    assert_eq!(home.world.rows().await.changes_since(&before), NOTHING);
    // The same bodies, whole, are taken: nothing else about these requests was wrong.
    for write in &writes {
        let answer = write.send(&home, write.good.to_string()).await;
        let again = (write.below.ends_with("/reject"), answer.status);
        assert!(
            [(false, 200), (false, 201), (true, 409)].contains(&again),
            "{}: {}",
            write.below,
            answer.body
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_names_nothing_is_not_found_whatever_is_sent() {
    let home = Household::in_world(World::start().await).await;
    let before = home.world.rows().await;
    let own = home.agent.id.to_string();
    let names = [
        fresh_key(),
        own.replace('-', ""),
        "x".to_owned(),
        "%00".to_owned(),
        "..".to_owned(),
    ];
    for name in names {
        for (method, below) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::GET, "/keys"),
            (Method::POST, "/keys"),
            (Method::POST, "/services"),
            (Method::POST, "/rules"),
            (Method::GET, "/wallet"),
        ] {
            let path = format!("/agents/{name}{below}");
            let answer = home
                .world
                .person_edits(&home.kim, method, &path, &json!({"nonsense": 1}))
                .await;
            answer.refused(404, "not_found");
        }
    }
    for below in [
        "/services/no-such",
        "/services/x%2fy",
        &format!("/services/{}", fresh_key()),
    ] {
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            home.edit(method, below, json!({"nonsense": 1}))
                .await
                .refused(404, "not_found");
        }
    }
    assert_eq!(home.world.rows().await.changes_since(&before), NOTHING);
}
