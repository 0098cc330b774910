//! Tests the table of agents, the table's forms, and "Freeze all", without JavaScript.

use crate::laws::HOSTILE;
use crate::support::World;
use crate::support::browser::Browser;
use purser_testkit::sample::OWNER;
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl World {
    /// Creates `count` agents with the names `Agent <00>`, …, ten seconds apart.
    async fn table(&self, count: usize) -> Vec<String> {
        let mut agents = Vec::new();
        for n in 0..count {
            let body = json!({"name": format!("Agent <{n:02}>")});
            let made = self.call(OWNER, "POST", "/agents", None, Some(body)).await.created();
            agents.push(made["agent_id"].as_str().unwrap().to_owned());
            self.advance(10);
        }
        agents
    }

    async fn set(&self, agent: &str, body: Value) {
        self.edit(OWNER, "PATCH", &format!("/agents/{agent}"), body).await.ok();
    }

    async fn status(&self, agent: &str) -> String {
        let agent = self.get(OWNER, &format!("/agents/{agent}")).await.ok();
        agent["status"].as_str().unwrap().to_owned()
    }
}

/// Returns the numbers of the agents in a page's rows, in page order.
fn rows(html: &str) -> Vec<usize> {
    let names = html.split("Agent &lt;").skip(1);
    let names = names.filter_map(|rest| rest.split_once("&gt;</a>"));
    names.filter_map(|(number, _)| number.parse().ok()).collect()
}

/// Returns the target of the link with this text.
#[track_caller]
fn link(html: &str, text: &str) -> String {
    let (before, _) = html.split_once(&format!(">{text}</a>")).unwrap();
    let (_, address) = before.rsplit_once("href=\"").unwrap();
    address.split('"').next().unwrap().replace("&amp;", "&")
}

#[tokio::test]
async fn the_agent_table_is_searched_filtered_sorted_and_paged() {
    let world = World::start().await;
    let agents = world.table(31).await;
    world
        .set(&agents[3], json!({"labels": {"team": "search", "env": "prod"}}))
        .await;
    world
        .set(&agents[4], json!({"labels": {"team": "ads"}, "status": "frozen"}))
        .await;
    world
        .set(&agents[5], json!({"labels": {"team": "ads"}, "archived": true}))
        .await;
    let mut owner = world.browser(OWNER).await;
    let newest: Vec<usize> = (0..31).rev().filter(|n| *n != 5).collect();
    let oldest: Vec<usize> = newest.iter().rev().copied().collect();
    let id = &agents[7];
    for (query, expected) in [
        ("", &newest[..25]),
        ("?sort=oldest", &oldest[..25]),
        ("?sort=name", &oldest[..25]),
        ("?sort=name&page=2", &oldest[25..]),
        ("?q=AGENT+%3C1", &[19, 18, 17, 16, 15, 14, 13, 12, 11, 10]),
        (&*format!("?q={id}"), &[7]),
        ("?label=team", &[4, 3]),
        ("?label=team%3Dsearch", &[3]),
        ("?label=team&status=frozen", &[4]),
        ("?label=&status=&q=&archived=true", &[5]),
        ("?q=nobody", &[]),
    ] {
        let seen = owner.get(&format!("/dashboard/agents{query}")).await;
        seen.is(200, "<h1>Agents</h1>");
        assert_eq!(rows(&seen.html), expected, "{query}");
    }
    let first = owner.get("/dashboard/agents?sort=oldest").await;
    let second = owner.get(&link(&first.html, "Next")).await;
    assert_eq!(rows(&second.html), &oldest[25..]);
    assert_eq!(link(&second.html, "First page"), "/dashboard/agents?sort=oldest");
    assert!(!second.html.contains("rel=\"next\""));
    // A label links to the agents that have this label.
    assert_eq!(
        link(&owner.get("/dashboard/agents?q=03").await.html, "team=search"),
        "/dashboard/agents?label=team%3Dsearch"
    );

    for (query, problem) in [
        ("?label=Team", "must be the key of a label, or key=value."),
        ("?status=x", "State: "),
        ("?sort=x", "is unknown."),
        ("?cursor=x", "must be the next_cursor of an earlier answer."),
    ] {
        let seen = owner.get(&format!("/dashboard/agents{query}")).await;
        seen.is(400, problem);
        seen.is(400, "Nothing is shown until the filters are corrected.");
        assert_eq!(rows(&seen.html), Vec::<usize>::new(), "{query}");
    }
}

