//! Tests the schemas and the JSON of types with the attribute `#[view]`.

use purser_domain::{AgentId, Timestamp};
use purser_macros::view;
use serde_json::json;
use utoipa::PartialSchema as _;

/// A view with each kind of field.
#[view]
struct ThingView {
    agent_id: AgentId,
    agents: Option<Vec<AgentId>>,
    at: Option<Timestamp>,
    note: Option<String>,
    #[omit_none]
    omitted: Option<u32>,
}

#[test]
fn view_schemas_describe_ids_times_and_optional_fields_as_serde_writes_them() {
    let schema = serde_json::to_value(ThingView::schema()).unwrap();
    assert_eq!(
        schema,
        json!({
            "type": "object",
            "description": "A view with each kind of field.",
            "required": ["agent_id", "agents", "at", "note"],
            "properties": {
                "agent_id": {"type": "string", "format": "uuid"},
                "agents": {"type": ["array", "null"], "items": {"type": "string", "format": "uuid"}},
                "at": {"type": ["string", "null"], "format": "date-time"},
                "note": {"type": ["string", "null"]},
                "omitted": {"type": "integer", "format": "int32", "minimum": 0},
            },
        })
    );
    let id = "00000000-0000-4000-8000-000000000001";
    let thing = ThingView {
        agent_id: AgentId::parse(id).unwrap(),
        agents: Some(AgentId::parse(id).into_iter().collect()),
        at: Timestamp::from_micros(0),
        note: None,
        omitted: None,
    };
    assert_eq!(
        serde_json::to_value(thing).unwrap(),
        json!({"agent_id": id, "agents": [id], "at": "1970-01-01T00:00:00.000000Z", "note": null})
    );
}
