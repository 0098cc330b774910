//! The pages: who may see them, their headers, and what their forms do.

use crate::support::World;
use crate::support::browser::Browser;
use axum::http::{Method, header};
use purser_testkit::{authorize::Answer as Told, sample::OWNER};
use serde_json::json;

impl World {
    async fn version(&self, agent: &str) -> String {
        let agent = self.get(OWNER, &format!("/agents/{agent}")).await.ok();
        agent["version"].to_string()
    }

    /// The owner's agent with a payment that waits, and its approval.
    async fn waiting(&self) -> (String, String) {
        let agent = self.agent(OWNER).await;
        let path = format!("/agents/{agent}/services/lab");
        let policy = json!({"max_per_day_units": 100, "require_approval_above_units": 10});
        self.edit(OWNER, "PATCH", &path, policy).await.ok();
        match self.pay(&agent, 20, "k").await {
            Told::Waits(approval) => (agent, approval.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

fn pages_of(agent: &str) -> Vec<String> {
    let zero = "00000000-0000-0000-0000-000000000000";
    vec![
        "/dashboard".to_owned(),
        "/dashboard/approvals".to_owned(),
        "/dashboard/decisions".to_owned(),
        format!("/dashboard/agents/{agent}"),
        format!("/dashboard/receipts/{agent}/{zero}"),
        "/dashboard/nowhere".to_owned(),
    ]
}

#[tokio::test]
async fn every_page_is_sent_with_its_policy_and_stored_nowhere() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut paths = pages_of(&agent);
    paths.extend(["/dashboard/sign-in", "/dashboard/approvals/waiting"].map(str::to_owned));
    for browser in [&mut world.stranger(), &mut world.browser(OWNER)] {
        for path in &paths {
            let seen = browser.get(path).await;
            let csp = seen.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            for part in [
                "default-src 'none'",
                "script-src 'self'",
                "form-action 'self'",
                "frame-ancestors 'none'",
            ] {
                assert!(csp.contains(part), "{path}: {csp}");
            }
            assert!(!csp.contains("unsafe"), "{csp}");
            assert_eq!(seen.headers[header::CACHE_CONTROL], "no-store", "{path}");
            assert_eq!(seen.headers[header::X_FRAME_OPTIONS], "DENY");
            assert_eq!(seen.headers[header::REFERRER_POLICY], "same-origin");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_or_another_s_is_one_page() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let mut bob = world.browser("bob");
    let theirs = [
        format!("/dashboard/agents/{agent}"),
        format!("/dashboard/receipts/{agent}/00000000-0000-0000-0000-000000000000"),
        format!("/dashboard/decisions?agent_id={agent}"),
        "/dashboard/agents/x".to_owned(),
        "/dashboard/nowhere".to_owned(),
    ];
    for path in theirs {
        let seen = bob.get(&path).await;
        seen.is(404, "There is no such page, or it is not yours to see.");
        assert!(
            seen.html.starts_with("<!DOCTYPE html>") && !seen.html.contains("buyer"),
            "{path}"
        );
    }
    for form in ["freeze", "keys", "services", "rules", "rename"] {
        let seen = bob
            .post(
                "/dashboard",
                &format!("/dashboard/agents/{agent}/{form}"),
                &[("version", "1")],
            )
            .await;
        assert_eq!(seen.status, 404, "{form}");
    }
    assert_eq!(world.version(&agent).await, "1");
}

#[tokio::test]
async fn the_style_and_the_script_need_nobody_signed_in_and_are_kept() {
    let world = World::start().await;
    let mut browser = world.stranger();
    let page = browser.get("/dashboard/sign-in").await;
    for (attribute, kind) in [
        ("href=\"/dashboard/style.css", "text/css"),
        ("src=\"/dashboard/script.js", "text/javascript"),
    ] {
        let (_, rest) = page.html.split_once(attribute).unwrap();
        let path = attribute.split_once('"').unwrap().1.to_owned() + rest.split('"').next().unwrap();
        let seen = browser.get(&path).await;
        assert_eq!(seen.status, 200);
        assert!(seen.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(kind));
        assert!(
            seen.headers[header::CACHE_CONTROL]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        let tag = seen.headers[header::ETAG].to_str().unwrap().to_owned();
        let again = browser
            .send(Method::GET, &path, &[("if-none-match", &tag)], String::new())
            .await;
        assert_eq!((again.status, again.html.len()), (304, 0));
    }
}

#[tokio::test]
async fn a_key_is_shown_on_one_page_and_a_reload_makes_no_other() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER);
    let created = owner
        .post("/dashboard", "/dashboard/agents", &[("name", " Night <shift> ")])
        .await;
    let page = created.leads().split('?').next().unwrap().to_owned();
    let agent = page.rsplit('/').next().unwrap().to_owned();
    owner.get(created.leads()).await.is(200, "Night &lt;shift&gt;");

    let keys = format!("{page}/keys");
    let shown = owner.post(&page, &keys, &[("version", "1")]).await;
    shown.is(200, "Copy it now");
    let (_, rest) = shown.html.split_once("gak_sec_").unwrap();
    let secret = rest.get(..64).unwrap();
    assert!(secret.bytes().all(|byte| byte.is_ascii_hexdigit()));

    let reloaded = owner.post(&page, &keys, &[("version", "1")]).await;
    reloaded.is(412, "changed elsewhere");
    assert!(!reloaded.html.contains("data-new-key"));
    for path in pages_of(&agent) {
        assert!(!owner.get(&path).await.html.contains(secret), "{path}");
    }
    let listed = world.get(OWNER, &format!("/agents/{agent}/keys")).await.ok();
    assert_eq!(listed["count"], 1);

    let key = listed["keys"][0]["key_id"].as_str().unwrap();
    let rotated = owner
        .post(
            &page,
            &format!("{keys}/{key}/rotate"),
            &[("version", "2"), ("overlap_seconds", "3600")],
        )
        .await;
    rotated.is(200, "Copy it now");
    // A revocation sends no version, so it can't be too late.
    let revoked = owner.post(&page, &format!("{keys}/{key}/revoke"), &[]).await;
    assert_eq!(revoked.leads(), format!("{page}?notice=key_revoked"));
    let listed = world.get(OWNER, &format!("/agents/{agent}/keys")).await.ok();
    let statuses: Vec<&str> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["active", "ended"]);
}

#[tokio::test]
async fn a_policy_is_saved_whole_or_everything_that_is_wrong_is_told_with_what_was_typed() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let record = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    let page = format!("/dashboard/agents/{agent}");
    let form = format!("{page}/services/{}", record["service_id"].as_str().unwrap());
    let mut owner = world.browser(OWNER);
    owner
        .get(&page)
        .await
        .is(200, "<strong>No limit</strong> on 2 of its services");

    let wrong = [
        ("version", "1"),
        ("max_per_call", "1,5"),
        ("max_per_day", "20"),
        ("require_approval_above", "2"),
        ("require_approval_above_no_limit", "yes"),
        ("operations", "some"),
        ("allowed_domains", "*"),
    ];
    let seen = owner.post(&page, &form, &wrong).await;
    seen.is(400, "Nothing was saved.");
    for text in [
        "“1,5” is not an amount in dollars",
        "both an amount and its box",
        "choose at least one",
        "value=\"1,5\"",
    ] {
        assert!(seen.html.contains(text), "{text}");
    }
    let unchanged = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    assert_eq!(unchanged, record);

    let right = [
        ("version", "1"),
        ("max_per_call", "$1.5"),
        ("max_per_day", "20"),
        ("require_approval_above", ""),
        ("require_approval_above_no_limit", "yes"),
        ("operations", "some"),
        ("operation", "lab.current"),
        ("allowed_domains", "example.com"),
    ];
    let saved = owner.post(&page, &form, &right).await;
    assert_eq!(saved.leads(), format!("{page}?notice=policy_saved"));
    let changed = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    let policy = json!({
        "max_per_call_units": 1_500_000, "max_per_day_units": 20_000_000,
        "require_approval_above_units": 10_000_000_000_000_u64,
        "enabled_operations": ["lab.current"], "allowed_domains": ["example.com"],
    });
    assert_eq!((&changed["policy"], &changed["version"]), (&policy, &json!(2)));
    // The form of a page that was opened before.
    owner.post(&page, &form, &right).await.is(412, "changed elsewhere");
    let after = world.get(OWNER, &format!("/agents/{agent}/services/lab")).await.ok();
    assert_eq!(after, changed);
}

#[tokio::test]
async fn services_are_switched_off_and_on_and_only_open_ones_are_enabled() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER);
    let id_of = async |slug: &str| {
        let service = world.get(OWNER, &format!("/agents/{agent}/services/{slug}")).await.ok();
        service["service_id"].as_str().unwrap().to_owned()
    };
    let lab = id_of("lab").await;
    let off = owner
        .post(&page, &format!("{page}/services/{lab}/disable"), &[("version", "1")])
        .await;
    assert_eq!(off.leads(), format!("{page}?notice=service_disabled"));
    owner.get(&page).await.is(200, "1 disabled service");
    let on = owner
        .post(&page, &format!("{page}/services/{lab}/enable"), &[("version", "2")])
        .await;
    assert_eq!(on.leads(), format!("{page}?notice=service_enabled"));

