//! Merges the functions' descriptions of their routes into the OpenAPI document.

use crate::{
    http::envelope::{ErrorBody, ProblemView},
    view::decision::{CheckView, DecisionView},
};
use utoipa::openapi::{
    Components, InfoBuilder, LicenseBuilder, OpenApi, RefOr, Schema, Server,
    path::Paths,
    security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
};

/// The security scheme of agent keys, for `security(("agentKey" = []))`.
pub const AGENT_KEY: &str = "agentKey";
/// The security scheme of user sessions, for `security(("session" = []))`.
pub const SESSION: &str = "session";
/// The security scheme of operators, for `security(("internalToken" = []))`.
pub const INTERNAL_TOKEN: &str = "internalToken";

/// Merges the functions' descriptions into one OpenAPI 3.1 document.
pub fn merge_documents(parts: impl IntoIterator<Item = OpenApi>) -> OpenApi {
    let info = InfoBuilder::new()
        .title("Purser")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Payment authorization for agents over x402: policies, reservations, signed payments and receipts, in USDC.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let mut document = OpenApi::new(info, Paths::new());
    // A relative server URL is resolved against the document's own URL, so all deployments share the document.
    document.servers = Some(vec![Server::new("/")]);
    let mut components = Components::new();
    for (name, schema) in [
        named_schema::<ErrorBody>(),
        named_schema::<ProblemView>(),
        named_schema::<DecisionView>(),
        named_schema::<CheckView>(),
    ] {
        components.schemas.insert(name, schema);
    }
    for (name, scheme) in [
        (AGENT_KEY, agent_key_scheme()),
        (SESSION, session_scheme()),
        (INTERNAL_TOKEN, internal_token_scheme()),
    ] {
        components.add_security_scheme(name, scheme);
    }
    document.components = Some(components);
    for part in parts {
        document.merge(part);
    }
    document
}

fn named_schema<T: utoipa::ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), T::schema())
}

fn agent_key_scheme() -> SecurityScheme {
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("gak_pub_<id>:gak_sec_<secret>")
        .description(Some("The agent's key, created in the dashboard."))
        .build();
    SecurityScheme::Http(scheme)
}

fn session_scheme() -> SecurityScheme {
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("A token that the OpenID Connect issuer gave to a person."))
        .build();
    SecurityScheme::Http(scheme)
}

fn internal_token_scheme() -> SecurityScheme {
    let description = "The operators' token, from Secrets Manager. With InternalAuthorizationType=AWS_IAM, requests must also be signed with AWS credentials.";
    SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(
        "X-Internal-Token",
        description,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentCredentials, Failure, Id, OptionalBody, Reply, Text, describe_route, errors};
    use purser_domain::{ErrorKind, KeyId};
    use serde_json::{Value, json};
    use utoipa_axum::{router::OpenApiRouter, routes};

    crate::body! {
        /// A thing.
        struct Thing {
            name: Option<Text<4>>,
        }
    }

    #[utoipa::path(get, path = "/things/{keyId}", responses((status = 200, body = CheckView), errors::ServiceNotFound))]
    async fn get_thing(_caller: AgentCredentials, _id: Id<KeyId>) -> Reply {
        Err(Failure::from(ErrorKind::NotFound))
    }

    #[utoipa::path(post, path = "/things", tag = "others", responses((status = 200, body = CheckView)))]
    async fn make_thing(_body: OptionalBody<Thing>) -> Reply {
        Err(Failure::from(ErrorKind::NotFound))
    }

    fn parts() -> Value {
        let part = || {
            let router = OpenApiRouter::<()>::new();
            let router = router.routes(describe_route("things", &get_thing, routes!(get_thing)));
            let router = router.routes(describe_route("things", &make_thing, routes!(make_thing)));
            router.into_openapi()
        };
        serde_json::to_value(merge_documents([part(), part()])).unwrap()
    }

    #[test]
    fn function_descriptions_are_merged_into_one_openapi_document() {
        let document = parts();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["servers"], json!([{"url": "/"}]));
        assert_eq!(
            document["components"]["securitySchemes"]["agentKey"],
            json!({
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "gak_pub_<id>:gak_sec_<secret>",
                "description": "The agent's key, created in the dashboard.",
            })
        );
        assert_eq!(
            document["components"]["securitySchemes"]["session"],
            json!({
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "A token that the OpenID Connect issuer gave to a person.",
            })
        );
        let internal = &document["components"]["securitySchemes"]["internalToken"];
        assert_eq!(
            (&internal["type"], &internal["in"], &internal["name"]),
            (&json!("apiKey"), &json!("header"), &json!("X-Internal-Token"))
        );
        let operation = &document["paths"]["/things/{keyId}"]["get"];
        assert_eq!(operation["security"], json!([{"agentKey": []}]));
        assert_eq!(operation["tags"], json!(["things"]));
        assert_eq!(operation["parameters"][0]["name"], "keyId");
        let statuses: Vec<&String> = operation["responses"].as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["200", "400", "401", "403", "404", "429", "500", "503"]);
        let other = &document["paths"]["/things"]["post"];
        assert_eq!((&other["security"], &other["tags"]), (&Value::Null, &json!(["others"])));
        let error = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}});
        assert_eq!(
            operation["responses"]["404"],
            json!({
                "description": "- `not_found`: No key that you may access has this `keyId`. Check the path.\n\
                    - `service_not_found`: The slug or UUID belongs to no available service. If the request has no \
                    slug and no UUID, no available service has an operation at the call's host.",
                "content": error,
            })
        );
        assert_eq!(operation["responses"]["429"]["content"], error);
        assert!(operation["responses"]["429"]["headers"]["Retry-After"].is_object());
    }

    #[test]
    fn optional_request_bodies_are_not_nullable() {
        let body = &parts()["paths"]["/things"]["post"]["requestBody"];
        assert_ne!(body["required"], true);
        let schema = &body["content"]["application/json"]["schema"];
        assert_eq!(*schema, json!({"$ref": "#/components/schemas/Thing"}));
    }

    #[test]
    fn every_schema_reference_resolves() {
        let document = parts();
        let text = document.to_string();
        let names = text
            .split("\"#/components/schemas/")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap());
        for name in names {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }

    /// Only `error` and `message` are required.
    #[test]
    fn the_error_schema_distinguishes_absent_from_null() {
        let error = &parts()["components"]["schemas"]["Error"];
        assert_eq!(error["required"], json!(["error", "message"]));
        assert_eq!(error["properties"]["amount_units"]["type"], "integer");
        assert_eq!(error["properties"]["settlement_id"]["type"], json!(["string", "null"]));
    }
}
