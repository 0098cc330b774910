//! Tests that lists over all agents show every row once, with a constant number of reads per page.

use crate::support::World;
use purser_testkit::authorize::Answer as Told;
use purser_testkit::sample::OWNER;
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl World {
    /// Creates `count` agents, one second apart.
    async fn fleet(&self, count: usize) -> Vec<String> {
        let mut agents = Vec::new();
        for _ in 0..count {
            agents.push(self.agent(OWNER).await);
            self.advance(1);
        }
        agents
    }

    /// Returns a page of a list and the number of database calls.
    async fn page(&self, path: &str, cursor: Option<&str>) -> (Value, usize) {
        let sign = if path.contains('?') { '&' } else { '?' };
        let cursor = cursor
            .map(|cursor| format!("{sign}cursor={cursor}"))
            .unwrap_or_default();
        self.proxy.calls().take();
        let page = self.get(OWNER, &format!("{path}{cursor}")).await.ok();
        (page, self.proxy.calls().take().len())
    }

    /// Returns the rows of all pages, and the maximum number of database calls per page.
    async fn all(&self, path: &str, rows: &str) -> (Vec<Vec<Value>>, usize) {
        let (mut pages, mut most, mut cursor) = (Vec::new(), 0, None::<String>);
        loop {
            let (page, calls) = self.page(path, cursor.as_deref()).await;
            most = most.max(calls);
            assert_eq!(page["count"], page[rows].as_array().unwrap().len());
            pages.push(page[rows].as_array().unwrap().clone());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return (pages, most),
            }
        }
    }
}

/// Returns the first two cursors of a list.
async fn cursors(world: &World, list: &str) -> [String; 2] {
    let path = format!("/{list}?limit=30");
    let next = |page: &Value| page["next_cursor"].as_str().unwrap().to_owned();
    let first = next(&world.page(&path, None).await.0);
    let second = next(&world.page(&path, Some(&first)).await.0);
    [first, second]
}

#[tokio::test]
async fn agent_pages_are_listed_oldest_first() {
    let world = World::start().await;
    let agents = world.fleet(7).await;
    let ids = |pages: Vec<Vec<Value>>| -> Vec<String> {
        let rows = pages.concat();
        rows.iter()
            .map(|row| row["agent_id"].as_str().unwrap().to_owned())
            .collect()
    };
    for (query, count) in [("", 1), ("?limit=7", 1), ("?limit=3", 3), ("?limit=1", 7)] {
        let (pages, _) = world.all(&format!("/agents{query}"), "agents").await;
        assert_eq!(pages.len(), count, "{query}");
        assert_eq!(ids(pages), agents, "{query}");
    }
    for wrong in [
        "limit=0",
        "limit=101",
        "cursor=x",
        "cursor=018f2f6e0c0070008000000000000001",
    ] {
        let refused = world.get(OWNER, &format!("/agents?{wrong}")).await;
        assert_eq!(
            (refused.status, &refused.body["error"]),
            (400, &"invalid_request".into()),
            "{wrong}"
        );
    }
    // In another user's request, the cursor is a position in that user's own list.
    let (page, _) = world.page("/agents?limit=1", None).await;
    let theirs = world
        .get(
            "bob",
            &format!("/agents?cursor={}", page["next_cursor"].as_str().unwrap()),
        )
        .await;
    assert_eq!(theirs.ok()["count"], 0);
}

