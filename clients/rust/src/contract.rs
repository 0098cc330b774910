//! Tests that compare the client with the API's documents (docs/openapi.json, docs/errors.md).

use crate::answer::{
    Agent, AgentDecisionStatement, Approval, ApprovalStatus, Authorized, CheckOutcome, Completed, EnabledServices,
    Preflight, ReceiptStatus, ServiceDetail, ServicePolicy, Services, Settlement, SettlementStatements, Settlements,
    UnpaidCheck,
};
use crate::api::{AuthorizeBody, CompleteBody};
use crate::refusal::{Context, Refusal};
use crate::{Call, CatalogFilter, PaymentTerms, RaiseRequest, Slug, Usdc};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

const ERRORS: &str = include_str!("../../../docs/errors.md");

fn document() -> Value {
    serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap()
}

/// Returns the path and the OpenAPI description of the operation with this `operationId`.
fn operation(document: &Value, id: &str) -> (String, Value) {
    let paths = document["paths"].as_object().unwrap();
    let found = paths.iter().find_map(|(path, methods)| {
        let of_id = |operation: &&Value| operation["operationId"] == id;
        Some((path.clone(), methods.as_object()?.values().find(of_id)?.clone()))
    });
    found.unwrap_or_else(|| panic!("there is no operation {id}"))
}

/// Resolves a schema's `$ref`.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => resolve(document, document.pointer(reference.trim_start_matches('#')).unwrap()),
        None => schema,
    }
}

/// Creates a sample value for a schema: with only the required fields if `is_bare`, otherwise with every field.
fn sample(document: &Value, schema: &Value, is_bare: bool) -> Value {
    let schema = resolve(document, schema);
    if let Some(parts) = schema["allOf"].as_array() {
        let all = parts.iter().map(|part| sample(document, part, is_bare));
        let fields = all.flat_map(|part| part.as_object().unwrap().clone());
        return fields.collect::<Map<_, _>>().into();
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let is_null = |choice: &&Value| choice["type"] == "null";
        let chosen = match choices.iter().find(is_null) {
            Some(_) if is_bare => return Value::Null,
            _ => choices.iter().find(|choice| !is_null(choice)),
        };
        return sample(document, chosen.unwrap(), is_bare);
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    if is_bare && kinds.iter().any(|kind| kind == "null") {
        return Value::Null;
    }
    match kinds[0].as_str().unwrap() {
        "object" => {
            let required = |name: &str| {
                schema["required"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|n| n == name))
            };
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields
                .filter(|(name, _)| !is_bare || required(name))
                .map(|(name, of)| (name.clone(), sample(document, of, is_bare)))
                .collect::<Map<_, _>>()
                .into()
        }
        "array" if is_bare => json!([]),
        "array" => json!([sample(document, &schema["items"], is_bare)]),
        "integer" => json!(7),
        "boolean" => json!(true),
        _ => match (schema["enum"].get(0), schema["format"].as_str()) {
            (Some(word), _) => word.clone(),
            (None, Some("uuid")) => json!("6f0f5d4c-5d0c-4d57-9d7a-0c6b7d8f3a11"),
            (None, Some("date-time")) => json!("2026-01-02T03:04:05Z"),
            _ => json!("text"),
        },
    }
}

/// Lists the fields of `whole` that are absent or different in `part`.
fn missing(whole: &Value, part: &Value, at: &str) -> Vec<String> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => whole
            .iter()
            .flat_map(|(name, value)| match part.get(name) {
                Some(other) => missing(value, other, &format!("{at}/{name}")),
                None => vec![format!("{at}/{name}")],
            })
            .collect(),
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => {
            let pairs = whole.iter().zip(part);
            pairs.flat_map(|(whole, part)| missing(whole, part, at)).collect()
        }
        _ if whole == part => vec![],
        _ => vec![format!("{at}: {whole} is read as {part}")],
    }
}

/// Asserts that the type has every field of the response and serializes the response without changes.
fn answers<T: DeserializeOwned + Serialize>(document: &Value, id: &str) {
    let (_, operation) = operation(document, id);
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    for is_bare in [false, true] {
        let response = sample(document, schema, is_bare);
        let read: T =
            serde_json::from_value(response.clone()).unwrap_or_else(|error| panic!("{id}: {error}: {response}"));
        assert_eq!(missing(&response, &serde_json::to_value(read).unwrap(), id), [""; 0]);
    }
}

