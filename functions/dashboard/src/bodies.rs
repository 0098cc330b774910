//! Tests which request bodies are valid, and the paths of the validation errors of invalid bodies.

use crate::agents;
use crate::agents::operations::AgentUpdate;
use crate::approvals;
use crate::keys;
use crate::rules;
use crate::services;
use purser_api::Member as _;
use purser_domain::{
    Address, Amount, ApprovalException, ApprovalRequired, AutomaticFreeze, Availability, BudgetLimit, CalendarPeriod,
    Catalog, Category, CategoryBlock, CountLimit, DomainPattern, DuplicateGuard, Duration, Endpoint, Error, ErrorKind,
    KeyScope, LimitAction, ListingHistory, MinimumInterval, NewPayee, Operation, OperationScope, OperationSlug,
    OperationUuid, Permission, PolicyUpdate, PriceAboveUsual, Result, RuleId, RuleKind, RuleWindow, Schedule,
    SchedulePeriod, Service, ServiceId, ServiceSlug, SourceNetwork, Timestamp, TrustStatus, Url, UsualPrice, Vendor,
    VendorAllowlist, WindowPeriod, ZoneName,
};
use serde_json::{Value, json};

fn catalog() -> Catalog {
    let operation = |slug| Operation {
        id: OperationUuid::from_uuid(uuid::Uuid::nil()),
        slug: OperationSlug::parse(slug).unwrap(),
        availability: Availability::PaidX402,
        label: String::new(),
        method: "GET".to_owned(),
        endpoint: Endpoint::parse("https://lab.example/").unwrap(),
        category: Category::Data,
        execution: String::new(),
        price_model: String::new(),
        estimated_price: Amount::ZERO,
        max_price: None,
        params: json!({}),
        fetches_target: None,
        next: None,
        payment: None,
    };
    Catalog::new(vec![Service {
        id: ServiceId::from_uuid(uuid::Uuid::from_u128(7)),
        version: 1,
        curated: true,
        history: ListingHistory::default(),
        slug: ServiceSlug::parse("lab-search").unwrap(),
        name: "Lab".to_owned(),
        description: String::new(),
        website: Url::parse("https://lab.example/").unwrap(),
        logo_url: None,
        category: Category::Data,
        source: String::new(),
        trust_status: TrustStatus::Listed,
        operations: vec![operation("web.search"), operation("web.count")],
    }])
}

/// Returns the paths of all validation errors, or the slug of another error.
fn validation_error_paths<T>(result: &Result<T>) -> Vec<String> {
    match result.as_ref().map_err(Error::kind) {
        Ok(_) => Vec::new(),
        Err(ErrorKind::InvalidRequest(errors)) => errors.iter().map(|error| error.path.clone()).collect(),
        Err(other) => vec![other.slug()],
    }
}

