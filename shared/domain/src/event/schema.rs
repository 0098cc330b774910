//! The JSON Schema (2020-12) of the events, generated from the tables of `kind.rs`: `docs/events.schema.json`.

#[cfg(test)]
mod tests {
    use crate::{
        EventKind, EventTopic, Field, Form,
        event::{field::MAX_TEXT_CHARS, record::SCHEMA},
    };
    use serde_json::{Map, Value, json};

    fn event_schema() -> Value {
        let kinds: Vec<Value> = EventKind::ALL.iter().map(|kind| kind_schema(*kind)).collect();
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": SCHEMA,
            "title": "Purser events",
            "type": "object",
            "required": ["specversion", "id", "source", "type", "time", "subject", "datacontenttype", "dataschema", "data"],
            "properties": {
                "specversion": {"const": "1.0"},
                "id": {"type": "string", "format": "uuid"},
                "source": {"type": "string", "pattern": "^purser:[A-Za-z0-9-]+$"},
                "time": {"type": "string", "format": "date-time"},
                "datacontenttype": {"const": "application/json"},
                "dataschema": {"const": SCHEMA},
            },
            "oneOf": kinds,
        })
    }

    fn kind_schema(kind: EventKind) -> Value {
        let mut properties = Map::new();
        for field in kind.fields() {
            properties.insert(field.name.to_owned(), form_schema(field.form));
        }
        let required = |field: &&Field| field.required;
        let required: Vec<&str> = kind.fields().filter(required).map(|field| field.name).collect();
        let mut fields = json!({
            "type": {"const": kind.name()},
            "subject": subject_schema(kind.topic()),
            "data": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
        });
        let owner = if kind.topic().has_owner() {
            user_schema()
        } else {
            Value::Bool(false)
        };
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("owner".to_owned(), owner);
        }
        let mut schema = json!({"properties": fields});
        if let (true, Some(schema)) = (kind.topic().has_owner(), schema.as_object_mut()) {
            schema.insert("required".to_owned(), json!(["owner"]));
        }
        schema
    }

    fn user_schema() -> Value {
        json!({"type": "string", "pattern": "^[0-9a-f]{64}$"})
    }

    fn subject_schema(topic: EventTopic) -> Value {
        match topic {
            EventTopic::Agent | EventTopic::Service => form_schema(Form::Uuid),
            EventTopic::Person => user_schema(),
            EventTopic::Deployment => json!({"const": "deployment"}),
        }
    }

    fn form_schema(form: Form) -> Value {
        match form {
            Form::Uuid => json!({"type": "string", "format": "uuid"}),
            Form::Number => json!({"type": "integer", "minimum": 0}),
            Form::Time => json!({"type": "string", "format": "date-time"}),
            Form::Address => json!({"type": "string", "pattern": "^0x[0-9A-Fa-f]{40}$"}),
            Form::Hash => json!({"type": "string", "pattern": "^0x[0-9A-Fa-f]{64}$"}),
            Form::Flag => json!({"type": "boolean"}),
            Form::OneOf(texts) => json!({"enum": texts}),
            Form::Labels => json!({"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}),
            Form::Text => json!({"type": "string", "maxLength": MAX_TEXT_CHARS}),
        }
    }

    /// To fix a failure, replace the file by the schema that the test prints.
    #[test]
    fn the_documented_event_schema_matches_the_code() {
        let written: Value = serde_json::from_str(include_str!("../../../../docs/events.schema.json")).unwrap();
        let schema = event_schema();
        assert_eq!(written, schema, "docs/events.schema.json must be:\n{schema:#}");
    }

    #[test]
    fn the_documentation_lists_every_kind() {
        let text = include_str!("../../../../docs/events.md");
        let kinds = text.lines().filter_map(|line| line.strip_prefix("- `purser."));
        let kinds: Vec<&str> = kinds.filter_map(|rest| rest.split('`').next()).collect();
        let expected: Vec<&str> = EventKind::ALL
            .iter()
            .filter_map(|kind| kind.name().strip_prefix("purser."))
            .collect();
        assert_eq!(kinds, expected);
    }
}