    // `shed` is in the catalog and not in the curated set.
    let shed = lab.replace("000000000001", "000000000003");
    let fields = [
        ("service_id", shed.as_str()),
        ("max_per_call", "1"),
        ("max_per_day", "1"),
        ("require_approval_above", "1"),
        ("operations", "all"),
        ("allowed_domains", "*"),
    ];
    owner
        .post(&page, &format!("{page}/services"), &fields)
        .await
        .is(404, "not offered any more");
}

#[tokio::test]
async fn rules_are_added_changed_and_removed_by_form() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER);
    let rules = format!("{page}/rules");
    let wrong = [
        ("version", "1"),
        ("kind", "budget_limit"),
        ("limit", "x"),
        ("window", "40"),
        ("window_unit", "days"),
    ];
    let seen = owner.post(&page, &rules, &wrong).await;
    seen.is(400, "“x” is not an amount in dollars");
    assert!(seen.html.contains("Within: give a whole number from 1 to 31."));

    let budget = [
        ("version", "1"),
        ("kind", "budget_limit"),
        ("limit", "7"),
        ("window", "12"),
        ("window_unit", "hours"),
    ];
    assert_eq!(
        owner.post(&page, &rules, &budget).await.leads(),
        format!("{page}?notice=rule_added")
    );
    let listed = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
    let rule = &listed["rules"][0];
    assert_eq!(
        (&rule["limit_units"], &rule["window_seconds"]),
        (&json!(7_000_000), &json!(43_200))
    );
    let id = rule["rule_id"].as_str().unwrap();
    owner.get(&page).await.is(200, "in any 12 hours");

    let less = [
        ("version", "2"),
        ("kind", "budget_limit"),
        ("limit", "5"),
        ("window", "12"),
        ("window_unit", "hours"),
    ];
    assert_eq!(
        owner.post(&page, &format!("{rules}/{id}"), &less).await.leads(),
        format!("{page}?notice=rule_saved")
    );
    let gone = owner
        .post(&page, &format!("{rules}/{id}/remove"), &[("version", "3")])
        .await;
    assert_eq!(gone.leads(), format!("{page}?notice=rule_removed"));
    let listed = world.get(OWNER, &format!("/agents/{agent}/rules")).await.ok();
    assert_eq!(listed["rules"], json!([]));
}