/// A request body, and the paths of the validation errors.
type Row = (Value, Vec<&'static str>);

fn assert_error_paths<T>(parse: impl Fn(&Value) -> Result<T>, rows: Vec<Row>) {
    let no_objects = ["null", "[]", "7", "\"x\"", "true"].map(|text| (serde_json::from_str(text).unwrap(), vec![""]));
    for (body, expected) in no_objects.into_iter().chain(rows) {
        assert_eq!(validation_error_paths(&parse(&body)), expected, "{body}");
    }
}

fn error_rows_at_path(values: Vec<Value>, row_for: impl Fn(Value) -> Value, path: &'static str) -> Vec<Row> {
    values.into_iter().map(|value| (row_for(value), vec![path])).collect()
}

fn invalid_names() -> Vec<Value> {
    let texts = ["", "   ", "a\nb", "\u{0}", "a\u{7f}", "a\u{85}b", "\t"].map(|text| json!(text));
    let long = [json!("x".repeat(101)), json!("\u{1f4a1}".repeat(101))];
    [
        texts.to_vec(),
        long.to_vec(),
        vec![json!(7), json!(1.5)],
        non_text_values(),
    ]
    .concat()
}

fn non_text_values() -> Vec<Value> {
    vec![json!(true), json!([]), json!({})]
}

fn non_bool_values() -> Vec<Value> {
    vec![json!("true"), json!(1), json!(0), json!([]), json!({})]
}

/// Each amount has one validation error.
fn invalid_amounts() -> Vec<Value> {
    let fractions = vec![json!(0.5), json!(1.000_1), json!(-1.0), json!(1e16), json!(1e300)];
    let others = vec![json!("1"), json!(true), json!([1]), json!({"units": 1})];
    let beyond = vec![
        json!(-1),
        json!(i64::MIN),
        json!(9_007_199_254_740_992_u64),
        json!(u64::MAX),
    ];
    [fractions, others, beyond].concat()
}

#[test]
fn an_agent_needs_a_name() {
    let read = agents::api::NewAgent::parse;
    assert_eq!(read(&json!({"name": " buyer "})).unwrap().name.as_str(), "buyer");
    let safe = read(&json!({"name": "buyer", "limits": "safe"})).unwrap();
    assert_eq!(safe.limits, Some(purser_domain::StartingLimits::Safe));
    let mut rows = error_rows_at_path(invalid_names(), |name| json!({"name": name}), "/name");
    let no_limits = ["", "Safe", "all"].map(|text| json!(text));
    rows.extend(error_rows_at_path(
        no_limits.to_vec(),
        |limits| json!({"name": "a", "limits": limits}),
        "/limits",
    ));
    rows.extend([
        (json!({}), vec!["name_required"]),
        (json!({"name": null, "owner": 7}), vec!["name_required"]),
        (
            json!({"name": 7, "owner": "me", "status": "active", "wallet_address": null, "a/b~c": 1, "": 2}),
            vec!["/", "/a~1b~0c", "/name", "/owner", "/status", "/wallet_address"],
        ),
    ]);
    assert_error_paths(read, rows);
}

#[test]
fn an_agent_update_may_change_nothing() {
    let mut rows = error_rows_at_path(invalid_names(), |name| json!({"name": name}), "/name");
    let no_statuses = ["", "Frozen", "frozen ", "deleted", "pending"].map(|text| json!(text));
    rows.extend(error_rows_at_path(
        no_statuses.to_vec(),
        |status| json!({"status": status}),
        "/status",
    ));
    rows.extend(error_rows_at_path(
        non_bool_values(),
        |status| json!({"status": status}),
        "/status",
    ));
    rows.extend([
        (json!({"status": "frozen"}), vec![]),
        (json!({"name": "x", "status": null}), vec![]),
        (json!({}), vec![]),
        (json!({"name": null, "status": null}), vec![]),
        (
            json!({"name": "", "status": 1, "owner": "me", "version": 3}),
            vec!["/name", "/owner", "/status", "/version"],
        ),
    ]);
    assert_error_paths(AgentUpdate::parse, rows);
}

#[test]
fn omitted_key_scope_fields_impose_no_limit() {
    let read = |body: Value| keys::api::parse_scope(&body, &catalog(), Timestamp::EPOCH).unwrap();
    for nothing in [
        json!({}),
        json!({"permissions": null, "services": null, "networks": null, "expires_at": null}),
    ] {
        assert_eq!(read(nothing), KeyScope::default());
    }
    let lab = ServiceId::from_uuid(uuid::Uuid::from_u128(7));
    for service in ["lab-search".to_owned(), lab.to_string()] {
        let body = json!({
            "permissions": ["pay"], "services": [service], "networks": ["203.0.113.0/24", "2001:DB8::/32"],
            "expires_at": "1970-01-01T01:00:00.000001+01:00",
        });
        let scope = KeyScope {
            permissions: Some(vec![Permission::Pay]),
            services: Some(vec![lab]),
            networks: Some(
                ["203.0.113.0/24", "2001:db8::/32"]
                    .map(|block| SourceNetwork::parse(block).unwrap())
                    .into(),
            ),
            expires_at: Timestamp::from_micros(1),
        };
        assert_eq!(read(body), scope);
    }
}

#[test]
fn all_key_scope_errors_are_reported_together() {
    let mut rows = Vec::new();
    for (name, path) in [
        ("permissions", "/permissions"),
        ("services", "/services"),
        ("networks", "/networks"),
    ] {
        let of = |value: Value| json!({name: value});
        rows.extend(error_rows_at_path(
            vec![json!([]), json!("read"), json!(7), json!({}), json!(true)],
            of,
            path,
        ));
    }
    let no_instants = [
        "",
        "tomorrow",
        "2026-12-31",
        "2026-12-31T23:59:59",
        "10000-01-01T00:00:00Z",
        "1969-12-31T23:59:59Z",
    ];
    let no_instants = [
        no_instants.map(|text| json!(text)).to_vec(),
        invalid_amounts(),
        non_text_values(),
    ]
    .concat();
    rows.extend(error_rows_at_path(
        no_instants,
        |at| json!({"expires_at": at}),
        "/expires_at",
    ));
    let now = Timestamp::EPOCH.after(Duration::DAY);
    let many = |count: u8| -> Vec<String> { (0..count).map(|n| format!("10.0.{n}.0/24")).collect() };
    let uuids: Vec<String> = (100..121).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
    let mut too_many_services = vec!["/services"];
    let unknown: Vec<String> = (0..21).map(|n| format!("/services/{n}")).collect();
    rows.extend([
        (json!({"expires_at": now.to_string()}), vec!["/expires_at"]),
        (json!({"expires_at": "1970-01-02T00:00:00.000001Z"}), vec![]),
        (json!({"networks": many(10)}), vec![]),
        (json!({"networks": many(11)}), vec!["/networks"]),
        (json!({"permissions": ["pay", "read"]}), vec![]),
        (json!({"permissions": ["Pay", "write", null, 7, "pay"]}), vec!["/permissions/0", "/permissions/1", "/permissions/2", "/permissions/3"]),
        (json!({"services": ["lab-search", "00000000-0000-0000-0000-000000000007", "no-such", "lab\nsearch", 7]}), vec!["/services/3", "/services/4"]),
        (json!({"services": ["lab-search", "00000000-0000-0000-0000-000000000007", "no-such"]}), vec!["/services/1", "/services/2"]),
        (json!({"networks": ["203.0.113.7/24", "::ffff:10.0.0.0/104", "203.0.113.7", "10.0.0.0/8", null]}), vec!["/networks/0", "/networks/1", "/networks/2", "/networks/4"]),
        (
            json!({
                "permissions": ["pay", "pay"], "services": ["none"], "networks": ["10.0.0.0/8", "10.0.0.0/8"], "expires_at": "x",
                "name": "spare", "network": [],
            }),
            vec!["/expires_at", "/name", "/network", "/networks/1", "/permissions/1", "/services/0"],
        ),
    ]);
    too_many_services.extend(unknown.iter().map(String::as_str));
    let read = |body: &Value| keys::api::parse_scope(body, &catalog(), now);
    let mut told_of_many = validation_error_paths(&read(&json!({"services": uuids})));
    too_many_services.sort_unstable();
    told_of_many.sort();
    assert_eq!(told_of_many, too_many_services);
    assert_error_paths(read, rows);
}

/// The overlap is a whole number of seconds from 0 to 2,592,000.
#[test]
fn key_rotation_overlap_is_limited_to_thirty_days() {
    let of = |seconds| json!({"overlap_seconds": seconds});
    let mut rows = error_rows_at_path(invalid_amounts(), of, "/overlap_seconds");
    rows.extend(error_rows_at_path(
        vec![json!(2_592_001), json!(4_294_967_296_u64)],
        of,
        "/overlap_seconds",
    ));
    rows.extend([0, 1, 2_592_000].map(|seconds| (of(json!(seconds)), vec![])));
    rows.extend([-0.0, 1.0, 1e3, 2_592_000.0].map(|seconds| (of(json!(seconds)), vec![])));
    rows.extend([
        (json!({}), vec!["overlap_seconds_required"]),
        (
            json!({"overlap_seconds": -1, "overlap": 0}),
            vec!["/overlap", "/overlap_seconds"],
        ),
    ]);
    assert_error_paths(keys::api::Rotate::parse, rows);
}

/// A null field also stays unchanged, except that `enabled_operations: null` enables all operations.
#[test]
fn omitted_policy_fields_stay_unchanged() {
    let policy = |mut body: Value| {
        body["service_id"] = json!("lab-search");
        services::api::parse_enable_request(&body, &catalog()).unwrap().1
    };
    let nothing = PolicyUpdate::default();
    assert_eq!(policy(json!({})), nothing);
    let nulls = json!({"max_per_call_units": null, "max_per_day_units": null, "require_approval_above_units": null});
    assert_eq!(policy(nulls), nothing);
    let every = PolicyUpdate {
        enabled_operations: Some(OperationScope::All),
        ..PolicyUpdate::default()
    };
    assert_eq!(policy(json!({"enabled_operations": null})), every);
    let full = PolicyUpdate {
        max_per_call: Some(Amount::ZERO),
        max_per_day: Some(Amount::MAX),
        require_approval_above: Amount::from_units(5),
        enabled_operations: Some(OperationScope::Only(vec![OperationSlug::parse("web.search").unwrap()])),
        allowed_domains: Some(vec![DomainPattern::parse("example.com").unwrap()]),
    };
    let body = json!({
        "max_per_call_units": 0, "max_per_day_units": Amount::MAX.units(), "require_approval_above_units": 5,
        "enabled_operations": ["web.search"], "allowed_domains": ["EXAMPLE.com"],
    });
    assert_eq!(policy(body), full);
}

/// Returns bodies with the fields of `base` and of a policy, each with the paths of the validation errors.
fn invalid_policy_bodies(base: &Value) -> Vec<Row> {
    let with = |name: &str, value: Value| {
        let mut body = base.clone();
        body[name] = value;
        body
    };
    let mut rows = Vec::new();
    let caps = [
        ("max_per_call_units", "/max_per_call_units"),
        ("max_per_day_units", "/max_per_day_units"),
        ("require_approval_above_units", "/require_approval_above_units"),
    ];
    for (name, path) in caps {
        rows.extend(error_rows_at_path(invalid_amounts(), |value| with(name, value), path));
    }
    let no_lists = || vec![json!("web.search"), json!(7), json!(true), json!({})];
    let operations = |list: Value| with("enabled_operations", list);
    let domains = |list: Value| with("allowed_domains", list);
    rows.extend(error_rows_at_path(no_lists(), operations, "/enabled_operations"));
    rows.extend(error_rows_at_path(no_lists(), domains, "/allowed_domains"));
    rows.extend([
        (
            operations(json!(["web.search", "web.search"])),
            vec!["/enabled_operations/1"],
        ),
        (operations(json!(["web.scrape"])), vec!["/enabled_operations/0"]),
        (
            operations(json!(["web.search", "Web.search", 7, null])),
            vec![
                "/enabled_operations/1",
                "/enabled_operations/2",
                "/enabled_operations/3",
            ],
        ),
        (
            domains(json!(["example.com", "https://example.com", "exa mple.com", "", 7])),
            vec![
                "/allowed_domains/1",
                "/allowed_domains/2",
                "/allowed_domains/3",
                "/allowed_domains/4",
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
        // The catalog is checked even if other fields are invalid.
        ("enabled_operations", json!(["web.search", "web.scrape"])),
        ("allowed_domains", json!([7])),
        ("allowedDomains", json!([])),
    ] {
        all[name] = value;
    }
    let every = vec![
        "/allowedDomains",
        "/allowed_domains/0",
        "/enabled_operations/1",
        "/max_per_call_units",
        "/max_per_day_units",
        "/require_approval_above_units",
    ];
    rows.push((all, every));
    rows
}

/// The parser does not check whether the catalog contains the service.
#[test]
fn requests_to_enable_a_service_require_its_id() {
    let catalog = catalog();
    let mut rows = invalid_policy_bodies(&json!({"service_id": "lab-search"}));
    let no_references = [json!(""), json!("x".repeat(129)), json!("lab\nsearch"), json!(7)].to_vec();
    let of = |service| json!({"service_id": service});
    rows.extend(error_rows_at_path(
        [no_references, non_text_values()].concat(),
        of,
        "/service_id",
    ));
    rows.extend([
        (json!({"max_per_call_units": -1}), vec!["service_id_required"]),
        (
            json!({"service_id": 7, "enabled": true, "max_per_call_units": -1}),
            vec!["/enabled", "/max_per_call_units", "/service_id"],
        ),
        // The catalog does not contain this service.
        (json!({"service_id": "nowhere", "enabled_operations": ["x.y"]}), vec![]),
    ]);
    assert_error_paths(|body| services::api::parse_enable_request(body, &catalog), rows);
}

#[test]
fn a_service_policy_update_may_change_nothing() {
    let catalog = catalog();
    let mut rows = invalid_policy_bodies(&json!({"enabled": false}));
    rows.extend(error_rows_at_path(
        non_bool_values(),
        |enabled| json!({"enabled": enabled}),
        "/enabled",
    ));
    rows.extend([
        (json!({"enabled": false}), vec![]),
        (json!({"enabled_operations": null}), vec![]),
        (json!({}), vec![]),
        (json!({"enabled": null, "max_per_day_units": null}), vec![]),
        (
            json!({"policy": {}, "max_per_call_units": null, "enabled_operations": null}),
            vec![],
        ),
        (
            json!({"policy": {}, "max_per_call_units": 1}),
            vec!["/max_per_call_units"],
        ),
        (
            json!({"enabled": 1, "service_id": "lab-search", "version": 1}),
            vec!["/enabled", "/service_id", "/version"],
        ),
    ]);
    assert_error_paths(
        |body| services::api::parse_service_update(body, catalog.find_by_reference("lab-search")),
        rows,
    );
    let of_one_that_left = services::api::parse_service_update(&json!({"enabled_operations": ["web.search"]}), None);
    assert_eq!(validation_error_paths(&of_one_that_left), ["/enabled_operations/0"]);
}

#[test]
fn every_rule_kind_is_parsed_from_json() {
    let slugs = || vec![ServiceSlug::parse("lab-search").unwrap()];
    let wallet = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
    let unconditional = RuleKind::ApprovalRequired(ApprovalRequired {
        services: None,
        categories: None,
        above: None,
    });
    let rows = [
        (
            json!({"kind": "category_block", "categories": ["finance", "ai"]}),
            RuleKind::CategoryBlock(CategoryBlock {
                categories: vec![Category::Finance, Category::Ai],
            }),
        ),
        (
            json!({"kind": "vendor_allowlist", "services": ["lab-search"], "wallets": [wallet]}),
            RuleKind::VendorAllowlist(VendorAllowlist {
                vendors: vec![
                    Vendor::Service(slugs().remove(0)),
                    Vendor::Wallet(wallet.parse().unwrap()),
                ],
            }),
        ),
        (
            json!({"kind": "budget_limit", "limit_units": 0, "window_seconds": 3600}),
            RuleKind::BudgetLimit(BudgetLimit {
                limit: Amount::ZERO,
                window: Duration::from_secs_u32(3_600).into(),
            }),
        ),
        (
            json!({"kind": "budget_limit", "limit_units": 0, "period": "month", "time_zone": "Europe/Berlin", "services": ["lab-search"], "action": "ask", "per_payee": true}),
            RuleKind::BudgetLimit(BudgetLimit {
                limit: Amount::ZERO,
                window: RuleWindow {
                    services: Some(slugs()),
                    categories: None,
                    keys: None,
                    per_payee: true,
                    period: WindowPeriod::Calendar(CalendarPeriod::Month, ZoneName::parse("Europe/Berlin").unwrap()),
                    action: LimitAction::Ask,
                },
            }),
        ),
        (
            json!({"kind": "count_limit", "count": 3, "period": "lifetime", "action": "block"}),
            RuleKind::CountLimit(CountLimit {
                count: 3,
                window: RuleWindow {
                    services: None,
                    categories: None,
                    keys: None,
                    per_payee: false,
                    period: WindowPeriod::Lifetime,
                    action: LimitAction::Block,
                },
            }),
        ),
        (json!({"kind": "approval_required"}), unconditional),
        (
            json!({"kind": "approval_required", "services": ["lab-search"], "categories": ["ai"], "above_units": 5}),
            RuleKind::ApprovalRequired(ApprovalRequired {
                services: Some(slugs()),
                categories: Some(vec![Category::Ai]),
                above: Amount::from_units(5),
            }),
        ),
        (
            json!({"kind": "count_limit", "services": ["lab-search"], "count": 1, "window_seconds": 60}),
            RuleKind::CountLimit(CountLimit {
                count: 1,
                window: RuleWindow {
                    services: Some(slugs()),
                    ..Duration::from_secs_u32(60).into()
                },
            }),
        ),
        (
            json!({"kind": "minimum_interval", "interval_seconds": 1}),
            RuleKind::MinimumInterval(MinimumInterval {
                services: None,
                interval: Duration::from_secs_u32(1),
            }),
        ),
        (
            json!({"kind": "duplicate_guard", "within_seconds": 2_678_400, "action": "ask"}),
            RuleKind::DuplicateGuard(DuplicateGuard {
                services: None,
                within: Duration::from_secs_u32(2_678_400),
                action: LimitAction::Ask,
            }),
        ),
        (
            json!({"kind": "new_payee"}),
            RuleKind::NewPayee(NewPayee { services: None }),
        ),
        (
            json!({"kind": "approval_exception", "payee": "0xa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1", "max_amount_units": 5, "until": "1970-01-01T00:00:00Z", "operation_id": "search.web", "waived_rules": [uuid::Uuid::from_u128(7)]}),
            RuleKind::ApprovalException(ApprovalException {
                services: None,
                operation: Some(OperationSlug::parse("search.web").unwrap()),
                keys: None,
                payee: Address::repeat_byte(0xa1),
                max_amount: Amount::from_units(5).unwrap(),
                until: Timestamp::EPOCH,
                waives_threshold: false,
                waived_rules: vec![RuleId::from_uuid(uuid::Uuid::from_u128(7))],
            }),
        ),
        (
            json!({"kind": "anomaly_brake", "times": 100, "at_least_units": 1}),
            RuleKind::AutomaticFreeze(AutomaticFreeze {
                times: 100,
                at_least: Amount::ONE,
            }),
        ),
        (
            json!({"kind": "price_above_usual", "percent": 0, "over": "catalog", "action": "block"}),
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent: 0,
                over: UsualPrice::Catalog,
                action: LimitAction::Block,
            }),
        ),
        (
            json!({"kind": "price_above_usual", "percent": 10_000, "over": "median", "of": 9, "action": "ask"}),
            RuleKind::PriceAboveUsual(PriceAboveUsual {
                services: None,
                percent: 10_000,
                over: UsualPrice::Median(9),
                action: LimitAction::Ask,
            }),
        ),
        (
            json!({"kind": "schedule", "time_zone": "Europe/Berlin", "periods": ["friday 22:30-02:00", "monday-wednesday 09:00-17:00"]}),
            RuleKind::Schedule(Schedule {
                services: None,
                zone: ZoneName::parse("Europe/Berlin").unwrap(),
                periods: ["friday 22:30-02:00", "monday-wednesday 09:00-17:00"]
                    .map(|period| SchedulePeriod::parse(period).unwrap())
                    .to_vec(),
            }),
        ),
    ];
    for (body, rule) in rows {
        assert_eq!(
            rules::api::parse_rule(&body, &catalog()).unwrap().kind(),
            &rule,
            "{body}"
        );
    }
}

#[test]
fn all_rule_errors_are_reported_together() {
    let kinds = ["", "Category_block", "budget"].map(|text| json!(text)).to_vec();
    let kinds = [kinds, non_text_values(), vec![json!(7)]].concat();
    let mut rows = error_rows_at_path(kinds, |kind| json!({"kind": kind, "x": 1}), "/kind");
    let block = |categories: Value| json!({"kind": "category_block", "categories": categories});
    let budget =
        |limit: Value, window: Value| json!({"kind": "budget_limit", "limit_units": limit, "window_seconds": window});
    let vendors =
        |services: Value, wallets: Value| json!({"kind": "vendor_allowlist", "services": services, "wallets": wallets});
    rows.extend(error_rows_at_path(
        invalid_amounts(),
        |limit| budget(limit, json!(3_600)),
        "/limit_units",
    ));
    let beyond = [0, 3_599, 2_678_401, 4_294_967_296_u64 + 3_600].map(|seconds| json!(seconds));
    let no_windows = [invalid_amounts(), beyond.to_vec()].concat();
    rows.extend(error_rows_at_path(
        no_windows,
        |window| budget(json!(1), window),
        "/window_seconds",
    ));
    rows.extend(error_rows_at_path(non_bool_values(), block, "/categories"));
    let many: Vec<String> = (0..52).map(|n| format!("0x{n:040x}")).collect();
    rows.extend([
        (json!({}), vec!["kind_required"]),
        (json!({"kind": null, "categories": []}), vec!["kind_required"]),
        (json!({"kind": "category_block"}), vec!["categories_required"]),
        (
            json!({"kind": "budget_limit", "window_seconds": 0}),
            vec!["limit_units_required"],
        ),
        (
            json!({"kind": "budget_limit", "limit_units": 1}),
            vec!["/window_seconds"],
        ),
        (
            json!({"kind": "budget_limit", "limit_units": 1, "window_seconds": 3600, "period": "lifetime"}),
            vec!["/period"],
        ),
        (
            json!({"kind": "budget_limit", "limit_units": 1, "period": "month"}),
            vec!["/time_zone"],
        ),
        (
            json!({"kind": "count_limit", "count": 1, "period": "lifetime", "time_zone": "UTC"}),
            vec!["/time_zone"],
        ),
        (
            json!({"kind": "count_limit", "count": 1, "period": "year", "time_zone": "Moon", "action": "freeze"}),
            vec!["/action", "/period", "/time_zone"],
        ),
        (block(json!([])), vec!["/categories"]),
        (block(json!(["finance", "finance"])), vec!["/categories/1"]),
        (
            block(json!(["finance", "Finance", 7, null])),
            vec!["/categories/1", "/categories/2", "/categories/3"],
        ),
        (
            json!({"kind": "category_block", "categories": ["x"], "services": ["lab-search"], "rule_id": "x"}),
            vec!["/categories/0", "/rule_id", "/services"],
        ),
        (json!({"kind": "vendor_allowlist"}), vec![""]),
        (json!({"kind": "vendor_allowlist", "x": 1}), vec!["", "/x"]),
        (vendors(json!([]), Value::Null), vec![""]),
        // A field that can't be parsed has no further validation errors.
        (vendors(json!("lab-search"), json!([])), vec!["/services"]),
        (
            vendors(json!(["lab-search", "LAB", 7]), json!(["0x1", 7])),
            vec!["/services/1", "/services/2", "/wallets/0", "/wallets/1"],
        ),
        (
            vendors(json!(["lab-search", "no-such", "lab-search"]), json!([7])),
            vec!["/services/1", "/services/2", "/wallets/0"],
        ),
        (vendors(Value::Null, json!(many[1..51])), vec![]),
        (vendors(Value::Null, json!(many[1..])), vec!["/wallets"]),
        (vendors(Value::Null, json!(many[..2])), vec!["/wallets/0"]),
        (budget(json!(-1), json!(1.5)), vec!["/limit_units", "/window_seconds"]),
        (budget(json!("1"), json!(1)), vec!["/limit_units", "/window_seconds"]),
        (
            json!({"kind": "approval_required", "services": [], "categories": [], "above_units": -1, "above": 1}),
            vec!["/above", "/above_units", "/categories", "/services"],
        ),
        (
            json!({"kind": "approval_required", "services": ["no-such"], "categories": ["no-such"]}),
            vec!["/categories/0", "/services/0"],
        ),
        (
            json!({"kind": "count_limit", "count": 0, "window_seconds": 59, "services": []}),
            vec!["/count", "/window_seconds"],
        ),
        (
            json!({"kind": "count_limit", "count": 1_000_001, "window_seconds": 2_678_401}),
            vec!["/count", "/window_seconds"],
        ),
        (
            json!({"kind": "minimum_interval", "interval_seconds": 0, "services": ["no-such"]}),
            vec!["/interval_seconds"],
        ),
        (
            json!({"kind": "new_payee", "services": ["no-such"]}),
            vec!["/services/0"],
        ),
        (
            json!({"kind": "duplicate_guard", "within_seconds": 0, "action": "allow"}),
            vec!["/action", "/within_seconds"],
        ),
        (json!({"kind": "duplicate_guard", "within_seconds": 1}), vec!["action_required"]),
        (json!({"kind": "new_payee", "services": "lab-search"}), vec!["/services"]),
        (
            json!({"kind": "price_above_usual", "percent": 10_001, "over": "mean", "of": 2, "action": "ask"}),
            vec!["/of", "/over", "/percent"],
        ),
        // `of`, the number of prices in the median, is required with `median` and invalid with `catalog`.
        (
            json!({"kind": "price_above_usual", "percent": 1, "over": "median", "action": "ask"}),
            vec!["/of"],
        ),
        (
            json!({"kind": "price_above_usual", "percent": 1, "over": "catalog", "of": 3, "action": "ask"}),
            vec!["/of"],
        ),
        (
            json!({"kind": "price_above_usual", "percent": 1, "over": "median", "of": 10, "action": "ask"}),
            vec!["/of"],
        ),
        (
            json!({"kind": "schedule", "time_zone": "Berlin", "periods": ["monday 9:00-17:00", "monday 09:00-17:00"]}),
            vec!["/periods/0", "/time_zone"],
        ),
        (
            json!({"kind": "schedule", "time_zone": "UTC", "periods": []}),
            vec!["/periods"],
        ),
        (
            json!({"kind": "schedule", "time_zone": "UTC", "periods": ["monday,tuesday 09:00-17:00", "monday-tuesday 09:00-17:00"]}),
            vec!["/periods/1"],
        ),
    ]);
    assert_error_paths(|body| rules::api::parse_rule(body, &catalog()), rows);
}

#[test]
fn a_bulk_decision_names_one_to_fifty_approvals() {
    let ids = |count: u128| -> Vec<String> { (0..count).map(|n| uuid::Uuid::from_u128(n).to_string()).collect() };
    let body = |decision: Value, ids: Value| json!({"decision": decision, "approval_ids": ids});
    let ids_at = "/approval_ids";
    let wrong = vec![
        json!([]),
        json!(ids(51)),
        json!([ids(1), ids(1)].concat()),
        json!(7),
        json!({}),
    ];
    let mut rows = error_rows_at_path(wrong, |ids| body(json!("approve"), ids), ids_at);
    rows.extend(error_rows_at_path(
        vec![json!("pay"), json!("Approve"), json!(7), json!([])],
        |decision| body(decision, json!(ids(2))),
        "/decision",
    ));
    rows.extend([
        (body(json!("approve"), json!(ids(50))), vec![]),
        (body(json!("reject"), json!(["x"])), vec!["/approval_ids/0"]),
        (json!({"approval_ids": ids(1)}), vec!["decision_required"]),
        (json!({"decision": "reject"}), vec!["approval_ids_required"]),
    ]);
    assert_error_paths(approvals::api::BulkDecision::parse, rows);
}

#[test]
fn an_approval_note_is_a_short_text_or_absent() {
    let written = |note: &str| {
        let body = approvals::api::VerdictBody::parse(&json!({"note": note})).unwrap();
        body.into_note().map(|note| note.as_str().to_owned())
    };
    assert_eq!(written(" a\r\nb "), Some("a\nb".to_owned()));
    assert_eq!(written(" \r\n "), None);
    assert_eq!(written(&"\u{e9}".repeat(500)), Some("\u{e9}".repeat(500)));
    let wrong = ["x".repeat(501), "a\u{0}b".to_owned(), "\u{1b}[31m".to_owned()].map(|text| json!(text));
    let wrong = [wrong.to_vec(), non_text_values(), vec![json!(7)]].concat();
    let mut rows = error_rows_at_path(wrong, |note| json!({"note": note}), "/note");
    rows.extend([
        (json!({}), vec![]),
        (json!({"note": null}), vec![]),
        (
            json!({"note": 7, "Note": "x", "reason": "x", "verdict": "approve"}),
            vec!["/Note", "/note", "/reason", "/verdict"],
        ),
    ]);
    assert_error_paths(approvals::api::VerdictBody::parse, rows);
}
