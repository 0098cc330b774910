//! The decision compared with Cedar and Rego: the same cases, from the same data, with the same answers.
//!
//! Only the decision is timed. Ours is [`evaluate`] on facts that were read before. Cedar is `is_authorized` on a
//! parsed policy set, prepared entities and a prepared request. Rego is regorus' virtual machine on a compiled program,
//! with data and input already converted to its own values; passing the input is a separate reference. All three get
//! the amount that counts in each window and the parents of the host name, so that the features that the other two lack
//! cost them nothing. Ours also removes the expired entries itself and prepares the charges of the reservation.
//!
//! Before the timing, all three must answer every case with the same set of failed checks.

mod cedar;
mod rego;

use cedar::Cedar;
use purser_bench::{Case, Table};
use purser_domain::evaluate;
use rego::Rego;
use std::hint::black_box;

/// At most this fraction of the reference's time: at least twenty times as fast.
const RATIO: f64 = 0.05;
/// The same time, within the noise of a machine that is not idle.
const SAME: f64 = 1.25;

fn main() -> std::io::Result<()> {
    let mut table = Table::new("evaluation")?;
    for case in Case::all() {
        compare(&mut table, "decide", case.name, &case);
    }
    let alone = Case::allow(1);
    let facts = alone.facts();
    for services in [100, 10_000] {
        let case = Case::allow(services);
        let name = format!("{services} services");
        compare(&mut table, "decide, by services of the agent", &name, &case);
        let many = case.facts();
        table.hold(
            SAME,
            "decide, by services",
            &name,
            || evaluate(black_box(&many)),
            &mut [("of an agent with one", &mut || {
                drop(black_box(evaluate(black_box(&facts))))
            })],
        );
        table.compare(
            "find and decide, by services of the catalog",
            &name,
            || evaluate(&black_box(&case).facts()),
            &mut [("in a catalog of one", &mut || {
                drop(black_box(evaluate(&black_box(&alone).facts())))
            })],
        );
    }
    table.write()
}

fn compare(table: &mut Table, group: &str, name: &str, case: &Case) {
    let cedar = Cedar::prepare(case);
    let mut rego = Rego::prepare(case);
    let ours = case.decide();
    assert_eq!(ours.is_empty(), case.name == "allow", "{name}");
    assert!(case.name == "allow" || ours.contains(case.name), "{name}: {ours:?}");
    assert_eq!(cedar.decide(), ours, "Cedar, {name}");
    assert_eq!(rego.decide(), ours, "Rego, {name}");

    let facts = case.facts();
    table.hold(
        RATIO,
        group,
        name,
        || evaluate(black_box(&facts)),
        &mut [
            ("cedar-policy", &mut || drop(black_box(cedar.run()))),
            ("regorus", &mut || drop(black_box(rego.run()))),
        ],
    );
}