#[tokio::test]
async fn a_freeze_needs_no_version_and_shows() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER);
    let renamed = owner
        .post(
            &page,
            &format!("{page}/rename"),
            &[("name", "Buyer 2"), ("version", "1")],
        )
        .await;
    assert_eq!(renamed.leads(), format!("{page}?notice=agent_renamed"));
    owner
        .post(
            &page,
            &format!("{page}/rename"),
            &[("name", "Buyer 3"), ("version", "1")],
        )
        .await
        .is(412, "value=\"Buyer 3\"");
    owner
        .post(&page, &format!("{page}/rename"), &[("name", " "), ("version", "2")])
        .await
        .is(400, "Name: must be a text");
    let frozen = owner.post(&page, &format!("{page}/freeze"), &[]).await;
    owner
        .get(frozen.leads())
        .await
        .is(200, "Every payment of this agent is refused");
    assert_eq!(
        owner.post(&page, &format!("{page}/unfreeze"), &[]).await.leads(),
        format!("{page}?notice=agent_unfrozen")
    );
}

async fn watched(browser: &mut Browser<'_>, tag: &str) -> (u16, String, String) {
    let seen = browser
        .send(
            Method::GET,
            "/dashboard/approvals/waiting",
            &[("if-none-match", tag)],
            String::new(),
        )
        .await;
    let tag = seen
        .headers
        .get(header::ETAG)
        .map(|tag| tag.to_str().unwrap().to_owned());
    (seen.status, tag.unwrap_or_default(), seen.html)
}

