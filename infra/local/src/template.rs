//! What the stack takes from `template.yaml`: the tables, and which function answers which route. Nothing is written
//! down twice, so the local stack can't drift from what is deployed.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TimeToLiveSpecification,
};
use aws_sdk_dynamodb::{Client, error::DisplayErrorContext};
use serde_yaml_ng::{Mapping, Value};
use std::path::Path;

/// A template that does not say what the stack needs to know.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It can't be read.
    #[error("template.yaml can't be read: {0}")]
    Unreadable(String),
    /// Something is missing or of another shape.
    #[error("template.yaml: {0}")]
    Unexpected(String),
    /// DynamoDB refused a table.
    #[error("creating the table {table}: {detail}")]
    Table {
        /// Which table.
        table: String,
        /// What DynamoDB said.
        detail: String,
    },
}

/// One route of the template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The function's logical id.
    pub function: String,
    /// `GET`, `POST`, … or `ANY`.
    pub method: String,
    /// `/services/{serviceId}`, or `$default`.
    pub path: String,
}

/// The parsed template.
pub struct Template {
    resources: Mapping,
}

impl Template {
    /// Reads the repository's `template.yaml`.
    pub fn of_repository() -> Result<Self, TemplateError> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
        let text = std::fs::read_to_string(path).map_err(|error| TemplateError::Unreadable(error.to_string()))?;
        Self::parse(&text)
    }

    /// Parses a template. CloudFormation's short tags (`!Ref`, `!GetAtt`) stay tagged values.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let document: Value =
            serde_yaml_ng::from_str(text).map_err(|error| TemplateError::Unreadable(error.to_string()))?;
        match document.get("Resources") {
            Some(Value::Mapping(resources)) => Ok(Self {
                resources: resources.clone(),
            }),
            _ => Err(TemplateError::Unexpected("no Resources".to_owned())),
        }
    }

    fn of_type(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        let resources = self
            .resources
            .iter()
            .filter(move |(_, resource)| text(resource, "Type") == Some(kind));
        resources.map(|(name, resource)| (name.as_str().unwrap_or_default(), resource))
    }

    /// Every route of every function, sorted.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for (function, resource) in self.of_type("AWS::Serverless::Function") {
            let events = resource
                .get("Properties")
                .and_then(|properties| properties.get("Events"));
            let Some(Value::Mapping(events)) = events else { continue };
            for event in events.values().filter(|event| text(event, "Type") == Some("HttpApi")) {
                let properties = event.get("Properties");
                let property = |name| properties.and_then(|properties| text(properties, name));
                routes.push(Route {
                    function: function.to_owned(),
                    method: property("Method").unwrap_or("ANY").to_ascii_uppercase(),
                    path: property("Path").unwrap_or("$default").to_owned(),
                });
            }
        }
        routes.sort();
        routes
    }

    /// The logical ids of the tables.
    pub fn tables(&self) -> Vec<String> {
        self.of_type("AWS::DynamoDB::Table")
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// Creates every table as the template declares it, under its logical id.
    pub async fn create_tables(&self, db: &Client) -> Result<(), TemplateError> {
        for (name, resource) in self.of_type("AWS::DynamoDB::Table") {
            create_table(db, name, resource).await?;
        }
        Ok(())
    }
}

async fn create_table(db: &Client, name: &str, resource: &Value) -> Result<(), TemplateError> {
    let wrong = |what: &str| TemplateError::Unexpected(format!("{name}: {what}"));
    let failed = |detail: String| TemplateError::Table {
        table: name.to_owned(),
        detail,
    };
    let properties = resource.get("Properties").ok_or_else(|| wrong("no Properties"))?;
    let mut request = db
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest);
    for attribute in list(properties, "AttributeDefinitions") {
        let built = AttributeDefinition::builder()
            .set_attribute_name(text(attribute, "AttributeName").map(str::to_owned))
            .set_attribute_type(text(attribute, "AttributeType").map(ScalarAttributeType::from))
            .build();
        request = request.attribute_definitions(built.map_err(|_| wrong("AttributeDefinitions"))?);
    }
    for element in key_schema(properties).ok_or_else(|| wrong("KeySchema"))? {
        request = request.key_schema(element);
    }
    for index in list(properties, "GlobalSecondaryIndexes") {
        let projection = index
            .get("Projection")
            .and_then(|projection| text(projection, "ProjectionType"));
        let built = GlobalSecondaryIndex::builder()
            .set_index_name(text(index, "IndexName").map(str::to_owned))
            .set_key_schema(key_schema(index))
            .projection(
                Projection::builder()
                    .set_projection_type(projection.map(ProjectionType::from))
                    .build(),
            )
            .build();
        request = request.global_secondary_indexes(built.map_err(|_| wrong("GlobalSecondaryIndexes"))?);
    }
    request
        .send()
        .await
        .map_err(|error| failed(DisplayErrorContext(error).to_string()))?;
    if let Some(attribute) = properties
        .get("TimeToLiveSpecification")
        .and_then(|ttl| text(ttl, "AttributeName"))
    {
        let ttl = TimeToLiveSpecification::builder()
            .enabled(true)
            .attribute_name(attribute)
            .build();
        let ttl = ttl.map_err(|_| wrong("TimeToLiveSpecification"))?;
        let request = db
            .update_time_to_live()
            .table_name(name)
            .time_to_live_specification(ttl);
        request
            .send()
            .await
            .map_err(|error| failed(DisplayErrorContext(error).to_string()))?;
    }
    Ok(())
}

fn key_schema(value: &Value) -> Option<Vec<KeySchemaElement>> {
    list(value, "KeySchema")
        .iter()
        .map(|element| {
            KeySchemaElement::builder()
                .set_attribute_name(text(element, "AttributeName").map(str::to_owned))
                .set_key_type(text(element, "KeyType").map(KeyType::from))
                .build()
                .ok()
        })
        .collect()
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_sequence)
        .map(Vec::as_slice)
        .unwrap_or_default()
}
