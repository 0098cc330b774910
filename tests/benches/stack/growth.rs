//! Measures how the time of authorize grows with the agent's payments, its services, the catalog, and the concurrent
//! callers.

use crate::function::Function;
use crate::operations::allow;
use crate::place::{Place, many_threads, one_thread};
use crate::timing::{Report, Row, Turn, crowded, median};
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use purser_testkit::Units;
use purser_tests::TestAgent;
use serde_json::Value;
use std::time::{Duration, Instant};

const TURNS: usize = 150;

/// One of the compared variants of an authorize call.
struct Variant<'a> {
    name: &'a str,
    function: &'a Function,
    recorded: &'a Function,
    agent: &'a TestAgent,
    body: fn(&Place) -> Value,
}

/// Measures authorize with 0, 1,000 and 100,000 earlier settlements, all within the last hour.
pub fn history(report: &mut Report) {
    let place = Place::start(3);
    let settlements = [
        (0, "authorize after none"),
        (1_000, "after 1,000"),
        (100_000, "after 100,000"),
    ];
    one_thread().block_on(async {
        let (function, recorded) = warm(&place).await;
        for (agent, (count, _)) in place.agents.iter().zip(settlements) {
            place.world.add_settlements(agent, count).await;
        }
        let variants = of_each_agent(&place, &function, &recorded, settlements.map(|(_, name)| name));
        compare(&place, report, "history", "after none", Some(1.1), &variants).await;
    });
}

/// Measures authorize with 1, 100 and 10,000 enabled services.
pub fn services(report: &mut Report) {
    let place = Place::start(3);
    let services = [
        (1, "authorize with 1 service enabled"),
        (100, "with 100"),
        (10_000, "with 10,000"),
    ];
    one_thread().block_on(async {
        let (function, recorded) = warm(&place).await;
        for (agent, (count, _)) in place.agents.iter().zip(services) {
            place.world.add_services(agent, "lab-search", count - 1).await;
        }
        let variants = of_each_agent(&place, &function, &recorded, services.map(|(_, name)| name));
        compare(&place, report, "services", "with one", None, &variants).await;
    });
}

/// Measures authorize with 1,000 and 10,000 additional services, by the service's name and by the called URL.
pub fn catalog(report: &mut Report) {
    let place = Place::start(1);
    let tables = [("Catalog1000", 1_000), ("Catalog10000", 10_000)];
    one_thread().block_on(async {
        for (table, count) in tables {
            create_catalog(&place, table).await;
            place.world.fill_catalog(table, "lab-search", count).await;
        }
        let named: fn(&Place) -> Value = Place::allowed_body;
        let by_address: fn(&Place) -> Value = |place| {
            let mut body = purser_tests::body_of(place.world.offer(5_000));
            body["service_id"] = Value::Null;
            body["original_request"]["url"] = format!("{}/search", place.world.stack.providers.provider_url).into();
            body
        };
        let mut functions = Vec::new();
        for table in ["CatalogTable", "Catalog1000", "Catalog10000"] {
            let function = place.payments(&[("CATALOG_TABLE", table)]).await;
            let others = [
                ("CATALOG_TABLE", table),
                ("DYNAMODB_ENDPOINT", place.proxy.url.as_str()),
            ];
            let recorded = place.payments(&others).await;
            functions.push((function, recorded));
        }
        for (body, names) in [
            (
                named,
                [
                    "authorize a service by its name, of few",
                    "by its name, of 1,000",
                    "by its name, of 10,000",
                ],
            ),
            (
                by_address,
                [
                    "authorize a service by its address, of few",
                    "by its address, of 1,000",
                    "by its address, of 10,000",
                ],
            ),
        ] {
            let variants: Vec<Variant<'_>> = functions
                .iter()
                .zip(names)
                .map(|((function, recorded), name)| Variant {
                    name,
                    function,
                    recorded,
                    agent: &place.agents[0],
                    body,
                })
                .collect();
            compare(&place, report, "entries", "of few", None, &variants).await;
        }
    });
}

