//! Tests the OpenAPI document of the dashboard's API.

use serde_json::Value;
use std::collections::BTreeSet;

/// Every operation requires a session, and most writes require `If-Match`.
#[test]
fn every_openapi_operation_has_a_unique_id_and_security() {
    let document = serde_json::to_value(purser_dashboard::openapi()).unwrap();
    let mut names = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| *name != "parameters")
        {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name}");
            // An agent uses its key, and the owner uses a session.
            let callers = match path.as_str() {
                // The token in the request is the credential.
                "/oauth/revoke" => serde_json::json!([{}]),
                "/agents/{agentId}/runs" | "/agents/{agentId}/runs/{keyId}" => serde_json::json!([{"agentKey": []}]),
                "/approvals/{id}" => serde_json::json!([{"agentKey": []}, {"session": []}]),
                _ => serde_json::json!([{"session": []}]),
            };
            assert_eq!(operation["security"], callers, "{method} {path}");
            let is_write = method != "get";
            let version = operation["parameters"].as_array().into_iter().flatten();
            let asks_for_version = version.filter(|parameter| parameter["name"] == "If-Match").count() == 1;
            let own_condition = [
                "accept_handover",
                "apply_policy_template",
                "approve",
                "attach_shadow",
                // An agent does not know the version of its record.
                "close_run",
                "create_agent",
                "create_webhook",
                "decide_approvals",
                "edit_agents",
                "end_session",
                "end_sessions",
                "limit_unlimited_services",
                "name_payout_address",
                "open_run",
                "pay_out",
                "redeliver_webhook_delivery",
                "reject",
                "remove_payout_address",
                // A replay changes nothing, so no version is required.
                "replay_decision",
                // Revoking a grant must succeed at any version.
                "revoke_grant",
                "remove_shadow",
                "start_backtest",
                "test_notices",
                "test_webhook",
                "withdraw_approval",
            ];
            let has_own_condition = own_condition.contains(&name);
            assert_eq!(asks_for_version, is_write && !has_own_condition, "{name}");
        }
    }
    assert_eq!(names.len(), 77);
}

#[test]
fn every_openapi_reference_resolves() {
    let document = serde_json::to_value(purser_api::merge_documents([purser_dashboard::openapi()])).unwrap();
    let text = document.to_string();
    let references = text.split("\"#/components/schemas/").skip(1);
    let references: BTreeSet<&str> = references.map(|rest| rest.split('"').next().unwrap()).collect();
    let schemas: &Value = &document["components"]["schemas"];
    for name in &references {
        assert!(schemas[name].is_object(), "{name}");
    }
    assert!(references.contains("OwnAgent") && references.contains("AgentRule"));
}
