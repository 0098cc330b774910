//! Reads tables and routes from `template.yaml`, so that tests use the same as the deployment.

use crate::dynamodb::Streamed;
use dynoxide::Database;
use serde_json::{Value, json};

/// A route of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The logical id of the function.
    pub function: String,
    /// The HTTP method, or `ANY`.
    pub method: String,
    /// The path, for example `/services/{serviceId}`, or `$default`.
    pub path: String,
}

/// The resources of `template.yaml`, as JSON. A CloudFormation short tag, such as `!Ref`, becomes an object.
pub struct Template(Value);

impl Template {
    /// Reads the repository's `template.yaml`.
    pub fn of_repository() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml");
        let text = std::fs::read_to_string(path).expect("template.yaml can be read");
        let document: serde_yaml_ng::Value = serde_yaml_ng::from_str(&text).expect("template.yaml is YAML");
        Self(serde_json::to_value(&document["Resources"]).expect("names of resources are texts"))
    }

    fn of_type(&self, kind: &str) -> impl Iterator<Item = (&String, &Value)> {
        let resources = self.0.as_object().expect("template.yaml has resources").iter();
        resources
            .filter(move |(_, resource)| resource["Type"] == kind)
            .map(|(name, resource)| (name, &resource["Properties"]))
    }

    /// Returns every route of the API, sorted.
    pub fn routes(&self) -> Vec<Route> {
        let paths = &self.0["Api"]["Properties"]["DefinitionBody"]["paths"];
        let mut routes = Vec::new();
        for (path, item) in paths.as_object().expect("template.yaml has an API with paths") {
            let operations = item.as_object().expect("a path has methods").iter();
            for (method, operation) in operations.filter(|(name, _)| *name != "parameters") {
                routes.push(Route {
                    function: function_of(operation),
                    method: match method.as_str() {
                        "x-amazon-apigateway-any-method" => "ANY".to_owned(),
                        method => method.to_ascii_uppercase(),
                    },
                    path: path.clone(),
                });
            }
        }
        routes.sort();
        routes
    }

    /// Returns the logical ids of the tables that have streams.
    pub(crate) fn streamed_tables(&self) -> Vec<String> {
        let tables = self.of_type("AWS::DynamoDB::Table");
        let streamed = tables.filter(|(_, properties)| !properties["StreamSpecification"].is_null());
        streamed.map(|(name, _)| name.clone()).collect()
    }

    /// Creates every table with its logical id as its name.
    pub(crate) fn create_tables(&self, database: &Database, streamed: Streamed) {
        for (name, properties) in self.of_type("AWS::DynamoDB::Table") {
            let stream = match (&properties["StreamSpecification"], streamed) {
                (Value::Null, _) | (_, Streamed::Off) => Value::Null,
                (declared, Streamed::On) => json!({
                    "StreamEnabled": true,
                    "StreamViewType": declared["StreamViewType"],
                }),
            };
            let mut indexes = properties["GlobalSecondaryIndexes"].clone();
            // The emulator does not support `WarmThroughput`, whose value is a CloudFormation function.
            for index in indexes
                .as_array_mut()
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                index.remove("WarmThroughput");
            }
            let request = json!({
                "TableName": name,
                "StreamSpecification": stream,
                "BillingMode": properties["BillingMode"],
                "AttributeDefinitions": properties["AttributeDefinitions"],
                "KeySchema": properties["KeySchema"],
                "GlobalSecondaryIndexes": indexes,
            });
            let request = serde_json::from_value(request).expect("template.yaml declares a table");
            database.create_table(request).expect("DynamoDB takes the table");
            let expiry = &properties["TimeToLiveSpecification"];
            if !expiry.is_null() {
                let request = json!({"TableName": name, "TimeToLiveSpecification": expiry});
                let request = serde_json::from_value(request).expect("template.yaml declares an expiry");
                database
                    .update_time_to_live(request)
                    .expect("DynamoDB takes the expiry");
            }
        }
    }
}

/// Returns the logical id in `functions/${PaymentsFunction.Arn}/invocations`.
fn function_of(operation: &Value) -> String {
    let uri = operation["x-amazon-apigateway-integration"]["uri"].to_string();
    let named = uri
        .split_once("functions/${")
        .and_then(|(_, rest)| rest.split_once(".Arn}"));
    named.expect("an integration names its function").0.to_owned()
}
