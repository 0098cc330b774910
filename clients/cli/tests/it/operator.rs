//! Tests of the operators' commands.

use crate::home::{Home, TOKEN};
use purser_tests::{World, fresh_key, operation_entry, payment_entry, service_entry};
use reqwest::Method;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub(crate) fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).unwrap();
}

/// An unchanged export has no differences.
#[tokio::test(flavor = "multi_thread")]
async fn catalog_apply_shows_differences_before_writing_them() {
    let world = World::start().await;
    let home = Home::of_operator(&world);
    let apply = async |more: &[&str]| home.run(&[&["--json", "catalog", "apply", "all"], more].concat()).await;
    home.run(&["catalog", "export", "all"]).await.done();
    let before = world.rows_of("CatalogTable").await;
    let none = apply(&["--yes"]).await.json();
    assert_eq!(
        (&none["differences"], &none["written"]),
        (&json!(0), &json!(0)),
        "{none}"
    );

    // One service is changed, and another service is new and has no id.
    let folder = home.folder().join("all");
    let (weather, newcomer) = (folder.join("lab-weather.json"), folder.join("newcomer.json"));
    let mut entry = read(&weather);
    entry["name"] = json!("Weather for all");
    entry["operations"][0]["label"] = json!("The weather");
    write(&weather, &entry);
    let mut new = entry.clone();
    new.as_object_mut().unwrap().remove("id");
    new["slug"] = json!("newcomer");
    new["operations"] = json!([]);
    write(&newcomer, &new);
    let shown = apply(&["--dry-run"]).await.json();
    assert_eq!((&shown["differences"], &shown["written"]), (&json!(2), &json!(0)));
    let of = |slug: &str| {
        shown["services"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["slug"] == slug)
            .unwrap()
            .clone()
    };
    let changes = of("lab-weather")["changes"].clone();
    assert_eq!(changes.as_array().unwrap().len(), 2, "{changes}");
    assert_eq!(
        (&changes[0]["at"], &changes[0]["to"]),
        (&json!("name"), &json!("Weather for all"))
    );
    assert_eq!(changes[1]["at"], "weather.current label");
    assert_eq!(of("newcomer")["is_new"], true);
    let lines = home.run(&["catalog", "apply", "all", "--dry-run"]).await;
    assert!(
        lines.err.contains("weather.current label: ") && lines.err.contains("newcomer"),
        "{lines:?}"
    );
    let unasked = apply(&[]).await;
    assert!(
        unasked.code == 1 && unasked.err.contains("--yes"),
        "nobody can be asked: {unasked:?}"
    );
    assert_eq!(world.rows_of("CatalogTable").await.changes_since(&before), [""; 0]);

    assert_eq!(apply(&["--yes"]).await.json()["written"], 2);
    assert_eq!(apply(&["--yes"]).await.json()["differences"], 0, "it is so now");
    assert_eq!(world.service("lab-weather").await.name, "Weather for all");
    assert!(world.service("newcomer").await.operations.is_empty());
    // A single file can be applied.
    let one = home
        .run(&["--json", "catalog", "apply", "all/newcomer.json", "--yes"])
        .await
        .json();
    assert_eq!(one["differences"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_price_increase_is_not_a_difference() {
    let world = World::start().await;
    let home = Home::of_operator(&world);
    let mut operation = operation_entry("news.read", "https://newcomer.example/news");
    operation["payment"] = payment_entry(1_000, &world.stack.providers.pay_to);
    let mut entry = service_entry("newcomer", &[operation]);
    entry["id"] = json!(fresh_key());
    let file = home.folder().join("newcomer.json");
    let apply = ["--json", "catalog", "apply", "newcomer.json", "--yes"];
    write(&file, &entry);
    assert_eq!(home.run(&apply).await.json()["written"], 1);
    entry["operations"][0]["payment"]["amount_units"] = json!(2_000);
    write(&file, &entry);
    assert_eq!(home.run(&apply).await.json()["written"], 1);
    let id = entry["id"].as_str().unwrap();
    let stored = world.operator_gets(&format!("/internal/services/{id}")).await.ok();
    assert!(stored["operations"][0]["next"].is_object(), "{stored}");
    assert_eq!(home.run(&apply).await.json()["differences"], 0, "it waits");
    home.run(&["catalog", "export", "later"]).await.done();
    let later = ["--json", "catalog", "apply", "later", "--yes"];
    assert_eq!(home.run(&later).await.json()["differences"], 0, "nothing is taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_validation_errors_of_all_catalog_files_are_reported() {
    let world = World::start().await;
    let home = Home::of_operator(&world);
    home.run(&["catalog", "export", "all"]).await.done();
    let folder = home.folder().join("all");
    let weather = folder.join("lab-weather.json");
    let good = read(&weather);
    let before = world.rows_of("CatalogTable").await;

    // If one file is invalid, nothing is written.
    std::fs::write(folder.join("broken.json"), "{").unwrap();
    let mut wrong = good.clone();
    wrong["id"] = json!("7");
    wrong["prise"] = json!(1);
    wrong["operations"][0].as_object_mut().unwrap().remove("label");
    write(&folder.join("wrong.json"), &wrong);
    write(&folder.join("twice.json"), &good);
    let mut changed = good.clone();
    changed["name"] = json!("Changed");
    write(&weather, &changed);
    let refused = home.run(&["--json", "catalog", "apply", "all", "--yes"]).await;
    assert_eq!(refused.code, 1);
    let told = refused.error_json()["problems"].to_string();
    for problem in [
        "broken.json: it is no JSON",
        "wrong.json: /id: must be a UUID",
        "wrong.json: /prise",
        "wrong.json: /operations/0/label: is missing",
        "twice.json: lab-weather is in",
    ] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    assert_eq!(world.rows_of("CatalogTable").await.changes_since(&before), [""; 0]);

    // A rejected entry does not stop the other entries.
    for name in ["broken.json", "wrong.json", "twice.json"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    let mut bad = good.clone();
    bad.as_object_mut().unwrap().remove("id");
    bad["slug"] = json!("bad");
    bad["category"] = json!("everything");
    bad["operations"][0]["payment"]["pay_to"] = json!("0x0");
    write(&folder.join("bad.json"), &bad);
    let refused = home.run(&["--json", "catalog", "apply", "all", "--yes"]).await;
    assert_eq!(refused.code, 1);
    let told = refused.error_json()["problems"].to_string();
    for problem in ["bad.json: /category", "bad.json: /operations/0/payment/pay_to"] {
        assert!(told.contains(problem), "{problem}: {told}");
    }
    let answer: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((&answer["differences"], &answer["written"]), (&json!(2), &json!(1)));
    assert_eq!(world.service("lab-weather").await.name, "Changed");
}

/// The token file has mode 600. A file that others may read is rejected.
#[tokio::test(flavor = "multi_thread")]
async fn operators_request_probes_with_a_protected_token() {
    let world = World::start().await;
    let home = Home::of_operator(&world);
    home.run(&["catalog", "probe", "lab-weather"]).await.done();
    let list = world.operator_gets("/internal/services").await.ok();
    let asked = list["services"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| !one["probe_requested_at"].is_null());
    assert_eq!(
        asked.map(|one| one["slug"].as_str().unwrap()).collect::<Vec<_>>(),
        ["lab-weather"]
    );
    let unknown = home.run(&["catalog", "probe", "lab-weather", "no-such"]).await;
    assert!(unknown.code == 1 && unknown.err.contains("no-such"), "{unknown:?}");
    assert_eq!(home.run(&["catalog", "probe"]).await.code, 2);
    assert_eq!(
        home.run(&["--json", "catalog", "probe", "--all"]).await.json()["asked_for"],
        list["count"]
    );

    let nobody = Home::without_key(&world);
    assert!(nobody.run(&["catalog", "export", "x"]).await.err.contains(TOKEN));
    let stranger = Home::without_key(&world).with(TOKEN, "another");
    let refused = stranger.run(&["catalog", "export", "x"]).await;
    assert!(
        refused.code == 1 && refused.err.contains("invalid_internal_token") && refused.err.contains(TOKEN),
        "{refused:?}"
    );
    let login = ["login", "--operator"];
    assert_eq!(nobody.run_with(&login, Some("another")).await.code, 1);
    nobody.run_with(&login, Some(&world.stack.internal_token)).await.done();
    let file = nobody.folder().join(".config/purser/operator-token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    nobody.run(&["catalog", "export", "x"]).await.done();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(nobody.run(&["catalog", "export", "x"]).await.err.contains("chmod 600"));
    nobody.run(&["logout", "--operator"]).await.done();
    assert!(!file.exists());
}

/// Writes a service, or the part of the service at `path`, with `If-Match: *`.
pub(crate) async fn put(world: &World, id: &str, path: &str, body: &Value) -> Value {
    let path = format!("/internal/services/{id}{path}");
    world.operator_edits(Method::PUT, &path, body).await.ok()
}