/// A search reads on until it finds an agent.
#[tokio::test]
async fn an_agent_search_continues_after_a_hundred_agents() {
    let world = World::start().await;
    let agents = world.table(101).await;
    world.set(&agents[0], json!({"name": "Agent <777>"})).await;
    let mut owner = world.browser(OWNER).await;
    let seen = owner.get("/dashboard/agents?q=%3C777").await;
    assert_eq!(rows(&seen.html), [777]);
    let unsorted = owner.get("/dashboard/agents?sort=name").await;
    unsorted.is(200, "Sorting by name is available for up to 100 agents.");
    assert_eq!(rows(&unsorted.html).len(), 25);
    assert!(unsorted.html.len() < 60_000, "{} bytes", unsorted.html.len());
    // A page without a filter reads only the agents that the page shows.
    world.proxy.calls().take();
    owner.get("/dashboard/agents").await;
    let few = world.proxy.calls().take().len();
    assert!(few <= 6, "{few} calls");
}

/// Returns the paths of a page's links and `GET` forms.
fn targets(html: &str) -> Vec<String> {
    let forms = html.split("<form").filter_map(|form| form.split_once('>'));
    let forms = forms
        .filter(|(head, _)| head.contains("method=\"get\""))
        .map(|(head, _)| head);
    let forms = forms.filter_map(|head| head.split_once("action=\""));
    let links = html.split("href=\"").skip(1).map(|rest| ("", rest));
    let paths = links
        .chain(forms)
        .filter_map(|(_, rest)| rest.split(['"', '?', '#']).next());
    let is_page = |path: &&str| path.starts_with("/dashboard") && !path.contains('.');
    paths.filter(is_page).map(str::to_owned).collect()
}

/// Returns the pages that links and forms reach from the overview.
async fn linked_pages(browser: &mut Browser<'_>) -> BTreeSet<String> {
    let (mut pages, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut open = vec!["/dashboard".to_owned()];
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let page = browser.open(&path).await;
        if page.status == 200 {
            open.extend(targets(&page.html));
            pages.insert(path);
        }
    }
    pages
}

/// A count that only a forged link has.
const COUNT: u32 = 7_654;