/// A longer page takes no more database calls, and a cursor gives another user no access.
#[tokio::test]
async fn lists_of_many_agents_return_every_row_exactly_once() {
    let world = World::start().await;
    let mut agents = world.fleet(25).await;
    let mut paid = BTreeSet::new();
    let pay = async |world: &World, agent: &str, key: String| {
        let Told::Allowed(settlement) = world.pay(agent, 5, &key).await else {
            panic!("not allowed")
        };
        world.advance(1);
        settlement.to_string()
    };
    for round in 0..2 {
        for agent in &agents {
            paid.insert(pay(&world, agent, format!("{round}")).await);
        }
    }
    let times = |page: &[Value], name: &str| -> Vec<String> {
        page.iter().map(|row| row[name].as_str().unwrap().to_owned()).collect()
    };
    let (pages, few) = world.all("/settlements?limit=30", "settlements").await;
    let merged = times(&pages.concat(), "authorized_at");
    assert!(merged.is_sorted_by(|one, other| one > other) && pages.len() == 2);

    agents.extend(world.fleet(31).await);
    for agent in &agents[25..] {
        paid.insert(pay(&world, agent, "0".to_owned()).await);
    }
    for (list, id, at) in [
        ("settlements", "id", "authorized_at"),
        ("decisions", "settlement_id", "decided_at"),
    ] {
        let (pages, most) = world.all(&format!("/{list}?limit=30"), list).await;
        let rows = pages.concat();
        let found: BTreeSet<String> = times(&rows, id).into_iter().collect();
        assert_eq!((rows.len(), &found), (81, &paid), "{list}");
        let sizes: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(sizes, [30, 30, 21], "{list}");
        assert!(times(&rows, at).is_sorted_by(|one, other| one > other), "{list}");
        if list == "settlements" {
            assert!(most <= few, "{most} calls for a page of a fleet, {few} of 25 agents");
        }
        // In another user's request, the cursor is a position in that user's own list.
        for cursor in cursors(&world, list).await {
            let theirs = world.get("bob", &format!("/{list}?cursor={cursor}")).await;
            assert_eq!(theirs.ok()["count"], 0, "{cursor}");
        }
        // The list of a single agent still contains one payment.
        let (pages, _) = world.all(&format!("/{list}?agent_id={}", agents[50]), list).await;
        assert_eq!(pages.concat().len(), 1);
    }
}

/// Every kind of search text finds only the caller's data.
#[tokio::test]
async fn a_search_finds_only_data_of_the_caller() {
    let world = World::start().await;
    let agent = world.agent(OWNER).await;
    let Told::Allowed(settlement) = world.pay(&agent, 5, "small").await else {
        panic!("not allowed")
    };
    world.advance(1);
    let frozen = json!({"status": "frozen"});
    world
        .edit(OWNER, "PATCH", &format!("/agents/{agent}"), frozen)
        .await
        .ok();
    assert!(matches!(world.pay(&agent, 5, "frozen").await, Told::Blocked));
    let log = world.get(OWNER, "/decisions").await.ok();
    let id = |row: &Value| row["transaction_id"].as_str().unwrap().to_owned();
    let (refused, paid) = (id(&log["decisions"][0]), id(&log["decisions"][1]));
    let payee = log["decisions"][1]["pay_to"].as_str().unwrap();
    let kinds = async |person: &str, text: &str| -> Vec<String> {
        let found = world.get(person, &format!("/search?q={text}")).await.ok();
        let results = found["results"].as_array().unwrap();
        assert_eq!(found["count"], results.len());
        let kinds = results.iter().map(|result| result["kind"].as_str().unwrap().to_owned());
        kinds.collect()
    };
    let unknown = "0x".to_owned() + &"ab".repeat(32);
    let rows = [
        (settlement.to_string(), vec!["settlement"], true),
        (paid, vec!["settlement"], true),
        (refused, vec!["decision"], true),
        (agent, vec!["agent"], true),
        ("buy".to_owned(), vec!["agent"], true),
        ("LAB".to_owned(), vec!["service"], false),
        (payee.to_owned(), vec!["payee"], false),
        (unknown, vec![], false),
        (String::new(), vec![], false),
    ];
    for (text, expected, is_own) in rows {
        assert_eq!(kinds(OWNER, &text).await, expected, "{text}");
        let theirs = if is_own { Vec::new() } else { expected };
        assert_eq!(kinds("bob", &text).await, theirs, "{text}");
    }
    let refused = world.get(OWNER, &format!("/search?q={}", "x".repeat(101))).await;
    assert_eq!(refused.status, 400);
}