/// Compares the response types and the called operations with Purser's OpenAPI document.
#[test]
fn the_client_covers_all_agent_routes_and_fields() {
    let document = document();
    answers::<Authorized>(&document, "authorize");
    answers::<Preflight>(&document, "check");
    answers::<UnpaidCheck>(&document, "check_unpaid");
    answers::<Completed>(&document, "complete");
    answers::<Settlement>(&document, "receipt");
    answers::<Settlements>(&document, "receipts");
    answers::<SettlementStatements>(&document, "settlement_statement");
    answers::<AgentDecisionStatement>(&document, "agent_decision_statement");
    answers::<Approval>(&document, "approval");
    answers::<Approval>(&document, "raise");
    answers::<Agent>(&document, "me");
    answers::<EnabledServices>(&document, "services");
    answers::<ServicePolicy>(&document, "policy");
    answers::<Services>(&document, "list_services");
    answers::<ServiceDetail>(&document, "read_service");
    let here = [
        "agent_decision_statement",
        "approval",
        "authorize",
        "check",
        "check_unpaid",
        "complete",
        "list_services",
        "me",
        "policy",
        "raise",
        "read_service",
        "receipt",
        "receipts",
        "services",
        "settlement_statement",
    ];
    // Operations that this client does not call, because they are for verifiers, MCP hosts, OAuth clients or openers of
    // runs.
    let others = [
        "close_run",
        "document",
        "llms_txt",
        "log_checkpoint",
        "log_trust",
        "mcp",
        "oauth_device",
        "oauth_mcp_resource",
        "oauth_register",
        "oauth_resource",
        "oauth_server",
        "oauth_token",
        "open_run",
        "skill",
        "statement_keys",
    ];
    let is_for_agents = |operation: &&Value| {
        let security = operation["security"].as_array();
        security.is_none_or(|all| all.iter().any(|item| item.get("agentKey").is_some()))
    };
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|methods| methods.as_object().unwrap().values());
    let described: BTreeSet<&str> = operations
        .filter(is_for_agents)
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(described, here.into_iter().chain(others).collect());
}

#[test]
fn the_client_can_send_every_field_of_each_request() {
    let document = document();
    let terms = PaymentTerms::read(
        &reqwest::header::HeaderMap::new(),
        br#"{"x402Version": 1, "accepts": [{"scheme": "exact"}]}"#,
    );
    let terms = terms.unwrap();
    let call = Call {
        method: "GET",
        url: "https://provider.example/",
        body_hash: Some("sha256:0".to_owned()),
        target_url: Some("https://page.example/"),
        service_id: Some("a"),
        operation_id: Some("a.b"),
        ceiling: Usdc::from_units(7),
    };
    let judged = || AuthorizeBody::new(&call, &terms);
    let authorize = AuthorizeBody {
        idempotency_key: Some("k"),
        replay_key: Some("k"),
        approval_id: Some(Uuid::nil()),
        ..judged()
    };
    let complete = CompleteBody {
        payment_response_header: &Value::Null,
        tx_hash: Some("0x0"),
    };
    let raise = RaiseRequest {
        transaction_id: Uuid::nil(),
        max_per_call_units: Some(Usdc::from_units(7)),
        max_per_day_units: Some(Usdc::from_units(7)),
        until: chrono::DateTime::UNIX_EPOCH,
        reason: "more pages",
    };
    let bodies = [
        ("authorize", serde_json::to_value(&authorize).unwrap()),
        ("check", serde_json::to_value(&authorize).unwrap()),
        ("complete", serde_json::to_value(complete).unwrap()),
        ("raise", serde_json::to_value(raise).unwrap()),
    ];
    for (id, sent) in bodies {
        let (_, operation) = operation(&document, id);
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let names = |schema: &Value| -> BTreeSet<String> {
            let fields = resolve(&document, schema)["properties"].as_object().unwrap();
            fields.keys().cloned().collect()
        };
        let of = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(of(&sent), names(schema), "{id}");
        let original = &resolve(&document, schema)["properties"]["original_request"];
        if original.is_object() {
            assert_eq!(of(&sent["original_request"]), names(original), "{id}");
        }
    }
    let (_, list) = operation(&document, "list_services");
    let CatalogFilter {
        category: _,
        trust_status: _,
        slug: _,
        limit: _,
    } = CatalogFilter::default();
    let parameters: BTreeSet<&str> = list["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        parameters,
        BTreeSet::from(["category", "limit", "slug", "trust_status"])
    );
    let (_, approval) = operation(&document, "approval");
    assert_eq!(approval["parameters"][1]["name"], "wait_seconds");
    assert_eq!(
        approval["parameters"][1]["schema"]["maximum"],
        crate::api::MAX_WAIT.as_secs()
    );
}