/// Measures authorize with 1 to 64 concurrent callers, with one agent or with an agent per caller.
pub fn callers(report: &mut Report) {
    const EACH_ROUND: usize = 64;
    const ROUNDS: usize = 3;
    let place = Place::start(64);
    many_threads().block_on(async {
        let recorded = place.recorded_payments().await;
        let payments = place.payments(&[]).await;
        let asker = place.asker().await;
        let allow = allow(&place, &recorded).await;
        for callers in [1, 4, 16, 64] {
            for (windows, where_) in [(1, "one window"), (callers, "windows of their own")] {
                if callers == 1 && where_ != "one window" {
                    continue;
                }
                let round = || -> Vec<Vec<Turn>> {
                    let agents = place.agents[..windows].iter().cycle().take(callers);
                    agents
                        .map(|agent| allow.turns(&place, agent, EACH_ROUND / callers))
                        .collect()
                };
                let medians = crowded(&payments, &asker, (0..ROUNDS).map(|_| round()).collect()).await;
                report.beside_floor("callers", &format!("authorize, {callers} on {where_}"), None, medians);
            }
        }
    });
}

/// Starts `payments` with and without a proxy, and calls both functions once for every agent.
async fn warm(place: &Place) -> (Function, Function) {
    let recorded = place.recorded_payments().await;
    let function = place.payments(&[]).await;
    for agent in &place.agents {
        for function in [&recorded, &function] {
            function
                .call(&place.authorize(agent, &place.allowed_body()))
                .await
                .expect(200);
        }
    }
    (function, recorded)
}

/// Returns one variant for each agent.
fn of_each_agent<'a>(
    place: &'a Place,
    function: &'a Function,
    recorded: &'a Function,
    names: [&'static str; 3],
) -> Vec<Variant<'a>> {
    let variant = |(agent, name)| Variant {
        name,
        function,
        recorded,
        agent,
        body: Place::allowed_body,
    };
    place.agents.iter().zip(names).map(variant).collect()
}

/// Times the variants alternately, and compares each with `reference`.
async fn compare(
    place: &Place,
    report: &mut Report,
    group: &'static str,
    reference: &'static str,
    limit: Option<f64>,
    variants: &[Variant<'_>],
) {
    let mut times: Vec<Vec<Duration>> = variants.iter().map(|_| Vec::new()).collect();
    for n in 0..TURNS + 5 {
        for m in 0..variants.len() {
            let which = (n + m) % variants.len();
            let variant = &variants[which];
            let event = place.authorize(variant.agent, &(variant.body)(place));
            let began = Instant::now();
            let answered = variant.function.call(&event).await;
            // The first five rounds are a warm-up.
            if n >= 5 {
                times[which].push(began.elapsed());
            }
            answered.expect(200);
        }
    }
    let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
    for (n, (variant, median)) in variants.iter().zip(&medians).enumerate() {
        report.add(&Row {
            group,
            name: variant.name.to_owned(),
            median: *median,
            reference,
            reference_median: medians[0],
            limit: limit.filter(|_| n > 0),
            units: Some(units(place, variant).await),
        });
    }
}

async fn units(place: &Place, variant: &Variant<'_>) -> (f64, f64) {
    let event = || place.authorize(variant.agent, &(variant.body)(place));
    // What only the first call of an agent does is not measured.
    variant.recorded.call(&event()).await.expect(200);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (_, Units { read, write }) = place.record(variant.recorded, &event(), 200).await;
    let units = |tenths: u64| f64::from(u32::try_from(tenths).expect("few")) / 10.0;
    (units(read), units(write))
}

async fn create_catalog(place: &Place, table: &str) {
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash);
    let attribute = AttributeDefinition::builder()
        .attribute_name("pk")
        .attribute_type(ScalarAttributeType::S);
    let create = place.world.stack.db.create_table().table_name(table);
    let create = create
        .key_schema(key.build().expect("a key"))
        .attribute_definitions(attribute.build().expect("an attribute"))
        .billing_mode(BillingMode::PayPerRequest);
    create.send().await.expect("a table");
}
