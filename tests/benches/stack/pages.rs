//! Measures a user's pages with 1,000 agents and 100,000 payments.

use crate::function::{Call, Function};
use crate::place::{Place, one_thread};
use crate::timing::{Report, Row, median};
use purser_local::DEMO_OWNER;
use purser_tests::{body_of, dollars};
use std::time::{Duration, Instant};

const FEW: usize = 30;
const MANY: usize = 1_000;
/// The number of settlements per agent.
const SETTLEMENTS: usize = 100;
const TURNS: usize = 9;
/// The path and the query of each page, and of its list as JSON.
const PAGES: [(&str, &str); 11] = [
    ("/dashboard/approvals/waiting", ""),
    ("/dashboard/approvals", ""),
    ("/dashboard", ""),
    ("/dashboard", "q=another"),
    ("/dashboard/decisions", ""),
    ("/dashboard/settlements", ""),
    ("/dashboard/audit-log", ""),
    ("/dashboard/webhooks", ""),
    ("/agents", ""),
    ("/decisions", ""),
    ("/settlements", ""),
];
/// The maximum time of a page.
const MAX: Duration = Duration::from_secs(1);

pub fn fleet(report: &mut Report) {
    let place = Place::start(1);
    one_thread().block_on(async {
        let world = &place.world;
        let person = world.person(&DEMO_OWNER);
        let agent = world.agent_of(&person, "asking").await;
        world.authorize(&agent, &body_of(world.offer(1))).await.ok();
        let policy = purser_tests::judged_policy();
        world.put_policy(&agent, "lab-search", true, policy).await;
        let asked = world.authorize(&agent, &body_of(world.offer(dollars(30)))).await;
        asked.refused(402, "approval_required");
        let cookie = world.browser_session(&DEMO_OWNER).await;
        let bearer = format!("Bearer {}", person.token);
        let function = people(&place, &[]).await;
        let recorded = people(&place, &[("DYNAMODB_ENDPOINT", place.proxy.url.as_str())]).await;
        let mut floors = Vec::new();
        for (agents, name) in [(FEW, "30 agents"), (MANY - FEW, "1,000 agents, 100,000 settlements")] {
            world.add_fleet(&agent, agents, SETTLEMENTS).await;
            for (n, (path, query)) in PAGES.into_iter().enumerate() {
                let call = Call {
                    method: "GET",
                    path,
                    query,
                    header: Some(if path.starts_with("/dashboard") {
                        ("cookie", &cookie)
                    } else {
                        ("authorization", &bearer)
                    }),
                    body: None,
                };
                let event = call.event();
                place.record(&recorded, &event, 200).await;
                let (_, units) = place.record(&recorded, &event, 200).await;
                let mut times = Vec::new();
                for _ in 0..TURNS {
                    let began = Instant::now();
                    let answered = function.call(&event).await;
                    times.push(began.elapsed());
                    answered.expect(200);
                }
                let taken = median(&mut times);
                assert!(taken < MAX, "{path}?{query} took {taken:?} with {name}");
                if floors.len() == n {
                    floors.push(taken);
                }
                #[expect(clippy::cast_precision_loss, reason = "few units")]
                let units = (units.read as f64 / 10.0, units.write as f64 / 10.0);
                report.add(&Row {
                    group: "a person's pages",
                    name: format!(
                        "{path}{} with {name}",
                        if query.is_empty() { "" } else { ", searched," }
                    ),
                    median: taken,
                    reference: "with 30 agents",
                    reference_median: floors[n],
                    limit: None,
                    units: Some(units),
                });
                println!("{path} {query}: {units:?} units");
            }
        }
    });
}

async fn people(place: &Place, others: &[(&str, &str)]) -> Function {
    Function::start(purser_dashboard::router, &place.world.stack.environment, others).await
}