/// Compares the slugs with the error catalogue, and the fields with the OpenAPI document.
#[test]
fn the_client_knows_all_agent_errors_and_fields() {
    let catalogue = ERRORS.split("\n## 3.").nth(1).unwrap().split("\n## 4.").next().unwrap();
    let slugs = catalogue
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    let not_agents = [
        "<field>_required",
        "invalid_session",
        "not_entitled",
        "recent_sign_in_required",
        "cross_site_request",
        "approval_not_pending",
        "slug_taken",
        "too_many_freezes",
        "version_required",
        "version_conflict",
        "invalid_internal_token",
        "payout_refused",
        "second_operator_required",
    ];
    let of_agents: BTreeSet<&str> = slugs.filter(|slug| !not_agents.contains(slug)).collect();
    assert_eq!(Slug::WORDS.iter().copied().collect::<BTreeSet<_>>(), of_agents);

    let document = document();
    let mut body = sample(&document, &json!({"$ref": "#/components/schemas/Error"}), false);
    let fields = body.as_object_mut().unwrap();
    for of_people in ["claim", "max_age_seconds", "status", "version"] {
        assert!(fields.remove(of_people).is_some(), "{of_people}");
    }
    let Refusal {
        status: _,
        slug,
        message,
        request_id,
        transaction_id,
        decision_hash,
        approval_id,
        settlement_id,
        amount,
        retry_at,
        retry_after,
        reason,
        checks,
        details,
        context,
        body: _,
    } = Refusal::read(402, None, body.to_string().as_bytes());
    let read = json!({
        "error": slug, "message": message, "request_id": request_id, "transaction_id": transaction_id,
        "decision_hash": decision_hash, "approval_id": approval_id, "settlement_id": settlement_id, "amount_units": amount, "retry_at": retry_at,
        "retry_after": retry_after.map(|time| time.as_secs()), "reason": reason,
        "details": details.iter().map(|detail| json!({"path": detail.path, "message": detail.message})).collect::<Vec<_>>(),
        "decision": {
            "checks": checks, "reason": "text", "result": "text", "rule_triggered": "text", "latency_ms": 7,
            "retry_at": retry_at,
        },
    });
    let context = serde_json::to_value(context).unwrap();
    let mut all = read.as_object().unwrap().clone();
    all.extend(context.as_object().unwrap().clone());
    assert_eq!(missing(&body, &all.into(), "Error"), [""; 0]);
    assert_ne!(context, serde_json::to_value(Context::default()).unwrap());
}

#[test]
fn the_client_knows_every_value_of_each_enum() {
    let document = document();
    let message = |pointer: &str| -> BTreeSet<&str> {
        let found = document.pointer(&format!("/components/schemas/{pointer}")).unwrap();
        let text = found["description"].as_str().unwrap_or_default();
        match found["enum"].as_array() {
            Some(message) => message.iter().map(|word| word.as_str().unwrap()).collect(),
            None => text.split('`').skip(1).step_by(2).collect(),
        }
    };
    let of = |message: &[&'static str]| -> BTreeSet<&str> { message.iter().copied().collect() };
    assert_eq!(
        of(ReceiptStatus::WORDS),
        message("Settlement/properties/receipt_status")
    );
    assert_eq!(of(ApprovalStatus::WORDS), message("Approval/properties/status"));
    assert_eq!(of(CheckOutcome::WORDS), message("Check/properties/outcome"));
}
