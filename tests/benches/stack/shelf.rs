//! Measures the catalog list, and the response that the list is unchanged, against a function that returns the same
//! bytes.

use crate::function::{Call, Function};
use crate::place::{Place, one_thread};
use crate::timing::{Report, Row, median};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use std::time::{Duration, Instant};

const ENTRIES: usize = 10_000;
const TURNS: usize = 200;

pub fn catalog(report: &mut Report) {
    let place = Place::start(0);
    place
        .runtime
        .block_on(place.world.fill_catalog("CatalogTable", "lab-search", ENTRIES));
    one_thread().block_on(async {
        let environment = &place.world.stack.environment;
        let catalog = Function::start(purser_catalog::router, environment, &[]).await;
        let call = Call {
            method: "GET",
            path: "/services",
            query: "limit=500",
            header: None,
            body: None,
        };
        let (headers, body) = catalog.call(&call.event()).await.read(200);
        assert_eq!(body["count"], 500);
        let tag = headers["etag"].as_str().expect("a tag").to_owned();
        let bytes = axum::body::Bytes::from(body.to_string());
        let plain = Router::new().route(
            "/services",
            get(|headers: HeaderMap| async move {
                match headers.get("if-none-match") {
                    None => (StatusCode::OK, bytes),
                    Some(_) => (StatusCode::NOT_MODIFIED, axum::body::Bytes::new()),
                }
            }),
        );
        let plain = Function::start(|_| async { Ok(plain) }, environment, &[]).await;
        let known = Call {
            header: Some(("if-none-match", &tag)),
            ..call
        };
        for (name, call, status) in [
            ("GET /services: 500 of 10,000", call, 200),
            ("GET /services: not changed", known, 304),
        ] {
            let (ours, floor) = beside(&catalog, &plain, &call.event(), status).await;
            report.add(&Row {
                group: "catalog",
                name: name.to_owned(),
                median: ours,
                reference: "a function that hands out the same bytes",
                reference_median: floor,
                limit: None,
                units: None,
            });
        }
    });
}

async fn beside(ours: &Function, floor: &Function, event: &[u8], status: u16) -> (Duration, Duration) {
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..TURNS {
        for which in [n % 2, 1 - n % 2] {
            let function = if which == 0 { ours } else { floor };
            let began = Instant::now();
            let answered = function.call(event).await;
            times[which].push(began.elapsed());
            answered.expect(status);
        }
    }
    let [ours, floor] = &mut times;
    (median(ours), median(floor))
}