/// Opens every page with every notice and every report in the URL.
#[tokio::test]
async fn forged_links_cannot_show_a_bulk_report() {
    let world = World::start().await;
    let agents = world.table(1).await;
    let mut owner = world.browser(OWNER).await;
    let agent = format!("/dashboard/agents/{}", agents[0]);
    let frozen = owner
        .post("/dashboard/agents", "/dashboard/agents/bulk", &[("freeze", &agents[0])])
        .await;
    let signed = owner.signed[frozen.leads()].clone();
    owner.open(&signed).await.is(200, "Undo: unfreeze 1 agent");
    let ours = signed.rsplit_once('=').unwrap().1;
    let template = json!({"services": {"lab": {"max_per_call_units": 5}}, "rules": []});
    let made = world.call(OWNER, "PUT", "/policy-templates/t", None, Some(template));
    made.await.created();
    let report = format!("act=frozen&done=1&frozen={}", agents[0]);
    // Every count of a report, with and without `act`.
    let counts = ["done", "unchanged", "failed", "decided"].map(|name| format!("{name}={COUNT}"));
    let counts = counts.join("&");
    let acts = ["applied", "frozen", "updated"].map(|act| format!("act={act}&{counts}"));
    let reports = [
        counts,
        acts.join("&"),
        "notice=agent_frozen".to_owned(),
        "%6eotice=policy_saved".to_owned(),
        "act=frozen&done=12&failed=3".to_owned(),
        report.clone(),
        format!("{report}&report="),
        format!("{report}&report={ours}"),
        format!("{report}&report={}", "0".repeat(64)),
    ];
    let pages = linked_pages(&mut owner).await;
    let templates = "/dashboard/templates/t";
    assert!(
        pages.len() >= 16 && pages.contains(&agent) && pages.contains(templates),
        "{pages:?}"
    );
    for page in &pages {
        for report in &reports {
            let link = format!("{page}?{report}");
            if link == signed {
                continue;
            }
            let seen = owner.open(&link).await;
            let mut texts = seen.html.split('<').filter_map(|tag| Some(tag.split_once('>')?.1));
            assert!(
                !texts.any(|text| text.contains(&format!("{COUNT} "))),
                "{link}: {}",
                seen.html
            );
            for words in ["data-notice", "were frozen", "was frozen", "Undo", "Not done yet"] {
                assert!(!seen.html.contains(words), "{link}: {}", seen.html);
            }
        }
    }
    // The report is not shown in another session, nor with a changed count.
    let mut elsewhere = world.browser(OWNER).await;
    for (browser, url) in [
        (&mut elsewhere, signed.clone()),
        (&mut owner, signed.replace("done=1", "done=2")),
    ] {
        let seen = browser.open(&url).await;
        assert!(seen.status == 200 && !seen.html.contains("Undo"), "{url}");
    }
    let stranger = world.stranger().open("/dashboard/sign-in?notice=agent_unfrozen").await;
    assert!(!stranger.html.contains("active again"), "{}", stranger.html);
}

/// A link cannot make "Freeze all" start after some agents.
#[tokio::test]
async fn freezing_all_agents_begins_with_the_first_agent() {
    let world = World::start().await;
    let agents = world.table(101).await;
    let mut owner = world.browser(OWNER).await;
    let confirm = "/dashboard/freeze-all";
    let step = owner.post(confirm, confirm, &[]).await;
    let next = step.headers[axum::http::header::LOCATION].to_str().unwrap();
    let (_, cursor) = next.split_once("cursor=").unwrap();
    let link = format!("{confirm}?cursor={}", cursor.split('&').next().unwrap());
    assert!(!owner.open(&link).await.html.contains("cursor="), "{link}");
    // An interrupted run of "Freeze all" continues at the cursor in the URL.
    assert!(owner.get(next).await.html.contains("cursor="), "{next}");
    assert_eq!(agents.len(), 101);
}

#[tokio::test]
async fn a_freeze_from_the_agent_table_can_be_undone() {
    let world = World::start().await;
    let agents = world.table(2).await;
    let mut owner = world.browser(OWNER).await;
    let page = "/dashboard/agents?status=active";
    let bulk = "/dashboard/agents/bulk?status=active";
    let frozen = owner.post(page, bulk, &[("freeze", &agents[0])]).await;
    let notice = owner.get(frozen.leads()).await;
    notice.is(200, "1 agent was frozen.");
    notice.is(200, "Undo: unfreeze 1 agent");
    // After the action, the page still has the filter.
    assert_eq!(rows(&notice.html), [1]);
    assert_eq!(
        [world.status(&agents[0]).await, world.status(&agents[1]).await],
        ["frozen", "active"]
    );
    let id = notice.input("agent");
    let undone = owner.post(page, bulk, &[("agent", &id), ("act", "unfreeze")]).await;
    let notice = owner.get(undone.leads()).await;
    notice.is(200, "1 agent was unfrozen.");
    assert!(!notice.html.contains("Undo"));
    assert_eq!(world.status(&agents[0]).await, "active");
    // Unfreezing requires a recent sign-in. Freezing does not.
    world.advance(700);
    owner.post(page, bulk, &[("freeze", &agents[0])]).await.leads();
    let refused = owner
        .post(page, bulk, &[("agent", &agents[0]), ("act", "unfreeze")])
        .await;
    assert!(refused.leads().starts_with("/dashboard/sign-in"), "{}", refused.leads());
    assert_eq!(world.status(&agents[0]).await, "frozen");
}