#[tokio::test]
async fn what_waits_appears_to_whoever_watches_and_is_decided_once() {
    let world = World::start().await;
    let mut owner = world.browser(OWNER);
    let (status, tag, html) = watched(&mut owner, "").await;
    assert!(status == 200 && html.contains("data-waiting=\"0\""), "{html}");
    assert_eq!(watched(&mut owner, &tag).await.0, 304);

    let (agent, approval) = world.waiting().await;
    let (status, _, html) = watched(&mut owner, &tag).await;
    assert_eq!(status, 200);
    for text in [
        "data-waiting=\"1\"",
        &format!("data-approval=\"{approval}\""),
        "$0.00002",
        "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
        "20 units",
        "$0.00001",
        "$0.0001",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    let (_, _, others) = watched(&mut world.browser("bob"), "").await;
    assert!(others.contains("data-waiting=\"0\""));

    let queue = "/dashboard/approvals";
    let path = format!("/dashboard/agents/{agent}/approvals/{approval}");
    let fields = [("approval_id", approval.as_str()), ("note", &"x".repeat(501))];
    let seen = owner.post(queue, &format!("{path}/approve"), &fields).await;
    seen.is(400, "Note: must be a text of at most 500 characters");
    assert!(seen.html.contains(&"x".repeat(501)), "what was typed is kept");

    let done = owner
        .post(queue, &format!("{path}/approve"), &[("note", "fine by me")])
        .await;
    assert_eq!(done.leads(), "/dashboard/approvals?notice=approved");
    owner.get(done.leads()).await.is(200, "fine by me");
    let late = owner.post(queue, &format!("{path}/reject"), &[]).await;
    late.is(409, "That payment was approved already.");
    let approval = world
        .get(OWNER, &format!("/agents/{agent}/approvals/{approval}"))
        .await
        .ok();
    assert_eq!(
        (&approval["status"], &approval["note"]),
        (&json!("approved"), &json!("fine by me"))
    );
}

#[tokio::test]
async fn what_waits_is_told_page_by_page_and_by_agent() {
    let world = World::start().await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        let (agent, _) = world.waiting().await;
        agents.push(agent);
    }
    for n in 0..19 {
        for agent in &agents {
            world.advance(1);
            assert!(matches!(
                world.pay(agent, 30, &format!("more {n}")).await,
                Told::Waits(_)
            ));
        }
    }
    let mut owner = world.browser(OWNER);
    let ids = |html: &str| -> Vec<String> {
        let parts = html.split("data-approval=\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
    };
    let link = |html: &str, text: &str| -> Option<String> {
        let (before, _) = html.split_once(&format!(">{text}</a>"))?;
        let address = before.rsplit_once("href=\"")?.1.split('"').next()?;
        Some(address.replace("&amp;", "&"))
    };
    let first = owner.get("/dashboard/approvals").await;
    assert!(first.status == 200 && first.html.contains("data-waiting=\"40\""));
    let next = link(&first.html, "More that waits").unwrap();
    let second = owner.get(&next).await;
    assert!(
        second.html.contains("data-waiting=\"40\""),
        "whatever is shown, all is counted"
    );
    let (first, second) = (ids(&first.html), (ids(&second.html), second.html));
    assert_eq!((first.len(), second.0.len()), (25, 15));
    let all: std::collections::BTreeSet<&String> = first.iter().chain(&second.0).collect();
    assert_eq!(all.len(), 40, "each is there once");
    assert_eq!(link(&second.1, "More that waits"), None);
    assert_eq!(link(&second.1, "First").unwrap(), "/dashboard/approvals");
    // The script polls the same part.
    let live = second
        .1
        .split("data-live=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert_eq!(ids(&owner.get(live).await.html), second.0);

    // Decided on the second page, the person stays on the second page.
    let approval = &second.0[0];
    let action = format!("/dashboard/agents/{}/approvals/{approval}/approve", agents[0]);
    let action = [
        action,
        format!("/dashboard/agents/{}/approvals/{approval}/approve", agents[1]),
    ]
    .into_iter()
    .find(|action| second.1.contains(action.as_str()))
    .unwrap();
    let query = next.split_once('?').unwrap().1;
    let done = owner.post(&next, &format!("{action}?{query}"), &[]).await;
    assert_eq!(done.leads(), format!("{next}&notice=approved"));
    let after = owner.get(done.leads()).await;
    assert_eq!(ids(&after.html).len(), 14);

    let mut narrowed = 0;
    for agent in &agents {
        let seen = owner.get(&format!("/dashboard/approvals?agent_id={agent}")).await;
        assert!(seen.html.contains("data-waiting=\"39\""));
        let shown = ids(&seen.html).len();
        assert_eq!(
            seen.html
                .matches(&format!("/dashboard/agents/{agent}/approvals/"))
                .count(),
            2 * shown
        );
        narrowed += shown;
    }
    assert_eq!(narrowed, 39);
    for query in ["?agent_id=x", "?after=x", "?before=x"] {
        let seen = owner.get(&format!("/dashboard/approvals{query}")).await;
        seen.is(400, "not understood");
    }
    let others = format!("/dashboard/approvals?agent_id={}", agents[0]);
    assert_eq!(world.browser("bob").get(&others).await.status, 404);
    let others = format!("/dashboard/approvals/waiting?agent_id={}", agents[0]);
    assert!(
        world
            .browser("bob")
            .get(&others)
            .await
            .html
            .contains("data-waiting=\"0\"")
    );
}

#[tokio::test]
async fn what_was_decided_is_told_page_by_page() {
    let world = World::start().await;
    let (agent, first) = world.waiting().await;
    let mut approvals = vec![first];
    for n in 0..29 {
        world.advance(1);
        for approval in &approvals {
            let path = format!("/agents/{agent}/approvals/{approval}/reject");
            world.call(OWNER, "POST", &path, None, None).await;
        }
        match world.pay(&agent, 30, &format!("more {n}")).await {
            Told::Waits(approval) => approvals = vec![approval.to_string()],
            other => panic!("{other:?}"),
        }
    }
    let mut owner = world.browser(OWNER);
    let page = owner.get("/dashboard/approvals").await.html;
    let rejected = |html: &str| html.matches(">rejected</span>").count();
    assert_eq!(rejected(&page), 25);
    let (before, _) = page.split_once(">Older</a>").unwrap();
    let older = before.rsplit_once("href=\"").unwrap().1.split('"').next().unwrap();
    let page = owner.get(older).await.html;
    assert_eq!(rejected(&page), 4);
    assert!(page.contains(">Newest</a>") && !page.contains(">Older</a>"));
}

#[tokio::test]
async fn an_approval_that_is_out_of_time_can_t_be_given() {
    let world = World::start().await;
    let (agent, approval) = world.waiting().await;
    world.advance(24 * 3_600);
    let mut owner = world.browser(OWNER);
    let path = format!("/dashboard/agents/{agent}/approvals/{approval}/approve");
    owner
        .post("/dashboard/approvals", &path, &[])
        .await
        .is(409, "That request has expired.");
}

#[tokio::test]
async fn the_log_is_narrowed_down_and_what_is_not_understood_is_said() {
    let world = World::start().await;
    let (agent, _) = world.waiting().await;
    world.pay(&agent, 5, "small").await;
    world.pay(&agent, 9_999, "large").await;
    let mut owner = world.browser(OWNER);
    let rows = async |browser: &mut Browser<'_>, query: &str| {
        let seen = browser.get(&format!("/dashboard/decisions{query}")).await;
        assert_eq!(seen.status, 200, "{query}");
        seen.html.matches("class=\"log-chip\"").count()
    };
    assert_eq!(rows(&mut owner, "").await, 3);
    assert_eq!(rows(&mut owner, "?agent_id=&result=&service_id=").await, 3);
    for result in ["allow", "block", "escalate"] {
        assert_eq!(
            rows(&mut owner, &format!("?agent_id={agent}&result={result}")).await,
            1,
            "{result}"
        );
    }
    assert_eq!(
        rows(&mut owner, "?service_id=00000000-0000-0000-0000-000000000000").await,
        0
    );
    for query in ["?agent_id=x", "?result=maybe", "?cursor=x"] {
        owner
            .get(&format!("/dashboard/decisions{query}"))
            .await
            .is(400, "not understood");
    }
}