#[tokio::test]
async fn selected_agents_are_frozen_labelled_and_archived_together() {
    let world = World::start().await;
    let agents = world.table(3).await;
    let theirs = world.agent("bob").await;
    let mut owner = world.browser(OWNER).await;
    let (page, bulk) = ("/dashboard/agents", "/dashboard/agents/bulk");
    let both = [("agent", &*agents[0]), ("agent", &*agents[1])];
    let with = |act: &'static str| [both.to_vec(), vec![("act", act)]].concat();

    let none = owner.post(page, bulk, &[("act", "freeze")]).await;
    none.is(400, "Nothing was changed: select at least one agent.");
    assert_eq!(rows(&none.html), [2, 1, 0]);

    let asked = owner.post(page, bulk, &with("label")).await;
    asked.is(200, "<h1>Label 2 agents</h1>");
    assert_eq!(asked.html.matches("type=\"hidden\" name=\"agent\"").count(), 2);
    let wrong = [with("add-label"), vec![("label", "team")]].concat();
    let wrong = owner.post(page, bulk, &wrong).await;
    wrong.is(400, "Label: enter key=value, such as team=search.");
    wrong.is(400, "value=\"team\"");
    let label = [with("add-label"), vec![("label", "team=search")]].concat();
    let labelled = owner.post(page, bulk, &label).await;
    owner.get(labelled.leads()).await.is(200, "2 agents were labelled.");
    assert_eq!(
        rows(&owner.get("/dashboard/agents?label=team%3Dsearch").await.html),
        [1, 0]
    );

    world.set(&agents[1], json!({"status": "frozen"})).await;
    let frozen = owner
        .post(page, bulk, &[with("freeze"), vec![("agent", &theirs)]].concat())
        .await;
    let notice = owner.get(frozen.leads()).await;
    notice.is(200, "1 agent was frozen. 1 was already frozen. 1 could not be changed.");
    // Undo unfreezes only the agent that this action froze.
    notice.is(200, "Undo: unfreeze 1 agent");
    assert_eq!(
        world.get("bob", &format!("/agents/{theirs}")).await.ok()["status"],
        "active"
    );

    let archived = owner.post(page, bulk, &with("archive")).await;
    let notice = owner.get(archived.leads()).await;
    notice.is(200, "2 agents were archived.");
    assert_eq!(rows(&notice.html), [2]);
    let archive = "/dashboard/agents?archived=true";
    assert_eq!(rows(&owner.get(archive).await.html), [1, 0]);
    let restored = owner
        .post(
            archive,
            "/dashboard/agents/bulk?archived=true",
            &[("restore", &agents[1])],
        )
        .await;
    owner.get(restored.leads()).await.is(200, "1 agent was restored.");
    assert_eq!(world.status(&agents[1]).await, "frozen");
    let gone = owner
        .post(page, bulk, &[with("remove-label"), vec![("label", "team")]].concat())
        .await;
    owner.get(gone.leads()).await.is(200, "2 agents were labelled.");
    assert_eq!(
        rows(&owner.get("/dashboard/agents?label=team").await.html),
        Vec::<usize>::new()
    );
}

/// Each step is a form post that redirects to the next step.
#[tokio::test]
async fn two_clicks_freeze_all_agents() {
    let world = World::start().await;
    let agents = world.table(205).await;
    world.set(&agents[0], json!({"status": "frozen"})).await;
    world.set(&agents[1], json!({"archived": true})).await;
    let mut owner = world.browser(OWNER).await;
    let mut bob = world.browser("bob").await;
    let theirs = world.agent("bob").await;
    owner
        .get("/dashboard/audit-log")
        .await
        .is(200, "href=\"/dashboard/freeze-all\"");
    let confirm = "/dashboard/freeze-all";
    owner.get(confirm).await.is(200, "You own 205 agents.");
    let mut at = confirm.to_owned();
    let mut steps = 0;
    let end = loop {
        steps += 1;
        let seen = owner.post(confirm, &at, &[]).await;
        if seen.status == 307 {
            at = seen.headers[axum::http::header::LOCATION].to_str().unwrap().to_owned();
            // An interrupted run can be continued, and can be started again.
            owner.get(&at).await.is(200, "Not done yet.");
        } else {
            break seen.leads().to_owned();
        }
    };
    assert_eq!(steps, 3);
    owner
        .get(&end)
        .await
        .is(200, "203 agents were frozen. 1 was already frozen.");
    owner
        .get("/dashboard/agents?status=active")
        .await
        .is(200, "No agent fits.");
    assert_eq!(
        world.get("bob", &format!("/agents/{theirs}")).await.ok()["status"],
        "active"
    );
    bob.get(confirm).await.is(200, "You own 1 agent.");
}

/// With an invalid label, no agent is frozen.
#[tokio::test]
async fn all_agents_with_a_label_can_be_frozen_and_unfrozen() {
    let world = World::start().await;
    let agents = world.table(4).await;
    for agent in &agents[..2] {
        world.set(agent, json!({"labels": {"team": "data"}})).await;
    }
    let states = async || {
        let mut states = Vec::new();
        for agent in &agents {
            states.push(world.status(agent).await == "frozen");
        }
        states
    };
    let mut owner = world.browser(OWNER).await;
    let (all, labelled) = ("/dashboard/freeze-all", "/dashboard/freeze-all?label=team%3Ddata");
    owner.get("/dashboard/agents?label=team%3Ddata").await.is(200, labelled);
    owner.get(labelled).await.is(200, "You own 2 agents with team=data.");
    let wrong = format!("{all}?label=%3D");
    owner
        .get(&wrong)
        .await
        .is(400, "Nothing is shown until the filters are corrected.");
    owner.post(all, &wrong, &[]).await.is(400, "Nothing is shown until");
    assert_eq!(states().await, [false; 4]);

    let frozen = owner.post(labelled, labelled, &[]).await;
    assert_eq!(states().await, [true, true, false, false]);
    let notice = owner.get(frozen.leads()).await;
    notice.is(200, "2 agents were frozen.");
    notice.is(200, "Undo: unfreeze 2 agents");
    let ids: Vec<(&str, &str)> = agents[..2].iter().map(|agent| ("agent", agent.as_str())).collect();
    let undo = [ids, vec![("act", "unfreeze")]].concat();
    let undone = owner.post(frozen.leads(), "/dashboard/agents/bulk", &undo).await;
    owner.get(undone.leads()).await.is(200, "2 agents were unfrozen.");
    assert_eq!(states().await, [false; 4]);
}

#[tokio::test]
async fn the_agent_page_updates_labels_and_archives_agents() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let page = format!("/dashboard/agents/{agent}");
    let mut owner = world.browser(OWNER).await;
    let labels = format!("{page}/labels");
    let typed = [("version", "1"), ("labels", "team=search\r\n\r\n env = prod ")];
    let saved = owner.post(&page, &labels, &typed).await;
    assert_eq!(saved.leads(), format!("{page}?notice=agent_labelled"));
    let seen = owner.get(&page).await;
    seen.is(200, ">env=prod</a>");
    seen.is(200, "env=prod\nteam=search</textarea>");
    for (text, problem) in [
        ("team", "“team” is no label"),
        ("team=a\nteam=b", "“team=b” repeats a key."),
        (HOSTILE, "is no label"),
    ] {
        let typed = [("version", "2"), ("labels", text)];
        owner.post(&page, &labels, &typed).await.is(400, problem);
    }
    let stale = [("version", "1"), ("labels", "")];
    owner.post(&page, &labels, &stale).await.is(412, "changed elsewhere");

    let archived = owner.post(&page, &format!("{page}/archive"), &[]).await;
    let seen = owner.get(archived.leads()).await;
    seen.is(200, "The agent is archived");
    assert!(!seen.html.contains("/unfreeze\"") && !seen.html.contains("/archive\""));
    let restored = owner.post(&page, &format!("{page}/restore"), &[]).await;
    owner.get(restored.leads()).await.is(200, "It is still frozen.");
    assert_eq!(world.status(&agent).await, "frozen");
}
